//! The most expensive work with repeated layers folded: one row per layer pattern, operator, direction
//! and arguments.

use indexmap::IndexMap;
use serde::Serialize;

use super::figures::beyond_latency;
use super::model::Report;
use super::rows::SiteRow;
use crate::cost::Bound;

/// The same work in all layers of a pattern.
#[derive(Debug, Serialize)]
pub(super) struct WorkRow<'a> {
    /// The layer pattern; the layer where only one has this work.
    pub layer: Option<&'a str>,
    /// Number of layers with this work.
    pub layers: u64,
    /// Name of the operator, or of the kernel where the operator is unknown.
    pub operator: &'a str,
    pub direction: &'a str,
    pub arguments: &'a str,
    pub calls: u64,
    pub time_ns: i64,
    pub share: f64,
    /// Measured over ideal time; `None` unless it is known in every layer.
    pub slowdown: Option<f64>,
    /// Whether that is the least that it can be.
    pub at_least: bool,
    pub bound: Option<&'a str>,
}

/// The time that the same work in several layers is compared with; `None` unless it is known in each. What latency
/// bounds is compared as a whole.
fn compared_ns(sites: &[&SiteRow], time_ns: i64) -> Option<f64> {
    if !sites.iter().all(|s| s.latency_bound()) {
        return sites.iter().map(|s| s.compared_ns()).sum();
    }
    let family = sites.first().map_or("", |s| &s.family);
    beyond_latency(family, time_ns, sites.iter().map(|s| s.reachable_ns).sum())
}

/// The rows with the longest time.
pub(super) fn rows(report: &Report, most: usize) -> Vec<WorkRow<'_>> {
    let mut same: IndexMap<_, Vec<&SiteRow>> = IndexMap::new();
    for site in &report.sites {
        let layer = site.pattern.as_deref().or(site.layer.as_deref());
        let operator = site.operator.as_deref().or(site.kernel.as_deref());
        let key = (layer, operator, &*site.direction, &*site.arguments);
        same.entry(key).or_default().push(site);
    }
    let mut rows: Vec<WorkRow<'_>> = same
        .into_iter()
        .map(|((layer, operator, direction, arguments), sites)| {
            let mut names: Vec<_> = sites.iter().filter_map(|s| s.layer.as_deref()).collect();
            names.sort_unstable();
            names.dedup();
            let time_ns = sites
                .iter()
                .fold(0_i64, |sum, s| sum.saturating_add(s.time_ns));
            let ideal = compared_ns(&sites, time_ns);
            let explains = |bound: &&str| *bound != Bound::Latency.name() || ideal.is_none();
            let bound = sites
                .first()
                .and_then(|s| s.bound.as_deref())
                .filter(explains);
            WorkRow {
                layer: match names.as_slice() {
                    [only] => Some(only),
                    _ => layer,
                },
                layers: names.len() as u64,
                operator: operator.unwrap_or("-"),
                direction,
                arguments,
                calls: sites
                    .iter()
                    .fold(0, |sum: u64, s| sum.saturating_add(s.calls)),
                time_ns,
                share: sites.iter().map(|s| s.share).sum::<f64>().min(1.0),
                at_least: sites.iter().any(|s| s.slowdown_at_least),
                slowdown: ideal.filter(|ns| *ns > 0.0).map(|ns| time_ns as f64 / ns),
                bound: bound.filter(|b| sites.iter().all(|s| s.bound.as_deref() == Some(b))),
            }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time_ns));
    rows.truncate(most);
    rows
}
