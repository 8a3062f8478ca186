//! What the launching thread did while a device was idle: each gap is divided into recorded calls, time
//! off the CPU, Python functions, and the rest.
//!
//! The parts of a gap do not overlap and add up to it. The first of these that holds counts: the work
//! was launched already; waiting for Python's lock; a call of the operating system; the thread did not run; a
//! CUDA call; a call of cuDNN or cuBLAS; a Python function of the program; a sample of a Python stack. Samples
//! of the CPU are counted in the rest.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::host_parts::{HostPart, HostParts, HostTime, LateTime, PartSum, SampledFunction};
use super::model::{Gap, Timeline};
use super::pruning::OPERATORS;
use super::python_frame::{PythonFrame, place_and_function};
use super::range_syntax::is_library_domain;
use crate::host::Classes;
use crate::profile::{
    ClassId, HostRange, Profile, RangeKind, SHORTEST_GAP_NS, Span, StrId, ThreadId,
};

impl HostTime {
    /// Divides the gaps of a timeline, and the gaps in which code was loaded.
    pub(super) fn of(
        profile: &Profile,
        timeline: &Timeline,
        loads: &[Gap],
        classes: Arc<Classes>,
    ) -> HostTime {
        let has_functions = profile.ranges.iter().any(|r| r.kind == RangeKind::Python);
        if profile.host.is_empty() && !profile.host.has_os_calls && !has_functions {
            return HostTime {
                classes,
                ..HostTime::default()
            };
        }
        let devices = timeline.devices.iter().enumerate();
        let rows = devices.flat_map(|(row, device)| {
            let gaps = device.gaps.iter().enumerate();
            gaps.map(move |(at, gap)| {
                let thread = device.awaited_thread(profile, gap);
                (Some((row, at)), gap, thread)
            })
        });
        let rows = rows.chain(loads.iter().map(|gap| {
            let launch = gap.launch(profile);
            (None, gap, launch.map(|call| call.thread))
        }));
        let mut keys = Vec::new();
        let mut pauses = Vec::new();
        for (key, gap, thread) in rows {
            if let Some(pause) = thread.and_then(|thread| Pause::of(profile, gap, thread)) {
                keys.push(key);
                pauses.push(pause);
            }
        }
        let mut host = HostTime {
            has_os_calls: profile.host.has_os_calls,
            has_scheduling: profile.host.has_scheduling,
            sample_ns: profile.host.sample_ns,
            has_functions,
            classes,
            ..HostTime::default()
        };
        if has_functions {
            host.late = late(profile, timeline, &host.classes);
        }
        host.class_of_samples = class_of_samples(profile, &host.classes);
        let parts = divide(profile, &pauses, &host.classes);
        for (key, parts) in keys.into_iter().zip(parts) {
            match key {
                Some(key) => _ = host.gaps.insert(key, parts),
                None => host.loads.add(&parts),
            }
        }
        host
    }
}

/// The classes of sampled functions, as far as they have one.
fn class_of_samples(profile: &Profile, classes: &Classes) -> FxHashMap<SampledFunction, ClassId> {
    let samples = profile.host.samples.iter();
    let functions: FxHashSet<SampledFunction> = samples
        .map(|sample| (sample.function, sample.module))
        .collect();
    let text = |id: Option<StrId>| id.map_or("", |id| profile.text(id));
    let class = |function: SampledFunction| {
        let class = classes.of_sample(text(function.0), text(function.1))?;
        Some((function, class))
    };
    functions.into_iter().filter_map(class).collect()
}

/// Idle time of a device, and the thread that it waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    pub(crate) thread: ThreadId,
    pub(crate) span: Span,
    /// When the launch returned that ended the idle time; its end where none did.
    pub(crate) launched: i64,
}

impl Pause {
    fn of(profile: &Profile, gap: &Gap, thread: ThreadId) -> Option<Pause> {
        let launch = gap.launch(profile);
        let until = profile.host.complete_until.unwrap_or(i64::MAX);
        (gap.span.ns() >= SHORTEST_GAP_NS && gap.span.end <= until).then_some(Pause {
            thread,
            span: gap.span,
            launched: launch.map_or(gap.span.end, |launch| launch.span.end),
        })
    }
}

/// Intervals of one thread that do not overlap, in time order.
type Layer<T> = Vec<(Span, T)>;

/// The parts of each pause.
pub(crate) fn divide(profile: &Profile, pauses: &[Pause], classes: &Classes) -> Vec<HostParts> {
    let examined = examined(
        profile,
        pauses.iter().map(|pause| (pause.thread, pause.span)),
    );
    let calls = cuda_calls(profile, &examined);
    let functions = python_functions(profile, &examined, classes);
    let ranges = nvtx_ranges(profile, &examined);
    let (no_calls, none) = (Vec::new(), Vec::new());
    let layers = |pause: &Pause| {
        let thread = pause.thread.idx();
        let calls = calls.get(thread).unwrap_or(&no_calls);
        let functions = functions.get(thread).unwrap_or(&none);
        (calls, functions, ranges.get(thread).unwrap_or(&none))
    };
    pauses
        .iter()
        .map(|pause| parts(profile, pause, layers(pause)))
        .collect()
}

/// These spans by thread, in time order and without overlap.
fn examined(profile: &Profile, spans: impl Iterator<Item = (ThreadId, Span)>) -> Vec<Vec<Span>> {
    let mut examined: Vec<Vec<Span>> = vec![Vec::new(); profile.threads.len()];
    for (thread, span) in spans {
        if let Some(spans) = examined.get_mut(thread.idx()) {
            spans.push(span);
        }
    }
    for spans in &mut examined {
        *spans = Span::union(std::mem::take(spans));
    }
    examined
}

/// Idle time before late launches that recording cannot explain and in which no operator ran, by the function
/// of the program that took most of each gap.
fn late(profile: &Profile, timeline: &Timeline, classes: &Classes) -> FxHashMap<StrId, LateTime> {
    let late: Vec<(ThreadId, &Gap)> = (timeline.late_launches())
        .filter_map(|gap| Some((gap.launch(profile)?.thread, gap)))
        .collect();
    let examined = examined(
        profile,
        late.iter().map(|(thread, gap)| (*thread, gap.span)),
    );
    let functions = python_functions(profile, &examined, classes);
    let operators = spans_of(profile, &examined, |range| range.kind == RangeKind::CpuOp);
    let modules = spans_of(profile, &examined, |range| {
        range.kind == RangeKind::Python && profile.text(range.text).starts_with(MODULE)
    });
    let mut times: FxHashMap<StrId, LateTime> = FxHashMap::default();
    for (thread, gap) in late {
        let own = functions.get(thread.idx()).map_or(&[][..], Vec::as_slice);
        let operators = operators.get(thread.idx()).map_or(&[][..], Vec::as_slice);
        let modules = modules.get(thread.idx()).map_or(&[][..], Vec::as_slice);
        let mut inside: FxHashMap<StrId, LateTime> = FxHashMap::default();
        for (span, function) in gap.span.overlapping(own, |(span, _)| *span) {
            let span = span.clip(gap.span);
            let time = inside.entry(function.name).or_default();
            time.ns += span.ns() - covered(span, operators);
            time.in_modules_ns += covered(span, modules);
        }
        let longest = inside
            .into_iter()
            .max_by_key(|(name, time)| (time.ns, Reverse(*name)));
        if let Some((name, time)) = longest {
            let part = |ns: i64| {
                let share = ns as f64 / gap.span.ns().max(1) as f64;
                (gap.reliable_ns as f64 * share) as i64
            };
            let sum = times.entry(name).or_default();
            sum.ns = sum.ns.saturating_add(part(time.ns));
            let in_modules = part(time.in_modules_ns.min(time.ns));
            sum.in_modules_ns = sum.in_modules_ns.saturating_add(in_modules);
        }
    }
    times
}

/// How the names of the events begin that torch.profiler writes for calls of modules.
const MODULE: &str = "nn.Module: ";

/// When at least one of the ranges for which `such` holds is open, by thread, as far as examined.
fn spans_of(
    profile: &Profile,
    examined: &[Vec<Span>],
    such: impl Fn(&HostRange) -> bool,
) -> Vec<Vec<Span>> {
    let mut found: Vec<Vec<Span>> = vec![Vec::new(); profile.threads.len()];
    for range in profile.ranges.iter().filter(|range| such(range)) {
        let at = range.thread.idx();
        if let (Some(spans), Some(found)) = (examined.get(at), found.get_mut(at))
            && touches(spans, range.span)
        {
            found.push(range.span);
        }
    }
    found.into_iter().map(Span::union).collect()
}

/// How much of a span these cover, in ns. They do not overlap.
fn covered(span: Span, by: &[Span]) -> i64 {
    let parts = span.overlapping(by, |span| *span);
    parts.map(|part| part.clip(span).ns()).sum()
}

/// The rows of a thread in a table that is sorted by thread.
fn of_thread<T>(rows: &[T], thread: ThreadId, owner: impl Fn(&T) -> ThreadId) -> &[T] {
    let from = rows.partition_point(|row| owner(row) < thread);
    let until = rows.partition_point(|row| owner(row) <= thread);
    rows.get(from..until).unwrap_or_default()
}

/// The rows of a thread with a time in a span.
fn within<T>(rows: &[T], span: Span, time: impl Fn(&T) -> i64) -> &[T] {
    let from = rows.partition_point(|row| time(row) < span.start);
    let until = rows.partition_point(|row| time(row) < span.end);
    rows.get(from..until).unwrap_or_default()
}

/// The rows with a time in one of these spans. Both are in time order.
fn inside_of<'a, T>(
    rows: &'a [T],
    spans: &'a [Span],
    time: impl Fn(&T) -> i64,
) -> impl Iterator<Item = &'a T> {
    let mut spans = spans.iter().peekable();
    rows.iter().filter(move |row| {
        let time = time(row);
        while spans.next_if(|span| span.end <= time).is_some() {}
        spans.peek().is_some_and(|span| span.contains(time))
    })
}

/// Gaps shorter than this many times the error of its clock are not estimated from the samples of a
/// profiler of the host.
const LEAST_ERRORS: i64 = 5;

fn parts(
    profile: &Profile,
    pause: &Pause,
    (calls, functions, ranges): (&Layer<CudaCall>, &Layer<Doing>, &Layer<Doing>),
) -> HostParts {
    let mut found = HostParts {
        ns: pause.span.ns(),
        gaps: 1,
        ..HostParts::default()
    };
    let until = pause.launched.clamp(pause.span.start, pause.span.end);
    let waiting = Span {
        start: pause.span.start,
        end: until,
    };
    found.take(
        HostPart::Launched,
        pause.span.end.saturating_sub(until),
        1,
        0,
    );
    let host = &profile.host;
    let mut free = vec![waiting];

    let own = of_thread(&host.lock_waits, pause.thread, |(thread, _)| *thread);
    let waits = waiting.overlapping(own, |(_, span)| *span);
    let waits = waits.map(|(_, span)| (*span, (HostPart::PythonLock, 0)));
    free = found.subtract(free, waits.collect());

    let inside = |time: i64| {
        let at = calls.partition_point(|(span, _)| span.end <= time);
        let call = calls.get(at).filter(|(span, _)| span.contains(time));
        call.map(|(_, call)| *call)
    };
    let own = of_thread(&host.os_calls, pause.thread, |call| call.thread);
    let os_calls = waiting.overlapping(own, |call| call.span).map(|call| {
        let inside = inside(call.span.start.max(waiting.start));
        let part = HostPart::OsCall {
            class: call.class,
            name: call.name,
            inside: inside.map(|inside| inside.name),
            caller: inside.and_then(|inside| inside.caller).or(call.caller),
        };
        (call.span, (part, call.bytes))
    });
    free = found.subtract(free, os_calls.collect());

    let own = of_thread(&host.off_cpu, pause.thread, |off| off.thread);
    let off = waiting.overlapping(own, |off| off.span);
    let off = off.map(|off| (off.span, (HostPart::OffCpu(off.state), 0)));
    free = found.subtract(free, off.collect());

    let calls = waiting.overlapping(calls, |(span, _)| *span);
    let calls = calls.map(|(span, CudaCall { name, caller })| {
        let (name, caller) = (*name, *caller);
        (*span, (HostPart::CudaCall { name, caller }, 0))
    });
    free = found.subtract(free, calls.collect());

    let own = of_thread(&host.library_calls, pause.thread, |call| call.thread);
    let calls = waiting.overlapping(own, |call| call.span);
    let calls = calls.map(|call| (call.span, (HostPart::LibraryCall(call.name), 0)));
    free = found.subtract(free, calls.collect());

    let functions = waiting.overlapping(functions, |(span, _)| *span);
    let functions = functions.map(|(span, doing)| {
        let Doing { name, class } = *doing;
        (*span, (HostPart::Function { name, class }, 0))
    });
    let without_calls = free.clone();
    free = found.subtract(free, functions.collect());
    let without_functions = free.clone();
    free = found.estimate(free, profile, pause, waiting);
    // Time that another profiler has explained is not explained twice.
    let sampled = match free == without_functions {
        true => &without_calls,
        false => &free,
    };
    let own = of_thread(&profile.host.samples, pause.thread, |sample| sample.thread);
    let own = within(own, waiting, |sample| sample.time);
    for sample in inside_of(own, sampled, |sample| sample.time) {
        let function = (sample.function, sample.module);
        *found.samples.entry(function).or_default() += 1;
    }
    let ranges = waiting.overlapping(ranges, |(span, _)| *span);
    let ranges = ranges.map(|(span, doing)| (*span, (HostPart::Rest(Some(doing.name)), 0)));
    for span in found.subtract(free, ranges.collect()) {
        found.take(HostPart::Rest(None), span.ns(), 1, 0);
    }
    found
}

impl HostParts {
    fn take(&mut self, part: HostPart, ns: i64, count: u64, bytes: u64) {
        if ns > 0 {
            self.parts.entry(part).or_default().add(PartSum {
                ns,
                count,
                bytes,
                sized: u64::from(bytes > 0),
            });
        }
    }

    /// Counts what the samples of a profiler of the host take of the free time, and returns what they leave.
    /// Each stands for time before it, in the gap and after the sample before.
    fn estimate(
        &mut self,
        free: Vec<Span>,
        profile: &Profile,
        pause: &Pause,
        waiting: Span,
    ) -> Vec<Span> {
        let host = &profile.host;
        if pause.span.ns() < LEAST_ERRORS.saturating_mul(host.timed_error_ns) {
            return free;
        }
        let own = of_thread(&host.timed, pause.thread, |sample| sample.thread);
        let own = within(own, waiting, |sample| sample.time);
        let mut last = waiting.start;
        let stand_for = own.iter().map(|sample| {
            let start = sample.time.saturating_sub(sample.weight_ns).max(last);
            let end = sample.time;
            last = end;
            let (place, class) = (sample.place, sample.class);
            (Span { start, end }, HostPart::Sampled { place, class })
        });
        let stand_for: Layer<HostPart> = stand_for.collect();
        let stand_for: Layer<HostPart> = inside_of(&stand_for, &free, |(span, _)| span.end)
            .copied()
            .collect();
        for (_, part) in &stand_for {
            self.parts.entry(*part).or_default().count += 1;
        }
        let (left, taken) = subtracted(free, stand_for);
        for (span, part, _) in taken {
            let part = self.parts.entry(part).or_default();
            part.ns = part.ns.saturating_add(span.ns());
        }
        left
    }

    /// Counts what the rows take of the free time, and returns what they leave. Both are in time order
    /// and without overlap.
    fn subtract(&mut self, free: Vec<Span>, rows: Layer<(HostPart, u64)>) -> Vec<Span> {
        let (left, taken) = subtracted(free, rows);
        for (span, (part, bytes), is_first) in taken {
            let (count, bytes) = if is_first { (1, bytes) } else { (0, 0) };
            self.take(part, span.ns(), count, bytes);
        }
        left
    }
}

/// What the rows leave of the free time, and what they take of it, with a flag for the first piece of a row.
/// Both are in time order and without overlap.
fn subtracted<T: Copy>(free: Vec<Span>, rows: Layer<T>) -> (Vec<Span>, Vec<(Span, T, bool)>) {
    let mut parts = Vec::new();
    let mut is_first = true;
    if rows.is_empty() {
        return (free, parts);
    }
    let mut left = Vec::with_capacity(free.len());
    let mut rows = rows.into_iter().peekable();
    for span in free {
        let mut now = span.start;
        while let Some((row, part)) = rows.peek() {
            if row.start >= span.end {
                break;
            }
            let taken = Span {
                start: row.start.max(now),
                end: row.end.min(span.end),
            };
            if taken.ns() > 0 {
                if taken.start > now {
                    left.push(Span {
                        start: now,
                        end: taken.start,
                    });
                }
                parts.push((taken, *part, is_first));
                is_first = false;
                now = taken.end;
            }
            if row.end > span.end {
                break;
            }
            rows.next();
            is_first = true;
        }
        if now < span.end {
            left.push(Span {
                start: now,
                end: span.end,
            });
        }
    }
    (left, parts)
}

/// A CUDA call, and the function that made it.
#[derive(Debug, Clone, Copy)]
struct CudaCall {
    name: StrId,
    caller: Option<StrId>,
}

/// CUDA calls in the examined time, by thread. Of a runtime call and the driver calls in it, the first.
fn cuda_calls(profile: &Profile, examined: &[Vec<Span>]) -> Vec<Layer<CudaCall>> {
    let callers = &profile.host.cuda_callers;
    let caller = |thread: ThreadId, start: i64| {
        let key = (thread, start);
        let at = callers.partition_point(|row| (row.thread, row.start) < key);
        let row = callers.get(at)?;
        ((row.thread, row.start) == key).then_some(row.caller)
    };
    let mut calls: Vec<Layer<CudaCall>> = vec![Vec::new(); examined.len()];
    for call in &profile.calls {
        let at = call.thread.idx();
        let (Some(spans), Some(calls)) = (examined.get(at), calls.get_mut(at)) else {
            continue;
        };
        if !touches(spans, call.span) {
            continue;
        }
        let start = calls
            .last()
            .map_or(call.span.start, |(last, _)| call.span.start.max(last.end));
        if call.span.end > start {
            let end = call.span.end;
            let (name, caller) = (call.name, caller(call.thread, call.span.start));
            calls.push((Span { start, end }, CudaCall { name, caller }));
        }
    }
    calls
}

fn touches(spans: &[Span], span: Span) -> bool {
    span.overlapping(spans, |span| *span).next().is_some()
}

/// The event in which Python collects garbage: torch/csrc/profiler/collection.cpp.
pub(crate) const GARBAGE_COLLECTION: &str = "Python GC";

/// A function of the program that runs, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Doing {
    name: StrId,
    class: Option<ClassId>,
}

/// The Python function of the program that runs, by thread: the innermost one that is not part of
/// Python or a library, or where there is none, the innermost one. Its class is that of the innermost function
/// that has one.
fn python_functions(
    profile: &Profile,
    examined: &[Vec<Span>],
    classes: &Classes,
) -> Vec<Layer<Doing>> {
    let mut meanings: FxHashMap<StrId, Meaning> = FxHashMap::default();
    let such =
        |range: &HostRange, spans: &[Span]| range.kind == RangeKind::Python && !spans.is_empty();
    innermost(profile, examined, such, |range, outer| {
        let meaning = *meanings
            .entry(range.text)
            .or_insert_with(|| Meaning::of(profile.text(range.text), classes));
        let class = classes.inside(outer.and_then(|open| open.class), meaning.class);
        let outer = outer.and_then(|open| open.function);
        let function = match (meaning.is_of_program, outer) {
            (Some(true), _) | (Some(false), None | Some((_, false))) => {
                (meaning.is_of_program).map(|own| (range.text, own))
            }
            _ => outer,
        };
        (function, class)
    })
}

/// The innermost NVTX range, by thread. Markers of PyProf are no names, and calls of libraries are known.
fn nvtx_ranges(profile: &Profile, examined: &[Vec<Span>]) -> Vec<Layer<Doing>> {
    // Readers leave out most operators of PyTorch.
    let such = |range: &HostRange, spans: &[Span]| {
        range.kind == RangeKind::PushPop
            && touches(spans, range.span)
            && !profile.text(range.text).starts_with(OPERATORS)
    };
    innermost(profile, examined, such, |range, outer| {
        let text = profile.text(range.text);
        let domain = range.domain.map(|domain| profile.text(domain));
        let is_name = !text.is_empty() && !text.starts_with('{');
        let function = match is_name && !domain.is_some_and(is_library_domain) {
            true => Some((range.text, true)),
            false => outer.and_then(|open| open.function),
        };
        (function, None)
    })
}

/// What the innermost of the ranges for which `such` holds names, by thread. `naming` tells what a range names, and its
/// class, from the one around it.
fn innermost(
    profile: &Profile,
    examined: &[Vec<Span>],
    such: impl Fn(&HostRange, &[Span]) -> bool,
    mut naming: impl FnMut(&HostRange, Option<&OpenFunction>) -> (Option<Named>, Option<ClassId>),
) -> Vec<Layer<Doing>> {
    let mut threads: Vec<FunctionStack> = Vec::new();
    threads.resize_with(examined.len(), FunctionStack::default);
    for range in &profile.ranges {
        let at = range.thread.idx();
        let (Some(spans), Some(thread)) = (examined.get(at), threads.get_mut(at)) else {
            continue;
        };
        if such(range, spans) {
            thread.advance(range.span.start, spans);
            let (function, class) = naming(range, thread.open.last());
            thread.open.push(OpenFunction {
                end: range.span.end,
                function,
                class,
            });
        }
    }
    let threads = threads.into_iter().zip(examined);
    threads
        .map(|(mut thread, spans)| {
            thread.advance(i64::MAX, spans);
            thread.found
        })
        .collect()
}

/// What the name of a range of Python tells.
#[derive(Debug, Clone, Copy)]
struct Meaning {
    /// Whether it is a function of the program; `None` for what is no function in a file.
    is_of_program: Option<bool>,
    class: Option<ClassId>,
}

impl Meaning {
    fn of(text: &str, classes: &Classes) -> Meaning {
        if text.starts_with(GARBAGE_COLLECTION) {
            return Meaning {
                is_of_program: Some(true),
                class: classes.of("", "<built-in function collect>"),
            };
        }
        let Some(frame) = PythonFrame::parse(text) else {
            return Meaning {
                is_of_program: None,
                class: classes.of("", text),
            };
        };
        let function = place_and_function(text);
        let class = classes.of(frame.path, function.map_or("", |(_, name)| name));
        let library = class.is_some_and(|class| classes.is_of_libraries(class));
        Meaning {
            is_of_program: Some(!frame.is_internal() && !library),
            class,
        }
    }
}

/// The function to name, and whether it is one of the program.
type Named = (StrId, bool);

/// A function that has not ended.
#[derive(Debug, Clone, Copy)]
struct OpenFunction {
    end: i64,
    function: Option<Named>,
    class: Option<ClassId>,
}

/// The open functions of a thread while its ranges are walked through in order of their starts.
#[derive(Debug)]
struct FunctionStack {
    open: Vec<OpenFunction>,
    now: i64,
    found: Layer<Doing>,
}

impl Default for FunctionStack {
    fn default() -> FunctionStack {
        FunctionStack {
            open: Vec::new(),
            now: i64::MIN,
            found: Vec::new(),
        }
    }
}

impl FunctionStack {
    /// Notes which functions ran up to a time.
    fn advance(&mut self, time: i64, examined: &[Span]) {
        while let Some(top) = self.open.last().copied() {
            let until = top.end.min(time);
            self.note(until, top, examined);
            self.now = self.now.max(until);
            if top.end > time {
                return;
            }
            self.open.pop();
        }
        self.now = self.now.max(time);
    }

    fn note(&mut self, until: i64, top: OpenFunction, examined: &[Span]) {
        let span = Span {
            start: self.now,
            end: until,
        };
        let Some((name, _)) = top.function.filter(|_| span.ns() > 0) else {
            return;
        };
        let class = top.class;
        let doing = Doing { name, class };
        match self.found.last_mut() {
            Some((last, same)) if *same == doing && last.end == span.start => last.end = span.end,
            _ if touches(examined, span) => self.found.push((span, doing)),
            _ => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout)]
mod tests;
