//! The readers on real profiles (below the folder named by `PYPROF_ADVISE_SHARED`) and on small
//! databases built here, most of which have one defect.

use std::path::{Path, PathBuf};

use pyprof_advise::correlate::UnneededRanges;
use pyprof_advise::profile::{
    ApiClass, CopyKind, Kernel, MemoryKind, Profile, RangeKind, SerialNumber, SyncKind,
};
use pyprof_advise::read::{self, NoProgress, ReadError};
use rusqlite::Connection;

mod functions_trace;
mod graph_nodes;
mod host;
mod nccl;
mod read_only;
mod real;

// ---------------------------------------------------------------------------- building databases

struct Built {
    dir: tempfile::TempDir,
    path: PathBuf,
}

fn build(name: &str, sql: &str) -> Built {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    Built { dir, path }
}

fn open(path: &Path) -> Result<Profile, ReadError> {
    read::open(path, &NoProgress)
}

fn open_pruned(path: &Path) -> Result<Profile, ReadError> {
    read::open_pruned(path, &UnneededRanges, &NoProgress)
}

fn text(profile: &Profile, id: pyprof_advise::profile::StrId) -> &str {
    profile.text(id)
}

fn note<'a>(profile: &'a Profile, code: &str) -> Option<&'a str> {
    profile
        .notes
        .iter()
        .find(|n| n.code == code)
        .map(|n| n.text.as_str())
}

const PID: i64 = (1 << 56) | (4242 << 24);
const TID: i64 = PID | 4243;

/// One launch, one kernel, one range around the launch.
fn small() -> String {
    format!(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         INSERT INTO StringIds VALUES (1, 'void gemm<float>(int)'), (2, 'cudaLaunchKernel_v7000'),
             (3, 'aten::mm, seq = 5, op_id = 9, sizes = [[2, 3], [3, 4]]');
         CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
         INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2024.2.1.106'),
             ('EXPORT_SCHEMA_VERSION', '3.11.1');
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
             globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 200, 0, {TID}, 7, 2, 0);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
             contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
             demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
             blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER,
             staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
             localMemoryPerThread INTEGER, graphNodeId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (300, 450, 0, 1, 7, 7, {PID}, 1, 1,
             8, 2, 1, 128, 1, 1, 40, 0, 4096, 0, NULL);
         CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
             globalTid INTEGER, textId INTEGER, domainId INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (50, 250, 59, NULL, {TID}, 3, 0);"
    )
}

fn with(sql: &str) -> Built {
    build("net.sqlite", &format!("{}\n{sql}", small()))
}

/// Every file of a folder with its bytes.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

// --------------------------------------------------------------------------- valid nsys exports

#[test]
fn small_export_is_read_completely() {
    let built = with("");
    let before = content(built.dir.path());
    let p = open(&built.path).unwrap();
    assert_eq!(p.format.id, "nsys_sqlite");
    assert_eq!(p.tool_version.as_deref(), Some("2024.2.1.106"));
    assert_eq!(p.schema_version.as_deref(), Some("3.11.1"));
    assert_eq!(p.file_bytes, before[0].1.len() as u64);

    let [kernel] = p.kernels.as_slice() else {
        panic!("one kernel")
    };
    assert_eq!(text(&p, kernel.name), "void gemm<float>(int)");
    assert_eq!((kernel.span.start, kernel.span.end), (300, 450));
    assert_eq!(
        (kernel.stream, kernel.context, kernel.correlation),
        (7, 1, SerialNumber::new(7))
    );
    assert!(!kernel.in_graph);
    let config = p.config(kernel);
    assert_eq!((config.grid, config.block), ([8, 2, 1], [128, 1, 1]));
    assert_eq!(
        (config.registers, config.dynamic_shared),
        (Some(40), Some(4096))
    );

    let [call] = p.calls.as_slice() else {
        panic!("one call")
    };
    assert_eq!(text(&p, call.name), "cudaLaunchKernel");
    assert_eq!(
        (call.class, call.correlation),
        (ApiClass::Launch, SerialNumber::new(7))
    );
    let thread = &p.threads[call.thread.idx()];
    assert_eq!((thread.tid, thread.process), (4243, kernel.process));
    assert_eq!(p.processes[kernel.process.idx()].pid, 4242);

    let [range] = p.ranges.as_slice() else {
        panic!("one range")
    };
    assert_eq!(text(&p, range.text), "aten::mm");
    assert_eq!(
        (range.seq, range.op_id),
        (SerialNumber::new(5), SerialNumber::new(9))
    );
    assert_eq!(text(&p, range.args.unwrap()), "[[2, 3], [3, 4]]");
    assert_eq!(range.thread, call.thread);

    assert_eq!(p.devices.len(), 1);
    assert!(p.recorded.kernels && p.recorded.api_calls && p.recorded.ranges);
    assert!(!p.recorded.environment);
    assert_eq!(p.notes, []);
    assert!(
        content(built.dir.path()) == before,
        "changed or created a file"
    );
}

#[test]
fn names_in_rows_and_missing_columns_are_accepted() {
    let built = build(
        "old.sqlite",
        &format!(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, streamId, correlationId,
                 shortName);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (30, 40, 7, 1, 'b'), (10, 20, 7, 2, 'a');
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId,
                 nameId);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, {TID}, 1,
                 'cudaLaunchKernel_v7000');
             CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (start, end, globalTid, correlationId, nameId);
             INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES (0, 2, {TID}, 9, 'cuCtxSynchronize');"
        ),
    );
    let p = open(&built.path).unwrap();
    let names: Vec<&str> = p.kernels.iter().map(|k| text(&p, k.name)).collect();
    assert_eq!(names, ["a", "b"], "sorted by start");
    assert_eq!(p.processes.len(), 1, "kernels belong to the only process");
    assert_eq!(p.config(&p.kernels[0]).registers, None);
    assert_eq!((p.devices.len(), p.devices[0].ordinal), (1, 0));
    let calls: Vec<_> = p
        .calls
        .iter()
        .map(|c| (text(&p, c.name), c.class))
        .collect();
    assert_eq!(
        calls,
        [
            ("cuCtxSynchronize", ApiClass::Sync),
            ("cudaLaunchKernel", ApiClass::Launch)
        ]
    );
    assert!(note(&p, "ranges_missing").unwrap().contains("emit_nvtx"));
}

const COPIES: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER,
     deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
     copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);";

#[test]
fn enumerations_of_the_export_take_precedence() {
    let built = with(&format!(
        "CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
         INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', ''),
             (1, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', ''), (9, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', '');
         CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
         INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (5, 'CUDA_MEMCPY_KIND_HTOD', ''),
             (6, 'CUDA_MEMCPY_KIND_UVM_HTOD', '');
         CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER, name TEXT, label TEXT);
         INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES (1, 'NvtxPushPopRange', ''), (2, 'NvtxMark', '');
         {COPIES}
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0, 7, 1, {PID}, 64, 5, 0, 9),
             (3, 4, 0, 7, 2, {PID}, 32, 6, 1, 2);
         INSERT INTO NVTX_EVENTS VALUES (1, 5, 1, 'a', {TID}, NULL, 0),
             (2, NULL, 2, 'b', {TID}, NULL, 0);"
    ));
    let p = open(&built.path).unwrap();
    let copies: Vec<_> = p.copies.iter().map(|c| (c.kind, c.src, c.dst)).collect();
    assert_eq!(
        copies,
        [
            (CopyKind::HtoD, MemoryKind::Pinned, MemoryKind::Device),
            (CopyKind::Other, MemoryKind::Pageable, MemoryKind::Unknown)
        ]
    );
    // 59 is undefined in this export.
    let ranges: Vec<_> = p
        .ranges
        .iter()
        .map(|r| (text(&p, r.text), r.kind))
        .collect();
    assert_eq!(ranges, [("a", RangeKind::PushPop), ("b", RangeKind::Mark)]);
    assert_eq!(p.ranges[1].span.ns(), 0);
}

#[test]
fn documented_numbers_apply_without_enumerations() {
    let built = with(&format!(
        "{COPIES}
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 2, 0, 7, 1, {PID}, 64, 1, 0, 2);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
             memKind INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (1, 2, 0, 7, 1, {PID}, 8, 1);"
    ));
    let p = open(&built.path).unwrap();
    let copy = p.copies[0];
    assert_eq!(
        (copy.kind, copy.src, copy.dst),
        (CopyKind::HtoD, MemoryKind::Pageable, MemoryKind::Device)
    );
    assert_eq!(p.sets[0].mem, MemoryKind::Pinned);
}

#[test]
fn domains_are_named_and_open_ranges_stay_open() {
    let built = with(&format!(
        "INSERT INTO NVTX_EVENTS VALUES
             (1, NULL, 75, 'NCCL', {TID}, NULL, 1),
             (60, NULL, 59, 'open', {TID}, NULL, 0),
             (70, 80, 60, 'aten::all, op_id = 3', {TID}, NULL, 1),
             (75, 78, 59, 'nameless', {TID}, NULL, 2),
             (76, NULL, 39, 'a thread name', {TID}, NULL, 0),
             (90, 80, 59, 'backwards', {TID}, NULL, 0);"
    ));
    let p = open(&built.path).unwrap();
    let found: Vec<_> = p
        .ranges
        .iter()
        .map(|r| (text(&p, r.text), r.kind, r.domain.map(|d| text(&p, d))))
        .collect();
    assert_eq!(
        found,
        [
            ("aten::mm", RangeKind::PushPop, None),
            ("open", RangeKind::PushPop, None),
            ("aten::all", RangeKind::StartEnd, Some("NCCL")),
            ("nameless", RangeKind::PushPop, Some("domain 2")),
            ("backwards", RangeKind::PushPop, None),
        ]
    );
    assert_eq!(p.ranges[1].span.end, i64::MAX);
    assert_eq!((p.ranges[4].span.start, p.ranges[4].span.ns()), (90, 0));
    assert_eq!(
        note(&p, "reversed_times"),
        Some("1 of 5 NVTX rows end before they start; they are kept with a length of zero.")
    );
}

#[test]
fn text_that_is_not_utf8_is_read() {
    let built = with(&format!(
        "INSERT INTO NVTX_EVENTS VALUES (60, 70, 59, CAST(X'C3FF41' AS TEXT), {TID}, NULL, 0);
         UPDATE StringIds SET value = CAST(X'FE6B' AS TEXT) WHERE id = 1;
         INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_TIME_LOCAL', CAST(X'FFFE' AS TEXT));"
    ));
    let p = open(&built.path).unwrap();
    assert!(text(&p, p.ranges[1].text).ends_with('A'));
    assert!(text(&p, p.kernels[0].name).ends_with('k'));
}

#[test]
fn utf16_databases_read_equal() {
    let built = build(
        "wide.sqlite",
        &format!("PRAGMA encoding = 'UTF-16le';\n{}", small()),
    );
    let p = open(&built.path).unwrap();
    assert_eq!(text(&p, p.ranges[0].text), "aten::mm");
    assert_eq!(text(&p, p.calls[0].name), "cudaLaunchKernel");
}

#[test]
fn rows_with_damaged_values_are_skipped_and_counted() {
    let columns = "start, end, deviceId, streamId, correlationId, globalPid, demangledName";
    let built = with(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL ({columns}) VALUES
             (NULL, 9, 0, 7, 1, {PID}, 1), ('soon', 9, 0, 7, 1, {PID}, 1),
             (9223372036854775807, 9223372036854775807, 0, 7, 1, {PID}, 1),
             (1, 'late', 0, 7, 1, {PID}, 1), (1, 9000000000000000000, 0, 7, 1, {PID}, 1),
             (1, 2, -1, 7, 1, {PID}, 1), (0, 0, 0, 7, 1, {PID}, 1),
             (-50, -40, 0, 7, 1, {PID}, 99), (20, 10, 0, X'00', 'x', {PID}, 1);"
    ));
    let p = open(&built.path).unwrap();
    let kept: Vec<_> = p
        .kernels
        .iter()
        .map(|k| (k.span.start, k.span.ns(), text(&p, k.name)))
        .collect();
    assert_eq!(
        kept,
        [
            (-50, 10, "string 99"),
            (20, 0, "void gemm<float>(int)"),
            (300, 150, "void gemm<float>(int)")
        ]
    );
    let skipped: Vec<&str> = p
        .notes
        .iter()
        .filter(|n| n.code == "rows_skipped")
        .map(|n| n.text.as_str())
        .collect();
    assert_eq!(
        skipped,
        [
            "3 of 10 kernel rows had no readable start time and were skipped.",
            "2 of 10 kernel rows had no readable end time and were skipped.",
            "1 of 10 kernel rows had no readable device and were skipped.",
            "1 of 10 kernel rows were skipped: the profiler could not collect their times.",
        ]
    );
}

#[test]
fn processes_are_distinguished_and_gpus_are_mapped() {
    let other = (1_i64 << 56) | (4300 << 24);
    let built = with(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId,
             globalPid, demangledName, graphNodeId)
             VALUES (310, 320, 0, 7, 7, {other}, 1, 12);
         CREATE TABLE TARGET_INFO_GPU (id INTEGER, cuDevice INTEGER, name TEXT, isDiscrete INTEGER,
             smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER, smMajor INTEGER,
             memoryBandwidth INTEGER);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'headless', 1, 0, 0, 0, 0, 0),
             (1, 1, 'A', 1, 108, 8, 0, 9, 1555200000000), (2, 0, 'B', 1, 132, 9, 0, 1, 0),
             (3, 2, 'onboard', 0, 20, 8, 6, 8, 5);
         CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
         INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 4242), (2, 0, 4300);"
    ));
    let p = open(&built.path).unwrap();
    assert_ne!(p.kernels[0].process, p.kernels[1].process);
    assert_ne!(p.kernels[0].device, p.kernels[1].device);
    assert!(!p.kernels[0].in_graph && p.kernels[1].in_graph);
    let device = |at: usize| &p.devices[p.kernels[at].device.idx()];
    assert_eq!(device(0).name.as_deref(), Some("A"));
    assert_eq!(device(0).compute_capability, Some((8, 0)));
    assert_eq!(device(0).bandwidth, Some(1_555_200_000_000.0));
    assert_eq!(device(1).name.as_deref(), Some("B"));
    assert_eq!(device(1).bandwidth, None);
    assert_eq!(
        p.listed_gpus, 2,
        "neither the headless nor the integrated one"
    );
    let ordinals: Vec<u32> = p.devices.iter().map(|d| d.ordinal).collect();
    assert_eq!(ordinals, [1, 2], "both are 0 to their process");
}

#[test]
fn rows_refer_to_cuda_ordinals_not_gpu_ids() {
    let built = with(
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, cuDevice INTEGER, name TEXT, smCount INTEGER);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'wrong', 1), (1, 0, 'right', 2);",
    );
    let p = open(&built.path).unwrap();
    assert_eq!(p.devices.len(), 1);
    assert_eq!(p.devices[0].name.as_deref(), Some("right"));
}

#[test]
fn synchronization_kinds_follow_their_calls() {
    let built = with(&format!(
        "INSERT INTO StringIds VALUES (10, 'cudaDeviceSynchronize_v3020'),
             (11, 'cudaStreamWaitEvent_v3020'), (12, 'cudaEventQuery_v3020');
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (500, 600, 0, {TID}, 20, 10, 0),
             (610, 620, 0, {TID}, 21, 11, 0), (630, 640, 0, {TID}, 22, 12, 0);
         CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER,
             correlationId INTEGER, globalPid INTEGER, syncType INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (505, 590, 20, {PID}, 0),
             (611, 612, 21, {PID}, 3), (631, 632, 22, {PID}, 1), (700, 710, 99, {PID}, 3);"
    ));
    let p = open(&built.path).unwrap();
    let kinds: Vec<SyncKind> = p.syncs.iter().map(|s| s.kind).collect();
    assert_eq!(
        kinds,
        [
            SyncKind::Context,
            SyncKind::StreamWait,
            SyncKind::Unknown,
            SyncKind::Stream
        ]
    );
}

#[test]
fn whole_graphs_overheads_and_the_environment_are_seen() {
    let built = build(
        "graphs.sqlite",
        &format!(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
             INSERT INTO StringIds VALUES (1, 'CUPTI Buffer flush'), (2, 'SECRET=hunter2');
             CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER,
                 deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
                 graphId INTEGER, graphExecId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (10, 90, 0, 7, 3, {PID}, 4, 5);
             CREATE TABLE PROFILER_OVERHEAD (start INTEGER, end INTEGER, globalTid INTEGER,
                 nameId INTEGER);
             INSERT INTO PROFILER_OVERHEAD VALUES (1, 2, {TID}, 1);
             CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, name TEXT, value TEXT);
             INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'x', 'SECRET=hunter2');
             CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
             INSERT INTO META_DATA_CAPTURE VALUES ('DEVICE_TYPE', 'Windows');"
        ),
    );
    let p = open(&built.path).unwrap();
    assert_eq!((p.kernels.len(), p.graphs.len()), (0, 1));
    assert_eq!(p.graphs[0].exec, Some(5));
    assert!(!p.recorded.kernels);
    assert!(p.recorded.environment && p.recorded.windows);
    assert_eq!(text(&p, p.overheads[0].name), "CUPTI Buffer flush");
    for code in [
        "kernels_missing",
        "calls_missing",
        "graphs_whole",
        "environment_block",
    ] {
        assert!(note(&p, code).is_some(), "{code}");
    }
    assert!(
        !format!("{p:?}").contains("hunter2"),
        "environment values are never read"
    );
}

#[test]
fn sparse_row_numbers_are_accepted() {
    let built = with(&format!(
        "INSERT INTO NVTX_EVENTS (rowid, start, end, eventType, text, globalTid)
             VALUES ({}, 60, 70, 59, 'last', {TID}), ({}, 20, 30, 59, 'first', {TID});",
        i64::MAX,
        i64::MIN
    ));
    let p = open(&built.path).unwrap();
    let ranges: Vec<&str> = p.ranges.iter().map(|r| text(&p, r.text)).collect();
    assert_eq!(ranges, ["first", "aten::mm", "last"]);
}

#[test]
fn numbered_operators_are_kept_if_a_launching_node_has_their_number() {
    let sql = format!(
        "DELETE FROM NVTX_EVENTS;
         INSERT INTO NVTX_EVENTS VALUES
             (0, 1, 59, 'first', {TID}, NULL, 0),
             (2, 3, 59, 'aten::view, seq = 1, op_id = 1', {TID}, NULL, 0),
             (10, 11, 59, 'aten::view, seq = 5, op_id = 2', {TID}, NULL, 0),
             (12, 13, 59, 'aten::view, seq = 6, op_id = 3', {TID}, NULL, 0),
             (14, 15, 59, 'aten::view, seq = 7, op_id = 4', {TID}, NULL, 0),
             (50, 250, 59, 'ViewBackward0, seq = 5, op_id = 5', {TID}, NULL, 0),
             (260, 270, 59, 'ViewBackward0, seq = 6, op_id = 6', {TID}, NULL, 0),
             (300, 301, 59, 'last', {TID}, NULL, 0);"
    );
    let built = with(&sql);
    let p = open_pruned(&built.path).unwrap();
    let starts: Vec<i64> = p.ranges.iter().map(|r| r.span.start).collect();
    // The first range of each kind is always kept.
    assert_eq!(starts, [0, 2, 10, 50, 260, 300]);
    assert_eq!(p.pruned_ranges, 2);

    // A registered text may be that of a node, in which case all are kept.
    let registered =
        format!("{sql} INSERT INTO NVTX_EVENTS VALUES (310, 320, 59, NULL, {TID}, 3, 0);");
    let p = open_pruned(&with(&registered).path).unwrap();
    assert_eq!((p.ranges.len(), p.pruned_ranges), (9, 0));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let built = with(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId,
             globalPid, demangledName, gridX)
             SELECT 1000 + (i * 7919) % 100003, 200000, i % 3, 7, i, {PID}, 1, i % 11 FROM n;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
         INSERT INTO NVTX_EVENTS SELECT 1000 + i, 2000 + i, 59,
             'op_' || (i % 500) || ', op_id = ' || i, {TID} + i % 5, NULL, 0 FROM n;
         DELETE FROM NVTX_EVENTS WHERE rowid % 10 = 3;"
    ));
    let run = |threads: usize| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(|| open_pruned(&built.path).unwrap())
    };
    let (one, four) = (run(1), run(4));
    assert_eq!(one.kernels.len(), 150_001);
    assert_eq!(one.ranges.len(), 135_001);
    assert!(one.kernels.is_sorted_by_key(|k| k.span.start));
    let order = |k: &Kernel| (k.span.start, k.correlation.map(SerialNumber::get));
    let ties_in_file_order = one.kernels.is_sorted_by_key(order);
    assert!(ties_in_file_order);
    assert_eq!(format!("{one:?}"), format!("{four:?}"));
}

// ----------------------------------------------------------------------------------------- nvprof

/// A CUPTI object id as an SQL literal.
fn object(process: u32, thread: u32) -> String {
    let bytes = [process, thread, 0].map(u32::to_le_bytes).concat();
    let hex: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
    format!("X'{hex}'")
}

fn nvprof_database() -> Built {
    let thread = 0xEADC_3740_u32;
    let signed = thread.cast_signed();
    let at = object(15938, thread);
    build(
        "net.sql",
        &format!(
            "CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT);
             INSERT INTO StringTable VALUES (0, '-- null --'), (1, 'volta_sgemm_128x64_nn'),
                 (2, 'Tesla V100'), (3, 'mm, seq = 4'), (4, 'my domain');
             CREATE TABLE Version (version INTEGER);
             INSERT INTO Version VALUES (12);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (_id_ INTEGER PRIMARY KEY, start INT, end INT);
             CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY,
                 start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,
                 name INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT,
                 registersPerThread INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES
                 (1, 500, 600, 0, 1, 7, 11, 1, 4, 1, 1, 64, 1, 1, 32),
                 (2, 700, 800, 0, 1, 7, 12, 1, 4, 1, 1, 64, 1, 1, 32);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER PRIMARY KEY, cbid INT,
                 start INT, end INT, processId INT, threadId INT, correlationId INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                 (1, 211, 100, 110, 15938, {signed}, 11), (2, 9999, 120, 130, 15938, {signed}, 12),
                 (3, 9998, 140, 150, 15938, {signed}, 13), (4, 131, 160, 900, 15938, {signed}, 14);
             CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (_id_ INTEGER PRIMARY KEY, type INT,
                 start INT, end INT, correlationId INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1, 3, 161, 899, 14);
             CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (_id_ INTEGER PRIMARY KEY, copyKind INT,
                 srcKind INT, dstKind INT, bytes INT, start INT, end INT, deviceId INT,
                 streamId INT, correlationId INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 1, 1, 3, 64, 10, 20, 0, 7, 3);
             CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE (id INT, name INT, numMultiprocessors INT,
                 computeCapabilityMajor INT, computeCapabilityMinor INT,
                 globalMemoryBandwidth INT, coreClockRate INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE VALUES (0, 2, 80, 7, 0, 898048000, 1530000);
             CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD (overheadKind INT, objectKind INT,
                 objectId BLOB, start INT, end INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD VALUES (65536, 2, {at}, 1, 2),
                 (131072, 1, {at}, 3, 4);
             CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (_id_ INTEGER PRIMARY KEY, flags INT,
                 timestamp INT, id INT, objectKind INT, objectId BLOB, name INT, domain INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES
                 (1, 4, 115, 1, 2, {at}, 0, 0), (2, 2, 90, 1, 2, {at}, 3, 4),
                 (3, 2, 95, 2, 2, {at}, 3, 0), (4, 1, 96, 3, 2, {at}, 1, 0),
                 (5, 4, 97, 8, 2, {at}, 0, 0);"
        ),
    )
}

#[test]
fn nvprof_database_is_read_completely() {
    let built = nvprof_database();
    let p = open(&built.path).unwrap();
    assert_eq!(p.format.id, "nvprof_sqlite");
    assert_eq!(p.schema_version.as_deref(), Some("12"));
    let calls: Vec<_> = p
        .calls
        .iter()
        .map(|c| (text(&p, c.name), c.class))
        .collect();
    assert_eq!(
        calls,
        [
            ("cudaLaunchKernel", ApiClass::Launch),
            ("runtime callback 9999", ApiClass::Launch),
            ("runtime callback 9998", ApiClass::Other),
            ("cudaStreamSynchronize", ApiClass::Sync),
        ]
    );
    assert_eq!((p.processes.len(), p.processes[0].pid), (1, 15938));
    assert_eq!(p.kernels.len(), 2);
    assert_eq!(text(&p, p.kernels[0].name), "volta_sgemm_128x64_nn");
    assert_eq!(p.config(&p.kernels[0]).registers, Some(32));
    assert_eq!(
        (p.copies[0].kind, p.copies[0].src),
        (CopyKind::HtoD, MemoryKind::Pageable)
    );
    assert_eq!(p.syncs[0].kind, SyncKind::Stream);
    assert_eq!(p.overheads[0].thread, Some(p.calls[0].thread));
    assert_eq!(p.overheads[1].thread, None);
    let device = &p.devices[0];
    assert_eq!(device.name.as_deref(), Some("Tesla V100"));
    assert_eq!(
        (device.bandwidth, device.clock_hz),
        (Some(898.048e9), Some(1.53e9))
    );
}

#[test]
fn nvprof_markers_are_paired_by_id() {
    let built = nvprof_database();
    let p = open(&built.path).unwrap();
    let ranges: Vec<_> = p
        .ranges
        .iter()
        .map(|r| (r.span.start, r.span.end, text(&p, r.text), r.seq, r.kind))
        .collect();
    assert_eq!(
        ranges,
        [
            (90, 115, "mm", SerialNumber::new(4), RangeKind::PushPop),
            (95, i64::MAX, "mm", SerialNumber::new(4), RangeKind::PushPop),
            (96, 96, "volta_sgemm_128x64_nn", None, RangeKind::Mark),
        ]
    );
    assert_eq!(p.ranges[0].domain.map(|d| text(&p, d)), Some("my domain"));
    assert!(
        p.ranges.iter().all(|r| r.thread == p.calls[0].thread),
        "one thread in two spellings"
    );
    assert!(note(&p, "rows_skipped").unwrap().contains("never began"));
}

// ------------------------------------------------------------------------------------ other files

fn refused(path: &Path) -> String {
    let error = open(path).expect_err("must be refused");
    assert!(!error.remedy.is_empty());
    let said = error.to_string();
    assert!(said.contains(&path.display().to_string()), "{said}");
    said
}

#[test]
fn other_files_are_errors_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for (path, words) in [
        (dir.path().join("missing.sqlite"), "no such file"),
        (dir.path().to_path_buf(), "folder"),
        (file("empty.sqlite", b""), "empty file"),
        (file("x.sqlite", b"hello there"), "text file"),
        (
            file(
                "lfs.sqlite",
                b"version https://git-lfs.github.com/spec/v1\noid x",
            ),
            "git lfs pull",
        ),
        (file("page.sqlite", b"<!DOCTYPE html><html></html>"), "HTML"),
        (file("t.json", b"{\"nodes\": []}"), "export_chrome_trace"),
        (file("t.json.gz", b"\x1f\x8b\x08\x00rest"), "gunzip -k"),
        (
            file("my net.nsys-rep", b"\x00\x01\x02\xfe"),
            "nsys export --type sqlite '",
        ),
        (file("only-magic.sqlite", b"SQLite format 3\0"), "damaged"),
    ] {
        let said = refused(&path);
        assert!(said.contains(words), "{said} should contain {words}");
    }
    let other = build(
        "places.sqlite",
        "CREATE TABLE moz_places (id); CREATE TABLE StringIds (id);",
    );
    let said = refused(&other.path);
    assert!(
        said.contains("another program") && said.contains("`moz_places`"),
        "{said}"
    );
    let nothing = build("none.sqlite", "CREATE TABLE t (x); DROP TABLE t;");
    assert!(refused(&nothing.path).contains("no tables"));
}

#[test]
fn truncated_files_are_errors_at_any_length() {
    let built = with(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO NVTX_EVENTS SELECT i, i + 1, 59, 'range number ' || i, {TID}, NULL, 0 FROM n;"
    ));
    let whole = std::fs::read(&built.path).unwrap();
    let cut = built.dir.path().join("cut.sqlite");
    let places = (16..whole.len()).step_by(whole.len() / 61);
    for at in places.chain([18, 30, 50, 95, 100, 512, whole.len() - 1]) {
        std::fs::write(&cut, &whole[..at]).unwrap();
        let said = refused(&cut);
        assert!(said.contains("damaged"), "cut at {at}: {said}");
    }
    // A copy with the full length that lost part of its contents.
    for at in (4096..whole.len() - 4096).step_by(4096) {
        let mut holed = whole.clone();
        holed[at..at + 4096].fill(0);
        std::fs::write(&cut, &holed).unwrap();
        if let Ok(p) = open(&cut) {
            assert_eq!(p.ranges.len(), 3001, "hole at {at}: a silent part");
        }
    }
}

#[test]
fn unusual_file_names_are_accepted() {
    for name in [
        "a b.sqlite",
        "50%#1?x=y&mode=rw.sqlite",
        "ü'\"\\.sqlite",
        "%41.sqlite",
    ] {
        let built = build(name, &small());
        let p = open(&built.path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(p.kernels.len(), 1, "{name}");
        assert_eq!(content(built.dir.path()).len(), 1, "{name}");
    }
}

#[test]
fn write_ahead_logs_are_read_and_not_changed() {
    let writer_dir = tempfile::tempdir().unwrap();
    let source = writer_dir.path().join("net.sqlite");
    let writer = Connection::open(&source).unwrap();
    let wal = |sql: &str| writer.query_row(sql, [], |_| Ok(())).unwrap();
    wal("PRAGMA journal_mode = WAL");
    wal("PRAGMA wal_autocheckpoint = 0");
    writer.execute_batch(&small()).unwrap();
    // A copy taken while the log was not yet merged, without the writer's `-shm`.
    let dir = tempfile::tempdir().unwrap();
    for name in ["net.sqlite", "net.sqlite-wal"] {
        std::fs::copy(writer_dir.path().join(name), dir.path().join(name)).unwrap();
    }
    let before = content(dir.path());
    let p = open(&dir.path().join("net.sqlite")).unwrap();
    assert_eq!(p.kernels.len(), 1);
    assert!(content(dir.path()) == before, "changed or created a file");
}

#[test]
fn unfinished_transactions_are_reported() {
    let built = with("");
    // A hot journal: a header (https://www.sqlite.org/fileformat.html, section 3) with one page to roll
    // back.
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    for number in [1_u32, 0, 20, 512, 4096] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(512 + 4096 + 8, 0);
    std::fs::write(built.dir.path().join("net.sqlite-journal"), &journal).unwrap();
    let before = content(built.dir.path());
    let said = refused(&built.path);
    assert!(said.contains("unfinished transaction"), "{said}");
    assert!(content(built.dir.path()) == before);
}

#[test]
fn views_are_not_run() {
    let built = build(
        "trap.sqlite",
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
         CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
             WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)
             SELECT start, start AS end FROM n;",
    );
    let p = open(&built.path).unwrap();
    assert!(p.kernels.is_empty());
    assert!(note(&p, "kernels_missing").is_some());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// For any overwritten bytes, the result is a profile or an error, never a panic.
    #[test]
    fn overwritten_bytes_never_panic(
        changes in proptest::collection::vec((0_usize..60_000, 0_u8..), 1..40)
    ) {
        let built = with("");
        let mut bytes = std::fs::read(&built.path).unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        std::fs::write(&built.path, &bytes).unwrap();
        let _ = open(&built.path);
    }

    /// For any integers in the kernel table, every row is kept or counted as skipped.
    #[test]
    fn kernel_rows_with_any_numbers_are_kept_or_counted(
        row in proptest::array::uniform8(proptest::prelude::any::<i64>())
    ) {
        let [start, end, device, stream, correlation, process, name, grid] = row;
        let built = with(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId,
                 globalPid, demangledName, gridX) VALUES ({start}, {end}, {device}, {stream},
                 {correlation}, {process}, {name}, {grid});"
        ));
        let p = open(&built.path).unwrap();
        let skipped = p.notes.iter().filter(|n| n.code == "rows_skipped").count();
        assert_eq!(p.kernels.len() + skipped, 2);
    }
}
