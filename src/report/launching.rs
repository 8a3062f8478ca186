//! What the host did in the analyzed window: launches, waits for the GPU, and idle intervals of the GPU by
//! length.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::figures::label;
use crate::base::statistics::median;
use crate::correlate::Run;
use crate::profile::{ApiCall, ApiClass, Span, StrId, ThreadId};

/// Bounds between the classes of idle intervals, in ns. Below 5 us, kernels follow each other as fast as
/// the GPU starts them; 20 to 100 us are a few operators on the host; beyond, it did something else.
const BOUNDS: [i64; 5] = [5_000, 20_000, 100_000, 1_000_000, 10_000_000];
/// Most kinds of waiting calls.
const MAX_WAITS: usize = 10;

/// What the host did in the analyzed window, summed over processes and GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Launching {
    /// Number of kernel and graph launches; 0 where calls were not recorded.
    pub launches: u64,
    /// Time in those calls.
    pub launch_ns: i64,
    /// Median time from one launch to the next of the same thread; `null` with fewer than two.
    pub launch_interval_ns: Option<i64>,
    /// Calls that wait for the GPU, longest time first.
    pub waits: Vec<HostCalls>,
    /// Idle intervals of the GPUs by length, shortest first.
    pub gaps: Vec<GapClass>,
}

/// Calls of one function on the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostCalls {
    /// Name of the function: `cudaStreamSynchronize`.
    pub name: String,
    /// Number of calls.
    pub count: u64,
    /// Time in them.
    pub ns: i64,
}

/// Idle intervals of about the same length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GapClass {
    /// Shortest length.
    pub from_ns: i64,
    /// Length from which the next class begins; `null` for the last class.
    pub to_ns: Option<i64>,
    /// Number of intervals.
    pub count: u64,
    /// Sum of their lengths.
    pub ns: i64,
}

/// What the host of a run did.
pub(super) fn of(run: &Run) -> Launching {
    let mut host = Launching {
        gaps: gaps(run),
        ..Launching::default()
    };
    let Some(window) = run.window.span else {
        return host;
    };
    let excluded = run.window.excluded_spans();
    let inside = |call: &&ApiCall| {
        call.span.start < window.end
            && call.span.end > window.start
            && !Span::one_contains(&excluded, call.span.start)
    };
    // A call that loads code takes as long as that: only the rest of it counts.
    let loads = Span::union(run.window.loads.clone());
    let counted = |call: &ApiCall| {
        let inside = call.span.clip(window);
        let loads = inside.overlapping(&loads, |load| *load);
        loads.fold(inside.ns(), |ns, load| ns - load.clip(inside).ns())
    };
    let mut waits: BTreeMap<StrId, (u64, i64)> = BTreeMap::new();
    let mut last: FxHashMap<ThreadId, i64> = FxHashMap::default();
    let mut intervals = Vec::new();
    // Calls are sorted by start.
    for call in run.profile.calls.iter().filter(inside) {
        match call.class {
            ApiClass::Launch | ApiClass::GraphLaunch => {
                host.launches += 1;
                host.launch_ns = host.launch_ns.saturating_add(counted(call));
                if let Some(before) = last.insert(call.thread, call.span.start) {
                    intervals.push(call.span.start.saturating_sub(before));
                }
            }
            ApiClass::Sync | ApiClass::CopySync | ApiClass::SetSync => {
                let (count, ns) = waits.entry(call.name).or_default();
                *count += 1;
                *ns = ns.saturating_add(counted(call));
            }
            _ => {}
        }
    }
    host.launch_interval_ns = median(&mut intervals);
    let row = |(name, (count, ns)): (StrId, (u64, i64))| HostCalls {
        name: label(run.profile.text(name)),
        count,
        ns,
    };
    host.waits = waits.into_iter().map(row).collect();
    shorten(&mut host.waits);
    host
}

fn shorten(waits: &mut Vec<HostCalls>) {
    waits.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
    waits.truncate(MAX_WAITS);
}

/// Idle intervals of all devices by length.
fn gaps(run: &Run) -> Vec<GapClass> {
    let from = std::iter::once(0).chain(BOUNDS);
    let to = BOUNDS.into_iter().map(Some).chain(std::iter::once(None));
    let class = |(from_ns, to_ns)| GapClass {
        from_ns,
        to_ns,
        count: 0,
        ns: 0,
    };
    let mut classes: Vec<GapClass> = from.zip(to).map(class).collect();
    for gap in run.timeline.devices.iter().flat_map(|d| &d.gaps) {
        let ns = gap.span.ns();
        let at = BOUNDS.partition_point(|bound| *bound <= ns);
        if let Some(class) = classes.get_mut(at) {
            class.count += 1;
            class.ns = class.ns.saturating_add(ns);
        }
    }
    classes
}

impl Launching {
    /// The sum over the ranks of a job; the median of their median intervals.
    pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a Launching>) -> Launching {
        let mut sum = Launching::default();
        let mut intervals = Vec::new();
        for host in all {
            sum.launches = sum.launches.saturating_add(host.launches);
            sum.launch_ns = sum.launch_ns.saturating_add(host.launch_ns);
            intervals.extend(host.launch_interval_ns);
            for wait in &host.waits {
                match sum.waits.iter_mut().find(|known| known.name == wait.name) {
                    Some(known) => {
                        known.count = known.count.saturating_add(wait.count);
                        known.ns = known.ns.saturating_add(wait.ns);
                    }
                    None => sum.waits.push(wait.clone()),
                }
            }
            for class in &host.gaps {
                match sum
                    .gaps
                    .iter_mut()
                    .find(|known| known.from_ns == class.from_ns)
                {
                    Some(known) => {
                        known.count = known.count.saturating_add(class.count);
                        known.ns = known.ns.saturating_add(class.ns);
                    }
                    None => sum.gaps.push(class.clone()),
                }
            }
        }
        sum.launch_interval_ns = median(&mut intervals);
        sum.gaps.sort_by_key(|class| class.from_ns);
        shorten(&mut sum.waits);
        sum
    }
}
