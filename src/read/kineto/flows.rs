//! Flow arrows from a forward operator to the range of its backward, for traces without sequence
//! numbers: both ends of an arrow get the same number, as if PyTorch had recorded it.
//!
//! A number in the trace is never changed: PyTorch derives the arrow from it.

use rustc_hash::FxHashMap;

use crate::profile::{HostRange, RangeKind, SerialNumber, Strings, Thread, ThreadId};

/// The number of the first arrow whose ends have none; larger than any number in PyTorch.
const FIRST_ARROW: u64 = 1 << 47;

/// The two ends of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrowEnd {
    Forward,
    Backward,
}

/// The position of an arrow's end: the start of a range.
type RangeStart = (ThreadId, i64);

/// The arrows of a trace, by their ends.
#[derive(Debug, Default)]
pub(super) struct Flows {
    forward: Vec<(i64, RangeStart)>,
    backward: Vec<(i64, RangeStart)>,
}

/// The outermost ranges that begin at one position, by the end of an arrow that they can be.
#[derive(Debug, Clone, Copy, Default)]
struct Begins {
    operator: Option<u32>,
    node: Option<u32>,
}

impl Flows {
    /// Adds one end of the arrow `id`, at the time `at` in ns.
    pub(super) fn add(&mut self, end: ArrowEnd, id: i64, thread: ThreadId, at: i64) {
        match end {
            ArrowEnd::Forward => self.forward.push((id, (thread, at))),
            ArrowEnd::Backward => self.backward.push((id, (thread, at))),
        }
    }

    /// Assigns the same number to the ranges at both ends of an arrow, if one or both have none.
    pub(super) fn number(self, ranges: &mut [HostRange], threads: &[Thread], strings: &Strings) {
        if self.forward.is_empty() || self.backward.is_empty() {
            return;
        }
        let begins = self.begins(ranges, strings);
        // Ids are counted per process.
        let process = |start: RangeStart| threads.get(start.0.idx()).map(|t| t.process);
        let backward: FxHashMap<_, RangeStart> = self
            .backward
            .iter()
            .map(|(id, start)| ((process(*start), *id), *start))
            .collect();
        for (arrow, (id, from)) in self.forward.iter().enumerate() {
            let to = backward.get(&(process(*from), *id));
            let forward = begins.get(from).and_then(|b| b.operator);
            let node = to.and_then(|to| begins.get(to)).and_then(|b| b.node);
            if let Some((forward, node)) = forward.zip(node) {
                join(ranges, forward as usize, node as usize, arrow);
            }
        }
    }

    /// The ranges that begin at the ends of arrows.
    fn begins(&self, ranges: &[HostRange], strings: &Strings) -> FxHashMap<RangeStart, Begins> {
        let ends = self.forward.iter().chain(&self.backward);
        let mut begins: FxHashMap<RangeStart, Begins> =
            ends.map(|(_, start)| (*start, Begins::default())).collect();
        let longer = |known: Option<u32>, range: &HostRange| {
            let known = known.and_then(|at| ranges.get(at as usize));
            known.is_none_or(|known| range.span.end > known.span.end)
        };
        for (at, range) in (0_u32..).zip(ranges) {
            if range.kind != RangeKind::CpuOp {
                continue;
            }
            let Some(here) = begins.get_mut(&(range.thread, range.span.start)) else {
                continue;
            };
            let slot = if is_node(strings.get(range.text)) {
                &mut here.node
            } else {
                &mut here.operator
            };
            if longer(*slot, range) {
                *slot = Some(at);
            }
        }
        begins
    }
}

/// Whether a range is a backward node: `AddmmBackward0`, or the engine's range around it.
fn is_node(name: &str) -> bool {
    name.contains("Backward") || name.starts_with("autograd::engine::")
}

fn join(ranges: &mut [HostRange], forward: usize, node: usize, arrow: usize) {
    let number = |at: usize| ranges.get(at).map(|range| range.seq);
    let number = match (number(forward), number(node)) {
        (Some(None), Some(None)) => SerialNumber::new(FIRST_ARROW + arrow as u64),
        (Some(Some(number)), Some(None)) | (Some(None), Some(Some(number))) => Some(number),
        _ => return,
    };
    for at in [forward, node] {
        if let Some(range) = ranges.get_mut(at) {
            range.seq = number;
        }
    }
}
