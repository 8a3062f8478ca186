//! How many ranges started when, for ranges that are not kept.

use rustc_hash::FxHashMap;

use super::ids::{Span, ThreadId};

/// Length of a slice of time, in ns: about a millisecond, the shortest pause of a host that is looked at.
const SLICE_NS: i64 = 1 << 20;

/// Numbers of starts by thread and slice of time.
#[derive(Debug, Clone, Default)]
pub struct StartCounts {
    slices: FxHashMap<(ThreadId, i64), u32>,
}

impl StartCounts {
    /// Counts a start.
    pub fn add(&mut self, thread: ThreadId, start: i64) {
        self.add_slice(thread, Self::slice(start), 1);
    }

    /// Counts starts in a slice, as returned by [`slice`](StartCounts::slice).
    pub fn add_slice(&mut self, thread: ThreadId, slice: i64, starts: u32) {
        let count = self.slices.entry((thread, slice)).or_default();
        *count = count.saturating_add(starts);
    }

    /// Returns the number of the slice of a time in ns.
    pub fn slice(time: i64) -> i64 {
        time.div_euclid(SLICE_NS)
    }

    /// Returns the approximate number of starts of a thread in a span: the starts of a slice that is only
    /// partly inside count in proportion.
    pub fn within(&self, thread: ThreadId, span: Span) -> f64 {
        if self.slices.is_empty() || span.end <= span.start {
            return 0.0;
        }
        let slices = Self::slice(span.start)..=Self::slice(span.end - 1);
        let part = |slice: i64| {
            let start = slice.saturating_mul(SLICE_NS);
            let whole = Span {
                start,
                end: start.saturating_add(SLICE_NS),
            };
            let count = self.slices.get(&(thread, slice)).copied().unwrap_or(0);
            f64::from(count) * (whole.clip(span).ns() as f64 / SLICE_NS as f64)
        };
        slices.map(part).sum()
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
        let span = |start, end| Span { start, end };
        assert_eq!(counts.within(ThreadId(0), span(0, 2 * SLICE_NS)), 20.0);
        let half = span(SLICE_NS / 2, SLICE_NS);
        assert_eq!(counts.within(ThreadId(0), half), 5.0);
        assert_eq!(counts.within(ThreadId(2), span(0, SLICE_NS)), 0.0);
    }
}
