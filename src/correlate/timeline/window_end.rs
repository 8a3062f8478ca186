//! The end of the analyzed time in a capture without steps.

use super::gaps::{HOST_BUSY_NS, HostActivity};
use super::work::TimelineInputs;
use crate::correlate::model::Window;
use crate::profile::{DeviceId, Profile, Span};

/// Without steps, the analyzed time of a device ends with its last kernel or graph and what is copied or set
/// right after it, or in the range of the user that launched it. Copies behind a pause, long in relation to the
/// work, come after it, as those before its first kernel come before it: a state that is saved, results that are
/// printed. Marks them as not counted; returns the number of copies.
pub(super) fn leave_out_what_follows(
    profile: &Profile,
    inputs: &TimelineInputs<'_>,
    host: &HostActivity<'_>,
    (ends, window): (Vec<Option<LastWork>>, &mut Window),
) -> u64 {
    let mut later: Vec<(DeviceId, Span, bool, usize)> = Vec::new();
    let last = |device: DeviceId| ends.get(device.idx()).copied().flatten();
    let mut add = |device: DeviceId, span: Span, is_copy: bool, row: usize| {
        if last(device).is_some_and(|last| span.start > last.work.end) {
            later.push((device, span, is_copy, row));
        }
    };
    for (row, (copy, _)) in counted_rows(&profile.copies, &window.copies) {
        add(copy.device, copy.span, true, row);
    }
    for (row, (set, _)) in counted_rows(&profile.sets, &window.sets) {
        add(set.device, set.span, false, row);
    }
    if later.is_empty() {
        return 0;
    }
    // The ranges in which the last work of any device was launched.
    let ranges = inputs.user_ranges.iter();
    let ranges = ranges.filter_map(|id| Some(profile.ranges.get(id.idx())?.span));
    let around = |span: &Span| {
        let mut launches = ends.iter().flatten();
        launches.any(|last| span.contains(last.launch))
    };
    let inside_until = ranges.filter(around).map(|span| span.end).max();
    later.sort_by_key(|(device, span, is_copy, row)| {
        (*device, span.start, span.end, *is_copy, *row)
    });
    let mut left_out = 0;
    let mut current: Option<(DeviceId, i64, bool)> = None;
    for (device, span, is_copy, row) in later {
        let (end, over) = match current {
            Some((of, end, over)) if of == device => (end, over),
            _ => (last(device).map_or(i64::MIN, |last| last.work.end), false),
        };
        let (process, correlation) = match is_copy {
            true => profile.copies.get(row).map(|c| (c.process, c.correlation)),
            false => profile.sets.get(row).map(|s| (s.process, s.correlation)),
        }
        .unzip();
        let call = process.and_then(|process| host.call(process, correlation.flatten()));
        let launch = call.map_or(span.start, |call| call.span.start);
        let belongs = inside_until.is_some_and(|until| launch < until);
        let pause = HOST_BUSY_NS.max(last(device).map_or(0, |last| last.work.ns() / LONG_PAUSE));
        let at_once = !over && span.start.saturating_sub(end) < pause;
        current = Some((device, end.max(span.end), !belongs && !at_once));
        if belongs || at_once {
            continue;
        }
        let counted = match is_copy {
            true => window.copies.get_mut(row),
            false => window.sets.get_mut(row),
        };
        if let Some(counted) = counted {
            *counted = false;
        }
        left_out += u64::from(is_copy);
    }
    left_out
}

/// The rows that are counted, with their place.
fn counted_rows<'a, T>(
    rows: &'a [T],
    counted: &'a [bool],
) -> impl Iterator<Item = (usize, (&'a T, &'a bool))> {
    let rows = rows.iter().zip(counted).enumerate();
    rows.filter(|(_, (_, counted))| **counted)
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
    for (_, (graph, _)) in counted_rows(&profile.graphs, graphs) {
        add(graph.device, graph.span, graph.span.start);
    }
    last
}
