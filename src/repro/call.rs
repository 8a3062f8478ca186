//! An operator call that a script can repeat.

use serde_json::{Value as Json, json};

use crate::base::DType;
use crate::report::{CallArgument, OperatorUse};

/// Longest name of an operator.
const LONGEST: usize = 60;

/// Largest size of a dimension, and of all of a tensor: beyond it, no GPU holds it.
pub(super) const MOST_ELEMENTS: u64 = 1 << 37;

pub(super) const MATMULS: &[&str] = &["mm", "addmm", "bmm", "baddbmm", "matmul", "linear"];

/// Functions of `torch`, `torch.nn.functional` and `torch.Tensor`, as markers name them, whose operator has the same
/// name and the same order of arguments.
const MARKED: &[&str] = &[
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "matmul",
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "log_softmax",
    "softmax",
    "layer_norm",
    "norm",
];

/// An operator and its arguments, checked.
#[derive(Debug, Clone)]
pub(super) struct ScriptCall {
    pub(super) operator: String,
    pub(super) arguments: Vec<CallArgument>,
}

impl ScriptCall {
    /// The call of an operator of `aten`; `None` where something in it is not known.
    pub(super) fn of(used: &OperatorUse) -> Option<ScriptCall> {
        let of_aten = used.operator.strip_prefix("aten::");
        let name = of_aten.or_else(|| marked(&used.operator))?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let is_name = !name.is_empty() && name.len() <= LONGEST && name.bytes().all(plain);
        let is_whole = !used.call.is_empty() && !used.arguments_from_forward;
        let has_tensor = used.call.iter().any(|a| tensors(a).next().is_some());
        // Old traces have no strides, paddings and normalized shapes, which these cannot be without.
        let has_lists = || (used.call.iter()).any(|a| matches!(a, CallArgument::List { .. }));
        let takes_lists = name.contains("convolution") || name.contains("layer_norm");
        let is_whole = is_whole && (!takes_lists || has_lists());
        (is_name && is_whole && has_tensor && used.call.iter().all(is_known)).then(|| ScriptCall {
            operator: name.to_owned(),
            arguments: used.call.clone(),
        })
    }

    /// Shapes of all tensors, with their types.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (&[u64], Option<DType>)> {
        self.arguments.iter().flat_map(tensors)
    }

    pub(super) fn json(&self) -> Json {
        let arguments: Vec<Json> = self.arguments.iter().map(argument_json).collect();
        json!({ "operator": self.operator, "arguments": arguments })
    }
}

/// The operator that a function in a marker calls: `matmul` for `torch.nn.functional.matmul`.
pub(super) fn marked(function: &str) -> Option<&str> {
    let mut owners = ["torch.nn.functional.", "torch.", "Tensor."].into_iter();
    let name = owners.find_map(|owner| function.strip_prefix(owner))?;
    MARKED.contains(&name).then_some(name)
}

/// Shapes of the tensors of an argument, with their types.
pub(super) fn tensors(
    argument: &CallArgument,
) -> Box<dyn Iterator<Item = (&[u64], Option<DType>)> + '_> {
    match argument {
        CallArgument::Tensor { shape, dtype, .. } => {
            let dtype = dtype.as_deref().and_then(DType::parse);
            Box::new(std::iter::once((shape.as_slice(), dtype)))
        }
        CallArgument::List { items } => Box::new(items.iter().flat_map(tensors)),
        _ => Box::new(std::iter::empty()),
    }
}

fn is_known(argument: &CallArgument) -> bool {
    match argument {
        CallArgument::Tensor {
            shape,
            dtype,
            strides,
        } => {
            let elements = product_of(shape);
            let reach = strides.as_ref().map_or(Some(0), |strides| {
                let steps = shape.iter().zip(strides).map(|(n, stride)| {
                    u64::try_from(*stride)
                        .ok()?
                        .checked_mul(n.saturating_sub(1))
                });
                steps
                    .into_iter()
                    .try_fold(0_u64, |sum, step| sum.checked_add(step?))
            });
            let fits = |n: Option<u64>| n.is_some_and(|n| n <= MOST_ELEMENTS);
            let same_rank = strides.as_ref().is_none_or(|s| s.len() == shape.len());
            fits(elements)
                && fits(reach)
                && same_rank
                && dtype.as_deref().and_then(torch_name).is_some()
        }
        CallArgument::List { items } => items.iter().all(is_known),
        CallArgument::Number { value } => value.is_finite(),
        CallArgument::Whole { .. } | CallArgument::Flag { .. } | CallArgument::Missing => true,
    }
}

fn argument_json(argument: &CallArgument) -> Json {
    match argument {
        CallArgument::Tensor {
            shape,
            dtype,
            strides,
        } => {
            let dtype = dtype.as_deref().and_then(torch_name);
            json!({ "kind": "tensor", "dtype": dtype, "shape": shape, "strides": strides })
        }
        CallArgument::List { items } => {
            let items: Vec<Json> = items.iter().map(argument_json).collect();
            json!({ "kind": "list", "items": items })
        }
        CallArgument::Whole { value } => json!({ "kind": "value", "value": value }),
        CallArgument::Number { value } => json!({ "kind": "value", "value": value }),
        CallArgument::Flag { value } => json!({ "kind": "value", "value": value }),
        CallArgument::Missing => json!({ "kind": "value", "value": null }),
    }
}

/// What torch calls a type: `bfloat16` for `bf16`; `None` for types that a tensor cannot be made of here.
pub(super) fn torch_name(name: &str) -> Option<&'static str> {
    Some(match DType::parse(name)? {
        DType::Fp64 => "float64",
        DType::Fp32 | DType::Tf32 => "float32",
        DType::Fp16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::Int64 => "int64",
        DType::Int32 => "int32",
        DType::Int16 => "int16",
        DType::Int8 => "int8",
        DType::Uint8 => "uint8",
        DType::Bool => "bool",
        _ => return None,
    })
}

pub(super) fn product_of(sizes: &[u64]) -> Option<u64> {
    sizes
        .iter()
        .try_fold(1_u64, |product, n| product.checked_mul(*n))
}
