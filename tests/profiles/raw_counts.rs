//! Counts of calls, steps and kernels in the analyzed window, taken from the rows of the files without our readers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use pyprof_advise::correlate::{Run, StepSource, correlate};
use pyprof_advise::cost::{VOCABULARY, estimate_costs};
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::RuleResults;
use pyprof_advise::profile::Span;
use pyprof_advise::read;
use pyprof_advise::report::{Options, Report};
use rayon::prelude::*;
use rusqlite::{Connection, OpenFlags};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::shared;

/// Most kinds of waiting calls that a report lists.
const WAITS: usize = 10;

/// A row of a file: a call, a range or a kernel.
#[derive(Debug, Clone)]
struct Row {
    name: String,
    span: Span,
    /// Process and correlation id.
    launch: (i64, i64),
}

#[derive(Debug, Default)]
struct Raw {
    calls: Vec<Row>,
    ranges: Vec<Row>,
    kernels: Vec<Row>,
}

fn of_export(path: &Path) -> Option<Raw> {
    let uri = format!("file:{}?immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let database = Connection::open_with_flags(uri, flags).ok()?;
    let rows = |query: &str| -> Vec<Row> {
        let Ok(mut statement) = database.prepare(query) else {
            return Vec::new();
        };
        let row = |row: &rusqlite::Row<'_>| {
            let start = row.get(1)?;
            let end: Option<i64> = row.get(2)?;
            Ok(Row {
                name: row.get(0)?,
                span: Span {
                    start,
                    end: end.unwrap_or(start),
                },
                launch: (row.get(3)?, row.get(4)?),
            })
        };
        statement
            .query_map([], row)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    let process = "globalTid & ~0xFFFFFF";
    Some(Raw {
        calls: rows(&format!(
            "SELECT s.value, r.start, r.end, {process}, r.correlationId
             FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId"
        )),
        ranges: rows(&format!(
            "SELECT coalesce(n.text, s.value), n.start, n.end, {process}, 0
             FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
             WHERE n.eventType IN (59, 60) AND coalesce(n.text, s.value) IS NOT NULL"
        )),
        kernels: rows(
            "SELECT '', start, end, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL",
        ),
    })
}

/// Microseconds as nanoseconds: times since 1970 have more digits than a floating-point number.
fn ns(value: Option<&RawValue>) -> i64 {
    let text = value.map_or("0", RawValue::get).trim_matches('"');
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    let exact = whole.parse().ok().zip(digits.parse().ok());
    let exact = exact.map(|(us, ns): (i64, i64)| us * 1_000 + ns);
    exact.unwrap_or_else(|| (text.parse::<f64>().unwrap_or(0.0) * 1e3).round() as i64)
}

#[derive(Deserialize)]
struct Trace<'a> {
    #[serde(borrow, rename = "traceEvents")]
    events: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(default)]
    args: Arguments,
}

#[derive(Deserialize, Default)]
struct Arguments {
    correlation: Option<i64>,
}

fn of_trace(path: &Path) -> Option<Raw> {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    match path.extension().is_some_and(|e| e == "gz") {
        true => {
            let mut gz = flate2::read::GzDecoder::new(&bytes[..]);
            gz.read_to_string(&mut text).unwrap();
        }
        false => text = String::from_utf8_lossy(&bytes).into_owned(),
    }
    let trace: Trace<'_> = serde_json::from_str(&text).ok()?;
    let mut raw = Raw::default();
    // Other events have other fields.
    let events = trace.events.iter();
    for event in events.filter_map(|event| serde_json::from_str::<Event<'_>>(event.get()).ok()) {
        let rows = match &*event.cat {
            "cuda_runtime" | "cuda_driver" | "Runtime" => &mut raw.calls,
            "user_annotation" | "cpu_op" | "Operator" => &mut raw.ranges,
            "kernel" | "Kernel" => &mut raw.kernels,
            _ => continue,
        };
        if event.ph == "X" {
            let start = ns(event.ts);
            let end = start + ns(event.dur);
            rows.push(Row {
                name: event.name.into_owned(),
                span: Span { start, end },
                launch: (0, event.args.correlation.unwrap_or(-1)),
            });
        }
    }
    Some(raw)
}

/// The rows of a file, its analysis, and what the times of the rows are later than those of the analysis.
fn read_both(path: &Path) -> Option<(Raw, Run, Report)> {
    let name = path.to_string_lossy();
    let mut raw = match () {
        () if name.ends_with(".sqlite") => of_export(path)?,
        () if name.contains(".json") => of_trace(path)?,
        () => return None,
    };
    let profile = read::open(path, &read::NoProgress).ok()?;
    if profile.kernels.is_empty() || profile.recorded.thinned {
        return None;
    }
    let gpu = select::choose(None, &profile).ok()?;
    let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
    let facts = FactTable::new(&costed);
    let report = Report::new(&facts, &RuleResults::default(), &Options::default());
    let run = costed.run;
    let first = |starts: &mut dyn Iterator<Item = i64>| starts.min();
    let ours = first(&mut run.profile.kernels.iter().map(|k| k.span.start))?;
    let theirs = first(&mut raw.kernels.iter().map(|k| k.span.start))?;
    let offset = theirs - ours;
    for row in raw
        .calls
        .iter_mut()
        .chain(&mut raw.ranges)
        .chain(&mut raw.kernels)
    {
        row.span.start -= offset;
        row.span.end -= offset;
    }
    Some((raw, run, report))
}

/// A call's name without the version of its interface.
fn plain(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((plain, version)) if version.bytes().all(|b| b.is_ascii_digit()) => plain,
        _ => name,
    }
}

fn is_launch(name: &str) -> bool {
    ["LaunchKernel", "LaunchCooperative", "GraphLaunch"]
        .iter()
        .any(|part| name.contains(part))
}

fn is_excluded(run: &Run, time: i64) -> bool {
    let excluded = run.window.excluded.iter();
    excluded
        .into_iter()
        .any(|e| e.span.start <= time && time < e.span.end)
}

/// Launches, synchronizations and blocking copies of the report are those of the rows in its window.
fn calls_are_those_of_the_rows(name: &str, raw: &Raw, run: &Run, report: &Report) -> Vec<String> {
    let Some(window) = run.window.span.filter(|_| run.profile.recorded.api_calls) else {
        return Vec::new();
    };
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut launches = 0;
    for call in &raw.calls {
        let inside = call.span.start < window.end && call.span.end > window.start;
        if inside && !is_excluded(run, call.span.start) {
            *counts.entry(plain(&call.name)).or_default() += 1;
            launches += u64::from(is_launch(&call.name));
        }
    }
    let mut faults = Vec::new();
    if report.launching.launches != launches {
        faults.push(format!(
            "{name}: {} launches, and {launches} rows",
            report.launching.launches
        ));
    }
    for wait in &report.launching.waits {
        let rows = counts.remove(wait.name.as_str()).unwrap_or(0);
        if rows != wait.count {
            faults.push(format!(
                "{name}: {} {} times, and {rows} rows",
                wait.name, wait.count
            ));
        }
    }
    let waits = |call: &str| {
        let blocks = call.contains("Memcpy") && !call.contains("Async");
        call.contains("Synchronize") || blocks
    };
    for (call, rows) in counts.into_iter().filter(|(call, _)| waits(call)) {
        if report.launching.waits.len() < WAITS {
            faults.push(format!("{name}: {rows} rows of {call}, and no such wait"));
        }
    }
    faults
}

/// Each step that the rows show is analyzed whole, or named as left out; so is the work that it launched.
fn steps_are_analyzed_or_named(name: &str, raw: &Raw, run: &Run, report: &Report) -> Vec<String> {
    let (Some(from), Some(window)) = (&report.summary.steps_from, run.window.span) else {
        return Vec::new();
    };
    if from.source == StepSource::KernelSequence {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let launches: Vec<&Row> = raw
        .calls
        .iter()
        .filter(|call| is_launch(&call.name))
        .collect();
    let kernels: BTreeMap<(i64, i64), Span> = raw
        .kernels
        .iter()
        .map(|kernel| (kernel.launch, kernel.span))
        .collect();
    let steps = raw
        .ranges
        .iter()
        .filter(|range| range.name.starts_with(&from.text));
    let is_analyzed = |time: i64| {
        let mut steps = run.steps.iter().filter(|step| !step.warmup);
        steps.any(|step| step.span.contains(time))
    };
    let launched: BTreeMap<(i64, i64), i64> = launches
        .iter()
        .map(|call| (call.launch, call.span.start))
        .collect();
    let others: Vec<Span> = (raw.kernels.iter())
        .filter(|kernel| {
            !launched
                .get(&kernel.launch)
                .is_some_and(|time| is_analyzed(*time))
        })
        .map(|kernel| kernel.span)
        .collect();
    // Rounded times, and copies between the earlier work and the first kernel of a step.
    let slack = 1_000 + window.ns() / 1_000;
    let mut seen = 0;
    for step in steps {
        let own = launches
            .iter()
            .filter(|call| step.span.contains(call.span.start));
        let work: Vec<Span> = own
            .filter_map(|call| kernels.get(&call.launch).copied())
            .collect();
        if work.is_empty() {
            continue;
        }
        seen += 1;
        let known = run
            .steps
            .iter()
            .find(|known| known.span.contains(step.span.start));
        match known {
            Some(known) if known.warmup => {
                let named = report.timeline.steps.iter().any(|row| row.warmup);
                if !named || report.setup.excluded.is_empty() {
                    faults.push(format!("{name}: {} is left out, not named", step.name));
                }
            }
            Some(_) => {
                // Until the GPU had done what was launched before, it worked for no analyzed step.
                let earlier = others.iter().filter(|other| other.start < window.start);
                let earlier = earlier.map(|other| other.end).max().unwrap_or(i64::MIN);
                let last = work
                    .iter()
                    .map(|kernel| kernel.end)
                    .max()
                    .unwrap_or(step.span.end);
                let begins = window.start <= step.span.start.max(earlier) + slack;
                if !begins || last.max(step.span.end) > window.end {
                    faults.push(format!(
                        "{name}: {} at {:?} with work until {last} is cut: {window:?}",
                        step.name, step.span
                    ));
                }
            }
            None if is_excluded(run, step.span.start) && !report.setup.excluded.is_empty() => {}
            None => faults.push(format!("{name}: {} is no step", step.name)),
        }
    }
    if seen == 0 {
        faults.push(format!("{name}: no row is a step of {from:?}"));
    }
    faults
}

/// Numbered steps in the rows are steps of the report, whatever else it sees.
fn numbered_steps_are_steps(name: &str, raw: &Raw, report: &Report) -> Vec<String> {
    let numbered = raw.ranges.iter().filter(|range| {
        let number = range.name.strip_prefix("ProfilerStep#");
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    });
    let mut numbers: Vec<&str> = numbered.map(|range| range.name.as_str()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let rows = report.timeline.steps.len();
    match numbers.len() {
        0 => Vec::new(),
        steps if steps == rows => Vec::new(),
        steps => vec![format!(
            "{name}: {steps} numbered steps, and {rows} in the report"
        )],
    }
}

#[test]
fn calls_and_steps_are_those_of_the_rows() {
    let mut paths = shared::profiles_or_fixtures();
    paths.extend(shared::pairs());
    let faults: Vec<Vec<String>> = (paths.par_iter())
        .filter_map(|path| {
            let (raw, run, report) = read_both(path)?;
            let name = shared::name(path);
            let mut faults = calls_are_those_of_the_rows(&name, &raw, &run, &report);
            faults.extend(steps_are_analyzed_or_named(&name, &raw, &run, &report));
            faults.extend(numbered_steps_are_steps(&name, &raw, &report));
            Some(faults)
        })
        .collect();
    let faults = faults.concat();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
