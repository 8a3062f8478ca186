//! Pointwise operators, which compute every output element from the input elements at the same
//! position. They are memory-bound for any function: even 20 FLOPs per element are far below any GPU's
//! balance of FLOPs to bytes.

use super::call::{
    Bytes, Call, Entry, Given, broadcast, count, distinct, elements, product, promote, sum, total,
};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{FlopsClass, OpCost, UnknownCost};

const SOURCE: &str = "convention: one FLOP per output element, as TraceLens and DeepSpeed";

const UNARY: Entry = Entry {
    names: &[
        "abs",
        "acos",
        "acosh",
        "angle",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "celu",
        "clamp_max",
        "clamp_min",
        "conj_physical",
        "cos",
        "cosh",
        "deg2rad",
        "digamma",
        "elu",
        "erf",
        "erfc",
        "erfinv",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "frac",
        "gelu",
        "hardshrink",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "i0",
        "leaky_relu",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "log_sigmoid",
        "log_sigmoid_forward",
        "logit",
        "logsigmoid",
        "mish",
        "nan_to_num",
        "neg",
        "negative",
        "polygamma",
        "rad2deg",
        "reciprocal",
        "relu",
        "relu6",
        "round",
        "rrelu",
        "rsqrt",
        "selu",
        "sigmoid",
        "sign",
        "silu",
        "sin",
        "sinc",
        "sinh",
        "softplus",
        "softshrink",
        "softsign",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "tanhshrink",
        "threshold",
        "trunc",
    ],
    namespaces: &[],
    family: Family::Pointwise,
    class: FlopsClass::Convention,
    flops: "N, transcendental functions too",
    bytes: "in + out; in place the same",
    backward: "N; dY + saved + dX",
    source: SOURCE,
    handler: unary,
};

const BINARY: Entry = Entry {
    names: &[
        "add",
        "atan2",
        "copysign",
        "div",
        "divide",
        "floor_divide",
        "fmax",
        "fmin",
        "fmod",
        "gcd",
        "heaviside",
        "hypot",
        "ldexp",
        "logaddexp",
        "logaddexp2",
        "maximum",
        "minimum",
        "mul",
        "multiply",
        "nextafter",
        "pow",
        "float_power",
        "prelu",
        "remainder",
        "rsub",
        "sub",
        "subtract",
        "true_divide",
        "xlogy",
        "outer",
        "ger",
    ],
    flops: "N of the output; add and sub with alpha 2 N; complex add 2 N, complex mul 6 N",
    bytes: "each tensor at its own size + out; a scalar costs nothing; in place reads and writes",
    backward: "N per tensor operand, 3 tensors each; add and sub only sum over broadcast dimensions",
    handler: binary,
    ..UNARY
};

pub(super) const ENTRIES: &[Entry] = &[
    UNARY,
    BINARY,
    Entry {
        names: &["clamp", "clip"],
        flops: "N per bound",
        handler: clamp,
        ..UNARY
    },
    Entry {
        names: &["glu"],
        flops: "2 N of the output",
        bytes: "in + out, half as large",
        backward: "4 N of the output; dY + in + dX",
        handler: glu,
        ..UNARY
    },
    Entry {
        names: &[
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "isnan",
            "isinf",
            "isfinite",
            "isclose",
            "signbit",
            "isposinf",
            "isneginf",
            "not_equal",
            "greater",
            "less",
            "greater_equal",
            "less_equal",
            "isin",
        ],
        flops: "N",
        bytes: "inputs + a bool per element",
        backward: "",
        handler: compare,
        ..BINARY
    },
    Entry {
        names: &[
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_not",
            "bitwise_left_shift",
            "bitwise_right_shift",
            "logical_and",
            "logical_or",
            "logical_xor",
            "logical_not",
        ],
        class: FlopsClass::Zero,
        flops: "0: logic is not arithmetic",
        bytes: "inputs + out; logical_* writes bool",
        backward: "",
        handler: logic,
        ..BINARY
    },
    Entry {
        names: &["where"],
        flops: "N",
        bytes: "condition + both inputs + out",
        backward: "N per tensor; condition + dY + dX each",
        handler: where_,
        ..BINARY
    },
    Entry {
        names: &["lerp", "addcmul", "addcdiv"],
        flops: "3 N",
        bytes: "every tensor + out",
        backward: "N per tensor operand, dY + the operands + dX",
        handler: ternary,
        ..BINARY
    },
    Entry {
        names: &[
            "threshold_backward",
            "gelu_backward",
            "silu_backward",
            "sigmoid_backward",
            "tanh_backward",
            "hardtanh_backward",
            "hardswish_backward",
            "hardsigmoid_backward",
            "elu_backward",
            "leaky_relu_backward",
            "softplus_backward",
            "mish_backward",
            "logit_backward",
            "log_sigmoid_backward",
            "softshrink_backward",
            "hardshrink_backward",
            "glu_backward",
        ],
        flops: "N",
        bytes: "dY + saved + dX",
        backward: "",
        handler: activation_backward,
        ..UNARY
    },
    Entry {
        names: &[
            "dropout",
            "native_dropout",
            "fused_dropout",
            "feature_dropout",
            "alpha_dropout",
            "dropout1d",
            "dropout2d",
            "dropout3d",
        ],
        family: Family::Dropout,
        flops: "2 N: compare and scale; random numbers are not counted. 0 in evaluation: nothing runs",
        bytes: "x + y + a mask of one byte per element",
        backward: "2 N; dY + mask + dX",
        handler: dropout,
        ..UNARY
    },
    Entry {
        names: &["native_dropout_backward", "masked_scale"],
        family: Family::Dropout,
        flops: "2 N",
        bytes: "dY + mask + dX",
        backward: "",
        handler: dropout_backward,
        ..UNARY
    },
];

/// One operand of a pointwise operator.
#[derive(Debug, Clone, Copy)]
enum Operand<'a> {
    Tensor(&'a Tensor),
    /// A Python number; `true` if it is a float.
    Number(bool),
}

const INPUT: &[&str] = &["input", "self"];

/// The first operands, by their names. Numbers whose value is not recorded still count as numbers.
fn operands<'a>(call: &Call<'a>, names: &[&[&str]]) -> Result<Vec<Operand<'a>>, UnknownCost> {
    let mut found = Vec::with_capacity(names.len());
    for (i, names) in names.iter().enumerate() {
        match call.arg(i, names) {
            Some(ArgValue::Tensor(t)) => found.push(Operand::Tensor(t)),
            Some(ArgValue::Float(_)) => found.push(Operand::Number(true)),
            Some(ArgValue::Int(_) | ArgValue::Bool(_) | ArgValue::Unknown) => {
                found.push(Operand::Number(false));
            }
            Some(ArgValue::None) => {}
            Some(ArgValue::List(_) | ArgValue::Str(_)) => return Err(UnknownCost::BadArguments),
            None if call.args.items.is_empty() => return Err(UnknownCost::NoShapes),
            None => {}
        }
    }
    if tensors(&found).next().is_none() {
        return Err(UnknownCost::NoShapes);
    }
    Ok(found)
}

fn tensors<'a>(operands: &[Operand<'a>]) -> impl Iterator<Item = &'a Tensor> {
    operands.iter().filter_map(|o| match o {
        Operand::Tensor(t) => Some(*t),
        Operand::Number(_) => None,
    })
}

fn broadcast_all(operands: &[Operand]) -> Result<Vec<u64>, UnknownCost> {
    tensors(operands).try_fold(Vec::new(), |shape, t| broadcast(&shape, &t.shape))
}

/// The result type of the operands. Division of integers and floating-point functions return the
/// default float type.
fn result_type(call: &Call, operands: &[Operand], float: bool) -> Result<DType, UnknownCost> {
    let mut types = Vec::with_capacity(operands.len());
    for t in tensors(operands) {
        // A scalar without a type cannot widen a tensor of its category.
        if t.shape.is_empty() && t.dtype.is_none() {
            continue;
        }
        types.push((call.dtype(t)?, !t.shape.is_empty()));
    }
    let promoted = promote(types).ok_or(UnknownCost::NoDType)?;
    let float = float || operands.iter().any(|o| matches!(o, Operand::Number(true)));
    let integral =
        !promoted.is_float() && !matches!(promoted, DType::Complex64 | DType::Complex128);
    Ok(if float && integral {
        DType::Fp32
    } else {
        promoted
    })
}

/// The element type of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Promoted,
    /// At least the default floating type.
    Float,
    Bool,
}

/// The cost of the forward of any pointwise operator.
fn map(
    call: &Call,
    operands: &[Operand],
    per_element: u64,
    out: Out,
) -> Result<OpCost, UnknownCost> {
    let shape = broadcast_all(operands)?;
    let n = count(&shape);
    let dtype = match out {
        _ if call.in_place => match operands.first() {
            Some(Operand::Tensor(t)) => call.dtype(t),
            _ => Err(UnknownCost::BadArguments),
        },
        Out::Bool => Ok(DType::Bool),
        Out::Promoted => result_type(call, operands, false),
        Out::Float => result_type(call, operands, true),
    }?;
    let read = read(call, operands)?;
    let written = n.saturating_mul(dtype.bytes());
    let bytes = Ok(read.saturating_add(written));
    call.one(product([per_element, n]), bytes, elements(n))
}

fn read(call: &Call, operands: &[Operand]) -> Bytes {
    total(tensors(operands).map(|t| call.bytes(t)))
}

/// The cost of a generic gradient: for each tensor operand, one pass that reads dY and all operands and
/// writes the operand's gradient (at full size first, if the operand was broadcast).
fn gradients(call: &Call, operands: &[Operand]) -> Result<OpCost, UnknownCost> {
    let shape = broadcast_all(operands)?;
    let n = count(&shape);
    let e = result_type(call, operands, true)?.bytes();
    let full = n.saturating_mul(e);
    let mut flops = 0_u64;
    let mut bytes = 0_u64;
    let all: Vec<&Tensor> = tensors(operands).filter(|t| !t.shape.is_empty()).collect();
    for (i, t) in all.iter().enumerate() {
        // The product rule needs the other operands; a function of one needs its own input.
        let others = all
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i || all.len() == 1);
        let saved = if saves_nothing(call.name, operands) {
            0
        } else {
            total(others.map(|(_, o)| call.bytes(o)))?
        };
        flops = flops.saturating_add(n);
        bytes = sum([bytes, full, saved, full]);
        if count(&t.shape) < n {
            let (adds, traffic) = unbroadcast(call, t, n, full)?;
            flops = flops.saturating_add(adds);
            bytes = bytes.saturating_add(traffic);
        }
    }
    call.one(flops, Ok(bytes), elements(n))
}

/// Whether the gradient needs dY alone: scaling and sign changes.
fn saves_nothing(name: &str, operands: &[Operand]) -> bool {
    let by_number = operands.len() == 2 && tensors(operands).count() == 1;
    matches!(name, "neg" | "negative" | "conj_physical")
        || (by_number && matches!(name, "mul" | "multiply" | "div" | "divide" | "true_divide"))
}

/// FLOPs and bytes of summing a full-size gradient to the shape of a broadcast operand.
fn unbroadcast(call: &Call, t: &Tensor, n: u64, full: u64) -> Result<(u64, u64), UnknownCost> {
    Ok((n, full.saturating_add(call.dense(count(&t.shape), t)?)))
}

fn unary(call: &Call) -> Result<OpCost, UnknownCost> {
    let operands = operands(call, &[INPUT])?;
    if call.backward {
        return gradients(call, &operands);
    }
    let keeps_type = matches!(
        call.name,
        "abs"
            | "ceil"
            | "clamp_max"
            | "clamp_min"
            | "conj_physical"
            | "floor"
            | "frac"
            | "hardtanh"
            | "nan_to_num"
            | "neg"
            | "negative"
            | "relu"
            | "relu6"
            | "round"
            | "sign"
            | "square"
            | "threshold"
            | "trunc"
    );
    let out = if keeps_type {
        Out::Promoted
    } else {
        Out::Float
    };
    map(call, &operands, 1, out)
}

/// The cost of a binary operator, including `max` and `min` of two tensors.
pub(super) fn binary(call: &Call) -> Result<OpCost, UnknownCost> {
    let mut operands = operands(call, &[INPUT, &["other", "exponent", "weight", "vec2"]])?;
    let mut scaled = false;
    if matches!(call.name, "add" | "sub" | "subtract" | "rsub") {
        scaled = call.is_scaled(2, &["alpha"]);
        // Until 2020: `add_(tensor, alpha, other)`.
        if let (Some(ArgValue::Tensor(other)), [_, number @ Operand::Number(_)]) =
            (call.arg(2, &[]), operands.as_mut_slice())
        {
            *number = Operand::Tensor(other);
            scaled = call.is_scaled(1, &[]);
        }
    }
    if call.name == "outer" || call.name == "ger" {
        return outer(call, &operands);
    }
    if call.name == "prelu" {
        return prelu(call, &operands);
    }
    if call.backward {
        return if matches!(call.name, "add" | "sub" | "subtract" | "rsub") && !scaled {
            sum_backward(call, &operands)
        } else {
            gradients(call, &operands)
        };
    }
    let division = matches!(
        call.name,
        "div" | "divide" | "true_divide" | "atan2" | "xlogy" | "float_power"
    );
    let out = if division { Out::Float } else { Out::Promoted };
    let complex = matches!(
        result_type(call, &operands, division)?,
        DType::Complex64 | DType::Complex128
    );
    let per_element = match (call.name, complex) {
        ("mul" | "multiply", true) => 6,
        ("add" | "sub" | "subtract" | "rsub", true) => 2,
        _ if scaled => 2,
        _ => 1,
    };
    map(call, &operands, per_element, out)
}

/// The cost of the gradient of a sum. It equals dY, so only the sums for broadcast operands cost
/// anything.
fn sum_backward(call: &Call, operands: &[Operand]) -> Result<OpCost, UnknownCost> {
    let n = count(&broadcast_all(operands)?);
    let full = n.saturating_mul(result_type(call, operands, false)?.bytes());
    let mut flops = 0_u64;
    let mut bytes = 0_u64;
    for t in tensors(operands).filter(|t| !t.shape.is_empty() && count(&t.shape) < n) {
        let (adds, traffic) = unbroadcast(call, t, n, full)?;
        flops = flops.saturating_add(adds);
        bytes = bytes.saturating_add(traffic);
    }
    if bytes == 0 {
        // The gradient needs no kernel, but a kernel ran: its cost is unknown.
        return Err(UnknownCost::UnknownOp);
    }
    call.one(flops, Ok(bytes), elements(n))
}

fn outer(call: &Call, operands: &[Operand]) -> Result<OpCost, UnknownCost> {
    let [Operand::Tensor(a), Operand::Tensor(b)] = operands else {
        return Err(UnknownCost::BadArguments);
    };
    let n = count(&a.shape).saturating_mul(count(&b.shape));
    let e = result_type(call, operands, false)?.bytes();
    let bytes = total([call.bytes(a), call.bytes(b), Ok(n.saturating_mul(e))]);
    call.forward_only()?;
    call.one(n, bytes, elements(n))
}

/// The cost of `prelu`, whose weight runs along dimension 1, not the last one.
fn prelu(call: &Call, operands: &[Operand]) -> Result<OpCost, UnknownCost> {
    let [Operand::Tensor(x), Operand::Tensor(w)] = operands else {
        return Err(UnknownCost::BadArguments);
    };
    let n = count(&x.shape);
    let dims = elements(n);
    if call.backward {
        // dX and dw: dY and x are read once, both gradients are written.
        let bytes = total([
            call.dense(n, x),
            call.bytes(x),
            call.bytes(w),
            call.dense(n, x),
            call.bytes(w),
        ]);
        return call.one(product([2, n]), bytes, dims);
    }
    let bytes = total([call.bytes(x), call.bytes(w), call.dense(n, x)]);
    call.one(n, bytes, dims)
}

fn clamp(call: &Call) -> Result<OpCost, UnknownCost> {
    let operands = operands(call, &[INPUT, &["min"], &["max"]])?;
    if call.backward {
        return gradients(call, operands.get(..1).unwrap_or_default());
    }
    let bounds = operands.len().saturating_sub(1).max(1);
    map(call, &operands, bounds as u64, Out::Promoted)
}

fn glu(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape) / 2;
    let dims = elements(n);
    let y = call.dense(n, x);
    if call.backward {
        return call.one(product([4, n]), total([y, call.bytes(x), y, y]), dims);
    }
    call.one(product([2, n]), total([call.bytes(x), y]), dims)
}

fn compare(call: &Call) -> Result<OpCost, UnknownCost> {
    let operands = operands(
        call,
        &[&["input", "self", "elements"], &["other", "test_elements"]],
    )?;
    call.forward_only()?;
    map(call, &operands, 1, Out::Bool)
}

fn logic(call: &Call) -> Result<OpCost, UnknownCost> {
    let operands = operands(call, &[INPUT, &["other"]])?;
    call.forward_only()?;
    let out = if call.name.starts_with("logical") {
        Out::Bool
    } else {
        Out::Promoted
    };
    map(call, &operands, 0, out)
}

fn where_(call: &Call) -> Result<OpCost, UnknownCost> {
    let condition = call.tensor(0, &["condition"])?;
    let mask = call.bytes_as(Some(condition), DType::Bool);
    let operands = operands(call, &[&["condition"], INPUT, &["other"]])?;
    let values = operands.get(1..).unwrap_or_default();
    if tensors(values).next().is_none() {
        // `where(condition)` is nonzero; two numbers have the default float type.
        let numbers = values.len() == 2;
        let n = count(&condition.shape);
        return if numbers {
            let bytes = Ok(mask.saturating_add(n.saturating_mul(4)));
            call.one(n, bytes, elements(n))
        } else {
            Err(UnknownCost::DataDependent)
        };
    }
    let n = count(&broadcast_all(&operands)?);
    let e = result_type(call, values, false)?.bytes();
    let full = n.saturating_mul(e);
    let dims = elements(n);
    if call.backward {
        let passes = tensors(values).filter(|t| !t.shape.is_empty()).count() as u64;
        let each = sum([mask, full, full]);
        return call.one(product([passes, n]), Ok(product([passes, each])), dims);
    }
    let read = read(call, values)?;
    call.one(n, Ok(sum([mask, read, full])), dims)
}

fn ternary(call: &Call) -> Result<OpCost, UnknownCost> {
    let operands = operands(call, &[INPUT, &["tensor1", "end"], &["tensor2", "weight"]])?;
    if call.backward {
        return gradients(call, &operands);
    }
    map(call, &operands, 3, Out::Promoted)
}

/// `sigmoid_backward(dY, saved, ...)`.
fn activation_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output", "grad"])?;
    let saved = call.tensor(1, &["self", "output", "result", "self_or_result"])?;
    let n = count(&saved.shape);
    let bytes = total([call.bytes(dy), call.bytes(saved), call.dense(n, saved)]);
    call.gradient(n, bytes, elements(n))
}

fn dropout(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    let dims = elements(n);
    let training = match call.name {
        "fused_dropout" => true,
        _ => call.flag(2, &["training", "train"]) != Given::Value(false),
    };
    if !training {
        let mut cost = call.one(0, Ok(0), dims)?;
        cost.class = FlopsClass::Zero;
        return Ok(cost);
    }
    let e: Bytes = call.dense(n, x);
    // One byte per element. A mask drawn per channel is negligible.
    let per_channel = call.name.starts_with("feature") || call.name.ends_with('d');
    let mask = if per_channel { 0 } else { n };
    let bytes = if call.backward {
        total([e, Ok(mask), e])
    } else {
        total([
            Ok(distinct(x).saturating_mul(call.dtype(x)?.bytes())),
            e,
            Ok(mask),
        ])
    };
    call.one(product([2, n]), bytes, dims)
}

fn dropout_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output", "self"])?;
    let mask = call.tensor(1, &["mask"])?;
    let n = count(&dy.shape);
    let bytes = total([
        call.bytes(dy),
        Ok(call.bytes_as(Some(mask), DType::Bool)),
        call.dense(n, dy),
    ]);
    call.gradient(product([2, n]), bytes, elements(n))
}
