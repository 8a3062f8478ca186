//! The shares of a step from which a finding is not minor.

use super::finding::{Finding, SavingKind};
use super::order::{FindingFigures, SavingFigures};
use super::rule::COMMUNICATION;
use crate::facts::Totals;

/// Findings whose lower end is below this share of the step are minor: a change that saves less is lost
/// in the differences between runs. Of the GPU's work where recording overhead leaves open how far a
/// step becomes shorter.
pub const FLOOR: f64 = 0.01;

/// The share of the work that a finding must be about if it is not known how much of it can be saved.
const UNESTIMATED_FLOOR: f64 = 0.03;

/// The share that a finding must save at most if it may as well save nothing, or less than that.
pub(super) const UNCERTAIN_FLOOR: f64 = 0.1;

/// The figures of a finding that decide its position in the report.
pub(super) fn counted(finding: &Finding) -> FindingFigures {
    FindingFigures {
        saving: finding.saving.as_ref().map(|s| SavingFigures {
            kind: s.kind,
            low_ns: s.claimed_low_ns,
            high_ns: s.claimed_ns,
            wall_low_ns: s.step_low_ns,
        }),
        confidence: finding.confidence,
        time_ns: finding.time_ns,
        is_about_work: !finding.sites.is_empty(),
    }
}

/// Whether a finding is not minor: by the lower end of its claimed saving, or by the upper end where the
/// lower one is small; as a share of the step where the effect on the step is known, else of the GPU's work.
pub(super) fn matters(finding: &Finding, totals: &Totals) -> bool {
    let per_device = totals.window_ns / totals.device_count();
    let Some(saving) = &finding.saving else {
        let step_share = match totals.step_weight {
            Some(weight) if !finding.sites.is_empty() && totals.window_ns > 0.0 => {
                weight * finding.time_ns / totals.window_ns
            }
            _ => finding.share,
        };
        let floor = match finding.sites.is_empty() {
            true => FLOOR,
            false => UNESTIMATED_FLOOR,
        };
        return finding.share >= floor && step_share >= floor;
    };
    let (low, high, whole) = match (saving.kind, saving.step_low_ns.zip(saving.step_ns)) {
        (SavingKind::Idle, _) if totals.paced_by_workers => {
            (0.0, saving.claimed_ns, totals.window_ns)
        }
        (SavingKind::Idle, _) => (saving.claimed_low_ns, saving.claimed_ns, totals.window_ns),
        // Waiting for other ranks is time of the step, whatever else limits it.
        (_, Some((low, high))) if finding.category != COMMUNICATION => (low, high, per_device),
        _ => (saving.claimed_low_ns, saving.claimed_ns, totals.gpu_busy_ns),
    };
    is_above_floor(low, high, whole)
}

/// Whether a saving from `low` to `high` is large enough not to be minor, as a share of `whole`.
pub(crate) fn is_above_floor(low: f64, high: f64, whole: f64) -> bool {
    low >= FLOOR * whole || high >= UNCERTAIN_FLOOR * whole
}
