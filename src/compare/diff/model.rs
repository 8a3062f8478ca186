//! What two reports say held against each other: plain data, which `--format json` prints as it is.

use serde::{Deserialize, Serialize};

/// Version of the shape of [`Diff`]: it grows by new fields; a removed or changed one raises it.
pub const SCHEMA_VERSION: u32 = 2;

/// Everything said about two reports. Times are ns per [`TimeUnit`]: of one step on one GPU, or of the
/// calls that the first capture holds. Texts are as the reports have them, not escaped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diff {
    pub schema_version: u32,
    pub before: DiffSide,
    pub after: DiffSide,
    /// The answer in a few plain sentences; the first one is the answer.
    pub verdict: Vec<String>,
    /// What the reader must know before believing it. Plain sentences.
    pub cautions: Vec<String>,
    pub unit: TimeUnit,
    /// Why calls are compared and not steps; `None` where steps are.
    pub unit_reason: Option<String>,
    /// Whether times were held against each other at all. Where not, the lists are empty.
    pub comparable: bool,
    /// Nothing differs that is worth a word.
    pub no_change: bool,
    /// Mean length of a step, where both mark steps and neither capture slowed the host down.
    pub step: Option<Change>,
    /// Why lengths of steps are not compared.
    pub step_not_compared: Option<String>,
    /// GPU time (sum of kernel durations): of a step, or of the calls both have.
    pub gpu_time: Option<Change>,
    /// By how much what is compared, `step` or else `gpu_time`, may differ by chance; `None` when not
    /// known.
    pub noise: Option<Noise>,
    /// Why the noise is not known.
    pub noise_unknown: Option<String>,
    /// By which factor sizes grew, where most of the work changed by the same one: another batch or
    /// sequence length.
    pub sizes: Option<f64>,
    /// The GPUs are not the same.
    pub gpus_differ: bool,
    /// What the other GPU is made for, where both are known and differ.
    pub hardware: Option<Hardware>,
    /// By which share `after` is slower: of the step, else of the GPU time, and per unit of data
    /// where the sizes changed. `None` when it is not, when the difference is no more than noise,
    /// or when it cannot be told.
    pub regression: Option<f64>,
    /// Why a gate on `regression` would mean nothing here.
    pub regression_unknown: Option<String>,
    /// What the time of a step on one GPU divides into; without idle time where that is no evidence.
    pub parts: Vec<PartChange>,
    /// How the work was matched, the surest way first.
    pub matched: Vec<MatchedShare>,
    /// `gpu_time` is of kernels that have the same name, for most work has no operator.
    pub by_kernel_name: bool,
    /// Share of the matched time of operators, before, whose arguments neither capture recorded.
    pub without_arguments: f64,
    /// GPU time of kernels without a launch call, which is not compared. Of the whole capture.
    pub without_launch: Sides,
    /// Work by kind of operator, most time first.
    pub families: Vec<FamilyChange>,
    /// Layers that changed, largest difference first.
    pub layers: Vec<LayerChange>,
    /// Work that takes longer, shorter; largest difference first. Where sizes changed, longer than
    /// the work grew.
    pub slower: Vec<SiteChange>,
    pub faster: Vec<SiteChange>,
    /// Work that only one of them has, most time first.
    pub appeared: Vec<OneSided>,
    pub vanished: Vec<OneSided>,
    /// Work that became faster less, or slower more, than the hardware explains. Only for different
    /// GPUs.
    pub slower_than_hardware: Vec<SiteChange>,
    /// The same work by other kernels, most time first.
    pub kernels: Vec<KernelChange>,
    pub findings: FindingChanges,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffSide {
    pub title: String,
    pub file: String,
    pub gpu: Option<String>,
    pub devices: u64,
    /// Judged steps; 0 when none are marked.
    pub steps: u64,
    /// What it was made with.
    pub program: String,
    /// All GPU time (sum of kernel durations) of the capture.
    pub kernel_time_ns: f64,
}

/// What times are counted by. Never the length of a capture: two captures of one second always take
/// the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// One numbered step, on one GPU.
    Step,
    /// The calls of the first capture: as many calls of each kind as it holds.
    Call,
}

/// A time before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Change {
    pub before_ns: f64,
    pub after_ns: f64,
    /// `after_ns / before_ns`.
    pub ratio: f64,
}

/// Two times that are not compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sides {
    pub before_ns: f64,
    pub after_ns: f64,
}

/// How much means of steps differ by chance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Noise {
    pub of: NoiseOf,
    /// Half of Welch's 95 % interval of the difference of the means, of the mean before.
    pub share: f64,
    pub before_steps: u64,
    pub after_steps: u64,
    /// Sample standard deviation of the steps, of their mean.
    pub before_deviation: f64,
    pub after_deviation: f64,
}

/// What the noise is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoiseOf {
    /// The lengths of the steps.
    Step,
    /// The time of the kernels that each step launches.
    GpuTime,
}

/// Peaks of the GPU after over those before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hardware {
    pub before: String,
    pub after: String,
    pub bandwidth: f64,
    /// 16-bit floats on Tensor Cores (matrix cores).
    pub tensor_16bit: Option<f64>,
    /// fp32 outside of them.
    pub fp32: Option<f64>,
    /// What the work with a known ideal time should take by these peaks, of what it took before.
    pub expected_ratio: Option<f64>,
    /// What the same work takes, of what it took before.
    pub measured_ratio: Option<f64>,
    /// GPU time of that work, of all that was matched, before.
    pub share: f64,
}

/// A part of the time of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PartChange {
    /// `compute`, `communication`, `copy`, `set`, `idle`.
    pub what: String,
    pub before_ns: f64,
    pub after_ns: f64,
}

/// How sure a match is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MatchLevel {
    /// Layer, operator, direction and arguments.
    Exact,
    /// The same in a layer that has another name.
    LayerRenamed,
    /// All but the data types.
    Types,
    /// All but the sizes, which all changed by one factor.
    Sizes,
    /// Operator, direction and arguments, wherever in the model.
    OtherLayer,
    /// Layer, operator and direction.
    OtherShapes,
    /// No operator is known: the name of the kernel.
    Kernel,
}

/// What was matched at one level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MatchedShare {
    pub level: MatchLevel,
    /// Of all GPU time of the capture.
    pub before_share: f64,
    pub after_share: f64,
}

/// Work of one kind of operator that both have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FamilyChange {
    pub family: String,
    pub before_ns: f64,
    pub after_ns: f64,
    pub ratio: f64,
    /// What it should be by the work and the peaks of the GPUs, for the part whose ideal is known.
    pub expected_ratio: Option<f64>,
    /// The ratio measured of that part.
    pub cost_known_ratio: Option<f64>,
}

/// A layer pattern. What only one of them has counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LayerChange {
    pub name: String,
    /// Its name after, when it is another one.
    pub renamed: Option<String>,
    pub before_ns: f64,
    pub after_ns: f64,
}

/// Work that both have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SiteChange {
    pub level: MatchLevel,
    /// `blocks.* · aten::mm (fprop)`.
    pub place: String,
    /// The same after, when it is called otherwise.
    pub place_after: Option<String>,
    pub arguments: String,
    /// The same after, when they differ.
    pub arguments_after: Option<String>,
    /// Per step; or of the whole capture.
    pub calls_before: f64,
    pub calls_after: f64,
    pub before_ns: f64,
    pub after_ns: f64,
    pub ratio: f64,
    /// What the ratio should be: 1 for the same work on the same GPU, else that of the ideal times;
    /// `None` when not known.
    pub expected_ratio: Option<f64>,
    /// What limits it, before: `math`, `memory` or `latency`.
    pub bound: Option<String>,
    /// What else is different: plain words.
    pub notes: Vec<String>,
}

/// Work that only one of them has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OneSided {
    pub place: String,
    pub arguments: String,
    pub calls: f64,
    pub time_ns: f64,
    /// Of all GPU time compared on its side.
    pub share: f64,
}

/// The same work, done by another kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KernelChange {
    pub place: String,
    pub before: String,
    pub after: String,
    /// Places folded into this row.
    pub places: u64,
    pub before_ns: f64,
    pub after_ns: f64,
}

/// What became of the findings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingChanges {
    pub fixed: Vec<FindingChange>,
    pub new: Vec<FindingChange>,
    pub still: Vec<FindingChange>,
    /// Gone, but what the rule needs is not in the second profile.
    pub unclear: Vec<FindingChange>,
}

/// A finding of one or of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingChange {
    pub rule: String,
    pub title: String,
    pub place: String,
    /// Upper end of what it claims to give back, of busy time (of the window for idle time).
    pub before_share: Option<f64>,
    pub after_share: Option<f64>,
    /// It is still there, below the floor of what is worth acting on.
    pub below_floor: bool,
}

impl Change {
    pub(super) fn new(before_ns: f64, after_ns: f64) -> Change {
        Change {
            before_ns,
            after_ns,
            ratio: super::ratio(before_ns, after_ns),
        }
    }
}

impl MatchLevel {
    /// What work was matched by, for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            MatchLevel::Exact => "layer, operator, direction and arguments",
            MatchLevel::LayerRenamed => "the same in a layer with another name",
            MatchLevel::Types => "all but the data types",
            MatchLevel::Sizes => "all but the sizes, which changed by one factor",
            MatchLevel::OtherLayer => "operator, direction and arguments in another layer",
            MatchLevel::OtherShapes => "layer, operator and direction",
            MatchLevel::Kernel => "the name of the kernel, no operator being known",
        }
    }
}
