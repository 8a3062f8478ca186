//! Reductions and scans.

use super::call::{Bytes, Call, Entry, Given, axis, count, elements, product, total};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, OpCost, UnknownCost};

const SUM: Entry = Entry {
    names: &["sum", "mean", "nansum", "nanmean", "prod"],
    namespaces: &[],
    family: Family::Reduce,
    class: FlopsClass::Convention,
    flops: "N of the input",
    bytes: "in + out; sums of integers are int64",
    backward: "N; reads dY (and x where the gradient needs it), writes dX",
    source: "convention: one operation per input element, as TraceLens",
    handler: reduce,
};

pub(super) const ENTRIES: &[Entry] = &[
    SUM,
    Entry {
        names: &[
            "amax",
            "amin",
            "any",
            "all",
            "logsumexp",
            "count_nonzero",
            "aminmax",
        ],
        bytes: "in + out; any and all are bool, counts int64",
        handler: reduce,
        ..SUM
    },
    Entry {
        names: &["argmax", "argmin", "max", "min"],
        bytes: "in + out; with a dimension max and min also write int64 indices",
        handler: extremum,
        ..SUM
    },
    Entry {
        names: &["var", "std", "var_mean", "std_mean"],
        flops: "3 N",
        handler: reduce,
        ..SUM
    },
    Entry {
        names: &[
            "norm",
            "linalg_vector_norm",
            "linalg_norm",
            "frobenius_norm",
        ],
        flops: "2 N",
        handler: reduce,
        ..SUM
    },
    Entry {
        names: &["equal", "is_nonzero"],
        bytes: "both inputs + a flag",
        backward: "",
        handler: equal,
        ..SUM
    },
    Entry {
        names: &["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"],
        flops: "N",
        bytes: "in + out",
        backward: "N; dY + dX",
        handler: scan,
        ..SUM
    },
];

const OUTPUT_NOT_COUNTED: &str = "reduced dimensions not recorded: the output is not counted";

/// The number of elements after reducing `dims`, or `None` if the dimensions are not recorded.
fn kept(t: &Tensor, dims: Given<Vec<i64>>) -> Result<Option<u64>, UnknownCost> {
    let dims = match dims {
        Given::Default => return Ok(Some(1)),
        Given::Hidden => return Ok(None),
        Given::Value(dims) if dims.is_empty() => return Ok(Some(1)),
        Given::Value(dims) => dims,
    };
    let mut gone = Vec::with_capacity(dims.len());
    for dim in dims {
        gone.push(axis(dim, t.shape.len())?);
    }
    let left = t
        .shape
        .iter()
        .enumerate()
        .filter(|(i, _)| !gone.contains(i));
    Ok(Some(product(left.map(|(_, &d)| d))))
}

/// The reduced dimensions. A flag or a type in the position of `dim` is an argument of another overload
/// (`var(x, unbiased)`, `mean(x, dtype)`).
fn dims(call: &Call) -> Given<Vec<i64>> {
    let at = match call.name {
        "norm" | "linalg_vector_norm" | "linalg_norm" => 2,
        _ => 1,
    };
    match call.arg(at, &["dim", "axis"]) {
        Some(ArgValue::Bool(_) | ArgValue::Str(_)) => Given::Default,
        _ => call.ints(at, &["dim", "axis"]),
    }
}

fn reduce(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    let per_element = match call.name {
        "var" | "std" | "var_mean" | "std_mean" | "logsumexp" => 3,
        "norm" | "linalg_vector_norm" | "linalg_norm" | "frobenius_norm" => 2,
        _ => 1,
    };
    let outputs = match call.name {
        "var_mean" | "std_mean" | "aminmax" => 2,
        _ => 1,
    };
    let kept = kept(x, dims(call))?;
    let out: Bytes = kept.map_or(Ok(0), |kept| {
        Ok(product([kept, outputs, out_dtype(call, x)?.bytes()]))
    });
    finish(call, x, product([per_element, n]), out, kept)
}

fn out_dtype(call: &Call, x: &Tensor) -> Result<DType, UnknownCost> {
    if let Given::Value(dtype) = call.dtype_arg(usize::MAX, &["dtype"]) {
        return Ok(dtype);
    }
    Ok(match (call.name, call.dtype(x)?) {
        ("any" | "all", _) => DType::Bool,
        ("count_nonzero", _) => DType::Int64,
        ("sum" | "nansum" | "prod", d) if !d.is_float() && !is_complex(d) => DType::Int64,
        ("norm" | "linalg_vector_norm" | "linalg_norm", DType::Complex64) => DType::Fp32,
        (_, d) => d,
    })
}

fn is_complex(d: DType) -> bool {
    matches!(d, DType::Complex64 | DType::Complex128)
}

/// The cost for a known output size. The gradient reads dY (and, unless the operator is linear, x) and
/// writes dX.
fn finish(
    call: &Call,
    x: &Tensor,
    flops: u64,
    out: Bytes,
    kept: Option<u64>,
) -> Result<OpCost, UnknownCost> {
    let n = count(&x.shape);
    let dims = match kept {
        Some(rows) => Dims::Rows {
            rows,
            cols: n.checked_div(rows).unwrap_or(0),
        },
        None => elements(n),
    };
    let mut cost = if call.backward {
        let linear = matches!(call.name, "sum" | "mean" | "nansum");
        let saved = if linear { Ok(0) } else { call.bytes(x) };
        call.one(n, total([out, saved, call.dense(n, x)]), dims)
    } else {
        call.one(flops, total([call.bytes(x), out]), dims)
    }?;
    if kept.is_none() {
        cost.note = Some(OUTPUT_NOT_COUNTED);
    }
    Ok(cost)
}

/// The cost of `max(x)`, `max(x, dim)`, `max(x, other)` or `argmax(x, dim)`.
fn extremum(call: &Call) -> Result<OpCost, UnknownCost> {
    let arg = call.name.starts_with("arg");
    if !arg && call.optional(1, &["other"]).is_some() {
        let mut cost = super::pointwise::binary(call)?;
        cost.family = Family::Pointwise;
        return Ok(cost);
    }
    let x = call.input()?;
    let n = count(&x.shape);
    let dims = dims(call);
    let indexed = dims != Given::Default;
    let kept = kept(x, dims)?;
    let out: Bytes = kept.map_or(Ok(0), |kept| {
        let value = if arg { 0 } else { call.dtype(x)?.bytes() };
        let index = if arg || indexed { 8 } else { 0 };
        Ok(kept.saturating_mul(value + index))
    });
    finish(call, x, n, out, kept)
}

fn equal(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let other = call.optional(1, &["other"]);
    let n = count(&x.shape);
    let bytes = total([call.bytes(x), call.bytes_of(other), Ok(1)]);
    call.one(n, bytes, elements(n))
}

fn scan(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    let dtype = match (call.dtype_arg(usize::MAX, &["dtype"]), call.dtype(x)?) {
        (Given::Value(dtype), _) => dtype,
        (_, d) if d.is_float() || is_complex(d) => d,
        _ => DType::Int64,
    };
    let index = if matches!(call.name, "cummax" | "cummin") {
        8
    } else {
        0
    };
    let out = n.saturating_mul(dtype.bytes() + index);
    call.one(n, total([call.bytes(x), Ok(out)]), elements(n))
}
