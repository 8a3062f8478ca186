//! The timeline of each device: the analysed window, busy time by kind of work, exposed time, and the
//! causes of idle time.
//!
//! One sweep per device over the starts and ends of everything that ran on it. Every figure is the
//! length of a union of intervals, so work on several streams or of several processes counts once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::model::{DeviceTimeline, SetUp, Timeline, Window};
use crate::profile::{DeviceId, ProcessId, Profile, Span};

mod gaps;
mod work;
pub(crate) use gaps::{HOST_BUSY_NS, is_profilers_own};
pub(crate) use work::TimelineInputs;
use work::{WorkItem, WorkKind, is_pageable};
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr)]
mod real_profile_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// The timeline of a profile.
#[derive(Debug)]
pub(crate) struct DeviceTimes {
    pub timeline: Timeline,
    pub window: Window,
    /// Per kernel: ns during which nothing else ran on its device, inside the window.
    pub exposed: Vec<i64>,
    /// Per kernel: counted in the window.
    pub inside: Vec<bool>,
}

/// Computes window, timeline and gaps. `is_communication` is asked once per distinct kernel name.
pub(crate) fn times(
    profile: &Profile,
    hints: &TimelineInputs<'_>,
    is_communication: &dyn Fn(&str) -> bool,
) -> DeviceTimes {
    let inside = inside(profile, hints);
    let first = FirstWork::of(profile, |_| true);
    let judged = FirstWork::of(profile, |kernel| {
        inside.get(kernel).copied().unwrap_or_default()
    });
    let mut window = Window {
        span: None,
        setup: set_up(profile, &first, &inside),
    };
    let mut exposed = vec![0; profile.kernels.len()];
    let mut timeline = Timeline::default();
    let host = gaps::HostActivity::of(profile, hints);
    let work = work_by_device(profile, &judged, is_communication);
    for (index, items) in work.into_iter().enumerate() {
        let Some(device) = sweep(DeviceId::new(index), &items, &host, &mut exposed) else {
            continue;
        };
        let span = device.span;
        window.span = Some(window.span.map_or(span, |w| Span {
            start: w.start.min(span.start),
            end: w.end.max(span.end),
        }));
        timeline.devices.push(device);
    }
    for (time, inside) in exposed.iter_mut().zip(&inside) {
        if !inside {
            *time = 0;
        }
    }
    window.setup.first_launch_ns = host.longest_first_launch(&timeline, window.span);
    DeviceTimes {
        timeline,
        window,
        exposed,
        inside,
    }
}

/// Per kernel: whether it was launched outside declared warm-up. A declaration that covers everything
/// is ignored, because nothing would be left to analyse. The little work before the first warm-up, such
/// as weight initialisation, is excluded too.
fn inside(profile: &Profile, hints: &TimelineInputs<'_>) -> Vec<bool> {
    /// Maximum share of the kernel time outside warm-up for work before warm-up to be excluded.
    const LITTLE: f64 = 0.1;
    let mut warmup = hints.warmup.to_vec();
    warmup.sort_unstable();
    let first = warmup.first().map(|span| span.start);
    let warm = gaps::Intervals::merged(warmup.into_iter().map(|span| (span, None)).collect());
    let launched: Vec<i64> = profile
        .kernels
        .iter()
        .enumerate()
        .map(|(index, kernel)| {
            let launch = hints.launches.get(index).copied().flatten();
            launch
                .and_then(|call| profile.calls.get(call.idx()))
                .map_or(kernel.span.start, |call| call.span.start)
        })
        .collect();
    let mut inside: Vec<bool> = launched.iter().map(|&at| !warm.contains(at)).collect();
    if profile.graphs.is_empty() && !inside.contains(&true) {
        return vec![true; inside.len()];
    }
    let early = |at: i64| first.is_some_and(|first| at < first);
    let (mut before_ns, mut all_ns) = (0_i64, 0_i64);
    for ((kernel, &at), &counts) in profile.kernels.iter().zip(&launched).zip(&inside) {
        let ns = if counts { kernel.span.ns() } else { 0 };
        all_ns = all_ns.saturating_add(ns);
        before_ns = before_ns.saturating_add(if early(at) { ns } else { 0 });
    }
    if before_ns as f64 <= LITTLE * all_ns as f64 {
        for (counts, &at) in inside.iter_mut().zip(&launched) {
            *counts &= !early(at);
        }
    }
    inside
}

/// When computing began: the first kernel or graph of each process on each device.
#[derive(Debug, Default)]
struct FirstWork {
    here: FxHashMap<(ProcessId, DeviceId), i64>,
    process: FxHashMap<ProcessId, i64>,
    any: Option<i64>,
}

impl FirstWork {
    fn of(profile: &Profile, counts: impl Fn(usize) -> bool) -> FirstWork {
        let mut first = FirstWork::default();
        let kernels = profile.kernels.iter().enumerate();
        let kernels = kernels.filter(|(index, _)| counts(*index));
        let kernels = kernels.map(|(_, k)| (k.process, k.device, k.span.start));
        let graphs = profile.graphs.iter();
        let graphs = graphs.map(|g| (g.process, g.device, g.span.start));
        // Mostly one process works on a device, and what was seen first is the earliest.
        let mut last = vec![None; profile.devices.len()];
        for (process, device, start) in kernels.chain(graphs) {
            let Some(last) = last.get_mut(device.idx()) else {
                continue;
            };
            if last.is_none_or(|(other, since)| other != process || start < since) {
                *last = Some((process, start));
                first.add(process, device, start);
            }
        }
        first
    }

    fn add(&mut self, process: ProcessId, device: DeviceId, start: i64) {
        let earlier = |old: &mut i64| *old = (*old).min(start);
        self.here
            .entry((process, device))
            .and_modify(earlier)
            .or_insert(start);
        self.process
            .entry(process)
            .and_modify(earlier)
            .or_insert(start);
        self.any = Some(self.any.map_or(start, |old| old.min(start)));
    }

    /// Copies that end by then are set-up: a model on its way to the device.
    fn before(&self, process: ProcessId, device: DeviceId) -> Option<i64> {
        self.here
            .get(&(process, device))
            .or_else(|| self.process.get(&process))
            .copied()
            .or(self.any)
    }
}

fn set_up(profile: &Profile, first: &FirstWork, inside: &[bool]) -> SetUp {
    let mut setup = SetUp {
        warmup_kernels: inside.iter().filter(|i| !**i).count() as u64,
        ..SetUp::default()
    };
    let begins = [
        profile.kernels.first().map(|k| k.span.start),
        profile.calls.first().map(|c| c.span.start),
        profile.ranges.first().map(|r| r.span.start),
        profile.copies.first().map(|c| c.span.start),
    ];
    if let (Some(begin), Some(end)) = (begins.into_iter().flatten().min(), first.any) {
        setup.ns = end.saturating_sub(begin).max(0);
    }
    let mut spans = Vec::new();
    for copy in &profile.copies {
        let before = first.before(copy.process, copy.device);
        if before.is_some_and(|time| copy.span.end > time) {
            continue;
        }
        setup.copies += 1;
        setup.copied_bytes = setup.copied_bytes.saturating_add(copy.bytes);
        setup.pageable_copies += u64::from(is_pageable(copy));
        spans.push((copy.span, None));
    }
    setup.copied_ns = gaps::Intervals::merged(spans).total();
    setup
}

/// Everything inside the window, per device, kernels first.
fn work_by_device(
    profile: &Profile,
    judged: &FirstWork,
    is_communication: &dyn Fn(&str) -> bool,
) -> Vec<Vec<WorkItem>> {
    let count = profile.devices.len();
    let all = [
        profile.kernels.len(),
        profile.graphs.len(),
        profile.copies.len(),
        profile.sets.len(),
    ];
    // The amount of work differs slightly between devices.
    let even = all.iter().sum::<usize>() / count.max(1);
    let room = even + even / 8;
    let mut devices: Vec<Vec<WorkItem>> = Vec::new();
    devices.resize_with(count, || Vec::with_capacity(room));
    let mut last = vec![None; profile.devices.len()];
    let mut add = |device: DeviceId, process, span: Span, kind, row: usize| {
        let (Some(items), Some(last)) = (devices.get_mut(device.idx()), last.get_mut(device.idx()))
        else {
            return;
        };
        let begin = match *last {
            Some((other, begin)) if other == process => begin,
            _ => judged.before(process, device),
        };
        *last = Some((process, begin));
        let Some(begin) = begin else {
            return;
        };
        // Work that began before the window counts from the start of the window.
        let span = Span {
            start: span.start.max(begin),
            end: span.end.max(span.start),
        };
        if span.end >= span.start {
            let row = u32::try_from(row).unwrap_or(u32::MAX);
            items.push(WorkItem { span, kind, row });
        }
    };
    let mut asked: Vec<Option<bool>> = vec![None; profile.strings.len()];
    for (row, kernel) in profile.kernels.iter().enumerate() {
        let ask = || is_communication(profile.text(kernel.name));
        let communication = match asked.get_mut(kernel.name.idx()) {
            Some(answer) => *answer.get_or_insert_with(ask),
            None => ask(),
        };
        let kind = if communication {
            WorkKind::Communication
        } else {
            WorkKind::Kernel
        };
        add(kernel.device, kernel.process, kernel.span, kind, row);
    }
    for (row, graph) in profile.graphs.iter().enumerate() {
        add(
            graph.device,
            graph.process,
            graph.span,
            WorkKind::Graph,
            row,
        );
    }
    for (row, copy) in profile.copies.iter().enumerate() {
        // A host-to-host copy does not occupy a device.
        if copy.kind != crate::profile::CopyKind::HtoH {
            add(copy.device, copy.process, copy.span, WorkKind::Copy, row);
        }
    }
    for (row, set) in profile.sets.iter().enumerate() {
        add(set.device, set.process, set.span, WorkKind::Set, row);
    }
    devices
}

/// How many items of each kind are running.
#[derive(Debug, Default, Clone, Copy)]
struct Running {
    kernels: u32,
    communication: u32,
    copies: u32,
    sets: u32,
    graphs: u32,
}

impl Running {
    fn change(&mut self, kind: WorkKind, opens: bool) {
        let count = match kind {
            WorkKind::Kernel => &mut self.kernels,
            WorkKind::Communication => &mut self.communication,
            WorkKind::Copy => &mut self.copies,
            WorkKind::Set => &mut self.sets,
            WorkKind::Graph => &mut self.graphs,
        };
        *count = if opens {
            count.saturating_add(1)
        } else {
            count.saturating_sub(1)
        };
    }

    fn total(&self) -> u64 {
        [
            self.kernels,
            self.communication,
            self.copies,
            self.sets,
            self.graphs,
        ]
        .iter()
        .map(|&n| u64::from(n))
        .sum()
    }
}

/// Lengths of unions, in ns; the fields of [`DeviceTimeline`].
#[derive(Debug, Default)]
struct UnionTimes {
    busy: i64,
    kernel: i64,
    copy: i64,
    comm: i64,
    exposed_copy: i64,
    exposed_comm: i64,
    graph: i64,
    /// Exactly one item ran.
    alone: i64,
}

impl UnionTimes {
    fn add(&mut self, running: Running, ns: i64) {
        let computing = running.kernels > 0 || running.graphs > 0;
        let kernel = computing || running.communication > 0;
        let count = |sum: &mut i64, when: bool| {
            if when {
                *sum = sum.saturating_add(ns);
            }
        };
        count(&mut self.busy, running.total() > 0);
        count(&mut self.alone, running.total() == 1);
        count(&mut self.kernel, kernel);
        count(&mut self.copy, running.copies > 0);
        count(&mut self.comm, running.communication > 0);
        count(&mut self.graph, running.graphs > 0);
        count(&mut self.exposed_copy, running.copies > 0 && !kernel);
        count(
            &mut self.exposed_comm,
            running.communication > 0 && !computing,
        );
    }
}

/// The starts and ends of items in time order. Starts come before ends at the same time, so that an
/// item of no length opens before it closes; among equals the first item is first.
///
/// Few items run at a time, so the ends wait in a heap: sorting all of them took several times as
/// long.
struct WorkEdges<'a> {
    items: &'a [WorkItem],
    /// By start.
    opening: std::iter::Peekable<std::vec::IntoIter<u32>>,
    running: BinaryHeap<Reverse<(i64, u32)>>,
}

/// An item starts or ends.
#[derive(Debug, Clone, Copy)]
struct WorkEdge<'a> {
    time: i64,
    item: &'a WorkItem,
    closes: bool,
}

impl<'a> WorkEdges<'a> {
    fn of(items: &'a [WorkItem]) -> WorkEdges<'a> {
        let mut order: Vec<u32> = (0..).zip(items).map(|(at, _)| at).collect();
        // Each table comes in this order, so there are only a few runs to merge.
        order.sort_by_key(|at| items.get(*at as usize).map(|i| i.span.start));
        WorkEdges {
            items,
            opening: order.into_iter().peekable(),
            running: BinaryHeap::new(),
        }
    }

    fn item(&self, at: u32) -> Option<&'a WorkItem> {
        self.items.get(at as usize)
    }
}

impl<'a> Iterator for WorkEdges<'a> {
    type Item = WorkEdge<'a>;

    fn next(&mut self) -> Option<WorkEdge<'a>> {
        let opening = self.opening.peek().copied();
        let opening = opening.and_then(|at| Some((at, self.item(at)?)));
        let closing = self.running.peek().copied();
        if let Some((at, item)) = opening
            && closing.is_none_or(|Reverse((end, _))| item.span.start <= end)
        {
            self.opening.next();
            self.running.push(Reverse((item.span.end, at)));
            let time = item.span.start;
            let closes = false;
            return Some(WorkEdge { time, item, closes });
        }
        let Reverse((time, at)) = self.running.pop()?;
        let item = self.item(at)?;
        let closes = true;
        Some(WorkEdge { time, item, closes })
    }
}

/// Walks over one device's items in time; adds to `exposed` what each kernel ran alone.
fn sweep(
    device: DeviceId,
    items: &[WorkItem],
    host: &gaps::HostActivity<'_>,
    exposed: &mut [i64],
) -> Option<DeviceTimeline> {
    let mut span = Span {
        start: items.iter().map(|i| i.span.start).min()?,
        end: i64::MIN,
    };
    let mut running = Running::default();
    let mut figures = UnionTimes::default();
    let mut gaps = Vec::with_capacity(items.len());
    let mut now = span.start;
    for edge in WorkEdges::of(items) {
        let work = edge.item;
        span.end = edge.time;
        let past = Span {
            start: now,
            end: edge.time,
        };
        if past.ns() > 0 {
            figures.add(running, past.ns());
            if running.total() == 0 {
                gaps.push(host.gap(past, work));
            }
            now = edge.time;
        }
        running.change(work.kind, !edge.closes);
        if matches!(work.kind, WorkKind::Kernel | WorkKind::Communication)
            && let Some(time) = exposed.get_mut(work.row as usize)
        {
            // While this item runs, "exactly one runs" means that it runs alone.
            let sign = if edge.closes { 1 } else { -1 };
            *time = time.saturating_add(sign * figures.alone);
        }
    }
    gaps.shrink_to_fit();
    Some(DeviceTimeline {
        device,
        span,
        busy_ns: figures.busy,
        kernel_ns: figures.kernel,
        copy_ns: figures.copy,
        comm_ns: figures.comm,
        exposed_copy_ns: figures.exposed_copy,
        exposed_comm_ns: figures.exposed_comm,
        graph_ns: figures.graph,
        gaps,
    })
}
