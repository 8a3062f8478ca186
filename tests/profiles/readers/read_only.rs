//! Profiles are only read: in read-only folders, through links, from pipes, and at any apparent size.
//! Existing files are not changed.

use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{content, open, refused, with};

const TRACE: &str = r#"{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {"correlation": 3}},
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 9, "args": {"correlation": 3, "device": 0, "stream": 7}}
]}"#;

#[test]
fn profiles_in_read_only_folders_are_read() {
    let built = with("");
    let before = content(built.dir.path());
    set_permissions(&built.path, Permissions::from_mode(0o444)).unwrap();
    set_permissions(built.dir.path(), Permissions::from_mode(0o555)).unwrap();
    let read = open(&built.path);
    set_permissions(built.dir.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(read.unwrap().kernels.len(), 1);
    assert!(content(built.dir.path()) == before);
}

/// Runs as an unprivileged user, because root may write anywhere.
#[test]
fn unprivileged_users_can_read_profiles_in_read_only_folders() {
    let built = with("");
    let before = content(built.dir.path());
    set_permissions(&built.path, Permissions::from_mode(0o444)).unwrap();
    set_permissions(built.dir.path(), Permissions::from_mode(0o555)).unwrap();
    // A folder from which that user can start the program.
    let elsewhere = tempfile::tempdir().unwrap();
    set_permissions(elsewhere.path(), Permissions::from_mode(0o755)).unwrap();
    let program = elsewhere.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_pyprof-advise"), &program).unwrap();
    let root = std::fs::metadata(&program).unwrap().uid() == 0;
    let run = |program: &std::path::Path, argument: &std::path::Path| {
        let mut command = Command::new(program);
        command.arg(argument).current_dir("/").stdout(Stdio::null());
        if root {
            const NOBODY: u32 = 65_534;
            command.uid(NOBODY).gid(NOBODY);
        }
        command.status().unwrap().code()
    };
    let touched = run("touch".as_ref(), &built.dir.path().join("new"));
    let read = run(&program, &built.path);
    set_permissions(built.dir.path(), Permissions::from_mode(0o755)).unwrap();
    assert_ne!(touched, Some(0), "that user may write there");
    assert_eq!(read, Some(0));
    assert!(content(built.dir.path()) == before);
}

#[test]
fn links_are_followed_to_the_log_beside_the_target() {
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
    // All content is in the log: without the log, there would be no tables.
    assert_eq!(open(&link).unwrap().kernels.len(), 1);
    assert_eq!(
        content(elsewhere.path()).len(),
        1,
        "nothing beside the link"
    );
}

#[test]
fn traces_are_read_from_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("trace");
    let made = Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        crate::shared::skip("there is no mkfifo");
        return;
    }
    let through = |bytes: Vec<u8>| {
        let to = pipe.clone();
        // An early error leaves the writer with a broken pipe.
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
fn endless_devices_are_errors() {
    for device in ["/dev/zero", "/dev/null"] {
        assert!(refused(std::path::Path::new(device)).contains("device"));
    }
}

#[test]
fn sparse_files_take_little_time_and_memory() {
    let since = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.sqlite");
    File::create(&path).unwrap().set_len(5 << 30).unwrap();
    refused(&path);
    // A profile with five gigabytes of zeros after its last page.
    let built = with("");
    let file = File::options().append(true).open(&built.path).unwrap();
    file.set_len(5 << 30).unwrap();
    assert_eq!(open(&built.path).unwrap().kernels.len(), 1);
    assert!(since.elapsed() < Duration::from_secs(20));
    assert_eq!(file.metadata().unwrap().len(), 5 << 30);
}

/// Number of kernels per transaction of the writing program.
const AT_ONCE: usize = 2_000;
const DATABASE: &str = "PYPROF_ADVISE_TEST_DATABASE";

/// Not a test: the program that writes while [`while_another_program_writes`] reads.
#[test]
#[ignore = "started by another test"]
fn the_other_program() {
    let path = std::env::var_os(DATABASE).unwrap();
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 200; PRAGMA cache_size = 20",
    )
    .unwrap();
    let kernels = format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, demangledName) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {AT_ONCE}) \
         SELECT 100 * i, 100 * i + 10, 0, 7, 1 FROM n"
    );
    loop {
        let _ = db.execute_batch("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL");
        for _ in 0..50 {
            // A locked file makes it wait.
            let _ = db.execute_batch(&kernels);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The result is either the state after one transaction, or an error about the concurrent writer; never
/// a mixture.
#[test]
fn while_another_program_writes() {
    for mode in ["WAL", "DELETE"] {
        let built = with("");
        {
            let db = rusqlite::Connection::open(&built.path).unwrap();
            let sql = format!("PRAGMA journal_mode = {mode}");
            db.query_row(&sql, [], |_| Ok(())).unwrap();
            db.execute_batch("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
                .unwrap();
        }
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "readers::read_only::the_other_program",
                "--ignored",
            ])
            .env(DATABASE, &built.path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        let (mut whole, mut refused) = (0, 0);
        let mut torn = None;
        while torn.is_none() && (whole < 2 || refused < 2) && since.elapsed().as_secs() < 200 {
            match open(&built.path) {
                Ok(profile) if profile.kernels.len() % AT_ONCE != 0 => {
                    torn = Some(format!("{} kernels", profile.kernels.len()));
                }
                Ok(_) => whole += 1,
                Err(error) => {
                    let told = ["wrote to the file", "is writing", "unfinished transaction"];
                    if !told.iter().any(|words| error.problem.contains(words)) {
                        torn = Some(error.to_string());
                    }
                    refused += 1;
                }
            }
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert_eq!(torn, None, "{mode}");
        assert!(
            whole >= 2 && refused >= 2,
            "{mode}: {whole} read, {refused} refused"
        );
    }
}
