//! Range texts without their numbers. `aten::mm, seq = 7, op_id = 9` and `aten::mm, seq = 8, op_id = 12`
//! have the same template, which is stored once; each kernel has its own numbers.

use super::Text;
use crate::profile::RangeText;

/// A range text without the numbers after its first `, seq = ` and its first `, op_id = `.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RangeTemplate {
    /// The text without the numbers.
    text: Text,
    /// Byte offsets in `text` at which the numbers are inserted, ascending.
    slots: [Option<usize>; 2],
}

impl RangeTemplate {
    /// A template of a text without numbers; `slots` are byte offsets in it, ascending.
    pub(super) fn new(text: Text, slots: [Option<usize>; 2]) -> RangeTemplate {
        RangeTemplate { text, slots }
    }

    /// The number of numbers in the text.
    pub(super) fn slots(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// The text without its numbers.
    pub(super) fn blank(&self) -> &Text {
        &self.text
    }

    /// The parts between the numbers: one more than there are numbers.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &str> {
        let ends = self.slots.iter().flatten().copied();
        let mut from = 0;
        ends.chain([self.text.len()]).map(move |end| {
            let piece = self.text.get(from..end).unwrap_or_default();
            from = end;
            piece
        })
    }

    /// The text with `numbers` inserted; missing numbers are omitted.
    pub fn filled(&self, numbers: &[u64]) -> String {
        let mut out = String::with_capacity(self.text.len() + 24);
        let mut numbers = numbers.iter();
        for (at, piece) in self.pieces().enumerate() {
            if at > 0
                && let Some(number) = numbers.next()
            {
                out.push_str(&number.to_string());
            }
            out.push_str(piece);
        }
        out
    }

    /// The template of a text; its numbers are appended to `numbers`. Two texts are equal if and only
    /// if their templates and numbers are.
    pub(super) fn cut(text: &str, numbers: &mut Vec<u64>) -> RangeTemplate {
        let mut blank = String::with_capacity(text.len());
        let mut slots = [None; 2];
        let mut from = 0;
        for (place, slot) in slots.iter_mut().zip(found(text).into_iter().flatten()) {
            blank.push_str(text.get(from..slot.start).unwrap_or_default());
            *place = Some(blank.len());
            numbers.push(slot.number);
            from = slot.end;
        }
        blank.push_str(text.get(from..).unwrap_or_default());
        RangeTemplate::new(blank.into(), slots)
    }
}

/// A number in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub start: usize,
    pub end: usize,
    pub number: u64,
}

/// The numbers of a text, in order.
pub(super) fn found(text: &str) -> [Option<Slot>; 2] {
    // PyProf's markers are data, not range names.
    if text.starts_with('{') {
        return [None; 2];
    }
    let places = RangeText::key_places(text);
    let slot = |which: usize| {
        let start = places.get(which).copied()?? + RangeText::KEYS.get(which)?.len();
        let rest = text.get(start..)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let written = rest.get(..digits)?;
        let number: u64 = written.parse().ok()?;
        let end = start + digits;
        // `007` would be printed as `7`.
        let canonical = digits == 1 || !written.starts_with('0');
        let ends = end == text.len() || places.contains(&Some(end));
        (canonical && ends).then_some(Slot { start, end, number })
    };
    match (slot(0), slot(1)) {
        (Some(seq), Some(id)) if id.start < seq.start => [Some(id), Some(seq)],
        (None, id) => [id, None],
        slots => slots.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_removed_and_inserted_again() {
        for (text, blank, wanted) in [
            ("aten::mm", "aten::mm", &[][..]),
            ("mm, seq = 7", "mm, seq = ", &[7]),
            (
                "mm, seq = 7, op_id = 19, sizes = [[2, 3], [], []]",
                "mm, seq = , op_id = , sizes = [[2, 3], [], []]",
                &[7, 19],
            ),
            ("mm, op_id = 19, seq = 7", "mm, op_id = , seq = ", &[19, 7]),
            ("mm, op_id = 0", "mm, op_id = ", &[0]),
            // No numbers, or numbers that would be printed differently.
            ("mm, seq = 07", "mm, seq = 07", &[]),
            ("mm, seq = -1, op_id = 3", "mm, seq = -1, op_id = ", &[3]),
            ("mm, seq = 5 apples", "mm, seq = 5 apples", &[]),
            ("mm, seq = 5, seq = 6", "mm, seq = 5, seq = 6", &[]),
            (
                "mm, seq = 18446744073709551616",
                "mm, seq = 18446744073709551616",
                &[],
            ),
            ("{'mod': 'a, seq = 7'}", "{'mod': 'a, seq = 7'}", &[]),
            ("é, seq = 1", "é, seq = ", &[1]),
        ] {
            let mut numbers = Vec::new();
            let range_template = RangeTemplate::cut(text, &mut numbers);
            assert_eq!(&**range_template.blank(), blank);
            assert_eq!(numbers, wanted, "{text}");
            assert_eq!(range_template.filled(&numbers), text);
            assert_eq!(range_template.slots(), wanted.len());
        }
    }
}
