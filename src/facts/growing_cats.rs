//! Concatenations in a loop, each of which appends to the result of the one before. Their shapes show
//! them: the first operand of each has as many dimensions and elements as the result of another.

use std::collections::{BTreeMap, BTreeSet};

use crate::correlate::{Direction, LayerId, SiteId};
use crate::cost::{Costed, Family};

/// Minimum number of concatenations in a series: a few layers that widen the same tensor are none.
const LEAST: u64 = 8;

/// Number of dimensions and of elements of a tensor.
type Size = (usize, u64);

/// A concatenation: its layer, its first operand and its result.
struct Growth {
    site: SiteId,
    layer: Option<LayerId>,
    from: Size,
    to: Size,
}

/// The sites in series of [`LEAST`] concatenations and more.
pub(super) fn of(costed: &Costed) -> BTreeSet<SiteId> {
    let mut steps: Vec<Growth> = growths(costed);
    steps.sort_by_key(|s| (s.layer, s.from, s.site));
    // The length of the longest series that ends, and that begins, with tensors of each size.
    let mut ending: BTreeMap<(Option<LayerId>, Size), u64> = BTreeMap::new();
    let mut before = Vec::with_capacity(steps.len());
    for step in &steps {
        let length = 1 + ending.get(&(step.layer, step.from)).copied().unwrap_or(0);
        let longest = ending.entry((step.layer, step.to)).or_default();
        *longest = length.max(*longest);
        before.push(length);
    }
    let mut beginning: BTreeMap<(Option<LayerId>, Size), u64> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (step, before) in steps.iter().zip(before).rev() {
        let after = 1 + beginning.get(&(step.layer, step.to)).copied().unwrap_or(0);
        let longest = beginning.entry((step.layer, step.from)).or_default();
        *longest = after.max(*longest);
        if before + after > LEAST {
            found.insert(step.site);
        }
    }
    found
}

fn growths(costed: &Costed) -> Vec<Growth> {
    let run = &costed.run;
    let sites = (0..).map(SiteId).zip(run.sites.iter().zip(&costed.sites));
    sites
        .filter(|(_, (site, cost))| {
            cost.family == Family::Cat && site.direction != Direction::Update
        })
        .filter_map(|(id, (site, _))| {
            let args = run.arguments(site.args?)?;
            let mut tensors = args.tensors();
            let first = tensors.next()?;
            let (rank, from) = (first.shape.len(), first.elements());
            let to = tensors.fold(from, |sum, t| sum.saturating_add(t.elements()));
            (from > 0 && to > from).then_some(Growth {
                site: id,
                layer: site.layer,
                from: (rank, from),
                to: (rank, to),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    fn found(sizes: &[(u64, u64)]) -> usize {
        let mut b = ProfileBuilder::new();
        for (row, (first, second)) in sizes.iter().enumerate() {
            let at = 1000 * row as i64;
            b.range(
                &format!("aten::cat, seq = {row}, sizes = [[{first}, 4], [{second}, 4]]"),
                at,
                at + 100,
            );
            b.launch(at + 10);
        }
        of(&estimate_costs(b.run(), None)).len()
    }

    #[test]
    fn series_of_concatenations_are_recognized_by_their_shapes() {
        let series = |n: u64| -> Vec<(u64, u64)> { (1..=n).map(|i| (i * 10, 10)).collect() };
        assert_eq!(found(&series(8)), 8);
        assert_eq!(found(&series(7)), 0);
        // The layers of a network, which all concatenate tensors of the same size.
        assert_eq!(found(&[(10, 10); 20]), 0);
    }
}
