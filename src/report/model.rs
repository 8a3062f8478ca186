//! The data of a report.

use serde::{Deserialize, Serialize};

use super::finding_report::{
    Baseline, FindingReport, HiddenFinding, SuppressionReport, TotalSaving,
};
use super::host::HostReport;
use super::host_profiles::HostProfileReport;
use super::job::{Job, Rank};
use super::launching::Launching;
use super::repeating::RepeatingKernels;
use super::rows::{
    AlreadyFast, CollectiveRow, LayerRow, LongestCopy, Omitted, SiteRow, Synchronizations,
    TimelineReport, WorkUnit,
};
use super::serving::Serving;
use crate::correlate::{SetUp, StepSource};
use crate::judge::Fault;
use crate::profile::Switch;

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
