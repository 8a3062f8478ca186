//! What a kernel's name says.

use super::scan;
use crate::base::DType;
use crate::base::words::words;

/// Maximum length of a label, in characters.
pub(super) const LABEL: usize = 60;

words! {
    /// What kind of work a kernel or an operator does.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Family with fn name {
        /// Matrix products.
        Gemm = "gemm",
        /// Convolutions.
        Conv = "conv",
        /// Fused attention.
        Attention = "attention",
        /// Recurrent layers: LSTM, GRU, plain RNN.
        Rnn = "rnn",
        /// Normalization layers: batch, layer, group, instance and RMS norm.
        Norm = "norm",
        /// Softmax and log-softmax.
        Softmax = "softmax",
        /// Loss functions.
        Loss = "loss",
        /// Elementwise operators.
        Pointwise = "pointwise",
        /// Dropout.
        Dropout = "dropout",
        /// Reductions: sum, mean, max, norm of a tensor; operators such as `cumsum`.
        Reduce = "reduce",
        /// Copies by a kernel that keep the element type.
        Copy = "copy",
        /// Copies that change the element type.
        Cast = "cast",
        /// NCHW <-> NHWC and other layout changes made by a library.
        Layout = "layout",
        /// Concatenation.
        Cat = "cat",
        /// Writing one value to all elements.
        Fill = "fill",
        /// Random number generation.
        Random = "random",
        /// Embedding lookups and their gradients.
        Embedding = "embedding",
        /// Gather, scatter, index selection and masking.
        Index = "index",
        /// Sorting, top-k and unique.
        Sort = "sort",
        /// Kernels of scans, where each element depends on those before it: running sums, the states of Mamba.
        Scan = "scan",
        /// Pooling.
        Pool = "pool",
        /// Resizing and grid sampling.
        Interpolate = "interpolate",
        /// Optimizer steps and gradient scaling.
        Optimizer = "optimizer",
        /// Collectives and point-to-point messages between GPUs.
        Communication = "communication",
        /// Memory copies that a profiler lists among the kernels.
        Memcpy = "memcpy",
        /// Memory sets that a profiler lists among the kernels.
        Memset = "memset",
        /// Split-K reductions, offset computations, epilogues, Winograd transforms.
        Helper = "helper",
        /// Conversions to and from quantized types.
        Quantize = "quantize",
        /// Operators that a compiler fused into one kernel whose name does not tell their kind.
        Fused = "fused",
    } unlisted {
        /// The kind of work is not known.
        #[default]
        Unknown = "unknown",
    }
}

impl Family {
    /// The families whose work can run on Tensor Cores.
    pub const MATH: &[Family] = &[Family::Gemm, Family::Conv, Family::Attention, Family::Rnn];

    /// Whether work of this family can run on Tensor Cores.
    pub fn is_math(self) -> bool {
        Family::MATH.contains(&self)
    }
}

/// Whether a kernel runs on Tensor Cores (AMD: matrix cores).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TensorCore {
    /// It does.
    Yes,
    /// It runs on CUDA cores (AMD: vector units).
    No,
    /// The name does not tell.
    #[default]
    Unknown,
}

impl TensorCore {
    /// Whether it does, where the name tells.
    pub fn known(self) -> Option<bool> {
        match self {
            TensorCore::Yes => Some(true),
            TensorCore::No => Some(false),
            TensorCore::Unknown => None,
        }
    }
}

/// Which piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The forward.
    Fwd,
    /// The gradient of the input.
    Dgrad,
    /// The gradient of the weights.
    Wgrad,
    /// The gradient of the bias.
    BiasGrad,
    /// A backward that is a single piece of work.
    Bwd,
    /// An optimizer step.
    Opt,
}

/// The properties in a kernel's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecodedName {
    /// The function's name with its namespaces, without return type, template arguments and
    /// parameters: `at::native::vectorized_elementwise_kernel`, `ampere_sgemm_128x64_tn`.
    pub base: String,
    /// A short label for reports: the last segment of the base name, the functor
    /// (`elementwise: direct_copy`) or the CUTLASS template name.
    pub label: String,
    /// The kind of work.
    pub family: Family,
    /// Whether it runs on Tensor Cores.
    pub tensor_core: TensorCore,
    /// The dtype of the math, if the name has it.
    pub dtype: Option<DType>,
    /// Size in bytes of the elements of a kernel that only moves data, from `OpaqueType<2u>`.
    pub element_bytes: Option<u32>,
    /// Thread block tile (M, N) in elements.
    pub tile: Option<(u32, u32)>,
    /// Thread block tile along K in elements.
    pub tile_k: Option<u32>,
    /// Operand alignment in elements that the kernel requires, if the name has it (`_align2`, `ldg8`).
    /// Not read from `aligna4_alignc4` of `ffma` kernels.
    pub align: Option<u32>,
    /// Operand layout letters, `tn`, `nt`, `TNN`.
    pub layout: Option<String>,
    /// Whether Tensor Cores add up in fp16 (`h16816gemm`): some boards do that at twice the rate.
    pub half_accumulation: bool,
    /// Whether the reduction dimension is split over thread blocks.
    pub split_k: bool,
    /// Whether the grid size is independent of the problem size (persistent, stream-K, warp
    /// specialized, NCCL).
    pub persistent: bool,
    /// Compute capability of the architecture in the name: `sm80_` and `ampere_` are (8, 0), `volta_`
    /// is (7, 0).
    pub arch: Option<(u32, u32)>,
    /// The gradient that a convolution kernel computes, if the name has it.
    pub conv_role: Option<Role>,
    /// Whether the kernel reads or writes strided or broadcast memory (plain
    /// `elementwise_kernel<128, N>`).
    pub strided: Option<bool>,
    /// Elements that each thread of an elementwise loop handles, if the name has it. A
    /// `vectorized_elementwise_kernel` has the number that it reads at once; it may handle more.
    pub per_thread: Option<u32>,
    /// Whether Triton or Inductor compiled the kernel.
    pub triton: bool,
    /// Whether the kernel does no math of its own. FLOPs of a call are never assigned to it.
    pub helper: bool,
    /// Attention: whether the template arguments select a causal mask.
    pub causal: Option<bool>,
    /// Attention: whether queries see the keys of a sliding window or chunk only.
    pub windowed: Option<bool>,
    /// Communication: the collective, `all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, `send_recv`, ...
    pub collective: Option<&'static str>,
    /// Whether it is a Winograd or FFT convolution, which multiplies fewer numbers than the direct
    /// algorithm.
    pub fast_conv: bool,
    /// The type that a generic function of a library runs, where it is none of the library's own: the
    /// `mine::Gemm` of `cutlass::device_kernel<mine::Gemm>`.
    pub wraps: Option<String>,
}

impl DecodedName {
    /// The state before any reader has run: name and element size only.
    pub(super) fn of_base(parts: &scan::Parts<'_>) -> DecodedName {
        DecodedName {
            base: parts.base.clone(),
            label: scan::cut(parts.name(), 240).to_owned(),
            element_bytes: scan::opaque_bytes(parts.args),
            ..DecodedName::default()
        }
    }
}
