//! What to record, and with what.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// What to record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Settings<'a> {
    /// Where traces and states are written.
    pub(crate) folder: &'a Path,
    /// Steps before the first window; `None`: until their length is steady.
    pub(crate) skip: Option<u32>,
    /// Steps per window.
    pub(crate) steps: u32,
    /// Longest time that a window stays open.
    pub(crate) max_seconds: u32,
    /// Whether the detailed window records Python call stacks.
    pub(crate) stack: bool,
    /// The windows, in order.
    pub(crate) windows: &'a [&'a str],
    /// Who records.
    pub(crate) recorder: Recorder,
    /// Whether the program puts ranges around operators, for a recorder that does not.
    pub(crate) names_operators: bool,
    /// Files of treatments to apply, in this order.
    pub(crate) treatments: &'a [PathBuf],
    /// The seed of the program's random number generators; `None` leaves them alone.
    pub(crate) seed: Option<u32>,
    /// A profiler of the host beside the recording.
    pub(crate) host_profiler: Option<&'a str>,
    /// Whether the program ends when everything is recorded.
    pub(crate) ends: bool,
}

/// Who records the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Recorder {
    /// torch.profiler, in the program.
    Torch,
    /// Nsight Systems, around the program.
    Nsys,
    /// A clock, in the program: only the length of steps.
    Clock,
}
