//! The result of a copy.

use std::path::Path;

use super::rescan::Rescan;
use crate::read::ReadError;

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
pub struct ScrubSummary {
    /// Number of rows and members that were omitted: variables, settings, unreferenced strings.
    pub left_out: u64,
    /// Number of tables that were omitted because there are more than any profile has.
    pub tables_left_out: u64,
    /// Number of texts that were shortened or emptied.
    pub changed: u64,
    /// The result of searching the finished copy.
    pub rescan: Rescan,
}

pub(super) fn cannot_write(file: &Path, error: &dyn std::fmt::Display) -> ScrubError {
    ScrubError::Write {
        file: file.display().to_string(),
        problem: format!("cannot be written: {error}"),
    }
}
