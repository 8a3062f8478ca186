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
        ("--why tensor-cores/gemm-unaligned", "fires:\n  "),
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
            "dropped, in favor of:\n  tensor-cores/gemm-unaligned at ",
        ),
    ] {
        let (code, said, error) = ask("fixtures/net.sqlite", arguments);
        assert_eq!(code, Some(0), "{error}");
        assert!(said.contains(want), "{arguments}: {want}\n{said}");
    }
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
