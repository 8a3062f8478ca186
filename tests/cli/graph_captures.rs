//! Kernels that CUDA graphs replay, in a recording that covers the capture of the graph. No such export is at
//! hand, so the profile is synthetic: the tables of Nsight Systems with the columns that NVIDIA's own scripts join,
//! and rows that are made up.

use std::path::Path;

use pyprof_advise::Advisor;
use pyprof_advise::correlate::UnneededRanges;
use pyprof_advise::profile::Profile;
use pyprof_advise::read::{self, NoProgress};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::cli_sandbox::{Sandbox, has, lacks};

const PID: i64 = (1 << 56) | (4242 << 24);
const TID: i64 = PID | 4242;

const TABLES: &str = "
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000'), (2, 'cudaLaunchKernel_v7000'),
        (3, 'ampere_sgemm_128x64_tn'), (4, 'void at::native::vectorized_elementwise_kernel<4,
         at::native::launch_clamp_scalar(at::TensorIteratorBase&)::lambda, at::detail::Array<char*, 2> >(int)');
    CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.14.1');
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, cuDevice INTEGER, name TEXT, isDiscrete INTEGER,
        smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER, memoryBandwidth INTEGER);
    INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA A100-SXM4-40GB', 1, 108, 8, 0, 1555200000000);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
        contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,
        blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER, graphNodeId INTEGER);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
        globalTid INTEGER, textId INTEGER, domainId INTEGER);
    CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, eventClass INTEGER,
        globalTid INTEGER, nameId INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);";

const LAYERS: i64 = 4;
const REPLAYS: i64 = 6;
/// Operator, name of the kernel, duration in ns, sizes.
const OPERATORS: [(&str, i64, i64, &str); 2] = [
    (
        "aten::addmm",
        3,
        1_000_000,
        "[[4096], [512, 4096], [4096, 4096], [], []]",
    ),
    ("aten::relu", 4, 30_000, "[[512, 4096]]"),
];

/// A program that captures two operators in each of four layers, and replays them in six steps.
fn write(path: &Path, with_capture: bool) {
    let mut sql = TABLES.to_owned();
    let range = |start: i64, end: i64, text: &str| {
        format!("INSERT INTO NVTX_EVENTS VALUES ({start}, {end}, 59, '{text}', {TID}, NULL, 0);")
    };
    let call = |start: i64, correlation: i64, name: i64| {
        let end = start + 6_000;
        format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, 0, {TID}, {correlation}, {name}, 0);"
        )
    };
    let node = |time: i64, node: i64, original: &str| {
        format!(
            "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES ({time}, {time}, 69, {TID}, NULL, {node}, {original});"
        )
    };
    let mut kernels = Vec::new();
    for layer in 0..LAYERS {
        let start = 1_000_000 + layer * 100_000;
        sql += &range(start, start + 90_000, &format!("layer:blocks.{layer}"));
        for (at, (op, name, ns, sizes)) in (0..).zip(OPERATORS) {
            let (start, id) = (start + 5_000 + at * 40_000, layer * 2 + at);
            sql += &range(
                start,
                start + 2_000,
                &format!("aten::empty, op_id = {}", 100 + id),
            );
            sql += &range(
                start + 3_000,
                start + 35_000,
                &format!("{op}, op_id = {id}, sizes = {sizes}"),
            );
            sql += &call(start + 10_000, 1 + id, 2);
            if with_capture {
                sql += &node(start + 12_000, 100 + id, "NULL");
                sql += &node(20_000_000, 200 + id, &(100 + id).to_string());
            }
            kernels.push((name, ns, 200 + id));
        }
    }
    let mut now = 50_000_000;
    for step in 0..REPLAYS {
        let (start, correlation) = (now, 1_000 + step);
        sql += &call(now + 10_000, correlation, 1);
        now += 60_000;
        for (name, ns, node) in &kernels {
            let grid = if *name == 3 {
                "64, 32, 1"
            } else {
                "4096, 1, 1"
            };
            sql += &format!(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({now}, {}, 0, 1, 7, {correlation}, {PID}, {name},
                     {grid}, 128, 1, 1, 100, {node});",
                now + ns
            );
            now += ns + 2_000;
        }
        now += 40_000;
        sql += &range(start, now - 10_000, &format!("step {step}"));
    }
    Connection::open(path).unwrap().execute_batch(&sql).unwrap();
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::bare();
    write(&sandbox.at("with.sqlite"), true);
    write(&sandbox.at("without.sqlite"), false);
    sandbox
}

/// Layer, operator, arguments, calls and time of all rows.
fn sites(report: &Value) -> Vec<Value> {
    let rows = report["sites"].as_array().unwrap().iter();
    let columns = ["layer", "operator", "arguments", "calls", "time_ns"];
    rows.map(|row| columns.map(|column| row[column].clone()).into())
        .collect()
}

#[test]
fn a_recording_of_the_capture_names_the_kernels_of_replays() {
    let sandbox = sandbox();
    let report = sandbox.report("with.sqlite");
    // A call of each operator per layer and replay, with the time of its kernel.
    let expected = OPERATORS.map(|(op, _, ns, sizes)| {
        let shapes = sizes.replace(", []", "");
        (0..LAYERS).map(move |layer| {
            let shapes = &shapes[1..shapes.len() - 1];
            json!([format!("blocks.{layer}"), op, shapes, REPLAYS, REPLAYS * ns])
        })
    });
    assert_eq!(
        sites(&report),
        expected.into_iter().flatten().collect::<Vec<_>>()
    );
    assert_eq!(report["unattributed"], json!([]));
    // An addition and a multiplication for each element of the three dimensions.
    let product = &report["sites"][0];
    assert_eq!(
        product["flops"],
        json!(2.0 * 512.0 * 4096.0 * 4096.0 * REPLAYS as f64)
    );
    assert_eq!(report["layers"][0]["name"], "blocks.*");
    assert_eq!(report["layers"][0]["calls"], json!(LAYERS * REPLAYS * 2));
    // The steps and their launches are those of the replays.
    let units = report["units"].as_array().unwrap();
    let graphs = units
        .iter()
        .find(|unit| unit["kind"] == "graph_launch")
        .unwrap();
    assert_eq!(graphs["count"], json!(REPLAYS));
    assert_eq!(graphs["kernels"], json!(vec![LAYERS * 2; REPLAYS as usize]));
    let text = sandbox.fine("with.sqlite --format markdown");
    has(&text, &["`aten::addmm` (512x4096x4096)"]);
    lacks(
        &text,
        &[
            "graph replay",
            "profile/graphs-hide-work",
            "fusion/cuda-graph",
            "fusion/many-small-kernels",
        ],
    );
    // PyProf's dictionaries have the ranges of the capture, too.
    let parsed = sandbox.fine("parse with.sqlite");
    let named = parsed.matches("'layer': ['blocks.3']").count() as i64;
    assert_eq!(named, REPLAYS * 2);
}

#[test]
fn replayed_memsets_are_called_by_the_operator_of_their_capture() {
    let sandbox = sandbox();
    let memsets = format!(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, memKind INTEGER,
             graphNodeId INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (1395000, 1399000, 59, 'aten::zeros, op_id = 900', {TID}, NULL, 0);
         INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (1397000, 1397000, 69, {TID}, NULL, 900, NULL),
             (20000000, 20000000, 69, {TID}, NULL, 901, 900);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET SELECT start, start + 300000, 0, 9, correlationId, globalPid,
             1000000, 2, 901 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId = 200;"
    );
    let file = Connection::open(sandbox.at("with.sqlite")).unwrap();
    file.execute_batch(&memsets).unwrap();
    let text = sandbox.fine("with.sqlite --format markdown");
    has(&text, &["Most of it is called by `aten::zeros`."]);
}

#[test]
fn a_recording_without_the_capture_says_what_to_record() {
    let sandbox = sandbox();
    let report = sandbox.report("without.sqlite");
    let [row] = &report["unattributed"].as_array().unwrap()[..] else {
        panic!("one reason: {}", report["unattributed"])
    };
    assert_eq!(row["reason"], "graph_replay");
    let text = sandbox.fine("without.sqlite --format markdown");
    has(
        &text,
        &[
            "start the recording before the graphs are captured (docs/capture.md)",
            "start `nsys profile --cuda-graph-trace=node ...` before the program captures its graphs",
        ],
    );
}

#[test]
fn copies_without_private_data_keep_the_capture() {
    let sandbox = sandbox();
    sandbox.fine("scrub with.sqlite copy.sqlite");
    let [report, copy] = ["with.sqlite", "copy.sqlite"].map(|file| sandbox.report(file));
    assert_eq!(sites(&copy), sites(&report));
}

#[test]
fn ranges_of_the_capture_are_not_pruned() {
    let sandbox = sandbox();
    let path = sandbox.at("with.sqlite");
    let advisor = Advisor::new().unwrap();
    let sites_of = |profile: Profile| {
        let report = advisor.analyze(profile, &mut |_| {}).unwrap().report;
        let report = serde_json::to_value(&report).unwrap();
        [sites(&report), vec![report["layers"].clone()]]
    };
    let whole = read::open(&path, &NoProgress).unwrap();
    let pruned = read::open_pruned(&path, &UnneededRanges, &NoProgress).unwrap();
    assert!(pruned.ranges.len() < whole.ranges.len());
    assert_eq!(sites_of(pruned), sites_of(whole));
}
