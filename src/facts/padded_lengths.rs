//! The lengths to which batches of sequences are padded: that of self-attention with a mask of its own for each
//! sequence.

use rustc_hash::{FxHashMap, FxHashSet};

use super::enclosing_ops::plain_name;
use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::correlate::args::shapes_of;
use crate::correlate::{OpArgs, Run, Tensor};
use crate::profile::StrId;

/// The lengths of the steps, as far as each has one.
#[derive(Debug, Default)]
pub(super) struct PaddedLengths {
    /// Sorted, each length once.
    lengths: Vec<u64>,
}

/// What one operator shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sign {
    /// Attention of sequences of this length with a mask for each of them.
    Masked(u64),
    /// The same, if these are the scores of attention.
    MaskedScores(Vec<u64>),
    /// A softmax of a tensor of this shape.
    Softmax(Vec<u64>),
}

impl PaddedLengths {
    pub(super) fn of(run: &Run) -> PaddedLengths {
        let steps: Vec<_> = run.steps.iter().filter(|step| !step.warmup).collect();
        let mut signs: FxHashMap<(StrId, StrId), Option<Sign>> = FxHashMap::default();
        // What each step shows, by its row in `steps`.
        let mut shown: Vec<FxHashSet<(StrId, StrId)>> = vec![FxHashSet::default(); steps.len()];
        for range in &run.profile.ranges {
            let Some(args) = range.args else { continue };
            let key = (range.text, args);
            let sign = signs.entry(key).or_insert_with(|| {
                let name = run.profile.text(range.text).strip_prefix("aten::")?;
                sign(plain_name(name), || shapes_of(run.profile.text(args)))
            });
            let after = steps.partition_point(|step| step.span.start <= range.span.start);
            let step = after.checked_sub(1);
            if sign.is_some()
                && let Some((row, step)) = step.and_then(|row| Some((row, steps.get(row)?)))
                && range.span.start < step.span.end
                && let Some(shown) = shown.get_mut(row)
            {
                shown.insert(key);
            }
        }
        let softmaxes: FxHashSet<&[u64]> = (signs.values().flatten())
            .filter_map(|sign| match sign {
                Sign::Softmax(shape) => Some(shape.as_slice()),
                _ => None,
            })
            .collect();
        let length = |key: &(StrId, StrId)| match signs.get(key)?.as_ref()? {
            Sign::Masked(length) => Some(*length),
            Sign::MaskedScores(shape) if softmaxes.contains(shape.as_slice()) => {
                shape.last().copied()
            }
            _ => None,
        };
        let lengths = shown
            .iter()
            .map(|shown| shown.iter().filter_map(length).max());
        let lengths: Option<Vec<u64>> = lengths.collect();
        let mut lengths = lengths.unwrap_or_default();
        lengths.sort_unstable();
        lengths.dedup();
        PaddedLengths { lengths }
    }
}

/// What an operator shows; `args` is called for the few that may show anything.
fn sign(name: &str, args: impl FnOnce() -> Option<OpArgs>) -> Option<Sign> {
    match name {
        "scaled_dot_product_attention" => {
            let args = args()?;
            let &[batch, _, queries, _] = args.tensor(0, "query")?.shape.as_slice() else {
                return None;
            };
            let &[_, _, keys, _] = args.tensor(1, "key")?.shape.as_slice() else {
                return None;
            };
            let mask = args.tensor(3, "attn_mask")?;
            let fits = queries == keys && is_mask(mask, batch, keys);
            fits.then_some(Sign::Masked(keys))
        }
        "masked_fill" | "add" => {
            let args = args()?;
            let scores = &args.tensor(0, "self")?.shape;
            let &[batch, _, queries, keys] = scores.as_slice() else {
                return None;
            };
            let mask = args.tensor(1, "mask")?;
            // One for all heads, unlike a position bias or another part of the scores.
            let fits =
                queries == keys && is_mask(mask, batch, keys) && mask.shape.get(1) == Some(&1);
            fits.then(|| Sign::MaskedScores(scores.clone()))
        }
        "softmax" => {
            let shape = args()?.tensor(0, "self")?.shape.clone();
            (shape.len() == 4).then_some(Sign::Softmax(shape))
        }
        _ => None,
    }
}

/// Whether a tensor has a mask of its own for each sequence of a batch: `[B, H, L, L]` or `[B, H, 1, L]`.
fn is_mask(mask: &Tensor, batch: u64, length: u64) -> bool {
    let fits = |of: u64, queries: u64, keys: u64| {
        of == batch && keys == length && (queries == 1 || queries == length)
    };
    batch > 1
        && length > 1
        && matches!(*mask.shape, [of, _, queries, keys] if fits(of, queries, keys))
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Different lengths among the steps, in self-attention with a mask of its own for each sequence of a batch; silent
    /// where a step has no such attention
    "run.padded_lengths": INT needs STEPS => |t| match t.padded_lengths.lengths.len() {
        _ if t.sums.steps == 0 => Answer::Absent,
        0 => Answer::DoesNotApply,
        lengths => Answer::from(lengths as u64),
    },
    /// The shortest of `run.padded_lengths`
    "run.shortest_padded": INT => |t| Answer::or_silent(t.padded_lengths.lengths.first().copied()),
    /// The longest of `run.padded_lengths`
    "run.longest_padded": INT => |t| Answer::or_silent(t.padded_lengths.lengths.last().copied()),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// The lengths of steps that run these operators, with `L` for the length of each step.
    fn lengths(steps: &[u64], operators: &[&str]) -> Vec<u64> {
        let mut b = ProfileBuilder::new();
        for (step, length) in steps.iter().enumerate() {
            let at = step as i64 * 1000;
            b.range(&format!("step {step}"), at, at + 900);
            for (row, text) in operators.iter().enumerate() {
                let at = at + 10 + 100 * row as i64;
                b.range(&text.replace('L', &length.to_string()), at, at + 50);
                b.launch(at + 10);
            }
        }
        PaddedLengths::of(&b.run()).lengths
    }

    #[test]
    fn attention_with_a_mask_per_sequence_shows_the_length_of_a_batch() {
        let sdpa = "aten::scaled_dot_product_attention, seq = 1, sizes = [[4, 8, L, 16], [4, 8, L, 16], [4, 8, L, 16], ";
        for mask in ["[4, 1, L, L]]", "[4, 8, L, L]]", "[4, 1, 1, L]]"] {
            assert_eq!(
                lengths(&[7, 9, 7], &[&format!("{sdpa}{mask}")]),
                [7, 9],
                "{mask}"
            );
        }
        // The same mask for all, and none.
        for mask in ["[1, 1, L, L]]", "[L, L]]", "[]]"] {
            assert_eq!(
                lengths(&[7, 9, 7], &[&format!("{sdpa}{mask}")]),
                [0; 0],
                "{mask}"
            );
        }
        // One new token per sequence.
        let decoding = "aten::scaled_dot_product_attention, seq = 1, sizes = [[4, 8, 1, 16], [4, 8, L, 16], [4, 8, L, 16], [4, 1, 1, L]]";
        assert_eq!(lengths(&[7, 8, 9], &[decoding]), [0; 0]);
    }

    #[test]
    fn written_out_attention_shows_it_too() {
        let fill = "aten::masked_fill, seq = 1, sizes = [[4, 8, L, L], [4, 1, 1, L], []]";
        let softmax = "aten::_softmax, seq = 2, sizes = [[4, 8, L, L], [], []]";
        assert_eq!(lengths(&[7, 9, 8], &[fill, softmax]), [7, 8, 9]);
        assert_eq!(lengths(&[7, 9, 8], &[fill]), [0; 0]);
        let causal = "aten::masked_fill, seq = 1, sizes = [[4, 8, L, L], [1, 1, L, L], []]";
        assert_eq!(lengths(&[7, 9, 8], &[causal, softmax]), [0; 0]);
        let bias = "aten::add, seq = 1, sizes = [[4, 8, L, L], [4, 8, L, L], []]";
        assert_eq!(lengths(&[7, 9, 8], &[bias, softmax]), [0; 0]);
    }
}
