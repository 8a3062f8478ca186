//! Reads pickles as data. Only values of these kinds are built: dictionaries, lists, tuples, texts and
//! numbers, and instances of one class as their attributes. Nothing is imported or called.
//!
//! Format: Lib/pickletools.py.

use super::arena::{Arena, ByteReader, Id, PythonValue};

/// Whether the file begins as protocol 2 or later does.
pub(super) fn is_pickle(data: &[u8]) -> bool {
    matches!(data, [0x80, 2..=5, ..])
}

/// The value of a pickle. `knows` is asked whether instances of a class, by module and name, may occur;
/// any other class ends reading. `None` if the file is no pickle, is damaged, or needs anything else.
pub(super) fn read(data: &[u8], knows: fn(&str, &str) -> bool) -> Option<(Arena, Id)> {
    if !is_pickle(data) {
        return None;
    }
    let mut machine = Machine {
        bytes: ByteReader(data),
        arena: Arena::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        knows,
    };
    while let Some(()) = machine.step()? {}
    let root = machine.stack.pop()?;
    Some((machine.arena, root))
}

/// The attributes of an instance.
pub(super) fn state(arena: &Arena, object: Id) -> Option<Id> {
    match arena.get(object) {
        PythonValue::Object(state) => *state,
        _ => None,
    }
}

struct Machine<'a> {
    bytes: ByteReader<'a>,
    arena: Arena,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Id>,
    knows: fn(&str, &str) -> bool,
}

impl Machine<'_> {
    /// Executes an instruction: `Some(None)` for the last one, `None` for one that is not understood.
    fn step(&mut self) -> Option<Option<()>> {
        match self.bytes.byte()? {
            b'.' => return Some(None),
            // PROTO and FRAME.
            0x80 => drop(self.bytes.byte()?),
            0x95 => drop(self.bytes.take(8)?),
            // MEMOIZE, BINPUT, LONG_BINPUT.
            0x94 => self.memo.push(*self.stack.last()?),
            b'q' => {
                let at = self.bytes.byte()?;
                self.put(at.into())?;
            }
            b'r' => {
                let at = self.bytes.u32()?;
                self.put(at as usize)?;
            }
            // BINGET, LONG_BINGET.
            b'h' => {
                let at = self.bytes.byte()?;
                self.stack.push(*self.memo.get(usize::from(at))?);
            }
            b'j' => {
                let at = self.bytes.u32()?;
                self.stack.push(*self.memo.get(at as usize)?);
            }
            // Texts.
            0x8c | b'U' => {
                let length = self.bytes.byte()?;
                let text = self.bytes.text(length.into())?;
                self.push(text);
            }
            b'X' | b'T' => {
                let length = self.bytes.u32()?;
                let text = self.bytes.text(length as usize)?;
                self.push(text);
            }
            // Numbers.
            code @ (b'J' | b'K' | b'M' | 0x8a) => {
                let number = match code {
                    b'J' => i32::from_le_bytes(self.bytes.array()?).into(),
                    b'K' => self.bytes.byte()?.into(),
                    b'M' => u16::from_le_bytes(self.bytes.array()?).into(),
                    _ => self.long()?,
                };
                self.push(PythonValue::Int(number));
            }
            b'G' => {
                let number = f64::from_be_bytes(self.bytes.array()?);
                self.push(PythonValue::Float(number));
            }
            b'N' | 0x88 | 0x89 => self.push(PythonValue::Other),
            // Containers.
            b'}' => self.push(PythonValue::Dict(Vec::new())),
            b']' | b')' => self.push(PythonValue::List(Vec::new())),
            b'(' => self.marks.push(self.stack.len()),
            b't' => {
                let items = self.since_mark()?;
                self.push(PythonValue::List(items));
            }
            code @ 0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(code - 0x84))?;
                let items = self.stack.split_off(from);
                self.push(PythonValue::List(items));
            }
            b'a' => {
                let item = self.stack.pop()?;
                let list = *self.stack.last()?;
                self.arena.list_mut(list)?.push(item);
            }
            b'e' => {
                let items = self.since_mark()?;
                let list = *self.stack.last()?;
                self.arena.list_mut(list)?.extend(items);
            }
            b's' => {
                let value = self.stack.pop()?;
                let key = self.stack.pop()?;
                let dict = *self.stack.last()?;
                self.arena.dict_mut(dict)?.push((key, value));
            }
            b'u' => {
                let items = self.since_mark()?;
                let dict = *self.stack.last()?;
                let entries = self.arena.dict_mut(dict)?;
                entries.extend(items.chunks_exact(2).filter_map(|pair| match pair {
                    [key, value] => Some((*key, *value)),
                    _ => None,
                }));
            }
            // A class by name: STACK_GLOBAL, GLOBAL.
            0x93 => {
                let (class, module) = (self.stack.pop()?, self.stack.pop()?);
                let known = (self.knows)(self.arena.text(module)?, self.arena.text(class)?);
                known.then_some(())?;
                self.push(PythonValue::Other);
            }
            b'c' => {
                let (module, class) = (self.line()?, self.line()?);
                (self.knows)(&module, &class).then_some(())?;
                self.push(PythonValue::Other);
            }
            // An instance: NEWOBJ takes class and arguments, BUILD the attributes.
            0x81 => {
                self.stack.pop()?;
                self.stack.pop()?;
                self.push(PythonValue::Object(None));
            }
            b'b' => {
                let state = self.stack.pop()?;
                let object = *self.stack.last()?;
                match self.arena.get(object) {
                    PythonValue::Object(None) => {
                        self.arena.set(object, PythonValue::Object(Some(state)));
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(Some(()))
    }

    fn push(&mut self, node: PythonValue) {
        let id = self.arena.add(node);
        self.stack.push(id);
    }

    /// Numbers of the memo are given one by one.
    fn put(&mut self, at: usize) -> Option<()> {
        let value = *self.stack.last()?;
        if at == self.memo.len() {
            self.memo.push(value);
        } else {
            *self.memo.get_mut(at)? = value;
        }
        Some(())
    }

    fn since_mark(&mut self) -> Option<Vec<Id>> {
        let from = self.marks.pop()?;
        (from <= self.stack.len()).then(|| self.stack.split_off(from))
    }

    fn long(&mut self) -> Option<i64> {
        let length = usize::from(self.bytes.byte()?);
        let bytes = self.bytes.take(length)?;
        let sign = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut number = [if sign { 0xff } else { 0 }; 8];
        number.get_mut(..length)?.copy_from_slice(bytes);
        Some(i64::from_le_bytes(number))
    }

    /// A text up to the end of its line.
    fn line(&mut self) -> Option<String> {
        let length = self
            .bytes
            .0
            .iter()
            .take(1_000)
            .position(|byte| *byte == b'\n')?;
        let text = self.bytes.take(length)?;
        self.bytes.byte()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}
