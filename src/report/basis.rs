//! What the times of a report refer to: one step on one GPU, or the analyzed window.

use serde::Serialize;

use super::finding_report::FindingReport;
use super::model::{Report, Summary};
use crate::base::units::{counted, ns};
use crate::facts;
use crate::judge::SavingKind;

/// The unit that every printed time refers to. JSON has totals of the window instead.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Basis {
    /// Number that totals of the window are divided by: steps times GPUs, or 1 without steps.
    pub divisor: f64,
    /// `per step`, `per step and GPU`, or empty where times are totals of the window.
    pub per: &'static str,
    /// Heading of wall time saved: `Step time saved`.
    pub wall: &'static str,
    /// What shares of wall time are of: `step` or `window`.
    pub whole: &'static str,
    /// Wall time that a saving of wall time is a share of: the mean step, as long as it is without a recording where
    /// that is known; or the window.
    pub wall_ns: f64,
    /// Number that totals of one rank are divided by.
    pub per_rank: f64,
    /// What the times of tables refer to.
    pub sentence: String,
    /// GPU busy time in that unit, the whole of all shares of GPU time.
    pub busy_ns: f64,
}

impl Basis {
    pub(super) fn of(s: &Summary) -> Basis {
        let basis = Basis::without_sentence(s);
        Basis {
            sentence: basis.sentence(s),
            ..basis
        }
    }

    fn without_sentence(s: &Summary) -> Basis {
        let busy_ns = s.busy_ns as f64;
        match s.step_ns.filter(|ns| s.steps > 0 && *ns > 0.0) {
            Some(step_ns) => {
                let divisor = steps_in_window(s) * s.devices.max(1) as f64;
                Basis {
                    divisor,
                    per: if s.devices > 1 {
                        "per step and GPU"
                    } else {
                        "per step"
                    },
                    wall: "Step time saved",
                    whole: "step",
                    wall_ns: unrecorded_step_ns(s).unwrap_or(step_ns),
                    busy_ns: busy_ns / divisor,
                    per_rank: steps_in_window(s),
                    sentence: String::new(),
                }
            }
            None => Basis {
                divisor: 1.0,
                per: "",
                wall: "Wall time saved",
                whole: "window",
                wall_ns: s.window_ns as f64,
                busy_ns,
                per_rank: 1.0,
                sentence: String::new(),
            },
        }
    }

    /// What a saving of GPU time is a part of: `of GPU time per step`.
    /// [`Basis::wall_ns`] of all steps, summed over devices.
    pub(super) fn device_wall_ns(&self, s: &Summary) -> f64 {
        match self.per {
            "" => s.device_window_ns as f64,
            _ => self.wall_ns * self.divisor,
        }
    }

    pub(super) fn of_gpu_time(&self) -> String {
        format!("of GPU time {}", self.per).trim_end().to_owned()
    }

    /// Whether every finding saves as much wall time as time of its own kind, so that one column
    /// says both.
    pub(super) fn one_saving(&self, report: &Report) -> bool {
        /// Relative difference that two digits do not show.
        const SAME: f64 = 0.02;
        let lists = report.findings.iter().chain(&report.minor);
        let mut savings = lists.filter_map(|f| f.saving.as_ref());
        let is_same = |wall: Option<f64>, own: f64| {
            wall.is_some_and(|wall| (wall - own / self.divisor).abs() <= SAME * own / self.divisor)
        };
        savings.all(|s| {
            is_same(s.step_high_ns, s.counted_high_ns) && is_same(s.step_low_ns, s.counted_low_ns)
        })
    }

    /// What the times of tables refer to, as a sentence.
    fn sentence(&self, s: &Summary) -> String {
        let busy = ns(self.busy_ns);
        let gpus = match s.devices {
            0 | 1 => String::new(),
            n => format!(", summed over {n} GPUs"),
        };
        match self.per {
            "" => format!(
                "Times are of the whole analyzed window{gpus}; shares of GPU time are of its {busy} of busy time."
            ),
            per if s.steps == 1 => format!(
                "Times and counts are {per}, of one step; shares of GPU time are of the {busy} that the GPU is busy."
            ),
            per => format!(
                "Times and counts are {per}, averaged over {}; shares of GPU time are of the {busy} that the \
                 GPU is busy.",
                counted(s.steps, "step")
            ),
        }
    }
}

/// How long steps are without a recording, in ns, where that made them longer: not shorter than what the GPU works.
pub(super) fn unrecorded_step_ns(s: &Summary) -> Option<f64> {
    let busy = s.busy_ns as f64 / (steps_in_window(s) * s.devices.max(1) as f64);
    let unrecorded = s.unrecorded_step_ns?.max(busy);
    (unrecorded < s.step_ns?).then_some(unrecorded)
}

/// An estimated saving in the unit of the report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Amount {
    pub low_ns: f64,
    pub high_ns: f64,
    /// What it is a part of.
    pub whole: Whole,
    /// Length of that.
    pub whole_ns: f64,
}

/// What a saving is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    /// Wall time: the step, or the window.
    Wall,
    /// GPU busy time.
    Busy,
}

/// The saving that a finding adds to those before it: of wall time where that is estimated and not
/// zero, else of GPU time. `None` without an estimate, or if nothing is added.
pub(super) fn amount(finding: &FindingReport, basis: &Basis) -> Option<Amount> {
    let s = finding.saving.as_ref()?;
    if let Some(high_ns) = s.step_high_ns.filter(|high| *high > 0.0) {
        return Some(Amount {
            low_ns: s.step_low_ns.unwrap_or(0.0),
            high_ns,
            whole: Whole::Wall,
            whole_ns: basis.wall_ns,
        });
    }
    (s.kind != SavingKind::Idle && s.counted_high_ns > 0.0).then(|| Amount {
        low_ns: s.counted_low_ns / basis.divisor,
        high_ns: s.counted_high_ns / basis.divisor,
        whole: Whole::Busy,
        whole_ns: basis.busy_ns,
    })
}

/// How many steps the work of the window amounts to, at least 1.
pub(crate) fn steps_in_window(summary: &Summary) -> f64 {
    facts::steps_in_window(
        summary.work_steps,
        summary.steps,
        summary.step_ns,
        summary.window_ns as f64,
    )
}
