//! Copies without private data, which `pyprof-advise scrub` writes: what a reader has taken from a file of any format,
//! as JSON.

use serde::{Deserialize, Serialize};

use super::model::{
    HostProfile, IMPORT_TIME, LIGHTNING, LINE_PROFILER, MAX_LINES, MOST_READ, MOST_SAMPLES,
    TimedSamples, name,
};

/// The value of `format`.
const FORMAT: &str = "pyprof-advise host profile";
/// The version of the fields.
const VERSION: u32 = 1;

/// The profilers that readers name.
const PROFILERS: &[&str] = &[
    super::cprofile::PROFILER,
    LINE_PROFILER,
    IMPORT_TIME,
    "py-spy",
    "pyinstrument",
    "speedscope",
    "Scalene",
    "memory_profiler",
    "Lightning AdvancedProfiler",
    LIGHTNING,
    "torch.profiler stacks",
    "torch.profiler table",
];

#[derive(Serialize, Deserialize)]
struct Copy<P> {
    format: String,
    version: u32,
    profiler: String,
    profile: P,
}

/// The text of a copy.
///
/// # Errors
/// When a number of the profile cannot be written.
pub(crate) fn write(profile: &HostProfile) -> serde_json::Result<String> {
    let copy = Copy {
        format: FORMAT.to_owned(),
        version: VERSION,
        profiler: profile.profiler.to_owned(),
        profile,
    };
    serde_json::to_string(&copy)
}

/// `None` if the file is something else, or is damaged.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let copy: Copy<HostProfile> = serde_json::from_str(text).ok()?;
    (copy.format == FORMAT && copy.version == VERSION).then_some(())?;
    let profiler = PROFILERS.iter().find(|known| **known == copy.profiler)?;
    let mut profile = copy.profile;
    for timed in [&mut profile.timed, &mut profile.since_start]
        .into_iter()
        .flatten()
    {
        bound(timed);
    }
    profile.memory.truncate(MOST_SAMPLES);
    profile.memory.sort_by_key(|sample| sample.unix_ns);
    profile.memory.retain(|sample| sample.bytes.is_finite());
    profile.workers.truncate(MAX_LINES);
    (profile.workers).retain(|stack| stack.ns.is_finite() && stack.ns >= 0.0);
    let mut lines = std::mem::take(&mut profile.lines);
    for line in &mut lines {
        line.file = name(&line.file);
        line.function = name(&line.function);
    }
    Some(HostProfile {
        lines: HostProfile::of(profiler, lines).lines,
        profiler,
        ..profile
    })
}

/// Makes samples as readers do: in time order, no more than they would read.
fn bound(timed: &mut TimedSamples) {
    timed.places.truncate(MOST_READ);
    for place in &mut timed.places {
        place.line.file = name(&place.line.file);
        place.line.function = name(&place.line.function);
    }
    timed.samples.truncate(MOST_SAMPLES);
    timed.samples.sort_by_key(|sample| sample.unix_ns);
    timed.samples.retain(|sample| sample.weight_ns >= 0);
    timed.error_ns = timed.error_ns.max(0);
}
