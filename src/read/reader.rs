//! What a reader of an input format provides and what it is given.

use std::path::Path;

use super::pruning::Pruning;
use crate::profile::{Format, Profile};

/// Reads one input format.
pub trait Reader: Sync {
    /// The format it reads.
    fn format(&self) -> &'static Format;
    /// Whether the file is of this format, and why or why not. Looks at the content, never at the name.
    fn sniff(&self, input: &Input<'_>) -> Sniff;
    /// Reads the whole file.
    ///
    /// # Errors
    /// When nothing can be read. What is merely missing becomes a note of the profile.
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

/// What a reader looks at to recognize its format.
#[derive(Debug)]
pub struct Input<'a> {
    /// The file.
    pub path: &'a Path,
    /// Its first bytes, at most 4 KiB.
    pub head: &'a [u8],
    /// Its table names, when it is a readable SQLite database.
    pub tables: Option<&'a [String]>,
}

impl Input<'_> {
    /// Whether the name of any table begins so. Case does not matter, as in SQLite.
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

/// Is told how far the reading of a file has come. The default methods do nothing.
pub trait Progress: Sync {
    /// A phase begins, which reads `total` rows or bytes, if that is known.
    fn phase(&self, _name: &str, _total: Option<u64>) {}
    /// So many more rows or bytes of the phase have been read.
    fn advance(&self, _rows: u64) {}
}

/// Ignores progress.
#[derive(Debug)]
pub struct NoProgress;
impl Progress for NoProgress {}

/// Why a file could not be read. Its message is `PATH: PROBLEM`, then the remedy in a line of its own.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}\n  {remedy}")]
pub struct ReadError {
    /// The file, as the user gave it.
    pub path: String,
    /// What was expected, and what was found.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}
