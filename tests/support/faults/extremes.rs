//! Extreme files, which no profiler writes but anybody could.

use std::io::Write;
use std::path::Path;

use rusqlite::Connection;

use super::Harness;
use super::damage::packed;

/// Runs the files: `deep` nested ranges, `many` markers, `bomb` MiB in a small compressed file.
pub(crate) fn extremes(harness: &mut Harness, deep: usize, many: usize, bomb: usize) {
    for (what, closed) in [("closed", true), ("never closed", false)] {
        let path = harness.at("ranges.sqlite");
        database(&path, deep, |n| {
            (n as i64, closed.then_some((3 * deep - n) as i64), 1)
        });
        harness.file(&format!("{deep} nested ranges, {what}"), &path);
    }
    let path = harness.at("markers.sqlite");
    database(&path, many, |_| (5, Some(9), 1));
    harness.file(&format!("{many} identical ranges"), &path);
    database(&path, many.min(1_000_000), |n| {
        (n as i64 % 7, Some(1_000_000), n as i64)
    });
    harness.file("as many threads as ranges", &path);
    let nested: Vec<String> = (0..deep)
        .map(|n| format!("{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a{n}\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":{}}}", 3 * deep - 2 * n))
        .collect();
    let kernel = "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":9,\"dur\":3,\"args\":{\"correlation\":1,\"device\":0}}";
    let trace = format!("[{},{kernel}]", nested.join(","));
    harness.bytes(&format!("{deep} nested operators"), trace.as_bytes());
    let long = format!(
        "[{kernel},{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"{}\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2}}]",
        "x[{'(".repeat(deep)
    );
    harness.bytes("a name without end", long.as_bytes());
    bombs(harness, bomb);
    let path = harness.at("markers.nvprof");
    for (what, flags) in [("opened", 2), ("closed", 4), ("both at once", 6)] {
        markers(&path, deep, |n| (flags, n as i64, n as i64));
        harness.file(&format!("{deep} nvprof markers only ever {what}"), &path);
    }
    markers(&path, many, |n| (2 + 2 * (n as i64 % 2), 5, 1));
    harness.file(&format!("{many} nvprof markers of one number"), &path);
    markers(&path, 2 * deep, |n| match n < deep {
        true => (2, n as i64, n as i64),
        false => (4, 2 * deep as i64 - n as i64, (2 * deep - n - 1) as i64),
    });
    harness.file(
        &format!("{deep} nested nvprof markers, times reversed"),
        &path,
    );
}

/// Long texts that compress well: blanks, one string, one number, and small events without end.
fn bombs(harness: &mut Harness, mib: usize) {
    let parts: [(&str, &[u8], &[u8]); 4] = [
        ("blanks", b"{\"traceEvents\": [", b" "),
        ("one string", b"{\"traceEvents\": [{\"name\": \"", b"x"),
        ("one number", b"{\"traceEvents\": [{\"ts\": ", b"9"),
        ("brackets", b"{\"traceEvents\": [", b"["),
    ];
    for (what, start, filling) in parts {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(start).expect("memory");
        for _ in 0..mib {
            packer.write_all(&filling.repeat(1 << 20)).expect("memory");
        }
        let bytes = packer.finish().expect("memory");
        harness.bytes(&format!("a gzip bomb of {mib} MiB, {what}"), &bytes);
    }
    // The maximum that is read of any file, all of it events.
    let event =
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":9,\"dur\":3},";
    let events = event.repeat((mib.min(200) << 20) / event.len());
    let bytes = packed(format!("[{events}{{}}]").as_bytes());
    harness.bytes("a gzip bomb of identical kernels", &bytes);
}

/// Creates a database with one kernel, its launch, and ranges of `(start, end, thread)`.
fn database(path: &Path, count: usize, range: impl Fn(usize) -> (i64, Option<i64>, i64)) {
    let _ = std::fs::remove_file(path);
    let mut db = Connection::open(path).expect("a database");
    db.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         INSERT INTO StringIds VALUES (1, 'volta_sgemm_32x32_nn'), (2, 'cudaLaunchKernel_v7000'), (3, 'aten::mm, seq = 1');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200000, 300000, 0, 7, 1, 16777216, 1, 1);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (150000, 150010, 16777217, 1, 2);
         CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, textId INT, globalTid INT);",
    )
    .expect("a schema");
    let transaction = db.transaction().expect("a transaction");
    {
        let mut insert = transaction
            .prepare("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, 3, ?)")
            .expect("a statement");
        for n in 0..count {
            let (start, end, thread) = range(n);
            insert
                .execute((start, end, 16_777_216 + thread % 16_777_216))
                .expect("a row");
        }
    }
    transaction.commit().expect("rows");
}

/// Creates a database with one kernel, its launch, and marker rows of `(flags, id, time)`, as nvprof
/// writes them.
fn markers(path: &Path, count: usize, row: impl Fn(usize) -> (i64, i64, i64)) {
    let _ = std::fs::remove_file(path);
    let mut db = Connection::open(path).expect("a database");
    db.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT);
         INSERT INTO StringTable VALUES (1, 'volta_sgemm_32x32_nn'), (2, 'aten::mm, seq = 1');
         CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY, start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, name INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (1, 200000, 300000, 0, 1, 7, 1, 1);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER PRIMARY KEY, cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT, returnValue INT);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 211, 150000, 150010, 1, 1, 1, 0);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (_id_ INTEGER PRIMARY KEY, flags INT, timestamp INT, id INT, objectKind INT, objectId BLOB, name INT, domain INT);",
    )
    .expect("a schema");
    let transaction = db.transaction().expect("a transaction");
    {
        let mut insert = transaction
            .prepare("INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES (NULL, ?, ?, ?, 2, ?, ?, 0)")
            .expect("a statement");
        // Process 1, thread 1, in CUPTI's layout.
        let thread = [1, 0, 0, 0, 1, 0, 0, 0_u8];
        for n in 0..count {
            let (flags, id, time) = row(n);
            let name = if flags == 4 { 0 } else { 2 };
            insert
                .execute((flags, time, id, thread, name))
                .expect("a row");
        }
    }
    transaction.commit().expect("rows");
}
