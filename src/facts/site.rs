//! Facts of a site: all op calls with the same layer, operator, direction, shapes and dtypes.

use super::equal_calls::EqualCalls;
use super::{Answer, Entry, FactTable, Subject, Value, fact};
use crate::base::DType;
use crate::correlate::{OpArgs, Site, SiteId, Tensor};
use crate::cost::{DecodedName, Dims, Family, OpCost, SiteCost, TensorCore};
use crate::gpu::How;

/// A site with its fact table.
#[derive(Clone, Copy)]
pub(super) struct SiteScope<'a> {
    pub(super) table: &'a FactTable<'a>,
    pub(super) id: SiteId,
    pub(super) site: &'a Site,
    pub(super) cost: &'a SiteCost,
}

/// The subject type of site facts.
pub(super) struct Sites;
impl Subject for Sites {
    type Of<'a> = SiteScope<'a>;
}

impl<'a> SiteScope<'a> {
    pub(super) fn new(table: &'a FactTable<'a>, id: SiteId) -> Option<SiteScope<'a>> {
        let site = table.costed.run.sites.get(id.idx())?;
        let cost = table.costed.sites.get(id.idx())?;
        Some(SiteScope {
            table,
            id,
            site,
            cost,
        })
    }

    pub(super) fn args(&self) -> Option<&'a OpArgs> {
        self.site
            .args
            .and_then(|id| self.table.costed.run.args.get(id.idx()))
    }

    fn known_cost(&self) -> Option<&'a OpCost> {
        self.cost
            .cost
            .as_ref()
            .ok()
            .filter(|_| !self.cost.autotuning)
    }

    /// The dimensions of the first part of the work; for a backward call, those of its forward.
    pub(super) fn dims(&self) -> Dims {
        self.known_cost()
            .and_then(|c| c.roles.first())
            .map_or(Dims::None, |r| r.dims)
    }

    /// Whether a tensor has stride 0 in a dimension longer than 1; `None` without recorded strides.
    fn expanded(&self) -> Option<bool> {
        let mut known = None;
        for tensor in self.args()?.tensors() {
            let Some(strides) = &tensor.strides else {
                continue;
            };
            let repeats = strides.iter().zip(&tensor.shape);
            let found = repeats.into_iter().any(|(&s, &n)| s == 0 && n > 1);
            known = Some(known.unwrap_or(false) || found);
        }
        known
    }

    /// The sums of all sites with calls like its own.
    fn equal_calls(&self) -> Option<EqualCalls> {
        self.table.equal_calls.get(self.id.idx()).copied().flatten()
    }

    fn first_tensor(&self) -> Option<&'a Tensor> {
        self.args().and_then(|a| a.tensors().next())
    }

    pub(super) fn decoded(&self) -> &'a [std::sync::Arc<DecodedName>] {
        self.table
            .costed
            .kernels
            .get(self.id.idx())
            .map_or(&[], Vec::as_slice)
    }

    /// The main kernel of the site: the longest that is not a helper.
    fn main_kernel(&self) -> Option<&'a DecodedName> {
        let decoded = self.decoded();
        decoded
            .iter()
            .find(|d| !d.helper)
            .or_else(|| decoded.first())
            .map(|d| &**d)
    }

    /// GPU time of the kernels of a family, and of the helpers among them.
    fn family_ns(&self, family: Family) -> f64 {
        self.site
            .kernels
            .iter()
            .zip(self.decoded())
            .filter(|(_, d)| d.family == family)
            .map(|(k, _)| k.time_ns as f64)
            .sum()
    }

    /// Whether its ideal time and its measured time are for different GPUs.
    fn what_if(&self) -> bool {
        let gpu = self.table.costed.gpu.as_ref();
        gpu.is_some_and(|choice| choice.how == How::WhatIf)
    }

    /// Whether one of its kernels transforms tensors for Winograd or FFT convolutions.
    fn transformed(&self) -> bool {
        let named = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.contains("winograd") || name.contains("fft")
        };
        self.decoded().iter().any(|d| named(&d.base))
    }

    fn gemm(&self, pick: fn(u64, u64, u64, u64) -> u64) -> Answer {
        match self.dims() {
            Dims::Gemm { batch, m, n, k, .. } => Answer::int(pick(batch, m, n, k)),
            _ => Answer::Absent,
        }
    }

    fn contiguous(&self, pick: fn((bool, bool, bool)) -> bool) -> Answer {
        match self.dims() {
            Dims::Gemm { contiguous, .. } => Answer::flag(pick(contiguous)),
            _ => Answer::Absent,
        }
    }

    fn conv(&self, pick: fn(ConvDims) -> u64) -> Answer {
        match self.dims() {
            Dims::Conv {
                n,
                c,
                k,
                groups,
                filter,
                stride,
                out_spatial,
                ..
            } => Answer::int(pick(ConvDims {
                n,
                c,
                k,
                groups,
                filter,
                stride,
                out_spatial,
            })),
            _ => Answer::Absent,
        }
    }

    fn attention(&self, pick: fn(u64, u64, u64, u64) -> u64) -> Answer {
        match self.dims() {
            Dims::Attention {
                heads,
                seq_q,
                seq_k,
                head_dim,
                ..
            } => Answer::int(pick(heads, seq_q, seq_k, head_dim)),
            _ => Answer::Absent,
        }
    }

    /// Rows and columns of softmax, norms and losses.
    fn rows(&self, pick: fn(u64, u64) -> u64) -> Answer {
        match self.dims() {
            Dims::Rows { rows, cols } => Answer::int(pick(rows, cols)),
            _ => Answer::Absent,
        }
    }

    pub(super) fn shapes(&self) -> Option<String> {
        let shapes: Vec<String> = self
            .args()?
            .tensors()
            .take(6)
            .map(|t| {
                let dims: Vec<String> = t.shape.iter().map(u64::to_string).collect();
                let dtype = t.dtype.map_or("", DType::name);
                format!("{dtype}[{}]", dims.join(", "))
            })
            .collect();
        Some(shapes.join(", "))
    }
}

/// The named dimensions of a convolution.
struct ConvDims {
    n: u64,
    c: u64,
    k: u64,
    groups: u64,
    filter: u64,
    stride: u64,
    out_spatial: u64,
}

const GEMM: &[Family] = &[Family::Gemm];
const CONV: &[Family] = &[Family::Conv];
const ATTENTION: &[Family] = &[Family::Attention];
const ROWS: &[Family] = &[Family::Softmax, Family::Norm, Family::Loss];

pub(super) const ENTRIES: &[Entry<Sites>] = &[
    fact!(
        "site.op",
        Str,
        "",
        &[],
        NOTHING,
        "The operator as the profile spells it; the kernel's label when no operator is known",
        |s| {
            match &s.site.op {
                Some(op) => Answer::word(&op.display()),
                None => Answer::or_silent(s.main_kernel().map(|d| d.label.as_str()), Answer::word),
            }
        }
    ),
    fact!(
        "site.op_name",
        Str,
        "",
        &[],
        NOTHING,
        "The operator without namespace, dunders and in-place underscores: `mul`, `log_softmax`; empty when unknown",
        |s| {
            Answer::word(
                s.site
                    .op
                    .as_ref()
                    .map_or("", |op| super::chain::plain_name(&op.name)),
            )
        }
    ),
    fact!(
        "site.enclosing_ops",
        Strings,
        "",
        &[],
        NOTHING,
        "The operator and those around nine tenths of its time, plainly spelled: `copy`, `clone`, `contiguous`; ranges of PyTorch itself as `sync_batch_norm`, `fsdp`, `torch_compiled`",
        |s| { Answer::Value(Value::Strings(s.table.enclosing_ops.site(s.id))) }
    ),
    fact!(
        "site.has_op",
        Bool,
        "",
        &[],
        NOTHING,
        "An operator is known",
        |s| Answer::flag(s.site.op.is_some())
    ),
    fact!(
        "site.family",
        Str,
        "",
        &[],
        NOTHING,
        "What kind of work: `gemm`, `conv`, `attention`, `norm`, `pointwise` and so on",
        |s| Answer::word(s.cost.family.name())
    ),
    fact!(
        "site.direction",
        Str,
        "",
        &[],
        NOTHING,
        "`fprop`, `bprop`, `update` or `unknown`",
        |s| Answer::word(s.site.direction.name())
    ),
    fact!(
        "site.recomputed",
        Bool,
        "",
        &[],
        NOTHING,
        "Forward work done again inside the backward pass",
        |s| Answer::flag(s.site.recomputed)
    ),
    fact!(
        "site.layer",
        Str,
        "",
        &[],
        LAYERS,
        "Its layer's full name",
        |s| {
            Answer::maybe_word(
                s.site
                    .layer
                    .and_then(|id| s.table.costed.run.layers.get(id.idx()))
                    .map(|l| l.name.as_str()),
            )
        }
    ),
    fact!(
        "site.source_line",
        Str,
        "",
        &[],
        LAYERS,
        "Innermost user source line",
        |s| Answer::maybe_word(s.site.source_line.as_deref())
    ),
    fact!("site.calls", Int, "", &[], NOTHING, "Operator calls", |s| {
        Answer::int(u64::from(s.site.calls))
    }),
    fact!(
        "site.time_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "GPU time of its kernels, summed over calls",
        |s| Answer::double(s.site.time_ns as f64)
    ),
    fact!(
        "site.exposed_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "The part of its time during which nothing else ran on the device",
        |s| Answer::double(s.site.exposed_ns as f64)
    ),
    fact!(
        "site.mean_call_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "GPU time per call",
        |s| Answer::double(s.site.time_ns as f64 / f64::from(s.site.calls.max(1)))
    ),
    fact!(
        "site.gpu_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Its share of GPU busy time",
        |s| Answer::double((s.site.time_ns as f64 / s.table.totals.gpu_busy_ns).min(1.0))
    ),
    fact!(
        "site.kernel_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Its share of kernel time",
        |s| Answer::double(s.site.time_ns as f64 / s.table.sums.kernel_ns)
    ),
    fact!(
        "site.kernel",
        Str,
        "",
        &[],
        NOTHING,
        "Label of its main kernel",
        |s| Answer::or_silent(s.main_kernel().map(|d| d.label.as_str()), Answer::word)
    ),
    fact!(
        "site.triton",
        Bool,
        "",
        &[],
        NOTHING,
        "Its main kernel was compiled by Triton",
        |s| Answer::flag(s.main_kernel().is_some_and(|d| d.triton))
    ),
    fact!(
        "site.has_shapes",
        Bool,
        "",
        &[],
        NOTHING,
        "Its shapes are known",
        |s| Answer::flag(s.args().is_some_and(|a| a.tensors().next().is_some()))
    ),
    fact!(
        "site.shapes",
        Str,
        "",
        &[],
        SHAPES,
        "Shapes and dtypes of its tensor arguments",
        |s| {
            match s.shapes() {
                Some(text) if !text.is_empty() => Answer::word(&text),
                _ => Answer::Absent,
            }
        }
    ),
    fact!(
        "site.expanded",
        Bool,
        "",
        &[],
        STRIDES,
        "One of its tensors is expanded: the same memory stands for many elements",
        |s| Answer::maybe(s.expanded(), Answer::flag)
    ),
    fact!(
        "site.rank",
        Int,
        "",
        &[],
        SHAPES,
        "Number of dimensions of its first tensor argument",
        |s| Answer::maybe(s.first_tensor().map(|t| t.shape.len() as u64), Answer::int)
    ),
    fact!(
        "site.grows",
        Bool,
        "",
        &[],
        NOTHING,
        "A concatenation of a series in which each appends to the result of the one before: the loop copies quadratically much",
        |s| Answer::flag(s.table.growing_cats.contains(&s.id))
    ),
    fact!(
        "site.dtype",
        Str,
        "",
        &[],
        SHAPES,
        "Element type of its first tensor argument",
        |s| Answer::maybe_word(s.first_tensor().and_then(|t| t.dtype).map(DType::name))
    ),
    fact!(
        "site.math_dtype",
        Str,
        "",
        &[],
        KERNEL_NAME,
        "Type the math runs in; `tf32` for fp32 tensors on Tensor Cores",
        |s| Answer::maybe_word(s.cost.math_dtype.map(DType::name))
    ),
    fact!(
        "site.tensor_core",
        Bool,
        "",
        Family::MATH,
        KERNEL_NAME,
        "It runs on Tensor Cores",
        |s| match s.cost.tensor_core {
            TensorCore::Yes => Answer::flag(true),
            TensorCore::No => Answer::flag(false),
            TensorCore::Unknown => Answer::Absent,
        }
    ),
    fact!(
        "site.flops",
        Double,
        "FLOP",
        &[],
        SHAPES,
        "FLOPs over all calls; 1 multiply-add is 2",
        |s| Answer::maybe(s.cost.flops, Answer::double)
    ),
    fact!(
        "site.moved_bytes",
        Double,
        "bytes",
        &[],
        SHAPES,
        "Compulsory DRAM bytes over all calls",
        |s| Answer::maybe(s.cost.bytes, Answer::double)
    ),
    fact!(
        "site.least_bytes",
        Double,
        "bytes",
        &[],
        NOTHING,
        "Weights or cached keys and values that all calls read at least: replays of CUDA graphs, by a recording without graphs; silent for others",
        |s| Answer::or_silent(s.cost.least_bytes, Answer::double)
    ),
    fact!(
        "site.ideal_ns",
        Double,
        "ns",
        &[],
        GPU_AND_SHAPES,
        "Ideal time in the unit and precision it ran in",
        |s| Answer::maybe(s.cost.ideal_ns, Answer::double)
    ),
    fact!(
        "site.best_ideal_ns",
        Double,
        "ns",
        &[],
        GPU_AND_SHAPES,
        "Ideal time in the best unit and precision available to it",
        |s| Answer::maybe(s.cost.best_ideal_ns, Answer::double)
    ),
    fact!(
        "site.reachable_ns",
        Double,
        "ns",
        &[],
        GPU_AND_SHAPES,
        "Time a well-tuned kernel takes in the best unit and precision",
        |s| Answer::maybe(s.cost.reachable_ns, Answer::double)
    ),
    fact!(
        "site.best_dtype",
        Str,
        "",
        &[],
        GPU_AND_SHAPES,
        "The precision of `site.best_ideal_ns`",
        |s| Answer::maybe_word(s.cost.best_dtype.map(DType::name))
    ),
    fact!(
        "site.counted_at_most",
        Bool,
        "",
        &[],
        NOTHING,
        "Whether its FLOPs and bytes are the most that they can be, and so its ideal time and efficiency: experts of a mixture, of which a profile does not tell which ones got tokens",
        |s| Answer::flag(s.cost.at_most())
    ),
    fact!(
        "site.efficiency",
        Double,
        "",
        &[],
        GPU_AND_SHAPES,
        "Ideal over silicon time, in the unit and precision it ran in; silent where `--gpu` asks for another GPU than the times were measured on",
        |s| match s.cost.ideal_ns {
            _ if s.what_if() => Answer::DoesNotApply,
            Some(ideal) => Answer::double(ideal / s.site.time_ns as f64),
            None => Answer::Absent,
        }
    ),
    fact!(
        "site.equal_efficiency",
        Double,
        "",
        &[],
        GPU_AND_SHAPES,
        "Ideal over silicon time of all calls with its operator, direction, shapes and main kernel, in whatever layer; silent as `site.efficiency`",
        |s| match s.equal_calls() {
            _ if s.what_if() => Answer::DoesNotApply,
            calls => Answer::maybe(calls.map(|calls| calls.efficiency()), Answer::double),
        }
    ),
    fact!(
        "site.equal_call_ns",
        Double,
        "ns",
        &[],
        GPU_AND_SHAPES,
        "GPU time per call of all calls with its operator, direction, shapes and main kernel",
        |s| Answer::maybe(s.equal_calls().map(|calls| calls.call_ns()), Answer::double)
    ),
    fact!(
        "site.slowdown",
        Double,
        "",
        &[],
        GPU_AND_SHAPES,
        "Silicon over best ideal time",
        |s| Answer::maybe(
            s.cost
                .best_ideal_ns
                .map(|best| s.site.time_ns as f64 / best),
            Answer::double
        )
    ),
    fact!(
        "site.bound",
        Str,
        "",
        &[],
        GPU_AND_SHAPES,
        "What limits the ideal: `math`, `memory` or `latency`",
        |s| Answer::maybe_word(s.cost.bound.map(crate::cost::Bound::name))
    ),
    fact!(
        "site.autotuning",
        Bool,
        "",
        &[],
        NOTHING,
        "One call ran many candidate kernels: a library's algorithm search",
        |s| Answer::flag(s.cost.autotuning)
    ),
    fact!(
        "site.winograd_or_fft",
        Bool,
        "",
        CONV,
        NOTHING,
        "It ran as a Winograd or FFT convolution, which multiplies less often than the FLOPs of a convolution count",
        |s| Answer::flag(s.transformed())
    ),
    fact!(
        "site.layout_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "GPU time of layout transposes among its kernels",
        |s| Answer::double(s.family_ns(Family::Layout))
    ),
    fact!(
        "site.kernels_per_call",
        Double,
        "",
        &[],
        NOTHING,
        "Kernel executions per call",
        |s| {
            let count: u32 = s.site.kernels.iter().map(|k| k.count).sum();
            Answer::double(f64::from(count) / f64::from(s.site.calls.max(1)))
        }
    ),
    fact!(
        "site.m",
        Int,
        "",
        GEMM,
        SHAPES,
        "Rows of the result (for `linear`: tokens); a backward call has its forward's",
        |s| s.gemm(|_, m, _, _| m)
    ),
    fact!(
        "site.n",
        Int,
        "",
        GEMM,
        SHAPES,
        "Columns of the result (for `linear`: output features)",
        |s| s.gemm(|_, _, n, _| n)
    ),
    fact!(
        "site.k",
        Int,
        "",
        GEMM,
        SHAPES,
        "Inner dimension (for `linear`: input features)",
        |s| s.gemm(|_, _, _, k| k)
    ),
    fact!(
        "site.batch",
        Int,
        "",
        GEMM,
        SHAPES,
        "Matrices in a batched product, 1 otherwise",
        |s| s.gemm(|b, _, _, _| b)
    ),
    fact!(
        "site.m_contiguous",
        Bool,
        "",
        GEMM,
        SHAPES,
        "M is contiguous in memory in an operand or the result, so its alignment counts",
        |s| s.contiguous(|c| c.0)
    ),
    fact!(
        "site.n_contiguous",
        Bool,
        "",
        GEMM,
        SHAPES,
        "N is contiguous in memory in an operand or the result, so its alignment counts",
        |s| s.contiguous(|c| c.1)
    ),
    fact!(
        "site.k_contiguous",
        Bool,
        "",
        GEMM,
        SHAPES,
        "K is contiguous in memory in an operand or the result, so its alignment counts",
        |s| s.contiguous(|c| c.2)
    ),
    fact!(
        "site.images",
        Int,
        "",
        CONV,
        SHAPES,
        "Batch size of a convolution",
        |s| s.conv(|c| c.n)
    ),
    fact!(
        "site.channels_in",
        Int,
        "",
        CONV,
        SHAPES,
        "Input channels",
        |s| s.conv(|c| c.c)
    ),
    fact!(
        "site.channels_out",
        Int,
        "",
        CONV,
        SHAPES,
        "Output channels",
        |s| s.conv(|c| c.k)
    ),
    fact!(
        "site.groups",
        Int,
        "",
        CONV,
        SHAPES,
        "Groups of a convolution",
        |s| s.conv(|c| c.groups)
    ),
    fact!(
        "site.filter",
        Int,
        "",
        CONV,
        SHAPES,
        "Filter elements per channel pair: 9 for 3x3",
        |s| s.conv(|c| c.filter)
    ),
    fact!(
        "site.stride",
        Int,
        "",
        CONV,
        SHAPES,
        "Stride of a convolution, the largest of its dimensions",
        |s| match s.conv(|c| c.stride) {
            Answer::Value(Value::Int(0)) => Answer::Absent,
            stride => stride,
        }
    ),
    fact!(
        "site.out_spatial",
        Int,
        "",
        CONV,
        SHAPES,
        "Output positions per image",
        |s| s.conv(|c| c.out_spatial)
    ),
    fact!(
        "site.heads",
        Int,
        "",
        ATTENTION,
        SHAPES,
        "Query heads",
        |s| s.attention(|h, _, _, _| h)
    ),
    fact!(
        "site.seq_q",
        Int,
        "",
        ATTENTION,
        SHAPES,
        "Query length",
        |s| s.attention(|_, q, _, _| q)
    ),
    fact!(
        "site.seq_k",
        Int,
        "",
        ATTENTION,
        SHAPES,
        "Key length",
        |s| s.attention(|_, _, k, _| k)
    ),
    fact!(
        "site.head_dim",
        Int,
        "",
        ATTENTION,
        SHAPES,
        "Head dimension",
        |s| s.attention(|_, _, _, d| d)
    ),
    fact!(
        "site.rows",
        Int,
        "",
        ROWS,
        SHAPES,
        "Independent rows of a softmax, norm or loss",
        |s| s.rows(|r, _| r)
    ),
    fact!(
        "site.cols",
        Int,
        "",
        ROWS,
        SHAPES,
        "Elements per row: classes of a softmax, features of a norm",
        |s| s.rows(|_, c| c)
    ),
];
