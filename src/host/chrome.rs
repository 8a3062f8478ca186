//! py-spy's `--format chrometrace`: a list of events at which functions begin and end.

use indexmap::{IndexMap, IndexSet};
use serde::Deserialize;

use super::model::{
    CodePlace, HostLine, HostProfile, HostSample, MOST_READ, MOST_SAMPLES, TimedSamples, name,
};

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    name: String,
    ph: String,
    /// In us since the start of py-spy.
    ts: f64,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    args: FilePlace,
}

#[derive(Deserialize, Default)]
struct FilePlace {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    line: u32,
}

/// The functions of a thread that have not ended, and when the last one began or ended.
#[derive(Default)]
struct Stack {
    /// Rows of [`Stacks::places`].
    open: Vec<usize>,
    now: f64,
    is_main: bool,
}

/// py-spy samples 100 times a second unless it is told otherwise; an event is one sample or more.
const DISTANCE_NS: f64 = 10e6;

/// What py-spy calls the outermost frame of a thread with `--threads`: `thread (4242): MainThread`.
const THREAD: &str = "thread (";

/// Functions with their callers, and samples of the main thread.
#[derive(Default)]
struct Stacks {
    functions: IndexMap<(String, u32, String), f64>,
    /// A function and the place that called it.
    places: IndexSet<(usize, Option<u32>)>,
    samples: Vec<HostSample>,
    pid: Option<u64>,
}

/// `None` if the file is something else, or is damaged. A trace of PyTorch is an object, not a list.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let events: Vec<Event> = serde_json::from_str(text).ok()?;
    let mut events = events
        .into_iter()
        .filter(|event| event.cat == "py-spy")
        .peekable();
    events.peek()?;
    let mut stacks = Stacks::default();
    let mut threads: IndexMap<u64, Stack> = IndexMap::new();
    for event in events {
        let thread = threads.entry(event.tid).or_default();
        stacks.ran(thread, event.ts);
        thread.now = event.ts;
        if event.ph == "B" {
            if event.name.starts_with(THREAD) {
                thread.is_main = number_of(&event.name) == Some(event.pid);
            }
            stacks.begin(thread, &event);
        } else {
            thread.open.pop();
        }
    }
    Some(stacks.profile())
}

/// The number of a thread in its name.
fn number_of(text: &str) -> Option<u64> {
    let number = text.strip_prefix(THREAD)?;
    number.split(')').next()?.parse().ok()
}

impl Stacks {
    /// Adds the time since the last event of a thread to the function that ran.
    fn ran(&mut self, thread: &Stack, until_us: f64) {
        let us = (until_us - thread.now).max(0.0);
        let Some(&place) = thread.open.last() else {
            return;
        };
        if let Some((function, _)) = self.places.get_index(place)
            && let Some((_, sum)) = self.functions.get_index_mut(*function)
        {
            *sum += us;
        }
        if !thread.is_main || !us.is_finite() || us == 0.0 {
            return;
        }
        let left = MOST_SAMPLES.saturating_sub(self.samples.len());
        let count = (us * 1e3 / DISTANCE_NS).round().clamp(1.0, 1e9);
        let weight_ns = (us * 1e3 / count) as i64;
        let from = thread.now * 1e3;
        let Ok(place) = u32::try_from(place) else {
            return;
        };
        let samples = (1..=count as usize).take(left).map(|at| HostSample {
            unix_ns: (from + at as f64 / count * us * 1e3) as i64,
            weight_ns,
            place,
        });
        self.samples.extend(samples);
    }

    fn begin(&mut self, thread: &mut Stack, event: &Event) {
        let key = (
            name(&event.args.filename),
            event.args.line,
            name(&event.name),
        );
        let entry = self.functions.entry(key);
        let function = entry.index();
        entry.or_default();
        let caller = thread.open.last().and_then(|at| u32::try_from(*at).ok());
        let (place, _) = self.places.insert_full((function, caller));
        thread.open.push(place);
        if thread.is_main {
            self.pid = Some(event.pid);
        }
    }

    fn profile(self) -> HostProfile {
        let line = |at: usize| {
            let (file, line, function) = self.functions.get_index(at)?.0;
            Some(HostLine {
                file: file.clone(),
                line: *line,
                function: function.clone(),
                ..HostLine::default()
            })
        };
        let lines = (self.functions.values().enumerate())
            .filter(|(_, us)| **us > 0.0)
            .filter_map(|(at, us)| {
                Some(HostLine {
                    self_ns: us * 1e3,
                    ..line(at)?
                })
            });
        let mut profile = HostProfile::of("py-spy", lines);
        // Names are shared by stacks; many stacks of long names would not stay small.
        if self.places.len() <= MOST_READ && !self.samples.is_empty() {
            let places = (self.places.iter()).map(|(function, caller)| CodePlace {
                line: line(*function).unwrap_or_default(),
                caller: *caller,
            });
            let mut samples = self.samples;
            samples.sort_by_key(|sample| sample.unix_ns);
            profile.since_start = Some(TimedSamples {
                places: places.collect(),
                samples,
                pid: self.pid,
                ..TimedSamples::default()
            });
        }
        profile
    }
}
