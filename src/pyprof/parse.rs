//! Builds PyProf's records from a run, and writes their lines.
//!
//! This is done in batches: the ranges around launches are looked up in parallel; then sequence
//! numbers, which depend on the previous kernel, are assigned sequentially; then lines are formatted in
//! parallel.

use std::io;

use indexmap::IndexSet;
use rayon::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::enclosing_ranges::{
    Effect, PyprofRole, RangeChain, RangeContexts, RangeIdentity, layer_name,
};
use super::lines::{LineFormat, LineWriter};
use super::sequence::{Counted, Numbering, SequenceColumns, is_cell};
use super::{
    BATCH, ContextId, Dir, Execution, LaunchContext, NameId, PIECE, RangeTemplate, Records, Text,
    TextPool, count, event, names, push_number,
};
use crate::correlate::{Direction, Link, OpCall, OpCallId, Run, ScopeId, WithoutOperator};
use crate::profile::{Kernel, RangeArgs, SerialNumber, StrId, ThreadId};

/// The records of all kernels, in order of start time, including those that PyProf drops.
pub fn records(run: &Run) -> Records {
    let around = RangeContexts::of(run);
    let kernels = run.profile.kernels.len();
    let mut writer = RecordBuilder::new(&around);
    let mut all = Records::default();
    all.executions.reserve_exact(kernels);
    for first in (0..kernels).step_by(BATCH) {
        writer.take(first, &scan(&around, first), &mut all);
    }
    all
}

/// Writes a line per kernel, as [`records`] returns them. `written` is called with the number of lines
/// written since the last call.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    out: &mut dyn io::Write,
    run: &Run,
    shape: LineFormat,
    written: &dyn Fn(u64),
) -> io::Result<()> {
    let around = RangeContexts::of(run);
    let mut writer = RecordBuilder::new(&around);
    let mut lines = LineWriter::new(shape);
    let mut batch = Records::default();
    for first in (0..run.profile.kernels.len()).step_by(BATCH) {
        batch.clear();
        writer.take(first, &scan(&around, first), &mut batch);
        lines.learn(&batch);
        for text in lines_of(&batch, &lines) {
            out.write_all(&text)?;
        }
        written(batch.len() as u64);
    }
    Ok(())
}

/// The lines of a batch, in consecutive parts.
fn lines_of(batch: &Records, lines: &LineWriter) -> Vec<Vec<u8>> {
    let piece = |start: usize| {
        let mut out = Vec::new();
        for record in (start..start + PIECE).map_while(|at| batch.get(at)) {
            lines.push(&mut out, record);
            out.push(b'\n');
        }
        out
    };
    let starts: Vec<usize> = (0..batch.len()).step_by(PIECE).collect();
    starts.into_par_iter().map(piece).collect()
}

/// What the ranges around the launch of a kernel say.
#[derive(Debug, Default)]
struct Scanned {
    /// The key of its context; equal keys have equal contexts. Empty if the launch is not known.
    key: Vec<u32>,
    /// The numbers in its ranges.
    in_ranges: Vec<u64>,
    /// Its sequence numbers, ascending.
    ids: Vec<u64>,
}

/// Looks up the ranges for the batch that begins with kernel `first`, in parallel.
fn scan(around: &RangeContexts<'_>, first: usize) -> Vec<Scanned> {
    let kernels = around.run.profile.kernels.len();
    let batch = first..kernels.min(first.saturating_add(BATCH));
    let batch = batch.into_par_iter().with_min_len(PIECE);
    let scanned = batch.map_init(Marks::default, |marks, at| Scanned::of(around, at, marks));
    scanned.collect()
}

impl Scanned {
    fn of(around: &RangeContexts<'_>, at: usize, marks: &mut Marks) -> Scanned {
        let Some(origin) = Origin::of(around.run, at).filter(Origin::is_known) else {
            return Scanned::default();
        };
        let chain = around.chain(origin.scope);
        marks.read(around, chain);
        let in_ranges = marks.list.iter().flat_map(|m| [m.seq, m.op_id]).flatten();
        let ids = marks.list.iter().filter_map(|m| Some(m.seq?.get()));
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        Scanned {
            key: key(around, &origin, chain, marks),
            in_ranges: in_ranges.map(SerialNumber::get).collect(),
            ids,
        }
    }
}

/// The key of a kernel with a known launch, which is never empty.
fn key(
    around: &RangeContexts<'_>,
    origin: &Origin<'_>,
    chain: RangeChain,
    marks: &Marks,
) -> Vec<u32> {
    let row = |id: Option<StrId>| id.map_or(0, |id| id.row().saturating_add(1));
    // The innermost range matters only if nothing else names the operator.
    let unnamed = marks.list.is_empty() && !around.in_marker(chain);
    let other = around.other(chain).filter(|_| unnamed);
    let recomputed = origin.op.is_some_and(|op| op.recomputed);
    let mut key = vec![
        around.effects_id(chain),
        row(other),
        row(chain.stack),
        u32::from(recomputed),
    ];
    if around.run.profile.format.range_args == RangeArgs::TraceEvent
        && let Some(op) = origin.op
    {
        let layer = op.layer.map_or(0, |layer| layer.row().saturating_add(1));
        let args = op.args.map_or(0, |args| args.row().saturating_add(1));
        let backward = op.direction == Direction::Bprop;
        let kinds = (u32::from(op.args_from_forward) << 1) | u32::from(backward);
        key.extend([op.op.row(), layer, args, kinds]);
    }
    for mark in &marks.list {
        let kinds = (u32::from(mark.seq.is_some()) << 1) | u32::from(mark.op_id.is_some());
        key.extend([mark.text.row(), row(mark.sizes), kinds]);
    }
    key
}

/// A kernel with its launch.
struct Origin<'r> {
    kernel: &'r Kernel,
    link: &'r Link,
    /// Innermost range that describes the work.
    scope: Option<ScopeId>,
    thread: Option<ThreadId>,
    op: Option<&'r OpCall>,
}

impl<'r> Origin<'r> {
    fn of(run: &'r Run, at: usize) -> Option<Origin<'r>> {
        let link = run.links.get(at)?;
        let call = link.launch.and_then(|l| run.profile.calls.get(l.idx()));
        let kernel = run.profile.kernels.get(at)?;
        Some(Origin {
            kernel,
            link,
            scope: run.scope_of_work(kernel, link),
            thread: call.map(|c| c.thread),
            op: link.op.and_then(|op| run.op_calls.get(op.idx())),
        })
    }

    /// Whether the context of the launch is known. The ranges around the replay of a CUDA graph do not
    /// describe its kernels.
    fn is_known(&self) -> bool {
        self.thread.is_some() && self.link.missing != Some(WithoutOperator::GraphReplay)
    }
}

/// The ranges of `emit_nvtx` around a launch, as PyProf lists them.
#[derive(Debug, Default)]
struct Marks {
    list: Vec<Mark>,
    keys: Vec<u8>,
}

/// A range of `emit_nvtx`.
#[derive(Debug, Clone, Copy)]
struct Mark {
    text: StrId,
    seq: Option<SerialNumber>,
    op_id: Option<SerialNumber>,
    sizes: Option<StrId>,
    /// The position of its sort key in [`Marks::keys`]: the text with its number, as in PyProf.
    key: (usize, usize),
}

impl Marks {
    /// Collects the marks of a chain in PyProf's order, without repetitions; of neighbors with the same
    /// number and similar names, only the first.
    fn read(&mut self, around: &RangeContexts<'_>, chain: RangeChain) {
        self.list.clear();
        let mark = |range: &RangeIdentity| Mark {
            text: range.text,
            seq: range.seq,
            op_id: range.op_id,
            sizes: around.sizes(range),
            key: (0, 0),
        };
        self.list.extend(around.numbered(chain).map(mark));
        if self.list.len() > 1 {
            self.list.reverse();
            self.sort(around);
            self.list
                .dedup_by_key(|m| (m.text, m.seq, m.op_id, m.sizes));
            self.prune(around);
        }
    }

    fn sort(&mut self, around: &RangeContexts<'_>) {
        let profile = &around.run.profile;
        self.keys.clear();
        for mark in &mut self.list {
            let start = self.keys.len();
            if let Some(seq) = mark.seq {
                push_number(&mut self.keys, seq.get());
            }
            self.keys
                .extend_from_slice(profile.text(mark.text).as_bytes());
            self.keys.extend_from_slice(b", seq");
            mark.key = (start, self.keys.len());
        }
        let keys = &self.keys;
        self.list.sort_by(|a, b| {
            let key = |mark: &Mark| keys.get(mark.key.0..mark.key.1);
            let text = |mark: &Mark| mark.range_template(around).filled(&mark.numbers());
            key(a).cmp(&key(b)).then_with(|| text(a).cmp(&text(b)))
        });
    }

    fn prune(&mut self, around: &RangeContexts<'_>) {
        let profile = &around.run.profile;
        let mut previous: Option<(&str, Option<SerialNumber>)> = None;
        self.list.retain(|mark| {
            let name = profile.text(mark.text);
            // All ranges with operator ids, which PyProf cannot parse, are kept: one of them has the
            // shapes.
            let number = mark.seq.filter(|_| mark.op_id.is_none());
            let similar = previous.is_some_and(|(other, before)| {
                number.is_some()
                    && number == before
                    && (name.contains(other) || other.contains(name))
            });
            previous = Some((name, number));
            !similar
        });
    }
}

impl Mark {
    fn numbers(&self) -> Vec<u64> {
        let both = [self.seq, self.op_id].into_iter().flatten();
        both.map(SerialNumber::get).collect()
    }

    /// The text as the program wrote it, without the numbers.
    fn range_template(&self, around: &RangeContexts<'_>) -> RangeTemplate {
        let profile = &around.run.profile;
        let mut text = profile.text(self.text).to_owned();
        let mut slots = [None; 2];
        let mut free = slots.iter_mut();
        for (number, key) in [(self.seq, ", seq = "), (self.op_id, ", op_id = ")] {
            if number.is_some() {
                text.push_str(key);
                if let Some(slot) = free.next() {
                    *slot = Some(text.len());
                }
            }
        }
        if let Some(sizes) = self.sizes {
            text.push_str(", sizes = ");
            text.push_str(profile.text(sizes));
        }
        RangeTemplate::new(text.into(), slots)
    }

    /// Whether the range is an autograd node: names end in `Backward`, in newer versions followed by
    /// digits.
    fn is_backward(&self, name: &str) -> bool {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        self.seq.is_some() && (stem.ends_with("Backward") || name.ends_with("backward"))
    }
}

/// Builds records from scans.
struct RecordBuilder<'a, 'r> {
    around: &'a RangeContexts<'r>,
    pool: TextPool,
    marks: Marks,
    /// By key.
    contexts: FxHashMap<Box<[u32]>, ContextId>,
    /// By context.
    counted: Vec<Counted>,
    operators: IndexSet<Vec<Text>, FxBuildHasher>,
    names: FxHashMap<StrId, NameId>,
    numbering: Numbering,
}

impl<'a, 'r> RecordBuilder<'a, 'r> {
    fn new(around: &'a RangeContexts<'r>) -> RecordBuilder<'a, 'r> {
        RecordBuilder {
            around,
            pool: TextPool::default(),
            marks: Marks::default(),
            contexts: FxHashMap::default(),
            counted: Vec::new(),
            operators: IndexSet::default(),
            names: FxHashMap::default(),
            numbering: Numbering::new(around.run.profile.threads.len()),
        }
    }

    /// Adds the records of a batch that begins with kernel `first`.
    fn take(&mut self, first: usize, scanned: &[Scanned], records: &mut Records) {
        for (
            at,
            Scanned {
                key,
                in_ranges,
                ids,
            },
        ) in (first..).zip(scanned)
        {
            let Some(origin) = Origin::of(self.around.run, at) else {
                continue;
            };
            let context = self.context(key, &origin, records);
            let numbers = match (origin.thread, self.counted.get(context.idx())) {
                (Some(thread), Some(counted)) => self.numbering.next(thread, ids, *counted),
                _ => SequenceColumns::default(),
            };
            self.push(&origin, context, in_ranges, &numbers, records);
        }
    }

    fn push(
        &mut self,
        origin: &Origin<'_>,
        context: ContextId,
        in_ranges: &[u64],
        numbers: &SequenceColumns<'_>,
        records: &mut Records,
    ) {
        let kernel = origin.kernel;
        let name = self.name(kernel, records);
        let profile = &self.around.run.profile;
        let thread = origin.thread.and_then(|t| profile.threads.get(t.idx()));
        let tid = records.tid(thread.map(|thread| thread.tid));
        let config = profile.config(kernel);
        let dims = records.dims(config.grid, config.block);
        let start = records.numbers.len();
        records.numbers.extend_from_slice(in_ranges);
        let seq = records.numbers.len();
        let own = |id: &&u64| Some(**id) == numbers.own;
        records.numbers.extend(numbers.ids.iter().filter(own));
        let alt = records.numbers.len();
        records
            .numbers
            .extend(numbers.ids.iter().filter(|id| !own(id)));
        let end = records.numbers.len();
        let device = profile.devices.get(kernel.device.idx());
        records.push(Execution {
            duration: kernel.span.ns(),
            sub: numbers.sub,
            numbers: start,
            counts: [count(start, seq), count(seq, alt), count(alt, end)],
            name,
            context,
            tid,
            dims,
            device: device.map_or(0, |d| d.ordinal),
            stream: kernel.stream,
            call: self.call(origin),
        });
    }

    /// The operator call of a kernel of a trace, in which every call has an event.
    fn call(&self, origin: &Origin<'_>) -> Option<u32> {
        let traced = self.around.run.profile.format.range_args == RangeArgs::TraceEvent;
        let op = origin.link.op.filter(|_| traced && origin.is_known());
        op.map(OpCallId::row)
    }

    fn name(&mut self, kernel: &Kernel, records: &mut Records) -> NameId {
        if let Some(known) = self.names.get(&kernel.name) {
            return *known;
        }
        let long = names::long(self.around.run.profile.text(kernel.name));
        let short = self.pool.text(&names::short(&long));
        let new = records.name(short, self.pool.text(&long));
        self.names.insert(kernel.name, new);
        new
    }

    fn context(&mut self, key: &[u32], origin: &Origin<'_>, records: &mut Records) -> ContextId {
        if let Some(known) = self.contexts.get(key) {
            return *known;
        }
        let context = if key.is_empty() {
            LaunchContext {
                dir: Dir::Na,
                mods: vec![self.pool.text("na")],
                ..LaunchContext::default()
            }
        } else {
            self.describe(origin)
        };
        let counted = Counted {
            dir: context.dir,
            ops: u32::try_from(self.operators.insert_full(context.ops.clone()).0)
                .unwrap_or(u32::MAX),
            cell: is_cell(&context),
        };
        let id = records.context(context);
        if id.idx() == self.counted.len() {
            self.counted.push(counted);
        }
        self.contexts.insert(key.into(), id);
        id
    }

    /// Sorts the ranges around a launch into PyProf's lists.
    fn describe(&mut self, origin: &Origin<'_>) -> LaunchContext {
        let (around, profile) = (self.around, &self.around.run.profile);
        let chain = around.chain(origin.scope);
        let mut context = LaunchContext::default();
        let mut frames = Vec::new();
        for effect in around.effects(chain) {
            match effect {
                Effect::Marker(text) => self.add_marker(&mut context, text),
                Effect::Layer(text) => {
                    let name = layer_name(profile.text(text)).unwrap_or_default();
                    context.layer.push(self.pool.text(name));
                }
                Effect::Repr(text) => context.reprs.push(self.pool.text(profile.text(text))),
                Effect::Frame(text) => frames.push(text),
                Effect::Trace(text) => {
                    if let PyprofRole::Trace(lines) = around.bin(text) {
                        context.trace = lines.iter().map(|line| self.pool.text(line)).collect();
                    }
                }
            }
        }
        self.marks.read(around, chain);
        let marks = std::mem::take(&mut self.marks);
        let backward = |m: &Mark| m.is_backward(profile.text(m.text));
        let recomputed = origin.op.is_some_and(|op| op.recomputed);
        if !recomputed && marks.list.iter().any(backward) {
            context.dir = Dir::Bprop;
        }
        if context.ops.is_empty() {
            self.name_operator(&mut context, &marks, around.other(chain));
        }
        context.seq_markers = marks
            .list
            .iter()
            .map(|m| m.range_template(around))
            .collect();
        self.marks = marks;
        if profile.format.range_args == RangeArgs::TraceEvent {
            let lines = event::trace(around.run, &frames, chain.stack);
            context.trace = lines.iter().map(|line| self.pool.text(line)).collect();
            self.take_from_trace(&mut context, origin.op);
        }
        context
    }

    fn add_marker(&mut self, context: &mut LaunchContext, text: StrId) {
        let PyprofRole::Marker(operator) = self.around.bin(text) else {
            return;
        };
        let text = self.around.run.profile.text(text);
        context.markers.push(self.pool.text(text));
        context.mods.push(self.pool.text(&operator.module));
        context.ops.push(self.pool.text(&operator.name));
    }

    /// Takes operator, arguments, layer and direction from a torch.profiler trace, which records them
    /// without markers.
    fn take_from_trace(&mut self, context: &mut LaunchContext, op: Option<&OpCall>) {
        let run = self.around.run;
        let layer = op.and_then(|op| event::layer(run, op.layer?));
        if context.layer.is_empty() {
            context.layer.extend(layer);
        }
        let Some(op) = op else { return };
        context.dir = match op.direction {
            Direction::Bprop => Dir::Bprop,
            _ => Dir::Fprop,
        };
        let Some(name) = run.op_name(op) else { return };
        let args = op.args.filter(|_| !op.args_from_forward);
        if let Some(args) = args.and_then(|args| run.args.get(args.idx())) {
            context.markers = vec![self.pool.text(&event::marker(name, args))];
        } else if op.args_from_forward || context.dir == Dir::Bprop {
            // For a backward node, the forward operator is more informative.
            return;
        }
        let module = match name.module.as_str() {
            "" => "na",
            module => module,
        };
        context.mods = vec![self.pool.text(module)];
        context.ops = vec![self.pool.text(&name.name)];
    }

    /// Names module and operator of a launch without PyProf's markers: by its backward nodes, otherwise
    /// by its numbered ranges, otherwise by the innermost range.
    fn name_operator(&mut self, context: &mut LaunchContext, marks: &Marks, other: Option<StrId>) {
        let profile = &self.around.run.profile;
        let name = |mark: &Mark| profile.text(mark.text);
        let mut ops: Vec<Text> = marks
            .list
            .iter()
            .map(name)
            .filter(|name| name.ends_with("backward") || name.ends_with("Backward"))
            .map(|name| self.pool.text(&forward_name(name)))
            .collect();
        if ops.is_empty() {
            let names = marks.list.iter().map(name);
            ops = names.map(|name| self.pool.text(name)).collect();
        }
        let na = self.pool.text("na");
        context.mods = vec![na; ops.len().max(1)];
        if let (true, Some(other)) = (ops.is_empty(), other) {
            ops.push(self.pool.text(profile.text(other)));
        }
        context.ops = ops;
    }
}

/// `NllLossBackward` -> `NllLoss`, `torch::autograd::X_backward` -> `X`.
fn forward_name(name: &str) -> String {
    let mut name = name.to_owned();
    for word in [
        "torch",
        "autograd",
        "_backward",
        "::",
        "jit",
        "(anonymous namespace)",
    ] {
        if name.contains(word) {
            name = name.replace(word, "");
        }
    }
    match name.split_once("Backward") {
        Some((forward, _)) => forward.to_owned(),
        None => name,
    }
}
