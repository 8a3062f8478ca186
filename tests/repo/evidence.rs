//! The rules named on the evidence and parity pages exist.

use crate::shared;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The pairs in `evidence/`: file and rule.
fn pairs() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("evidence")).unwrap();
    let mut pairs: Vec<(PathBuf, String)> = entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "py"))
        .filter(|p| p.file_name().is_some_and(|n| n != "harness.py"))
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
    files.push(root().join("evidence/harness.py"));
    let check =
        "import ast, sys\nfor path in sys.argv[1:]:\n    ast.parse(open(path).read(), path)\n";
    match Command::new("python3")
        .arg("-c")
        .arg(check)
        .args(&files)
        .output()
    {
        Err(error) => shared::skip(&format!("python3 cannot be started ({error})")),
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// The harness's summary of a report, in Python: the program, a profile, a rule with findings and one
/// without.
const SUMS: &str = r#"
import sys
sys.path.insert(0, "evidence")
import harness

program, profile, rule, other = sys.argv[1:]
promise = harness.promised(program, profile, rule)
assert promise["spoke"] and 0 < promise["low"] <= promise["high"], promise
assert other not in promise["others"] and len(promise["others"]) > 2, promise
silent = harness.promised(program, profile, other)
assert not silent["spoke"] and silent["high"] is None and rule in silent["others"], silent

said = lambda low, high: {"spoke": True, "low": low, "high": high, "others": []}
for promise, given_back, word in [
    (said(10.0, 20.0), 15.0, "yes"),
    (said(10.0, 20.0), 8.0, "yes"),       # within the noise of 3 % of 100
    (said(10.0, 20.0), 6.0, "less"),
    (said(10.0, 20.0), 24.0, "more"),
    (said(None, None), 15.0, "unpriced"),
    (silent, 15.0, "silent"),
]:
    assert harness.agreement(promise, 100.0, given_back) == word, (promise, given_back, word)
    assert word in harness.WORDS
"#;

#[test]
fn evidence_harness_reads_the_reports_of_the_program() {
    let run = Command::new("python3")
        .args(["-B", "-c", SUMS, env!("CARGO_BIN_EXE_pyprof-advise")])
        .args([
            "fixtures/net.sqlite",
            "tensor-cores/gemm-unaligned",
            "host/unused-gpus",
        ])
        .current_dir(root())
        .output();
    match run {
        Err(error) => shared::skip(&format!("python3 cannot be started ({error})")),
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

#[test]
fn evidence_page_is_that_rendered_by_the_harness() {
    let render = Command::new("python3")
        .args(["-B", "evidence/harness.py", "--render", "-"])
        .current_dir(root())
        .output();
    match render {
        Err(error) => shared::skip(&format!("python3 cannot be started ({error})")),
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let page = fs::read_to_string(root().join("docs/evidence.md")).unwrap();
            let want = String::from_utf8(output.stdout).unwrap();
            assert!(
                page == want,
                "docs/evidence.md is stale: python3 evidence/harness.py --render"
            );
        }
    }
}
