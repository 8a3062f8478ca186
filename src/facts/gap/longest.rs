//! The longest gaps of a group, with what ran in each or what it stands before.

use crate::base::text::{self, md_code};
use crate::correlate::{Activity, Gap, GapCause, HOST_BUSY_NS, OpName, Run, readable_name};
use crate::facts::affected::LongGap;
use crate::profile::{KernelId, StrId};

/// Longest printed name, in characters.
const MAX_NAME: usize = 120;

/// A gap of a millisecond or more in which the host did something else than launch work.
#[derive(Debug)]
pub(super) struct HostPause {
    /// Without what recording explains.
    ns: i64,
    activity: Activity,
    at_end: bool,
    next: Option<KernelId>,
}

impl HostPause {
    pub(super) fn of(gap: &Gap, activity: Activity, at_end: bool) -> Option<HostPause> {
        let is_hosts = matches!(gap.cause, GapCause::HostBusy | GapCause::DataLoading);
        (is_hosts && gap.span.ns() >= HOST_BUSY_NS).then_some(HostPause {
            ns: gap.reliable_ns,
            activity,
            at_end,
            next: gap.next,
        })
    }

    /// `None` where nothing names it.
    fn place(&self, run: &Run) -> Option<String> {
        let code = |name: &str| md_code(&text::clip(&text::without_home(name), MAX_NAME));
        let name = |id: StrId| code(&readable_name(run.profile.text(id)));
        let next = || op_of(run, self.next?);
        Some(if let Some(op) = self.activity.op {
            format!("in {}", name(op))
        } else if let Some(range) = self.activity.before {
            format!("before {}", name(range))
        } else if self.activity.before_copy {
            "before a copy to the GPU".to_owned()
        } else if self.at_end {
            "after the last work of the step".to_owned()
        } else {
            format!("before {}", code(&next()?.display()))
        })
    }
}

/// The operator that launched a kernel; none for a kernel that a CUDA graph replays.
pub(super) fn op_of(run: &Run, kernel: KernelId) -> Option<&OpName> {
    if run.profile.kernel(kernel)?.captured.is_some() {
        return None;
    }
    run.op_name(run.op_call_of(kernel)?)
}

/// The longest of the pauses in each place, longest first.
pub(super) fn longest(run: &Run, mut pauses: Vec<HostPause>) -> Vec<LongGap> {
    pauses.sort_by_key(|pause| std::cmp::Reverse(pause.ns));
    let named = pauses.iter().filter_map(|pause| {
        let (ns, place) = (pause.ns as f64, pause.place(run)?);
        Some(LongGap { ns, place })
    });
    LongGap::in_each_place(named)
}
