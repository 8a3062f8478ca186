//! Facts of numbered steps and of ranks (one process each).

use super::fact::{Answer, FactEntry, Subject, facts};
use super::table::FactTable;
use crate::correlate::{Run, Step};

/// A step in its run.
pub(super) struct StepScope<'a> {
    pub(super) table: &'a FactTable<'a>,
    pub(super) step: &'a Step,
}

/// The subject type of step facts.
pub(super) struct StepSubject;
impl Subject for StepSubject {
    type Of<'a> = StepScope<'a>;
}

pub(super) const STEP_ENTRIES: &[FactEntry<StepSubject>] = facts! {
    /// Its number, as the program gave it
    "step.number": INT needs STEPS => |s| s.step.number,
    /// Its duration on the host's clock
    "step.time_ns": DOUBLE needs STEPS => |s| s.step.span.ns() as f64,
    /// Its duration over the mean of all steps
    "step.over_mean": DOUBLE needs STEPS => |s| {
        s.table
            .sums
            .host_step_ns
            .map(|mean| s.step.span.ns() as f64 / mean)
    },
};

/// A process with the GPU time of its kernels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RankScope {
    pub(super) number: u64,
    pub(super) kernel_ns: f64,
    pub(super) mean_kernel_ns: f64,
    /// Time of compute kernels, without collectives.
    pub(super) compute_ns: f64,
    /// Median of `compute_ns` over all ranks.
    pub(super) median_compute_ns: f64,
    /// Number of those kernels, and its median over all ranks.
    pub(super) compute_kernels: f64,
    pub(super) median_compute_kernels: f64,
}

/// Kernel time per process, in order of the process table, with the rank if it is recorded.
/// `collective` says per string whether it names a kernel of a collective.
pub(super) fn ranks(run: &Run, collective: &[bool]) -> Vec<RankScope> {
    let mut by_process: Vec<Option<RankScope>> = vec![None; run.profile.processes.len()];
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let rank = by_process.get_mut(kernel.process.idx());
        if let Some(rank) = rank.filter(|_| link.site.is_some()) {
            let rank = rank.get_or_insert_default();
            let ns = kernel.span.ns() as f64;
            rank.kernel_ns += ns;
            if collective.get(kernel.name.idx()) != Some(&true) {
                rank.compute_ns += ns;
                rank.compute_kernels += 1.0;
            }
        }
    }
    let processes = run.profile.processes.iter().zip(by_process);
    let mut ranks: Vec<RankScope> = (0..)
        .zip(processes.filter_map(|(process, rank)| Some((process, rank?))))
        .map(|(position, (process, rank))| RankScope {
            number: process.rank.map_or(position, u64::from),
            ..rank
        })
        .collect();
    let mean = ranks.iter().map(|r| r.kernel_ns).sum::<f64>() / ranks.len() as f64;
    // Of an even number the lower middle: of two ranks the one that computes less.
    let median = |value: fn(&RankScope) -> f64| {
        let mut values: Vec<f64> = ranks.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len().saturating_sub(1) / 2;
        values.get(middle).copied().unwrap_or(0.0)
    };
    let (median_ns, median_kernels) = (median(|r| r.compute_ns), median(|r| r.compute_kernels));
    for rank in &mut ranks {
        rank.mean_kernel_ns = mean;
        rank.median_compute_ns = median_ns;
        rank.median_compute_kernels = median_kernels;
    }
    ranks
}

/// The subject type of rank facts.
pub(super) struct Ranks;
impl Subject for Ranks {
    type Of<'a> = RankScope;
}

pub(super) const RANK_ENTRIES: &[FactEntry<Ranks>] = facts! {
    /// The distributed rank, else the position of the process in the file
    "rank.number": INT => |r| r.number,
    /// Kernel time it launched inside the window
    "rank.kernel_ns": DOUBLE => |r| r.kernel_ns,
    /// Its kernel time over the mean of all ranks
    "rank.over_mean": DOUBLE => |r| r.kernel_ns / r.mean_kernel_ns,
    /// Kernel time it launched inside the window, without collectives, which wait for other ranks
    "rank.compute_ns": DOUBLE => |r| r.compute_ns,
    /// `rank.compute_ns` over the median of all ranks, the lower one of two; silent where half of them
    /// compute nothing
    "rank.compute_over_median": DOUBLE => |r| Answer::share(r.compute_ns, r.median_compute_ns),
    /// The number of its kernels without collectives over the median of all ranks: about 1 where a rank has
    /// no more work but works more slowly
    "rank.kernels_over_median": DOUBLE =>
        |r| Answer::share(r.compute_kernels, r.median_compute_kernels),
};
