//! Samples of Python stacks (`nsys profile --python-sampling=true`).
//!
//! Two forms are read. In one, each sample is an NVTX mark in a domain of its own, whose payload holds a
//! number, the state of the thread, the number of frames, and for each frame, from the inside, the ids of its
//! function and file and its line. In the other, `PYTHON_SAMPLING_*` tables have the samples and their frames,
//! as `COMPOSITE_EVENTS` and `SAMPLING_CALLCHAINS` have those of the CPU.

use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::super::enums::{Enumeration, EventKind, event_kinds};
use super::super::nccl::{HEADER, bytes_of};
use super::super::{RANGES, process_key};
use super::{Distances, Filter, Rows, Tables};
use crate::base::units;
use crate::profile::{
    Profile, PythonSample, PythonSamples, RangeKind, StackFrame, Strings, ThreadId,
};
use crate::read::integer_rows::for_each_row;
use crate::read::names::StringTable;
use crate::read::reader::{Progress, ReadError};
use crate::read::sqlite::{Cells, Db, Sink};

/// The NVTX domain of the sampler.
pub(in crate::read::nsys) const SAMPLER_DOMAIN: &str = "Python Periodic Sampling";

/// How the tables of the other form begin.
const TABLES: &str = "PYTHON_SAMPLING_";
const SAMPLES_NEEDED: &[&str] = &["id", "start", "globalTid"];
const FRAMES_NEEDED: &[&str] = &[
    "id",
    "stackDepth",
    "symbol|function|functionId",
    "module|file|fileId",
];

/// Most different functions with their callers that are kept.
const MOST_FRAMES: usize = 500_000;
/// Frames of a stack that are kept, from the inside.
const DEPTH: usize = 256;

/// Where the file has such samples.
pub(super) enum SampleTables {
    None,
    /// Domains of marks, with their processes.
    Marks(Arc<FxHashSet<(i64, i64)>>),
    /// Tables of samples and of frames.
    Tables(String, String),
}

impl SampleTables {
    pub(super) fn of(
        db: &Db,
        domains: &[(i64, i64)],
        tables: &mut Tables,
    ) -> Result<SampleTables, ReadError> {
        if !domains.is_empty() {
            return Ok(SampleTables::Marks(Arc::new(
                domains.iter().copied().collect(),
            )));
        }
        let (mut samples, mut frames) = (None, None);
        let mut unknown = None;
        for name in db.table_names() {
            let is_one = (name.get(..TABLES.len())).is_some_and(|s| s.eq_ignore_ascii_case(TABLES));
            if !is_one {
                continue;
            }
            let Some(missing) = db.lacks(&name, SAMPLES_NEEDED)? else {
                continue;
            };
            if missing.is_empty() {
                samples = Some(name);
            } else if db.lacks(&name, FRAMES_NEEDED)? == Some(Vec::new()) {
                frames = Some(name);
            } else {
                unknown = Some(name);
            }
        }
        match (samples, frames, unknown) {
            (Some(samples), Some(frames), _) => return Ok(SampleTables::Tables(samples, frames)),
            (Some(table), None, _) => _ = tables.has(db, &table, FRAMES_NEEDED, WHAT)?,
            (None, Some(table), _) | (None, None, Some(table)) => {
                tables.has(db, &table, SAMPLES_NEEDED, WHAT)?;
            }
            (None, None, None) => {}
        }
        Ok(SampleTables::None)
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, SampleTables::None)
    }

    /// The samples that are kept.
    pub(super) fn samples(
        &self,
        db: &Db,
        rows: &mut Rows,
        profile: &mut Profile,
        progress: &dyn Progress,
    ) -> Result<Stacks, ReadError> {
        match self {
            SampleTables::None => Ok(Stacks::default()),
            SampleTables::Marks(domains) => marks(db, domains, rows, profile, progress),
            SampleTables::Tables(samples, frames) => tabled(db, samples, frames, rows, progress),
        }
    }
}

const WHAT: &str = "Python stacks";

/// Removes the marks of samples from the ranges.
pub(super) fn forget_marks(profile: &mut Profile) {
    let Some(domain) = profile.strings.find(SAMPLER_DOMAIN) else {
        return;
    };
    let is_sample = |kind, of| kind == RangeKind::Mark && of == Some(domain);
    (profile.ranges).retain(|range| !is_sample(range.kind, range.domain));
}

/// A frame: the ids of its function and its file, and its line.
type Frame = [i64; 3];

/// A frame and the row of its caller.
type Node = (Option<u32>, Frame);

/// Samples with their stacks, in which equal beginnings are kept once.
#[derive(Default)]
pub(super) struct Stacks {
    nodes: IndexSet<Node, FxBuildHasher>,
    samples: Vec<PythonSample>,
    sample_ns: i64,
}

impl Stacks {
    /// The row of the innermost frame of a stack, which is given from the inside. Frames beyond the limit are
    /// left out, from the inside.
    fn node(&mut self, stack: &[Frame]) -> Option<u32> {
        let mut caller = None;
        for frame in stack.iter().take(DEPTH).rev() {
            let node = (caller, *frame);
            if self.nodes.len() >= MOST_FRAMES && !self.nodes.contains(&node) {
                break;
            }
            let (row, _) = self.nodes.insert_full(node);
            caller = u32::try_from(row).ok();
        }
        caller
    }

    fn add(&mut self, thread: ThreadId, time: i64, stack: &[Frame]) {
        if let Some(frame) = self.node(stack) {
            self.samples.push(PythonSample {
                thread,
                time,
                frame,
            });
        }
    }

    fn finish(mut self, mut distances: Distances) -> Stacks {
        (self.samples).sort_by_key(|sample| (sample.thread, sample.time));
        self.sample_ns = distances.median();
        self
    }

    /// Ids of the string table.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        let ids = |(_, [function, file, _]): &Node| [*function, *file];
        self.nodes.iter().flat_map(ids)
    }

    /// The samples with the names of their functions.
    pub(super) fn named(self, table: &StringTable, strings: &mut Strings) -> PythonSamples {
        let mut text = |id: i64| {
            let text = table.get(id).map(str::trim).filter(|text| !text.is_empty());
            text.map(|text| strings.intern(text))
        };
        let frame = |(caller, [function, file, line]): Node| StackFrame {
            function: text(function),
            file: text(file),
            line: u32::try_from(line).unwrap_or(0),
            caller,
        };
        PythonSamples {
            frames: self.nodes.into_iter().map(frame).collect(),
            samples: self.samples,
            sample_ns: self.sample_ns,
        }
    }
}

/// What precedes the frames of a payload: a number of 8 bytes, then state and number of frames.
const BEFORE_FRAMES: usize = 16;
const FRAME: usize = 24;

/// The frames of a payload, from the inside; `None` if it has another layout.
fn frames(payload: &[u8]) -> Option<Vec<Frame>> {
    let number = |at: usize, bytes: usize| {
        let cell = payload.get(at..at.checked_add(bytes)?)?;
        Some(
            cell.iter()
                .rev()
                .fold(0_u64, |n, byte| n << 8 | u64::from(*byte)),
        )
    };
    let start = HEADER + BEFORE_FRAMES;
    let count = usize::try_from(number(start - 4, 4)?).ok()?;
    if payload.len() != count.checked_mul(FRAME)?.checked_add(start)? {
        return None;
    }
    let frame = |at: usize| {
        let word = |n: usize| Some(number(start + at * FRAME + 8 * n, 8)?.cast_signed());
        Some([word(0)?, word(1)?, word(2)?])
    };
    (0..count.min(DEPTH)).map(frame).collect()
}

/// The samples of one part of the table of ranges.
#[derive(Clone)]
struct Marks {
    filter: Arc<Filter>,
    domains: Arc<FxHashSet<(i64, i64)>>,
    kinds: Enumeration<EventKind>,
    /// Times of the samples of threads that use CUDA.
    times: Vec<(ThreadId, i64)>,
    /// Those in idle time, with their frames.
    samples: Vec<(ThreadId, i64, Vec<Frame>)>,
    without_payload: u64,
    damaged: u64,
}

const MARK_COLUMNS: [&str; 5] = ["start", "globalTid", "domainId", "eventType", "binaryData"];

impl Sink for Marks {
    fn row(&mut self, cells: &Cells<'_>) {
        let (Some(time), Some(global), Some(domain)) = (cells.int(0), cells.int(1), cells.int(2))
        else {
            return;
        };
        let is_mark = self.kinds.of(cells.int(3)) == Some(EventKind::Range(RangeKind::Mark));
        if !is_mark || !self.domains.contains(&(process_key(global), domain)) {
            return;
        }
        let Some(thread) = self.filter.thread(Some(global)) else {
            return;
        };
        self.times.push((thread, time));
        if !self.filter.is_idle_at(time) {
            return;
        }
        match cells.bytes(4).map(|cell| frames(&bytes_of(cell))) {
            Some(Some(frames)) => self.samples.push((thread, time, frames)),
            Some(None) => self.damaged += 1,
            None => self.without_payload += 1,
        }
    }
}

fn marks(
    db: &Db,
    domains: &Arc<FxHashSet<(i64, i64)>>,
    rows: &mut Rows,
    profile: &mut Profile,
    progress: &dyn Progress,
) -> Result<Stacks, ReadError> {
    let empty = Marks {
        filter: Arc::clone(&rows.filter),
        domains: Arc::clone(domains),
        kinds: event_kinds(db)?,
        times: Vec::new(),
        samples: Vec::new(),
        without_payload: 0,
        damaged: 0,
    };
    let mut stacks = Stacks::default();
    let mut distances = Distances::default();
    let (mut without_payload, mut damaged) = (0, 0);
    db.stream(RANGES, &MARK_COLUMNS, &empty, progress, |part| {
        without_payload += std::mem::take(&mut part.without_payload);
        damaged += std::mem::take(&mut part.damaged);
        for (thread, time) in part.times.drain(..) {
            distances.add(thread, time);
        }
        for (thread, time, stack) in part.samples.drain(..) {
            if !rows.is_full(stacks.samples.len(), time) {
                stacks.add(thread, time, &stack);
            }
        }
    })?;
    if without_payload > 0 {
        profile.note(
            "python_stacks_missing",
            "Python stacks were sampled, but the export has no payloads, which hold them; export again with \
             `nsys export --type sqlite --include-blobs=true`.",
        );
    }
    if damaged > 0 {
        profile.note(
            "python_stacks_unknown",
            format!(
                "Samples of Python stacks with another layout than is known, which are left out: {}.",
                units::count(damaged)
            ),
        );
    }
    Ok(stacks.finish(distances))
}

/// Rows of the table of frames.
#[derive(Clone, Default)]
struct FrameRows(Arc<FxHashSet<i64>>, Vec<(i64, i64, Frame)>);

const FRAME_COLUMNS: [&str; 5] = [
    "id",
    "stackDepth",
    "symbol|function|functionId",
    "module|file|fileId",
    "line|lineNumber",
];

impl Sink for FrameRows {
    fn row(&mut self, cells: &Cells<'_>) {
        let (Some(id), Some(depth)) = (cells.int(0), cells.int(1)) else {
            return;
        };
        if self.0.contains(&id) {
            let text = |column| cells.int(column).unwrap_or(-1);
            let line = cells.int(4).unwrap_or(0);
            self.1.push((id, depth, [text(2), text(3), line]));
        }
    }
}

/// Samples of the tables. The frames of one sample stand together.
fn tabled(
    db: &Db,
    samples: &str,
    frames: &str,
    rows: &mut Rows,
    progress: &dyn Progress,
) -> Result<Stacks, ReadError> {
    const COLUMNS: [&str; 3] = ["id", "start", "globalTid"];
    let mut distances = Distances::default();
    let mut kept: FxHashMap<i64, (ThreadId, i64)> = FxHashMap::default();
    let filter = Arc::clone(&rows.filter);
    for_each_row(db, samples, COLUMNS, progress, |row| {
        let [Some(id), Some(time), global] = row else {
            return;
        };
        let Some(thread) = filter.thread(global) else {
            return;
        };
        distances.add(thread, time);
        if filter.is_idle_at(time) && !rows.is_full(kept.len(), time) {
            kept.insert(id, (thread, time));
        }
    })?;
    let mut stacks = Stacks::default();
    let mut stack: Vec<(i64, Frame)> = Vec::new();
    let mut current: Option<i64> = None;
    let wanted = Arc::new(kept.keys().copied().collect());
    let mut take = |stacks: &mut Stacks, id: Option<i64>, stack: &mut Vec<(i64, Frame)>| {
        stack.sort_by_key(|(depth, _)| *depth);
        let frames: Vec<Frame> = stack.drain(..).map(|(_, frame)| frame).collect();
        if let Some((thread, time)) = id.and_then(|id| kept.remove(&id)) {
            stacks.add(thread, time, &frames);
        }
    };
    let empty = FrameRows(wanted, Vec::new());
    db.stream(frames, &FRAME_COLUMNS, &empty, progress, |part| {
        for (id, depth, frame) in part.1.drain(..) {
            if current != Some(id) {
                take(&mut stacks, current.replace(id), &mut stack);
            }
            if stack.len() < DEPTH {
                stack.push((depth, frame));
            }
        }
    })?;
    take(&mut stacks, current, &mut stack);
    Ok(stacks.finish(distances))
}
