//! The causes of the longest gaps of every profile, against the rows of the profile: which calls the launching
//! thread was in, and which operators, ranges and functions.

use std::collections::BTreeMap;
use std::path::Path;

use pyprof_advise::correlate::{DeviceTimeline, Gap, GapCause, Run, correlate};
use pyprof_advise::cost::VOCABULARY;
use pyprof_advise::profile::{ApiCall, ApiClass, RangeKind, Span, ThreadId};
use pyprof_advise::read;

use crate::shared;

/// Gaps looked at per device, and the shortest.
const GAPS: usize = 10;
const LONG_NS: i64 = 1_000_000;

/// Time that calls of a kind took of a span on a thread; calls of one thread may nest.
fn inside(calls: &[&ApiCall], span: Span, such: impl Fn(&ApiCall) -> bool) -> i64 {
    let mut until = span.start;
    let mut sum = 0;
    for call in calls.iter().filter(|call| such(call)) {
        let part = call.span.clip(span);
        sum += (part.end - part.start.max(until)).max(0);
        until = until.max(part.end);
    }
    sum
}

fn explains(cause: GapCause, class: ApiClass) -> bool {
    match class {
        ApiClass::Sync => matches!(cause, GapCause::AfterSync | GapCause::DataLoading),
        ApiClass::Alloc | ApiClass::Free => matches!(
            cause,
            GapCause::Allocation
                | GapCause::AfterSync
                | GapCause::BlockingCopy
                | GapCause::DataLoading
        ),
        ApiClass::CopySync => matches!(
            cause,
            GapCause::BlockingCopy | GapCause::AfterSync | GapCause::DataLoading
        ),
        ApiClass::Launch | ApiClass::GraphLaunch => {
            matches!(cause, GapCause::SlowLaunch | GapCause::DataLoading)
        }
        _ => true,
    }
}

/// What a program calls itself: its operators, functions and ranges, without those of the profiler.
fn is_named(kind: RangeKind, text: &str) -> bool {
    let none = ["<built-in", "enumerate(DataLoader)", "{", "ProfilerStep"];
    kind != RangeKind::Mark && !none.iter().any(|prefix| text.starts_with(prefix))
}

fn check(name: &str, run: &Run, device: &DeviceTimeline, (row, at): (usize, usize), gap: &Gap) {
    let profile = &run.profile;
    let place = format!("{name}: {} us, {:?}", gap.span.ns() / 1_000, gap.cause);
    assert!((0..=gap.span.ns()).contains(&gap.reliable_ns), "{place}");
    if device.is_at_end(gap) && gap.cause == GapCause::HostBusy {
        // The step that ends with the window is one of the thread.
        let step = profile
            .ranges
            .iter()
            .find(|range| range.span.end == device.span.end && range.span.start <= gap.span.start);
        if let Some(step) = step {
            names(&place, run, device, (row, at), gap.span, step.thread);
        }
    }
    let Some(launch) = gap.ended_by.and_then(|id| profile.calls.get(id.idx())) else {
        return;
    };
    let own: Vec<&ApiCall> = (profile.calls.iter())
        .filter(|call| call.thread == launch.thread)
        .filter(|call| call.span.start < gap.span.end && call.span.end > gap.span.start)
        .collect();
    // The call that holds the host for more than half of the gap is the cause.
    let until = Span {
        start: gap.span.start,
        end: launch.span.end.min(gap.span.end),
    };
    for class in [
        ApiClass::Sync,
        ApiClass::CopySync,
        ApiClass::Alloc,
        ApiClass::Free,
        ApiClass::Launch,
        ApiClass::GraphLaunch,
    ] {
        // Several launches in a row are the host's work, not one call.
        let is_launch = matches!(class, ApiClass::Launch | ApiClass::GraphLaunch);
        let ns = inside(&own, until, |call| {
            call.class == class && (!is_launch || call.span == launch.span)
        });
        // What came a millisecond and more before the launch is over: the rest is the host's own work.
        let ends = own
            .iter()
            .filter(|call| call.class == class && call.span.start < launch.span.end);
        let last = ends.map(|call| call.span.end).max().unwrap_or(i64::MAX);
        let is_over = launch.span.start.saturating_sub(last) >= LONG_NS;
        if 2 * ns > gap.span.ns() && !(is_over && gap.cause == GapCause::HostBusy) {
            assert!(explains(gap.cause, class), "{place}: {ns} ns of {class:?}");
        }
    }
    if matches!(gap.cause, GapCause::HostBusy | GapCause::HostLate) {
        let late = launch.span.start - gap.span.start;
        assert!(
            2 * late >= gap.span.ns() || late >= gap.span.ns() - 100_000,
            "{place}: {late}"
        );
    }
    if gap.cause == GapCause::HostBusy {
        let pause = Span {
            start: gap.span.start,
            end: launch.span.start.min(gap.span.end),
        };
        names(&place, run, device, (row, at), pause, launch.thread);
    }
}

/// A name is that of an operator, function or range around most of the gap that is not around everything; where
/// there is one, there is a name.
fn names(
    place: &str,
    run: &Run,
    device: &DeviceTimeline,
    key: (usize, usize),
    pause: Span,
    thread: ThreadId,
) {
    let profile = &run.profile;
    let steps: Vec<Span> = run.steps.iter().map(|step| step.span).collect();
    let beside = device.span.ns() - pause.ns();
    let named = |shortest: i64| {
        // Per name: time in the pause, and until when it is counted. Calls of one function count together.
        let mut around: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for range in profile.ranges.iter().filter(|r| r.thread == thread) {
            let text = profile.text(range.text);
            let part = range.span.clip(pause);
            let is_part = part.end > part.start && range.span.ns() > shortest;
            if !is_part || !is_named(range.kind, text) || steps.contains(&range.span) {
                continue;
            }
            let rest = range.span.clip(device.span).ns() - part.ns();
            if beside > 0 && rest * 10 >= beside * 9 {
                continue;
            }
            let (sum, until) = around.entry(text).or_insert((0, i64::MIN));
            *sum += (part.end - part.start.max(*until)).max(0);
            *until = part.end.max(*until);
        }
        around.retain(|_, (sum, _)| 2 * *sum > pause.ns());
        around
    };
    // Short ranges may be left out: those shorter than a 64th of the shortest gap that is looked at.
    let (all, long) = (named(0), named(pause.ns() / 64));
    let activity = run.activities.get(&key).cloned().unwrap_or_default();
    let name = activity.op.map(|id| profile.text(id));
    // An operator on the CPU is the one that the program called, not the innermost one.
    let on_cpu = activity.cpu_ops.most.first();
    let on_cpu = on_cpu.is_some_and(|(op, ns)| Some(*op) == activity.op && 2 * ns > pause.ns());
    let shortest = long.keys().map(|text| all[text].0).min();
    match name {
        Some(name) => {
            let own = all.get(name).map(|(sum, _)| *sum);
            assert!(own.is_some(), "{place}: {name} is not around it");
            let longest = shortest.map_or(i64::MAX, |ns| ns + pause.ns() / 100);
            assert!(own <= Some(longest) || on_cpu, "{place}: {name}, {all:?}");
        }
        None => assert!(long.is_empty(), "{place}: no name, {long:?}"),
    }
}

fn hold(name: &str, path: &Path) -> usize {
    let Ok(profile) = read::open(path, &read::NoProgress) else {
        return 0;
    };
    if profile.recorded.thinned {
        return 0;
    }
    let run = correlate(profile, &VOCABULARY);
    let mut checked = 0;
    for (row, device) in run.timeline.devices.iter().enumerate() {
        let idle: i64 = device.gaps.iter().map(|gap| gap.span.ns()).sum();
        assert_eq!(
            idle,
            device.idle_ns(),
            "{name}: the gaps make up the idle time"
        );
        let mut longest: Vec<usize> = (0..device.gaps.len())
            .filter(|at| device.gaps[*at].span.ns() >= LONG_NS)
            .collect();
        longest.sort_by_key(|at| std::cmp::Reverse(device.gaps[*at].span.ns()));
        for at in longest.into_iter().take(GAPS) {
            check(name, &run, device, (row, at), &device.gaps[at]);
            checked += 1;
        }
    }
    checked
}

#[test]
fn causes_of_the_longest_gaps_are_what_the_rows_show() {
    let mut paths = shared::profiles_or_fixtures();
    paths.extend(shared::pairs());
    let mut checked = 0;
    for path in &paths {
        if path.metadata().unwrap().len() > 100 << 20 {
            continue;
        }
        checked += hold(&path.display().to_string(), path);
    }
    println!("{checked} gaps of {} profiles", paths.len());
    assert!(checked >= 1 || paths.len() < 20, "no gap was checked");
}
