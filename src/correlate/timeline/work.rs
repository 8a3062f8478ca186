//! What the timeline is made of: the work of a device, and what is known of the host.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

impl WorkKind {
    /// Whether it is an analyzed kernel.
    pub(super) fn is_kernel(self) -> bool {
        matches!(self, WorkKind::Kernel | WorkKind::Communication)
    }
}

/// Something that kept a device busy; `row` is its row in the table of its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkItem {
    pub(super) span: Span,
    pub(super) kind: WorkKind,
    pub(super) row: u32,
}

/// What ran beside a kernel, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// Nothing.
    pub alone_ns: i64,
    /// Only communication, where the kernel does not communicate itself.
    pub beside_comm_ns: i64,
}

/// The starts and ends of items in time order. Starts come before ends at the same time, so that an
/// item of no length opens before it closes; among equals the first item is first.
///
/// Few items run at a time, so the ends wait in a heap: sorting all of them took several times as
/// long.
pub(super) struct WorkEdges<'a> {
    items: &'a [WorkItem],
    /// By start.
    opening: std::iter::Peekable<std::vec::IntoIter<u32>>,
    running: BinaryHeap<Reverse<(i64, u32)>>,
}

/// An item starts or ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkEdge<'a> {
    pub(super) time: i64,
    /// The row of the item.
    pub(super) at: u32,
    pub(super) item: &'a WorkItem,
    pub(super) closes: bool,
}

impl<'a> WorkEdges<'a> {
    pub(super) fn of(items: &'a [WorkItem]) -> WorkEdges<'a> {
        let mut order: Vec<u32> = (0..).zip(items).map(|(at, _)| at).collect();
        // Each table comes in this order, so there are only a few runs to merge.
        order.sort_by_key(|at| items.get(*at as usize).map(|i| i.span.start));
        WorkEdges {
            items,
            opening: order.into_iter().peekable(),
            running: BinaryHeap::new(),
        }
    }

    fn item(&self, at: u32) -> Option<&'a WorkItem> {
        self.items.get(at as usize)
    }
}

impl<'a> Iterator for WorkEdges<'a> {
    type Item = WorkEdge<'a>;

    fn next(&mut self) -> Option<WorkEdge<'a>> {
        let opening = self.opening.peek().copied();
        let opening = opening.and_then(|at| Some((at, self.item(at)?)));
        let closing = self.running.peek().copied();
        if let Some((at, item)) = opening
            && closing.is_none_or(|Reverse((end, _))| item.span.start <= end)
        {
            self.opening.next();
            self.running.push(Reverse((item.span.end, at)));
            let time = item.span.start;
            let closes = false;
            return Some(WorkEdge {
                time,
                at,
                item,
                closes,
            });
        }
        let Reverse((time, at)) = self.running.pop()?;
        let item = self.item(at)?;
        let closes = true;
        Some(WorkEdge {
            time,
            at,
            item,
            closes,
        })
    }
}
