//! Findings that the fix of a better one repairs as well become a part of it: one change is one row.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::evaluate::Range;
use super::finding::{Finding, Saving, SavingKind};
use super::floors::{FLOOR, UNCERTAIN_FLOOR};
use super::grouping::{place, place_name};
use crate::base::{text, units};
use crate::facts::Totals;

/// Rule, by which, where: a finding that became a part of another.
pub(super) type JoinedFinding = (String, String, String);

/// A finding with what became a part of it.
struct Joined {
    finding: Finding,
    /// What the parts are called, and their shares of GPU time.
    also: IndexMap<String, f64>,
    /// GPU time that the parts of a finding about idle time save, in ns.
    gpu: Range,
}

/// Findings and minor ones, each best first, without those that the fix of a better finding repairs, and what became
/// of these.
pub(super) fn join(
    findings: Vec<Finding>,
    minor: Vec<Finding>,
    totals: &Totals,
) -> (Vec<Finding>, Vec<Finding>, Vec<JoinedFinding>) {
    let mut kept: Vec<Joined> = Vec::new();
    let mut kept_minor = Vec::new();
    let mut parts = Vec::new();
    let major = findings.into_iter().map(|finding| (finding, true));
    for (finding, is_major) in major.chain(minor.into_iter().map(|finding| (finding, false))) {
        match kept.iter_mut().find(|better| {
            repairs(&better.finding, &finding) && !is_large(&better.finding, &finding, totals)
        }) {
            Some(better) => {
                let name = named(&better.finding, &finding);
                *better.also.entry(name).or_default() += finding.share;
                parts.push((
                    finding.rule.clone(),
                    better.finding.rule.clone(),
                    finding.place.clone(),
                ));
                add(better, finding);
            }
            None if is_major => kept.push(Joined {
                finding,
                also: IndexMap::new(),
                gpu: Range {
                    low: 0.0,
                    high: 0.0,
                },
            }),
            None => kept_minor.push(finding),
        }
    }
    let joined = kept.into_iter().map(|joined| {
        let Joined {
            mut finding,
            also,
            gpu,
        } = joined;
        if !also.is_empty() {
            finding.message.push_str(" The same change takes care of ");
            let also = also.into_iter().map(|(name, share)| {
                let share = units::percent(share);
                format!("{name} ({share} of GPU time)")
            });
            (finding.message).push_str(&text::list(&also.collect::<Vec<_>>()));
            if gpu.high >= FLOOR * totals.gpu_busy_ns {
                let share = |ns: f64| ns / totals.gpu_busy_ns;
                finding.message.push_str(&format!(
                    ", and saves {} of GPU time as well",
                    units::percent_range(share(gpu.low), share(gpu.high))
                ));
            }
            finding.message.push('.');
        }
        finding
    });
    (joined.collect(), kept_minor, parts)
}

/// Whether the fix of a better finding repairs another one.
fn repairs(better: &Finding, finding: &Finding) -> bool {
    let is_named = better.also_fixes.iter().any(|g| g.matches(&finding.rule));
    is_named && (better.rule != finding.rule || better.variant == finding.variant)
}

/// Whether a part of a finding about idle time saves so much GPU time that its own fix is worth a row.
fn is_large(better: &Finding, part: &Finding, totals: &Totals) -> bool {
    let (Some(saving), Some(more)) = (&better.saving, &part.saving) else {
        return false;
    };
    let step_ns = totals.window_ns / totals.device_count();
    saving.kind == SavingKind::Idle
        && more.kind == SavingKind::Gpu
        && (more.step_ns).is_some_and(|ns| ns >= UNCERTAIN_FLOOR * step_ns)
}

/// What a part is called in the message of the finding.
fn named(better: &Finding, part: &Finding) -> String {
    match better.rule == part.rule {
        true => text::md(&part.place),
        false => text::md_code(&part.rule),
    }
}

/// Adds the work of a part, and what it saves. GPU time that goes away with idle time shortens the step at most.
fn add(joined: &mut Joined, part: Finding) {
    let better = &mut joined.finding;
    better.members.extend(part.members);
    better.members.sort_unstable();
    better.members.dedup();
    for (site, ns) in part.covered {
        *better.covered.entry(site).or_default() += ns;
    }
    for (site, covered) in part.parts {
        better.parts.entry(site).or_default().add(&covered);
    }
    better.sites = better.covered.keys().copied().collect();
    better.backward.extend(part.backward);
    better.backward.sort_unstable();
    better.backward.dedup();
    let (Some(saving), Some(more)) = (&mut better.saving, part.saving) else {
        return;
    };
    if saving.kind == SavingKind::Idle && more.kind == SavingKind::Gpu {
        joined.gpu.low += more.claimed_low_ns;
        joined.gpu.high += more.claimed_ns;
        saving.step_ns = saving.step_ns.zip(more.step_ns).map(|(a, b)| a + b);
    }
    if saving.kind == more.kind {
        add_saving(saving, more);
        // Its work is not idle time.
        if part.removes_launches {
            return;
        }
        better.time_ns += part.time_ns;
        better.share = (better.share + part.share).min(1.0);
        better.calls = better.calls.saturating_add(part.calls);
        add_places(better, part.places);
    }
}

/// Adds places to those of a finding, whose costliest one stays the first in its name.
fn add_places(finding: &mut Finding, more: Vec<(String, f64)>) {
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    for (name, ns) in finding.places.drain(..).chain(more) {
        *times.entry(name).or_default() += ns;
    }
    finding.places.extend(times);
    // Of equal ones, the first by name stays first.
    finding.places.sort_by(|a, b| b.1.total_cmp(&a.1));
    finding.place = place(place_name(&finding.place), finding.places.len());
}

fn add_saving(saving: &mut Saving, more: Saving) {
    saving.claimed_ns += more.claimed_ns;
    saving.claimed_low_ns += more.claimed_low_ns;
    if saving.kind == SavingKind::Idle {
        // Both may save the same idle time. Only what they claim of it differs.
        saving.high_ns = saving.high_ns.max(more.high_ns).max(saving.claimed_ns);
        saving.low_ns = (saving.low_ns.max(more.low_ns)).max(saving.claimed_low_ns);
    } else {
        saving.high_ns += more.high_ns;
        saving.low_ns += more.low_ns;
    }
    saving.overlap_ns = saving.high_ns - saving.claimed_ns;
    saving.step_ns = saving.step_ns.zip(more.step_ns).map(|(a, b)| a + b);
    saving.step_low_ns = saving.step_low_ns.zip(more.step_low_ns).map(|(a, b)| a + b);
}
