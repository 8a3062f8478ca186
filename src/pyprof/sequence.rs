//! PyProf's sequence numbers: the one that a kernel belongs to, the other numbers around it, and the
//! index of the kernel among those with the same number.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::record::{Dir, LaunchContext};
use crate::profile::ThreadId;

/// The sequence columns of a kernel.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct SequenceColumns {
    pub seq: Vec<u64>,
    pub sub: u64,
    pub alt: Vec<u64>,
}

/// The last kernel of a thread that had a sequence number.
#[derive(Debug)]
struct Last {
    seq: u64,
    sub: u64,
    context: Arc<LaunchContext>,
}

/// Numbers the kernels of a profile, in output order.
///
/// A forward kernel belongs to the first number around it that is larger than the previous one of its
/// thread; if there is none, to that previous one, which then is in neither list. A backward kernel
/// belongs to the smallest. All others are alternatives. The sub-number increases while number and
/// operators stay the same, and through all kernels of a recurrent cell. PyProf keeps one "previous"
/// for all threads, so that two active threads reset each other's count; here, each thread has its own.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    last: FxHashMap<ThreadId, Last>,
}

/// Modules whose kernels have many sequence numbers and one common count.
const CELLS: [&str; 3] = ["LSTMCell", "GRUCell", "RNNCell"];

impl Numbering {
    /// The numbers of the next kernel; `ids` are the distinct numbers around its launch, ascending.
    pub(super) fn next(
        &mut self,
        thread: ThreadId,
        ids: &[u64],
        context: &Arc<LaunchContext>,
    ) -> SequenceColumns {
        // Old versions of `emit_nvtx` print 0 if autograd records nothing.
        let ids = match ids {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        let (Some(&first), Some(&largest)) = (ids.first(), ids.last()) else {
            return SequenceColumns::default();
        };
        let last = self.last.get(&thread);
        let own = match (context.dir, last.map(|last| last.seq)) {
            (Dir::Fprop, Some(previous)) if largest <= previous => previous,
            (Dir::Fprop, Some(previous)) => {
                let next = ids.iter().copied().find(|&id| id > previous);
                next.unwrap_or(largest)
            }
            _ => first,
        };
        let continues =
            |last: &&Last| last.context.ops == context.ops && (last.seq == own || is_cell(context));
        let sub = last.filter(continues).map_or(0, |last| last.sub + 1);
        let context = Arc::clone(context);
        self.last.insert(
            thread,
            Last {
                seq: own,
                sub,
                context,
            },
        );
        let (seq, alt) = ids.iter().partition(|&&id| id == own);
        SequenceColumns { seq, sub, alt }
    }
}

/// Whether a launch belongs to the call of a recurrent cell.
fn is_cell(context: &LaunchContext) -> bool {
    context.ops.first().is_some_and(|op| op == "forward")
        && context
            .mods
            .first()
            .is_some_and(|module| CELLS.contains(&module.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: ThreadId = ThreadId(0);
    const ENGINE: ThreadId = ThreadId(1);

    fn context(dir: Dir, module: &str, op: &str) -> Arc<LaunchContext> {
        Arc::new(LaunchContext {
            dir,
            mods: vec![module.into()],
            ops: vec![op.into()],
            ..LaunchContext::default()
        })
    }

    fn is(seq: &[u64], alt: &[u64], sub: u64) -> SequenceColumns {
        let (seq, alt) = (seq.into(), alt.into());
        SequenceColumns { seq, sub, alt }
    }

    #[test]
    fn kernels_of_one_number_are_counted() {
        let mut numbering = Numbering::default();
        let mut next = |ids: &[u64], context| numbering.next(MAIN, ids, context);
        let mm = &context(Dir::Fprop, "na", "mm");
        assert_eq!(next(&[71, 72], mm), is(&[71], &[72], 0));
        assert_eq!(next(&[71], mm), is(&[71], &[], 1));
        let add = &context(Dir::Fprop, "na", "add");
        assert_eq!(next(&[71], add), is(&[71], &[], 0));
        assert_eq!(next(&[], add), is(&[], &[], 0));
        let backward = &context(Dir::Bprop, "na", "MmBackward");
        assert_eq!(next(&[0, 72], backward), is(&[72], &[], 0));
        // The sum of gradients has no new number, so it belongs to the previous kernel's.
        let sum = &context(Dir::Fprop, "na", "sum");
        assert_eq!(next(&[0], sum), is(&[], &[0], 0));
        assert_eq!(next(&[0], sum), is(&[], &[0], 1));
    }

    #[test]
    fn each_thread_is_counted_separately() {
        let mut n = Numbering::default();
        let mm = &context(Dir::Bprop, "na", "mm");
        let subs = [MAIN, ENGINE, MAIN, ENGINE].map(|thread| n.next(thread, &[9], mm).sub);
        assert_eq!(subs, [0, 0, 1, 1]);
    }

    #[test]
    fn all_numbers_are_listed() {
        let mut n = Numbering::default();
        let numbers = n.next(MAIN, &[1, 2, 3, 4], &context(Dir::Bprop, "na", "mm"));
        assert_eq!(numbers, is(&[1], &[2, 3, 4], 0));
    }

    #[test]
    fn kernels_of_recurrent_cells_are_counted_together() {
        let mut n = Numbering::default();
        let cell = &context(Dir::Fprop, "LSTMCell", "forward");
        let subs = [5, 6, 7].map(|s| n.next(MAIN, &[s], cell).sub);
        assert_eq!(subs, [0, 1, 2]);
    }
}
