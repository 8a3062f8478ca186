//! A finding in a report, with its evidence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::job::OnRanks;
use crate::judge::{Confidence, Edit, SavingKind, Severity};

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingReport {
    /// 1 for the first; 0 for minor findings, which are not numbered.
    pub number: u64,
    /// Id of the rule: `precision/amp-off`.
    pub rule: String,
    /// The rule's file.
    pub rule_file: String,
    /// Category of the rule: `precision`.
    pub category: String,
    /// Title of the rule, and what the finding is about where several would have the same title.
    pub title: String,
    /// What `title` has beyond the title of the rule: `: nvjet_hsh_128x128`. Mostly empty.
    #[serde(default)]
    pub title_suffix: String,
    /// How serious the finding is.
    pub severity: Severity,
    /// How certain the finding is.
    pub confidence: Confidence,
    /// Where it was found: a layer and an operator, or a summary of several.
    pub place: String,
    /// Identifies the finding among those of its rule, with the same text on all ranks; empty where the
    /// rule makes one finding per run.
    pub subject: String,
    /// All places, longest time first, at most 100; empty for findings about the run, idle time or a rank.
    #[serde(default)]
    pub places: Vec<FindingPlace>,
    /// Number of places that `places` leaves out.
    #[serde(default)]
    pub places_omitted: u64,
    /// With a baseline: `new`, or why it is shown although the baseline has it; `null` for known findings.
    #[serde(default)]
    pub since_baseline: Option<String>,
    /// Whether it is about the run as a whole and not about a place in it.
    pub whole_run: bool,
    /// Number of calls, kernels, copies or gaps it covers: see `calls_unit`.
    pub calls: u64,
    /// What `calls` counts.
    #[serde(default)]
    pub calls_unit: CallUnit,
    /// Number of sites, layers, gaps or other subjects that the rule matched.
    pub members: u64,
    /// Time of the work it is about.
    pub time_ns: f64,
    /// `time_ns` as a share of GPU busy time, or of the window when `saving.kind` is `idle`.
    pub share: f64,
    /// Estimated saving; `null` without an estimate.
    pub saving: Option<SavingReport>,
    /// Whether the saving is of the host's time for launches that go away, in which the GPU waits.
    #[serde(default)]
    pub removes_launches: bool,
    /// Time that it costs outside the steps, in ns, which no saving contains; `null` where the rule does not state it.
    #[serde(default)]
    pub outside_ns: Option<f64>,
    /// Id of the rule whose finding comes first: while launches are late, or the GPU waits for most of the step, this
    /// one shortens the step by less than 1 % for sure. `null` for all others.
    #[serde(default)]
    pub after: Option<String>,
    /// What the advice saves in the program itself, as `try` has measured it; `null` where it was not tried.
    #[serde(default)]
    pub measured: Option<MeasuredSaving>,
    /// The settings that the advice changes, with their new values: `fusion`: `compile`.
    #[serde(default)]
    pub changes: BTreeMap<String, String>,
    /// What was measured of this rule in other programs, a plain sentence per measurement.
    #[serde(default)]
    pub measured_elsewhere: Vec<String>,
    /// The problem, in Markdown of the rule; values from the profile are escaped.
    pub message: String,
    /// Why it costs time, in Markdown.
    pub why: String,
    /// What to change, in Markdown; empty where no variant of the rule's fix applies.
    pub fix: String,
    /// Web pages that explain more.
    pub references: Vec<String>,
    /// Changes of one source line that the rule suggests, for [`Quote::change`].
    #[serde(skip)]
    pub edits: Vec<Edit>,
    /// What the finding is based on.
    pub evidence: Evidence,
    /// The ranks it was found on; `null` in the report of a single profile.
    #[serde(default)]
    pub on_ranks: Option<OnRanks>,
}

/// What the number of calls of a finding counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum CallUnit {
    /// Operator calls.
    #[default]
    Call,
    /// Kernel executions.
    Kernel,
    /// Memory copies.
    Copy,
    /// Idle intervals.
    Gap,
}

/// One of the places of a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingPlace {
    /// `blocks.*.mlp · aten::addmm (fprop)`.
    pub place: String,
    /// Time at this place.
    pub time_ns: f64,
}

/// Estimated saving of a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SavingReport {
    /// The kind of time that is saved.
    pub kind: SavingKind,
    /// Lower end of the saving of this finding alone.
    pub low_ns: f64,
    /// Upper end of the saving of this finding alone.
    pub high_ns: f64,
    /// Lower end of the part that findings before it do not count. Totals add these parts.
    pub counted_low_ns: f64,
    /// Upper end of the part that findings before it do not count. Totals add these parts.
    pub counted_high_ns: f64,
    /// `counted_high_ns` as a share of GPU busy time, or of the window for idle time.
    pub counted_share: f64,
    /// Upper end of the part that findings before it count.
    pub overlap_ns: f64,
    /// Lower end of the wall time that the counted part saves per step (per window without steps) on
    /// each device.
    pub step_low_ns: Option<f64>,
    /// Upper end of the same.
    pub step_high_ns: Option<f64>,
}

/// The saving of a finding that `pyprof-advise try` has measured in the program itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasuredSaving {
    /// The treatment that was applied: `fused-optimizer`.
    pub treatment: String,
    /// Saving per step in ns; negative where steps take longer.
    pub saving_ns: Option<f64>,
    /// Time of a step with the treatment over that without.
    pub ratio: Option<f64>,
    /// Half of the 95 % confidence interval of the difference, as a share of the step without.
    pub noise: Option<f64>,
    /// The result in words: the change, its noise, and whether the program computes the same.
    pub text: String,
}

/// Sums of the counted savings, by kind of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TotalSaving {
    /// Lower end of kernel time saved.
    pub gpu_low_ns: f64,
    /// Upper end of kernel time saved.
    pub gpu_high_ns: f64,
    /// Lower end of copy time saved.
    pub copy_low_ns: f64,
    /// Upper end of copy time saved.
    pub copy_high_ns: f64,
    /// Lower end of idle time saved.
    pub idle_low_ns: f64,
    /// Upper end of idle time saved.
    pub idle_high_ns: f64,
}

/// The evidence of a finding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Facts with their printed values, of the member with the longest time.
    pub facts: Vec<FactValue>,
    /// Operators with the arguments of their longest site, longest time first.
    pub operators: Vec<OperatorUse>,
    /// Kernels, longest time first.
    pub kernels: Vec<KernelUse>,
    /// Distinct source lines, longest time first: `net.py:42`.
    pub source_lines: Vec<String>,
    /// Code around the first of them, from the folder of `--source`, and around the line of the same file that
    /// the rule suggests to change.
    #[serde(default)]
    pub quotes: Vec<Quote>,
}

/// A line of source code with its neighbors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Quote {
    /// The file, relative to the folder of `--source`: `net/model.py`.
    pub file: String,
    /// The line of the finding, counted from 1.
    pub line: u64,
    /// At most five lines around it.
    pub lines: Vec<QuotedLine>,
    /// What the rule suggests to write instead of the line; empty if it suggests nothing for it.
    #[serde(default)]
    pub change: Vec<String>,
}

/// A line of a [`Quote`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotedLine {
    /// Counted from 1.
    pub number: u64,
    /// The line without control characters and secrets.
    pub text: String,
}

/// One fact of a rule's condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FactValue {
    /// Name of the fact: `site.math_dtype`.
    pub name: String,
    /// Its value, printed with its unit.
    pub value: String,
}

/// An operator of a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperatorUse {
    /// Name of the operator.
    pub operator: String,
    /// `fprop`, `bprop`, `update` or `unknown`.
    pub direction: String,
    /// `bf16[4096, 1600], bf16[1600, 50257]`; empty when the profile has no shapes.
    pub arguments: String,
    /// Whether the arguments are those of the matching forward call.
    pub arguments_from_forward: bool,
    /// The arguments as values, so that the call can be made again; empty where they are not known whole.
    #[serde(default)]
    pub call: Vec<CallArgument>,
    /// Number of calls.
    pub calls: u64,
    /// GPU time of those calls.
    pub time_ns: i64,
}

/// A kernel of a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KernelUse {
    /// Name of the kernel.
    pub kernel: String,
    /// Kind of kernel: `gemm`, `conv`, `pointwise`.
    pub family: String,
    /// Number of executions.
    pub count: u64,
    /// Time of those executions.
    pub time_ns: i64,
}

/// An argument of an operator, without text of the profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum CallArgument {
    /// A tensor.
    Tensor {
        /// Sizes of the dimensions, in elements.
        shape: Vec<u64>,
        /// Type of an element: `bf16`; `null` where it is not recorded.
        dtype: Option<String>,
        /// Distance between neighbors along each dimension, in elements; `null` where it is not recorded.
        strides: Option<Vec<i64>>,
    },
    /// An integer.
    Whole {
        /// Its value.
        value: i64,
    },
    /// A floating-point number.
    Number {
        /// Its value.
        value: f64,
    },
    /// A boolean.
    Flag {
        /// Its value.
        value: bool,
    },
    /// A list.
    List {
        /// Its items.
        items: Vec<CallArgument>,
    },
    /// `None`, or an argument that was not given.
    Missing,
}

/// Sum of the counted savings of some findings.
pub(crate) fn total_saving(findings: &[FindingReport]) -> TotalSaving {
    let mut total = TotalSaving::default();
    for s in findings.iter().filter_map(|f| f.saving.as_ref()) {
        let (low, high) = match s.kind {
            SavingKind::Gpu => (&mut total.gpu_low_ns, &mut total.gpu_high_ns),
            SavingKind::Copy => (&mut total.copy_low_ns, &mut total.copy_high_ns),
            SavingKind::Idle => (&mut total.idle_low_ns, &mut total.idle_high_ns),
        };
        *low += s.counted_low_ns;
        *high += s.counted_high_ns;
    }
    total
}

/// [`FindingReport::since_baseline`] of findings that the baseline does not have.
pub const NEW: &str = "new";

/// A finding that is not shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HiddenFinding {
    /// Why it is not shown.
    pub reason: HiddenReason,
    /// Index in `suppressions` of the one that hides it; `null` for known findings.
    pub suppression: Option<u64>,
    /// The list that it was removed from.
    pub list: FindingList,
    /// The finding.
    pub finding: FindingReport,
}

/// Why a finding is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum HiddenReason {
    /// The baseline has it.
    Known,
    /// A suppression of the configuration covers it.
    Suppressed,
}

/// A list of findings in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum FindingList {
    /// The findings that are worth a change.
    Findings,
    /// The minor findings.
    Minor,
    /// The findings about the capture.
    Capture,
}

/// The report that this one was compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Baseline {
    /// File that it was read from.
    pub file: String,
    /// Name of its profile.
    pub title: String,
    /// Its findings whose rule ran again and found nothing.
    pub fixed: Vec<GoneFinding>,
    /// Its findings whose rule did not run or lacked a fact this time.
    pub not_checked: Vec<GoneFinding>,
}

/// A finding of the baseline that was not made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GoneFinding {
    /// Id of the rule.
    pub rule: String,
    /// Title of the finding.
    pub title: String,
    /// Where it was found.
    pub place: String,
    /// Time that it covered, as a share of GPU busy time, or of the window for idle time.
    pub share: f64,
}

/// A suppression of the configuration and its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SuppressionReport {
    /// Id of a rule, or a pattern with `*`.
    pub rule: String,
    /// A place, or a pattern with `*`; `null` for everywhere.
    pub place: Option<String>,
    /// Why the findings are suppressed.
    pub reason: String,
    /// The last day it holds: `2026-12-31`.
    pub until: Option<String>,
    /// Its effect.
    pub state: SuppressionState,
    /// Number of findings that it hides, or would hide if it had not expired.
    pub findings: u64,
    /// Why it does not hide a finding that it matches in some places only.
    #[serde(default)]
    pub near_miss: Option<String>,
}

/// The effect of a suppression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SuppressionState {
    /// It hides findings.
    Used,
    /// It matches no finding.
    Unused,
    /// Its last day has passed: it hides nothing.
    Expired,
    /// None of its rules ran.
    NotRun,
}
