//! Facts of idle intervals, grouped by device and cause.

use std::collections::BTreeMap;

use super::{Answer, Entry, Subject, Table, fact};
use crate::correlate::{GapCause, Run};
use crate::profile::StrId;

/// Gaps of one device with one cause.
#[derive(Debug, Clone)]
pub(super) struct GapGroup {
    pub(super) ordinal: u32,
    pub(super) cause: GapCause,
    pub(super) count: u64,
    pub(super) time_ns: f64,
    pub(super) longest_ns: f64,
    pub(super) median_ns: f64,
    pub(super) window_ns: f64,
    /// The host call blamed for most of the time.
    pub(super) api: Option<StrId>,
}

/// A group in its table.
pub(super) struct GapScope<'a> {
    pub(super) table: &'a Table<'a>,
    pub(super) group: &'a GapGroup,
}

/// What these facts are asked of.
pub(super) struct Gaps;
impl Subject for Gaps {
    type Of<'a> = GapScope<'a>;
}

/// All gaps inside the window in groups, by device and cause.
pub(super) fn groups(run: &Run) -> Vec<GapGroup> {
    let mut groups = Vec::new();
    for device in &run.timeline.devices {
        let mut by_cause: BTreeMap<GapCause, (Vec<i64>, BTreeMap<StrId, i64>)> = BTreeMap::new();
        for gap in &device.gaps {
            let (lengths, blamed) = by_cause.entry(gap.cause).or_default();
            lengths.push(gap.span.ns());
            if let Some(call) = gap.call.and_then(|id| run.profile.calls.get(id.idx())) {
                *blamed.entry(call.name).or_default() += gap.span.ns();
            }
        }
        for (cause, (mut lengths, blamed)) in by_cause {
            lengths.sort_unstable();
            groups.push(GapGroup {
                ordinal: run
                    .profile
                    .devices
                    .get(device.device.idx())
                    .map_or(0, |d| d.ordinal),
                cause,
                count: lengths.len() as u64,
                time_ns: lengths.iter().map(|&ns| ns as f64).sum(),
                longest_ns: lengths.last().copied().unwrap_or(0) as f64,
                median_ns: lengths.get(lengths.len() / 2).copied().unwrap_or(0) as f64,
                window_ns: device.span.ns() as f64,
                api: blamed
                    .into_iter()
                    .max_by_key(|&(name, ns)| (ns, std::cmp::Reverse(name)))
                    .map(|(name, _)| name),
            });
        }
    }
    groups
}

pub(super) const ENTRIES: &[Entry<Gaps>] = &[
    fact!(
        "gap.cause",
        Str,
        "",
        &[],
        NOTHING,
        "`profiler_overhead`, `data_loading`, `after_sync`, `blocking_copy`, `allocation`, `module_load`, `host_late`, `waiting` or `unknown`",
        |g| Answer::word(g.group.cause.name())
    ),
    fact!(
        "gap.device",
        Int,
        "",
        &[],
        NOTHING,
        "CUDA ordinal of the idle device",
        |g| Answer::int(u64::from(g.group.ordinal))
    ),
    fact!("gap.count", Int, "", &[], NOTHING, "Idle intervals", |g| {
        Answer::int(g.group.count)
    }),
    fact!(
        "gap.time_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Idle time, summed",
        |g| Answer::double(g.group.time_ns)
    ),
    fact!(
        "gap.longest_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Longest idle interval",
        |g| Answer::double(g.group.longest_ns)
    ),
    fact!(
        "gap.median_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Median idle interval",
        |g| Answer::double(g.group.median_ns)
    ),
    fact!(
        "gap.window_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Idle time as a share of its device's window",
        |g| {
            if g.group.window_ns > 0.0 {
                Answer::double(g.group.time_ns / g.group.window_ns)
            } else {
                Answer::Absent
            }
        }
    ),
    fact!(
        "gap.api",
        Str,
        "",
        &[],
        API,
        "The host call blamed for most of it",
        |g| Answer::maybe_word(g.group.api.map(|id| g.table.costed.run.profile.text(id)))
    ),
];
