//! Looks through the bytes of a finished copy, as no reader of its format would: free space, headers
//! and all, as UTF-8 and as UTF-16 of either byte order.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::words::{Found, Kind, Words};

/// Bytes looked at in one go.
const WINDOW: usize = 1 << 20;
/// What a window shares with the next one, so that nothing is cut in two unseen.
const OVERLAP: usize = 8 << 10;
/// Shorter runs of UTF-16 hold nothing that is looked for.
const LEAST_UNITS: usize = 6;

/// What was looked for and found.
#[derive(Debug, Clone, Default)]
pub struct Rescan {
    /// Bytes looked through, of a packed file the unpacked ones.
    pub bytes: u64,
    /// Kind, how many of it the original gave away by name, how often it is in the copy.
    pub found: Vec<(Kind, usize, u64)>,
}

impl Rescan {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.found.iter().all(|(.., times)| *times == 0)
    }
}

/// Of a copy that `is_json` the strings are looked through, not what stands between them.
pub(super) fn rescan(file: &Path, words: &Words, is_json: bool) -> io::Result<Rescan> {
    let mut head = [0; 2];
    let is_packed = File::open(file)?.read_exact(&mut head).is_ok() && head == [0x1f, 0x8b];
    let source = BufReader::with_capacity(WINDOW, File::open(file)?);
    if is_packed {
        through(MultiGzDecoder::new(source), words, is_json)
    } else {
        through(source, words, is_json)
    }
}

fn through(mut source: impl Read, words: &Words, is_json: bool) -> io::Result<Rescan> {
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
        count(&window, shared, words, is_json, &mut times);
        // Of two bytes of UTF-16 that are one of ASCII, one is zero.
        let orders: &[_] = match memchr::memchr(0, &window) {
            Some(_) => &[(0, 1), (1, 0), (1, 2), (2, 1)],
            None => &[],
        };
        for &(first, high) in orders {
            for (at, text) in wide(&window, first, high) {
                // What lies wholly in the shared part was counted with the window before.
                let seen = shared.saturating_sub(at) / 2;
                count(&text, seen, words, is_json, &mut times);
            }
        }
        shared = OVERLAP.min(window.len());
        window.drain(..window.len() - shared);
    }
    Ok(Rescan {
        bytes: total,
        found: Kind::ALL
            .into_iter()
            .zip(times)
            .map(|(kind, times)| (kind, words.known(kind), times))
            .collect(),
    })
}

/// How often each kind was found.
type Times = [u64; Kind::ALL.len()];

/// Counts what ends behind the first `seen` bytes.
fn count(text: &[u8], seen: usize, words: &Words, is_json: bool, times: &mut Times) {
    let mut from = 0;
    while let Some(found) = words.next(text, from) {
        if is_json && is_torn(text, &found) {
            // Something else may begin in it.
            from = found.start.max(from) + 1;
            continue;
        }
        let slot = Kind::ALL.iter().position(|kind| *kind == found.kind);
        if found.end > seen
            && let Some(times) = slot.and_then(|slot| times.get_mut(slot))
        {
            *times += 1;
        }
        from = found.end;
    }
}

/// Whether what was found in JSON is of more than one string: inside of one, quotes are escaped. So a
/// secret `float",` is not `["float", "half"]`.
fn is_torn(text: &[u8], found: &Found) -> bool {
    let quotes = memchr::memchr_iter(b'"', text.get(found.start..found.end).unwrap_or_default());
    let escaped = |at: usize| at.checked_sub(1).and_then(|before| text.get(before)) == Some(&b'\\');
    quotes.map(|at| found.start + at).any(|at| !escaped(at))
}

/// Runs of UTF-16 that are ASCII, narrowed, with where they begin: `low` and `high` tell where in the
/// first pair its two bytes lie.
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
        let mut words = Words::default();
        words.learn("HF_TOKEN", secret);
        words.settle();
        let found = through(bytes, &words, is_json).unwrap().found;
        found.iter().map(|(.., times)| times).sum()
    }

    fn times(bytes: &[u8]) -> u64 {
        times_of("s3cr3t-value", bytes, false)
    }

    #[test]
    fn nothing_is_found_in_two_strings_of_json() {
        let json = br#"{"Input type": ["float", "float,half"], "token": "float,half"}"#;
        assert_eq!(times_of("float\",", json, false), 1);
        assert_eq!(times_of("float\",", json, true), 0);
        assert_eq!(times_of("float,half", json, true), 2);
        assert_eq!(times_of(r#"se\"cret"#, br#"["a se\"cret"]"#, true), 1);
    }

    #[test]
    fn every_encoding_and_offset_is_seen() {
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
