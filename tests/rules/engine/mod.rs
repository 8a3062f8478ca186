//! The rule engine, on rules and runs made by hand.

mod bounds;
mod builtin;
mod conditions;
mod evaluation;
mod fake_table;
mod loading;
