//! How much memory the system allows.

use std::path::PathBuf;

use super::args::Console;
use super::output::{CommandResult, Failure};

/// Memory of the smallest profile, in bytes.
const LEAST_MEMORY: u64 = 256 << 20;

/// The memory that the system allows this program, in bytes, if it limits it.
#[cfg(unix)]
fn allowed_memory() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(not(unix))]
fn allowed_memory() -> Option<u64> {
    None
}

/// Reports an error where less memory is allowed than the program takes for the smallest profile: it would
/// end in the middle.
pub(super) fn enough_memory() -> CommandResult {
    match allowed_memory() {
        Some(bytes) if bytes < LEAST_MEMORY => Err(Failure::Unusable(format!(
            "at most {} MiB of memory are allowed, {} MiB are needed\n  allow more (`ulimit -v`)",
            bytes >> 20,
            LEAST_MEMORY >> 20
        ))),
        _ => Ok(()),
    }
}

/// Warns where a file may take more memory than is allowed: a million kernels take about the size of their
/// file. Without memory the program ends in the middle.
pub(super) fn warn_of_memory(files: &[PathBuf], console: Console) {
    let sizes = files
        .iter()
        .filter_map(|file| Some(file.metadata().ok()?.len()));
    let largest = sizes.max().unwrap_or(0);
    let allowed = allowed_memory().filter(|bytes| *bytes < LEAST_MEMORY.saturating_add(largest));
    if let Some(bytes) = allowed {
        console.warn(&format!(
            "at most {} MiB of memory are allowed (`ulimit -v`); a profile of {} MiB may need more",
            bytes >> 20,
            largest >> 20
        ));
    }
}
