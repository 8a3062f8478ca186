//! The rule engine, on rules and runs made by hand.

// Helpers of tests may fail like tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod bench;
mod bounds;
mod builtin;
mod conditions;
mod judging;
mod loading;
