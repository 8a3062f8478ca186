//! Comparisons of two profiles: they report the effect of a change and nothing else.

use crate::formats::check;
use crate::shared;
use std::path::Path;

use crate::cli_sandbox::{ROOT, Said, Sandbox, has, said};
use pyprof_advise::compare::diff::{
    Diff, MatchLevel, SCHEMA, SiteChange, TREND_SCHEMA, TimeUnit, Trend, json, markdown,
};
use serde_json::{Value, json};

impl Sandbox {
    /// A sandbox with `before.json` and `after.json`.
    fn of(before: &Program, after: &Program) -> Sandbox {
        let sandbox = Sandbox::bare();
        sandbox.write("before.json", &before.trace());
        sandbox.write("after.json", &after.trace());
        sandbox
    }

    fn call(&self, arguments: &[&str]) -> Said {
        said(&mut self.command_of(arguments))
    }

    fn good(&self, arguments: &[&str]) -> String {
        let said = self.call(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
        said.out
    }

    fn diff(&self) -> Diff {
        let text = self.good(&["diff", "before.json", "after.json", "--format", "json"]);
        let diff: Diff = serde_json::from_str(&text).unwrap();
        assert_eq!(json(&diff), text, "a number changed on the way");
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let value = serde_json::from_str(&text).unwrap();
        jsonschema::validate(&schema, &value).unwrap_or_else(|error| panic!("{error}"));
        diff
    }

    fn markdown(&self) -> String {
        let text = self.good(&["diff", "before.json", "after.json"]);
        well_made(&text);
        text
    }

    fn gate(&self, gate: &str) -> Said {
        let gate = format!("regression={gate}");
        self.call(&["diff", "before.json", "after.json", "--fail-on", &gate])
    }
}

/// Checks that tables have equal columns, folds are closed, and the text fits into a comment.
fn well_made(text: &str) {
    check::whole_tables(text);
    let lines: Vec<&str> = text.lines().collect();
    let count = |line: &str| lines.iter().filter(|l| **l == line).count();
    assert_eq!(count("<details>"), count("</details>"));
    assert!(text.chars().count() < 65_000);
}

// -------------------------------------------------------------------------------- synthetic programs

/// One operator call of a step.
#[derive(Debug, Clone)]
struct Op {
    layer: String,
    name: &'static str,
    dims: Vec<Vec<u64>>,
    dtype: &'static str,
    kernel: &'static str,
    us: f64,
}

/// A synthetic trace of torch.profiler: steps of some operator calls in layers.
#[derive(Debug, Clone)]
struct Program {
    /// Name, compute capability and multiprocessors.
    gpu: (&'static str, u32, u32, u32),
    ops: Vec<Op>,
    /// Idle time at the end of each step, in microseconds.
    pauses: Vec<f64>,
    numbered: bool,
    /// Whether the host only queues work, without waiting for the GPU.
    ahead: bool,
}

const A100: (&str, u32, u32, u32) = ("NVIDIA A100-SXM4-40GB", 8, 0, 108);
const H100: (&str, u32, u32, u32) = ("NVIDIA H100 80GB HBM3", 9, 0, 132);
const GEMM: &str = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn";
const ADD: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)";

impl Program {
    /// Four blocks with two products and an addition each, and a head.
    fn net() -> Program {
        let mut ops = Vec::new();
        let rows = 4096;
        for block in 0..4 {
            let mm = |part: &str, k, n, us| Op {
                layer: format!("blocks.{block}.{part}"),
                name: "aten::mm",
                dims: vec![vec![rows, k], vec![k, n]],
                dtype: "c10::BFloat16",
                kernel: GEMM,
                us,
            };
            ops.push(mm("up", 1024, 4096, 200.0));
            ops.push(mm("down", 4096, 1024, 210.0));
            ops.push(Op {
                layer: format!("blocks.{block}.residual"),
                name: "aten::add",
                dims: vec![vec![rows, 1024], vec![rows, 1024]],
                dtype: "float",
                kernel: ADD,
                us: 40.0,
            });
        }
        ops.push(Op {
            layer: "head".to_owned(),
            name: "aten::mm",
            dims: vec![vec![rows, 1024], vec![1024, 8192]],
            dtype: "c10::BFloat16",
            kernel: GEMM,
            us: 400.0,
        });
        Program {
            gpu: A100,
            ops,
            pauses: vec![10.0, 14.0, 8.0, 12.0],
            numbered: true,
            ahead: false,
        }
    }

    fn with(mut self, change: impl Fn(&mut Op)) -> Program {
        self.ops.iter_mut().for_each(change);
        self
    }

    fn steps(mut self, steps: usize) -> Program {
        self.pauses = (0..steps).map(|i| 8.0 + (i % 4) as f64 * 2.0).collect();
        self
    }

    fn trace(&self) -> String {
        let mut events = Vec::new();
        let mut host = 1000.0;
        let mut gpu: f64 = 0.0;
        let mut id = 0;
        for (number, pause) in self.pauses.iter().enumerate() {
            let start = host;
            for op in &self.ops {
                id += 1;
                let types = vec![op.dtype; op.dims.len()];
                let shapes = json!({"Input Dims": op.dims, "Input type": types});
                events.push(on_host("user_annotation", &op.layer, host, 9.0, json!({})));
                events.push(on_host("cpu_op", op.name, host + 1.0, 7.0, shapes));
                let launch = json!({"correlation": id});
                events.push(on_host(
                    "cuda_runtime",
                    "cudaLaunchKernel",
                    host + 2.0,
                    4.0,
                    launch,
                ));
                host += 10.0;
                gpu = gpu.max(host);
                events.push(json!({
                    "ph": "X", "cat": "kernel", "name": op.kernel, "pid": 0, "tid": 7, "ts": gpu,
                    "dur": op.us, "args": {"device": 0, "context": 1, "stream": 7,
                        "correlation": id, "grid": [512, 4, 1], "block": [256, 1, 1]}
                }));
                gpu += op.us;
            }
            // The step ends when the GPU has finished.
            host = if self.ahead { host } else { gpu } + pause;
            if self.numbered {
                let name = format!("ProfilerStep#{}", number + 1);
                events.push(on_host(
                    "user_annotation",
                    &name,
                    start,
                    host - start,
                    json!({}),
                ));
            }
        }
        let (name, major, minor, sms) = self.gpu;
        json!({
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": name, "computeMajor": major, "computeMinor": minor,
                "numSms": sms, "warpSize": 32}],
            "traceEvents": events,
        })
        .to_string()
    }
}

fn on_host(cat: &str, name: &str, ts: f64, dur: f64, args: Value) -> Value {
    json!({"ph": "X", "cat": cat, "name": name, "pid": 42, "tid": 42, "ts": ts, "dur": dur,
           "args": args})
}

fn near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 1e-3
}

fn level(diff: &Diff, level: MatchLevel) -> f64 {
    let of = diff.matched.iter().find(|m| m.level == level);
    of.map_or(0.0, |m| m.before_share)
}

fn only(list: &[SiteChange]) -> &SiteChange {
    assert_eq!(list.len(), 1, "{list:#?}");
    &list[0]
}

// ------------------------------------------------------------------------------------------ the tests

#[test]
fn equal_profiles_have_no_change() {
    let sandbox = Sandbox::of(&Program::net(), &Program::net());
    let diff = sandbox.diff();
    assert!(diff.no_change && diff.comparable, "{diff:#?}");
    assert_eq!((diff.unit, diff.regression), (TimeUnit::Step, None));
    assert_eq!(diff.wall.unwrap().ratio, 1.0);
    assert!(near(level(&diff, MatchLevel::Exact), 1.0));
    let text = sandbox.markdown();
    has(
        &text,
        &["**No change: a step takes 2.22 ms before and 2.22 ms after.**"],
    );
    assert!(
        !text.contains("## Slower") && !text.contains("## Time"),
        "{text}"
    );
    assert_eq!(sandbox.gate("0%").code, 0);
}

#[test]
fn profile_without_operators_equals_one_with_them() {
    let sandbox = Sandbox::of(&Program::net(), &Program::net());
    let mut bare: Value = serde_json::from_str(&Program::net().trace()).unwrap();
    bare["traceEvents"].as_array_mut().unwrap().retain(|event| {
        let is_step = event["name"].as_str().unwrap().starts_with("ProfilerStep");
        is_step || event["cat"] == "cuda_runtime" || event["cat"] == "kernel"
    });
    sandbox.write("after.json", &bare.to_string());
    let diff = sandbox.diff();
    assert!(near(level(&diff, MatchLevel::Kernel), 1.0), "{diff:#?}");
    assert!(diff.appeared.is_empty() && diff.vanished.is_empty());
    assert!(diff.slower.is_empty() && diff.faster.is_empty());
    assert!(diff.findings.fixed.is_empty(), "{:#?}", diff.findings);
}

#[test]
fn every_fixture_equals_itself() {
    let fixture = Path::new(ROOT).join("fixtures/net.sqlite");
    let fixture = fixture.to_str().unwrap();
    let sandbox = Sandbox::bare();
    let text = sandbox.good(&["diff", fixture, fixture]);
    has(&text, &["**No change: "]);
    for gpu in [&["--gpu", "v100"][..], &[]] {
        let said = sandbox.call(
            &[
                &["diff", fixture, fixture, "--fail-on", "regression=0%"],
                gpu,
            ]
            .concat(),
        );
        assert_eq!(said.code, 0, "{}", said.err);
    }
}

/// Nothing makes these ranks wait for each other, so that the job takes as long as its slowest.
#[test]
fn slowest_of_ranks_that_do_not_communicate_decides() {
    let slower = Program::net().with(|op| {
        if op.layer.ends_with(".down") {
            op.us *= 1.14;
        }
    });
    let sandbox = Sandbox::bare();
    for rank in 0..4 {
        let after = if rank == 2 { &slower } else { &Program::net() };
        sandbox.write(&format!("before/rank{rank}.json"), &Program::net().trace());
        sandbox.write(&format!("after/rank{rank}.json"), &after.trace());
    }
    let gate = |limit: &str| {
        let gate = format!("regression={limit}");
        sandbox.call(&["diff", "before", "after", "--fail-on", &gate])
    };
    // 118 of 2,221 us per step on one rank of four, 1.3 % of their mean.
    let said = gate("3%");
    assert_eq!(said.code, 1, "{}", said.err);
    has(&said.err, &["failed: slower by 5.3 %, more than the 3.0 %"]);
    assert_eq!(gate("6%").code, 0);
}

#[test]
fn slower_operators_are_named_and_fail_the_gate() {
    let slower = Program::net().with(|op| {
        if op.layer.ends_with(".down") {
            op.us *= 1.5;
        }
    });
    let sandbox = Sandbox::of(&Program::net(), &slower);
    let diff = sandbox.diff();
    let site = only(&diff.slower);
    assert_eq!(site.place, "blocks.*.down · aten::mm");
    assert!(
        near(site.before_ns, 840e3) && near(site.ratio, 1.5),
        "{site:?}"
    );
    assert!(diff.faster.is_empty() && diff.appeared.is_empty() && diff.vanished.is_empty());
    assert_eq!(diff.layers[0].name, "blocks.*.down");
    let regression = diff.regression.unwrap();
    assert!((regression - 420.0 / 2221.0).abs() < 0.005, "{regression}");
    let text = sandbox.markdown();
    has(
        &text,
        &[
            "**A step takes 19 % more wall time: 2.64 ms, before 2.22 ms, beyond the noise (0.2 %); the GPU is busy for",
            "What changed: `blocks.*.down · aten::mm` takes 1.26 ms instead of 840 us.",
            "## Slower",
            "+50 %",
        ],
    );
    let said = sandbox.gate("3%");
    assert_eq!(said.code, 1);
    has(&said.err, &["failed: slower by 19 %, more than the 3.0 %"]);
    assert!(
        said.out.starts_with("# What changed"),
        "the report comes all the same"
    );
    assert_eq!(sandbox.gate("25%").code, 0);
    // In the other direction, it is an improvement.
    let back = sandbox.call(&[
        "diff",
        "after.json",
        "before.json",
        "--fail-on",
        "regression=0%",
    ]);
    assert_eq!(back.code, 0);
    has(
        &back.out,
        &[
            "**A step takes 16 % less wall time: 2.22 ms, before 2.64 ms",
            "## Faster",
        ],
    );
}

#[test]
fn twice_as_many_steps_are_not_a_change() {
    let sandbox = Sandbox::of(&Program::net(), &Program::net().steps(8));
    let diff = sandbox.diff();
    assert_eq!((diff.before.steps, diff.after.steps), (4, 8));
    assert!(diff.no_change, "{:#?}", diff.verdict);
    assert_eq!(sandbox.gate("0%").code, 0);
}

#[test]
fn calls_are_compared_if_there_are_no_steps() {
    // Two repetitions are too few to recognize steps.
    let mut before = Program::net().steps(2);
    before.numbered = false;
    let mut after = before.clone().steps(9).with(|op| {
        if op.layer == "head" {
            op.us *= 1.25;
        }
    });
    let sandbox = Sandbox::of(&before, &after);
    let diff = sandbox.diff();
    assert_eq!(diff.unit, TimeUnit::Call);
    assert_eq!((diff.wall, diff.noise), (None, None));
    let site = only(&diff.slower);
    assert_eq!(site.place, "head · aten::mm");
    assert!(
        near(site.before_ns, 0.8e6) && near(site.after_ns, 1.0e6),
        "{site:?}"
    );
    assert_eq!((site.calls_before, site.calls_after), (2.0, 9.0));
    has(
        &sandbox.markdown(),
        &[
            "**The calls that both profiles have take 4.5 % more time",
            "because the first profile has no steps",
            "the noise is unknown",
            "; the analyzed window is 2",
        ],
    );
    let said = sandbox.gate("3%");
    assert_eq!(said.code, 0);
    let why = "--fail-on regression was not checked: the profiles have no unit of work in common";
    has(&said.err, &[why]);
    let gate = ["--fail-on", "regression=3%", "--strict"];
    let said = sandbox.call(&[&["diff", "before.json", "after.json"], &gate[..]].concat());
    assert_eq!(said.code, 1);
    has(&said.err, &["failed: ", why]);
    // If only one of them has steps, calls are compared too.
    after.numbered = true;
    assert_eq!(Sandbox::of(&before, &after).diff().unit, TimeUnit::Call);
}

#[test]
fn renamed_kernels_are_reported() {
    let other = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x16_kernel";
    let after = Program::net().with(|op| {
        if op.layer.ends_with(".up") {
            op.kernel = other;
            op.us = 150.0;
        }
    });
    let sandbox = Sandbox::of(&Program::net(), &after);
    let diff = sandbox.diff();
    let site = only(&diff.faster);
    assert_eq!(site.level, MatchLevel::Exact);
    assert_eq!(site.notes, ["another kernel"]);
    assert_eq!(diff.kernels.len(), 1);
    assert!(diff.kernels[0].after.contains("xmma"), "{:?}", diff.kernels);
    has(&sandbox.markdown(), &["## The same work in other kernels"]);
}

#[test]
fn doubled_batches_are_doubled_work() {
    let bigger = |factor: f64| {
        Program::net().with(move |op| {
            for dims in &mut op.dims {
                if dims[0] == 4096 && dims[1] != 1024 || op.name == "aten::add" {
                    dims[0] *= 2;
                } else if dims[0] == 4096 {
                    dims[0] = 8192;
                }
            }
            // Weights keep their shapes.
            if op.layer.ends_with(".down") {
                op.dims[1] = vec![4096, 1024];
            }
            op.us *= factor;
        })
    };
    let sandbox = Sandbox::of(&Program::net(), &bigger(2.0));
    let diff = sandbox.diff();
    assert_eq!(diff.sizes, Some(2.0), "{diff:#?}");
    assert!(level(&diff, MatchLevel::Sizes) > 0.99);
    assert!(diff.slower.is_empty(), "{:#?}", diff.slower);
    has(
        &sandbox.markdown(),
        &[
            "**Sizes grew 2.00x, and a step takes 1.9",
            "per unit of data that is the same",
        ],
    );
    assert_eq!(
        sandbox.gate("3%").code,
        0,
        "twice the data in twice the time"
    );

    let sandbox = Sandbox::of(&Program::net(), &bigger(2.5));
    assert!(sandbox.diff().slower.len() >= 2);
    assert_eq!(
        sandbox.gate("3%").code,
        1,
        "twice the data in 2.5 times the time"
    );
}

#[test]
fn renamed_layers_are_matched() {
    let after = Program::net().with(|op| {
        op.layer = op.layer.replace("blocks.", "encoder.layers.");
        if op.layer.ends_with(".up") {
            op.us *= 2.0;
        }
    });
    let sandbox = Sandbox::of(&Program::net(), &after);
    let diff = sandbox.diff();
    assert!(
        level(&diff, MatchLevel::LayerRenamed) > 0.7,
        "{:?}",
        diff.matched
    );
    let site = only(&diff.slower);
    assert_eq!(site.place, "blocks.*.up · aten::mm");
    let place_after = site.place_after.as_deref();
    assert_eq!(place_after, Some("encoder.layers.*.up · aten::mm"));
    assert!(diff.appeared.is_empty() && diff.vanished.is_empty());
    assert_eq!(
        diff.layers[0].renamed.as_deref(),
        Some("encoder.layers.*.up")
    );
}

#[test]
fn sites_with_other_dtypes_are_matched_with_a_note() {
    let after = Program::net().with(|op| {
        if op.layer == "head" {
            op.dtype = "float";
            op.kernel = "ampere_sgemm_128x128_tn";
            op.us *= 8.0;
        }
    });
    let diff = Sandbox::of(&Program::net(), &after).diff();
    let site = only(&diff.slower);
    assert_eq!(site.level, MatchLevel::Types);
    has(
        &site.notes.join("; "),
        &[
            "fp32 instead of bf16",
            "no Tensor Cores any more",
            "another kernel",
        ],
    );
    assert!(
        site.arguments_after
            .as_deref()
            .unwrap()
            .starts_with("fp32[")
    );
    assert!(!diff.findings.new.is_empty(), "{:#?}", diff.findings);
}

#[test]
fn a_single_changed_shape_is_reported_as_a_difference() {
    let after = Program::net().with(|op| {
        if op.layer == "head" {
            op.dims[1] = vec![1024, 50257];
            op.us = 2800.0;
        }
    });
    let diff = Sandbox::of(&Program::net(), &after).diff();
    assert_eq!(diff.sizes, None);
    let site = only(&diff.slower);
    assert!(site.arguments_after.as_deref().unwrap().contains("50257"));
    assert!(near(site.ratio, 7.0));
    assert!(diff.regression.is_some());
}

#[test]
fn new_and_removed_work_is_reported() {
    let mut after = Program::net();
    after.ops.retain(|op| op.name != "aten::add");
    after.ops.push(Op {
        layer: "penalty".to_owned(),
        name: "aten::bmm",
        dims: vec![vec![8, 512, 512], vec![8, 512, 512]],
        dtype: "float",
        kernel: "ampere_sgemm_128x128_tn",
        us: 160.0,
    });
    let sandbox = Sandbox::of(&Program::net(), &after);
    let diff = sandbox.diff();
    assert_eq!(diff.appeared[0].place, "penalty · aten::bmm");
    assert_eq!(diff.vanished[0].place, "blocks.*.residual · aten::add");
    assert!(near(diff.vanished[0].time_ns, 160e3) && near(diff.vanished[0].calls, 4.0));
    assert!(diff.slower.is_empty() && diff.faster.is_empty());
    has(
        &sandbox.markdown(),
        &["## New work", "## Work that is gone", "is new (160 us)"],
    );
}

#[test]
fn noise_between_steps_is_not_a_difference() {
    let mut before = Program::net();
    before.pauses = vec![10.0, 400.0, 50.0, 250.0, 20.0];
    let mut after = Program::net();
    after.pauses = vec![300.0, 20.0, 500.0, 90.0, 310.0];
    let sandbox = Sandbox::of(&before, &after);
    let diff = sandbox.diff();
    assert!(diff.wall.unwrap().ratio > 1.03, "{:?}", diff.wall);
    assert!(diff.noise.unwrap().share > 0.05, "{:?}", diff.noise);
    assert_eq!(diff.regression, None);
    has(&sandbox.markdown(), &["a step takes 2."]);
    assert_eq!(sandbox.gate("3%").code, 0);
    // With steady steps, the same difference counts.
    before.pauses = vec![146.0; 5];
    after.pauses = vec![244.0; 5];
    let sandbox = Sandbox::of(&before, &after);
    assert_eq!(sandbox.gate("3%").code, 1);
    has(&sandbox.markdown(), &["idle time is 2"]);
}

#[test]
fn noise_is_measured_even_if_the_host_runs_ahead() {
    let before = Program {
        ahead: true,
        ..Program::net().steps(6)
    };
    let after = before.clone().with(|op| op.us *= 1.1);
    let sandbox = Sandbox::of(&before, &after);
    let diff = sandbox.diff();
    assert!(near(diff.wall.unwrap().before_ns, 2.2e6), "{:?}", diff.wall);
    let noise = diff.noise.unwrap();
    assert!(noise.before_count == 6 && noise.share < 0.01, "{noise:?}");
    assert!((diff.regression.unwrap() - 0.1).abs() < 0.002);
}

#[test]
fn diff_names_different_gpus_first() {
    let mut after = Program::net().with(|op| {
        op.kernel = match op.kernel {
            GEMM => "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN",
            other => other,
        };
        op.us *= match op.name {
            // Consistent with 2.15x the bandwidth.
            "aten::add" => 0.465,
            _ if op.layer == "head" => 1.1,
            _ => 0.317,
        };
    });
    after.gpu = H100;
    let sandbox = Sandbox::of(&Program::net(), &after);
    let diff = sandbox.diff();
    assert!(diff.gpus_differ);
    let hardware = diff.hardware.as_ref().unwrap();
    assert!((2.0..2.3).contains(&hardware.bandwidth), "{hardware:?}");
    assert!(
        (3.0..3.3).contains(&hardware.tensor_16bit.unwrap()),
        "{hardware:?}"
    );
    let behind = only(&diff.slower_than_hardware);
    assert_eq!(behind.place, "head · aten::mm");
    assert!(
        (0.3..0.35).contains(&behind.expected_ratio.unwrap()),
        "{behind:?}"
    );
    has(
        &sandbox.markdown(),
        &[
            "**On NVIDIA H100 80GB HBM3 instead of NVIDIA A100-SXM4-40GB, a step takes",
            "## What the hardware explains",
            "Furthest behind: `head · aten::mm` (1.10x, expected 0.3",
        ],
    );
    let said = sandbox.gate("0%");
    assert_eq!(said.code, 0);
    has(&said.err, &["was not checked: the GPUs differ"]);
}

#[test]
fn different_programs_are_not_compared() {
    let mut other = Program::net().with(|op| {
        op.layer = format!("decoder.{}", op.layer.len());
        op.name = "aten::convolution";
        op.dims = vec![vec![8, 64, 56, 56], vec![64, 64, 3, 3]];
        op.kernel =
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32";
    });
    other.numbered = false;
    let sandbox = Sandbox::of(&Program::net(), &other);
    let diff = sandbox.diff();
    assert!(!diff.comparable && diff.gpu_time.is_none() && diff.slower.is_empty());
    assert_eq!(
        diff.findings,
        pyprof_advise::compare::diff::FindingChanges::default()
    );
    has(
        &sandbox.markdown(),
        &[
            "**These are different programs: they have no operator or kernel in common; the analyzed window is ",
        ],
    );
    let said = sandbox.gate("0%");
    assert_eq!(said.code, 0);
    has(&said.err, &["was not checked"]);
}

#[test]
fn findings_are_fixed_new_or_unchanged() {
    let slow = Program::net().with(|op| {
        if op.name == "aten::mm" {
            op.dtype = "float";
            op.kernel = "ampere_sgemm_128x128_tn";
            op.us *= 8.0;
        }
    });
    let diff = Sandbox::of(&slow, &Program::net()).diff();
    let rules = |list: &[pyprof_advise::compare::diff::FindingChange]| -> Vec<String> {
        list.iter().map(|f| f.rule.clone()).collect()
    };
    let fixed = rules(&diff.findings.fixed);
    assert!(
        fixed.iter().any(|r| r.starts_with("precision/")),
        "{fixed:?}"
    );
    let back = Sandbox::of(&Program::net(), &slow).diff();
    assert_eq!(rules(&back.findings.new), fixed);
    let same = Sandbox::of(&slow, &slow).diff();
    assert!(same.findings.fixed.is_empty() && same.findings.new.is_empty());
    assert!(same.findings.still.len() >= fixed.len());
}

#[test]
fn reports_and_profiles_give_equal_comparisons_and_complete_pages() {
    let after = Program::net().with(|op| op.us *= 1.3);
    let sandbox = Sandbox::of(&Program::net(), &after);
    let from_profiles = sandbox.markdown();
    for name in ["before", "after"] {
        let (profile, report) = (format!("{name}.json"), format!("{name}.rep"));
        sandbox.good(&[&profile, "--format", "json", "-o", &report]);
    }
    assert_eq!(
        sandbox.good(&["diff", "before.rep", "after.json"]),
        from_profiles
    );
    assert_eq!(
        sandbox.good(&["diff", "before.rep", "after.rep"]),
        from_profiles
    );
    let page = sandbox.good(&["diff", "before.rep", "after.rep", "--format", "html"]);
    has(
        &page,
        &[
            "<!doctype html>",
            "<strong>A step takes 30 % more wall time",
            "<table>",
            "</html>",
        ],
    );
    assert!(
        !page.contains("http:") && !page.contains("&lt;details&gt;"),
        "{page}"
    );
    let said = sandbox.call(&["diff", "before.rep", "after.rep", "-o", "before.rep"]);
    assert_eq!(said.code, 2);
}

#[test]
fn hostile_names_are_escaped() {
    let evil =
        "|x|`a` **b** </details><script>alert(1)</script> [l](javascript:alert(1)) @octocat # h";
    let evil_kernel = "k|`x`</td><img src=x onerror=alert(1)>@octocat";
    let before = Program::net().with(|op| op.layer = format!("{evil} {}", op.layer));
    let after = before.clone().with(|op| {
        op.us *= 2.0;
        op.kernel = evil_kernel;
    });
    let sandbox = Sandbox::of(&before, &after);
    let text = sandbox.markdown();
    assert!(
        !text.contains("<script") && !text.contains("<img"),
        "{text}"
    );
    let arena = comrak::Arena::new();
    let mut options = comrak::Options::default();
    options.extension.table = true;
    options.extension.autolink = true;
    for node in comrak::parse_document(&arena, &text, &options).descendants() {
        match &node.data.borrow().value {
            comrak::nodes::NodeValue::Link(link) => panic!("{link:?}"),
            comrak::nodes::NodeValue::Image(image) => panic!("{image:?}"),
            comrak::nodes::NodeValue::HtmlInline(html) => panic!("{html}"),
            comrak::nodes::NodeValue::Text(text) => assert!(!text.contains("@octocat"), "{text}"),
            _ => {}
        }
    }
    let page = sandbox.good(&["diff", "before.json", "after.json", "--format", "html"]);
    assert!(
        !page.contains("<script") && !page.contains("<img"),
        "{page}"
    );
}

#[test]
fn invalid_gates_and_files_are_errors() {
    let sandbox = Sandbox::of(&Program::net(), &Program::net());
    let said = sandbox.gate("3");
    assert_eq!(said.code, 2);
    has(&said.err, &["expected `regression=PERCENT%`"]);
    sandbox.write("broken.json", "{\"schema_version\": 99}");
    let said = sandbox.call(&["diff", "before.json", "broken.json"]);
    assert_eq!(said.code, 2);
    has(&said.err, &["schema_version 99"]);
    assert_eq!(sandbox.call(&["diff", "before.json"]).code, 2);
}

#[test]
fn a_series_is_a_table_of_trends() {
    let sandbox = Sandbox::bare();
    let slower = |by: f64| Program::net().with(|op| op.us *= by);
    for (name, by) in [("v1", 1.0), ("v2", 1.0), ("v3", 1.2), ("v4|x", 1.21)] {
        sandbox.write(&format!("{name}.json"), &slower(by).trace());
    }
    let series = ["diff", "v1.json", "v2.json", "v3.json", "v4|x.json"];
    let text = sandbox.good(&series);
    well_made(&text);
    has(
        &text,
        &[
            "# How `v1.json` became v4",
            "**A step takes 21 % more wall time: 2.68 ms, before 2.22 ms, beyond the noise",
            "The largest change between neighbors is +20 %, from 2.22 ms to 2.66 ms, at `v3.json`.",
            "| v2.json | 2.22 ms | ",
            "0 % (noise) |",
        ],
    );
    let said = sandbox.call(&[&series[..], &["--format", "json"]].concat());
    let trend: Trend = serde_json::from_str(&said.out).unwrap();
    let schema: Value = serde_json::from_str(TREND_SCHEMA).unwrap();
    let value = serde_json::from_str(&said.out).unwrap();
    jsonschema::validate(&schema, &value).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(trend.rows.len(), 4);
    let changes: Vec<bool> = (trend.rows.iter().skip(1))
        .map(|row| row.from_previous.as_ref().unwrap().beyond_noise)
        .collect();
    assert_eq!(changes, [false, true, false]);
    let page = sandbox.good(&[&series[..], &["--format", "html"]].concat());
    has(&page, &["<!doctype html>", "<td>v3.json</td>"]);
    // The gate compares the last with the first.
    let said = sandbox.call(&[&series[..], &["--fail-on", "regression=3%"]].concat());
    assert_eq!(said.code, 1);
    has(&said.err, &["failed: slower by 21 %"]);
}

// -------------------------------------------------------------------------------------- real profiles

pub(super) fn diff_of(before: &Path, after: &Path) -> (Diff, String) {
    let sandbox = Sandbox::bare();
    let (before, after) = (before.to_str().unwrap(), after.to_str().unwrap());
    let json = sandbox.good(&["diff", "-q", before, after, "--format", "json"]);
    let diff: Diff = serde_json::from_str(&json).unwrap();
    let text = markdown(&diff).unwrap();
    well_made(&text);
    (diff, text)
}

#[test]
fn real_profiles_equal_themselves() {
    for name in [
        "mfu_2gpu_before.sqlite",
        "kineto_resnet50_w0.pt.trace.json.gz",
        "tl_vllm_decode_full.json.gz",
        "cs336zx_2_7B_compile_ro.sqlite",
        "lm_net.sql",
    ] {
        let Some(path) = shared::profile(name) else {
            return;
        };
        let (diff, text) = diff_of(&path, &path);
        assert!(diff.no_change, "{name}: {text}");
        assert_eq!(diff.regression, None, "{name}");
    }
}

#[test]
fn diff_explains_different_gpu_vendors() {
    let (Some(h100), Some(mi300)) = (
        shared::profile("tl_h100_qwen.json.gz"),
        shared::profile("tl_mi300_qwen.json.gz"),
    ) else {
        return;
    };
    let (diff, text) = diff_of(&h100, &mi300);
    has(
        &text,
        &["**On AMD Instinct MI300X VF instead of NVIDIA H100 80GB HBM3, "],
    );
    let hardware = diff.hardware.as_ref().unwrap();
    assert!(hardware.share > 0.9, "{hardware:?}");
    // Matrix products and attention gain less; work that only moves memory scales with the bandwidth.
    let family = |name: &str| diff.families.iter().find(|f| f.family == name).unwrap();
    let of_expected =
        |name: &str| family(name).cost_known_ratio.unwrap() / family(name).expected_ratio.unwrap();
    assert!(of_expected("gemm") > 1.5 && of_expected("attention") > 2.0);
    assert!((0.8..1.2).contains(&of_expected("pointwise")));
    assert!(
        diff.slower_than_hardware[0].place.contains("Linear"),
        "{:?}",
        diff.slower_than_hardware
    );
    assert!(
        diff.kernels.iter().any(|k| k.after.starts_with("Cijk_")),
        "{:?}",
        diff.kernels
    );
}
