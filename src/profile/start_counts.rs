//! How many ranges started when, for ranges that are not kept.

use rustc_hash::FxHashMap;

use super::ids::{Span, ThreadId};
use crate::base::search::partition_point_near;

/// Length of a slice of time, in ns: about a millisecond, the shortest pause of a host that is looked at.
const SLICE_NS: i64 = 1 << 20;

/// Numbers of starts by thread and slice of time, in the order in which they were counted.
#[derive(Debug, Clone, Default)]
pub struct StartCounts {
    /// Per thread: slices and their starts.
    threads: FxHashMap<ThreadId, Vec<(i64, u32)>>,
}

/// Numbers of starts that can be searched for a time.
#[derive(Debug)]
pub(crate) struct SortedStarts {
    /// Per thread: each slice once, in time order.
    threads: FxHashMap<ThreadId, Vec<(i64, u32)>>,
}

impl StartCounts {
    /// Counts a start.
    pub fn add(&mut self, thread: ThreadId, start: i64) {
        self.add_slice(thread, Self::slice(start), 1);
    }

    /// Counts starts in a slice, as returned by [`slice`](StartCounts::slice).
    pub fn add_slice(&mut self, thread: ThreadId, slice: i64, starts: u32) {
        let slices = self.threads.entry(thread).or_default();
        match slices.last_mut() {
            Some((last, count)) if *last == slice => *count = count.saturating_add(starts),
            _ => slices.push((slice, starts)),
        }
    }

    /// Counts all starts of another table as well.
    pub(crate) fn add_all(&mut self, other: &StartCounts) {
        for (thread, slices) in &other.threads {
            for &(slice, starts) in slices {
                self.add_slice(*thread, slice, starts);
            }
        }
    }

    /// Returns the number of the slice of a time in ns.
    pub fn slice(time: i64) -> i64 {
        time.div_euclid(SLICE_NS)
    }

    /// Puts the slices in time order.
    pub(crate) fn sorted(mut self) -> SortedStarts {
        for slices in self.threads.values_mut() {
            slices.sort_by_key(|(slice, _)| *slice);
            slices.dedup_by(|(slice, starts), (before, sum)| {
                let same = slice == before;
                if same {
                    *sum = sum.saturating_add(*starts);
                }
                same
            });
        }
        SortedStarts {
            threads: self.threads,
        }
    }
}

impl SortedStarts {
    /// Returns the approximate number of starts of a thread in a span: the starts of a slice that is only
    /// partly inside count in proportion. `near` is where the search begins, and then where it ended: spans
    /// that are asked for one after the other mostly lie close together.
    pub(crate) fn within(&self, near: &mut usize, thread: ThreadId, span: Span) -> f64 {
        let Some(slices) = self.threads.get(&thread) else {
            return 0.0;
        };
        if span.end <= span.start {
            return 0.0;
        }
        let first = StartCounts::slice(span.start);
        let last = StartCounts::slice(span.end - 1);
        *near = partition_point_near(slices, *near, |(slice, _)| *slice < first);
        let inside = slices.iter().skip(*near);
        let inside = inside.take_while(|(slice, _)| *slice <= last);
        let part = |&(slice, count): &(i64, u32)| {
            let start = slice.saturating_mul(SLICE_NS);
            let whole = Span {
                start,
                end: start.saturating_add(SLICE_NS),
            };
            f64::from(count) * (whole.clip(span).ns() as f64 / SLICE_NS as f64)
        };
        inside.map(part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_a_partly_covered_slice_count_in_proportion() {
        let mut counts = StartCounts::default();
        for i in 0..10 {
            counts.add(ThreadId(0), i);
            counts.add(ThreadId(0), SLICE_NS + i);
        }
        counts.add(ThreadId(1), 0);
        let counts = counts.sorted();
        let span = |start, end| Span { start, end };
        let mut near = 0;
        let mut within = |thread, span| counts.within(&mut near, ThreadId(thread), span);
        assert_eq!(within(0, span(0, 2 * SLICE_NS)), 20.0);
        assert_eq!(within(0, span(SLICE_NS / 2, SLICE_NS)), 5.0);
        assert_eq!(within(2, span(0, SLICE_NS)), 0.0);
        assert_eq!(within(0, span(SLICE_NS, 2 * SLICE_NS)), 10.0);
        assert_eq!(within(0, span(i64::MIN, i64::MAX)), 20.0);
    }
}
