//! Findings that people have looked at and decided to live with.

use crate::base::date::Date;
use crate::base::glob::Glob;
use crate::base::units::counted;
use crate::report::{self, FindingReport, HiddenReason, Report, SuppressionState};

/// What separates the layer from the operator in the name of a place.
const BEHIND_LAYER: &str = " · ";

/// What is not to be shown, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    /// Rules: an id, or several with `*`.
    pub rule: Glob,
    /// Places, or layers alone; `None` is everywhere.
    pub place: Option<Glob>,
    pub reason: String,
    /// The last day it holds.
    pub until: Option<Date>,
}

impl Suppression {
    /// A finding in several places is suppressed when all of them are.
    fn covers(&self, finding: &FindingReport) -> bool {
        if !self.rule.matches(&finding.rule) {
            return false;
        }
        let Some(place) = &self.place else {
            return true;
        };
        let here = |name: &str| {
            let layer = name.split_once(BEHIND_LAYER).map(|(layer, _)| layer);
            place.matches(name) || layer.is_some_and(|layer| place.matches(layer))
        };
        match finding.places.as_slice() {
            [] => here(&finding.place),
            // What is not listed may be anywhere.
            _ if finding.places_omitted > 0 => place.text() == "*",
            places => places.iter().all(|p| here(&p.place)),
        }
    }

    fn is_expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| until < today)
    }
}

/// Hides what the suppressions cover, each finding by the first that does, and writes down what
/// came of every one. `ran` says whether any rule of a pattern ran.
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

/// The suppression a finding belongs to: one that holds, before one that has expired.
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
