//! Builds PyProf's records from a run, and writes their lines.
//!
//! This is done in batches: the ranges around launches are looked up in parallel; then sequence
//! numbers, which depend on the previous kernel, are assigned sequentially; then lines are formatted in
//! parallel.

use std::io;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::context::ContextKey;
use super::enclosing_ranges::RangesAround;
use super::lines::LineFormat;
use super::names;
use super::numbered_ranges::{NumberedRange, SeqMarker};
use super::record::{BATCH, Dir, KernelName, LaunchContext, PIECE, Record};
use super::sequence::Numbering;
use crate::correlate::{OpCallId, Run, WithoutOperator};
use crate::profile::{Kernel, SerialNumber, StrId, ThreadId};

/// The records of all kernels, in order of start time, including those that PyProf drops.
pub fn records(run: &Run) -> impl Iterator<Item = Record> {
    batches(run).flatten()
}

/// Writes a line per kernel, as [`records`] returns them. `written` is called with the number of lines
/// written since the last call.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    out: &mut dyn io::Write,
    run: &Run,
    format: LineFormat,
    written: &dyn Fn(u64),
) -> io::Result<()> {
    let lines = |records: &[Record]| -> String {
        let lines = records.iter().map(|record| record.line(format) + "\n");
        lines.collect()
    };
    for batch in batches(run) {
        let pieces: Vec<String> = batch.par_chunks(PIECE).map(lines).collect();
        for piece in pieces {
            out.write_all(piece.as_bytes())?;
        }
        written(batch.len() as u64);
    }
    Ok(())
}

fn batches(run: &Run) -> impl Iterator<Item = Vec<Record>> {
    let mut builder = RecordBuilder {
        ranges: RangesAround::of(run),
        contexts: FxHashMap::default(),
        names: FxHashMap::default(),
        texts: FxHashMap::default(),
        numbering: Numbering::default(),
    };
    let starts = (0..run.profile.kernels.len()).step_by(BATCH);
    starts.map(move |first| builder.batch(first))
}

/// A kernel with what the ranges around its launch say.
struct Launch<'r> {
    kernel: &'r Kernel,
    thread: Option<ThreadId>,
    /// The number of its operator call in a torch.profiler trace.
    call: Option<OpCallId>,
    /// The key of its context; `None` if the launch is not known.
    context: Option<ContextKey>,
    /// The ranges with numbers around it, in PyProf's order.
    numbered: Vec<NumberedRange>,
    /// The distinct sequence numbers around it, ascending.
    ids: Vec<u64>,
}

impl<'r> Launch<'r> {
    fn of(ranges: &RangesAround<'r>, at: usize) -> Option<Launch<'r>> {
        let run = ranges.run;
        let kernel = run.profile.kernels.get(at)?;
        let link = run.links.get(at)?;
        let call = link.launch.and_then(|l| run.profile.call(l));
        let mut launch = Launch {
            kernel,
            thread: call.map(|call| call.thread),
            call: None,
            context: None,
            numbered: Vec::new(),
            ids: Vec::new(),
        };
        // The ranges around the replay of a CUDA graph do not describe its kernels.
        if launch.thread.is_none() || link.missing == Some(WithoutOperator::GraphReplay) {
            return Some(launch);
        }
        let scope = run.scope_of_work(kernel, link);
        let op = link.op.and_then(|op| run.op_call(op));
        let (key, numbered) = ContextKey::of(ranges, scope, op);
        launch.call = link.op.filter(|_| ranges.is_trace_event());
        launch.context = Some(key);
        launch.ids = (numbered.iter().filter_map(|range| Some(range.seq?.get()))).collect();
        launch.ids.sort_unstable();
        launch.ids.dedup();
        launch.numbered = numbered;
        Some(launch)
    }
}

/// Builds records in order of start time.
struct RecordBuilder<'r> {
    ranges: RangesAround<'r>,
    contexts: FxHashMap<Option<ContextKey>, Arc<LaunchContext>>,
    names: FxHashMap<StrId, Arc<KernelName>>,
    /// Texts of ranges.
    texts: FxHashMap<StrId, Arc<str>>,
    numbering: Numbering,
}

impl<'r> RecordBuilder<'r> {
    /// The records of the batch that begins with kernel `first`.
    fn batch(&mut self, first: usize) -> Vec<Record> {
        let kernels = self.ranges.run.profile.kernels.len();
        let launches: Vec<Launch<'r>> = (first..kernels.min(first + BATCH))
            .into_par_iter()
            .with_min_len(PIECE)
            .filter_map(|at| Launch::of(&self.ranges, at))
            .collect();
        launches.into_iter().map(|l| self.record(l)).collect()
    }

    fn record(&mut self, launch: Launch<'r>) -> Record {
        let profile = &self.ranges.run.profile;
        let kernel = launch.kernel;
        let context = self.context(launch.context);
        let thread = launch.thread.and_then(|t| profile.thread(t));
        let numbers = launch
            .thread
            .map(|thread| self.numbering.next(thread, &launch.ids, &context))
            .unwrap_or_default();
        let config = profile.config(kernel);
        let device = profile.device(kernel.device);
        Record {
            name: self.name(kernel.name),
            duration: kernel.span.ns().unsigned_abs(),
            context,
            seq_markers: self.seq_markers(&launch.numbered),
            seq: numbers.seq,
            sub: numbers.sub,
            alt: numbers.alt,
            tid: thread.map(|thread| thread.tid),
            device: device.map_or(0, |device| device.ordinal),
            stream: kernel.stream,
            call: launch.call.map(OpCallId::row),
            grid: config.grid,
            block: config.block,
        }
    }

    fn context(&mut self, key: Option<ContextKey>) -> Arc<LaunchContext> {
        if let Some(known) = self.contexts.get(&key) {
            return Arc::clone(known);
        }
        let unknown = || LaunchContext {
            dir: Dir::Na,
            mods: vec!["na".to_owned()],
            ..LaunchContext::default()
        };
        let context = key.as_ref().map(|key| key.describe(&self.ranges));
        let context = Arc::new(context.unwrap_or_else(unknown));
        self.contexts.insert(key, Arc::clone(&context));
        context
    }

    fn seq_markers(&mut self, ranges: &[NumberedRange]) -> Vec<SeqMarker> {
        let marker = |range: &NumberedRange| SeqMarker::Parts {
            name: self.text(range.name),
            seq: range.seq.map(SerialNumber::get),
            op_id: range.op_id.map(SerialNumber::get),
            sizes: range.sizes.map(|sizes| self.text(sizes)),
        };
        ranges.iter().map(marker).collect()
    }

    fn text(&mut self, id: StrId) -> Arc<str> {
        let text = || self.ranges.run.profile.text(id).into();
        Arc::clone(self.texts.entry(id).or_insert_with(text))
    }

    fn name(&mut self, name: StrId) -> Arc<KernelName> {
        let profile = &self.ranges.run.profile;
        let known = self.names.entry(name).or_insert_with(|| {
            let long = names::long(profile.text(name)).into_owned();
            let short = names::short(&long);
            Arc::new(KernelName { short, long })
        });
        Arc::clone(known)
    }
}
