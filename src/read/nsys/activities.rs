//! Copies, memsets, whole-graph records, synchronizations and profiler overhead.

use super::devices::Gpus;
use super::enums::{self, Enumeration};
use super::graph_nodes::GraphNodes;
use super::{Pids, process_key};
use crate::profile::{
    CaptureId, CopyKind, DeviceId, GraphTrace, MemoryKind, Overhead, ProcessId, SerialNumber, Span,
    SyncKind,
};
use crate::read::builder::{Builder, Owners};
use crate::read::cupti::{self, Cupti, GpuRecord};
use crate::read::integer_rows::for_each_row;
use crate::read::names::{PartName, PartNames, StringTable};
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

pub(super) const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const SETS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
pub(super) const SYNCS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";

/// Adds all of them except the overheads to the profile.
pub(super) fn add(
    db: &Db,
    records: &mut NsysRecords<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    cupti::copies(db, &[COPIES], records, builder, progress)?;
    cupti::sets(db, SETS, records, builder, progress)?;
    graphs(db, records, builder, progress)?;
    cupti::syncs(db, SYNCS, records, builder, progress)
}

/// The context needed to interpret the records of an export.
pub(super) struct NsysRecords<'a> {
    pids: &'a Pids,
    gpus: &'a Gpus,
    nodes: GraphNodes,
    /// Built when the first record does not contain its process.
    owners: Option<Owners>,
    copy_kinds: Enumeration<CopyKind>,
    memory_kinds: Enumeration<MemoryKind>,
    sync_kinds: Enumeration<SyncKind>,
}

impl<'a> NsysRecords<'a> {
    /// The API calls must be in the profile before the first record is read: in exports without `globalPid`, only
    /// the correlation id identifies its process.
    pub(super) fn of(
        db: &Db,
        pids: &'a Pids,
        gpus: &'a Gpus,
        nodes: GraphNodes,
    ) -> Result<NsysRecords<'a>, ReadError> {
        Ok(NsysRecords {
            pids,
            gpus,
            nodes,
            owners: None,
            copy_kinds: enums::copy_kinds(db)?,
            memory_kinds: enums::memory_kinds(db)?,
            sync_kinds: enums::sync_kinds(db)?,
        })
    }
}

impl Cupti for NsysRecords<'_> {
    fn process(
        &mut self,
        builder: &mut Builder,
        process: Option<i64>,
        correlation: Option<SerialNumber>,
    ) -> ProcessId {
        match process {
            Some(global) => self.pids.process(builder, global),
            None => self
                .owners
                .get_or_insert_with(|| builder.owners())
                .of(correlation)
                .unwrap_or_else(|| builder.process(0, || 0)),
        }
    }

    fn device(&self, builder: &mut Builder, process: Option<i64>, ordinal: u32) -> DeviceId {
        builder.device(self.gpus.key(process.map(process_key), ordinal))
    }

    fn copy_kind(&self, number: Option<i64>) -> CopyKind {
        self.copy_kinds.of(number).unwrap_or(CopyKind::Other)
    }

    fn memory_kind(&self, number: Option<i64>) -> MemoryKind {
        self.memory_kinds.of(number).unwrap_or(MemoryKind::Unknown)
    }

    fn captured(
        &mut self,
        builder: &mut Builder,
        node: Option<i64>,
        process: Option<i64>,
    ) -> Option<CaptureId> {
        self.nodes.capture(node?, process?, self.pids, builder)
    }

    fn sync_kind(&self, number: Option<i64>) -> SyncKind {
        self.sync_kinds.of(number).unwrap_or(SyncKind::Unknown)
    }
}

const GRAPH_COLUMNS: [&str; 7] = [
    "start",
    "end",
    "deviceId=0",
    "globalPid",
    "streamId",
    "correlationId",
    "graphExecId",
];

fn graphs(
    db: &Db,
    records: &mut NsysRecords<'_>,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut skipped = SkippedRows::default();
    for_each_row(db, GRAPHS, GRAPH_COLUMNS, progress, |row| {
        let [common @ .., exec] = row;
        if let Some(common) = GpuRecord::read(common, &mut skipped, records, builder) {
            builder.profile.graphs.push(GraphTrace {
                exec: exec.and_then(|id| u32::try_from(id).ok()),
                span: common.span,
                device: common.device,
                process: common.process,
                correlation: common.correlation,
            });
        }
    })?;
    skipped.note(&mut builder.profile, "CUDA graph", "device", "id");
    Ok(())
}

/// The overhead records of one part of a table.
#[derive(Clone, Default)]
pub(super) struct Overheads {
    names: PartNames,
    rows: Vec<(Span, Option<i64>, PartName)>,
    skipped: SkippedRows,
}

const OVERHEAD_COLUMNS: [&str; 4] = ["start", "end", "globalTid", "nameId"];

impl Sink for Overheads {
    fn row(&mut self, cells: &Cells<'_>) {
        self.skipped.rows += 1;
        let Some(span) = self.skipped.span(cells.int(0), cells.int(1)) else {
            return;
        };
        let name = self.names.of_cell(cells, 3);
        self.rows.push((span, cells.int(2), name));
    }
}

impl Overheads {
    /// Ids of the string table.
    pub(super) fn name_ids(&self) -> impl Iterator<Item = i64> {
        self.names.ids()
    }
}

/// The overhead records of Nsight Systems itself, then those of CUPTI.
pub(super) fn overheads(db: &Db, progress: &dyn Progress) -> Result<Vec<Overheads>, ReadError> {
    let mut parts = Vec::new();
    for table in ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"] {
        parts.extend(db.scan(table, &OVERHEAD_COLUMNS, &Overheads::default(), progress)?);
    }
    Ok(parts)
}

/// Names the overhead records and adds them to the profile.
pub(super) fn add_overheads(
    parts: Vec<Overheads>,
    strings: &StringTable,
    pids: &Pids,
    builder: &mut Builder,
) {
    let mut skipped = SkippedRows::default();
    for part in parts {
        skipped.add(&part.skipped);
        let names = part.names.resolve(strings, &mut builder.profile.strings);
        for (span, global, name) in part.rows {
            let Some(name) = names.get(name) else {
                continue;
            };
            let overhead = Overhead {
                span,
                thread: global.map(|global| pids.thread(builder, global)),
                name,
            };
            builder.profile.overheads.push(overhead);
        }
    }
    skipped.note(&mut builder.profile, "profiler overhead", "thread", "name");
}
