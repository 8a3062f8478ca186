//! Kernels known by name, and words that indicate a family if nothing else matches.

use super::decoded::{DecodedName, Family, TensorCore};
use super::scan::{self, Parts};

/// The part of a name in which a row's text must occur. All lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamePart {
    /// The last segment of the base name starts with it.
    Starts,
    /// The last segment contains it.
    Has,
    /// The base name with its namespaces contains it.
    Path,
    /// The template arguments contain it (case-sensitive).
    Args,
}

/// A part of a name, the text in it, the family, and the label for reports; if that is empty, the kernel's
/// name is the label.
type Row = (NamePart, &'static str, Family, &'static str);

/// Kernels of GEMM and convolution libraries that do no math. They are matched first, because their
/// names contain those of the kernels that they belong to.
const HELPERS: &[Row] = {
    use Family::{Helper, Layout};
    use NamePart::{Has, Path, Starts};
    &[
        (Has, "splitkreduce", Helper, "split-K reduction"),
        (Starts, "split_k_kernel", Helper, "split-K reduction"),
        (Has, "reducesplitk", Helper, "split-K reduction"),
        (Has, "reduce_wgrad", Helper, "wgrad reduction"),
        (Starts, "reduce_1block_kernel", Helper, ""),
        (Path, "epilogue::impl", Helper, "GEMM epilogue"),
        (Path, "cublaslt::epilogue", Helper, "GEMM epilogue"),
        (Starts, "scal_kernel", Helper, "GEMM scaling"),
        (Has, "nchwtonhwc", Layout, "layout: NCHW -> NHWC"),
        (Has, "nhwctonchw", Layout, "layout: NHWC -> NCHW"),
        (Has, "nchw2nhwc", Layout, "layout: NCHW -> NHWC"),
        (Has, "nhwc2nchw", Layout, "layout: NHWC -> NCHW"),
        (Has, "nchwaddpadding", Layout, "layout: padding"),
        (Has, "foldednhwc", Layout, "layout: folded NHWC"),
        // cuDNN: copies a tensor and changes its type or its layout.
        (Starts, "converttensor_kernel", Layout, "layout: convert"),
        // cuTENSOR, by which TensorRT shuffles dimensions.
        (
            Path,
            "cutensor_namespace::permutation",
            Layout,
            "layout: permutation",
        ),
        (Starts, "genericreformat", Layout, "layout: reformat"),
        (Starts, "batched_transpose_", Layout, "layout: transpose"),
        (Starts, "transpose_nchw2", Layout, "layout: transpose"),
        (Starts, "transpose_cnhw2", Layout, "layout: transpose"),
        (Starts, "tensortransform", Layout, "layout: transform"),
        (Has, "winogradforwarddata", Helper, ""),
        (Has, "winogradforwardfilter", Helper, ""),
        (Has, "winogradforwardoutput", Helper, ""),
        (Has, "winogradwgrad", Helper, ""),
        (Has, "winogradtiles", Helper, ""),
        (Has, "winogradbackward", Helper, ""),
        (Starts, "computeoffsets", Helper, "conv offsets"),
        (Starts, "computeboffsets", Helper, "conv offsets"),
        (Starts, "computewgrad", Helper, "conv offsets"),
        (Has, "precompute_indices", Helper, "conv indices"),
        (Has, "precomputed_indices", Helper, "conv indices"),
        (Has, "compute_gemm_pointers", Helper, ""),
        (Starts, "fft1d_", Helper, ""),
        (Starts, "fft2d_", Helper, ""),
        (Starts, "flip_filter", Helper, ""),
        (Has, "im2col", Helper, ""),
        (Has, "im2d2col", Helper, ""),
        (Has, "col2im", Helper, ""),
        (Starts, "scalepackedtensor", Helper, ""),
        (Starts, "subtensorop", Helper, ""),
        (Starts, "optensor", Helper, ""),
        (Has, "finalize", Helper, ""),
    ]
};

/// Kernels by name. The first matching row applies, so special names precede the words that they
/// contain.
const KERNELS: &[Row] = {
    use Family::{
        Cat, Copy, Dropout, Embedding, Fill, Fused, Gemm, Index, Interpolate, Loss, Norm,
        Optimizer, Pointwise, Pool, Quantize, Random, Reduce, Rnn, Scan, Sort,
    };
    use NamePart::{Args, Has, Path, Starts};
    &[
        (Has, "catarraybatchedcopy", Cat, "cat"),
        (Has, "chunk_cat", Cat, "cat"),
        (Has, "upsample_", Interpolate, ""),
        (Has, "grid_sampler", Interpolate, ""),
        // Names that contain words of other families.
        (Has, "rotary", Pointwise, ""),
        (Has, "bn_fw_", Norm, ""),
        (Has, "bn_bw_", Norm, ""),
        (Has, "batchnorm", Norm, ""),
        (Has, "batch_norm", Norm, ""),
        (Has, "layer_norm", Norm, ""),
        (Has, "layernorm", Norm, ""),
        (Has, "groupnorm", Norm, ""),
        (Has, "group_norm", Norm, ""),
        (Has, "rmsnorm", Norm, ""),
        (Has, "rms_norm", Norm, ""),
        (Has, "gammabetabackward", Norm, ""),
        (Has, "rowwisemoments", Norm, ""),
        (Has, "gradgammabeta", Norm, ""),
        (Starts, "cucomputegradinput", Norm, ""),
        (Has, "fusedparams", Norm, ""),
        (Has, "computeinternalgradients", Norm, ""),
        (Has, "weight_norm", Norm, ""),
        (Starts, "ln_fwd", Norm, ""),
        (Starts, "ln_bwd", Norm, ""),
        (Args, "Rmsnorm2d", Norm, "rmsnorm"),
        (Args, "Layernorm2d", Norm, "layernorm"),
        (Has, "nll_loss", Loss, ""),
        (Has, "classnllcriterion", Loss, ""),
        (Has, "ctc_loss", Loss, ""),
        (Has, "cross_entropy", Loss, ""),
        (Has, "marginloss", Loss, ""),
        (Has, "multilabelmargin", Loss, ""),
        (Starts, "rnn_", Rnn, ""),
        (Has, "persistrnn", Rnn, ""),
        (Path, "cudnn::rnn", Rnn, ""),
        (Has, "lstm", Rnn, ""),
        (Has, "gru_", Rnn, ""),
        (Has, "elemwisernncell", Rnn, ""),
        (Has, "dropout", Dropout, ""),
        (Has, "masked_scale", Dropout, ""),
        (Has, "fused_adam", Optimizer, ""),
        (Has, "fusedadam", Optimizer, ""),
        (Has, "amp_foreach", Optimizer, "amp: unscale"),
        (Has, "amp_non_finite_check", Optimizer, "amp: unscale"),
        (Has, "amp_update_scale", Optimizer, "amp: update scale"),
        (Has, "lamb_stage", Optimizer, ""),
        // nvFuser names a kernel after the heuristic that scheduled it
        // (csrc/scheduler/scheduler_types.h of NVIDIA/Fuser). Persistent kernels keep their input in
        // registers for a second pass: a reduction and what is done with its result.
        (Starts, "nvfuser_pointwise", Pointwise, ""),
        (Starts, "nvfuser_transpose", Pointwise, ""),
        (Starts, "nvfuser_resize", Pointwise, ""),
        (Starts, "nvfuser_matmul", Gemm, ""),
        (Starts, "nvfuser_reduction", Reduce, ""),
        (Starts, "nvfuser_inner_", Reduce, ""),
        (Starts, "nvfuser_outer_", Reduce, ""),
        (Starts, "nvfuser_", Fused, ""),
        // TensorRT's graph compiler.
        (Starts, "__myl_", Fused, ""),
        // Before PyTorch 2.2, kernels of torch.compile had only a signature for a name.
        (Starts, "triton__0", Fused, ""),
        (Has, "quantize", Quantize, ""),
        (Has, "cast_to_fp8", Quantize, ""),
        (Has, "cast_and_transpose", Quantize, ""),
        (Has, "cast_transpose", Quantize, ""),
        (Has, "fp8_quant", Quantize, ""),
        (Has, "_quant_", Quantize, ""),
        (Has, "fp8rowwise_to_float", Quantize, ""),
        (Has, "get_fp8_qparam", Quantize, ""),
        (Starts, "split_embedding", Embedding, ""),
        (Has, "embedding_bag", Embedding, ""),
        (Starts, "embedding_", Embedding, ""),
        (Has, "lookuptable", Embedding, ""),
        (Starts, "indexselect", Embedding, "index_select"),
        (Has, "compute_grad_weight", Embedding, ""),
        (Has, "krn_partial", Embedding, ""),
        (Starts, "linearize_index", Embedding, ""),
        (Starts, "bounds_check_indices", Embedding, ""),
        (Starts, "sum_and_scatter", Embedding, ""),
        (Has, "permute_pooled_embs", Copy, ""),
        (Has, "block_bucketize", Index, ""),
        (Has, "permute_2d_", Index, ""),
        (Has, "permute_indices", Index, ""),
        (Has, "permute_1d_", Index, ""),
        (Has, "offsets_range", Index, ""),
        (Starts, "to_dense_representation", Index, ""),
        // torch.repeat_interleave
        (Starts, "compute_cuda_kernel", Index, "repeat_interleave"),
        (Has, "indexing_backward", Index, ""),
        (Starts, "indexfunc", Index, ""),
        (Has, "index_put", Index, ""),
        (Has, "scatter_gather", Index, ""),
        (Has, "gathertopk", Sort, "topk"),
        (Path, "sbtopk", Sort, "topk"),
        (Path, "mbtopk", Sort, "topk"),
        (Has, "topk", Sort, "topk"),
        (Has, "vectorized_gather", Index, "gather"),
        (Has, "searchsorted", Index, ""),
        (Has, "write_indices", Index, ""),
        (Has, "kv_indices", Index, ""),
        (Has, "page_indices", Index, ""),
        (Has, "future_token_ids", Index, ""),
        // Keys and values are scattered into their slots, so this is not an avoidable copy.
        (Has, "reshape_and_cache", Index, ""),
        (Has, "store_kvcache", Index, ""),
        (Has, "copy_blocks", Copy, ""),
        (Has, "copy_device_to_device", Copy, ""),
        (Has, "split_with_sizes_copy", Copy, ""),
        (Starts, "recat_copy", Copy, ""),
        (Has, "radixsort", Sort, "radix sort"),
        (Has, "radix_sort", Sort, "radix sort"),
        (Has, "bitonicsort", Sort, ""),
        (Has, "mergesort", Sort, ""),
        (Has, "devicescan", Scan, "scan"),
        (Has, "devicecompact", Sort, ""),
        (Has, "deviceselect", Sort, ""),
        (Has, "devicepartition", Sort, ""),
        (Has, "devicereducebykey", Sort, "reduce by key"),
        (Has, "devicerunlength", Sort, ""),
        (Has, "devicehistogram", Sort, ""),
        (Has, "kernel_scan_", Scan, "scan"),
        (Has, "scan_innermost", Scan, "scan"),
        (Has, "scan_outer", Scan, "scan"),
        (Path, "rocprim", Sort, ""),
        // Thrust before CUDA 12: one kernel name for all algorithms, with the algorithm as its argument.
        (Args, "__merge_sort", Sort, "thrust: merge sort"),
        (Args, "__radix_sort", Sort, "thrust: radix sort"),
        (Args, "__scan", Scan, "thrust: scan"),
        (Args, "__unique", Sort, "thrust: unique"),
        (Args, "__reduce", Reduce, "thrust: reduce"),
        (Args, "__parallel_for", Pointwise, "thrust: for each"),
        (Path, "moe::dev::routing", Sort, ""),
        (Has, "moe_align_block_size", Sort, ""),
        // Routing of DeepSeek's experts (github.com/deepseek-ai/TileKernels, moe/): which token goes where,
        // the copies there and back, and the statistic that balances the load.
        (Has, "clean_and_count_expert", Sort, ""),
        (Has, "get_fused_mapping", Sort, ""),
        (Has, "expand_to_fused", Index, ""),
        (Has, "reduce_fused", Index, ""),
        (Starts, "aux_fi", Reduce, ""),
        (Has, "cast_back", Quantize, ""),
        // torchvision: which boxes overlap.
        (Starts, "nms_kernel", Sort, ""),
        (Has, "combined_routing_memset", Fill, ""),
        (Has, "combined_routing", Sort, ""),
        (Has, "devicereduce", Reduce, "reduce"),
        (Starts, "kernelreduceall", Reduce, "reduce"),
        (Has, "bitmatrix_rows", Reduce, ""),
        (Has, "max_pool", Pool, ""),
        (Has, "avg_pool", Pool, ""),
        (Has, "average_pool", Pool, ""),
        (Has, "adaptivemaxpool", Pool, ""),
        (Has, "adaptiveaveragepool", Pool, ""),
        (Starts, "pooling_", Pool, ""),
        (Starts, "mlopooling", Pool, ""),
        (Has, "act_and_mul", Pointwise, ""),
        (Has, "clamp_position", Pointwise, ""),
        (Has, "compute_position", Index, ""),
        (Has, "triu_tril", Pointwise, "triu / tril"),
        (Starts, "op1dtensor", Pointwise, ""),
        (Starts, "op2dtensor", Pointwise, ""),
        (Starts, "op3dtensor", Pointwise, ""),
        (Starts, "op4dtensor", Pointwise, ""),
        (Path, "cudnn::ops::op_tensor", Pointwise, ""),
        (Has, "add_tensor_kernel", Pointwise, ""),
        (Has, "activation_fw", Pointwise, ""),
        (Has, "activation_bw", Pointwise, ""),
        (Has, "transform_bias_rescale_qkv", Pointwise, ""),
        (Has, "randperm", Random, ""),
        (Has, "philox", Random, ""),
        (Has, "roll_cuda", Copy, ""),
        (Has, "flip_cuda", Copy, ""),
    ]
};

/// Families by a word of the last segment (`lamb` is not in `lambda`), for kernels that are not listed: user
/// code, Triton, new libraries.
const WORDS: &[(Family, &[&str])] = {
    use Family::{
        Attention, Cat, Conv, Copy, Dropout, Embedding, Fill, Gemm, Index, Interpolate, Loss, Norm,
        Optimizer, Pointwise, Pool, Quantize, Random, Reduce, Rnn, Scan, Softmax, Sort,
    };
    &[
        (Softmax, &["softmax", "logsoftmax"]),
        (Norm, &["norm", "layernorm", "rmsnorm"]),
        (Dropout, &["dropout"]),
        (Attention, &["attention", "attn", "mha", "sdpa"]),
        (Gemm, &["gemm", "gemv", "matmul", "bmm", "mm", "moe"]),
        (Conv, &["conv", "conv1d", "conv2d", "conv3d", "convolution"]),
        (Rnn, &["rnn"]),
        (Optimizer, &["adam", "adamw", "sgd", "lamb"]),
        (Loss, &["loss", "entropy"]),
        (Embedding, &["embedding"]),
        (Quantize, &["quant", "dequant", "quantize", "dequantize"]),
        (Interpolate, &["interpolate", "upsample"]),
        (Pool, &["pool", "pooling"]),
        (Sort, &["sort", "topk", "unique"]),
        (Scan, &["scan", "cumsum"]),
        (Index, &["gather", "scatter", "index", "indices"]),
        (Cat, &["cat", "concat"]),
        (Fill, &["fill", "memset", "zero"]),
        (Copy, &["copy", "transpose", "permute"]),
        (Random, &["random"]),
        (Reduce, &["reduce", "reduction", "sum", "mean"]),
        (Pointwise, &["elementwise", "pointwise", "add", "mul"]),
        (Pointwise, &["relu", "gelu", "silu", "swiglu", "rope"]),
        (Pointwise, &["activation", "mask"]),
    ]
};

/// The first row that matches a name.
fn find(rows: &'static [Row], parts: &Parts<'_>) -> Option<&'static Row> {
    rows.iter().find(|(at, text, ..)| match at {
        NamePart::Starts => parts.leaf.starts_with(text),
        NamePart::Has => parts.leaf.contains(text),
        NamePart::Path => parts.path.contains(text),
        NamePart::Args => parts.args.contains(text),
    })
}

fn apply(family: Family, label: &str, parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    out.family = family;
    out.dtype = out.dtype.or_else(|| scan::first_type(parts.args, true));
    if !label.is_empty() {
        out.label = label.to_owned();
    }
    true
}

/// Auxiliary kernels of a GEMM, a convolution or attention.
pub(super) fn helpers(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let Some((.., family, label)) = find(HELPERS, parts) else {
        return false;
    };
    out.helper = true;
    out.split_k = parts.leaf.contains("splitk");
    out.fast_conv = parts.leaf.contains("winograd") || parts.leaf.starts_with("fft");
    apply(*family, label, parts, out)
}

/// Kernels by name.
pub(super) fn kernels(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let Some((.., family, label)) = find(KERNELS, parts) else {
        return false;
    };
    if *family == Family::Rnn {
        out.persistent = parts.leaf.contains("persist");
        // The other recurrent cuDNN kernels do the pointwise part of a cell; its GEMMs are cuBLAS
        // kernels.
        if !out.persistent {
            out.tensor_core = TensorCore::No;
        }
    }
    apply(*family, label, parts, out)
}

/// Kernels by the words in their name, the last attempt.
pub(super) fn words(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let words = scan::words(parts.name());
    let has = |known: &&str| words.iter().any(|word| word == known);
    let mut found = WORDS.iter().find(|(_, known)| known.iter().any(has));
    // `MatMulKernel`, `MatrixMulCUDA`: no multiplication of elements.
    let product = words
        .windows(2)
        .any(|pair| pair == ["mat", "mul"] || pair == ["matrix", "mul"]);
    if product && found.is_some_and(|(family, _)| *family == Family::Pointwise) {
        found = WORDS.iter().find(|(family, _)| *family == Family::Gemm);
    }
    let Some((family, _)) = found else {
        return false;
    };
    // Triton kernels of libraries have plain C names that start with an underscore.
    out.triton |= !parts.params && parts.leaf.starts_with('_') && parts.args.is_empty();
    apply(*family, "", parts, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lower_case_and_none_hides_another() {
        for table in [HELPERS, KERNELS] {
            for (i, (at, text, family, _)) in table.iter().enumerate() {
                assert!(
                    *at == NamePart::Args || *text == text.to_lowercase(),
                    "{text}"
                );
                let hidden = table.iter().take(i).any(|(before, part, other, _)| {
                    let hides = match at {
                        NamePart::Starts => text.starts_with(part),
                        _ => text.contains(part),
                    };
                    before == at && other != family && hides
                });
                assert!(!hidden, "{text} cannot be reached");
            }
        }
        let mut words: Vec<&str> = WORDS
            .iter()
            .flat_map(|(_, words)| *words)
            .copied()
            .collect();
        assert!(words.iter().all(|word| *word == word.to_lowercase()));
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }
}
