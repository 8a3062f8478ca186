//! Facts of idle intervals, grouped by device, cause and the operator that blocked the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use rayon::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::affected::LongGap;
use super::before_update::BeforeUpdate;
use super::call_operators::{CallOperators, held_by_a_call};
use super::call_stacks::{self, GroupStacks};
use super::enclosing_ops::{operator_in, plain_name};
use super::fact::{Answer, FactEntry, facts};
use super::table::{GapScope, Gaps, Runs};
use crate::base::statistics::{NEARLY_ALL, median};
use crate::base::time_by::TimeBy;
use crate::correlate::{
    Activity, DeviceTimeline, Direction, Gap, GapCause, HostParts, OpName, PatternId, Run, SiteId,
    StepId, readable_name,
};
use crate::cost::{Costed, Family};
use crate::profile::{CallId, ClassId, CopyKind, KernelId, Span, StrId};

mod avoidable;
mod copies_behind;
mod cpu_work;
mod first_shapes;
mod host_time;
mod loader;
mod longest;
mod waited;
mod within_calls;

use avoidable::{Avoidable, AvoidablePart, WaitingOperators, is_behind_wait};
use copies_behind::{CopiesBefore, CopiesBehind};
pub(super) use cpu_work::CpuWork;
use cpu_work::{CpuTimes, OnCpu};
use first_shapes::FirstShapes;
pub(super) use loader::Loader;
use loader::LoaderRanges;
use longest::{HostPause, op_of};
use waited::{BehindWaits, ThreadWaits};
use within_calls::FirstKernels;

/// Gaps of one device with one cause and, where the blamed call stands in one, one operator.
#[derive(Debug)]
pub(super) struct GapGroup {
    pub(super) ordinal: u32,
    pub(super) window_ns: f64,
    pub(super) cause: GapCause,
    pub(super) blamed: Blamed,
    /// The innermost operator around the blamed call, as the profile spells it; where the host did
    /// something else than launch work, the range it was in.
    op: Option<StrId>,
    pub(super) count: u64,
    /// The host calls behind its gaps: behind one call, the GPU may run dry several times.
    pub(super) waits: u64,
    pub(super) time_ns: f64,
    median_ns: f64,
    /// Median size of the copies to the GPU that the host waited for.
    input_bytes: Option<f64>,
    /// The longest gaps, each in another place.
    pub(super) long_gaps: Vec<LongGap>,
    pub(super) sums: GapSums,
}

/// Operators listed per device and cause; the gaps of all others form one group without operator.
const MOST_OPS: usize = 64;

/// Sums over the gaps of a group, in ns, and the calls blamed for them.
#[derive(Debug, Default)]
pub(super) struct GapSums {
    /// The length of each.
    gaps: Vec<i64>,
    ns: i64,
    /// The calls blamed, and the gaps without one.
    calls: FxHashSet<CallId>,
    without_call: u64,
    /// The longest one, by the part that recording cannot explain.
    pub(super) longest: LongestGap,
    blamed: TimeBy<StrId>,
    /// Time per range that the host entered right after.
    before: TimeBy<Option<StrId>>,
    /// Time right before copies from host memory, and the time of these copies while no kernel ran.
    before_copy: i64,
    pub(super) copy: i64,
    /// Time right after copies to the host, and the size of the largest.
    after_copy: i64,
    after_copy_bytes: u64,
    /// Time per function or range that was called many times, each shortly.
    short_calls: TimeBy<Option<StrId>>,
    /// Where operators ran on the CPU: these, and time per operator, function or range around most of a gap.
    cpu: CpuTimes,
    inside: TimeBy<Option<StrId>>,
    behind_waits: BehindWaits,
    pub(super) stacks: GroupStacks,
    /// Time behind waits inside layers, per pattern of the layer whose kernel followed.
    in_layers: TimeBy<PatternId>,
    /// Time without work behind it: the last step ends with it.
    at_end: i64,
    /// Time behind waits for copies to the GPU, and their sizes.
    after_input: i64,
    input_bytes: Vec<u64>,
    /// Gaps of a millisecond and more in which the host did something else than launch work.
    pauses: Vec<HostPause>,
    /// Time before kernels of collectives and of the optimizer.
    beside_model: i64,
    /// Time of calls between a backward pass and the optimizer step.
    before_update: i64,
    /// Time after waits, while the host launches again but is not ahead of the GPU yet.
    pub(super) catch_up: i64,
    /// Time that would not be idle if the host did not wait.
    avoidable: AvoidablePart,
    /// Time inside first calls of operators with their arguments, which later calls do not take; and that in those that
    /// loaded code.
    first_calls: i64,
    first_loads: i64,
    /// Time per step that the work after the gap belongs to.
    steps: TimeBy<Option<StepId>>,
    /// Time per operator around the blamed calls, and per outermost one.
    around: TimeBy<StrId>,
    outer: TimeBy<StrId>,
    /// What the launching threads did.
    host: HostParts,
    /// Time that recording cannot explain of the gaps in `host`.
    host_reliable: i64,
}

/// A gap of a group: its part that recording cannot explain, its length and the kernel that ended it.
#[derive(Debug, Default)]
pub(super) struct LongestGap {
    pub(super) counted: i64,
    measured: i64,
    before: Option<KernelId>,
}

impl LongestGap {
    /// Becomes the other one if that is longer.
    fn replace(&mut self, other: LongestGap) {
        if (other.counted, other.measured) > (self.counted, self.measured) {
            *self = other;
        }
    }
}

/// Share of a measured length from which the part that recording cannot explain is that length.
const SAME_LENGTH: f64 = 0.98;

impl GapSums {
    /// Whether a part is most of the time.
    fn is_most(&self, ns: i64) -> bool {
        ns > self.ns / 2
    }

    /// What most of the time belongs to.
    fn main(&self, times: &TimeBy<Option<StrId>>) -> Option<StrId> {
        times.above(self.ns / 2).flatten()
    }

    fn append(&mut self, other: GapSums) {
        self.ns = self.ns.saturating_add(other.ns);
        self.host.add(&other.host);
        self.host_reliable += other.host_reliable;
        self.gaps.extend(other.gaps);
        self.calls.extend(other.calls);
        self.without_call += other.without_call;
        self.longest.replace(other.longest);
        self.blamed.append(other.blamed);
        self.before.append(other.before);
        self.short_calls.append(other.short_calls);
        self.cpu.append(other.cpu);
        self.inside.append(other.inside);
        self.behind_waits.append(other.behind_waits);
        self.stacks.append(other.stacks);
        self.in_layers.append(other.in_layers);
        self.before_copy += other.before_copy;
        self.copy += other.copy;
        self.after_copy += other.after_copy;
        self.after_copy_bytes = self.after_copy_bytes.max(other.after_copy_bytes);
        self.at_end += other.at_end;
        self.after_input += other.after_input;
        self.input_bytes.extend(other.input_bytes);
        self.pauses.extend(other.pauses);
        self.beside_model += other.beside_model;
        self.before_update += other.before_update;
        self.catch_up += other.catch_up;
        self.avoidable.add(other.avoidable);
        self.first_calls += other.first_calls;
        self.first_loads += other.first_loads;
        self.steps.append(other.steps);
        self.around.append(other.around);
        self.outer.append(other.outer);
    }

    /// The plain names of the operators around nearly all of the time.
    fn enclosing_ops(&self, run: &Run) -> Arc<[Arc<str>]> {
        let most = NEARLY_ALL * self.ns as f64;
        let ops = self.around.iter().filter(|(_, ns)| *ns as f64 >= most);
        let mut names: Vec<&str> = ops
            .filter_map(|(op, _)| operator_in(run.profile.text(op)))
            .collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(Arc::from).collect()
    }
}

/// Share of the time of a group in one step from which the others do not have it, and the number of analyzed
/// steps that it takes to tell.
const ONE_STEP: f64 = 2.0 / 3.0;
const FEWEST_STEPS: usize = 3;

/// What the host did in the gaps of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Blamed {
    op: Option<StrId>,
    /// Of operators that read one number, the one that the program called: `item`, or one that needs the
    /// number itself.
    asked_by: Option<StrId>,
    loader: Option<Loader>,
    /// What operators did on the CPU; then `op` is `None`, as there may be many.
    pub(super) on_cpu: Option<OnCpu>,
    /// What the functions did that took half of the time or more.
    class: Option<ClassId>,
    /// The next kernel waited for others of its operator's call.
    within_call: bool,
}

/// What the gaps of a device that are one group have in common.
type Key = (GapCause, Blamed);

/// All gaps inside the window in groups, by device, cause and operator.
pub(super) fn groups(
    costed: &Costed,
    ops: &CallOperators,
    before_update: &BeforeUpdate,
) -> Vec<GapGroup> {
    let run = &costed.run;
    let loaders = LoaderRanges::of(run);
    let first_shapes = FirstShapes::of(run);
    let copies = CopiesBehind::of(run);
    let copies_before = CopiesBefore::of(run);
    let waits = ThreadWaits::of(run);
    let first_kernels = FirstKernels::of(run);
    let waiting_operators = WaitingOperators::of(run, ops);
    let waited_for = run.waits.iter().filter_map(|w| Some((w.id, w.copy?)));
    let waited_for: FxHashMap<CallId, (CopyKind, u64)> = waited_for.collect();
    let of_device = |(row, device): (usize, &DeviceTimeline)| {
        let mut by_key: IndexMap<Key, GapSums, FxBuildHasher> = IndexMap::default();
        // Where the gap before was counted: the next one mostly belongs there as well.
        let mut last = 0;
        let avoidable = Avoidable::of(run, device, ops);
        let reliable = device.gaps.iter().enumerate();
        for (at, gap) in reliable.filter(|(_, gap)| gap.reliable_ns > 0) {
            let host = run.host.gaps.get(&(row, at));
            let held = gap.call.filter(|_| held_by_a_call(gap.cause));
            let waited = waiting_operators.launching(run, gap);
            let around = held.or(waited).and_then(|id| ops.around(id));
            let activity = match gap.cause {
                GapCause::HostBusy | GapCause::DataLoading => {
                    run.activities.get(&(row, at)).cloned().unwrap_or_default()
                }
                // What else the host called is the cause, with the operator around it.
                _ => Activity::default(),
            };
            let class = host.and_then(|parts| host_time::main_class(&run.host, parts));
            let on_cpu = cpu_work::on_cpu(run, gap, &activity);
            let op = activity.op.filter(|_| on_cpu.is_none());
            let blamed = Blamed {
                within_call: first_kernels.precede(run, gap),
                class: class.map(|(class, _)| class),
                op: around.map(|ops| ops.inner).or(op),
                on_cpu,
                asked_by: around.filter(|ops| ops.reads).map(|ops| ops.outer),
                loader: (gap.cause == GapCause::DataLoading)
                    .then(|| loaders.kind(run, device, gap)),
            };
            let key = (gap.cause, blamed);
            if by_key
                .get_index(last)
                .is_none_or(|(known, _)| *known != key)
            {
                let entry = by_key.entry(key);
                last = entry.index();
                entry.or_default();
            }
            let Some((_, sums)) = by_key.get_index_mut(last) else {
                continue;
            };
            sums.gaps.push(gap.reliable_ns);
            sums.ns = sums.ns.saturating_add(gap.reliable_ns);
            let first_of_call = match gap.call.or(waited) {
                Some(call) => sums.calls.insert(call),
                None => {
                    sums.without_call += 1;
                    false
                }
            };
            let copy = gap.call.and_then(|call| waited_for.get(&call));
            if let Some((CopyKind::HtoD, bytes)) = copy {
                sums.after_input += gap.reliable_ns;
                sums.input_bytes.extend(first_of_call.then_some(*bytes));
            }
            sums.longest.replace(LongestGap {
                counted: gap.reliable_ns,
                measured: gap.span.ns(),
                before: gap.next,
            });
            if let Some(parts) = host {
                sums.host.add(parts);
                sums.host_reliable += gap.reliable_ns;
            }
            let link = gap.next.and_then(|kernel| run.link(kernel));
            let step = link.map_or_else(|| step_of_launch(run, gap), |link| link.step);
            sums.steps.add(step, gap.reliable_ns);
            let site = link.and_then(|link| link.site);
            if site.is_some_and(|site| is_beside_model(costed, site)) {
                sums.beside_model += gap.reliable_ns;
            }
            if gap
                .call
                .is_some_and(|call| before_update.contains(run, call))
            {
                sums.before_update += gap.reliable_ns;
            }
            let behind_wait = is_behind_wait(gap.cause);
            if let Some(call) = gap.call.filter(|_| behind_wait).or(waited) {
                sums.stacks.add(ops.stacks.at(call), gap.reliable_ns);
            }
            sums.avoidable.add(avoidable.of_gap(at));
            if behind_wait
                && gap
                    .call
                    .is_some_and(|call| run.waits_in_layers.contains(&call))
            {
                let site = site.and_then(|site| run.site(site));
                let layer = site.and_then(|site| run.layer(site.layer?));
                if let Some(layer) = layer {
                    sums.in_layers.add(layer.pattern, gap.reliable_ns);
                }
            }
            if behind_wait && !gap.after_wait {
                sums.catch_up += gap.reliable_ns;
            }
            if let Some(first) = first_shapes.around(run, gap) {
                sums.first_calls += gap.reliable_ns;
                sums.first_loads += if first.loads { gap.reliable_ns } else { 0 };
            }
            sums.before.add(activity.before, gap.reliable_ns);
            sums.short_calls.add(activity.short_calls, gap.reliable_ns);
            if on_cpu.is_some() {
                sums.cpu.add(gap, &activity.cpu_ops);
                sums.inside.add(activity.op, gap.reliable_ns);
            }
            let behind = &mut sums.behind_waits;
            behind.add(run, ops, &waits, (device, gap));
            if activity.before_copy {
                sums.before_copy += gap.reliable_ns;
                sums.copy += copies.behind(run, device, gap);
            }
            if let Some(bytes) = copies_before.before(device, gap) {
                sums.after_copy += gap.reliable_ns;
                sums.after_copy_bytes = sums.after_copy_bytes.max(bytes);
            }
            let at_end = device.is_at_end(gap);
            if at_end {
                sums.at_end += gap.reliable_ns;
            }
            sums.pauses.extend(HostPause::of(gap, activity, at_end));
            if let Some(ops) = around {
                sums.outer.add(ops.outer, gap.reliable_ns);
                for op in ops.all.iter() {
                    sums.around.add(*op, gap.reliable_ns);
                }
            }
            if let Some(call) = gap.call.and_then(|id| run.profile.call(id)) {
                sums.blamed.add(call.name, gap.reliable_ns);
            }
        }
        let mut by_cause: BTreeMap<GapCause, BTreeMap<Blamed, GapSums>> = BTreeMap::new();
        for ((cause, blamed), sums) in by_key {
            by_cause.entry(cause).or_default().insert(blamed, sums);
        }
        let groups = by_cause.into_iter().flat_map(|(cause, by_op)| {
            let by_op = bounded(by_op).into_iter();
            by_op.map(move |(blamed, sums)| group(run, device, (cause, blamed), sums))
        });
        groups.collect::<Vec<GapGroup>>()
    };
    let devices = run.timeline.devices.par_iter().enumerate();
    devices.flat_map_iter(of_device).collect()
}

/// Whether a site is communication or part of the optimizer, which a graph of the model leaves as they are.
pub(super) fn is_beside_model(costed: &Costed, site: SiteId) -> bool {
    let update = (costed.run.site(site)).is_some_and(|s| s.direction == Direction::Update);
    let cost = costed.cost_of(site);
    update || cost.is_some_and(|cost| cost.family == Family::Communication)
}

/// Idle time in which the host waited for worker processes of a data loader.
pub(super) fn waits_for_workers_ns(groups: &[GapGroup]) -> f64 {
    let waits = groups
        .iter()
        .filter(|group| group.blamed.loader == Some(Loader::MultiProcess));
    waits.map(|group| group.time_ns).sum()
}

fn group(run: &Run, device: &DeviceTimeline, (cause, blamed): Key, mut sums: GapSums) -> GapGroup {
    GapGroup {
        ordinal: (run.profile.device(device.device)).map_or(0, |d| d.ordinal),
        window_ns: device.unrecorded_ns() as f64,
        cause,
        op: blamed.op.or_else(|| sums.main(&sums.inside)),
        blamed,
        count: sums.gaps.len() as u64,
        waits: sums.calls.len() as u64 + sums.without_call,
        time_ns: sums.ns as f64,
        median_ns: median(&mut sums.gaps).unwrap_or(0) as f64,
        input_bytes: median(&mut sums.input_bytes).map(|bytes| bytes as f64),
        long_gaps: longest::longest(run, std::mem::take(&mut sums.pauses)),
        sums,
    }
}

/// The layers in which the host waited most, if it waited in layers at all for most of the time.
fn most_in_layers(sums: &GapSums) -> Option<PatternId> {
    let times = &sums.in_layers;
    times.longest().filter(|_| sums.is_most(times.ns()))
}

/// Whether one of several steps has most of the idle time, each counted as a share of its length, on the host or
/// on the GPU: a step may be longer than others and idle just as they are, and the last one may end on the host
/// before its work does.
fn is_in_one_step(run: &Run, sums: &GapSums) -> bool {
    let mut analyzed = run.steps.iter().filter(|step| !step.warmup);
    let idle = sums.steps.iter().filter_map(|(id, ns)| {
        let step = run.step(id?)?;
        let length = step.span.ns().max(step.gpu.map_or(0, Span::ns));
        Some(ns as f64 / length.max(1) as f64)
    });
    let (most, sum) = idle.fold((0.0, 0.0), |(most, sum): (f64, f64), share| {
        (most.max(share), sum + share)
    });
    let counted: i64 = sums
        .steps
        .iter()
        .filter(|(id, _)| id.is_some())
        .map(|(_, ns)| ns)
        .sum();
    // Time outside of steps is time that the step does not have.
    let in_steps = counted as f64 / sums.ns.max(1) as f64;
    analyzed.nth(FEWEST_STEPS - 1).is_some() && most * in_steps > ONE_STEP * sum
}

/// The step in which the work behind a gap was launched.
fn step_of_launch(run: &Run, gap: &Gap) -> Option<StepId> {
    let launch = gap.launch(&run.profile)?;
    let process = run.profile.process_of(launch.thread)?;
    let steps = run.process_steps.get(process.idx())?;
    let after = steps.partition_point(|(span, _)| span.start <= launch.span.start);
    let (span, step) = steps.get(after.checked_sub(1)?)?;
    span.contains(launch.span.start).then_some(*step)
}

/// Whether there are several analyzed steps, and each has some of the time of a group.
fn is_in_each_step(run: &Run, sums: &GapSums) -> bool {
    let steps = (run.steps.iter().enumerate()).filter(|(_, step)| !step.warmup);
    let has_some = |at: usize| sums.steps.contains(Some(StepId::new(at)));
    let (all, with) = steps.fold((0, 0), |(all, with), (at, _)| {
        (all + 1, with + usize::from(has_some(at)))
    });
    all > 1 && with == all
}

/// The operators with most idle time; all others together as none.
fn bounded(by_op: BTreeMap<Blamed, GapSums>) -> BTreeMap<Blamed, GapSums> {
    if by_op.len() <= MOST_OPS {
        return by_op;
    }
    let mut order: Vec<(Blamed, GapSums)> = by_op.into_iter().collect();
    order.sort_by_key(|(blamed, sums)| (std::cmp::Reverse(sums.ns), *blamed));
    let mut kept: BTreeMap<Blamed, GapSums> = BTreeMap::new();
    for (at, (blamed, sums)) in order.into_iter().enumerate() {
        let rest = Blamed {
            within_call: blamed.within_call,
            loader: blamed.loader,
            on_cpu: blamed.on_cpu,
            class: blamed.class,
            ..Blamed::default()
        };
        let into = if at < MOST_OPS { blamed } else { rest };
        kept.entry(into).or_default().append(sums);
    }
    kept
}

/// The facts of gaps.
pub(super) fn entries() -> impl Iterator<Item = &'static FactEntry<Gaps>> {
    ENTRIES
        .iter()
        .chain(cpu_work::ENTRIES)
        .chain(waited::ENTRIES)
        .chain(avoidable::ENTRIES)
        .chain(call_stacks::ENTRIES)
        .chain(host_time::ENTRIES)
}

const ENTRIES: &[FactEntry<Gaps>] = facts! {
    /// `profiler_overhead`, `data_loading`, `after_sync`, `blocking_copy`, `allocation`, `module_load`,
    /// `slow_launch`, `host_late`, `host_busy`, `waiting` or `unknown`
    "gap.cause": STR => |g| g.group.cause.name(),
    /// CUDA ordinal of the idle device
    "gap.device": INT => |g| g.group.ordinal,
    /// Idle intervals that recording overhead cannot explain
    "gap.count": INT => |g| g.group.count,
    /// Idle time that recording overhead cannot explain, summed
    "gap.time_ns": DOUBLE => |g| g.group.time_ns,
    /// Longest idle interval, without what recording explains of it
    "gap.longest_ns": DOUBLE => |g| g.group.sums.longest.counted as f64,
    /// The longest idle interval as measured, where recording explains 2 % of it or more
    "gap.longest_measured_ns": DOUBLE => |g| {
        let counted = g.group.sums.longest.counted as f64;
        let measured = Some(g.group.sums.longest.measured as f64);
        Answer::or_silent(measured.filter(|ns| counted <= SAME_LENGTH * ns))
    },
    /// The operator whose kernel ended the longest idle interval: `aten::nonzero`
    "gap.longest_before": STR => |g| {
        let kernel = g.group.sums.longest.before;
        let op = kernel.and_then(|kernel| op_of(&g.table.costed.run, kernel));
        Answer::or_silent(op.map(OpName::display))
    },
    /// `gap.longest_ns` as a share of `gap.time_ns`
    "gap.longest_share": DOUBLE => |g| Answer::share(g.group.sums.longest.counted as f64, g.group.time_ns),
    /// Median idle interval
    "gap.median_ns": DOUBLE => |g| g.group.median_ns,
    /// Share of its time in pauses of a millisecond or more inside the first call of an operator with its
    /// arguments, which takes ten times as long as later ones: libraries choose and load their kernels then
    "gap.first_call_share": DOUBLE => |g| Answer::share(g.group.sums.first_calls as f64, g.group.time_ns),
    /// The part of `gap.first_call_share` in calls of which the driver takes a fifth or more: code is loaded then
    "gap.first_load_share": DOUBLE => |g| Answer::share(g.group.sums.first_loads as f64, g.group.time_ns),
    /// One of three or more analyzed steps holds two thirds of the idle time or more: it does not happen in
    /// each step
    "gap.in_one_step": BOOL => |g| is_in_one_step(&g.table.costed.run, &g.group.sums),
    /// There are two or more analyzed steps, and each of them has some of the idle time
    "gap.in_each_step": BOOL => |g| is_in_each_step(&g.table.costed.run, &g.group.sums),
    /// Idle time as a share of its device's window
    "gap.window_share": DOUBLE => |g| Answer::share(g.group.time_ns, g.group.window_ns),
    /// The host call that caused most of the idle time
    "gap.api": STR needs API => |g| g.group.sums.blamed.longest().map(|id| g.table.text(id)),
    /// The operator around `gap.api`, without namespace and underscores: `item`, `local_scalar_dense`,
    /// `nonzero`, `copy`; for `host_late` the operator that waits inside the call that launched what ended all of the
    /// intervals
    "gap.op_name": STR needs RANGES_OF_OPS =>
        |g| op(g).map(|op| plain_name(op.rsplit("::").next().unwrap_or(op))),
    /// The operator around `gap.api` as the profile spells it; for `host_busy` and `data_loading` the
    /// innermost function or range in which the host spent most of the interval, a Python function as `name
    /// (folder/file.py:line)`
    "gap.op": STR needs RANGES_OF_OPS => |g| op(g).map(readable_name).as_deref(),
    /// The outermost operator around `gap.api` as the profile spells it: the one that the program called
    "gap.outer_op": STR needs RANGES_OF_OPS => |g| g.group.sums.outer.longest().map(|id| g.table.text(id)),
    /// The operators around `gap.api` in nine tenths of the time, plainly spelled: `item`,
    /// `repeat_interleave`; compiled code as `torch_compiled`
    "gap.enclosing_ops": STRINGS => |g| g.group.sums.enclosing_ops(&g.table.costed.run),
    /// For `data_loading`: `single_process` (a DataLoader without workers), `multi_process`, or `other`
    "gap.loader": STR => |g| Answer::or_silent(g.group.blamed.loader.map(Loader::name)),
    /// For `host_busy` and `data_loading`: the range of the program that the host entered right after most
    /// of the time
    "gap.before": STR => |g| {
        let range = g.group.sums.main(&g.group.sums.before);
        Answer::or_silent(range.map(|id| g.table.text(id)))
    },
    /// For `host_busy` and `data_loading`: whether a copy from host memory followed most of the time
    "gap.before_copy": BOOL => |g| g.group.sums.is_most(g.group.sums.before_copy),
    /// For `host_busy`: the size of the largest copy to the host in the last millisecond before the intervals, where
    /// most of the time follows such a copy; silent where it follows other work
    "gap.after_copy_bytes": DOUBLE => |g| {
        let sums = &g.group.sums;
        Answer::or_silent(sums.is_most(sums.after_copy).then_some(sums.after_copy_bytes as f64))
    },
    /// For `host_busy` and `data_loading`: the copies from host memory that ended the intervals, as far as
    /// no kernel ran beside them. Advice that removes these copies adds it to what it saves of the idle
    /// time
    "gap.copy_ns": DOUBLE => |g| g.group.sums.copy as f64,
    /// For `host_busy` and `data_loading`: what the host called many times inside `gap.op` in most of the
    /// time, each time shortly; a Python function as `name (folder/file.py:line)`
    "gap.short_calls": STR => |g| {
        let calls = g.group.sums.main(&g.group.sums.short_calls);
        let calls = calls.map(|id| readable_name(g.table.text(id)));
        Answer::or_silent(calls.as_deref())
    },
    /// Median size of the copies to the GPU that the host waited for in most of the time; silent where it waited for
    /// something else
    "gap.input_bytes": DOUBLE => |g| {
        let sums = &g.group.sums;
        Answer::or_silent(g.group.input_bytes.filter(|_| sums.is_most(sums.after_input)))
    },
    /// Largest size of these copies; silent as `gap.input_bytes`
    "gap.largest_input_bytes": DOUBLE => |g| {
        let sums = &g.group.sums;
        let largest = sums.input_bytes.iter().max().map(|bytes| *bytes as f64);
        Answer::or_silent(largest.filter(|_| sums.is_most(sums.after_input)))
    },
    /// For `waiting`: whether all of it stands between kernels of one call of an operator
    "gap.within_calls": BOOL => |g| g.group.blamed.within_call,
    /// No work followed most of the time: the last step ends with it
    "gap.at_end": BOOL => |g| g.group.sums.is_most(g.group.sums.at_end),
    /// Part of `gap.time_ns` that ended with a kernel of a collective or of the optimizer, which a CUDA
    /// graph of the model leaves as they are
    "gap.beside_model_ns": DOUBLE => |g| g.group.sums.beside_model as f64,
    /// `gap.api` was called between a backward pass and the optimizer step behind it, for most of the time
    "gap.before_update": BOOL => |g| g.group.sums.is_most(g.group.sums.before_update),
};

/// Operators that read one number.
const READS: [&str; 3] = ["item", "local_scalar_dense", "is_nonzero"];

pub(super) const RUN_ENTRIES: &[FactEntry<Runs>] = facts! {
    /// The layers behind most of the idle time after reads of single numbers (`item`), where most of these reads are inside
    /// layers
    "run.read_back_layer": STR needs LAYERS => |t| {
        let reads = |group: &&GapGroup| {
            let name = group.op.map(|id| t.text(id)).and_then(|text| text.rsplit("::").next());
            is_behind_wait(group.cause)
                && name.is_some_and(|name| READS.contains(&plain_name(name)))
        };
        let most = t.gaps.iter().filter(reads).max_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
        let layers = most.and_then(|group| t.costed.run.pattern(most_in_layers(&group.sums)?));
        layers.map(|pattern| pattern.name.as_str())
    },
};

fn op<'a>(g: &GapScope<'a>) -> Option<&'a str> {
    g.group.op.map(|id| g.table.text(id))
}

#[cfg(test)]
mod tests {
    use super::{GapSums, LongestGap, most_in_layers};
    use crate::correlate::PatternId;

    #[test]
    fn the_longest_gap_has_most_time_that_recording_does_not_explain() {
        let mut longest = LongestGap::default();
        for (counted, measured) in [(41, 41), (34, 200), (41, 116), (40, 40)] {
            longest.replace(LongestGap {
                counted,
                measured,
                before: None,
            });
        }
        assert_eq!((longest.counted, longest.measured), (41, 116));
    }

    #[test]
    fn waits_are_in_layers_if_most_of_their_time_is() {
        let in_layers = |ns| {
            let times = [(PatternId(0), 20), (PatternId(1), 40)];
            most_in_layers(&GapSums {
                ns,
                in_layers: times.into_iter().collect(),
                ..GapSums::default()
            })
        };
        assert_eq!(in_layers(100), Some(PatternId(1)));
        assert_eq!(in_layers(120), None);
    }
}
