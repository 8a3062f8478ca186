//! Floor 6: rules. Load, check, evaluate in three values, resolve conflicts, claim savings, rank,
//! explain, prove. Knows facts by name only.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::correlate::SiteId;
use crate::facts::{Member, MemberKind};

pub mod check;
mod claim;
mod evaluate;
pub mod evidence;
pub mod explain;
pub mod expr;
mod gather;
pub mod keys;
pub mod load;
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

pub use evaluate::RuleInput;
pub use explain::explain;
pub use load::RuleFile;
pub use resolve::{FLOOR, HOST_BOUND};
pub use rule::{CATEGORIES, Rule};
pub use rule_set::{RuleSet, Selection, pattern_of};
pub use rule_tests::{TestOutcome, TestResult, run_tests};
pub use scaffold::scaffold;
pub use why::why;

/// Judges a run: every rule on every member it is over, then one verdict. The same for any number
/// of threads.
pub fn judge(rules: &RuleSet, input: &dyn RuleInput) -> Verdict {
    let rules = rules.rules();
    let kinds = MemberKind::ALL.par_iter().map(|(over, _)| {
        let (places, rules): (Vec<usize>, Vec<&Rule>) = (rules.iter().enumerate())
            .filter(|(_, rule)| rule.for_each == *over)
            .unzip();
        if rules.is_empty() {
            return Vec::new();
        }
        let judged = evaluate::evaluate(&rules, &input.members(*over), input);
        places.into_iter().zip(judged).collect()
    });
    let kinds: Vec<Vec<_>> = kinds.collect();
    let in_order: BTreeMap<usize, _> = kinds.into_iter().flatten().collect();
    let judged = in_order.into_values().collect();
    resolve::resolve(rules, judged, input)
}

/// How bad a finding is; static, from the rule file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Severity {
    Note,
    Warning,
    Error,
}

impl Severity {
    /// Every one with the word rule files and reports use, mildest first.
    pub const ALL: [(Severity, &'static str); 3] = [
        (Severity::Note, "note"),
        (Severity::Warning, "warning"),
        (Severity::Error, "error"),
    ];

    pub fn word(self) -> &'static str {
        word_of(&Self::ALL, self)
    }
}

/// How sure a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Confidence {
    Low,
    Medium,
    High,
}

impl Confidence {
    /// One level less sure; `Low` stays.
    pub(super) fn lowered(self) -> Confidence {
        match self {
            Confidence::High => Confidence::Medium,
            Confidence::Medium | Confidence::Low => Confidence::Low,
        }
    }

    /// Every one with the word rule files and reports use, least first.
    pub const ALL: [(Confidence, &'static str); 3] = [
        (Confidence::Low, "low"),
        (Confidence::Medium, "medium"),
        (Confidence::High, "high"),
    ];

    pub fn word(self) -> &'static str {
        word_of(&Self::ALL, self)
    }

    /// The weight a saving is ranked with.
    pub fn weight(self) -> f64 {
        match self {
            Confidence::Low => 0.4,
            Confidence::Medium => 0.7,
            Confidence::High => 1.0,
        }
    }
}

fn word_of<T: PartialEq>(words: &[(T, &'static str)], of: T) -> &'static str {
    let found = words.iter().find(|(value, _)| *value == of);
    found.map_or("", |(_, word)| word)
}

/// The outcome of judging a run.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// In report order: what pays most first.
    pub findings: Vec<Finding>,
    /// Findings under the floor, same order.
    pub minor: Vec<Finding>,
    /// What the capture itself allows to be said: findings of profile-category rules. Not advice on
    /// the program.
    pub capture: Vec<Finding>,
    pub not_judged: Vec<NotJudged>,
    /// Rules that failed while running: reported, never silent.
    pub faults: Vec<Fault>,
    /// Findings another finding silenced (`supersedes`, `unless`, `vetoes`), for `-v` and `--why`.
    pub silenced: Vec<Silenced>,
    pub rules_run: usize,
}

/// One piece of advice.
#[derive(Debug, Clone)]
pub struct Finding {
    /// `tensor-cores/gemm-unaligned`, or `user/<stem>`.
    pub rule: String,
    /// The rule file, as a path people can open.
    pub file: String,
    pub category: String,
    pub title: String,
    pub severity: Severity,
    pub confidence: Confidence,
    pub members: Vec<Member>,
    /// Sites covered, each once.
    pub sites: Vec<SiteId>,
    /// ns covered of each of them: a kernel or a sequence is part of its site.
    pub covered: BTreeMap<SiteId, f64>,
    /// Where, for people; not escaped. Several places are folded: `blocks.* (24 layers)`.
    pub place: String,
    /// What tells it from its rule's other findings in this run, and is the same for the same
    /// finding in another run: the place, or nothing where the rule makes one finding per run.
    pub subject: String,
    /// Every place it covers with its ns, most first, in words that are the same in another run; none
    /// for what is about the run, idle time or a rank.
    pub places: Vec<(String, f64)>,
    pub calls: u64,
    /// GPU ns (idle ns for gaps) covered.
    pub time_ns: f64,
    /// Of GPU busy time (of the window for idle findings).
    pub share: f64,
    pub saving: Option<Saving>,
    /// Markdown written by the rule with profile text escaped inside.
    pub message: String,
    pub why: String,
    pub fix: String,
    pub references: Vec<String>,
    /// The facts its condition used, for the worst member: name and printed value.
    pub evidence: Vec<(String, String)>,
    /// What the advice changes, for contradictions.
    pub changes: BTreeMap<String, String>,
}

/// Time given back. All in ns of the judged window, summed over devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Saving {
    /// GPU time (or idle, or exposed copy time), upper end.
    pub high_ns: f64,
    /// Lower end: upper end x `params.min_fraction`.
    pub low_ns: f64,
    /// What was still unclaimed of the upper end when its turn came.
    pub claimed_ns: f64,
    /// What better-ranked findings had claimed already.
    pub overlap_ns: f64,
    /// Step time given back by the claimed part; `None` where idle time cannot be trusted.
    pub step_ns: Option<f64>,
    pub kind: SavingKind,
}

/// What kind of time is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SavingKind {
    Gpu,
    Idle,
    Copy,
}

/// A fact that was missing, with what it would have allowed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NotJudged {
    pub fact: String,
    /// How to collect it, from the fact table.
    pub needs: String,
    pub rules: Vec<String>,
    pub members: u64,
    /// GPU time covered by those members, each site once.
    pub time_ns: f64,
}

/// A rule that failed while running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fault {
    pub rule: String,
    pub message: String,
    pub count: u64,
}

/// A finding that another one made pointless.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Silenced {
    pub rule: String,
    pub by: String,
    pub place: String,
}
