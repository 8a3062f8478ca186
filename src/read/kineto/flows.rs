//! Arrows from a forward operator to the range of its backward, for traces that leave out sequence
//! numbers: what the arrow joins is numbered alike, and from then on read as if PyTorch had done so.
//!
//! A number that stands in the trace is never changed: it is what PyTorch draws the arrow from.

use rustc_hash::FxHashMap;

use crate::profile::{HostRange, RangeKind, SerialNumber, Strings, Thread, ThreadId};

/// Numbers given to arrows whose ends have none: beyond any that PyTorch counts to.
const DRAWN: u64 = 1 << 47;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Forward,
    Backward,
}

/// An end of an arrow stands at the start of its range.
type Spot = (ThreadId, i64);

/// The arrows of a trace, by their end.
#[derive(Debug, Default)]
pub(super) struct Flows {
    forward: Vec<(i64, Spot)>,
    backward: Vec<(i64, Spot)>,
}

/// Where ranges begin together: the first of these (the outermost) by kind of end.
#[derive(Debug, Clone, Copy, Default)]
struct Begins {
    operator: Option<u32>,
    node: Option<u32>,
}

impl Flows {
    pub(super) fn add(&mut self, end: End, id: i64, thread: ThreadId, at: i64) {
        match end {
            End::Forward => self.forward.push((id, (thread, at))),
            End::Backward => self.backward.push((id, (thread, at))),
        }
    }

    /// Numbers the ranges at both ends of an arrow alike, where one or both have no number.
    pub(super) fn settle(self, ranges: &mut [HostRange], threads: &[Thread], strings: &Strings) {
        if self.forward.is_empty() || self.backward.is_empty() {
            return;
        }
        let begins = self.begins(ranges, strings);
        // Ids are counted per process.
        let process = |spot: Spot| threads.get(spot.0.idx()).map(|t| t.process);
        let backward: FxHashMap<_, Spot> = self
            .backward
            .iter()
            .map(|(id, spot)| ((process(*spot), *id), *spot))
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

    /// The ranges that begin where an arrow does.
    fn begins(&self, ranges: &[HostRange], strings: &Strings) -> FxHashMap<Spot, Begins> {
        let ends = self.forward.iter().chain(&self.backward);
        let mut begins: FxHashMap<Spot, Begins> =
            ends.map(|(_, spot)| (*spot, Begins::default())).collect();
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

/// `AddmmBackward0`, with or without the range of the engine around it.
fn is_node(name: &str) -> bool {
    name.contains("Backward") || name.starts_with("autograd::engine::")
}

fn join(ranges: &mut [HostRange], forward: usize, node: usize, arrow: usize) {
    let number = |at: usize| ranges.get(at).map(|range| range.seq);
    let number = match (number(forward), number(node)) {
        (Some(None), Some(None)) => SerialNumber::new(DRAWN + arrow as u64),
        (Some(Some(number)), Some(None)) | (Some(None), Some(Some(number))) => Some(number),
        _ => return,
    };
    for at in [forward, node] {
        if let Some(range) = ranges.get_mut(at) {
            range.seq = number;
        }
    }
}
