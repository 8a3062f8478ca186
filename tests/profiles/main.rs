//! From profile to findings: readers, correlation, costs and advice, for synthetic and real profiles.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod cost_coverage;
mod explained;
mod findings;
mod gaps;
mod gpu_inference;
mod graph_replays;
mod kernel_names;
mod kineto;
mod one_cause;
mod pairs;
mod raw_counts;
mod readers;
mod reviewed_findings;
mod richer_recordings;
mod scrub;
mod scrub_host;
mod serving;
mod shuffled;
mod survey;
mod synthetic_profiles;
mod tracelens;
mod whole_program;

#[path = "../support/mod.rs"]
mod support;

use support::{shared, synthetic, verdicts};
