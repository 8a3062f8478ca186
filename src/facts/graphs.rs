//! Facts of the CUDA graphs that the program launches.

use super::run::{Runs, devices, missing_share};
use super::{Answer, Entry, fact};
use crate::correlate::WithoutOperator;

pub(super) const ENTRIES: &[Entry<Runs>] = &[
    fact!(
        "run.graph_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "GPU time inside whole-graph records, whose kernels are not in the file",
        |t| Answer::double(devices(t, |d| d.graph_ns))
    ),
    fact!(
        "run.graph_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of busy time inside whole-graph records",
        |t| Answer::share(devices(t, |d| d.graph_ns), t.totals.gpu_busy_ns)
    ),
    fact!(
        "run.graph_records",
        Int,
        "",
        &[],
        NOTHING,
        "Whole-graph records in the file",
        |t| Answer::int(t.costed.run.profile.graphs.len() as u64)
    ),
    fact!(
        "run.graph_launches",
        Int,
        "",
        &[],
        API,
        "Graph launch calls",
        |t| Answer::int(t.sums.graph_launches)
    ),
    fact!(
        "run.graph_replay_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of kernel time launched by replaying a CUDA graph",
        |t| Answer::share(t.sums.replayed_ns, t.sums.kernel_ns)
    ),
    fact!(
        "run.unnamed_replay_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of kernel time launched by replaying a CUDA graph, in kernels whose operator is not known",
        |t| missing_share(t, &[WithoutOperator::GraphReplay])
    ),
];
