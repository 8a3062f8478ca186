//! Databases of nvprof (`nvprof -o net.sql`, Visual Profiler's `.nvvp`): raw CUPTI records, one table
//! per record kind, numbers as in `cupti_activity.h`
//! (<https://docs.nvidia.com/cupti/api/group__CUPTI__ACTIVITY__API.html>).
//!
//! All tables exist even if nothing was recorded. Kernels and copies have no process, calls are numbers
//! without names, and each marker has two rows.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::builder::{Builder, DeviceKey, Owners};
use super::cupti::{self, Cupti, GpuRecord, correlation, count32, id32, launch_config};
use super::integer_rows;
use super::names::StringTable;
use super::pruning::Pruning;
use super::reader::{Input, Progress, ReadError, Reader};
use super::skipped_rows::SkippedRows;
use super::sqlite::{Cells, Db, Sink};
use crate::profile::{
    ApiCall, ApiClass, CaptureId, Container, CopyKind, DeviceId, Format, Kernel, MemoryKind,
    Overhead, ProcessId, Profile, RangeArgs, SerialNumber, SyncKind,
};

mod cbid;
mod devices;
mod markers;

/// Reads databases of nvprof.
pub(super) struct Nvprof;

/// Kernels that ran concurrently, and kernels that were serialized by the profiler.
const KERNELS: [&str; 2] = [
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "CUPTI_ACTIVITY_KIND_KERNEL",
];

/// Copies, then copies between two GPUs, which have a separate table.
const COPIES: [&str; 2] = ["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMCPY2"];
const SETS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const SYNCS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";

/// The format of nvprof databases.
pub static FORMAT: Format = Format {
    id: "nvprof_sqlite",
    name: "nvprof SQLite database",
    ranges: "NVTX ranges",
    container: Container::Sqlite,
    range_args: RangeArgs::Sizes,
    how_to_capture: cupti::HOW_TO_CAPTURE,
    record_operators: cupti::RECORD_OPERATORS,
    name_operators: cupti::RECORD_OPERATORS,
    is_of_pytorch: false,
    has_stacks: false,
    has_graph_captures: false,
    how_to_record: &[],
};

impl Reader for Nvprof {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn recognizes(&self, input: &Input<'_>) -> bool {
        input.has_table("StringTable") && input.has_table_like("CUPTI_ACTIVITY_KIND_")
    }

    fn read(
        &self,
        path: &Path,
        pruning: Option<&dyn Pruning>,
        progress: &dyn Progress,
    ) -> Result<Profile, ReadError> {
        let db = Db::open(path)?;
        db.survey()?;
        let mut builder = Builder::new(&FORMAT, path);
        builder.profile.schema_version = version(&db, progress)?;
        let mut kernels: Vec<[Option<i64>; 18]> = Vec::new();
        for table in KERNELS {
            kernels.extend(integer_rows::rows(&db, table, KERNEL_COLUMNS, progress)?);
        }
        let markers = markers::read(&db, progress)?;
        let devices = devices::Devices::read(&db, progress)?;
        let wanted = kernels
            .iter()
            .filter_map(|row| row[NAME])
            .chain(markers.names())
            .chain(devices.names())
            .collect();
        let strings = StringTable::read(&db, "StringTable", wanted, progress)?;

        calls(&db, &kernels, &mut builder, progress)?;
        let mut records = NvprofRecords {
            owners: builder.owners(),
        };
        add_kernels(kernels, &strings, &mut records, &mut builder);
        cupti::copies(&db, &COPIES, &mut records, &mut builder, progress)?;
        cupti::sets(&db, SETS, &mut records, &mut builder, progress)?;
        cupti::syncs(&db, SYNCS, &mut records, &mut builder, progress)?;
        overheads(&db, &mut builder, progress)?;
        markers.add(&strings, &mut builder);
        devices.add_idle(&mut builder);
        record(&mut builder.profile);
        let mut profile = builder.finish(|key, device| devices.describe(key, &strings, device));
        if let Some(pruning) = pruning {
            pruning.prune(&mut profile);
        }
        Ok(profile)
    }
}

const VERSION_COLUMNS: [&str; 1] = ["version"];

fn version(db: &Db, progress: &dyn Progress) -> Result<Option<String>, ReadError> {
    let rows = integer_rows::rows(db, "Version", VERSION_COLUMNS, progress)?;
    Ok(rows
        .first()
        .and_then(|[version]| *version)
        .map(|version| version.to_string()))
}

const CALL_COLUMNS: [&str; 6] = [
    "start",
    "end",
    "processId",
    "threadId",
    "correlationId",
    "cbid",
];

/// Adds runtime calls, then driver calls. A call that started a kernel is a launch, regardless of its
/// callback id.
fn calls(
    db: &Db,
    kernels: &[[Option<i64>; 18]],
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let launches: FxHashSet<SerialNumber> = kernels
        .iter()
        .filter_map(|row| correlation(row[CORRELATION]))
        .collect();
    let mut skipped = SkippedRows::default();
    for (table, names) in [
        ("CUPTI_ACTIVITY_KIND_RUNTIME", cbid::RUNTIME),
        ("CUPTI_ACTIVITY_KIND_DRIVER", cbid::DRIVER),
    ] {
        for [start, end, process, thread, id, cbid] in
            integer_rows::rows(db, table, CALL_COLUMNS, progress)?
        {
            skipped.rows += 1;
            let Some(span) = skipped.span(start, end) else {
                continue;
            };
            let owner = count32(process).zip(id32(thread));
            let Some((process, thread)) = skipped.owner(owner) else {
                continue;
            };
            let Some(cbid) = skipped.value(count32(cbid)) else {
                continue;
            };
            let correlation = correlation(id);
            let name = names.name(cbid);
            let mut class = ApiClass::of(&name);
            let launches = correlation.is_some_and(|id| launches.contains(&id));
            if class == ApiClass::Other && launches {
                class = ApiClass::Launch;
            }
            let key = i64::from(process);
            let call = ApiCall {
                span,
                thread: builder.thread(key, || u64::from(process), u64::from(thread)),
                correlation,
                name: builder.profile.strings.intern(&name),
                class,
            };
            builder.profile.calls.push(call);
        }
    }
    skipped.note(
        &mut builder.profile,
        "API call",
        "process and thread",
        "callback id",
    );
    Ok(())
}

/// Position in [`KERNEL_COLUMNS`].
const CORRELATION: usize = 5;
/// Position in [`KERNEL_COLUMNS`].
const NAME: usize = 6;

const KERNEL_COLUMNS: [&str; 18] = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "streamId",
    "correlationId",
    "name",
    "graphNodeId",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "localMemoryPerThread",
];

fn add_kernels(
    rows: Vec<[Option<i64>; 18]>,
    strings: &StringTable,
    records: &mut NvprofRecords,
    builder: &mut Builder,
) {
    let mut skipped = SkippedRows::default();
    for row in rows {
        let [start, end, device, context, stream, id, name, node, ..] = row;
        let common = [start, end, device, None, stream, id];
        let Some(common) = GpuRecord::read(common, &mut skipped, records, builder) else {
            continue;
        };
        let config = launch_config(|at| row.get(at).copied().flatten(), 8);
        let name = name.and_then(|id| strings.get(id)).unwrap_or_default();
        let kernel = Kernel {
            span: common.span,
            name: builder.profile.strings.intern(name),
            device: common.device,
            process: common.process,
            stream: common.stream,
            context: id32(context).unwrap_or_default(),
            correlation: common.correlation,
            config: builder.config(config),
            in_graph: node.is_some_and(|node| node != 0),
            captured: None,
        };
        builder.profile.kernels.push(kernel);
    }
    skipped.note(&mut builder.profile, "kernel", "device", "name");
}

/// The context needed to interpret the records of a database. They do not contain their process, and
/// devices are identified by their ordinal alone.
struct NvprofRecords {
    owners: Owners,
}

impl Cupti for NvprofRecords {
    fn process(
        &mut self,
        builder: &mut Builder,
        _process: Option<i64>,
        correlation: Option<SerialNumber>,
    ) -> ProcessId {
        self.owners
            .of(correlation)
            .unwrap_or_else(|| builder.process(0, || 0))
    }

    fn device(&self, builder: &mut Builder, _process: Option<i64>, ordinal: u32) -> DeviceId {
        builder.device(DeviceKey::Ordinal(ordinal))
    }

    /// `CUpti_ActivityMemcpyKind`.
    fn copy_kind(&self, number: Option<i64>) -> CopyKind {
        match number {
            Some(1) => CopyKind::HtoD,
            Some(2) => CopyKind::DtoH,
            Some(8) => CopyKind::DtoD,
            Some(9) => CopyKind::HtoH,
            Some(10) => CopyKind::PtoP,
            _ => CopyKind::Other,
        }
    }

    /// `CUpti_ActivityMemoryKind`; Nsight Systems numbers these differently.
    fn memory_kind(&self, number: Option<i64>) -> MemoryKind {
        match number {
            Some(1) => MemoryKind::Pageable,
            Some(2) => MemoryKind::Pinned,
            Some(3 | 6) => MemoryKind::Device,
            Some(4) => MemoryKind::Array,
            Some(5 | 7) => MemoryKind::Managed,
            _ => MemoryKind::Unknown,
        }
    }

    /// nvprof does not record the nodes of graphs.
    fn captured(
        &mut self,
        _builder: &mut Builder,
        _node: Option<i64>,
        _process: Option<i64>,
    ) -> Option<CaptureId> {
        None
    }

    /// `CUpti_ActivitySynchronizationType`.
    fn sync_kind(&self, number: Option<i64>) -> SyncKind {
        cupti::SYNC_KINDS
            .iter()
            .find(|(known, _)| Some(*known) == number)
            .map_or(SyncKind::Unknown, |(_, kind)| *kind)
    }
}

/// Time spent by the profiler.
#[derive(Clone, Default)]
struct Overheads(Vec<[Option<i64>; 5]>);

const OVERHEAD_COLUMNS: [&str; 5] = ["start", "end", "overheadKind", "objectKind", "objectId"];

impl Sink for Overheads {
    fn row(&mut self, cells: &Cells<'_>) {
        let object = cells.bytes(4).and_then(markers::object);
        self.0.push([
            cells.int(0),
            cells.int(1),
            cells.int(2),
            cells.int(3),
            object,
        ]);
    }
}

fn overheads(db: &Db, builder: &mut Builder, progress: &dyn Progress) -> Result<(), ReadError> {
    let table = "CUPTI_ACTIVITY_KIND_OVERHEAD";
    let parts = db.scan(table, &OVERHEAD_COLUMNS, &Overheads::default(), progress)?;
    let mut skipped = SkippedRows::default();
    for [start, end, kind, object_kind, object] in parts.into_iter().flat_map(|part| part.0) {
        skipped.rows += 1;
        let Some(span) = skipped.span(start, end) else {
            continue;
        };
        // `CUpti_ActivityOverheadKind`.
        let name = match kind {
            Some(1) => "Driver JIT compiler",
            Some(0x1_0000) => "CUPTI buffer flush",
            Some(0x2_0000) => "CUPTI instrumentation",
            Some(0x3_0000) => "CUPTI resource creation and destruction",
            _ => "Unknown",
        };
        let thread = object
            .filter(|_| object_kind == Some(markers::OBJECT_THREAD))
            .map(|object| markers::thread(object, builder));
        let overhead = Overhead {
            span,
            thread,
            name: builder.profile.strings.intern(name),
        };
        builder.profile.overheads.push(overhead);
    }
    skipped.note(&mut builder.profile, "profiler overhead", "thread", "kind");
    Ok(())
}

/// Fills in which data was recorded, and adds notes about how to record missing data.
fn record(profile: &mut Profile) {
    const AGAIN: &str = "capture again with `nvprof -o net.sql python train.py` (or, on newer \
                         GPUs, with `nsys profile -t cuda,nvtx`)";
    let recorded = &mut profile.recorded;
    recorded.kernels = !profile.kernels.is_empty();
    recorded.api_calls = !profile.calls.is_empty();
    recorded.ranges = !profile.ranges.is_empty();
    recorded.copies = recorded.kernels || recorded.api_calls;
    recorded.syncs = recorded.kernels || recorded.api_calls;
    let recorded = *recorded;
    if !recorded.kernels {
        profile.note(
            "kernels_missing",
            format!("The file holds no kernels: nothing ran on the GPU; {AGAIN}."),
        );
    }
    if !recorded.api_calls {
        profile.note(
            "calls_missing",
            format!(
                "The file holds no CUDA API calls, so kernels cannot be tied to the code that \
                 launched them; {AGAIN}."
            ),
        );
    }
    if !recorded.ranges {
        profile.note(
            "ranges_missing",
            "The file holds no markers, so kernels cannot be tied to operators and layers; run \
             the model under `torch.autograd.profiler.emit_nvtx(record_shapes=True)`.",
        );
    }
}
