//! The error type of the library.

use crate::base::InvalidArgument;
use crate::base::diag::Complaints;
use crate::gpu::select::SelectError;
use crate::host::HostProfileError;
use crate::pyprof;
use crate::read::ReadError;
use crate::report::{NotAReport, TemplateError};
use crate::scrub::ScrubError;

/// Why an operation of this crate failed. Its text says what was expected, what was found and what to
/// do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A profile could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A profile was read, but it has no GPU work to analyze.
    #[error("{0}")]
    NoKernels(String),
    /// The GPU asked for is unknown, or its file has mistakes.
    #[error(transparent)]
    Gpu(#[from] SelectError),
    /// Files of rules or costs have mistakes: one complaint each, with file, line and column.
    #[error("{}\n{}", .0.summary(), .0)]
    Files(Complaints),
    /// A copy of a profile without private data could not be made.
    #[error(transparent)]
    Scrub(#[from] ScrubError),
    /// A report template has a mistake.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A file of PyProf dictionaries could not be read.
    #[error(transparent)]
    Dictionaries(#[from] pyprof::DictionaryError),
    /// A profile of the host could not be read.
    #[error(transparent)]
    HostProfile(#[from] HostProfileError),
    /// A text is not a report that can be read.
    #[error(transparent)]
    Report(#[from] NotAReport),
    /// An argument names a rule or a column that does not exist, or does not fit.
    #[error(transparent)]
    Argument(#[from] InvalidArgument),
    /// An input or output operation failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<Complaints> for Error {
    fn from(complaints: Complaints) -> Error {
        Error::Files(complaints)
    }
}
