//! `--why`: explains every outcome of a rule.

use std::path::Path;
use std::process::Command;

/// Status, standard output and standard error of `--why` with further arguments on a profile.
fn ask(profile: &str, arguments: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(profile))
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn why_reports_every_outcome_of_a_rule() {
    for (arguments, want) in [
        ("--why host/sync-stalls", "from rules/host/sync-stalls.toml"),
        ("--why tensor-cores/gemm-unaligned", "a finding:\n  "),
        (
            "--why precision/bf16-before-ampere",
            "silent: `when` is true nowhere in this profile",
        ),
        (
            "--why tensor-cores/gemm-unaligned --set tensor-cores/gemm-unaligned.min_share=0.99",
            "silent: `require` is not met\n",
        ),
        (
            "--why tensor-cores/gemm-unaligned --set tensor-cores/gemm-unaligned.min_share=0.99",
            "    found.gpu_share >= params.min_share: false",
        ),
        (
            "--why tensor-cores/gemm-unaligned --ignore tensor-cores",
            "deselected by --select or --ignore; with all rules selected:\n\ntensor-cores/gemm-unaligned",
        ),
        (
            "--why tensor-cores/kernel-misaligned",
            "covered by another finding:\n  tensor-cores/gemm-unaligned at ",
        ),
    ] {
        let (code, said, error) = ask("fixtures/net.sqlite", arguments);
        assert_eq!(code, Some(0), "{error}");
        assert!(said.contains(want), "{arguments}: {want}\n{said}");
    }
}

#[test]
fn printed_suppression_hides_the_finding() {
    let profile = "fixtures/net.sqlite";
    let (_, said, _) = ask(profile, "--why tensor-cores/gemm-unaligned");
    let (_, printed) = said.split_once("a configuration file:\n").unwrap();
    let lines: Vec<&str> = printed.lines().take(4).map(str::trim).collect();
    assert_eq!(lines[0], "[[suppress]]");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, lines.join("\n")).unwrap();
    let config = format!("--config {}", config.display());
    let (code, report, error) = ask(profile, &format!("{config} --format json -q"));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    assert!(
        findings
            .iter()
            .all(|f| f["rule"] != "tensor-cores/gemm-unaligned")
    );
    assert_eq!(report["suppressions"][0]["state"], "used");
}

#[test]
fn unknown_ids_get_a_suggestion_before_the_profile_is_read() {
    for (typed, near) in [
        ("tensor-cores/amp-off", "precision/amp-off"),
        ("host/sync-stall", "host/sync-stalls"),
    ] {
        let (code, _, error) = ask("fixtures/nowhere.sqlite", &format!("--why {typed}"));
        assert_eq!(code, Some(2));
        assert!(
            error.contains(&format!("did you mean `{near}`?")),
            "{error}"
        );
    }
}
