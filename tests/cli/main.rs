//! The built program on the command line: options, exit status, errors, signals, damaged input.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod commands;
mod config;
mod damaged_profiles;
mod eager_trace;
mod exit_gates;
#[cfg(unix)]
mod github_action;
mod graph_captures;
mod guide;
mod host_faults;
mod host_profiles;
mod joined_windows;
mod known_programs;
mod limits;
mod multi_rank;
mod pyprof_examples;
mod record;
mod report_files;
mod repro;
mod shell;
#[cfg(unix)]
mod signals;
mod trial;
mod why;

#[path = "../support/mod.rs"]
mod support;

use support::{cli_sandbox, shared};
