//! Activity of the GPUs over time: parts of the window, steps and the longest gaps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use indexmap::IndexMap;
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;

use super::figures::{label, share, sum};
use super::host::HostRow;
use super::model::Summary;
use super::rows::{
    DeviceRow, GapActivity, GapRow, IdleCause, LaneRow, Omitted, StepRow, TimePart, TimelineReport,
};
use crate::correlate::{DeviceTimeline, Gap, GapCause, GapKey, Run, SiteId, Step, readable_name};
use crate::profile::{DeviceId, Kernel, Span, SpanSums, StrId};

/// Number of equal parts of a device's window, for drawing.
const BUCKETS: usize = 600;
/// Most gaps listed per device; the longest are.
const MAX_GAPS: usize = 200;
/// Most steps listed; the first are.
const MAX_STEPS: usize = 1_000;
/// Number of equal parts of the window in a lane.
const LANE_PARTS: usize = 1_000;
/// Most streams with a lane; those with the longest time.
const MAX_STREAMS: usize = 8;
/// Most layers with a lane; those with the longest time.
const MAX_LANE_LAYERS: usize = 10;
/// Most devices listed; the first are.
const MAX_DEVICES: usize = 64;

/// The timeline of a run.
pub(super) fn of(run: &Run, summary: &Summary) -> TimelineReport {
    let devices = &run.timeline.devices;
    let origin = run.window.span.map_or(0, |w| w.start);
    let shown = devices.par_iter().enumerate().take(MAX_DEVICES);
    let ((shown, idle), lanes) = rayon::join(
        || {
            rayon::join(
                || shown.map(|(row, d)| device(run, row, d, origin)).collect(),
                || idle(devices),
            )
        },
        || lanes(run),
    );
    TimelineReport {
        // What is left out of the window stands empty: all lanes are on one clock.
        ns: run.window.span.map_or(summary.window_ns, Span::ns),
        parts: parts(run, summary),
        idle,
        devices: shown,
        devices_omitted: devices.len().saturating_sub(MAX_DEVICES) as u64,
        lanes,
        steps: steps(run, origin),
        steps_omitted: run.steps.len().saturating_sub(MAX_STEPS) as u64,
    }
}

fn parts(run: &Run, s: &Summary) -> Vec<TimePart> {
    if s.device_window_ns <= 0 {
        return Vec::new();
    }
    let idle = sum(run.timeline.devices.iter().map(DeviceTimeline::idle_ns));
    let rest = s.busy_ns - s.kernel_ns.saturating_add(s.exposed_copy_ns);
    [
        ("compute", s.kernel_ns.saturating_sub(s.exposed_comm_ns)),
        ("communication", s.exposed_comm_ns),
        ("copy", s.exposed_copy_ns),
        ("set", rest),
        ("idle", idle),
    ]
    .into_iter()
    .filter(|(_, ns)| *ns > 0)
    .map(|(what, ns)| TimePart {
        what: what.to_owned(),
        ns,
        share: share(ns as f64, s.device_window_ns as f64),
    })
    .collect()
}

fn idle(devices: &[DeviceTimeline]) -> Vec<IdleCause> {
    // There are few enough that a linear search is faster than a table.
    let mut causes: Vec<(GapCause, u64, i64)> = Vec::new();
    for gap in devices.iter().flat_map(|d| &d.gaps) {
        let ns = gap.span.ns();
        match causes.iter_mut().find(|(cause, ..)| *cause == gap.cause) {
            Some((_, gaps, sum)) => {
                *gaps += 1;
                *sum = sum.saturating_add(ns);
            }
            None => causes.push((gap.cause, 1, ns)),
        }
    }
    causes.sort_by_key(|&(cause, _, ns)| (Reverse(ns), cause));
    let row = |(cause, gaps, ns): (GapCause, u64, i64)| IdleCause {
        cause: cause.name().to_owned(),
        gaps,
        ns,
    };
    causes.into_iter().map(row).collect()
}

/// The lanes of streams and of layers.
fn lanes(run: &Run) -> Vec<LaneRow> {
    let Some(window) = run.window.span.filter(|w| w.ns() > 0) else {
        return Vec::new();
    };
    let pattern = |site: SiteId| {
        let layer = run.site(site)?.layer?;
        Some(run.layer(layer)?.pattern)
    };
    let (streams, layers) = rayon::join(
        || lanes_by(run, window, |k, _| Some((k.device, k.context, k.stream))),
        || lanes_by(run, window, |_, site| pattern(site)),
    );
    let gpu = |device: DeviceId| {
        let known = run.profile.device(device);
        known.map_or(u64::from(device.row()), |d| u64::from(d.ordinal))
    };
    let several = run.timeline.devices.len() > 1;
    let streams = longest(streams, MAX_STREAMS).into_iter();
    let streams = streams.map(|((device, _, stream), lane)| {
        let name = match several {
            true => format!("GPU {}, stream {stream}", gpu(device)),
            false => format!("stream {stream}"),
        };
        lane.row("stream", name, window)
    });
    let layers = longest(layers, MAX_LANE_LAYERS).into_iter();
    let layers = layers.filter_map(|(pattern, lane)| {
        let name = &run.pattern(pattern)?.name;
        Some(lane.row("layer", label(name), window))
    });
    streams.chain(layers).collect()
}

/// The lanes of the analyzed kernels by a key, in the order of their first kernels.
fn lanes_by<K: Copy + Eq + Hash>(
    run: &Run,
    window: Span,
    key: impl Fn(&Kernel, SiteId) -> Option<K>,
) -> IndexMap<K, Lane, FxBuildHasher> {
    let mut lanes: IndexMap<K, Lane, FxBuildHasher> = IndexMap::default();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if let Some(key) = link.site.and_then(|site| key(kernel, site)) {
            lanes.entry(key).or_default().add(kernel.span, window);
        }
    }
    lanes
}

/// Kernel time in each part of the window, in ns.
#[derive(Debug, Default)]
struct Lane {
    time_ns: i64,
    parts: Vec<f64>,
    /// The part in which the last kernel ended, and its bounds in ns from the start of the window.
    last: (usize, f64, f64),
}

impl Lane {
    /// Adds a kernel; linear in the parts that it covers.
    fn add(&mut self, span: Span, window: Span) {
        self.time_ns = self.time_ns.saturating_add(span.ns());
        if self.parts.is_empty() {
            self.parts = vec![0.0; LANE_PARTS];
        }
        let inside = span.clip(window);
        let from = inside.start.saturating_sub(window.start) as f64;
        let to = inside.end.saturating_sub(window.start) as f64;
        // Mostly it lies in the same part as the one before.
        let (last, left, right) = self.last;
        if from >= left
            && to <= right
            && let Some(part) = self.parts.get_mut(last)
        {
            *part += (to - from).max(0.0);
            return;
        }
        let width = window.ns() as f64 / LANE_PARTS as f64;
        let first = (from / width) as usize;
        for (i, part) in self.parts.iter_mut().enumerate().skip(first) {
            let (left, right) = (i as f64 * width, (i + 1) as f64 * width);
            if left >= to {
                break;
            }
            *part += (to.min(right) - from.max(left)).max(0.0);
            self.last = (i, left, right);
        }
    }

    fn row(self, kind: &str, name: String, window: Span) -> LaneRow {
        let width = window.ns() as f64 / LANE_PARTS as f64;
        // Any kernel at all is visible.
        let percent = |ns: &f64| match ns / width * 100.0 {
            none if none <= 0.0 => 0,
            share => share.clamp(1.0, 100.0) as u8,
        };
        LaneRow {
            kind: kind.to_owned(),
            name,
            time_ns: self.time_ns,
            busy: self.parts.iter().map(percent).collect(),
        }
    }
}

/// The lanes with the longest time, longest first.
fn longest<K>(lanes: IndexMap<K, Lane, FxBuildHasher>, most: usize) -> Vec<(K, Lane)> {
    let mut lanes: Vec<(K, Lane)> = lanes.into_iter().collect();
    // The sort is stable: equal lanes keep the order of their first kernels.
    lanes.sort_by_key(|(_, lane)| Reverse(lane.time_ns));
    lanes.truncate(most);
    lanes
}

fn device(run: &Run, row: usize, device: &DeviceTimeline, origin: i64) -> DeviceRow {
    let longest = longest_gaps(device);
    let omitted = sum(device.gaps.iter().map(|g| g.span.ns()))
        .saturating_sub(sum(longest.iter().map(|(_, g)| g.span.ns())));
    let known = run.profile.device(device.device);
    DeviceRow {
        device: format!(
            "GPU {}",
            known.map_or(u64::from(device.device.row()), |d| u64::from(d.ordinal))
        ),
        start_ns: device.span.start.saturating_sub(origin),
        ns: device.span.ns(),
        busy_ns: device.busy_ns,
        busy: busy(device),
        gaps: (longest.iter())
            .map(|(at, g)| gap(run, device, (row, *at), g, origin))
            .collect(),
        gaps_omitted: Omitted {
            count: (device.gaps.len() - longest.len()) as u64,
            time_ns: omitted,
        },
    }
}

/// The longest gaps in time order, the first of equal ones. There may be a million.
fn longest_gaps(device: &DeviceTimeline) -> Vec<(usize, &Gap)> {
    let mut longest: BinaryHeap<Reverse<(i64, Reverse<usize>)>> = BinaryHeap::new();
    for (at, gap) in device.gaps.iter().enumerate() {
        let length = Reverse((gap.span.ns(), Reverse(at)));
        if longest.len() < MAX_GAPS {
            longest.push(length);
        } else if longest.peek().is_some_and(|shortest| length < *shortest) {
            longest.pop();
            longest.push(length);
        }
    }
    let mut rows: Vec<usize> = longest
        .into_iter()
        .map(|Reverse((_, Reverse(at)))| at)
        .collect();
    rows.sort_unstable();
    let rows = rows.into_iter();
    rows.filter_map(|at| Some((at, device.gaps.get(at)?)))
        .collect()
}

fn gap(run: &Run, device: &DeviceTimeline, key: GapKey, gap: &Gap, origin: i64) -> GapRow {
    let profile = &run.profile;
    let activity = run.activities.get(&key).cloned().unwrap_or_default();
    let kernel = gap.next.and_then(|id| profile.kernel(id));
    let call = gap.call.and_then(|id| profile.call(id));
    let name = |text: StrId| label(&readable_name(profile.text(text)));
    GapRow {
        start_ns: gap.span.start.saturating_sub(origin),
        ns: gap.span.ns(),
        cause: gap.cause.name().to_owned(),
        next_kernel: kernel.map(|k| label(profile.text(k.name))),
        call: call.map(|c| label(profile.text(c.name))),
        inside: activity.op.map(name),
        short_calls: activity.short_calls.map(name),
        before: activity.before.map(|range| label(profile.text(range))),
        before_copy: activity.before_copy,
        at_end: device.is_at_end(gap),
        host: host(run, key),
    }
}

/// Most activities listed of a gap.
const MAX_ACTIVITIES: usize = 4;

/// What the launching thread did in a gap, by its device's row and its own.
fn host(run: &Run, key: GapKey) -> Vec<GapActivity> {
    let Some(parts) = run.host.gaps.get(&key) else {
        return Vec::new();
    };
    let rows = super::host::rows(run, parts)
        .into_iter()
        .take(MAX_ACTIVITIES);
    let row = |row: HostRow| GapActivity {
        activity: row.activity,
        name: row.name,
        ns: row.ns,
    };
    rows.map(row).collect()
}

/// Busy shares: time outside gaps and outside what is excluded is busy. Linear in gaps and buckets, because gaps do not overlap.
fn busy(device: &DeviceTimeline) -> Vec<f64> {
    let (start, total) = (device.span.start, device.span.ns());
    if total <= 0 {
        return Vec::new();
    }
    let width = total as f64 / BUCKETS as f64;
    let mut busy = vec![1.0_f64; BUCKETS];
    let idle = device.gaps.iter().map(|gap| gap.span);
    for span in idle.chain(device.excluded.iter().copied()) {
        let inside = span.clip(device.span);
        let from = inside.start.saturating_sub(start) as f64 / width;
        let to = inside.end.saturating_sub(start) as f64 / width;
        let touched = busy.iter_mut().enumerate().skip(from as usize);
        for (i, share) in touched.take_while(|(i, _)| (*i as f64) < to) {
            let (left, right) = (i as f64, (i + 1) as f64);
            *share -= (to.min(right) - from.max(left)).max(0.0);
        }
    }
    // Three digits are enough for a screen.
    busy.iter()
        .map(|share| (share.clamp(0.0, 1.0) * 1e3).round() / 1e3)
        .collect()
}

fn steps(run: &Run, origin: i64) -> Vec<StepRow> {
    if run.steps.is_empty() {
        return Vec::new();
    }
    let devices: Vec<DeviceGaps> = run.timeline.devices.iter().map(DeviceGaps::new).collect();
    let kernels = kernel_times(run);
    let mut parts: Vec<Option<i64>> = vec![None; run.steps.len()];
    let analyzed = (run.steps.iter().zip(&mut parts)).filter(|(step, _)| !step.warmup);
    for ((_, part), ns) in analyzed.zip(run.step_lengths().unwrap_or_default()) {
        *part = Some(ns.round() as i64);
    }
    let mut steps: Vec<(usize, &Step)> = run.steps.iter().enumerate().collect();
    steps.sort_by_key(|(_, s)| (s.span.start, s.span.end, s.number));
    steps
        .into_iter()
        .take(MAX_STEPS)
        .map(|(at, step)| StepRow {
            number: step.number,
            start_ns: step.span.start.saturating_sub(origin),
            ns: step.span.ns(),
            window_part_ns: parts.get(at).copied().flatten(),
            gpu_start_ns: step.gpu.map(|gpu| gpu.start.saturating_sub(origin)),
            kernel_ns: kernels.get(at).copied().unwrap_or_default(),
            warmup: step.warmup,
            busy_share: busy_share(&devices, step.span),
        })
        .collect()
}

/// Time of the kernels launched in each step of the run.
fn kernel_times(run: &Run) -> Vec<i64> {
    let mut times = vec![0_i64; run.steps.len()];
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if let Some(time) = link.step.and_then(|step| times.get_mut(step.idx())) {
            *time = time.saturating_add(kernel.span.ns());
        }
    }
    times
}

/// Busy share of all devices inside a span, of the time in which they are present.
fn busy_share(devices: &[DeviceGaps], span: Span) -> Option<f64> {
    let mut present = 0_i64;
    let mut idle = 0_i64;
    for device in devices {
        let inside = span.clip(device.span);
        present = present.saturating_add(inside.ns());
        idle = idle.saturating_add(device.inside(inside));
    }
    (present > 0).then(|| (1.0 - idle as f64 / present as f64).clamp(0.0, 1.0))
}

/// When a device is present, and when it is idle.
pub(super) struct DeviceGaps {
    pub(super) span: Span,
    idle: SpanSums,
}

impl DeviceGaps {
    pub(super) fn new(device: &DeviceTimeline) -> DeviceGaps {
        DeviceGaps {
            span: device.span,
            idle: SpanSums::of(device.gaps.iter().map(|gap| gap.span)),
        }
    }

    /// Idle nanoseconds in a span.
    pub(super) fn inside(&self, span: Span) -> i64 {
        self.idle.ns_in(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(span: (i64, i64), gaps: &[(i64, i64)]) -> DeviceTimeline {
        let span_of = |(start, end)| Span { start, end };
        let gaps: Vec<Gap> = gaps
            .iter()
            .map(|g| Gap {
                span: span_of(*g),
                cause: GapCause::HostLate,
                reliable_ns: 0,
                next: None,
                call: None,
                ended_by: None,
                after_wait: false,
            })
            .collect();
        let span = span_of(span);
        let idle: i64 = gaps.iter().map(|g| g.span.ns()).sum();
        DeviceTimeline {
            busy_ns: span.ns() - idle,
            kernel_ns: span.ns() - idle,
            gaps,
            ..DeviceTimeline::empty(DeviceId(0), span)
        }
    }

    #[test]
    fn busy_shares_add_up_to_the_busy_time() {
        let device = device(
            (-6_000, 6_000),
            &[(-5_990, -5_985), (-100, 50), (1_000, 5_000)],
        );
        let strip = busy(&device);
        assert_eq!(strip.len(), BUCKETS);
        let sum: f64 = strip.iter().sum::<f64>() * 20.0;
        assert!((sum - device.busy_ns as f64).abs() < 20.0, "{sum}");
        assert_eq!(strip[400], 0.0);
        assert_eq!(strip[599], 1.0);
        assert_eq!(strip[0], 0.75);
    }

    #[test]
    fn lanes_hold_kernel_time_where_it_ran() {
        let span = |start, end| Span { start, end };
        let window = span(-500_000, 500_000);
        let mut lane = Lane::default();
        lane.add(span(-500_000, -499_500), window);
        lane.add(span(-499_900, -499_850), window);
        lane.add(span(0, 2_000), window);
        lane.add(span(499_995, 700_000), window);
        let row = lane.row("stream", "GPU 0, stream 7".to_owned(), window);
        assert_eq!(row.busy.len(), LANE_PARTS);
        assert_eq!((row.busy[0], row.busy[1], row.busy[499]), (55, 0, 0));
        assert_eq!((row.busy[500], row.busy[501], row.busy[502]), (100, 100, 0));
        assert_eq!(row.busy[999], 1, "a short kernel is visible");
    }

    #[test]
    fn busy_share_of_a_step_excludes_gaps() {
        let a = device((0, 1_000), &[(100, 200), (400, 600)]);
        let b = device((500, 1_000), &[]);
        let both = [DeviceGaps::new(&a), DeviceGaps::new(&b)];
        let share = |start, end| busy_share(&both, Span { start, end });
        assert_eq!(share(0, 100), Some(1.0));
        assert_eq!(share(150, 250), Some(0.5));
        assert_eq!(share(500, 700), Some(0.75));
        assert_eq!(share(2_000, 3_000), None);
        assert_eq!(share(i64::MIN, i64::MAX), Some(0.8));
        assert_eq!(share(900, 100), None);
    }
}
