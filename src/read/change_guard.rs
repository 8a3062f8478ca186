//! Detects that a file changed while it was read. Databases are read without locks, because locking
//! creates files beside them, so a concurrent writer can only be detected afterwards.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::reader::ReadError;

/// Suffixes of the files of a profile: the profile and SQLite's logs.
const PARTS: [&str; 3] = ["", "-wal", "-journal"];
/// Length of the header of a file, in which SQLite counts its transactions: the header of a database
/// (100 bytes, change counter at 24) or of a write-ahead log (32 bytes, salts at 16); see
/// <https://www.sqlite.org/fileformat.html>, sections 1.3 and 4.1. The modification time alone is too
/// coarse: two writes can happen in one tick of the clock.
const HEADER: u64 = 100;

/// The state of a file and its logs at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChangeGuard([Option<Part>; 3]);

#[derive(Debug, PartialEq, Eq)]
struct Part {
    bytes: u64,
    written: Option<SystemTime>,
    header: Vec<u8>,
}

impl ChangeGuard {
    /// The current state of `path`.
    pub(crate) fn of(path: &Path) -> ChangeGuard {
        // The logs are beside the file that a link points to.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        ChangeGuard(PARTS.map(|suffix| {
            let mut name = OsString::from(real.as_os_str());
            name.push(suffix);
            Part::of(&PathBuf::from(name))
        }))
    }

    /// The result of reading `path`, unless the file has changed since.
    ///
    /// # Errors
    /// The error of reading, or that the file has changed: then neither the result nor another error is
    /// reliable.
    pub(crate) fn confirm<T, E: From<ReadError>>(
        &self,
        path: &Path,
        read: Result<T, E>,
    ) -> Result<T, E> {
        if ChangeGuard::of(path) == *self {
            return read;
        }
        Err(E::from(ReadError::new(
            path,
            "another program wrote to the file while it was read",
            "wait until it has ended",
        )))
    }
}

impl Part {
    /// `None` if the file is not regular or is empty: an empty log is equivalent to none.
    fn of(path: &Path) -> Option<Part> {
        let meta: Metadata = std::fs::metadata(path).ok()?;
        if !meta.is_file() || meta.len() == 0 {
            return None;
        }
        let mut header = Vec::new();
        let file = File::open(path).ok()?;
        let _ = file.take(HEADER).read_to_end(&mut header);
        Some(Part {
            bytes: meta.len(),
            written: meta.modified().ok(),
            header,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_file_or_its_logs_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net.sqlite");
        let fine = |guard: &ChangeGuard| guard.confirm(&path, Ok::<(), ReadError>(())).is_ok();
        std::fs::write(&path, [1; 200]).unwrap();
        let guard = ChangeGuard::of(&path);
        assert!(fine(&guard));
        std::fs::write(folder.path().join("net.sqlite-wal"), []).unwrap();
        assert!(fine(&guard), "an empty log is none");
        for log in ["net.sqlite-wal", "net.sqlite-journal"] {
            let log = folder.path().join(log);
            std::fs::write(&log, [7; 40]).unwrap();
            assert!(!fine(&guard), "{}", log.display());
            std::fs::remove_file(log).unwrap();
            assert!(fine(&guard));
        }
        // In the same tick of the clock.
        let written = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, [2; 200]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(written).unwrap();
        assert!(!fine(&guard));
    }
}
