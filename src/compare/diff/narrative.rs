//! Sentences of a comparison. They are plain text with names in backticks: each format escapes them.

use indexmap::IndexMap;

use super::limits::{FLOOR, MOST, MUCH, SOME};
use super::measures::{
    changed_parts, idle_share, is_beyond_noise, kernels_tell_little, least_matched, measure,
    normalized,
};
use super::model::{
    Diff, FindingChange, HostChange, MatchLevel, MatchedShare, PartChange, TimeUnit, UnitSide,
};
use super::{wall, work};
use crate::base::text::{capitalized, list};
use crate::base::units::{average, counted, ns, percent, times};
use crate::compare::welch::SAME;
use crate::report::{Report, UnitKind};

/// Most differences named in the opening.
const NAMED: usize = 3;
/// Longest name of a place in a sentence, in characters.
const MAX_PLACE: usize = 80;

/// Share of the change of wall time that one kind of time must explain to be called its cause.
const EXPLAINS: f64 = 0.5;

/// The opening: the result first, then its cause, the findings, and how certain it is.
pub(super) fn opening(diff: &Diff) -> Vec<String> {
    let mut sentences = vec![answer(diff)];
    sentences.extend(outside(diff));
    sentences.extend(cause(diff));
    sentences.extend(gpu_beside_wall(diff));
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
        return capitalized(&format!("{gpus}{}; {}.", incomparable(diff), totals(diff)));
    };
    // The whole comes before its parts.
    let gpus = match &diff.contradicting {
        Some(range) => format!(
            "{gpus}{} around all of the work takes {}: {}, before {}; but ",
            name(&range.name),
            by(range.wall.ratio, "wall time"),
            ns(range.wall.after_ns),
            ns(range.wall.before_ns)
        ),
        None => gpus,
    };
    // The kernels do not answer the question.
    let gpus = match (kernels_tell_little(diff), diff.unit.is_call()) {
        (false, _) => gpus,
        (true, true) => format!("whether the program is faster is not known; {gpus}"),
        (true, false) => format!("whether {} is faster is not known; {gpus}", unit_name(diff)),
    };
    let subject = subject(diff);
    let (before, after) = (ns(change.before_ns), ns(change.after_ns));
    let within = !is_beyond_noise(diff, change.ratio);
    if diff.no_change {
        let noise = diff.noise.filter(|_| (change.ratio - 1.0).abs() > SAME);
        let noise = noise.map_or(String::new(), |noise| {
            format!(" beyond the noise ({})", percent(noise.share))
        });
        return format!("No change{noise}: {subject} {before} before and {after} after.");
    }
    let what = if diff.wall.is_some() {
        "wall time"
    } else {
        "time"
    };
    let rest = around(diff) + &sides(diff);
    if least_matched(diff) < MOST {
        let noise = diff.noise.map_or(", noise unknown".to_owned(), |noise| {
            format!(" (noise {})", percent(noise.share))
        });
        return capitalized(&format!(
            "{gpus}{subject} {after}, before {before}{noise}{rest}."
        ));
    }
    if let (Some(factor), Some(ratio)) = (diff.sizes, normalized(diff)) {
        let per_data = match is_beyond_noise(diff, ratio) {
            true => format!("per unit of data that is {}", by(ratio, what)),
            false => "per unit of data that is the same".to_owned(),
        };
        return capitalized(&format!(
            "{gpus}sizes {} {}, and {subject} {} the {what} ({after}, before {before}): {per_data}{}{rest}.",
            if factor > 1.0 { "grew" } else { "shrank" },
            times(factor),
            times(change.ratio),
            chance(diff, ratio)
        ));
    }
    if within && (change.ratio - 1.0).abs() > SAME {
        return capitalized(&format!(
            "{gpus}{subject} {after}, before {before}{}{rest}.",
            chance(diff, change.ratio)
        ));
    }
    if within {
        return capitalized(&format!(
            "{gpus}{subject} as long as before: {after}, before {before}{}{rest}.",
            chance(diff, change.ratio)
        ));
    }
    capitalized(&format!(
        "{gpus}{subject} {}: {after}, before {before}{}{rest}.",
        by(change.ratio, what),
        chance(diff, change.ratio)
    ))
}

/// Why nothing can be compared.
fn incomparable(diff: &Diff) -> String {
    let matched = least_matched(diff);
    if matched < 0.001 {
        return "these are different programs: they have no operator or kernel in common"
            .to_owned();
    }
    if matched >= SOME {
        return format!(
            "these are different programs, or other parts of one: {} before and {} after, and only {} of them are \
             of the same operators and sizes in the same proportions",
            counted(diff.before.kernels, "kernel"),
            counted(diff.after.kernels, "kernel"),
            percent(diff.same_mix)
        );
    }
    format!(
        "the profiles cannot be compared: they have no unit of work and only {} of their GPU time in common",
        percent(matched)
    )
}

/// Window, busy time and kernels of both captures.
fn totals(diff: &Diff) -> String {
    let (b, a) = (&diff.before, &diff.after);
    format!(
        "the analyzed window is {}, before {}; the GPU is busy for {} (idle {}), before {} ({}); kernels take {}, \
         before {}",
        ns(a.window_ns),
        ns(b.window_ns),
        ns(a.on_one_gpu(a.busy_ns)),
        percent(a.idle_share),
        ns(b.on_one_gpu(b.busy_ns)),
        percent(b.idle_share),
        ns(a.on_one_gpu(a.kernel_time_ns)),
        ns(b.on_one_gpu(b.kernel_time_ns))
    )
}

/// What changed outside the units of work, where that made the whole slower and them faster or the reverse, and the
/// findings about it.
fn outside(diff: &Diff) -> Option<String> {
    let range = diff.contradicting.as_ref()?;
    let whole = range.outside.after_ns - range.outside.before_ns;
    let f = &diff.findings;
    let findings = f.fixed.iter().chain(&f.new).chain(&f.still);
    let known = findings.filter_map(|finding| {
        let (before, after) = (finding.before_outside_ns, finding.after_outside_ns);
        let (old, new) = (before.unwrap_or(0.0), after.unwrap_or(0.0));
        ((new - old) * whole.signum() >= MUCH * whole.abs()).then(|| {
            let (after, before) = (ns(new), ns(old));
            format!(
                "; of that, \"{}\" costs {after}, before {before}",
                finding.title
            )
        })
    });
    let known: Vec<String> = known.collect();
    let (after, before) = (ns(range.outside.after_ns), ns(range.outside.before_ns));
    Some(format!(
        "{} takes {after} outside of {}, before {before}{}.",
        name(&range.name),
        match diff.unit {
            TimeUnit::Step => "its steps".to_owned(),
            _ => unit_name(diff),
        },
        known.concat()
    ))
}

/// The length of the range around all of the work, where it contradicts the unit of work.
fn around(diff: &Diff) -> String {
    let said = |name: &String| {
        diff.contradicting
            .as_ref()
            .is_some_and(|range| range.name == *name)
    };
    diff.around
        .as_ref()
        .filter(|around| !said(&around.name))
        .map_or(String::new(), |around| {
            format!(
                "; {}{} around them takes {}, before {}",
                if diff.contradicting.is_some() {
                    ""
                } else {
                    "but "
                },
                name(&around.name),
                ns(around.wall.after_ns),
                ns(around.wall.before_ns)
            )
        })
}

/// Busy and idle time and kernels of the unit of work, else of the captures.
fn sides(diff: &Diff) -> String {
    let Some(unit) = &diff.unit_of_work else {
        return format!("; {}", totals(diff));
    };
    let idle = |side: &UnitSide| percent(idle_share(side));
    let (b, a) = (&unit.before, &unit.after);
    let others = match a.comm_ns > 0.0 || b.comm_ns > 0.0 {
        true => " other than communication",
        false => "",
    };
    format!(
        "; the GPU is busy for {} (idle {}), before {} ({}); kernels{others} take {}, before {}",
        ns(a.busy_ns),
        idle(a),
        ns(b.busy_ns),
        idle(b),
        ns(a.kernel_ns - a.comm_ns),
        ns(b.kernel_ns - b.comm_ns)
    )
}

/// What is measured, with its verb.
fn subject(diff: &Diff) -> String {
    let kernels = diff.wall.is_none();
    if diff.unit.is_call() {
        return match diff.by_kernel_name {
            true => "kernels of the same name take".to_owned(),
            false => "the calls that both profiles have take".to_owned(),
        };
    }
    let unit = unit_name(diff);
    match kernels {
        true => format!("the kernels of {unit} take"),
        false => format!("{unit} takes"),
    }
}

/// The unit of work with its article.
pub(super) fn unit_name(diff: &Diff) -> String {
    match &diff.unit_of_work {
        Some(unit) if unit.kind == UnitKind::Range => name(&unit.name),
        Some(unit) if unit.kind == UnitKind::GraphLaunch => "a graph launch".to_owned(),
        Some(unit) if unit.kind == UnitKind::Kernel => {
            format!("the work from one {} to the next", name(&unit.name))
        }
        _ => "a step".to_owned(),
    }
}

/// `12 % less wall time`, `2.10x the wall time`.
fn by(ratio: f64, what: &str) -> String {
    if ratio >= 2.0 || ratio <= 0.5 {
        format!("{} the {what}", times(ratio))
    } else if ratio > 1.0 {
        format!("{} more {what}", percent(ratio - 1.0))
    } else {
        format!("{} less {what}", percent(1.0 - ratio))
    }
}

/// Noise from which a difference of the means is not reported: either mean may be off by half of its value.
const HARDLY_COMPARABLE: f64 = 0.5;

/// A sentence about noise.
fn chance(diff: &Diff, ratio: f64) -> String {
    let Some(noise) = diff.noise else {
        return match &diff.unit_of_work {
            Some(_) => ", noise unknown".to_owned(),
            None => String::new(),
        };
    };
    let apart = (ratio - 1.0).abs();
    if noise.share > HARDLY_COMPARABLE && !is_beyond_noise(diff, ratio) {
        return ", but the repetitions vary too much to compare".to_owned();
    }
    if is_beyond_noise(diff, ratio) {
        format!(", beyond the noise ({})", percent(noise.share))
    } else if apart > SAME {
        format!(", a difference within the noise ({})", percent(noise.share))
    } else {
        format!(" (noise {})", percent(noise.share))
    }
}

/// What the change of the wall time comes from: the host, waiting for other ranks, or kernels.
pub(super) fn cause(diff: &Diff) -> Option<String> {
    let (unit, wall) = (diff.unit_of_work.as_ref()?, diff.wall?);
    if diff.no_change || !is_beyond_noise(diff, wall.ratio) {
        return None;
    }
    let by = wall.after_ns - wall.before_ns;
    let explains = |part: f64| part * by.signum() >= EXPLAINS * by.abs();
    let idle = |side: &UnitSide| side.wall_ns - side.busy_ns;
    let kernels = diff.gpu_time.map_or(1.0, |gpu| gpu.ratio);
    let same = (kernels - 1.0).abs() <= SAME && least_matched(diff) >= MOST;
    let slower = if by > 0.0 { "slower" } else { "faster" };
    if let Some(c) = &diff.communication
        && explains(c.waiting.after_ns - c.waiting.before_ns)
    {
        return Some(format!(
            "{} waits {} for other ranks in collectives, before {}; transfers take {}, before {}.",
            capitalized(&unit_name(diff)),
            ns(c.waiting.after_ns),
            ns(c.waiting.before_ns),
            ns(c.transfer.after_ns),
            ns(c.transfer.before_ns)
        ));
    }
    if explains(idle(&unit.after) - idle(&unit.before)) {
        let lead = match same {
            true => format!("The same kernels, host {slower}"),
            false => "Most of the difference is idle time".to_owned(),
        };
        let gaps = diff.host.iter().filter(|row| {
            let longer = row.after_ns - row.before_ns;
            row.is_gap && longer * by > 0.0
        });
        let gaps: Vec<String> = gaps.take(2).map(host_change).collect();
        let pace = diff.launch_interval.filter(|interval| {
            (interval.after_ns - interval.before_ns) * by > 0.0
                && (interval.ratio - 1.0).abs() > SAME
        });
        let pace = pace.map_or(String::new(), |interval| {
            format!(
                "; it launches every {} instead of {} (median)",
                ns(interval.after_ns),
                ns(interval.before_ns)
            )
        });
        return Some(match gaps.is_empty() {
            true => format!("{lead}{pace}."),
            false => format!("{lead}: {}{pace}.", gaps.join(" and ")),
        });
    }
    let sent = diff
        .communication_time
        .map_or(0.0, |c| c.after_ns - c.before_ns);
    if explains(sent) {
        return Some(
            "Most of the difference is communication, which may be waiting for other ranks: compare the profiles of \
             all ranks to know."
                .to_owned(),
        );
    }
    None
}

/// `48 instead of 10 gaps of 20 us to 100 us (1.9 ms instead of 402 us)`.
fn host_change(row: &HostChange) -> String {
    let counts = (average(row.before_count), average(row.after_count));
    if counts.0 == counts.1 {
        let (before, after) = (ns(row.before_ns), ns(row.after_ns));
        return format!("{after} instead of {before} in {}", row.what);
    }
    format!(
        "{} instead of {} {} ({} instead of {})",
        average(row.after_count),
        average(row.before_count),
        row.what,
        ns(row.after_ns),
        ns(row.before_ns)
    )
}

/// The GPU time, where the opening is about wall time and the GPU time differs from it.
fn gpu_beside_wall(diff: &Diff) -> Option<String> {
    let (wall, gpu) = diff.wall.zip(diff.gpu_time)?;
    let factor = diff.sizes.unwrap_or(1.0);
    let (wall, share) = (wall.ratio / factor, gpu.ratio / factor);
    if diff.no_change || (wall - share).abs() <= SAME || least_matched(diff) < MOST {
        return None;
    }
    let what = match diff.communication_time.is_some() {
        true => "Its kernels without communication take",
        false => "Its kernels take",
    };
    let per_data = if diff.sizes.is_some() {
        " per unit of data"
    } else {
        ""
    };
    let change = match (share - 1.0).abs() <= SAME {
        true => "as long as before".to_owned(),
        false => by(share, "time"),
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
        format!("{} less than the hardware explains", percent(1.0 - rest))
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
    let rows = diff.slower.iter().chain(&diff.faster);
    // Waiting is told apart, or it is not known how much of it is waiting.
    for row in rows.filter(|row| !row.communication) {
        let sums = places.entry(&row.place).or_default();
        sums.0 += row.before_ns;
        sums.1 += row.after_ns;
    }
    // Work in other kernels has a table of its own, unless its time is compared.
    let mut in_other_kernels: IndexMap<&str, (f64, f64)> = IndexMap::new();
    for row in &diff.kernels {
        let sums = in_other_kernels.entry(&row.place).or_default();
        sums.0 += row.before_ns;
        sums.1 += row.after_ns;
    }
    for (place, times) in in_other_kernels {
        places.entry(place).or_insert(times);
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
    // Where hardly anything has the same name and all of it takes as long, the names changed, not the work.
    let renamed = least_matched(diff) < SOME
        && (diff.gpu_time).is_some_and(|gpu| (gpu.ratio - 1.0).abs() <= SAME);
    let one_sided = [(&diff.appeared, "new"), (&diff.vanished, "gone")];
    for (list, how) in one_sided.into_iter().filter(|_| !renamed) {
        let mut times: IndexMap<&str, f64> = IndexMap::new();
        for row in list {
            *times.entry(&row.place).or_default() += row.time_ns;
        }
        all.extend(times.into_iter().map(|(place, time)| {
            let text = format!("{} is {how} ({})", name(place), ns(time));
            (time, text)
        }));
    }
    if let Some(c) = &diff.communication {
        for (what, change) in [
            ("waiting for other ranks in collectives", &c.waiting),
            ("transfers in collectives", &c.transfer),
        ] {
            if (change.ratio - 1.0).abs() > SAME {
                let (after, before) = (ns(change.after_ns), ns(change.before_ns));
                let text = format!("{what}: {after} instead of {before}");
                all.push(((change.after_ns - change.before_ns).abs(), text));
            }
        }
    }
    if let Some(c) = diff
        .communication_time
        .filter(|_| diff.communication.is_none())
        && (c.ratio - 1.0).abs() > SAME
    {
        let (after, before) = (ns(c.after_ns), ns(c.before_ns));
        let text = format!(
            "communication, which may be waiting for other ranks, takes {after} instead of {before}"
        );
        all.push(((c.after_ns - c.before_ns).abs(), text));
    }
    // Computation is in the rows of its places.
    let no_kernels = |p: &&PartChange| matches!(p.what.as_str(), "copy" | "idle");
    let by = |p: &PartChange| (p.after_ns - p.before_ns).abs();
    let in_noise = diff.parts.iter().filter(no_kernels).map(by);
    let in_noise = in_noise.fold(0.0, f64::max);
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
    let most = all.first().map_or(0.0, |(by, _)| *by);
    let texts: Vec<String> = all.into_iter().take(NAMED).map(|(_, text)| text).collect();
    // A difference of idle time may be larger than these and yet be chance.
    let lead = match (texts.len(), more) {
        (0, _) => return None,
        _ if in_noise > most => "Beyond the noise, the largest differences:",
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
            "could be checked in one of the profiles only",
            "could be checked in one of the profiles only",
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
        (false, 0) => format!("{}.", parts.join("; ")),
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
    crate::compare::lists::some(&titles)
}

fn how_sure(diff: &Diff) -> Option<String> {
    if !diff.comparable {
        return None;
    }
    let worth = |m: &&MatchedShare| m.before_share.max(m.after_share) > FLOOR;
    let of = |level| diff.matched.iter().find(|m| m.level == level).filter(worth);
    let most = of(MatchLevel::Exact).or_else(|| of(MatchLevel::Kernel));
    let lead = most.map_or(MatchLevel::Exact, |m| m.level);
    let mut others: Vec<&MatchedShare> = diff.matched.iter().filter(worth).collect();
    others.retain(|m| m.level != lead);
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
        Some(why) if !diff.no_change => format!("; the noise is unknown ({why})"),
        _ => String::new(),
    };
    let words = lead.words();
    Some(match most {
        None => format!("Hardly any GPU time was matched by {words}{others}{noise}."),
        Some(most) => format!(
            "{} of the GPU time before and {} after was matched by {words}{others}{noise}.",
            percent(most.before_share),
            percent(most.after_share)
        ),
    })
}

/// A place in a sentence. A backtick in text of a profile would open code.
fn name(place: &str) -> String {
    format!(
        "`{}`",
        crate::base::text::clip(&place.replace('`', "'"), MAX_PLACE)
    )
}

/// What to know before relying on the figures.
pub(super) fn cautions(
    diff: &Diff,
    before: &Report,
    after: &Report,
    by_kernel: bool,
) -> Vec<String> {
    let mut cautions = Vec::new();
    for (which, report) in [("first", before), ("second", after)] {
        if !report.cut_files.is_empty() {
            cautions.push(format!(
                "The {which} ends in the middle ({}): what is missing there is missing from this comparison.",
                list(&report.cut_files)
            ));
        }
    }
    if diff.comparable && by_kernel {
        let which = match work::has_operators(before) {
            true => "second",
            false => "first",
        };
        cautions.push(format!(
            "The {which} profile names no operators, so work is compared by the name and grid of its kernels, and \
             some causes can be told in the other profile only."
        ));
    }
    let matched = least_matched(diff);
    if diff.comparable && matched < MOST {
        cautions.push(match diff.unit.is_call() {
            true => format!(
                "Only {} of the GPU time is work that both profiles have: they may be of different programs.",
                percent(matched)
            ),
            false => format!(
                "Only {} of the GPU time is work of the same name on both sides, so that {} is compared as a whole: \
                 the comparison is not meaningful if the second one does different work.",
                percent(matched),
                unit_name(diff)
            ),
        });
    }
    if let Some(why) = diff.unit_reason.as_ref().filter(|_| diff.comparable) {
        cautions.push(match diff.unit.is_call() {
            true => format!(
                "Times are compared per call, because {why}, and no range, graph launch or sequence of kernels \
                 repeats alike in both. Numbers of calls are not compared."
            ),
            false => format!("Times are those of {}, because {why}.", unit_name(diff)),
        });
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
    let with_units = !diff.unit.is_call();
    if let Some(why) = diff.wall_not_compared.as_ref().filter(|_| with_units) {
        cautions.push(format!("Wall times are not compared: {why}."));
    }
    match (&diff.wall_range, before.summary.idle_unreliable.as_ref()) {
        _ if diff.wall.is_none() => {}
        (Some(range), _) => cautions.push(format!(
            "Wall times are as recorded; {}: {}.",
            wall::lengths_of(range),
            wall::reasons(before, after)
        )),
        (None, Some(why)) => cautions.push(format!(
            "Recording slowed both programs down, so wall and idle time are longer than without it: {}.",
            why.trim().trim_end_matches('.')
        )),
        (None, None) => {}
    }
    if diff.before.devices != diff.after.devices {
        let per_gpu = match diff.unit {
            TimeUnit::Step | TimeUnit::Unit => "; times are those of one GPU",
            TimeUnit::Call => "",
        };
        cautions.push(format!(
            "{} before, {} after{per_gpu}.",
            capitalized(&counted(diff.before.devices, "GPU")),
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
                "The {name} profile was analyzed as if on another GPU; its times are those of the GPU it ran on."
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
