//! Values of Python as `marshal` and `pickle` write them, as data: nothing is ever called or imported.

use super::model::name;

/// A value of an [`Arena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u32);

/// A Python value. Containers hold numbers of values, so that shared ones cost nothing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PythonValue {
    /// `None`, booleans, and what no profile needs.
    Other,
    Int(i64),
    Float(f64),
    Str(String),
    /// A list or tuple.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// An instance of a class, with its attributes.
    Object(Option<Id>),
}

/// The values of a file.
#[derive(Debug, Default)]
pub(super) struct Arena(Vec<PythonValue>);

impl Arena {
    pub(super) fn add(&mut self, node: PythonValue) -> Id {
        let id = Id(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.push(node);
        id
    }

    pub(super) fn get(&self, id: Id) -> &PythonValue {
        self.0.get(id.0 as usize).unwrap_or(&PythonValue::Other)
    }

    pub(super) fn set(&mut self, id: Id, node: PythonValue) {
        if let Some(slot) = self.0.get_mut(id.0 as usize) {
            *slot = node;
        }
    }

    pub(super) fn list_mut(&mut self, id: Id) -> Option<&mut Vec<Id>> {
        match self.0.get_mut(id.0 as usize)? {
            PythonValue::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn dict_mut(&mut self, id: Id) -> Option<&mut Vec<(Id, Id)>> {
        match self.0.get_mut(id.0 as usize)? {
            PythonValue::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn list(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            PythonValue::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn dict(&self, id: Id) -> Option<&[(Id, Id)]> {
        match self.get(id) {
            PythonValue::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            PythonValue::Str(text) => Some(text),
            _ => None,
        }
    }

    /// A number, whole or not.
    pub(super) fn number(&self, id: Id) -> Option<f64> {
        match self.get(id) {
            PythonValue::Int(number) => Some(*number as f64),
            PythonValue::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self, id: Id) -> Option<u64> {
        match self.get(id) {
            PythonValue::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The value of a text key.
    pub(super) fn entry(&self, dict: Id, key: &str) -> Option<Id> {
        let entries = self.dict(dict)?.iter();
        let mut found = entries.filter(|(name, _)| self.text(*name) == Some(key));
        found.next_back().map(|(_, value)| *value)
    }

    /// The key of a function: `(file, line, name)`.
    pub(super) fn function(&self, key: Id) -> Option<(String, u32, String)> {
        let [file, line, function] = self.list(key)? else {
            return None;
        };
        Some((
            name(self.text(*file)?),
            u32::try_from(self.count(*line)?).unwrap_or(u32::MAX),
            name(self.text(*function)?),
        ))
    }
}

/// The bytes of a file from front to back.
pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A text after its length.
    pub(super) fn text(&mut self, length: usize) -> Option<PythonValue> {
        let text = self.take(length)?;
        Some(PythonValue::Str(String::from_utf8_lossy(text).into_owned()))
    }
}
