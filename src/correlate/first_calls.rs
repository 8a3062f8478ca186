//! Finds first calls of operators that took far longer than all calls after them: they load code, start
//! a library or search for an algorithm, which a program does once.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::model::OpNameId;
use super::range_meaning::{RangeInfos, RangeRole};
use crate::base::statistics::median;
use crate::profile::{HostRange, ProcessId, Profile, RangeId};

/// Minimum length of such a call. An operator costs the host microseconds.
const LONG_NS: i64 = 10_000_000;
/// ... and it takes at least this many times the median of the calls after it.
const RATIO: i64 = 20;
/// Number of later calls from which there is a median to compare with.
const FEWEST: usize = 2;

/// The starts and lengths of the calls of each operator of each process.
type Calls = FxHashMap<(ProcessId, OpNameId), Vec<(i64, i64)>>;

/// Whether calls are still slow in the second half of them: what is set up for each new shape, and shapes that
/// change in every step, is no start.
fn comes_again(calls: &mut [(i64, i64)], is_slow: impl Fn(i64) -> bool) -> bool {
    calls.sort_unstable();
    let (_, late) = calls.split_at(calls.len() / 2);
    late.iter().any(|(_, ns)| is_slow(*ns))
}

/// The slow first calls of operators, in the order of the profile's ranges.
pub(super) fn slow_first_calls(profile: &Profile, texts: &RangeInfos) -> Vec<RangeId> {
    let operator = |range: &HostRange| {
        let meaning = texts.of(range);
        let op = meaning.named.map(|named| named.op)?;
        let process = profile.process_of(range.thread)?;
        (texts.role(range, meaning) == RangeRole::Op).then_some((process, op))
    };
    let mut slow: FxHashMap<(ProcessId, OpNameId), (RangeId, &HostRange)> = FxHashMap::default();
    let rows = profile.ranges.par_iter().enumerate();
    let long = rows.filter(|(_, range)| range.span.ns() >= LONG_NS);
    for (at, range) in long.collect::<Vec<_>>() {
        let id = RangeId::new(at);
        let Some(key) = operator(range) else {
            continue;
        };
        let first = slow.entry(key).or_insert((id, range));
        if range.span.start < first.1.span.start {
            *first = (id, range);
        }
    }
    if slow.is_empty() {
        return Vec::new();
    }
    let ops: FxHashSet<OpNameId> = slow.keys().map(|(_, op)| *op).collect();
    let named = |range: &HostRange| texts.of(range).named.is_some_and(|n| ops.contains(&n.op));
    let rows = profile.ranges.par_iter().enumerate();
    let others =
        rows.filter(|(_, range)| named(range))
            .fold(Calls::default, |mut others, (at, range)| {
                let first = operator(range).and_then(|key| Some((key, slow.get(&key)?)));
                if let Some((key, first)) = first
                    && RangeId::new(at) != first.0
                {
                    // After a call before it, it is no first call, whatever it took.
                    let later = range.span.start >= first.1.span.start;
                    let ns = if later { range.span.ns() } else { i64::MAX };
                    let calls = others.entry(key).or_default();
                    calls.push((range.span.start, ns));
                }
                others
            });
    let mut others = others.reduce(Calls::default, |mut all, part| {
        for (key, mut calls) in part {
            all.entry(key).or_default().append(&mut calls);
        }
        all
    });
    let mut found: Vec<RangeId> = Vec::new();
    for (key, (id, first)) in slow {
        let mut others = others.remove(&key).unwrap_or_default();
        if others.len() < FEWEST {
            continue;
        }
        let comes_first = others.iter().all(|(_, ns)| *ns < i64::MAX);
        let mut lengths: Vec<i64> = others.iter().map(|(_, ns)| *ns).collect();
        let usual = median(&mut lengths).unwrap_or(i64::MAX);
        let is_slow = |ns: i64| ns >= LONG_NS && ns >= usual.saturating_mul(RATIO);
        if comes_first && is_slow(first.span.ns()) && !comes_again(&mut others, is_slow) {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}
