//! Turns the matches of all rules into findings: vetoes, lowered confidence, dropped findings,
//! contradictions, claims, order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rayon::prelude::*;

use super::advice::Advice;
use super::after::{
    count_gpu_time, leaves_few_late_launches, measure_by_the_rest, removes_late_launches, sort,
    sort_behind,
};
use super::also_fixed;
use super::claim::{self, Claims};
use super::evaluate::{Match, RuleInput, RuleMatches};
use super::expr::EvalContext;
use super::finding::{
    Confidence, DroppedFinding, Fault, Finding, MissingFact, RuleResults, SavingKind,
};
use super::floors::{FLOOR, matters};
use super::grouping::{self, FindingDraft};
use super::long_gaps;
use super::order::Standing;
use super::rule::{GroupBy, PROFILE, Rule};
use super::rule_set::overrides;
use super::template::Template;
use super::vendor_words::{for_windows, in_vendor_words, vendor_links};
use super::windows::{input_of, is_about_idle};
use crate::base::glob::Glob;
use crate::base::{text, units};
use crate::correlate::SiteId;
use crate::facts::{Fact, Member, Totals};

/// Turns the matches of the rules into findings. `results` has one entry per rule, in order.
pub(super) fn resolve(
    rules: &[Rule],
    results: Vec<RuleMatches>,
    input: &dyn RuleInput,
) -> RuleResults {
    let mut resolver = Resolver {
        rules,
        input,
        confidence: rules.iter().map(|rule| rule.confidence).collect(),
        drafts: vec![Vec::new(); results.len()],
        results,
        dropped: BTreeSet::new(),
        alternatives: BTreeMap::new(),
    };
    resolver.apply_profile_rules();
    resolver.apply_overrides();
    let drafts = resolver.resolve_contradictions();
    let mut findings = resolver.claim(drafts);
    let totals = input.totals();
    let standing = Standing {
        step_weight: totals.step_weight,
        devices: totals.devices.into(),
        window_ns: totals.window_ns / totals.device_count(),
    };
    sort(&mut findings, &standing);
    let (capture, mut advice): (Vec<Finding>, Vec<Finding>) = findings
        .into_iter()
        .partition(|finding| finding.category == PROFILE);
    let in_time = removes_late_launches(&advice, &totals);
    let first = in_time.and_then(|(first, weight)| {
        count_gpu_time(&mut advice, first, weight, &totals);
        let first = advice.get(first).filter(|_| weight >= 1.0);
        first.map(|first| first.rule.clone())
    });
    measure_by_the_rest(&mut advice, &totals);
    let (findings, minor): (Vec<Finding>, Vec<Finding>) = advice
        .into_iter()
        .partition(|f| matters(f, &totals) && !f.is_minor);
    let (mut findings, minor, parts) = also_fixed::join(findings, minor, &totals);
    sort(&mut findings, &standing);
    if let Some(first) = first {
        sort_behind(&first, &mut findings, &standing);
    }
    resolver.dropped.extend(parts);
    RuleResults {
        findings,
        minor,
        capture,
        skipped: skipped(rules, &resolver.results, input),
        faults: faults(rules, &resolver.results),
        dropped: resolver
            .dropped
            .into_iter()
            .map(|(rule, by, place)| DroppedFinding { rule, by, place })
            .collect(),
        rules_run: rules.len(),
    }
}

/// What two findings have in common when they are about the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    Site(SiteId),
    Other(Member),
}

/// The run itself, or what has no sites, is a subject of its own.
fn subjects(matched: &Match) -> impl Iterator<Item = Subject> + '_ {
    let sites = matched.affected.sites.iter().map(|s| Subject::Site(s.site));
    let own = matched.affected.sites.is_empty() || matched.member == Member::Run;
    sites.chain(own.then_some(Subject::Other(matched.member)))
}

/// What the findings of a rule are about.
#[derive(Default)]
struct Covered {
    whole: HashSet<Subject>,
    by_chains: ChainShares,
}

/// The shares of sites that chains take, which consist of some of their calls: where shapes are not
/// recorded, all copies of a layer are one site.
#[derive(Default)]
struct ChainShares {
    sites: BTreeMap<SiteId, f64>,
    /// The same per kernel.
    kernels: BTreeMap<Member, f64>,
    /// Shares of sites of their backward passes, where the saving includes these.
    backward: BTreeMap<SiteId, f64>,
    /// The chains themselves, which have no call in common.
    chains: BTreeSet<Member>,
}

impl ChainShares {
    /// Adds the shares that the chains of another rule take; those of the backward pass if that rule `supersedes` this one.
    fn add(&mut self, other: &ChainShares, supersedes: bool) {
        for (site, share) in &other.sites {
            *self.sites.entry(*site).or_default() += share;
        }
        for (kernel, share) in &other.kernels {
            *self.kernels.entry(*kernel).or_default() += share;
        }
        for (site, share) in other.backward.iter().filter(|_| supersedes) {
            *self.backward.entry(*site).or_default() += share;
        }
        self.chains.extend(&other.chains);
    }

    /// Whether chains take most of the time of a match.
    fn hold(&self, matched: &Match) -> bool {
        let of = |shares: &BTreeMap<SiteId, f64>, site: &SiteId| {
            shares.get(site).copied().unwrap_or(0.0)
        };
        if let Member::Kernel(site, _) = &matched.member {
            let share = self.kernels.get(&matched.member).copied().unwrap_or(0.0);
            return share + of(&self.backward, site) > 0.5;
        }
        if matches!(matched.member, Member::Chain(_)) {
            return self.chains.contains(&matched.member);
        }
        let sites = &matched.affected.sites;
        let share = |site: &SiteId| (of(&self.sites, site) + of(&self.backward, site)).min(1.0);
        let covered: f64 = sites.iter().map(|s| s.time_ns * share(&s.site)).sum();
        let whole: f64 = sites.iter().map(|s| s.time_ns).sum();
        covered > 0.0 && covered > 0.5 * whole
    }
}

impl Covered {
    fn by(rule: &Rule, drafts: &[FindingDraft], input: &dyn RuleInput) -> Covered {
        let mut covered = Covered::default();
        let saves_backward = rule.saves_backward();
        for matched in drafts.iter().flat_map(|draft| &draft.matches) {
            if !matches!(matched.member, Member::Chain(_)) || matched.affected.sites.is_empty() {
                covered.whole.extend(subjects(matched));
                continue;
            }
            covered.by_chains.chains.insert(matched.member);
            for part in &matched.affected.sites {
                *covered.by_chains.sites.entry(part.site).or_default() += part.time_ns;
            }
            for part in matched.affected.backward.iter().filter(|_| saves_backward) {
                *covered.by_chains.backward.entry(part.site).or_default() += part.time_ns;
            }
            for (&site, part) in &matched.affected.parts {
                for (&row, (_, ns)) in &part.kernels {
                    let kernel = Member::Kernel(site, row);
                    *covered.by_chains.kernels.entry(kernel).or_default() += ns;
                }
            }
        }
        let share = |ns: f64, member: Member| {
            let whole = input.affected_without_place(member);
            let whole_ns: f64 = whole.sites.iter().map(|s| s.time_ns).sum();
            if whole_ns > 0.0 { ns / whole_ns } else { 1.0 }
        };
        let chains = &mut covered.by_chains;
        for (site, time) in chains.sites.iter_mut().chain(&mut chains.backward) {
            *time = share(*time, Member::Site(*site));
        }
        for (kernel, time) in &mut covered.by_chains.kernels {
            *time = share(*time, *kernel);
        }
        covered
    }
}

struct Resolver<'a> {
    rules: &'a [Rule],
    input: &'a dyn RuleInput,
    results: Vec<RuleMatches>,
    /// Confidence per rule, after rules about the capture lowered it.
    confidence: Vec<Confidence>,
    /// Findings per rule.
    drafts: Vec<Vec<FindingDraft>>,
    /// Rule, by which, where.
    dropped: BTreeSet<(String, String, String)>,
    /// Per rule: what is said of rules that give way to it although their advice is another value for the same setting.
    alternatives: BTreeMap<usize, String>,
}

impl Resolver<'_> {
    /// Evaluates the rules about the capture first: they veto others or lower their confidence.
    fn apply_profile_rules(&mut self) {
        let (profile, others): (Vec<usize>, Vec<usize>) =
            (0..self.rules.len()).partition(|&i| self.rules.get(i).is_some_and(Rule::is_profile));
        let mut firing: Vec<usize> = Vec::new();
        for index in profile {
            self.draft_unless_vetoed(index, &firing);
            if self.drafts.get(index).is_some_and(|d| !d.is_empty()) {
                firing.push(index);
            }
        }
        for index in others {
            self.draft_unless_vetoed(index, &firing);
        }
    }

    /// Groups the matches of a rule into findings unless a profile rule that fired vetoes the rule.
    fn draft_unless_vetoed(&mut self, index: usize, firing: &[usize]) {
        let (Some(rule), Some(results)) = (self.rules.get(index), self.results.get_mut(index))
        else {
            return;
        };
        let profile_rules = firing.iter().filter_map(|&i| self.rules.get(i));
        let applies = |globs: &[Glob], profile_rule: &Rule| {
            profile_rule.id != rule.id && globs.iter().any(|glob| glob.matches(&rule.id))
        };
        for profile_rule in profile_rules.clone() {
            if applies(&profile_rule.lowers_confidence, profile_rule)
                && let Some(confidence) = self.confidence.get_mut(index)
            {
                *confidence = confidence.lowered();
            }
        }
        let matches = std::mem::take(&mut results.matches);
        let input = input_of(self.input, rule);
        let drafts = grouping::findings(index, rule, &matches, input, results);
        match profile_rules.clone().find(|s| applies(&s.vetoes, s)) {
            Some(by) => {
                for draft in &drafts {
                    self.dropped
                        .insert((rule.id.clone(), by.id.clone(), draft.place.clone()));
                }
            }
            None => {
                if let Some(slot) = self.drafts.get_mut(index) {
                    *slot = drafts;
                }
            }
        }
    }

    /// Applies `supersedes` and `unless`: the rest of an overridden finding is grouped again.
    ///
    /// A finding that is itself overridden still overrides others: its condition holds.
    fn apply_overrides(&mut self) {
        let mut kept: Vec<Vec<FindingDraft>> = Vec::with_capacity(self.drafts.len());
        let mut covered: HashMap<usize, Covered> = HashMap::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let mut drafts = self.drafts.get(index).cloned().unwrap_or_default();
            let mut by_chains = ChainShares::default();
            for (by_index, by) in self.rules.iter().enumerate() {
                let Some(their) = self.drafts.get(by_index).filter(|d| !d.is_empty()) else {
                    continue;
                };
                if drafts.is_empty() || !overrides(by, rule) {
                    continue;
                }
                let supersedes = by.supersedes.iter().any(|glob| glob.matches(&rule.id));
                if supersedes
                    && may_save_nothing(their)
                    && is_certain(&drafts, &self.input.totals())
                {
                    continue;
                }
                let covered = covered
                    .entry(by_index)
                    .or_insert_with(|| Covered::by(by, their, self.input));
                by_chains.add(&covered.by_chains, supersedes);
                let results = self.results.get_mut(index);
                let before = saved(&drafts);
                // A finding about any part overrides one about the whole run.
                let (left, dropped) = drop_matches(drafts, rule, self.input, results, |matched| {
                    matched.member == Member::Run
                        || subjects(matched).any(|s| covered.whole.contains(&s))
                        || by_chains.hold(matched)
                });
                drafts = left;
                let totals = self.input.totals();
                if is_alternative(rule, by)
                    && let Some(sentence) = alternative(rule, before - saved(&drafts), &totals)
                {
                    self.alternatives
                        .entry(by_index)
                        .or_default()
                        .push_str(&sentence);
                }
                for place in dropped {
                    self.dropped.insert((rule.id.clone(), by.id.clone(), place));
                }
            }
            kept.push(drafts);
        }
        self.drafts = kept;
    }

    /// Findings with the savings they claim, best first. Work that a finding removes or replaces is
    /// taken from those behind it.
    fn claim(&mut self, mut open: Vec<FindingDraft>) -> Vec<Finding> {
        let rules = self.rules;
        let totals = self.input.totals();
        let mut claims = Claims::new(self.input);
        let mut findings = Vec::new();
        // Whether a finding takes care of late launches as a whole, so that fewer of them save no more.
        let mut replayed = false;
        // The best last, for `pop`.
        self.sort(&mut open);
        open.reverse();
        while let Some(draft) = open.pop() {
            let Some(rule) = rules.get(draft.rule) else {
                continue;
            };
            let replaced = |matched: &Match| claims.replaced_by(matched);
            let stays = rule.is_profile() || rule.removes_work;
            if !stays && draft.matches.iter().any(|m| replaced(m).is_some()) {
                let by = draft.matches.iter().find_map(replaced);
                let place = draft.place.clone();
                let results = self.results.get_mut(draft.rule);
                let goes = |matched: &Match| replaced(matched).is_some();
                let (left, _) = drop_matches(vec![draft], rule, self.input, results, goes);
                if let Some(by) = by.and_then(|by| rules.get(by)) {
                    self.dropped.insert((rule.id.clone(), by.id.clone(), place));
                }
                if !left.is_empty() {
                    open.extend(left);
                    self.sort(&mut open);
                    open.reverse();
                }
                continue;
            }
            if replayed && draft.kind == SavingKind::Idle && rule.launches_removed.is_some() {
                if let Some(results) = self.results.get_mut(draft.rule) {
                    let input = input_of(self.input, rule);
                    open.extend(grouping::without_late_launches(
                        rule, &draft, input, results,
                    ));
                    self.sort(&mut open);
                    open.reverse();
                }
                continue;
            }
            let results = self.results.get_mut(draft.rule);
            let mut finding = finding(rule, &draft, self.input, results);
            if let Some(confidence) = self.confidence.get(draft.rule) {
                finding.confidence = *confidence;
            }
            finding
                .message
                .extend(self.alternatives.remove(&draft.rule));
            finding.saving = claims.claim(&draft, rule);
            if rule.replaces_work && finding.saving.is_some() && matters(&finding, &totals) {
                claims.replace(&draft);
            }
            replayed |= leaves_few_late_launches(&finding, &totals);
            findings.push((draft, rule, finding));
        }
        // Savings whose lower end is 0 claim from what the others left.
        for (draft, rule, finding) in &mut findings {
            if let Some(saving) = &mut finding.saving {
                claims.claim_uncertain(draft, rule, saving);
            }
        }
        for (draft, _, finding) in &mut findings {
            if let Some(saving) = &mut finding.saving {
                claims.leave_to_fewer_launches(draft, saving);
            }
        }
        findings.into_iter().map(|(.., finding)| finding).collect()
    }

    /// Sorts by the lower end of the saving, largest first.
    fn sort(&self, drafts: &mut [FindingDraft]) {
        let totals = self.input.totals();
        drafts.sort_by(|a, b| claim::by_min_saving(self.rules, &self.confidence, &totals, a, b));
    }

    /// Of two findings that advise different values for one setting of a site, keeps the one with the larger
    /// lower end of its saving.
    fn resolve_contradictions(&mut self) -> Vec<FindingDraft> {
        let mut open: Vec<FindingDraft> = std::mem::take(&mut self.drafts)
            .into_iter()
            .flatten()
            .collect();
        self.sort(&mut open);
        let mut wanted: HashMap<(Subject, &str), (&str, &str)> = HashMap::new();
        let mut settled = Vec::with_capacity(open.len());
        for draft in open {
            let Some(rule) = self.rules.get(draft.rule) else {
                continue;
            };
            if rule.changes.is_empty() {
                settled.push(draft);
                continue;
            }
            let conflict = |matched: &Match| {
                let mut keys =
                    subjects(matched).flat_map(|s| rule.changes.iter().map(move |c| (s, c)));
                keys.find_map(|(subject, (key, value))| {
                    let (other, by) = wanted.get(&(subject, key.as_str()))?;
                    (*other != value.as_str()).then_some(*by)
                })
            };
            let mut by = BTreeSet::new();
            by.extend(draft.matches.iter().filter_map(conflict));
            let results = self.results.get_mut(draft.rule);
            let place = draft.place.clone();
            let (left, dropped) = drop_matches(vec![draft], rule, self.input, results, |p| {
                conflict(p).is_some()
            });
            if !dropped.is_empty() {
                for by in by {
                    self.dropped
                        .insert((rule.id.clone(), by.to_owned(), place.clone()));
                }
            }
            for subject in left.iter().flat_map(|d| &d.matches).flat_map(subjects) {
                for (key, value) in &rule.changes {
                    wanted
                        .entry((subject, key.as_str()))
                        .or_insert((value.as_str(), rule.id.as_str()));
                }
            }
            settled.extend(left);
        }
        settled
    }
}

/// Whether the savings of drafts are known, and 0 at least.
fn may_save_nothing(drafts: &[FindingDraft]) -> bool {
    let mut savings = drafts.iter().map(|draft| draft.saving);
    savings.all(|saving| saving.is_some_and(|saving| saving.low <= 0.0))
}

/// Whether drafts save enough for a finding at least.
fn is_certain(drafts: &[FindingDraft], totals: &Totals) -> bool {
    let low = drafts.iter().filter_map(|draft| Some(draft.saving?.low));
    low.sum::<f64>() >= FLOOR * totals.window_ns
}

/// The upper end of what drafts save, in ns of GPU time.
fn saved(drafts: &[FindingDraft]) -> f64 {
    let of_gpu = drafts.iter().filter(|draft| draft.kind == SavingKind::Gpu);
    of_gpu.filter_map(|draft| Some(draft.saving?.high)).sum()
}

/// Whether a rule gives way to another one that advises another value for one of its settings.
fn is_alternative(rule: &Rule, by: &Rule) -> bool {
    let differs =
        |(key, value): (&String, &String)| by.changes.get(key).is_some_and(|v| v != value);
    rule.unless.iter().any(|glob| glob.matches(&by.id)) && rule.changes.iter().any(differs)
}

/// A sentence on what a rule would save instead of the one that it gives way to.
fn alternative(rule: &Rule, saved_ns: f64, totals: &Totals) -> Option<String> {
    let share = |ns: f64| ns / totals.gpu_busy_ns;
    (saved_ns >= FLOOR * totals.gpu_busy_ns).then(|| {
        format!(
            " The smaller change of {} alone saves {} of GPU time.",
            text::md_code(&rule.id),
            units::percent_range(share(saved_ns * rule.min_fraction()), share(saved_ns))
        )
    })
}

/// Removes matches and groups the rest again. Also returns the places of findings that lost matches.
fn drop_matches(
    drafts: Vec<FindingDraft>,
    rule: &Rule,
    input: &dyn RuleInput,
    results: Option<&mut RuleMatches>,
    goes: impl Fn(&Match) -> bool,
) -> (Vec<FindingDraft>, Vec<String>) {
    let mut left = Vec::new();
    let mut places = Vec::new();
    let mut scratch = RuleMatches::default();
    let results = results.unwrap_or(&mut scratch);
    let input = input_of(input, rule);
    for draft in drafts {
        let (gone, stay): (Vec<Match>, Vec<Match>) = draft
            .matches
            .iter()
            .cloned()
            .partition(|matched| goes(matched));
        if gone.is_empty() {
            left.push(draft);
            continue;
        }
        places.push(draft.place.clone());
        if !stay.is_empty() {
            left.extend(grouping::findings(draft.rule, rule, &stay, input, results));
        }
    }
    (left, places)
}

/// Renders a finding, with the facts of its costliest member.
fn finding(
    rule: &Rule,
    draft: &FindingDraft,
    input: &dyn RuleInput,
    results: Option<&mut RuleMatches>,
) -> Finding {
    let of_light = input.light().is_some() && is_about_idle(rule);
    let input = input_of(input, rule);
    let member = draft.worst().map_or(Member::Run, |matched| matched.member);
    let lookup = input.lookup(member);
    let context = EvalContext::new(&*lookup, &rule.settings, &rule.lets, Some(&draft.found));
    let mut failures = Vec::new();
    let nothing = Advice::default();
    let advice = rule.advice().unwrap_or_else(|failure| {
        failures.push(failure.to_owned());
        &nothing
    });
    let mut say = |what: &str, template: &Template, otherwise: &str| {
        let text = template
            .render(&context, &rule.lets)
            .unwrap_or_else(|failure| {
                failures.push(format!("{what}: {failure}"));
                otherwise.to_owned()
            });
        in_vendor_words(text, &*lookup)
    };
    let mut message = say("message", &advice.message, &rule.title);
    message.extend(long_gaps::sentence(draft, &input.totals()));
    let why = say("why", &advice.why, "");
    let mut also_fixes = rule.also_fixes.clone();
    let (variant, fix) = match advice.fix(&context) {
        Ok(Some((index, fix))) => {
            also_fixes.extend(fix.also_fixes.iter().cloned());
            let text = say("fix", &fix.text, "");
            (Some(index), for_windows(text, &*lookup))
        }
        Ok(None) => (None, String::new()),
        Err(failure) => {
            failures.push(format!("fix: {failure}"));
            (None, String::new())
        }
    };
    let edits = advice.edits(&context).unwrap_or_else(|failure| {
        failures.push(format!("edit: {failure}"));
        Vec::new()
    });
    if let Some(results) = results {
        for failure in failures {
            results.faults.add(failure);
        }
    }
    let covered = super::grouping::covered_sites(&draft.matches);
    Finding {
        rule: rule.id.clone(),
        file: rule.source.name.clone(),
        category: rule.category().to_owned(),
        title: in_vendor_words(rule.title.clone(), &*lookup),
        severity: draft.severity,
        confidence: rule.confidence,
        members: draft.matches.iter().map(|p| p.member).collect(),
        sites: covered.keys().copied().collect(),
        covered,
        parts: super::grouping::parts_of_sites(&draft.matches),
        backward: backward(draft),
        replaces_work: rule.replaces_work,
        place: draft.place.clone(),
        subject: subject(rule, draft),
        places: places(draft),
        calls: draft.calls,
        time_ns: draft.time_ns,
        share: draft.share,
        saving: None,
        outside_ns: draft.outside_ns,
        message,
        why,
        fix,
        edits,
        references: vendor_links(&advice.references, &*lookup),
        evidence: evidence(rule, &context, input.facts()),
        changes: rule.changes.clone(),
        variant,
        also_fixes,
        removes_launches: rule.launches_removed.is_some() && draft.kind == SavingKind::Idle,
        after: None,
        is_minor: draft.minor,
        of_light,
    }
}

fn backward(draft: &FindingDraft) -> Vec<SiteId> {
    let backward = draft.matches.iter().flat_map(|m| &m.affected.backward);
    let mut sites: Vec<SiteId> = backward.map(|s| s.site).collect();
    sites.sort_unstable();
    sites.dedup();
    sites
}

/// The subject of a finding, equal in another run of the same program. The device that was idle and the
/// rank of a process differ from run to run, so they are left out.
fn subject(rule: &Rule, draft: &FindingDraft) -> String {
    let Some(worst) = draft.worst() else {
        return String::new();
    };
    match (rule.group_by, worst.member) {
        (Some(GroupBy::Run | GroupBy::Rank), _) | (None, Member::Gap(_) | Member::Rank(_)) => {
            String::new()
        }
        (Some(GroupBy::Layer), _) => worst.affected.layer.clone().unwrap_or_default(),
        (Some(GroupBy::Kernel | GroupBy::Change | GroupBy::Family | GroupBy::Cause), _) => {
            draft.label.clone().unwrap_or_default()
        }
        (None, _) => worst.affected.place.clone(),
    }
}

/// The places of the members, most time first.
fn places(draft: &FindingDraft) -> Vec<(String, f64)> {
    let mut time: BTreeMap<&str, f64> = BTreeMap::new();
    for matched in &draft.matches {
        match matched.member {
            Member::Run | Member::Step(_) | Member::Gap(_) | Member::Rank(_) => {}
            _ => *time.entry(&matched.affected.place).or_default() += matched.affected.time_ns,
        }
    }
    let mut places: Vec<(String, f64)> = time
        .into_iter()
        .map(|(place, ns)| (place.to_owned(), ns))
        .collect();
    places.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    places
}

/// The facts the condition used, printed; not escaped.
pub(super) fn evidence(
    rule: &Rule,
    context: &EvalContext<'_>,
    facts: &[Fact],
) -> Vec<(String, String)> {
    let uses = rule.condition_uses();
    let known = uses.facts.iter().filter_map(|name| {
        let fact = facts.iter().find(|f| f.name == *name)?;
        let value = context.get(&super::expr::Name::Fact(fact.name)).ok()?;
        Some((
            fact.name.to_owned(),
            super::explain::printed(fact.unit(), &value),
        ))
    });
    known.collect()
}

/// Absent facts with the rules that need them, most time first.
fn skipped(rules: &[Rule], results: &[RuleMatches], input: &dyn RuleInput) -> Vec<MissingFact> {
    // Members of the light recording have a list of their own.
    let mut by_fact: BTreeMap<&str, (BTreeSet<&str>, [BTreeSet<Member>; 2])> = BTreeMap::new();
    for (rule, results) in rules.iter().zip(results) {
        for (fact, members) in &results.missing {
            let (rules, [all, of_light]) = by_fact.entry(fact).or_default();
            rules.insert(&rule.id);
            let all = if is_about_idle(rule) { of_light } else { all };
            all.extend(members);
        }
    }
    let light = input.light().unwrap_or(input);
    let mut list: Vec<MissingFact> = by_fact
        .into_par_iter()
        .map(|(fact, (rules, [members, of_light]))| MissingFact {
            fact: fact.to_owned(),
            needs: input
                .facts()
                .iter()
                .find(|f| f.name == fact)
                .map(|f| f.needs.to_owned())
                .unwrap_or_default(),
            rules: rules.into_iter().map(str::to_owned).collect(),
            members: members.union(&of_light).count() as u64,
            time_ns: time_of(&members, input).max(time_of(&of_light, light)),
        })
        .collect();
    list.sort_by(|a, b| {
        b.time_ns
            .total_cmp(&a.time_ns)
            .then_with(|| a.fact.cmp(&b.fact))
    });
    list
}

/// GPU time of members, each site once; a member without sites counts with its own time.
fn time_of(members: &BTreeSet<Member>, input: &dyn RuleInput) -> f64 {
    // Per site, the time of single kernels and the time of members that cover all of it.
    let mut sites: BTreeMap<SiteId, (f64, f64)> = BTreeMap::new();
    let mut without = 0.0_f64;
    for &member in members {
        let affected = input.affected_without_place(member);
        if affected.sites.is_empty() {
            without = without.max(affected.time_ns);
        }
        for part in affected.sites {
            let (kernels, whole) = sites.entry(part.site).or_default();
            match member {
                Member::Kernel(..) => *kernels += part.time_ns,
                _ => *whole = whole.max(part.time_ns),
            }
        }
    }
    if sites.is_empty() {
        return without;
    }
    sites
        .values()
        .map(|(kernels, whole)| kernels.max(*whole))
        .sum()
}

fn faults(rules: &[Rule], results: &[RuleMatches]) -> Vec<Fault> {
    let of = |(rule, results): (&Rule, &RuleMatches)| -> Vec<Fault> {
        let each = results.faults.iter().map(|(message, count)| Fault {
            rule: rule.id.clone(),
            message: message.to_owned(),
            count,
        });
        each.collect()
    };
    rules.iter().zip(results).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{AffectedSite, AffectedTime};

    #[test]
    fn chains_hold_the_kernels_of_a_site_that_are_mostly_theirs() {
        let site = SiteId(0);
        let kernel = |row| Member::Kernel(site, row);
        let matched = |member| Match {
            member,
            affected: AffectedTime {
                sites: vec![AffectedSite {
                    site,
                    time_ns: 1e3,
                    floor_ns: 0.0,
                    exposed_share: 1.0,
                    beside_comm_share: 0.0,
                    step_weight: None,
                }],
                ..AffectedTime::default()
            },
            saving: None,
            work: None,
            launches: None,
            host_ns: 0.0,
            adds_launches: false,
        };
        let mut shares = ChainShares::default();
        assert!(!shares.hold(&matched(Member::Site(site))));
        // A norm and a rotation take the whole first kernel of the site and nothing of the second.
        for share in [0.3, 0.3] {
            let sites = BTreeMap::from([(site, share)]);
            let kernels = BTreeMap::from([(kernel(0), share)]);
            let chains = BTreeSet::from([Member::Chain(0)]);
            shares.add(
                &ChainShares {
                    sites,
                    kernels,
                    chains,
                    ..ChainShares::default()
                },
                false,
            );
        }
        let held = |member| shares.hold(&matched(member));
        assert_eq!(
            [Member::Site(site), kernel(0), kernel(1)].map(held),
            [true, true, false]
        );
        assert_eq!(
            [0, 1].map(|chain| held(Member::Chain(chain))),
            [true, false]
        );
        // Kernels of a backward pass are not told apart.
        let backward = ChainShares {
            backward: BTreeMap::from([(site, 0.6)]),
            ..ChainShares::default()
        };
        for supersedes in [true, false] {
            let mut shares = ChainShares::default();
            shares.add(&backward, supersedes);
            for member in [Member::Site(site), kernel(1)] {
                assert_eq!(shares.hold(&matched(member)), supersedes, "{member:?}");
            }
        }
    }
}
