//! Collectives. Their local DRAM traffic is a lower bound. Their time depends on the link and the
//! slowest rank, so they have no roofline. The relevant numbers are the size of the message and the
//! bytes that each rank must send for it.

use super::call::{Call, Entry, product, size, sum};
use super::name::{NormalName, Origin};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, OpCost, UnknownCost};
use crate::profile::collective_in;

const NOTE: &str =
    "local memory traffic only: a collective is limited by links and by the slowest rank";

const NAMESPACES: &[&str] = &[
    "c10d",
    "nccl",
    "_c10d_functional",
    "c10d_functional",
    "symm_mem",
    "torch.distributed",
    "_C_custom_ar",
];

const COMM: Entry = Entry {
    names: &["record_param_comms"],
    namespaces: &[],
    family: Family::Communication,
    class: FlopsClass::Zero,
    flops: "0",
    bytes: "(elements in + elements out) at the message's type. The message is the larger of both; on the wire, with n ranks: all-reduce 2 (n - 1) / n of it, all-gather, reduce-scatter, all-to-all, gather and scatter (n - 1) / n, others once",
    backward: "",
    source: "nccl-tests, doc/PERFORMANCE.md",
    handler: message,
};

/// Other operators of these libraries. They are known to be communication; the cost is known if their
/// tensors are recorded.
const OTHER: Entry = Entry {
    names: &["*"],
    namespaces: NAMESPACES,
    bytes: "every tensor once; where the message is recorded, elements in and out",
    ..COMM
};

pub(super) const ENTRIES: &[Entry] = &[
    COMM,
    Entry {
        names: &[
            "allreduce",
            "allreduce_coalesced",
            "allgather",
            "allgather_base",
            "allgather_coalesced",
            "reduce_scatter",
            "reduce_scatter_base",
            "broadcast",
            "alltoall",
            "alltoall_base",
            "all_reduce",
            "all_reduce_coalesced",
            "all_gather",
            "all_to_all",
            "all_gather_into_tensor",
            "all_gather_into_tensor_coalesced",
            "reduce_scatter_tensor",
            "reduce_scatter_tensor_coalesced",
            "all_to_all_single",
            "send",
            "recv",
            "reduce",
            "gather",
            "scatter",
            "allgather_into_tensor_coalesced",
            "multimem_all_reduce",
            "one_shot_all_reduce",
            "two_shot_all_reduce",
            "multimem_all_gather_out",
        ],
        ..OTHER
    },
];

/// The entry of an operator that the table does not list by name: every operator of a communication
/// library is communication.
pub(super) fn entry(name: &NormalName<'_>) -> Option<&'static Entry> {
    match name.origin {
        Origin::Other(library) if NAMESPACES.contains(&library) => Some(&OTHER),
        _ => None,
    }
}

/// The bytes that a rank sends per byte of the message, as a fraction, with `n` ranks. Source:
/// nccl-tests, doc/PERFORMANCE.md, "bus bandwidth".
fn bus_factor(collective: &str, n: u64) -> Option<(u64, u64)> {
    let others = n.checked_sub(1)?;
    match collective_in(collective) {
        Some("all_reduce") => Some((others.saturating_mul(2), n)),
        Some("reduce_scatter" | "all_to_all" | "all_gather" | "gather" | "scatter") => {
            Some((others, n))
        }
        Some("broadcast" | "reduce" | "send_recv") => Some((1, 1)),
        // Halves of a message to one rank.
        None if ["send", "recv"].iter().any(|w| collective.contains(w)) => Some((1, 1)),
        _ => None,
    }
}

fn wire(collective: &str, bytes: u64, ranks: Option<u64>) -> Option<u64> {
    // Point-to-point messages do not depend on the number of ranks.
    let (part, whole) = bus_factor(collective, ranks.unwrap_or(0)).or_else(|| {
        let factor = bus_factor(collective, 1)?;
        (factor == (1, 1)).then_some(factor)
    })?;
    let sent = u128::from(bytes) * u128::from(part) / u128::from(whole);
    u64::try_from(sent).ok()
}

fn message_cost(
    call: &Call,
    collective: &str,
    local: u64,
    message: u64,
    ranks: Option<u64>,
) -> Result<OpCost, UnknownCost> {
    let dims = Dims::Message {
        bytes: message,
        ranks,
        wire_bytes: wire(collective, message, ranks),
    };
    let mut cost = call.one(0, Ok(local), dims)?;
    cost.note = Some(NOTE);
    Ok(cost)
}

/// The keyword of [`OpArgs`](crate::correlate::OpArgs) for the number of ranks of all process groups of a job, for
/// calls that do not record that of their own.
pub(crate) const EVERY_GROUP_SIZE: &str = "size of every group";

/// The ranks of the group, from its recorded size, the arguments or `shapes`: the bytes of each argument with
/// tensors.
fn ranks(call: &Call, shapes: &[u64]) -> Option<u64> {
    let recorded = call.int(usize::MAX, &["Group size", "group_size"]).value();
    let listed = match call.name {
        "all_gather_into_tensor" | "all_gather_into_tensor_coalesced" => call.int(1, &[]).value(),
        "reduce_scatter_tensor" | "reduce_scatter_tensor_coalesced" => call.int(2, &[]).value(),
        _ => None,
    };
    let every = || call.int(usize::MAX, &[EVERY_GROUP_SIZE]).value();
    let known = |n: Option<i64>| n.and_then(|n| size(n).ok());
    (known(recorded.or(listed)))
        .or_else(|| parts_of_whole(call.name, shapes))
        .or_else(|| known(every()))
}

/// Input and output of an all-gather or a reduce-scatter: one is the part of each rank, the other the whole.
fn parts_of_whole(collective: &str, shapes: &[u64]) -> Option<u64> {
    let &[a, b] = shapes else { return None };
    let (part, whole) = (a.min(b), a.max(b));
    let differ = matches!(
        collective_in(collective),
        Some("all_gather" | "reduce_scatter")
    );
    (differ && part > 0 && whole.is_multiple_of(part)).then(|| whole / part)
}

/// The cost from the fields of the message, as keyword arguments with the names that Kineto gives them.
fn message(call: &Call) -> Result<OpCost, UnknownCost> {
    let number = |name| match call.keyword(&[name]) {
        Some(ArgValue::Int(n)) => size(*n),
        _ => Err(UnknownCost::NoShapes),
    };
    let word = |name| match call.keyword(&[name]) {
        Some(ArgValue::Str(s)) => Some(s.as_str()),
        _ => None,
    };
    let (incoming, outgoing) = if let Ok(elements) = number("In msg nelems") {
        let bytes = (word("dtype").and_then(DType::parse))
            .or(call.default_dtype)
            .ok_or(UnknownCost::NoDType)?
            .bytes();
        let of = |elements| product([elements, bytes]);
        (of(elements), of(number("Out msg nelems")?))
    } else if let Ok(bytes) = number("In msg bytes") {
        (bytes, number("Out msg bytes")?)
    } else {
        return tensors(call);
    };
    message_cost(
        call,
        word("Collective name").unwrap_or(call.name),
        sum([incoming, outgoing]),
        incoming.max(outgoing),
        ranks(call, &[]),
    )
}

/// The cost from the tensors: the argument with the most bytes is the message. Of an all-gather with one, that is
/// the part of this rank.
fn tensors(call: &Call) -> Result<OpCost, UnknownCost> {
    let mut shapes = Vec::new();
    for arg in call.args.items.iter().filter(|arg| arg.has_tensors()) {
        let of_arg: Vec<&Tensor> = match &arg.value {
            ArgValue::Tensor(t) => vec![t],
            ArgValue::List(items) => items.iter().filter_map(tensor).collect(),
            _ => Vec::new(),
        };
        let mut bytes = 0_u64;
        for t in of_arg.into_iter().filter(|t| !t.shape.is_empty()) {
            bytes = bytes.saturating_add(call.bytes(t)?);
        }
        shapes.push(bytes);
    }
    let message = shapes.iter().copied().max().ok_or(UnknownCost::NoShapes)?;
    let local = sum(shapes.iter().copied());
    let ranks = ranks(call, &shapes);
    if shapes.len() == 1 && collective_in(call.name) == Some("all_gather") {
        let gathered = product([message, ranks.ok_or(UnknownCost::NoShapes)?]);
        return message_cost(call, call.name, sum([local, gathered]), gathered, ranks);
    }
    message_cost(call, call.name, local, message, ranks)
}

fn tensor(value: &ArgValue) -> Option<&Tensor> {
    match value {
        ArgValue::Tensor(t) => Some(t),
        _ => None,
    }
}
