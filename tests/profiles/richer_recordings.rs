//! More recording never gives worse advice: each real profile is analyzed as it is, and without what a lesser
//! recording lacks: Python calls, the user's ranges, shapes. What the lesser one finds, the richer one finds too,
//! unless it names a more specific cause of the same time or shows that the finding is none.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use pyprof_advise::correlate::{GapCause, correlate};
use pyprof_advise::cost::{Costed, VOCABULARY, estimate_costs};
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{Finding, RuleResults, RuleSet, SavingKind, judge};
use pyprof_advise::profile::{HostRange, RangeKind};
use pyprof_advise::read;
use pyprof_advise::report::{Options, Report};
use rayon::prelude::*;
use rusqlite::Connection;
use serde_json::value::RawValue;
use tempfile::NamedTempFile;

use crate::shared;

/// Share of a claim, a cause or the covered kernels that must be there in the richer recording too.
const KEPT: f64 = 0.8;
/// Share of the GPU's time that may be left without a finding: where other rules have the rest, it is too little.
const LEFT: f64 = 0.05;
/// Share of the window from which idle time with a cause is looked at.
const LARGE: f64 = 0.03;

/// Longest trace that is analyzed several times.
const MOST_BYTES: usize = 12 << 20;

/// What recording costs the host at most, in ns: idle time that it can explain may be lost.
const FRAME_NS: f64 = 1_000.0;
const OPERATOR_NS: f64 = 2_000.0;
const MARKED_OPERATOR_NS: f64 = 10_000.0;

/// What a lesser recording lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    PythonCalls,
    UserRanges,
    Shapes,
    Nvtx,
}

/// Findings of a lesser recording that the richer one has not, and why. Of idle time the rule stands for all.
const EXCEPT: &[(&str, Lacks, &str, &str)] = &[
    (
        "saf_True_c.json.gz",
        Lacks::Shapes,
        "precision/amp-partial",
        "the operators compute in bf16: the `float` in their kernel's name is the accumulator",
    ),
    (
        "dlprof_wrelu_nsys.sqlite",
        Lacks::Nvtx,
        "precision/amp-off",
        "its kernels are those that cuDNN tries in a convolution, which is no work of a step",
    ),
    (
        "incredere_t4/fp32.json.gz",
        Lacks::UserRanges,
        "host/gpu-idle",
        "most of it is the data loader's; the rest has no name and is too little to be looked for",
    ),
];

struct Analysis {
    costed: Costed,
    results: RuleResults,
    report: Report,
}

impl Analysis {
    fn of(path: &Path, rules: &RuleSet) -> Option<Analysis> {
        let profile = read::open(path, &read::NoProgress).ok()?;
        if profile.kernels.is_empty() {
            return None;
        }
        let gpu = select::choose(None, &profile).ok()?;
        let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
        let facts = FactTable::new(&costed);
        let results = judge(rules, &facts);
        let report = Report::new(&facts, &results, &Options::default());
        Some(Analysis {
            costed,
            results,
            report,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Finding> {
        self.results.findings.iter().chain(&self.results.minor)
    }

    fn high(&self, rule: &str) -> f64 {
        let own = self.all().filter(|f| f.rule == rule);
        own.filter_map(|f| f.saving).map(|s| s.high_ns).sum()
    }

    /// What all findings together save of idle time.
    fn idle_saving(&self) -> f64 {
        let savings = self.all().filter_map(|f| f.saving);
        let idle = savings.filter(|s| s.kind == SavingKind::Idle);
        idle.map(|s| s.claimed_ns).sum()
    }

    fn reliable_ns(&self) -> f64 {
        self.report.summary.reliable_idle_ns as f64
    }

    /// Idle time by cause.
    fn causes(&self) -> BTreeMap<GapCause, i64> {
        let mut causes = BTreeMap::new();
        for gap in self
            .costed
            .run
            .timeline
            .devices
            .iter()
            .flat_map(|d| &d.gaps)
        {
            *causes.entry(gap.cause).or_default() += gap.span.ns();
        }
        causes
    }

    /// Per kernel of the profile: the share of its time that a finding covers.
    fn covered(&self, finding: &Finding) -> Vec<f64> {
        let run = &self.costed.run;
        let share = |site| {
            let covered = finding.covered.get(&site).copied().unwrap_or(0.0);
            covered / run.sites[site.idx()].time_ns.max(1) as f64
        };
        let links = run.links.iter();
        links
            .map(|link| link.site.map_or(0.0, share).min(1.0))
            .collect()
    }

    /// What recording the ranges of the window can have cost at most, on all devices.
    fn recording_ns(&self, lacks: Lacks) -> f64 {
        let run = &self.costed.run;
        // Those of PyProf hold arguments and call stacks of any size.
        let is_pyprof = |range: &HostRange| run.profile.text(range.text).starts_with("{'");
        if run.profile.ranges.iter().any(is_pyprof) {
            return f64::INFINITY;
        }
        let Some(window) = run.window.span else {
            return 0.0;
        };
        let inside = run
            .profile
            .ranges
            .iter()
            .filter(|range| window.contains(range.span.start));
        let costs = inside.map(|range| match (lacks, range.kind) {
            (Lacks::PythonCalls, RangeKind::Python) => FRAME_NS,
            (Lacks::PythonCalls, RangeKind::CpuOp) => OPERATOR_NS,
            (Lacks::Nvtx, RangeKind::PushPop) => MARKED_OPERATOR_NS,
            _ => 0.0,
        });
        // Starts are counted in slices of time, so that a gap may get some of its neighbours.
        1.05 * costs.sum::<f64>() * run.timeline.devices.len() as f64
    }
}

// ------------------------------------------------------------------------- the lesser recordings

fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .unwrap();
        return text;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A trace without some of its events.
fn trace_without(trace: &str, lacks: Lacks) -> Option<NamedTempFile> {
    #[derive(serde::Deserialize)]
    struct Event {
        #[serde(default)]
        cat: String,
        #[serde(default)]
        name: serde_json::Value,
    }
    let mut parts: BTreeMap<String, &RawValue> = serde_json::from_str(trace).ok()?;
    let events: Vec<&RawValue> = serde_json::from_str(parts.remove("traceEvents")?.get()).ok()?;
    let is_kept = |event: &&&RawValue| {
        let event: Event = serde_json::from_str(event.get()).unwrap();
        let numbered = || {
            event
                .name
                .as_str()
                .is_some_and(|n| n.starts_with("ProfilerStep"))
        };
        match lacks {
            Lacks::PythonCalls => event.cat != "python_function",
            Lacks::UserRanges => !event.cat.ends_with("user_annotation") || numbered(),
            Lacks::Shapes | Lacks::Nvtx => true,
        }
    };
    let kept: Vec<&str> = events
        .iter()
        .filter(is_kept)
        .map(|event| event.get())
        .collect();
    let mut written = kept.join(",\n");
    if lacks == Lacks::Shapes {
        for key in [
            "Input Dims",
            "Input dims",
            "Input type",
            "Concrete Inputs",
            "Input Strides",
        ] {
            written = written.replace(&format!("\"{key}\""), "\"unused\"");
        }
        if !trace.contains("\"Input Dims\"") && !trace.contains("\"Input dims\"") {
            return None;
        }
    } else if kept.len() == events.len() {
        return None;
    }
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let rest = parts
        .iter()
        .map(|(key, value)| format!("{key:?}: {},\n", value.get()));
    let rest: String = rest.collect();
    std::fs::write(
        file.path(),
        format!("{{{rest}\"traceEvents\": [{written}]}}"),
    )
    .unwrap();
    Some(file)
}

/// An export of Nsight Systems without the ranges of the program.
fn export_without_ranges(path: &Path) -> Option<NamedTempFile> {
    let file = tempfile::Builder::new()
        .suffix(".sqlite")
        .tempfile()
        .unwrap();
    std::fs::write(file.path(), std::fs::read(path).unwrap()).unwrap();
    let database = Connection::open(file.path()).unwrap();
    let removed = database.execute("DELETE FROM NVTX_EVENTS", []).ok()?;
    (removed > 0).then_some(file)
}

/// What is recorded of a profile, and the same recording with less.
fn lesser(path: &Path) -> Vec<(Lacks, NamedTempFile)> {
    let lacking = |lacks| move |file| (lacks, file);
    if path.extension().is_some_and(|e| e == "sqlite") {
        let file = export_without_ranges(path);
        return file.map(lacking(Lacks::Nvtx)).into_iter().collect();
    }
    if !path.to_string_lossy().contains(".json") {
        return Vec::new();
    }
    let trace = text(path);
    // Large traces are looked at where most was recorded.
    let all = [Lacks::PythonCalls, Lacks::UserRanges, Lacks::Shapes];
    let of_size = if trace.len() > MOST_BYTES {
        &all[..1]
    } else {
        &all
    };
    (of_size.iter().copied())
        .filter_map(|lacks| trace_without(&trace, lacks).map(lacking(lacks)))
        .collect()
}

// ------------------------------------------------------------------------------- the comparison

/// A cause that says what to change; time of the others may turn out to have one of these.
fn is_specific(cause: GapCause) -> bool {
    !matches!(
        cause,
        GapCause::HostBusy | GapCause::HostLate | GapCause::Waiting | GapCause::Unknown
    )
}

fn is_excepted(name: &str, lacks: Lacks, rule: &str) -> bool {
    let mut except = EXCEPT.iter();
    except.any(|(file, what, of, _)| name.ends_with(file) && (*what, *of) == (lacks, rule))
}

/// What the richer recording has lost.
fn lost(name: &str, lacks: Lacks, rich: &Analysis, poor: &Analysis) -> Vec<String> {
    let mut lost = Vec::new();
    let window = |analysis: &Analysis| {
        let run = &analysis.costed.run;
        (
            run.window.span,
            analysis.report.summary.window_ns,
            run.window.excluded.clone(),
        )
    };
    if window(rich) != window(poor) {
        // What is recorded shows what belongs to no step, or is done once. The report says which.
        let named = |analysis: &Analysis| {
            let report = &analysis.report;
            let setup = &report.setup;
            (
                report.summary.steps,
                report.summary.window_range.clone(),
                setup.excluded.clone(),
                setup.loading_ns,
            )
        };
        let shorter = rich.report.summary.window_ns <= poor.report.summary.window_ns;
        if named(rich) == named(poor) || (rich.report.summary.steps == 0 && !shorter) {
            lost.push("another window, and nothing says why".to_owned());
        }
        return lost;
    }
    let recording = rich.recording_ns(lacks);
    let reliable = poor.reliable_ns() - rich.reliable_ns();
    if reliable > recording + 0.01 * rich.report.summary.window_ns as f64 {
        lost.push(format!(
            "{reliable} ns of idle time count no more; recording costs {recording} ns at most"
        ));
    }
    let causes = rich.causes();
    for (cause, ns) in poor.causes() {
        let now = causes.get(&cause).copied().unwrap_or(0);
        let large = ns as f64 >= LARGE * rich.report.summary.window_ns as f64;
        if large && is_specific(cause) && (now as f64) < KEPT * ns as f64 {
            lost.push(format!("{ns} ns of {cause:?} are {now} ns"));
        }
    }
    let idle = rich.idle_saving() + reliable.max(0.0);
    if idle < KEPT * poor.idle_saving() && !is_excepted(name, lacks, "host/gpu-idle") {
        lost.push(format!(
            "{} ns of idle time saved, and {idle} ns",
            poor.idle_saving()
        ));
    }
    let own = |analysis: &Analysis, finding: &Finding| analysis.covered(finding);
    let shares: Vec<(&Finding, Vec<f64>)> = rich.all().map(|f| (f, own(rich, f))).collect();
    for finding in &poor.results.findings {
        let is_idle = finding.saving.is_some_and(|s| s.kind == SavingKind::Idle);
        let high = finding.saving.map_or(0.0, |s| s.high_ns);
        let same = rich.all().any(|f| f.rule == finding.rule);
        if is_idle
            || is_excepted(name, lacks, &finding.rule)
            || (same && rich.high(&finding.rule) >= KEPT * high)
        {
            continue;
        }
        // Other findings of the same kernels, and what they claim.
        let covered_there = own(poor, finding);
        let kernels = rich.costed.run.profile.kernels.iter().zip(&covered_there);
        let times: Vec<f64> = kernels
            .map(|(k, share)| share * k.span.ns() as f64)
            .collect();
        let all: f64 = times.iter().sum();
        let covered = |of: &dyn Fn(usize) -> f64| -> f64 {
            times
                .iter()
                .enumerate()
                .map(|(at, ns)| ns * of(at).min(1.0))
                .sum()
        };
        let still = covered(&|at| shares.iter().map(|(_, share)| share[at]).sum());
        let others = shares
            .iter()
            .filter(|(_, share)| covered(&|at| share[at]) > 0.5 * all);
        let claims: f64 = others
            .filter_map(|(f, _)| f.saving)
            .map(|s| s.high_ns)
            .sum();
        let little = still > 0.0 && all - still < LEFT * rich.report.summary.busy_ns as f64;
        let told = still >= KEPT * all || little || (claims >= KEPT * high && high > 0.0);
        if !told || all == 0.0 {
            lost.push(format!(
                "{}: {high} ns saved, and {}; {still} of its {all} ns have a finding",
                finding.rule,
                rich.high(&finding.rule)
            ));
        }
    }
    lost
}

/// One range with the number of an autograd node, among those of the user.
#[test]
fn one_marked_operator_costs_the_idle_time_of_one() {
    let Some(path) = shared::path("profiles/cs336athrun_win.sqlite") else {
        return;
    };
    let file = tempfile::Builder::new()
        .suffix(".sqlite")
        .tempfile()
        .unwrap();
    std::fs::write(file.path(), std::fs::read(&path).unwrap()).unwrap();
    let database = Connection::open(file.path()).unwrap();
    let marked = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid)
         SELECT start + 1000, start + 2000, 59, 'aten::add, seq = 1', globalTid
         FROM NVTX_EVENTS WHERE eventType = 59 AND end > start + 3000 ORDER BY start DESC LIMIT 1";
    assert_eq!(database.execute(marked, []).unwrap(), 1);
    drop(database);
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    let poor = Analysis::of(&path, &rules).unwrap();
    let rich = Analysis::of(file.path(), &rules).unwrap();
    let lost = poor.reliable_ns() - rich.reliable_ns();
    assert!(lost > 0.0 && lost < 0.03 * poor.reliable_ns(), "{lost} ns");
}

#[test]
fn more_recording_never_gives_worse_advice() {
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    let mut paths = shared::profiles_or_fixtures();
    paths.extend(shared::pairs());
    // One rank of a job stands for all.
    paths.retain(|path| {
        !path.to_string_lossy().contains("dlrm_8ranks/worker")
            || path.ends_with("worker4.pt.trace.json.gz")
    });
    let worse: Vec<Vec<String>> = paths
        .par_iter()
        .map(|path| {
            let mut rows = Vec::new();
            let Some(rich) = Analysis::of(path, &rules) else {
                return rows;
            };
            let name = shared::name(path);
            for (lacks, file) in lesser(path) {
                let Some(poor) = Analysis::of(file.path(), &rules) else {
                    continue;
                };
                let lost = lost(&name, lacks, &rich, &poor);
                rows.extend(
                    lost.iter()
                        .map(|row| format!("{name} lacking {lacks:?}: {row}")),
                );
            }
            rows
        })
        .collect();
    let worse = worse.concat();
    assert!(worse.is_empty(), "{}", worse.join("\n"));
}
