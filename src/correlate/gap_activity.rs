//! What the launching thread did in the longest gaps, and what it did next.

use rustc_hash::{FxHashMap, FxHashSet};

use super::model::{Activity, Gap, GapCause, GapKey, Step, Timeline};
use super::timeline::HOST_BUSY_NS;
use crate::base::statistics::NEARLY_ALL;
use crate::profile::{CopyKind, DeviceId, HostRange, Profile, RangeKind, Span, StrId, ThreadId};

/// The longest intervals examined; they hold nearly all of such idle time.
const MOST: usize = 512;

/// Shorter ranges, as a part of the shortest interval, are ignored.
const SHORTEST_PART: i64 = 64;

/// A launching thread from the start of a gap to the launch that ended it.
struct Pause {
    key: GapKey,
    span: Span,
    /// The analyzed time of the device.
    window: Span,
    /// Per text: time in such ranges, when the last one of them ends, and the length of the shortest.
    inside: FxHashMap<StrId, (i64, i64, i64)>,
    before: Option<StrId>,
    before_copy: bool,
}

/// What the host did in the longest gaps of a millisecond and more. Numbered steps are around everything and
/// are ignored.
pub(super) fn activities(
    profile: &Profile,
    timeline: &Timeline,
    steps: &[Step],
) -> FxHashMap<GapKey, Activity> {
    let mut threads = pauses(profile, timeline);
    let shortest = threads.iter().flatten().map(|p| p.span.ns()).min();
    let Some(shortest) = shortest else {
        return FxHashMap::default();
    };
    let steps: FxHashSet<Span> = steps.iter().map(|s| s.span).collect();
    for range in &profile.ranges {
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
        let text = profile.text(range.text);
        // What was called from Python is named by its caller, which has a file and a line. That the data
        // loader ran is the cause already.
        // PyProf's dictionaries are no names.
        let named = !["<built-in", "enumerate(DataLoader)", "{"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let users = is_users(range, text);
        let touched = pauses.iter_mut().skip(from);
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
    /// Whether a range covers nearly all of the rest of the window, too: that the host was in it says nothing.
    fn is_around_everything(&self, range: &HostRange) -> bool {
        let rest = self.window.ns().saturating_sub(self.span.ns());
        let inside = range.span.clip(self.window).ns();
        let beside = inside.saturating_sub(range.span.clip(self.span).ns());
        rest > 0 && beside as f64 >= NEARLY_ALL * rest as f64
    }

    /// Ranges come in the order of their starts, so time in nested ranges of one text counts once.
    fn add(&mut self, range: &HostRange) {
        let span = range.span.clip(self.span);
        let new = (0, i64::MIN, i64::MAX);
        let (sum, until, shortest) = self.inside.entry(range.text).or_insert(new);
        *sum = sum.saturating_add(span.end.saturating_sub(span.start.max(*until)).max(0));
        *until = span.end.max(*until);
        *shortest = range.span.ns().min(*shortest);
    }

    fn activity(self) -> Activity {
        let most = self.span.ns() / 2;
        let inside = self.inside.into_iter();
        let op = inside
            .filter(|(_, (ns, ..))| *ns > most)
            .min_by_key(|&(text, (ns, _, length))| (ns, length, text))
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
fn pauses(profile: &Profile, timeline: &Timeline) -> Vec<Vec<Pause>> {
    let mut all: Vec<(ThreadId, DeviceId, i64, Pause)> = Vec::new();
    for (row, device) in timeline.devices.iter().enumerate() {
        for (at, gap) in device.gaps.iter().enumerate() {
            if let Some((thread, span)) = pause(profile, gap) {
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
    let mut threads: Vec<Vec<Pause>> = Vec::new();
    threads.resize_with(profile.threads.len(), Vec::new);
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
        if let Some(pauses) = threads.get_mut(thread.idx()) {
            pauses.push(pause);
        }
    }
    for pauses in &mut threads {
        pauses.sort_by_key(|p| (p.span.end, p.key));
    }
    threads
}

fn pause(profile: &Profile, gap: &Gap) -> Option<(ThreadId, Span)> {
    let launch = profile.calls.get(gap.ended_by?.idx())?;
    let until = match gap.cause {
        GapCause::SlowLaunch => launch.span.end,
        _ => launch.span.start,
    };
    let span = Span {
        start: gap.span.start,
        end: until.min(gap.span.end),
    };
    (span.end > span.start && span.ns() >= HOST_BUSY_NS).then_some((launch.thread, span))
}
