//! The contents of real captures, compared with values counted by SQL when they were collected.

use crate::shared;
use std::collections::{HashMap, HashSet};

use pyprof_advise::profile::{CopyKind, MemoryKind, Profile, SyncKind};

use super::{content, note, open, refused, text};

/// Kernels with a call of the same correlation id in the same process.
fn launched(p: &Profile) -> usize {
    let calls: HashSet<_> = p
        .calls
        .iter()
        .map(|c| (p.threads[c.thread.idx()].process, c.correlation))
        .collect();
    p.kernels
        .iter()
        .filter(|k| calls.contains(&(k.process, k.correlation)))
        .count()
}

/// File; kernels, launched kernels, ranges; rows of the range table that are not ranges (names of
/// domains in nsys, ends of ranges in nvprof); GPU. Counted with SQL when they were collected.
type Real = (&'static str, [usize; 3], usize, Option<&'static str>);

const A100: Option<&str> = Some("NVIDIA A100-SXM4-80GB");

#[rustfmt::skip]
const REAL: &[Real] = &[
    ("askliar_trace_name.prof", [99, 98, 238], 118, Some("GeForce 840M")),
    ("blink_nccl_8v100.nvvp", [24, 24, 0], 0, Some("Tesla V100-SXM2-32GB")),
    ("cs336athrun_win.sqlite", [4485, 4485, 180], 0, Some("NVIDIA RTX 5000 Ada Generation Laptop GPU")),
    ("cs336ihor_nocuda.sqlite", [0, 0, 0], 0, Some("NVIDIA GeForce RTX 4070 Ti")),
    ("cs336jsun.sqlite", [17_032, 17_032, 32], 1, Some("NVIDIA GeForce RTX 3070 Ti")),
    ("cs336zx_2_7B_compile_ro.sqlite", [30, 30, 0], 0, A100),
    ("cs336zx_2_7B_nvtx.sqlite", [7328, 7328, 516], 0, A100),
    ("cs336zx_result.sqlite", [2768, 2768, 0], 0, A100),
    ("da6bcc3_net.sql", [284, 284, 2390], 1195, Some("Tesla V100-SXM2-16GB")),
    ("dlprof_wrelu_nsys.sqlite", [59, 59, 166], 0, Some("NVIDIA GeForce RTX 2070 SUPER")),
    ("dynamicvit.sqlite", [0, 0, 0], 0, Some("NVIDIA RTX A2000 12GB")),
    ("ecf_baseline.sqlite", [0, 0, 1824], 0, Some("NVIDIA TITAN RTX")),
    ("ecf_poolformer_trt.sqlite", [0, 0, 21_998], 2, Some("NVIDIA TITAN RTX")),
    ("fuser_h200.sqlite", [18, 18, 13_513], 0, Some("NVIDIA H200")),
    ("h100_2gpu_1s.sqlite", [3442, 1632, 16_782], 0, None),
    ("lm_net.sql", [160, 160, 1366], 683, Some("Tesla V100-SXM2-16GB")),
    ("memfusion_trt.sqlite", [36, 36, 60], 1, Some("NVIDIA GeForce RTX 3090")),
    ("mfu_2gpu_after.sqlite", [3587, 3577, 17_113], 0, None),
    ("mfu_2gpu_before.sqlite", [4010, 3986, 19_118], 0, None),
    ("mixq_src1.sqlite", [14, 14, 0], 0, Some("NVIDIA A100-PCIE-40GB")),
    ("mmagic.sqlite", [328, 328, 1956], 0, Some("NVIDIA A100-SXM4-40GB")),
    ("mock.sqlite", [2, 2, 0], 0, Some("NVIDIA GeForce RTX 3080")),
    ("timp_results.nvprof", [26, 26, 0], 0, Some("NVIDIA GeForce RTX 2080 Ti")),
    ("tunguz_gb10.sqlite", [1, 1, 0], 0, Some("NVIDIA GB10")),
    ("wenscarl_cutlass.sqlite", [6, 6, 0], 0, Some("NVIDIA A100-PCIE-40GB")),
];

#[test]
fn real_profiles_have_the_counts_of_sql_queries() {
    for &(file, expected, other_rows, gpu) in REAL {
        let Some(path) = shared::profile(file) else {
            continue;
        };
        let p = open(&path).unwrap_or_else(|e| panic!("{e}"));
        let found = [
            p.kernels.len(),
            launched(&p),
            p.ranges.len() + p.pruned_ranges as usize + other_rows,
        ];
        assert_eq!(found, expected, "{file}");
        let name = p.devices.first().and_then(|d| d.name.as_deref());
        assert_eq!(name, gpu, "{file}");
        assert_eq!(p.recorded.kernels, expected[0] > 0);
        assert!(p.kernels.is_sorted_by_key(|k| k.span.start));
        assert!(p.calls.is_sorted_by_key(|c| c.span.start));
        assert!(p.ranges.is_sorted_by_key(|r| r.span.start));
        assert_eq!(note(&p, "rows_skipped"), None, "{file}");
        for range in &p.ranges {
            assert!(!text(&p, range.text).contains(", op_id = "));
        }
    }
}

#[test]
fn every_real_database_is_in_the_table() {
    let Some(files) = shared::profiles() else {
        return;
    };
    for name in files.iter().map(|file| shared::name(file)) {
        let trace = name.ends_with(".json") || name.ends_with(".json.gz");
        assert!(
            trace || REAL.iter().any(|r| r.0 == name),
            "{name} has no expectation"
        );
    }
}

#[test]
fn real_profiles_have_the_expected_details() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let get = |name: &str| open(&folder.join(name)).unwrap();
    let syncs = |p: &Profile, kind: SyncKind| p.syncs.iter().filter(|s| s.kind == kind).count();

    let mfu = get("mfu_2gpu_before.sqlite");
    assert_eq!((mfu.processes.len(), mfu.devices.len()), (2, 2));
    assert_eq!(syncs(&mfu, SyncKind::Stream), 33);
    assert_eq!(syncs(&mfu, SyncKind::StreamWait), 200);
    let by_id = mfu.ranges.iter().filter(|r| r.domain.is_some());
    assert_eq!(by_id.clone().count(), 462);
    assert!(
        by_id
            .into_iter()
            .all(|r| text(&mfu, r.text).starts_with("nccl"))
    );

    let h100 = get("h100_2gpu_1s.sqlite");
    let pinned: u64 = h100
        .copies
        .iter()
        .filter(|c| c.kind == CopyKind::HtoD && c.src == MemoryKind::Pinned)
        .map(|c| c.bytes)
        .sum();
    assert!((50.0e9..52.0e9).contains(&(pinned as f64)), "{pinned}");

    let mmagic = get("mmagic.sqlite");
    let pageable = mmagic
        .copies
        .iter()
        .filter(|c| c.src == MemoryKind::Pageable);
    assert_eq!((pageable.count(), mmagic.listed_gpus), (10, 4));
    assert_eq!(mmagic.devices[0].bandwidth, Some(1_555_200_000_000.0));
    assert_eq!(syncs(&mmagic, SyncKind::StreamWait), 18);

    let graphs = get("cs336zx_2_7B_compile_ro.sqlite");
    assert_eq!(graphs.graphs.len(), 10);
    assert_eq!(syncs(&graphs, SyncKind::Context), 1);

    let trt = get("ecf_poolformer_trt.sqlite");
    let mut domains: HashMap<&str, usize> = HashMap::new();
    for range in &trt.ranges {
        *domains
            .entry(range.domain.map_or("", |d| text(&trt, d)))
            .or_default() += 1;
    }
    assert_eq!(domains["TensorRT"], 18_424);
    assert_eq!(domains["myelin-exec"], 2444);
    assert_eq!(trt.tool_version.as_deref(), Some("2022.4.2.1"));

    let lm = get("lm_net.sql");
    assert_eq!(lm.processes.len(), 1);
    let ranges: HashSet<_> = lm.ranges.iter().map(|r| r.thread).collect();
    let calls: HashSet<_> = lm.calls.iter().map(|c| c.thread).collect();
    assert!(
        calls.is_subset(&ranges),
        "launches and markers share their threads"
    );
    assert!(lm.ranges.iter().all(|r| r.span.end != i64::MAX));

    let blink = get("blink_nccl_8v100.nvvp");
    assert_eq!((blink.listed_gpus, blink.devices.len()), (8, 4));
}

#[test]
fn real_files_are_not_changed() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for &(file, ..) in REAL {
        let bytes = std::fs::read(folder.join(file)).unwrap();
        std::fs::write(dir.path().join(file), bytes).unwrap();
    }
    let before = content(dir.path());
    for &(file, ..) in REAL {
        open(&dir.path().join(file)).unwrap();
    }
    assert!(content(dir.path()) == before, "changed or created a file");
}

#[test]
fn truncated_real_files_are_errors() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["mock.sqlite", "lm_net.sql"] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        let cut = dir.path().join(name);
        for at in (4096..whole.len()).step_by(whole.len() / 11) {
            std::fs::write(&cut, &whole[..at]).unwrap();
            assert!(refused(&cut).contains("damaged"), "{name} cut at {at}");
        }
    }
}
