//! Operator and arguments to FLOPs and DRAM bytes: one table of documented entries.
//!
//! Conventions, for every entry:
//!
//! * one multiply-add is 2 FLOPs; bias, alpha and beta of a GEMM are not counted
//!   (`torch.utils.flop_counter` and NVIDIA's matrix multiplication guide do the same);
//! * bytes are compulsory DRAM traffic: every distinct input element once, every output element once,
//!   at their own element sizes (NVIDIA, GPU Performance Background); an argument that is changed is
//!   read and written, unless the operator only writes it;
//! * a cost belongs to the operator call: the kernels of the call share it;
//! * an unknown cost is an [`UnknownCost`] with its reason, never 0.
//!
//! An operator's cost is one entry and one function in the file of its family.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::kernel_name::{Family, Role};
use super::model::{OpCost, UnknownCost};
use crate::base::DType;
use crate::correlate::{Direction, OpArgs, OpName};
use call::Call;
use name::{NormalName, Origin};

mod attention;
mod call;
mod comm;
mod conv;
mod conv_pair;
mod copy;
mod embedding;
mod experts;
mod fused;
mod gemm;
mod index;
mod loss;
mod name;
mod norm;
mod optim;
mod pointwise;
mod pool;
mod reduce;
mod rnn;
mod serving;
#[cfg(test)]
mod testing;

pub(crate) use attention::CachedLengths;
pub use call::Entry;
pub(crate) use call::{count, distinct};
pub(crate) use comm::EVERY_GROUP_SIZE;
pub(crate) use experts::Launched;
pub(crate) use serving::{bytes_per_key, weight_bytes};

const PARTS: &[&[Entry]] = &[
    gemm::ENTRIES,
    conv::ENTRIES,
    attention::ENTRIES,
    rnn::ENTRIES,
    norm::ENTRIES,
    reduce::ENTRIES,
    loss::ENTRIES,
    pointwise::ENTRIES,
    copy::ENTRIES,
    embedding::ENTRIES,
    index::ENTRIES,
    pool::ENTRIES,
    optim::ENTRIES,
    comm::ENTRIES,
    serving::ENTRIES,
    experts::ENTRIES,
];

/// Every operator with a cost model, family by family.
pub fn table() -> impl Iterator<Item = &'static Entry> {
    PARTS.iter().copied().flatten()
}

/// The table by name: several entries where libraries share a name.
static INDEX: LazyLock<FxHashMap<&'static str, Vec<&'static Entry>>> = LazyLock::new(|| {
    let mut index: FxHashMap<&'static str, Vec<&'static Entry>> = FxHashMap::default();
    for entry in table() {
        for name in entry.names {
            index.entry(name).or_default().push(entry);
        }
    }
    index
});

/// Whether an operator has an entry (used to choose the innermost operator range). Views do not count
/// as operators here: they launch nothing, so the surrounding operator is the relevant one.
pub fn knows(op: &OpName) -> bool {
    family(op).is_some()
}

/// Family of an operator by name alone (needs no shapes); `None` when it is not in the table.
pub fn family(op: &OpName) -> Option<Family> {
    entry(op).map(|entry| entry.family)
}

/// The entry of an operator, by name alone. For the name of a compiled kernel, the entry of its kind.
pub fn entry(op: &OpName) -> Option<&'static Entry> {
    let name = name::normalize(op)?;
    fused::entry(&name.base)
        .or_else(|| resolve(&name).map(|(entry, _)| entry))
        .or_else(|| comm::entry(&name))
}

/// The cost of one call.
///
/// If `args_from_forward` is set, `args` are those of the matching forward call, and `op` is that
/// forward operator or its autograd node; with [`Direction::Bprop`] (or an autograd name) the roles are
/// the gradients. `default_dtype` is the element type in the kernel's name, for floating operands
/// without a recorded type.
///
/// # Errors
/// The reason why the cost is unknown: unknown operator, no shapes, no element types, or unexpected
/// arguments.
pub fn cost(
    op: &OpName,
    args: &OpArgs,
    direction: Direction,
    args_from_forward: bool,
    default_dtype: Option<DType>,
) -> Result<OpCost, UnknownCost> {
    let name = name::normalize(op).ok_or(UnknownCost::UnknownOp)?;
    let unlisted = || {
        resolve(&name)
            .is_none()
            .then(|| comm::entry(&name))
            .flatten()
    };
    if let Some(entry) = fused::entry(&name.base).or_else(unlisted) {
        let call = call(&name, &name.base, entry, args, false, default_dtype);
        return (entry.handler)(&call);
    }
    let (entry, key) = resolve(&name).ok_or(UnknownCost::UnknownOp)?;
    if name.autograd && !args_from_forward {
        return Err(UnknownCost::NoShapes);
    }
    let backward = args_from_forward && (name.autograd || direction == Direction::Bprop);
    let (entry, key) = if backward {
        forward_of(key, name.origin).unwrap_or((entry, key))
    } else {
        (entry, key)
    };
    let call = call(&name, key, entry, args, backward, default_dtype);
    let mut cost = (entry.handler)(&call)?;
    if !backward {
        for role in &mut cost.roles {
            role.role = match (role.role, direction) {
                (Role::Fwd, Direction::Bprop) => Role::Bwd,
                (Role::Fwd, Direction::Update) => Role::Opt,
                (role, _) => role,
            };
        }
    }
    Ok(cost)
}

/// Adds the bytes of the gradient that the backward of a loss fills with zeros. In most profiles a memory
/// set does that, so the cost of the call leaves it out. Where a kernel of the call does it, they belong to
/// the call. `args_from_forward` and `default_dtype` are those of [`cost`].
pub(crate) fn add_zero_fill(
    cost: &mut OpCost,
    op: &OpName,
    args: &OpArgs,
    args_from_forward: bool,
    default_dtype: Option<DType>,
) {
    let Ok(call) = listed(op, args, default_dtype) else {
        return;
    };
    let call = Call {
        backward: args_from_forward,
        ..call
    };
    if let (Some(bytes), Some(role)) = (loss::zero_fill_bytes(&call), cost.roles.first_mut()) {
        role.bytes = role.bytes.saturating_add(bytes);
    }
}

/// As [`cost`]; where that needs numbers that the call lacks, such as those of a convolution, from its operators of the
/// other direction with their arguments.
///
/// # Errors
/// As [`cost`].
pub(crate) fn cost_of_call<'a>(
    op: &OpName,
    args: &OpArgs,
    direction: Direction,
    args_from_forward: bool,
    default_dtype: Option<DType>,
    partners: impl FnOnce() -> Vec<(&'a OpName, &'a OpArgs)>,
) -> Result<OpCost, UnknownCost> {
    let cost = cost(op, args, direction, args_from_forward, default_dtype);
    if cost == Err(UnknownCost::NoScalars) && !args_from_forward {
        let partners = partners();
        if !partners.is_empty() {
            return cost_with_partners(op, args, &partners, default_dtype);
        }
    }
    cost
}

/// The cost of a call whose own arguments are not sufficient, using those of its partners: the backward
/// calls of a forward call, or the forward call of a backward call.
///
/// # Errors
/// As [`cost`]; [`UnknownCost::NoScalars`] if the partners do not help either.
fn cost_with_partners(
    op: &OpName,
    args: &OpArgs,
    partners: &[(&OpName, &OpArgs)],
    default_dtype: Option<DType>,
) -> Result<OpCost, UnknownCost> {
    let call = listed(op, args, default_dtype)?;
    if call.entry.family != Family::Conv {
        return Err(UnknownCost::NoScalars);
    }
    conv_pair::with_partners(&call, partners)
}

/// The cost of a served model's attention over cached keys, of which the call itself does not have the
/// lengths.
///
/// # Errors
/// As [`cost`]; [`UnknownCost::DataDependent`] for other operators.
pub(crate) fn cost_with_lengths(
    op: &OpName,
    args: &OpArgs,
    lengths: CachedLengths,
) -> Result<OpCost, UnknownCost> {
    attention::with_lengths(&listed(op, args, Some(lengths.cache))?, lengths)
}

/// The cost of experts of which the call itself does not have the sizes, from the grids of their kernels.
///
/// # Errors
/// As [`cost`]; [`UnknownCost::DataDependent`] for other operators and other kernels.
pub(crate) fn cost_of_experts(
    op: &OpName,
    args: &OpArgs,
    kernels: &[Launched<'_>],
) -> Result<OpCost, UnknownCost> {
    experts::generated(&listed(op, args, None)?, kernels)
}

/// The call of an operator that the table lists, as a forward.
fn listed<'a>(
    op: &'a OpName,
    args: &'a OpArgs,
    default_dtype: Option<DType>,
) -> Result<Call<'a>, UnknownCost> {
    let name = name::normalize(op).ok_or(UnknownCost::UnknownOp)?;
    let (entry, key) = resolve(&name).ok_or(UnknownCost::UnknownOp)?;
    Ok(call(&name, key, entry, args, false, default_dtype))
}

fn call<'a>(
    name: &NormalName<'a>,
    key: &'a str,
    entry: &'static Entry,
    args: &'a OpArgs,
    backward: bool,
    default_dtype: Option<DType>,
) -> Call<'a> {
    Call {
        name: key,
        origin: name.origin,
        in_place: name.in_place,
        backward,
        args,
        default_dtype,
        entry,
    }
}

/// The entry of a name and the name under which the table lists it. The backward of a view
/// (`SliceBackward0`) has an entry although the view has none.
fn resolve(name: &NormalName) -> Option<(&'static Entry, &'static str)> {
    find(&name.base, name.origin).or_else(|| {
        name.autograd
            .then(|| find(&format!("{}_backward", name.base), name.origin))
            .flatten()
    })
}

fn find(base: &str, origin: Origin) -> Option<(&'static Entry, &'static str)> {
    let (&key, entries) = INDEX.get_key_value(base)?;
    let entry = entries.iter().find(|e| match origin {
        Origin::Other(namespace) => e.namespaces.contains(&namespace),
        _ => e.namespaces.is_empty(),
    })?;
    Some((entry, key))
}

/// The entry of the forward of an explicit backward operator: with the forward's arguments,
/// `threshold_backward` is the backward of `threshold`.
fn forward_of(key: &str, origin: Origin) -> Option<(&'static Entry, &'static str)> {
    let forward = key
        .strip_suffix("_backward_data")
        .or_else(|| key.strip_suffix("_backward"))?;
    find(forward, origin)
}

#[cfg(test)]
mod tests;
