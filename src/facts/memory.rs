//! What PyTorch's allocator did with the memory of a GPU, where the program recorded it.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::correlate::Run;
use crate::profile::{MemoryEvent, RangeKind, Span, StrId, ThreadId};

/// The memory of the GPU that is used most, in the analyzed window.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemoryUse {
    /// Most bytes in use by tensors.
    pub allocated: u64,
    /// Most bytes that the allocator had of the GPU's memory.
    pub reserved: u64,
    /// The GPU's memory, in bytes.
    pub capacity: Option<u64>,
    /// By how many bytes the memory in use at the end of a step grows from step to step; 0 unless it grows
    /// in each. `None` with fewer than [`FEWEST_STEPS`] steps.
    pub growth: Option<f64>,
    /// The operators that allocate most, with their bytes in the window, most first; at most [`MOST_OPS`].
    pub operators: Vec<(Arc<str>, u64)>,
}

/// Steps from which growth in each of them is no chance.
const FEWEST_STEPS: usize = 4;
/// Operators that are listed.
const MOST_OPS: usize = 3;
/// How the names of operators begin that only make room for the result of another one.
const ROOM: [&str; 3] = ["aten::empty", "aten::new_empty", "aten::resize"];

impl MemoryUse {
    /// `None` where nothing was recorded.
    pub(crate) fn of(run: &Run) -> Option<MemoryUse> {
        let window = run.window.span?;
        let inside = run.profile.memory.iter().filter(|e| window.contains(e.at));
        let most = inside.max_by_key(|e| (e.reserved, e.allocated, Reverse(e.device)))?;
        let of_device = run
            .profile
            .memory
            .iter()
            .filter(|e| e.device == most.device);
        let events: Vec<MemoryEvent> = of_device.copied().collect();
        let inside = events.iter().filter(|e| window.contains(e.at));
        let device = run
            .profile
            .devices
            .iter()
            .find(|d| d.ordinal == most.device);
        Some(MemoryUse {
            allocated: inside.map(|e| e.allocated).max().unwrap_or(0),
            reserved: most.reserved,
            capacity: device.and_then(|d| d.memory_bytes),
            growth: growth(run, &events),
            operators: operators(run, &events, window),
        })
    }
}

/// What is in use at the end of each step, compared with the step before.
fn growth(run: &Run, events: &[MemoryEvent]) -> Option<f64> {
    let steps: Vec<Span> = run
        .steps
        .iter()
        .filter(|s| !s.warmup)
        .map(|s| s.span)
        .collect();
    let at_end = steps.iter().map(|step| {
        let before = events.partition_point(|e| e.at <= step.end);
        let last = events.get(before.checked_sub(1)?)?;
        (last.at > step.start).then_some(last.allocated)
    });
    let at_end: Vec<u64> = at_end.collect::<Option<_>>()?;
    if at_end.len() < FEWEST_STEPS {
        return None;
    }
    let grows = at_end.windows(2).all(|w| matches!(w, [a, b] if b > a));
    let (first, last) = (at_end.first()?, at_end.last()?);
    let total = if grows {
        last.saturating_sub(*first)
    } else {
        0
    };
    Some(total as f64 / (at_end.len() - 1) as f64)
}

/// Bytes handed out per operator: the innermost around each event that does more than make room.
fn operators(run: &Run, events: &[MemoryEvent], window: Span) -> Vec<(Arc<str>, u64)> {
    let mut open: FxHashMap<ThreadId, Vec<(i64, StrId)>> = FxHashMap::default();
    let mut makes_room: FxHashMap<StrId, bool> = FxHashMap::default();
    let mut ranges = run.profile.ranges.iter().filter(|range| {
        range.kind == RangeKind::CpuOp
            && !*makes_room.entry(range.text).or_insert_with(|| {
                let name = run.profile.text(range.text);
                ROOM.iter().any(|room| name.starts_with(room))
            })
    });
    let mut next = ranges.next();
    let mut bytes: FxHashMap<StrId, u64> = FxHashMap::default();
    for event in events {
        while let Some(range) = next.filter(|range| range.span.start <= event.at) {
            let open = open.entry(range.thread).or_default();
            while open.pop_if(|(end, _)| *end <= range.span.start).is_some() {}
            open.push((range.span.end, range.text));
            next = ranges.next();
        }
        let given = u64::try_from(event.bytes).unwrap_or(0);
        let Some(open) = open.get_mut(&event.thread).filter(|_| given > 0) else {
            continue;
        };
        while open.pop_if(|(end, _)| *end <= event.at).is_some() {}
        if let Some((_, op)) = open.last().filter(|_| window.contains(event.at)) {
            let sum = bytes.entry(*op).or_default();
            *sum = sum.saturating_add(given);
        }
    }
    let named = bytes
        .into_iter()
        .map(|(op, sum)| (Arc::from(run.profile.text(op)), sum));
    let mut most: Vec<(Arc<str>, u64)> = named.collect();
    most.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    most.truncate(MOST_OPS);
    most
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Most memory in use by tensors in the window, where torch.profiler recorded it
    /// (`profile_memory=True`)
    "run.memory_allocated_bytes": DOUBLE =>
        |t| Answer::or_silent(t.memory.as_ref().map(|m| m.allocated as f64)),
    /// Most GPU memory that PyTorch's allocator had reserved in the window
    "run.memory_reserved_bytes": DOUBLE =>
        |t| Answer::or_silent(t.memory.as_ref().map(|m| m.reserved as f64)),
    /// `run.memory_reserved_bytes` as a share of the GPU's memory
    "run.memory_reserved_share": DOUBLE => |t| {
        let memory = t.memory.as_ref();
        Answer::or_silent(memory.and_then(|m| Some(m.reserved as f64 / m.capacity? as f64)))
    },
    /// By how much the memory in use at the end of a step grows from step to step; 0 unless it grows in
    /// each of at least 4
    "run.memory_growth_bytes": DOUBLE =>
        |t| Answer::or_silent(t.memory.as_ref().and_then(|m| m.growth)),
    /// The operators that allocate most memory in the window, most first, at most 3
    "run.memory_ops": STRINGS => |t| {
        let operators = t.memory.as_ref().map(|m| m.operators.iter());
        let names = operators.map(|operators| operators.map(|(op, _)| Arc::clone(op)));
        Answer::or_silent(names.map(Iterator::collect::<Arc<[Arc<str>]>>))
    },
};
