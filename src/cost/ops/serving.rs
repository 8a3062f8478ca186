//! Operators that serving engines and their kernel libraries define beside PyTorch's: gated activations,
//! rotary embeddings, writes to the cache of keys and values, quantization, unquantized products;
//! and the operators of FBGEMM on lists of indices.
//!
//! Most of them take the tensors that they write as their first arguments, so the tensors of a call are
//! all that it moves.

use super::call::{Bytes, Call, Entry, count, distinct, elements, product, size, sum, total};
use super::name;
use crate::base::DType;
use crate::correlate::{ArgValue, OpArgs, OpName, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, GemmSize, OpCost, UnknownCost};

/// Activations that multiply one half of their input by the activation of the other.
const GATED: Entry = Entry {
    names: &[
        "silu_and_mul",
        "mul_and_silu",
        "gelu_and_mul",
        "gelu_tanh_and_mul",
        "fatrelu_and_mul",
        "swigluoai_and_mul",
    ],
    namespaces: &["_C", "vllm", "sgl_kernel", "aiter", "flashinfer"],
    family: Family::Pointwise,
    class: FlopsClass::Convention,
    flops: "5 per element of the output",
    bytes: "out + in",
    backward: "",
    source: "vLLM csrc/torch_bindings.cpp: silu_and_mul(Tensor! result, Tensor input); sgl-kernel and AITER alike",
    handler: gated,
};

const FP8_QUANT: Entry = Entry {
    names: &[
        "static_scaled_fp8_quant",
        "dynamic_scaled_fp8_quant",
        "dynamic_per_token_scaled_fp8_quant",
        "static_scaled_int8_quant",
        "dynamic_scaled_int8_quant",
        "per_token_group_fp8_quant",
        "sgl_per_token_group_quant_fp8",
        "sgl_per_token_group_quant_int8",
        "sgl_per_token_quant_fp8",
        "sgl_per_tensor_quant_fp8",
    ],
    family: Family::Quantize,
    class: FlopsClass::Convention,
    flops: "2 per element of the largest tensor",
    bytes: "every tensor once: input, quantized output and scales",
    source: "vLLM csrc/torch_bindings.cpp: static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale); sgl-kernel common_extension.cc",
    handler: every_tensor,
    ..GATED
};

/// Operators of FBGEMM.
const FBGEMM: Entry = Entry {
    names: &["permute_2D_sparse_data", "permute_sparse_features"],
    namespaces: &["fbgemm"],
    family: Family::Index,
    class: FlopsClass::Zero,
    flops: "0",
    bytes: "order + lengths, values and weights read and written, where every feature is kept once",
    source: "fbgemm_gpu src/sparse_ops/sparse_ops_cpu.cpp: permute_2D_sparse_data(Tensor permute, Tensor lengths, Tensor values, Tensor? weights=None, ...)",
    handler: permuted_features,
    ..GATED
};

pub(super) const ENTRIES: &[Entry] = &[
    GATED,
    Entry {
        names: &["rotary_embedding"],
        flops: "3 per rotated element",
        bytes: "positions + a row of cosines and sines per token + query and key read and written",
        source: "vLLM csrc/torch_bindings.cpp: rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, bool is_neox); sgl-kernel alike",
        handler: rotary,
        ..GATED
    },
    Entry {
        names: &[
            "reshape_and_cache",
            "reshape_and_cache_flash",
            "store_cache",
        ],
        namespaces: &["_C_cache_ops", "sglang", "sgl_kernel", "vllm"],
        family: Family::Index,
        class: FlopsClass::Zero,
        flops: "0",
        bytes: "keys and values read, and written in the type of the cache; slots",
        source: "vLLM csrc/torch_bindings.cpp: reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, Tensor slot_mapping, ...)",
        handler: cache_write,
        ..GATED
    },
    FP8_QUANT,
    Entry {
        names: &[
            "gemm_a16w16",
            "rocm_unquantized_gemm",
            "cpu_unquantized_gemm",
        ],
        namespaces: &["aiter", "vllm"],
        family: Family::Gemm,
        class: FlopsClass::Exact,
        flops: "2 M N K",
        bytes: "A [M, K] + W [N, K] + out",
        source: "AITER aiter/tuned_gemm.py: gemm_a16w16(A, B, ...) with B as [N, K]; vLLM model_executor/layers/utils.py: rocm_unquantized_gemm(x, weight, bias)",
        handler: product_with_weights,
        ..GATED
    },
    Entry {
        names: &["gptq_marlin_gemm", "marlin_gemm"],
        namespaces: &["_C", "vllm", "sgl_kernel"],
        family: Family::Gemm,
        class: FlopsClass::Exact,
        flops: "2 M N K",
        bytes: "A + weights as stored + scales + out",
        source: "vLLM csrc/torch_bindings.cpp: gptq_marlin_gemm(Tensor a, Tensor? c_or_none, Tensor b_q_weight, Tensor? b_bias_or_none, Tensor b_scales, ...); weights [K / 16, 16 N / values per int32], scales [groups, N]; in older releases, b_q_weight and b_scales follow a",
        handler: marlin,
        ..GATED
    },
    Entry {
        names: &["gemv_4bit"],
        namespaces: &["bitsandbytes"],
        family: Family::Gemm,
        class: FlopsClass::Exact,
        flops: "2 N K",
        bytes: "A + weights at half a byte + scales + out",
        source: "bitsandbytes _ops.py: gemv_4bit(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int blocksize), A of one row",
        handler: one_row_of_4_bits,
        ..GATED
    },
    FBGEMM,
    Entry {
        names: &["block_bucketize_sparse_features"],
        bytes: "lengths read, and written for each of the my_size buckets; indices and weights read and written; \
                a position per index where one is asked for",
        source: "fbgemm_gpu src/sparse_ops/sparse_ops_cpu.cpp: block_bucketize_sparse_features(Tensor lengths, Tensor indices, bool bucketize_pos, bool sequence, Tensor block_sizes, SymInt my_size, Tensor? weights=None, ...)",
        handler: bucketized_features,
        ..FBGEMM
    },
    Entry {
        names: &[
            "asynchronous_complete_cumsum",
            "asynchronous_exclusive_cumsum",
            "asynchronous_inclusive_cumsum",
        ],
        family: Family::Sort,
        class: FlopsClass::Convention,
        flops: "one add per element",
        bytes: "in + out",
        source: "fbgemm_gpu src/sparse_ops/sparse_ops_cpu.cpp: asynchronous_complete_cumsum(Tensor t_in)",
        handler: cumulative_lengths,
        ..FBGEMM
    },
    Entry {
        names: &["permute_pooled_embs", "permute_pooled_embs_auto_grad"],
        family: Family::Copy,
        bytes: "in + out",
        source: "fbgemm_gpu src/permute_pooled_embedding_ops: permute_pooled_embs(Tensor pooled_embs, Tensor offset_dim_list, ...)",
        handler: permuted_embeddings,
        ..FBGEMM
    },
    Entry {
        names: &["bounds_check_indices"],
        bytes: "rows per table + indices + offsets; nothing is written where all are in bounds",
        source: "fbgemm_gpu codegen/utils/embedding_bounds_check_host.cpp: bounds_check_indices(Tensor rows_per_table, Tensor(a!) indices, Tensor(b!) offsets, ...)",
        handler: bounds_check,
        ..FBGEMM
    },
    Entry {
        names: &["FloatToHFP8Quantized", "HFP8QuantizedToFloat"],
        family: Family::Quantize,
        class: FlopsClass::Convention,
        flops: "2 per element",
        bytes: "fp32 on one side, one byte per element on the other",
        source: "fbgemm_gpu src/quantize_ops: FloatToHFP8Quantized(Tensor input, int ebits, int exponent_bias, float max_pos)",
        handler: hybrid_fp8,
        ..FBGEMM
    },
    Entry {
        names: &["FloatToFP8RowwiseQuantized", "FP8RowwiseQuantizedToFloat"],
        family: Family::Quantize,
        class: FlopsClass::Convention,
        flops: "2 per element",
        bytes: "floats on one side; on the other one byte per element, rows padded to 4 bytes, and two fp32 per row",
        source: "fbgemm_gpu src/quantize_ops/quantize_fp8_rowwise.cu: FloatToFP8RowwiseQuantized(Tensor t, bool forward), FP8RowwiseQuantizedToFloat(Tensor input, bool forward, int output_dtype=0)",
        handler: rowwise_fp8,
        ..FBGEMM
    },
];

/// Bytes of the weights that a product multiplies with: they are the same for every batch.
pub(crate) fn weight_bytes(op: &OpName, args: &OpArgs) -> Option<u64> {
    let name = name::normalize(op)?;
    let at = match &*name.base {
        "mm" | "linear" | "gemm_a16w16" | "rocm_unquantized_gemm" | "cpu_unquantized_gemm" => 1,
        "addmm" => 2,
        _ => return None,
    };
    let ArgValue::Tensor(weights) = &args.items.get(at)?.value else {
        return None;
    };
    let dims = weights.shape.len() == 2;
    dims.then(|| distinct(weights).checked_mul(weights.dtype?.bytes()))?
}

/// Bytes of keys and values that attention reads for each token of a request so far, where it reads all of
/// them.
pub(crate) fn bytes_per_key(op: &OpName, args: &OpArgs) -> Option<u64> {
    let name = name::normalize(op)?;
    // `window_size_left` and `window_size_right`.
    let value = |at: usize| args.items.get(at).map(|arg| &arg.value);
    let whole = [13, 14]
        .iter()
        .all(|at| value(*at) == Some(&ArgValue::Int(-1)));
    if name.base != "mha_batch_prefill" || !whole {
        return None;
    }
    let of = |at: usize| match value(at)? {
        ArgValue::Tensor(t) => match *t.shape.as_slice() {
            [_, heads, size] => product([heads, size]).checked_mul(t.dtype?.bytes()),
            _ => None,
        },
        _ => None,
    };
    of(1)?.checked_add(of(2)?)
}

fn gated(call: &Call) -> Result<OpCost, UnknownCost> {
    let out = call.tensor(0, &["out", "result"])?;
    let input = call.tensor(1, &["input"])?;
    let n = count(&out.shape);
    let bytes = total([call.bytes(out), call.bytes(input)]);
    call.one(product([5, n]), bytes, elements(n))
}

pub(super) fn every_tensor(call: &Call) -> Result<OpCost, UnknownCost> {
    let tensors = || call.args.tensors().filter(|t| !t.shape.is_empty());
    let bytes = total(tensors().map(|t| call.bytes(t)));
    let n = tensors().map(|t| count(&t.shape)).max();
    let n = n.ok_or(UnknownCost::NoShapes)?;
    call.one(product([2, n]), bytes, elements(n))
}

fn rotary(call: &Call) -> Result<OpCost, UnknownCost> {
    let positions = call.tensor(0, &["positions"])?;
    let query = call.tensor(1, &["query"])?;
    let key = call.optional(2, &["key"]);
    let cache = call.tensor(4, &["cos_sin_cache"])?;
    let rotated = cache
        .shape
        .last()
        .copied()
        .ok_or(UnknownCost::BadArguments)?;
    let head = call.int(3, &["head_size"]).value();
    let head = head.and_then(|h| u64::try_from(h).ok()).filter(|h| *h > 0);
    // Where only the first part of a head is rotated, the rest is not touched.
    let part = |t: &Tensor| match head {
        Some(head) if rotated < head => count(&t.shape) / head * rotated,
        _ => count(&t.shape),
    };
    let n = sum([part(query), key.map_or(0, part)]);
    let moved = call.dense(n, query)?;
    let tokens = count(&positions.shape);
    let bytes = total([
        Ok(call.bytes_as(Some(positions), DType::Int64)),
        call.dense(product([tokens, rotated]).min(count(&cache.shape)), cache),
        Ok(product([2, moved])),
    ]);
    call.one(product([3, n]), bytes, elements(n))
}

fn cache_write(call: &Call) -> Result<OpCost, UnknownCost> {
    let key = call.tensor(0, &["key", "k"])?;
    let value = call.tensor(1, &["value", "v"])?;
    let key_cache = call.tensor(2, &["key_cache", "k_cache"])?;
    let value_cache = call.tensor(3, &["value_cache", "v_cache"])?;
    let slots = call.optional(4, &["slot_mapping", "indices"]);
    let bytes = total([
        call.bytes(key),
        call.bytes(value),
        call.dense(count(&key.shape), key_cache),
        call.dense(count(&value.shape), value_cache),
        Ok(call.bytes_as(slots, DType::Int64)),
    ]);
    call.one(
        0,
        bytes,
        elements(sum([count(&key.shape), count(&value.shape)])),
    )
}

fn product_with_weights(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.tensor(0, &["A", "x"])?;
    let w = call.tensor(1, &["B", "weight"])?;
    let ([n, k], Some(columns)) = (w.shape.as_slice(), a.shape.last()) else {
        return Err(UnknownCost::BadArguments);
    };
    if k != columns {
        return Err(UnknownCost::BadArguments);
    }
    let m = count(&a.shape).checked_div(*k).unwrap_or(0);
    let bytes = total([
        call.bytes(a),
        call.bytes(w),
        call.dense(product([m, *n]), a),
    ]);
    product_of_bytes(call, [m, *n, *k], bytes)
}

/// The cost of a product of two matrices, `[m, n, k]`, that moves these bytes.
fn product_of_bytes(call: &Call, [m, n, k]: [u64; 3], bytes: Bytes) -> Result<OpCost, UnknownCost> {
    let gemm = GemmSize {
        batch: 1,
        m,
        n,
        k,
        contiguous: (false, true, true),
    };
    call.one(gemm.flops(), bytes, Dims::Gemm(gemm))
}

/// Marlin's product. The positions of weights and scales differ between releases; their sizes have to fit.
fn marlin(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.tensor(0, &["a"])?;
    let k = *a.shape.last().ok_or(UnknownCost::BadArguments)?;
    let m = count(&a.shape).checked_div(k).unwrap_or(0);
    let mut operands = call.args.tensors().skip(1);
    let packed = |t: &&Tensor| {
        t.shape.len() == 2 && t.dtype == Some(DType::Int32) && t.shape.first() == Some(&(k / 16))
    };
    let weights = operands.find(packed).ok_or(UnknownCost::BadArguments)?;
    let scales = operands.find(|t| t.shape.len() == 2);
    let scales = scales.ok_or(UnknownCost::BadArguments)?;
    let n = *scales.shape.last().ok_or(UnknownCost::BadArguments)?;
    // 4 or 8 bits per weight.
    let stored = product([32, count(&weights.shape)]);
    if ![4, 8].iter().any(|bits| product([*bits, n, k]) == stored) {
        return Err(UnknownCost::BadArguments);
    }
    let bytes = total([
        call.bytes(a),
        call.bytes(weights),
        call.bytes(scales),
        call.dense(product([m, n]), a),
    ]);
    product_of_bytes(call, [m, n, k], bytes)
}

fn one_row_of_4_bits(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.tensor(0, &["A"])?;
    let b = call.tensor(1, &["B"])?;
    let scales = call.tensor(3, &["absmax"])?;
    let k = *a.shape.last().ok_or(UnknownCost::BadArguments)?;
    let stored = call.bytes(b)?;
    let n = product([2, stored]).checked_div(k).unwrap_or(0);
    if count(&a.shape) != k || product([n, k]) != product([2, stored]) {
        return Err(UnknownCost::BadArguments);
    }
    let bytes = total([
        call.bytes(a),
        Ok(stored),
        Ok(call.bytes_as(Some(scales), DType::Fp32)),
        call.dense(n, a),
    ]);
    product_of_bytes(call, [1, n, k], bytes)
}

fn permuted_features(call: &Call) -> Result<OpCost, UnknownCost> {
    let order = call.tensor(0, &["permute"])?;
    let lengths = call.tensor(1, &["lengths"])?;
    let values = call.tensor(2, &["values", "indices"])?;
    let weights = call.optional(3, &["weights"]);
    // A feature that is dropped or repeated changes how many values there are.
    if lengths.shape.first() != Some(&count(&order.shape)) {
        return Err(UnknownCost::DataDependent);
    }
    let rows = sum([
        call.bytes_as(Some(lengths), DType::Int32),
        call.bytes_as(Some(values), DType::Int64),
        call.bytes_as(weights, DType::Fp32),
    ]);
    let bytes = sum([call.bytes_as(Some(order), DType::Int32), product([2, rows])]);
    call.one(0, Ok(bytes), elements(count(&values.shape)))
}

fn bucketized_features(call: &Call) -> Result<OpCost, UnknownCost> {
    let lengths = call.tensor(0, &["lengths"])?;
    let indices = call.tensor(1, &["indices"])?;
    let positions = [(2, "bucketize_pos"), (3, "sequence")];
    let mut written = 0;
    for (at, name) in positions {
        written += u64::from(call.flag(at, &[name]).or(false)?);
    }
    let buckets = call.int(5, &["my_size"]).value();
    let buckets = size(buckets.ok_or(UnknownCost::NoScalars)?)?;
    let weights = call.optional(6, &["weights"]);
    let index_bytes = call.bytes_as(Some(indices), DType::Int64);
    let bytes = sum([
        product([
            sum([1, buckets]),
            call.bytes_as(Some(lengths), DType::Int32),
        ]),
        product([sum([2, written]), index_bytes]),
        product([2, call.bytes_as(weights, DType::Fp32)]),
    ]);
    call.one(0, Ok(bytes), elements(count(&indices.shape)))
}

fn cumulative_lengths(call: &Call) -> Result<OpCost, UnknownCost> {
    let lengths = call.tensor(0, &["t_in"])?;
    let n = count(&lengths.shape);
    let bytes = product([2, call.bytes_as(Some(lengths), DType::Int64)]);
    call.one(n, Ok(bytes), elements(n))
}

fn permuted_embeddings(call: &Call) -> Result<OpCost, UnknownCost> {
    let input = call.tensor(0, &["pooled_embs"])?;
    let bytes = total([call.bytes(input), call.bytes(input)]);
    call.one(0, bytes, elements(count(&input.shape)))
}

fn bounds_check(call: &Call) -> Result<OpCost, UnknownCost> {
    let rows = call.tensor(0, &["rows_per_table"])?;
    let indices = call.tensor(1, &["indices"])?;
    let offsets = call.tensor(2, &["offsets"])?;
    let read = [rows, indices, offsets].map(|t| call.bytes_as(Some(t), DType::Int64));
    call.one(0, Ok(sum(read)), elements(count(&indices.shape)))
}

fn hybrid_fp8(call: &Call) -> Result<OpCost, UnknownCost> {
    let n = count(&call.tensor(0, &["input"])?.shape);
    call.one(product([2, n]), Ok(product([5, n])), elements(n))
}

fn rowwise_fp8(call: &Call) -> Result<OpCost, UnknownCost> {
    const SCALES: u64 = 8;
    let input = call.tensor(0, &["t", "input"])?;
    let columns = *input.shape.last().ok_or(UnknownCost::BadArguments)?;
    let rows = count(&input.shape).checked_div(columns).unwrap_or(0);
    let padded = product([columns.div_ceil(4), 4]);
    if call.name == "FloatToFP8RowwiseQuantized" {
        let read = call.bytes_as(Some(input), DType::Fp32);
        let n = count(&input.shape);
        let bytes = sum([read, product([rows, sum([padded, SCALES])])]);
        return call.one(product([2, n]), Ok(bytes), elements(n));
    }
    // `SparseType` of FBGEMM: fp32, fp16, bf16.
    let wide = match call.int(2, &["output_dtype"]).or(0)? {
        0 => 4,
        1 | 5 => 2,
        _ => return Err(UnknownCost::BadArguments),
    };
    let n = product([rows, padded.saturating_sub(SCALES)]);
    let bytes = sum([count(&input.shape), product([n, wide])]);
    call.one(product([2, n]), Ok(bytes), elements(n))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, fprop};
    use crate::cost::model::UnknownCost;

    #[test]
    fn operators_of_serving_engines_cost_what_their_signatures_say() {
        check(&[
            (
                "aiter::rmsnorm(bf16[8, 128], bf16[8, 128], bf16[128])",
                4096,
                4352,
            ),
            (
                "aiter::add_rmsnorm(bf16[8, 128], bf16[8, 128], bf16[8, 128], bf16[8, 128], bf16[128])",
                5120,
                8448,
            ),
            (
                "sgl_kernel::fused_add_rmsnorm(bf16[8, 128], bf16[8, 128], bf16[128])",
                5120,
                8448,
            ),
            (
                "sgl_kernel::silu_and_mul(bf16[8, 64], bf16[8, 128])",
                2560,
                3072,
            ),
            (
                "_C::static_scaled_fp8_quant(fp8[8, 64], bf16[8, 64], fp32[])",
                1024,
                1536,
            ),
            (
                "aiter::gemm_a16w16(bf16[8, 64], bf16[32, 64])",
                32_768,
                5632,
            ),
            // 16 rows, 4096 x 8192 weights of 4 bits, one scale for 128 of them; both orders of arguments.
            (
                "_C::gptq_marlin_gemm(bf16[16, 4096], bf16[], int32[256, 16384], bf16[], bf16[32, 8192])",
                2 * 16 * 4096 * 8192,
                2 * 16 * 4096 + 4096 * 8192 / 2 + 2 * 32 * 8192 + 2 * 16 * 8192,
            ),
            (
                "_C::gptq_marlin_gemm(bf16[16, 4096], int32[256, 32768], bf16[32, 8192], int32[0])",
                2 * 16 * 4096 * 8192,
                2 * 16 * 4096 + 4096 * 8192 + 2 * 32 * 8192 + 2 * 16 * 8192,
            ),
            (
                "bitsandbytes::gemv_4bit(bf16[1, 1, 4096], uint8[8388608, 1], [4096, 4096], fp32[262144])",
                2 * 4096 * 4096,
                2 * 4096 + 4096 * 4096 / 2 + 4 * 262_144 + 2 * 4096,
            ),
            (
                "_C_cache_ops::reshape_and_cache_flash(bf16[8, 2, 64], bf16[8, 2, 64], \
                 fp8[10, 16, 2, 64], fp8[10, 16, 2, 64], int64[8])",
                0,
                6208,
            ),
            (
                "fbgemm::permute_2D_sparse_data(int32[4], int32[4, 8], int64[100])",
                0,
                1872,
            ),
            // Lengths once and for both buckets; indices twice and their positions; weights twice.
            (
                "fbgemm::block_bucketize_sparse_features(int32[8], int64[100], true, false, int64[4], \
                 2, fp32[100])",
                0,
                3 * 8 * 4 + 3 * 100 * 8 + 2 * 100 * 4,
            ),
            ("fbgemm::FloatToHFP8Quantized(fp32[8, 8])", 128, 320),
            // 6 columns, padded to 8, and 8 bytes of scales per row.
            (
                "fbgemm::FloatToFP8RowwiseQuantized(fp32[4, 6], true)",
                2 * 24,
                4 * 24 + 4 * 16,
            ),
            (
                "fbgemm::FP8RowwiseQuantizedToFloat(uint8[4, 16], true, 5)",
                2 * 32,
                64 + 2 * 32,
            ),
        ]);
    }

    #[test]
    fn quantized_weights_of_other_sizes_are_unknown() {
        for call in [
            // 5 bits, other rows than the input has, two rows for a product of one.
            "_C::gptq_marlin_gemm(bf16[16, 4096], int32[256, 20480], bf16[32, 8192])",
            "_C::gptq_marlin_gemm(bf16[16, 4096], int32[128, 16384], bf16[32, 8192])",
            "bitsandbytes::gemv_4bit(bf16[2, 4096], uint8[8388608, 1], [4096, 4096], fp32[262144])",
            "aten::_weight_int4pack_mm(bf16[1, 2048], int32[512, 32, 32, 4], 128, bf16[32, 4096, 2])",
        ] {
            assert_eq!(fprop(call), Err(UnknownCost::BadArguments), "{call}");
        }
    }

    #[test]
    fn only_the_rotated_part_of_a_head_is_moved() {
        for (head, moved) in [(64, 3072), (128, 1536)] {
            let operands = "int64[8], bf16[8, 256], bf16[8, 128]";
            let call = format!("_C::rotary_embedding({operands}, {head}, bf16[100, 64])");
            check(&[(&call, 3 * moved, 64 + 1024 + 4 * moved)]);
        }
    }

    #[test]
    fn dropped_features_and_experts_depend_on_data() {
        for call in [
            "fbgemm::permute_2D_sparse_data(int32[3], int32[4, 8], int64[100])",
            "vllm::moe_forward(bf16[8, 64], bf16[8, 16])",
        ] {
            assert_eq!(fprop(call), Err(UnknownCost::DataDependent), "{call}");
        }
    }

    #[test]
    fn paged_prefill_is_known_where_all_sequences_are_equally_long() {
        let prefill = |tokens: u64, longest_key: u64, window: i64| {
            let cache = "bf16[100, 2, 64]";
            let tensors =
                format!("bf16[{tokens}, 4, 64], {cache}, {cache}, int32[3], int32[3], int32[32]");
            let rest = format!("16, {longest_key}, 0.0, 0.125, 0.0, false, true, {window}, -1");
            format!("aiter::mha_batch_prefill({tensors}, {rest})")
        };
        check(&[(&prefill(32, 16, -1), 524_288, 49_792)]);
        for other in [prefill(31, 16, -1), prefill(32, 17, -1), prefill(32, 16, 8)] {
            assert_eq!(fprop(&other), Err(UnknownCost::DataDependent));
        }
    }
}
