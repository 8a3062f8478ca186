//! Writes a Python script that rebuilds the operators of a finding and times them before and after the fix:
//! `pyprof-advise repro`.
//!
//! A profile is hostile text, so none of its text becomes code: what goes into a script are numbers, names of
//! types that are known, and names of operators of a fixed form. Everything else is left out, and said.

use serde_json::{Value as Json, json};

use crate::base::DType;
use crate::report::{BuiltIn, CallArgument, FindingReport, OperatorUse, TemplateError};
use minijinja::context;

mod fill;

const FRAME: &str = include_str!("frame.py.jinja");
/// Longest name of an operator.
const LONGEST: usize = 60;
/// Largest size of a dimension, and of all of a tensor: beyond it, no GPU holds it.
const MOST_ELEMENTS: u64 = 1 << 37;
const MATMULS: &[&str] = &["mm", "addmm", "bmm", "baddbmm", "matmul", "linear"];
const CONVOLUTIONS: &[&str] = &[
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "_convolution",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "miopen_convolution",
    "miopen_convolution_transpose",
    "convolution_backward",
];
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
];

/// What a kind puts into its code: names in `{{ }}` and the Python that stands for them, made of numbers, names
/// of types, and words of this program; or why there is no script.
type Fill = fn(&FindingReport, &[Call]) -> Result<Vec<(&'static str, String)>, &'static str>;

/// A kind of script.
#[derive(Debug)]
pub(crate) struct ScriptKind {
    /// The stem of its file in `kinds/`.
    pub(crate) name: &'static str,
    /// What is compared.
    pub(crate) about: &'static str,
    /// The rules that it is for.
    pub(crate) rules: &'static [&'static str],
    code: &'static str,
    /// The operators that it understands, in groups; none for any.
    operators: &'static [&'static [&'static str]],
    uses: Uses,
    fill: Fill,
}

/// Which operators of a finding a kind rebuilds. A report has the three longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    /// The longest.
    Longest,
    /// All.
    All,
    /// None: what it takes is in the facts of the finding.
    None,
}

macro_rules! kinds {
    ($($name:literal, $about:literal, $rules:expr, $operators:expr, $uses:ident, $fill:path;)*) => {
        /// Every kind of script.
        pub(crate) const KINDS: &[ScriptKind] = &[$(ScriptKind {
            name: $name,
            about: $about,
            rules: $rules,
            code: include_str!(concat!("kinds/", $name, ".py")),
            operators: $operators,
            uses: Uses::$uses,
            fill: $fill,
        }),*];
    };
}

kinds! {
    "algorithm", "the same convolution with cuDNN's first choice of an algorithm, and with the fastest of a search",
        &["layers/conv-fallback-algorithm", "layers/fft-convolution", "layers/naive-convolution"], &[CONVOLUTIONS],
        Longest, fill::nothing;
    "attention", "attention with its scores in memory, and the fused operator",
        &["layers/attention-unfused", "layers/softmax-unfused"], &[], All, fill::attention;
    "batched", "eight of the products or convolutions one by one, and as one",
        &["parallelism/small-grid"], &[MATMULS, CONVOLUTIONS], Longest, fill::nothing;
    "channels_last", "the same operators with the channels of images first, and last",
        &["memory/layout-transposes", "layers/batch-norm-slow"], &[], Longest, fill::nothing;
    "compiled", "the same operators one by one, and fused by torch.compile",
        &["fusion/pointwise-chain", "fusion/many-small-kernels", "fusion/dropout",
          "layers/gelu-unfused", "layers/silu-unfused", "layers/rope-unfused", "layers/gated-activation"],
        &[], All, fill::nothing;
    "copy", "copies between host and GPU from pageable memory, and from pinned memory without waiting",
        &["copies/pageable", "copies/synchronous"], &[], None, fill::copy;
    "embedding", "the gradient of an embedding table, dense and sparse",
        &["layers/embedding-gradient"], &[fill::EMBEDDINGS], Longest, fill::embedding;
    "half", "the same operators in fp32, and in 16 bits",
        &["precision/amp-off", "precision/amp-partial"], &[MATMULS, CONVOLUTIONS], Longest, fill::nothing;
    "log_softmax", "log_softmax in two steps or twice, and once",
        &["layers/double-log-softmax", "layers/log-of-softmax"], &[], Longest, fill::log_softmax;
    "loss", "the loss of all tokens at once, and compiled, in chunks of tokens",
        &["layers/large-vocabulary-loss", "layers/logits-upcast"], &[], All, fill::loss;
    "norm", "a norm in single operators, and the fused operator",
        &["layers/norm-unfused"], &[], All, fill::norm;
    "optimizer", "a step of the optimizer one by one or with foreach, and fused",
        &["layers/optimizer-foreach", "layers/optimizer-unfused"], &[], All, fill::optimizer;
    "padding", "the same products as they are, and with K and N padded to a multiple of 64",
        &["tensor-cores/gemm-unaligned", "tensor-cores/kernel-misaligned", "shapes/tile-quantization"],
        &[MATMULS], Longest, fill::nothing;
    "single", "the same operators in fp64, and in fp32",
        &["precision/fp64-leak"], &[], Longest, fill::nothing;
    "tf32", "the same operators without TF32, and with it",
        &["precision/tf32-off", "precision/tf32-off-in-convolutions"], &[MATMULS, CONVOLUTIONS], Longest, fill::nothing;
}

/// Why there is no script for a finding.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoScript {
    /// In plain words, with what to do about it.
    #[error("{0}")]
    Unknown(String),
    /// The built-in template is wrong, which the tests exclude.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// The script of a finding.
///
/// # Errors
/// When the finding is of no kind, or the profile lacks what it takes.
pub(crate) fn script(finding: &FindingReport) -> Result<String, NoScript> {
    let unknown = |why: String| Err(NoScript::Unknown(why));
    let of_rule = |kind: &&ScriptKind| kind.rules.contains(&finding.rule.as_str());
    let Some(kind) = KINDS.iter().find(of_rule) else {
        return unknown(format!(
            "no script can be written for `{}` yet; they exist for: {}",
            crate::base::text::plain(&finding.rule),
            KINDS
                .iter()
                .flat_map(|kind| kind.rules)
                .copied()
                .collect::<Vec<_>>()
                .join(", ")
        ));
    };
    let mut calls: Vec<Call> = match kind.uses {
        Uses::None => Vec::new(),
        Uses::All | Uses::Longest => operators(finding, kind),
    };
    if calls.is_empty() && kind.uses != Uses::None {
        return unknown(
            "the profile has no operator of this finding that a script can call: that takes operators of PyTorch with \
             the shapes and types of their arguments\n  \
             record them: `pyprof-advise run`, or `record_shapes=True` with torch.profiler"
                .to_owned(),
        );
    }
    let longest = calls.first().map(|call| call.operator.clone());
    calls.retain(|call| {
        let mut groups = kind.operators.iter();
        kind.operators.is_empty() || groups.any(|group| group.contains(&call.operator.as_str()))
    });
    if let Some(longest) = longest.filter(|_| calls.is_empty()) {
        return unknown(format!(
            "a script for `{}` compares {}, which is not known for the operators of this finding (`aten::{longest}`)",
            finding.rule, kind.about
        ));
    }
    if kind.uses == Uses::Longest {
        calls.truncate(1);
    }
    let mut code = kind.code.trim_end().to_owned();
    match (kind.fill)(finding, &calls) {
        Ok(values) => {
            for (name, value) in values {
                code = code.replace(&format!("{{{{ {name} }}}}"), &value);
            }
        }
        Err(why) => return unknown(why.to_owned()),
    }
    let calls: Vec<Json> = calls.iter().map(Call::json).collect();
    let calls = serde_json::to_string_pretty(&calls).unwrap_or_default();
    let frame = BuiltIn::new("frame.py.jinja", FRAME)?;
    Ok(frame.render(context! {
        version => env!("CARGO_PKG_VERSION"),
        number => finding.number,
        // One of the rules of the kind, so it is plain.
        rule => finding.rule.as_str(),
        about => kind.about,
        kind_name => kind.name,
        calls,
        kind => code,
    })?)
}

/// The operators of a finding that a script can call, the longest first.
fn operators(finding: &FindingReport, kind: &ScriptKind) -> Vec<Call> {
    let mut all = finding.evidence.operators.clone();
    if kind.name == "optimizer" {
        // Traces do not have the types of tensors in lists.
        let lists = all.iter_mut().flat_map(|used| &mut used.call);
        for argument in lists {
            if let CallArgument::List { items } = argument {
                items.iter_mut().for_each(assume_fp32);
            }
        }
    }
    all.iter().filter_map(Call::of).collect()
}

fn assume_fp32(argument: &mut CallArgument) {
    if let CallArgument::Tensor { dtype, .. } = argument
        && dtype.is_none()
    {
        *dtype = Some(DType::Fp32.name().to_owned());
    }
}

/// An operator and its arguments, checked.
#[derive(Debug, Clone)]
struct Call {
    operator: String,
    arguments: Vec<CallArgument>,
}

impl Call {
    /// The call of an operator of `aten`; `None` where something in it is not known.
    fn of(used: &OperatorUse) -> Option<Call> {
        let of_aten = used.operator.strip_prefix("aten::");
        let name = of_aten.or_else(|| marked(&used.operator))?;
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let is_name = !name.is_empty() && name.len() <= LONGEST && name.bytes().all(plain);
        let is_whole = !used.call.is_empty() && !used.arguments_from_forward;
        let has_tensor = used.call.iter().any(|a| tensors(a).next().is_some());
        // Old traces have no strides and paddings, which no convolution can be without.
        let has_lists = || (used.call.iter()).any(|a| matches!(a, CallArgument::List { .. }));
        let is_whole = is_whole && (!name.contains("convolution") || has_lists());
        (is_name && is_whole && has_tensor && used.call.iter().all(is_known)).then(|| Call {
            operator: name.to_owned(),
            arguments: used.call.clone(),
        })
    }

    /// Shapes of all tensors, with their types.
    fn tensors(&self) -> impl Iterator<Item = (&[u64], Option<DType>)> {
        self.arguments.iter().flat_map(tensors)
    }

    fn json(&self) -> Json {
        let arguments: Vec<Json> = self.arguments.iter().map(argument_json).collect();
        json!({ "operator": self.operator, "arguments": arguments })
    }
}

/// The operator that a function in a marker calls: `matmul` for `torch.nn.functional.matmul`.
fn marked(function: &str) -> Option<&str> {
    let mut owners = ["torch.nn.functional.", "torch.", "Tensor."].into_iter();
    let name = owners.find_map(|owner| function.strip_prefix(owner))?;
    MARKED.contains(&name).then_some(name)
}

/// Shapes of the tensors of an argument, with their types.
fn tensors(argument: &CallArgument) -> Box<dyn Iterator<Item = (&[u64], Option<DType>)> + '_> {
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
            let elements = shape
                .iter()
                .try_fold(1_u64, |product, n| product.checked_mul(*n));
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
fn torch_name(name: &str) -> Option<&'static str> {
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

#[cfg(test)]
mod tests;
