//! Names of rows while a table is read: numbers instead of texts, and the string table behind them.
//!
//! A table is read in parts, by all threads at once. A name is first a [`PartName`], which is valid for
//! one part; then a [`TableName`], once the part has been added to its table; and a [`struct@StrId`] of the
//! profile when the string table of the file has been read.

use std::hash::Hash;
use std::sync::Arc;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::reader::{Progress, ReadError};
use super::sqlite::{Cells, Db, Sink};
use crate::profile::{StrId, Strings};

/// Numbers distinct values in order of first appearance. The last value is cached, because neighbouring
/// rows are often equal.
#[derive(Debug, Clone)]
pub(super) struct Distinct<T> {
    last: Option<(T, u32)>,
    values: IndexSet<T, FxBuildHasher>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Distinct {
            last: None,
            values: IndexSet::default(),
        }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    /// The number of `value`; a new number for a new value.
    pub(super) fn number(&mut self, value: T) -> u32 {
        if let Some((last, number)) = self.last
            && last == value
        {
            return number;
        }
        let (number, _) = self.values.insert_full(value);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.last = Some((value, number));
        number
    }

    /// The values, in the order of their numbers.
    pub(super) fn values(&self) -> &IndexSet<T, FxBuildHasher> {
        &self.values
    }
}

/// How a row stores its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum NameSource {
    /// An id of the string table.
    Id(i64),
    /// Text in the row itself: a row of [`Names::texts`].
    Text(StrId),
}

/// Distinct names, by id or by text.
#[derive(Debug, Clone, Default)]
struct Names {
    sources: Distinct<NameSource>,
    texts: Strings,
}

impl Names {
    fn id(&mut self, id: i64) -> u32 {
        self.sources.number(NameSource::Id(id))
    }

    fn text(&mut self, text: &str) -> u32 {
        let text = self.texts.intern(text);
        self.sources.number(NameSource::Text(text))
    }

    fn ids(&self) -> impl Iterator<Item = i64> {
        self.sources.values().iter().filter_map(|name| match name {
            NameSource::Id(id) => Some(*id),
            NameSource::Text(_) => None,
        })
    }

    /// The string of every name. Ids that are missing in the string table become `string N`.
    fn resolve(&self, table: &StringTable, into: &mut Strings) -> Vec<StrId> {
        let mut string = |name: &NameSource| match name {
            NameSource::Id(id) => match table.get(*id) {
                Some(text) => into.intern(text),
                None => into.intern(&format!("string {id}")),
            },
            NameSource::Text(text) => into.intern(self.texts.get(*text)),
        };
        self.sources.values().iter().map(&mut string).collect()
    }
}

/// A name of [`PartNames`].
#[derive(Debug, Clone, Copy)]
pub(super) struct PartName(u32);

/// The names in one part of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct PartNames {
    names: Names,
    /// The number in the table of each name that was in this part at the last [`TableNames::add`].
    in_table: Vec<TableName>,
}

impl PartNames {
    /// The name in a column that holds an id of the string table or a text.
    pub(super) fn of_cell(&mut self, cells: &Cells<'_>, column: usize) -> PartName {
        PartName(match cells.int(column) {
            Some(id) => self.names.id(id),
            None => {
                let text = cells.bytes(column).unwrap_or_default();
                self.names.text(&String::from_utf8_lossy(text))
            }
        })
    }

    /// Ids of the string table.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.names.ids()
    }

    /// The name in the table that this part was added to.
    pub(super) fn in_table(&self, name: PartName) -> Option<TableName> {
        self.in_table.get(name.0 as usize).copied()
    }

    /// The strings of the names, for parts without a [`TableNames`].
    pub(super) fn resolve(&self, table: &StringTable, into: &mut Strings) -> PartStrings {
        PartStrings(self.names.resolve(table, into))
    }
}

/// The strings of [`PartNames`] in a profile.
pub(super) struct PartStrings(Vec<StrId>);

impl PartStrings {
    /// The string of a name of the same part.
    pub(super) fn get(&self, name: PartName) -> Option<StrId> {
        self.0.get(name.0 as usize).copied()
    }
}

/// A name of [`TableNames`].
#[derive(Debug, Clone, Copy)]
pub(super) struct TableName(u32);

/// The names in all parts of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct TableNames(Names);

impl TableNames {
    /// Adds the names of a part that are new since the last call.
    pub(super) fn add(&mut self, part: &mut PartNames) {
        let known = part.in_table.len();
        for name in part.names.sources.values().iter().skip(known) {
            part.in_table.push(TableName(match name {
                NameSource::Id(id) => self.0.id(*id),
                NameSource::Text(text) => self.0.text(part.names.texts.get(*text)),
            }));
        }
    }

    /// Ids of the string table.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.0.ids()
    }

    /// The strings of the names in a profile.
    pub(super) fn resolve(&self, table: &StringTable, into: &mut Strings) -> TableStrings {
        TableStrings(self.0.resolve(table, into))
    }
}

/// The strings of [`TableNames`] in a profile.
pub(super) struct TableStrings(Vec<StrId>);

impl TableStrings {
    /// The string of a name of the same table.
    pub(super) fn get(&self, name: TableName) -> Option<StrId> {
        self.0.get(name.0 as usize).copied()
    }

    /// The results of `map` for the strings of all names.
    pub(super) fn map<T>(&self, map: impl FnMut(StrId) -> T) -> Vec<T> {
        self.0.iter().copied().map(map).collect()
    }
}

impl TableName {
    /// The index of the name in [`TableStrings::map`].
    pub(super) fn idx(self) -> usize {
        self.0 as usize
    }
}

/// The strings of a file that rows refer to, by id.
#[derive(Debug, Clone, Default)]
pub(super) struct StringTable(FxHashMap<i64, Box<str>>);

impl StringTable {
    /// Reads the strings with these ids. Others are not read, because they include environment
    /// variables of the captured machine.
    pub(super) fn read(
        db: &Db,
        table: &str,
        ids: FxHashSet<i64>,
        progress: &dyn Progress,
    ) -> Result<StringTable, ReadError> {
        if ids.is_empty() {
            return Ok(StringTable::default());
        }
        let sink = ReferencedStrings {
            ids: ids.into(),
            found: FxHashMap::default(),
        };
        let parts = db.scan(table, &STRING_COLUMNS, &sink, progress)?;
        Ok(StringTable(
            parts.into_iter().flat_map(|part| part.found).collect(),
        ))
    }

    /// The string with this id.
    pub(super) fn get(&self, id: i64) -> Option<&str> {
        self.0.get(&id).map(|s| &**s)
    }
}

#[derive(Clone)]
struct ReferencedStrings {
    ids: Arc<FxHashSet<i64>>,
    found: FxHashMap<i64, Box<str>>,
}

/// The key is `id` in Nsight Systems, `_id_` in nvprof.
const STRING_COLUMNS: [&str; 2] = ["id|_id_", "value"];

impl Sink for ReferencedStrings {
    fn row(&mut self, cells: &Cells<'_>) {
        if let Some(id) = cells.int(0)
            && self.ids.contains(&id)
            && let Some(bytes) = cells.bytes(1)
        {
            self.found.insert(id, String::from_utf8_lossy(bytes).into());
        }
    }
}
