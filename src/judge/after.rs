//! What findings save once another one is done, which may make the GPU limit the steps, and their order.

use super::finding::{Confidence, Finding, SavingKind};
use super::floors::{FLOOR, UNCERTAIN_FLOOR, counted, is_above_floor, matters};
use super::order::{Place, Standing};
use crate::facts::{Totals, busy_weight};

/// The share of the GPU's work that a finding must save at least to be worthwhile once launches are no longer late.
const IN_TIME_FLOOR: f64 = 0.05;

/// The best finding first. Equal findings stay in the order of their claims.
pub(super) fn sort(findings: &mut [Finding], standing: &Standing) {
    findings.sort_by(|a, b| {
        let [a, b] = [a, b].map(|finding| Place::of(&counted(finding), standing));
        a.compare(b)
    });
}

/// Sorts what follows the finding of a rule after which the GPU limits the steps: kernel time counts in full there.
pub(super) fn sort_behind(first: &str, findings: &mut [Finding], standing: &Standing) {
    let behind = findings.iter().position(|finding| finding.rule == first);
    let Some(rest) = behind.and_then(|at| findings.get_mut(at + 1..)) else {
        return;
    };
    let standing = Standing {
        step_weight: Some(1.0),
        ..*standing
    };
    let place = |finding: &Finding| {
        let mut counted = counted(finding);
        if let Some(saving) = counted
            .saving
            .as_mut()
            .filter(|s| s.kind == SavingKind::Gpu)
        {
            saving.wall_low_ns = Some(saving.low_ns / standing.devices.max(1) as f64);
        }
        Place::of(&counted, &standing)
    };
    rest.sort_by(|a, b| place(a).compare(place(b)));
}

/// The share of the window that a finding must save at least for others to be measured by the rest.
pub(crate) const SAVES_MOST: f64 = 0.5;

/// The share of the remaining time that the GPU must be busy for it to limit the steps.
const GPU_LIMITS: f64 = 2.0 / 3.0;

/// Finding `first` reduces launches, so that `weight` of the kernel time counts afterwards. Counts this part of the GPU
/// time that later findings save as step time too, as the upper end. Marks those that save little before that
/// with `after`.
pub(super) fn count_gpu_time(findings: &mut [Finding], first: usize, weight: f64, totals: &Totals) {
    if totals.paced_by_workers {
        return;
    }
    let step_ns = totals.window_ns / totals.device_count();
    let rule = findings.get(first).map(|finding| finding.rule.clone());
    for finding in findings.iter_mut().skip(first + 1) {
        let of_gpu = finding
            .saving
            .as_mut()
            .filter(|s| s.kind == SavingKind::Gpu);
        let Some(saving) = of_gpu else { continue };
        let then = saving.claimed_ns * weight / totals.devices_at_once.max(1.0);
        saving.step_ns = saving.step_ns.map(|ns| ns.max(then));
        let is_enough_now = (saving.step_low_ns).is_none_or(|low| low >= FLOOR * step_ns);
        let is_enough_then = weight * saving.claimed_low_ns >= IN_TIME_FLOOR * totals.gpu_busy_ns
            || then >= UNCERTAIN_FLOOR * step_ns;
        if !is_enough_now && is_enough_then {
            finding.after.clone_from(&rule);
        }
    }
}

/// Marks findings with `after` that are large enough only once another finding has removed most of the window: idle
/// time that it saves for certain.
pub(super) fn measure_by_the_rest(findings: &mut [Finding], totals: &Totals) {
    let saves_most = |finding: &&Finding| {
        let saving = finding.saving.filter(|s| s.kind == SavingKind::Idle);
        finding.confidence == Confidence::High
            && saving.is_some_and(|s| s.claimed_low_ns > SAVES_MOST * totals.window_ns)
    };
    let Some(first) = findings.iter().find(saves_most) else {
        return;
    };
    let (rule, saved) = (
        first.rule.clone(),
        first.saving.map_or(0.0, |s| s.claimed_ns),
    );
    if totals.paced_by_workers {
        return;
    }
    let rest = (totals.window_ns - saved) / totals.device_count();
    for finding in findings.iter_mut() {
        let step = finding.saving.and_then(|s| s.step_low_ns.zip(s.step_ns));
        let is_enough_then = step.is_some_and(|(low, high)| is_above_floor(low, high, rest));
        if finding.rule != rule && is_enough_then && !matters(finding, totals) {
            finding.after.get_or_insert_with(|| rule.clone());
        }
    }
}

/// Share of the time that the GPU waits for late launches from which a finding that saves that much for certain leaves
/// too few for others to reduce; at most it saves nearly all of them then.
const NEARLY_ALL: f64 = 0.4;

/// Whether a finding makes launches of the whole run so much fewer that hardly any is late.
pub(super) fn leaves_few_late_launches(finding: &Finding, totals: &Totals) -> bool {
    let saving = finding.saving.filter(|s| s.kind == SavingKind::Idle);
    reduces_launches(finding)
        && finding.confidence == Confidence::High
        && saving.is_some_and(|s| s.claimed_low_ns >= NEARLY_ALL * totals.late_launch_ns)
}

fn reduces_launches(finding: &Finding) -> bool {
    (finding.changes.get("launches")).is_some_and(|wanted| wanted == "fewer")
}

/// Largest share where only the upper ends of the savings let the GPU limit the steps.
const PERHAPS: f64 = 0.9;

/// The position of the first finding above the floor that reduces launches, and the share of kernel time by which steps
/// become shorter afterwards: all of it if the idle time that the findings save at least lets the GPU limit the steps,
/// else as far as what they save at most does. Findings of low confidence only point at idle time.
pub(super) fn removes_late_launches(findings: &[Finding], totals: &Totals) -> Option<(usize, f64)> {
    let worth = || findings.iter().filter(|finding| matters(finding, totals));
    let idle = || {
        let sure = worth().filter(|finding| finding.confidence > Confidence::Low);
        let savings = sure.filter_map(|finding| finding.saving.as_ref());
        savings.filter(|saving| saving.kind == SavingKind::Idle)
    };
    let busy_then = |saved: f64| {
        let left = totals.gpu_busy_ns + totals.idle_ns - saved;
        totals.gpu_busy_ns / left.max(totals.gpu_busy_ns)
    };
    let first =
        (findings.iter()).position(|finding| reduces_launches(finding) && matters(finding, totals));
    let at_least = busy_then(idle().map(|saving| saving.claimed_low_ns).sum());
    let weight = match at_least >= GPU_LIMITS {
        true => 1.0,
        false => busy_weight(busy_then(idle().map(|saving| saving.claimed_ns).sum())).min(PERHAPS),
    };
    first.filter(|_| weight > 0.0).map(|first| (first, weight))
}
