//! Tries advice on the user's program: `pyprof-advise try`.
//!
//! A [`Treatment`] is a Python file that applies the fix of some rules from outside of the program. The program
//! is run again and again, alternating without and with treatments, and the lengths of the same steps are
//! compared by the statistics of `diff`. No file of the user is changed.

mod check;
mod model;
mod report;
mod series;
mod treatment;
mod view;

pub(crate) use check::Values;
pub(crate) use model::{NotTried, SCHEMA, Trial};
pub(crate) use report::{Candidate, ProgramAbout, best, mark, summarize};
pub(crate) use series::{Failed, Limits, Measured, RunProgram, series};
pub(crate) use treatment::{Treatment, built_in, read_folder};
pub(crate) use view::{html, markdown};
