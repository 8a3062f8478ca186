//! Facts of memory copies inside the window, grouped by direction and kinds of memory.

use std::collections::BTreeMap;

use super::call_operators::{CallOperators, EnclosingRanges};
use super::enclosing_ops::operator_in;
use super::fact::{Answer, FactEntry, Subject, facts};
use super::gap::CpuWork;
use super::table::FactTable;
use crate::base::text::word;
use crate::base::time_by::TimeBy;
use crate::correlate::Run;
use crate::profile::{ApiClass, CallId, CopyKind, DeviceId, MemoryCopy, MemoryKind, Span, StrId};

/// Copies with the same direction, memory kinds and kind of call.
#[derive(Debug, Clone, Default)]
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
    /// Bytes and call of the longest copy.
    longest: (u64, Option<CallId>),
    /// Bytes per device.
    by_device: BTreeMap<DeviceId, u64>,
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
    /// What operators did on the CPU in the gaps that copies to the GPU ended, where at least half of the copies ended
    /// one of those.
    fn cpu_work_before(&self) -> Option<CpuWork> {
        if self.group.kind != CopyKind::HtoD {
            return None;
        }
        let mut counts: BTreeMap<CpuWork, u64> = BTreeMap::new();
        for gap in &self.table.gaps {
            if let Some((work, true)) = gap.blamed.on_cpu {
                *counts.entry(work).or_default() += gap.count;
            }
        }
        let (work, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        (count.saturating_mul(2) >= self.group.count).then_some(work)
    }
}

/// The subject type of copy facts.
pub(super) struct Copies;
impl Subject for Copies {
    type Of<'a> = CopyScope<'a>;
}

/// All copies inside the window, grouped, in a fixed order.
pub(super) fn groups(run: &Run, ops: &CallOperators) -> Vec<CopyGroup> {
    let Some(window) = run.window.span.filter(|_| !run.profile.copies.is_empty()) else {
        return Vec::new();
    };
    let kernels = kernel_unions(run);
    let mut windows: Vec<Span> = vec![window; run.profile.devices.len()];
    for device in &run.timeline.devices {
        if let Some(slot) = windows.get_mut(device.device.idx()) {
            *slot = device.span;
        }
    }
    let mut groups: BTreeMap<GroupKey, (CopyGroup, Callers)> = BTreeMap::new();
    // Overlapping copies are exposed once: the earlier one has the time.
    let mut covered_until: Vec<i64> = vec![i64::MIN; run.profile.devices.len()];
    let copies = run.profile.copies.iter().zip(&run.copy_calls);
    let analyzed = copies
        .zip(&run.window.copies)
        .filter(|(_, analyzed)| **analyzed);
    let mut order: Vec<(&MemoryCopy, Option<CallId>)> =
        analyzed.map(|((copy, call), _)| (copy, *call)).collect();
    order.sort_by_key(|(copy, _)| (copy.span.start, copy.span.end));
    for (copy, id) in order {
        let window = windows.get(copy.device.idx()).unwrap_or(&window);
        if copy.span.end <= window.start || copy.span.start >= window.end {
            continue;
        }
        let call = id.and_then(|id| run.profile.call(id));
        let sync = call.and_then(|call| match call.class {
            ApiClass::CopySync => Some(true),
            ApiClass::CopyAsync => Some(false),
            _ => None,
        });
        let Some(until) = covered_until.get_mut(copy.device.idx()) else {
            continue;
        };
        let fresh = Span {
            start: copy.span.start.max(*until),
            end: copy.span.end,
        };
        *until = (*until).max(copy.span.end);
        let busy = kernels.get(copy.device.idx());
        let exposed = fresh.ns() - busy.map_or(0, |union| covered_ns(union, fresh));
        let key = (copy.kind, copy.src, copy.dst, sync == Some(true));
        let (group, callers) = groups.entry(key).or_insert_with(|| {
            let group = CopyGroup {
                kind: copy.kind,
                src: copy.src,
                dst: copy.dst,
                sync,
                ..CopyGroup::default()
            };
            (group, Callers::default())
        });
        let enclosing = ops.around_work(copy.captured, id);
        let op = enclosing.map(|ops| ops.outer);
        callers.ops.add(op, copy.span.ns());
        callers.apis.add(call.map(|call| call.name), copy.span.ns());
        group.sync = group.sync.or(sync);
        group.replayed += u64::from(call.is_some_and(|c| c.class == ApiClass::GraphLaunch));
        group.count += 1;
        group.bytes += copy.bytes as f64;
        group.time_ns += copy.span.ns() as f64;
        group.exposed_ns += exposed as f64;
        if copy.span.ns() as f64 > group.longest_ns {
            group.longest_ns = copy.span.ns() as f64;
            group.longest = (copy.bytes, id);
        }
        let of_device = group.by_device.entry(copy.device).or_default();
        *of_device = of_device.saturating_add(copy.bytes);
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
    let groups = groups.into_values().map(|(group, callers)| CopyGroup {
        op: callers.ops.most().flatten(),
        api: callers.apis.most().flatten(),
        ..group
    });
    groups.collect()
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
    ops: TimeBy<Option<StrId>>,
    apis: TimeBy<Option<StrId>>,
}

/// nsys' expert rule ignores synchronous copies of up to 64,000 bytes.
const SMALL_COPY_BYTES: u64 = 64_000;

/// From this size on, latency is negligible (nsys-ai evaluates the bandwidth of copies above 10 MB).
const LARGE_COPY_BYTES: u64 = 10_000_000;

/// Per device with copies, the intervals in which a kernel or a graph ran.
fn kernel_unions(run: &Run) -> Vec<Vec<Span>> {
    let mut copied = vec![false; run.profile.devices.len()];
    for copy in &run.profile.copies {
        if let Some(slot) = copied.get_mut(copy.device.idx()) {
            *slot = true;
        }
    }
    let mut spans: Vec<Vec<Span>> = vec![Vec::new(); run.profile.devices.len()];
    let kernels = run.profile.kernels.iter().map(|k| (k.device, k.span));
    let graphs = run.profile.graphs.iter().map(|g| (g.device, g.span));
    for (device, span) in kernels.chain(graphs) {
        if copied.get(device.idx()) == Some(&true)
            && let Some(spans) = spans.get_mut(device.idx())
        {
            spans.push(span);
        }
    }
    spans.into_iter().map(Span::union).collect()
}

/// The part of `span` that a union of intervals covers, in ns.
fn covered_ns(union: &[Span], span: Span) -> i64 {
    let touching = span.overlapping(union, |u| *u);
    touching.map(|u| u.clip(span).ns()).sum()
}

/// The kinds of memory that a file can state, with their words in rules.
pub(super) const MEMORIES: [(MemoryKind, &str); 5] = [
    (MemoryKind::Pageable, "pageable"),
    (MemoryKind::Pinned, "pinned"),
    (MemoryKind::Managed, "managed"),
    (MemoryKind::Device, "device"),
    (MemoryKind::Array, "array"),
];

/// The direction and the kind of memory on the host's side: `device to host copy to pageable memory`, or in the plural.
fn described(kind: CopyKind, (src, dst): (MemoryKind, MemoryKind), noun: &str) -> String {
    let direction = kind.name();
    let direction = direction.replace('_', " ");
    let memory = |kind| word(&MEMORIES, kind).unwrap_or("unknown");
    match kind {
        CopyKind::HtoD => format!("{direction} {noun} from {} memory", memory(src)),
        CopyKind::DtoH => format!("{direction} {noun} to {} memory", memory(dst)),
        _ => format!("{direction} {noun}"),
    }
}

/// The longest copy inside the analyzed window between host and GPU, and its description.
pub(crate) fn longest_copy(run: &Run) -> Option<(&MemoryCopy, String)> {
    let copies = run.profile.copies.iter().zip(&run.window.copies);
    let moves = |kind| matches!(kind, CopyKind::HtoD | CopyKind::DtoH);
    let inside = copies.filter(|(copy, inside)| **inside && moves(copy.kind));
    let (copy, _) = inside.max_by_key(|(copy, _)| copy.span.ns())?;
    Some((copy, described(copy.kind, (copy.src, copy.dst), "copy")))
}

impl CopyGroup {
    /// A description such as `host to device copies from pageable memory`.
    pub(super) fn place(&self) -> String {
        described(self.kind, (self.src, self.dst), "copies")
    }

    /// The number of devices that get the same number of bytes each, if all do and there are several.
    fn alike(&self, devices: usize) -> Option<usize> {
        let mut bytes = self.by_device.values();
        let first = bytes.next().filter(|bytes| **bytes > 0)?;
        let all = devices > 1 && self.by_device.len() == devices && bytes.all(|b| b == first);
        all.then_some(devices)
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

/// The innermost range around a call that is no operator: a layer of FSDP, or a range of the program.
fn range_around(run: &Run, call: CallId) -> Option<StrId> {
    let call = run.profile.call(call)?;
    let ranges = run.profile.ranges.iter();
    let around = ranges.filter(|range| {
        range.thread == call.thread
            && range.span.start <= call.span.start
            && range.span.end >= call.span.end
            && range.seq.is_none()
            && matches!(
                operator_in(run.profile.text(range.text)),
                None | Some("fsdp")
            )
    });
    Some(around.min_by_key(|range| range.span.ns())?.text)
}

/// Bytes per second; does not apply if the time is 0.
fn bandwidth(bytes: f64, ns: f64) -> Answer {
    Answer::or_silent((ns > 0.0).then_some(bytes / ns * 1e9))
}

pub(super) const ENTRIES: &[FactEntry<Copies>] = facts! {
    /// `host_to_device`, `device_to_host`, `device_to_device`, `peer_to_peer` or `other`
    "copy.direction": STR => |c| c.group.kind.name(),
    /// Kind of memory on the host's side: `pageable`, `pinned`, `managed`; silent when no side is the host
    "copy.host_memory": STR needs MEMORY_KINDS => |c| {
        let side = c.group.host_side();
        Answer::or_silent(side.map(|kind| word(&MEMORIES, kind)))
    },
    /// Made by a synchronous call
    "copy.sync": BOOL needs API => |c| c.group.sync,
    /// The operator that the program called for more than half of the copy time, as the profile spells it;
    /// silent outside operators
    "copy.op": STR => |c| Answer::or_silent(c.group.op.map(|id| c.table.text(id))),
    /// Share of the copy time inside functions that `torch.compile` made
    "copy.compiled_share": DOUBLE => |c| Answer::share(c.group.compiled_ns, c.group.time_ns),
    /// Share of the copy time inside functions that `torch.compile` made in which a tensor is cloned
    "copy.compiled_clone_share": DOUBLE =>
        |c| Answer::share(c.group.compiled_clone_ns, c.group.time_ns),
    /// Share of the copy time in backward passes of functions that `torch.compile` made, without clones
    "copy.compiled_backward_share": DOUBLE =>
        |c| Answer::share(c.group.compiled_backward_ns, c.group.time_ns),
    /// What operators did on the CPU, as `gap.cpu_work` says, while the GPU was idle before at least half of
    /// these copies from the memory of the host; silent where they did nothing
    "copy.after_cpu_work": STR => |c| Answer::or_silent(c.cpu_work_before().map(CpuWork::name)),
    /// The call behind more than half of the copy time
    "copy.api": STR needs API => |c| c.group.api.map(|id| c.table.text(id)),
    /// Copies that CUDA graphs replayed, which cost the host nothing
    "copy.replayed_count": INT => |c| c.group.replayed,
    /// One of its sides is managed (unified) memory
    "copy.managed": BOOL =>
        |c| c.group.src == MemoryKind::Managed || c.group.dst == MemoryKind::Managed,
    /// Copies per numbered step
    "copy.per_step": DOUBLE needs STEPS => |c| {
        let steps = Some(c.table.sums.steps).filter(|steps| *steps > 0);
        steps.map(|steps| c.group.count as f64 / steps as f64)
    },
    /// Bandwidth reached by copies of 10 MB and more; silent when there are none
    "copy.large_bytes_per_s": DOUBLE => |c| bandwidth(c.group.large_bytes, c.group.large_ns),
    /// Copies
    "copy.count": INT => |c| c.group.count,
    /// Copies of less than 64,000 bytes
    "copy.small_count": INT => |c| c.group.small,
    /// Bytes copied
    "copy.total_bytes": DOUBLE => |c| c.group.bytes,
    /// Bytes per copy
    "copy.mean_bytes": DOUBLE => |c| c.group.bytes / c.group.count.max(1) as f64,
    /// Copy time, summed
    "copy.time_ns": DOUBLE => |c| c.group.time_ns,
    /// A single copy takes half of the time or more, in a run without steps: an upload at the start, or a
    /// result at the end
    "copy.once": BOOL =>
        |c| c.table.costed.run.steps.is_empty() && c.group.longest_ns >= 0.5 * c.group.time_ns,
    /// Time of copies inside autograd's `AccumulateGrad`, which keeps a gradient that it may not share; 0
    /// where operators were not recorded
    "copy.gradient_ns": DOUBLE => |c| c.group.gradient_ns,
    /// Longest copy
    "copy.longest_ns": DOUBLE => |c| c.group.longest_ns,
    /// Bytes of the longest copy
    "copy.longest_bytes": DOUBLE => |c| c.group.longest.0 as f64,
    /// The innermost range around the call of the longest copy that is no operator: a layer, or a part of the
    /// program; silent where there is none
    "copy.longest_range": STR => |c| {
        let range = c.group.longest.1.and_then(|call| range_around(&c.table.costed.run, call));
        Answer::or_silent(range.map(|id| c.table.text(id)))
    },
    /// Number of GPUs, where there are several and each gets or sends exactly as many bytes in these copies as
    /// each other one; silent for others
    "copy.alike_gpus": INT => |c| {
        let devices = c.table.costed.run.timeline.devices.len();
        Answer::or_silent(c.group.alike(devices).map(|n| n as u64))
    },
    /// Copy time while no kernel ran on the device
    "copy.exposed_ns": DOUBLE => |c| c.group.exposed_ns,
    /// Exposed copy time as a share of the window
    "copy.exposed_window_share": DOUBLE => |c| c.group.exposed_ns / c.table.totals.window_ns,
    /// Bandwidth reached while copying
    "copy.bytes_per_s": DOUBLE => |c| bandwidth(c.group.bytes, c.group.time_ns),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_each_ns_once() {
        let spans = [(20, 30), (0, 5), (3, 10), (25, 28)].map(|(start, end)| Span { start, end });
        let union = Span::union(spans.into());
        assert_eq!(covered_ns(&union, Span { start: -5, end: 50 }), 20);
        assert_eq!(covered_ns(&union, Span { start: 5, end: 25 }), 10);
        assert_eq!(covered_ns(&union, Span { start: 10, end: 20 }), 0);
        assert_eq!(covered_ns(&union, Span { start: 22, end: 23 }), 1);
        assert_eq!(covered_ns(&union, Span { start: 40, end: 90 }), 0);
    }
}
