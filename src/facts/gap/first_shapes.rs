//! Idle intervals inside the first call of an operator with its arguments: a library chooses its kernel or
//! loads it then, which happens once per shape. Such calls may come in any step, so they stay in the window;
//! `correlate` leaves out what an operator does once per program.

use rustc_hash::{FxHashMap, FxHashSet};

use super::median;
use crate::correlate::{ArgsId, Gap, OpCallId, OpNameId, Run};
use crate::profile::Span;

/// Shorter intervals are no set-up: loading a kernel takes a millisecond and more.
const LEAST_NS: i64 = 1_000_000;
/// How many times longer than half of the later ones the first call is.
const LONGER: i64 = 10;

/// An operator and its arguments.
type Key = (OpNameId, ArgsId);

/// The calls that are the first of their operator with their arguments and take ten times as long as half of
/// the later ones; only calls whose kernel ends a long interval are looked at.
#[derive(Debug, Default)]
pub(super) struct FirstShapes(FxHashSet<OpCallId>);

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
        FirstShapes(once.collect())
    }

    /// Whether most of an interval lies inside such a call.
    pub(super) fn explain(&self, run: &Run, gap: &Gap) -> bool {
        let call = call_after(run, gap).filter(|call| self.0.contains(call));
        let inside = call.and_then(|call| Some(span(run, call)?.clip(gap.span).ns()));
        inside.is_some_and(|ns| ns.saturating_mul(2) > gap.span.ns())
    }
}

/// The operator call whose kernel ended an interval.
fn call_after(run: &Run, gap: &Gap) -> Option<OpCallId> {
    run.links.get(gap.next?.idx())?.op
}

fn key(run: &Run, id: OpCallId) -> Option<Key> {
    let call = run.op_calls.get(id.idx())?;
    Some((call.op, call.args?))
}

fn span(run: &Run, id: OpCallId) -> Option<Span> {
    let call = run.op_calls.get(id.idx())?;
    run.profile.ranges.get(call.range.idx()).map(|r| r.span)
}
