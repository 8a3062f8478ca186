//! Findings that are not shown, because a baseline has them or a suppression covers them.
//!
//! They are removed from the lists that people read and gates count, and stay in the JSON with the
//! reason.

use std::collections::BTreeMap;

use super::finding_report::{
    FindingList, FindingReport, HiddenFinding, HiddenReason, total_saving,
};
use super::model::Report;

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
