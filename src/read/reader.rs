//! The interface of readers of input formats.

use std::path::Path;

use super::pruning::Pruning;
use crate::profile::{Format, Profile};

/// Reads one input format.
pub trait Reader: Sync {
    /// The format it reads.
    fn format(&self) -> &'static Format;
    /// Whether the file is of this format, with the reason. Depends on the content, never on the name.
    fn sniff(&self, input: &Input<'_>) -> Sniff;
    /// Reads the whole file.
    ///
    /// # Errors
    /// When nothing can be read. Missing data is mentioned in a note of the profile.
    fn read(&self, path: &Path, progress: &dyn Progress) -> Result<Profile, ReadError>;
    /// Reads the file without the ranges that are not needed. A reader of large files overrides this
    /// to remove them while it reads.
    ///
    /// # Errors
    /// As [`Reader::read`].
    fn read_pruned(
        &self,
        path: &Path,
        pruning: &dyn Pruning,
        progress: &dyn Progress,
    ) -> Result<Profile, ReadError> {
        let mut profile = self.read(path, progress)?;
        pruning.prune(&mut profile);
        Ok(profile)
    }
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

/// Whether a file is of a format, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sniff {
    /// It is.
    Yes(String),
    /// It is not.
    No(String),
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
