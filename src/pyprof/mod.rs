//! Floor 7: the output formats of NVIDIA's PyProf, for scripts that read them.
//!
//! PyProf (<https://github.com/NVIDIA/PyProf>, archived 2021) worked in two steps: `parse` wrote one
//! Python dictionary per kernel, `prof` read them back and wrote one row of columns each. Both outputs
//! are written here: [`records`] returns the content of the dictionaries of a
//! [`Run`](crate::correlate::Run), [`read()`] that of a file of dictionaries, and [`rows`](rows::rows)
//! the rows of either, so that a profile and its dictionaries have the same rows.
//! `docs/pyprof-differences.md` lists how the output differs from PyProf's, and why.
//!
//! A million kernels have a few hundred different contexts. Repeated parts are stored and formatted
//! once, and a kernel is a row of numbers: see [`Records`].

use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::handle;

mod calls;
mod enclosing_ranges;
mod event;
mod formats;
mod lines;
mod marker;
mod names;
mod op_choice;
mod params;
mod parse;
mod python;
mod range_template;
mod read;
pub mod rows;
mod sequence;
pub mod table;

pub use lines::LineFormat;
pub use parse::{records, write};
pub use range_template::RangeTemplate;
pub use read::{DictionaryError, read};

/// Kernels per task.
const PIECE: usize = 1024;

/// Kernels per batch: enough for 16 threads; their lines take some ten megabytes.
const BATCH: usize = 16 * PIECE;

/// A text of a profile, shared by all kernels that have it.
pub type Text = Arc<str>;

handle! {
    /// A name in [`Records`].
    NameId,
    /// A context in [`Records`].
    ContextId,
    /// A thread in [`Records`].
    TidId,
    /// A launch configuration in [`Records`].
    DimsId,
    /// A chosen operator with its arguments.
    ChoiceId,
    /// The name of a chosen operator.
    OpId,
    /// The arguments of a chosen operator.
    ShapesId,
    /// The formatted cells of a row.
    CellsId,
}

/// PyProf's records of the kernels of a profile, in order of start time, including kernels that PyProf drops.
#[derive(Debug, Clone, Default)]
pub struct Records {
    executions: Vec<Execution>,
    /// Per execution: the numbers in its ranges, then `seq`, then `alt`.
    numbers: Vec<u64>,
    names: IndexSet<KernelName, FxBuildHasher>,
    contexts: IndexSet<LaunchContext, FxBuildHasher>,
    tids: IndexSet<Option<u64>, FxBuildHasher>,
    dims: IndexSet<LaunchDims, FxBuildHasher>,
}

/// A kernel execution: its numbers, and handles of shared parts.
#[derive(Debug, Clone, Copy)]
struct Execution {
    duration: i64,
    sub: u64,
    /// The start of its numbers, and how many of each kind there are.
    numbers: usize,
    counts: [u32; 3],
    name: NameId,
    context: ContextId,
    tid: TidId,
    dims: DimsId,
    device: u32,
    stream: u32,
    /// The operator call it belongs to, where the profile says so: kernels of one call have one number.
    call: Option<u32>,
}

/// A kernel's names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct KernelName {
    short: Text,
    long: Text,
}

/// Number of thread blocks of a grid, or of threads of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LaunchDims {
    grid: [u32; 3],
    block: [u32; 3],
}

/// The ranges around a kernel's launch, sorted into PyProf's lists. Shared by all kernels with equal lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LaunchContext {
    /// Names of `layer:` ranges, outermost first.
    pub layer: Vec<Text>,
    /// Source lines, outermost first, without those of PyTorch and PyProf.
    pub trace: Vec<Text>,
    /// Markers with the `repr` of a module.
    pub reprs: Vec<Text>,
    /// Distinct operator markers of PyProf, outermost first.
    pub markers: Vec<Text>,
    /// Ranges of `emit_nvtx`, in PyProf's order; [`Record::in_ranges`] has their numbers.
    pub seq_markers: Vec<RangeTemplate>,
    /// Forward or backward.
    pub dir: Dir,
    /// Modules of the markers, in the same order; `na` without markers.
    pub mods: Vec<Text>,
    /// Operators of the markers, in the same order; without markers, names of ranges.
    pub ops: Vec<Text>,
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

/// The record of one kernel execution: a line of `parse`.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    all: &'a Records,
    own: &'a Execution,
}

impl<'a> Record<'a> {
    /// PyProf's short name of the kernel, or a better one if PyProf prints none.
    pub fn short_name(self) -> &'a str {
        self.name().map_or("", |name| &name.short)
    }

    /// The demangled name of the kernel.
    pub fn long_name(self) -> &'a str {
        self.name().map_or("", |name| &name.long)
    }

    fn name(self) -> Option<&'a KernelName> {
        self.all.names.get_index(self.own.name.idx())
    }

    /// Time on the GPU, ns.
    pub fn duration(self) -> i64 {
        self.own.duration
    }

    /// The ranges around the launch.
    pub fn context(self) -> &'a LaunchContext {
        static NOWHERE: LaunchContext = LaunchContext {
            layer: Vec::new(),
            trace: Vec::new(),
            reprs: Vec::new(),
            markers: Vec::new(),
            seq_markers: Vec::new(),
            dir: Dir::Na,
            mods: Vec::new(),
            ops: Vec::new(),
        };
        self.all
            .contexts
            .get_index(self.own.context.idx())
            .unwrap_or(&NOWHERE)
    }

    /// The numbers of the ranges in [`LaunchContext::seq_markers`], in the same order.
    pub fn in_ranges(self) -> &'a [u64] {
        self.numbers(0)
    }

    /// The autograd sequence number that the kernel belongs to: one or none.
    pub fn seq(self) -> &'a [u64] {
        self.numbers(1)
    }

    /// Other sequence numbers around its launch, in ascending order.
    pub fn alt(self) -> &'a [u64] {
        self.numbers(2)
    }

    fn numbers(self, kind: usize) -> &'a [u64] {
        let count = |kind: usize| self.own.counts.get(kind).map_or(0, |&c| c as usize);
        let start = (0..kind)
            .map(count)
            .fold(self.own.numbers, usize::saturating_add);
        let end = start.saturating_add(count(kind));
        self.all.numbers.get(start..end).unwrap_or_default()
    }

    /// Index of the kernel among those with the same sequence number and operator, from 0.
    pub fn sub(self) -> u64 {
        self.own.sub
    }

    /// The thread that launched the kernel; `None` if it is not recorded.
    pub fn tid(self) -> Option<u64> {
        self.all.tids.get_index(self.own.tid.idx()).copied()?
    }

    /// Number of the GPU.
    pub fn device(self) -> u32 {
        self.own.device
    }

    /// CUDA stream.
    pub fn stream(self) -> u32 {
        self.own.stream
    }

    /// The number of the operator call it belongs to; only known in traces of torch.profiler.
    pub fn call(self) -> Option<u32> {
        self.own.call
    }

    /// Thread blocks in x, y and z; zeros if unknown.
    pub fn grid(self) -> [u32; 3] {
        self.dims().map_or([0; 3], |dims| dims.grid)
    }

    /// Threads per block in x, y and z; zeros if unknown.
    pub fn block(self) -> [u32; 3] {
        self.dims().map_or([0; 3], |dims| dims.block)
    }

    fn dims(self) -> Option<&'a LaunchDims> {
        self.all.dims.get_index(self.own.dims.idx())
    }
}

impl Records {
    /// Number of kernels.
    pub fn len(&self) -> usize {
        self.executions.len()
    }

    /// Whether there are no kernels.
    pub fn is_empty(&self) -> bool {
        self.executions.is_empty()
    }

    /// The record at an index, in order of start time.
    pub fn get(&self, at: usize) -> Option<Record<'_>> {
        let own = self.executions.get(at)?;
        Some(Record { all: self, own })
    }

    /// All records, in order of start time.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        let all = self;
        self.executions.iter().map(move |own| Record { all, own })
    }

    /// The lines of `parse`, without line endings.
    pub fn lines(&self, shape: LineFormat) -> impl Iterator<Item = String> {
        let mut lines = lines::LineWriter::new(shape);
        lines.learn(self);
        self.iter().map(move |record| {
            let mut out = Vec::new();
            lines.push(&mut out, record);
            String::from_utf8(out).unwrap_or_default()
        })
    }

    /// Adds an execution whose numbers have already been pushed.
    fn push(&mut self, execution: Execution) {
        self.executions.push(execution);
    }

    /// Removes the executions and keeps the shared parts.
    fn clear(&mut self) {
        self.executions.clear();
        self.numbers.clear();
    }

    fn name(&mut self, short: Text, long: Text) -> NameId {
        NameId::new(self.names.insert_full(KernelName { short, long }).0)
    }

    fn context(&mut self, context: LaunchContext) -> ContextId {
        ContextId::new(self.contexts.insert_full(context).0)
    }

    fn tid(&mut self, tid: Option<u64>) -> TidId {
        TidId::new(self.tids.insert_full(tid).0)
    }

    fn dims(&mut self, grid: [u32; 3], block: [u32; 3]) -> DimsId {
        DimsId::new(self.dims.insert_full(LaunchDims { grid, block }).0)
    }
}

/// The difference of two lengths, capped at `u32::MAX`.
fn count(before: usize, after: usize) -> u32 {
    u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX)
}

/// Appends a whole number in decimal.
fn push_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Stores equal texts once.
#[derive(Debug, Default)]
struct TextPool(FxHashSet<Text>);

impl TextPool {
    fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Text = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}
