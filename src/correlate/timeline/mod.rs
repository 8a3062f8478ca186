//! The timeline of each device: the analyzed window, busy time by kind of work, exposed time, and the
//! causes of idle time.
//!
//! One sweep per device over the starts and ends of everything that ran on it. Every figure is the
//! length of a union of intervals, so work on several streams or of several processes counts once.

use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::model::{
    DeviceTimeline, ExcludedTime, ExcludedWork, Exclusion, Gap, GapCause, SetUp, Timeline, Window,
};
use crate::profile::{CallId, DeviceId, ProcessId, Profile, Span};

mod gaps;
mod overlap;
mod siblings;
mod window_end;
mod work;
pub(crate) use gaps::{HOST_BUSY_NS, is_profilers_own};
pub(crate) use siblings::SharedTime;
pub(crate) use work::{Exposed, TimelineInputs};
use work::{OtherWork, WorkEdges, WorkItem, WorkKind, is_pageable};
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
    /// Per kernel: how long nothing else ran on its device, or only communication, inside the window.
    pub exposed: Vec<Exposed>,
    /// Per kernel: counted in the window.
    pub inside: Vec<bool>,
    /// Gaps that are not analyzed because code was loaded.
    pub loads: Vec<Gap>,
    /// The work that ran beside other work.
    pub shared: SharedTime,
}

/// Computes window, timeline and gaps. `is_communication` is asked once per distinct kernel name.
pub(crate) fn times(
    profile: &Profile,
    inputs: &TimelineInputs<'_>,
    is_communication: &dyn Fn(&str) -> bool,
) -> DeviceTimes {
    let (inside, earlier) = inside(profile, inputs);
    let launched = launch_times(profile, inputs.launches).zip(&inside);
    let launched = launched
        .filter(|(_, inside)| **inside)
        .map(|(time, _)| Span {
            start: time,
            end: time,
        });
    let launched = launched.reduce(Span::around);
    let host = gaps::HostIndex::of(profile, inputs, launched);
    let counted =
        |rows: &mut dyn Iterator<Item = OtherWork>| counted(rows, inputs, &host, &earlier);
    let copies = profile.copies.iter();
    let sets = profile.sets.iter();
    let mut window = Window {
        copies: counted(&mut copies.map(|c| (c.process, c.device, c.correlation, c.span))),
        sets: counted(&mut sets.map(|s| (s.process, s.device, s.correlation, s.span))),
        excluded: inputs.excluded.to_vec(),
        ..Window::default()
    };
    let graphs = profile.graphs.iter();
    let graphs = counted(&mut graphs.map(|g| (g.process, g.device, g.correlation, g.span)));
    let work = FirstWork::of(profile, |kernel| {
        inside.get(kernel).copied().unwrap_or_default()
    });
    let begins = WindowStart {
        steps: inputs.steps,
        stepped: stepped(profile, inputs.steps, &work),
        work,
        earlier_until: earlier.iter().map(|work| work.until).collect(),
    };
    let begins = begins.after_earlier_work(profile, &host);
    let stepped = (0..profile.devices.len()).map(DeviceId::new);
    let stepped: Vec<bool> = stepped
        .map(|device| begins.steps_on(device).is_some())
        .collect();
    let launched = launch_times(profile, inputs.launches);
    let last = window_end::last_work(profile, launched, &stepped, (&inside, &graphs));
    let after = window_end::leave_out_what_follows(profile, inputs, &host, (last, &mut window));
    let mut times = DeviceTimes {
        timeline: Timeline::default(),
        window,
        exposed: Vec::new(),
        inside,
        loads: Vec::new(),
        shared: SharedTime::default(),
    };
    let work = WorkTables {
        profile,
        inside: &times.inside,
        copies: &times.window.copies,
        sets: &times.window.sets,
        graphs: &graphs,
    };
    let work = work.by_device(&begins, is_communication);
    let mut loading: Vec<Gap> = Vec::new();
    let sweep_device = |(index, mut items): (usize, Vec<WorkItem>)| {
        let device = DeviceId::new(index);
        // Only while the device is swept: there may be many devices and much excluded time.
        let own = items.len();
        exclude_host_time(&mut items, inputs.excluded);
        let swept = sweep(device, &items, begins.steps_on(device), &host);
        items.truncate(own);
        let exposed = swept.as_ref().map_or(&[][..], |swept| &swept.exposed);
        let rows: Vec<u32> = (items.iter().zip(exposed))
            .map(|(item, _)| item.row)
            .collect();
        let shared = siblings::overlapping(items, exposed);
        (rows, swept, shared)
    };
    let work = work.into_par_iter().enumerate();
    let all: Vec<(Vec<u32>, Option<Swept>, Vec<WorkItem>)> = work.map(sweep_device).collect();
    let mut swept: Vec<Swept> = Vec::new();
    times.exposed = vec![Exposed::default(); profile.kernels.len()];
    for (rows, of_device, shared) in all {
        times.shared.keep(shared);
        let Some(mut of_device) = of_device else {
            continue;
        };
        for (row, own) in rows.into_iter().zip(std::mem::take(&mut of_device.exposed)) {
            if let Some(time) = times.exposed.get_mut(row as usize) {
                *time = own;
            }
        }
        swept.push(of_device);
    }
    let idle_devices = take_idle_devices(&mut swept);
    times.leave_out(profile, &idle_devices);
    for swept in swept {
        let span = swept.timeline.span;
        times.window.span = Some(times.window.span.map_or(span, |window| window.around(span)));
        loading.extend(swept.loading);
        times.timeline.devices.push(swept.timeline);
    }
    for (time, inside) in times.exposed.iter_mut().zip(&times.inside) {
        if !inside {
            *time = Exposed::default();
        }
    }
    let mut setup = set_up(profile, &begins, times.window.span);
    setup.excluded = excluded_work(profile, inputs, &times.inside, &idle_devices);
    setup.copies_after = after;
    let idle = |cause: GapCause| {
        let gaps = loading.iter().filter(|gap| gap.cause == cause);
        gaps.fold(0, |sum: i64, gap| sum.saturating_add(gap.span.ns()))
    };
    setup.loading_ns = idle(GapCause::ModuleLoad);
    setup.profiler_ns = idle(GapCause::ProfilerOverhead);
    setup.first_launch_ns = host.longest_first_launch(&loading, times.window.span);
    times.window.setup = setup;
    loading.retain(|gap| gap.cause == GapCause::ModuleLoad);
    times.window.loads = loading.iter().map(|gap| gap.span).collect();
    times.loads = loading;
    times
}

/// A device that works for less than this share of the time of the busiest has no part in what the program computes:
/// a context by mistake, a test of another GPU.
const IDLE_DEVICE: f64 = 0.01;

/// Removes the devices that do next to nothing, and returns which.
fn take_idle_devices(swept: &mut Vec<Swept>) -> Vec<DeviceId> {
    let most = swept.iter().map(|swept| swept.timeline.busy_ns).max();
    let least = IDLE_DEVICE * most.unwrap_or(0) as f64;
    let idle = swept.extract_if(.., |swept| (swept.timeline.busy_ns as f64) < least);
    idle.map(|swept| swept.timeline.device).collect()
}

impl DeviceTimes {
    /// Leaves out the work of devices.
    fn leave_out(&mut self, profile: &Profile, devices: &[DeviceId]) {
        if devices.is_empty() {
            return;
        }
        fn mark(inside: &mut [bool], devices: &[DeviceId], of: impl Iterator<Item = DeviceId>) {
            for (inside, device) in inside.iter_mut().zip(of) {
                *inside &= !devices.contains(&device);
            }
        }
        mark(
            &mut self.inside,
            devices,
            profile.kernels.iter().map(|k| k.device),
        );
        mark(
            &mut self.window.copies,
            devices,
            profile.copies.iter().map(|c| c.device),
        );
        mark(
            &mut self.window.sets,
            devices,
            profile.sets.iter().map(|s| s.device),
        );
    }
}

/// When each kernel was launched; its own start where the launch is not known.
pub(crate) fn launch_times<'a>(
    profile: &'a Profile,
    launches: &'a [Option<CallId>],
) -> impl Iterator<Item = i64> + 'a {
    profile
        .kernels
        .iter()
        .zip(launches)
        .map(|(kernel, launch)| launch_time(profile, kernel.span, *launch))
}

/// When work was launched that ran in a span; its start where the launch is not known.
pub(crate) fn launch_time(profile: &Profile, work: Span, launch: Option<CallId>) -> i64 {
    let call = launch.and_then(|call| profile.call(call));
    call.map_or(work.start, |call| call.span.start)
}

/// Per kernel: whether it was launched in time that is analyzed. Exclusions that cover everything are
/// ignored, because nothing would be left to analyze. Also the work from before the capture.
fn inside(profile: &Profile, inputs: &TimelineInputs<'_>) -> (Vec<bool>, Vec<EarlierWork>) {
    let devices = || vec![EarlierWork::default(); profile.devices.len()];
    if inputs.excluded.is_empty() {
        return (vec![true; profile.kernels.len()], devices());
    }
    let excluded = excluded_intervals(inputs);
    let launched = launch_times(profile, inputs.launches);
    let mut inside: Vec<bool> = launched.map(|at| !excluded.contains(at)).collect();
    if profile.graphs.is_empty() && !inside.contains(&true) {
        return (vec![true; inside.len()], devices());
    }
    let mut earlier = steps_begin(profile, inputs, &inside);
    let kernels = profile.kernels.iter().zip(inputs.launches);
    for ((kernel, launch), inside) in kernels.zip(&mut inside) {
        let Some(earlier) = earlier.get_mut(kernel.device.idx()) else {
            continue;
        };
        if *inside && launch.is_none() && earlier.began_before(kernel.stream, kernel.span.start) {
            *inside = false;
            earlier.until = earlier.until.max(Some(kernel.span.end));
        }
    }
    (inside, earlier)
}

/// Work of one device that was launched before the capture began: it belongs to earlier steps.
#[derive(Debug, Clone, Default)]
struct EarlierWork {
    /// Per stream: when the first kernel starts that was launched in an analyzed step. What runs before it
    /// without a launch is earlier work. Empty without steps, or where the launches of many kernels are
    /// missing for another reason.
    begins: FxHashMap<u32, i64>,
    /// When the last kernel of earlier work ends.
    until: Option<i64>,
}

impl EarlierWork {
    /// When the first kernel starts that was launched in an analyzed step.
    fn first(&self) -> Option<i64> {
        self.begins.values().copied().min()
    }

    /// Whether something that starts then on a stream is before the kernels launched in analyzed steps.
    fn began_before(&self, stream: u32, start: i64) -> bool {
        let begin = self.begins.get(&stream).copied().or_else(|| self.first());
        begin.is_some_and(|begin| start < begin)
    }
}

/// Share of the kernels after the first launched one of their stream whose launches must be known.
const LAUNCHES_KNOWN: f64 = 0.95;

/// Per device: when the kernels begin that were launched in analyzed steps.
fn steps_begin(
    profile: &Profile,
    inputs: &TimelineInputs<'_>,
    inside: &[bool],
) -> Vec<EarlierWork> {
    let mut earlier = vec![EarlierWork::default(); profile.devices.len()];
    if inputs.steps.is_empty() {
        return earlier;
    }
    let analysed = || {
        let kernels = profile.kernels.iter().zip(inputs.launches).zip(inside);
        kernels.filter(|(_, inside)| **inside).map(|(pair, _)| pair)
    };
    for (kernel, _) in analysed().filter(|(_, launch)| launch.is_some()) {
        if let Some(earlier) = earlier.get_mut(kernel.device.idx()) {
            let begin = earlier.begins.entry(kernel.stream).or_insert(i64::MAX);
            *begin = (*begin).min(kernel.span.start);
        }
    }
    let mut after = vec![(0_u64, 0_u64); earlier.len()];
    for (kernel, launch) in analysed() {
        let device = kernel.device.idx();
        if let (Some((known, all)), Some(earlier)) = (after.get_mut(device), earlier.get(device))
            && !earlier.began_before(kernel.stream, kernel.span.start)
        {
            *known += u64::from(launch.is_some());
            *all += 1;
        }
    }
    for (earlier, (known, all)) in earlier.iter_mut().zip(after) {
        if (known as f64) < LAUNCHES_KNOWN * all as f64 {
            earlier.begins.clear();
        }
    }
    earlier
}

fn excluded_intervals(inputs: &TimelineInputs<'_>) -> gaps::Intervals {
    let spans = inputs.excluded.iter().map(|e| (e.span, None));
    gaps::Intervals::merged(spans.collect())
}

/// Per row: whether it was launched in time that is analyzed.
fn counted(
    rows: &mut dyn Iterator<Item = OtherWork>,
    inputs: &TimelineInputs<'_>,
    host: &gaps::HostIndex<'_>,
    earlier: &[EarlierWork],
) -> Vec<bool> {
    let excluded = excluded_intervals(inputs);
    rows.map(|(process, device, correlation, span)| {
        let call = host.call(process, correlation);
        let begin = earlier.get(device.idx()).and_then(EarlierWork::first);
        let before = call.is_none() && begin.is_some_and(|begin| span.start < begin);
        let at = call.map_or(span.start, |call| call.span.start);
        !before && !excluded.contains(at)
    })
    .collect()
}

/// Kernels that are not analyzed, by reason. One that several reasons exclude has the first.
fn excluded_work(
    profile: &Profile,
    inputs: &TimelineInputs<'_>,
    inside: &[bool],
    idle_devices: &[DeviceId],
) -> Vec<ExcludedWork> {
    let mut work: BTreeMap<Exclusion, ExcludedWork> = BTreeMap::new();
    if inputs.excluded.is_empty() && idle_devices.is_empty() {
        return Vec::new();
    }
    let mut times: BTreeMap<Exclusion, Vec<Span>> = BTreeMap::new();
    for excluded in inputs.excluded {
        times.entry(excluded.why).or_default().push(excluded.span);
    }
    for spans in times.values_mut() {
        *spans = Span::union(std::mem::take(spans));
    }
    let launched = launch_times(profile, inputs.launches);
    for ((kernel, at), inside) in profile.kernels.iter().zip(launched).zip(inside) {
        if *inside {
            continue;
        }
        let mut reasons = times.iter();
        let why = reasons.find(|(_, spans)| Span::one_contains(spans, at));
        let why = match why {
            _ if idle_devices.contains(&kernel.device) => Exclusion::IdleDevice,
            Some((why, _)) => *why,
            // What no reason covers belongs to steps before the capture.
            None => Exclusion::OutsideSteps,
        };
        let sum = work.entry(why).or_insert(ExcludedWork {
            why,
            kernels: 0,
            kernel_ns: 0,
        });
        sum.kernels += 1;
        sum.kernel_ns = sum.kernel_ns.saturating_add(kernel.span.ns());
    }
    work.into_values().collect()
}

/// When the analyzed time begins on each device: with the first analyzed step of a process, without
/// steps with its first analyzed kernel or graph.
#[derive(Debug)]
struct WindowStart<'a> {
    steps: &'a [Option<Span>],
    /// Per device: the processes whose steps are those of the device.
    stepped: Vec<Vec<ProcessId>>,
    work: FirstWork,
    /// Per device: until when it ran work from before the capture, or the host waited for such work.
    earlier_until: Vec<Option<i64>>,
}

impl WindowStart<'_> {
    fn of(&self, process: ProcessId, device: DeviceId) -> Option<i64> {
        let step = self.steps.get(process.idx()).copied().flatten();
        step.map(|span| self.after_earlier(device, span.start))
            .or_else(|| self.work.before(process, device))
    }

    /// Moves the start behind the time for which the host waited for a device on which nothing recorded
    /// ran: it was busy with work that was launched before the capture.
    fn after_earlier_work(mut self, profile: &Profile, host: &gaps::HostIndex<'_>) -> Self {
        let mut first: Vec<Option<i64>> = vec![None; profile.devices.len()];
        for ((_, device), start) in &self.work.here {
            if let Some(first) = first.get_mut(device.idx()) {
                *first = Some(first.map_or(*start, |first: i64| first.min(*start)));
            }
        }
        // Per device: the time before its first work, how long of it the host waited, and until when.
        let waits = first.into_iter().zip(&self.stepped).enumerate();
        let waits = waits.map(|(device, (first, processes))| {
            let before = Span {
                start: self.steps_on(DeviceId::new(device))?.start,
                end: first?,
            };
            let waits = processes.iter().filter_map(|p| host.waits(*p, before));
            waits.max().map(|(waited, until)| (before, waited, until))
        });
        let waits: Vec<Option<(Span, i64, i64)>> = waits.collect();
        let mut copied = vec![0_i64; waits.len()];
        for copy in &profile.copies {
            let device = copy.device.idx();
            if let Some(Some((before, ..))) = waits.get(device)
                && let Some(copied) = copied.get_mut(device)
            {
                *copied = copied.saturating_add(copy.span.clip(*before).ns().max(0));
            }
        }
        for (device, (wait, copied)) in waits.into_iter().zip(copied).enumerate() {
            if let Some((_, waited, until)) = wait
                && copied < waited / 2
                && let Some(earlier) = self.earlier_until.get_mut(device)
            {
                *earlier = (*earlier).max(Some(until));
            }
        }
        self
    }

    /// From the first to the last step of the processes that work on a device.
    fn steps_on(&self, device: DeviceId) -> Option<Span> {
        let processes = self.stepped.get(device.idx())?.iter();
        let spans =
            processes.filter_map(|process| self.steps.get(process.idx()).copied().flatten());
        let span = spans.reduce(Span::around)?;
        Some(Span {
            start: self.after_earlier(device, span.start),
            ..span
        })
    }

    fn after_earlier(&self, device: DeviceId, start: i64) -> i64 {
        let until = self.earlier_until.get(device.idx()).copied().flatten();
        until.map_or(start, |until| start.max(until))
    }
}

/// Per device: the processes with steps that work on it. The only device is that of all processes.
fn stepped(profile: &Profile, steps: &[Option<Span>], work: &FirstWork) -> Vec<Vec<ProcessId>> {
    let has_steps = |process: ProcessId| steps.get(process.idx()).is_some_and(Option::is_some);
    if profile.devices.len() == 1 {
        let all = (0..steps.len()).map(ProcessId::new);
        return vec![all.filter(|process| has_steps(*process)).collect()];
    }
    let mut stepped = vec![Vec::new(); profile.devices.len()];
    for (process, device) in work.here.keys() {
        if has_steps(*process)
            && let Some(processes) = stepped.get_mut(device.idx())
        {
            processes.push(*process);
        }
    }
    stepped
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

/// What happened before the window, or before the first kernel of the capture if that is earlier.
fn set_up(profile: &Profile, begins: &WindowStart<'_>, window: Option<Span>) -> SetUp {
    let mut setup = SetUp::default();
    let first_events = [
        profile.kernels.first().map(|k| k.span.start),
        profile.calls.first().map(|c| c.span.start),
        profile.ranges.first().map(|r| r.span.start),
        profile.copies.first().map(|c| c.span.start),
    ];
    if let (Some(begin), Some(window)) = (first_events.into_iter().flatten().min(), window) {
        setup.ns = window.start.saturating_sub(begin).max(0);
    }
    let first = FirstWork::of(profile, |_| true);
    let mut spans = Vec::new();
    for copy in &profile.copies {
        let window = begins.of(copy.process, copy.device);
        let computing = first.before(copy.process, copy.device);
        let before = [window, computing].into_iter().flatten().min();
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

/// The GPU work of a profile, and which rows are analyzed.
struct WorkTables<'a> {
    profile: &'a Profile,
    inside: &'a [bool],
    copies: &'a [bool],
    sets: &'a [bool],
    graphs: &'a [bool],
}

impl WorkTables<'_> {
    /// Everything inside the window, per device, kernels first. What is not analyzed is in it as
    /// [`WorkKind::Excluded`].
    fn by_device(
        &self,
        begins: &WindowStart<'_>,
        is_communication: &dyn Fn(&str) -> bool,
    ) -> Vec<Vec<WorkItem>> {
        let profile = self.profile;
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
            let (Some(items), Some(last)) =
                (devices.get_mut(device.idx()), last.get_mut(device.idx()))
            else {
                return;
            };
            let begin = match *last {
                Some((other, begin)) if other == process => begin,
                _ => begins.of(process, device),
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
        let counted = |rows: &[bool], row: usize, kind: WorkKind| match rows.get(row) {
            Some(false) => WorkKind::Excluded,
            _ => kind,
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
            let kind = counted(self.inside, row, kind);
            add(kernel.device, kernel.process, kernel.span, kind, row);
        }
        for (row, graph) in profile.graphs.iter().enumerate() {
            let kind = counted(self.graphs, row, WorkKind::Graph);
            add(graph.device, graph.process, graph.span, kind, row);
        }
        for (row, copy) in profile.copies.iter().enumerate() {
            // A host-to-host copy does not occupy a device.
            if copy.kind != crate::profile::CopyKind::HtoH {
                let kind = counted(self.copies, row, WorkKind::Copy);
                add(copy.device, copy.process, copy.span, kind, row);
            }
        }
        for (row, set) in profile.sets.iter().enumerate() {
            let kind = counted(self.sets, row, WorkKind::Set);
            add(set.device, set.process, set.span, kind, row);
        }
        devices
    }
}

/// Adds the excluded host time that lies between the first and the last analyzed work.
fn exclude_host_time(items: &mut Vec<WorkItem>, excluded: &[ExcludedTime]) {
    let analysed = items.iter().filter(|i| i.kind != WorkKind::Excluded);
    let bounds = analysed.fold(None, |bounds: Option<Span>, item| {
        Some(bounds.map_or(item.span, |bounds| bounds.around(item.span)))
    });
    let Some(bounds) = bounds else {
        return;
    };
    let inside = excluded.iter().map(|e| e.span);
    let inside = inside.filter(|s| s.start > bounds.start && s.end < bounds.end);
    items.extend(inside.map(|span| WorkItem {
        span,
        kind: WorkKind::Excluded,
        row: u32::MAX,
    }));
}

/// How many items of each kind are running.
#[derive(Debug, Default, Clone, Copy)]
struct Running {
    kernels: u32,
    communication: u32,
    copies: u32,
    sets: u32,
    graphs: u32,
    /// Of work that is not analyzed.
    excluded: u32,
}

impl Running {
    fn change(&mut self, kind: WorkKind, opens: bool) {
        let count = match kind {
            WorkKind::Kernel => &mut self.kernels,
            WorkKind::Communication => &mut self.communication,
            WorkKind::Copy => &mut self.copies,
            WorkKind::Set => &mut self.sets,
            WorkKind::Graph => &mut self.graphs,
            WorkKind::Excluded => &mut self.excluded,
        };
        *count = if opens {
            count.saturating_add(1)
        } else {
            count.saturating_sub(1)
        };
    }

    /// How many analyzed items run.
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

    fn computes(&self) -> bool {
        self.kernels > 0 || self.graphs > 0
    }

    /// Adds ns in which these items run to the times of a device.
    fn add_to(&self, device: &mut DeviceTimeline, ns: i64) {
        let computing = self.computes();
        let communicating = self.communication > 0;
        let kernel = computing || communicating;
        let count = |sum: &mut i64, when: bool| {
            if when {
                *sum = sum.saturating_add(ns);
            }
        };
        count(&mut device.busy_ns, self.total() > 0);
        count(&mut device.kernel_ns, kernel);
        count(&mut device.copy_ns, self.copies > 0);
        count(&mut device.comm_ns, communicating);
        count(&mut device.graph_ns, self.graphs > 0);
        count(&mut device.exposed_copy_ns, self.copies > 0 && !kernel);
        count(&mut device.exposed_comm_ns, communicating && !computing);
    }
}

impl Exposed {
    /// Adds ns in which these items run.
    fn add(&mut self, running: &Running, ns: i64) {
        let others = running.total() - u64::from(running.communication);
        match (running.total(), others) {
            (1, _) => self.alone_ns = self.alone_ns.saturating_add(ns),
            (_, 1) => self.beside_comm_ns = self.beside_comm_ns.saturating_add(ns),
            _ => {}
        }
    }
}

/// The timeline of one device, and the gaps in it that are not analyzed.
struct Swept {
    timeline: DeviceTimeline,
    loading: Vec<Gap>,
    /// Per item of the device up to the last kernel: what ran beside it. Kernels come first.
    exposed: Vec<Exposed>,
}

/// Walks over one device's items in time. `steps` is the host time from the first to the last step.
fn sweep(
    device: DeviceId,
    items: &[WorkItem],
    steps: Option<Span>,
    host: &gaps::HostIndex<'_>,
) -> Option<Swept> {
    let analysed = || items.iter().filter(|i| i.kind != WorkKind::Excluded);
    let first = analysed().map(|i| i.span.start).min()?;
    let last = analysed().map(|i| i.span.end).max()?;
    let span = Span {
        start: steps.map_or(first, |steps| steps.start.min(first)),
        end: steps.map_or(last, |steps| steps.end.max(last)),
    };
    let kernels = items.iter().rposition(|item| item.kind.is_kernel());
    let mut exposed = vec![Exposed::default(); kernels.map_or(0, |last| last + 1)];
    let mut running = Running::default();
    let mut timeline = DeviceTimeline {
        gaps: Vec::with_capacity(items.len()),
        ..DeviceTimeline::empty(device, span)
    };
    // Time in which exactly one item ran, and in which one ran beside communication.
    let mut past_sums = Exposed::default();
    let mut slack = overlap::CommunicationSlack::default();
    let mut loading = Vec::new();
    let mut excluded: Vec<Span> = Vec::new();
    let mut exclude = |span: Span| match excluded.last_mut() {
        Some(last) if last.end == span.start => last.end = span.end,
        _ => excluded.push(span),
    };
    let mut now = span.start;
    for edge in WorkEdges::of(items) {
        let work = edge.item;
        let past = Span {
            start: now,
            end: edge.time.min(span.end),
        };
        if past.ns() > 0 {
            running.add_to(&mut timeline, past.ns());
            slack.pass(running.computes(), running.communication > 0, past.ns());
            past_sums.add(&running, past.ns());
            if running.total() == 0 {
                if running.excluded > 0 {
                    exclude(past);
                } else {
                    let gap = host.gap(past, work);
                    if is_analysed(gap.cause) {
                        timeline.gaps.push(gap);
                    } else {
                        exclude(past);
                        loading.push(gap);
                    }
                }
            }
            now = past.end;
        }
        running.change(work.kind, !edge.closes);
        if work.kind.is_kernel()
            && let Some(time) = exposed.get_mut(edge.at as usize)
        {
            // While this item runs, "exactly one runs" means that it runs alone.
            let sign = if edge.closes { 1 } else { -1 };
            time.alone_ns = time.alone_ns.saturating_add(sign * past_sums.alone_ns);
            if work.kind == WorkKind::Kernel {
                let beside = sign * past_sums.beside_comm_ns;
                time.beside_comm_ns = time.beside_comm_ns.saturating_add(beside);
            }
        }
    }
    if now < span.end {
        let past = Span {
            start: now,
            end: span.end,
        };
        timeline.end_thread = host.thread_of_step(past);
        let gap = host.last_gap(past, timeline.end_thread);
        if is_analysed(gap.cause) {
            timeline.gaps.push(gap);
        } else {
            exclude(gap.span);
            loading.push(gap);
        }
    }
    timeline.comm_slack_ns = slack.ns();
    timeline.excluded = excluded;
    timeline.gaps.shrink_to_fit();
    Some(Swept {
        timeline,
        loading,
        exposed,
    })
}

/// Whether idle time of this cause is part of the analyzed time: not if code was loaded or compiled, or
/// if the profiler worked for itself.
fn is_analysed(cause: GapCause) -> bool {
    !matches!(cause, GapCause::ModuleLoad | GapCause::ProfilerOverhead)
}
