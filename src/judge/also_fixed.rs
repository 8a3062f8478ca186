//! Findings that the fix of a better one repairs as well become a part of it: one change is one row.

use super::{Finding, Saving, SavingKind};
use crate::base::text;
use crate::base::units;

/// Rule, by which, where: a finding that became a part of another.
pub(super) type JoinedFinding = (String, String, String);

/// Findings, best first, without those that the fix of a better one repairs, and what became of these.
pub(super) fn join(findings: Vec<Finding>) -> (Vec<Finding>, Vec<JoinedFinding>) {
    let mut kept: Vec<(Finding, Vec<String>)> = Vec::new();
    let mut parts = Vec::new();
    for finding in findings {
        match kept
            .iter_mut()
            .find(|(better, _)| repairs(better, &finding))
        {
            Some((better, also)) => {
                also.push(named(better, &finding));
                parts.push((
                    finding.rule.clone(),
                    better.rule.clone(),
                    finding.place.clone(),
                ));
                add(better, finding);
            }
            None => kept.push((finding, Vec::new())),
        }
    }
    let joined = kept.into_iter().map(|(mut finding, also)| {
        if !also.is_empty() {
            finding.message.push_str(" The same change takes care of ");
            finding.message.push_str(&text::list(&also));
            finding.message.push('.');
        }
        finding
    });
    (joined.collect(), parts)
}

/// Whether the fix of a better finding repairs another one.
fn repairs(better: &Finding, finding: &Finding) -> bool {
    let is_named = better.also_fixes.iter().any(|g| g.matches(&finding.rule));
    is_named && (better.rule != finding.rule || better.variant == finding.variant)
}

/// What a part is called in the message of the finding.
fn named(better: &Finding, part: &Finding) -> String {
    let share = units::percent(part.share);
    match better.rule == part.rule {
        true => format!("{} ({share} of GPU time)", text::md(&part.place)),
        false => format!("{} ({share} of GPU time)", text::md_code(&part.rule)),
    }
}

/// Adds the work of a part, and what it saves where that is time of the same kind.
fn add(better: &mut Finding, part: Finding) {
    better.members.extend(part.members);
    better.members.sort_unstable();
    better.members.dedup();
    for (site, ns) in part.covered {
        *better.covered.entry(site).or_default() += ns;
    }
    better.sites = better.covered.keys().copied().collect();
    better.backward.extend(part.backward);
    better.backward.sort_unstable();
    better.backward.dedup();
    if let (Some(saving), Some(more)) = (&mut better.saving, part.saving)
        && saving.kind == more.kind
    {
        add_saving(saving, more);
        // Its work is not idle time.
        if part.removes_launches {
            return;
        }
        better.time_ns += part.time_ns;
        better.share = (better.share + part.share).min(1.0);
        better.calls = better.calls.saturating_add(part.calls);
        better.places.extend(part.places);
        better
            .places
            .sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
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
