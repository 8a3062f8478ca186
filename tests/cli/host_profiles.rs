//! `--host`: profiles that profilers of the host wrote.

use crate::cli_sandbox::{Sandbox, has};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/host");

#[test]
fn longest_lines_of_host_profiles_are_listed() {
    let sandbox = Sandbox::new();
    let output = sandbox.fine(&format!(
        "net.sqlite --host {SEEDS}/seed.lprof --host {SEEDS}/seed.txt"
    ));
    has(
        &output,
        &[
            "## Where the host spends its time",
            "`seed.lprof`, written by line_profiler:",
            "| `train (job.py:12)` | - | 689 ms | 61 |",
            "in a separate run",
        ],
    );
}

#[test]
fn host_profiles_change_no_estimate() {
    let sandbox = Sandbox::new();
    let json = |options: &str| -> serde_json::Value {
        let text = sandbox.fine(&format!("net.sqlite --format json {options}"));
        serde_json::from_str(&text).unwrap()
    };
    let mut with = json(&format!("--host {SEEDS}/seed.lprof"));
    assert_eq!(with["host_profiles"][0]["profiler"], "line_profiler");
    with["host_profiles"] = serde_json::json!([]);
    assert_eq!(with, json(""));
}
