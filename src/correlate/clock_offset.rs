//! Corrects the times of a GPU where they are impossible on the clock of the host: work cannot begin before the
//! call that starts it, and a wait cannot return before the copy that it waits for ends.

use rustc_hash::FxHashMap;

use crate::base::statistics::median;
use crate::base::units;
use crate::profile::{
    ApiClass, CallId, CopyKind, CorrelationMap, DeviceId, KernelId, MemoryCopy, ProcessId, Profile,
    RowMap, Span,
};

/// Work begins at least about this long after its call, in ns: 2 to 12 us in a hundred recordings.
const LATENCY_NS: i64 = 5_000;
/// What waits of recordings return before the end of a copy without another sign, in ns: up to 7 us. They return
/// about as long behind it.
const SLACK_NS: i64 = 10_000;
/// Rows that must show a difference, and their share of all: fewer are damaged.
const FEWEST: usize = 3;
const SHARE: usize = 1_000;
/// Most by which twice as many rows show less of a difference, in ns. That of two clocks is about the same at all
/// times, and a GPU is idle now and then.
const SPREAD_NS: i64 = 200_000;

/// A GPU as one process used it.
type Used = (ProcessId, DeviceId);

/// The GPUs whose clock is not that of the host, and by how many ns their times must be moved.
pub(super) fn find(
    profile: &Profile,
    launches: &[Option<CallId>],
    work_calls: &CorrelationMap<CallId>,
) -> Vec<(Used, i64)> {
    let mut begins = begins(profile, launches);
    let mut ends = waits(profile, work_calls);
    let mut found: Vec<(Used, i64)> = begins
        .iter_mut()
        .filter_map(|(used, begins)| {
            let ends = ends.remove(used).unwrap_or_default();
            Some((*used, difference(begins, ends)?))
        })
        .collect();
    found.sort_unstable();
    found
}

/// Moves the times of these GPUs, and notes it.
pub(super) fn correct(profile: &mut Profile, offsets: &[(Used, i64)]) {
    for (used, ns) in offsets {
        shift(profile, *used, *ns);
        let ordinal = profile.device(used.1).map_or(0, |d| d.ordinal);
        let (impossible, moved) = match *ns > 0 {
            true => ("kernels begin before the calls that launch them", "later"),
            false => ("waits for copies return before the copies end", "earlier"),
        };
        profile.note(
            "clock_offset",
            format!(
                "The clocks of the host and of GPU {ordinal} differ: as recorded, {impossible}; all times of this GPU are moved {} {moved}.",
                units::ns(ns.abs() as f64)
            ),
        );
    }
    sort_kernels(profile);
}

/// By how much the times of a GPU must be moved to be possible. `begins`: how long after its call each kernel begins;
/// `ends`: how long after each copy the wait for it returns.
fn difference(begins: &mut [i64], mut ends: Vec<i64>) -> Option<i64> {
    let rows = FEWEST.max(begins.len() / SHARE);
    if begins.len() < 2 * rows {
        return None;
    }
    let mut nth = |n: usize| *begins.select_nth_unstable(n - 1).1;
    let (first, more) = (nth(rows), nth(2 * rows));
    let usual = median(&mut ends);
    if first < 0 {
        let ns = LATENCY_NS.saturating_sub(first);
        // Waits must still return behind the copies.
        let possible = usual.is_none_or(|usual| usual >= ns.saturating_sub(SLACK_NS));
        return (possible && more.saturating_sub(first) <= SPREAD_NS).then_some(ns);
    }
    let least = ends
        .iter()
        .copied()
        .min()
        .filter(|_| ends.len() >= FEWEST)?;
    let alike = usual.is_some_and(|usual| usual < 0 && usual.saturating_sub(least) <= SPREAD_NS);
    let likely = LATENCY_NS.saturating_sub(first);
    let ns = least.min(likely.max(least.saturating_sub(SLACK_NS)));
    // Kernels must still begin behind their calls.
    (least <= -SLACK_NS && alike && first.saturating_add(ns) >= 0).then_some(ns)
}

/// Per GPU, how long after its call each kernel begins, in ns.
fn begins(profile: &Profile, launches: &[Option<CallId>]) -> FxHashMap<Used, Vec<i64>> {
    let mut begins: FxHashMap<Used, Vec<i64>> = FxHashMap::default();
    for (kernel, launch) in profile.kernels.iter().zip(launches) {
        let call = launch.and_then(|id| profile.call(id));
        if let Some(call) = call {
            let after = kernel.span.start.saturating_sub(call.span.start);
            let own = begins.entry((kernel.process, kernel.device)).or_default();
            own.push(after);
        }
    }
    begins
}

/// Per GPU, how long after each copy the call returns that waits for it, in ns: the call itself, or a
/// synchronization that follows it on its thread.
fn waits(profile: &Profile, work_calls: &CorrelationMap<CallId>) -> FxHashMap<Used, Vec<i64>> {
    let mut ends: FxHashMap<Used, Vec<i64>> = FxHashMap::default();
    if profile.copies.is_empty() {
        return ends;
    }
    let mut of_call: RowMap<&MemoryCopy> = RowMap::for_rows(profile.calls.len());
    for copy in &profile.copies {
        if let Some(call) = work_calls.get(copy.process, copy.correlation) {
            of_call.insert(call.idx(), copy);
        }
    }
    let mut last: Vec<Option<&MemoryCopy>> = vec![None; profile.threads.len()];
    for (row, call) in profile.calls.iter().enumerate() {
        let Some(last) = last.get_mut(call.thread.idx()) else {
            continue;
        };
        let copy = || of_call.get(row).copied();
        let waited_for = match call.class {
            ApiClass::CopyAsync => {
                *last = copy().or(*last);
                continue;
            }
            ApiClass::CopySync => copy().filter(|copy| copy.kind == CopyKind::DtoH),
            ApiClass::Sync => last.take(),
            ApiClass::Launch | ApiClass::GraphLaunch => {
                *last = None;
                continue;
            }
            _ => continue,
        };
        if let Some(copy) = waited_for {
            let own = ends.entry((copy.process, copy.device)).or_default();
            own.push(call.span.end.saturating_sub(copy.span.end));
        }
    }
    ends
}

/// Moves all times of a GPU.
fn shift(profile: &mut Profile, used: Used, ns: i64) {
    let moved = |(process, device): Used, span: &mut Span| {
        if (process, device) == used {
            span.start = span.start.saturating_add(ns);
            span.end = span.end.saturating_add(ns);
        }
    };
    for kernel in &mut profile.kernels {
        moved((kernel.process, kernel.device), &mut kernel.span);
    }
    for copy in &mut profile.copies {
        moved((copy.process, copy.device), &mut copy.span);
    }
    for set in &mut profile.sets {
        moved((set.process, set.device), &mut set.span);
    }
    for graph in &mut profile.graphs {
        moved((graph.process, graph.device), &mut graph.span);
    }
}

/// Puts kernels in the order of their starts again.
fn sort_kernels(profile: &mut Profile) {
    let start = |at: &usize| profile.kernels.get(*at).map(|kernel| kernel.span.start);
    let mut order: Vec<usize> = (0..profile.kernels.len()).collect();
    if order.is_sorted_by_key(start) {
        return;
    }
    order.sort_by_key(start);
    let mut place = vec![KernelId(0); order.len()];
    for (new, old) in order.iter().enumerate() {
        if let Some(slot) = place.get_mut(*old) {
            *slot = KernelId::new(new);
        }
    }
    profile.kernels.sort_by_key(|kernel| kernel.span.start);
    let moved = |kernel: KernelId| place.get(kernel.idx()).copied().unwrap_or(kernel);
    for message in &mut profile.messages {
        message.kernel = moved(message.kernel);
    }
    profile.messages.sort_by_key(|message| message.kernel);
    for (kernel, _) in &mut profile.graph_regions {
        *kernel = moved(*kernel);
    }
    profile.graph_regions.sort_by_key(|(kernel, _)| *kernel);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{difference, sort_kernels};
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{KernelId, ProcessId, Span};

    const US: i64 = 1_000;

    #[test]
    fn work_before_its_call_moves_the_gpu_and_work_behind_a_wait_moves_it_back() {
        // As recorded with one clock: begins 4 to 13 us after the call, waits that return 3 to 12 us after the copy.
        let with = |ns: i64, waits: bool| {
            let mut begins: Vec<i64> = (4..14).map(|us| us * US + ns).collect();
            let ends = (3..13).map(|us| us * US - ns).filter(|_| waits);
            difference(&mut begins, ends.collect())
        };
        assert_eq!(with(0, true), None);
        assert_eq!(with(-5 * US, true), None);
        // The third of the begins is at -1 us, and becomes 5 us.
        assert_eq!(with(-7 * US, true), Some(6 * US));
        assert_eq!(with(-100 * US, true), Some(99 * US));
        assert_eq!(with(-100 * US, false), Some(99 * US));
        assert_eq!(with(12 * US, true), None);
        assert_eq!(with(13 * US, true), Some(-14 * US));
        assert_eq!(with(100 * US, true), Some(-101 * US));
        assert_eq!(with(100 * US, false), None, "a queue may be long");
    }

    #[test]
    fn rows_that_contradict_each_other_move_nothing() {
        let of = |begins: &[i64], ends: &[i64]| {
            difference(
                &mut begins.to_vec(),
                ends.iter().map(|us| us * US).collect(),
            )
        };
        let begins = |first: i64, more: i64| [[first * US; 3], [more * US; 3]].concat();
        assert_eq!(of(&begins(-100, 100), &[]), Some(105 * US));
        assert_eq!(of(&begins(-100, 101), &[]), None, "few begin early");
        assert_eq!(of(&begins(-100, -100)[..5], &[]), None, "too few rows");
        // Moved by 105 us, the waits would return more than 10 us before the copies end.
        assert_eq!(of(&begins(-100, -100), &[95]), Some(105 * US));
        assert_eq!(of(&begins(-100, -100), &[94]), None);
        // Where kernels begin long after their calls, no more than the waits tell and 10 us.
        assert_eq!(of(&begins(900, 900), &[-97; 3]), Some(-107 * US));
        assert_eq!(of(&begins(97, 97), &[-97; 3]), Some(-97 * US));
        assert_eq!(
            of(&begins(96, 97), &[-97; 3]),
            None,
            "kernels would begin early"
        );
        assert_eq!(of(&begins(97, 97), &[-97; 2]), None, "too few waits");
        assert_eq!(of(&begins(97, 97), &[-97, 1, 1]), None, "another stream");
    }

    #[test]
    fn clocks_that_differ_are_corrected_and_named() {
        let run = |ns: i64| {
            let mut b = ProfileBuilder::new();
            for at in 0..10 {
                let kernel = b.launch(at * 100 * US);
                let span = &mut b.profile.kernels[kernel].span;
                let start = span.start + 5 * US + ns;
                *span = Span {
                    start,
                    end: start + 50 * US,
                };
            }
            b.run()
        };
        let (usual, early) = (run(0), run(-40 * US));
        assert!(usual.profile.notes.is_empty());
        assert_eq!(
            early.profile.notes[0].text,
            "The clocks of the host and of GPU 0 differ: as recorded, kernels begin before the calls that launch \
             them; all times of this GPU are moved 39.9 us later."
        );
        let causes = |run: &crate::correlate::Run| -> Vec<_> {
            let gaps = run.timeline.devices[0].gaps.iter();
            gaps.map(|gap| gap.cause).collect()
        };
        assert_eq!(causes(&usual), causes(&early));
    }

    #[test]
    fn kernels_that_begin_before_their_calls_do_not_show_launches_that_wait() {
        let blocks = |early: i64| {
            let mut b = ProfileBuilder::new();
            for at in 0..60 {
                let kernel = b.launch(at * 100 * US);
                let launch = b.profile.calls.last_mut().unwrap();
                launch.span.end = launch.span.start + 45 * US;
                // Each at another distance, so that no single correction fits.
                let start = launch.span.start + 5 * US - early * (at + 1);
                let end = start + 30 * US;
                b.profile.kernels[kernel].span = Span { start, end };
            }
            let run = b.run();
            let launches = run.links.iter().map(|link| link.launch);
            crate::correlate::launches_block(&run.profile, launches)
        };
        assert!(blocks(0));
        assert!(!blocks(1_000 * US));
    }

    #[test]
    fn messages_stay_with_their_kernels() {
        let mut b = ProfileBuilder::new();
        for start in [30, 10, 20] {
            b.kernel(ProcessId(0), start, 0);
        }
        let region = |b: &mut ProfileBuilder, kernel: u32| {
            let name = b.profile.strings.intern("r");
            let region = crate::profile::GraphRegion {
                name,
                backward: kernel == 0,
            };
            b.profile.graph_regions.push((KernelId(kernel), region));
        };
        region(&mut b, 0);
        region(&mut b, 1);
        sort_kernels(&mut b.profile);
        let starts = b.profile.kernels.iter().map(|kernel| kernel.span.start);
        assert_eq!(starts.collect::<Vec<_>>(), [10, 20, 30]);
        let regions = b.profile.graph_regions.iter();
        let regions: Vec<_> = regions.map(|(id, r)| (id.idx(), r.backward)).collect();
        assert_eq!(regions, [(0, false), (2, true)]);
    }
}
