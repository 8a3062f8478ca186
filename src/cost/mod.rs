//! Floor 4: what work was done and how long it should have taken.
//!
//! Operator, shapes and dtypes give FLOPs and DRAM bytes; a kernel's name says what the hardware
//! ran; the roofline turns both into ideal and reachable time.

use std::sync::Arc;

use serde::Serialize;

use crate::base::DType;
use crate::correlate::{Run, Vocabulary};
use crate::gpu::Choice;

mod estimate;
pub mod kernel_name;
pub mod ops;
pub mod roofline;
pub mod transfer;
pub mod user;

pub(crate) use estimate::dtype_in_memory;
pub use estimate::{estimate_costs, estimate_costs_with};
pub use kernel_name::{DecodedName, Family, TensorCore};

/// The names of operators and kernels that this floor understands, for
/// [`correlate`](crate::correlate::correlate).
pub const VOCABULARY: Vocabulary<'static> = Vocabulary {
    knows_op: &ops::knows,
    is_communication: &kernel_name::is_communication,
};

/// A run with costs, roofline and a GPU. The input of the fact table.
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
    /// Compute capability running kernels prove at least (an `sm80_` kernel means 8.0).
    pub proven_cc: Option<(u32, u32)>,
}

/// What one site's work is and what it should take. Sums over all its calls.
#[derive(Debug, Clone)]
pub struct SiteCost {
    /// The kind of work.
    pub family: Family,
    /// Cost of ONE call; `Err` says why it is unknown.
    pub cost: Result<OpCost, UnknownCost>,
    /// The dtype the math runs in (`Tf32` when the kernel's name says so), when known.
    pub math_dtype: Option<DType>,
    /// Over the site's math kernels: yes, no, or unknown (also when they differ).
    pub tensor_core: TensorCore,
    /// FLOPs over all calls; a multiply-add is 2.
    pub flops: Option<f64>,
    /// Compulsory DRAM bytes over all calls.
    pub bytes: Option<f64>,
    /// `max(flops/peak, bytes/bandwidth)` in the unit and precision the work ran in, ns over calls.
    pub ideal_ns: Option<f64>,
    /// The same for the best unit and precision available.
    pub best_ideal_ns: Option<f64>,
    /// `max(flops/(0.8 peak), bytes/(0.85 bandwidth), 2 us)` of the best one, per call, times calls.
    pub reachable_ns: Option<f64>,
    /// The dtype of the best unit.
    pub best_dtype: Option<DType>,
    /// What limits the ideal time.
    pub bound: Option<Bound>,
    /// More main kernels than roles in one call: an autotuning search, whose cost is ignored.
    pub autotuning: bool,
    /// The user's file the cost comes from; `None` for the built-in table.
    pub cost_file: Option<Arc<str>>,
}

/// What limits the ideal time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The peak FLOP rate.
    Math,
    /// The DRAM bandwidth.
    Memory,
    /// The 2 us floor of a launch.
    Latency,
}

impl Bound {
    /// The word used in facts and reports.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Math => "math",
            Bound::Memory => "memory",
            Bound::Latency => "latency",
        }
    }
}

/// The cost of one operator call.
#[derive(Debug, Clone, PartialEq)]
pub struct OpCost {
    /// The kind of work.
    pub family: Family,
    /// How certain the FLOP count is.
    pub class: FlopsClass,
    /// The pieces of work: one for a forward, one per gradient for a backward.
    pub roles: Vec<RoleCost>,
    /// What the numbers assume, for the report: "causal mask not discounted".
    pub note: Option<&'static str>,
    /// False where FLOPs are known but element types are not: every `bytes` is 0 then and means
    /// nothing. Only GEMM, convolution, attention and recurrent operators have such a cost.
    pub bytes_known: bool,
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

    /// FLOPs of what a causal mask leaves, which is what MFU counts; [`OpCost::flops`] is the full
    /// square, as `torch.utils.flop_counter` has it. `None` for work that is known to have no such
    /// mask, or not known to have one.
    pub fn causal_flops(&self) -> Option<u64> {
        self.roles.iter().try_fold(0_u64, |sum, role| {
            let Dims::Attention {
                seq_q,
                seq_k,
                causal_pairs: Some(pairs),
                ..
            } = role.dims
            else {
                return None;
            };
            let all = u128::from(seq_q) * u128::from(seq_k);
            let part = (u128::from(role.flops) * u128::from(pairs)).checked_div(all)?;
            Some(sum.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)))
        })
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

/// Which piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The forward.
    Fwd,
    /// The gradient of the input.
    Dgrad,
    /// The gradient of the weights.
    Wgrad,
    /// The gradient of the bias.
    BiasGrad,
    /// A backward that is one piece of work.
    Bwd,
    /// An optimizer step.
    Opt,
}

/// The dimensions of a piece of work that rules refer to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Dims {
    #[default]
    None,
    /// `C[batch, m, n] = A[batch, m, k] B[batch, k, n]`; `contiguous` lists the dimensions that are
    /// contiguous in memory in one of the operands or the result, which is where alignment counts:
    /// `(m, n, k)`.
    Gemm {
        batch: u64,
        m: u64,
        n: u64,
        k: u64,
        contiguous: (bool, bool, bool),
    },
    Conv {
        n: u64,
        c: u64,
        k: u64,
        groups: u64,
        in_spatial: u64,
        out_spatial: u64,
        filter: u64,
        /// The largest of all dimensions; 0 where it is not recorded.
        stride: u64,
        transposed: bool,
    },
    Attention {
        batch: u64,
        heads: u64,
        seq_q: u64,
        seq_k: u64,
        head_dim: u64,
        causal: Option<bool>,
        /// Pairs of a query and a key, per head and sequence, that a causal mask leaves; `None` when
        /// there is no such mask.
        causal_pairs: Option<u64>,
    },
    /// Softmax, norm, loss: `rows` independent rows of `cols` elements.
    Rows { rows: u64, cols: u64 },
    /// A plain number of elements.
    Elements { numel: u64 },
    /// A message between GPUs.
    Message {
        /// What the caller asked to be moved or reduced: the larger of input and output. Over the
        /// time it is the *algorithm bandwidth* of nccl-tests.
        bytes: u64,
        ranks: Option<u64>,
        /// What each rank must send for it at least. Over the time it is the *bus bandwidth* of
        /// nccl-tests, which is what a link's peak limits.
        wire_bytes: Option<u64>,
    },
}

impl Dims {
    /// The share of attention's work that a causal mask leaves.
    pub fn causal_share(&self) -> Option<f64> {
        let Dims::Attention {
            seq_q,
            seq_k,
            causal_pairs,
            ..
        } = *self
        else {
            return None;
        };
        let all = seq_q as f64 * seq_k as f64;
        let pairs = causal_pairs.unwrap_or_else(|| causal_pairs_at_the_end(seq_q, seq_k));
        (all > 0.0).then(|| pairs as f64 / all)
    }
}

/// Pairs a causal mask leaves when the last query sees all keys: query `i` of `1..=q` sees
/// `k - q + i` of them. FlashAttention aligns so since 2.1.
pub(crate) fn causal_pairs_at_the_end(q: u64, k: u64) -> u64 {
    let (q, k) = (u128::from(q), u128::from(k));
    let pairs = if q <= k {
        q * k - q * q.saturating_sub(1) / 2
    } else {
        k * (k + 1) / 2
    };
    u64::try_from(pairs).unwrap_or(u64::MAX)
}

/// Pairs a causal mask leaves when the first query sees the first key only: query `i` sees
/// `min(i, k)`. `torch.nn.functional.scaled_dot_product_attention` documents its mask so.
pub(crate) fn causal_pairs_at_the_start(q: u64, k: u64) -> u64 {
    let (q, k) = (u128::from(q), u128::from(k));
    let square = q.min(k);
    let below = q.saturating_sub(k) * k;
    u64::try_from(square * (square + 1) / 2 + below).unwrap_or(u64::MAX)
}

/// How certain a FLOP count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlopsClass {
    /// A closed form everyone agrees on.
    Exact,
    /// Our documented convention; never decides what limits the work.
    Convention,
    /// Data movement.
    Zero,
}

/// Why the cost of an operator is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCost {
    /// No operator is known for these kernels.
    NoOperator,
    /// The profile records no shapes for it.
    NoShapes,
    /// Shapes, but not the numbers (strides, padding, dimensions) the cost depends on.
    NoScalars,
    /// Shapes, but no element type for some operand.
    NoDType,
    /// No handler for this operator.
    UnknownOp,
    /// The cost depends on data the profile does not hold (lengths, indices, expert loads).
    DataDependent,
    /// The arguments do not fit the operator.
    BadArguments,
}

impl UnknownCost {
    /// All reasons, in the order of this type.
    pub const ALL: [UnknownCost; 7] = [
        UnknownCost::NoOperator,
        UnknownCost::NoShapes,
        UnknownCost::NoScalars,
        UnknownCost::NoDType,
        UnknownCost::UnknownOp,
        UnknownCost::DataDependent,
        UnknownCost::BadArguments,
    ];

    /// The word used in cost files.
    pub fn name(self) -> &'static str {
        match self {
            UnknownCost::NoOperator => "no_operator",
            UnknownCost::NoShapes => "no_shapes",
            UnknownCost::NoScalars => "no_scalars",
            UnknownCost::NoDType => "no_dtype",
            UnknownCost::UnknownOp => "unknown_op",
            UnknownCost::DataDependent => "data_dependent",
            UnknownCost::BadArguments => "bad_arguments",
        }
    }

    /// How the report says it.
    pub fn describe(self) -> &'static str {
        match self {
            UnknownCost::NoOperator => "no operator known",
            UnknownCost::NoShapes => "no shapes recorded",
            UnknownCost::NoScalars => {
                "shapes recorded, but not the numbers (strides, dimensions) beside them"
            }
            UnknownCost::NoDType => "element type not recorded",
            UnknownCost::UnknownOp => "no cost formula for this operator",
            UnknownCost::DataDependent => "cost depends on data not in the profile",
            UnknownCost::BadArguments => "arguments do not fit the operator",
        }
    }
}

/// How much of the kernel time inside the window has a known cost, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// All kernel time.
    pub kernel_ns: i64,
    /// Kernel time whose cost is known.
    pub cost_known_ns: i64,
    /// Kernel time whose launch and operator are known.
    pub attributable_ns: i64,
    /// The part of that whose cost is known.
    pub attributable_cost_known_ns: i64,
    /// Kernel time whose name the decoder recognises.
    pub named_family_ns: i64,
}
