//! Floor 2: one module per input format behind one trait. Every schema difference is absorbed here
//! and nowhere else. Files are opened read-only and never changed; nothing in them is executed.

use std::path::Path;

use crate::profile::{Format, Profile, SyncKind};

mod build;
mod change_guard;
mod kineto;
mod nsys;
mod nvprof;
mod recognize;
mod sqlite;

pub(crate) use change_guard::ChangeGuard;
#[cfg(test)]
pub(crate) use kineto::in_pieces;
pub(crate) use kineto::{LONGEST_VALUE, More, Window, after_json_string, trace_text};

/// Every format, asked in this order. A new format is one module and one entry here.
pub const READERS: &[&dyn Reader] = &[&nvprof::Nvprof, &nsys::Nsys, &kineto::Kineto];

/// One input format.
pub trait Reader: Sync {
    fn format(&self) -> Format;
    /// Whether the file is of this format, and why or why not. Looks at content, never at the name.
    fn sniff(&self, input: &Input<'_>) -> Sniff;
    /// Reads the whole file.
    ///
    /// # Errors
    /// When nothing can be read; what is merely missing becomes a note of the profile.
    fn read(&self, path: &Path, progress: &dyn Progress) -> Result<Profile, ReadError>;
}

/// What a reader looks at to recognise its format.
#[derive(Debug)]
pub struct Input<'a> {
    pub path: &'a Path,
    /// The first bytes of the file, at most 4 KiB.
    pub head: &'a [u8],
    /// Table names, when the file is a readable SQLite database.
    pub tables: Option<&'a [String]>,
}

impl Input<'_> {
    /// Whether any table's name begins so; case does not matter in SQLite.
    fn has_table_like(&self, beginning: &str) -> bool {
        self.tables.unwrap_or_default().iter().any(|name| {
            name.get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning))
        })
    }

    fn has_table(&self, wanted: &str) -> bool {
        self.tables
            .unwrap_or_default()
            .iter()
            .any(|name| name.eq_ignore_ascii_case(wanted))
    }
}

/// A recognition with its reason, for error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sniff {
    Yes(String),
    No(String),
}

/// Told what is being read; a no-op unless someone watches.
pub trait Progress: Sync {
    fn phase(&self, _name: &str, _total: Option<u64>) {}
    fn advance(&self, _rows: u64) {}
}

/// Nobody watches.
#[derive(Debug)]
pub struct Quiet;
impl Progress for Quiet {}

/// Why a file could not be read: what was expected, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}\n  {remedy}")]
pub struct ReadError {
    pub path: String,
    pub problem: String,
    pub remedy: String,
}

/// Recognises a file by its content and reads it.
///
/// The file is opened read-only, its bytes stay as they are, and nothing is created beside it.
/// Kernels, calls and ranges of the profile are sorted by start, ties by file order; the result
/// does not depend on the number of threads. A trace may also come out of a pipe.
///
/// # Errors
/// One [`ReadError`] with what was expected, what was found and what to do: no such file, a folder,
/// an empty file, another kind of file, another program's database, one that is damaged or cut
/// short, or one that another program writes to meanwhile - a part of a profile is never returned as if it were the whole.
pub fn open(path: &Path, progress: &dyn Progress) -> Result<Profile, ReadError> {
    if !recognize::is_stream(path) {
        return open_file(path, progress);
    }
    progress.phase("reading the pipe", None);
    let file = recognize::spool(path)?;
    let name = path.display().to_string();
    match open_file(file.path(), progress) {
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

fn open_file(path: &Path, progress: &dyn Progress) -> Result<Profile, ReadError> {
    let guard = ChangeGuard::of(path);
    let read = match reader(path)? {
        Ok(reader) => reader.read(path, progress),
        Err(other) => Err(other),
    };
    guard.confirm(path, read)
}

/// Whether a file would be read, without reading it: it is of a known format, or a database that
/// is damaged and might be one.
pub fn is_profile(path: &Path) -> bool {
    match reader(path) {
        Ok(found) => found.is_ok(),
        Err(_) => recognize::head(path).is_ok_and(|head| recognize::is_sqlite(&head)),
    }
}

/// What to do with a folder in which no file is a profile, by what its files are.
pub fn folder_remedy(folder: &Path) -> String {
    recognize::instead(folder)
}

/// The format of a file, by its content.
///
/// # Errors
/// As [`open`], of a file that no reader takes.
pub fn recognize(path: &Path) -> Result<Format, ReadError> {
    Ok(reader(path)??.format())
}

/// The reader of a file, or what the file is instead.
fn reader(path: &Path) -> Result<Result<&'static dyn Reader, ReadError>, ReadError> {
    let head = recognize::head(path)?;
    let tables = if recognize::is_sqlite(&head) {
        Some(sqlite::Db::open(path)?.table_names())
    } else {
        None
    };
    let input = Input {
        path,
        head: &head,
        tables: tables.as_deref(),
    };
    for reader in READERS {
        if let Sniff::Yes(_) = reader.sniff(&input) {
            return Ok(Ok(*reader));
        }
    }
    Ok(Err(match &tables {
        Some(tables) => recognize::other_database(path, tables),
        None => recognize::not_a_profile(path, &head),
    }))
}

/// A database opened as the readers open it, for whoever copies it.
pub(crate) fn database(path: &Path) -> Result<rusqlite::Connection, ReadError> {
    sqlite::connect(path)
}

/// What an SQLite failure while copying means for the person who gave us the file.
pub(crate) fn database_error(path: &Path, problem: &rusqlite::Error) -> ReadError {
    sqlite::error(path, problem)
}

/// Whole numbers of a table that is not large enough to deserve a sink of its own.
#[derive(Clone)]
struct Ints<C, const N: usize> {
    rows: Vec<[Option<i64>; N]>,
    columns: std::marker::PhantomData<C>,
}

/// Which columns [`Ints`] reads.
trait Columns: Clone + Send + Sync + 'static {
    /// In the notation of [`sqlite::Sink::COLUMNS`].
    const COLUMNS: &'static [&'static str];
}

impl<C: Columns, const N: usize> sqlite::Sink for Ints<C, N> {
    const COLUMNS: &'static [&'static str] = C::COLUMNS;

    fn row(&mut self, cells: &sqlite::Cells<'_, '_>) {
        self.rows
            .push(std::array::from_fn(|column| cells.int(column)));
    }
}

/// The rows of `table`, in row order; `None` for what is not a whole number.
fn ints<C: Columns, const N: usize>(
    db: &sqlite::Db,
    table: &str,
    columns: C,
    progress: &dyn Progress,
) -> Result<Vec<[Option<i64>; N]>, ReadError> {
    let mut rows = Vec::new();
    each_ints(db, table, columns, progress, |row| rows.push(row))?;
    Ok(rows)
}

/// The same one by one, while other threads read what follows.
fn each_ints<C: Columns, const N: usize>(
    db: &sqlite::Db,
    table: &str,
    _columns: C,
    progress: &dyn Progress,
    mut take: impl FnMut([Option<i64>; N]) + Send,
) -> Result<(), ReadError> {
    let empty = Ints::<C, N> {
        rows: Vec::new(),
        columns: std::marker::PhantomData,
    };
    db.stream(table, &empty, progress, |part| {
        part.rows.drain(..).for_each(&mut take);
    })
}

/// Declares the columns [`ints`] reads.
macro_rules! columns {
    ($name:ident, [$($column:literal),+ $(,)?]) => {
        #[derive(Clone)]
        struct $name;
        impl $crate::read::Columns for $name {
            const COLUMNS: &'static [&'static str] = &[$($column),+];
        }
    };
}
use columns;

/// `CUpti_ActivitySynchronizationType` (cupti_activity.h).
const CUPTI_SYNC_KINDS: [(i64, SyncKind); 4] = [
    (1, SyncKind::Event),
    (2, SyncKind::StreamWait),
    (3, SyncKind::Stream),
    (4, SyncKind::Context),
];

/// What a synchronisation record is, from the call it belongs to.
///
/// The call is more reliable: exports of 2024 number these records from 0 under an enumeration
/// that numbers them from 1, others file `cudaStreamWaitEvent` under stream synchronisation, and
/// `cudaEventQuery` leaves a record although it never waits.
fn sync_kind_of_call(name: &str) -> Option<SyncKind> {
    let has = |word: &str| name.contains(word);
    if has("StreamWaitEvent") {
        Some(SyncKind::StreamWait)
    } else if has("StreamSynchronize") {
        Some(SyncKind::Stream)
    } else if has("EventSynchronize") {
        Some(SyncKind::Event)
    } else if has("DeviceSynchronize") || has("CtxSynchronize") || has("ThreadSynchronize") {
        Some(SyncKind::Context)
    } else if has("Query") {
        Some(SyncKind::Unknown)
    } else {
        None
    }
}

/// An API name without version and default-stream suffixes: `_v7000`, `_v2`, `_ptsz`, `_ptds`.
fn unversioned(name: &str) -> &str {
    let mut name = name;
    while let Some((rest, suffix)) = name.rsplit_once('_') {
        let version = suffix
            .strip_prefix('v')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
        if rest.is_empty() || !(version || suffix == "ptsz" || suffix == "ptds") {
            break;
        }
        name = rest;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognised(tables: &[&str]) -> Option<Format> {
        let tables: Vec<String> = tables.iter().map(|&t| t.to_owned()).collect();
        let input = Input {
            path: Path::new("x"),
            head: b"SQLite format 3\0",
            tables: Some(&tables),
        };
        READERS
            .iter()
            .find(|r| matches!(r.sniff(&input), Sniff::Yes(_)))
            .map(|r| r.format())
    }

    #[test]
    fn suffixes_of_api_names_are_stripped() {
        for (raw, plain) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
            (
                "cudaGetDeviceProperties_v2_v12000",
                "cudaGetDeviceProperties",
            ),
            ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
            ("cuLaunchKernelEx", "cuLaunchKernelEx"),
            ("a_version", "a_version"),
            ("_v1", "_v1"),
            ("x_v", "x_v"),
        ] {
            assert_eq!(unversioned(raw), plain);
        }
    }

    #[test]
    fn formats_are_told_apart_by_their_tables() {
        let nsys = Some(Format::NsysSqlite);
        assert_eq!(recognised(&["StringIds", "NVTX_EVENTS"]), nsys);
        assert_eq!(recognised(&["StringIds", "TARGET_INFO_GPU"]), nsys);
        assert_eq!(recognised(&["CUPTI_ACTIVITY_KIND_KERNEL"]), nsys);
        assert_eq!(recognised(&["META_DATA_EXPORT"]), nsys);
        assert_eq!(
            recognised(&["StringTable", "CUPTI_ACTIVITY_KIND_KERNEL"]),
            Some(Format::NvprofSqlite)
        );
        assert_eq!(recognised(&["moz_places", "StringIds"]), None);
        assert_eq!(recognised(&[]), None);
    }
}
