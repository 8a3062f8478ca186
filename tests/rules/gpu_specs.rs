//! The built-in GPU specs, compared with their own constraints, with the arithmetic of the silicon and
//! with published figures.

use crate::shared;
use crate::support::csv;
use std::collections::BTreeMap;
use std::path::Path;

use pyprof_advise::base::DType;
use pyprof_advise::base::diag::Source;
use pyprof_advise::gpu::load::{self, Spec};
use pyprof_advise::gpu::{Vendor, family, names, select, show};

pub(crate) fn spec(id: &str) -> &'static Spec {
    let found = load::built_in().iter().find(|s| s.gpu.id == id);
    found.unwrap_or_else(|| panic!("no spec {id}"))
}

// --- the files -----------------------------------------------------------------------------------

#[test]
fn every_file_loads_without_complaints() {
    let (specs, complaints) = load::check_built_in();
    assert_eq!(complaints.render(false), "");
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu_specs")).unwrap();
    let files = files.filter(|f| {
        f.as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "toml")
    });
    assert_eq!(specs.len(), files.count());
    let ids: Vec<_> = specs.iter().map(|s| &s.gpu.id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
}

#[test]
fn every_file_has_the_data_for_reports() {
    for s in load::built_in() {
        let gpu = &s.gpu;
        let id = &gpu.id;
        assert!(!s.device_names.is_empty(), "{id}");
        assert!(s.confidence.is_some() && !gpu.sources.is_empty(), "{id}");
        assert!(gpu.memory_bytes.is_some() && gpu.l2_bytes.is_some(), "{id}");
        assert!(
            gpu.max_threads_per_sm.is_some() && gpu.shared_per_sm.is_some(),
            "{id}"
        );
        assert!(gpu.sms().is_some() || id == "b100", "{id}");
        for (dtype, elements) in &gpu.tensor_align {
            assert_eq!(family::alignment(*dtype), Some(*elements), "{id} {dtype}");
        }
        // Nothing public states the alignment of fp64 on AMD GPUs.
        let aligned = |d: &&DType| gpu.vendor == Vendor::Nvidia || **d != DType::Fp64;
        let known = |d: &&DType| family::alignment(**d).is_some();
        for dtype in gpu.tensor_flops.keys().filter(known).filter(aligned) {
            assert!(gpu.tensor_align.contains_key(dtype), "{id} {dtype}");
        }
    }
}

#[test]
fn names_are_unique_and_aliases_have_one_default() {
    let mut device_names: BTreeMap<String, Vec<&Spec>> = BTreeMap::new();
    let mut aliases: BTreeMap<&str, Vec<&Spec>> = BTreeMap::new();
    for s in load::built_in() {
        for name in &s.device_names {
            device_names
                .entry(names::normalize(name))
                .or_default()
                .push(s);
        }
        for alias in &s.aliases {
            aliases.entry(alias).or_default().push(s);
            let is_id = load::built_in().iter().any(|o| o.gpu.id == *alias);
            assert!(!is_id, "alias {alias} is an id");
        }
        assert_eq!(names::asked(&s.gpu.id), [s], "{}", s.gpu.id);
        assert_eq!(names::asked(&s.gpu.name), [s], "{}", s.gpu.name);
    }
    // Boards with the same device name differ in SMs or memory.
    for (name, mut specs) in device_names {
        specs.dedup_by_key(|s| &s.gpu.id);
        let mut attributes: Vec<_> = specs
            .iter()
            .map(|s| (s.gpu.sm_count, s.gpu.memory_bytes.map(f64::to_bits)))
            .collect();
        attributes.sort_unstable();
        attributes.dedup();
        assert_eq!(attributes.len(), specs.len(), "{name}");
    }
    for (alias, specs) in aliases {
        let stated = specs
            .iter()
            .filter(|s| s.default_for.iter().any(|a| a == alias));
        let expected = usize::from(specs.len() > 1);
        assert_eq!(
            stated.count(),
            expected,
            "{alias}: defaults among {}",
            specs.len()
        );
        assert_eq!(names::asked(alias).len(), specs.len(), "{alias}");
    }
}

#[test]
fn common_names_are_recognized() {
    for (typed, id) in [
        ("v100", "v100-sxm2-16gb"),
        ("a100", "a100-sxm4-80gb"),
        ("a100-40gb", "a100-sxm4-40gb"),
        ("A100-80GB", "a100-sxm4-80gb"),
        ("h100", "h100-sxm5-80gb"),
        ("h200", "h200-sxm-141gb"),
        ("b200", "b200-sxm"),
        ("T4", "t4"),
        ("l4", "l4"),
        ("l40s", "l40s"),
        ("a10", "a10"),
        ("a10g", "a10g"),
        ("4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("3090", "rtx-3090"),
        ("5090", "rtx-5090"),
        ("mi300x", "mi300x"),
        ("mi300", "mi300x"),
        ("3060", "rtx-3060-12gb"),
        ("3080", "rtx-3080-10gb"),
        ("4060", "rtx-4060"),
        ("4060ti", "rtx-4060-ti"),
        ("RTX 4070 SUPER", "rtx-4070-super"),
        ("5070ti", "rtx-5070-ti"),
        ("4090-laptop", "rtx-4090-laptop"),
        ("gtx1660", "gtx-1660"),
        ("h100-96gb", "h100-sxm5-96gb"),
        ("mi308x", "mi308x"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
    ] {
        assert_eq!(select::find(typed).unwrap().gpu.id, id, "{typed}");
    }
}

/// Published peaks follow from SMs, clock and operations per SM and clock, except for boards with
/// documented exceptions.
#[test]
fn rates_follow_from_sms_clock_and_throughput() {
    // Marketed below the arithmetic, limited for export or for the product, or with unpublished clocks.
    const OTHERWISE: &[&str] = &[
        "h20", "h20-3e", "h800-sxm", "a10g", "l40", "b300-sxm", "gb10",
    ];
    let mut checked = 0;
    for s in load::built_in() {
        let gpu = &s.gpu;
        let (Some(cc), Some(sms), Some(mhz)) = (gpu.compute_capability, gpu.sms(), s.boost_mhz)
        else {
            continue;
        };
        let Some(family) = family::find(cc, &s.device_names[0]) else {
            continue;
        };
        if OTHERWISE.contains(&gpu.id.as_str()) {
            continue;
        }
        let tensor_mhz = s.tensor_mhz.unwrap_or(mhz);
        for (ours, rates, mhz) in [
            (&gpu.flops, &family.fma, mhz),
            (&gpu.tensor_flops, &family.tensor, tensor_mhz),
        ] {
            for (dtype, derived) in family::peaks(rates, sms, mhz * 1e6) {
                // The fp64 rates of smaller chips are published with one digit.
                let Some(rate) = ours.get(&dtype).filter(|_| dtype != DType::Fp64) else {
                    continue;
                };
                let off = (rate / derived - 1.0).abs();
                assert!(
                    off < 0.015,
                    "{}: {dtype} {rate:e}, derived {derived:e}",
                    gpu.id
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 550, "{checked}");
}

#[test]
fn every_board_of_the_reference_table_has_a_spec() {
    let Some(path) = shared::path("reference/gpu_specs.csv") else {
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = csv::rows(&text).into_iter();
    let header = rows.next().unwrap();
    let mut count = 0;
    for row in rows {
        let row: BTreeMap<&str, &str> = header
            .iter()
            .map(String::as_str)
            .zip(row.iter().map(String::as_str))
            .collect();
        let names: Vec<&str> = row["cuda_device_names"].split(';').collect();
        // Some boards that shared a row have their own file now.
        let s = load::built_in()
            .iter()
            .find(|s| s.device_names.first().map(String::as_str) == names.first().copied());
        let s = s.unwrap_or_else(|| panic!("no file for {}", row["name"]));
        compare(s, &row);
        count += 1;
    }
    assert!(count >= 67, "{count}");
}

/// Figures of the reference table that the files correct, with the reason in their notes or sources.
const CORRECTED: &[(&str, &str)] = &[
    ("gb10", "tf32_tc_tflops"),
    ("gb10", "fp16_tc_fp32acc_tflops"),
    ("gb10", "bf16_tc_tflops"),
    ("gb10", "fp8_tc_fp32acc_tflops"),
    ("gb10", "int8_tc_tops"),
    ("h20", "fp32_tflops"),
    ("titan-v", "tensor_clock_mhz"),
    ("v100-dgxs-32gb", "nvlink_gbs"),
];

fn compare(s: &Spec, row: &BTreeMap<&str, &str>) {
    let gpu = &s.gpu;
    let flops = |d| gpu.flops.get(&d).map(|f| f / 1e12);
    let tensor = |d| gpu.tensor_flops.get(&d).map(|f| f / 1e12);
    let whole = |n: Option<u32>| n.map(f64::from);
    let kib = |n: Option<u32>| n.map(|b| f64::from(b) / 1024.0);
    let columns = [
        ("sm_count", whole(gpu.sms())),
        ("boost_clock_mhz", s.boost_mhz),
        ("tensor_clock_mhz", s.tensor_mhz),
        ("fp64_tflops", flops(DType::Fp64)),
        ("fp64_tc_tflops", tensor(DType::Fp64)),
        ("fp32_tflops", flops(DType::Fp32)),
        ("tf32_tc_tflops", tensor(DType::Tf32)),
        ("fp16_nontc_tflops", flops(DType::Fp16)),
        ("fp16_tc_fp32acc_tflops", tensor(DType::Fp16)),
        ("bf16_tc_tflops", tensor(DType::Bf16)),
        ("fp8_tc_fp32acc_tflops", tensor(DType::Fp8)),
        ("int8_tc_tops", tensor(DType::Int8)),
        ("fp4_tc_tflops", tensor(DType::Fp4)),
        ("mem_gb", gpu.memory_bytes.map(|b| b / 1024.0_f64.powi(3))),
        ("mem_bw_gbs", Some(gpu.bandwidth / 1e9)),
        ("l2_mb", gpu.l2_bytes.map(|b| b / 1024.0_f64.powi(2))),
        ("smem_per_sm_kb", kib(gpu.shared_per_sm)),
        ("max_smem_per_block_kb", kib(s.shared_per_block)),
        ("regs_per_sm", whole(gpu.registers_per_sm)),
        ("max_threads_per_sm", whole(gpu.max_threads_per_sm)),
        ("max_blocks_per_sm", whole(gpu.max_blocks_per_sm)),
        ("warp_schedulers_per_sm", whole(gpu.warp_schedulers)),
        ("tdp_w", s.power_w),
        ("nvlink_gbs", gpu.nvlink.map(|b| b / 1e9)),
        ("pcie_gen", whole(gpu.pcie_gen)),
    ];
    for (column, ours) in columns {
        let theirs: Option<f64> = row[column].parse().ok();
        let same = match (ours, theirs) {
            (Some(a), Some(b)) => (a / b - 1.0).abs() < 1e-9,
            (a, b) => a.is_none() && b.is_none(),
        };
        let corrected = CORRECTED.contains(&(gpu.id.as_str(), column));
        assert_eq!(
            same, !corrected,
            "{} {column}: {ours:?}, not {theirs:?}",
            gpu.id
        );
    }
    assert_eq!(
        s.confidence.as_deref(),
        Some(row["confidence"]),
        "{}",
        gpu.id
    );
}

#[test]
fn specs_can_be_shown() {
    let text = show::show(spec("v100-sxm2-16gb"));
    for part in [
        "V100 SXM2 16GB (v100-sxm2-16gb)\n",
        "fp16 125 TFLOP/s",
        "16 GiB, HBM2, 900 GB/s",
        "Volta, GV100, compute capability 7.0",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    for s in load::built_in() {
        assert!(show::show(s).lines().count() > 12, "{}", s.gpu.id);
    }
}

// --- a user's file -------------------------------------------------------------------------------

pub(crate) const MINIMAL: &str = r#"
name = "X1"
vendor = "nvidia"
architecture = "Ampere"
compute_capability = "8.0"
sources = ["measured"]
[flops]
fp32 = 10
[memory]
bandwidth_gbs = 1000
"#;

fn complaints_of(text: &str) -> String {
    match load::parse_source("mine", &Source::new("mine.toml", text)) {
        Ok(_) => String::new(),
        Err(complaints) => complaints.render(false),
    }
}

#[test]
fn minimal_files_load() {
    let s = load::parse_source("mine", &Source::new("mine.toml", MINIMAL)).unwrap();
    assert_eq!((s.gpu.id.as_str(), s.gpu.bandwidth), ("mine", 1e12));
    assert_eq!(
        (s.gpu.reachable, s.gpu.sms()),
        (spec("a100-sxm4-40gb").gpu.reachable, None)
    );
    assert_eq!(s.gpu.flops[&DType::Fp32], 1e13);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = r#"name = 3
vendor = "nvida"
architecture = "Ampere"
sm_cuont = 108
boost_mhz = -5
aliases = ["A 100", "ok", "ok"]
default_for = ["other"]
confidence = "sure"

[flops]
fp32 = 19.5
tf32 = 156
pf16 = 2

[tensor_flops]
float16 = 312

[tensor_align]
fp16 = 7

[memory]
l2_mb = "40"

[limits]
threads = 2047
shared_kb = 48
shared_per_block_kb = 96

[reachable]
math = 80
"#;
    let shown = complaints_of(text);
    for part in [
        "`name` must be a string",
        "`vendor` cannot be `nvida`; did you mean `nvidia`?",
        "unknown key `sm_cuont`",
        "did you mean `sm_count`?",
        "`boost_mhz` cannot be -5.0",
        "`aliases[0]` must be lower-case letters, digits and `-`, not `A 100`",
        "alias `ok` stands twice",
        "`other` is not an alias of this GPU",
        "`confidence` cannot be `sure`",
        "TF32 has no rate outside Tensor Cores",
        "no rates are kept for a data type `pf16`",
        "no rates are kept for a data type `float16`",
        "did you mean `fp16`?",
        "`tensor_align.fp16` without a rate",
        "`memory.l2_mb` must be a number",
        "`memory.bandwidth_gbs` is missing",
        "`limits.threads` cannot be 2047",
        "more shared memory than its SM",
        "`reachable.math` cannot be 80.0",
        "`sources` is missing",
        "mine.toml:4:1",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn impossible_values_are_errors() {
    for (from, to, part) in [
        ("fp32 = 10", "fp32 = -1", "`flops.fp32` cannot be -1.0"),
        ("fp32 = 10", "fp32 = nan", "must be a finite number"),
        ("fp32 = 10", "fp32 = 1e300", "`flops.fp32` cannot be 1e300"),
        ("fp32 = 10", "fp64 = 10", "`flops.fp32` is missing"),
        ("\"8.0\"", "\"eight\"", "must be a compute capability"),
        ("\"8.0\"", "8.0", "`compute_capability` must be a string"),
        ("[flops]", "sm_count = 0\n[flops]", "`sm_count` cannot be 0"),
        (
            "[flops]",
            "gfx = \"gfx90a\"\n[flops]",
            "`gfx` does not apply",
        ),
        ("1000", "0", "`memory.bandwidth_gbs` cannot be 0.0"),
        (
            "[flops]\nfp32 = 10",
            "sm_count = 80\nboost_mhz = 1530\n[flops]\nfp32 = 15700",
            "`flops.fp32` is more than this GPU can do",
        ),
    ] {
        let shown = complaints_of(&MINIMAL.replace(from, to));
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    assert!(complaints_of("").contains("`name` is missing"));
    assert!(complaints_of("a = = 1").contains("error"));
}
