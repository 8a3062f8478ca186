//! The copies from host memory behind idle intervals, and those to the host before them.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::correlate::{DeviceTimeline, Gap, GapCause, HOST_BUSY_NS, Run};
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

/// The bytes of the copies to the host, by device and end.
#[derive(Debug)]
pub(super) struct CopiesBefore(BTreeMap<(DeviceId, i64), u64>);

impl CopiesBefore {
    pub(super) fn of(run: &Run) -> CopiesBefore {
        let mut bytes: BTreeMap<(DeviceId, i64), u64> = BTreeMap::new();
        let copies = run.profile.copies.iter();
        for copy in copies.filter(|copy| copy.kind == CopyKind::DtoH) {
            let most = bytes.entry((copy.device, copy.span.end)).or_default();
            *most = copy.bytes.max(*most);
        }
        CopiesBefore(bytes)
    }

    /// The size of the largest copy in the last millisecond before a pause of the host that follows a copy: results
    /// come in several, and the last one may be a flag.
    pub(super) fn before(&self, device: &DeviceTimeline, gap: &Gap) -> Option<u64> {
        let (device, start) = (device.device, gap.span.start);
        if gap.cause != GapCause::HostBusy || !self.0.contains_key(&(device, start)) {
            return None;
        }
        let from = start.saturating_sub(HOST_BUSY_NS);
        let near = self.0.range((device, from)..=(device, start));
        near.map(|(_, bytes)| *bytes).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{MemoryCopy, MemoryKind, ProcessId, Span};

    /// The size of the copy before each gap that has one, where a copy of this kind ends at 100 us and the next
    /// launch comes 2 ms later.
    fn before(kind: CopyKind) -> Vec<u64> {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        b.profile.copies.push(MemoryCopy {
            span: Span {
                start: 50_000,
                end: 100_000,
            },
            device: DeviceId(0),
            process: ProcessId(0),
            stream: 7,
            correlation: None,
            bytes: 4_096,
            kind,
            src: MemoryKind::Device,
            dst: MemoryKind::Pageable,
            captured: None,
        });
        b.launch(2_100_000);
        let run = b.run();
        let copies = CopiesBefore::of(&run);
        let device = &run.timeline.devices[0];
        let gaps = device.gaps.iter();
        gaps.filter_map(|gap| copies.before(device, gap)).collect()
    }

    #[test]
    fn pauses_begin_after_copies_to_the_host() {
        assert_eq!(before(CopyKind::DtoH), [4_096]);
        assert_eq!(before(CopyKind::DtoD), [0_u64; 0]);
    }
}
