//! Copies a database of Nsight Systems or nvprof table by table.
//!
//! [`TABLES`] lists the content that is copied of each table; of other tables, only numbers are copied.
//! Indexes, views, triggers and constraints are not copied: they are arbitrary SQL text, and no reader
//! needs them.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::outcome::{ScrubError, ScrubSummary, cannot_write};
use super::redactor::{REMOVED, Redactor};
use super::trace;
use crate::read::{self, Progress};

/// The content of a table that is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Everything, with texts cleaned.
    Cleaned,
    /// Numbers and the texts of these columns, cleaned.
    Columns(&'static [&'static str]),
    /// Rows of names and values: the names, and harmless values.
    Settings,
    /// The strings whose ids occur in tables with texts.
    Strings { id: &'static str },
    /// No rows.
    Emptied,
    /// Numbers only.
    Numbers,
}

/// Content by the beginning of the table name, ignoring case. The first match applies.
const TABLES: &[(&str, Content)] = &[
    ("StringIds", Content::Strings { id: "id" }),
    ("StringTable", Content::Strings { id: "_id_" }),
    ("META_DATA_", Content::Settings),
    ("EXPORT_META_DATA", Content::Settings),
    ("TARGET_INFO_SYSTEM_ENV", Content::Emptied),
    (
        "TARGET_INFO_GPU",
        Content::Columns(&["name", "chipName", "busLocation", "metricName"]),
    ),
    ("ENUM_", Content::Cleaned),
    ("NVTX_", Content::Cleaned),
    // Contains names of threads and processes, and of source files and object code.
    ("CUPTI_ACTIVITY_KIND_NAME", Content::Numbers),
    ("CUPTI_ACTIVITY_KIND_MODULE", Content::Numbers),
    ("CUPTI_ACTIVITY_KIND_SOURCE", Content::Numbers),
    ("CUPTI_ACTIVITY_KIND_", Content::Cleaned),
    ("PROFILER_OVERHEAD", Content::Cleaned),
    ("CUDA_", Content::Cleaned),
    ("CUDNN_", Content::Cleaned),
    ("CUBLAS_", Content::Cleaned),
    ("NCCL_", Content::Cleaned),
    // Names of functions. Arguments and files of the calls are in other tables or columns.
    ("OSRT_API", Content::Cleaned),
    ("OSRT_CALLCHAINS", Content::Cleaned),
    ("OSRT_FILE_ACCESS_EVENTS", Content::Cleaned),
    ("SAMPLING_CALLCHAINS", Content::Cleaned),
    ("PYTHON_SAMPLING_", Content::Cleaned),
];

/// Columns that are emptied: contents of files and buffers, identities.
const EMPTIED: &[&str] = &[
    "binaryData",
    "content",
    "context",
    "cubin",
    "uuid",
    "utcTime",
    "localTime",
];

/// Settings whose values come from a fixed list of words.
const HARMLESS: &[&str] = &[
    "EXPORT_PRODUCT_NAME",
    "EXPORT_PRODUCT_VERSION",
    "EXPORT_PRODUCT_DATE",
    "EXPORT_SCHEMA_VERSION",
    "EXPORT_PLATFORM",
    "EXPORT_ARCH",
    "CAPTURE_EVENT_TYPE",
    "START_TRIGGER",
    "STOP_TRIGGER",
    "DEVICE_TYPE",
    "HOW_TO_ATTACH",
    "MODE",
    "COLLECTION_MODE",
];

/// Maximum number of tables that are copied, and of unknown ones that are looked at; an export has eighty.
/// SQLite takes longer for each, the more there are.
const MOST_TABLES: usize = 1_000;

/// Maximum length in bytes of a value in [`HARMLESS`] that is copied.
const LONGEST_SETTING: usize = 64;

fn content(table: &str) -> Content {
    let begins = |prefix: &str| {
        table
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    TABLES
        .iter()
        .find(|(prefix, _)| begins(prefix))
        .map_or(Content::Numbers, |(_, content)| *content)
}

/// Copies the database `from` to `to`.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    progress: &dyn Progress,
) -> Result<(ScrubSummary, Redactor), ScrubError> {
    let source = read::database(from)?;
    let unreadable = |e: &rusqlite::Error| ScrubError::Read(read::database_error(from, e));
    let (mut tables, mut tables_left_out) = tables(&source).map_err(|e| unreadable(&e))?;
    let mut redactor = Redactor::default();
    for table in &tables {
        learn(&source, table, &mut redactor).map_err(|e| unreadable(&e))?;
    }
    redactor.build_index();
    tables_left_out += tables.len().saturating_sub(MOST_TABLES) as u64;
    tables.truncate(MOST_TABLES);
    let wanted = wanted(&source, &tables).map_err(|e| unreadable(&e))?;

    let target = create(to, &source).map_err(|e| cannot_write(to, &e))?;
    let mut job = Job {
        redactor: &redactor,
        wanted: &wanted,
        summary: ScrubSummary {
            tables_left_out,
            ..ScrubSummary::default()
        },
    };
    for table in &tables {
        progress.phase(&table.name, None);
        job.table(&source, &target, table, progress)
            .map_err(|fault| match fault {
                Fault::Reading(e) => unreadable(&e),
                Fault::Writing(e) => cannot_write(to, &e),
            })?;
    }
    target
        .execute_batch("COMMIT")
        .map_err(|e| cannot_write(to, &e))?;
    let summary = job.summary;
    target.close().map_err(|(_, e)| cannot_write(to, &e))?;
    Ok((summary, redactor))
}

/// The database that failed.
enum Fault {
    Reading(rusqlite::Error),
    Writing(rusqlite::Error),
}

struct Table {
    name: String,
    /// Names and declared types.
    columns: Vec<(String, String)>,
    content: Content,
}

impl Table {
    fn column(&self, name: &str) -> Option<usize> {
        self.columns
            .iter()
            .position(|(column, _)| column.eq_ignore_ascii_case(name))
    }

    /// A query for all rows in row order: without it, SQLite could walk an index that covers the
    /// columns, in index order.
    fn select(&self) -> String {
        format!(
            "SELECT {} FROM {} NOT INDEXED",
            self.column_list(),
            quote(&self.name)
        )
    }

    fn column_list(&self) -> String {
        let quoted: Vec<String> = self.columns.iter().map(|(name, _)| quote(name)).collect();
        quoted.join(", ")
    }
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The ordinary tables, those that are known first, and the number of others beyond [`MOST_TABLES`]. Reading
/// views and virtual tables would execute SQL from the file.
fn tables(source: &Connection) -> rusqlite::Result<(Vec<Table>, u64)> {
    let mut statement = source.prepare("PRAGMA table_list")?;
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        let name = lossy(row.get_ref(1)?);
        let ordinary = lossy(row.get_ref(0)?) == "main" && lossy(row.get_ref(2)?) == "table";
        if ordinary && !name.starts_with("sqlite_") {
            names.push(name);
        }
    }
    let is_unknown = |name: &str| content(name) == Content::Numbers;
    names.sort();
    names.sort_by_key(|name| is_unknown(name));
    let known = names.partition_point(|name| !is_unknown(name));
    let most = usize::max(known, MOST_TABLES);
    let left_out = names.len().saturating_sub(most) as u64;
    names.truncate(most);
    let mut found = Vec::new();
    for name in names {
        let mut statement = source.prepare(&format!("PRAGMA table_info({})", quote(&name)))?;
        let mut rows = statement.query([])?;
        let mut columns = Vec::new();
        while let Some(row) = rows.next()? {
            columns.push((lossy(row.get_ref(1)?), lossy(row.get_ref(2)?)));
        }
        if !columns.is_empty() {
            let content = content(&name);
            found.push(Table {
                name,
                columns,
                content,
            });
        }
    }
    Ok((found, left_out))
}

fn lossy(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Null => String::new(),
    }
}

/// Learns names and secrets from settings, environments and strings.
fn learn(source: &Connection, table: &Table, redactor: &mut Redactor) -> rusqlite::Result<()> {
    let named = matches!(table.content, Content::Settings | Content::Emptied);
    let strings = matches!(table.content, Content::Strings { .. });
    let is_text = |(name, kind): &&(String, String)| {
        !kind.to_ascii_uppercase().contains("INT") && !name.is_empty()
    };
    if !(named
        || strings
        || table.columns.iter().any(|c| is_text(&c)) && table.content == Content::Numbers)
    {
        return Ok(());
    }
    let (name, value) = (table.column("name"), table.column("value"));
    let mut statement = source.prepare(&table.select())?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for (at, (column, _)) in table.columns.iter().enumerate() {
            let (ValueRef::Text(text) | ValueRef::Blob(text)) = row.get_ref(at)? else {
                continue;
            };
            let text = String::from_utf8_lossy(text);
            match name {
                Some(name) if value == Some(at) => {
                    redactor.learn(&lossy(row.get_ref(name)?), &text);
                }
                _ => redactor.learn(column, &text),
            }
        }
    }
    Ok(())
}

/// Ids of the strings that occur in tables with texts: names of kernels, calls and ranges.
fn wanted(source: &Connection, tables: &[Table]) -> rusqlite::Result<BTreeSet<i64>> {
    let mut wanted = BTreeSet::new();
    for table in tables.iter().filter(|t| t.content == Content::Cleaned) {
        for (column, _) in table.columns.iter().filter(|(name, _)| refers(name)) {
            let distinct = format!(
                "SELECT DISTINCT {} FROM {}",
                quote(column),
                quote(&table.name)
            );
            let mut statement = source.prepare(&distinct)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if let ValueRef::Integer(id) = row.get_ref(0)? {
                    wanted.insert(id);
                }
            }
        }
    }
    Ok(wanted)
}

/// Whether a column with this name contains ids of strings.
fn refers(column: &str) -> bool {
    let name = column.to_ascii_lowercase();
    let ends = [
        "name",
        "nameid",
        "textid",
        "jsontextid",
        "symbol",
        "module",
        "apicallid",
        "function",
        "functionid",
    ];
    // Files of Python stacks are cleaned; names of other files are left out.
    let is_code = matches!(name.as_str(), "file" | "fileid");
    is_code || !name.starts_with("file") && ends.iter().any(|end| name.ends_with(end))
}

/// Creates a database with the settings of the original and begins a transaction.
fn create(to: &Path, source: &Connection) -> rusqlite::Result<Connection> {
    let encoding: String = source.query_row("PRAGMA encoding", [], |row| row.get(0))?;
    let page: i64 = source.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let target = Connection::open(to)?;
    // The encoding is one of three names of SQLite, the page size is a number.
    target.execute_batch(&format!(
        "PRAGMA page_size = {page}; PRAGMA encoding = \"{encoding}\"; PRAGMA synchronous = OFF;"
    ))?;
    // No journal: if writing fails, the file is deleted.
    target.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))?;
    target.execute_batch("BEGIN")?;
    Ok(target)
}

struct Job<'a> {
    redactor: &'a Redactor,
    wanted: &'a BTreeSet<i64>,
    summary: ScrubSummary,
}

impl Job<'_> {
    fn table(
        &mut self,
        source: &Connection,
        target: &Connection,
        table: &Table,
        progress: &dyn Progress,
    ) -> Result<(), Fault> {
        let names = table
            .columns
            .iter()
            .map(|(name, _)| name)
            .chain([&table.name]);
        if names
            .into_iter()
            .any(|name| self.redactor.clean(name) != *name)
        {
            self.summary.left_out += 1;
            return Ok(());
        }
        let declared: Vec<String> = table
            .columns
            .iter()
            .map(|(name, kind)| format!("{} {}", quote(name), affinity(kind)))
            .collect();
        let create = format!(
            "CREATE TABLE {} ({})",
            quote(&table.name),
            declared.join(", ")
        );
        target.execute_batch(&create).map_err(Fault::Writing)?;
        let marks = vec!["?"; table.columns.len()].join(", ");
        let insert = format!("INSERT INTO {} VALUES ({marks})", quote(&table.name));
        let mut insert = target.prepare(&insert).map_err(Fault::Writing)?;
        let mut statement = source.prepare(&table.select()).map_err(Fault::Reading)?;
        let mut rows = statement.query([]).map_err(Fault::Reading)?;
        while let Some(row) = rows.next().map_err(Fault::Reading)? {
            let cells = (0..table.columns.len())
                .map(|at| row.get_ref(at))
                .collect::<rusqlite::Result<Vec<_>>>()
                .map_err(Fault::Reading)?;
            progress.advance(1);
            match self.row(table, &cells) {
                Some(cells) => {
                    let cells = params_from_iter(cells.iter().map(Cell::output));
                    insert.execute(cells).map_err(Fault::Writing)?;
                }
                None => self.summary.left_out += 1,
            }
        }
        Ok(())
    }

    /// The cells of a row of the copy; `None` for a row that is omitted.
    fn row<'r>(&mut self, table: &Table, cells: &[ValueRef<'r>]) -> Option<Vec<Cell<'r>>> {
        let at = |name: &str| table.column(name).and_then(|at| cells.get(at)).copied();
        match table.content {
            Content::Emptied => None,
            Content::Strings { id } => match at(id) {
                Some(ValueRef::Integer(id)) if self.wanted.contains(&id) => {
                    Some(self.cells(table, cells, |_| true))
                }
                _ => None,
            },
            Content::Settings => {
                let name = at("name").map(lossy).unwrap_or_default();
                if !is_setting(&name) {
                    return None;
                }
                let value = at("value").map(lossy).unwrap_or_default();
                let mut row =
                    self.cells(table, cells, |column| column.eq_ignore_ascii_case("name"));
                if let Some(cell) = table.column("value").and_then(|at| row.get_mut(at)) {
                    let kept = is_harmless(&name, &value) && self.redactor.clean(&value) == value;
                    *cell = Cell::Own(Value::Text(if kept { value } else { REMOVED.into() }));
                    self.summary.changed += u64::from(!kept);
                }
                Some(row)
            }
            Content::Cleaned => Some(self.cells(table, cells, |_| true)),
            Content::Columns(kept) => Some(self.cells(table, cells, |column| {
                kept.iter().any(|k| k.eq_ignore_ascii_case(column))
            })),
            Content::Numbers => Some(self.process_name(table, cells)),
        }
    }

    /// Keeps the name of a process only if it is `python`; other names may identify somebody.
    fn process_name<'r>(&mut self, table: &Table, cells: &[ValueRef<'r>]) -> Vec<Cell<'r>> {
        let mut row = self.cells(table, cells, |_| false);
        if table.name.eq_ignore_ascii_case("PROCESSES")
            && let Some(at) = table.column("name")
            && let (Some(ValueRef::Text(name)), Some(cell)) = (cells.get(at), row.get_mut(at))
            && let Some(rest) = name.strip_prefix(b"python")
            && rest.len() <= 5
            && rest.iter().all(|b| b.is_ascii_digit() || *b == b'.')
        {
            *cell = Cell::Kept(ValueRef::Text(name));
        }
        row
    }

    fn cells<'r>(
        &mut self,
        table: &Table,
        cells: &[ValueRef<'r>],
        keeps: impl Fn(&str) -> bool,
    ) -> Vec<Cell<'r>> {
        table
            .columns
            .iter()
            .zip(cells)
            .map(|((column, _), cell)| {
                let emptied = EMPTIED.iter().any(|e| e.eq_ignore_ascii_case(column));
                self.cell(*cell, keeps(column) && !emptied)
            })
            .collect()
    }

    fn cell<'r>(&mut self, cell: ValueRef<'r>, kept: bool) -> Cell<'r> {
        let clean = match cell {
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => return Cell::Kept(cell),
            ValueRef::Text([]) | ValueRef::Blob([]) => return Cell::Kept(cell),
            ValueRef::Text(_) if !kept => Value::Text(String::new()),
            ValueRef::Text(text) => match self.text(text) {
                Some(clean) => Value::Text(clean),
                None => return Cell::Kept(cell),
            },
            // Readers decode numbers from some blobs. Text in blobs is found by searching their bytes.
            ValueRef::Blob(bytes) if kept && self.redactor.next(bytes, 0).is_none() => {
                return Cell::Kept(cell);
            }
            ValueRef::Blob(_) => Value::Null,
        };
        self.summary.changed += 1;
        Cell::Own(clean)
    }

    /// A text with all matches replaced; `None` without matches.
    fn text(&self, text: &[u8]) -> Option<String> {
        let whole = String::from_utf8_lossy(text);
        let as_json = whole.starts_with(['{', '['])
            && serde_json::from_str::<serde::de::IgnoredAny>(&whole).is_ok();
        if as_json {
            let clean = trace::clean_json(&whole, self.redactor);
            return (clean != whole.trim_end()).then_some(clean);
        }
        match self.redactor.clean(&whole) {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(clean) => Some(clean),
        }
    }
}

/// A cell of the copy.
enum Cell<'r> {
    Kept(ValueRef<'r>),
    Own(Value),
}

impl Cell<'_> {
    fn output(&self) -> ToSqlOutput<'_> {
        match self {
            Cell::Kept(value) => ToSqlOutput::Borrowed(*value),
            Cell::Own(value) => ToSqlOutput::Borrowed(ValueRef::from(value)),
        }
    }
}

/// The SQLite type affinity of a column, used instead of the declared type, which is arbitrary text.
/// See <https://www.sqlite.org/datatype3.html>, section 3.1.
fn affinity(declared: &str) -> &'static str {
    let upper = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    if has(&["INT"]) {
        "INTEGER"
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        "TEXT"
    } else if upper.is_empty() || has(&["BLOB"]) {
        "BLOB"
    } else if has(&["REAL", "FLOA", "DOUB"]) {
        "REAL"
    } else {
        "NUMERIC"
    }
}

/// Whether a row of settings is a setting, not an environment variable or an argument.
fn is_setting(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_:.- ".contains(&b);
    let is_variable = upper
        .split([':', '_', '.'])
        .any(|part| part.starts_with("ENV"));
    !is_variable && !upper.contains("ARGUMENT") && upper.len() <= 80 && upper.bytes().all(plain)
}

/// Whether a value is harmless: a switch, a number, or a word of a fixed list.
fn is_harmless(name: &str, value: &str) -> bool {
    let number = value.len() <= 20
        && value
            .bytes()
            .all(|b| b.is_ascii_digit() || b".-".contains(&b));
    let last = name.rsplit(':').next().unwrap_or(name);
    let listed = HARMLESS.contains(&last) || last.starts_with("EXPORT_SCHEMA_VERSION");
    number
        || matches!(value, "true" | "false")
        || (listed && value.len() <= LONGEST_SETTING && !value.contains(['/', '\\', '=', '@']))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_more_tables_are_looked_at_than_are_copied() {
        let db = Connection::open_in_memory().unwrap();
        let mut sql = String::from("BEGIN;");
        for table in 0..3 * MOST_TABLES {
            sql.push_str(&format!("CREATE TABLE a{table} (id INT);"));
        }
        sql.push_str("CREATE TABLE StringIds (id INT, value TEXT);");
        sql.push_str("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT); COMMIT;");
        db.execute_batch(&sql).unwrap();
        let (found, left_out) = tables(&db).unwrap();
        assert_eq!(found.len(), MOST_TABLES);
        assert_eq!(left_out as usize, 2 * MOST_TABLES + 2);
        let names: Vec<&str> = found.iter().take(3).map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["StringIds", "TARGET_INFO_SYSTEM_ENV", "a0"]);
    }
}
