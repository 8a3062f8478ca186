//! Ranges nobody will ask for, dropped while they are read: more than half of a large export.
//!
//! What stands around a launch is asked for; so is the numbered operator that recorded a backward
//! node and what stands around it; so are names that mean something by themselves (steps, brackets,
//! data loading, layers), and so is what stands around a call that may be blamed for idle time. One of
//! PyTorch's own operators with no number, no such call inside and no numbered range inside
//! (`aten::empty`, `aten::view`) is none of these. One of each text, arguments and thread is kept in
//! every rowid range all the same, for those who ask whether such a range exists.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{Range, RangeKind, StrId, Strings};
use crate::read::build::Distinct;

/// When each thread (`globalTid`) made a call that is asked for, in time order.
pub(super) type Launches = FxHashMap<i64, Vec<i64>>;

/// The name space of PyTorch's own operators: no such name is a step, a layer or a user's word.
const OPERATORS: &str = "aten::";

/// Drops ranges, rowid range by rowid range.
#[derive(Debug, Clone)]
pub(super) struct Unasked {
    launches: Arc<Launches>,
    seen: FxHashSet<Kind>,
    /// Of the texts seen so far: an operator's name.
    operators: Vec<bool>,
    /// Per row: may be dropped.
    idle: Vec<bool>,
    /// Per thread: starts of numbered ranges.
    numbered: Vec<Vec<i64>>,
    /// Rows dropped since this was last set to 0.
    pub(super) dropped: u64,
}

/// Thread, text, arguments, and whether there is an operator id.
type Kind = (u32, StrId, Option<StrId>, bool);

impl Unasked {
    pub(super) fn new(launches: Arc<Launches>) -> Unasked {
        Unasked {
            launches,
            seen: FxHashSet::default(),
            operators: Vec::new(),
            idle: Vec::new(),
            numbered: Vec::new(),
            dropped: 0,
        }
    }

    /// Drops what nobody will ask for from the rows of one rowid range. They, and those of the rowid
    /// ranges before and behind it, must be in order of start.
    pub(super) fn drop_from(
        &mut self,
        rows: &mut Vec<Range>,
        texts: &Strings,
        threads: &Distinct<i64>,
    ) {
        // Which rowid ranges come here one after the other depends on how busy each thread is.
        self.seen.clear();
        let known = self.operators.len();
        let names = texts.iter().skip(known).map(|(_, text)| text);
        (self.operators).extend(names.map(|name| name.starts_with(OPERATORS)));
        self.numbered.iter_mut().for_each(Vec::clear);
        self.numbered.resize(threads.values().len(), Vec::new());
        // What a registered text says is not known yet.
        let may_be_numbered = |row: &Range| row.seq.is_some() || row.text.idx() >= texts.len();
        for row in rows.iter().filter(|row| may_be_numbered(row)) {
            if let Some(times) = self.numbered.get_mut(row.thread.idx()) {
                times.push(row.span.start);
            }
        }
        let bounds = rows.first().map(|r| r.span.start);
        let bounds = bounds.zip(rows.last().map(|r| r.span.start));
        self.mark(rows, threads, bounds.unwrap_or_default());
        let before = rows.len();
        let mut idle = self.idle.iter();
        rows.retain(|_| !idle.next().copied().unwrap_or(false));
        self.dropped += (before - rows.len()) as u64;
    }

    /// Marks the rows to drop. What begins with the first row or ends behind the last one may hold
    /// ranges of another rowid range.
    fn mark(&mut self, rows: &[Range], threads: &Distinct<i64>, (first, last): (i64, i64)) {
        let nothing = Vec::new();
        let mut times: Vec<[Cursor<'_>; 2]> = (threads.values().iter())
            .zip(&self.numbered)
            .map(|(thread, numbered)| {
                let launches = self.launches.get(thread).unwrap_or(&nothing);
                [Cursor::new(launches, first), Cursor::new(numbered, first)]
            })
            .collect();
        self.idle.clear();
        for row in rows {
            let operator = row.kind == RangeKind::PushPop
                && row.seq.is_none()
                && self.operators.get(row.text.idx()).copied() == Some(true);
            let alone = operator && first < row.span.start && row.span.end <= last;
            let idle = alone
                && (times.get_mut(row.thread.idx())).is_some_and(|times| {
                    let mut around = times.iter_mut();
                    !around.any(|t| t.any_in(row.span.start, row.span.end))
                });
            let kind = (row.thread.row(), row.text, row.args, row.op_id.is_some());
            self.idle.push(idle && !self.seen.insert(kind));
        }
    }
}

/// Sorted times, asked in nearly the same order.
struct Cursor<'a> {
    times: &'a [i64],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(times: &'a [i64], from: i64) -> Cursor<'a> {
        let at = times.partition_point(|t| *t < from);
        Cursor { times, at }
    }

    /// Whether any time lies in `start..end`. Starts never decrease.
    fn any_in(&mut self, start: i64, end: i64) -> bool {
        while self.times.get(self.at).is_some_and(|t| *t < start) {
            self.at += 1;
        }
        self.times.get(self.at).is_some_and(|t| *t < end)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::profile::{Number, Span, ThreadId};

    const THREAD: i64 = 77;

    fn left(rows: &[(&str, i64, i64)], launches: &[i64]) -> Vec<String> {
        let mut texts = Strings::default();
        let mut threads = Distinct::default();
        threads.number(THREAD);
        let mut ranges: Vec<Range> = rows
            .iter()
            .map(|&(text, start, end)| {
                let parts = crate::profile::RangeText::split(text);
                Range {
                    span: Span { start, end },
                    thread: ThreadId(0),
                    kind: RangeKind::PushPop,
                    text: texts.intern(parts.name),
                    domain: None,
                    seq: parts.seq.and_then(Number::new),
                    op_id: parts.op_id.and_then(Number::new),
                    args: None,
                }
            })
            .collect();
        let launches = Arc::new(FxHashMap::from_iter([(THREAD, launches.to_vec())]));
        let mut unasked = Unasked::new(launches);
        unasked.drop_from(&mut ranges, &texts, &threads);
        assert_eq!(unasked.dropped as usize, rows.len() - ranges.len());
        let said = |r: &Range| format!("{} {}", texts.get(r.text), r.span.start);
        ranges.iter().map(said).collect()
    }

    #[test]
    fn operators_in_which_nothing_was_launched_go() {
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
        // One of each text stays, whatever it holds.
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
    fn what_stands_around_a_numbered_range_stays() {
        let rows = [
            ("first", 0, 1),
            ("aten::to, op_id = 1", 10, 20),
            ("aten::to, op_id = 2", 30, 60),
            ("aten::copy_, seq = 9, op_id = 3", 40, 50),
            ("aten::to, op_id = 4", 70, 80),
            // May hold rows of the next rowid range.
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
    fn a_launch_counts_from_the_start_of_a_range_to_before_its_end() {
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
