//! Writes a Python script that rebuilds the operators of a finding and times them before and after the fix:
//! `pyprof-advise repro`.
//!
//! A profile is hostile text, so none of its text becomes code: what goes into a script are numbers, names of
//! types that are known, and names of operators of a fixed form. Everything else is left out, and said.

use serde_json::Value as Json;

use crate::base::DType;
use crate::report::{BuiltIn, CallArgument, FindingReport, TemplateError};
use minijinja::context;

mod call;
mod fill;

use call::{MATMULS, ScriptCall, marked};

const FRAME: &str = include_str!("frame.py.jinja");
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
/// Operators whose results are rows of their input, each by itself.
const ROWS: &[&str] = &[
    "softmax",
    "_softmax",
    "log_softmax",
    "_log_softmax",
    "layer_norm",
    "native_layer_norm",
];
const BATCH_NORMS: &[&str] = &[
    "native_batch_norm",
    "native_batch_norm_backward",
    "cudnn_batch_norm",
    "cudnn_batch_norm_backward",
    "miopen_batch_norm",
    "miopen_batch_norm_backward",
];

/// What a kind puts into its code: names in `{{ }}` and the Python that stands for them, made of numbers, names
/// of types, and words of this program; or why there is no script.
type Fill = fn(&FindingReport, &[ScriptCall]) -> Result<Vec<(&'static str, String)>, &'static str>;

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
    "attention_kernels", "fused attention by the kernel that ran, and by cuDNN's or FlashAttention's",
        &["layers/flash-attention-2-on-hopper", "layers/efficient-attention"], &[fill::ATTENTION],
        Longest, fill::attention_kernels;
    "batched", "eight of the products, convolutions, softmaxes or layer norms one by one, and as one",
        &["parallelism/small-grid"], &[MATMULS, CONVOLUTIONS, ROWS], Longest, fill::with_rows;
    "reduced", "eight reductions one by one, and as one",
        &["parallelism/small-grid"], &[fill::REDUCTIONS], Longest, fill::reduced;
    "sequences", "attention of eight batches one by one, and in one call",
        &["parallelism/small-grid"], &[fill::ATTENTION], Longest, fill::sequences;
    "channels_last", "batch norm with the channels of images first, and last",
        &["parallelism/small-grid"], &[BATCH_NORMS], Longest, fill::nothing;
    "channels_last", "the operator with the channels of images first, and last, where the fix of the finding says so",
        &["memory/low-bandwidth"], &[], Longest, fill::if_channels_last;
    "channels_last", "the same operators with the channels of images first, and last",
        &["memory/layout-transposes", "layers/batch-norm-slow"], &[], Longest, fill::nothing;
    "compiled", "the same operators one by one, and fused by torch.compile",
        &["fusion/pointwise-chain", "fusion/many-small-kernels", "fusion/dropout",
          "layers/gelu-unfused", "layers/silu-unfused", "layers/rope-unfused", "layers/gated-activation"],
        &[], All, fill::nothing;
    "compiled", "the operator as it is, and by a kernel of torch.compile, where the fix of the finding says so",
        &["memory/low-bandwidth"], &[], Longest, fill::if_compiled;
    "concatenation", "a tensor that grows by eight parts, one concatenation each, and all parts concatenated once",
        &["memory/growing-concatenation"], &[&["cat"]], Longest, fill::concatenation;
    "copy", "copies between host and GPU from pageable memory, and from pinned memory without waiting",
        &["copies/pageable", "copies/synchronous"], &[], None, fill::copy;
    "embedding", "the gradient of an embedding table, dense and sparse",
        &["layers/embedding-gradient"], &[fill::EMBEDDINGS], Longest, fill::embedding;
    "foreach_norm", "norms of tensors one by one, and all together",
        &["layers/gradient-norms"], &[fill::NORMS], All, fill::nothing;
    "half", "the same operators in fp32, and in 16 bits",
        &["precision/amp-off", "precision/amp-partial"], &[MATMULS, CONVOLUTIONS], Longest, fill::nothing;
    "log_softmax", "log_softmax in two steps or twice, and once",
        &["layers/double-log-softmax", "layers/log-of-softmax"], &[], Longest, fill::log_softmax;
    "loss", "the loss of all tokens at once, and compiled, in chunks of tokens",
        &["layers/large-vocabulary-loss", "layers/logits-upcast"], &[], All, fill::loss;
    "merged", "products of one input one by one, and as one product with all weights",
        &["layers/projections-unfused"], &[MATMULS], Longest, fill::merged;
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
    "tuned", "the operator by the kernel of the library, and by the fastest that a search of torch.compile finds",
        &["tensor-cores/far-from-ideal", "parallelism/tail-wave"], &[MATMULS, CONVOLUTIONS], Longest, fill::nothing;
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
    let of_rule = |kind: &&ScriptKind| kind.rules.contains(&finding.rule.as_str());
    let kinds: Vec<(&ScriptKind, Vec<ScriptCall>)> = KINDS
        .iter()
        .filter(of_rule)
        .map(|kind| (kind, kind.operators(finding)))
        .collect();
    let Some((first, _)) = kinds.first() else {
        return Err(NoScript::Unknown(no_kind(&finding.rule)));
    };
    let all = || first.callable(finding);
    // Of several kinds, the one for the operator with the longest time.
    let longest = |calls: &[ScriptCall]| {
        let call = calls.first()?;
        all()
            .iter()
            .position(|other| other.operator == call.operator)
    };
    let mut known: Vec<_> = kinds
        .iter()
        .filter(|(kind, calls)| kind.uses == Uses::None || !calls.is_empty())
        .collect();
    known.sort_by_key(|(_, calls)| longest(calls));
    let mut scripts = known.iter().map(|(kind, calls)| kind.write(finding, calls));
    let Some(script) = scripts.next() else {
        return Err(NoScript::Unknown(match all().first() {
            Some(call) => format!(
                "scripts for `{}` compare {}; that is not known for the operators of this finding (`aten::{}`)",
                finding.rule,
                kinds
                    .iter()
                    .map(|(kind, _)| kind.about)
                    .collect::<Vec<_>>()
                    .join("; or "),
                call.operator
            ),
            None => not_callable(finding),
        }));
    };
    // The reason is that of the first.
    script.or_else(|why| scripts.find_map(Result::ok).ok_or(why))
}

/// Rules about the time between kernels that are not among those of the host.
const BETWEEN_KERNELS: &[&str] = &[
    "fusion/cuda-graph",
    "fusion/graph-breaks",
    "fusion/graph-in-pieces",
    "fusion/recompiles",
];

/// Why no script can show what a rule is about.
fn no_kind(rule: &str) -> String {
    let name = crate::base::text::plain(rule);
    let category = rule.split_once('/').map_or("", |(category, _)| category);
    match category {
        _ if category == "host" || BETWEEN_KERNELS.contains(&rule) => format!(
            "`{name}` is about the time between kernels, which operators by themselves do not show\n  \
             measure it in the program: `pyprof-advise try`, or `pyprof-advise diff` of two recordings"
        ),
        "communication" => format!(
            "`{name}` is about several GPUs, and a script runs on one\n  \
             measure it in the program: `pyprof-advise diff` of two recordings"
        ),
        "profile" => format!("`{name}` is about the recording: there is nothing to time"),
        _ => format!(
            "there is no kind of script for `{name}`: its fix needs more of the program than the operators of the \
             profile\n  the page docs/repro.md lists the rules that have one"
        ),
    }
}

/// Why no operator of a finding can be called.
fn not_callable(finding: &FindingReport) -> String {
    const RECORD: &str =
        "record shapes: `pyprof-advise run`, or `record_shapes=True` with torch.profiler";
    let Some(longest) = finding.evidence.operators.first() else {
        return format!(
            "the profile does not say which operators launched the kernels of this finding\n  {RECORD}"
        );
    };
    let name = crate::base::text::plain(&longest.operator);
    if longest.operator.strip_prefix("aten::").is_none() && marked(&longest.operator).is_none() {
        let is_function = ["torch.", "Tensor."]
            .iter()
            .any(|owner| longest.operator.starts_with(owner));
        if is_function {
            return format!(
                "the profile names only the function `{name}`, not the operators that it calls, and a script can call \
                 few functions\n  record with torch.profiler: `pyprof-advise run`"
            );
        }
        return format!(
            "a script calls operators of PyTorch only, and the longest of this finding is `{name}`"
        );
    }
    if longest.arguments_from_forward {
        return format!(
            "the profile has no arguments for the backward pass of `{name}`\n  {RECORD}"
        );
    }
    format!("the profile does not have all shapes, types and sizes that `{name}` takes\n  {RECORD}")
}

impl ScriptKind {
    /// The operators of a finding that a script can call, the longest first.
    fn callable(&self, finding: &FindingReport) -> Vec<ScriptCall> {
        let mut all = finding.evidence.operators.clone();
        if ["optimizer", "concatenation"].contains(&self.name) {
            // Traces do not have the types of tensors in lists.
            let lists = all.iter_mut().flat_map(|used| &mut used.call);
            for argument in lists {
                if let CallArgument::List { items } = argument {
                    items.iter_mut().for_each(assume_fp32);
                }
            }
        }
        all.iter().filter_map(ScriptCall::of).collect()
    }

    /// Those of them that this kind rebuilds.
    fn operators(&self, finding: &FindingReport) -> Vec<ScriptCall> {
        if self.uses == Uses::None {
            return Vec::new();
        }
        let mut calls = self.callable(finding);
        calls.retain(|call| {
            let mut groups = self.operators.iter();
            self.operators.is_empty() || groups.any(|group| group.contains(&call.operator.as_str()))
        });
        if self.uses == Uses::Longest {
            calls.truncate(1);
        }
        calls
    }

    fn write(&self, finding: &FindingReport, calls: &[ScriptCall]) -> Result<String, NoScript> {
        let mut code = self.code.trim_end().to_owned();
        match (self.fill)(finding, calls) {
            Ok(values) => {
                for (name, value) in values {
                    code = code.replace(&format!("{{{{ {name} }}}}"), &value);
                }
            }
            Err(why) => return Err(NoScript::Unknown(why.to_owned())),
        }
        let calls: Vec<Json> = calls.iter().map(ScriptCall::json).collect();
        let calls = serde_json::to_string_pretty(&calls).unwrap_or_default();
        let frame = BuiltIn::new("frame.py.jinja", FRAME)?;
        Ok(frame.render(context! {
            version => env!("CARGO_PKG_VERSION"),
            number => finding.number,
            // One of the rules of the kind, so it is plain.
            rule => finding.rule.as_str(),
            about => self.about,
            kind_name => self.name,
            calls,
            kind => code,
        })?)
    }
}

fn assume_fp32(argument: &mut CallArgument) {
    if let CallArgument::Tensor { dtype, .. } = argument
        && dtype.is_none()
    {
        *dtype = Some(DType::Fp32.name().to_owned());
    }
}

#[cfg(test)]
mod tests;
