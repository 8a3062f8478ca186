//! The end of the analyzed time in a capture without steps.

use super::gaps::{HOST_BUSY_NS, HostIndex};
use super::work::{OtherWork, TimelineInputs};
use crate::correlate::model::Window;
use crate::profile::{DeviceId, Profile, Span};

/// Without steps, the analyzed time of a device ends with its last kernel or graph and what is copied or set
/// right after it, or in the range of the user that launched it. Copies behind a pause, long in relation to the
/// work, come after it, as those before its first kernel come before it: a state that is saved, results that are
/// printed. Marks them as not counted; returns the number of copies.
pub(super) fn leave_out_what_follows(
    profile: &Profile,
    inputs: &TimelineInputs<'_>,
    host: &HostIndex<'_>,
    (ends, window): (Vec<Option<LastWork>>, &mut Window),
) -> u64 {
    let last = |device: DeviceId| ends.get(device.idx()).copied().flatten();
    let follows =
        |device: DeviceId, span: Span| last(device).is_some_and(|last| span.start > last.work.end);
    let copies = profile.copies.iter();
    let copies = copies.map(|c| (c.process, c.device, c.correlation, c.span));
    let sets = profile.sets.iter();
    let sets = sets.map(|s| (s.process, s.device, s.correlation, s.span));
    let copies = copies.zip(&mut window.copies).map(|row| (true, row));
    let sets = sets.zip(&mut window.sets).map(|row| (false, row));
    let mut later: Vec<(bool, (OtherWork, &mut bool))> = copies
        .chain(sets)
        .filter(|(_, ((_, device, _, span), counted))| **counted && follows(*device, *span))
        .collect();
    if later.is_empty() {
        return 0;
    }
    // The ranges in which the last work of any device was launched.
    let ranges = inputs.user_ranges.iter();
    let ranges = ranges.filter_map(|id| Some(profile.range(*id)?.span));
    let around = |span: &Span| {
        let mut launches = ends.iter().flatten();
        launches.any(|last| span.contains(last.launch))
    };
    let inside_until = ranges.filter(around).map(|span| span.end).max();
    later.sort_by_key(|(is_copy, ((_, device, _, span), _))| (*device, *span, *is_copy));
    let mut left_out = 0;
    let mut current: Option<(DeviceId, i64, bool)> = None;
    for (is_copy, ((process, device, correlation, span), counted)) in later {
        let (end, over) = match current {
            Some((of, end, over)) if of == device => (end, over),
            _ => (last(device).map_or(i64::MIN, |last| last.work.end), false),
        };
        let call = host.call(process, correlation);
        let launch = call.map_or(span.start, |call| call.span.start);
        let belongs = inside_until.is_some_and(|until| launch < until);
        let pause = HOST_BUSY_NS.max(last(device).map_or(0, |last| last.work.ns() / LONG_PAUSE));
        let at_once = !over && span.start.saturating_sub(end) < pause;
        current = Some((device, end.max(span.end), !belongs && !at_once));
        if belongs || at_once {
            continue;
        }
        *counted = false;
        left_out += u64::from(is_copy);
    }
    left_out
}

/// The kernels and graphs of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastWork {
    /// From the first to the last.
    work: Span,
    /// When the one was launched that ends last.
    launch: i64,
}

/// A pause of this part of the work before it is a long one.
const LONG_PAUSE: i64 = 20;

/// The analyzed work of each device that has no steps. `launched` is when each kernel was launched.
pub(super) fn last_work(
    profile: &Profile,
    launched: impl Iterator<Item = i64>,
    stepped: &[bool],
    (inside, graphs): (&[bool], &[bool]),
) -> Vec<Option<LastWork>> {
    let mut last: Vec<Option<LastWork>> = vec![None; profile.devices.len()];
    if !stepped.contains(&false) {
        return last;
    }
    let mut add = |device: DeviceId, span: Span, launch: i64| {
        let Some(last) = last.get_mut(device.idx()) else {
            return;
        };
        if stepped.get(device.idx()) != Some(&false) {
            return;
        }
        let known = last.get_or_insert(LastWork { work: span, launch });
        if known.work.end < span.end {
            known.launch = launch;
        }
        known.work = known.work.around(span);
    };
    let kernels = profile.kernels.iter().zip(launched).zip(inside);
    for ((kernel, launch), _) in kernels.filter(|(_, inside)| **inside) {
        add(kernel.device, kernel.span, launch);
    }
    let graphs = profile.graphs.iter().zip(graphs);
    for (graph, _) in graphs.filter(|(_, counted)| **counted) {
        add(graph.device, graph.span, graph.span.start);
    }
    last
}
