//! Idle time between kernels of one call of an operator, which the program cannot change.

use crate::correlate::{Gap, GapCause, Run};
use crate::profile::KernelId;

/// The first kernel of each operator call.
#[derive(Debug)]
pub(super) struct FirstKernels(Vec<Option<KernelId>>);

impl FirstKernels {
    pub(super) fn of(run: &Run) -> FirstKernels {
        let mut first = vec![None; run.op_calls.len()];
        for (kernel, link) in (0..).map(KernelId).zip(&run.links) {
            if let Some(slot) = link.op.and_then(|call| first.get_mut(call.idx())) {
                slot.get_or_insert(kernel);
            }
        }
        FirstKernels(first)
    }

    /// Whether a gap in which the next kernel waited for others stands between kernels of one call.
    pub(super) fn precede(&self, run: &Run, gap: &Gap) -> bool {
        let call = || {
            let kernel = gap.next?;
            let call = run.link(kernel)?.op?;
            let first = (*self.0.get(call.idx())?)?;
            Some(first != kernel)
        };
        gap.cause == GapCause::Waiting && call() == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{Answer, MemberKind, Value};

    #[test]
    fn waits_between_kernels_of_one_call_are_a_group_of_their_own() {
        let mut b = ProfileBuilder::new();
        for call in 0..2 {
            let at = call * 100;
            b.range("aten::_cudnn_rnn", at, at + 90);
            for (launch, kernel) in [(at, 0), (at + 20, 1), (at + 40, 2)] {
                let id = b.launch(launch);
                let start = 1_000_000 * (call + 1) + 200_000 * kernel;
                let span = &mut b.profile.kernels[id].span;
                (span.start, span.end) = (start, start + 10_000);
            }
        }
        b.profile.recorded.api_calls = true;
        let facts = ["gap.cause", "gap.within_calls", "gap.count"];
        let mut groups = answers(b, MemberKind::Gap, facts);
        groups.sort_by_key(|group| format!("{group:?}"));
        let group = |within: bool, count: i64| {
            let cause = Value::Str("waiting".into());
            [cause, Value::Bool(within), Value::Int(count)].map(Answer::Value)
        };
        assert_eq!(groups, [group(false, 1), group(true, 4)]);
    }
}
