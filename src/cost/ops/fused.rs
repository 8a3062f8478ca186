//! Kernels compiled by TorchInductor. Their host event is named after the kernel
//! (`triton_poi_fused_add_mul_3`) and lists every pointer argument, outputs included.

use super::call::{Bytes, Call, Entry, count, data_dependent, distinct, elements, product, total};
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::Family;
use crate::cost::model::{ConvSize, Dims, FlopsClass, GemmSize, OpCost, UnknownCost};

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
    flops: "2 M N K, where the sizes of the buffers leave one M, N and K; else `kernel_flop` of the event, \
            which TorchInductor records with `TORCHINDUCTOR_BENCHMARK_KERNEL=1`",
    bytes: "every pointer argument once; else `kernel_num_gb` of the event, recorded alike",
    source: "torch/_inductor/select_algorithm.py: def_kernel() passes A and B one after the other; estimate_flops() and estimate_kernel_num_bytes() of a TritonTemplateKernel",
    handler: product_template,
    ..POINTWISE
};

const CONVOLUTION: Entry = Entry {
    family: Family::Conv,
    flops: "2 out W / K, where one pair of buffers is an input [N, C, ..] and a weight [K, C/g, ..] of the \
            output [N, K, ..]; else as for products",
    handler: convolution_template,
    ..TEMPLATE
};

const ATTENTION: Entry = Entry {
    family: Family::Attention,
    flops: "unknown: which blocks of the mask are computed is not in the profile",
    bytes: "unknown: the same",
    source: "torch/_inductor/kernel/flex: the block mask is an argument, of which the trace has the shape only",
    handler: data_dependent,
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

/// The cost that TorchInductor recorded.
fn recorded(call: &Call) -> Result<OpCost, UnknownCost> {
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
    call.one(flops as u64, Ok(bytes), elements(largest))
}

impl GemmSize {
    /// The product of two buffers whose result is a third one. Buffers may have other dimensions than the
    /// operands (`[B, S, K]` for `[B S, K]`, `[N, K]` for `[K, N]`), but as many elements:
    /// `a = m k`, `b = k n`, `out = m n`.
    fn of_buffers(batch: u64, [a, b, out]: [&[u64]; 3]) -> Option<GemmSize> {
        let [in_a, in_b, in_out] = [a, b, out].map(|shape| u128::from(count(shape)));
        let square = in_a.checked_mul(in_b)?.checked_div(in_out)?;
        let k = square.isqrt();
        let whole = k > 0 && in_a.is_multiple_of(k) && in_b.is_multiple_of(k);
        if !whole || k.checked_mul(k)?.checked_mul(in_out)? != in_a.checked_mul(in_b)? {
            return None;
        }
        let size = |elements: u128| u64::try_from(elements).ok();
        let (m, n, k) = (size(in_a / k)?, size(in_b / k)?, size(k)?);
        // Sizes may fit by chance, dimensions as well hardly do.
        let fits = |shape: &[u64], x: u64, y: u64| {
            begins_with(shape.iter(), x) && begins_with(shape.iter().rev(), y)
        };
        let either = |shape: &[u64], x: u64, y: u64| fits(shape, x, y) || fits(shape, y, x);
        let shaped = either(a, m, k) && either(b, k, n) && fits(out, m, n);
        let contiguous = (false, false, false);
        shaped.then_some(GemmSize {
            batch,
            m,
            n,
            k,
            contiguous,
        })
    }
}

/// Whether the first dimensions have that many elements together.
fn begins_with<'a>(mut dims: impl Iterator<Item = &'a u64>, elements: u64) -> bool {
    let mut all = 1;
    all == elements
        || dims.any(|dim| {
            all = product([all, *dim]);
            all == elements
        })
}

/// All assignments of pointers to the operands and the result of a template, with the place of the first
/// operand. A template takes its operands one after the other: behind a buffer that it overwrites and a bias,
/// before the inputs of what is fused into it, the result and a workspace.
fn assignments<'a>(pointers: &'a [&'a Tensor]) -> impl Iterator<Item = (usize, [&'a [u64]; 3])> {
    /// More buffers than a template takes; bounds the work for malicious files.
    const MOST: usize = 64;
    let pointers = if pointers.len() <= MOST {
        pointers
    } else {
        &[]
    };
    let pairs = pointers.windows(2).zip(0..);
    pairs.flat_map(move |(pair, at)| {
        let results = pointers.iter().zip(0..);
        let results = results.filter(move |(_, result)| *result == 0 && at > 0 || *result > at + 1);
        results.filter_map(move |(out, _)| match pair {
            [a, b] => Some((at, [a, b, out].map(|t| t.shape.as_slice()))),
            _ => None,
        })
    })
}

/// Nothing says which pointer is which, so the cost is known where all assignments that fit have the same.
fn product_template(call: &Call) -> Result<OpCost, UnknownCost> {
    if let Ok(cost) = recorded(call) {
        return Ok(cost);
    }
    let pointers = pointers(call)?;
    let batched = fused_operators(call.name).any(|word| word.ends_with("bmm"));
    let found = assignments(&pointers).filter_map(|(at, shapes)| {
        let found = match shapes {
            [[i, a @ ..], [j, b @ ..], [batch, out @ ..]] if batched => {
                let same = i == batch && j == batch;
                same.then(|| GemmSize::of_buffers(*batch, [a, b, out]))?
            }
            shapes => GemmSize::of_buffers(1, shapes),
        };
        Some((at, found?))
    });
    let found: Vec<(usize, GemmSize)> = found.collect();
    let (at, first) = *found.first().ok_or(UnknownCost::NoScalars)?;
    // Two pairs without a common buffer may both be multiplied (`mm_plus_mm`).
    let one = (found.iter())
        .all(|(other, found)| found.flops() == first.flops() && other.abs_diff(at) < 2);
    if !one {
        return Err(UnknownCost::NoScalars);
    }
    let dims = match found.iter().all(|(_, found)| *found == first) {
        true => Dims::Gemm(first),
        false => Dims::None,
    };
    call.one(first.flops(), bytes_of(call, &pointers), dims)
}

fn convolution_template(call: &Call) -> Result<OpCost, UnknownCost> {
    if let Ok(cost) = recorded(call) {
        return Ok(cost);
    }
    let pointers = pointers(call)?;
    let mut found = assignments(&pointers).filter_map(|(_, shapes)| convolution(shapes));
    let (flops, dims) = found.next().ok_or(UnknownCost::NoScalars)?;
    if !found.all(|(other, _)| other == flops) {
        return Err(UnknownCost::NoScalars);
    }
    call.one(flops, bytes_of(call, &pointers), dims)
}

/// FLOPs and dimensions of a convolution with these buffers.
fn convolution([x, w, out]: [&[u64]; 3]) -> Option<(u64, Dims)> {
    let ([n, c, input @ ..], [k, per_group, filter @ ..], [out_n, out_k, result @ ..]) =
        (x, w, out)
    else {
        return None;
    };
    let spatial = input.len();
    let alike = spatial > 0 && filter.len() == spatial && result.len() == spatial;
    let groups = c.checked_div(*per_group)?;
    let fits = n == out_n && k == out_k && groups.checked_mul(*per_group) == Some(*c);
    let whole = groups > 0 && k.checked_rem(groups) == Some(0);
    let flops = product([2, count(out), *per_group, count(filter)]);
    let dims = Dims::Conv(ConvSize {
        n: *n,
        c: *c,
        k: *k,
        groups,
        in_spatial: count(input),
        out_spatial: count(result),
        filter: count(filter),
        stride: 0,
        transposed: false,
    });
    (alike && fits && whole).then_some((flops, dims))
}

fn bytes_of(call: &Call, pointers: &[&Tensor]) -> Bytes {
    total(pointers.iter().map(|t| call.bytes(t)))
}

fn every_pointer(call: &Call, pointers: &[&Tensor]) -> Result<OpCost, UnknownCost> {
    let bytes = bytes_of(call, pointers)?;
    let largest = pointers.iter().map(|t| count(&t.shape)).max().unwrap_or(0);
    finish(call, bytes, largest)
}

fn finish(call: &Call, bytes: u64, numel: u64) -> Result<OpCost, UnknownCost> {
    let mut cost = call.one(0, Ok(bytes), elements(numel))?;
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
    use super::super::testing::fprop;
    use crate::cost::model::{OpCost, UnknownCost};

    /// The cost of a kernel on fp16 buffers of these shapes and numbers of elements.
    fn of(name: &str, shapes: &[&[u64]], sizes: &[i64]) -> Result<OpCost, UnknownCost> {
        let buffers = shapes.iter().map(|shape| format!("fp16{shape:?}"));
        let sizes = sizes.iter().map(i64::to_string);
        let args: Vec<String> = buffers.chain(sizes).collect();
        fprop(&format!("{name}({})", args.join(", ")))
    }

    fn bytes(name: &str, shapes: &[&[u64]], sizes: &[i64]) -> u64 {
        of(name, shapes, sizes).unwrap().bytes()
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

    /// FLOPs and `(m, n, k)` of a product of TorchInductor's template.
    fn template(name: &str, shapes: &[&[u64]]) -> Option<(u64, Option<[u64; 3]>)> {
        let cost = of(name, shapes, &[]).ok()?;
        let elements: u64 = shapes.iter().map(|s| s.iter().product::<u64>()).sum();
        assert_eq!(cost.bytes(), 2 * elements, "{name} {shapes:?}");
        let dims = cost.roles[0].dims.gemm().map(|g| [g.m, g.n, g.k]);
        Some((cost.flops(), dims))
    }

    #[test]
    fn products_of_templates_follow_from_the_sizes_of_their_buffers() {
        let mm = Some((2 * 6 * 5 * 7, Some([6, 5, 7])));
        // The weight of a linear layer is stored as [N, K], its input as [B, S, K].
        let rows: [&[&[u64]]; 4] = [
            &[&[6, 7], &[7, 5], &[6, 5]],
            &[&[2, 3, 7], &[5, 7], &[6, 5]],
            &[&[2, 3, 7], &[7, 5], &[2, 3, 5]],
            &[&[5], &[6, 7], &[5, 7], &[6, 5]],
        ];
        for shapes in rows {
            assert_eq!(
                template("triton_tem_fused_addmm_3", shapes),
                mm,
                "{shapes:?}"
            );
        }
        // The result overwrites the residual, or is followed by a workspace.
        let over = template("triton_tem_fused_add_mm_3", &[&[6, 5], &[6, 7], &[5, 7]]);
        assert_eq!(over.map(|(flops, _)| flops), Some(420));
        let workspace: [&[u64]; 4] = [&[6, 7], &[5, 7], &[6, 5], &[9]];
        assert_eq!(template("triton_tem_fused_mm_3", &workspace), mm);
        let batched: [&[u64]; 3] = [&[4, 6, 7], &[4, 7, 5], &[4, 6, 5]];
        let bmm = template("triton_tem_fused_bmm_1", &batched);
        assert_eq!(bmm, Some((4 * 420, Some([6, 5, 7]))));
    }

    #[test]
    fn products_of_templates_are_unknown_where_buffers_leave_a_choice() {
        // Two products that are added up, a slice of a larger buffer, and other sizes of the batch.
        let several: [&[u64]; 5] = [&[6, 7], &[7, 5], &[6, 3], &[3, 5], &[6, 5]];
        assert_eq!(template("triton_tem_fused_add_mm_1", &several), None);
        let same: [&[u64]; 5] = [&[6, 7], &[7, 5], &[6, 7], &[7, 5], &[6, 5]];
        assert_eq!(template("triton_tem_fused_add_mm_1", &same), None);
        let slice: [&[u64]; 3] = [&[6, 21], &[7, 5], &[6, 5]];
        assert_eq!(template("triton_tem_fused_mm_1", &slice), None);
        let batches: [&[u64]; 3] = [&[4, 6, 7], &[2, 7, 5], &[4, 6, 5]];
        assert_eq!(template("triton_tem_fused_bmm_1", &batches), None);
        // Written as a transposed product, the operands could be either pair.
        let either: [&[u64]; 3] = [&[7, 6], &[7, 5], &[6, 5]];
        let found = template("triton_tem_fused_mm_1", &either);
        assert_eq!(found, Some((420, None)));
    }

    #[test]
    fn convolutions_of_templates_follow_from_their_dimensions() {
        let name = "triton_tem_fused_convolution_4";
        let shapes: [&[u64]; 3] = [&[2, 8, 10, 10], &[16, 4, 3, 3], &[2, 16, 10, 10]];
        let flops = 2 * (2 * 16 * 100) * 4 * 9;
        assert_eq!(template(name, &shapes), Some((flops, None)));
        let other: [&[u64]; 3] = [&[2, 8, 10, 10], &[16, 4, 3, 3], &[2, 12, 10, 10]];
        assert_eq!(template(name, &other), None);
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
