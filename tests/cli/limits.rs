//! Limits that the system sets, and input far beyond any sense: the answer is right, or an error that
//! names the limit.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use assert_cmd::Command;
use flate2::Compression;
use flate2::write::GzEncoder;
use rusqlite::Connection;

use crate::cli_sandbox::{Said, Sandbox, has, lacks, said};

/// Events of a trace with this many kernels.
fn events(kernels: usize) -> String {
    let event = |n: usize| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":{n},\"dur\":1,\
             \"args\":{{\"correlation\":{n},\"device\":0,\"stream\":7}}}}"
        )
    };
    let events: Vec<String> = (1..=kernels).map(event).collect();
    format!("[{}]", events.join(","))
}

/// Runs the program in a shell that has set a limit, as a user with no other processes: limits do not bind
/// root, and count all processes of a user.
#[cfg(target_os = "linux")]
fn limited(sandbox: &Sandbox, limit: &str, arguments: &str) -> Said {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const SOMEONE: u32 = 54_321;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.at(""), open.clone()).unwrap();
    let program = sandbox.at("program");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_pyprof-advise"), &program).unwrap();
        std::fs::set_permissions(&program, open).unwrap();
    }
    let mut shell = std::process::Command::new("bash");
    shell
        .args([
            "-c",
            &format!("ulimit {limit} && exec ./program {arguments}"),
        ])
        .current_dir(sandbox.at(""));
    if std::fs::metadata(&program).unwrap().uid() == 0 {
        shell.uid(SOMEONE).gid(SOMEONE);
    }
    said(Command::from_std(shell).timeout(Duration::from_secs(300)))
}

#[cfg(target_os = "linux")]
#[test]
fn threads_that_are_not_allowed_are_done_without() {
    let sandbox = Sandbox::new();
    sandbox.example("other.sqlite");
    sandbox.write("trace.json", &format!("{{\"traceEvents\":{}}}", events(50)));
    let wanted = |arguments: &str| sandbox.fine(arguments);
    let one = wanted("net.sqlite");
    let job = wanted("net.sqlite other.sqlite");
    let trace = wanted("trace.json --gpu v100");
    for processes in 1..8 {
        let limit = format!("-u {processes}");
        let said = limited(&sandbox, &limit, "net.sqlite");
        assert_eq!(
            (said.code, said.out == one),
            (0, true),
            "{limit}: {}",
            said.err
        );
        let said = limited(&sandbox, &limit, "net.sqlite other.sqlite");
        assert_eq!(
            (said.code, said.out == job),
            (0, true),
            "{limit}: {}",
            said.err
        );
        // A trace is unpacked by a thread of its own.
        let said = limited(&sandbox, &limit, "trace.json --gpu v100");
        if said.code == 0 {
            assert_eq!(said.out, trace);
        } else {
            assert_eq!(said.code, 2, "{limit}: {}", said.err);
            has(&said.err, &["no thread could be started", "`ulimit -u`"]);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_is_an_error_that_names_the_limit() {
    let sandbox = Sandbox::new();
    // An unoptimized program alone takes some 80 MB.
    for kilobytes in [100_000, 200_000] {
        let said = limited(&sandbox, &format!("-v {kilobytes}"), "net.sqlite");
        assert_eq!(said.code, 2, "{}", said.err);
        has(&said.err, &["256 MiB are needed", "`ulimit -v`"]);
    }
    let said = limited(&sandbox, "-v 2000000", "net.sqlite");
    assert_eq!((said.code, said.out), (0, sandbox.fine("net.sqlite")));
    // A large file, although this one needs no more: its end is empty.
    let large = std::fs::File::options()
        .append(true)
        .open(sandbox.at("net.sqlite"))
        .unwrap();
    large.set_len(4 << 30).unwrap();
    let said = limited(&sandbox, "-v 2000000", "net.sqlite");
    has(
        &said.err,
        &["1953 MiB of memory are allowed", "a profile of 4096 MiB"],
    );
}

#[test]
fn kernel_times_beyond_any_sum_are_noted() {
    let sandbox = Sandbox::bare();
    let db = Connection::open(sandbox.at("long.sqlite")).unwrap();
    db.execute_batch(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
         INSERT INTO StringIds VALUES (1, 'k');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT);",
    )
    .unwrap();
    // Kernels of 30 days each, the longest that are accepted, next to each other.
    let kernels = |from: i64, to: i64| {
        db.execute(
            "WITH RECURSIVE n(n) AS (VALUES (?1) UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT n, n + 2592000000000000, 0, n, n, 16777216, 1, 1 FROM n",
            [from, to],
        )
        .unwrap();
    };
    let note = "more than 292 years";
    kernels(1, 3_500);
    lacks(&sandbox.fine("long.sqlite --gpu v100"), &[note]);
    kernels(3_501, 3_600);
    has(&sandbox.fine("long.sqlite --gpu v100"), &[note]);
    has(
        &sandbox.fine("long.sqlite --gpu v100 --format json"),
        &[note],
    );
}

#[test]
fn output_never_replaces_what_was_read() {
    let sandbox = Sandbox::new();
    sandbox.write("rules/host/mine.toml", "title = \"t\"\n");
    sandbox.write("gpu.toml", "base = \"v100\"\nname = \"Mine\"\n");
    sandbox.write("costs.toml", "");
    sandbox.write("pa.toml", "quiet = true\n");
    sandbox.write("t.j2", "{{ title }}");
    let files = [
        (
            "--rules rules/host/mine.toml",
            "rules/host/mine.toml",
            "rule file",
        ),
        ("--rules rules", "rules/host/mine.toml", "rule file"),
        ("--gpu gpu.toml", "gpu.toml", "GPU file"),
        ("--costs costs.toml", "costs.toml", "cost file"),
        ("--config pa.toml", "pa.toml", "configuration"),
        ("--template t.j2", "t.j2", "template"),
        ("", "net.sqlite", "profile"),
    ];
    for (option, file, what) in files {
        let before = std::fs::read(sandbox.at(file)).unwrap();
        let error = sandbox.refused(&format!("net.sqlite {option} -o ./{file}"));
        has(
            &error,
            &[&format!("--output ./{file} would overwrite the {what}")],
        );
        assert!(std::fs::read(sandbox.at(file)).unwrap() == before, "{file}");
    }
}

#[cfg(unix)]
#[test]
fn profiles_that_may_not_be_read_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::bare();
    std::fs::create_dir(sandbox.at("job")).unwrap();
    sandbox.example("job/rank0.sqlite");
    let closed = sandbox.at("job/rank0.sqlite");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    for input in ["job", "job/rank0.sqlite"] {
        let said = limited(&sandbox, "-n 100", input);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
        has(&said.err, &["job/rank0.sqlite: you may not read this file"]);
    }
}

#[test]
fn long_paths_are_read_or_named() {
    let sandbox = Sandbox::new();
    for length in [400, 840, 1_500] {
        let folders = vec!["x".repeat(99); length / 100].join("/");
        std::fs::create_dir_all(sandbox.at(&folders)).unwrap();
        let path = format!("{folders}/net.sqlite");
        std::fs::copy(sandbox.at("net.sqlite"), sandbox.at(&path)).unwrap();
        let said = sandbox.run(&path);
        if said.code != 0 {
            has(&said.err, &["a folder with a shorter path"]);
            assert!(length > 400, "{}", said.err);
        }
        lacks(&said.err, &["unfinished"]);
    }
}

#[test]
fn events_may_follow_many_members() {
    let sandbox = Sandbox::bare();
    let long = format!("\"a\": \"{}\"", "x".repeat(3 << 20));
    let many: Vec<String> = (0..150_000)
        .map(|n| format!("\"a{n}\": [{n}, {{}}]"))
        .collect();
    for members in [long, many.join(",")] {
        let trace = format!("{{{members}, \"traceEvents\": {}}}", events(50));
        sandbox.write("trace.json", &trace);
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(trace.as_bytes()).unwrap();
        std::fs::write(sandbox.at("trace.json.gz"), packer.finish().unwrap()).unwrap();
        for file in ["trace.json", "trace.json.gz"] {
            let report = sandbox.report(&format!("{file} --gpu v100"));
            assert_eq!(report["summary"]["kernels"], 50, "{file}");
        }
    }
}

#[test]
fn numbers_beyond_any_sense_are_accepted_everywhere() {
    let sandbox = Sandbox::new();
    let most = u64::MAX;
    sandbox.fine("net.sqlite --format json -o a.json");
    let all = sandbox.fine("net.sqlite --top 1000");
    assert_eq!(sandbox.fine(&format!("net.sqlite --top {most}")), all);
    for format in ["markdown", "html", "text"] {
        for command in ["merge a.json", "show a.json"] {
            sandbox.fine(&format!("{command} --top {most} --format {format}"));
        }
    }
    // The same number in a report, and a report of zeros.
    let mut report = sandbox.json("a.json");
    report["top"] = most.into();
    sandbox.write("top.json", &report.to_string());
    zero(&mut report);
    report["schema_version"] = sandbox.json("a.json")["schema_version"].clone();
    sandbox.write("zeros.json", &report.to_string());
    for file in ["top.json", "zeros.json"] {
        for format in ["markdown", "html", "text", "sarif", "github"] {
            for command in ["merge", "show"] {
                let said = sandbox.run(&format!("{command} {file} --format {format}"));
                lacks(&said.err, &["jinja", "invalid operation"]);
                assert!(said.code == 0 || said.code == 2, "{}", said.err);
            }
        }
    }
    sandbox.write("d.txt", &sandbox.fine("parse net.sqlite"));
    has(
        &sandbox.refused("prof -w 500000 d.txt"),
        &["-w 500000 is too wide"],
    );
}

#[test]
fn templates_have_limits_of_size_output_and_memory() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(900);
    let output = format!("{{% for i in range(99999) %}}{long}{{% endfor %}}");
    sandbox.write("output.j2", &output);
    has(
        &sandbox.refused("net.sqlite --template output.j2"),
        &["it writes more than 64 MiB"],
    );
    // Many texts at once, each of them short enough for a filter.
    let (x, y) = ("x".repeat(300), "y".repeat(300));
    let memory = format!(
        "{{{{ range(99999)|map('string')|map('replace', '1', '{x}')|map('replace', 'x', '{y}')|list|length }}}}"
    );
    sandbox.write("memory.j2", &memory);
    if cfg!(target_os = "linux") {
        has(
            &sandbox.refused("net.sqlite --template memory.j2"),
            &["it takes more than 1024 MiB of memory"],
        );
    }
    if cfg!(unix) {
        let endless = sandbox.refused("net.sqlite --template /dev/zero");
        has(&endless, &["a template of more than 262144 bytes"]);
        for option in ["--rules", "--costs", "--config"] {
            let endless = sandbox.refused(&format!("net.sqlite {option} /dev/zero"));
            has(&endless, &["larger than 1 MiB"]);
        }
    }
}

/// Replaces all numbers by zeros.
fn zero(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Number(number) => *number = 0.into(),
        serde_json::Value::Array(list) => list.iter_mut().for_each(zero),
        serde_json::Value::Object(members) => members.values_mut().for_each(zero),
        _ => {}
    }
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open(Path::new("/dev/full"))
            .unwrap()
    };
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["rules", "--help"],
        &["help"],
        &["rules", "list"],
        &["man"],
    ] {
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .args(arguments)
            .stdout(full())
            .stderr(std::process::Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn traces_that_unpack_to_gigabytes_are_refused_early() {
    let sandbox = Sandbox::bare();
    let packed = |text: &[u8]| {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    };
    // Each part is a gzip file of its own, of which any number may follow each other.
    let part = packed(&[b' '; 1 << 20]);
    let mut bomb = packed(b"{\"traceEvents\": [");
    bomb.extend(part.repeat(3_000));
    std::fs::write(sandbox.at("bomb.json.gz"), &bomb).unwrap();
    let error = sandbox.refused("bomb.json.gz");
    has(&error, &["unpacks to more than 7", "no trace does that"]);
}
