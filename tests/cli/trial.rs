//! `try` on a real program, with a real torch on the CPU, and its command line.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cli_sandbox::{Sandbox, has, lacks};
use crate::shared;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_pyprof-advise");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `try` with options, on a program in `tests/torch/programs`; the exit status, the output and the errors.
fn tried(python: &Path, options: &str, program: &str) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(PROGRAM)
        .arg("try")
        .args(options.split_whitespace())
        .arg("--")
        .arg(python)
        .args(["-W", "ignore"])
        .arg(root().join("tests/torch/programs").join(program))
        .env("OMP_NUM_THREADS", "1")
        .env_remove("PYTHONPATH")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "`try` leaves no file");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A report of a profile, so that the program need not be recorded.
fn report(sandbox: &Sandbox) -> String {
    sandbox.fine("net.sqlite --format json -o report.json");
    sandbox.at("report.json").display().to_string()
}

#[test]
fn treatments_are_measured_and_their_values_compared() {
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    let from = report(&sandbox);
    let options = format!(
        "fused-optimizer set-to-none channels-last autocast-bf16 compile-blocks gc-freeze loader-prefetch tf32 \
         --from {from} --rounds 1 --skip 4 --steps 4 --format json"
    );
    let (code, out, err) = tried(&python, &options, "trial.py");
    assert_eq!(code, Some(0), "{err}");
    let trial: Value = serde_json::from_str(&out).unwrap();
    let rows = trial["treatments"].as_array().unwrap();
    let mut names: Vec<&str> = rows
        .iter()
        .map(|row| row["names"][0].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "autocast-bf16",
            "channels-last",
            "compile-blocks",
            "fused-optimizer",
            "gc-freeze",
            "set-to-none"
        ],
        "{err}"
    );
    for row in rows {
        assert_eq!(row["check"]["result"], "same", "{row}");
        assert_eq!(row["check"]["values"], 8, "{row}");
        assert!(row["treated"]["step_ns"].as_f64().unwrap() > 1e6, "{row}");
        // One run each is too few to know the noise.
        assert_eq!(row["outcome"], "unknown", "{row}");
        assert!(!row["changes"].as_object().unwrap().is_empty(), "{row}");
    }
    let added = |name: &str| {
        let row = rows.iter().find(|row| row["names"][0] == name).unwrap();
        row["add"][0]["lines"].as_str().unwrap()
    };
    assert_eq!(
        added("compile-blocks"),
        "for block in model.blocks:\n    block.compile()"
    );
    assert_eq!(added("fused-optimizer"), "AdamW(..., fused=True)");
    let not_tried = trial["not_tried"].to_string();
    has(
        &not_tried,
        &[
            "loader-prefetch",
            "has nothing that it changes",
            "needs an NVIDIA GPU",
        ],
    );
    assert!(!err.contains("the whole training"), "runs end early: {err}");
}

#[test]
fn what_helps_is_combined_and_its_lines_are_printed() {
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    // Half of the steps takes the dataset: workers help on any machine with two processors.
    let options = format!(
        "slow-down loader-workers --treatments {} --from {} --skip 3 --steps 8",
        root().join("tests/torch/treatments").display(),
        report(&sandbox)
    );
    let (code, out, err) = tried(&python, &options, "trial.py");
    assert_eq!(code, Some(0), "{err}");
    has(
        &out,
        &[
            "## Measured",
            "`slow-down`",
            "loss DIFFERS by",
            "Without treatments a step takes",
        ],
    );
    has(&err, &["run 1: untreated", "slow-down"]);
    if out.contains("Apply `loader-workers`") {
        // As many as this machine has processors for.
        let lines =
            regex::Regex::new(r"DataLoader\(\.\.\., num_workers=\d+, persistent_workers=True\)")
                .unwrap();
        assert!(lines.is_match(&out), "{out}");
    }
}

#[test]
fn findings_that_were_measured_are_marked_in_every_report() {
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    let mut report = sandbox.report("net.sqlite");
    report["findings"][0]["rule"] = "layers/optimizer-foreach".into();
    sandbox.write("report.json", &report.to_string());
    let options = format!(
        "fused-optimizer --from {} --rounds 1 --skip 2 --steps 3 --report {}",
        sandbox.at("report.json").display(),
        sandbox.at("measured.json").display()
    );
    let (code, out, err) = tried(&python, &options, "plain.py");
    assert_eq!(code, Some(0), "{err}");
    has(&out, &["`fused-optimizer`"]);
    let tags = regex::Regex::new("<[^>]*>").unwrap();
    for format in ["markdown", "html", "text"] {
        let said = sandbox.fine(&format!("show measured.json --format {format}"));
        let said = said.replace(['*', '`'], "");
        let said: String = tags
            .replace_all(&said, "")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        has(
            &said,
            &[
                "Measured with fused-optimizer: ",
                "noise unknown without a GPU; loss same within",
            ],
        );
    }
}

#[test]
fn inference_is_checked_by_what_the_model_returns() {
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    let options = format!(
        "autocast-bf16 --from {} --rounds 1 --skip 2 --steps 4 --format json",
        report(&sandbox)
    );
    let (code, out, err) = tried(&python, &options, "inference.py");
    assert_eq!(code, Some(0), "{err}");
    let trial: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(trial["treatments"][0]["check"]["what"], "output", "{out}");
    assert_eq!(trial["treatments"][0]["check"]["result"], "same", "{out}");
}

#[test]
fn limits_and_failing_programs_are_reported() {
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    let from = report(&sandbox);
    let options = format!("gc-freeze --from {from} --max-runs 2 --skip 2 --steps 3");
    let (code, out, err) = tried(&python, &options, "trial.py");
    assert_eq!(code, Some(0), "{err}");
    has(&out, &["The runs ended early: --max-runs allows 2 runs."]);
    let options = format!("gc-freeze --from {from} --skip 5000");
    let (code, out, err) = tried(&python, &options, "plain.py");
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    has(
        &err,
        &["the program ended after 16 steps", "use a smaller --skip"],
    );
}

/// A signal ends the series with what was measured; whether it arrives in a run or between two does not matter.
#[cfg(unix)]
#[test]
fn signals_end_a_series_with_its_result() {
    use std::io::{BufRead, BufReader};

    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    let mut child = Command::new(PROGRAM)
        .args(["try", "gc-freeze", "--from", &report(&sandbox)])
        .args(["--rounds", "50", "--skip", "2", "--steps", "3", "--"])
        .arg(python)
        .args(["-W", "ignore"])
        .arg(root().join("tests/torch/programs/trial.py"))
        .env("OMP_NUM_THREADS", "1")
        .env_remove("PYTHONPATH")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let mut runs = 0;
    for line in said.lines() {
        if line.unwrap().contains("per step") {
            runs += 1;
        }
        if runs == 2 {
            let id = child.id().to_string();
            let sent = Command::new("kill").args(["-TERM", &id]).status();
            assert!(sent.unwrap().success());
            runs += 1;
        }
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "128 and SIGTERM");
    let out = String::from_utf8_lossy(&output.stdout);
    has(&out, &["The runs ended early: interrupted.", "## Measured"]);
}

#[test]
fn findings_without_a_gpu_have_to_be_named() {
    let Some(python) = shared::python() else {
        return;
    };
    let (code, _, err) = tried(&python, "--skip 2", "trial.py");
    assert_eq!(code, Some(2), "{err}");
    has(&err, &["torch found no GPU", "name what to try"]);
}

#[test]
fn ranks_of_a_job_end_together() {
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    let from = report(&sandbox);
    let output = Command::new(PROGRAM)
        .args(["try", "ddp-bucket-views", "--from", &from])
        .args([
            "--rounds", "1", "--skip", "4", "--steps", "4", "--format", "json", "--",
        ])
        .arg(&python)
        .args([
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
        ])
        .arg(root().join("tests/torch/programs/ddp.py"))
        .arg(sandbox.at("work"))
        .env("OMP_NUM_THREADS", "1")
        .env_remove("PYTHONPATH")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let trial: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(trial["treatments"][0]["check"]["result"], "same", "{err}");
}

#[test]
fn every_treatment_is_applied_and_undone() {
    let Some(python) = shared::python() else {
        return;
    };
    let output = Command::new(python)
        .args(["-W", "ignore"])
        .arg(root().join("tests/torch/treatments.py"))
        .env("PYTHONPATH", root().join("python"))
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("checked"));
}

#[test]
fn mistakes_on_the_command_line_are_found_before_the_program_runs() {
    let sandbox = Sandbox::new();
    let err = sandbox.refused("try fused-optimzer -- no-such-program");
    has(&err, &["did you mean `fused-optimizer`?", "try --list"]);
    let err = sandbox.refused("try tensor-cores/gemm-unaligned -- no-such-program");
    has(&err, &["is an edit of the program"]);
    let err = sandbox.refused("try --budget soon -- no-such-program");
    has(&err, &["expected a number of minutes"]);
    sandbox.write("mine/wrong.py", "# /// treatment\n# title = 3\n# ///\n");
    let err = sandbox.refused("try --treatments mine -- no-such-program");
    has(&err, &["mine/wrong.py:2", "`title`", "`tolerance`"]);
    let list = sandbox.fine("try --list");
    has(&list, &["fused-optimizer\n", "layers/optimizer-foreach"]);
    // The value of a variable that is set is never shown.
    // Newer releases of torch read the first name, older ones the second.
    for variable in ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"] {
        let sandbox = Sandbox::new().with(variable, "secret_setting:1");
        let err = sandbox.refused("try expandable-segments --from net.sqlite -- no-such-program");
        has(&err, &[&format!("the environment sets {variable} already")]);
        lacks(&err, &["secret_setting"]);
    }
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_program_starts() {
    let sandbox = Sandbox::new();
    report(&sandbox);
    for (options, says) in [
        ("-o nodir/x.md", "there is no folder nodir"),
        ("-o x.pdf", "no format of comparisons has this ending"),
        ("-o x.sarif", "expected .md, .markdown, .html, .htm, .json;"),
        ("-o x.md --format json", "--format means json"),
        ("--report nodir/r.html", "there is no folder nodir"),
        ("--report r.csv", "a report cannot be CSV"),
        ("--report r.pdf", "no format has this ending"),
        ("-o x.md --report x.md", "--output writes the same file"),
        (
            "--from report.json -o report.json",
            "would overwrite the profile",
        ),
    ] {
        let error = sandbox.refused(&format!("try fused-optimizer {options} -- touch started"));
        has(&error, &[says]);
        assert_eq!(sandbox.names(), ["net.sqlite", "report.json"], "{options}");
    }
}
