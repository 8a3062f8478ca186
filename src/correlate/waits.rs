//! Calls in which a thread that launches kernels waits for the GPU, and the idle time that follows because
//! they empty its queue.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::model::{GapCause, Step, Timeline, Wait};
use crate::profile::{
    ApiCall, ApiClass, CallId, CopyKind, CorrelationMap, MemoryCopy, ProcessId, Profile, Span,
    SpanSums, ThreadId,
};

/// The waits of the threads that launch kernels, in time order.
pub(super) fn waits_in(profile: &Profile, window: Span, excluded: &[Span]) -> Vec<Wait> {
    let copies = profile.copies.iter();
    let copies = copies.map(|copy| (copy.process, copy.correlation, copy));
    let of_number: CorrelationMap<&MemoryCopy> = CorrelationMap::of(copies);
    let mut threads: Vec<ThreadState<'_>> = vec![ThreadState::default(); profile.threads.len()];
    let mut waits: Vec<Wait> = Vec::new();
    for (index, call) in profile.calls.iter().enumerate() {
        let Some(thread) = threads.get_mut(call.thread.idx()) else {
            continue;
        };
        let copy = || {
            let thread = profile.thread(call.thread)?;
            of_number.get(thread.process, call.correlation)
        };
        let copied: Option<&MemoryCopy> = match call.class {
            ApiClass::Launch | ApiClass::GraphLaunch => {
                *thread = ThreadState {
                    launches: true,
                    ..ThreadState::default()
                };
                continue;
            }
            // A copy to pageable memory waits for the work before it, whatever its name says.
            ApiClass::CopyAsync => {
                let copy = copy();
                if !copy.is_some_and(|copy| waits_for(call, copy)) {
                    thread.last = copy.or(thread.last);
                    continue;
                }
                thread.waited = true;
                copy
            }
            // A blocking copy to the host waits for all work before it.
            ApiClass::CopySync => match copy() {
                Some(copy) if copy.kind == CopyKind::DtoH => Some(copy),
                _ => continue,
            },
            // Behind a copy that waited nothing is left to wait for.
            ApiClass::Sync if std::mem::take(&mut thread.waited) && call.span.ns() <= QUEUED_NS => {
                continue;
            }
            ApiClass::Sync => thread.last.take(),
            _ => continue,
        };
        if window.contains(call.span.start) && !Span::one_contains(excluded, call.span.start) {
            waits.push(Wait {
                id: CallId::new(index),
                thread: call.thread,
                span: call.span,
                api: call.name,
                copy: copied.map(|copy| (copy.kind, copy.bytes)),
            });
        }
    }
    let launches = |wait: &Wait| threads.get(wait.thread.idx()).is_some_and(|t| t.launches);
    waits.retain(launches);
    waits
}

/// What is known of a thread by a time.
#[derive(Debug, Clone, Default)]
struct ThreadState<'a> {
    /// Whether it has launched kernels.
    launches: bool,
    /// The last copy that it queued since its last launch or wait.
    last: Option<&'a MemoryCopy>,
    /// Whether its last call was a copy to the host that waited.
    waited: bool,
}

/// Host and device clocks differ by about this much, in ns.
const CLOCK_SLACK_NS: i64 = 1_000;
/// A call that only queues a copy, or finds that all is done, returns within this time, in ns.
const QUEUED_NS: i64 = 20_000;

/// Whether a call that may queue its copy to the host returned only when it had ended.
fn waits_for(call: &ApiCall, copy: &MemoryCopy) -> bool {
    copy.kind == CopyKind::DtoH
        && call.span.ns() > QUEUED_NS
        && call.span.end >= copy.span.end.saturating_sub(CLOCK_SLACK_NS)
}

/// A host that works for less than this share of the time that the GPU is busy in a step would run ahead of it
/// if it never waited. Recording makes hosts slower, so this finds too few rather than too many.
const AHEAD: f64 = 0.8;

/// The waits of the threads of one process by their ends, and when at least one of them lasts.
struct ProcessWaits<'a> {
    waits: Vec<&'a Wait>,
    waiting: SpanSums,
}

impl<'a> ProcessWaits<'a> {
    fn of(mut waits: Vec<&'a Wait>) -> ProcessWaits<'a> {
        waits.sort_unstable_by_key(|wait| wait.span.end);
        let spans = Span::union(waits.iter().map(|wait| wait.span).collect());
        ProcessWaits {
            waits,
            waiting: SpanSums::of(spans.into_iter()),
        }
    }

    /// The last one that had ended by a time.
    fn last_before(&self, time: i64) -> Option<&Wait> {
        let ended = self.waits.partition_point(|wait| wait.span.end <= time);
        self.waits.get(ended.checked_sub(1)?).copied()
    }
}

/// Blames waits for late launches, in steps in which the host would run ahead of the GPU without them: a wait
/// empties the queue, and what is launched next comes late until the host is ahead again.
pub(super) fn blame_for_late_launches(
    timeline: &mut Timeline,
    profile: &Profile,
    waits: &[Wait],
    steps: &[Step],
) {
    let process_of = |thread: ThreadId| profile.thread(thread).map(|t| t.process);
    let mut of_process: FxHashMap<Option<ProcessId>, Vec<&Wait>> = FxHashMap::default();
    for wait in waits {
        let own = of_process.entry(process_of(wait.thread)).or_default();
        own.push(wait);
    }
    let of_process: FxHashMap<Option<ProcessId>, ProcessWaits<'_>> = of_process
        .into_iter()
        .map(|(process, waits)| (process, ProcessWaits::of(waits)))
        .collect();
    let steps: Vec<Span> = (steps.iter().filter(|step| !step.warmup))
        .map(|step| step.span)
        .collect();
    timeline.devices.par_iter_mut().for_each(|device| {
        let idle = SpanSums::of(device.gaps.iter().map(|gap| gap.span));
        for gap in &mut device.gaps {
            let late = gap.cause == GapCause::HostLate;
            let Some(launch) = gap.launch(profile).filter(|_| late) else {
                continue;
            };
            let own = of_process.get(&process_of(launch.thread));
            let step = Span::position(&steps, launch.span.start).and_then(|at| steps.get(at));
            let Some((own, step)) = own.zip(step) else {
                continue;
            };
            let step = step.clip(device.span);
            let busy = step.ns().saturating_sub(idle.ns_in(step));
            let host = step.ns().saturating_sub(own.waiting.ns_in(step));
            let is_held_up = (host as f64) < AHEAD * busy as f64;
            let last = own.last_before(launch.span.start);
            if let Some(wait) = last.filter(|_| is_held_up) {
                let class = profile.call(wait.id).map(|call| call.class);
                gap.cause = match class {
                    Some(ApiClass::Sync) => GapCause::AfterSync,
                    _ => GapCause::BlockingCopy,
                };
                gap.call = Some(wait.id);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// Steps of 10 ms: a short kernel, 0.5 ms later one of `long` ns, for which the host waits if it `waits`.
    fn causes(long: i64, waits: bool) -> Vec<GapCause> {
        let mut profile = ProfileBuilder::new();
        for step in 0..3 {
            let start = step * 10_000_000;
            profile.range(&format!("step {step}"), start, start + 10_000_000);
            profile.launch(start + 10_000);
            let kernel = profile.launch(start + 500_000);
            let span = &mut profile.profile.kernels[kernel].span;
            span.end = span.start + long;
            let end = span.end;
            if waits {
                profile
                    .call(ThreadId(0), "cudaStreamSynchronize", start + 510_000, 0)
                    .span
                    .end = end;
            }
        }
        let run = profile.run();
        let gaps = run.timeline.devices[0].gaps.iter();
        let short = gaps.filter(|gap| gap.span.ns() < 1_000_000 && gap.ended_by.is_some());
        short.map(|gap| gap.cause).collect()
    }

    #[test]
    fn late_launches_behind_waits_are_theirs_where_the_host_would_be_ahead() {
        use GapCause::{AfterSync, HostLate};
        // The host works for 2 of 10 ms. Before the first wait nothing has emptied the queue.
        assert_eq!(
            causes(8_000_000, true),
            [HostLate, HostLate, AfterSync, AfterSync]
        );
    }

    #[test]
    fn late_launches_of_a_host_that_works_all_the_time_stay_late() {
        for (long, waits) in [(8_000_000, false), (3_000_000, true)] {
            let found = causes(long, waits);
            assert!(
                found.iter().all(|cause| *cause == GapCause::HostLate),
                "{found:?}"
            );
        }
    }
}
