//! Charts as Mermaid blocks, which GitHub and GitLab draw. A table beside each chart has the same
//! numbers, for programs that show the block as text.

use serde::Serialize;

use super::basis::Basis;
use super::model::Report;
use super::{layers, narrative};
use crate::base::text;
use crate::base::units::significant;

/// Most slices of a pie; smaller ones are merged.
const MAX_SLICES: usize = 8;
/// Fewest slices of a pie: fewer are read faster in a table.
const MIN_SLICES: usize = 4;
/// Smallest share that is visible as a slice.
const MIN_SHARE: f64 = 0.01;
/// Longest label of a slice, in characters.
const MAX_LABEL: usize = 40;

/// The charts of a report as fenced blocks; `None` where there are too few slices or
/// they overlap.
#[derive(Debug, Serialize)]
pub(super) struct Charts {
    /// Time of the window by activity.
    pub time: Option<String>,
    /// GPU time by layer.
    pub layers: Option<String>,
}

impl Charts {
    pub(super) fn of(report: &Report, basis: &Basis) -> Charts {
        let part = |ns: i64| (ns as f64 / basis.divisor).round() as i64;
        let parts = &report.timeline.parts;
        let parts = parts.iter().map(|p| {
            let name = narrative::part_of_time(&p.what).split(',').next();
            (name.unwrap_or_default(), part(p.ns))
        });
        let pie_of_layers = || {
            let layers = report.layers.iter();
            let layers = layers.map(|l| (l.name.as_str(), part(l.time_ns)));
            let rest = part(report.layers_omitted.time_ns);
            pie("GPU time by layer", layers, rest)
        };
        Charts {
            time: pie("Where the time goes", parts, 0),
            // Times that overlap are no parts of a whole.
            layers: match layers::overlapping(report) {
                Some(_) => None,
                None => pie_of_layers(),
            },
        }
    }
}

/// A pie of times in nanoseconds; `rest` is the time of slices that are not in the list.
fn pie<'a>(title: &str, slices: impl Iterator<Item = (&'a str, i64)>, rest: i64) -> Option<String> {
    let mut slices: Vec<(&str, i64)> = slices.filter(|(_, ns)| *ns > 0).collect();
    slices.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let total = slices
        .iter()
        .fold(rest, |sum, (_, ns)| sum.saturating_add(*ns));
    let shown = slices
        .iter()
        .take(MAX_SLICES)
        .take_while(|(_, ns)| *ns as f64 >= MIN_SHARE * total as f64)
        .count();
    let (shown, small) = slices.split_at_checked(shown)?;
    let others = small
        .iter()
        .fold(rest, |sum, (_, ns)| sum.saturating_add(*ns));
    if shown.len() + usize::from(others > 0) < MIN_SLICES {
        return None;
    }
    let (unit, per_unit) = unit(shown.first()?.1);
    let mut block = format!("```mermaid\npie showData title {title} ({unit})\n");
    let mut used: Vec<String> = Vec::new();
    let rest = (others > 0).then_some(("everything else", others));
    for (name, ns) in shown.iter().copied().chain(rest) {
        let label = distinct(text::mermaid(name, MAX_LABEL), &used);
        let value = significant(ns as f64 / per_unit);
        block.push_str(&format!("    \"{label}\" : {value}\n"));
        used.push(label);
    }
    block.push_str("```");
    Some(block)
}

/// A label that is not in use: of two slices with one label Mermaid draws only the first.
fn distinct(label: String, used: &[String]) -> String {
    if !used.contains(&label) {
        return label;
    }
    (2..)
        .map(|n| format!("{label} ({n})"))
        .find(|candidate| !used.contains(candidate))
        .unwrap_or(label)
}

fn unit(ns: i64) -> (&'static str, f64) {
    match ns {
        ..1_000 => ("ns", 1.0),
        1_000..1_000_000 => ("us", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_named_once_and_add_up() {
        let slices = [
            ("a\"b", 60_000_000),
            ("a#b", 20_000_000),
            ("c", 10_000_000),
            ("tiny", 10),
            ("none", 0),
        ];
        let block = pie("T", slices.into_iter(), 10_000_000).unwrap();
        assert_eq!(
            block,
            "```mermaid\npie showData title T (ms)\n    \"a_b\" : 60.0\n    \"a_b (2)\" : 20.0\n    \"c\" : 10.0\n    \
             \"everything else\" : 10.0\n```"
        );
    }

    #[test]
    fn a_single_slice_makes_no_chart() {
        assert_eq!(pie("T", [("a", 5)].into_iter(), 0), None);
        assert_eq!(pie("T", [].into_iter(), 0), None);
    }
}
