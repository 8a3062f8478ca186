//! Measures the time of the program on large profiles, compared with a floor in the same run: for
//! SQLite, reading every column of every table that the readers use, by one thread; for JSON,
//! decompression and a typed parse of the fields that the reader uses. Neither keeps any data.
//!
//! `cargo bench --bench speed` creates its inputs in a temporary folder (about 1 GB), alternates floor
//! and program, and prints medians. `SPEED_KERNELS` (1,000,000) and `SPEED_ROUNDS` (5) set the size,
//! `SPEED_FILE` adds a profile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

mod floor;
mod kineto;
mod nsys;

const TOOL: &str = env!("CARGO_BIN_EXE_pyprof-advise");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The floor runs in a separate process, so that both sides include process start.
    match arguments.as_slice() {
        [flag, path] if flag == "--floor-sqlite" => return floor::sqlite(Path::new(path)),
        [flag, path] if flag == "--floor-json" => return floor::json(Path::new(path)),
        _ => {}
    }
    let kernels = setting("SPEED_KERNELS", 1_000_000);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    println!(
        "| input | command | floor s | tool s | of floor | goal | floor CPU s | tool CPU s | peak MiB |"
    );
    println!("| --- | --- | --: | --: | --: | --: | --: | --: | --: |");

    let large = at("large.sqlite");
    nsys::write(&large, kernels);
    let whole = compare("large nsys", &large, "advise", "--floor-sqlite", 0.5);
    compare("large nsys", &large, "parse", "--floor-sqlite", 1.5);
    compare("large nsys", &large, "prof", "--floor-sqlite", 1.5);
    std::fs::remove_file(&large).unwrap();

    let tenth = at("tenth.sqlite");
    nsys::write(&tenth, kernels / 10);
    let part = compare("a tenth of it", &tenth, "advise", "--floor-sqlite", 0.5);

    let trace = at("trace.json.gz");
    kineto::write(&trace, kernels / 25);
    compare("Kineto trace", &trace, "advise", "--floor-json", 1.3);

    let small = at("small.sqlite");
    nsys::write(&small, 2_000);
    let quick = compare(
        "1 MB nsys",
        &small,
        "advise",
        "--floor-sqlite",
        f64::INFINITY,
    );
    if let Some(own) = std::env::var_os("SPEED_FILE").map(PathBuf::from) {
        let json = own.extension().is_none_or(|e| e != "sqlite");
        let (floor, goal) = match json {
            true => ("--floor-json", 1.3),
            false => ("--floor-sqlite", 0.5),
        };
        compare("SPEED_FILE", &own, "advise", floor, goal);
    }
    println!(
        "\nTen times the input takes {:.1} times as long (goal: at most 12).",
        whole.as_secs_f64() / part.as_secs_f64()
    );
    println!(
        "A profile of 1 MB answers in {:.0} ms (goal: at most 50).",
        quick.as_secs_f64() * 1e3
    );
}

fn setting(name: &str, default: usize) -> usize {
    let text = std::env::var(name).ok();
    text.and_then(|t| t.parse().ok()).unwrap_or(default)
}

/// Runs floor and program alternately, prints a row with the medians, and returns the program's.
fn compare(input: &str, path: &Path, command: &str, floor: &str, goal: f64) -> Duration {
    let rounds = setting("SPEED_ROUNDS", 5);
    let mut floors = Vec::new();
    let mut tools = Vec::new();
    for _ in 0..rounds {
        let this = std::env::current_exe().unwrap();
        floors.push(measure(Command::new(this).arg(floor).arg(path)));
        let mut tool = Command::new(TOOL);
        if command != "advise" {
            tool.arg(command);
        }
        tool.arg(path).arg("--quiet");
        tools.push(measure(&mut tool));
    }
    let median = |of: &dyn Fn(&Measured) -> f64, list: &[Measured]| {
        let mut values: Vec<f64> = list.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let wall = |m: &Measured| m.wall.as_secs_f64();
    let (slow, fast) = (median(&wall, &floors), median(&wall, &tools));
    let bytes = std::fs::metadata(path).unwrap().len() / 1_000_000;
    let goal = match goal.is_finite() {
        true => format!("{goal:.1}"),
        false => "-".to_owned(),
    };
    println!(
        "| {input}, {bytes} MB | `{command}` | {slow:.3} | {fast:.3} | {:.2} | {goal} | {:.2} | {:.2} | {:.0} |",
        fast / slow,
        median(&|m| m.cpu, &floors),
        median(&|m| m.cpu, &tools),
        median(&|m| m.peak_mib, &tools),
    );
    Duration::from_secs_f64(fast)
}

/// One run of a process.
struct Measured {
    wall: Duration,
    /// CPU seconds of all its threads, if the system reports them (Linux); otherwise 0.
    cpu: f64,
    /// Peak memory, if the system reports it.
    peak_mib: f64,
}

fn measure(command: &mut Command) -> Measured {
    let since = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let folder = format!("/proc/{}", child.id());
    let (mut cpu, mut peak_mib) = (0.0, 0.0_f64);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        cpu = cpu_seconds(&folder).unwrap_or(cpu);
        peak_mib = peak(&folder).unwrap_or(0.0).max(peak_mib);
        std::thread::sleep(Duration::from_millis(2));
    };
    let wall = since.elapsed();
    assert!(status.success(), "{command:?}");
    Measured {
        wall,
        cpu,
        peak_mib,
    }
}

fn peak(folder: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("{folder}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Sum of fields 14 and 15 of `/proc/PID/stat` (proc(5)), in ticks of 10 ms.
fn cpu_seconds(folder: &str) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let both = ticks(11)? + ticks(12)?;
    (both > 0.0).then_some(both / 100.0)
}
