//! Whether the steps of a run do the same matrix work.

use crate::correlate::SiteId;
use crate::cost::Costed;

/// The number of different sets of matrix work with shapes among the steps. A step is identified by the
/// sum of its sites' hashes. `None` if no such work has shapes.
pub(super) fn of(costed: &Costed) -> Option<u64> {
    use std::hash::BuildHasher;
    let run = &costed.run;
    let hasher = rustc_hash::FxBuildHasher;
    let sites = (0..).map(SiteId).zip(run.sites.iter().zip(&costed.sites));
    let hashes: Vec<Option<u64>> = sites
        .map(|(id, (site, cost))| {
            (cost.family.is_math() && site.args.is_some()).then(|| {
                // Hashed, so that sums of different ids differ.
                let hash = hasher.hash_one(id);
                (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
        })
        .collect();
    let mut sums: Vec<Option<u64>> = vec![None; run.steps.len()];
    for link in &run.links {
        let hash = link.site.and_then(|site| hashes.get(site.idx()).copied());
        let sum = link.step.and_then(|step| sums.get_mut(step.idx()));
        if let (Some(hash), Some(sum)) = (hash.flatten(), sum) {
            *sum = Some(sum.unwrap_or(0).wrapping_add(hash));
        }
    }
    let mut kinds: Vec<u64> = sums.into_iter().flatten().collect();
    kinds.sort_unstable();
    kinds.dedup();
    (!kinds.is_empty()).then_some(kinds.len() as u64)
}

#[cfg(test)]
mod tests {
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::{Answer, FactTable, Lookup, Member};

    /// The fact for steps of one product each, with these numbers of rows.
    fn steps(rows: &[u64]) -> Answer {
        let mut b = ProfileBuilder::new();
        for (step, rows) in rows.iter().enumerate() {
            let at = step as i64 * 1000;
            b.range(&format!("step {step}"), at, at + 900);
            let text = format!("aten::mm, seq = {step}, sizes = [[{rows}, 8], [8, 16]]");
            b.range(&text, at + 10, at + 20);
            b.launch(at + 12);
        }
        let costed = crate::cost::estimate_costs(b.run(), None);
        FactTable::new(&costed)
            .view(Member::Run)
            .get("run.step_shapes")
    }

    #[test]
    fn steps_with_different_shapes_are_distinguished() {
        assert_eq!(steps(&[4, 4, 4, 4]), Answer::from(1_u64));
        assert_eq!(steps(&[4, 4, 4, 3]), Answer::from(2_u64));
        assert_eq!(steps(&[4, 5, 6, 7]), Answer::from(4_u64));
        assert_eq!(steps(&[]), Answer::Absent);
    }
}
