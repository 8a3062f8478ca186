//! What host threads did while a GPU had no work: calls of the operating system and of cuDNN and cuBLAS, the
//! functions behind CUDA calls, samples of the CPU and of Python, and scheduling.
//!
//! These tables can be far larger than all others together. Rows are filtered while they are read: only
//! those of threads that use CUDA, in idle time of a GPU, are kept, and at most [`MOST_ROWS`] per table.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::enums;
use super::{DRIVER, RUNTIME, STRINGS};
use crate::base::statistics::median;
use crate::profile::{
    CpuSample, CudaCaller, HostActivity, OffCpu, OffCpuState, OsCall, OsCallClass, Profile,
    SHORTEST_GAP_NS, Span, StrId, Strings, ThreadId,
};
use crate::read::builder::Builder;
use crate::read::integer_rows::for_each_row;
use crate::read::names::StringTable;
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

mod callchains;
mod libraries;
mod python;

pub(super) use python::SAMPLER_DOMAIN;

const OS_CALLS: &str = "OSRT_API";
const OS_CALLCHAINS: &str = "OSRT_CALLCHAINS";
const CUDA_CALLCHAINS: &str = "CUDA_CALLCHAINS";
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

/// Adds the host's activity to the profile. Kernels, copies, calls and ranges must have been read; the marks
/// of samples of Python stacks are in these NVTX domains.
pub(super) fn add(
    db: &Db,
    sampler_domains: &[(i64, i64)],
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut tables = Tables::default();
    let has_os_calls = tables.has(
        db,
        OS_CALLS,
        &["start", "end", "globalTid", "nameId"],
        "calls of the operating system",
    )?;
    let has_accesses = tables.has(
        db,
        FILE_ACCESSES,
        &["threadId", "startedAt", "endedAt", "bytesProcessed"],
        "sizes of file accesses",
    )?;
    let has_samples = tables.has(db, SAMPLES, &["id", "start", "globalTid"], "CPU samples")?;
    let has_scheduling = tables.has(
        db,
        SCHEDULING,
        &["start", "isSchedIn", "globalTid"],
        "scheduling",
    )?;
    let has_cuda_chains = tables.has(
        db,
        CUDA_CALLCHAINS,
        callchains::NEEDED,
        "the functions behind CUDA calls",
    )?;
    let libraries = libraries::Sources::of(db, &mut tables, &builder.profile.strings)?;
    let python = python::SampleTables::of(db, sampler_domains, &mut tables)?;
    tables.note(&mut builder.profile);
    let has_calls = has_os_calls || has_accesses;
    if !(has_calls || has_samples || has_scheduling || has_cuda_chains)
        && libraries.is_empty()
        && python.is_none()
    {
        return Ok(());
    }
    let filter = Arc::new(Filter::of(builder));
    if filter.threads.is_empty() || filter.idle.is_empty() {
        python::forget_marks(&mut builder.profile);
        return Ok(());
    }
    let mut rows = Rows {
        filter,
        complete_until: None,
    };
    let calls = match has_calls {
        true => rows.os_calls(db, has_os_calls, has_accesses, progress)?,
        false => Vec::new(),
    };
    let cuda_calls = match has_cuda_chains {
        true => rows.cuda_calls(db, progress)?,
        false => Vec::new(),
    };
    let chains = calls.iter().map(|row| row.callchain);
    let callers = callchains::callers(db, OS_CALLCHAINS, chains, progress)?;
    let chains = cuda_calls.iter().map(|row| row.callchain);
    let cuda_callers = callchains::callers(db, CUDA_CALLCHAINS, chains, progress)?;
    let samples = match has_samples {
        true => rows.samples(db, progress)?,
        false => Samples::default(),
    };
    let frames = callchains::leaves(db, SAMPLE_CALLCHAINS, &samples, progress)?;
    let off_cpu = match has_scheduling {
        true => rows.off_cpu(db, progress)?,
        false => Vec::new(),
    };
    let library_calls = libraries.calls(db, &mut rows, &builder.profile, progress)?;
    let python = python.samples(db, &mut rows, &mut builder.profile, progress)?;

    let ids: FxHashSet<i64> = (calls.iter().filter_map(|row| row.name))
        .chain(callers.values().copied())
        .chain(cuda_callers.values().copied())
        .chain(frames.values().flat_map(|frame| frame.ids()))
        .chain(library_calls.ids())
        .chain(python.ids())
        .collect();
    let table = StringTable::read(db, STRINGS, ids, progress)?;
    let profile = &mut builder.profile;
    let mut names = FrameNames {
        table: &table,
        strings: &mut profile.strings,
        known: FxHashMap::default(),
    };
    let os_calls = calls.iter().map(|row| names.os_call(row, &callers));
    let os_calls = os_calls.collect();
    let samples_of = |row: &SampleRow| names.sample(row, frames.get(&row.id));
    let cpu_samples = samples.rows.iter().map(samples_of).collect();
    let with_names = |row: &CudaRow| names.cuda_caller(row, &cuda_callers);
    let cuda_callers = cuda_calls.iter().filter_map(with_names).collect();
    profile.host = HostActivity {
        os_calls,
        samples: cpu_samples,
        has_scheduling: !off_cpu.is_empty(),
        off_cpu,
        cuda_callers,
        library_calls: library_calls.named(&mut names),
        lock_waits: libraries.lock_waits(&rows.filter, &profile.ranges),
        python: python.named(&table, &mut profile.strings),
        sample_ns: samples.distance_ns,
        has_os_calls: has_calls,
        complete_until: rows.complete_until,
        ..HostActivity::default()
    };
    python::forget_marks(profile);
    if let Some(until) = rows.complete_until {
        note_incomplete(profile, until);
    }
    Ok(())
}

/// Which tables can be read, and what is left out of those that cannot.
#[derive(Debug, Default)]
struct Tables {
    unreadable: Vec<String>,
}

impl Tables {
    /// Whether a table has rows and these columns. `what` it tells is left out if it lacks one.
    fn has(
        &mut self,
        db: &Db,
        table: &str,
        columns: &[&'static str],
        what: &str,
    ) -> Result<bool, ReadError> {
        let Some(missing) = db.lacks(table, columns)? else {
            return Ok(false);
        };
        if let Some(column) = missing.first() {
            let name = column.replace('|', "` or `");
            (self.unreadable).push(format!("{what} (`{table}` has no column `{name}`)"));
        }
        Ok(missing.is_empty())
    }

    fn note(self, profile: &mut Profile) {
        if !self.unreadable.is_empty() {
            profile.note(
                "host_tables_unknown",
                format!(
                    "Left out, because their tables have another form than is known: {}.",
                    self.unreadable.join(", ")
                ),
            );
        }
    }
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
    /// The same by their numbers without process; `None` where several have one.
    by_tid: FxHashMap<i64, Option<ThreadId>>,
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
        let threads: FxHashMap<i64, ThreadId> = (builder.global_threads().into_iter())
            .filter(|(_, thread)| uses_cuda.get(thread.idx()) == Some(&true))
            .collect();
        let mut by_tid = FxHashMap::default();
        for (global, thread) in &threads {
            (by_tid.entry(*global & super::THREAD_BITS))
                .and_modify(|known| *known = None)
                .or_insert(Some(*thread));
        }
        Filter {
            threads,
            by_tid,
            idle: idle(profile),
        }
    }

    fn is_idle(&self, span: Span) -> bool {
        span.overlapping(&self.idle, |idle| *idle).next().is_some()
    }

    fn is_idle_at(&self, time: i64) -> bool {
        self.is_idle(Span {
            start: time,
            end: time.saturating_add(1),
        })
    }

    fn thread(&self, global: Option<i64>) -> Option<ThreadId> {
        self.threads.get(&global?).copied()
    }

    /// The thread with a number of the operating system.
    fn thread_of_number(&self, tid: Option<i64>) -> Option<ThreadId> {
        *self.by_tid.get(&(tid? & super::THREAD_BITS))?
    }

    /// The thread and the interval of a row that is kept. Marks of the profiler have no length.
    fn interval(&self, global: Option<i64>, start: Option<i64>, end: Option<i64>) -> Kept {
        self.interval_of(self.thread(global)?, start, end)
    }

    fn interval_of(&self, thread: ThreadId, start: Option<i64>, end: Option<i64>) -> Kept {
        let span = SkippedRows::default().span(start, end)?;
        (span.ns() > 0 && self.is_idle(span)).then_some((thread, span))
    }
}

/// The thread and the interval of a row, if it is kept.
type Kept = Option<(ThreadId, Span)>;

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

#[derive(Debug, Clone, Copy)]
struct OsRow {
    thread: ThreadId,
    span: Span,
    name: Option<i64>,
    /// What the call returned, or the bytes of a file access.
    returned: i64,
    /// Whether the row is a file access.
    is_access: bool,
    callchain: i64,
}

/// Rows of the calls, or of the file accesses. Those have the number of their thread without the process, and the
/// times of their call.
#[derive(Clone)]
struct OsRows {
    filter: Arc<Filter>,
    is_access: bool,
    rows: Vec<OsRow>,
}

const CALL_COLUMNS: &[&str] = &[
    "globalTid",
    "start",
    "end",
    "nameId",
    "returnValue",
    "callchainId",
];
const ACCESS_COLUMNS: &[&str] = &[
    "threadId",
    "startedAt",
    "endedAt",
    "apiCallId",
    "bytesProcessed",
];

impl Sink for OsRows {
    fn row(&mut self, cells: &Cells<'_>) {
        let thread = match self.is_access {
            true => self.filter.thread_of_number(cells.int(0)),
            false => self.filter.thread(cells.int(0)),
        };
        let kept =
            thread.and_then(|thread| (self.filter).interval_of(thread, cells.int(1), cells.int(2)));
        let Some((thread, span)) = kept else { return };
        self.rows.push(OsRow {
            thread,
            span,
            name: cells.int(3),
            returned: cells.int(4).unwrap_or(0),
            is_access: self.is_access,
            callchain: cells.int(5).unwrap_or(0),
        });
    }
}

/// A CUDA call with a callchain.
#[derive(Debug, Clone, Copy)]
struct CudaRow {
    thread: ThreadId,
    start: i64,
    callchain: i64,
}

impl Rows {
    /// The calls of the operating system, those of one thread without overlap. A file access that is not
    /// among the calls is one too.
    fn os_calls(
        &mut self,
        db: &Db,
        has_calls: bool,
        has_accesses: bool,
        progress: &dyn Progress,
    ) -> Result<Vec<OsRow>, ReadError> {
        let mut rows: Vec<OsRow> = Vec::new();
        let tables = [
            (OS_CALLS, CALL_COLUMNS, has_calls),
            (FILE_ACCESSES, ACCESS_COLUMNS, has_accesses),
        ];
        for (table, columns, _) in tables.into_iter().filter(|(.., has_rows)| *has_rows) {
            let empty = OsRows {
                filter: Arc::clone(&self.filter),
                is_access: table == FILE_ACCESSES,
                rows: Vec::new(),
            };
            let before = rows.len();
            db.stream(table, columns, &empty, progress, |part| {
                for row in part.rows.drain(..) {
                    if !self.is_full(rows.len() - before, row.span.start) {
                        rows.push(row);
                    }
                }
            })?;
        }
        rows.sort_by_key(|row| {
            let longest_first = std::cmp::Reverse(row.span.end);
            (row.thread, row.span.start, longest_first, row.is_access)
        });
        Ok(without_inner(rows))
    }

    /// The CUDA calls with callchains.
    fn cuda_calls(&mut self, db: &Db, progress: &dyn Progress) -> Result<Vec<CudaRow>, ReadError> {
        const COLUMNS: [&str; 4] = ["globalTid", "start", "end", "callchainId"];
        let mut rows: Vec<CudaRow> = Vec::new();
        let filter = Arc::clone(&self.filter);
        for table in [RUNTIME, DRIVER] {
            for_each_row(db, table, COLUMNS, progress, |row| {
                let [global, start, end, Some(callchain)] = row else {
                    return;
                };
                if callchain != 0
                    && let Some((thread, span)) = filter.interval(global, start, end)
                    && !self.is_full(rows.len(), span.start)
                {
                    rows.push(CudaRow {
                        thread,
                        start: span.start,
                        callchain,
                    });
                }
            })?;
        }
        rows.sort_by_key(|row| (row.thread, row.start));
        Ok(rows)
    }
}

/// Rows of one thread without those inside of others: what a call does inside another one is part of the outer
/// one. Of a call and its file access, one row remains, with the size of the access.
fn without_inner(rows: Vec<OsRow>) -> Vec<OsRow> {
    let mut kept: Vec<OsRow> = Vec::new();
    for mut row in rows {
        if let Some(last) = kept.last_mut().filter(|last| last.thread == row.thread) {
            if row.is_access && row.span.start == last.span.start && row.span.end <= last.span.end {
                let bytes = if last.is_access { last.returned } else { 0 };
                (last.returned, last.is_access) = (bytes.max(row.returned), true);
                continue;
            }
            if row.span.end <= last.span.end {
                if row.span.start == last.span.start && last.callchain == 0 {
                    last.callchain = row.callchain;
                }
                continue;
            }
            row.span.start = row.span.start.max(last.span.end);
        }
        kept.push(row);
    }
    kept
}

#[derive(Debug, Clone, Copy)]
struct SampleRow {
    thread: ThreadId,
    time: i64,
    id: i64,
}

#[derive(Default)]
struct Samples {
    rows: Vec<SampleRow>,
    /// Median distance between neighbours of one thread.
    distance_ns: i64,
}

/// Distances between the samples of each thread.
#[derive(Default)]
struct Distances {
    last: FxHashMap<ThreadId, i64>,
    all: Vec<i64>,
}

impl Distances {
    fn add(&mut self, thread: ThreadId, time: i64) {
        if let Some(before) = self.last.insert(thread, time)
            && self.all.len() < MOST_DISTANCES
            && time > before
        {
            self.all.push(time.saturating_sub(before));
        }
    }

    fn median(&mut self) -> i64 {
        median(&mut self.all).unwrap_or(0)
    }
}

impl Rows {
    fn samples(&mut self, db: &Db, progress: &dyn Progress) -> Result<Samples, ReadError> {
        const COLUMNS: [&str; 4] = ["id", "start", "globalTid", "threadState"];
        let mut rows: Vec<SampleRow> = Vec::new();
        let mut distances = Distances::default();
        let filter = Arc::clone(&self.filter);
        for_each_row(db, SAMPLES, COLUMNS, progress, |row| {
            let [Some(id), Some(time), global, state] = row else {
                return;
            };
            let Some(thread) = filter.thread(global) else {
                return;
            };
            if state.is_some_and(|state| state != RUNNING) {
                return;
            }
            distances.add(thread, time);
            if filter.is_idle_at(time) && !self.is_full(rows.len(), time) {
                rows.push(SampleRow { thread, time, id });
            }
        })?;
        rows.sort_by_key(|row| (row.thread, row.time));
        let distance_ns = distances.median();
        Ok(Samples { rows, distance_ns })
    }

    /// When threads were scheduled out and in again.
    fn off_cpu(&mut self, db: &Db, progress: &dyn Progress) -> Result<Vec<OffCpu>, ReadError> {
        const COLUMNS: [&str; 5] = [
            "start",
            "isSchedIn",
            "globalTid",
            "threadState",
            "threadBlock",
        ];
        let states = enums::thread_states(db)?;
        let blocks = enums::thread_blocks(db)?;
        let filter = Arc::clone(&self.filter);
        let mut events: Vec<(ThreadId, i64, Option<OffCpuState>)> = Vec::new();
        for_each_row(db, SCHEDULING, COLUMNS, progress, |row| {
            let [Some(time), Some(on), global, state, block] = row else {
                return;
            };
            if let Some(thread) = filter.thread(global)
                && !self.is_full(events.len(), time)
            {
                let known = blocks.of(block).or_else(|| states.of(state));
                let out = known.unwrap_or(OffCpuState::Unknown);
                events.push((thread, time, (on == 0).then_some(out)));
            }
        })?;
        // By time alone: an event that follows another at the same time stays behind it.
        events.sort_by_key(|(thread, time, _)| (*thread, *time));
        let mut off = Vec::new();
        for pair in events.windows(2) {
            let [(thread, out, Some(state)), (same, back, None)] = pair else {
                continue;
            };
            let span = Span {
                start: *out,
                end: *back,
            };
            if thread == same && span.ns() > 0 && filter.is_idle(span) {
                off.push(OffCpu {
                    thread: *thread,
                    span,
                    state: *state,
                });
            }
        }
        Ok(off)
    }
}

/// Names of frames, each looked up once.
struct FrameNames<'a> {
    table: &'a StringTable,
    strings: &'a mut Strings,
    known: FxHashMap<i64, Option<StrId>>,
}

impl FrameNames<'_> {
    fn os_call(&mut self, row: &OsRow, callers: &FxHashMap<i64, i64>) -> OsCall {
        let name = row.name.and_then(|id| self.name(id));
        let text = name.map_or("", |id| self.strings.get(id));
        let class = OsCallClass::of(text);
        let has_size = row.is_access || OsCallClass::returns_bytes(text);
        OsCall {
            thread: row.thread,
            span: row.span,
            name,
            class,
            bytes: match class {
                OsCallClass::Read | OsCallClass::Write if has_size => {
                    u64::try_from(row.returned).unwrap_or(0)
                }
                _ => 0,
            },
            caller: callers.get(&row.callchain).and_then(|id| self.name(*id)),
        }
    }

    fn cuda_caller(&mut self, row: &CudaRow, callers: &FxHashMap<i64, i64>) -> Option<CudaCaller> {
        let caller = callers.get(&row.callchain)?;
        Some(CudaCaller {
            thread: row.thread,
            start: row.start,
            caller: self.name(*caller)?,
        })
    }

    fn sample(&mut self, row: &SampleRow, frame: Option<&callchains::LeafFunction>) -> CpuSample {
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
            callchains::is_name(text.as_bytes()).then(|| strings.intern(text))
        })
    }

    /// The file name of a library. Its folder may name a person.
    fn module(&mut self, id: i64) -> Option<StrId> {
        let text = self.table.get(id)?;
        let file = text.rsplit(['/', '\\']).next().unwrap_or(text).trim();
        callchains::is_name(file.as_bytes()).then(|| self.strings.intern(file))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
