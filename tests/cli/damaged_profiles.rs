//! Damaged profiles, briefly: no panic, no hang, bounded memory, and no wrong total without a note.
//! `cargo run --release --example torture` runs the same checks at length.

use std::path::Path;
use std::time::Duration;

use crate::shared;

#[path = "../support/faults/mod.rs"]
mod faults;

use faults::damage::Dice;
use faults::extremes::extremes;
use faults::{Harness, How, Limits};

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
    let trace = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB"}],
"traceEvents": [
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1.0,"dur":9,"args":{"Sequence number":1,"Input Dims":[[4,4],[4,4]],"Input type":["float","float"]}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":2.0,"dur":1,"args":{"correlation":1}},
{"ph":"X","cat":"kernel","name":"volta_sgemm_32x32_nn","pid":0,"tid":7,"ts":20.0,"dur":3.5,"args":{"correlation":1,"device":0,"stream":7,"grid":[8,1,1],"block":[128,1,1]}}
]}"#;
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

#[test]
fn extreme_files_do_not_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = Harness::new(folder.path(), LIMITS);
    extremes(&mut harness, 100_000, 100_000, 24);
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
