//! Sentences of a report that depend on its data. They are plain text: each format escapes them.

use super::{
    FindingList, FindingReport, GoneFinding, HiddenReason, Report, StepsFrom, Summary, TotalSaving,
};
use crate::base::text::some;
use crate::base::units::{counted, ns, ns_range, percent, times};
use crate::correlate::{StepSource, WithoutOperator};
use crate::facts::includes_gpu;
use crate::judge::SavingKind;
use crate::profile::{DataKind, Format};
use crate::read::READERS;

/// Share from which something counts as most of the time and is said first.
const MOST: f64 = 0.5;

/// The rule that finds almost no GPU work in a capture.
const NO_WORK: &str = "profile/no-work";

/// The verdict: what makes the usual figures misleading, what the GPU did, and what can be saved.
pub(super) fn verdict(report: &Report) -> Vec<String> {
    let s = &report.summary;
    if s.kernels == 0 && s.busy_ns == 0 {
        return vec![format!(
            "No GPU work was found in this profile, so nothing could be judged. {}",
            what_to_capture(report)
        )];
    }
    // A rule about the capture that leaves nothing to analyse is the whole verdict.
    if let Some(no_work) = report.capture.iter().find(|f| f.rule == NO_WORK) {
        return vec![what_ran(s), no_work.message.clone()];
    }
    let mut sentences: Vec<String> = straggler(report).cloned().into_iter().collect();
    sentences.extend(leads(s));
    sentences.push(what_ran(s));
    sentences.push(what_to_win(report));
    sentences.extend(since_baseline(report));
    sentences.extend(suppressed(report));
    sentences.extend(thin(s));
    if let Some(why) = &s.idle_unreliable {
        let why = why.trim().trim_end_matches('.');
        let idle = s.device_window_ns.saturating_sub(s.busy_ns);
        sentences.push(format!(
            "Of {} of idle time only {} is used, and step-time savings may not be estimated: {why}.",
            ns(idle as f64),
            ns(s.reliable_idle_ns as f64)
        ));
    }
    sentences
}

/// While the ranks wait for one straggler, changes to the others do not shorten the step.
fn straggler(report: &Report) -> Option<&String> {
    let late = report.job.as_ref().filter(|job| job.straggler.is_some())?;
    late.comparison.last()
}

/// Number of findings of one list that are hidden for one reason.
fn hidden(report: &Report, reason: HiddenReason, list: FindingList) -> u64 {
    let hidden = report.hidden.iter();
    hidden
        .filter(|h| h.reason == reason && h.list == list)
        .count() as u64
}

/// `3 known findings and 1 small one`: the findings hidden for one reason; `None` when there are
/// none.
fn hidden_count(
    report: &Report,
    reason: HiddenReason,
    noun: &str,
) -> Option<(String, &'static str)> {
    let counts = [
        (FindingList::Findings, noun.to_owned()),
        (FindingList::Minor, "small one".to_owned()),
        (FindingList::Capture, "remark on the capture".to_owned()),
    ]
    .map(|(list, noun)| (hidden(report, reason, list), noun));
    let total = counts.iter().fold(0, |sum, (n, _)| sum + n);
    let parts: Vec<String> = counts
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .enumerate()
        .map(|(i, (n, part))| match (i, part.as_str()) {
            (0, "small one") => counted(n, "small finding"),
            (_, "remark on the capture") if n > 1 => format!("{n} remarks on the capture"),
            _ => counted(n, &part),
        })
        .collect();
    let verb = if total == 1 { "is" } else { "are" };
    let listed = match parts.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => parts.concat(),
    };
    (total > 0).then_some((listed, verb))
}

/// What became of the findings of the baseline, one sentence each.
fn since_baseline(report: &Report) -> Vec<String> {
    let Some(baseline) = &report.baseline else {
        return Vec::new();
    };
    let known = match hidden_count(report, HiddenReason::Known, "known finding") {
        Some((what, verb)) => format!("{what} {verb} not shown: the baseline has them."),
        None => "The baseline has none of what was found.".to_owned(),
    };
    let known = match known.strip_suffix("has them.") {
        Some(one) if one.starts_with("1 ") && !one.contains(" and ") => format!("{one}has it."),
        _ => known,
    };
    let mut sentences = vec![known];
    let lists = [
        ("Fixed since the baseline", &baseline.fixed),
        (
            "In the baseline and not looked at this time",
            &baseline.not_checked,
        ),
    ];
    for (lead, gone) in lists {
        if !gone.is_empty() {
            sentences.push(format!("{lead}: {}.", named(gone)));
        }
    }
    sentences
}

/// `precision/amp-off (the whole run), copies/pageable (...) and 2 more`.
fn named(gone: &[GoneFinding]) -> String {
    const NAMED: usize = 5;
    let names: Vec<String> = (gone.iter())
        .map(|g| format!("{} ({})", g.rule, g.place))
        .collect();
    some(&names, NAMED)
}

fn suppressed(report: &Report) -> Option<String> {
    let (what, verb) = hidden_count(report, HiddenReason::Suppressed, "finding")?;
    Some(format!("{what} {verb} suppressed by the configuration."))
}

/// The effect of a suppression, for the list of suppressions.
pub(super) fn suppression(state: &str, findings: u64) -> String {
    let counted = counted(findings, "finding");
    match state {
        "used" => format!("hides {counted}"),
        "expired" if findings > 0 => format!("has expired: {counted} shown again"),
        "expired" => "has expired, and there is no such finding".to_owned(),
        "not_run" => "no rule it is about ran".to_owned(),
        _ => "hides nothing: there is no such finding".to_owned(),
    }
}

/// A busy share of the window below which the GPU did next to nothing.
const HARDLY_BUSY: f64 = 0.1;

/// Sentences for profiles in which most of the time is not computation with a known operator; they
/// come before the figures about kernels.
fn leads(s: &Summary) -> Vec<String> {
    let mut leads = Vec::new();
    let is_most = |part: i64, whole: i64| part as f64 > MOST * whole as f64;
    // What the little work of an idle GPU is does not matter.
    if is_most(s.exposed_copy_ns, s.busy_ns) && s.busy_share >= HARDLY_BUSY {
        leads.push(format!(
            "Most of the GPU time is copying, not computing: during {} of {} only memory copies ran.",
            ns(s.exposed_copy_ns as f64),
            ns(s.busy_ns as f64)
        ));
    }
    if is_most(s.graph_ns, s.busy_ns) {
        leads.push(format!(
            "Most of the GPU time ({} of {}) is CUDA graph launches recorded as a whole: the kernels \
             inside are not in the file and could not be judged.",
            ns(s.graph_ns as f64),
            ns(s.busy_ns as f64)
        ));
    }
    leads
}

/// A sentence for profiles in which most kernels have no operator.
fn thin(s: &Summary) -> Option<String> {
    let without = s.kernel_time_ns.saturating_sub(s.with_operator_ns);
    let outside_graphs = s.kernel_time_ns >= s.graph_ns;
    (outside_graphs && without as f64 > MOST * s.kernel_time_ns as f64).then(|| {
        format!(
            "{} of the kernel time has no known operator, so it could be judged by kernel names and \
             timing only.",
            percent(without as f64 / s.kernel_time_ns as f64)
        )
    })
}

fn what_ran(s: &Summary) -> String {
    let gpu = match (&s.gpu, s.devices) {
        (None, 0 | 1) => "an unidentified GPU".to_owned(),
        (None, n) => format!("{n} unidentified GPUs"),
        (Some(name), 0 | 1) => name.clone(),
        (Some(name), n) => format!("{n} GPUs ({name})"),
    };
    let span = span(s);
    let summed = if s.devices > 1 {
        format!(", summed over {} GPUs", s.devices)
    } else {
        String::new()
    };
    let slowdown = match s.slowdown {
        Some(slowdown) => format!(
            "the work that can be compared with an ideal time ({} of kernel time) took {} of it",
            percent(s.cost_known_ns / (s.kernel_time_ns as f64)),
            times(slowdown)
        ),
        None => "none of it could be compared with an ideal time".to_owned(),
    };
    format!(
        "On {gpu}, {span} held {} of GPU time (busy {} of the window{summed}); {slowdown}.",
        ns(s.busy_ns as f64),
        percent(s.busy_share)
    )
}

/// What the GPU time refers to: the steps where they fill the window; else the window, which may hold
/// work of steps from before the capture.
fn span(s: &Summary) -> String {
    /// Share of the window that the steps must fill to stand for it.
    const ALL: f64 = 0.9;
    /// Most that the steps may exceed the window, as a factor: they begin before their first kernel.
    const LONGER: f64 = 1.5;
    let window = ns(s.window_ns as f64);
    let Some(step) = s.step_ns.filter(|_| s.steps > 0) else {
        return match &s.window_range {
            Some(range) => format!("a window of {window} inside `{range}`"),
            None => format!("a window of {window}"),
        };
    };
    let each = if s.steps == 1 { "" } else { " each" };
    let ahead = match s.host_step_ns {
        Some(host) => format!(
            " on the GPU (the host runs ahead and is done with a step in {})",
            ns(host)
        ),
        None => String::new(),
    };
    let from = s.steps_from.as_ref().map(evidence).unwrap_or_default();
    let steps = format!(
        "{}{from} of {}{each}{ahead}",
        counted(s.steps, "step"),
        ns(step)
    );
    let filled = step * s.steps as f64 / s.window_ns as f64;
    if filled > LONGER {
        // The host spent the steps on other things, such as compiling or loading.
        format!("a window of {window} in {steps}")
    } else if filled >= ALL {
        steps
    } else {
        format!("a window of {window} with {steps}")
    }
}

/// What shows the steps, where they are not numbered.
fn evidence(from: &StepsFrom) -> String {
    match from.source {
        StepSource::Numbered => format!(" (`{}`)", from.text),
        StepSource::NamedRange
        | StepSource::Optimizer
        | StepSource::DataLoader
        | StepSource::RepeatedRange => {
            format!(" (recognized by `{}`)", from.text)
        }
        StepSource::KernelSequence => " (inferred from a repeating sequence of kernels)".to_owned(),
    }
}

fn what_to_win(report: &Report) -> String {
    let Some(first) = report.findings.first() else {
        return nothing_found(report);
    };
    let findings = counted(report.findings.len() as u64, "finding");
    let follow = if report.findings.len() == 1 {
        "follows"
    } else {
        "follow"
    };
    let Some(total) = total(&report.total_saving, &report.summary) else {
        return format!(
            "{findings} {follow}; none has an estimate of the time it gives back. Start with \"{}\" ({}).",
            first.title, first.place
        );
    };
    let place = format!("\"{}\" ({})", first.title, first.place);
    match report.findings.len() {
        1 => format!("The finding below gives back {total}: {place}."),
        _ => match own_part(first, &report.total_saving) {
            Some(part) => {
                format!("The {findings} below give back {total}; start with {place}: {part}.")
            }
            None => format!("The {findings} below give back {total}; start with {place}."),
        },
    }
}

/// The part of the total saving that one finding has.
fn own_part(finding: &FindingReport, all: &TotalSaving) -> Option<String> {
    /// Share of the total from which a finding counts as all of it.
    const ALL: f64 = 0.99;
    let saving = finding
        .saving
        .as_ref()
        .filter(|s| s.counted_high_ns > 0.0)?;
    let whole = match saving.kind {
        SavingKind::Gpu => all.gpu_high_ns,
        SavingKind::Copy => all.copy_high_ns,
        SavingKind::Idle => all.idle_high_ns,
    };
    let kinds = [all.gpu_high_ns, all.copy_high_ns, all.idle_high_ns];
    let alone = kinds.iter().filter(|ns| **ns > 0.0).count() == 1;
    Some(match (saving.counted_high_ns >= ALL * whole, alone) {
        (true, true) => "all of it".to_owned(),
        (true, false) => format!("all {}", of_kind(saving.kind)),
        (false, _) => ns_range(saving.counted_low_ns, saving.counted_high_ns),
    })
}

fn of_kind(kind: SavingKind) -> &'static str {
    match kind {
        SavingKind::Gpu => "of the GPU time",
        SavingKind::Copy => "of the copying",
        SavingKind::Idle => "of the idle time",
    }
}

/// `12 to 24 ms of GPU time (10 to 20 %) and 3 ms of idle time (2 % of the window)`.
fn total(c: &TotalSaving, s: &Summary) -> Option<String> {
    let busy = s.busy_ns as f64;
    let mut parts = [
        (SavingKind::Gpu, c.gpu_low_ns, c.gpu_high_ns, busy),
        (SavingKind::Copy, c.copy_low_ns, c.copy_high_ns, busy),
        (
            SavingKind::Idle,
            c.idle_low_ns,
            c.idle_high_ns,
            s.device_window_ns as f64,
        ),
    ];
    // The largest saving comes first.
    parts.sort_by(|a, b| b.2.total_cmp(&a.2));
    let texts: Vec<String> = parts
        .into_iter()
        .filter(|(_, _, high, _)| *high > 0.0)
        .map(|(kind, low, high, whole)| {
            let of = match kind {
                SavingKind::Gpu => "of GPU time",
                SavingKind::Copy => "of copying",
                SavingKind::Idle => "of idle time",
            };
            let unit = match kind {
                SavingKind::Idle => " of the window",
                _ => "",
            };
            format!(
                "{} {of} (up to {}{unit})",
                ns_range(low, high),
                percent(high / whole)
            )
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(" and "))
}

/// A report without findings: "no problem found" and "not enough data" are different sentences.
fn nothing_found(report: &Report) -> String {
    /// Share of kernel time below which the work with a known cost says nothing about the rest.
    const LITTLE: f64 = 0.1;
    let s = &report.summary;
    if report
        .hidden
        .iter()
        .any(|h| h.list == FindingList::Findings)
    {
        return match &report.baseline {
            Some(_) => "Nothing new was found.".to_owned(),
            None => "Nothing was found that is not suppressed.".to_owned(),
        };
    }
    let rules = counted(report.method.rules_run, "rule");
    if report.method.rules_run == 0 {
        return "No rule was run, so there is no advice.".to_owned();
    }
    if s.slowdown.is_some() && s.cost_known_ns < LITTLE * s.kernel_time_ns as f64 {
        return format!(
            "No advice, and that is no clean bill of health: {rules} ran, but only {} of the kernel time \
             could be compared with what the GPU can do. What they could not look at is listed below.",
            percent(s.cost_known_ns / s.kernel_time_ns as f64)
        );
    }
    if s.slowdown.is_none() {
        return format!(
            "No advice, and that is no clean bill of health: {rules} ran, but no work could be compared \
             with what the GPU can do. {}",
            what_to_capture(report)
        );
    }
    let looked = if report.skipped.is_empty() {
        String::new()
    } else {
        " What they could not look at is listed below.".to_owned()
    };
    let small = match report.minor.len() {
        0 => "nothing to change".to_owned(),
        n => format!(
            "nothing worth changing ({} below the floor)",
            counted(n as u64, "small finding")
        ),
    };
    format!("{rules} looked at it and found {small}.{looked}")
}

/// What to record for a profile with too little data.
fn what_to_capture(report: &Report) -> String {
    if report.summary.kernels == 0 {
        return "Record GPU kernels: `nsys profile -t cuda,nvtx`, or torch.profiler with \
                `ProfilerActivity.CUDA`."
            .to_owned();
    }
    if report.summary.graph_ns > report.summary.kernel_time_ns {
        return "Record the kernels inside graphs: `nsys profile --cuda-graph-trace=node`."
            .to_owned();
    }
    if report.method.gpu.is_none() {
        return match &report.summary.gpu {
            Some(name) => format!("Describe the peaks of the {name} in a file for `--gpu FILE`."),
            None => "Say which GPU it was with `--gpu NAME`.".to_owned(),
        };
    }
    if report.summary.kernel_time_ns > 0
        && report.summary.exposed_comm_ns as f64 > 0.9 * report.summary.busy_ns as f64
    {
        return "All of it is communication: the limits of links are not judged without message sizes and the \
                number of ranks."
            .to_owned();
    }
    if report
        .method
        .cost_known_share
        .is_some_and(|share| share > MOST)
    {
        return "The calls are too short to compare: capture larger ones.".to_owned();
    }
    let formats = READERS.iter().map(|reader| reader.format());
    let format = formats.into_iter().find(|f| f.name == report.method.format);
    let how = format.and_then(|f| f.how_to_record(DataKind::Shapes));
    if let Some(how) = how {
        return format!("Record {how}.");
    }
    "Record operators with their shapes: `emit_nvtx(record_shapes=True)` under nsys, or torch.profiler \
     with `record_shapes=True`."
        .to_owned()
}

/// What to know before relying on the report or sharing it.
pub(super) fn cautions(report: &Report, environment: bool) -> Vec<String> {
    let mut cautions = Vec::new();
    if environment {
        cautions.push(
            "The profile carries the environment variables of the machine it was taken on, which may \
             hold access tokens. Nothing of them is in this report; before you share the profile itself, \
             make a copy without them: pyprof-advise scrub IN OUT."
                .to_owned(),
        );
    }
    match &report.method.gpu {
        None => cautions.push(unknown_gpu(report)),
        Some(gpu) if gpu.what_if || gpu.inferred => cautions.extend(gpu.remarks.iter().cloned()),
        Some(_) => {}
    }
    if !report.faults.is_empty() {
        cautions.push(format!(
            "{} failed while running and may have missed something; see \"What could not be judged\".",
            counted(report.faults.len() as u64, "rule")
        ));
    }
    cautions
}

/// Why nothing is compared with the peaks of the GPU, and what `--gpu` would add.
fn unknown_gpu(report: &Report) -> String {
    let mut text = match &report.summary.gpu {
        Some(name) => format!(
            "The {name} is not in the table of GPUs, and the profile does not state enough of it (clock, \
             bandwidth) to derive its peaks. Describe it in a file for `--gpu FILE`, or compare with a \
             similar GPU by `--gpu NAME`."
        ),
        None => "The profile does not describe its GPU, so nothing is compared with its peaks. Name it with \
                 `--gpu NAME`."
            .to_owned(),
    };
    let waiting = report.skipped.iter().filter(|s| includes_gpu(&s.needs));
    let mut rules: Vec<&str> = waiting
        .flat_map(|s| s.rules.iter().map(String::as_str))
        .collect();
    rules.sort_unstable();
    rules.dedup();
    if !rules.is_empty() {
        let count = counted(rules.len() as u64, "skipped rule");
        let first: Vec<&str> = rules.iter().take(4).copied().collect();
        let more = match rules.len().saturating_sub(first.len()) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        text.push_str(&format!(
            " With it, {count} can run: {}{more}.",
            first.join(", ")
        ));
    }
    text
}

/// The id of the reason why kernels have no operator, and a sentence with a remedy. `has_ranges`:
/// whether operators were recorded.
pub(super) fn missing(
    missing: WithoutOperator,
    format: &Format,
    has_ranges: bool,
) -> (&'static str, String) {
    let markers = match has_ranges {
        true => format.name_operators,
        false => format.record_operators,
    };
    let remedy = match missing {
        WithoutOperator::NoLaunch => {
            "they were launched before the capture began, or their rows were dropped: capture fewer \
             steps, and start while the GPU is idle"
        }
        WithoutOperator::GraphReplay => {
            "the replay is the only host event there is: profile one run without graphs to see \
             the operators"
        }
        WithoutOperator::NoRange | WithoutOperator::NoOperator => markers,
    };
    (
        missing_word(missing),
        format!("{}; {remedy}", missing_short(missing)),
    )
}

/// The reason in a few words.
pub(super) fn missing_short(missing: WithoutOperator) -> &'static str {
    match missing {
        WithoutOperator::NoLaunch => "no launch call in the file",
        WithoutOperator::GraphReplay => "replayed by a graph launch",
        WithoutOperator::NoRange => "launched outside every range",
        WithoutOperator::NoOperator => "launched in ranges that name no operator",
    }
}

/// The reason as the name of a row.
pub(super) fn missing_row(missing: WithoutOperator) -> &'static str {
    match missing {
        WithoutOperator::NoLaunch => "(no launch call in the file)",
        WithoutOperator::GraphReplay => "(replayed by a graph launch)",
        WithoutOperator::NoRange => "(outside every range)",
        WithoutOperator::NoOperator => "(no operator in its ranges)",
    }
}

/// The id of the reason in JSON.
pub(super) fn missing_word(missing: WithoutOperator) -> &'static str {
    match missing {
        WithoutOperator::NoLaunch => "no_launch",
        WithoutOperator::GraphReplay => "graph_replay",
        WithoutOperator::NoRange => "no_range",
        WithoutOperator::NoOperator => "no_operator",
    }
}

/// Name of an activity ([`TimePart::what`](super::TimePart::what)).
pub(super) fn part_of_time(word: &str) -> &'static str {
    match word {
        "compute" => "Computing",
        "communication" => "Communication, nothing computing",
        "copy" => "Copying, no kernel running",
        "set" => "Setting memory, nothing else",
        _ => "Idle",
    }
}

/// Name of the cause of a gap ([`GapRow::cause`](super::GapRow::cause)).
pub(super) fn cause(word: &str) -> &'static str {
    match word {
        "profiler_overhead" => "the profiler at work",
        "data_loading" => "loading data",
        "after_sync" => "after a synchronisation",
        "blocking_copy" => "a copy held the host",
        "allocation" => "allocating memory",
        "module_load" => "loading code",
        "host_late" => "launched too late",
        "host_busy" => "the host did something else",
        "waiting" => "waiting for another stream or GPU",
        _ => "unknown",
    }
}

/// The saving of a finding as a sentence; empty without an estimate.
pub(super) fn saving(finding: &FindingReport) -> String {
    let Some(s) = &finding.saving else {
        return String::new();
    };
    if s.counted_high_ns <= 0.0 {
        return "What it gives back is counted in findings before it.".to_owned();
    }
    let (what, whole) = match s.kind {
        SavingKind::Gpu => ("GPU time", "of GPU time"),
        SavingKind::Copy => ("copying", "of GPU time"),
        SavingKind::Idle => ("idle time", "of the window"),
    };
    format!(
        "Gives back {} of {what} ({} {whole}).",
        ns_range(s.counted_low_ns, s.counted_high_ns),
        percent(s.counted_share)
    )
}
