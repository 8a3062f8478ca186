//! Real profiles and reference tables, which are too large for the repository.
//!
//! The environment variable `PYPROF_ADVISE_SHARED` names the folder that contains `profiles`,
//! `profiles_pairs`, `host_profiles`, `attacks` and `reference`. A skipped test prints a line that
//! `cargo test` does not capture; `.ci/skipped` counts these lines.

// Each test program uses a part of this module.
#![allow(dead_code)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::Write;
use std::path::{Path, PathBuf};

/// The environment variable that names the folder.
pub(crate) const VARIABLE: &str = "PYPROF_ADVISE_SHARED";

/// The environment variable that names a Python with torch, transformers and lightning.
const TORCH: &str = "PYPROF_ADVISE_TORCH";

/// The Python with torch, or `None` after counting the test as skipped.
pub(crate) fn python() -> Option<PathBuf> {
    let python = std::env::var_os(TORCH).map(PathBuf::from);
    if python.is_none() {
        skip(&format!("{TORCH} is not set"));
    }
    python
}

/// Counts the running test as skipped, for a reason that several tests may share.
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let line = format!("skipped: {}::{test}: {reason}\n", env!("CARGO_CRATE_NAME"));
    // `eprintln!` would be captured, and discarded because the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The path of a file or folder in the shared folder, or `None` after counting the test as skipped.
pub(crate) fn path(below: &str) -> Option<PathBuf> {
    let path = path_if_set(below);
    if path.is_none() {
        skip(&format!("{VARIABLE} is not set"));
    }
    path
}

/// As [`path`], for tests that are not skipped because they have other files to run on.
pub(crate) fn path_if_set(below: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(VARIABLE)?).join(below);
    assert!(path.exists(), "{VARIABLE}: there is no {}", path.display());
    Some(path)
}

/// The path of a real profile, or `None` after counting the test as skipped. If the variable is not
/// set, the scrubbed copy in `fixtures/real` is used.
pub(crate) fn profile(name: &str) -> Option<PathBuf> {
    let below = format!("profiles/{name}");
    let copy = fixtures().join(name);
    path_if_set(&below).or_else(|| {
        if copy.exists() {
            Some(copy)
        } else {
            path(&below)
        }
    })
}

/// All real profiles sorted by path, including those in folders of several ranks, or `None` after
/// counting the test as skipped.
pub(crate) fn profiles() -> Option<Vec<PathBuf>> {
    Some(files(&path("profiles")?))
}

/// As [`profiles`]; the profiles of the repository if the variable is not set.
pub(crate) fn profiles_or_fixtures() -> Vec<PathBuf> {
    files(&path_if_set("profiles").unwrap_or_else(fixtures))
}

/// The profiles of pairs with a known truth; none where the variable is not set.
pub(crate) fn pairs() -> Vec<PathBuf> {
    path_if_set("profiles_pairs").map_or_else(Vec::new, |folder| files(&folder))
}

/// The folder of small real profiles in the repository.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/real")
}

/// The name of a profile below the folder `profiles` or `profiles_pairs`: `lm_net.sql`,
/// `dlrm_8ranks/rank0.json.gz`, `ao_vit/4_tuned.json.gz`.
pub(crate) fn name(profile: &Path) -> String {
    let folders = [
        Some(path_if_set("profiles").unwrap_or_else(fixtures)),
        path_if_set("profiles_pairs"),
    ];
    let mut folders = folders.iter().flatten();
    let below = folders.find_map(|folder| profile.strip_prefix(folder).ok());
    below.unwrap_or(profile).to_string_lossy().into_owned()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e != "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}
