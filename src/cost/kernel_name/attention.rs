//! Fused attention kernels: FlashAttention 2 and 3, memory-efficient, cuDNN, TensorRT-LLM,
//! FlashInfer, vLLM, CK Tile, and the Triton ones.
//!
//! Template argument orders are those of FlashAttention's `flash_fwd_launch_template.h` and
//! `hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp`.

use super::decoded::{DecodedName, Family, TensorCore};
use super::scan::{self, Parts};
use super::tokens::{arch, arch_in, type_token};
use crate::base::DType;

/// Decodes a fused attention kernel.
pub(super) fn read(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    flash2(parts, out)
        || flash3(parts, out)
        || memory_efficient(parts, out)
        || generated(parts, out)
        || served(parts, out)
        || triton(parts, out)
}

fn attention(out: &mut DecodedName, tensor_core: TensorCore) -> bool {
    out.family = Family::Attention;
    out.tensor_core = tensor_core;
    true
}

/// Decodes an auxiliary attention kernel: combining splits, converting gradients.
fn helper(out: &mut DecodedName) -> bool {
    out.family = Family::Helper;
    out.helper = true;
    true
}

const STEPS: [&str; 9] = [
    "combine",
    "dot_do_o",
    "convert_dq",
    "convert_dkv",
    "clear_dkvaccum",
    "preprocess",
    "postprocess",
    "mergestates",
    "merge_attn_states",
];

fn is_step(text: &str) -> bool {
    STEPS.iter().any(|s| text.contains(s))
}

/// `flash::flash_fwd_kernel<Flash_fwd_kernel_traits<d, m, n, ..., type>, dropout, causal, ...>`.
fn flash2(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.as_str();
    if !(leaf.starts_with("flash_fwd") || leaf.starts_with("flash_bwd")) {
        return false;
    }
    if is_step(leaf) {
        return helper(out);
    }
    attention(out, TensorCore::Yes);
    let args = scan::split_args(parts.args);
    let Some(traits) = args.first() else {
        return true;
    };
    out.dtype = scan::first_type(traits, true);
    tile_of_traits(traits, out);
    // The split-KV kernel has no dropout flag before the causal flag.
    let position = usize::from(!leaf.contains("splitkv"));
    let flags = args.iter().skip(1).filter_map(|a| scan::flag(a));
    let mut flags = flags.skip(position);
    // The flag behind it (`Is_local`) selects a window.
    (out.causal, out.windowed) = (flags.next(), flags.next());
    out.split_k = leaf.contains("splitkv");
    true
}

fn tile_of_traits(traits: &str, out: &mut DecodedName) {
    let Some(open) = traits.find('<') else { return };
    let inner = scan::split_args(traits.get(open + 1..).unwrap_or_default());
    let mut numbers = inner.iter().map_while(|a| scan::number(a)).skip(1);
    if let (Some(m), Some(n)) = (numbers.next(), numbers.next()) {
        out.tile = Some((m, n));
    }
}

/// `cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<...>>>`, `flash::compute_attn_ws`.
fn flash3(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let early = parts.leaf.starts_with("compute_attn_ws");
    let wrapped = parts.leaf.contains("device_kernel") && parts.args.contains("FlashAttn");
    if !(early || wrapped) {
        return false;
    }
    let lower = parts.args.to_ascii_lowercase();
    if wrapped
        && scan::idents(&lower)
            .find(|i| i.text.starts_with("flashattn"))
            .is_some_and(|i| is_step(i.text))
    {
        return helper(out);
    }
    attention(out, TensorCore::Yes);
    out.persistent = true;
    out.dtype = scan::first_type(parts.args, true);
    out.arch = arch_in(&lower).or(Some((9, 0)));
    if early {
        let args = scan::split_args(parts.args);
        out.causal = args.iter().skip(1).find_map(|a| scan::flag(a));
    } else if let Some(rest) = lower.find("arch::sm").and_then(|at| lower.get(at..)) {
        // The flags after the architecture tag of the main loop: `Is_causal`, `Is_local`.
        let mut flags = rest.split(',').skip(1).map(|arg| scan::flag(arg.trim()));
        (out.causal, out.windowed) = (flags.next().flatten(), flags.next().flatten());
    }
    out.label = if lower.contains("flashattnbwd") {
        "FlashAttention 3 backward".to_owned()
    } else {
        "FlashAttention 3 forward".to_owned()
    };
    true
}

/// `fmha_cutlassF_bf16_aligned_64x128_rf_sm80`, or `AttentionKernel<...>` as C++ types.
fn memory_efficient(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let named = parts.leaf.starts_with("fmha_cutlass");
    let typed =
        parts.args.contains("AttentionKernel<") || parts.args.contains("AttentionBackwardKernel<");
    if !(named || typed) {
        return false;
    }
    if named {
        for token in parts.leaf.split('_') {
            match token {
                "f16" => out.dtype = Some(DType::Fp16),
                "bf16" => out.dtype = Some(DType::Bf16),
                "f32" => out.dtype = Some(DType::Fp32),
                _ => {}
            }
            out.arch = out.arch.or(arch(token));
            if let Some((m, n)) = token.split_once('x')
                && let (Ok(m), Ok(n)) = (m.parse(), n.parse())
            {
                out.tile = Some((m, n));
            }
        }
    } else {
        out.dtype = scan::first_type(parts.args, true);
        out.arch = arch_in(&parts.args.to_ascii_lowercase());
    }
    let half = matches!(out.dtype, Some(DType::Fp16 | DType::Bf16));
    let tensor_core = match (out.arch, half) {
        (Some(arch), _) if arch >= (8, 0) => TensorCore::Yes,
        (Some(arch), true) if arch >= (7, 0) => TensorCore::Yes,
        (Some(_), _) => TensorCore::No,
        (None, _) => TensorCore::Unknown,
    };
    // On compute capability 8.0 and later, Tensor Cores multiply fp32 operands as TF32.
    if out.dtype == Some(DType::Fp32) && tensor_core == TensorCore::Yes {
        out.dtype = Some(DType::Tf32);
    }
    attention(out, tensor_core)
}

/// Kernels that cuDNN generates and NVIDIA's `fmha` families: the base name has all properties.
fn generated(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.as_str();
    let sdpa =
        leaf.starts_with("cudnn_generated") && (leaf.contains("sdpa") || leaf.contains("mha"));
    let fmha = leaf.contains("fmha") || parts.args.contains("Fmha");
    if !(sdpa || fmha) {
        return false;
    }
    if is_step(leaf)
        || parts.args.contains("Combine")
        || parts.args.contains("DotO")
        || parts.args.contains("ConvertQGrad")
    {
        return helper(out);
    }
    attention(out, TensorCore::Yes);
    for token in leaf.split('_') {
        match token {
            "f16" | "fp16" => out.dtype = Some(DType::Fp16),
            "bf16" => out.dtype = Some(DType::Bf16),
            "e4m3" | "e5m2" | "fp8" => out.dtype = Some(DType::Fp8),
            "causal" => out.causal = Some(true),
            _ => {}
        }
        out.arch = out.arch.or(arch(token));
    }
    if let Some(rest) = parts.name().strip_prefix("fmhaSm") {
        trt_llm(rest, out);
    } else if out.dtype.is_none() {
        out.dtype = scan::first_type(parts.args, true);
    }
    out.persistent = leaf.contains("persistent") || out.arch >= Some((9, 0));
    true
}

/// `fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext`.
fn trt_llm(rest: &str, out: &mut DecodedName) {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    out.arch = rest.get(..digits).and_then(|d| arch(&format!("sm{d}")));
    let operand = rest
        .split_once("Qkv")
        .or_else(|| rest.split_once("_Q"))
        .map_or("", |s| s.1);
    out.dtype = [
        ("E4m3", DType::Fp8),
        ("Bfloat16", DType::Bf16),
        ("Fp16", DType::Fp16),
        ("E2m1", DType::Fp4),
    ]
    .iter()
    .find(|t| operand.starts_with(t.0))
    .map(|t| t.1);
    out.causal = if rest.contains("Causal") {
        Some(true)
    } else if rest.contains("Dense") {
        Some(false)
    } else {
        None
    };
    out.windowed = out.causal.map(|_| rest.contains("Sliding"));
    if let Some((q, kv)) = rest.rsplit_once("Kv")
        && let (Some(m), Some(n)) = (
            q.rsplit_once('Q').and_then(|m| m.1.parse().ok()),
            kv.split(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|n| n.parse().ok()),
        )
    {
        out.tile = Some((m, n));
    }
}

/// Attention of serving engines: prefill on Tensor Cores, decoding of one token on CUDA cores.
fn served(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.as_str();
    let paged = leaf.starts_with("paged_attention") || leaf.starts_with("single_query_cached_kv");
    let flashinfer = parts.path.starts_with("flashinfer::");
    if paged {
        if leaf.contains("reduce") {
            return helper(out);
        }
        out.dtype = scan::first_type(parts.args, true);
        return attention(
            out,
            if leaf.contains("mfma") || leaf.contains("wmma") {
                TensorCore::Yes
            } else {
                TensorCore::No
            },
        );
    }
    // AITER's assembly kernels (`hsa/*/mla`, `hsa/*/pa` of ROCm/aiter).
    if parts.path.starts_with("aiter::mla_") || parts.path.starts_with("aiter::pa_") {
        if leaf.contains("reduce") || leaf.contains("metadata") {
            return helper(out);
        }
        out.dtype = leaf.split('_').find_map(type_token);
        return attention(out, TensorCore::Yes);
    }
    if leaf.starts_with("merge_attn_states") || (flashinfer && leaf.contains("merge")) {
        return helper(out);
    }
    if flashinfer && leaf.contains("prefill") {
        out.dtype = scan::first_type(parts.args, true);
        return attention(out, TensorCore::Yes);
    }
    if flashinfer && leaf.contains("decode") || leaf.starts_with("masked_multihead_attention") {
        out.dtype = scan::first_type(parts.args, true);
        return attention(out, TensorCore::No);
    }
    false
}

/// Names of Triton attention kernels: the Triton port of FlashAttention (ROCm), vLLM, SGLang.
const TRITON: [&str; 9] = [
    "attn_fwd",
    "_attn_fwd",
    "_attn_bwd",
    "attn_bwd",
    "bwd_kernel_dk_dv",
    "bwd_kernel_dq",
    "bwd_kernel_fuse",
    "kernel_unified_attention",
    "_fwd_grouped_kernel_stage1",
];

fn triton(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if parts.params {
        return false;
    }
    let leaf = parts.leaf.as_str();
    if leaf == "reduce_segments"
        || leaf.ends_with("_kernel_stage2")
        || leaf.starts_with("_attn_bwd_preprocess")
        || leaf == "bwd_preprocess"
    {
        out.triton = true;
        return helper(out);
    }
    if TRITON.iter().any(|t| leaf.starts_with(t)) {
        out.triton = true;
        return attention(out, TensorCore::Unknown);
    }
    false
}
