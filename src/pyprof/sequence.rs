//! PyProf's sequence numbers: which one a kernel belongs to, which others stand around it, and how
//! its kernels are counted.

use rustc_hash::FxHashMap;

use super::{Dir, Place, Text};
use crate::profile::ThreadId;

/// What a kernel's sequence columns hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Numbers {
    pub seq: Vec<u64>,
    pub alt: Vec<u64>,
    pub sub: u64,
}

/// The last kernel of a thread that had a sequence number.
#[derive(Debug)]
struct Last {
    seq: u64,
    sub: u64,
    ops: Vec<Text>,
}

/// Numbers the kernels of a profile, in the order in which they are printed.
///
/// A forward kernel belongs to the first number around it that is larger than the previous one of
/// its thread; where none is, to that previous one, which then stands in neither list. A backward
/// kernel belongs to the smallest. All others are alternatives. The sub-number counts on while
/// number and operators stay the same, and through all kernels of a recurrent cell. PyProf keeps
/// one "previous" for all threads, so that two threads at work reset each other's count; here each
/// thread has its own.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    last: FxHashMap<ThreadId, Last>,
}

/// Modules whose kernels carry many sequence numbers and are counted through.
const CELLS: [&str; 3] = ["LSTMCell", "GRUCell", "RNNCell"];

impl Numbering {
    /// The numbers of the next kernel; `ids` are those around its launch, ascending, each once.
    pub(super) fn next(&mut self, thread: ThreadId, ids: &[u64], place: &Place) -> Numbers {
        // Old `emit_nvtx` prints 0 where autograd records nothing.
        let ids = match ids {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        let (Some(&first), Some(&largest)) = (ids.first(), ids.last()) else {
            return Numbers::default();
        };
        let last = self.last.get(&thread);
        let previous = last.map(|l| l.seq);
        let current = match (place.dir, previous) {
            (Dir::Fprop, Some(previous)) if largest <= previous => previous,
            (Dir::Fprop, Some(previous)) => ids
                .iter()
                .copied()
                .find(|&id| id > previous)
                .unwrap_or(largest),
            _ => first,
        };
        let sub = last
            .filter(|l| l.ops == place.ops && (l.seq == current || is_cell(place)))
            .map_or(0, |l| l.sub + 1);
        self.last.insert(
            thread,
            Last {
                seq: current,
                sub,
                ops: place.ops.clone(),
            },
        );
        let (seq, alt) = ids.iter().partition(|&&id| id == current);
        Numbers { seq, alt, sub }
    }
}

fn is_cell(place: &Place) -> bool {
    place.ops.first().is_some_and(|op| &**op == "forward")
        && place.mods.first().is_some_and(|m| CELLS.contains(&&**m))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: ThreadId = ThreadId(0);
    const ENGINE: ThreadId = ThreadId(1);

    fn place(dir: Dir, op: &str) -> Place {
        Place {
            dir,
            ops: vec![op.into()],
            mods: vec!["na".into()],
            ..Place::default()
        }
    }

    fn is(seq: &[u64], alt: &[u64], sub: u64) -> Numbers {
        Numbers {
            seq: seq.into(),
            alt: alt.into(),
            sub,
        }
    }

    #[test]
    fn kernels_of_one_number_are_counted() {
        let mut n = Numbering::default();
        let mm = place(Dir::Fprop, "mm");
        assert_eq!(n.next(MAIN, &[71, 72], &mm), is(&[71], &[72], 0));
        assert_eq!(n.next(MAIN, &[71], &mm), is(&[71], &[], 1));
        let add = place(Dir::Fprop, "add");
        assert_eq!(n.next(MAIN, &[71], &add), is(&[71], &[], 0));
        assert_eq!(n.next(MAIN, &[], &add), is(&[], &[], 0));
        let backward = place(Dir::Bprop, "Mm");
        assert_eq!(n.next(MAIN, &[0, 72], &backward), is(&[72], &[], 0));
        // A gradient sum: nothing new, so it belongs to what ran before it.
        let sum = place(Dir::Fprop, "sum");
        assert_eq!(n.next(MAIN, &[0], &sum), is(&[], &[0], 0));
        assert_eq!(n.next(MAIN, &[0], &sum), is(&[], &[0], 1));
    }

    #[test]
    fn threads_do_not_disturb_each_other() {
        let mut n = Numbering::default();
        let mm = place(Dir::Bprop, "Mm");
        let subs: Vec<u64> = [MAIN, ENGINE, MAIN, ENGINE]
            .map(|thread| n.next(thread, &[9], &mm).sub)
            .to_vec();
        assert_eq!(subs, [0, 0, 1, 1]);
    }

    #[test]
    fn no_number_is_lost() {
        let mut n = Numbering::default();
        let op = place(Dir::Bprop, "x");
        assert_eq!(n.next(MAIN, &[1, 2, 3, 4], &op), is(&[1], &[2, 3, 4], 0));
    }

    #[test]
    fn cells_are_counted_through() {
        let mut n = Numbering::default();
        let mut cell = place(Dir::Fprop, "forward");
        cell.mods = vec!["LSTMCell".into()];
        let subs: Vec<u64> = [5, 6, 7].map(|s| n.next(MAIN, &[s], &cell).sub).to_vec();
        assert_eq!(subs, [0, 1, 2]);
    }
}
