//! What the profile of a host profiler says: time per function or line.

/// The largest file that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// Most functions and lines that are read.
pub(super) const MOST_READ: usize = 200_000;
/// Longest name of a file or function, in characters.
const MAX_NAME: usize = 300;
/// Most functions and lines that are kept, those with the longest time of their own.
pub(super) const MAX_LINES: usize = 10_000;

/// A name, shortened: many functions may share a very long one.
pub(super) fn name(text: &str) -> String {
    text.trim().chars().take(MAX_NAME).collect()
}

/// A profile of the host, from a profiler of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostProfile {
    /// The profiler: `cProfile`.
    pub profiler: &'static str,
    /// Functions or lines, longest time of their own first.
    pub lines: Vec<HostLine>,
}

/// Time of a function, or of a line of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostLine {
    /// The file as the profiler names it; empty for built-in functions.
    pub file: String,
    /// The line, counted from 1; 0 where it is unknown.
    pub line: u32,
    /// The function; empty where only the line is known.
    pub function: String,
    /// How often it was called or reached; 0 where it is unknown.
    pub calls: u64,
    /// Time in it, without functions that it called, in ns. Of a line, with them.
    pub self_ns: f64,
}

impl HostProfile {
    /// Sums the lines with the same place, and keeps the longest ones. Times that are no finite,
    /// non-negative numbers do not count.
    pub(super) fn of(profiler: &'static str, lines: impl IntoIterator<Item = HostLine>) -> Self {
        let mut places: indexmap::IndexMap<(String, u32, String), (u64, f64)> = Default::default();
        for line in lines.into_iter().take(MOST_READ) {
            if line.self_ns.is_finite() && line.self_ns >= 0.0 {
                let place = (line.file, line.line, line.function);
                let sum = places.entry(place).or_insert((0, 0.0));
                sum.0 = sum.0.saturating_add(line.calls);
                sum.1 += line.self_ns;
            }
        }
        let lines = places.into_iter();
        let mut lines: Vec<HostLine> = lines
            .map(|((file, line, function), (calls, self_ns))| HostLine {
                file,
                line,
                function,
                calls,
                self_ns,
            })
            .collect();
        lines.sort_by(|a, b| b.self_ns.total_cmp(&a.self_ns));
        lines.truncate(MAX_LINES);
        HostProfile { profiler, lines }
    }
}
