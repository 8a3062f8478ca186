//! Reports of kernels that CUDA graphs replay, which have no operators.

use std::path::Path;

use pyprof_advise::advisor::open;
use pyprof_advise::facts::{self, Answer, FactTable, Lookup, Member};
use pyprof_advise::read::NoProgress;
use pyprof_advise::report::{RepeatingKernels, Report, markdown, read_json, text};
use pyprof_advise::{Advisor, compare, report};
use serde_json::{Value, json};

use crate::shared;

const GEMM: &str = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas";
const LAYER: [(&str, u64); 5] = [
    ("rms_norm_kernel", 4),
    (GEMM, 30),
    ("flash_fwd_splitkv_kernel", 20),
    (GEMM, 10),
    ("act_and_mul_kernel", 5),
];

/// A synthetic trace: replays of a graph with layers, and a kernel before and after them. Kernels follow
/// each other at 1 us.
struct Replays {
    events: Vec<Value>,
    now: u64,
}

impl Replays {
    fn of(replays: u64, layers: u64) -> Replays {
        let mut trace = Replays {
            events: Vec::new(),
            now: 1_000,
        };
        for replay in 1..=replays {
            let call = json!({"correlation": replay});
            trace.event("cuda_runtime", "cudaGraphLaunch", 30, &call);
            trace.now += 50;
            trace.kernel(replay, 7, "embedding_kernel", 9);
            for _ in 0..layers {
                for (name, us) in LAYER {
                    trace.kernel(replay, 7, name, us);
                }
            }
            trace.kernel(replay, 7, "softmax_kernel", 12);
        }
        trace
    }

    fn event(&mut self, cat: &str, name: &str, dur: u64, args: &Value) {
        let pid = u64::from(cat != "kernel");
        self.events.push(
            json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7,
            "ts": self.now, "dur": dur, "args": args}),
        );
    }

    fn kernel(&mut self, replay: u64, stream: u64, name: &str, us: u64) {
        let args = json!({"correlation": replay, "device": 0, "stream": stream,
            "grid": [64, 1, 1], "block": [128, 1, 1]});
        self.event("kernel", name, us, &args);
        self.now += us + 1;
    }

    fn report(&self) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        std::fs::write(&path, json!({"traceEvents": self.events}).to_string()).unwrap();
        report_of(&path)
    }
}

fn report_of(path: &Path) -> Report {
    let advisor = Advisor::new().unwrap().gpu("h100").unwrap();
    advisor.report(path).unwrap()
}

/// Repetitions, those in a row, and kernels of each.
fn counts(found: &RepeatingKernels) -> (u64, Option<u64>, u64) {
    (found.repetitions, found.in_a_row, found.length)
}

#[test]
fn layers_of_replays_are_told_by_their_period() {
    let report = Replays::of(4, 12).report();
    let found = report.repeating.as_ref().unwrap();
    assert_eq!(counts(found), (48, Some(12), 5));
    assert!(found.like_layers);
    // The sums of the durations above.
    assert_eq!(found.time_ns, 48 * 69_000);
    let places: Vec<(u64, &str, i64)> = (found.kernels.iter())
        .map(|row| (row.place, row.family.as_str(), row.time_ns))
        .collect();
    let expected = [
        (1, "norm", 48 * 4_000),
        (2, "gemm", 48 * 30_000),
        (3, "attention", 48 * 20_000),
        (4, "gemm", 48 * 10_000),
        (5, "pointwise", 48 * 5_000),
    ];
    assert_eq!(places, expected);
    // Five kernels with a pause of 1 us between them.
    let times = (found.min_ns, found.max_ns, found.mean_ns);
    assert_eq!(times, (73_000, 73_000, 73_000.0));
    let told = "4 times 12 repetitions of 5 kernels, most likely layers of the model. They take 3.31 ms (98 % of \
        GPU time). A repetition takes 73.0 us on average, 73.0 us to 73.0 us.";
    let page = markdown(&report).unwrap();
    assert!(page.contains(told), "{page}");
    assert!(
        page.contains("| 3 | `flash_fwd_splitkv_kernel` | attention | 20.0 us | 20.0 us |"),
        "{page}"
    );
    let terminal = text(&report, 100);
    assert!(terminal.contains("flash_fwd_splitkv_kernel"), "{terminal}");
}

#[test]
fn work_on_another_stream_does_not_hide_the_layers() {
    let mut trace = Replays::of(0, 0);
    let call = json!({"correlation": 1});
    trace.event("cuda_runtime", "cudaGraphLaunch", 30, &call);
    for layer in 0..20 {
        for (name, us) in LAYER {
            trace.kernel(1, 7, name, us);
        }
        // At other places of each layer, and longer than all of it.
        let sends = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)";
        for _ in 0..layer % 3 {
            trace.kernel(1, 20, sends, 100);
        }
    }
    let found = trace.report().repeating.unwrap();
    assert_eq!(counts(&found), (20, Some(20), 5));
}

#[test]
fn too_few_layers_are_no_period() {
    assert_eq!(Replays::of(1, 2).report().repeating, None);
    let found = Replays::of(1, 3).report().repeating.unwrap();
    assert_eq!(counts(&found), (3, Some(3), 5));
}

#[test]
fn layers_with_names_are_not_told_by_a_period() {
    // The same kernels, each launched by an operator.
    let mut trace = Replays::of(0, 0);
    for call in 1..=60 {
        let (name, us) = LAYER[(call as usize - 1) % LAYER.len()];
        trace.event("cpu_op", "aten::mm", 3, &json!({}));
        trace.now += 1;
        trace.event(
            "cuda_runtime",
            "cudaLaunchKernel",
            1,
            &json!({"correlation": call}),
        );
        trace.now += 3;
        trace.kernel(call, 7, name, us);
    }
    assert_eq!(trace.report().repeating, None);
}

#[test]
fn ranks_that_run_the_same_layers_are_added_up() {
    let one = Replays::of(2, 12).report();
    let merged = compare::merge(vec![one.clone(), one.clone()], Vec::new()).unwrap();
    let found = merged.repeating.unwrap();
    assert_eq!(counts(&found), (48, Some(12), 5));
    assert_eq!(found.time_ns, 48 * 69_000);
    let mut other = one.clone();
    other.repeating.as_mut().unwrap().kernels.remove(0);
    let merged = compare::merge(vec![one, other], Vec::new()).unwrap();
    assert_eq!(merged.repeating, None);
}

#[test]
fn reports_of_earlier_versions_have_no_period() {
    let mut value: Value =
        serde_json::from_str(&report::json(&Replays::of(2, 12).report())).unwrap();
    value.as_object_mut().unwrap().remove("repeating");
    assert_eq!(read_json(&value.to_string()).unwrap().repeating, None);
}

#[test]
fn layers_of_real_replays_are_counted() {
    // Counted by hand in the files: 36 decoder layers; 24, of which every second one has a sliding window,
    // and the last of which ends otherwise; 58 with experts, of which the last ends otherwise.
    for (file, expected) in [
        ("profiles/tl_sglang_decode.json.gz", (36, Some(36), 15)),
        ("profiles/tl_vllm_decode_full.json.gz", (11, Some(11), 35)),
        (
            "profiles_pairs/lightllm/overlap_rank0.json.gz",
            (57, Some(57), 76),
        ),
    ] {
        let Some(path) = shared::path(file) else {
            return;
        };
        let found = report_of(&path).repeating.unwrap();
        assert_eq!(counts(&found), expected, "{file}");
        assert!(found.share > 0.85, "{file}: {}", found.share);
    }
}

/// The layers of [`Replays`] with the members of `args` that torch 2.15 writes for regions of
/// `torch.cuda.graph_annotations.mark_kernels` (torch/profiler/_chrome_trace_export.py). No such trace of a GPU is
/// at hand, so this one is synthetic.
fn annotated() -> Replays {
    let mut trace = Replays::of(2, 12);
    let kernels = trace.events.iter_mut().filter(|e| e["cat"] == "kernel");
    for (number, event) in kernels.enumerate() {
        // The nodes of a replay: one kernel, the layers, one kernel.
        let node = number % (12 * LAYER.len() + 2);
        event["args"]["graph node id"] = json!(node + 1);
        if (1..=12 * LAYER.len()).contains(&node) {
            let layer = (node - 1) / LAYER.len();
            event["args"]["name"] = json!(format!("blocks.{layer}"));
            if layer >= 8 {
                event["args"]["autograd_phase"] = json!("backward");
            }
        }
    }
    trace
}

#[test]
fn regions_of_a_capture_name_the_layers_of_its_replays() {
    let report = annotated().report();
    let layers = &report.layers[0];
    assert_eq!((layers.name.as_str(), layers.layers), ("blocks.*", 12));
    // The sums of the durations above: 12 layers, of which 4 are part of a backward pass.
    assert_eq!(layers.time_ns, 2 * 12 * 69_000);
    assert_eq!(layers.bprop_ns, 2 * 4 * 69_000);
    assert_eq!(report.repeating, None);
    let source = report.method.layer_source.as_deref();
    assert_eq!(
        source,
        Some("regions that captured CUDA graphs (`mark_kernels`)")
    );
}

/// The trace is written by PyTorch's exporter, of invented activities: see `tests/torch/graph_annotations.py`.
#[test]
fn annotations_that_pytorch_writes_name_layers_and_messages_of_graphs() {
    let Some(python) = shared::python() else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/graph_annotations.py");
    let folder = tempfile::tempdir().unwrap();
    for lanes in ["none", "all"] {
        let path = folder.path().join(format!("{lanes}.json"));
        let mut python = std::process::Command::new(&python);
        let done = python.args(["-W", "ignore"]).arg(&script);
        let done = done.arg(&path).arg(lanes).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let report = report_of(&path);
        let mut layers = report.layers.iter();
        let layers = layers.find(|row| row.name == "blocks.*").unwrap();
        // 3 replays of 8 kernels of 20 us, of which 2 are part of a backward pass.
        let times = (layers.layers, layers.time_ns, layers.bprop_ns);
        assert_eq!(times, (4, 3 * 8 * 20_000, 3 * 2 * 20_000), "{lanes}");
        let source = report.method.layer_source.as_deref();
        assert!(source.unwrap().contains("mark_kernels"), "{lanes}");
        let rows = report.collectives.iter();
        let told: Vec<_> = rows
            .map(|row| (row.group_size, row.bytes, row.calls))
            .collect();
        assert_eq!(told, [(Some(2), Some(3 * 1024 * 2), 3)], "{lanes}");
    }
}

#[test]
fn modules_that_a_compiled_graph_names_are_regions_too() {
    let mut trace = annotated();
    for event in &mut trace.events {
        let args = event["args"].as_object_mut().unwrap();
        if let Some(name) = args.remove("name") {
            args.insert("module_fqn".to_owned(), name);
        }
    }
    let report = trace.report();
    let layers = &report.layers[0];
    assert_eq!((layers.name.as_str(), layers.layers), ("blocks.*", 12));
}

#[test]
fn scrubbed_copies_keep_the_regions_of_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.json"), folder.path().join("b.json"));
    std::fs::write(
        &path,
        json!({"traceEvents": annotated().events}).to_string(),
    )
    .unwrap();
    pyprof_advise::scrub::scrub(&path, &copy, false, &NoProgress).unwrap();
    let names = |path: &Path| -> Vec<String> {
        let report = report_of(path);
        report.layers.into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names(&copy), names(&path));
}

#[test]
fn first_nodes_of_graphs_are_numbered_zero() {
    let mut trace = annotated();
    for event in trace.events.iter_mut().filter(|e| e["cat"] == "kernel") {
        event["args"]["graph id"] = json!(3);
        event["args"]["graph node id"] = json!(0);
    }
    let layers = &trace.report().layers[0];
    assert_eq!((layers.name.as_str(), layers.layers), ("blocks.*", 12));
}

#[test]
fn names_in_events_of_other_kernels_are_no_regions() {
    let mut trace = annotated();
    for event in trace.events.iter_mut().filter(|e| e["cat"] == "kernel") {
        event["args"]["graph node id"] = json!(0);
    }
    let report = trace.report();
    let named = report.layers.iter().find(|row| row.name.contains("blocks"));
    assert_eq!(named, None);
}

#[test]
fn ranks_share_an_upper_end_of_the_slowdown() {
    let with = |most: Option<f64>| {
        let mut report = annotated().report();
        report.layers[0].slowdown_at_most = most;
        report
    };
    let merged = |a, b| {
        let merged = compare::merge(vec![with(a), with(b)], Vec::new()).unwrap();
        merged.layers[0].slowdown_at_most
    };
    // The same time on both: 2 / (1/2 + 1/4).
    assert_eq!(merged(Some(2.0), Some(4.0)), Some(2.0 / 0.75));
    assert_eq!(merged(Some(2.0), None), None);
}

#[test]
fn executions_of_a_served_model_are_counted() {
    let mut trace = Replays::of(3, 12);
    let launches = trace.events.iter().filter(|e| e["cat"] == "cuda_runtime");
    let starts: Vec<u64> = launches.map(|e| e["ts"].as_u64().unwrap()).collect();
    for start in starts {
        trace.now = start - 5;
        let name = "execute_context_0(0)_generation_8(8)";
        trace.event("user_annotation", name, 45, &json!({}));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    std::fs::write(&path, json!({"traceEvents": trace.events}).to_string()).unwrap();
    let advisor = Advisor::new().unwrap().gpu("h100").unwrap();
    let profile = open(&path, &NoProgress).unwrap();
    let costed = advisor.analyze(profile, &mut |_| {}).unwrap().costed;
    let table = FactTable::new(&costed);
    let executions = table.view(Member::Run).get("run.executions");
    assert_eq!(executions, Answer::Value(facts::Value::Int(3)));
}
