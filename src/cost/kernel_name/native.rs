//! PyTorch kernels whose work is named by a template argument: elementwise loops, reductions, softmax,
//! multi-tensor optimizers; also kernels that Inductor generates.

use super::decoded::{DecodedName, Family, TensorCore};
use super::scan::{self, Ident, Parts};
use crate::base::DType;
use crate::profile::collective_in;

/// Memory operations that some profilers list among the kernels.
pub(super) fn memory(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    out.family = match parts.leaf.split(' ').next() {
        Some("memcpy") => Family::Memcpy,
        Some("memset") => Family::Memset,
        _ => return false,
    };
    true
}

/// Words of operators that reduce, in the list of those that Inductor fused.
const REDUCING: &[&str] = &[
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "backward",
    "conv",
    "convolution",
    "count",
    "cumsum",
    "entropy",
    "linalg",
    "loss",
    "logsumexp",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "rms",
    "softmax",
    "std",
    "sum",
    "var",
];

/// Whether a reduction of Inductor is a product of one row or column: with
/// `coordinate_descent_tuning` it computes such an `mm` as a sum (torch/_inductor/decomposition.py).
/// Where something else reduces as well, the product may be in another kernel, of which this one has
/// the padding.
fn one_row(words: &[String]) -> bool {
    let at = words.iter().position(|word| word == "mm");
    let prefix = at.and_then(|at| words.get(at.checked_sub(1)?));
    at.is_some()
        && !prefix.is_some_and(|word| matches!(word.as_str(), "int" | "scaled" | "grouped"))
        && !words.iter().any(|word| REDUCING.contains(&word.as_str()))
}

/// `triton_<kind>_fused_<ops>_<n>`: the kind determines the family. The list of fused operators
/// can contain anything: `triton_poi_fused__scaled_dot_product_...` is a pointwise kernel.
pub(super) fn inductor(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if parts.leaf.ends_with("_triton") {
        out.triton = true;
        return false;
    }
    let Some(rest) = parts.leaf.strip_prefix("triton_") else {
        return false;
    };
    out.triton = true;
    let (kind, ops) = rest.split_once('_').unwrap_or((rest, ""));
    let ops = ops.strip_prefix("fused_").unwrap_or(ops);
    let ops = ops.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let words = scan::words(ops);
    let has = |list: &[&str]| words.iter().any(|w| list.contains(&w.as_str()));
    let (family, what) = match kind {
        "poi" => (Family::Pointwise, "pointwise"),
        "for" => (Family::Pointwise, "foreach"),
        "red" if one_row(&words) => (Family::Gemm, "gemv"),
        "red" | "per" | "spl" => (Family::Reduce, "reduce"),
        "mm" | "bmm" => (Family::Gemm, "gemm"),
        "tem" if has(&["attention"]) => (Family::Attention, "attention"),
        "tem" if has(&["convolution", "conv", "conv2d"]) => (Family::Conv, "conv"),
        "tem" if has(&["mm", "bmm", "addmm", "baddbmm"]) => (Family::Gemm, "gemm"),
        _ => return false,
    };
    out.family = family;
    out.tensor_core = TensorCore::Unknown;
    if family == Family::Gemm && words.windows(2).any(|pair| pair == ["int", "mm"]) {
        out.dtype = Some(DType::Int8);
    }
    out.label = match ops {
        "" => format!("triton {what}"),
        ops => format!("triton {what}: {}", ops.trim_matches('_')),
    };
    true
}

/// Identifiers around a functor that do not identify the operation.
const WRAPPERS: &[&str] = &[
    "gpu_kernel_impl",
    "gpu_kernel_impl_nocast",
    "gpu_kernel",
    "gpu_index_kernel",
    "gpu_kernel_with_scalars",
    "opmath_gpu_kernel_with_scalars",
    "opmath_symmetric_gpu_kernel_with_scalars",
    "BinaryFunctor",
    "AUnaryFunctor",
    "BUnaryFunctor",
    "func_wrapper_t",
    "func_wrapper",
    "ReduceOp",
    "lambda",
    "instance",
    "operator",
    "TensorIteratorBase",
    "TensorIterator",
    "Array",
    "array",
    "void",
    "const",
    "unsigned",
    "signed",
    "char",
    "true",
    "false",
    "complex",
    "OpaqueType",
    "TensorListMetadata",
    "TensorListScalarListMetadata",
    "FusedOptimizerTensorListMetadata",
    "TrivialOffsetCalculator",
    "OffsetCalculator",
    "size_t",
    "type",
    "binary_kernel_reduce_traits",
    "anonymous",
    "namespace",
    "unnamed",
];

/// The identifier of the functor in an elementwise, reduce or multi-tensor kernel.
fn functor(args: &str) -> Option<Ident<'_>> {
    scan::idents(args).find(|id| {
        let text = id.text;
        let generic = text
            .strip_prefix('T')
            .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        !id.after.starts_with("::")
            && !text.starts_with(|c: char| c.is_ascii_digit())
            && !generic
            && scan::cxx_type(text).is_none()
            && !WRAPPERS.contains(&text)
    })
}

/// The operator of a functor: `CUDAFunctor_add`, `sigmoid_backward_kernel_cuda`, `MulFunctor` become
/// `add`, `sigmoid_backward`, `mul`.
pub(super) fn op_name(ident: &str) -> String {
    const ENDS: [&str; 12] = [
        "_kernel_cuda",
        "_cuda_kernel",
        "_kernel_impl",
        "_kernel",
        "_cuda",
        "_impl",
        "_cuda_out",
        "_functor",
        "_math",
        "_ops",
        "_op",
        "_internal",
    ];
    const STARTS: [&str; 7] = [
        "cuda_functor_on_self_",
        "cuda_functor_on_other_",
        "cuda_functor_",
        "launch_",
        "tensor_",
        "gpu_",
        "cuda_",
    ];
    let ident = ident.trim_start_matches('_');
    let mut name = scan::words(ident).join("_");
    loop {
        let before = name.len();
        for end in ENDS {
            if let Some(short) = name.strip_suffix(end)
                && !short.is_empty()
            {
                name = short.to_owned();
            }
        }
        for start in STARTS {
            if let Some(short) = name.strip_prefix(start)
                && !short.is_empty()
            {
                name = short.to_owned();
            }
        }
        if name.len() == before {
            break;
        }
    }
    SAME_AS
        .iter()
        .find(|s| s.0 == name)
        .map_or(name, |s| s.1.to_owned())
}

/// Functor names that differ from the operator's name.
const SAME_AS: &[(&str, &str)] = &[
    ("direct_copy", "copy"),
    ("copy_device_to_device", "copy"),
    ("multiplies", "mul"),
    ("plus", "add"),
    ("minus", "sub"),
    ("divides", "div"),
    ("mul_scalar", "mul"),
    ("pow_tensor_scalar", "pow"),
    ("pow_tensor_tensor", "pow"),
    ("clamp_scalar", "clamp"),
    ("clamp_min_scalar", "clamp_min"),
    ("clamp_max_scalar", "clamp_max"),
    ("compare_eq", "eq"),
    ("compare_scalar", "compare"),
    ("div_true", "div"),
    ("threshold", "threshold"),
    ("norm_two", "norm"),
    ("arg_max", "argmax"),
    ("arg_min", "argmin"),
    ("welford", "var"),
    ("and", "all"),
    ("or", "any"),
];

/// Families of elementwise operators other than plain arithmetic, by the start of the name.
const OPERATORS: &[(&str, Family)] = &[
    ("copy", Family::Copy),
    ("fill", Family::Fill),
    ("arange", Family::Fill),
    ("linspace", Family::Fill),
    ("range", Family::Fill),
    ("mse", Family::Loss),
    ("smooth_l1", Family::Loss),
    ("huber", Family::Loss),
    ("binary_cross_entropy", Family::Loss),
    ("kl_div", Family::Loss),
    ("bernoulli", Family::Random),
    ("uniform", Family::Random),
    ("normal", Family::Random),
    ("random", Family::Random),
    ("exponential", Family::Random),
    ("dropout", Family::Dropout),
    ("fused_dropout", Family::Dropout),
    ("masked_scale", Family::Dropout),
    ("index", Family::Index),
    ("scatter", Family::Index),
    ("gather", Family::Index),
    ("masked_scatter", Family::Index),
    ("take", Family::Index),
    ("put", Family::Index),
    ("flip", Family::Copy),
    ("batch_norm", Family::Norm),
    ("layer_norm", Family::Norm),
    ("quantize", Family::Quantize),
    ("dequantize", Family::Quantize),
    ("fake_quant", Family::Quantize),
    ("float_to_hfp8", Family::Quantize),
    ("hfp8_to_float", Family::Quantize),
    ("upsample", Family::Interpolate),
    ("grid_sampler", Family::Interpolate),
];

/// Elementwise loops by the start of the base name, and whether they read strided memory. `Loops.cuh`:
/// contiguous operands use the `vectorized_` or `unrolled_` kernels, all others the plain kernel.
const LOOPS: &[(&str, Option<bool>)] = &[
    ("vectorized_elementwise_kernel", Some(false)),
    ("vectorized_templated_elementwise_kernel", Some(false)),
    ("unrolled_elementwise_kernel", None),
    ("elementwise_kernel_with_index", Some(false)),
    ("elementwise_kernel_manual_unroll", Some(true)),
    ("elementwise_kernel", Some(true)),
    ("index_elementwise_kernel", None),
    ("_scatter_gather_elementwise_kernel", None),
    ("_elemwise_kernel", None),
    ("distribution_elementwise_grid_stride_kernel", None),
    ("distribution_binary_elementwise_kernel", None),
    ("kernelpointwiseapply", None),
];

/// Elementwise kernels; the functor names the operator.
pub(super) fn elementwise(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.as_str();
    let Some((base, strided)) = LOOPS.iter().find(|l| leaf.starts_with(l.0)) else {
        return false;
    };
    out.strided = match *base {
        "unrolled_elementwise_kernel" => offsets(parts.args),
        _ => *strided,
    };
    out.per_thread = per_thread(base, parts.args);
    let found = functor(parts.args);
    let op = found.map(|f| op_name(f.text)).unwrap_or_default();
    out.dtype = found
        .and_then(|f| lambda_type(f.after))
        .or_else(|| {
            let start = found.map(|f| f.before.rfind("Functor<").unwrap_or(f.before.len()))?;
            scan::first_type(parts.args.get(start..).unwrap_or_default(), false)
        })
        .or_else(|| scan::first_type(parts.args, false));
    out.family = OPERATORS
        .iter()
        .find(|o| {
            op.strip_prefix(o.0)
                .is_some_and(|r| r.is_empty() || r.starts_with('_'))
        })
        .map_or(Family::Pointwise, |o| o.1);
    match *base {
        b if b.starts_with("distribution") => out.family = Family::Random,
        "index_elementwise_kernel" | "_scatter_gather_elementwise_kernel" => {
            out.family = Family::Index;
        }
        _ => {}
    }
    if out.family == Family::Index {
        // The types around it are offset types.
        out.dtype = found.and_then(|f| scan::first_type(scan::own_args(f.after), false));
    }
    out.label = match (op.as_str(), out.family) {
        ("", _) => "elementwise".to_owned(),
        (op, Family::Random) => format!("random: {}", op.trim_end_matches("_and_transform")),
        (op, Family::Index) if op.starts_with("index") => op.to_owned(),
        (op, Family::Index) => format!("index: {op}"),
        (op, _) => format!("elementwise: {op}"),
    };
    copies(&op, parts.args, out);
    true
}

/// The template argument with the number of elements per thread
/// (ATen/native/cuda/CUDALoops.cuh).
fn per_thread(base: &str, args: &str) -> Option<u32> {
    let at = match base {
        "vectorized_elementwise_kernel" => 0,
        "elementwise_kernel" | "elementwise_kernel_manual_unroll" => 1,
        // Older releases have a type there.
        "unrolled_elementwise_kernel" => 2,
        _ => return None,
    };
    scan::number(scan::split_args(args).get(at)?)
}

/// The element type that a lambda inside a host function takes, from the text after the function's
/// name. The parameters of the function come first and are not elements: the `double` momentum of
/// `batch_norm_update_stats_and_invert(..., double, double, long)::{lambda(float, float, c10::BFloat16,
/// c10::BFloat16)#1}`.
fn lambda_type(after: &str) -> Option<DType> {
    const LAMBDA: &str = "lambda(";
    let end = scan::skip(after.as_bytes(), 0);
    let parameters = match after.as_bytes().first()? {
        b'<' => after.get(end..)?,
        _ => after,
    };
    if !parameters.starts_with('(') {
        return None;
    }
    after
        .match_indices(LAMBDA)
        .filter_map(|(at, _)| {
            let from = after.get(at..)?;
            let end = scan::skip(from.as_bytes(), LAMBDA.len() - 1);
            from.get(..end)
        })
        .filter(|list| list.len() > LAMBDA.len() + 1)
        .find_map(|list| scan::first_type(list, false))
}

/// Whether memory is strided: `TrivialOffsetCalculator` means contiguous, `OffsetCalculator` strided.
fn offsets(args: &str) -> Option<bool> {
    let mut seen = None;
    for id in scan::idents(args) {
        match id.text {
            "OffsetCalculator" => return Some(true),
            "TrivialOffsetCalculator" => seen = Some(false),
            _ => {}
        }
    }
    seen
}

/// Distinguishes copies that change the element type from those that only move data.
fn copies(op: &str, args: &str, out: &mut DecodedName) {
    const NAMED: [(&str, &str, DType); 4] = [
        ("bfloat16_copy", "float -> bf16", DType::Bf16),
        ("float16_copy", "float -> fp16", DType::Fp16),
        ("bfloat16tofloat32_copy", "bf16 -> float", DType::Fp32),
        ("float16tofloat32_copy", "fp16 -> float", DType::Fp32),
    ];
    if let Some((_, change, to)) = NAMED.iter().find(|n| n.0 == op) {
        out.family = Family::Cast;
        out.dtype = Some(*to);
        out.label = format!("elementwise: copy ({change})");
    } else if op.starts_with("float8_copy") || op.starts_with("float8") && op.ends_with("_copy") {
        out.family = Family::Cast;
        out.dtype = Some(DType::Fp8);
        out.label = "elementwise: copy (-> fp8)".to_owned();
    } else if op == "copy" && args.contains("LoadWithCast") {
        out.family = Family::Cast;
        out.label = match out.dtype {
            Some(to) => format!("elementwise: copy (-> {to})"),
            None => "elementwise: copy (cast)".to_owned(),
        };
    }
}

/// `reduce_kernel<512, 1, ReduceOp<float, MeanOps<float, ...>, ...>>`.
pub(super) fn reduce(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if parts.leaf != "reduce_kernel" || !parts.path.starts_with("at::") {
        return false;
    }
    out.family = Family::Reduce;
    let from = parts.args.find("ReduceOp").unwrap_or(0);
    let args = parts.args.get(from..).unwrap_or_default();
    out.dtype = scan::first_type(args, false);
    out.label = match functor(args).map(|f| op_name(f.text)) {
        Some(op) => format!("reduce: {op}"),
        None => "reduce".to_owned(),
    };
    true
}

/// `cunn_SoftMaxForward<...LogSoftMaxForwardEpilogue>`, `softmax_warp_forward<..., is_log, ...>`.
pub(super) fn softmax(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.as_str();
    let warp = leaf.starts_with("softmax_warp_");
    let block = leaf.contains("cunn_softmax") || leaf.contains("cunn_spatialsoftmax");
    if !(warp || block) {
        return false;
    }
    out.family = Family::Softmax;
    out.dtype = scan::first_type(parts.args, true);
    let args = scan::split_args(parts.args);
    // softmax_warp_forward<input, output, accumulator, log2_elements, is_log_softmax, ...>
    let log = leaf.contains("logsoftmax")
        || (block && parts.args.contains("LogSoftMax"))
        || (warp && args.get(4).and_then(|a| scan::flag(a)) == Some(true));
    let what = if log { "log_softmax" } else { "softmax" };
    let direction = if leaf.contains("backward") {
        "backward"
    } else {
        "forward"
    };
    out.label = format!("{what} {direction}");
    true
}

/// `multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, ...>`: optimizers and
/// `_foreach_` operators, of PyTorch and Apex.
pub(super) fn multi_tensor(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if !parts.leaf.starts_with("multi_tensor_apply_kernel") {
        return false;
    }
    let op = functor(parts.args).map(|f| (op_name(f.text), f));
    out.dtype = op
        .as_ref()
        .and_then(|(_, f)| scan::first_type(f.after, false));
    let copy = op.as_ref().is_some_and(|(op, f)| {
        op == "copy" || (op == "unary" && scan::idents(f.after).any(|i| i.text == "Copy"))
    });
    let op = op.map(|(op, f)| list_op(&op, f.after).map_or(op, str::to_owned));
    let op = op.unwrap_or_default();
    out.family = match op.as_str() {
        _ if copy => Family::Copy,
        "zero" => Family::Fill,
        _ => Family::Optimizer,
    };
    out.label = match op.as_str() {
        "" => "foreach".to_owned(),
        _ if copy => "foreach: copy".to_owned(),
        op => format!("foreach: {op}"),
    };
    true
}

/// The operator of a functor for lists of tensors, by the operation in its arguments:
/// `PointwiseOpScalarListFunctor<...>, std::divides<float>` is `addcdiv`
/// (ATen/native/cuda/ForeachFunctors.cuh).
fn list_op(functor: &str, after: &str) -> Option<&'static str> {
    const BINARY: [(&str, &str); 6] = [
        ("plus", "add"),
        ("minus", "sub"),
        ("multiplies", "mul"),
        ("divides", "div"),
        ("maximum", "maximum"),
        ("minimum", "minimum"),
    ];
    const POINTWISE: [(&str, &str); 2] = [("multiplies", "addcmul"), ("divides", "addcdiv")];
    const TERNARY: [(&str, &str); 1] = [("LerpFunctor", "lerp")];
    const UNARY: [(&str, &str); 3] = [("Sqrt", "sqrt"), ("Rsqrt", "rsqrt"), ("Sign", "sign")];
    let operations: &[(&str, &str)] = match functor {
        f if f.starts_with("binary_op") => &BINARY,
        f if f.starts_with("pointwise_op") => &POINTWISE,
        f if f.starts_with("ternary_op") => &TERNARY,
        f if f.starts_with("unary") => &UNARY,
        _ => return None,
    };
    scan::idents(after).find_map(|id| {
        let named = operations.iter().find(|o| o.0 == id.text)?;
        Some(named.1)
    })
}

/// Collective communication: NCCL, RCCL, and custom kernels of serving engines.
pub(super) fn communication(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    // Communication of one rank with others whose names name no collective.
    const CUSTOM: [&str; 3] = ["nvshmem", "userbuffers", "lamport"];
    // The exchanges between experts.
    const EXCHANGES: [&str; 2] = ["dispatch", "combine"];
    let leaf = parts.leaf.as_str();
    let nccl = ["nccl", "rccl", "msccl"]
        .iter()
        .find(|p| leaf.starts_with(**p));
    let expert = ["deep_ep::", "dpsk::ep::", "nvshmem"]
        .iter()
        .any(|p| parts.path.starts_with(p));
    let collective = collective_in(parts.name());
    let custom = (CUSTOM.iter().any(|c| leaf.contains(c))
        || matches!(
            collective,
            Some("all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all")
        ))
        && !scan::words(parts.name())
            .iter()
            .any(|w| w == "copy" || w == "triton");
    if nccl.is_none() && !expert && !custom {
        return false;
    }
    out.family = Family::Communication;
    out.persistent = true;
    let exchange = || {
        EXCHANGES
            .iter()
            .any(|c| leaf.contains(c))
            .then_some("all_to_all")
    };
    out.collective = collective
        .or_else(exchange)
        .filter(|c| nccl.is_some() || expert || *c != "reduce");
    // NCCL names every send and receive `int8_t`, whatever the element type.
    if out.collective != Some("send_recv") {
        // From NCCL 2.19 on, the type stands before algorithm and protocol: `Sum_f32_RING_LL`.
        let of_word = |word: &str| match word {
            "float" | "f32" => Some(DType::Fp32),
            "half" | "f16" => Some(DType::Fp16),
            "bfloat16" | "bf16" => Some(DType::Bf16),
            "double" | "f64" => Some(DType::Fp64),
            "f8e4m3" | "f8e5m2" => Some(DType::Fp8),
            _ => None,
        };
        let in_name = leaf.rsplit('_').find_map(of_word);
        out.dtype = in_name.or_else(|| scan::first_type(parts.args, true));
    }
    if let Some(library) = nccl {
        out.label = format!("{library} {}", out.collective.unwrap_or("collective"));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functor_names_are_converted_to_operator_names() {
        for (ident, op) in [
            ("CUDAFunctor_add", "add"),
            ("CUDAFunctorOnSelf_add", "add"),
            ("MulFunctor", "mul"),
            ("sigmoid_backward_kernel_cuda", "sigmoid_backward"),
            ("direct_copy_kernel_cuda", "copy"),
            ("launch_clamp_scalar", "clamp"),
            ("GeluCUDAKernelImpl", "gelu"),
            ("addcmul_cuda_kernel", "addcmul"),
            ("where_kernel_impl", "where"),
            ("pow_tensor_scalar_kernel_impl", "pow"),
            ("BinaryOpListAlphaFunctor", "binary_op_list_alpha"),
            ("TensorEQOp", "eq"),
            ("NormTwoOps", "norm"),
            ("FillFunctor", "fill"),
            ("", ""),
        ] {
            assert_eq!(op_name(ident), op, "{ident}");
        }
    }

    #[test]
    fn no_operator_or_loop_row_hides_another() {
        for (i, row) in LOOPS.iter().enumerate() {
            let hit = LOOPS.iter().position(|r| row.0.starts_with(r.0));
            assert_eq!(hit, Some(i), "{} is shadowed", row.0);
        }
        let mut names: Vec<_> = OPERATORS.iter().map(|o| o.0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPERATORS.len());
    }
}
