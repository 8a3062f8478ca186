//! Ctrl-C, `kill` and a closed terminal: the program ends at once, by that signal, and leaves no
//! partial file, neither beside the output nor in the folder for temporary files.

use crate::shared;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Signals with their numbers.
const SIGNALS: [(&str, i32); 3] = [("INT", 2), ("TERM", 15), ("HUP", 1)];

/// Starts the program in a folder, with a separate folder for temporary files.
fn start(folder: &Path, arguments: &[&str]) -> Child {
    let program = env!("CARGO_BIN_EXE_pyprof-advise");
    // A test runner in the background of a script ignores SIGINT, and its child processes inherit this.
    let mut command = if is_ignored(2) || is_ignored(1) {
        let mut command = Command::new("env");
        command.args(["--default-signal", program]);
        command
    } else {
        Command::new(program)
    };
    command
        .args(arguments)
        .current_dir(folder)
        .env("TMPDIR", folder.join("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_ignored(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask >> (signal - 1) & 1 == 1
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(child.id().to_string())
        .status();
    assert!(sent.unwrap().success());
}

/// The exit status of the program, which must end at once.
fn ended(child: &mut Child) -> ExitStatus {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if since.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it goes on");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a folder contains a non-empty file other than those named.
fn wait_for_file(child: &mut Child, folder: &Path, besides: &[&str]) {
    let since = Instant::now();
    loop {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let mut new = entries.filter(|e| !besides.contains(&&*e.file_name().to_string_lossy()));
        if new.any(|e| e.metadata().is_ok_and(|m| m.is_file() && m.len() > 0)) {
            return;
        }
        assert_eq!(child.try_wait().unwrap(), None, "it ended early");
        assert!(since.elapsed() < PATIENCE, "no temporary file was seen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A folder with a subfolder for temporary files and a pipe; `None` on systems without pipes.
fn sandbox() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let made = Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        shared::skip("there is no mkfifo");
        return None;
    }
    Some(folder)
}

/// Starts a command on a pipe that stalls after the first megabyte of a trace, and waits until this was
/// read. The pipe is open until the file is dropped.
fn on_a_pipe_that_never_ends(folder: &Path, arguments: &[&str]) -> (Child, File) {
    let mut child = start(folder, arguments);
    // Opening blocks until there is a reader.
    let mut pipe = File::options()
        .write(true)
        .open(folder.join("pipe"))
        .unwrap();
    pipe.write_all(b"{\"traceEvents\": [").unwrap();
    pipe.write_all(&[b' '; 1 << 20]).unwrap();
    wait_for_file(&mut child, &folder.join("tmp"), &[]);
    (child, pipe)
}

#[test]
fn interrupted_reading_leaves_no_temporary_files() {
    for (signal, number) in SIGNALS {
        let Some(sandbox) = sandbox() else { return };
        for arguments in [
            ["pipe", "-o", "advice.md"].as_slice(),
            &["parse", "pipe"],
            &["diff", "pipe", "pipe", "-o", "diff.md"],
        ] {
            let (mut child, pipe) = on_a_pipe_that_never_ends(sandbox.path(), arguments);
            send(signal, &child);
            let status = ended(&mut child);
            assert_eq!(status.signal(), Some(number), "{arguments:?}: {status}");
            drop(pipe);
            assert_eq!(names(sandbox.path()), ["pipe", "tmp"], "{signal}");
            assert!(names(&sandbox.path().join("tmp")).is_empty(), "{signal}");
        }
    }
}

#[test]
fn interrupted_scrub_leaves_no_copy() {
    let Some(sandbox) = sandbox() else { return };
    // Takes seconds, so that the signal arrives in the middle.
    let event = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":2},"#;
    let trace = format!("{{\"traceEvents\": [{}{{}}]}}", event.repeat(400_000));
    std::fs::write(sandbox.path().join("in.json"), trace).unwrap();
    for (signal, number) in SIGNALS {
        let mut child = start(sandbox.path(), &["scrub", "in.json", "out.json"]);
        wait_for_file(&mut child, sandbox.path(), &["in.json"]);
        send(signal, &child);
        let status = ended(&mut child);
        assert_eq!(status.signal(), Some(number), "{status}");
        assert_eq!(
            names(sandbox.path()),
            ["in.json", "pipe", "tmp"],
            "{signal}"
        );
        assert!(names(&sandbox.path().join("tmp")).is_empty(), "{signal}");
    }
}

#[test]
fn signals_ignored_by_the_parent_are_ignored() {
    let Some(sandbox) = sandbox() else { return };
    let program = env!("CARGO_BIN_EXE_pyprof-advise");
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" pipe", program])
        .current_dir(sandbox.path())
        .env("TMPDIR", sandbox.path().join("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = File::options()
        .write(true)
        .open(sandbox.path().join("pipe"))
        .unwrap();
    pipe.write_all(b"{\"traceEvents\": [").unwrap();
    pipe.write_all(&[b' '; 1 << 20]).unwrap();
    send("HUP", &child);
    pipe.write_all(b"]}").unwrap();
    drop(pipe);
    let status = ended(&mut child);
    assert!(status.code().is_some(), "it read on to the end: {status}");
    assert!(names(&sandbox.path().join("tmp")).is_empty());
}
