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

/// The lengths of the calls of each operator of each process.
type Lengths = FxHashMap<(ProcessId, OpNameId), Vec<i64>>;

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
            .fold(Lengths::default, |mut others, (at, range)| {
                let first = operator(range).and_then(|key| Some((key, slow.get(&key)?)));
                if let Some((key, first)) = first
                    && RangeId::new(at) != first.0
                {
                    // After a call before it, it is no first call, whatever it took.
                    let later = range.span.start >= first.1.span.start;
                    let ns = if later { range.span.ns() } else { i64::MAX };
                    others.entry(key).or_default().push(ns);
                }
                others
            });
    let mut others = others.reduce(Lengths::default, |mut all, part| {
        for (key, mut lengths) in part {
            all.entry(key).or_default().append(&mut lengths);
        }
        all
    });
    let mut found: Vec<RangeId> = Vec::new();
    for (key, (id, first)) in slow {
        let mut others = others.remove(&key).unwrap_or_default();
        if others.len() < FEWEST {
            continue;
        }
        let comes_first = !others.contains(&i64::MAX);
        let slow = |median: i64| first.span.ns() >= median.saturating_mul(RATIO);
        if comes_first && median(&mut others).is_some_and(slow) {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}
