//! A copy of a profile without what should not leave the machine: environment variables, tokens,
//! names of users and machines, home folders.
//!
//! Nothing is taken out of a copy of the file: a new file is made, and only what is known to be
//! harmless or was cleaned goes in. So no free page, deleted row, index, trigger, write-ahead log or
//! compressed remainder can carry anything over. Afterwards the bytes of the copy are looked
//! through for everything that was to be removed.

use std::path::Path;

use crate::profile::Container;
use crate::read::{self, ChangeGuard, Progress, ReadError};

mod credentials;
mod database;
mod rescan;
mod trace;
mod words;

pub use rescan::Rescan;
pub use words::Kind;

/// Why no copy was made.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{file}: {problem}")]
    Write { file: String, problem: String },
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Rows and members that were left out whole: variables, settings, unreferenced strings.
    pub left_out: u64,
    /// Texts that were shortened or emptied.
    pub changed: u64,
    /// What the bytes of the copy were searched for, and how often it was found.
    pub rescan: Rescan,
}

/// Writes a copy of the profile `from` to `to`, an empty file, and looks through it.
///
/// # Errors
/// When `from` is no profile, is damaged, or cannot be read whole; when `to` cannot be written.
pub fn scrub(
    from: &Path,
    to: &Path,
    packed: bool,
    progress: &dyn Progress,
) -> Result<Summary, ScrubError> {
    let guard = ChangeGuard::of(from);
    let is_trace = read::recognize(from)?.container == Container::Json;
    let copied = if is_trace {
        trace::copy(from, to, packed, progress)
    } else {
        database::copy(from, to, progress)
    };
    let (mut summary, words) = guard.confirm(from, copied)?;
    progress.phase("looking through the copy", None);
    let rescan = rescan::rescan(to, &words, is_trace);
    summary.rescan = rescan.map_err(|e| cannot_write(to, &e))?;
    Ok(summary)
}

fn cannot_write(file: &Path, error: &dyn std::fmt::Display) -> ScrubError {
    ScrubError::Write {
        file: file.display().to_string(),
        problem: format!("cannot be written: {error}"),
    }
}
