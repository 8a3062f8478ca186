//! PyTorch profiler traces: small ones defined here, and real ones from the folder named by
//! `PYPROF_ADVISE_SHARED`, compared with values counted in their JSON when they were collected.

use crate::shared;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::sync::{LazyLock, OnceLock};

mod advice;
mod memory;
mod reports;
mod steps;
mod written;

use proptest::prelude::*;
use pyprof_advise::correlate::{Direction, LayerSource, Run, WithoutOperator, correlate};
use pyprof_advise::cost::{Family, UnknownCost, VOCABULARY, estimate_costs};
use pyprof_advise::profile::{
    ApiClass, CopyKind, MemoryKind, Profile, RangeKind, SerialNumber, Span, SyncKind,
};
use pyprof_advise::read::{self, NoProgress, ReadError};
use serde_json::{Value, json};

// ------------------------------------------------------------------------------- small traces

fn open(bytes: &[u8]) -> Result<Profile, ReadError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.pt.trace.json");
    std::fs::write(&path, bytes).unwrap();
    read::open(&path, &NoProgress)
}

pub(super) fn profile(text: &str) -> Profile {
    open(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn run(profile: Profile) -> Run {
    correlate(profile, &VOCABULARY)
}

fn note<'a>(p: &'a Profile, code: &str) -> Option<&'a str> {
    let note = p.notes.iter().find(|n| n.code == code);
    note.map(|n| n.text.as_str())
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A trace in the format of current PyTorch versions: one step, a linear layer forward and backward.
fn today() -> Value {
    let host = |cat: &str, name: &str, tid: u32, ts: f64, dur: f64, args: Value| {
        json!({"ph": "X", "cat": cat, "name": name, "pid": 42, "tid": tid, "ts": ts, "dur": dur,
               "args": args})
    };
    let launch = |tid: u32, ts: f64, id: u32| {
        let args = json!({"External id": 900 + id, "cbid": 211, "correlation": id});
        host("cuda_runtime", "cudaLaunchKernel", tid, ts, 5.0, args)
    };
    let kernel = |name: &str, ts: f64, dur: f64, id: u32| {
        json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
               "args": {"External id": 1, "device": 0, "context": 1, "stream": 7, "correlation": id,
                        "registers per thread": 128, "shared memory": 49152, "grid": [8, 4, 1],
                        "block": [256, 1, 1], "est. achieved occupancy %": 12}})
    };
    let linear = json!({"External id": 3, "Sequence number": 11, "Fwd thread id": 0,
        "Input Dims": [[128], [64, 32], [32, 128], [], []],
        "Input type": ["float", "float", "float", "Scalar", "Scalar"],
        "Input Strides": [[1], [32, 1], [1, 32], [], []],
        "Concrete Inputs": ["", "", "", "1", "1"]});
    let node = json!({"Sequence number": 11, "Fwd thread id": 1});
    let matrix = json!({"Input Dims": [[128, 64], [64, 32]], "Input type": ["float", "float"]});
    json!({
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8,
            "computeMinor": 0, "numSms": 108, "warpSize": 32, "maxThreadsPerMultiprocessor": 2048}],
        "distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 4},
        "traceEvents": [
            host("user_annotation", "ProfilerStep#7", 42, 100.0, 400.0, json!({})),
            host("python_function", "train.py(9): main", 42, 101.0, 200.0, json!({"Python id": 1})),
            host("python_function", "nn.Module: Linear_3", 42, 105.0, 100.0, json!({})),
            host("cpu_op", "aten::linear", 42, 109.0, 50.0, json!({})),
            host("cpu_op", "aten::addmm", 42, 110.0, 40.5, linear),
            launch(42, 120.125, 5),
            host("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 43, 300.0, 90.0,
                 node.clone()),
            host("cpu_op", "AddmmBackward0", 43, 301.0, 80.0, node),
            host("cpu_op", "aten::mm", 43, 302.0, 30.0, matrix),
            launch(43, 310.0, 6),
            kernel("ampere_sgemm_128x64_tn", 140.001, 30.002, 5),
            kernel("ampere_sgemm_128x64_nt", 350.0, 31.0, 6),
            kernel("stray", 390.0, 1.0, 99),
            {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0,
             "tid": 7, "ts": 130, "dur": 2, "args": {"device": 0, "stream": 7, "correlation": 4,
             "bytes": 8192}},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#7", "pid": 0, "tid": 7,
             "ts": 130, "dur": 200, "args": {}},
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 5, "pid": 42, "tid": 42, "ts": 120},
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 42, "tid": 42,
             "ts": 111, "s": "t", "args": {"Bytes": 4}},
        ],
        "traceName": "/tmp/trace.json",
    })
}

#[test]
fn lanes_chosen_for_display_are_not_streams() {
    let mut trace = today();
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        if event["cat"] == "kernel" {
            event["args"]["original_stream"] = event["args"]["stream"].clone();
            event["args"]["stream"] = json!(1_000_007);
        }
    }
    let p = profile(&trace.to_string());
    assert!(!p.kernels.is_empty() && p.kernels.iter().all(|k| k.stream == 7));
}

#[test]
fn kernels_are_attributed_by_nesting() {
    let p = profile(&today().to_string());
    assert_eq!(p.format.id, "kineto_json");
    assert_eq!((p.kernels.len(), p.calls.len(), p.ranges.len()), (3, 2, 8));
    assert_eq!(p.processes.len(), 1);
    assert_eq!((p.processes[0].pid, p.processes[0].rank), (42, Some(2)));
    let first = p.kernels[0];
    assert_eq!(
        first.span,
        Span {
            start: 140_001,
            end: 170_003
        }
    );
    let config = p.config(&first);
    assert_eq!((config.grid, config.block), ([8, 4, 1], [256, 1, 1]));
    assert_eq!(
        (config.registers, config.dynamic_shared),
        (Some(128), Some(49152))
    );
    let device = &p.devices[0];
    assert_eq!(device.name.as_deref(), Some("NVIDIA A100-SXM4-40GB"));
    assert_eq!(
        (device.sm_count, device.max_warps_per_sm),
        (Some(108), Some(64))
    );
    let copy = p.copies[0];
    assert_eq!(
        (copy.kind, copy.src, copy.dst, copy.bytes),
        (
            CopyKind::HtoD,
            MemoryKind::Pageable,
            MemoryKind::Device,
            8192
        )
    );
    assert_eq!(note(&p, "whole_microseconds"), None);

    let run = run(p);
    let forward = &run.op_calls[run.links[0].op.unwrap().idx()];
    assert_eq!(run.op_name(forward).unwrap().display(), "aten::addmm");
    let seq = run.profile.ranges[forward.range.idx()].seq;
    assert_eq!(
        (forward.direction, seq),
        (Direction::Fprop, SerialNumber::new(11))
    );
    let tensors: Vec<_> = run.args[forward.args.unwrap().idx()].tensors().collect();
    assert_eq!(tensors[1].shape, [64, 32]);
    assert_eq!(tensors[2].strides, Some(vec![1, 32]));
    let layer = &run.layers[forward.layer.unwrap().idx()];
    assert_eq!(
        (layer.name.as_str(), layer.source),
        ("Linear_3", LayerSource::Module)
    );
    let backward = &run.op_calls[run.links[1].op.unwrap().idx()];
    assert_eq!(backward.direction, Direction::Bprop);
    assert_eq!(
        backward.layer, forward.layer,
        "a backward call inherits the layer"
    );
    assert_eq!(run.links[2].missing, Some(WithoutOperator::NoLaunch));
    let steps: Vec<u64> = run.steps.iter().map(|s| s.number).collect();
    assert_eq!(steps, [7]);
}

#[test]
fn compressed_bare_and_decorated_traces_read_equal() {
    let trace = today();
    let text = trace.to_string();
    let seen = |p: &Profile| {
        let spans: Vec<Span> = p.kernels.iter().map(|k| k.span).collect();
        (spans, p.calls.len(), p.ranges.len(), p.copies.len())
    };
    let plain = seen(&profile(&text));
    assert_eq!(seen(&open(&gzip(text.as_bytes())).unwrap()), plain);
    assert_eq!(seen(&profile(&trace["traceEvents"].to_string())), plain);
    assert_eq!(seen(&profile(&format!("\u{feff}\n  {text}\n"))), plain);
    let pretty = serde_json::to_string_pretty(&trace).unwrap();
    assert_eq!(seen(&profile(&pretty)), plain);
    // Values that a strict parser rejects, in fields that are not needed.
    let loose = text.replace(
        r#""est. achieved occupancy %":12"#,
        r#""x":NaN,"y":-Infinity"#,
    );
    assert_ne!(loose, text);
    assert_eq!(seen(&profile(&loose)), plain);
    // Numbers as strings, the format of some releases.
    let strings = text.replace(r#""dur":30.002"#, r#""dur":"30.002""#);
    let strings = strings.replace(r#""correlation":5"#, r#""correlation":"5""#);
    assert_ne!(strings, text);
    assert_eq!(seen(&profile(&strings)), plain);
}

#[test]
fn job_metadata_of_traces_is_not_read() {
    let mut trace = today();
    trace["username"] = json!("somebody-secret");
    trace["job"] = json!({"token": "secret-token"});
    let p = profile(&trace.to_string());
    assert!(!p.recorded.environment);
    assert!(!p.strings.iter().any(|(_, s)| s.contains("secret")));
    trace["environment"] = json!({"PATH": "/secret", "HF_TOKEN": "secret"});
    let p = profile(&trace.to_string());
    assert!(p.recorded.environment);
    assert!(note(&p, "environment_block").unwrap().contains("secrets"));
    assert!(!format!("{p:?}").contains("HF_TOKEN"));
}

#[test]
fn traces_of_2021_with_other_spellings_are_read() {
    let p = profile(
        r#"{"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": "Operator", "name": "aten::addmm", "pid": 9, "tid": "25738", "ts": 100,
         "dur": 50, "args": {"Device": 9, "External id": 7, "Input dims": [[2], [3, 4], [4, 2]],
         "Input type": ["float", "float", "float"],
         "Call stack": "torch/nn/functional.py(1753): linear;/home/me/net.py(12): forward"}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": "25738 (python)",
         "ts": 110, "dur": 5, "args": {"cbid": 211, "correlation": 3, "external id": 1}},
        {"ph": "X", "cat": "Kernel", "name": "gemm", "pid": 0, "tid": "stream 7", "ts": 120, "dur": 9,
         "args": {"device": 0, "correlation": 3, "external id": 1, "grid": [13, 1, 1],
         "block": [256, 1, 1]}},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7",
         "ts": 130, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 4, "bytes": 512}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Traces", "tid": "x",
         "ts": 1, "dur": 200}]}"#,
    );
    assert_eq!((p.processes.len(), p.threads.len()), (1, 1));
    assert_eq!((p.kernels[0].stream, p.kernels[0].device.idx()), (7, 0));
    assert_eq!((p.sets[0].bytes, p.sets[0].mem), (512, MemoryKind::Device));
    assert!(note(&p, "whole_microseconds").is_some());
    let run = run(p);
    let call = &run.op_calls[run.links[0].op.unwrap().idx()];
    assert_eq!(run.args[call.args.unwrap().idx()].tensors().count(), 3);
    let layer = &run.layers[call.layer.unwrap().idx()];
    assert_eq!(layer.source, LayerSource::SourceLine);
    assert!(layer.name.ends_with("net.py:12"), "{}", layer.name);
}

#[test]
fn rocm_sizes_and_grids_are_read_from_the_call() {
    let p = profile(
        r#"{"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304,
            "computeMajor": 9, "computeMinor": 4, "warpSize": 64,
            "maxThreadsPerMultiprocessor": 2048, "maxSharedMemoryPerMultiProcessor": 65536}],
        "traceEvents": [
        {"ph": "X", "cat": "cuda_runtime", "name": "hipExtModuleLaunchKernel", "pid": 9, "tid": 9,
         "ts": 1, "dur": 1, "args": {"correlation": 1, "grid": [71680, 1, 1], "block": [256, 1, 1],
         "shared memory": 1024}},
        {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 9, "tid": 9,
         "ts": 3, "dur": 1, "args": {"correlation": 2, "grid": [10, 1, 1], "block": [64, 1, 1]}},
        {"ph": "X", "cat": "cuda_runtime", "name": "hipMemcpyWithStream", "pid": 9, "tid": 9,
         "ts": 5, "dur": 1, "args": {"correlation": 3, "size": "2560", "kind": "1"}},
        {"ph": "X", "cat": "cuda_runtime", "name": "hipGraphLaunch", "pid": 9, "tid": 9,
         "ts": 7, "dur": 1, "args": {"correlation": 4}},
        {"ph": "X", "cat": "kernel", "name": "Cijk", "pid": 9, "tid": 3, "ts": 10, "dur": 5,
         "args": {"device": 9, "stream": 3, "correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "ew", "pid": 9, "tid": 3, "ts": 16, "dur": 5,
         "args": {"device": 9, "stream": 3, "correlation": 2}},
        {"ph": "X", "cat": "kernel", "name": "a", "pid": 9, "tid": 3, "ts": 22, "dur": 5,
         "args": {"device": 9, "stream": 3, "correlation": 4}},
        {"ph": "X", "cat": "kernel", "name": "b", "pid": 9, "tid": 3, "ts": 28, "dur": 5,
         "args": {"device": 9, "stream": 3, "correlation": 4}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Host -> Device)", "pid": 9, "tid": 3,
         "ts": 34, "dur": 5, "args": {"device": 9, "stream": 3, "correlation": 3, "kind": "HtoD"}}
        ]}"#,
    );
    let configs: Vec<_> = p.kernels.iter().map(|k| p.config(k)).collect();
    assert_eq!(
        (configs[0].grid, configs[0].block),
        ([280, 1, 1], [256, 1, 1])
    );
    assert_eq!(configs[0].dynamic_shared, Some(1024));
    assert_eq!(configs[1].grid, [10, 1, 1]);
    assert!(!configs[2].is_known());
    assert_eq!(
        (p.copies[0].bytes, p.copies[0].kind),
        (2560, CopyKind::HtoD)
    );
    let classes: Vec<ApiClass> = p.calls.iter().map(|c| c.class).collect();
    assert_eq!(
        classes,
        [
            ApiClass::Launch,
            ApiClass::Launch,
            ApiClass::CopySync,
            ApiClass::GraphLaunch
        ]
    );
    // ROCm numbers the only GPU 9.
    assert_eq!(p.devices[0].ordinal, 9);
    assert_eq!(p.devices[0].name.as_deref(), Some("AMD Instinct MI300X"));
    let run = run(p);
    let missing: Vec<_> = run.links.iter().map(|l| l.missing).collect();
    assert_eq!(missing[2..], [Some(WithoutOperator::GraphReplay); 2]);
}

#[test]
fn ranks_of_merged_traces_are_distinguished() {
    let rank = |pid: u32, device: u32, op: &str| {
        format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "{op}", "pid": {pid}, "tid": 1, "ts": 0,
                "dur": 100, "args": {{}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {pid}, "tid": 1,
                "ts": 10, "dur": 5, "args": {{"correlation": 1}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {pid}, "tid": 1,
                "ts": 20, "dur": 5, "args": {{"correlation": {}}}}},
            {{"ph": "X", "cat": "kernel", "name": "k{pid}", "pid": {device}, "tid": 7, "ts": 30,
                "dur": 5, "args": {{"device": {device}, "stream": 7, "correlation": 1}}}},
            {{"ph": "X", "cat": "kernel", "name": "k{pid}", "pid": {device}, "tid": 7, "ts": 40,
                "dur": 5, "args": {{"device": {device}, "stream": 7, "correlation": {}}}}}"#,
            100 + pid,
            100 + pid
        )
    };
    let p = profile(&format!(
        "[{}, {}]",
        rank(50, 0, "aten::mm"),
        rank(60, 1, "aten::relu")
    ));
    assert_eq!((p.processes.len(), p.devices.len()), (2, 2));
    let run = run(p);
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let call = &run.op_calls[link.op.unwrap().idx()];
        let op = run.op_name(call).unwrap().display();
        let name = run.profile.text(kernel.name);
        assert_eq!(
            (name == "k50", name == "k60"),
            (op == "aten::mm", op == "aten::relu")
        );
    }
}

#[test]
fn operators_with_unknown_cost_are_attributed() {
    let text = today().to_string();
    let other = text
        .replace("aten::linear", "vllm::moe")
        .replace("aten::addmm", "_C::moe_mm");
    let run = run(profile(&other));
    let call = &run.op_calls[run.links[0].op.unwrap().idx()];
    assert_eq!(run.op_name(call).unwrap().display(), "_C::moe_mm");
    assert!(call.args.is_some());
}

#[test]
fn synchronizations_and_overheads_are_read() {
    let p = profile(
        r#"[{"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "pid": 4, "tid": 4,
             "ts": 1, "dur": 1, "args": {"correlation": 2}},
            {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1, "ts": 5,
             "dur": 2, "args": {"correlation": 1, "stream": -1, "device": 0}},
            {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": 8,
             "dur": 2, "args": {"correlation": 2, "stream": 7, "device": 0}},
            {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0,
             "ts": 9.5, "dur": 1526.826}]"#,
    );
    let kinds: Vec<SyncKind> = p.syncs.iter().map(|s| s.kind).collect();
    assert_eq!(
        kinds,
        [SyncKind::Context, SyncKind::StreamWait],
        "the call knows better"
    );
    assert_eq!(p.overheads[0].span.ns(), 1_526_826);
    assert_eq!(p.processes.len(), 1, "an overhead makes no process");
    assert!(
        note(&p, "kernels_missing")
            .unwrap()
            .contains("ProfilerActivity.CUDA")
    );
}

#[test]
fn frames_of_unknown_threads_are_omitted() {
    let mut trace = today();
    let stray = json!({"ph": "X", "cat": "python_function", "name": "tqdm/_monitor.py(60): run",
                       "pid": 0, "tid": 0, "ts": 1, "dur": 900, "args": {}});
    trace["traceEvents"].as_array_mut().unwrap().push(stray);
    let p = profile(&trace.to_string());
    assert_eq!((p.processes.len(), p.ranges.len()), (1, 8));
}

// ------------------------------------------------------------------------------- damaged traces

#[test]
fn truncated_traces_are_read_with_a_note() {
    let text = today().to_string();
    let start = text.find("traceEvents").unwrap() + 14;
    for at in (start..text.len()).step_by(7) {
        let p = profile(&text[..at]);
        assert!(note(&p, "trace_cut").is_some(), "{at}");
        run(p);
    }
    let packed = gzip(text.repeat(40).as_bytes());
    let p = open(&packed[..packed.len() - 20]).unwrap();
    assert!(note(&p, "trace_cut").unwrap().contains("unpacked"));
}

#[test]
fn damaged_events_are_skipped_and_counted() {
    let text = today().to_string();
    let bad = text.replacen(r#""traceEvents":["#, r#""traceEvents":[7,{"a":},"#, 1);
    let p = profile(&bad);
    assert_eq!(p.kernels.len(), 3);
    assert!(note(&p, "rows_skipped").unwrap().starts_with("2 events"));
    let timeless = text.replacen(r#""ts":350.0"#, r#""ts":"soon""#, 1);
    let p = profile(&timeless);
    assert_eq!(p.kernels.len(), 2);
    assert!(
        note(&p, "rows_skipped")
            .unwrap()
            .starts_with("1 of 3 kernel rows")
    );
}

#[test]
fn other_json_is_an_error_with_a_remedy() {
    for text in [
        "{}",
        "[]",
        "[1, 2]",
        r#"{"$schema": "https://www.speedscope.app/file-format-schema.json"}"#,
        r#"{"nodes": [{"ph": "X"}]}"#,
        r#"{"note": "\"traceEvents\" are not here"}"#,
        r#"{"traceEvents": [{"ph": "X", "cat": "toplevel", "name": "ThreadPool", "ts": 1, "dur": 2}]}"#,
    ] {
        let error = open(text.as_bytes()).expect_err(text).to_string();
        assert!(error.contains("export_chrome_trace"), "{text}: {error}");
    }
    let error = open(&gzip(b"SQLite format 3\0")).unwrap_err().to_string();
    assert!(error.contains("gunzip"), "{error}");
    assert_eq!(profile(r#"{"traceEvents": []}"#).kernels.len(), 0);
}

#[test]
fn archives_of_traces_are_told_how_to_unpack() {
    let mut tar = vec![0; 1024];
    tar[..10].copy_from_slice(b"rank0.json");
    tar[257..262].copy_from_slice(b"ustar");
    let error = open(&gzip(&tar)).unwrap_err().to_string();
    assert!(error.contains("tar xzf"), "{error}");
    let error = open(&tar).unwrap_err().to_string();
    assert!(error.contains("tar xf"), "{error}");
}

#[test]
fn traces_of_other_accelerators_say_so() {
    let mut trace = today();
    for event in trace["traceEvents"].as_array_mut().unwrap() {
        for (gpu, other) in [
            ("kernel", "mtia_ccp_events"),
            ("cuda_runtime", "mtia_runtime"),
        ] {
            if event["cat"] == gpu {
                event["cat"] = other.into();
            }
        }
    }
    let p = profile(&trace.to_string());
    let said = note(&p, "other_accelerator").unwrap();
    assert!(said.contains("5 events of Meta's MTIA"), "{said}");
    assert_eq!(
        note(&profile(&today().to_string()), "other_accelerator"),
        None
    );
    // Without operators it is still a trace of PyTorch.
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let only: Vec<&Value> = events.filter(|e| e["cat"] == "mtia_runtime").collect();
    let p = profile(&json!({ "traceEvents": only }).to_string());
    assert!(note(&p, "other_accelerator").is_some());
}

/// A trace with ranges and kernels of equal times, in which nesting is known from `Ev Idx` only.
fn with_equal_times() -> Vec<Value> {
    let mut events = Vec::new();
    for call in 1..9_u32 {
        let ts = 10.0 * f64::from(call);
        for (depth, name) in ["aten::linear", "aten::addmm", "aten::mm"]
            .iter()
            .enumerate()
        {
            let args = json!({"Ev Idx": 3 * call + depth as u32, "Input Dims": [[4, 8], [8, call]],
                "Input type": ["float", "float"]});
            events.push(
                json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts,
                "dur": 9, "args": args}),
            );
        }
        events.push(
            json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
            "tid": 1, "ts": ts + 1.0, "dur": 1, "args": {"correlation": call}}),
        );
        events.push(json!({"ph": "X", "cat": "kernel", "name": format!("k{}", call % 3), "pid": 0,
            "tid": 7, "ts": 200, "dur": 5, "args": {"device": 0, "stream": 7, "correlation": call}}));
    }
    events
}

/// Per kernel of a run: its launch, operator and arguments.
fn origins(run: &Run) -> Vec<String> {
    let kernels = run.profile.kernels.iter().zip(&run.links);
    let origin = kernels.map(|(kernel, link)| {
        let call = link.op.map(|op| &run.op_calls[op.idx()]);
        let op = call
            .and_then(|call| run.op_name(call))
            .map(pyprof_advise::correlate::OpName::display);
        let args = call.and_then(|call| Some(run.args[call.args?.idx()].clone()));
        format!("{:?} {op:?} {args:?}", kernel.correlation)
    });
    origin.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn the_order_of_events_in_the_file_does_not_matter(
        events in Just(with_equal_times()).prop_shuffle(),
    ) {
        let of = |events: &[Value]| run(profile(&json!({ "traceEvents": events }).to_string()));
        let written = origins(&of(&with_equal_times()));
        prop_assert!(written.iter().all(|origin| origin.contains("aten::mm")), "{written:?}");
        prop_assert_eq!(origins(&of(&events)), written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_bytes_do_not_crash_the_reader(changes in prop::collection::vec((0usize..6000, any::<u8>()), 1..20)) {
        let mut bytes = today().to_string().into_bytes();
        for (at, byte) in changes {
            let len = bytes.len();
            bytes[at % len] = byte;
        }
        if let Ok(p) = open(&bytes) {
            run(p);
        }
    }

    #[test]
    fn invalid_values_do_not_crash_the_reader(
        at in 0usize..17,
        field in "(ph|cat|name|pid|tid|ts|dur|args|correlation|device|stream|grid|bytes)",
        value in r#"(null|-1|1e400|9223372036854775807|-9223372036854775808|"x"|\[\]|\{\}|true|0.5)"#,
    ) {
        let mut trace = today();
        let value = serde_json::from_str(&value).unwrap_or(Value::Null);
        let event = &mut trace["traceEvents"][at];
        if event.get(&field).is_some() || !event["args"].is_object() {
            event[&field] = value;
        } else {
            event["args"][&field] = value;
        }
        run(profile(&trace.to_string()));
    }
}

// ------------------------------------------------------------------------------- real traces

/// A real trace, read and correlated once for all tests.
fn real(name: &str) -> Option<&'static Run> {
    static RUNS: LazyLock<Vec<OnceLock<Run>>> = LazyLock::new(one_each);
    let path = shared::profile(name)?;
    let slot = &RUNS[REAL.iter().position(|r| r.0 == name).unwrap()];
    let read = || run(read::open(&path, &NoProgress).unwrap_or_else(|e| panic!("{e}")));
    Some(slot.get_or_init(read))
}

/// A cache with one entry per real trace.
fn one_each<T>() -> Vec<OnceLock<T>> {
    REAL.iter().map(|_| OnceLock::new()).collect()
}

/// File; kernels, those with a call of their correlation id, those whose innermost operator has shapes;
/// GPU.
type Real = (&'static str, [usize; 3], Option<&'static str>);

const A100_40: Option<&str> = Some("NVIDIA A100-SXM4-40GB");
const V100_32: Option<&str> = Some("Tesla V100-SXM2-32GB");
const META_A100: Option<&str> = Some("NVIDIA A100-PG509-200");
const H100: Option<&str> = Some("NVIDIA H100 80GB HBM3");
const MI300X: Option<&str> = Some("AMD Instinct MI300X");

#[rustfmt::skip]
const REAL: &[Real] = &[
    ("andrewlala_resnet50_t4.json", [335, 335, 335], Some("Tesla T4")),
    ("deepseek_h800_train.json", [963, 963, 0], Some("NVIDIA H800")),
    ("dlrm_8ranks/worker0.pt.trace.json.gz", [245, 245, 245], V100_32),
    ("dlrm_8ranks/worker1.pt.trace.json.gz", [310, 246, 246], V100_32),
    ("dlrm_8ranks/worker2.pt.trace.json.gz", [246, 246, 246], V100_32),
    ("dlrm_8ranks/worker3.pt.trace.json.gz", [315, 251, 251], V100_32),
    ("dlrm_8ranks/worker4.pt.trace.json.gz", [251, 251, 251], V100_32),
    ("dlrm_8ranks/worker5.pt.trace.json.gz", [245, 245, 245], V100_32),
    ("dlrm_8ranks/worker6.pt.trace.json.gz", [246, 246, 246], V100_32),
    ("dlrm_8ranks/worker7.pt.trace.json.gz", [246, 246, 246], V100_32),
    ("hta_alexnet.json.gz", [79, 79, 0], META_A100),
    ("hta_cupti_profiler.json.gz", [0, 0, 0], None),
    ("hta_df_index_resolver.json.gz", [19_370, 19_370, 0], V100_32),
    ("hta_mi250_rocm62.json.gz", [14, 14, 14], Some("AMD Radeon Graphics")),
    ("hta_negqueue_rank0.json.gz", [6080, 5375, 5285], Some("NVIDIA A100-SXM4-80GB")),
    ("hta_nodist_cpu.json.gz", [0, 0, 0], None),
    ("hta_ns_resolution.json.gz", [4350, 4350, 0], Some("Tesla V100-SXM2-32GB")),
    ("hta_sampled_rank0.json.gz", [1154, 1154, 1138], None),
    ("hta_sampled_rank1.json.gz", [1104, 1104, 1088], None),
    ("hta_trace_diff_test.json.gz", [9876, 9330, 9222], Some("Tesla V100-SXM2-16GB")),
    ("hta_triton_example.json.gz", [1, 1, 1], META_A100),
    ("kineto_resnet50_w0.pt.trace.json.gz", [8772, 8772, 8772], Some("Tesla V100-DGXS-32GB")),
    ("marcalph_gh200.pt.trace.json", [48, 48, 48], Some("NVIDIA GH200 480GB")),
    ("marcalph_t4_custom.pt.trace.json", [6, 6, 3], Some("Tesla T4")),
    ("saf_False_b.json.gz", [5770, 5770, 5770], A100_40),
    ("saf_True_b.json.gz", [4582, 4582, 3286], A100_40),
    ("saf_True_c.json.gz", [2338, 2338, 2026], A100_40),
    ("switch_a100_b.json", [474, 474, 474], Some("NVIDIA A100 80GB PCIe")),
    ("tl_b200_eager.json.gz", [768, 768, 766], Some("NVIDIA B200")),
    ("tl_h100_bertsmall.json.gz", [60, 60, 60], H100),
    ("tl_h100_owlv2.json.gz", [4330, 4330, 4330], H100),
    ("tl_h100_qwen.json.gz", [1465, 1029, 1029], H100),
    ("tl_h100_timesformer.json.gz", [446, 446, 446], H100),
    ("tl_h100_vit.json.gz", [154, 154, 154], H100),
    ("tl_mi210_gpu_only.json.gz", [562, 562, 0], Some("AMD Instinct MI210")),
    ("tl_mi300_ddp_resnet18.json.gz", [2360, 2360, 2360], MI300X),
    ("tl_mi300_owlv2.json.gz", [4255, 4255, 4255], Some("AMD Instinct MI300X VF")),
    ("tl_mi300_qwen.json.gz", [1516, 1053, 1053], Some("AMD Instinct MI300X VF")),
    ("tl_mi300_resnet_ckpt.json.gz", [2995, 2238, 2238], MI300X),
    ("tl_sglang_decode.json.gz", [555, 555, 8], MI300X),
    ("tl_sglang_prefilldecode.json.gz", [527, 527, 525], MI300X),
    ("tl_vllm_decode_full.json.gz", [425, 425, 4], None),
    ("tl_vllm_pd_piecewise.json.gz", [413, 413, 52], None),
    ("zoology_a100_nokernels.json", [0, 0, 0], None),
];

/// The innermost operator of a launch, by the scope tree.
fn innermost_operator(run: &Run, kernel: usize) -> Option<usize> {
    let mut scope = run.links[kernel].scope;
    while let Some(id) = scope {
        let node = run.scopes[id.idx()];
        if run.profile.ranges[node.range.idx()].kind == RangeKind::CpuOp {
            return Some(node.range.idx());
        }
        scope = node.parent;
    }
    None
}

fn shapes_of(p: &Profile, range: usize) -> Option<&str> {
    let text = p.text(p.ranges[range].args?);
    let (_, from) = text.split_once("\"Input Dims\":")?;
    let end = from.find(",\"Input type\"").unwrap_or(from.len() - 1);
    from.get(..end)
}

#[test]
fn real_traces_have_the_counts_of_their_json() {
    for &(file, expected, gpu) in REAL {
        let Some(run) = real(file) else { continue };
        let p = &run.profile;
        let calls: HashSet<_> = p
            .calls
            .iter()
            .map(|c| (p.threads[c.thread.idx()].process, c.correlation))
            .collect();
        let launched = p.kernels.iter().map(|k| (k.process, k.correlation));
        let launched = launched.filter(|id| calls.contains(id)).count();
        let name = p.devices.first().and_then(|d| d.name.clone());
        assert_eq!(name.as_deref(), gpu, "{file}");
        assert_eq!(note(p, "rows_skipped"), None, "{file}");
        assert_eq!(note(p, "trace_cut"), None, "{file}");
        assert!(p.kernels.is_sorted_by_key(|k| k.span.start), "{file}");
        let with_shapes = (0..run.profile.kernels.len())
            .filter_map(|k| innermost_operator(run, k))
            .filter(|range| shapes_of(&run.profile, *range).is_some())
            .count();
        let found = [run.profile.kernels.len(), launched, with_shapes];
        assert_eq!(found, expected, "{file}");
        let found = run.links.iter().filter(|link| link.launch.is_some());
        assert_eq!(found.count(), launched, "{file}");
    }
}

#[test]
fn every_real_trace_is_in_the_table() {
    let Some(files) = shared::profiles() else {
        return;
    };
    for file in files {
        let name = shared::name(&file);
        let trace = name.ends_with(".json") || name.ends_with(".json.gz");
        assert!(!trace || REAL.iter().any(|r| r.0 == name), "{name}");
    }
}

/// Number of kernels per reason why they have no operator.
fn missing(run: &Run) -> BTreeMap<WithoutOperator, usize> {
    let mut counts = BTreeMap::new();
    for reason in run.links.iter().filter_map(|l| l.missing) {
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

#[test]
fn kernels_without_launch_or_in_graphs_have_a_reason() {
    for (file, no_launch, replayed) in [
        ("tl_h100_qwen.json.gz", 436, 0),
        ("tl_mi300_qwen.json.gz", 463, 0),
        ("tl_mi300_resnet_ckpt.json.gz", 757, 0),
        ("hta_trace_diff_test.json.gz", 546, 4464),
        ("tl_sglang_decode.json.gz", 0, 544),
        ("tl_vllm_decode_full.json.gz", 0, 421),
        ("tl_b200_eager.json.gz", 0, 0),
    ] {
        let Some(run) = real(file) else { return };
        let missing = missing(run);
        let count = |reason| missing.get(&reason).copied().unwrap_or(0);
        assert_eq!(count(WithoutOperator::NoLaunch), no_launch, "{file}");
        assert_eq!(count(WithoutOperator::GraphReplay), replayed, "{file}");
    }
}

/// In this trace, the `External id` is a copy of the correlation id and refers to another operator.
#[test]
fn shapes_come_from_nesting_and_not_from_external_ids() {
    const FILE: &str = "switch_a100_b.json";
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let mut text = String::new();
    let mut file = std::fs::File::open(folder.join(FILE)).unwrap();
    file.read_to_string(&mut text).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |cat: &'static str| events.iter().filter(move |e| e["cat"] == cat);
    let ops: Vec<(i64, i64, &Value)> = of("cpu_op")
        .map(|e| {
            let start = e["ts"].as_i64().unwrap();
            (start, start + e["dur"].as_i64().unwrap(), &e["args"])
        })
        .collect();
    let by_external: HashMap<i64, &Value> = of("cpu_op")
        .map(|e| (e["args"]["External id"].as_i64().unwrap(), &e["args"]))
        .collect();
    let launches: HashMap<i64, i64> = of("cuda_runtime")
        .map(|e| {
            let id = e["args"]["correlation"].as_i64().unwrap();
            (id, e["ts"].as_i64().unwrap())
        })
        .collect();

    let run = real(FILE).unwrap();
    let mut by_correlation: HashMap<u64, usize> = HashMap::new();
    for (index, kernel) in run.profile.kernels.iter().enumerate() {
        by_correlation.insert(kernel.correlation.unwrap().get(), index);
    }
    let mut misled = 0;
    for kernel in of("kernel") {
        let id = kernel["args"]["correlation"].as_i64().unwrap();
        let at = launches[&id];
        // The ranges of this trace's only thread nest, so the innermost is the one that opened last.
        let around = ops
            .iter()
            .filter(|(start, end, _)| *start <= at && at < *end);
        let args = around.max_by_key(|op| (op.0, -op.1)).unwrap().2;
        let range = innermost_operator(run, by_correlation[&(id as u64)]).unwrap();
        let own: Value = serde_json::from_str(shapes_of(&run.profile, range).unwrap()).unwrap();
        assert_eq!(own, args["Input Dims"], "correlation {id}");
        let external = kernel["args"]["External id"].as_i64().unwrap();
        misled += usize::from(by_external.get(&external).is_some_and(|other| {
            (&other["Input Dims"], &other["Input type"])
                != (&args["Input Dims"], &args["Input type"])
        }));
    }
    assert_eq!(
        misled, 87,
        "kernels an external id would give another operator's arguments"
    );
}

#[test]
fn real_traces_have_directions_layers_and_steps() {
    let Some(resnet) = real("kineto_resnet50_w0.pt.trace.json.gz") else {
        return;
    };
    let mut directions: BTreeMap<Direction, usize> = BTreeMap::new();
    for link in &resnet.links {
        let call = &resnet.op_calls[link.op.unwrap().idx()];
        *directions.entry(call.direction).or_default() += 1;
    }
    // One `fill_` per step creates the gradient from which the backward pass starts.
    assert_eq!(directions.remove(&Direction::Unknown), Some(6));
    assert_eq!(directions.len(), 3, "{directions:?}");
    assert_eq!(resnet.steps.len(), 6);
    assert!(
        resnet
            .unreliable_idle
            .as_ref()
            .unwrap()
            .contains("with_stack")
    );

    let vit = real("tl_h100_vit.json.gz").unwrap();
    assert_eq!(vit.layer_source, Some(LayerSource::Module));
    assert_eq!(vit.steps.len(), 1);
    let checkpointed = real("tl_mi300_resnet_ckpt.json.gz").unwrap();
    let again = checkpointed.op_calls.iter().filter(|c| c.recomputed);
    assert!(again.clone().all(|c| c.direction == Direction::Fprop));
    assert!(
        again.count() > 0,
        "activation checkpointing runs forward work twice"
    );
}

/// No trace with these numbers is at hand: the members are those that `get_profiler_kwargs` of
/// torch/_inductor/runtime/triton_heuristics.py writes.
#[test]
fn compiled_products_cost_what_the_compiler_recorded() {
    let cost = |name: &str, more: Value| {
        let mut args = json!({"Input Dims": [[64, 32], [32, 16], [64, 16]],
            "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]});
        for (key, value) in more.as_object().unwrap() {
            args[key] = value.clone();
        }
        let trace = json!({"traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": args},
            {"ph": "X", "cat": "cuda_runtime", "name": "cuLaunchKernel", "pid": 1, "tid": 1, "ts": 2,
             "dur": 2, "args": {"correlation": 5}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 6, "dur": 9,
             "args": {"correlation": 5, "device": 0, "stream": 7}}]});
        let costed = estimate_costs(run(profile(&trace.to_string())), None);
        let cost = costed.sites[0].cost.clone();
        cost.map(|cost| (cost.family, cost.flops(), cost.bytes()))
    };
    let recorded = json!({"kernel_flop": 65_536, "kernel_num_gb": 0.000_007_168});
    let mm = cost("triton_tem_fused_mm_2", recorded.clone());
    // 2 x 64 x 16 x 32, and the three matrices in bf16.
    assert_eq!(mm, Ok((Family::Gemm, 65_536, 2 * (2_048 + 512 + 1_024))));
    // Without them the sizes of the buffers leave the same product only.
    for without in [
        json!({}),
        json!({"kernel_flop": "None", "kernel_num_gb": 0.1}),
    ] {
        assert_eq!(cost("triton_tem_fused_mm_2", without), mm);
    }
    let slice = json!({"Input Dims": [[64, 96], [32, 16], [64, 16]]});
    let slice = cost("triton_tem_fused_mm_2", slice);
    assert_eq!(slice, Err(UnknownCost::NoScalars));
    let flex = cost("triton_tem_fused_flex_attention_1", recorded.clone());
    assert_eq!(flex, Err(UnknownCost::DataDependent));
    // Of other kernels the shapes tell more: three matrices of one type.
    let pointwise = cost("triton_poi_fused_add_0", recorded);
    assert_eq!(pointwise.map(|cost| cost.1), Ok(0));
}
