//! Work that repeats in the analyzed window: steps, ranges of the user, graph launches, and kernels that
//! recur at equal distances. Two captures that have the same unit of work can be compared per unit, with
//! the noise between its repetitions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use indexmap::IndexMap;
use rustc_hash::FxHashMap;

use super::evidence::kernel_name;
use super::figures::{label, share};
use super::rows::{UnitKind, WorkUnit};
use super::timeline::DeviceGaps;
use crate::correlate::{Run, compare_kernels, recurs_regularly};
use crate::cost::{Costed, Family};
use crate::profile::{ApiClass, CallId, ConfigId, DeviceId, ProcessId, Span, StrId};

/// Most repetitions kept of a unit; the first are.
const MAX_REPETITIONS: usize = 512;
/// Most units kept of each kind: those that hold most kernel time.
const MAX_UNITS: usize = 12;
/// Fewest occurrences of a kernel that show a repetition.
const FEWEST: usize = 4;
/// Smallest share of the kernel time that a unit must hold.
const LEAST_HELD: f64 = 0.3;

impl WorkUnit {
    /// The same unit on all ranks of a job, repetition by repetition. Ranks that communicate wait for each other, so
    /// that a slow one lengthens the units of all: means of the ranks. Without communication the job takes as
    /// long as its slowest rank, whatever the others do: the unit of that rank.
    pub(crate) fn of_ranks(units: &[&WorkUnit]) -> Option<WorkUnit> {
        let first = units.first()?;
        let least = units.iter().map(|unit| unit.wall_ns.len()).min()?;
        let wait = |unit: &&WorkUnit| unit.comm_ns.iter().any(|ns| *ns > 0);
        let length = |unit: &WorkUnit| -> i64 {
            let walls = unit.wall_ns.iter().take(least);
            walls.fold(0, |sum: i64, ns| sum.saturating_add(*ns))
        };
        let slowest = units.iter().copied().max_by_key(|unit| length(unit))?;
        let slowest = [slowest];
        let counted = match units.iter().any(wait) {
            true => units,
            false => &slowest[..],
        };
        let nth = |list: fn(&WorkUnit) -> &Vec<i64>, n: usize| {
            counted
                .iter()
                .filter_map(move |unit| list(unit).get(n))
                .copied()
        };
        let lists = |list: fn(&WorkUnit) -> &Vec<i64>| -> Vec<i64> {
            let mean = |n| nth(list, n).map(|v| v as f64).sum::<f64>() / counted.len() as f64;
            (0..least).map(|n| mean(n).round() as i64).collect()
        };
        let wall_ns = lists(|u| &u.wall_ns);
        let kernels = first.kernels.iter().take(wall_ns.len()).copied();
        Some(WorkUnit {
            count: units.iter().map(|u| u.count).min()?,
            held_share: units.iter().map(|u| u.held_share).fold(1.0, f64::min),
            start_ns: Vec::new(),
            busy_ns: lists(|u| &u.busy_ns),
            kernel_ns: lists(|u| &u.kernel_ns),
            comm_ns: lists(|u| &u.comm_ns),
            kernels: kernels.collect(),
            wall_ns,
            ..(*first).clone()
        })
    }
}

/// The units of work of a run.
pub(super) fn of(costed: &Costed) -> Vec<WorkUnit> {
    let run = &costed.run;
    let tracks = Track::of(costed);
    let all_ns: i64 = tracks.iter().filter_map(|t| t.sums.last()).sum();
    if all_ns <= 0 {
        return Vec::new();
    }
    let origin = run.window.span.map_or(0, |window| window.start);
    let launched = Launched::of(run);
    let mut units: Vec<WorkUnit> = Vec::new();
    let mut keep = |mut found: Vec<WorkUnit>| {
        found.retain(|unit| unit.held_share >= LEAST_HELD);
        // The recurring kernels are in order of their own time.
        if found
            .first()
            .is_some_and(|unit| unit.kind != UnitKind::Kernel)
        {
            found.sort_by(|a, b| b.held_share.total_cmp(&a.held_share));
        }
        found.truncate(MAX_UNITS);
        units.append(&mut found);
    };
    let unit = |kind, name: String, spans: &[Vec<Span>]| {
        measure(&tracks, kind, name, spans, (all_ns, origin))
    };
    keep(
        unit(UnitKind::Step, String::new(), &steps(run, &tracks))
            .into_iter()
            .collect(),
    );
    let ranges = ranges(run, &launched, &tracks).into_iter();
    keep(
        ranges
            .filter_map(|(text, spans)| unit(UnitKind::Range, text, &spans))
            .collect(),
    );
    keep(
        unit(UnitKind::GraphLaunch, String::new(), &graphs(run, &tracks))
            .into_iter()
            .collect(),
    );
    let recurring = recurring(costed, &tracks).into_iter();
    keep(
        recurring
            .filter_map(|(name, spans)| unit(UnitKind::Kernel, name, &spans))
            .collect(),
    );
    units
}

/// The analyzed kernels and whole-graph records of one device by start, with running sums.
struct Track<'a> {
    device: DeviceId,
    gaps: DeviceGaps,
    excluded: &'a [Span],
    starts: Vec<i64>,
    /// Name and launch configuration of kernels.
    kinds: Vec<Option<(StrId, ConfigId)>>,
    /// Positions of the graphs in these lists.
    graphs: Vec<usize>,
    /// Kernel time up to and with the kernel of the same index ...
    sums: Vec<i64>,
    /// ... and the part of it that is communication.
    comm_sums: Vec<i64>,
}

impl Track<'_> {
    /// The track of each device, in the order of the timeline.
    fn of(costed: &Costed) -> Vec<Track<'_>> {
        let run = &costed.run;
        let mut places: FxHashMap<DeviceId, usize> = FxHashMap::default();
        let mut tracks: Vec<Track<'_>> = Vec::new();
        for device in &run.timeline.devices {
            places.insert(device.device, tracks.len());
            tracks.push(Track {
                device: device.device,
                gaps: DeviceGaps::new(device),
                excluded: &device.excluded,
                starts: Vec::new(),
                kinds: Vec::new(),
                graphs: Vec::new(),
                sums: Vec::new(),
                comm_sums: Vec::new(),
            });
        }
        let mut add =
            |device: DeviceId, span: Span, kind: Option<(StrId, ConfigId)>, sends: bool| {
                let Some(track) = places.get(&device).and_then(|at| tracks.get_mut(*at)) else {
                    return;
                };
                let ns = span.ns();
                let sent = if sends { ns } else { 0 };
                let last = |sums: &[i64]| sums.last().copied().unwrap_or(0);
                let (sum, comm) = (last(&track.sums), last(&track.comm_sums));
                track.starts.push(span.start);
                if kind.is_none() {
                    track.graphs.push(track.kinds.len());
                }
                track.kinds.push(kind);
                track.sums.push(sum.saturating_add(ns));
                track.comm_sums.push(comm.saturating_add(sent));
            };
        // Kernels and graphs of a profile are sorted by start.
        let mut graphs = run.analysed_graphs().map(|graph| graph.record).peekable();
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let Some(site) = link.site else {
                continue;
            };
            while let Some(graph) = graphs.next_if(|g| g.span.start < kernel.span.start) {
                add(graph.device, graph.span, None, false);
            }
            let cost = costed.cost_of(site);
            let sends = cost.is_some_and(|cost| cost.family == Family::Communication);
            let kind = Some((kernel.name, kernel.config));
            add(kernel.device, kernel.span, kind, sends);
        }
        graphs.for_each(|graph| add(graph.device, graph.span, None, false));
        tracks
    }

    /// The time of a span that is not analyzed.
    fn excluded(&self, span: Span) -> i64 {
        let inside = span.overlapping(self.excluded, |e| *e);
        inside.fold(0, |sum, e| sum.saturating_add(e.clip(span).ns()))
    }

    /// The kernels that start in a span: the first, and the one behind the last.
    fn kernels(&self, span: Span) -> (usize, usize) {
        let at = |time| self.starts.partition_point(|start| *start < time);
        (at(span.start), at(span.end))
    }

    /// `whole`: whether time that is not analyzed, because code was loaded in it, counts as well.
    fn row(&self, span: Span, whole: bool) -> Row {
        let present = span.clip(self.gaps.span);
        let idle = self
            .gaps
            .inside(present)
            .saturating_add(self.excluded(present));
        let (first, last) = self.kernels(span);
        let left_out = if whole { 0 } else { self.excluded(span) };
        let graphs = |until: usize| self.graphs.partition_point(|at| *at < until);
        Row {
            start: span.start,
            wall: span.ns().saturating_sub(left_out),
            busy: present.ns().saturating_sub(idle).max(0),
            kernel: sum_of(&self.sums, first, last),
            comm: sum_of(&self.comm_sums, first, last),
            kernels: last.saturating_sub(first) - (graphs(last) - graphs(first)),
        }
    }
}

/// The sum over the kernels from `first` up to `last`, without `last`, from running sums.
fn sum_of(sums: &[i64], first: usize, last: usize) -> i64 {
    let until = |at: usize| at.checked_sub(1).and_then(|i| sums.get(i)).copied();
    let (last, first) = (until(last).unwrap_or(0), until(first).unwrap_or(0));
    last.saturating_sub(first)
}

struct Row {
    start: i64,
    wall: i64,
    busy: i64,
    kernel: i64,
    comm: i64,
    kernels: usize,
}

/// A unit from its repetitions on each device; `None` where a device has none. With the kernel time of the
/// window and its start.
fn measure(
    tracks: &[Track<'_>],
    kind: UnitKind,
    name: String,
    spans: &[Vec<Span>],
    (all_ns, origin): (i64, i64),
) -> Option<WorkUnit> {
    let with_work = tracks
        .iter()
        .zip(spans)
        .filter(|(track, _)| !track.starts.is_empty());
    // To launch a graph takes as long as that of the first kernel of a program, each time.
    let whole = kind == UnitKind::GraphLaunch;
    let with_work: Vec<_> = with_work.collect();
    let lengths = with_work.iter().map(|(_, spans)| spans.len());
    let count = lengths.min().filter(|count| *count > 0)?;
    let all = with_work
        .iter()
        .flat_map(|(track, spans)| spans.iter().map(|span| (*track, *span)));
    let held = all.fold(0_i64, |sum, (track, span)| {
        let (first, last) = track.kernels(span);
        sum.saturating_add(sum_of(&track.sums, first, last))
    });
    let rows: Vec<Vec<Row>> = with_work
        .iter()
        .map(|(track, spans)| {
            let kept = spans.iter().take(MAX_REPETITIONS);
            kept.map(|span| track.row(*span, whole)).collect()
        })
        .collect();
    let devices = rows.len() as f64;
    let mean = |n: usize, part: fn(&Row) -> i64| {
        let nth = rows.iter().filter_map(|rows| rows.get(n));
        (nth.map(|row| part(row) as f64).sum::<f64>() / devices).round() as i64
    };
    let kept = 0..count.min(MAX_REPETITIONS);
    let means =
        |part: fn(&Row) -> i64| -> Vec<i64> { kept.clone().map(|n| mean(n, part)).collect() };
    let starts = rows.iter().take(1).flatten().take(kept.len());
    Some(WorkUnit {
        kind,
        name,
        count: count as u64,
        held_share: share(held as f64, all_ns as f64).min(1.0),
        start_ns: starts.map(|row| row.start.saturating_sub(origin)).collect(),
        wall_ns: means(|row| row.wall),
        busy_ns: means(|row| row.busy),
        kernel_ns: means(|row| row.kernel),
        comm_ns: means(|row| row.comm),
        kernels: means(|row| row.kernels as i64)
            .into_iter()
            .map(|kernels| kernels.try_into().unwrap_or(u32::MAX))
            .collect(),
    })
}

/// The analyzed steps on every device, which make up its window.
fn steps(run: &Run, tracks: &[Track<'_>]) -> Vec<Vec<Span>> {
    let parts = run.step_parts().unwrap_or_default();
    let on = |track: &Track<'_>| {
        let inside = parts.iter().map(|part| part.clip(track.gaps.span));
        let present = inside.map(|span| Span {
            end: span.end.max(span.start),
            ..span
        });
        present.collect()
    };
    tracks.iter().map(on).collect()
}

/// The intervals between consecutive times.
fn distances(times: impl Iterator<Item = i64>) -> Vec<Span> {
    let times: Vec<i64> = times.collect();
    let pairs = times.iter().zip(times.iter().skip(1));
    pairs
        .map(|(start, end)| Span {
            start: *start,
            end: *end,
        })
        .collect()
}

/// When each launch of an analyzed kernel or whole graph was made, with what it started, by process and device.
struct Launched {
    by_track: BTreeMap<(ProcessId, DeviceId), Vec<(i64, Span)>>,
}

impl Launched {
    fn of(run: &Run) -> Launched {
        let mut by_track: BTreeMap<_, Vec<(i64, Span)>> = BTreeMap::new();
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let call = link.launch.and_then(|id| run.profile.call(id));
            if let (Some(call), true) = (call, link.site.is_some()) {
                let track = (kernel.process, kernel.device);
                by_track
                    .entry(track)
                    .or_default()
                    .push((call.span.start, kernel.span));
            }
        }
        for graph in run.analysed_graphs() {
            let record = graph.record;
            if let Some(call) = graph.call.and_then(|id| run.profile.call(id)) {
                let launches = by_track.entry((record.process, record.device)).or_default();
                launches.push((call.span.start, record.span));
            }
        }
        for launches in by_track.values_mut() {
            launches.sort_by_key(|(at, _)| *at);
        }
        Launched { by_track }
    }

    /// From the first to the last work that was launched in a span of host time.
    fn on_the_gpu(&self, process: ProcessId, device: DeviceId, span: Span) -> Option<Span> {
        let launches = self.by_track.get(&(process, device))?;
        let at = |time| launches.partition_point(|(launched, _)| *launched < time);
        let inside = launches.get(at(span.start)..at(span.end))?;
        inside
            .iter()
            .map(|(_, kernel)| *kernel)
            .reduce(Span::around)
    }
}

/// Ranges by text, with their repetitions on each device. A repetition begins on the host, or when the
/// GPU is done with the one before, and ends when host and GPU are done.
fn ranges(run: &Run, launched: &Launched, tracks: &[Track<'_>]) -> Vec<(String, Vec<Vec<Span>>)> {
    let profile = &run.profile;
    let mut by_text: IndexMap<StrId, Vec<(ProcessId, Span)>, rustc_hash::FxBuildHasher> =
        IndexMap::default();
    for id in &run.user_ranges {
        let range = profile.range(*id);
        let thread = range.and_then(|r| profile.thread(r.thread));
        if let Some((range, thread)) = range.zip(thread) {
            by_text
                .entry(range.text)
                .or_default()
                .push((thread.process, range.span));
        }
    }
    // Each look at a range is linear in its kernels, so only the longest are looked at.
    let mut texts: Vec<_> = by_text.into_iter().collect();
    let length = |spans: &Vec<(ProcessId, Span)>| -> i64 {
        spans
            .iter()
            .fold(0, |sum, (_, span)| sum.saturating_add(span.ns()))
    };
    texts.sort_by_key(|(_, spans)| Reverse(length(spans)));
    texts.truncate(4 * MAX_UNITS);
    let units = texts.into_iter().map(|(text, spans)| {
        let on = |track: &Track<'_>| -> Vec<Span> {
            let found = spans.iter().filter_map(|(process, span)| {
                let gpu = launched.on_the_gpu(*process, track.device, *span)?;
                Some((*span, gpu))
            });
            one_after_the_other(found)
        };
        (label(profile.text(text)), tracks.iter().map(on).collect())
    });
    units.collect()
}

/// Spans of host and GPU without overlap: each begins when the one before is done.
fn one_after_the_other(spans: impl Iterator<Item = (Span, Span)>) -> Vec<Span> {
    let mut done = i64::MIN;
    let spans = spans.map(|(host, gpu)| {
        let start = host.start.max(done);
        done = done.max(host.around(gpu).end);
        Span { start, end: done }
    });
    spans.filter(|span| span.ns() > 0).collect()
}

/// Share of the time of whole-graph records that one graph must take to be the unit by itself.
const MOST_OF_GRAPHS: f64 = 0.5;

/// The executable graph that takes most of the time of whole-graph records.
fn main_graph(run: &Run) -> Option<u32> {
    let mut times: BTreeMap<Option<u32>, i64> = BTreeMap::new();
    for graph in run.analysed_graphs() {
        let time = times.entry(graph.record.exec).or_default();
        *time = time.saturating_add(graph.record.span.ns());
    }
    let all = times
        .values()
        .fold(0_i64, |sum, ns| sum.saturating_add(*ns));
    let (exec, most) = times.into_iter().max_by_key(|(_, ns)| *ns)?;
    exec.filter(|_| most as f64 >= MOST_OF_GRAPHS * all as f64)
}

/// Graph launches with the kernels that they replay, on each device. Of whole-graph records those of the graph
/// that takes most of their time, if there is one.
fn graphs(run: &Run, tracks: &[Track<'_>]) -> Vec<Vec<Span>> {
    let mut by_call: BTreeMap<(DeviceId, CallId), Span> = BTreeMap::new();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let call = link.launch.filter(|_| link.site.is_some());
        let graph = call.filter(|id| {
            let call = run.profile.call(*id);
            call.is_some_and(|call| call.class == ApiClass::GraphLaunch)
        });
        if let Some(id) = graph {
            let span = by_call.entry((kernel.device, id)).or_insert(kernel.span);
            *span = span.around(kernel.span);
        }
    }
    let main = main_graph(run);
    for graph in run.analysed_graphs() {
        let record = graph.record;
        let is_main = main.is_none() || record.exec == main;
        if let Some(id) = graph.call.filter(|_| is_main) {
            by_call.insert((record.device, id), record.span);
        }
    }
    let on = |track: &Track<'_>| {
        let own = by_call
            .iter()
            .filter(|((device, _), _)| *device == track.device);
        let found = own.filter_map(|((_, id), gpu)| Some((run.profile.call(*id)?.span, *gpu)));
        one_after_the_other(found)
    };
    tracks.iter().map(on).collect()
}

/// Whether a kernel that runs at these positions shows a repetition.
fn repeats(at: &[usize]) -> bool {
    at.len() >= FEWEST && recurs_regularly(at)
}

/// Kernels that recur at equal distances on every device, longest time first.
fn recurring(costed: &Costed, tracks: &[Track<'_>]) -> Vec<(String, Vec<Vec<Span>>)> {
    let run = &costed.run;
    let mut found: BTreeMap<(StrId, ConfigId), Vec<Vec<Span>>> = BTreeMap::new();
    let working = || tracks.iter().filter(|track| !track.starts.is_empty());
    for track in working() {
        let mut places: FxHashMap<(StrId, ConfigId), Vec<usize>> = FxHashMap::default();
        for (at, kind) in track.kinds.iter().enumerate() {
            if let Some(kind) = kind {
                places.entry(*kind).or_default().push(at);
            }
        }
        for (kind, at) in places {
            if repeats(&at) {
                let starts = at.iter().filter_map(|at| track.starts.get(*at)).copied();
                found.entry(kind).or_default().push(distances(starts));
            }
        }
    }
    let devices = working().count();
    found.retain(|_, spans| spans.len() == devices);
    let time = |kind: &(StrId, ConfigId)| {
        let own = run.sites.iter().flat_map(|site| &site.kernels);
        let own = own.filter(|k| (k.name, k.config) == *kind);
        own.fold(0_i64, |sum, k| sum.saturating_add(k.time_ns))
    };
    let mut found: Vec<_> = found.into_iter().collect();
    // Those that occur least belong to the largest repetition, and need the fewest looks.
    found.sort_by(|(a, a_spans), (b, b_spans)| {
        let most = |spans: &[Vec<Span>]| spans.iter().map(Vec::len).max();
        let kinds = || compare_kernels(&run.profile, *a, *b);
        most(a_spans).cmp(&most(b_spans)).then_with(kinds)
    });
    found.truncate(8 * MAX_UNITS);
    found.sort_by_cached_key(|(kind, _)| Reverse(time(kind)));
    found.truncate(MAX_UNITS);
    let spread = |spans: Vec<Vec<Span>>| {
        let mut spans = spans.into_iter();
        let of = |track: &Track<'_>| match track.starts.is_empty() {
            true => Vec::new(),
            false => spans.next().unwrap_or_default(),
        };
        tracks.iter().map(of).collect()
    };
    let units = found.into_iter().map(|((name, config), spans)| {
        let config = run
            .profile
            .configs
            .get(config.idx())
            .copied()
            .unwrap_or_default();
        let name = shown(costed, name);
        let name = match config.is_known() {
            true => format!("{name} <<<{}>>>", dims(config.grid)),
            false => name,
        };
        (name, spread(spans))
    });
    units.collect()
}

/// The name of a kernel as reports show it.
fn shown(costed: &Costed, name: StrId) -> String {
    let sites = costed.run.sites.iter().zip(&costed.kernels);
    let decoded = sites.flat_map(|(site, names)| site.kernels.iter().zip(names));
    let decoded = decoded
        .filter(|(kernel, _)| kernel.name == name)
        .map(|(_, d)| d.as_ref());
    kernel_name(costed.run.profile.text(name), decoded.into_iter().next())
}

/// `132x1x6`.
pub(super) fn dims(dims: [u32; 3]) -> String {
    let [x, y, z] = dims;
    format!("{x}x{y}x{z}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: i64, end: i64) -> Span {
        Span { start, end }
    }

    #[test]
    fn three_occurrences_show_no_repetition() {
        assert!(repeats(&[0, 10, 20, 30]));
        assert!(!repeats(&[0, 10, 20]));
    }

    #[test]
    fn work_queued_ahead_is_counted_from_the_end_of_the_work_before() {
        let queued = [(span(0, 10), span(5, 100)), (span(10, 20), span(100, 210))];
        assert_eq!(
            one_after_the_other(queued.into_iter()),
            [span(0, 100), span(100, 210)]
        );
        let waiting = [(span(0, 90), span(5, 80)), (span(120, 220), span(130, 200))];
        assert_eq!(
            one_after_the_other(waiting.into_iter()),
            [span(0, 90), span(120, 220)]
        );
    }

    #[test]
    fn units_of_ranks_that_communicate_are_their_means() {
        let unit = |wall: &[i64], comm: i64| WorkUnit {
            kind: UnitKind::Step,
            name: String::new(),
            count: wall.len() as u64,
            held_share: 1.0,
            start_ns: vec![0; wall.len()],
            wall_ns: wall.to_vec(),
            busy_ns: wall.to_vec(),
            kernel_ns: wall.to_vec(),
            comm_ns: vec![comm; wall.len()],
            kernels: vec![9; wall.len()],
        };
        let job = WorkUnit::of_ranks(&[&unit(&[10, 50, 30], 2), &unit(&[30, 40], 4)]).unwrap();
        assert_eq!((job.count, job.wall_ns), (2, vec![20, 45]));
        assert_eq!((job.busy_ns, job.kernels), (vec![20, 45], vec![9, 9]));
        assert_eq!(job.comm_ns, [3, 3]);
        // Nothing makes these wait for each other: the job takes as long as the second.
        let job = WorkUnit::of_ranks(&[&unit(&[10, 50, 30], 0), &unit(&[30, 40], 0)]).unwrap();
        assert_eq!((job.count, job.wall_ns), (2, vec![30, 40]));
        assert_eq!(WorkUnit::of_ranks(&[]), None);
    }
}
