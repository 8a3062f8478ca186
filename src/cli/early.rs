//! Reading a profile while the rules are loaded.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use super::Failure;
use super::advise::read_profile;
use crate::gpu::load;
use crate::profile::Profile;
use crate::read;

/// The largest file, in bytes, that is read early: one that takes about as long as the rules, so that
/// nobody wonders why there is no progress. All others gain nothing: both use every core there is.
const LARGEST: u64 = 4 << 20;

/// A file that is being read.
pub(super) struct Early(JoinHandle<Result<Profile, Failure>>);

/// Begins to read a small file when it is the only one.
///
/// Mistakes in rules and options come before what is wrong with the file, and must not wait for it:
/// whoever finds one leaves, and the thread ends with the program.
pub(super) fn start(profiles: &[PathBuf]) -> Option<Early> {
    let [only] = profiles else { return None };
    if !is_small(only) {
        return None;
    }
    let path = only.clone();
    let read = std::thread::Builder::new().spawn(move || {
        let profile = read_profile(&path, &read::NoProgress);
        // What is needed next, while the rules are still being loaded.
        load::built_in();
        profile
    });
    read.ok().map(Early)
}

/// A pipe can be read once only, and a folder has many files.
fn is_small(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= LARGEST)
}

impl Early {
    /// The profile, as soon as it is read.
    pub(super) fn finish(self) -> Result<Profile, Failure> {
        match self.0.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
