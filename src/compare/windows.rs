//! Joins the reports of two recordings of the same steps: a light one, which slowed the host least, and a
//! detailed one with shapes and layers. Idle time comes from the first, operators from the second.

use std::collections::BTreeMap;

use super::findings::by_place;
use crate::base::units::{ns, percent};
use crate::judge::SavingKind;
use crate::report::{
    self, FindingReport, JoinedWindows, Report, SkippedRules, Summary, steps_in_window,
};

/// Largest difference between the kernel times per step of two recordings of the same work.
const SAME_WORK: f64 = 0.1;
/// The category of rules about what the host does while the GPU waits.
const HOST: &str = "host";
/// The rule that says that recording slowed the host down.
const IDLE_UNRELIABLE: &str = "profile/idle-unreliable";

/// Joins two reports.
///
/// Without steps in both, or with different numbers of steps, it is the detailed report with a caution.
pub fn join(light: Report, mut detailed: Report) -> Report {
    if light.summary.steps == 0 || light.summary.steps != detailed.summary.steps {
        detailed.cautions.push(format!(
            "The light recording {} has {} steps and this one {}, so they were not joined: idle time includes \
             the overhead of recording shapes.",
            light.title, light.summary.steps, detailed.summary.steps
        ));
        return detailed;
    }
    let windows = windows(&light, &detailed);
    let sentence = agreement(&windows);
    match windows.agree {
        true => detailed.notes.push(sentence),
        false => detailed.cautions.push(sentence),
    }
    let summary = summary(&light.summary, &detailed.summary);
    let (findings, numbers) = findings(light.findings, detailed.findings, &summary);
    renumber(&mut detailed.layers, |row| &mut row.findings, &numbers);
    renumber(&mut detailed.sites, |row| &mut row.findings, &numbers);
    let minor = kept(light.minor, detailed.minor)
        .map(|(_, finding)| finding)
        .collect();
    let mut capture = detailed.capture;
    if light.summary.idle_unreliable.is_none() {
        capture.retain(|finding| finding.rule != IDLE_UNRELIABLE);
    }
    let mut method = detailed.method;
    method.file_bytes = method.file_bytes.saturating_add(light.method.file_bytes);
    let mut joined = Report {
        total_saving: report::total_saving(&findings),
        findings,
        minor,
        capture,
        skipped: skipped(detailed.skipped, &light.skipped),
        ranks: light.ranks,
        timeline: light.timeline,
        host: light.host,
        host_profiles: light.host_profiles,
        setup: light.setup,
        units: light.units,
        launching: light.launching,
        synchronizations: light.synchronizations,
        windows: Some(windows),
        method,
        summary,
        ..detailed
    };
    joined.sum_up();
    joined
}

fn windows(light: &Report, detailed: &Report) -> JoinedWindows {
    let per_step =
        |report: &Report| report.summary.kernel_time_ns as f64 / steps_in_window(&report.summary);
    let (light_ns, detailed_ns) = (per_step(light), per_step(detailed));
    let larger = light_ns.max(detailed_ns);
    JoinedWindows {
        light: light.title.clone(),
        light_kernel_ns_per_step: light_ns,
        detailed_kernel_ns_per_step: detailed_ns,
        agree: (light_ns - detailed_ns).abs() <= SAME_WORK * larger,
    }
}

fn agreement(windows: &JoinedWindows) -> String {
    let (light, detailed) = (
        windows.light_kernel_ns_per_step,
        windows.detailed_kernel_ns_per_step,
    );
    let times = format!(
        "kernels take {} per step in the light recording and {} in the detailed one",
        ns(light),
        ns(detailed)
    );
    match windows.agree {
        true => format!(
            "Idle time and step times come from a light recording, operators from a detailed one of the same \
             run; they recorded the same work: {times}."
        ),
        false => format!(
            "The two recordings of this run differ by {}: {times}. Idle time comes from the first, operators \
             from the second, so compare them with care.",
            percent((light - detailed).abs() / light.max(detailed))
        ),
    }
}

/// Times on the GPU's clock from the light recording; what operators are from the detailed one.
fn summary(light: &Summary, detailed: &Summary) -> Summary {
    Summary {
        gpu: detailed.gpu.clone(),
        kernel_time_ns: detailed.kernel_time_ns,
        kernels: detailed.kernels,
        with_operator_ns: detailed.with_operator_ns,
        cost_known_ns: detailed.cost_known_ns,
        best_ideal_ns: detailed.best_ideal_ns,
        slowdown: detailed.slowdown,
        slowdown_at_least: detailed.slowdown_at_least,
        ..light.clone()
    }
}

/// Whether a finding rests on idle time or on what the host did.
fn is_about_idle(finding: &FindingReport) -> bool {
    match &finding.saving {
        Some(saving) => saving.kind == SavingKind::Idle,
        None => finding.category == HOST,
    }
}

/// Findings about idle time of the first list, all others of the second; with whether it is the second.
fn kept(
    light: Vec<FindingReport>,
    detailed: Vec<FindingReport>,
) -> impl Iterator<Item = (bool, FindingReport)> {
    let idle = light.into_iter().filter(is_about_idle).map(|f| (false, f));
    let work = detailed.into_iter().filter(|f| !is_about_idle(f));
    idle.chain(work.map(|f| (true, f)))
}

/// The findings in order, and the new number of each finding of the detailed report.
fn findings(
    light: Vec<FindingReport>,
    detailed: Vec<FindingReport>,
    summary: &Summary,
) -> (Vec<FindingReport>, BTreeMap<u64, u64>) {
    let mut all: Vec<(bool, FindingReport)> = kept(light, detailed).collect();
    for (is_detailed, finding) in &mut all {
        if *is_detailed {
            weigh(finding, summary);
        }
    }
    all.sort_by(|(_, a), (_, b)| by_place(a, b, summary));
    let mut numbers = BTreeMap::new();
    let mut findings = Vec::with_capacity(all.len());
    for ((is_detailed, mut finding), number) in all.into_iter().zip(1..) {
        if is_detailed {
            numbers.insert(finding.number, number);
        }
        finding.number = number;
        findings.push(finding);
    }
    (findings, numbers)
}

/// How far a saving of kernel time shortens a step depends on how busy the GPU is, which only the light
/// recording shows.
fn weigh(finding: &mut FindingReport, summary: &Summary) {
    let Some(saving) = finding.saving.as_mut() else {
        return;
    };
    if saving.kind != SavingKind::Gpu {
        return;
    }
    let weight = summary.step_weight;
    let per_step = summary.devices.max(1) as f64 * steps_in_window(summary);
    saving.step_low_ns = weight.map(|weight| saving.counted_low_ns * weight / per_step);
    saving.step_high_ns = weight.map(|weight| saving.counted_high_ns * weight / per_step);
}

fn renumber<T>(rows: &mut [T], of: fn(&mut T) -> &mut Vec<u64>, numbers: &BTreeMap<u64, u64>) {
    for row in rows {
        let mut renumbered: Vec<u64> = of(row)
            .iter()
            .filter_map(|number| numbers.get(number).copied())
            .collect();
        renumbered.sort_unstable();
        *of(row) = renumbered;
    }
}

/// What the detailed report lacks, without the rules that the light one could evaluate.
fn skipped(detailed: Vec<SkippedRules>, light: &[SkippedRules]) -> Vec<SkippedRules> {
    let lacking = |rule: &String| light.iter().any(|row| row.rules.contains(rule));
    let rows = detailed.into_iter().map(|mut row| {
        row.rules.retain(lacking);
        row
    });
    rows.filter(|row| !row.rules.is_empty()).collect()
}
