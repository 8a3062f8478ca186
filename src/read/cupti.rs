//! CUPTI records in databases of Nsight Systems and nvprof: ids, launch configurations, memory copies,
//! memsets and synchronizations. The columns are the same. The differences, owners of activities and
//! numbers of enumerations, are in [`Cupti`].

use super::builder::Builder;
use super::integer_rows::for_each_row;
use super::reader::{Progress, ReadError};
use super::skipped_rows::SkippedRows;
use super::sqlite::Db;
use crate::profile::{
    CaptureId, CopyKind, CorrelationMap, Device, DeviceId, LaunchConfig, MemoryCopy, MemoryKind,
    MemorySet, ProcessId, Profile, SerialNumber, Span, SyncKind, Synchronization,
};

/// How to record a profile with kernels, for either tool: nvprof is no longer developed.
pub(super) const HOW_TO_CAPTURE: &str = "\n  Capture again with CUDA tracing on, while the GPU works:\n    \
     nsys profile -t cuda,nvtx -o net python train.py\n    \
     nsys export --type sqlite -o net.sqlite net.nsys-rep";
/// How to record operators as NVTX ranges.
pub(super) const RECORD_OPERATORS: &str =
    "run the model under `torch.autograd.profiler.emit_nvtx(record_shapes=True)`";

/// The differences between the two tools.
pub(super) trait Cupti: Send {
    /// The process of an activity; `process` is its column, if the file has one.
    fn process(
        &mut self,
        builder: &mut Builder,
        process: Option<i64>,
        correlation: Option<SerialNumber>,
    ) -> ProcessId;
    /// The device with this ordinal in a process.
    fn device(&self, builder: &mut Builder, process: Option<i64>, ordinal: u32) -> DeviceId;
    /// The meaning of `copyKind`.
    fn copy_kind(&self, number: Option<i64>) -> CopyKind;
    /// The meaning of `srcKind`, `dstKind` and `memKind`.
    fn memory_kind(&self, number: Option<i64>) -> MemoryKind;
    /// The capture of the node of a CUDA graph that ran in a process, if both are recorded.
    fn captured(
        &mut self,
        builder: &mut Builder,
        node: Option<i64>,
        process: Option<i64>,
    ) -> Option<CaptureId>;
    /// The meaning of `syncType`.
    fn sync_kind(&self, number: Option<i64>) -> SyncKind;
}

/// What records of work on a GPU have in common.
pub(super) struct GpuRecord {
    pub(super) span: Span,
    pub(super) device: DeviceId,
    pub(super) process: ProcessId,
    pub(super) stream: u32,
    pub(super) correlation: Option<SerialNumber>,
}

impl GpuRecord {
    /// The common part of a row: start, end, device, process, stream and correlation id. `None`, counted in
    /// `skipped`, without a time or a device.
    pub(super) fn read(
        row: [Option<i64>; 6],
        skipped: &mut SkippedRows,
        cupti: &mut dyn Cupti,
        builder: &mut Builder,
    ) -> Option<GpuRecord> {
        let [start, end, ordinal, process, stream, id] = row;
        skipped.rows += 1;
        let span = skipped.gpu_span(start, end)?;
        let ordinal = skipped.owner(count32(ordinal))?;
        let correlation = correlation(id);
        Some(GpuRecord {
            span,
            device: cupti.device(builder, process, ordinal),
            process: cupti.process(builder, process, correlation),
            stream: id32(stream).unwrap_or_default(),
            correlation,
        })
    }
}

const COPY_COLUMNS: [&str; 11] = [
    "start",
    "end",
    "deviceId=0",
    "globalPid",
    "streamId",
    "correlationId",
    "bytes",
    "copyKind",
    "srcKind",
    "dstKind",
    "graphNodeId",
];

/// Adds the memory copies of these tables to the profile.
pub(super) fn copies(
    db: &Db,
    tables: &[&str],
    cupti: &mut dyn Cupti,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut skipped = SkippedRows::default();
    for table in tables {
        for_each_row(db, table, COPY_COLUMNS, progress, |row| {
            let [common @ .., bytes, kind, src, dst, node] = row;
            let [.., process, _, _] = common;
            let Some(common) = GpuRecord::read(common, &mut skipped, cupti, builder) else {
                return;
            };
            let Some(bytes) = skipped.value(count64(bytes)) else {
                return;
            };
            let copy = MemoryCopy {
                span: common.span,
                device: common.device,
                process: common.process,
                stream: common.stream,
                correlation: common.correlation,
                bytes,
                kind: cupti.copy_kind(kind),
                src: cupti.memory_kind(src),
                dst: cupti.memory_kind(dst),
                captured: cupti.captured(builder, node, process),
            };
            builder.profile.copies.push(copy);
        })?;
    }
    skipped.note(&mut builder.profile, "memory copy", "device", "size");
    Ok(())
}

const SET_COLUMNS: [&str; 9] = [
    "start",
    "end",
    "deviceId=0",
    "globalPid",
    "streamId",
    "correlationId",
    "bytes",
    "memKind|memoryKind",
    "graphNodeId",
];

/// Adds the memsets of a table to the profile.
pub(super) fn sets(
    db: &Db,
    table: &str,
    cupti: &mut dyn Cupti,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut skipped = SkippedRows::default();
    for_each_row(db, table, SET_COLUMNS, progress, |row| {
        let [common @ .., bytes, kind, node] = row;
        let [.., process, _, _] = common;
        let Some(common) = GpuRecord::read(common, &mut skipped, cupti, builder) else {
            return;
        };
        let Some(bytes) = skipped.value(count64(bytes)) else {
            return;
        };
        let set = MemorySet {
            span: common.span,
            device: common.device,
            process: common.process,
            stream: common.stream,
            correlation: common.correlation,
            bytes,
            mem: cupti.memory_kind(kind),
            captured: cupti.captured(builder, node, process),
        };
        builder.profile.sets.push(set);
    })?;
    skipped.note(&mut builder.profile, "memory set", "device", "size");
    Ok(())
}

const SYNC_COLUMNS: [&str; 5] = [
    "start",
    "end",
    "globalPid",
    "correlationId",
    "syncType|deprecatedSyncType|type",
];

/// Adds the synchronizations of a table to the profile. The API calls must be in the profile already,
/// because the kind is taken from them if possible.
pub(super) fn syncs(
    db: &Db,
    table: &str,
    cupti: &mut dyn Cupti,
    builder: &mut Builder,
    progress: &dyn Progress,
) -> Result<(), ReadError> {
    let mut skipped = SkippedRows::default();
    for_each_row(db, table, SYNC_COLUMNS, progress, |row| {
        let [start, end, process, id, kind] = row;
        skipped.rows += 1;
        let Some(span) = skipped.span(start, end) else {
            return;
        };
        let correlation = correlation(id);
        let sync = Synchronization {
            span,
            process: cupti.process(builder, process, correlation),
            correlation,
            kind: cupti.sync_kind(kind),
        };
        builder.profile.syncs.push(sync);
    })?;
    take_sync_kinds_from_calls(&mut builder.profile);
    skipped.note(&mut builder.profile, "synchronization", "process", "type");
    Ok(())
}

/// `CUpti_ActivitySynchronizationType` (cupti_activity.h).
pub(super) const SYNC_KINDS: [(i64, SyncKind); 4] = [
    (1, SyncKind::Event),
    (2, SyncKind::StreamWait),
    (3, SyncKind::Stream),
    (4, SyncKind::Context),
];

/// Replaces the kinds of synchronizations by those of their calls, if these have one.
///
/// The call is more reliable than the record: exports of 2024 number the kinds from 0 although their
/// enumeration starts at 1, others classify `cudaStreamWaitEvent` as stream synchronization, and
/// `cudaEventQuery` has a record although it never waits.
pub(super) fn take_sync_kinds_from_calls(profile: &mut Profile) {
    if profile.syncs.is_empty() {
        return;
    }
    let syncs = profile.syncs.iter();
    let mut kinds: CorrelationMap<SyncKind> =
        CorrelationMap::for_numbers(syncs.map(|s| (s.process, s.correlation)));
    let named = profile.strings.iter();
    let named: Vec<Option<SyncKind>> = named.map(|(_, name)| SyncKind::of_call(name)).collect();
    for call in &profile.calls {
        let named = named.get(call.name.idx()).copied().flatten();
        if named.is_some()
            && let Some(kind @ None) = profile.slot_of_call(call, &mut kinds)
        {
            *kind = named;
        }
    }
    for sync in &mut profile.syncs {
        if let Some(kind) = kinds.get(sync.process, sync.correlation) {
            sync.kind = kind;
        }
    }
}

/// An API name without version and default-stream suffixes: `_v7000`, `_v2`, `_ptsz`, `_ptds`.
pub(super) fn unversioned(name: &str) -> &str {
    let mut name = name;
    while let Some((rest, suffix)) = name.rsplit_once('_') {
        let version = suffix
            .strip_prefix('v')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
        if rest.is_empty() || !(version || suffix == "ptsz" || suffix == "ptds") {
            break;
        }
        name = rest;
    }
    name
}

/// A CUPTI id: an unsigned 32-bit number, which some exports store as a signed one.
pub(super) fn id32(value: Option<i64>) -> Option<u32> {
    let value = value?;
    u32::try_from(value)
        .ok()
        .or_else(|| i32::try_from(value).ok().map(i32::cast_unsigned))
}

/// The correlation id of a record. CUPTI counts from 1; 0 means "none".
pub(super) fn correlation(value: Option<i64>) -> Option<SerialNumber> {
    let id = match value? {
        0 => return None,
        id @ ..0 => u64::from(id32(Some(id))?),
        id => id.cast_unsigned(),
    };
    SerialNumber::new(id)
}

/// A count; `None` for a negative or too large one.
pub(super) fn count32(value: Option<i64>) -> Option<u32> {
    value.and_then(|v| u32::try_from(v).ok())
}

/// A launch configuration from ten neighbouring columns, starting at `first`: three of the grid, three
/// of the block, registers per thread, static and dynamic shared memory, local memory per thread.
/// Dimensions that cannot be read are 0.
pub(super) fn launch_config(int: impl Fn(usize) -> Option<i64>, first: usize) -> LaunchConfig {
    let count = |offset: usize| count32(int(first + offset));
    let dim = |offset: usize| count(offset).unwrap_or(0);
    LaunchConfig {
        grid: [dim(0), dim(1), dim(2)],
        block: [dim(3), dim(4), dim(5)],
        registers: count(6),
        static_shared: count(7),
        dynamic_shared: count(8),
        local_per_thread: count(9),
    }
}

/// The description of a GPU: multiprocessors, major and minor compute capability, memory bandwidth and core clock
/// in units of `rate` per second, bytes of L2 cache and of memory, then warps, thread blocks, registers and bytes of
/// shared memory per multiprocessor.
pub(super) fn device(name: Option<String>, numbers: [Option<i64>; 11], rate: f64) -> Device {
    let [
        sms,
        major,
        minor,
        bandwidth,
        clock,
        l2,
        memory,
        warps,
        blocks,
        registers,
        shared,
    ] = numbers;
    let positive = |value: Option<i64>| value.filter(|&v| v > 0);
    let count = |value: Option<i64>| count32(positive(value));
    let bytes = |value: Option<i64>| positive(value).map(i64::cast_unsigned);
    let rate = |value: Option<i64>| positive(value).map(|v| v as f64 * rate);
    Device {
        name,
        compute_capability: count(major).map(|major| (major, count32(minor).unwrap_or(0))),
        sm_count: count(sms),
        bandwidth: rate(bandwidth),
        clock_hz: rate(clock),
        l2_bytes: bytes(l2),
        memory_bytes: bytes(memory),
        max_warps_per_sm: count(warps),
        max_blocks_per_sm: count(blocks),
        registers_per_sm: count(registers),
        shared_per_sm: count(shared),
        ..Device::default()
    }
}

/// The memory that a word names: `Device Static`, `DEVICE_STATIC`.
pub(super) fn memory_kind(word: &str) -> MemoryKind {
    let word = word.trim().to_ascii_uppercase();
    match word.replace(' ', "_").as_str() {
        "PAGEABLE" => MemoryKind::Pageable,
        "PINNED" => MemoryKind::Pinned,
        "DEVICE" | "DEVICE_STATIC" => MemoryKind::Device,
        "MANAGED" | "MANAGED_STATIC" => MemoryKind::Managed,
        "ARRAY" => MemoryKind::Array,
        // `Host` (ROCm) may be pageable or pinned.
        _ => MemoryKind::Unknown,
    }
}

/// The kind of synchronization that a text names: `Stream Wait Event`, `..._STREAM_WAIT_EVENT`.
pub(super) fn sync_kind(name: &str) -> SyncKind {
    let name = name.to_ascii_uppercase().replace(' ', "_");
    let has = |word: &str| name.contains(word);
    if has("WAIT_EVENT") {
        SyncKind::StreamWait
    } else if has("STREAM") {
        SyncKind::Stream
    } else if has("EVENT") {
        SyncKind::Event
    } else if has("CONTEXT") || has("DEVICE") {
        SyncKind::Context
    } else {
        SyncKind::Unknown
    }
}

/// A size in bytes; `None` for a negative one.
fn count64(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_and_unsigned_ids_agree() {
        assert_eq!(id32(Some(-354_666_688)), Some(3_940_300_608));
        assert_eq!(id32(Some(3_940_300_608)), Some(3_940_300_608));
        assert_eq!(id32(Some(1 << 40)), None);
        assert_eq!(correlation(Some(-1)), SerialNumber::new(u32::MAX.into()));
        assert_eq!(correlation(Some(0)), None);
        assert_eq!(correlation(Some(i64::MIN)), None);
    }

    #[test]
    fn stream_waits_do_not_block_the_host() {
        for (name, kind) in [
            ("Stream Wait Event", SyncKind::StreamWait),
            ("Stream Sync", SyncKind::Stream),
            ("Event Sync", SyncKind::Event),
            ("Context Sync", SyncKind::Context),
            ("?", SyncKind::Unknown),
        ] {
            assert_eq!(sync_kind(name), kind, "{name}");
        }
        let of_cupti = "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT";
        assert_eq!(sync_kind(of_cupti), SyncKind::StreamWait);
    }

    #[test]
    fn version_suffixes_of_api_names_are_stripped() {
        for (raw, plain) in [
            ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
            ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
            (
                "cudaGetDeviceProperties_v2_v12000",
                "cudaGetDeviceProperties",
            ),
            ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
            ("cuLaunchKernelEx", "cuLaunchKernelEx"),
            ("a_version", "a_version"),
            ("_v1", "_v1"),
            ("x_v", "x_v"),
        ] {
            assert_eq!(unversioned(raw), plain);
        }
    }
}
