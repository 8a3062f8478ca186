//! What is wrong with an SQLite file, as errors that say what to do.

use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use super::{quote, text};
use crate::read::reader::ReadError;

/// What SQLite finds wrong with the trees of a table, or of the whole file. Rows that only break a rule of
/// their table, such as `NOT NULL`, are none of it.
pub(super) fn contradiction(
    conn: &Connection,
    table: Option<&str>,
) -> rusqlite::Result<Option<String>> {
    // Conditions are expressions from the file, which must not be evaluated.
    conn.execute_batch("PRAGMA ignore_check_constraints = 1")?;
    let argument = table.map_or_else(|| "100".to_owned(), quote);
    let mut statement = conn.prepare(&format!("PRAGMA quick_check({argument})"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let message = text(row.get_ref(0)?).unwrap_or_default();
        let structure = ["Tree ", "Page ", "page ", "Freelist", "rowid", "Rowid"];
        if structure.iter().any(|word| message.contains(word)) {
            let line = message.lines().find(|line| !line.starts_with("***"));
            return Ok(Some(format!(
                "SQLite's own check says: {}",
                line.unwrap_or_default()
            )));
        }
    }
    Ok(None)
}

/// The error for a failure of SQLite.
pub(crate) fn error(path: &Path, error: &rusqlite::Error) -> ReadError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            damaged(path, &format!("SQLite says: {error}"))
        }
        Some(ErrorCode::CannotOpen) if is_too_long(path) => ReadError::new(
            path,
            format!("its path is longer than the {LONGEST_PATH} bytes that SQLite opens"),
            "move or link it to a folder with a shorter path",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => unfinished(path),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ReadError::new(
            path,
            "another program is writing to the file",
            "wait until it has ended",
        ),
        _ => unreadable(path, error),
    }
}

/// The error for any other failure.
pub(super) fn unreadable(path: &Path, error: &dyn std::error::Error) -> ReadError {
    ReadError::new(
        path,
        format!("the SQLite file cannot be read: {error}"),
        "check that the file is complete and that you may read it",
    )
}

/// The longest path that SQLite opens, in bytes, with the suffix of a log.
const LONGEST_PATH: usize = 500;

fn is_too_long(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    real.as_os_str().len() > LONGEST_PATH
}

/// The error for a file with an unfinished transaction.
pub(super) fn unfinished(path: &Path) -> ReadError {
    ReadError::new(
        path,
        "expected a finished SQLite file, found one with an unfinished transaction \
         beside it (`-wal` or `-journal`), which cannot be completed without writing",
        "wait until the program that writes it has ended, or export the profile \
         again; this tool never changes its input",
    )
}

/// The error for a truncated or overwritten file.
pub(super) fn damaged(path: &Path, what: &str) -> ReadError {
    ReadError::new(
        path,
        format!("expected a complete SQLite file, found a damaged or cut one: {what}"),
        "copy or download it again, or export it again with `nsys export --type sqlite`; \
         nothing is reported from a part of a profile",
    )
}
