//! The steps of a run and declared warm-up. Numbered ranges are taken first; without them, steps are
//! recognized from other evidence, which the report names.

use rustc_hash::FxHashMap;

use super::model::{DeviceTimeline, Link, Run, Step, StepId, StepOrigin, StepSource};
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos};
use super::range_syntax::StepFamily;
use super::step_sources::{self, Recognized};
use crate::profile::{CallId, ProcessId, Profile, RangeKind, Span, ThreadId};

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
    pub(crate) fn read(
        profile: &Profile,
        texts: &RangeInfos,
        launches: &[Option<CallId>],
    ) -> Steps {
        let mut numbered: Vec<Vec<NumberedRange>> = vec![Vec::new(); profile.processes.len()];
        let mut warmup = Vec::new();
        let speaks = |m: &RangeInfo| matches!(m.what, RangeClass::Step { .. } | RangeClass::Warmup);
        let ranges = texts.ranges(profile, speaks);
        for (_, range, meaning) in ranges.filter(|(_, r, _)| r.kind != RangeKind::Mark) {
            match meaning.what {
                RangeClass::Step { family, number } => {
                    let process = profile.threads.get(range.thread.idx());
                    if let Some(list) = process.and_then(|t| numbered.get_mut(t.process.idx())) {
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

/// The mean time per step, over the analysed steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Number of analysed steps.
    pub steps: u64,
    /// Mean length on the host, ns; of a single step up to the end of its GPU work.
    pub host_ns: f64,
    /// Mean length on the GPU, ns, where it is longer than on the host: the host runs ahead and only
    /// queues the work of its steps.
    pub gpu_ns: Option<f64>,
}

impl StepTime {
    /// In a balanced run, the step times of host and GPU agree within this factor.
    const AHEAD: f64 = 1.1;

    /// The step time, ns.
    pub fn ns(&self) -> f64 {
        self.gpu_ns.unwrap_or(self.host_ns)
    }

    /// `None` if no step was analysed. `window_ns` is the length of the analysed window.
    fn of(steps: &[Step], window_ns: f64) -> Option<StepTime> {
        let judged: Vec<&Step> = steps.iter().filter(|s| !s.warmup).collect();
        let count = judged.len() as f64;
        let host_ns = judged.iter().map(|s| s.span.ns() as f64).sum::<f64>() / count;
        let gpu_ns = gpu_ns(&judged).filter(|gpu| *gpu > Self::AHEAD * host_ns);
        let single = judged.len() == 1 && gpu_ns.is_none();
        (!judged.is_empty()).then_some(StepTime {
            steps: judged.len() as u64,
            host_ns: if single { window_ns } else { host_ns },
            gpu_ns,
        })
    }
}

impl Run {
    /// The mean time per step; `None` if no step was analysed.
    pub fn step_time(&self) -> Option<StepTime> {
        StepTime::of(&self.steps, self.analysed_ns() as f64)
    }

    /// Length of the window without what no device analysed, in ns.
    pub fn analysed_ns(&self) -> i64 {
        let excluded = |d: &DeviceTimeline| d.span.ns() - d.analysed_ns();
        let nowhere = self.timeline.devices.iter().map(excluded).min();
        let whole = self.window.span.map_or(0, Span::ns);
        whole - nowhere.unwrap_or(0)
    }
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
pub(super) fn on_the_gpu(mut steps: Vec<Step>, profile: &Profile, links: &[Link]) -> Vec<Step> {
    for (kernel, link) in profile.kernels.iter().zip(links) {
        let Some(step) = link.step.and_then(|id| steps.get_mut(id.idx())) else {
            continue;
        };
        let span = step.gpu.get_or_insert(kernel.span);
        *span = span.around(kernel.span);
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
        StepTime::of(&steps.collect::<Vec<_>>(), window_ns).unwrap()
    }

    #[test]
    fn the_gpu_tells_the_length_of_queued_steps() {
        let queued = [
            ((0, 100), (10, 990)),
            ((100, 200), (1_010, 1_990)),
            ((200, 300), (2_010, 2_990)),
        ];
        let time = time(&queued, 2_990.0);
        assert_eq!(time.host_ns, 100.0);
        assert_eq!(time.gpu_ns, Some(1_000.0));
    }

    #[test]
    fn uneven_steps_of_a_fed_gpu_are_as_long_as_on_the_host() {
        // The last step waits for its batch: from first work to first work, 40 pass per step.
        let uneven = [
            ((0, 22), (6, 16)),
            ((24, 46), (41, 43)),
            ((46, 98), (90, 92)),
        ];
        let time = time(&uneven, 98.0);
        assert_eq!((time.ns(), time.gpu_ns), (32.0, None));
    }

    #[test]
    fn a_single_step_lasts_until_its_work_is_done() {
        assert_eq!(time(&[((0, 40), (38, 58))], 58.0).ns(), 58.0);
        // The host runs far ahead: the work of the step is all of it.
        assert_eq!(time(&[((0, 40), (38, 158))], 158.0).ns(), 120.0);
    }
}
