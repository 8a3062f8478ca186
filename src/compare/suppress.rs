//! Hides findings that the configuration suppresses.

use crate::base::date::Date;
use crate::base::glob::Glob;
use crate::base::units::counted;
use crate::report::{self, FindingReport, HiddenReason, Report, SuppressionState};

/// Separates the layer from the operator in the name of a place.
const BEHIND_LAYER: &str = " · ";

/// Findings to hide, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// Rules: an id or a pattern with `*`.
    pub rule: Glob,
    /// Places, or layers alone; `None` matches everywhere.
    pub place: Option<Glob>,
    /// Why the findings are hidden, as the file states it.
    pub reason: String,
    /// The last day on which it applies.
    pub until: Option<Date>,
}

impl Suppression {
    /// Whether it covers a finding: by its place as reports show it (`lm_head · aten::mm (fprop) and 2
    /// more places`); otherwise, of a finding in several places, all must match.
    fn covers(&self, finding: &FindingReport) -> bool {
        if !self.rule.matches(&finding.rule) {
            return false;
        }
        let Some(place) = &self.place else {
            return true;
        };
        // The shown text is not a pattern: `blocks.*.mlp` in it is the name of a pattern.
        if place.text() == finding.place {
            return true;
        }
        match finding.places.as_slice() {
            [] => is_at(place, &finding.place),
            // The places that are not listed are unknown.
            _ if finding.places_omitted > 0 => place.text() == "*",
            places => places.iter().all(|p| is_at(place, &p.place)),
        }
    }

    /// For a finding that it matches in some places only: those places and one of the others.
    fn near_miss(&self, finding: &FindingReport) -> Option<String> {
        let place = self
            .place
            .as_ref()
            .filter(|_| self.rule.matches(&finding.rule))?;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            (finding.places.iter()).partition(|p| is_at(place, &p.place));
        let more = elsewhere.len().checked_sub(1)? as u64 + finding.places_omitted;
        let other = &elsewhere.first()?.place;
        let more = match more {
            0 => String::new(),
            n => format!(" and {}", counted(n, "more place")),
        };
        (!here.is_empty()).then(|| {
            format!(
                "it matches {}, but the finding is also at {other}{more}; `place = \"{}\"` covers all of it",
                place.text(),
                finding.place
            )
        })
    }

    fn is_expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| until < today)
    }
}

/// Whether a place, or its layer, matches.
fn is_at(place: &Glob, name: &str) -> bool {
    let layer = name.split_once(BEHIND_LAYER).map(|(layer, _)| layer);
    place.matches(name) || layer.is_some_and(|layer| place.matches(layer))
}

/// Hides the findings that the suppressions cover, each by the first that covers it, and records the
/// effect of each. `ran` tells whether any rule of a pattern ran.
pub fn suppress(
    report: &mut Report,
    list: &[Suppression],
    today: Date,
    ran: &dyn Fn(&Glob) -> bool,
) {
    if list.is_empty() {
        return;
    }
    let mut hides = vec![0_u64; list.len()];
    for finding in report.all_findings() {
        if let Some(count) = first(list, finding, today).and_then(|at| hides.get_mut(at)) {
            *count += 1;
        }
    }
    report.suppressions = list
        .iter()
        .zip(hides)
        .map(|(s, findings)| report::SuppressionReport {
            rule: s.rule.text().to_owned(),
            place: s.place.as_ref().map(|p| p.text().to_owned()),
            reason: s.reason.clone(),
            until: s.until.map(|day| day.to_string()),
            state: state(s, findings, today, ran),
            findings,
            near_miss: match findings {
                0 => report.all_findings().find_map(|f| s.near_miss(f)),
                _ => None,
            },
        })
        .collect();
    let again: u64 = (report.suppressions.iter())
        .filter(|s| s.state == SuppressionState::Expired)
        .map(|s| s.findings)
        .sum();
    if again > 0 {
        let (verb, whose) = if again == 1 {
            ("is", "its")
        } else {
            ("are", "their")
        };
        report.cautions.push(format!(
            "{} {verb} shown again: {whose} suppression has expired.",
            counted(again, "finding")
        ));
    }
    report.hide(|finding| {
        let at = first(list, finding, today)?;
        let holds = !list.get(at)?.is_expired(today);
        holds.then_some((HiddenReason::Suppressed, Some(at as u64)))
    });
}

/// The first suppression that covers a finding, of those that apply before those that expired.
fn first(list: &[Suppression], finding: &FindingReport, today: Date) -> Option<usize> {
    let holds = |s: &Suppression| !s.is_expired(today) && s.covers(finding);
    let held = |s: &Suppression| s.covers(finding);
    let at = list.iter().position(holds);
    at.or_else(|| list.iter().position(held))
}

fn state(
    s: &Suppression,
    findings: u64,
    today: Date,
    ran: &dyn Fn(&Glob) -> bool,
) -> SuppressionState {
    if s.is_expired(today) {
        SuppressionState::Expired
    } else if findings > 0 {
        SuppressionState::Used
    } else if ran(&s.rule) {
        SuppressionState::Unused
    } else {
        SuppressionState::NotRun
    }
}
