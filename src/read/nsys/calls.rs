//! CUDA runtime and driver calls.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use rustc_hash::FxHashMap;

use super::Pids;
use crate::profile::{ApiCall, ApiClass, IdMap, StrId, ThreadId};
use crate::read::build::{Builder, Distinct, Names, SkippedRows, StringTable, correlation};
use crate::read::sqlite::{Cells, Db, Sink};
use crate::read::{Progress, ReadError, unversioned};

/// The calls of one rowid range. Threads and names in the rows are numbers of its own.
#[derive(Clone, Default)]
struct Part {
    names: Names,
    threads: Distinct<i64>,
    whole_threads: Vec<ThreadId>,
    rows: Vec<ApiCall>,
    damage: SkippedRows,
}

impl Sink for Part {
    const COLUMNS: &'static [&'static str] =
        &["start", "end", "globalTid", "correlationId", "nameId"];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        self.damage.rows += 1;
        let Some(span) = self.damage.span(cells.int(0), cells.int(1)) else {
            return;
        };
        let Some(thread) = self.damage.owner(cells.int(2)) else {
            return;
        };
        let name = match cells.int(4) {
            Some(id) => self.names.id(id),
            None => self.names.text(cells.bytes(4).unwrap_or_default()),
        };
        self.rows.push(ApiCall {
            span,
            thread: ThreadId(self.threads.number(thread)),
            correlation: correlation(cells.int(3)),
            name: name.placeholder(),
            class: ApiClass::Other,
        });
    }
}

/// What the calls in the profile still lack: their names.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) names: Names,
    damage: SkippedRows,
}

impl Calls {
    /// Moves the calls of a table into the profile.
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
        db.stream(table, &Part::default(), progress, |part| {
            self.damage.add(&std::mem::take(&mut part.damage));
            self.names.add(&mut part.names);
            let known = part.whole_threads.len();
            for &global in part.threads.values().iter().skip(known) {
                part.whole_threads.push(pids.thread(builder, global));
            }
            let rows = part.rows.drain(..).filter_map(|row| {
                let thread = *part.whole_threads.get(row.thread.idx())?;
                let name = part.names.whole(row.name);
                Some(ApiCall {
                    thread,
                    name,
                    ..row
                })
            });
            builder.profile.calls.extend(rows);
        })
    }

    /// Names the calls, without version suffix.
    pub(super) fn name(self, strings: &StringTable, builder: &mut Builder) {
        let profile = &mut builder.profile;
        let names = self.names.resolve(strings, &mut profile.strings);
        let mut classes: Vec<Option<(StrId, ApiClass)>> = vec![None; names.places()];
        for call in &mut profile.calls {
            let Some(known) = classes.get_mut(call.name.idx()) else {
                continue;
            };
            (call.name, call.class) = *known.get_or_insert_with(|| {
                let text = unversioned(profile.strings.get(names.of(call.name))).to_owned();
                (profile.strings.intern(&text), ApiClass::of(&text))
            });
        }
        self.damage.note(profile, "API call", "thread", "name");
    }
}

/// When each thread (`globalTid`) made a call that is asked for, in time order: one that launched a
/// kernel, or one that may be blamed for idle time. Every call that shares its correlation id with a
/// kernel of whatever process counts as a launch. `None` where nothing was launched.
pub(super) fn launches(builder: &Builder) -> Option<FxHashMap<i64, Vec<i64>>> {
    const PIECE: usize = 1 << 16;
    let profile = &builder.profile;
    let started = (profile.kernels.iter()).filter_map(|kernel| Some(kernel.correlation?.get()));
    let started: IdMap<()> = IdMap::of(started);
    let launched = |call: &ApiCall| (call.correlation).is_some_and(|id| started.asks(id.get()));
    // Piece by piece on all threads, then put together: lists that grow one by one leave holes.
    let pieces: Vec<(bool, FxHashMap<ThreadId, Vec<i64>>)> = (profile.calls)
        .par_chunks(PIECE)
        .map(|calls| {
            let mut any = false;
            let mut threads: FxHashMap<ThreadId, Vec<i64>> = FxHashMap::default();
            for call in calls {
                let launched = launched(call);
                any |= launched;
                if launched || may_hold(call) {
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

/// Whether a call may be what held its thread up while the GPU was idle. Any call may that takes long.
fn may_hold(call: &ApiCall) -> bool {
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
