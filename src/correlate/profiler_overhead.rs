//! Detects recording overhead that slows the host, and bounds the idle time that it can explain.

use rayon::prelude::*;

use super::args::Arguments;
use super::model::{DeviceTimeline, GapCause, Timeline};
use super::range_meaning::{RangeClass, RangeInfos};
use crate::profile::{CallId, Profile, RangeKind, SortedStarts, Span, StartCounts, ThreadId};

/// Minimum length of a long kernel. Shorter kernels may end before their launch returns even without
/// a wait.
const LONG_KERNEL_NS: i64 = 20_000;
/// Approximate difference between the host and device clocks.
const CLOCK_SLACK_NS: i64 = 1_000;
/// Minimum number of long kernels for a decision.
const ENOUGH_KERNELS: usize = 50;
/// Minimum share of long kernels that the host waited for.
const BLOCKING_SHARE: f64 = 0.8;

/// How recording slowed the host down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostOverhead {
    /// PyProf's markers: a range with arguments and call stack around every operator.
    PyprofMarkers,
    /// NVTX ranges of autograd around every operator.
    OperatorRanges,
    /// Python call stacks.
    Stacks,
    /// Launches waited for their kernels.
    BlockingLaunches,
    /// Nothing slowed it down, but most of what it launched is missing in the file.
    Thinned,
}

/// Most that entering and leaving a range costs the host, in ns: `emit_nvtx` with shapes, or a PyProf
/// marker with arguments, recorded by Nsight Systems. Deliberately high: what it explains is not used.
const RANGE_COST_NS: f64 = 10_000.0;
/// Most that recording a Python call costs the host, in ns, and most that recording an operator with its
/// shapes does. Measured with torch 2.15 on the CPU: 0.2 to 0.4 us per event of a trace with stacks, and
/// 0.5 to 0.8 us per operator of one with shapes.
const FRAME_COST_NS: f64 = 1_000.0;
const OP_COST_NS: f64 = 2_000.0;

impl HostOverhead {
    /// `None` if recording did not slow the host down noticeably.
    pub(crate) fn find(
        profile: &Profile,
        texts: &RangeInfos,
        arguments: &Arguments,
        launches: &[Option<CallId>],
    ) -> Option<HostOverhead> {
        let emitted = |r: &crate::profile::HostRange| {
            r.kind == RangeKind::PushPop && (r.seq.is_some() || r.op_id.is_some())
        };
        if profile.recorded.thinned {
            Some(HostOverhead::Thinned)
        } else if texts.any(|m| matches!(m.what, RangeClass::PyprofMarker { .. })) {
            Some(HostOverhead::PyprofMarkers)
        } else if profile.ranges.iter().any(emitted) {
            Some(HostOverhead::OperatorRanges)
        } else if arguments.call_stacks || has_python_calls(profile) {
            Some(HostOverhead::Stacks)
        } else if launches_block(profile, launches.iter().copied()) {
            Some(HostOverhead::BlockingLaunches)
        } else {
            None
        }
    }

    /// What was recorded, or how.
    pub(crate) fn what(self) -> &'static str {
        match self {
            HostOverhead::PyprofMarkers => "PyProf markers around every operator",
            HostOverhead::OperatorRanges => "NVTX ranges around every operator (`emit_nvtx`)",
            HostOverhead::Stacks => "recorded Python call stacks (`with_stack`)",
            HostOverhead::BlockingLaunches => {
                "launches that waited for their kernels (as with `CUDA_LAUNCH_BLOCKING=1`)"
            }
            HostOverhead::Thinned => "a sample of what was recorded",
        }
    }

    /// The sentence of the report, for idle time that is mostly unreliable.
    pub(crate) fn reason(self) -> String {
        let what = self.what();
        if self == HostOverhead::Thinned {
            return format!(
                "the file holds {what}: the numbers of its events have gaps all over, so that the GPU seems idle \
                 where its work is missing"
            );
        }
        format!("{what} slowed the host down, which inflates idle time in this capture")
    }

    /// Sets how much of each gap recording cannot explain: what a call or a data loader explains, and
    /// what is left of the host's own work after the cost of everything recorded in it.
    pub(crate) fn limit(self, timeline: &mut Timeline, profile: &Profile) {
        if self == HostOverhead::Thinned {
            for gap in timeline.devices.iter_mut().flat_map(|d| &mut d.gaps) {
                gap.reliable_ns = 0;
            }
            return;
        }
        let recorded = match timeline.devices.iter().any(|d| !d.gaps.is_empty()) {
            true => self.recorded(profile),
            false => Vec::new(),
        };
        timeline.devices.par_iter_mut().for_each(|device| {
            // What recording cost between two launches delayed the second one as well, although the GPU
            // worked for a part of that time; what was more than the gap behind it made it earlier.
            let mut late = (device.span.start, 0.0);
            let mut near = vec![0; recorded.len()];
            let mut gaps = std::mem::take(&mut device.gaps);
            for gap in &mut gaps {
                let thread = (!recorded.is_empty()).then(|| device.awaited_thread(profile, gap));
                let mut costs = |from: i64, each: fn(&Recorded) -> f64| {
                    let thread = thread.flatten()?;
                    let span = Span {
                        start: from,
                        end: gap.span.end,
                    };
                    let costs = recorded.iter().zip(&mut near);
                    let costs = costs.map(|(r, near)| r.cost(near, each(r), thread, span));
                    Some(costs.sum::<f64>())
                };
                let between_launches: fn(&Recorded) -> f64 = |r| r.between_launches_ns;
                let (from, carried, each) = match gap.cause {
                    GapCause::HostBusy => {
                        let in_pause: fn(&Recorded) -> f64 = |r| r.in_pause_ns;
                        (gap.span.start, 0.0, in_pause)
                    }
                    // The host was late for a part of the wait, too.
                    GapCause::HostLate | GapCause::Waiting => (late.0, late.1, between_launches),
                    // Beside the call, the host did its own work until the next launch.
                    _ => (gap.span.start, 0.0, between_launches),
                };
                if let Some(cost) = costs(from, each) {
                    let cost = cost + carried;
                    let left = gap.span.ns().saturating_sub(cost.ceil() as i64);
                    gap.reliable_ns = match gap.cause {
                        GapCause::HostBusy | GapCause::HostLate => left,
                        _ => gap.reliable_ns.max(left),
                    };
                    if gap.cause == GapCause::HostLate {
                        late = (gap.span.end, (cost - gap.span.ns() as f64).max(0.0));
                    }
                }
                if gap.after_wait {
                    late = (gap.span.end, 0.0);
                }
                gap.reliable_ns = gap.reliable_ns.clamp(0, gap.span.ns());
            }
            device.gaps = gaps;
        });
    }

    /// What was recorded on the host, with its cost.
    fn recorded(self, profile: &Profile) -> Vec<Recorded> {
        let starts = |kind: RangeKind| {
            let mut counts = StartCounts::default();
            for range in profile.ranges.iter().filter(|r| r.kind == kind) {
                counts.add(range.thread, range.span.start);
            }
            counts
        };
        let ranges = || {
            let mut counts = starts(RangeKind::PushPop);
            counts.add_all(&profile.pruned_starts);
            counts
        };
        let known = |ns: f64, starts: StartCounts| Recorded {
            in_pause_ns: ns,
            between_launches_ns: ns,
            starts: starts.sorted(),
        };
        // What else an operator costs is not known: of PyProf's markers the call stack and the arguments in
        // them, of releases before Python calls the stack. It is far less than a pause.
        let unknown = |in_pause_ns: f64, starts: StartCounts| Recorded {
            in_pause_ns,
            between_launches_ns: f64::INFINITY,
            starts: starts.sorted(),
        };
        match self {
            HostOverhead::PyprofMarkers => vec![unknown(RANGE_COST_NS, ranges())],
            HostOverhead::OperatorRanges => vec![known(RANGE_COST_NS, ranges())],
            HostOverhead::Stacks if has_python_calls(profile) => vec![
                known(FRAME_COST_NS, starts(RangeKind::Python)),
                known(OP_COST_NS, starts(RangeKind::CpuOp)),
            ],
            HostOverhead::Stacks => vec![unknown(0.0, starts(RangeKind::CpuOp))],
            HostOverhead::BlockingLaunches | HostOverhead::Thinned => Vec::new(),
        }
    }
}

/// Ranges of one cost, by when they started.
struct Recorded {
    /// Most that one can have added to a pause of the host, in ns ...
    in_pause_ns: f64,
    /// ... and to the time from one launch to the next.
    between_launches_ns: f64,
    starts: SortedStarts,
}

impl Recorded {
    /// What those of a thread in a span can have cost, at so much each. `near` is that of
    /// [`SortedStarts::within`].
    fn cost(&self, near: &mut usize, each_ns: f64, thread: ThreadId, span: Span) -> f64 {
        let count = self.starts.within(near, thread, span);
        // Nothing of unknown cost costs nothing.
        if count > 0.0 { count * each_ns } else { 0.0 }
    }
}

/// Whether Python calls were recorded. Releases before them recorded stacks with each operator.
fn has_python_calls(profile: &Profile) -> bool {
    profile.ranges.iter().any(|r| r.kind == RangeKind::Python)
}

/// Share of the idle time above which the part that recording may explain makes all of it unreliable.
const UNRELIABLE: f64 = 0.2;

/// Whether most conclusions from the idle time would rest on what recording may explain.
pub(crate) fn is_unreliable(timeline: &Timeline) -> bool {
    let sum = |part: fn(&DeviceTimeline) -> i64| {
        let parts = timeline.devices.iter().map(|d| part(d) as f64);
        parts.sum::<f64>()
    };
    let idle = sum(DeviceTimeline::idle_ns);
    idle - sum(DeviceTimeline::reliable_idle_ns) > UNRELIABLE * idle
}

/// Whether most long kernels had ended before their launch returned.
pub(crate) fn launches_block(
    profile: &Profile,
    launches: impl Iterator<Item = Option<CallId>>,
) -> bool {
    waited_share(profile, launches).is_some_and(|share| share >= BLOCKING_SHARE)
}

/// Share of the long kernels that had ended before their launch returned; `launches` has one entry
/// per kernel. `None` if there are too few long kernels.
pub(crate) fn waited_share(
    profile: &Profile,
    launches: impl Iterator<Item = Option<CallId>>,
) -> Option<f64> {
    let mut long = 0usize;
    let mut waited = 0usize;
    for (kernel, launch) in profile.kernels.iter().zip(launches) {
        let Some(call) = launch.and_then(|l| profile.call(l)) else {
            continue;
        };
        if kernel.span.ns() >= LONG_KERNEL_NS {
            long += 1;
            let end = kernel.span.end.saturating_sub(CLOCK_SLACK_NS);
            // A kernel that begins before its call does not show when the call had to end.
            let possible = kernel.span.start >= call.span.start;
            waited += usize::from(possible && call.span.end >= end);
        }
    }
    (long >= ENOUGH_KERNELS).then(|| waited as f64 / long as f64)
}
