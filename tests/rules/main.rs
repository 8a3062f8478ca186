//! Rules, GPU specs and operator costs: loading, evaluation and conventions.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod diagnostics;
mod engine;
mod gpu_calibration;
mod gpu_selection;
mod gpu_specs;
mod reference_costs;
mod rule_conventions;

#[path = "../support/mod.rs"]
mod support;

use support::shared;
