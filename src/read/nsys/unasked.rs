//! Ranges nobody will ask for, dropped while they are read: more than half of a large export.
//!
//! What stands around a launch is asked for; so is the numbered operator that recorded a backward
//! node and what stands around it; so are names that mean something by themselves (steps, brackets,
//! data loading, layers), what stands around a call that may be blamed for idle time, and what took
//! so long itself that the GPU may have waited for it. One of PyTorch's own operators with no such
//! call inside and no numbered range inside (`aten::empty`, `aten::view`) is none of these, unless it
//! has the number of a backward node: those with a number are set aside until all nodes are known.
//! One of each text, arguments and thread is kept in every rowid range all the same, for those who ask
//! whether such a range exists.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{HostRange, RangeKind, SerialNumber, Span, StrId, Strings, ThreadId};
use crate::read::names::Distinct;

/// When each thread (`globalTid`) made a call that is asked for, in time order.
pub(super) type Launches = FxHashMap<i64, Vec<i64>>;

/// The name space of PyTorch's own operators: no such name is a step, a layer, a user's word or a
/// backward node.
const OPERATORS: &str = "aten::";

/// What takes as long is half of a pause in which the host is said to have done something else.
const LONG_NS: i64 = 500_000;

/// Drops ranges, rowid range by rowid range.
#[derive(Debug, Clone)]
pub(super) struct Unasked {
    launches: Arc<Launches>,
    seen: FxHashSet<Kind>,
    /// Of the texts seen so far: an operator's name.
    operators: Vec<bool>,
    /// Per row.
    fates: Vec<Fate>,
    /// Per thread: starts of numbered ranges.
    numbered: Vec<Vec<i64>>,
    /// Rows dropped since this was last set to 0.
    pub(super) dropped: u64,
    /// Rows that are asked for if a backward node has their number, in order of start.
    pub(super) aside: Vec<HostRange>,
    /// Thread and number of what may be a backward node.
    pub(super) nodes: Vec<(ThreadId, SerialNumber)>,
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Dropped,
    SetAside,
}

/// Thread, text and arguments, whether there is an operator id, and whether there is a number and
/// whether that is 0.
type Kind = (u32, StrId, Option<StrId>, bool, Option<bool>);

impl Unasked {
    pub(super) fn new(launches: Arc<Launches>) -> Unasked {
        Unasked {
            launches,
            seen: FxHashSet::default(),
            operators: Vec::new(),
            fates: Vec::new(),
            numbered: Vec::new(),
            dropped: 0,
            aside: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Drops what nobody will ask for from the rows of one rowid range. They, and those of the rowid
    /// ranges before and behind it, must be in order of start.
    pub(super) fn drop_from(
        &mut self,
        rows: &mut Vec<HostRange>,
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
        let may_be_numbered = |row: &HostRange| row.seq.is_some() || row.text.idx() >= texts.len();
        for row in rows.iter().filter(|row| may_be_numbered(row)) {
            if let Some(times) = self.numbered.get_mut(row.thread.idx()) {
                times.push(row.span.start);
            }
        }
        let bounds = rows.first().map(|r| r.span.start);
        let bounds = bounds.zip(rows.last().map(|r| r.span.start));
        self.mark(rows, threads, bounds.unwrap_or_default());
        let mut fates = self.fates.iter();
        rows.retain(|row| {
            let fate = fates.next().copied().unwrap_or(Fate::Kept);
            match fate {
                Fate::Kept => {}
                Fate::Dropped => self.dropped += 1,
                Fate::SetAside => self.aside.push(*row),
            }
            fate == Fate::Kept
        });
    }

    /// Says what becomes of the rows. What begins with the first row or ends behind the last one may hold
    /// ranges of another rowid range.
    fn mark(&mut self, rows: &[HostRange], threads: &Distinct<i64>, (first, last): (i64, i64)) {
        let nothing = Vec::new();
        let mut times: Vec<[Cursor<'_>; 2]> = (threads.values().iter())
            .zip(&self.numbered)
            .map(|(thread, numbered)| {
                let launches = self.launches.get(thread).unwrap_or(&nothing);
                [Cursor::new(launches, first), Cursor::new(numbered, first)]
            })
            .collect();
        self.fates.clear();
        for row in rows {
            let operator = row.kind == RangeKind::PushPop
                && self.operators.get(row.text.idx()).copied() == Some(true);
            let numbered = row.seq.is_some();
            let alone = operator
                && first < row.span.start
                && row.span.end <= last
                && row.span.ns() < LONG_NS;
            let mut fate = Fate::Kept;
            if alone || (numbered && !operator) {
                let (mut launches, mut numbers) = (true, true);
                if let Some([launched, others]) = times.get_mut(row.thread.idx()) {
                    launches = launched.more_in(row.span, 0);
                    numbers = others.more_in(row.span, usize::from(numbered));
                }
                let zero = row.seq.map(|seq| seq.get() == 0);
                let kind = (
                    row.thread.row(),
                    row.text,
                    row.args,
                    row.op_id.is_some(),
                    zero,
                );
                match row.seq {
                    Some(seq) if launches && !operator => self.nodes.push((row.thread, seq)),
                    _ if !alone || launches || numbers || self.seen.insert(kind) => {}
                    Some(_) => fate = Fate::SetAside,
                    None => fate = Fate::Dropped,
                }
            }
            self.fates.push(fate);
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
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    const THREAD: i64 = 77;

    /// What stays, what is set aside, and the numbers of what may be nodes.
    fn sorted_out(
        rows: &[(&str, i64, i64)],
        launches: &[i64],
    ) -> (Vec<String>, Vec<String>, Vec<u64>) {
        let mut texts = Strings::default();
        let mut threads = Distinct::default();
        threads.number(THREAD);
        let mut ranges: Vec<HostRange> = rows
            .iter()
            .map(|&(text, start, end)| {
                let parts = crate::profile::RangeText::split(text);
                HostRange {
                    span: Span { start, end },
                    thread: ThreadId(0),
                    kind: RangeKind::PushPop,
                    text: texts.intern(parts.name),
                    domain: None,
                    seq: parts.seq.and_then(SerialNumber::new),
                    op_id: parts.op_id.and_then(SerialNumber::new),
                    args: None,
                }
            })
            .collect();
        let launches = Arc::new(FxHashMap::from_iter([(THREAD, launches.to_vec())]));
        let mut unasked = Unasked::new(launches);
        unasked.drop_from(&mut ranges, &texts, &threads);
        let gone = unasked.dropped as usize + unasked.aside.len();
        assert_eq!(gone, rows.len() - ranges.len());
        let said = |r: &HostRange| format!("{} {}", texts.get(r.text), r.span.start);
        (
            ranges.iter().map(said).collect(),
            unasked.aside.iter().map(said).collect(),
            unasked.nodes.iter().map(|(_, seq)| seq.get()).collect(),
        )
    }

    fn left(rows: &[(&str, i64, i64)], launches: &[i64]) -> Vec<String> {
        let (left, aside, _) = sorted_out(rows, launches);
        assert_eq!(aside, [""; 0]);
        left
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
    fn numbered_operators_are_set_aside_and_what_may_be_nodes_is_noted() {
        let rows = [
            ("first", 0, 1),
            // One of each kind stays; 0 is another kind of number.
            ("aten::view, seq = 4, op_id = 1", 2, 3),
            ("aten::view, seq = 0, op_id = 2", 4, 5),
            ("aten::view, seq = 5, op_id = 3", 10, 20),
            ("aten::view, seq = 0, op_id = 4", 21, 22),
            // Another number inside, a launch inside, too long.
            ("aten::view, seq = 6, op_id = 5", 30, 60),
            ("aten::view, seq = 6, op_id = 6", 40, 50),
            ("aten::view, seq = 7, op_id = 7", 70, 80),
            ("aten::view, seq = 8, op_id = 8", 90, 90 + LONG_NS),
            ("ViewBackward0, seq = 5, op_id = 9", 600_000, 600_010),
            ("MmBackward0, seq = 6, op_id = 9", 600_020, 600_030),
            ("last", 700_000, 700_001),
        ];
        let (left, aside, nodes) = sorted_out(&rows, &[75, 600_025]);
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
        assert_eq!(aside, ["aten::view 10", "aten::view 21", "aten::view 40"]);
        assert_eq!(nodes, [6]);
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
