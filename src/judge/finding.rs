//! Findings, their savings, and what could not be evaluated.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::edit::Edit;
use crate::base::glob::Glob;
use crate::base::words::words;
use crate::correlate::SiteId;
use crate::facts::{Member, SitePart};

words! {
    /// How serious a finding is, as the rule file states it (or `error` by `error_when`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    pub enum Severity with fn word, serde {
        /// Worth knowing; no change is needed.
        Note = "note",
        /// Costs time that a change to the program can save.
        Warning = "warning",
        /// A serious problem, to be fixed first.
        Error = "error",
    }
}

words! {
    /// How likely it is that a finding of a rule is right.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    pub enum Confidence with fn word, serde {
        /// The evidence also fits other explanations.
        Low = "low",
        /// Likely, but the saving may be smaller than estimated.
        Medium = "medium",
        /// The recorded facts establish the problem.
        High = "high",
    }
}

impl Confidence {
    /// The next lower level; `Low` stays `Low`.
    pub(super) fn lowered(self) -> Confidence {
        match self {
            Confidence::High => Confidence::Medium,
            Confidence::Medium | Confidence::Low => Confidence::Low,
        }
    }

    /// The factor, above 0 and at most 1, that a saving is multiplied by when findings are ranked.
    pub fn weight(self) -> f64 {
        match self {
            Confidence::Low => 0.4,
            Confidence::Medium => 0.7,
            Confidence::High => 1.0,
        }
    }
}

/// All findings about a run, and what could not be evaluated.
#[derive(Debug, Clone, Default)]
pub struct RuleResults {
    /// Findings at or above [`FLOOR`](super::FLOOR), in report order: largest expected saving first.
    pub findings: Vec<Finding>,
    /// Findings below [`FLOOR`](super::FLOOR), in the same order.
    pub minor: Vec<Finding>,
    /// Findings of `profile` rules: about the quality of the capture, not the program.
    pub capture: Vec<Finding>,
    /// Facts that were not recorded, with the rules they would have allowed to run, most GPU time
    /// first.
    pub skipped: Vec<MissingFact>,
    /// Rules that failed while they were evaluated; the report shows them.
    pub faults: Vec<Fault>,
    /// Findings that `supersedes`, `unless`, `vetoes` or contradicting advice removed, shown by
    /// `-v` and `--why`.
    pub dropped: Vec<DroppedFinding>,
    /// Number of rules that were evaluated.
    pub rules_run: usize,
}

/// One problem that a rule found, with its advice.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Rule id: `tensor-cores/gemm-unaligned`, or `user/<stem>`.
    pub rule: String,
    /// Path of the rule file, as a user can open it.
    pub file: String,
    /// Category of the rule: the part of its id before `/`.
    pub category: String,
    /// Title of the rule: one line that states the problem, in the vendor's terms.
    pub title: String,
    /// How serious the finding is.
    pub severity: Severity,
    /// Confidence of the rule, after `lowers_confidence` of `profile` rules.
    pub confidence: Confidence,
    /// Members that the condition selected.
    pub members: Vec<Member>,
    /// Call sites covered, each once, sorted.
    pub sites: Vec<SiteId>,
    /// ns covered of each call site; a kernel or a chain counts as a part of its site.
    pub covered: BTreeMap<SiteId, f64>,
    /// The calls and kernels covered of each call site. A site that is missing is covered as a whole.
    pub parts: BTreeMap<SiteId, SitePart>,
    /// Call sites of the backward calls of the operators covered, which change with them. Known for
    /// chains only; sorted.
    pub backward: Vec<SiteId>,
    /// Whether the advice removes or replaces the covered work.
    pub replaces_work: bool,
    /// Where the problem is, for display; not escaped. Several places are folded: `blocks.* (24
    /// layers)`.
    pub place: String,
    /// Tells this finding apart from the other findings of its rule, and is the same in another run
    /// of the program: the place, or empty if the rule makes one finding per run.
    pub subject: String,
    /// Every place covered with its ns, largest first, named as in another run of the program.
    /// Empty if the finding is about the run, a step, idle time or a rank.
    pub places: Vec<(String, f64)>,
    /// Number of calls of all members.
    pub calls: u64,
    /// GPU time covered (idle time for gaps), ns.
    pub time_ns: f64,
    /// `time_ns` as a fraction of GPU busy time (of the window for findings about gaps), 0 to 1.
    pub share: f64,
    /// Estimated saving; `None` if the rule has no estimate.
    pub saving: Option<Saving>,
    /// Time that it costs outside the steps, which no saving contains, ns; `None` if the rule does not state it.
    pub outside_ns: Option<f64>,
    /// What the problem is, as Markdown; profile text in it is escaped.
    pub message: String,
    /// Why the problem costs time, as Markdown.
    pub why: String,
    /// How to fix the problem, as Markdown.
    pub fix: String,
    /// Changes of one source line that it suggests.
    pub edits: Vec<Edit>,
    /// Links to further reading.
    pub references: Vec<String>,
    /// Facts that the condition used, for the costliest member: name and printed value.
    pub evidence: Vec<(String, String)>,
    /// Settings that the advice changes, with the advised values; used to find contradicting
    /// advice.
    pub changes: BTreeMap<String, String>,
    /// The variant of the fix, by its position in the rule.
    pub variant: Option<usize>,
    /// Rules whose findings the fix repairs as well.
    pub also_fixes: Vec<Glob>,
    /// Whether it saves host time because launches go away.
    pub removes_launches: bool,
    /// Id of the rule whose finding must be repaired first: only then does this one shorten the step, because
    /// launches no longer come late, or by a share of it that matters.
    pub after: Option<String>,
    /// Whether it is minor whatever its time, by the rule's `minor_when`.
    pub is_minor: bool,
    /// Whether its members are those of the [light recording](super::RuleInput::light).
    pub of_light: bool,
}

/// The time that a fix could save, in ns of the analyzed window, summed over devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Saving {
    /// Upper end of the estimate: GPU time, idle time or exposed copy time.
    pub high_ns: f64,
    /// Lower end of the estimate: `saving_low_ns` of the rule, or `high_ns` times
    /// `params.min_fraction`.
    pub low_ns: f64,
    /// The part of `high_ns` that no better-ranked finding has claimed.
    pub claimed_ns: f64,
    /// The part of `low_ns` in `claimed_ns`.
    pub claimed_low_ns: f64,
    /// The part of `high_ns` that better-ranked findings have claimed, or that cannot be saved.
    pub overlap_ns: f64,
    /// Wall time saved by the claimed part on each device; `None` if idle time in this capture is
    /// unreliable.
    pub step_ns: Option<f64>,
    /// The same of the claimed part of the lower end.
    pub step_low_ns: Option<f64>,
    /// The kind of time that is saved.
    pub kind: SavingKind,
}

words! {
    /// The kind of time that a fix saves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    pub enum SavingKind with fn word, serde {
        /// GPU busy time.
        Gpu = "gpu",
        /// GPU idle time.
        Idle = "idle",
        /// Exposed copy time.
        Copy = "copy",
    }
}

/// A fact that was not recorded, with the rules that were skipped because of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingFact {
    /// Name of the fact.
    pub fact: String,
    /// How to record it, from the fact table.
    pub needs: String,
    /// Ids of the rules that need it, sorted.
    pub rules: Vec<String>,
    /// Number of members that lack it.
    pub members: u64,
    /// GPU time covered by those members, each call site once, ns.
    pub time_ns: f64,
}

/// A rule that failed while running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fault {
    /// Id of the rule.
    pub rule: String,
    /// Error message of the failure.
    pub message: String,
    /// How often it failed with this message.
    pub count: u64,
}

/// A finding that was dropped because of another rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DroppedFinding {
    /// Id of the rule whose finding was dropped.
    pub rule: String,
    /// Id of the rule that caused it.
    pub by: String,
    /// Place of the dropped finding.
    pub place: String,
}
