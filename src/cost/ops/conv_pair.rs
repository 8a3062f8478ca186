//! Convolutions whose numbers (strides, padding, sizes) are not recorded: traces of 2021 and
//! `emit_nvtx` list shapes only. Forward and backward of one call complement each other's shapes, and
//! the shapes of x, w and dY determine the cost: neither stride nor padding is needed.

use super::call::{Call, count, total};
use super::conv::{Mask, assemble, deduced_groups, gradients, spatial};
use crate::correlate::{OpArgs, OpName, Tensor};
use crate::cost::model::{OpCost, UnknownCost};

/// The stride, which the shapes do not determine if the padding is unknown.
const UNKNOWN: u64 = 0;

/// x, w and dY, as far as a call of either direction lists them. `None` for other operators, also for forward
/// operators with a `transposed` flag: if the flag is not recorded, the kind of convolution is unknown.
fn operands<'a>(name: &str, args: &'a OpArgs) -> Option<[Option<&'a Tensor>; 3]> {
    let places = match name {
        "cudnn_convolution" | "miopen_convolution" | "conv1d" | "conv2d" | "conv3d" => {
            [Some(0), Some(1), None]
        }
        "cudnn_convolution_backward_input" | "miopen_convolution_backward_input" => {
            [None, Some(2), Some(1)]
        }
        "cudnn_convolution_backward_weight" | "miopen_convolution_backward_weight" => {
            [Some(2), None, Some(1)]
        }
        "cudnn_convolution_backward" | "miopen_convolution_backward" => [Some(0), Some(2), Some(1)],
        "convolution_backward" => [Some(1), Some(2), Some(0)],
        _ => return None,
    };
    Some(places.map(|place| args.tensor(place?, "").filter(|t| t.shape.len() > 2)))
}

/// The cost of a call from its own operands and those of its partners, the calls of the other
/// direction, which must agree on the missing operand.
///
/// # Errors
/// [`UnknownCost::NoScalars`] if a shape is still missing or partners differ,
/// [`UnknownCost::BadArguments`] if the shapes do not form a convolution.
pub(crate) fn with_partners(
    call: &Call,
    partners: &[(&OpName, &OpArgs)],
) -> Result<OpCost, UnknownCost> {
    let own = operands(call.name, call.args).ok_or(UnknownCost::NoScalars)?;
    let others = partners.iter();
    let others = others.filter_map(|(op, args)| operands(&op.name, args));
    let others: Vec<[Option<&Tensor>; 3]> = others.collect();
    let find = |at: usize| {
        let own = own.get(at).copied().flatten();
        let listed = others.iter().filter_map(|other| *other.get(at)?);
        own.or_else(|| agreed(listed)).ok_or(UnknownCost::NoScalars)
    };
    let (x, w, dy) = (find(0)?, find(1)?, find(2)?);
    let groups = deduced_groups(x, w, false)?;
    let dims = w.shape.len().saturating_sub(2);
    let conv = assemble(x, w, groups, false, count(spatial(dy, dims)?), UNKNOWN)?;
    let fits = dy.shape.len() == x.shape.len()
        && dy.shape.first() == x.shape.first()
        && dy.shape.get(1) == w.shape.first()
        && groups > 0
        && conv.size.k % groups == 0;
    if !fits {
        return Err(UnknownCost::BadArguments);
    }
    let backward = own[2].is_some() || call.backward;
    if backward {
        let one = call.name.ends_with("_input") || call.name.ends_with("_weight");
        let mask = Mask {
            input: !one || call.name.ends_with("_input"),
            weight: !one || call.name.ends_with("_weight"),
            bias: false,
        };
        return gradients(call, conv, x, w, call.bytes(dy), mask);
    }
    let bias = call
        .optional(2, &["bias"])
        .filter(|b| b.shape.as_slice() == [conv.size.k]);
    let bytes = total([
        call.bytes(x),
        call.bytes(w),
        call.dense(count(&dy.shape), x),
        call.bytes_of(bias),
    ]);
    call.one(conv.flops(), bytes, conv.dims())
}

/// The tensor, if all partners list one with the same shape.
fn agreed<'a>(mut tensors: impl Iterator<Item = &'a Tensor>) -> Option<&'a Tensor> {
    let first = tensors.next()?;
    tensors.all(|t| t.shape == first.shape).then_some(first)
}
