//! The documents describe the program: generated pages are up to date, examples load and pass, commands
//! run.
//!
//! `PYPROF_ADVISE_BLESS=1 cargo test fresh` renews generated files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod examples;
mod markdown;
mod pages;
mod readme;

const BLESS: &str = "PYPROF_ADVISE_BLESS";

/// A generated page, and the function that generates it.
type Page = (&'static str, fn() -> String);

const GENERATED: &[Page] = &[
    ("docs/rules.md", pages::rules),
    ("docs/facts.md", pages::facts),
    ("docs/costs.md", pages::costs),
    ("docs/gpus.md", pages::gpus),
    ("docs/field-notes.md", pages::field_notes),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// Compares a file of the repository with its expected content; renews it if requested.
fn fresh(file: &str, want: &str) {
    let have = read(file);
    if have == want {
        return;
    }
    if std::env::var_os(BLESS).is_some_and(|v| v == "1") {
        fs::write(root().join(file), want).unwrap();
        return;
    }
    let line = (have.lines().zip(want.lines()))
        .take_while(|(a, b)| a == b)
        .count();
    panic!(
        "{file} is stale from line {}:\n  has:  {}\n  want: {}\nRenew it with `{BLESS}=1 cargo test fresh`.",
        line + 1,
        have.lines().nth(line).unwrap_or("(the end)"),
        want.lines().nth(line).unwrap_or("(the end)"),
    );
}

/// Runs the program in a folder, without a terminal.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The output of a run that must succeed.
fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "pyprof-advise {}\n{}{}",
        arguments.join(" "),
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A folder with every file that the commands of the documents name: the example profile, the examples
/// as files, a custom GPU.
fn playground(documents: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::copy(root().join("fixtures/net.sqlite"), at.join("net.sqlite")).unwrap();
    fs::create_dir(at.join("traces")).unwrap();
    for rank in [
        "rank0.sqlite",
        "rank1.sqlite",
        "traces/rank0.sqlite",
        "before.sqlite",
        "after.sqlite",
    ] {
        fs::copy(at.join("net.sqlite"), at.join(rank)).unwrap();
    }
    let board = said(at, &["gpus", "show", "v100"]);
    fs::write(at.join("my-board.toml"), board).unwrap();
    for document in documents {
        for (path, text) in examples::files(&read(document)) {
            let path: PathBuf = at.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    folder
}

#[test]
fn generated_pages_are_fresh() {
    for (file, make) in GENERATED {
        fresh(file, &make());
    }
}

#[test]
fn generated_pages_render_without_mistakes() {
    for (file, make) in GENERATED {
        let complaints = markdown::complaints(&make());
        assert!(complaints.is_empty(), "{file}:\n{}", complaints.join("\n"));
    }
}

#[test]
fn handwritten_pages_render_without_mistakes() {
    for file in [
        "CONTRIBUTING.md",
        "README.md",
        "docs/capture.md",
        "docs/ci.md",
        "docs/clusters.md",
        "docs/configuration.md",
        "docs/diff.md",
        "docs/formats.md",
        "docs/glossary.md",
        "docs/host.md",
        "docs/index.md",
        "docs/measuring.md",
        "docs/own-operators.md",
        "docs/performance.md",
        "docs/pyprof.md",
        "docs/ranks.md",
        "docs/repro.md",
        "docs/robustness.md",
        "docs/try.md",
        "docs/usage.md",
        "docs/evidence.md",
        "docs/pyprof-differences.md",
        "docs/rules-left-out.md",
        "docs/writing-rules.md",
    ] {
        let complaints = markdown::complaints(&read(file));
        assert!(complaints.is_empty(), "{file}:\n{}", complaints.join("\n"));
    }
}

#[test]
fn every_rule_fact_operator_and_gpu_is_listed() {
    let [rules, facts, costs, gpus] = [0, 1, 2, 3].map(|i: usize| GENERATED[i].1());
    let set = pyprof_advise::judge::RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    for rule in set.rules() {
        assert!(
            rules.contains(&format!("\n### {}\n", rule.id)),
            "{}",
            rule.id
        );
    }
    for fact in pyprof_advise::facts::all() {
        assert!(
            facts.contains(&format!("\n| `{}` | ", fact.name)),
            "{}",
            fact.name
        );
    }
    for name in pyprof_advise::cost::ops::table().flat_map(|e| e.names) {
        assert!(costs.contains(&format!("`{name}`")), "{name}");
    }
    for spec in pyprof_advise::gpu::select::list() {
        assert!(
            gpus.contains(&format!("\n| `{}` | ", spec.gpu.id)),
            "{}",
            spec.gpu.id
        );
    }
}
