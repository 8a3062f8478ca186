//! Optimizers and the list operators that implement them. Costs are per parameter element.

use super::call::{Call, Entry, WorkPart, count, distinct, elements, product, sum};
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::{Family, Role};
use crate::cost::model::{FlopsClass, OpCost, UnknownCost};

const SAME_LIST: &str = "three different lists assumed; one passed twice would be read once";

const FOREACH: Entry = Entry {
    names: &[
        "foreach_add",
        "foreach_sub",
        "foreach_mul",
        "foreach_div",
        "foreach_maximum",
        "foreach_minimum",
        "foreach_clamp_min",
        "foreach_clamp_max",
        "foreach_pow",
    ],
    namespaces: &[],
    family: Family::Optimizer,
    class: FlopsClass::Convention,
    flops: "N; with an alpha that is not 1, 2 N",
    bytes: "every list read + the result written; a scalar costs nothing",
    backward: "",
    source: "convention: the operations of the update, per parameter element",
    handler: binary,
};

pub(super) const ENTRIES: &[Entry] = &[
    FOREACH,
    Entry {
        names: &[
            "foreach_sqrt",
            "foreach_neg",
            "foreach_reciprocal",
            "foreach_exp",
            "foreach_log",
            "foreach_abs",
            "foreach_sigmoid",
            "foreach_sign",
            "foreach_rsqrt",
            "foreach_round",
            "foreach_tanh",
        ],
        flops: "N",
        bytes: "in + out",
        handler: unary,
        ..FOREACH
    },
    Entry {
        names: &["foreach_lerp"],
        flops: "3 N",
        handler: lerp,
        ..FOREACH
    },
    Entry {
        names: &["foreach_addcmul", "foreach_addcdiv"],
        flops: "3 N",
        bytes: "self read and written + both operands",
        handler: ternary,
        ..FOREACH
    },
    Entry {
        names: &["foreach_norm"],
        flops: "2 N",
        bytes: "in + one number per tensor",
        handler: norm,
        ..FOREACH
    },
    Entry {
        names: &["fused_adam", "fused_adamw"],
        flops: "15 N, 16 N with amsgrad",
        bytes: "parameter, both moments (and the amsgrad maximum) read and written, gradient read",
        handler: fused_adam,
        ..FOREACH
    },
    Entry {
        names: &["fused_sgd"],
        flops: "4 N",
        bytes: "parameter and momentum read and written, gradient read",
        handler: fused_sgd,
        ..FOREACH
    },
    Entry {
        names: &["fused_adagrad"],
        flops: "6 N",
        bytes: "parameter and sum of squares read and written, gradient read",
        handler: fused_adagrad,
        ..FOREACH
    },
    Entry {
        names: &["adam"],
        namespaces: &["fused_adam_cuda"],
        flops: "15 N",
        bytes: "weight and both moments read and written, gradient read, half-precision copy written",
        handler: apex_adam,
        ..FOREACH
    },
    Entry {
        names: &["amp_foreach_non_finite_check_and_unscale"],
        flops: "N",
        bytes: "gradients read and written",
        handler: unscale,
        ..FOREACH
    },
];

/// The number of elements, and the bytes at each tensor's own element type.
fn measure(call: &Call, list: &[&Tensor]) -> Result<(u64, u64), UnknownCost> {
    let mut bytes = 0_u64;
    for t in list {
        // A 0-dim tensor without a type counts 0 elsewhere, but in a list it is a parameter.
        let e = call.dtype(t)?.bytes();
        bytes = bytes.saturating_add(distinct(t).saturating_mul(e));
    }
    Ok((sum(list.iter().map(|t| count(&t.shape))), bytes))
}

fn cost(call: &Call, flops: u64, bytes: u64, n: u64) -> Result<OpCost, UnknownCost> {
    call.one(flops, Ok(bytes), elements(n))
}

fn update(call: &Call, flops: u64, bytes: u64, n: u64) -> Result<OpCost, UnknownCost> {
    let dims = elements(n);
    call.cost_of(vec![WorkPart::new(Role::Opt, flops, Ok(bytes), dims)])
}

fn first(call: &Call) -> Result<(u64, u64), UnknownCost> {
    measure(call, &call.tensors(0, &["self", "tensors1"])?)
}

fn is_list(call: &Call, at: usize) -> bool {
    match call.arg(at, &["other", "tensors1", "exponent"]) {
        Some(ArgValue::List(items)) => items.iter().any(|v| matches!(v, ArgValue::Tensor(_))),
        _ => false,
    }
}

fn binary(call: &Call) -> Result<OpCost, UnknownCost> {
    let (n, bytes) = first(call)?;
    if !is_list(call, 1) {
        return cost(call, n, bytes.saturating_mul(2), n);
    }
    let (_, other) = measure(call, &call.tensors(1, &["other", "exponent"])?)?;
    let per_element = if call.is_scaled(2, &["alpha"]) { 2 } else { 1 };
    let bytes = sum([bytes, bytes, other]);
    cost(call, product([per_element, n]), bytes, n)
}

fn unary(call: &Call) -> Result<OpCost, UnknownCost> {
    let (n, bytes) = first(call)?;
    cost(call, n, bytes.saturating_mul(2), n)
}

fn lerp(call: &Call) -> Result<OpCost, UnknownCost> {
    let (n, bytes) = first(call)?;
    let (_, end) = measure(call, &call.tensors(1, &["tensors1"])?)?;
    let weights = match call.arg(2, &["weights"]) {
        Some(ArgValue::List(items)) if items.iter().any(|v| matches!(v, ArgValue::Tensor(_))) => {
            measure(call, &call.tensors(2, &["weights"])?)?.1
        }
        _ => 0,
    };
    cost(call, product([3, n]), sum([bytes, bytes, end, weights]), n)
}

fn ternary(call: &Call) -> Result<OpCost, UnknownCost> {
    let (n, bytes) = first(call)?;
    let (_, one) = measure(call, &call.tensors(1, &["tensor1"])?)?;
    let (_, two) = measure(call, &call.tensors(2, &["tensor2"])?)?;
    let mut cost = cost(call, product([3, n]), sum([bytes, bytes, one, two]), n)?;
    cost.note = Some(SAME_LIST);
    Ok(cost)
}

fn norm(call: &Call) -> Result<OpCost, UnknownCost> {
    let list = call.tensors(0, &["self"])?;
    let (n, bytes) = measure(call, &list)?;
    let mut out = 0_u64;
    for t in &list {
        out = out.saturating_add(call.dtype(t)?.bytes());
    }
    cost(call, product([2, n]), sum([bytes, out]), n)
}

/// The cost of `_foreach_copy_(to, from)`, which only moves data.
pub(super) fn foreach_copy(call: &Call) -> Result<OpCost, UnknownCost> {
    let (n, to) = measure(call, &call.tensors(0, &["self"])?)?;
    let (_, from) = measure(call, &call.tensors(1, &["src"])?)?;
    cost(call, 0, sum([to, from]), n)
}

/// The bytes of a list that may be empty, such as `max_exp_avg_sqs` without amsgrad.
fn perhaps(call: &Call, at: usize, names: &[&str]) -> Result<u64, UnknownCost> {
    match call.arg(at, names) {
        Some(ArgValue::List(items)) if !items.is_empty() => {
            Ok(measure(call, &call.tensors(at, names)?)?.1)
        }
        _ => Ok(0),
    }
}

/// A fused step `(params, grads, state, ...)`, of which state some lists may be empty.
fn fused(call: &Call, per_element: u64, state: &[u64]) -> Result<OpCost, UnknownCost> {
    let (n, params) = first(call)?;
    let grads = list(call, 1, "grads")?;
    let changed = sum(state.iter().copied().chain([params])).saturating_mul(2);
    update(call, product([per_element, n]), sum([changed, grads]), n)
}

/// The bytes of a list.
fn list(call: &Call, at: usize, name: &str) -> Result<u64, UnknownCost> {
    Ok(measure(call, &call.tensors(at, &[name])?)?.1)
}

/// `(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, ...)`.
fn fused_adam(call: &Call) -> Result<OpCost, UnknownCost> {
    let max = perhaps(call, 4, &["max_exp_avg_sqs"])?;
    let per_element = if max > 0 { 16 } else { 15 };
    let (mean, square) = (list(call, 2, "exp_avgs")?, list(call, 3, "exp_avg_sqs")?);
    fused(call, per_element, &[mean, square, max])
}

/// `(params, grads, momentum_buffer_list, ...)`.
fn fused_sgd(call: &Call) -> Result<OpCost, UnknownCost> {
    fused(call, 4, &[perhaps(call, 2, &["momentum_buffer_list"])?])
}

fn fused_adagrad(call: &Call) -> Result<OpCost, UnknownCost> {
    fused(call, 6, &[list(call, 2, "state_sums")?])
}

/// Apex: `adam(weight, half_copy, m, v, gradient, ...)`; the copy is an empty tensor when unused.
fn apex_adam(call: &Call) -> Result<OpCost, UnknownCost> {
    let tensor = |at| call.tensor(at, &[]);
    let (w, copy, m, v, g) = (tensor(0)?, tensor(1)?, tensor(2)?, tensor(3)?, tensor(4)?);
    let n = count(&w.shape);
    let (_, changed) = measure(call, &[w, m, v])?;
    let (_, rest) = measure(call, &[copy, g])?;
    update(call, product([15, n]), sum([changed, changed, rest]), n)
}

fn unscale(call: &Call) -> Result<OpCost, UnknownCost> {
    let (n, bytes) = first(call)?;
    update(call, n, bytes.saturating_mul(2), n)
}
