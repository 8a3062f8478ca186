//! Facts of idle intervals, grouped by device, cause and the operator that blocked the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

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
#[derive(Debug, Clone)]
pub(super) struct GapGroup {
    pub(super) ordinal: u32,
    pub(super) cause: GapCause,
    /// The innermost operator around the blamed call, as the profile spells it; where the host did
    /// something else than launch work, the range it was in.
    pub(super) op: Option<StrId>,
    /// The outermost operator around the blamed call.
    outer_op: Option<StrId>,
    /// The plain names of the operators around nine tenths of the time, sorted.
    inside: Arc<[Arc<str>]>,
    /// For data loading: the kind of loader.
    loader: Option<Loader>,
    /// What operators did on the CPU, and which ones.
    pub(super) on_cpu: Option<OnCpu>,
    cpu: CpuTimes,
    behind_waits: BehindWaits,
    /// The Python functions around the calls that wait.
    pub(super) stacks: GroupStacks,
    /// The layers in which it waited most, if it waited in layers at all for most of the time.
    in_layers: Option<PatternId>,
    pub(super) count: u64,
    /// The host calls behind its gaps: behind one call, the GPU may run dry several times.
    pub(super) waits: u64,
    pub(super) time_ns: f64,
    /// The part of the longest one that recording cannot explain, and that one as measured.
    pub(super) longest_ns: f64,
    longest_measured_ns: f64,
    /// The kernel that ended the longest one.
    longest_before: Option<KernelId>,
    pub(super) median_ns: f64,
    pub(super) window_ns: f64,
    /// The host call blamed for most of the time.
    pub(super) api: Option<StrId>,
    /// The range that the host entered right after most of the time.
    before: Option<StrId>,
    /// A copy from host memory followed most of the time.
    pub(super) before_copy: bool,
    /// A copy to the host came right before most of the time: the size of the largest.
    after_copy_bytes: Option<u64>,
    /// What was called many times, each shortly, in most of the time.
    short_calls: Option<StrId>,
    /// Median and largest size of the copies to the GPU that the host waited for in most of the time.
    input_bytes: Option<f64>,
    largest_input: Option<u64>,
    /// It stands between kernels of one call, each time.
    within_calls: bool,
    /// No work followed most of the time: the last step ends with it.
    at_end: bool,
    /// The longest gaps, each in another place.
    pub(super) long_gaps: Vec<LongGap>,
    /// Time of the copies from host memory that ended its gaps, while no kernel ran.
    pub(super) copy_ns: f64,
    /// One of several steps holds most of the time, or each has some.
    in_one_step: bool,
    in_each_step: bool,
    /// The part before kernels of collectives and of the optimizer.
    beside_model_ns: f64,
    /// Its calls stand between a backward pass and the optimizer step for most of the time.
    before_update: bool,
    /// The part after waits, while the host launches again but is not ahead of the GPU yet.
    pub(super) catch_up_ns: f64,
    /// The part that would not be idle if the host did not wait.
    avoidable: AvoidablePart,
    /// The part inside first calls of operators with their arguments, which later calls do not take; and that in
    /// those that loaded code.
    first_calls_ns: f64,
    first_loads_ns: f64,
    /// What the launching threads did, and the part of that time that recording cannot explain.
    host: HostParts,
    host_reliable_share: f64,
}

/// Operators listed per device and cause; the gaps of all others form one group without operator.
const MOST_OPS: usize = 64;

/// The lengths of the gaps of a group, and the calls blamed for them.
#[derive(Debug, Default)]
struct Lengths {
    gaps: Vec<i64>,
    /// The calls blamed, and the gaps without one.
    calls: FxHashSet<CallId>,
    without_call: u64,
    /// The longest one, by the part that recording cannot explain.
    longest: LongestGap,
    blamed: TimeBy<StrId>,
    before: TimeBy<Option<StrId>>,
    before_copy: i64,
    copy: i64,
    /// Time right after copies to the host, and the size of the largest.
    after_copy: i64,
    after_copy_bytes: u64,
    short_calls: TimeBy<Option<StrId>>,
    /// Where operators ran on the CPU: these, and time per operator, function or range around most of a gap.
    cpu: CpuTimes,
    inside: TimeBy<Option<StrId>>,
    behind_waits: BehindWaits,
    stacks: GroupStacks,
    /// Time behind waits inside layers, per pattern of the layer whose kernel followed.
    in_layers: TimeBy<PatternId>,
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
    catch_up: i64,
    avoidable: AvoidablePart,
    first_calls: i64,
    first_loads: i64,
    /// Time per step that the work after the gap belongs to.
    steps: TimeBy<Option<StepId>>,
    /// Time per operator around the blamed calls, and per outermost one.
    around: TimeBy<StrId>,
    outer: TimeBy<StrId>,
    host: HostParts,
    /// Time that recording cannot explain of the gaps in `host`.
    host_reliable: i64,
}

/// A gap of a group: its part that recording cannot explain, its length and the kernel that ended it.
#[derive(Debug, Default)]
struct LongestGap {
    counted: i64,
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

impl Lengths {
    fn ns(&self) -> i64 {
        self.gaps.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    fn append(&mut self, other: Lengths) {
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
    fn inside(&self, run: &Run) -> Arc<[Arc<str>]> {
        let most = NEARLY_ALL * self.ns() as f64;
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
struct Blamed {
    op: Option<StrId>,
    /// Of operators that read one number, the one that the program called: `item`, or one that needs the
    /// number itself.
    asked_by: Option<StrId>,
    loader: Option<Loader>,
    /// What operators did on the CPU; then `op` is `None`, as there may be many.
    on_cpu: Option<OnCpu>,
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
    let mut groups = Vec::new();
    for (row, device) in run.timeline.devices.iter().enumerate() {
        let mut by_key: FxHashMap<Key, Lengths> = FxHashMap::default();
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
            let lengths = by_key.entry((gap.cause, blamed)).or_default();
            lengths.gaps.push(gap.reliable_ns);
            let first_of_call = match gap.call.or(waited) {
                Some(call) => lengths.calls.insert(call),
                None => {
                    lengths.without_call += 1;
                    false
                }
            };
            let copy = gap.call.and_then(|call| waited_for.get(&call));
            if let Some((CopyKind::HtoD, bytes)) = copy {
                lengths.after_input += gap.reliable_ns;
                lengths.input_bytes.extend(first_of_call.then_some(*bytes));
            }
            lengths.longest.replace(LongestGap {
                counted: gap.reliable_ns,
                measured: gap.span.ns(),
                before: gap.next,
            });
            if let Some(parts) = host {
                lengths.host.add(parts);
                lengths.host_reliable += gap.reliable_ns;
            }
            let link = gap.next.and_then(|kernel| run.link(kernel));
            let step = link.map_or_else(|| step_of_launch(run, gap), |link| link.step);
            lengths.steps.add(step, gap.reliable_ns);
            let site = link.and_then(|link| link.site);
            if site.is_some_and(|site| is_beside_model(costed, site)) {
                lengths.beside_model += gap.reliable_ns;
            }
            if gap
                .call
                .is_some_and(|call| before_update.contains(run, call))
            {
                lengths.before_update += gap.reliable_ns;
            }
            let behind_wait = is_behind_wait(gap.cause);
            if let Some(call) = gap.call.filter(|_| behind_wait).or(waited) {
                lengths.stacks.add(ops.stacks.at(call), gap.reliable_ns);
            }
            lengths.avoidable.add(avoidable.of_gap(at));
            if behind_wait
                && gap
                    .call
                    .is_some_and(|call| run.waits_in_layers.contains(&call))
            {
                let site = site.and_then(|site| run.site(site));
                let layer = site.and_then(|site| run.layer(site.layer?));
                if let Some(layer) = layer {
                    lengths.in_layers.add(layer.pattern, gap.reliable_ns);
                }
            }
            if behind_wait && !gap.after_wait {
                lengths.catch_up += gap.reliable_ns;
            }
            if let Some(first) = first_shapes.around(run, gap) {
                lengths.first_calls += gap.reliable_ns;
                lengths.first_loads += if first.loads { gap.reliable_ns } else { 0 };
            }
            lengths.before.add(activity.before, gap.reliable_ns);
            lengths
                .short_calls
                .add(activity.short_calls, gap.reliable_ns);
            if on_cpu.is_some() {
                lengths.cpu.add(gap, &activity.cpu_ops);
                lengths.inside.add(activity.op, gap.reliable_ns);
            }
            let behind = &mut lengths.behind_waits;
            behind.add(run, ops, &waits, (device, gap));
            if activity.before_copy {
                lengths.before_copy += gap.reliable_ns;
                lengths.copy += copies.behind(run, device, gap);
            }
            if let Some(bytes) = copies_before.before(device, gap) {
                lengths.after_copy += gap.reliable_ns;
                lengths.after_copy_bytes = lengths.after_copy_bytes.max(bytes);
            }
            let at_end = device.is_at_end(gap);
            if at_end {
                lengths.at_end += gap.reliable_ns;
            }
            lengths.pauses.extend(HostPause::of(gap, activity, at_end));
            if let Some(ops) = around {
                lengths.outer.add(ops.outer, gap.reliable_ns);
                for op in ops.all.iter() {
                    lengths.around.add(*op, gap.reliable_ns);
                }
            }
            if let Some(call) = gap.call.and_then(|id| run.profile.call(id)) {
                lengths.blamed.add(call.name, gap.reliable_ns);
            }
        }
        let mut by_cause: BTreeMap<GapCause, BTreeMap<Blamed, Lengths>> = BTreeMap::new();
        for ((cause, blamed), lengths) in by_key {
            by_cause.entry(cause).or_default().insert(blamed, lengths);
        }
        for (cause, by_op) in by_cause {
            for (blamed, lengths) in bounded(by_op) {
                groups.push(group(run, device, (cause, blamed), lengths));
            }
        }
    }
    groups
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
        .filter(|group| group.loader == Some(Loader::MultiProcess));
    waits.map(|group| group.time_ns).sum()
}

fn group(
    run: &Run,
    device: &DeviceTimeline,
    (cause, blamed): Key,
    mut lengths: Lengths,
) -> GapGroup {
    let inside = lengths.inside(run);
    let half = lengths.ns() / 2;
    let in_one_step = is_in_one_step(run, &lengths);
    let in_each_step = is_in_each_step(run, &lengths);
    let main = |times: TimeBy<Option<StrId>>| times.above(half).flatten();
    let long_gaps = longest::longest(run, lengths.pauses);
    let largest_input = lengths.input_bytes.iter().max().copied();
    let input_bytes = median(&mut lengths.input_bytes).map(|bytes| bytes as f64);
    let gaps = &mut lengths.gaps;
    GapGroup {
        before: main(lengths.before),
        before_copy: lengths.before_copy > half,
        copy_ns: lengths.copy as f64,
        after_copy_bytes: (lengths.after_copy > half).then_some(lengths.after_copy_bytes),
        short_calls: main(lengths.short_calls),
        input_bytes: input_bytes.filter(|_| lengths.after_input > half),
        largest_input: largest_input.filter(|_| lengths.after_input > half),
        within_calls: blamed.within_call,
        at_end: lengths.at_end > half,
        long_gaps,
        in_one_step,
        in_each_step,
        beside_model_ns: lengths.beside_model as f64,
        before_update: lengths.before_update > half,
        catch_up_ns: lengths.catch_up as f64,
        avoidable: lengths.avoidable,
        first_calls_ns: lengths.first_calls as f64,
        first_loads_ns: lengths.first_loads as f64,
        host_reliable_share: lengths.host_reliable as f64 / lengths.host.ns.max(1) as f64,
        host: lengths.host,
        ordinal: (run.profile.device(device.device)).map_or(0, |d| d.ordinal),
        cause,
        op: blamed.op.or_else(|| main(lengths.inside)),
        on_cpu: blamed.on_cpu,
        cpu: lengths.cpu,
        behind_waits: lengths.behind_waits,
        stacks: lengths.stacks,
        in_layers: most_in_layers(&lengths.in_layers, half),
        outer_op: lengths.outer.longest(),
        inside,
        loader: blamed.loader,
        count: gaps.len() as u64,
        waits: lengths.calls.len() as u64 + lengths.without_call,
        time_ns: gaps.iter().map(|&ns| ns as f64).sum(),
        longest_ns: lengths.longest.counted as f64,
        longest_measured_ns: lengths.longest.measured as f64,
        longest_before: lengths.longest.before,
        median_ns: median(gaps).unwrap_or(0) as f64,
        window_ns: device.unrecorded_ns() as f64,
        api: lengths.blamed.longest(),
    }
}

/// The layers with most of the time, if all of them have more than `half` of that of a group.
fn most_in_layers(times: &TimeBy<PatternId>, half: i64) -> Option<PatternId> {
    times.longest().filter(|_| times.ns() > half)
}

/// Whether one of several steps has most of the idle time, each counted as a share of its length, on the host or
/// on the GPU: a step may be longer than others and idle just as they are, and the last one may end on the host
/// before its work does.
fn is_in_one_step(run: &Run, lengths: &Lengths) -> bool {
    let mut analyzed = run.steps.iter().filter(|step| !step.warmup);
    let idle = lengths.steps.iter().filter_map(|(id, ns)| {
        let step = run.step(id?)?;
        let length = step.span.ns().max(step.gpu.map_or(0, Span::ns));
        Some(ns as f64 / length.max(1) as f64)
    });
    let (most, sum) = idle.fold((0.0, 0.0), |(most, sum): (f64, f64), share| {
        (most.max(share), sum + share)
    });
    let counted: i64 = lengths
        .steps
        .iter()
        .filter(|(id, _)| id.is_some())
        .map(|(_, ns)| ns)
        .sum();
    // Time outside of steps is time that the step does not have.
    let in_steps = counted as f64 / lengths.ns().max(1) as f64;
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
fn is_in_each_step(run: &Run, lengths: &Lengths) -> bool {
    let steps = (run.steps.iter().enumerate()).filter(|(_, step)| !step.warmup);
    let has_some = |at: usize| lengths.steps.contains(Some(StepId::new(at)));
    let (all, with) = steps.fold((0, 0), |(all, with), (at, _)| {
        (all + 1, with + usize::from(has_some(at)))
    });
    all > 1 && with == all
}

/// The operators with most idle time; all others together as none.
fn bounded(by_op: BTreeMap<Blamed, Lengths>) -> BTreeMap<Blamed, Lengths> {
    if by_op.len() <= MOST_OPS {
        return by_op;
    }
    let mut order: Vec<(Blamed, Lengths)> = by_op.into_iter().collect();
    order.sort_by_key(|(blamed, lengths)| (std::cmp::Reverse(lengths.ns()), *blamed));
    let mut kept: BTreeMap<Blamed, Lengths> = BTreeMap::new();
    for (at, (blamed, lengths)) in order.into_iter().enumerate() {
        let rest = Blamed {
            within_call: blamed.within_call,
            loader: blamed.loader,
            on_cpu: blamed.on_cpu,
            class: blamed.class,
            ..Blamed::default()
        };
        let into = if at < MOST_OPS { blamed } else { rest };
        kept.entry(into).or_default().append(lengths);
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
    "gap.longest_ns": DOUBLE => |g| g.group.longest_ns,
    /// The longest idle interval as measured, where recording explains 2 % of it or more
    "gap.longest_measured_ns": DOUBLE => |g| {
        let counted = g.group.longest_ns;
        let measured = Some(g.group.longest_measured_ns);
        Answer::or_silent(measured.filter(|ns| counted <= SAME_LENGTH * ns))
    },
    /// The operator whose kernel ended the longest idle interval: `aten::nonzero`
    "gap.longest_before": STR => |g| {
        let kernel = g.group.longest_before;
        let op = kernel.and_then(|kernel| op_of(&g.table.costed.run, kernel));
        Answer::or_silent(op.map(OpName::display))
    },
    /// `gap.longest_ns` as a share of `gap.time_ns`
    "gap.longest_share": DOUBLE => |g| Answer::share(g.group.longest_ns, g.group.time_ns),
    /// Median idle interval
    "gap.median_ns": DOUBLE => |g| g.group.median_ns,
    /// Share of its time in pauses of a millisecond or more inside the first call of an operator with its
    /// arguments, which takes ten times as long as later ones: libraries choose and load their kernels then
    "gap.first_call_share": DOUBLE => |g| Answer::share(g.group.first_calls_ns, g.group.time_ns),
    /// The part of `gap.first_call_share` in calls of which the driver takes a fifth or more: code is loaded then
    "gap.first_load_share": DOUBLE => |g| Answer::share(g.group.first_loads_ns, g.group.time_ns),
    /// One of three or more analyzed steps holds two thirds of the idle time or more: it does not happen in
    /// each step
    "gap.in_one_step": BOOL => |g| g.group.in_one_step,
    /// There are two or more analyzed steps, and each of them has some of the idle time
    "gap.in_each_step": BOOL => |g| g.group.in_each_step,
    /// Idle time as a share of its device's window
    "gap.window_share": DOUBLE => |g| Answer::share(g.group.time_ns, g.group.window_ns),
    /// The host call that caused most of the idle time
    "gap.api": STR needs API => |g| g.group.api.map(|id| g.table.text(id)),
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
    "gap.outer_op": STR needs RANGES_OF_OPS => |g| g.group.outer_op.map(|id| g.table.text(id)),
    /// The operators around `gap.api` in nine tenths of the time, plainly spelled: `item`,
    /// `repeat_interleave`; compiled code as `torch_compiled`
    "gap.enclosing_ops": STRINGS => |g| Arc::clone(&g.group.inside),
    /// For `data_loading`: `single_process` (a DataLoader without workers), `multi_process`, or `other`
    "gap.loader": STR => |g| Answer::or_silent(g.group.loader.map(Loader::name)),
    /// For `host_busy` and `data_loading`: the range of the program that the host entered right after most
    /// of the time
    "gap.before": STR => |g| Answer::or_silent(g.group.before.map(|id| g.table.text(id))),
    /// For `host_busy` and `data_loading`: whether a copy from host memory followed most of the time
    "gap.before_copy": BOOL => |g| g.group.before_copy,
    /// For `host_busy`: the size of the largest copy to the host in the last millisecond before the intervals, where
    /// most of the time follows such a copy; silent where it follows other work
    "gap.after_copy_bytes": DOUBLE =>
        |g| Answer::or_silent(g.group.after_copy_bytes.map(|bytes| bytes as f64)),
    /// For `host_busy` and `data_loading`: the copies from host memory that ended the intervals, as far as
    /// no kernel ran beside them. Advice that removes these copies adds it to what it saves of the idle
    /// time
    "gap.copy_ns": DOUBLE => |g| g.group.copy_ns,
    /// For `host_busy` and `data_loading`: what the host called many times inside `gap.op` in most of the
    /// time, each time shortly; a Python function as `name (folder/file.py:line)`
    "gap.short_calls": STR => |g| {
        let calls = g.group.short_calls.map(|id| readable_name(g.table.text(id)));
        Answer::or_silent(calls.as_deref())
    },
    /// Median size of the copies to the GPU that the host waited for in most of the time; silent where it waited for
    /// something else
    "gap.input_bytes": DOUBLE => |g| Answer::or_silent(g.group.input_bytes),
    /// Largest size of these copies; silent as `gap.input_bytes`
    "gap.largest_input_bytes": DOUBLE =>
        |g| Answer::or_silent(g.group.largest_input.map(|bytes| bytes as f64)),
    /// For `waiting`: whether all of it stands between kernels of one call of an operator
    "gap.within_calls": BOOL => |g| g.group.within_calls,
    /// No work followed most of the time: the last step ends with it
    "gap.at_end": BOOL => |g| g.group.at_end,
    /// Part of `gap.time_ns` that ended with a kernel of a collective or of the optimizer, which a CUDA
    /// graph of the model leaves as they are
    "gap.beside_model_ns": DOUBLE => |g| g.group.beside_model_ns,
    /// `gap.api` was called between a backward pass and the optimizer step behind it, for most of the time
    "gap.before_update": BOOL => |g| g.group.before_update,
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
        let layers = most.and_then(|group| t.costed.run.pattern(group.in_layers?));
        layers.map(|pattern| pattern.name.as_str())
    },
};

fn op<'a>(g: &GapScope<'a>) -> Option<&'a str> {
    g.group.op.map(|id| g.table.text(id))
}

#[cfg(test)]
mod tests {
    use super::{LongestGap, most_in_layers};
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
        let in_layers = |half| {
            let times = [(PatternId(0), 20), (PatternId(1), 40)];
            most_in_layers(&times.into_iter().collect(), half)
        };
        assert_eq!(in_layers(50), Some(PatternId(1)));
        assert_eq!(in_layers(60), None);
    }
}
