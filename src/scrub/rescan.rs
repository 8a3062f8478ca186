//! Searches all bytes of a finished copy, including free space and headers, as UTF-8 and as UTF-16 of
//! either byte order.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::redactor::{Redaction, RedactionKind, Redactor};

/// Number of bytes that are searched at a time.
const WINDOW: usize = 1 << 20;
/// Overlap of two windows in bytes, so that matches across their border are found.
const OVERLAP: usize = 8 << 10;
/// Minimum length in code units of UTF-16 text that is searched.
const LEAST_UNITS: usize = 6;

/// The result of searching a copy.
#[derive(Debug, Clone, Default)]
pub struct Rescan {
    /// Number of bytes searched; of a compressed file, uncompressed.
    pub bytes: u64,
    /// Per kind: the number of names and values of it in the original, and the number of matches.
    pub found: Vec<(RedactionKind, usize, u64)>,
}

impl Rescan {
    /// Whether there are no matches.
    pub fn is_clean(&self) -> bool {
        self.found.iter().all(|(.., times)| *times == 0)
    }
}

/// Searches a copy. If it `is_json`, a match must lie within one string.
pub(super) fn rescan(file: &Path, redactor: &Redactor, is_json: bool) -> io::Result<Rescan> {
    let mut head = [0; 2];
    let is_packed = File::open(file)?.read_exact(&mut head).is_ok() && head == [0x1f, 0x8b];
    let source = BufReader::with_capacity(WINDOW, File::open(file)?);
    if is_packed {
        // Without a buffer, `read_to_end` clears the rest of the window before each of many small parts.
        through(
            BufReader::new(MultiGzDecoder::new(source)),
            redactor,
            is_json,
        )
    } else {
        through(source, redactor, is_json)
    }
}

fn through(mut source: impl Read, redactor: &Redactor, is_json: bool) -> io::Result<Rescan> {
    let mut times = Times::default();
    let mut total = 0;
    let mut window: Vec<u8> = Vec::with_capacity(WINDOW + OVERLAP);
    let mut shared = 0;
    loop {
        let read = source
            .by_ref()
            .take(WINDOW as u64)
            .read_to_end(&mut window)?;
        if read == 0 {
            break;
        }
        total += read as u64;
        count(&window, shared, redactor, is_json, &mut times);
        // In UTF-16, every ASCII character has a zero byte.
        let orders: &[_] = match memchr::memchr(0, &window) {
            Some(_) => &[(0, 1), (1, 0), (1, 2), (2, 1)],
            None => &[],
        };
        for &(first, high) in orders {
            for (at, text) in wide(&window, first, high) {
                // Matches in the overlap were counted with the previous window.
                let seen = shared.saturating_sub(at) / 2;
                count(&text, seen, redactor, is_json, &mut times);
            }
        }
        shared = OVERLAP.min(window.len());
        window.drain(..window.len() - shared);
    }
    Ok(Rescan {
        bytes: total,
        found: RedactionKind::ALL
            .into_iter()
            .zip(times)
            .map(|(kind, times)| (kind, redactor.known(kind), times))
            .collect(),
    })
}

/// Number of matches per kind.
type Times = [u64; RedactionKind::ALL.len()];

/// Counts matches that end after the first `seen` bytes.
fn count(text: &[u8], seen: usize, redactor: &Redactor, is_json: bool, times: &mut Times) {
    let mut from = 0;
    while let Some(found) = redactor.next(text, from) {
        if is_json && is_torn(text, &found) {
            // Another match may begin inside this one.
            from = found.start.max(from) + 1;
            continue;
        }
        let slot = RedactionKind::ALL
            .iter()
            .position(|kind| *kind == found.kind);
        if found.end > seen
            && let Some(times) = slot.and_then(|slot| times.get_mut(slot))
        {
            *times += 1;
        }
        from = found.end;
    }
}

/// Whether a match in JSON spans more than one string: inside a string, quotes are escaped. So the
/// secret `float",` does not match `["float", "half"]`.
fn is_torn(text: &[u8], found: &Redaction) -> bool {
    let quotes = memchr::memchr_iter(b'"', text.get(found.start..found.end).unwrap_or_default());
    let escaped = |at: usize| at.checked_sub(1).and_then(|before| text.get(before)) == Some(&b'\\');
    quotes.map(|at| found.start + at).any(|at| !escaped(at))
}

/// Runs of ASCII in UTF-16, as single bytes, with their start. `low` and `high` are the offsets of the two
/// bytes of the first pair.
fn wide(bytes: &[u8], low: usize, high: usize) -> Vec<(usize, Vec<u8>)> {
    let first = low.min(high);
    let mut runs = Vec::new();
    let mut run: Vec<u8> = Vec::new();
    let mut end = |run: &mut Vec<u8>, at: usize| {
        if run.len() >= LEAST_UNITS {
            runs.push((at - 2 * run.len(), std::mem::take(run)));
        }
        run.clear();
    };
    let rest = bytes.get(first..).unwrap_or_default();
    let mut at = first;
    for pair in rest.chunks_exact(2) {
        let [a, b] = pair else { continue };
        let (character, zero) = if low < high { (*a, *b) } else { (*b, *a) };
        if zero == 0 && character != 0 {
            run.push(character);
        } else {
            end(&mut run, at);
        }
        at += 2;
    }
    end(&mut run, at);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_of(secret: &str, bytes: &[u8], is_json: bool) -> u64 {
        let mut redactor = Redactor::default();
        redactor.learn("HF_TOKEN", secret);
        redactor.build_index();
        let found = through(bytes, &redactor, is_json).unwrap().found;
        found.iter().map(|(.., times)| times).sum()
    }

    fn times(bytes: &[u8]) -> u64 {
        times_of("s3cr3t-value", bytes, false)
    }

    #[test]
    fn matches_do_not_span_strings_of_json() {
        let json = br#"{"Input type": ["float", "float,half"], "token": "float,half"}"#;
        assert_eq!(times_of("float\",", json, false), 1);
        assert_eq!(times_of("float\",", json, true), 0);
        assert_eq!(times_of("float,half", json, true), 2);
        assert_eq!(times_of(r#"se\"cret"#, br#"["a se\"cret"]"#, true), 1);
    }

    #[test]
    fn secrets_are_found_in_every_encoding_and_at_every_offset() {
        let secret = "s3cr3t-value";
        let le: Vec<u8> = secret.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let be: Vec<u8> = secret.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for needle in [secret.as_bytes(), &le, &be] {
            for offset in [
                0,
                1,
                2,
                3,
                WINDOW - 13,
                WINDOW - 4,
                WINDOW - 1,
                WINDOW,
                WINDOW + 5,
            ] {
                let mut bytes = vec![0xff; offset];
                bytes.extend_from_slice(needle);
                bytes.extend_from_slice(&[0xff; 9]);
                assert_eq!(times(&bytes), 1, "{offset}");
            }
        }
        assert_eq!(times(&vec![0; 3 * WINDOW]), 0);
    }
}
