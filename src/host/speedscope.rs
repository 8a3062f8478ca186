//! Speedscope files: of py-spy, pyinstrument and others.
//!
//! Format: <https://www.speedscope.app/file-format-schema.json>

use serde::Deserialize;

use super::model::{HostLine, HostProfile, WorkerStacks, name};

/// How the file names its format.
const SCHEMA: &str = "speedscope.app/file-format-schema.json";

#[derive(Deserialize)]
struct File {
    #[serde(rename = "$schema")]
    schema: String,
    #[serde(default)]
    exporter: String,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    name: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u32>,
}

impl Frame {
    /// Whether it stands for the time that its caller itself took: pyinstrument writes it as a frame.
    fn is_self(&self) -> bool {
        self.name == "[self]" && self.file.as_deref().unwrap_or_default().is_empty()
    }

    fn line(&self) -> HostLine {
        HostLine {
            // Stacks share frames.
            file: name(self.file.as_deref().unwrap_or_default()),
            line: self.line.unwrap_or_default(),
            function: name(&self.name),
            ..HostLine::default()
        }
    }
}

#[derive(Deserialize)]
struct Profile {
    #[serde(default)]
    unit: String,
    #[serde(default)]
    samples: Vec<Vec<usize>>,
    #[serde(default)]
    weights: Vec<f64>,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    frame: usize,
    at: f64,
}

/// `None` if the file is something else, or is damaged.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let file: File = serde_json::from_str(text).ok()?;
    file.schema.contains(SCHEMA).then_some(())?;
    let mut workers = WorkerStacks::default();
    let mut own = vec![(0_u64, 0.0_f64); file.shared.frames.len()];
    for profile in &file.profiles {
        let ns = match profile.unit.as_str() {
            "nanoseconds" => 1.0,
            "microseconds" => 1e3,
            "milliseconds" => 1e6,
            "seconds" => 1e9,
            // Bytes, or no unit at all.
            _ => continue,
        };
        let mut add = |frame: usize, time: f64| {
            if let Some(sum) = own.get_mut(frame) {
                sum.0 += 1;
                sum.1 += time * ns;
            }
        };
        // The function that ran, given its stack from the outside.
        let leaf = |stack: &[usize]| {
            let is_self = |at: &usize| file.shared.frames.get(*at).is_some_and(Frame::is_self);
            let named = stack.iter().rev().find(|at| !is_self(at));
            named.or(stack.last()).copied()
        };
        for (stack, weight) in profile.samples.iter().zip(&profile.weights) {
            if let Some(leaf) = leaf(stack) {
                add(leaf, *weight);
            }
            let frames = stack
                .iter()
                .rev()
                .filter_map(|at| file.shared.frames.get(*at));
            workers.add(frames.map(Frame::line), *weight * ns);
        }
        let mut open: Vec<usize> = Vec::new();
        let mut now: Option<f64> = None;
        for event in &profile.events {
            if let Some((leaf, before)) = leaf(&open).zip(now) {
                add(leaf, (event.at - before).max(0.0));
            }
            now = Some(event.at);
            match event.kind.as_str() {
                "O" => open.push(event.frame),
                _ => drop(open.pop()),
            }
        }
    }
    let profiler = match file.exporter.split(['@', ' ']).next() {
        Some("py-spy") => "py-spy",
        Some("pyinstrument") => "pyinstrument",
        _ => "speedscope",
    };
    let frames = file.shared.frames.into_iter().zip(own);
    let lines = frames.filter(|(_, (_, ns))| *ns > 0.0);
    let lines = lines.map(|(frame, (_, self_ns))| HostLine {
        self_ns,
        ..frame.line()
    });
    Some(HostProfile {
        workers: workers.stacks,
        ..HostProfile::of(profiler, lines)
    })
}
