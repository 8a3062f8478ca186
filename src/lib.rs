//! `pyprof-advise` reads a GPU profile of a PyTorch program and says, layer by layer, what to
//! change, in what order, how much time it should give back, and why it believes so.
//!
//! One road, and data flows one way:
//!
//! ```text
//! file -read-> Profile -correlate-> Run -cost-> Costed -facts, judge-> Verdict -report-> Markdown, JSON
//! ```
//!
//! | floor | module | what it is |
//! | --- | --- | --- |
//! | 0 | [`base`] | data types, units and their printing, spanned diagnostics, "did you mean", escaping |
//! | 1 | [`profile`], [`gpu`] | the neutral model every reader fills; a GPU's peaks and limits |
//! | 2 | [`read`] | one module per input format behind one trait |
//! | 3 | [`correlate`] | kernel, launch, ranges, operator, arguments, layer, direction, step, timeline |
//! | 4 | [`cost`] | operator and shapes to FLOPs and bytes; kernel names; the roofline |
//! | 5 | [`facts`] | the waist: one table of facts; above it there are only names and values |
//! | 6 | [`judge`] | rules: load, check, evaluate, resolve conflicts, claim savings, rank, prove |
//! | 7 | [`report`] | one `Report`, and the views of it |
//! | 7 | [`compare`] | several reports put together (the ranks of a job), or one held against another |
//! | 7 | [`formats`] | the table of output formats: names, file endings, renderers |
//! | 7 | [`export`] | the work of several ranks as one table, for engines that ask their own questions |
//! | 7 | [`pyprof`] | PyProf's two outputs: a dictionary and a row of columns per kernel |
//! | 7 | [`scrub`] | a copy of a profile without what should not leave the machine |
//! | 8 | [`cli`] | one file per command |
//!
//! A module uses only lower floors; `tests/repo/repo_conventions.rs` enforces it.
#![forbid(unsafe_code)]

pub mod base;
pub mod cli;
pub mod compare;
pub mod correlate;
pub mod cost;
pub mod export;
pub mod facts;
pub mod formats;
pub mod gpu;
pub mod judge;
pub mod profile;
pub mod pyprof;
pub mod read;
pub mod report;
pub mod scrub;

#[cfg(test)]
#[path = "../tests/support/shared.rs"]
mod shared;

/// Doors for the fuzz targets to what is not public; see `fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads a Python literal, and the entries of a dictionary that is cut off.
    pub fn literal(text: &str) {
        let _ = crate::correlate::literal::parse(text);
        let _ = crate::correlate::literal::leading_entries(text);
    }

    /// Reads a configuration, and what is written of it again.
    pub fn configuration(text: &str) {
        crate::cli::configuration(text);
    }
}
