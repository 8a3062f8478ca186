//! What `memory_profiler` writes: the `.dat` file of `mprof run`, and the table of a decorated function.

use super::model::{HostLine, HostProfile, MOST_SAMPLES, MemorySample, name, unix_ns};

const MIB: f64 = 1_048_576.0;

/// Reads `MEM MiB SECONDS`, and `FUNC name MiB SECONDS MiB SECONDS level` of decorated functions. The
/// command line in the file is not read.
pub(super) fn dat(text: &str) -> Option<HostProfile> {
    let mut memory = Vec::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let mut cells = line.split(' ');
        match cells.next() {
            // A process that has ended has no memory.
            Some("MEM") if memory.len() < MOST_SAMPLES => {
                memory.extend(sample(&mut cells).filter(|sample| sample.bytes > 0.0));
            }
            Some("FUNC") => calls.extend(call(&mut cells)),
            Some("MEM" | "CMDLINE" | "CHLD" | "") | None => {}
            _ => return None,
        }
    }
    memory.sort_by_key(|sample| sample.unix_ns);
    (!memory.is_empty()).then(|| HostProfile {
        memory,
        ..HostProfile::of("memory_profiler", calls)
    })
}

fn sample<'a>(cells: &mut impl Iterator<Item = &'a str>) -> Option<MemorySample> {
    let bytes = number(cells.next()?)? * MIB;
    let unix_ns = unix_ns(number(cells.next()?)?)?;
    (bytes >= 0.0 && bytes.is_finite()).then_some(MemorySample { unix_ns, bytes })
}

fn call<'a>(cells: &mut impl Iterator<Item = &'a str>) -> Option<HostLine> {
    let function = name(cells.next()?);
    let from = sample(cells)?;
    let until = sample(cells)?;
    Some(HostLine {
        function,
        calls: 1,
        self_ns: until.unix_ns.saturating_sub(from.unix_ns) as f64,
        grown_bytes: until.bytes - from.bytes,
        ..HostLine::default()
    })
}

/// Reads the table with the columns `Line #`, `Mem usage`, `Increment`, `Occurrences` and `Line Contents`.
/// Lines of source are not read.
pub(super) fn table(text: &str) -> Option<HostProfile> {
    let mut file = String::new();
    let mut lines = Vec::new();
    let (mut in_table, mut is_first) = (false, true);
    for row in text.lines() {
        if let Some(path) = row.strip_prefix("Filename: ") {
            file = name(path);
            in_table = false;
        } else if row.starts_with("Line #") {
            in_table = row.contains("Mem usage") && row.contains("Increment");
            is_first = true;
        } else if let Some(line) = table_row(row, &file).filter(|_| in_table) {
            // The first row has the memory before the function instead of an increment.
            if !is_first {
                lines.push(line);
            }
            is_first = false;
        }
    }
    (!lines.is_empty()).then(|| HostProfile::of("memory_profiler", lines))
}

/// `    12   52.6 MiB    7.6 MiB          10       x = [1] * n`
fn table_row(row: &str, file: &str) -> Option<HostLine> {
    let mut cells = row.split_whitespace();
    let line = cells.next()?.parse().ok()?;
    let mut mebibytes = || -> Option<f64> {
        let number = number(cells.next()?)?;
        (cells.next()? == "MiB").then_some(number * MIB)
    };
    mebibytes()?;
    let grown_bytes = mebibytes()?;
    let calls = cells.next()?.parse().ok()?;
    Some(HostLine {
        file: file.to_owned(),
        line,
        calls,
        grown_bytes,
        ..HostLine::default()
    })
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}
