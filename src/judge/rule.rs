//! The contents of a rule file after it has been checked.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::advice::Advice;
use super::expr::{Expr, Let, Uses};
use super::finding::{Confidence, SavingKind, Severity};
use crate::base::diag::Source;
use crate::base::glob::Glob;
use crate::base::words::words;
use crate::facts::{MemberKind, Value};

/// The folders of rules, each with its subject. The folder of a rule is its category.
pub const CATEGORIES: &[(&str, &str)] = &[
    (COMMUNICATION, "collectives and what they overlap with"),
    ("copies", "memory copies between host and GPU"),
    ("fusion", "kernels that should be one"),
    (
        "host",
        "the CPU side: launches, synchronization, data loading",
    ),
    ("layers", "advice for one kind of operator"),
    ("memory", "DRAM traffic and memory formats"),
    ("parallelism", "how kernels use the GPU, streams, graphs"),
    ("precision", "data types"),
    ("profile", "what can be concluded from the capture"),
    ("shapes", "dimensions that fit the hardware badly"),
    ("tensor-cores", "Tensor Cores unused or badly fed"),
];

/// The category of rules about the quality of the capture. They run first, and only they may use
/// `vetoes` and `lowers_confidence`.
pub const PROFILE: &str = "profile";
/// The category of rules about collectives.
pub const COMMUNICATION: &str = "communication";
/// The category of a rule that a user gives as a single file.
pub const USER: &str = "user";

/// A checked rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Rule id: `category/stem`.
    pub id: String,
    /// Name and text of the rule file.
    pub source: Arc<Source>,
    /// Whether the rule is embedded in the program.
    pub builtin: bool,
    /// One line that states the problem.
    pub title: String,
    /// How serious its findings are, unless `error_when` is true.
    pub severity: Severity,
    /// How likely it is that its findings are right.
    pub confidence: Confidence,
    /// Kind of member that it is evaluated on.
    pub for_each: MemberKind,
    /// Condition that selects members.
    pub when: Expr,
    /// Which members form one finding; `None`: those of the same place.
    pub group_by: Option<GroupBy>,
    /// Condition on `found.NAME` that a finding must meet.
    pub require: Option<Expr>,
    /// Condition under which the severity is `error`.
    pub error_when: Option<Expr>,
    /// Condition under which a finding is minor whatever its time: it says what the time is, but nothing
    /// shows that any of it is lost.
    pub minor_when: Option<Expr>,
    /// Upper end of the saving of one member, ns.
    pub saving_ns: Option<Expr>,
    /// Lower end of that saving, ns; `None`: [`Rule::min_fraction`] of it.
    pub saving_low_ns: Option<Expr>,
    /// Time that the problem costs outside the steps, ns.
    pub outside_ns: Option<Expr>,
    /// Share of the launches of the covered work that the advice removes, 0 to 1. Where the host limits the
    /// steps, the saving is that share of the idle time before them.
    pub launches_removed: Option<Expr>,
    /// Whether the host has more to launch after the fix.
    pub adds_launches: Option<Expr>,
    /// Whether the advice removes or replaces the covered work, so that nothing else can be saved on it.
    pub replaces_work: bool,
    /// Whether the advice removes the covered work altogether, whatever else replaces some of it.
    pub removes_work: bool,
    /// Kind of time saved as the file states it; see [`Rule::saving_kind`].
    pub saving_kind: Option<SavingKind>,
    /// Settings that the advice changes, with the advised values.
    pub changes: BTreeMap<String, String>,
    /// Rules whose findings on the same subject it removes.
    pub supersedes: Vec<Glob>,
    /// Rules whose findings on the same subject remove its own.
    pub unless: Vec<Glob>,
    /// Rules whose findings every variant of its fix repairs as well.
    pub also_fixes: Vec<Glob>,
    /// Rules that are skipped if it fires; `profile` rules only.
    pub vetoes: Vec<Glob>,
    /// Rules whose confidence drops one level if it fires; `profile` rules only.
    pub lowers_confidence: Vec<Glob>,
    /// What [`Rule::advice`] returns, once it has been read.
    pub(super) advice: OnceLock<Result<Advice, String>>,
    /// Params with their default values, by name.
    pub params: BTreeMap<String, Param>,
    /// Values of the params in use: the defaults, or those given with `--set`.
    pub settings: BTreeMap<String, Value>,
    /// Named sub-expressions, in an order in which each uses only earlier ones.
    pub lets: Vec<Let>,
    /// Examples in the file, which are its tests.
    pub tests: Vec<Case>,
}

impl Rule {
    /// The category: `tensor-cores` of `tensor-cores/gemm-unaligned`.
    pub fn category(&self) -> &str {
        self.id
            .split_once('/')
            .map_or(USER, |(category, _)| category)
    }

    /// Whether it is about the capture, and so runs before the others.
    pub(super) fn is_profile(&self) -> bool {
        self.category() == PROFILE
    }

    /// Lower end of a saving as a share of the upper end: `params.min_fraction`.
    pub fn min_fraction(&self) -> f64 {
        match self.settings.get(MIN_FRACTION) {
            Some(Value::Double(fraction)) => *fraction,
            _ => DEFAULT_MIN_FRACTION,
        }
    }

    /// Whether the host has less to do after the fix, because there are fewer launches.
    pub fn shortens_host(&self) -> bool {
        self.launches_removed.is_some()
            || self.changes_to("launches", "fewer")
            || self.changes_to("fusion", "compile")
    }

    /// Whether the advice gives a setting this value.
    pub(super) fn changes_to(&self, setting: &str, value: &str) -> bool {
        self.changes.get(setting).is_some_and(|v| v == value)
    }

    /// Whether the saving of a chain includes that of its backward pass.
    pub(super) fn saves_backward(&self) -> bool {
        let uses = self
            .saving_ns
            .as_ref()
            .map(|saving| saving.uses.closure(&self.lets));
        uses.is_some_and(|uses| uses.facts.contains(&"chain.backward_ns"))
    }

    /// The kind of time that `saving_ns` is.
    pub fn saving_kind(&self) -> SavingKind {
        self.saving_kind.unwrap_or(match self.for_each {
            MemberKind::Gap => SavingKind::Idle,
            MemberKind::Copy => SavingKind::Copy,
            _ => SavingKind::Gpu,
        })
    }

    /// The names that `when` and its lets use.
    pub fn condition_uses(&self) -> Uses {
        self.when.uses.closure(&self.lets)
    }
}

/// The name of the param that every rule has: the lower end of a saving as a fraction of the upper end.
pub const MIN_FRACTION: &str = "min_fraction";
/// The value of [`MIN_FRACTION`] in a rule that does not set it: half of the estimate.
pub const DEFAULT_MIN_FRACTION: f64 = 0.5;

words! {
    /// Which members form one finding. By default, members of the same place do.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GroupBy with fn word {
        /// All members form one finding.
        Run = "run",
        /// One finding per layer.
        Layer = "layer",
        /// One finding per rank.
        Rank = "rank",
        /// One finding per kernel, by its label.
        Kernel = "kernel",
        /// One finding per thing that is changed to change kernels: a library for one kind of work, an engine,
        /// else a kernel by its label.
        Change = "change",
        /// One finding per kind of work.
        Family = "family",
        /// One finding per cause of idle time.
        Cause = "cause",
    }
}

/// A value of a rule that a user can change with `--set`.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Default value; its type is the type of the param.
    pub value: Value,
    /// What the value means, and its source.
    pub doc: String,
}

/// An example of a rule, which is also its test.
#[derive(Debug, Clone)]
pub struct Case {
    /// What the example shows.
    pub name: String,
    /// Id of the built-in GPU that provides the `gpu.` facts.
    pub gpu: Option<String>,
    /// Values of facts and of `found.NAME`; all others are absent.
    pub facts: BTreeMap<String, Value>,
    /// Params that differ from the rule's settings.
    pub params: BTreeMap<String, Value>,
    /// The expected outcome.
    pub expect: Expect,
    /// Expected saving if the rule fires, ns.
    pub saving_ns: Option<f64>,
    /// Expected lower end of the saving if the rule fires, ns.
    pub saving_low_ns: Option<f64>,
    /// Expected share of launches removed if the rule fires.
    pub launches_removed: Option<f64>,
    /// Words that the fix must contain if the rule fires.
    pub fix: Option<String>,
    /// Expected severity if the rule fires.
    pub severity: Option<Severity>,
    /// Whether the finding is minor by `minor_when`, for a rule that has it.
    pub minor: bool,
}

/// The expected outcome of an example.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// It fires with exactly this message.
    Fires(String),
    /// It does not fire.
    Silent,
    /// It is skipped because facts are absent, among them at least these. Sorted.
    Skipped(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_sorted_and_documented() {
        assert!(CATEGORIES.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(CATEGORIES.iter().all(|(_, doc)| !doc.is_empty()));
    }
}
