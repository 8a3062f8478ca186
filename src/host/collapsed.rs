//! Collapsed stacks, one per line with its weight: py-spy's `--format raw`, and what
//! `torch.profiler.profile.export_stacks` writes.

use super::model::{HostLine, HostProfile, MAX_LINES, WorkerStack};

/// Lines looked at to recognize a file.
const LOOKED_AT: usize = 20;

/// `None` if the text is something else. py-spy counts samples, which are 10 ms apart unless it was told
/// otherwise; PyTorch gives microseconds.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let mut rows = text.lines().filter(|line| !line.trim().is_empty());
    let first: Vec<Stack> = rows.clone().take(LOOKED_AT).filter_map(Stack::of).collect();
    let looked_at = rows.clone().take(LOOKED_AT).count();
    let framed = first.iter().filter(|stack| stack.leaf.line > 0).count();
    // Any text may have a line that ends with a number.
    if first.len() < looked_at || framed == 0 || framed * 2 < looked_at {
        return None;
    }
    let py_spy = first.iter().filter(|stack| stack.py_spy).count() > 0;
    let (profiler, unit_ns) = if py_spy {
        ("py-spy", 10e6)
    } else {
        ("torch.profiler stacks", 1e3)
    };
    let workers = rows.clone().filter_map(|row| {
        let (stack, weight) = row.trim_end().rsplit_once(' ')?;
        let frames = stack.rsplit(';').filter_map(|text| frame(text.trim()));
        let ns = weight.parse::<u64>().ok()? as f64 * unit_ns;
        WorkerStack::of(frames.map(|(_, frame)| frame), ns)
    });
    let workers = workers.take(MAX_LINES).collect();
    let lines = std::iter::from_fn(|| rows.next()).filter_map(Stack::of);
    let lines = lines.map(|stack| HostLine {
        self_ns: stack.weight * unit_ns,
        ..stack.leaf
    });
    Some(HostProfile {
        workers,
        ..HostProfile::of(profiler, lines)
    })
}

/// A line of the file.
struct Stack {
    leaf: HostLine,
    weight: f64,
    py_spy: bool,
}

impl Stack {
    fn of(line: &str) -> Option<Stack> {
        let (stack, weight) = line.trim_end().rsplit_once(' ')?;
        let weight: u64 = weight.parse().ok()?;
        let leaf = stack.rsplit(';').next()?.trim();
        let (py_spy, leaf) = match frame(leaf) {
            Some(leaf) => leaf,
            None => (
                false,
                HostLine {
                    function: leaf.to_owned(),
                    ..HostLine::default()
                },
            ),
        };
        Some(Stack {
            leaf,
            weight: weight as f64,
            py_spy,
        })
    }
}

/// `function (file.py:12)` of py-spy, or `file.py(12): function` of PyTorch. `true` for the first.
fn frame(text: &str) -> Option<(bool, HostLine)> {
    let line = |file: &str, line: &str, function: &str| -> Option<HostLine> {
        Some(HostLine {
            file: file.to_owned(),
            line: line.parse().ok()?,
            function: function.to_owned(),
            ..HostLine::default()
        })
    };
    if let Some((function, place)) = text.strip_suffix(')').and_then(|t| t.rsplit_once(" (")) {
        let (file, number) = place.rsplit_once(':')?;
        return Some((true, line(file, number, function)?));
    }
    let (place, function) = text.rsplit_once("): ")?;
    let (file, number) = place.rsplit_once('(')?;
    Some((false, line(file, number, function)?))
}
