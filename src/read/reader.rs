//! The interface of readers of input formats.

use std::path::Path;

use super::pruning::Pruning;
use crate::profile::{Format, Profile};

/// Reads one input format.
pub trait Reader: Sync {
    /// The format it reads.
    fn format(&self) -> &'static Format;
    /// Whether the file is of this format. Depends on the content, never on the name.
    fn recognizes(&self, input: &Input<'_>) -> bool;
    /// Reads the file, with `pruning` without the ranges that are not needed.
    ///
    /// # Errors
    /// When nothing can be read. Missing data is mentioned in a note of the profile.
    fn read(
        &self,
        path: &Path,
        pruning: Option<&dyn Pruning>,
        progress: &dyn Progress,
    ) -> Result<Profile, ReadError>;
}

/// The data from which a reader recognizes its format.
#[derive(Debug)]
pub struct Input<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its first bytes, at most 4 KiB.
    pub head: &'a [u8],
    /// Its table names, if it is a readable SQLite database.
    pub tables: Option<&'a [String]>,
}

impl Input<'_> {
    /// Whether the name of any table begins with `beginning`. Case is ignored, as in SQLite.
    pub(super) fn has_table_like(&self, beginning: &str) -> bool {
        self.tables.unwrap_or_default().iter().any(|name| {
            name.get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning))
        })
    }

    /// Whether there is a table of this name.
    pub(super) fn has_table(&self, wanted: &str) -> bool {
        self.tables
            .unwrap_or_default()
            .iter()
            .any(|name| name.eq_ignore_ascii_case(wanted))
    }
}

/// Receives the progress of reading a file. The default methods do nothing.
pub trait Progress: Sync {
    /// Called when a phase begins, which reads `total` rows or bytes, if known.
    fn phase(&self, _name: &str, _total: Option<u64>) {}
    /// Called when this many more rows or bytes of the phase have been read.
    fn advance(&self, _rows: u64) {}
}

/// Ignores progress.
#[derive(Debug)]
pub struct NoProgress;
impl Progress for NoProgress {}

/// The reason why a file could not be read. Its message is `PATH: PROBLEM`, then the remedy in a
/// separate line.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}\n  {remedy}")]
pub struct ReadError {
    /// The file as given by the user.
    pub path: String,
    /// The expectation and the problem.
    pub problem: String,
    /// How to solve the problem.
    pub remedy: String,
}

impl ReadError {
    pub(crate) fn new(
        path: &Path,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ReadError {
        ReadError {
            path: path.display().to_string(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}
