//! The table of sites: one row per layer, operator, direction and shapes.

use super::clusters::{self, KernelCluster};
use super::evidence::{arguments, kernel_name};
use super::figures::{SEARCH, compared_ns, kernel_count, label, share_of_busy, sum};
use super::model::Options;
use super::narrative;
use super::rows::{Omitted, SiteRow};
use crate::correlate::Site;
use crate::cost::{Bound, Costed, DecodedName, Family, SiteCost, TensorCore};

impl SiteRow {
    /// Whether latency bounds the ideal time.
    pub(super) fn latency_bound(&self) -> bool {
        self.bound.as_deref() == Some(Bound::Latency.name())
    }

    /// The time that `slowdown` compares with.
    pub(crate) fn compared_ns(&self) -> Option<f64> {
        self.slowdown?;
        if self.latency_bound() {
            self.reachable_ns
        } else {
            self.best_ideal_ns
        }
    }
}

/// The most expensive sites, and how many more there are; `numbers` are those of the findings about
/// each site.
pub(super) fn rows(
    costed: &Costed,
    mut numbers: Vec<Vec<u64>>,
    options: &Options,
    busy_ns: i64,
) -> (Vec<SiteRow>, Omitted) {
    let sites = &costed.run.sites;
    let mut order: Vec<usize> = (0..sites.len()).collect();
    // Stable, so that equals stay in the order of their first kernels.
    order.sort_by_key(|&i| std::cmp::Reverse(sites.get(i).map_or(0, |s| s.time_ns)));
    let rest = order.split_off(order.len().min(options.max_sites));
    let mut clusters = match options.comparable {
        true => clusters::of(costed),
        false => Vec::new(),
    };
    let rows = order
        .into_iter()
        .filter_map(|i| {
            let findings = numbers.get_mut(i).map(std::mem::take).unwrap_or_default();
            let clusters = clusters.get_mut(i).map(std::mem::take).unwrap_or_default();
            row(costed, i, busy_ns, clusters, findings)
        })
        .collect();
    let omitted = Omitted {
        count: rest.len() as u64,
        time_ns: sum(rest.iter().filter_map(|&i| Some(sites.get(i)?.time_ns))),
    };
    (rows, omitted)
}

fn row(
    costed: &Costed,
    index: usize,
    busy_ns: i64,
    clusters: Vec<KernelCluster>,
    mut findings: Vec<u64>,
) -> Option<SiteRow> {
    let run = &costed.run;
    let (site, cost) = (run.sites.get(index)?, costed.sites.get(index)?);
    let layer = run.layer_of(site);
    let pattern = layer.and_then(|l| run.pattern(l.pattern));
    let positive = |value: Option<f64>| value.filter(|v| v.is_finite() && *v >= 0.0);
    let (flops, bytes) = (positive(cost.flops), positive(cost.bytes));
    let best_ideal_ns = positive(cost.best_ideal_ns);
    findings.sort_unstable();
    findings.dedup();
    Some(SiteRow {
        layer: layer.map(|l| label(&l.name)),
        pattern: pattern.map(|p| label(&p.name)),
        operator: site.op.as_ref().map(|op| label(&op.display())),
        missing: site.missing.map(|m| narrative::missing_word(m).to_owned()),
        direction: site.direction.name().to_owned(),
        recomputed: site.recomputed,
        arguments: arguments(run, site),
        arguments_from_forward: site.args_from_forward,
        calls: u64::from(site.calls),
        time_ns: site.time_ns,
        exposed_ns: site.exposed_ns,
        share: share_of_busy(site.time_ns, busy_ns),
        family: cost.family.name().to_owned(),
        flops,
        bytes,
        intensity: ratio(flops, bytes),
        ideal_ns: positive(cost.ideal_ns),
        best_ideal_ns,
        reachable_ns: positive(cost.reachable_ns),
        slowdown: ratio(Some(site.time_ns as f64), positive(compared_ns(site, cost))),
        slowdown_at_least: cost.at_most(),
        bound: (cost.bound.filter(|_| cost.family != Family::Communication))
            .map(|b| b.name().to_owned()),
        dtype: cost.math_dtype.map(|d| d.name().to_owned()),
        tensor_core: match cost.tensor_core {
            TensorCore::Yes => Some(true),
            TensorCore::No => Some(false),
            TensorCore::Unknown => None,
        },
        kernel: main_kernel(costed, site, index),
        kernels: kernel_count(site),
        cost_unknown: cost_unknown(site, cost),
        source_line: site.source_line.as_deref().map(label),
        clusters,
        findings,
    })
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let ratio = part? / whole?;
    ratio.is_finite().then_some(ratio)
}

fn main_kernel(costed: &Costed, site: &Site, index: usize) -> Option<String> {
    let (at, kernel) = site
        .kernels
        .iter()
        .enumerate()
        .rev()
        .max_by_key(|(_, k)| k.time_ns)?;
    let decoded = costed.kernels.get(index).and_then(|list| list.get(at));
    let decoded: Option<&DecodedName> = decoded.map(AsRef::as_ref);
    let name = costed.run.profile.text(kernel.name);
    Some(kernel_name(name, decoded))
}

fn cost_unknown(site: &Site, cost: &SiteCost) -> Option<String> {
    let unknown = match &cost.cost {
        Err(unknown) => unknown.describe(),
        Ok(_) if cost.autotuning => SEARCH,
        Ok(_) => return None,
    };
    site.op.is_some().then(|| unknown.to_owned())
}
