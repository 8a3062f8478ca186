//! Facts of the CUDA graphs that the program launches.

use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::correlate::WithoutOperator;

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// GPU time inside whole-graph records, whose kernels are not in the file
    "run.graph_ns": DOUBLE => |t| t.of_devices(|d| d.graph_ns),
    /// Share of busy time inside whole-graph records
    "run.graph_share": DOUBLE =>
        |t| Answer::share(t.of_devices(|d| d.graph_ns), t.totals.gpu_busy_ns),
    /// Whole-graph records that are analyzed
    "run.graph_records": INT => |t| t.costed.run.analysed_graphs().count() as u64,
    /// Graph launch calls
    "run.graph_launches": INT needs API => |t| t.sums.graph_launches,
    /// Share of kernel time launched by replaying a CUDA graph
    "run.graph_replay_share": DOUBLE => |t| Answer::share(t.sums.replayed_ns, t.sums.kernel_ns),
    /// Share of kernel time launched by replaying a CUDA graph, in kernels whose operator is not known
    "run.unnamed_replay_share": DOUBLE => |t| t.missing_share(&[WithoutOperator::GraphReplay]),
};
