//! The text of a trace, plain or gzip, in memory: bounded, and as much of it as there is.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::base::units;
use crate::read::{Progress, ReadError};

/// No trace is larger: 8 GiB of text are some 25 million events.
const MAX_TEXT: u64 = 8 << 30;
/// Traces shrink 10 to 60 times. A file that grows more than this was made to fill memory...
const MAX_RATIO: u64 = 250;
/// ... unless it is still small: this much is read of any file.
const HARMLESS: u64 = 256 << 20;
/// Bytes between two reports of progress.
const CHUNK: usize = 1 << 20;

const GZIP: &[u8] = &[0x1f, 0x8b];

/// The text of a trace.
pub(super) struct Text {
    pub(super) text: String,
    /// Why it ends too early, or is not quite what was written; a sentence.
    pub(super) damage: Option<String>,
}

/// Whether the bytes begin like a gzip file.
pub(in crate::read) fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(GZIP)
}

/// As much text as the first bytes of a file give, unpacked if need be.
pub(super) fn beginning(head: &[u8]) -> Vec<u8> {
    if !is_gzip(head) {
        return head.to_vec();
    }
    let mut text = Vec::new();
    // The head ends in the middle of the stream: the error is expected.
    let _ = MultiGzDecoder::new(head)
        .take(16 * super::super::check::HEAD_BYTES)
        .read_to_end(&mut text);
    text
}

/// The first `most` bytes of a file's text.
pub(super) fn first(path: &Path, most: u64) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok((mut source, _)) = source(path) {
        let _ = source.by_ref().take(most).read_to_end(&mut text);
    }
    text
}

/// The whole text of a file.
///
/// # Errors
/// When the file cannot be read, or is larger than any trace.
pub(super) fn text(path: &Path, progress: &dyn Progress) -> Result<Text, ReadError> {
    text_within(path, HARMLESS, progress)
}

fn text_within(path: &Path, harmless: u64, progress: &dyn Progress) -> Result<Text, ReadError> {
    let fail = |problem: String, remedy: &str| ReadError {
        path: path.display().to_string(),
        problem,
        remedy: remedy.to_owned(),
    };
    let io = |e: &std::io::Error| fail(format!("cannot be read: {e}"), "check the file");
    let file_bytes = std::fs::metadata(path).map_err(|e| io(&e))?.len();
    let (mut source, packed) = source(path).map_err(|e| io(&e))?;
    let limit = if packed {
        MAX_TEXT.min(harmless.max(file_bytes.saturating_mul(MAX_RATIO)))
    } else {
        MAX_TEXT
    };
    let expected = if packed {
        unpacked_size(path)
    } else {
        file_bytes
    };
    let mut bytes: Vec<u8> = Vec::new();
    // A wrong promise must not cost memory; growth covers the rest.
    let _ = bytes.try_reserve_exact(usize::try_from(expected.min(limit)).unwrap_or(0) + 1);
    progress.phase(
        if packed { "unpacking" } else { "reading" },
        Some(expected).filter(|&n| n > 0),
    );

    let mut damage = None;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) if packed && !bytes.is_empty() => {
                damage = Some(format!(
                    "The compressed data is damaged or cut short ({e}); what could be unpacked was \
                     read, and everything after it is missing from all figures."
                ));
                break;
            }
            Err(e) => return Err(io(&e)),
        };
        if bytes.len() as u64 + read as u64 > limit {
            return Err(too_large(path, packed, limit, file_bytes));
        }
        bytes.extend_from_slice(chunk.get(..read).unwrap_or_default());
        progress.advance(read as u64);
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    Ok(Text { text, damage })
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
        let buffered = std::io::BufReader::with_capacity(CHUNK, whole);
        (Box::new(MultiGzDecoder::new(buffered)), true)
    } else {
        (Box::new(whole), false)
    })
}

/// The size gzip notes in its last four bytes, modulo 4 GiB; only a hint.
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
    ReadError {
        path: path.display().to_string(),
        problem: if packed {
            format!(
                "unpacks to more than {limit} from {}: no trace does that, so it is not unpacked \
                 further",
                units::bytes(file_bytes as f64)
            )
        } else {
            format!("is larger than {limit}, more than is read of a trace")
        },
        remedy: "capture fewer steps: `schedule(wait=1, warmup=3, active=3)` in torch.profiler"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Quiet;
    use std::io::Write;

    fn packed(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn load(bytes: &[u8]) -> Result<Text, ReadError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        text(&path, &Quiet)
    }

    #[test]
    fn plain_packed_and_several_members_read_the_same() {
        let text = |bytes: &[u8]| load(bytes).unwrap().text;
        assert_eq!(text(b"[1]"), "[1]");
        assert_eq!(text(&packed(b"[1]")), "[1]");
        let two = [packed(b"[1"), packed(b"]")].concat();
        assert_eq!(text(&two), "[1]");
        assert_eq!(text(b"[\"\xff\"]"), "[\"\u{fffd}\"]");
    }

    #[test]
    fn what_is_left_of_a_damaged_file_is_read() {
        let data: String = (0..20_000).map(|i| format!("{i},")).collect();
        let whole = packed(data.as_bytes());
        let half = load(&whole[..whole.len() / 2]).unwrap();
        assert!(half.text.len() > 1000 && data.starts_with(&half.text));
        assert!(half.damage.unwrap().contains("missing"));
        assert!(load(b"\x1f\x8bnonsense").is_err());
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, packed(&vec![b' '; 4 << 20])).unwrap();
        let Err(error) = text_within(&path, 1000, &Quiet) else {
            panic!("it was unpacked");
        };
        assert!(error.problem.contains("unpacks to more than"), "{error}");
    }
}
