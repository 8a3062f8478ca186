//! The repository: conventions of the code, generated pages, schemas, the fuzz corpus.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
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
