//! Recognizes files by their first bytes.

/// The number of bytes that are read to recognize a file.
pub(super) const HEAD_BYTES: u64 = 4096;

const SQLITE: &[u8] = b"SQLite format 3\0";
/// The first bytes of every gzip file.
pub(super) const GZIP: &[u8] = &[0x1f, 0x8b];

/// Whether the bytes begin like an SQLite database.
pub(super) fn is_sqlite(head: &[u8]) -> bool {
    head.starts_with(SQLITE)
}

/// Whether the bytes begin like a gzip file.
pub(super) fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(GZIP)
}

/// The first byte of a text that is neither a byte order mark nor white space.
pub(super) fn first_byte(text: &[u8]) -> Option<u8> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.trim_ascii_start().first().copied()
}
