//! Floor 0: what everything else stands on. Knows no GPU and no profile format.

pub mod cel;
pub mod date;
pub mod diag;
pub mod dtype;
pub mod glob;
pub mod schema;
pub mod suggest;
pub mod temporary;
pub mod text;
pub mod toml;
pub mod units;

pub use dtype::DType;
