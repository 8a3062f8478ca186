//! What a host thread did while it launched no work, and what it did next.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::correlate::{Gap, GapCause, HOST_BUSY_NS, Run};
use crate::profile::{CopyKind, DeviceId, HostRange, RangeKind, Span, StrId, ThreadId};

/// The longest intervals examined; they hold nearly all of such idle time.
const MOST: usize = 256;

/// Shorter ranges, as a part of the shortest interval, are ignored.
const SHORTEST_PART: i64 = 64;

/// A gap by its device's row and its own.
pub(super) type GapKey = (usize, usize);

/// What the host did in a gap, and what ended it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Activity {
    /// The function or range that the thread was in for more than half of the time: the one with the
    /// least time of those.
    pub(super) op: Option<StrId>,
    /// The outermost range that the thread entered in the gap and in which it launched the work that
    /// ended the gap.
    pub(super) before: Option<StrId>,
    /// A copy from host memory ended the gap.
    pub(super) before_copy: bool,
}

/// A host thread that launched nothing, from the start of the gap to its next launch.
struct Pause {
    key: GapKey,
    span: Span,
    /// Per text: time in such ranges, and when the last one of them ends.
    inside: FxHashMap<StrId, (i64, i64)>,
    before: Option<StrId>,
    before_copy: bool,
}

/// What the host did in the longest gaps in which it launched nothing. Numbered steps are around
/// everything and are ignored.
pub(super) fn activities(run: &Run) -> FxHashMap<GapKey, Activity> {
    let mut threads = pauses(run);
    let shortest = threads.iter().flatten().map(|p| p.span.ns()).min();
    let Some(shortest) = shortest else {
        return FxHashMap::default();
    };
    let steps: FxHashSet<Span> = run.steps.iter().map(|s| s.span).collect();
    for range in &run.profile.ranges {
        // Nearly all are too short.
        let length = range.span.end.saturating_sub(range.span.start);
        if length <= shortest / SHORTEST_PART {
            continue;
        }
        let pauses = threads.get_mut(range.thread.idx());
        let Some(pauses) = pauses.filter(|pauses| !pauses.is_empty()) else {
            continue;
        };
        if steps.contains(&range.span) {
            continue;
        }
        let from = pauses.partition_point(|p| p.span.end < range.span.start);
        let touches = |p: &Pause| p.span.start < range.span.end;
        if !pauses.get(from).is_some_and(touches) {
            continue;
        }
        let text = run.profile.text(range.text);
        // What was called from Python is named by its caller, which has a file and a line. That the data
        // loader ran is the cause already.
        // PyProf's dictionaries are no names.
        let named = !["<built-in", "enumerate(DataLoader)", "{"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let users = is_users(range, text);
        let touched = pauses.iter_mut().skip(from);
        for pause in touched.take_while(|p| touches(p)) {
            if named {
                pause.add(range);
            }
            let entered = range.span.start >= pause.span.start;
            if users && entered && range.span.end > pause.span.end && pause.before.is_none() {
                pause.before = Some(range.text);
            }
        }
    }
    let pauses = threads.into_iter().flatten();
    pauses.map(|pause| (pause.key, pause.activity())).collect()
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
    /// Ranges come in the order of their starts, so time in nested ranges of one text counts once.
    fn add(&mut self, range: &HostRange) {
        let span = range.span.clip(self.span);
        let (sum, until) = self.inside.entry(range.text).or_insert((0, i64::MIN));
        *sum = sum.saturating_add(span.end.saturating_sub(span.start.max(*until)).max(0));
        *until = span.end.max(*until);
    }

    fn activity(self) -> Activity {
        let most = self.span.ns() / 2;
        let inside = self.inside.into_iter();
        let op = inside
            .filter(|(_, (ns, _))| *ns > most)
            .min_by_key(|&(text, (ns, _))| (ns, text))
            .map(|(text, _)| text);
        Activity {
            op,
            before: self.before,
            before_copy: self.before_copy,
        }
    }
}

/// The longest such intervals, per thread in time order. Those of one thread do not overlap when it
/// feeds one device; when it feeds several, some may, which makes them no harder to find.
fn pauses(run: &Run) -> Vec<Vec<Pause>> {
    let mut all: Vec<(ThreadId, DeviceId, i64, Pause)> = Vec::new();
    for (row, device) in run.timeline.devices.iter().enumerate() {
        for (at, gap) in device.gaps.iter().enumerate() {
            if let Some((thread, span)) = pause(run, gap) {
                let pause = Pause {
                    key: (row, at),
                    span,
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
    let mut threads: Vec<Vec<Pause>> = Vec::new();
    threads.resize_with(run.profile.threads.len(), Vec::new);
    if all.is_empty() {
        return threads;
    }
    let copies = run.profile.copies.iter();
    let copies: FxHashSet<(DeviceId, i64)> = copies
        .filter(|copy| copy.kind == CopyKind::HtoD)
        .map(|copy| (copy.device, copy.span.start))
        .collect();
    for (thread, device, end, mut pause) in all {
        pause.before_copy = copies.contains(&(device, end));
        if let Some(pauses) = threads.get_mut(thread.idx()) {
            pauses.push(pause);
        }
    }
    for pauses in &mut threads {
        pauses.sort_by_key(|p| (p.span.end, p.key));
    }
    threads
}

fn pause(run: &Run, gap: &Gap) -> Option<(ThreadId, Span)> {
    if !matches!(gap.cause, GapCause::HostBusy | GapCause::DataLoading) {
        return None;
    }
    let launch = run.profile.calls.get(gap.ended_by?.idx())?;
    let span = Span {
        start: gap.span.start,
        end: launch.span.start.min(gap.span.end),
    };
    (span.end > span.start && span.ns() >= HOST_BUSY_NS).then_some((launch.thread, span))
}
