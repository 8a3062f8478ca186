//! Helpers shared by several test programs.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses its part of this"
)]

pub(crate) mod cli_sandbox;
pub(crate) mod csv;
pub(crate) mod shared;
pub(crate) mod synthetic;
pub(crate) mod verdicts;
