//! Facts of operators that convert element types: from what to what, and whether it is a parameter that
//! they convert.

use rustc_hash::FxHashSet;

use super::enclosing_ops::plain_name;
use super::fact::{FactEntry, facts};
use super::site::{SiteScope, Sites};
use crate::base::DType;
use crate::correlate::{ArgValue, Direction, OpArgs, Run};
use crate::cost::Family;

/// The shapes of the weights that the run multiplies by, and of their transposes.
#[derive(Debug, Default)]
pub(super) struct ParameterShapes(FxHashSet<Vec<u64>>);

/// Position of the weight among the arguments of products and convolutions. Batched products multiply
/// activations only.
const WEIGHTS: &[(&str, usize)] = &[
    ("linear", 1),
    ("addmm", 2),
    ("mm", 1),
    ("matmul", 1),
    ("convolution", 1),
    ("cudnn_convolution", 1),
    ("miopen_convolution", 1),
    ("conv1d", 1),
    ("conv2d", 1),
    ("conv3d", 1),
    ("conv_transpose2d", 1),
    ("embedding", 0),
];

impl ParameterShapes {
    /// `None` if no weight has a shape.
    pub(super) fn of(run: &Run) -> Option<ParameterShapes> {
        let mut shapes = FxHashSet::default();
        for site in &run.sites {
            let Some(op) = site
                .op
                .as_ref()
                .filter(|_| site.direction != Direction::Bprop)
            else {
                continue;
            };
            let position = WEIGHTS
                .iter()
                .find(|(name, _)| *name == plain_name(&op.name));
            let args = run.arguments_of(site);
            let weight = position.and_then(|(_, at)| args?.tensor(*at, "weight"));
            if let Some(weight) = weight {
                shapes.insert(weight.shape.clone());
                shapes.insert(weight.shape.iter().rev().copied().collect());
            }
        }
        (!shapes.is_empty()).then_some(ParameterShapes(shapes))
    }

    /// Whether a tensor is as large as a parameter: a weight, or anything of one dimension, as biases,
    /// norms and the flat parameters of FSDP are. Activations have more.
    pub(super) fn holds(&self, shape: &[u64]) -> bool {
        shape.len() <= 1 || self.0.contains(shape)
    }
}

/// Element types before and after, as far as the operator's arguments tell.
fn types(site: &SiteScope<'_>) -> (Option<DType>, Option<DType>) {
    let Some((name, args)) = site.site.op.as_ref().zip(site.args()) else {
        return (None, None);
    };
    convert(plain_name(&name.name), args)
}

fn convert(name: &str, args: &OpArgs) -> (Option<DType>, Option<DType>) {
    let mut tensors = args.tensors().map(|t| t.dtype);
    let (first, second) = (tensors.next().flatten(), tensors.next().flatten());
    match name {
        // copy_(self, src)
        "copy" if second.is_some() => (second, first),
        "float" => (first, Some(DType::Fp32)),
        "half" => (first, Some(DType::Fp16)),
        "bfloat16" => (first, Some(DType::Bf16)),
        "double" => (first, Some(DType::Fp64)),
        "to" | "to_copy" => (first, None),
        _ => (None, None),
    }
}

/// Pixels per channel of the images that a call resizes, before. A backward call has the gradient of the result, and
/// the sizes of the images.
fn pixels(name: &str, args: &OpArgs) -> Option<u64> {
    let of_images = |sizes: &[u64]| Some(sizes.get(2..)?.iter().product());
    if !name.ends_with("_backward") {
        return of_images(&args.tensors().next()?.shape);
    }
    let ArgValue::List(sizes) = args.get(2, "input_size")? else {
        return None;
    };
    let sizes = sizes.iter().map(|size| match size {
        ArgValue::Int(size) => u64::try_from(*size).ok(),
        _ => None,
    });
    of_images(&sizes.collect::<Option<Vec<_>>>()?)
}

pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Element type that a conversion reads
    "site.cast_from": STR needs SHAPES of &[Family::Cast, Family::Copy] =>
        |s| types(s).0.map(DType::name),
    /// Element type that a conversion writes
    "site.cast_to": STR needs SHAPES of &[Family::Cast, Family::Copy] =>
        |s| types(s).1.map(DType::name),
    /// What it copies or converts has the shape of a parameter, or of its gradient
    "site.of_parameter": BOOL needs SHAPES of &[Family::Cast, Family::Copy] => |s| {
        let shapes = s.table.parameters.as_ref();
        let tensor = s.args().and_then(|args| args.tensors().next());
        shapes.zip(tensor).map(|(shapes, t)| shapes.holds(&t.shape))
    },
    /// Channels of the images that it resizes or pools
    "site.channels": INT needs SHAPES of &[Family::Interpolate, Family::Pool] => |s| {
        let tensors = s.args().into_iter().flat_map(OpArgs::tensors);
        let images = tensors.filter(|t| t.shape.len() >= 3).map(|t| &t.shape);
        let channels = images.map(|shape| shape.get(shape.len().saturating_sub(3)).copied());
        channels.flatten().next()
    },
    /// Pixels per channel of the images that it resizes, before; a backward call as the forward one
    "site.pixels": INT needs SHAPES of &[Family::Interpolate] => |s| {
        let op = s.site.op.as_ref().zip(s.args());
        op.and_then(|(op, args)| pixels(&op.name, args))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::correlate::{Arg, Tensor};

    #[test]
    fn weights_and_vectors_are_parameters_and_activations_are_not() {
        let mut b = ProfileBuilder::new();
        for (at, text) in [
            (0, "aten::addmm, seq = 1, sizes = [[32], [8, 16], [16, 32]]"),
            (1000, "aten::bmm, seq = 2, sizes = [[4, 8, 8], [4, 8, 64]]"),
        ] {
            b.range(text, at, at + 100);
            b.launch(at + 10);
        }
        let shapes = ParameterShapes::of(&b.run()).unwrap();
        for (shape, wanted) in [
            (&[32, 16][..], true),
            (&[16, 32], true),
            (&[4096], true),
            (&[8, 16], false),
            (&[4, 8, 64], false),
        ] {
            assert_eq!(shapes.holds(shape), wanted, "{shape:?}");
        }
    }

    #[test]
    fn pixels_are_those_before_resizing() {
        let argument = |value| Arg { name: None, value };
        let tensor = |shape: &[u64]| {
            argument(ArgValue::Tensor(Tensor {
                shape: shape.to_vec(),
                dtype: None,
                strides: None,
            }))
        };
        let list = |sizes: &[i64]| {
            argument(ArgValue::List(
                sizes.iter().map(|size| ArgValue::Int(*size)).collect(),
            ))
        };
        let forward = OpArgs {
            items: vec![tensor(&[8, 256, 1, 1]), list(&[60, 60])],
        };
        assert_eq!(pixels("upsample_bilinear2d", &forward), Some(1));
        let mut backward = OpArgs {
            items: vec![
                tensor(&[8, 256, 60, 60]),
                list(&[60, 60]),
                list(&[8, 256, 2, 3]),
            ],
        };
        let of = |args: &OpArgs| pixels("upsample_bilinear2d_backward", args);
        assert_eq!(of(&backward), Some(6));
        backward.items.pop();
        assert_eq!(of(&backward), None);
        backward.items.push(tensor(&[8, 256, 2, 3]));
        assert_eq!(of(&backward), None);
    }
}
