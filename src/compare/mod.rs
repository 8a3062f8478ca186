//! Floor 7: several [`Report`]s put together, or held against each other, and what people decided not
//! to see.
//!
//! Works on reports alone, never on profiles: the ranks of a job can be judged on different machines
//! at different times, and their reports give the same result as all profiles at once.
//!
//! [`Report`]: crate::report::Report

mod baseline;
mod comparison;
pub mod diff;
mod findings;
mod identity;
mod merge;
mod sites;
mod suppress;
mod tables;

pub use baseline::against;
pub use diff::{Diff, diff, regression};
pub use identity::number_ranks;
pub use merge::merge;
pub use suppress::{Suppression, suppress};

/// `part / whole`; 0 for an empty whole.
fn share(part: f64, whole: f64) -> f64 {
    let share = part / whole;
    if share.is_finite() { share } else { 0.0 }
}

/// At most five names and how many more, for a sentence.
fn some<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len() {
        n if n > SHOWN => format!("{} and {} more", shown.join(", "), n - SHOWN),
        _ => shown.join(", "),
    }
}

/// The distinct values, in order of first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
