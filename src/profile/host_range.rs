//! Named ranges on host threads, and the parts of their texts.

use super::ids::{SerialNumber, Span, StrId, ThreadId};

/// The kind of a [`HostRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// NVTX push/pop (nsys eventType 59) or an nvprof marker pair: properly nested on a thread.
    PushPop,
    /// NVTX start/end (nsys eventType 60): may overlap others; never an operator.
    StartEnd,
    /// An NVTX mark: a point in time.
    Mark,
    /// Kineto `cpu_op`.
    CpuOp,
    /// Kineto `user_annotation`, `record_function`.
    Annotation,
    /// Kineto `python_function`.
    Python,
}

/// A named interval on a host thread.
#[derive(Debug, Clone, Copy)]
pub struct HostRange {
    /// When it was open; `end == i64::MAX` for a range the program never closed.
    pub span: Span,
    /// The host thread that opened it.
    pub thread: ThreadId,
    /// What kind of range it is.
    pub kind: RangeKind,
    /// The text without the suffixes of [`RangeText`].
    pub text: StrId,
    /// The NVTX domain, when it is not the default one.
    pub domain: Option<StrId>,
    /// The autograd sequence number (`, seq = N`).
    pub seq: Option<SerialNumber>,
    /// The number of the operator call: `, op_id = N`, or the record function id of Kineto.
    pub op_id: Option<SerialNumber>,
    /// The text of the arguments, in the notation of [`super::Format::range_args`]. `correlate` parses each
    /// distinct text once.
    pub args: Option<StrId>,
}

/// The parts of an `emit_nvtx` range text.
///
/// PyTorch writes `name[, seq = N][, op_id = N][, sizes = [..]][, input_op_ids = [..]]`, in this or
/// another order depending on the version; every part but the name may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeText<'a> {
    /// What stands before the first suffix.
    pub name: &'a str,
    /// The autograd sequence number; `None` where PyTorch printed "no number" (2^64 - 1).
    pub seq: Option<u64>,
    /// The number of the operator call.
    pub op_id: Option<u64>,
    /// The sizes of the operands: `[[64, 128], []]`.
    pub sizes: Option<&'a str>,
}

impl<'a> RangeText<'a> {
    /// What stands before each value.
    const KEYS: [&'static str; 4] = [", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "];

    /// Splits `text`. A text without any of the suffixes is all name.
    pub fn split(text: &'a str) -> RangeText<'a> {
        // PyProf markers are Python literals: commas inside them separate their own members.
        let places = match text.starts_with('{') {
            true => [None; 4],
            false => Self::key_places(text),
        };
        // A part ends where the next one begins.
        let next = |from: usize| {
            let places = places.iter().flatten().copied();
            places.filter(|at| *at >= from).min().unwrap_or(text.len())
        };
        let value = |which: usize| {
            let start = places.get(which).copied()?? + Self::KEYS.get(which)?.len();
            Some(text.get(start..next(start)).unwrap_or_default())
        };
        RangeText {
            name: text.get(..next(0)).unwrap_or(text),
            // 2^64 - 1 and "-1" are how PyTorch prints "no sequence number".
            seq: value(0).and_then(number).filter(|&n| n != u64::MAX),
            op_id: value(1).and_then(number),
            sizes: value(2).map(str::trim),
        }
    }

    /// Where each of [`Self::KEYS`] first occurs. Searches for equals signs because they are rare outside
    /// the keys, whereas lists of sizes are full of commas; there are millions of texts.
    fn key_places(text: &str) -> [Option<usize>; 4] {
        let mut places = [None; 4];
        let bytes = text.as_bytes();
        for equals in memchr::memchr_iter(b'=', bytes) {
            let Some(until) = bytes.get(..equals + 2) else {
                continue;
            };
            let ended = Self::KEYS.iter().zip(&mut places);
            for (key, place) in ended.filter(|(key, _)| until.ends_with(key.as_bytes())) {
                *place = place.or(Some(until.len() - key.len()));
            }
        }
        places
    }
}

/// A range text that is a name without commas and, at most, the two numbers and the sizes in their usual order: nearly
/// all of the millions of texts of a large profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberedName<'a> {
    /// What stands before the first comma.
    pub name: &'a [u8],
    /// As in [`RangeText`].
    pub seq: Option<u64>,
    /// As in [`RangeText`].
    pub op_id: Option<u64>,
    /// As in [`RangeText`].
    pub sizes: Option<&'a [u8]>,
}

impl<'a> NumberedName<'a> {
    /// The parts of `text`; `None` for another text, which [`RangeText::split`] splits.
    pub(crate) fn of(text: &'a [u8]) -> Option<NumberedName<'a>> {
        let comma = memchr::memchr(b',', text).unwrap_or(text.len());
        let (name, mut rest) = text.split_at_checked(comma)?;
        if name.starts_with(b"{") {
            return None;
        }
        let seq = number_after(&mut rest, b", seq = ")?;
        let op_id = number_after(&mut rest, b", op_id = ")?;
        let sizes = match rest.split_first_chunk() {
            Some((b", sizes = ", sizes @ [b'[', .., b']']))
                if memchr::memchr(b'=', sizes).is_none() =>
            {
                rest = &[];
                Some(sizes)
            }
            _ => None,
        };
        rest.is_empty().then_some(NumberedName {
            name,
            seq,
            op_id,
            sizes,
        })
    }
}

/// The number after one of [`RangeText::KEYS`] at the start of a text, which becomes what follows. `Some(None)` for a text
/// that starts with something else, `None` without a number behind the key.
fn number_after<const N: usize>(text: &mut &[u8], key: &[u8; N]) -> Option<Option<u64>> {
    match text.split_first_chunk() {
        Some((first, value)) if first == key => {
            let (number, behind) = leading_number(value)?;
            *text = behind;
            Some(Some(number))
        }
        _ => Some(None),
    }
}

/// The decimal digits at the start of a text as a number, and what follows them. `None` without a digit, and for a
/// number of more than 19 digits.
fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    let mut rest = text;
    while let [digit @ b'0'..=b'9', behind @ ..] = rest {
        if text.len() - rest.len() == 19 {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
        rest = behind;
    }
    (rest.len() < text.len()).then_some((number, rest))
}

/// A number as PyTorch prints it. Trimmed only if it does not parse as it stands.
fn number(text: &str) -> Option<u64> {
    text.parse().or_else(|_| text.trim().parse()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_only_numbers_are_split_as_any_other() {
        let numbered = |text: &'static str| NumberedName::of(text.as_bytes());
        for text in [
            "aten::mm",
            "",
            "lr = 0.1",
            "aten::mm, seq = 5",
            "aten::mm, op_id = 5",
            "aten::mm, seq = 0, op_id = 18",
            "aten::mm, seq = 9999999999999999999, op_id = 1",
            "aten::mm, seq = 1, op_id = 2, sizes = [[2, 3], []]",
            "aten::mm, op_id = 2, sizes = []",
            "aten::mm, sizes = [[2, 3]]",
        ] {
            let parts = numbered(text).map(|parts| RangeText {
                name: std::str::from_utf8(parts.name).unwrap(),
                seq: parts.seq,
                op_id: parts.op_id,
                sizes: parts.sizes.map(|sizes| std::str::from_utf8(sizes).unwrap()),
            });
            assert_eq!(parts, Some(RangeText::split(text)), "{text}");
        }
        for text in [
            "aten::mm, op_id = 18, seq = 7",
            "aten::mm, seq = 18446744073709551615, op_id = 1",
            "aten::mm, seq = , op_id = 1",
            "aten::mm, seq = 1, op_id = 2, sizes = [[2]] ",
            "aten::mm, sizes = [[2]], seq = 3",
            "aten::mm, sizes = [[2]], input_op_ids = [(1, 0)]",
            "aten::mm, seq = 1 , op_id = 2",
            "{'mod': 'x', 'op': 'y'}",
            "{'mod': 'x', seq = 3",
            "step, 3",
        ] {
            assert_eq!(numbered(text), None, "{text}");
        }
    }

    #[test]
    fn range_texts_are_split() {
        let t = RangeText::split("aten::addmm, seq = 12, op_id = 34, sizes = [[64], [8, 16]]");
        assert_eq!(t.name, "aten::addmm");
        assert_eq!(
            (t.seq, t.op_id, t.sizes),
            (Some(12), Some(34), Some("[[64], [8, 16]]"))
        );
        let t = RangeText::split("aten::mm, op_id = 314286");
        assert_eq!((t.name, t.seq, t.op_id), ("aten::mm", None, Some(314_286)));
        let t = RangeText::split("x, seq = 1, op_id = 7, input_op_ids = [(1, 2)]");
        assert_eq!(
            (t.name, t.seq, t.op_id, t.sizes),
            ("x", Some(1), Some(7), None)
        );
        let t = RangeText::split("lr = 0.1, a = b");
        assert_eq!(t.name, "lr = 0.1, a = b");
        let marker = "{'mod': 'x', 'op': 'y, seq = 3'}";
        assert_eq!(RangeText::split(marker).name, marker);
        assert_eq!(
            RangeText::split("relu, seq = 18446744073709551615").seq,
            None
        );
    }
}
