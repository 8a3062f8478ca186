//! Long pauses of the host in the step of an optimizer. It goes through hundreds of tensors between two launches,
//! which is what these launches take, and no other work.

use rustc_hash::FxHashMap;

use super::model::{GapCause, Timeline};
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos};
use crate::profile::{KernelId, Profile, Span, ThreadId};

/// Counts these pauses as late launches, if most of them lies in an optimizer's step and an update ended them:
/// a step may run the forward pass, too. `updates` tells which kernels update parameters.
pub(super) fn are_late_launches(
    timeline: &mut Timeline,
    profile: &Profile,
    texts: &RangeInfos,
    updates: impl Fn(KernelId) -> bool,
) {
    let optimizer = |meaning: &RangeInfo| matches!(meaning.what, RangeClass::Optimizer);
    let mut steps: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
    for (_, range, _) in texts.parts(profile, optimizer) {
        steps.entry(range.thread).or_default().push(range.span);
    }
    for steps in steps.values_mut() {
        *steps = Span::union(std::mem::take(steps));
    }
    let gaps = timeline.devices.iter_mut().flat_map(|d| &mut d.gaps);
    for gap in gaps.filter(|gap| gap.cause == GapCause::HostBusy) {
        let Some(launch) = gap.launch(profile) else {
            continue;
        };
        let own = steps.get(&launch.thread).map_or(&[][..], Vec::as_slice);
        let step = Span::position(own, launch.span.start).and_then(|at| own.get(at));
        let before = Span {
            start: gap.span.start,
            end: launch.span.start.min(gap.span.end),
        };
        let inside = step.map_or(0, |step| step.clip(before).ns());
        if inside > gap.span.ns() / 2 && gap.next.is_some_and(&updates) {
            gap.cause = GapCause::HostLate;
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::SerialNumber;

    /// The cause of 3 ms of idle time before a kernel that `op` launches in the optimizer's step, which begins
    /// after some of it, and whether a wait before it is known.
    fn cause(op: &str, node: bool, after: i64, waits: bool) -> (GapCause, bool) {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        if waits {
            b.call(ThreadId(0), "cudaStreamSynchronize", 120, 0);
        }
        b.range("Optimizer.step#AdamW.step", after, 4_000_000);
        if node {
            let text = "autograd::engine::evaluate_function: MulBackward0";
            b.range(text, 2_900_000, 3_100_000).seq = SerialNumber::new(3);
        }
        b.range(op, 2_950_000, 3_050_000);
        b.launch(3_000_000);
        let gap = b.run().timeline.devices[0].gaps[0];
        (gap.cause, gap.after_wait)
    }

    #[test]
    fn pauses_in_the_step_of_an_optimizer_are_late_launches_of_its_updates() {
        use GapCause::{HostBusy, HostLate};
        let op = "aten::_foreach_sqrt";
        assert_eq!(cause(op, false, 1_000_000, false), (HostLate, false));
        assert_eq!(cause(op, false, 1_000_000, true), (HostLate, true));
        // The host did something else before the step for most of the time.
        assert_eq!(cause(op, false, 2_000_000, false), (HostBusy, false));
        // The backward pass of a closure.
        assert_eq!(
            cause("aten::mul", true, 1_000_000, false),
            (HostBusy, false)
        );
    }
}
