//! Damaged profiles, briefly: no panic, no hang, bounded memory, and no wrong total without a note.
//! `cargo run --release --example torture` runs the same checks at length.

use std::path::Path;
use std::time::Duration;

use crate::shared;
use crate::support::synthetic;

#[path = "../support/faults/mod.rs"]
mod faults;

use faults::damage::Dice;
use faults::extremes::extremes;
use faults::structure::trees;
use faults::{Harness, How, Limits, Sum};

const LIMITS: Limits = Limits {
    // For debug builds on a busy machine.
    time: Duration::from_secs(300),
    // The tests of this file run concurrently in one process.
    bytes: 1 << 30,
    bytes_per_byte: 24,
};

fn unharmed(harness: &Harness, judged_at_least: usize) {
    println!(
        "{} cases, {} judged, slowest {:?}, largest {} MiB",
        harness.cases,
        harness.judged,
        harness.slowest,
        harness.largest.value >> 20
    );
    assert!(harness.faults.is_empty(), "\n{}", harness.faults.join("\n"));
    assert!(
        harness.judged >= judged_at_least,
        "the damage leaves nothing to judge"
    );
}

#[test]
fn damaged_example_profile_does_not_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(folder.path(), LIMITS);
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    let how = How {
        cuts: 10,
        flips: 12,
        one_in: 40,
    };
    faults::torture(&mut harness, &fixture, how, &mut Dice(1));
    unharmed(&harness, 10);
}

#[test]
fn damaged_trace_does_not_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(folder.path(), LIMITS);
    // Several kernels, so that some can get lost.
    let events: Vec<String> = (1..=8)
        .map(|n| {
            let ts = 10 * n;
            format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{ts}.0,"dur":9,"args":{{"Sequence number":{n},"Input Dims":[[4,4],[4,4]],"Input type":["float","float"]}}}},
{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{ts}.5,"dur":1,"args":{{"correlation":{n}}}}},
{{"ph":"X","cat":"kernel","name":"volta_sgemm_32x32_nn","pid":0,"tid":7,"ts":{ts}.7,"dur":3.5,"args":{{"correlation":{n},"device":0,"stream":7,"grid":[8,1,1],"block":[128,1,1]}}}}"#
            )
        })
        .collect();
    let trace = format!(
        r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "Tesla V100-SXM2-16GB"}}],
"traceEvents": [
{}
]}}"#,
        events.join(",\n")
    );
    let path = folder.path().join("trace.json");
    std::fs::write(&path, trace).unwrap();
    let how = How {
        cuts: 30,
        flips: 60,
        one_in: 2,
    };
    faults::torture(&mut harness, &path, how, &mut Dice(2));
    unharmed(&harness, 10);
}

/// A capture of nvprof whose kernels fill many pages.
#[test]
fn damaged_nvprof_database_does_not_crash() {
    let steps: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let description = format!(
        "format nvprof
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
define gemm block=256 regs=128 static=49152 = volta_sgemm_32x32_nn
repeat n {}
  op torch.nn.functional.linear f32[64,32] f32[128,32] None @ model.py:12
    kernel gemm 8x4 31us
",
        steps.join(" ")
    );
    let built = synthetic::build(&description);
    let folder = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(folder.path(), LIMITS);
    let mut dice = Dice(4);
    let how = How {
        cuts: 5,
        flips: 6,
        one_in: 200,
    };
    faults::torture(&mut harness, &built.path(), how, &mut dice);
    let bytes = std::fs::read(built.path()).unwrap();
    let sum = Sum::of(&built.path()).unwrap();
    let before = harness.cases;
    trees(&mut harness, "nvprof", &bytes, sum, 60, &mut dice);
    assert!(
        harness.cases > before + 20,
        "most changes leave a sound file"
    );
    unharmed(&harness, 10);
}

/// Each kernel on a GPU of its own, and a table for each: neither takes longer than in proportion. Before, this
/// took several times the limit.
#[test]
fn many_gpus_and_tables_take_no_longer_than_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        time: Duration::from_secs(60),
        ..LIMITS
    };
    let mut harness = Harness::new(folder.path(), limits);
    let events: Vec<String> = (0..100_000)
        .map(|n| {
            format!(
                "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":{n},\"tid\":7,\"ts\":{n},\"dur\":3,\
                 \"args\":{{\"correlation\":{n},\"device\":{n},\"stream\":7}}}}"
            )
        })
        .collect();
    let trace = format!("[{}]", events.join(","));
    harness.bytes("a GPU for each kernel", trace.as_bytes());
    let path = folder.path().join("tables.sqlite");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    std::fs::write(&path, std::fs::read(fixture).unwrap()).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let tables: String = (0..20_000)
        .map(|n| format!("CREATE TABLE extra{n} (id INT, value TEXT);"))
        .collect();
    db.execute_batch(&format!("BEGIN; {tables} COMMIT;"))
        .unwrap();
    drop(db);
    harness.file("20,000 tables", &path);
    unharmed(&harness, 2);
}

#[test]
fn extreme_files_do_not_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(folder.path(), LIMITS);
    extremes(&mut harness, 50_000, 50_000, 8);
    unharmed(&harness, 4);
}

#[test]
fn damaged_real_profiles_do_not_crash() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(scratch.path(), LIMITS);
    let mut dice = Dice(3);
    // Small files of every format; the long harness uses all.
    for name in [
        "lm_net.sql",
        "mock.sqlite",
        "hta_triton_example.json.gz",
        "tl_vllm_decode_full.json.gz",
    ] {
        let how = How {
            cuts: 3,
            flips: 3,
            one_in: 250,
        };
        faults::torture(&mut harness, &folder.join(name), how, &mut dice);
    }
    unharmed(&harness, 4);
}
