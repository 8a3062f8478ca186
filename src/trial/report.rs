//! From runs to a result: savings, their noise, and marks in the report of the profile.

use std::collections::BTreeMap;

use super::check::{Values, check};
use super::model::{
    Lines, NotTried, SCHEMA_VERSION, Side, Trial, TrialFinding, TrialOutcome, TrialRow,
};
use super::series::{Measured, Series};
use super::treatment::Treatment;
use super::{check::CheckResult, model};
use crate::base::text;
use crate::base::units::{bytes, change, ns, percent};
use crate::compare::welch::{Welch, is_beyond, welch};
use crate::gpu::names::normalize;
use crate::judge::SavingKind;
use crate::report::{
    FindingReport, MeasuredSaving, Report, SavingReport, Summary, share, steps_in_window,
};

/// A treatment with the findings that it is tried for.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) treatment: Treatment,
    pub(crate) findings: Vec<TrialFinding>,
    /// What the findings could save per step, in the same order.
    estimates: Vec<Option<Estimate>>,
}

/// What a finding could save per step: its lower and upper end.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    /// The part that findings before it do not count, so that parts can be added.
    counted: (f64, f64),
    /// What its fix could save alone.
    alone: (f64, f64),
}

impl Estimate {
    /// `None` without an estimate, and where the profile has no steps.
    fn of(saving: &SavingReport, summary: &Summary) -> Option<Estimate> {
        summary.step_ns?;
        let counted = (saving.step_low_ns?, saving.step_high_ns?);
        // What is counted elsewhere shortens a step as GPU time does on average.
        let weight = match saving.kind {
            SavingKind::Gpu => summary.step_weight?,
            SavingKind::Idle | SavingKind::Copy => 1.0,
        };
        let per_step = summary.devices.max(1) as f64 * steps_in_window(summary);
        let alone = |step: f64, counted: f64, own: f64| match counted > 0.0 {
            true => step * (own / counted).max(1.0),
            false => own * weight / per_step,
        };
        Some(Estimate {
            counted,
            alone: (
                alone(counted.0, saving.counted_low_ns, saving.low_ns),
                alone(counted.1, saving.counted_high_ns, saving.high_ns),
            ),
        })
    }

    /// What the fixes of several findings could save together: at least as much as one of them alone, and as the
    /// parts that none of the others counts.
    fn together(estimates: &[Estimate]) -> Option<(f64, f64)> {
        let end = |of: fn(&(f64, f64)) -> f64| {
            let counted: f64 = estimates.iter().map(|e| of(&e.counted)).sum();
            estimates
                .iter()
                .map(|e| of(&e.alone))
                .fold(counted, f64::max)
        };
        (!estimates.is_empty()).then(|| (end(|ends| ends.0), end(|ends| ends.1)))
    }
}

impl Candidate {
    /// The findings of a report that a treatment is about.
    pub(crate) fn of(treatment: Treatment, report: Option<&Report>) -> Candidate {
        let all = report
            .into_iter()
            .flat_map(|r| r.findings.iter().chain(&r.minor));
        let own: Vec<&FindingReport> = all.filter(|f| treatment.rules.contains(&f.rule)).collect();
        let estimate =
            |finding: &&FindingReport| Estimate::of(finding.saving.as_ref()?, &report?.summary);
        Candidate {
            estimates: own.iter().map(estimate).collect(),
            findings: own.into_iter().map(finding).collect(),
            treatment,
        }
    }
}

fn finding(finding: &FindingReport) -> TrialFinding {
    TrialFinding {
        number: finding.number,
        rule: finding.rule.clone(),
        title: finding.title.clone(),
    }
}

/// The treatments that save time and compute the same, the best of each kind.
pub(crate) fn best<'a>(series: &Series<'a>) -> Vec<&'a Treatment> {
    let mut faster: Vec<(f64, &Treatment)> = Vec::new();
    for (treatment, runs) in &series.treated {
        let Ok(welch) = compared(&series.untreated, runs) else {
            continue;
        };
        let same = check(
            &values(&series.untreated),
            &values(runs),
            treatment.tolerance,
        );
        if outcome(&welch) == TrialOutcome::Faster && same.result != CheckResult::Differs {
            faster.push((ratio(&welch), treatment));
        }
    }
    faster.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Vec<&Treatment> = Vec::new();
    for (_, treatment) in faster {
        let taken = |other: &&Treatment| treatment.kind.is_some() && other.kind == treatment.kind;
        if !best.iter().any(taken) {
            best.push(treatment);
        }
    }
    best
}

/// What is known about the program apart from its runs.
#[derive(Debug)]
pub(crate) struct ProgramAbout {
    pub(crate) command: Vec<String>,
    pub(crate) versions: BTreeMap<String, Option<String>>,
    /// The GPU of the runs.
    pub(crate) gpu: Option<String>,
    /// The GPU of the profile that estimates come from.
    pub(crate) profiled_gpu: Option<String>,
    pub(crate) skip: u32,
    pub(crate) steps: u32,
}

/// The result of a series.
pub(crate) fn summarize(
    about: ProgramAbout,
    candidates: &[Candidate],
    series: &Series<'_>,
    not_tried: Vec<NotTried>,
) -> Trial {
    let of = |treatment: &Treatment| candidates.iter().find(|c| c.treatment == *treatment);
    let mut rows: Vec<TrialRow> = series
        .treated
        .iter()
        .filter(|(_, runs)| !runs.is_empty())
        .filter_map(|(treatment, runs)| Some(row(&[of(treatment)?], runs, series)))
        .collect();
    rows.sort_by(|a, b| {
        let saving = |row: &TrialRow| row.saving_ns.unwrap_or(f64::NEG_INFINITY);
        saving(b)
            .total_cmp(&saving(a))
            .then_with(|| a.names.cmp(&b.names))
    });
    let together = series.together.as_ref().and_then(|(treatments, runs)| {
        let several: Vec<&Candidate> = treatments.iter().filter_map(|t| of(t)).collect();
        let mut row = (!runs.is_empty()).then(|| row(&several, runs, series))?;
        // The runs with one treatment tell which lines are whose.
        let single = |name: &String| rows.iter().find(|row| row.names == [name.as_str()]);
        let singles = row.names.iter().filter_map(single);
        row.add = singles.flat_map(|row| row.add.clone()).collect();
        Some(row)
    });
    let refused = series.not_tried.iter().map(|(treatment, why)| NotTried {
        name: treatment.name.clone(),
        is_finding: false,
        why: why.clone(),
    });
    let unreached = series.treated.iter().filter(|(_, runs)| runs.is_empty());
    let unreached = unreached.map(|(treatment, _)| NotTried {
        name: treatment.name.clone(),
        is_finding: false,
        why: series.stopped.clone().unwrap_or_default(),
    });
    let not_tried: Vec<NotTried> = refused.chain(unreached).chain(not_tried).collect();
    let mut trial = Trial {
        schema_version: SCHEMA_VERSION,
        verdict: Vec::new(),
        command: about.command,
        gpu: about.gpu,
        profiled_gpu: about.profiled_gpu,
        versions: about.versions,
        skip: about.skip,
        steps: about.steps,
        runs: u64::from(series.runs),
        stopped: series.stopped.clone(),
        untreated: side(&series.untreated),
        treatments: rows,
        together,
        not_tried,
    };
    trial.verdict = opening(&trial);
    trial
}

fn values(runs: &[Measured]) -> Vec<Values> {
    runs.iter().filter_map(|run| run.values.clone()).collect()
}

fn compared(untreated: &[Measured], treated: &[Measured]) -> Result<Welch, String> {
    let steps = |runs: &[Measured]| -> Vec<f64> { runs.iter().map(|run| run.step_ns).collect() };
    welch(&steps(untreated), &steps(treated))
}

/// Time of a step with the treatments over that without.
fn ratio(welch: &Welch) -> f64 {
    share(welch.after, welch.before)
}

fn outcome(welch: &Welch) -> TrialOutcome {
    let ratio = ratio(welch);
    match is_beyond(ratio, welch.share) {
        false => TrialOutcome::NoDifference,
        true if ratio < 1.0 => TrialOutcome::Faster,
        true => TrialOutcome::Slower,
    }
}

fn side(runs: &[Measured]) -> Side {
    let repetitions: Vec<f64> = runs.iter().map(|run| run.step_ns).collect();
    let sum: f64 = repetitions.iter().sum();
    Side {
        step_ns: (!repetitions.is_empty()).then(|| sum / repetitions.len() as f64),
        repetitions_ns: repetitions,
        peak_memory_bytes: runs.iter().filter_map(|run| run.peak_memory_bytes).max(),
    }
}

fn row(candidates: &[&Candidate], runs: &[Measured], series: &Series<'_>) -> TrialRow {
    let (before, treated) = (side(&series.untreated), side(runs));
    let welch = compared(&series.untreated, runs);
    let both = before.step_ns.zip(treated.step_ns);
    let treatments = || candidates.iter().map(|candidate| &candidate.treatment);
    let tolerance = treatments().map(|t| t.tolerance).fold(0.0, f64::max);
    let titles: Vec<&str> = treatments().map(|t| t.title.as_str()).collect();
    let by_design: Vec<&str> = treatments()
        .filter_map(|t| t.changes_results.as_deref())
        .collect();
    let mut findings: Vec<TrialFinding> = Vec::new();
    let mut estimates: Vec<Estimate> = Vec::new();
    for candidate in candidates {
        for (finding, estimate) in candidate.findings.iter().zip(&candidate.estimates) {
            // Several treatments may be about one finding.
            if !findings.contains(finding) {
                findings.push(finding.clone());
                estimates.extend(estimate);
            }
        }
    }
    let estimate = Estimate::together(&estimates);
    let own_lines = own_lines(runs);
    TrialRow {
        names: treatments().map(|t| t.name.clone()).collect(),
        title: titles.join("; "),
        findings,
        estimate_low_ns: estimate.map(|(low, _)| low),
        estimate_high_ns: estimate.map(|(_, high)| high),
        ratio: both.map(|(before, after)| share(after, before)),
        saving_ns: both.map(|(before, after)| before - after),
        noise: welch.as_ref().ok().map(|welch| welch.share),
        outcome: welch.as_ref().map_or(TrialOutcome::Unknown, outcome),
        noise_unknown: welch.err(),
        check: check(&values(&series.untreated), &values(runs), tolerance),
        changes_results: (!by_design.is_empty()).then(|| by_design.join("; ")),
        remarks: remarks(runs, &before, &treated),
        changes: runs
            .first()
            .map(|run| run.changes.clone())
            .unwrap_or_default(),
        add: treatments()
            .map(|t| Lines {
                lines: own_lines.clone().unwrap_or_else(|| t.lines.clone()),
                whereabouts: t.whereabouts.clone(),
            })
            .collect(),
        treated,
    }
}

/// The lines that a treatment has named for this program. They have names of the program in them, which must not
/// end a block of code in Markdown.
fn own_lines(runs: &[Measured]) -> Option<String> {
    let lines = runs.first()?.lines.iter().flat_map(|text| text.lines());
    let lines: Vec<String> = lines
        .map(|line| text::code_line(line).replace("```", "``"))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Memory beyond which a treatment is said to take more.
const MORE_MEMORY: f64 = 1.05;

fn remarks(runs: &[Measured], before: &Side, treated: &Side) -> Vec<String> {
    let mut remarks = Vec::new();
    if runs.iter().any(|run| run.compiling) {
        remarks.push(
            "Something was compiled while steps were measured: skip more steps (--skip), or shapes vary."
                .to_owned(),
        );
    }
    let memory = before.peak_memory_bytes.zip(treated.peak_memory_bytes);
    if let Some((before, after)) = memory
        && after as f64 > before as f64 * MORE_MEMORY
    {
        remarks.push(format!(
            "It takes more memory of the GPU: {} instead of {}.",
            bytes(after as f64),
            bytes(before as f64)
        ));
    }
    remarks
}

/// `saves 12 % of a step (26.1 to 23.0 ms), beyond the noise (1.2 %)`.
fn saving(row: &TrialRow, untreated: &Side) -> String {
    let (Some(ratio), Some(before), Some(after)) =
        (row.ratio, untreated.step_ns, row.treated.step_ns)
    else {
        return "was not measured".to_owned();
    };
    let noise = match (row.noise, row.outcome) {
        (Some(noise), TrialOutcome::Faster | TrialOutcome::Slower) => {
            format!(", beyond the noise ({})", percent(noise))
        }
        (Some(noise), _) => format!(", a difference within the noise ({})", percent(noise)),
        (None, _) => ", noise unknown".to_owned(),
    };
    format!(
        "{} per step, from {} to {}{noise}",
        change(ratio),
        ns(before),
        ns(after)
    )
}

fn opening(trial: &Trial) -> Vec<String> {
    let mut sentences = Vec::new();
    let faster = |row: &&TrialRow| row.outcome == TrialOutcome::Faster;
    let name = |row: &TrialRow| {
        let names: Vec<String> = row.names.iter().map(|name| format!("`{name}`")).collect();
        names.join(" and ")
    };
    let single = trial.treatments.iter().find(faster);
    let together = trial.together.as_ref().filter(faster).filter(|row| {
        let best = single.and_then(|single| single.saving_ns).unwrap_or(0.0);
        row.saving_ns.is_some_and(|saving| saving > best)
    });
    match (together, single) {
        (Some(row), _) => sentences.push(format!(
            "Apply {} together: {}.",
            name(row),
            saving(row, &trial.untreated)
        )),
        (None, Some(row)) => {
            sentences.push(format!(
                "Apply {}: {}.",
                name(row),
                saving(row, &trial.untreated)
            ));
        }
        (None, None) if trial.treatments.is_empty() => {
            sentences.push("Nothing could be tried.".to_owned());
        }
        (None, None) => {
            let unknown = trial
                .treatments
                .iter()
                .any(|row| row.outcome == TrialOutcome::Unknown);
            sentences.push(
                match unknown {
                    true => {
                        "There are too few runs to tell whether anything that was tried saves time."
                    }
                    false => "Nothing that was tried saves more than 2 % and the noise.",
                }
                .to_owned(),
            );
        }
    }
    let rows = || trial.treatments.iter().chain(&trial.together);
    for row in rows().filter(|row| row.check.result == CheckResult::Differs) {
        sentences.push(format!("With {} the {}.", name(row), row.check.text));
    }
    if let Some(sentence) = other_gpu(trial) {
        sentences.push(sentence);
    }
    if let Some(why) = &trial.stopped {
        sentences.push(format!("The runs ended early: {why}."));
    }
    sentences
}

/// Says so where estimates are for another GPU than the one that was measured on.
fn other_gpu(trial: &Trial) -> Option<String> {
    let profiled = trial.profiled_gpu.as_deref()?;
    let mut rows = trial.treatments.iter();
    rows.find(|row| row.estimate_high_ns.is_some())?;
    match trial.gpu.as_deref() {
        Some(gpu) if normalize(gpu) == normalize(profiled) => None,
        Some(gpu) => Some(format!(
            "Estimates are for {profiled}, the GPU of the profile, and times were measured on {gpu}."
        )),
        None => Some(format!(
            "Estimates are for {profiled}, the GPU of the profile, and the runs used no GPU."
        )),
    }
}

fn machine(trial: &Trial) -> String {
    match &trial.gpu {
        Some(gpu) => format!("on {gpu}"),
        None => "without a GPU".to_owned(),
    }
}

/// Marks the findings of a report with what was measured.
pub(crate) fn mark(report: &mut Report, trial: &Trial) {
    for finding in report.findings.iter_mut().chain(&mut report.minor) {
        let about = |row: &&model::TrialRow| row.findings.iter().any(|f| f.rule == finding.rule);
        let Some(row) = trial.treatments.iter().find(about) else {
            continue;
        };
        finding.measured = Some(MeasuredSaving {
            treatment: row.names.join(", "),
            saving_ns: row.saving_ns,
            ratio: row.ratio,
            noise: row.noise,
            text: format!(
                "{} {}; {}",
                saving(row, &trial.untreated),
                machine(trial),
                row.check.text
            ),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::{Fake, named};
    use super::super::series::{Limits, series};
    use super::*;

    const LIMITS: Limits = Limits {
        rounds: 3,
        max_runs: None,
        budget: None,
    };

    fn trial(names: &[&str], answer: &dyn Fn(&[&str]) -> f64, limits: Limits) -> Trial {
        let treatments = named(names);
        let given: Vec<&Treatment> = treatments.iter().collect();
        let mut fake = Fake {
            answer: &|names, at| Ok(answer(names) * (1.0 + f64::from(at % 3) * 1e-3)),
            log: Vec::new(),
        };
        let made = series(&given, limits, &mut fake, best).unwrap();
        let candidates: Vec<Candidate> = treatments
            .iter()
            .map(|t| Candidate::of(t.clone(), None))
            .collect();
        let about = ProgramAbout {
            command: vec!["python".to_owned(), "train.py".to_owned()],
            versions: BTreeMap::new(),
            gpu: None,
            profiled_gpu: None,
            skip: 10,
            steps: 20,
        };
        summarize(about, &candidates, &made, Vec::new())
    }

    #[test]
    fn savings_beyond_the_noise_are_combined() {
        let answer = |names: &[&str]| match names {
            [] => 1e7,
            ["tf32"] => 8e6,
            ["set-to-none"] => 9e6,
            ["gc-freeze"] => 1.2e7,
            _ => 7e6,
        };
        let trial = trial(&["tf32", "set-to-none", "gc-freeze"], &answer, LIMITS);
        let outcomes: Vec<(&str, TrialOutcome)> = trial
            .treatments
            .iter()
            .map(|row| (row.names[0].as_str(), row.outcome))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("tf32", TrialOutcome::Faster),
                ("set-to-none", TrialOutcome::Faster),
                ("gc-freeze", TrialOutcome::Slower)
            ]
        );
        assert_eq!(
            trial.together.as_ref().unwrap().names,
            ["tf32", "set-to-none"]
        );
        assert!(
            trial.verdict[0].starts_with(
                "Apply `tf32` and `set-to-none` together: -30 % per step, from 10.0 ms"
            ),
            "{}",
            trial.verdict[0]
        );
    }

    #[test]
    fn estimates_for_another_gpu_are_told_from_measured_times() {
        let mut trial = trial(&["tf32"], &|_| 1e6, LIMITS);
        trial.profiled_gpu = Some("A100 SXM4 40GB".to_owned());
        assert_eq!(other_gpu(&trial), None, "nothing is estimated");
        trial.treatments[0].estimate_high_ns = Some(1e5);
        let said = other_gpu(&trial).unwrap();
        assert!(said.ends_with("and the runs used no GPU."), "{said}");
        trial.gpu = Some("NVIDIA A100-SXM4-40GB".to_owned());
        assert_eq!(other_gpu(&trial), None);
        trial.gpu = Some("NVIDIA H100 80GB HBM3".to_owned());
        assert_eq!(
            other_gpu(&trial).unwrap(),
            "Estimates are for A100 SXM4 40GB, the GPU of the profile, and times were measured on NVIDIA H100 \
             80GB HBM3."
        );
    }

    fn report() -> Report {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/net.sqlite");
        let mut report = crate::Advisor::new().unwrap().report(fixture).unwrap();
        report.summary.step_ns = Some(1e8);
        report.summary.step_weight = Some(0.5);
        report.summary.devices = 1;
        report
    }

    #[test]
    fn estimates_of_a_treatment_are_those_of_its_fix_alone() {
        let mut summary = report().summary;
        let steps = steps_in_window(&summary);
        let saving = |counted: (f64, f64), step: (f64, f64)| SavingReport {
            kind: SavingKind::Gpu,
            low_ns: 2e6,
            high_ns: 4e6,
            counted_low_ns: counted.0,
            counted_high_ns: counted.1,
            counted_share: 0.1,
            overlap_ns: 4e6 - counted.1,
            step_low_ns: Some(step.0),
            step_high_ns: Some(step.1),
        };
        // Another finding counts half of it: alone it saves twice as much of a step.
        let half = saving((1e6, 2e6), (1e5, 4e5));
        let half = Estimate::of(&half, &summary).unwrap();
        assert_eq!((half.counted, half.alone), ((1e5, 4e5), (2e5, 8e5)));
        // Others count all of it.
        let none = saving((0.0, 0.0), (0.0, 0.0));
        let none = Estimate::of(&none, &summary).unwrap();
        assert_eq!(none.alone, (1e6 / steps, 2e6 / steps));
        assert_eq!(Estimate::together(&[half]), Some((2e5, 8e5)));
        let other = Estimate {
            counted: (3e5, 3e5),
            alone: (3e5, 3e5),
        };
        assert_eq!(Estimate::together(&[half, other]), Some((4e5, 8e5)));
        assert_eq!(Estimate::together(&[]), None);
        summary.step_ns = None;
        assert!(
            Estimate::of(&saving((1e6, 2e6), (1e5, 4e5)), &summary).is_none(),
            "without the length of a step, the saving per step is unknown"
        );
    }

    #[test]
    fn findings_of_several_treatments_are_estimated_once() {
        let mut report = report();
        report.findings.truncate(1);
        report.minor.clear();
        "host/data-loading".clone_into(&mut report.findings[0].rule);
        let of = |name: &str| Candidate::of(named(&[name]).remove(0), Some(&report));
        let (workers, pinned) = (of("loader-workers"), of("loader-pin-memory"));
        let made = Series::default();
        let single = row(&[&workers], &[], &made);
        let both = row(&[&workers, &pinned], &[], &made);
        assert_eq!(both.findings.len(), 1);
        assert!(single.estimate_high_ns.is_some());
        assert_eq!(both.estimate_high_ns, single.estimate_high_ns);
    }

    #[test]
    fn lines_of_the_program_stay_inside_their_block_of_code() {
        let treatment = named(&["compile-blocks"]).remove(0);
        let fake = |lines: &[&str]| Measured {
            step_ns: 1e6,
            steps: 20,
            values: None,
            compiling: false,
            peak_memory_bytes: None,
            changes: BTreeMap::new(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let candidate = Candidate::of(treatment, None);
        let lines = |runs: &[Measured]| {
            row(&[&candidate], runs, &Series::default()).add[0]
                .lines
                .clone()
        };
        assert!(
            lines(&[fake(&[])]).contains("model.blocks"),
            "those of the metadata"
        );
        let own = lines(&[fake(&[
            "for block in model.h:\n    block.compile()",
            "```\u{1b}[2J",
        ])]);
        assert_eq!(own, "for block in model.h:\n    block.compile()\n``␛[2J");
    }

    #[test]
    fn of_one_kind_only_the_best_is_combined() {
        let answer = |names: &[&str]| match names {
            [] => 1e7,
            ["compile-model"] => 8e6,
            ["compile-blocks"] => 7e6,
            _ => panic!("{names:?}"),
        };
        let trial = trial(&["compile-model", "compile-blocks"], &answer, LIMITS);
        assert_eq!(trial.together, None);
        assert!(trial.verdict[0].starts_with("Apply `compile-blocks`: -30 %"));
    }

    #[test]
    fn too_few_runs_leave_the_outcome_open() {
        let limits = Limits {
            rounds: 1,
            ..LIMITS
        };
        let trial = trial(
            &["tf32"],
            &|names| if names.is_empty() { 2e6 } else { 1e6 },
            limits,
        );
        assert_eq!(trial.treatments[0].outcome, TrialOutcome::Unknown);
        assert!(
            trial.verdict[0].starts_with("There are too few runs"),
            "{:?}",
            trial.verdict
        );
    }
}
