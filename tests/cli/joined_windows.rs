//! The two recordings of `run`, joined by the manifest of their folder: idle time from the light one, operators
//! from the detailed one.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// A trace of some steps of 1 ms with one matrix product each.
struct Window {
    steps: u64,
    step_us: u64,
    kernel_us: u64,
    has_shapes: bool,
}

impl Window {
    fn write(&self, path: &Path) {
        let mut events = Vec::new();
        for step in 0..self.steps {
            let start = 1000 + step * self.step_us;
            let id = step + 1;
            let mut args = json!({"External id": id});
            if self.has_shapes {
                args["Input Dims"] = json!([[512, 512], [512, 512]]);
                args["Input type"] = json!(["float", "float"]);
            }
            let mut host = |category: &str, name: &str, ts: u64, dur: u64, args: Value| {
                events.push(
                    json!({"ph": "X", "cat": category, "name": name, "pid": 42, "tid": 42,
                                   "ts": ts, "dur": dur, "args": args}),
                );
            };
            let name = format!("ProfilerStep#{}", 10 + step);
            host("user_annotation", &name, start, self.step_us, json!({}));
            host("cpu_op", "aten::mm", start + 10, 30, args);
            let launch = json!({"External id": id, "correlation": id});
            host("cuda_runtime", "cudaLaunchKernel", start + 20, 5, launch);
            events.push(json!({"ph": "X", "cat": "kernel", "name": "sgemm_128x128", "pid": 0, "tid": 7,
                "ts": start + 30, "dur": self.kernel_us,
                "args": {"External id": id, "correlation": id, "device": 0, "context": 1, "stream": 7,
                         "grid": [16, 1, 1], "block": [256, 1, 1]}}));
        }
        let trace = json!({
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42505273344_u64,
                "computeMajor": 8, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048,
                "regsPerMultiprocessor": 65536, "warpSize": 32, "sharedMemPerMultiprocessor": 167936,
                "numSms": 108}],
            "traceEvents": events,
        });
        std::fs::write(path, trace.to_string()).unwrap();
    }
}

/// What the program prints about a folder with both windows of one process.
fn printed(light: &Window, detailed: &Window, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (name, window) in [("light", light), ("detailed", detailed)] {
        let file = format!("process42-{name}.pt.trace.json");
        window.write(&folder.path().join(&file));
        files.push(json!({"file": file, "window": name, "pid": 42, "steps_are": "calls of UNet"}));
    }
    let manifest = json!({"format": "pyprof-advise capture", "version": 1, "files": files});
    std::fs::write(folder.path().join("manifest.json"), manifest.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .arg(folder.path())
        .arg("--quiet")
        .args(options)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The report on both windows.
fn joined(light: &Window, detailed: &Window) -> Value {
    serde_json::from_str(&printed(light, detailed, &["--format", "json"])).unwrap()
}

const LIGHT: Window = Window {
    steps: 3,
    step_us: 1000,
    kernel_us: 500,
    has_shapes: false,
};
const DETAILED: Window = Window {
    steps: 3,
    step_us: 2000,
    kernel_us: 510,
    has_shapes: true,
};

fn texts<'a>(report: &'a Value, list: &str) -> Vec<&'a str> {
    let rows = report[list].as_array().unwrap();
    rows.iter().map(|row| row.as_str().unwrap()).collect()
}

#[test]
fn steps_are_named_after_what_run_has_counted() {
    let text = printed(&LIGHT, &DETAILED, &[]);
    assert!(
        text.contains("3 steps of 1.00 ms (calls of `UNet`)"),
        "{text}"
    );
}

#[test]
fn step_time_comes_from_the_light_window_and_operators_from_the_detailed_one() {
    let report = joined(&LIGHT, &DETAILED);
    assert_eq!(report["windows"]["agree"], true);
    assert_eq!(report["windows"]["light_kernel_ns_per_step"], 500_000.0);
    assert_eq!(report["windows"]["detailed_kernel_ns_per_step"], 510_000.0);
    assert_eq!(report["summary"]["step_ns"], 1_000_000.0);
    // Only the detailed window has shapes.
    assert_eq!(
        report["sites"][0]["arguments"],
        "fp32[512, 512], fp32[512, 512]"
    );
    let notes = texts(&report, "notes");
    assert!(
        notes
            .iter()
            .any(|note| note.contains("they recorded the same work")),
        "{notes:?}"
    );
}

#[test]
fn windows_that_recorded_different_work_are_said_to_differ() {
    let slower = Window {
        kernel_us: 900,
        ..DETAILED
    };
    let report = joined(&LIGHT, &slower);
    assert_eq!(report["windows"]["agree"], false);
    let cautions = texts(&report, "cautions");
    let differ = "The two recordings of this run differ by 44 %";
    assert!(
        cautions.iter().any(|text| text.starts_with(differ)),
        "{cautions:?}"
    );
}

#[test]
fn windows_with_different_numbers_of_steps_are_not_joined() {
    let report = joined(&Window { steps: 2, ..LIGHT }, &DETAILED);
    assert_eq!(report["windows"], Value::Null);
    assert_eq!(report["summary"]["steps"], 3);
    let cautions = texts(&report, "cautions");
    assert!(
        cautions
            .iter()
            .any(|text| text.contains("so they were not joined")),
        "{cautions:?}"
    );
}

#[test]
fn why_judges_the_windows_that_the_report_judges() {
    let report = joined(&LIGHT, &DETAILED);
    let mut all = ["findings", "minor"]
        .into_iter()
        .flat_map(|list| report[list].as_array().unwrap());
    let idle = all.find(|f| f["saving"]["kind"] == "idle").unwrap();
    let rule = idle["rule"].as_str().unwrap();
    let share = idle["share"].as_f64().unwrap();
    // Idle for half of a step, and for three quarters where shapes were recorded.
    assert!((0.4..0.55).contains(&share), "{share}");
    let why = printed(&LIGHT, &DETAILED, &["--why", rule]);
    let expected = format!("{:.0} % of the window", 100.0 * share);
    assert!(why.contains(&expected), "{expected}: {why}");
}
