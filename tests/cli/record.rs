//! `run` on real programs, with a real torch on the CPU: same results and exit status with and without it;
//! steps and layers are what the reader finds in the traces.
//!
//! `PYPROF_ADVISE_TORCH` names a Python with torch, transformers and lightning; without it, these tests are
//! skipped. CPU traces have no kernels: `tests/torch/invent_kernels.py` invents them, and no test depends on
//! their times.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::shared;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_pyprof-advise");

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch")
}

/// What a program has said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What the C++ runtime says when a thread of torch is left at the end of a process. Seen in one of some dozens
/// of runs with gloo on a busy machine, without any recording.
const TORCH_ABORTED: &str = "terminate called without an active exception";

/// A recorded program.
struct Recorded {
    folder: tempfile::TempDir,
    said: Said,
}

/// The command line of a program in `tests/torch/programs`: `ddp.py` on so many processes.
fn command(python: &Path, program: &str, processes: u32, work: &Path) -> Vec<String> {
    let file = tests().join("programs").join(program);
    let python = python.to_str().unwrap().to_owned();
    let quiet = ["-W", "ignore"].map(str::to_owned);
    let mut command = vec![python];
    if processes > 1 {
        let launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
        ];
        command.extend(launcher.map(str::to_owned));
        command.push(processes.to_string());
    } else {
        command.extend(quiet);
    }
    command.push(file.to_str().unwrap().to_owned());
    command.push(work.join("work").to_str().unwrap().to_owned());
    command
}

/// Runs a program with and without recording, and compares what it says; invents kernels afterwards.
fn recorded(program: &str, processes: u32, code: i32) -> Option<Recorded> {
    recorded_with(&[], program, processes, code)
}

/// As [`recorded`], with more options of `run`.
fn recorded_with(options: &[&str], program: &str, processes: u32, code: i32) -> Option<Recorded> {
    let python = shared::python()?;
    let folder = tempfile::tempdir().unwrap();
    let command = command(&python, program, processes, folder.path());
    recorded_command(options, folder, &command, code)
}

/// As [`recorded`], for any command line that runs a program in `tests/torch/programs`.
fn recorded_command(
    options: &[&str],
    folder: tempfile::TempDir,
    command: &[String],
    code: i32,
) -> Option<Recorded> {
    let python = shared::python()?;
    let program = command.join(" ");
    let (name, arguments) = command.split_first().unwrap();
    let start = |program: &str| {
        let mut start = Command::new(program);
        start
            .env("OMP_NUM_THREADS", "1")
            .env_remove("PYTHONPATH")
            .current_dir(folder.path());
        start
    };
    let mut plain = said(start(name).args(arguments));
    for _ in 0..2 {
        if plain.err.contains(TORCH_ABORTED) {
            plain = said(start(name).args(arguments));
        }
    }
    assert_eq!(plain.code, Some(code), "{program}: {}", plain.err);
    if let Some(why) = plain.out.strip_prefix("skipped: ") {
        shared::skip(why.trim());
        return None;
    }
    let keep = folder.path().join("traces");
    let said = said(
        start(PROGRAM)
            .args(["run", "--skip", "4", "--steps", "2", "--keep"])
            .arg(&keep)
            .args(options)
            .arg("--")
            .args(command),
    );
    assert_eq!(
        results(&said.out),
        results(&plain.out),
        "{program}: {}",
        said.err
    );
    let expected = if code == 0 { 2 } else { code };
    assert_eq!(said.code, Some(expected), "{program}: {}", said.err);
    assert!(!said.err.contains("USDT"), "{}", said.err);
    let invent = Command::new(&python)
        .arg(tests().join("invent_kernels.py"))
        .arg(&keep)
        .status();
    assert!(invent.unwrap().success());
    Some(Recorded { folder, said })
}

/// What a program prints, without the times that a Trainer measures.
fn results(out: &str) -> Vec<&str> {
    let lines = out.lines();
    let results: Vec<&str> = lines
        .filter(|line| !line.contains("train_runtime"))
        .collect();
    assert!(
        results.iter().any(|line| line.starts_with("result ")),
        "{out}"
    );
    results
}

impl Recorded {
    fn report(&self) -> Value {
        let mut advise = Command::new(PROGRAM);
        advise
            .arg(self.folder.path().join("traces"))
            .args(["--format", "json", "--quiet"]);
        let said = said(&mut advise);
        assert_eq!(said.code, Some(0), "{}", said.err);
        serde_json::from_str(&said.out).unwrap()
    }

    /// Checks steps and layers of the report.
    fn shows(&self, layers: &[&str]) -> Value {
        let report = self.report();
        assert_eq!(report["summary"]["steps"], 2, "{}", self.said.err);
        assert_eq!(report["summary"]["steps_from"]["source"], "numbered");
        let rows = report["layers"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|r| r["name"].as_str().unwrap()).collect();
        for layer in layers {
            assert!(names.contains(layer), "{layer} is not in {names:?}");
        }
        report
    }
}

/// The layers of `common.Net`.
const NET: [&str; 3] = ["blocks.*.norm", "blocks.*.fc", "head"];

#[test]
fn training_loop_gives_two_windows_that_are_joined() {
    let Some(recorded) = recorded("plain.py", 1, 0) else {
        return;
    };
    let err = &recorded.said.err;
    assert!(err.contains("torch found no GPU"), "{err}");
    assert!(
        err.trim_end()
            .ends_with("exit status 2: no report was written"),
        "{err}"
    );
    let report = recorded.shows(&NET);
    assert_eq!(report["windows"]["agree"], true);
    let light = report["windows"]["light"].as_str().unwrap();
    assert!(light.ends_with("-light.pt.trace.json"), "{light}");
    let trace = light.replace("-light", "-detailed");
    let trace = std::fs::read(recorded.folder.path().join("traces").join(trace)).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let step_ns = &trace["pyprof_advise"]["unrecorded"]["step_ns"];
    assert!(step_ns.as_u64().is_some_and(|ns| ns > 0), "{step_ns}");
    let loader = &trace["pyprof_advise"]["loaders"][0];
    assert_eq!(
        (&loader["batch_size"], &loader["num_workers"]),
        (&4.into(), &0.into())
    );
    let switches = report["method"]["switches"].as_array().unwrap();
    let of_threads = serde_json::json!({"name": "OMP_NUM_THREADS", "value": "1"});
    assert!(switches.contains(&of_threads), "{switches:?}");
}

/// `waiting.py` computes for 0.2 s in `decode` and sleeps for 0.1 s before each step.
#[test]
fn py_spy_beside_a_recording_explains_its_gaps() {
    if Command::new("py-spy").arg("--version").output().is_err() {
        shared::skip("py-spy is not installed");
        return;
    }
    let Some(recorded) = recorded_with(&["--host-profiler", "py-spy"], "waiting.py", 1, 0) else {
        return;
    };
    let report = recorded.report();
    let profile = &report["host_profiles"][0];
    assert_eq!(profile["alignment"], "aligned", "{}", recorded.said.err);
    let rows = report["host"]["rows"].as_array().unwrap();
    let share = |function: &str| -> f64 {
        let of_function = rows.iter().filter(|row| {
            let name = row["name"].as_str().unwrap();
            row["evidence"] == "samples" && name.starts_with(function)
        });
        of_function.map(|row| row["share"].as_f64().unwrap()).sum()
    };
    let (decode, wait) = (share("decode ("), share("wait_for_disk ("));
    assert!(decode > 0.4 && wait > 0.15 && decode > wait, "{rows:?}");
}

#[test]
fn scalene_beside_a_recording_explains_its_gaps() {
    let Some(python) = shared::python() else {
        return;
    };
    let mut find = Command::new(python);
    let found = find.args(["-c", "import importlib.metadata as m; m.version('scalene')"]);
    if !found.output().unwrap().status.success() {
        shared::skip("Scalene is not installed");
        return;
    }
    let Some(recorded) = recorded_with(&["--host-profiler", "scalene"], "waiting.py", 1, 0) else {
        return;
    };
    let report = recorded.report();
    let profile = &report["host_profiles"][0];
    assert_eq!(profile["profiler"], "Scalene", "{}", recorded.said.err);
    assert_eq!(profile["alignment"], "aligned", "{}", recorded.said.err);
    let rows = report["host"]["rows"].as_array().unwrap();
    let share = |lines: std::ops::RangeInclusive<u32>| -> f64 {
        let of_lines = rows.iter().filter(|row| {
            let name = row["name"].as_str().unwrap();
            let mut lines = lines.clone();
            row["evidence"] == "samples"
                && lines.any(|line| name.ends_with(&format!("waiting.py:{line}")))
        });
        of_lines.map(|row| row["share"].as_f64().unwrap()).sum()
    };
    let (decode, wait) = (share(9..=12), share(15..=16));
    // On a busy machine, fewer samples are taken while the program computes.
    assert!(decode > 0.05 && wait > 0.15, "{rows:?}");
    assert!(decode + wait > 0.4, "{rows:?}");
    // Sampling is on only while windows are recorded.
    let text = std::fs::read_to_string(recorded.folder.path().join("traces/scalene.json")).unwrap();
    let written: Value = serde_json::from_str(&text).unwrap();
    let seconds = written["elapsed_time_sec"].as_f64().unwrap();
    assert!((1.0..20.0).contains(&seconds), "{seconds} s");
}

#[test]
fn functions_that_cprofile_counts_are_named() {
    let Some(recorded) = recorded_with(&["--host-profiler", "cprofile"], "waiting.py", 1, 0) else {
        return;
    };
    let profile = &recorded.report()["host_profiles"][0];
    assert_eq!(profile["alignment"], "untimed");
    let lines = profile["lines"].as_array().unwrap();
    let sleep = lines
        .iter()
        .find(|line| line["place"] == "<built-in method time.sleep>");
    assert_eq!(sleep.unwrap()["calls"], 2, "{lines:?}");
}

#[test]
fn profiler_of_the_host_that_is_not_installed_is_named() {
    let mut run = Command::new(PROGRAM);
    run.args([
        "run",
        "--host-profiler",
        "py-spy",
        "--",
        "python3",
        "train.py",
    ])
    .env("PATH", "");
    let said = said(&mut run);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("cannot start `py-spy`"), "{}", said.err);
    assert!(said.err.contains("pip install py-spy"), "{}", said.err);
}

#[test]
fn programs_that_scalene_cannot_run_are_refused() {
    let refused = |command: &[&str]| {
        let mut run = Command::new(PROGRAM);
        run.args(["run", "--host-profiler", "scalene", "--"]);
        let said = said(run.args(command).env("PATH", ""));
        assert_eq!(said.code, Some(2), "{}", said.err);
        said.err
    };
    let said = refused(&["torchrun", "train.py"]);
    assert!(said.contains("Scalene runs only `python SCRIPT"), "{said}");
    let said = refused(&["python3", "train.py"]);
    assert!(said.contains("python3 -m pip install scalene"), "{said}");
}

#[test]
fn compiled_model_is_compiled_once() {
    // The program prints the number of graphs and breaks, which `recorded` compares.
    if let Some(recorded) = recorded("compiled.py", 1, 0) {
        recorded.shows(&[]);
    }
}

#[test]
fn ranks_of_a_job_are_recorded_together() {
    for program in ["ddp.py", "fsdp.py"] {
        let Some(recorded) = recorded(program, 2, 0) else {
            continue;
        };
        let report = recorded.shows(&NET);
        assert_eq!(report["job"]["files"], 2, "{program}");
        assert_eq!(report["ranks"][1]["rank"], 1, "{program}");
        assert_eq!(report["ranks"][1]["world_size"], 2, "{program}");
    }
}

#[test]
fn steps_and_layers_of_training_loops_are_found() {
    for program in [
        "checkpointing.py",
        "threads.py",
        "grad_scaler.py",
        "gan.py",
        "lbfgs.py",
        "parts.py",
    ] {
        let Some(recorded) = recorded(program, 1, 0) else {
            continue;
        };
        let prefixed = ["net.blocks.*.norm", "net.blocks.*.fc", "net.head"];
        recorded.shows(if program == "checkpointing.py" {
            &prefixed
        } else {
            &NET
        });
    }
}

/// `uv`, `accelerate` and a shell script start the program.
#[test]
fn programs_behind_launchers_are_recorded() {
    let Some(python) = shared::python() else {
        return;
    };
    let has = |name: &str, arguments: &[&str]| {
        let output = Command::new(name).args(arguments).output();
        let is_there = output.is_ok_and(|output| output.status.success());
        if !is_there {
            shared::skip(&format!("`{name} {}` fails", arguments.join(" ")));
        }
        is_there
    };
    let check = |launcher: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let program = command(&python, "plain.py", 1, folder.path());
        let launcher = launcher.iter().map(|word| (*word).to_owned());
        // Launchers name the interpreter themselves.
        let command: Vec<String> = launcher.chain(program.into_iter().skip(3)).collect();
        let recorded = recorded_command(&[], folder, &command, 0).unwrap();
        recorded.shows(&NET);
    };
    let interpreter = python.to_str().unwrap();
    if has("uv", &["--version"]) {
        check(&["uv", "run", "--no-project", "--python", interpreter]);
    }
    if has(interpreter, &["-c", "import accelerate"]) {
        let module = [interpreter, "-m", "accelerate.commands.launch"];
        let options =
            "--cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no";
        let words: Vec<&str> = module.into_iter().chain(options.split(' ')).collect();
        check(&words);
    }
    check(&[
        "sh",
        "-c",
        &format!("\"{interpreter}\" \"$@\" && echo after"),
        "sh",
    ]);
}

#[test]
#[cfg(unix)]
fn forked_children_of_a_recorded_program_end() {
    if let Some(recorded) = recorded("forks.py", 1, 0) {
        recorded.shows(&NET);
    }
}

#[test]
fn program_that_is_killed_while_it_is_recorded_keeps_its_status() {
    let Some(recorded) = recorded("killed.py", 1, 5) else {
        return;
    };
    let err = &recorded.said.err;
    assert!(err.contains("recording began after 4 steps"), "{err}");
}

/// One percent of a step of 10 ms is 100 us; a hook of every operator would cost 50 times 1 us or more.
#[test]
fn counting_steps_costs_less_than_one_percent_of_a_step() {
    let Some(python) = shared::python() else {
        return;
    };
    let mut measure = Command::new(python);
    measure
        .args(["-W", "ignore"])
        .arg(tests().join("overhead.py"))
        .env(
            "PYTHONPATH",
            Path::new(env!("CARGO_MANIFEST_DIR")).join("python"),
        );
    let said = said(&mut measure);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let costs: Value = serde_json::from_str(&said.out).unwrap();
    for (name, most) in [
        ("optimizer_step_us", 100.0),
        ("optimizer_step_of_many_operators_us", 50.0),
        ("model_call_us", 100.0),
    ] {
        assert!(costs[name].as_f64().unwrap() < most, "{name}: {costs}");
    }
}

#[test]
fn calls_of_a_model_are_steps_without_an_optimizer() {
    if let Some(recorded) = recorded("inference.py", 1, 0) {
        recorded.shows(&NET);
    }
}

#[test]
fn replays_of_a_graph_are_steps_where_the_model_is_called_no_more() {
    let Some(recorded) = recorded("replays.py", 1, 0) else {
        return;
    };
    recorded.shows(&[]);
    let manifest = std::fs::read_to_string(recorded.folder.path().join("traces/manifest.json"));
    assert!(manifest.unwrap().contains("replays of a CUDA graph"));
    // Without an optimizer, a model that is called in each step counts, whatever is replayed as well.
    if let Some(recorded) = self::recorded("replays_and_calls.py", 1, 0) {
        let report = recorded.shows(&NET);
        let rows = report["sites"].as_array().unwrap();
        let of_head = rows.iter().filter(|row| row["layer"] == "head");
        assert!(of_head.clone().count() > 0 && of_head.clone().all(|row| row["calls"] == 2));
    }
}

#[test]
fn exceptions_copies_and_pickles_are_those_of_the_program() {
    let Some(recorded) = recorded("exceptions.py", 1, 7) else {
        return;
    };
    let err = recorded.said.err.trim_end();
    assert!(err.ends_with("exit status 7: that of the program"), "{err}");
    recorded.shows(&["net.blocks.*.fc"]);
}

#[test]
fn optimizer_steps_of_frameworks_are_steps() {
    let Some(recorded) = recorded("hf_trainer.py", 1, 0) else {
        return;
    };
    let report = recorded.shows(&["transformer.h.*.attn.c_attn", "transformer.h.*.mlp.c_fc"]);
    // Two steps of two accumulated batches in each of two layers.
    let rows = report["sites"].as_array().unwrap();
    let calls = |r: &&Value| r["layer"] == "transformer.h.0.ln_1" && r["direction"] == "fprop";
    let norm: Vec<&Value> = rows.iter().filter(calls).collect();
    assert!(
        !norm.is_empty() && norm.iter().all(|r| r["calls"] == 4),
        "{norm:?}"
    );
    if let Some(recorded) = self::recorded("lightning_trainer.py", 1, 0) {
        recorded.shows(&["net.blocks.*.fc", "net.head"]);
    }
}

#[test]
fn profiler_of_the_program_is_left_alone() {
    let Some(recorded) = recorded("own_profiler.py", 1, 0) else {
        return;
    };
    let own = recorded.folder.path().join("work");
    assert!(own.is_file(), "the program's own trace is missing");
    let manifest = std::fs::read_to_string(recorded.folder.path().join("traces/manifest.json"));
    assert!(manifest.unwrap().contains(r#""window": "own""#));
}

#[test]
fn without_a_gpu_a_warning_comes_before_the_recording() {
    let Some(python) = shared::python() else {
        return;
    };
    let mut run = Command::new(PROGRAM);
    run.args(["run", "--skip", "3", "--"])
        .arg(&python)
        .args(["-W", "ignore"])
        .arg(tests().join("programs/plain.py"));
    let said = said(&mut run);
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(
        said.err
            .contains("warning: torch found no GPU: there will be no report"),
        "{}",
        said.err
    );
    assert!(!said.err.contains("the report follows"), "{}", said.err);
}

#[test]
fn programs_without_steps_say_why_nothing_was_recorded() {
    let Some(python) = shared::python() else {
        return;
    };
    let run = |arguments: &[&str]| {
        let mut run = Command::new(PROGRAM);
        run.args(["run", "--"]).arg(&python).args(arguments);
        said(&mut run)
    };
    let none = run(&["-c", "import torch"]);
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("none took a step"), "{}", none.err);
    let isolated = run(&["-I", "-c", "import torch"]);
    let not_started = "no Python of the program started with the recorder";
    assert!(isolated.err.contains(not_started), "{}", isolated.err);
    let other = run(&["-c", "print('no torch')"]);
    let not_imported = "no process of the program imported torch";
    assert!(other.err.contains(not_imported), "{}", other.err);
    let failed = run(&["-c", "raise SystemExit(3)"]);
    let why = "the program failed before it imported torch";
    assert!(failed.err.contains(why), "{}", failed.err);
    assert!(!failed.err.contains("PYTHONPATH"), "{}", failed.err);
    // A module of the program with the name of the package.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pyprof_advise.py"), "NAME = 'mine'").unwrap();
    let program = folder.path().join("program.py");
    let text = "import torch, pyprof_advise; print(pyprof_advise.NAME)";
    std::fs::write(&program, text).unwrap();
    let shadowed = run(&[program.to_str().unwrap()]);
    assert_eq!(shadowed.out, "mine\n");
    assert!(
        shadowed.err.contains("the recorder failed"),
        "{}",
        shadowed.err
    );
}

#[test]
fn python_package_records_and_reports() {
    let Some(python) = shared::python() else {
        return;
    };
    let work = tempfile::tempdir().unwrap();
    let mut check = Command::new(python);
    check
        .args(["-W", "ignore"])
        .arg(tests().join("package.py"))
        .arg(work.path())
        .env(
            "PYTHONPATH",
            Path::new(env!("CARGO_MANIFEST_DIR")).join("python"),
        )
        .env("PYPROF_ADVISE", PROGRAM);
    let said = said(&mut check);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "checked\n"),
        "{}",
        said.err
    );
}

/// A stand-in for nsys in a folder of its own: it answers `--help` like one version, runs the program, writes
/// its arguments to `arguments`, and exports the example profile. The real nsys was not run.
#[cfg(unix)]
fn stand_in(help: &str, ending: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    let script = format!(
        r#"#!/bin/sh
echo "$@" >> "$(dirname "$0")/arguments"
case "$1 $2" in
"profile --help") echo '{help}'; exit 0 ;;
export*) cp '{}' "$5"; exit 0 ;;
esac
for argument; do
    case "$argument" in
    --output=*) touch "${{argument#--output=}}.{ending}" ;;
    -*|profile) ;;
    *) break ;;
    esac
    shift
done
exec "$@"
"#,
        example.display()
    );
    let path = folder.path().join("nsys");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
#[cfg(unix)]
fn nsys_is_run_with_the_options_that_its_version_has() {
    let versions = [
        (
            "--capture-range= --stop-on-range-end= -s, --sample=",
            "qdrep",
            "--sample=none --output",
        ),
        (
            "--capture-range= --capture-range-end= --cuda-graph-trace= --sample= --cpuctxsw=",
            "nsys-rep",
            "--cuda-graph-trace=node --capture-range-end=stop --sample=none --cpuctxsw=none --output",
        ),
        (
            "--capture-range= --capture-range-end= --cuda-graph-trace= --sample= --osrt-file-access= \
             --pytorch= autograd-nvtx, autograd-shapes-nvtx, functions-trace, functions-trace-shapes",
            "nsys-rep",
            "--osrt-file-access=true --cuda-graph-trace=node --capture-range-end=stop --sample=none \
             --pytorch=autograd-shapes-nvtx,functions-trace --output",
        ),
    ];
    for (help, ending, expected) in versions {
        let nsys = stand_in(help, ending);
        let path = format!(
            "{}:{}",
            nsys.path().display(),
            std::env::var("PATH").unwrap()
        );
        let mut run = Command::new(PROGRAM);
        run.args([
            "run", "--with", "nsys", "--format", "json", "--", "sh", "-c", "exit 0",
        ]);
        let said = said(run.env("PATH", path));
        assert_eq!(said.code, Some(0), "{}", said.err);
        let arguments = std::fs::read_to_string(nsys.path().join("arguments")).unwrap();
        let expected =
            format!("profile --trace=cuda,nvtx,osrt --capture-range=cudaProfilerApi {expected}");
        assert!(arguments.contains(&expected), "{arguments}");
        let report: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(report["summary"]["steps"], 4);
        assert_eq!(report["program"]["exit_status_from"], "report");
    }
}

#[test]
#[cfg(unix)]
fn reports_that_cannot_be_written_cost_no_run() {
    let nsys = stand_in("--capture-range= --sample=", "nsys-rep");
    let path = format!(
        "{}:{}",
        nsys.path().display(),
        std::env::var("PATH").unwrap()
    );
    let folder = tempfile::tempdir().unwrap();
    let run = |options: &[&str], program: &str| {
        let mut run = Command::new(PROGRAM);
        run.args(["run", "--with", "nsys"])
            .args(options)
            .args(["--", "sh", "-c", program])
            .current_dir(folder.path())
            .env("PATH", &path);
        said(&mut run)
    };
    let earlier = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    let earlier = earlier.to_str().unwrap();
    for (options, says) in [
        (&["-o", "nodir/x.md"][..], "there is no folder nodir"),
        (&["-o", "."], "it is a folder"),
        (&["-o", "x.pdf"], "no format has this ending"),
        (
            &["-o", "x.sarif", "--against", earlier],
            "no format of comparisons has this ending",
        ),
    ] {
        let said = run(options, "touch started");
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{options:?}");
        assert!(said.err.contains(says), "{}", said.err);
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "{options:?}: the program was started");
    }
    // The folder is gone when the program ends.
    for options in [
        &["-o", "gone/x.html"][..],
        &["-o", "gone/x.md", "--against", earlier],
    ] {
        std::fs::create_dir(folder.path().join("gone")).unwrap();
        let said = run(options, "rmdir gone");
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.out.starts_with(['<', '#']), "{}", said.out);
        let says = "there is no folder gone\n  standard output has it instead";
        assert!(said.err.contains(says), "{}", said.err);
    }
}

#[test]
#[cfg(unix)]
fn run_is_compared_with_an_earlier_one() {
    let nsys = stand_in("--capture-range= --sample=", "nsys-rep");
    let path = format!(
        "{}:{}",
        nsys.path().display(),
        std::env::var("PATH").unwrap()
    );
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    let run = |options: &[&str]| {
        let mut run = Command::new(PROGRAM);
        run.args(["run", "--with", "nsys", "--against"])
            .args(options)
            .args(["--", "sh", "-c", "exit 0"]);
        said(run.env("PATH", &path))
    };
    let same = run(&[
        example.to_str().unwrap(),
        "--gate",
        "regression=3%",
        "--format",
        "json",
    ]);
    assert_eq!(same.code, Some(0), "{}", same.err);
    let diff: Value = serde_json::from_str(&same.out).unwrap();
    assert_eq!(diff["no_change"], true, "{}", same.out);
    let missing = run(&["no-such-file"]);
    assert_eq!(missing.code, Some(2));
    assert!(
        missing.err.contains("there is no such file or folder"),
        "{}",
        missing.err
    );
    let format = run(&[example.to_str().unwrap(), "--format", "sarif"]);
    assert!(
        format
            .err
            .contains("a comparison cannot be written as sarif"),
        "{}",
        format.err
    );
}

/// The program, with six times the blocks, is recorded and compared by one command.
#[test]
#[cfg(unix)]
fn run_tells_what_a_change_of_the_program_has_changed() {
    let Some(python) = shared::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = "import sys, torch
sys.path.insert(0, sys.argv[1])
from common import Block, training_step
step = training_step(torch.nn.Sequential(*(Block() for _ in range(int(sys.argv[2])))))
for _ in range(16):
    step()
";
    std::fs::write(folder.path().join("train.py"), program).unwrap();
    // Kernels are invented while the command still runs, as if it had found a GPU.
    let job = "\"$0\" -W ignore train.py \"$1/programs\" $2 && \"$0\" \"$1/invent_kernels.py\" $3";
    let run = |options: &[&str], blocks: &str, keep: &str| {
        let mut run = Command::new(PROGRAM);
        run.args(["run", "--skip", "4", "--keep", keep])
            .args(options)
            .args(["--", "sh", "-c", job])
            .arg(&python)
            .arg(tests())
            .args([blocks, keep])
            .env("OMP_NUM_THREADS", "1")
            .env_remove("PYTHONPATH")
            .current_dir(folder.path());
        said(&mut run)
    };
    let last = run(&[], "2", "last");
    assert_eq!(last.code, Some(0), "{}", last.err);
    let changed = run(&["--against", "last", "--format", "json"], "12", "new");
    assert_eq!(changed.code, Some(0), "{}", changed.err);
    let diff: Value = serde_json::from_str(&changed.out).unwrap();
    let verdict = diff["verdict"][0].as_str().unwrap();
    assert!(verdict.starts_with("A step takes "), "{verdict}");
    // Times of the host are those of a busy machine, and kernels are invented: their number is what is known.
    let number = |side: &str, name: &str| diff[side][name].as_f64().unwrap();
    let kernels = |side: &str| number(side, "kernels") / number(side, "steps");
    let times = kernels("after") / kernels("before");
    assert!((4.0..6.5).contains(&times), "{diff}");
}

#[test]
#[cfg(unix)]
fn exit_status_is_that_of_the_program_else_of_the_recording() {
    use std::os::unix::fs::PermissionsExt;
    let run = |arguments: &[&str]| said(Command::new(PROGRAM).arg("run").args(arguments));
    let ends = |said: &Said, code: i32, last: &str| {
        assert_eq!(said.code, Some(code), "{}", said.err);
        assert_eq!(said.err.lines().last(), Some(last), "{}", said.err);
    };
    let failed = run(&["--", "sh", "-c", "echo out; exit 3"]);
    ends(
        &failed,
        3,
        "pyprof-advise: exit status 3: that of the program",
    );
    assert_eq!(failed.out, "out\n");
    let killed = run(&["--", "sh", "-c", "kill -9 $$"]);
    ends(
        &killed,
        137,
        "pyprof-advise: exit status 137: the program was ended by signal 9",
    );
    let nothing = run(&["--", "true"]);
    ends(
        &nothing,
        2,
        "pyprof-advise: exit status 2: no report was written",
    );
    assert!(
        nothing
            .err
            .contains("no Python of the program started with the recorder")
    );
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("job.sh");
    std::fs::write(&script, "exit 4").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let without_interpreter = run(&["--", script.to_str().unwrap()]);
    ends(
        &without_interpreter,
        4,
        "pyprof-advise: exit status 4: that of the program",
    );
    let missing = run(&["--", "no-such-program"]);
    assert!(
        missing.err.contains("cannot run `no-such-program`"),
        "{}",
        missing.err
    );
    let script = run(&["--", "train.py"]);
    assert!(
        script.err.contains("`-- python train.py`"),
        "{}",
        script.err
    );
    // Mistakes are found before the program runs.
    let mistake = run(&["--select", "no/such-rule", "--", "sh", "-c", "echo ran"]);
    assert_eq!(
        (mistake.code, mistake.out.as_str()),
        (Some(2), ""),
        "{}",
        mistake.err
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("old.json"), "{}").unwrap();
    let full = run(&["--keep", folder.path().to_str().unwrap(), "--", "true"]);
    assert!(
        full.err.contains("expected an empty or a new folder"),
        "{}",
        full.err
    );
}
