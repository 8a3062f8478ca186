//! Gather, scatter, masks, sorting and rearranging.

use super::call::{
    Call, Entry, Given, broadcast, count, distinct, elements, product, rows, size, sum, total,
};
use super::copy::{duplicate, without};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{FlopsClass, OpCost, UnknownCost};

const WORST_CASE: &str = "worst case: every element selected (the output's size is data)";
const SORT_NOTE: &str = "compulsory bytes only: a radix sort makes several passes";

const GATHER: Entry = Entry {
    names: &["gather", "take_along_dim"],
    namespaces: &[],
    family: Family::Index,
    class: FlopsClass::Zero,
    flops: "0",
    bytes: "index (int64) + gathered elements + out",
    backward: "one add per element; dY + index + the gradient zero-filled + touched elements read and written",
    source: "compulsory traffic of a gather",
    handler: gather,
};

pub(super) const ENTRIES: &[Entry] = &[
    GATHER,
    Entry {
        names: &["index_select"],
        handler: index_select,
        ..GATHER
    },
    Entry {
        names: &["index", "unsafe_index"],
        bytes: "indices + gathered elements + out; a bool mask makes the size data",
        handler: index,
        ..GATHER
    },
    Entry {
        names: &["take"],
        handler: take,
        ..GATHER
    },
    Entry {
        names: &["scatter", "scatter_add", "scatter_reduce"],
        class: FlopsClass::Convention,
        flops: "one add per element of the source for the adding variants, else 0",
        bytes: "index + source + touched elements written (adding: read and written)",
        backward: "",
        handler: scatter,
        ..GATHER
    },
    Entry {
        names: &["index_put", "index_put_impl", "unsafe_index_put"],
        class: FlopsClass::Convention,
        flops: "one add per value when accumulating, else 0",
        bytes: "indices + values + touched elements written (accumulating: read and written)",
        backward: "",
        handler: index_put,
        ..GATHER
    },
    Entry {
        names: &["index_add", "index_copy", "index_fill", "index_reduce"],
        class: FlopsClass::Convention,
        flops: "one add per element of the source for index_add, else 0",
        bytes: "index + source + touched elements written (adding: read and written)",
        backward: "",
        handler: index_add,
        ..GATHER
    },
    Entry {
        names: &["masked_fill", "masked_scatter"],
        bytes: "in + mask (bool) + out (+ source)",
        backward: "dY + mask + dX",
        handler: masked_fill,
        ..GATHER
    },
    Entry {
        names: &["masked_select"],
        bytes: "in + mask + out, worst case all selected",
        backward: "",
        handler: masked_select,
        ..GATHER
    },
    Entry {
        names: &["nonzero", "argwhere"],
        bytes: "in + out (int64 per dimension), worst case all nonzero",
        backward: "",
        handler: nonzero,
        ..GATHER
    },
    Entry {
        names: &[
            "tril",
            "triu",
            "flip",
            "fliplr",
            "flipud",
            "roll",
            "rot90",
            "channel_shuffle",
            "pixel_shuffle",
            "pixel_unshuffle",
        ],
        family: Family::Copy,
        bytes: "in + out",
        backward: "dY + dX",
        handler: duplicate,
        ..GATHER
    },
    Entry {
        names: &["repeat", "tile", "repeat_interleave"],
        family: Family::Copy,
        bytes: "in + out",
        backward: "",
        handler: repeat,
        ..GATHER
    },
    Entry {
        names: &[
            "pad",
            "constant_pad_nd",
            "reflection_pad1d",
            "reflection_pad2d",
            "reflection_pad3d",
            "replication_pad1d",
            "replication_pad2d",
            "replication_pad3d",
        ],
        family: Family::Copy,
        bytes: "in + out",
        backward: "dY + dX",
        handler: pad,
        ..GATHER
    },
    Entry {
        names: &["one_hot"],
        bytes: "indices + out (int64)",
        backward: "",
        handler: one_hot,
        ..GATHER
    },
    Entry {
        names: &["sort", "argsort", "msort"],
        family: Family::Sort,
        bytes: "in + values + indices (int64)",
        backward: "",
        handler: sort,
        ..GATHER
    },
    Entry {
        names: &["topk", "kthvalue", "median", "mode"],
        family: Family::Sort,
        bytes: "in + k values and indices (int64) per row",
        backward: "",
        handler: topk,
        ..GATHER
    },
    Entry {
        names: &["searchsorted", "bucketize"],
        family: Family::Sort,
        bytes: "values + boundaries + out (int64)",
        backward: "",
        handler: search,
        ..GATHER
    },
    Entry {
        names: &[
            "unique",
            "unique2",
            "unique_dim",
            "unique_consecutive",
            "bincount",
            "histc",
        ],
        family: Family::Sort,
        bytes: "unknown: the output's size is data",
        backward: "",
        handler: sized_by_data,
        ..GATHER
    },
    Entry {
        names: &["randperm"],
        family: Family::Random,
        bytes: "out written (int64)",
        backward: "",
        handler: randperm,
        ..GATHER
    },
    Entry {
        names: &["multinomial"],
        family: Family::Random,
        bytes: "probabilities + samples (int64)",
        backward: "",
        handler: multinomial,
        ..GATHER
    },
];

/// The cost of gathering `n` elements of `from` by an index of `index` bytes. The gradient scatters
/// them back into a zero-filled tensor.
fn gathered(call: &Call, from: &Tensor, n: u64, index: u64) -> Result<OpCost, UnknownCost> {
    let part = call.dense(n, from);
    if !call.backward {
        return call.one(0, total([Ok(index), part, part]), elements(n));
    }
    let whole = call.dense(count(&from.shape), from);
    let bytes = total([part, Ok(index), whole, part, part]);
    let mut cost = call.one(n, bytes, elements(n))?;
    cost.class = FlopsClass::Convention;
    Ok(cost)
}

fn index_bytes(call: &Call, index: &Tensor) -> u64 {
    call.bytes_as(Some(index), DType::Int64)
}

fn gather(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let at = if call.name == "gather" { 2 } else { 1 };
    let index = call.tensor(at, &["index", "indices"])?;
    gathered(call, x, count(&index.shape), index_bytes(call, index))
}

fn index_select(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let index = call.tensor(2, &["index"])?;
    let n = match (call.int(1, &["dim"]), x.shape.as_slice()) {
        (Given::Value(dim), _) => product([count(&without(x, dim)?), count(&index.shape)]),
        (_, [_]) => count(&index.shape),
        _ => return Err(UnknownCost::NoShapes),
    };
    gathered(call, x, n, index_bytes(call, index))
}

fn take(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let index = call.tensor(1, &["index"])?;
    gathered(call, x, count(&index.shape), index_bytes(call, index))
}

/// Elements selected by the index tensors of `x[i, :, j]` and bytes of the indices: the shape that the
/// indices broadcast to replaces the indexed dimensions.
fn selection(call: &Call, x: &Tensor) -> Result<(u64, u64), UnknownCost> {
    let indices: Vec<&ArgValue> = match call.arg(1, &["indices"]) {
        Some(ArgValue::List(items)) => items.iter().collect(),
        Some(one @ ArgValue::Tensor(_)) => vec![one],
        Some(ArgValue::Unknown) | None => return Err(UnknownCost::NoShapes),
        _ => return Err(UnknownCost::BadArguments),
    };
    let mut shape = Vec::new();
    let mut bytes = 0_u64;
    let mut kept = x.shape.clone();
    let mut found = false;
    for (dim, index) in indices.iter().enumerate() {
        let ArgValue::Tensor(index) = index else {
            continue;
        };
        if index.shape.is_empty() && index.dtype.is_none() {
            continue;
        }
        if index.dtype == Some(DType::Bool) {
            return Err(UnknownCost::DataDependent);
        }
        let slot = kept.get_mut(dim).ok_or(UnknownCost::BadArguments)?;
        *slot = 1;
        shape = broadcast(&shape, &index.shape)?;
        bytes = bytes.saturating_add(index_bytes(call, index));
        found = true;
    }
    if !found {
        return Err(UnknownCost::NoShapes);
    }
    Ok((product([count(&kept), count(&shape)]), bytes))
}

fn index(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let (n, bytes) = selection(call, x)?;
    gathered(call, x, n, bytes)
}

/// The cost of writing `n` elements into `to`. With `adds`, they are read first. Out of place, the rest
/// is copied.
fn scattered(
    call: &Call,
    to: &Tensor,
    n: u64,
    inputs: u64,
    adds: bool,
) -> Result<OpCost, UnknownCost> {
    let part = call.dense(n, to)?;
    let touched = if adds { part.saturating_mul(2) } else { part };
    let copied = if call.in_place {
        0
    } else {
        call.dense(count(&to.shape), to)?.saturating_mul(2)
    };
    let flops = if adds { n } else { 0 };
    let mut cost = call.one(flops, Ok(sum([inputs, touched, copied])), elements(n))?;
    if !adds {
        cost.class = FlopsClass::Zero;
    }
    Ok(cost)
}

/// `scatter_(self, dim, index, src)`.
fn scatter(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let to = call.input()?;
    let index = call.tensor(2, &["index"])?;
    let n = count(&index.shape);
    // Only the part of the source that the index covers is read.
    let source = match call.arg(3, &["src"]) {
        Some(ArgValue::Tensor(t)) if !t.shape.is_empty() => call.dense(n, t)?,
        _ => 0,
    };
    let adds = call.name != "scatter" || call.keyword(&["reduce"]).is_some();
    let inputs = sum([index_bytes(call, index), source]);
    scattered(call, to, n, inputs, adds)
}

/// `index_put_(self, indices, values, accumulate)`.
fn index_put(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let to = call.input()?;
    let (n, indices) = selection(call, to)?;
    let values = call.bytes_of(call.optional(2, &["values"]))?;
    let adds = call.flag(3, &["accumulate"]).value().unwrap_or(false);
    scattered(call, to, n, sum([indices, values]), adds)
}

/// `index_add_(self, dim, index, source)`.
fn index_add(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let to = call.input()?;
    let index = call.tensor(2, &["index"])?;
    let (n, source) = match call.arg(3, &["source", "tensor", "value"]) {
        Some(ArgValue::Tensor(t)) if !t.shape.is_empty() => (count(&t.shape), call.bytes(t)?),
        _ => {
            let dim = call.int(1, &["dim"]).needed()?;
            (product([count(&without(to, dim)?), count(&index.shape)]), 0)
        }
    };
    let adds = matches!(call.name, "index_add" | "index_reduce");
    scattered(call, to, n, sum([index_bytes(call, index), source]), adds)
}

fn masked_fill(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let mask = call.tensor(1, &["mask"])?;
    let n = if call.in_place {
        count(&x.shape)
    } else {
        count(&broadcast(&x.shape, &mask.shape)?)
    };
    let source = match call.arg(2, &["source"]) {
        Some(ArgValue::Tensor(t)) if call.name == "masked_scatter" && !call.backward => {
            call.bytes(t)
        }
        _ => Ok(0),
    };
    let mask = Ok(call.bytes_as(Some(mask), DType::Bool));
    let bytes = total([call.bytes(x), mask, source, call.dense(n, x)]);
    call.one(0, bytes, elements(n))
}

fn masked_select(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let x = call.input()?;
    let mask = call.tensor(1, &["mask"])?;
    let n = count(&broadcast(&x.shape, &mask.shape)?);
    let mask = Ok(call.bytes_as(Some(mask), DType::Bool));
    let mut cost = call.one(
        0,
        total([call.bytes(x), mask, call.dense(n, x)]),
        elements(n),
    )?;
    cost.note = Some(WORST_CASE);
    Ok(cost)
}

fn nonzero(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    let out = product([n, x.shape.len() as u64, 8]);
    let mut cost = call.one(0, total([call.bytes(x), Ok(out)]), elements(n))?;
    cost.note = Some(WORST_CASE);
    Ok(cost)
}

fn repeat(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let x = call.input()?;
    if call.name == "repeat_interleave" && call.optional(1, &["repeats"]).is_some() {
        return Err(UnknownCost::DataDependent);
    }
    let times = call.ints(1, &["repeats", "dims"]).needed()?;
    // `x.repeat(2, 3)` as PyProf records it, with the numbers as separate arguments.
    let more = call.args.items.iter().skip(2).map_while(|a| match a.value {
        ArgValue::Int(v) if a.name.is_none() && call.name != "repeat_interleave" => Some(v),
        _ => None,
    });
    let times = times.into_iter().chain(more).map(size);
    let times = product(times.collect::<Result<Vec<_>, _>>()?);
    let n = product([count(&x.shape), times]);
    call.one(0, total([call.bytes(x), call.dense(n, x)]), elements(n))
}

/// The cost of `pad`, whose list has two numbers per dimension, the last dimension first; negative ones
/// crop.
fn pad(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let pads = call.ints(1, &["pad", "padding"]).needed()?;
    if pads.len() % 2 != 0 || pads.len() / 2 > x.shape.len() {
        return Err(UnknownCost::BadArguments);
    }
    let mut shape = x.shape.clone();
    for (dim, pair) in shape.iter_mut().rev().zip(pads.chunks(2)) {
        let added = pair.iter().fold(0_i64, |s, &p| s.saturating_add(p));
        *dim = dim
            .checked_add_signed(added)
            .ok_or(UnknownCost::BadArguments)?;
    }
    let n = count(&shape);
    call.one(0, total([call.bytes(x), call.dense(n, x)]), elements(n))
}

fn one_hot(call: &Call) -> Result<OpCost, UnknownCost> {
    let index = call.input()?;
    let classes = match call.int(1, &["num_classes"]) {
        Given::Value(n) if n > 0 => size(n)?,
        _ => return Err(UnknownCost::DataDependent),
    };
    let n = product([count(&index.shape), classes]);
    let out = n.saturating_mul(8);
    call.one(0, Ok(sum([index_bytes(call, index), out])), elements(n))
}

fn sort(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let x = call.input()?;
    let n = count(&x.shape);
    let cols = call
        .dim_size(1, x)
        .or_else(|_| call.dim_size(usize::MAX, x))?;
    let values = if call.name == "argsort" {
        Ok(0)
    } else {
        call.dense(n, x)
    };
    let bytes = total([call.bytes(x), values, Ok(n.saturating_mul(8))]);
    let mut cost = call.one(0, bytes, rows(n, cols))?;
    cost.note = Some(SORT_NOTE);
    Ok(cost)
}

/// `topk(x, k, dim)`, `kthvalue(x, k, dim)`, `median(x, dim)`, `mode(x, dim)`.
fn topk(call: &Call) -> Result<OpCost, UnknownCost> {
    call.forward_only()?;
    let x = call.input()?;
    let n = count(&x.shape);
    let (k, dim_at) = match call.name {
        "topk" => (size(call.int(1, &["k"]).needed()?)?, 2),
        "kthvalue" => (1, 2),
        _ => (1, 1),
    };
    let cols = call.dim_size(dim_at, x)?;
    let found = product([n.checked_div(cols).unwrap_or(0), k]);
    let bytes = total([
        call.bytes(x),
        call.dense(found, x),
        Ok(found.saturating_mul(8)),
    ]);
    let mut cost = call.one(0, bytes, rows(n, cols))?;
    cost.note = Some(SORT_NOTE);
    Ok(cost)
}

fn search(call: &Call) -> Result<OpCost, UnknownCost> {
    let first = call.tensor(0, &["input", "sorted_sequence", "self"])?;
    let second = call.tensor(1, &["boundaries", "input", "self"])?;
    let values = if call.name == "bucketize" {
        first
    } else {
        second
    };
    let n = count(&values.shape);
    let bytes = total([
        call.bytes(first),
        call.bytes(second),
        Ok(n.saturating_mul(8)),
    ]);
    call.one(0, bytes, elements(n))
}

fn sized_by_data(call: &Call) -> Result<OpCost, UnknownCost> {
    call.input()?;
    Err(UnknownCost::DataDependent)
}

fn randperm(call: &Call) -> Result<OpCost, UnknownCost> {
    let n = size(call.int(0, &["n"]).needed()?)?;
    let dtype = call.dtype_arg(usize::MAX, &["dtype"]).value();
    let bytes = n.saturating_mul(dtype.unwrap_or(DType::Int64).bytes());
    call.one(0, Ok(bytes), elements(n))
}

fn multinomial(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let samples = size(call.int(1, &["num_samples"]).needed()?)?;
    let rows = match x.shape.as_slice() {
        [_] => 1,
        [rows, _] => *rows,
        _ => return Err(UnknownCost::BadArguments),
    };
    let read = distinct(x).saturating_mul(call.dtype(x)?.bytes());
    let n = product([rows, samples]);
    call.one(0, Ok(sum([read, n.saturating_mul(8)])), elements(n))
}
