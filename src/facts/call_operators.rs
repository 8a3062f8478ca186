//! The operators around calls of the host: those that copies, memsets, waits and idle time are about.

use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use super::call_stacks::CallStacks;
use super::enclosing_ops::{is_operator, operator_in};
use crate::correlate::{GapCause, Run};
use crate::profile::{ApiClass, CallId, CaptureId, RowMap, Span, StrId, ThreadId};

/// The operators around calls, and around captures of copies and memsets into CUDA graphs.
#[derive(Debug)]
pub(super) struct CallOperators {
    calls: Enclosed,
    captures: Enclosed,
    /// The Python functions around the calls.
    pub(super) stacks: CallStacks,
}

/// The operators around some moments, which are rows of a table. Few sequences of operators are around many moments.
#[derive(Debug)]
struct Enclosed {
    /// Which of the sequences is around a moment, and the call of the operator that the program called.
    moments: RowMap<(usize, Span)>,
    sequences: IndexMap<Vec<StrId>, EnclosingRanges, FxBuildHasher>,
}

/// The operators around a host call.
#[derive(Debug, Clone)]
pub(super) struct EnclosingRanges {
    /// The innermost one.
    pub(super) inner: StrId,
    /// The outermost one that is an operator rather than a node of autograd or compiled code: the one
    /// that the program called.
    pub(super) outer: StrId,
    /// The position of that one in `all`.
    outer_at: usize,
    /// Whether the innermost one reads one number.
    pub(super) reads: bool,
    /// Whether one of them is autograd's keeping of a parameter's gradient.
    pub(super) accumulates: bool,
    /// Whether one of them is code that `torch.compile` made.
    pub(super) compiled: bool,
    /// All, from the inside.
    pub(super) all: Arc<[StrId]>,
}

impl CallOperators {
    pub(super) fn of(run: &Run) -> CallOperators {
        let profile = &run.profile;
        let mut wanted: Vec<bool> = (profile.calls.iter())
            .map(|call| {
                let waits = [ApiClass::Sync, ApiClass::CopySync, ApiClass::CopyAsync];
                waits.contains(&call.class)
            })
            .collect();
        let gaps = run.timeline.devices.iter().flat_map(|device| &device.gaps);
        let blamed = gaps.filter(|gap| held_by_a_call(gap.cause));
        let copies = profile.copies.iter();
        let sets = profile.sets.iter();
        let called = (blamed.filter_map(|gap| gap.call)).chain(
            run.copy_calls
                .iter()
                .chain(&run.set_calls)
                .copied()
                .flatten(),
        );
        for id in called {
            if let Some(wanted) = wanted.get_mut(id.idx()) {
                *wanted = true;
            }
        }
        let calls = (0..).map(CallId).zip(profile.calls.iter().zip(&wanted));
        let calls = calls.filter(|(_, (_, wanted))| **wanted);
        let calls = calls.map(|(id, (call, _))| (id, call.thread, call.span));
        let rows = calls
            .clone()
            .map(|(id, thread, span)| (id.idx(), thread, span));
        let captured = copies.filter_map(|copy| copy.captured);
        let mut captured: Vec<CaptureId> =
            captured.chain(sets.filter_map(|s| s.captured)).collect();
        captured.sort_unstable();
        captured.dedup();
        let capture = |id: CaptureId| {
            let capture = profile.captures.get(id.idx())?;
            let (start, end) = (capture.time, capture.time);
            Some((id.idx(), capture.thread, Span { start, end }))
        };
        let mut captures: Vec<_> = captured.into_iter().filter_map(capture).collect();
        captures.sort_by_key(|(_, _, span)| span.start);
        // Each passes over all ranges.
        let (stacks, calls) = rayon::join(
            || CallStacks::of(run, calls.clone()),
            || around(run, profile.calls.len(), rows),
        );
        CallOperators {
            calls,
            captures: around(run, profile.captures.len(), captures.into_iter()),
            stacks,
        }
    }

    /// Those around a call.
    pub(super) fn around(&self, call: CallId) -> Option<&EnclosingRanges> {
        self.calls.at(call.idx())
    }

    /// The call of the operator around a call that the program called.
    pub(super) fn outer_call(&self, call: CallId) -> Option<Span> {
        self.calls.moments.get(call.idx()).map(|(_, outer)| *outer)
    }

    /// Those around the call of a copy or memset, or around the capture of one that a CUDA graph replays.
    pub(super) fn around_work(
        &self,
        captured: Option<CaptureId>,
        call: Option<CallId>,
    ) -> Option<&EnclosingRanges> {
        match captured {
            Some(capture) => self.captures.at(capture.idx()),
            None => self.around(call?),
        }
    }
}

impl Enclosed {
    fn at(&self, moment: usize) -> Option<&EnclosingRanges> {
        let (sequence, _) = self.moments.get(moment)?;
        self.sequences
            .get_index(*sequence)
            .map(|(_, around)| around)
    }
}

/// Causes for which it matters what the host was doing in its call.
pub(super) fn held_by_a_call(cause: GapCause) -> bool {
    matches!(
        cause,
        GapCause::AfterSync | GapCause::BlockingCopy | GapCause::Allocation | GapCause::SlowLaunch
    )
}

/// The operators around each of these moments, which are rows of a table in time order.
///
/// One pass over the ranges; of those open at a moment only the innermost few are looked at, so that
/// ranges a program never closed cost nothing.
fn around(
    run: &Run,
    rows: usize,
    moments: impl Iterator<Item = (usize, ThreadId, Span)>,
) -> Enclosed {
    let profile = &run.profile;
    let mut found = Enclosed {
        moments: RowMap::for_rows(rows),
        sequences: IndexMap::default(),
    };
    if profile.ranges.is_empty() {
        return found;
    }
    let mut open: Vec<Vec<(Span, StrId)>> = vec![Vec::new(); profile.threads.len()];
    let mut ranges = profile.ranges.iter().peekable();
    let (mut stack, mut spans) = (Vec::new(), Vec::new());
    for (row, thread, span) in moments {
        while let Some(range) = ranges.next_if(|r| r.span.start <= span.start) {
            let thread = open.get_mut(range.thread.idx());
            if let Some(open) = thread.filter(|_| is_operator(range)) {
                while open
                    .pop_if(|(open, _)| open.end <= range.span.start)
                    .is_some()
                {}
                open.push((range.span, range.text));
            }
        }
        stack.clear();
        spans.clear();
        if let Some(open) = open.get(thread.idx()) {
            let inner = open.iter().rev().take(DEPTH);
            let around = inner.filter(|(open, _)| open.end >= span.end);
            for (open, text) in around {
                stack.push(*text);
                spans.push(*open);
            }
        }
        let Some(&inner) = stack.first() else {
            continue;
        };
        let new = || {
            let called = |op: &StrId| {
                let text = profile.text(*op);
                text.contains("::") && !text.starts_with("autograd::")
            };
            let inner_name = operator_in(profile.text(inner));
            let mut texts = stack.iter().map(|op| profile.text(*op));
            let outer_at = stack.iter().rposition(called).unwrap_or(0);
            EnclosingRanges {
                inner,
                reads: inner_name.is_some_and(|name| READS.contains(&name)),
                accumulates: texts.clone().any(|text| text.contains("AccumulateGrad")),
                compiled: texts.any(|text| operator_in(text) == Some("torch_compiled")),
                outer: stack.get(outer_at).copied().unwrap_or(inner),
                outer_at,
                all: stack.as_slice().into(),
            }
        };
        let known = found.sequences.get_index_of(&stack);
        let sequence = known.unwrap_or_else(|| found.sequences.insert_full(stack.clone(), new()).0);
        let sequences = &found.sequences;
        let outer_at = sequences.get_index(sequence).map_or(0, |(_, s)| s.outer_at);
        let outer = spans.get(outer_at).copied().unwrap_or(span);
        found.moments.insert(row, (sequence, outer));
    }
    found
}

/// Operators that read one number, for the program or for another operator.
const READS: &[&str] = &["item", "local_scalar_dense", "is_nonzero"];

/// Open ranges looked at from the inside; those that do not reach over the call end soon.
const DEPTH: usize = 32;
