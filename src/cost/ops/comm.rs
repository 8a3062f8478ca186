//! Collectives. Their local DRAM traffic is a lower bound; time belongs to the link and to the
//! slowest rank, so it never makes a roofline.

use super::Entry;
use super::call::{Call, product, size, sum};
use crate::base::DType;
use crate::correlate::ArgValue;
use crate::cost::{Dims, Family, FlopsClass, OpCost, Unknown};

const NOTE: &str =
    "local memory traffic only: a collective is limited by links and by the slowest rank";

const COMM: Entry = Entry {
    names: &["record_param_comms"],
    namespaces: &[],
    family: Family::Communication,
    class: FlopsClass::Zero,
    flops: "0",
    bytes: "(elements in + elements out) at the message's type",
    backward: "",
    source: "nccl-tests, doc/PERFORMANCE.md",
    handler: message,
};

pub(super) const ENTRIES: &[Entry] = &[
    COMM,
    Entry {
        names: &[
            "allreduce",
            "allgather",
            "allgather_base",
            "reduce_scatter",
            "reduce_scatter_base",
            "broadcast",
            "alltoall",
            "alltoall_base",
            "all_reduce",
            "all_gather",
            "all_to_all",
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
            "all_to_all_single",
            "send",
            "recv",
            "reduce",
            "gather",
            "scatter",
            "allgather_into_tensor_coalesced",
        ],
        namespaces: &[
            "c10d",
            "nccl",
            "_c10d_functional",
            "c10d_functional",
            "torch.distributed",
        ],
        bytes: "every tensor once",
        handler: tensors,
        ..COMM
    },
];

fn priced(call: &Call, bytes: u64, n: u64) -> Result<OpCost, Unknown> {
    let mut cost = call.one(0, Ok(bytes), Dims::Elements { numel: n })?;
    cost.note = Some(NOTE);
    Ok(cost)
}

/// Kineto's fields of the call, as keyword arguments under their own names.
fn message(call: &Call) -> Result<OpCost, Unknown> {
    let elements = |name| match call.keyword(&[name]) {
        Some(ArgValue::Int(n)) => size(*n),
        _ => Err(Unknown::NoShapes),
    };
    let Ok(incoming) = elements("In msg nelems") else {
        return tensors(call);
    };
    let outgoing = elements("Out msg nelems")?;
    let dtype = match call.keyword(&["dtype"]) {
        Some(ArgValue::Str(s)) => DType::parse(s),
        _ => None,
    };
    let e = dtype
        .or(call.default_dtype)
        .ok_or(Unknown::NoDType)?
        .bytes();
    let n = sum([incoming, outgoing]);
    priced(call, product([n, e]), incoming.max(outgoing))
}

fn tensors(call: &Call) -> Result<OpCost, Unknown> {
    let mut bytes = 0_u64;
    let mut n = 0_u64;
    for t in call.args.tensors().filter(|t| !t.shape.is_empty()) {
        bytes = bytes.saturating_add(call.bytes(t)?);
        n = n.max(super::call::count(&t.shape));
    }
    if n == 0 {
        return Err(Unknown::NoShapes);
    }
    priced(call, bytes, n)
}
