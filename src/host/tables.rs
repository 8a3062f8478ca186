//! Tables of text: Lightning's `SimpleProfiler`, `python -X importtime`, and
//! `torch.profiler.profile.key_averages().table()`.

use super::model::{HostLine, HostProfile, IMPORT_TIME, LIGHTNING};

/// Reads `|  Action  |  Mean duration (s)  |  Num calls  |  Total time (s)  |  Percentage %  |`. Actions
/// contain each other, so times do not add up.
pub(super) fn lightning(text: &str) -> Option<HostProfile> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(
            inner
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect(),
        )
    };
    let is_header = |line: &str| {
        cells(line).is_some_and(|cells| {
            matches!(cells.as_slice(), [action, _, calls, total, ..]
                if action == "Action" && calls == "Num calls" && total == "Total time (s)")
        })
    };
    let rows = text.lines().skip_while(|line| !is_header(line)).skip(1);
    let lines = rows
        .filter_map(cells)
        .filter_map(|cells| match cells.as_slice() {
            [action, _, calls, total, ..] if action != "Total" => Some(HostLine {
                function: action.clone(),
                calls: calls.parse().ok()?,
                self_ns: total.parse::<f64>().ok()? * 1e9,
                ..HostLine::default()
            }),
            _ => None,
        });
    let lines: Vec<HostLine> = lines.collect();
    (!lines.is_empty()).then(|| HostProfile::of(LIGHTNING, lines))
}

/// Reads `import time:      1234 |      5678 |   numpy`, in us.
pub(super) fn import_time(text: &str) -> Option<HostProfile> {
    let lines = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("import time:")?.split('|');
        let own: f64 = cells.next()?.trim().parse().ok()?;
        let _: f64 = cells.next()?.trim().parse().ok()?;
        Some(HostLine {
            function: format!("import {}", cells.next()?.trim()),
            calls: 1,
            self_ns: own * 1e3,
            ..HostLine::default()
        })
    });
    let lines: Vec<HostLine> = lines.collect();
    (!lines.is_empty()).then(|| HostProfile::of(IMPORT_TIME, lines))
}

/// Reads the columns `Name`, `Self CPU` and `# of Calls`. Columns are two spaces apart or more.
pub(super) fn key_averages(text: &str) -> Option<HostProfile> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    let mut rows = text.lines();
    let header = rows.by_ref().find_map(|line| {
        let cells = cells(line);
        (cells.first().is_some_and(|cell| cell == "Name")).then_some(cells)
    })?;
    let column = |name: &str| header.iter().position(|cell| cell == name);
    let (own, calls) = (column("Self CPU")?, column("# of Calls")?);
    let lines = rows.filter_map(|line| {
        let cells = cells(line);
        Some(HostLine {
            function: cells
                .first()
                .filter(|_| cells.len() == header.len())?
                .clone(),
            calls: cells.get(calls)?.parse().ok()?,
            self_ns: time(cells.get(own)?)?,
            ..HostLine::default()
        })
    });
    let lines: Vec<HostLine> = lines.collect();
    (!lines.is_empty()).then(|| HostProfile::of("torch.profiler table", lines))
}

/// `12.345us`, `1.2ms` or `3.4s`, in ns.
fn time(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    units.iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * ns)
    })
}
