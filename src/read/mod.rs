//! Floor 2: one module per input format behind one trait. Every schema difference is absorbed here
//! and nowhere else. Files are opened read-only and never changed; nothing in them is executed.

use std::path::Path;

use crate::profile::{Format, Profile};

/// One input format.
pub trait Reader: Sync {
    fn format(&self) -> Format;
    /// Whether the file is of this format, and why or why not. Looks at content, never at the name.
    fn sniff(&self, input: &Input<'_>) -> Sniff;
    /// Reads the whole file.
    ///
    /// # Errors
    /// When nothing can be read; what is merely missing becomes a note of the profile.
    fn read(&self, path: &Path, progress: &dyn Progress) -> Result<Profile, ReadError>;
}

/// What a reader looks at to recognise its format.
#[derive(Debug)]
pub struct Input<'a> {
    pub path: &'a Path,
    /// The first bytes of the file, at most 4 KiB.
    pub head: &'a [u8],
    /// Table names, when the file is a readable SQLite database.
    pub tables: Option<&'a [String]>,
}

/// A recognition with its reason, for error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sniff {
    Yes(String),
    No(String),
}

/// Told what is being read; a no-op unless someone watches.
pub trait Progress: Sync {
    fn phase(&self, _name: &str, _total: Option<u64>) {}
    fn advance(&self, _rows: u64) {}
}

/// Nobody watches.
#[derive(Debug)]
pub struct Quiet;
impl Progress for Quiet {}

/// Why a file could not be read: what was expected, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}\n  {remedy}")]
pub struct ReadError {
    pub path: String,
    pub problem: String,
    pub remedy: String,
}
