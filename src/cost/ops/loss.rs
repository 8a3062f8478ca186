//! Losses. A loss reads its inputs once and writes one number, or one per element.

use super::call::{Bytes, Call, Entry, count, elements, product, rows, sum, total};
use super::name::Origin;
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, OpCost, UnknownCost};

const ELEMENTWISE: Entry = Entry {
    names: &[
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "kl_div",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "soft_margin_loss",
    ],
    namespaces: &[],
    family: Family::Loss,
    class: FlopsClass::Convention,
    flops: "per element: 2 l1, 3 mse, 4 smooth l1, huber, kl, 5 binary cross entropy, 6 with logits",
    bytes: "input + target (+ weight) + out",
    backward: "the forward's FLOPs; dY + input + target (+ weight) + dX",
    source: "convention: the operations of the formula",
    handler: elementwise,
};

const NLL: Entry = Entry {
    names: &[
        "nll_loss",
        "nll_loss_forward",
        "nll_loss2d",
        "nll_loss2d_forward",
        "nll_loss_nd",
    ],
    namespaces: &[],
    family: Family::Loss,
    class: FlopsClass::Convention,
    flops: "one per row",
    bytes: "target (int64) + one value per row + out + total weight",
    backward: "rows; target + dY + total weight + one value per row. Filling the gradient with zeros is work of its own",
    source: "convention: only the picked elements are touched",
    handler: nll,
};

pub(super) const ENTRIES: &[Entry] = &[
    ELEMENTWISE,
    Entry {
        names: &[
            "mse_loss_backward",
            "l1_loss_backward",
            "smooth_l1_loss_backward",
            "huber_loss_backward",
            "kl_div_backward",
            "binary_cross_entropy_backward",
            "binary_cross_entropy_with_logits_backward",
            "soft_margin_loss_backward",
        ],
        flops: "the forward's",
        bytes: "dY + input + target (+ weight) + dX",
        backward: "",
        handler: elementwise_backward,
        ..ELEMENTWISE
    },
    NLL,
    Entry {
        names: &["nll_loss_backward", "nll_loss2d_backward"],
        flops: "rows",
        bytes: "target + dY + total weight + one value per row. Filling the gradient with zeros is work of its own",
        backward: "",
        handler: nll_backward,
        ..NLL
    },
    Entry {
        names: &["cross_entropy", "cross_entropy_loss"],
        flops: "5 N + rows: log-softmax, then the picked elements",
        bytes: "log-softmax in + out, and those of nll_loss",
        backward: "4 N + rows; both backward kernels",
        source: "the sum of the two operators it is made of",
        handler: cross_entropy,
        ..NLL
    },
];

fn per_element(name: &str) -> u64 {
    match name.trim_end_matches("_backward") {
        "l1_loss" => 2,
        "mse_loss" => 3,
        "binary_cross_entropy" => 5,
        "binary_cross_entropy_with_logits" => 6,
        _ => 4,
    }
}

/// Whether the loss keeps one value per element: `reduction="none"`, or 0 in aten.
fn unreduced(call: &Call, at: usize) -> bool {
    let word = call.args.items.iter().find_map(|a| match &a.value {
        ArgValue::Str(s) if matches!(s.as_str(), "none" | "mean" | "sum" | "batchmean") => Some(s),
        _ => None,
    });
    match word {
        Some(word) => word == "none",
        None => {
            call.origin != Origin::Functional && call.int(at, &["reduction"]).value() == Some(0)
        }
    }
}

/// The position of the reduction in aten's `(input, target, [weight, [pos_weight]], reduction)`.
fn reduction_at(name: &str) -> usize {
    match name {
        "binary_cross_entropy" => 3,
        "binary_cross_entropy_with_logits" => 4,
        _ => 2,
    }
}

fn weights<'a>(call: &Call<'a>, first: usize) -> [Option<&'a Tensor>; 2] {
    if !call.name.starts_with("binary") {
        return [None, None];
    }
    let logits = call.name.contains("with_logits");
    let second = if call.origin == Origin::Functional {
        usize::MAX
    } else {
        first + 1
    };
    let position = if logits {
        call.optional(second, &["pos_weight"])
    } else {
        None
    };
    [call.optional(first, &["weight"]), position]
}

fn elementwise(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let target = call.tensor(1, &["target"])?;
    let n = count(&x.shape);
    let unreduced = unreduced(call, reduction_at(call.name));
    let out = call.dense(if unreduced { n } else { 1 }, x);
    let [weight, position] = weights(call, 2);
    let dx = if call.backward {
        call.dense(n, x)
    } else {
        Ok(0)
    };
    let bytes = total([
        call.bytes(x),
        call.bytes(target),
        call.bytes_of(weight),
        call.bytes_of(position),
        out,
        dx,
    ]);
    let flops = product([per_element(call.name), n]);
    call.one(flops, bytes, elements(n))
}

fn elementwise_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output"])?;
    let x = call.tensor(1, &["input", "self"])?;
    let target = call.tensor(2, &["target"])?;
    let n = count(&x.shape);
    let [weight, position] = weights(call, 3);
    let bytes = total([
        call.bytes(dy),
        call.bytes(x),
        call.bytes(target),
        call.bytes_of(weight),
        call.bytes_of(position),
        call.dense(n, x),
    ]);
    let flops = product([per_element(call.name), n]);
    call.gradient(flops, bytes, elements(n))
}

/// Rows and columns of class scores: classes are dimension 1, or the only dimension.
fn classes(x: &Tensor) -> Dims {
    let cols = match x.shape.as_slice() {
        [c] => *c,
        [_, c, ..] => *c,
        [] => 1,
    };
    rows(count(&x.shape), cols)
}

/// Bytes of the target, one value per row, the result and the total weight: the traffic of picking
/// elements.
fn picked(call: &Call, x: &Tensor, target: &Tensor, unreduced: bool) -> Bytes {
    let rows = count(&target.shape);
    let e = call.dtype(x)?.bytes();
    let out = if unreduced { rows } else { 1 };
    Ok(sum([
        call.bytes_as(Some(target), DType::Int64),
        rows.saturating_mul(e),
        out.saturating_mul(e),
        e,
    ]))
}

fn nll(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let target = call.tensor(1, &["target"])?;
    let dims = classes(x);
    let weight = call.bytes_of(call.optional(2, &["weight"]));
    let picked = picked(call, x, target, unreduced(call, 3));
    call.one(count(&target.shape), total([picked, weight]), dims)
}

fn nll_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output"])?;
    let x = call.tensor(1, &["input", "self"])?;
    let target = call.tensor(2, &["target"])?;
    let dims = classes(x);
    let rows = count(&target.shape);
    let bytes = total([
        call.bytes(dy),
        Ok(call.bytes_as(Some(target), DType::Int64)),
        call.bytes_of(call.optional(3, &["weight"])),
        call.dense(1, x),
        call.dense(rows, x),
    ]);
    call.gradient(rows, bytes, dims)
}

/// The bytes of the gradient that a backward fills with zeros before it writes one value per row.
pub(super) fn zero_fill_bytes(call: &Call) -> Option<u64> {
    let of_rows = call.name.starts_with("nll_loss") || call.name.starts_with("cross_entropy");
    let input = match (of_rows, call.backward, call.name.ends_with("_backward")) {
        (true, true, false) => call.input().ok()?,
        (true, _, true) => call.tensor(1, &["input", "self"]).ok()?,
        _ => return None,
    };
    call.dense(count(&input.shape), input).ok()
}

fn cross_entropy(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let target = call.tensor(1, &["target"])?;
    let n = count(&x.shape);
    let dims = classes(x);
    let large = call.dense(n, x);
    let weight = call.bytes_of(call.optional(2, &["weight"]));
    let per_element = if call.backward { 4 } else { 5 };
    if target.shape == x.shape && target.shape.len() > 1 {
        // Class probabilities: log-softmax, then a product and a sum over everything.
        let bytes = total([large, large, large, call.bytes(target), weight]);
        return call.one(product([per_element + 2, n]), bytes, dims);
    }
    let picked = picked(call, x, target, unreduced(call, 3));
    let flops = product([per_element, n]).saturating_add(count(&target.shape));
    let bytes = if call.backward {
        // log-softmax: dY and Y read, dX written. nll fills dY with zeros in work of its own.
        total([large, large, large, picked, weight])
    } else {
        total([large, large, picked, weight])
    };
    call.one(flops, bytes, dims)
}
