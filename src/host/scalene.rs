//! JSON profiles of Scalene, old and new.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::model::{
    CodePlace, HostLine, HostProfile, HostSample, MOST_SAMPLES, TimedSamples, name, unix_ns,
};

#[derive(Deserialize)]
struct Profile {
    elapsed_time_sec: f64,
    files: BTreeMap<String, File>,
    /// `time.time()` at the start; since version 2.
    #[serde(default)]
    start_time_absolute: Option<f64>,
    /// `time.perf_counter()` at the same moment.
    #[serde(default)]
    start_time_perf: Option<f64>,
}

#[derive(Deserialize)]
struct File {
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    lineno: u32,
    n_cpu_percent_python: f64,
    n_cpu_percent_c: f64,
    #[serde(default)]
    n_sys_percent: f64,
    /// `time.perf_counter()` at samples of the main thread.
    #[serde(default)]
    cpu_samples_list: Vec<f64>,
}

impl Line {
    fn percent(&self) -> f64 {
        self.n_cpu_percent_python + self.n_cpu_percent_c + self.n_sys_percent
    }
}

/// How many samples Scalene keeps of a line; of more, a random choice: `CPU_SAMPLES_RESERVOIR_SIZE`.
const MOST_OF_A_LINE: usize = 500;

/// By how much times may be off: both clocks are read one after the other.
const ERROR_NS: i64 = 100_000;

/// `None` if the file is something else, or is damaged. Source lines in it are not read.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let profile: Profile = serde_json::from_str(text).ok()?;
    let seconds = profile.elapsed_time_sec;
    let timed = timed(&profile);
    let lines = profile.files.into_iter().flat_map(|(file, content)| {
        let file = name(&file);
        content.lines.into_iter().map(move |line| HostLine {
            file: file.clone(),
            line: line.lineno,
            self_ns: line.percent() / 100.0 * seconds * 1e9,
            ..HostLine::default()
        })
    });
    Some(HostProfile {
        timed,
        ..HostProfile::of("Scalene", lines.filter(|line| line.self_ns > 0.0))
    })
}

/// The samples; `None` without clocks.
///
/// Python handles a signal only between two instructions, so a sample that falls into a call of native code
/// is taken when the call returns: it stands for the time since the sample before. Where Scalene has left out
/// samples, the one before is not known, and each sample of a line stands for the same time.
fn timed(profile: &Profile) -> Option<TimedSamples> {
    let absolute = profile.start_time_absolute?;
    let perf = profile.start_time_perf?;
    let mut timed = TimedSamples {
        error_ns: ERROR_NS,
        mixes_workers: true,
        ..TimedSamples::default()
    };
    let lines = || profile.files.values().flat_map(|file| &file.lines);
    let is_complete = lines().all(|line| line.cpu_samples_list.len() < MOST_OF_A_LINE);
    for (file, content) in &profile.files {
        let file = name(file);
        for line in &content.lines {
            let times = line.cpu_samples_list.iter();
            let times = times.filter_map(|time| unix_ns(absolute + (time - perf)));
            let left = MOST_SAMPLES.saturating_sub(timed.samples.len());
            let times: Vec<i64> = times.take(left).collect();
            if times.is_empty() {
                continue;
            }
            let all_ns = line.percent() / 100.0 * profile.elapsed_time_sec * 1e9;
            let weight_ns = match is_complete {
                true => i64::MAX,
                false => (all_ns / times.len() as f64) as i64,
            };
            let place = u32::try_from(timed.places.len()).ok()?;
            timed.places.push(CodePlace {
                line: HostLine {
                    file: file.clone(),
                    line: line.lineno,
                    ..HostLine::default()
                },
                caller: None,
            });
            timed.samples.extend(times.iter().map(|time| HostSample {
                unix_ns: *time,
                weight_ns,
                place,
            }));
        }
    }
    timed.samples.sort_by_key(|sample| sample.unix_ns);
    (!timed.samples.is_empty()).then_some(timed)
}
