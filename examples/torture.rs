//! The long fault harness: `cargo run --release --example torture -- FOLDER_OR_PROFILE...` (default:
//! `profiles` below the folder named by `PYPROF_ADVISE_SHARED`, and the example profile).
//!
//! Every profile is truncated at 50 positions, changed in 1 to 64 bytes in 1,000 variants (fewer if it
//! is larger than 256 KiB, to limit the time), and edited: every table dropped, times reversed, columns
//! renamed, values replaced. Then come files that no profiler writes. Environment variables change the
//! amount of work: `TORTURE_CUTS`, `TORTURE_FLIPS`, `TORTURE_ONE_IN=N` for one in N edits of columns
//! and texts, `TORTURE_MARKERS` for the number of identical ranges (ten million), `TORTURE_BOMB` for
//! the MiB of a gzip bomb, `TORTURE_SEED` for other random numbers. Ends with status 1 and a list of
//! the violations, if there are any.
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

#[path = "../tests/support/faults/mod.rs"]
mod faults;

use faults::damage::Dice;
use faults::extremes::extremes;
use faults::{Harness, How, Limits};

/// Maximum size in bytes of a profile that is changed in all variants; of larger ones, proportionally
/// fewer variants are made.
const SMALL: usize = 256 << 10;
/// Minimum number of variants.
const LEAST: usize = 100;

fn main() -> ExitCode {
    let profiles = profiles();
    let scratch = std::env::temp_dir().join(format!("torture-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a scratch folder");
    let limits = Limits {
        time: Duration::from_secs(120),
        bytes: 256 << 20,
        bytes_per_byte: 24,
    };
    let mut harness = Harness::new(&scratch, limits);
    let mut dice = Dice(setting("TORTURE_SEED", 1) as u64);
    let flips = setting("TORTURE_FLIPS", 1_000);
    let since = Instant::now();
    for path in &profiles {
        let bytes = std::fs::metadata(path).map_or(0, |m| m.len()) as usize;
        let fewer = flips * SMALL / bytes.max(SMALL);
        let how = How {
            cuts: setting("TORTURE_CUTS", 50),
            flips: fewer.max(LEAST).min(flips),
            one_in: setting("TORTURE_ONE_IN", 10),
        };
        let before = harness.cases;
        faults::torture(&mut harness, path, how, &mut dice);
        println!(
            "{}: {} cases, {} of them with bytes changed, {:.0?} so far, {} faults",
            path.display(),
            harness.cases - before,
            how.flips,
            since.elapsed(),
            harness.faults.len()
        );
    }
    extremes(
        &mut harness,
        100_000,
        setting("TORTURE_MARKERS", 10_000_000),
        setting("TORTURE_BOMB", 4_000),
    );
    println!(
        "{} cases in {:.0?}: {} judged, {} refused, {} faults\nslowest: {:?}, {}\nlargest: {} MiB, {}",
        harness.cases,
        since.elapsed(),
        harness.judged,
        harness.cases - harness.judged,
        harness.faults.len(),
        harness.slowest.value,
        harness.slowest.case,
        harness.largest.value >> 20,
        harness.largest.case,
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
        let shared = std::env::var_os("PYPROF_ADVISE_SHARED").map(PathBuf::from);
        named.extend(shared.map(|folder| folder.join("profiles")));
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
