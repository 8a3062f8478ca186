//! A window over a text that arrives in parts: only the part being read is in memory.

/// Maximum length of a value, in bytes. An event with a deep call stack has some thousand. A value has
/// to fit into memory, and a compressed file can contain one of any length.
pub(crate) const LONGEST_VALUE: usize = 64 << 20;

/// Appends more of a text; returns false at its end.
pub(crate) type More<'m> = &'m mut dyn FnMut(&mut String) -> bool;

/// The part of a text that is in memory, from the value being read onwards.
pub(crate) struct TextWindow<'m> {
    /// The text in memory.
    pub(crate) text: String,
    /// The start of the unread part of `text`.
    pub(crate) at: usize,
    /// The number of bytes before `text`.
    before: u64,
    more: More<'m>,
    /// Whether a value is longer than [`LONGEST_VALUE`] bytes; nothing after it is read.
    pub(crate) too_long: bool,
}

impl<'m> TextWindow<'m> {
    /// A window at the beginning of the text that `more` appends.
    pub(crate) fn new(more: More<'m>) -> Self {
        TextWindow {
            text: String::new(),
            at: 0,
            before: 0,
            more,
            too_long: false,
        }
    }

    /// Removes the text that has been read and appends at least as much as is unread, so that a long
    /// value is not scanned many times. Returns false at the end of the text.
    pub(crate) fn refill(&mut self) -> bool {
        let mut from = self.at.min(self.text.len());
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.drain(..from);
        self.before += from as u64;
        self.at -= from;
        let before = self.text.len();
        self.too_long |= before > LONGEST_VALUE;
        if self.too_long {
            return false;
        }
        while self.text.len() <= 2 * before {
            if !(self.more)(&mut self.text) {
                break;
            }
        }
        self.text.len() > before
    }

    /// The position of the unread part in the whole text, in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The unread part of the text in memory.
    pub(crate) fn rest(&self) -> &[u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// The next byte; `None` at the end of the text.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            if let Some(byte) = self.rest().first() {
                return Some(*byte);
            }
            if !self.refill() {
                return None;
            }
        }
    }

    /// The end of the next token. `of` finds it from the text and the token's start; it returns `None`
    /// while it needs more text. `None` if the text ends in the token.
    pub(crate) fn end(&mut self, of: fn(&[u8], usize) -> Option<usize>) -> Option<usize> {
        loop {
            if let Some(end) = of(self.text.as_bytes(), self.at) {
                return Some(end);
            }
            if !self.refill() {
                return None;
            }
        }
    }

    /// The text up to `end`, which is then marked as read.
    pub(crate) fn take(&mut self, end: usize) -> &str {
        let from = std::mem::replace(&mut self.at, end);
        self.text.get(from..end).unwrap_or_default()
    }
}

/// A [`More`] that appends `text` in parts of `length` characters.
#[cfg(test)]
pub(crate) fn in_pieces(text: &str, length: usize) -> impl FnMut(&mut String) -> bool {
    let mut chars = text.chars().peekable();
    move |to| {
        let more = chars.peek().is_some();
        to.extend(chars.by_ref().take(length));
        more
    }
}
