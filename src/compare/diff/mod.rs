//! Compares two reports: work that got slower, faster, appeared and vanished, changes of findings,
//! and how certain they are.
//!
//! Times are compared per unit of work: a step, else a range or graph launch that both have equally often,
//! else a kernel that recurs; without any of them call by call. The length of a capture is not compared: two
//! captures of one second always take the same time.

mod changes;
mod findings;
mod gate;
mod host;
mod model;
mod narrative;
mod noise;
mod pair;
mod trend;
mod unit;
mod view;
mod wall;
mod work;

pub use gate::{Decision, gate};
pub use model::{
    Around, Change, Communication, Contradicting, Diff, DiffSide, FamilyChange, FindingChange,
    FindingChanges, Hardware, HostChange, KernelChange, LayerChange, MatchLevel, MatchedShare,
    Median, Noise, NoiseOf, OneSided, PartChange, SCHEMA_VERSION, Sides, SiteChange, TimeUnit,
    UnitChange, UnitSide, WallRange,
};
pub use trend::{
    TREND_SCHEMA, TREND_VERSION, Trend, TrendChange, TrendRow, trend, trend_html, trend_json,
    trend_markdown,
};
pub use view::{SCHEMA, html, json, markdown};

use std::collections::BTreeMap;

use super::welch::{SAME, is_beyond};
use super::{comparison, share, some};
use crate::base::units::percent;
use crate::report::{Report, UnitKind, WorkUnit};
use changes::Changes;
use pair::{Pair, Pairs};
use unit::Common;

/// Share of the compared time below which a single difference is not listed, as for findings.
const FLOOR: f64 = 0.005;
/// Share of the window that steps must fill for its work to count as theirs.
const FILLED: f64 = 0.8;
/// Share of the GPU time without a launch from which a capture counts as starting in the middle of a
/// step.
const CUT: f64 = 0.05;
/// Smallest difference between the changes of the unit of work and of the range around it that is said.
const MUCH: f64 = 0.1;
/// Smallest share of kernel executions that two captures without a common unit of work must have in common,
/// each taken as parts of its whole, to be of one program.
const SAME_MIX: f64 = 0.9;
/// Smallest matched share of the time for which calls are compared.
const SOME: f64 = 0.1;
/// Smallest matched share of the time for which a regression is decided, and for which most of the
/// work counts as changed.
const MOST: f64 = 0.5;

/// `after / before`; 1 where both are 0.
fn ratio(before: f64, after: f64) -> f64 {
    if before == after {
        1.0
    } else {
        share(after, before)
    }
}

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
    let basis = Basis::of(before, after);
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

/// What is compared.
struct Basis<'a> {
    unit: TimeUnit,
    /// The unit of work of both reports; `None` where calls are compared.
    common: Option<Common<'a>>,
    /// Why steps are not compared.
    because: Option<String>,
    /// Factors for times of the whole capture, before and after.
    scale: (f64, f64),
    /// Whether the captures begin and end anywhere in a unit of work.
    is_cut: bool,
    /// Whether kernels without a launch are compared by name, because they are most of the work.
    with_launchless: bool,
    /// Whether work is compared by kernel and grid, because one of the reports names no operator.
    by_kernel: bool,
    gpus_differ: bool,
    /// Whether the GPUs differ, so that ideal times are compared.
    ideals: bool,
}

impl<'a> Basis<'a> {
    fn of(before: &'a Report, after: &'a Report) -> Basis<'a> {
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
        Basis {
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

fn per_step(report: &Report) -> f64 {
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
    basis: &Basis<'_>,
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
    basis: &Basis<'_>,
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
fn communication(basis: &Basis<'_>, before: &Report, after: &Report) -> Option<Communication> {
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
fn noise(basis: &Basis<'_>, wall: bool) -> Result<Noise, String> {
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

/// Parts of a unit of work on one GPU. They make up its wall time: what the window holds of them is taken in
/// proportion.
fn parts(basis: &Basis<'_>, with_idle: bool, before: &Report, after: &Report) -> Vec<PartChange> {
    if basis.unit.is_call() {
        return Vec::new();
    }
    let unit = basis.common.map(|common| common.change());
    let of = |report: &Report, what: &str, scale: f64, side: Option<UnitSide>| {
        let parts = || report.timeline.parts.iter();
        let part = parts().find(|p| p.what == what);
        let ns = part.map_or(0.0, |p| p.ns as f64);
        let busy: i64 = parts().filter(|p| p.what != "idle").map(|p| p.ns).sum();
        match side {
            Some(side) if what == "idle" => (side.wall_ns - side.busy_ns).max(0.0),
            Some(side) if busy > 0 => ns * side.busy_ns / busy as f64,
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

/// Smaller matched share of both sides.
fn least_matched(diff: &Diff) -> f64 {
    let before: f64 = diff.matched.iter().map(|m| m.before_share).sum();
    let after: f64 = diff.matched.iter().map(|m| m.after_share).sum();
    before.min(after)
}

/// The measure that represents the whole: the wall time where it is reliable, else the GPU time.
fn measure(diff: &Diff) -> Option<Change> {
    diff.wall.or(diff.gpu_time)
}

/// Ratio of the measure, per unit of data where sizes changed.
fn normalized(diff: &Diff) -> Option<f64> {
    Some(measure(diff)?.ratio / diff.sizes.unwrap_or(1.0))
}

/// Whether the difference exceeds the noise, as far as it is known.
fn is_beyond_noise(diff: &Diff, ratio: f64) -> bool {
    is_beyond(ratio, diff.noise.map_or(0.0, |n| n.share))
}

/// The range of [`normalized`] without what recording added: one value where that is nothing, or in both.
fn normalized_range(diff: &Diff) -> Option<(f64, f64)> {
    let ratio = normalized(diff)?;
    let of_data = |ratio: f64| ratio / diff.sizes.unwrap_or(1.0);
    Some(match diff.wall_range.filter(|_| diff.wall.is_some()) {
        Some(range) => (of_data(range.ratio_low), of_data(range.ratio_high)),
        None => (ratio, ratio),
    })
}

/// Whether the comparison is one of kernel times although the GPU works for less than half of the time, so that it
/// does not tell which side is faster.
fn kernels_tell_little(diff: &Diff) -> bool {
    let busy = |side: &UnitSide| 1.0 - narrative::idle_share(side);
    let least = match &diff.unit_of_work {
        Some(unit) => busy(&unit.before).min(busy(&unit.after)),
        None => 1.0 - diff.before.idle_share.max(diff.after.idle_share),
    };
    diff.comparable && diff.wall.is_none() && least < MOST
}

fn slower_by(diff: &Diff) -> Option<f64> {
    let (ratio, _) = normalized_range(diff)?;
    (ratio > 1.0 && is_beyond_noise(diff, ratio)).then_some(ratio - 1.0)
}

/// Whether the reports can be compared: by units of work always, by calls only where both have some in
/// common and as much of each.
fn is_comparable(diff: &Diff) -> bool {
    match diff.unit {
        TimeUnit::Step | TimeUnit::Unit => measure(diff).is_some(),
        TimeUnit::Call => {
            diff.gpu_time.is_some() && least_matched(diff) >= SOME && diff.same_mix >= SAME_MIX
        }
    }
}

/// Whether no difference is worth reporting.
fn is_same(diff: &Diff) -> bool {
    let no_work = diff.slower.is_empty()
        && diff.faster.is_empty()
        && diff.appeared.is_empty()
        && diff.vanished.is_empty();
    let f = &diff.findings;
    let no_finding = f.fixed.is_empty() && f.new.is_empty() && f.unclear.is_empty();
    let alike = |c: Option<Change>| c.is_none_or(|c| !is_beyond_noise(diff, c.ratio));
    let tells = diff.unit.is_call() || !kernels_tell_little(diff);
    diff.comparable
        && tells
        && diff.contradicting.is_none()
        && no_work
        && no_finding
        && alike(diff.wall)
        && alike(diff.gpu_time)
        && changed_parts(diff).next().is_none()
        && diff.sizes.is_none()
        && !diff.gpus_differ
}

/// Parts of the step whose share changed beyond noise.
fn changed_parts(diff: &Diff) -> impl Iterator<Item = &PartChange> {
    let all: f64 = diff.parts.iter().map(|p| p.before_ns).sum();
    let floor = all * diff.noise.map_or(SAME, |n| n.share.max(SAME));
    let by = |p: &PartChange| (p.after_ns - p.before_ns).abs();
    diff.parts.iter().filter(move |p| by(p) > floor)
}
