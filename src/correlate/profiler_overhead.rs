//! Detects profiling overhead that slows the host so much that idle time is unreliable.

use super::args::Arguments;
use super::range_meaning::{RangeClass, RangeInfos};
use crate::profile::{CallId, Profile, RangeKind};

/// Minimum length of a long kernel. Shorter kernels may end before their launch returns even without
/// a wait.
const LONG_KERNEL_NS: i64 = 20_000;
/// Approximate difference between the host and device clocks.
const CLOCK_SLACK_NS: i64 = 1_000;
/// Minimum number of long kernels for a decision.
const ENOUGH_KERNELS: usize = 50;
/// Minimum share of long kernels that the host waited for.
const BLOCKING_SHARE: f64 = 0.8;

/// One sentence that names the profiling overhead; `None` if there is none.
pub(crate) fn reason(
    profile: &Profile,
    texts: &RangeInfos,
    arguments: &Arguments,
    launches: &[Option<CallId>],
) -> Option<String> {
    let emitted = |r: &crate::profile::HostRange| {
        r.kind == RangeKind::PushPop && (r.seq.is_some() || r.op_id.is_some())
    };
    let what = if texts.any(|m| matches!(m.what, RangeClass::PyprofMarker { .. })) {
        "PyProf markers around every operator"
    } else if profile.ranges.iter().any(emitted) {
        "NVTX ranges around every operator (`emit_nvtx`)"
    } else if arguments.call_stacks || profile.ranges.iter().any(|r| r.kind == RangeKind::Python) {
        "recorded Python call stacks (`with_stack`)"
    } else if launches_block(profile, launches) {
        return Some(
            "launches waited for their kernels (as with `CUDA_LAUNCH_BLOCKING=1`), so idle time \
             in this capture is not evidence of a slow host"
                .to_owned(),
        );
    } else {
        return None;
    };
    Some(format!(
        "{what} slowed the host down, so idle time in this capture is not evidence of a slow host"
    ))
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
