//! Loads the text of a trace, plain or gzip, in parts and up to a limit. A damaged file yields the text
//! before the damage.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc;

use flate2::read::MultiGzDecoder;

use super::window::More;
use crate::base::units;
use crate::read::magic::{GZIP, HEAD_BYTES, is_gzip};
use crate::read::reader::{Progress, ReadError};

/// Maximum length of the text in bytes: some 25 million events.
const MAX_TEXT: u64 = 8 << 30;
/// Maximum compression ratio. Traces reach 10 to 60; a file with a larger ratio was made to exhaust
/// memory ...
const MAX_RATIO: u64 = 250;
/// ... unless its text is short: this many bytes are read of any file.
const ACCEPTED: u64 = 256 << 20;
/// The length of a part, in bytes.
const PIECE: usize = 1 << 18;
/// The number of parts that are unpacked ahead.
const AHEAD: usize = 4;

/// The text in the first bytes of a file, unpacked if necessary.
pub(in crate::read) fn beginning(head: &[u8]) -> Vec<u8> {
    if !is_gzip(head) {
        return head.to_vec();
    }
    let mut text = Vec::new();
    // The head ends in the middle of the stream, so an error is expected.
    let _ = MultiGzDecoder::new(head)
        .take(16 * HEAD_BYTES)
        .read_to_end(&mut text);
    text
}

/// Whether a word occurs in the text of a file, whose first [`ACCEPTED`] bytes are searched.
pub(super) fn holds(path: &Path, word: &[u8]) -> bool {
    let Ok((source, _)) = source(path) else {
        return false;
    };
    let mut source = source.take(ACCEPTED);
    let mut window: Vec<u8> = Vec::with_capacity(PIECE + word.len());
    loop {
        let read = source.by_ref().take(PIECE as u64).read_to_end(&mut window);
        if memchr::memmem::find(&window, word).is_some() {
            return true;
        }
        if !matches!(read, Ok(1..)) {
            return false;
        }
        // The word may be cut by the border of two pieces.
        window.drain(..window.len() - word.len().min(window.len()));
    }
}

/// Runs `read` on the text of a file while another thread unpacks it. Returns the result of `read`, and
/// why the text ends too early, if it does.
///
/// # Errors
/// When the file cannot be read, or is larger than any trace.
pub(super) fn streamed<T>(
    path: &Path,
    progress: &dyn Progress,
    read: impl FnOnce(More<'_>) -> T,
) -> Result<(T, Option<String>), ReadError> {
    let (sender, receiver) = mpsc::sync_channel::<Vec<u8>>(AHEAD);
    std::thread::scope(|scope| {
        let unpack = move || {
            pieces(path, ACCEPTED, progress, &mut |piece| {
                sender.send(piece).is_ok()
            })
        };
        let started = std::thread::Builder::new().spawn_scoped(scope, unpack);
        let unpacked = started.map_err(|e| {
            ReadError::new(
                path,
                format!("cannot be read: no thread could be started ({e})"),
                "allow more processes (`ulimit -u`) or more memory (`ulimit -v`)",
            )
        })?;
        let mut joiner = Some(Utf8Joiner::default());
        let made = read(&mut |text| match receiver.recv() {
            Ok(piece) => {
                if let Some(joiner) = &mut joiner {
                    joiner.append(text, piece);
                }
                true
            }
            Err(_) => joiner.take().is_some_and(|joiner| joiner.end(text)),
        });
        // The rest is read only to determine whether the file is complete.
        receiver.iter().for_each(drop);
        let damage = unpacked.join().unwrap_or_else(|_| {
            Err(ReadError::new(
                path,
                "could not be unpacked",
                "unpack it first (`gunzip -k FILE`)",
            ))
        })?;
        Ok((made, damage))
    })
}

/// Joins parts of bytes, cut at any position, to a text.
#[derive(Debug, Default)]
struct Utf8Joiner {
    /// The start of a character that continues in the next part.
    open: Vec<u8>,
}

impl Utf8Joiner {
    fn append(&mut self, text: &mut String, piece: Vec<u8>) {
        let mut bytes = std::mem::take(&mut self.open);
        let bytes = if bytes.is_empty() {
            piece
        } else {
            bytes.extend(piece);
            bytes
        };
        let mut rest = bytes.as_slice();
        while let Err(error) = std::str::from_utf8(rest).map(|good| text.push_str(good)) {
            let (good, bad) = rest.split_at(error.valid_up_to());
            text.push_str(std::str::from_utf8(good).unwrap_or_default());
            let Some(length) = error.error_len() else {
                self.open = bad.to_vec();
                return;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = bad.get(length..).unwrap_or_default();
        }
    }

    /// Ends the text; returns whether a cut character was left.
    fn end(self, text: &mut String) -> bool {
        if !self.open.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        !self.open.is_empty()
    }
}

/// Passes the unpacked bytes of a file to `take` until it returns false. Returns why they end too early,
/// if they do.
fn pieces(
    path: &Path,
    accepted: u64,
    progress: &dyn Progress,
    take: &mut dyn FnMut(Vec<u8>) -> bool,
) -> Result<Option<String>, ReadError> {
    let io =
        |e: &std::io::Error| ReadError::new(path, format!("cannot be read: {e}"), "check the file");
    let file_bytes = std::fs::metadata(path).map_err(|e| io(&e))?.len();
    let (mut source, packed) = source(path).map_err(|e| io(&e))?;
    let limit = if packed {
        MAX_TEXT.min(accepted.max(file_bytes.saturating_mul(MAX_RATIO)))
    } else {
        MAX_TEXT
    };
    let expected = if packed {
        unpacked_size(path)
    } else {
        file_bytes
    };
    progress.phase("reading", Some(expected).filter(|&n| n > 0));
    let mut total = 0_u64;
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = source.by_ref().take(PIECE as u64).read_to_end(&mut piece);
        let length = piece.len() as u64;
        total += length;
        if total > limit {
            return Err(too_large(path, packed, limit, file_bytes));
        }
        progress.advance(length);
        let wanted = length == 0 || take(piece);
        match read {
            Err(e) if packed && total > 0 => {
                return Ok(Some(format!(
                    "The compressed data is damaged or cut short ({e}); what could be unpacked was \
                     read, and everything after it is missing from all figures."
                )));
            }
            Err(e) => return Err(io(&e)),
            Ok(_) if length == 0 || !wanted => return Ok(None),
            Ok(_) => {}
        }
    }
}

fn source(path: &Path) -> std::io::Result<(Box<dyn Read>, bool)> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    file.by_ref()
        .take(GZIP.len() as u64)
        .read_to_end(&mut head)?;
    let packed = is_gzip(&head);
    let whole = std::io::Cursor::new(head).chain(file);
    Ok(if packed {
        let buffered = std::io::BufReader::with_capacity(PIECE, whole);
        (Box::new(MultiGzDecoder::new(buffered)), true)
    } else {
        (Box::new(whole), false)
    })
}

/// The unpacked size in the last four bytes of a gzip file, modulo 4 GiB; only a hint.
fn unpacked_size(path: &Path) -> u64 {
    use std::io::{Seek, SeekFrom};
    let mut last = [0; 4];
    File::open(path)
        .and_then(|mut file| {
            file.seek(SeekFrom::End(-4))?;
            file.read_exact(&mut last)
        })
        .map_or(0, |()| u64::from(u32::from_le_bytes(last)))
}

fn too_large(path: &Path, packed: bool, limit: u64, file_bytes: u64) -> ReadError {
    let limit = units::bytes(limit as f64);
    ReadError::new(
        path,
        if packed {
            format!(
                "unpacks to more than {limit} from {}: no trace does that, so it is not unpacked \
                 further",
                units::bytes(file_bytes as f64)
            )
        } else {
            format!("is larger than {limit}, more than is read of a trace")
        },
        "capture fewer steps: `schedule(wait=1, warmup=3, active=3)` in torch.profiler",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::reader::NoProgress;
    use std::io::Write;

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn load(bytes: &[u8]) -> Result<(String, Option<String>), ReadError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        streamed(&path, &NoProgress, |more| {
            let mut text = String::new();
            while more(&mut text) {}
            text
        })
    }

    #[test]
    fn plain_text_and_gzip_members_read_the_same() {
        let text = |bytes: &[u8]| load(bytes).unwrap().0;
        assert_eq!(text(b"[1]"), "[1]");
        assert_eq!(text(&packed(b"[1]")), "[1]");
        let two = [packed(b"[1"), packed(b"]")].concat();
        assert_eq!(text(&two), "[1]");
        assert_eq!(text(b"[\"\xff\"]"), "[\"\u{fffd}\"]");
    }

    #[test]
    fn characters_may_be_cut_anywhere() {
        let bytes = "a\u{e9}\u{4e2d}\u{1f980}z".as_bytes();
        let damaged = [bytes, b"\xf0\x9f x \xff\xfe\xe4\xb8"].concat();
        for bytes in [bytes, &damaged] {
            for length in 1..=bytes.len() {
                let (mut text, mut joiner) = (String::new(), Utf8Joiner::default());
                for piece in bytes.chunks(length) {
                    joiner.append(&mut text, piece.to_vec());
                }
                joiner.end(&mut text);
                assert_eq!(text, String::from_utf8_lossy(bytes), "{length}");
            }
        }
    }

    #[test]
    fn damaged_files_are_read_up_to_the_damage() {
        let data: String = (0..20_000).map(|i| format!("{i},")).collect();
        let whole = packed(data.as_bytes());
        let (half, damage) = load(&whole[..whole.len() / 2]).unwrap();
        assert!(half.len() > 1000 && data.starts_with(&half));
        assert!(damage.unwrap().contains("missing"));
        assert!(load(b"\x1f\x8bnonsense").is_err());
    }

    #[test]
    fn decompression_bombs_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, packed(&vec![b' '; 4 << 20])).unwrap();
        let Err(error) = pieces(&path, 1000, &NoProgress, &mut |_| true) else {
            panic!("it was unpacked");
        };
        assert!(error.problem.contains("unpacks to more than"), "{error}");
    }
}
