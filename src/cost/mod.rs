//! The cost model: FLOPs, DRAM bytes and ideal time of every call site.
//!
//! FLOPs and bytes come from an operator, its shapes and its dtypes ([`ops`], [`user`]). The
//! precision and the unit (Tensor Cores or CUDA cores) come from the kernel names ([`kernel_name`]).
//! The [`roofline`] combines them into ideal and reachable times.

use crate::correlate::Vocabulary;

mod estimate;
mod infer_gpu;
pub mod kernel_name;
mod model;
pub mod ops;
mod replay_match;
pub mod roofline;
pub mod user;

pub(crate) use estimate::dtype_in_memory;
pub use estimate::{estimate_costs, estimate_costs_with};
pub use infer_gpu::infer_gpu;
pub(crate) use kernel_name::readable;
pub use kernel_name::{DecodedName, Family, Role, TensorCore};
pub use model::{
    AttentionSize, Bound, ConvSize, Costed, Coverage, Dims, FlopsClass, GemmSize, OpCost, RoleCost,
    SiteCost, UnknownCost,
};
pub(crate) use replay_match::match_replays;

/// The names of operators and kernels that the cost model knows, for
/// [`correlate`](crate::correlate::correlate).
pub const VOCABULARY: Vocabulary<'static> = Vocabulary {
    knows_op: &ops::knows,
    is_communication: &kernel_name::is_communication,
};
