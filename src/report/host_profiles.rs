//! Where the host spends its time, from profiles of their own (`--host`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::figures::label;
use crate::base::units::{bytes, counted};
use crate::correlate::{Alignment, Run, name_of};
use crate::host::{Classes, HostLine, HostProfile, MemorySample};
use crate::profile::Span;

/// Most lines listed of each profile.
const MAX_LINES: usize = 5;

/// The longest functions or lines of a profile of the host. If its clock matches that of the GPU's profile,
/// its samples explain gaps in the table of the host's activities; if not, it changes no estimate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostProfileReport {
    /// Name of the file.
    pub file: String,
    /// The profiler that wrote it: `cProfile`.
    pub profiler: String,
    /// Functions or lines, longest time first, at most 5; those without a sample in the analyzed window come last.
    /// Actions that only enclose others are left out.
    pub lines: Vec<HostLineReport>,
    /// Whether the time of a line includes that of the functions it calls, so that lines overlap.
    #[serde(default)]
    pub includes_callees: bool,
    /// How the profile is used.
    pub alignment: Alignment,
    /// `alignment` in words.
    pub note: String,
    /// The memory of the process, where the profiler measured it.
    pub memory: Option<HostMemory>,
}

/// Time of a function, or of a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostLineReport {
    /// `decode (data/images.py:12)`, `data/images.py:12` or the name of a built-in function.
    pub place: String,
    /// What it does, as far as its name tells: `decoding or augmenting`; mostly empty.
    pub kind: String,
    /// Time in nanoseconds over the whole run: of a function without those that it calls, of a line with
    /// them. 0 where only memory was measured.
    pub ns: f64,
    /// Number of calls; 0 where the profiler does not count them.
    pub calls: u64,
    /// By how much the memory of the process grew in it, in bytes; 0 where it was not measured.
    pub grown_bytes: f64,
    /// Whether the times of the samples are known, and none of it lies in the analyzed window.
    #[serde(default)]
    pub outside: bool,
}

/// The resident memory of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostMemory {
    /// At the first sample, in bytes.
    pub first_bytes: f64,
    /// At the last sample, in bytes.
    pub last_bytes: f64,
    /// The largest of all samples, in bytes.
    pub peak_bytes: f64,
    /// Growth per step, fitted to the samples in the analyzed steps; `null` where fewer than 10 samples or 3
    /// steps lie in the recorded time.
    pub per_step_bytes: Option<f64>,
    /// These values in words.
    pub sentence: String,
}

impl HostProfileReport {
    /// The report of a profile, with the name of its file. `run` is the program that it belongs to.
    pub fn of(
        file: &str,
        profile: &HostProfile,
        alignment: Alignment,
        run: Option<&Run>,
        classes: &Classes,
    ) -> HostProfileReport {
        let measured = |line: &&HostLine| line.self_ns > 0.0 || line.grown_bytes > 0.0;
        let lines = profile.lines.iter().filter(measured);
        let lines = lines.filter(|line| !profile.is_enclosing(line));
        let is_aligned = alignment == Alignment::Aligned;
        let inside = run
            .filter(|_| is_aligned)
            .and_then(|run| sampled(profile, run));
        let lines = lines.map(|row| line(row, classes, inside.as_ref()));
        let (mut lines, outside): (Vec<_>, Vec<_>) = lines.partition(|line| !line.outside);
        lines.extend(outside);
        lines.truncate(MAX_LINES);
        HostProfileReport {
            file: label(file),
            profiler: profile.profiler.to_owned(),
            lines,
            includes_callees: profile.includes_callees(),
            alignment,
            note: note(profile, alignment, run),
            memory: memory(&profile.memory, run.filter(|_| is_aligned)),
        }
    }
}

/// The functions and lines with a sample in the analyzed window; `None` where no sample has a time or none lies
/// there.
fn sampled(profile: &HostProfile, run: &Run) -> Option<BTreeSet<String>> {
    let (timed, zero) = (profile.timed.as_ref()?, run.profile.unix_zero_ns?);
    let window = run.window.span?;
    let samples = timed.samples.iter();
    let inside = samples.filter(|sample| window.contains(sample.unix_ns.saturating_sub(zero)));
    let places: BTreeSet<u32> = inside.map(|sample| sample.place).collect();
    let places = places
        .into_iter()
        .filter_map(|at| timed.places.get(at as usize));
    let names: BTreeSet<String> = places.map(|place| name_of(&place.line)).collect();
    (!names.is_empty()).then_some(names)
}

/// `inside`: the lines with samples in the analyzed window, where that is known.
fn line(line: &HostLine, classes: &Classes, inside: Option<&BTreeSet<String>>) -> HostLineReport {
    let name = name_of(line);
    HostLineReport {
        outside: inside.is_some_and(|inside| !inside.contains(&name)),
        place: label(&name),
        kind: label(classes.of_line(line).unwrap_or_default()),
        ns: line.self_ns,
        calls: line.calls,
        grown_bytes: line.grown_bytes,
    }
}

/// How a profile is used, in one sentence.
fn note(profile: &HostProfile, alignment: Alignment, run: Option<&Run>) -> String {
    const NAMES_ONLY: &str = "so it names lines, but explains no gap and changes no estimate.";
    let why = match alignment {
        Alignment::Aligned if profile.timed.is_none() => {
            return "Its clock matches that of the GPU's profile.".to_owned();
        }
        Alignment::Aligned => {
            let samples = run.map_or(0, |run| run.profile.host.timed.len() as u64);
            return format!(
                "Its clock matches that of the GPU's profile: {} lie in the recorded time, and those in gaps \
                 are used to explain what the host did.",
                counted(samples, "sample")
            );
        }
        Alignment::Untimed => "It has no clock",
        Alignment::NoClock => "The GPU's profile does not give the time of day",
        Alignment::OtherTime => "It was recorded at another time than the GPU's profile",
        Alignment::OtherProcess => {
            "It cannot be told which thread of the GPU's profile its samples are of"
        }
        Alignment::MixedWithWorkers => {
            "It mixes samples of the data loader's worker processes with those of the training process"
        }
        Alignment::NotNeeded => "Another profile of the host explains the gaps already",
        Alignment::SeveralProfiles => "It cannot be told which of the given profiles it belongs to",
    };
    format!("{why}, {NAMES_ONLY}")
}

/// Fewest samples of memory, and fewest steps, for a growth per step.
const FEWEST: (usize, usize) = (10, 3);

fn memory(samples: &[MemorySample], run: Option<&Run>) -> Option<HostMemory> {
    let (first, last) = (samples.first()?, samples.last()?);
    let peak = samples.iter().map(|sample| sample.bytes);
    let peak_bytes = peak.fold(0.0, f64::max);
    let per_step_bytes = run.and_then(|run| growth_per_step(samples, run));
    let mut sentence = format!(
        "Resident memory of the process: {} at first, {} at last, {} at most",
        bytes(first.bytes),
        bytes(last.bytes),
        bytes(peak_bytes)
    );
    if let Some(growth) = per_step_bytes {
        let change = if growth < 0.0 { "shrank" } else { "grew" };
        sentence.push_str(&format!(
            "; in the analyzed steps it {change} by {} per step",
            bytes(growth.abs())
        ));
    }
    sentence.push('.');
    Some(HostMemory {
        first_bytes: first.bytes,
        last_bytes: last.bytes,
        peak_bytes,
        per_step_bytes,
        sentence,
    })
}

/// The slope of a line through the samples in the analyzed steps, times the mean length of a step.
fn growth_per_step(samples: &[MemorySample], run: &Run) -> Option<f64> {
    let zero = run.profile.unix_zero_ns?;
    let steps = run.steps.iter().filter(|step| !step.warmup);
    let spans: Vec<Span> = steps.map(|step| step.span).collect();
    let all = spans.iter().copied().reduce(Span::around)?;
    let inside: Vec<(f64, f64)> = samples
        .iter()
        .map(|sample| (sample.unix_ns.saturating_sub(zero), sample.bytes))
        .filter(|(time, _)| all.contains(*time))
        .map(|(time, bytes)| (time.saturating_sub(all.start) as f64, bytes))
        .collect();
    if inside.len() < FEWEST.0 || spans.len() < FEWEST.1 {
        return None;
    }
    let count = inside.len() as f64;
    let mean_time = inside.iter().map(|(time, _)| time).sum::<f64>() / count;
    let mean_bytes = inside.iter().map(|(_, bytes)| bytes).sum::<f64>() / count;
    let covariance: f64 = (inside.iter())
        .map(|(time, bytes)| (time - mean_time) * (bytes - mean_bytes))
        .sum();
    let variance: f64 = (inside.iter())
        .map(|(time, _)| (time - mean_time).powi(2))
        .sum();
    let step_ns = all.ns() as f64 / spans.len() as f64;
    (variance > 0.0).then(|| covariance / variance * step_ns)
}
