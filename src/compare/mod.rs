//! Merges several [`Report`]s, compares two, and hides findings that a baseline or a suppression
//! covers.
//!
//! It works on reports only, never on profiles: the ranks of a job can be analyzed on different
//! machines at different times, and their reports give the same result as all profiles at once.
//!
//! [`Report`]: crate::report::Report

mod baseline;
mod comparison;
pub mod diff;
mod findings;
mod identity;
mod lists;
mod merge;
mod sites;
mod suppress;
mod tables;
pub(crate) mod welch;
mod windows;

pub use baseline::against;
pub use diff::{Diff, diff};
pub use identity::number_ranks;
pub use merge::merge;
pub use suppress::{Suppression, suppress};
pub(crate) use windows::{join, not_joined};
