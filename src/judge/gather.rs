//! Folds picked members into findings.
//!
//! Twenty-four equal blocks are one line: members of the same place become one finding unless the
//! rule gathers more widely.

use std::collections::BTreeMap;

use super::eval::{Bench, Judged, Pick};
use super::expr::{Found, Scene};
use super::rule::{Gather, Rule};
use super::{SavingKind, Severity};
use crate::correlate::SiteId;
use crate::facts::{Answer, Member, Stake, Totals, Value};

/// A finding before it has its place in the report.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// Index of the rule.
    pub(super) rule: usize,
    pub(super) picks: Vec<Pick>,
    pub(super) found: Found,
    /// Index of the costliest pick.
    pub(super) worst: usize,
    pub(super) severity: Severity,
    pub(super) kind: SavingKind,
    /// ns covered.
    pub(super) time_ns: f64,
    /// `time_ns` as a share of the GPU busy time, or of the window.
    pub(super) share: f64,
    pub(super) calls: u64,
    /// Sum of the savings that are known.
    pub(super) high: Option<f64>,
    pub(super) place: String,
}

impl Draft {
    pub(super) fn worst(&self) -> Option<&Pick> {
        self.picks.get(self.worst)
    }
}

/// The findings of a rule's picks that are enough.
pub(super) fn gather(
    index: usize,
    rule: &Rule,
    picks: &[Pick],
    bench: &dyn Bench,
    judged: &mut Judged,
) -> Vec<Draft> {
    let drafts = drafts(index, rule, picks, bench).into_iter();
    drafts
        .filter_map(|draft| settle(rule, draft, bench, judged))
        .collect()
}

/// The findings of a rule's picks, whether they are enough or not.
pub(super) fn drafts(index: usize, rule: &Rule, picks: &[Pick], bench: &dyn Bench) -> Vec<Draft> {
    let totals = bench.totals();
    let mut groups: BTreeMap<Group, Vec<Pick>> = BTreeMap::new();
    for pick in picks {
        let group = Group::of(rule, pick, bench);
        groups.entry(group).or_default().push(pick.clone());
    }
    groups
        .into_values()
        .filter_map(|picks| draft(index, rule, picks, &totals))
        .collect()
}

/// What picks must have in common to be one finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    All,
    Place(Option<String>, String),
    Layer(Option<String>),
    Rank(i64),
}

impl Group {
    fn of(rule: &Rule, pick: &Pick, bench: &dyn Bench) -> Group {
        match rule.gather {
            None => Group::Place(pick.stake.layer.clone(), pick.stake.place.clone()),
            Some(Gather::Run) => Group::All,
            Some(Gather::Layer) => Group::Layer(pick.stake.layer.clone()),
            Some(Gather::Rank) => match pick.member {
                Member::Rank(rank) => Group::Rank(i64::from(rank)),
                member => {
                    let name = format!("{}.rank", rule.over.word());
                    match bench.lookup(member).get(&name) {
                        Answer::Value(Value::Int(rank)) => Group::Rank(rank),
                        _ => Group::All,
                    }
                }
            },
        }
    }
}

/// Sums picks up.
fn draft(index: usize, rule: &Rule, picks: Vec<Pick>, totals: &Totals) -> Option<Draft> {
    let worst = worst(&picks)?;
    let kind = rule.kind();
    let time_ns = covered(&picks);
    let whole = match kind {
        SavingKind::Idle => totals.window_ns,
        SavingKind::Gpu | SavingKind::Copy => totals.gpu_busy_ns,
    };
    let share = part(time_ns, whole);
    let calls = picks
        .iter()
        .fold(0_u64, |sum, p| sum.saturating_add(p.stake.calls));
    let high = picks
        .iter()
        .filter_map(|p| p.saving)
        .reduce(|sum, saving| sum + saving);
    let place_of_worst = picks
        .get(worst)
        .map(|p| p.stake.place.clone())
        .unwrap_or_default();
    let sum = |part: fn(&Stake) -> f64| picks.iter().map(|p| part(&p.stake)).sum::<f64>();
    let double = |value: f64| Value::Double(if value.is_finite() { value } else { 0.0 });
    let count = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
    let mut found = Found::default();
    found.set("found.count", count(picks.len() as u64));
    found.set("found.calls", count(calls));
    found.set("found.time_ns", double(time_ns));
    found.set("found.gpu_share", double(share));
    found.set(
        "found.kernel_share",
        double(part(in_sites(&picks), totals.kernel_ns)),
    );
    found.set(
        "found.idle_share",
        double(part(sum(|s| s.idle_ns), totals.window_ns)),
    );
    found.set(
        "found.copy_share",
        double(part(sum(|s| s.copy_ns), totals.window_ns)),
    );
    found.set("found.saving_ns", double(high.unwrap_or(0.0)));
    found.set("found.worst", Value::Str(place_of_worst.as_str().into()));
    Some(Draft {
        rule: index,
        place: place(&picks, place_of_worst),
        worst,
        severity: rule.severity,
        kind,
        time_ns,
        share,
        calls,
        high,
        found,
        picks,
    })
}

/// Largest saving, else most time, else the first.
fn worst(picks: &[Pick]) -> Option<usize> {
    let weight = |p: &Pick| (p.saving.unwrap_or(0.0), p.stake.time_ns);
    let mut best: Option<(usize, (f64, f64))> = None;
    for (index, pick) in picks.iter().enumerate() {
        let (saving, time) = weight(pick);
        let better =
            best.is_none_or(|(_, (s, t))| saving.total_cmp(&s).then(time.total_cmp(&t)).is_gt());
        if better {
            best = Some((index, (saving, time)));
        }
    }
    best.map(|(index, _)| index)
}

fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// ns covered by picks, each site once.
pub(super) fn covered(picks: &[Pick]) -> f64 {
    let siteless = picks.iter().filter(|p| p.stake.sites.is_empty());
    siteless.map(|p| p.stake.time_ns).sum::<f64>() + in_sites(picks)
}

/// ns of the sites covered by picks.
fn in_sites(picks: &[Pick]) -> f64 {
    covered_sites(picks).values().sum()
}

/// ns covered of each site; parts of a site (its kernels, its share of chains) add up.
pub(super) fn covered_sites(picks: &[Pick]) -> BTreeMap<SiteId, f64> {
    let mut sites: BTreeMap<SiteId, f64> = BTreeMap::new();
    for pick in picks {
        for stake in &pick.stake.sites {
            let time = sites.entry(stake.site).or_default();
            *time = match pick.member {
                Member::Kernel(..) | Member::Chain(_) => *time + stake.time_ns,
                _ => time.max(stake.time_ns),
            };
        }
    }
    sites
}

/// One place, or the costliest and how many more.
fn place(picks: &[Pick], worst: String) -> String {
    let mut places: Vec<&str> = picks.iter().map(|p| p.stake.place.as_str()).collect();
    places.sort_unstable();
    places.dedup();
    match places.len() {
        0 | 1 => worst,
        2 => format!("{worst} and 1 more place"),
        n => format!("{worst} and {} more places", n - 1),
    }
}

/// Applies `enough` and `error_when`, seen from the costliest member.
fn settle(rule: &Rule, mut draft: Draft, bench: &dyn Bench, judged: &mut Judged) -> Option<Draft> {
    if rule.enough.is_none() && rule.error_when.is_none() {
        return Some(draft);
    }
    let member = draft.worst()?.member;
    let lookup = bench.lookup(member);
    let scene = Scene::new(&*lookup, &rule.settings, &rule.lets, Some(&draft.found));
    if let Some(enough) = &rule.enough {
        match scene.holds(enough) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => {
                judged.undecided(why, member);
                return None;
            }
        }
    }
    let mut severity = draft.severity;
    if let Some(error_when) = &rule.error_when {
        match scene.holds(error_when) {
            Ok(true) => severity = Severity::Error,
            Ok(false) => {}
            // Undecided, the file's own severity stands; only a failure is worth a word.
            Err(why @ super::expr::Undecided::Fault(_)) => judged.undecided(why, member),
            Err(_) => {}
        }
    }
    drop(scene);
    draft.severity = severity;
    Some(draft)
}
