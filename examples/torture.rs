//! The long fault harness: `cargo run --release --example torture -- FOLDER_OR_PROFILE...`
//! (default: the folder `PYPROF_ADVISE_PROFILES` names, and the example profile).
//!
//! Every profile is cut at 50 places, changed in 1 to 64 bytes in so many variants that there are
//! 1,000 in all, and edited: tables dropped, columns renamed, values replaced. `TORTURE_ONE_IN=N`
//! takes one in N edits, `TORTURE_SEED=N` other random numbers, `TORTURE_MARKERS=N` other than ten
//! million identical ranges. Ends with status 1 and a list if anything did what it must not.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test program"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[path = "../tests/support/faults.rs"]
mod faults;

use faults::{Dice, Harness, How, Limits};

const VARIANTS: usize = 1_000;

fn main() -> ExitCode {
    let profiles = profiles();
    let scratch = std::env::temp_dir().join(format!("torture-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    let limits = Limits {
        time: Duration::from_secs(120),
        bytes: 4 << 30,
    };
    let mut harness = Harness::new(&scratch, limits);
    let mut dice = Dice(setting("TORTURE_SEED", 1) as u64);
    let how = How {
        cuts: setting("TORTURE_CUTS", 50),
        flips: VARIANTS.div_ceil(profiles.len().max(1)),
        one_in: setting("TORTURE_ONE_IN", 10),
    };
    let since = Instant::now();
    for path in &profiles {
        let before = harness.cases;
        faults::torture(&mut harness, path, how, &mut dice);
        println!(
            "{}: {} cases, {:?} so far, {} faults",
            path.display(),
            harness.cases - before,
            since.elapsed(),
            harness.faults.len()
        );
    }
    faults::extremes(
        &mut harness,
        100_000,
        setting("TORTURE_MARKERS", 10_000_000),
        4_000,
    );
    println!(
        "{} cases in {:?}: {} judged, {} refused, slowest {:?}, peak {} MiB, {} faults",
        harness.cases,
        since.elapsed(),
        harness.judged,
        harness.cases - harness.judged,
        harness.slowest,
        harness.largest >> 20,
        harness.faults.len()
    );
    for fault in &harness.faults {
        println!("{fault}");
    }
    if harness.faults.is_empty() {
        let _ = std::fs::remove_dir_all(&scratch);
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

fn profiles() -> Vec<PathBuf> {
    let mut named: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if named.is_empty() {
        named.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite"));
        named.extend(std::env::var_os("PYPROF_ADVISE_PROFILES").map(PathBuf::from));
    }
    let mut files = Vec::new();
    for path in named {
        match std::fs::read_dir(&path) {
            Ok(entries) => files.extend(entries.flatten().map(|e| e.path())),
            Err(_) => files.push(path),
        }
    }
    files.retain(|f| f.is_file() && f.extension().is_none_or(|e| e != "md" && e != "txt"));
    files.sort();
    files
}
