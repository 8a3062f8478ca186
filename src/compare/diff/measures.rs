//! What a comparison amounts to: its measure, and whether differences exceed the noise.

use super::limits::{MOST, SOME};
use super::model::{Change, Diff, PartChange, TimeUnit, UnitSide};
use crate::compare::welch::{SAME, is_beyond};
use crate::report::share;

/// Smallest share of kernel executions that two captures without a common unit of work must have in common,
/// each taken as parts of its whole, to be of one program.
const SAME_MIX: f64 = 0.9;

/// Smaller matched share of both sides.
pub(super) fn least_matched(diff: &Diff) -> f64 {
    let before: f64 = diff.matched.iter().map(|m| m.before_share).sum();
    let after: f64 = diff.matched.iter().map(|m| m.after_share).sum();
    before.min(after)
}

/// The measure that represents the whole: the wall time where it is reliable, else the GPU time.
pub(super) fn measure(diff: &Diff) -> Option<Change> {
    diff.wall.or(diff.gpu_time)
}

/// Ratio of the measure, per unit of data where sizes changed.
pub(super) fn normalized(diff: &Diff) -> Option<f64> {
    Some(measure(diff)?.ratio / diff.sizes.unwrap_or(1.0))
}

/// Whether the difference exceeds the noise, as far as it is known.
pub(super) fn is_beyond_noise(diff: &Diff, ratio: f64) -> bool {
    is_beyond(ratio, diff.noise.map_or(0.0, |n| n.share))
}

/// The range of [`normalized`] without what recording added: one value where that is nothing, or in both.
pub(super) fn normalized_range(diff: &Diff) -> Option<(f64, f64)> {
    let ratio = normalized(diff)?;
    let of_data = |ratio: f64| ratio / diff.sizes.unwrap_or(1.0);
    Some(match diff.wall_range.filter(|_| diff.wall.is_some()) {
        Some(range) => (of_data(range.ratio_low), of_data(range.ratio_high)),
        None => (ratio, ratio),
    })
}

/// Whether the comparison is one of kernel times although the GPU works for less than half of the time, so that it
/// does not tell which side is faster.
pub(super) fn kernels_tell_little(diff: &Diff) -> bool {
    let busy = |side: &UnitSide| 1.0 - idle_share(side);
    let least = match &diff.unit_of_work {
        Some(unit) => busy(&unit.before).min(busy(&unit.after)),
        None => 1.0 - diff.before.idle_share.max(diff.after.idle_share),
    };
    diff.comparable && diff.wall.is_none() && least < MOST
}

pub(super) fn slower_by(diff: &Diff) -> Option<f64> {
    let (ratio, _) = normalized_range(diff)?;
    (ratio > 1.0 && is_beyond_noise(diff, ratio)).then_some(ratio - 1.0)
}

/// Whether the reports can be compared: by units of work always, by calls only where both have some in
/// common and as much of each.
pub(super) fn is_comparable(diff: &Diff) -> bool {
    match diff.unit {
        TimeUnit::Step | TimeUnit::Unit => measure(diff).is_some(),
        TimeUnit::Call => {
            diff.gpu_time.is_some() && least_matched(diff) >= SOME && diff.same_mix >= SAME_MIX
        }
    }
}

/// Whether no difference is worth reporting.
pub(super) fn is_same(diff: &Diff) -> bool {
    let no_work = diff.slower.is_empty()
        && diff.faster.is_empty()
        && diff.appeared.is_empty()
        && diff.vanished.is_empty();
    let f = &diff.findings;
    let no_finding = f.fixed.is_empty() && f.new.is_empty() && f.unclear.is_empty();
    let alike = |c: Option<Change>| c.is_none_or(|c| !is_beyond_noise(diff, c.ratio));
    let tells = diff.unit.is_call() || !kernels_tell_little(diff);
    diff.comparable
        && tells
        && diff.contradicting.is_none()
        && no_work
        && no_finding
        && alike(diff.wall)
        && alike(diff.gpu_time)
        && changed_parts(diff).next().is_none()
        && diff.sizes.is_none()
        && !diff.gpus_differ
}

/// Parts of the step whose share changed beyond noise.
pub(super) fn changed_parts(diff: &Diff) -> impl Iterator<Item = &PartChange> {
    let all: f64 = diff.parts.iter().map(|p| p.before_ns).sum();
    let floor = all * diff.noise.map_or(SAME, |n| n.share.max(SAME));
    let by = |p: &PartChange| (p.after_ns - p.before_ns).abs();
    diff.parts.iter().filter(move |p| by(p) > floor)
}

pub(super) fn idle_share(side: &UnitSide) -> f64 {
    share(side.wall_ns - side.busy_ns, side.wall_ns).clamp(0.0, 1.0)
}
