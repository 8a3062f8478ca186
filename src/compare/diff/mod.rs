//! Compares two reports: work that got slower, faster, appeared and vanished, changes of findings,
//! and how certain they are.
//!
//! Times are compared per step where both mark steps, else call by call. The length of a capture is
//! not compared: two captures of one second always take the same time.

mod changes;
mod findings;
mod model;
mod narrative;
mod noise;
mod pair;
mod view;
mod work;

pub use model::{
    Change, Diff, DiffSide, FamilyChange, FindingChange, FindingChanges, Hardware, KernelChange,
    LayerChange, MatchLevel, MatchedShare, Noise, NoiseOf, OneSided, PartChange, SCHEMA_VERSION,
    Sides, SiteChange, TimeUnit,
};
pub use view::{SCHEMA, html, json, markdown};

use super::{share, some};
use crate::base::units::percent;
use crate::report::{Report, Summary};
use changes::Changes;
use pair::{Pair, Pairs};

/// Relative differences below this count as none, as for the ranks of a job.
const SAME: f64 = 0.02;
/// Share of the compared time below which a single difference is not listed, as for findings.
const FLOOR: f64 = 0.005;
/// Share of the window that steps must fill for its work to count as theirs.
const FILLED: f64 = 0.8;
/// Share of the GPU time without a launch from which a capture counts as starting in the middle of a
/// step.
const CUT: f64 = 0.05;
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
        self.step = None;
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
    let (old, no_launch_before) = work::of(before, basis.with_launchless);
    let (new, no_launch_after) = work::of(after, basis.with_launchless);
    let pairs = pair::pair(old, new);
    let step_not_compared = step_not_compared(&before.summary, &after.summary);
    let (noise, noise_unknown) = match noise(&basis, step_not_compared.is_none(), before, after) {
        Ok(noise) => (Some(noise), None),
        Err(why) => (None, Some(why)),
    };
    let changes = Changes::new(&basis, &pairs, noise.as_ref());
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
        step: (before.summary.step_ns.zip(after.summary.step_ns))
            .filter(|(before, _)| step_not_compared.is_none() && *before > 0.0)
            .map(|(before, after)| Change::new(before, after)),
        step_not_compared,
        gpu_time,
        noise,
        noise_unknown,
        sizes: changes.sizes,
        gpus_differ: basis.gpus_differ,
        hardware: changes.hardware(before, after),
        regression: None,
        regression_unknown: None,
        parts: parts(&basis, before, after),
        matched: matched(&pairs, before, after),
        by_kernel_name: basis.unit == TimeUnit::Call && changes.mostly_kernels(),
        without_arguments: changes.without_arguments(),
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
        findings: findings::compare(before, after),
    };
    diff.comparable = is_comparable(&diff);
    if !diff.comparable {
        diff.forget();
    }
    diff.no_change = is_same(&diff);
    diff.regression_unknown = regression_unknown(&diff);
    diff.regression = slower_by(&diff).filter(|_| diff.regression_unknown.is_none());
    diff.cautions = narrative::cautions(&diff, before, after);
    diff.verdict = narrative::verdict(&diff);
    diff
}

/// The share by which `after` is slower than `before`, for `--fail-on regression=3%`: of the step
/// where its length can be compared, else of the GPU time of a step or of the same calls; per unit of
/// data where the sizes changed. `None` when it is not slower, when the difference is within the
/// noise, or when it is not known ([`Diff::regression_unknown`] says why).
pub fn regression(diff: &Diff) -> Option<f64> {
    diff.regression
}

/// What is compared.
struct Basis {
    unit: TimeUnit,
    because: Option<String>,
    /// Factors for times of the whole capture, before and after.
    scale: (f64, f64),
    /// Whether kernels without a launch are compared by name, because they are most of the work.
    with_launchless: bool,
    gpus_differ: bool,
    /// Whether the GPUs differ, so that ideal times are compared.
    ideals: bool,
}

impl Basis {
    fn of(before: &Report, after: &Report) -> Basis {
        let because = not_by_step(before, "the first profile")
            .or_else(|| not_by_step(after, "the second profile"));
        let (unit, scale) = match because {
            None => (TimeUnit::Step, (per_step(before), per_step(after))),
            Some(_) => (TimeUnit::Call, (1.0, 1.0)),
        };
        let gpus_differ = gpus_differ(before, after);
        let gpus = before.method.gpu.as_ref().zip(after.method.gpu.as_ref());
        Basis {
            unit,
            because,
            scale,
            with_launchless: work::launchless(before) > MOST || work::launchless(after) > MOST,
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
        return Some(format!("{name} marks no numbered steps"));
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
        kernel_time_ns: s.kernel_time_ns as f64,
    }
}

fn step_not_compared(before: &Summary, after: &Summary) -> Option<String> {
    if before.step_ns.is_none() || after.step_ns.is_none() {
        return Some("not both mark numbered steps".to_owned());
    }
    let untrusted = before
        .idle_unreliable
        .as_ref()
        .or(after.idle_unreliable.as_ref());
    untrusted.map(|why| why.trim().trim_end_matches('.').to_owned())
}

/// The noise of the measure that represents the whole.
fn noise(basis: &Basis, steps: bool, before: &Report, after: &Report) -> Result<Noise, String> {
    match basis.unit {
        _ if steps => noise::of(NoiseOf::Step, before, after),
        TimeUnit::Step => noise::of(NoiseOf::GpuTime, before, after),
        TimeUnit::Call => Err("single calls are compared, not steps".to_owned()),
    }
}

/// Parts of a step on one GPU, with idle time only where it is reliable.
fn parts(basis: &Basis, before: &Report, after: &Report) -> Vec<PartChange> {
    if basis.unit != TimeUnit::Step {
        return Vec::new();
    }
    let untrusted = [before, after]
        .iter()
        .any(|r| r.summary.idle_unreliable.is_some());
    let of = |report: &Report, what: &str, scale: f64| {
        let part = report.timeline.parts.iter().find(|p| p.what == what);
        part.map_or(0.0, |p| p.ns as f64 * scale)
    };
    ["compute", "communication", "copy", "set", "idle"]
        .into_iter()
        .filter(|what| !(untrusted && *what == "idle"))
        .map(|what| PartChange {
            what: what.to_owned(),
            before_ns: of(before, what, basis.scale.0),
            after_ns: of(after, what, basis.scale.1),
        })
        .filter(|p| p.before_ns > 0.0 || p.after_ns > 0.0)
        .collect()
}

fn matched(pairs: &Pairs<'_>, before: &Report, after: &Report) -> Vec<MatchedShare> {
    let mut levels: std::collections::BTreeMap<MatchLevel, (f64, f64)> =
        std::collections::BTreeMap::new();
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
        before_share: share(b, before.summary.kernel_time_ns as f64),
        after_share: share(a, after.summary.kernel_time_ns as f64),
    };
    levels.into_iter().map(row).collect()
}

/// Smaller matched share of both sides.
fn least_matched(diff: &Diff) -> f64 {
    let before: f64 = diff.matched.iter().map(|m| m.before_share).sum();
    let after: f64 = diff.matched.iter().map(|m| m.after_share).sum();
    before.min(after)
}

/// The measure that represents the whole: the step where it is reliable, else the GPU time.
fn measure(diff: &Diff) -> Option<Change> {
    diff.step.or(diff.gpu_time)
}

/// Ratio of the measure, per unit of data where sizes changed.
fn normalised(diff: &Diff) -> Option<f64> {
    Some(measure(diff)?.ratio / diff.sizes.unwrap_or(1.0))
}

/// Whether the difference exceeds the noise, as far as it is known.
fn is_beyond_noise(diff: &Diff, ratio: f64) -> bool {
    let noise = diff.noise.map_or(0.0, |n| n.share);
    (ratio - 1.0).abs() > noise.max(SAME)
}

fn slower_by(diff: &Diff) -> Option<f64> {
    let ratio = normalised(diff)?;
    (ratio > 1.0 && is_beyond_noise(diff, ratio)).then_some(ratio - 1.0)
}

/// Whether the reports can be compared: by steps always, by calls only where both have some in
/// common.
fn is_comparable(diff: &Diff) -> bool {
    match diff.unit {
        TimeUnit::Step => measure(diff).is_some(),
        TimeUnit::Call => diff.gpu_time.is_some() && least_matched(diff) >= SOME,
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
    diff.comparable
        && no_work
        && no_finding
        && alike(diff.step)
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

fn regression_unknown(diff: &Diff) -> Option<String> {
    if diff.gpus_differ {
        return Some("the GPUs differ".to_owned());
    }
    if !diff.comparable {
        return Some("the profiles have nothing in common that can be compared".to_owned());
    }
    // Kernels of one name do work of many sizes.
    let surely = |part: fn(&MatchedShare) -> f64| -> f64 {
        let vague =
            |m: &&MatchedShare| matches!(m.level, MatchLevel::Kernel | MatchLevel::OtherShapes);
        diff.matched.iter().filter(|m| !vague(m)).map(part).sum()
    };
    let matched = surely(|m| m.before_share).min(surely(|m| m.after_share));
    (diff.unit == TimeUnit::Call && matched < MOST).then(|| {
        format!(
            "only {} of the GPU time is of operator calls that both have",
            percent(matched)
        )
    })
}
