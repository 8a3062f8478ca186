//! Findings that are not shown, because a baseline has them or a suppression covers them.
//!
//! They are removed from the lists that people read and gates count, and stay in the JSON with the
//! reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::build::total_saving;
use super::{FindingReport, Report};

/// [`FindingReport::since_baseline`] of findings that the baseline does not have.
pub const NEW: &str = "new";

/// A finding that is not shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HiddenFinding {
    /// Why it is not shown.
    pub reason: HiddenReason,
    /// Index in `suppressions` of the one that hides it; `null` for known findings.
    pub suppression: Option<u64>,
    /// The list that it was removed from.
    pub list: FindingList,
    /// The finding.
    pub finding: FindingReport,
}

/// Why a finding is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum HiddenReason {
    /// The baseline has it.
    Known,
    /// A suppression of the configuration covers it.
    Suppressed,
}

/// A list of findings in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum FindingList {
    /// [`Report::findings`].
    Findings,
    /// [`Report::minor`].
    Minor,
    /// [`Report::capture`].
    Capture,
}

/// The report that this one was compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Baseline {
    /// File that it was read from.
    pub file: String,
    /// Name of its profile.
    pub title: String,
    /// Its findings whose rule ran again and found nothing.
    pub fixed: Vec<GoneFinding>,
    /// Its findings whose rule did not run or lacked a fact this time.
    pub not_checked: Vec<GoneFinding>,
}

/// A finding of the baseline that was not made again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GoneFinding {
    /// Id of the rule.
    pub rule: String,
    /// Title of the finding.
    pub title: String,
    /// Where it was found.
    pub place: String,
    /// Time that it covered, as a share of GPU busy time, or of the window for idle time.
    pub share: f64,
}

/// A suppression of the configuration and its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SuppressionReport {
    /// Id of a rule, or a pattern with `*`.
    pub rule: String,
    /// A place, or a pattern with `*`; `null` for everywhere.
    pub place: Option<String>,
    /// Why the findings are suppressed.
    pub reason: String,
    /// The last day it holds: `2026-12-31`.
    pub until: Option<String>,
    /// Its effect.
    pub state: SuppressionState,
    /// Number of findings that it hides, or would hide if it had not expired.
    pub findings: u64,
    /// Why it does not hide a finding that it matches in some places only.
    #[serde(default)]
    pub near_miss: Option<String>,
}

/// The effect of a suppression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SuppressionState {
    /// It hides findings.
    Used,
    /// It matches no finding.
    Unused,
    /// Its last day has passed: it hides nothing.
    Expired,
    /// None of its rules ran.
    NotRun,
}

/// Why a finding is hidden, and the index of the suppression.
pub(crate) type Reason = (HiddenReason, Option<u64>);

impl Report {
    /// Hides the findings that `why` has a reason for. Renumbers the others and updates the totals.
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
        self.refresh();
    }

    /// Appends hidden findings to their lists again, and removes the baseline and the suppressions.
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
        self.refresh();
    }

    /// Updates the total saving and the opening after `findings` changed.
    pub(crate) fn refresh(&mut self) {
        self.total_saving = total_saving(&self.findings);
        self.sum_up();
    }

    /// All findings, whether shown or hidden.
    pub(crate) fn all_findings(&self) -> impl Iterator<Item = &FindingReport> {
        let shown = self.findings.iter().chain(&self.minor).chain(&self.capture);
        shown.chain(self.hidden.iter().map(|h| &h.finding))
    }
}
