use rusqlite::Connection;

use super::*;
use crate::profile::Profile;
use crate::read::NoProgress;

const THREAD: i64 = (7 << 24) + 7;
const MS: i64 = 1_000_000;

/// An export of one process with kernels from 0 to 1 ms and from 1 s to 1.001 s, launched by one thread.
fn export(more: &str) -> Profile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(&format!(
        "BEGIN;
         CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         INSERT INTO StringIds VALUES (1, 'kernel'), (2, 'cudaLaunchKernel'), (3, 'read'),
             (4, 'futex'), (5, '/home/arthur/lib/libjpeg.so.8'), (6, 'decode'), (7, 'libc.so.6'),
             (8, '0x7f00'), (9, '__read'), (10, 'load');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT,
             streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
             (0, {MS}, 0, 1, 7, 1, {pid}, 1, 1), ({s}, {s} + {MS}, 0, 1, 7, 2, {pid}, 1, 1);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT,
             correlationId INT, nameId INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
             (-20000, -10000, {THREAD}, 1, 2), ({s} - 20000, {s} - 10000, {THREAD}, 2, 2);
         {more}
         COMMIT;",
        pid = THREAD & !super::super::THREAD_BITS,
        s = 1_000 * MS,
    ))
    .unwrap();
    drop(db);
    crate::read::open(&path, &NoProgress).unwrap()
}

const OS_CALL_TABLE: &str =
    "CREATE TABLE OSRT_API (start INT, end INT, eventClass INT, globalTid INT,
    nameId INT, returnValue INT, nestingLevel INT, callchainId INT);";

#[test]
fn only_calls_of_the_launching_thread_in_idle_time_are_kept() {
    let other = THREAD + 1;
    let profile = export(&format!(
        "{OS_CALL_TABLE}
         INSERT INTO OSRT_API VALUES
            (100, 200, 27, {THREAD}, 3, 5, 0, 0),
            (2000000, 3000000, 27, {THREAD}, 3, 4096, 0, 9),
            (2500000, 2600000, 27, {THREAD}, 4, 0, 1, 0),
            (4000000, 4000000, 27, {THREAD}, 3, 0, 0, 0),
            (5000000, 6000000, 27, {other}, 3, 0, 0, 0),
            (7000000, 8000000, 27, {THREAD}, 99, -1, 0, 0);
         CREATE TABLE OSRT_CALLCHAINS (id INT, symbol INT, module INT, unresolved INT, stackDepth INT);
         INSERT INTO OSRT_CALLCHAINS VALUES (9, 10, 5, 0, 2), (9, 9, 7, 0, 0), (9, 8, 5, 1, 1);
         CREATE TABLE OSRT_FILE_ACCESS_EVENTS (fileAccessId INT, threadId INT, startedAt INT,
            endedAt INT, eventType INT, apiCallId INT, bytesProcessed INT, context TEXT);
         INSERT INTO OSRT_FILE_ACCESS_EVENTS VALUES (0, 7, 2000000, 3000000, 3, 3, 8192, '');"
    ));
    let text = |id: Option<StrId>| id.map(|id| profile.text(id).to_owned());
    let calls: Vec<_> = (profile.host.os_calls.iter())
        .map(|call| {
            (
                call.span.start,
                text(call.name),
                call.class,
                call.bytes,
                text(call.caller),
            )
        })
        .collect();
    let read = (
        2 * MS,
        Some("read".to_owned()),
        OsCallClass::Read,
        8192,
        Some("load".to_owned()),
    );
    assert_eq!(calls, [read, (7 * MS, None, OsCallClass::Other, 0, None)]);
}

#[test]
fn samples_and_scheduling_are_read() {
    let samples: Vec<String> = (0..20)
        .map(|at| format!("({at}, {}, 0, 1, {THREAD}, 0)", (2 + at) * MS))
        .collect();
    let profile = export(&format!(
        "CREATE TABLE COMPOSITE_EVENTS (id INT, start INT, cpu INT, threadState INT, globalTid INT,
            cpuCycles INT);
         INSERT INTO COMPOSITE_EVENTS VALUES {}, (50, 2500000, 0, 2, {THREAD}, 0), (51, 500, 0, 1, {THREAD}, 0);
         CREATE TABLE SAMPLING_CALLCHAINS (id INT, symbol INT, module INT, unresolved INT, stackDepth INT);
         INSERT INTO SAMPLING_CALLCHAINS VALUES (0, 6, 5, 0, 0), (0, 10, 7, 0, 1), (1, 8, 5, 1, 0);
         CREATE TABLE SCHED_EVENTS (start INT, cpu INT, isSchedIn INT, globalTid INT);
         INSERT INTO SCHED_EVENTS VALUES (60000000, 0, 1, {THREAD}), (40000000, 0, 0, {THREAD}),
            (70000000, 0, 0, {THREAD});",
        samples.join(", ")
    ));
    let host = &profile.host;
    let text = |id: Option<StrId>| id.map(|id| profile.text(id).to_owned());
    assert_eq!((host.samples.len(), host.sample_ns), (20, MS));
    let named: Vec<_> = (host.samples.iter().take(3))
        .map(|s| (text(s.function), text(s.module)))
        .collect();
    let jpeg = || Some("libjpeg.so.8".to_owned());
    assert_eq!(
        named,
        [
            (Some("decode".to_owned()), jpeg()),
            (None, jpeg()),
            (None, None)
        ]
    );
    let off: Vec<_> = host
        .off_cpu
        .iter()
        .map(|(_, span)| (span.start, span.end))
        .collect();
    assert_eq!(off, [(40 * MS, 60 * MS)]);
}

#[test]
fn rows_beyond_the_limit_end_the_analysis() {
    let extra = 1_000;
    let rows = MOST_ROWS as i64 + extra;
    let step = 900 * MS / rows;
    let profile = export(&format!(
        "{OS_CALL_TABLE}
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows})
         INSERT INTO OSRT_API SELECT 2000000 + i * {step}, 2000000 + i * {step} + 1000, 27, {THREAD}, 3, 1, 0, 0
         FROM n;"
    ));
    assert_eq!(profile.host.os_calls.len(), MOST_ROWS);
    let until = 2 * MS + (rows - extra) * step;
    assert_eq!(profile.host.complete_until, Some(until));
    assert!(
        profile
            .notes
            .iter()
            .any(|note| note.code == "host_rows_left_out")
    );
}

#[test]
fn hostile_rows_are_skipped() {
    let (min, max) = (i64::MIN, i64::MAX);
    let profile = export(&format!(
        "{OS_CALL_TABLE}
         INSERT INTO OSRT_API VALUES ({min}, {max}, 27, {THREAD}, 3, {min}, 0, {max}),
            (9000000, 8000000, 27, {THREAD}, {min}, {max}, {max}, {min}), (NULL, 'x', NULL, NULL, NULL, NULL, NULL, NULL);
         CREATE TABLE COMPOSITE_EVENTS (id TEXT, start TEXT);
         INSERT INTO COMPOSITE_EVENTS VALUES ('a', 'b'), ({max}, {max});
         CREATE TABLE SCHED_EVENTS (start INT, isSchedIn INT, globalTid INT);
         INSERT INTO SCHED_EVENTS VALUES ({min}, 0, {THREAD}), ({max}, 1, {THREAD});"
    ));
    assert!(profile.host.os_calls.is_empty());
    assert!(profile.host.samples.is_empty());
    assert!(profile.host.off_cpu.len() <= 1);
}

#[test]
fn switches_are_read_and_other_variables_are_not() {
    let profile = export(
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, devStateName TEXT, name TEXT, value TEXT);
         INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'OMP_NUM_THREADS', '8'), (0, '', 'NCCL_ALGO', 'hunter2'),
            (0, '', 'TOKEN', '1'), (0, NULL, NULL, NULL), (0, '', 'CUDA_LAUNCH_BLOCKING', '1');
         CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT, utcTime TEXT, localTime TEXT);
         INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1767225600000000000, '', '');",
    );
    let switches: Vec<String> = (profile.switches.iter())
        .map(|switch| format!("{}={}", switch.name, switch.value))
        .collect();
    assert_eq!(switches, ["CUDA_LAUNCH_BLOCKING=1", "OMP_NUM_THREADS=8"]);
    assert_eq!(profile.unix_zero_ns, Some(1_767_225_600_000_000_000));
}
