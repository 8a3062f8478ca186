//! PyProf's names in the Python package, with the examples of PyProf's documentation: what they record under
//! nsys, and what `parse` and `prof` make of it.

use std::path::Path;
use std::process::Command;

use rusqlite::Connection;

use crate::shared;

const PID: i64 = (1 << 56) | (4242 << 24);
const TID: i64 = PID | 4243;

/// The standard output of a command that succeeds.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command:?}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The ranges that an example of PyProf's documentation pushes under nsys.
fn ranges(python: &Path, example: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python);
    command
        .args(["-W", "ignore"])
        .arg(root.join("tests/torch/markers.py"))
        .arg(root.join("python/examples").join(example))
        .env("PYTHONPATH", root.join("python"));
    output(&mut command)
}

#[test]
fn examples_of_pyprof_push_its_markers() {
    let Some(python) = shared::python() else {
        return;
    };
    let tensor = "{'name': '', 'type': 'tensor', 'shape': (4, 4), 'dtype': 'float32'}";
    let function = ranges(&python, "custom_function.py");
    for marker in [
        format!("  {{'mod': 'Foo', 'op': 'forward', 'args': [{tensor}, {tensor}]}}\n"),
        format!("      {{'mod': 'Tensor', 'op': '__add__', 'args': [{tensor}, {tensor}]}}\n"),
        format!("  {{'mod': 'Foo', 'op': 'backward', 'args': [{tensor}]}}\n"),
        "custom_function.py:13']}\n".to_owned(),
    ] {
        assert!(function.contains(&marker), "{marker}\n{function}");
    }
    let module = ranges(&python, "custom_module.py");
    assert!(
        module.contains("{'mod': 'Foo', 'op': 'forward', 'args': [{'name': ''"),
        "{module}"
    );
    let stack = "custom_module.py:17'], 'funcStack': '/";
    assert!(module.contains(stack), "{module}");
    assert!(
        module.contains("/main/Foo::_call_impl/Foo::forward'}\n"),
        "{module}"
    );
    let layers = ranges(&python, "resnet.py");
    let nested = "\n    layer:layer1.1\n      layer:layer1.1.conv1\n";
    assert!(layers.contains(nested), "{layers}");
}

/// An export of nsys with these ranges, and an invented kernel in each innermost call.
fn export(ranges: &str, path: &Path) {
    let database = Connection::open(path).unwrap();
    let tables = "
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES (1, 'invented_kernel'), (2, 'cudaLaunchKernel_v7000');
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
            globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
            contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
            demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
            blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER,
            staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER,
            graphNodeId INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
            globalTid INTEGER, textId INTEGER, domainId INTEGER);";
    database.execute_batch(tables).unwrap();
    let lines: Vec<(usize, &str)> = ranges
        .lines()
        .map(|line| (line.len() - line.trim_start().len(), line.trim_start()))
        .collect();
    let mut open: Vec<(usize, i64, &str)> = Vec::new();
    let mut now = 0;
    let close = |open: &mut Vec<(usize, i64, &str)>, depth: usize, now: &mut i64| {
        while let Some((_, start, text)) = open.pop_if(|(inside, ..)| *inside >= depth) {
            *now += 10;
            database
                .execute(
                    "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, ?3, ?4, NULL, 0)",
                    (start, *now, text, TID),
                )
                .unwrap();
        }
    };
    for (number, (depth, text)) in lines.iter().enumerate() {
        close(&mut open, *depth, &mut now);
        now += 10;
        open.push((*depth, now, text));
        let is_innermost = lines.get(number + 1).is_none_or(|(next, _)| next <= depth);
        if is_innermost && text.starts_with("{'mod'") {
            now += 100;
            let launch = format!(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({now}, {}, 0, {TID}, {number}, 2, 0);
                 INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, {number}, {PID}, 1, 1,
                    8, 1, 1, 128, 1, 1, 40, 0, 0, 0, NULL);",
                now + 10,
                now + 20,
                now + 90,
            );
            database.execute_batch(&launch).unwrap();
            now += 100;
        }
    }
    close(&mut open, 0, &mut now);
}

#[test]
fn examples_of_pyprof_are_read_by_parse_and_prof() {
    let Some(python) = shared::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let columns = |example: &str, columns: &str| {
        let path = folder.path().join(format!("{example}.sqlite"));
        export(&ranges(&python, example), &path);
        let program = env!("CARGO_BIN_EXE_pyprof-advise");
        let parsed = output(Command::new(program).arg("parse").arg(&path));
        let rows = folder.path().join(format!("{example}.dict"));
        std::fs::write(&rows, parsed).unwrap();
        output(
            Command::new(program)
                .args(["prof", "--csv", "-c", columns])
                .arg(rows),
        )
    };
    let function = columns("custom_function.py", "mod,op,params,trace");
    for row in [
        r#""Tensor","__add__","#,
        r#""Foo","backward","#,
        "custom_function.py:13",
    ] {
        assert!(function.contains(row), "{row}\n{function}");
    }
    let layers = columns("resnet.py", "layer,mod,op,params");
    // The convolutions have no bias: its place among the arguments must not be taken by the next one.
    for row in [
        r#"layer1.1.conv1","torch.nn.functional","conv2d","N=2,C=16,H=8,W=8,K=4,P=8,Q=8,R=1,S=1,ph=0,pw=0,"#,
        r#"layer1.1.conv2","torch.nn.functional","conv2d","N=2,C=4,H=8,W=8,K=16,P=8,Q=8,R=3,S=3,ph=1,pw=1,"#,
    ] {
        assert!(layers.contains(row), "{row}\n{layers}");
    }
}
