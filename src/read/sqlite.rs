//! Reads SQLite files fast, without changing them or creating files beside them.
//!
//! Schemas differ between versions of a tool, so [`Db::scan`] is given the columns that a [`Sink`] needs, and
//! determines which of them the file has. Ordinary tables are read from their [`pages`], in parts by all
//! threads, and the sinks are returned in rowid order. Other tables are read through SQLite.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row, params};

use super::reader::{Progress, ReadError};
use errors::contradiction;
pub(crate) use errors::error;
use errors::{damaged, unfinished};

mod errors;
mod pages;
use pages::{Broken, Layout, Leaf, Leaves, Pages, Wanted};

/// Minimum number of bytes per row. Bounds the number of rows of a file: rowids may have gaps, so their
/// span alone does not.
const ROW_BYTES: u64 = 64;
/// Leaf pages per part of a table; each has some tens of rows.
const CHUNK_LEAVES: usize = 256;
/// Rows per part of a table that is read through SQLite; few in tests, so that small tables have several parts.
const PART_ROWS: u64 = if cfg!(test) { 1000 } else { 65_536 };

/// Receives the rows of one table. Cloned for parts of the table that are read at the same time.
pub(super) trait Sink: Clone + Send + Sync + 'static {
    /// Receives one row.
    fn row(&mut self, cells: &Cells<'_>);
    /// Called after the last row of each part of the table.
    fn finish(&mut self) {}
}

/// The columns of one row that a [`Sink`] needs.
pub(super) enum Cells<'a> {
    Sql(&'a Row<'a>),
    Page(pages::Row<'a>),
}

impl<'a> Cells<'a> {
    /// The value in a column; NULL for a column that the file does not have.
    #[inline]
    pub(super) fn raw(&self, column: usize) -> ValueRef<'a> {
        match self {
            Cells::Page(row) => row.value(column),
            Cells::Sql(row) => row.get_ref(column).unwrap_or(ValueRef::Null),
        }
    }

    /// The integer in a column; `None` for any other value.
    #[inline]
    pub(super) fn int(&self, column: usize) -> Option<i64> {
        match self {
            Cells::Page(row) => row.int(column),
            Cells::Sql(_) => int(self.raw(column)),
        }
    }

    /// The bytes of the text or blob in a column.
    pub(super) fn bytes(&self, column: usize) -> Option<&'a [u8]> {
        match self.raw(column) {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// An integer, or a real with an integral value, as in files without column types.
pub(super) fn int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(i) => Some(i),
        ValueRef::Real(r) if r.is_finite() && r.abs() < 9.0e18 => Some(r as i64),
        _ => None,
    }
}

/// A text, in which bytes that are not UTF-8 are replaced.
fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

/// A table as declared in the file.
#[derive(Debug, Clone, Default)]
struct Table {
    name: String,
    columns: Vec<String>,
    /// A name of the rowid that is not shadowed by a column; `None` for `WITHOUT ROWID` tables.
    rowid: Option<&'static str>,
    /// Set for a table whose pages can be read directly.
    stored: Option<Stored>,
}

/// How the rows of a table are stored.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// The root page of its tree.
    root: u32,
    /// The column that is another name of the rowid.
    alias: Option<usize>,
}

/// A table whose columns have not been read yet: an export has eighty tables, and few are needed.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    has_rowid: bool,
}

/// An open SQLite file.
pub(super) struct Db {
    path: PathBuf,
    conn: Connection,
    /// Set for a file whose pages can be read directly.
    pages: Option<Pages>,
    tables: BTreeMap<String, Entry>,
    /// The size of the file.
    bytes: u64,
}

impl Db {
    /// Opens the file read-only and reads its schema.
    ///
    /// # Errors
    /// When the file is damaged, needs a recovery that would write to it, or cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Db, ReadError> {
        // SQLite looks for the side files beside the file that a link points to.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let head = super::recognize::head(path)?;
        check_length(path, &real, &head)?;
        let (conn, is_alone) = open(&real).map_err(|e| error(path, &e))?;
        let tables = tables(&conn).map_err(|e| error(path, &e))?;
        Ok(Db {
            path: path.to_path_buf(),
            conn,
            pages: is_alone.then(|| Pages::of(&real, &head)).flatten(),
            tables,
            bytes: std::fs::metadata(&real).map_or(0, |m| m.len()),
        })
    }

    /// Looks at how the pages of the file refer to each other.
    ///
    /// # Errors
    /// When they contradict each other, so that rows could be lost or read twice.
    pub(super) fn survey(&self) -> Result<(), ReadError> {
        let Some(pages) = &self.pages else {
            return Ok(());
        };
        let roots = roots(&self.conn).map_err(|e| error(&self.path, &e))?;
        pages.survey(&roots).map_err(|broken| self.broken(broken))
    }

    /// Has SQLite look for contradictions in the tree of a table that is not read from its pages.
    fn check(&self, table: &Table) -> Result<(), ReadError> {
        match contradiction(&self.conn, Some(&table.name)) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => Err(damaged(&self.path, &what)),
            Err(e) => Err(error(&self.path, &e)),
        }
    }

    /// Table names as spelled in the file, sorted.
    pub(super) fn table_names(&self) -> Vec<String> {
        self.tables.values().map(|t| t.name.clone()).collect()
    }

    /// Whether there is a table of this name.
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
                // For compatibility, `INTEGER PRIMARY KEY DESC` is not another name of the rowid.
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

    /// Whether a table holds rows, and which of these columns, in the notation of [`Db::stream`], it lacks.
    pub(super) fn lacks(
        &self,
        table: &str,
        columns: &[&'static str],
    ) -> Result<Option<Vec<&'static str>>, ReadError> {
        if !self.has_rows(table)? {
            return Ok(None);
        }
        let lacks = |found: &Table, spec: &str| !spec.split('|').any(|name| found.has(name));
        let table = self.table(table)?.unwrap_or_default();
        let missing = columns.iter().copied().filter(|spec| lacks(&table, spec));
        Ok(Some(missing.collect()))
    }

    /// Rows of a small table whose second column is text (bytes that are not UTF-8 are replaced). Numbers in the first
    /// column are returned as text. Empty if the table does not exist or lacks a column.
    pub(super) fn pairs(
        &self,
        table: &str,
        columns: [&str; 2],
    ) -> Result<Vec<(String, String)>, ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(Vec::new());
        };
        if columns.iter().any(|c| !table.has(c)) {
            return Ok(Vec::new());
        }
        self.check(&table)?;
        let sql = format!(
            "SELECT {}, {} FROM {}",
            quote(columns[0]),
            quote(columns[1]),
            quote(&table.name)
        );
        let run = || -> rusqlite::Result<Vec<(String, String)>> {
            let mut statement = self.conn.prepare(&sql)?;
            let mut rows = statement.query([])?;
            let mut out = Vec::new();
            while let Some(row) = rows.next()? {
                let key = row.get_ref(0)?;
                if let Some(value) = text(row.get_ref(1)?) {
                    let number = || int(key).map(|number| number.to_string());
                    out.push((text(key).or_else(number).unwrap_or_default(), value));
                }
            }
            Ok(out)
        };
        run().map_err(|e| error(&self.path, &e))
    }

    /// Passes every row of a table to clones of `sink` and returns them in row order; none if the table
    /// does not exist.
    pub(super) fn scan<S: Sink>(
        &self,
        table: &str,
        columns: &[&'static str],
        sink: &S,
        progress: &dyn Progress,
    ) -> Result<Vec<S>, ReadError> {
        let mut filled = Vec::new();
        self.stream(table, columns, sink, progress, |part| {
            filled.push(std::mem::replace(part, sink.clone()));
        })?;
        Ok(filled)
    }

    /// Passes every row of a table to clones of `sink`, part by part, and each filled one to `take`, in
    /// row order. `take` must remove the rows: a sink is filled again, so that later parts reuse its
    /// memory and the values it has interned.
    ///
    /// [`Cells`] numbers the needed `columns` in their order. `a|b` is the first of them that exists and is
    /// not NULL; `a=7` is 7 in files without this column (otherwise NULL).
    pub(super) fn stream<S: Sink>(
        &self,
        table: &str,
        columns: &[&'static str],
        sink: &S,
        progress: &dyn Progress,
        mut take: impl FnMut(&mut S) + Send,
    ) -> Result<(), ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(());
        };
        let failed = |e| error(&self.path, &e);
        let rows = self.rows(&table).map_err(failed)?;
        progress.phase(&table.name, Some(rows));
        if let Some((pages, stored)) = self.pages.as_ref().zip(table.stored) {
            let layout = table.layout(columns, stored.alias);
            return scan_pages(pages, stored.root, &layout, sink, progress, take)
                .map_err(|broken| self.broken(broken));
        }
        self.check(&table)?;
        let mut pass_on = |sink: &mut S, rows: u64| {
            sink.finish();
            take(sink);
            progress.advance(rows);
        };
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.conn.prepare(&table.select(columns))?;
            let mut rows = statement.query([])?;
            let mut sink = sink.clone();
            let mut in_part = 0;
            while let Some(row) = rows.next()? {
                sink.row(&Cells::Sql(row));
                in_part += 1;
                if in_part == PART_ROWS {
                    pass_on(&mut sink, in_part);
                    in_part = 0;
                }
            }
            pass_on(&mut sink, in_part);
            Ok(())
        };
        read().map_err(failed)
    }

    fn broken(&self, broken: Broken) -> ReadError {
        match broken {
            Broken::Damaged(what) => damaged(&self.path, &what),
            Broken::Io(error) => errors::unreadable(&self.path, &error),
        }
    }

    /// An upper bound of the number of rows of a table; 0 if it does not exist.
    pub(super) fn most_rows(&self, table: &str) -> Result<usize, ReadError> {
        let Some(table) = self.table(table)? else {
            return Ok(0);
        };
        let rows = self.rows(&table).map_err(|e| error(&self.path, &e))?;
        Ok(usize::try_from(rows).unwrap_or(0))
    }

    /// An upper bound of the number of rows of a table.
    fn rows(&self, table: &Table) -> rusqlite::Result<u64> {
        let most = self.bytes / ROW_BYTES;
        let Some(rowid) = table.rowid else {
            return Ok(most);
        };
        let name = quote(&table.name);
        // Two sub-selects: SQLite computes each from the end of the tree, but both together by a scan.
        let sql =
            format!("SELECT (SELECT min({rowid}) FROM {name}), (SELECT max({rowid}) FROM {name})");
        let (low, high): (Option<i64>, Option<i64>) = self
            .conn
            .query_row(&sql, [], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let span = low.zip(high);
        let span = span.map(|(low, high)| high.abs_diff(low).saturating_add(1));
        Ok(span.unwrap_or(0).min(most))
    }
}

/// A read-only connection to a file whose tables do not contradict themselves.
pub(crate) fn connect(path: &Path) -> Result<Connection, ReadError> {
    let db = Db::open(path)?;
    db.survey()?;
    // A virtual table would be checked by its own code.
    let sql = "SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%'";
    let failed = |e| error(path, &e);
    let virtual_tables: i64 = db
        .conn
        .query_row(sql, [], |row| row.get(0))
        .map_err(failed)?;
    if virtual_tables == 0 {
        if let Some(what) = contradiction(&db.conn, None).map_err(failed)? {
            return Err(damaged(path, &what));
        }
        return Ok(db.conn);
    }
    for name in db.table_names() {
        if let Some(table) = db.table(&name)? {
            db.check(&table)?;
        }
    }
    Ok(db.conn)
}

impl Table {
    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c.eq_ignore_ascii_case(column))
    }

    /// The statement that returns the needed columns, in row order: an index that covers them would be walked in
    /// the order of the index, hence `NOT INDEXED`.
    fn select(&self, wanted: &[&'static str]) -> String {
        let column = |spec: &&'static str| {
            let (names, default) = alternatives(spec);
            let found: Vec<String> = names.filter(|name| self.has(name)).map(quote).collect();
            match found.as_slice() {
                [] => default.unwrap_or("NULL").to_owned(),
                [one] => one.clone(),
                many => format!("coalesce({})", many.join(", ")),
            }
        };
        let columns: Vec<String> = wanted.iter().map(column).collect();
        format!(
            "SELECT {} FROM {} NOT INDEXED",
            columns.join(", "),
            quote(&self.name)
        )
    }

    /// The layout of the needed columns, for rows that are read from their pages.
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
            columns: self.columns.len(),
        }
    }
}

/// The names in a needed column of [`Db::stream`], and its default.
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

/// Reads an ordinary table from its pages.
fn scan_pages<S: Sink>(
    pages: &Pages,
    root: u32,
    layout: &Layout,
    empty: &S,
    progress: &dyn Progress,
    take: impl FnMut(&mut S) + Send,
) -> Result<(), Broken> {
    let leaves = pages.leaves(root)?;
    let chunks: Vec<&[Leaf]> = leaves.chunks(CHUNK_LEAVES).collect();
    let open = || {
        let mut reader = Leaves::open(pages, layout)?;
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

/// Fills sinks with the parts of a table on all threads and passes them to `take` in order. `open` is
/// called once per thread; the function that it returns fills a sink with the part of the given number.
fn parallel<S: Sink, E: Send, W: FnMut(usize, S) -> Result<S, E>>(
    parts: usize,
    open: impl Fn() -> Result<W, E> + Sync,
    empty: &S,
    take: impl FnMut(&mut S) + Send,
) -> Result<(), E> {
    let queue = AtomicUsize::new(0);
    let in_order = InOrder {
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
            let sink = in_order.spare().unwrap_or_else(|| empty.clone());
            in_order.put(at, fill(at, sink)?);
        }
    };
    let attempt = || {
        if let Err(error) = work() {
            // Stops all threads from starting another part.
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

/// Passes filled sinks on in order. The thread that has filled one also passes on those that follow,
/// unless another thread is doing so.
struct InOrder<S, F> {
    filled: Mutex<BTreeMap<usize, S>>,
    spare: Mutex<Vec<S>>,
    /// The number of the next sink, and the function that receives it.
    taker: Mutex<(usize, F)>,
}

impl<S, F: FnMut(&mut S)> InOrder<S, F> {
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
        // Repeated if the next sink was filled while the lock was held.
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

/// Opens `real`, an absolute path without links. Returns the connection, and whether there is neither a log nor a
/// journal.
///
/// Without side files, the file is declared immutable, so that SQLite creates nothing. A
/// write-ahead log must be read too: on Unix through the lock-free file layer, which keeps the
/// log's index in memory instead of in a new `-shm` file.
fn open(real: &Path) -> rusqlite::Result<(Connection, bool)> {
    let holds = |suffix| std::fs::metadata(beside(real, suffix)).is_ok_and(|m| m.len() > 0);
    let (wal, journal) = (holds("-wal"), holds("-journal"));
    let mode = if wal && cfg!(unix) {
        "mode=ro&vfs=unix-none"
    } else if wal || journal {
        "mode=ro"
    } else {
        "mode=ro&immutable=1"
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("{}?{mode}", file_uri(real)), flags)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.execute_batch("PRAGMA query_only = 1; PRAGMA cell_size_check = 1;")?;
    if wal {
        conn.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    }
    Ok((conn, !wal && !journal))
}

/// A file that SQLite creates beside a database: its log, or the journal of a transaction.
fn beside(real: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(real.as_os_str());
    name.push(suffix);
    name.into()
}

/// The `file:` URI of a path, with special characters escaped.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = {
        // Canonical paths on Windows have the form `\\?\C:\x`; SQLite expects `/C:/x`.
        let text = path.to_string_lossy().replace('\\', "/");
        let text = text.strip_prefix("//?/").unwrap_or(&text);
        format!("/{}", text.trim_start_matches('/')).into_bytes()
    };
    if bytes.starts_with(b"//") {
        // Otherwise, the first component would be interpreted as a host name.
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

/// Checks the length of a database against its header (<https://www.sqlite.org/fileformat.html>,
/// offsets 16, 24, 28 and 92). A shorter file is a truncated copy, even if its content can be read.
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
            // The header is written before the pages that it counts.
            return Err(unfinished(path));
        }
        return Err(damaged(
            path,
            &format!("its header states {expected} bytes, but it has {is}"),
        ));
    }
    Ok(())
}

/// The ordinary tables. Views and virtual tables are omitted, because reading them would execute SQL
/// from the file.
fn tables(conn: &Connection) -> rusqlite::Result<BTreeMap<String, Entry>> {
    let mut statement = conn.prepare("PRAGMA table_list")?;
    let mut found = BTreeMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // schema, name, type, number of columns, WITHOUT ROWID, STRICT
        let is = |column: usize, word: &str| {
            let value = row.get_ref(column);
            value.map(|value| value == ValueRef::Text(word.as_bytes()))
        };
        let name = text(row.get_ref(1)?).unwrap_or_default();
        if is(0, "main")? && is(2, "table")? && !name.starts_with("sqlite_") {
            let has_rowid = int(row.get_ref(4)?) == Some(0);
            found.insert(name.to_ascii_lowercase(), Entry { name, has_rowid });
        }
    }
    Ok(found)
}

/// The columns of a table.
struct Columns {
    names: Vec<String>,
    /// Whether records contain exactly these columns: none is computed or has a default.
    plain: bool,
    /// The column that is another name of the rowid:
    /// <https://www.sqlite.org/lang_createtable.html#rowid>.
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
        let (default, key, hidden) = (row.get_ref(4)?, int(row.get_ref(5)?), int(row.get_ref(6)?));
        found.plain &= default == ValueRef::Null && hidden == Some(0);
        if key != Some(0) {
            let kind = text(row.get_ref(2)?).unwrap_or_default();
            keys.push((found.names.len(), kind.eq_ignore_ascii_case("INTEGER")));
        }
        if hidden == Some(0) {
            found.names.extend(text(row.get_ref(1)?));
        }
    }
    if let [(column, true)] = keys.as_slice() {
        found.alias = Some(*column);
    }
    Ok(found)
}

/// The first page of a table, and its declaration.
fn root(conn: &Connection, table: &str) -> rusqlite::Result<(Option<u32>, String)> {
    let sql = "SELECT rootpage, sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query(params![table])?;
    let Some(row) = rows.next()? else {
        return Ok((None, String::new()));
    };
    let page = int(row.get_ref(0)?).and_then(|page| u32::try_from(page).ok());
    let declared = text(row.get_ref(1)?).unwrap_or_default();
    Ok((page.filter(|page| *page > 0), declared))
}

/// The first pages of all tables and indexes.
fn roots(conn: &Connection) -> rusqlite::Result<Vec<u32>> {
    let sql = "SELECT rootpage FROM sqlite_schema WHERE rootpage > 0";
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut roots = Vec::new();
    while let Some(row) = rows.next()? {
        roots.extend(int(row.get_ref(0)?).and_then(|page| u32::try_from(page).ok()));
    }
    Ok(roots)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests;
