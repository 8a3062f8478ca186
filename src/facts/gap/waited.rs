//! Waits for the GPU right before the host did something else than launch work: without them, it would have done
//! that while the GPU worked.

use std::sync::Arc;

use crate::base::time_by::TimeBy;
use crate::correlate::{DeviceTimeline, Gap, GapCause, HOST_BUSY_NS, Run, Wait};
use crate::facts::call_operators::CallOperators;
use crate::facts::fact::{Answer, FactEntry, facts};
use crate::facts::table::Gaps;
use crate::profile::{CopyKind, Span, StrId};

/// Waits looked at before one gap.
const MOST: usize = 8;

/// The waits of each thread, in time order, without those for copies to the GPU.
#[derive(Debug)]
pub(super) struct ThreadWaits<'a>(Vec<Vec<&'a Wait>>);

impl<'a> ThreadWaits<'a> {
    pub(super) fn of(run: &'a Run) -> ThreadWaits<'a> {
        let mut threads: Vec<Vec<&Wait>> = vec![Vec::new(); run.profile.threads.len()];
        let to_gpu = |wait: &Wait| matches!(wait.copy, Some((CopyKind::HtoD, _)));
        for wait in run.waits.iter().filter(|wait| !to_gpu(wait)) {
            if let Some(waits) = threads.get_mut(wait.thread.idx()) {
                waits.push(wait);
            }
        }
        ThreadWaits(threads)
    }

    /// The waits of the thread that ended a gap, the last one first: up to the start of the gap, with less than a
    /// millisecond after each.
    fn before(
        &self,
        run: &Run,
        device: &DeviceTimeline,
        gap: &Gap,
    ) -> impl Iterator<Item = (&'a Wait, i64)> {
        let thread = device.awaited_thread(&run.profile, gap);
        let waits = thread.and_then(|thread| self.0.get(thread.idx()));
        let waits = waits.map_or(&[][..], Vec::as_slice);
        let launched = gap.launch(&run.profile);
        let until = launched.map_or(gap.span.end, |call| call.span.start);
        let ended = waits.partition_point(|wait| wait.span.end <= until);
        let before = Span {
            start: i64::MIN,
            end: gap.span.start,
        };
        let mut from = gap.span.start;
        let waits = waits.get(..ended).unwrap_or_default().iter().rev();
        waits.take(MOST).map_while(move |wait| {
            let near = from.saturating_sub(wait.span.end) < HOST_BUSY_NS;
            from = from.min(wait.span.start);
            near.then(|| (*wait, wait.span.clip(before).ns()))
        })
    }
}

/// Idle time of a group behind such waits.
#[derive(Debug, Clone, Default)]
pub(super) struct BehindWaits {
    ns: i64,
    /// Time waited before the gaps, by operator. One that found the GPU done has none, but would have waited in
    /// place of the others.
    waited: TimeBy<StrId>,
}

impl BehindWaits {
    pub(super) fn add(
        &mut self,
        run: &Run,
        ops: &CallOperators,
        waits: &ThreadWaits<'_>,
        (device, gap): (&DeviceTimeline, &Gap),
    ) {
        if gap.cause != GapCause::HostBusy {
            return;
        }
        let mut waited = 0_i64;
        for (wait, ns) in waits.before(run, device, gap) {
            // Recorders wait for the GPU as well, outside of operators.
            if let Some(ops) = ops.around(wait.id) {
                waited = waited.saturating_add(ns);
                self.waited.add(ops.outer, ns);
            }
        }
        self.ns = self.ns.saturating_add(waited.min(gap.reliable_ns));
    }

    pub(super) fn append(&mut self, other: BehindWaits) {
        self.ns = self.ns.saturating_add(other.ns);
        self.waited.append(other.waited);
    }
}

pub(super) const ENTRIES: &[FactEntry<Gaps>] = facts! {
    /// For `host_busy`: the part of `gap.time_ns` for which the host had waited for the GPU in operators right
    /// before. Without that wait it would have done the same while the GPU worked
    "gap.behind_wait_ns": DOUBLE needs API => |g| {
        let known = g.table.costed.run.profile.recorded.api_calls;
        known.then_some(g.group.sums.behind_waits.ns as f64)
    },
    /// The operators that the program called in which it waited then, and in which it would have waited instead,
    /// the one with most of the time first; silent where the host did not wait
    "gap.waited_in": STRINGS => |g| {
        let behind = &g.group.sums.behind_waits;
        let waited = behind.waited.sorted().into_iter();
        let names: Arc<[Arc<str>]> = waited.map(|(op, _)| g.table.text(op).into()).collect();
        Answer::or_silent(Some(names).filter(|_| behind.ns > 0))
    },
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{MemberKind, Value};
    use crate::profile::{RangeKind, ThreadId};

    const MS: i64 = 1_000_000;

    /// A kernel of 35 ms, waits in `aten::index` with their starts and ends in ms, and the next launch at 60 ms.
    /// Returns `gap.behind_wait_ns` in ms and `gap.waited_in` of the gap between.
    fn behind(waits: &[(i64, i64)], named: bool) -> (f64, Option<Vec<String>>) {
        let waits = waits
            .iter()
            .map(|(start, end)| ("aten::index", *start, *end));
        behind_operators(&waits.collect::<Vec<_>>(), named)
    }

    /// The same, with the operators that wait.
    fn behind_operators(waits: &[(&str, i64, i64)], named: bool) -> (f64, Option<Vec<String>>) {
        let mut b = ProfileBuilder::new();
        let kernel = b.launch(0);
        b.profile.kernels[kernel].span.end = 35 * MS;
        for (operator, start, end) in waits {
            if named {
                b.range(operator, start * MS - 2, end * MS + 2).kind = RangeKind::CpuOp;
                b.range("aten::nonzero", start * MS - 1, end * MS + 1).kind = RangeKind::CpuOp;
            }
            b.call(ThreadId(0), "cudaStreamSynchronize", start * MS, 0)
                .span
                .end = end * MS;
        }
        b.launch(60 * MS);
        b.launch(61 * MS);
        b.profile.recorded.api_calls = true;
        let facts = [
            "gap.longest_ns",
            "gap.cause",
            "gap.behind_wait_ns",
            "gap.waited_in",
        ];
        let mut gaps = answers(b, MemberKind::Gap, facts).into_iter();
        let is_long =
            |longest: &Answer| matches!(longest, Answer::Value(Value::Double(ns)) if *ns > 2e7);
        let [_, cause, behind, waited_in] = gaps.find(|[longest, ..]| is_long(longest)).unwrap();
        assert_eq!(cause, "host_busy".into());
        let ns = match behind {
            Answer::Value(Value::Double(ns)) => ns,
            other => panic!("{other:?}"),
        };
        let name = match waited_in {
            Answer::Value(Value::Strings(names)) => {
                Some(names.iter().map(ToString::to_string).collect())
            }
            _ => None,
        };
        ((ns / 1e5).round() / 10.0, name)
    }

    #[test]
    fn work_right_behind_a_wait_could_run_beside_the_gpu() {
        let index = Some(vec!["aten::index".to_owned()]);
        // As long as the wait before the gap.
        assert_eq!(behind(&[(15, 36)], true), (20.0, index.clone()));
        // No longer than the gap.
        assert_eq!(behind(&[(5, 35)], true), (25.0, index.clone()));
        // Waits with less than a millisecond between add up.
        assert_eq!(behind(&[(17, 20), (20, 35)], true), (18.0, index.clone()));
        assert_eq!(behind(&[(17, 19), (20, 35)], true), (15.0, index));
    }

    #[test]
    fn waits_that_would_take_over_are_named_as_well() {
        let chain = [("aten::index", 15, 35), ("aten::bincount", 36, 37)];
        let both = ["aten::index", "aten::bincount"].map(str::to_owned);
        assert_eq!(behind_operators(&chain, true), (20.0, Some(both.to_vec())));
    }

    #[test]
    fn waits_long_before_a_gap_inside_it_or_outside_of_operators_hid_nothing() {
        assert_eq!(behind(&[], true), (0.0, None));
        assert_eq!(behind(&[(15, 36)], false), (0.0, None));
        assert_eq!(behind(&[(2, 34)], true), (0.0, None));
        assert_eq!(behind(&[(37, 40)], true), (0.0, None));
    }
}
