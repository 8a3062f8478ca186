//! `line_profiler`: its `.lprof` files, which are pickles, and its text.

use super::arena::{Arena, Id};
use super::model::{HostLine, HostProfile, LINE_PROFILER, MOST_READ, name};
use super::pickle;

/// The class whose instance the file holds. Its module was renamed three times.
fn is_stats(module: &str, class: &str) -> bool {
    module.contains("line_profiler") && class == "LineStats"
}

/// Reads `LineStats(timings={(file, line, function): [(line, hits, time)]}, unit=seconds)`. `None` if the
/// file is no such pickle, or is damaged.
pub(super) fn read(data: &[u8]) -> Option<HostProfile> {
    let (arena, root) = pickle::read(data, is_stats)?;
    let state = pickle::state(&arena, root)?;
    let unit = arena.number(arena.entry(state, "unit")?)?;
    let mut lines = Vec::new();
    for (function, timed) in arena.dict(arena.entry(state, "timings")?)? {
        let (file, _, function) = arena.function(*function)?;
        // Functions of a damaged file may share their lines.
        let room = MOST_READ.saturating_sub(lines.len());
        if room == 0 {
            break;
        }
        for row in arena.list(*timed)?.iter().take(room) {
            lines.push(line(&arena, *row, unit, &file, &function)?);
        }
    }
    Some(HostProfile::of(LINE_PROFILER, lines))
}

fn line(arena: &Arena, row: Id, unit: f64, file: &str, function: &str) -> Option<HostLine> {
    let [line, hits, time] = arena.list(row)? else {
        return None;
    };
    Some(HostLine {
        file: file.to_owned(),
        line: u32::try_from(arena.count(*line)?).ok()?,
        function: function.to_owned(),
        calls: arena.count(*hits)?,
        self_ns: arena.number(*time)? * unit * 1e9,
        ..HostLine::default()
    })
}

/// Reads what `python -m line_profiler FILE.lprof` prints; `None` if the text is something else.
pub(super) fn read_text(text: &str) -> Option<HostProfile> {
    let unit = |line: &str| -> Option<f64> {
        let unit = line
            .trim()
            .strip_prefix("Timer unit: ")?
            .strip_suffix(" s")?;
        unit.parse().ok()
    };
    let mut seconds = text.lines().take(50).find_map(unit)?;
    let (mut file, mut function) = (String::new(), String::new());
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(unit) = unit(line) {
            seconds = unit;
        } else if let Some(text) = line.strip_prefix("File: ") {
            file = name(text);
        } else if let Some(text) = line.strip_prefix("Function: ") {
            function = name(text.rsplit_once(" at line ").map_or(text, |(text, _)| text));
        } else if lines.len() >= MOST_READ {
            break;
        } else if let Some(mut row) = row(line, seconds) {
            row.file.clone_from(&file);
            row.function.clone_from(&function);
            lines.push(row);
        }
    }
    Some(HostProfile::of(LINE_PROFILER, lines))
}

/// `4   60   27155.4   452.6   56.6   a = ...`: line, hits, time, time per hit, share, source.
fn row(line: &str, seconds: f64) -> Option<HostLine> {
    let mut cells = line.split_whitespace();
    let number = cells.next()?.parse().ok()?;
    let calls = cells.next()?.parse().ok()?;
    let time: f64 = cells.next()?.parse().ok()?;
    let _: f64 = cells.next()?.parse().ok()?;
    Some(HostLine {
        line: number,
        calls,
        self_ns: time * seconds * 1e9,
        ..HostLine::default()
    })
}
