//! The whole program on real captures: values read from the files by hand, and invariants of every
//! file. The captures are below the folder named by `PYPROF_ADVISE_SHARED`.

use crate::shared;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pyprof_advise::correlate::{ArgValue, Direction, LayerSource, Run, correlate};
use pyprof_advise::cost::{
    ConvSize, Costed, Dims, Family, GemmSize, Role, TensorCore, VOCABULARY, estimate_costs,
};
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{RuleSet, explain};
use pyprof_advise::read;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Files without kernels, graphs or other GPU work.
const WITHOUT_KERNELS: [&str; 4] = [
    "cs336ihor_nocuda.sqlite",
    "dynamicvit.sqlite",
    "ecf_baseline.sqlite",
    "ecf_poolformer_trt.sqlite",
];

// ---------------------------------------------------------------------------- running the program

/// All profiles in supported formats, sorted by name.
fn files() -> Vec<PathBuf> {
    let Some(mut files) = shared::profiles() else {
        return Vec::new();
    };
    files.retain(|path| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("sqlite" | "sql" | "nvvp"))
    });
    assert!(
        files.len() >= 13,
        "the folder of real profiles is not whole"
    );
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn holds_kernels(path: &Path) -> bool {
    !WITHOUT_KERNELS.contains(&name(path))
}

/// The output of one run of the program.
struct Said {
    code: i32,
    out: String,
    err: String,
}

fn program(path: &Path, arguments: &[&str], threads: Option<u32>) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"));
    command.arg(path).args(arguments);
    if let Some(threads) = threads {
        command.env("RAYON_NUM_THREADS", threads.to_string());
    }
    let output = command.output().unwrap();
    Said {
        code: output.status.code().expect("not ended by a signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The JSON report of a profile.
struct Report(Value);

fn report(file_name: &str, arguments: &[&str]) -> Option<Report> {
    let mut all = vec!["--format", "json"];
    all.extend(arguments);
    let said = program(&shared::profile(file_name)?, &all, None);
    assert_eq!(said.code, 0, "{}", said.err);
    Some(Report(serde_json::from_str(&said.out).unwrap()))
}

impl Report {
    fn at(&self, pointer: &str) -> &Value {
        let value = self.0.pointer(pointer);
        value.unwrap_or_else(|| panic!("the report has no {pointer}"))
    }

    fn int(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap()
    }

    fn number(&self, pointer: &str) -> f64 {
        self.at(pointer).as_f64().unwrap()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().unwrap()
    }

    fn verdict(&self) -> String {
        let sentences = self.list("/verdict").iter();
        let sentences: Vec<&str> = sentences.map(|s| s.as_str().unwrap()).collect();
        sentences.join(" ")
    }

    /// The displayed findings, most important first.
    fn findings(&self) -> &[Value] {
        self.list("/findings")
    }

    /// The first finding of a rule, about the program or its capture.
    fn finding(&self, rule: &str) -> &Value {
        let capture = self.0["capture"].as_array();
        let mut all = self.findings().iter().chain(capture.into_iter().flatten());
        let found = all.find(|f| f["rule"] == rule);
        found.unwrap_or_else(|| panic!("no finding of {rule}, but of {:?}", self.rules()))
    }

    fn rules(&self) -> Vec<&str> {
        let findings = self.findings().iter();
        findings.map(|f| f["rule"].as_str().unwrap()).collect()
    }

    /// Number and time of the kernels without an operator for this reason.
    fn unattributed(&self, reason: &str) -> (i64, i64) {
        let rows = self.list("/unattributed").iter();
        let mut row = rows.filter(|r| r["reason"] == reason).map(|r| {
            let int = |key: &str| r[key].as_i64().unwrap();
            (int("kernels"), int("time_ns"))
        });
        row.next_back().unwrap_or_default()
    }
}

/// The result of the library's stages, for data that is not in the report.
fn costed(file_name: &str, gpu: Option<&str>) -> Option<Costed> {
    Some(costed_at(&shared::profile(file_name)?, gpu))
}

fn costed_at(path: &Path, gpu: Option<&str>) -> Costed {
    let profile = read::open(path, &read::NoProgress).unwrap();
    let gpu = select::choose(gpu, &profile).unwrap();
    estimate_costs(correlate(profile, &VOCABULARY), gpu)
}

fn message(finding: &Value) -> &str {
    finding["message"].as_str().unwrap()
}

fn place(finding: &Value) -> &str {
    finding["place"].as_str().unwrap()
}

/// Number and time of kernels per operator name.
fn operators(run: &Run) -> BTreeMap<String, (u64, i64)> {
    let mut all: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let Some(call) = link.op else { continue };
        let entry = all
            .entry(run.op_name(&run.op_calls[call.idx()]).unwrap().display())
            .or_default();
        entry.0 += 1;
        entry.1 += kernel.span.ns();
    }
    all
}

fn close(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value - expected).abs() <= tolerance,
        "{value} is not {expected} within {tolerance}"
    );
}

// ------------------------------------------------- lm_net.sql: a language model, fp32 on a V100

fn language_model() -> Option<Report> {
    report("lm_net.sql", &["--gpu", "v100"])
}

#[test]
fn language_model_kernels_have_launches_and_source_lines() {
    let Some(report) = language_model() else {
        return;
    };
    assert_eq!(report.int("/summary/kernels"), 160);
    assert_eq!(report.int("/summary/kernel_time_ns"), 7_296_770);
    assert_eq!(report.int("/summary/with_operator_ns"), 7_296_770);
    assert_eq!(report.list("/unattributed"), [] as [Value; 0]);
    assert_eq!(
        report.at("/method/layer_source"),
        "source lines of call stacks"
    );
    let named: i64 = report
        .list("/layers")
        .iter()
        .filter(|l| {
            let name = l["name"].as_str().unwrap();
            l["is_layer"] == true && name.starts_with("language-model.py:")
        })
        .map(|l| l["time_ns"].as_i64().unwrap())
        .sum();
    assert!(named * 100 >= 90 * 7_296_770, "{named}");
}

#[test]
fn language_model_decoder_has_shapes_in_both_directions() {
    let Some(costed) = costed("lm_net.sql", Some("v100")) else {
        return;
    };
    let (mut forward, mut gradients, mut time) = (0, Vec::new(), 0);
    for (site, cost) in costed.run.sites.iter().zip(&costed.sites) {
        let roles = cost.cost.as_ref().map_or(&[][..], |c| c.roles.as_slice());
        for role in roles {
            let Dims::Gemm(GemmSize { m, n: 33278, k, .. }) = role.dims else {
                continue;
            };
            // The dimensions of a gradient are those of its forward product.
            assert_eq!((m, k), (700, 200));
            assert_eq!(role.flops, 2 * 700 * 33278 * 200);
            match site.direction {
                Direction::Fprop => forward += 1,
                _ => gradients.push(role.role),
            }
        }
        if roles
            .iter()
            .any(|r| matches!(r.dims, Dims::Gemm(GemmSize { n: 33278, .. })))
        {
            time += site.time_ns;
        }
    }
    gradients.sort();
    assert_eq!(forward, 1);
    assert_eq!(gradients, [Role::Dgrad, Role::Wgrad]);
    close(time as f64 / 7_296_770.0, 0.40, 0.01);
}

#[test]
fn language_model_fp32_gemms_are_not_listed_as_fast() {
    let Some(costed) = costed("lm_net.sql", Some("v100")) else {
        return;
    };
    let forward = costed.run.sites.iter().zip(&costed.sites).find(|(s, c)| {
        let gemm = |d: &Dims| {
            matches!(
                d,
                Dims::Gemm(GemmSize {
                    n: 33278,
                    m: 700,
                    ..
                })
            )
        };
        let roles = c.cost.as_ref().map(|c| c.roles.as_slice());
        s.direction == Direction::Fprop && roles.is_ok_and(|r| r.iter().any(|r| gemm(&r.dims)))
    });
    let (site, cost) = forward.unwrap();
    assert_eq!(cost.tensor_core, TensorCore::No);
    close(cost.ideal_ns.unwrap() / site.time_ns as f64, 0.79, 0.01);
    let report = language_model().unwrap();
    for row in report.list("/already_fast") {
        assert_ne!(row["operator"], "Tensor.matmul");
    }
}

#[test]
fn language_model_leads_with_mixed_precision_and_its_requirements() {
    let Some(report) = language_model() else {
        return;
    };
    let first = &report.findings()[0];
    assert_eq!(first["rule"], "precision/amp-off");
    assert_eq!(first["saving"]["kind"], "gpu");
    let text = message(first);
    assert!(text.contains("the Tensor Cores of this"), "{text}");
    assert!(
        text.contains("For full speed there, N=33278 must become 33280"),
        "{text}"
    );
    assert!(text.contains("700x33278x200"), "{text}");
    // Alignment is only a condition of the advice: it does not matter while the model runs in fp32.
    assert!(!report.rules().contains(&"tensor-cores/gemm-unaligned"));
    assert!(first["share"].as_f64().unwrap() >= 0.40);
}

#[test]
fn language_model_double_log_softmax_and_single_block_norms_are_found() {
    let Some(report) = language_model() else {
        return;
    };
    let twice = report.finding("layers/double-log-softmax");
    // The second one and its backward: 530,139 + 515,772 ns.
    close(twice["time_ns"].as_f64().unwrap(), 1_045_911.0, 1.0);
    assert!(place(twice).contains("log_softmax"), "{}", place(twice));
    // One block each; the finding with the replacement suppresses the one about the grid.
    let norms = report.finding("layers/gradient-norms");
    assert!(
        message(norms).starts_with("16 norms outside the forward and backward pass"),
        "{}",
        message(norms)
    );
    let mut grids = report
        .findings()
        .iter()
        .filter(|f| f["rule"] == "parallelism/small-grid");
    assert!(grids.all(|f| !message(f).contains("norm")));
}

#[test]
fn language_model_idle_time_with_markers_is_unreliable() {
    let Some(report) = language_model() else {
        return;
    };
    // The first allocation, 21.5 ms of set-up, is not part of the window.
    close(report.number("/summary/busy_share"), 0.232, 0.005);
    assert!(report.at("/summary/idle_unreliable").is_string());
    let verdict = report.verdict();
    assert!(verdict.contains("Idle time is inflated in this capture"));
    // What is left after the cost of the markers.
    let reliable = report.number("/summary/reliable_idle_ns");
    assert!(
        reliable < 0.5 * report.number("/summary/window_ns"),
        "{reliable}"
    );
    assert_eq!(report.number("/total_saving/idle_high_ns"), 0.0);
    for finding in report.findings() {
        let saving = finding["saving"].as_object().unwrap();
        assert!(saving["step_high_ns"].is_null(), "{}", finding["rule"]);
    }
}

// ----------------------------------------- mmagic.sqlite: 702 unclosed ranges named __getattr__

#[test]
fn super_resolution_operators_ignore_open_getters() {
    let Some(costed) = costed("mmagic.sqlite", None) else {
        return;
    };
    let run = &costed.run;
    assert_eq!(run.profile.kernels.len(), 328);
    let operators = operators(run);
    let of = |name: &str| operators.get(name).map_or(0, |o| o.0);
    assert_eq!(of("torch.nn.functional.conv2d"), 90, "{operators:?}");
    assert!(of("torch.nn.functional.interpolate") > 0, "{operators:?}");
    assert!(of("torch.cat") > 0, "{operators:?}");
    assert!(operators.keys().all(|o| !o.contains("__getattr__")));
}

#[test]
fn super_resolution_unknown_operators_stay_unknown() {
    let Some(report) = report("mmagic.sqlite", &[]) else {
        return;
    };
    // Most of the idle time is from recording, and no rule explains the rest.
    let said = report.list("/verdict")[1].as_str().unwrap();
    let expected = "of the window beyond what recording has caused, and";
    assert!(said.contains(expected), "{said}");
    assert_eq!(report.int("/summary/kernels"), 328);
    let (kernels, time) = report.unattributed("no_operator");
    assert_eq!(kernels, 180);
    let all = report.int("/summary/kernel_time_ns");
    close(time as f64 / all as f64, 0.31, 0.005);
    assert_eq!(time, all - report.int("/summary/with_operator_ns"));
}

#[test]
fn super_resolution_convolutions_have_shapes_and_flops() {
    let Some(costed) = costed("mmagic.sqlite", None) else {
        return;
    };
    let mut sites = 0;
    for (site, cost) in costed.run.sites.iter().zip(&costed.sites) {
        if site.op.as_ref().is_none_or(|o| o.name != "conv2d") {
            continue;
        }
        sites += 1;
        let args = &costed.run.args[site.args.expect("arguments").idx()];
        assert!(
            args.items
                .iter()
                .any(|a| matches!(&a.value, ArgValue::Tensor(t) if t.shape.len() == 4))
        );
        assert!(cost.flops.is_some_and(|f| f > 0.0), "{:?}", cost.cost);
        // 2 x outputs x channels x filter, computed here independently.
        let dims = cost.cost.as_ref().unwrap().roles[0].dims;
        let Dims::Conv(ConvSize {
            n,
            c,
            k,
            groups,
            out_spatial,
            filter,
            ..
        }) = dims
        else {
            panic!("{dims:?}")
        };
        let one = 2 * n * k * out_spatial * (c / groups) * filter;
        let ratio = cost.flops.unwrap() / (one as f64 * f64::from(site.calls));
        assert!((0.99..1.05).contains(&ratio), "{ratio}");
    }
    assert!(sites > 0);
}

// ------------------------------------------------- mfu_2gpu_before.sqlite: two ranks under FSDP

#[test]
fn two_ranks_count_every_kernel_once() {
    let Some(report) = report("mfu_2gpu_before.sqlite", &[]) else {
        return;
    };
    assert_eq!(report.int("/summary/kernels"), 4010);
    assert_eq!(report.int("/summary/kernel_time_ns"), 535_200_650);
    assert_eq!(report.int("/summary/devices"), 2);
    assert_eq!(report.unattributed("no_launch").0, 24);
    let rows: i64 = report
        .list("/layers")
        .iter()
        .map(|l| l["time_ns"].as_i64().unwrap())
        .sum();
    assert_eq!(rows + report.int("/layers_omitted/time_ns"), 535_200_650);
}

#[test]
fn two_ranks_attribute_nearly_all_launched_time_to_modules() {
    let Some(costed) = costed("mfu_2gpu_before.sqlite", None) else {
        return;
    };
    let run = &costed.run;
    assert_eq!(run.profile.processes.len(), 2);
    let kernels = run.profile.kernels.iter();
    let processes: BTreeSet<_> = kernels.clone().map(|k| k.process).collect();
    let devices: BTreeSet<_> = kernels.clone().map(|k| k.device).collect();
    assert_eq!((processes.len(), devices.len()), (2, 2));
    let (mut launched, mut named, mut without) = (0, 0, 0);
    for (kernel, link) in kernels.zip(&run.links) {
        if link.launch.is_none() {
            without += 1;
            continue;
        }
        launched += kernel.span.ns();
        let layer = link.op.and_then(|c| run.op_calls[c.idx()].layer);
        if layer.is_some_and(|l| run.layers[l.idx()].source == LayerSource::Fsdp) {
            named += kernel.span.ns();
        }
    }
    assert_eq!(without, 24);
    assert!(named * 100 >= launched * 95, "{named} of {launched}");
}

// --------------------------------------- h100_2gpu_1s.sqlite: weights streamed from pinned memory

fn streaming(gpu: &[&str]) -> Option<Report> {
    report("h100_2gpu_1s.sqlite", gpu)
}

/// With and without a named GPU.
const GPUS: [&[&str]; 2] = [&[], &["--gpu", "h100"]];

#[test]
fn streaming_has_no_launch_for_half_of_the_kernels() {
    for gpu in GPUS {
        let Some(report) = streaming(gpu) else { return };
        assert_eq!(report.int("/summary/kernels"), 3442);
        assert_eq!(report.unattributed("no_launch").0, 1810);
        assert_eq!(
            report.int("/summary/kernel_time_ns"),
            22_385_163 + 22_444_359
        );
    }
}

#[test]
fn streaming_is_dominated_by_copies() {
    for gpu in GPUS {
        let Some(report) = streaming(gpu) else { return };
        let verdict = report.list("/verdict")[0].as_str().unwrap();
        assert!(verdict.contains("copying, not computing"), "{verdict}");
        assert_eq!(report.findings()[0]["rule"], "copies/dominate");
        assert_eq!(report.findings()[0]["saving"]["kind"], "copy");
    }
}

#[test]
fn streaming_is_idle_for_a_few_milliseconds() {
    for gpu in GPUS {
        let Some(report) = streaming(gpu) else { return };
        let idle = report.int("/summary/device_window_ns") - report.int("/summary/busy_ns");
        close(idle as f64 / 2.0, 6.5e6, 0.1e6);
        assert_eq!(report.number("/total_saving/idle_high_ns"), 0.0);
    }
}

/// 223 copies and 25,475,252,224 bytes per GPU, 0.92 of 0.97 s, 27.7 GB/s.
#[test]
fn streaming_copies_have_size_and_bandwidth() {
    for gpu in GPUS {
        let Some(report) = streaming(gpu) else { return };
        let finding = &report.findings()[0];
        let text = message(finding);
        assert!(text.contains("from pinned memory"), "{text}");
        assert!(text.contains("27.7 GB/s"), "{text}");
        assert!(
            text.contains("51.0 GB") || text.contains("25.5 GB"),
            "{text}"
        );
        // Eight more copies, of other kinds, take no time to speak of.
        assert_eq!(finding["calls"], 2 * 223 + 8);
        close(finding["time_ns"].as_f64().unwrap() / 2.0, 0.92e9, 0.005e9);
        close(report.number("/summary/window_ns"), 0.97e9, 0.005e9);
    }
}

#[test]
fn streaming_first_compute_finding_is_fp32_on_cuda_cores() {
    for gpu in GPUS {
        let Some(report) = streaming(gpu) else { return };
        // Copies take 96 % of the time, so on some GPUs what it surely saves is below the floor.
        let all = report.findings().iter().chain(report.list("/minor"));
        let compute = all.into_iter().find(|f| {
            let category = f["category"].as_str().unwrap();
            !matches!(category, "copies" | "profile" | "communication" | "host")
        });
        let compute = compute.unwrap();
        let rule = compute["rule"].as_str().unwrap();
        assert!(
            ["precision/amp-off", "precision/tf32-off"].contains(&rule),
            "{:?}",
            report.rules()
        );
        let said = message(compute);
        assert!(
            said.contains("CUDA cores") || said.contains("the Tensor Cores of this"),
            "{said}"
        );
    }
}

/// Copies avoided on both devices shorten the run by the time on one.
#[test]
fn streaming_wall_time_is_divided_by_the_number_of_devices_once() {
    for gpu in GPUS {
        let Some(report) = streaming(gpu) else { return };
        let saving = &report.findings()[0]["saving"];
        let wall = saving["step_high_ns"].as_f64().unwrap();
        let claimed = saving["counted_high_ns"].as_f64().unwrap();
        close(wall, claimed / 2.0, 1e6);
    }
}

// ------------------------------------------------------- cs336zx: set-up, and whole-graph records

#[test]
fn copies_before_the_first_kernel_are_setup() {
    for (file, copies, bytes) in [
        ("cs336zx_2_7B_nvtx.sqlite", 294, 13_627_402_240_i64),
        ("cs336zx_result.sqlite", 114, 514_534_400),
    ] {
        let Some(report) = report(file, &[]) else {
            return;
        };
        assert_eq!(report.int("/setup/copies"), copies);
        assert!(report.int("/setup/copied_bytes") >= bytes);
        for rule in report.rules() {
            assert!(!rule.starts_with("copies/"), "{rule} in {file}");
        }
        assert_eq!(
            report
                .list("/minor")
                .iter()
                .filter(|f| f["category"] == "copies")
                .count(),
            0
        );
        assert_eq!(report.number("/total_saving/copy_high_ns"), 0.0);
    }
}

#[test]
fn graph_records_are_opaque_and_not_idle() {
    let Some(report) = report("cs336zx_2_7B_compile_ro.sqlite", &[]) else {
        return;
    };
    assert_eq!(report.int("/summary/graph_ns"), 7_811_141_695);
    assert_eq!(report.int("/summary/kernels"), 30);
    assert!(report.number("/summary/busy_share") > 0.99);
    assert!(
        report.verdict().contains("CUDA graph launches"),
        "{}",
        report.verdict()
    );
    let finding = report.finding("profile/graphs-hide-work");
    assert!(message(finding).contains("7.81 s"), "{}", message(finding));
    assert!(
        message(finding).contains("10 whole-graph records"),
        "{}",
        message(finding)
    );
    assert_eq!(report.number("/total_saving/idle_high_ns"), 0.0);
    for rule in report.rules() {
        assert!(!rule.starts_with("host/"), "{rule}");
    }
}

// ------------------------------------------------------------------------ files with little content

#[test]
fn profiles_without_kernels_explain_how_to_record_them() {
    for name in WITHOUT_KERNELS {
        let Some(path) = shared::profile(name) else {
            return;
        };
        let said = program(&path, &[], None);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{name}");
        assert!(said.err.starts_with("error: "), "{}", said.err);
        for part in [
            name,
            "no kernel",
            "no CUDA API calls",
            "nsys profile -t cuda,nvtx",
            "nsys export --type sqlite",
            "docs/capture.md",
        ] {
            assert!(said.err.contains(part), "no `{part}` in:\n{}", said.err);
        }
        for part in ["environment", "a Nsight", "panicked"] {
            assert!(!said.err.contains(part), "`{part}` in:\n{}", said.err);
        }
        assert_eq!(said.err.matches("nsys profile").count(), 1, "{}", said.err);
    }
}

#[test]
fn two_kernels_give_a_short_report() {
    let Some(report) = report("mock.sqlite", &[]) else {
        return;
    };
    assert_eq!(report.int("/summary/kernels"), 2);
    assert_eq!(report.int("/summary/kernel_time_ns"), 4129);
    report.finding("profile/no-work");
    assert_eq!(
        report.number("/total_saving/gpu_high_ns") + report.number("/total_saving/idle_high_ns"),
        0.0
    );
    let said = program(&shared::profile("mock.sqlite").unwrap(), &[], None);
    assert!(
        said.out.lines().count() < 150,
        "{} lines",
        said.out.lines().count()
    );
}

// -------------------------------------------------------------------------------------- every file

#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    for path in files() {
        let once = program(&path, &[], None);
        assert_eq!(once.code, if holds_kernels(&path) { 0 } else { 2 });
        for threads in [1, 4] {
            let again = program(&path, &[], Some(threads));
            assert_eq!(again.out, once.out, "{} with {threads}", path.display());
            assert_eq!(again.err, once.err, "{} with {threads}", path.display());
        }
    }
}

#[test]
fn files_are_not_changed() {
    for path in files() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(name(&path));
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&copy, &bytes).unwrap();
        program(&copy, &["--format", "json"], None);
        assert!(
            std::fs::read(&copy).unwrap() == bytes,
            "{} changed",
            copy.display()
        );
        let beside = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(beside, 1, "files appeared beside {}", copy.display());
    }
}

#[test]
fn reports_have_no_faults_and_no_open_getters() {
    for path in files().into_iter().filter(|p| holds_kernels(p)) {
        let json = program(&path, &["--format", "json"], None);
        let report: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(report["schema_version"], 2);
        assert_eq!(
            report["faults"],
            serde_json::json!([]),
            "{}",
            path.display()
        );
        assert!(!json.err.contains("failed"), "{}", json.err);
        let markdown = program(&path, &[], None);
        for text in [&json.out, &markdown.out] {
            assert!(!text.contains("__getattr__"), "{}", path.display());
            assert!(
                !text.contains("NaN") && !text.contains(" inf "),
                "{}",
                path.display()
            );
        }
        // Labels are bounded: complete marker text once caused a report of 1.3 MB.
        assert!(
            markdown.out.len() < 100_000,
            "{}: {} bytes",
            path.display(),
            markdown.out.len()
        );
    }
}

#[test]
fn layer_tables_contain_all_kernel_time() {
    for path in files().into_iter().filter(|p| holds_kernels(p)) {
        let json = program(&path, &["--format", "json"], None);
        let report = Report(serde_json::from_str(&json.out).unwrap());
        let rows: i64 = report
            .list("/layers")
            .iter()
            .map(|l| l["time_ns"].as_i64().unwrap())
            .sum();
        let sum = rows + report.int("/layers_omitted/time_ns");
        assert_eq!(
            sum,
            report.int("/summary/kernel_time_ns") + report.int("/summary/graph_ns"),
            "{}",
            path.display()
        );
    }
}

/// Files in which compiled or hand-written kernels take more than 1 % of the kernel time; the figures
/// are in `kernel_names.rs`.
const OWN_KERNELS: &[&str] = &[
    "askliar_trace_name.prof",
    "deepseek_h800_train.json",
    "fuser_h200.sqlite",
    "hta_negqueue_rank0.json.gz",
    "memfusion_trt.sqlite",
    "saf_False_b.json.gz",
    "saf_True_b.json.gz",
    "saf_True_c.json.gz",
    "timp_results.nvprof",
];

/// Per file: the family is known for at least 99 % of the kernel time, and Tensor Core use for matrix
/// kernels other than Triton's.
#[test]
fn kernel_names_of_every_file_are_decoded() {
    let own = |path: &Path| OWN_KERNELS.iter().any(|name| path.ends_with(name));
    for path in files().into_iter().filter(|p| holds_kernels(p) && !own(p)) {
        let costed = costed_at(&path, None);
        let sites = costed.run.sites.iter().zip(&costed.kernels);
        let kernels = sites.flat_map(|(site, decoded)| site.kernels.iter().zip(decoded));
        let unknown = kernels.filter(|(_, decoded)| decoded.family == Family::Unknown);
        let unknown_ns: i64 = unknown.map(|(kernel, _)| kernel.time_ns).sum();
        let most = costed.coverage.kernel_ns / 100;
        assert!(unknown_ns <= most, "{}: {unknown_ns} ns", path.display());
        for decoded in costed.kernels.iter().flatten() {
            let matrix = matches!(
                decoded.family,
                Family::Gemm | Family::Conv | Family::Attention
            );
            if matrix && !decoded.triton {
                assert_ne!(decoded.tensor_core, TensorCore::Unknown, "{}", decoded.base);
            }
        }
    }
}

/// Long values that describe the captured machine must not be printed.
#[test]
fn no_report_contains_environment_variables() {
    let ours = words_of_rules();
    for path in files() {
        let secrets = environment(&path);
        let mut printed = String::new();
        for arguments in [&[] as &[&str], &["--format", "json"], &["-v"]] {
            let said = program(&path, arguments, None);
            printed.push_str(&said.out);
            printed.push_str(&said.err);
        }
        // The path given on the command line may be printed, and so may text of our rules: `--mode
        // reduce-overhead` among a program's arguments is in our advice too.
        let printed = printed.replace(path.to_str().unwrap(), "");
        for secret in secrets.iter().filter(|s| !ours.contains(s.as_str())) {
            assert!(!printed.contains(secret), "{}: {secret:?}", path.display());
        }
    }
}

/// The text of the built-in rules.
fn words_of_rules() -> String {
    let set = RuleSet::builtin().unwrap();
    set.rules()
        .iter()
        .map(|rule| explain(rule, pyprof_advise::facts::all(), &|_| None))
        .collect()
}

/// Values of the environment tables longer than 8 characters that do not occur elsewhere in the file
/// with another meaning: as a GPU's name, a version of the tool, or a range's text.
fn environment(path: &Path) -> BTreeSet<String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?immutable=1", path.display());
    let database = Connection::open_with_flags(uri, flags).unwrap();
    let column = |query: &str| -> Vec<String> {
        let Ok(mut statement) = database.prepare(query) else {
            return Vec::new();
        };
        let bytes = |row: &rusqlite::Row<'_>| {
            let value = row.get_ref(0)?;
            Ok(value.as_bytes_or_null().ok().flatten().map(<[u8]>::to_vec))
        };
        let rows = statement.query_map([], bytes).unwrap();
        rows.filter_map(|row| Some(String::from_utf8_lossy(&row.unwrap()?).into_owned()))
            .collect()
    };
    let mut values: BTreeSet<String> = BTreeSet::new();
    for query in [
        "SELECT value FROM TARGET_INFO_SYSTEM_ENV",
        "SELECT value FROM META_DATA_CAPTURE",
    ] {
        for value in column(query) {
            // `NAME=VALUE` contains the value too.
            let value_of_name = value.split_once('=').map(|(_, v)| v.trim().to_owned());
            values.extend(value_of_name);
            values.insert(value);
        }
    }
    let public: BTreeSet<String> = [
        "SELECT name FROM TARGET_INFO_GPU",
        "SELECT value FROM META_DATA_EXPORT",
        "SELECT text FROM NVTX_EVENTS",
    ]
    .iter()
    .flat_map(|query| column(query))
    .collect();
    values
        .into_iter()
        .filter(|v| v.trim().chars().count() > 8 && !public.contains(v))
        .collect()
}

#[test]
#[ignore = "measured in optimized builds: .ci/run --full"]
fn every_file_is_reported_within_a_fifth_of_a_second() {
    for path in files() {
        let best: Duration = (0..5)
            .map(|_| {
                let start = Instant::now();
                program(&path, &[], None);
                start.elapsed()
            })
            .min()
            .unwrap();
        assert!(
            best < Duration::from_millis(200),
            "{}: {best:?}",
            path.display()
        );
    }
}
