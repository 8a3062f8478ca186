//! Every output format, for the reports of the fixture and of real profiles, and for reports full of
//! hostile text: each is well-formed and contains no active content.

use crate::shared;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use pyprof_advise::report::{self, Report};

mod browser;
pub(crate) mod check;
mod hostile;
mod hostile_text;
mod human;
mod machine;

/// The report of a profile as JSON; `None` if it cannot be analyzed.
fn reported(profile: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .arg(profile)
        .args(["--format", "json", "--quiet"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(text)
}

/// The report of the example in the repository.
fn example() -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
    report::read_json(&reported(&path, &["--gpu", "v100"]).unwrap()).unwrap()
}

/// The JSON reports of the example and of every real profile that can be analyzed, created once.
fn all() -> &'static [(String, String)] {
    static ALL: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite");
        let mut files = vec![fixture];
        files.extend(real());
        files
            .iter()
            .filter_map(|file| {
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                Some((name, reported(file, &[])?))
            })
            .collect()
    });
    &ALL
}

fn real() -> Vec<PathBuf> {
    shared::profiles_or_fixtures()
}

/// Every report with its name.
fn reports() -> impl Iterator<Item = (&'static str, Report)> {
    all()
        .iter()
        .map(|(name, json)| (name.as_str(), report::read_json(json).unwrap()))
}
