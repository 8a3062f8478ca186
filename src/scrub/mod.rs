//! Copies a profile without private data: environment variables, tokens, names of users and machines,
//! home folders.
//!
//! The copy is a new file that contains only content that is known to be harmless or was cleaned. So no
//! free page, deleted row, index, trigger, write-ahead log or compressed remainder can contain anything
//! else. Afterwards, the bytes of the copy are searched for everything that should have been removed.

use std::path::Path;

use crate::profile::Container;
use crate::read::{self, ChangeGuard, Progress, ReadError};

mod credentials;
mod database;
mod redactor;
mod rescan;
mod source;
mod trace;

pub use redactor::RedactionKind;
pub use rescan::Rescan;
pub use source::SourceCleaner;

/// The reason why no copy was made.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    /// The profile could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The copy could not be written.
    #[error("{file}: {problem}")]
    Write {
        /// The copy.
        file: String,
        /// The problem.
        problem: String,
    },
}

/// Counts of removed content, and the result of searching the copy.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Number of rows and members that were omitted: variables, settings, unreferenced strings.
    pub left_out: u64,
    /// Number of texts that were shortened or emptied.
    pub changed: u64,
    /// The result of searching the finished copy.
    pub rescan: Rescan,
}

/// Writes a copy of the profile `from` to `to`, an empty file, and searches it for private data.
/// `packed` compresses the copy of a trace.
///
/// # Errors
/// When `from` is not a profile, is damaged, or cannot be read to its end; when `to` cannot be written.
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
    let (mut summary, redactor) = guard.confirm(from, copied)?;
    progress.phase("looking through the copy", None);
    let rescan = rescan::rescan(to, &redactor, is_trace);
    summary.rescan = rescan.map_err(|e| cannot_write(to, &e))?;
    Ok(summary)
}

fn cannot_write(file: &Path, error: &dyn std::fmt::Display) -> ScrubError {
    ScrubError::Write {
        file: file.display().to_string(),
        problem: format!("cannot be written: {error}"),
    }
}
