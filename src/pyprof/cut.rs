//! Lines of the usual form, taken apart without being read: keys in PyProf's order, one blank behind
//! each comma and colon (none in JSON). What lines share, names and places, is cut out as bytes to
//! look up; only lines that bring something new are read in full, and all others of any form.

use super::lines::{KEYS, Shape};
use super::stencil;

/// Stands for a number that was taken out; occurs in no UTF-8 text.
const HOLE: u8 = 0xff;

/// What lines of the usual form say.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// Of each line: its place, then its names.
    pub bytes: Vec<u8>,
    /// Of each line: the numbers in its ranges, then `seq`, then `alt`.
    pub numbers: Vec<u64>,
}

/// A line of the usual form. It needs to be read no more if its names and its place are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    /// Where its place and its names end in [`Cuts::bytes`].
    pub place: usize,
    pub names: usize,
    /// How many numbers it has of each kind.
    pub counts: [usize; 3],
    pub duration: i64,
    pub sub: u64,
    pub tid: Option<u64>,
    pub device: u32,
    pub stream: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

impl Cuts {
    /// Takes a line apart; `None` for one of another form, of which nothing stays.
    pub(super) fn take(&mut self, line: &[u8]) -> Option<Usual> {
        let (bytes, numbers) = (self.bytes.len(), self.numbers.len());
        let usual = self.cut(line);
        if usual.is_none() {
            self.bytes.truncate(bytes);
            self.numbers.truncate(numbers);
        }
        usual
    }

    fn cut(&mut self, line: &[u8]) -> Option<Usual> {
        let Cuts { bytes, numbers } = self;
        let shape = match line.get(1)? {
            b'\'' => Shape::Python,
            b'"' => Shape::Json,
            _ => return None,
        };
        let mut cursor = Cursor { line, at: 0, shape };
        let mut keys = KEYS.iter().copied();
        let mut key = |cursor: &mut Cursor<'_>| cursor.key(keys.next()?);
        cursor.expect(b"{")?;
        key(&mut cursor)?;
        let short = cursor.string()?;
        key(&mut cursor)?;
        let duration = i64::try_from(cursor.number()?).ok()?;
        let place = cursor.at;
        for _list in ["layer", "trace", "reprMarkers", "marker"] {
            key(&mut cursor)?;
            cursor.list(|cursor| cursor.string().map(drop))?;
        }
        key(&mut cursor)?;
        bytes.extend_from_slice(line.get(place..cursor.at)?);
        let first = numbers.len();
        cursor.list(|cursor| cursor.range(bytes, numbers))?;
        key(&mut cursor)?;
        let seq = numbers.len();
        cursor.numbers(numbers)?;
        key(&mut cursor)?;
        let sub = cursor.number()?;
        key(&mut cursor)?;
        let alt = numbers.len();
        cursor.numbers(numbers)?;
        let direction = cursor.at;
        key(&mut cursor)?;
        cursor.string()?;
        for _list in ["mod", "op"] {
            key(&mut cursor)?;
            cursor.list(|cursor| cursor.string().map(drop))?;
        }
        bytes.extend_from_slice(line.get(direction..cursor.at)?);
        let place = bytes.len();
        key(&mut cursor)?;
        let tid = match cursor.none() {
            Some(()) => None,
            None => Some(cursor.number()?),
        };
        key(&mut cursor)?;
        let device = cursor.small()?;
        key(&mut cursor)?;
        let stream = cursor.small()?;
        key(&mut cursor)?;
        let grid = cursor.triple()?;
        key(&mut cursor)?;
        let block = cursor.triple()?;
        key(&mut cursor)?;
        let long = cursor.string()?;
        cursor.expect(b"}")?;
        if cursor.at != line.len() {
            return None;
        }
        bytes.extend_from_slice(short);
        bytes.push(HOLE);
        bytes.extend_from_slice(long);
        Some(Usual {
            place,
            names: bytes.len(),
            counts: [seq - first, alt - seq, numbers.len() - alt],
            duration,
            sub,
            tid,
            device,
            stream,
            grid,
            block,
        })
    }
}

/// A place in a line.
struct Cursor<'l> {
    line: &'l [u8],
    at: usize,
    shape: Shape,
}

impl<'l> Cursor<'l> {
    fn rest(&self) -> &'l [u8] {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.rest().starts_with(text).then(|| self.at += text.len())
    }

    /// A key with what stands before and behind it; nothing before the first.
    fn key(&mut self, name: &str) -> Option<()> {
        let first = self.at == 1;
        let (before, behind): (&[u8], &[u8]) = match self.shape {
            Shape::Python => (if first { b"'" } else { b", '" }, b"': "),
            Shape::Json => (if first { b"\"" } else { b",\"" }, b"\":"),
        };
        self.expect(before)?;
        self.expect(name.as_bytes())?;
        self.expect(behind)
    }

    /// A string with its quotes.
    fn string(&mut self) -> Option<&'l [u8]> {
        let start = self.at;
        let quote = *self.rest().first()?;
        if quote != b'"' && (quote != b'\'' || self.shape == Shape::Json) {
            return None;
        }
        self.at += 1;
        loop {
            let stop = |b: &u8| *b == quote || *b == b'\\';
            self.at += self.rest().iter().position(stop)?;
            if self.expect(&[quote]).is_some() {
                return self.line.get(start..self.at);
            }
            // JSON escapes are not Python's, and which of the two a line is depends on all of it.
            if self.shape == Shape::Json {
                return None;
            }
            // Whatever is escaped: two bytes of it cannot end the string.
            self.at += 2;
        }
    }

    /// A string without escapes; its numbers go into `numbers`, the rest into `blank`.
    fn range(&mut self, blank: &mut Vec<u8>, numbers: &mut Vec<u64>) -> Option<()> {
        let text = self.string()?;
        if text.contains(&b'\\') {
            return None;
        }
        let inside = text.get(1..text.len().checked_sub(1)?)?;
        let holes = stencil::found(std::str::from_utf8(inside).ok()?);
        let mut from = 0;
        for hole in holes.into_iter().flatten() {
            blank.extend_from_slice(inside.get(from..hole.start)?);
            blank.push(HOLE);
            numbers.push(hole.number);
            from = hole.end;
        }
        blank.extend_from_slice(inside.get(from..)?);
        // Which quotes it had does not matter, but where it ends does.
        blank.push(b'\n');
        Some(())
    }

    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b"[")?;
        if self.expect(b"]").is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            if self.expect(b"]").is_some() {
                return Some(());
            }
            self.expect(self.comma())?;
        }
    }

    fn comma(&self) -> &'static [u8] {
        match self.shape {
            Shape::Python => b", ",
            Shape::Json => b",",
        }
    }

    fn numbers(&mut self, out: &mut Vec<u64>) -> Option<()> {
        self.list(|cursor| {
            out.push(cursor.number()?);
            Some(())
        })
    }

    /// A whole number as Python prints it, within the range of `i64`: a larger one is none to the
    /// reader of literals.
    fn number(&mut self) -> Option<u64> {
        let digits = self
            .rest()
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let text = self.rest().get(..digits)?;
        let canonical = digits == 1 || (digits > 1 && digits < 19 && !text.starts_with(b"0"));
        self.at += digits;
        let value = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
        canonical.then(|| text.iter().fold(0, value))
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn none(&mut self) -> Option<()> {
        match self.shape {
            Shape::Python => self.expect(b"None"),
            Shape::Json => self.expect(b"null"),
        }
    }

    fn triple(&mut self) -> Option<[u32; 3]> {
        let (open, close): (&[u8], &[u8]) = match self.shape {
            Shape::Python => (b"(", b")"),
            Shape::Json => (b"[", b"]"),
        };
        self.expect(open)?;
        let x = self.small()?;
        self.expect(self.comma())?;
        let y = self.small()?;
        self.expect(self.comma())?;
        let z = self.small()?;
        self.expect(close)?;
        Some([x, y, z])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LINE: &str = "{'kShortName': 'k', 'kDuration': 5, 'layer': ['a', \"it's\"], 'trace': [], \
        'reprMarkers': [], 'marker': ['\\\\\\''], 'seqMarker': ['mm, seq = 7, op_id = 8', 'x'], \
        'seqId': [7], 'subSeqId': 2, 'altSeqId': [3, 4], 'dir': 'bprop', 'mod': ['m'], 'op': ['o'], \
        'tid': None, 'device': 0, 'stream': 7, 'grid': (1, 2, 3), 'block': (4, 5, 6), \
        'kLongName': 'k<1>'}";

    #[test]
    fn numbers_come_out_and_places_are_alike() {
        let mut cuts = Cuts::default();
        let first = cuts.take(LINE.as_bytes()).unwrap();
        assert_eq!(cuts.numbers, [7, 8, 7, 3, 4]);
        assert_eq!(first.counts, [2, 1, 2]);
        let next = LINE
            .replace("seq = 7, op_id = 8", "seq = 70, op_id = 800")
            .replace("[7]", "[70]")
            .replace("None", "12");
        let second = cuts.take(next.as_bytes()).unwrap();
        assert_eq!(second.tid, Some(12));
        assert_eq!(cuts.numbers.get(5..), Some(&[70, 800, 70, 3, 4][..]));
        let (one, other) = cuts.bytes.split_at(first.names);
        assert_eq!(one, other);
        assert_eq!(second.place, first.names + first.place);
    }

    #[test]
    fn other_places_have_other_bytes() {
        let mut cuts = Cuts::default();
        cuts.take(LINE.as_bytes()).unwrap();
        let own = cuts.bytes.clone();
        for (text, other) in [
            ("'a', \"it's\"", "'b', \"it's\""),
            ("'mm, seq = 7, op_id = 8', 'x'", "'mm, seq = 7, op_id = 8'"),
            ("'mm, seq = 7, op_id = 8'", "'mm, seq = , op_id = 8'"),
            ("'mm, seq = 7, op_id = 8'", "'mm, op_id = 8, seq = 7'"),
            ("bprop", "fprop"),
            ("['o']", "['o', 'o']"),
            ("k<1>", "k<2>"),
        ] {
            let mut cuts = Cuts::default();
            assert!(LINE.contains(text));
            cuts.take(LINE.replace(text, other).as_bytes()).unwrap();
            assert_ne!(cuts.bytes, own, "{other}");
        }
    }

    #[test]
    fn lines_of_another_form_are_left_alone() {
        for (text, other) in [
            ("{'kShort", "{ 'kShort"),
            ("'kDuration': 5", "'kDuration': -5"),
            ("'kDuration': 5", "'kDuration': 05"),
            ("'kDuration': 5", "'kDuration': 9999999999999999999"),
            ("[3, 4]", "[3,4]"),
            ("[3, 4]", "[3, 4"),
            ("(1, 2, 3)", "(1, 2)"),
            ("(1, 2, 3)", "(1, 2, 4294967296)"),
            ("'mm, seq", "'\\x6dm, seq"),
            ("'device': 0, 'stream': 7", "'stream': 7, 'device': 0"),
            ("'k<1>'}", "'k<1>'} "),
            ("'k<1>'}", "'k<1>"),
            ("'k<1>'}", "'k<1\\"),
        ] {
            let mut cuts = Cuts::default();
            assert!(LINE.contains(text));
            assert!(
                cuts.take(LINE.replace(text, other).as_bytes()).is_none(),
                "{other}"
            );
            assert!(cuts.bytes.is_empty() && cuts.numbers.is_empty());
        }
        for end in 0..LINE.len() {
            let line = LINE.as_bytes().get(..end).unwrap();
            assert!(Cuts::default().take(line).is_none(), "{end}");
        }
    }
}
