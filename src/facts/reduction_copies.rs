//! Copies between the reductions of gradients. A program that reduces each gradient on its own copies each as well, so
//! these copies go away with the reductions.

use super::range_paths::by_string;
use crate::correlate::{Direction, Gap, GapCause, Run};
use crate::profile::{CopyKind, Kernel, KernelId, collective_in};

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
    let reduces = |kernel: &Kernel| reduces.get(kernel.name.idx()) == Some(&true);
    if !profile.kernels.iter().any(reduces) {
        return;
    }
    let work_of = |id: KernelId| {
        let kernel = profile.kernel(id)?;
        let site = run.link(id)?.site.and_then(|site| run.site(site));
        let is_reduction = reduces(kernel)
            && kernel.captured.is_none()
            && site.is_some_and(|site| site.direction == Direction::Bprop);
        let work = match is_reduction {
            true => Work::Reduction(id),
            false => Work::Other,
        };
        Some((kernel.span.start, work))
    };
    for device in &run.timeline.devices {
        let late = |gap: &&Gap| gap.cause == GapCause::HostLate && gap.next.is_none();
        let mut gaps = device.gaps.iter().filter(late).peekable();
        if gaps.peek().is_none() {
            continue;
        }
        let kernels = (0..).map(KernelId).zip(&profile.kernels);
        let kernels = kernels.filter(|(_, kernel)| kernel.device == device.device);
        let kernels: Vec<KernelId> = kernels.map(|(id, _)| id).collect();
        let copies = profile.copies.iter();
        let copies = copies.filter(|copy| copy.device == device.device);
        let copies = copies.map(|copy| match copy.kind {
            CopyKind::DtoD => (copy.span.start, Work::Copy),
            _ => (copy.span.start, Work::Other),
        });
        let mut copies: Vec<(i64, Work)> = copies.collect();
        copies.sort_by_key(|(start, _)| *start);
        for gap in gaps {
            let start = |id: KernelId| profile.kernel(id).map_or(i64::MAX, |k| k.span.start);
            let kernel = kernels.partition_point(|id| start(*id) < gap.span.end);
            let copy = copies.partition_point(|(start, _)| *start < gap.span.end);
            let (kernels, copies) = (kernels.split_at(kernel), copies.split_at(copy));
            // Of those that start together, kernels come first.
            let mut before = merged(
                copies.0.iter().rev().copied(),
                kernels.0.iter().rev().filter_map(|id| work_of(*id)),
                |copy, kernel| copy >= kernel,
            );
            let mut behind = merged(
                kernels.1.iter().filter_map(|id| work_of(*id)),
                copies.1.iter().copied(),
                |kernel, copy| kernel <= copy,
            )
            .peekable();
            let ends_in_a_copy = behind.peek() == Some(&Work::Copy);
            let first = |work: &mut dyn Iterator<Item = Work>| {
                work.take(MOST).find(|work| *work != Work::Copy)
            };
            if let (true, Some(Work::Reduction(kernel)), Some(Work::Reduction(_))) =
                (ends_in_a_copy, first(&mut before), first(&mut behind))
                && let Some(time) = times.get_mut(kernel.idx())
            {
                *time += gap.reliable_ns as f64;
            }
        }
    }
}

/// The work of two series in order of time, as far as `is_next` says of their next times.
fn merged(
    one: impl Iterator<Item = (i64, Work)>,
    other: impl Iterator<Item = (i64, Work)>,
    is_next: impl Fn(i64, i64) -> bool,
) -> impl Iterator<Item = Work> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || {
        let next = match (one.peek(), other.peek()) {
            (Some((a, _)), Some((b, _))) if !is_next(*a, *b) => other.next(),
            (None, _) => other.next(),
            _ => one.next(),
        };
        next.map(|(_, work)| work)
    })
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
