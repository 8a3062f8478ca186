//! What a report says of ranks: one row per process, and what several of them say together.

use serde::{Deserialize, Serialize};

/// One process that used a GPU: a rank of a distributed job. In the report of a single file this is
/// all that is needed to compare it with other ranks later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rank {
    /// The distributed rank: as the profile says; for several files also from the file's name or its
    /// place among the files (`rank_from` says which).
    pub rank: Option<u64>,
    /// `profile`, `file name`, `position`; `None` where `rank` is not known.
    pub rank_from: Option<String>,
    /// Ranks of the whole job, when the profile says.
    pub world_size: Option<u64>,
    /// The name of its file.
    pub file: String,
    /// The process id, where the file holds several processes.
    pub process: Option<u64>,
    /// Names of its GPUs, distinct.
    pub gpu: Option<String>,
    pub devices: u64,
    /// Judged steps of this process; 0 when the profile marks none.
    pub steps: u64,
    /// Mean length of those steps.
    pub step_ns: Option<f64>,
    /// Sample standard deviation of their lengths; `None` below two steps.
    pub step_sd_ns: Option<f64>,
    pub kernels: u64,
    /// Sum of kernel durations in the window.
    pub kernel_time_ns: i64,
    /// What its GPUs did; `None` where another process used one of them too.
    pub times: Option<RankTimes>,
    /// Sum of the durations of its collectives. Sends and receives between two ranks are none.
    pub collective_ns: i64,
    /// Each collective's duration, in order of launch. Only in the report of a single file.
    #[serde(default)]
    pub collectives: Vec<CollectiveTimes>,
    /// Time in collectives beyond that of the fastest rank in the same collective, summed over those
    /// that could be matched. Only for several ranks.
    pub waited_ns: Option<f64>,
    /// What the other ranks waited in collectives in which this one was the last to arrive. Only for
    /// several ranks.
    pub caused_wait_ns: Option<f64>,
}

/// Times of the judged window on the GPUs of one rank: unions of intervals, summed over its GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RankTimes {
    pub window_ns: i64,
    pub busy_ns: i64,
    /// Of the window.
    pub busy_share: f64,
    /// Kernels, communication included.
    pub kernel_ns: i64,
    /// Kernels that are not communication.
    pub compute_ns: i64,
    pub comm_ns: i64,
    /// Communication while nothing was computed.
    pub exposed_comm_ns: i64,
}

/// Collectives of one kind in one step, in order of launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CollectiveTimes {
    /// The step's number; `None` outside numbered steps.
    pub step: Option<u64>,
    /// `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, ...
    pub kind: String,
    /// Ranks that take part, when the profile says.
    pub group_size: Option<u64>,
    /// How many there were.
    pub count: u64,
    /// Duration of each; of very many only of the first ones.
    pub ns: Vec<i64>,
}

/// What the profiles of one job say together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Job {
    /// Profiles in this report.
    pub files: u64,
    /// Ranks of the whole job, when the profiles say so and agree.
    pub world_size: Option<u64>,
    /// Files that were given and are not in this report.
    pub left_out: Vec<LeftOut>,
    /// What is odd about the files taken together: plain sentences.
    pub cautions: Vec<String>,
    /// Stragglers, imbalance and waiting, or why they could not be judged: plain sentences.
    pub comparison: Vec<String>,
    /// Mean step of the fastest and of the slowest rank, where every rank marks steps.
    pub fastest_step_ns: Option<f64>,
    pub slowest_step_ns: Option<f64>,
    /// The rank the others wait for, when one stands out.
    pub straggler: Option<u64>,
    pub waits: Option<Waits>,
}

/// A file that is not part of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftOut {
    pub file: String,
    /// Why, in one line.
    pub why: String,
}

/// Collectives compared over ranks. In each, the fastest rank arrived last and waited least: its
/// time is taken for the transfer, what others took longer for waiting. The PyTorch profiler's
/// TensorBoard plugin makes the same division (data transfer time, synchronizing time):
/// <https://github.com/pytorch/kineto/tree/main/tb_plugin>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waits {
    /// Collectives found on every rank, and on any.
    pub compared: u64,
    pub of: u64,
    /// Time of the fastest rank, summed over those compared.
    pub transfer_ns: f64,
    /// Waiting of the rank that waited most, and of the one that waited least.
    pub most_ns: f64,
    pub least_ns: f64,
    /// Mean over ranks.
    pub mean_ns: f64,
}

/// Where among the profiles of a job a finding was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OnRanks {
    /// `rank`, or `file` where files hold several ranks.
    pub unit: String,
    /// How many of them it was found on.
    pub on: u64,
    pub of: u64,
    /// The first of them: `0, 3, 7`.
    pub names: String,
    /// The one whose message and evidence are shown: where it costs most.
    pub shown: String,
    /// Upper end of what it claims there, least and most; `None` without an estimate.
    pub least_ns: Option<f64>,
    pub most_ns: Option<f64>,
}
