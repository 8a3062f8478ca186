//! One cause is one row: no two numbered findings of a report are about the same idle time, the same kernels or the
//! same host calls, unless they say which part of their saving the other one counts.

use std::collections::{BTreeMap, BTreeSet};

use pyprof_advise::facts::{FactTable, Member};
use pyprof_advise::judge::{Finding, RuleInput, RuleResults, SavingKind};

/// Share of its time that a finding may have in common with a better one.
const COMMON: f64 = 0.5;

fn saved(finding: &Finding) -> f64 {
    finding.saving.map_or(0.0, |saving| saving.claimed_ns)
}

fn overlap(finding: &Finding) -> f64 {
    finding
        .saving
        .map_or(0.0, |saving| saving.high_ns - saving.claimed_ns)
}

fn is_idle(finding: &Finding) -> bool {
    finding
        .saving
        .is_some_and(|saving| saving.kind == SavingKind::Idle)
}

/// The time of findings by what they are about: groups of gaps and copies, and parts of sites.
fn times(table: &FactTable<'_>, finding: &Finding) -> BTreeMap<Member, f64> {
    let mut times: BTreeMap<Member, f64> = BTreeMap::new();
    for member in &finding.members {
        let affected = RuleInput::affected(table, *member);
        let own = match member {
            Member::Gap(_) => affected.idle_ns,
            Member::Copy(_) => affected.copy_ns,
            _ => 0.0,
        };
        if own > 0.0 {
            times.insert(*member, own);
        }
    }
    // Idle time that goes away with launches is not time of the kernels.
    if !is_idle(finding) {
        let sites = finding.covered.iter();
        times.extend(sites.map(|(site, ns)| (Member::Site(*site), *ns)));
    }
    times
}

/// Together the findings about some gaps or copies claim no more than their time.
fn no_time_is_claimed_twice(
    name: &str,
    table: &FactTable<'_>,
    results: &RuleResults,
) -> Vec<String> {
    let whole = |member: &Member| {
        let affected = RuleInput::affected(table, *member);
        affected.idle_ns + affected.copy_ns
    };
    let is_own = |member: &Member| matches!(member, Member::Gap(_) | Member::Copy(_));
    let mut claimed: Vec<(BTreeSet<Member>, f64)> = Vec::new();
    for finding in &results.findings {
        let members: BTreeSet<Member> = times(table, finding).into_keys().collect();
        if !members.is_empty() && members.iter().all(is_own) {
            claimed.push((members, saved(finding)));
        }
    }
    let mut faults = Vec::new();
    for (group, _) in &claimed {
        let inside = claimed.iter().filter(|(other, _)| other.is_subset(group));
        let inside: f64 = inside.map(|(_, ns)| ns).sum();
        let time: f64 = group.iter().map(whole).sum();
        if inside > time * 1.000_001 + 1.0 {
            faults.push(format!("{name}: {inside} ns are claimed of {time} ns"));
        }
    }
    faults
}

/// A finding most of whose time a better one is about is the same cause, unless it counts a saving of its own.
fn no_cause_is_told_twice(name: &str, table: &FactTable<'_>, results: &RuleResults) -> Vec<String> {
    let mut faults = Vec::new();
    let mut better: Vec<(&Finding, BTreeMap<Member, f64>)> = Vec::new();
    for finding in &results.findings {
        let own = times(table, finding);
        let all: f64 = own.values().sum();
        for (other, its) in &better {
            let common = own
                .iter()
                .map(|(member, ns)| ns.min(*its.get(member).unwrap_or(&0.0)));
            let common: f64 = common.sum();
            // What it counts is on top of the other one's, or it says how much the other one counts.
            let says_so = overlap(finding) > 0.0 || !is_idle(finding);
            if common > COMMON * all && !(saved(finding) > 0.0 && says_so) {
                faults.push(format!(
                    "{name}: {} is about {common} of the {all} ns of {}",
                    other.rule, finding.rule
                ));
            }
        }
        better.push((finding, own));
    }
    faults
}

/// Synchronizing calls as such are one row; the idle time behind them is another row's only where that does not name
/// the calls.
fn synchronizations_are_one_row(name: &str, results: &RuleResults) -> Vec<String> {
    const OF_CALLS: [&str; 6] = [
        "host/synchronizations",
        "host/sync-stalls",
        "host/scalar-read-back",
        "host/data-dependent-shape",
        "host/copies-wait",
        "host/caching-allocator-off",
    ];
    let rows: Vec<&str> = (results.findings.iter().map(|f| f.rule.as_str()))
        .filter(|rule| OF_CALLS.contains(rule))
        .collect();
    let general = rows.contains(&"host/synchronizations") && rows.len() > 1;
    let same = general.then(|| format!("{name}: {rows:?}"));
    same.into_iter().collect()
}

pub(crate) fn one_cause_is_one_row(name: &str, table: &FactTable<'_>, results: &RuleResults) {
    let mut faults = no_time_is_claimed_twice(name, table, results);
    faults.extend(no_cause_is_told_twice(name, table, results));
    faults.extend(synchronizations_are_one_row(name, results));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
