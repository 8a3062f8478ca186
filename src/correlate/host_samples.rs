//! Places the samples of a profiler of the host on the clock of a profile.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::python_frame::PythonFrame;
use crate::host::{Classes, HostLine, HostProfile};
use crate::profile::{
    ClassId, HostSummary, Profile, PythonSamples, Span, StrId, ThreadId, TimedSample,
};

/// How a profile of the host is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// Its samples explain gaps.
    Aligned,
    /// It has no times of the calendar: it only names lines.
    Untimed,
    /// The profile of the GPU has no time of the calendar.
    NoClock,
    /// It was recorded at another time.
    OtherTime,
    /// The profile of the GPU has no main thread of its process, or those of several processes.
    OtherProcess,
    /// Samples of the workers of a data loader are mixed with those of the program.
    MixedWithWorkers,
    /// Another profile of the host has explained the gaps already.
    NotNeeded,
    /// Several profiles of GPUs were given: it is not known which of them it belongs to.
    SeveralProfiles,
}

/// What shows that a program loads data in worker processes.
const WORKERS: &str = "_MultiProcessingDataLoaderIter";

/// Adds the samples of a profile of the host to the profile of the program that it was recorded with.
pub fn add_host_samples(profile: &mut Profile, host: &HostProfile, classes: &Classes) -> Alignment {
    summarize(&mut profile.host.summary, host, classes);
    let found = (host.memory.first().map(|sample| sample.unix_ns))
        .zip(host.memory.last().map(|sample| sample.unix_ns));
    let Some(timed) = &host.timed else {
        return match (found, profile.unix_zero_ns) {
            (None, _) => Alignment::Untimed,
            (Some(_), None) => Alignment::NoClock,
            (Some((from, until)), Some(zero)) => match recorded(profile) {
                Some(span)
                    if from <= zero.saturating_add(span.end)
                        && until >= zero.saturating_add(span.start) =>
                {
                    Alignment::Aligned
                }
                _ => Alignment::OtherTime,
            },
        };
    };
    let Some(zero) = profile.unix_zero_ns else {
        return Alignment::NoClock;
    };
    let Some(span) = recorded(profile) else {
        return Alignment::OtherTime;
    };
    let time = |unix_ns: i64| unix_ns.saturating_sub(zero);
    let from = (timed.samples).partition_point(|sample| time(sample.unix_ns) < span.start);
    let until = (timed.samples).partition_point(|sample| time(sample.unix_ns) < span.end);
    let samples = timed.samples.get(from..until).unwrap_or_default();
    if samples.is_empty() {
        return Alignment::OtherTime;
    }
    let Some(thread) = main_thread(profile, timed.pid) else {
        return Alignment::OtherProcess;
    };
    let has_workers = profile.loaders.iter().any(|loader| loader.workers > 0)
        || profile
            .strings
            .iter()
            .any(|(_, text)| text.contains(WORKERS));
    if timed.mixes_workers && has_workers {
        return Alignment::MixedWithWorkers;
    }
    if !(profile.host.timed.is_empty() && profile.host.python.samples.is_empty()) {
        return Alignment::NotNeeded;
    }
    let functions = timed.places.iter();
    let functions = functions.map(|place| (&place.line, place.caller));
    let known = known_functions(functions, classes);
    let mut names: FxHashMap<u32, StrId> = FxHashMap::default();
    for sample in samples {
        let Some(function) = known.get(sample.place as usize) else {
            continue;
        };
        let own = function.of_program.unwrap_or(sample.place);
        let Some(place) = timed.places.get(own as usize) else {
            continue;
        };
        let strings = &mut profile.strings;
        let place = *(names.entry(own)).or_insert_with(|| strings.intern(&name_of(&place.line)));
        profile.host.timed.push(TimedSample {
            thread,
            time: time(sample.unix_ns),
            weight_ns: sample.weight_ns,
            class: function.class,
            place,
        });
    }
    profile.host.timed_error_ns = timed.error_ns;
    Alignment::Aligned
}

/// Turns the samples of Python stacks that the profile of the GPU contains into samples of functions of the
/// program. Each stands for the time since the sample before, and for no longer than usual.
pub(super) fn place_python_samples(profile: &mut Profile, classes: &Classes) {
    let PythonSamples {
        frames,
        samples,
        sample_ns,
    } = std::mem::take(&mut profile.host.python);
    if samples.is_empty() || !profile.host.timed.is_empty() {
        return;
    }
    let text = |id: Option<StrId>| id.map_or("", |id| profile.strings.get(id)).to_owned();
    let lines = frames.iter().map(|frame| HostLine {
        file: text(frame.file),
        line: frame.line,
        function: text(frame.function),
        ..HostLine::default()
    });
    let lines: Vec<HostLine> = lines.collect();
    let callers = frames.iter().map(|frame| frame.caller);
    let known = known_functions(lines.iter().zip(callers), classes);
    let mut names: FxHashMap<u32, StrId> = FxHashMap::default();
    let longest = sample_ns.saturating_add(sample_ns / 2);
    let mut last: Option<(ThreadId, i64)> = None;
    for sample in samples {
        let before = last.filter(|(thread, _)| *thread == sample.thread);
        let since = before.map_or(sample_ns, |(_, time)| sample.time.saturating_sub(time));
        last = Some((sample.thread, sample.time));
        let Some(function) = known.get(sample.frame as usize) else {
            continue;
        };
        let own = function.of_program.unwrap_or(sample.frame);
        let Some(line) = lines.get(own as usize) else {
            continue;
        };
        let strings = &mut profile.strings;
        let place = *(names.entry(own)).or_insert_with(|| strings.intern(&name_of(line)));
        profile.host.timed.push(TimedSample {
            thread: sample.thread,
            time: sample.time,
            weight_ns: since.min(longest),
            class: function.class,
            place,
        });
    }
}

/// Whether a function is not part of Python or a library.
fn is_of_program(line: &HostLine, classes: &Classes) -> bool {
    let class = classes.of(&line.file, &line.function);
    let frame = PythonFrame {
        path: &line.file,
        line: "",
    };
    let library = class.is_some_and(|class| classes.is_of_libraries(class));
    !line.file.is_empty() && !frame.is_internal() && !library
}

/// What is known of a function in its stack.
#[derive(Debug, Clone, Copy, Default)]
struct KnownFunction {
    /// The row of the innermost function that is not part of Python or a library: itself, or one around it.
    of_program: Option<u32>,
    /// What it does: the class of the innermost function that has one.
    class: Option<ClassId>,
}

/// Each of these functions, given with the rows of their callers, which come before them.
fn known_functions<'a>(
    functions: impl Iterator<Item = (&'a HostLine, Option<u32>)>,
    classes: &Classes,
) -> Vec<KnownFunction> {
    let mut known: Vec<KnownFunction> = Vec::new();
    for (row, (line, caller)) in (0..).zip(functions) {
        let caller = caller.and_then(|row| known.get(row as usize).copied());
        let KnownFunction { of_program, class } = caller.unwrap_or_default();
        known.push(KnownFunction {
            of_program: match is_of_program(line, classes) {
                true => Some(row),
                false => of_program,
            },
            class: classes.inside(class, classes.of(&line.file, &line.function)),
        });
    }
    known
}

/// Adds what a profile says about the whole run. The first profile that says something counts.
fn summarize(summary: &mut HostSummary, host: &HostProfile, classes: &Classes) {
    if summary.worker_class.is_none() {
        (summary.worker_class, summary.worker_function) = workers(host, classes);
    }
    if host.profiler == crate::host::IMPORT_TIME && summary.import_ns.is_none() {
        summary.import_ns = Some(host.lines.iter().map(|line| line.self_ns).sum());
        let slowest = host.lines.first();
        summary.slowest_import = slowest.map(|line| {
            let name = line.function.strip_prefix("import ");
            (name.unwrap_or(&line.function).to_owned(), line.self_ns)
        });
    }
}

/// What workers of a DataLoader did for most of their time with its share, and where.
fn workers(host: &HostProfile, classes: &Classes) -> (Option<(String, f64)>, Option<String>) {
    let mut times: BTreeMap<ClassId, f64> = BTreeMap::new();
    let mut functions: BTreeMap<(ClassId, String), f64> = BTreeMap::new();
    let mut all = 0.0;
    for stack in &host.workers {
        all += stack.ns;
        let Some(class) = innermost_class(stack.frames.iter(), classes) else {
            continue;
        };
        *times.entry(class).or_default() += stack.ns;
        if let Some(own) = stack
            .frames
            .iter()
            .find(|line| is_of_program(line, classes))
        {
            *functions.entry((class, name_of(own))).or_default() += stack.ns;
        }
    }
    let Some((class, ns)) = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return (None, None);
    };
    let own = functions.into_iter().filter(|((of, _), _)| *of == class);
    let longest = own.max_by(|a, b| a.1.total_cmp(&b.1));
    let share = ns / all.max(1.0);
    (
        Some((classes.name(class).to_owned(), share)),
        longest.map(|((_, name), _)| name),
    )
}

/// The class of the innermost function of a stack that has one.
fn innermost_class<'a>(
    stack: impl Iterator<Item = &'a HostLine>,
    classes: &Classes,
) -> Option<ClassId> {
    let known = stack.filter_map(|line| classes.of(&line.file, &line.function));
    known.fold(None, |inner, outer| classes.inside(Some(outer), inner))
}

/// From the first call or kernel to the end of the last one.
fn recorded(profile: &Profile) -> Option<Span> {
    let calls = profile.calls.iter().map(|call| call.span);
    let kernels = profile.kernels.iter().map(|kernel| kernel.span);
    calls.chain(kernels).reduce(Span::around)
}

/// The main thread of the process that works on a GPU: the thread with the number of its process.
fn main_thread(profile: &Profile, pid: Option<u64>) -> Option<ThreadId> {
    let mut uses_gpu = vec![false; profile.processes.len()];
    for call in &profile.calls {
        let process = profile.process_of(call.thread);
        if let Some(uses) = process.and_then(|process| uses_gpu.get_mut(process.idx())) {
            *uses = true;
        }
    }
    let threads = profile.threads.iter().enumerate();
    let mut main = threads.filter(|(_, thread)| {
        let process = profile.process(thread.process);
        uses_gpu.get(thread.process.idx()) == Some(&true)
            && process.is_some_and(|process| {
                process.pid == thread.tid && pid.is_none_or(|pid| pid == process.pid)
            })
    });
    let (at, _) = main.next()?;
    main.next().is_none().then(|| ThreadId::new(at))
}

/// `load (data/images.py:12)`, `data/images.py:12` or the name of a built-in function.
pub(crate) fn name_of(line: &HostLine) -> String {
    let number = line.line.to_string();
    let place = match line.file.as_str() {
        "" => String::new(),
        file => PythonFrame {
            path: file,
            line: &number,
        }
        .short(),
    };
    match (line.function.as_str(), place.as_str()) {
        (function, "") => function.to_owned(),
        ("", place) => place.to_owned(),
        (function, place) => format!("{function} ({place})"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
