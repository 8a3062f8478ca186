//! What the launching thread did in the longest gaps, and what it did next.

use rustc_hash::{FxHashMap, FxHashSet};

use super::model::{Activity, CpuOps, DeviceTimeline, Gap, GapCause, GapKey, Step, Timeline};
use super::pruning::OPERATORS;
use super::timeline::HOST_BUSY_NS;
use crate::base::statistics::NEARLY_ALL;
use crate::profile::{CopyKind, DeviceId, HostRange, Profile, RangeKind, Span, StrId, ThreadId};

mod cpu_ops;

/// The longest intervals examined; they hold nearly all of such idle time.
const MOST: usize = 512;

/// Different texts looked at in one interval: more than any program has functions. Bounds the memory for
/// hostile files.
const MOST_TEXTS: usize = 1 << 14;

/// A range is short if a gap is more than this many times as long.
const SHORT_PART: i64 = 64;

/// Operators on the CPU that are kept of each interval.
const MOST_CPU_OPS: usize = 16;

/// A launching thread from the start of a gap to the launch that ended it, or to the end of the step.
struct Pause {
    key: GapKey,
    span: Span,
    /// The analyzed time of the device.
    window: Span,
    inside: FxHashMap<StrId, Named>,
    before: Option<StrId>,
    before_copy: bool,
}

/// The ranges of one text in a pause.
#[derive(Debug, Clone, Copy)]
struct Named {
    /// Time in them, and when the last one of them ends.
    ns: i64,
    until: i64,
    /// The lengths of the shortest and of the longest.
    shortest: i64,
    longest: i64,
}

/// The pauses of a thread in time order, and the first that has not ended.
#[derive(Default)]
struct ThreadPauses {
    pauses: Vec<Pause>,
    at: usize,
}

/// What the host did in the longest gaps of a millisecond and more. Numbered steps are around everything and
/// are ignored.
pub(super) fn activities(
    profile: &Profile,
    timeline: &Timeline,
    steps: &[Step],
) -> FxHashMap<GapKey, Activity> {
    let mut threads = pauses(profile, timeline);
    if threads.iter().all(|thread| thread.pauses.is_empty()) {
        return FxHashMap::default();
    }
    let spans = threads
        .iter()
        .map(|thread| thread.pauses.iter().map(|p| p.span).collect());
    let spans: Vec<Vec<Span>> = spans.collect();
    let ((), on_cpu) = rayon::join(
        || name_ranges(profile, &mut threads, steps),
        || cpu_ops::times(profile, &spans),
    );
    let pauses = threads.into_iter().flat_map(|thread| thread.pauses);
    (pauses.zip(on_cpu.into_iter().flatten()))
        .map(|(pause, on_cpu)| (pause.key, pause.activity(profile, &on_cpu)))
        .collect()
}

/// Adds to each pause the ranges in it, and the name of what came next.
fn name_ranges(profile: &Profile, threads: &mut [ThreadPauses], steps: &[Step]) {
    let steps: FxHashSet<Span> = steps.iter().map(|s| s.span).collect();
    for range in &profile.ranges {
        let Some(ThreadPauses { pauses, at }) = threads.get_mut(range.thread.idx()) else {
            continue;
        };
        // Ranges come in the order of their starts. Most are in no pause.
        while pauses
            .get(*at)
            .is_some_and(|p| p.span.end < range.span.start)
        {
            *at += 1;
        }
        let touches = |p: &Pause| p.span.start < range.span.end;
        if !pauses.get(*at).is_some_and(touches) || steps.contains(&range.span) {
            continue;
        }
        let text = profile.text(range.text);
        // What was called from Python is named by its caller, which has a file and a line. That the data
        // loader ran is the cause already.
        // PyProf's dictionaries are no names.
        let named = !["<built-in", "enumerate(DataLoader)", "{"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let users = is_users(range, text);
        let touched = pauses.iter_mut().skip(*at);
        for pause in touched.take_while(|p| touches(p)) {
            if named && !pause.is_around_everything(range) {
                pause.add(range);
            }
            let entered = range.span.start >= pause.span.start;
            if users && entered && range.span.end > pause.span.end && pause.before.is_none() {
                pause.before = Some(range.text);
            }
        }
    }
}

/// Whether a range is a name that a program gave to a part of its work.
fn is_users(range: &HostRange, text: &str) -> bool {
    match range.kind {
        RangeKind::Annotation => true,
        RangeKind::PushPop | RangeKind::StartEnd => {
            range.seq.is_none() && range.op_id.is_none() && !text.starts_with('{')
        }
        RangeKind::Mark | RangeKind::CpuOp | RangeKind::Python => false,
    }
}

impl Pause {
    /// Whether a range covers nearly all of the rest of the window, too. Then it does not explain the pause.
    fn is_around_everything(&self, range: &HostRange) -> bool {
        let rest = self.window.ns().saturating_sub(self.span.ns());
        let inside = range.span.clip(self.window).ns();
        let beside = inside.saturating_sub(range.span.clip(self.span).ns());
        rest > 0 && beside as f64 >= NEARLY_ALL * rest as f64
    }

    /// Ranges come in the order of their starts, so time in nested ranges of one text counts once.
    fn add(&mut self, range: &HostRange) {
        if self.inside.len() >= MOST_TEXTS && !self.inside.contains_key(&range.text) {
            return;
        }
        let span = range.span.clip(self.span);
        let length = range.span.ns();
        let named = self.inside.entry(range.text).or_insert(Named {
            ns: 0,
            until: i64::MIN,
            shortest: length,
            longest: length,
        });
        let new = span.end.saturating_sub(span.start.max(named.until)).max(0);
        named.ns = named.ns.saturating_add(new);
        named.until = named.until.max(span.end);
        named.shortest = named.shortest.min(length);
        named.longest = named.longest.max(length);
    }

    fn activity(self, profile: &Profile, on_cpu: &cpu_ops::Times) -> Activity {
        let is_short = |named: &Named| named.longest <= self.span.ns() / SHORT_PART;
        // Functions of PyTorch itself say less than those that call them.
        let is_pytorch = |text: StrId| profile.text(text).starts_with("torch/");
        let innermost = |such: &dyn Fn(StrId, &Named) -> bool| {
            let most = self.inside.iter().map(|(text, named)| (*text, named));
            let most = most.filter(|(_, named)| named.ns > self.span.ns() / 2);
            most.filter(|(text, named)| such(*text, named))
                .min_by_key(|(text, named)| (is_pytorch(*text), named.ns, named.shortest, *text))
                .map(|(text, _)| text)
        };
        let cpu_ops = CpuOps::of(on_cpu, MOST_CPU_OPS);
        // What the program called says more than what that calls.
        let longest = cpu_ops.most.first();
        let most = longest.filter(|(_, ns)| *ns > self.span.ns() / 2);
        let op = most.map(|(op, _)| *op);
        let op = op.or_else(|| innermost(&|_, named| !is_short(named)));
        // Many calls of PyTorch's own operators are not in the profile any more.
        let short = innermost(&|text, named| {
            let is_operator = profile.text(text).starts_with(OPERATORS);
            is_short(named) && !is_operator && !is_pytorch(text)
        });
        Activity {
            op: op.or(short),
            short_calls: short.filter(|_| op.is_some()),
            before: self.before,
            before_copy: self.before_copy,
            cpu_ops,
        }
    }
}

/// The longest gaps of a millisecond and more whose launching thread is known, per thread in time order. Those of
/// one thread do not overlap when it feeds one device; when it feeds several, some may, which makes them no harder
/// to find.
fn pauses(profile: &Profile, timeline: &Timeline) -> Vec<ThreadPauses> {
    let mut all: Vec<(ThreadId, DeviceId, i64, Pause)> = Vec::new();
    for (row, device) in timeline.devices.iter().enumerate() {
        for (at, gap) in device.gaps.iter().enumerate() {
            if let Some((thread, span)) = pause(profile, device, gap) {
                let pause = Pause {
                    key: (row, at),
                    span,
                    window: device.span,
                    inside: FxHashMap::default(),
                    before: None,
                    before_copy: false,
                };
                all.push((thread, device.device, gap.span.end, pause));
            }
        }
    }
    all.sort_by_key(|(.., p)| (std::cmp::Reverse(p.span.ns()), p.key));
    all.truncate(MOST);
    let mut threads: Vec<ThreadPauses> = Vec::new();
    threads.resize_with(profile.threads.len(), ThreadPauses::default);
    if all.is_empty() {
        return threads;
    }
    let copies = profile.copies.iter();
    let copies: FxHashSet<(DeviceId, i64)> = copies
        .filter(|copy| copy.kind == CopyKind::HtoD)
        .map(|copy| (copy.device, copy.span.start))
        .collect();
    for (thread, device, end, mut pause) in all {
        pause.before_copy = copies.contains(&(device, end));
        if let Some(thread) = threads.get_mut(thread.idx()) {
            thread.pauses.push(pause);
        }
    }
    for ThreadPauses { pauses, .. } in &mut threads {
        pauses.sort_by_key(|p| (p.span.end, p.key));
    }
    threads
}

/// The launching thread, and the time from the start of a gap to the launch that ended it; `None` for less than a
/// millisecond.
fn pause(profile: &Profile, device: &DeviceTimeline, gap: &Gap) -> Option<(ThreadId, Span)> {
    if gap.span.ns() < HOST_BUSY_NS {
        return None;
    }
    let launch = gap.launch(profile);
    let until = match (launch, gap.cause) {
        (None, _) => gap.span.end,
        (Some(launch), GapCause::SlowLaunch) => launch.span.end,
        (Some(launch), _) => launch.span.start,
    };
    let span = Span {
        start: gap.span.start,
        end: until.min(gap.span.end),
    };
    let is_long = span.end > span.start && span.ns() >= HOST_BUSY_NS;
    Some((
        device.awaited_thread(profile, gap).filter(|_| is_long)?,
        span,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
