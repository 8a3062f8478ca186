//! Invariants of the findings for every profile: no contradictory advice for a site, each nanosecond of
//! saving counted once, no minor finding among the main ones, and no findings for a healthy program.
//! `PYPROF_ADVISE_SHARED` names the folder of real profiles.

use crate::one_cause::one_cause_is_one_row;
use crate::{shared, synthetic};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyprof_advise::correlate::{DeviceTimeline, Run, SiteId, UnneededRanges, correlate};
use pyprof_advise::cost::{Costed, VOCABULARY, estimate_costs};
use pyprof_advise::facts::{self, Answer, FactTable, Lookup, Member, MemberKind};
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{FLOOR, Finding, RuleInput, RuleResults, RuleSet, SavingKind, judge};
use pyprof_advise::profile::Profile;
use pyprof_advise::read;
use pyprof_advise::report::{Options, RankTimes, Report, SavingReport, UnitKind, json};

/// "What if" GPUs, one per file in turn: other generations trigger other rules.
const OTHER_GPUS: &[&str] = &[
    "v100-sxm2-16gb",
    "h100",
    "t4",
    "a100-sxm4-40gb",
    "mi300x",
    "b200",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every readable profile: the fixture, and the real ones if they are available.
fn profiles() -> Vec<PathBuf> {
    let mut found = vec![root().join("fixtures/net.sqlite")];
    found.extend(shared::profiles_or_fixtures());
    found.extend(shared::pairs());
    found
}

/// The kernels of a profile with their operators; none for a file without kernels.
fn run(path: &Path) -> Option<Run> {
    let profile = read::open(path, &read::NoProgress).ok()?;
    (!profile.kernels.is_empty()).then(|| correlate(profile, &VOCABULARY))
}

fn hold(name: &str, costed: &Costed, rules: &RuleSet) {
    let table = FactTable::new(costed);
    what_needs_nothing_is_there(name, &table);
    let results = judge(rules, &table);
    assert!(results.faults.is_empty(), "{name}: {:?}", results.faults);
    no_contradiction(name, &table, &results);
    claims_fit_into_analyzed_time(name, &table, &results);
    replaced_work_has_no_other_finding(name, &table, &results);
    one_cause_is_one_row(name, &table, &results);
    let totals = table.totals();
    for finding in &results.findings {
        assert_ne!(finding.category, "profile", "{name}: {}", finding.rule);
        let (amount, whole) = match &finding.saving {
            Some(s) if s.kind == SavingKind::Idle => (s.claimed_ns, totals.window_ns),
            Some(s) => (s.claimed_ns, totals.gpu_busy_ns),
            None => (finding.share, 1.0),
        };
        assert!(
            amount >= FLOOR * whole * 0.999_999,
            "{name}: {} is under the floor",
            finding.rule
        );
    }
    for finding in results
        .findings
        .iter()
        .chain(&results.minor)
        .chain(&results.capture)
    {
        let file = format!("rules/{}.toml", finding.rule);
        assert_eq!(finding.file, file, "{name}");
        assert!(
            root().join(&finding.file).exists(),
            "{name}: {}",
            finding.file
        );
    }
    report(name, &table, &results);
    agrees_with_itself(name, &table, &results);
}

/// Checks that a fact is absent only if its entry describes the missing data, because reports tell
/// users how to record it.
fn what_needs_nothing_is_there(name: &str, table: &FactTable<'_>) {
    let always: Vec<&str> = (facts::all().iter().filter(|f| f.needs.is_empty()))
        .map(|f| f.name)
        .collect();
    for (over, word) in MemberKind::ALL {
        let own = format!("{word}.");
        for member in table.members(over).into_iter().take(300) {
            let view = table.view(member);
            for fact in always.iter().filter(|f| f.starts_with(&own)) {
                let there = view.get(fact) != Answer::Absent;
                assert!(
                    there,
                    "{name}: {fact} of {member:?} is absent, and needs nothing"
                );
            }
        }
    }
}

/// The sites that a finding covers; a finding about the run counts as one more.
fn subjects(table: &FactTable<'_>, finding: &Finding) -> Vec<Option<SiteId>> {
    let mut all: Vec<Option<SiteId>> = Vec::new();
    for member in &finding.members {
        let affected = RuleInput::affected(table, *member);
        all.extend(affected.sites.iter().map(|s| Some(s.site)));
        if *member == Member::Run {
            all.push(None);
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn no_contradiction(name: &str, table: &FactTable<'_>, results: &RuleResults) {
    let mut wanted: BTreeMap<(Option<SiteId>, &str), (&str, &str)> = BTreeMap::new();
    for finding in results.findings.iter().chain(&results.minor) {
        for site in subjects(table, finding) {
            for (key, value) in &finding.changes {
                let (other, by) = wanted
                    .entry((site, key))
                    .or_insert((value.as_str(), finding.rule.as_str()));
                assert_eq!(
                    *other, value,
                    "{name}: {by} and {} want another `{key}` of {site:?}",
                    finding.rule
                );
            }
        }
    }
}

/// Claims of GPU time fit into the sites they are about, all claims into the analyzed time.
fn claims_fit_into_analyzed_time(name: &str, table: &FactTable<'_>, results: &RuleResults) {
    let totals = table.totals();
    let mut of_sites: BTreeMap<Vec<Option<SiteId>>, f64> = BTreeMap::new();
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let mut wall = 0.0;
    for finding in results.findings.iter().chain(&results.minor) {
        let Some(saving) = &finding.saving else {
            continue;
        };
        assert!(
            saving.claimed_ns >= 0.0 && saving.claimed_ns <= saving.high_ns * 1.000_001,
            "{name}: {}",
            finding.rule
        );
        assert!(
            0.0 <= saving.claimed_low_ns
                && saving.claimed_low_ns <= saving.claimed_ns * 1.000_001
                && saving.low_ns <= saving.high_ns,
            "{name}: {}: the lower end is above the upper end",
            finding.rule
        );
        // Copies right behind idle time may go away with it.
        let gaps = finding.members.iter();
        let gaps = gaps.filter(|member| matches!(member, Member::Gap(_)));
        let copies: f64 = gaps
            .map(|gap| RuleInput::affected(table, *gap).copy_ns)
            .sum();
        let most = match saving.kind {
            SavingKind::Gpu => totals.kernel_ns.max(totals.gpu_busy_ns),
            SavingKind::Idle => totals.idle_ns + copies,
            SavingKind::Copy => totals.copy_ns,
        };
        assert!(
            saving.high_ns <= most * 1.000_001 + 1.0,
            "{name}: {} saves {} of {most} ns",
            finding.rule,
            saving.high_ns
        );
        wall += saving.step_ns.unwrap_or(0.0);
        for site in subjects(table, finding).into_iter().flatten() {
            let searched = table.costed.sites[site.idx()].autotuning;
            assert!(
                !searched || saving.kind == SavingKind::Idle,
                "{name}: {} saves time of an algorithm search",
                finding.rule
            );
        }
        let kind = match saving.kind {
            SavingKind::Gpu => "gpu",
            SavingKind::Idle => "idle",
            SavingKind::Copy => "copy",
        };
        // Collectives that move beside other work save the time in which they ran as well as the idle time before them.
        let moved = match saving.kind {
            SavingKind::Idle if finding.category == "communication" => {
                finding.covered.values().sum()
            }
            _ => 0.0,
        };
        *sums.entry(kind).or_default() += (saving.claimed_ns - moved).max(0.0);
        if saving.kind == SavingKind::Idle {
            *sums.entry("copies behind idle time").or_default() += copies;
        }
        if saving.kind == SavingKind::Gpu {
            let mut sites = subjects(table, finding);
            sites.extend(finding.backward.iter().copied().map(Some));
            sites.sort_unstable();
            sites.dedup();
            *of_sites.entry(sites).or_default() += saving.claimed_ns;
        }
    }
    let time = |site: &Option<SiteId>| {
        site.and_then(|id| table.costed.run.sites.get(id.idx()))
            .map_or(0.0, |site| site.time_ns as f64)
    };
    let device_ns = totals.window_ns / f64::from(totals.devices.max(1));
    assert!(
        wall <= device_ns * 1.000_001 + 1.0,
        "{name}: {wall} ns saved of a window of {device_ns} ns"
    );
    // Whatever group of sites one looks at, the findings inside it claim no more than it took.
    for group in of_sites
        .keys()
        .filter(|g| !g.is_empty() && !g.contains(&None))
    {
        let whole: f64 = group.iter().map(time).sum();
        let inside: f64 = of_sites
            .iter()
            .filter(|(other, _)| !other.is_empty() && other.iter().all(|s| group.contains(s)))
            .map(|(_, claimed)| claimed)
            .sum();
        assert!(
            inside <= whole * 1.000_001 + 1.0,
            "{name}: {inside} of {whole} ns in {group:?}"
        );
    }
    let devices = table.costed.run.timeline.devices.iter();
    let reliable_idle_ns = devices.map(DeviceTimeline::reliable_idle_ns).sum::<i64>() as f64;
    let sum_of = |kind: &str| sums.get(kind).copied().unwrap_or(0.0);
    let behind_ns = sum_of("copies behind idle time").min(totals.copy_ns);
    assert!(
        sum_of("idle") + sum_of("copy") <= (reliable_idle_ns + totals.copy_ns) * 1.000_001 + 1.0,
        "{name}: copies behind idle time are claimed twice"
    );
    for (kind, whole) in [
        ("gpu", totals.gpu_busy_ns - totals.copy_ns),
        ("idle", reliable_idle_ns + behind_ns),
        ("copy", totals.copy_ns),
    ] {
        let sum = sum_of(kind);
        assert!(
            sum <= whole * 1.000_001 + 1.0,
            "{name}: {sum} ns of {whole} ns {kind}"
        );
    }
}

/// A finding whose advice removes or replaces work leaves nothing of it to the findings behind it.
fn replaced_work_has_no_other_finding(name: &str, table: &FactTable<'_>, results: &RuleResults) {
    let run = &table.costed.run;
    let mut replaced: BTreeMap<SiteId, f64> = BTreeMap::new();
    for finding in &results.findings {
        for member in &finding.members {
            let affected = RuleInput::affected(table, *member);
            let (mut time, mut gone) = (0.0, 0.0);
            for part in &affected.sites {
                let whole = run.sites[part.site.idx()].time_ns as f64;
                let share = replaced.get(&part.site).map_or(0.0, |ns| ns / whole);
                time += part.time_ns;
                gone += part.time_ns * share.min(1.0);
            }
            assert!(
                gone <= 0.5 * time * 1.000_001,
                "{name}: {} is about {}, most of which a better finding removes",
                finding.rule,
                affected.place
            );
        }
        if finding.replaces_work && finding.saving.is_some() {
            for member in &finding.members {
                let affected = RuleInput::affected(table, *member);
                for part in affected.sites.iter().chain(&affected.backward) {
                    *replaced.entry(part.site).or_default() += part.time_ns;
                }
            }
        }
    }
}

/// Headline, table, sections and lists of a report agree.
fn agrees_with_itself(name: &str, table: &FactTable<'_>, results: &RuleResults) {
    let costed = table.costed;
    let options = Options {
        top: 1_000_000,
        max_sites: 1_000_000,
        ..Options::default()
    };
    let report = Report::new(table, results, &options);
    shares_are_at_most_1(name, "", &serde_json::to_value(&report).unwrap());
    let sum = |kind: SavingKind, part: fn(&SavingReport) -> f64| -> f64 {
        let savings = report.findings.iter().filter_map(|f| f.saving.as_ref());
        savings.filter(|s| s.kind == kind).map(part).sum()
    };
    let total = &report.total_saving;
    for (kind, low, high) in [
        (SavingKind::Gpu, total.gpu_low_ns, total.gpu_high_ns),
        (SavingKind::Idle, total.idle_low_ns, total.idle_high_ns),
        (SavingKind::Copy, total.copy_low_ns, total.copy_high_ns),
    ] {
        let rows = (
            sum(kind, |s| s.counted_low_ns),
            sum(kind, |s| s.counted_high_ns),
        );
        let equal = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1.0);
        assert!(
            equal(rows.0, low) && equal(rows.1, high),
            "{name}: the headline says {low} to {high} ns of {kind:?}, the rows {rows:?}"
        );
    }
    parts_add_up(name, &report, 1);
    savings_fit(name, &report);
    floor_is_of_what_the_table_prints(name, &report);
    window_is_that_of_the_steps(name, costed, &report);
    rates_need_sizes(name, &report);
    let page = pyprof_advise::report::markdown(&report).unwrap();
    // Tables further down number other things.
    let findings = page.split("\n## Where the time goes").next().unwrap();
    let numbers = |start: &str, end: &str| -> Vec<u64> {
        let starts = findings.lines().filter_map(|line| line.strip_prefix(start));
        let heads = starts.filter_map(|line| line.split_once(end));
        heads
            .filter_map(|(number, _)| number.parse().ok())
            .collect()
    };
    let (rows, sections) = (numbers("| ", " |"), numbers("### ", ". "));
    assert_eq!(rows, sections, "{name}: rows of the table, and sections");
    assert_eq!(rows.len(), report.findings.len(), "{name}");
    if let Some(gpu) = &report.summary.gpu {
        let asked = report
            .skipped
            .iter()
            .find(|s| s.needs.starts_with("the GPU"));
        assert!(asked.is_none(), "{name}: {gpu} is known: {asked:?}");
    }
    for fast in &report.already_fast {
        let same = report.sites.iter().filter(|s| {
            s.operator.as_ref() == Some(&fast.operator)
                && s.direction == fast.direction
                && s.pattern.as_deref().unwrap_or_default() == fast.place
        });
        let free: i64 = same
            .filter(|s| s.findings.is_empty())
            .filter(|s| ["gemm", "conv", "attention"].contains(&s.family.as_str()))
            .map(|s| s.time_ns)
            .sum();
        assert!(
            free >= fast.time_ns,
            "{name}: already fast, but a finding covers it or it is no matrix work: {fast:?}"
        );
    }
}

/// What is asserted of each profile holds for the report of a job, whose figures are sums and means of its ranks.
#[test]
fn reports_of_jobs_agree_with_themselves() {
    let Some(root) = shared::path("") else {
        return;
    };
    for job in [
        "profiles/dlrm_8ranks",
        "profiles_pairs/moe/one_before",
        "profiles_pairs/moe/one_after",
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .args(["-q", "--format", "json"])
            .arg(root.join(job))
            .output()
            .unwrap();
        assert!(output.status.success(), "{job}");
        let report = serde_json::from_slice(&output.stdout).unwrap();
        shares_are_at_most_1(job, "", &report);
        let report: Report = serde_json::from_value(report).unwrap();
        parts_add_up(job, &report, report.ranks.len());
    }
}

/// The length of a step, its parts and the tables that divide it are of one interval and one number of steps. The
/// table of steps has those of each file.
fn parts_add_up(name: &str, report: &Report, files: usize) {
    let s = &report.summary;
    let about = |what: &str, value: f64, expected: f64| {
        // Some are rounded to nanoseconds, for each step and device.
        let rounding = 2.0 + (s.steps * s.devices) as f64;
        assert!(
            (value - expected).abs() <= rounding + 1e-6 * expected.abs(),
            "{name}: {what}: {value} is not {expected}"
        );
    };
    let gpus = s.devices.max(1) as f64;
    let part = |what: &str| {
        let parts = report.timeline.parts.iter();
        parts.filter(|p| p.what == what).map(|p| p.ns).sum::<i64>() as f64
    };
    let window = s.device_window_ns as f64;
    let all: i64 = report.timeline.parts.iter().map(|p| p.ns).sum();
    about("the parts", all as f64, window);
    about(
        "parts without idle time",
        all as f64 - part("idle"),
        s.busy_ns as f64,
    );
    let causes: i64 = report.timeline.idle.iter().map(|row| row.ns).sum();
    about("causes of idle time", causes as f64, part("idle"));
    let lengths: i64 = report.launching.gaps.iter().map(|row| row.ns).sum();
    about("idle time by length", lengths as f64, part("idle"));
    assert!(
        s.reliable_idle_ns + s.unexplained_idle_ns + s.graph_launch_idle_ns
            <= (part("idle") as i64),
        "{name}"
    );
    if let Some(step) = s.step_ns.filter(|_| s.steps > 0) {
        let steps = s.work_steps.unwrap_or(s.steps as f64);
        about("steps", step * steps * gpus, window);
        for unit in report.units.iter().filter(|u| u.kind == UnitKind::Step) {
            let mean = |of: &[i64]| of.iter().sum::<i64>() as f64 / of.len() as f64;
            if unit.count == s.steps && unit.wall_ns.len() as u64 == s.steps {
                let each = gpus * s.steps as f64;
                about(
                    "the step as a unit of work",
                    mean(&unit.wall_ns),
                    window / each,
                );
                about(
                    "its busy time",
                    mean(&unit.busy_ns),
                    s.busy_ns as f64 / each,
                );
            }
        }
        let rows = report.timeline.steps.iter().filter(|row| !row.warmup);
        let lengths: Option<Vec<i64>> = rows.map(|row| row.window_part_ns).collect();
        if let Some(lengths) = lengths.filter(|_| report.timeline.steps_omitted == 0) {
            let all: i64 = lengths.iter().sum();
            about(
                "the table of steps",
                all as f64,
                window / gpus * files as f64,
            );
        }
        if let [rank] = report.ranks.as_slice()
            && let Some(ns) = rank.step_ns
        {
            about("the step of its rank", ns, step);
        }
    }
    let whole = s.kernel_time_ns as f64;
    let sites: i64 = report.sites.iter().map(|row| row.time_ns).sum();
    about(
        "sites",
        (sites + report.sites_omitted.time_ns) as f64,
        whole,
    );
    let ranks: i64 = report.ranks.iter().map(|row| row.kernel_time_ns).sum();
    about("ranks", ranks as f64, whole);
    let unattributed: i64 = report.unattributed.iter().map(|row| row.time_ns).sum();
    about(
        "with an operator",
        s.with_operator_ns as f64,
        whole - unattributed as f64,
    );
    let times: Option<Vec<_>> = report.ranks.iter().map(|rank| rank.times).collect();
    if let Some(times) = times.filter(|times| !times.is_empty()) {
        let sum = |of: fn(&RankTimes) -> i64| times.iter().map(of).sum::<i64>() as f64;
        about("busy time of ranks", sum(|t| t.busy_ns), s.busy_ns as f64);
        about("windows of ranks", sum(|t| t.window_ns), window);
        about(
            "communication of ranks",
            sum(|t| t.comm_ns),
            s.comm_ns as f64,
        );
    }
}

/// What findings save of a step is part of what they save of the window, and no more than the step.
fn savings_fit(name: &str, report: &Report) {
    let s = &report.summary;
    let each = s.work_steps.unwrap_or(s.steps.max(1) as f64) * s.devices.max(1) as f64;
    let numbers: Vec<u64> = report.findings.iter().map(|f| f.number).collect();
    assert_eq!(
        numbers,
        (1..).take(numbers.len()).collect::<Vec<u64>>(),
        "{name}"
    );
    let rows = report.layers.iter().map(|row| &row.findings);
    for number in rows
        .chain(report.sites.iter().map(|row| &row.findings))
        .flatten()
    {
        assert!(
            numbers.contains(number),
            "{name}: there is no finding {number}"
        );
    }
    let mut wall = 0.0;
    for finding in report.findings.iter().chain(&report.minor) {
        let Some(saving) = &finding.saving else {
            continue;
        };
        let (low, high) = (
            saving.step_low_ns.unwrap_or(0.0),
            saving.step_high_ns.unwrap_or(0.0),
        );
        assert!(
            low <= high * 1.000_001,
            "{name}: {}: {low} to {high}",
            finding.rule
        );
        if s.steps > 0 {
            // The fix of idle time may also repair findings about work.
            let and_work = match finding.message.contains("of GPU time as well") {
                true => s.busy_ns as f64,
                false => 0.0,
            };
            assert!(
                high <= (saving.counted_high_ns + and_work) / each * 1.000_001 + 1.0,
                "{name}: {}: {high} of a step, {} of the window of {each} steps",
                finding.rule,
                saving.counted_high_ns
            );
        }
        wall += high;
    }
    let step = s.step_ns.filter(|_| s.steps > 0);
    let whole = step.unwrap_or(s.window_ns as f64);
    assert!(
        wall <= whole * 1.000_001 + 1.0,
        "{name}: {wall} of {whole} ns of wall time"
    );
}

/// Minor findings are below 1 % of what the table's percentages are of, and a capture that holds nothing has no
/// findings.
fn floor_is_of_what_the_table_prints(name: &str, report: &Report) {
    let s = &report.summary;
    let step = s.step_ns.filter(|_| s.steps > 0);
    let whole = step.unwrap_or(s.window_ns as f64);
    for finding in &report.minor {
        let low = finding.saving.as_ref().and_then(|s| s.step_low_ns);
        let share = low.map_or(0.0, |ns| ns / whole);
        assert!(
            share < FLOOR * 1.000_001,
            "{name}: {} is minor with {share}",
            finding.rule
        );
    }
    if report.capture.iter().any(|f| f.rule == "profile/no-work") {
        assert!(report.findings.is_empty(), "{name}: no work, but findings");
    }
}

/// Products, convolutions and attention whose sizes were not recorded have neither FLOPs nor a slowdown: a tile and
/// a grid do not give the reduced dimension.
fn rates_need_sizes(name: &str, report: &Report) {
    for site in &report.sites {
        let of_matrices = ["gemm", "conv", "attention"].contains(&site.family.as_str());
        let sized = site.operator.is_some() && !site.arguments.is_empty();
        let invented = site.flops.is_some() || site.slowdown.is_some();
        assert!(
            !of_matrices || sized || !invented,
            "{name}: {:?} {:?} {:?}",
            site.kernel,
            site.flops,
            site.slowdown
        );
    }
}

/// The window begins with the first analyzed step, or when the GPU had finished earlier work; without steps with
/// the first work. The report names the steps, and gives figures of one.
fn window_is_that_of_the_steps(name: &str, costed: &Costed, report: &Report) {
    let run = &costed.run;
    let steps = run.steps.iter().filter(|step| !step.warmup);
    let Some(first) = steps.map(|step| step.span.start).min() else {
        assert_eq!(report.summary.step_ns, None, "{name}");
        return;
    };
    for device in &run.timeline.devices {
        let idle = device
            .gaps
            .first()
            .filter(|gap| gap.span.start == device.span.start);
        let work = idle.map_or(device.span.start, |gap| gap.span.end);
        assert!(
            first <= device.span.start.max(work),
            "{name}: the first work of the window starts before the first step"
        );
    }
    let s = &report.summary;
    assert!(
        s.steps > 0 && s.step_ns.is_some(),
        "{name}: no figures of a step"
    );
    assert!(s.steps_from.is_some(), "{name}: steps of unknown origin");
    let page = pyprof_advise::report::markdown(report).unwrap();
    let figures = page.lines().find(|line| line.contains("GPU busy"));
    assert!(
        figures.is_none_or(|line| line.contains(" step")),
        "{name}: {figures:?}"
    );
}

fn shares_are_at_most_1(name: &str, key: &str, value: &serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                shares_are_at_most_1(name, key, value);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                shares_are_at_most_1(name, key, item);
            }
        }
        serde_json::Value::Number(number) if key.ends_with("share") => {
            let share = number.as_f64().unwrap();
            assert!(
                (0.0..=1.000_001).contains(&share),
                "{name}: {key} = {share}"
            );
        }
        _ => {}
    }
}

/// Checks that at most ten findings are shown by default, each with the file of its rule.
fn report(name: &str, table: &FactTable<'_>, results: &RuleResults) {
    let report = Report::new(
        table,
        results,
        &Options {
            top: 10,
            max_sites: 50,
            ..Options::default()
        },
    );
    let page = pyprof_advise::report::markdown(&report).unwrap();
    let shown = page
        .lines()
        .skip_while(|line| !line.starts_with("| # |"))
        .skip(2)
        .take_while(|line| line.starts_with("| "))
        .count();
    assert!(shown <= 10, "{name}: {shown} findings in the table");
    for finding in results.findings.iter().take(10) {
        let line = format!("confidence, `{}`.", finding.rule);
        assert!(page.contains(&line), "{name}: {line}");
    }
}

/// The report as JSON for a GPU, of a profile read in full or without the ranges that correlation
/// does not need.
fn json_report(profile: Profile, rules: &RuleSet, gpu: Option<&str>) -> Option<String> {
    if profile.kernels.is_empty() {
        return None;
    }
    let gpu = select::choose(gpu, &profile).ok()?;
    let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
    let facts = FactTable::new(&costed);
    let results = judge(rules, &facts);
    let options = Options {
        top: 10,
        max_sites: 50,
        ..Options::default()
    };
    Some(json(&Report::new(&facts, &results, &options)))
}

#[test]
fn pruning_ranges_does_not_change_a_report() {
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    let mut pruned_by_format: BTreeMap<String, u64> = BTreeMap::new();
    for path in profiles() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.metadata().unwrap().len() > 100 << 20 {
            println!("skipped: {name} is larger than a test should read");
            continue;
        }
        let Ok(unpruned) = read::open(&path, &read::NoProgress) else {
            continue;
        };
        let pruned = read::open_pruned(&path, &UnneededRanges, &read::NoProgress).unwrap();
        let removed = pruned.pruned_ranges;
        assert_eq!(
            pruned.ranges.len() as u64 + removed,
            unpruned.ranges.len() as u64,
            "{name}"
        );
        *pruned_by_format
            .entry(pruned.format.id.to_owned())
            .or_default() += removed;
        if removed > 0 {
            let unpruned = json_report(unpruned, &rules, Some("h100"));
            let pruned = json_report(pruned, &rules, Some("h100"));
            assert!(unpruned == pruned, "{name}: {removed} ranges pruned");
        }
    }
    println!("ranges pruned: {pruned_by_format:?}");
}

#[test]
fn findings_neither_contradict_each_other_nor_share_savings() {
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    let mut judged = 0;
    for (path, another) in profiles().into_iter().zip(OTHER_GPUS.iter().cycle()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.metadata().unwrap().len() > 300 << 20 {
            println!("skipped: {name} is larger than a test should read");
            continue;
        }
        let Some(run) = run(&path) else { continue };
        // A GPU that most files do not name, so that rules that need a GPU are evaluated too.
        for gpu in [None, Some(*another)] {
            if let Ok(gpu) = select::choose(gpu, &run.profile) {
                hold(&name, &estimate_costs(run.clone(), gpu), &rules);
                judged += 1;
            }
        }
    }
    assert!(judged >= 1, "no profile could be judged");
}

#[test]
fn healthy_program_has_no_findings() {
    let text = std::fs::read_to_string(root().join("fixtures/healthy.txt")).unwrap();
    let built = synthetic::build(&text);
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    let run = run(&built.path()).unwrap();
    let gpu = select::choose(None, &run.profile).unwrap();
    let costed = estimate_costs(run, gpu);
    hold("healthy.txt", &costed, &rules);
    let facts = FactTable::new(&costed);
    let results = judge(&rules, &facts);
    let said: Vec<&str> = (results.findings.iter().chain(&results.minor))
        .map(|f| f.rule.as_str())
        .collect();
    assert!(said.is_empty(), "{said:?}");
    let report = Report::new(
        &facts,
        &results,
        &Options {
            top: 10,
            max_sites: 50,
            ..Options::default()
        },
    );
    let page = pyprof_advise::report::markdown(&report).unwrap();
    let opening: String = page.lines().take(12).collect::<Vec<_>>().join("\n");
    assert!(
        opening.contains("found nothing worth changing"),
        "no plain opening:\n{opening}"
    );
}
