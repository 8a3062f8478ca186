//! Floor 7: the output formats of NVIDIA's PyProf, for scripts that read them.
//!
//! PyProf (<https://github.com/NVIDIA/PyProf>, archived 2021) worked in two steps: `parse` wrote one
//! Python dictionary per kernel, `prof` read them back and wrote one row of columns each. Both outputs
//! are written here: [`records`] returns the content of the dictionaries of a
//! [`Run`](crate::correlate::Run), [`read()`] that of a file of dictionaries, and [`rows`](rows::rows)
//! the rows of either, so that a profile and its dictionaries have the same rows.
//! `docs/pyprof-differences.md` lists how the output differs from PyProf's, and why.
//!
//! A million kernels have a few hundred different names and contexts, which records share.

use std::sync::Arc;

mod calls;
mod context;
mod enclosing_ranges;
mod event;
mod lines;
mod marker;
mod names;
mod numbered_ranges;
mod op_choice;
mod params;
mod parse;
mod python;
mod read;
pub mod rows;
mod sequence;
pub mod table;

pub use lines::LineFormat;
pub use numbered_ranges::SeqMarker;
pub use parse::{records, write};
pub use read::{DictionaryError, read};

/// Kernels per batch: enough for 16 threads; their lines take some ten megabytes.
const BATCH: usize = 16 * PIECE;

/// Kernels per task.
const PIECE: usize = 1024;

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

/// PyProf's directions. Optimizer work is `fprop`, like everything that is not `bprop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dir {
    /// Forward, and everything else that is not backward.
    #[default]
    Fprop,
    /// Backward.
    Bprop,
    /// The launch is unknown. PyProf drops such kernels.
    Na,
}

impl Dir {
    /// As PyProf prints it.
    pub fn name(self) -> &'static str {
        match self {
            Dir::Fprop => "fprop",
            Dir::Bprop => "bprop",
            Dir::Na => "na",
        }
    }
}
