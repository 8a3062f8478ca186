//! What operators of PyTorch did on the CPU while a device was idle.

use crate::base::time_by::TimeBy;
use crate::base::words::words;
use crate::correlate::{Activity, CpuOps, Gap, GapCause, Run};
use crate::facts::fact::{Answer, FactEntry, facts};
use crate::facts::table::{GapScope, Gaps};
use crate::profile::StrId;

words! {
    /// What operators did on the CPU for more than half of an interval.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum CpuWork with fn name {
        /// They filled tensors, with random numbers or a pattern.
        Fills = "fills",
        /// They computed on tensors or moved them.
        Computes = "computes",
    }
}

/// The work of an interval, and whether a copy from host memory ended it.
pub(super) type OnCpu = (CpuWork, bool);

/// Operators that fill a tensor, without namespace.
const FILLS: &[&str] = &[
    "arange",
    "bernoulli_",
    "exponential_",
    "fill_",
    "full",
    "full_like",
    "linspace",
    "normal",
    "normal_",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "random_",
    "uniform_",
    "zero_",
    "zeros",
    "zeros_like",
];

/// The listed operators of a group.
const LISTED: usize = 4;

impl CpuWork {
    fn of(run: &Run, ops: &CpuOps) -> CpuWork {
        let fills = ops.most.iter().filter(|(op, _)| {
            let name = run.profile.text(*op).strip_prefix("aten::");
            name.is_some_and(|name| FILLS.contains(&name))
        });
        let ns: i64 = fills.map(|(_, ns)| ns).sum();
        if ns.saturating_mul(2) > ops.ns {
            CpuWork::Fills
        } else {
            CpuWork::Computes
        }
    }
}

/// What operators did on the CPU for more than half of a gap in which the host launched nothing.
pub(super) fn on_cpu(run: &Run, gap: &Gap, activity: &Activity) -> Option<OnCpu> {
    let ops = &activity.cpu_ops;
    let most = gap.cause == GapCause::HostBusy && ops.ns.saturating_mul(2) > gap.span.ns();
    most.then(|| (CpuWork::of(run, ops), activity.before_copy))
}

/// The operators of the gaps of a group.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuTimes {
    /// Time in them that recording cannot explain.
    ns: i64,
    ops: TimeBy<StrId>,
}

impl CpuTimes {
    pub(super) fn add(&mut self, gap: &Gap, ops: &CpuOps) {
        self.ns = self.ns.saturating_add(ops.ns.min(gap.reliable_ns));
        for (op, ns) in &ops.most {
            self.ops.add(*op, *ns);
        }
    }

    pub(super) fn append(&mut self, other: CpuTimes) {
        self.ns = self.ns.saturating_add(other.ns);
        self.ops.append(other.ops);
    }
}

/// A value of groups whose time operators spent on the CPU; unknown where operators are not recorded.
fn known(g: &GapScope<'_>, value: impl FnOnce(CpuWork) -> Answer) -> Answer {
    match g.group.blamed.on_cpu {
        Some((work, _)) => value(work),
        None if g.table.framework.recorded => Answer::DoesNotApply,
        None => Answer::Absent,
    }
}

pub(super) const ENTRIES: &[FactEntry<Gaps>] = facts! {
    /// For `host_busy`: what operators of PyTorch did on the CPU for more than half of each interval, with no
    /// call of the device inside: `fills` (tensors, with random numbers or a pattern) or `computes` (on
    /// tensors); silent where they did not. Operators of data loaders, of optimizers and of pinning are left out
    "gap.cpu_work": STR needs RANGES_OF_OPS => |g| known(g, |work| work.name().into()),
    /// The operators of `gap.cpu_work` as the profile spells them, at most four, longest first
    "gap.cpu_ops": STRINGS needs RANGES_OF_OPS => |g| {
        known(g, |_| {
            let listed = CpuOps::of(&g.group.sums.cpu.ops, LISTED);
            let names = listed.most.iter().map(|(op, _)| g.table.text(*op).into());
            names.collect::<std::sync::Arc<[std::sync::Arc<str>]>>().into()
        })
    },
    /// Part of `gap.time_ns` in the operators of `gap.cpu_work`
    "gap.cpu_ops_ns": DOUBLE needs RANGES_OF_OPS => |g| known(g, |_| (g.group.sums.cpu.ns as f64).into()),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{MemberKind, Value};
    use crate::profile::{CopyKind, DeviceId, MemoryCopy, MemoryKind, ProcessId, RangeKind};
    use crate::profile::{SerialNumber, Span, ThreadId};

    const MS: i64 = 1_000_000;

    /// The facts of the gaps before copies or launches, 10 ms apart, in which these operators run: with their starts and
    /// ends in ms.
    fn facts_of<const N: usize>(
        gaps: &[&[(&str, i64, i64)]],
        copies: bool,
        kind: MemberKind,
        facts: [&str; N],
    ) -> Vec<[Answer; N]> {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        for (gap, at) in gaps.iter().zip((0..).map(|n: i64| n * 10 * MS)) {
            for (op, start, end) in *gap {
                b.range(op, at + start * MS, at + end * MS).kind = RangeKind::CpuOp;
            }
            let end = at + 10 * MS - 200;
            if copies {
                let number = 900 + at as u64;
                b.call(ThreadId(0), "cudaMemcpyAsync", end - 10, number);
                b.profile.copies.push(MemoryCopy {
                    span: Span {
                        start: end,
                        end: end + 50,
                    },
                    device: DeviceId(0),
                    process: ProcessId(0),
                    stream: 7,
                    correlation: SerialNumber::new(number),
                    bytes: 1_000_000,
                    kind: CopyKind::HtoD,
                    src: MemoryKind::Pageable,
                    dst: MemoryKind::Device,
                    captured: None,
                });
            }
            b.launch(at + 10 * MS);
        }
        b.profile.recorded.api_calls = true;
        answers(b, kind, facts)
    }

    fn word(word: &str) -> Answer {
        word.into()
    }

    fn words(words: &[&str]) -> Answer {
        let words: std::sync::Arc<[std::sync::Arc<str>]> =
            words.iter().map(|word| (*word).into()).collect();
        words.into()
    }

    /// `gap.cpu_work` of gaps before copies that are longer than a millisecond.
    fn work(gaps: &[&[(&str, i64, i64)]]) -> Vec<Answer> {
        let facts = ["gap.cpu_work", "gap.longest_ns"];
        let all = facts_of(gaps, true, MemberKind::Gap, facts).into_iter();
        let is_long =
            |longest: &Answer| matches!(longest, Answer::Value(Value::Double(ns)) if *ns >= 1e6);
        let long = all.filter(|[_, longest]| is_long(longest));
        long.map(|[work, _]| work).collect()
    }

    #[test]
    fn work_on_the_cpu_fills_or_computes() {
        assert_eq!(work(&[&[("aten::rand", 1, 7)]]), [word("fills")]);
        assert_eq!(work(&[&[("aten::div", 1, 7)]]), [word("computes")]);
        // More than half of the time of the operators.
        let both = [("aten::zeros", 1, 5), ("aten::div", 5, 9)];
        assert_eq!(work(&[&both]), [word("computes")]);
        let both = [("aten::zeros", 1, 6), ("aten::div", 6, 9)];
        assert_eq!(work(&[&both]), [word("fills")]);
        // More than half of the gap.
        assert_eq!(work(&[&[("aten::div", 1, 5)]]), [Answer::DoesNotApply]);
        // No operators were recorded at all.
        assert_eq!(work(&[&[]]), [Answer::Absent]);
    }

    #[test]
    fn operators_on_the_cpu_are_listed_by_time() {
        let gaps: [&[_]; 2] = [
            &[("aten::div", 1, 4), ("aten::to", 4, 6), ("aten::sub", 6, 9)],
            &[("aten::to", 1, 6), ("aten::mul", 6, 7), ("aten::add", 7, 9)],
        ];
        let facts = ["gap.cpu_ops", "gap.cpu_ops_ns", "gap.before_copy", "gap.op"];
        for copies in [true, false] {
            let rows = facts_of(&gaps, copies, MemberKind::Gap, facts);
            let ops = words(&["aten::to", "aten::div", "aten::sub", "aten::add"]);
            let expected = [ops, Answer::from(16e6), copies.into(), Answer::Absent];
            assert!(rows.contains(&expected), "{rows:?}");
        }
        // One operator in most of the time.
        let both: &[_] = &[("aten::div", 1, 5), ("aten::to", 5, 8)];
        let one: &[_] = &[("aten::to", 1, 9)];
        let facts = ["gap.op", "gap.cpu_ops"];
        let rows = facts_of(&[both, one, one], true, MemberKind::Gap, facts);
        let expected = [word("aten::to"), words(&["aten::to", "aten::div"])];
        assert!(rows.contains(&expected), "{rows:?}");
    }

    #[test]
    fn copies_know_the_work_before_them() {
        let facts = ["copy.after_cpu_work"];
        let of = |gaps: &[&[_]]| facts_of(gaps, true, MemberKind::Copy, facts);
        let fills: &[_] = &[("aten::rand", 1, 9)];
        let computes: &[_] = &[("aten::div", 1, 9)];
        assert_eq!(of(&[fills, computes, fills]), [[word("fills")]]);
        assert_eq!(of(&[computes, fills, computes]), [[word("computes")]]);
        assert_eq!(of(&[computes, &[], &[]]), [[Answer::DoesNotApply]]);
        assert_eq!(of(&[computes, &[]]), [[word("computes")]]);
    }
}
