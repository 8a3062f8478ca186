//! Tables that `pstats.Stats.print_stats()` prints: of cProfile, and of Lightning's `AdvancedProfiler`.

use super::model::{HostLine, HostProfile};

/// How the table begins.
const HEADER: [&str; 6] = [
    "ncalls",
    "tottime",
    "percall",
    "cumtime",
    "percall",
    "filename:lineno(function)",
];
/// How Lightning begins the table of each action.
const ACTION: &str = "Profile stats for: ";

/// `None` if the text has no such table.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let is_header = |line: &str| line.split_whitespace().eq(HEADER);
    text.lines().any(is_header).then_some(())?;
    let lightning = text.lines().any(|line| line.starts_with(ACTION));
    let profiler = if lightning {
        "Lightning AdvancedProfiler"
    } else {
        super::cprofile::PROFILER
    };
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if is_header(line) {
            inside = true;
        } else if line.trim().is_empty() {
            inside = false;
        } else if inside && let Some(row) = row(line) {
            lines.push(row);
        }
    }
    Some(HostProfile::of(profiler, lines))
}

/// `60/12  0.021  0.000  0.048  0.001 job.py:3(decode)` or `... {built-in method time.sleep}`.
fn row(line: &str) -> Option<HostLine> {
    let mut rest = line.trim_start();
    let mut cells = [""; 5];
    for cell in &mut cells {
        let (head, tail) = rest.split_once(char::is_whitespace)?;
        (*cell, rest) = (head, tail.trim_start());
    }
    let [calls, own, _, _, _] = cells;
    let calls = calls.split('/').next()?.parse().ok()?;
    let seconds: f64 = own.parse().ok()?;
    let (file, number, function) = place(rest.trim_end()).unwrap_or(("", 0, rest.trim_end()));
    Some(HostLine {
        file: file.to_owned(),
        line: number,
        function: function.to_owned(),
        calls,
        self_ns: seconds * 1e9,
        ..HostLine::default()
    })
}

/// The parts of `file:line(function)`.
fn place(text: &str) -> Option<(&str, u32, &str)> {
    let (head, function) = text.strip_suffix(')')?.split_once('(')?;
    let (file, line) = head.rsplit_once(':')?;
    Some((file, line.parse().ok()?, function))
}
