//! Findings that were made and are not shown: known from a baseline, or suppressed.
//!
//! They leave the lists people read and gates count, and stay in the JSON with the reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::build::total_saving;
use super::{FindingReport, Report, narrative};

/// [`FindingReport::since_baseline`] of what the baseline does not have.
pub const NEW: &str = "new";

/// A finding that is not shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HiddenFinding {
    pub reason: HiddenReason,
    /// The index in `suppressions` of the one that hides it.
    pub suppression: Option<u64>,
    /// The list it would stand in.
    pub list: FindingList,
    pub finding: FindingReport,
}

/// Why a finding is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum HiddenReason {
    /// The baseline has it.
    Known,
    Suppressed,
}

/// A list of findings in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum FindingList {
    Findings,
    Minor,
    Capture,
}

/// The report this one was held against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Baseline {
    /// The file it was read from.
    pub file: String,
    /// The profile it is about.
    pub title: String,
    /// Findings it has, whose rule looked again and found nothing.
    pub fixed: Vec<GoneFinding>,
    /// Findings it has, whose rule did not run or lacked a fact this time.
    pub not_checked: Vec<GoneFinding>,
}

/// A finding of the baseline that was not made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GoneFinding {
    pub rule: String,
    pub title: String,
    pub place: String,
    /// What it covered: of GPU busy time, or of the window for idle time.
    pub share: f64,
}

/// A suppression of the configuration, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SuppressionReport {
    /// A rule, or several with `*`.
    pub rule: String,
    /// Where: a place, or several with `*`; `null` for everywhere.
    pub place: Option<String>,
    pub reason: String,
    /// The last day it holds: `2026-12-31`.
    pub until: Option<String>,
    pub state: SuppressionState,
    /// How many findings it hides; expired, how many it would hide.
    pub findings: u64,
}

/// What came of a suppression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SuppressionState {
    /// It hides findings.
    Used,
    /// There was nothing to hide.
    Unused,
    /// Its last day has passed: it hides nothing.
    Expired,
    /// No rule it is about ran.
    NotRun,
}

/// Why a finding is taken out of sight: the reason, and the suppression's index.
pub(crate) type Reason = (HiddenReason, Option<u64>);

impl Report {
    /// Takes findings out of sight. Those left are numbered anew, and what the report says of them
    /// together is said anew.
    pub(crate) fn hide(&mut self, mut why: impl FnMut(&FindingReport) -> Option<Reason>) {
        let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
        let hidden = &mut self.hidden;
        let lists = [
            (FindingList::Findings, &mut self.findings),
            (FindingList::Minor, &mut self.minor),
            (FindingList::Capture, &mut self.capture),
        ];
        for (name, list) in lists {
            let mut left = Vec::with_capacity(list.len());
            for mut finding in std::mem::take(list) {
                let number = std::mem::take(&mut finding.number);
                if let Some((reason, suppression)) = why(&finding) {
                    hidden.push(HiddenFinding {
                        reason,
                        suppression,
                        list: name,
                        finding,
                    });
                    continue;
                }
                if name == FindingList::Findings {
                    finding.number = left.len() as u64 + 1;
                    numbers.insert(number, finding.number);
                }
                left.push(finding);
            }
            *list = left;
        }
        let layers = self.layers.iter_mut().map(|l| &mut l.findings);
        let sites = self.sites.iter_mut().map(|s| &mut s.findings);
        for list in layers.chain(sites) {
            *list = list
                .iter()
                .filter_map(|n| numbers.get(n).copied())
                .collect();
        }
        self.retell();
    }

    /// Puts every finding back that is not shown, behind those that are, and forgets what hid them.
    pub(crate) fn unhide(&mut self) {
        self.baseline = None;
        self.suppressions.clear();
        for finding in self.findings.iter_mut().chain(&mut self.minor) {
            finding.since_baseline = None;
        }
        if self.hidden.is_empty() {
            return;
        }
        for mut hidden in std::mem::take(&mut self.hidden) {
            let list = match hidden.list {
                FindingList::Findings => {
                    hidden.finding.number = self.findings.len() as u64 + 1;
                    &mut self.findings
                }
                FindingList::Minor => &mut self.minor,
                FindingList::Capture => &mut self.capture,
            };
            list.push(hidden.finding);
        }
        self.retell();
    }

    /// Says again what the findings shown come to.
    pub(crate) fn retell(&mut self) {
        self.total_saving = total_saving(&self.findings);
        self.verdict = narrative::verdict(self);
    }

    /// Every finding made, shown or not.
    pub(crate) fn all_findings(&self) -> impl Iterator<Item = &FindingReport> {
        let shown = self.findings.iter().chain(&self.minor).chain(&self.capture);
        shown.chain(self.hidden.iter().map(|h| &h.finding))
    }
}
