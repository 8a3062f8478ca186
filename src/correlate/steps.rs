//! Numbered steps and declared warm-up. Nothing is guessed: a program that numbers no steps has
//! none.

use super::marker::{StepFamily, Texts, What};
use super::{Step, StepId};
use crate::profile::{ProcessId, Profile, RangeKind, Span, ThreadId};

/// The steps of a run, and which process was in which step when.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub steps: Vec<Step>,
    /// Host time of declared warm-up, in order of start.
    pub warmup: Vec<Span>,
    /// Per process: spans that do not overlap, in time order.
    by_process: Vec<Vec<(Span, StepId)>>,
}

#[derive(Debug, Clone, Copy)]
struct Numbered {
    thread: ThreadId,
    family: StepFamily,
    span: Span,
    number: u64,
}

impl Steps {
    pub(crate) fn read(profile: &Profile, texts: &Texts) -> Steps {
        let mut numbered: Vec<Vec<Numbered>> = vec![Vec::new(); profile.processes.len()];
        let mut warmup = Vec::new();
        for range in profile.ranges.iter().filter(|r| r.kind != RangeKind::Mark) {
            match texts.of(range).what {
                What::Step { family, number } => {
                    let process = profile.threads.get(range.thread.idx());
                    if let Some(list) = process.and_then(|t| numbered.get_mut(t.process.idx())) {
                        list.push(Numbered {
                            thread: range.thread,
                            family,
                            span: range.span,
                            number,
                        });
                    }
                }
                What::Warmup if range.span.end < i64::MAX => warmup.push(range.span),
                _ => {}
            }
        }
        warmup.sort_unstable();
        let mut steps = Steps {
            warmup,
            ..Steps::default()
        };
        for list in numbered {
            steps.add_process(one_series(list));
        }
        steps.in_time_order();
        steps
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
        self.warmup.iter().any(|w| w.contains(time))
    }

    /// Adds one process's steps. Ranks run the same step at about the same time: a step of another
    /// process with this number that overlaps in time is the same step.
    fn add_process(&mut self, series: Vec<Numbered>) {
        let mut spans = Vec::with_capacity(series.len());
        let known = self.steps.len();
        let mut from = 0;
        for step in series {
            let same = self
                .steps
                .iter()
                .enumerate()
                .take(known)
                .skip(from)
                .find(|(_, s)| {
                    s.number == step.number
                        && s.span.start < step.span.end
                        && step.span.start < s.span.end
                })
                .map(|(at, _)| at);
            let at = if let Some(at) = same {
                from = at + 1;
                if let Some(shared) = self.steps.get_mut(at) {
                    shared.span.start = shared.span.start.min(step.span.start);
                    shared.span.end = shared.span.end.max(step.span.end);
                }
                at
            } else {
                self.steps.push(Step {
                    number: step.number,
                    span: step.span,
                    warmup: self.is_warmup(step.span.start),
                });
                self.steps.len() - 1
            };
            spans.push((step.span, StepId::new(at)));
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

/// The steps of one process: one spelling on one thread, those inside others left out.
fn one_series(mut numbered: Vec<Numbered>) -> Vec<Numbered> {
    // A step that was cut off by the end of the capture has no length to speak of.
    numbered.retain(|n| n.span.end < i64::MAX && n.span.ns() > 0);
    let mut series: Vec<(StepFamily, ThreadId, i64)> = Vec::new();
    for n in &numbered {
        match series
            .iter_mut()
            .find(|s| (s.0, s.1) == (n.family, n.thread))
        {
            Some(s) => s.2 = s.2.saturating_add(n.span.ns()),
            None => series.push((n.family, n.thread, n.span.ns())),
        }
    }
    // The profiler's own numbering first; else what covers most time, which is the outermost.
    let best = series.iter().min_by_key(|(family, thread, ns)| {
        (
            *family != StepFamily::ProfilerStep,
            std::cmp::Reverse(*ns),
            *family,
            *thread,
        )
    });
    let Some(&(family, thread, _)) = best else {
        return Vec::new();
    };
    numbered.retain(|n| (n.family, n.thread) == (family, thread));
    numbered.sort_by_key(|n| (n.span.start, std::cmp::Reverse(n.span.end)));
    let mut end = i64::MIN;
    numbered.retain(|n| {
        let outside = n.span.start >= end;
        if outside {
            end = n.span.end;
        }
        outside
    });
    numbered
}
