//! Limits from which differences count, and how a ratio is formed.

use crate::report::share;

/// Share of the compared time below which a single difference is not listed, as for findings.
pub(super) const FLOOR: f64 = 0.005;

/// Smallest difference between the changes of the unit of work and of the range around it that is said.
pub(super) const MUCH: f64 = 0.1;

/// Smallest matched share of the time for which calls are compared.
pub(super) const SOME: f64 = 0.1;

/// Smallest matched share of the time for which a regression is decided, and for which most of the
/// work counts as changed.
pub(super) const MOST: f64 = 0.5;

/// `after / before`; 1 where both are 0.
pub(super) fn ratio(before: f64, after: f64) -> f64 {
    if before == after {
        1.0
    } else {
        share(after, before)
    }
}
