//! Floor 7: the output formats of NVIDIA's PyProf, for scripts that read them.
//!
//! PyProf (<https://github.com/NVIDIA/PyProf>, archived 2021) worked in two steps: `parse` wrote one
//! Python dictionary per kernel, `prof` read them back and wrote one row of columns each. Both outputs
//! are written here: [`records`] returns the content of the dictionaries of a
//! [`Run`](crate::correlate::Run), [`read()`] that of a file of dictionaries, and [`rows`](rows::rows)
//! the rows of either, so that a profile and its dictionaries have the same rows.
//! `docs/pyprof-differences.md` lists how the output differs from PyProf's, and why.
//!
//! A million kernels have a few hundred different names and contexts, which records share.

mod calls;
mod context;
mod enclosing_ranges;
mod event;
mod kernel_row;
mod lines;
mod marker;
mod names;
mod numbered_ranges;
mod op_choice;
mod params;
mod parse;
mod python;
mod read;
mod record;
pub mod rows;
mod sequence;
pub mod table;

pub use lines::LineFormat;
pub use numbered_ranges::SeqMarker;
pub use parse::{records, write};
pub use read::{DictionaryError, read};
pub use record::{Dir, KernelName, LaunchContext, Record};
