//! Evaluates rules on the members of one kind.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::expr::{EvalContext, Expr, Undecided, selects_none};
use super::finding::SavingKind;
use super::rule::Rule;
use crate::facts::{
    self, AffectedSite, AffectedTime, Fact, FactTable, Lookup, Member, MemberKind, Totals,
};

/// The input of rules: members with facts, and the time that each covers.
///
/// The fact table of a run implements it; tests have their own.
pub trait RuleInput: Sync {
    /// The fact table.
    fn facts(&self) -> &[Fact] {
        facts::all()
    }
    /// Everything of one kind, in a fixed order.
    fn members(&self, kind: MemberKind) -> Vec<Member>;
    /// The facts of one member.
    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_>;
    /// The time and the sites that one member covers.
    fn affected(&self, member: Member) -> AffectedTime;
    /// As [`affected`](Self::affected), but an input may leave the place empty, because formatting it takes time.
    fn affected_without_place(&self, member: Member) -> AffectedTime {
        self.affected(member)
    }
    /// The sums over the run.
    fn totals(&self) -> Totals;
    /// Another recording of the same steps, which slowed the host less: the input of rules about idle time.
    fn light(&self) -> Option<&dyn RuleInput> {
        None
    }
}

impl RuleInput for FactTable<'_> {
    fn members(&self, kind: MemberKind) -> Vec<Member> {
        FactTable::members(self, kind)
    }

    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_> {
        Box::new(self.view(member))
    }

    fn affected(&self, member: Member) -> AffectedTime {
        FactTable::affected(self, member)
    }

    fn affected_without_place(&self, member: Member) -> AffectedTime {
        FactTable::affected_without_place(self, member)
    }

    fn totals(&self) -> Totals {
        FactTable::totals(self)
    }
}

/// A member that meets the condition.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub(super) member: Member,
    pub(super) affected: AffectedTime,
    /// The saving; `None` where it is unknown.
    pub(super) saving: Option<Range>,
    /// What less work saves: `saving`, unless fewer launches save more.
    pub(super) work: Option<Range>,
    /// The idle time that fewer launches save; `None` if the fix removes none.
    pub(super) launches: Option<Range>,
    /// What the host works for the launches that the fix removes, in ns.
    pub(super) host_ns: f64,
    /// Whether the host has more to launch after the fix.
    pub(super) adds_launches: bool,
}

/// The ends of the saving of a match, ns: 0 <= `low` <= `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Range {
    /// The range with both ends at most `most`.
    fn at_most(self, most: f64) -> Range {
        Range {
            low: self.low.min(most),
            high: self.high.min(most),
        }
    }
}

impl Match {
    /// The sites it covers and, with them, the backward calls of a chain.
    pub(super) fn all_sites(&self) -> impl Iterator<Item = &AffectedSite> {
        self.affected.all_sites()
    }
}

/// The time of one kind that can be saved on what a member covers, ns.
fn most(affected: &AffectedTime, kind: SavingKind, totals: &Totals) -> f64 {
    let own = |own: f64, whole: f64| if own > 0.0 { own.min(whole) } else { whole };
    let sites = affected.all_sites();
    match kind {
        SavingKind::Gpu if affected.sites.is_empty() => totals.gpu_busy_ns,
        SavingKind::Gpu => sites.map(|s| s.time_ns).sum(),
        // Copies behind idle time may go away with it.
        SavingKind::Idle => own(affected.idle_ns, totals.idle_ns) + affected.copy_ns,
        SavingKind::Copy => own(affected.copy_ns, totals.copy_ns),
    }
}

/// A rule's failures: message and count.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults(BTreeMap<String, u64>);

impl Faults {
    /// Different messages of one rule that are kept apart.
    const MOST: usize = 5;

    pub(super) fn add(&mut self, message: String) {
        self.add_many(message, 1);
    }

    fn add_many(&mut self, message: String, count: u64) {
        let full = self.0.len() >= Self::MOST && !self.0.contains_key(&message);
        let message = if full {
            "other failures".to_owned()
        } else {
            message
        };
        *self.0.entry(message).or_default() += count;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0
            .iter()
            .map(|(message, count)| (message.as_str(), *count))
    }
}

/// Members that could not be evaluated, by the fact that was absent.
pub(super) type Missing = BTreeMap<&'static str, Vec<Member>>;

/// The matches of one rule in a run, before they are grouped into findings.
#[derive(Debug, Default)]
pub(super) struct RuleMatches {
    pub(super) matches: Vec<Match>,
    pub(super) missing: Missing,
    pub(super) faults: Faults,
}

impl RuleMatches {
    /// Evaluates the rule on the next member.
    fn member(&mut self, rule: &Rule, member: Member, facts: &dyn Lookup, input: &dyn RuleInput) {
        let context = EvalContext::new(facts, &rule.settings, &rule.lets, None);
        match context.selects(&rule.when) {
            Ok(false) => {}
            Ok(true) => {
                let affected = input.affected(member);
                // Only rules about the capture report time that is excluded.
                if affected.uncounted && !rule.is_profile() {
                    return;
                }
                let totals = input.totals();
                let most = most(&affected, rule.saving_kind(), &totals);
                let saving = saving(rule, &context, &mut self.faults);
                let saving = saving.map(|saving| saving.at_most(most));
                let removed = removed(rule, &context, &mut self.faults);
                let launches = removed.map(|share| {
                    let high = share * saved_by_launches(rule, &affected, &totals);
                    let low = high * rule.min_fraction();
                    Range { low, high }
                });
                self.matches.push(Match {
                    member,
                    saving,
                    work: saving,
                    launches,
                    host_ns: removed.unwrap_or(0.0) * affected.host_ns,
                    adds_launches: (rule.adds_launches.as_ref())
                        .is_some_and(|adds| context.selects(adds).unwrap_or(false)),
                    affected,
                });
            }
            Err(why) => self.undecided(why, member),
        }
    }

    /// Appends the results of the members that follow.
    fn append(&mut self, next: RuleMatches) {
        self.matches.extend(next.matches);
        for (fact, members) in next.missing {
            self.missing.entry(fact).or_default().extend(members);
        }
        for (message, count) in next.faults.0 {
            self.faults.add_many(message, count);
        }
    }

    /// Notes why something was undecided. A fact that does not apply is not reported.
    pub(super) fn undecided(&mut self, why: Undecided, member: Member) {
        match why {
            Undecided::NotApplicable => {}
            Undecided::Fault(message) => self.faults.add(message),
            Undecided::Absent(facts) => {
                for fact in facts {
                    self.missing.entry(fact).or_default().push(member);
                }
            }
        }
    }
}

/// Evaluates every member of one kind with the rules for that kind. Returns the matches of each rule.
pub(super) fn evaluate(
    rules: &[&Rule],
    members: &[Member],
    input: &dyn RuleInput,
) -> Vec<RuleMatches> {
    /// Members that one thread evaluates. The number is fixed: failures are counted per chunk, so the size
    /// decides which messages are kept.
    const PIECE: usize = 64;
    let none = || rules.iter().map(|_| RuleMatches::default()).collect();
    let run = input.lookup(Member::Run);
    let may_select = |rule: &&Rule| {
        members.len() <= 1 || !selects_none(&rule.when, &*run, &rule.settings, &rule.lets)
    };
    let selects: Vec<bool> = rules.par_iter().map(may_select).collect();
    let pieces = members.par_chunks(PIECE).map(|members| {
        let mut results: Vec<RuleMatches> = none();
        for &member in members {
            let lookup = input.lookup(member);
            let rules = rules.iter().zip(&mut results).zip(&selects);
            for ((rule, results), _) in rules.filter(|(_, selects)| **selects) {
                results.member(rule, member, &*lookup, input);
            }
        }
        results
    });
    // In the order of the members, whichever thread was first.
    let pieces: Vec<Vec<RuleMatches>> = pieces.collect();
    pieces.into_iter().fold(none(), |mut all, piece| {
        for (all, piece) in all.iter_mut().zip(piece) {
            all.append(piece);
        }
        all
    })
}

/// Part of the kernel time that counts up to which the host sets the length of most of a step: at 0.62 to 0.65 three
/// programs became shorter by what it had worked for the removed launches, or by more (H100).
const HOST_SETS: f64 = 0.75;

/// What the steps would be shorter by without the launches of what a member covers, in ns: the idle time before them. Where
/// the host sets the length of the steps, what it works for them, as far as late launches follow: these come earlier by
/// that, wherever they are. Entering compiled code takes the host some time as well.
fn saved_by_launches(rule: &Rule, affected: &AffectedTime, totals: &Totals) -> f64 {
    let of_run = totals.step_weight.unwrap_or(1.0);
    if rule.changes_to("fusion", "compile") || of_run > HOST_SETS {
        return affected.launch_ns;
    }
    let time_ns: f64 = affected.all_sites().map(|site| site.time_ns).sum();
    let before_late = affected.all_sites().map(|site| {
        let weight = site.step_weight.map_or(of_run, |weight| weight.low);
        site.time_ns * (1.0 - weight)
    });
    let share = before_late.sum::<f64>() / time_ns.max(1.0);
    affected.launch_ns.max(affected.host_ns * share)
}

/// The share of the launches of a matching member that the advice removes; `None` if the rule states none.
fn removed(rule: &Rule, context: &EvalContext<'_>, faults: &mut Faults) -> Option<f64> {
    let share = rule.launches_removed.as_ref()?;
    let share = number("launches_removed", share, context, faults)?;
    Some(share.min(1.0))
}

/// The value of an expression of a rule, at least 0. A failure is noted.
pub(super) fn number(
    key: &str,
    expr: &Expr,
    context: &EvalContext<'_>,
    faults: &mut Faults,
) -> Option<f64> {
    match context.number(expr) {
        Ok(value) => Some(value.max(0.0)),
        Err(Undecided::Fault(message)) => {
            faults.add(format!("{key}: {message}"));
            None
        }
        Err(_) => None,
    }
}

/// The saving of a matching member. Without it the finding still stands, so only faults are noted.
pub(super) fn saving(rule: &Rule, context: &EvalContext<'_>, faults: &mut Faults) -> Option<Range> {
    let mut end = |key: &str, expr: &Expr| number(key, expr, context, faults);
    let high = end("saving_ns", rule.saving_ns.as_ref()?)?;
    let low = match &rule.saving_low_ns {
        // An unknown lower end counts as 0.
        Some(expr) => end("saving_low_ns", expr).unwrap_or(0.0).min(high),
        None => high * rule.min_fraction(),
    };
    Some(Range { low, high })
}
