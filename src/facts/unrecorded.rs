//! Forward work that autograd did not record, such as work on `.data`.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::correlate::{Direction, Link, Run, SiteId};
use crate::cost::{Costed, Family};
use crate::profile::{RangeId, SerialNumber, ThreadId};

/// Thread and sequence number.
type Number = (ThreadId, SerialNumber);

/// The sites of in-place pointwise operators outside of layers of which autograd recorded most calls not.
///
/// An operator reads the counter of autograd's nodes, and only one that records a node advances it. So an
/// operator that another one with the same number follows has recorded nothing, unless both are parts of one
/// operator.
pub(super) fn of(costed: &Costed) -> BTreeSet<SiteId> {
    let run = &costed.run;
    let sites = run.sites.iter().zip(&costed.sites);
    let candidates: Vec<bool> = sites
        .map(|(site, cost)| {
            let in_place = site.op.as_ref().is_some_and(|op| {
                op.module == "aten" && op.name.ends_with('_') && !op.name.starts_with('_')
            });
            let outside = site.layer.is_none() && site.direction == Direction::Fprop;
            in_place && outside && cost.family == Family::Pointwise
        })
        .collect();
    if !candidates.contains(&true) {
        return BTreeSet::new();
    }
    let calls: Vec<(SiteId, RangeId, i64)> = (run.links.iter().zip(&run.profile.kernels))
        .filter_map(|(link, kernel)| {
            let site = link
                .site
                .filter(|site| candidates.get(site.idx()) == Some(&true))?;
            Some((site, alone(run, link)?, kernel.span.ns()))
        })
        .collect();
    let wanted: FxHashSet<Number> = calls
        .iter()
        .filter_map(|(_, range, _)| number(run, *range))
        .collect();
    // The start of the last operator with each number.
    let mut last: FxHashMap<Number, i64> = FxHashMap::default();
    for range in &run.profile.ranges {
        let Some(seq) = range.seq else { continue };
        let number = (range.thread, seq);
        if wanted.contains(&number) && run.profile.text(range.text).starts_with("aten::") {
            let start = last.entry(number).or_insert(i64::MIN);
            *start = range.span.start.max(*start);
        }
    }
    let mut unrecorded: FxHashMap<SiteId, i64> = FxHashMap::default();
    for (site, range, ns) in calls {
        let end = run.profile.range(range).map(|range| range.span.end);
        let next = number(run, range).and_then(|number| last.get(&number).copied());
        if next.zip(end).is_some_and(|(next, end)| next >= end) {
            *unrecorded.entry(site).or_default() += ns;
        }
    }
    let mostly = |(site, ns): &(SiteId, i64)| {
        (run.site(*site)).is_some_and(|s| ns.saturating_mul(2) > s.time_ns)
    };
    let found = unrecorded.into_iter().filter(mostly);
    found.map(|(site, _)| site).collect()
}

fn number(run: &Run, range: RangeId) -> Option<Number> {
    let range = run.profile.range(range)?;
    Some((range.thread, range.seq?))
}

/// The range of a kernel's operator, unless it is a part of another operator with the same number.
fn alone(run: &Run, link: &Link) -> Option<RangeId> {
    let call = run.op_call(link.op?)?;
    let scope = |id: crate::correlate::ScopeId| run.scope(id);
    let mut at = scope(link.scope?)?;
    while at.range != call.range {
        at = scope(at.parent?)?;
    }
    let around = at.parent.and_then(scope).map(|around| around.range);
    let same = around.and_then(|around| number(run, around)) == number(run, call.range);
    (!same).then_some(call.range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// In-place operators of these numbers, one after the other.
    fn found(numbers: &[u64]) -> usize {
        let mut b = ProfileBuilder::new();
        for (row, seq) in numbers.iter().enumerate() {
            let at = 1000 * row as i64;
            let size = row + 8;
            b.range(
                &format!("aten::mul_, seq = {seq}, sizes = [[{size}], []]"),
                at,
                at + 100,
            );
            b.launch(at + 10);
        }
        of(&crate::cost::estimate_costs(b.run(), None)).len()
    }

    #[test]
    fn operators_that_do_not_advance_the_counter_are_not_recorded() {
        // Of the last one with a number nothing is known.
        assert_eq!(found(&[7, 7, 7, 7]), 3);
        assert_eq!(found(&[7, 8, 9, 10]), 0);
        assert_eq!(found(&[7, 7, 8, 9]), 1);
    }

    #[test]
    fn parts_of_one_operator_share_its_number() {
        let mut b = ProfileBuilder::new();
        b.range("aten::dropout_, seq = 7, sizes = [[8], []]", 0, 1000);
        for at in [10, 300] {
            b.range("aten::mul_, seq = 7, sizes = [[8], []]", at, at + 100);
            b.launch(at + 10);
        }
        assert_eq!(of(&crate::cost::estimate_costs(b.run(), None)).len(), 0);
    }
}
