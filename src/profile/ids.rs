//! What all tables of a profile share: handles of rows, serial numbers, interned strings, and intervals.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU16;

use indexmap::{Equivalent, IndexSet};
use rustc_hash::FxBuildHasher;

/// Declares handle types: row numbers in one of the tables of `Profile` or of a later stage.
///
/// An `Option` of a handle takes four bytes too; there are millions of them. `Name(row)` makes one, as
/// if it were a tuple struct.
#[macro_export]
macro_rules! handle {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(unreachable_pub)]
        pub struct $name {
            /// The row number plus one.
            above: std::num::NonZeroU32,
        }
        $(#[$doc])*
        #[allow(non_snake_case, unreachable_pub)]
        pub const fn $name(row: u32) -> $name {
            match std::num::NonZeroU32::new(row.saturating_add(1)) {
                Some(above) => $name { above },
                None => $name { above: std::num::NonZeroU32::MAX },
            }
        }
        #[allow(unreachable_pub)]
        impl $name {
            /// The handle of the row at `index`. Tables are capped below `u32::MAX` rows.
            pub fn new(index: usize) -> Self {
                $name(u32::try_from(index).unwrap_or(u32::MAX))
            }
            /// The row this handle names.
            pub const fn row(self) -> u32 {
                self.above.get() - 1
            }
            /// The row this handle names, as an index.
            pub const fn idx(self) -> usize {
                self.row() as usize
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.row())
            }
        }
    )+};
}

/// A sequence number, operator id or correlation id. PyTorch and CUPTI count them one by one, so six bytes hold all
/// that occur; millions of calls and ranges have one or two, and an `Option` of it takes no more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SerialNumber {
    /// The bits above 32, plus one.
    high: NonZeroU16,
    /// The other bits, the higher ones first.
    low: [u16; 2],
}

impl SerialNumber {
    /// `None` for numbers of 65,535 · 2^32 and more, which nothing counts to: `u64::MAX` stands for "no number" wherever
    /// it is written.
    pub const fn new(number: u64) -> Option<SerialNumber> {
        let high = (number >> 32) + 1;
        if high > u16::MAX as u64 {
            return None;
        }
        match NonZeroU16::new(high as u16) {
            Some(high) => Some(SerialNumber {
                high,
                low: [(number >> 16) as u16, number as u16],
            }),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        let [middle, low] = self.low;
        ((self.high.get() as u64 - 1) << 32) | ((middle as u64) << 16) | low as u64
    }
}

impl Hash for SerialNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

impl std::fmt::Debug for SerialNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

handle! {
    /// An interned string.
    StrId,
    /// A row of `Profile::threads`.
    ThreadId,
    /// A row of `Profile::processes`.
    ProcessId,
    /// A row of `Profile::devices`.
    DeviceId,
    /// A row of `Profile::kernels`.
    KernelId,
    /// A row of `Profile::calls`.
    CallId,
    /// A row of `Profile::ranges`.
    RangeId,
    /// A row of `Profile::configs`.
    ConfigId,
    /// A row of `Profile::captures`.
    CaptureId,
}

/// Bytes that are looked up among strings.
struct Utf8<'a>(&'a [u8]);

impl Hash for Utf8<'_> {
    /// As `str` does, which a test checks.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
        state.write_u8(0xFF);
    }
}

impl Equivalent<Box<str>> for Utf8<'_> {
    fn equivalent(&self, text: &Box<str>) -> bool {
        self.0 == text.as_bytes()
    }
}

/// Every distinct string of a profile, once.
#[derive(Debug, Default, Clone)]
pub struct Strings(IndexSet<Box<str>, FxBuildHasher>);

impl Strings {
    /// The handle of `text`, adding it when it is new.
    pub fn intern(&mut self, text: &str) -> StrId {
        if let Some(index) = self.0.get_index_of(text) {
            return StrId::new(index);
        }
        StrId::new(self.0.insert_full(text.into()).0)
    }

    /// The handle of `text` if it has been seen.
    pub fn find(&self, text: &str) -> Option<StrId> {
        self.0.get_index_of(text).map(StrId::new)
    }

    /// The handle of a text given as bytes, if it has been seen: they need no check of their encoding then.
    pub(crate) fn find_bytes(&self, text: &[u8]) -> Option<StrId> {
        self.0.get_index_of(&Utf8(text)).map(StrId::new)
    }

    /// The text of a handle of this table; empty for one that it has not given out.
    pub fn get(&self, id: StrId) -> &str {
        self.0.get_index(id.idx()).map_or("", |s| s)
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All strings with their handles, in order of first appearance.
    pub fn iter(&self) -> impl Iterator<Item = (StrId, &str)> {
        self.0
            .iter()
            .enumerate()
            .map(|(i, s)| (StrId::new(i), &**s))
    }

    /// The texts from a row on, in order of first appearance. Takes no time for the rows before it.
    pub(crate) fn texts_from(&self, row: usize) -> impl Iterator<Item = &str> {
        self.0.iter().skip(row).map(|text| &**text)
    }
}

/// A half-open interval on the clock of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// In ns.
    pub start: i64,
    /// In ns; the first moment behind the interval.
    pub end: i64,
}

impl Span {
    /// Merges spans that overlap or touch; returns them in time order.
    pub(crate) fn union(mut spans: Vec<Span>) -> Vec<Span> {
        spans.sort_unstable();
        spans.dedup_by(|next, span| {
            let touches = next.start <= span.end;
            if touches {
                span.end = span.end.max(next.end);
            }
            touches
        });
        spans
    }

    /// The time that spans cover together, in ns.
    pub(crate) fn union_ns(spans: Vec<Span>) -> i64 {
        let lengths = Span::union(spans).into_iter().map(Span::ns);
        lengths.fold(0, i64::saturating_add)
    }

    /// The length in ns; 0 for an interval that ends before it starts.
    pub fn ns(self) -> i64 {
        self.end.saturating_sub(self.start).max(0)
    }

    /// The part of `self` inside `other`, possibly empty.
    pub fn clip(self, other: Span) -> Span {
        Span {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }

    /// From the earlier start to the later end.
    pub(crate) fn around(self, other: Span) -> Span {
        Span {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// Whether a time in ns lies inside.
    pub fn contains(self, time: i64) -> bool {
        self.start <= time && time < self.end
    }

    /// Whether a time in ns lies inside one of these disjoint spans, which are in time order.
    pub(crate) fn one_contains(spans: &[Span], time: i64) -> bool {
        Span::position(spans, time).is_some()
    }

    /// Which of these spans a time in ns lies inside. They are in time order; where some overlap, the last one that
    /// has begun.
    pub(crate) fn position(spans: &[Span], time: i64) -> Option<usize> {
        let after = spans.partition_point(|span| span.start <= time);
        let last = after.checked_sub(1)?;
        spans.get(last)?.contains(time).then_some(last)
    }

    /// The rows that overlap this span; they must be in time order and not overlap each other.
    pub(crate) fn overlapping<T>(
        self,
        rows: &[T],
        of: impl Fn(&T) -> Span,
    ) -> impl Iterator<Item = &T> {
        let from = rows.partition_point(|row| of(row).end <= self.start);
        let rows = rows.iter().skip(from);
        rows.take_while(move |row| of(row).start < self.end)
    }
}

/// Intervals in time order that do not overlap, with running sums, so that the part of them in a span takes two binary
/// searches.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanSums(Vec<(Span, i64)>);

impl SpanSums {
    pub(crate) fn of(spans: impl Iterator<Item = Span>) -> SpanSums {
        let mut before = 0_i64;
        let sums = spans.map(|span| {
            let sum = (span, before);
            before = before.saturating_add(span.ns());
            sum
        });
        SpanSums(sums.collect())
    }

    /// How much of a span they cover, in ns.
    pub(crate) fn ns_in(&self, span: Span) -> i64 {
        if span.ns() == 0 {
            return 0;
        }
        self.until(span.end).saturating_sub(self.until(span.start))
    }

    /// How much they cover before a time, in ns.
    fn until(&self, time: i64) -> i64 {
        let begun = self.0.partition_point(|(one, _)| one.start < time);
        let last = begun.checked_sub(1).and_then(|at| self.0.get(at));
        last.map_or(0, |(one, before)| {
            let part = one.end.min(time).saturating_sub(one.start);
            before.saturating_add(part.max(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_by_their_bytes() {
        let mut strings = Strings::default();
        for text in [
            "",
            "aten::mm",
            "größer",
            "a name of more than sixteen bytes",
        ] {
            assert_eq!(strings.find_bytes(text.as_bytes()), None);
            let id = strings.intern(text);
            assert_eq!(strings.find_bytes(text.as_bytes()), Some(id));
        }
        assert_eq!(strings.find_bytes(b"gr\xF6\xDFer"), None);
    }
}
