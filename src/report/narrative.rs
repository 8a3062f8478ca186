//! Sentences of a report that depend on its data. They are plain text: each format escapes them.

use super::basis::{Basis, Whole, amount};
use super::finding_report::FindingReport;
use super::model::{Report, Summary};
use crate::base::statistics::NEARLY_ALL;
use crate::base::text::list_some;
use crate::base::units::{counted, ns_range, percent, percent_range};
use crate::correlate::WithoutOperator;
use crate::facts::includes_gpu;
use crate::profile::{DataKind, Format};
use crate::read::READERS;

/// Share from which something counts as most of the time.
const MOST: f64 = 0.5;

/// The rule about files that hold only a sample of a trace.
pub(super) const SAMPLED: &str = "profile/sampled-events";
/// The rule that finds almost no GPU work in a capture.
pub(super) const NO_WORK: &str = "profile/no-work";
/// The rule about a capture with too little GPU work to stand for a run.
pub(super) const SHORT_CAPTURE: &str = "profile/short-capture";
/// The rule about steps of different length.
pub(super) const UNEVEN_STEPS: &str = "profile/uneven-steps";
/// The rule about steps that recording made longer.
pub(super) const RECORDING_SLOWS: &str = "profile/recording-slows";

/// The effect of a suppression, for the list of suppressions.
pub(super) fn suppression(state: &str, findings: u64) -> String {
    let counted = counted(findings, "finding");
    match state {
        "used" => format!("hides {counted}"),
        "expired" if findings > 0 => format!("has expired: {counted} shown again"),
        "expired" => "has expired, and there is no such finding".to_owned(),
        "not_run" => "no rule it is about ran".to_owned(),
        _ => "hides nothing: no finding has this rule and place".to_owned(),
    }
}

/// The share of kernel time without a known operator, where it is most of it.
pub(super) fn percent_of_kernel_time(s: &Summary) -> Option<String> {
    let without = s.kernel_time_ns.saturating_sub(s.with_operator_ns);
    (without as f64 > MOST * s.kernel_time_ns as f64).then(|| {
        format!(
            "{} of kernel time has no known operator",
            percent(without as f64 / s.kernel_time_ns as f64)
        )
    })
}

/// What to record for a profile with too little data.
pub(super) fn what_to_capture(report: &Report) -> String {
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
        && report.summary.exposed_comm_ns as f64 > NEARLY_ALL * report.summary.busy_ns as f64
    {
        let then = match report.job {
            Some(_) => "record steps that compute, too (docs/capture.md).",
            // One process drives all of them, so there are no other files.
            None if report.summary.devices > 1 => {
                "record steps that compute, too (docs/capture.md)."
            }
            None => "analyze the files of all ranks together to tell transfer from waiting.",
        };
        return format!("Nearly all GPU work is communication: {then}");
    }
    if report
        .method
        .cost_known_share
        .is_some_and(|share| share > MOST)
    {
        return "The calls are too short to compare: capture larger ones.".to_owned();
    }
    if report.method.lacks_api_calls {
        return "Record the API calls that launch kernels, too: without them no kernel belongs to an operator."
            .to_owned();
    }
    let without_operator = report.unattributed.first();
    if without_operator.is_some_and(|row| row.text.contains(TENSORRT_LAYERS)) {
        return "The layers of a TensorRT engine are no operators: build it with \
                `--profilingVerbosity=detailed`, and list them with `trtexec --dumpLayerInfo`."
            .to_owned();
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
            "The profile contains the environment variables of its machine, which may hold access \
             tokens. This report has none of them but known switches of performance. Before you share the profile, remove them with \
             `pyprof-advise scrub IN OUT`."
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
            "{} failed while running and may have missed something; see \"Skipped\".",
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
        let names = list_some(&rules, 4);
        text.push_str(&format!(" With it, {count} can run: {names}."));
    }
    text
}

/// What tells more of kernels of a TensorRT engine.
pub(super) const TENSORRT_LAYERS: &str = "they belong to a TensorRT engine, whose layers are no operators: \
    build it with `--profilingVerbosity=detailed`, and \
    `trtexec --loadEngine=model.engine --dumpLayerInfo --exportLayerInfo=layers.json` lists types and sizes of \
    all layers";

/// What tells more of kernels of nvFuser.
pub(super) const NVFUSER_KERNELS: &str = "nvFuser made them: their names have types and ranks of the tensors, \
    but no sizes; the environment variable `NVFUSER_PROF=print` lists the bytes and the bandwidth of each";

/// What tells more of kernels of other programs.
pub(super) const NOT_PYTORCH: &str = "no PyTorch was seen; NVTX ranges (`nvtxRangePush`) around the parts of \
    the program name them, and `ncu --section SpeedOfLight` measures how close to the peaks its kernels run";

/// The id of the reason why kernels have no operator, and a sentence with a remedy; `markers` is the remedy
/// for missing ranges.
pub(super) fn missing(
    missing: WithoutOperator,
    format: &Format,
    markers: &str,
) -> (&'static str, String) {
    let remedy = match missing {
        WithoutOperator::NoLaunch => {
            "they were launched before the capture began, or their rows were dropped: capture fewer \
             steps, and start while the GPU is idle"
        }
        WithoutOperator::GraphReplay if format.has_graph_captures => {
            "no host record per kernel: start the recording before the graphs are captured \
             (docs/capture.md), or profile one run without graphs; `--eager-trace` with that profile \
             names these kernels"
        }
        WithoutOperator::GraphReplay => {
            "no host record per kernel: profile one run without graphs to see the operators; \
             `--eager-trace` with that profile names these kernels"
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
        WithoutOperator::NoLaunch => "no launch record in the file",
        WithoutOperator::GraphReplay => "launched by a graph replay",
        WithoutOperator::NoRange => "launched outside any range",
        WithoutOperator::NoOperator => "launched outside any known operator",
    }
}

/// The reason as the name of a row.
pub(super) fn missing_row(missing: WithoutOperator) -> &'static str {
    match missing {
        WithoutOperator::NoLaunch => "(no launch record)",
        WithoutOperator::GraphReplay => "(graph replay)",
        WithoutOperator::NoRange => "(outside any range)",
        WithoutOperator::NoOperator => "(no known operator)",
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
        "communication" => "Communication only",
        "copy" => "Copying only",
        "set" => "Setting memory",
        _ => "Idle",
    }
}

/// Name of the cause of a gap ([`GapRow::cause`](super::GapRow::cause)).
pub(super) fn cause(word: &str) -> &'static str {
    match word {
        "profiler_overhead" => "profiler overhead",
        "data_loading" => "data loading",
        "after_sync" => "host synchronization",
        "blocking_copy" => "host blocked in a copy",
        "allocation" => "memory allocation",
        "module_load" => "module loading",
        "slow_launch" => "launch that takes long",
        "host_late" => "late launch (host-bound)",
        "host_busy" => "host busy elsewhere",
        "waiting" => "next kernel already queued",
        _ => "unknown",
    }
}

/// The saving of a finding as a sentence; empty without an estimate.
pub(super) fn saving(finding: &FindingReport, basis: &Basis) -> String {
    let Some(s) = &finding.saving else {
        return String::new();
    };
    let Some(saving) = amount(finding, basis) else {
        return match s.counted_high_ns <= 0.0 && s.high_ns > 0.0 {
            true => "Its saving is counted in other findings.".to_owned(),
            false => String::new(),
        };
    };
    let whole = match (saving.whole, basis.per) {
        (Whole::Wall, _) => format!("of the {}", basis.whole),
        (Whole::Busy, _) => basis.of_gpu_time(),
    };
    let share = percent_range(
        saving.low_ns / saving.whole_ns,
        saving.high_ns / saving.whole_ns,
    );
    let amount = ns_range(saving.low_ns, saving.high_ns);
    match (saving.whole, basis.per) {
        (Whole::Wall, per) if !per.is_empty() => format!("Saves {amount} per step ({share})."),
        _ => format!("Saves {amount} {whole} ({share})."),
    }
}

/// Whether the capture has a finding of this rule.
pub(super) fn has(report: &Report, rule: &str) -> bool {
    report.capture.iter().any(|f| f.rule == rule)
}

/// What a new capture should record to apply the most rules that were skipped, as a sentence in
/// Markdown; `None` where a new capture would not help.
pub(super) fn capture_again(report: &Report) -> Option<String> {
    if has(report, NO_WORK) {
        return None;
    }
    let rows = report.skipped.iter().filter(|row| row.recordable);
    let most = rows.max_by_key(|row| row.rules.len())?;
    let rules = counted(most.rules.len() as u64, "rule");
    Some(match most.needs.split_once(": ") {
        Some((what, how)) => format!("To apply {rules} more, record {what}: {how}."),
        None => format!("To apply {rules} more, record {}.", most.needs),
    })
}
