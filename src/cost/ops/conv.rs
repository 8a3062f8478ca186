//! Convolutions and their three gradients. FLOPs are those of the direct algorithm, even if the library
//! ran Winograd or FFT.

use super::call::{Call, Entry, Given, WorkPart, count, elements, product, size, to_sizes, total};
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::{Family, Role};
use crate::cost::model::{ConvSize, Dims, FlopsClass, OpCost, UnknownCost};

const CONVOLUTION: Entry = Entry {
    names: &[
        "conv1d",
        "conv2d",
        "conv3d",
        "convolution",
        "convolution_overrideable",
        "convolution_mode",
        "cudnn_convolution",
        "cudnn_convolution_relu",
        "miopen_convolution",
        "mkldnn_convolution",
        "thnn_conv2d",
        "thnn_conv2d_forward",
        "slow_conv2d_forward",
        "slow_conv3d_forward",
        "slow_conv_dilated2d",
        "conv_depthwise2d",
        "thnn_conv_depthwise2d",
        "thnn_conv_depthwise2d_forward",
        "conv_depthwise3d",
        "miopen_depthwise_convolution",
    ],
    namespaces: &[],
    family: Family::Conv,
    class: FlopsClass::Exact,
    flops: "2 N out_spatial K (C/groups) filter",
    bytes: "x + w + bias + y",
    backward: "dgrad (dY + w + dX) and wgrad (dY + x + dW), FLOPs of the forward each; \
               bias: one add per element of dY, reads dY, writes the bias",
    source: "torch.utils.flop_counter; groups from the closed form",
    handler: forward,
};

pub(super) const ENTRIES: &[Entry] = &[
    CONVOLUTION,
    Entry {
        names: &[
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "cudnn_convolution_transpose",
            "miopen_convolution_transpose",
            "slow_conv_transpose2d",
            "slow_conv_transpose3d",
        ],
        flops: "2 N in_spatial numel(w)",
        source: "torch.utils.flop_counter",
        ..CONVOLUTION
    },
    Entry {
        names: &[
            "convolution_backward",
            "convolution_backward_overrideable",
            "cudnn_convolution_backward",
            "miopen_convolution_backward",
            "cudnn_convolution_backward_input",
            "cudnn_convolution_backward_weight",
            "miopen_convolution_backward_input",
            "miopen_convolution_backward_weight",
        ],
        flops: "the forward's for each of the gradients the output mask asks for",
        bytes: "dgrad dY + w + dX; wgrad dY + x + dW; bias dY + bias",
        backward: "",
        source: "closed form (torch.utils.flop_counter is groups times too high for wgrad)",
        handler: backward,
        ..CONVOLUTION
    },
];

/// The sizes that a convolution's cost depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conv {
    /// `transposed` swaps the channels in the weight only.
    pub(super) size: ConvSize,
    /// Elements of the weight.
    weight: u64,
}

impl Conv {
    pub(super) fn flops(&self) -> u64 {
        let spatial = if self.size.transposed {
            self.size.in_spatial
        } else {
            self.size.out_spatial
        };
        product([2, self.size.n, spatial, self.weight])
    }

    fn out(&self) -> u64 {
        product([self.size.n, self.size.k, self.size.out_spatial])
    }

    pub(super) fn dims(&self) -> Dims {
        Dims::Conv(self.size)
    }
}

/// The positions of an operator's arguments.
#[derive(Debug, Clone, Copy, Default)]
struct Order {
    bias: Option<usize>,
    stride: usize,
    padding: usize,
    dilation: usize,
    groups: Option<usize>,
    output_padding: Option<usize>,
    transposed: Transposed,
}

#[derive(Debug, Clone, Copy, Default)]
enum Transposed {
    #[default]
    Never,
    Always,
    /// A flag at this position.
    At(usize),
}

const FUNCTIONAL: Order = Order {
    bias: Some(2),
    stride: 3,
    padding: 4,
    dilation: 5,
    groups: Some(6),
    output_padding: None,
    transposed: Transposed::Never,
};
const FUNCTIONAL_TRANSPOSED: Order = Order {
    output_padding: Some(5),
    groups: Some(6),
    dilation: 7,
    transposed: Transposed::Always,
    ..FUNCTIONAL
};
const GENERAL: Order = Order {
    transposed: Transposed::At(6),
    output_padding: Some(7),
    groups: Some(8),
    ..FUNCTIONAL
};
/// cuDNN's wrapper takes the padding before the stride and, since 2020, no bias.
const CUDNN: Order = Order {
    bias: None,
    padding: 2,
    stride: 3,
    dilation: 4,
    groups: Some(5),
    output_padding: None,
    transposed: Transposed::Never,
};
const CUDNN_BIASED: Order = Order {
    bias: Some(2),
    padding: 3,
    stride: 4,
    dilation: 5,
    groups: Some(6),
    ..CUDNN
};
const CUDNN_TRANSPOSED: Order = Order {
    bias: None,
    padding: 2,
    output_padding: Some(3),
    stride: 4,
    dilation: 5,
    groups: Some(6),
    transposed: Transposed::Always,
};
const CUDNN_TRANSPOSED_BIASED: Order = Order {
    bias: Some(2),
    padding: 3,
    output_padding: Some(4),
    stride: 5,
    dilation: 6,
    groups: Some(7),
    transposed: Transposed::Always,
};
/// The native kernels take the kernel size first: `(x, w, kernel_size, bias, stride, padding)`.
const NATIVE: Order = Order {
    bias: Some(3),
    stride: 4,
    padding: 5,
    dilation: 6,
    groups: None,
    output_padding: None,
    transposed: Transposed::Never,
};
const NATIVE_TRANSPOSED: Order = Order {
    output_padding: Some(6),
    dilation: 7,
    transposed: Transposed::Always,
    ..NATIVE
};

/// The argument order of a forward. An autograd node may carry the arguments of any spelling that the
/// program used, so if the name does not decide, the shape of the list does.
fn order(call: &Call) -> Order {
    let third_is_list = matches!(call.arg(2, &[]), Some(ArgValue::List(_)));
    let flag_at_six = matches!(call.arg(6, &[]), Some(ArgValue::Bool(_)));
    let list_at_seven = matches!(call.arg(7, &[]), Some(ArgValue::List(_) | ArgValue::Int(_)));
    let items = call.args.items.len();
    match call.name {
        "cudnn_convolution_transpose" | "miopen_convolution_transpose" => {
            if third_is_list {
                CUDNN_TRANSPOSED
            } else {
                CUDNN_TRANSPOSED_BIASED
            }
        }
        "cudnn_convolution" if third_is_list => CUDNN,
        "miopen_convolution" | "mkldnn_convolution" | "miopen_depthwise_convolution" => {
            CUDNN_BIASED
        }
        // Before 2020 with a bias; or the arguments of the forward on a backward node.
        "cudnn_convolution" if !call.backward && items > 7 => CUDNN_BIASED,
        "slow_conv_transpose2d" | "slow_conv_transpose3d" => NATIVE_TRANSPOSED,
        n if n.starts_with("conv_transpose") => FUNCTIONAL_TRANSPOSED,
        n if n.starts_with("slow_conv") || n.starts_with("thnn_") => NATIVE,
        n if n.starts_with("conv_depthwise") => NATIVE,
        "convolution" | "convolution_overrideable" if flag_at_six => GENERAL,
        "convolution" if call.backward && items == 8 && list_at_seven => FUNCTIONAL_TRANSPOSED,
        "convolution" | "convolution_overrideable" if items > 7 => GENERAL,
        _ => FUNCTIONAL,
    }
}

fn forward(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let w = call.tensor(1, &["weight"])?;
    let order = order(call);
    let bias = order.bias.and_then(|at| call.optional(at, &["bias"]));
    let (conv, y) = sizes(call, &order, x, w)?;
    let bytes = (call.bytes(x), call.bytes(w), call.dense(y, x));
    if !call.backward {
        let all = total([bytes.0, bytes.1, bytes.2, call.bytes_of(bias)]);
        return call.one(conv.flops(), all, conv.dims());
    }
    let mask = Mask {
        input: true,
        weight: true,
        bias: bias.is_some(),
    };
    gradients(call, conv, x, w, call.dense(y, x), mask)
}

/// The gradients that are requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mask {
    pub(super) input: bool,
    pub(super) weight: bool,
    pub(super) bias: bool,
}

pub(super) fn gradients(
    call: &Call,
    conv: Conv,
    x: &Tensor,
    w: &Tensor,
    dy: Result<u64, UnknownCost>,
    mask: Mask,
) -> Result<OpCost, UnknownCost> {
    let dims = conv.dims();
    let mut parts = Vec::with_capacity(3);
    if mask.input {
        let bytes = total([dy, call.bytes(w), call.dense(count(&x.shape), x)]);
        parts.push(WorkPart::new(Role::Dgrad, conv.flops(), bytes, dims));
    }
    if mask.weight {
        let bytes = total([dy, call.bytes(x), call.dense(count(&w.shape), w)]);
        parts.push(WorkPart::new(Role::Wgrad, conv.flops(), bytes, dims));
    }
    if mask.bias {
        let bytes = total([dy, call.dense(conv.size.k, w)]);
        let dims = elements(conv.out());
        parts.push(WorkPart::new(Role::BiasGrad, conv.out(), bytes, dims));
    }
    call.cost_of(parts)
}

/// The sizes and the number of output elements.
fn sizes(call: &Call, order: &Order, x: &Tensor, w: &Tensor) -> Result<(Conv, u64), UnknownCost> {
    let transposed = match order.transposed {
        Transposed::Never => false,
        Transposed::Always => true,
        Transposed::At(at) => call.flag(at, &["transposed"]).or(false)?,
    };
    let groups = match order.groups {
        Some(at) => size(call.int(at, &["groups"]).or(1)?)?,
        None => native_groups(call, x),
    };
    let filter = w.shape.get(2..).ok_or(UnknownCost::BadArguments)?;
    let spatial = spatial(x, filter.len())?;
    let stride = per_dim(call.ints(order.stride, &["stride"]), 1, filter.len())?;
    let dilation = per_dim(call.ints(order.dilation, &["dilation"]), 1, filter.len())?;
    let output_padding = match order.output_padding {
        Some(at) => per_dim(call.ints(at, &["output_padding"]), 0, filter.len())?,
        None => vec![0; filter.len()],
    };
    let padding = padding(call, order.padding, filter)?;
    let mut out = Vec::with_capacity(filter.len());
    for (i, (&len, &taps)) in spatial.iter().zip(filter).enumerate() {
        let at = |list: &[i64]| list.get(i).copied().unwrap_or(0);
        out.push(out_len(Window {
            len,
            taps,
            stride: at(&stride),
            padding: at(&padding),
            dilation: at(&dilation),
            output_padding: at(&output_padding),
            transposed,
        })?);
    }
    let stride = largest(&stride);
    let conv = assemble(x, w, groups, transposed, count(&out), stride)?;
    Ok((conv, conv.out()))
}

/// The largest stride of all dimensions, the one that the advice refers to; 0 if it is not recorded.
fn largest(stride: &[i64]) -> u64 {
    stride.iter().map(|s| s.unsigned_abs()).max().unwrap_or(0)
}

/// The groups of a native depthwise kernel, which has one group per input channel.
fn native_groups(call: &Call, x: &Tensor) -> u64 {
    if call.name.contains("depthwise") {
        x.shape.get(1).copied().unwrap_or(1)
    } else {
        1
    }
}

pub(super) fn assemble(
    x: &Tensor,
    w: &Tensor,
    groups: u64,
    transposed: bool,
    out_spatial: u64,
    stride: u64,
) -> Result<Conv, UnknownCost> {
    let [first, second, filter @ ..] = w.shape.as_slice() else {
        return Err(UnknownCost::BadArguments);
    };
    if filter.is_empty() || groups == 0 {
        return Err(UnknownCost::BadArguments);
    }
    let spatial = spatial(x, filter.len())?;
    // An input without batch dimension is one image.
    let n = if x.shape.len() == filter.len() + 2 {
        x.shape.first().copied().unwrap_or(1)
    } else {
        1
    };
    let channels = x.shape.get(x.shape.len().saturating_sub(filter.len() + 1));
    let c = channels.copied().ok_or(UnknownCost::BadArguments)?;
    let fits = if transposed {
        *first == c
    } else {
        second.saturating_mul(groups) == c
    };
    if !fits {
        return Err(UnknownCost::BadArguments);
    }
    let k = if transposed {
        second.saturating_mul(groups)
    } else {
        *first
    };
    let size = ConvSize {
        n,
        c,
        k,
        groups,
        in_spatial: count(spatial),
        out_spatial,
        filter: count(filter),
        stride,
        transposed,
    };
    let weight = count(&w.shape);
    Ok(Conv { size, weight })
}

pub(super) fn spatial(x: &Tensor, dims: usize) -> Result<&[u64], UnknownCost> {
    let rank = x.shape.len();
    if dims == 0 || !(rank == dims + 1 || rank == dims + 2) {
        return Err(UnknownCost::BadArguments);
    }
    x.shape.get(rank - dims..).ok_or(UnknownCost::BadArguments)
}

/// One number for all dimensions, or one per dimension.
fn per_dim(given: Given<Vec<i64>>, default: i64, dims: usize) -> Result<Vec<i64>, UnknownCost> {
    let list = given.or(vec![default])?;
    match list.as_slice() {
        [] => Ok(vec![default; dims]),
        [one] => Ok(vec![*one; dims]),
        many if many.len() == dims => Ok(list),
        _ => Err(UnknownCost::BadArguments),
    }
}

/// Padding as numbers or as a word: "valid" is none, "same" keeps the size.
fn padding(call: &Call, at: usize, filter: &[u64]) -> Result<Vec<i64>, UnknownCost> {
    match call.text(at, &["padding"]) {
        Some("valid") => Ok(vec![0; filter.len()]),
        Some("same") => Ok(vec![SAME; filter.len()]),
        Some(_) => Err(UnknownCost::BadArguments),
        None => per_dim(call.ints(at, &["padding"]), 0, filter.len()),
    }
}

/// Represents padding="same": the output is as long as the input (the stride must be 1).
const SAME: i64 = i64::MIN;

#[derive(Debug, Clone, Copy)]
struct Window {
    len: u64,
    taps: u64,
    stride: i64,
    padding: i64,
    dilation: i64,
    output_padding: i64,
    transposed: bool,
}

/// The output length of one dimension (torch.nn.Conv2d and ConvTranspose2d documentation).
fn out_len(w: Window) -> Result<u64, UnknownCost> {
    if w.padding == SAME {
        return Ok(w.len);
    }
    if w.stride <= 0 || w.dilation <= 0 || w.padding < 0 || w.output_padding < 0 || w.taps == 0 {
        return Err(UnknownCost::BadArguments);
    }
    let [len, taps] = [w.len, w.taps].map(i128::from);
    let [stride, padding] = [w.stride, w.padding].map(i128::from);
    let [dilation, extra] = [w.dilation, w.output_padding].map(i128::from);
    let reach = dilation.saturating_mul(taps - 1);
    let out = if w.transposed {
        (len - 1)
            .saturating_mul(stride)
            .saturating_sub(2 * padding)
            .saturating_add(reach)
            .saturating_add(extra + 1)
    } else {
        let free = (len + 2 * padding).saturating_sub(reach).saturating_sub(1);
        if free < 0 {
            return Err(UnknownCost::BadArguments);
        }
        free / stride + 1
    };
    u64::try_from(out).map_err(|_| UnknownCost::BadArguments)
}

/// The cost of a backward operator that takes its own arguments. The shape of dY is given, so neither
/// strides nor padding are needed.
fn backward(call: &Call) -> Result<OpCost, UnknownCost> {
    if call.name.ends_with("_input") || call.name.ends_with("_weight") {
        return one_gradient(call);
    }
    let vendor =
        call.name == "cudnn_convolution_backward" || call.name == "miopen_convolution_backward";
    let (dy, x) = if vendor { (1, 0) } else { (0, 1) };
    let dy = call.tensor(dy, &["grad_output"])?;
    let x = call.tensor(x, &["input", "self"])?;
    let w = call.tensor(2, &["weight"])?;
    let overrideable = call.name.ends_with("overrideable");
    let (transposed, groups) = match (vendor, overrideable) {
        (true, _) => (Given::Default, call.int(6, &["groups"])),
        (_, true) => (call.flag(6, &["transposed"]), call.int(8, &["groups"])),
        _ => (call.flag(7, &["transposed"]), call.int(9, &["groups"])),
    };
    let stride_at = match (vendor, overrideable) {
        (true, _) | (false, false) => 4,
        (_, true) => 3,
    };
    let transposed = transposed
        .value()
        .unwrap_or_else(|| looks_transposed(dy, x, w));
    let groups = match groups {
        Given::Value(g) => size(g)?,
        _ => deduced_groups(x, w, transposed)?,
    };
    let stride = call
        .ints(stride_at, &["stride"])
        .value()
        .unwrap_or_default();
    let stride = largest(&stride);
    let dims = w.shape.len().saturating_sub(2);
    let conv = assemble(x, w, groups, transposed, count(spatial(dy, dims)?), stride)?;
    let mask = mask(call);
    let mut cost = gradients(call, conv, x, w, call.bytes(dy), mask.unwrap_or(BOTH))?;
    if mask.is_none() {
        cost.note = Some(BOTH_ASSUMED);
    }
    Ok(cost)
}

const BOTH: Mask = Mask {
    input: true,
    weight: true,
    bias: false,
};
const BOTH_ASSUMED: &str =
    "which gradients were asked for is not recorded: input and weight assumed";

/// The gradient mask, which is the last list of flags.
fn mask(call: &Call) -> Option<Mask> {
    let flags = call.args.items.iter().rev().find_map(|a| match &a.value {
        ArgValue::List(items) => items
            .iter()
            .map(|v| match v {
                ArgValue::Bool(b) => Some(*b),
                _ => None,
            })
            .collect::<Option<Vec<bool>>>()
            .filter(|flags| !flags.is_empty()),
        _ => None,
    })?;
    let at = |i: usize| flags.get(i).copied().unwrap_or(false);
    Some(Mask {
        input: at(0),
        weight: at(1),
        bias: at(2),
    })
}

/// Whether a convolution is transposed, if the flag is not recorded: the output of a transposed
/// convolution does not have `w[0]` channels.
fn looks_transposed(dy: &Tensor, x: &Tensor, w: &Tensor) -> bool {
    let channels = |t: &Tensor| t.shape.get(1).copied();
    let first = w.shape.first().copied();
    channels(dy) != first && channels(x) == first
}

pub(super) fn deduced_groups(x: &Tensor, w: &Tensor, transposed: bool) -> Result<u64, UnknownCost> {
    if transposed {
        return Ok(1);
    }
    match (x.shape.get(1), w.shape.get(1)) {
        (Some(c), Some(per_group)) => c.checked_div(*per_group).ok_or(UnknownCost::BadArguments),
        _ => Err(UnknownCost::BadArguments),
    }
}

/// The cost of `cudnn_convolution_backward_input(input_size, dY, w, ...)` or `..._weight(weight_size,
/// dY, x, ...)`, where the missing operand is given by its size.
fn one_gradient(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(1, &["grad_output"])?;
    let given = call.tensor(2, &["weight", "input", "self"])?;
    let sizes = call
        .ints(0, &["self_size", "input_size", "weight_size"])
        .value()
        .ok_or(UnknownCost::NoScalars)?;
    let missing = Tensor {
        shape: to_sizes(&sizes)?,
        dtype: dy.dtype,
        strides: None,
    };
    let input = call.name.ends_with("_input");
    let (x, w) = if input {
        (&missing, given)
    } else {
        (given, &missing)
    };
    let stride = call.ints(4, &["stride"]).value().unwrap_or_default();
    let stride = largest(&stride);
    let groups = deduced_groups(x, w, false)?;
    let dims = w.shape.len().saturating_sub(2);
    let conv = assemble(x, w, groups, false, count(spatial(dy, dims)?), stride)?;
    let mask = Mask {
        input,
        weight: !input,
        bias: false,
    };
    gradients(call, conv, x, w, call.bytes(dy), mask)
}
