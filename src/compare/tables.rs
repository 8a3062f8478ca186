//! Merges the tables of several reports row by row.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::lists::distinct;
use crate::correlate::{ExcludedWork, Exclusion, SetUp};
use crate::judge::Fault;
use crate::report::{
    AlreadyFast, CostUnknown, LayerRow, MAX_ALREADY_FAST, MAX_LAYER_ROWS, MAX_UNKNOWN_NAMES,
    MOSTLY, Omitted, Report, SkippedRules, Unattributed, UserCosted, share, share_of_busy,
};

/// Adds to a sum, which stops at the largest number.
fn add(sum: &mut i64, more: i64) {
    *sum = sum.saturating_add(more);
}

fn add_count(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Rows of the same name summed; `numbers` maps findings of a report to those of the merged one.
pub(super) fn layers(
    reports: &[Report],
    busy_ns: i64,
    numbers: &BTreeMap<(usize, u64), u64>,
) -> (Vec<LayerRow>, Omitted) {
    let mut rows: IndexMap<(&str, bool), Vec<(usize, &LayerRow)>> = IndexMap::new();
    for (report, r) in reports.iter().enumerate() {
        for row in &r.layers {
            let same = rows.entry((&row.name, row.is_layer)).or_default();
            same.push((report, row));
        }
    }
    let mut rows: Vec<LayerRow> = rows
        .values()
        .filter_map(|same| layer(same, busy_ns, numbers))
        .collect();
    rows.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.name.cmp(&b.name)));
    let rest = rows.split_off(rows.len().min(MAX_LAYER_ROWS));
    let mut omitted = Omitted::default();
    for row in &rest {
        omitted.count += 1;
        add(&mut omitted.time_ns, row.time_ns);
    }
    for left in reports.iter().map(|r| r.layers_omitted) {
        // The same layers are left out on every rank.
        omitted.count = omitted.count.max(left.count);
        add(&mut omitted.time_ns, left.time_ns);
    }
    (rows, omitted)
}

/// How much slower the layer is at most, on all ranks that have it; `None` unless each tells.
fn at_most(same: &[(usize, &LayerRow)]) -> Option<f64> {
    let parts: Option<Vec<(f64, f64)>> = same
        .iter()
        .map(|(_, part)| {
            let ns = part.time_ns as f64;
            let most = part.slowdown_at_most.filter(|most| *most > 0.0)?;
            Some((ns, ns / most))
        })
        .collect();
    let parts = parts?;
    let ns: f64 = parts.iter().map(|part| part.0).sum();
    let least_ns: f64 = parts.iter().map(|part| part.1).sum();
    (least_ns > 0.0).then(|| ns / least_ns)
}

fn layer(
    same: &[(usize, &LayerRow)],
    busy_ns: i64,
    numbers: &BTreeMap<(usize, u64), u64>,
) -> Option<LayerRow> {
    let (_, first) = same.first()?;
    let mut row = LayerRow {
        calls: 0,
        time_ns: 0,
        fprop_ns: 0,
        bprop_ns: 0,
        update_ns: 0,
        cost_known_ns: 0.0,
        best_ideal_ns: None,
        slowdown_at_most: at_most(same),
        bound: None,
        findings: Vec::new(),
        ..(*first).clone()
    };
    let mut bounds: BTreeMap<&str, f64> = BTreeMap::new();
    for (report, part) in same {
        row.layers = row.layers.max(part.layers);
        row.slowdown_at_least |= part.slowdown_at_least;
        add_count(&mut row.calls, part.calls);
        add(&mut row.time_ns, part.time_ns);
        add(&mut row.fprop_ns, part.fprop_ns);
        add(&mut row.bprop_ns, part.bprop_ns);
        add(&mut row.update_ns, part.update_ns);
        row.cost_known_ns += part.cost_known_ns;
        if let Some(ideal) = part.best_ideal_ns {
            *row.best_ideal_ns.get_or_insert(0.0) += ideal;
        }
        if let Some(bound) = &part.bound {
            *bounds.entry(bound).or_default() += part.cost_known_ns;
        }
        let here = part.findings.iter();
        row.findings
            .extend(here.filter_map(|number| numbers.get(&(*report, *number))));
    }
    row.findings.sort_unstable();
    row.findings.dedup();
    row.share = share_of_busy(row.time_ns, busy_ns);
    row.slowdown = row
        .best_ideal_ns
        .filter(|ideal| *ideal > 0.0)
        .map(|ideal| row.cost_known_ns / ideal);
    row.slowdown_partial =
        row.slowdown.is_some() && row.cost_known_ns < MOSTLY * row.time_ns as f64;
    row.bound = bounds
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(a.0)))
        .map(|(bound, _)| bound.to_owned());
    Some(row)
}

/// Work that is already fast on every rank.
pub(super) fn already_fast(reports: &[Report], busy_ns: i64) -> Vec<AlreadyFast> {
    let mut rows: IndexMap<(&str, &str, &str), (usize, AlreadyFast)> = IndexMap::new();
    for part in reports.iter().flat_map(|r| &r.already_fast) {
        rows.entry((&part.place, &part.operator, &part.direction))
            .and_modify(|(on, row)| {
                *on += 1;
                add_count(&mut row.calls, part.calls);
                add(&mut row.time_ns, part.time_ns);
                row.reachable_ns += part.reachable_ns;
            })
            .or_insert_with(|| (1, part.clone()));
    }
    let everywhere = rows
        .into_values()
        .filter(|(on, _)| *on >= reports.len())
        .map(|(_, row)| row);
    let mut rows: Vec<AlreadyFast> = everywhere
        .map(|row| AlreadyFast {
            share: share_of_busy(row.time_ns, busy_ns),
            ..row
        })
        .collect();
    rows.sort_by(|a, b| {
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| a.place.cmp(&b.place))
            .then_with(|| a.operator.cmp(&b.operator))
    });
    rows.truncate(MAX_ALREADY_FAST);
    rows
}

/// What came before the analyzed windows: the longest set-up, and all copies.
pub(super) fn setup(reports: &[Report]) -> SetUp {
    let mut all = SetUp::default();
    let mut excluded: BTreeMap<Exclusion, ExcludedWork> = BTreeMap::new();
    for part in reports.iter().map(|r| &r.setup) {
        all.ns = all.ns.max(part.ns);
        all.first_launch_ns = all.first_launch_ns.max(part.first_launch_ns);
        add_count(&mut all.copies, part.copies);
        add_count(&mut all.copied_bytes, part.copied_bytes);
        add(&mut all.copied_ns, part.copied_ns);
        add_count(&mut all.pageable_copies, part.pageable_copies);
        add_count(&mut all.copies_after, part.copies_after);
        add(&mut all.loading_ns, part.loading_ns);
        add(&mut all.profiler_ns, part.profiler_ns);
        for work in &part.excluded {
            let sum = excluded.entry(work.why).or_insert(ExcludedWork {
                why: work.why,
                kernels: 0,
                kernel_ns: 0,
            });
            add_count(&mut sum.kernels, work.kernels);
            add(&mut sum.kernel_ns, work.kernel_ns);
        }
    }
    all.excluded = excluded.into_values().collect();
    all
}

pub(super) fn skipped(reports: &[Report]) -> Vec<SkippedRules> {
    let mut rows: IndexMap<&str, SkippedRules> = IndexMap::new();
    for part in reports.iter().flat_map(|r| &r.skipped) {
        rows.entry(&part.needs)
            .and_modify(|row| {
                row.facts.extend(part.facts.iter().cloned());
                row.rules.extend(part.rules.iter().cloned());
                row.time_ns += part.time_ns;
            })
            .or_insert_with(|| part.clone());
    }
    SkippedRules::in_order(rows.into_values())
}

pub(super) fn unattributed(reports: &[Report], kernel_time_ns: i64) -> Vec<Unattributed> {
    let mut rows: IndexMap<(&str, &str), Unattributed> = IndexMap::new();
    for part in reports.iter().flat_map(|r| &r.unattributed) {
        rows.entry((&part.reason, &part.text))
            .and_modify(|row| {
                add_count(&mut row.kernels, part.kernels);
                add(&mut row.time_ns, part.time_ns);
            })
            .or_insert_with(|| part.clone());
    }
    let mut rows: Vec<Unattributed> = rows.into_values().collect();
    for row in &mut rows {
        row.share = share(row.time_ns as f64, kernel_time_ns as f64);
    }
    rows.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.text.cmp(&b.text)));
    rows
}

pub(super) fn cost_unknown(reports: &[Report], kernel_time_ns: i64) -> Vec<CostUnknown> {
    let mut rows: IndexMap<&str, CostUnknown> = IndexMap::new();
    for part in reports.iter().flat_map(|r| &r.cost_unknown) {
        rows.entry(&part.reason)
            .and_modify(|row| {
                add(&mut row.time_ns, part.time_ns);
                row.operators.extend(part.operators.iter().cloned());
            })
            .or_insert_with(|| part.clone());
    }
    let mut rows: Vec<CostUnknown> = rows.into_values().collect();
    for row in &mut rows {
        row.share = share(row.time_ns as f64, kernel_time_ns as f64);
        row.operators = distinct(std::mem::take(&mut row.operators).into_iter());
        row.operators.truncate(MAX_UNKNOWN_NAMES);
    }
    rows.sort_by(|a, b| {
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| a.reason.cmp(&b.reason))
    });
    rows
}

pub(super) fn faults(reports: &[Report]) -> Vec<Fault> {
    let mut rows: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for fault in reports.iter().flat_map(|r| &r.faults) {
        add_count(
            rows.entry((&fault.rule, &fault.message)).or_default(),
            fault.count,
        );
    }
    rows.into_iter()
        .map(|((rule, message), count)| Fault {
            rule: rule.to_owned(),
            message: message.to_owned(),
            count,
        })
        .collect()
}

pub(super) fn user_costs(reports: &[Report]) -> Vec<UserCosted> {
    let mut rows: IndexMap<&str, UserCosted> = IndexMap::new();
    for part in reports.iter().flat_map(|r| &r.method.user_costs) {
        rows.entry(&part.file)
            .and_modify(|row| {
                row.operators.extend(part.operators.iter().cloned());
                add_count(&mut row.calls, part.calls);
                add(&mut row.time_ns, part.time_ns);
            })
            .or_insert_with(|| part.clone());
    }
    let mut rows: Vec<UserCosted> = rows.into_values().collect();
    for row in &mut rows {
        row.operators = distinct(std::mem::take(&mut row.operators).into_iter());
    }
    rows
}
