//! The steps of a run and declared warm-up. Numbered ranges are taken first; without them, steps are
//! recognized from other evidence, which the report names.

use rustc_hash::FxHashMap;

use super::model::{DeviceTimeline, Link, Run, Step, StepId, StepOrigin, StepSource};
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos};
use super::range_syntax::StepFamily;
use super::step_sources;
use super::step_work::{Launches, Recognized};
use crate::base::statistics::median;
use crate::profile::{CallId, GraphTrace, ProcessId, Profile, RangeKind, Span, ThreadId};

/// The steps of a run, and when each process was in which step.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub steps: Vec<Step>,
    /// What they were recognized by; `None` without steps.
    pub origin: Option<StepOrigin>,
    /// Host time of declared warm-up: in time order, without overlap.
    pub warmup: Vec<Span>,
    /// Per process: spans that do not overlap, in time order.
    pub by_process: Vec<Vec<(Span, StepId)>>,
}

#[derive(Debug, Clone, Copy)]
struct NumberedRange {
    thread: ThreadId,
    family: StepFamily,
    span: Span,
    number: u64,
}

impl NumberedRange {
    fn step(&self) -> (u64, Span) {
        (self.number, self.span)
    }
}

impl Steps {
    pub(crate) fn read(profile: &Profile, texts: &RangeInfos, launches: Launches<'_>) -> Steps {
        let mut numbered: Vec<Vec<NumberedRange>> = vec![Vec::new(); profile.processes.len()];
        let mut warmup = Vec::new();
        let speaks = |m: &RangeInfo| matches!(m.what, RangeClass::Step { .. } | RangeClass::Warmup);
        let ranges = texts.parts(profile, speaks);
        for (_, range, meaning) in ranges.filter(|(_, r, _)| r.kind != RangeKind::Mark) {
            match meaning.what {
                RangeClass::Step { family, number } => {
                    let process = profile.process_of(range.thread);
                    if let Some(list) = process.and_then(|p| numbered.get_mut(p.idx())) {
                        list.push(NumberedRange {
                            thread: range.thread,
                            family,
                            span: range.span,
                            number,
                        });
                    }
                }
                RangeClass::Warmup if range.span.end < i64::MAX => warmup.push(range.span),
                _ => {}
            }
        }
        let mut steps = Steps {
            warmup: Span::union(warmup),
            ..Steps::default()
        };
        let numbered: Vec<Vec<NumberedRange>> = numbered.into_iter().map(one_series).collect();
        let series = match numbered.iter().flatten().next() {
            Some(first) => {
                steps.origin = Some(StepOrigin {
                    source: StepSource::Numbered,
                    text: first.family.text().to_owned(),
                });
                numbered
                    .iter()
                    .map(|l| l.iter().map(NumberedRange::step).collect())
                    .collect()
            }
            None => {
                let found = step_sources::recognize(profile, texts, launches, &steps.warmup);
                steps.recognize(found)
            }
        };
        let mut shared = FxHashMap::default();
        for list in series {
            steps.add_process(list, &mut shared);
        }
        steps.in_time_order();
        steps
    }

    /// Numbers the steps of each process, and remembers what they were recognized by.
    fn recognize(&mut self, found: Vec<Option<Recognized>>) -> Vec<Vec<(u64, Span)>> {
        let first = found.iter().flatten().next();
        self.origin = first.map(|found| StepOrigin {
            source: found.source,
            text: found.text.clone(),
        });
        let numbered = |found: Recognized| (0..).zip(found.spans).collect();
        let series = found.into_iter();
        series
            .map(|f| f.map(numbered).unwrap_or_default())
            .collect()
    }

    /// The step in which each whole graph was launched.
    pub(crate) fn of_graphs(
        &self,
        profile: &Profile,
        calls: &[Option<CallId>],
    ) -> Vec<Option<StepId>> {
        let graphs = profile.graphs.iter().zip(calls);
        let step = |(graph, call): (&GraphTrace, &Option<CallId>)| {
            let call = profile.call(*call.as_ref()?)?;
            self.at(graph.process, call.span.start)
        };
        graphs.map(step).collect()
    }

    /// The step a process was in at a time.
    pub(crate) fn at(&self, process: ProcessId, time: i64) -> Option<StepId> {
        let spans = self.by_process.get(process.idx())?;
        let after = spans.partition_point(|(span, _)| span.start <= time);
        let (span, step) = spans.get(after.checked_sub(1)?)?;
        span.contains(time).then_some(*step)
    }

    /// Whether host time is in declared warm-up.
    pub(crate) fn is_warmup(&self, time: i64) -> bool {
        Span::one_contains(&self.warmup, time)
    }

    /// Adds one process's steps. Ranks run the same step at about the same time: the n-th step of a
    /// number is the same step as another process's n-th of that number if both overlap in time.
    fn add_process(&mut self, series: Vec<(u64, Span)>, shared: &mut FxHashMap<(u64, u32), usize>) {
        let mut spans = Vec::with_capacity(series.len());
        let mut seen: FxHashMap<u64, u32> = FxHashMap::default();
        for (number, span) in series {
            let count = seen.entry(number).or_default();
            *count += 1;
            let known = shared.get(&(number, *count)).copied();
            let same = known.and_then(|at| Some((at, self.steps.get_mut(at)?)));
            let at = match same {
                Some((at, same)) if same.span.start < span.end && span.start < same.span.end => {
                    same.span.start = same.span.start.min(span.start);
                    same.span.end = same.span.end.max(span.end);
                    at
                }
                _ => {
                    let warmup = self.is_warmup(span.start);
                    self.steps.push(Step {
                        number,
                        span,
                        gpu: None,
                        warmup,
                    });
                    shared.insert((number, *count), self.steps.len() - 1);
                    self.steps.len() - 1
                }
            };
            spans.push((span, StepId::new(at)));
        }
        self.by_process.push(spans);
    }

    fn in_time_order(&mut self) {
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|at| self.steps.get(*at).map(|s| (s.span.start, s.number)));
        let mut place = vec![StepId(0); order.len()];
        for (new, old) in order.iter().enumerate() {
            if let Some(slot) = place.get_mut(*old) {
                *slot = StepId::new(new);
            }
        }
        for (_, step) in self.by_process.iter_mut().flatten() {
            if let Some(new) = place.get(step.idx()) {
                *step = *new;
            }
        }
        self.steps = order
            .iter()
            .filter_map(|at| self.steps.get(*at).cloned())
            .collect();
    }
}

/// The mean time per step, over the analyzed steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Number of analyzed steps.
    pub steps: u64,
    /// How many steps the kernels of the window amount to: more than `steps` where some belong to steps that
    /// began before the capture. `None` if no kernel belongs to an analyzed step.
    pub work_steps: Option<f64>,
    /// Mean length, ns: the analyzed time of a device over the number of steps. The parts of a step, which
    /// are divided by the same number, add up to it.
    pub ns: f64,
    /// Mean length on the host, ns.
    pub host_ns: f64,
    /// Median length on the host, ns, where the host runs ahead and only queues the work of its steps, which take
    /// longer on the GPU. A host that waits for the GPU in most steps is not ahead.
    pub host_ahead_ns: Option<f64>,
}

impl StepTime {
    /// In a balanced run, the step times of host and GPU agree within this factor.
    const AHEAD: f64 = 1.1;

    /// `None` if no step was analyzed. `window_ns` is the mean length of the analyzed window of a device.
    fn of(steps: &[Step], work_steps: Option<f64>, window_ns: f64) -> Option<StepTime> {
        let analyzed: Vec<&Step> = steps.iter().filter(|s| !s.warmup).collect();
        let count = analyzed.len() as f64;
        let host_ns = analyzed.iter().map(|s| s.span.ns() as f64).sum::<f64>() / count;
        // Without kernels in them, as many steps as fit: there may be work of others.
        let number = work_steps.unwrap_or_else(|| count.max(window_ns / host_ns));
        let ns = match window_ns > 0.0 && number.is_finite() {
            true => window_ns / number,
            false => host_ns,
        };
        let mut lengths: Vec<i64> = analyzed.iter().map(|s| s.span.ns()).collect();
        let typical = median(&mut lengths)? as f64;
        Some(StepTime {
            steps: analyzed.len() as u64,
            work_steps,
            ns,
            host_ns,
            host_ahead_ns: gpu_ns(&analyzed)
                .filter(|gpu| *gpu > Self::AHEAD * typical.max(host_ns))
                .map(|_| typical),
        })
    }
}

/// A whole-graph record inside the analyzed window.
#[derive(Debug, Clone, Copy)]
pub struct AnalysedGraph<'a> {
    /// The record.
    pub record: &'a GraphTrace,
    /// The call that launched the graph.
    pub call: Option<CallId>,
    /// The step in which it was launched.
    pub step: Option<StepId>,
}

impl Run {
    /// The mean time per step; `None` if no step was analyzed.
    pub fn step_time(&self) -> Option<StepTime> {
        let devices = &self.timeline.devices;
        let analysed = devices.iter().map(|d| d.analysed_ns() as f64).sum::<f64>();
        let window_ns = analysed / devices.len().max(1) as f64;
        StepTime::of(&self.steps, self.work_steps(), window_ns)
    }

    /// The whole-graph records that are analyzed.
    pub fn analysed_graphs(&self) -> impl Iterator<Item = AnalysedGraph<'_>> {
        let graphs = self.profile.graphs.iter();
        let links = self.graph_calls.iter().zip(&self.graph_steps);
        let graphs = graphs.zip(links).filter(|(graph, _)| {
            let mut devices = self.timeline.devices.iter();
            let device = devices.find(|device| device.device == graph.device);
            device.is_some_and(|device| {
                let start = graph.span.start;
                device.span.contains(start) && !Span::one_contains(&device.excluded, start)
            })
        });
        graphs.map(|(record, (call, step))| AnalysedGraph {
            record,
            call: *call,
            step: *step,
        })
    }

    /// How many steps the kernels and graphs of the window amount to; `None` if none belongs to an analyzed step.
    fn work_steps(&self) -> Option<f64> {
        let steps = self.steps.iter().filter(|step| !step.warmup).count();
        if steps == 0 {
            return None;
        }
        let analysed = |id: StepId| self.steps.get(id.idx()).is_some_and(|step| !step.warmup);
        let (mut all, mut of_steps) = (0_i64, 0_i64);
        for (kernel, link) in self.profile.kernels.iter().zip(&self.links) {
            if link.site.is_some() {
                all = all.saturating_add(kernel.span.ns());
                if link.step.is_some_and(analysed) {
                    of_steps = of_steps.saturating_add(kernel.span.ns());
                }
            }
        }
        for graph in self.analysed_graphs() {
            let ns = graph.record.span.ns();
            all = all.saturating_add(ns);
            if graph.step.is_some_and(analysed) {
                of_steps = of_steps.saturating_add(ns);
            }
        }
        (of_steps > 0).then(|| steps as f64 * (all as f64 / of_steps as f64))
    }

    /// The analyzed window in one part per analyzed step, in order: each lasts from when host and GPU were done
    /// with the step before to when both are done with it. The host may be several steps ahead, and as long as the
    /// GPU has work, its time per step does not matter. `None` without steps.
    pub fn step_parts(&self) -> Option<Vec<Span>> {
        let window = self.window.span?;
        let analyzed = self.steps.iter().filter(|step| !step.warmup);
        let done = |step: &Step| step.gpu.map_or(step.span, |gpu| gpu.around(step.span)).end;
        let ends: Vec<i64> = analyzed.map(done).collect();
        parts(window, &ends)
    }

    /// Lengths of the parts of [`Run::step_parts`] in ns, without what is not analyzed: mean of the devices.
    /// They add up to the analyzed time of a device.
    pub fn step_lengths(&self) -> Option<Vec<f64>> {
        let parts = self.step_parts()?;
        let devices = &self.timeline.devices;
        let mean = |part: Span| {
            let ns = devices
                .iter()
                .map(|device| analysed_in(device, part) as f64);
            ns.sum::<f64>() / devices.len() as f64
        };
        (!devices.is_empty()).then(|| parts.into_iter().map(mean).collect())
    }

    /// Length of the window without what no device analyzed, in ns.
    pub fn analysed_ns(&self) -> i64 {
        let excluded = |d: &DeviceTimeline| d.span.ns() - d.analysed_ns();
        let nowhere = self.timeline.devices.iter().map(excluded).min();
        let whole = self.window.span.map_or(0, Span::ns);
        whole - nowhere.unwrap_or(0)
    }
}

/// A window in parts that end at these times, the last one at the end of the window.
fn parts(window: Span, ends: &[i64]) -> Option<Vec<Span>> {
    let (_, inner) = ends.split_last()?;
    let mut start = window.start;
    let mut parts: Vec<Span> = Vec::with_capacity(ends.len());
    for end in inner.iter().copied().chain([window.end]) {
        let end = end.clamp(start, window.end);
        parts.push(Span { start, end });
        start = end;
    }
    Some(parts)
}

/// The analyzed time of a device in a span, in ns.
fn analysed_in(device: &DeviceTimeline, span: Span) -> i64 {
    let span = span.clip(device.span);
    let excluded = span.overlapping(&device.excluded, |span| *span);
    excluded.fold(span.ns(), |left, other| {
        left.saturating_sub(other.clip(span).ns())
    })
}

/// Mean length of steps on the GPU, ns; `None` unless each worked there.
fn gpu_ns(steps: &[&Step]) -> Option<f64> {
    let spans: Vec<Span> = steps.iter().map(|s| s.gpu).collect::<Option<_>>()?;
    let first = spans.iter().map(|s| s.start).min()?;
    let last = spans.iter().map(|s| s.start).max()?;
    let end = spans.iter().map(|s| s.end).max()?;
    let count = spans.len() as f64;
    let whole = end.saturating_sub(first) as f64 / count;
    let distance = last.saturating_sub(first) as f64 / (count - 1.0);
    // From one start to the next the queue is drained as often as it is filled. But where the first step was
    // short and the last long, that leaves one of the long ones out.
    let steady = spans.len() > 1 && distance <= StepTime::AHEAD * whole;
    Some(if steady { distance } else { whole })
}

/// Adds to each step when the GPU worked on what was launched in it.
pub(super) fn on_the_gpu(
    mut steps: Vec<Step>,
    profile: &Profile,
    links: &[Link],
    graph_steps: &[Option<StepId>],
) -> Vec<Step> {
    let kernels = profile.kernels.iter().map(|kernel| kernel.span);
    let kernels = kernels.zip(links.iter().map(|link| link.step));
    let graphs = profile.graphs.iter().map(|graph| graph.span);
    for (work, step) in kernels.chain(graphs.zip(graph_steps.iter().copied())) {
        let Some(step) = step.and_then(|id| steps.get_mut(id.idx())) else {
            continue;
        };
        let span = step.gpu.get_or_insert(work);
        *span = span.around(work);
    }
    // A profiler that stops may leave the start of a step in which nothing was launched.
    let longest = steps.iter().map(|step| step.span.ns()).max().unwrap_or(0);
    for step in &mut steps {
        step.warmup |= step.gpu.is_none() && step.span.ns() < longest / SHORTEST_PART;
    }
    steps
}

/// A step without work, shorter than this part of the longest, is none.
const SHORTEST_PART: i64 = 10;

/// Begin and length of a range are rounded to microseconds, each by itself, so that ranges may seem to overlap.
const ROUNDING_NS: i64 = 1_000;

/// The steps of one process: one spelling on one thread, those inside others left out.
fn one_series(mut numbered: Vec<NumberedRange>) -> Vec<NumberedRange> {
    // The length of a step cut off by the end of the capture is unknown.
    numbered.retain(|n| n.span.end < i64::MAX && n.span.ns() > 0);
    let mut series: FxHashMap<(StepFamily, ThreadId), i64> = FxHashMap::default();
    for n in &numbered {
        let ns = series.entry((n.family, n.thread)).or_default();
        *ns = ns.saturating_add(n.span.ns());
    }
    // The profiler's own numbering first; else what covers most time, which is the outermost.
    let best = series.iter().min_by_key(|((family, thread), ns)| {
        (
            *family != StepFamily::ProfilerStep,
            std::cmp::Reverse(**ns),
            *family,
            *thread,
        )
    });
    let Some((&(family, thread), _)) = best else {
        return Vec::new();
    };
    numbered.retain(|n| (n.family, n.thread) == (family, thread));
    numbered.sort_by_key(|n| (n.span.start, std::cmp::Reverse(n.span.end)));
    let mut outside: Vec<NumberedRange> = Vec::with_capacity(numbered.len());
    for n in numbered {
        let Some(last) = outside.last_mut() else {
            outside.push(n);
            continue;
        };
        let overlap = last.span.end.saturating_sub(n.span.start);
        if overlap <= ROUNDING_NS && n.span.end > last.span.end {
            last.span.end = last.span.end.min(n.span.start);
            outside.push(n);
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{DeviceId, SerialNumber};

    /// Start and end.
    type Ends = (i64, i64);

    /// Steps of a host, each with its work on the GPU.
    fn time(steps: &[(Ends, Ends)], window_ns: f64) -> StepTime {
        let steps = steps.iter().zip(0..).map(|((host, gpu), number)| Step {
            number,
            span: Span {
                start: host.0,
                end: host.1,
            },
            gpu: Some(Span {
                start: gpu.0,
                end: gpu.1,
            }),
            warmup: false,
        });
        let steps: Vec<Step> = steps.collect();
        StepTime::of(&steps, Some(steps.len() as f64), window_ns).unwrap()
    }

    #[test]
    fn replays_of_one_graph_that_is_recorded_whole_are_steps() {
        // A graph and a kernel per token; the host never waits.
        let run = |exec: &dyn Fn(u32) -> Option<u32>| {
            let mut b = ProfileBuilder::new();
            for replay in 0..6 {
                let (at, correlation) = (i64::from(replay) * 1_000, 1_000 + u64::from(replay));
                b.call(ThreadId(0), "cudaGraphLaunch", at, correlation);
                b.profile.graphs.push(GraphTrace {
                    exec: exec(replay),
                    span: Span {
                        start: at + 50,
                        end: at + 750,
                    },
                    device: DeviceId(0),
                    process: ProcessId(0),
                    correlation: SerialNumber::new(correlation),
                });
                b.launch(at + 800);
            }
            b.run()
        };
        let replays = run(&|_| Some(1));
        let starts: Vec<i64> = replays.steps.iter().map(|s| s.span.start).collect();
        assert_eq!(starts, [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
        let gpu = |step: &Step| step.gpu.map(|gpu| (gpu.start, gpu.end));
        assert_eq!(replays.steps.first().and_then(gpu), Some((50, 910)));
        assert_eq!(
            replays.step_time().and_then(|time| time.work_steps),
            Some(6.0)
        );
        // Each may be a layer.
        assert!(run(&Some).steps.is_empty());
        assert!(run(&|_| None).steps.is_empty());
    }

    #[test]
    fn queued_steps_are_as_long_as_their_work_takes() {
        let queued = [
            ((0, 100), (10, 990)),
            ((100, 200), (1_010, 1_990)),
            ((200, 300), (2_010, 3_000)),
        ];
        let time = time(&queued, 3_000.0);
        assert_eq!((time.ns, time.host_ahead_ns), (1_000.0, Some(100.0)));
    }

    #[test]
    fn host_that_waits_in_most_steps_is_not_ahead() {
        // The last step ends before the call in which the host waits for it, or the queue is not full yet in the first.
        for short in [0, 2] {
            let mut steps = [
                ((0, 100), (0, 100)),
                ((100, 200), (100, 200)),
                ((200, 300), (200, 300)),
            ];
            let (host, _) = &mut steps[short];
            host.1 = host.0 + 10;
            assert_eq!(time(&steps, 300.0).host_ahead_ns, None);
        }
    }

    #[test]
    fn host_that_waits_for_its_batch_is_not_ahead() {
        // From first work to first work, 40 pass per step.
        let uneven = [
            ((0, 22), (6, 16)),
            ((24, 46), (41, 43)),
            ((46, 98), (90, 92)),
        ];
        let time = time(&uneven, 98.0);
        assert_eq!(time.host_ahead_ns, None);
        assert_eq!(time.host_ns, 32.0);
    }

    #[test]
    fn last_step_lasts_until_its_work_is_done() {
        assert_eq!(time(&[((0, 40), (38, 58))], 58.0).ns, 58.0);
        let two = [((0, 40), (38, 58)), ((40, 80), (78, 98))];
        assert_eq!(time(&two, 98.0).ns, 49.0);
    }

    #[test]
    fn parts_of_steps_make_up_the_window() {
        let window = Span { start: 0, end: 300 };
        // The second step has less left to do than the first, the third ends before the window.
        let ends: Vec<(i64, i64)> = (parts(window, &[150, 140, 290]).unwrap().iter())
            .map(|part| (part.start, part.end))
            .collect();
        assert_eq!(ends, [(0, 150), (150, 150), (150, 300)]);
        assert_eq!(parts(window, &[]), None);
    }
}
