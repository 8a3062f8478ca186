//! GEMM and convolution kernels of vendor libraries, whose names are lists of `_`-separated tokens:
//! cuBLAS, cuDNN, CUTLASS, TensorRT-LLM, Tensile, Composable Kernel, MIOpen.
//!
//! Families and token meanings are taken from observed kernel names and, for CUTLASS, from the naming
//! scheme in its `library/generator.py`.

use super::decoded::{DecodedName, Family, LABEL, Role, TensorCore};
use super::scan::{self, Parts};
use super::tokens::{Instruction, arch, arch_in, capability, dims, is_layout, type_token};
use crate::base::DType;

/// The library whose naming scheme an identifier follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// cuBLAS 12.4 and later.
    Nvjet,
    /// cuBLAS and cuDNN, precompiled: `volta_sgemm_...`, `sm80_xmma_...`, `cutlass_80_...`.
    Nvidia,
    /// TensorRT-LLM generated: `bmm_<out>_<a><b>_Fp32_t128x16x256...`.
    TrtLlm,
    /// Tensile (rocBLAS, hipBLASLt).
    Tensile,
    /// MIOpen's assembly implicit GEMM.
    Igemm,
}

/// Decodes a library GEMM or convolution.
pub(super) fn read(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if let Some((ident, scheme)) = decisive(parts) {
        match scheme {
            Scheme::Nvjet => nvjet(&ident, out),
            Scheme::Nvidia => nvidia(&ident, out),
            Scheme::TrtLlm => trt_llm(&ident, out),
            Scheme::Tensile => tensile(&ident, out),
            Scheme::Igemm => igemm(&ident, out),
        }
        out.label = label(&ident, out);
        return out.family != Family::Unknown;
    }
    cutlass_templates(parts, out) || composable(parts, out) || typed(parts, out)
}

/// The identifier with the kernel's properties: the base name, or the template argument of a generic
/// wrapper.
fn decisive(parts: &Parts<'_>) -> Option<(String, Scheme)> {
    let name = parts.name();
    let leaf = parts.leaf.as_str();
    if leaf.starts_with("nvjet_") {
        return Some((name.to_owned(), Scheme::Nvjet));
    }
    if (leaf.starts_with("bmm_") || leaf.starts_with("gemm_")) && leaf.contains("_sm") {
        return Some((name.to_owned(), Scheme::TrtLlm));
    }
    if leaf.starts_with("cijk_") || leaf.starts_with("custom_cijk_") {
        return Some((name.to_owned(), Scheme::Tensile));
    }
    if leaf.starts_with("igemm_") {
        return Some((name.to_owned(), Scheme::Igemm));
    }
    if parts.path.starts_with("cutlass") || parts.path.starts_with("xmma") {
        let inner = scan::idents(parts.args)
            .map(|i| i.text)
            .find(|t| t.starts_with("cutlass") && t.contains("_") && is_tokens(t));
        if let Some(inner) = inner {
            return Some((inner.to_owned(), Scheme::Nvidia));
        }
    }
    is_tokens(leaf).then(|| (name.to_owned(), Scheme::Nvidia))
}

/// Whether a name is a token list with an architecture near the front (`_5x_cudnn_ampere_scudnn_...`
/// names libraries first) and a GEMM or convolution instruction.
fn is_tokens(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let placed = name
        .split('_')
        .take(5)
        .any(|t| arch(t).is_some() || t.starts_with("cutlass"));
    placed
        && name.split('_').any(|t| {
            Instruction::of(t).is_some() || matches!(t, "xmma" | "simt" | "tensorop" | "cudnn")
        })
}

fn set_tile(out: &mut DecodedName, dims: &[u32]) {
    match (out.tile, dims) {
        (None, &[m, n]) => out.tile = Some((m, n)),
        (None, &[m, n, k]) => {
            out.tile = Some((m, n));
            out.tile_k = Some(k);
        }
        // CUTLASS and cuBLAS: `<m>x<n>_<k>x<stages>`.
        (Some(_), &[k, _]) if out.tile_k.is_none() => out.tile_k = Some(k),
        _ => {}
    }
}

/// The properties collected from the tokens of a cuBLAS, cuDNN or CUTLASS name.
#[derive(Debug, Default)]
struct Seen {
    types: Vec<DType>,
    instruction: Option<Instruction>,
    /// Elements per global load. An alignment for Tensor Core kernels only.
    load_width: Option<u32>,
    /// The layout `nhwc` or `nchw`, used if no operand layout is named.
    format: Option<String>,
    conv: bool,
    /// Whether tokens indicate Tensor Cores (`positive`) or CUDA cores (`negative`).
    positive: bool,
    negative: bool,
}

impl Seen {
    /// Reads a token with a value.
    fn value(&mut self, token: &str, previous: &str, out: &mut DecodedName) {
        if let Some(found) = arch(token) {
            out.arch.get_or_insert(found);
        } else if previous == "cutlass" && capability(token).is_some() {
            out.arch = capability(token);
        } else if let Some(found) = Instruction::of(token) {
            self.instruction.get_or_insert(found);
        } else if let Some(found) = type_token(token) {
            self.types.push(found);
        } else if let Some(tile) = dims(token.strip_prefix("tilesize").unwrap_or(token)) {
            set_tile(out, &tile);
        } else if let Some(align) = token.strip_prefix("align").and_then(|n| n.parse().ok()) {
            out.align = Some(align);
        } else if let Some(width) = token.strip_prefix("ldg").and_then(|n| n.parse().ok()) {
            self.load_width.get_or_insert(width);
        } else if is_layout(token) {
            out.layout.get_or_insert_with(|| token.to_owned());
        } else if let Some(format) = ["nhwc", "nchw", "ndhwc"]
            .iter()
            .find(|f| token.starts_with(**f))
        {
            self.format.get_or_insert_with(|| (*format).to_owned());
        }
    }

    /// Reads a token without a value.
    fn word(&mut self, token: &str, out: &mut DecodedName) {
        match token {
            "fprop" => out.conv_role = Some(Role::Fwd),
            "dgrad" | "deconv" => out.conv_role = Some(Role::Dgrad),
            "wgrad" => out.conv_role = Some(Role::Wgrad),
            "conv" => self.conv = true,
            "ffma" | "simt" | "dfma" | "hfma2" => self.negative = true,
            "tensorop" | "wmma" | "hmma" | "imma" | "dmma" | "gmma" | "qmma" => {
                self.positive = true;
            }
            "winograd" => out.fast_conv = true,
            _ => {}
        }
        self.positive |= token
            .strip_prefix("tensor")
            .or_else(|| token.strip_prefix("warpgroupsize"))
            .is_some_and(|shape| dims(shape).is_some());
    }

    /// Derives the properties that depend on several tokens.
    fn conclude(mut self, name: &str, out: &mut DecodedName) {
        if let Some(i) = self.instruction {
            out.half_accumulation = i.letter == 'h' && i.matrix;
            self.conv |= i.conv;
            out.conv_role = out.conv_role.or(i.role);
            self.positive |= i.matrix;
            // `sgemm`, `scudnn`: the letter alone is a CUDA-core instruction.
            self.negative |= !i.matrix && !self.positive;
        }
        let narrow = |t: &DType| !matches!(t, DType::Fp32 | DType::Fp64);
        let narrow = self.types.iter().any(narrow);
        self.positive |= name.contains("xmma") && (narrow || out.arch >= Some((9, 0)));
        // cuDNN's FFT convolution is a grouped GEMM of complex numbers.
        out.fast_conv |= name.contains("gcgemm");
        let conv = self.conv
            || out.fast_conv
            || out.conv_role.is_some()
            || (name.contains("_cudnn") && !name.contains("gemm"));
        out.family = if conv { Family::Conv } else { Family::Gemm };
        if name.contains("pooling") {
            out.family = Family::Pool;
        }
        out.tensor_core = match (self.negative, self.positive) {
            (true, _) => TensorCore::No,
            (false, true) => TensorCore::Yes,
            _ => TensorCore::Unknown,
        };
        out.dtype = math_type(&self.types, self.instruction, out);
        out.layout = out.layout.take().or(self.format);
        if out.tensor_core == TensorCore::Yes {
            out.align = out.align.or(self.load_width);
        }
        out.split_k = splits_k(name);
        out.persistent |= PERSISTENT.iter().any(|p| name.contains(p));
    }
}

/// Decodes a name that cuBLAS, cuDNN or CUTLASS composed of tokens.
fn nvidia(name: &str, out: &mut DecodedName) {
    let lower = name.to_ascii_lowercase();
    let mut seen = Seen::default();
    let mut previous = "";
    for token in lower.split('_') {
        seen.value(token, previous, out);
        seen.word(token, out);
        previous = token;
    }
    seen.conclude(&lower, out);
}

/// Tokens of kernels whose grid size follows the GPU, not the problem.
const PERSISTENT: [&str; 7] = [
    "persistent",
    "stream_k",
    "streamk",
    "warpspecialized",
    "warpgroupsize",
    "cooperative",
    "coopa",
];

fn splits_k(lower: &str) -> bool {
    lower.contains("splitk") || lower.contains("split_k")
}

/// The type of the multiplication: that of the operands, where the instruction distinguishes TF32 from
/// FP32.
fn math_type(
    types: &[DType],
    instruction: Option<Instruction>,
    out: &DecodedName,
) -> Option<DType> {
    let tensor = out.tensor_core == TensorCore::Yes;
    let ampere = out.arch >= Some((8, 0)) || out.arch.is_none();
    let named = instruction
        .and_then(|i| i.dtype)
        .or_else(|| types.first().copied());
    match named {
        Some(DType::Fp32) if tensor && ampere => return Some(DType::Tf32),
        Some(named) => return Some(named),
        None => {}
    }
    let i = instruction?;
    match (i.letter, i.matrix) {
        ('s', false) => Some(DType::Fp32),
        ('s', true) if i.tf32_shape && out.arch >= Some((8, 0)) => Some(DType::Tf32),
        ('s', true) if out.arch.is_some_and(|a| a < (8, 0)) => Some(DType::Fp16),
        ('h', _) => Some(DType::Fp16),
        ('d', _) => Some(DType::Fp64),
        ('c', _) => Some(DType::Complex64),
        ('z', _) => Some(DType::Complex128),
        ('i', _) => Some(DType::Int8),
        _ => None,
    }
}

/// `nvjet_[sm100_]<types>_<m>x<n>_<k>x<stages>_<cluster>_..._<layout>`.
fn nvjet(name: &str, out: &mut DecodedName) {
    out.family = Family::Gemm;
    out.tensor_core = TensorCore::Yes;
    out.persistent = true;
    out.split_k = splits_k(&name.to_ascii_lowercase());
    for (position, token) in name.split('_').enumerate() {
        if let Some(found) = arch(token) {
            out.arch = Some(found);
        } else if let Some(size) = dims(token) {
            set_tile(out, &size);
        } else if token.len() == 3 && is_layout(token) {
            out.layout = Some(token.to_owned());
        } else if position <= 2 && out.tile.is_none() && (3..=5).contains(&token.len()) {
            // The first letter is the type of A. bf16 operators launch `tst`.
            out.dtype = match token.bytes().next() {
                Some(b't') => Some(DType::Bf16),
                Some(b'h') => Some(DType::Fp16),
                Some(b'q') => Some(DType::Fp8),
                Some(b'd') => Some(DType::Fp64),
                _ => None,
            };
        }
    }
}

/// `bmm_<out>_<a><b>_Fp32_t<m>x<n>x<k>[u2]_..._<layout>_..._sm100f`.
fn trt_llm(name: &str, out: &mut DecodedName) {
    out.family = Family::Gemm;
    out.tensor_core = TensorCore::Yes;
    for (position, token) in name.split('_').enumerate() {
        if position == 2 {
            out.dtype = operand_types(token);
        } else if let Some(found) = arch(token) {
            out.arch = Some(found);
        } else if let Some(tile) = token
            .strip_prefix('t')
            .map(|t| t.split('u').next().unwrap_or(t))
            && let Some(tile) = dims(tile)
        {
            set_tile(out, &tile);
        } else if token.len() == 2 && is_layout(token) && token.starts_with(['N', 'T']) {
            out.layout = Some(token.to_owned());
        }
    }
    let lower = name.to_ascii_lowercase();
    out.split_k = splits_k(&lower);
    out.persistent = lower.contains("persistent");
}

/// The math type of two operand types: the wider one. For example, FP4 weights with FP8 activations run
/// at the FP8 rate.
fn operand_types(token: &str) -> Option<DType> {
    const SPELLINGS: [(&str, DType); 7] = [
        ("Bfloat16", DType::Bf16),
        ("Fp16", DType::Fp16),
        ("Fp32", DType::Tf32),
        ("E4m3", DType::Fp8),
        ("E5m2", DType::Fp8),
        ("E2m1", DType::Fp4),
        ("Int8", DType::Int8),
    ];
    SPELLINGS.iter().find(|s| token.contains(s.0)).map(|s| s.1)
}

/// `Cijk_<A>_<B>_<types>_..._MT<m>x<n>x<k>_MI<m>x<n>x..`.
fn tensile(name: &str, out: &mut DecodedName) {
    if name.contains("_PostGSU") {
        out.family = Family::Helper;
        out.helper = true;
        return;
    }
    out.family = Family::Gemm;
    out.tensor_core = TensorCore::No;
    let transposed = |a: &str, yes: &str| if a == yes { 't' } else { 'n' };
    let mut tokens = name.split('_').skip_while(|t| *t != "Cijk").skip(1);
    let (a, b) = (
        tokens.next().unwrap_or_default(),
        tokens.next().unwrap_or_default(),
    );
    if a.starts_with('A') && b.starts_with('B') {
        out.layout = Some(
            [transposed(a, "Alik"), transposed(b, "Bjlk")]
                .iter()
                .collect(),
        );
    }
    let types = tokens.next().unwrap_or_default();
    out.dtype = match types.get(..2).unwrap_or(types) {
        "F8" | "B8" => Some(DType::Fp8),
        "I8" | "4x" => Some(DType::Int8),
        _ => match types.bytes().next() {
            Some(b'B') => Some(DType::Bf16),
            Some(b'H') => Some(DType::Fp16),
            Some(b'S') => Some(DType::Fp32),
            Some(b'D') => Some(DType::Fp64),
            Some(b'C') => Some(DType::Complex64),
            Some(b'Z') => Some(DType::Complex128),
            _ => None,
        },
    };
    for token in tokens {
        if let Some(tile) = token.strip_prefix("MT").and_then(dims) {
            set_tile(out, &tile);
        } else if token
            .strip_prefix("MI")
            .is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()) && t.contains('x'))
        {
            out.tensor_core = TensorCore::Yes;
        } else if token == "MX" && out.dtype == Some(DType::Fp32) {
            // XF32, AMD's counterpart of TF32.
            out.dtype = Some(DType::Tf32);
        } else if let Some(n) = token
            .strip_prefix("GSU")
            .and_then(|n| n.parse::<u32>().ok())
        {
            out.split_k = n > 1;
        } else if let Some(n) = token
            .strip_prefix("SK")
            .or_else(|| token.strip_prefix("PK"))
            .and_then(|n| n.parse::<u32>().ok())
        {
            out.persistent |= n > 0;
        }
    }
}

/// `igemm_{fwd,bwd,wrw}_gtc[x]_<layout>_<type>_..._bt<m>x<n>x<k>`.
fn igemm(name: &str, out: &mut DecodedName) {
    out.family = Family::Conv;
    out.tensor_core = if name.contains("gtc") {
        TensorCore::Yes
    } else {
        TensorCore::No
    };
    for token in name.split('_') {
        match token {
            "fwd" => out.conv_role = Some(Role::Fwd),
            "bwd" => out.conv_role = Some(Role::Dgrad),
            "wrw" => out.conv_role = Some(Role::Wgrad),
            "nhwc" | "nchw" => out.layout = Some(token.to_owned()),
            // Split of the reduction over the grid, with atomics.
            "gkgs" | "gks" => out.split_k = true,
            _ => {
                if let Some(tile) = token.strip_prefix("bt").and_then(dims) {
                    set_tile(out, &tile);
                } else if out.dtype.is_none() {
                    out.dtype = type_token(token);
                }
            }
        }
    }
}

/// CUTLASS kernels whose names are C++ types: `cutlass::device_kernel<cutlass::gemm::kernel::...>`.
fn cutlass_templates(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let wrapper = matches!(
        parts.leaf.as_str(),
        "kernel" | "kernel2" | "device_kernel" | "device_kernel_sm90" | "enable_3x_kernel_for_sm9x"
    );
    let from = ["cutlass", "xmma", "cask"]
        .iter()
        .any(|n| parts.path.contains(n));
    if !(wrapper && from) {
        return false;
    }
    let args = parts.args.to_ascii_lowercase();
    let has = |needles: &[&str]| needles.iter().any(|n| args.contains(n));
    out.conv_role = if has(&["dgrad"]) {
        Some(Role::Dgrad)
    } else if has(&["wgrad"]) {
        Some(Role::Wgrad)
    } else if has(&["fprop"]) {
        Some(Role::Fwd)
    } else {
        None
    };
    out.family =
        if has(&["cutlass::conv::", "implicit_gemm", "implicitgemm"]) || out.conv_role.is_some() {
            Family::Conv
        } else if has(&["gemm", "mma"]) {
            Family::Gemm
        } else {
            return false;
        };
    out.tensor_core = if has(&["opclasssimt", "mmasimt", "ffma", "simtpolicy"]) {
        TensorCore::No
    } else if has(&[
        "opclasstensorop",
        "opclasswmma",
        "mmatensorop",
        "hmma",
        "imma",
        "gmma",
        "sm90",
        "sm100",
        "sm120",
        "tensorop",
    ]) {
        TensorCore::Yes
    } else {
        TensorCore::Unknown
    };
    // `arch::Mma<Shape, threads, A, ..>` is the instruction; what is read from memory may be converted.
    let multiplied = scan::idents(parts.args)
        .find(|id| id.text == "Mma")
        .and_then(|id| scan::first_type(scan::own_args(id.after), true));
    out.dtype = match multiplied {
        Some(dtype) => Some(dtype),
        None if has(&["tf32"]) => Some(DType::Tf32),
        None => scan::first_type(parts.args, true),
    };
    if out.dtype == Some(DType::Fp32) && out.tensor_core == TensorCore::Yes {
        out.dtype = Some(DType::Tf32);
    }
    out.arch = arch_in(&args);
    out.persistent = parts.leaf.contains("device_kernel") || has(&PERSISTENT);
    out.split_k = splits_k(&args);
    out.wraps = foreign_type(parts.args);
    let dtype = out.dtype.map(|d| format!(" {d}")).unwrap_or_default();
    let of = match &out.wraps {
        Some(wraps) => format!(" ({wraps})"),
        None => String::new(),
    };
    out.label = format!("cutlass {}{dtype}{of}", out.family.name());
    out.dtype = out
        .dtype
        .or_else(|| named_type(out.wraps.as_deref().unwrap_or_default()));
    true
}

/// The first template argument of a wrapper without its own arguments, if it is a type from outside the
/// library: the last two parts of its path.
fn foreign_type(args: &str) -> Option<String> {
    let first = *scan::split_args(args).first()?;
    let path = first.split('<').next()?.trim();
    let (space, _) = path.split_once("::")?;
    if ["cutlass", "cute", "xmma", "cask"].contains(&space) || path.contains([' ', '(']) {
        return None;
    }
    let mut parts = path.rsplit("::");
    let (name, space) = (parts.next()?, parts.next()?);
    Some(format!("{space}::{name}"))
}

/// AMD's Composable Kernel and its successor CK Tile.
fn composable(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let ck = parts.path.starts_with("ck::") || parts.path.starts_with("ck_tile::");
    if !ck {
        return false;
    }
    let args = scan::cut(parts.args, 2048).to_ascii_lowercase();
    let text = format!("{} {args}", parts.path.replace("tensor_operation", ""));
    let has = |needles: &[&str]| needles.iter().any(|n| text.contains(n));
    if has(&[
        "fmha",
        "norm2d",
        "moesorting",
        "smoothquant",
        "softmax",
        "reduce",
    ]) || !has(&["gemm", "conv"])
    {
        return false;
    }
    out.conv_role = if has(&["bwd_weight"]) {
        Some(Role::Wgrad)
    } else if has(&["bwd_data"]) {
        Some(Role::Dgrad)
    } else if has(&["conv_fwd", "conv2d_fwd", "conv3d_fwd"]) {
        Some(Role::Fwd)
    } else {
        None
    };
    out.family = if out.conv_role.is_some() || has(&["conv"]) {
        Family::Conv
    } else {
        Family::Gemm
    };
    out.tensor_core = if has(&["xdl", "wmma", "mfma", "ck_tile::", "mx_"]) {
        TensorCore::Yes
    } else if has(&["_dl_", "_dl<", "_dpp"]) {
        TensorCore::No
    } else {
        TensorCore::Unknown
    };
    // CK stores bf16 as `unsigned short`.
    out.dtype = scan::idents(parts.args).find_map(|i| match i.text {
        "short" => Some(DType::Bf16),
        other => scan::cxx_type(other).filter(|t| t.is_float()),
    });
    out.split_k = splits_k(&text);
    true
}

/// A hand-written library kernel: the start of the last segment of its base name in lower case, its family,
/// unit and role.
type Typed = (&'static str, Family, TensorCore, Option<Role>);

/// Kernels whose element type is a template argument. Longer names come before their prefixes.
const TYPED: &[Typed] = {
    use Family::{Conv, Gemm};
    use Role::{Dgrad, Fwd, Wgrad};
    use TensorCore::{No, Unknown, Yes};
    &[
        ("gemv", Gemm, No, None),
        ("gemmsn", Gemm, No, None),
        ("gemmk1", Gemm, No, None),
        ("dot_kernel", Gemm, No, None),
        ("sgemm", Gemm, No, None),
        ("dgemm", Gemm, No, None),
        ("magma_", Gemm, No, None),
        ("implicit_convolve", Conv, No, Some(Fwd)),
        ("precomputed_convolve", Conv, No, Some(Fwd)),
        ("explicit_convolve", Conv, No, Some(Fwd)),
        ("dgrad_1x1_stride_2x2", Conv, Yes, Some(Dgrad)),
        ("dgrad_engine", Conv, No, Some(Dgrad)),
        ("dgrad_alg", Conv, No, Some(Dgrad)),
        ("dgrad2d", Conv, No, Some(Dgrad)),
        ("wgrad_alg", Conv, No, Some(Wgrad)),
        ("wgrad2d", Conv, No, Some(Wgrad)),
        ("first_layer_fwd", Conv, Yes, Some(Fwd)),
        ("first_layer_wgrad", Conv, Yes, Some(Wgrad)),
        ("conv2d_c1_k1", Conv, Yes, None),
        ("conv2d_grouped_direct", Conv, No, Some(Fwd)),
        ("convolve_common_engine", Conv, No, None),
        ("conv_depthwise2d_forward", Conv, No, Some(Fwd)),
        ("conv_depthwise2d_backward", Conv, No, Some(Dgrad)),
        ("conv_depthwise2d_grad_weight", Conv, No, Some(Wgrad)),
        (
            "conv_depthwise3d_cuda_backward_input",
            Conv,
            No,
            Some(Dgrad),
        ),
        (
            "conv_depthwise3d_cuda_backward_weight",
            Conv,
            No,
            Some(Wgrad),
        ),
        ("conv_depthwise3d_cuda", Conv, No, Some(Fwd)),
        ("depthwise_fprop", Conv, Unknown, Some(Fwd)),
        ("depthwise_bgrad", Conv, Unknown, Some(Dgrad)),
        ("depthwise_wgrad", Conv, Unknown, Some(Wgrad)),
        ("naive_conv", Conv, No, None),
        ("miopenconvuni", Conv, No, None),
        ("winograd3x3kernel", Conv, No, None),
        ("causal_conv1d_fwd", Conv, No, Some(Fwd)),
        ("causal_conv1d_bwd", Conv, No, None),
        ("causal_conv1d_update", Conv, No, Some(Fwd)),
    ]
};

fn typed(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if sp3_winograd(parts, out) || deep_gemm(parts, out) || triton_kernels(parts, out) {
        return true;
    }
    let leaf = if parts.path.contains("internal::gemvx") {
        "gemvx"
    } else {
        parts.leaf.as_str()
    };
    let Some(row) = TYPED.iter().find(|row| leaf.starts_with(row.0)) else {
        return false;
    };
    (_, out.family, out.tensor_core, out.conv_role) = *row;
    // The leading `int` arguments of gemv kernels are index types.
    out.dtype = scan::first_type(parts.args, true);
    if leaf.starts_with("sgemm") {
        out.dtype = out.dtype.or(Some(DType::Fp32));
    }
    out.fast_conv = leaf.contains("winograd");
    out.split_k = splits_k(leaf);
    if leaf.starts_with("gemv") {
        let dtype = out.dtype.map(|dtype| format!(" {dtype}"));
        out.label = format!("gemv{}", dtype.unwrap_or_default());
    }
    true
}

/// `miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f3x2_stride1`: Winograd on the vector units.
fn sp3_winograd(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if !(parts.leaf.starts_with("miopensp3asm") || parts.leaf.starts_with("sp3asmconv")) {
        return false;
    }
    out.family = Family::Conv;
    out.tensor_core = TensorCore::No;
    out.fast_conv = true;
    out.dtype = parts.leaf.split('_').find_map(type_token);
    true
}

/// The only type that the name of a program's own kernel has: that of `fp8_acc::GemmKernel`.
fn named_type(name: &str) -> Option<DType> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let mut types = words.filter_map(|word| type_token(&word.to_ascii_lowercase()));
    let first = types.next()?;
    types.all(|other| other == first).then_some(first)
}

/// DeepSeek's `deep_gemm::fp8_gemm_kernel` and its successors: Hopper and Blackwell only.
fn deep_gemm(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    if !(parts.path.starts_with("deep_gemm::") && parts.leaf.contains("gemm")) {
        return false;
    }
    out.family = Family::Gemm;
    out.tensor_core = TensorCore::Yes;
    out.persistent = true;
    out.dtype = parts.leaf.split('_').find_map(type_token);
    out.arch = parts.leaf.split('_').find_map(arch);
    true
}

/// Products of experts of the package `triton_kernels`: `_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu`
/// and `_p_matmul_ogs_...` have the layouts and types of result, input and weights, then the tile and the
/// number of splits (`make_matmul_repr` in `matmul_ogs_details/_common.py`).
fn triton_kernels(parts: &Parts<'_>, out: &mut DecodedName) -> bool {
    let leaf = parts.leaf.trim_start_matches('_');
    let Some(rest) = leaf
        .strip_prefix("p_matmul_ogs_")
        .or_else(|| leaf.strip_prefix("matmul_ogs_"))
    else {
        return false;
    };
    let mut words = rest.split('_').skip(1);
    let types = words.next().map(|types| types.replace("mxfp4", "fp4"));
    let sizes = words.next().unwrap_or_default().split('x');
    let sizes: Vec<Option<u32>> = sizes.map(|size| size.parse().ok()).collect();
    out.family = Family::Gemm;
    out.triton = true;
    out.persistent = leaf.starts_with("p_");
    // The weights are converted to the type of the input, or both are multiplied as they are.
    let input = types.as_deref().and_then(|types| types.split('x').nth(1));
    out.dtype = input.and_then(|input| match input {
        "fp4" => Some(DType::Fp4),
        input if input.starts_with("fp8") => Some(DType::Fp8),
        input => type_token(input),
    });
    if let [Some(m), Some(n), Some(k), Some(splits)] = *sizes.as_slice() {
        out.tile = Some((m, n));
        out.tile_k = Some(k);
        out.split_k = splits > 1;
        // `tl.dot` of 16 bits and less compiles to matrix instructions.
        if out.dtype.is_some_and(|dtype| dtype.bytes() <= 2) {
            out.tensor_core = TensorCore::Yes;
        }
    }
    true
}

/// The identifier if it is short enough, otherwise its distinguishing parts.
fn label(ident: &str, out: &DecodedName) -> String {
    if ident.len() <= LABEL {
        return ident.to_owned();
    }
    let head = if let Some(at) = ident.find("_MT") {
        ident.get(..at).map(|h| scan::cut(h, 40))
    } else if ident.contains("_xmma_") {
        let kind = ["gemm", "fprop", "dgrad", "wgrad"]
            .iter()
            .filter_map(|k| ident.find(k).map(|at| at + k.len()))
            .min();
        kind.and_then(|end| ident.get(..end))
    } else {
        None
    };
    let Some(head) = head else {
        // The ends identify the kernel and its alignment; the middle repeats types.
        let (first, last) = (LABEL - 16, ident.len() - 15);
        let tail = ident.get(last..).unwrap_or_default();
        return format!("{}…{tail}", scan::cut(ident, first));
    };
    let mut label = head.to_owned();
    if ident.contains("_xmma_") {
        for part in [out.dtype.map(|d| d.name().to_owned()), out.layout.clone()] {
            label.extend(part.into_iter().flat_map(|p| [" ".to_owned(), p]));
        }
    }
    if let Some((m, n)) = out.tile {
        let k = out.tile_k.map(|k| format!("x{k}")).unwrap_or_default();
        label.push_str(&format!(" {m}x{n}{k}"));
    }
    if out.tensor_core == TensorCore::No {
        label.push_str(" ffma");
    }
    if out.split_k {
        label.push_str(" split-k");
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_typed_row_hides_another() {
        for (i, row) in TYPED.iter().enumerate() {
            let hit = TYPED.iter().position(|r| row.0.starts_with(r.0));
            assert_eq!(hit, Some(i), "{} is shadowed", row.0);
        }
    }
}
