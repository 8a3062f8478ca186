//! Softmax and normalizations. FLOPs are conventions; all of these operators are memory-bound.

use super::call::{Bytes, Call, Entry, Given, count, product, rows, size, sum, to_sizes, total};
use super::name::Origin;
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, OpCost, UnknownCost};

const SOFTMAX: Entry = Entry {
    names: &["softmax", "log_softmax", "softmin"],
    namespaces: &[],
    family: Family::Softmax,
    class: FlopsClass::Convention,
    flops: "5 N: maximum, subtract, exponential, sum, divide",
    bytes: "in + out, out in the type asked for",
    backward: "4 N; dY + Y + dX",
    source: "convention",
    handler: softmax,
};

const NORM: Entry = Entry {
    names: &["layer_norm", "native_layer_norm"],
    namespaces: &[],
    family: Family::Norm,
    class: FlopsClass::Convention,
    flops: "5 N with weight, 4 N without",
    bytes: "x + y + w + b + mean and rstd (fp32, one per row)",
    backward: "9 N; dY + x + mean + rstd + w + dX + dw + db",
    source: "fvcore and DeepSpeed count the forward so, TraceLens the backward",
    handler: layer_norm,
};

pub(super) const ENTRIES: &[Entry] = &[
    SOFTMAX,
    Entry {
        names: &["softmax_backward_data", "log_softmax_backward_data"],
        flops: "4 N",
        bytes: "dY + Y + dX",
        backward: "",
        handler: softmax_backward,
        ..SOFTMAX
    },
    NORM,
    Entry {
        names: &["native_layer_norm_backward"],
        flops: "9 N",
        bytes: "dY + x + mean + rstd + w + b + dX + dw + db",
        backward: "",
        handler: layer_norm_backward,
        ..NORM
    },
    Entry {
        names: &["rms_norm", "fused_rms_norm"],
        flops: "4 N with weight, 3 N without",
        bytes: "x + y + w + rstd (fp32, one per row)",
        backward: "10 N; dY + x + rstd + w + dX + dw",
        handler: rms_norm,
        ..NORM
    },
    Entry {
        names: &["fused_rms_norm_backward"],
        flops: "10 N",
        bytes: "dY + x + rstd + w + dX + dw",
        backward: "",
        handler: rms_norm_backward,
        ..NORM
    },
    Entry {
        names: &[
            "rms_norm",
            "rmsnorm",
            "gemma_rmsnorm",
            "fused_add_rms_norm",
            "fused_add_rmsnorm",
            "gemma_fused_add_rmsnorm",
            "add_rmsnorm",
        ],
        namespaces: &["_C", "vllm", "sgl_kernel", "flashinfer", "aiter"],
        flops: "4 N; with the residual added 5 N",
        bytes: "x + w + y; with the residual x and residual read and written",
        backward: "",
        handler: serving_rms_norm,
        ..NORM
    },
    Entry {
        names: &[
            "batch_norm",
            "native_batch_norm",
            "native_batch_norm_legit",
            "cudnn_batch_norm",
            "miopen_batch_norm",
            "batch_norm_impl_index",
            "batch_norm_with_update",
        ],
        flops: "training 5 N, evaluation 2 N",
        bytes: "x + y + weight, bias, running statistics; training also writes the running and the saved ones",
        backward: "9 N; dY + x + dX + C-vectors",
        handler: batch_norm,
        ..NORM
    },
    Entry {
        names: &[
            "native_batch_norm_backward",
            "cudnn_batch_norm_backward",
            "miopen_batch_norm_backward",
            "batch_norm_backward",
            "batch_norm_impl_index_backward",
        ],
        flops: "9 N",
        bytes: "dY + x + dX + every C-vector passed + dw + db",
        backward: "",
        handler: batch_norm_backward,
        ..NORM
    },
    Entry {
        names: &["group_norm", "native_group_norm", "instance_norm"],
        flops: "5 N with weight, 4 N without",
        bytes: "x + y + w + b + mean and rstd (fp32, one per image and group)",
        backward: "9 N; dY + x + mean + rstd + w + dX + dw + db",
        handler: group_norm,
        ..NORM
    },
    Entry {
        names: &["native_group_norm_backward"],
        flops: "9 N",
        bytes: "dY + x + mean + rstd + w + dX + dw + db",
        backward: "",
        handler: group_norm_backward,
        ..NORM
    },
];

/// The dimensions of a softmax: its columns are the dimension summed over.
fn softmax_dims(call: &Call, t: &Tensor, at: usize) -> Result<Dims, UnknownCost> {
    Ok(rows(count(&t.shape), call.dim_size(at, t)?))
}

fn softmax(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let n = count(&x.shape);
    let dims = softmax_dims(call, x, 1)?;
    let y = n.saturating_mul(softmax_out(call, x)?.bytes());
    if call.backward {
        let bytes = total([Ok(y), Ok(y), call.dense(n, x)]);
        return call.one(product([4, n]), bytes, dims);
    }
    call.one(product([5, n]), total([call.bytes(x), Ok(y)]), dims)
}

/// The result type of `_softmax(x, dim, half_to_float)`, `softmax(x, dim, dtype)` or `F.softmax(x, dim,
/// _, dtype)`.
fn softmax_out(call: &Call, x: &Tensor) -> Result<DType, UnknownCost> {
    if let Some(ArgValue::Bool(true)) = call.arg(2, &["half_to_float"]) {
        return Ok(DType::Fp32);
    }
    let at = if call.origin == Origin::Functional {
        3
    } else {
        2
    };
    match call.dtype_arg(at, &["dtype"]) {
        Given::Value(dtype) if dtype.is_float() => Ok(dtype),
        _ => call.dtype(x),
    }
}

fn softmax_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output", "grad"])?;
    let y = call.tensor(1, &["output"])?;
    let n = count(&y.shape);
    let dx = match call.dtype_arg(3, &["input_dtype"]) {
        Given::Value(dtype) => Ok(n.saturating_mul(dtype.bytes())),
        _ => call.dense(n, y),
    };
    let bytes = total([call.bytes(dy), call.bytes(y), dx]);
    call.gradient(product([4, n]), bytes, softmax_dims(call, y, 2)?)
}

/// The number of elements in one normalized row: from the normalized shape, the weight's shape, or the
/// last dimension.
fn normalized(
    call: &Call,
    at: usize,
    x: &Tensor,
    weight: Option<&Tensor>,
) -> Result<u64, UnknownCost> {
    let cols = match (call.ints(at, &["normalized_shape"]), weight) {
        (Given::Value(list), _) if !list.is_empty() => count(&to_sizes(&list)?),
        (_, Some(w)) => count(&w.shape),
        _ => x.shape.last().copied().unwrap_or(1),
    };
    let n = count(&x.shape);
    let whole = cols == 0 || n == u64::MAX || n.checked_rem(cols) == Some(0);
    if whole {
        Ok(cols)
    } else {
        Err(UnknownCost::BadArguments)
    }
}

/// The memory that a normalization reads and writes besides x and y.
#[derive(Debug, Clone, Copy)]
struct Norm<'a> {
    n: u64,
    /// Bytes of the statistics: rows times mean and rstd.
    statistics: u64,
    cols: u64,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    /// Whether the bias is passed to the backward too, as only layer norm does.
    bias_passed_back: bool,
}

impl Norm<'_> {
    fn dims(&self) -> Dims {
        rows(self.n, self.cols)
    }

    fn statistics_bytes(&self) -> Bytes {
        Ok(self.statistics.saturating_mul(4))
    }

    /// The cost of a call with the arguments of the forward; `plain` are the forward's FLOPs per element
    /// without a weight, `backward` those of the backward.
    fn cost(
        &self,
        call: &Call,
        x: &Tensor,
        plain: u64,
        backward: u64,
    ) -> Result<OpCost, UnknownCost> {
        if call.backward {
            return self.backward(call, x, backward);
        }
        let per_element = plain + u64::from(self.weight.is_some());
        let bytes = total([
            call.bytes(x),
            call.bytes_of(self.weight),
            call.bytes_of(self.bias),
            call.dense(self.n, x),
            self.statistics_bytes(),
        ]);
        call.one(product([per_element, self.n]), bytes, self.dims())
    }

    /// Reads dY, x, the statistics and the weight; writes dX and the gradients of weight and bias.
    fn backward(&self, call: &Call, x: &Tensor, per_element: u64) -> Result<OpCost, UnknownCost> {
        let bytes = total([
            call.dense(self.n, x),
            call.bytes(x),
            call.dense(self.n, x),
            call.bytes_of(self.weight),
            call.bytes_of(self.weight),
            call.bytes_of(self.bias),
            call.bytes_of(self.bias.filter(|_| self.bias_passed_back)),
            self.statistics_bytes(),
        ]);
        call.gradient(product([per_element, self.n]), bytes, self.dims())
    }
}

fn layer_norm(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let weight = call.optional(2, &["weight"]);
    let norm = layer(call, x, 1, weight, call.optional(3, &["bias"]), 2)?;
    norm.cost(call, x, 4, 9)
}

fn layer<'a>(
    call: &Call,
    x: &Tensor,
    shape_at: usize,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    statistics: u64,
) -> Result<Norm<'a>, UnknownCost> {
    let cols = normalized(call, shape_at, x, weight)?;
    let n = count(&x.shape);
    let rows = n.checked_div(cols).unwrap_or(0);
    Ok(Norm {
        n,
        statistics: rows.saturating_mul(statistics),
        cols,
        weight,
        bias,
        bias_passed_back: true,
    })
}

fn layer_norm_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.tensor(1, &["input"])?;
    let weight = call.optional(5, &["weight"]);
    layer(call, x, 2, weight, call.optional(6, &["bias"]), 2)?.backward(call, x, 9)
}

fn rms_norm(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let norm = layer(call, x, 1, call.optional(2, &["weight"]), None, 1)?;
    norm.cost(call, x, 3, 10)
}

fn rms_norm_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.tensor(1, &["input"])?;
    layer(call, x, 2, call.optional(4, &["weight"]), None, 1)?.backward(call, x, 10)
}

/// The cost of vLLM's and sgl-kernel's `rms_norm(out, x, weight, eps)` and `fused_add_rms_norm(x,
/// residual, weight, eps)`, which works in place, and of AITER's `add_rmsnorm(out, x, residual,
/// residual_out, weight, eps)`.
fn serving_rms_norm(call: &Call) -> Result<OpCost, UnknownCost> {
    let adds = call.name.contains("add");
    let apart = call.name == "add_rmsnorm";
    let first = call.tensor(0, &["out", "result", "input"])?;
    let second = call.tensor(1, &["input", "residual"])?;
    let weight = call.tensor(if apart { 4 } else { 2 }, &["weight"])?;
    let n = count(&first.shape);
    let dims = rows(n, count(&weight.shape));
    let moved = match (adds, apart) {
        (true, true) => {
            let residual = call.tensor(2, &["residual", "residual_in"])?;
            let residual_out = call.tensor(3, &["residual_out"])?;
            total([call.bytes(residual), call.bytes(residual_out)])
        }
        (true, false) => total([call.bytes(first), call.bytes(second)]),
        (false, _) => Ok(0),
    };
    let bytes = total([
        call.bytes(first),
        call.bytes(second),
        moved,
        call.bytes(weight),
    ]);
    call.one(product([if adds { 5 } else { 4 }, n]), bytes, dims)
}

fn batch_norm(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    // F.batch_norm(x, running_mean, running_var, weight, bias, training); aten and torch put
    // weight and bias first.
    let (affine, running) = if call.origin == Origin::Functional {
        (3, 1)
    } else {
        (1, 3)
    };
    let weight = call.optional(affine, &["weight"]);
    let bias = call.optional(affine + 1, &["bias"]);
    let running_mean = call.optional(running, &["running_mean"]);
    let running_var = call.optional(running + 1, &["running_var"]);
    let vector = |t| call.bytes_as(t, DType::Fp32);
    let running = sum([vector(running_mean), vector(running_var)]);
    let channels = x.shape.get(1).copied().ok_or(UnknownCost::BadArguments)?;
    let training = match call.name {
        "batch_norm_with_update" => true,
        _ => call.flag(5, &["training"]).or(false).unwrap_or(true),
    };
    let n = count(&x.shape);
    let dims = rows(n, n.checked_div(channels).unwrap_or(0));
    // Saved mean and inverse standard deviation, as large as the gradients of weight and bias.
    let saved = product([2, channels, 4]);
    if call.backward {
        let vectors = sum([running, vector(weight), saved, saved]);
        let bytes = total([
            call.dense(n, x),
            call.bytes(x),
            call.dense(n, x),
            Ok(vectors),
        ]);
        return call.one(product([9, n]), bytes, dims);
    }
    let read = sum([running, vector(weight), vector(bias)]);
    let written = if training { sum([running, saved]) } else { 0 };
    let per_element = if training { 5 } else { 2 };
    let bytes = total([call.bytes(x), call.dense(n, x), Ok(read), Ok(written)]);
    call.one(product([per_element, n]), bytes, dims)
}

fn batch_norm_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    // The two large operands are dY and x, in either order; the others are vectors of C elements.
    let first = call.tensor(0, &["input", "grad_out", "grad_output"])?;
    let (dy, x) = if call.name.starts_with("batch_norm_impl") {
        // (impl_index, input, grad_output, weight, ...)
        (
            call.tensor(2, &["grad_output"])?,
            call.tensor(1, &["input"])?,
        )
    } else {
        (call.tensor(1, &["grad_output", "input"])?, first)
    };
    let channels = x.shape.get(1).copied().ok_or(UnknownCost::BadArguments)?;
    let vectors = call.args.items.iter().filter_map(|a| match &a.value {
        ArgValue::Tensor(t) if t.shape.len() == 1 => Some(t),
        _ => None,
    });
    let vectors = vectors.filter(|t| t.shape.first() == Some(&channels));
    let read = sum(vectors.map(|t| call.bytes_as(Some(t), DType::Fp32)));
    let written = product([2, channels, 4]);
    let n = count(&x.shape);
    let bytes = total([
        call.bytes(x),
        call.bytes(dy),
        call.dense(n, x),
        Ok(read),
        Ok(written),
    ]);
    let dims = rows(n, n.checked_div(channels).unwrap_or(0));
    call.gradient(product([9, n]), bytes, dims)
}

fn group_norm(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let [batch, channels, ..] = *x.shape.as_slice() else {
        return Err(UnknownCost::BadArguments);
    };
    // native: (x, w, b, N, C, HxW, groups, eps); torch: (x, groups, w, b, eps);
    // instance_norm: (x, mean, var, w, b, ...) in F, (x, w, b, mean, var, ...) in torch.
    let (weight_at, groups) = match call.name {
        "native_group_norm" => (1, call.int(6, &["group"])),
        "group_norm" => (2, call.int(1, &["num_groups"])),
        _ if call.origin == Origin::Functional => (3, Given::Default),
        _ => (1, Given::Default),
    };
    let groups = match groups {
        Given::Value(g) => size(g)?,
        // Instance norm is group norm with one group per channel.
        Given::Default => channels,
        Given::Hidden => return Err(UnknownCost::NoShapes),
    };
    let n = count(&x.shape);
    let statistics = batch.saturating_mul(groups);
    let norm = Norm {
        n,
        statistics: statistics.saturating_mul(2),
        cols: n.checked_div(statistics).unwrap_or(0),
        weight: call.optional(weight_at, &["weight"]),
        bias: call.optional(weight_at + 1, &["bias"]),
        bias_passed_back: false,
    };
    norm.cost(call, x, 4, 9)
}

fn group_norm_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.tensor(1, &["input"])?;
    let mean = call.tensor(2, &["mean"])?;
    let weight = call.optional(4, &["weight"]);
    let n = count(&x.shape);
    let rows = count(&mean.shape);
    let norm = Norm {
        n,
        statistics: rows.saturating_mul(2),
        cols: n.checked_div(rows).unwrap_or(0),
        weight,
        // The gradient of the bias has the size of the weight's gradient.
        bias: weight,
        bias_passed_back: false,
    };
    norm.backward(call, x, 9)
}
