//! Detects recording overhead that slows the host, and bounds the idle time that it can explain.

use super::args::Arguments;
use super::model::{DeviceTimeline, GapCause, Timeline};
use super::range_meaning::{RangeClass, RangeInfos};
use crate::profile::{CallId, Profile, RangeKind, StartCounts};

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
    /// A range around every operator; the text names the tool.
    Markers(&'static str),
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
/// Most that recording a Python call costs the host, in ns.
const FRAME_COST_NS: f64 = 2_000.0;

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
        let python = || profile.ranges.iter().any(|r| r.kind == RangeKind::Python);
        if profile.recorded.thinned {
            Some(HostOverhead::Thinned)
        } else if texts.any(|m| matches!(m.what, RangeClass::PyprofMarker { .. })) {
            Some(HostOverhead::Markers(
                "PyProf markers around every operator",
            ))
        } else if profile.ranges.iter().any(emitted) {
            let text = "NVTX ranges around every operator (`emit_nvtx`)";
            Some(HostOverhead::Markers(text))
        } else if arguments.call_stacks || python() {
            Some(HostOverhead::Stacks)
        } else if launches_block(profile, launches) {
            Some(HostOverhead::BlockingLaunches)
        } else {
            None
        }
    }

    /// The sentence of the report, for idle time that is mostly unreliable.
    pub(crate) fn reason(self) -> String {
        let what = match self {
            HostOverhead::Markers(what) => what,
            HostOverhead::Stacks => "recorded Python call stacks (`with_stack`)",
            HostOverhead::BlockingLaunches => {
                "launches that waited for their kernels (as with `CUDA_LAUNCH_BLOCKING=1`)"
            }
            HostOverhead::Thinned => {
                return "the file holds a sample of what was recorded: the numbers of its events have gaps all \
                        over, so that the GPU seems idle where its work is missing"
                    .to_owned();
            }
        };
        format!("{what} slowed the host down, which inflates idle time in this capture")
    }

    /// Sets how much of each gap recording cannot explain: what a call or a data loader explains, and
    /// what is left of a pause of the host after the cost of everything recorded in it.
    pub(crate) fn limit(self, timeline: &mut Timeline, profile: &Profile) {
        let pauses = timeline.devices.iter().flat_map(|d| &d.gaps);
        let counts = match self {
            HostOverhead::BlockingLaunches | HostOverhead::Thinned => StartCounts::default(),
            _ if pauses.clone().any(|gap| gap.cause == GapCause::HostBusy) => self.starts(profile),
            _ => StartCounts::default(),
        };
        let cost = match self {
            HostOverhead::Markers(_) => RANGE_COST_NS,
            HostOverhead::Stacks => FRAME_COST_NS,
            HostOverhead::BlockingLaunches | HostOverhead::Thinned => f64::INFINITY,
        };
        for gap in timeline.devices.iter_mut().flat_map(|d| &mut d.gaps) {
            let launch = gap.ended_by.filter(|_| gap.cause == GapCause::HostBusy);
            let launch = launch.and_then(|id| profile.calls.get(id.idx()));
            gap.reliable_ns = match launch.map(|call| call.thread) {
                Some(thread) if cost.is_finite() => {
                    let recorded = counts.within(thread, gap.span)
                        + match self {
                            HostOverhead::Markers(_) => {
                                profile.pruned_starts.within(thread, gap.span)
                            }
                            _ => 0.0,
                        };
                    gap.span
                        .ns()
                        .saturating_sub((recorded * cost).ceil() as i64)
                }
                _ if self == HostOverhead::Thinned => 0,
                _ => gap.reliable_ns,
            };
            gap.reliable_ns = gap.reliable_ns.clamp(0, gap.span.ns());
        }
    }

    /// When the ranges started that cost the host time.
    fn starts(self, profile: &Profile) -> StartCounts {
        let mut counts = StartCounts::default();
        let costly = profile.ranges.iter().filter(|range| match self {
            HostOverhead::Stacks => range.kind == RangeKind::Python,
            _ => range.kind == RangeKind::PushPop,
        });
        for range in costly {
            counts.add(range.thread, range.span.start);
        }
        counts
    }
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
fn launches_block(profile: &Profile, launches: &[Option<CallId>]) -> bool {
    waited_share(profile, launches.iter().copied()).is_some_and(|share| share >= BLOCKING_SHARE)
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
        let Some(call) = launch.and_then(|l| profile.calls.get(l.idx())) else {
            continue;
        };
        if kernel.span.ns() >= LONG_KERNEL_NS {
            long += 1;
            let end = kernel.span.end.saturating_sub(CLOCK_SLACK_NS);
            waited += usize::from(call.span.end >= end);
        }
    }
    (long >= ENOUGH_KERNELS).then(|| waited as f64 / long as f64)
}
