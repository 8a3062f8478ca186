//! Floor 2: reads profiles, one module per input format behind the trait [`Reader`].
//!
//! All differences between schemas are handled here. Files are opened read-only and never changed, and
//! nothing in them is executed.

use std::path::Path;

use crate::profile::{Format, Profile};

mod builder;
mod change_guard;
mod cupti;
mod integer_rows;
mod kineto;
mod magic;
pub mod manifest;
mod names;
mod nsys;
mod nvprof;
mod pruning;
mod reader;
mod recognize;
mod skipped_rows;
mod sqlite;

pub(crate) use change_guard::ChangeGuard;
pub use kineto::FORMAT as KINETO_JSON;
#[cfg(test)]
pub(crate) use kineto::in_pieces;
pub(crate) use kineto::{
    LONGEST_VALUE, More, OTHER_ACCELERATOR, TRACE_CUT, TextWindow, after_json_string, trace_text,
};
pub use nsys::FORMAT as NSYS_SQLITE;
pub use nvprof::FORMAT as NVPROF_SQLITE;
pub use pruning::{
    DeferredRanges, Part, PartDomain, PartPruner, PartRange, PartText, PartThread, Pruning,
    RemovedRanges,
};
pub use reader::{Input, NoProgress, Progress, ReadError, Reader};
#[cfg(feature = "cli")]
pub(crate) use recognize::folder_remedy;
pub(crate) use recognize::shell_word;
pub(crate) use sqlite::{connect as database, error as database_error};

/// The readers of all formats, in the order in which they are tried. A new format is one module and
/// one entry here.
pub const READERS: &[&dyn Reader] = &[&nvprof::Nvprof, &nsys::Nsys, &kineto::Kineto];

/// Recognizes a file by its content and reads it.
///
/// The file is opened read-only, and nothing is created beside it. Kernels, calls and ranges of the
/// profile are sorted by start, ties by file order; the result does not depend on the number of
/// threads. A trace may also be read from a pipe.
///
/// # Errors
/// A [`ReadError`] with the expectation, the problem and the remedy: no such file, a folder, an empty
/// file, another kind of file, the database of another program, a damaged or truncated database, or one
/// that another program is writing to. A part of a database is never returned as if it were complete.
pub fn open(path: &Path, progress: &dyn Progress) -> Result<Profile, ReadError> {
    open_with(path, None, progress)
}

/// Reads a file like [`open`], without the ranges that are not needed.
///
/// # Errors
/// As [`open`].
pub fn open_pruned(
    path: &Path,
    pruning: &dyn Pruning,
    progress: &dyn Progress,
) -> Result<Profile, ReadError> {
    open_with(path, Some(pruning), progress)
}

fn open_with(
    path: &Path,
    pruning: Option<&dyn Pruning>,
    progress: &dyn Progress,
) -> Result<Profile, ReadError> {
    if !recognize::is_stream(path) {
        return open_file(path, pruning, progress);
    }
    progress.phase("reading the pipe", None);
    let file = recognize::spool(path)?;
    let name = path.display().to_string();
    match open_file(file.path(), pruning, progress) {
        Ok(profile) => Ok(Profile {
            path: name,
            ..profile
        }),
        Err(error) => Err(ReadError {
            path: name,
            ..error
        }),
    }
}

fn open_file(
    path: &Path,
    pruning: Option<&dyn Pruning>,
    progress: &dyn Progress,
) -> Result<Profile, ReadError> {
    let guard = ChangeGuard::of(path);
    let read = match reader(path)? {
        Ok(reader) => reader.read(path, pruning, progress),
        Err(other) => Err(other),
    };
    guard.confirm(path, read)
}

/// Whether [`open`] would try to read a file: it is of a known format, or a damaged database that might
/// be.
pub fn is_profile(path: &Path) -> bool {
    match reader(path) {
        Ok(found) => found.is_ok(),
        Err(_) => recognize::head(path).is_ok_and(|head| magic::is_sqlite(&head)),
    }
}

/// The format of a file, by its content.
///
/// # Errors
/// As [`open`], for a file that no reader recognizes.
pub fn recognize(path: &Path) -> Result<&'static Format, ReadError> {
    Ok(reader(path)??.format())
}

/// The reader of a file, or an error that describes the file.
fn reader(path: &Path) -> Result<Result<&'static dyn Reader, ReadError>, ReadError> {
    let head = recognize::head(path)?;
    let tables = match magic::is_sqlite(&head) {
        true => Some(sqlite::Db::open(path)?.table_names()),
        false => None,
    };
    let input = Input {
        path,
        head: &head,
        tables: tables.as_deref(),
    };
    let found = READERS.iter().find(|reader| reader.recognizes(&input));
    Ok(found.copied().ok_or_else(|| match &tables {
        Some(tables) => recognize::other_database(path, tables),
        None => recognize::not_a_profile(path, &head),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognized(tables: &[&str]) -> Option<&'static str> {
        let tables: Vec<String> = tables.iter().map(|&t| t.to_owned()).collect();
        let input = Input {
            path: Path::new("x"),
            head: b"SQLite format 3\0",
            tables: Some(&tables),
        };
        READERS
            .iter()
            .find(|r| r.recognizes(&input))
            .map(|r| r.format().id)
    }

    #[test]
    fn databases_are_recognized_by_their_tables() {
        let nsys = Some("nsys_sqlite");
        assert_eq!(recognized(&["StringIds", "NVTX_EVENTS"]), nsys);
        assert_eq!(recognized(&["StringIds", "TARGET_INFO_GPU"]), nsys);
        assert_eq!(recognized(&["CUPTI_ACTIVITY_KIND_KERNEL"]), nsys);
        assert_eq!(recognized(&["META_DATA_EXPORT"]), nsys);
        assert_eq!(
            recognized(&["StringTable", "CUPTI_ACTIVITY_KIND_KERNEL"]),
            Some("nvprof_sqlite")
        );
        assert_eq!(recognized(&["moz_places", "StringIds"]), None);
        assert_eq!(recognized(&[]), None);
    }
}
