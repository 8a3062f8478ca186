//! PyProf's record of a kernel.

use std::sync::Arc;

use super::numbered_ranges::SeqMarker;
use crate::base::words::words;

/// Kernels per batch: enough for 16 threads; their lines take some ten megabytes.
pub(super) const BATCH: usize = 16 * PIECE;

/// Kernels per task.
pub(super) const PIECE: usize = 1024;

/// PyProf's record of one kernel execution: a line of `parse`.
#[derive(Debug, Clone)]
pub struct Record {
    /// The names of the kernel.
    pub name: Arc<KernelName>,
    /// Time on the GPU, ns.
    pub duration: u64,
    /// The ranges around the launch.
    pub context: Arc<LaunchContext>,
    /// The ranges of `emit_nvtx` around the launch, in PyProf's order.
    pub seq_markers: Vec<SeqMarker>,
    /// The autograd sequence number that the kernel belongs to: one or none.
    pub seq: Vec<u64>,
    /// Index of the kernel among those with the same sequence number and operator, from 0.
    pub sub: u64,
    /// Other sequence numbers around its launch, in ascending order.
    pub alt: Vec<u64>,
    /// The thread that launched the kernel; `None` if it is not recorded.
    pub tid: Option<u64>,
    /// Number of the GPU.
    pub device: u32,
    /// CUDA stream.
    pub stream: u32,
    /// The number of the operator call it belongs to; only known in traces of torch.profiler.
    pub call: Option<u32>,
    /// Thread blocks in x, y and z; zeros if unknown.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z; zeros if unknown.
    pub block: [u32; 3],
}

/// A kernel's names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KernelName {
    /// PyProf's short name, or a better one if PyProf prints none.
    pub short: String,
    /// The whole name, demangled.
    pub long: String,
}

/// The ranges around a kernel's launch, sorted into PyProf's lists, without those that have numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LaunchContext {
    /// Names of `layer:` ranges, outermost first.
    pub layer: Vec<String>,
    /// Source lines, outermost first, without those of PyTorch and PyProf.
    pub trace: Vec<String>,
    /// Markers with the `repr` of a module.
    pub reprs: Vec<String>,
    /// Distinct operator markers of PyProf, outermost first.
    pub markers: Vec<String>,
    /// Forward or backward.
    pub dir: Dir,
    /// Modules of the markers, in the same order; `na` without markers.
    pub mods: Vec<String>,
    /// Operators of the markers, in the same order; without markers, names of ranges.
    pub ops: Vec<String>,
}

words! {
    /// PyProf's directions. Optimizer work is `fprop`, like everything that is not `bprop`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Dir with fn name {
        /// Forward, and everything else that is not backward.
        #[default]
        Fprop = "fprop",
        /// Backward.
        Bprop = "bprop",
        /// The launch is unknown. PyProf drops such kernels.
        Na = "na",
    }
}
