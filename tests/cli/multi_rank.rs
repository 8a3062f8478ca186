//! Several profiles as one job: ranks are named, compared and reported together; profiles read at once
//! and reports merged later give the same result.

use crate::shared;

use crate::cli_sandbox::ranks::{Step, Trace, job};
use crate::cli_sandbox::{Said, Sandbox, has, said};
use serde_json::{Value, json};

impl Sandbox {
    fn call(&self, arguments: &[&str]) -> Said {
        self.call_with(arguments, "2")
    }

    fn call_with(&self, arguments: &[&str], threads: &str) -> Said {
        let mut command = self.command_of(arguments);
        said(command.env("RAYON_NUM_THREADS", threads))
    }

    fn good(&self, arguments: &[&str]) -> String {
        let said = self.call(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
        said.out
    }

    fn reported(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--format", "json"]].concat();
        serde_json::from_str(&self.good(&arguments)).unwrap()
    }
}

fn comparison(report: &Value) -> String {
    let sentences = report["job"]["comparison"].as_array().unwrap();
    let sentences: Vec<&str> = sentences.iter().map(|s| s.as_str().unwrap()).collect();
    sentences.join("\n")
}

#[test]
fn rank_that_computes_longer_is_the_straggler() {
    let sandbox = job([[(1000, 0), (1000, 0), (1600, 0), (1000, 0)]; 3]);
    let report = sandbox.reported(&["."]);
    let job = &report["job"];
    assert_eq!((&job["straggler"], &job["files"]), (&json!(2), &json!(4)));
    // The first collective of the capture is left out.
    assert_eq!(job["waits"]["compared"], 2);
    assert_eq!(job["waits"]["transfer_ns"], 200_000.0);
    assert_eq!(job["waits"]["first"]["mean_ns"], 450_000.0);
    let waited: Vec<f64> = report["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["waited_ns"].as_f64().unwrap())
        .collect();
    assert_eq!(waited, [1.2e6, 1.2e6, 0.0, 1.2e6]);
    assert_eq!(report["ranks"][2]["caused_wait_ns"], 3.6e6);
    has(
        &comparison(&report),
        &[
            "Steps take equally long on all ranks",
            "Rank 2 is the straggler: the other ranks wait",
            "100 % of all waiting",
            "It computes 1.60 ms per step with as many kernels, the others 1.00 ms on average",
        ],
    );
    has(
        report["verdict"][0].as_str().unwrap(),
        &["Rank 2 is the straggler: the other ranks wait"],
    );
    let text = sandbox.good(&["."]);
    has(&text, &["## Ranks", "| 2 | `trace_2.json` |", "of 4 ranks"]);
}

#[test]
fn late_host_and_slow_compute_are_distinguished() {
    let sandbox = job([[(1000, 0), (1000, 700), (1000, 0), (1000, 0)]; 3]);
    let report = sandbox.reported(&["."]);
    assert_eq!(report["job"]["straggler"], 1);
    has(
        &comparison(&report),
        &["It does not compute longer", "its host is late"],
    );
}

#[test]
fn healthy_job_has_no_straggler() {
    let sandbox = job([
        [(1000, 0), (1010, 0), (1000, 0), (1005, 0)],
        [(1002, 0), (1000, 0), (1008, 0), (1000, 0)],
        [(1000, 0), (1003, 0), (1000, 0), (1009, 0)],
    ]);
    let report = sandbox.reported(&["."]);
    assert_eq!(report["job"]["straggler"], Value::Null);
    let text = comparison(&report);
    assert!(
        !text.contains("straggler:") && !text.contains("longer on"),
        "{text}"
    );
    assert_eq!(report["job"]["cautions"], json!([]));
}

#[test]
fn one_step_names_no_straggler() {
    let late = [(1000, 0), (1000, 0), (1600, 0), (1000, 0)];
    let report = job([late]).reported(&["."]);
    assert_eq!(report["job"]["straggler"], Value::Null);
    has(
        &comparison(&report),
        &["No rank is named as the late one", "Capture several steps"],
    );
    let report = job([late; 2]).reported(&["."]);
    assert_eq!(report["job"]["straggler"], 2);
}

#[test]
fn steps_are_compared_where_all_ranks_have_them() {
    let sandbox = Sandbox::bare();
    let step = |compute| Step {
        compute,
        late: 0,
        collective: 100,
    };
    for rank in 0..4 {
        let mut trace = Trace::of(rank, &[step(5000), step(1000), step(1000), step(1000)]);
        if rank > 0 {
            // The long step 1 of rank 0 is not in the traces of the others.
            (trace.steps, trace.first_step) = (vec![step(1000); 3], 2);
        }
        sandbox.write(&format!("rank{rank}.json"), &trace.text());
    }
    has(
        &comparison(&sandbox.reported(&["."])),
        &[
            "Steps are compared where all ranks have them: 3 steps from number 2 to 4.",
            "Steps take equally long on all ranks",
        ],
    );
    let mut trace = Trace::of(3, &[step(1000); 3]);
    trace.first_step = 20;
    sandbox.write("rank3.json", &trace.text());
    has(
        &comparison(&sandbox.reported(&["."])),
        &["The ranks have no step in common"],
    );
}

#[test]
fn collectives_that_end_apart_blame_no_rank() {
    let sandbox = Sandbox::bare();
    let step = |compute, collective| Step {
        compute,
        late: 0,
        collective,
    };
    for rank in 0..4_u32 {
        // Rank 3 always has the short collective, but not at the time of the others' ends.
        let steps: Vec<Step> = (0..5)
            .map(|n| match rank {
                3 => step(2000 * (1 + n % 2), 100),
                _ => step(2000, 900),
            })
            .collect();
        let trace = Trace::of(rank, &steps);
        sandbox.write(&format!("rank{rank}.json"), &trace.text());
    }
    let report = sandbox.reported(&["."]);
    assert_eq!(report["job"]["straggler"], Value::Null);
    has(
        &comparison(&report),
        &["These collectives do not end together on all ranks"],
    );
}

#[test]
fn transfers_of_collectives_are_those_of_the_fastest_rank() {
    let sandbox = Sandbox::bare();
    for rank in 0..4_u32 {
        let step = Step {
            compute: 2000 - 300 * rank,
            late: 0,
            collective: 1000 + 300 * rank,
        };
        let mut trace = Trace::of(rank, &[step; 3]);
        (trace.group_size, trace.elements) = (Some(4), Some(25_000_000));
        sandbox.write(&format!("rank{rank}.json"), &trace.text());
    }
    let report = sandbox.reported(&["."]);
    let rows = report["collectives"].as_array().unwrap();
    let row = rows.first().unwrap();
    assert_eq!((rows.len(), &row["calls"]), (1, &json!(12)));
    assert_eq!(row["most_bytes"], 100_000_000);
    assert_eq!(row["transfer_ns"], 12e6);
    assert_eq!(row["time_ns"], 12_000_000 + 3 * 6 * 300_000);
    // 100 MB in 1 ms; with four ranks, each sends one and a half times as much.
    has(
        &sandbox.good(&["."]),
        &[
            "| `all_reduce` | 4 | 100 MB | 1 | 1.45 ms | 0 % | 1.00 ms | 450 us | 100 GB/s | 150 GB/s |",
        ],
    );
    // Of one rank, three equal calls do not tell the transfer from waiting.
    let report = sandbox.reported(&["rank3.json"]);
    assert_eq!(report["collectives"][0]["transfer_ns"], Value::Null);
}

#[test]
fn alternating_late_ranks_are_not_stragglers() {
    let sandbox = job([
        [(1600, 0), (1000, 0), (1000, 0), (1000, 0)],
        [(1000, 0), (1600, 0), (1000, 0), (1000, 0)],
        [(1000, 0), (1000, 0), (1600, 0), (1000, 0)],
    ]);
    let report = sandbox.reported(&["."]);
    assert_eq!(report["job"]["straggler"], Value::Null);
    has(&comparison(&report), &["No single rank is the straggler"]);
}

#[test]
fn ranks_of_smaller_groups_do_not_wait_for_each_other() {
    let sandbox = Sandbox::bare();
    for rank in 0..4 {
        let collective = 100 + 500 * rank;
        let step = Step {
            compute: 1000,
            late: 0,
            collective,
        };
        let mut trace = Trace::of(rank, &[step; 3]);
        trace.group_size = Some(2);
        sandbox.write(&format!("rank{rank}.json"), &trace.text());
    }
    let report = sandbox.reported(&["."]);
    assert_eq!(report["job"]["waits"]["compared"], 0);
    has(
        &comparison(&report),
        &["groups smaller than the job", "Waiting is unknown"],
    );
    assert_eq!(report["ranks"][0]["waited_ns"], Value::Null);
}

#[test]
fn profiles_of_different_jobs_are_not_compared() {
    let sandbox = Sandbox::bare();
    let step = Step {
        compute: 1000,
        late: 0,
        collective: 100,
    };
    let longer = Step {
        compute: 3000,
        ..step
    };
    sandbox.write("a.json", &Trace::of(1, &[step; 2]).text());
    sandbox.write("b.json", &Trace::of(1, &[longer; 2]).text());
    let mut other = Trace::of(0, &[step; 3]);
    other.world_size = 8;
    other.gpu = "NVIDIA H100 80GB HBM3";
    sandbox.write("c.json", &other.text());
    let text = sandbox.good(&["a.json", "b.json", "c.json"]);
    has(
        &text,
        &[
            "Rank 1 is there 2 times (a.json, b.json)",
            "The GPUs differ (NVIDIA H100 80GB HBM3, NVIDIA A100-SXM4-40GB)",
            "jobs of different sizes (4, 8 ranks)",
            "are not compared",
        ],
    );
    assert!(!text.contains("straggler:"));
}

#[test]
fn ranks_are_named_by_profile_then_file_then_position() {
    let sandbox = Sandbox::bare();
    let steps = [Step {
        compute: 1000,
        late: 0,
        collective: 100,
    }; 2];
    let unnamed = |compute| {
        let mut trace = Trace::of(
            0,
            &[Step {
                compute,
                ..steps[0]
            }; 2],
        );
        trace.rank = None;
        trace.text()
    };
    sandbox.write("rank9_says_3.json", &Trace::of(3, &steps).text());
    sandbox.write("net_rank1.json", &unnamed(1001));
    sandbox.write("other.json", &unnamed(1002));
    let report = sandbox.reported(&["other.json", "rank9_says_3.json", "net_rank1.json"]);
    let ranks: Vec<(u64, &str, &str)> = report["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            let word = |key: &str| r[key].as_str().unwrap();
            (r["rank"].as_u64().unwrap(), word("rank_from"), word("file"))
        })
        .collect();
    assert_eq!(
        ranks,
        [
            (0, "position", "other.json"),
            (1, "file name", "net_rank1.json"),
            (3, "profile", "rank9_says_3.json")
        ]
    );
}

// ---------------------------------------------------------------------------------- folding, merging

#[test]
fn folder_of_64_files_gives_one_report() {
    let sandbox = Sandbox::bare();
    sandbox.example("net_0.sqlite");
    for rank in 1..64 {
        let name = format!("net_{rank}.sqlite");
        std::fs::hard_link(sandbox.at("net_0.sqlite"), sandbox.at(&name)).unwrap();
    }
    sandbox.write("notes.txt", "not a profile");
    let said = sandbox.call(&[".", "--format", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    has(&said.err, &["ignored 1 file", "notes.txt"]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let ranks = report["ranks"].as_array().unwrap();
    let numbers: Vec<u64> = ranks.iter().map(|r| r["rank"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..64).collect::<Vec<u64>>());
    has(
        report["job"]["cautions"][0].as_str().unwrap(),
        &["64 files hold the same numbers", "copies"],
    );

    let single = sandbox.reported(&["net_0.sqlite"]);
    let (all, one) = (&report["findings"], &single["findings"]);
    assert_eq!(all.as_array().unwrap().len(), one.as_array().unwrap().len());
    for (all, one) in all.as_array().unwrap().iter().zip(one.as_array().unwrap()) {
        assert_eq!(all["rule"], one["rule"]);
        assert_eq!(all["on_ranks"]["on"], 64);
        let (sum, part) = (
            &all["saving"]["counted_high_ns"],
            &one["saving"]["counted_high_ns"],
        );
        if let (Some(sum), Some(part)) = (sum.as_f64(), part.as_f64()) {
            assert!((sum - 64.0 * part).abs() <= 1e-9 * sum, "{sum} of {part}");
            assert_eq!(all["on_ranks"]["least_ns"], all["on_ranks"]["most_ns"]);
        }
    }
    assert!(single["job"].is_null(), "a single file is no job");
}

/// At most two profiles are in memory at a time; of the others only the report is kept. Peak usage
/// varies between runs, so this test distinguishes two from ten, not from three; the number of
/// concurrent reads is tested in `src/cli/multi_rank.rs`.
#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_depend_on_the_number_of_profiles() {
    let sandbox = Sandbox::bare();
    let ranks = |folder: &str, kernels: u32, ranks: u32| {
        let mut trace = String::from(r#"{"traceEvents": ["#);
        for id in 1..=kernels {
            let at = 100 + 20 * id;
            trace.push_str(&format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{at},"dur":9,"args":{{}}}},
{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{at},"dur":4,"args":{{"correlation":{id}}}}},
{{"ph":"X","cat":"kernel","name":"ampere_sgemm_128x64_tn","pid":0,"tid":7,"ts":{at}5,"dur":8,"args":{{"device":0,"stream":7,"correlation":{id}}}}},
"#
            ));
        }
        trace.push_str(r#"{}]}"#);
        sandbox.write(&format!("{folder}/rank0.json"), &trace);
        for rank in 1..ranks {
            let first = sandbox.at(folder).join("rank0.json");
            std::fs::hard_link(first, sandbox.at(folder).join(format!("rank{rank}.json"))).unwrap();
        }
        peak_mib(&sandbox, folder)
    };
    let small = ranks("small", 10, 1);
    let (one, ten) = (ranks("one", 60_000, 1), ranks("ten", 60_000, 10));
    eprintln!("peak of a small one, a large one and ten of them: {small}, {one}, {ten} MiB");
    let profile = one - small;
    assert!(
        profile >= 5,
        "{small} and {one} MiB: too little to tell one profile from two"
    );
    assert!(
        ten < small + 5 * profile,
        "{small}, {one}, {ten} MiB: more than two profiles are held"
    );
}

/// The peak memory of analyzing a folder, as measured by the operating system.
#[cfg(target_os = "linux")]
fn peak_mib(sandbox: &Sandbox, folder: &str) -> i64 {
    let mut judging = std::process::Command::new(assert_cmd::cargo::cargo_bin("pyprof-advise"))
        .args([folder, "--quiet", "--format", "json", "-o", "peak.json"])
        .current_dir(sandbox.at(""))
        .env("RAYON_NUM_THREADS", "2")
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", judging.id());
    let mut peak_kib = 0;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
        peak_kib = peak_kib.max(kib.unwrap_or_default());
        if let Some(status) = judging.try_wait().unwrap() {
            assert!(status.success());
            return peak_kib / 1024;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn merged_reports_equal_the_report_of_all_profiles_in_any_order() {
    let sandbox = job([[(1000, 0), (1000, 0), (1600, 0), (1000, 0)]; 3]);
    let mut reports = Vec::new();
    for rank in 0..4 {
        let (profile, report) = (format!("trace_{rank}.json"), format!("r{rank}.report"));
        sandbox.good(&[&profile, "--format", "json", "-o", &report]);
        reports.push(report);
    }
    let files = [
        "trace_3.json",
        "trace_0.json",
        "trace_2.json",
        "trace_1.json",
    ];
    for format in ["json", "markdown"] {
        let at_once = sandbox.good(&[&files[..], &["--format", format]].concat());
        for order in [[0, 1, 2, 3], [3, 1, 0, 2]] {
            let mut merge = vec!["merge", "--format", format];
            merge.extend(order.iter().map(|&at: &usize| reports[at].as_str()));
            assert_eq!(sandbox.good(&merge), at_once);
        }
        let folder = sandbox.good(&[".", "--format", format]);
        assert!(folder.replace("./trace_", "trace_") == at_once);
        let one_thread = sandbox.call_with(&[&files[..], &["--format", format]].concat(), "1");
        assert_eq!(one_thread.out, at_once);
    }
    let alone = sandbox.good(&["merge", "r1.report"]);
    assert_eq!(alone, sandbox.good(&["trace_1.json"]));
}

#[test]
fn templates_can_use_job_fields() {
    let sandbox = job([[(1000, 0); 4]; 3]);
    sandbox.write(
        "t.txt",
        "{{ job.files }} files, {{ ranks | length }} ranks: {{ ranks[3].file }}",
    );
    let text = sandbox.good(&[".", "--template", "t.txt"]);
    assert_eq!(text, "4 files, 4 ranks: trace_3.json");
}

// -------------------------------------------------------------------------------------------- errors

#[test]
fn unreadable_files_are_named_and_the_rest_is_reported() {
    let sandbox = Sandbox::bare();
    sandbox.example("good.sqlite");
    sandbox.write("bad.sqlite", "SQLite format 3\0 and nothing more");
    sandbox.write("page.html", "<!DOCTYPE html><p>404");
    let said = sandbox.call(&[
        "good.sqlite",
        "bad.sqlite",
        "page.html",
        "good.sqlite",
        "none.json",
    ]);
    // Named files must be readable.
    assert_eq!(said.code, 2, "{}", said.err);
    has(
        &said.err,
        &[
            "bad.sqlite",
            "page.html",
            "HTML",
            "none.json",
            "given twice",
        ],
    );
    has(
        &said.out,
        &[
            "4 of 5 files are left out",
            "Left out: `page.html`: expected",
            "Left out: `good.sqlite`: given twice, read once",
        ],
    );
    // A folder includes the damaged database and reports the damage.
    let said = sandbox.call(&["."]);
    assert_eq!(said.code, 0, "{}", said.err);
    has(&said.err, &["ignored 1 file", "page.html", "bad.sqlite"]);

    let said = sandbox.call(&["bad.sqlite", "page.html"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    has(&said.err, &["none of 2 files", "bad.sqlite", "page.html"]);
    // Many files with the same defect do not fill the screen.
    std::fs::create_dir(sandbox.at("ranks")).unwrap();
    for rank in 0..12 {
        let path = sandbox.at("ranks").join(format!("rank{rank}.json"));
        std::fs::write(path, r#"{"traceEvents": [{"#).unwrap();
    }
    let said = sandbox.call(&["ranks"]);
    assert_eq!(said.code, 2);
    has(
        &said.err,
        &["none of 12 files", "rank0.json", "and 4 more files"],
    );
    assert!(said.err.lines().count() <= 18, "{}", said.err);

    std::fs::create_dir(sandbox.at("empty")).unwrap();
    let said = sandbox.call(&["empty"]);
    assert_eq!(said.code, 2);
    has(&said.err, &["expected profiles in this folder", "no files"]);
    for (file, words) in [
        (
            "events.out.tfevents.17.host.1.0",
            ["log of TensorBoard", "tensorboard_trace_handler"],
        ),
        ("run/x", ["folders inside it are not searched", "empty/run"]),
        ("net.nsys-rep", ["nsys export", "empty/net.nsys-rep"]),
    ] {
        let path = sandbox.at("empty").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
        let said = sandbox.call(&["empty"]);
        assert_eq!((said.code, said.out.as_str()), (2, ""));
        has(&said.err, &words);
    }
}

#[test]
fn output_never_replaces_a_profile_of_the_folder() {
    let sandbox = Sandbox::bare();
    sandbox.example("a.sqlite");
    sandbox.example("b.sqlite");
    let before = std::fs::read(sandbox.at("b.sqlite")).unwrap();
    let said = sandbox.call(&[".", "-o", "b.sqlite", "--format", "markdown"]);
    assert_eq!(said.code, 2);
    has(&said.err, &["would overwrite the profile"]);
    assert_eq!(std::fs::read(sandbox.at("b.sqlite")).unwrap(), before);
}

#[test]
fn merging_other_files_is_an_error() {
    let sandbox = Sandbox::bare();
    sandbox.example("net.sqlite");
    let text = sandbox.good(&["net.sqlite", "--format", "json"]);
    sandbox.write(
        "next.json",
        &text.replacen("\"schema_version\": 2", "\"schema_version\": 3", 1),
    );
    sandbox.write("cut.json", &text[..text.len() / 2]);
    sandbox.write("old.json", r#"{"schema_version": 2, "title": "x"}"#);
    sandbox.write("other.json", r#"{"a": 1}"#);
    sandbox.write("list.json", "[1, 2]");
    sandbox.write("trace.json", r#"{"traceEvents": []}"#);
    sandbox.write("r.json", &text);
    sandbox.write("copy.json", &text.replace("net.sqlite", "copy.sqlite"));
    sandbox.good(&[
        "merge",
        "r.json",
        "copy.json",
        "--format",
        "json",
        "-o",
        "both.json",
    ]);
    for (file, words) in [
        ("next.json", &["schema_version 2", "schema_version 3"][..]),
        ("cut.json", &["not a JSON report"]),
        ("old.json", &["damaged, or from another version"]),
        ("other.json", &["without `schema_version`"]),
        ("list.json", &["other JSON"]),
        ("trace.json", &["found a trace", "rank0.json"]),
        ("net.sqlite", &["not text"]),
        ("both.json", &["of several profiles already"]),
        ("none.json", &["none.json"]),
    ] {
        // The report of a job is rendered again if given alone.
        if file != "both.json" {
            let said = sandbox.call(&["merge", file]);
            assert_eq!((said.code, said.out.as_str()), (2, ""), "{file}");
            has(&said.err, words);
        }
        // The others are reported, but a named file is missing from it.
        let said = sandbox.call(&["merge", "r.json", file]);
        assert_eq!(said.code, 2, "{file}: {}", said.err);
        has(&said.out, &["Left out", file]);
    }
}

#[test]
fn why_is_answered_for_every_file() {
    let sandbox = Sandbox::bare();
    sandbox.example("a.sqlite");
    sandbox.example("b.sqlite");
    let text = sandbox.good(&["a.sqlite", "b.sqlite", "--why", "precision/amp-off"]);
    has(&text, &["a.sqlite\n", "b.sqlite\n"]);
    assert_eq!(text.matches("precision/amp-off").count() % 2, 0);
}

// ------------------------------------------------------------------------------------- real profiles

#[test]
fn sampled_ranks_give_equal_reports_at_once_and_merged() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let sandbox = Sandbox::bare();
    let path = |rank: u32| {
        let file = folder.join(format!("hta_sampled_rank{rank}.json.gz"));
        file.to_string_lossy().into_owned()
    };
    let (zero, one) = (path(0), path(1));
    sandbox.good(&[&zero, "--format", "json", "-o", "r0.json"]);
    sandbox.good(&[&one, "--format", "json", "-o", "r1.json"]);
    for format in ["json", "markdown"] {
        let at_once = sandbox.good(&[&zero, &one, "--format", format]);
        let merged = sandbox.good(&["merge", "r0.json", "r1.json", "--format", format]);
        assert_eq!(merged, at_once);
    }
    let report = sandbox.reported(&[&zero, &one]);
    let job = &report["job"];
    // Each trace records 10 collectives, in a job of 128 ranks. The first one is left out, two pairs of
    // all-reduces have messages of other sizes: they are not the same ones. The two all-gathers are of 64 ranks each,
    // and which ones is not recorded.
    assert_eq!(
        (&job["waits"]["compared"], &job["waits"]["of"]),
        (&json!(5), &json!(10))
    );
    assert_eq!(job["world_size"], 128);
    has(
        &comparison(&report),
        &["Only 2 of the job's 128 ranks are in this report"],
    );
    // Both ranks ran the same program; only the time spent waiting for the host and for other ranks
    // differs, and with it the share of a kernel that is at the threshold.
    let findings = report["findings"].as_array().unwrap();
    let depends_on_waiting =
        |f: &Value| f["category"] == "host" || f["rule"] == "parallelism/dominant-kernel";
    for finding in findings.iter().filter(|f| !depends_on_waiting(f)) {
        assert_eq!(finding["on_ranks"]["on"], 2, "{}", finding["rule"]);
    }
}

#[test]
fn processes_of_one_file_are_ranks_of_the_job() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (mfu, h100) = (path("mfu_2gpu_before.sqlite"), path("h100_2gpu_1s.sqlite"));
    let sandbox = Sandbox::bare();
    let report = sandbox.reported(&[&mfu, &h100]);
    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 4);
    let sum = |part: fn(&Value) -> i64| ranks.iter().map(part).sum::<i64>();
    // Each device belongs to one process, so the sums over ranks equal those of the files.
    let busy = sum(|r| r["times"]["busy_ns"].as_i64().unwrap());
    assert_eq!(report["summary"]["busy_ns"], busy);
    let kernels = sum(|r| r["kernel_time_ns"].as_i64().unwrap());
    assert_eq!(report["summary"]["kernel_time_ns"], kernels);
    let whole = |file: &str| {
        sandbox.reported(&[file])["summary"]["busy_ns"]
            .as_i64()
            .unwrap()
    };
    assert_eq!(busy, whole(&mfu) + whole(&h100));
}
