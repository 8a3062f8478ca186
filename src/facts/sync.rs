//! Synchronizations: the calls in which the busiest host thread waits for the GPU.

use rustc_hash::{FxHashMap, FxHashSet};

use super::call_operators::CallOperators;
use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::base::statistics::median;
use crate::base::time_by::TimeBy;
use crate::correlate::{GapCause, HOST_BUSY_NS, PythonFrame, Run, Wait};
use crate::profile::{CopyKind, ProcessId, Span, StrId, SyncKind, ThreadId};

/// The synchronizing calls of the launching threads, in the analyzed window.
#[derive(Debug, Clone, Default)]
pub(crate) struct SyncWaits {
    pub(crate) calls: u64,
    /// Host time in them, in ns.
    pub(crate) ns: f64,
    /// Of the analyzed time.
    share: Option<f64>,
    /// Idle time of the GPU while the host had not caught up after one of them, in ns.
    idle_after_ns: f64,
    /// The operator with most of that time; `None` where no operator surrounds it.
    pub(crate) op: Option<StrId>,
    /// Of that operator, or of all calls without one.
    op_calls: u64,
    op_ns: f64,
    pub(crate) api: Option<StrId>,
    /// Median size of the copies that most of that time is spent waiting for.
    pub(crate) bytes: Option<f64>,
    /// Whether those copies go to the GPU.
    pub(crate) to_gpu: bool,
    /// Those that read whether all elements of a tensor are true, as torch.distributions does.
    all_true: u64,
    /// The source line with most of that time.
    pub(crate) line: Option<String>,
}

impl SyncWaits {
    /// `None` if no calls were recorded.
    pub(super) fn of(run: &Run, ops: &CallOperators) -> Option<SyncWaits> {
        if !run.profile.recorded.api_calls {
            return None;
        }
        let Some(window) = run.window.span else {
            return Some(SyncWaits::default());
        };
        let waits = &run.waits;
        let waiting: FxHashSet<_> = waits.iter().map(|w| process_of(run, w.thread)).collect();
        // Each process has all of the time.
        let analyzed = host_window_ns(run, window).saturating_mul(waiting.len().max(1) as i64);
        let mut found = SyncWaits {
            calls: waits.len() as u64,
            ns: total(waits) as f64,
            idle_after_ns: idle_after(run, waits),
            all_true: waits
                .iter()
                .filter(|w| ops.stacks.at(w.id).all_true)
                .count() as u64,
            share: (analyzed > 0).then(|| (total(waits) as f64 / analyzed as f64).min(1.0)),
            ..SyncWaits::default()
        };
        let mut by_op: FxHashMap<Option<StrId>, Vec<Wait>> = FxHashMap::default();
        for wait in waits {
            let op = ops.around(wait.id).map(|ops| ops.inner);
            by_op.entry(op).or_default().push(*wait);
        }
        let most = by_op.into_iter();
        let most = most.max_by_key(|(op, waits)| (total(waits), std::cmp::Reverse(*op)));
        if let Some((op, waits)) = most {
            found.op = op;
            found.op_calls = waits.len() as u64;
            found.op_ns = total(&waits) as f64;
            found.api = waits.iter().max_by_key(|w| w.span.ns()).map(|w| w.api);
            let to_gpu = |wait: &&Wait| wait.copy.is_some_and(|(kind, _)| kind == CopyKind::HtoD);
            let (to_gpu, others): (Vec<Wait>, Vec<Wait>) = waits.iter().partition(to_gpu);
            // Many short waits for inputs do not explain the long ones for results.
            found.to_gpu = total(&to_gpu) > total(&others);
            // A wait for the whole device is for more than the last copy.
            let api = found.api.map(|api| run.profile.text(api));
            if api.and_then(SyncKind::of_call) != Some(SyncKind::Context) {
                found.bytes = median_bytes(if found.to_gpu { &to_gpu } else { &others });
            }
            found.line = line(run, ops, &waits);
        }
        Some(found)
    }
}

fn total(waits: &[Wait]) -> i64 {
    let lengths = waits.iter().map(|wait| wait.span.ns());
    lengths.fold(0, i64::saturating_add)
}

/// Median size of the copies of most of the waits.
fn median_bytes(waits: &[Wait]) -> Option<f64> {
    let mut bytes: Vec<u64> = waits.iter().filter_map(|wait| Some(wait.copy?.1)).collect();
    let known = bytes.len() * 2 > waits.len();
    let median = median(&mut bytes).filter(|_| known);
    median.map(|bytes| bytes as f64)
}

/// Length of the window without the excluded time, in ns. Host time does not depend on which devices
/// were analyzed, as [`Run::analysed_ns`] does.
fn host_window_ns(run: &Run, window: Span) -> i64 {
    let excluded = run.window.excluded_spans();
    let excluded = excluded.iter().map(|span| span.clip(window).ns());
    excluded.fold(window.ns(), i64::saturating_sub)
}

/// The innermost source line of the program around most of the time of these waits.
fn line(run: &Run, ops: &CallOperators, waits: &[Wait]) -> Option<String> {
    let mut lines: TimeBy<StrId> = TimeBy::default();
    for wait in waits {
        if let Some(text) = ops.stacks.at(wait.id).function {
            lines.add(text, wait.span.ns());
        }
    }
    PythonFrame::parse(run.profile.text(lines.longest()?)).map(|frame| frame.short())
}

/// How long after a wait the host is still catching up: in this time it launches hundreds of kernels.
const CATCHES_UP_NS: i64 = 5_000_000;

/// The process of a thread.
fn process_of(run: &Run, thread: ThreadId) -> Option<ProcessId> {
    run.profile.thread(thread).map(|t| t.process)
}

/// Idle time that follows from waits: gaps that the process of the wait ends while it catches up. One in
/// which the host did something else for long has that cause.
fn idle_after(run: &Run, waits: &[Wait]) -> f64 {
    let mut ends: FxHashMap<Option<ProcessId>, Vec<i64>> = FxHashMap::default();
    for wait in waits {
        let ends = ends.entry(process_of(run, wait.thread)).or_default();
        ends.push(wait.span.end);
    }
    ends.values_mut().for_each(|ends| ends.sort_unstable());
    let gaps = run.timeline.devices.iter().flat_map(|d| &d.gaps);
    let late = gaps.filter(|gap| {
        let by_launches = matches!(
            gap.cause,
            GapCause::AfterSync | GapCause::BlockingCopy | GapCause::HostLate
        );
        by_launches && gap.span.ns() < HOST_BUSY_NS && {
            let call = gap.launch(&run.profile);
            let process = call.and_then(|call| process_of(run, call.thread));
            let ends = ends.get(&process).map_or(&[][..], Vec::as_slice);
            let ended = ends.partition_point(|end| *end <= gap.span.end);
            let last = ended.checked_sub(1).and_then(|at| ends.get(at));
            last.is_some_and(|end| gap.span.end.saturating_sub(*end) < CATCHES_UP_NS)
        }
    });
    late.map(|gap| gap.span.ns() as f64).sum()
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Share of the window in which a GPU did nothing for less than 1 ms at a time because its process was
    /// still catching up after one of `run.sync_calls`, up to 5 ms after it; as recorded
    "run.idle_after_sync_share": DOUBLE needs API => |t| {
        t.waits.as_ref().map_or(Answer::Absent, |w| {
            Answer::share(w.idle_after_ns, t.totals.window_ns)
        })
    },
    /// Analyzed calls in which a thread that launches kernels waits for the GPU
    "run.sync_calls": INT needs API => |t| t.waits.as_ref().map(|w| w.calls),
    /// Those of `run.sync_calls` that read the result of `torch._is_all_true` right before: `torch.distributions` checks
    /// its arguments so
    "run.all_true_reads": INT needs API => |t| t.waits.as_ref().map(|w| w.all_true),
    /// Host time in the calls of `run.sync_calls`
    "run.sync_host_ns": DOUBLE needs API => |t| t.waits.as_ref().map(|w| w.ns),
    /// `run.sync_host_ns` as a share of the analyzed time of the processes that wait
    "run.sync_host_share": DOUBLE needs API => |t| t.waits.as_ref().and_then(|w| w.share),
    /// The operator around most of `run.sync_host_ns`; silent where most lies outside operators
    "run.sync_op": STR needs RANGES_OF_OPS => |t| {
        Answer::or_silent(
            t.waits
                .as_ref()
                .and_then(|w| w.op)
                .map(|op| t.text(op)),
        )
    },
    /// Calls of `run.sync_calls` inside `run.sync_op`; where that is silent, those outside operators
    "run.sync_op_calls": INT needs API => |t| t.waits.as_ref().map(|w| w.op_calls),
    /// Host time in `run.sync_op_calls`
    "run.sync_op_ns": DOUBLE needs API => |t| t.waits.as_ref().map(|w| w.op_ns),
    /// The CUDA call in which `run.sync_calls` spend most time
    "run.sync_api": STR needs API => |t| {
        Answer::or_silent(
            t.waits
                .as_ref()
                .and_then(|w| w.api)
                .map(|api| t.text(api)),
        )
    },
    /// Median size of the copies that the calls of `run.sync_calls` wait for; silent where most wait for
    /// something else
    "run.sync_bytes": DOUBLE needs API =>
        |t| Answer::or_silent(t.waits.as_ref().and_then(|w| w.bytes)),
    /// Most of the copies that the calls of `run.sync_calls` wait for go to the GPU, as new tensors of the
    /// host do; false for results that the host reads
    "run.sync_after_input": BOOL needs API => |t| t.waits.as_ref().map(|w| w.to_gpu),
    /// The line of the program around most calls of `run.sync_op_calls`, where Python stacks were recorded
    "run.sync_line": STR =>
        |t| Answer::or_silent(t.waits.as_ref().and_then(|w| w.line.as_deref())),
};
