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
            "| Function or line | Kind | Time, callees included | Calls |",
            "| `train (job.py:12)` | - | 689 ms | 61 |",
            "The time of a line includes the functions it calls.",
            "It has no clock, so it names lines, but explains no gap and changes no estimate.",
        ],
    );
}

#[test]
fn a_host_profile_in_place_of_a_profile_is_named() {
    let sandbox = Sandbox::new();
    for (seed, profiler) in [
        ("seed.prof", "cProfile"),
        ("seed.lprof", "line_profiler"),
        ("seed.scalene.json", "Scalene"),
    ] {
        let said = sandbox.refused(&format!("{SEEDS}/{seed}"));
        has(
            &said,
            &[
                &format!("found one of the host, written by {profiler}"),
                &format!("`--host {SEEDS}/{seed}`"),
            ],
        );
    }
}

#[test]
fn actions_that_enclose_a_step_are_left_out() {
    let table = "|  Action  |  Mean duration (s)  |  Num calls  |  Total time (s)  |  Percentage %  |\n\
                 |  Total  |  -  |  9  |  0.7  |  100 %  |\n\
                 |  run_training_epoch  |  0.69  |  1  |  0.69  |  95  |\n\
                 |  run_training_batch  |  0.085  |  8  |  0.68  |  93  |\n\
                 |  [LightningModule]M.optimizer_step  |  0.084  |  8  |  0.67  |  93  |\n\
                 |  [_TrainingEpochLoop].train_dataloader_next  |  0.001  |  8  |  0.01  |  1  |\n";
    let sandbox = Sandbox::new();
    sandbox.write("simple.txt", table);
    let whole = sandbox.fine("net.sqlite --host simple.txt");
    has(
        &whole,
        &[
            "| Function or line | Kind | Time, callees included | Calls |",
            "| `[LightningModule]M.optimizer_step` | - | 670 ms | 8 |",
        ],
    );
    assert!(!whole.contains("run_training_"), "{whole}");
    // Without the parts of a batch, the whole is all there is.
    let outer: Vec<&str> = table
        .lines()
        .filter(|line| !line.contains("M.opt"))
        .collect();
    sandbox.write("outer.txt", &outer.join("\n"));
    let output = sandbox.fine("net.sqlite --host outer.txt");
    has(&output, &["| `run_training_epoch` | - | 690 ms | 1 |"]);
    // Times of functions without those that they call do not overlap.
    let own = sandbox.fine(&format!("net.sqlite --host {SEEDS}/seed.prof"));
    assert!(!own.contains("callees included"), "{own}");
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

#[test]
fn classes_are_used_by_comparisons_and_tables() {
    let sandbox = Sandbox::new();
    let of = |state: &str| format!("{HOST}/faults/checkpoint.{state}.pt.trace.json.gz");
    let classes = "[[class]]\nname = \"logging\"\nbuiltins = [\"write_record\"]\n\
                   functions = [\"torch/serialization.py:save\", \"torch/serialization.py:_save\"]\n";
    sandbox.write("ours.toml", classes);
    let compared = |options: &str| {
        sandbox.fine(&format!(
            "diff {} {} --format json {options}",
            of("fault"),
            of("repaired")
        ))
    };
    let rule = "host/logging-in-the-loop";
    assert!(compared("").contains("host/checkpoint-in-the-loop"));
    assert!(!compared("").contains(rule));
    assert!(compared("--classes ours.toml").contains(rule));
    sandbox.fine(&format!(
        "export {} --classes ours.toml -o table.csv",
        of("fault")
    ));
    sandbox.write("wrong.toml", "[[class]]\nname = 3\n");
    for command in ["diff net.sqlite net.sqlite", "export net.sqlite"] {
        let told = sandbox.refused(&format!("{command} --classes wrong.toml"));
        assert!(told.contains("wrong.toml:2:8"), "{told}");
    }
}

const HOST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/host");

fn json(arguments: &str) -> serde_json::Value {
    let text = Sandbox::new().fine(&format!("{arguments} --format json"));
    serde_json::from_str(&text).unwrap()
}

/// Each step of the recorded job decodes for 0.2 s (lines 17 to 19) and sleeps for 0.1 s (line 25).
#[test]
fn samples_with_a_clock_divide_the_gaps() {
    let report = json(&format!(
        "{HOST}/scalene.pt.trace.json.gz --host {HOST}/scalene.json"
    ));
    assert_eq!(report["host_profiles"][0]["alignment"], "aligned");
    let rows = report["host"]["rows"].as_array().unwrap();
    let whole = report["host"]["ns"].as_f64().unwrap();
    let share = |lines: &[u32]| {
        let of_lines = rows.iter().filter(|row| {
            let name = row["name"].as_str().unwrap();
            lines.iter().any(|line| name == format!("job.py:{line}"))
        });
        let (ns, samples) = of_lines.fold((0.0, 0), |(ns, samples), row| {
            assert_eq!(row["evidence"], "samples", "{row}");
            let count = row["samples"].as_u64().unwrap();
            (ns + row["ns"].as_f64().unwrap(), samples + count)
        });
        assert!(samples >= 10, "{samples} samples");
        ns / whole
    };
    let (decode, wait) = (share(&[17, 18, 19]), share(&[25]));
    let part = decode / (decode + wait);
    assert!(
        (0.55..0.75).contains(&part),
        "decode: {decode}, wait: {wait}"
    );
    // What follows the last sample in a gap is not explained.
    assert!(decode + wait > 0.75, "decode: {decode}, wait: {wait}");
    let sum: f64 = rows.iter().map(|row| row["ns"].as_f64().unwrap()).sum();
    assert!((sum - whole).abs() <= rows.len() as f64, "{sum} of {whole}");
}

#[test]
fn profiles_of_another_time_only_name_lines() {
    let other = format!("{HOST}/mprof.pt.trace.json.gz");
    let mut with = json(&format!("{other} --host {HOST}/scalene.json"));
    assert_eq!(with["host_profiles"][0]["alignment"], "other_time");
    assert_eq!(with["host"], serde_json::Value::Null);
    let note = with["host_profiles"][0]["note"].as_str().unwrap();
    assert!(note.contains("recorded at another time"), "{note}");
    with["host_profiles"] = serde_json::json!([]);
    assert_eq!(with, json(&other));
}

/// Each step of the recorded job keeps 4 MiB.
#[test]
fn growth_of_memory_is_given_per_step() {
    let report = json(&format!(
        "{HOST}/mprof.pt.trace.json.gz --host {HOST}/mprof.dat"
    ));
    let memory = &report["host_profiles"][0]["memory"];
    let growth = memory["per_step_bytes"].as_f64().unwrap() / 1_048_576.0;
    assert!((2.5..5.5).contains(&growth), "{growth} MiB");
    let other = json(&format!(
        "{HOST}/scalene.pt.trace.json.gz --host {HOST}/mprof.dat"
    ));
    let memory = &other["host_profiles"][0]["memory"];
    assert_eq!(memory["per_step_bytes"], serde_json::Value::Null);
    assert!(memory["peak_bytes"].as_f64() > Some(0.0));
}
