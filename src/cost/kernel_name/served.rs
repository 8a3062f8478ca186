//! Matrix products of libraries for inference, whose names have no word for a product: quantized weights,
//! few rows, the experts of a layer in one kernel.

use super::decoded::{DecodedName, Family, TensorCore};
use super::scan::{self, Parts};
use super::tokens::type_token;
use crate::base::DType;

/// The start of the last segment of a base name in lower case, and the unit.
const PRODUCTS: &[(&str, TensorCore)] = &[
    // GPTQ, AWQ, FP8 and FP4 weights with 16-bit activations: `marlin::Marlin`, `marlin_moe_wna16::Marlin`,
    // `Marlin_24`. The type of the weights is a number.
    ("marlin", TensorCore::Yes),
    // PyTorch's int4 weights (ATen/native/cuda/int4mm.cu).
    ("tinygemm_m16n8k16", TensorCore::Yes),
    // bitsandbytes, one row.
    ("kgemm_4bit_inference", TensorCore::Unknown),
    // vLLM on ROCm (csrc/rocm/skinny_gemms.cu): few rows.
    ("wvsplitk", TensorCore::Unknown),
    ("llgemm1", TensorCore::Unknown),
    // llama.cpp (ggml-cuda): `mul_mat_q`, `mul_mat_vec_q`.
    ("mul_mat_", TensorCore::Unknown),
    ("dequantize_mul_mat_", TensorCore::Unknown),
];

/// Decodes a product of a library for inference.
pub(super) fn read(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if aiter(parts, out) {
        return true;
    }
    let weight_only = parts.path.ends_with("weight_only::kernel");
    let unit = match PRODUCTS.iter().find(|row| parts.leaf.starts_with(row.0)) {
        Some((_, unit)) => *unit,
        // TensorRT-LLM (weightOnlyBatchedGemv), up to 16 rows.
        None if weight_only => TensorCore::No,
        None => return false,
    };
    // `marlin_int4_fp8_preprocess_kernel_awq` changes the format of weights.
    if parts.leaf.contains("preprocess") || parts.leaf.contains("repack") {
        return false;
    }
    out.family = Family::Gemm;
    out.tensor_core = unit;
    // Of llama.cpp it is the type of the weights.
    if !parts.leaf.contains("mul_mat") {
        out.dtype = scan::first_type(parts.args, true);
    }
    true
}

/// AITER's assembly kernels (`hsa/*/*.csv` of ROCm/aiter): `bf16gemm_fp32bf16_tn_64x64_splitk_clean`,
/// `f4gemm_bf16_per1x32Fp4_BpreShuffle_96x256`; `fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256`
/// computes the products of the experts and the activation between them. The type after `fmoe` is that of
/// the result, which is that of the products where nothing is quantized.
fn aiter(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.as_str();
    let kind = leaf.split('_').next().unwrap_or_default();
    let experts = kind == "fmoe";
    let Some(types) = kind.strip_suffix("gemm").or(experts.then_some("")) else {
        return false;
    };
    if !parts.path.starts_with("aiter::") {
        return false;
    }
    out.family = Family::Gemm;
    out.tensor_core = TensorCore::Yes;
    let quantized = [
        ("fp4", DType::Fp4),
        ("fp8", DType::Fp8),
        ("int8", DType::Int8),
    ];
    out.dtype = match types {
        "" if experts => {
            let found = quantized.iter().find(|(text, _)| leaf.contains(text));
            let plain = || leaf.split('_').find_map(type_token);
            found.map(|(_, dtype)| *dtype).or_else(plain)
        }
        "f4" => Some(DType::Fp4),
        types => type_token(types),
    };
    true
}
