//! Where the host spends its time, from profiles of their own (`--host`).

use serde::{Deserialize, Serialize};

use super::build::label;
use crate::correlate::PythonFrame;
use crate::host::{HostLine, HostProfile, class_of};

/// Most lines listed of each profile.
const MAX_LINES: usize = 5;

/// The longest functions or lines of a profile of the host. It was recorded in a run of its own, or without
/// the clock of the GPU's profile, so it explains no gap and changes no estimate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostProfileReport {
    /// Name of the file.
    pub file: String,
    /// The profiler that wrote it: `cProfile`.
    pub profiler: String,
    /// Functions or lines, longest time first, at most 5.
    pub lines: Vec<HostLineReport>,
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
    /// them.
    pub ns: f64,
    /// Number of calls; 0 where the profiler does not count them.
    pub calls: u64,
}

impl HostProfileReport {
    /// The report of a profile, with the name of its file.
    pub fn of(file: &str, profile: &HostProfile) -> HostProfileReport {
        let lines = profile.lines.iter().filter(|line| line.self_ns > 0.0);
        HostProfileReport {
            file: label(file),
            profiler: profile.profiler.to_owned(),
            lines: lines.take(MAX_LINES).map(line).collect(),
        }
    }
}

fn line(line: &HostLine) -> HostLineReport {
    let number = line.line.to_string();
    let place = match line.file.as_str() {
        "" => String::new(),
        file => PythonFrame {
            path: file,
            line: &number,
        }
        .short(),
    };
    let place = match (line.function.as_str(), place.as_str()) {
        (function, "") => function.to_owned(),
        ("", place) => place.to_owned(),
        (function, place) => format!("{function} ({place})"),
    };
    HostLineReport {
        place: label(&place),
        kind: class_of(line).unwrap_or_default().to_owned(),
        ns: line.self_ns,
        calls: line.calls,
    }
}
