//! What a report opens with: what to do first, what it saves, and what then, in at most [`MAX_WORDS`]
//! words, whatever the profile. Below it stand the figures.

use indexmap::IndexMap;

use super::basis::{Amount, Basis, Whole, amount, unrecorded_step_ns};
use super::finding_report::{FindingList, FindingReport, GoneFinding, HiddenReason};
use super::model::{Report, StepsFrom, Summary};
use super::narrative::{
    NO_WORK, RECORDING_SLOWS, SHORT_CAPTURE, UNEVEN_STEPS, has, percent_of_kernel_time,
    what_to_capture,
};
use super::rows::StepRow;
use crate::base::statistics::NEARLY_ALL;
use crate::base::text::{self, list, list_some};
use crate::base::units::{bytes, counted, ns, ns_range, percent, percent_range, rate, times};
use crate::correlate::StepSource;
use crate::facts::{Totals, UNRECORDED_WORK};
use crate::judge::{SAVES_MOST, SavingKind};

/// Most words of the opening.
pub(super) const MAX_WORDS: usize = 60;
/// Share from which something counts as most of the time.
const MOST: f64 = 0.5;
/// Share of the window from which unreliable idle time changes what to do.
const UNRELIABLE: f64 = 0.1;
/// A busy share of the window below which the GPU did next to nothing.
const HARDLY_BUSY: f64 = 0.1;

/// What to do about a capture that is too short.
const RECORD_MORE: &str = "Record about ten steady steps after warm-up (docs/capture.md).";

/// The opening sentences: what to do first, what then, and what changes that.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let s = &report.summary;
    if s.kernels == 0 && s.busy_ns == 0 {
        let first = "No GPU work was found in this profile, so there is no advice.".to_owned();
        return vec![first, what_to_capture(report)];
    }
    // A finding about the capture that leaves nothing to analyze is the whole opening.
    let on_all = |f: &&FindingReport| f.on_ranks.as_ref().is_none_or(|ranks| ranks.on == ranks.of);
    let mut without_work = report.capture.iter().filter(|f| f.rule == NO_WORK);
    if let Some(no_work) = without_work.find(on_all) {
        return vec![
            format!("{}, so there is no advice.", no_work.title),
            RECORD_MORE.to_owned(),
        ];
    }
    let basis = Basis::of(s);
    let caveats: Vec<String> = [
        what_if(report),
        cut(report),
        straggler(report),
        graphs(s),
        copies(report),
        short(report),
        unknown_gpu(report),
        uneven_steps(report),
        idle(report),
        idle_of_graphs(s, &basis),
    ]
    .into_iter()
    .flatten()
    .collect();
    let variants = advice(report, &basis);
    let with = |advice: Vec<String>, caveats: &[String]| -> Vec<String> {
        caveats.iter().cloned().chain(advice).collect()
    };
    // Only the first caveat, which matters most, is kept; details of the advice go before it does.
    let caveat = caveats.get(..1).unwrap_or_default();
    let short_enough = variants.iter().find_map(|variant| {
        let sentences = with(variant.clone(), caveat);
        (words(&sentences) <= MAX_WORDS).then_some(sentences)
    });
    short_enough.unwrap_or_else(|| variants.last().cloned().unwrap_or_default())
}

fn words(sentences: &[String]) -> usize {
    sentences.iter().map(|s| s.split_whitespace().count()).sum()
}

/// What to do, from the most detailed wording to the shortest.
fn advice(report: &Report, basis: &Basis) -> Vec<Vec<String>> {
    let Some(first) = report.findings.first() else {
        return vec![nothing_found(report)];
    };
    let begin_with = |what: &str| match amount(first, basis).map(|saving| of(&saving, basis)) {
        // The lower end of the saving is zero.
        Some(saving) if saving.starts_with(UP_TO) => {
            format!("Look at {what} first: it may save {saving}.")
        }
        Some(saving) => format!("Fix {what} first: it should save {saving}."),
        None => format!(
            "Start with {what}{}; its saving cannot be estimated.",
            share_of_gpu_time(first)
        ),
    };
    let start = begin_with(&name_of(first, report));
    let short = begin_with("finding 1");
    let Some(second) = report.findings.get(1) else {
        return vec![vec![start], vec![short]];
    };
    let begun = amount(first, basis);
    let saving = amount(second, basis).map_or(String::new(), |a| {
        // Savings of the step and of GPU time are told apart.
        match begun.is_none_or(|begun| begun.whole == a.whole) {
            true => format!(" ({})", ns_range(a.low_ns, a.high_ns)),
            false => format!(" ({})", amount_of(&a, basis)),
        }
    });
    let name = name_of(second, report);
    let next = format!("{name}{saving}");
    // Its lower end is zero.
    let then = match saving.strip_prefix(" (") {
        Some(range) if range.starts_with(UP_TO) => "Then look at",
        _ => "Then fix",
    };
    let by_number = format!("{then} finding 2.");
    let estimated = report
        .findings
        .iter()
        .filter(|f| amount(f, basis).is_some())
        .count();
    let all = match (report.findings.len(), estimated) {
        (2, 2) => "both findings together".to_owned(),
        (all, n) if all == n => format!("all {n} findings together"),
        (_, n) => format!("{n} findings together"),
    };
    let total = together(report.findings.iter(), basis).filter(|_| estimated > 1);
    match total {
        Some(total) => {
            let total = ns_range(total.low_ns, total.high_ns);
            vec![
                vec![
                    start.clone(),
                    format!("{then} {next}; {all} should save {total}."),
                ],
                vec![start.clone(), format!("{then} {next}.")],
                vec![start.clone(), format!("{then} {name}.")],
                vec![start, by_number],
                vec![short],
            ]
        }
        None => vec![
            vec![start.clone(), format!("{then} {next}.")],
            vec![start.clone(), format!("{then} {name}.")],
            vec![start, by_number],
            vec![short],
        ],
    }
}

/// The title of a finding, without what it is about, unless several findings would then have the same name.
fn name_of(finding: &FindingReport, report: &Report) -> String {
    let short = |f: &FindingReport| {
        let title = f.title.strip_suffix(f.title_suffix.as_str());
        title.unwrap_or(&f.title).to_owned()
    };
    let whole = |f: &FindingReport| f.title.clone();
    let is_alone = |title: &dyn Fn(&FindingReport) -> String| {
        let name = title(finding);
        report.findings.iter().filter(|f| title(f) == name).count() <= 1
    };
    if is_alone(&short) {
        format!("\"{}\"", short(finding))
    } else if is_alone(&whole) {
        format!("\"{}\"", finding.title)
    } else {
        format!("finding {}", finding.number)
    }
}

/// ` (91 % of GPU time)` of a finding about work; empty for others.
fn share_of_gpu_time(finding: &FindingReport) -> String {
    match finding.evidence.kernels.is_empty() {
        true => String::new(),
        false => format!(" ({} of GPU time)", percent(finding.share)),
    }
}

/// How a range begins whose lower end rounds to nothing.
const UP_TO: &str = "up to ";

/// `5.8 to 12 ms of each 65.5 ms step`.
fn amount_of(saving: &Amount, basis: &Basis) -> String {
    let whole = match (saving.whole, basis.per) {
        (Whole::Wall, "") => format!("the {} window", ns(saving.whole_ns)),
        (Whole::Wall, _) => format!("each {} step", ns(saving.whole_ns)),
        (Whole::Busy, _) => format!("the {} {}", ns(saving.whole_ns), basis.of_gpu_time()),
    };
    format!("{} of {whole}", ns_range(saving.low_ns, saving.high_ns))
}

/// `5.8 to 12 ms of each 65.5 ms step (8.9 to 18 %)`.
fn of(saving: &Amount, basis: &Basis) -> String {
    let share = percent_range(
        saving.low_ns / saving.whole_ns,
        saving.high_ns / saving.whole_ns,
    );
    format!("{} ({share})", amount_of(saving, basis))
}

/// What the findings of a report may save of one whole, all together.
#[cfg(feature = "cli")]
#[derive(Debug, Clone)]
pub(crate) struct PossibleSaving<'a> {
    /// Upper end, 0 to 1.
    pub share: f64,
    /// `29 ms of each 65.5 ms step (44 %)`.
    pub text: String,
    /// The findings that save it.
    pub findings: Vec<&'a FindingReport>,
}

/// What the findings may save of wall time, and those without such an estimate of GPU time.
#[cfg(feature = "cli")]
pub(crate) fn possible_savings<'a>(report: &'a Report) -> Vec<PossibleSaving<'a>> {
    let basis = Basis::of(&report.summary);
    let mut wholes: Vec<(Amount, Vec<&FindingReport>)> = Vec::new();
    for finding in &report.findings {
        let Some(saving) = amount(finding, &basis) else {
            continue;
        };
        match wholes.iter_mut().find(|(sum, _)| sum.whole == saving.whole) {
            Some((sum, findings)) => {
                sum.high_ns = (sum.high_ns + saving.high_ns).min(sum.whole_ns);
                findings.push(finding);
            }
            None => wholes.push((saving, vec![finding])),
        }
    }
    let possible = |(sum, findings): (Amount, Vec<&'a FindingReport>)| PossibleSaving {
        share: sum.high_ns / sum.whole_ns,
        // Only the upper end counts.
        text: of(
            &Amount {
                low_ns: sum.high_ns,
                ..sum
            },
            &basis,
        ),
        findings,
    };
    wholes.into_iter().map(possible).collect()
}

/// The sum of the savings, where all are of the same time.
pub(super) fn together<'a>(
    findings: impl Iterator<Item = &'a FindingReport>,
    basis: &Basis,
) -> Option<Amount> {
    let amounts: Vec<Amount> = findings.filter_map(|f| amount(f, basis)).collect();
    let mut sum = *amounts.first()?;
    for next in amounts.get(1..).unwrap_or_default() {
        if next.whole != sum.whole {
            return None;
        }
        sum.low_ns += next.low_ns;
        sum.high_ns += next.high_ns;
    }
    // What is left of the whole cannot be negative.
    sum.high_ns = sum.high_ns.min(sum.whole_ns);
    Some(sum)
}

/// What a trace lacks that ends in the middle could be more than what it holds.
fn cut(report: &Report) -> Option<String> {
    let files = report.cut_files.len();
    let which = match &report.job {
        _ if files == 0 => return None,
        None => "This trace ends".to_owned(),
        Some(job) => format!(
            "{files} of {} traces {}",
            job.files,
            if files == 1 { "ends" } else { "end" }
        ),
    };
    Some(format!(
        "{which} in the middle; the rest is missing from all figures."
    ))
}

/// While the ranks wait for one straggler, changes to the others do not shorten the step.
fn straggler(report: &Report) -> Option<String> {
    let number = report.job.as_ref()?.straggler?;
    let rank = report.ranks.iter().find(|r| r.rank == Some(number))?;
    Some(format!(
        "Rank {number} is the straggler: the other ranks wait {} in collectives that it joins last.",
        ns(rank.caused_wait_ns?)
    ))
}

fn is_most(part: i64, whole: i64) -> bool {
    part as f64 > MOST * whole as f64
}

fn graphs(s: &Summary) -> Option<String> {
    is_most(s.graph_ns, s.busy_ns).then(|| {
        format!(
            "{} of GPU time is CUDA graph launches recorded without the kernels inside them.",
            percent(s.graph_ns as f64 / s.busy_ns as f64)
        )
    })
}

fn copies(report: &Report) -> Option<String> {
    let s = &report.summary;
    let found = report.findings.iter().any(|f| f.category == "copies");
    // What the little work of an idle GPU is does not matter.
    let most = is_most(s.exposed_copy_ns, s.busy_ns) && s.busy_share >= HARDLY_BUSY;
    let longest = s.longest_copy.as_ref().filter(|copy| copy.ns > 0);
    let longest = longest.map_or_else(String::new, |copy| {
        format!(
            " The longest copy, a {} of {}, takes {} ({}).",
            copy.what,
            bytes(copy.bytes as f64),
            ns(copy.ns as f64),
            rate(copy.bytes as f64 * 1e9 / copy.ns as f64)
        )
    });
    most.then(|| {
        format!(
            "{} of GPU time is copying, not computing{}.{longest}",
            percent(s.exposed_copy_ns as f64 / s.busy_ns as f64),
            if found {
                ""
            } else {
                "; no rule found a copy that repeats"
            }
        )
    })
}

fn what_if(report: &Report) -> Option<String> {
    let gpu = report.method.gpu.as_ref().filter(|gpu| gpu.what_if)?;
    Some(format!(
        "What if this ran on {}: times are those of the GPU that recorded them, so no saving is one of a real step.",
        text::md(&gpu.name)
    ))
}

fn unknown_gpu(report: &Report) -> Option<String> {
    if report.method.gpu.is_some() {
        return None;
    }
    Some(match &report.summary.gpu {
        Some(_) => "No specification of this GPU is known, so nothing was compared with its peaks (`--gpu FILE`).",
        None => "The GPU is unknown, so nothing was compared with its peaks (`--gpu NAME`).",
    }
    .to_owned())
}

fn short(report: &Report) -> Option<String> {
    // Without findings, the sentence on these says so.
    (has(report, SHORT_CAPTURE) && !report.findings.is_empty()).then(|| {
        let kernels = counted(report.summary.kernels, "kernel");
        format!("With {kernels}, this capture may not stand for the program.")
    })
}

fn uneven_steps(report: &Report) -> Option<String> {
    has(report, UNEVEN_STEPS)
        .then(|| "Steps take very different times; averages describe few of them.".to_owned())
}

/// Unreliable idle time that is long enough to hide what limits the step.
fn idle(report: &Report) -> Option<String> {
    let s = &report.summary;
    if has(report, super::narrative::SAMPLED) {
        return Some(
            "This file holds only a sample of a trace, so times are those of the sample."
                .to_owned(),
        );
    }
    s.idle_unreliable.as_ref()?;
    let idle = s.device_window_ns.saturating_sub(s.busy_ns);
    let unreliable = idle.saturating_sub(s.reliable_idle_ns);
    (unreliable as f64 >= UNRELIABLE * s.device_window_ns as f64)
        .then(|| "Idle time is inflated in this capture.".to_owned())
}

/// Idle time of CUDA graphs for which nothing is claimed, and that is long enough to hide what limits the step.
fn idle_of_graphs(s: &Summary, basis: &Basis) -> Option<String> {
    let [waiting, launching] = [s.unexplained_idle_ns, s.graph_launch_idle_ns];
    let least = UNRELIABLE * s.device_window_ns as f64;
    let time = |idle: i64| {
        let per = if basis.per.is_empty() {
            "in all"
        } else {
            basis.per
        };
        format!("{} {per}", ns(idle as f64 / basis.divisor))
    };
    if waiting.saturating_add(launching) as f64 <= least {
        return None;
    }
    Some(if launching > waiting {
        format!(
            "The GPU idles {} while the host launches CUDA graphs; recording their nodes makes that slow, so nothing is claimed for it.",
            time(launching)
        )
    } else {
        format!(
            "The GPU idles {} before and between nodes of CUDA graphs that had been launched; nodes may be missing in the file, so nothing is claimed for it.",
            time(waiting)
        )
    })
}

/// The line of figures below the opening.
pub(super) fn figures(report: &Report) -> Vec<String> {
    let s = &report.summary;
    let gpu = match (&s.gpu, s.devices) {
        (None, 0 | 1) => "unidentified GPU (`--gpu NAME`)".to_owned(),
        (None, n) => format!("{n} unidentified GPUs (`--gpu NAME`)"),
        (Some(name), 0 | 1) => name.clone(),
        (Some(name), n) => format!("{n} GPUs ({name})"),
    };
    let mut figures = vec![gpu];
    if s.busy_ns <= 0 {
        return figures;
    }
    figures.push(span(report));
    figures.extend(s.serving.as_ref().map(|serving| serving.figure(s.step_ns)));
    figures.push(busy(report));
    if s.idle_unreliable.is_some() {
        let idle = s.device_window_ns.saturating_sub(s.busy_ns);
        let basis = Basis::of(s);
        let per = if basis.per.is_empty() { "" } else { " " };
        figures.push(match s.reliable_idle_ns {
            0 => "idle time is unreliable".to_owned(),
            reliable => format!(
                "idle {}{per}{}, {} of it reliable",
                ns(idle as f64 / basis.divisor),
                basis.per,
                ns(reliable as f64 / basis.divisor)
            ),
        });
    }
    figures.extend(communication(s));
    if let Some(slowdown) = s.slowdown {
        figures.push(format!(
            "{} of kernel time can be compared with its ideal time: it takes {}{} as long",
            percent(s.cost_known_ns / s.kernel_time_ns as f64),
            if s.slowdown_at_least { "at least " } else { "" },
            times(slowdown)
        ));
    }
    figures.extend(percent_of_kernel_time(s));
    if let Some(job) = report.job.as_ref().filter(|job| !job.left_out.is_empty()) {
        let left_out = job.left_out.len() as u64;
        let verb = if left_out == 1 { "is" } else { "are" };
        figures.push(format!(
            "{left_out} of {} files {verb} left out",
            job.files + left_out
        ));
    }
    figures
}

/// How much of the window is communication, and how much of that other kernels hide.
fn communication(s: &Summary) -> Option<String> {
    /// Share of the window below which communication is no part of the picture.
    const LEAST: f64 = 0.01;
    let share = s.comm_ns as f64 / s.device_window_ns as f64;
    let hidden = 1.0 - s.exposed_comm_ns as f64 / s.comm_ns as f64;
    (share >= LEAST).then(|| {
        format!(
            "communication {} of the window, {} of it hidden behind computation",
            percent(share),
            percent(hidden.max(0.0))
        )
    })
}

/// The length of a step that savings are a part of, where it differs visibly from that of the recorded steps.
fn shorter_step_ns(s: &Summary) -> Option<f64> {
    /// Relative difference from which both are told.
    const DIFFERENT: f64 = 0.02;
    let recorded = s.step_ns?;
    unrecorded_step_ns(s).filter(|shorter| *shorter <= (1.0 - DIFFERENT) * recorded)
}

/// How much of a step the GPU works, and of a recorded one if that is much longer.
fn busy(report: &Report) -> String {
    let s = &report.summary;
    let recorded = percent(s.busy_share);
    shorter_step_ns(s).map_or(format!("GPU busy {recorded}"), |step_ns| {
        let busy = Basis::of(s).busy_ns / step_ns;
        format!("GPU busy {} ({recorded} while recorded)", percent(busy))
    })
}

/// That the times of the timeline are as recorded, where steps are shorter than that.
pub(super) fn as_recorded(report: &Report) -> Option<String> {
    let s = &report.summary;
    let recorded = s.step_ns?;
    let unrecorded = shorter_step_ns(s)?;
    Some(format!(
        "These times are as recorded, {} per step. Without the recording a step takes {}: the difference is idle time.",
        ns(recorded),
        ns(unrecorded)
    ))
}

/// What the GPU time refers to: the steps where they fill the window; else the window, which may hold
/// work of steps from before the capture.
fn span(report: &Report) -> String {
    let s = &report.summary;
    let window = ns(s.window_ns as f64);
    let named = s.window_range.as_ref();
    let Some(step) = s.step_ns.filter(|_| s.steps > 0) else {
        return match named {
            Some(range) => format!("{window} analyzed inside `{range}`"),
            None => format!("{window} analyzed, no steps{}", left_out_before(report)),
        };
    };
    // Steps that are ranges of this name say so themselves.
    let around = named.filter(|range| {
        s.steps_from
            .as_ref()
            .is_none_or(|from| from.text != **range)
    });
    let inside = around.map_or(String::new(), |range| format!(" inside `{range}`"));
    let ahead = match s.host_step_ns {
        Some(host) => format!(" on the GPU (the host takes {} and runs ahead)", ns(host)),
        None => String::new(),
    };
    let from = s.steps_from.as_ref().map(|from| evidence(from, s));
    let from = from.unwrap_or_default();
    let length = match uneven(report) {
        Some((least, most)) => format!("{} to {}, {} on average", ns(least), ns(most), ns(step)),
        None => ns(step),
    };
    let unrecorded = shorter_step_ns(s).map_or(String::new(), |shorter| {
        format!(" ({} without recording)", ns(shorter))
    });
    let steps = format!(
        "{} of {length}{unrecorded}{ahead}{from}{inside}",
        counted(s.steps, "step")
    );
    let filled = step * s.steps as f64 / s.window_ns as f64;
    if filled >= NEARLY_ALL {
        steps
    } else {
        format!("{window} analyzed, {steps}")
    }
}

/// The time before the first kernel where it is much and no steps show whether it comes again.
fn left_out_before(report: &Report) -> String {
    /// Share of what was recorded.
    const MUCH: f64 = 0.25;
    let before = report.setup.ns as f64;
    if before < MUCH * (before + report.summary.window_ns as f64) {
        return String::new();
    }
    format!(" (the {} before the first kernel are left out)", ns(before))
}

/// The shortest and the longest step, in ns, where a mean would stand for neither.
fn uneven(report: &Report) -> Option<(f64, f64)> {
    /// From this ratio on. Among few steps a single longer one moves the mean.
    const APART: f64 = 2.0;
    const FEW_APART: f64 = 1.25;
    const FEW: usize = 6;
    let steps: Vec<&StepRow> = (report.timeline.steps.iter())
        .filter(|step| !step.warmup)
        .collect();
    if steps.len() as u64 != report.summary.steps {
        return None;
    }
    let extent = |length: fn(&StepRow) -> i64| {
        let lengths = steps.iter().map(|step| length(step));
        Some((lengths.clone().min()? as f64, lengths.max()? as f64))
    };
    let (least, most) = extent(|step| step.window_part_ns.unwrap_or(step.ns))?;
    // The first part of a window also holds what the host does before its first launch.
    let (own_least, own_most) = extent(|step| step.ns)?;
    let few = steps.len() < FEW && own_most > FEW_APART * own_least;
    let apart = if few { FEW_APART } else { APART };
    (most > apart * least).then_some((least, most))
}

/// What shows the steps, where they are not numbered.
fn evidence(from: &StepsFrom, s: &Summary) -> String {
    /// What `run` calls the steps of a program that only replays a graph.
    const REPLAYS: &str = "replays of a CUDA graph";
    match from.source {
        StepSource::Numbered => match from.text.strip_prefix("calls of ") {
            Some(called) => format!(" (calls of `{called}`)"),
            None if from.text == REPLAYS => format!(" ({REPLAYS})"),
            None => format!(" (`{}`)", from.text),
        },
        StepSource::NamedRange
        | StepSource::Optimizer
        | StepSource::DataLoader
        | StepSource::RepeatedRange => format!(" (recognized by `{}`)", from.text),
        StepSource::KernelSequence if is_most(s.graph_ns, s.busy_ns) => {
            " (inferred from repeating graph launches)".to_owned()
        }
        StepSource::KernelSequence => " (inferred from repeating kernels)".to_owned(),
    }
}

/// A report without findings: "no problem found" and "not enough data" are different sentences.
fn nothing_found(report: &Report) -> Vec<String> {
    /// Share of kernel time below which the work with a known cost is not representative of the rest.
    const LITTLE: f64 = 0.1;
    /// Share of the window from which waiting is named although no rule explains it.
    const IDLE: f64 = 0.1;
    /// Difference of shares that is worth naming.
    const ROUNDING: f64 = 0.005;
    let s = &report.summary;
    if (report.hidden.iter()).any(|h| h.list == FindingList::Findings) {
        return vec![match &report.baseline {
            Some(_) => "There are no new findings.".to_owned(),
            None => "All findings are suppressed.".to_owned(),
        }];
    }
    let rules = counted(report.method.rules_run, "rule");
    if report.method.rules_run == 0 {
        return vec!["No rule was run, so there is no advice.".to_owned()];
    }
    if let Some(short) = report.capture.iter().find(|f| f.rule == SHORT_CAPTURE) {
        return vec![
            format!(
                "{}: {}, and the GPU is busy {} of the window.",
                short.title,
                counted(s.kernels, "kernel"),
                percent(s.busy_share)
            ),
            RECORD_MORE.to_owned(),
        ];
    }
    let idle = s.reliable_idle_ns as f64 / s.device_window_ns.max(1) as f64;
    if idle >= IDLE {
        let all = 1.0 - s.busy_share;
        let (at_least, beyond) = match s.idle_unreliable {
            Some(_) => ("", " beyond what recording has caused"),
            // The GPU may have worked for earlier steps, which are not recorded.
            None if all - idle >= ROUNDING => ("at least ", ""),
            None => ("", ""),
        };
        return vec![
            format!(
                "The GPU waits for {at_least}{} of the window{beyond}, and {rules} found no cause that stands out.",
                percent(idle)
            ),
            RECORD_MORE.to_owned(),
        ];
    }
    let minor = match report.minor.len() {
        0 => String::new(),
        n => format!(" ({})", counted(n as u64, "minor finding")),
    };
    let nothing = format!("{rules} found nothing worth changing{minor}");
    if s.slowdown.is_none() {
        let nothing =
            format!("{nothing}, but no kernel could be compared with what the GPU can do.");
        let largest = without_a_known_loss(report).map(no_loss_is_shown);
        let sentences = [Some(nothing), largest];
        let sentences = sentences.into_iter().chain([Some(what_to_capture(report))]);
        return sentences.flatten().collect();
    }
    let known = s.cost_known_ns / s.kernel_time_ns as f64;
    if known < LITTLE {
        return vec![format!(
            "{nothing}, but only {} of kernel time could be compared with what the GPU can do.",
            percent(known)
        )];
    }
    vec![format!("{nothing}.")]
}

/// A sentence on the findings whose advice is one and the same line of code.
fn one_change(report: &Report) -> Option<String> {
    let compiles = |f: &&FindingReport| {
        f.changes.get("fusion").is_some_and(|way| way == "compile")
            && f.fix.contains("torch.compile")
            && f.saving.is_some()
    };
    let findings: Vec<&FindingReport> = report.findings.iter().filter(compiles).collect();
    if findings.len() < 2 {
        return None;
    }
    let basis = Basis::of(&report.summary);
    let numbers: Vec<String> = findings.iter().map(|f| f.number.to_string()).collect();
    let saving = together(findings.into_iter(), &basis);
    let saving = saving.map_or(String::new(), |sum| {
        format!(" ({})", amount_of(&sum, &basis))
    });
    Some(format!(
        "`model = torch.compile(model)` fuses what findings {} are about with a single change{saving}.",
        list(&numbers)
    ))
}

/// What follows from several findings together: those that one change takes care of, and those that matter once
/// another one is done. One sentence or two each.
pub(super) fn next_notes(report: &Report) -> Vec<String> {
    /// Share of the GPU time that a step must become shorter by for the GPU to limit it.
    const ALL: f64 = 0.99;
    let basis = Basis::of(&report.summary);
    let note = |f: &FindingReport| {
        let after = f.after.as_ref()?;
        let first = report.findings.iter().find(|first| first.rule == *after)?;
        let saving = f.saving.as_ref()?;
        let name = match f.number {
            0 => format!("\"{}\" (`{}`)", f.title, f.rule),
            number => format!("finding {number}, \"{}\",", f.title),
        };
        let (low, high) = (
            saving.counted_low_ns / basis.divisor,
            saving.counted_high_ns / basis.divisor,
        );
        if let Some(rest_ns) = rest_ns(first, &report.summary) {
            let step = saving.step_low_ns.zip(saving.step_high_ns)?;
            let least = format!("the {} may take as little as {}", basis.whole, ns(rest_ns));
            let saves = format!("{name} saves {} of it", ns_range(step.0, step.1));
            return Some((first.number, least, saves));
        }
        let step_high_ns = saving.step_high_ns.filter(|ns| *ns < ALL * high);
        let (limits, saves) = match step_high_ns {
            None => (
                "limits",
                format!(
                    "{name} saves {} {}",
                    ns_range(low, high),
                    basis.of_gpu_time()
                ),
            ),
            Some(ns_high) => (
                "may limit part of",
                format!("{name} saves up to {} of it", ns(ns_high)),
            ),
        };
        Some((
            first.number,
            format!("the GPU {limits} the {}", basis.whole),
            saves,
        ))
    };
    let mut later: IndexMap<(u64, String), Vec<String>> = IndexMap::new();
    for (first, then, saves) in (report.findings.iter().chain(&report.minor)).filter_map(note) {
        later.entry((first, then)).or_default().push(saves);
    }
    let sentence = |((first, then), saves): ((u64, String), Vec<String>)| {
        format!(
            "Once finding {first} is done, {then}. Then {}.",
            list(&saves)
        )
    };
    let mut later: Vec<String> = later.into_iter().map(sentence).collect();
    if later.is_empty() {
        later.extend(host_limits(report, &basis));
    }
    one_change(report).into_iter().chain(later).collect()
}

/// A sentence on the first finding where it makes the work of the GPU so much less that the host, which works as long
/// as before, may limit the steps; `None` where it limits them already, or recording made its work much longer. Only
/// another precision leaves the launches as they are.
fn host_limits(report: &Report, basis: &Basis) -> Option<String> {
    let s = &report.summary;
    let first = report.findings.first()?;
    let saving = (first.saving.as_ref()).filter(|saving| saving.kind == SavingKind::Gpu)?;
    let host_ns = s.host_work_ns? / basis.divisor;
    let left_ns = basis.wall_ns - saving.step_high_ns?;
    let limits = left_ns <= host_ns && host_ns < basis.wall_ns;
    let known = first.changes.contains_key("precision") && !has(report, RECORDING_SLOWS);
    (known && limits && !Totals::is_host_bound(s.step_weight)).then(|| {
        format!(
            "Once finding {} is done, the host may limit the {whole}: it works {} of it. Then fewer launches, or more work for each, make it shorter.",
            first.number,
            ns_range(UNRECORDED_WORK * host_ns, host_ns),
            whole = basis.whole,
        )
    })
}

/// How long a step takes at least once a finding is done that saves most of it; `None` for other findings.
fn rest_ns(first: &FindingReport, s: &Summary) -> Option<f64> {
    let (saving, basis) = (first.saving.as_ref()?, Basis::of(s));
    let saves_most = saving.kind == SavingKind::Idle
        && saving.counted_low_ns > SAVES_MOST * basis.device_wall_ns(s);
    let rest = basis.wall_ns - saving.step_high_ns?;
    saves_most.then_some(rest.max(0.0))
}

/// What a report without findings explains instead: the minor finding about most of the GPU's time of which
/// nothing says how much could be saved.
pub(super) fn without_a_known_loss(report: &Report) -> Option<&FindingReport> {
    if !report.findings.is_empty() {
        return None;
    }
    let unestimated = report.minor.iter().filter(|f| f.saving.is_none());
    unestimated.max_by(|a, b| a.share.total_cmp(&b.share))
}

fn no_loss_is_shown(largest: &FindingReport) -> String {
    format!(
        "\"{}\" ({}): no loss is shown.",
        largest.title,
        percent(largest.share)
    )
}

/// What became of the findings of the baseline and of suppressed ones, one sentence each.
pub(super) fn hidden_notes(report: &Report) -> Vec<String> {
    since_baseline(report)
        .into_iter()
        .chain(suppressed(report))
        .collect()
}

/// Number of findings of one list that are hidden for one reason.
fn hidden(report: &Report, reason: HiddenReason, list: FindingList) -> u64 {
    let hidden = report.hidden.iter();
    hidden
        .filter(|h| h.reason == reason && h.list == list)
        .count() as u64
}

/// `3 known findings and 1 minor finding`: the findings hidden for one reason; `None` when there are
/// none.
fn hidden_count(
    report: &Report,
    reason: HiddenReason,
    noun: &str,
) -> Option<(String, &'static str)> {
    let counts = [
        (FindingList::Findings, noun),
        (FindingList::Minor, "minor finding"),
        (FindingList::Capture, "finding about the capture"),
    ]
    .map(|(list, noun)| (hidden(report, reason, list), noun));
    let total = counts.iter().fold(0, |sum, (n, _)| sum + n);
    let parts: Vec<String> = counts
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, noun)| match noun {
            "finding about the capture" if n > 1 => format!("{n} findings about the capture"),
            noun => counted(n, noun),
        })
        .collect();
    let verb = if total == 1 { "is" } else { "are" };
    (total > 0).then(|| (text::list(&parts), verb))
}

fn since_baseline(report: &Report) -> Vec<String> {
    let Some(baseline) = &report.baseline else {
        return Vec::new();
    };
    let known = match hidden_count(report, HiddenReason::Known, "finding") {
        Some((what, verb)) => format!("{what} {verb} hidden: already in the baseline."),
        None => "No finding of this report is in the baseline.".to_owned(),
    };
    let mut sentences = vec![known];
    let lists = [
        ("Fixed since the baseline", &baseline.fixed),
        (
            "In the baseline, not checked this time",
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
    list_some(&names, NAMED)
}

fn suppressed(report: &Report) -> Option<String> {
    let (what, verb) = hidden_count(report, HiddenReason::Suppressed, "finding")?;
    Some(format!("{what} {verb} suppressed by the configuration."))
}
