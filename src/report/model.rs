//! One [`Report`] of a profile, and its renderings.
//!
//! A report is plain data: numbers with their unit in the field's name, texts as the profile has
//! them (shortened, home folders cut, not escaped). The JSON output *is* this struct; the Markdown
//! is a template rendered over it, and so is whatever a user's own template makes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::correlate::{SetUp, StepSource};
use crate::judge::{Confidence, Edit, Fault, SavingKind, Severity};
use crate::profile::Switch;

mod basis;
mod build;
mod charts;
mod clusters;
mod collectives;
mod evidence;
mod folded_work;
mod github;
mod host;
mod host_profiles;
mod html;
mod job;
mod json;
mod launching;
mod layers;
mod markdown;
mod markdown_text;
mod narrative;
mod opening;
mod ranks;
mod repeating;
mod sarif;
mod serving;
mod sites;
mod source_lines;
mod suppressed;
mod synchronizations;
mod template;
mod text;
mod text_table;
mod timeline;
mod titles;
mod user_template;
mod work_units;

pub(crate) use build::{MAX_UNKNOWN_NAMES, share, share_of_busy, steps_in_window, total_saving};
pub use clusters::KernelCluster;
pub use collectives::CollectiveRow;
pub(crate) use collectives::RowKey;
pub use evidence::CallArgument;
pub use github::github;
pub(crate) use host::merged as merged_host;
pub use host::{HostEvidence, HostReport, HostRow};
pub use host_profiles::{HostLineReport, HostProfileReport};
pub use html::html;
pub(crate) use html::page;
pub use job::{
    CollectiveCall, CollectiveTimes, FirstCollective, Job, LeftOut, OnRanks, Rank, RankStep,
    RankTimes, Waits,
};
#[cfg(test)]
pub(crate) use json::check_schema;
pub(crate) use json::to_json;
pub use json::{NotAReport, SCHEMA, json, read_json};
pub use launching::{GapClass, HostCalls, Launching};
pub(crate) use layers::{MAX_ALREADY_FAST, MAX_ROWS as MAX_LAYER_ROWS, MOSTLY};
pub use markdown::{PR_CHARS, markdown, markdown_within};
pub use opening::LongestCopy;
#[cfg(feature = "cli")]
pub(crate) use opening::possible_savings;
pub(crate) use repeating::merged as merged_repeating;
pub use repeating::{RepeatingKernel, RepeatingKernels};
pub use sarif::sarif;
pub use serving::Serving;
pub use sites::SiteRow;
pub use suppressed::{
    Baseline, FindingList, GoneFinding, HiddenFinding, HiddenReason, NEW, SuppressionReport,
    SuppressionState,
};
pub use synchronizations::Synchronizations;
#[cfg(feature = "cli")]
pub(crate) use template::BuiltIn;
pub(crate) use template::document;
pub use template::{TemplateError, render_template};
pub use text::text;
pub use timeline::{
    DeviceRow, GapActivity, GapRow, IdleCause, LaneRow, StepRow, TimePart, TimelineReport,
};
pub use user_template::MAX_TEMPLATE;
pub use work_units::{UnitKind, WorkUnit};

impl Report {
    /// Writes the sentences that sum up the report, from everything else in it.
    pub(crate) fn sum_up(&mut self) {
        titles::tell_apart(&mut self.findings, &mut self.minor);
        self.verdict = opening::sentences(self);
        self.figures = opening::figures(self);
        self.hidden_notes = opening::hidden_notes(self);
        self.next_notes = opening::next_notes(self);
        let notes = [opening::as_recorded(self), synchronizations::note(self)];
        self.time_notes = notes.into_iter().flatten().collect();
    }
}

/// Version of the fields of [`Report`]. New fields do not change it; removed, renamed and changed fields raise it.
pub const SCHEMA_VERSION: u32 = 2;

/// Options of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Findings shown in full; the others are collapsed.
    pub top: usize,
    /// Most sites listed in [`Report::sites`]; the others are counted.
    pub max_sites: usize,
    /// Whether the report holds what only a comparison with another one reads: units of work, launches,
    /// clusters of kernels. Each takes a look at every kernel.
    pub comparable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            top: 10,
            max_sites: MAX_SITES,
            comparable: true,
        }
    }
}

/// Most sites that a report lists. A program with more sites than that runs shapes that never repeat,
/// and a longer list would not be read.
pub const MAX_SITES: usize = 100_000;

/// The report of one profile, or of the profiles of one job. Times are in nanoseconds of the analyzed
/// window, summed over devices. Shares are from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA_VERSION`] of the program that wrote the report.
    pub schema_version: u32,
    /// Name of the profile: `net.sqlite`.
    pub title: String,
    /// Path of the profile, with the home folder cut: `~/net.sqlite`.
    pub file: String,
    /// What to do first, what then, and what changes that: at most 60 words in plain sentences.
    pub verdict: Vec<String>,
    /// GPU, steps or window, busy share and slowdown in a few words each.
    #[serde(default)]
    pub figures: Vec<String>,
    /// What became of findings that a baseline or a suppression hides, in plain sentences.
    #[serde(default)]
    pub hidden_notes: Vec<String>,
    /// What is worth doing once a finding of the list is done, in plain sentences.
    #[serde(default)]
    pub next_notes: Vec<String>,
    /// What the host did that no finding is about, in plain sentences.
    #[serde(default)]
    pub time_notes: Vec<String>,
    /// What to know before relying on the report or sharing it, in plain sentences.
    pub cautions: Vec<String>,
    /// The main figures.
    pub summary: Summary,
    /// One row per process that used a GPU: for several files, by rank.
    pub ranks: Vec<Rank>,
    /// Comparison of the ranks; `null` for a single profile.
    #[serde(default)]
    pub job: Option<Job>,
    /// Collectives by kind and size of the message, longest time first.
    #[serde(default)]
    pub collectives: Vec<CollectiveRow>,
    /// Number of findings, from the first, that are shown in full.
    pub top: usize,
    /// Findings worth acting on, largest saving first.
    pub findings: Vec<FindingReport>,
    /// Findings too small to act on, in the same order.
    pub minor: Vec<FindingReport>,
    /// Findings about the capture, not about the program.
    pub capture: Vec<FindingReport>,
    /// Findings of the lists above that are not shown, with the reason, in the order of those lists.
    #[serde(default)]
    pub hidden: Vec<HiddenFinding>,
    /// The report that this one is compared with (`--baseline`).
    #[serde(default)]
    pub baseline: Option<Baseline>,
    /// Suppressions of the configuration with their effect, in the order of the configuration.
    #[serde(default)]
    pub suppressions: Vec<SuppressionReport>,
    /// Sum of the savings that `findings` count.
    pub total_saving: TotalSaving,
    /// Time per layer, longest first.
    pub layers: Vec<LayerRow>,
    /// Layers that are not listed.
    pub layers_omitted: Omitted,
    /// The kernels that repeat, most likely layers of the model; `null` where operators or layers are
    /// known, or nothing repeats.
    #[serde(default)]
    pub repeating: Option<RepeatingKernels>,
    /// All work: one row per layer, operator, direction and shapes, longest time first.
    pub sites: Vec<SiteRow>,
    /// Sites that are not listed.
    pub sites_omitted: Omitted,
    /// Activity of the GPUs over time.
    pub timeline: TimelineReport,
    /// What the host did while the GPU waited; `null` where the profile does not say.
    #[serde(default)]
    pub host: Option<HostReport>,
    /// Work that repeats, the most certain kind first: what captures are compared by.
    #[serde(default)]
    pub units: Vec<WorkUnit>,
    /// Launches, waits for the GPU and its idle intervals by length.
    #[serde(default)]
    pub launching: Launching,
    /// Calls in which the host waits for the GPU; `null` without any, or where calls were not recorded.
    #[serde(default)]
    pub synchronizations: Option<Synchronizations>,
    /// Profiles of the host that other profilers wrote (`--host`), in the order of the command line.
    #[serde(default)]
    pub host_profiles: Vec<HostProfileReport>,
    /// Work within 10 % of its reachable time.
    pub already_fast: Vec<AlreadyFast>,
    /// What came before the analyzed window.
    pub setup: SetUp,
    /// Data that the profile lacks and the rules that need it, longest affected time first.
    pub skipped: Vec<SkippedRules>,
    /// Kernel time without an operator, by reason, longest first.
    pub unattributed: Vec<Unattributed>,
    /// Time of operators whose cost is not known, by reason, longest first.
    pub cost_unknown: Vec<CostUnknown>,
    /// Rules that failed while running.
    pub faults: Vec<Fault>,
    /// Remarks of the reader about the file, as plain text.
    pub notes: Vec<String>,
    /// Files whose end is missing: everything is of the part before it.
    #[serde(default)]
    pub cut_files: Vec<String>,
    /// How the figures were computed.
    pub method: Method,
    /// The light and the detailed recording that the report was made from; `null` for one recording.
    #[serde(default)]
    pub windows: Option<JoinedWindows>,
    /// The program that `pyprof-advise run` has recorded; `null` for a profile.
    #[serde(default)]
    pub program: Option<ProgramRun>,
}

/// Two recordings of the same program: operators come from the detailed one, which has shapes and layers,
/// and idle time from the light one, which slowed the host less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JoinedWindows {
    /// Name of the light recording.
    pub light: String,
    /// Kernel time per step in the light recording.
    pub light_kernel_ns_per_step: f64,
    /// Kernel time per step in the detailed recording.
    pub detailed_kernel_ns_per_step: f64,
    /// Whether the two differ by at most a tenth, so that both recorded the same work.
    pub agree: bool,
}

/// How a program ended that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProgramRun {
    /// Its exit status; 128 plus the number of a signal that ended it.
    pub status: u8,
    /// Where the exit status of `pyprof-advise run` comes from: `program` if `status` is not 0, else `report`.
    pub exit_status_from: String,
}

/// The main figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Name of the GPU: from the profile, else from the specification in use.
    pub gpu: Option<String>,
    /// Number of GPUs with work in the window.
    pub devices: u64,
    /// Number of analyzed steps; 0 when the profile marks none.
    pub steps: u64,
    /// How many steps the analyzed work amounts to: `steps`, or more where the window also holds work of
    /// others. `null` without steps.
    pub work_steps: Option<f64>,
    /// Mean length of those steps: the window of a device over `work_steps`, so that the parts of a step add up to it.
    pub step_ns: Option<f64>,
    /// Median length of the steps on the host, where it is shorter because the host only queues work.
    pub host_step_ns: Option<f64>,
    /// Median length of the steps right before recording; `null` where it was not measured.
    #[serde(default)]
    pub unrecorded_step_ns: Option<f64>,
    /// Communication per step while nothing else ran; `null` without steps or communication.
    pub exposed_comm_per_step_ns: Option<f64>,
    /// Wall time of the window.
    pub window_ns: i64,
    /// Wall time of the window times the number of devices: the whole of `busy_share`.
    pub device_window_ns: i64,
    /// Time in which any work ran: kernels, copies, memory sets, graph launches.
    pub busy_ns: i64,
    /// `busy_ns / device_window_ns`.
    pub busy_share: f64,
    /// Time in which at least one kernel ran.
    pub kernel_ns: i64,
    /// Time of copies while no kernel ran.
    pub exposed_copy_ns: i64,
    /// The longest copy between host and GPU; `null` without one.
    #[serde(default)]
    pub longest_copy: Option<LongestCopy>,
    /// Time of communication.
    #[serde(default)]
    pub comm_ns: i64,
    /// Time of communication while no other kernel ran.
    pub exposed_comm_ns: i64,
    /// Time of CUDA graph launches that were recorded without the kernels inside them.
    pub graph_ns: i64,
    /// Sum of kernel durations in the window (overlapping kernels count twice).
    pub kernel_time_ns: i64,
    /// Number of kernel executions in the window.
    pub kernels: u64,
    /// Kernel time whose operator is known.
    pub with_operator_ns: i64,
    /// Measured time of the work with a known cost and an ideal time.
    pub cost_known_ns: f64,
    /// Ideal time of the same work on the best unit and precision available, or the time of the shortest
    /// kernels where that is longer.
    pub best_ideal_ns: Option<f64>,
    /// `cost_known_ns / best_ideal_ns`.
    pub slowdown: Option<f64>,
    /// Whether `slowdown` is the least that it can be: some of the work may be less than counted.
    #[serde(default)]
    pub slowdown_at_least: bool,
    /// Why more than a fifth of the idle time is unreliable in this capture; `null` when it is not.
    pub idle_unreliable: Option<String>,
    /// What was recorded that slows the host down, whether or not much of the idle time comes from it: `recorded Python
    /// call stacks (`with_stack`)`. `null` for nothing, in reports of older versions, and where ranks differ.
    #[serde(default)]
    pub recording_overhead: Option<String>,
    /// Idle time that recording overhead cannot explain, in ns, summed over devices.
    pub reliable_idle_ns: i64,
    /// Idle time before and between nodes of CUDA graphs that had been launched in time, in ns, summed over
    /// devices: the file does not show what they waited for, and may lack nodes.
    #[serde(default)]
    pub unexplained_idle_ns: i64,
    /// Idle time in which the host launched a CUDA graph whose nodes are recorded one by one, in ns, summed over
    /// devices: recording them makes launches slow.
    #[serde(default)]
    pub graph_launch_idle_ns: i64,
    /// Share of saved kernel time by which steps become shorter, 0 to 1: where the host limits the steps, a
    /// faster kernel does not help. `null` if recording overhead leaves open which.
    pub step_weight: Option<f64>,
    /// What the host works in the window without waiting for the GPU, in ns, summed over devices: steps do not become
    /// shorter than that where it works as long as before. Where the length of steps without a recording is known, this
    /// is the same share of that. `null` where it is unknown.
    #[serde(default)]
    pub host_work_ns: Option<f64>,
    /// The evidence for the steps of the window; `null` when nothing shows steps.
    pub steps_from: Option<StepsFrom>,
    /// The shortest range of the user in which all analyzed work was launched; `null` when there is none.
    pub window_range: Option<String>,
    /// The requests that an execution of a served model works on; `null` where no range of the engine says
    /// so, or executions differ.
    #[serde(default)]
    pub serving: Option<Serving>,
}

/// What the steps were recognized by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepsFrom {
    /// The kind of evidence.
    pub source: StepSource,
    /// The text of the ranges; empty where kernels show the steps.
    pub text: String,
}

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

/// Time of a layer pattern, or of an operator where no layer is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayerRow {
    /// Name of the layer pattern: `blocks.*.mlp`.
    pub name: String,
    /// Whether `name` is a layer; otherwise it is an operator, or the reason why there is none.
    pub is_layer: bool,
    /// Number of layers in this row.
    pub layers: u64,
    /// Number of operator calls.
    pub calls: u64,
    /// GPU time.
    pub time_ns: i64,
    /// `time_ns` as a share of GPU busy time, at most 1.
    pub share: f64,
    /// Part of `time_ns` in the forward pass.
    pub fprop_ns: i64,
    /// Part of `time_ns` in the backward pass.
    pub bprop_ns: i64,
    /// Part of `time_ns` in the optimizer.
    pub update_ns: i64,
    /// Part of `time_ns` with a known ideal time.
    pub cost_known_ns: f64,
    /// Ideal time of that part, on the best unit and precision available, or the time of the shortest
    /// kernels where that is longer.
    pub best_ideal_ns: Option<f64>,
    /// `cost_known_ns / best_ideal_ns`.
    pub slowdown: Option<f64>,
    /// Whether `slowdown` covers less than 80 % of the time.
    pub slowdown_partial: bool,
    /// Whether `slowdown` is the least that it can be: some of the work may be less than counted.
    #[serde(default)]
    pub slowdown_at_least: bool,
    /// Upper bound of the slowdown where the cost is not known but the weights or cached keys and values
    /// that must be read are: the time over that of reading them.
    #[serde(default)]
    pub slowdown_at_most: Option<f64>,
    /// What limits most of the time with a known cost: `math`, `memory` or `latency`.
    pub bound: Option<String>,
    /// Numbers of the findings about it.
    pub findings: Vec<u64>,
}

/// Rows that a list leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Omitted {
    /// Number of rows.
    pub count: u64,
    /// Sum of their times.
    pub time_ns: i64,
}

/// Work within 10 % of its reachable time: optimizing it is not worthwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AlreadyFast {
    /// Layer pattern; empty where no layer is known.
    pub place: String,
    /// Name of the operator.
    pub operator: String,
    /// `fprop`, `bprop`, `update` or `unknown`.
    pub direction: String,
    /// Number of calls.
    pub calls: u64,
    /// GPU time.
    pub time_ns: i64,
    /// `time_ns` as a share of GPU busy time, at most 1.
    pub share: f64,
    /// Time that well-tuned kernels reach on this GPU.
    pub reachable_ns: f64,
    /// What limits it: `math`, `memory` or `latency`.
    pub bound: Option<String>,
}

/// Rules that were skipped because the profile lacks the same data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SkippedRules {
    /// What to record, and how, in Markdown.
    pub needs: String,
    /// Names of the missing facts.
    pub facts: Vec<String>,
    /// Rules that were skipped, everywhere or in places.
    pub rules: Vec<String>,
    /// GPU time of the work that lacks the fact that is missing most.
    pub time_ns: f64,
    /// Whether a new capture can record it.
    #[serde(default)]
    pub recordable: bool,
}

impl SkippedRules {
    /// The rows, those of the most GPU time first, each name once.
    pub(crate) fn in_order(rows: impl Iterator<Item = SkippedRules>) -> Vec<SkippedRules> {
        let mut rows: Vec<SkippedRules> = rows.collect();
        for row in &mut rows {
            for list in [&mut row.facts, &mut row.rules] {
                list.sort();
                list.dedup();
            }
        }
        rows.sort_by(|a, b| {
            b.time_ns
                .total_cmp(&a.time_ns)
                .then_with(|| a.facts.cmp(&b.facts))
        });
        rows
    }
}

/// Kernels without an operator, for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unattributed {
    /// `no_launch`, `graph_replay`, `no_range`, `no_operator`.
    pub reason: String,
    /// The reason in words, and what to do about it, in Markdown.
    pub text: String,
    /// Number of kernel executions.
    pub kernels: u64,
    /// Kernel time.
    pub time_ns: i64,
    /// `time_ns` as a share of all kernel time in the window.
    pub share: f64,
}

/// Operators whose cost is not known, for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CostUnknown {
    /// Why the cost is not known.
    pub reason: String,
    /// GPU time of the operators.
    pub time_ns: i64,
    /// `time_ns` as a share of all kernel time in the window.
    pub share: f64,
    /// The operators with the longest time, at most five.
    pub operators: Vec<String>,
    /// The recording that would tell the time they should take, in Markdown; empty where the list of
    /// skipped rules names it.
    #[serde(default)]
    pub recording: String,
}

/// How the figures were computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Method {
    /// Program and version: `pyprof-advise 0.1.0`.
    pub program: String,
    /// Name of the format of the profile.
    pub format: String,
    /// Size of the profile in bytes.
    pub file_bytes: u64,
    /// Version of the tool that wrote the profile.
    pub tool_version: Option<String>,
    /// Version of the schema of the profile.
    pub export_schema: Option<String>,
    /// Names of the devices, as the profile has them.
    pub devices: Vec<String>,
    /// The GPU whose peaks the work is compared with; `null` when it is not known.
    pub gpu: Option<GpuUsed>,
    /// Share of all kernel time whose cost is known.
    pub cost_known_share: Option<f64>,
    /// Share of all kernel time whose launch and operator are known.
    pub attributable_share: Option<f64>,
    /// Share of the kernel time with a known launch and operator whose cost is known.
    pub cost_known_attributable_share: Option<f64>,
    /// Whether the profile lacks the calls of the host that launch work. Reports that were saved do not say so.
    #[serde(skip)]
    pub lacks_api_calls: bool,
    /// Where the names of layers come from.
    pub layer_source: Option<String>,
    /// Assumptions of the cost formulas that apply to this profile.
    pub assumptions: Vec<String>,
    /// Costs taken from files of the user instead of the built-in table.
    pub user_costs: Vec<UserCosted>,
    /// Environment variables of the program that change performance, where the profile has them and their value
    /// is a number, a boolean or a known word.
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// Number of rules that ran.
    pub rules_run: u64,
}

/// Operators whose cost comes from a file of the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserCosted {
    /// The cost file.
    pub file: String,
    /// The operators, longest time first.
    pub operators: Vec<String>,
    /// Number of calls.
    pub calls: u64,
    /// GPU time of those calls.
    pub time_ns: i64,
}

/// The GPU whose peaks the work is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuUsed {
    /// Id in the list of known GPUs: `a100-sxm4-40gb`.
    pub id: String,
    /// Name of the GPU.
    pub name: String,
    /// How it was chosen.
    pub how: String,
    /// Remarks about the specification, in plain sentences.
    pub remarks: Vec<String>,
    /// Whether the profile was taken on another GPU, so that the figures are hypothetical.
    pub what_if: bool,
    /// Whether the profile does not describe its GPU, so that it was inferred from its kernels.
    #[serde(default)]
    pub inferred: bool,
    /// Peak DRAM bandwidth in bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Peak fp32 rate outside Tensor Cores.
    pub fp32_flops_per_s: Option<f64>,
    /// Name of the matrix units: `Tensor Cores`, or `matrix cores` on AMD.
    pub matrix_unit: String,
    /// Peak bandwidth of NVLink, both directions together; `null` without NVLink.
    #[serde(default)]
    pub nvlink_bytes_per_s: Option<f64>,
    /// Peak rate of 16-bit floats on Tensor Cores (matrix cores).
    pub tensor_16bit_flops_per_s: Option<f64>,
    /// All peak math rates, highest first: the horizontal lines of the roofline.
    pub ceilings: Vec<Ceiling>,
    /// Share of the math peak that counts as reachable.
    pub reachable_math_share: f64,
    /// Share of the bandwidth that counts as reachable.
    pub reachable_memory_share: f64,
    /// Time of the shortest useful kernels, below which no call counts as reachable.
    #[serde(default = "shortest_kernel_ns")]
    pub shortest_kernel_ns: f64,
    /// Sources of the peaks.
    pub sources: Vec<String>,
}

/// The time that reports used before they stated it.
fn shortest_kernel_ns() -> f64 {
    2_000.0
}

/// A peak math rate of a GPU, for dense operands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ceiling {
    /// Data type: `fp16`, `tf32`.
    pub dtype: String,
    /// Whether the rate is that of Tensor Cores (matrix cores).
    pub tensor_core: bool,
    /// FLOPs per second.
    pub flops_per_s: f64,
}
