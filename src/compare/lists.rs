//! Lists that several comparisons need.

use crate::base::text;
use crate::report::Report;

/// Most names in one sentence.
const NAMED: usize = 5;

/// A few names and the number of the others, for a sentence.
pub(super) fn some<S: AsRef<str>>(names: &[S]) -> String {
    text::list_some(names, NAMED)
}

/// Rules that lack a fact in `after` that they had in `before`: without a finding of theirs nothing
/// is known.
pub(super) fn newly_skipped<'a>(before: &Report, after: &'a Report) -> Vec<&'a str> {
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
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
