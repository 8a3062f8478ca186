//! SQLite files, opened so that nothing is changed and nothing is created, and read fast.
//!
//! Schemas differ from one version of a tool to the next, so a [`Sink`] names the columns it would
//! like, and [`Db::scan`] asks the file which of them it has. Rows are pushed by SQLite into the
//! sink as an aggregate function (no call per column and row from our side); a large table is cut
//! into rowid ranges, each read by a connection of its own, and the sinks come back in rowid order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::config::DbConfig;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::{Progress, ReadError};

/// Rows of one rowid range. Smaller tables are read in one go on the connection that is open
/// anyway: opening another one and parsing its schema costs more than the rows.
const CHUNK_ROWS: u64 = 65_536;
/// Fewer bytes than this no row of interest takes; rowids may lie far apart (rows deleted, or cut
/// out of a longer capture), so their span alone says little about the number of rows.
const ROW_BYTES: u64 = 64;
/// A bound for hostile rowids that lie far apart; more chunks than this gain nothing.
const MAX_CHUNKS: u64 = 256;

/// Takes the rows of one table. Cloned once per rowid range.
pub(super) trait Sink: Clone + Send + Sync + 'static {
    /// The columns wanted, in the order [`Cells`] numbers them. `a|b` is the first of them that
    /// exists and is not NULL; `a=7` is 7 in files that have no such column (otherwise NULL).
    const COLUMNS: &'static [&'static str];
    fn row(&mut self, cells: &Cells<'_, '_>);
    /// Called once behind the last row of a rowid range.
    fn finish(&mut self) {}
}

/// The wanted columns of one row.
pub(super) struct Cells<'a, 'c>(&'a Context<'c>);

impl<'a> Cells<'a, '_> {
    pub(super) fn raw(&self, column: usize) -> ValueRef<'a> {
        if column < self.0.len() {
            self.0.get_raw(column)
        } else {
            ValueRef::Null
        }
    }

    /// A whole number; `None` for NULL and for what is not one.
    pub(super) fn int(&self, column: usize) -> Option<i64> {
        int(self.raw(column))
    }

    /// Bytes of a text (or of a blob, where a damaged file holds one).
    pub(super) fn bytes(&self, column: usize) -> Option<&'a [u8]> {
        match self.raw(column) {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// A whole number, also where a file without column types stores it as a real.
pub(super) fn int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(i) => Some(i),
        ValueRef::Real(r) if r.is_finite() && r.abs() < 9.0e18 => Some(r as i64),
        _ => None,
    }
}

/// Tables as the file declares them.
#[derive(Debug, Clone, Default)]
struct Table {
    name: String,
    columns: Vec<String>,
    /// The name under which the row number can be asked for; `None` for `WITHOUT ROWID` tables.
    rowid: Option<&'static str>,
}

/// A table whose columns nobody has asked for yet: an export has eighty, and few are read.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    has_rowid: bool,
}

/// How to open one more connection to the same file.
#[derive(Debug, Clone)]
struct Opener {
    uri: String,
    /// A write-ahead log stands beside the file and has to be read with it.
    wal: bool,
}

/// An open SQLite file.
pub(super) struct Db {
    path: PathBuf,
    conn: Connection,
    opener: Opener,
    tables: BTreeMap<String, Entry>,
    /// Of the file.
    bytes: u64,
}

impl Db {
    /// Opens the file read-only and reads its schema.
    ///
    /// # Errors
    /// When the file is damaged, needs a recovery that would write to it, or cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Db, ReadError> {
        // SQLite looks for the side files beside the file a link points to.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        check_length(path, &real)?;
        let opener = Opener::of(&real);
        let conn = opener.connect().map_err(|e| error(path, &e))?;
        let tables = tables(&conn).map_err(|e| error(path, &e))?;
        Ok(Db {
            path: path.to_path_buf(),
            conn,
            opener,
            tables,
            bytes: std::fs::metadata(&real).map_or(0, |m| m.len()),
        })
    }

    /// Table names as the file spells them, sorted.
    pub(super) fn table_names(&self) -> Vec<String> {
        self.tables.values().map(|t| t.name.clone()).collect()
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(&table.to_ascii_lowercase())
    }

    fn table(&self, name: &str) -> Result<Option<Table>, ReadError> {
        let Some(entry) = self.tables.get(&name.to_ascii_lowercase()) else {
            return Ok(None);
        };
        let mut table = Table {
            columns: columns(&self.conn, &entry.name).map_err(|e| error(&self.path, &e))?,
            name: entry.name.clone(),
            rowid: None,
        };
        if entry.has_rowid {
            let names = ["rowid", "_rowid_", "oid"];
            table.rowid = names.into_iter().find(|n| !table.has(n));
        }
        Ok(Some(table))
    }

    /// Whether a table exists and holds at least one row.
    pub(super) fn has_rows(&self, table: &str) -> Result<bool, ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(false);
        };
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {})", quote(&table.name));
        self.conn
            .query_row(&sql, [], |row| row.get::<_, bool>(0))
            .map_err(|e| error(&self.path, &e))
    }

    /// Rows of a small table whose second column is text (bytes that are not UTF-8 are replaced).
    /// Empty when the table does not exist or lacks a column.
    pub(super) fn pairs(
        &self,
        table: &str,
        columns: [&str; 2],
    ) -> Result<Vec<(Cell, String)>, ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(Vec::new());
        };
        if columns.iter().any(|c| !table.has(c)) {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {}, {} FROM {}",
            quote(columns[0]),
            quote(columns[1]),
            quote(&table.name)
        );
        let run = || -> rusqlite::Result<Vec<(Cell, String)>> {
            let mut statement = self.conn.prepare(&sql)?;
            let mut rows = statement.query([])?;
            let mut out = Vec::new();
            while let Some(row) = rows.next()? {
                let ValueRef::Text(text) = row.get_ref(1)? else {
                    continue;
                };
                let key = match row.get_ref(0)? {
                    ValueRef::Text(key) => Cell::Text(String::from_utf8_lossy(key).into_owned()),
                    other => Cell::Int(int(other).unwrap_or(i64::MIN)),
                };
                out.push((key, String::from_utf8_lossy(text).into_owned()));
            }
            Ok(out)
        };
        run().map_err(|e| error(&self.path, &e))
    }

    /// Pushes every row of a table through clones of `sink`; they come back in row order, and there
    /// are none when the table does not exist.
    pub(super) fn scan<S: Sink>(
        &self,
        table: &str,
        sink: &S,
        progress: &dyn Progress,
    ) -> Result<Vec<S>, ReadError> {
        let mut filled = Vec::new();
        self.stream(table, sink, progress, |part| {
            filled.push(std::mem::replace(part, sink.clone()));
        })?;
        Ok(filled)
    }

    /// Pushes every row of a table through clones of `sink`, one rowid range at a time, and shows
    /// each filled one to `take`, in row order. `take` leaves it without rows: it is filled again,
    /// so that what it has interned serves the next range, and its memory too.
    pub(super) fn stream<S: Sink>(
        &self,
        table: &str,
        sink: &S,
        progress: &dyn Progress,
        mut take: impl FnMut(&mut S) + Send,
    ) -> Result<(), ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(());
        };
        let chunks = self.chunks(&table).map_err(|e| error(&self.path, &e))?;
        progress.phase(&table.name, Some(self.rows(&chunks)));
        let scan = Scan {
            select: table.select(S::COLUMNS),
            rowid: table.rowid,
            progress,
        };
        match chunks.as_slice() {
            [only] => scan
                .collect(&self.conn, only, sink.clone())
                .map(|mut filled| take(&mut filled)),
            many => parallel(&scan, &self.opener, many, sink, take),
        }
        .map_err(|e| error(&self.path, &e))
    }

    /// At most this many rows a table holds; 0 for one that does not exist.
    pub(super) fn most_rows(&self, table: &str) -> Result<usize, ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(0);
        };
        let chunks = self.chunks(&table).map_err(|e| error(&self.path, &e))?;
        Ok(usize::try_from(self.rows(&chunks)).unwrap_or(0))
    }

    fn rows(&self, chunks: &[Chunk]) -> u64 {
        chunks
            .iter()
            .fold(0_u64, |sum, c| sum.saturating_add(c.rows()))
            .min(self.bytes / ROW_BYTES)
    }

    /// Rowid ranges that cover a table.
    fn chunks(&self, table: &Table) -> rusqlite::Result<Vec<Chunk>> {
        let Some(rowid) = table.rowid else {
            return Ok(vec![Chunk::ALL]);
        };
        let name = quote(&table.name);
        // Two sub-selects: SQLite answers each from the end of the tree, but both in one scan.
        let sql =
            format!("SELECT (SELECT min({rowid}) FROM {name}), (SELECT max({rowid}) FROM {name})");
        let (low, high): (Option<i64>, Option<i64>) = self
            .conn
            .query_row(&sql, [], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let (Some(low), Some(high)) = (low, high) else {
            return Ok(vec![Chunk { low: 0, high: -1 }]);
        };
        Ok(Chunk { low, high }.split(self.bytes / ROW_BYTES))
    }
}

/// A connection to a file that cannot change it. Tables are not looked at.
pub(super) fn connect(path: &Path) -> Result<Connection, ReadError> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    check_length(path, &real)?;
    Opener::of(&real).connect().map_err(|e| error(path, &e))
}

/// A key of a small table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Int(i64),
    Text(String),
}

/// A closed range of rowids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    low: i64,
    high: i64,
}

impl Chunk {
    const ALL: Chunk = Chunk {
        low: i64::MIN,
        high: i64::MAX,
    };

    /// Rows it holds if no rowid is missing.
    fn rows(&self) -> u64 {
        if self.high < self.low {
            return 0;
        }
        self.high.abs_diff(self.low).saturating_add(1)
    }

    /// Parts of about [`CHUNK_ROWS`] rows, if there are at most `most` rows.
    fn split(self, most: u64) -> Vec<Chunk> {
        let rows = self.rows().min(most);
        let count = rows.div_ceil(CHUNK_ROWS).clamp(1, MAX_CHUNKS);
        let step = i64::try_from(self.rows().div_ceil(count)).unwrap_or(i64::MAX);
        let mut out = Vec::new();
        let mut low = self.low;
        loop {
            let high = low.saturating_add(step.saturating_sub(1)).min(self.high);
            out.push(Chunk { low, high });
            if high >= self.high {
                return out;
            }
            low = high.saturating_add(1);
        }
    }
}

impl Table {
    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c.eq_ignore_ascii_case(column))
    }

    /// The arguments of the collecting function: what exists of the wanted columns.
    fn select(&self, wanted: &[&str]) -> Vec<String> {
        wanted
            .iter()
            .map(|spec| {
                let (names, default) = spec.split_once('=').unwrap_or((spec, "NULL"));
                let found: Vec<String> = names
                    .split('|')
                    .filter(|name| self.has(name))
                    .map(quote)
                    .collect();
                match found.as_slice() {
                    [] => default.to_owned(),
                    [one] => one.clone(),
                    many => format!("coalesce({})", many.join(", ")),
                }
            })
            .chain(std::iter::once(quote(&self.name)))
            .collect()
    }
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// How one table is read.
struct Scan<'p> {
    select: Vec<String>,
    rowid: Option<&'static str>,
    progress: &'p dyn Progress,
}

/// Reads rowid ranges on all threads, each with a connection of its own, and hands the filled sinks
/// on in order: whichever thread has filled one also takes what is next in line, unless another
/// thread is at it.
fn parallel<S: Sink>(
    scan: &Scan<'_>,
    opener: &Opener,
    chunks: &[Chunk],
    empty: &S,
    take: impl FnMut(&mut S) + Send,
) -> rusqlite::Result<()> {
    let queue = AtomicUsize::new(0);
    let line = Line {
        filled: Mutex::default(),
        spare: Mutex::default(),
        taker: Mutex::new((0, take)),
    };
    let failed: Mutex<Option<rusqlite::Error>> = Mutex::new(None);
    let work = || -> rusqlite::Result<()> {
        let conn = opener.connect()?;
        loop {
            let at = queue.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(at) else {
                return Ok(());
            };
            let sink = line.spare().unwrap_or_else(|| empty.clone());
            line.put(at, scan.collect(&conn, chunk, sink)?);
        }
    };
    let threads = rayon::current_num_threads().min(chunks.len());
    rayon::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|_| {
                if let Err(error) = work() {
                    // Nobody begins another range.
                    queue.store(chunks.len(), Ordering::Relaxed);
                    if let Ok(mut slot) = failed.lock() {
                        slot.get_or_insert(error);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Sinks that were filled and wait for those before them.
struct Line<S, F> {
    filled: Mutex<BTreeMap<usize, S>>,
    spare: Mutex<Vec<S>>,
    /// The number of the next one, and who takes it.
    taker: Mutex<(usize, F)>,
}

impl<S, F: FnMut(&mut S)> Line<S, F> {
    fn spare(&self) -> Option<S> {
        self.spare.lock().ok()?.pop()
    }

    fn has(&self, at: usize) -> bool {
        self.filled.lock().is_ok_and(|f| f.contains_key(&at))
    }

    fn put(&self, at: usize, sink: S) {
        if let Ok(mut filled) = self.filled.lock() {
            filled.insert(at, sink);
        }
        // Again if one came in while the taker was leaving.
        while let Ok(mut taker) = self.taker.try_lock() {
            let (next, take) = &mut *taker;
            while let Some(mut sink) = self.filled.lock().ok().and_then(|mut f| f.remove(next)) {
                take(&mut sink);
                *next += 1;
                if let Ok(mut spare) = self.spare.lock() {
                    spare.push(sink);
                }
            }
            let next = *next;
            drop(taker);
            if !self.has(next) {
                break;
            }
        }
    }
}

/// The aggregate function that hands each row to a sink, and counts them.
struct Collect<S> {
    empty: Arc<Mutex<Option<S>>>,
    filled: Arc<Mutex<Option<S>>>,
}

impl<S: Sink> Aggregate<AssertUnwindSafe<(Option<S>, i64)>, i64> for Collect<S> {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<AssertUnwindSafe<(Option<S>, i64)>> {
        let sink = self.empty.lock().ok().and_then(|mut slot| slot.take());
        Ok(AssertUnwindSafe((sink, 0)))
    }

    fn step(
        &self,
        row: &mut Context<'_>,
        state: &mut AssertUnwindSafe<(Option<S>, i64)>,
    ) -> rusqlite::Result<()> {
        if let Some(sink) = &mut state.0.0 {
            sink.row(&Cells(row));
            state.0.1 += 1;
        }
        Ok(())
    }

    fn finalize(
        &self,
        _: &mut Context<'_>,
        state: Option<AssertUnwindSafe<(Option<S>, i64)>>,
    ) -> rusqlite::Result<i64> {
        let Some(AssertUnwindSafe((Some(mut sink), rows))) = state else {
            return Ok(0);
        };
        sink.finish();
        if let Ok(mut slot) = self.filled.lock() {
            *slot = Some(sink);
        }
        Ok(rows)
    }
}

impl Scan<'_> {
    /// Fills a sink with one rowid range.
    fn collect<S: Sink>(&self, conn: &Connection, chunk: &Chunk, sink: S) -> rusqlite::Result<S> {
        let empty = Arc::new(Mutex::new(Some(sink)));
        let filled = Arc::new(Mutex::new(None));
        conn.create_aggregate_function(
            "collect_rows",
            i32::try_from(S::COLUMNS.len()).unwrap_or(-1),
            FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY,
            Collect {
                empty: Arc::clone(&empty),
                filled: Arc::clone(&filled),
            },
        )?;
        let columns = S::COLUMNS.len().min(self.select.len());
        let (arguments, table) = self.select.split_at(columns);
        let arguments = arguments.join(", ");
        let table = table.first().map(String::as_str).unwrap_or_default();
        let all = format!("SELECT collect_rows({arguments}) FROM {table}");
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let rows = match self.rowid {
            Some(rowid) => conn.query_row(
                // An index that covers the columns would be walked in its own order: `NOT INDEXED`.
                &format!("{all} NOT INDEXED WHERE {rowid} BETWEEN ?1 AND ?2"),
                params![chunk.low, chunk.high],
                count,
            )?,
            None => conn.query_row(&all, [], count)?,
        };
        self.progress.advance(u64::try_from(rows).unwrap_or(0));
        // Without a row the function has never begun.
        let taken = |slot: &Mutex<Option<S>>| slot.lock().ok().and_then(|mut slot| slot.take());
        taken(&filled)
            .or_else(|| taken(&empty))
            .ok_or(rusqlite::Error::QueryReturnedNoRows)
    }
}

impl Opener {
    /// Chooses how to open `real`, an absolute path without links.
    ///
    /// With nothing beside it the file is declared immutable, so that SQLite creates nothing. A
    /// write-ahead log must be read along: on Unix through the lock-free file layer, which keeps
    /// the log's index in memory instead of in a new `-shm` file.
    fn of(real: &Path) -> Opener {
        let beside = |suffix: &str| {
            let mut name = OsString::from(real.as_os_str());
            name.push(suffix);
            std::fs::metadata(PathBuf::from(name)).is_ok_and(|m| m.len() > 0)
        };
        let (wal, journal) = (beside("-wal"), beside("-journal"));
        let mode = if wal && cfg!(unix) {
            "mode=ro&vfs=unix-none"
        } else if wal || journal {
            "mode=ro"
        } else {
            "mode=ro&immutable=1"
        };
        Opener {
            uri: format!("{}?{mode}", file_uri(real)),
            wal,
        }
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.uri, flags)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        conn.execute_batch("PRAGMA query_only = 1; PRAGMA cell_size_check = 1;")?;
        if self.wal {
            conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
        }
        Ok(conn)
    }
}

/// A `file:` URI in which no byte of the path means anything but itself.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = {
        // `\\?\C:\x` is what canonicalising gives on Windows; SQLite wants `/C:/x`.
        let text = path.to_string_lossy().replace('\\', "/");
        let text = text.strip_prefix("//?/").unwrap_or(&text);
        format!("/{}", text.trim_start_matches('/')).into_bytes()
    };
    if bytes.starts_with(b"//") {
        // Otherwise the first component would be taken for a host name.
        uri.push_str("//");
    }
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/._-~:".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// The length of a database stands in its header (<https://www.sqlite.org/fileformat.html>, offsets
/// 16, 24, 28 and 92): a shorter file is a cut copy, even if the part that is there reads well.
fn check_length(path: &Path, real: &Path) -> Result<(), ReadError> {
    let head = super::check::head(path)?;
    let long = |at: usize| -> u64 {
        head.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, |b| u64::from(u32::from_be_bytes(b)))
    };
    let page = match head.get(16..18).and_then(|b| b.try_into().ok()) {
        Some(bytes) => match u64::from(u16::from_be_bytes(bytes)) {
            1 => 65_536,
            size => size,
        },
        None => 0,
    };
    let is = std::fs::metadata(real).map_or(0, |m| m.len());
    let header_valid = long(24) == long(92);
    let mut wal = OsString::from(real.as_os_str());
    wal.push("-wal");
    let expected = page.saturating_mul(long(28));
    if header_valid && is < expected && !Path::new(&wal).exists() {
        return Err(damaged(
            path,
            &format!("its header promises {expected} bytes, and {is} are there"),
        ));
    }
    Ok(())
}

/// The tables that can be read without running anything a file says: no views, no virtual tables.
fn tables(conn: &Connection) -> rusqlite::Result<BTreeMap<String, Entry>> {
    let mut statement = conn.prepare("PRAGMA table_list")?;
    let mut found = Vec::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // schema, name, type, number of columns, WITHOUT ROWID, STRICT
        let text = |column: usize| -> rusqlite::Result<String> {
            Ok(match row.get_ref(column)? {
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                _ => String::new(),
            })
        };
        let name = text(1)?;
        if text(0)? == "main" && text(2)? == "table" && !name.starts_with("sqlite_") {
            found.push((name, int(row.get_ref(4)?) == Some(0)));
        }
    }
    Ok(found
        .into_iter()
        .map(|(name, has_rowid)| (name.to_ascii_lowercase(), Entry { name, has_rowid }))
        .collect())
}

fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare(&format!("PRAGMA table_info({})", quote(table)))?;
    let mut rows = statement.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        if let ValueRef::Text(name) = row.get_ref(1)? {
            out.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(out)
}

/// What an SQLite failure means for the person who gave us the file.
pub(super) fn error(path: &Path, error: &rusqlite::Error) -> ReadError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            damaged(path, &format!("SQLite says: {error}"))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => ReadError {
            path: path.display().to_string(),
            problem: "expected a finished SQLite file, found one with an unfinished transaction \
                      beside it (`-wal` or `-journal`), which cannot be completed without writing"
                .into(),
            remedy: "wait until the program that writes it has ended, or export the profile \
                     again; this tool never changes its input"
                .into(),
        },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ReadError {
            path: path.display().to_string(),
            problem: "another program is writing to the file".into(),
            remedy: "wait until it has ended".into(),
        },
        _ => ReadError {
            path: path.display().to_string(),
            problem: format!("the SQLite file cannot be read: {error}"),
            remedy: "check that the file is complete and that you may read it".into(),
        },
    }
}

/// The one message for a file that is cut short or overwritten.
fn damaged(path: &Path, what: &str) -> ReadError {
    ReadError {
        path: path.display().to_string(),
        problem: format!("expected a complete SQLite file, found a damaged or cut one: {what}"),
        remedy: "copy or download it again, or export it again with `nsys export --type sqlite`; \
                 nothing is reported from a part of a profile"
            .into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_rows_cover_everything_once() {
        for (low, high) in [
            (1, 1),
            (1, 65_536),
            (1, 65_537),
            (5, 1_000_000),
            (-3, 3),
            (i64::MIN, i64::MAX),
            (i64::MAX - 1, i64::MAX),
        ] {
            let chunks = Chunk { low, high }.split(u64::MAX);
            assert!(chunks.len() as u64 <= MAX_CHUNKS + 1);
            assert_eq!(chunks.first().unwrap().low, low);
            assert_eq!(chunks.last().unwrap().high, high);
            for pair in chunks.windows(2) {
                assert_eq!(pair[0].high + 1, pair[1].low);
            }
        }
        assert_eq!(
            Chunk {
                low: 1,
                high: 65_536
            }
            .split(u64::MAX)
            .len(),
            1
        );
        assert_eq!(Chunk { low: 0, high: -1 }.split(u64::MAX).len(), 1);
    }

    #[test]
    fn odd_names_stay_themselves_in_a_uri() {
        assert_eq!(
            file_uri(Path::new("/a b/c?d#e%f.sqlite")),
            "file:/a%20b/c%3Fd%23e%25f.sqlite"
        );
        assert!(file_uri(Path::new("//net/x")).starts_with("file:////net"));
    }

    #[test]
    fn columns_are_taken_as_they_exist() {
        let table = Table {
            name: "t".into(),
            columns: vec!["Start".into(), "b".into(), "c".into()],
            rowid: Some("rowid"),
        };
        assert_eq!(
            table.select(&["start", "a|b|c", "z", "d=0"]),
            ["\"start\"", "coalesce(\"b\", \"c\")", "NULL", "0", "\"t\""]
        );
    }
}
