//! JSON profiles of Scalene, old and new.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::model::{HostLine, HostProfile, name};

#[derive(Deserialize)]
struct Profile {
    elapsed_time_sec: f64,
    files: BTreeMap<String, File>,
}

#[derive(Deserialize)]
struct File {
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    lineno: u32,
    n_cpu_percent_python: f64,
    n_cpu_percent_c: f64,
    #[serde(default)]
    n_sys_percent: f64,
}

/// `None` if the file is something else, or is damaged. Source lines in it are not read.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let profile: Profile = serde_json::from_str(text).ok()?;
    let seconds = profile.elapsed_time_sec;
    let lines = profile.files.into_iter().flat_map(|(file, content)| {
        let file = name(&file);
        content.lines.into_iter().map(move |line| {
            let percent = line.n_cpu_percent_python + line.n_cpu_percent_c + line.n_sys_percent;
            HostLine {
                file: file.clone(),
                line: line.lineno,
                self_ns: percent / 100.0 * seconds * 1e9,
                ..HostLine::default()
            }
        })
    });
    Some(HostProfile::of(
        "Scalene",
        lines.filter(|line| line.self_ns > 0.0),
    ))
}
