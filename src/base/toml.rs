//! Parses TOML files into trees with spans. A file is read in two steps: [`parse`] accepts any TOML, and
//! [`Table::check`] validates it against its declaration and reports every mistake with a caret. A loader
//! then reads the valid values, which have the right types.
//!
//! ```
//! use pyprof_advise::base::diag::{Complaints, Source};
//! use pyprof_advise::base::schema::{Key, Shape};
//! use pyprof_advise::base::toml;
//!
//! const KEYS: &[Key] = &[Key {
//!     name: "title",
//!     required: true,
//!     doc: "the title",
//!     shape: Shape::Text(1, 80),
//! }];
//! let source = Source::new("my.toml", "title = 3\nsm_count = 80\n");
//! let complaints = Complaints::new();
//! let document = toml::parse(&source, &complaints);
//! let root = document.root();
//! root.check(KEYS, &[]);
//! assert!(root.get_str("title").is_none());
//! assert_eq!(complaints.summary(), "2 errors in my.toml");
//! ```

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};

use super::diag::{Complaint, Complaints, Source};
use super::schema::{self, Key, Sets};
use super::{suggest, text};

/// Maximum length of a path in a message, in characters: a key can be as long as its file, and each item of a list
/// below it has a path.
const MAX_PATH: usize = 200;

/// A text as a TOML string, with quotation marks.
pub(crate) fn quoted(text: &str) -> String {
    ::toml::Value::from(text).to_string()
}

/// A value with its position in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its byte range in the file.
    pub span: Range<usize>,
}

/// The parsed tree of a file.
pub struct Document<'a> {
    tree: Spanned<DeTable<'a>>,
    source: &'a Arc<Source>,
    complaints: &'a Complaints,
    /// Start positions of the values that were reported.
    refused: RefCell<BTreeSet<usize>>,
    /// Paths of known keys that unknown ones seem to be misspellings of.
    meant: RefCell<BTreeSet<String>>,
    /// Paths of all values and tables by address, once a message needs one.
    paths: OnceCell<HashMap<usize, String>>,
}

/// Parses as much of a file as possible and reports every syntax error.
pub fn parse<'a>(source: &'a Arc<Source>, complaints: &'a Complaints) -> Document<'a> {
    let (tree, errors) = DeTable::parse_recoverable(&source.text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        complaints.push(Complaint::error(source, span, error.message(), ""));
    }
    Document {
        tree,
        source,
        complaints,
        refused: RefCell::default(),
        meant: RefCell::default(),
        paths: OnceCell::new(),
    }
}

impl Document<'_> {
    /// The table of the whole file.
    pub fn root(&self) -> Table<'_> {
        Table {
            entries: self.tree.get_ref(),
            span: 0..0,
            document: self,
        }
    }

    /// The keys that lead from the root to a value or table at this address: `flops.fp32`, `l[0]`. Only
    /// messages name paths, so the paths of all are made when the first one is asked for.
    fn path_to<T>(&self, node: &T) -> String {
        let paths = self.paths.get_or_init(|| {
            let mut paths = HashMap::new();
            note_paths(self.tree.get_ref(), "", &mut paths);
            paths
        });
        paths.get(&address(node)).cloned().unwrap_or_default()
    }
}

fn address<T>(node: &T) -> usize {
    std::ptr::from_ref(node).addr()
}

/// Notes the paths of everything in a table.
fn note_paths(table: &DeTable<'_>, path: &str, paths: &mut HashMap<usize, String>) {
    for (key, value) in table {
        note_path(value.get_ref(), joined(path, key.get_ref()), paths);
    }
}

fn note_path(value: &DeValue<'_>, path: String, paths: &mut HashMap<usize, String>) {
    let path = text::clip(&path, MAX_PATH);
    match value {
        DeValue::Table(table) => {
            note_paths(table, &path, paths);
            paths.insert(address(table), path.clone());
        }
        DeValue::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                note_path(item.get_ref(), format!("{path}[{i}]"), paths);
            }
        }
        _ => {}
    }
    paths.insert(address(value), path);
}

/// The path of a key in a table.
fn joined(table: &str, key: &str) -> String {
    if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    }
}

/// A table of the tree. Accessors return `None` for an absent key and for a reported value. They report
/// a value of the wrong type, which a checked table does not contain, and return `None`.
#[derive(Clone)]
pub struct Table<'a> {
    entries: &'a DeTable<'a>,
    /// The header, or the braces of an inline table; empty at the start for the whole file.
    span: Range<usize>,
    document: &'a Document<'a>,
}

impl<'a> Table<'a> {
    /// The position of the table's header.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The file.
    pub fn source(&self) -> &'a Arc<Source> {
        self.document.source
    }

    /// Reports everything that a declaration does not allow. Reported values are absent from then on,
    /// so that each is reported once.
    pub fn check(&self, keys: &[Key], sets: Sets) {
        schema::check(self, keys, sets);
    }

    /// Whether the file has the key, even if its value was reported.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Keys in file order, including those of reported values.
    pub fn keys(&self) -> Vec<At<&'a str>> {
        let keys = self.entries.keys().map(|key| At {
            value: key.get_ref().as_ref(),
            span: key.span(),
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|key| key.span.start);
        keys
    }

    /// Keys with their values in file order, without reported values.
    pub fn entries(&self) -> Vec<(At<&'a str>, Item<'a>)> {
        let mut list: Vec<_> = self
            .entries
            .iter()
            .map(|(key, value)| {
                let name = key.get_ref().as_ref();
                let at = At {
                    value: name,
                    span: key.span(),
                };
                (at, self.value(value))
            })
            .filter(|(_, value)| !value.is_refused())
            .collect();
        list.sort_by_key(|(key, _)| key.span.start);
        list
    }

    /// The value of a key, of any type.
    pub fn get(&self, key: &str) -> Option<Item<'a>> {
        let value = self.value(self.entries.get(key)?);
        Some(value).filter(|value| !value.is_refused())
    }

    fn value(&self, node: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        Item {
            node,
            document: self.document,
        }
    }

    /// The full path of this table, for messages: `flops`. Empty for the whole file.
    fn path(&self) -> String {
        self.document.path_to(self.entries)
    }

    /// The full path of a key in this table, for messages: `flops.fp32`.
    pub fn path_of(&self, key: &str) -> String {
        joined(&self.path(), key)
    }

    /// Reports a missing key, unless one of the unknown keys was reported as its misspelling.
    pub fn missing(&self, key: &str) {
        if self.document.meant.borrow().contains(&self.path_of(key)) {
            return;
        }
        let label = if self.path().is_empty() {
            ""
        } else {
            "in this table"
        };
        self.complain(
            self.span(),
            format!("`{}` is missing", self.path_of(key)),
            label,
        );
    }

    /// A string.
    pub fn get_str(&self, key: &str) -> Option<At<&'a str>> {
        self.get(key)?.str()
    }

    /// A string without its span.
    pub fn get_text(&self, key: &str) -> Option<String> {
        Some(self.get_str(key)?.value.to_owned())
    }

    /// A boolean; false if absent.
    pub fn get_flag(&self, key: &str) -> bool {
        self.get(key)
            .and_then(|value| value.bool())
            .is_some_and(|flag| flag.value)
    }

    /// An integer that fits into the type `T`.
    pub fn get_whole<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        T::try_from(self.get(key)?.int()?.value).ok()
    }

    /// A finite number; integers are converted.
    pub fn get_number(&self, key: &str) -> Option<f64> {
        Some(self.get(key)?.float()?.value)
    }

    /// The value of a word that is one of `known`.
    pub fn get_word<T: Copy>(&self, key: &str, known: &[(T, &str)]) -> Option<T> {
        let word = self.get_str(key)?.value;
        known
            .iter()
            .find(|(_, name)| *name == word)
            .map(|(value, _)| *value)
    }

    /// A list of strings; empty if the key is absent.
    pub fn get_str_list(&self, key: &str) -> Vec<At<&'a str>> {
        self.get(key)
            .and_then(|value| value.str_list())
            .unwrap_or_default()
    }

    /// A list of strings without their spans; empty if the key is absent.
    pub fn get_texts(&self, key: &str) -> Vec<String> {
        let list = self.get_str_list(key);
        list.into_iter().map(|text| text.value.to_owned()).collect()
    }

    /// A table.
    pub fn get_table(&self, key: &str) -> Option<Table<'a>> {
        self.get(key)?.table()
    }

    /// `[[key]]` tables, or a list of inline tables; empty if the key is absent.
    pub fn get_table_list(&self, key: &str) -> Vec<Table<'a>> {
        self.get(key)
            .and_then(|value| value.table_list())
            .unwrap_or_default()
    }

    /// Reports every key that is not one of `known`.
    pub(super) fn refuse_unknown(&self, known: &[&str]) {
        for At { value: key, span } in self.keys() {
            if known.contains(&key) {
                continue;
            }
            let label = match suggest::nearest(key, known.iter().copied()) {
                Some(near) => {
                    let mut meant = self.document.meant.borrow_mut();
                    meant.insert(self.path_of(near));
                    format!("did you mean `{near}`?")
                }
                None => String::new(),
            };
            let title = format!("unknown key `{}`", self.path_of(key));
            let mut complaint = Complaint::error(self.document.source, span, title, label);
            if complaint.label.is_empty() && !known.is_empty() {
                complaint = complaint.with_help(format!("known here: {}", known.join(", ")));
            }
            self.push(complaint);
        }
    }

    /// Reports an error in a part of this file.
    pub fn complain(&self, span: Range<usize>, title: impl Into<String>, label: impl Into<String>) {
        self.push(Complaint::error(self.document.source, span, title, label));
    }

    /// Adds a complaint.
    pub fn push(&self, complaint: Complaint) {
        self.document.complaints.push(complaint);
    }
}

/// A value of the tree, of any type. Typed accessors report a value of another type.
#[derive(Clone)]
pub struct Item<'a> {
    node: &'a Spanned<DeValue<'a>>,
    document: &'a Document<'a>,
}

impl<'a> Item<'a> {
    /// Makes the value absent; called after it was reported.
    pub fn refuse(&self) {
        self.document.refused.borrow_mut().insert(self.span().start);
    }

    fn is_refused(&self) -> bool {
        self.document.refused.borrow().contains(&self.span().start)
    }

    /// The position of the value.
    pub fn span(&self) -> Range<usize> {
        self.node.span()
    }

    /// The tree's own node, for matching on the type.
    pub fn raw(&self) -> &'a DeValue<'a> {
        self.node.get_ref()
    }

    /// The full path of the key, for messages.
    pub fn path(&self) -> String {
        self.document.path_to(self.raw())
    }

    /// The type with its article: `a string`, `an integer`, ...
    pub fn kind(&self) -> &'static str {
        match self.raw() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        }
    }

    /// The number of entries of a list or a table; 1 for other values.
    pub fn len(&self) -> usize {
        match self.raw() {
            DeValue::Array(items) => items.len(),
            DeValue::Table(entries) => entries.len(),
            _ => 1,
        }
    }

    /// Whether it is a list or a table without entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn at<T>(&self, value: T) -> At<T> {
        At {
            value,
            span: self.span(),
        }
    }

    /// Reports that the value is not `what` (with its article) and returns `None`.
    pub fn wrong_type<T>(&self, what: &str) -> Option<T> {
        let title = format!("`{}` must be {what}", self.path());
        self.wrong(title, format!("expected {what}, found {}", self.kind()))
    }

    /// Reports an error in this value and returns `None`.
    pub fn wrong<T>(&self, title: impl Into<String>, label: impl Into<String>) -> Option<T> {
        self.complain(title, label);
        None
    }

    /// Reports an error in this value.
    pub fn complain(&self, title: impl Into<String>, label: impl Into<String>) {
        let complaint = Complaint::error(self.document.source, self.span(), title, label);
        self.document.complaints.push(complaint);
    }

    /// A string.
    pub fn str(&self) -> Option<At<&'a str>> {
        match self.raw() {
            DeValue::String(text) => Some(self.at(text.as_ref())),
            _ => self.wrong_type("a string"),
        }
    }

    /// A boolean.
    pub fn bool(&self) -> Option<At<bool>> {
        match self.raw() {
            DeValue::Boolean(value) => Some(self.at(*value)),
            _ => self.wrong_type("a boolean"),
        }
    }

    /// A 64-bit integer.
    pub fn int(&self) -> Option<At<i64>> {
        let DeValue::Integer(digits) = self.raw() else {
            return self.wrong_type("an integer");
        };
        match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(value) => Some(self.at(value)),
            Err(_) => {
                let title = format!("`{}` is out of range", self.path());
                self.wrong(title, "does not fit in 64 bits")
            }
        }
    }

    /// A finite number; integers are converted.
    pub fn float(&self) -> Option<At<f64>> {
        let value = match self.raw() {
            // A double holds 53 bits of an integer; counts above 9e15 do not occur.
            DeValue::Integer(_) => self.int()?.value as f64,
            DeValue::Float(digits) => digits.as_str().parse().unwrap_or(f64::NAN),
            _ => return self.wrong_type("a number"),
        };
        if value.is_finite() {
            return Some(self.at(value));
        }
        self.wrong(format!("`{}` must be a finite number", self.path()), "")
    }

    /// The elements of a list.
    pub fn list(&self) -> Option<Vec<Item<'a>>> {
        self.list_of("a list", |item| Some(item.clone()))
    }

    /// The elements of a list, each read by `read`; `what` names such a list.
    fn list_of<T>(&self, what: &str, read: impl Fn(&Item<'a>) -> Option<T>) -> Option<Vec<T>> {
        let DeValue::Array(items) = self.raw() else {
            return self.wrong_type(what);
        };
        let items = items.iter().map(|node| Item {
            node,
            document: self.document,
        });
        let valid = items.filter(|item| !item.is_refused());
        Some(valid.filter_map(|item| read(&item)).collect())
    }

    /// A list of strings; elements of another type are reported and omitted.
    pub fn str_list(&self) -> Option<Vec<At<&'a str>>> {
        self.list_of("a list of strings", Item::str)
    }

    /// A table.
    pub fn table(&self) -> Option<Table<'a>> {
        match self.raw() {
            DeValue::Table(entries) => Some(Table {
                entries,
                span: self.span(),
                document: self.document,
            }),
            _ => self.wrong_type("a table"),
        }
    }

    /// The tables of `[[key]]` or of a list of inline tables.
    pub fn table_list(&self) -> Option<Vec<Table<'a>>> {
        self.list_of("a list of tables", Item::table)
    }
}

/// The position in the file of a part of a decoded string: `string` is the span of the value with its
/// quotes, `inner` a byte range of the decoded text. Accounts for escapes; returns the span of the
/// whole value if `inner` is not inside it.
pub fn span_in_string(source: &Source, string: &Range<usize>, inner: Range<usize>) -> Range<usize> {
    let raw = source.text.get(string.clone()).unwrap_or_default();
    let locate = |offset, edge| offset_in_raw(raw, offset, edge).map(|at| string.start + at);
    match (
        locate(inner.start, Edge::Start),
        locate(inner.end, Edge::End),
    ) {
        (Some(start), Some(end)) if start <= end => start..end,
        _ => string.clone(),
    }
}

/// The edge of a span. Escapes that decode to nothing precede a start and follow an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

/// The position of byte `wanted` of the decoded string in its raw form, quotes included.
fn offset_in_raw(raw: &str, wanted: usize, edge: Edge) -> Option<usize> {
    let quote = raw.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let triple: String = [quote; 3].iter().collect();
    let is_triple = raw.len() >= 6 && raw.starts_with(&triple);
    let delimiter = if is_triple { 3 } else { 1 };
    let mut at = delimiter;
    if is_triple {
        // A line break directly after the opening quotes is not part of the text.
        let body = raw.get(at..)?;
        at += ["\r\n", "\n"]
            .iter()
            .find(|e| body.starts_with(**e))
            .map_or(0, |e| e.len());
    }
    let end = raw.len().checked_sub(delimiter)?;
    let mut decoded = 0;
    while at < end {
        let rest = raw.get(at..end)?;
        let (taken, gives) = if quote == '"' {
            one_basic(rest)?
        } else {
            let c = rest.chars().next()?;
            (c.len_utf8(), c.len_utf8())
        };
        if decoded + gives > wanted || (decoded == wanted && edge == Edge::End) {
            break;
        }
        at += taken;
        decoded += gives;
    }
    (at <= end && (decoded == wanted || at < end)).then_some(at)
}

/// The number of raw bytes of the next character or escape of a basic string, and the number of decoded
/// bytes.
fn one_basic(rest: &str) -> Option<(usize, usize)> {
    let c = rest.chars().next()?;
    if c != '\\' {
        return Some((c.len_utf8(), c.len_utf8()));
    }
    let hex = |digits: usize| {
        let code = u32::from_str_radix(rest.get(2..2 + digits)?, 16).ok()?;
        Some((2 + digits, char::from_u32(code)?.len_utf8()))
    };
    match rest.get(1..)?.chars().next()? {
        'x' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        // A backslash at the end of a line removes all following whitespace.
        blank if blank.is_ascii_whitespace() => {
            let after = rest.get(1..)?;
            let kept = after.trim_start_matches([' ', '\t', '\r', '\n']);
            Some((rest.len() - kept.len(), 0))
        }
        _ => Some((2, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::schema::Shape;
    use super::*;

    fn complaints_of(text: &str, check: impl Fn(&Table)) -> String {
        let source = Source::new("t.toml", text);
        let complaints = Complaints::new();
        let document = parse(&source, &complaints);
        check(&document.root());
        complaints.render(false)
    }

    #[test]
    fn values_of_every_type_are_read() {
        let text = "s = 'a'\nb = true\ni = 0x10\nf = 1_0.5\nn = 3\nl = ['x', 'y']\n\
                    [t]\nk = 1\n[[u]]\nk = 1\n[[u]]\nk = 2\n";
        let shown = complaints_of(text, |t| {
            assert_eq!(t.get_text("s").unwrap(), "a");
            assert!(t.get_flag("b"));
            assert_eq!(t.get_whole::<u32>("i"), Some(16));
            assert_eq!(t.get_number("f"), Some(10.5));
            assert_eq!(t.get_number("n"), Some(3.0));
            assert_eq!(t.get_texts("l"), ["x", "y"]);
            assert_eq!(t.get_table("t").unwrap().get_whole::<i64>("k"), Some(1));
            let tables = t.get_table_list("u");
            let ks: Vec<_> = tables
                .iter()
                .map(|t| t.get_whole::<i64>("k").unwrap())
                .collect();
            assert_eq!(ks, [1, 2]);
            assert!(t.get_str("absent").is_none() && t.get_table_list("absent").is_empty());
            let names: Vec<_> = t.entries().iter().map(|(k, _)| k.value).collect();
            assert_eq!(names, ["s", "b", "i", "f", "n", "l", "t", "u"]);
        });
        assert_eq!(shown, "");
    }

    #[test]
    fn all_type_errors_are_reported_at_once() {
        const FLOPS: &[Key] = schema::keys! {
            /// a rate
            required "fp32": Shape::Number,
            /// another
            required "fp16": Shape::Number,
        };
        const KEYS: &[Key] = schema::keys! {
            /// a text
            required "title": Shape::Text(1, 80),
            /// a text
            required "name": Shape::Text(1, 80),
            /// a count
            "sm_count": Shape::Whole(1, 1000),
            /// a number
            "f": Shape::Number,
            /// a list
            "l": Shape::List(&Shape::Text(0, 80), 8),
            /// a table
            required "flops": Shape::Table(FLOPS, &[]),
        };
        let text = "title = 3\nsm_cuont = 80\nf = inf\nl = [1, 'a']\n[flops]\nfp32 = 'x'\n";
        let shown = complaints_of(text, |t| {
            t.check(KEYS, &[]);
            assert!(t.get_str("title").is_none() && t.has("title"));
            assert_eq!(t.get_texts("l"), ["a"]);
            assert!(t.get_table("flops").unwrap().entries().is_empty());
        });
        assert_eq!(
            shown,
            "\
error: `name` is missing
 --> t.toml:1:1
  |
1 | title = 3
  | ^

error: `title` must be a string
 --> t.toml:1:9
  |
1 | title = 3
  |         ^ expected a string, found an integer

error: unknown key `sm_cuont`
 --> t.toml:2:1
  |
2 | sm_cuont = 80
  | ^^^^^^^^ did you mean `sm_count`?

error: `f` must be a finite number
 --> t.toml:3:5
  |
3 | f = inf
  |     ^^^

error: `l[0]` must be a string
 --> t.toml:4:6
  |
4 | l = [1, 'a']
  |      ^ expected a string, found an integer

error: `flops.fp16` is missing
 --> t.toml:5:1
  |
5 | [flops]
  | ^^^^^^^ in this table

error: `flops.fp32` must be a number
 --> t.toml:6:8
  |
6 | fp32 = 'x'
  |        ^^^ expected a number, found a string
"
        );
    }

    #[test]
    fn all_syntax_errors_are_reported_at_once() {
        let source = Source::new("t.toml", "a = \nb = 1\nb = 2\nc = [1\n");
        let complaints = Complaints::new();
        let document = parse(&source, &complaints);
        assert_eq!(document.root().get_whole::<i64>("b"), Some(1));
        let lines: Vec<_> = complaints
            .sorted()
            .iter()
            .map(|c| source.position(c.span.start).0)
            .collect();
        assert!(lines.contains(&1) && lines.contains(&3), "{complaints}");
        assert!(lines.iter().any(|l| *l >= 4), "{complaints}");
    }

    #[test]
    fn integers_that_do_not_fit_are_reported() {
        let shown = complaints_of("i = 99999999999999999999\n", |t| {
            assert!(t.get_whole::<i64>("i").is_none());
        });
        assert!(shown.contains("does not fit in 64 bits"), "{shown}");
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let keys = vec!["a"; 100_000].join(".");
        for text in [
            format!("{keys} = 1\n"),
            format!("[{keys}]\n"),
            format!("x = {}{}\n", "[".repeat(100_000), "]".repeat(100_000)),
            format!("x = {}\n", "{a=".repeat(10_000)),
            format!("x = {{ {keys} = 1 }}\n"),
        ] {
            let shown = complaints_of(&text, |_| {});
            assert!(shown.starts_with("error: "), "{}", &text[..20]);
        }
    }

    #[test]
    fn paths_below_long_keys_do_not_exhaust_memory() {
        let text = format!("{} = [{}]\n", "k".repeat(500_000), "1,".repeat(200_000));
        let shown = complaints_of(&text, |t| {
            t.check(
                schema::keys! {
                    /// a list
                    "list": Shape::Flag,
                },
                &[],
            );
            let (_, list) = t.entries().remove(0);
            assert!(list.list().unwrap()[199_999].str().is_none());
        });
        assert!(shown.contains("[199999]` must be a string"), "{shown}");
    }

    #[test]
    fn offsets_inside_strings_map_to_the_file() {
        for (text, inner, expected) in [
            ("k = 'ab cd'", "cd", 8),
            ("k = \"ab cd\"", "cd", 8),
            ("k = '''ab cd'''", "cd", 10),
            ("k = '''\nab\ncd'''", "cd", 11),
            ("k = '''\r\nab\r\ncd'''", "cd", 13),
            ("k = \"\"\"\nab \\\n   cd\"\"\"", "cd", 16),
            ("k = \"a\\u00e9\\\"cd\"", "cd", 14),
            ("k = '\u{e9} cd'", "cd", 8),
            ("k = \"\"", "", 5),
        ] {
            let source = Source::new("t.toml", text);
            let complaints = Complaints::new();
            let document = parse(&source, &complaints);
            let value = document.root().get_str("k").unwrap();
            let at = value.value.find(inner).unwrap();
            let span = span_in_string(&source, &value.span, at..at + inner.len());
            assert_eq!(
                (span.start, span.len()),
                (expected, inner.len()),
                "{text:?}"
            );
            assert_eq!(&text[span], inner);
            // A range outside the string maps to the whole value.
            let beyond = span_in_string(&source, &value.span, 500..501);
            assert_eq!(beyond, value.span, "{text:?}");
        }
    }
}
