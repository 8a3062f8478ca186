//! SQLite files, opened so that nothing is changed and nothing is created, and read fast.
//!
//! Schemas differ from one version of a tool to the next, so a [`Sink`] names the columns it would
//! like, and [`Db::scan`] asks the file which of them it has. Ordinary tables are read from their
//! [`pages`]. Of any other, rows are pushed by SQLite into the sink as an aggregate function (no call
//! per column and row from our side). Either way a large table is cut into parts that all threads take
//! from one queue, and the sinks come back in rowid order.

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

use super::reader::{Progress, ReadError};

mod chunk;
mod pages;
use chunk::Chunk;
use pages::{Broken, Layout, Leaves, Pages, Wanted};

/// Fewer bytes than this no row of interest takes; rowids may lie far apart (rows deleted, or cut
/// out of a longer capture), so their span alone says little about the number of rows.
const ROW_BYTES: u64 = 64;
/// Leaf pages that are read in one go, with some tens of rows each.
const CHUNK_LEAVES: usize = 256;

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
pub(super) enum Cells<'a, 'c> {
    Sql(&'a Context<'c>),
    Page(pages::Row<'a>),
}

impl<'a> Cells<'a, '_> {
    #[inline]
    pub(super) fn raw(&self, column: usize) -> ValueRef<'a> {
        match self {
            Cells::Page(row) => row.value(column),
            Cells::Sql(row) if column < row.len() => row.get_raw(column),
            Cells::Sql(_) => ValueRef::Null,
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
    /// For a table whose pages can be read as they are.
    stored: Option<Stored>,
}

/// How the rows of a table are stored.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// The page its tree begins with.
    root: u32,
    /// The column that is another name of the rowid.
    alias: Option<usize>,
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
    /// Nothing stands beside the file.
    alone: bool,
}

/// An open SQLite file.
pub(super) struct Db {
    path: PathBuf,
    conn: Connection,
    opener: Opener,
    /// Of a file whose pages are all there is to it.
    pages: Option<Pages>,
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
        let head = super::recognize::head(path)?;
        check_length(path, &real, &head)?;
        let opener = Opener::of(&real);
        let conn = opener.connect().map_err(|e| error(path, &e))?;
        let tables = tables(&conn).map_err(|e| error(path, &e))?;
        Ok(Db {
            path: path.to_path_buf(),
            conn,
            pages: Some(&opener)
                .filter(|o| o.alone)
                .and_then(|_| Pages::of(&real, &head)),
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
        let failed = |e| error(&self.path, &e);
        let columns = columns(&self.conn, &entry.name).map_err(failed)?;
        let mut table = Table {
            stored: None,
            columns: columns.names,
            name: entry.name.clone(),
            rowid: None,
        };
        if entry.has_rowid {
            let names = ["rowid", "_rowid_", "oid"];
            table.rowid = names.into_iter().find(|n| !table.has(n));
            if columns.plain {
                let (root, declared) = root(&self.conn, &entry.name).map_err(failed)?;
                // `INTEGER PRIMARY KEY DESC` is no other name of the rowid, for compatibility.
                let odd = columns.alias.is_some() && declared.to_ascii_uppercase().contains("DESC");
                let alias = columns.alias;
                table.stored = root.filter(|_| !odd).map(|root| Stored { root, alias });
            }
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
        let failed = |e| error(&self.path, &e);
        let chunks = self.chunks(&table).map_err(failed)?;
        progress.phase(&table.name, Some(self.rows(&chunks)));
        if let Some((pages, stored)) = self.pages.as_ref().zip(table.stored) {
            return scan_pages(pages, stored, &table, sink, progress, take)
                .map_err(|broken| self.broken(broken));
        }
        let chunks = match self.finds_all(&table, &chunks).map_err(failed)? {
            true => chunks,
            false => vec![Chunk::ALL],
        };
        let scan = Scan {
            select: table.select(S::COLUMNS),
            rowid: table.rowid,
            progress,
        };
        if let [only] = chunks.as_slice() {
            let mut filled = scan
                .collect(&self.conn, only, sink.clone())
                .map_err(failed)?;
            take(&mut filled);
            return Ok(());
        }
        let opener = &self.opener;
        let open = || {
            let conn = opener.connect()?;
            let (scan, chunks) = (&scan, &chunks);
            Ok(move |at: usize, sink: S| match chunks.get(at) {
                Some(chunk) => scan.collect(&conn, chunk, sink),
                None => Ok(sink),
            })
        };
        parallel(chunks.len(), open, sink, take).map_err(failed)
    }

    fn broken(&self, broken: Broken) -> ReadError {
        match broken {
            Broken::Damaged(what) => damaged(&self.path, &what),
            Broken::Io(error) => ReadError {
                path: self.path.display().to_string(),
                problem: format!("the SQLite file cannot be read: {error}"),
                remedy: "check that the file is complete and that you may read it".into(),
            },
        }
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

    /// Whether every row is found in one of these ranges. In a damaged table rows may not be in order of
    /// their ids; then SQLite finds only some of them, and says nothing.
    fn finds_all(&self, table: &Table, chunks: &[Chunk]) -> rusqlite::Result<bool> {
        let Some(rowid) = table.rowid else {
            return Ok(true);
        };
        let count = format!("SELECT count(*) FROM {} NOT INDEXED", quote(&table.name));
        let rows: i64 = self.conn.query_row(&count, [], |row| row.get(0))?;
        let mut part = self
            .conn
            .prepare(&format!("{count} WHERE {rowid} BETWEEN ?1 AND ?2"))?;
        let mut found = 0_i64;
        for chunk in chunks {
            found += part.query_row([chunk.low, chunk.high], |row| row.get::<_, i64>(0))?;
        }
        Ok(rows == found)
    }
}

/// A connection to a file that cannot change it. Tables are not looked at.
pub(super) fn connect(path: &Path) -> Result<Connection, ReadError> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    check_length(path, &real, &super::recognize::head(path)?)?;
    Opener::of(&real).connect().map_err(|e| error(path, &e))
}

/// A key of a small table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Int(i64),
    Text(String),
}

impl Table {
    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c.eq_ignore_ascii_case(column))
    }

    /// The arguments of the collecting function: what exists of the wanted columns.
    fn select(&self, wanted: &[&'static str]) -> Vec<String> {
        wanted
            .iter()
            .map(|spec| {
                let (names, default) = alternatives(spec);
                let default = default.unwrap_or("NULL");
                let found: Vec<String> = names.filter(|name| self.has(name)).map(quote).collect();
                match found.as_slice() {
                    [] => default.to_owned(),
                    [one] => one.clone(),
                    many => format!("coalesce({})", many.join(", ")),
                }
            })
            .chain(std::iter::once(quote(&self.name)))
            .collect()
    }

    /// The same, for rows that are read from their pages.
    fn layout(&self, wanted: &[&'static str], alias: Option<usize>) -> Layout {
        let column = |name: &str| {
            self.columns
                .iter()
                .position(|c| c.eq_ignore_ascii_case(name))
        };
        let wanted = wanted.iter().map(|spec| {
            let (names, default) = alternatives(spec);
            let mut columns = names.filter_map(column);
            Wanted {
                column: columns.next(),
                others: columns.collect(),
                default: default.and_then(|d| d.parse().ok()),
            }
        });
        Layout {
            wanted: wanted.collect(),
            rowid: alias,
        }
    }
}

/// The names in an entry of [`Sink::COLUMNS`], and its default.
fn alternatives(spec: &'static str) -> (impl Iterator<Item = &'static str>, Option<&'static str>) {
    let (names, default) = match spec.split_once('=') {
        Some((names, default)) => (names, Some(default)),
        None => (spec, None),
    };
    (names.split('|'), default)
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

/// Reads an ordinary table from its pages.
fn scan_pages<S: Sink>(
    pages: &Pages,
    stored: Stored,
    table: &Table,
    empty: &S,
    progress: &dyn Progress,
    take: impl FnMut(&mut S) + Send,
) -> Result<(), Broken> {
    let layout = table.layout(S::COLUMNS, stored.alias);
    let leaves = pages.leaves(stored.root)?;
    let chunks: Vec<&[u32]> = leaves.chunks(CHUNK_LEAVES).collect();
    let open = || {
        let mut reader = Leaves::open(pages, &layout)?;
        let chunks = &chunks;
        Ok(move |at: usize, mut sink: S| {
            let leaves = chunks.get(at).copied().unwrap_or_default();
            let rows = reader.rows(leaves, |row| sink.row(&Cells::Page(row)))?;
            sink.finish();
            progress.advance(rows);
            Ok(sink)
        })
    };
    parallel(chunks.len(), open, empty, take)
}

/// Fills sinks with the parts of a table on all threads, and hands them on in order: whichever thread
/// has filled one also takes what is next in line, unless another thread is at it. `open` begins work
/// on a thread; what it returns fills a sink with the part of a number.
fn parallel<S: Sink, E: Send, W: FnMut(usize, S) -> Result<S, E>>(
    parts: usize,
    open: impl Fn() -> Result<W, E> + Sync,
    empty: &S,
    take: impl FnMut(&mut S) + Send,
) -> Result<(), E> {
    let queue = AtomicUsize::new(0);
    let line = Line {
        filled: Mutex::default(),
        spare: Mutex::default(),
        taker: Mutex::new((0, take)),
    };
    let failed: Mutex<Option<E>> = Mutex::new(None);
    let work = || -> Result<(), E> {
        let mut fill = open()?;
        loop {
            let at = queue.fetch_add(1, Ordering::Relaxed);
            if at >= parts {
                return Ok(());
            }
            let sink = line.spare().unwrap_or_else(|| empty.clone());
            line.put(at, fill(at, sink)?);
        }
    };
    let attempt = || {
        if let Err(error) = work() {
            // Nobody begins another part.
            queue.store(parts, Ordering::Relaxed);
            if let Ok(mut slot) = failed.lock() {
                slot.get_or_insert(error);
            }
        }
    };
    match rayon::current_num_threads().min(parts) {
        0 | 1 => attempt(),
        threads => rayon::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|_| attempt());
            }
        }),
    }
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
            sink.row(&Cells::Sql(row));
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
        let holds = |suffix| std::fs::metadata(beside(real, suffix)).is_ok_and(|m| m.len() > 0);
        let (wal, journal) = (holds("-wal"), holds("-journal"));
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
            alone: !wal && !journal,
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

/// A file that SQLite keeps beside a database: its log, or the journal of a transaction.
fn beside(real: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(real.as_os_str());
    name.push(suffix);
    name.into()
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
fn check_length(path: &Path, real: &Path, head: &[u8]) -> Result<(), ReadError> {
    let long = |at: usize| -> u64 {
        head.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, |b| u64::from(u32::from_be_bytes(b)))
    };
    let page = pages::page_bytes(head).map_or(0, u64::from);
    let is = std::fs::metadata(real).map_or(0, |m| m.len());
    let header_valid = long(24) == long(92);
    let expected = page.saturating_mul(long(28));
    if header_valid && is < expected && !beside(real, "-wal").exists() {
        if beside(real, "-journal").exists() {
            // The header is written before the pages it promises.
            return Err(unfinished(path));
        }
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

/// The columns of a table.
struct Columns {
    names: Vec<String>,
    /// Records hold just these: no column is computed, or has a value where a record ends before it.
    plain: bool,
    /// The column that is another name of the rowid: <https://www.sqlite.org/lang_createtable.html#rowid>.
    alias: Option<usize>,
}

fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Columns> {
    let mut statement = conn.prepare(&format!("PRAGMA table_xinfo({})", quote(table)))?;
    let mut rows = statement.query([])?;
    let mut found = Columns {
        names: Vec::new(),
        plain: true,
        alias: None,
    };
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |at: usize| -> rusqlite::Result<Option<String>> {
            Ok(match row.get_ref(at)? {
                ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            })
        };
        let (default, key, hidden) = (row.get_ref(4)?, int(row.get_ref(5)?), int(row.get_ref(6)?));
        found.plain &= default == ValueRef::Null && hidden == Some(0);
        if key != Some(0) {
            let kind = text(2)?.unwrap_or_default();
            keys.push((found.names.len(), kind.eq_ignore_ascii_case("INTEGER")));
        }
        if hidden == Some(0) {
            found.names.extend(text(1)?);
        }
    }
    if let [(column, true)] = keys.as_slice() {
        found.alias = Some(*column);
    }
    Ok(found)
}

/// The first page of a table, and how it was declared.
fn root(conn: &Connection, table: &str) -> rusqlite::Result<(Option<u32>, String)> {
    let sql = "SELECT rootpage, sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query(params![table])?;
    let Some(row) = rows.next()? else {
        return Ok((None, String::new()));
    };
    let page = int(row.get_ref(0)?).and_then(|page| u32::try_from(page).ok());
    let declared = match row.get_ref(1)? {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    Ok((page.filter(|page| *page > 0), declared))
}

/// What an SQLite failure means for the person who gave us the file.
pub(super) fn error(path: &Path, error: &rusqlite::Error) -> ReadError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            damaged(path, &format!("SQLite says: {error}"))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => unfinished(path),
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

/// A transaction was begun and not ended.
fn unfinished(path: &Path) -> ReadError {
    ReadError {
        path: path.display().to_string(),
        problem: "expected a finished SQLite file, found one with an unfinished transaction \
                  beside it (`-wal` or `-journal`), which cannot be completed without writing"
            .into(),
        remedy: "wait until the program that writes it has ended, or export the profile \
                 again; this tool never changes its input"
            .into(),
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
mod tests;
