//! Recognizes steps by the calls of optimizers. A program may have several, may call one more often than
//! another, and may call them inside the backward pass.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::model::StepSource;
use super::range_meaning::{RangeClass, RangeInfos, RangeRole};
use super::step_work::{
    ALIKE_KERNELS, LaunchKind, Recognized, SAME_WORK, WorkLaunches, add_outermost, alike, counts,
};
use crate::base::statistics::median;
use crate::profile::{ProcessId, Profile, Span, StrId, ThreadId};

/// Most updates of one step.
const MOST_UPDATES: usize = 100;
/// Fewest updates of which the first one may differ: it allocates the state of the optimizer.
const FEWEST_UPDATES: usize = 3;

/// Calls of optimizers, without those inside one another: per thread, in time order.
pub(super) type OptimizerCalls = BTreeMap<ThreadId, Vec<(Span, StrId)>>;

/// A step ends with an update; with the last one of the optimizers, where several take turns. The first step
/// begins when the loader is asked for its batch; without a loader it counts only if its work is that of the
/// others. `None` where it is unclear which updates make up a step.
pub(super) fn recognize(
    profile: &Profile,
    texts: &RangeInfos,
    (calls, first_batch): (&OptimizerCalls, Option<i64>),
    process: ProcessId,
    work: &WorkLaunches,
) -> Option<Recognized> {
    let own = calls.iter();
    let own = own.filter(|(thread, _)| profile.process_of(**thread) == Some(process));
    let own: Vec<(ThreadId, &[(Span, StrId)])> = own.map(|(t, calls)| (*t, &calls[..])).collect();
    if own.is_empty() {
        return None;
    }
    let nodes = autograd_nodes(profile, texts, process);
    let updates = own.into_iter().map(|(thread, calls)| {
        let inside = nodes.get(&thread).map_or(&[][..], Vec::as_slice);
        let calls = calls.iter();
        let calls = calls.filter(|(call, _)| !Span::one_contains(inside, call.start));
        (updates(calls, &nodes, work), thread)
    });
    let (updates, _) = updates.max_by_key(|(list, thread)| (list.len(), Reverse(*thread)))?;
    let every = updates_per_step(&updates, work)?;
    let first_end = updates.len().checked_sub(1)? % every;
    let ends = updates.iter().skip(first_end).step_by(every);
    let ends = ends.map(|update| update.span.end);
    let spans = ends.clone().zip(ends.clone().skip(1));
    let mut spans: Vec<Span> = spans.map(|(start, end)| Span { start, end }).collect();
    let (first, end) = (updates.first()?.span.start, ends.clone().next()?);
    let batch = first_batch.filter(|start| *start < first && first_end + 1 == every);
    let typical = median(&mut spans.iter().map(|s| work.count(*s)).collect::<Vec<_>>());
    let complete = |span: &Span| {
        typical.is_some_and(|typical| alike(work.count(*span), typical, ALIKE_KERNELS))
    };
    let start = batch.or_else(|| {
        let start = work.first()?;
        complete(&Span { start, end }).then_some(start)
    });
    if let Some(start) = start.filter(|start| *start < end) {
        spans.insert(0, Span { start, end });
    }
    spans.retain(|span| work.count(*span) > 0);
    (!spans.is_empty()).then(|| Recognized {
        source: StepSource::Optimizer,
        text: text(profile, &updates),
        spans,
    })
}

fn text(profile: &Profile, updates: &[Update]) -> String {
    let last = updates.last().and_then(|update| update.texts.last());
    last.map_or("", |text| profile.text(*text)).to_owned()
}

/// The outermost nodes that autograd runs on each thread of a process, in time order.
fn autograd_nodes(
    profile: &Profile,
    texts: &RangeInfos,
    process: ProcessId,
) -> FxHashMap<ThreadId, Vec<Span>> {
    let mut nodes: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
    for range in &profile.ranges {
        let meaning = texts.of(range);
        if matches!(meaning.what, RangeClass::Autograd { .. })
            && texts.role(range, meaning) == RangeRole::Autograd
            && profile.process_of(range.thread) == Some(process)
        {
            add_outermost(nodes.entry(range.thread).or_default(), range.span);
        }
    }
    nodes
}

/// Calls of optimizers after one backward pass.
#[derive(Debug)]
struct Update {
    span: Span,
    /// Later than its span where the call computes the gradients as well.
    begins: i64,
    texts: Vec<StrId>,
    /// What was launched from its begin.
    kernels: FxHashMap<Option<LaunchKind>, usize>,
}

fn updates<'a>(
    calls: impl Iterator<Item = &'a (Span, StrId)>,
    nodes: &FxHashMap<ThreadId, Vec<Span>>,
    work: &WorkLaunches,
) -> Vec<Update> {
    // When the last of the nodes ended that ran in a span.
    let backward = |span: Span| {
        let last = nodes.values().filter_map(|nodes| {
            let before = nodes.partition_point(|node| node.start < span.end);
            let last = nodes.get(before.checked_sub(1)?)?;
            (last.start >= span.start).then_some(last.end.min(span.end))
        });
        last.max()
    };
    let mut updates: Vec<Update> = Vec::new();
    for (span, text) in calls {
        let again = updates.last_mut().filter(|last| {
            let between = Span {
                start: last.span.end,
                end: span.end,
            };
            !nodes.is_empty() && backward(between).is_none()
        });
        match again {
            Some(last) => {
                last.span.end = span.end;
                last.texts.push(*text);
            }
            None => updates.push(Update {
                span: *span,
                begins: backward(*span).unwrap_or(span.start),
                texts: vec![*text],
                kernels: FxHashMap::default(),
            }),
        }
    }
    for update in &mut updates {
        let launched = Span {
            start: update.begins,
            end: update.span.end,
        };
        update.kernels = counts(work.kinds_in(launched).iter().copied());
    }
    updates
}

/// How many updates make up a step; `None` where it is unclear.
///
/// An optimizer launches the same kernels each time, with the same grids, which depend on its parameters. Where
/// it does not, it is the only one if the work between its calls is always the same.
fn updates_per_step(updates: &[Update], work: &WorkLaunches) -> Option<usize> {
    let repeats = |every: usize| {
        let mut pairs = updates.iter().zip(updates.iter().skip(every)).enumerate();
        pairs.all(|(at, (update, later))| {
            let first = at < every && updates.len() >= FEWEST_UPDATES * every;
            update.texts == later.texts
                && covers(&update.kernels, &later.kernels)
                && (first || covers(&later.kernels, &update.kernels))
        })
    };
    if repeats(1) || equal_work_between(updates, work) {
        return Some(1);
    }
    (2..=MOST_UPDATES.min(updates.len() / 2)).find(|every| repeats(*every))
}

fn equal_work_between(updates: &[Update], work: &WorkLaunches) -> bool {
    let between = updates.iter().zip(updates.iter().skip(1));
    let between = between.map(|(update, next)| {
        let span = Span {
            start: update.span.end,
            end: next.begins,
        };
        let kinds = work.kinds_in(span).iter();
        counts(kinds.map(|kind| kind.map(|(_, name, _)| name)))
    });
    let between: Vec<FxHashMap<Option<StrId>, usize>> = between.collect();
    let Some(typical) = between.get(between.len() / 2) else {
        return false;
    };
    let mut others = between.iter();
    updates.len() >= FEWEST_UPDATES
        && !typical.is_empty()
        && others.all(|other| covers(other, typical) && covers(typical, other))
}

/// Whether all but a few of some launches are among others.
fn covers<T: Eq + Hash>(among: &FxHashMap<T, usize>, launches: &FxHashMap<T, usize>) -> bool {
    let missing = launches.iter().map(|(kind, count)| {
        let found = among.get(kind).copied().unwrap_or(0);
        count.saturating_sub(found)
    });
    let missing = missing.sum::<usize>() as f64;
    let all = launches.values().sum::<usize>();
    missing <= SAME_WORK * all as f64 && (all > 0 || among.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{ConfigId, LaunchConfig};

    const STEP_NS: i64 = 10_000;
    const ADAM: &str = "Optimizer.step#Adam.step";

    struct Program {
        profile: ProfileBuilder,
        backward: Option<ThreadId>,
        number: u64,
        now: i64,
    }

    impl Program {
        /// With the nodes of the backward pass, or without.
        fn new(nodes: bool) -> Program {
            let mut profile = ProfileBuilder::new();
            let backward = nodes.then(|| profile.thread(ProcessId(0)));
            (0..10).for_each(|_| profile.profile.configs.push(LaunchConfig::default()));
            Program {
                profile,
                backward,
                number: 0,
                now: 0,
            }
        }

        fn launch(&mut self, name: &str, config: u32) {
            let kernel = self.profile.launch(self.now);
            let name = self.profile.profile.strings.intern(name);
            let kernel = &mut self.profile.profile.kernels[kernel];
            (kernel.name, kernel.config) = (name, ConfigId(config));
            self.now += 200;
        }

        /// A forward and backward pass of so many kernels.
        fn pass(&mut self, name: &str, kernels: usize) {
            (0..kernels).for_each(|_| self.launch(name, 0));
            if let Some(thread) = self.backward {
                self.number += 1;
                let text = format!(
                    "autograd::engine::evaluate_function: MmBackward0, seq = {}",
                    self.number
                );
                let (start, end) = (self.now, self.now + 100);
                self.profile.range_on(thread, &text, start, end);
                self.now = end;
            }
        }

        /// A call that updates parameters with kernels of this launch configuration.
        fn update(&mut self, optimizer: &str, config: u32) {
            let start = self.now;
            (0..4).for_each(|_| self.launch("multi_tensor_apply", config));
            self.profile.range(optimizer, start, self.now);
            self.now += 10;
        }

        fn next_step(&mut self) {
            self.now = (self.now / STEP_NS + 1) * STEP_NS;
        }

        /// How many launches each step has.
        fn steps(self) -> Vec<usize> {
            let run = self.profile.run();
            let origin = run.step_origin.as_ref();
            if origin.is_none_or(|origin| origin.source != StepSource::Optimizer) {
                return Vec::new();
            }
            let launches = |span: Span| {
                let calls = run.profile.calls.iter();
                calls.filter(|call| span.contains(call.span.start)).count()
            };
            run.steps.iter().map(|step| launches(step.span)).collect()
        }
    }

    fn program(nodes: bool, steps: usize, step: impl Fn(&mut Program, usize)) -> Vec<usize> {
        let mut program = Program::new(nodes);
        for number in 0..steps {
            step(&mut program, number);
            program.next_step();
        }
        program.steps()
    }

    #[test]
    fn optimizers_called_after_one_backward_pass_end_one_step() {
        for nodes in [true, false] {
            let steps = program(nodes, 4, |program, _| {
                program.pass("gemm", 10);
                program.update(ADAM, 1);
                program.update(ADAM, 2);
            });
            assert_eq!(steps, [18; 4], "{nodes}");
        }
        // One for each of equal layers.
        let steps = program(true, 4, |program, _| {
            program.pass("gemm", 10);
            (0..3).for_each(|_| program.update(ADAM, 1));
        });
        assert_eq!(steps, [22; 4]);
    }

    #[test]
    fn generator_and_discriminator_make_one_step() {
        for generator in [ADAM, "Optimizer.step#SGD.step"] {
            let steps = program(true, 4, |program, _| {
                for _ in 0..2 {
                    program.pass("conv", 10);
                    program.update(ADAM, 1);
                }
                program.pass("deconv", 20);
                program.update(generator, 2);
            });
            assert_eq!(steps, [52; 4], "{generator}");
        }
    }

    #[test]
    fn first_update_may_allocate_the_state_of_the_optimizer() {
        let steps = program(true, 4, |program, step| {
            // The passes differ from step to step.
            program.pass("gemm", 10 + 2 * step);
            let start = program.now;
            (0..4 * usize::from(step == 0)).for_each(|_| program.launch("fill", 0));
            (0..4).for_each(|_| program.launch("multi_tensor_apply", 1));
            program.profile.range(ADAM, start, program.now);
        });
        assert_eq!(steps[steps.len() - 3..], [16, 18, 20]);
    }

    #[test]
    fn optimizer_that_does_more_in_some_calls_ends_a_step_each_time() {
        let steps = program(true, 6, |program, step| {
            program.pass("gemm", 20);
            let kernels = if step % 3 == 2 { 12 } else { 4 };
            let start = program.now;
            (0..kernels).for_each(|_| program.launch("precondition", 1));
            program.profile.range(ADAM, start, program.now);
        });
        assert_eq!(steps[steps.len() - 5..], [24, 32, 24, 24, 32]);
    }

    #[test]
    fn calls_that_compute_the_gradients_are_steps() {
        let steps = program(true, 4, |program, step| {
            let start = program.now;
            program.pass("gemm", 10 + 2 * step);
            (0..4).for_each(|_| program.launch("multi_tensor_apply", 1));
            program.profile.range(ADAM, start, program.now);
        });
        assert_eq!(steps[steps.len() - 3..], [16, 18, 20]);
    }

    #[test]
    fn calls_inside_the_backward_pass_are_no_steps() {
        let in_backward = |others: bool| {
            program(true, 4, |program, _| {
                program.pass("gemm", 10);
                let start = program.now;
                (1..4).for_each(|config| {
                    let start = program.now;
                    program.launch("multi_tensor_apply", config);
                    let thread = program.backward.unwrap();
                    program.profile.range_on(thread, ADAM, start, program.now);
                });
                let text = "autograd::engine::evaluate_function: AccumulateGrad, seq = 90";
                let thread = program.backward.unwrap();
                let end = program.now;
                program.profile.range_on(thread, text, start, end);
                if others {
                    program.update(ADAM, 5);
                }
            })
        };
        assert!(in_backward(false).is_empty());
        assert_eq!(in_backward(true), [17; 4]);
    }

    #[test]
    fn updates_without_order_are_no_steps() {
        let kernels = [(10, 1), (20, 2), (20, 2), (10, 1), (30, 3), (20, 2)];
        let steps = program(true, kernels.len(), |program, step| {
            let (kernels, optimizer) = kernels[step];
            program.pass("gemm", kernels);
            program.update(ADAM, optimizer);
        });
        assert!(steps.is_empty(), "{steps:?}");
    }
}
