//! `--eager-trace`: kernels of graph replays get the operators of a recording without graphs.

use std::path::Path;

use serde_json::Value;

use crate::cli_sandbox::{Said, Sandbox, has, lacks};
use crate::shared;

/// A run with paths that may contain spaces.
fn run(profile: &Path, eager: &Path, more: &[&str]) -> Said {
    let paths = [profile.to_str().unwrap(), "--eager-trace"];
    let arguments = [&paths[..], &[eager.to_str().unwrap()], more].concat();
    crate::cli_sandbox::said(&mut Sandbox::bare().command_of(&arguments))
}

fn report(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap()
}

fn notes(report: &Value) -> String {
    let notes = report["notes"].as_array().unwrap().iter();
    let notes: Vec<&str> = notes.map(|note| note.as_str().unwrap()).collect();
    notes.join("\n")
}

#[test]
fn recording_without_graphs_names_the_kernels_of_replays() {
    let replayed = shared::profile("tl_sglang_decode.json.gz");
    let eager = shared::profile("tl_sglang_prefilldecode.json.gz");
    let Some((replayed, eager)) = replayed.zip(eager) else {
        return;
    };
    let said = run(&replayed, &eager, &["--format", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    lacks(&said.err, &["--eager-trace"]);
    let named = report(&said);
    has(
        &notes(&named),
        &[
            "Operators and layers of 544 of 544 kernels that graphs replay are those of tl_sglang_prefilldecode.json.gz",
        ],
    );
    let mut without_operator = named["unattributed"].as_array().unwrap().iter();
    assert!(without_operator.all(|row| row["reason"] != "graph_replay"));
    let layers = named["layers"].as_array().unwrap().iter();
    let names = layers.map(|row| row["name"].as_str().unwrap());
    let of_model = names.filter(|name| name.contains("Qwen3DecoderLayer_*"));
    assert!(of_model.count() > 3, "{:#?}", named["layers"]);

    // The gates see the findings that the names make possible.
    let gate = [
        "--select",
        "memory/decode-bandwidth",
        "--fail-on",
        "warning",
    ];
    assert_eq!(run(&replayed, &eager, &gate).code, 1);
}

#[test]
fn recording_of_another_model_is_refused() {
    let replayed = shared::profile("tl_sglang_decode.json.gz");
    let other = shared::profile("tl_h100_vit.json.gz");
    let Some((replayed, other)) = replayed.zip(other) else {
        return;
    };
    let said = run(&replayed, &other, &["--format", "json"]);
    // The profile itself is analyzed as without the option.
    assert_eq!(said.code, 0, "{}", said.err);
    let why =
        "of the kernels run in the same order in both, so they are no recordings of one model";
    has(
        &said.err,
        &[
            "warning: --eager-trace: tl_h100_vit.json.gz is not used: only",
            why,
        ],
    );
    let report = report(&said);
    has(&notes(&report), &[why]);
    assert_eq!(report["unattributed"][0]["reason"], "graph_replay");

    // The other way round there is nothing to name.
    let said = run(&other, &replayed, &["--format", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    has(
        &said.err,
        &["tl_sglang_decode.json.gz is not used: the profile has no kernels of graph replays"],
    );
}

#[test]
fn unreadable_recording_without_graphs_ends_with_status_2() {
    let sandbox = Sandbox::new();
    has(
        &sandbox.refused("net.sqlite --eager-trace missing.json"),
        &["missing.json: there is no such file"],
    );
    sandbox.write("empty.json", "{\"traceEvents\": []}");
    has(
        &sandbox.refused("net.sqlite --eager-trace empty.json"),
        &["empty.json"],
    );
    // The recording is an input, so the report must not replace it.
    sandbox.example("eager.json");
    has(
        &sandbox.refused("net.sqlite --eager-trace eager.json -o eager.json"),
        &["eager trace"],
    );
}
