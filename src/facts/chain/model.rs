//! Calls in stream order, and the sequences recognized among them.

use std::collections::BTreeMap;

use crate::base::words::words;
use crate::correlate::{Direction, OpCallId, SiteId};
use crate::cost::{Dims, Family};
use crate::facts::affected::SitePart;
use crate::profile::KernelId;

words! {
    /// The kind of a recognized sequence.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Kind with fn name {
        Attention = "attention",
        Norm = "norm",
        DoubleLogSoftmax = "double_log_softmax",
        ConvNorm = "conv_norm",
        LogitsUpcast = "logits_upcast",
        LogOfSoftmax = "log_of_softmax",
        Softmax = "softmax",
        Rope = "rope",
        Gelu = "gelu",
        GatedActivation = "gated_activation",
        Silu = "silu",
        Lora = "lora",
        SharedInput = "shared_input",
        ExpertLoop = "expert_loop",
        Adam = "adam",
        Pointwise = "pointwise",
    }
}

/// All occurrences of one sequence in one layer pattern.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) kind: Kind,
    /// Layer pattern; empty when layers are unknown.
    pub(crate) layer: String,
    /// `pow, mean, add, rsqrt, mul`.
    pub(crate) ops: String,
    pub(crate) direction: Direction,
    pub(crate) count: u64,
    pub(crate) length: usize,
    pub(crate) kernels: u64,
    pub(crate) time_ns: f64,
    /// Time after the first operator of each occurrence.
    pub(crate) rest_ns: f64,
    /// Time of the longest operator of each occurrence, summed.
    pub(crate) longest_ns: f64,
    /// Time of the occurrence that takes longest.
    pub(crate) slowest_ns: f64,
    /// Time of one fused operator over all occurrences; `None` if a cost is unknown.
    pub(crate) fused_ns: Option<f64>,
    /// Columns of the softmax or norm, sequence length of attention, or number of elements otherwise.
    pub(crate) width: Option<u64>,
    /// Time of bias additions in separate kernels.
    pub(crate) bias_ns: f64,
    /// Whether a batch norm gathers statistics, by its kernels; `None` if they do not tell.
    pub(crate) batch_statistics: Option<bool>,
    /// Whether the order of the backward pass proves that each call reads the previous one's result.
    pub(crate) proved: bool,
    /// Time per site, for assigning savings.
    pub(crate) sites: BTreeMap<SiteId, f64>,
    /// Its calls and kernels of each site: where shapes are not recorded, all copies of a layer are one site.
    pub(crate) parts: BTreeMap<SiteId, SitePart>,
    /// Time per site of the backward calls of its calls.
    pub(crate) backward: BTreeMap<SiteId, f64>,
    /// Time per site of the calls between the experts of a loop, such as indexing, and of their backward calls: in a
    /// grouped product, most of their launches go away.
    pub(crate) between: BTreeMap<SiteId, f64>,
}

/// One operator call in stream order. There are as many as kernels, so the data that all calls of a
/// site share is in a separate [`LinkWork`].
#[derive(Clone, Copy)]
pub(super) struct ChainLink<'a> {
    pub(super) work: &'a LinkWork<'a>,
    pub(super) call: OpCallId,
    /// Its first kernel.
    pub(super) first: KernelId,
    /// Its last kernel; those of other streams are between the two.
    pub(super) last: KernelId,
    pub(super) kernels: u32,
    pub(super) time_ns: i64,
}

impl<'a> std::ops::Deref for ChainLink<'a> {
    type Target = LinkWork<'a>;
    fn deref(&self) -> &LinkWork<'a> {
        self.work
    }
}

/// The data that all operator calls of a site share.
#[derive(Clone, Copy)]
pub(super) struct LinkWork<'a> {
    pub(super) site: SiteId,
    pub(super) name: &'a str,
    pub(super) family: Family,
    pub(super) direction: Direction,
    pub(super) dims: Dims,
    /// Whether `dims` follows from a grid, rounded up.
    pub(super) rounded: bool,
    /// Whether it computes with complex numbers.
    pub(super) complex: bool,
    /// Of a kernel that is known by its name only: the third dimension of its grid, which for products is
    /// their number.
    pub(super) by_name: Option<u32>,
}

/// A recognized sequence.
pub(super) struct Hit<'s> {
    pub(super) kind: Kind,
    pub(super) calls: &'s [ChainLink<'s>],
    /// See [`Chain::proved`].
    pub(super) proved: bool,
}

pub(super) fn numel(dims: Dims) -> Option<u64> {
    match dims {
        Dims::Elements { numel } => Some(numel),
        Dims::Rows { rows, cols } => rows.checked_mul(cols),
        _ => None,
    }
}

pub(super) fn same_size(a: &ChainLink<'_>, b: &ChainLink<'_>) -> bool {
    numel(a.dims).is_some_and(|n| numel(b.dims) == Some(n))
}

pub(super) fn moves(link: &ChainLink<'_>) -> bool {
    matches!(link.family, Family::Cast | Family::Copy)
}

/// Whether it may be work of a forward pass. Under `no_grad` autograd numbers no operators, and their direction
/// is not known.
pub(super) fn may_be_forward(link: &ChainLink<'_>) -> bool {
    matches!(link.direction, Direction::Fprop | Direction::Unknown)
}
