//! The output of the program: reports in every format, comparisons, exported tables, PyProf's tables.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod diff;
mod diff_pairs;
mod diff_wall;
mod export;
mod formats;
mod pyprof;
mod report;
mod resampled;
mod sample;

#[path = "../support/mod.rs"]
mod support;

use support::{cli_sandbox, shared, synthetic};
