//! What the profile of a host profiler says: time per function or line, and when.

use serde::{Deserialize, Serialize};

/// The largest file that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// Most functions and lines that are read.
pub(super) const MOST_READ: usize = 200_000;
/// Longest name of a file or function, in characters.
const MAX_NAME: usize = 300;
/// Most functions and lines that are kept, those with the longest time of their own.
pub(super) const MAX_LINES: usize = 10_000;
/// Most samples with a time that are read.
pub(super) const MOST_SAMPLES: usize = 2_000_000;

/// Most functions of a stack of a worker.
const DEPTH: usize = 256;

/// How profiles of `python -X importtime` are named.
pub const IMPORT_TIME: &str = "importtime";

/// A name, shortened: many functions may share a very long one.
pub(super) fn name(text: &str) -> String {
    text.trim().chars().take(MAX_NAME).collect()
}

/// A time in seconds since 1970 as ns; `None` if it is no date of this century.
pub(super) fn unix_ns(seconds: f64) -> Option<i64> {
    const CENTURY: std::ops::Range<f64> = 946_684_800.0..4_102_444_800.0;
    CENTURY
        .contains(&seconds)
        .then_some((seconds * 1e9).round() as i64)
}

/// A profile of the host, from a profiler of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostProfile {
    /// The profiler: `cProfile`.
    #[serde(skip)]
    pub profiler: &'static str,
    /// Functions or lines, longest time of their own first, then most memory.
    pub lines: Vec<HostLine>,
    /// Samples with the time of the calendar; `None` where the file has none.
    pub timed: Option<TimedSamples>,
    /// Samples with the time since the profiler was started, for [`HostProfile::started_at`].
    pub since_start: Option<TimedSamples>,
    /// Resident memory of the process over time, in time order; mostly empty.
    pub memory: Vec<MemorySample>,
    /// What worker processes of a DataLoader did; mostly empty.
    pub workers: Vec<WorkerStack>,
}

/// Time of worker processes of a DataLoader in one stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStack {
    /// The functions, from the innermost one to that of PyTorch that every worker runs.
    pub frames: Vec<HostLine>,
    /// The time, in ns.
    pub ns: f64,
}

impl WorkerStack {
    /// `_worker_loop` in torch/utils/data/_utils/worker.py.
    const LOOP: &str = "torch/utils/data/_utils/worker.py";

    /// The part of a stack, given from the inside, that a worker runs; `None` outside of workers.
    fn of(frames: impl Iterator<Item = HostLine>, ns: f64) -> Option<WorkerStack> {
        let mut inside = Vec::new();
        for frame in frames.take(DEPTH) {
            let is_loop = frame.file.replace('\\', "/").ends_with(Self::LOOP);
            inside.push(frame);
            if is_loop {
                let frames = inside;
                return Some(WorkerStack { frames, ns });
            }
        }
        None
    }
}

/// Stacks of workers while a file is read.
#[derive(Debug, Default)]
pub(super) struct WorkerStacks {
    pub(super) stacks: Vec<WorkerStack>,
    frames: usize,
}

impl WorkerStacks {
    /// Adds a stack, given from the inside, if a worker ran it. Small files may have many deep stacks.
    pub(super) fn add(&mut self, frames: impl Iterator<Item = HostLine>, ns: f64) {
        let is_full = self.stacks.len() >= MAX_LINES || self.frames >= MOST_READ;
        if is_full || !ns.is_finite() || ns < 0.0 {
            return;
        }
        if let Some(stack) = WorkerStack::of(frames, ns) {
            self.frames += stack.frames.len();
            self.stacks.push(stack);
        }
    }
}

/// Time of a function, or of a line of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLine {
    /// The file as the profiler names it; empty for built-in functions.
    pub file: String,
    /// The line, counted from 1; 0 where it is unknown.
    pub line: u32,
    /// The function; empty where only the line is known.
    pub function: String,
    /// How often it was called or reached; 0 where it is unknown.
    pub calls: u64,
    /// Time in it, without functions that it called, in ns. Of a line, with them. 0 where only memory was
    /// measured.
    pub self_ns: f64,
    /// By how much the memory of the process grew in it, in bytes; 0 where it is unknown.
    pub grown_bytes: f64,
}

/// Samples of the main thread of a program, with the time of the calendar.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimedSamples {
    /// Where samples were taken: functions or lines and their callers.
    pub places: Vec<CodePlace>,
    /// In time order.
    pub samples: Vec<HostSample>,
    /// By how much the times may be off, in ns.
    pub error_ns: i64,
    /// The process, where the file is known to be of one.
    pub pid: Option<u64>,
    /// Whether samples of worker processes are mixed with those of the program.
    pub mixes_workers: bool,
}

/// A function or line of a stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodePlace {
    /// Only file, line and function are filled in.
    pub line: HostLine,
    /// The row of its caller, which comes before it; `None` where it is not known.
    pub caller: Option<u32>,
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// When, in ns since 1970.
    pub unix_ns: i64,
    /// The time before it that it stands for, in ns, up to the sample before.
    pub weight_ns: i64,
    /// Its row in [`TimedSamples::places`].
    pub place: u32,
}

/// The resident memory of a process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemorySample {
    /// When, in ns since 1970.
    pub unix_ns: i64,
    /// In bytes.
    pub bytes: f64,
}

/// How profiles of `line_profiler` are named.
pub(super) const LINE_PROFILER: &str = "line_profiler";
/// How tables of Lightning's `SimpleProfiler` are named.
pub(super) const LIGHTNING: &str = "Lightning SimpleProfiler";

impl HostProfile {
    /// Whether the time of a line includes that of the functions it calls, so that lines overlap.
    pub fn includes_callees(&self) -> bool {
        [LINE_PROFILER, LIGHTNING].contains(&self.profiler)
    }

    /// Whether a line only encloses others of the profile: Lightning's `run_training_epoch` runs
    /// `run_training_batch` for each batch, and that runs the actions of the step
    /// (lightning/pytorch/loops/fit_loop.py and training_epoch_loop.py).
    pub fn is_enclosing(&self, line: &HostLine) -> bool {
        const OUTER: [&str; 2] = ["run_training_epoch", "run_training_batch"];
        let part = |line: &HostLine| line.function.ends_with(".optimizer_step");
        self.profiler == LIGHTNING
            && OUTER.contains(&line.function.as_str())
            && self.lines.iter().any(part)
    }

    /// All functions and lines in it, as often as they occur.
    pub(crate) fn all_lines_mut(&mut self) -> impl Iterator<Item = &mut HostLine> {
        let timed = self.timed.iter_mut().chain(&mut self.since_start);
        let places = timed.flat_map(|timed| &mut timed.places);
        let workers = (self.workers.iter_mut()).flat_map(|stack| &mut stack.frames);
        let lines = self.lines.iter_mut().chain(workers);
        lines.chain(places.map(|place| &mut place.line))
    }

    /// Gives the time of the calendar at which the profiler was started, which the file does not contain, and
    /// by how much it may be off.
    #[must_use]
    pub fn started_at(mut self, unix_ns: i64, error_ns: i64) -> HostProfile {
        if let Some(mut timed) = self.since_start.take() {
            for sample in &mut timed.samples {
                sample.unix_ns = sample.unix_ns.saturating_add(unix_ns);
            }
            timed.error_ns = error_ns;
            self.timed = Some(timed);
        }
        self
    }

    /// Sums the lines with the same place, and keeps the longest ones. Times that are no finite,
    /// non-negative numbers do not count.
    pub(super) fn of(profiler: &'static str, lines: impl IntoIterator<Item = HostLine>) -> Self {
        let mut places: indexmap::IndexMap<(String, u32, String), (u64, f64, f64)> =
            Default::default();
        for mut line in lines.into_iter().take(MOST_READ) {
            for text in [&mut line.file, &mut line.function] {
                if text.len() > MAX_NAME {
                    *text = name(text);
                }
            }
            let is_time = line.self_ns.is_finite() && line.self_ns >= 0.0;
            if is_time && line.grown_bytes.is_finite() {
                let place = (line.file, line.line, line.function);
                let sum = places.entry(place).or_insert((0, 0.0, 0.0));
                sum.0 = sum.0.saturating_add(line.calls);
                sum.1 += line.self_ns;
                sum.2 += line.grown_bytes;
            }
        }
        let lines = places.into_iter();
        let mut lines: Vec<HostLine> = lines
            .map(
                |((file, line, function), (calls, self_ns, grown_bytes))| HostLine {
                    file,
                    line,
                    function,
                    calls,
                    self_ns,
                    grown_bytes,
                },
            )
            .collect();
        lines.sort_by(|a, b| {
            let by_time = b.self_ns.total_cmp(&a.self_ns);
            by_time.then(b.grown_bytes.total_cmp(&a.grown_bytes))
        });
        lines.truncate(MAX_LINES);
        HostProfile {
            profiler,
            lines,
            ..HostProfile::default()
        }
    }
}
