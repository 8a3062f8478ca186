//! Whether the steps of a run do the same matrix work.

use rustc_hash::FxHashSet;

use crate::correlate::{OpArgs, SiteId};
use crate::cost::{Costed, Dims, Family, SiteCost};

/// Whether work has weights, as far as is known: what it computes follows from the size of its input alone. Batched
/// products and attention multiply activations, and cached keys.
fn has_weights(cost: &SiteCost) -> bool {
    let size = || Some(cost.cost.as_ref().ok()?.roles.first()?.dims);
    match cost.family {
        Family::Conv | Family::Rnn => true,
        Family::Gemm => !matches!(size(), Some(Dims::Gemm(size)) if size.batch > 1),
        _ => false,
    }
}

/// The number of different sets of matrix work with shapes among the steps. `None` if no such work has shapes.
pub(super) fn of(costed: &Costed) -> Option<u64> {
    different(costed, |cost| cost.family.is_math(), true)
}

/// The same of work with weights, however often each step does it; 0 without such work.
pub(super) fn with_weights(costed: &Costed) -> Option<u64> {
    let any = costed.sites.iter().any(has_weights);
    different(costed, has_weights, false).or_else(|| (!any).then_some(0))
}

/// The shapes of the operands.
fn shapes(args: &OpArgs) -> Vec<&[u64]> {
    let tensors = args.tensors();
    tensors.map(|tensor| tensor.shape.as_slice()).collect()
}

/// The number of different sets among the steps of the work that counts. A step is identified by the sum of its sites'
/// hashes, each as often as it is `repeated`; or of the hashes of its operators and shapes, each once.
fn different(costed: &Costed, counts: impl Fn(&SiteCost) -> bool, repeated: bool) -> Option<u64> {
    use std::hash::BuildHasher;
    let run = &costed.run;
    let hasher = rustc_hash::FxBuildHasher;
    let sites = (0..).map(SiteId).zip(run.sites.iter().zip(&costed.sites));
    let hashes: Vec<Option<u64>> = sites
        .map(|(id, (site, cost))| {
            let args = run.arguments(site.args?);
            counts(cost).then(|| {
                // Hashed, so that sums of different ids differ.
                let hash = match repeated {
                    true => hasher.hash_one(id),
                    false => hasher.hash_one((&site.op, args.map(shapes))),
                };
                (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            })
        })
        .collect();
    let mut sums: Vec<Option<u64>> = vec![None; run.steps.len()];
    let mut seen = FxHashSet::default();
    for link in &run.links {
        let hash = link.site.and_then(|site| hashes.get(site.idx()).copied());
        let hash = hash.flatten();
        let sum = link.step.and_then(|step| sums.get_mut(step.idx()));
        if let (Some(hash), Some(sum)) = (hash, sum)
            && (repeated || seen.insert((link.step, hash)))
        {
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
    use crate::facts::Answer;
    use crate::facts::testing::of_run;

    fn product(rows: u64) -> String {
        format!("aten::mm, seq = 1, sizes = [[{rows}, 8], [8, 16]]")
    }

    /// A fact for steps that each run one operator so many times.
    fn fact(name: &str, steps: impl Iterator<Item = (String, i64)>) -> Answer {
        let mut b = ProfileBuilder::new();
        for (step, (text, times)) in (0..).zip(steps) {
            let at = step * 1000;
            b.range(&format!("step {step}"), at, at + 900);
            for at in (0..times).map(|time| at + 10 + 20 * time) {
                b.range(&text, at, at + 10);
                b.launch(at + 2);
            }
        }
        of_run(b, name)
    }

    /// The fact for steps of one product each, with these numbers of rows.
    fn steps(rows: &[u64]) -> Answer {
        let products = rows.iter().map(|rows| (product(*rows), 1));
        fact("run.step_shapes", products)
    }

    #[test]
    fn cached_keys_are_no_input_of_a_step() {
        let step = |keys: u64| {
            let text = format!("aten::bmm, seq = 1, sizes = [[8, 1, 64], [8, 64, {keys}]]");
            (text, 1)
        };
        let of_cache = |name| fact(name, (4..7).map(step));
        assert_eq!(of_cache("run.step_shapes"), Answer::from(3_u64));
        assert_eq!(of_cache("run.step_weight_shapes"), Answer::from(0_u64));
        let unknown = ("aten::mm, seq = 1".to_owned(), 1);
        let name = "run.step_weight_shapes";
        assert_eq!(fact(name, [unknown].into_iter()), Answer::Absent);
    }

    #[test]
    fn products_of_one_size_are_alike_however_many_a_step_runs() {
        let of_products =
            |name, [a, b]: [u64; 2]| fact(name, [(product(a), 1), (product(b), 2)].into_iter());
        assert_eq!(of_products("run.step_shapes", [4, 4]), Answer::from(2_u64));
        assert_eq!(
            of_products("run.step_weight_shapes", [4, 4]),
            Answer::from(1_u64)
        );
        assert_eq!(
            of_products("run.step_weight_shapes", [4, 5]),
            Answer::from(2_u64)
        );
    }

    #[test]
    fn steps_with_different_shapes_are_distinguished() {
        assert_eq!(steps(&[4, 4, 4, 4]), Answer::from(1_u64));
        assert_eq!(steps(&[4, 4, 4, 3]), Answer::from(2_u64));
        assert_eq!(steps(&[4, 5, 6, 7]), Answer::from(4_u64));
        assert_eq!(steps(&[]), Answer::Absent);
    }
}
