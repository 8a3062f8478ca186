//! What two reports are compared by.

use super::limits::MOST;
use super::model::TimeUnit;
use super::unit::Common;
use super::work;
use crate::base::units::percent;
use crate::report::{Report, UnitKind};

/// Share of the window that steps must fill for its work to count as theirs.
const FILLED: f64 = 0.8;

/// Share of the GPU time without a launch from which a capture counts as starting in the middle of a
/// step.
const CUT: f64 = 0.05;

/// What is compared.
pub(super) struct DiffBasis<'a> {
    pub(super) unit: TimeUnit,
    /// The unit of work of both reports; `None` where calls are compared.
    pub(super) common: Option<Common<'a>>,
    /// Why steps are not compared.
    pub(super) because: Option<String>,
    /// Factors for times of the whole capture, before and after.
    pub(super) scale: (f64, f64),
    /// Whether the captures begin and end anywhere in a unit of work.
    pub(super) is_cut: bool,
    /// Whether kernels without a launch are compared by name, because they are most of the work.
    pub(super) with_launchless: bool,
    /// Whether work is compared by kernel and grid, because one of the reports names no operator.
    pub(super) by_kernel: bool,
    pub(super) gpus_differ: bool,
    /// Whether the GPUs differ, so that ideal times are compared.
    pub(super) ideals: bool,
}

impl<'a> DiffBasis<'a> {
    pub(super) fn of(before: &'a Report, after: &'a Report) -> DiffBasis<'a> {
        let because = not_by_step(before, "the first profile")
            .or_else(|| not_by_step(after, "the second profile"));
        let common = match because {
            None => Common::steps(before, after),
            Some(_) => Common::other(before, after),
        };
        let (unit, scale) = match (&because, common) {
            (None, _) => (TimeUnit::Step, (per_step(before), per_step(after))),
            (Some(_), Some(common)) => (TimeUnit::Unit, common.scale(before, after)),
            (Some(_), None) => (TimeUnit::Call, (1.0, 1.0)),
        };
        let gpus_differ = gpus_differ(before, after);
        let gpus = before.method.gpu.as_ref().zip(after.method.gpu.as_ref());
        DiffBasis {
            unit,
            is_cut: common.is_some_and(|common| common.kind() == UnitKind::Kernel),
            common,
            because,
            scale,
            with_launchless: work::launchless(before) > MOST || work::launchless(after) > MOST,
            by_kernel: work::has_operators(before) != work::has_operators(after),
            gpus_differ,
            ideals: gpus.is_some_and(|(a, b)| match gpus_differ {
                true => !a.what_if && !b.what_if,
                false => a.id == b.id,
            }),
        }
    }
}

/// Why the work of a report cannot be counted by steps.
fn not_by_step(report: &Report, name: &str) -> Option<String> {
    let s = &report.summary;
    let Some(step) = s.step_ns.filter(|ns| s.steps > 0 && *ns > 0.0) else {
        return Some(format!("{name} has no steps"));
    };
    let filled = step * s.steps as f64 / s.window_ns.max(1) as f64;
    if filled < FILLED {
        return Some(format!(
            "the steps of {name} fill only {} of its window, so that other work is in it too",
            percent(filled)
        ));
    }
    let cut = work::launchless(report);
    (cut > CUT).then(|| {
        format!(
            "{name} was cut out of the middle of its work: {} of the GPU time was launched outside of \
             the capture",
            percent(cut)
        )
    })
}

pub(super) fn per_step(report: &Report) -> f64 {
    let s = &report.summary;
    1.0 / (s.steps.max(1) as f64 * s.devices.max(1) as f64)
}

/// Whether the GPUs differ, by the names in the profiles, else by the GPUs in use.
fn gpus_differ(before: &Report, after: &Report) -> bool {
    let names = |report: &Report| {
        let mut names = report.method.devices.clone();
        names.sort();
        names.dedup();
        names
    };
    let (a, b) = (names(before), names(after));
    if !a.is_empty() && !b.is_empty() {
        return a != b;
    }
    let gpus = before.method.gpu.as_ref().zip(after.method.gpu.as_ref());
    gpus.is_some_and(|(a, b)| a.id != b.id)
}
