//! Places the samples of a profiler of the host on the clock of a profile.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::python_frame::PythonFrame;
use crate::host::{CodePlace, HostLine, HostProfile};
use crate::profile::{Profile, Span, StrId, ThreadId, TimedSample};

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
pub fn add_host_samples(profile: &mut Profile, host: &HostProfile) -> Alignment {
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
    if !profile.host.timed.is_empty() {
        return Alignment::NotNeeded;
    }
    let mut names: FxHashMap<u32, StrId> = FxHashMap::default();
    for sample in samples {
        let Some(place) = innermost_of_program(&timed.places, sample.place) else {
            continue;
        };
        let strings = &mut profile.strings;
        let place = *(names.entry(sample.place)).or_insert_with(|| strings.intern(&name_of(place)));
        profile.host.timed.push(TimedSample {
            thread,
            time: time(sample.unix_ns),
            weight_ns: sample.weight_ns,
            place,
        });
    }
    profile.host.timed_error_ns = timed.error_ns;
    Alignment::Aligned
}

/// Callers looked at, for one that is part of the program.
const DEPTH: usize = 256;

/// The innermost function of a stack that is not part of Python or a library; without one, the innermost.
fn innermost_of_program(places: &[CodePlace], at: u32) -> Option<&HostLine> {
    let get = |at: u32| places.get(at as usize);
    let stack = std::iter::successors(get(at), |place| get(place.caller?));
    let own = stack.take(DEPTH).find(|place| {
        let frame = PythonFrame {
            path: &place.line.file,
            line: "",
        };
        !place.line.file.is_empty() && !frame.is_internal()
    });
    own.or(get(at)).map(|place| &place.line)
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
        let thread = profile.threads.get(call.thread.idx());
        if let Some(uses) = thread.and_then(|thread| uses_gpu.get_mut(thread.process.idx())) {
            *uses = true;
        }
    }
    let threads = profile.threads.iter().enumerate();
    let mut main = threads.filter(|(_, thread)| {
        let process = profile.processes.get(thread.process.idx());
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
