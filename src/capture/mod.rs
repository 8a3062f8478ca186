//! Records a program, or times its steps: `pyprof-advise run` and `try`.
//!
//! A Python package, embedded in the binary, is put on the program's `PYTHONPATH`. In every process that
//! imports torch it counts steps, records some of them with torch.profiler, and writes traces and a small
//! state file into one folder. This module prepares that folder, starts the program, reads the states, and
//! writes the manifest of the folder.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

pub(crate) mod nsys;
mod package;
pub(crate) mod scalene;
mod settings;
mod start;
mod states;

pub(crate) use package::{folder_of as package_folder, treatments, unpack};
pub(crate) use settings::{Recorder, Settings};
pub(crate) use start::{Ended, Program};
pub(crate) use states::{CaptureProgress, CheckValues, States, Timed};

use crate::read::manifest::{FileEntry, Manifest};

/// How often the states of the processes are read.
pub(crate) const POLL: Duration = Duration::from_millis(100);

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
