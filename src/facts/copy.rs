//! Facts of memory copies inside the window, grouped by direction and kinds of memory.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::gap::{EnclosingRanges, operators_around, operators_around_captures};
use super::{Answer, Entry, FactTable, Subject, fact, word};
use crate::correlate::{GapCause, Run};
use crate::profile::{
    ApiCall, ApiClass, CallId, CopyKind, CorrelationMap, DeviceId, MemoryCopy, MemoryKind, Span,
    StrId,
};

/// Copies with the same direction, memory kinds and kind of call.
#[derive(Debug, Clone)]
pub(super) struct CopyGroup {
    pub(super) kind: CopyKind,
    pub(super) src: MemoryKind,
    pub(super) dst: MemoryKind,
    pub(super) sync: Option<bool>,
    pub(super) count: u64,
    pub(super) bytes: f64,
    pub(super) time_ns: f64,
    pub(super) exposed_ns: f64,
    pub(super) longest_ns: f64,
    pub(super) small: u64,
    /// Time of copies with which autograd keeps the gradient of a parameter.
    gradient_ns: f64,
    /// Time of copies inside functions that `torch.compile` made: all, those that clone a tensor, and the
    /// others of backward passes.
    compiled_ns: f64,
    compiled_clone_ns: f64,
    compiled_backward_ns: f64,
    /// The operator around most of the time, and the call made for most of it.
    op: Option<StrId>,
    api: Option<StrId>,
    /// Copies that CUDA graphs replayed.
    replayed: u64,
    /// Bytes of copies that are large enough to be limited by the link only.
    large_bytes: f64,
    large_ns: f64,
}

/// A group with its fact table.
pub(super) struct CopyScope<'a> {
    pub(super) table: &'a FactTable<'a>,
    pub(super) group: &'a CopyGroup,
}

impl CopyScope<'_> {
    /// What the host did in the gaps that copies to the GPU ended, where at least half of the copies ended one.
    fn host_busy_before(&self) -> Option<StrId> {
        if self.group.kind != CopyKind::HtoD {
            return None;
        }
        let ended = self.table.gaps.iter().filter(|gap| gap.before_copy);
        let mut counts: BTreeMap<StrId, u64> = BTreeMap::new();
        for gap in ended.filter(|gap| gap.cause == GapCause::HostBusy) {
            if let Some(op) = gap.op {
                *counts.entry(op).or_default() += gap.count;
            }
        }
        let (op, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        (count.saturating_mul(2) >= self.group.count).then_some(op)
    }
}

/// The subject type of copy facts.
pub(super) struct Copies;
impl Subject for Copies {
    type Of<'a> = CopyScope<'a>;
}

/// All copies inside the window, grouped, in a fixed order.
pub(super) fn groups(run: &Run, calls: &CallsBehind) -> Vec<CopyGroup> {
    let Some(window) = run.window.span.filter(|_| !run.profile.copies.is_empty()) else {
        return Vec::new();
    };
    let ops = operators(run, calls);
    let captured = run.profile.copies.iter().filter_map(|copy| copy.captured);
    let captured = operators_around_captures(run, captured);
    let mut kernels = kernel_unions(run);
    let mut windows: Vec<Span> = vec![window; run.profile.devices.len()];
    for device in &run.timeline.devices {
        if let Some(slot) = windows.get_mut(device.device.idx()) {
            *slot = device.span;
        }
    }
    let mut groups: BTreeMap<GroupKey, CopyGroup> = BTreeMap::new();
    let mut around: FxHashMap<GroupKey, Callers> = FxHashMap::default();
    // Overlapping copies are exposed once: the earlier one has the time.
    let mut covered_until: FxHashMap<DeviceId, i64> = FxHashMap::default();
    let copies = run.profile.copies.iter().zip(&run.window.copies);
    let analyzed = copies.filter(|(_, analyzed)| **analyzed);
    let mut order: Vec<&MemoryCopy> = analyzed.map(|(copy, _)| copy).collect();
    order.sort_by_key(|copy| (copy.span.start, copy.span.end));
    for copy in order {
        let window = windows.get(copy.device.idx()).unwrap_or(&window);
        if copy.span.end <= window.start || copy.span.start >= window.end {
            continue;
        }
        let id = calls.id_of_copy(copy);
        let call = id.and_then(|id| run.profile.calls.get(id.idx()));
        let sync = call.and_then(|call| match call.class {
            ApiClass::CopySync => Some(true),
            ApiClass::CopyAsync => Some(false),
            _ => None,
        });
        let until = covered_until.entry(copy.device).or_insert(i64::MIN);
        let fresh = Span {
            start: copy.span.start.max(*until),
            end: copy.span.end,
        };
        *until = (*until).max(copy.span.end);
        let busy = kernels.get_mut(copy.device.idx());
        let exposed = fresh.ns() - busy.map_or(0, |union| union.overlap(fresh));
        let key = (copy.kind, copy.src, copy.dst, sync == Some(true));
        let callers = around.entry(key).or_default();
        let enclosing = match copy.captured {
            Some(capture) => captured.get(&capture),
            None => id.and_then(|id| ops.get(&id)),
        };
        let op = enclosing.map(|ops| ops.outer);
        *callers.ops.entry(op).or_default() += copy.span.ns();
        *callers.apis.entry(call.map(|call| call.name)).or_default() += copy.span.ns();
        let group = groups.entry(key).or_insert_with(|| CopyGroup {
            kind: copy.kind,
            src: copy.src,
            dst: copy.dst,
            sync,
            count: 0,
            bytes: 0.0,
            time_ns: 0.0,
            exposed_ns: 0.0,
            longest_ns: 0.0,
            small: 0,
            gradient_ns: 0.0,
            compiled_ns: 0.0,
            compiled_clone_ns: 0.0,
            compiled_backward_ns: 0.0,
            op: None,
            api: None,
            replayed: 0,
            large_bytes: 0.0,
            large_ns: 0.0,
        });
        group.sync = group.sync.or(sync);
        group.replayed += u64::from(call.is_some_and(|c| c.class == ApiClass::GraphLaunch));
        group.count += 1;
        group.bytes += copy.bytes as f64;
        group.time_ns += copy.span.ns() as f64;
        group.exposed_ns += exposed as f64;
        group.longest_ns = group.longest_ns.max(copy.span.ns() as f64);
        if let Some(ops) = enclosing.filter(|ops| ops.compiled) {
            let ns = copy.span.ns() as f64;
            group.compiled_ns += ns;
            match within(run, ops) {
                Some(Within::Clone) => group.compiled_clone_ns += ns,
                Some(Within::Backward) => group.compiled_backward_ns += ns,
                None => {}
            }
        }
        if enclosing.is_some_and(|ops| ops.accumulates) {
            group.gradient_ns += copy.span.ns() as f64;
        }
        group.small += u64::from(copy.bytes < SMALL_COPY_BYTES);
        if copy.bytes >= LARGE_COPY_BYTES {
            group.large_bytes += copy.bytes as f64;
            group.large_ns += copy.span.ns() as f64;
        }
    }
    for (key, callers) in around {
        if let Some(group) = groups.get_mut(&key) {
            group.op = most(&callers.ops);
            group.api = most(&callers.apis);
        }
    }
    groups.into_values().collect()
}

/// What a copy in compiled code is for.
enum Within {
    Clone,
    Backward,
}

/// The graphs of a compiled function copy their inputs; those of its backward pass are what the forward
/// pass saved, and clones are results that the next replay would overwrite.
fn within(run: &Run, ops: &EnclosingRanges) -> Option<Within> {
    let has = |word: &str| {
        ops.all
            .iter()
            .any(|id| run.profile.text(*id).contains(word))
    };
    match () {
        () if has("aten::clone") => Some(Within::Clone),
        () if has("CompiledFunctionBackward") => Some(Within::Backward),
        () => None,
    }
}

/// Direction, source, destination, and whether the call was synchronous.
type GroupKey = (CopyKind, MemoryKind, MemoryKind, bool);

/// Copy time per operator and per call around it; `None` where there is none.
#[derive(Debug, Default)]
struct Callers {
    ops: FxHashMap<Option<StrId>, i64>,
    apis: FxHashMap<Option<StrId>, i64>,
}

/// The name with more than half of the time.
pub(super) fn most(times: &FxHashMap<Option<StrId>, i64>) -> Option<StrId> {
    let all: i64 = times.values().fold(0, |sum, ns| sum.saturating_add(*ns));
    let mut names = times.iter().filter(|(_, ns)| **ns > all / 2);
    *names.next()?.0
}

/// The operators around each copy.
fn operators(run: &Run, calls: &CallsBehind) -> FxHashMap<CallId, EnclosingRanges> {
    let copies = run.profile.copies.iter();
    let mut behind: Vec<CallId> = copies.filter_map(|copy| calls.id_of_copy(copy)).collect();
    behind.sort_unstable();
    behind.dedup();
    operators_around(run, behind)
}

/// The call behind each copy: the first one with its correlation id in its process.
#[derive(Debug)]
pub(super) struct CallsBehind(CorrelationMap<CallId>);

impl CallsBehind {
    pub(super) fn of(run: &Run) -> CallsBehind {
        let copies = run.profile.copies.iter();
        let asked = copies.map(|copy| (copy.process, copy.correlation));
        CallsBehind(CorrelationMap::first_calls(&run.profile, asked))
    }

    fn id_of_copy(&self, copy: &MemoryCopy) -> Option<CallId> {
        self.0.get(copy.process, copy.correlation)
    }

    pub(super) fn of_copy<'r>(&self, run: &'r Run, copy: &MemoryCopy) -> Option<&'r ApiCall> {
        run.profile.calls.get(self.id_of_copy(copy)?.idx())
    }
}

/// nsys' expert rule ignores synchronous copies of up to 64,000 bytes.
const SMALL_COPY_BYTES: u64 = 64_000;

/// From this size on, latency is negligible (nsys-ai evaluates the bandwidth of copies above 10 MB).
const LARGE_COPY_BYTES: u64 = 10_000_000;

/// Per device with copies, the intervals in which a kernel or a graph ran.
fn kernel_unions(run: &Run) -> Vec<Union> {
    let mut copied = vec![false; run.profile.devices.len()];
    for copy in &run.profile.copies {
        if let Some(slot) = copied.get_mut(copy.device.idx()) {
            *slot = true;
        }
    }
    let mut unions: Vec<Union> = Vec::new();
    unions.resize_with(run.profile.devices.len(), Union::default);
    let kernels = run.profile.kernels.iter().map(|k| (k.device, k.span));
    let graphs = run.profile.graphs.iter().map(|g| (g.device, g.span));
    for (device, span) in kernels.chain(graphs) {
        if copied.get(device.idx()) == Some(&true)
            && let Some(union) = unions.get_mut(device.idx())
        {
            union.add(span);
        }
    }
    unions.iter_mut().for_each(Union::sort);
    unions
}

/// A union of intervals that are added in order of start, as kernels are.
#[derive(Debug, Default)]
struct Union {
    /// Disjoint, and sorted once [`sort`](Union::sort) was called.
    spans: Vec<Span>,
    unordered: bool,
    /// Number of intervals that end before all later queries.
    past: usize,
}

impl Union {
    fn add(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(last) if span.start < last.start => {
                self.unordered = true;
                self.spans.push(span);
            }
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => self.spans.push(span),
        }
    }

    /// Sorts the intervals; needed for graphs, which are added after the kernels.
    fn sort(&mut self) {
        if self.unordered {
            let mut spans = std::mem::take(&mut self.spans);
            spans.sort_unstable();
            for span in spans {
                self.add(span);
            }
        }
    }

    /// The covered part of `span`. Later calls must not ask for spans that begin earlier.
    fn overlap(&mut self, span: Span) -> i64 {
        let later = self.spans.get(self.past..).unwrap_or_default();
        let over = later.iter().take_while(|u| u.end <= span.start).count();
        self.past += over;
        later
            .iter()
            .skip(over)
            .take_while(|u| u.start < span.end)
            .map(|u| u.clip(span).ns())
            .sum()
    }
}

/// The kinds of memory that a file can state, with their words in rules.
pub(super) const MEMORIES: [(MemoryKind, &str); 5] = [
    (MemoryKind::Pageable, "pageable"),
    (MemoryKind::Pinned, "pinned"),
    (MemoryKind::Managed, "managed"),
    (MemoryKind::Device, "device"),
    (MemoryKind::Array, "array"),
];

/// The directions of copies with their words in rules.
pub(super) const DIRECTIONS: [(CopyKind, &str); 6] = [
    (CopyKind::HtoD, "host_to_device"),
    (CopyKind::DtoH, "device_to_host"),
    (CopyKind::DtoD, "device_to_device"),
    (CopyKind::HtoH, "host_to_host"),
    (CopyKind::PtoP, "peer_to_peer"),
    (CopyKind::Other, "other"),
];

impl CopyGroup {
    /// A description such as `host to device copies from pageable memory`.
    pub(super) fn place(&self) -> String {
        let kind = word(&DIRECTIONS, self.kind)
            .unwrap_or_default()
            .replace('_', " ");
        let memory = |kind| word(&MEMORIES, kind).unwrap_or("unknown");
        match self.kind {
            CopyKind::HtoD => format!("{kind} copies from {} memory", memory(self.src)),
            CopyKind::DtoH => format!("{kind} copies to {} memory", memory(self.dst)),
            _ => format!("{kind} copies"),
        }
    }

    /// The kind of memory on the host's side.
    fn host_side(&self) -> Option<MemoryKind> {
        match self.kind {
            CopyKind::HtoD => Some(self.src),
            CopyKind::DtoH => Some(self.dst),
            _ => None,
        }
    }
}

/// Bytes per second; does not apply if the time is 0.
fn bandwidth(bytes: f64, ns: f64) -> Answer {
    match ns > 0.0 {
        true => Answer::double(bytes / ns * 1e9),
        false => Answer::DoesNotApply,
    }
}

pub(super) const ENTRIES: &[Entry<Copies>] = &[
    fact!(
        "copy.direction",
        Str,
        "",
        &[],
        NOTHING,
        "`host_to_device`, `device_to_host`, `device_to_device`, `peer_to_peer` or `other`",
        |c| Answer::maybe_word(word(&DIRECTIONS, c.group.kind))
    ),
    fact!(
        "copy.host_memory",
        Str,
        "",
        &[],
        MEMORY_KINDS,
        "Kind of memory on the host's side: `pageable`, `pinned`, `managed`; silent when no side is the host",
        |c| {
            match c.group.host_side() {
                None => Answer::DoesNotApply,
                Some(kind) => Answer::maybe_word(word(&MEMORIES, kind)),
            }
        }
    ),
    fact!(
        "copy.sync",
        Bool,
        "",
        &[],
        API,
        "Made by a synchronous call",
        |c| Answer::maybe(c.group.sync, Answer::flag)
    ),
    fact!(
        "copy.op",
        Str,
        "",
        &[],
        NOTHING,
        "The operator that the program called for more than half of the copy time, as the profile spells it; silent outside operators",
        |c| Answer::or_silent(
            c.group.op.map(|id| c.table.costed.run.profile.text(id)),
            Answer::word
        )
    ),
    fact!(
        "copy.compiled_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of the copy time inside functions that `torch.compile` made",
        |c| Answer::share(c.group.compiled_ns, c.group.time_ns)
    ),
    fact!(
        "copy.compiled_clone_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of the copy time inside functions that `torch.compile` made in which a tensor is cloned",
        |c| Answer::share(c.group.compiled_clone_ns, c.group.time_ns)
    ),
    fact!(
        "copy.compiled_backward_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of the copy time in backward passes of functions that `torch.compile` made, without clones",
        |c| Answer::share(c.group.compiled_backward_ns, c.group.time_ns)
    ),
    fact!(
        "copy.after_op",
        Str,
        "",
        &[],
        NOTHING,
        "The operator or function in which the host spent the idle time before at least half of these copies from its memory; silent where there is none",
        |c| {
            let op = c
                .host_busy_before()
                .map(|id| c.table.costed.run.profile.text(id));
            Answer::or_silent(op, Answer::word)
        }
    ),
    fact!(
        "copy.api",
        Str,
        "",
        &[],
        API,
        "The call behind more than half of the copy time",
        |c| Answer::maybe_word(c.group.api.map(|id| c.table.costed.run.profile.text(id)))
    ),
    fact!(
        "copy.replayed_count",
        Int,
        "",
        &[],
        NOTHING,
        "Copies that CUDA graphs replayed, which cost the host nothing",
        |c| Answer::int(c.group.replayed)
    ),
    fact!(
        "copy.managed",
        Bool,
        "",
        &[],
        NOTHING,
        "One of its sides is managed (unified) memory",
        |c| Answer::flag(c.group.src == MemoryKind::Managed || c.group.dst == MemoryKind::Managed)
    ),
    fact!(
        "copy.per_step",
        Double,
        "",
        &[],
        STEPS,
        "Copies per numbered step",
        |c| match c.table.sums.steps {
            0 => Answer::Absent,
            steps => Answer::double(c.group.count as f64 / steps as f64),
        }
    ),
    fact!(
        "copy.large_bytes_per_s",
        Double,
        "bytes/s",
        &[],
        NOTHING,
        "Bandwidth reached by copies of 10 MB and more; silent when there are none",
        |c| bandwidth(c.group.large_bytes, c.group.large_ns)
    ),
    fact!("copy.count", Int, "", &[], NOTHING, "Copies", |c| {
        Answer::int(c.group.count)
    }),
    fact!(
        "copy.small_count",
        Int,
        "",
        &[],
        NOTHING,
        "Copies of less than 64,000 bytes",
        |c| Answer::int(c.group.small)
    ),
    fact!(
        "copy.total_bytes",
        Double,
        "bytes",
        &[],
        NOTHING,
        "Bytes copied",
        |c| Answer::double(c.group.bytes)
    ),
    fact!(
        "copy.mean_bytes",
        Double,
        "bytes",
        &[],
        NOTHING,
        "Bytes per copy",
        |c| Answer::double(c.group.bytes / c.group.count.max(1) as f64)
    ),
    fact!(
        "copy.time_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Copy time, summed",
        |c| Answer::double(c.group.time_ns)
    ),
    fact!(
        "copy.once",
        Bool,
        "",
        &[],
        NOTHING,
        "A single copy takes half of the time or more, in a run without steps: an upload at the start, or a result at the end",
        |c| Answer::flag(
            c.table.costed.run.steps.is_empty() && c.group.longest_ns >= 0.5 * c.group.time_ns
        )
    ),
    fact!(
        "copy.gradient_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Time of copies inside autograd's `AccumulateGrad`, which keeps a gradient that it may not share; 0 where operators were not recorded",
        |c| Answer::double(c.group.gradient_ns)
    ),
    fact!(
        "copy.longest_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Longest copy",
        |c| Answer::double(c.group.longest_ns)
    ),
    fact!(
        "copy.exposed_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Copy time while no kernel ran on the device",
        |c| Answer::double(c.group.exposed_ns)
    ),
    fact!(
        "copy.exposed_window_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Exposed copy time as a share of the window",
        |c| Answer::double(c.group.exposed_ns / c.table.totals.window_ns)
    ),
    fact!(
        "copy.bytes_per_s",
        Double,
        "bytes/s",
        &[],
        NOTHING,
        "Bandwidth reached while copying",
        |c| bandwidth(c.group.bytes, c.group.time_ns)
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_each_ns_once() {
        let mut union = Union::default();
        for (start, end) in [(20, 30), (0, 5), (3, 10), (25, 28)] {
            union.add(Span { start, end });
        }
        union.sort();
        assert_eq!(union.overlap(Span { start: -5, end: 50 }), 20);
        assert_eq!(union.overlap(Span { start: 5, end: 25 }), 10);
        assert_eq!(union.overlap(Span { start: 10, end: 20 }), 0);
        assert_eq!(union.overlap(Span { start: 22, end: 23 }), 1);
        assert_eq!(union.overlap(Span { start: 40, end: 90 }), 0);
    }
}
