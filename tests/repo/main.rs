//! The repository: conventions of the code, generated pages, schemas, the fuzz corpus.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod docs;
mod evidence;
mod fuzz_corpus;
mod repo_conventions;
mod schema;
mod skipped_tests;

#[path = "../support/mod.rs"]
mod support;

use support::shared;
