//! Rules on what the host does fire on recordings of small jobs with a fault, and not on those of the repaired jobs.
//!
//! `fixtures/host/faults` has the jobs and the recordings.

use std::collections::BTreeMap;

use crate::cli_sandbox::Sandbox;

const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/host/faults");

/// The messages of all findings, by rule.
fn findings(profile: &str, options: &str) -> BTreeMap<String, String> {
    let text = Sandbox::new().fine(&format!("{profile} {options} --format json"));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let lists = ["findings", "minor"].into_iter();
    let findings = lists.flat_map(|list| report[list].as_array().into_iter().flatten());
    let row = |finding: &serde_json::Value| {
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        (text("rule"), text("message"))
    };
    findings.map(row).collect()
}

/// Checks that a rule fires on the recording of a fault with a message that contains `part`, and not on that of the
/// repaired job.
fn fires_until_repaired(fault: &str, options: impl Fn(&str) -> String, rule: &str, part: &str) {
    let of = |state: &str| {
        let profile = format!("{FAULTS}/{fault}.{state}.pt.trace.json.gz");
        findings(&profile, &options(state))
    };
    let (with, without) = (of("fault"), of("repaired"));
    let message = with.get(rule).unwrap_or_else(|| panic!("{rule}: {with:?}"));
    assert!(message.contains(part), "{message}");
    assert!(!without.contains_key(rule), "{rule}: {without:?}");
}

fn alone(_: &str) -> String {
    String::new()
}

#[test]
fn decoding_in_the_training_process_is_found() {
    let part = "decoded or augmented samples: ";
    fires_until_repaired("decode", alone, "host/slow-decoding", part);
    let part = "`decode (job.py:35)`";
    fires_until_repaired("decode", alone, "host/slow-decoding", part);
}

#[test]
fn decoding_in_workers_is_found_with_py_spy() {
    let options = |state: &str| format!("--host {FAULTS}/workers.{state}.txt");
    let part = "`Images.decode (job.py:38)` (py-spy";
    fires_until_repaired("workers", options, "host/slow-decoding", part);
    let alone = findings(&format!("{FAULTS}/workers.fault.pt.trace.json.gz"), "");
    assert!(!alone.contains_key("host/slow-decoding"), "{alone:?}");
    assert!(alone.contains_key("host/data-loading"), "{alone:?}");
}

#[test]
fn loaders_without_workers_are_found() {
    let part = "no worker processes";
    fires_until_repaired("in_process", alone, "host/loader-in-training-process", part);
}

#[test]
fn tokenizing_in_the_loop_is_found() {
    let part = "most of it in `tokenize (job.py:";
    fires_until_repaired("tokenize", alone, "host/tokenizing-in-the-loop", part);
}

#[test]
fn checkpoints_in_each_step_are_found() {
    let part = "most of it in `checkpoint (job.py:";
    fires_until_repaired("checkpoint", alone, "host/checkpoint-in-the-loop", part);
}

#[test]
fn histograms_in_each_step_are_found() {
    let part = "most of it in `log_metrics (job.py:";
    fires_until_repaired("logging", alone, "host/logging-in-the-loop", part);
}

#[test]
fn garbage_collections_in_each_step_are_found() {
    let part = "most of it in `collect (job.py:";
    fires_until_repaired("collect", alone, "host/garbage-collection", part);
}

#[test]
fn loops_in_python_between_launches_are_found() {
    let part = "`scale_boxes (job.py:";
    fires_until_repaired("boxes", alone, "host/python-bound", part);
}

#[test]
fn numbers_that_are_read_back_are_found_with_their_line() {
    let part = "after `aten::_local_scalar_dense` had waited for one number";
    fires_until_repaired("read_back", alone, "host/scalar-read-back", part);
    let part = "in `weight_norm (job.py:153)`";
    fires_until_repaired("read_back", alone, "host/scalar-read-back", part);
}

#[test]
fn shapes_that_depend_on_data_are_found_with_their_line() {
    let part = "after `aten::nonzero` had waited for the size of its result";
    fires_until_repaired("select", alone, "host/data-dependent-shape", part);
    let part = "in `positive_sum (job.py:177)`";
    fires_until_repaired("select", alone, "host/data-dependent-shape", part);
}

#[test]
fn too_few_workers_are_found() {
    let part = "1 worker worked without a pause on ";
    fires_until_repaired("few_workers", alone, "host/too-few-workers", part);
}

#[test]
fn workers_with_more_threads_than_cpus_are_found() {
    let part = "8 worker processes could have used ";
    fires_until_repaired("oversubscribed", alone, "host/oversubscribed-workers", part);
}

#[test]
fn launching_threads_without_a_cpu_are_found() {
    let part = "was ready to run while other threads had the CPUs (1 for this process)";
    fires_until_repaired("preempted", alone, "host/preempted", part);
}

/// What a module does when it is imported is in no recording of the GPU, so any profile serves.
#[test]
fn slow_imports_are_found() {
    let of = |state: &str| {
        findings(
            "net.sqlite",
            &format!("--host {FAULTS}/imports.{state}.txt"),
        )
    };
    let message = of("fault").remove("host/slow-imports").unwrap();
    assert!(message.contains("in `table` itself"), "{message}");
    assert!(!of("repaired").contains_key("host/slow-imports"));
}

#[test]
fn classes_of_the_user_take_precedence() {
    let sandbox = Sandbox::new();
    let classes = "[[class]]\nname = \"scaling boxes\"\nfunctions = [\"job.py:scale_boxes\"]\n";
    sandbox.write("ours.toml", classes);
    let output = sandbox.fine(&format!(
        "{FAULTS}/boxes.fault.pt.trace.json.gz --classes ours.toml"
    ));
    assert!(
        output.contains("| Scaling boxes: `scale_boxes (job.py:"),
        "{output}"
    );
}

/// Each saving is a part of the idle time that the trace itself shows.
#[test]
fn savings_are_no_more_than_reliable_idle_time() {
    let profile = format!("{FAULTS}/checkpoint.fault.pt.trace.json.gz");
    let text = Sandbox::new().fine(&format!("{profile} --format json"));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = report["findings"].as_array().unwrap().iter();
    let mut found = found.filter(|f| f["rule"] == "host/checkpoint-in-the-loop");
    let finding = found.next().unwrap();
    let saving = finding["saving"]["high_ns"].as_f64().unwrap();
    let idle = finding["time_ns"].as_f64().unwrap();
    assert!(saving > 0.5 * idle && saving <= idle, "{saving} of {idle}");
}
