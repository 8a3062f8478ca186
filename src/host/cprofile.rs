//! Dumps of cProfile and profile: `marshal` of a dictionary of functions.
//!
//! Format: Python/marshal.c; the dictionary: Lib/profile.py, `create_stats`.

use super::arena::{Arena, ByteReader, Id, PythonValue};
use super::model::{HostLine, HostProfile, MOST_READ};

pub(super) const PROFILER: &str = "cProfile";

/// Nesting of `{function: (.., {caller: (..)})}`.
const MAX_DEPTH: u32 = 8;
/// Set in the code of a value that later ones refer to.
const FLAG_REF: u8 = 0x80;

/// Whether the file begins with a dictionary.
pub(super) fn is_dump(data: &[u8]) -> bool {
    matches!(data, [b'{' | 0xfb, ..])
}

/// `None` if the file is no such dump, or is damaged.
pub(super) fn read(data: &[u8]) -> Option<HostProfile> {
    let mut reader = Reader {
        bytes: ByteReader(data),
        arena: Arena::default(),
        references: Vec::new(),
    };
    let root = reader.value(0)??;
    let arena = &reader.arena;
    let lines = arena
        .dict(root)?
        .iter()
        .take(MOST_READ)
        .map(|(key, value)| {
            let (file, line, function) = arena.function(*key)?;
            let [_, calls, own, ..] = arena.list(*value)? else {
                return None;
            };
            Some(HostLine {
                // Built-in functions: `('~', 0, "<built-in method numpy.array>")`.
                file: if file == "~" { String::new() } else { file },
                line,
                function,
                calls: arena.count(*calls)?,
                self_ns: arena.number(*own)? * 1e9,
                ..HostLine::default()
            })
        });
    let lines: Vec<HostLine> = lines.collect::<Option<_>>()?;
    (!lines.is_empty()).then(|| HostProfile::of(PROFILER, lines))
}

struct Reader<'a> {
    bytes: ByteReader<'a>,
    arena: Arena,
    references: Vec<Id>,
}

impl Reader<'_> {
    /// A value; `Some(None)` for the end of a dictionary, `None` for damage.
    fn value(&mut self, depth: u32) -> Option<Option<Id>> {
        if depth > MAX_DEPTH {
            return None;
        }
        let code = self.bytes.byte()?;
        let code_only = code & !FLAG_REF;
        if code_only == b'r' {
            let index = self.bytes.u32()? as usize;
            return Some(Some(*self.references.get(index)?));
        }
        if code_only == b'0' {
            return Some(None);
        }
        let id = self.arena.add(PythonValue::Other);
        if code & FLAG_REF != 0 {
            // A container has its number before its items.
            self.references.push(id);
        }
        let node = match code_only {
            b'{' => {
                let mut entries = Vec::new();
                while let Some(key) = self.value(depth + 1)? {
                    entries.push((key, self.value(depth + 1)??));
                }
                PythonValue::Dict(entries)
            }
            b'(' | b'[' => {
                let length = self.bytes.u32()?;
                self.list(length, depth)?
            }
            b')' => {
                let length = self.bytes.byte()?;
                self.list(length.into(), depth)?
            }
            b'i' => PythonValue::Int(i32::from_le_bytes(self.bytes.array()?).into()),
            b'I' => PythonValue::Int(i64::from_le_bytes(self.bytes.array()?)),
            b'l' => self.long()?,
            b'g' => PythonValue::Float(f64::from_le_bytes(self.bytes.array()?)),
            b'f' => {
                let length = self.bytes.byte()?;
                let text = std::str::from_utf8(self.bytes.take(length.into())?).ok()?;
                PythonValue::Float(text.parse().ok()?)
            }
            b'u' | b't' | b'a' | b'A' | b's' => {
                let length = self.bytes.u32()?;
                self.bytes.text(length as usize)?
            }
            b'z' | b'Z' => {
                let length = self.bytes.byte()?;
                self.bytes.text(length.into())?
            }
            b'N' | b'T' | b'F' => PythonValue::Other,
            _ => return None,
        };
        self.arena.set(id, node);
        Some(Some(id))
    }

    fn list(&mut self, length: u32, depth: u32) -> Option<PythonValue> {
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(self.value(depth + 1)??);
        }
        Some(PythonValue::List(items))
    }

    /// A large number in digits of 15 bits; the sign is that of their count.
    fn long(&mut self) -> Option<PythonValue> {
        let count = i32::from_le_bytes(self.bytes.array()?);
        let mut value: i64 = 0;
        for place in 0..count.unsigned_abs() {
            let digit = u16::from_le_bytes(self.bytes.array()?);
            let shift = place.checked_mul(15)?;
            let part = i64::from(digit).checked_shl(shift).filter(|_| shift < 48)?;
            value = value.checked_add(part)?;
        }
        Some(PythonValue::Int(if count < 0 { -value } else { value }))
    }
}
