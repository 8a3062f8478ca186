//! What the host did to the run: the profiler's own time, launches that waited, memsets that
//! blocked, data sent to the host and back.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::call_operators::CallOperators;
use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::base::time_by::TimeBy;
use crate::correlate::{Run, is_profilers_own, waited_share};
use crate::profile::{
    ApiClass, CallId, CopyKind, DeviceId, MemoryKind, ProcessId, SerialNumber, Span, StrId,
};

/// Counted once per run.
#[derive(Debug, Clone, Default)]
pub(super) struct Host {
    /// Time the profiler took for itself, as a share of the window.
    overhead_share: Option<f64>,
    /// Share of long kernels whose launch returned only when they had ended.
    waited_share: Option<f64>,
    sets: u64,
    set_ns: f64,
    /// The operator around most of the time of memsets.
    memset_op: Option<StrId>,
    /// Blocking memsets of pinned or managed memory: calls, and host time in them.
    blocking_sets: u64,
    blocking_set_ns: f64,
    round_trips: RoundTrips,
    /// Analyzed calls that give device memory back to the driver; `None` if no calls were recorded.
    frees: Option<u64>,
}

/// Data copied to the host whose size comes straight back, and again and again.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct RoundTrips {
    count: u64,
    bytes: f64,
    /// Copy time, both ways.
    ns: f64,
}

impl Host {
    pub(super) fn of(run: &Run, ops: &CallOperators) -> Host {
        let mut host = Host {
            waited_share: waited_share(&run.profile, run.links.iter().map(|l| l.launch)),
            ..Host::default()
        };
        let Some(window) = run.window.span else {
            return host;
        };
        host.overhead_share = overhead_share(run, window);
        host.sets(run, window);
        host.memset_op = memset_op(run, ops);
        host.round_trips = round_trips(run, window);
        host.frees = (run.profile.recorded.api_calls).then(|| frees(run, window));
        host
    }

    fn sets(&mut self, run: &Run, window: Span) {
        let sets = || run.profile.sets.iter().zip(&run.window.sets);
        let analyzed = move || sets().filter(|(_, analyzed)| **analyzed);
        let inside = || {
            analyzed()
                .map(|(s, _)| s)
                .filter(|s| overlaps(s.span, window))
        };
        for set in inside() {
            self.sets += 1;
            self.set_ns += set.span.ns() as f64;
        }
        // Only memory the host can reach makes the call wait.
        // Source: CUDA runtime API, "API synchronization behavior", memset.
        let mut reachable =
            inside().filter(|set| matches!(set.mem, MemoryKind::Pinned | MemoryKind::Managed));
        let Some(first) = reachable.next() else {
            return;
        };
        let blocking = blocking_sets(run);
        for set in std::iter::once(first).chain(reachable) {
            let call = (set.correlation)
                .and_then(|id| blocking.get(&(set.process, id)))
                .and_then(|id| run.profile.call(*id));
            if let Some(call) = call {
                self.blocking_sets += 1;
                self.blocking_set_ns += call.span.ns() as f64;
            }
        }
    }
}

/// The operator around more than half of the time of the analyzed memsets, or around the capture of those that
/// CUDA graphs replay.
fn memset_op(run: &Run, ops: &CallOperators) -> Option<StrId> {
    let window = run.window.span?;
    let sets = run.profile.sets.iter().zip(&run.set_calls);
    let analyzed = sets
        .zip(&run.window.sets)
        .filter(|(_, analyzed)| **analyzed);
    let mut times: TimeBy<Option<StrId>> = TimeBy::default();
    for ((set, call), _) in analyzed.filter(|((set, _), _)| overlaps(set.span, window)) {
        let around = ops.around_work(set.captured, *call);
        times.add(around.map(|ops| ops.outer), set.span.ns());
    }
    times.most().flatten()
}

/// Calls that free device memory and wait for the GPU. Not those of memory pools, which do not wait, and
/// not those that unmap memory, which the caching allocator uses when it grows.
fn frees(run: &Run, window: Span) -> u64 {
    let excluded = run.window.excluded_spans();
    let calls = run.profile.calls.iter().filter(|call| {
        let name = || run.profile.text(call.name);
        call.class == ApiClass::Free
            && matches!(name(), "cudaFree" | "hipFree" | "cuMemFree")
            && window.contains(call.span.start)
            && !Span::one_contains(&excluded, call.span.start)
    });
    calls.count() as u64
}

/// The synchronous memset calls; of those with one correlation id the first.
fn blocking_sets(run: &Run) -> FxHashMap<(ProcessId, SerialNumber), CallId> {
    let mut blocking = FxHashMap::default();
    for (index, call) in run.profile.calls.iter().enumerate() {
        if call.class == ApiClass::SetSync
            && let Some(thread) = run.profile.thread(call.thread)
            && let Some(correlation) = call.correlation
        {
            let key = (thread.process, correlation);
            blocking.entry(key).or_insert(CallId::new(index));
        }
    }
    blocking
}

fn overlaps(span: Span, window: Span) -> bool {
    span.start < window.end && span.end > window.start
}

/// The union of the profiler's own records over the window; `None` where the file has none.
fn overhead_share(run: &Run, window: Span) -> Option<f64> {
    let records = &run.profile.overheads;
    if records.is_empty() || window.ns() == 0 {
        return None;
    }
    let own = records
        .iter()
        .filter(|o| is_profilers_own(run.profile.text(o.name)))
        .map(|o| o.span.clip(window))
        .filter(|span| span.ns() > 0);
    Some(Span::union_ns(own.collect()) as f64 / window.ns() as f64)
}

/// Smaller copies are read-backs of a number, not data.
const ROUND_TRIP_BYTES: u64 = 1024;
/// Times one size must make the trip before it is a habit.
const FEWEST_ROUND_TRIPS: u64 = 3;

/// Copies of one size on one device.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    down: u64,
    up: u64,
    trips: u64,
    /// Copied down, not yet back; and how long that copy took.
    pending: u64,
    ns: f64,
}

/// A round trip is a copy to the host that the next copy of the same size to the device answers. A size
/// counts when most of its copies in both directions are part of one: equal sizes happen.
fn round_trips(run: &Run, window: Span) -> RoundTrips {
    let copies = run.profile.copies.iter().zip(&run.window.copies);
    let mut order: Vec<_> = (copies.filter(|(_, analyzed)| **analyzed))
        .map(|(copy, _)| copy)
        .filter(|c| c.bytes >= ROUND_TRIP_BYTES && overlaps(c.span, window))
        .filter(|c| matches!(c.kind, CopyKind::HtoD | CopyKind::DtoH))
        .collect();
    order.sort_by_key(|c| (c.span.start, c.span.end));
    let mut sizes: BTreeMap<(ProcessId, DeviceId, u64), Size> = BTreeMap::new();
    for copy in order {
        let size = sizes
            .entry((copy.process, copy.device, copy.bytes))
            .or_default();
        size.ns += copy.span.ns() as f64;
        if copy.kind == CopyKind::DtoH {
            size.down += 1;
            size.pending += 1;
        } else {
            size.up += 1;
            if size.pending > 0 {
                size.pending -= 1;
                size.trips += 1;
            }
        }
    }
    let mut sum = RoundTrips::default();
    for ((_, _, bytes), size) in sizes {
        let mostly = |copies: u64| size.trips.saturating_mul(2) > copies;
        if size.trips >= FEWEST_ROUND_TRIPS && mostly(size.down) && mostly(size.up) {
            sum.count += size.trips;
            sum.bytes += size.trips as f64 * bytes as f64;
            sum.ns += size.ns;
        }
    }
    sum
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Share of the window in which the profiler recorded work of its own; silent where the file has no
    /// such records
    "run.overhead_share": DOUBLE => |t| Answer::or_silent(t.host.overhead_share),
    /// Share of kernels above 20 us that had ended when their launch call returned; silent for fewer than
    /// 50
    "run.blocking_launch_share": DOUBLE => |t| Answer::or_silent(t.host.waited_share),
    /// Analyzed calls that give device memory back to the driver and wait for the GPU: `cudaFree`,
    /// `hipFree`
    "run.device_frees": INT needs API => |t| t.host.frees,
    /// Memsets inside the window
    "run.memsets": INT => |t| t.host.sets,
    /// GPU time of memsets, summed
    "run.memset_ns": DOUBLE => |t| t.host.set_ns,
    /// The operator that the program called for more than half of the time of memsets, as the profile
    /// spells it; silent outside operators
    "run.memset_op": STR => |t| {
        let name = t.host.memset_op.map(|id| t.costed.run.profile.text(id));
        Answer::or_silent(name)
    },
    /// Synchronous memsets of pinned or managed memory, for which the host waits
    "run.blocking_memsets": INT => |t| t.host.blocking_sets,
    /// Host time in the calls counted by `run.blocking_memsets`
    "run.blocking_memset_ns": DOUBLE => |t| t.host.blocking_set_ns,
    /// Copies to the host of 1 KiB or more that a copy of the same size to the device followed, for sizes
    /// that do so as a rule and three times at least
    "run.round_trips": INT => |t| t.host.round_trips.count,
    /// Bytes copied in `run.round_trips`, counted one way
    "run.round_trip_bytes": DOUBLE => |t| t.host.round_trips.bytes,
    /// Copy time of the sizes of `run.round_trips`, both ways
    "run.round_trip_ns": DOUBLE => |t| t.host.round_trips.ns,
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::correlate::{Vocabulary, correlate};
    use crate::profile::{Device, MemoryCopy, Process, Profile};

    const WINDOW: Span = Span {
        start: 0,
        end: 1_000,
    };

    /// A run whose only rows are copies: `(kind, bytes)`, one after the other.
    fn copying(copies: &[(CopyKind, u64)]) -> Run {
        let mut profile = Profile::new(&crate::read::NSYS_SQLITE, "made up");
        profile.processes.push(Process {
            pid: 1,
            rank: None,
            world_size: None,
            group_size: None,
        });
        profile.devices.push(Device::default());
        for (at, &(kind, bytes)) in (0..).zip(copies) {
            profile.copies.push(MemoryCopy {
                span: Span {
                    start: at * 10,
                    end: at * 10 + 5,
                },
                device: DeviceId(0),
                process: ProcessId(0),
                stream: 7,
                correlation: None,
                bytes,
                kind,
                src: MemoryKind::Unknown,
                dst: MemoryKind::Unknown,
                captured: None,
            });
        }
        correlate(
            profile,
            &Vocabulary {
                knows_op: &|_| false,
                is_communication: &|_| false,
            },
        )
    }

    #[test]
    fn what_comes_back_has_made_a_trip() {
        use CopyKind::{DtoH, HtoD};
        let there_and_back = [(DtoH, 4096), (HtoD, 4096)].repeat(3);
        let found = round_trips(&copying(&there_and_back), WINDOW);
        assert_eq!((found.count, found.bytes, found.ns), (3, 12_288.0, 30.0));
    }

    #[test]
    fn equal_sizes_alone_are_no_trip() {
        use CopyKind::{DtoH, HtoD};
        // Batches going up, and results of the same size going down from time to time.
        let mut batches = vec![(HtoD, 4096); 20];
        batches.extend([(DtoH, 4096), (HtoD, 4096)].repeat(3));
        assert_eq!(
            round_trips(&copying(&batches), WINDOW),
            RoundTrips::default()
        );
        let twice = [(DtoH, 4096), (HtoD, 4096)].repeat(2);
        assert_eq!(round_trips(&copying(&twice), WINDOW), RoundTrips::default());
        let numbers = [(DtoH, 4), (HtoD, 4)].repeat(9);
        assert_eq!(
            round_trips(&copying(&numbers), WINDOW),
            RoundTrips::default()
        );
    }

    #[test]
    fn overlapping_overheads_count_once() {
        let mut run = copying(&[]);
        assert_eq!(overhead_share(&run, WINDOW), None);
        let name = run.profile.strings.intern("Buffer Flush");
        for (start, end) in [(-50, 100), (50, 150), (60, 70), (2_000, 3_000)] {
            run.profile.overheads.push(crate::profile::Overhead {
                span: Span { start, end },
                thread: None,
                name,
            });
        }
        assert_eq!(overhead_share(&run, WINDOW), Some(0.15));
        let name = run.profile.strings.intern("Command Buffer Full");
        for overhead in &mut run.profile.overheads {
            overhead.name = name;
        }
        assert_eq!(overhead_share(&run, WINDOW), Some(0.0));
    }
}
