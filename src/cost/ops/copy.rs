//! Data movement without arithmetic: copies, casts, concatenation, filling.

use super::call::{
    Call, Entry, axis, count, elements, product, promote, size, sum, to_sizes, total,
};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{FlopsClass, OpCost, UnknownCost};

const COPY: Entry = Entry {
    names: &["copy", "foreach_copy"],
    namespaces: &[],
    family: Family::Copy,
    class: FlopsClass::Zero,
    flops: "0",
    bytes: "source + destination, each at its own type; an expanded source counts once",
    backward: "a copy back",
    source: "NVIDIA, GPU Performance Background: compulsory traffic",
    handler: copy,
};

pub(super) const ENTRIES: &[Entry] = &[
    COPY,
    Entry {
        names: &[
            "contiguous",
            "clone",
            "alias_copy",
            "detach_copy",
            "lift_fresh_copy",
            "cuda",
            "cpu",
        ],
        bytes: "in + out",
        handler: duplicate,
        ..COPY
    },
    Entry {
        names: &[
            "to",
            "to_copy",
            "type_as",
            "type",
            "half",
            "float",
            "double",
            "bfloat16",
            "int",
            "long",
            "short",
            "char",
            "byte",
            "bool",
            "autocast_to_reduced_precision",
            "autocast_to_full_precision",
        ],
        family: Family::Cast,
        bytes: "in + out at the new type",
        handler: cast,
        ..COPY
    },
    Entry {
        names: &[
            "cat",
            "concat",
            "concatenate",
            "stack",
            "hstack",
            "vstack",
            "dstack",
            "column_stack",
        ],
        family: Family::Cat,
        bytes: "all inputs at their own types + out at the promoted one",
        backward: "one copy per input",
        handler: cat,
        ..COPY
    },
    Entry {
        names: &[
            "split_with_sizes_copy",
            "unbind_copy",
            "split_copy",
            "split_backward",
            "split_with_sizes_backward",
            "unbind_backward",
            "unsafe_split_backward",
            "chunk_backward",
        ],
        family: Family::Cat,
        bytes: "in + out",
        handler: duplicate,
        ..COPY
    },
    Entry {
        names: &["slice_backward", "select_backward", "narrow_backward"],
        bytes: "dY + the whole gradient, zero-filled, + dY's part of it",
        backward: "",
        handler: view_backward,
        ..COPY
    },
    Entry {
        names: &["fill", "zero", "fill_diagonal", "foreach_zero"],
        family: Family::Fill,
        bytes: "out written",
        backward: "",
        handler: fill,
        ..COPY
    },
    Entry {
        names: &[
            "zeros_like",
            "ones_like",
            "full_like",
            "new_zeros",
            "new_ones",
            "new_full",
            "zeros",
            "ones",
            "full",
            "eye",
        ],
        family: Family::Fill,
        bytes: "out written; without a type PyTorch's default, float32",
        backward: "",
        handler: create,
        ..COPY
    },
    Entry {
        names: &["arange", "linspace", "range", "logspace"],
        family: Family::Fill,
        bytes: "out written",
        backward: "",
        handler: arange,
        ..COPY
    },
    Entry {
        names: &[
            "normal",
            "uniform",
            "random",
            "bernoulli",
            "exponential",
            "geometric",
            "log_normal",
            "cauchy",
        ],
        family: Family::Random,
        flops: "0: random numbers are not counted",
        bytes: "out written (+ probabilities read)",
        backward: "",
        handler: fill,
        ..COPY
    },
    Entry {
        names: &[
            "rand_like",
            "randn_like",
            "randint_like",
            "rand",
            "randn",
            "randint",
        ],
        family: Family::Random,
        flops: "0: random numbers are not counted",
        bytes: "out written",
        backward: "",
        handler: create,
        ..COPY
    },
];

fn copy(call: &Call) -> Result<OpCost, UnknownCost> {
    if call.name == "foreach_copy" {
        return super::optim::foreach_copy(call);
    }
    let to = call.input()?;
    let from = call.tensor(1, &["src", "other"])?;
    let n = count(&to.shape);
    let mut cost = call.one(0, total([call.dense(n, to), call.bytes(from)]), elements(n))?;
    if let (Some(a), Some(b)) = (to.dtype, from.dtype)
        && a != b
    {
        cost.family = Family::Cast;
    }
    Ok(cost)
}

/// The cost of reading the input and writing as many elements.
pub(super) fn duplicate(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    call.one(0, total([call.bytes(x), call.dense(n, x)]), elements(n))
}

/// The element type in the name of a conversion.
fn named(name: &str) -> Option<DType> {
    Some(match name {
        "half" => DType::Fp16,
        "float" => DType::Fp32,
        "double" => DType::Fp64,
        "bfloat16" => DType::Bf16,
        "int" => DType::Int32,
        "long" => DType::Int64,
        "short" => DType::Int16,
        "char" => DType::Int8,
        "byte" => DType::Uint8,
        "bool" => DType::Bool,
        _ => return None,
    })
}

/// The target type of a conversion: from the name, a dtype argument, or another tensor. PyProf's
/// markers drop the argument of `to`; then only the kernel's name can tell it.
fn target(call: &Call) -> Option<DType> {
    let argument = || match call.arg(1, &["dtype", "other"]) {
        Some(ArgValue::Tensor(t)) if !t.shape.is_empty() || t.dtype.is_some() => t.dtype,
        _ => call.dtype_arg(1, &["dtype"]).value(),
    };
    let word = || {
        call.args.items.iter().find_map(|a| match &a.value {
            ArgValue::Str(s) => DType::parse(s),
            _ => None,
        })
    };
    named(call.name)
        .or_else(argument)
        .or_else(word)
        .or(call.default_dtype)
}

fn cast(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    let to = target(call).ok_or(UnknownCost::NoDType)?;
    // The type in the kernel's name may be the source's or the target's, so it must not be used for
    // both.
    let from = x.dtype.ok_or(UnknownCost::NoDType)?;
    let bytes = total([call.bytes(x), Ok(n.saturating_mul(to.bytes()))]);
    let mut cost = call.one(0, bytes, elements(n))?;
    if from == to {
        cost.family = Family::Copy;
    }
    Ok(cost)
}

/// The tensors of a list, or of the arguments themselves, because PyProf's markers unpack the list.
fn pieces<'a>(call: &Call<'a>) -> Result<Vec<&'a Tensor>, UnknownCost> {
    if let Some(ArgValue::List(_)) = call.arg(0, &["tensors"]) {
        return call.tensors(0, &["tensors"]);
    }
    let found: Vec<&Tensor> = call
        .args
        .tensors()
        .filter(|t| !t.shape.is_empty())
        .collect();
    if found.is_empty() {
        return Err(UnknownCost::NoShapes);
    }
    Ok(found)
}

fn cat(call: &Call) -> Result<OpCost, UnknownCost> {
    let pieces = pieces(call)?;
    let n = sum(pieces.iter().map(|t| count(&t.shape)));
    let mut types = Vec::with_capacity(pieces.len());
    let mut read = 0_u64;
    for t in &pieces {
        types.push((call.dtype(t)?, true));
        read = read.saturating_add(call.bytes(t)?);
    }
    let out = promote(types).ok_or(UnknownCost::BadArguments)?;
    let bytes = read.saturating_add(n.saturating_mul(out.bytes()));
    call.one(0, Ok(bytes), elements(n))
}

/// The cost of `select_backward(dY, input_sizes, dim, index)`, or of a view's autograd node with the
/// arguments of the view.
fn view_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let first = call.tensor(0, &["grad_output", "input", "self"])?;
    if call.backward {
        // The size of the slice is ignored: at least the whole gradient is written.
        let n = count(&first.shape);
        return call.one(0, call.dense(n, first), elements(n));
    }
    let sizes = to_sizes(&call.ints(1, &["input_sizes"]).needed()?)?;
    let n = count(&sizes);
    let part = call.bytes(first);
    call.gradient(0, total([part, call.dense(n, first), part]), elements(n))
}

fn fill(call: &Call) -> Result<OpCost, UnknownCost> {
    if let Some(ArgValue::List(_)) = call.arg(0, &["self"]) {
        let list = call.tensors(0, &["self"])?;
        let bytes = total(list.iter().map(|t| call.bytes(t)));
        let n = sum(list.iter().map(|t| count(&t.shape)));
        return call.one(0, bytes, elements(n));
    }
    let x = call.tensor(0, &["input", "self", "mean"])?;
    let n = count(&x.shape);
    // Out of place, the operand is read: probabilities of `bernoulli`, means of `normal`.
    let read = if call.in_place || call.family_fills() {
        Ok(0)
    } else {
        call.bytes(x)
    };
    call.one(0, total([read, call.dense(n, x)]), elements(n))
}

impl Call<'_> {
    fn family_fills(&self) -> bool {
        self.entry.family == Family::Fill
    }
}

/// The cost of new tensors, with the shape of another tensor or a list of sizes.
fn create(call: &Call) -> Result<OpCost, UnknownCost> {
    let like = call.name.ends_with("_like");
    let stated = call.dtype_arg(usize::MAX, &["dtype"]).value();
    if let Some(ArgValue::Tensor(t)) = call.arg(0, &["input", "self"]) {
        let n = if like {
            count(&t.shape)
        } else {
            count(&shape(call, 1)?)
        };
        let bytes = match stated {
            Some(dtype) => Ok(n.saturating_mul(dtype.bytes())),
            None => call.dense(n, t),
        };
        return call.one(0, bytes, elements(n));
    }
    let n = match call.arg(0, &["size", "input"]) {
        // `ones_like` of a Python number: PyProf records 0-dim tensors as numbers.
        Some(ArgValue::Float(_) | ArgValue::Bool(_)) => 1,
        Some(ArgValue::Int(_)) if like => 1,
        _ if call.name == "randint" => return Err(UnknownCost::NoShapes),
        _ => count(&shape(call, 0)?),
    };
    let filled_with_int =
        call.name == "full" && matches!(call.arg(1, &["fill_value"]), Some(ArgValue::Int(_)));
    let default = if filled_with_int {
        DType::Int64
    } else {
        DType::Fp32
    };
    let dtype = stated.or(call.default_dtype).unwrap_or(default);
    call.one(0, Ok(n.saturating_mul(dtype.bytes())), elements(n))
}

/// Sizes as one list, or as consecutive numbers.
fn shape(call: &Call, at: usize) -> Result<Vec<u64>, UnknownCost> {
    if call.args.items.is_empty() {
        return Err(UnknownCost::NoShapes);
    }
    if let Some(ArgValue::List(_)) = call.arg(at, &["size"]) {
        return to_sizes(&call.ints(at, &["size"]).needed()?);
    }
    let positional = call.args.items.iter().skip(at);
    let numbers = positional.map_while(|a| match (&a.name, &a.value) {
        (None, ArgValue::Int(v)) => Some(*v),
        (Some(name), ArgValue::Int(v)) if name.is_empty() => Some(*v),
        _ => None,
    });
    let sizes = numbers.map(size).collect::<Result<Vec<u64>, _>>()?;
    if sizes.is_empty() {
        return Err(UnknownCost::NoShapes);
    }
    Ok(sizes)
}

fn arange(call: &Call) -> Result<OpCost, UnknownCost> {
    if let Some(out) = call.args.tensors().find(|t| !t.shape.is_empty()) {
        let n = count(&out.shape);
        return call.one(0, call.dense(n, out), elements(n));
    }
    if call.name != "arange" {
        return Err(UnknownCost::NoShapes);
    }
    let bound = |i| call.number(i, &[]).value();
    let (start, end, step) = match (bound(0), bound(1), bound(2)) {
        (Some(end), None, _) => (0.0, end, 1.0),
        (Some(start), Some(end), step) => (start, end, step.unwrap_or(1.0)),
        _ => return Err(UnknownCost::NoShapes),
    };
    let steps = ((end - start) / step).ceil();
    if !(0.0..9e15).contains(&steps) {
        return Err(UnknownCost::BadArguments);
    }
    let floats = call
        .args
        .items
        .iter()
        .any(|a| matches!(a.value, ArgValue::Float(_)));
    let default = if floats { DType::Fp32 } else { DType::Int64 };
    let dtype = call
        .dtype_arg(usize::MAX, &["dtype"])
        .value()
        .unwrap_or(default);
    let n = steps as u64;
    call.one(0, Ok(product([n, dtype.bytes()])), elements(n))
}

/// The sizes after indexing away a dimension; also used by the indexing operators.
pub(super) fn without(t: &Tensor, dim: i64) -> Result<Vec<u64>, UnknownCost> {
    let gone = axis(dim, t.shape.len())?;
    let kept = t.shape.iter().enumerate().filter(|(i, _)| *i != gone);
    Ok(kept.map(|(_, &d)| d).collect())
}
