//! Pooling and interpolation.

use super::call::{Call, Entry, Given, count, elements, product, size, to_sizes, total};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{FlopsClass, OpCost, UnknownCost};

const MAX: Entry = Entry {
    names: &[
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "max_pool1d_with_indices",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
    ],
    namespaces: &[],
    family: Family::Pool,
    class: FlopsClass::Convention,
    flops: "outputs times window elements",
    bytes: "in + out + int64 indices",
    backward: "one add per output; dY + indices + dX",
    source: "NVIDIA, GPU Performance Background: max pooling 3x3 is 2.25 FLOP/B",
    handler: max_pool,
};

const UPSAMPLE: Entry = Entry {
    names: &[
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_nearest_exact1d",
        "upsample_nearest_exact2d",
        "upsample_nearest_exact3d",
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_bicubic2d",
        "upsample_trilinear3d",
        "upsample_bilinear2d_aa",
        "upsample_bicubic2d_aa",
        "interpolate",
        "upsample",
    ],
    namespaces: &[],
    family: Family::Interpolate,
    class: FlopsClass::Convention,
    flops: "per output: nearest 0, linear 3, bilinear 7, trilinear 15, bicubic 35",
    bytes: "in + out",
    backward: "nearest 1, others 8 per output; dY + dX",
    source: "convention: multiplies and adds of the weighted mean",
    handler: upsample,
};

pub(super) const ENTRIES: &[Entry] = &[
    MAX,
    Entry {
        names: &[
            "max_pool2d_with_indices_backward",
            "max_pool3d_with_indices_backward",
        ],
        flops: "one add per output",
        bytes: "dY + indices + dX; the forward's input is passed but not read",
        backward: "",
        handler: max_pool_backward,
        ..MAX
    },
    Entry {
        names: &["avg_pool1d", "avg_pool2d", "avg_pool3d"],
        bytes: "in + out",
        backward: "N of the input; dY + dX",
        handler: avg_pool,
        ..MAX
    },
    Entry {
        names: &[
            "adaptive_avg_pool1d",
            "adaptive_avg_pool2d",
            "adaptive_avg_pool3d",
            "adaptive_max_pool1d",
            "adaptive_max_pool2d",
            "adaptive_max_pool3d",
        ],
        flops: "N of the input",
        bytes: "in + out (+ int64 indices of the maximum)",
        backward: "N of the input; dY + dX",
        handler: adaptive_pool,
        ..MAX
    },
    Entry {
        names: &[
            "avg_pool2d_backward",
            "avg_pool3d_backward",
            "adaptive_avg_pool2d_backward",
            "adaptive_avg_pool3d_backward",
            "adaptive_max_pool2d_backward",
        ],
        flops: "N of the input",
        bytes: "dY + dX (+ indices)",
        backward: "",
        handler: avg_pool_backward,
        ..MAX
    },
    UPSAMPLE,
    Entry {
        names: &[
            "upsample_nearest1d_backward",
            "upsample_nearest2d_backward",
            "upsample_nearest3d_backward",
            "upsample_linear1d_backward",
            "upsample_bilinear2d_backward",
            "upsample_bicubic2d_backward",
            "upsample_trilinear3d_backward",
            "upsample_nearest_exact2d_backward",
        ],
        flops: "nearest 1, others 8 per output",
        bytes: "dY + dX",
        backward: "",
        handler: upsample_backward,
        ..UPSAMPLE
    },
    Entry {
        names: &[
            "grid_sampler",
            "grid_sampler_2d",
            "grid_sampler_3d",
            "grid_sample",
            "cudnn_grid_sampler",
        ],
        flops: "7 per output",
        bytes: "in + grid + out",
        backward: "8 per output; dY + in + grid + dX + dgrid",
        handler: grid_sample,
        ..UPSAMPLE
    },
];

/// The number of spatial dimensions, from the digit in the name.
fn spatial_dims(name: &str) -> usize {
    name.chars()
        .find_map(|c| c.to_digit(10))
        .map_or(2, |d| d as usize)
}

/// The number of elements in the leading dimensions, and the spatial sizes.
fn split(x: &Tensor, dims: usize) -> Result<(u64, &[u64]), UnknownCost> {
    let at = x
        .shape
        .len()
        .checked_sub(dims)
        .ok_or(UnknownCost::BadArguments)?;
    let (leading, spatial) = x
        .shape
        .split_at_checked(at)
        .ok_or(UnknownCost::BadArguments)?;
    Ok((count(leading), spatial))
}

fn per_dim(list: Vec<i64>, dims: usize) -> Result<Vec<i64>, UnknownCost> {
    match list.as_slice() {
        [one] => Ok(vec![*one; dims]),
        many if many.len() == dims => Ok(list),
        _ => Err(UnknownCost::BadArguments),
    }
}

/// Output elements and window elements of `pool(x, kernel, stride, padding, ...)`.
fn window(
    call: &Call,
    x: &Tensor,
    dilation_at: Option<usize>,
    ceil_at: usize,
) -> Result<(u64, u64), UnknownCost> {
    let dims = spatial_dims(call.name);
    let (leading, spatial) = split(x, dims)?;
    let kernel = call.ints(1, &["kernel_size"]).needed()?;
    let kernel = per_dim(kernel, dims)?;
    let stride = match call.ints(2, &["stride"]) {
        Given::Value(s) if !s.is_empty() => per_dim(s, dims)?,
        Given::Hidden => return Err(UnknownCost::NoShapes),
        _ => kernel.clone(),
    };
    let padding = per_dim(call.ints(3, &["padding"]).or(vec![0])?, dims)?;
    let dilation = match dilation_at {
        Some(at) => per_dim(call.ints(at, &["dilation"]).or(vec![1])?, dims)?,
        None => vec![1; dims],
    };
    let ceil = call.flag(ceil_at, &["ceil_mode"]).value().unwrap_or(false);
    let mut out = leading;
    for (i, &len) in spatial.iter().enumerate() {
        let at = |list: &[i64]| list.get(i).copied().map_or(0, i128::from);
        let (k, s, p, d) = (at(&kernel), at(&stride), at(&padding), at(&dilation));
        if k <= 0 || s <= 0 || p < 0 || d <= 0 {
            return Err(UnknownCost::BadArguments);
        }
        let free = i128::from(len) + 2 * p - d * (k - 1) - 1;
        if free < 0 {
            return Err(UnknownCost::BadArguments);
        }
        let mut steps = if ceil { (free + s - 1) / s } else { free / s } + 1;
        // The last window must start inside the input or the left padding.
        if ceil && (steps - 1) * s >= i128::from(len) + p {
            steps -= 1;
        }
        out = out.saturating_mul(u64::try_from(steps).map_err(|_| UnknownCost::BadArguments)?);
    }
    let taps = to_sizes(&kernel)?;
    Ok((out, count(&taps)))
}

fn max_pool(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let (out, taps) = window(call, x, Some(4), 5)?;
    let indices = Ok(out.saturating_mul(8));
    if call.backward {
        let bytes = total([call.dense(out, x), indices, call.dense(count(&x.shape), x)]);
        return call.one(out, bytes, elements(out));
    }
    let bytes = total([call.bytes(x), call.dense(out, x), indices]);
    call.one(product([out, taps]), bytes, elements(out))
}

/// `(dY, x, kernel, stride, padding, dilation, ceil_mode, indices)`.
fn max_pool_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output"])?;
    let x = call.tensor(1, &["input", "self"])?;
    let n = count(&dy.shape);
    let indices = call.optional(7, &["indices"]);
    let indices = indices.map_or(n.saturating_mul(8), |t| {
        call.bytes_as(Some(t), DType::Int64)
    });
    let bytes = total([call.bytes(dy), Ok(indices), call.dense(count(&x.shape), x)]);
    call.gradient(n, bytes, elements(n))
}

fn avg_pool(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let (out, taps) = window(call, x, None, 4)?;
    let n = count(&x.shape);
    let bytes = total([call.bytes(x), call.dense(out, x)]);
    let flops = if call.backward {
        n
    } else {
        product([out, taps])
    };
    call.one(flops, bytes, elements(out))
}

fn adaptive_pool(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let dims = spatial_dims(call.name);
    let (leading, spatial) = split(x, dims)?;
    let sizes = output_sizes(call, spatial)?;
    let out = product([leading, count(&sizes)]);
    let indices = if call.name.contains("max") {
        out.saturating_mul(8)
    } else {
        0
    };
    let n = count(&x.shape);
    let bytes = total([call.bytes(x), call.dense(out, x), Ok(indices)]);
    call.one(n, bytes, elements(out))
}

/// Output sizes: one for all dimensions or one each; `None` keeps the input size.
fn output_sizes(call: &Call, spatial: &[u64]) -> Result<Vec<u64>, UnknownCost> {
    match call.arg(1, &["output_size"]) {
        Some(ArgValue::Int(n)) => Ok(vec![size(*n)?; spatial.len()]),
        Some(ArgValue::List(items)) => {
            let one = |(i, &kept): (usize, &u64)| match items.get(i).or_else(|| items.first()) {
                Some(ArgValue::Int(n)) => size(*n),
                Some(ArgValue::None) => Ok(kept),
                _ => Err(UnknownCost::NoShapes),
            };
            spatial.iter().enumerate().map(one).collect()
        }
        Some(ArgValue::None) => Ok(spatial.to_vec()),
        Some(_) => Err(UnknownCost::NoShapes),
        None => Err(UnknownCost::BadArguments),
    }
}

fn avg_pool_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output"])?;
    let x = call.tensor(1, &["input", "self"])?;
    let n = count(&x.shape);
    let indices = if call.name.contains("max") {
        count(&dy.shape).saturating_mul(8)
    } else {
        0
    };
    let bytes = total([call.bytes(dy), Ok(indices), call.dense(n, x)]);
    call.gradient(n, bytes, elements(count(&dy.shape)))
}

/// FLOPs per output, forward and backward.
fn weights(mode: &str) -> (u64, u64) {
    match mode {
        m if m.contains("nearest") => (0, 1),
        m if m.contains("trilinear") => (15, 8),
        m if m.contains("bilinear") => (7, 8),
        m if m.contains("bicubic") => (35, 8),
        m if m.contains("linear") => (3, 8),
        _ => (0, 1),
    }
}

fn upsample(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let python = matches!(call.name, "interpolate" | "upsample");
    let mode = if python {
        call.text(3, &["mode"]).unwrap_or("nearest")
    } else {
        call.name
    };
    let dims = if python {
        x.shape.len().saturating_sub(2)
    } else {
        spatial_dims(call.name)
    };
    let (leading, spatial) = split(x, dims)?;
    let out = product([leading, resized(call, spatial, python)?]);
    let (forward, backward) = weights(mode);
    let bytes = total([call.bytes(x), call.dense(out, x)]);
    let flops = if call.backward { backward } else { forward };
    let mut cost = call.one(product([flops, out]), bytes, elements(out))?;
    if flops == 0 {
        cost.class = FlopsClass::Zero;
    }
    Ok(cost)
}

/// The number of elements in the resized spatial dimensions: from the size, or from the scale (rounded
/// down, as torch.nn.functional.interpolate documents).
fn resized(call: &Call, spatial: &[u64], python: bool) -> Result<u64, UnknownCost> {
    if let Given::Value(sizes) = call.ints(1, &["size", "output_size"])
        && !sizes.is_empty()
    {
        let sizes = per_dim(sizes, spatial.len())?;
        return Ok(count(&to_sizes(&sizes)?));
    }
    let scales: Vec<f64> = match call.arg(2, &["scale_factor", "scale_factors"]) {
        Some(ArgValue::Float(s)) => vec![*s],
        Some(ArgValue::Int(s)) => vec![*s as f64],
        Some(ArgValue::List(items)) => items
            .iter()
            .filter_map(|v| match v {
                ArgValue::Float(s) => Some(*s),
                ArgValue::Int(s) => Some(*s as f64),
                _ => None,
            })
            .collect(),
        None if python => return Err(UnknownCost::BadArguments),
        _ => return Err(UnknownCost::NoShapes),
    };
    let scale = |i: usize| scales.get(i).or_else(|| scales.first()).copied();
    let mut all = 1_u64;
    for (i, &len) in spatial.iter().enumerate() {
        let scaled = (len as f64 * scale(i).ok_or(UnknownCost::NoShapes)?).floor();
        if !(0.0..9e15).contains(&scaled) {
            return Err(UnknownCost::BadArguments);
        }
        all = all.saturating_mul(scaled as u64);
    }
    Ok(all)
}

/// `(dY, output_size, input_size, ...)`.
fn upsample_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let dy = call.tensor(0, &["grad_output"])?;
    let sizes = to_sizes(&call.ints(2, &["input_size"]).needed()?)?;
    let n = count(&dy.shape);
    let (_, per_output) = weights(call.name);
    let bytes = total([call.bytes(dy), call.dense(count(&sizes), dy)]);
    call.gradient(product([per_output, n]), bytes, elements(n))
}

fn grid_sample(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let grid = call.tensor(1, &["grid"])?;
    let [batch, channels, ..] = *x.shape.as_slice() else {
        return Err(UnknownCost::BadArguments);
    };
    let points = grid.shape.split_last().map(|(_, p)| p).unwrap_or_default();
    let points = count(points.get(1..).unwrap_or_default());
    let n = product([batch, channels, points]);
    if call.backward {
        let bytes = total([
            call.dense(n, x),
            call.bytes(x),
            call.bytes(grid),
            call.dense(count(&x.shape), x),
            call.dense(count(&grid.shape), grid),
        ]);
        return call.one(product([8, n]), bytes, elements(n));
    }
    let bytes = total([call.bytes(x), call.bytes(grid), call.dense(n, x)]);
    call.one(product([7, n]), bytes, elements(n))
}
