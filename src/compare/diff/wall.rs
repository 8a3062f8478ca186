//! The wall time of the unit of work, and whether recording leaves open which side is faster.

use std::cmp::Ordering;

use super::basis::{DiffBasis, per_step};
use super::model::{Change, NoiseOf, TimeUnit, WallRange};
use super::noise;
use crate::base::units::ns_range;
use crate::compare::welch::is_beyond;
use crate::report::{Report, Summary, share};

/// How wall times compare.
pub(super) struct Wall {
    /// As recorded, or why they are not compared.
    pub(super) change: Result<Change, String>,
    /// Their range without what recording added, where the sides may be slowed down differently.
    pub(super) range: Option<WallRange>,
}

/// Compares the wall times of the unit of work per unit of data, which grew by the factor `sizes`.
pub(super) fn compare(
    basis: &DiffBasis<'_>,
    sizes: Option<f64>,
    before: &Report,
    after: &Report,
) -> Wall {
    let Some((b, a)) = lengths(basis, before, after) else {
        return Wall {
            change: Err("the profiles have no unit of work in common".to_owned()),
            range: None,
        };
    };
    let change = Change::new(b.recorded_ns, a.recorded_ns);
    let slowed = [before, after].map(|report| report.summary.idle_unreliable.is_some());
    if slowed == [false, false] {
        return Wall {
            change: Ok(change),
            range: None,
        };
    }
    let alike = alike(&before.summary, &after.summary);
    let range = range(&b, &a, alike);
    let noise = basis
        .common
        .and_then(|common| noise::of(NoiseOf::Wall, &common).ok());
    let direction = |ratio: f64| {
        let ratio = ratio / sizes.unwrap_or(1.0);
        match is_beyond(ratio, noise.map_or(0.0, |noise| noise.share)) {
            true => ratio.total_cmp(&1.0),
            false => Ordering::Equal,
        }
    };
    let (low, high) = (direction(range.ratio_low), direction(range.ratio_high));
    // What slowed both down alike is in both, unless more of it is on one side than the other is longer.
    let both = slowed == [true, true] && alike;
    let is_sure = low == high || (both && (low == Ordering::Equal || high == Ordering::Equal));
    Wall {
        change: match is_sure {
            true => Ok(change),
            false => Err(format!(
                "{}: {}",
                lengths_of(&range),
                reasons(before, after)
            )),
        },
        range: (!(both && is_sure)).then_some(range),
    }
}

/// The length of the unit of work.
struct Length {
    recorded_ns: f64,
    /// Without idle time that recording may have caused.
    least_ns: f64,
}

fn lengths(basis: &DiffBasis<'_>, before: &Report, after: &Report) -> Option<(Length, Length)> {
    let unit = basis.common.map(|common| common.change());
    let of = |report: &Report, unit: Option<(f64, f64)>| {
        let s = &report.summary;
        let (wall, busy) = match (unit, basis.unit) {
            (Some(unit), _) => unit,
            // A report of an older version has nothing else.
            (None, TimeUnit::Step) => (s.step_ns?, s.busy_ns as f64 * per_step(report)),
            _ => return None,
        };
        let idle = s.device_window_ns.saturating_sub(s.busy_ns) as f64;
        let doubtful = (idle - s.reliable_idle_ns as f64).max(0.0);
        let doubtful = (wall - busy).max(0.0) * share(doubtful, idle).min(1.0);
        (wall > 0.0).then(|| Length {
            recorded_ns: wall,
            least_ns: (wall - doubtful).max(1.0),
        })
    };
    Some((
        of(
            before,
            unit.as_ref().map(|u| (u.before.wall_ns, u.before.busy_ns)),
        )?,
        of(
            after,
            unit.as_ref().map(|u| (u.after.wall_ns, u.after.busy_ns)),
        )?,
    ))
}

/// Whether the same kind of recording may have slowed both down.
fn alike(before: &Summary, after: &Summary) -> bool {
    let same = |part: fn(&Summary) -> Option<&String>| {
        part(before).is_some_and(|before| part(after) == Some(before))
    };
    same(|s| s.recording_overhead.as_ref()) || same(|s| s.idle_unreliable.as_ref())
}

/// The same kind of recording adds the same share of what it may add at most on both sides; other kinds have
/// nothing to do with each other.
fn range(before: &Length, after: &Length, alike: bool) -> WallRange {
    let (one, other) = match alike {
        true => (
            super::limits::ratio(before.recorded_ns, after.recorded_ns),
            super::limits::ratio(before.least_ns, after.least_ns),
        ),
        false => (
            super::limits::ratio(before.recorded_ns, after.least_ns),
            super::limits::ratio(before.least_ns, after.recorded_ns),
        ),
    };
    WallRange {
        before_low_ns: before.least_ns,
        before_high_ns: before.recorded_ns,
        after_low_ns: after.least_ns,
        after_high_ns: after.recorded_ns,
        ratio_low: one.min(other),
        ratio_high: one.max(other),
    }
}

/// `without what recording added they are 3.0 to 6.0 ms, before 4.9 to 5.0 ms`.
pub(super) fn lengths_of(range: &WallRange) -> String {
    format!(
        "without what recording added they are {}, before {}",
        ns_range(range.after_low_ns, range.after_high_ns),
        ns_range(range.before_low_ns, range.before_high_ns)
    )
}

/// What slowed each side down.
pub(super) fn reasons(before: &Report, after: &Report) -> String {
    let why = [before, after].map(|report| {
        let why = report.summary.idle_unreliable.as_deref();
        why.map(|why| why.trim().trim_end_matches('.'))
    });
    match why {
        [Some(before), Some(after)] if before == after => format!("in both profiles {before}"),
        [Some(before), Some(after)] => {
            format!("in the first profile {before}; in the second {after}")
        }
        [Some(before), None] => format!("in the first profile {before}"),
        [None, Some(after)] => format!("in the second profile {after}"),
        [None, None] => String::new(),
    }
}
