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
        .map(|off| (off.span.start, off.span.end, off.state))
        .collect();
    assert_eq!(off, [(40 * MS, 60 * MS, OffCpuState::Unknown)]);
}

/// The numbers of an export, which need not be those of another one.
const STATES: &str = "
    CREATE TABLE ENUM_SAMPLING_THREAD_STATE (id INT, name TEXT, label TEXT);
    INSERT INTO ENUM_SAMPLING_THREAD_STATE VALUES (0, 'Unknown', ''), (21, 'Running', ''),
        (22, 'Waiting', ''), (25, 'Terminated', '');
    CREATE TABLE ENUM_SCHEDULING_THREAD_BLOCK (id INT, name TEXT, label TEXT);
    INSERT INTO ENUM_SCHEDULING_THREAD_BLOCK VALUES (0, 'NonBlocked', ''), (30, 'Preempted', ''),
        (31, 'Mutex', '');
    CREATE TABLE SCHED_EVENTS (start INT, cpu INT, isSchedIn INT, globalTid INT, threadState INT,
        threadBlock INT);";

#[test]
fn states_of_threads_off_the_cpu_are_read_by_name() {
    let events: Vec<String> = [
        (21, "NULL"),
        (22, "0"),
        (0, "30"),
        (0, "31"),
        (25, "0"),
        (1, "NULL"),
    ]
    .iter()
    .enumerate()
    .map(|(at, (state, block))| {
        let out = (10 + 10 * at as i64) * MS;
        let back = out + 5 * MS;
        format!("({out}, 0, 0, {THREAD}, {state}, {block}), ({back}, 0, 1, {THREAD}, 0, NULL)")
    })
    .collect();
    let profile = export(&format!(
        "{STATES} INSERT INTO SCHED_EVENTS VALUES {};",
        events.join(", ")
    ));
    let states: Vec<OffCpuState> = profile.host.off_cpu.iter().map(|off| off.state).collect();
    use OffCpuState::{Ready, Unknown, Waiting};
    assert_eq!(states, [Ready, Waiting, Ready, Waiting, Unknown, Unknown]);
}

#[test]
fn callchains_name_the_functions_behind_cuda_calls() {
    let profile = export(&format!(
        "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME ADD COLUMN callchainId INT;
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
            (3 * {MS}, 4 * {MS}, {THREAD}, 7, 2, 5), (6 * {MS}, 7 * {MS}, {THREAD}, 8, 2, 0),
            (8 * {MS}, 9 * {MS}, {THREAD}, 9, 2, 6), (100, 200, {THREAD}, 9, 2, 5);
         INSERT INTO StringIds VALUES (20, '/usr/lib/libcudart.so.12'), (21, 'cudaMalloc'),
            (22, '/home/arthur/lib/libtorch.so'), (23, 'resize'), (24, '0x7f12'), (25, 'main');
         CREATE TABLE CUDA_CALLCHAINS (id INT, symbol INT, module INT, unresolved INT, originalIP INT,
            stackDepth INT);
         INSERT INTO CUDA_CALLCHAINS VALUES (5, 25, 22, NULL, 1, 3), (5, 21, 20, 0, 1, 0),
            (5, 24, 22, 0, 1, 1), (5, 23, 22, NULL, 1, 2), (6, 24, 22, 1, 1, 0), (99, 25, 22, 0, 1, 0);"
    ));
    let callers = profile.host.cuda_callers.iter();
    let callers: Vec<_> = callers
        .map(|row| (row.start, profile.text(row.caller)))
        .collect();
    assert_eq!(callers, [(3 * MS, "resize")]);
}

#[test]
fn calls_of_libraries_and_waits_for_the_lock_are_read() {
    let profile = export(&format!(
        "INSERT INTO StringIds VALUES (20, 'cudnnFind'), (21, 'cudnnCreate');
         CREATE TABLE CUDNN_EVENTS (start INT, end INT, eventClass INT, globalTid INT, nameId INT);
         INSERT INTO CUDNN_EVENTS VALUES (2 * {MS}, 5 * {MS}, 28, {THREAD}, 20),
            (3 * {MS}, 4 * {MS}, 28, {THREAD}, 21), (6 * {MS}, 6 * {MS}, 33, {THREAD}, 21),
            (100, 200, 28, {THREAD}, 21);
         CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, domainId INT);
         INSERT INTO NVTX_EVENTS VALUES (-100, NULL, 75, 'cuBLAS', {THREAD}, 1),
            (-90, NULL, 75, 'GIL Trace', {THREAD}, 2),
            (8 * {MS}, 9 * {MS}, 59, 'cublasCreate_v2', {THREAD}, 1),
            (10 * {MS}, 12 * {MS}, 59, 'Waiting for GIL', {THREAD}, 2),
            (12 * {MS}, 13 * {MS}, 59, 'Holding GIL', {THREAD}, 2),
            (14 * {MS}, 15 * {MS}, 59, 'Waiting for GIL', {THREAD}, 3);"
    ));
    let calls = profile.host.library_calls.iter();
    let calls: Vec<_> = calls
        .map(|call| {
            (
                call.span.start / MS,
                call.span.end / MS,
                profile.text(call.name),
            )
        })
        .collect();
    assert_eq!(calls, [(2, 5, "cudnnFind"), (8, 9, "cublasCreate_v2")]);
    let waits = profile.host.lock_waits.iter();
    let waits: Vec<_> = waits
        .map(|(_, span)| (span.start / MS, span.end / MS))
        .collect();
    assert_eq!(waits, [(10, 12)]);
}

#[test]
fn file_accesses_give_sizes_and_are_calls_themselves() {
    let other = (8 << 24) + 7;
    let profile = export(&format!(
        "{OS_CALL_TABLE}
         INSERT INTO StringIds VALUES (20, 'fread'), (21, 'open64');
         INSERT INTO OSRT_API VALUES (2 * {MS}, 4 * {MS}, 27, {THREAD}, 20, 3, 0, 9),
            (5 * {MS}, 6 * {MS}, 27, {THREAD}, 20, 77, 0, 0), (7 * {MS}, 8 * {MS}, 27, {THREAD}, 3, 512, 0, 0);
         CREATE TABLE OSRT_FILE_ACCESS_EVENTS (fileAccessId INT, threadId INT, startedAt INT,
            endedAt INT, eventType INT, apiCallId INT, bytesProcessed INT, context TEXT);
         INSERT INTO OSRT_FILE_ACCESS_EVENTS VALUES (0, 7, 2 * {MS}, 4 * {MS}, 3, 20, 8192, ''),
            (0, 7, 9 * {MS}, 10 * {MS}, 1, 21, 0, ''), (0, 7, 11 * {MS}, 12 * {MS}, 3, 3, 100, ''),
            (0, 9, 13 * {MS}, 14 * {MS}, 3, 3, 100, '');"
    ));
    let calls = profile.host.os_calls.iter();
    let text = |id: Option<StrId>| id.map_or("?", |id| profile.text(id));
    let calls: Vec<_> = calls
        .map(|call| (call.span.start / MS, text(call.name), call.bytes))
        .collect();
    // What `fread` returns is a number of items, so its bytes are unknown without a file access.
    let expected = [
        (2, "fread", 8192),
        (5, "fread", 0),
        (7, "read", 512),
        (9, "open64", 0),
        (11, "read", 100),
    ];
    assert_eq!(calls, expected);
    assert!(profile.host.has_os_calls);
    assert!(
        !profile
            .threads
            .iter()
            .any(|thread| thread.tid == other as u64)
    );
}

/// The host's tables of a real export without GPU work, in a copy with two invented kernels around it.
#[test]
fn real_calls_and_file_accesses_are_read() {
    let Some(real) = crate::shared::profile("cs336ihor_nocuda.sqlite") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.sqlite");
    std::fs::copy(real, &path).unwrap();
    let db = Connection::open(&path).unwrap();
    let global = "282022400524149";
    db.execute_batch(&format!(
        "INSERT INTO StringIds VALUES (9001, 'invented_kernel'), (9002, 'cudaLaunchKernel');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT,
            streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 1000, 0, 1, 7, 1, {global} & ~0xFFFFFF, 9001, 9001),
            (101 * {MS}, 102 * {MS}, 0, 1, 7, 2, {global} & ~0xFFFFFF, 9001, 9001);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (-200, -100, {global}, 1, 9002),
            (101 * {MS} - 200, 101 * {MS} - 100, {global}, 2, 9002);"
    ))
    .unwrap();
    let count = |sql: &str| -> usize {
        let sql = sql.replace("THREAD", global);
        let count: i64 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        usize::try_from(count).unwrap()
    };
    let calls = count("SELECT count(*) FROM OSRT_API WHERE globalTid = THREAD AND end > start");
    let with_caller = count(
        "SELECT count(*) FROM OSRT_API WHERE globalTid = THREAD AND callchainId IN (
            SELECT c.id FROM OSRT_CALLCHAINS c JOIN StringIds s ON s.id = c.symbol
                JOIN StringIds m ON m.id = c.module
            WHERE c.unresolved = 0 AND c.stackDepth < 24 AND m.value NOT GLOB '*/libc.so*'
                AND m.value NOT GLOB '*/ld-*' AND m.value NOT GLOB '[[]*' AND s.value NOT GLOB '[[]*'
                AND s.value NOT GLOB '_Py[EOFR]*_*' AND s.value NOT GLOB 'Py_*Main' AND s.value NOT GLOB '_start*'
                AND s.value NOT GLOB 'PyObject_*' AND s.value NOT GLOB 'PyEval_*' AND s.value NOT GLOB 'PyRun_*'
                AND s.value NOT GLOB 'PyVectorcall_*')",
    );
    let off = count(
        "SELECT count(*) FROM (SELECT start, isSchedIn, lead(isSchedIn) OVER (ORDER BY start) AS next,
                lead(start) OVER (ORDER BY start) AS end FROM SCHED_EVENTS WHERE globalTid = THREAD)
            WHERE isSchedIn = 0 AND next = 1 AND end > start",
    );
    let accesses =
        count("SELECT count(*) FROM OSRT_FILE_ACCESS_EVENTS WHERE threadId = THREAD & 0xFFFFFF");
    drop(db);
    let profile = crate::read::open(&path, &NoProgress).unwrap();
    let host = &profile.host;
    let named = |name: &str| {
        let is_named = |call: &&OsCall| call.name.is_some_and(|id| profile.text(id) == name);
        host.os_calls.iter().filter(is_named).count()
    };
    // Every access is one of the calls.
    assert_eq!((calls, accesses), (150, 15));
    assert_eq!((host.os_calls.len(), named("open64")), (calls, accesses));
    let called = host.os_calls.iter().filter(|call| call.caller.is_some());
    assert_eq!(called.count(), with_caller);
    assert!(with_caller > 50, "{with_caller}");
    assert_eq!(host.off_cpu.len(), off);
    assert!(
        host.off_cpu
            .iter()
            .all(|off| off.state == OffCpuState::Unknown)
    );
}

/// A payload as exports have it: 32 bytes of header, and a stack given from the inside.
fn stack(state: u32, frames: &[(u64, u64, u64)]) -> String {
    let mut bytes = vec![0; 32];
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(state.to_le_bytes());
    bytes.extend((frames.len() as u32).to_le_bytes());
    for (function, file, line) in frames {
        for number in [function, file, line] {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const NVTX_TABLE: &str = "
    CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, domainId INT,
        binaryData BLOB);";

/// The samples of Python stacks: time in ms, and the functions from the inside.
fn stacks(profile: &Profile) -> Vec<(i64, String)> {
    let python = &profile.host.python;
    let text = |id: Option<StrId>| id.map_or("?", |id| profile.text(id));
    let functions = |at: u32| {
        let get = |at: u32| python.frames.get(at as usize);
        let frames = std::iter::successors(get(at), |frame| get(frame.caller?));
        let frames = frames.map(|f| format!("{} {}:{}", text(f.function), text(f.file), f.line));
        frames.collect::<Vec<_>>().join(" < ")
    };
    let samples = python.samples.iter();
    samples.map(|s| (s.time / MS, functions(s.frame))).collect()
}

const PYTHON_NAMES: &str = "INSERT INTO StringIds VALUES (20, 'load'), (21, '/home/arthur/data.py'), (22, 'main'), (23, 'train.py');";

#[test]
fn python_stacks_are_read_from_payloads() {
    let (inner, outer) = ((20, 21, 12), (22, 23, 7));
    let [both, main] = [stack(1, &[inner, outer]), stack(3, &[outer])];
    let cut = &both[..both.len() - 2];
    let profile = export(&format!(
        "{NVTX_TABLE} {PYTHON_NAMES}
         INSERT INTO NVTX_EVENTS VALUES
            (-100, NULL, 75, 'Python Periodic Sampling', {THREAD}, 1, NULL),
            (2 * {MS}, NULL, 34, NULL, {THREAD}, 1, x'{both}'), (3 * {MS}, NULL, 34, NULL, {THREAD}, 1, '{main}'),
            (4 * {MS}, NULL, 34, NULL, {THREAD}, 2, x'{main}'), (5 * {MS}, NULL, 34, NULL, {THREAD} + 1, 1, x'{main}'),
            (6 * {MS}, NULL, 34, NULL, {THREAD}, 1, x'{cut}'), (7 * {MS}, NULL, 34, NULL, {THREAD}, 1, NULL),
            (500, NULL, 34, NULL, {THREAD}, 1, x'{main}'), (8 * {MS}, 9 * {MS}, 59, 'x', {THREAD}, 1, x'{main}');"
    ));
    let expected = [
        (2, "load /home/arthur/data.py:12 < main train.py:7"),
        (3, "main train.py:7"),
    ];
    assert_eq!(
        stacks(&profile),
        expected.map(|(at, text)| (at, text.to_owned()))
    );
    assert_eq!(profile.host.python.frames.len(), 2);
    assert_eq!(profile.host.python.sample_ns, MS);
    let codes: Vec<&str> = profile.notes.iter().map(|note| note.code).collect();
    assert!(codes.contains(&"python_stacks_missing"), "{codes:?}");
    assert!(codes.contains(&"python_stacks_unknown"), "{codes:?}");
    // The marks are no ranges of the program.
    let marks = profile
        .ranges
        .iter()
        .filter(|r| r.kind == crate::profile::RangeKind::Mark);
    assert_eq!(marks.count(), 1);
}

#[test]
fn python_stacks_are_read_from_tables() {
    let profile = export(&format!(
        "{PYTHON_NAMES}
         CREATE TABLE PYTHON_SAMPLING_EVENTS (id INT, start INT, globalTid INT);
         INSERT INTO PYTHON_SAMPLING_EVENTS VALUES (1, 2 * {MS}, {THREAD}), (2, 3 * {MS}, {THREAD}),
            (3, 500, {THREAD}), (4, 4 * {MS}, {THREAD} + 1);
         CREATE TABLE PYTHON_SAMPLING_CALLCHAINS (id INT, symbol INT, module INT, line INT, stackDepth INT);
         INSERT INTO PYTHON_SAMPLING_CALLCHAINS VALUES (1, 22, 23, 7, 1), (1, 20, 21, 12, 0), (2, 22, 23, 7, 0),
            (3, 22, 23, 7, 0), (4, 22, 23, 7, 0);"
    ));
    let expected = [
        (2, "load /home/arthur/data.py:12 < main train.py:7"),
        (3, "main train.py:7"),
    ];
    assert_eq!(
        stacks(&profile),
        expected.map(|(at, text)| (at, text.to_owned()))
    );
}

#[test]
fn tables_in_another_form_are_left_out_with_the_reason() {
    let profile = export(&format!(
        "CREATE TABLE PYTHON_SAMPLING_RAW (data BLOB); INSERT INTO PYTHON_SAMPLING_RAW VALUES (x'00');
         CREATE TABLE CUDA_CALLCHAINS (id INT, stackFrames TEXT); INSERT INTO CUDA_CALLCHAINS VALUES (1, 'main');
         CREATE TABLE CUBLAS_EVENTS (start INT, end INT, nameId INT); INSERT INTO CUBLAS_EVENTS VALUES (1, 2, 3);
         CREATE TABLE SCHED_EVENTS (start INT, isSchedIn INT, globalTid INT);
         INSERT INTO SCHED_EVENTS VALUES (2 * {MS}, 0, {THREAD}), (3 * {MS}, 1, {THREAD});"
    ));
    let note = profile
        .notes
        .iter()
        .find(|n| n.code == "host_tables_unknown")
        .unwrap();
    assert_eq!(
        note.text,
        "Left out, because their tables have another form than is known: the functions behind CUDA calls \
         (`CUDA_CALLCHAINS` has no column `stackDepth`), calls of cuDNN and cuBLAS (`CUBLAS_EVENTS` has no column \
         `globalTid`), Python stacks (`PYTHON_SAMPLING_RAW` has no column `id`)."
    );
    assert_eq!(profile.host.off_cpu.len(), 1);
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
         CREATE TABLE SCHED_EVENTS (start INT, isSchedIn INT, globalTid INT, threadState TEXT, threadBlock INT);
         INSERT INTO SCHED_EVENTS VALUES ({min}, 0, {THREAD}, 'x', {max}), ({max}, 1, {THREAD}, NULL, {min});
         ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME ADD COLUMN callchainId INT;
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (3000000, {max}, {THREAD}, 7, 2, {min}),
            (3000000, 4000000, {THREAD}, 7, 2, {max});
         CREATE TABLE CUDA_CALLCHAINS (id INT, symbol INT, module INT, stackDepth INT);
         INSERT INTO CUDA_CALLCHAINS VALUES ({max}, {min}, {max}, {min}), ({max}, {max}, {min}, 0), (NULL, 'a', x'00', 'b');
         CREATE TABLE OSRT_FILE_ACCESS_EVENTS (threadId INT, startedAt INT, endedAt INT, bytesProcessed INT);
         INSERT INTO OSRT_FILE_ACCESS_EVENTS VALUES ({max}, {min}, {max}, {max}), (7, {min}, {max}, {min}), ('7', 'a', 'b', 'c');
         CREATE TABLE CUDNN_EVENTS (start INT, end INT, globalTid INT, nameId INT);
         INSERT INTO CUDNN_EVENTS VALUES ({min}, {max}, {THREAD}, {min}), (5000000, 6000000, {THREAD}, {max}), (1, 2, 'x', NULL);
         CREATE TABLE PYTHON_SAMPLING_EVENTS (id INT, start INT, globalTid INT);
         INSERT INTO PYTHON_SAMPLING_EVENTS VALUES ({max}, {max}, {THREAD}), ({min}, 7000000, {THREAD}), (NULL, {min}, {THREAD});
         CREATE TABLE PYTHON_SAMPLING_CALLCHAINS (id INT, symbol INT, module INT, line INT, stackDepth INT);
         INSERT INTO PYTHON_SAMPLING_CALLCHAINS VALUES ({min}, {max}, {min}, {max}, {min}), ({min}, NULL, 'x', -1, {max}),
            ({max}, 1, 1, 1, 0);"
    ));
    let host = &profile.host;
    assert!(host.cuda_callers.is_empty() && host.library_calls.is_empty());
    let python: Vec<_> = host.python.samples.iter().map(|s| s.time).collect();
    assert_eq!(python, [7_000_000]);
    assert!(
        host.python
            .frames
            .iter()
            .all(|f| f.line == 0 && f.function.is_none())
    );
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
