//! The idle time around waits for the GPU that disappears if the host does not wait.

use rustc_hash::FxHashMap;

use crate::correlate::{DeviceTimeline, Gap, GapCause, Run};
use crate::facts::call_operators::CallOperators;
use crate::facts::fact::{Answer, FactEntry, facts};
use crate::facts::host_work::UNRECORDED_WORK;
use crate::facts::table::{GapScope, Gaps};
use crate::profile::{ApiCall, ApiClass, CallId, ProcessId, Span};

/// Per gap of a device: the part that goes without the waits, at least and at most.
///
/// Without a wait the host is ahead by the time that it spent in the operator that waited, and the launches that
/// follow come that much earlier. Gaps become shorter, one after the other, until that time is used up: those behind
/// waits, and also those of other causes, which are not counted here.
#[derive(Debug)]
pub(super) struct Avoidable(Vec<AvoidablePart>);

/// A part of idle time, in ns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AvoidablePart {
    /// If the host is as fast as in the recording.
    pub(super) low: i64,
    /// If it is as fast as it may be without recording, and so waits longer.
    pub(super) high: i64,
}

impl AvoidablePart {
    pub(super) fn add(&mut self, other: AvoidablePart) {
        self.low = self.low.saturating_add(other.low);
        self.high = self.high.saturating_add(other.high);
    }

    fn at_most(self, ns: i64) -> AvoidablePart {
        AvoidablePart {
            low: self.low.min(ns),
            high: self.high.min(ns),
        }
    }
}

/// What the host spends on a wait.
#[derive(Debug, Clone, Copy)]
struct Cost {
    id: CallId,
    process: Option<ProcessId>,
    /// With all that goes with the wait.
    span: Span,
    /// The call that waits.
    call: Span,
}

/// The host of a process, on the way through its launches and waits.
#[derive(Debug, Default)]
struct Host {
    /// How far it would be ahead without the waits so far.
    ahead: AvoidablePart,
    /// Until when the time of operators is counted in `ahead`.
    counted: Option<i64>,
    /// The end of the last wait. Since then a host that is not recorded needs less time.
    waited: Option<i64>,
    /// By how much the GPU would be done earlier, as launches would come earlier.
    gpu_earlier: i64,
}

impl Host {
    /// How much earlier it would be at a time if it were not recorded.
    fn earlier(&self, time: i64) -> i64 {
        let worked = self.waited.map_or(0, |end| time.saturating_sub(end).max(0));
        (worked as f64 * (1.0 - UNRECORDED_WORK)) as i64
    }

    /// Adds a wait. `gap` is the one behind it.
    fn wait(&mut self, cost: &Cost, gap: Option<&Gap>) {
        // An operator may wait several times.
        let start = cost.span.start.max(self.counted.unwrap_or(i64::MIN));
        let spent = cost.span.end.saturating_sub(start).max(0);
        self.counted = self.counted.max(Some(cost.span.end));
        let longer = gap.map_or(0, |gap| {
            let gpu_done = gap.span.start.saturating_sub(self.gpu_earlier);
            let arrives = (cost.call.start).saturating_sub(self.earlier(cost.call.start));
            let waits = gpu_done.saturating_sub(arrives);
            waits.saturating_sub(cost.call.ns()).max(0)
        });
        self.ahead.add(AvoidablePart {
            low: spent,
            high: spent.saturating_add(longer),
        });
        self.waited = Some(cost.call.end);
        self.gpu_earlier = 0;
    }

    /// The part of a gap that disappears if the launch that ended it comes earlier.
    fn shorten(&mut self, gap: &Gap, launched: i64) -> AvoidablePart {
        let earlier = self.earlier(launched);
        if earlier > self.gpu_earlier {
            self.gpu_earlier = earlier.min(self.gpu_earlier.saturating_add(gap.span.ns()));
        }
        let shorter = self.ahead.at_most(gap.span.ns());
        self.ahead.low -= shorter.low;
        self.ahead.high -= shorter.high;
        shorter
    }
}

impl Avoidable {
    pub(super) fn of(run: &Run, device: &DeviceTimeline, ops: &CallOperators) -> Avoidable {
        if !device.gaps.iter().any(|gap| is_behind_wait(gap.cause)) {
            return Avoidable(Vec::new());
        }
        let costs = costs(run, device, ops);
        let mut costs = costs.iter().peekable();
        let mut hosts: FxHashMap<Option<ProcessId>, Host> = FxHashMap::default();
        let of_gap = |gap: &Gap| {
            let launch = gap.launch(&run.profile);
            let at = launch.map_or(gap.span.end, |call| call.span.start);
            // A blocking copy may end the gap itself.
            let blamed = gap.call.and_then(|id| run.profile.call(id));
            let at = blamed.map_or(at, |call| at.max(call.span.end));
            while let Some(cost) = costs.next_if(|cost| cost.call.end <= at) {
                let host = hosts.entry(cost.process).or_default();
                let behind = Some(gap).filter(|gap| gap.call == Some(cost.id));
                host.wait(cost, behind);
            }
            let counted = AvoidablePart {
                low: gap.reliable_ns,
                high: gap.reliable_ns,
            };
            let behind_wait = is_behind_wait(gap.cause);
            if gap.cause == GapCause::Waiting {
                return AvoidablePart::default();
            }
            if behind_wait && gap.call.is_none() {
                return counted;
            }
            let process = launch.and_then(|call| run.profile.process_of(call.thread));
            let host = hosts.get_mut(&process);
            let shorter = host.map_or(AvoidablePart::default(), |host| host.shorten(gap, at));
            if behind_wait {
                shorter.at_most(gap.reliable_ns)
            } else {
                AvoidablePart::default()
            }
        };
        Avoidable(device.gaps.iter().map(of_gap).collect())
    }

    pub(super) fn of_gap(&self, at: usize) -> AvoidablePart {
        self.0.get(at).copied().unwrap_or_default()
    }
}

/// Whether gaps of this cause follow waits of the host.
pub(super) fn is_behind_wait(cause: GapCause) -> bool {
    matches!(cause, GapCause::AfterSync | GapCause::BlockingCopy)
}

/// What the host spends on its waits, by their ends: in the operator that the program called; outside of operators
/// since the last launch, because it is not known when the host began.
fn costs(run: &Run, device: &DeviceTimeline, ops: &CallOperators) -> Vec<Cost> {
    let blamed = device.gaps.iter().filter(|gap| is_behind_wait(gap.cause));
    let blamed = blamed.filter_map(|gap| gap.call);
    let mut waits: Vec<CallId> = blamed.chain(run.waits.iter().map(|wait| wait.id)).collect();
    waits.sort_unstable();
    waits.dedup();
    let profile = &run.profile;
    // Per thread, the end of the last launch.
    let mut launched = vec![None; profile.threads.len()];
    let mut costs = Vec::with_capacity(waits.len());
    let mut waits = waits.into_iter().peekable();
    for (id, call) in (0..).map(CallId).zip(&profile.calls) {
        let waits = waits.next_if_eq(&id).is_some();
        let last = launched.get_mut(call.thread.idx());
        if matches!(call.class, ApiClass::Launch | ApiClass::GraphLaunch) {
            if let Some(last) = last {
                *last = Some(call.span.end);
            }
        } else if waits {
            let since = last.and_then(|end| *end).unwrap_or(call.span.start);
            let span = ops.outer_call(id).unwrap_or(Span {
                start: since.min(call.span.start),
                end: call.span.end,
            });
            costs.push(Cost {
                id,
                process: profile.process_of(call.thread),
                span,
                call: call.span,
            });
        }
    }
    costs.sort_by_key(|cost| cost.call.end);
    costs
}

/// The calls of operators that wait for the GPU and launch kernels, with the first wait in each.
#[derive(Debug)]
pub(super) struct WaitingOperators(Vec<Vec<(Span, CallId)>>);

impl WaitingOperators {
    pub(super) fn of(run: &Run, ops: &CallOperators) -> WaitingOperators {
        let mut threads: Vec<Vec<(Span, CallId)>> = vec![Vec::new(); run.profile.threads.len()];
        for wait in &run.waits {
            let calls = threads.get_mut(wait.thread.idx());
            if let Some((calls, span)) = calls.zip(ops.outer_call(wait.id)) {
                calls.push((span, wait.id));
            }
        }
        for calls in &mut threads {
            calls.sort_by_key(|(span, _)| span.start);
            calls.dedup_by_key(|(span, _)| span.start);
        }
        let all = WaitingOperators(threads);
        let mut launching: Vec<Vec<bool>> =
            all.0.iter().map(|calls| vec![false; calls.len()]).collect();
        let launches = run.profile.calls.iter();
        for launch in launches.filter(|call| call.class == ApiClass::Launch) {
            let flags = launching.get_mut(launch.thread.idx());
            let flag = flags
                .zip(all.position(launch))
                .and_then(|(flags, at)| flags.get_mut(at));
            if let Some(flag) = flag {
                *flag = true;
            }
        }
        let mut threads = all.0;
        for (calls, launching) in threads.iter_mut().zip(launching) {
            let mut launching = launching.into_iter();
            calls.retain(|_| launching.next() == Some(true));
        }
        WaitingOperators(threads)
    }

    /// The wait in the operator that launched what ended a gap, where that launch came late.
    pub(super) fn launching(&self, run: &Run, gap: &Gap) -> Option<CallId> {
        let launch = gap.launch(&run.profile);
        self.around(launch.filter(|_| gap.cause == GapCause::HostLate)?)
    }

    /// The wait in the operator around a call.
    fn around(&self, call: &ApiCall) -> Option<CallId> {
        let (_, wait) = self.0.get(call.thread.idx())?.get(self.position(call)?)?;
        Some(*wait)
    }

    /// Which of the operators of its thread is around a call.
    fn position(&self, call: &ApiCall) -> Option<usize> {
        let calls = self.0.get(call.thread.idx())?;
        let started = calls.partition_point(|(span, _)| span.start <= call.span.start);
        let last = started.checked_sub(1)?;
        let (span, _) = calls.get(last)?;
        (call.span.end <= span.end).then_some(last)
    }
}

/// Whether what ended the gaps of a group was launched late inside operators that wait.
fn is_launched_inside(g: &GapScope<'_>) -> bool {
    g.group.cause == GapCause::HostLate && g.group.op.is_some()
}

/// Of the gaps of a group behind waits.
fn avoidable(g: &GapScope<'_>, part: fn(AvoidablePart) -> i64) -> Answer {
    Answer::or_silent(is_behind_wait(g.group.cause).then(|| part(g.group.sums.avoidable) as f64))
}

pub(super) const ENTRIES: &[FactEntry<Gaps>] = facts! {
    /// For `after_sync` and `blocking_copy`: the part of `gap.time_ns` that goes at most if the host does not wait.
    /// Launches come earlier by no more than the time that the host spends in the operators that wait; it may wait longer
    /// than recorded, as it works faster when nothing is recorded
    "gap.avoidable_ns": DOUBLE => |g| avoidable(g, |part| part.high),
    /// `gap.avoidable_ns` if the host is as fast as in the recording
    "gap.avoidable_low_ns": DOUBLE => |g| avoidable(g, |part| part.low),
    /// For `host_late`: the late launches per call of the operator that waits, where all of them are inside such calls
    "gap.late_per_call": DOUBLE => |g| {
        let calls = Some(g.group.waits).filter(|calls| *calls > 0 && is_launched_inside(g));
        Answer::or_silent(calls.map(|calls| g.group.count as f64 / calls as f64))
    },
};

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::UNRECORDED_WORK;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{Answer, MemberKind, Value};
    use crate::profile::{RangeKind, ThreadId};

    /// Four times: a kernel of `long` ns, a wait for it from `from` ns on for 2 us at least, in an operator from 1 us before
    /// it until some time after it, and launches 20 and 80 us after the wait. Returns facts of the groups of gaps.
    fn gaps<const N: usize>(
        (long, from): (i64, i64),
        operator: Option<i64>,
        facts: [&str; N],
    ) -> Vec<[Answer; N]> {
        let mut b = ProfileBuilder::new();
        for step in 0..4 {
            let start = step * 900_000;
            let kernel = b.launch(start);
            let done = start + 100 + long;
            b.profile.kernels[kernel].span.end = done;
            let from = start + from;
            let until = done.max(from) + 2_000;
            if let Some(after) = operator {
                b.range("aten::index", from - 1_000, until + after).kind = RangeKind::CpuOp;
            }
            b.call(ThreadId(0), "cudaStreamSynchronize", from, 0)
                .span
                .end = until;
            b.launch(until + 20_000);
            b.launch(until + 80_000);
        }
        b.profile.recorded.api_calls = true;
        answers(b, MemberKind::Gap, facts)
    }

    /// The idle time behind the waits and the part that goes without them, at least and at most.
    fn avoidable(wait: (i64, i64), operator: Option<i64>) -> [f64; 3] {
        let facts = [
            "gap.cause",
            "gap.time_ns",
            "gap.avoidable_low_ns",
            "gap.avoidable_ns",
        ];
        let mut found = gaps(wait, operator, facts);
        found.retain(|[cause, ..]| *cause == "after_sync".into());
        let [[_, times @ ..]] = &found[..] else {
            panic!("{found:?}");
        };
        times.each_ref().map(|time| match time {
            Answer::Value(Value::Double(ns)) => *ns,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn behind_a_long_wait_all_idle_time_goes() {
        assert_eq!(avoidable((200_000, 3_000), None), [4.0 * 22_100.0; 3]);
    }

    #[test]
    fn a_gap_becomes_shorter_by_no_more_than_the_host_waited() {
        // Outside of operators since the last launch, which ended after 1 ns.
        let part = 4.0 * 4_999.0;
        assert_eq!(
            avoidable((1_000, 3_000), None),
            [4.0 * 24_000.0, part, part]
        );
    }

    #[test]
    fn the_whole_operator_goes_with_its_wait() {
        assert_eq!(avoidable((1_000, 3_000), Some(40_000)), [4.0 * 24_000.0; 3]);
        let part = 4.0 * 13_000.0;
        assert_eq!(
            avoidable((1_000, 3_000), Some(10_000)),
            [4.0 * 24_000.0, part, part]
        );
    }

    #[test]
    fn a_host_that_recording_slows_may_wait_longer_without() {
        let [all, low, high] = avoidable((80_000, 103_000), Some(1_000));
        assert_eq!([all, low], [4.0 * 45_000.0, 4.0 * 4_000.0]);
        // It arrives 103 us after the launch, without recording after 61.8 us: the GPU then works for another 18.3 us.
        // Before the first wait it is not known since when the host has worked.
        let longer = 80_100.0 - UNRECORDED_WORK * 103_000.0 - 2_000.0;
        assert!((high - low - 3.0 * longer).abs() < 10.0, "{high}");
    }

    #[test]
    fn late_launches_inside_operators_that_wait_are_a_group_of_their_own() {
        let facts = ["gap.cause", "gap.late_per_call"];
        let found = |operator| gaps((1_000, 3_000), operator, facts);
        let inside = ["host_late".into(), Answer::from(1.0)];
        assert!(found(Some(90_000)).contains(&inside));
        assert!(!found(Some(40_000)).contains(&inside));
    }
}
