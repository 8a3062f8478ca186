//! Finds why a device was idle: the activity, within the gap, of the thread that ended the gap.
//!
//! Causes are checked in the order of [`GapCause`]; each gap has exactly one. Only the thread that
//! launched the work after the gap is considered, because other threads and processes did not delay it.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};

use super::work::{TimelineInputs, WorkItem, WorkKind, is_pageable};
use crate::base::search::partition_point_near;
use crate::base::statistics::median;
use crate::correlate::model::{Gap, GapCause};
use crate::profile::{
    ApiCall, ApiClass, CallId, CopyKind, CorrelationMap, HostRange, KernelId, ProcessId, Profile,
    RangeKind, SHORTEST_GAP_NS, SerialNumber, Span, StrId, SyncKind, ThreadId,
};

/// Minimum length of a launch that loads code. An ordinary launch takes microseconds, even on a busy
/// host.
const FIRST_LAUNCH_NS: i64 = 10_000_000;
/// ... and it also stands out this far above the median launch of the capture.
const FIRST_LAUNCH_RATIO: i64 = 100;

/// Minimum length of a first launch of a kernel, or of the first call of a query, that loads code lazily.
/// Loading takes milliseconds per module, a launch or a query of loaded code microseconds.
/// Source: CUDA C++ Programming Guide, "Lazy loading".
const LAZY_LOAD_NS: i64 = 1_000_000;
/// ... and a launch also stands out this far above the median launch of the capture.
const LAZY_LOAD_RATIO: i64 = 20;

/// Allocations of device memory of [`LAZY_LOAD_NS`] or more, below which they are no habit in a capture
/// without steps: a library asks for its workspaces once.
const FEW_ALLOCATIONS: usize = 10;

/// Allocating or freeing device memory takes micro- to milliseconds, other calls less. One that takes
/// this long while the GPU has nothing to do sets something up: the driver's context, a library.
const SETTING_UP_NS: i64 = 100_000_000;

/// An idle device starts work at most this long after the launch began: tens of microseconds, under a
/// profiler as well.
const MOST_LAUNCH_LATENCY_NS: i64 = 100_000;

/// An operator costs the host 5 to 100 us, with markers or stacks a few times as much. A thread that
/// launches nothing for this long is not slow at launching: it computes, reads or waits for something.
pub(crate) const HOST_BUSY_NS: i64 = 1_000_000;

/// Disjoint intervals in time order, each with the call it came from.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    spans: Vec<(Span, Option<CallId>)>,
    /// Position of the previous search: consecutive queries have similar times.
    near: AtomicUsize,
}

impl Intervals {
    /// The union of intervals; of overlapping ones the first keeps its call (runtime calls start
    /// before the driver calls inside them).
    pub(super) fn merged(mut spans: Vec<(Span, Option<CallId>)>) -> Intervals {
        spans.retain(|(span, _)| span.end > span.start);
        spans.sort_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
        let mut merged: Vec<(Span, Option<CallId>)> = Vec::new();
        for (span, call) in spans {
            match merged.last_mut() {
                Some((last, _)) if span.start < last.end => last.end = last.end.max(span.end),
                _ => merged.push((span, call)),
            }
        }
        Intervals {
            spans: merged,
            near: AtomicUsize::new(0),
        }
    }

    pub(super) fn total(&self) -> i64 {
        self.spans
            .iter()
            .fold(0, |sum: i64, (span, _)| sum.saturating_add(span.ns()))
    }

    /// How many there are before the first that is not `is_before`.
    fn count_before(&self, is_before: impl Fn(Span) -> bool) -> usize {
        let near = self.near.load(Ordering::Relaxed);
        let found = partition_point_near(&self.spans, near, |(span, _)| is_before(*span));
        self.near.store(found, Ordering::Relaxed);
        found
    }

    /// How many have ended by a time.
    fn ended_by(&self, time: i64) -> usize {
        self.count_before(|span| span.end <= time)
    }

    /// Whether one has a time in common with `gap`, or ends or begins with it.
    fn touches(&self, gap: Span) -> bool {
        let first = self
            .spans
            .get(self.count_before(|span| span.end < gap.start));
        first.is_some_and(|(span, _)| span.start <= gap.end)
    }

    pub(super) fn contains(&self, time: i64) -> bool {
        self.spans
            .get(self.ended_by(time))
            .is_some_and(|(span, _)| span.contains(time))
    }

    /// When the last one that begins in `span` ends, at most at the end of `span`.
    fn last_end_in(&self, span: Span) -> Option<i64> {
        let before = self.spans.partition_point(|(s, _)| s.start < span.end);
        let (last, _) = self.spans.get(before.checked_sub(1)?)?;
        (last.end > span.start).then_some(last.end.min(span.end))
    }

    /// Ns inside `gap`, and the call that takes most of them.
    fn overlap(&self, gap: Span) -> (i64, Option<CallId>) {
        if self.spans.is_empty() {
            return (0, None);
        }
        let first = self.ended_by(gap.start);
        let (mut sum, mut most, mut call) = (0_i64, 0, None);
        for (span, from) in self.spans.iter().skip(first) {
            if span.start >= gap.end {
                break;
            }
            let ns = span.clip(gap).ns();
            sum = sum.saturating_add(ns);
            if ns > most {
                (most, call) = (ns, *from);
            }
        }
        (sum, call)
    }

    /// The call that fills most of the gap, if this does, and for how long. What came after `until`, the
    /// end of the launch that ended the gap, did not delay it.
    fn fills(&self, gap: Span, until: i64) -> Option<(Option<CallId>, i64)> {
        let (ns, call) = self.overlap(Span {
            start: gap.start,
            end: gap.end.min(until),
        });
        (ns > gap.ns() / 2).then_some((call, ns))
    }

    /// What fills most of the gap as [`Intervals::fills`] says, with its cause.
    fn filling(
        &self,
        gap: Span,
        until: i64,
        cause: GapCause,
    ) -> Option<(GapCause, Option<CallId>, i64)> {
        let (call, ns) = self.fills(gap, until)?;
        Some((cause, call, ns))
    }

    /// The last one that had ended by `launch` and when, if it ended inside the gap.
    fn released(&self, gap: Span, launch: i64) -> Option<(Option<CallId>, i64)> {
        let ended = self.ended_by(launch);
        let (span, call) = (self.spans.get(..ended)?.iter().rev()).find(|(span, _)| {
            // A short one that begins when the device has long been idle did not hold the host.
            let late = span.start.saturating_sub(gap.start) > MOST_LAUNCH_LATENCY_NS;
            !late || span.ns() > MOST_LAUNCH_LATENCY_NS
        })?;
        (gap.start <= span.end && span.end <= gap.end).then_some((*call, span.end))
    }
}

/// Intervals in which one host thread was blocked, by kind.
#[derive(Debug, Default)]
struct ThreadActivity {
    loading: Intervals,
    compiling: Intervals,
    syncs: Intervals,
    copies: Intervals,
    allocations: Intervals,
    modules: Intervals,
    first_launches: Intervals,
    /// The union of all. Most gaps touch none.
    any: Intervals,
}

/// Intervals of one kind, each with the call it came from, by thread or process, before they are merged.
type Collected<K = ThreadId> = FxHashMap<K, Vec<(Span, Option<CallId>)>>;

fn merged<K: Eq + Hash>(collected: Collected<K>) -> FxHashMap<K, Intervals> {
    let collected = collected.into_iter();
    collected
        .map(|(key, spans)| (key, Intervals::merged(spans)))
        .collect()
}

/// The host side of the capture, indexed for queries about gaps.
#[derive(Debug)]
pub(super) struct HostIndex<'a> {
    profile: &'a Profile,
    launches: &'a [Option<CallId>],
    /// The calls of copies, sets, graphs and synchronizations.
    calls: &'a CorrelationMap<CallId>,
    /// Per thread.
    threads: Vec<ThreadActivity>,
    /// The threads of each process.
    of_process: FxHashMap<ProcessId, Vec<ThreadId>>,
    /// The threads of each process that launch kernels, in order.
    launching: FxHashMap<ProcessId, Vec<ThreadId>>,
    /// Synchronizations whose thread is not known.
    syncs: FxHashMap<ProcessId, Intervals>,
    /// Per process; `None` if the process is unknown.
    overheads: FxHashMap<Option<ProcessId>, Intervals>,
    /// Unusually long launches and module loads.
    slow: Vec<CallId>,
}

impl<'a> HostIndex<'a> {
    /// `launched` is when the analyzed kernels were launched.
    pub(super) fn of(
        profile: &'a Profile,
        inputs: &TimelineInputs<'a>,
        launched: Option<Span>,
    ) -> HostIndex<'a> {
        let calls = inputs.work_calls;
        let slow = slow_launches(profile, inputs.launches);
        let mut kinds: [Collected; 7] = Default::default();
        let once = allocates_once(profile, inputs, launched);
        collect_calls(profile, calls, &slow, once, &mut kinds);
        let [loading, compiling, syncs, _, _, modules, _] = &mut kinds;
        for (ranges, rows) in [
            (inputs.data_loading, loading),
            (inputs.compiling, compiling),
            (inputs.first_calls, modules),
        ] {
            for range in ranges.iter().filter_map(|r| profile.range(*r)) {
                let rows = rows.entry(range.thread).or_default();
                rows.push((range.span, None));
            }
        }
        let loose = collect_syncs(profile, calls, syncs);
        let mut of_process: FxHashMap<ProcessId, Vec<ThreadId>> = FxHashMap::default();
        for (at, thread) in profile.threads.iter().enumerate() {
            let own = of_process.entry(thread.process).or_default();
            own.push(ThreadId::new(at));
        }
        HostIndex {
            profile,
            launches: inputs.launches,
            threads: threads(profile, kinds),
            of_process,
            launching: launching_threads(profile, inputs.launches),
            syncs: merged(loose),
            overheads: overheads(profile),
            calls,
            slow,
        }
    }

    /// The gap that `ended_by` ended. What a call or a range explains of it is reliable.
    pub(super) fn gap(&self, span: Span, ended_by: &WorkItem) -> Gap {
        let (process, launch) = self.launch(ended_by);
        let launching = launch.and_then(|id| self.profile.call(id));
        let (cause, call, explained_ns) = self.blame(span, process, launch.zip(launching));
        let kernel = ended_by.kind.is_kernel();
        Gap {
            span,
            cause,
            reliable_ns: explained_ns,
            next: kernel.then_some(KernelId(ended_by.row)),
            call,
            ended_by: launch,
            after_wait: self.after_wait(span, cause, call, launching),
        }
    }

    /// The thread whose step ends with a long gap.
    pub(super) fn thread_of_step(&self, gap: Span) -> Option<ThreadId> {
        let is_step = |range: &&HostRange| {
            range.span.end == gap.end
                && range.span.start <= gap.start
                && range.kind != RangeKind::Mark
        };
        let mut ranges = self.profile.ranges.iter();
        let step = (gap.ns() >= SHORTEST_GAP_NS).then(|| ranges.find(is_step));
        Some(step.flatten()?.thread)
    }

    /// The gap between the last work and the end of the last step, which is one of `thread`: nothing was launched
    /// any more.
    pub(super) fn last_gap(&self, span: Span, thread: Option<ThreadId>) -> Gap {
        let overhead = self.overheads.values().map(|pieces| pieces.overlap(span).0);
        let overhead = overhead.max().unwrap_or(0);
        let thread = thread.and_then(|thread| self.threads.get(thread.idx()));
        let loading = thread.and_then(|thread| thread.loading.fills(span, span.end));
        let (cause, reliable_ns) = match loading {
            _ if overhead > span.ns() / 2 => (GapCause::ProfilerOverhead, overhead),
            Some((_, ns)) => (GapCause::DataLoading, ns),
            None => (host_cause(span.ns()), 0),
        };
        Gap {
            span,
            cause,
            reliable_ns,
            next: None,
            call: None,
            ended_by: None,
            after_wait: false,
        }
    }

    /// Whether the thread of `launch` returned in the gap from a call that waits for the GPU.
    fn after_wait(
        &self,
        gap: Span,
        cause: GapCause,
        call: Option<CallId>,
        launch: Option<&ApiCall>,
    ) -> bool {
        match cause {
            GapCause::AfterSync | GapCause::BlockingCopy => true,
            // Freed memory must not be in use any more. Source: CUDA runtime API, `cudaFree`.
            GapCause::Allocation => {
                let call = call.and_then(|id| self.profile.call(id));
                call.is_some_and(|call| call.class == ApiClass::Free)
            }
            GapCause::HostBusy | GapCause::DataLoading => launch.is_some_and(|launch| {
                let thread = self.threads.get(launch.thread.idx());
                thread.is_some_and(|thread| {
                    let waits = [&thread.syncs, &thread.copies].into_iter();
                    let mut ends = waits.filter_map(|w| w.released(gap, launch.span.start));
                    ends.next().is_some()
                })
            }),
            GapCause::ProfilerOverhead
            | GapCause::ModuleLoad
            | GapCause::SlowLaunch
            | GapCause::HostLate
            | GapCause::Waiting
            | GapCause::Unknown => false,
        }
    }

    /// The call that started GPU work other than a kernel.
    pub(super) fn call(
        &self,
        process: ProcessId,
        correlation: Option<SerialNumber>,
    ) -> Option<&ApiCall> {
        let id = self.calls.get(process, correlation)?;
        self.profile.call(id)
    }

    /// The cause of a gap that work of a process ended, the responsible call, and how much of the gap
    /// that explains. `launch` started the work.
    fn blame(
        &self,
        gap: Span,
        process: Option<ProcessId>,
        launch: Option<(CallId, &ApiCall)>,
    ) -> (GapCause, Option<CallId>, i64) {
        let overhead = self.overhead(gap, process);
        if overhead > gap.ns() / 2 {
            return (GapCause::ProfilerOverhead, None, overhead);
        }
        let Some((id, call)) = launch else {
            return (GapCause::Unknown, None, 0);
        };
        if let Some(found) = self
            .threads
            .get(call.thread.idx())
            .and_then(|thread| held(thread, gap, (id, call)))
        {
            return found;
        }
        let loose = process.and_then(|p| self.syncs.get(&p));
        let waited = loose.and_then(|s| s.released(gap, call.span.start));
        if let Some((_, end)) = waited
            && call.span.start.saturating_sub(end) < HOST_BUSY_NS
        {
            return (GapCause::AfterSync, None, end.saturating_sub(gap.start));
        }
        if let Some(found) = process.and_then(|p| self.held_by_another(p, gap, call)) {
            return found;
        }
        let late = call.span.start.saturating_sub(gap.start);
        let waited = gap.end.saturating_sub(call.span.start);
        // Work that was launched before most of the gap waited for something else.
        if late <= 0 || (late < gap.ns() / 2 && waited > MOST_LAUNCH_LATENCY_NS) {
            if let Some((loading, ns)) = self.loading_behind(gap, call) {
                return (GapCause::ModuleLoad, loading, ns);
            }
            let waited = gap.ns().saturating_sub(late.max(0));
            return match self
                .allocated_before(call)
                .filter(|_| waited > MOST_LAUNCH_LATENCY_NS)
            {
                Some(allocation) => (GapCause::Allocation, Some(allocation), waited),
                None => (GapCause::Waiting, None, waited),
            };
        }
        (host_cause(late), None, 0)
    }

    /// A call after `launch` that loaded code for most of the gap: that holds back what was launched
    /// before it. A launch into a full queue takes long as well, but then the gaps are short.
    fn loading_behind(&self, gap: Span, launch: &ApiCall) -> Option<(Option<CallId>, i64)> {
        if gap.ns() < LAZY_LOAD_NS {
            return None;
        }
        let thread = self.threads.get(launch.thread.idx())?;
        thread.first_launches.fills(gap, gap.end)
    }

    /// What held another launching thread of the process for most of the gap. The thread that ended the gap may
    /// have waited for that one: the backward pass runs on a thread of its own.
    fn held_by_another(
        &self,
        process: ProcessId,
        gap: Span,
        launch: &ApiCall,
    ) -> Option<(GapCause, Option<CallId>, i64)> {
        /// More threads than launch kernels in any program; bounds the work for hostile files.
        const MOST_THREADS: usize = 256;
        let threads = self.launching.get(&process)?.iter().take(MOST_THREADS);
        let others = threads.filter(|thread| **thread != launch.thread);
        let others = others.filter_map(|thread| self.threads.get(thread.idx()));
        let held = others
            .filter(|thread| thread.any.touches(gap))
            .filter_map(|thread| {
                let fills = |intervals: &Intervals, cause: GapCause| {
                    intervals.filling(gap, launch.span.start, cause)
                };
                fills(&thread.allocations, GapCause::Allocation)
                    .or_else(|| fills(&thread.copies, GapCause::BlockingCopy))
            });
        held.max_by_key(|(_, _, ns)| *ns)
    }

    /// The call that allocated or freed device memory right before a launch. The work may have to wait until the
    /// driver has mapped the memory, under Windows for 200 to 700 us: 104 of the 108 waits of 100 us and more in a
    /// capture there came within 200 us of `cudaMalloc`.
    fn allocated_before(&self, launch: &ApiCall) -> Option<CallId> {
        let thread = self.threads.get(launch.thread.idx())?;
        let ended = thread.allocations.ended_by(launch.span.start);
        let (span, call) = thread.allocations.spans.get(ended.checked_sub(1)?)?;
        let since = launch.span.start.saturating_sub(span.end);
        call.filter(|_| since <= MOST_LAUNCH_LATENCY_NS)
    }

    /// The process of an item and the call that launched it.
    fn launch(&self, item: &WorkItem) -> (Option<ProcessId>, Option<CallId>) {
        let (profile, row) = (self.profile, item.row as usize);
        let key = match item.kind {
            WorkKind::Kernel | WorkKind::Communication => {
                let process = profile.kernels.get(row).map(|k| k.process);
                return (process, self.launches.get(row).copied().flatten());
            }
            WorkKind::Copy => (profile.copies.get(row)).map(|c| (c.process, c.correlation)),
            WorkKind::Set => (profile.sets.get(row)).map(|s| (s.process, s.correlation)),
            WorkKind::Graph => (profile.graphs.get(row)).map(|g| (g.process, g.correlation)),
            WorkKind::Excluded => None,
        };
        let call = key.and_then(|(process, id)| self.calls.get(process, id));
        (key.map(|k| k.0), call)
    }

    /// For how much of a span a thread of a process waited for the GPU or set something up, if for most of
    /// it, and until when.
    pub(super) fn waits(&self, process: ProcessId, span: Span) -> Option<(i64, i64)> {
        let own = self.of_process.get(&process)?.iter();
        own.filter_map(|thread| {
            let activity = self.threads.get(thread.idx())?;
            // A blocking copy that takes far longer than the copying is among the first launches.
            let waits = [&activity.syncs, &activity.copies, &activity.first_launches];
            let ns = waits.iter().map(|w| w.overlap(span).0).sum::<i64>();
            let ends = waits.iter().filter_map(|w| w.last_end_in(span));
            let until = ends.max()?;
            (ns >= HOST_BUSY_NS && ns > span.ns() / 2).then_some((ns, until))
        })
        .max()
    }

    fn overhead(&self, gap: Span, process: Option<ProcessId>) -> i64 {
        let own = process.and_then(|p| self.overheads.get(&Some(p)));
        [own, self.overheads.get(&None)]
            .into_iter()
            .flatten()
            .map(|pieces| pieces.overlap(gap).0)
            .fold(0, i64::saturating_add)
    }

    /// The longest launch that loaded code while the device had nothing to do: one blamed for a gap,
    /// or one from before the window began.
    pub(super) fn longest_first_launch(&self, loading: &[Gap], window: Option<Span>) -> i64 {
        let blamed = loading
            .iter()
            .filter(|gap| gap.cause == GapCause::ModuleLoad)
            .filter_map(|gap| gap.call);
        let call = |id: CallId| self.profile.call(id);
        let slow: FxHashSet<CallId> = self.slow.iter().copied().collect();
        let early = self.slow.iter().copied().filter(|&id| {
            call(id)
                .zip(window)
                .is_some_and(|(call, window)| call.span.start < window.start)
        });
        blamed
            .filter(|id| slow.contains(id))
            .chain(early)
            .filter_map(call)
            .map(|call| call.span.ns())
            .max()
            .unwrap_or(0)
    }
}

/// The threads of each process that launch kernels, in order.
fn launching_threads(
    profile: &Profile,
    launches: &[Option<CallId>],
) -> FxHashMap<ProcessId, Vec<ThreadId>> {
    let mut launches_kernels = vec![false; profile.threads.len()];
    let calls = launches.iter().flatten();
    for call in calls.filter_map(|id| profile.call(*id)) {
        if let Some(flag) = launches_kernels.get_mut(call.thread.idx()) {
            *flag = true;
        }
    }
    let mut threads: FxHashMap<ProcessId, Vec<ThreadId>> = FxHashMap::default();
    for (at, thread) in profile.threads.iter().enumerate() {
        if launches_kernels.get(at) == Some(&true) {
            let own = threads.entry(thread.process).or_default();
            own.push(ThreadId::new(at));
        }
    }
    threads
}

/// The cause of idle time in which the host launched nothing for so long.
fn host_cause(ns: i64) -> GapCause {
    if ns < HOST_BUSY_NS {
        GapCause::HostLate
    } else {
        GapCause::HostBusy
    }
}

/// What held the launching thread, in the order of [`GapCause`], and for how much of the gap; but a
/// launch that fills the gap is its own explanation, whatever synchronization came before it.
///
/// A wait explains the idle time only up to the next work of the host: when it ended a millisecond or
/// more before the next launch, the host did something else meanwhile.
fn held(
    thread: &ThreadActivity,
    gap: Span,
    (id, launch): (CallId, &ApiCall),
) -> Option<(GapCause, Option<CallId>, i64)> {
    let Span {
        start: at,
        end: until,
    } = launch.span;
    if !thread.any.touches(gap) {
        return is_slow(gap, launch).map(|ns| (GapCause::SlowLaunch, Some(id), ns));
    }
    let fills = |intervals: &Intervals, cause| intervals.filling(gap, until, cause);
    let released = |intervals: &Intervals, cause: GapCause| {
        let (call, end) = intervals.released(gap, at)?;
        let explained = end.saturating_sub(gap.start);
        (at.saturating_sub(end) < HOST_BUSY_NS).then_some((cause, call, explained))
    };
    fills(&thread.loading, GapCause::DataLoading)
        .or_else(|| fills(&thread.first_launches, GapCause::ModuleLoad))
        .or_else(|| fills(&thread.compiling, GapCause::ModuleLoad))
        .or_else(|| is_slow(gap, launch).map(|ns| (GapCause::SlowLaunch, Some(id), ns)))
        .or_else(|| released(&thread.syncs, GapCause::AfterSync))
        .or_else(|| released(&thread.copies, GapCause::BlockingCopy))
        .or_else(|| fills(&thread.copies, GapCause::BlockingCopy))
        .or_else(|| fills(&thread.allocations, GapCause::Allocation))
        .or_else(|| fills(&thread.modules, GapCause::ModuleLoad))
}

/// How much of a gap the launch of the work behind it took, if most of it and far longer than launches take.
/// Copies have causes of their own.
fn is_slow(gap: Span, launch: &ApiCall) -> Option<i64> {
    let under_way = launch.span.clip(gap).ns();
    let is_launch = matches!(launch.class, ApiClass::Launch | ApiClass::GraphLaunch);
    (is_launch && under_way > MOST_LAUNCH_LATENCY_NS && under_way > gap.ns() / 2)
        .then_some(under_way)
}

/// Launches and module loads far longer than any launch of code that is already loaded, and long first
/// launches of a kernel.
fn slow_launches(profile: &Profile, of_kernels: &[Option<CallId>]) -> Vec<CallId> {
    let mut launches: Vec<i64> = profile
        .calls
        .iter()
        .filter(|call| call.class == ApiClass::Launch)
        .map(|call| call.span.ns())
        .collect();
    let median = median(&mut launches).unwrap_or(0);
    let stands_out = FIRST_LAUNCH_NS.max(median.saturating_mul(FIRST_LAUNCH_RATIO));
    let slow = profile
        .calls
        .iter()
        .enumerate()
        .filter(|(_, call)| match call.class {
            ApiClass::Launch => call.span.ns() >= stands_out,
            ApiClass::ModuleLoad => call.span.ns() >= FIRST_LAUNCH_NS,
            _ => false,
        })
        .map(|(index, _)| CallId::new(index));
    let first_stands_out = LAZY_LOAD_NS.max(median.saturating_mul(LAZY_LOAD_RATIO));
    let mut seen: FxHashSet<(ProcessId, StrId)> = FxHashSet::default();
    let first = profile.kernels.iter().zip(of_kernels);
    let first = first.filter(|(kernel, _)| seen.insert((kernel.process, kernel.name)));
    // Launching a graph takes as long as it has kernels: microseconds each.
    let first = first.filter_map(|(_, call)| *call).filter(|id| {
        let call = profile.call(*id);
        call.is_some_and(|call| {
            call.class == ApiClass::Launch && call.span.ns() >= first_stands_out
        })
    });
    let mut slow: Vec<CallId> = slow.chain(first).collect();
    slow.sort_unstable();
    slow.dedup();
    slow
}

/// Whether a call allocates or frees device memory, and not the host's.
fn is_device_memory(profile: &Profile, call: &ApiCall) -> bool {
    matches!(call.class, ApiClass::Alloc | ApiClass::Free)
        && !profile.text(call.name).contains("Host")
}

/// Whether long allocations happen too rarely to belong to each step. `launched` is when the analyzed
/// kernels were launched.
fn allocates_once(profile: &Profile, inputs: &TimelineInputs<'_>, launched: Option<Span>) -> bool {
    let long = profile.calls.iter().filter(|call| {
        call.span.ns() >= LAZY_LOAD_NS
            && launched.is_some_and(|launched| launched.contains(call.span.start))
            && is_device_memory(profile, call)
    });
    let few = match inputs.step_count {
        0 | 1 => FEW_ALLOCATIONS,
        steps => steps,
    };
    long.take(few).count() < few
}

/// Whether a call took so long that it did more than its name says. Page-locking host memory takes
/// long by itself, and waiting is waiting. `once`: whether long allocations happen once.
fn sets_up(
    profile: &Profile,
    call: &ApiCall,
    once: bool,
    seen: &mut FxHashSet<(ThreadId, StrId)>,
) -> bool {
    // Most calls are neither of these classes nor long.
    if !matches!(
        call.class,
        ApiClass::Alloc | ApiClass::Free | ApiClass::Other
    ) {
        return false;
    }
    let least = match (call.class, seen.insert((call.thread, call.name))) {
        (ApiClass::Other, true) => LAZY_LOAD_NS,
        (ApiClass::Alloc | ApiClass::Free, _) if once => LAZY_LOAD_NS,
        // The first allocation may start the driver's pools.
        (ApiClass::Alloc, true) => FIRST_LAUNCH_NS,
        _ => SETTING_UP_NS,
    };
    if call.span.ns() < least {
        return false;
    }
    let name = profile.text(call.name);
    let is = |word: &str| name.contains(word);
    match call.class {
        ApiClass::Alloc | ApiClass::Free => is_device_memory(profile, call),
        ApiClass::Other => !is("Host") && !is("Wait") && !is("Query"),
        _ => false,
    }
}

/// How long the copy of each long blocking call took on the device, in ns.
fn copy_times(profile: &Profile) -> FxHashMap<(ProcessId, SerialNumber), i64> {
    let long = |call: &ApiCall| call.class == ApiClass::CopySync && call.span.ns() >= SETTING_UP_NS;
    if !profile.calls.iter().any(long) {
        return FxHashMap::default();
    }
    let copies = profile.copies.iter();
    let timed = copies.filter_map(|copy| Some(((copy.process, copy.correlation?), copy.span.ns())));
    timed.collect()
}

/// Whether a blocking copy took so much longer than the copying that the driver did something else.
/// Waiting for work on the device takes long as well, but then the device is not idle.
fn stalls(
    profile: &Profile,
    call: &ApiCall,
    copied: &FxHashMap<(ProcessId, SerialNumber), i64>,
) -> bool {
    if call.class != ApiClass::CopySync || call.span.ns() < SETTING_UP_NS {
        return false;
    }
    let key = profile.process_of(call.thread).zip(call.correlation);
    let ns = key.and_then(|key| copied.get(&key));
    ns.is_some_and(|ns| ns.saturating_mul(10) < call.span.ns())
}

/// Sorts the calls that block a thread into `[loading, compiling, syncs, copies, allocations, modules, first]`.
/// `once`: whether long allocations happen once.
fn collect_calls(
    profile: &Profile,
    calls: &CorrelationMap<CallId>,
    slow: &[CallId],
    once: bool,
    kinds: &mut [Collected; 7],
) {
    let [_, _, syncs, copies, allocations, modules, first] = kinds;
    let mut seen = FxHashSet::default();
    // A blocking copy to the host waits for all work before it, as PyTorch on ROCm reads numbers back.
    let to_host = profile.copies.iter().filter(|c| c.kind == CopyKind::DtoH);
    let reads: FxHashSet<CallId> = to_host
        .filter_map(|copy| calls.get(copy.process, copy.correlation))
        .collect();
    let copied = &copy_times(profile);
    for (index, call) in profile.calls.iter().enumerate() {
        let rows = match call.class {
            _ if sets_up(profile, call, once, &mut seen) || stalls(profile, call, copied) => {
                &mut *first
            }
            ApiClass::Sync => &mut *syncs,
            ApiClass::CopySync if reads.contains(&CallId::new(index)) => &mut *syncs,
            ApiClass::CopySync => &mut *copies,
            ApiClass::Alloc | ApiClass::Free => &mut *allocations,
            ApiClass::ModuleLoad => &mut *modules,
            _ => continue,
        };
        let row = (call.span, Some(CallId::new(index)));
        rows.entry(call.thread).or_default().push(row);
    }
    for copy in profile.copies.iter().filter(|copy| is_pageable(copy)) {
        let id = calls.get(copy.process, copy.correlation);
        let call = id.and_then(|id| profile.call(id));
        if let Some(call) = call.filter(|call| call.class == ApiClass::CopyAsync) {
            copies.entry(call.thread).or_default().push((call.span, id));
        }
    }
    for id in slow {
        if let Some(call) = profile.call(*id) {
            let row = (call.span, Some(*id));
            first.entry(call.thread).or_default().push(row);
        }
    }
}

/// Adds synchronization records to the thread that waited; returns those whose thread is unknown.
fn collect_syncs(
    profile: &Profile,
    calls: &CorrelationMap<CallId>,
    syncs: &mut Collected,
) -> Collected<ProcessId> {
    let mut loose: Collected<ProcessId> = FxHashMap::default();
    for sync in &profile.syncs {
        if !matches!(
            sync.kind,
            SyncKind::Event | SyncKind::Stream | SyncKind::Context
        ) {
            continue;
        }
        let id = calls.get(sync.process, sync.correlation);
        match id.and_then(|id| profile.call(id)) {
            // The call itself is in the list, and tells better when the host went on.
            Some(call) if call.class == ApiClass::Sync => {}
            // A blocking copy is a separate cause.
            Some(call) if call.class == ApiClass::CopySync => {}
            Some(call) => syncs.entry(call.thread).or_default().push((sync.span, id)),
            None => loose
                .entry(sync.process)
                .or_default()
                .push((sync.span, None)),
        }
    }
    loose
}

fn threads(profile: &Profile, kinds: [Collected; 7]) -> Vec<ThreadActivity> {
    let mut threads: Vec<ThreadActivity> = Vec::new();
    threads.resize_with(profile.threads.len(), ThreadActivity::default);
    let fields: [fn(&mut ThreadActivity) -> &mut Intervals; 7] = [
        |t| &mut t.loading,
        |t| &mut t.compiling,
        |t| &mut t.syncs,
        |t| &mut t.copies,
        |t| &mut t.allocations,
        |t| &mut t.modules,
        |t| &mut t.first_launches,
    ];
    for (kind, field) in kinds.into_iter().zip(fields) {
        for (thread, spans) in kind {
            if let Some(thread) = threads.get_mut(thread.idx()) {
                *field(thread) = Intervals::merged(spans);
            }
        }
    }
    for thread in &mut threads {
        let all = fields.iter().flat_map(|field| field(thread).spans.clone());
        thread.any = Intervals::merged(all.collect());
    }
    threads
}

/// Overhead records of CUPTI and Nsight that are not caused by the profiler: a full launch queue, which
/// is normal, or code loading, which also happens without a profiler.
/// Source: `CUpti_ActivityOverheadKind` of CUPTI, and the names seen in exports of nsys.
const NOT_THE_PROFILERS: &[&str] = &[
    "Command Buffer Full",
    "Lazy Function Loading",
    "Runtime Triggered Module Loading",
    "dlopen",
    "dlclose",
];

/// Whether an overhead record of this name is time used by the profiler.
pub(crate) fn is_profilers_own(name: &str) -> bool {
    !NOT_THE_PROFILERS.iter().any(|n| name.starts_with(n))
}

fn overheads(profile: &Profile) -> FxHashMap<Option<ProcessId>, Intervals> {
    let mut spans: Collected<Option<ProcessId>> = FxHashMap::default();
    for overhead in &profile.overheads {
        if !is_profilers_own(profile.text(overhead.name)) {
            continue;
        }
        let process = overhead.thread.and_then(|t| profile.process_of(t));
        let spans = spans.entry(process).or_default();
        spans.push((overhead.span, None));
    }
    merged(spans)
}
