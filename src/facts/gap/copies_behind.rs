//! The copies from host memory behind idle intervals.

use rustc_hash::FxHashMap;

use crate::correlate::{DeviceTimeline, Gap, Run};
use crate::profile::{CopyKind, DeviceId};

/// When the copies end that gaps were found to end with, by device and start.
#[derive(Debug)]
pub(super) struct CopiesBehind(FxHashMap<(DeviceId, i64), i64>);

impl CopiesBehind {
    pub(super) fn of(run: &Run) -> CopiesBehind {
        let mut ends: FxHashMap<(DeviceId, i64), i64> = FxHashMap::default();
        if run.activities.values().any(|activity| activity.before_copy) {
            let copies = run.profile.copies.iter();
            for copy in copies.filter(|copy| copy.kind == CopyKind::HtoD) {
                let end = ends
                    .entry((copy.device, copy.span.start))
                    .or_insert(i64::MIN);
                *end = (*end).max(copy.span.end);
            }
        }
        CopiesBehind(ends)
    }

    /// How long the copy that ended a gap ran before the next kernel of the device, in ns.
    pub(super) fn behind(&self, run: &Run, device: &DeviceTimeline, gap: &Gap) -> i64 {
        let start = gap.span.end;
        let Some(end) = self.0.get(&(device.device, start)) else {
            return 0;
        };
        let kernels = &run.profile.kernels;
        let from = kernels.partition_point(|kernel| kernel.span.start < start);
        let mut later = kernels
            .iter()
            .skip(from)
            .take_while(|k| k.span.start < *end);
        let next = later.find(|kernel| kernel.device == device.device);
        let until = next.map_or(*end, |kernel| kernel.span.start);
        until.min(device.span.end).saturating_sub(start).max(0)
    }
}
