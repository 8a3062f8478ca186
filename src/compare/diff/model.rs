//! The data of a comparison of two reports, which `--format json` prints as it is.

use serde::{Deserialize, Serialize};

use crate::report::UnitKind;

/// Version of the fields of [`Diff`]. New fields do not change it; removed, renamed and changed fields
/// raise it.
pub const SCHEMA_VERSION: u32 = 3;

/// The comparison of two reports. Times are in nanoseconds per [`TimeUnit`]: of one step or unit of work on
/// one GPU, or of the calls of the first capture. Texts are as the reports have them, not escaped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diff {
    /// [`SCHEMA_VERSION`] of the program that wrote the comparison.
    pub schema_version: u32,
    /// The report before the change.
    pub before: DiffSide,
    /// The report after the change.
    pub after: DiffSide,
    /// The result in a few plain sentences, the most important first.
    pub verdict: Vec<String>,
    /// What to know before relying on the comparison, in plain sentences.
    pub cautions: Vec<String>,
    /// The unit of times.
    pub unit: TimeUnit,
    /// Why steps are not compared; `null` where they are.
    pub unit_reason: Option<String>,
    /// Whether times could be compared. Where not, the lists are empty.
    pub comparable: bool,
    /// Whether no difference is worth reporting.
    pub no_change: bool,
    /// The step, or the other unit of work that both have; `null` where single calls are compared.
    pub unit_of_work: Option<UnitChange>,
    /// Mean wall time of the unit of work as recorded; `null` where recording slowed the host down so differently
    /// that either side may be faster.
    pub wall: Option<Change>,
    /// The same without what recording added; `null` where that is nothing, or alike on both sides.
    #[serde(default)]
    pub wall_range: Option<WallRange>,
    /// Why wall times are not compared; `null` where they are.
    pub wall_not_compared: Option<String>,
    /// Length of the shortest range around all of the work, where it changed otherwise than the unit of work:
    /// time outside the units counts in it.
    pub around: Option<Around>,
    /// The longest range around all of the work that both have once, where it changed in the other direction than the
    /// unit of work.
    #[serde(default)]
    pub contradicting: Option<Contradicting>,
    /// GPU time (sum of kernel durations) of the unit of work, or of the calls that both have; without
    /// communication, which may be waiting for other ranks.
    pub gpu_time: Option<Change>,
    /// Time of communication, with waiting for other ranks, which `gpu_time` leaves out; `null` where there is
    /// none.
    pub communication_time: Option<Change>,
    /// Communication of the unit of work, where its waiting for other ranks is known: the ranks of both are in
    /// the reports.
    pub communication: Option<Communication>,
    /// What the host did otherwise, per unit of work and GPU, largest change of time first.
    pub host: Vec<HostChange>,
    /// Median time from one launch to the next of the same thread: how fast the host launches.
    pub launch_interval: Option<Change>,
    /// Run-to-run noise of `wall`, or else of `gpu_time`; `null` when it is not known.
    pub noise: Option<Noise>,
    /// Why the noise is not known; `null` when it is.
    pub noise_unknown: Option<String>,
    /// Factor by which sizes grew, where it is the same for most of the work: another batch size or
    /// sequence length.
    pub sizes: Option<f64>,
    /// Whether the GPUs differ.
    pub gpus_differ: bool,
    /// Peaks of the GPUs compared, where both are known and differ.
    pub hardware: Option<Hardware>,
    /// Slowdown of `after` as a share of the wall time, at least, by `wall_range`; per unit of data where the sizes
    /// changed. `null` when it is not slower, when the difference is within the noise (95 % interval) or below
    /// 2 %, or when it is not known.
    pub regression: Option<f64>,
    /// Why it is not known whether there is a regression; `null` when it is known.
    pub regression_unknown: Option<String>,
    /// Time of a step on one GPU by activity.
    pub parts: Vec<PartChange>,
    /// How the work was matched, the most certain level first.
    pub matched: Vec<MatchedShare>,
    /// Whether `gpu_time` compares kernels of the same name because most work has no operator.
    pub by_kernel_name: bool,
    /// Share of the matched time of operators, before, for which neither capture recorded arguments.
    pub without_arguments: f64,
    /// Share of the kernel executions that both have, each taken as parts of its whole: 1 for two captures of
    /// the same program of whatever length.
    pub same_mix: f64,
    /// GPU time of kernels without a launch call in the whole capture, which is not compared.
    pub without_launch: Sides,
    /// Work by kind of operator, longest time first.
    pub families: Vec<FamilyChange>,
    /// Layers that changed, largest difference first.
    pub layers: Vec<LayerChange>,
    /// Work that takes longer, largest difference first; where sizes changed, relative to the growth of the
    /// work.
    pub slower: Vec<SiteChange>,
    /// Work that takes less time, in the same order.
    pub faster: Vec<SiteChange>,
    /// Work that only the second report has, longest time first.
    pub appeared: Vec<OneSided>,
    /// Work that only the first report has, longest time first.
    pub vanished: Vec<OneSided>,
    /// Work that takes longer than the peaks of the other GPU explain. Only for different GPUs.
    pub slower_than_hardware: Vec<SiteChange>,
    /// Work that other kernels do now, longest time first.
    pub kernels: Vec<KernelChange>,
    /// The findings of both reports.
    pub findings: FindingChanges,
}

/// One of the two reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffSide {
    /// Name of the profile.
    pub title: String,
    /// Path of the profile.
    pub file: String,
    /// Name of the GPU; `null` when it is not known.
    pub gpu: Option<String>,
    /// Number of GPUs.
    pub devices: u64,
    /// Number of analyzed steps; 0 when none are marked.
    pub steps: u64,
    /// Program and version that made the report.
    pub program: String,
    /// Wall time of the analyzed window.
    pub window_ns: f64,
    /// Time in which the GPUs worked, summed over GPUs.
    pub busy_ns: f64,
    /// Share of the window in which they did not work.
    pub idle_share: f64,
    /// GPU time (sum of the durations of kernels and whole-graph records) of the window, summed over GPUs.
    pub kernel_time_ns: f64,
    /// Number of kernel executions in the window.
    pub kernels: u64,
}

/// The unit of times. It is never the length of a capture: two captures of one second always take the
/// same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// One step, on one GPU.
    Step,
    /// Another unit of work that both have ([`Diff::unit_of_work`]), on one GPU.
    Unit,
    /// The calls of the first capture, each as often as it occurs there.
    Call,
}

impl TimeUnit {
    pub(super) fn is_call(self) -> bool {
        self == TimeUnit::Call
    }
}

/// A unit of work of both reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnitChange {
    /// What it was recognized by.
    pub kind: UnitKind,
    /// Text of the range, or name and grid of the kernel; empty for steps and graph launches.
    pub name: String,
    /// The first report.
    pub before: UnitSide,
    /// The second report.
    pub after: UnitSide,
}

/// A unit of work in one report: times of one repetition on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnitSide {
    /// Number of repetitions.
    pub count: u64,
    /// Mean wall time.
    pub wall_ns: f64,
    /// Median wall time.
    pub median_ns: f64,
    /// Sample standard deviation of the wall time; `null` for one repetition.
    pub deviation_ns: Option<f64>,
    /// Mean time in which the GPU worked.
    pub busy_ns: f64,
    /// Mean kernel time; kernels that run side by side count twice.
    pub kernel_ns: f64,
    /// The part of it that is communication.
    pub comm_ns: f64,
    /// Mean number of kernels.
    pub kernels: f64,
}

/// Between which lengths wall times are without what recording added to them. The upper ends are the times as
/// recorded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WallRange {
    /// Lower end before.
    pub before_low_ns: f64,
    /// Upper end before.
    pub before_high_ns: f64,
    /// Lower end after.
    pub after_low_ns: f64,
    /// Upper end after.
    pub after_high_ns: f64,
    /// Smallest ratio of a time after to one before. Where both were recorded alike, recording added the same share
    /// of what it may have added at most.
    pub ratio_low: f64,
    /// Largest ratio of a time after to one before.
    pub ratio_high: f64,
}

/// A range around all of the work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Around {
    /// Text of the range.
    pub name: String,
    /// Its wall time.
    pub wall: Change,
}

/// A range around all of the work that became longer while the units of work in it became shorter, or the reverse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Contradicting {
    /// Text of the range.
    pub name: String,
    /// Its wall time.
    pub wall: Change,
    /// The part of it outside the units of work.
    pub outside: Change,
}

/// Communication of a unit of work, mean of the ranks. Of each collective, the time of the rank that joined
/// last is the transfer, and what the others took longer is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Communication {
    /// Transfer.
    pub transfer: Change,
    /// Waiting for other ranks.
    pub waiting: Change,
}

/// What the host did otherwise, per unit of work and GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostChange {
    /// `gaps of 20 us to 100 us`, `launch calls`, or the name of a call that waits for the GPU.
    pub what: String,
    /// Whether it is a class of idle intervals of the GPU.
    pub is_gap: bool,
    /// Number before.
    pub before_count: f64,
    /// Number after.
    pub after_count: f64,
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
}

/// A time before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
    /// `after_ns / before_ns`.
    pub ratio: f64,
}

/// Two times that are not compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sides {
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
}

/// Run-to-run noise of the mean of the unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Noise {
    /// What it was measured on.
    pub of: NoiseOf,
    /// Half of the 95 % confidence interval of the difference of the means (Welch), as a share of the mean
    /// before.
    pub share: f64,
    /// The same for a one-sided interval of 99.9 %: what a gate requires.
    pub gate_share: f64,
    /// Smallest slowdown that a gate finds in 95 of 100 runs like these, as a share of the mean before.
    pub detectable_share: f64,
    /// Number of repetitions before.
    pub before_count: u64,
    /// Number of repetitions after.
    pub after_count: u64,
    /// Sample standard deviation of the repetitions before, as a share of their mean.
    pub before_deviation: f64,
    /// Sample standard deviation of the repetitions after, as a share of their mean.
    pub after_deviation: f64,
}

/// What the noise was measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoiseOf {
    /// Wall times.
    Wall,
    /// GPU times of the kernels.
    GpuTime,
}

/// Peaks of the GPU after divided by those before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hardware {
    /// Name of the GPU before.
    pub before: String,
    /// Name of the GPU after.
    pub after: String,
    /// Ratio of the DRAM bandwidths.
    pub bandwidth: f64,
    /// Ratio of the peak rates of 16-bit floats on Tensor Cores (matrix cores).
    pub tensor_16bit: Option<f64>,
    /// Ratio of the peak fp32 rates outside Tensor Cores.
    pub fp32: Option<f64>,
    /// Expected time after over time before by these peaks, for the work with a known ideal time.
    pub expected_ratio: Option<f64>,
    /// Measured time after over time before of the same work.
    pub measured_ratio: Option<f64>,
    /// Share of that work in the matched GPU time before.
    pub share: f64,
}

/// Time of a step with one kind of activity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PartChange {
    /// `compute`, `communication`, `copy`, `set` or `idle`.
    pub what: String,
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
}

/// What work of two reports was matched by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MatchLevel {
    /// Layer, operator, direction and arguments.
    Exact,
    /// The same in a layer with another name.
    LayerRenamed,
    /// All but the data types.
    Types,
    /// All but the sizes, which changed by one factor.
    Sizes,
    /// Operator, direction and arguments, in another layer.
    OtherLayer,
    /// Layer, operator and direction, with equal numbers of dimensions and kinds of types, or the same kernel
    /// with another grid.
    OtherShapes,
    /// The name of the kernel, where no operator is known.
    Kernel,
}

/// GPU time that was matched at one level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MatchedShare {
    /// What the work was matched by.
    pub level: MatchLevel,
    /// Share of all GPU time of the first capture.
    pub before_share: f64,
    /// Share of all GPU time of the second capture.
    pub after_share: f64,
}

/// Work of one kind of operator that both have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FamilyChange {
    /// Kind of operator: `gemm`, `conv`, `pointwise`.
    pub family: String,
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
    /// `after_ns / before_ns`.
    pub ratio: f64,
    /// Expected ratio by the work and the peaks of the GPUs, for the part with a known cost.
    pub expected_ratio: Option<f64>,
    /// Measured ratio of the part with a known cost.
    pub cost_known_ratio: Option<f64>,
}

/// Change of a layer pattern, including work that only one report has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayerChange {
    /// Name of the layer pattern before.
    pub name: String,
    /// Its name after, if it differs.
    pub renamed: Option<String>,
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
}

/// Change of work that both reports have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SiteChange {
    /// What the work was matched by.
    pub level: MatchLevel,
    /// Layer pattern, operator and direction: `blocks.* · aten::mm (fprop)`.
    pub place: String,
    /// The place after, if it differs.
    pub place_after: Option<String>,
    /// Arguments before; empty when they were not recorded.
    pub arguments: String,
    /// The arguments after, if they differ.
    pub arguments_after: Option<String>,
    /// Number of calls before, per step or of the whole capture.
    pub calls_before: f64,
    /// Number of calls after, per step or of the whole capture.
    pub calls_after: f64,
    /// Duration of one execution of the main kernel before; `null` in reports of older versions.
    pub median_before: Option<Median>,
    /// Duration of one execution of the main kernel after.
    pub median_after: Option<Median>,
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
    /// `after_ns / before_ns`.
    pub ratio: f64,
    /// Expected ratio: 1 for the same work on the same GPU, else the ratio of the ideal times; `null` when
    /// it is not known.
    pub expected_ratio: Option<f64>,
    /// What limited it before: `math`, `memory` or `latency`.
    pub bound: Option<String>,
    /// Whether it is communication, whose time may be waiting for other ranks.
    pub communication: bool,
    /// Other differences, in plain words.
    pub notes: Vec<String>,
}

/// Durations of the executions of a kernel, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Median {
    /// Median.
    pub median_ns: f64,
    /// Duration that a quarter of the executions stay below.
    pub lower_quartile_ns: f64,
    /// Duration that three quarters of the executions stay below.
    pub upper_quartile_ns: f64,
}

/// Work that only one report has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OneSided {
    /// Layer pattern, operator and direction.
    pub place: String,
    /// Arguments; empty when they were not recorded.
    pub arguments: String,
    /// Number of calls, per step or of the whole capture.
    pub calls: f64,
    /// GPU time.
    pub time_ns: f64,
    /// Share of all GPU time compared of its report.
    pub share: f64,
}

/// Work that another kernel does now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KernelChange {
    /// The place with the longest time.
    pub place: String,
    /// Name of the kernel before.
    pub before: String,
    /// Name of the kernel after.
    pub after: String,
    /// Number of places in this row.
    pub places: u64,
    /// Time before.
    pub before_ns: f64,
    /// Time after.
    pub after_ns: f64,
}

/// The findings of both reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingChanges {
    /// Findings that only the first report has.
    pub fixed: Vec<FindingChange>,
    /// Findings that only the second report has.
    pub new: Vec<FindingChange>,
    /// Findings that both reports have.
    pub still: Vec<FindingChange>,
    /// Gone, but the second profile lacks data that the rule needs.
    pub unclear: Vec<FindingChange>,
}

/// A finding of one report or of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingChange {
    /// Id of the rule.
    pub rule: String,
    /// Title of the finding.
    pub title: String,
    /// Where it was found.
    pub place: String,
    /// Upper end of its counted saving before, as a share of busy time (of the window for idle time).
    pub before_share: Option<f64>,
    /// The same after.
    pub after_share: Option<f64>,
    /// Time that it costs outside the steps before, in ns; `null` where the rule does not state it.
    #[serde(default)]
    pub before_outside_ns: Option<f64>,
    /// The same after.
    #[serde(default)]
    pub after_outside_ns: Option<f64>,
    /// Whether it is still there, but too small to act on.
    pub below_floor: bool,
}

impl DiffSide {
    /// Mean over the GPUs of a time that is summed over them.
    pub(super) fn on_one_gpu(&self, ns: f64) -> f64 {
        ns / self.devices.max(1) as f64
    }
}

impl Change {
    pub(super) fn new(before_ns: f64, after_ns: f64) -> Change {
        Change {
            before_ns,
            after_ns,
            ratio: super::limits::ratio(before_ns, after_ns),
        }
    }
}

impl MatchLevel {
    /// What work was matched by, in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            MatchLevel::Exact => "layer, operator, direction and arguments",
            MatchLevel::LayerRenamed => "the same in a layer with another name",
            MatchLevel::Types => "all but the data types",
            MatchLevel::Sizes => "all but the sizes, which changed by one factor",
            MatchLevel::OtherLayer => "operator, direction and arguments in another layer",
            MatchLevel::OtherShapes => "layer, operator and direction, in other sizes",
            MatchLevel::Kernel => "the name of the kernel, no operator being known",
        }
    }
}
