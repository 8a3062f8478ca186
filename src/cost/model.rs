//! What the cost model says: the cost of a call, of a site, of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::kernel_name::{DecodedName, Family, Role, TensorCore};
use crate::base::DType;
use crate::base::words::words;
use crate::correlate::{OpCallId, Run, SiteId};
use crate::gpu::Choice;
use crate::profile::Span;

/// A run with the cost and the roofline times of each of its sites. The input of the fact table.
#[derive(Debug, Clone)]
pub struct Costed {
    /// The correlated run.
    pub run: Run,
    /// The GPU that ideal times refer to; `None` when unknown.
    pub gpu: Option<Choice>,
    /// One per site, same index.
    pub sites: Vec<SiteCost>,
    /// One per site, same index; one per `Site::kernels` inside.
    pub kernels: Vec<Vec<Arc<DecodedName>>>,
    /// How much of the kernel time has a known cost.
    pub coverage: Coverage,
    /// Lower bound of the GPU's compute capability: the highest one named by a kernel that ran
    /// (`sm80_` means 8.0).
    pub proven_cc: Option<(u32, u32)>,
}

impl Costed {
    /// The cost of a site.
    pub fn cost_of(&self, site: SiteId) -> Option<&SiteCost> {
        self.sites.get(site.idx())
    }

    /// The main kernel of a site: the longest that is not a helper.
    pub fn main_kernel(&self, site: SiteId) -> Option<&DecodedName> {
        let names = self.kernels.get(site.idx())?;
        let main = names.iter().find(|d| !d.helper).or(names.first());
        main.map(Arc::as_ref)
    }

    /// Host time of the operator calls in which a library tried algorithms: of each operator call site
    /// that did, the calls with more kernels than the others.
    pub fn algorithm_searches(&self) -> Vec<Span> {
        let run = &self.run;
        let mut kernels: BTreeMap<(SiteId, OpCallId), u32> = BTreeMap::new();
        for link in &run.links {
            let searched = |site: &SiteId| {
                let cost = self.sites.get(site.idx());
                cost.is_some_and(|cost| cost.autotuning)
            };
            if let (Some(site), Some(call)) = (link.site.filter(searched), link.op) {
                *kernels.entry((site, call)).or_default() += 1;
            }
        }
        let mut fewest: BTreeMap<SiteId, (u32, u32)> = BTreeMap::new();
        for ((site, _), count) in &kernels {
            let (least, most) = fewest.entry(*site).or_insert((*count, *count));
            *least = (*least).min(*count);
            *most = (*most).max(*count);
        }
        let searches = kernels.iter().filter(|((site, _), count)| {
            let bounds = fewest.get(site);
            bounds.is_some_and(|(least, most)| least == most || *count > least)
        });
        let spans = searches.filter_map(|((_, call), _)| {
            let call = run.op_call(*call)?;
            Some(run.profile.range(call.range)?.span)
        });
        spans.collect()
    }
}

/// The work of one site and the time it should take. FLOPs, bytes and times are sums over all calls
/// of the site.
#[derive(Debug, Clone)]
pub struct SiteCost {
    /// The kind of work.
    pub family: Family,
    /// Cost of ONE call; `Err` says why it is unknown.
    pub cost: Result<OpCost, UnknownCost>,
    /// The dtype the math runs in (`Tf32` when the kernel's name says so), when known.
    pub math_dtype: Option<DType>,
    /// Whether the site's math kernels ran on Tensor Cores; unknown also when they differ.
    pub tensor_core: TensorCore,
    /// FLOPs over all calls; a multiply-add is 2.
    pub flops: Option<f64>,
    /// Compulsory DRAM bytes over all calls.
    pub bytes: Option<f64>,
    /// `max(flops / peak, bytes / bandwidth)` in the unit and precision the work ran in, in ns.
    pub ideal_ns: Option<f64>,
    /// The same for the best unit and precision available.
    pub best_ideal_ns: Option<f64>,
    /// The time of a well-tuned kernel in the best unit and precision, in ns: per call
    /// `max(flops / (reachable share of peak), bytes / (reachable share of bandwidth), shortest kernel)`;
    /// see [`Reachable`](crate::gpu::calibration::Reachable).
    pub reachable_ns: Option<f64>,
    /// The dtype of the best unit.
    pub best_dtype: Option<DType>,
    /// What limits the ideal time.
    pub bound: Option<Bound>,
    /// Whether a call ran many more math kernels than it has pieces of work. That is an autotuning
    /// search, and its FLOPs, bytes and times are left out.
    pub autotuning: bool,
    /// The user's cost file that defines the cost; `None` for the built-in table.
    pub cost_file: Option<Arc<str>>,
    /// Bytes that all calls read at least where the cost is not known: the weights or the cached keys and
    /// values of a kernel in a graph replay, by a recording without graphs.
    pub least_bytes: Option<f64>,
}

impl SiteCost {
    /// Whether FLOPs, bytes and ideal times are the most that they can be.
    pub fn at_most(&self) -> bool {
        !self.autotuning && self.cost.as_ref().is_ok_and(|cost| cost.at_most)
    }
}

words! {
    /// What limits the ideal time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Bound with fn name {
        /// The peak FLOP rate.
        Math = "math",
        /// The DRAM bandwidth.
        Memory = "memory",
        /// The time of the shortest kernels.
        Latency = "latency",
    }
}

/// The cost of one operator call.
#[derive(Debug, Clone, PartialEq)]
pub struct OpCost {
    /// The kind of work.
    pub family: Family,
    /// How certain the FLOP count is.
    pub class: FlopsClass,
    /// The pieces of work of the call: one for a forward, one per gradient for a backward.
    pub roles: Vec<RoleCost>,
    /// An assumption behind the numbers, shown in the report: "causal mask not discounted".
    pub note: Option<&'static str>,
    /// Whether `bytes` of the roles is valid. It is false where FLOPs are known but element types are
    /// not; every `bytes` is 0 then. Only GEMM, convolution, attention and recurrent operators have
    /// such a cost.
    pub bytes_known: bool,
    /// Whether the work may be less: which experts of a mixture are used is not in a profile, for example.
    /// Then nothing is called fast by it.
    pub at_most: bool,
    /// Least number of steps that run one after the other, each as long as the shortest kernels at least: those
    /// of a recurrent layer. 1 for all other work.
    pub sequence: u64,
}

impl OpCost {
    /// FLOPs of one call, saturating.
    pub fn flops(&self) -> u64 {
        self.roles
            .iter()
            .fold(0, |sum, r| sum.saturating_add(r.flops))
    }

    /// Compulsory DRAM bytes of one call, saturating.
    pub fn bytes(&self) -> u64 {
        self.roles
            .iter()
            .fold(0, |sum, r| sum.saturating_add(r.bytes))
    }
}

/// One piece of work of a call: the forward, or one of the gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoleCost {
    /// Which piece of work.
    pub role: Role,
    /// FLOPs; a multiply-add is 2.
    pub flops: u64,
    /// Compulsory DRAM bytes.
    pub bytes: u64,
    /// The dimensions of the work.
    pub dims: Dims,
}

/// A matrix product `C[batch, m, n] = A[batch, m, k] B[batch, k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmSize {
    /// Number of independent products; 1 without a batch.
    pub batch: u64,
    /// Rows of `A` and `C`.
    pub m: u64,
    /// Columns of `B` and `C`.
    pub n: u64,
    /// The dimension summed over.
    pub k: u64,
    /// Whether `(m, n, k)` are contiguous in memory in one of the operands or the result.
    /// Alignment requirements apply to these dimensions only.
    pub contiguous: (bool, bool, bool),
}

/// The sizes of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvSize {
    /// Batch size.
    pub n: u64,
    /// Input channels of the layer.
    pub c: u64,
    /// Output channels of the layer.
    pub k: u64,
    /// Number of groups; 1 for a dense convolution, `c` for a depthwise one.
    pub groups: u64,
    /// Product of the spatial sizes of the input.
    pub in_spatial: u64,
    /// Product of the spatial sizes of the output.
    pub out_spatial: u64,
    /// Product of the spatial sizes of the filter.
    pub filter: u64,
    /// The largest stride of all spatial dimensions; 0 where it is not recorded.
    pub stride: u64,
    /// Whether it is a transposed convolution.
    pub transposed: bool,
}

/// The sizes of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionSize {
    /// Number of sequences.
    pub batch: u64,
    /// Number of query heads.
    pub heads: u64,
    /// Queries per sequence.
    pub seq_q: u64,
    /// Keys per sequence.
    pub seq_k: u64,
    /// Elements of a query per head.
    pub head_dim: u64,
    /// Whether a causal mask applies; `None` when the arguments do not say.
    pub causal: Option<bool>,
    /// Pairs of a query and a key, per head and sequence, that a causal mask leaves; `None` when
    /// no causal mask is known.
    pub causal_pairs: Option<u64>,
}

/// The dimensions of a piece of work that rules refer to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Dims {
    /// No dimensions.
    #[default]
    None,
    /// A matrix product.
    Gemm(GemmSize),
    /// A convolution of any number of spatial dimensions.
    Conv(ConvSize),
    /// Scaled dot product attention.
    Attention(AttentionSize),
    /// Softmax, norm, loss: independent rows.
    Rows {
        /// Number of rows.
        rows: u64,
        /// Elements per row.
        cols: u64,
    },
    /// Work whose only dimension is a number of elements.
    Elements {
        /// Number of elements.
        numel: u64,
    },
    /// A message between GPUs.
    Message {
        /// Bytes that the caller asked to move or reduce: the larger of input and output. Divided by
        /// the time it is the *algorithm bandwidth* of nccl-tests.
        bytes: u64,
        /// Number of ranks that take part; `None` when not recorded.
        ranks: Option<u64>,
        /// Bytes that each rank must send at least. Divided by the time it is the *bus bandwidth* of
        /// nccl-tests, which the peak rate of the link limits.
        wire_bytes: Option<u64>,
    },
}

impl Dims {
    /// The sizes of a matrix product; `None` for other work.
    pub fn gemm(&self) -> Option<GemmSize> {
        match self {
            Dims::Gemm(size) => Some(*size),
            _ => None,
        }
    }

    /// The share of attention's work that a causal mask leaves, from 0 to 1. `None` for other work, or
    /// without queries or keys. Where [`AttentionSize::causal_pairs`] is unknown, the mask is aligned
    /// at the end.
    pub fn causal_share(&self) -> Option<f64> {
        let Dims::Attention(a) = self else {
            return None;
        };
        let all = a.seq_q as f64 * a.seq_k as f64;
        let at_the_end = || causal_pairs_at_the_end(a.seq_q, a.seq_k);
        let pairs = a.causal_pairs.unwrap_or_else(at_the_end);
        (all > 0.0).then(|| pairs as f64 / all)
    }
}

/// Pairs that a causal mask leaves when the last query sees all keys: query `i` of `1..=q` sees
/// `k - q + i` keys. FlashAttention has aligned its mask this way since 2.1.
pub(crate) fn causal_pairs_at_the_end(q: u64, k: u64) -> u64 {
    let (q, k) = (u128::from(q), u128::from(k));
    let pairs = if q <= k {
        q * k - q * q.saturating_sub(1) / 2
    } else {
        k * (k + 1) / 2
    };
    u64::try_from(pairs).unwrap_or(u64::MAX)
}

/// Pairs that a causal mask leaves when the first query sees only the first key: query `i` sees
/// `min(i, k)` keys. This is the mask that `torch.nn.functional.scaled_dot_product_attention`
/// documents.
pub(crate) fn causal_pairs_at_the_start(q: u64, k: u64) -> u64 {
    let (q, k) = (u128::from(q), u128::from(k));
    let square = q.min(k);
    let below = q.saturating_sub(k) * k;
    u64::try_from(square * (square + 1) / 2 + below).unwrap_or(u64::MAX)
}

/// How certain a FLOP count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlopsClass {
    /// A closed form without ambiguity.
    Exact,
    /// A convention documented in the cost table. It never decides what limits the work.
    Convention,
    /// Data movement: no FLOPs.
    Zero,
}

words! {
    /// Why the cost of an operator is unknown.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum UnknownCost with fn name {
        /// The operator that launched the kernels is not known.
        NoOperator = "no_operator",
        /// The profile records no shapes for the call.
        NoShapes = "no_shapes",
        /// Shapes are recorded, but not the numbers (strides, padding, dimensions) the cost depends on.
        NoScalars = "no_scalars",
        /// Shapes are recorded, but the element type of an operand is not.
        NoDType = "no_dtype",
        /// The cost table has no entry for the operator.
        UnknownOp = "unknown_op",
        /// The cost depends on data that a profile does not record (lengths, indices, expert loads).
        DataDependent = "data_dependent",
        /// The arguments do not fit the operator.
        BadArguments = "bad_arguments",
    }
}

impl UnknownCost {
    /// The phrase used in reports.
    pub fn describe(self) -> &'static str {
        match self {
            UnknownCost::NoOperator => "no operator known",
            UnknownCost::NoShapes => "no shapes recorded",
            UnknownCost::NoScalars => {
                "shapes recorded, but not the numbers (strides, dimensions) beside them"
            }
            UnknownCost::NoDType => "element type not recorded",
            UnknownCost::UnknownOp => "no cost model for this operator",
            UnknownCost::DataDependent => "cost depends on data not in the profile",
            UnknownCost::BadArguments => "arguments do not fit the operator",
        }
    }
}

/// How much of the kernel time inside the window has a known cost, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Coverage {
    /// All kernel time.
    pub kernel_ns: i64,
    /// Kernel time whose cost is known.
    pub cost_known_ns: i64,
    /// Kernel time whose launch and operator are known.
    pub attributable_ns: i64,
    /// The part of `attributable_ns` whose cost is known.
    pub attributable_cost_known_ns: i64,
}
