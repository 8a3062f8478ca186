//! A kernel's name, decoded: what the hardware ran.
//!
//! The base name is found first, then the family, then the Tensor Core verdict, where tokens that
//! deny win over tokens that affirm: `xmma` alone proves nothing, `ffma` beside it proves CUDA cores.
//! Matching whole names instead of base names is how `lambda` becomes an optimizer (`lamb`).

use serde::Serialize;

use crate::base::DType;

mod attention;
mod library;
mod native;
mod scan;
mod table;
#[cfg(test)]
mod tests;
mod tokens;

/// Recognises one group of kernels: fills in what the name says and answers whether it was one.
type Reader = fn(&scan::Parts<'_>, &mut DecodedName) -> bool;

/// In this order; the first that recognises the name decides.
const READERS: &[Reader] = &[
    native::memory,
    native::inductor,
    native::communication,
    native::elementwise,
    native::reduce,
    native::softmax,
    native::multi_tensor,
    table::helpers,
    attention::read,
    library::read,
    table::kernels,
    table::words,
];

/// Longest label, in characters.
const LABEL: usize = 60;

/// Decodes a kernel's name, demangled or not. Any text is accepted; the work is linear in its length
/// and only the first 16 KiB are looked at.
pub fn decode(name: &str) -> DecodedName {
    let text = scan::readable(name);
    let parts = scan::Parts::of(&text);
    let mut out = DecodedName::of_base(&parts);
    if !READERS.iter().any(|reader| reader(&parts, &mut out)) {
        out.family = Family::Unknown;
    }
    if !out.family.is_math() && out.family != Family::Unknown {
        out.tensor_core = TensorCore::No;
    }
    if out.label.chars().count() > LABEL {
        out.label = out.label.chars().take(LABEL - 1).chain(['…']).collect();
    }
    out
}

/// A kernel's name as people read it: demangled where it is mangled and its symbol can be read.
pub fn readable(name: &str) -> std::borrow::Cow<'_, str> {
    if name.starts_with("_Z") {
        scan::readable(name)
    } else {
        std::borrow::Cow::Borrowed(name)
    }
}

/// Whether a kernel moves data between GPUs.
pub fn is_communication(name: &str) -> bool {
    let text = scan::readable(name);
    let parts = scan::Parts::of(&text);
    let mut out = DecodedName::of_base(&parts);
    !native::inductor(&parts, &mut out) && native::communication(&parts, &mut out)
}

/// What kind of work a kernel or an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    Gemm,
    Conv,
    Attention,
    Rnn,
    Norm,
    Softmax,
    Loss,
    Pointwise,
    Dropout,
    Reduce,
    Copy,
    Cast,
    /// NCHW <-> NHWC and other layout changes made by a library.
    Layout,
    Cat,
    Fill,
    Random,
    Embedding,
    Index,
    Sort,
    Pool,
    Interpolate,
    Optimizer,
    Communication,
    Memcpy,
    Memset,
    /// Split-K reductions, offset computations, epilogues, Winograd transforms.
    Helper,
    Quantize,
    Unknown,
}

impl Family {
    /// Every family that work can be said to belong to; [`Family::Unknown`] is none.
    pub const ALL: [Family; 27] = [
        Family::Gemm,
        Family::Conv,
        Family::Attention,
        Family::Rnn,
        Family::Norm,
        Family::Softmax,
        Family::Loss,
        Family::Pointwise,
        Family::Dropout,
        Family::Reduce,
        Family::Copy,
        Family::Cast,
        Family::Layout,
        Family::Cat,
        Family::Fill,
        Family::Random,
        Family::Embedding,
        Family::Index,
        Family::Sort,
        Family::Pool,
        Family::Interpolate,
        Family::Optimizer,
        Family::Communication,
        Family::Memcpy,
        Family::Memset,
        Family::Helper,
        Family::Quantize,
    ];

    /// The word used in rules and reports.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gemm => "gemm",
            Family::Conv => "conv",
            Family::Attention => "attention",
            Family::Rnn => "rnn",
            Family::Norm => "norm",
            Family::Softmax => "softmax",
            Family::Loss => "loss",
            Family::Pointwise => "pointwise",
            Family::Dropout => "dropout",
            Family::Reduce => "reduce",
            Family::Copy => "copy",
            Family::Cast => "cast",
            Family::Layout => "layout",
            Family::Cat => "cat",
            Family::Fill => "fill",
            Family::Random => "random",
            Family::Embedding => "embedding",
            Family::Index => "index",
            Family::Sort => "sort",
            Family::Pool => "pool",
            Family::Interpolate => "interpolate",
            Family::Optimizer => "optimizer",
            Family::Communication => "communication",
            Family::Memcpy => "memcpy",
            Family::Memset => "memset",
            Family::Helper => "helper",
            Family::Quantize => "quantize",
            Family::Unknown => "unknown",
        }
    }

    /// Runs on the matrix units when it can.
    pub fn is_math(self) -> bool {
        matches!(
            self,
            Family::Gemm | Family::Conv | Family::Attention | Family::Rnn
        )
    }
}

/// Whether a kernel runs on Tensor Cores (AMD: matrix cores).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorCore {
    Yes,
    No,
    Unknown,
}

/// Everything a kernel's name gives away.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecodedName {
    /// The function's own name without return type, namespaces kept, template arguments and
    /// parameters cut: `at::native::vectorized_elementwise_kernel`, `ampere_sgemm_128x64_tn`.
    pub base: String,
    /// A short label for reports: the base name's last segment, or the functor that tells more
    /// (`elementwise: direct_copy`), or the CUTLASS template name.
    pub label: String,
    pub family: Family,
    pub tensor_core: TensorCore,
    /// Type of the math, when the name says.
    pub dtype: Option<DType>,
    /// Bytes of an element that is only moved, `OpaqueType<2u>`: its type does not matter.
    pub element_bytes: Option<u32>,
    /// Thread block tile (M, N).
    pub tile: Option<(u32, u32)>,
    pub tile_k: Option<u32>,
    /// Element alignment the kernel was built for, when the name says (`_align2`, `ldg8`): evidence
    /// about the operands. Never from `aligna4_alignc4` of `ffma` kernels.
    pub align: Option<u32>,
    /// Operand layout letters, `tn`, `nt`, `TNN`.
    pub layout: Option<String>,
    pub split_k: bool,
    /// Grid size says nothing about parallelism (persistent, stream-K, warp specialised, NCCL).
    pub persistent: bool,
    /// Architecture in the name: `sm80_`, `ampere_` = (8, 0), `volta_` = (7, 0).
    pub arch: Option<(u32, u32)>,
    /// Which gradient a convolution kernel computes, when its name says.
    pub conv_role: Option<super::Role>,
    /// The kernel reads or writes strided or broadcast memory (plain `elementwise_kernel<128, N>`).
    pub strided: Option<bool>,
    /// Compiled by Triton / Inductor.
    pub triton: bool,
    /// Does no math of its own: helper kernels never get a call's FLOPs.
    pub helper: bool,
    /// Attention: causal flag in the template arguments.
    pub causal: Option<bool>,
    /// Communication: `all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, `send_recv`, ...
    pub collective: Option<&'static str>,
    /// Winograd or FFT: real multiplies are fewer than the direct count.
    pub fast_conv: bool,
}

impl DecodedName {
    /// What is known before any reader has looked: the name itself.
    fn of_base(parts: &scan::Parts<'_>) -> DecodedName {
        DecodedName {
            base: parts.base.clone(),
            label: scan::cut(parts.name(), 240).to_owned(),
            family: Family::Unknown,
            tensor_core: TensorCore::Unknown,
            dtype: None,
            element_bytes: scan::opaque_bytes(parts.args),
            tile: None,
            tile_k: None,
            align: None,
            layout: None,
            split_k: false,
            persistent: false,
            arch: None,
            conv_role: None,
            strided: None,
            triton: false,
            helper: false,
            causal: None,
            collective: None,
            fast_conv: false,
        }
    }
}
