//! Rows of a comparison from matched work: times by step or by call, and the times expected from the
//! work and the hardware.

use indexmap::IndexMap;

use super::basis::DiffBasis;
use super::limits::{FLOOR, MOST, ratio};
use super::model::{
    Change, FamilyChange, Hardware, KernelChange, LayerChange, MatchLevel, Noise, OneSided,
    SiteChange, TimeUnit, UnitSide,
};
use super::pair::{Pair, Pairs};
use super::work::Work;
use crate::base::units::{average, times};
use crate::compare::welch::SAME;
use crate::report::{GpuUsed, Report, share};

/// Most rows per list.
const MAX_ROWS: usize = 200;
/// Largest difference from a whole number of calls per unit that comes from where the capture begins and ends.
const CUT_CALLS: f64 = 0.1;
/// Relative difference from which two counts per call or per step differ.
const SAME_COUNT: f64 = 0.01;

/// The matched work with its times.
pub(super) struct Changes<'p, 'a> {
    basis: &'p DiffBasis<'p>,
    pairs: &'p Pairs<'a>,
    rows: Vec<Row<'p, 'a>>,
    /// Factor by which sizes changed, where it is the same for most work.
    pub(super) sizes: Option<f64>,
    /// Smallest difference of a row that is reported.
    floor_ns: f64,
    /// Ratios within this distance of 1 count as 1.
    tolerance: f64,
}

/// A pair of works with its times in the unit.
struct Row<'p, 'a> {
    pair: &'p Pair<'a>,
    before_ns: f64,
    after_ns: f64,
    /// Expected `after_ns / before_ns`.
    expected: Option<f64>,
}

impl Row<'_, '_> {
    fn ratio(&self) -> f64 {
        ratio(self.before_ns, self.after_ns)
    }
}

impl<'p, 'a> Changes<'p, 'a> {
    pub(super) fn new(basis: &'p DiffBasis<'p>, pairs: &'p Pairs<'a>) -> Self {
        let rows: Vec<Row<'p, 'a>> = pairs.pairs.iter().map(|p| row(basis, p)).collect();
        let all: f64 = rows.iter().map(|r| r.before_ns).sum();
        let resized = rows.iter().filter(|r| r.pair.level == MatchLevel::Sizes);
        let resized: f64 = resized.map(|r| r.before_ns).sum();
        let mut changes = Changes {
            basis,
            pairs,
            rows,
            sizes: pairs.factor.filter(|_| share(resized, all) > MOST),
            floor_ns: 0.0,
            tolerance: SAME,
        };
        let (before, after) = changes.sums();
        // With the whole-graph records of the unit, which have no rows.
        let unit = (changes.total()).map_or(0.0, |unit| unit.before_ns.max(unit.after_ns));
        changes.floor_ns = FLOOR * before.max(after).max(unit);
        changes
    }

    /// Takes ratios within the noise for 1.
    pub(super) fn tolerate(&mut self, noise: Option<&Noise>) {
        self.tolerance = noise.map_or(SAME, |n| n.share.max(SAME));
    }

    /// All time of each side in the unit.
    fn sums(&self) -> (f64, f64) {
        let alone = |works: &[Work<'_>], scale: f64| -> f64 {
            works.iter().map(|w| w.time_ns * scale).sum()
        };
        let before: f64 = self.rows.iter().map(|r| r.before_ns).sum();
        let after: f64 = self.rows.iter().map(|r| r.after_ns).sum();
        (
            before + alone(&self.pairs.vanished, self.basis.scale.0),
            after + alone(&self.pairs.appeared, self.basis.scale.1),
        )
    }

    /// The GPU time that represents the whole: of a step, or of the calls that are the same work on
    /// both sides; `None` where there are none.
    pub(super) fn total(&self) -> Option<Change> {
        if let Some(common) = &self.basis.common {
            let unit = common.change();
            let of = |side: &UnitSide| side.kernel_ns - side.comm_ns;
            let (before, after) = (of(&unit.before), of(&unit.after));
            return (before > 0.0).then(|| Change::new(before, after));
        }
        if !self.basis.unit.is_call() {
            let (before, after) = self.sums();
            let sent = self.communication().unwrap_or(Change::new(0.0, 0.0));
            let (before, after) = (before - sent.before_ns, after - sent.after_ns);
            return (before > 0.0).then(|| Change::new(before, after));
        }
        let of = |is: fn(&Row<'_, '_>) -> bool| -> (f64, f64) {
            let rows = self.rows.iter().filter(|r| is(r));
            rows.fold((0.0, 0.0), |(b, a), r| (b + r.before_ns, a + r.after_ns))
        };
        let calls = of(|r| {
            !matches!(r.pair.level, MatchLevel::Kernel | MatchLevel::OtherShapes)
                && !r.pair.before.is_communication()
        });
        let kernels =
            of(|r| r.pair.level == MatchLevel::Kernel && !r.pair.before.is_communication());
        // Kernels of one name do work of many sizes, so they count only where there are no operators.
        let (before, after) = match kernels.0 > calls.0 {
            true => (calls.0 + kernels.0, calls.1 + kernels.1),
            false => calls,
        };
        (before > 0.0).then(|| Change::new(before, after))
    }

    /// Time of communication on each side, which may be waiting for other ranks.
    pub(super) fn communication(&self) -> Option<Change> {
        let alone = |works: &[Work<'_>], scale: f64| -> f64 {
            let works = works.iter().filter(|w| w.is_communication());
            works.map(|w| w.time_ns * scale).sum()
        };
        let rows = self
            .rows
            .iter()
            .filter(|r| r.pair.before.is_communication());
        let (before, after) = rows.fold((0.0, 0.0), |(b, a), r| (b + r.before_ns, a + r.after_ns));
        let before = before + alone(&self.pairs.vanished, self.basis.scale.0);
        let after = after + alone(&self.pairs.appeared, self.basis.scale.1);
        (before > 0.0 || after > 0.0).then(|| Change::new(before, after))
    }

    /// Whether kernels matched by name take more time than operators.
    pub(super) fn mostly_kernels(&self) -> bool {
        let of = |kernels: bool| -> f64 {
            let rows = self.rows.iter();
            let rows = rows.filter(|r| (r.pair.level == MatchLevel::Kernel) == kernels);
            rows.map(|r| r.before_ns).sum()
        };
        of(true) > of(false)
    }

    pub(super) fn without_arguments(&self) -> f64 {
        let of = |blank: bool| -> f64 {
            let rows = self
                .rows
                .iter()
                .filter(|r| r.pair.before.what.is_operator());
            let unsaid = |r: &Row<'_, '_>| {
                let of = |work: &Work<'_>| work.clustered || work.shown.is_empty();
                of(&r.pair.before) && of(&r.pair.after)
            };
            let rows = rows.filter(|r| !blank || unsaid(r));
            rows.map(|r| r.before_ns).sum()
        };
        share(of(true), of(false))
    }

    /// Difference of a row for the lists: where all sizes changed, beyond the growth of the work.
    /// `None` where it is not known.
    fn difference(&self, row: &Row<'_, '_>) -> Option<f64> {
        // Means over calls of different sizes cannot be compared.
        if self.basis.unit.is_call() && row.pair.level == MatchLevel::OtherShapes {
            return None;
        }
        let base = match self.sizes {
            Some(_) if !self.basis.gpus_differ => row.before_ns * row.expected?,
            _ => row.before_ns,
        };
        // Kernels without a duration have no ratio.
        if base <= 0.0 || row.after_ns <= 0.0 {
            return None;
        }
        let differs = (ratio(base, row.after_ns) - 1.0).abs() > self.tolerance;
        let by = row.after_ns - base;
        (differs && by.abs() >= self.floor_ns).then_some(by)
    }

    pub(super) fn slower(&self) -> Vec<SiteChange> {
        self.list(|row| self.difference(row).filter(|by| *by > 0.0))
    }

    pub(super) fn faster(&self) -> Vec<SiteChange> {
        self.list(|row| self.difference(row).filter(|by| *by < 0.0).map(|by| -by))
    }

    pub(super) fn slower_than_hardware(&self) -> Vec<SiteChange> {
        if !self.basis.gpus_differ {
            return Vec::new();
        }
        self.list(|row| {
            let base = row.before_ns * row.expected?;
            let by = row.after_ns - base;
            (by >= self.floor_ns && row.after_ns > base * (1.0 + self.tolerance)).then_some(by)
        })
    }

    /// The rows for which `size` is `Some`, largest first.
    fn list(&self, size: impl Fn(&Row<'p, 'a>) -> Option<f64>) -> Vec<SiteChange> {
        let mut rows: Vec<(f64, &Row<'p, 'a>)> = self
            .rows
            .iter()
            .filter_map(|row| Some((size(row)?, row)))
            .collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        rows.truncate(MAX_ROWS);
        rows.into_iter().map(|(_, row)| self.site(row)).collect()
    }

    fn site(&self, row: &Row<'p, 'a>) -> SiteChange {
        let (b, a) = (&row.pair.before, &row.pair.after);
        let (place, place_after) = (b.place(), a.place());
        let (calls_before, calls_after) = self.calls(row.pair);
        SiteChange {
            level: row.pair.level,
            // Without a layer after, the place is only less precise.
            place_after: (place_after != place && a.pattern.is_some()).then_some(place_after),
            place,
            arguments: b.shown.to_string(),
            arguments_after: (a.arguments.exact != b.arguments.exact && a.shown != b.shown)
                .then(|| a.shown.to_string()),
            median_before: b.median,
            median_after: a.median,
            calls_before,
            calls_after,
            before_ns: row.before_ns,
            after_ns: row.after_ns,
            ratio: row.ratio(),
            expected_ratio: row.expected,
            bound: b.bound.map(str::to_owned),
            communication: b.is_communication(),
            notes: self.notes(row.pair),
        }
    }

    /// Number of calls per step; of the whole capture where calls are compared.
    fn calls(&self, pair: &Pair<'_>) -> (f64, f64) {
        let scale = self.basis.scale;
        (pair.before.calls * scale.0, pair.after.calls * scale.1)
    }

    /// Other differences of the same work.
    fn notes(&self, pair: &Pair<'_>) -> Vec<String> {
        let (b, a) = (&pair.before, &pair.after);
        let mut notes = Vec::new();
        if b.is_communication() {
            notes.push("with waiting for other ranks".to_owned());
        }
        if let (Some(before), Some(after)) = (b.dtype, a.dtype)
            && before != after
        {
            notes.push(format!("{after} instead of {before}"));
        }
        match (b.tensor_core, a.tensor_core) {
            (Some(false), Some(true)) => notes.push("Tensor Cores now".to_owned()),
            (Some(true), Some(false)) => notes.push("no Tensor Cores any more".to_owned()),
            _ => {}
        }
        let per_call = |w: &Work<'_>| share(w.kernels, w.calls);
        let (kernels_before, kernels_after) = (per_call(b), per_call(a));
        let is_other = |x: f64, y: f64| (ratio(x, y) - 1.0).abs() > SAME_COUNT;
        if b.what.is_operator() && is_other(kernels_before, kernels_after) {
            notes.push(format!(
                "{} kernels per call instead of {}",
                average(kernels_after),
                average(kernels_before)
            ));
        }
        let (before, after) = self.calls(pair);
        if !self.basis.unit.is_call() && is_other(before, after) {
            notes.push(format!("called {} as often", times(ratio(before, after))));
        }
        if b.kernel != a.kernel && b.what.is_operator() {
            notes.push("another kernel".to_owned());
        }
        notes
    }

    pub(super) fn appeared(&self) -> Vec<OneSided> {
        self.alone(&self.pairs.appeared, self.basis.scale.1, self.sums().1)
    }

    pub(super) fn vanished(&self) -> Vec<OneSided> {
        self.alone(&self.pairs.vanished, self.basis.scale.0, self.sums().0)
    }

    fn alone(&self, works: &[Work<'_>], scale: f64, all: f64) -> Vec<OneSided> {
        let mut rows: Vec<OneSided> = works
            .iter()
            .map(|work| OneSided {
                place: work.place(),
                arguments: work.shown.to_string(),
                calls: work.calls * scale,
                time_ns: work.time_ns * scale,
                share: share(work.time_ns * scale, all),
            })
            .filter(|row| row.time_ns >= self.floor_ns)
            .collect();
        rows.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
        rows.truncate(MAX_ROWS);
        rows
    }

    pub(super) fn families(&self) -> Vec<FamilyChange> {
        /// Before, after; expected and the same two of the part it is known for.
        #[derive(Default)]
        struct Sums {
            before: f64,
            after: f64,
            known_before: f64,
            known_after: f64,
            expected: f64,
        }
        let mut families: IndexMap<&str, Sums> = IndexMap::new();
        for row in &self.rows {
            let sums = families.entry(row.pair.before.family).or_default();
            sums.before += row.before_ns;
            sums.after += row.after_ns;
            if let Some(expected) = row.expected {
                sums.known_before += row.before_ns;
                sums.known_after += row.after_ns;
                sums.expected += row.before_ns * expected;
            }
        }
        let known = |s: &Sums| s.known_before > 0.0;
        let mut rows: Vec<FamilyChange> = families
            .into_iter()
            .map(|(family, s)| FamilyChange {
                family: family.to_owned(),
                before_ns: s.before,
                after_ns: s.after,
                ratio: ratio(s.before, s.after),
                expected_ratio: known(&s).then(|| ratio(s.known_before, s.expected)),
                cost_known_ratio: known(&s).then(|| ratio(s.known_before, s.known_after)),
            })
            .collect();
        let most = |f: &FamilyChange| f.before_ns.max(f.after_ns);
        rows.sort_by(|a, b| most(b).total_cmp(&most(a)));
        rows.retain(|f| most(f) >= self.floor_ns && f.before_ns > 0.0);
        rows
    }

    /// Time by layer. Work that moved counts in the old and in the new layer.
    pub(super) fn layers(&self) -> Vec<LayerChange> {
        let both_name_layers = {
            let pairs = || self.pairs.pairs.iter();
            let alone = |works: &[Work<'_>]| works.iter().any(|w| w.pattern.is_some());
            (pairs().any(|p| p.before.pattern.is_some()) || alone(&self.pairs.vanished))
                && (pairs().any(|p| p.after.pattern.is_some()) || alone(&self.pairs.appeared))
        };
        if self.sizes.is_some() || !both_name_layers {
            return Vec::new();
        }
        let renamed: IndexMap<&str, &str> = self
            .rows
            .iter()
            .filter(|r| r.pair.level == MatchLevel::LayerRenamed)
            .filter_map(|r| Some((r.pair.after.pattern?, r.pair.before.pattern?)))
            .collect();
        let old_name = |layer: &'a str| renamed.get(layer).copied().unwrap_or(layer);
        let mut layers: IndexMap<&str, (f64, f64)> = IndexMap::new();
        let mut add = |layer: Option<&'a str>, before: f64, after: f64| {
            if let Some(layer) = layer {
                let sums = layers.entry(layer).or_default();
                sums.0 += before;
                sums.1 += after;
            }
        };
        for row in &self.rows {
            add(row.pair.before.pattern, row.before_ns, 0.0);
            add(row.pair.after.pattern.map(old_name), 0.0, row.after_ns);
        }
        for work in &self.pairs.vanished {
            add(work.pattern, work.time_ns * self.basis.scale.0, 0.0);
        }
        for work in &self.pairs.appeared {
            let layer = work.pattern.map(old_name);
            add(layer, 0.0, work.time_ns * self.basis.scale.1);
        }
        let new_names: IndexMap<&str, &str> =
            renamed.iter().map(|(new, old)| (*old, *new)).collect();
        let mut rows: Vec<LayerChange> = layers
            .into_iter()
            .map(|(name, (before_ns, after_ns))| LayerChange {
                name: name.to_owned(),
                renamed: new_names.get(name).map(|new| (*new).to_owned()),
                before_ns,
                after_ns,
            })
            .filter(|l| {
                let differs = (ratio(l.before_ns, l.after_ns) - 1.0).abs() > self.tolerance;
                differs && (l.after_ns - l.before_ns).abs() >= self.floor_ns
            })
            .collect();
        let by = |l: &LayerChange| (l.after_ns - l.before_ns).abs();
        rows.sort_by(|a, b| by(b).total_cmp(&by(a)));
        rows.truncate(MAX_ROWS);
        rows
    }

    pub(super) fn kernels(&self) -> Vec<KernelChange> {
        let mut rows: IndexMap<(&str, &str), KernelChange> = IndexMap::new();
        let mut largest: Vec<&Row<'p, 'a>> = self.rows.iter().collect();
        largest.sort_by(|a, b| {
            b.before_ns
                .max(b.after_ns)
                .total_cmp(&a.before_ns.max(a.after_ns))
        });
        for row in largest {
            let (Some(b), Some(a)) = (row.pair.before.kernel, row.pair.after.kernel) else {
                continue;
            };
            if b == a || !row.pair.before.what.is_operator() {
                continue;
            }
            let change = rows.entry((b, a)).or_insert_with(|| KernelChange {
                place: row.pair.before.place(),
                before: b.to_owned(),
                after: a.to_owned(),
                places: 0,
                before_ns: 0.0,
                after_ns: 0.0,
            });
            change.places += 1;
            change.before_ns += row.before_ns;
            change.after_ns += row.after_ns;
        }
        let mut rows: Vec<KernelChange> = rows.into_values().collect();
        let most = |k: &KernelChange| k.before_ns.max(k.after_ns);
        rows.retain(|k| most(k) >= self.floor_ns);
        rows.sort_by(|a, b| most(b).total_cmp(&most(a)));
        rows.truncate(MAX_ROWS);
        rows
    }

    pub(super) fn hardware(&self, before: &Report, after: &Report) -> Option<Hardware> {
        if !self.basis.gpus_differ || !self.basis.ideals {
            return None;
        }
        let gpus = before.method.gpu.as_ref().zip(after.method.gpu.as_ref())?;
        let peaks = |part: fn(&GpuUsed) -> Option<f64>| Some(ratio(part(gpus.0)?, part(gpus.1)?));
        let cost_known = || self.rows.iter().filter_map(|r| Some((r, r.expected?)));
        let was: f64 = cost_known().map(|(r, _)| r.before_ns).sum();
        let is: f64 = cost_known().map(|(r, _)| r.after_ns).sum();
        let should: f64 = cost_known()
            .map(|(r, expected)| r.before_ns * expected)
            .sum();
        let all: f64 = self.rows.iter().map(|r| r.before_ns).sum();
        Some(Hardware {
            before: gpus.0.name.clone(),
            after: gpus.1.name.clone(),
            bandwidth: ratio(gpus.0.bandwidth_bytes_per_s, gpus.1.bandwidth_bytes_per_s),
            tensor_16bit: peaks(|g| g.tensor_16bit_flops_per_s),
            fp32: peaks(|g| g.fp32_flops_per_s),
            expected_ratio: (was > 0.0).then(|| ratio(was, should)),
            measured_ratio: (was > 0.0).then(|| ratio(was, is)),
            share: share(was, all),
        })
    }
}

fn row<'p, 'a>(basis: &DiffBasis<'_>, pair: &'p Pair<'a>) -> Row<'p, 'a> {
    let (b, a) = (&pair.before, &pair.after);
    let of_unit = |work: &Work<'_>, scale: f64| {
        let calls = work.calls * scale;
        // A window that begins and ends inside a unit holds a part of a call more or less.
        let whole = match basis.is_cut && (calls - calls.round()).abs() <= CUT_CALLS * calls {
            true => share(calls.round(), calls),
            false => 1.0,
        };
        work.time_ns * scale * whole
    };
    let (before_ns, after_ns) = match basis.unit {
        TimeUnit::Step | TimeUnit::Unit => (of_unit(b, basis.scale.0), of_unit(a, basis.scale.1)),
        // As many calls as the first capture has, with the time per call of the second.
        TimeUnit::Call => (b.time_ns, share(a.time_ns, a.calls) * b.calls),
    };
    Row {
        pair,
        before_ns,
        after_ns,
        expected: expected(basis, pair),
    }
}

/// Expected time after over time before of the same work: 1 on the same GPU, else the ratio of the
/// ideal times per call.
fn expected(basis: &DiffBasis<'_>, pair: &Pair<'_>) -> Option<f64> {
    let same_work = !matches!(pair.level, MatchLevel::Sizes | MatchLevel::OtherShapes);
    if same_work && !basis.gpus_differ {
        return Some(1.0);
    }
    if !basis.ideals || pair.level == MatchLevel::Kernel {
        return None;
    }
    let ideal = |w: &Work<'_>| Some(w.best_ideal_ns? / w.calls).filter(|ns| ns.is_finite());
    let (before, after) = (ideal(&pair.before)?, ideal(&pair.after)?);
    (before > 0.0).then(|| after / before)
}
