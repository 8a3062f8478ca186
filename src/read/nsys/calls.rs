//! CUDA runtime and driver calls.

use super::Pids;
use crate::profile::{ApiCall, ApiClass, SerialNumber, Span, StrId, ThreadId};
use crate::read::builder::Builder;
use crate::read::cupti::{correlation, unversioned};
use crate::read::names::{Distinct, PartName, PartNames, StringTable, TableName, TableNames};
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

/// The calls of one part of a table.
#[derive(Clone, Default)]
struct Part {
    names: PartNames,
    /// `globalTid` of the threads.
    threads: Distinct<i64>,
    profile_threads: Vec<ThreadId>,
    rows: Vec<CallRow>,
    skipped: SkippedRows,
}

#[derive(Clone, Copy)]
struct CallRow {
    span: Span,
    /// Number in [`Part::threads`].
    thread: u32,
    correlation: Option<SerialNumber>,
    name: PartName,
}

const COLUMNS: [&str; 5] = ["start", "end", "globalTid", "correlationId", "nameId"];

impl Sink for Part {
    fn row(&mut self, cells: &Cells<'_>) {
        self.skipped.rows += 1;
        let Some(span) = self.skipped.span(cells.int(0), cells.int(1)) else {
            return;
        };
        let Some(thread) = self.skipped.owner(cells.int(2)) else {
            return;
        };
        self.rows.push(CallRow {
            span,
            thread: self.threads.number(thread),
            correlation: correlation(cells.int(3)),
            name: self.names.of_cell(cells, 4),
        });
    }
}

/// Calls that are in the profile without names, because the string table is read later.
#[derive(Default)]
pub(super) struct UnnamedCalls {
    names: TableNames,
    /// The name of every call of the profile.
    of_calls: Vec<TableName>,
    skipped: SkippedRows,
}

impl UnnamedCalls {
    /// Adds the calls of a table to the profile.
    pub(super) fn read(
        &mut self,
        db: &Db,
        table: &str,
        pids: &Pids,
        builder: &mut Builder,
        progress: &dyn Progress,
    ) -> Result<(), ReadError> {
        let rows = db.most_rows(table)?;
        builder.profile.calls.reserve(rows);
        self.of_calls.reserve(rows);
        db.stream(table, &COLUMNS, &Part::default(), progress, |part| {
            self.skipped.add(&std::mem::take(&mut part.skipped));
            self.names.add(&mut part.names);
            let known = part.profile_threads.len();
            for &global in part.threads.values().iter().skip(known) {
                part.profile_threads.push(pids.thread(builder, global));
            }
            for row in part.rows.drain(..) {
                let thread = part.profile_threads.get(row.thread as usize);
                let name = part.names.in_table(row.name);
                let Some((&thread, name)) = thread.zip(name) else {
                    continue;
                };
                self.of_calls.push(name);
                builder.profile.calls.push(ApiCall {
                    span: row.span,
                    thread,
                    correlation: row.correlation,
                    name: StrId(0),
                    class: ApiClass::Other,
                });
            }
        })
    }

    /// Ids of the string table.
    pub(super) fn name_ids(&self) -> impl Iterator<Item = i64> {
        self.names.ids()
    }

    /// Names the calls, without version suffix. They must be in the order in which they were read.
    pub(super) fn name(self, strings: &StringTable, builder: &mut Builder) {
        let profile = &mut builder.profile;
        let names = self.names.resolve(strings, &mut profile.strings);
        let mut classes: Vec<Option<(StrId, ApiClass)>> = names.map(|_| None);
        for (call, name) in profile.calls.iter_mut().zip(self.of_calls) {
            let (Some(known), Some(text)) = (classes.get_mut(name.idx()), names.get(name)) else {
                continue;
            };
            (call.name, call.class) = *known.get_or_insert_with(|| {
                let text = unversioned(profile.strings.get(text)).to_owned();
                (profile.strings.intern(&text), ApiClass::of(&text))
            });
        }
        self.skipped.note(profile, "API call", "thread", "name");
    }
}
