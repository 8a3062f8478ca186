//! Merges the tables of sites and the timelines of several ranks.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::findings::ReportNames;
use crate::report::{
    DeviceRow, IdleCause, KernelCluster, LaneRow, MAX_SITES, Omitted, Report, SiteRow, StepRow,
    TimePart, TimelineReport, share, share_of_busy,
};

/// Most devices in the timeline of a job.
const MAX_DEVICES: usize = 64;
/// Most lanes of streams, and of layers, in the timeline of a job.
const MAX_LANES: usize = 16;

/// Rows of different ranks with the same key are the same work.
type Key<'a> = (
    [Option<&'a str>; 5],
    &'a str,
    &'a str,
    Option<bool>,
    Option<&'a str>,
);

fn key(row: &SiteRow) -> Key<'_> {
    (
        [
            row.layer.as_deref(),
            row.operator.as_deref(),
            row.missing.as_deref(),
            row.kernel.as_deref(),
            row.source_line.as_deref(),
        ],
        &row.direction,
        &row.arguments,
        row.tensor_core,
        row.dtype.as_deref(),
    )
}

/// Rows of the same work summed; `numbers` maps findings of a report to those of the merged one.
pub(super) fn sites(
    reports: &[Report],
    busy_ns: i64,
    numbers: &BTreeMap<(usize, u64), u64>,
) -> (Vec<SiteRow>, Omitted) {
    let mut rows: IndexMap<Key<'_>, SiteRow> = IndexMap::new();
    for (report, part) in reports.iter().enumerate() {
        for row in &part.sites {
            let findings = row.findings.iter();
            let findings = findings.filter_map(|n| numbers.get(&(report, *n)).copied());
            let findings: Vec<u64> = findings.collect();
            match rows.entry(key(row)) {
                indexmap::map::Entry::Occupied(mut known) => add(known.get_mut(), row, &findings),
                indexmap::map::Entry::Vacant(new) => {
                    new.insert(SiteRow {
                        findings,
                        ..row.clone()
                    });
                }
            }
        }
    }
    let mut rows: Vec<SiteRow> = rows.into_values().map(|row| finish(row, busy_ns)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time_ns));
    let rest = rows.split_off(rows.len().min(MAX_SITES));
    let mut omitted = Omitted {
        count: rest.len() as u64,
        time_ns: rest.iter().fold(0, |sum, r| sum.saturating_add(r.time_ns)),
    };
    for left in reports.iter().map(|r| r.sites_omitted) {
        omitted.count = omitted.count.saturating_add(left.count);
        omitted.time_ns = omitted.time_ns.saturating_add(left.time_ns);
    }
    (rows, omitted)
}

fn add(row: &mut SiteRow, more: &SiteRow, findings: &[u64]) {
    row.calls = row.calls.saturating_add(more.calls);
    row.kernels = row.kernels.saturating_add(more.kernels);
    row.time_ns = row.time_ns.saturating_add(more.time_ns);
    row.exposed_ns = row.exposed_ns.saturating_add(more.exposed_ns);
    // A cost that is not known for one rank is not known for all.
    let sum = |mine: &mut Option<f64>, theirs: Option<f64>| {
        *mine = mine.zip(theirs).map(|(a, b)| a + b);
    };
    sum(&mut row.flops, more.flops);
    sum(&mut row.bytes, more.bytes);
    sum(&mut row.ideal_ns, more.ideal_ns);
    sum(&mut row.best_ideal_ns, more.best_ideal_ns);
    sum(&mut row.reachable_ns, more.reachable_ns);
    // What has no slowdown on one rank has none together.
    row.slowdown = row.slowdown.and(more.slowdown);
    row.slowdown_at_least |= more.slowdown_at_least;
    add_clusters(&mut row.clusters, &more.clusters);
    row.recomputed |= more.recomputed;
    row.findings.extend_from_slice(findings);
}

/// Clusters of the same kernels are summed. Of their quartiles, the mean is taken, weighted by their counts.
fn add_clusters(clusters: &mut Vec<KernelCluster>, more: &[KernelCluster]) {
    /// Largest factor between the medians of the same work on two ranks.
    const ALIKE: f64 = 2.0;
    for new in more {
        let same = clusters.iter_mut().find(|known| {
            let apart = share(known.median_ns as f64, new.median_ns as f64);
            (&known.kernel, known.grid, known.block) == (&new.kernel, new.grid, new.block)
                && apart < ALIKE
                && apart > 1.0 / ALIKE
        });
        let Some(known) = same else {
            clusters.push(new.clone());
            continue;
        };
        let (a, b) = (known.count as f64, new.count as f64);
        let mean = |x: i64, y: i64| share(x as f64 * a + y as f64 * b, a + b).round() as i64;
        known.median_ns = mean(known.median_ns, new.median_ns);
        known.lower_quartile_ns = mean(known.lower_quartile_ns, new.lower_quartile_ns);
        known.upper_quartile_ns = mean(known.upper_quartile_ns, new.upper_quartile_ns);
        known.count = known.count.saturating_add(new.count);
        known.time_ns = known.time_ns.saturating_add(new.time_ns);
    }
}

fn finish(mut row: SiteRow, busy_ns: i64) -> SiteRow {
    row.findings.sort_unstable();
    row.findings.dedup();
    row.share = share_of_busy(row.time_ns, busy_ns);
    let ratio = |above: f64, below: Option<f64>| below.filter(|b| *b > 0.0).map(|b| above / b);
    row.slowdown = (row.slowdown).and_then(|_| ratio(row.time_ns as f64, row.compared_ns()));
    row.intensity = row.flops.and_then(|flops| ratio(flops, row.bytes));
    row
}

/// The timelines of all ranks side by side. Starts count from the start of each rank's own window,
/// because the clocks of different machines are not compared.
pub(super) fn timeline(
    reports: &[Report],
    names: &ReportNames,
    device_window_ns: i64,
) -> TimelineReport {
    let all = || reports.iter().map(|r| &r.timeline);
    let mut devices: Vec<DeviceRow> = Vec::new();
    for (report, name) in reports.iter().zip(&names.names) {
        devices.extend(report.timeline.devices.iter().map(|row| DeviceRow {
            device: format!("{} {name}, {}", names.unit, row.device),
            ..row.clone()
        }));
    }
    let beyond = devices.len().saturating_sub(MAX_DEVICES) as u64;
    devices.truncate(MAX_DEVICES);
    let steps: Vec<StepRow> = all().flat_map(|t| t.steps.iter().cloned()).collect();
    let ns = all().map(|t| t.ns).max().unwrap_or_default();
    TimelineReport {
        ns,
        parts: parts(reports, device_window_ns),
        idle: idle(reports),
        devices,
        devices_omitted: (all().map(|t| t.devices_omitted)).fold(beyond, u64::saturating_add),
        lanes: lanes(reports, names, ns),
        steps,
        steps_omitted: all().map(|t| t.steps_omitted).fold(0, u64::saturating_add),
    }
}

/// The longest lanes of each rank, over `ns` as the longest of their windows.
fn lanes(reports: &[Report], names: &ReportNames, ns: i64) -> Vec<LaneRow> {
    let mut lanes = Vec::new();
    for (kind, most) in [("stream", 2), ("layer", 1)] {
        let of_kind = reports.iter().zip(&names.names).flat_map(|(report, name)| {
            let of_rank = report
                .timeline
                .lanes
                .iter()
                .filter(|lane| lane.kind == kind);
            of_rank.take(most).map(move |lane| LaneRow {
                name: format!("{} {name}, {}", names.unit, lane.name),
                busy: stretched(&lane.busy, share(report.timeline.ns as f64, ns as f64)),
                ..lane.clone()
            })
        });
        lanes.extend(of_kind.take(MAX_LANES));
    }
    lanes
}

/// The busy shares of equal parts of the first `part` of a time, as shares of equal parts of all of it.
fn stretched(busy: &[u8], part: f64) -> Vec<u8> {
    let length = part.clamp(0.0, 1.0);
    let all = busy.len() as f64;
    (0..busy.len())
        .map(|at| {
            // From where to where this part is, counted in the given parts.
            let (from, to) = (at as f64 / length, (at as f64 + 1.0) / length);
            let last = to.min(all).ceil() as usize;
            let covered = (from.min(all) as usize..last).map(|given| {
                let overlap = to.min(given as f64 + 1.0) - from.max(given as f64);
                overlap.max(0.0) * f64::from(busy.get(given).copied().unwrap_or(0))
            });
            (covered.sum::<f64>() * length).round() as u8
        })
        .collect()
}

fn parts(reports: &[Report], device_window_ns: i64) -> Vec<TimePart> {
    let mut sums: IndexMap<&str, i64> = IndexMap::new();
    for part in reports.iter().flat_map(|r| &r.timeline.parts) {
        let sum = sums.entry(&part.what).or_default();
        *sum = sum.saturating_add(part.ns);
    }
    sums.into_iter()
        .map(|(what, ns)| TimePart {
            what: what.to_owned(),
            ns,
            share: share(ns as f64, device_window_ns as f64),
        })
        .collect()
}

fn idle(reports: &[Report]) -> Vec<IdleCause> {
    let mut sums: IndexMap<&str, (u64, i64)> = IndexMap::new();
    for cause in reports.iter().flat_map(|r| &r.timeline.idle) {
        let (gaps, ns) = sums.entry(&cause.cause).or_default();
        *gaps = gaps.saturating_add(cause.gaps);
        *ns = ns.saturating_add(cause.ns);
    }
    let mut rows: Vec<IdleCause> = sums
        .into_iter()
        .map(|(cause, (gaps, ns))| IdleCause {
            cause: cause.to_owned(),
            gaps,
            ns,
        })
        .collect();
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.cause.cmp(&b.cause)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_shorter_rank_end_early() {
        assert_eq!(stretched(&[100, 50, 0, 20], 1.0), [100, 50, 0, 20]);
        assert_eq!(stretched(&[100, 50, 0, 20], 0.5), [75, 10, 0, 0]);
        assert_eq!(stretched(&[100; 4], 0.75), [100, 100, 100, 0]);
        assert_eq!(stretched(&[], 0.5), [0_u8; 0]);
        assert_eq!(stretched(&[100; 2], 0.0), [0, 0]);
    }
}
