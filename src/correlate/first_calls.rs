//! Finds first calls of operators that took far longer than all calls after them because they load code, start
//! a library or search for an algorithm, which a program does once.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::model::OpNameId;
use super::range_meaning::{RangeInfos, RangeRole};
use super::steps::Steps;
use crate::base::statistics::median;
use crate::profile::{ApiClass, HostRange, ProcessId, Profile, RangeId, Span, SpanSums, ThreadId};

/// Minimum length of such a call. An operator costs the host microseconds.
const LONG_NS: i64 = 10_000_000;
/// ... and it takes at least this many times the median of the calls after it.
const RATIO: i64 = 20;
/// Number of later calls from which there is a median to compare with.
const FEWEST: usize = 2;
/// Share of a call inside calls of the driver that do not wait, from which it loads something. Starts in recordings
/// have 72 % and more, most of it in a launch or `cudaFree`; a plan that cuDNN makes for new shapes has 0.1 %.
const LOADING: f64 = 0.2;

/// Shortest call of the driver that may load something; most are launches, of which each takes microseconds.
const LOADING_NS: i64 = 20_000;

/// The starts and lengths of the calls of each operator of each process.
type Calls = FxHashMap<(ProcessId, OpNameId), Vec<(i64, i64)>>;

/// When threads were inside calls of the driver that do not wait for the GPU, without the shortest.
#[derive(Debug, Default)]
pub(crate) struct DriverTime(FxHashMap<ThreadId, SpanSums>);

impl DriverTime {
    pub(crate) fn of(profile: &Profile, threads: &FxHashSet<ThreadId>) -> DriverTime {
        let mut spans: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
        let calls = profile.calls.iter();
        let waits = |class| {
            matches!(
                class,
                ApiClass::Sync | ApiClass::CopySync | ApiClass::CopyAsync
            )
        };
        let long = calls.filter(|call| call.span.ns() >= LOADING_NS && !waits(call.class));
        for call in long.filter(|call| threads.contains(&call.thread)) {
            spans.entry(call.thread).or_default().push(call.span);
        }
        let sums = |spans| SpanSums::of(Span::union(spans).into_iter());
        let of_threads = spans.into_iter();
        DriverTime(of_threads.map(|(id, spans)| (id, sums(spans))).collect())
    }

    /// Whether a call of an operator loads something: the driver takes a part of it.
    pub(crate) fn loads(&self, call: &HostRange) -> bool {
        let inside = self.0.get(&call.thread);
        let inside = inside.map_or(0, |sums| sums.ns_in(call.span));
        inside as f64 >= LOADING * call.span.ns() as f64
    }
}

/// Whether calls are still slow in the second half of them: what is set up for each new shape, and shapes that
/// change in every step, is no start.
fn comes_again(calls: &mut [(i64, i64)], is_slow: impl Fn(i64) -> bool) -> bool {
    calls.sort_unstable();
    let (_, late) = calls.split_at(calls.len() / 2);
    late.iter().any(|(_, ns)| is_slow(*ns))
}

/// Whether enough calls belong to other steps than the one at `first`. In a single step, what each step begins with
/// looks like a start.
fn in_other_steps(steps: &Steps, process: ProcessId, first: i64, calls: &[(i64, i64)]) -> bool {
    let step = |time: i64| steps.at(process, time);
    let own = step(first);
    let others = calls.iter().filter_map(|(start, _)| step(*start));
    others
        .filter(|other| Some(*other) != own)
        .nth(FEWEST - 1)
        .is_some()
}

/// The slow first calls of operators, in the order of the profile's ranges.
pub(super) fn slow_first_calls(
    profile: &Profile,
    texts: &RangeInfos,
    steps: &Steps,
) -> Vec<RangeId> {
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
    let named = texts.texts_with(|meaning| meaning.named.is_some_and(|n| ops.contains(&n.op)));
    let named = |range: &HostRange| named.get(range.text.idx()) == Some(&true);
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
    let threads = slow.values().map(|(_, first)| first.thread).collect();
    let driver = DriverTime::of(profile, &threads);
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
        let once = comes_first && is_slow(first.span.ns()) && !comes_again(&mut others, is_slow);
        if once && (driver.loads(first) || in_other_steps(steps, key.0, first.span.start, &others))
        {
            found.push(id);
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::DriverTime;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::ThreadId;

    #[test]
    fn short_calls_of_the_driver_load_nothing() {
        let loads = |ns: i64| {
            let mut b = ProfileBuilder::new();
            b.range("aten::conv2d, op_id = 1", 0, 50_000);
            b.call(ThreadId(0), "cudaFree", 1_000, 0).span.end = 1_000 + ns;
            let driver = DriverTime::of(&b.profile, &[ThreadId(0)].into_iter().collect());
            driver.loads(&b.profile.ranges[0])
        };
        assert!(loads(20_000));
        assert!(!loads(19_999));
    }

    #[test]
    fn idle_time_in_a_slow_first_call_is_set_up() {
        const MS: i64 = 1_000_000;
        // The first call spends this share of its time in the driver; each step has so many calls.
        let with = |lengths: &[i64], driver: f64, per_step: Option<usize>| {
            let mut b = ProfileBuilder::new();
            let mut at = 0;
            b.launch(at);
            for (calls, length) in lengths.iter().enumerate() {
                if per_step.is_some_and(|per_step| calls % per_step == 0) {
                    let step = lengths.iter().skip(calls).take(per_step.unwrap_or(1));
                    let end = at + step.map(|ns| ns + 20_000).sum::<i64>();
                    b.range(&format!("step {calls}"), at + 500, end);
                }
                b.range("aten::conv2d, op_id = 1", at + 1_000, at + 1_000 + length);
                if calls == 0 {
                    b.call(ThreadId(0), "cudaFree", at + 2_000, 0);
                    let until = at + 2_000 + (*length as f64 * driver) as i64;
                    b.profile.calls.last_mut().unwrap().span.end = until;
                }
                b.launch(at + length);
                at += length + 20_000;
            }
            b.run().window.setup.loading_ns / MS
        };
        let set_up = |lengths: &[i64]| with(lengths, 0.2, None);
        assert_eq!(set_up(&[90 * MS, MS, MS, MS]), 89);
        assert_eq!(set_up(&[90 * MS, 9 * MS, 9 * MS, 9 * MS]), 0);
        assert_eq!(set_up(&[90 * MS, MS]), 0, "too few calls");
        // A slow call that is not the first one is a pause of the program.
        assert_eq!(set_up(&[MS, 90 * MS, MS, MS]), 0);
        // What comes again and again is no start.
        assert_eq!(set_up(&[90 * MS, 80 * MS, MS, MS, MS, MS]), 89);
        assert_eq!(set_up(&[90 * MS, MS, MS, MS, 80 * MS, MS]), 0);
        // Where nothing is loaded, each step may begin with such a call, unless others do not.
        let calls = [90 * MS, MS, MS, MS];
        assert_eq!(with(&calls, 0.19, None), 0);
        assert_eq!(with(&calls, 0.0, Some(4)), 0);
        assert_eq!(with(&calls, 0.2, Some(4)), 89);
        assert_eq!(with(&calls, 0.0, Some(2)), 89);
        assert_eq!(
            with(&calls[..3], 0.0, Some(2)),
            0,
            "one call in the second step"
        );
    }
}
