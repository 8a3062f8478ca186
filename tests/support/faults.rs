//! Damage, made on purpose and always the same for the same seed: what the short harness
//! (`tests/faults.rs`) and the long one (`examples/torture.rs`) do to profiles, and what must hold
//! afterwards. After any damage the program ends in time, within a bound of memory, without a panic;
//! and where kernels can still be read, their total is the file's own total, or a note says what was
//! left out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use pyprof_advise::correlate::correlate;
use pyprof_advise::cost::{VOCABULARY, price};
use pyprof_advise::facts::Table;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{RuleSet, judge};
use pyprof_advise::profile::Profile;
use pyprof_advise::read::{self, Quiet};
use pyprof_advise::report::{self, Options, Report};
use pyprof_advise::scrub;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// `splitmix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// How long one file may take, and how much memory.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    /// Peak of resident memory while one file is worked on; not measured where it cannot be.
    pub(crate) bytes: u64,
}

/// Runs damaged files down the whole road.
pub(crate) struct Harness {
    rules: Arc<RuleSet>,
    limits: Limits,
    folder: PathBuf,
    pub(crate) cases: usize,
    pub(crate) judged: usize,
    pub(crate) slowest: Duration,
    pub(crate) largest: u64,
    pub(crate) faults: Vec<String>,
}

impl Harness {
    pub(crate) fn new(folder: &Path, limits: Limits) -> Harness {
        Harness {
            rules: Arc::new(
                RuleSet::builtin().unwrap_or_else(|_| panic!("the built-in rules load")),
            ),
            limits,
            folder: folder.to_owned(),
            cases: 0,
            judged: 0,
            slowest: Duration::ZERO,
            largest: 0,
            faults: Vec::new(),
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// One damaged file, as bytes.
    pub(crate) fn bytes(&mut self, what: &str, bytes: &[u8]) {
        let path = self.at("case");
        std::fs::write(&path, bytes).expect("a case can be written");
        self.file(what, &path);
    }

    /// One damaged file.
    pub(crate) fn file(&mut self, what: &str, path: &Path) {
        self.cases += 1;
        reset_peak();
        let since = std::time::Instant::now();
        let (tell, told) = mpsc::channel();
        let (rules, owned) = (Arc::clone(&self.rules), path.to_owned());
        // As large as a main thread's stack: what overflows here overflows there.
        let started = std::thread::Builder::new()
            .stack_size(8 << 20)
            .spawn(move || {
                let outcome = catch_unwind(AssertUnwindSafe(|| road(&owned, &rules)));
                let _ = tell.send(outcome);
            });
        started.expect("a thread starts");
        let outcome = told.recv_timeout(self.limits.time);
        let took = since.elapsed();
        self.slowest = self.slowest.max(took);
        let peak = peak();
        self.largest = self.largest.max(peak);
        let fault = match outcome {
            Err(_) => Some(format!("no end after {took:?}")),
            Ok(Err(panic)) => Some(format!("panicked: {}", message(&*panic))),
            Ok(Ok(Err(fault))) => Some(fault),
            Ok(Ok(Ok(judged))) => {
                self.judged += usize::from(judged);
                (peak > self.limits.bytes).then(|| format!("took {} MiB", peak >> 20))
            }
        };
        if let Some(fault) = fault {
            let kept = self.at(&format!("fault-{}", self.faults.len()));
            let _ = std::fs::copy(path, &kept);
            self.faults
                .push(format!("{what}: {fault} (kept as {})", kept.display()));
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// The whole road. `Ok(false)` for a file that is refused, which is an answer.
fn road(path: &Path, rules: &RuleSet) -> Result<bool, String> {
    let copy = path.with_extension("scrubbed");
    let _ = std::fs::remove_file(&copy);
    // What is left in a copy may be chance in damaged bytes; that it ends is what counts here.
    let _ = scrub::scrub(path, &copy, false, &Quiet);
    let _ = std::fs::remove_file(&copy);
    let Ok(profile) = read::open(path, &Quiet) else {
        return Ok(false);
    };
    check_total(path, &profile)?;
    let Ok(gpu) = select::choose(Some("v100"), &profile) else {
        return Ok(false);
    };
    let run = correlate(profile, &VOCABULARY);
    let costed = price(run, gpu);
    let table = Table::new(&costed);
    let verdict = judge(rules, &table);
    let report = Report::new(
        &costed,
        &verdict,
        &Options {
            top: 10,
            max_sites: 100,
        },
    );
    report::markdown(&report).map_err(|e| format!("no Markdown: {e}"))?;
    let json: Value =
        serde_json::from_str(&report::json(&report)).map_err(|e| format!("no JSON: {e}"))?;
    finite(&json)?;
    Ok(true)
}

/// A number that is none becomes `null` in JSON; fields that may be absent are `null` too, so only
/// texts show it.
fn finite(json: &Value) -> Result<(), String> {
    let text = json.to_string();
    for word in ["\"NaN", " NaN", "\"inf ", " inf ", "-inf"] {
        if text.contains(word) {
            return Err(format!("the report says `{word}`"));
        }
    }
    Ok(())
}

/// The kernels' time by the reader and by a sum of its own are equal, or a note says why not.
fn check_total(path: &Path, profile: &Profile) -> Result<(), String> {
    let read: i128 = profile
        .kernels
        .iter()
        .map(|k| i128::from(k.span.ns()))
        .sum();
    let head = std::fs::read(path).unwrap_or_default();
    let (rows, total, tolerance) = if head.starts_with(b"SQLite format 3\0") {
        let (rows, total) = sum_of_tables(path);
        (rows, total, 0)
    } else {
        match sum_of_events(&head) {
            // Each kernel's times are rounded to a nanosecond.
            Some((rows, total)) => (rows, total, 2 * rows as i128),
            None => return Ok(()),
        }
    };
    const EXPLAINS: [&str; 4] = [
        "rows_skipped",
        "reversed_times",
        "trace_cut",
        "counters_only",
    ];
    let explained = profile.notes.iter().any(|n| EXPLAINS.contains(&n.code));
    let equal = (read - total).abs() <= tolerance && profile.kernels.len() == rows;
    if equal || explained {
        return Ok(());
    }
    Err(format!(
        "a silent wrong total: {} kernels of {read} ns were read, the file holds {rows} of {total} ns",
        profile.kernels.len()
    ))
}

fn sum_of_tables(path: &Path) -> (usize, i128) {
    let Ok(db) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return (0, 0);
    };
    let nvprof = db.prepare("SELECT 1 FROM StringTable").is_ok();
    let tables: &[&str] = if nvprof {
        &[
            "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
            "CUPTI_ACTIVITY_KIND_KERNEL",
        ]
    } else {
        &["CUPTI_ACTIVITY_KIND_KERNEL"]
    };
    let (mut rows, mut total) = (0, 0);
    for table in tables {
        let Ok(mut statement) = db.prepare(&format!("SELECT start, end FROM {table} NOT INDEXED"))
        else {
            continue;
        };
        let mut found = statement.query([]).expect("no parameters");
        while let Ok(Some(row)) = found.next() {
            let number = |at| match row.get_ref(at) {
                Ok(ValueRef::Integer(n)) => Some(i128::from(n)),
                Ok(ValueRef::Real(r)) => Some(r as i128),
                _ => None,
            };
            rows += 1;
            if let (Some(start), Some(end)) = (number(0), number(1)) {
                total += (end - start).max(0);
            }
        }
    }
    (rows, total)
}

/// Of JSON that any parser reads; the reader is more patient.
fn sum_of_events(bytes: &[u8]) -> Option<(usize, i128)> {
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(bytes);
        std::io::Read::read_to_end(&mut decoder, &mut unpacked).ok()?;
        unpacked
    } else {
        bytes.to_vec()
    };
    let trace: Value = serde_json::from_slice(&text).ok()?;
    let events = trace.get("traceEvents").unwrap_or(&trace).as_array()?;
    let (mut rows, mut total) = (0, 0.0);
    for event in events {
        let is = |key: &str, value: &str| {
            event
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|v| v.eq_ignore_ascii_case(value))
        };
        if is("ph", "X") && is("cat", "kernel") {
            rows += 1;
            total += event
                .get("dur")
                .and_then(Value::as_f64)
                .unwrap_or(0.0)
                .max(0.0)
                * 1000.0;
        }
    }
    Some((rows, total as i128))
}

// ---------------------------------------------------------------------------- memory

fn reset_peak() {
    // Linux: 5 resets the peak resident set size (`man 5 proc`).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

// ---------------------------------------------------------------------------- damage

/// Cut at `count` places, the first bytes and the last among them.
pub(crate) fn cuts(harness: &mut Harness, name: &str, bytes: &[u8], count: usize) {
    for n in 0..count {
        let at = bytes.len() * n / count.max(1);
        harness.bytes(
            &format!("{name} cut at {at}"),
            bytes.get(..at).unwrap_or_default(),
        );
    }
}

/// 1 to 64 bytes changed, in `count` variants. Half of them in the first pages, where the schema is.
pub(crate) fn flips(
    harness: &mut Harness,
    name: &str,
    bytes: &[u8],
    count: usize,
    dice: &mut Dice,
) {
    for n in 0..count {
        let mut damaged = bytes.to_vec();
        let within = if n % 2 == 0 {
            damaged.len()
        } else {
            damaged.len().min(16 << 10)
        };
        for _ in 0..=dice.below(64) {
            let at = dice.below(within);
            if let Some(byte) = damaged.get_mut(at) {
                *byte = dice.next() as u8;
            }
        }
        harness.bytes(&format!("{name} with bytes changed, variant {n}"), &damaged);
    }
}

/// What is done to every column: its name, then its values.
const VALUES: &[(&str, &str)] = &[
    ("NULL", "NULL"),
    ("text", "'x\u{1}|<'"),
    ("blob", "x'00ff41'"),
    ("negative", "-1"),
    ("the largest", "9223372036854775807"),
    ("the smallest", "-9223372036854775808"),
    ("real", "1e300"),
];

/// Tables dropped, columns renamed, values replaced, times reversed; every `one_in`th of them.
pub(crate) fn edits(
    harness: &mut Harness,
    name: &str,
    original: &Path,
    one_in: usize,
    dice: &mut Dice,
) {
    let path = harness.at("edited");
    let fresh = || -> Connection {
        let _ = std::fs::remove_file(&path);
        std::fs::copy(original, &path).expect("a copy");
        let mut permissions = std::fs::metadata(&path).expect("it is there").permissions();
        #[allow(clippy::permissions_set_readonly_false)]
        permissions.set_readonly(false);
        std::fs::set_permissions(&path, permissions).expect("one's own file");
        Connection::open(&path).expect("a database")
    };
    let mut statements: Vec<String> = Vec::new();
    {
        let db = fresh();
        let tables: Vec<String> = db
            .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1")
            .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
            .unwrap_or_default();
        for table in tables {
            statements.push(format!("DROP TABLE \"{table}\""));
            let columns: Vec<String> = db
                .prepare(&format!("PRAGMA table_info(\"{table}\")"))
                .and_then(|mut s| s.query_map([], |row| row.get(1))?.collect())
                .unwrap_or_default();
            for column in &columns {
                statements.push(format!(
                    "ALTER TABLE \"{table}\" RENAME COLUMN \"{column}\" TO renamed"
                ));
                for (_, value) in VALUES {
                    statements.push(format!("UPDATE \"{table}\" SET \"{column}\" = {value}"));
                }
                statements.push(format!(
                    "UPDATE \"{table}\" SET \"{column}\" = 9223372036854775807 WHERE rowid % 3 = 0"
                ));
            }
            if columns.iter().any(|c| c == "start") && columns.iter().any(|c| c == "end") {
                statements.push(format!("UPDATE \"{table}\" SET start = end, end = start"));
                statements.push(format!("UPDATE \"{table}\" SET end = NULL"));
                statements.push(format!(
                    "UPDATE \"{table}\" SET start = 0, end = 9000000000000000000"
                ));
            }
        }
    }
    for statement in statements {
        if one_in > 1 && dice.below(one_in) != 0 {
            continue;
        }
        let db = fresh();
        // A column that cannot be changed so is no case.
        if db.execute_batch(&statement).is_ok() {
            drop(db);
            harness.file(&format!("{name} after {statement}"), &path);
        }
    }
}

/// What is done to the text of a trace.
pub(crate) fn texts(harness: &mut Harness, name: &str, text: &str, one_in: usize, dice: &mut Dice) {
    let mut case = |what: &str, bytes: Vec<u8>| {
        if one_in <= 1 || dice.below(one_in) == 0 {
            harness.bytes(&format!("{name}: {what}"), &bytes);
        }
    };
    let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    for part in 1..20 {
        if let Some(at) = quotes.get(quotes.len() * part / 20) {
            let cut = text
                .get(..at + 2)
                .or_else(|| text.get(..at + 1))
                .unwrap_or_default();
            case("cut inside a string", cut.into());
        }
    }
    for key in [
        "ts",
        "dur",
        "pid",
        "tid",
        "correlation",
        "device",
        "stream",
        "Input Dims",
        "name",
        "cat",
        "args",
    ] {
        let quoted = format!("\"{key}\":");
        for value in [
            "1e400",
            "-1e400",
            "-1",
            "9223372036854775808",
            "18446744073709551616",
            "null",
            "\"x\"",
            "[]",
            "{}",
            "true",
            "NaN",
            "[[[[9999999999,9999999999],[-1]]]]",
            "1e-400",
            "0.1e",
        ] {
            // The old value stays, under a key nobody reads.
            let replaced = text.replace(&quoted, &format!("{quoted} {value}, \"was\":"));
            case(&format!("{key} is {value}"), replaced.into());
        }
        case(
            &format!("{key} twice"),
            text.replace(&quoted, &format!("{quoted} 1, {quoted}"))
                .into(),
        );
        case(
            &format!("no {key}"),
            text.replace(&quoted, "\"gone\":").into(),
        );
    }
    let mut invalid = text.as_bytes().to_vec();
    for at in (0..invalid.len()).step_by(97) {
        if let Some(byte) = invalid.get_mut(at) {
            *byte = 0xff;
        }
    }
    case("bytes that are not UTF-8", invalid);
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let nested = text.replacen("\"args\":", &format!("\"args\": {deep}, \"was\":"), 1);
        case("nested 100,000 deep", nested.into());
        case(
            "nested and never closed",
            format!("{{\"traceEvents\": [{}", open.repeat(100_000)).into(),
        );
        case(
            "a member nested deep",
            format!("{{\"x\": {deep}, \"traceEvents\": []}}").into(),
        );
    }
}

/// Files that no profiler writes and anybody can: `deep` ranges inside each other, `many` markers.
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
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, b"{\"traceEvents\": [").expect("memory");
    for _ in 0..bomb {
        std::io::Write::write_all(&mut packer, &[b' '; 1 << 20]).expect("memory");
    }
    let packed = packer.finish().expect("memory");
    harness.bytes(&format!("a gzip bomb of {bomb} MiB"), &packed);
}

/// One kernel, its launch, and ranges of `(start, end, thread)`.
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

/// Everything for one profile.
pub(crate) fn torture(harness: &mut Harness, path: &Path, how: How, dice: &mut Dice) {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let bytes = std::fs::read(path).expect("a profile");
    harness.file(&format!("{name} as it is"), path);
    cuts(harness, &name, &bytes, how.cuts);
    flips(harness, &name, &bytes, how.flips, dice);
    if bytes.starts_with(b"SQLite format 3\0") {
        edits(harness, &name, path, how.one_in, dice);
        return;
    }
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        let _ = std::io::Read::read_to_end(&mut decoder, &mut text);
        text
    } else {
        bytes
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    texts(harness, &name, &text, how.one_in, dice);
}

/// How much is done to one profile.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) cuts: usize,
    pub(crate) flips: usize,
    /// One in so many edits of tables and texts.
    pub(crate) one_in: usize,
}
