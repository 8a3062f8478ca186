//! Records a program, or times its steps: `pyprof-advise run` and `try`.
//!
//! A Python package, embedded in the binary, is put on the program's `PYTHONPATH`. In every process that
//! imports torch it counts steps, records some of them with torch.profiler, and writes traces and a small
//! state file into one folder. This module prepares that folder, starts the program, reads the states, and
//! writes the manifest of the folder.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::Serialize;

pub(crate) mod nsys;
mod package;
pub(crate) mod scalene;
mod start;
mod states;

pub(crate) use package::{folder_of as package_folder, treatments, unpack};
pub(crate) use start::{Ended, Program};
pub(crate) use states::{CaptureProgress, CheckValues, States, Timed};

use crate::read::manifest::{FileEntry, Manifest};

/// How often the states of the processes are read.
pub(crate) const POLL: Duration = Duration::from_millis(100);

/// What to record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Settings<'a> {
    /// Where traces and states are written.
    pub(crate) folder: &'a Path,
    /// Steps before the first window; `None`: until their length is steady.
    pub(crate) skip: Option<u32>,
    /// Steps per window.
    pub(crate) steps: u32,
    /// Longest time that a window stays open.
    pub(crate) max_seconds: u32,
    /// Whether the detailed window records Python call stacks.
    pub(crate) stack: bool,
    /// The windows, in order.
    pub(crate) windows: &'a [&'a str],
    /// Who records.
    pub(crate) recorder: Recorder,
    /// Whether the program puts ranges around operators, for a recorder that does not.
    pub(crate) names_operators: bool,
    /// Files of treatments to apply, in this order.
    pub(crate) treatments: &'a [PathBuf],
    /// The seed of the program's random number generators; `None` leaves them alone.
    pub(crate) seed: Option<u32>,
    /// A profiler of the host beside the recording.
    pub(crate) host_profiler: Option<&'a str>,
    /// Whether the program ends when everything is recorded.
    pub(crate) ends: bool,
}

/// Who records the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Recorder {
    /// torch.profiler, in the program.
    Torch,
    /// Nsight Systems, around the program.
    Nsys,
    /// A clock, in the program: only the length of steps.
    Clock,
}

/// Checks that py-spy is installed, which the program starts beside its recording.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn find_py_spy() -> io::Result<()> {
    match start::output(&["py-spy", "--version"])? {
        (true, _) => Ok(()),
        (false, said) => Err(io::Error::other(said.trim().to_owned())),
    }
}

/// Replaces the states of the processes by one manifest; returns the number of traces.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn conclude(folder: &Path, command: &[String], states: &States) -> io::Result<usize> {
    let mut files: Vec<FileEntry> = states.windows().cloned().collect();
    if folder.join(nsys::EXPORT).is_file() {
        files.push(FileEntry::of_all_processes(nsys::EXPORT));
    }
    let count = files.len();
    let manifest = Manifest::new(command.to_vec(), states.versions(), files, states.host());
    let text = serde_json::to_string_pretty(&manifest)?;
    fs::write(folder.join(crate::read::manifest::NAME), text + "\n")?;
    for file in states.files() {
        // What stays is only not needed any more.
        let _ = fs::remove_file(file);
    }
    Ok(count)
}
