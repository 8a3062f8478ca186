//! Floor 7: one [`Report`], and the views of it.
//!
//! A report is plain data: numbers with their unit in the field's name, texts as the profile has
//! them (shortened, home folders cut, not escaped). The JSON output *is* this struct; the Markdown
//! is a template rendered over it, and so is whatever a user's own template makes of it.

use serde::{Deserialize, Serialize};

use crate::correlate::SetUp;
use crate::judge::{Confidence, Fault, SavingKind, Severity};

mod build;
mod charts;
mod evidence;
mod github;
mod html;
mod job;
mod json;
mod layers;
mod markdown;
mod markdown_text;
mod narrative;
mod ranks;
mod sarif;
mod sites;
mod source_lines;
mod suppressed;
mod template;
mod text;
mod text_table;
mod timeline;

pub(crate) use build::{share, total_saving};
pub use github::github;
pub use html::html;
pub(crate) use html::page;
pub use job::{CollectiveTimes, Job, LeftOut, OnRanks, Rank, RankTimes, Waits};
pub use json::{NotAReport, SCHEMA, json, read_json};
pub(crate) use layers::{MAX_LEAVE_ALONE, MAX_ROWS as MAX_LAYER_ROWS, MOSTLY};
pub use markdown::{PR_CHARS, markdown, markdown_within};
pub use sarif::sarif;
pub use sites::SiteRow;
pub use suppressed::{
    Baseline, FindingList, GoneFinding, HiddenFinding, HiddenReason, NEW, SuppressionReport,
    SuppressionState,
};
pub(crate) use template::BuiltIn;
pub use template::{TemplateError, render_template};
pub use text::text;
pub use timeline::{DeviceRow, GapRow, IdleCause, StepRow, TimePart, TimelineReport};

/// The verdict of a report whose numbers were put together elsewhere.
pub(crate) fn verdict(report: &Report) -> Vec<String> {
    narrative::verdict(report)
}

/// Version of the shape of [`Report`]: it grows by new fields; a removed or changed one raises it.
pub const SCHEMA_VERSION: u32 = 2;

/// What the caller may choose about a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Findings shown in full; the others are folded.
    pub top: usize,
    /// Sites listed in [`Report::sites`]; the others are counted.
    pub max_sites: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            top: 10,
            max_sites: MAX_SITES,
        }
    }
}

/// Sites a report lists at most. A program with more than that runs shapes that never repeat, and
/// nobody reads on.
pub const MAX_SITES: usize = 100_000;

/// Everything said about one profile, or about the profiles of one job. Times are ns of the judged
/// window, summed over devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    pub schema_version: u32,
    /// The name of the file judged: `net.sqlite`.
    pub title: String,
    /// The file judged, as `~/net.sqlite`.
    pub file: String,
    /// The verdict in a few plain sentences; the most important first.
    pub verdict: Vec<String>,
    /// What the reader must know before believing or sharing the report. Plain sentences.
    pub cautions: Vec<String>,
    pub summary: Summary,
    /// One row per process that used a GPU: for several files, by rank.
    pub ranks: Vec<Rank>,
    /// What several files together say; absent for a single one.
    #[serde(default)]
    pub job: Option<Job>,
    /// Findings shown in full: the first so many of `findings`.
    pub top: usize,
    /// What pays most first.
    pub findings: Vec<FindingReport>,
    /// Findings too small to act on, same order.
    pub minor: Vec<FindingReport>,
    /// What the capture itself allows to be said: no advice on the program.
    pub capture: Vec<FindingReport>,
    /// Findings of the lists above that are not shown, and why; in the order of those lists.
    #[serde(default)]
    pub hidden: Vec<HiddenFinding>,
    /// The report this one was held against (`--baseline`).
    #[serde(default)]
    pub baseline: Option<Baseline>,
    /// What the configuration asked not to be shown, and what came of it; in its order.
    #[serde(default)]
    pub suppressions: Vec<SuppressionReport>,
    /// Sum of what `findings` claim.
    pub total_saving: TotalSaving,
    /// Largest time first.
    pub layers: Vec<LayerRow>,
    /// Layers beyond the number listed.
    pub layers_omitted: Omitted,
    /// The work, finest division: one row per layer, operator, direction and shapes. Largest time
    /// first.
    pub sites: Vec<SiteRow>,
    /// Sites beyond the number listed.
    pub sites_omitted: Omitted,
    /// What the GPUs did when.
    pub timeline: TimelineReport,
    /// Work that is already as fast as it gets.
    pub already_fast: Vec<AlreadyFast>,
    pub setup: SetUp,
    /// What the profile does not hold, largest time first.
    pub skipped: Vec<SkippedRules>,
    /// Kernel time without an operator, by reason, largest first.
    pub unattributed: Vec<Unattributed>,
    /// Time of operators without a price, by reason, largest first.
    pub cost_unknown: Vec<CostUnknown>,
    /// Rules that failed while running.
    pub faults: Vec<Fault>,
    /// What the reader noticed about the file. Plain text.
    pub notes: Vec<String>,
    pub method: Method,
}

/// The numbers of the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// What to call the GPU: from the profile, else from the spec in use.
    pub gpu: Option<String>,
    pub devices: u64,
    /// Distinct numbered steps that were judged; 0 when the profile marks none.
    pub steps: u64,
    /// Mean length of those steps; on the GPU where the host runs ahead of it.
    pub step_ns: Option<f64>,
    /// Their mean length on the host, where that is shorter: the host only queues work.
    pub host_step_ns: Option<f64>,
    /// Communication per step while nothing else ran; `None` without steps or communication.
    pub exposed_comm_per_step_ns: Option<f64>,
    /// Wall time of the window.
    pub window_ns: i64,
    /// Wall time of the window, once per device: what `busy_ns` is a share of.
    pub device_window_ns: i64,
    /// Time some work ran: kernels, copies, sets, graph launches.
    pub busy_ns: i64,
    /// `busy_ns / device_window_ns`.
    pub busy_share: f64,
    /// Time a kernel ran.
    pub kernel_ns: i64,
    /// Copies while no kernel ran.
    pub exposed_copy_ns: i64,
    /// Communication while no other kernel ran.
    pub exposed_comm_ns: i64,
    /// CUDA graph launches recorded whole: no kernels inside them are known.
    pub graph_ns: i64,
    /// Sum of kernel durations in the window (overlapping kernels count twice).
    pub kernel_time_ns: i64,
    pub kernels: u64,
    /// Kernel time whose operator is known.
    pub with_operator_ns: i64,
    /// Measured time of the work that has a price and an ideal time.
    pub cost_known_ns: f64,
    /// Ideal time of the same work on the best unit and precision available.
    pub best_ideal_ns: Option<f64>,
    /// `cost_known_ns / best_ideal_ns`.
    pub slowdown: Option<f64>,
    /// Why idle time is not judged; `None` when it may be trusted.
    pub idle_unreliable: Option<String>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingReport {
    /// 1 for the first; 0 for minor findings, which are not numbered.
    pub number: u64,
    pub rule: String,
    /// The rule's file.
    pub rule_file: String,
    pub category: String,
    pub title: String,
    pub severity: Severity,
    pub confidence: Confidence,
    /// Where, for people.
    pub place: String,
    /// What tells it from its rule's other findings, in words that are the same on other ranks;
    /// empty where the rule makes one finding per run.
    pub subject: String,
    /// Every place it was found at, most time first, at most 100; empty for what is about the run,
    /// idle time or a rank.
    #[serde(default)]
    pub places: Vec<FindingPlace>,
    #[serde(default)]
    pub places_omitted: u64,
    /// With a baseline: `new`, or in words why it is shown although the baseline has it.
    #[serde(default)]
    pub since_baseline: Option<String>,
    /// It is about the run as a whole, not about a place in it.
    pub whole_run: bool,
    pub calls: u64,
    /// What `calls` counts.
    #[serde(default)]
    pub calls_unit: CallUnit,
    pub members: u64,
    pub time_ns: f64,
    /// Of GPU busy time, or of the window when `saving.kind` is `idle`.
    pub share: f64,
    pub saving: Option<SavingReport>,
    /// Markdown, as the rule wrote it; values from the profile are escaped in it.
    pub message: String,
    /// Markdown.
    pub why: String,
    /// Markdown.
    pub fix: String,
    pub references: Vec<String>,
    pub evidence: Evidence,
    /// Which ranks it was found on; absent in the report of a single file.
    #[serde(default)]
    pub on_ranks: Option<OnRanks>,
}

/// What a finding has so and so many of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum CallUnit {
    /// Operator calls.
    #[default]
    Call,
    /// Kernel executions.
    Kernel,
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
    pub time_ns: f64,
}

/// Time a finding gives back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SavingReport {
    pub kind: SavingKind,
    /// Lower and upper end of the finding on its own.
    pub low_ns: f64,
    pub high_ns: f64,
    /// Lower and upper end of what no finding before it has total_saving; the totals add these.
    pub counted_low_ns: f64,
    pub counted_high_ns: f64,
    /// `counted_high_ns` of GPU busy time, or of the window for idle time.
    pub counted_share: f64,
    /// Upper end total_saving by findings before it.
    pub overlap_ns: f64,
    /// Wall time given back by the total_saving part per step (per window without steps) on each device.
    pub step_ns: Option<f64>,
}

/// Sums of claims, by what kind of time they give back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TotalSaving {
    pub gpu_low_ns: f64,
    pub gpu_high_ns: f64,
    pub copy_low_ns: f64,
    pub copy_high_ns: f64,
    pub idle_low_ns: f64,
    pub idle_high_ns: f64,
}

/// What a finding rests on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Fact and printed value, for the worst member.
    pub facts: Vec<FactValue>,
    /// Operators with the arguments of their most expensive site, most time first.
    pub operators: Vec<OperatorUse>,
    /// Most time first.
    pub kernels: Vec<KernelUse>,
    /// `net.py:42`, distinct, most time first.
    pub source_lines: Vec<String>,
}

/// One fact of a rule's condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FactValue {
    pub name: String,
    pub value: String,
}

/// An operator of a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperatorUse {
    pub operator: String,
    pub direction: String,
    /// `bf16[4096, 1600], bf16[1600, 50257]`; empty when the profile has no shapes.
    pub arguments: String,
    /// The arguments are those of the matching forward call.
    pub arguments_from_forward: bool,
    pub calls: u64,
    pub time_ns: i64,
}

/// A kernel of a finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KernelUse {
    pub kernel: String,
    pub family: String,
    pub count: u64,
    pub time_ns: i64,
}

/// A layer pattern, or an operator where nothing names layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayerRow {
    pub name: String,
    /// Whether `name` is a layer; otherwise it is the operator or the reason there is none.
    pub is_layer: bool,
    /// Layers folded into this row.
    pub layers: u64,
    pub calls: u64,
    pub time_ns: i64,
    /// Of all kernel time in the window.
    pub share: f64,
    /// Parts of `time_ns`.
    pub fprop_ns: i64,
    pub bprop_ns: i64,
    pub update_ns: i64,
    /// The part of `time_ns` with a known ideal.
    pub cost_known_ns: f64,
    pub best_ideal_ns: Option<f64>,
    /// `cost_known_ns / best_ideal_ns`.
    pub slowdown: Option<f64>,
    /// `slowdown` speaks for less than 80 % of the time.
    pub slowdown_partial: bool,
    /// What limits most of its priced time: `math`, `memory` or `latency`.
    pub bound: Option<String>,
    /// Numbers of the findings about it.
    pub findings: Vec<u64>,
}

/// Rows left out of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Omitted {
    pub count: u64,
    pub time_ns: i64,
}

/// Work within 10 % of its reachable time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlreadyFast {
    pub place: String,
    pub operator: String,
    pub direction: String,
    pub calls: u64,
    pub time_ns: i64,
    /// Of all kernel time in the window.
    pub share: f64,
    pub reachable_ns: f64,
    pub bound: Option<String>,
}

/// Facts that are missing for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SkippedRules {
    /// What to collect and how; Markdown.
    pub needs: String,
    pub facts: Vec<String>,
    /// Rules that could not be judged everywhere.
    pub rules: Vec<String>,
    /// GPU time of the work the fact that is missing most is missing for.
    pub time_ns: f64,
}

/// Kernels without an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unattributed {
    /// `no_launch`, `graph_replay`, `no_range`, `no_operator`.
    pub reason: String,
    /// The same for people, with what to do about it; Markdown.
    pub text: String,
    pub kernels: u64,
    pub time_ns: i64,
    pub share: f64,
}

/// Operators without a price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CostUnknown {
    pub reason: String,
    pub time_ns: i64,
    pub share: f64,
    /// The most expensive of them, at most five.
    pub operators: Vec<String>,
}

/// How the numbers were made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Method {
    /// `pyprof-advise 0.1.0`.
    pub program: String,
    pub format: String,
    pub file_bytes: u64,
    pub tool_version: Option<String>,
    pub export_schema: Option<String>,
    /// Device names as the profile has them.
    pub devices: Vec<String>,
    pub gpu: Option<GpuUsed>,
    /// Priced share of all kernel time.
    pub cost_known_share: Option<f64>,
    /// Kernel time whose launch and operator are known, of all kernel time.
    pub attributable_share: Option<f64>,
    /// Priced share of that.
    pub cost_known_attributable_share: Option<f64>,
    /// Where layer names come from.
    pub layer_source: Option<String>,
    /// What the cost formulas assume, where it matters here.
    pub assumptions: Vec<String>,
    /// Costs that come from the user's files instead of the built-in table.
    pub user_costs: Vec<UserCosted>,
    pub rules_run: u64,
}

/// Operators priced by a user's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserCosted {
    pub file: String,
    /// Most time first.
    pub operators: Vec<String>,
    pub calls: u64,
    pub time_ns: i64,
}

/// The GPU the work was measured against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuUsed {
    pub id: String,
    pub name: String,
    /// How it was settled on.
    pub how: String,
    pub remarks: Vec<String>,
    /// The profile was taken on another GPU: the figures say what would be.
    pub what_if: bool,
    pub bandwidth_bytes_per_s: f64,
    /// fp32 rate outside Tensor Cores.
    pub fp32_flops_per_s: Option<f64>,
    /// `Tensor Cores`, or `matrix cores` on AMD.
    pub matrix_unit: String,
    /// Tensor Core (matrix core) rate of 16-bit floats.
    pub tensor_16bit_flops_per_s: Option<f64>,
    /// Every math rate of the GPU: the horizontal lines of its roofline. Highest first.
    pub ceilings: Vec<Ceiling>,
    pub reachable_math_share: f64,
    pub reachable_memory_share: f64,
    pub sources: Vec<String>,
}

/// One math rate of a GPU, dense.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ceiling {
    /// `fp16`, `tf32`.
    pub dtype: String,
    /// On Tensor Cores (matrix cores).
    pub tensor_core: bool,
    pub flops_per_s: f64,
}
