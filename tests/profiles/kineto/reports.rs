//! Reports of real traces, by the program and by the library.

use crate::shared;
use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

use pyprof_advise::correlate::{Direction, SiteId, Tensor};
use pyprof_advise::cost::{SiteCost, estimate_costs, kernel_name};
use pyprof_advise::facts::{self, Answer, FactTable, Lookup, Member};
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{RuleSet, judge};
use pyprof_advise::pyprof;
use pyprof_advise::pyprof::rows::{self, KernelRow};
use pyprof_advise::report::{self, Options, Report};
use serde_json::{Value, json};

use super::{REAL, one_each, real};

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn program(path: &Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"));
    let output = command.arg(path).args(arguments).output().unwrap();
    Said {
        code: output.status.code().expect("not ended by a signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn traces_without_kernels_explain_how_to_record_them() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    for (file, word) in [
        (
            "hta_cupti_profiler.json.gz",
            "hardware counters of 77 kernels",
        ),
        ("hta_nodist_cpu.json.gz", "2,467 operators and annotations"),
        ("zoology_a100_nokernels.json", "270 CUDA API calls"),
    ] {
        let said = program(&folder.join(file), &[]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{file}");
        assert!(said.err.contains("ProfilerActivity.CUDA"), "{}", said.err);
        assert!(said.err.contains(word), "{}", said.err);
        assert!(!said.err.contains("nsys"), "{}", said.err);
    }
}

#[test]
fn real_traces_have_reports_without_faults() {
    for &(file, [kernels, ..], _) in REAL.iter().filter(|r| r.1[0] > 0) {
        let Some(report) = report(file) else { return };
        assert_eq!(report["faults"], json!([]), "{file}");
        // One trace marks half of its kernels as warm-up; others have work outside their steps.
        let analyzed = report["summary"]["kernels"].as_u64().unwrap();
        let excluded = report["setup"]["excluded"].as_array().unwrap();
        let excluded: u64 = excluded
            .iter()
            .map(|e| e["kernels"].as_u64().unwrap())
            .sum();
        assert_eq!(analyzed + excluded, kernels as u64, "{file}");
        let text = report.to_string();
        // Names of user, host and job in one of these traces.
        for secret in ["sraikund", "twshared", "mast_hpc", "torchx-pytorch"] {
            assert!(!text.contains(secret), "{file}: {secret}");
        }
        assert!(!text.contains("1 thread block of 1 threads"), "{file}");
    }
}

/// The report of a real trace, created once for all tests and in this process: in a debug build,
/// loading the rules takes longer than analyzing a trace.
fn judged(file: &str) -> Option<&'static (Report, Value)> {
    static RULES: LazyLock<RuleSet> = LazyLock::new(|| RuleSet::builtin().unwrap());
    static REPORTS: LazyLock<Vec<OnceLock<(Report, Value)>>> = LazyLock::new(one_each);
    let run = real(file)?;
    let slot = &REPORTS[REAL.iter().position(|r| r.0 == file).unwrap()];
    Some(slot.get_or_init(|| {
        let gpu = select::choose(None, &run.profile).unwrap();
        let costed = estimate_costs(run.clone(), gpu);
        let facts = FactTable::new(&costed);
        let results = judge(&RULES, &facts);
        let options = Options {
            top: 10,
            max_sites: 1000,
            ..Options::default()
        };
        let report = Report::new(&facts, &results, &options);
        let json = serde_json::from_str(&report::json(&report)).unwrap();
        (report, json)
    }))
}

fn report(file: &str) -> Option<&'static Value> {
    judged(file).map(|(_, json)| json)
}

#[test]
fn odd_vocabularies_are_found_with_the_padded_size() {
    let Some(report) = report("tl_h100_bertsmall.json.gz") else {
        return;
    };
    // The launches come late, so it shortens no step: it is among the minor ones.
    let lists = ["findings", "minor"].map(|list| report[list].as_array().unwrap());
    let found: Vec<_> = (lists.into_iter().flatten())
        .filter(|f| f["rule"] == "tensor-cores/gemm-unaligned")
        .collect();
    let [found] = found[..] else {
        panic!("{found:?}")
    };
    assert!(found["message"].as_str().unwrap().contains("N=30522"));
    let fix = found["fix"].as_str().unwrap();
    assert!(fix.contains("30522 becomes 30528"), "{fix}");
    let kernel = found["evidence"]["kernels"][0]["kernel"].as_str().unwrap();
    assert!(kernel.contains("align2"), "{kernel}");
    assert!(found["saving"]["counted_high_ns"].as_f64().unwrap() > 5000.0);
}

#[test]
fn shapes_with_unknown_cost_are_not_reported_as_missing() {
    for file in [
        "tl_b200_eager.json.gz",
        "tl_sglang_decode.json.gz",
        "tl_vllm_decode_full.json.gz",
        "kineto_resnet50_w0.pt.trace.json.gz",
        "tl_mi300_qwen.json.gz",
    ] {
        let Some(report) = report(file) else { return };
        let capture = report["capture"].as_array().unwrap();
        assert!(
            capture.iter().all(|f| f["rule"] != "profile/no-shapes"),
            "{file}"
        );
    }
    let b200 = report("tl_b200_eager.json.gz").unwrap();
    let unpriced = b200["cost_unknown"].to_string();
    assert!(
        unpriced.contains("vllm::unified_attention_with_output"),
        "{unpriced}"
    );
    for file in ["hta_alexnet.json.gz", "hta_ns_resolution.json.gz"] {
        let report = report(file).unwrap();
        let capture = report["capture"].as_array().unwrap();
        assert!(
            capture.iter().any(|f| f["rule"] == "profile/no-shapes"),
            "{file}"
        );
    }
}

/// Traces of 2021 record no strides; forward and backward of a convolution complement each other's
/// shapes.
#[test]
fn costs_of_2021_convolutions_are_found_in_pairs() {
    let Some(report) = report("kineto_resnet50_w0.pt.trace.json.gz") else {
        return;
    };
    // All except a pooling without recorded arguments.
    let priced = report["method"]["cost_known_share"].as_f64().unwrap();
    assert!(priced > 0.99, "{priced}");
    // ResNet-50 at 224x224 takes 4.1 GMAC per image forward, and twice that backward: 32 images, 6
    // steps.
    let run = real("kineto_resnet50_w0.pt.trace.json.gz").unwrap();
    let costed = estimate_costs(run.clone(), None);
    let forward: f64 = costed
        .run
        .sites
        .iter()
        .zip(&costed.sites)
        .filter(|(site, _)| site.direction == Direction::Fprop)
        .filter_map(|(_, cost)| cost.flops)
        .sum();
    let expected = 2.0 * 4.1e9 * 32.0 * 6.0;
    assert!((forward / expected - 1.0).abs() < 0.05, "{forward:e}");
}

#[test]
fn replayed_kernels_are_attributed_to_the_replay() {
    let Some(vllm) = report("tl_vllm_decode_full.json.gz") else {
        return;
    };
    let first = &vllm["layers"][0];
    assert_eq!(first["name"], "(graph replay)");
    let sglang = report("tl_sglang_decode.json.gz").unwrap();
    let name = sglang["layers"][0]["name"].as_str().unwrap();
    assert!(!name.contains(".py:"), "{name}");
    for report in [vllm, sglang] {
        let reason = &report["unattributed"][0]["reason"];
        assert_eq!(reason, "graph_replay");
    }
}

/// Advice for AMD GPUs mentions nothing that only NVIDIA has.
#[test]
fn advice_for_amd_uses_rocm_terms() {
    for file in [
        "hta_mi250_rocm62.json.gz",
        "tl_mi210_gpu_only.json.gz",
        "tl_mi300_qwen.json.gz",
        "tl_mi300_resnet_ckpt.json.gz",
        "tl_sglang_decode.json.gz",
        "tl_vllm_decode_full.json.gz",
    ] {
        let Some((report, _)) = judged(file) else {
            return;
        };
        let text = report::markdown(report).unwrap();
        for word in [
            "cuDNN",
            "cuBLAS",
            "`ncu",
            "nvidia-smi",
            "Tensor Core",
            "CUDA graph",
            " SMs",
            " an SM",
            "one SM",
            "gpu.cc",
            "nsys ",
            "emit_nvtx",
            "kernel.waves",
        ] {
            let line = text.lines().find(|l| l.contains(word));
            assert_eq!(line, None, "{file}: {word}");
        }
    }
}

/// The host of this trace finishes its steps long before the GPU.
#[test]
fn steps_last_until_the_gpu_has_finished() {
    let Some(report) = report("tl_mi300_resnet_ckpt.json.gz") else {
        return;
    };
    let ms = |field: &str| report["summary"][field].as_f64().unwrap() / 1e6;
    // The GPU takes 19.0, 19.0 and 18.6 ms for them.
    assert!((ms("step_ns") - 18.84).abs() < 0.01, "{}", ms("step_ns"));
    assert!((ms("host_step_ns") - 16.0).abs() < 0.1);
    let step = ms("step_ns");
    let alone = ms("exposed_comm_per_step_ns");
    assert!(alone > 0.5 * step && alone < step, "{alone} of {step}");
    let found = report["findings"].as_array().unwrap();
    // Hardly anything moves in its collectives: it is waiting that takes the time.
    assert_eq!(found[0]["rule"], "communication/waiting");
    let figures = report["figures"].as_array().unwrap();
    let steps = "3 steps of 18.8 ms on the GPU (the host takes 16.0 ms and runs ahead)";
    assert!(
        figures[1].as_str().unwrap().starts_with(steps),
        "{figures:?}"
    );
}

#[test]
fn setup_inside_a_trace_has_no_saving() {
    let Some(report) = report("hta_alexnet.json.gz") else {
        return;
    };
    for f in report["findings"].as_array().unwrap() {
        assert!(!f["rule"].as_str().unwrap().starts_with("host/"), "{f}");
    }
    assert_eq!(report["setup"]["excluded"][0]["why"], "warm_up");
    assert_eq!(report["setup"]["excluded"][0]["kernels"], 40);
}

#[test]
fn parse_and_prof_give_one_row_per_kernel() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    const FILE: &str = "tl_h100_vit.json.gz";
    let kernels = real(FILE).unwrap().profile.kernels.len();
    let call = |command: &str, more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"));
        let path = folder.join(FILE);
        let output = program.arg(command).args(more).arg(path).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{err}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(call("parse", &[]).lines().count(), kernels);
    let columns = "dir,mod,op,params,tc,flops,bytes,layer,kernel";
    let table = call("prof", &["--csv", "-c", columns]);
    assert_eq!(table.lines().count(), kernels + 1);
    let row = table
        .lines()
        .find(|line| line.contains("ViTIntermediate_4.Linear"));
    let row: Vec<&str> = row.unwrap().split("\",\"").take(8).collect();
    let layer = "ViTEncoder_0.ViTLayer_4.ViTIntermediate_4.Linear_28";
    assert_eq!(
        row[..5],
        ["\"fprop", "aten", "addmm", "M=3072,N=788,K=768,bf16,", "1"]
    );
    assert_eq!(row[5..], ["3718250496", "10776576", layer]);
}

/// The columns of `prof` and the sites of `advise` describe the same calls.
#[test]
fn prof_and_advise_agree_on_costs() {
    for (file, op, line) in [
        ("tl_h100_vit.json.gz", "addmm", "modeling_vit.py:"),
        ("tl_mi300_qwen.json.gz", "mm", "modeling_qwen"),
        (
            "kineto_resnet50_w0.pt.trace.json.gz",
            "cudnn_convolution",
            "resnet50_profiler_api.py:46",
        ),
        ("switch_a100_b.json", "addmm", "model.py:"),
        (
            "tl_mi300_resnet_ckpt.json.gz",
            "miopen_convolution",
            "train_ddp.py:",
        ),
    ] {
        let Some(run) = real(file) else { return };
        let rows = rows::rows(pyprof::records(run));
        let known = |row: &KernelRow| {
            row.op() == op && row.module() == "aten" && !row.params().contains("na")
        };
        assert!(rows.iter().any(known), "{file}");
        let lines = rows.iter().flat_map(|row| &row.context().trace);
        let mut lines = lines.filter(|l| l.contains(line));
        assert!(lines.next().is_some(), "{file}");

        let costed = estimate_costs(run.clone(), None);
        let advised =
            |of: fn(&SiteCost) -> Option<f64>| -> f64 { costed.sites.iter().filter_map(of).sum() };
        let printed = |of: fn(&KernelRow) -> Option<u64>| -> f64 {
            rows.iter().filter_map(of).map(|n| n as f64).sum()
        };
        for (name, ours, theirs) in [
            ("FLOPs", printed(KernelRow::flops), advised(|s| s.flops)),
            ("bytes", printed(KernelRow::bytes), advised(|s| s.bytes)),
        ] {
            let ratio = ours / theirs;
            assert!((ratio - 1.0).abs() < 0.02, "{file}: {ratio} {name}");
        }
    }
}

/// The expected layout letters in a kernel's name for row-major operands. A column-major library gets
/// the second operand first, and contiguous operands are not transposed ("n") for it.
fn letters(a: &Tensor, b: &Tensor) -> Option<String> {
    let letter = |t: &Tensor| {
        // A single row or column is both.
        if t.shape.contains(&1) {
            return None;
        }
        let [rows, cols] = t.strides.as_deref()?.last_chunk::<2>()?;
        match (rows, cols) {
            (_, 1) => Some('n'),
            (1, _) => Some('t'),
            _ => None,
        }
    };
    Some([letter(b)?, letter(a)?].iter().collect())
}

#[test]
fn layout_letters_agree_with_strides() {
    let mut agreed = 0;
    for &(file, ..) in REAL {
        let Some(run) = real(file) else { return };
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let name = kernel_name::decode(run.profile.text(kernel.name));
            let (Some(layout), Some(op)) = (&name.layout, link.op) else {
                continue;
            };
            let call = &run.op_calls[op.idx()];
            let at = match run.op_name(call).unwrap().name.as_str() {
                "mm" | "bmm" => 0,
                "addmm" | "baddbmm" => 1,
                _ => continue,
            };
            let Some(args) = call.args else { continue };
            let args = &run.args[args.idx()];
            let (Some(a), Some(b)) = (args.tensor(at, ""), args.tensor(at + 1, "")) else {
                continue;
            };
            let Some(expected) = letters(a, b) else {
                continue;
            };
            let layout = layout.to_ascii_lowercase();
            // nvjet has a third letter, for the result.
            assert!(
                layout.starts_with(&expected),
                "{file} {}: {expected} by strides, {a:?} {b:?}",
                name.label
            );
            agreed += 1;
        }
    }
    assert!(agreed > 500, "{agreed}");
}

#[test]
fn collectives_have_message_size_and_group_size() {
    let Some(run) = real("tl_mi300_resnet_ckpt.json.gz") else {
        return;
    };
    let costed = estimate_costs(run.clone(), None);
    let table = FactTable::new(&costed);
    let mut sizes = Vec::new();
    for (index, site) in costed.run.sites.iter().enumerate() {
        if site.op.as_ref().is_some_and(|op| op.name == "all_reduce") {
            let view = table.view(Member::Site(SiteId::new(index)));
            let number = |fact: &str| match view.get(fact) {
                Answer::Value(facts::Value::Double(v)) => v,
                Answer::Value(facts::Value::Int(v)) => v as f64,
                other => panic!("{fact}: {other:?}"),
            };
            assert_eq!(number("site.group_size"), 8.0);
            // An all-reduce sends 2 (n - 1) / n of its message.
            let ratio = number("site.bus_bytes_per_s") / number("site.algorithm_bytes_per_s");
            assert!((ratio - 1.75).abs() < 1e-6, "{ratio}");
            sizes.push(number("site.message_bytes"));
        }
    }
    sizes.sort_by(f64::total_cmp);
    // 2,873,320 and 8,816,192 gradients in bf16.
    assert_eq!(sizes, [5_746_640.0, 17_632_384.0]);
}

#[test]
fn figures_of_real_traces_are_those_of_their_rows() {
    // Counted in the rows: exposed communication per analyzed step, and kernels without an operator.
    for (name, exposed_ns, without) in [
        ("deepseek_h800_train.json", 4_190_000.0, Some(291)),
        ("dlrm_8ranks/worker0.pt.trace.json.gz", 5_537_000.0, None),
        ("dlrm_8ranks/worker7.pt.trace.json.gz", 1_580_000.0, None),
        ("hta_negqueue_rank0.json.gz", 32_146_600.0, Some(90)),
    ] {
        let Some(path) = shared::profile(name) else {
            return;
        };
        let said = program(&path, &["--format", "json"]);
        let report: Value = serde_json::from_str(&said.out).unwrap();
        let summary = &report["summary"];
        let exposed = summary["exposed_comm_per_step_ns"].as_f64().unwrap();
        assert!((exposed - exposed_ns).abs() < 1.0, "{name}: {exposed}");
        let reasons = report["unattributed"].as_array().unwrap();
        let no_operator = reasons.iter().find(|r| r["reason"] == "no_operator");
        assert_eq!(
            no_operator.map(|r| r["kernels"].as_u64().unwrap()),
            without,
            "{name}"
        );
        if name.starts_with("deepseek") {
            // From the start of the step, the host is done after 112 ms, the GPU after 129.5 ms.
            assert_eq!(summary["step_ns"], 129_545_000.0);
            assert_eq!(summary["host_step_ns"], 112_202_000.0);
        }
    }
}

#[test]
fn merged_reports_have_no_slowdown_of_collectives() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let said = program(&folder.join("dlrm_8ranks"), &["--format", "json"]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let sites = report["sites"].as_array().unwrap();
    let collectives: Vec<_> = sites
        .iter()
        .filter(|s| s["family"] == "communication")
        .collect();
    assert!(!collectives.is_empty());
    for site in collectives {
        assert!(site["slowdown"].is_null(), "{site}");
    }
}

#[test]
fn merged_findings_shorten_the_step_of_all_ranks() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let said = program(&folder.join("dlrm_8ranks"), &["--format", "json"]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let step = report["summary"]["step_ns"].as_f64().unwrap();
    let least = |finding: &Value| finding["saving"]["step_low_ns"].as_f64();
    let of_kernels = |finding: &&Value| finding["saving"]["kind"] == "gpu";
    let small: Vec<_> = (report["minor"].as_array().unwrap().iter())
        .filter(of_kernels)
        .filter(|f| least(f).is_some_and(|ns| ns < 0.01 * step))
        .map(|f| f["rule"].as_str().unwrap())
        .collect();
    // Worth it in the ranks that compute most, but the others wait for those in which it is not.
    assert!(small.contains(&"precision/amp-off"), "{small:?}");
    for finding in (report["findings"].as_array().unwrap().iter()).filter(of_kernels) {
        let saved = least(finding).filter(|_| finding["category"] != "communication");
        assert!(
            saved.is_none_or(|ns| ns >= 0.01 * step || ns == 0.0),
            "{finding}"
        );
    }
}
