//! Removes ranges that the analysis does not need, while a file is read or afterwards: more than
//! half of a large export.
//!
//! Needed are: ranges around a launch; the numbered operator that recorded a backward node, and the
//! ranges around it; names that mean something by themselves (steps, FSDP hooks, data loading,
//! layers); ranges around a call that may be the cause of idle time; and ranges so long that the GPU
//! may have waited for them. One of PyTorch's own operators with no such call and no numbered range
//! inside (`aten::empty`, `aten::view`) is none of these, unless it has the number of a backward
//! node: operators with a number are deferred until all nodes are known. The first range of each
//! thread, text and arguments is kept in every part of a file, because some questions are only
//! whether such a range exists.

use std::sync::Arc;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use rustc_hash::{FxHashMap, FxHashSet};

use super::timeline::HOST_BUSY_NS;
use crate::profile::{
    ApiCall, ApiClass, CorrelationMap, HostRange, Profile, RangeKind, SerialNumber, Span, StrId,
    ThreadId,
};
use crate::read::{
    DeferredRanges, Part, PartDomain, PartPruner, PartRange, PartText, PartThread, Pruning,
    RemovedRanges,
};

/// The namespace of PyTorch's own operators: no such name is a step, a layer, a user's range or a
/// backward node.
pub(super) const OPERATORS: &str = "aten::";

/// A range this long is kept: it covers half of a pause in which the host may have been busy with
/// something other than launching.
pub(super) const LONG_RANGE_NS: i64 = HOST_BUSY_NS / 2;

/// Keeps the ranges that [`correlate`](super::correlate) and the stages after it use.
#[derive(Debug, Clone, Copy)]
pub struct UnneededRanges;

impl Pruning for UnneededRanges {
    fn start(&self, profile: &Profile) -> Option<Box<dyn PartPruner>> {
        let calls = Arc::new(call_times(profile)?);
        Some(Box::new(Pruner::new(calls)))
    }

    fn restore(&self, deferred: DeferredRanges, profile: &mut Profile) {
        let before = profile.ranges.len();
        let count = deferred.ranges.len();
        let nodes = deferred
            .nodes
            .iter()
            .map(|(process, number)| (*process, Some(*number)));
        let nodes: CorrelationMap<()> = CorrelationMap::for_numbers(nodes);
        for range in deferred.ranges {
            let process = profile.process_of(range.thread);
            let is_needed = process.is_some_and(|process| nodes.contains(process, range.seq));
            if deferred.all_needed || is_needed {
                profile.ranges.push(range);
            } else {
                profile.pruned_starts.add(range.thread, range.span.start);
            }
        }
        let restored = profile.ranges.len() - before;
        profile.pruned_ranges += (count - restored) as u64;
        if restored > 0 {
            // Merges two sorted runs.
            profile.ranges.sort_by_key(|range| range.span.start);
        }
        profile.ranges.shrink_to_fit();
    }

    fn prune(&self, profile: &mut Profile) {
        let Some(calls) = call_times(profile) else {
            return;
        };
        let mut pruner = Pruner::new(Arc::new(calls));
        let threads = (0..profile.threads.len()).map(|at| Some(ThreadId::new(at)));
        let threads: Vec<Option<ThreadId>> = threads.collect();
        let part = Part {
            texts: &profile.strings,
            threads: &threads,
        };
        let mut deferred = DeferredRanges::default();
        let ranges = profile.ranges.iter().map(of_whole);
        pruner.decide(ranges, &part, |thread, seq| {
            let process = profile.process_of(ThreadId(thread.0));
            deferred.nodes.extend(process.map(|process| (process, seq)));
        });
        let mut decisions = pruner.decisions.iter();
        let starts = &mut profile.pruned_starts;
        profile.ranges.retain(|range| {
            let decision = decisions.next().copied().unwrap_or(Decision::Keep);
            match decision {
                Decision::Keep => {}
                Decision::Drop => {
                    profile.pruned_ranges += 1;
                    starts.add(range.thread, range.span.start);
                }
                Decision::Defer => deferred.ranges.push(*range),
            }
            decision == Decision::Keep
        });
        self.restore(deferred, profile);
    }
}

/// Per thread, when it made a call around which ranges are needed, in time order: one that launched
/// a kernel or captured one into a CUDA graph, or one that may be the cause of idle time. `None` if
/// nothing was launched.
fn call_times(profile: &Profile) -> Option<Vec<Vec<i64>>> {
    const PIECE: usize = 1 << 16;
    let started = profile.kernels.iter().map(|k| (k.process, k.correlation));
    let started: CorrelationMap<()> = CorrelationMap::for_numbers(started);
    let launched = |call: &ApiCall| {
        let process = profile.process_of(call.thread);
        process.is_some_and(|process| started.contains(process, call.correlation))
    };
    // In pieces on all threads, then concatenated: lists that grow one by one leave holes in memory.
    let pieces: Vec<(bool, FxHashMap<ThreadId, Vec<i64>>)> = (profile.calls)
        .par_chunks(PIECE)
        .map(|calls| {
            let mut any = false;
            let mut threads: FxHashMap<ThreadId, Vec<i64>> = FxHashMap::default();
            for call in calls {
                let launched = launched(call);
                any |= launched;
                if launched || may_cause_idle_time(call) {
                    let times = threads.entry(call.thread).or_default();
                    times.push(call.span.start);
                }
            }
            (any, threads)
        })
        .collect();
    if profile.captures.is_empty() && !pieces.iter().any(|(any, _)| *any) {
        return None;
    }
    let mut captures: FxHashMap<ThreadId, Vec<i64>> = FxHashMap::default();
    for capture in &profile.captures {
        let times = captures.entry(capture.thread).or_default();
        times.push(capture.time);
    }
    let threads = (0..profile.threads.len()).into_par_iter().map(|thread| {
        let thread = ThreadId::new(thread);
        let lists = pieces.iter().filter_map(|(_, lists)| lists.get(&thread));
        let lists = lists.chain(captures.get(&thread));
        let lists: Vec<&[i64]> = lists.map(Vec::as_slice).collect();
        let mut times = lists.concat();
        if !times.is_sorted() {
            times.sort_unstable();
        }
        times
    });
    Some(threads.collect())
}

/// Whether a call may be why the GPU was idle. Any call may if it is long.
fn may_cause_idle_time(call: &ApiCall) -> bool {
    match call.class {
        ApiClass::Launch | ApiClass::GraphLaunch | ApiClass::SetAsync | ApiClass::Other => {
            call.span.ns() >= HOST_BUSY_NS
        }
        ApiClass::CopySync
        | ApiClass::CopyAsync
        | ApiClass::SetSync
        | ApiClass::Sync
        | ApiClass::Alloc
        | ApiClass::Free
        | ApiClass::ModuleLoad => true,
    }
}

/// Prunes the ranges of a file, part by part.
#[derive(Debug)]
struct Pruner {
    /// As returned by [`call_times`].
    calls: Arc<Vec<Vec<i64>>>,
    seen: FxHashSet<RangeKey>,
    /// Per text: whether it is the name of one of PyTorch's operators.
    operators: Vec<bool>,
    /// Per range.
    decisions: Vec<Decision>,
    /// Per thread of the part: starts of numbered ranges.
    numbered: Vec<Vec<i64>>,
}

/// What happens to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Keep,
    Drop,
    Defer,
}

/// Thread, text and arguments, whether there is an operator id, and whether there is a sequence
/// number and whether that is 0.
type RangeKey = (u32, StrId, Option<StrId>, bool, Option<bool>);

/// A range of a file that is read as a whole.
fn of_whole(range: &HostRange) -> PartRange {
    PartRange {
        span: range.span,
        thread: PartThread(range.thread.row()),
        kind: range.kind,
        text: PartText::Written(range.text),
        domain: range.domain.map(|domain| PartDomain(domain.row())),
        seq: range.seq,
        op_id: range.op_id,
        args: range.args,
    }
}

impl Pruner {
    fn new(calls: Arc<Vec<Vec<i64>>>) -> Pruner {
        Pruner {
            calls,
            seen: FxHashSet::default(),
            operators: Vec::new(),
            decisions: Vec::new(),
            numbered: Vec::new(),
        }
    }

    /// Decides what happens to consecutive ranges in order of start. A range that starts with the first one or ends
    /// after the last one started may enclose ranges of another part, and is kept. `node` receives the ranges
    /// that may be backward nodes.
    fn decide(
        &mut self,
        ranges: impl Iterator<Item = PartRange> + Clone,
        part: &Part<'_>,
        mut node: impl FnMut(PartThread, SerialNumber),
    ) {
        // Which pieces of a file one pruner gets depends on how busy each thread is, so nothing may
        // be remembered from one to the next.
        self.seen.clear();
        let known = self.operators.len();
        let names = part.texts.texts_from(known);
        (self.operators).extend(names.map(|name| name.starts_with(OPERATORS)));
        self.numbered.iter_mut().for_each(Vec::clear);
        self.numbered.resize(part.threads.len(), Vec::new());
        let may_be_numbered = |range: &PartRange| {
            range.seq.is_some() || matches!(range.text, PartText::Registered(_))
        };
        for range in ranges.clone().filter(may_be_numbered) {
            if let Some(times) = self.numbered.get_mut(range.thread.0 as usize) {
                times.push(range.span.start);
            }
        }
        let start = |range: Option<PartRange>| range.map_or(0, |range| range.span.start);
        let (first, last) = (start(ranges.clone().next()), start(ranges.clone().last()));
        let mut cursors: Vec<[TimeCursor<'_>; 2]> = (part.threads.iter())
            .zip(&self.numbered)
            .map(|(thread, numbered)| {
                let calls = thread.and_then(|thread| self.calls.get(thread.idx()));
                let calls = calls.map_or(&[][..], Vec::as_slice);
                [
                    TimeCursor::new(calls, first),
                    TimeCursor::new(numbered, first),
                ]
            })
            .collect();
        self.decisions.clear();
        for range in ranges {
            let operator = match range.text {
                // There are no operators of PyTorch in a domain of its own.
                PartText::Written(text)
                    if range.domain.is_none()
                        && range.kind == RangeKind::PushPop
                        && self.operators.get(text.idx()) == Some(&true) =>
                {
                    Some(text)
                }
                _ => None,
            };
            let numbered = range.seq.is_some();
            let removable = operator.filter(|_| {
                first < range.span.start
                    && range.span.end <= last
                    && range.span.ns() < LONG_RANGE_NS
            });
            let mut decision = Decision::Keep;
            if removable.is_some() || (numbered && operator.is_none()) {
                let (mut calls, mut numbers) = (true, true);
                if let Some([called, others]) = cursors.get_mut(range.thread.0 as usize) {
                    calls = called.more_in(range.span, 0);
                    numbers = others.more_in(range.span, usize::from(numbered));
                }
                if let Some(seq) = range.seq
                    && calls
                    && operator.is_none()
                {
                    node(range.thread, seq);
                }
                let needed = removable.is_none_or(|text| {
                    let zero = range.seq.map(|seq| seq.get() == 0);
                    let has_op_id = range.op_id.is_some();
                    let key = (range.thread.0, text, range.args, has_op_id, zero);
                    calls || numbers || self.seen.insert(key)
                });
                decision = match range.seq {
                    _ if needed => Decision::Keep,
                    Some(_) => Decision::Defer,
                    None => Decision::Drop,
                };
            }
            self.decisions.push(decision);
        }
    }
}

impl PartPruner for Pruner {
    fn for_another_part(&self) -> Box<dyn PartPruner> {
        Box::new(Pruner::new(Arc::clone(&self.calls)))
    }

    fn prune(&mut self, ranges: &mut Vec<PartRange>, part: &Part<'_>, removed: &mut RemovedRanges) {
        let nodes = &mut removed.nodes;
        let rows = ranges.iter().copied();
        self.decide(rows, part, |thread, seq| nodes.push((thread, seq)));
        let mut decisions = self.decisions.iter();
        ranges.retain(|range| {
            let decision = decisions.next().copied().unwrap_or(Decision::Keep);
            match decision {
                Decision::Keep => {}
                Decision::Drop => removed.drop(range),
                Decision::Defer => removed.deferred.push(*range),
            }
            decision == Decision::Keep
        });
    }
}

/// Sorted times, searched in order.
struct TimeCursor<'a> {
    times: &'a [i64],
    at: usize,
}

impl<'a> TimeCursor<'a> {
    fn new(times: &'a [i64], from: i64) -> TimeCursor<'a> {
        let at = times.partition_point(|t| *t < from);
        TimeCursor { times, at }
    }

    /// Whether more than so many times lie in a span. Starts never decrease.
    fn more_in(&mut self, span: Span, than: usize) -> bool {
        while self.times.get(self.at).is_some_and(|t| *t < span.start) {
            self.at += 1;
        }
        self.times
            .get(self.at + than)
            .is_some_and(|t| *t < span.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{RangeText, Strings};

    /// The ranges kept, those deferred, and the numbers of possible backward nodes.
    fn pruned(rows: &[(&str, i64, i64)], calls: &[i64]) -> (Vec<String>, Vec<String>, Vec<u64>) {
        let mut texts = Strings::default();
        let mut ranges: Vec<PartRange> = rows
            .iter()
            .map(|&(text, start, end)| {
                let parts = RangeText::split(text);
                PartRange {
                    span: Span { start, end },
                    thread: PartThread(0),
                    kind: RangeKind::PushPop,
                    text: PartText::Written(texts.intern(parts.name)),
                    domain: None,
                    seq: parts.seq.and_then(SerialNumber::new),
                    op_id: parts.op_id.and_then(SerialNumber::new),
                    args: None,
                }
            })
            .collect();
        let mut pruner = Pruner::new(Arc::new(vec![calls.to_vec()]));
        let mut removed = RemovedRanges::default();
        let part = Part {
            texts: &texts,
            threads: &[Some(ThreadId(0))],
        };
        pruner.prune(&mut ranges, &part, &mut removed);
        let gone = removed.dropped as usize + removed.deferred.len();
        assert_eq!(gone, rows.len() - ranges.len());
        let text = |r: &PartRange| {
            let PartText::Written(text) = r.text else {
                panic!("no text was registered: {r:?}");
            };
            format!("{} {}", texts.get(text), r.span.start)
        };
        (
            ranges.iter().map(text).collect(),
            removed.deferred.iter().map(text).collect(),
            removed.nodes.iter().map(|(_, seq)| seq.get()).collect(),
        )
    }

    fn left(rows: &[(&str, i64, i64)], calls: &[i64]) -> Vec<String> {
        let (left, deferred, _) = pruned(rows, calls);
        assert_eq!(deferred, [""; 0]);
        left
    }

    #[test]
    fn operators_without_a_launch_inside_are_dropped() {
        let rows = [
            ("step 3", 0, 1000),
            ("aten::empty, op_id = 1", 10, 20),
            ("aten::empty, op_id = 2", 30, 40),
            ("aten::mm, op_id = 3", 50, 90),
            ("aten::mm, op_id = 4", 100, 190),
            ("aten::view, seq = 5, op_id = 5", 200, 210),
            ("optimizer", 300, 310),
            ("aten::empty, op_id = 6", 320, 330),
            ("end", 990, 995),
        ];
        // The first of each text is kept in any case.
        assert_eq!(
            left(&rows, &[150]),
            [
                "step 3 0",
                "aten::empty 10",
                "aten::mm 50",
                "aten::mm 100",
                "aten::view 200",
                "optimizer 300",
                "end 990",
            ]
        );
    }

    #[test]
    fn ranges_around_a_numbered_range_are_kept() {
        let rows = [
            ("first", 0, 1),
            ("aten::to, op_id = 1", 10, 20),
            ("aten::to, op_id = 2", 30, 60),
            ("aten::copy_, seq = 9, op_id = 3", 40, 50),
            ("aten::to, op_id = 4", 70, 80),
            // May enclose ranges of the next part.
            ("aten::to, op_id = 5", 90, 120),
            ("last", 100, 101),
        ];
        assert_eq!(
            left(&rows, &[5]),
            [
                "first 0",
                "aten::to 10",
                "aten::to 30",
                "aten::copy_ 40",
                "aten::to 90",
                "last 100"
            ]
        );
    }

    #[test]
    fn numbered_operators_are_deferred_and_possible_nodes_are_noted() {
        let rows = [
            ("first", 0, 1),
            // The first of each key is kept; a number of 0 is another key.
            ("aten::view, seq = 4, op_id = 1", 2, 3),
            ("aten::view, seq = 0, op_id = 2", 4, 5),
            ("aten::view, seq = 5, op_id = 3", 10, 20),
            ("aten::view, seq = 0, op_id = 4", 21, 22),
            // Another number inside, a launch inside, too long.
            ("aten::view, seq = 6, op_id = 5", 30, 60),
            ("aten::view, seq = 6, op_id = 6", 40, 50),
            ("aten::view, seq = 7, op_id = 7", 70, 80),
            ("aten::view, seq = 8, op_id = 8", 90, 90 + LONG_RANGE_NS),
            ("ViewBackward0, seq = 5, op_id = 9", 600_000, 600_010),
            ("MmBackward0, seq = 6, op_id = 9", 600_020, 600_030),
            ("last", 700_000, 700_001),
        ];
        let (left, deferred, nodes) = pruned(&rows, &[75, 600_025]);
        assert_eq!(
            left,
            [
                "first 0",
                "aten::view 2",
                "aten::view 4",
                "aten::view 30",
                "aten::view 70",
                "aten::view 90",
                "ViewBackward0 600000",
                "MmBackward0 600020",
                "last 700000",
            ]
        );
        assert_eq!(
            deferred,
            ["aten::view 10", "aten::view 21", "aten::view 40"]
        );
        assert_eq!(nodes, [6]);
    }

    #[test]
    fn a_launch_at_the_end_of_a_range_is_outside() {
        let rows = [
            ("first", 0, 1),
            ("aten::a, op_id = 1", 2, 3),
            ("aten::a, op_id = 2", 10, 20),
            ("aten::a, op_id = 3", 20, 30),
            ("aten::a, op_id = 4", 30, 40),
            ("last", 50, 60),
        ];
        let kept = left(&rows, &[20]);
        assert_eq!(kept, ["first 0", "aten::a 2", "aten::a 20", "last 50"]);
    }
}
