//! Converts trace events to rows of a profile.
//!
//! Host events have a process and a thread. GPU events have a device instead of the process; they are
//! assigned to the process of the call with their correlation id once all calls are known.

use rustc_hash::FxHashMap;
use serde_json::value::RawValue;

use super::about::About;
use super::flows::{ArrowEnd, Flows};
use super::json::{Args, Event, TraceSink};
use super::number::{bare, count, count32, nanoseconds, number_in, text, whole};
use crate::base::statistics::median;
use crate::profile::{
    ApiCall, ApiClass, CopyKind, GraphRegion, HostRange, Kernel, LaunchConfig, MemoryCopy,
    MemoryEvent, MemoryKind, MemorySet, Overhead, ProcessId, RangeKind, SerialNumber, Span, StrId,
    Strings, Synchronization, ThreadId,
};
use crate::read::builder::{Builder, DeviceKey};
use crate::read::cupti::{
    GpuRecord, correlation, memory_kind, sync_kind, take_sync_kinds_from_calls, unversioned,
};
use crate::read::skipped_rows::SkippedRows;

/// The kind of an event, by its category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Category {
    Range(RangeKind),
    Call,
    Kernel,
    Copy,
    Set,
    Sync,
    Overhead,
    /// Hardware counters of a kernel, recorded instead of the kernel.
    Counters,
}

/// Categories as spelled by current PyTorch versions and, capitalized, in 2021; ASCII case is ignored.
/// Other categories (annotations on the GPU's track) contain nothing that is needed.
const CATEGORIES: &[(&str, Category)] = &[
    ("cpu_op", Category::Range(RangeKind::CpuOp)),
    ("python_function", Category::Range(RangeKind::Python)),
    ("cuda_runtime", Category::Call),
    ("kernel", Category::Kernel),
    ("cuda_driver", Category::Call),
    ("gpu_memcpy", Category::Copy),
    ("gpu_memset", Category::Set),
    ("user_annotation", Category::Range(RangeKind::Annotation)),
    ("operator", Category::Range(RangeKind::CpuOp)),
    ("runtime", Category::Call),
    ("memcpy", Category::Copy),
    ("memset", Category::Set),
    ("cuda_sync", Category::Sync),
    ("overhead", Category::Overhead),
    ("hip_runtime", Category::Call),
    ("hip_driver", Category::Call),
    ("cuda_profiler_range", Category::Counters),
];

/// How the categories of work on accelerators begin that are no NVIDIA or AMD GPU, and the accelerator.
const OTHER_ACCELERATORS: [(&str, &str); 5] = [
    ("mtia_", "Meta's MTIA"),
    ("hpu_", "Intel Gaudi (HPU)"),
    ("xpu_", "an Intel GPU (XPU)"),
    ("glow_", "Glow"),
    ("privateuse1_", "a backend of its own (PrivateUse1)"),
];

/// The name of the events of PyTorch's allocator, and the number of CUDA (and HIP) among its types of devices.
const MEMORY: &str = "[memory]";
const ON_GPU: i64 = 1;

/// Categories of the arrows from a forward operator to its backward, newest spelling first.
const FORWARD_BACKWARD: [&str; 2] = ["fwdbwd", "forward_backward"];

fn category(name: &str) -> Option<Category> {
    CATEGORIES
        .iter()
        .find(|(spelling, _)| spelling.eq_ignore_ascii_case(name))
        .map(|(_, category)| *category)
}

fn other_accelerator(category: &str) -> Option<&'static str> {
    let starts = |start: &str| {
        (category.get(..start.len())).is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    let mut known = OTHER_ACCELERATORS.iter();
    known
        .find(|(start, _)| starts(start))
        .map(|(_, name)| *name)
}

/// The first number for processes and threads with a name instead of a number; larger than any real
/// one.
const NAMED: i64 = 1 << 40;

/// How the names of kernels begin that TorchInductor makes from a template. Of other compiled kernels, the
/// shapes of the arguments tell the cost.
const TEMPLATE: &str = "triton_tem_";

/// Skipped rows by table.
#[derive(Debug, Default)]
pub(super) struct SkippedByTable {
    pub(super) kernels: SkippedRows,
    pub(super) calls: SkippedRows,
    pub(super) ranges: SkippedRows,
    pub(super) copies: SkippedRows,
    pub(super) sets: SkippedRows,
    pub(super) syncs: SkippedRows,
    pub(super) overheads: SkippedRows,
}

/// What the list of events holds that is no event.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    /// The position of the first of them, in bytes.
    pub(super) first: Option<u64>,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// Collects the rows of a trace.
pub(super) struct Rows {
    pub(super) builder: Builder,
    /// What the members of the trace beside its events say.
    pub(super) about: About,
    pub(super) skipped: SkippedByTable,
    /// Entries of the list of events that are not JSON or not an object.
    pub(super) unreadable: Unreadable,
    /// Hardware counters of kernels (`CUPTI` range profiler).
    pub(super) counters: u64,
    /// Events of an accelerator that is no NVIDIA or AMD GPU, and its name.
    pub(super) other_accelerator: Option<(&'static str, u64)>,
    /// Whether any time has a fraction of a microsecond.
    pub(super) fractions: bool,
    /// Launch configurations and sizes that ROCm records with the call.
    at_call: FxHashMap<(ProcessId, SerialNumber), AtCall>,
    /// Python frames of threads that PyTorch could not identify, without process and thread, and their
    /// positions.
    without_thread: Vec<(HostRange, u32)>,
    /// Per range: its number in PyTorch's own list of events (`Ev Idx`), `u32::MAX` without one.
    positions: Vec<u32>,
    flows: Flows,
    /// Kernels whose events describe the message they send, with the description.
    pub(super) messages: Vec<(Kernel, StrId)>,
    /// Nodes of CUDA graphs whose events name the region that captured them.
    pub(super) regions: Vec<(Kernel, GraphRegion)>,
    names: Strings,
    line: String,
    events: u64,
    /// Whether any event has a category that PyTorch's profiler writes.
    known: bool,
}

/// Properties of a call's work that are recorded with the call.
#[derive(Debug, Clone, Copy, Default)]
struct AtCall {
    grid: [u32; 3],
    block: [u32; 3],
    shared: Option<u32>,
    bytes: Option<u64>,
    /// Whether the grid is in work items, not in blocks.
    in_items: bool,
}

impl TraceSink for Rows {
    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        let phase = event.ph.map_or("X", bare);
        let named = event.cat.map(bare);
        match phase {
            "X" => {
                if let Some(category) = named.and_then(category) {
                    self.add(category, event);
                } else if let Some(name) = named.and_then(other_accelerator) {
                    self.known = true;
                    let (_, count) = self.other_accelerator.get_or_insert((name, 0));
                    *count += 1;
                }
            }
            "s" | "f" if named.is_some_and(|cat| FORWARD_BACKWARD.contains(&cat)) => {
                let end = if phase == "s" {
                    ArrowEnd::Forward
                } else {
                    ArrowEnd::Backward
                };
                self.flow(end, event);
            }
            "i" if event.name.is_some_and(|name| bare(name) == MEMORY) => self.memory(event),
            _ => {}
        }
    }

    fn unreadable(&mut self, position: u64, bytes: u64) {
        self.unreadable.first.get_or_insert(position);
        self.unreadable.count += 1;
        self.unreadable.bytes += bytes;
    }

    fn property(&mut self, key: &str, value: &str) {
        self.about.property(key, value);
    }
}

impl Rows {
    pub(super) fn new(builder: Builder) -> Rows {
        Rows {
            builder,
            about: About::default(),
            skipped: SkippedByTable::default(),
            unreadable: Unreadable::default(),
            counters: 0,
            other_accelerator: None,
            fractions: false,
            at_call: FxHashMap::default(),
            without_thread: Vec::new(),
            positions: Vec::new(),
            flows: Flows::default(),
            messages: Vec::new(),
            regions: Vec::new(),
            names: Strings::default(),
            line: String::new(),
            events: 0,
            known: false,
        }
    }

    /// Whether there are events, and none is of a kind that PyTorch's profiler writes.
    pub(super) fn is_foreign(&self) -> bool {
        self.events > 0 && !self.known
    }

    fn add(&mut self, category: Category, event: &Event<'_>) {
        self.known = true;
        match category {
            Category::Range(kind) => self.range(kind, event),
            Category::Call => self.call(event),
            Category::Kernel => self.kernel(event),
            Category::Copy => self.copy(event),
            Category::Set => self.set(event),
            Category::Sync => self.sync(event),
            Category::Overhead => self.overhead(event),
            Category::Counters => self.counters += 1,
        }
    }

    fn range(&mut self, kind: RangeKind, event: &Event<'_>) {
        let Some(span) = span(event, &mut self.skipped.ranges, &mut self.fractions) else {
            return;
        };
        let mut args = event.args;
        if !event
            .name
            .is_some_and(|name| bare(name).starts_with(TEMPLATE))
        {
            (args.kernel_flop, args.kernel_num_gb) = (None, None);
        }
        let args = self.arguments(&args);
        let range = HostRange {
            span,
            thread: ThreadId(u32::MAX),
            kind,
            text: self.name(event),
            domain: None,
            seq: event
                .args
                .sequence
                .and_then(count)
                .and_then(SerialNumber::new),
            op_id: (event.args.record.and_then(count))
                .filter(|&id| id > 0)
                .and_then(SerialNumber::new),
            args,
        };
        let position = event.args.position.and_then(count32).unwrap_or(u32::MAX);
        let (pid, tid) = self.owner(event);
        if kind == RangeKind::Python && (pid, tid) == (0, 0) {
            self.without_thread.push((range, position));
            return;
        }
        let thread = self.thread(pid, tid);
        self.positions.push(position);
        self.builder
            .profile
            .ranges
            .push(HostRange { thread, ..range });
    }

    fn flow(&mut self, end: ArrowEnd, event: &Event<'_>) {
        let id = event.id.and_then(whole);
        if let Some((id, at)) = id.zip(event.ts.and_then(nanoseconds)) {
            let (pid, tid) = self.owner(event);
            let thread = self.thread(pid, tid);
            self.flows.add(end, id, thread, at);
        }
    }

    fn memory(&mut self, event: &Event<'_>) {
        let args = &event.args;
        if args.device_type.and_then(whole) != Some(ON_GPU) {
            return;
        }
        let (pid, tid) = self.owner(event);
        let thread = self.thread(pid, tid);
        let entry = event.ts.and_then(nanoseconds).and_then(|at| {
            Some(MemoryEvent {
                at,
                thread,
                device: args.device_id.and_then(count32)?,
                bytes: args.memory_block.and_then(whole)?,
                allocated: args.allocated.and_then(count)?,
                reserved: args.reserved.and_then(count)?,
            })
        });
        self.builder.profile.memory.extend(entry);
    }

    fn call(&mut self, event: &Event<'_>) {
        let Some(span) = span(event, &mut self.skipped.calls, &mut self.fractions) else {
            return;
        };
        let (pid, tid) = self.owner(event);
        let thread = self.thread(pid, tid);
        let name = event.name.map(text).unwrap_or_default();
        let name = unversioned(&name);
        let correlation = correlation(event.args.correlation.and_then(whole));
        self.note_call(name, (thread, correlation), &event.args);
        self.builder.profile.calls.push(ApiCall {
            span,
            thread,
            correlation,
            name: self.builder.profile.strings.intern(name),
            class: ApiClass::of(name),
        });
    }

    fn note_call(&mut self, name: &str, call: (ThreadId, Option<SerialNumber>), args: &Args<'_>) {
        if args.grid.is_none() && args.bytes.is_none() {
            return;
        }
        let note = AtCall {
            grid: triple(args.grid),
            block: triple(args.block),
            shared: args.shared.and_then(count32),
            bytes: args.bytes.and_then(count),
            // HIP's `globalWorkSizeX`; every other launch counts blocks.
            in_items: matches!(
                name,
                "hipExtModuleLaunchKernel" | "hipHccModuleLaunchKernel"
            ),
        };
        if let Some(key) = self.builder.profile.process_of(call.0).zip(call.1) {
            self.at_call.insert(key, note);
        }
    }

    /// What the record of work on a GPU has in common with others; its process is not known yet. Device and stream are
    /// in the arguments, otherwise in the event's track.
    fn gpu_record(
        &mut self,
        event: &Event<'_>,
        skipped: fn(&mut SkippedByTable) -> &mut SkippedRows,
    ) -> Option<GpuRecord> {
        let skipped = skipped(&mut self.skipped);
        let (start, end) = times(event, skipped, &mut self.fractions);
        let span = skipped.gpu_span(start, end)?;
        let track = |value: Option<&RawValue>| value.and_then(|v| number_in(bare(v)));
        let args = &event.args;
        let device = args.device.and_then(whole).or_else(|| track(event.pid));
        let device = skipped.owner(device.and_then(|d| u32::try_from(d).ok()))?;
        // `export_chrome_trace(graph_lanes=...)` spreads the kernels of a CUDA graph over lanes.
        let stream = args.original_stream.or(args.stream);
        let stream = stream.and_then(whole).or_else(|| track(event.tid));
        Some(GpuRecord {
            span,
            device: self.builder.device(DeviceKey::Ordinal(device)),
            process: ProcessId(u32::MAX),
            stream: stream.and_then(|s| u32::try_from(s).ok()).unwrap_or(0),
            correlation: correlation(args.correlation.and_then(whole)),
        })
    }

    fn kernel(&mut self, event: &Event<'_>) {
        let Some(common) = self.gpu_record(event, |skipped| &mut skipped.kernels) else {
            return;
        };
        let args = &event.args;
        let config = LaunchConfig {
            grid: triple(args.grid),
            block: triple(args.block),
            registers: args.registers.and_then(count32),
            static_shared: None,
            // The trace has only the sum of static and dynamic.
            dynamic_shared: args.shared.and_then(count32),
            local_per_thread: None,
        };
        let kernel = Kernel {
            span: common.span,
            name: self.name(event),
            device: common.device,
            process: common.process,
            stream: common.stream,
            context: args.context.and_then(count32).unwrap_or(0),
            correlation: common.correlation,
            config: self.builder.config(config),
            // Graphs with an id of their own number their nodes from 0 (torch/profiler/_cuspy/trace.py).
            in_graph: (args.graph.or(args.graph_node).and_then(whole)).is_some_and(|id| id > 0),
            captured: None,
        };
        self.builder.profile.kernels.push(kernel);
        if args.in_elements.is_some()
            && let Some(message) = self.arguments(&message(args))
        {
            self.messages.push((kernel, message));
        }
        if kernel.in_graph
            && let Some(name) = args.region.map(text).filter(|name| !name.is_empty())
        {
            let region = GraphRegion {
                name: self.builder.profile.strings.intern(&name),
                backward: args.autograd_phase.map(bare) == Some("backward"),
            };
            self.regions.push((kernel, region));
        }
    }

    fn copy(&mut self, event: &Event<'_>) {
        let Some(common) = self.gpu_record(event, |skipped| &mut skipped.copies) else {
            return;
        };
        let name = event.name.map(text).unwrap_or_default();
        let (kind, src, dst) = copy_kind(&name);
        let copy = MemoryCopy {
            span: common.span,
            device: common.device,
            process: common.process,
            stream: common.stream,
            correlation: common.correlation,
            bytes: event.args.bytes.and_then(count).unwrap_or(u64::MAX),
            kind,
            src,
            dst,
            captured: None,
        };
        self.builder.profile.copies.push(copy);
    }

    fn set(&mut self, event: &Event<'_>) {
        let Some(common) = self.gpu_record(event, |skipped| &mut skipped.sets) else {
            return;
        };
        let name = event.name.map(text).unwrap_or_default();
        let set = MemorySet {
            span: common.span,
            device: common.device,
            process: common.process,
            stream: common.stream,
            correlation: common.correlation,
            bytes: event.args.bytes.and_then(count).unwrap_or(0),
            mem: within_brackets(&name).map_or(MemoryKind::Unknown, memory_kind),
            captured: None,
        };
        self.builder.profile.sets.push(set);
    }

    fn sync(&mut self, event: &Event<'_>) {
        let Some(span) = span(event, &mut self.skipped.syncs, &mut self.fractions) else {
            return;
        };
        let name = event.name.map(text).unwrap_or_default();
        self.builder.profile.syncs.push(Synchronization {
            span,
            process: ProcessId(u32::MAX),
            correlation: correlation(event.args.correlation.and_then(whole)),
            kind: sync_kind(&name),
        });
    }

    fn overhead(&mut self, event: &Event<'_>) {
        let skipped = &mut self.skipped.overheads;
        if let Some(span) = span(event, skipped, &mut self.fractions) {
            let name = self.name(event);
            // Its process is -1, and its thread is not a host thread.
            self.builder.profile.overheads.push(Overhead {
                span,
                thread: None,
                name,
            });
        }
    }

    fn name(&mut self, event: &Event<'_>) -> StrId {
        let name = event.name.map(text).unwrap_or_default();
        self.builder.profile.strings.intern(&name)
    }

    /// Process and thread of a host event.
    fn owner(&mut self, event: &Event<'_>) -> (i64, i64) {
        let mut number = |value: Option<&RawValue>| {
            let Some(value) = value else { return 0 };
            let name = bare(value);
            number_in(name).unwrap_or_else(|| NAMED + i64::from(self.names.intern(name).row()))
        };
        (number(event.pid), number(event.tid))
    }

    fn thread(&mut self, pid: i64, tid: i64) -> ThreadId {
        self.builder
            .thread(pid, || pid.cast_unsigned(), tid.cast_unsigned())
    }

    /// The arguments that describe the operands of an operator, as a JSON object without values that
    /// differ between calls (ids), so that equal calls share one text.
    fn arguments(&mut self, args: &Args<'_>) -> Option<StrId> {
        let line = &mut self.line;
        line.clear();
        for (key, value) in [
            ("Input Dims", args.dims),
            ("Input type", args.types),
            ("Input Strides", args.strides),
            ("Concrete Inputs", args.concrete),
            ("Call stack", args.stack),
            ("Module Hierarchy", args.hierarchy),
            ("Collective name", args.collective),
            ("In msg nelems", args.in_elements),
            ("Out msg nelems", args.out_elements),
            ("Group size", args.group_size),
            ("dtype", args.dtype),
            ("Process Group Ranks", args.group_ranks),
            ("kernel_flop", args.kernel_flop),
            ("kernel_num_gb", args.kernel_num_gb),
        ] {
            let mut value = value.map_or("", RawValue::get);
            if matches!(value, "" | "\"\"" | "[]" | "null") {
                continue;
            }
            // Annotations of CUDA graphs are written as text, numbers too.
            if let Some(inner) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'))
                && COUNTS.contains(&key)
                && inner.parse::<u64>().is_ok()
            {
                value = inner;
            }
            line.push(if line.is_empty() { '{' } else { ',' });
            line.push('"');
            line.push_str(key);
            line.push_str("\":");
            line.push_str(value);
        }
        if line.is_empty() {
            return None;
        }
        line.push('}');
        Some(self.builder.profile.strings.intern(line))
    }

    /// Completes the rows once all events are read: assigns processes, and adds properties that ROCm
    /// records with the calls.
    pub(super) fn complete(&mut self) {
        self.add_without_thread();
        self.order_ranges();
        self.order_gpu_work();
        self.assign_processes();
        self.complete_configs();
        let Builder { profile, .. } = &mut self.builder;
        std::mem::take(&mut self.flows).number(
            &mut profile.ranges,
            &profile.threads,
            &profile.strings,
        );
        for copy in &mut self.builder.profile.copies {
            if copy.bytes == u64::MAX {
                let noted = copy.correlation.map(|id| (copy.process, id));
                let noted = noted.and_then(|key| self.at_call.get(&key));
                copy.bytes = noted.and_then(|c| c.bytes).unwrap_or(0);
            }
        }
        take_sync_kinds_from_calls(&mut self.builder.profile);
    }

    /// Adds frames without a thread if no event of the trace has one. Otherwise they belong to helpers
    /// (`tqdm`'s monitor, a log writer).
    fn add_without_thread(&mut self) {
        let no_process = self.builder.profile.processes.iter().all(|p| p.pid == 0);
        if !no_process || self.without_thread.is_empty() {
            return;
        }
        let thread = self.thread(0, 0);
        let without_thread = std::mem::take(&mut self.without_thread);
        for (range, position) in without_thread {
            self.positions.push(position);
            self.builder
                .profile
                .ranges
                .push(HostRange { thread, ..range });
        }
    }

    /// Puts ranges in the order of their starts. Of those that begin together, PyTorch's own numbers give
    /// the order, so that the order of the events in the file does not matter: in a range and another of
    /// the same length inside it, the outer one has the lower number.
    fn order_ranges(&mut self) {
        let positions = std::mem::take(&mut self.positions);
        self.builder.profile.recorded.thinned = is_thinned(&positions);
        let ranges = &mut self.builder.profile.ranges;
        let key = |(range, position): (&HostRange, &u32)| (range.span.start, *position);
        if ranges.iter().zip(&positions).is_sorted_by_key(key) {
            return;
        }
        let mut rows: Vec<(HostRange, u32)> = ranges.drain(..).zip(positions).collect();
        rows.sort_by_key(|(range, position)| key((range, position)));
        ranges.extend(rows.into_iter().map(|(range, _)| range));
    }

    /// Puts API calls and GPU work that begin together in an order that does not depend on the file's.
    fn order_gpu_work(&mut self) {
        let profile = &mut self.builder.profile;
        let strings = &profile.strings;
        (profile.calls).sort_by_key(|c| (c.span.start, c.correlation, c.span.end));
        (profile.kernels).sort_by(|a, b| {
            let key = |k: &Kernel| (k.span, k.stream, k.correlation);
            let names = || strings.get(a.name).cmp(strings.get(b.name));
            key(a).cmp(&key(b)).then_with(names)
        });
        (profile.copies).sort_by_key(|c| (c.span, c.stream, c.correlation));
        (profile.sets).sort_by_key(|s| (s.span, s.stream, s.correlation));
        (profile.syncs).sort_by_key(|s| (s.span, s.correlation));
    }

    fn assign_processes(&mut self) {
        let owners = self.builder.owners();
        let by_device = self.usual_owners(&owners);
        let busiest = self.busiest();
        let fallback = match busiest {
            Some(process) => process,
            // A trace of the GPU alone.
            None => self.builder.process(0, || 0),
        };
        let of = |device: Option<usize>, correlation: Option<SerialNumber>| {
            let usual = device.and_then(|d| by_device.get(&d).copied());
            owners.of(correlation).or(usual).unwrap_or(fallback)
        };
        let profile = &mut self.builder.profile;
        for k in &mut profile.kernels {
            k.process = of(Some(k.device.idx()), k.correlation);
        }
        for c in &mut profile.copies {
            c.process = of(Some(c.device.idx()), c.correlation);
        }
        for s in &mut profile.sets {
            s.process = of(Some(s.device.idx()), s.correlation);
        }
        for s in &mut profile.syncs {
            s.process = of(None, s.correlation);
        }
    }

    /// The process that launched most kernels of each device, for kernels without a launch.
    fn usual_owners(&self, owners: &crate::read::builder::Owners) -> FxHashMap<usize, ProcessId> {
        let mut counts: FxHashMap<(usize, ProcessId), u64> = FxHashMap::default();
        for kernel in &self.builder.profile.kernels {
            if let Some(process) = owners.of(kernel.correlation) {
                *counts.entry((kernel.device.idx(), process)).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().map(|((d, p), n)| (n, p, d)).collect();
        counts.sort_unstable_by_key(|(n, p, _)| (*n, std::cmp::Reverse(*p)));
        counts.into_iter().map(|(_, p, d)| (d, p)).collect()
    }

    /// The process with the most calls, otherwise with the most ranges, otherwise the first.
    fn busiest(&self) -> Option<ProcessId> {
        let profile = &self.builder.profile;
        let mut counts = vec![(0_u64, 0_u64); profile.processes.len()];
        let mut process = |thread: ThreadId, calls: u64, ranges: u64| {
            let process = profile.process_of(thread);
            if let Some(count) = process.and_then(|p| counts.get_mut(p.idx())) {
                count.0 += calls;
                count.1 += ranges;
            }
        };
        profile.calls.iter().for_each(|c| process(c.thread, 1, 0));
        profile.ranges.iter().for_each(|r| process(r.thread, 0, 1));
        let best = counts.iter().enumerate();
        best.max_by_key(|(i, count)| (**count, std::cmp::Reverse(*i)))
            .map(|(i, _)| ProcessId::new(i))
    }

    /// Completes launch configurations, in blocks, for kernels whose event has none.
    fn complete_configs(&mut self) {
        if self.at_call.is_empty() {
            return;
        }
        let mut kernels = std::mem::take(&mut self.builder.profile.kernels);
        for kernel in &mut kernels {
            // The kernels of a graph share the id of its launch.
            let noted = kernel.correlation.map(|id| (kernel.process, id));
            let Some(noted) = noted.and_then(|key| self.at_call.get(&key)) else {
                continue;
            };
            let mut config = self.builder.profile.config(kernel);
            if config.grid == [0; 3] {
                config.grid = noted.grid;
                config.block = noted.block;
            }
            config.dynamic_shared = config.dynamic_shared.or(noted.shared);
            if noted.in_items {
                for (blocks, threads) in config.grid.iter_mut().zip(config.block) {
                    *blocks = blocks.div_ceil(threads.max(1));
                }
            }
            kernel.config = self.builder.config(config);
        }
        self.builder.profile.kernels = kernels;
    }
}

/// The arguments that describe a message.
fn message<'a>(args: &Args<'a>) -> Args<'a> {
    Args {
        collective: args.collective,
        in_elements: args.in_elements,
        out_elements: args.out_elements,
        group_size: args.group_size,
        group_ranks: args.group_ranks,
        dtype: args.dtype,
        ..Args::default()
    }
}

/// Arguments of messages that are numbers.
const COUNTS: [&str; 3] = ["In msg nelems", "Out msg nelems", "Group size"];

/// The interval of an event, in ns.
fn span(event: &Event<'_>, skipped: &mut SkippedRows, fractions: &mut bool) -> Option<Span> {
    let (start, end) = times(event, skipped, fractions);
    skipped.span(start, end)
}

fn times(
    event: &Event<'_>,
    skipped: &mut SkippedRows,
    fractions: &mut bool,
) -> (Option<i64>, Option<i64>) {
    skipped.rows += 1;
    let start = event.ts.and_then(nanoseconds);
    let length = event.dur.and_then(nanoseconds);
    let end = start.zip(length).and_then(|(s, l)| s.checked_add(l));
    *fractions |= [start, length].iter().flatten().any(|ns| ns % 1000 != 0);
    (start, end)
}

/// Parses `[13, 1, 1]`; zeros for any other form.
fn triple(value: Option<&RawValue>) -> [u32; 3] {
    value
        .and_then(|v| serde_json::from_str(v.get()).ok())
        .unwrap_or_default()
}

/// Parses `Memcpy HtoD (Pageable -> Device)`; older versions of ROCm write `CopyHostToDevice`.
fn copy_kind(name: &str) -> (CopyKind, MemoryKind, MemoryKind) {
    const KINDS: [([&str; 2], CopyKind); 5] = [
        (["HtoD", "HostToDevice"], CopyKind::HtoD),
        (["DtoH", "DeviceToHost"], CopyKind::DtoH),
        (["DtoD", "DeviceToDevice"], CopyKind::DtoD),
        (["HtoH", "HostToHost"], CopyKind::HtoH),
        (["PtoP", "PeerToPeer"], CopyKind::PtoP),
    ];
    let direction = name.split(" (").next().unwrap_or(name);
    let kind = KINDS
        .iter()
        .find(|(words, _)| words.iter().any(|w| direction.ends_with(w)))
        .map_or(CopyKind::Other, |(_, kind)| *kind);
    let ends = within_brackets(name).and_then(|ends| ends.split_once(" -> "));
    let (src, dst) = ends.map_or((MemoryKind::Unknown, MemoryKind::Unknown), |(src, dst)| {
        (memory_kind(src), memory_kind(dst))
    });
    (kind, src, dst)
}

fn within_brackets(name: &str) -> Option<&str> {
    name.split_once('(')?.1.strip_suffix(')')
}

/// Fewest numbered events for which a sample can be told from a trace.
const ENOUGH_NUMBERS: usize = 100;
/// Median distance between the numbers of a trace from which most of its events were taken out.
const SPARSE: u32 = 3;

/// Whether most events were taken out of a trace: PyTorch numbers them one by one, so that half of all
/// numbers or more follow directly on one another, also in a part that was cut out of a longer trace.
fn is_thinned(positions: &[u32]) -> bool {
    let mut numbers: Vec<u32> = positions
        .iter()
        .copied()
        .filter(|n| *n != u32::MAX)
        .collect();
    if numbers.len() < ENOUGH_NUMBERS {
        return false;
    }
    numbers.sort_unstable();
    let mut distances: Vec<u32> = (numbers.windows(2))
        .map(|pair| match pair {
            [a, b] => b - a,
            _ => 0,
        })
        .collect();
    median(&mut distances).is_some_and(|typical| typical >= SPARSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_names_contain_direction_and_memory_kinds() {
        use MemoryKind::{Device, Pageable, Pinned, Unknown};
        for (name, kind) in [
            (
                "Memcpy HtoD (Pageable -> Device)",
                (CopyKind::HtoD, Pageable, Device),
            ),
            (
                "Memcpy DtoH (Device -> Pinned)",
                (CopyKind::DtoH, Device, Pinned),
            ),
            (
                "Memcpy DtoD (Device -> Device)",
                (CopyKind::DtoD, Device, Device),
            ),
            (
                "Memcpy HtoD (Host -> Device)",
                (CopyKind::HtoD, Unknown, Device),
            ),
            (
                "Memcpy PtoP (Device -> Device)",
                (CopyKind::PtoP, Device, Device),
            ),
            ("CopyHostToDevice", (CopyKind::HtoD, Unknown, Unknown)),
            ("Memcpy Unknown (a", (CopyKind::Other, Unknown, Unknown)),
            ("", (CopyKind::Other, Unknown, Unknown)),
        ] {
            assert_eq!(copy_kind(name), kind, "{name}");
        }
    }

    #[test]
    fn categories_of_2021_and_today_are_known() {
        assert_eq!(category("Operator"), category("cpu_op"));
        assert_eq!(category("Kernel"), Some(Category::Kernel));
        assert_eq!(category("Runtime"), Some(Category::Call));
        assert_eq!(category("gpu_user_annotation"), None);
        assert_eq!(category("ac2g"), None);
    }
}
