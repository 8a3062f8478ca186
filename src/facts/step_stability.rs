//! Stability of the steps: whether they take equally long, run the same kernels and cover the run,
//! and whether the same kernels slow down over time.

use std::collections::BTreeMap;

use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::base::statistics::median;
use crate::correlate::{LayerSource, Run, SiteId};
use crate::cost::{Costed, Family};
use crate::profile::{ApiClass, CallId, ConfigId, KernelId, Span, StrId};

/// The lengths of the analyzed steps in ns: of their parts of the window; on the host without one.
fn lengths(run: &Run) -> Vec<i64> {
    if let Some(lengths) = run.step_lengths() {
        return lengths.into_iter().map(|ns| ns.round() as i64).collect();
    }
    let analyzed = run.steps.iter().filter(|step| !step.warmup);
    analyzed.map(|step| step.span.ns()).collect()
}

/// How the steps of a run differ, and how kernel durations change over time.
#[derive(Debug, Clone, Default)]
pub(super) struct StepStability {
    /// Duration of the first step divided by the median of the others; needs three steps.
    first_over_median: Option<f64>,
    /// Standard deviation divided by mean, of the steps after the first; needs three of those.
    spread: Option<f64>,
    /// Longest step after the first divided by their median; needs three of those.
    longest_over_median: Option<f64>,
    /// Longest step divided by the shortest, the first included; needs two steps.
    longest_over_shortest: Option<f64>,
    /// Number of consecutive steps that ran the same kernels.
    repeating: Option<u64>,
    /// Share of launched kernel time outside steps.
    outside_share: Option<f64>,
    /// Blocking calls per step on threads that launch.
    syncs_per_step: Option<f64>,
    /// Those inside layers; `None` where the profile does not mark most layers.
    layer_syncs_per_step: Option<f64>,
    /// Driver allocations after the second step.
    allocations: Option<Allocations>,
    /// Steps after the second in which the GPU waited while code was compiled or loaded, and for how long.
    late_load_steps: Option<u64>,
    late_load_ns: f64,
    /// Late divided by early duration of the same matrix kernels, of the one that slowed down least.
    slowdown: Option<f64>,
    /// Whether too few kernels could be compared for that.
    too_few_paced: bool,
    /// Share of kernel time that `slowdown` is computed from.
    paced_share: f64,
}

/// Calls that allocate or free driver memory, after the second step.
#[derive(Debug, Clone, Copy, Default)]
struct Allocations {
    calls: u64,
    ns: f64,
    /// The host time that was examined.
    of_ns: f64,
    steps: u64,
}

/// Minimum number of steps for a spread.
const FEWEST: usize = 3;
/// Number of sites, the largest ones, whose durations are compared over time.
const PACED_SITES: usize = 16;
/// Minimum number of executions of a kernel for comparing early and late ones.
const FEWEST_EXECUTIONS: usize = 20;
/// Minimum number of kernels that must have slowed down: a lower clock slows all of them.
const FEWEST_KERNELS: usize = 3;

impl StepStability {
    pub(super) fn of(costed: &Costed) -> StepStability {
        let run = &costed.run;
        let mut stability = StepStability::default();
        stability.durations(run);
        if !run.steps.is_empty() {
            stability.work(run);
            stability.host(run);
            stability.late_loads(run);
        }
        stability.pace(costed);
        stability
    }

    fn durations(&mut self, run: &Run) {
        let mut lengths = lengths(run);
        let steps = lengths.len();
        let shortest = lengths.iter().copied().min().filter(|ns| *ns > 0);
        let longest = lengths.iter().copied().max();
        self.longest_over_shortest = (longest.zip(shortest).filter(|_| steps >= 2))
            .map(|(longest, shortest)| longest as f64 / shortest as f64);
        let Some((first, rest)) = lengths.split_first_mut() else {
            return;
        };
        // Computed before `median` reorders the steps, because the order affects rounding.
        let spread = spread(rest);
        let longest = rest.iter().copied().max();
        let median = median(rest).filter(|median| *median > 0);
        let over_median = |ns: i64| Some(ns as f64 / median? as f64);
        if steps >= FEWEST {
            self.first_over_median = over_median(*first);
        }
        if rest.len() >= FEWEST {
            self.longest_over_median = longest.and_then(over_median);
            self.spread = spread;
        }
    }

    /// Finds the kernels that each step ran, and the kernel time outside steps.
    fn work(&mut self, run: &Run) {
        let mut content: Vec<u64> = vec![0; run.steps.len()];
        let (mut inside, mut outside) = (0.0, 0.0);
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            if link.site.is_none() || link.launch.is_none() {
                continue;
            }
            let ns = kernel.span.ns() as f64;
            let Some(step) = link.step else {
                outside += ns;
                continue;
            };
            inside += ns;
            if let Some(sum) = content.get_mut(step.idx()) {
                // Streams run concurrently in no fixed order, so the sum must not depend on the order.
                *sum = sum.wrapping_add(fingerprint(kernel.name, kernel.config));
            }
        }
        if inside + outside > 0.0 {
            self.outside_share = Some(outside / (inside + outside));
        }
        let (mut longest, mut current) = (0_u64, 0_u64);
        let mut last = None;
        for (step, sum) in run.steps.iter().zip(content) {
            let sum = Some(sum).filter(|&s| s != 0 && !step.warmup);
            current = match (last, sum) {
                (_, None) => 0,
                (Some(before), Some(now)) if before == now => current + 1,
                _ => 1,
            };
            longest = longest.max(current);
            last = sum;
        }
        self.repeating = Some(longest);
    }

    fn host(&mut self, run: &Run) {
        let steps: Vec<Span> = (run.steps.iter().filter(|s| !s.warmup))
            .map(|s| s.span)
            .collect();
        let Some((first, last)) = steps.first().zip(steps.last()) else {
            return;
        };
        let all = Span {
            start: first.start,
            end: last.end,
        };
        let steady = steps.get(2).map(|third| Span {
            start: third.start,
            end: last.end,
        });
        let mut launching = vec![false; run.profile.threads.len()];
        for call in &run.profile.calls {
            if call.class == ApiClass::Launch
                && let Some(seen) = launching.get_mut(call.thread.idx())
            {
                *seen = true;
            }
        }
        let (mut syncs, mut in_layers) = (0_u64, 0_u64);
        let mut allocations = Allocations::default();
        for (id, call) in (0..).map(CallId).zip(&run.profile.calls) {
            let launches = launching.get(call.thread.idx()).copied().unwrap_or(false);
            match call.class {
                ApiClass::Sync if launches && all.contains(call.span.start) => {
                    syncs += 1;
                    in_layers += u64::from(run.waits_in_layers.contains(&id));
                }
                ApiClass::Alloc | ApiClass::Free
                    if steady.is_some_and(|s| s.contains(call.span.start))
                        && asks_the_driver(run.profile.text(call.name)) =>
                {
                    allocations.calls += 1;
                    allocations.ns += call.span.ns() as f64;
                }
                _ => {}
            }
        }
        if run.profile.recorded.api_calls {
            self.syncs_per_step = Some(syncs as f64 / steps.len() as f64);
            let marked = run.layer_source.is_some_and(LayerSource::is_around_layers);
            self.layer_syncs_per_step = marked.then(|| in_layers as f64 / steps.len() as f64);
            self.allocations = steady.map(|span| Allocations {
                of_ns: span.ns() as f64,
                steps: steps.len() as u64 - 2,
                ..allocations
            });
        }
    }

    /// Finds the idle time in which code was compiled or loaded although the program was past its first
    /// steps.
    fn late_loads(&mut self, run: &Run) {
        let later: Vec<Span> = (run.steps.iter().filter(|s| !s.warmup))
            .map(|s| s.span)
            .skip(2)
            .collect();
        let mut hit = vec![false; later.len()];
        for load in &run.window.loads {
            // It begins when the GPU has finished, perhaps in the step before.
            let until = later.partition_point(|step| step.start < load.end);
            let row = until.checked_sub(1);
            let step = row.and_then(|row| later.get(row));
            if step.is_some_and(|step| load.start < step.end) {
                if let Some(slot) = row.and_then(|row| hit.get_mut(row)) {
                    *slot = true;
                }
                self.late_load_ns += load.ns() as f64;
            }
        }
        if !later.is_empty() {
            self.late_load_steps = Some(hit.into_iter().filter(|hit| *hit).count() as u64);
        }
    }

    /// Compares early and late durations of the same kernels, where nothing ran beside them. Equal
    /// matrix products should take equal time; an increase of all of them indicates a lower clock.
    fn pace(&mut self, costed: &Costed) {
        let run = &costed.run;
        let paced: Vec<bool> = run
            .sites
            .iter()
            .zip(&costed.sites)
            .take(PACED_SITES)
            .map(|(site, cost)| {
                matches!(cost.family, Family::Gemm | Family::Conv)
                    && cost.flops.is_some()
                    && !cost.autotuning
                    && site.calls as usize >= FEWEST_EXECUTIONS
            })
            .collect();
        if !paced.contains(&true) {
            return;
        }
        let overlapped = overlapped(run);
        let mut groups: BTreeMap<(SiteId, StrId, ConfigId), Vec<KernelId>> = BTreeMap::new();
        for ((id, kernel), link) in (0..)
            .map(KernelId)
            .zip(&run.profile.kernels)
            .zip(&run.links)
        {
            if let Some(site) = link.site
                && paced.get(site.idx()) == Some(&true)
                && overlapped.get(id.idx()) == Some(&false)
            {
                let key = (site, kernel.name, kernel.config);
                groups.entry(key).or_default().push(id);
            }
        }
        let mut least = f64::INFINITY;
        let (mut kernels, mut covered) = (0, 0.0);
        for ids in groups.values().filter(|g| g.len() >= FEWEST_EXECUTIONS) {
            let mut lengths: Vec<i64> = ids
                .iter()
                .filter_map(|id| run.profile.kernel(*id))
                .map(|k| k.span.ns())
                .collect();
            let third = lengths.len() / 3;
            let sum: f64 = lengths.iter().map(|ns| *ns as f64).sum();
            let first = lengths.get_mut(..third).and_then(median);
            let from = lengths.len() - third;
            let last = lengths.get_mut(from..).and_then(median);
            if let Some((first, last)) = first.zip(last).filter(|(first, _)| *first > 0) {
                least = least.min(last as f64 / first as f64);
                kernels += 1;
                covered += sum;
            }
        }
        let total: f64 = run.sites.iter().map(|s| s.time_ns as f64).sum();
        self.too_few_paced = (1..FEWEST_KERNELS).contains(&kernels);
        if kernels >= FEWEST_KERNELS && total > 0.0 {
            self.slowdown = Some(least);
            self.paced_share = covered / total;
        }
    }
}

/// Per kernel, whether another ran beside it on its device. Kernels are in order of their start.
fn overlapped(run: &Run) -> Vec<bool> {
    let mut beside = vec![false; run.profile.kernels.len()];
    // Per device: the kernel that ends last so far, and its end.
    let mut latest: Vec<Option<(usize, i64)>> = vec![None; run.profile.devices.len()];
    for (row, kernel) in run.profile.kernels.iter().enumerate() {
        let Some(latest) = latest.get_mut(kernel.device.idx()) else {
            continue;
        };
        if let Some((other, end)) = latest.filter(|(_, end)| *end > kernel.span.start) {
            for row in [row, other] {
                if let Some(slot) = beside.get_mut(row) {
                    *slot = true;
                }
            }
            if end > kernel.span.end {
                continue;
            }
        }
        *latest = Some((row, kernel.span.end));
    }
    beside
}

/// Whether a call allocates or frees driver memory. Stream-ordered calls use a pool instead.
fn asks_the_driver(name: &str) -> bool {
    !name.contains("Async") && !name.contains("FromPool")
}

/// A hash of a kernel with its launch configuration; never 0.
fn fingerprint(name: StrId, config: ConfigId) -> u64 {
    use std::hash::BuildHasher as _;
    rustc_hash::FxBuildHasher.hash_one((name, config)) | 1
}

/// Standard deviation divided by mean.
fn spread(values: &[i64]) -> Option<f64> {
    let count = values.len() as f64;
    let values = || values.iter().map(|ns| *ns as f64);
    let mean = values().sum::<f64>() / count;
    let variance = values().map(|ns| (ns - mean).powi(2)).sum::<f64>() / count;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Steps after the second in which the GPU waited while the host compiled or loaded code
    "run.late_load_steps": INT needs MORE_STEPS => |t| t.step_stability.late_load_steps,
    /// How long the GPU waited in the steps of `run.late_load_steps`; this is not part of the window
    "run.late_load_ns": DOUBLE => |t| t.step_stability.late_load_ns,
    /// Duration of the first step over the median of the others
    "run.first_step_over_median": DOUBLE needs MORE_STEPS =>
        |t| t.step_stability.first_over_median,
    /// Standard deviation of the step durations over their mean, without the first step
    "run.step_spread": DOUBLE needs MORE_STEPS => |t| t.step_stability.spread,
    /// Duration of the longest step over that of the shortest one; needs two steps
    "run.longest_step_over_shortest": DOUBLE needs STEPS =>
        |t| t.step_stability.longest_over_shortest,
    /// Duration of the longest step over the median, without the first step
    "run.longest_step_over_median": DOUBLE needs MORE_STEPS =>
        |t| t.step_stability.longest_over_median,
    /// Most steps in a row that ran the same kernels with the same launch configurations
    "run.repeating_steps": INT needs STEPS => |t| t.step_stability.repeating,
    /// Share of the launched kernel time that was launched outside numbered steps
    "run.outside_steps_share": DOUBLE needs STEPS => |t| t.step_stability.outside_share,
    /// Blocking synchronization calls per step, on threads that launch kernels
    "run.syncs_per_step": DOUBLE needs STEPS => |t| t.step_stability.syncs_per_step,
    /// Part of `run.syncs_per_step` inside layers, in forward or backward pass
    "run.layer_syncs_per_step": DOUBLE needs LAYERS => |t| t.step_stability.layer_syncs_per_step,
    /// Calls per step that ask the driver for memory or give it back, after the second step
    "run.allocations_per_step": DOUBLE needs MORE_STEPS => |t| {
        t.step_stability
            .allocations
            .filter(|a| a.steps > 0)
            .map(|a| a.calls as f64 / a.steps as f64)
    },
    /// Share of the time after the second step that the host spent in calls counted by
    /// `run.allocations_per_step`
    "run.allocation_share": DOUBLE needs MORE_STEPS => |t| {
        t.step_stability
            .allocations
            .filter(|a| a.of_ns > 0.0)
            .map(|a| a.ns / a.of_ns)
    },
    /// Median duration of a matrix kernel in the last third of the run over the first third: the least
    /// among three kernels or more, while nothing ran beside them; silent for fewer
    "run.math_late_over_early": DOUBLE needs MORE_MATH => |t| match t.step_stability.slowdown {
        None if t.step_stability.too_few_paced => Answer::DoesNotApply,
        slowdown => Answer::from(slowdown),
    },
    /// Share of kernel time in the matrix kernels compared for `run.math_late_over_early`
    "run.repeated_math_share": DOUBLE => |t| t.step_stability.paced_share,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;
    use crate::profile::{SerialNumber, ThreadId};

    #[test]
    fn spread_is_relative_to_the_mean() {
        assert_eq!(spread(&[2, 2, 2]), Some(0.0));
        assert_eq!(spread(&[1, 3]), Some(0.5));
        assert_eq!(spread(&[0]), None);
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn waits_inside_layers_are_those_of_their_forward_and_backward_pass() {
        let waits = |layer: &str| {
            let mut b = ProfileBuilder::new();
            for start in [0, 10_000] {
                b.range(&format!("step {start}"), start, start + 9_000);
                b.range(layer, start + 100, start + 500);
                b.range("aten::index", start + 110, start + 200).seq = SerialNumber::new(7);
                b.launch(start + 120);
                b.range("aten::item", start + 300, start + 400);
                b.call(ThreadId(0), "cudaStreamSynchronize", start + 310, 0);
                b.range(
                    "autograd::engine::evaluate_function: IndexBackward0",
                    start + 600,
                    start + 900,
                )
                .seq = SerialNumber::new(7);
                b.launch(start + 610);
                b.call(ThreadId(0), "cudaStreamSynchronize", start + 700, 0);
                b.range("aten::item", start + 1_000, start + 1_100);
                b.call(ThreadId(0), "cudaStreamSynchronize", start + 1_010, 0);
            }
            b.profile.recorded.api_calls = true;
            let found = StepStability::of(&estimate_costs(b.run(), None));
            assert_eq!(found.syncs_per_step, Some(3.0));
            found.layer_syncs_per_step
        };
        assert_eq!(waits("layer:blocks.0"), Some(2.0));
        assert_eq!(waits("nn.Module: Block_0"), Some(2.0));
        assert_eq!(waits("evaluation"), None);
    }

    #[test]
    fn driver_allocation_calls_are_recognized() {
        assert!(asks_the_driver("cudaMalloc"));
        assert!(asks_the_driver("cudaHostAlloc"));
        assert!(!asks_the_driver("cudaMallocAsync"));
        assert!(!asks_the_driver("cudaFreeAsync"));
    }
}
