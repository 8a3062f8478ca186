//! The error text for a profile without GPU work.

use crate::base::text::plain;
use crate::base::units;
use crate::profile::Profile;
use crate::read::TRACE_CUT;

/// What the profile lacks, what it contains instead, and how to record GPU work.
pub(super) fn explain(profile: &Profile) -> String {
    if let Some(cut) = profile.notes.iter().find(|note| note.code == TRACE_CUT) {
        return format!(
            "{}: this {} ends in the middle, before any kernel, so there is nothing to analyze\n  {}\n  \
             Copy or unpack it again, or record it again and let the program end by itself: kernels are among \
             the last events of a trace.",
            plain(&profile.path),
            profile.format.name,
            plain(&cut.text)
        );
    }
    let mut text = format!(
        "{}: this {} has no kernels, so there is nothing to analyze\n  {}",
        plain(&profile.path),
        profile.format.name,
        what_it_holds(profile)
    );
    // Notes that repeat the sentences above, or concern sharing the file, are left out.
    let said = [
        "kernels_missing",
        "calls_missing",
        "ranges_missing",
        "environment_block",
    ];
    for note in profile.notes.iter().filter(|n| !said.contains(&n.code)) {
        text.push_str("\n  ");
        text.push_str(&plain(&note.text));
    }
    if ran_elsewhere(profile) {
        return text;
    }
    text.push_str(profile.format.how_to_capture);
    text.push_str(
        "\n  docs/capture.md lists other causes (containers, permissions, capture ranges).",
    );
    text
}

/// Whether the trace is of an accelerator that is no NVIDIA or AMD GPU.
fn ran_elsewhere(profile: &Profile) -> bool {
    (profile.notes.iter()).any(|note| note.code == crate::read::OTHER_ACCELERATOR)
}

/// `operator or annotation` of `operators and annotations`.
fn one_of(plural: &str) -> String {
    let words = plural.split(" and ");
    let words: Vec<&str> = words
        .map(|word| word.strip_suffix('s').unwrap_or(word))
        .collect();
    words.join(" or ")
}

/// `It holds 1,824 NVTX ranges, but no CUDA API calls: CUDA was not traced.`
fn what_it_holds(profile: &Profile) -> String {
    let parts = [
        (profile.calls.len(), "CUDA API calls"),
        (profile.ranges.len(), profile.format.ranges),
    ];
    let has: Vec<String> = parts
        .iter()
        .filter(|(rows, _)| *rows > 0)
        .map(|(rows, what)| match rows {
            1 => format!("1 {}", one_of(what)),
            _ => format!("{} {what}", units::count(*rows as u64)),
        })
        .collect();
    let lacks: Vec<&str> = parts
        .iter()
        .filter(|(rows, _)| *rows == 0)
        .map(|(_, what)| *what)
        .collect();
    let conclusion = if ran_elsewhere(profile) {
        "the program ran on another accelerator"
    } else if profile.calls.is_empty() {
        "CUDA was not traced, or the program never used the GPU"
    } else {
        "the GPU ran nothing while it was recorded, or its records were lost"
    };
    match (has.as_slice(), lacks.as_slice()) {
        ([], _) => format!(
            "It holds no {} either: {conclusion}.",
            lacks.join(", and no ")
        ),
        (_, []) => format!("It holds {}: {conclusion}.", has.join(" and ")),
        _ => format!(
            "It holds {}, but no {}: {conclusion}.",
            has.join(" and "),
            lacks.join(" and no ")
        ),
    }
}
