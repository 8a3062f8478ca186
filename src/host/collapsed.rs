//! Collapsed stacks, one per line with its weight: py-spy's `--format raw`, and what
//! `torch.profiler.profile.export_stacks` writes.

use super::model::{HostLine, HostProfile, WorkerStacks};

/// Lines looked at to recognize a file.
const LOOKED_AT: usize = 20;

/// `None` if the text is something else. py-spy counts samples, which are 10 ms apart unless it was told
/// otherwise; PyTorch gives microseconds.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let rows = text.lines().filter(|line| !line.trim().is_empty());
    let first: Vec<Stack> = rows.clone().take(LOOKED_AT).filter_map(Stack::of).collect();
    let looked_at = rows.clone().take(LOOKED_AT).count();
    let framed = first.iter().filter(|stack| stack.leaf.line > 0).count();
    // Any text may have a line that ends with a number.
    if first.len() < looked_at || framed == 0 || framed * 2 < looked_at {
        return None;
    }
    let py_spy = first.iter().any(|stack| stack.py_spy);
    let (profiler, unit_ns) = if py_spy {
        ("py-spy", 10e6)
    } else {
        ("torch.profiler stacks", 1e3)
    };
    let mut workers = WorkerStacks::default();
    for row in rows.clone() {
        if let Some((stack, weight)) = row.trim_end().rsplit_once(' ')
            && let Ok(weight) = weight.parse::<u64>()
        {
            let frames = stack.rsplit(';').filter_map(|text| frame(text.trim()));
            workers.add(frames.map(|(_, frame)| frame), weight as f64 * unit_ns);
        }
    }
    let lines = rows.filter_map(Stack::of).map(|stack| HostLine {
        self_ns: stack.weight * unit_ns,
        ..stack.leaf
    });
    Some(HostProfile {
        workers: workers.stacks,
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
                    function: with_spaces(leaf),
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

/// `<built-in method item of Tensor object at 0x0>` of `<built-in_method_item_of_Tensor_object_at_0x0>`: PyTorch writes
/// `_` for each space.
fn with_spaces(name: &str) -> String {
    let parts = name.strip_prefix("<built-in_method_").and_then(|rest| {
        let (head, address) = rest.rsplit_once("_object_at_")?;
        let (method, owner) = head.rsplit_once("_of_")?;
        Some(format!(
            "<built-in method {method} of {owner} object at {address}"
        ))
    });
    parts.unwrap_or_else(|| name.to_owned())
}

/// `function (file.py:12)` of py-spy, or `file.py(12): function` of PyTorch, in which spaces may be `_`. `true` for the
/// first.
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
    let (place, function) = text.rsplit_once("): ").or_else(|| text.split_once("):_"))?;
    let (file, number) = place.rsplit_once('(')?;
    Some((false, line(file, number, function)?))
}
