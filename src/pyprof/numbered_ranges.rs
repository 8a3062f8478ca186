//! The ranges of `emit_nvtx` around a launch, which have sequence numbers or operator ids.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::profile::{HostRange, Profile, RangeText, SerialNumber, StrId};

/// A range of `emit_nvtx` around a launch.
#[derive(Debug, Clone)]
pub enum SeqMarker {
    /// The text of one in a dictionary.
    Text(String),
    /// The parts of one in a profile.
    Parts {
        /// The text without the other parts.
        name: Arc<str>,
        /// The autograd sequence number.
        seq: Option<u64>,
        /// The number of the operator call.
        op_id: Option<u64>,
        /// The sizes of the operands.
        sizes: Option<Arc<str>>,
    },
}

impl SeqMarker {
    /// The parts of the text.
    pub fn parts(&self) -> RangeText<'_> {
        match self {
            SeqMarker::Text(text) => RangeText::split(text),
            SeqMarker::Parts {
                name,
                seq,
                op_id,
                sizes,
            } => RangeText {
                name,
                seq: *seq,
                op_id: *op_id,
                sizes: sizes.as_deref(),
            },
        }
    }

    /// The text as the program wrote it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            SeqMarker::Text(text) => text.into(),
            SeqMarker::Parts { .. } => joined(&self.parts()).into(),
        }
    }
}

/// The text with these parts.
fn joined(parts: &RangeText<'_>) -> String {
    let mut text = String::with_capacity(128);
    text.push_str(parts.name);
    for (key, number) in [(", seq = ", parts.seq), (", op_id = ", parts.op_id)] {
        if let Some(number) = number {
            text.push_str(key);
            text.push_str(itoa::Buffer::new().format(number));
        }
    }
    if let Some(sizes) = parts.sizes {
        text.push_str(", sizes = ");
        text.push_str(sizes);
    }
    text
}

/// A range with a number in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberedRange {
    /// The text without numbers and sizes.
    pub name: StrId,
    pub seq: Option<SerialNumber>,
    pub op_id: Option<SerialNumber>,
    pub sizes: Option<StrId>,
}

impl NumberedRange {
    pub(super) fn of(profile: &Profile, range: &HostRange) -> NumberedRange {
        NumberedRange {
            name: range.text,
            seq: range.seq,
            op_id: range.op_id,
            sizes: (range.args).filter(|args| profile.text(*args).starts_with('[')),
        }
    }

    fn parts<'r>(&self, profile: &'r Profile) -> RangeText<'r> {
        RangeText {
            name: profile.text(self.name),
            seq: self.seq.map(SerialNumber::get),
            op_id: self.op_id.map(SerialNumber::get),
            sizes: self.sizes.map(|sizes| profile.text(sizes)),
        }
    }
}

/// Sorts ranges in PyProf's order, without repetitions; of neighbors with the same number and similar names,
/// only the first is kept.
pub(super) fn sort_like_pyprof(ranges: &mut Vec<NumberedRange>, profile: &Profile) {
    ranges.sort_by(|a, b| compare(&a.parts(profile), &b.parts(profile)));
    ranges.dedup();
    let mut previous: Option<(&str, Option<SerialNumber>)> = None;
    ranges.retain(|range| {
        let name = profile.text(range.name);
        // All ranges with operator ids, which PyProf cannot parse, are kept: one of them has the shapes.
        let number = range.seq.filter(|_| range.op_id.is_none());
        let similar = previous.is_some_and(|(other, before)| {
            number.is_some() && number == before && (name.contains(other) || other.contains(name))
        });
        previous = Some((name, number));
        !similar
    });
}

/// Compares in PyProf's order: by the number in decimal, followed by the text.
fn compare(a: &RangeText<'_>, b: &RangeText<'_>) -> Ordering {
    let mut buffers = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [of_a, of_b] = &mut buffers;
    let of_a = a.seq.map_or("", |seq| of_a.format(seq));
    let of_b = b.seq.map_or("", |seq| of_b.format(seq));
    let a_bytes = of_a.bytes().chain(a.name.bytes()).chain(*b", seq");
    let b_bytes = of_b.bytes().chain(b.name.bytes()).chain(*b", seq");
    a_bytes.cmp(b_bytes).then_with(|| joined(a).cmp(&joined(b)))
}

/// Whether a name is that of an autograd node: it ends in `Backward`, in newer versions followed by digits.
pub(super) fn is_backward(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.ends_with("Backward") || name.ends_with("backward")
}
