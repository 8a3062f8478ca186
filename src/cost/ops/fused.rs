//! Kernels compiled by TorchInductor. Their host event is named after the kernel
//! (`triton_poi_fused_add_mul_3`) and lists every pointer argument, outputs included.

use super::Entry;
use super::call::{Call, count, distinct, product};
use crate::correlate::{ArgValue, Tensor};
use crate::cost::{Dims, Family, FlopsClass, OpCost, UnknownCost};

const NOTE: &str = "a compiled kernel: its arithmetic is not in the profile, and its name does not tell inputs \
     from outputs";

const POINTWISE: Entry = Entry {
    names: &["triton_poi_*"],
    namespaces: &[],
    family: Family::Pointwise,
    class: FlopsClass::Zero,
    flops: "not counted",
    bytes: "every pointer argument once, at most one element per thread of the grid; the first one \
            twice where no other can be the output",
    backward: "",
    source: "TorchInductor's kernel signature: inputs and outputs are all pointer arguments",
    handler: pointwise,
};

const REDUCTION: Entry = Entry {
    names: &["triton_red_*", "triton_per_*"],
    family: Family::Reduce,
    bytes: "every pointer argument once",
    handler: reduction,
    ..POINTWISE
};

/// Kernels of TorchInductor's templates: products, convolutions, attention.
const TEMPLATE: Entry = Entry {
    names: &["triton_tem_*"],
    family: Family::Gemm,
    class: FlopsClass::Exact,
    flops: "`kernel_flop` of the event, which TorchInductor records with `TORCHINDUCTOR_BENCHMARK_KERNEL=1`",
    bytes: "`kernel_num_gb` of the event, recorded alike",
    source: "torch/_inductor/select_algorithm.py: estimate_flops() and estimate_kernel_num_bytes() of a TritonTemplateKernel",
    handler: template,
    ..POINTWISE
};

const CONVOLUTION: Entry = Entry {
    family: Family::Conv,
    ..TEMPLATE
};

const ATTENTION: Entry = Entry {
    family: Family::Attention,
    flops: "unknown: which blocks of the mask are computed is not in the profile",
    bytes: "unknown: the same",
    source: "torch/_inductor/kernel/flex: the block mask is an argument, of which the trace has the shape only",
    handler: flex_attention,
    ..TEMPLATE
};

/// The entry of a compiled kernel's name. These names are generated, so the table cannot list them.
pub(super) fn entry(base: &str) -> Option<&'static Entry> {
    let kind = base.strip_prefix("triton_")?;
    match kind.get(..4)? {
        "poi_" => Some(&POINTWISE),
        "red_" | "per_" => Some(&REDUCTION),
        "tem_" if kind.contains("flex_") => Some(&ATTENTION),
        "tem_" if kind.contains("convolution") => Some(&CONVOLUTION),
        "tem_" => Some(&TEMPLATE),
        _ => None,
    }
}

/// TorchInductor passes `in_out_ptr0`, the inputs, the outputs and then the numbers of elements. Each
/// output of a pointwise kernel has one element per point of that space.
fn pointwise(call: &Call) -> Result<OpCost, UnknownCost> {
    let pointers = pointers(call)?;
    let Some(points) = points(call, &pointers) else {
        return every_pointer(call, &pointers);
    };
    let several_reads = reads_several_elements(call, &pointers, points);
    let mut bytes = 0_u64;
    for t in &pointers {
        let elements = if several_reads {
            distinct(t)
        } else {
            distinct(t).min(points)
        };
        bytes = bytes.saturating_add(call.dense(elements, t)?);
    }
    if let Some(buffer) = changed_in_place(call, &pointers, points) {
        bytes = bytes.saturating_add(call.dense(points, buffer)?);
    }
    finish(call, bytes, points)
}

fn reduction(call: &Call) -> Result<OpCost, UnknownCost> {
    every_pointer(call, &pointers(call)?)
}

fn template(call: &Call) -> Result<OpCost, UnknownCost> {
    let recorded = |key: &str| {
        let mut items = call.args.items.iter();
        match items.find(|arg| arg.name.as_deref() == Some(key))?.value {
            ArgValue::Float(n) if n.is_finite() && n > 0.0 => Some(n),
            _ => None,
        }
    };
    let numbers = recorded("kernel_flop").zip(recorded("kernel_num_gb"));
    let (flops, gb) = numbers.ok_or(UnknownCost::NoScalars)?;
    let pointers = pointers(call)?;
    let largest = pointers.iter().map(|t| count(&t.shape)).max().unwrap_or(0);
    // Casts of floats that are too large yield the largest integer.
    let bytes = (gb * 1e9).round() as u64;
    call.one(flops as u64, Ok(bytes), Dims::Elements { numel: largest })
}

fn flex_attention(_call: &Call) -> Result<OpCost, UnknownCost> {
    Err(UnknownCost::DataDependent)
}

fn every_pointer(call: &Call, pointers: &[&Tensor]) -> Result<OpCost, UnknownCost> {
    let mut bytes = 0_u64;
    for t in pointers {
        bytes = bytes.saturating_add(call.bytes(t)?);
    }
    let largest = pointers.iter().map(|t| count(&t.shape)).max().unwrap_or(0);
    finish(call, bytes, largest)
}

fn finish(call: &Call, bytes: u64, numel: u64) -> Result<OpCost, UnknownCost> {
    let mut cost = call.one(0, Ok(bytes), Dims::Elements { numel })?;
    cost.note = Some(NOTE);
    Ok(cost)
}

fn pointers<'a>(call: &Call<'a>) -> Result<Vec<&'a Tensor>, UnknownCost> {
    let tensors = call.args.tensors().filter(|t| count(&t.shape) > 0);
    let pointers: Vec<_> = tensors.filter(|t| !t.shape.is_empty()).collect();
    match pointers.is_empty() {
        true => Err(UnknownCost::NoShapes),
        false => Ok(pointers),
    }
}

/// The number of points a pointwise kernel computes: `xnumel`, or the product with `ynumel` and
/// `znumel` before it. Sizes of dynamic dimensions may stand before them, so a product counts only
/// if a buffer has that many elements.
fn points(call: &Call, pointers: &[&Tensor]) -> Option<u64> {
    const MOST_DIMENSIONS: usize = 3;
    let items = call.args.items.iter().rev();
    let sizes = items.map_while(|arg| match arg.value {
        ArgValue::Int(n) => u64::try_from(n).ok().filter(|&n| n > 0),
        _ => None,
    });
    let mut all = 1;
    let products = sizes.take(MOST_DIMENSIONS).map(|size| {
        all = product([all, size]);
        all
    });
    products
        .filter(|n| pointers.iter().any(|t| distinct(t) == *n))
        .last()
}

/// The buffer that is read and overwritten (`in_out_ptr0`): the first pointer if it has an element per
/// point, and the last one is too small to be an output.
fn changed_in_place<'a>(call: &Call, pointers: &[&'a Tensor], points: u64) -> Option<&'a Tensor> {
    let (first, last) = (pointers.first()?, pointers.last()?);
    let in_place = match pointers.len() {
        1 => !only_creates(call.name),
        _ => distinct(last) < points,
    };
    (in_place && distinct(first) == points).then_some(first)
}

/// Whether a kernel with one buffer writes it without reading it: `triton_poi_fused_zeros_0`.
fn only_creates(name: &str) -> bool {
    const CREATORS: [&str; 10] = [
        "zeros", "ones", "full", "fill", "arange", "zero", "scalar", "tensor", "rand", "empty",
    ];
    let words = fused_operators(name);
    words.clone().next().is_some()
        && words
            .filter(|word| *word != "like" && *word != "new")
            .all(|word| CREATORS.iter().any(|creator| word.starts_with(creator)))
}

/// Whether one point may read several elements of one input, so that an input larger than the result
/// is not a slice: pooling, and both halves of a gated unit.
fn reads_several_elements(call: &Call, pointers: &[&Tensor], points: u64) -> bool {
    const WINDOWED: [&str; 5] = ["pool", "pool2d", "glu", "unfold", "im2col"];
    const BINARY: [&str; 6] = ["mul", "add", "sub", "div", "maximum", "cat"];
    let has = |words: &[&str]| fused_operators(call.name).any(|word| words.contains(&word));
    let large = pointers.iter().filter(|t| distinct(t) > points).count();
    let inputs = pointers.len().saturating_sub(1);
    has(&WINDOWED) || (large == 1 && inputs == 1 && has(&BINARY))
}

/// The words between `triton_poi_fused_` and the number at the end.
fn fused_operators(name: &str) -> impl Iterator<Item = &str> + Clone {
    let words = name.split('_').skip(3).filter(|word| !word.is_empty());
    words.filter(|word| !word.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::cost;
    use crate::base::DType;
    use crate::correlate::{Arg, ArgValue, Direction, OpArgs, OpName, Tensor};

    fn bytes(name: &str, shapes: &[&[u64]], sizes: &[i64]) -> u64 {
        let tensor = |shape: &&[u64]| {
            ArgValue::Tensor(Tensor {
                shape: shape.to_vec(),
                dtype: Some(DType::Fp16),
                strides: None,
            })
        };
        let values = (shapes.iter().map(tensor)).chain(sizes.iter().map(|n| ArgValue::Int(*n)));
        let args = OpArgs {
            items: values.map(|value| Arg { name: None, value }).collect(),
        };
        let op = OpName {
            module: String::new(),
            name: name.to_owned(),
        };
        cost(&op, &args, Direction::Fprop, false, None)
            .unwrap()
            .bytes()
    }

    #[test]
    fn a_buffer_changed_in_place_is_read_and_written() {
        let name = "triton_poi_fused_convolution_relu_0";
        assert_eq!(bytes(name, &[&[8, 64], &[64]], &[512]), 2 * (2 * 512 + 64));
        assert_eq!(bytes("triton_poi_fused_relu_0", &[&[512]], &[512]), 2048);
        assert_eq!(
            bytes("triton_poi_fused_relu_0", &[&[8, 64]], &[8, 64]),
            2048
        );
    }

    #[test]
    fn buffers_beside_a_possible_output_count_once() {
        let shapes: [&[u64]; 3] = [&[8, 64], &[64], &[8, 64]];
        assert_eq!(
            bytes("triton_poi_fused_add_0", &shapes, &[512]),
            2 * (1024 + 64)
        );
        assert_eq!(
            bytes("triton_poi_fused_zeros_like_0", &[&[512]], &[512]),
            1024
        );
        // Without a number of elements that fits a buffer nothing is known of in-place changes.
        assert_eq!(bytes("triton_poi_fused_relu_0", &[&[512]], &[]), 1024);
        assert_eq!(bytes("triton_poi_fused_relu_0", &[&[512]], &[7, 64]), 1024);
    }

    #[test]
    fn slices_of_larger_buffers_count_as_far_as_they_are_read() {
        let qkv: [&[u64]; 2] = [&[8, 192], &[8, 64]];
        assert_eq!(bytes("triton_poi_fused_clone_1", &qkv, &[512]), 2 * 1024);
        let rows: [&[u64]; 3] = [&[8], &[50_000, 64], &[8, 64]];
        assert_eq!(
            bytes("triton_poi_fused_embedding_0", &rows, &[512]),
            2 * (8 + 1024)
        );
    }

    #[test]
    fn inputs_read_at_several_places_count_whole() {
        let glu: [&[u64]; 2] = [&[8, 128], &[8, 64]];
        assert_eq!(bytes("triton_poi_fused_mul_silu_0", &glu, &[512]), 2 * 1536);
        let pool: [&[u64]; 2] = [&[1, 3, 32, 32], &[1, 3, 16, 16]];
        let name = "triton_poi_fused_max_pool2d_with_indices_1";
        assert_eq!(bytes(name, &pool, &[768]), 2 * (3072 + 768));
    }
}
