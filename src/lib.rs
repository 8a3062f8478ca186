//! Reads a GPU profile of a PyTorch program and reports, layer by layer, what to change, in what order,
//! how much time it could save, and why.
//!
//! ```
//! use pyprof_advise::{Advisor, report};
//!
//! # fn main() -> Result<(), pyprof_advise::Error> {
//! let advisor = Advisor::new()?;
//! let report = advisor.report("fixtures/net.sqlite")?;
//! println!("{}", report::markdown(&report)?);
//! # Ok(())
//! # }
//! ```
//!
//! Data flows one way, and [`Advisor::analyze`] runs the stations in this order:
//!
//! ```text
//! file -read-> Profile -correlate-> Run -cost-> Costed -facts, judge-> RuleResults -report-> Markdown, JSON
//! ```
//!
//! | floor | module | what it is |
//! | --- | --- | --- |
//! | 0 | [`base`] | data types, units and their printing, diagnostics with source spans, "did you mean", escaping |
//! | 1 | [`profile`], [`gpu`] | the data model that every reader fills; a GPU's peaks and limits |
//! | 2 | [`read`] | one module per input format behind one trait |
//! | 2 | [`host`] | profiles that profilers of the host wrote: one module per format |
//! | 3 | [`correlate`] | kernel, launch, ranges, operator, arguments, layer, direction, step, timeline |
//! | 4 | [`cost`] | operator and shapes to FLOPs and bytes; kernel names; the roofline |
//! | 5 | [`facts`] | one table of facts; modules above it see only names and values |
//! | 6 | [`judge`] | rules: load, check, evaluate, resolve conflicts, assign savings, rank, test |
//! | 7 | [`report`] | one `Report` and its output formats |
//! | 7 | [`compare`] | several reports merged (the ranks of a job), or two compared |
//! | 7 | [`formats`] | the table of output formats: names, file endings, renderers |
//! | 7 | [`export`] | the work of several ranks as one table, for DuckDB, Spark or polars |
//! | 7 | [`pyprof`] | PyProf's two outputs: a dictionary and a row of columns per kernel |
//! | 7 | [`scrub`] | a copy of a profile without private data |
//! | 7 | `capture` | records a program: starts it with the embedded Python package, reads what it wrote |
//! | 7 | `trial` | tries advice on the program: treatments, alternating runs, the measured savings |
//! | 7 | `repro` | writes a Python script that times the operators of a finding before and after its fix |
//! | 8 | [`advisor`], `error` | the facade of the library: the stations in order, and its error type |
//! | 9 | `cli` | the command line, one file per command (feature `cli`, on by default) |
//!
//! A module uses only modules of lower floors; `tests/repo/repo_conventions.rs` enforces it.
#![forbid(unsafe_code)]

pub mod advisor;
pub mod base;
#[cfg(feature = "cli")]
mod capture;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod correlate;
pub mod cost;
mod error;
pub mod export;
pub mod facts;
pub mod formats;
pub mod gpu;
pub mod host;
pub mod judge;
pub mod profile;
pub mod pyprof;
pub mod read;
pub mod report;
#[cfg(feature = "cli")]
mod repro;
pub mod scrub;
#[cfg(feature = "cli")]
mod trial;

pub use advisor::Advisor;
pub use error::Error;

#[cfg(test)]
#[path = "../tests/support/shared.rs"]
mod shared;

/// Access for the fuzz targets to private functions; see `fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Parses a Python literal, and the leading entries of a truncated dictionary.
    pub fn literal(text: &str) {
        let _ = crate::correlate::literal::parse(text);
        let _ = crate::correlate::literal::leading_entries(text);
    }

    /// Parses a configuration, writes it, and parses the result.
    pub fn configuration(text: &str) {
        crate::cli::configuration(text);
    }
}
