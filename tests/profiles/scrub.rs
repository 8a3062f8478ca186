//! `scrub`: secrets planted in every place where a profile can contain text are absent from the bytes
//! of the copy, and the advice for the copy equals that for the original.

use crate::{shared, synthetic};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::MultiGzDecoder;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::io::Read;

/// Texts that must not be in a copy. All of them are planted in every fixture.
const PLANTED: &[&str] = &[
    "wJalrXUtnFEMI/K7MDENG",                      // of AWS_SECRET_ACCESS_KEY
    "hf_abcdefghijklmnopqrstuvwxyz012345",        // of HF_TOKEN
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",   // GitHub, classic
    "github_pat_11ABCDEFG0123456789_abcdefghijk", // GitHub, fine-grained
    "zaphodbeeblebrox",                           // the user
    "heartofgold42",                              // the host
    "marvinsdisplay",                             // the display name of the machine
    "trillian@",                                  // an address
    "hunter2hunter2",                             // a password on a command line
];

fn environment() -> String {
    format!(
        "AWS_SECRET_ACCESS_KEY={} HF_TOKEN={} USER=zaphodbeeblebrox HOSTNAME=heartofgold42.example.org \
         HOME=/home/zaphodbeeblebrox GITHUB_TOKEN={}",
        PLANTED[0], PLANTED[1], PLANTED[2]
    )
}

/// A text with everything that a program may have written.
fn everything() -> String {
    format!(
        "{} {} {} /home/zaphodbeeblebrox/net.py /data/zaphodbeeblebrox/x heartofgold42 on \
         marvinsdisplay, trillian@example.org --password hunter2hunter2 {}",
        PLANTED[0],
        PLANTED[1],
        PLANTED[3],
        environment()
    )
}

fn run(arguments: &[&str], folder: &Path) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// The bytes of a copy, uncompressed.
fn bytes(path: &Path) -> Vec<u8> {
    let raw = std::fs::read(path).unwrap();
    if !raw.starts_with(&[0x1f, 0x8b]) {
        return raw;
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(&raw[..])
        .read_to_end(&mut unpacked)
        .unwrap();
    unpacked
}

fn contains(bytes: &[u8], needle: &str) -> bool {
    let utf8 = needle.as_bytes().to_vec();
    let le: Vec<u8> = needle.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let be: Vec<u8> = needle.encode_utf16().flat_map(u16::to_be_bytes).collect();
    [utf8, le, be]
        .iter()
        .any(|n| bytes.windows(n.len()).any(|window| window == n))
}

/// Scrubs `from` and searches for the planted texts, first in the original, where they must be found.
fn scrubbed(from: &Path, to: &Path) {
    for needle in PLANTED {
        assert!(contains(&bytes(from), needle), "not planted: {needle}");
    }
    let before = std::fs::read(from).unwrap();
    let folder = from.parent().unwrap();
    let (code, out, err) = run(
        &["scrub", from.to_str().unwrap(), to.to_str().unwrap()],
        folder,
    );
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(std::fs::read(from).unwrap(), before, "the original changed");
    let copy = bytes(to);
    for needle in PLANTED {
        assert!(!contains(&copy, needle), "left in the copy: {needle}");
        assert!(!format!("{out}{err}").contains(needle), "printed: {needle}");
    }
    let counts: Vec<&str> = out.lines().filter(|l| l.ends_with("found")).collect();
    assert_eq!(counts.len(), 6, "{out}");
    assert!(counts.iter().all(|l| l.ends_with(" 0 found")), "{out}");
}

/// The report as data, without the parts that must differ: the size of the file, and the warning that
/// recommends scrubbing.
fn report(path: &Path) -> Option<Value> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let arguments = ["-q", name, "--format", "json", "--gpu", "v100"];
    let (code, out, _) = run(&arguments, path.parent().unwrap());
    if code != 0 {
        return None;
    }
    let mut report: Value = serde_json::from_str(&out).unwrap();
    neutral(&mut report);
    Some(report)
}

fn neutral(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("file_bytes");
            if let Some(Value::Array(cautions)) = members.get_mut("cautions") {
                cautions.retain(|c| {
                    !c.as_str()
                        .unwrap_or_default()
                        .contains("environment variables")
                });
            }
            members.values_mut().for_each(neutral);
        }
        Value::Array(items) => items.iter_mut().for_each(neutral),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// The small network of the fixtures with secrets in every table that can contain text.
fn planted_database(path: &Path, encoding: &str) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    let source = Connection::open(&fixture).unwrap();
    let db = Connection::open(path).unwrap();
    db.execute_batch(&format!("PRAGMA encoding = \"{encoding}\""))
        .unwrap();
    let tables: Vec<(String, String)> = source
        .prepare(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        )
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // An attached database must have the same encoding, so rows are copied by the test.
    for (name, sql) in &tables {
        db.execute_batch(sql).unwrap();
        let mut select = source.prepare(&format!("SELECT * FROM {name}")).unwrap();
        let columns = select.column_count();
        let marks = vec!["?"; columns].join(",");
        let mut insert = db
            .prepare(&format!("INSERT INTO {name} VALUES ({marks})"))
            .unwrap();
        let mut rows = select.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<rusqlite::types::Value> =
                (0..columns).map(|c| row.get(c).unwrap()).collect();
            insert.execute(rusqlite::params_from_iter(cells)).unwrap();
        }
    }
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT);
         CREATE TABLE IF NOT EXISTS META_DATA_EXPORT (name TEXT, value TEXT);
         CREATE TABLE IF NOT EXISTS PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
         CREATE TABLE IF NOT EXISTS TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
         CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp INTEGER, text TEXT);
         CREATE TABLE ANALYSIS_FILE (id INTEGER, filename TEXT, content BLOB);
         CREATE TABLE somebodys_notes (id INTEGER PRIMARY KEY, note TEXT, blob BLOB);",
    )
    .unwrap();
    let all = everything();
    let add = |sql: &str, values: &[&dyn rusqlite::ToSql]| db.execute(sql, values).unwrap();
    for (name, value) in [
        ("PROCESS_0:ENVIRONMENT_VARIABLE_0", environment()),
        ("PROCESS_0:USER_NAME", "zaphodbeeblebrox".to_owned()),
        ("DEVICE_DISPLAY_NAME", "marvinsdisplay".to_owned()),
        ("PROCESS_0:ARGUMENT_0", all.clone()),
        ("PROCESS_0:WORKING_DIR", "/home/zaphodbeeblebrox".to_owned()),
    ] {
        add(
            "INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)",
            &[&name, &value],
        );
    }
    for (name, value) in [
        ("EXPORT_HOST", "heartofgold42"),
        ("EXPORT_USER", "zaphodbeeblebrox"),
        (
            "EXPORT_PARAM_INPUT_PATH",
            "/home/zaphodbeeblebrox/net.nsys-rep",
        ),
    ] {
        add(
            "INSERT INTO META_DATA_EXPORT (name, value) VALUES (?, ?)",
            &[&name, &value],
        );
    }
    for (name, value) in [
        ("HF_TOKEN", PLANTED[1]),
        ("AWS_SECRET_ACCESS_KEY", PLANTED[0]),
        ("x", &all),
    ] {
        add(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV (devStateName, name, value) VALUES ('marvinsdisplay', ?, ?)",
            &[&name, &value],
        );
    }
    add(
        "INSERT INTO PROCESSES (globalPid, pid, name) VALUES (9, 9, ?)",
        &[&all],
    );
    add(
        "INSERT INTO DIAGNOSTIC_EVENT (timestamp, text) VALUES (0, ?)",
        &[&all],
    );
    add(
        "INSERT INTO ANALYSIS_FILE VALUES (0, ?, ?)",
        &[&all, &all.as_bytes()],
    );
    add(
        "INSERT INTO somebodys_notes VALUES (1, ?, ?)",
        &[&all, &all.as_bytes()],
    );
    add(
        "INSERT INTO StringIds (id, value) VALUES (900001, ?)",
        &[&all],
    );
    add(
        "INSERT INTO StringIds (id, value) VALUES (900002, ?)",
        &[&all],
    );
    // A range refers to it, so it is kept and cleaned.
    add(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid) SELECT min(start) + 1, min(start) + 2, 34, 900002, min(globalTid) FROM NVTX_EVENTS",
        &[],
    );
    let as_json = json!({"env": {"HF_TOKEN": PLANTED[1]}, "user": "zaphodbeeblebrox", "note": all})
        .to_string();
    for text in [&all, &as_json] {
        add(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) SELECT min(start) + 1, min(start) + 2, 34, ?, min(globalTid) FROM NVTX_EVENTS",
            &[text],
        );
    }
    // Functions that the host called keep their names, cleaned; files and arguments of the calls do not.
    db.execute_batch(
        "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, callchainId INTEGER, argumentsId INTEGER);
         CREATE TABLE OSRT_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER, stackDepth INTEGER);
         CREATE TABLE CUDA_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER, stackDepth INTEGER, note TEXT);
         CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER, stackDepth INTEGER);
         CREATE TABLE COMPOSITE_EVENTS (id INTEGER, start INTEGER, globalTid INTEGER, comment TEXT);
         CREATE TABLE SCHED_EVENTS (start INTEGER, isSchedIn INTEGER, globalTid INTEGER, comment TEXT);
         CREATE TABLE CUDNN_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, arguments TEXT);
         CREATE TABLE CUBLAS_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
         CREATE TABLE PYTHON_SAMPLING_EVENTS (id INTEGER, start INTEGER, globalTid INTEGER);
         CREATE TABLE PYTHON_SAMPLING_CALLCHAINS (id INTEGER, function TEXT, file TEXT, fileId INTEGER, line INTEGER, stackDepth INTEGER);
         CREATE TABLE OSRT_ARGUMENTS (id INTEGER, value TEXT);
         CREATE TABLE OSRT_FILE_ACCESS_DESCRIPTORS (fileAccessId INTEGER, filePath TEXT);
         CREATE TABLE OSRT_FILE_ACCESS_EVENTS (fileAccessId INTEGER, threadId INTEGER, startedAt INTEGER, endedAt INTEGER,
             apiCallId INTEGER, bytesProcessed INTEGER, context TEXT);
         INSERT INTO OSRT_API VALUES (1, 2, 5, 900003, 7, 8);
         INSERT INTO OSRT_CALLCHAINS VALUES (7, 900003, 900004, 0);
         INSERT INTO SAMPLING_CALLCHAINS VALUES (7, 900003, 900004, 0);
         INSERT INTO CUBLAS_EVENTS VALUES (1, 2, 5, 900003);
         INSERT INTO PYTHON_SAMPLING_EVENTS VALUES (7, 1, 5);",
    )
    .unwrap();
    for sql in [
        "INSERT INTO StringIds (id, value) VALUES (900003, ?)",
        "INSERT INTO StringIds (id, value) VALUES (900004, ?)",
        "INSERT INTO StringIds (id, value) VALUES (900005, ?)",
        "INSERT INTO StringIds (id, value) VALUES (900006, ?)",
        "INSERT INTO OSRT_ARGUMENTS VALUES (8, ?)",
        "INSERT INTO OSRT_FILE_ACCESS_DESCRIPTORS VALUES (0, ?)",
        "INSERT INTO OSRT_FILE_ACCESS_EVENTS VALUES (0, 5, 1, 2, 900005, 10, ?)",
        "INSERT INTO CUDA_CALLCHAINS VALUES (7, 900003, 900004, 0, ?)",
        "INSERT INTO COMPOSITE_EVENTS VALUES (7, 1, 5, ?)",
        "INSERT INTO SCHED_EVENTS VALUES (1, 0, 5, ?)",
        "INSERT INTO CUDNN_EVENTS VALUES (1, 2, 5, 900003, ?)",
        "INSERT INTO PYTHON_SAMPLING_CALLCHAINS VALUES (7, ?1, ?1, 900006, 3, 0)",
    ] {
        add(sql, &[&all]);
    }
    // A deleted row remains in the free space of its page.
    add("INSERT INTO somebodys_notes VALUES (2, ?, NULL)", &[&all]);
    add("DELETE FROM somebodys_notes WHERE id = 2", &[]);
    db.execute_batch(&format!(
        "CREATE VIEW v AS SELECT '{secret}' AS s;
         CREATE INDEX i ON somebodys_notes (note);
         CREATE TRIGGER t AFTER INSERT ON somebodys_notes BEGIN SELECT '{secret}'; END;
         CREATE TABLE {secret} (a INTEGER);
         CREATE TABLE with_default (a TEXT DEFAULT '{secret}', /* {secret} */ b INTEGER);",
        secret = PLANTED[2]
    ))
    .unwrap();
}

#[test]
fn nothing_planted_in_an_export_remains() {
    for encoding in ["UTF-8", "UTF-16le", "UTF-16be"] {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (
            folder.path().join("a/net.sqlite"),
            folder.path().join("b/net.sqlite"),
        );
        std::fs::create_dir_all(from.parent().unwrap()).unwrap();
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        planted_database(&from, encoding);
        scrubbed(&from, &to);
        let copy = Connection::open(&to).unwrap();
        let kept: String = copy
            .query_row("PRAGMA encoding", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, encoding);
        let sound: String = copy
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
        drop(copy);
        assert!(report(&from).is_some());
        assert_eq!(report(&from), report(&to), "{encoding}");
        let (_, _, err) = run(&["net.sqlite"], from.parent().unwrap());
        assert!(
            err.contains("`pyprof-advise scrub IN OUT` makes a copy without"),
            "{err}"
        );
        let (_, _, err) = run(&["net.sqlite"], to.parent().unwrap());
        assert!(
            !err.contains("scrub"),
            "the copy holds no environment: {err}"
        );
    }
}

/// The host's tables of the copies have the names that reports need, and no others.
#[test]
fn functions_of_the_host_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (
        folder.path().join("a.sqlite"),
        folder.path().join("b.sqlite"),
    );
    planted_database(&from, "UTF-8");
    let db = Connection::open(&from).unwrap();
    db.execute_batch(
        "INSERT INTO StringIds (id, value) VALUES (900007, 'decode_batch'), (900008, 'unused_function');
         INSERT INTO CUDA_CALLCHAINS VALUES (8, 900007, 900007, 0, NULL);
         INSERT INTO PYTHON_SAMPLING_CALLCHAINS VALUES (8, 'load', '/home/zaphodbeeblebrox/data.py', 900007, 3, 0);",
    )
    .unwrap();
    drop(db);
    scrubbed(&from, &to);
    let copy = Connection::open(&to).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = copy.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let named =
        "SELECT value FROM StringIds WHERE value LIKE '%decode_batch' OR value = 'unused_function'";
    assert_eq!(texts(named), ["decode_batch"]);
    let kept = "SELECT function || ' ' || file FROM PYTHON_SAMPLING_CALLCHAINS WHERE id = 8";
    assert_eq!(texts(kept), ["load ~/data.py"]);
    assert_eq!(texts("SELECT context FROM OSRT_FILE_ACCESS_EVENTS"), [""]);
    assert_eq!(
        texts("SELECT filePath FROM OSRT_FILE_ACCESS_DESCRIPTORS"),
        [""]
    );
}

#[test]
fn nothing_planted_in_an_nvprof_database_remains() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("a.sql"), folder.path().join("b.sql"));
    synthetic::build_at(
        &from,
        "description",
        "format nvprof\ndevice 0 cc=7.0 sms=80 = Tesla V100-SXM2-16GB\n\
         define gemm block=256 = volta_sgemm_32x32_nn\nrange step\n  kernel gemm 8x4 31us\n",
    );
    let db = Connection::open(&from).unwrap();
    let all = everything();
    db.execute(
        "INSERT INTO StringTable (_id_, value) VALUES (90001, ?)",
        [&all],
    )
    .unwrap();
    db.execute(
        "UPDATE StringTable SET value = value || ' ' || ? WHERE value = 'step'",
        [&all],
    )
    .unwrap();
    db.execute_batch("CREATE TABLE notes (a TEXT)").unwrap();
    db.execute("INSERT INTO notes VALUES (?)", [&all]).unwrap();
    db.execute(
        "INSERT INTO notes VALUES ('DEVICE_DISPLAY_NAME=marvinsdisplay')",
        [],
    )
    .unwrap();
    drop(db);
    scrubbed(&from, &to);
    assert!(report(&to).is_some());
}

#[test]
fn nothing_planted_in_a_trace_remains() {
    let all = everything();
    let trace = json!({
        "schemaVersion": 1,
        "host_name": "heartofgold42.example.org",
        "username": "zaphodbeeblebrox",
        "display_name": "marvinsdisplay",
        "environ": {"HF_TOKEN": PLANTED[1], "AWS_SECRET_ACCESS_KEY": PLANTED[0]},
        "job": {"command": all, "list": [all, {"deep": all}]},
        "INFO": [all],
        "distributedInfo": {"rank": 0, "hostname": "heartofgold42", "note": all},
        "traceName": "/home/zaphodbeeblebrox/heartofgold42_1.pt.trace.json",
        "traceEvents": [
            {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": all}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9,
             "args": {"Call stack": "/home/zaphodbeeblebrox/net.py(3): forward", "env": {"A": all},
                      "user": "zaphodbeeblebrox", "note": all}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2,
             "dur": 1, "args": {"correlation": 1}},
            {"ph": "X", "cat": "kernel", "name": "volta_sgemm_32x32_nn", "pid": 0, "tid": 7, "ts": 20,
             "dur": 30.5, "args": {"correlation": 1, "device": 0, "stream": 7}},
        ],
    })
    .to_string();
    // With the escapes of another JSON writer.
    let escaped = trace
        .replace("/home", "\\/home")
        .replacen("hf_abc", "\\u0068f_abc", 1);
    let folder = tempfile::tempdir().unwrap();
    for (n, text) in [trace, escaped].iter().enumerate() {
        for out in ["json", "json.gz"] {
            let from = folder.path().join(format!("{n}.json"));
            let to = folder.path().join(format!("{n}.copy.{out}"));
            std::fs::write(&from, text).unwrap();
            scrubbed(&from, &to);
            assert!(report(&to).is_some());
        }
    }
}

#[test]
fn failed_scrub_keeps_existing_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    std::fs::copy(&fixture, at("in.sqlite")).unwrap();
    std::fs::write(at("there"), "mine").unwrap();
    std::fs::write(at("text"), "no profile").unwrap();
    for (arguments, says) in [
        (
            vec!["scrub", "in.sqlite", "in.sqlite"],
            "is the profile itself",
        ),
        (
            vec!["scrub", "in.sqlite", "in.sqlite", "--force"],
            "is the profile itself",
        ),
        (vec!["scrub", "in.sqlite", "there"], "--force"),
        (
            vec!["scrub", "in.sqlite", ".", "--force"],
            "no ordinary file",
        ),
        (vec!["scrub", "in.sqlite", "no/such/folder/x"], "no folder"),
        (vec!["scrub", "text", "new"], "expected"),
        (vec!["scrub", "missing", "new"], "no such file"),
    ] {
        let (code, out, err) = run(&arguments, folder.path());
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        assert!(err.contains(says), "{arguments:?}: {err}");
    }
    assert_eq!(std::fs::read_to_string(at("there")).unwrap(), "mine");
    assert_eq!(
        std::fs::read(at("in.sqlite")).unwrap(),
        std::fs::read(&fixture).unwrap()
    );
    #[cfg(unix)]
    {
        std::fs::hard_link(at("in.sqlite"), at("same")).unwrap();
        let (code, _, err) = run(&["scrub", "in.sqlite", "same", "--force"], folder.path());
        assert!(code == 2 && err.contains("is the profile itself"), "{err}");
        std::fs::remove_file(at("same")).unwrap();
    }
    let (code, ..) = run(&["scrub", "in.sqlite", "there", "--force"], folder.path());
    assert_eq!(code, 0);
    assert!(report(&at("there")).is_some());
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["in.sqlite", "text", "there"],
        "nothing else was left behind"
    );
}

/// Bytes of a compressed trace from which a copy takes many seconds in a test.
const LARGE: u64 = 700 << 10;

fn is_large(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "gz") && file.metadata().unwrap().len() > LARGE
}

fn advice_for_copies_is_equal(files: &[PathBuf]) {
    files.par_iter().for_each(|from| {
        let copies = tempfile::tempdir().unwrap();
        let to = copies.path().join(from.file_name().unwrap());
        let (code, out, err) = run(
            &["scrub", from.to_str().unwrap(), to.to_str().unwrap()],
            copies.path(),
        );
        assert_eq!(code, 0, "{}: {out}{err}", from.display());
        assert_eq!(report(from), report(&to), "{}", from.display());
    });
}

#[test]
fn advice_for_copies_of_real_profiles_is_equal() {
    let Some(mut files) = shared::profiles() else {
        return;
    };
    files.retain(|file| !is_large(file));
    advice_for_copies_is_equal(&files);
    assert!(
        files.len() >= 30,
        "the folder of real profiles is not whole"
    );
}

#[test]
#[ignore = "takes minutes: .ci/run --full"]
fn advice_for_copies_of_large_profiles_is_equal() {
    let mut files = shared::profiles().unwrap_or_default();
    files.retain(|file| is_large(file));
    advice_for_copies_is_equal(&files);
}
