//! The rule engine with handmade rules and runs.

mod bounds;
mod builtin;
mod conditions;
mod copies_behind_gaps;
mod evaluation;
mod fake_table;
mod joined_findings;
mod late_launches;
mod limited_steps;
mod loading;
mod parts_of_sites;
