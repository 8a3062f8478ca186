//! Sentences of a comparison. They are plain text with names in backticks: each format escapes them.

use indexmap::IndexMap;

use super::model::{Diff, FindingChange, MatchLevel, MatchedShare, PartChange, TimeUnit};
use super::{
    FLOOR, MOST, SAME, changed_parts, is_beyond_noise, least_matched, measure, normalised,
};
use crate::base::units::{counted, ns, percent, times};
use crate::report::Report;

/// Most differences named in the verdict.
const NAMED: usize = 3;
/// Longest name of a place in a sentence, in characters.
const MAX_PLACE: usize = 80;

/// The verdict: the result first, then its origin, the findings, and how certain it is.
pub(super) fn verdict(diff: &Diff) -> Vec<String> {
    let mut sentences = vec![answer(diff)];
    sentences.extend(gpu_beside_step(diff));
    sentences.extend(hardware(diff));
    if !diff.no_change {
        sentences.extend(largest(diff));
    }
    if diff.comparable {
        sentences.push(findings(diff));
    }
    sentences.extend(how_sure(diff));
    sentences
}

fn answer(diff: &Diff) -> String {
    let gpus = match diff.gpus_differ {
        true => format!(
            "On {} instead of {}, ",
            diff.after.gpu.as_deref().unwrap_or("an unknown GPU"),
            diff.before.gpu.as_deref().unwrap_or("an unknown GPU")
        ),
        false => String::new(),
    };
    let Some(change) = measure(diff) else {
        let lead = match diff.gpus_differ {
            true => format!("{gpus}nothing can be compared"),
            false => "The two profiles cannot be compared".to_owned(),
        };
        return format!(
            "{lead}: they have {} in common{}.",
            match least_matched(diff) {
                matched if matched < 0.001 => "no operator or kernel".to_owned(),
                matched => format!("only {} of their GPU time", percent(matched)),
            },
            diff.unit_reason
                .as_ref()
                .map_or(String::new(), |why| format!(", and {why}"))
        );
    };
    let subject = subject(diff);
    let (before, after) = (ns(change.before_ns), ns(change.after_ns));
    if diff.no_change {
        return format!("No change: {subject} {before} before and {after} after.");
    }
    if let (Some(factor), Some(ratio)) = (diff.sizes, normalised(diff)) {
        let per_data = match is_beyond_noise(diff, ratio) {
            true => format!("per unit of data that is {}", by(ratio)),
            false => "per unit of data that is the same".to_owned(),
        };
        return capital(format!(
            "{gpus}sizes {} {}, and {subject} {} the time ({after}, before {before}): {per_data}{}.",
            if factor > 1.0 { "grew" } else { "shrank" },
            times(factor),
            times(change.ratio),
            chance(diff, ratio)
        ));
    }
    if !is_beyond_noise(diff, change.ratio) {
        return capital(format!(
            "{gpus}{subject} as long as before ({after}, before {before}){}.",
            chance(diff, change.ratio)
        ));
    }
    capital(format!(
        "{gpus}{subject} {}: {after}, before {before}{}.",
        by(change.ratio),
        chance(diff, change.ratio)
    ))
}

/// What is measured, with its verb.
fn subject(diff: &Diff) -> &'static str {
    match (diff.step, diff.unit) {
        (Some(_), _) => "a step takes",
        (None, TimeUnit::Step) => "the kernels of a step take",
        (None, TimeUnit::Call) if diff.by_kernel_name => "kernels of the same name take",
        (None, TimeUnit::Call) => "the calls that both profiles have take",
    }
}

/// `12 % less time`, `2.10x the time`.
fn by(ratio: f64) -> String {
    if ratio >= 2.0 || ratio <= 0.5 {
        format!("{} the time", times(ratio))
    } else if ratio > 1.0 {
        format!("{} more time", percent(ratio - 1.0))
    } else {
        format!("{} less time", percent(1.0 - ratio))
    }
}

/// A sentence about noise.
fn chance(diff: &Diff, ratio: f64) -> String {
    let Some(noise) = diff.noise else {
        return String::new();
    };
    let apart = (ratio - 1.0).abs();
    if is_beyond_noise(diff, ratio) {
        format!(", beyond the run-to-run noise ({})", percent(noise.share))
    } else if apart > SAME {
        format!(
            ": the difference is within the run-to-run noise ({})",
            percent(noise.share)
        )
    } else {
        String::new()
    }
}

fn capital(text: String) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => text,
    }
}

/// The GPU time, where the verdict is about the step and the GPU time differs from it.
fn gpu_beside_step(diff: &Diff) -> Option<String> {
    let (step, gpu) = diff.step.zip(diff.gpu_time)?;
    let factor = diff.sizes.unwrap_or(1.0);
    let (step, share) = (step.ratio / factor, gpu.ratio / factor);
    if diff.no_change || (step - share).abs() <= SAME {
        return None;
    }
    let what = match diff.unit {
        TimeUnit::Step => "Its kernels take",
        TimeUnit::Call => "The calls that both have take",
    };
    let per_data = if diff.sizes.is_some() {
        " per unit of data"
    } else {
        ""
    };
    let change = match (share - 1.0).abs() <= SAME {
        true => "as long as before".to_owned(),
        false => by(share),
    };
    Some(format!(
        "{what} {change}{per_data} on the GPU ({}, before {}).",
        ns(gpu.after_ns),
        ns(gpu.before_ns)
    ))
}

fn hardware(diff: &Diff) -> Option<String> {
    let h = diff.hardware.as_ref()?;
    let rates = match h.tensor_16bit {
        Some(rate) => format!(" and {} the 16-bit matrix rate", times(rate)),
        None => String::new(),
    };
    let lead = format!(
        "The {} has {} the memory bandwidth{rates} of the {}",
        h.after,
        times(h.bandwidth),
        h.before
    );
    let (Some(expected), Some(measured)) = (h.expected_ratio, h.measured_ratio) else {
        return Some(format!("{lead}; no work could be compared with that."));
    };
    let rest = measured / expected;
    let conclusion = if (rest - 1.0).abs() <= SAME {
        "as the hardware explains".to_owned()
    } else if rest > 1.0 {
        format!("{} as long as the hardware explains", times(rest))
    } else {
        format!("only {} of what the hardware explains", percent(rest))
    };
    let furthest: Vec<String> = diff
        .slower_than_hardware
        .iter()
        .take(NAMED)
        .filter_map(|row| {
            let expected = row.expected_ratio?;
            Some(format!(
                "{} ({}, expected {})",
                name(&row.place),
                times(row.ratio),
                times(expected)
            ))
        })
        .collect();
    let furthest = match furthest.is_empty() {
        true => String::new(),
        false => format!(". Furthest behind: {}", furthest.join(", ")),
    };
    Some(format!(
        "{lead}: by these peaks, work with a known ideal time ({} of what was matched) should take {} the \
         time and takes {}, {conclusion}{furthest}.",
        percent(h.share),
        times(expected),
        times(measured)
    ))
}

/// The places with most of the difference.
fn largest(diff: &Diff) -> Option<String> {
    // One place may have rows for several shapes.
    let mut places: IndexMap<&str, (f64, f64)> = IndexMap::new();
    for row in diff.slower.iter().chain(&diff.faster) {
        let sums = places.entry(&row.place).or_default();
        sums.0 += row.before_ns;
        sums.1 += row.after_ns;
    }
    let mut all: Vec<(f64, String)> = places
        .into_iter()
        .map(|(place, (before, after))| {
            let text = format!(
                "{} takes {} instead of {}",
                name(place),
                ns(after),
                ns(before)
            );
            ((after - before).abs(), text)
        })
        .collect();
    all.extend(diff.appeared.iter().map(|row| {
        let text = format!("{} is new ({})", name(&row.place), ns(row.time_ns));
        (row.time_ns, text)
    }));
    all.extend(diff.vanished.iter().map(|row| {
        let text = format!("{} is gone ({})", name(&row.place), ns(row.time_ns));
        (row.time_ns, text)
    }));
    // Computation and communication are in the rows of their places.
    let no_kernels = |p: &&PartChange| matches!(p.what.as_str(), "copy" | "idle");
    all.extend(changed_parts(diff).filter(no_kernels).map(|p| {
        let what = match p.what.as_str() {
            "copy" => "copying while no kernel runs",
            _ => "idle time",
        };
        let text = format!(
            "{what} is {} instead of {}",
            ns(p.after_ns),
            ns(p.before_ns)
        );
        ((p.after_ns - p.before_ns).abs(), text)
    }));
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let more = all.len().saturating_sub(NAMED);
    let texts: Vec<String> = all.into_iter().take(NAMED).map(|(_, text)| text).collect();
    let lead = match (texts.len(), more) {
        (0, _) => return None,
        (_, 0) => "What changed:",
        _ => "The largest differences:",
    };
    Some(format!("{lead} {}.", texts.join("; ")))
}

fn findings(diff: &Diff) -> String {
    let f = &diff.findings;
    // A change of the GPU fixes nothing in the program.
    let fixed = match diff.gpus_differ {
        true => ("is gone", "are gone"),
        false => ("is fixed", "are fixed"),
    };
    let mut parts = Vec::new();
    for (list, one, many) in [
        (&f.fixed, fixed.0, fixed.1),
        (&f.new, "is new", "are new"),
        (
            &f.unclear,
            "could not be checked again",
            "could not be checked again",
        ),
    ] {
        if !list.is_empty() {
            let verb = if list.len() == 1 { one } else { many };
            let n = counted(list.len() as u64, "finding");
            parts.push(format!("{n} {verb} ({})", titles(list)));
        }
    }
    let still = f.still.len() as u64;
    match (parts.is_empty(), still) {
        (true, 0) => "There are no findings, before or after.".to_owned(),
        (true, 1) => "The one finding is still there.".to_owned(),
        (true, n) => format!("The findings are the same {n}."),
        (false, n) => {
            let verb = if n == 1 { "is" } else { "are" };
            parts.push(format!("{n} {verb} still there"));
            format!("{}.", parts.join("; "))
        }
    }
}

fn titles(list: &[FindingChange]) -> String {
    let mut titles: Vec<String> = Vec::new();
    for finding in list {
        let title = format!("\"{}\"", finding.title);
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    super::some(&titles)
}

fn how_sure(diff: &Diff) -> Option<String> {
    if !diff.comparable {
        return None;
    }
    let exact = diff.matched.iter().find(|m| m.level == MatchLevel::Exact);
    let mut others: Vec<&MatchedShare> = diff.matched.iter().collect();
    others.retain(|m| m.level != MatchLevel::Exact && m.before_share.max(m.after_share) > FLOOR);
    others.sort_by(|a, b| b.before_share.total_cmp(&a.before_share));
    let others: Vec<String> = others
        .iter()
        .map(|m| format!("{} by {}", percent(m.before_share), m.level.words()))
        .collect();
    let others = match others.is_empty() {
        true => String::new(),
        false => format!("; {}", others.join(", ")),
    };
    let noise = match &diff.noise_unknown {
        Some(why) if !diff.no_change => {
            format!("; the run-to-run noise is unknown ({why})")
        }
        _ => String::new(),
    };
    Some(format!(
        "{} of the GPU time before and {} after was matched by {}{others}{noise}.",
        percent(exact.map_or(0.0, |m| m.before_share)),
        percent(exact.map_or(0.0, |m| m.after_share)),
        MatchLevel::Exact.words()
    ))
}

/// A place in a sentence. A backtick in text of a profile would open code.
fn name(place: &str) -> String {
    format!(
        "`{}`",
        crate::base::text::clip(&place.replace('`', "'"), MAX_PLACE)
    )
}

/// What to know before relying on the figures.
pub(super) fn cautions(diff: &Diff, before: &Report, after: &Report) -> Vec<String> {
    let mut cautions = Vec::new();
    let matched = least_matched(diff);
    if diff.comparable && matched < MOST {
        cautions.push(format!(
            "Only {} of the GPU time is work that both profiles have: they may be of different programs.",
            percent(matched)
        ));
    }
    if let Some(why) = diff.unit_reason.as_ref().filter(|_| diff.comparable) {
        cautions.push(format!(
            "Times are compared per call, not per step, because {why}. Numbers of calls are not compared."
        ));
    }
    if diff.comparable && (diff.by_kernel_name || diff.without_arguments > MOST) {
        cautions.push(format!(
            "{} shapes, so work of the same name may differ in size: compare only runs of the same sizes.",
            match diff.by_kernel_name {
                true => "Most kernels have no known operator and no",
                false => "Most calls have no recorded",
            }
        ));
    }
    let both_mark_steps = diff.before.steps > 0 && diff.after.steps > 0;
    if let Some(why) = diff.step_not_compared.as_ref().filter(|_| both_mark_steps) {
        cautions.push(format!("Step lengths are not compared: {why}."));
    }
    if diff.before.devices != diff.after.devices {
        let per_gpu = match diff.unit {
            TimeUnit::Step => "; times are those of one GPU",
            TimeUnit::Call => "",
        };
        cautions.push(format!(
            "{} before, {} after{per_gpu}.",
            capital(counted(diff.before.devices, "GPU")),
            counted(diff.after.devices, "GPU")
        ));
    }
    let (a, b) = (&before.method, &after.method);
    let unknown = match (diff.before.gpu.is_none(), diff.after.gpu.is_none()) {
        (true, true) => Some("the GPUs are unknown"),
        (true, false) => Some("the GPU of the first profile is unknown"),
        (false, true) => Some("the GPU of the second profile is unknown"),
        (false, false) => None,
    };
    if let Some(unknown) = unknown {
        cautions.push(format!("The GPUs may differ: {unknown}."));
    }
    for (name, method) in [("first", a), ("second", b)] {
        if method.gpu.as_ref().is_some_and(|gpu| gpu.what_if) {
            cautions.push(format!(
                "The {name} profile was analysed as if on another GPU; its times are those of the GPU it ran on."
            ));
        }
    }
    if a.format != b.format {
        cautions.push(format!(
            "The profiles come from different tools ({} before, {} after), which slow programs down \
             differently.",
            a.format, b.format
        ));
    }
    if a.program != b.program || a.rules_run != b.rules_run {
        cautions.push(
            "The reports come from different versions or rules of pyprof-advise, so findings may differ."
                .to_owned(),
        );
    }
    cautions
}
