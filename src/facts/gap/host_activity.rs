//! The range a host thread was in while it launched no work.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::correlate::{Gap, GapCause, Run};
use crate::profile::{Span, StrId, ThreadId};

/// The longest intervals asked about; they hold nearly all of such idle time.
const MOST: usize = 256;

/// A gap by its device's row and its own.
pub(super) type GapKey = (usize, usize);

/// A host thread that launched nothing, from the start of the gap to its next launch.
struct Pause {
    key: GapKey,
    span: Span,
    /// The shortest range that covers more than half of it, and how long that is.
    range: Option<(i64, StrId)>,
}

/// For gaps in which the host did something else: the innermost range its thread was in for more than
/// half of the time. Numbered steps are around everything and say nothing.
pub(super) fn ranges(run: &Run) -> FxHashMap<GapKey, StrId> {
    let mut threads = pauses(run);
    let shortest = threads.iter().flatten().map(|p| p.span.ns()).min();
    let Some(shortest) = shortest else {
        return FxHashMap::default();
    };
    let steps: FxHashSet<Span> = run.steps.iter().map(|s| s.span).collect();
    for range in &run.profile.ranges {
        // Nearly all are too short.
        let length = range.span.end.saturating_sub(range.span.start);
        if length <= shortest / 2 {
            continue;
        }
        let pauses = threads.get_mut(range.thread.idx());
        let Some(pauses) = pauses.filter(|pauses| !pauses.is_empty()) else {
            continue;
        };
        if steps.contains(&range.span) {
            continue;
        }
        let from = pauses.partition_point(|p| p.span.end <= range.span.start);
        let touched = pauses.iter_mut().skip(from);
        for pause in touched.take_while(|p| p.span.start < range.span.end) {
            let inside = range.span.clip(pause.span).ns();
            if inside > pause.span.ns() / 2 && pause.range.is_none_or(|(best, _)| length < best) {
                pause.range = Some((length, range.text));
            }
        }
    }
    let named = threads.into_iter().flatten();
    named.filter_map(|p| Some((p.key, p.range?.1))).collect()
}

/// The longest such intervals, per thread in time order. Those of one thread do not overlap when it
/// feeds one device; when it feeds several, some may, which makes them no harder to find.
fn pauses(run: &Run) -> Vec<Vec<Pause>> {
    let mut all: Vec<(ThreadId, Pause)> = Vec::new();
    for (row, device) in run.timeline.devices.iter().enumerate() {
        for (at, gap) in device.gaps.iter().enumerate() {
            if let Some((thread, span)) = pause(gap) {
                let key = (row, at);
                all.push((
                    thread,
                    Pause {
                        key,
                        span,
                        range: None,
                    },
                ));
            }
        }
    }
    all.sort_by_key(|(_, p)| (std::cmp::Reverse(p.span.ns()), p.key));
    all.truncate(MOST);
    let mut threads: Vec<Vec<Pause>> = Vec::new();
    threads.resize_with(run.profile.threads.len(), Vec::new);
    for (thread, pause) in all {
        if let Some(pauses) = threads.get_mut(thread.idx()) {
            pauses.push(pause);
        }
    }
    for pauses in &mut threads {
        pauses.sort_by_key(|p| (p.span.end, p.key));
    }
    threads
}

fn pause(gap: &Gap) -> Option<(ThreadId, Span)> {
    if gap.cause != GapCause::HostBusy {
        return None;
    }
    let (thread, launched) = gap.ended_by?;
    let span = Span {
        start: gap.span.start,
        end: launched.min(gap.span.end),
    };
    (span.end > span.start).then_some((thread, span))
}
