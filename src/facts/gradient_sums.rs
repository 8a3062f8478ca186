//! Additions of new gradients to older ones, in place of gradients that could be dropped.

use rustc_hash::FxHashMap;

use super::enclosing_ops::{EnclosingOps, KEEPS_GRADIENT, operator_in, plain_name};
use super::fact::{FactEntry, facts};
use super::range_paths::by_string;
use super::table::Runs;
use crate::correlate::{Direction, Run, SiteId};
use crate::profile::ThreadId;

/// Passes per step above which several of them may add to the same gradients, as those of a GAN do.
const SEVERAL: f64 = 1.5;

/// How a program keeps the gradients of its parameters.
#[derive(Debug, Default)]
pub(super) struct GradientSums {
    /// Calls of operators that add a new gradient to one that is there.
    additions: u64,
    /// The share of them that goes away if gradients are dropped.
    needless_share: f64,
}

impl GradientSums {
    /// `passes` and `updates` are those of the whole run, or 0 if nothing recorded them.
    pub(super) fn of(run: &Run, ops: &EnclosingOps, passes: u64, updates: u64) -> GradientSums {
        let adds = run.sites.iter().enumerate().filter(|(row, site)| {
            let op = site.op.as_ref();
            let is_add = op.is_some_and(|op| plain_name(&op.name) == "add");
            let words = || ops.site(SiteId::new(*row));
            is_add
                && site.direction == Direction::Bprop
                && words().iter().any(|word| **word == *KEEPS_GRADIENT)
        });
        let additions = adds.map(|(_, site)| u64::from(site.calls)).sum();
        GradientSums {
            additions,
            needless_share: match additions {
                0 => 0.0,
                _ => needless_share(run, passes, updates),
            },
        }
    }
}

/// The share of backward passes that could take new gradients over instead of adding them.
///
/// The first pass after an update does so if the gradients were dropped. Where it does not, each of its gradients is
/// added to zeros, or to what the update has used.
fn needless_share(run: &Run, passes: u64, updates: u64) -> f64 {
    let updates = match updates {
        0 if passes == 1 => {
            u64::from((run.sites.iter()).any(|site| site.direction == Direction::Update))
        }
        known => known,
    };
    let several = !run.steps.is_empty() && passes as f64 > SEVERAL * run.steps.len() as f64;
    if passes == 0 || several && passes <= updates || !all_add(run, passes) {
        return 0.0;
    }
    match passes <= updates {
        true => 1.0,
        // Of a series of passes, the recording may lack the first one.
        false => updates.saturating_sub(1) as f64 / passes as f64,
    }
}

/// Whether autograd adds nearly every gradient of every pass to one that is there.
fn all_add(run: &Run, passes: u64) -> bool {
    let keeps = by_string(run, |text| operator_in(text) == Some(KEEPS_GRADIENT));
    let adds = by_string(run, |text| operator_in(text) == Some("add"));
    // Per thread: the end of the last node, if nothing has been added in it yet.
    let mut open: FxHashMap<ThreadId, i64> = FxHashMap::default();
    let (mut nodes, mut added) = (0_u64, 0_u64);
    for range in &run.profile.ranges {
        let is = |list: &[bool]| list.get(range.text.idx()) == Some(&true);
        if is(&keeps) {
            nodes += 1;
            open.insert(range.thread, range.span.end);
        } else if is(&adds)
            && let Some(end) = open.remove(&range.thread)
        {
            added += u64::from(range.span.start < end);
        }
    }
    let taken_over = nodes.saturating_sub(added);
    nodes > 0 && taken_over.saturating_mul(passes).saturating_mul(2) < nodes
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Operators that add the new gradient of a parameter to one that is there, in autograd's
    /// `AccumulateGrad`
    "run.gradient_additions": INT => |t| t.gradient_sums.additions,
    /// Share of `run.gradient_additions` that goes away if gradients are dropped before the first backward pass
    /// of an update; 0 where new gradients are taken over already, or the passes of an update are not known
    "run.needless_additions_share": DOUBLE => |t| t.gradient_sums.needless_share,
};

#[cfg(test)]
mod tests {
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{Answer, MemberKind, Value};

    /// Backward passes of two parameters. Of each, whether gradients are added, and whether an update follows.
    fn facts(passes: &[(bool, bool)]) -> (String, String) {
        let mut b = ProfileBuilder::new();
        for (pass, (adds, updates)) in (0..).zip(passes) {
            let start = pass * 10_000;
            b.range(&format!("aten::mul, seq = {}", pass + 1), start, start + 50);
            b.launch(start + 10);
            for (number, at) in [(2, 1_000), (1, 2_000)] {
                let (start, end) = (start + at, start + at + 900);
                let node = format!("MulBackward0, seq = {}", pass * 2 + number);
                b.range(&node, start, start + 100);
                b.range("torch::autograd::AccumulateGrad", start + 200, end);
                if *adds {
                    b.range("aten::add_, seq = 0", start + 300, start + 400);
                    b.launch(start + 310);
                } else {
                    b.range("aten::detach, seq = 0", start + 300, start + 400);
                }
            }
            if *updates {
                b.range("Optimizer.step#SGD.step", start + 5_000, start + 6_000);
                b.range("aten::add_, seq = 9", start + 5_100, start + 5_200);
                b.launch(start + 5_110);
            }
        }
        let facts = ["run.gradient_additions", "run.needless_additions_share"];
        let known = answers(b, MemberKind::Run, facts).remove(0);
        known.map(|answer| format!("{answer:?}")).into()
    }

    fn values(additions: i64, share: f64) -> (String, String) {
        (
            format!("{:?}", Answer::Value(Value::Int(additions))),
            format!("{:?}", Answer::Value(Value::Double(share))),
        )
    }

    #[test]
    fn additions_are_needless_where_an_update_follows_each_pass() {
        assert_eq!(facts(&[(true, true), (true, true)]), values(4, 1.0));
        assert_eq!(facts(&[(true, true)]), values(2, 1.0));
    }

    #[test]
    fn passes_between_updates_need_their_additions() {
        let zeroed = [(true, false), (true, true), (true, false), (true, true)];
        assert_eq!(facts(&zeroed), values(8, 0.25));
        let dropped = [(false, false), (true, true), (false, false), (true, true)];
        assert_eq!(facts(&dropped), values(4, 0.0));
        assert_eq!(facts(&[(true, false), (true, true)]), values(4, 0.0));
    }

    #[test]
    fn gradients_that_are_taken_over_are_not_added() {
        assert_eq!(facts(&[(false, true), (false, true)]), values(0, 0.0));
    }
}
