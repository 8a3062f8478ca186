//! A profile is only ever read: from a folder nobody may write to, through links, out of pipes, and
//! however large it claims to be. What is there stays as it is.
#![cfg(unix)]

use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{content, open, refused, with};

const TRACE: &str = r#"{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"correlation": 3}},
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 9, "args": {"correlation": 3, "device": 0, "stream": 7}}
]}"#;

#[test]
fn a_folder_that_may_not_be_written_to() {
    let built = with("");
    let before = content(built.dir.path());
    set_permissions(&built.path, Permissions::from_mode(0o444)).unwrap();
    set_permissions(built.dir.path(), Permissions::from_mode(0o555)).unwrap();
    let read = open(&built.path);
    set_permissions(built.dir.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(read.unwrap().kernels.len(), 1);
    assert!(content(built.dir.path()) == before);
}

#[test]
fn a_link_is_followed_to_the_log_beside_its_file() {
    let writer_dir = tempfile::tempdir().unwrap();
    let source = writer_dir.path().join("net.sqlite");
    let writer = rusqlite::Connection::open(&source).unwrap();
    for pragma in ["journal_mode = WAL", "wal_autocheckpoint = 0"] {
        let sql = format!("PRAGMA {pragma}");
        writer.query_row(&sql, [], |_| Ok(())).unwrap();
    }
    writer.execute_batch(&super::small()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("latest.sqlite");
    symlink(&source, &link).unwrap();
    // All of it stands in the log: without that there would be no table at all.
    assert_eq!(open(&link).unwrap().kernels.len(), 1);
    assert_eq!(
        content(elsewhere.path()).len(),
        1,
        "nothing beside the link"
    );
}

#[test]
fn a_trace_comes_out_of_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("trace");
    let made = Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: there is no mkfifo here");
        return;
    }
    let through = |bytes: Vec<u8>| {
        let to = pipe.clone();
        // Whoever refuses early leaves the writer with a broken pipe.
        let writer = std::thread::spawn(move || drop(std::fs::write(to, bytes)));
        let read = open(&pipe);
        writer.join().unwrap();
        read
    };
    let profile = through(TRACE.as_bytes().to_vec()).unwrap();
    assert_eq!((profile.kernels.len(), profile.calls.len()), (1, 1));
    assert_eq!(profile.path, pipe.display().to_string());

    let database = std::fs::read(&with("").path).unwrap();
    let error = through(database).unwrap_err();
    assert!(error.problem.contains("in a pipe"), "{error}");
    assert!(error.remedy.contains("to a file first"), "{error}");
    let error = through(b"hello".to_vec()).unwrap_err();
    assert!(error.path.ends_with("trace"), "{error}");
}

#[test]
fn endless_devices_are_refused() {
    for device in ["/dev/zero", "/dev/null"] {
        assert!(refused(std::path::Path::new(device)).contains("device"));
    }
}

#[test]
fn a_sparse_file_costs_neither_time_nor_memory() {
    let since = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.sqlite");
    File::create(&path).unwrap().set_len(5 << 30).unwrap();
    refused(&path);
    // A profile with five gigabytes of nothing behind its last page.
    let built = with("");
    let file = File::options().append(true).open(&built.path).unwrap();
    file.set_len(5 << 30).unwrap();
    assert_eq!(open(&built.path).unwrap().kernels.len(), 1);
    assert!(since.elapsed() < Duration::from_secs(20));
    assert_eq!(file.metadata().unwrap().len(), 5 << 30);
}
