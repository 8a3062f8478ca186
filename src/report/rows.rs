//! The rows of a report's tables.

use serde::{Deserialize, Serialize};

use super::clusters::KernelCluster;

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

/// All calls of one operator in one layer with the same direction and shapes; or all executions of one
/// kernel without an operator. Times, FLOPs and bytes are sums over the calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SiteRow {
    /// The layer: `blocks.7.mlp`.
    pub layer: Option<String>,
    /// The layer pattern: `blocks.*.mlp`.
    pub pattern: Option<String>,
    /// Name of the operator; `null` when it is not known.
    pub operator: Option<String>,
    /// Why there is no operator: `no_launch`, `graph_replay`, `no_range`, `no_operator`.
    pub missing: Option<String>,
    /// `fprop`, `bprop`, `update` or `unknown`.
    pub direction: String,
    /// Whether it is forward work that is recomputed in the backward pass.
    pub recomputed: bool,
    /// `bf16[4096, 1600], bf16[1600, 50257]`; empty when the profile has no shapes.
    pub arguments: String,
    /// Whether the arguments are those of the matching forward call.
    pub arguments_from_forward: bool,
    /// Number of calls.
    pub calls: u64,
    /// GPU time.
    pub time_ns: i64,
    /// The part of `time_ns` during which nothing else ran on the device.
    pub exposed_ns: i64,
    /// `time_ns` as a share of GPU busy time, at most 1.
    pub share: f64,
    /// Kind of operator: `gemm`, `conv`, `pointwise`.
    pub family: String,
    /// Floating point operations; `null` when not known.
    pub flops: Option<f64>,
    /// Bytes read from and written to DRAM; `null` when not known.
    pub bytes: Option<f64>,
    /// Arithmetic intensity, `flops / bytes`.
    pub intensity: Option<f64>,
    /// Ideal time in the unit and precision that the work ran in.
    pub ideal_ns: Option<f64>,
    /// Ideal time on the best unit and precision available to it.
    pub best_ideal_ns: Option<f64>,
    /// Time that well-tuned kernels reach on that unit.
    pub reachable_ns: Option<f64>,
    /// `time_ns / best_ideal_ns`, or for latency-bound work that takes many times as long as the shortest
    /// kernels, `time_ns / reachable_ns`; `null` where it is not meaningful.
    pub slowdown: Option<f64>,
    /// Whether `slowdown` is the least that it can be: some of the work may be less than counted.
    #[serde(default)]
    pub slowdown_at_least: bool,
    /// What limits it: `math`, `memory` or `latency`.
    pub bound: Option<String>,
    /// Data type of the math.
    pub dtype: Option<String>,
    /// Whether the math ran on Tensor Cores; `null` when the kernel's name does not say.
    pub tensor_core: Option<bool>,
    /// The kernel with the longest time.
    pub kernel: Option<String>,
    /// Number of kernel executions.
    pub kernels: u64,
    /// Why the cost is not known; `null` when it is.
    pub cost_unknown: Option<String>,
    /// The source line: `model/net.py:42`.
    pub source_line: Option<String>,
    /// Its kernels by launch configuration and duration, longest time first; only the first one where the
    /// arguments are known.
    #[serde(default)]
    pub clusters: Vec<KernelCluster>,
    /// Numbers of the findings about it.
    pub findings: Vec<u64>,
}

/// Collectives of one kind among as many ranks, with messages of about one size: within a factor of four.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CollectiveRow {
    /// Kind of collective: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, ...
    pub kind: String,
    /// Number of ranks that take part, if the profile has it.
    pub group_size: Option<u64>,
    /// Bytes of the smallest message; `null` if the profile does not have the size.
    pub least_bytes: Option<u64>,
    /// Bytes of the largest message.
    pub most_bytes: Option<u64>,
    /// Number of calls, summed over the ranks of the report.
    pub calls: u64,
    /// Their time, summed.
    pub time_ns: i64,
    /// The part of it during which nothing else ran on the GPU.
    pub exposed_ns: i64,
    /// Time of the transfers without waiting for other ranks, summed: in a report of several ranks that of the
    /// fastest rank in each collective, otherwise that of the fastest of at least five equal calls. `null` where
    /// neither is known.
    pub transfer_ns: Option<f64>,
    /// Bytes of the messages, summed over the calls; over `transfer_ns` this is the algorithm bandwidth of
    /// nccl-tests (doc/PERFORMANCE.md).
    pub bytes: Option<u64>,
    /// What each rank must send, summed over the calls; over `transfer_ns` this is the bus bandwidth.
    /// `null` for a group of unknown size.
    pub wire_bytes: Option<u64>,
}

/// Kind, group and size class: what [`CollectiveRow`] adds up.
pub(crate) type RowKey = (String, Option<u64>, Option<u32>);

/// The analyzed window on the clock of the GPUs. Times are in nanoseconds; starts count from the start of
/// the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimelineReport {
    /// Length of the window, with what is left out of it.
    pub ns: i64,
    /// The windows of all devices by activity; adds up to `summary.device_window_ns`.
    pub parts: Vec<TimePart>,
    /// Idle time by cause, longest first. Unreliable where `summary.idle_unreliable` is set.
    pub idle: Vec<IdleCause>,
    /// One row per GPU.
    pub devices: Vec<DeviceRow>,
    /// Number of devices that are not listed.
    pub devices_omitted: u64,
    /// The streams and the layers with the longest kernel time; empty for several profiles.
    #[serde(default)]
    pub lanes: Vec<LaneRow>,
    /// Numbered steps in time order, one row per process that marks them.
    pub steps: Vec<StepRow>,
    /// Number of steps that are not listed.
    pub steps_omitted: u64,
}

/// Activity of one stream, or of one layer, over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaneRow {
    /// `stream` or `layer`.
    pub kind: String,
    /// `stream 7`, `GPU 0, stream 7` where there are several GPUs, or the layer pattern.
    pub name: String,
    /// Kernel time.
    pub time_ns: i64,
    /// Kernel time in equal parts of the window, in percent of each part, in time order.
    pub busy: Vec<u8>,
}

/// Time of the devices with one kind of activity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimePart {
    /// `compute`, `communication` (while nothing computed), `copy` (while no kernel ran), `set` or
    /// `idle`.
    pub what: String,
    /// Time in nanoseconds, summed over devices.
    pub ns: i64,
    /// `ns` as a share of `summary.device_window_ns`.
    pub share: f64,
}

/// Idle time with one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IdleCause {
    /// A value of the fact `gap.cause`: `host_late`, `after_sync`, `data_loading`, ...
    pub cause: String,
    /// Number of gaps.
    pub gaps: u64,
    /// Sum of their lengths in nanoseconds.
    pub ns: i64,
}

/// Activity of one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceRow {
    /// Name of the device: `GPU 0`.
    pub device: String,
    /// Start of its first work inside the window.
    pub start_ns: i64,
    /// Time from its first to its last work inside the window.
    pub ns: i64,
    /// Time in which any work ran.
    pub busy_ns: i64,
    /// Busy shares of equal parts of `ns`, in time order.
    pub busy: Vec<f64>,
    /// The longest gaps, in time order.
    pub gaps: Vec<GapRow>,
    /// Gaps that are not listed.
    pub gaps_omitted: Omitted,
}

/// An interval in which a device was idle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GapRow {
    /// Start of the gap.
    pub start_ns: i64,
    /// Length of the gap.
    pub ns: i64,
    /// A value of the fact `gap.cause`.
    pub cause: String,
    /// The kernel that ended it.
    pub next_kernel: Option<String>,
    /// The host call that caused it, if one is known.
    pub call: Option<String>,
    /// The operator, range or Python function that the launching thread was in for most of a gap of a millisecond
    /// or more, without those that are around nearly the whole window.
    #[serde(default)]
    pub inside: Option<String>,
    /// What was called many times in it, for most of the gap, where each call was short.
    #[serde(default)]
    pub short_calls: Option<String>,
    /// The range of the program that the thread entered in such a gap, in which it launched what ended the gap.
    #[serde(default)]
    pub before: Option<String>,
    /// Whether a copy from host memory ended such a gap.
    #[serde(default)]
    pub before_copy: bool,
    /// Whether no work followed: the gap ends with the last step.
    #[serde(default)]
    pub at_end: bool,
    /// What the thread did that ended it, longest first; empty where that is not known.
    #[serde(default)]
    pub host: Vec<GapActivity>,
}

/// Time of the launching thread in one activity, in one gap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GapActivity {
    /// What it did: `Logging`.
    pub activity: String,
    /// The function or call, as the profile names it; empty where it does not.
    pub name: String,
    /// Time in nanoseconds.
    pub ns: i64,
}

/// One numbered step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StepRow {
    /// Number of the step.
    pub number: u64,
    /// Start of the step on the host.
    pub start_ns: i64,
    /// Length of the step on the host.
    pub ns: i64,
    /// Its part of the analyzed window, from when host and GPU were done with the step before to when both are
    /// done with it; `null` for warm-up.
    #[serde(default)]
    pub window_part_ns: Option<i64>,
    /// When the GPU started the work launched in it; `null` when nothing was launched.
    #[serde(default)]
    pub gpu_start_ns: Option<i64>,
    /// Sum of the durations of the kernels launched in it.
    #[serde(default)]
    pub kernel_ns: i64,
    /// Whether it is a warm-up step, which is not analyzed.
    pub warmup: bool,
    /// Busy share of all devices inside the step; `null` when none had work near it.
    pub busy_share: Option<f64>,
}

/// The analyzed calls in which threads that launch kernels wait for the GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Synchronizations {
    /// Number of calls.
    pub calls: u64,
    /// Host time in them, in nanoseconds.
    pub ns: f64,
    /// The function with most of that time: `cudaStreamSynchronize`.
    pub call: Option<String>,
    /// The operator around most of it; `null` where that is outside of operators.
    pub operator: Option<String>,
    /// Median size of the copies behind it, in bytes; `null` where most have none.
    pub copied_bytes: Option<f64>,
    /// Whether those copies go to the GPU.
    pub to_gpu: bool,
    /// The source line around most of it.
    pub line: Option<String>,
}

/// One copy between host and GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LongestCopy {
    /// Its direction and the kind of memory on the host's side.
    pub what: String,
    /// Bytes copied.
    pub bytes: u64,
    /// How long it took.
    pub ns: i64,
}

/// What a unit of work was recognized by, most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// A step.
    Step,
    /// A range that the user's program pushed.
    Range,
    /// The launch of a CUDA graph.
    GraphLaunch,
    /// A kernel that recurs at equal distances: from one execution to the next.
    Kernel,
}

/// Work that repeats. The lists have one value per repetition, in time order: means over the GPUs that
/// worked on it, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkUnit {
    /// What it was recognized by.
    pub kind: UnitKind,
    /// Text of the range, or name and grid of the kernel; empty for steps and graph launches.
    pub name: String,
    /// Number of repetitions, of which the lists hold the first.
    pub count: u64,
    /// Share of the kernel time of the window that its repetitions hold. The time of whole-graph records is kernel
    /// time here and in the lists.
    pub held_share: f64,
    /// When each begins on the first GPU that worked on it, from the start of the window; empty for several
    /// profiles.
    pub start_ns: Vec<i64>,
    /// Wall time; of several ranks, their mean, as all times here, or that of the slowest if they do not communicate.
    pub wall_ns: Vec<i64>,
    /// Time in which the GPU worked.
    pub busy_ns: Vec<i64>,
    /// Sum of the durations of the kernels that started in it.
    pub kernel_ns: Vec<i64>,
    /// The part of it that is communication.
    pub comm_ns: Vec<i64>,
    /// Number of those kernels.
    pub kernels: Vec<u32>,
}
