//! Facts of a kernel that say who made it, and so who can change it.

use super::fact::{Answer, FactEntry, facts};
use super::kernel::{KernelScope, Kernels};
use crate::cost::{DecodedName, readable};

/// Who made a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// `torch.compile`, by way of Triton.
    Inductor,
    /// Triton: a kernel of the program or of a library.
    Triton,
    /// PyTorch itself.
    PyTorch,
    /// Libraries of the vendor of the GPU: cuBLAS, cuDNN, NCCL, rocBLAS, MIOpen.
    Vendor,
    /// The builder of TensorRT.
    TensorRt,
    /// XLA, the compiler of JAX and TensorFlow, by way of Triton or not.
    Xla,
    /// Another library, by its name.
    Library(&'static str),
}

impl Maker {
    /// All words, for the closed set of the fact.
    pub(super) const WORDS: &'static [&'static str] = &[
        "inductor", "triton", "pytorch", "vendor", "tensorrt", "xla", "library", UNKNOWN,
    ];

    fn word(self) -> &'static str {
        match self {
            Maker::Inductor => "inductor",
            Maker::Triton => "triton",
            Maker::PyTorch => "pytorch",
            Maker::Vendor => "vendor",
            Maker::TensorRt => "tensorrt",
            Maker::Xla => "xla",
            Maker::Library(_) => "library",
        }
    }
}

/// The word for names that do not tell: a kernel of the program's own, or of a library not listed here.
const UNKNOWN: &str = "unknown";

/// Namespaces and prefixes of base names in lower case, with what they belong to; the first that fits
/// counts. A prefix that ends in `::` may stand behind other namespaces.
const NAMES: &[(&str, Maker)] = &[
    ("deep_gemm::", Maker::Library("DeepGEMM")),
    ("deep_ep::", Maker::Library("DeepEP")),
    ("flashinfer::", Maker::Library("FlashInfer")),
    ("batchprefillwith", Maker::Library("FlashInfer")),
    ("batchdecodewith", Maker::Library("FlashInfer")),
    ("transformer_engine::", Maker::Library("Transformer Engine")),
    ("tensorrt_llm::", Maker::Library("TensorRT-LLM")),
    ("trtllm", Maker::Library("TensorRT-LLM")),
    ("fmhasm100", Maker::Library("TensorRT-LLM")),
    ("vllm::", Maker::Library("vLLM")),
    ("marlin", Maker::Library("Marlin")),
    ("sgl_kernel::", Maker::Library("SGLang")),
    ("sglang::", Maker::Library("SGLang")),
    ("aiter::", Maker::Library("AITER")),
    ("ck_tile::", Maker::Library("Composable Kernel")),
    ("ck::", Maker::Library("Composable Kernel")),
    ("paged_attention_", Maker::Library("vLLM or AITER")),
    ("_matmul_ogs", Maker::Library("triton_kernels")),
    ("nvfuser_", Maker::Library("nvFuser")),
    ("fbgemm_gpu::", Maker::Library("FBGEMM")),
    ("split_embedding_", Maker::Library("FBGEMM")),
    ("apex::", Maker::Library("Apex")),
    ("kgemm_4bit_inference", Maker::Library("bitsandbytes")),
    ("kquantizeblockwise", Maker::Library("bitsandbytes")),
    ("kdequantizeblockwise", Maker::Library("bitsandbytes")),
    ("selective_scan_", Maker::Library("Mamba")),
    ("causal_conv1d_", Maker::Library("Mamba")),
    // PyTorch has copies of these two in namespaces of its own.
    ("pytorch_flash::", Maker::PyTorch),
    ("pytorchmemeffattention", Maker::PyTorch),
    ("fmha_cutlass", Maker::PyTorch),
    ("flash::", Maker::Library("flash-attn")),
    ("genericreformat::", Maker::TensorRt),
    ("__myl_", Maker::TensorRt),
    ("at::", Maker::PyTorch),
    ("at_cuda_detail::", Maker::PyTorch),
    ("c10::", Maker::PyTorch),
    ("c10d::", Maker::PyTorch),
    ("cunn_", Maker::PyTorch),
    ("kernelpointwiseapply", Maker::PyTorch),
    ("kernelreduceall", Maker::PyTorch),
    ("kernelreducecontig", Maker::PyTorch),
    ("kernelreducenoncontig", Maker::PyTorch),
    ("indexselectlargeindex", Maker::PyTorch),
    ("indexselectsmallindex", Maker::PyTorch),
    ("softmax_warp_", Maker::PyTorch),
    ("multi_tensor_apply_kernel", Maker::Library("Apex")),
    ("cudnn::", Maker::Vendor),
    ("cudnn_", Maker::Vendor),
    ("cutlass_cudnn", Maker::Vendor),
    ("cublas", Maker::Vendor),
    ("cask", Maker::Vendor),
    ("nvjet_", Maker::Vendor),
    ("nccl", Maker::Vendor),
    ("cutensor", Maker::Vendor),
    ("gemv2", Maker::Vendor),
    ("gemvnsp", Maker::Vendor),
    ("gemvx", Maker::Vendor),
    ("gemmsn", Maker::Vendor),
    ("gemmk1", Maker::Vendor),
    ("splitkreduce", Maker::Vendor),
    ("sgemm_128x", Maker::Vendor),
    ("sgemm_64x", Maker::Vendor),
    ("sgemm_32x", Maker::Vendor),
    ("sgemm_largek", Maker::Vendor),
    ("maxwell_", Maker::Vendor),
    ("volta_", Maker::Vendor),
    ("turing_", Maker::Vendor),
    ("ampere_", Maker::Vendor),
    ("hopper_", Maker::Vendor),
    ("implicit_convolve", Maker::Vendor),
    ("explicit_convolve", Maker::Vendor),
    ("precomputed_convolve", Maker::Vendor),
    ("wgrad_alg", Maker::Vendor),
    ("fft2d_", Maker::Vendor),
    ("persistrnn", Maker::Vendor),
    ("rnn_block_persist", Maker::Vendor),
    ("lstm_elementwise", Maker::Vendor),
    ("cijk_", Maker::Vendor),
    ("custom_cijk_", Maker::Vendor),
    ("miopen", Maker::Vendor),
    ("igemm_fwd_", Maker::Vendor),
    ("igemm_bwd_", Maker::Vendor),
    ("igemm_wrw_", Maker::Vendor),
    ("rocblas", Maker::Vendor),
];

/// Namespaces of operators that belong to an engine or a library.
const MODULES: &[(&str, &str)] = &[
    ("vllm", "vLLM"),
    ("_vllm_fa2_C", "vLLM"),
    ("_vllm_fa3_C", "vLLM"),
    ("_moe_C", "vLLM"),
    ("_C_cache_ops", "vLLM"),
    ("sgl_kernel", "SGLang"),
    ("sglang", "SGLang"),
    ("trtllm", "TensorRT-LLM"),
    ("tensorrt_llm", "TensorRT-LLM"),
    ("lightllm", "LightLLM"),
    ("lmdeploy", "LMDeploy"),
    ("aiter", "AITER"),
    ("flashinfer", "FlashInfer"),
    ("flash_attn", "flash-attn"),
    ("fbgemm", "FBGEMM"),
    ("xformers", "xFormers"),
    ("xformers_flash", "xFormers"),
    ("transformer_engine", "Transformer Engine"),
    ("bitsandbytes", "bitsandbytes"),
    ("torchao", "torchao"),
];

/// The engine or library that a namespace of operators belongs to.
pub(super) fn library_of(namespace: &str) -> Option<&'static str> {
    let mut modules = MODULES.iter();
    let (_, library) = modules.find(|(module, _)| *module == namespace)?;
    Some(library)
}

/// Whether a Triton kernel's name ends with its signature, as it did before Triton 3: `0d1d2d3de4de`.
/// `d` marks a value that 16 divides, `c` a constant, `e` one that 8 divides.
fn has_signature(leaf: &str) -> bool {
    let Some(at) = leaf.rfind("_0") else {
        return false;
    };
    let signature = leaf.get(at + 1..).unwrap_or_default();
    let mut next = 0_u32;
    let mut rest = signature;
    while !rest.is_empty() {
        let number = next.to_string();
        let Some(after) = rest.strip_prefix(number.as_str()) else {
            return false;
        };
        rest = after.trim_start_matches(['d', 'e', 'c']);
        next += 1;
    }
    next >= 3
}

/// Whether XLA made the kernel of a name: it takes the names of its instructions, `loop_multiply_fusion_3`,
/// `wrapped_add`, `gemm_fusion_dot_4`, `triton_softmax_7`.
fn is_xla(path: &str) -> bool {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = name.strip_suffix('_').unwrap_or(path);
    let fused = |kind: &str| name.starts_with(kind) && name.ends_with("_fusion");
    name == "fusion"
        || ["loop_", "input_", "output_"].into_iter().any(fused)
        || ["wrapped_", "gemm_fusion_", "triton_gemm_", "triton_softmax"]
            .iter()
            .any(|begin| name.starts_with(begin))
}

/// Who made the kernel of a name, as far as the name tells.
pub(super) fn maker(base: &str, triton: bool) -> Option<Maker> {
    let path = base.to_ascii_lowercase();
    let leaf = path.rsplit("::").next().unwrap_or_default();
    let inductor = leaf.strip_prefix("triton_").is_some_and(|rest| {
        rest.starts_with('_')
            || rest.get(3..4) == Some("_")
            || rest.starts_with("mm_")
            || rest.starts_with("bmm_")
            || rest.contains("_fused")
    });
    if inductor {
        return Some(Maker::Inductor);
    }
    if is_xla(&path) {
        return Some(Maker::Xla);
    }
    // The name from each of its namespaces on.
    let inside = path
        .match_indices("::")
        .filter_map(|(at, sign)| path.get(at + sign.len()..));
    let parts: Vec<&str> = std::iter::once(path.as_str()).chain(inside).collect();
    let named = NAMES.iter().find(|(name, _)| match name.ends_with("::") {
        true => parts.iter().any(|part| part.starts_with(name)),
        false => path.starts_with(name) || leaf.starts_with(name),
    });
    if let Some((_, maker)) = named {
        return Some(*maker);
    }
    if leaf.ends_with("_trt") || leaf.contains("_trt_") || leaf.contains("myelin") {
        return Some(Maker::TensorRt);
    }
    let generated =
        (leaf.starts_with("bmm_") || leaf.starts_with("gemm_")) && leaf.contains("_sm1");
    if generated {
        return Some(Maker::Library("TensorRT-LLM"));
    }
    if leaf.contains("xmma_") {
        return Some(Maker::Vendor);
    }
    (triton || has_signature(leaf)).then_some(Maker::Triton)
}

/// The engine or library that a kernel's name tells, other than those of the GPU's vendor.
pub(crate) fn product_of(kernel: &DecodedName) -> Option<&'static str> {
    match maker(&kernel.base, kernel.triton)? {
        Maker::TensorRt => Some("TensorRT"),
        Maker::Library(name) => Some(name),
        _ => None,
    }
}

/// The maker of a kernel by its name, else by the namespace of its operator.
fn of_kernel(k: &KernelScope<'_>) -> Option<Maker> {
    let by_name = maker(&k.name.base, k.name.triton);
    let strings = &k.site.table.costed.run.profile;
    let full = || readable(strings.text(k.kernel.name));
    let by_name = by_name.or_else(|| {
        // Instances of CUTLASS that cuBLAS and cuDNN bring with them are named by architecture and unit.
        let full = full();
        let built_in = ["cutlass_80_", "cutlass_75_", "cutlass_70_", "cutlass_90_"];
        let vendor = k.name.base.to_ascii_lowercase().starts_with("cutlass")
            && built_in.iter().any(|name| full.contains(name));
        vendor.then_some(Maker::Vendor)
    });
    let by_operator = || {
        let op = k.site.site.op.as_ref()?;
        library_of(&op.module).map(Maker::Library)
    };
    match by_name {
        None | Some(Maker::Triton) => by_operator().or(by_name),
        _ => by_name,
    }
}

/// Bytes of the weights of DeepGEMM's kernels, which are compiled for one size: `N`, `K` and the number
/// of groups are template arguments. Which experts have tokens is not known, so it is the most that is
/// read.
fn deep_gemm_weights(base: &str, text: &str) -> Option<u64> {
    if !base.starts_with("deep_gemm::") {
        return None;
    }
    let leaf = base.rsplit("::").next()?;
    let element = match leaf {
        _ if leaf.contains("fp8_gemm") => 1,
        _ if leaf.contains("bf16_gemm") => 2,
        _ => return None,
    };
    let arguments = text.split_once('<')?.1;
    let numbers: Vec<u64> = arguments
        .split(',')
        .map_while(|argument| {
            // A layout in front of the sizes.
            if argument.contains("::") {
                return Some(None);
            }
            let number = argument.trim().rsplit(')').next().unwrap_or_default();
            let digits = number.trim_end_matches(['u', 'U', 'l', 'L']);
            digits.parse().ok().map(Some)
        })
        .flatten()
        .collect();
    let (n, k, groups) = if leaf.ends_with("_impl") {
        // SHAPE_M, SHAPE_N, SHAPE_K, kNumGroups, ...
        (*numbers.get(1)?, *numbers.get(2)?, *numbers.get(3)?)
    } else {
        // SHAPE_N, SHAPE_K, tiles, kNumGroups, kNumStages, 128 and 128 threads, ...
        let threads = numbers
            .windows(2)
            .skip(6)
            .position(|pair| pair == [128, 128])?
            + 6;
        (
            *numbers.first()?,
            *numbers.get(1)?,
            *numbers.get(threads.checked_sub(2)?)?,
        )
    };
    // 0 stands for a size that is known at run time only.
    let plausible = n > 0 && k > 0 && (1..=4096).contains(&groups);
    plausible
        .then(|| n.checked_mul(k)?.checked_mul(groups)?.checked_mul(element))
        .flatten()
}

pub(super) const ENTRIES: &[FactEntry<Kernels>] = facts! {
    /// Who made it, by its name or its operator: `inductor` (`torch.compile`), `triton`, `pytorch`,
    /// `vendor` (cuBLAS, cuDNN, rocBLAS, ...), `tensorrt`, `xla`, `library` or `unknown`
    "kernel.maker": STR => |k| {
        let word = || of_kernel(k).map_or(UNKNOWN, Maker::word);
        *k.maker.get_or_init(word)
    },
    /// The unit that a change applies to: the kernels of one library for one kind of work (`FlashInfer
    /// attention`), an engine of TensorRT, else the kernels with its label
    "kernel.changed_as": STR => |k| match of_kernel(k) {
        Some(Maker::Library(name)) => format!("{name} {}", k.family().name()),
        Some(Maker::Vendor) => format!("{} of the vendor's library", k.family().name()),
        Some(Maker::TensorRt) => "TensorRT".to_owned(),
        _ => k.name.label.clone(),
    },
    /// The library that it belongs to, where that is none of PyTorch or the vendor: `DeepGEMM`,
    /// `FlashInfer`, `vLLM`
    "kernel.library": STR => |k| match of_kernel(k) {
        Some(Maker::Library(name)) => Answer::from(name),
        _ => Answer::DoesNotApply,
    },
    /// The weights that one execution reads at most, by the sizes in its name: kernels of DeepGEMM; silent
    /// for others
    "kernel.weight_bytes": DOUBLE => |k| {
        let text = readable(k.site.table.text(k.kernel.name));
        let bytes = deep_gemm_weights(&k.name.base, &text);
        Answer::or_silent(bytes.map(|bytes| bytes as f64))
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_are_known_by_namespace_and_prefix() {
        for (base, triton, wanted) in [
            ("triton_poi_fused_add_0", true, "inductor"),
            ("triton__0d1d2d3de4de", true, "inductor"),
            ("triton_tem_fused_mm_2", true, "inductor"),
            ("triton_mm_2", true, "inductor"),
            ("triton_gemm_dot_16", true, "xla"),
            ("triton_softmax_7", true, "xla"),
            ("gemm_fusion_dot_4", true, "xla"),
            ("loop_multiply_fusion_3", false, "xla"),
            ("input_reduce_fusion", false, "xla"),
            ("fusion_12", false, "xla"),
            ("wrapped_add", false, "xla"),
            ("bias_gelu_fusion", false, ""),
            ("my::loop_fusion", false, ""),
            (
                "scaled_matmul_kernel_with_block_pointers_0d1d2d3d4d5d6de7de",
                false,
                "triton",
            ),
            (
                "_fwd_kernel_aligned_0d1d2d3d45d6de7de8c9de10de11c12de",
                false,
                "triton",
            ),
            ("my_kernel", true, "triton"),
            ("my_kernel_0", false, ""),
            ("matmul_k", false, ""),
            ("sgemm_naive", false, ""),
            (
                "at::native::vectorized_elementwise_kernel",
                false,
                "pytorch",
            ),
            (
                "cunn_LookupTableBag_accGradParametersKernel",
                false,
                "pytorch",
            ),
            ("pytorch_flash::flash_fwd_kernel", false, "pytorch"),
            ("flash::flash_fwd_kernel", false, "library"),
            ("deep_gemm::fp8_gemm_kernel", false, "library"),
            ("dpsk::deep_ep::internode::combine", false, "library"),
            (
                "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_sm100f",
                false,
                "library",
            ),
            (
                "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs",
                false,
                "vendor",
            ),
            (
                "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
                false,
                "vendor",
            ),
            ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n", false, "vendor"),
            (
                "sm50_xmma_pooling_coalescedC_NHWC_kMAX_3_False_execute_kernel_trt",
                false,
                "tensorrt",
            ),
            ("volta_sgemm_32x128_nn", false, "vendor"),
        ] {
            let found = maker(base, triton).map_or("", Maker::word);
            assert_eq!(found, wanted, "{base}");
            assert!(found.is_empty() || Maker::WORDS.contains(&found));
        }
    }

    #[test]
    fn weights_follow_from_the_sizes_in_the_name() {
        let old = "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 64u, 160u, 128u, 32u, 4u, 128u, 128u, 1u, true, (deep_gemm::GemmType)2>(__nv_bfloat16*)";
        let padded = "void deep_gemm::fp8_gemm_kernel<(unsigned int)4096, (unsigned int)7168, (unsigned int)64, (unsigned int)160, (unsigned int)128, (unsigned int)0, (unsigned int)128, (unsigned int)32, (unsigned int)4, (unsigned int)128, (unsigned int)128, (unsigned int)1, (bool)1>()";
        let new = "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 7168u, 1u, 64u, 96u, 128u, 128u, 5u>(float*)";
        let dynamic =
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 0u, 0u, 1u, 64u, 96u, 128u>(float*)";
        let weights =
            |base: &str, text: &str| deep_gemm_weights(&format!("deep_gemm::{base}"), text);
        assert_eq!(weights("fp8_gemm_kernel", old), Some(939_524_096));
        assert_eq!(weights("fp8_gemm_kernel", padded), Some(939_524_096));
        assert_eq!(weights("sm90_fp8_gemm_1d2d_impl", new), Some(29_360_128));
        assert_eq!(weights("sm90_fp8_gemm_1d2d_impl", dynamic), None);
        assert_eq!(deep_gemm_weights("my::fp8_gemm_kernel", old), None);
    }
}
