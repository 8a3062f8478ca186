//! Copies between the reductions of gradients. A program that reduces each gradient on its own copies each as well, so
//! these copies go away with the reductions.

use super::range_paths::by_string;
use crate::correlate::{Direction, GapCause, Link, Run};
use crate::profile::{CopyKind, DeviceId, Kernel, KernelId, collective_in};

/// Most copies between two reductions.
const MOST: usize = 8;

/// What runs on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Reduction(KernelId),
    Copy,
    Other,
}

/// Adds the idle time before late copies between two reductions of gradients to that of the first one. `times` has a
/// row for each kernel.
pub(super) fn add_idle_time(run: &Run, times: &mut [f64]) {
    let profile = &run.profile;
    let reduces = by_string(run, |name| collective_in(name) == Some("all_reduce"));
    let is_reduction = |kernel: &Kernel, link: &Link| {
        let site = link.site.and_then(|site| run.site(site));
        reduces.get(kernel.name.idx()) == Some(&true)
            && kernel.captured.is_none()
            && site.is_some_and(|site| site.direction == Direction::Bprop)
    };
    for device in &run.timeline.devices {
        let mut late = device.gaps.iter();
        if !late.any(|gap| gap.cause == GapCause::HostLate && gap.next.is_none()) {
            continue;
        }
        let on_device = |other: DeviceId| other == device.device;
        let kernels = (0..)
            .map(KernelId)
            .zip(profile.kernels.iter().zip(&run.links));
        let kernels = kernels.filter(|(_, (kernel, _))| on_device(kernel.device));
        let kernels = kernels.map(|(id, (kernel, link))| {
            let work = match is_reduction(kernel, link) {
                true => Work::Reduction(id),
                false => Work::Other,
            };
            (kernel.span.start, work)
        });
        let copies = profile.copies.iter().filter(|copy| on_device(copy.device));
        let copies = copies.map(|copy| {
            let work = match copy.kind {
                CopyKind::DtoD => Work::Copy,
                _ => Work::Other,
            };
            (copy.span.start, work)
        });
        let mut order: Vec<(i64, Work)> = kernels.chain(copies).collect();
        order.sort_by_key(|(start, _)| *start);
        for gap in &device.gaps {
            if gap.cause != GapCause::HostLate || gap.next.is_some() {
                continue;
            }
            let at = order.partition_point(|(start, _)| *start < gap.span.end);
            let (before, behind) = order.split_at(at);
            let first = |work: &mut dyn Iterator<Item = &(i64, Work)>| {
                let mut others = work.take(MOST).filter(|(_, work)| *work != Work::Copy);
                others.next().map(|(_, work)| *work)
            };
            let ends_in_a_copy = behind.first().is_some_and(|(_, work)| *work == Work::Copy);
            if let (true, Some(Work::Reduction(kernel)), Some(Work::Reduction(_))) = (
                ends_in_a_copy,
                first(&mut before.iter().rev()),
                first(&mut behind.iter()),
            ) && let Some(time) = times.get_mut(kernel.idx())
            {
                *time += gap.reliable_ns as f64;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{MemoryCopy, MemoryKind, ProcessId, SerialNumber, Span, ThreadId};

    /// The idle time of two reductions with a copy between them, and a product behind.
    fn idle(kind: CopyKind, last: &str) -> Vec<f64> {
        let mut b = ProfileBuilder::new();
        b.range(
            "autograd::engine::evaluate_function: MulBackward0",
            0,
            900_000,
        );
        for (start, name) in [
            (0, "ncclKernel_AllReduce_RING_LL_Sum_float"),
            (200_000, "ncclKernel_AllReduce_RING_LL_Sum_float"),
            (400_000, last),
        ] {
            let kernel = b.launch(start);
            b.profile.kernels[kernel].name = b.profile.strings.intern(name);
            b.profile.kernels[kernel].span.end = b.profile.kernels[kernel].span.start + 10_000;
        }
        for (start, number) in [(100_000, 901), (300_000, 902)] {
            b.call(ThreadId(0), "cudaMemcpyAsync", start, number);
            b.profile.copies.push(MemoryCopy {
                span: Span {
                    start: start + 1_000,
                    end: start + 5_000,
                },
                device: crate::profile::DeviceId(0),
                process: ProcessId(0),
                stream: 7,
                correlation: SerialNumber::new(number),
                bytes: 1_000_000,
                kind,
                src: MemoryKind::Device,
                dst: MemoryKind::Device,
                captured: None,
            });
        }
        b.profile.calls.sort_by_key(|call| call.span.start);
        b.profile.recorded.api_calls = true;
        let run = b.run();
        let mut times = vec![0.0; run.profile.kernels.len()];
        add_idle_time(&run, &mut times);
        times
    }

    #[test]
    fn copies_between_two_reductions_belong_to_the_first() {
        let [first, second, third] = idle(CopyKind::DtoD, "ampere_sgemm_128x64_nn")[..] else {
            panic!("three kernels");
        };
        assert!(first > 50_000.0, "{first}");
        assert_eq!([second, third], [0.0, 0.0]);
        let [_, second, _] = idle(CopyKind::DtoD, "ncclKernel_AllReduce_RING_LL_Sum_float")[..]
        else {
            panic!("three kernels");
        };
        assert!(second > 50_000.0, "{second}");
    }

    #[test]
    fn copies_from_the_host_do_not_belong_to_reductions() {
        assert_eq!(idle(CopyKind::HtoD, "ampere_sgemm_128x64_nn"), [0.0; 3]);
    }
}
