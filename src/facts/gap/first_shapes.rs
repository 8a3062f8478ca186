//! Idle intervals inside the first call of an operator with its arguments: a library chooses its kernel or
//! loads it then. It chooses once per shape, which may be once per step; code is loaded once. Such calls may come in
//! any step, so they stay in the window; `correlate` leaves out what an operator does once per program.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::statistics::median;
use crate::correlate::{ArgsId, DriverTime, Gap, OpCallId, OpNameId, Run};
use crate::profile::{HostRange, Span, ThreadId};

/// Shorter intervals are no set-up: loading a kernel takes a millisecond and more.
const LEAST_NS: i64 = 1_000_000;
/// How many times longer than half of the later ones the first call is.
const LONGER: i64 = 10;

/// An operator and its arguments.
type Key = (OpNameId, ArgsId);

/// The calls that are the first of their operator with their arguments and take ten times as long as half of
/// the later ones, and whether code was loaded in them; only calls whose kernel ends a long interval are looked at.
#[derive(Debug, Default)]
pub(super) struct FirstShapes(FxHashMap<OpCallId, bool>);

/// An interval in such a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FirstCall {
    pub(super) loads: bool,
}

impl FirstShapes {
    pub(super) fn of(run: &Run) -> FirstShapes {
        let gaps = run.timeline.devices.iter().flat_map(|device| &device.gaps);
        let long = gaps.filter(|gap| gap.reliable_ns >= LEAST_NS);
        // The first call, its length, and the lengths of the others.
        let mut calls: FxHashMap<Key, (Option<OpCallId>, Vec<i64>)> = long
            .filter_map(|gap| key(run, call_after(run, gap)?))
            .map(|key| (key, (None, Vec::new())))
            .collect();
        if calls.is_empty() {
            return FirstShapes::default();
        }
        let start = |id: OpCallId| Some(span(run, id)?.start);
        for id in (0..run.op_calls.len()).map(OpCallId::new) {
            let Some((first, lengths)) = key(run, id).and_then(|key| calls.get_mut(&key)) else {
                continue;
            };
            if first.is_none_or(|other| start(id) < start(other)) {
                *first = Some(id);
            }
            lengths.extend(span(run, id).map(Span::ns));
        }
        let once = calls.into_values().filter_map(|(first, mut lengths)| {
            let first = first.filter(|_| lengths.len() > 1)?;
            let typical = median(&mut lengths)?;
            (span(run, first)?.ns() >= typical.saturating_mul(LONGER)).then_some(first)
        });
        let once: Vec<(OpCallId, &HostRange)> = once
            .filter_map(|first| Some((first, range(run, first)?)))
            .collect();
        let threads: FxHashSet<ThreadId> = once.iter().map(|(_, range)| range.thread).collect();
        let driver = DriverTime::of(&run.profile, &threads);
        let once = once.into_iter();
        FirstShapes(once.map(|(id, range)| (id, driver.loads(range))).collect())
    }

    /// The call that most of an interval lies inside.
    pub(super) fn around(&self, run: &Run, gap: &Gap) -> Option<FirstCall> {
        let call = call_after(run, gap)?;
        let loads = *self.0.get(&call)?;
        let inside = span(run, call)?.clip(gap.span).ns();
        (inside.saturating_mul(2) > gap.span.ns()).then_some(FirstCall { loads })
    }
}

/// The operator call whose kernel ended an interval.
fn call_after(run: &Run, gap: &Gap) -> Option<OpCallId> {
    run.link(gap.next?)?.op
}

fn key(run: &Run, id: OpCallId) -> Option<Key> {
    let call = run.op_call(id)?;
    Some((call.op, call.args?))
}

fn range(run: &Run, id: OpCallId) -> Option<&HostRange> {
    let call = run.op_call(id)?;
    run.profile.range(call.range)
}

fn span(run: &Run, id: OpCallId) -> Option<Span> {
    range(run, id).map(|range| range.span)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{Answer, MemberKind};
    use crate::profile::{RangeKind, ThreadId};

    const MS: i64 = 1_000_000;

    /// Three calls with the same shapes in each step, of which the first takes 9 ms, `driver` ns of them in a call that
    /// loads a module. Returns the shares of such time, and whether each step has some of it.
    fn of_steps(steps: usize, driver: i64) -> Vec<Answer> {
        let mut b = ProfileBuilder::new();
        for step in 0..steps {
            let start = step as i64 * 11 * MS;
            b.range(&format!("step {step}"), start, start + 11 * MS);
            b.launch(start + 10);
            let calls = [
                (100_000, 9 * MS),
                (9 * MS + 200_000, MS / 2),
                (10 * MS, MS / 2),
            ];
            for (at, ns) in calls {
                let text = format!("aten::mm, op_id = 1, sizes = [[{}, 8], [8, 8]]", step + 2);
                b.range(&text, start + at, start + at + ns).kind = RangeKind::CpuOp;
                b.call(ThreadId(0), "cuModuleLoadData", start + at + 1, 0);
                let load = &mut b.profile.calls.last_mut().unwrap().span;
                load.end = load.start + driver.min(ns / 2);
                b.launch(start + at + ns - 1_000);
            }
        }
        b.profile.recorded.api_calls = true;
        let facts = [
            "gap.cause",
            "gap.first_call_share",
            "gap.first_load_share",
            "gap.in_each_step",
        ];
        let mut gaps = answers(b, MemberKind::Gap, facts);
        gaps.retain(|[cause, ..]| *cause == "host_busy".into());
        gaps.into_iter().flat_map(|[_, known @ ..]| known).collect()
    }

    #[test]
    fn first_calls_with_new_shapes_and_such_that_load_code_are_told_apart() {
        let (none, all) = (Answer::from(0.0), Answer::from(1.0));
        let new = |each: bool| vec![all.clone(), none.clone(), Answer::from(each)];
        assert_eq!(of_steps(1, 1_799_999), new(false));
        assert_eq!(of_steps(2, 1_799_999), new(true));
        let loads = vec![all.clone(), all.clone(), Answer::from(false)];
        assert_eq!(of_steps(1, 1_800_000), loads);
    }
}
