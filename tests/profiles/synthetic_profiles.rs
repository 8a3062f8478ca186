//! `fixtures/net.sqlite` is what the builder generates from `fixtures/net.txt`, and the builder works
//! as documented.

use crate::synthetic;
use std::path::Path;

use pyprof_advise::profile::{ApiCall, ApiClass, HostRange, Kernel, MemoryKind, Profile};
use pyprof_advise::read;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/net.txt");
const DATABASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/net.sqlite");
const RENEW: &str = "renew it with PYPROF_ADVISE_BLESS=1 cargo test fresh";

/// A table: its statement and its rows, in file order.
type Table = (String, Vec<Vec<Value>>);

fn tables(path: &Path) -> Vec<Table> {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let list = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
    let list: Vec<(String, String)> = database
        .prepare(list)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    list.into_iter()
        .map(|(name, sql)| {
            (
                sql,
                rows(&database, &format!("SELECT * FROM {name} ORDER BY rowid")),
            )
        })
        .collect()
}

fn rows(database: &Connection, query: &str) -> Vec<Vec<Value>> {
    let mut statement = database.prepare(query).unwrap();
    let width = statement.column_count();
    statement
        .query_map([], |row| (0..width).map(|column| row.get(column)).collect())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn ints(built: &synthetic::Built, query: &str) -> Vec<Vec<i64>> {
    let database = Connection::open(built.path()).unwrap();
    let int = |value: Value| match value {
        Value::Integer(int) => int,
        Value::Null => -1,
        other => panic!("{other:?} is no integer"),
    };
    rows(&database, query)
        .into_iter()
        .map(|row| row.into_iter().map(int).collect())
        .collect()
}

fn texts(built: &synthetic::Built, query: &str) -> Vec<String> {
    let database = Connection::open(built.path()).unwrap();
    let mut statement = database.prepare(query).unwrap();
    let texts = statement.query_map([], |row| row.get(0)).unwrap();
    texts.collect::<Result<_, _>>().unwrap()
}

#[test]
fn synthetic_database_is_fresh() {
    let description = std::fs::read_to_string(TEXT).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let fresh = folder.path().join("net.sqlite");
    synthetic::build_at(&fresh, "fixtures/net.txt", &description);
    if std::env::var_os("PYPROF_ADVISE_BLESS").is_some() {
        std::fs::copy(&fresh, DATABASE).unwrap();
    }
    assert!(
        Path::new(DATABASE).exists(),
        "{DATABASE} is missing; {RENEW}"
    );
    let (built, committed) = (tables(&fresh), tables(Path::new(DATABASE)));
    for (built, committed) in built.iter().zip(&committed) {
        assert_eq!(built.0, committed.0, "the tables differ; {RENEW}");
        for (row, (b, c)) in built.1.iter().zip(&committed.1).enumerate() {
            assert_eq!(b, c, "row {row} of {} differs; {RENEW}", built.0);
        }
        assert_eq!(
            built.1.len(),
            committed.1.len(),
            "rows of {}; {RENEW}",
            built.0
        );
    }
    assert_eq!(built.len(), committed.len(), "number of tables; {RENEW}");
    let bytes = std::fs::metadata(DATABASE).unwrap().len();
    assert!(bytes < 400_000, "{bytes} bytes are too many to commit");
}

fn read(path: &Path) -> Profile {
    read::open(path, &read::NoProgress).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn committed_file_is_read_completely() {
    let profile = read(Path::new(DATABASE));
    assert_eq!(profile.tool_version.as_deref(), Some("2024.2.1.106"));
    assert_eq!(profile.schema_version.as_deref(), Some("3.11.1"));
    assert_eq!(profile.notes, []);
    let [device] = profile.devices.as_slice() else {
        panic!("one GPU, not {}", profile.devices.len());
    };
    assert_eq!(device.name.as_deref(), Some("Tesla V100-SXM2-16GB"));
    assert_eq!(device.compute_capability, Some((7, 0)));
    assert_eq!(
        (device.sm_count, device.bandwidth),
        (Some(80), Some(898.048e9))
    );

    let calls = |class| profile.calls.iter().filter(|c| c.class == class).count();
    assert_eq!(profile.kernels.len(), calls(ApiClass::Launch));
    assert_eq!(profile.copies.len(), calls(ApiClass::CopyAsync));
    assert_eq!(profile.syncs.len(), calls(ApiClass::Sync));
    assert_eq!(
        (
            profile.kernels.len(),
            profile.copies.len(),
            profile.ranges.len()
        ),
        (1016, 23, 2304)
    );
    let pageable = profile
        .copies
        .iter()
        .filter(|c| [c.src, c.dst].contains(&MemoryKind::Pageable));
    assert_eq!(pageable.count(), 23);

    let ranges = |prefix: &str| {
        let starts = |r: &&_| range_text(&profile, r).starts_with(prefix);
        profile.ranges.iter().filter(starts).count()
    };
    assert_eq!((ranges("step "), ranges("layer:blocks.3.attn")), (4, 4 * 3));
    // With registered and inline texts: every backward node has the number of a forward call.
    let numbered = profile.ranges.iter().filter(|r| r.seq.is_some());
    let (backward, forward): (Vec<&HostRange>, Vec<&HostRange>) =
        numbered.partition(|r| range_text(&profile, r).contains("Backward"));
    // 5 in the stem, 15 in a block, 5 in the bridge, 2 in the head, 4 in the loss.
    assert_eq!(backward.len(), 4 * (5 + 4 * 15 + 5 + 2 + 4));
    for node in backward {
        assert!(
            forward
                .iter()
                .any(|f| f.seq == node.seq && f.span.start < node.span.start)
        );
    }
}

fn range_text<'a>(profile: &'a Profile, range: &HostRange) -> &'a str {
    profile.text(range.text)
}

#[test]
fn both_formats_read_equal() {
    let description = std::fs::read_to_string(TEXT).unwrap();
    let description = description.replace("\nformat nsys 3.11.1\n", "\nformat nvprof\n");
    let (nsys, nvprof) = (
        read(Path::new(DATABASE)),
        read(&synthetic::build(&description).path()),
    );
    assert_ne!(nsys.format.id, nvprof.format.id);
    let kernels = |p: &Profile| -> Vec<_> {
        let kernel = |k: &Kernel| {
            (
                p.text(k.name).to_owned(),
                k.span,
                p.config(k),
                k.correlation,
            )
        };
        p.kernels.iter().map(kernel).collect()
    };
    assert_eq!(kernels(&nsys), kernels(&nvprof));
    let ranges = |p: &Profile| -> Vec<_> {
        let range = |r: &HostRange| {
            (
                range_text(p, r).to_owned(),
                r.span,
                r.seq,
                p.threads[r.thread.idx()].tid,
            )
        };
        p.ranges.iter().map(range).collect()
    };
    assert_eq!(ranges(&nsys), ranges(&nvprof));
    let copies = |p: &Profile| -> Vec<_> {
        p.copies
            .iter()
            .map(|c| (c.span, c.bytes, c.src, c.dst))
            .collect()
    };
    assert_eq!(copies(&nsys), copies(&nvprof));
    let calls = |p: &Profile| -> Vec<_> {
        let call = |c: &ApiCall| (p.text(c.name).to_owned(), c.span, c.class);
        p.calls.iter().map(call).collect()
    };
    assert_eq!(calls(&nsys), calls(&nvprof));
    let gpu = |p: &Profile| {
        let d = &p.devices[0];
        (
            d.name.clone(),
            d.compute_capability,
            d.sm_count,
            d.bandwidth,
            d.clock_hz,
            d.l2_bytes,
        )
    };
    assert_eq!(gpu(&nsys), gpu(&nvprof));
}

const SMALL: &str = "
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
define gemm block=256 regs=128 static=48KiB = void ns::(anonymous namespace)::gemm<float, 4>(float*)
range step 0
  op torch.nn.functional.linear f16[64,32] f16[128,32] None @ model.py:12
    kernel gemm 8x4 31us
    grad MmBackward
      kernel gemm 8x4 60us
  backward
copy h2d pageable 2MB 500us
sync stream
";

#[test]
fn calls_have_markers_and_a_backward_node() {
    let built = synthetic::build(&format!("text inline\n{SMALL}"));
    assert_eq!(
        texts(&built, "SELECT text FROM NVTX_EVENTS ORDER BY start"),
        [
            "step 0",
            "{'traceMarker': ['model.py:12']}",
            "{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [\
             {'name': '', 'type': 'tensor', 'shape': (64, 32), 'dtype': 'float16'}, \
             {'name': '', 'type': 'tensor', 'shape': (128, 32), 'dtype': 'float16'}, \
             {'name': '', 'type': 'NoneType', 'value': None}]}",
            "linear, seq = 0",
            "MmBackward, seq = 0",
        ]
    );
    // The backward node runs on the autograd thread, and its launch is inside its range.
    let inside = "SELECT n.globalTid & 0xFFFFFF FROM NVTX_EVENTS n \
                  JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.globalTid = n.globalTid \
                  AND n.start < r.start AND r.end < n.end \
                  JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId \
                  WHERE n.text LIKE '%, seq = 0' ORDER BY n.start";
    assert_eq!(ints(&built, inside), [[1000], [1001]]);
    let kernel = "SELECT gridX, gridY, blockX, registersPerThread, staticSharedMemory, end - start \
                  FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1";
    assert_eq!(ints(&built, kernel), [[8, 4, 256, 128, 49_152, 31_000]]);
    let short =
        "SELECT value FROM StringIds JOIN CUPTI_ACTIVITY_KIND_KERNEL ON id = shortName LIMIT 1";
    assert_eq!(texts(&built, short), ["gemm"]);
}

#[test]
fn gpu_work_follows_its_launch_and_does_not_overlap() {
    let built = synthetic::build(SMALL);
    let early = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k \
                 JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) WHERE k.start < r.end";
    assert_eq!(ints(&built, early), [[0]]);
    let overlap = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL a \
                   JOIN CUPTI_ACTIVITY_KIND_KERNEL b ON a.start < b.start AND b.start < a.end";
    assert_eq!(ints(&built, overlap), [[0]]);
    // The host blocks while pageable memory is copied.
    let stands = "SELECT r.end >= m.end, m.srcKind, m.dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY m \
                  JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)";
    assert_eq!(ints(&built, stands), [[1, 0, 2]]);
}

#[test]
fn descriptions_also_build_nvprof_files() {
    let built = synthetic::build(&format!("format nvprof\n{SMALL}"));
    let pairs =
        "SELECT sum(flags = 2), sum(flags = 4), count(DISTINCT id) FROM CUPTI_ACTIVITY_KIND_MARKER";
    assert_eq!(ints(&built, pairs), [[5, 5, 5]]);
    let copies = "SELECT copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY";
    assert_eq!(ints(&built, copies), [[1, 1, 3]]);
    let launches = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL \
                    JOIN CUPTI_ACTIVITY_KIND_RUNTIME USING (correlationId) WHERE cbid = 211";
    assert_eq!(ints(&built, launches), [[2]]);
    let thread = "SELECT hex(objectId) FROM CUPTI_ACTIVITY_KIND_MARKER LIMIT 1";
    assert_eq!(texts(&built, thread), ["E8030000E803000000000000"]);
}

#[test]
fn processes_have_separate_counters() {
    let built = synthetic::build(
        "
process 7 device=0
  kernel a 1 10us
process 8 device=1
  kernel a 1 10us
  kernel b 1 10us launch=none
",
    );
    let kernels = "SELECT globalPid >> 24 & 0xFFFFFF, deviceId, correlationId \
                   FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1, 3";
    assert_eq!(ints(&built, kernels), [[7, 0, 1], [8, 1, 1], [8, 1, 2]]);
    assert_eq!(
        ints(&built, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME"),
        [[2]]
    );
}

#[test]
fn graphs_are_recorded_whole_or_as_kernels() {
    let built = synthetic::build("graph 3ms\ngraph\n  kernel a 1 5us\n  kernel b 1 5us\n");
    assert_eq!(
        ints(
            &built,
            "SELECT correlationId, end - start FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
        ),
        [[1, 3_000_000]]
    );
    assert_eq!(
        ints(
            &built,
            "SELECT correlationId, graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ),
        [[2, 3], [2, 4]]
    );
}

#[test]
fn tables_and_columns_can_be_missing() {
    let built = synthetic::build(&format!(
        "text registered\ndrop CUPTI_ACTIVITY_KIND_RUNTIME\ndrop NVTX_EVENTS.text\n\
         sql UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 13\n{SMALL}"
    ));
    let tables = "SELECT name FROM sqlite_master WHERE name LIKE 'CUPTI%' ORDER BY name";
    assert_eq!(
        texts(&built, tables),
        [
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
        ]
    );
    let column = "SELECT count(*) FROM pragma_table_info('NVTX_EVENTS') WHERE name = 'text'";
    assert_eq!(ints(&built, column), [[0]]);
    let stream = "SELECT DISTINCT streamId FROM CUPTI_ACTIVITY_KIND_KERNEL";
    assert_eq!(ints(&built, stream), [[13]]);
}

#[test]
fn templates_are_expanded_with_sequence_numbers() {
    let built = synthetic::build(
        "
text inline
define k = k
template pair NAME
  op {NAME}
  op {NAME}_grad
    grad {NAME}Backward
      op mm
        kernel k 1 1us
repeat i 1 2
  use pair x{i}
backward
open left
mark here
",
    );
    assert_eq!(
        texts(&built, "SELECT text FROM NVTX_EVENTS ORDER BY start"),
        [
            "x1, seq = 0",
            "x1_grad, seq = 0",
            "x2, seq = 1",
            "x2_grad, seq = 1",
            "x2Backward, seq = 1",
            "mm, seq = 0",
            "x1Backward, seq = 0",
            "mm, seq = 0",
            "left",
            "here",
        ]
    );
    let kinds = "SELECT eventType, end IS NULL FROM NVTX_EVENTS ORDER BY start DESC LIMIT 2";
    assert_eq!(ints(&built, kinds), [[34, 1], [59, 0]]);
}

#[test]
fn mistakes_are_reported_with_their_line() {
    for (description, mistake) in [
        (
            "range a\n  kernal k 1 1us",
            "net.txt:2: no such command: `kernal`",
        ),
        ("kernel k 1 1", "net.txt:1: `1` is not a time; write 12.5us"),
        (
            "define k = K\nkernel q 1 1us",
            "net.txt:2: no kernel `q` is defined",
        ),
        (
            "kernel k 1 1us grdi=3",
            "net.txt:1: `grdi=3`: expected one of block, regs, static, dynamic, local, stream, start, launch, each with =VALUE",
        ),
        ("range {i}", "net.txt:1: no variable `{i}` here"),
        ("\twait 1us", "net.txt:1: indented with a tab; use spaces"),
        (
            "range a\n    wait 1us\n  wait 1us",
            "net.txt:3: indentation fits no line above",
        ),
        (
            "wait 1us\n  wait 1us",
            "net.txt:2: nothing can stand below `wait`",
        ),
        (
            "template t A B\n  mark {A}\nuse t 1",
            "net.txt:3: `t` takes 2 words, not 1",
        ),
        (
            "op torch.mm q16[2]",
            "net.txt:1: `q16` is no dtype; write f16, f32, i64, ...",
        ),
        ("grad X", "net.txt:1: `grad` stands directly below an `op`"),
        (
            "copy h2d swapped 8 1us",
            "net.txt:1: `swapped`: expected pageable, pinned or device",
        ),
    ] {
        let found = synthetic::simulate("net.txt", description).unwrap_err();
        assert_eq!(found.to_string(), mistake);
    }
}
