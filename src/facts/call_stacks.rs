//! The Python functions around calls that wait for the GPU, and what made the value that they read.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::enclosing_ops::{is_operator, operator_in};
use super::fact::{Answer, FactEntry, facts};
use super::table::Gaps;
use crate::base::time_by::TimeBy;
use crate::correlate::{PythonFrame, Run, readable_name};
use crate::profile::{CallId, RangeKind, RowMap, Span, StrId, ThreadId};

/// Libraries that test tensors on their own, by the folder of their files.
const LIBRARIES: [(&str, &str); 2] = [
    ("torch/distributions/", "torch.distributions"),
    ("transformers/", "transformers"),
];

/// Operators that test for values that are not finite, and those that make one truth value of the result.
const CHECKS: [&str; 3] = ["isnan", "isinf", "isfinite"];
const COMBINES: [&str; 9] = [
    "any",
    "all",
    "sum",
    "logical_not",
    "logical_or",
    "logical_and",
    "bitwise_not",
    "bitwise_or",
    "or",
];

/// The operator whose result torch.distributions reads when it checks arguments.
const ALL_TRUE: &str = "is_all_true";

/// Operators before a call that are looked at.
const BEFORE: usize = 4;

/// Python functions around a call that are looked at, from the inside.
const DEPTH: usize = 256;

/// What is known of calls, by their rows, as far as it was recorded.
#[derive(Debug)]
pub(super) struct CallStacks(RowMap<CallStack>);

/// What is known of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallStack {
    /// The innermost function of the program around it.
    pub(super) function: Option<StrId>,
    /// Whether any Python function is around it, and which of [`LIBRARIES`] are, as bits.
    known: bool,
    libraries: u8,
    /// The test for values that are not finite whose result it reads.
    check: Option<&'static str>,
    /// Whether it reads the result of [`ALL_TRUE`].
    pub(super) all_true: bool,
}

/// A Python function.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Frame {
    OfProgram,
    OfLibrary(u8),
    Other,
}

impl Frame {
    fn of(text: &str) -> Frame {
        let Some(frame) = PythonFrame::parse(text) else {
            return Frame::Other;
        };
        let path = format!("/{}", frame.path.replace('\\', "/"));
        let library = LIBRARIES.iter().position(|(folder, _)| {
            path.rfind(folder)
                .is_some_and(|at| path[..at].ends_with('/'))
        });
        match library {
            Some(at) => Frame::OfLibrary(1 << at),
            None if frame.is_internal() => Frame::Other,
            None => Frame::OfProgram,
        }
    }
}

/// What is open on a thread, and its last operators that the program called.
#[derive(Debug, Clone, Default)]
struct Thread {
    functions: Vec<(i64, StrId)>,
    operator_until: i64,
    operators: VecDeque<StrId>,
}

impl CallStacks {
    /// Of these calls, which are in time order.
    pub(super) fn of(
        run: &Run,
        calls: impl Iterator<Item = (CallId, ThreadId, Span)>,
    ) -> CallStacks {
        let profile = &run.profile;
        let mut found = RowMap::for_rows(profile.calls.len());
        let mut frames: FxHashMap<StrId, Frame> = FxHashMap::default();
        let mut frame = |text: StrId| {
            *frames
                .entry(text)
                .or_insert_with(|| Frame::of(profile.text(text)))
        };
        let mut tests: FxHashMap<StrId, Test> = FxHashMap::default();
        let mut test = |text: &StrId| {
            *tests
                .entry(*text)
                .or_insert_with(|| Test::of(profile.text(*text)))
        };
        let mut threads = vec![Thread::default(); profile.threads.len()];
        let mut ranges = profile.ranges.iter().peekable();
        for (id, thread, span) in calls {
            while let Some(range) = ranges.next_if(|r| r.span.start <= span.start) {
                let Some(thread) = threads.get_mut(range.thread.idx()) else {
                    continue;
                };
                match range.kind {
                    RangeKind::Python => {
                        let open = &mut thread.functions;
                        while open.pop_if(|(end, _)| *end <= range.span.start).is_some() {}
                        open.push((range.span.end, range.text));
                    }
                    _ if is_operator(range) && range.span.start >= thread.operator_until => {
                        thread.operator_until = range.span.end;
                        thread.operators.push_front(range.text);
                        thread.operators.truncate(BEFORE + 1);
                    }
                    _ => {}
                }
            }
            let Some(thread) = threads.get(thread.idx()) else {
                continue;
            };
            let around = thread.functions.iter().rev().take(DEPTH);
            let around = around.filter(|(end, _)| *end > span.start);
            let mut stack = CallStack::default();
            for (_, text) in around {
                stack.known = true;
                match frame(*text) {
                    Frame::OfProgram if stack.function.is_none() => stack.function = Some(*text),
                    Frame::OfLibrary(bit) => stack.libraries |= bit,
                    _ => {}
                }
            }
            // The first may be the one that waits.
            let within = usize::from(thread.operator_until > span.start);
            let before = thread.operators.iter().skip(within).take(BEFORE);
            let mut before = before.map(&mut test).peekable();
            stack.all_true = before.peek() == Some(&Test::AllTrue);
            stack.check = check(before);
            if stack.known || stack.check.is_some() || stack.all_true {
                found.insert(id.idx(), stack);
            }
        }
        CallStacks(found)
    }

    pub(super) fn at(&self, call: CallId) -> CallStack {
        self.0.get(call.idx()).copied().unwrap_or_default()
    }
}

/// The part of an operator in a test of values.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Test {
    Check(&'static str),
    Combines,
    AllTrue,
    Other,
}

impl Test {
    fn of(text: &str) -> Test {
        let name = operator_in(text).unwrap_or_default();
        match CHECKS.iter().find(|check| **check == name) {
            Some(check) => Test::Check(check),
            None if COMBINES.contains(&name) => Test::Combines,
            None if name == ALL_TRUE => Test::AllTrue,
            None => Test::Other,
        }
    }
}

/// The test whose result is read, of the operators before that, the last one first.
fn check(mut operators: impl Iterator<Item = Test>) -> Option<&'static str> {
    match operators.find(|test| *test != Test::Combines)? {
        Test::Check(check) => Some(check),
        _ => None,
    }
}

/// The stacks of the calls behind a group of gaps, by idle time in ns.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupStacks {
    functions: TimeBy<Option<StrId>>,
    checks: TimeBy<Option<&'static str>>,
    known: bool,
    libraries: u8,
}

impl GroupStacks {
    pub(super) fn add(&mut self, stack: CallStack, ns: i64) {
        self.functions.add(stack.function, ns);
        self.checks.add(stack.check, ns);
        self.known |= stack.known;
        self.libraries |= stack.libraries;
    }

    pub(super) fn append(&mut self, other: GroupStacks) {
        self.functions.append(other.functions);
        self.checks.append(other.checks);
        self.known |= other.known;
        self.libraries |= other.libraries;
    }
}

pub(super) const ENTRIES: &[FactEntry<Gaps>] = facts! {
    /// For `after_sync` and `blocking_copy`: the innermost Python function of the program around the waits behind
    /// most of the time, as `name (folder/file.py:line)`; silent without Python stacks
    "gap.waiting_function": STR => |g| {
        let function = g.group.sums.stacks.functions.most().flatten();
        let function = function.map(|id| readable_name(g.table.text(id)));
        Answer::or_silent(function.as_deref())
    },
    /// For `after_sync` and `blocking_copy`: libraries with Python functions around some of the waits, of
    /// `torch.distributions` and `transformers`; silent without Python stacks
    "gap.waiting_libraries": STRINGS => |g| {
        let stacks = &g.group.sums.stacks;
        let seen = (LIBRARIES.iter().enumerate()).filter(|(at, _)| stacks.libraries & (1 << at) != 0);
        let seen: Arc<[Arc<str>]> = seen.map(|(_, (_, name))| Arc::from(*name)).collect();
        Answer::or_silent(Some(seen).filter(|_| stacks.known))
    },
    /// For `after_sync` and `blocking_copy`: the test for values that are not finite whose result the waits behind
    /// most of the time read: `isnan`, `isinf` or `isfinite`; silent where they read something else
    "gap.checks": STR => |g| Answer::or_silent(g.group.sums.stacks.checks.most().flatten()),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// The stack of a wait at 100 inside these ranges, given by kind, name, start and end.
    fn stack(ranges: &[(RangeKind, &str, i64, i64)]) -> (CallStack, Option<String>) {
        let mut b = ProfileBuilder::new();
        for (kind, name, start, end) in ranges {
            b.range(name, *start, *end).kind = *kind;
        }
        b.launch(1);
        let run = b.run();
        let wait = (
            CallId(0),
            ThreadId(0),
            Span {
                start: 100,
                end: 110,
            },
        );
        let stack = CallStacks::of(&run, std::iter::once(wait)).at(CallId(0));
        let function = stack
            .function
            .map(|id| readable_name(run.profile.text(id)).into_owned());
        (stack, function)
    }

    const OP: RangeKind = RangeKind::CpuOp;
    const PYTHON: RangeKind = RangeKind::Python;

    #[test]
    fn the_innermost_function_of_the_program_waits() {
        let (found, function) = stack(&[
            (PYTHON, "train.py(1): <module>", 0, 200),
            (PYTHON, "train.py(9): step", 10, 190),
            (PYTHON, "train.py(30): other", 20, 60),
            (PYTHON, "torch/_tensor.py(5): __bool__", 90, 120),
        ]);
        assert_eq!(function.as_deref(), Some("step (train.py:9)"));
        assert!(found.known && found.libraries == 0);
        let (found, function) = stack(&[]);
        assert!(!found.known && function.is_none());
    }

    #[test]
    fn functions_of_libraries_are_known_by_their_folder() {
        for (file, libraries) in [
            ("torch/distributions/categorical.py(60): __init__", 1),
            ("/opt/site-packages/transformers/trainer.py(5): step", 2),
            ("switch_transformers/model.py(143): forward", 0),
        ] {
            let (found, _) = stack(&[(PYTHON, file, 10, 190)]);
            assert_eq!(found.libraries, libraries, "{file}");
        }
    }

    #[test]
    fn a_test_right_before_the_wait_made_what_it_reads() {
        let check = |names: &[&str]| {
            let before = (0..).zip(names);
            let before = before.map(|(at, name)| (OP, *name, 10 * at, 10 * at + 8));
            let read = [
                (OP, "aten::is_nonzero", 95, 120),
                (OP, "aten::item", 96, 119),
            ];
            let ranges: Vec<_> = before.chain(read).collect();
            stack(&ranges).0.check
        };
        assert_eq!(check(&["aten::isnan", "aten::any"]), Some("isnan"));
        assert_eq!(check(&["aten::isfinite", "aten::all"]), Some("isfinite"));
        let clipped = ["aten::isnan", "aten::isinf", "aten::logical_or"];
        assert_eq!(check(&clipped), Some("isinf"));
        assert_eq!(check(&["aten::isnan", "aten::mul"]), None);
        assert_eq!(check(&["aten::gt", "aten::any"]), None);
        let all_true = |names: &[&str]| {
            let before = (0..).zip(names);
            let before = before.map(|(at, name)| (OP, *name, 10 * at, 10 * at + 8));
            let ranges: Vec<_> = before.chain([(OP, "aten::is_nonzero", 95, 120)]).collect();
            stack(&ranges).0.all_true
        };
        assert!(all_true(&["aten::gt", "aten::_is_all_true"]));
        assert!(!all_true(&["aten::_is_all_true", "aten::gt"]));
        assert_eq!(check(&[]), None);
    }
}
