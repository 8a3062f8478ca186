//! What host threads did while a GPU had no work: calls of the operating system, samples of the CPU and
//! scheduling.
//!
//! These tables can be far larger than all others together. Rows are filtered while they are read: only
//! those of threads that use CUDA, in idle time of a GPU, are kept, and at most [`MOST_ROWS`] per table.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::STRINGS;
use crate::base::statistics::median;
use crate::profile::{
    CpuSample, HostActivity, OsCall, OsCallClass, Profile, SHORTEST_GAP_NS, Span, StrId, Strings,
    ThreadId,
};
use crate::read::builder::Builder;
use crate::read::integer_rows::{columns, for_each_row};
use crate::read::names::StringTable;
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

const OS_CALLS: &str = "OSRT_API";
const OS_CALLCHAINS: &str = "OSRT_CALLCHAINS";
const FILE_ACCESSES: &str = "OSRT_FILE_ACCESS_EVENTS";
const SAMPLES: &str = "COMPOSITE_EVENTS";
const SAMPLE_CALLCHAINS: &str = "SAMPLING_CALLCHAINS";
const SCHEDULING: &str = "SCHED_EVENTS";

/// Rows of a table that are kept. Later ones are left out, and the analysis ends there.
#[cfg(not(test))]
const MOST_ROWS: usize = 2_000_000;
#[cfg(test)]
const MOST_ROWS: usize = 100_000;

/// Distances between samples that are enough for their median.
const MOST_DISTANCES: usize = 1_000_000;

/// `ENUM_SAMPLING_THREAD_STATE`: the thread was running. Older exports have no state, and sample only
/// running threads.
const RUNNING: i64 = 1;

/// Adds the host's activity to the profile. Kernels, copies and calls must have been read.
pub(super) fn add(
    db: &Db,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let has = |table| db.has_rows(table);
    let has_os_calls = has(OS_CALLS)?;
    if !(has_os_calls || has(SAMPLES)? || has(SCHEDULING)?) {
        return Ok(());
    }
    let filter = Arc::new(Filter::of(builder));
    if filter.threads.is_empty() || filter.idle.is_empty() {
        return Ok(());
    }
    let mut rows = Rows {
        filter,
        complete_until: None,
    };
    let calls = rows.os_calls(db, progress)?;
    let callers = callers(db, &calls, progress)?;
    let samples = rows.samples(db, progress)?;
    let frames = leaves(db, &samples.rows, progress)?;
    let off_cpu = rows.off_cpu(db, progress)?;
    let has_scheduling = !off_cpu.is_empty();

    let ids: FxHashSet<i64> = (calls.iter().filter_map(|row| row.name))
        .chain(callers.values().flatten().flat_map(|frame| frame.ids()))
        .chain(frames.values().flat_map(|frame| frame.ids()))
        .collect();
    let table = StringTable::read(db, STRINGS, ids, progress)?;
    let profile = &mut builder.profile;
    let mut names = FrameNames {
        table: &table,
        strings: &mut profile.strings,
        known: FxHashMap::default(),
    };
    let os_calls = calls
        .iter()
        .map(|row| names.os_call(row, &callers))
        .collect();
    let samples_of = |row: &SampleRow| names.sample(row, frames.get(&row.id));
    profile.host = HostActivity {
        os_calls,
        samples: samples.rows.iter().map(samples_of).collect(),
        off_cpu,
        sample_ns: samples.distance_ns,
        has_os_calls,
        has_scheduling,
        complete_until: rows.complete_until,
        ..HostActivity::default()
    };
    if let Some(until) = rows.complete_until {
        note_incomplete(profile, until);
    }
    Ok(())
}

fn note_incomplete(profile: &mut Profile, until: i64) {
    profile.note(
        "host_rows_left_out",
        format!(
            "The file holds more calls, samples or scheduling events of host threads than are analyzed; \
             what the host did is known for the first {} of the capture.",
            crate::base::units::ns(until as f64)
        ),
    );
}

/// Which rows are kept.
struct Filter {
    /// Threads that use CUDA, by `globalTid`.
    threads: FxHashMap<i64, ThreadId>,
    /// Time in which one of the GPUs had no work, in order.
    idle: Vec<Span>,
}

impl Filter {
    fn of(builder: &Builder) -> Filter {
        let profile = &builder.profile;
        let mut uses_cuda = vec![false; profile.threads.len()];
        for call in &profile.calls {
            if let Some(uses) = uses_cuda.get_mut(call.thread.idx()) {
                *uses = true;
            }
        }
        let threads = builder.global_threads().into_iter();
        Filter {
            threads: (threads)
                .filter(|(_, thread)| uses_cuda.get(thread.idx()) == Some(&true))
                .collect(),
            idle: idle(profile),
        }
    }

    fn is_idle(&self, span: Span) -> bool {
        let from = self.idle.partition_point(|idle| idle.end <= span.start);
        (self.idle.get(from)).is_some_and(|idle| idle.start < span.end)
    }

    fn thread(&self, global: Option<i64>) -> Option<ThreadId> {
        self.threads.get(&global?).copied()
    }
}

/// Time in which one of the GPUs had no work, from the first CUDA call on.
fn idle(profile: &Profile) -> Vec<Span> {
    let mut busy: Vec<Vec<Span>> = vec![Vec::new(); profile.devices.len()];
    let kernels = profile.kernels.iter().map(|k| (k.device, k.span));
    let copies = profile.copies.iter().map(|c| (c.device, c.span));
    let sets = profile.sets.iter().map(|s| (s.device, s.span));
    let graphs = profile.graphs.iter().map(|g| (g.device, g.span));
    for (device, span) in kernels.chain(copies).chain(sets).chain(graphs) {
        if let Some(busy) = busy.get_mut(device.idx()) {
            busy.push(span);
        }
    }
    let Some(begin) = profile.calls.iter().map(|call| call.span.start).min() else {
        return Vec::new();
    };
    let ends = busy.iter().flatten().map(|span| span.end);
    let Some(end) = ends.max() else {
        return Vec::new();
    };
    let mut idle = Vec::new();
    for busy in busy.into_iter().filter(|busy| !busy.is_empty()) {
        let mut now = begin;
        let last = Span { start: end, end };
        for span in Span::union(busy).into_iter().chain([last]) {
            let gap = Span {
                start: now,
                end: span.start,
            };
            if gap.ns() >= SHORTEST_GAP_NS {
                idle.push(gap);
            }
            now = now.max(span.end);
        }
    }
    Span::union(idle)
}

/// Reads the tables, as far as rows are kept.
struct Rows {
    filter: Arc<Filter>,
    complete_until: Option<i64>,
}

impl Rows {
    /// Whether a row with this start would be one too many. Rows are nearly in order of time.
    fn is_full(&mut self, kept: usize, start: i64) -> bool {
        let full = kept >= MOST_ROWS;
        if full {
            let until = self.complete_until.unwrap_or(i64::MAX);
            self.complete_until = Some(until.min(start));
        }
        full
    }
}

#[derive(Clone, Copy)]
struct OsRow {
    thread: ThreadId,
    tid: i64,
    span: Span,
    name: Option<i64>,
    bytes: u64,
    callchain: i64,
}

#[derive(Clone)]
struct OsRows {
    filter: Arc<Filter>,
    rows: Vec<OsRow>,
}

impl Sink for OsRows {
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "globalTid",
        "nameId",
        "returnValue",
        "callchainId",
    ];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        let global = cells.int(2);
        let Some(thread) = self.filter.thread(global) else {
            return;
        };
        let Some(span) = SkippedRows::default().span(cells.int(0), cells.int(1)) else {
            return;
        };
        // Marks of the profiler have no length.
        if span.ns() == 0 || !self.filter.is_idle(span) {
            return;
        }
        self.rows.push(OsRow {
            thread,
            tid: global.unwrap_or_default() & super::THREAD_BITS,
            span,
            name: cells.int(3),
            bytes: cells
                .int(4)
                .and_then(|n| u64::try_from(n).ok())
                .unwrap_or(0),
            callchain: cells.int(5).unwrap_or(0),
        });
    }
}

impl Rows {
    /// The calls of the operating system, those of one thread without overlap.
    fn os_calls(&mut self, db: &Db, progress: &dyn Progress) -> Result<Vec<OsRow>, ReadError> {
        let empty = OsRows {
            filter: Arc::clone(&self.filter),
            rows: Vec::new(),
        };
        let mut rows: Vec<OsRow> = Vec::new();
        db.stream(OS_CALLS, &empty, progress, |part| {
            for row in part.rows.drain(..) {
                if !self.is_full(rows.len(), row.span.start) {
                    rows.push(row);
                }
            }
        })?;
        rows.sort_by_key(|row| (row.thread, row.span.start, std::cmp::Reverse(row.span.end)));
        let mut last: Option<(ThreadId, i64)> = None;
        rows.retain_mut(|row| {
            // What a call does inside another one is part of the outer one.
            let until = last
                .filter(|(thread, _)| *thread == row.thread)
                .map(|l| l.1);
            if until.is_some_and(|until| row.span.end <= until) {
                return false;
            }
            row.span.start = row.span.start.max(until.unwrap_or(i64::MIN));
            last = Some((row.thread, row.span.end));
            true
        });
        self.read_sizes(db, &mut rows, progress)?;
        Ok(rows)
    }

    /// Bytes of file accesses, which have the number of their thread and the start of their call.
    fn read_sizes(
        &self,
        db: &Db,
        rows: &mut [OsRow],
        progress: &dyn Progress,
    ) -> Result<(), ReadError> {
        columns!(Accesses, ["threadId", "startedAt", "bytesProcessed"]);
        if rows.is_empty() || !db.has_rows(FILE_ACCESSES)? {
            return Ok(());
        }
        let mut by_start: FxHashMap<(i64, i64), usize> = FxHashMap::default();
        for (at, row) in rows.iter().enumerate() {
            by_start.insert((row.tid, row.span.start), at);
        }
        for_each_row(db, FILE_ACCESSES, Accesses, progress, |row| {
            let [Some(tid), Some(start), Some(bytes)] = row else {
                return;
            };
            let call = by_start.get(&(tid & super::THREAD_BITS, start));
            if let Some(row) = call.and_then(|at| rows.get_mut(*at))
                && let Ok(bytes) = u64::try_from(bytes)
            {
                row.bytes = row.bytes.max(bytes);
            }
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct SampleRow {
    thread: ThreadId,
    time: i64,
    id: i64,
}

struct Samples {
    rows: Vec<SampleRow>,
    /// Median distance between neighbours of one thread.
    distance_ns: i64,
}

impl Rows {
    fn samples(&mut self, db: &Db, progress: &dyn Progress) -> Result<Samples, ReadError> {
        columns!(Columns, ["id", "start", "globalTid", "threadState"]);
        let mut rows: Vec<SampleRow> = Vec::new();
        let mut distances: Vec<i64> = Vec::new();
        let mut last: FxHashMap<ThreadId, i64> = FxHashMap::default();
        let filter = Arc::clone(&self.filter);
        for_each_row(db, SAMPLES, Columns, progress, |row| {
            let [Some(id), Some(time), global, state] = row else {
                return;
            };
            let Some(thread) = filter.thread(global) else {
                return;
            };
            if state.is_some_and(|state| state != RUNNING) {
                return;
            }
            if let Some(before) = last.insert(thread, time)
                && distances.len() < MOST_DISTANCES
                && time > before
            {
                distances.push(time.saturating_sub(before));
            }
            let end = time.saturating_add(1);
            if filter.is_idle(Span { start: time, end }) && !self.is_full(rows.len(), time) {
                rows.push(SampleRow { thread, time, id });
            }
        })?;
        rows.sort_by_key(|row| (row.thread, row.time));
        let distance_ns = median(&mut distances).unwrap_or(0);
        Ok(Samples { rows, distance_ns })
    }

    /// When threads were scheduled out and in again.
    fn off_cpu(
        &mut self,
        db: &Db,
        progress: &dyn Progress,
    ) -> Result<Vec<(ThreadId, Span)>, ReadError> {
        columns!(Columns, ["start", "isSchedIn", "globalTid"]);
        let filter = Arc::clone(&self.filter);
        let mut events: Vec<(ThreadId, i64, bool)> = Vec::new();
        for_each_row(db, SCHEDULING, Columns, progress, |row| {
            let [Some(time), Some(on), global] = row else {
                return;
            };
            if let Some(thread) = filter.thread(global)
                && !self.is_full(events.len(), time)
            {
                events.push((thread, time, on != 0));
            }
        })?;
        // By time alone: an event that follows another at the same time stays behind it.
        events.sort_by_key(|(thread, time, _)| (*thread, *time));
        let mut off = Vec::new();
        for pair in events.windows(2) {
            let [(thread, out, false), (same, back, true)] = pair else {
                continue;
            };
            let span = Span {
                start: *out,
                end: *back,
            };
            if thread == same && span.ns() > 0 && filter.is_idle(span) {
                off.push((*thread, span));
            }
        }
        Ok(off)
    }
}

/// A function of a callchain by the ids of its name and its library.
#[derive(Debug, Clone, Copy)]
struct Frame {
    depth: i64,
    symbol: Option<i64>,
    module: Option<i64>,
}

impl Frame {
    fn ids(self) -> impl Iterator<Item = i64> {
        [self.symbol, self.module].into_iter().flatten()
    }
}

columns!(
    FrameColumns,
    ["id", "stackDepth", "symbol", "module", "unresolved"]
);

/// Frames of a callchain looked at from the inside, for one that tells more than the C library.
const DEPTH: i64 = 24;

/// The innermost frames of the callchains of calls, with resolved names, from the inside.
fn callers(
    db: &Db,
    calls: &[OsRow],
    progress: &dyn Progress,
) -> Result<FxHashMap<i64, Vec<Frame>>, ReadError> {
    let chains = calls.iter().map(|row| row.callchain).filter(|id| *id != 0);
    let mut frames: FxHashMap<i64, Vec<Frame>> = chains.map(|id| (id, Vec::new())).collect();
    if frames.is_empty() {
        return Ok(frames);
    }
    for_each_row(db, OS_CALLCHAINS, FrameColumns, progress, |row| {
        let [Some(id), Some(depth), symbol, module, unresolved] = row else {
            return;
        };
        if !(0..DEPTH).contains(&depth) || unresolved.is_some_and(|is| is != 0) {
            return;
        }
        if let Some(chain) = frames.get_mut(&id).filter(|c| c.len() < DEPTH as usize) {
            chain.push(Frame {
                depth,
                symbol,
                module,
            });
        }
    })?;
    for chain in frames.values_mut() {
        chain.sort_by_key(|frame| frame.depth);
    }
    Ok(frames)
}

/// The function that ran in each sample, by the id of the sample.
fn leaves(
    db: &Db,
    samples: &[SampleRow],
    progress: &dyn Progress,
) -> Result<FxHashMap<i64, Frame>, ReadError> {
    let mut wanted: FxHashMap<i64, Frame> = FxHashMap::default();
    if samples.is_empty() {
        return Ok(wanted);
    }
    let ids: FxHashSet<i64> = samples.iter().map(|row| row.id).collect();
    for_each_row(db, SAMPLE_CALLCHAINS, FrameColumns, progress, |row| {
        let [Some(id), Some(depth), symbol, module, unresolved] = row else {
            return;
        };
        if depth == 0 && ids.contains(&id) {
            let frame = Frame {
                depth,
                symbol: symbol.filter(|_| unresolved.is_none_or(|is| is == 0)),
                module,
            };
            wanted.insert(id, frame);
        }
    })?;
    Ok(wanted)
}

/// Libraries whose functions only pass a call on, by how their file names begin.
const PASSING_ON: &[&str] = &[
    "libc.",
    "libc-",
    "libpthread",
    "ld-",
    "libdl",
    "librt",
    "libcuda.",
    "libcudart",
    "libnvidia",
    "libToolsInjection",
    "libosrt",
    "[",
];

/// Names of frames, each looked up once.
struct FrameNames<'a> {
    table: &'a StringTable,
    strings: &'a mut Strings,
    known: FxHashMap<i64, Option<StrId>>,
}

impl FrameNames<'_> {
    fn os_call(&mut self, row: &OsRow, callers: &FxHashMap<i64, Vec<Frame>>) -> OsCall {
        let name = row.name.and_then(|id| self.name(id));
        let class = name.map_or(OsCallClass::Other, |id| {
            OsCallClass::of(self.strings.get(id))
        });
        let chain = callers.get(&row.callchain).map_or(&[][..], Vec::as_slice);
        let caller = chain.iter().find_map(|frame| {
            let module = frame.module.and_then(|id| self.module(id))?;
            let module = self.strings.get(module);
            let passes_on = PASSING_ON.iter().any(|start| module.starts_with(start));
            (!passes_on).then_some(frame.symbol).flatten()
        });
        OsCall {
            thread: row.thread,
            span: row.span,
            name,
            class,
            bytes: match class {
                OsCallClass::Read | OsCallClass::Write => row.bytes,
                _ => 0,
            },
            caller: caller.and_then(|id| self.name(id)),
        }
    }

    fn sample(&mut self, row: &SampleRow, frame: Option<&Frame>) -> CpuSample {
        CpuSample {
            thread: row.thread,
            time: row.time,
            function: frame.and_then(|f| f.symbol).and_then(|id| self.name(id)),
            module: frame.and_then(|f| f.module).and_then(|id| self.module(id)),
        }
    }

    /// A name; `None` for one that the file does not contain, and for addresses.
    fn name(&mut self, id: i64) -> Option<StrId> {
        let (table, strings) = (self.table, &mut *self.strings);
        *self.known.entry(id).or_insert_with(|| {
            let text = table.get(id)?.trim();
            let is_name = !text.is_empty() && !text.starts_with("0x") && !text.starts_with('[');
            is_name.then(|| strings.intern(text))
        })
    }

    /// The file name of a library. Its folder may name a person.
    fn module(&mut self, id: i64) -> Option<StrId> {
        let text = self.table.get(id)?;
        let file = text.rsplit(['/', '\\']).next().unwrap_or(text).trim();
        let is_name = !file.is_empty() && !file.starts_with('[') && !file.starts_with("0x");
        is_name.then(|| self.strings.intern(file))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
