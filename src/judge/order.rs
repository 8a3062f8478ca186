//! The order of findings: in the report of one profile, and of several.

use std::cmp::Ordering;

use super::finding::{Confidence, SavingKind};
use crate::facts::Totals;

/// The part of idle time, or of work without an estimate, that counts when findings are ranked and the lower end
/// of the saving is 0 or unknown: what takes half of the time ranks before a saving of at least 1 %.
const UNCERTAIN: f64 = 0.1;

/// The share of a step from which idle time that a fix saves for certain goes before kernel time where it is unknown how
/// far that shortens steps.
const CERTAIN: f64 = 0.05;

/// What the order of findings depends on besides the findings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// Share of saved kernel time by which steps become shorter; `None` where that is unknown.
    pub(crate) step_weight: Option<f64>,
    /// Number of devices that the times of a finding are summed over.
    pub(crate) devices: u64,
    /// Length of the window on each device, in ns.
    pub(crate) window_ns: f64,
}

/// The figures of a finding that decide its position. Times in ns, summed over the window and the devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FindingFigures {
    /// What the finding would save; `None` without an estimate.
    pub(crate) saving: Option<SavingFigures>,
    pub(crate) confidence: Confidence,
    /// Time of the work that it is about.
    pub(crate) time_ns: f64,
    /// Whether it is about work, not about the run as a whole.
    pub(crate) is_about_work: bool,
}

/// The part of a saving that no better finding claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SavingFigures {
    pub(crate) kind: SavingKind,
    pub(crate) low_ns: f64,
    pub(crate) high_ns: f64,
    /// Lower end of the wall time saved on each device, in ns; `None` where it is unknown.
    pub(crate) wall_low_ns: Option<f64>,
}

/// The place of a finding in the order; the smaller comes first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    tier: u8,
    saving: MinSaving,
}

/// The lower end of the saving of a finding times its confidence: in ns of wall time where that is known, and in
/// ns of its own kind of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MinSaving {
    pub(super) wall: f64,
    pub(super) own: f64,
}

impl MinSaving {
    /// The larger saving first.
    pub(super) fn compare(self, other: MinSaving) -> Ordering {
        let wall = other.wall.total_cmp(&self.wall);
        wall.then(other.own.total_cmp(&self.own))
    }
}

impl Place {
    /// The position of a finding: by the lower end of its saving, in wall time where that is known; where the host
    /// limits the steps, idle time goes first; where that is unknown, idle time of which much is saved for certain.
    /// Idle time whose saving has the lower end 0 and work without an
    /// estimate count by a part of their time. Then come other findings whose saving has the lower end 0, and
    /// those about the whole run without an estimate.
    pub(crate) fn of(finding: &FindingFigures, standing: &Standing) -> Place {
        let host_bound = Totals::is_host_bound(standing.step_weight);
        let devices = standing.devices.max(1) as f64;
        let uncertain = |ns: f64| UNCERTAIN * ns / devices;
        let (tier, wall, own) = match finding.saving {
            Some(s) if s.low_ns > 0.0 => {
                let own = s.low_ns / devices;
                let tier = u8::from(host_bound && s.kind == SavingKind::Gpu);
                (tier, s.wall_low_ns.unwrap_or(own), own)
            }
            Some(s) if s.kind == SavingKind::Idle => {
                (0, uncertain(s.high_ns), uncertain(s.high_ns))
            }
            Some(_) => (2, 0.0, 0.0),
            None if finding.is_about_work => {
                let own = uncertain(finding.time_ns);
                let weight = standing.step_weight.unwrap_or(1.0);
                (u8::from(host_bound), own * weight, own)
            }
            None => (3, 0.0, 0.0),
        };
        let is_certain = standing.step_weight.is_none()
            && finding.saving.is_some_and(|s| {
                s.kind == SavingKind::Idle && s.low_ns / devices >= CERTAIN * standing.window_ns
            });
        let confidence = finding.confidence.weight();
        Place {
            tier: if is_certain { 0 } else { tier + 1 },
            saving: MinSaving {
                wall: wall * confidence,
                own: own * confidence,
            },
        }
    }

    /// The better finding first.
    pub(crate) fn compare(self, other: Place) -> Ordering {
        let by_tier = self.tier.cmp(&other.tier);
        by_tier.then_with(|| self.saving.compare(other.saving))
    }
}
