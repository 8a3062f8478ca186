//! PyProf's sequence numbers: the one that a kernel belongs to, the other numbers around it, and the
//! index of the kernel among those with the same number.

use super::{Dir, LaunchContext};
use crate::profile::ThreadId;

/// The sequence columns of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SequenceColumns<'i> {
    /// The numbers around the launch.
    pub ids: &'i [u64],
    /// The one that the kernel belongs to, which need not be in `ids`; all others in `ids` are
    /// alternatives.
    pub own: Option<u64>,
    pub sub: u64,
}

/// The properties of a context that affect numbering.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub dir: Dir,
    /// A number that is equal for equal operators.
    pub ops: u32,
    /// Whether it is the call of a recurrent cell.
    pub cell: bool,
}

/// The last kernel of a thread that had a sequence number.
#[derive(Debug, Clone, Copy)]
struct Last {
    seq: u64,
    sub: u64,
    ops: u32,
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
    /// By thread.
    last: Vec<Option<Last>>,
}

/// Modules whose kernels have many sequence numbers and one common count.
const CELLS: [&str; 3] = ["LSTMCell", "GRUCell", "RNNCell"];

impl Numbering {
    pub(super) fn new(threads: usize) -> Numbering {
        Numbering {
            last: vec![None; threads],
        }
    }

    /// The numbers of the next kernel; `ids` are the distinct numbers around its launch, ascending.
    pub(super) fn next<'i>(
        &mut self,
        thread: ThreadId,
        ids: &'i [u64],
        context: Counted,
    ) -> SequenceColumns<'i> {
        // Old versions of `emit_nvtx` print 0 if autograd records nothing.
        let ids = match ids {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        let (Some(&first), Some(&largest)) = (ids.first(), ids.last()) else {
            return SequenceColumns::default();
        };
        let last = self.last.get(thread.idx()).copied().flatten();
        let current = match (context.dir, last.map(|l| l.seq)) {
            (Dir::Fprop, Some(previous)) if largest <= previous => previous,
            (Dir::Fprop, Some(previous)) => ids
                .iter()
                .copied()
                .find(|&id| id > previous)
                .unwrap_or(largest),
            _ => first,
        };
        let sub = last
            .filter(|l| l.ops == context.ops && (l.seq == current || context.cell))
            .map_or(0, |l| l.sub + 1);
        if let Some(slot) = self.last.get_mut(thread.idx()) {
            *slot = Some(Last {
                seq: current,
                sub,
                ops: context.ops,
            });
        }
        SequenceColumns {
            ids,
            own: Some(current),
            sub,
        }
    }
}

pub(super) fn is_cell(context: &LaunchContext) -> bool {
    context.ops.first().is_some_and(|op| &**op == "forward")
        && context.mods.first().is_some_and(|m| CELLS.contains(&&**m))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: ThreadId = ThreadId(0);
    const ENGINE: ThreadId = ThreadId(1);

    fn context(dir: Dir, ops: u32) -> Counted {
        Counted {
            dir,
            ops,
            cell: false,
        }
    }

    /// The columns: the kernel's number, the others, and the count.
    fn columns(numbers: SequenceColumns<'_>) -> (Vec<u64>, Vec<u64>, u64) {
        let (seq, alt) = (numbers.ids.iter()).partition(|&&id| Some(id) == numbers.own);
        (seq, alt, numbers.sub)
    }

    fn is(seq: &[u64], alt: &[u64], sub: u64) -> (Vec<u64>, Vec<u64>, u64) {
        (seq.into(), alt.into(), sub)
    }

    #[test]
    fn kernels_of_one_number_are_counted() {
        let mut numbering = Numbering::new(1);
        let mut next = |ids: &[u64], context| columns(numbering.next(MAIN, ids, context));
        let mm = context(Dir::Fprop, 0);
        assert_eq!(next(&[71, 72], mm), is(&[71], &[72], 0));
        assert_eq!(next(&[71], mm), is(&[71], &[], 1));
        let add = context(Dir::Fprop, 1);
        assert_eq!(next(&[71], add), is(&[71], &[], 0));
        assert_eq!(next(&[], add), is(&[], &[], 0));
        let backward = context(Dir::Bprop, 2);
        assert_eq!(next(&[0, 72], backward), is(&[72], &[], 0));
        // The sum of gradients has no new number, so it belongs to the previous kernel's.
        let sum = context(Dir::Fprop, 3);
        assert_eq!(next(&[0], sum), is(&[], &[0], 0));
        assert_eq!(next(&[0], sum), is(&[], &[0], 1));
    }

    #[test]
    fn each_thread_is_counted_separately() {
        let mut n = Numbering::new(2);
        let mm = context(Dir::Bprop, 0);
        let subs = [MAIN, ENGINE, MAIN, ENGINE].map(|thread| n.next(thread, &[9], mm).sub);
        assert_eq!(subs, [0, 0, 1, 1]);
    }

    #[test]
    fn all_numbers_are_listed() {
        let mut n = Numbering::new(1);
        let numbers = n.next(MAIN, &[1, 2, 3, 4], context(Dir::Bprop, 0));
        assert_eq!(columns(numbers), is(&[1], &[2, 3, 4], 0));
    }

    #[test]
    fn kernels_of_recurrent_cells_are_counted_together() {
        let mut n = Numbering::new(1);
        let lstm = LaunchContext {
            mods: vec!["LSTMCell".into()],
            ops: vec!["forward".into()],
            ..LaunchContext::default()
        };
        let cell = Counted {
            cell: is_cell(&lstm),
            ..context(Dir::Fprop, 0)
        };
        let subs = [5, 6, 7].map(|s| n.next(MAIN, &[s], cell).sub);
        assert_eq!(subs, [0, 1, 2]);
    }
}
