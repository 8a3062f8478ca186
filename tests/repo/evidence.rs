//! The rules named on the evidence and parity pages exist.

use crate::shared;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pyprof_advise::base::diag::Source;
use pyprof_advise::gpu::{calibration, load};
use pyprof_advise::judge::{CATEGORIES, RuleSet};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn ids() -> BTreeSet<String> {
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    rules.rules().iter().map(|r| r.id.clone()).collect()
}

/// Inline code that has the form of a rule's id.
fn named(text: &str) -> BTreeSet<String> {
    let spans = text.split('`').skip(1).step_by(2);
    spans
        .filter(|span| {
            let category = span.split_once('/').map(|(category, _)| category);
            category.is_some_and(|c| CATEGORIES.iter().any(|(name, _)| *name == c))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn rules_on_the_parity_page_exist() {
    let page = fs::read_to_string(root().join("docs/rules-left-out.md")).unwrap();
    let named = named(&page);
    assert!(named.len() > 20, "{named:?}");
    let known = ids();
    let missing: Vec<&String> = named.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn lines_of_the_parity_page_name_a_rule_or_a_reason() {
    let page = fs::read_to_string(root().join("docs/rules-left-out.md")).unwrap();
    let mut rows = 0;
    for line in page
        .lines()
        .filter(|l| l.starts_with("| ") && !l.starts_with("| source") && !l.starts_with("| ---"))
    {
        let ours = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert_eq!(line.matches(" | ").count(), 2, "three columns: {line}");
        let reason = (ours
            .strip_prefix("left out")
            .or(ours.strip_prefix("none: ")))
        .map(|why| why.split_whitespace().count());
        assert!(reason.is_none_or(|words| words >= 2), "no reason: {line}");
        assert!(reason.is_some() || !named(ours).is_empty(), "{line}");
        rows += 1;
    }
    assert!(rows >= 120, "{rows}");
}

/// The programs in `evidence/` that are no pairs.
const PROGRAMS: [&str; 3] = ["harness.py", "program.py", "calibrate.py"];

/// The pairs in `evidence/`: file and rule.
fn pairs() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("evidence")).unwrap();
    let mut pairs: Vec<(PathBuf, String)> = entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "py"))
        .filter(|p| !PROGRAMS.iter().any(|name| p.ends_with(name)))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let rule = text
                .lines()
                .find_map(|l| l.strip_prefix("RULE = \"")?.strip_suffix('"'));
            let rule = rule.unwrap_or_else(|| panic!("{} names no rule", path.display()));
            (path.clone(), rule.to_owned())
        })
        .collect();
    pairs.sort();
    pairs
}

#[test]
fn evidence_pairs_are_about_existing_rules() {
    let pairs = pairs();
    assert!(pairs.len() >= 12, "{} pairs", pairs.len());
    let known = ids();
    for (path, rule) in &pairs {
        assert!(known.contains(rule), "{}: no rule `{rule}`", path.display());
        let text = fs::read_to_string(path).unwrap();
        for part in ["def build(", "def before(", "def after(", "SETTINGS = "] {
            assert!(text.contains(part), "{} has no `{part}`", path.display());
        }
    }
    let page = fs::read_to_string(root().join("docs/evidence.md")).unwrap();
    for (path, rule) in &pairs {
        let stem = path.file_stem().unwrap().to_string_lossy();
        assert!(
            page.contains(&format!("`{rule}`")) && page.contains(&*stem),
            "docs/evidence.md lacks {stem}"
        );
    }
}

#[test]
fn evidence_scripts_compile() {
    let mut files: Vec<PathBuf> = pairs().into_iter().map(|(path, _)| path).collect();
    files.extend(PROGRAMS.map(|name| root().join("evidence").join(name)));
    let check =
        "import ast, sys\nfor path in sys.argv[1:]:\n    ast.parse(open(path).read(), path)\n";
    let mut arguments = vec!["-c", check];
    arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
    if let Some(output) = python3(&arguments) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

/// A measured pair as the harness sees it, in Python: what `try` says, and the report that it was made from.
const ROWS: &str = r#"
import sys
sys.path.insert(0, "evidence")
import harness

for low, high, saving, noise, fired, word in [
    (10.0, 20.0, 15.0, 1.0, True, "yes"),
    (10.0, 20.0, 8.0, 3.0, True, "yes"),       # the noise reaches into the range
    (10.0, 20.0, 6.0, 3.0, True, "less"),
    (10.0, 20.0, 24.0, 3.0, True, "more"),
    (None, None, 15.0, 1.0, True, "unpriced"),
    (10.0, 20.0, 15.0, None, True, "unknown"),
    (None, None, 15.0, 1.0, False, "silent"),
    (None, None, 1.0, 1.0, False, "nothing"),
    (None, None, 1.0, None, False, "silent"),
]:
    assert harness.agreement(low, high, saving, noise, fired) == word, word
    assert word in harness.WORDS

# Of 8 to 16 ms of GPU time in 2 steps, half is counted elsewhere; a step becomes shorter by 2 to 4 ms of it.
saving = {"kind": "gpu", "low_ns": 8e6, "high_ns": 16e6, "counted_low_ns": 4e6, "counted_high_ns": 8e6}
saving |= {"step_low_ns": 2e6, "step_high_ns": 4e6}
summary = {"steps": 2, "devices": 1, "step_weight": 0.5, "step_ns": 1e7}
report = {"findings": [{"rule": "a", "saving": saving}, {"rule": "b", "saving": None}], "minor": [], "summary": summary}
assert harness.estimated("a", report) == (4e6, 8e6)
assert harness.estimated("b", report) == (None, None)
counted_elsewhere = {**saving, "counted_low_ns": 0.0, "counted_high_ns": 0.0, "step_low_ns": 0.0, "step_high_ns": 0.0}
assert harness.alone(counted_elsewhere, summary) == [2e6, 4e6]

# Student's 95 % quantile of four degrees of freedom times the standard error.
assert abs(harness.half_width([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) - 2.776 * (2 / 3) ** 0.5) < 1e-9
assert harness.half_width([1.0, 1.0], [2.0, 2.0]) == 0.0

side = lambda ns: {"step_ns": ns, "repetitions_ns": [ns]}
trial = {
    "versions": {"torch": "2.9"}, "untreated": side(100.0),
    "treatments": [{
        "treated": side(70.0), "noise": 0.02, "outcome": "faster", "check": {"text": "same"},
        "estimate_low_ns": 40.0, "estimate_high_ns": 50.0,
    }],
}
report = {"findings": [{"rule": "precision/tf32-off"}], "minor": []}
harness.environment = lambda versions: {"gpu": "X", "driver": "1", "torch": versions["torch"], "date": "2026-01-01"}
row = harness.trial_row("tf32", "precision/tf32-off", trial, report)
assert (row["measured_ns"], row["noise_ns"], row["agree"]) == (30, 2, "less"), row
assert "precision/tf32-off" in harness.missed([row])[0]
silent = harness.trial_row("tf32", "precision/amp-off", trial, report)
assert silent["agree"] == "silent" and silent["fired_instead"] == ["precision/tf32-off"], silent
"#;

/// Runs the harness, or code of it; `None` without a Python.
fn python3(arguments: &[&str]) -> Option<Output> {
    let run = Command::new("python3")
        .arg("-B")
        .args(arguments)
        .current_dir(root())
        .output();
    match run {
        Err(error) => {
            shared::skip(&format!("python3 cannot be started ({error})"));
            None
        }
        Ok(output) => Some(output),
    }
}

#[test]
fn evidence_rows_compare_the_estimate_with_the_measured_range() {
    if let Some(output) = python3(&["-c", ROWS]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

/// A results file with one measurement, as the harness writes them.
fn made_up(folder: &Path, agree: &str) -> PathBuf {
    let file = folder.join("results.json");
    let row = serde_json::json!([{
        "pair": "vocabulary", "rule": "tensor-cores/gemm-unaligned", "how": "try", "gpu": "NVIDIA Made-Up 1",
        "driver": "1.2", "torch": "9.9", "date": "2031-02-03", "before_ns": 20e6, "after_ns": 4e6,
        "predicted_low_ns": 8e6, "predicted_high_ns": 15e6, "measured_ns": 16e6, "noise_ns": 2e5,
        "outcome": "faster", "same": "same within 1 %", "agree": agree,
    }]);
    fs::write(&file, row.to_string()).unwrap();
    file
}

#[test]
fn evidence_that_an_estimate_misses_fails_the_harness() {
    let folder = tempfile::tempdir().unwrap();
    for (agree, status) in [("yes", 0), ("more", 1), ("silent", 1)] {
        let file = made_up(folder.path(), agree);
        let file = file.to_str().unwrap();
        let Some(output) = python3(&["evidence/harness.py", "--check", "--results", file]) else {
            return;
        };
        assert_eq!(output.status.code(), Some(status), "{agree}");
        let out = String::from_utf8_lossy(&output.stdout);
        let names_it =
            out.contains("tensor-cores/gemm-unaligned") && out.contains("16 ms +- 0.2 ms");
        assert_eq!(names_it, status == 1, "{out}");
        let page = python3(&["evidence/harness.py", "--render", "-", "--results", file]).unwrap();
        let page = String::from_utf8(page.stdout).unwrap();
        assert!(
            page.contains(
                "| NVIDIA Made-Up 1 | 1.2 | 9.9 | 2031-02-03 | 20 ms | 4 ms | 8 ms to 15 ms |"
            ),
            "{page}"
        );
    }
}

#[test]
fn evidence_is_cited_by_findings_and_pages_of_rules() {
    let folder = tempfile::tempdir().unwrap();
    let file = made_up(folder.path(), "yes");
    let said = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .args(arguments)
            .env("PYPROF_ADVISE_RESULTS", &file)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let sentence = "In a test program of pyprof-advise, on NVIDIA Made-Up 1 with torch 9.9 (2031-02-03), the fix saved \
                    16.0 ms ± 200 us of a step of 20.0 ms; 8.00 ms to 15.0 ms were estimated (docs/evidence.md, \
                    `vocabulary`).";
    let report: serde_json::Value =
        serde_json::from_str(&said(&["fixtures/net.sqlite", "--format", "json"])).unwrap();
    let mut citing = 0;
    for finding in report["findings"].as_array().unwrap() {
        let cited = finding["measured_elsewhere"].as_array().unwrap();
        let is_measured = finding["rule"] == "tensor-cores/gemm-unaligned";
        assert_eq!(cited.len(), usize::from(is_measured), "{finding}");
        if is_measured {
            assert_eq!(cited[0], sentence);
            citing += 1;
        }
    }
    assert!(citing > 0);
    for format in ["markdown", "html"] {
        let text = said(&["fixtures/net.sqlite", "--format", format]);
        assert!(text.contains("on NVIDIA Made-Up 1 with torch"), "{format}");
    }
    let page = said(&["rules", "explain", "tensor-cores/gemm-unaligned"]);
    assert!(
        page.contains("| steps | NVIDIA Made-Up 1 | 1.2 | 9.9 | 2031-02-03 | 20.0 ms |"),
        "{page}"
    );
    assert!(!said(&["rules", "explain", "precision/tf32-off"]).contains("Made-Up"));
}

/// Every pair by the whole harness, without a GPU: recorded, tried and compared.
fn rehearse(names: &[String], more: &[&str]) -> Option<String> {
    let python = shared::python()?;
    let output = Command::new(python)
        .args([
            "-B",
            "-W",
            "ignore",
            "evidence/harness.py",
            "--device",
            "cpu",
        ])
        .args(["--advise", env!("CARGO_BIN_EXE_pyprof-advise")])
        .args(more)
        .args(names)
        .env("OMP_NUM_THREADS", "1")
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn stems() -> Vec<String> {
    let stem = |path: PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    pairs().into_iter().map(|(path, _)| stem(path)).collect()
}

#[test]
fn evidence_pairs_compute_the_same_before_and_after() {
    if let Some(out) = rehearse(&[], &["--dry-run"]) {
        for stem in stems() {
            assert!(out.contains(&format!("{stem}: both run")), "{stem}: {out}");
        }
    }
}

/// Half of the pairs are tried by one thread, half by another, because each starts programs several times.
#[test]
fn evidence_pairs_are_recorded_and_tried_without_a_gpu() {
    let stems = stems();
    std::thread::scope(|scope| {
        for half in stems.chunks(stems.len().div_ceil(2)) {
            scope.spawn(move || {
                let Some(out) = rehearse(half, &[]) else {
                    return;
                };
                for stem in half {
                    assert!(
                        out.contains(&format!("{stem}: before and after were recorded and tried")),
                        "{out}"
                    );
                }
            });
        }
    });
}

#[test]
fn evidence_page_is_fresh() {
    let Some(output) = python3(&["evidence/harness.py", "--render", "-"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let page = fs::read_to_string(root().join("docs/evidence.md")).unwrap();
    let want = String::from_utf8(output.stdout).unwrap();
    if page != want && std::env::var_os("PYPROF_ADVISE_BLESS").is_some_and(|v| v == "1") {
        fs::write(root().join("docs/evidence.md"), want).unwrap();
        return;
    }
    assert!(
        page == want,
        "docs/evidence.md is stale: `PYPROF_ADVISE_BLESS=1 cargo test fresh`"
    );
}

/// Runs `evidence/calibrate.py` without a GPU on a copy of the calibrations.
fn calibrate(python: &Path, folder: &Path, more: &[&str]) -> Output {
    Command::new(python)
        .args([
            "-B",
            "evidence/calibrate.py",
            "--dry-run",
            "--device",
            "cpu",
        ])
        .args(["--board", "t4", "--folder"])
        .arg(folder)
        .args(more)
        .current_dir(root())
        .output()
        .unwrap()
}

#[test]
fn calibration_entries_are_written_in_the_form_that_is_read() {
    let Some(python) = shared::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(root().join("calibration")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    // Twice, because the second run replaces the entries of the first.
    for _ in 0..2 {
        let output = calibrate(&python, folder.path(), &["--write"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let text = fs::read_to_string(folder.path().join("turing.toml")).unwrap();
    let written = calibration::parse_source(&Source::new("turing.toml", &*text))
        .unwrap_or_else(|complaints| panic!("{complaints}"));
    let built_in = calibration::of_architecture("Turing").unwrap();
    assert_eq!(
        written.constants.keys().collect::<Vec<_>>(),
        built_in.constants.keys().collect::<Vec<_>>()
    );
    for (name, constant) in &written.constants {
        assert_eq!(constant.usual, built_in.constants[name].usual, "{name}");
        let own = &constant.boards["t4"];
        assert!(
            own.source.starts_with("evidence/calibrate.py on 20"),
            "{own:?}"
        );
        assert!(own.source.contains("no measurement"), "{own:?}");
    }
    let again = calibrate(&python, folder.path(), &["--reachable"]);
    let table = String::from_utf8(again.stdout).unwrap();
    let board = fs::read_to_string(root().join("gpu_specs/t4.toml")).unwrap();
    let spec = load::parse_source(
        "mine",
        &Source::new("mine.toml", format!("{board}\n{table}")),
    )
    .unwrap_or_else(|complaints| panic!("{complaints}"));
    assert_ne!(
        spec.gpu.reachable.math,
        built_in.constants["math"].usual.value
    );
}

#[test]
fn calibrations_are_not_written_by_a_dry_run() {
    let Some(python) = shared::python() else {
        return;
    };
    let output = calibrate(&python, &root().join("calibration"), &["--write"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a dry run measures nothing"), "{said}");
}
