//! The ranks of a report: one row per process, and the comparison of several.

use serde::{Deserialize, Serialize};

/// A process that used a GPU: a rank of a distributed job. The row in the report of a single file holds
/// everything that is needed to compare it with other ranks later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rank {
    /// The distributed rank: from the profile; for several files also from the name of the file or from
    /// its position among the files (see `rank_from`).
    pub rank: Option<u64>,
    /// Where `rank` comes from: `profile`, `file name` or `position`; `null` where it is not known.
    pub rank_from: Option<String>,
    /// Number of ranks of the whole job, if the profile has it.
    pub world_size: Option<u64>,
    /// Name of the profile.
    pub file: String,
    /// The process id, where the file holds several processes.
    pub process: Option<u64>,
    /// Distinct names of its GPUs.
    pub gpu: Option<String>,
    /// Number of its GPUs.
    pub devices: u64,
    /// Number of analyzed steps of this process; 0 when the profile marks none.
    pub steps: u64,
    /// Mean length of those steps: the window of its GPUs over their number.
    pub step_ns: Option<f64>,
    /// Sample standard deviation of their lengths; `null` below two steps.
    pub step_sd_ns: Option<f64>,
    /// Each of them; of very many only the first ones. Only in the report of a single profile.
    #[serde(default)]
    pub each_step: Vec<RankStep>,
    /// Number of kernel executions in the window.
    pub kernels: u64,
    /// Sum of kernel durations in the window.
    pub kernel_time_ns: i64,
    /// Times of its GPUs; `null` where another process used one of them too.
    pub times: Option<RankTimes>,
    /// Sum of the durations of its collectives, without sends and receives between two ranks.
    pub collective_ns: i64,
    /// Its collectives, in order of launch. Only in the report of a single profile.
    #[serde(default)]
    pub collectives: Vec<CollectiveTimes>,
    /// Time in collectives beyond that of the fastest rank in the same collective, summed over those
    /// that could be matched. Only for several ranks.
    pub waited_ns: Option<f64>,
    /// Time that the other ranks waited in collectives in which this rank arrived last. Only for several
    /// ranks.
    pub caused_wait_ns: Option<f64>,
    /// Number of compared collectives that it joined last. Only for several ranks.
    #[serde(default)]
    pub joined_last: Option<u64>,
    /// Number of those whose kernel started right after its launch: its GPU did not keep it waiting, so its
    /// host launched late. Only for several ranks.
    #[serde(default)]
    pub launched_late: Option<u64>,
}

/// Times of the analyzed window on the GPUs of one rank: unions of intervals, summed over its GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankTimes {
    /// Length of the window.
    pub window_ns: i64,
    /// Time in which any work ran.
    pub busy_ns: i64,
    /// `busy_ns` as a share of `window_ns`.
    pub busy_share: f64,
    /// Time in which a kernel ran, communication included.
    pub kernel_ns: i64,
    /// Time in which a kernel other than communication ran.
    pub compute_ns: i64,
    /// Time of communication.
    pub comm_ns: i64,
    /// Time of communication while nothing was computed.
    pub exposed_comm_ns: i64,
}

/// Collectives of one kind in one step, in order of launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CollectiveTimes {
    /// Number of the step; `null` outside numbered steps.
    pub step: Option<u64>,
    /// Kind of collective: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, ...
    pub kind: String,
    /// Number of ranks that take part, if the profile has it.
    pub group_size: Option<u64>,
    /// Number of collectives.
    pub count: u64,
    /// Whether the first of them is the first collective of the capture, in which ranks also wait for what
    /// happened before it.
    #[serde(default)]
    pub holds_first: bool,
    /// Each of them, in order of launch; of very many only the first ones.
    pub calls: Vec<CollectiveCall>,
}

/// One collective on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CollectiveCall {
    /// Start on the clock of this profile, in nanoseconds.
    pub start_ns: i64,
    /// Duration.
    pub ns: i64,
    /// From the end of its launch to its start; `null` where the launch is not known.
    pub queued_ns: Option<i64>,
    /// Bytes of the message, if the profile has it.
    pub bytes: Option<u64>,
}

/// A step of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankStep {
    /// Its number.
    pub number: u64,
    /// Its length.
    pub ns: i64,
}

/// The comparison of the profiles of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Job {
    /// Number of profiles in this report.
    pub files: u64,
    /// Number of ranks of the whole job, if the profiles have it and agree.
    pub world_size: Option<u64>,
    /// Files that were given but are not in this report.
    pub left_out: Vec<LeftOut>,
    /// Reasons to doubt that the files belong together, in plain sentences.
    pub cautions: Vec<String>,
    /// Stragglers, imbalance and waiting, or why they are not known, in plain sentences.
    pub comparison: Vec<String>,
    /// Mean step of the fastest rank, where every rank marks steps.
    pub fastest_step_ns: Option<f64>,
    /// Mean step of the slowest rank, where every rank marks steps.
    pub slowest_step_ns: Option<f64>,
    /// The rank that the others wait for, if one stands out.
    pub straggler: Option<u64>,
    /// Waiting in collectives, where they could be matched.
    pub waits: Option<Waits>,
}

/// A file that is not in the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// Path of the file.
    pub file: String,
    /// Why, in one line.
    pub why: String,
    /// Whether it is in the report all the same, because it was given more than once.
    #[serde(default)]
    pub repeated: bool,
}

/// Waiting in collectives. The fastest rank of a collective arrived last: its time counts as transfer,
/// and what the other ranks took longer counts as waiting. The PyTorch profiler's
/// TensorBoard plugin makes the same division (data transfer time, synchronizing time):
/// <https://github.com/pytorch/kineto/tree/main/tb_plugin>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waits {
    /// Number of collectives that were found on every rank, without the first one of the capture.
    pub compared: u64,
    /// Number of collectives that were found on any rank.
    pub of: u64,
    /// Time of the fastest rank, summed over those compared.
    pub transfer_ns: f64,
    /// Waiting of the rank that waited longest.
    pub most_ns: f64,
    /// Waiting of the rank that waited shortest.
    pub least_ns: f64,
    /// Mean waiting over all ranks.
    pub mean_ns: f64,
    /// How far apart the ranks end the same collective, with their clocks aligned by these ends: the median.
    /// `null` with fewer than three collectives in which all ranks end together.
    #[serde(default)]
    pub ends_apart_ns: Option<f64>,
    /// The first collective of the capture, which the figures above leave out, because ranks also wait in it for
    /// what happened before the capture; `null` where it could not be matched or is the only one.
    #[serde(default)]
    pub first: Option<FirstCollective>,
}

impl Waits {
    /// How far apart the ranks end, if that is further than the same collective can: data arrives at the last
    /// rank at most a transfer after the first one.
    pub(crate) fn not_together_ns(&self) -> Option<f64> {
        /// What the clocks of two machines drift apart in a capture of seconds, and timestamps err.
        const SLACK_NS: f64 = 100_000.0;
        let transfer = self.transfer_ns / self.compared.max(1) as f64;
        self.ends_apart_ns
            .filter(|apart| *apart > transfer + SLACK_NS)
    }
}

/// Times of the first collective of a capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FirstCollective {
    /// Time of the fastest rank.
    pub transfer_ns: f64,
    /// Mean waiting over all ranks.
    pub mean_ns: f64,
}

/// The profiles of a job in which a finding was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OnRanks {
    /// What is counted: `rank`, or `file` where files hold several ranks.
    pub unit: String,
    /// Number of ranks or files that have the finding.
    pub on: u64,
    /// Number of all ranks or files.
    pub of: u64,
    /// Names of the first of them: `0, 3, 7`.
    pub names: String,
    /// The rank or file whose message and evidence are shown: where it costs most.
    pub shown: String,
    /// Smallest upper end of the counted saving; `null` without an estimate.
    pub least_ns: Option<f64>,
    /// Largest upper end of the counted saving; `null` without an estimate.
    pub most_ns: Option<f64>,
}
