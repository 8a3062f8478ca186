//! Kernels known by name, and words that indicate a family if nothing else matches.

use super::scan::{self, Parts};
use super::{DecodedName, Family, TensorCore};

/// The part of a name in which a row's text must occur. All lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The last segment of the base name starts with it.
    Starts,
    /// The last segment contains it.
    Has,
    /// The base name with its namespaces contains it.
    Path,
    /// The template arguments contain it (case-sensitive).
    Args,
    /// A word of the last segment equals it: `lamb` is not in `lambda`.
    Word,
}

/// One known kernel name.
#[derive(Debug)]
struct Row {
    at: At,
    text: &'static str,
    family: Family,
    /// The label for reports; if empty, the kernel's name is the label.
    label: &'static str,
}

const fn row(at: At, text: &'static str, family: Family, label: &'static str) -> Row {
    Row {
        at,
        text,
        family,
        label,
    }
}

/// Kernels of GEMM and convolution libraries that do no math. They are matched first, because their
/// names contain those of the kernels that they belong to.
const HELPERS: &[Row] = {
    use At::{Has, Path, Starts};
    use Family::{Helper, Layout};
    &[
        row(Has, "splitkreduce", Helper, "split-K reduction"),
        row(Starts, "split_k_kernel", Helper, "split-K reduction"),
        row(Has, "reducesplitk", Helper, "split-K reduction"),
        row(Has, "reduce_wgrad", Helper, "wgrad reduction"),
        row(Starts, "reduce_1block_kernel", Helper, ""),
        row(Path, "epilogue::impl", Helper, "GEMM epilogue"),
        row(Path, "cublaslt::epilogue", Helper, "GEMM epilogue"),
        row(Starts, "scal_kernel", Helper, "GEMM scaling"),
        row(Has, "nchwtonhwc", Layout, "layout: NCHW -> NHWC"),
        row(Has, "nhwctonchw", Layout, "layout: NHWC -> NCHW"),
        row(Has, "nchw2nhwc", Layout, "layout: NCHW -> NHWC"),
        row(Has, "nhwc2nchw", Layout, "layout: NHWC -> NCHW"),
        row(Has, "nchwaddpadding", Layout, "layout: padding"),
        row(Has, "foldednhwc", Layout, "layout: folded NHWC"),
        // cuDNN: copies a tensor and changes its type or its layout.
        row(Starts, "converttensor_kernel", Layout, "layout: convert"),
        // cuTENSOR, by which TensorRT shuffles dimensions.
        row(
            Path,
            "cutensor_namespace::permutation",
            Layout,
            "layout: permutation",
        ),
        row(Starts, "genericreformat", Layout, "layout: reformat"),
        row(Starts, "batched_transpose", Layout, "layout: transpose"),
        row(Starts, "transpose_nchw2", Layout, "layout: transpose"),
        row(Starts, "transpose_cnhw2", Layout, "layout: transpose"),
        row(Starts, "tensortransform", Layout, "layout: transform"),
        row(Has, "winogradforwarddata", Helper, ""),
        row(Has, "winogradforwardfilter", Helper, ""),
        row(Has, "winogradforwardoutput", Helper, ""),
        row(Has, "winogradwgrad", Helper, ""),
        row(Has, "winogradtiles", Helper, ""),
        row(Has, "winogradbackward", Helper, ""),
        row(Starts, "computeoffsets", Helper, "conv offsets"),
        row(Starts, "computeboffsets", Helper, "conv offsets"),
        row(Starts, "computewgrad", Helper, "conv offsets"),
        row(Has, "precompute_indices", Helper, "conv indices"),
        row(Has, "precomputed_indices", Helper, "conv indices"),
        row(Has, "compute_gemm_pointers", Helper, ""),
        row(Starts, "fft1d_", Helper, ""),
        row(Starts, "fft2d_", Helper, ""),
        row(Starts, "flip_filter", Helper, ""),
        row(Has, "im2col", Helper, ""),
        row(Has, "im2d2col", Helper, ""),
        row(Has, "col2im", Helper, ""),
        row(Starts, "scalepackedtensor", Helper, ""),
        row(Starts, "subtensorop", Helper, ""),
        row(Starts, "optensor", Helper, ""),
        row(Has, "finalize", Helper, ""),
    ]
};

/// Kernels by name. The first matching row applies, so special names precede the words that they
/// contain.
const KERNELS: &[Row] = {
    use At::{Args, Has, Path, Starts};
    use Family::{
        Cat, Copy, Dropout, Embedding, Fill, Fused, Gemm, Index, Interpolate, Loss, Norm,
        Optimizer, Pointwise, Pool, Quantize, Random, Reduce, Rnn, Sort,
    };
    &[
        row(Has, "catarraybatchedcopy", Cat, "cat"),
        row(Has, "chunk_cat", Cat, "cat"),
        row(Has, "upsample_", Interpolate, ""),
        row(Has, "grid_sampler", Interpolate, ""),
        // Names that contain words of other families.
        row(Has, "rotary", Pointwise, ""),
        row(Has, "bn_fw_", Norm, ""),
        row(Has, "bn_bw_", Norm, ""),
        row(Has, "batchnorm", Norm, ""),
        row(Has, "batch_norm", Norm, ""),
        row(Has, "layer_norm", Norm, ""),
        row(Has, "layernorm", Norm, ""),
        row(Has, "groupnorm", Norm, ""),
        row(Has, "group_norm", Norm, ""),
        row(Has, "rmsnorm", Norm, ""),
        row(Has, "rms_norm", Norm, ""),
        row(Has, "gammabetabackward", Norm, ""),
        row(Has, "rowwisemoments", Norm, ""),
        row(Has, "gradgammabeta", Norm, ""),
        row(Starts, "cucomputegradinput", Norm, ""),
        row(Has, "fusedparams", Norm, ""),
        row(Has, "computeinternalgradients", Norm, ""),
        row(Has, "weight_norm", Norm, ""),
        row(Starts, "ln_fwd", Norm, ""),
        row(Starts, "ln_bwd", Norm, ""),
        row(Args, "Rmsnorm2d", Norm, "rmsnorm"),
        row(Args, "Layernorm2d", Norm, "layernorm"),
        row(Has, "nll_loss", Loss, ""),
        row(Has, "classnllcriterion", Loss, ""),
        row(Has, "ctc_loss", Loss, ""),
        row(Has, "cross_entropy", Loss, ""),
        row(Has, "marginloss", Loss, ""),
        row(Has, "multilabelmargin", Loss, ""),
        row(Starts, "rnn_", Rnn, ""),
        row(Has, "persistrnn", Rnn, ""),
        row(Path, "cudnn::rnn", Rnn, ""),
        row(Has, "lstm", Rnn, ""),
        row(Has, "gru_", Rnn, ""),
        row(Has, "elemwisernncell", Rnn, ""),
        row(Has, "dropout", Dropout, ""),
        row(Has, "masked_scale", Dropout, ""),
        row(Has, "fused_adam", Optimizer, ""),
        row(Has, "fusedadam", Optimizer, ""),
        row(Has, "amp_foreach", Optimizer, "amp: unscale"),
        row(Has, "amp_non_finite_check", Optimizer, "amp: unscale"),
        row(Has, "amp_update_scale", Optimizer, "amp: update scale"),
        row(Has, "lamb_stage", Optimizer, ""),
        // nvFuser names a kernel after the heuristic that scheduled it
        // (csrc/scheduler/scheduler_types.h of NVIDIA/Fuser). Persistent kernels keep their input in
        // registers for a second pass: a reduction and what is done with its result.
        row(Starts, "nvfuser_pointwise", Pointwise, ""),
        row(Starts, "nvfuser_transpose", Pointwise, ""),
        row(Starts, "nvfuser_resize", Pointwise, ""),
        row(Starts, "nvfuser_matmul", Gemm, ""),
        row(Starts, "nvfuser_reduction", Reduce, ""),
        row(Starts, "nvfuser_inner_", Reduce, ""),
        row(Starts, "nvfuser_outer_", Reduce, ""),
        row(Starts, "nvfuser_", Fused, ""),
        // TensorRT's graph compiler.
        row(Starts, "__myl_", Fused, ""),
        // Before PyTorch 2.2, kernels of torch.compile had only a signature for a name.
        row(Starts, "triton__0", Fused, ""),
        row(Has, "quantize", Quantize, ""),
        row(Has, "cast_to_fp8", Quantize, ""),
        row(Has, "cast_and_transpose", Quantize, ""),
        row(Has, "cast_transpose", Quantize, ""),
        row(Has, "fp8_quant", Quantize, ""),
        row(Has, "_quant_", Quantize, ""),
        row(Has, "fp8rowwise_to_float", Quantize, ""),
        row(Has, "get_fp8_qparam", Quantize, ""),
        row(Starts, "split_embedding", Embedding, ""),
        row(Has, "embedding_bag", Embedding, ""),
        row(Starts, "embedding_", Embedding, ""),
        row(Has, "lookuptable", Embedding, ""),
        row(Starts, "indexselect", Embedding, "index_select"),
        row(Has, "compute_grad_weight", Embedding, ""),
        row(Has, "krn_partial", Embedding, ""),
        row(Starts, "linearize_index", Embedding, ""),
        row(Starts, "bounds_check_indices", Embedding, ""),
        row(Starts, "sum_and_scatter", Embedding, ""),
        row(Has, "permute_pooled_embs", Copy, ""),
        row(Has, "block_bucketize", Index, ""),
        row(Has, "permute_2d_", Index, ""),
        row(Has, "permute_indices", Index, ""),
        row(Has, "permute_1d_", Index, ""),
        row(Has, "offsets_range", Index, ""),
        row(Starts, "to_dense_representation", Index, ""),
        // torch.repeat_interleave
        row(Starts, "compute_cuda_kernel", Index, "repeat_interleave"),
        row(Has, "indexing_backward", Index, ""),
        row(Starts, "indexfunc", Index, ""),
        row(Has, "index_put", Index, ""),
        row(Has, "scatter_gather", Index, ""),
        row(Has, "gathertopk", Sort, "topk"),
        row(Path, "sbtopk", Sort, "topk"),
        row(Path, "mbtopk", Sort, "topk"),
        row(Has, "topk", Sort, "topk"),
        row(Has, "vectorized_gather", Index, "gather"),
        row(Has, "searchsorted", Index, ""),
        row(Has, "write_indices", Index, ""),
        row(Has, "kv_indices", Index, ""),
        row(Has, "page_indices", Index, ""),
        row(Has, "future_token_ids", Index, ""),
        // Keys and values are scattered into their slots, so this is not an avoidable copy.
        row(Has, "reshape_and_cache", Index, ""),
        row(Has, "store_kvcache", Index, ""),
        row(Has, "copy_blocks", Copy, ""),
        row(Has, "copy_device_to_device", Copy, ""),
        row(Has, "split_with_sizes_copy", Copy, ""),
        row(Starts, "recat_copy", Copy, ""),
        row(Has, "radixsort", Sort, "radix sort"),
        row(Has, "radix_sort", Sort, "radix sort"),
        row(Has, "bitonicsort", Sort, ""),
        row(Has, "mergesort", Sort, ""),
        row(Has, "devicescan", Sort, "scan"),
        row(Has, "devicecompact", Sort, ""),
        row(Has, "deviceselect", Sort, ""),
        row(Has, "devicepartition", Sort, ""),
        row(Has, "devicereducebykey", Sort, "reduce by key"),
        row(Has, "devicerunlength", Sort, ""),
        row(Has, "devicehistogram", Sort, ""),
        row(Has, "kernel_scan_", Sort, "scan"),
        row(Has, "scan_innermost", Sort, "scan"),
        row(Has, "scan_outer", Sort, "scan"),
        row(Path, "rocprim", Sort, ""),
        // Thrust before CUDA 12: one kernel name for all algorithms, with the algorithm as its argument.
        row(Args, "__merge_sort", Sort, "thrust: merge sort"),
        row(Args, "__radix_sort", Sort, "thrust: radix sort"),
        row(Args, "__scan", Sort, "thrust: scan"),
        row(Args, "__unique", Sort, "thrust: unique"),
        row(Args, "__reduce", Reduce, "thrust: reduce"),
        row(Args, "__parallel_for", Pointwise, "thrust: for each"),
        row(Path, "moe::dev::routing", Sort, ""),
        row(Has, "moe_align_block_size", Sort, ""),
        // Routing of DeepSeek's experts (github.com/deepseek-ai/TileKernels, moe/): which token goes where,
        // the copies there and back, and the statistic that balances the load.
        row(Has, "clean_and_count_expert", Sort, ""),
        row(Has, "get_fused_mapping", Sort, ""),
        row(Has, "expand_to_fused", Index, ""),
        row(Has, "reduce_fused", Index, ""),
        row(Starts, "aux_fi", Reduce, ""),
        row(Has, "cast_back", Quantize, ""),
        // torchvision: which boxes overlap.
        row(Starts, "nms_kernel", Sort, ""),
        row(Has, "combined_routing_memset", Fill, ""),
        row(Has, "combined_routing", Sort, ""),
        row(Has, "devicereduce", Reduce, "reduce"),
        row(Starts, "kernelreduceall", Reduce, "reduce"),
        row(Has, "bitmatrix_rows", Reduce, ""),
        row(Has, "max_pool", Pool, ""),
        row(Has, "avg_pool", Pool, ""),
        row(Has, "average_pool", Pool, ""),
        row(Has, "adaptivemaxpool", Pool, ""),
        row(Has, "adaptiveaveragepool", Pool, ""),
        row(Starts, "pooling_", Pool, ""),
        row(Starts, "mlopooling", Pool, ""),
        row(Has, "act_and_mul", Pointwise, ""),
        row(Has, "clamp_position", Pointwise, ""),
        row(Has, "compute_position", Index, ""),
        row(Has, "triu_tril", Pointwise, "triu / tril"),
        row(Starts, "op1dtensor", Pointwise, ""),
        row(Starts, "op2dtensor", Pointwise, ""),
        row(Starts, "op3dtensor", Pointwise, ""),
        row(Starts, "op4dtensor", Pointwise, ""),
        row(Path, "cudnn::ops::op_tensor", Pointwise, ""),
        row(Has, "add_tensor_kernel", Pointwise, ""),
        row(Has, "activation_fw", Pointwise, ""),
        row(Has, "activation_bw", Pointwise, ""),
        row(Has, "transform_bias_rescale_qkv", Pointwise, ""),
        row(Has, "randperm", Random, ""),
        row(Has, "philox", Random, ""),
        row(Has, "roll_cuda", Copy, ""),
        row(Has, "flip_cuda", Copy, ""),
    ]
};

/// Families by word, for kernels that are not listed: user code, Triton, new libraries.
const WORDS: &[Row] = {
    use At::Word;
    use Family::{
        Attention, Cat, Conv, Copy, Dropout, Embedding, Fill, Gemm, Index, Interpolate, Loss, Norm,
        Optimizer, Pointwise, Pool, Quantize, Random, Reduce, Rnn, Softmax, Sort,
    };
    &[
        row(Word, "softmax", Softmax, ""),
        row(Word, "logsoftmax", Softmax, ""),
        row(Word, "norm", Norm, ""),
        row(Word, "layernorm", Norm, ""),
        row(Word, "rmsnorm", Norm, ""),
        row(Word, "dropout", Dropout, ""),
        row(Word, "attention", Attention, ""),
        row(Word, "attn", Attention, ""),
        row(Word, "mha", Attention, ""),
        row(Word, "sdpa", Attention, ""),
        row(Word, "gemm", Gemm, ""),
        row(Word, "gemv", Gemm, ""),
        row(Word, "matmul", Gemm, ""),
        row(Word, "bmm", Gemm, ""),
        row(Word, "mm", Gemm, ""),
        row(Word, "moe", Gemm, ""),
        row(Word, "conv", Conv, ""),
        row(Word, "conv1d", Conv, ""),
        row(Word, "conv2d", Conv, ""),
        row(Word, "conv3d", Conv, ""),
        row(Word, "convolution", Conv, ""),
        row(Word, "rnn", Rnn, ""),
        row(Word, "adam", Optimizer, ""),
        row(Word, "adamw", Optimizer, ""),
        row(Word, "sgd", Optimizer, ""),
        row(Word, "lamb", Optimizer, ""),
        row(Word, "loss", Loss, ""),
        row(Word, "entropy", Loss, ""),
        row(Word, "embedding", Embedding, ""),
        row(Word, "quant", Quantize, ""),
        row(Word, "dequant", Quantize, ""),
        row(Word, "quantize", Quantize, ""),
        row(Word, "dequantize", Quantize, ""),
        row(Word, "interpolate", Interpolate, ""),
        row(Word, "upsample", Interpolate, ""),
        row(Word, "pool", Pool, ""),
        row(Word, "pooling", Pool, ""),
        row(Word, "sort", Sort, ""),
        row(Word, "scan", Sort, ""),
        row(Word, "cumsum", Sort, ""),
        row(Word, "topk", Sort, ""),
        row(Word, "unique", Sort, ""),
        row(Word, "gather", Index, ""),
        row(Word, "scatter", Index, ""),
        row(Word, "index", Index, ""),
        row(Word, "indices", Index, ""),
        row(Word, "cat", Cat, ""),
        row(Word, "concat", Cat, ""),
        row(Word, "fill", Fill, ""),
        row(Word, "memset", Fill, ""),
        row(Word, "zero", Fill, ""),
        row(Word, "copy", Copy, ""),
        row(Word, "transpose", Copy, ""),
        row(Word, "permute", Copy, ""),
        row(Word, "random", Random, ""),
        row(Word, "reduce", Reduce, ""),
        row(Word, "reduction", Reduce, ""),
        row(Word, "sum", Reduce, ""),
        row(Word, "mean", Reduce, ""),
        row(Word, "elementwise", Pointwise, ""),
        row(Word, "pointwise", Pointwise, ""),
        row(Word, "add", Pointwise, ""),
        row(Word, "mul", Pointwise, ""),
        row(Word, "relu", Pointwise, ""),
        row(Word, "gelu", Pointwise, ""),
        row(Word, "silu", Pointwise, ""),
        row(Word, "swiglu", Pointwise, ""),
        row(Word, "rope", Pointwise, ""),
        row(Word, "activation", Pointwise, ""),
        row(Word, "mask", Pointwise, ""),
    ]
};

/// Whether a row matches a name.
fn hit(row: &Row, parts: &Parts<'_>, words: &[String]) -> bool {
    match row.at {
        At::Starts => parts.leaf.starts_with(row.text),
        At::Has => parts.leaf.contains(row.text),
        At::Path => parts.path.contains(row.text),
        At::Args => parts.args.contains(row.text),
        At::Word => words.iter().any(|w| w == row.text),
    }
}

fn apply(row: &Row, parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    out.family = row.family;
    out.dtype = out.dtype.or_else(|| scan::first_type(parts.args, true));
    if !row.label.is_empty() {
        out.label = row.label.to_owned();
    }
    true
}

/// Auxiliary kernels of a GEMM, a convolution or attention.
pub(super) fn helpers(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let Some(row) = HELPERS.iter().find(|r| hit(r, parts, &[])) else {
        return false;
    };
    out.helper = true;
    out.split_k = parts.leaf.contains("splitk");
    out.fast_conv = parts.leaf.contains("winograd") || parts.leaf.starts_with("fft");
    apply(row, parts, out)
}

/// Kernels by name.
pub(super) fn kernels(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let Some(row) = KERNELS.iter().find(|r| hit(r, parts, &[])) else {
        return false;
    };
    if row.family == Family::Rnn {
        out.persistent = parts.leaf.contains("persist");
        // The other recurrent cuDNN kernels do the pointwise part of a cell; its GEMMs are cuBLAS
        // kernels.
        if !out.persistent {
            out.tensor_core = TensorCore::No;
        }
    }
    apply(row, parts, out)
}

/// Kernels by the words in their name, the last attempt.
pub(super) fn words(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let words = scan::words(parts.name());
    let Some(row) = WORDS.iter().find(|r| hit(r, parts, &words)) else {
        return false;
    };
    // Triton kernels of libraries have plain C names that start with an underscore.
    out.triton |= !parts.params && parts.leaf.starts_with('_') && parts.args.is_empty();
    apply(row, parts, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lower_case_and_none_hides_another() {
        for table in [HELPERS, KERNELS, WORDS] {
            for (i, row) in table.iter().enumerate() {
                if row.at != At::Args {
                    assert_eq!(row.text, row.text.to_lowercase());
                }
                let hidden = table.iter().take(i).any(|earlier| {
                    earlier.at == row.at
                        && earlier.family != row.family
                        && match row.at {
                            At::Word => earlier.text == row.text,
                            At::Starts => row.text.starts_with(earlier.text),
                            _ => row.text.contains(earlier.text),
                        }
                });
                assert!(!hidden, "{} cannot be reached", row.text);
            }
        }
    }
}
