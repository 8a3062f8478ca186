//! Weights that are no parameters: those of a convolution for each sample, and slices of a parameter.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::conversion::ParameterShapes;
use super::enclosing_ops::{EnclosingOps, plain_name};
use super::fact::{Answer, FactEntry, facts};
use super::site::Sites;
use super::table::Runs;
use crate::correlate::{Direction, OpArgs, OpName, Run, Site, SiteId};
use crate::cost::{ConvSize, Costed, Dims, Family};

/// What is known about weights that a program computes from its parameters.
#[derive(Debug, Default)]
pub(super) struct ComputedWeights {
    /// Convolutions with weights of each sample.
    pub(super) per_sample: BTreeSet<SiteId>,
    /// Whether products multiply by slices of a parameter; `None` if no weight has a shape.
    slices: Option<bool>,
}

impl ComputedWeights {
    pub(super) fn of(
        costed: &Costed,
        parameters: Option<&ParameterShapes>,
        around: &EnclosingOps,
    ) -> ComputedWeights {
        ComputedWeights {
            per_sample: per_sample(costed),
            slices: parameters.map(|parameters| are_slices(costed, parameters, around)),
        }
    }
}

/// A weight for each sample before it is flattened: samples, the two numbers of channels per sample in ascending order,
/// and filter elements.
type Weights = (u64, [u64; 2], u64);

/// The convolutions of one image in groups whose weights were scaled for each group, and so for each sample of a batch:
/// modulated convolutions.
fn per_sample(costed: &Costed) -> BTreeSet<SiteId> {
    let run = &costed.run;
    let all = || (0..).map(SiteId).zip(run.sites.iter().zip(&costed.sites));
    let grouped: Vec<(SiteId, ConvSize)> = all()
        .filter_map(|(id, (_, cost))| {
            let role = cost.cost.as_ref().ok()?.roles.first()?;
            match role.dims {
                Dims::Conv(size) if size.n == 1 && size.groups > 1 => Some((id, size)),
                _ => None,
            }
        })
        .collect();
    if grouped.is_empty() {
        return BTreeSet::new();
    }
    let products = all().filter(|(_, (site, _))| {
        let multiplies = |op: &OpName| matches!(plain_name(&op.name), "mul" | "multiply");
        site.direction != Direction::Bprop && site.op.as_ref().is_some_and(multiplies)
    });
    let scaled: FxHashSet<Weights> = products
        .filter_map(|(_, (site, _))| weights_of(args(run, site)?))
        .collect();
    let of_samples = grouped
        .into_iter()
        .filter(|(_, size)| scaled.contains(&weights(size)));
    of_samples.map(|(id, _)| id).collect()
}

fn args<'a>(run: &'a Run, site: &Site) -> Option<&'a OpArgs> {
    run.arguments(site.args?)
}

/// The weights of a convolution in groups, as those of samples.
fn weights(size: &ConvSize) -> Weights {
    let channels = [size.c, size.k].map(|channels| channels / size.groups.max(1));
    (size.groups, sorted(channels), size.filter)
}

/// What a product of tensors would be as weights of samples: at least one spatial dimension is left.
fn weights_of(args: &OpArgs) -> Option<Weights> {
    let mut shapes = args.tensors().map(|tensor| &tensor.shape);
    let mut shape = shapes.next()?.clone();
    let rank = shape.len();
    for other in shapes.filter(|other| other.len() == rank) {
        for (size, of_other) in shape.iter_mut().zip(other) {
            *size = (*size).max(*of_other);
        }
    }
    match shape.as_slice() {
        [samples, a, b, filter @ ..] if !filter.is_empty() => {
            let filter = filter
                .iter()
                .try_fold(1_u64, |all, n| all.checked_mul(*n))?;
            Some((*samples, sorted([*a, *b]), filter))
        }
        _ => None,
    }
}

fn sorted(mut pair: [u64; 2]) -> [u64; 2] {
    pair.sort_unstable();
    pair
}

/// Whether a backward pass fills tensors of three dimensions with zeros, for the gradients of slices that have the shape
/// of a weight: experts in one parameter.
fn are_slices(costed: &Costed, parameters: &ParameterShapes, around: &EnclosingOps) -> bool {
    let run = &costed.run;
    let sites = (0..).map(SiteId).zip(run.sites.iter().zip(&costed.sites));
    let mut fills = sites.filter(|(_, (site, cost))| {
        cost.family == Family::Fill && site.direction == Direction::Bprop
    });
    fills.any(|(id, (site, _))| {
        let tensor = args(run, site).and_then(|args| args.tensors().next());
        let of_weight = tensor.is_some_and(|tensor| match tensor.shape.as_slice() {
            [_, weight @ ..] if weight.len() == 2 => parameters.holds(weight),
            _ => false,
        });
        of_weight
            && around
                .site(id)
                .iter()
                .any(|word| &**word == "select_backward")
    })
}

pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// A convolution of one image in groups whose weights the program has scaled for each group: the groups are the samples
    /// of a batch, as in modulated convolutions
    "site.weights_per_sample": BOOL of &[Family::Conv] =>
        |s| s.table.computed_weights.per_sample.contains(&s.id),
};

pub(super) const RUN_ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Weights of products are slices of a parameter, as experts in one tensor, by the backward pass; silent where no
    /// weight has a shape
    "run.sliced_weights": BOOL => |t| Answer::or_silent(t.computed_weights.slices),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::{Arg, ArgValue, Tensor};

    fn product(shapes: &[&[u64]]) -> Option<Weights> {
        let tensors = shapes.iter().map(|shape| Tensor {
            shape: shape.to_vec(),
            dtype: None,
            strides: None,
        });
        let items = tensors.map(|tensor| Arg {
            name: None,
            value: ArgValue::Tensor(tensor),
        });
        weights_of(&OpArgs {
            items: items.collect(),
        })
    }

    #[test]
    fn products_of_weights_and_scales_are_weights_of_samples() {
        let size = ConvSize {
            n: 1,
            c: 128,
            k: 256,
            groups: 4,
            in_spatial: 64,
            out_spatial: 64,
            filter: 9,
            stride: 1,
            transposed: false,
        };
        let wanted = Some(weights(&size));
        // Modulation, demodulation, and the weights of a transposed convolution.
        for (shapes, fits) in [
            (&[&[1, 64, 32, 3, 3][..], &[4, 1, 32, 1, 1]][..], true),
            (&[&[4, 64, 32, 3, 3], &[4, 64, 1, 1, 1]], true),
            (&[&[1, 32, 64, 3, 3], &[4, 32, 1, 1, 1]], true),
            (&[&[1, 64, 32, 5, 5], &[4, 1, 32, 1, 1]], false),
            (&[&[8, 64, 32, 3, 3], &[8, 1, 32, 1, 1]], false),
            (&[&[256, 32, 3, 3], &[256, 1, 1, 1]], false),
        ] {
            assert_eq!(product(shapes) == wanted, fits, "{shapes:?}");
        }
    }
}
