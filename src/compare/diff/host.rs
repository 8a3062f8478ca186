//! What the host did differently: launches, waits, and idle intervals of the GPU by length.

use super::basis::DiffBasis;
use super::limits::{FLOOR, ratio};
use super::model::{Change, HostChange};
use crate::compare::welch::SAME;
use crate::report::{GapClass, Launching, Report};

/// Most rows.
const MAX_ROWS: usize = 12;

/// Changes of the host per unit of work, largest change of time first. Empty without a unit, because counts
/// of captures of different lengths cannot be compared.
pub(super) fn changes(basis: &DiffBasis<'_>, before: &Report, after: &Report) -> Vec<HostChange> {
    if basis.unit.is_call() {
        return Vec::new();
    }
    let (b, a) = (&before.launching, &after.launching);
    let mut rows = gaps(b, a);
    rows.extend(waits(b, a));
    if b.launches > 0 && a.launches > 0 {
        let launches = |host: &Launching| (host.launches, host.launch_ns);
        rows.push(row(
            "launch calls".to_owned(),
            false,
            launches(b),
            launches(a),
        ));
    }
    let (old, new) = basis.scale;
    for row in &mut rows {
        row.before_count *= old;
        row.before_ns *= old;
        row.after_count *= new;
        row.after_ns *= new;
    }
    let wall = basis
        .common
        .map_or(0.0, |common| common.change().before.wall_ns);
    let by = |row: &HostChange| (row.after_ns - row.before_ns).abs();
    rows.retain(|row| {
        let same = (ratio(row.before_ns, row.after_ns) - 1.0).abs() <= SAME;
        by(row) >= FLOOR * wall && !same
    });
    rows.sort_by(|x, y| by(y).total_cmp(&by(x)).then_with(|| x.what.cmp(&y.what)));
    rows.truncate(MAX_ROWS);
    rows
}

/// How fast both hosts launch.
pub(super) fn launch_interval(before: &Report, after: &Report) -> Option<Change> {
    let of = |report: &Report| report.launching.launch_interval_ns.filter(|ns| *ns > 0);
    Some(Change::new(of(before)? as f64, of(after)? as f64))
}

fn gaps(before: &Launching, after: &Launching) -> Vec<HostChange> {
    let class = |host: &Launching, from_ns: i64| {
        let found = host.gaps.iter().find(|class| class.from_ns == from_ns);
        found.map_or((0, 0), |class| (class.count, class.ns))
    };
    let of = |shown: &GapClass| {
        let what = format!("gaps {}", length(shown));
        let at = shown.from_ns;
        row(what, true, class(before, at), class(after, at))
    };
    before.gaps.iter().map(of).collect()
}

/// A change between two numbers of events with their time in ns.
fn row(what: String, is_gap: bool, before: (u64, i64), after: (u64, i64)) -> HostChange {
    HostChange {
        what,
        is_gap,
        before_count: before.0 as f64,
        after_count: after.0 as f64,
        before_ns: before.1 as f64,
        after_ns: after.1 as f64,
    }
}

/// `of 20 to 100 us`.
fn length(class: &GapClass) -> String {
    match (class.from_ns, class.to_ns) {
        (0, Some(to)) => format!("below {}", short(to)),
        (from, Some(to)) if to <= 100_000 => format!("of {} to {}", from / 1_000, short(to)),
        (from, Some(to)) => format!("of {} to {}", short(from), short(to)),
        (from, None) => format!("above {}", short(from)),
    }
}

/// The bound of a class of lengths: `100 us`, `10 ms`.
fn short(ns: i64) -> String {
    match ns {
        ..1_000_000 => format!("{} us", ns / 1_000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

fn waits(before: &Launching, after: &Launching) -> Vec<HostChange> {
    let of = |host: &Launching, name: &str| {
        let found = host.waits.iter().find(|wait| wait.name == name);
        found.map_or((0, 0), |wait| (wait.count, wait.ns))
    };
    let mut names: Vec<&str> = Vec::new();
    for wait in before.waits.iter().chain(&after.waits) {
        if !names.contains(&wait.name.as_str()) {
            names.push(&wait.name);
        }
    }
    let row = |name: &str| row(name.to_owned(), false, of(before, name), of(after, name));
    names.into_iter().map(row).collect()
}
