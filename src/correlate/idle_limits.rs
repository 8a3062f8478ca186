//! Idle time that counts for less than its length: nodes of CUDA graphs may not all be recorded, recording them makes
//! launches slow, before the first recorded work the GPU may have worked for earlier steps, and recording makes the host
//! slower.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::model::{DeviceTimeline, Gap, GapCause, Step, Timeline};
use super::timeline::launch_times;
use crate::base::statistics::median;
use crate::profile::{
    ApiClass, CallId, CorrelationMap, DeviceId, KernelId, ProcessId, Profile, SerialNumber, Span,
};

/// Idle time of CUDA graphs that counts for nothing, in ns, summed over devices.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct GraphIdle {
    /// Before and between nodes of graphs that had been launched in time.
    pub waiting_ns: i64,
    /// While the host launched a graph whose nodes are recorded one by one.
    pub launching_ns: i64,
}

/// Lets idle time that CUDA graphs explain count for nothing: a node that was launched in time waits for nodes
/// before it, and while a launch has nodes left, the GPU has work. Profilers may miss nodes.
pub(super) fn limit_graphs(
    timeline: &mut Timeline,
    profile: &Profile,
    launches: &[Option<CallId>],
) -> GraphIdle {
    let mut idle = GraphIdle::default();
    let are_launched =
        || (profile.calls.par_iter()).any(|call| call.class == ApiClass::GraphLaunch);
    if !profile.kernels.par_iter().any(|kernel| kernel.in_graph) && !are_launched() {
        return idle;
    }
    let in_graph = |id: KernelId| profile.kernel(id).is_some_and(|k| k.in_graph);
    let is_graph = |id: CallId| launches_graph(profile, id);
    let running = graph_runs(profile, launches);
    for device in &mut timeline.devices {
        let running = running
            .get(device.device.idx())
            .map_or(&[][..], Vec::as_slice);
        for gap in &mut device.gaps {
            let of_graph = gap.next.is_some_and(in_graph) || gap.ended_by.is_some_and(is_graph);
            let sum = match gap.cause {
                _ if is_within(running, gap.span) => &mut idle.waiting_ns,
                GapCause::Waiting if of_graph => &mut idle.waiting_ns,
                // A graph that is recorded as a whole costs its launch nothing.
                GapCause::SlowLaunch if of_graph && profile.graphs.is_empty() => {
                    &mut idle.launching_ns
                }
                _ => continue,
            };
            *sum = sum.saturating_add(gap.reliable_ns);
            gap.reliable_ns = 0;
        }
    }
    idle
}

fn launches_graph(profile: &Profile, id: CallId) -> bool {
    let call = profile.call(id);
    call.is_some_and(|call| call.class == ApiClass::GraphLaunch)
}

/// Whether one of these spans, in time order and without overlap, holds all of another.
fn is_within(spans: &[Span], inner: Span) -> bool {
    let at = spans.partition_point(|span| span.end < inner.end);
    spans.get(at).is_some_and(|span| span.start <= inner.start)
}

/// Per device: from the first to the last recorded node of each launch of a graph, joined where they overlap.
fn graph_runs(profile: &Profile, launches: &[Option<CallId>]) -> Vec<Vec<Span>> {
    // One launch of a graph on one device.
    let mut runs: FxHashMap<(DeviceId, ProcessId, SerialNumber), Span> = FxHashMap::default();
    for (kernel, launch) in profile.kernels.iter().zip(launches) {
        let is_node = kernel.in_graph || launch.is_some_and(|id| launches_graph(profile, id));
        if let Some(correlation) = kernel.correlation.filter(|_| is_node) {
            let launch = (kernel.device, kernel.process, correlation);
            let run = runs.entry(launch).or_insert(kernel.span);
            *run = run.around(kernel.span);
        }
    }
    if !runs.is_empty() {
        let copies = profile.copies.iter();
        let copies = copies.map(|c| (c.device, c.process, c.correlation, c.span));
        let sets = profile.sets.iter();
        let sets = sets.map(|s| (s.device, s.process, s.correlation, s.span));
        for (device, process, correlation, span) in copies.chain(sets) {
            let run = correlation.and_then(|id| runs.get_mut(&(device, process, id)));
            if let Some(run) = run {
                *run = run.around(span);
            }
        }
    }
    let mut devices = vec![Vec::new(); profile.devices.len()];
    for ((device, ..), span) in runs {
        if let Some(spans) = devices.get_mut(device.idx()) {
            spans.push(span);
        }
    }
    devices.into_iter().map(Span::union).collect()
}

/// A step of at least so many times the usual length holds a pause.
const LONG: f64 = 2.0;
/// Share of the time from the first to the last step that steps fill where one follows the other.
const CLOSE: f64 = 0.9;

/// Counts no more idle time than the same steps have without a recording, which makes the host slower: the rest of
/// their length, in which the GPU is not busy. None is left where the host is ahead of the GPU.
pub(super) fn limit_to_unrecorded(
    timeline: &mut Timeline,
    profile: &Profile,
    launches: &[Option<CallId>],
    steps: &[Step],
) {
    let mut steps: Vec<Span> = (steps.iter().filter(|step| !step.warmup))
        .map(|step| step.span)
        .collect();
    steps.sort_unstable();
    let recorded = median(&mut steps.iter().map(|step| step.ns()).collect::<Vec<_>>());
    let (Some(recorded), Some(unrecorded)) = (recorded, profile.unrecorded.step_ns) else {
        return;
    };
    let (recorded, unrecorded) = ((recorded as f64).max(1.0), unrecorded as f64);
    let all = usual_steps(profile, launches, &steps, recorded).map(|steps| steps * unrecorded);
    for device in &mut timeline.devices {
        let window = device.analysed_ns() as f64 * unrecorded / recorded;
        let idle = (window.min(all.unwrap_or(window)) - device.busy_ns as f64).max(0.0);
        let counted = device.reliable_idle_ns() as f64;
        if counted > idle {
            for gap in &mut device.gaps {
                gap.reliable_ns = (gap.reliable_ns as f64 * idle / counted) as i64;
            }
            device.idle_is_unrecorded = true;
        }
    }
}

/// How many usual steps take as long as all of them: by the GPU work that each launches, because the host runs ahead
/// in some and waits in others. One with a pause counts by its length. `None` where other work is between steps.
fn usual_steps(
    profile: &Profile,
    launches: &[Option<CallId>],
    steps: &[Span],
    usual_ns: f64,
) -> Option<f64> {
    let filled: i64 = steps.iter().map(|step| step.ns()).sum();
    let around = steps.iter().copied().reduce(Span::around)?;
    if (filled as f64) < CLOSE * around.ns() as f64 {
        return None;
    }
    let mut work = vec![0_i64; steps.len()];
    for (kernel, launched) in profile.kernels.iter().zip(launch_times(profile, launches)) {
        let step = Span::position(steps, launched).and_then(|step| work.get_mut(step));
        if let Some(work) = step {
            *work = work.saturating_add(kernel.span.ns());
        }
    }
    let usual_work = median(&mut work.clone()).filter(|work| *work > 0);
    let counts = steps.iter().zip(work).map(|(step, work)| {
        let length = step.ns() as f64 / usual_ns;
        match usual_work {
            Some(usual) if length < LONG => work as f64 / usual as f64,
            None if length < LONG => 1.0,
            _ => length,
        }
    });
    Some(counts.sum())
}

/// Share of a device's window below which idle time before the first work is not looked at.
const SHORT: f64 = 0.01;

/// Counts of the idle time before the first recorded work as much as the GPU idles at the start of a step
/// otherwise. The host prepares a step while the GPU works for the one before it, which is not recorded for the
/// first one.
pub(super) fn limit_starts(
    timeline: &mut Timeline,
    profile: &Profile,
    (launches, work_calls): (&[Option<CallId>], &CorrelationMap<CallId>),
    steps: &[Step],
) {
    let mut later: Vec<Span> = steps.iter().filter(|s| !s.warmup).map(|s| s.span).collect();
    later.sort_unstable();
    if later.len() < 2 {
        return;
    }
    later.remove(0);
    let is_long = |device: &DeviceTimeline| {
        let counted = first_gap(device).map_or(0, |gap| gap.reliable_ns);
        counted as f64 >= SHORT * device.span.ns() as f64 && counted > 0
    };
    if !timeline.devices.iter().any(is_long) {
        return;
    }
    let first = first_works(profile, launches, work_calls, &later);
    for device in timeline.devices.iter_mut().filter(|d| is_long(d)) {
        let mut idle: Vec<i64> = (0..)
            .zip(&later)
            .filter_map(|(step, span)| {
                let work = first.get(&(device.device, step))?;
                let start = Span {
                    start: span.start,
                    end: (*work).max(span.start),
                };
                Some(idle_within(device, start))
            })
            .collect();
        if let Some(usual) = median(&mut idle)
            && let Some(gap) = device.gaps.first_mut()
        {
            gap.reliable_ns = gap.reliable_ns.min(usual);
        }
    }
}

/// The gap that a window begins with.
fn first_gap(device: &DeviceTimeline) -> Option<&Gap> {
    let first = device.gaps.first();
    first.filter(|gap| gap.span.start == device.span.start)
}

fn idle_within(device: &DeviceTimeline, span: Span) -> i64 {
    let gaps = span.overlapping(&device.gaps, |gap| gap.span);
    gaps.fold(0, |sum, gap| sum.saturating_add(gap.span.clip(span).ns()))
}

/// Per device and step, which are in time order: when the first work starts that was launched in the step.
fn first_works(
    profile: &Profile,
    launches: &[Option<CallId>],
    work_calls: &CorrelationMap<CallId>,
    steps: &[Span],
) -> FxHashMap<(DeviceId, usize), i64> {
    let mut first: FxHashMap<(DeviceId, usize), i64> = FxHashMap::default();
    let mut add = |device: DeviceId, launched: i64, start: i64| {
        if let Some(step) = Span::position(steps, launched) {
            let work = first.entry((device, step)).or_insert(start);
            *work = (*work).min(start);
        }
    };
    for (kernel, launched) in profile.kernels.iter().zip(launch_times(profile, launches)) {
        add(kernel.device, launched, kernel.span.start);
    }
    for copy in &profile.copies {
        let call = work_calls.get(copy.process, copy.correlation);
        if let Some(call) = call.and_then(|id| profile.call(id)) {
            add(copy.device, call.span.start, copy.span.start);
        }
    }
    first
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// A device that works 60 of 100 ns and is idle twice for 20; of the second pause half counts. Returns what counts
    /// of both when steps of these lengths take `unrecorded` without a recording, and how long the window is then. The
    /// GPU works equally long for each step.
    fn counted(lengths: &[i64], unrecorded: Option<u64>) -> ([i64; 2], i64) {
        let gap = |start, reliable_ns| Gap {
            span: Span {
                start,
                end: start + 20,
            },
            cause: GapCause::HostLate,
            reliable_ns,
            next: None,
            call: None,
            ended_by: None,
            after_wait: false,
        };
        let whole = Span { start: 0, end: 100 };
        let mut timeline = Timeline {
            devices: vec![DeviceTimeline {
                busy_ns: 60,
                gaps: vec![gap(10, 20), gap(60, 10)],
                ..DeviceTimeline::empty(DeviceId(0), whole)
            }],
        };
        let mut b = ProfileBuilder::new();
        let mut end = 0;
        let step = |(number, &ns): (u64, &i64)| {
            b.launch(end);
            let start = end;
            end += ns;
            Step {
                number,
                span: Span { start, end },
                gpu: None,
                warmup: number == 0,
            }
        };
        let steps: Vec<Step> = (0..).zip(lengths).map(step).collect();
        let launches: Vec<_> = (0..steps.len()).map(|at| Some(CallId::new(at))).collect();
        b.profile.unrecorded.step_ns = unrecorded;
        limit_to_unrecorded(&mut timeline, &b.profile, &launches, &steps);
        let device = &timeline.devices[0];
        (
            [device.gaps[0].reliable_ns, device.gaps[1].reliable_ns],
            device.unrecorded_ns(),
        )
    }

    #[test]
    fn no_more_idle_time_counts_than_steps_have_without_a_recording() {
        // The first step is no usual one, and the last one holds a pause.
        let counted = |unrecorded| counted(&[400, 50, 50, 300], unrecorded);
        assert_eq!(counted(None), ([20, 10], 100));
        assert_eq!(counted(Some(36)), ([8, 4], 72));
        // What is unreliable anyway is a part of it.
        assert_eq!(counted(Some(45)), ([20, 10], 100));
        // The host is ahead of the GPU, as far as the recording does not slow it down.
        assert_eq!(counted(Some(10)), ([0, 0], 60));
    }

    #[test]
    fn steps_in_which_the_host_runs_ahead_count_by_their_work() {
        // 3 steps of 24 ns are 72 ns, although the last ones take 1.5 times and twice as long as the first one.
        assert_eq!(counted(&[9, 20, 30, 40], Some(24)), ([8, 4], 72));
    }
}
