//! Copies, sets, whole-graph records, synchronisations, CUDA events and the profiler's own time.

use super::devices::Gpus;
use super::{Pids, enums, process_key};
use crate::profile::{
    CopyKind, CudaEvent, GraphTrace, MemoryCopy, MemoryKind, MemorySet, Overhead, ProcessId,
    SerialNumber, Span, SyncKind, Synchronization,
};
use crate::read::build::{
    Builder, NameKey, Names, Owners, SkippedRows, StringTable, correlation, count32, id32,
};
use crate::read::sqlite::{Cells, Db, Sink};
use crate::read::{Progress, ReadError, columns, each_ints};

pub(super) const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const SETS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
pub(super) const SYNCS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
const EVENTS: &str = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";

/// Reads all of them but the overheads.
pub(super) fn add(
    db: &Db,
    pids: &Pids,
    gpus: &Gpus,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut place = Place {
        pids,
        gpus,
        owners: None,
    };
    copies(db, &mut place, builder, progress)?;
    sets(db, &mut place, builder, progress)?;
    graphs(db, &mut place, builder, progress)?;
    syncs(db, &mut place, builder, progress)?;
    events(db, &mut place, builder, progress)
}

/// Where a GPU record belongs.
struct Place<'a> {
    pids: &'a Pids,
    gpus: &'a Gpus,
    /// Worked out only if a record does not name its process.
    owners: Option<Owners>,
}

impl Place<'_> {
    fn process(
        &mut self,
        builder: &mut Builder,
        global: Option<i64>,
        correlation: Option<SerialNumber>,
    ) -> ProcessId {
        match global {
            Some(global) => self.pids.process(builder, global),
            None => self
                .owners
                .get_or_insert_with(|| builder.owners())
                .of(correlation)
                .unwrap_or_else(|| builder.process(0, || 0)),
        }
    }

    fn device(
        &self,
        builder: &mut Builder,
        global: Option<i64>,
        ordinal: u32,
    ) -> crate::profile::DeviceId {
        builder.device(self.gpus.key(global.map(process_key), ordinal))
    }
}

columns!(
    CopyColumns,
    [
        "start",
        "end",
        "deviceId=0",
        "globalPid",
        "streamId",
        "correlationId",
        "bytes",
        "copyKind",
        "srcKind",
        "dstKind"
    ]
);

fn copies(
    db: &Db,
    place: &mut Place<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let kinds = enums::copy_kinds(db)?;
    let memory = enums::memory_kinds(db)?;
    let mut damage = SkippedRows::default();
    each_ints(db, COPIES, CopyColumns, progress, |row| {
        let [
            start,
            end,
            device,
            global,
            stream,
            id,
            bytes,
            kind,
            src,
            dst,
        ] = row;
        damage.rows += 1;
        let Some(span) = damage.gpu_span(start, end) else {
            return;
        };
        let Some(device) = damage.owner(count32(device)) else {
            return;
        };
        let Some(bytes) = damage.value(bytes.and_then(|b| u64::try_from(b).ok())) else {
            return;
        };
        let correlation = correlation(id);
        let copy = MemoryCopy {
            span,
            device: place.device(builder, global, device),
            process: place.process(builder, global, correlation),
            stream: id32(stream).unwrap_or_default(),
            correlation,
            bytes,
            kind: kinds.of(kind).unwrap_or(CopyKind::Other),
            src: memory.of(src).unwrap_or(MemoryKind::Unknown),
            dst: memory.of(dst).unwrap_or(MemoryKind::Unknown),
        };
        builder.profile.copies.push(copy);
    })?;
    damage.note(&mut builder.profile, "memory copy", "device", "size");
    Ok(())
}

columns!(
    SetColumns,
    [
        "start",
        "end",
        "deviceId=0",
        "globalPid",
        "streamId",
        "correlationId",
        "bytes",
        "memKind"
    ]
);

fn sets(
    db: &Db,
    place: &mut Place<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let memory = enums::memory_kinds(db)?;
    let mut damage = SkippedRows::default();
    each_ints(db, SETS, SetColumns, progress, |row| {
        let [start, end, device, global, stream, id, bytes, kind] = row;
        damage.rows += 1;
        let Some(span) = damage.gpu_span(start, end) else {
            return;
        };
        let Some(device) = damage.owner(count32(device)) else {
            return;
        };
        let Some(bytes) = damage.value(bytes.and_then(|b| u64::try_from(b).ok())) else {
            return;
        };
        let correlation = correlation(id);
        let set = MemorySet {
            span,
            device: place.device(builder, global, device),
            process: place.process(builder, global, correlation),
            stream: id32(stream).unwrap_or_default(),
            correlation,
            bytes,
            mem: memory.of(kind).unwrap_or(MemoryKind::Unknown),
        };
        builder.profile.sets.push(set);
    })?;
    damage.note(&mut builder.profile, "memory set", "device", "size");
    Ok(())
}

columns!(
    GraphColumns,
    [
        "start",
        "end",
        "deviceId=0",
        "globalPid",
        "streamId",
        "correlationId",
        "graphId|graphExecId"
    ]
);

fn graphs(
    db: &Db,
    place: &mut Place<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut damage = SkippedRows::default();
    each_ints(db, GRAPHS, GraphColumns, progress, |row| {
        let [start, end, device, global, stream, id, graph] = row;
        damage.rows += 1;
        let Some(span) = damage.gpu_span(start, end) else {
            return;
        };
        let Some(device) = damage.owner(count32(device)) else {
            return;
        };
        let correlation = correlation(id);
        let trace = GraphTrace {
            span,
            device: place.device(builder, global, device),
            process: place.process(builder, global, correlation),
            stream: id32(stream).unwrap_or_default(),
            correlation,
            graph: graph.map_or(0, i64::cast_unsigned),
        };
        builder.profile.graphs.push(trace);
    })?;
    damage.note(&mut builder.profile, "CUDA graph", "device", "id");
    Ok(())
}

columns!(
    SyncColumns,
    [
        "start",
        "end",
        "globalPid",
        "correlationId",
        "syncType|deprecatedSyncType"
    ]
);

fn syncs(
    db: &Db,
    place: &mut Place<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let kinds = enums::sync_kinds(db)?;
    let mut damage = SkippedRows::default();
    each_ints(db, SYNCS, SyncColumns, progress, |row| {
        let [start, end, global, id, kind] = row;
        damage.rows += 1;
        let Some(span) = damage.span(start, end) else {
            return;
        };
        let correlation = correlation(id);
        let sync = Synchronization {
            span,
            process: place.process(builder, global, correlation),
            correlation,
            kind: kinds.of(kind).unwrap_or(SyncKind::Unknown),
        };
        builder.profile.syncs.push(sync);
    })?;
    builder.ask_calls();
    damage.note(&mut builder.profile, "synchronisation", "process", "type");
    Ok(())
}

columns!(EventColumns, ["deviceId", "globalPid", "correlationId"]);

fn events(
    db: &Db,
    place: &mut Place<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    each_ints(
        db,
        EVENTS,
        EventColumns,
        progress,
        |[device, global, id]| {
            let correlation = correlation(id);
            let event = CudaEvent {
                device: count32(device).map(|d| place.device(builder, global, d)),
                process: place.process(builder, global, correlation),
                correlation,
            };
            builder.profile.events.push(event);
        },
    )?;
    Ok(())
}

/// The profiler's own time in one rowid range.
#[derive(Clone, Default)]
pub(super) struct Overheads {
    pub(super) names: Names,
    rows: Vec<(Span, Option<i64>, NameKey)>,
    damage: SkippedRows,
}

impl Sink for Overheads {
    const COLUMNS: &'static [&'static str] = &["start", "end", "globalTid", "nameId"];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        self.damage.rows += 1;
        let Some(span) = self.damage.span(cells.int(0), cells.int(1)) else {
            return;
        };
        let name = match cells.int(3) {
            Some(id) => self.names.id(id),
            None => self.names.text(cells.bytes(3).unwrap_or_default()),
        };
        self.rows.push((span, cells.int(2), name));
    }
}

/// Nsight's own overhead records, then CUPTI's.
pub(super) fn overheads(db: &Db, progress: &dyn Progress) -> Result<Vec<Overheads>, ReadError> {
    let mut parts = db.scan("PROFILER_OVERHEAD", &Overheads::default(), progress)?;
    parts.extend(db.scan(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        &Overheads::default(),
        progress,
    )?);
    Ok(parts)
}

pub(super) fn add_overheads(
    parts: Vec<Overheads>,
    strings: &StringTable,
    pids: &Pids,
    builder: &mut Builder,
) {
    let mut damage = SkippedRows::default();
    for part in parts {
        damage.add(&part.damage);
        let names = part.names.resolve(strings, &mut builder.profile.strings);
        for (span, global, name) in part.rows {
            let overhead = Overhead {
                span,
                thread: global.map(|global| pids.thread(builder, global)),
                name: names.get(name),
            };
            builder.profile.overheads.push(overhead);
        }
    }
    damage.note(&mut builder.profile, "profiler overhead", "thread", "name");
}
