//! Rules (floor 6): loads and checks rule files, evaluates their conditions in three-valued logic,
//! resolves conflicts, assigns savings, ranks findings, explains rules and runs their tests. Facts
//! are known by name only.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::facts::MemberKind;

pub mod advice;
mod after;
mod also_fixed;
pub mod check;
mod claim;
mod edit;
mod evaluate;
pub mod evidence;
mod examples;
pub mod explain;
pub mod expr;
mod finding;
mod floors;
mod grouping;
pub mod keys;
pub mod load;
mod long_gaps;
pub(crate) mod order;
mod read;
mod resolve;
pub mod rule;
mod rule_set;
pub mod rule_tests;
mod scaffold;
pub mod template;
mod test_cases;
mod vendor_words;
mod why;
mod windows;

pub(crate) use after::SAVES_MOST;
pub use edit::Edit;
pub use evaluate::RuleInput;
pub use examples::check_examples;
pub use explain::explain;
pub use finding::{
    Confidence, DroppedFinding, Fault, Finding, MissingFact, RuleResults, Saving, SavingKind,
    Severity,
};
pub use floors::FLOOR;
pub(crate) use floors::is_above_floor;
pub(crate) use grouping::place_name;
pub use load::RuleFile;
pub use rule::{CATEGORIES, Rule};
#[cfg(feature = "cli")]
pub(crate) use rule_set::pattern_of;
pub use rule_set::{RuleSet, Selection};
pub use rule_tests::{TestResult, run_tests};
pub use scaffold::scaffold;
pub use why::why;
pub use windows::WindowPair;

/// Evaluates every rule on every member of its kind and resolves what they find. The
/// results do not depend on the number of threads.
pub fn judge(rules: &RuleSet, input: &dyn RuleInput) -> RuleResults {
    let rules = rules.rules();
    let kinds = MemberKind::ALL.iter().map(|(kind, _)| *kind);
    let kinds: Vec<_> = kinds
        .flat_map(|kind| [(kind, false), (kind, true)])
        .collect();
    let kinds = kinds.into_par_iter().map(|(kind, light)| {
        let (places, rules): (Vec<usize>, Vec<&Rule>) = (rules.iter().enumerate())
            .filter(|(_, rule)| rule.for_each == kind && windows::is_about_idle(rule) == light)
            .unzip();
        let Some(first) = rules.first() else {
            return Vec::new();
        };
        let input = windows::input_of(input, first);
        let matches = evaluate::evaluate(&rules, &input.members(kind), input);
        places.into_iter().zip(matches).collect()
    });
    let kinds: Vec<Vec<_>> = kinds.collect();
    let in_order: BTreeMap<usize, _> = kinds.into_iter().flatten().collect();
    let matches = in_order.into_values().collect();
    resolve::resolve(rules, matches, input)
}
