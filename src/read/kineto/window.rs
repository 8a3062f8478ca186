//! A text that comes in pieces, of which only what is being read is at hand.

/// No event of a trace is longer, in bytes; one with a deep call stack has some thousand. What is read
/// must be held as one piece, and a file can be packed so well that there is no end to it.
pub(crate) const LONGEST_VALUE: usize = 64 << 20;

/// Appends more of a text; false where there is no more.
pub(crate) type More<'m> = &'m mut dyn FnMut(&mut String) -> bool;

/// The part of a text that is at hand: from the value being read on.
pub(crate) struct Window<'m> {
    pub(crate) text: String,
    /// Up to here `text` was read.
    pub(crate) at: usize,
    more: More<'m>,
    /// A value of more than [`LONGEST_VALUE`] bytes was given up: nothing behind it is read.
    pub(crate) too_long: bool,
}

impl<'m> Window<'m> {
    pub(crate) fn new(more: More<'m>) -> Self {
        Window {
            text: String::new(),
            at: 0,
            more,
            too_long: false,
        }
    }

    /// Gets more text, at least as much as is not yet read, so that a long value is not looked at many
    /// times. What has been read is forgotten; false at the end of the text.
    pub(crate) fn refill(&mut self) -> bool {
        let mut from = self.at.min(self.text.len());
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.drain(..from);
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

    /// What is at hand and not yet read.
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

    /// Where what is read next ends, by `of`, which tells it from the text and where it begins, or `None`
    /// as long as more of the text is needed; `None` where the text ends before.
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

    /// Reads up to `end`.
    pub(crate) fn take(&mut self, end: usize) -> &str {
        let from = std::mem::replace(&mut self.at, end);
        self.text.get(from..end).unwrap_or_default()
    }
}

/// A text that comes in pieces of so many characters.
#[cfg(test)]
pub(crate) fn in_pieces(text: &str, length: usize) -> impl FnMut(&mut String) -> bool {
    let mut chars = text.chars().peekable();
    move |to| {
        let more = chars.peek().is_some();
        to.extend(chars.by_ref().take(length));
        more
    }
}
