//! Durations of the kernels of each site, by kernel, launch configuration and length, so that calls of
//! different sizes are not averaged.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::evidence::kernel_name;
use crate::correlate::{Run, SiteId};
use crate::cost::{Costed, Family};
use crate::profile::{ConfigId, StrId};

/// Most clusters per site; those with the longest time.
const MAX_CLUSTERS: usize = 16;
/// Classes of lengths per factor of two.
const PER_OCTAVE: i32 = 4;
/// Length classes without an execution that separate two clusters: a factor of two.
const APART: usize = 4;
/// Smallest share of the executions that is a cluster of its own and no outlier.
const LEAST: f64 = 0.05;

/// Executions of one kernel with one launch configuration and about the same duration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KernelCluster {
    /// Name of the kernel.
    pub kernel: String,
    /// Thread blocks by dimension; all 0 where the profile does not say.
    pub grid: [u32; 3],
    /// Threads per block by dimension; all 0 where the profile does not say.
    pub block: [u32; 3],
    /// Number of executions.
    pub count: u64,
    /// Sum of their durations.
    pub time_ns: i64,
    /// Median duration.
    pub median_ns: i64,
    /// Duration that a quarter of the executions stay below.
    pub lower_quartile_ns: i64,
    /// Duration that three quarters of the executions stay below.
    pub upper_quartile_ns: i64,
}

/// The clusters of each site, longest time first.
pub(super) fn of(costed: &Costed) -> Vec<Vec<KernelCluster>> {
    let run = &costed.run;
    let mut durations = durations(run);
    let sites = run.sites.iter().zip(&costed.sites).enumerate();
    let clusters = sites.map(|(index, (site, cost))| {
        let sized = site.args.is_some_and(|id| {
            let args = run.arguments(id);
            args.is_some_and(|args| args.tensors().next().is_some())
        });
        let mut clusters = Vec::new();
        for (row, kernel) in site.kernels.iter().enumerate().take(MAX_CLUSTERS) {
            let key = (SiteId::new(index), kernel.name, kernel.config);
            let Some(lengths) = durations.remove(&key) else {
                continue;
            };
            let decoded = costed.kernels.get(index).and_then(|list| list.get(row));
            let name = kernel_name(run.profile.text(kernel.name), decoded.map(AsRef::as_ref));
            let config = run.profile.configs.get(kernel.config.idx());
            let config = config.copied().unwrap_or_default();
            // With arguments, the calls of a site are alike. The length of a collective is mostly waiting.
            let parts = match sized || cost.family == Family::Communication {
                true => vec![lengths],
                false => split(lengths),
            };
            for lengths in parts {
                clusters.extend(cluster(&name, config.grid, config.block, lengths));
            }
        }
        // The median settles the order of equal parts of one kernel.
        clusters.sort_by(|a, b| {
            let time = b.time_ns.cmp(&a.time_ns);
            let order = |c: &KernelCluster| (c.grid, c.block, c.median_ns);
            let name = || a.kernel.cmp(&b.kernel);
            time.then_with(name).then_with(|| order(a).cmp(&order(b)))
        });
        clusters.truncate(MAX_CLUSTERS);
        clusters
    });
    clusters.collect()
}

type Key = (SiteId, StrId, ConfigId);

fn durations(run: &Run) -> FxHashMap<Key, Vec<i64>> {
    let mut durations: FxHashMap<Key, Vec<i64>> = FxHashMap::default();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if let Some(site) = link.site {
            let key = (site, kernel.name, kernel.config);
            durations.entry(key).or_default().push(kernel.span.ns());
        }
    }
    durations
}

fn cluster(
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    mut lengths: Vec<i64>,
) -> Option<KernelCluster> {
    let last = lengths.len().checked_sub(1)?;
    let mut quantile = |part: f64| {
        let at = (part * last as f64).round() as usize;
        *lengths.select_nth_unstable(at.min(last)).1
    };
    let (low, middle, high) = (quantile(0.25), quantile(0.5), quantile(0.75));
    Some(KernelCluster {
        kernel: kernel.to_owned(),
        grid,
        block,
        count: lengths.len() as u64,
        time_ns: lengths.iter().fold(0, |sum, ns| sum.saturating_add(*ns)),
        median_ns: middle,
        lower_quartile_ns: low,
        upper_quartile_ns: high,
    })
}

/// Splits durations where nothing lies within a factor of two; few outliers stay with their neighbors.
fn split(lengths: Vec<i64>) -> Vec<Vec<i64>> {
    let class = |ns: i64| (((ns.max(1)) as f64).log2() * f64::from(PER_OCTAVE)) as usize;
    let mut counts = vec![0_usize; class(i64::MAX) + 1];
    for ns in &lengths {
        if let Some(count) = counts.get_mut(class(*ns)) {
            *count += 1;
        }
    }
    // Where each cluster begins, with the executions before it.
    let mut bounds: Vec<usize> = Vec::new();
    let (mut empty, mut members) = (0, 0);
    let least = ((LEAST * lengths.len() as f64).ceil() as usize).max(2);
    let mut left = lengths.len();
    for (at, count) in counts.iter().enumerate() {
        if *count > 0 {
            if empty >= APART && members >= least && left >= least {
                bounds.push(at);
                members = 0;
            }
            members += count;
            left -= count;
            empty = 0;
        } else {
            empty += 1;
        }
    }
    if bounds.is_empty() {
        return vec![lengths];
    }
    let mut parts: Vec<Vec<i64>> = vec![Vec::new(); bounds.len() + 1];
    for ns in lengths {
        let part = bounds.partition_point(|bound| *bound <= class(ns));
        if let Some(part) = parts.get_mut(part) {
            part.push(ns);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_calls_of_one_kernel_are_apart() {
        let mixed: Vec<i64> = (0..60)
            .map(|i| {
                if i % 2 == 0 {
                    7_850_000 + i
                } else {
                    155_000 + i
                }
            })
            .collect();
        let parts = split(mixed);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [30, 30]);
        let long = cluster("flash", [1; 3], [1; 3], parts[1].clone()).unwrap();
        assert!((7_850_000..7_850_060).contains(&long.median_ns), "{long:?}");
        assert!(long.lower_quartile_ns < long.median_ns && long.median_ns < long.upper_quartile_ns);
    }

    #[test]
    fn one_slow_call_is_no_cluster() {
        let mut calls = vec![1_000; 99];
        calls.push(50_000);
        assert_eq!(split(calls).len(), 1);
        assert_eq!(split(vec![5]).len(), 1);
        assert_eq!(cluster("k", [0; 3], [0; 3], Vec::new()), None);
    }
}
