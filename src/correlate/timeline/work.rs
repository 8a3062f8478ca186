//! What the timeline is made of: the work of a device, and what is known of the host.

use crate::correlate::model::ExcludedTime;
use crate::profile::{
    CallId, CorrelationMap, DeviceId, MemoryCopy, MemoryKind, ProcessId, RangeId, SerialNumber,
    Span,
};

/// What the timeline needs to know of the host.
#[derive(Debug)]
pub(crate) struct TimelineInputs<'a> {
    /// One per kernel.
    pub launches: &'a [Option<CallId>],
    /// The calls of other work, as returned by [`work_calls`](crate::correlate::launches::work_calls).
    pub work_calls: &'a CorrelationMap<CallId>,
    /// Ranges in which data loading happened.
    pub data_loading: &'a [RangeId],
    /// Ranges in which code was compiled.
    pub compiling: &'a [RangeId],
    /// First calls of operators that took far longer than all later ones.
    pub first_calls: &'a [RangeId],
    /// Host time whose work is not analyzed.
    pub excluded: &'a [ExcludedTime],
    /// Per process: the host time from the start of its first analyzed step to the end of its last one.
    /// Empty unless the window is trimmed to steps.
    pub steps: &'a [Option<Span>],
    /// Number of analyzed steps; 0 where none are known.
    pub step_count: usize,
    /// The closed ranges of the user.
    pub user_ranges: &'a [RangeId],
}

/// Whether a copy reads or writes pageable memory: the driver has to stage it, and the host waits.
pub(super) fn is_pageable(copy: &MemoryCopy) -> bool {
    copy.src == MemoryKind::Pageable || copy.dst == MemoryKind::Pageable
}

/// A row of GPU work other than a kernel.
pub(super) type OtherWork = (ProcessId, DeviceId, Option<SerialNumber>, Span);

/// What kind of work an item of the sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    Kernel,
    Communication,
    Copy,
    Set,
    Graph,
    /// Work, or host time, that is not analyzed.
    Excluded,
}

/// Something that kept a device busy; `row` is its row in the table of its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkItem {
    pub(super) span: Span,
    pub(super) kind: WorkKind,
    pub(super) row: u32,
}
