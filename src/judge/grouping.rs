//! Groups matching members into findings.
//!
//! Members of the same place become one finding, so that 24 equal blocks are one line, unless `group_by` of
//! the rule groups more widely.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::evaluate::{Match, Range, RuleInput, RuleMatches, number};
use super::expr::{EvalContext, Expr, Found, Undecided};
use super::finding::{SavingKind, Severity};
use super::floors::FLOOR;
use super::rule::{COMMUNICATION, GroupBy, Rule};
use crate::correlate::SiteId;
use crate::facts::{AffectedTime, Answer, Member, MemberKind, SitePart, Totals, Value};

/// A finding before its position in the report is known.
#[derive(Debug, Clone)]
pub(super) struct FindingDraft {
    /// Index of the rule.
    pub(super) rule: usize,
    pub(super) matches: Vec<Match>,
    pub(super) found: Found,
    /// Index of the costliest match.
    pub(super) worst: usize,
    pub(super) severity: Severity,
    /// Whether `minor_when` holds.
    pub(super) minor: bool,
    /// Time that the problem costs outside the steps, ns.
    pub(super) outside_ns: Option<f64>,
    pub(super) kind: SavingKind,
    /// ns covered.
    pub(super) time_ns: f64,
    /// `time_ns` as a share of the GPU busy time; of the window if it [is idle time](is_idle_time).
    pub(super) share: f64,
    pub(super) calls: u64,
    /// Sum of the savings that are known.
    pub(super) saving: Option<Range>,
    pub(super) place: String,
    /// The label of the kernel, the kind of work or the cause that it is about, if members are grouped by it.
    pub(super) label: Option<String>,
}

impl FindingDraft {
    pub(super) fn worst(&self) -> Option<&Match> {
        self.matches.get(self.worst)
    }
}

/// The findings of a rule that meet `require`.
pub(super) fn findings(
    index: usize,
    rule: &Rule,
    matches: &[Match],
    input: &dyn RuleInput,
    results: &mut RuleMatches,
) -> Vec<FindingDraft> {
    let drafts = drafts(index, rule, matches, input).into_iter();
    drafts
        .filter_map(|draft| settle(rule, draft, input, results))
        .collect()
}

/// The findings about the matches of one that saves idle time with fewer launches, where launches are no longer late:
/// what remains to be saved is the work.
pub(super) fn without_late_launches(
    rule: &Rule,
    draft: &FindingDraft,
    input: &dyn RuleInput,
    results: &mut RuleMatches,
) -> Vec<FindingDraft> {
    let in_time = |matched: &Match| Match {
        saving: matched.work,
        launches: None,
        host_ns: 0.0,
        ..matched.clone()
    };
    let matches: Vec<Match> = draft.matches.iter().map(in_time).collect();
    findings(draft.rule, rule, &matches, input, results)
}

/// The findings of a rule, whether they meet `require` or not.
pub(super) fn drafts(
    index: usize,
    rule: &Rule,
    matches: &[Match],
    input: &dyn RuleInput,
) -> Vec<FindingDraft> {
    let totals = input.totals();
    let mut groups: BTreeMap<Group, Vec<Match>> = BTreeMap::new();
    for matched in matches {
        let group = Group::of(rule, matched, input);
        groups.entry(group).or_default().push(matched.clone());
    }
    let drafts = groups.into_iter().filter_map(|(group, matches)| {
        let draft = draft(index, rule, matches, &totals)?;
        let label = match group {
            Group::Labeled(label) => Some(label),
            _ => None,
        };
        Some(FindingDraft { label, ..draft })
    });
    drafts.collect()
}

/// The value of a string fact of a match.
fn word(matched: &Match, input: &dyn RuleInput, fact: &str) -> Option<String> {
    match input.lookup(matched.member).get(fact) {
        Answer::Value(Value::Str(label)) => Some(label.to_string()),
        _ => None,
    }
}

/// What matches must have in common to be one finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    All,
    Place(Option<String>, String),
    Layer(Option<String>),
    Rank(i64),
    Labeled(String),
}

impl Group {
    fn of(rule: &Rule, matched: &Match, input: &dyn RuleInput) -> Group {
        let labeled = |fact: &str| word(matched, input, fact).map_or(Group::All, Group::Labeled);
        match rule.group_by {
            None => Group::Place(
                matched.affected.layer.clone(),
                matched.affected.place.clone(),
            ),
            Some(GroupBy::Run) => Group::All,
            Some(GroupBy::Layer) => Group::Layer(matched.affected.layer.clone()),
            Some(GroupBy::Kernel) => labeled("kernel.label"),
            Some(GroupBy::Change) => labeled("kernel.changed_as"),
            Some(GroupBy::Family) => labeled(&format!("{}.family", rule.for_each.word())),
            Some(GroupBy::Cause) => labeled("gap.cause"),
            Some(GroupBy::Rank) => match matched.member {
                Member::Rank(rank) => Group::Rank(i64::from(rank)),
                member => {
                    let name = format!("{}.rank", rule.for_each.word());
                    match input.lookup(member).get(&name) {
                        Answer::Value(Value::Int(rank)) => Group::Rank(rank),
                        _ => Group::All,
                    }
                }
            },
        }
    }
}

/// Whether the time that the findings of a rule cover is idle time, and their share one of the window.
pub(super) fn is_idle_time(rule: &Rule) -> bool {
    rule.for_each == MemberKind::Gap
}

/// Whether fewer launches shorten the steps by enough for a finding, and by more than less GPU work does: where late
/// launches follow the work, the GPU waits for them however short it is.
fn saves_idle_time(matches: &[Match], totals: &Totals) -> bool {
    let Some((launches, run_weight)) =
        sum(matches.iter().map(|m| m.launches)).zip(totals.step_weight)
    else {
        return false;
    };
    let weight = |m: &Match| {
        let sites = m.all_sites();
        let weights = sites.map(|s| s.step_weight.map_or(run_weight, |w| w.high) * s.time_ns);
        part(weights.sum(), m.all_sites().map(|s| s.time_ns).sum())
    };
    let savings = matches.iter().filter_map(|m| Some((m, m.saving?.high)));
    let shorter: f64 = savings.map(|(m, saving)| saving * weight(m)).sum();
    launches.high >= FLOOR * totals.window_ns && launches.high > shorter
}

/// Lets fewer launches save no more than the idle time of late launches.
fn limit_launches(matches: &mut [Match], totals: &Totals) {
    let own: f64 = matches.iter().map(|m| m.affected.launch_ns).sum();
    let all = sum(matches.iter().map(|m| m.launches)).map_or(0.0, |all| all.high);
    let most = totals.late_launch_ns.max(own);
    if all <= most {
        return;
    }
    for launches in matches.iter_mut().filter_map(|m| m.launches.as_mut()) {
        launches.low *= most / all;
        launches.high *= most / all;
    }
}

/// The sum of the savings that are known.
fn sum(savings: impl Iterator<Item = Option<Range>>) -> Option<Range> {
    savings.flatten().reduce(|sum, saving| Range {
        low: sum.low + saving.low,
        high: sum.high + saving.high,
    })
}

/// Sums matches up.
fn draft(
    index: usize,
    rule: &Rule,
    mut matches: Vec<Match>,
    totals: &Totals,
) -> Option<FindingDraft> {
    limit_launches(&mut matches, totals);
    let kind = if saves_idle_time(&matches, totals) {
        // Collectives that run beside other work leave nothing where they were: the step becomes shorter by the time
        // in which they ran as well as by the idle time before them. So it may where work goes away altogether.
        let moves = rule.category() == COMMUNICATION;
        for matched in &mut matches {
            let work = matched.work.filter(|_| moves || rule.removes_work);
            let work = work.map(|work| Range {
                low: if moves { work.low } else { 0.0 },
                ..work
            });
            matched.saving = sum([matched.launches, work].into_iter());
            matched.affected.idle_ns = matched.affected.launch_ns;
        }
        SavingKind::Idle
    } else {
        rule.saving_kind()
    };
    let worst = worst(&matches)?;
    let time_ns = covered(&matches);
    let whole = if is_idle_time(rule) {
        totals.window_ns
    } else {
        totals.gpu_busy_ns
    };
    // Kernels that run side by side add up to more than the time the GPU was busy.
    let share = part(time_ns, whole).min(1.0);
    let calls = matches
        .iter()
        .fold(0_u64, |sum, p| sum.saturating_add(p.affected.calls));
    let saving = sum(matches.iter().map(|p| p.saving));
    let place_of_worst = matches
        .get(worst)
        .map(|p| p.affected.place.clone())
        .unwrap_or_default();
    let all =
        |part: fn(&AffectedTime) -> f64| matches.iter().map(|p| part(&p.affected)).sum::<f64>();
    let double = |value: f64| Value::Double(if value.is_finite() { value } else { 0.0 });
    let count = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
    let mut found = Found::default();
    found.set("found.count", count(matches.len() as u64));
    found.set("found.calls", count(calls));
    found.set(
        "found.waits",
        count(matches.iter().map(|p| p.affected.waits).sum()),
    );
    found.set("found.time_ns", double(time_ns));
    let longest = matches.iter().map(|p| p.affected.longest_ns);
    found.set("found.longest_ns", double(longest.fold(0.0, f64::max)));
    found.set("found.gpu_share", double(share));
    // Collectives that wait for other ranks make nothing else less of the model's work.
    let communication_ns = match rule.category() {
        COMMUNICATION => 0.0,
        _ => totals.comm_ns,
    };
    let kernel_share = part(in_sites(&matches), totals.kernel_ns - communication_ns);
    found.set("found.kernel_share", double(kernel_share.min(1.0)));
    found.set(
        "found.idle_share",
        double(part(all(|s| s.idle_ns), totals.window_ns)),
    );
    found.set(
        "found.copy_share",
        double(part(all(|s| s.copy_ns), totals.window_ns)),
    );
    found.set("found.saving_ns", double(saving.map_or(0.0, |s| s.high)));
    found.set("found.saving_low_ns", double(saving.map_or(0.0, |s| s.low)));
    let parts = matches.iter().flat_map(|p| &p.affected.sites);
    found.set(
        "found.exposed_ns",
        double(parts.map(|s| s.time_ns * s.exposed_share).sum()),
    );
    found.set("found.worst", Value::Str(place_of_worst.as_str().into()));
    let (costliest, places) = costliest_place(&matches);
    found.set("found.place", Value::Str(costliest.into()));
    Some(FindingDraft {
        rule: index,
        place: place(costliest, places),
        worst,
        severity: rule.severity,
        minor: false,
        outside_ns: None,
        kind,
        time_ns,
        share,
        calls,
        saving,
        found,
        matches,
        label: None,
    })
}

/// The index of the match with the largest saving by the middle of its range, else with the most time, else of the
/// first.
fn worst(matches: &[Match]) -> Option<usize> {
    // `max_by` returns the last of equals; reversed, the first.
    let matches = matches.iter().enumerate().rev();
    let worst = matches.max_by(|(_, a), (_, b)| {
        let by_saving = twice_the_middle(a).total_cmp(&twice_the_middle(b));
        by_saving.then(a.affected.time_ns.total_cmp(&b.affected.time_ns))
    });
    worst.map(|(index, _)| index)
}

fn twice_the_middle(matched: &Match) -> f64 {
    matched.saving.map_or(0.0, |s| s.low + s.high)
}

fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// ns covered by matches, each site once.
pub(super) fn covered(matches: &[Match]) -> f64 {
    let siteless = matches.iter().filter(|p| p.affected.sites.is_empty());
    siteless.map(|p| p.affected.time_ns).sum::<f64>() + in_sites(matches)
}

/// ns of the sites covered by matches.
fn in_sites(matches: &[Match]) -> f64 {
    covered_sites(matches).values().sum()
}

/// ns covered of each site; parts of a site (its kernels, its share of chains) add up.
pub(super) fn covered_sites(matches: &[Match]) -> BTreeMap<SiteId, f64> {
    let mut sites: BTreeMap<SiteId, f64> = BTreeMap::new();
    for matched in matches {
        for affected in &matched.affected.sites {
            let time = sites.entry(affected.site).or_default();
            *time = match matched.member {
                Member::Kernel(..) | Member::Chain(_) => *time + affected.time_ns,
                _ => time.max(affected.time_ns),
            };
        }
    }
    sites
}

/// What matches cover of each site: whole sites, some of their kernels, or the calls of chains.
pub(super) fn parts_of_sites(matches: &[Match]) -> BTreeMap<SiteId, SitePart> {
    let mut sites: BTreeMap<SiteId, SitePart> = BTreeMap::new();
    for matched in matches {
        let affected = &matched.affected;
        for site in &affected.sites {
            let part = sites.entry(site.site).or_default();
            match matched.member {
                Member::Kernel(_, row) => {
                    part.calls += affected.calls;
                    part.add_kernel(row, affected.calls, affected.time_ns);
                }
                Member::Chain(_) => {
                    if let Some(of_chain) = affected.parts.get(&site.site) {
                        part.add(of_chain);
                    }
                }
                _ => part.whole = true,
            }
        }
    }
    sites
}

/// The place with the largest saving by the middle of its range, else with the most time, and the number of places.
fn costliest_place(matches: &[Match]) -> (&str, usize) {
    let mut places: IndexMap<&str, (f64, f64)> = IndexMap::new();
    for matched in matches {
        let (saving, time) = places.entry(&matched.affected.place).or_default();
        *saving += twice_the_middle(matched);
        *time += matched.affected.time_ns;
    }
    // `max_by` returns the last of equals; reversed, the first.
    let costliest = places.iter().rev().max_by(|(_, a), (_, b)| {
        let by_saving = a.0.total_cmp(&b.0);
        by_saving.then(a.1.total_cmp(&b.1))
    });
    (costliest.map_or("", |(place, _)| place), places.len())
}

/// One place, or the costliest and how many more.
pub(super) fn place(costliest: &str, places: usize) -> String {
    match places {
        0 | 1 => costliest.to_owned(),
        2 => format!("{costliest} and 1 more place"),
        n => format!("{costliest} and {} more places", n - 1),
    }
}

/// The first place of a finding, without ` and 3 more places`.
pub(crate) fn place_name(place: &str) -> &str {
    match place.rsplit_once(" and ") {
        Some((first, more)) if more.ends_with(" more place") || more.ends_with(" more places") => {
            first
        }
        _ => place,
    }
}

/// Applies `require`, `error_when`, `minor_when` and `outside_ns`, seen from the costliest member.
fn settle(
    rule: &Rule,
    mut draft: FindingDraft,
    input: &dyn RuleInput,
    results: &mut RuleMatches,
) -> Option<FindingDraft> {
    let expressions = [
        &rule.require,
        &rule.error_when,
        &rule.minor_when,
        &rule.outside_ns,
    ];
    if expressions.iter().all(|expression| expression.is_none()) {
        return Some(draft);
    }
    let member = draft.worst()?.member;
    let lookup = input.lookup(member);
    let context = EvalContext::new(&*lookup, &rule.settings, &rule.lets, Some(&draft.found));
    if let Some(require) = &rule.require {
        match context.holds(require) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => {
                results.undecided(why, member);
                return None;
            }
        }
    }
    let mut severity = draft.severity;
    let mut holds = |condition: &Option<Expr>| match condition.as_ref().map(|c| context.holds(c)) {
        Some(Ok(holds)) => holds,
        // An undecided condition does not hold; only a failure is reported.
        Some(Err(why @ Undecided::Fault(_))) => {
            results.undecided(why, member);
            false
        }
        Some(Err(_)) | None => false,
    };
    if holds(&rule.error_when) {
        severity = Severity::Error;
    }
    let minor = holds(&rule.minor_when);
    let outside = rule.outside_ns.as_ref();
    draft.outside_ns =
        outside.and_then(|expr| number("outside_ns", expr, &context, &mut results.faults));
    drop(context);
    draft.severity = severity;
    draft.minor = minor;
    Some(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::AffectedSite;

    fn matched(member: Member, calls: u64, time_ns: f64, parts: &[(SiteId, SitePart)]) -> Match {
        let site = AffectedSite {
            site: SiteId(0),
            time_ns,
            floor_ns: 0.0,
            exposed_share: 1.0,
            beside_comm_share: 0.0,
            step_weight: None,
        };
        Match {
            member,
            affected: AffectedTime {
                sites: vec![site],
                parts: parts.iter().cloned().collect(),
                calls,
                time_ns,
                ..AffectedTime::default()
            },
            saving: None,
            work: None,
            launches: None,
            host_ns: 0.0,
            adds_launches: false,
        }
    }

    #[test]
    fn parts_of_a_site_are_its_kernels_the_calls_of_chains_or_all_of_it() {
        let site = SiteId(0);
        let of = |matches: &[Match]| parts_of_sites(matches).remove(&site).unwrap();
        let kernel = |row| matched(Member::Kernel(site, row), 7, 70.0, &[]);
        let mut part = SitePart {
            calls: 14,
            ..SitePart::default()
        };
        part.add_kernel(0, 7, 70.0);
        part.add_kernel(2, 7, 70.0);
        assert_eq!(of(&[kernel(0), kernel(2)]), part);
        let chain = |i| matched(Member::Chain(i), 3, 30.0, &[(site, part.clone())]);
        let mut both = part.clone();
        both.add(&part);
        assert_eq!(of(&[chain(0), chain(1)]), both);
        let whole = matched(Member::Site(site), 9, 90.0, &[]);
        assert!(of(&[kernel(0), whole]).whole);
    }
}
