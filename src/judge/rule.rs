//! What a rule file says, after it has been checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expr::{Expr, Let, Uses};
use super::template::Template;
use super::{Confidence, SavingKind, Severity};
use crate::base::diag::Source;
use crate::base::glob::Glob;
use crate::facts::{MemberKind, Value};

/// The folders rules live in, with what belongs there. A rule's folder is its category.
pub const CATEGORIES: &[(&str, &str)] = &[
    ("communication", "collectives and what they overlap with"),
    ("copies", "memory copies between host and GPU"),
    ("fusion", "kernels that should be one"),
    (
        "host",
        "the CPU side: launches, synchronisation, data loading",
    ),
    ("layers", "advice for one kind of operator"),
    ("memory", "DRAM traffic and memory formats"),
    (
        "parallelism",
        "kernels too small for the GPU, streams, graphs",
    ),
    ("precision", "data types"),
    ("profile", "what the capture itself allows to be said"),
    ("shapes", "dimensions that fit the hardware badly"),
    ("tensor-cores", "Tensor Cores unused or badly fed"),
];

/// The category of rules that judge the capture: they run first, and only they may veto and scale.
pub const PROFILE: &str = "profile";
/// The category of rules in a user's single files.
pub const USER: &str = "user";

/// A rule, ready to run.
#[derive(Debug, Clone)]
pub struct Rule {
    /// `category/stem`.
    pub id: String,
    /// Its file.
    pub source: Arc<Source>,
    pub builtin: bool,
    pub title: String,
    pub severity: Severity,
    pub confidence: Confidence,
    pub for_each: MemberKind,
    pub when: Expr,
    pub group_by: Option<GroupBy>,
    pub require: Option<Expr>,
    pub error_when: Option<Expr>,
    pub saving_ns: Option<Expr>,
    pub saving_kind: Option<SavingKind>,
    pub changes: BTreeMap<String, String>,
    pub supersedes: Vec<Glob>,
    pub unless: Vec<Glob>,
    pub vetoes: Vec<Glob>,
    pub lowers_confidence: Vec<Glob>,
    pub message: Template,
    pub why: Template,
    pub fix: Template,
    pub references: Vec<String>,
    pub params: BTreeMap<String, Param>,
    /// The values in force: of the file, or of `--set`.
    pub settings: BTreeMap<String, Value>,
    pub lets: Vec<Let>,
    pub tests: Vec<Case>,
}

impl Rule {
    /// The folder: `tensor-cores` of `tensor-cores/gemm-unaligned`.
    pub fn category(&self) -> &str {
        self.id
            .split_once('/')
            .map_or(USER, |(category, _)| category)
    }

    /// Lower end of a saving as a share of the upper end: `params.min_fraction`.
    pub fn min_fraction(&self) -> f64 {
        match self.settings.get(MIN_FRACTION) {
            Some(Value::Double(fraction)) => *fraction,
            _ => DEFAULT_MIN_FRACTION,
        }
    }

    /// The kind of time its findings save.
    pub fn saving_kind(&self) -> SavingKind {
        self.saving_kind.unwrap_or(match self.for_each {
            MemberKind::Gap => SavingKind::Idle,
            MemberKind::Copy => SavingKind::Copy,
            _ => SavingKind::Gpu,
        })
    }

    /// What the condition uses, its lets included.
    pub fn condition_uses(&self) -> Uses {
        self.when.uses.closure(&self.lets)
    }
}

/// The param every rule has: the lower end of a saving as a fraction of the upper end.
pub const MIN_FRACTION: &str = "min_fraction";
/// Its value where a rule does not say: half of the estimate.
pub const DEFAULT_MIN_FRACTION: f64 = 0.5;

/// What members are put together into one finding; by default members of the same place are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    Run,
    Layer,
    Rank,
}

impl GroupBy {
    pub const ALL: [(GroupBy, &'static str); 3] = [
        (GroupBy::Run, "run"),
        (GroupBy::Layer, "layer"),
        (GroupBy::Rank, "rank"),
    ];

    pub fn word(self) -> &'static str {
        let entry = Self::ALL.iter().find(|(g, _)| *g == self);
        entry.map_or("run", |(_, word)| word)
    }
}

/// A number or word of a rule that a user may set.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    pub value: Value,
    pub doc: String,
}

/// An example of a rule, and its test.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// A GPU's id; its `gpu.` facts hold.
    pub gpu: Option<String>,
    pub facts: BTreeMap<String, Value>,
    pub params: BTreeMap<String, Value>,
    pub expect: Expect,
    /// The saving a firing case must have, ns.
    pub saving_ns: Option<f64>,
    pub severity: Option<Severity>,
}

/// What a rule must do with an example.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// Fires, and says exactly this.
    Fires(String),
    Silent,
    /// Is not judged for want of facts, these among them. In alphabetical order.
    Skipped(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_sorted_and_explained() {
        assert!(CATEGORIES.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(CATEGORIES.iter().all(|(_, doc)| !doc.is_empty()));
    }
}
