//! Builds a [`Diff`] from two reports.

use std::collections::BTreeMap;

use super::basis::DiffBasis;
use super::changes::Changes;
use super::limits::MUCH;
use super::measures::{is_comparable, is_same, slower_by};
use super::model::{
    Around, Change, Communication, Contradicting, Diff, DiffSide, FindingChanges, MatchLevel,
    MatchedShare, Noise, NoiseOf, PartChange, SCHEMA_VERSION, Sides, UnitChange, UnitSide,
};
use super::pair::{self, Pair, Pairs};
use super::{findings, gate, host, narrative, noise, wall, work};
use crate::compare::comparison;
use crate::compare::welch::SAME;
use crate::report::{Report, UnitKind, WorkUnit, share};

impl Diff {
    /// Removes figures that would mislead because nothing can be compared.
    fn forget(&mut self) {
        self.wall = None;
        self.wall_range = None;
        self.around = None;
        self.contradicting = None;
        self.communication = None;
        self.host.clear();
        self.launch_interval = None;
        self.gpu_time = None;
        self.sizes = None;
        self.hardware = None;
        self.families.clear();
        self.layers.clear();
        self.slower.clear();
        self.faster.clear();
        self.appeared.clear();
        self.vanished.clear();
        self.slower_than_hardware.clear();
        self.kernels.clear();
        self.findings = FindingChanges::default();
    }
}

/// Compares the report of a changed program with the one before the change.
pub fn diff(before: &Report, after: &Report) -> Diff {
    let basis = DiffBasis::of(before, after);
    let works = |report| work::of(report, basis.with_launchless, basis.by_kernel);
    let (old, no_launch_before) = works(before);
    let (new, no_launch_after) = works(after);
    let same_mix = same_mix(&old, &new);
    let pairs = pair::pair(old, new);
    let unit_of_work = basis.common.map(|common| common.change());
    let mut changes = Changes::new(&basis, &pairs);
    let wall::Wall {
        change: wall,
        range: wall_range,
    } = wall::compare(&basis, changes.sizes, before, after);
    let (noise, noise_unknown) = match noise(&basis, wall.is_ok()) {
        Ok(noise) => (Some(noise), None),
        Err(why) => (None, Some(why)),
    };
    changes.tolerate(noise.as_ref());
    let gpu_time = changes.total();
    let mut diff = Diff {
        schema_version: SCHEMA_VERSION,
        before: side(before),
        after: side(after),
        verdict: Vec::new(),
        cautions: Vec::new(),
        unit: basis.unit,
        unit_reason: basis.because.clone(),
        comparable: true,
        no_change: false,
        around: around(&basis, wall.as_ref().ok(), before, after),
        contradicting: contradicting(&basis, wall.as_ref().ok(), before, after),
        parts: parts(&basis, wall.is_ok(), before, after),
        wall: wall.as_ref().ok().copied(),
        wall_range,
        wall_not_compared: wall.err(),
        unit_of_work,
        gpu_time,
        communication_time: changes.communication(),
        communication: communication(&basis, before, after),
        host: host::changes(&basis, before, after),
        launch_interval: host::launch_interval(before, after),
        noise,
        noise_unknown,
        sizes: changes.sizes,
        gpus_differ: basis.gpus_differ,
        hardware: changes.hardware(before, after),
        regression: None,
        regression_unknown: None,
        matched: matched(&pairs, before, after),
        by_kernel_name: basis.unit.is_call() && changes.mostly_kernels(),
        without_arguments: changes.without_arguments(),
        same_mix,
        without_launch: Sides {
            before_ns: no_launch_before,
            after_ns: no_launch_after,
        },
        families: changes.families(),
        layers: changes.layers(),
        slower: changes.slower(),
        faster: changes.faster(),
        appeared: changes.appeared(),
        vanished: changes.vanished(),
        slower_than_hardware: changes.slower_than_hardware(),
        kernels: changes.kernels(),
        findings: findings::compare(before, after, basis.by_kernel),
    };
    diff.comparable = is_comparable(&diff);
    if !diff.comparable {
        diff.forget();
    }
    diff.no_change = is_same(&diff);
    diff.regression_unknown = gate::unknown(&diff).or_else(|| gate::cut(before, after));
    diff.regression = slower_by(&diff).filter(|_| diff.regression_unknown.is_none());
    diff.cautions = narrative::cautions(&diff, before, after, basis.by_kernel);
    diff.verdict = narrative::opening(&diff);
    diff
}

fn side(report: &Report) -> DiffSide {
    let s = &report.summary;
    DiffSide {
        title: report.title.clone(),
        file: report.file.clone(),
        gpu: s.gpu.clone(),
        devices: s.devices,
        steps: s.steps,
        program: report.method.program.clone(),
        window_ns: s.window_ns as f64,
        busy_ns: s.busy_ns as f64,
        idle_share: match s.device_window_ns {
            ..=0 => 0.0,
            _ => 1.0 - s.busy_share,
        },
        kernel_time_ns: gpu_time(report),
        kernels: s.kernels,
    }
}

/// The range around all of the work, where it changed otherwise than the unit of work.
fn around(
    basis: &DiffBasis<'_>,
    wall: Option<&Change>,
    before: &Report,
    after: &Report,
) -> Option<Around> {
    let name = before.summary.window_range.as_ref()?;
    let length = |report: &Report| {
        let range = report
            .units
            .iter()
            .find(|unit| unit.kind == UnitKind::Range && unit.name == *name && unit.count == 1)?;
        Some(*range.wall_ns.first()? as f64)
    };
    let change = Change::new(length(before)?, length(after)?);
    let counts = |unit: &UnitChange| unit.before.count == unit.after.count;
    let alike = basis.common.is_some_and(|common| counts(&common.change()));
    let differs = (change.ratio - wall?.ratio).abs() > MUCH;
    (alike && differs).then(|| Around {
        name: name.clone(),
        wall: change,
    })
}

/// The longest range around all of the work, where it changed in the other direction than the unit of work.
fn contradicting(
    basis: &DiffBasis<'_>,
    wall: Option<&Change>,
    before: &Report,
    after: &Report,
) -> Option<Contradicting> {
    let unit = basis.common?.change();
    let count = unit.before.count as f64;
    if unit.before.count != unit.after.count {
        return None;
    }
    let length = |range: &WorkUnit| {
        let once = range.kind == UnitKind::Range && range.count == 1;
        let ns = range.wall_ns.first().filter(|_| once)?;
        (range.held_share > 1.0 - SAME).then_some(*ns as f64)
    };
    let both = before.units.iter().filter_map(|range| {
        let mut others = after.units.iter();
        let other = others.find(|o| o.kind == range.kind && o.name == range.name)?;
        Some((&range.name, length(range)?, length(other)?))
    });
    let (name, old, new) = both.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (step, range) = (wall?.ratio, Change::new(old, new));
    let opposite = (step - 1.0) * (range.ratio - 1.0) < 0.0;
    let much = (range.ratio - step).abs() > MUCH
        && (range.ratio - 1.0).abs().min((step - 1.0).abs()) > SAME;
    (opposite && much).then(|| Contradicting {
        name: name.clone(),
        wall: range,
        outside: Change::new(
            (old - count * unit.before.wall_ns).max(0.0),
            (new - count * unit.after.wall_ns).max(0.0),
        ),
    })
}

/// Transfer and waiting in collectives per unit of work, mean of the ranks, where both reports hold several
/// ranks and their collectives could be matched.
fn communication(basis: &DiffBasis<'_>, before: &Report, after: &Report) -> Option<Communication> {
    if basis.unit.is_call() {
        return None;
    }
    let (b, a) = (comparison::waits(before)?, comparison::waits(after)?);
    // Times of one rank; the scale is for sums over all GPUs.
    let (old, new) = (
        basis.scale.0 * before.summary.devices.max(1) as f64,
        basis.scale.1 * after.summary.devices.max(1) as f64,
    );
    Some(Communication {
        transfer: Change::new(b.transfer_ns * old, a.transfer_ns * new),
        waiting: Change::new(b.mean_ns * old, a.mean_ns * new),
    })
}

/// The noise of the measure that represents the whole.
fn noise(basis: &DiffBasis<'_>, wall: bool) -> Result<Noise, String> {
    let of = if wall {
        NoiseOf::Wall
    } else {
        NoiseOf::GpuTime
    };
    match basis.common {
        Some(common) => noise::of(of, &common),
        None if basis.unit.is_call() => {
            Err("single calls are compared, not units of work".to_owned())
        }
        None => Err("a report of an older version has no single steps".to_owned()),
    }
}

/// Whether the kernels of the window ran one after the other, so that the sum of their times is the time in which
/// one ran.
fn in_turn(report: &Report) -> bool {
    /// Share of the time that may overlap.
    const LITTLE: f64 = 0.005;
    let s = &report.summary;
    (gpu_time(report) - s.kernel_ns as f64).abs() <= LITTLE * s.kernel_ns as f64
}

/// Parts of a unit of work on one GPU, which make up its wall time. Where kernels overlap, what the window holds of
/// them is taken in proportion.
fn parts(
    basis: &DiffBasis<'_>,
    with_idle: bool,
    before: &Report,
    after: &Report,
) -> Vec<PartChange> {
    if basis.unit.is_call() {
        return Vec::new();
    }
    let unit = basis.common.map(|common| common.change());
    let of = |report: &Report, what: &str, scale: f64, side: Option<UnitSide>| {
        let in_window = |what: &str| {
            let part = report.timeline.parts.iter().find(|p| p.what == what);
            part.map_or(0.0, |p| p.ns as f64)
        };
        let ns = in_window(what);
        let others = in_window("copy") + in_window("set");
        let busy = in_window("compute") + in_window("communication") + others;
        match side {
            Some(side) if what == "idle" => (side.wall_ns - side.busy_ns).max(0.0),
            Some(side) if in_turn(report) && side.kernel_ns <= side.busy_ns => match what {
                "compute" => side.kernel_ns - side.comm_ns,
                "communication" => side.comm_ns,
                _ => share(ns, others) * (side.busy_ns - side.kernel_ns),
            },
            Some(side) if busy > 0.0 => ns * side.busy_ns / busy,
            _ => ns * scale,
        }
    };
    ["compute", "communication", "copy", "set", "idle"]
        .into_iter()
        .filter(|what| with_idle || *what != "idle")
        .map(|what| PartChange {
            what: what.to_owned(),
            before_ns: of(before, what, basis.scale.0, unit.as_ref().map(|u| u.before)),
            after_ns: of(after, what, basis.scale.1, unit.as_ref().map(|u| u.after)),
        })
        .filter(|p| p.before_ns > 0.0 || p.after_ns > 0.0)
        .collect()
}

/// Time of kernels and of whole-graph records, of which nothing is known that could be matched.
fn gpu_time(report: &Report) -> f64 {
    let s = &report.summary;
    s.kernel_time_ns.saturating_add(s.graph_ns) as f64
}

fn matched(pairs: &Pairs<'_>, before: &Report, after: &Report) -> Vec<MatchedShare> {
    let mut levels: BTreeMap<MatchLevel, (f64, f64)> = BTreeMap::new();
    for Pair {
        level,
        before,
        after,
    } in &pairs.pairs
    {
        let sums = levels.entry(*level).or_default();
        sums.0 += before.time_ns;
        sums.1 += after.time_ns;
    }
    let row = |(level, (b, a))| MatchedShare {
        level,
        before_share: share(b, gpu_time(before)),
        after_share: share(a, gpu_time(after)),
    };
    levels.into_iter().map(row).collect()
}

/// Share of the kernel executions that both have, each taken as parts of its whole: 1 for two captures of
/// the same program of whatever length.
fn same_mix(before: &[work::Work<'_>], after: &[work::Work<'_>]) -> f64 {
    let mut kinds: BTreeMap<(&str, &str), (f64, f64)> = BTreeMap::new();
    for work in before {
        let kind = (work.what.name(), work.arguments.exact.as_str());
        kinds.entry(kind).or_default().0 += work.kernels;
    }
    for work in after {
        let kind = (work.what.name(), work.arguments.exact.as_str());
        kinds.entry(kind).or_default().1 += work.kernels;
    }
    let sums = kinds.values();
    let all = sums.fold((0.0, 0.0), |(b, a), kind| (b + kind.0, a + kind.1));
    let common = |kind: &(f64, f64)| share(kind.0, all.0).min(share(kind.1, all.1));
    kinds.values().map(common).sum::<f64>().min(1.0)
}
