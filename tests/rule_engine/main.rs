//! The rule engine, on rules and runs made by hand.

mod bench;
mod builtin;
mod loading;
