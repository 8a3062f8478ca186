//! Merges several [`Report`]s, compares two, and hides findings that a baseline or a suppression
//! covers.
//!
//! It works on reports only, never on profiles: the ranks of a job can be analyzed on different
//! machines at different times, and their reports give the same result as all profiles at once.
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
pub(crate) mod welch;
mod windows;

pub use baseline::against;
pub use diff::{Diff, diff};
pub use identity::number_ranks;
pub use merge::merge;
pub use suppress::{Suppression, suppress};
pub(crate) use windows::{join, not_joined};

use crate::base::text;
use crate::report::{Report, share};

/// Most names in one sentence.
const NAMED: usize = 5;

/// A few names and the number of the others, for a sentence.
fn some<S: AsRef<str>>(names: &[S]) -> String {
    text::list_some(names, NAMED)
}

/// Rules that lack a fact in `after` that they had in `before`: without a finding of theirs nothing
/// is known.
fn newly_skipped<'a>(before: &Report, after: &'a Report) -> Vec<&'a str> {
    let lacked = |rule: &str, fact: &str| {
        let mut rows = before.skipped.iter();
        rows.any(|row| row.rules.iter().any(|r| r == rule) && row.facts.iter().any(|f| f == fact))
    };
    let mut rules: Vec<&str> = Vec::new();
    for row in &after.skipped {
        let anew = |rule: &&String| row.facts.iter().any(|fact| !lacked(rule, fact));
        rules.extend(row.rules.iter().filter(anew).map(String::as_str));
    }
    rules
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
