//! Floor 0: utilities without knowledge of GPUs or profile formats.

pub mod cel;
pub mod date;
pub mod diag;
pub mod dtype;
pub mod glob;
pub(crate) mod jinja;
pub mod schema;
pub(crate) mod search;
pub(crate) mod statistics;
pub mod suggest;
pub mod temporary;
pub mod text;
pub(crate) mod time_by;
pub mod toml;
pub mod units;
pub(crate) mod words;

pub use dtype::DType;

/// An argument names something that does not exist, or does not fit. The message says what would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidArgument(pub(crate) String);
