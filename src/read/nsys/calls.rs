//! CUDA runtime and driver calls.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use rustc_hash::{FxHashMap, FxHashSet};

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

impl Sink for Part {
    const COLUMNS: &'static [&'static str] =
        &["start", "end", "globalTid", "correlationId", "nameId"];

    fn row(&mut self, cells: &Cells<'_, '_>) {
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

/// Calls that are in the profile but have no names yet: the string table is read later.
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
        db.stream(table, &Part::default(), progress, |part| {
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

/// The times, per thread (`globalTid`) and in order, of calls whose enclosing ranges are needed: calls
/// that launched a kernel and calls that may have caused idle time. Every call that shares its
/// correlation id with a kernel of any process counts as a launch. `None` where nothing was launched.
pub(super) fn launches(builder: &Builder) -> Option<FxHashMap<i64, Vec<i64>>> {
    const PIECE: usize = 1 << 16;
    let profile = &builder.profile;
    let started: FxHashSet<SerialNumber> = (profile.kernels.iter())
        .filter_map(|kernel| kernel.correlation)
        .collect();
    let launched = |call: &ApiCall| call.correlation.is_some_and(|id| started.contains(&id));
    // Collected in pieces and concatenated: vectors that grow one by one leave unused capacity.
    let pieces: Vec<(bool, FxHashMap<ThreadId, Vec<i64>>)> = (profile.calls)
        .par_chunks(PIECE)
        .map(|calls| {
            let mut any = false;
            let mut threads: FxHashMap<ThreadId, Vec<i64>> = FxHashMap::default();
            for call in calls {
                let launched = launched(call);
                any |= launched;
                if launched || may_block(call) {
                    let times = threads.entry(call.thread).or_default();
                    times.push(call.span.start);
                }
            }
            (any, threads)
        })
        .collect();
    let mut threads: Vec<Vec<i64>> = (0..profile.threads.len())
        .into_par_iter()
        .map(|thread| {
            let thread = ThreadId::new(thread);
            let lists = pieces.iter().filter_map(|(_, lists)| lists.get(&thread));
            let lists: Vec<&[i64]> = lists.map(Vec::as_slice).collect();
            let mut times = lists.concat();
            if !times.is_sorted() {
                times.sort_unstable();
            }
            times
        })
        .collect();
    pieces.iter().any(|(any, _)| *any).then(|| {
        let mut global = builder.global_threads();
        global.retain(|(_, thread)| thread.idx() < threads.len());
        global
            .into_iter()
            .filter_map(|(global, thread)| {
                Some((global, std::mem::take(threads.get_mut(thread.idx())?)))
            })
            .collect()
    })
}

/// Whether a call may have blocked its thread while the GPU was idle. Any long call may have.
fn may_block(call: &ApiCall) -> bool {
    const LONG_NS: i64 = 1_000_000;
    match call.class {
        ApiClass::Launch | ApiClass::GraphLaunch | ApiClass::SetAsync | ApiClass::Other => {
            call.span.ns() >= LONG_NS
        }
        ApiClass::CopySync
        | ApiClass::CopyAsync
        | ApiClass::SetSync
        | ApiClass::Sync
        | ApiClass::Alloc
        | ApiClass::Free
        | ApiClass::ModuleLoad => true,
    }
}
