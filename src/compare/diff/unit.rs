//! Chooses the unit of work by which two reports are compared: a step, else a range of the user or graph
//! launches that both have equally often, else a kernel that recurs on both sides.

use super::limits::MOST;
use super::model::{UnitChange, UnitSide};
use super::work;
use crate::base::statistics::{mean_and_deviation, median};
use crate::compare::welch::SAME;
use crate::report::{Report, UnitKind, WorkUnit, share};

/// Share of the most kernel time held by a unit that another must hold to be preferred because it repeats
/// more often.
const AS_MUCH: f64 = 0.8;
/// Largest standard deviation, as a share of the mean, of repetitions that are alike.
const STEADY: f64 = 0.1;
/// Largest difference in kernels per unit for recurring kernels to enclose the same work.
const SAME_WORK: f64 = 0.05;

/// The same unit of work in two reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) before: &'a WorkUnit,
    pub(super) after: &'a WorkUnit,
}

impl<'a> Common<'a> {
    /// The steps, which both must have.
    pub(super) fn steps(before: &'a Report, after: &'a Report) -> Option<Common<'a>> {
        let of = |report: &'a Report| report.units.iter().find(|u| u.kind == UnitKind::Step);
        Some(Common {
            before: of(before)?,
            after: of(after)?,
        })
    }

    /// The most certain unit that both have, other than steps.
    pub(super) fn other(before: &'a Report, after: &'a Report) -> Option<Common<'a>> {
        let pairs = || {
            before.units.iter().filter_map(|unit| {
                let mut same = after.units.iter();
                let after = same.find(|u| u.kind == unit.kind && u.name == unit.name)?;
                Some(Common {
                    before: unit,
                    after,
                })
            })
        };
        let of = |kind| pairs().filter(move |pair| pair.before.kind == kind && pair.held() >= MOST);
        let ranges: Vec<Common<'a>> = of(UnitKind::Range)
            .filter(|pair| pair.before.count == pair.after.count)
            .collect();
        let most = ranges.iter().map(Common::held).fold(0.0, f64::max);
        let near: Vec<&Common<'a>> = (ranges.iter())
            .filter(|pair| pair.held() >= AS_MUCH * most)
            .collect();
        // Many repetitions that are alike show the noise; else the whole is compared, in its shortest range.
        let steady = near
            .iter()
            .filter(|pair| pair.before.count > 1 && pair.is_steady());
        let range = (steady.max_by_key(|pair| pair.before.count)).or_else(|| {
            near.iter()
                .min_by_key(|pair| (pair.before.count, pair.length()))
        });
        if let Some(range) = range {
            return Some(**range);
        }
        let graphs = of(UnitKind::GraphLaunch);
        // Launches that are alike are those of one graph, whatever their number.
        let mut graphs = graphs.filter(|pair| {
            let one = || pair.is_steady() && pair.is_same_work();
            pair.before.count == pair.after.count || one()
        });
        graphs
            .next()
            .or_else(|| of(UnitKind::Kernel).find(Common::is_same_work))
    }

    pub(super) fn kind(&self) -> UnitKind {
        self.before.kind
    }

    /// Share of the kernel time that the unit holds, on the side where it holds less.
    fn held(&self) -> f64 {
        self.before.held_share.min(self.after.held_share)
    }

    fn length(&self) -> i64 {
        self.before
            .wall_ns
            .iter()
            .fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    fn is_steady(&self) -> bool {
        [self.before, self.after].iter().all(|unit| {
            let side = side(unit);
            side.deviation_ns
                .is_some_and(|sd| sd <= STEADY * side.wall_ns)
        })
    }

    fn is_same_work(&self) -> bool {
        let (before, after) = (kernels(self.before), kernels(self.after));
        (before - after).abs() <= SAME_WORK * before.max(after)
    }

    /// Factors from times of the whole window to those of one unit on one GPU.
    pub(super) fn scale(&self, before: &Report, after: &Report) -> (f64, f64) {
        let of = |unit: &WorkUnit, report: &Report| {
            let all = report.summary.kernels.saturating_sub(no_launch(report)) as f64;
            let held = unit.held_share;
            // A whole number of units, where they hold all of the work.
            match unit.kind {
                UnitKind::Range | UnitKind::GraphLaunch if held > 1.0 - SAME => {
                    1.0 / (unit.count.max(1) as f64 * report.summary.devices.max(1) as f64)
                }
                _ => share(kernels(unit), all),
            }
        };
        (of(self.before, before), of(self.after, after))
    }

    pub(super) fn change(&self) -> UnitChange {
        UnitChange {
            kind: self.before.kind,
            name: self.before.name.clone(),
            before: side(self.before),
            after: side(self.after),
        }
    }
}

/// Number of kernels whose launch is not in the file, which are not compared unless they are most.
fn no_launch(report: &Report) -> u64 {
    match work::launchless(report) > MOST {
        true => 0,
        false => {
            let rows = report
                .unattributed
                .iter()
                .filter(|row| row.reason == work::NO_LAUNCH);
            rows.map(|row| row.kernels).sum()
        }
    }
}

/// Mean number of kernels per unit and GPU.
fn kernels(unit: &WorkUnit) -> f64 {
    let all: f64 = unit.kernels.iter().map(|n| f64::from(*n)).sum();
    share(all, unit.kernels.len() as f64)
}

fn side(unit: &WorkUnit) -> UnitSide {
    let walls: Vec<f64> = unit.wall_ns.iter().map(|ns| *ns as f64).collect();
    let (wall_ns, deviation_ns) = mean_and_deviation(&walls);
    UnitSide {
        count: unit.count,
        wall_ns: wall_ns.unwrap_or(0.0),
        median_ns: median(&mut unit.wall_ns.clone()).map_or(0.0, |ns| ns as f64),
        deviation_ns,
        busy_ns: mean(&unit.busy_ns),
        kernel_ns: mean(&unit.kernel_ns),
        comm_ns: mean(&unit.comm_ns),
        kernels: kernels(unit),
    }
}

fn mean(values: &[i64]) -> f64 {
    let all: f64 = values.iter().map(|ns| *ns as f64).sum();
    share(all, values.len() as f64)
}
