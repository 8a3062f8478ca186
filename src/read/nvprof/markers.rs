//! NVTX markers: a range is two rows with one id.

use rustc_hash::FxHashMap;

use crate::profile::{HostRange, RangeKind, Span, ThreadId};
use crate::read::builder::{Builder, RangeName};
use crate::read::names::StringTable;
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

/// `CUpti_ActivityFlag` of a marker: a point in time.
const INSTANTANEOUS: i64 = 1;
/// A range begins.
const START: i64 = 2;
/// A range ends.
const END: i64 = 4;

/// `CUpti_ActivityObjectKind`: the object id contains a process and a thread.
pub(super) const OBJECT_THREAD: i64 = 2;
/// The object id contains a process.
const OBJECT_PROCESS: i64 = 1;

/// All markers of a file.
#[derive(Clone, Default)]
pub(super) struct Markers {
    rows: Vec<Row>,
    skipped: SkippedRows,
}

#[derive(Clone, Copy)]
struct Row {
    time: i64,
    flags: i64,
    id: i64,
    /// Process and thread, packed as in the file.
    object: i64,
    /// Id in `StringTable`; 0 means none.
    name: i64,
    domain: i64,
}

const COLUMNS: [&str; 7] = [
    "timestamp",
    "flags",
    "id",
    "objectKind",
    "objectId",
    "name",
    "domain",
];

impl Sink for Markers {
    fn row(&mut self, cells: &Cells<'_>) {
        self.skipped.rows += 1;
        let Some(time) = self.skipped.start(cells.int(0)) else {
            return;
        };
        let object = cells.bytes(4).and_then(object);
        let object = match cells.int(3) {
            Some(OBJECT_THREAD) => object,
            // Only the process half is set.
            Some(OBJECT_PROCESS) => object.map(|o| o & 0xFFFF_FFFF),
            _ => None,
        };
        let Some(object) = self.skipped.owner(object) else {
            return;
        };
        let Some((flags, id)) = self.skipped.value(cells.int(1).zip(cells.int(2))) else {
            return;
        };
        self.rows.push(Row {
            time,
            flags,
            id,
            object,
            name: cells.int(5).unwrap_or(0),
            domain: cells.int(6).unwrap_or(0),
        });
    }
}

/// `CUpti_ActivityObjectKindId`: process and thread as two little-endian 32-bit numbers.
pub(super) fn object(blob: &[u8]) -> Option<i64> {
    blob.get(..8)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i64::from_le_bytes)
}

/// The thread of an object id. `RUNTIME.threadId` is the same 32 bits.
pub(super) fn thread(object: i64, builder: &mut Builder) -> ThreadId {
    let process = object & 0xFFFF_FFFF;
    let thread = object.cast_unsigned() >> 32;
    builder.thread(process, || process.cast_unsigned(), thread)
}

pub(super) fn read(db: &Db, progress: &dyn Progress) -> Result<Markers, ReadError> {
    let mut all = Markers::default();
    for mut part in db.scan(
        "CUPTI_ACTIVITY_KIND_MARKER",
        &COLUMNS,
        &all.clone(),
        progress,
    )? {
        all.rows.append(&mut part.rows);
        all.skipped.add(&part.skipped);
    }
    // Rows are in the order in which buffers were flushed, so an end may precede its start.
    all.rows.sort_by_key(|row| row.time);
    Ok(all)
}

impl Markers {
    /// Ids of `StringTable`.
    pub(super) fn names(&self) -> impl Iterator<Item = i64> {
        self.rows.iter().flat_map(|row| [row.name, row.domain])
    }

    /// Pairs the rows and moves the ranges into the profile. Ranges without an end stay open.
    pub(super) fn add(self, strings: &StringTable, builder: &mut Builder) {
        // By (process, id), the open ranges, innermost last.
        let mut open: FxHashMap<(i64, i64), Vec<usize>> = FxHashMap::default();
        let mut unopened = 0_u64;
        for row in &self.rows {
            let key = (row.object & 0xFFFF_FFFF, row.id);
            if row.flags & END != 0 {
                let range = open
                    .get_mut(&key)
                    .and_then(Vec::pop)
                    .and_then(|at| builder.profile.ranges.get_mut(at));
                match range {
                    Some(range) => range.span.end = row.time,
                    None => unopened += 1,
                }
            } else if row.flags & (START | INSTANTANEOUS) != 0 {
                if row.flags & START != 0 {
                    open.entry(key)
                        .or_default()
                        .push(builder.profile.ranges.len());
                }
                let range = row.range(strings, builder);
                builder.profile.ranges.push(range);
            }
        }
        if unopened > 0 {
            builder.profile.note(
                "rows_skipped",
                format!(
                    "{} marker rows end a range that never began in this file.",
                    crate::base::units::count(unopened)
                ),
            );
        }
        self.skipped
            .note(&mut builder.profile, "marker", "process and thread", "id");
    }
}

impl Row {
    fn range(&self, strings: &StringTable, builder: &mut Builder) -> HostRange {
        let mark = self.flags & START == 0;
        let text = |id: i64| strings.get(id).filter(|_| id != 0);
        let thread = thread(self.object, builder);
        let names = &mut builder.profile.strings;
        let name = RangeName::split(text(self.name).unwrap_or_default(), names);
        HostRange {
            span: Span {
                start: self.time,
                end: if mark { self.time } else { i64::MAX },
            },
            thread,
            kind: if mark {
                RangeKind::Mark
            } else {
                RangeKind::PushPop
            },
            text: name.text,
            domain: text(self.domain).map(|domain| names.intern(domain)),
            seq: name.seq,
            op_id: name.op_id,
            args: name.args,
        }
    }
}
