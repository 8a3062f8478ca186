//! Backward work that computes nothing but gradients which no optimizer takes: of a teacher, of layers that the
//! optimizer does not have, of a generator while its discriminator is trained.
//!
//! Autograd keeps the gradient of a parameter as it is if the last one was dropped, and adds to it otherwise. An
//! optimizer step uses gradients, and `zero_grad` drops those of its own parameters. So in the first pass after a
//! step, gradients are added only for parameters that no optimizer dropped: their last ones were not taken, or were
//! taken and are in the way. The nodes that autograd runs after the last gradient that is kept as it is lead to such
//! parameters only.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::enclosing_ops::{KEEPS_GRADIENT, operator_in};
use super::fact::{Answer, FactEntry, facts};
use super::framework_signs::OPTIMIZER_STEP;
use super::range_paths::by_string;
use super::site::Sites;
use super::table::Runs;
use crate::correlate::{EVALUATES, Run, SiteId};
use crate::profile::{ProcessId, SerialNumber, Span, ThreadId};

/// Gradients that no optimizer takes, and the work that leads to them only.
#[derive(Debug, Default)]
pub(super) struct NeedlessGradients {
    /// Kernel time of that work, in ns.
    by_site: FxHashMap<SiteId, i64>,
    /// Gradients at the end of backward passes that no optimizer takes.
    needless: u64,
    /// All gradients that these passes keep or add.
    of: u64,
}

/// A gradient of a parameter, as autograd keeps it.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// End of the node.
    end: i64,
    /// Whether it was added to one that was there.
    added: bool,
}

/// One backward pass on one thread.
#[derive(Debug, Default)]
struct Pass {
    kept: Vec<Kept>,
    /// End of its last node.
    end: i64,
    /// A node ran inside another one, which has an order of its own: a checkpoint that starts a pass inside this one.
    nested: bool,
}

/// How many gradients a pass keeps and adds, and how many it adds at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pattern {
    kept: usize,
    added: usize,
    last_added: usize,
}

impl Pass {
    fn pattern(&self) -> Pattern {
        let added = self.kept.iter().filter(|kept| kept.added).count();
        Pattern {
            kept: self.kept.len() - added,
            added,
            last_added: self.kept.iter().rev().take_while(|k| k.added).count(),
        }
    }

    /// From the last gradient that is kept as it is to the end.
    fn needless(&self) -> Option<Span> {
        let last = self.kept.iter().rev().find(|kept| !kept.added)?;
        (last.end < self.end).then_some(Span {
            start: last.end,
            end: self.end,
        })
    }
}

/// The backward passes of a process.
#[derive(Debug, Default)]
struct Passes {
    /// Between two optimizer steps, by the number of steps before.
    by_steps: BTreeMap<u64, Vec<(ThreadId, Pass)>>,
    /// Optimizer steps.
    steps: u64,
}

impl NeedlessGradients {
    pub(super) fn of(run: &Run) -> NeedlessGradients {
        let mut found = NeedlessGradients::default();
        let mut needless: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
        for passes in passes(run).values() {
            for (thread, pass) in passes.needless() {
                needless.entry(thread).or_default().extend(pass.needless());
                found.needless += pass.pattern().last_added as u64;
                found.of += pass.kept.len() as u64;
            }
        }
        if needless.is_empty() {
            return found;
        }
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let call = link.launch.and_then(|id| run.profile.call(id));
            if let (Some(site), Some(call)) = (link.site, call)
                && let Some(spans) = needless.get(&call.thread)
                && Span::one_contains(spans, call.span.start)
            {
                let ns = found.by_site.entry(site).or_default();
                *ns = ns.saturating_add(kernel.span.ns());
            }
        }
        found
    }

    /// A number that is known where there are such gradients.
    fn some(&self, number: impl Fn(&NeedlessGradients) -> u64) -> Answer {
        Answer::or_silent((self.needless > 0).then(|| number(self)))
    }
}

impl Passes {
    /// Those that end with gradients which no optimizer takes.
    fn needless(&self) -> Vec<(ThreadId, &Pass)> {
        // Where several passes run between two steps, one may add to the gradients of another, as micro-batches do.
        let single = self.by_steps.iter().map(|(steps, list)| match &list[..] {
            [(thread, pass)] if !pass.nested => Some((*steps, *thread, pass)),
            _ => None,
        });
        let Some(single) = single.collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        // The recording may lack the beginning of what is before its first step, and the end of what is after the last.
        let whole = single
            .iter()
            .filter(|(steps, ..)| 0 < *steps && *steps < self.steps);
        let whole: Vec<Pattern> = whole.map(|(.., pass)| pass.pattern()).collect();
        // If all gradients of a pass are kept as they are, those that the next one adds may be meant for another
        // optimizer. If all are added, zeros are there in place of dropped ones.
        if !whole
            .iter()
            .all(|pattern| pattern.kept > 0 && pattern.added > 0)
        {
            return Vec::new();
        }
        let alike = single.into_iter().map(|(_, thread, pass)| (thread, pass));
        alike
            .filter(|(_, pass)| pass.pattern().last_added > 0 && whole.contains(&pass.pattern()))
            .collect()
    }
}

/// All backward passes that keep gradients of parameters.
///
/// Within a pass, a thread of autograd runs its nodes by falling sequence numbers.
fn passes(run: &Run) -> BTreeMap<ProcessId, Passes> {
    let profile = &run.profile;
    let keeps = by_string(run, |text| operator_in(text) == Some(KEEPS_GRADIENT));
    let mut processes: BTreeMap<ProcessId, Passes> = BTreeMap::new();
    if !keeps.contains(&true) {
        return processes;
    }
    let nodes = by_string(run, |text| text.starts_with(EVALUATES));
    let adds = by_string(run, |text| operator_in(text) == Some("add"));
    let updates = by_string(run, |text| text.starts_with(OPTIMIZER_STEP));
    // Per thread: the number of the last node that has one.
    let mut numbers: FxHashMap<ThreadId, SerialNumber> = FxHashMap::default();
    for range in &profile.ranges {
        let is = |list: &[bool]| list.get(range.text.idx()) == Some(&true);
        let process = profile.process_of(range.thread);
        let Some(process) = process.filter(|_| {
            [&updates, &nodes, &keeps, &adds]
                .into_iter()
                .any(|list| is(list))
        }) else {
            continue;
        };
        let passes = processes.entry(process).or_default();
        if is(&updates) {
            passes.steps += 1;
            continue;
        }
        let list = passes.by_steps.entry(passes.steps).or_default();
        let current = list.iter().rposition(|(thread, _)| *thread == range.thread);
        let pass = current.and_then(|at| list.get_mut(at));
        let inside = pass
            .map(|(_, pass)| pass)
            .filter(|pass| range.span.start < pass.end);
        if is(&nodes) {
            if let Some(pass) = inside {
                pass.nested = true;
                continue;
            }
            // Nodes that keep gradients have no number.
            let last = numbers.get(&range.thread);
            let begins = range
                .seq
                .is_some_and(|number| last.is_some_and(|last| number >= *last));
            numbers.extend(range.seq.map(|number| (range.thread, number)));
            let goes_on = current.filter(|_| !begins);
            let end = range.span.end;
            match goes_on.and_then(|at| list.get_mut(at)) {
                Some((_, pass)) => pass.end = end,
                None => list.push((
                    range.thread,
                    Pass {
                        end,
                        ..Pass::default()
                    },
                )),
            }
        } else if is(&keeps)
            && let Some(pass) = inside
        {
            let end = range.span.end;
            pass.kept.push(Kept { end, added: false });
        } else if is(&adds)
            && let Some(kept) = inside.and_then(|pass| pass.kept.last_mut())
            && range.span.start < kept.end
        {
            kept.added = true;
        }
    }
    for passes in processes.values_mut() {
        for list in passes.by_steps.values_mut() {
            list.retain(|(_, pass)| !pass.kept.is_empty());
        }
        passes.by_steps.retain(|_, list| !list.is_empty());
    }
    processes
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Gradients of parameters that no optimizer takes, computed at the end of backward passes
    "run.needless_gradients": INT => |t| t.needless_gradients.some(|found| found.needless),
    /// All gradients of parameters that backward passes with `run.needless_gradients` compute
    "run.gradients": INT => |t| t.needless_gradients.some(|found| found.of),
};

pub(super) const SITE_ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Share of its kernel time in backward passes from the last gradient that an optimizer takes on: all of this
    /// work leads to `run.needless_gradients`. Silent where there are none
    "site.needless_gradient_share": DOUBLE => |s| {
        let ns = s.table.needless_gradients.by_site.get(&s.id);
        Answer::or_silent(ns.map(|ns| *ns as f64 / (s.site.time_ns as f64).max(1.0)))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// What a backward pass does, in this order.
    #[derive(Debug, Clone, Copy)]
    enum Part {
        /// A node with a kernel.
        Node,
        /// A gradient that is kept as it is.
        Kept,
        /// A gradient that is added to the last one.
        Added,
        /// A node that runs another pass.
        Nested,
    }
    use Part::{Added, Kept, Nested, Node};

    /// Several backward passes, with an optimizer step behind those marked so. Returns the kernels of work that is needless,
    /// the gradients that it computes, and all of these passes.
    fn needless(passes: &[(&[Part], bool)]) -> (i64, u64, u64) {
        let mut b = ProfileBuilder::new();
        let mut time = 0;
        let mut number = 1000;
        for (parts, updates) in passes {
            // A new forward pass counts on.
            number += 1000;
            for part in *parts {
                let (start, end) = (time, time + 900);
                time += 1000;
                match part {
                    Node | Nested => {
                        number -= 1;
                        b.range(
                            &format!("{EVALUATES}MmBackward0, seq = {number}"),
                            start,
                            end,
                        );
                        if matches!(part, Nested) {
                            b.range(&format!("{EVALUATES}MmBackward0, seq = 5"), start + 10, end);
                        }
                        b.range("aten::mm", start + 100, start + 200);
                        b.launch(start + 110);
                    }
                    Kept | Added => {
                        let node = "torch::autograd::AccumulateGrad";
                        b.range(&format!("{EVALUATES}{node}"), start, end);
                        b.range(node, start + 10, start + 800);
                        if matches!(part, Added) {
                            b.range("aten::add_", start + 100, start + 200);
                            b.launch(start + 110);
                        }
                    }
                }
            }
            if *updates {
                b.range("Optimizer.step#SGD.step", time, time + 900);
                time += 1000;
            }
        }
        let run = b.run();
        let found = NeedlessGradients::of(&run);
        let kernels: i64 = found.by_site.values().sum();
        let one = run
            .profile
            .kernels
            .first()
            .map_or(1, |kernel| kernel.span.ns());
        (kernels / one, found.needless, found.of)
    }

    const NONE: (i64, u64, u64) = (0, 0, 0);

    #[test]
    fn a_teacher_with_gradients() {
        // Loss, student, teacher.
        let pass: &[Part] = &[Node, Node, Kept, Node, Kept, Node, Added, Node, Added];
        assert_eq!(needless(&[(pass, true); 3]), (12, 6, 12));
        // The second pass is the only one that is known to follow a step.
        assert_eq!(needless(&[(pass, true); 2]), (8, 4, 8));
        assert_eq!(needless(&[(pass, true)]), NONE);
        // Of the last pass, the recording has no end.
        let cut: &[Part] = &[Node, Node, Kept];
        assert_eq!(
            needless(&[(pass, true), (pass, true), (cut, false)]),
            (8, 4, 8)
        );
    }

    #[test]
    fn a_discriminator_that_reaches_the_generator() {
        let discriminator: &[Part] = &[Node, Kept, Node, Added, Node, Added];
        let generator: &[Part] = &[Node, Added, Node, Kept, Node, Kept];
        let passes = [(discriminator, true), (generator, true)].repeat(2);
        // What follows the last gradient of the generator is nothing.
        assert_eq!(needless(&passes), (8, 4, 6));
    }

    #[test]
    fn what_may_be_meant() {
        let all: &[Part] = &[Node, Kept, Node, Kept];
        let mixed: &[Part] = &[Node, Kept, Node, Added];
        let adds: &[Part] = &[Node, Added, Node, Added];
        // Ordinary training; zeros in place of dropped gradients; frozen layers behind trained ones.
        assert_eq!(needless(&[(all, true); 3]), NONE);
        assert_eq!(needless(&[(adds, true); 3]), NONE);
        let frozen: &[Part] = &[Node, Added, Node, Kept];
        assert_eq!(needless(&[(frozen, true); 3]), NONE);
        // Micro-batches, also of two losses that share a part of the graph.
        let micro = [(all, false), (adds, true)].repeat(2);
        assert_eq!(needless(&micro), NONE);
        let losses = [(all, false), (mixed, true)].repeat(2);
        assert_eq!(needless(&losses), NONE);
        // Gradients of two losses for one optimizer, with a step of another one between.
        let two = [(all, true), (mixed, true)].repeat(2);
        assert_eq!(needless(&two), NONE);
        // A checkpoint that runs a pass of its own.
        let nested: &[Part] = &[Node, Kept, Nested, Added];
        assert_eq!(needless(&[(nested, true); 3]), NONE);
    }
}
