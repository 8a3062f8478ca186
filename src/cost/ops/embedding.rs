//! Embedding tables. The cost is that of the gathered rows, not of the table.

use super::call::{Call, Entry, count, product, size, sum, total};
use super::name::Origin;
use crate::base::DType;
use crate::correlate::Tensor;
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, OpCost, UnknownCost};

const EMBEDDING: Entry = Entry {
    names: &["embedding", "embedding_dense"],
    namespaces: &[],
    family: Family::Embedding,
    class: FlopsClass::Zero,
    flops: "0",
    bytes: "indices + gathered rows read + out written; not the table",
    backward: "one add per element of dY; dY + indices + the table's gradient zero-filled + touched rows read and written",
    source: "compulsory traffic of a gather",
    handler: embedding,
};

pub(super) const ENTRIES: &[Entry] = &[
    EMBEDDING,
    Entry {
        names: &["embedding_dense_backward", "embedding_backward"],
        class: FlopsClass::Convention,
        flops: "one add per element of dY",
        bytes: "dY + indices + the whole gradient zero-filled + touched rows read and written",
        backward: "",
        handler: embedding_backward,
        ..EMBEDDING
    },
    Entry {
        names: &["embedding_bag", "embedding_bag_forward_only"],
        class: FlopsClass::Convention,
        flops: "2 per gathered element",
        bytes: "indices + offsets + gathered rows + out",
        backward: "",
        handler: embedding_bag,
        ..EMBEDDING
    },
    Entry {
        names: &[
            "split_embedding_codegen_lookup_sgd_function",
            "split_embedding_codegen_lookup_adagrad_function",
            "split_embedding_codegen_lookup_rowwise_adagrad_function",
            "split_embedding_codegen_lookup_adam_function",
            "split_embedding_codegen_lookup_partial_rowwise_adam_function",
            "split_embedding_codegen_lookup_lamb_function",
            "split_embedding_codegen_lookup_none_function",
            "dense_embedding_codegen_lookup_function",
        ],
        namespaces: &["fbgemm"],
        class: FlopsClass::Convention,
        flops: "2 per gathered element",
        bytes: "indices + offsets + gathered rows + the bags of all tables",
        backward: "",
        source: "fbgemm_gpu, split table batched embeddings; rows as wide as the mean of all tables",
        handler: batched_tables,
        ..EMBEDDING
    },
];

const EQUAL_USE: &str = "batched embedding tables taken as equally often used: which index belongs to which table is \
                         not in the profile";

/// The cost of `(_, dev_weights, uvm_weights, cache, placements, weights_offsets, D_offsets, total_D,
/// max_D, hash_size_cumsum, hash_bits, indices, offsets, ...)`: many tables in one flat buffer. The dense
/// variant has no caches: `(dev_weights, weights_offsets, D_offsets, total_D, max_D, hash_size_cumsum,
/// hash_bits, indices, offsets, ...)`.
fn batched_tables(call: &Call) -> Result<OpCost, UnknownCost> {
    let [weights_at, columns_at, total_at, indices_at] = match call.name.starts_with("dense_") {
        true => [0, 2, 3, 7],
        false => [1, 6, 7, 11],
    };
    let weights = call.tensor(weights_at, &["dev_weights"])?;
    let columns = call.tensor(columns_at, &["D_offsets"])?;
    let indices = call.tensor(indices_at, &["indices"])?;
    let offsets = call.tensor(indices_at + 1, &["offsets"])?;
    let width = size(call.int(total_at, &["total_D"]).needed()?)?;
    let tables = count(&columns.shape).saturating_sub(1);
    let lookups = count(&indices.shape);
    let mean = |whole: u64| whole.checked_div(tables).ok_or(UnknownCost::BadArguments);
    let gathered = mean(product([lookups, width]))?;
    let bags = mean(count(&offsets.shape).saturating_sub(1))?;
    let bytes = total([
        Ok(call.bytes_as(Some(indices), DType::Int64)),
        Ok(call.bytes_as(Some(offsets), DType::Int64)),
        call.dense(gathered, weights),
        call.dense(product([bags, width]), weights),
    ]);
    let mut cost = call.one(product([2, gathered]), bytes, dims(lookups, mean(width)?))?;
    cost.note = Some(EQUAL_USE);
    Ok(cost)
}

/// The table and the indices. `F.embedding` takes the indices first. A backward node may carry the
/// arguments of either spelling; the types distinguish them.
fn table_and_indices<'a>(call: &Call<'a>) -> Result<(&'a Tensor, &'a Tensor), UnknownCost> {
    let first = call.tensor(0, &["input", "weight"])?;
    let second = call.tensor(1, &["weight", "indices"])?;
    let integral = |t: &Tensor| t.dtype.map(|d| !d.is_float());
    let indices_first = match (integral(first), integral(second)) {
        (Some(a), Some(b)) if a != b => a,
        _ => call.origin == Origin::Functional,
    };
    let (table, indices) = if indices_first {
        (second, first)
    } else {
        (first, second)
    };
    if table.shape.len() == 2 {
        Ok((table, indices))
    } else {
        Err(UnknownCost::BadArguments)
    }
}

fn width(table: &Tensor) -> u64 {
    table.shape.get(1).copied().unwrap_or(0)
}

fn dims(lookups: u64, width: u64) -> Dims {
    Dims::Rows {
        rows: lookups,
        cols: width,
    }
}

fn embedding(call: &Call) -> Result<OpCost, UnknownCost> {
    let (table, indices) = table_and_indices(call)?;
    let lookups = count(&indices.shape);
    let out = product([lookups, width(table)]);
    let index_bytes = call.bytes_as(Some(indices), DType::Int64);
    if call.backward {
        let height = table.shape.first().copied().unwrap_or(0);
        return gradient(call, table, (lookups, width(table), height), index_bytes);
    }
    let gathered = call.dense(out, table);
    let bytes = total([Ok(index_bytes), gathered, gathered]);
    call.one(0, bytes, dims(lookups, width(table)))
}

/// The gradient with its zero fill, which is a separate kernel of the same call.
fn gradient(
    call: &Call,
    like: &Tensor,
    (lookups, width, height): (u64, u64, u64),
    indices: u64,
) -> Result<OpCost, UnknownCost> {
    let incoming = product([lookups, width]);
    // At most all rows are touched, and at most one per lookup.
    let touched = call.dense(product([lookups.min(height), width]), like);
    let bytes = total([
        call.dense(incoming, like),
        Ok(indices),
        call.dense(product([height, width]), like),
        touched,
        touched,
    ]);
    let mut cost = call.gradient(incoming, bytes, dims(lookups, width))?;
    cost.class = FlopsClass::Convention;
    Ok(cost)
}

/// `embedding_dense_backward(dY, indices, num_weights, padding_idx, scale_grad_by_freq)`.
fn embedding_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output", "grad"])?;
    let indices = call.tensor(1, &["indices"])?;
    let height = size(call.int(2, &["num_weights"]).needed()?)?;
    let width = dy.shape.last().copied().ok_or(UnknownCost::BadArguments)?;
    let bytes = call.bytes_as(Some(indices), DType::Int64);
    gradient(call, dy, (count(&indices.shape), width, height), bytes)
}

fn embedding_bag(call: &Call) -> Result<OpCost, UnknownCost> {
    let (table, indices) = table_and_indices(call)?;
    let offsets = call.optional(2, &["offsets"]);
    call.forward_only()?;
    let lookups = count(&indices.shape);
    let bags = match (offsets, indices.shape.as_slice()) {
        (Some(offsets), [_]) => count(&offsets.shape),
        (_, [bags, _]) => *bags,
        _ => return Err(UnknownCost::NoShapes),
    };
    let gathered = product([lookups, width(table)]);
    let index_bytes = sum([
        call.bytes_as(Some(indices), DType::Int64),
        call.bytes_as(offsets, DType::Int64),
    ]);
    let bytes = total([
        Ok(index_bytes),
        call.dense(gathered, table),
        call.dense(product([bags, width(table)]), table),
    ]);
    call.one(product([2, gathered]), bytes, dims(lookups, width(table)))
}
