//! Facts of a site: all op calls with the same layer, operator, direction, shapes and dtypes.

use super::enclosing_ops::plain_name;
use super::equal_calls::EqualCalls;
use super::fact::{Answer, FactEntry, Subject, facts};
use super::table::FactTable;
use crate::base::DType;
use crate::correlate::{OpArgs, Site, SiteId, Tensor};
use crate::cost::{AttentionSize, ConvSize, DecodedName, Dims, Family, GemmSize, OpCost, SiteCost};
use crate::gpu::SelectedBy;

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
        let site = table.costed.run.site(id)?;
        let cost = table.costed.cost_of(id)?;
        Some(SiteScope {
            table,
            id,
            site,
            cost,
        })
    }

    pub(super) fn args(&self) -> Option<&'a OpArgs> {
        self.table.costed.run.arguments_of(self.site)
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

    fn main_kernel(&self) -> Option<&'a DecodedName> {
        self.table.costed.main_kernel(self.id)
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
        gpu.is_some_and(|choice| choice.how == SelectedBy::WhatIf)
    }

    /// Whether one of its kernels transforms tensors for Winograd or FFT convolutions.
    fn transformed(&self) -> bool {
        let named = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.contains("winograd") || name.contains("fft")
        };
        self.decoded().iter().any(|d| named(&d.base))
    }

    fn gemm(&self) -> Option<GemmSize> {
        self.dims().gemm()
    }

    fn conv(&self) -> Option<ConvSize> {
        match self.dims() {
            Dims::Conv(size) => Some(size),
            _ => None,
        }
    }

    fn attention(&self) -> Option<AttentionSize> {
        match self.dims() {
            Dims::Attention(size) => Some(size),
            _ => None,
        }
    }

    /// Rows and columns of softmax, norms and losses.
    fn rows(&self) -> Option<(u64, u64)> {
        match self.dims() {
            Dims::Rows { rows, cols } => Some((rows, cols)),
            _ => None,
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

const GEMM: &[Family] = &[Family::Gemm];
const CONV: &[Family] = &[Family::Conv];
const ATTENTION: &[Family] = &[Family::Attention];
const ROWS: &[Family] = &[Family::Softmax, Family::Norm, Family::Loss];

pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// The operator as the profile spells it; the kernel's label when no operator is known
    "site.op": STR => |s| match &s.site.op {
        Some(op) => Answer::from(op.display()),
        None => Answer::or_silent(s.main_kernel().map(|d| d.label.as_str())),
    },
    /// The operator without namespace, dunders and in-place underscores: `mul`, `log_softmax`; empty when
    /// unknown
    "site.op_name": STR => |s| s.site.op.as_ref().map_or("", |op| plain_name(&op.name)),
    /// The operator and those around nine tenths of its time, plainly spelled: `copy`, `clone`,
    /// `contiguous`; ranges of PyTorch itself as `sync_batch_norm`, `fsdp`, `torch_compiled`
    "site.enclosing_ops": STRINGS => |s| s.table.enclosing_ops.site(s.id),
    /// An operator is known
    "site.has_op": BOOL => |s| s.site.op.is_some(),
    /// What kind of work: `gemm`, `conv`, `attention`, `norm`, `pointwise` and so on
    "site.family": STR => |s| s.cost.family.name(),
    /// `fprop`, `bprop`, `update` or `unknown`
    "site.direction": STR => |s| s.site.direction.name(),
    /// Forward work done again inside the backward pass
    "site.recomputed": BOOL => |s| s.site.recomputed,
    /// Share of its time launched between a backward pass and the optimizer step behind it, where work on gradients
    /// passes for forward work; silent where it has none
    "site.before_update_share": DOUBLE => |s| {
        let ns = s.table.before_update.get(&s.id);
        Answer::or_silent(ns.map(|ns| *ns as f64 / (s.site.time_ns as f64).max(1.0)))
    },
    /// Its layer's full name
    "site.layer": STR needs LAYERS => |s| {
        let layers = &s.table.costed.run.layers;
        let layer = s.site.layer.and_then(|id| layers.get(id.idx()));
        layer.map(|layer| layer.name.as_str())
    },
    /// Innermost user source line
    "site.source_line": STR needs LAYERS => |s| s.site.source_line.as_deref(),
    /// Operator calls
    "site.calls": INT => |s| s.site.calls,
    /// GPU time of its kernels, summed over calls
    "site.time_ns": DOUBLE => |s| s.site.time_ns as f64,
    /// Time in which it ran, on one stream or several, and nothing else did on the device
    "site.exposed_ns": DOUBLE => |s| s.site.exposed_ns as f64,
    /// GPU time per call
    "site.mean_call_ns": DOUBLE => |s| s.site.time_ns as f64 / f64::from(s.site.calls.max(1)),
    /// Its share of GPU busy time
    "site.gpu_share": DOUBLE => |s| (s.site.time_ns as f64 / s.table.totals.gpu_busy_ns).min(1.0),
    /// Its share of kernel time
    "site.kernel_share": DOUBLE => |s| s.site.time_ns as f64 / s.table.sums.kernel_ns,
    /// Label of its main kernel
    "site.kernel": STR => |s| Answer::or_silent(s.main_kernel().map(|d| d.label.as_str())),
    /// Its main kernel was compiled by Triton
    "site.triton": BOOL => |s| s.main_kernel().is_some_and(|d| d.triton),
    /// Its shapes are known
    "site.has_shapes": BOOL => |s| s.args().is_some_and(|a| a.tensors().next().is_some()),
    /// Shapes and dtypes of its tensor arguments
    "site.shapes": STR needs SHAPES => |s| s.shapes().filter(|text| !text.is_empty()),
    /// One of its tensors is expanded: the same memory stands for many elements
    "site.expanded": BOOL needs STRIDES => |s| s.expanded(),
    /// Number of dimensions of its first tensor argument
    "site.rank": INT needs SHAPES => |s| s.first_tensor().map(|t| t.shape.len() as u64),
    /// A concatenation of a series in which each appends to the result of the one before: the loop copies
    /// quadratically much
    "site.grows": BOOL => |s| s.table.growing_cats.contains(&s.id),
    /// Forward work in place, outside of layers, that autograd did not record, such as work on `.data`
    "site.unrecorded": BOOL => |s| s.table.unrecorded.contains(&s.id),
    /// Element type of its first tensor argument
    "site.dtype": STR needs SHAPES => |s| s.first_tensor().and_then(|t| t.dtype).map(DType::name),
    /// Type the math runs in; `tf32` for fp32 tensors on Tensor Cores
    "site.math_dtype": STR needs KERNEL_NAME => |s| s.cost.math_dtype.map(DType::name),
    /// It runs on Tensor Cores
    "site.tensor_core": BOOL needs KERNEL_NAME of Family::MATH => |s| s.cost.tensor_core.known(),
    /// FLOPs over all calls; 1 multiply-add is 2
    "site.flops": DOUBLE needs SHAPES => |s| s.cost.flops,
    /// Compulsory DRAM bytes over all calls
    "site.moved_bytes": DOUBLE needs SHAPES => |s| s.cost.bytes,
    /// Weights or cached keys and values that all calls read at least: replays of CUDA graphs, by a
    /// recording without graphs; silent for others
    "site.least_bytes": DOUBLE => |s| Answer::or_silent(s.cost.least_bytes),
    /// Ideal time in the unit and precision it ran in
    "site.ideal_ns": DOUBLE needs GPU_AND_SHAPES => |s| s.cost.ideal_ns,
    /// Ideal time in the best unit and precision available to it
    "site.best_ideal_ns": DOUBLE needs GPU_AND_SHAPES => |s| s.cost.best_ideal_ns,
    /// Time a well-tuned kernel takes in the best unit and precision
    "site.reachable_ns": DOUBLE needs GPU_AND_SHAPES => |s| s.cost.reachable_ns,
    /// The precision of `site.best_ideal_ns`
    "site.best_dtype": STR needs GPU_AND_SHAPES => |s| s.cost.best_dtype.map(DType::name),
    /// Whether its FLOPs and bytes are the most that they can be, and so its ideal time and efficiency:
    /// experts of a mixture, of which a profile does not tell which ones got tokens
    "site.counted_at_most": BOOL => |s| s.cost.at_most(),
    /// Ideal over silicon time, in the unit and precision it ran in; silent where `--gpu` asks for another
    /// GPU than the times were measured on
    "site.efficiency": DOUBLE needs GPU_AND_SHAPES => |s| match s.cost.ideal_ns {
        _ if s.what_if() => Answer::DoesNotApply,
        Some(ideal) => Answer::from(ideal / s.site.time_ns as f64),
        None => Answer::Absent,
    },
    /// Ideal over silicon time of all calls with its operator, direction, shapes and main kernel, in
    /// whatever layer; silent as `site.efficiency`
    "site.equal_efficiency": DOUBLE needs GPU_AND_SHAPES => |s| match s.equal_calls() {
        _ if s.what_if() => Answer::DoesNotApply,
        calls => Answer::from(calls.map(|calls| calls.efficiency())),
    },
    /// GPU time per call of all calls with its operator, direction, shapes and main kernel
    "site.equal_call_ns": DOUBLE needs GPU_AND_SHAPES =>
        |s| s.equal_calls().map(|calls| calls.call_ns()),
    /// Silicon over best ideal time
    "site.slowdown": DOUBLE needs GPU_AND_SHAPES =>
        |s| s.cost.best_ideal_ns.map(|best| s.site.time_ns as f64 / best),
    /// What limits the ideal: `math`, `memory` or `latency`
    "site.bound": STR needs GPU_AND_SHAPES => |s| s.cost.bound.map(crate::cost::Bound::name),
    /// One call ran many candidate kernels: a library's algorithm search
    "site.autotuning": BOOL => |s| s.cost.autotuning,
    /// It ran as a Winograd or FFT convolution, which multiplies less often than the FLOPs of a convolution
    /// count
    "site.winograd_or_fft": BOOL of CONV => |s| s.transformed(),
    /// GPU time of layout transposes among its kernels
    "site.layout_ns": DOUBLE => |s| s.family_ns(Family::Layout),
    /// Kernel executions per call
    "site.kernels_per_call": DOUBLE => |s| {
        let count: u32 = s.site.kernels.iter().map(|k| k.count).sum();
        f64::from(count) / f64::from(s.site.calls.max(1))
    },
    /// Rows of the result (for `linear`: tokens); a backward call has its forward's
    "site.m": INT needs SHAPES of GEMM => |s| s.gemm().map(|g| g.m),
    /// Its shapes are those of its forward call, whose operands it multiplies with the gradient: it may run
    /// two products of other shapes
    "site.shapes_from_forward": BOOL => |s| s.site.args_from_forward,
    /// Columns of the result (for `linear`: output features)
    "site.n": INT needs SHAPES of GEMM => |s| s.gemm().map(|g| g.n),
    /// Inner dimension (for `linear`: input features)
    "site.k": INT needs SHAPES of GEMM => |s| s.gemm().map(|g| g.k),
    /// Rows of the result that the program uses, where it has no backward pass and only selects some of them,
    /// such as the last position of each sequence; silent for other products
    "site.rows_used": INT of GEMM =>
        |s| Answer::or_silent(s.table.rows_used.get(&s.id).copied()),
    /// Matrices in a batched product, 1 otherwise
    "site.batch": INT needs SHAPES of GEMM => |s| s.gemm().map(|g| g.batch),
    /// M is contiguous in memory in an operand or the result, so its alignment counts
    "site.m_contiguous": BOOL needs SHAPES of GEMM => |s| s.gemm().map(|g| g.contiguous.0),
    /// N is contiguous in memory in an operand or the result, so its alignment counts
    "site.n_contiguous": BOOL needs SHAPES of GEMM => |s| s.gemm().map(|g| g.contiguous.1),
    /// K is contiguous in memory in an operand or the result, so its alignment counts
    "site.k_contiguous": BOOL needs SHAPES of GEMM => |s| s.gemm().map(|g| g.contiguous.2),
    /// Batch size of a convolution
    "site.images": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.n),
    /// Input channels
    "site.channels_in": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.c),
    /// Output channels
    "site.channels_out": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.k),
    /// Groups of a convolution
    "site.groups": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.groups),
    /// Filter elements per channel pair: 9 for 3x3
    "site.filter": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.filter),
    /// Stride of a convolution, the largest of its dimensions
    "site.stride": INT needs SHAPES of CONV =>
        |s| s.conv().map(|c| c.stride).filter(|stride| *stride > 0),
    /// Whether a convolution is a transposed one
    "site.transposed": BOOL needs SHAPES of CONV => |s| s.conv().map(|c| c.transposed),
    /// Input positions per image
    "site.in_spatial": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.in_spatial),
    /// Output positions per image
    "site.out_spatial": INT needs SHAPES of CONV => |s| s.conv().map(|c| c.out_spatial),
    /// Query heads
    "site.heads": INT needs SHAPES of ATTENTION => |s| s.attention().map(|a| a.heads),
    /// Query length
    "site.seq_q": INT needs SHAPES of ATTENTION => |s| s.attention().map(|a| a.seq_q),
    /// Key length
    "site.seq_k": INT needs SHAPES of ATTENTION => |s| s.attention().map(|a| a.seq_k),
    /// Head dimension
    "site.head_dim": INT needs SHAPES of ATTENTION => |s| s.attention().map(|a| a.head_dim),
    /// Independent rows of a softmax, norm or loss
    "site.rows": INT needs SHAPES of ROWS => |s| s.rows().map(|(rows, _)| rows),
    /// Elements per row: classes of a softmax, features of a norm
    "site.cols": INT needs SHAPES of ROWS => |s| s.rows().map(|(_, cols)| cols),
};
