//! Matrix products. FLOPs are `2 batch m n k`; bias, alpha and beta are not counted.

use super::call::{
    Bytes, Call, Entry, Given, WorkPart, broadcast, count, distinct, elements, product, sum, total,
};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::{Family, Role};
use crate::cost::model::{Dims, FlopsClass, GemmSize, OpCost, UnknownCost};

const MATMUL: Entry = Entry {
    names: &["mm", "bmm", "matmul", "dot", "vdot", "inner", "mv"],
    namespaces: &[],
    family: Family::Gemm,
    class: FlopsClass::Exact,
    flops: "2 batch m n k",
    bytes: "A + B + C; an operand broadcast over the batch counts once",
    backward: "dgrad and wgrad, 2 batch m n k each, same bytes; bias: m n adds, reads dY, writes the bias",
    source: "torch.utils.flop_counter; NVIDIA Matrix Multiplication Background guide",
    handler: matmul,
};

pub(super) const ENTRIES: &[Entry] = &[
    MATMUL,
    Entry {
        names: &["addmm", "baddbmm", "addbmm", "addmv", "addmm_activation"],
        bytes: "A + B + C; and the added matrix as stored: [n], or [m, n]",
        handler: addmm,
        ..MATMUL
    },
    Entry {
        names: &["addr"],
        flops: "2 m n",
        bytes: "self + both vectors + C",
        backward: "",
        source: "closed form of a GEMM with k = 1",
        handler: addr,
        ..MATMUL
    },
    Entry {
        names: &["linear"],
        flops: "2 m n k, m the product of all dimensions of x but the last",
        bytes: "x + w + b + y",
        handler: linear,
        ..MATMUL
    },
    Entry {
        names: &["einsum"],
        flops: "two operands: 2 times the product of all distinct letters; one: N where letters are summed over; more: unknown, the order of contraction is not in the profile",
        bytes: "operands + result",
        backward: "two contractions of the same size",
        source: "torch.utils.flop_counter on the bmm it becomes",
        handler: einsum,
        ..MATMUL
    },
    Entry {
        names: &["scaled_mm"],
        flops: "2 m n k",
        bytes: "A + B at 1 byte, C in the output type, scales at 4 bytes",
        backward: "",
        handler: scaled_mm,
        ..MATMUL
    },
    Entry {
        names: &["int_mm"],
        flops: "2 m n k",
        bytes: "A + B at 1 byte, C at 4 bytes",
        backward: "",
        handler: int_mm,
        ..MATMUL
    },
    Entry {
        names: &["weight_int4pack_mm"],
        flops: "2 m n k",
        bytes: "A + weights at half a byte + scales and zeros + C",
        backward: "",
        source: "ATen/native/cuda/int4mm.cu: weights [n / 8, k / (16 i), 32, i / 2] of int32 with i inner tiles",
        handler: int4_mm,
        ..MATMUL
    },
    Entry {
        names: &["grouped_mm", "scaled_grouped_mm"],
        flops: "2 tokens k n",
        bytes: "tokens k + groups k n + tokens n; scales at 4 bytes, the result of a scaled one in bf16 unless it names its type",
        backward: "",
        source: "closed form: every token meets one group's matrix",
        handler: grouped_mm,
        ..MATMUL
    },
    Entry {
        names: &["bilinear"],
        flops: "2 batch out in1 in2",
        bytes: "both inputs + weight + bias + output",
        backward: "",
        source: "closed form",
        handler: bilinear,
        ..MATMUL
    },
];

impl GemmSize {
    pub(super) fn flops(&self) -> u64 {
        product([2, self.batch, self.m, self.n, self.k])
    }

    /// The number of elements of the result.
    fn out(&self) -> u64 {
        product([self.batch, self.m, self.n])
    }
}

/// The cost of `C = A B`, or of its gradients, from the bytes of the three matrices and of a bias.
fn cost(
    call: &Call,
    gemm: GemmSize,
    [a, b, c]: [Bytes; 3],
    bias: Option<Bytes>,
) -> Result<OpCost, UnknownCost> {
    let (flops, dims) = (gemm.flops(), Dims::Gemm(gemm));
    if !call.backward {
        return call.one(flops, total([a, b, c, bias.unwrap_or(Ok(0))]), dims);
    }
    // dA = dC B^T and dB = A^T dC: the same three matrices, one of them written.
    let each = total([a, b, c]);
    let mut parts = vec![
        WorkPart::new(Role::Dgrad, flops, each, dims),
        WorkPart::new(Role::Wgrad, flops, each, dims),
    ];
    if let Some(bias) = bias {
        let (flops, bytes) = (gemm.out(), total([c, bias]));
        parts.push(WorkPart::new(Role::BiasGrad, flops, bytes, elements(flops)));
    }
    call.cost_of(parts)
}

/// The cost of `mm`, `bmm`, `matmul` and the vector products, all by the rules of `torch.matmul`.
fn matmul(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.tensor(0, &["input", "self", "tensor"])?;
    let b = call.tensor(1, &["mat2", "other", "vec", "tensor", "vec2"])?;
    let gemm = product_of(a, b)?;
    let c = call.dense(gemm.out(), a);
    cost(call, gemm, [call.bytes(a), call.bytes(b), c], None)
}

/// The sizes of `a @ b` by the rules of `torch.matmul`.
fn product_of(a: &Tensor, b: &Tensor) -> Result<GemmSize, UnknownCost> {
    let (a_batch, a_rows, a_cols) = match a.shape.as_slice() {
        [k] => (&[][..], 1, *k),
        [batch @ .., m, k] => (batch, *m, *k),
        [] => return Err(UnknownCost::BadArguments),
    };
    let (b_batch, b_rows, b_cols) = match b.shape.as_slice() {
        [k] => (&[][..], *k, 1),
        [batch @ .., k, n] => (batch, *k, *n),
        [] => return Err(UnknownCost::BadArguments),
    };
    if a_cols != b_rows {
        return Err(UnknownCost::BadArguments);
    }
    let contiguous = contiguous(a, b);
    // PyTorch folds the batch of A into the rows if B is a single matrix.
    let (batch, m) = if b_batch.is_empty() {
        (1, count(a_batch).saturating_mul(a_rows))
    } else {
        (count(&broadcast(a_batch, b_batch)?), a_rows)
    };
    Ok(GemmSize {
        batch,
        m,
        n: b_cols,
        k: a_cols,
        contiguous,
    })
}

/// The dimensions where 16-byte alignment matters: the contiguous dimension of `A[m, k]`, of `B[k, n]`
/// and of the row-major `C[m, n]`. Without strides, the operands are assumed to be row-major.
fn contiguous(a: &Tensor, b: &Tensor) -> (bool, bool, bool) {
    let of_a = last_or_previous(a);
    let of_b = last_or_previous(b);
    let m = of_a == Some(Previous);
    let k = of_a == Some(Last) || of_b == Some(Previous);
    (m, true, k)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contiguous {
    Last,
    Previous,
}
use Contiguous::{Last, Previous};

fn last_or_previous(t: &Tensor) -> Option<Contiguous> {
    if t.shape.len() < 2 {
        // A vector is contiguous along k on either side.
        return None;
    }
    match t.strides.as_deref() {
        None => Some(Last),
        Some([.., _, 1]) => Some(Last),
        Some([.., 1, _]) => Some(Previous),
        Some(_) => None,
    }
}

/// The cost of `self + mat1 mat2`, where `self` is a bias row or a whole matrix.
fn addmm(call: &Call) -> Result<OpCost, UnknownCost> {
    let added = call.input()?;
    let a = call.tensor(1, &["mat1", "batch1", "mat"])?;
    let Some(b) = call.optional(2, &["mat2", "batch2", "vec"]) else {
        // `AddmmBackward0` with the arguments of an `F.linear` without bias.
        return linear(call);
    };
    let mut gemm = match product_of(a, b) {
        Ok(gemm) => gemm,
        Err(_) if call.backward => return linear(call),
        Err(reason) => return Err(reason),
    };
    if call.name == "addbmm" {
        // The batch is summed, so it extends k.
        gemm.k = gemm.k.saturating_mul(gemm.batch);
        gemm.batch = 1;
    }
    let out = gemm.out();
    // The gradient of a whole added matrix is dC, which needs no work.
    let free = call.backward && distinct(added) >= out;
    let bias = Some(call.bytes(added)).filter(|_| !free);
    let matrices = [call.bytes(a), call.bytes(b), call.dense(out, a)];
    cost(call, gemm, matrices, bias)
}

/// `_weight_int4pack_mm(self, mat2, qGroupSize, qScaleAndZeros)`.
fn int4_mm(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.input()?;
    let w = call.tensor(1, &["mat2"])?;
    let scales = call.tensor(3, &["qScaleAndZeros"])?;
    let ([m, k], [tiles, outer, 32, half]) = (a.shape.as_slice(), w.shape.as_slice()) else {
        return Err(UnknownCost::BadArguments);
    };
    if product([*outer, *half, 32]) != *k {
        return Err(UnknownCost::BadArguments);
    }
    let gemm = GemmSize {
        batch: 1,
        m: *m,
        n: product([*tiles, 8]),
        k: *k,
        contiguous: (false, true, true),
    };
    let weights = total([Ok(call.bytes_as(Some(w), DType::Int32)), call.bytes(scales)]);
    let c = call.dense(gemm.out(), a);
    cost(call, gemm, [call.bytes(a), weights, c], None)
}

fn addr(call: &Call) -> Result<OpCost, UnknownCost> {
    let added = call.input()?;
    let a = call.tensor(1, &["vec1"])?;
    let b = call.tensor(2, &["vec2"])?;
    call.forward_only()?;
    let gemm = GemmSize {
        batch: 1,
        m: count(&a.shape),
        n: count(&b.shape),
        k: 1,
        contiguous: (false, true, false),
    };
    let c = call.dense(gemm.out(), a);
    let bias = Some(call.bytes(added));
    cost(call, gemm, [call.bytes(a), call.bytes(b), c], bias)
}

/// `y = x w^T + b`.
fn linear(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let w = call.tensor(1, &["weight"])?;
    let bias = call.optional(2, &["bias"]);
    let (&k, rows) = x.shape.split_last().ok_or(UnknownCost::BadArguments)?;
    let n = match w.shape.as_slice() {
        [n, in_features] if *in_features == k => *n,
        [in_features] if *in_features == k => 1,
        _ => return Err(UnknownCost::BadArguments),
    };
    let gemm = GemmSize {
        batch: 1,
        m: count(rows),
        n,
        k,
        contiguous: contiguous_linear(x, w),
    };
    let y = call.dense(gemm.out(), x);
    let bias = bias.map(|b| call.bytes(b));
    cost(call, gemm, [call.bytes(x), call.bytes(w), y], bias)
}

/// The same for `x[.., k]` and `w[n, k]`. In the usual layout both are contiguous along k, so the
/// alignment of the number of rows does not matter.
fn contiguous_linear(x: &Tensor, w: &Tensor) -> (bool, bool, bool) {
    let (x, w) = (last_or_previous(x), last_or_previous(w));
    let apart = x.is_some() && w.is_some();
    let k = !apart || x == Some(Last) || w == Some(Last);
    (x == Some(Previous), true, k)
}

/// The cost of a contraction of one or two operands. With more, the cost depends on the order of
/// contraction, which is not recorded.
fn einsum(call: &Call) -> Result<OpCost, UnknownCost> {
    let equation = match call.arg(0, &["equation"]) {
        Some(ArgValue::Str(text)) => text,
        Some(ArgValue::Unknown | ArgValue::Tensor(_)) | None => return Err(UnknownCost::NoShapes),
        _ => return Err(UnknownCost::BadArguments),
    };
    let operands: Vec<&Tensor> = call.args.tensors().take(3).collect();
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    match operands.as_slice() {
        [] => Err(UnknownCost::NoShapes),
        [a] => one_operand(call, &equation, a),
        [a, b] => two_operands(call, &equation, a, b),
        _ => Err(UnknownCost::DataDependent),
    }
}

fn two_operands(
    call: &Call,
    equation: &str,
    a: &Tensor,
    b: &Tensor,
) -> Result<OpCost, UnknownCost> {
    let (inputs, output) = sides(equation);
    let (left, right) = inputs.split_once(',').ok_or(UnknownCost::BadArguments)?;
    let (left, right) = (letters(left, a)?, letters(right, b)?);
    let sizes: Vec<(char, u64)> = left.iter().chain(&right).copied().collect();
    let output = result(output, &sizes);
    let word = |side: &[(char, u64)]| side.iter().map(|(c, _)| *c).collect::<String>();
    let gemm = contraction(&word(&left), &word(&right), &output, &sizes)?;
    let c = call.dense(gemm.out(), a);
    cost(call, gemm, [call.bytes(a), call.bytes(b), c], None)
}

/// The cost of a transposition, a diagonal, or a sum over the omitted letters.
fn one_operand(call: &Call, equation: &str, a: &Tensor) -> Result<OpCost, UnknownCost> {
    let (input, output) = sides(equation);
    let sizes = letters(input, a)?;
    let output = result(output, &sizes);
    let size_of = |letter: char| sizes.iter().find(|(l, _)| *l == letter).map(|(_, d)| *d);
    let kept: Option<Vec<u64>> = output.chars().map(size_of).collect();
    let out = count(&kept.ok_or(UnknownCost::BadArguments)?);
    let summed = sizes.iter().any(|(letter, _)| !output.contains(*letter));
    let flops = if summed { count(&a.shape) } else { 0 };
    let bytes = total([call.bytes(a), call.dense(out, a)]);
    call.one(flops, bytes, elements(out))
}

/// The letters of the operands, and of the result if the equation has them.
fn sides(equation: &str) -> (&str, Option<&str>) {
    match equation.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (equation, None),
    }
}

/// Stand-ins for the dimensions of an ellipsis, the last dimension first; equations cannot contain
/// them.
const ELLIPSIS: std::ops::RangeInclusive<char> = '0'..='9';

/// The letters of an operand with their sizes, the ellipsis expanded.
fn letters(subscripts: &str, t: &Tensor) -> Result<Vec<(char, u64)>, UnknownCost> {
    let named = subscripts.replacen("...", "", 1);
    if !named.chars().all(|c| c.is_ascii_alphabetic()) {
        return Err(UnknownCost::BadArguments);
    }
    let hidden = (t.shape.len().checked_sub(named.len())).ok_or(UnknownCost::BadArguments)?;
    let all = match subscripts.split_once("...") {
        Some((before, after)) => {
            let places: Vec<char> = ELLIPSIS.take(hidden).collect();
            let places: String = places.into_iter().rev().collect();
            format!("{before}{places}{after}")
        }
        None => named,
    };
    if all.chars().count() != t.shape.len() {
        return Err(UnknownCost::BadArguments);
    }
    Ok(all.chars().zip(t.shape.iter().copied()).collect())
}

/// The letters of the result, the ellipsis expanded. Without an explicit result, these are the letters
/// that occur once, sorted. Source: torch.einsum's documentation.
fn result(output: Option<&str>, sizes: &[(char, u64)]) -> String {
    let mut hidden: Vec<char> = (sizes.iter().map(|(c, _)| *c))
        .filter(|c| ELLIPSIS.contains(c))
        .collect();
    hidden.sort_unstable_by(|a, b| b.cmp(a));
    hidden.dedup();
    let hidden: String = hidden.into_iter().collect();
    if let Some(output) = output {
        return output.replacen("...", &hidden, 1);
    }
    let named = || {
        sizes
            .iter()
            .map(|(c, _)| *c)
            .filter(|c| !ELLIPSIS.contains(c))
    };
    let mut once: Vec<char> = named()
        .filter(|c| named().filter(|d| d == c).count() == 1)
        .collect();
    once.sort_unstable();
    hidden.chars().chain(once).collect()
}

/// Assigns every distinct letter to batch, m, n or k.
fn contraction(
    left: &str,
    right: &str,
    output: &str,
    sizes: &[(char, u64)],
) -> Result<GemmSize, UnknownCost> {
    if !output.chars().all(|c| sizes.iter().any(|(l, _)| *l == c)) {
        return Err(UnknownCost::BadArguments);
    }
    let mut seen: Vec<char> = Vec::new();
    let (mut batch, mut m, mut n, mut k) = (1_u64, 1_u64, 1_u64, 1_u64);
    for (letter, _) in sizes {
        if seen.contains(letter) {
            continue;
        }
        seen.push(*letter);
        // A dimension of size 1 broadcasts to that of the other operand.
        let same = sizes.iter().filter(|(l, _)| l == letter);
        let dim = same.map(|(_, d)| *d).max().unwrap_or(1);
        let side = match (left.contains(*letter), right.contains(*letter)) {
            (true, true) if output.contains(*letter) => &mut batch,
            (true, false) if output.contains(*letter) => &mut m,
            (false, true) if output.contains(*letter) => &mut n,
            _ => &mut k,
        };
        *side = side.saturating_mul(dim);
    }
    let mut contiguous = (false, false, false);
    for last in [left, right, output]
        .iter()
        .filter_map(|s| s.chars().last())
    {
        match (left.contains(last), right.contains(last)) {
            (true, true) if !output.contains(last) => contiguous.2 = true,
            (true, false) => contiguous.0 = true,
            (false, true) => contiguous.1 = true,
            _ => {}
        }
    }
    Ok(GemmSize {
        batch,
        m,
        n,
        k,
        contiguous,
    })
}

fn scaled_mm(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.input()?;
    let b = call.tensor(1, &["mat2", "other"])?;
    let gemm = product_of(a, b)?;
    let scales = [
        call.optional(2, &["scale_a"]),
        call.optional(3, &["scale_b"]),
        call.optional(4, &["bias"]),
    ];
    let scales = sum(scales.map(|t| call.bytes_as(t, DType::Fp32)));
    // The output type is a keyword argument, or a number at its position in the schema.
    let named = call.args.items.iter().find_map(|a| match &a.value {
        ArgValue::Str(s) => DType::parse(s),
        _ => None,
    });
    let out = match (named, call.dtype_arg(6, &["out_dtype"])) {
        (Some(d), _) | (None, Given::Value(d)) => Ok(d),
        (None, Given::Default) => call.dtype(a),
        (None, Given::Hidden) => Err(UnknownCost::NoDType),
    };
    let c = out.map(|d| gemm.out().saturating_mul(d.bytes()));
    let bytes = total([call.bytes(a), call.bytes(b), c, Ok(scales)]);
    call.one(gemm.flops(), bytes, Dims::Gemm(gemm))
}

fn int_mm(call: &Call) -> Result<OpCost, UnknownCost> {
    let a = call.input()?;
    let b = call.tensor(1, &["mat2"])?;
    let gemm = product_of(a, b)?;
    let operands = [a, b].map(|t| call.bytes_as(Some(t), DType::Int8));
    let bytes = sum(operands).saturating_add(product([gemm.out(), DType::Int32.bytes()]));
    call.one(gemm.flops(), Ok(bytes), Dims::Gemm(gemm))
}

/// The cost of a grouped product. Rows, columns or the dimension summed over are split into groups,
/// each with its own matrix. `_scaled_grouped_mm(a, b, scale_a, scale_b, offs, bias, scale_result,
/// out_dtype)`.
fn grouped_mm(call: &Call) -> Result<OpCost, UnknownCost> {
    let scaled = call.name.starts_with("scaled");
    let offsets = if scaled { 4 } else { 2 };
    let a = call.input()?;
    let b = call.tensor(1, &["mat2", "other"])?;
    let (batch, m, k, n, out) = match (a.shape.as_slice(), b.shape.as_slice()) {
        ([tokens, k], [_, k2, n]) if k == k2 => (1, *tokens, *k, *n, product([*tokens, *n])),
        ([_, m, k], [k2, tokens]) if k == k2 => (1, *m, *k, *tokens, product([*m, *tokens])),
        ([g, m, k], [_, _, n]) => (*g, *m, *k, *n, product([*g, *m, *n])),
        ([m, k], [_, n]) => {
            // The groups split k, and each has its own result.
            let groups = call
                .optional(offsets, &["offs"])
                .map(|t| count(&t.shape))
                .ok_or(UnknownCost::NoShapes)?;
            (1, *m, *k, *n, product([groups, *m, *n]))
        }
        _ => return Err(UnknownCost::BadArguments),
    };
    let gemm = GemmSize {
        batch,
        m,
        n,
        k,
        contiguous: contiguous(a, b),
    };
    let c = if scaled {
        let dtype = call.dtype_arg(7, &["out_dtype"]).or(DType::Bf16);
        dtype.map(|d| out.saturating_mul(d.bytes()))
    } else {
        call.dense(out, a)
    };
    let scales = [(2, "scale_a"), (3, "scale_b")]
        .map(|(at, name)| call.optional(at, &[name]).filter(|_| scaled))
        .map(|t| call.bytes_as(t, DType::Fp32));
    let bytes = total([call.bytes(a), call.bytes(b), c, Ok(sum(scales))]);
    call.one(gemm.flops(), bytes, Dims::Gemm(gemm))
}

fn bilinear(call: &Call) -> Result<OpCost, UnknownCost> {
    let left = call.tensor(0, &["input1"])?;
    let right = call.tensor(1, &["input2"])?;
    let w = call.tensor(2, &["weight"])?;
    let [out, in1, in2] = *w.shape.as_slice() else {
        return Err(UnknownCost::BadArguments);
    };
    let (_, rows) = left.shape.split_last().ok_or(UnknownCost::BadArguments)?;
    call.forward_only()?;
    let gemm = GemmSize {
        batch: 1,
        m: count(rows),
        n: out.saturating_mul(in2),
        k: in1,
        contiguous: (false, true, true),
    };
    let bytes = total([
        call.bytes(left),
        call.bytes(right),
        call.bytes(w),
        call.bytes_of(call.optional(3, &["bias"])),
        call.dense(product([gemm.m, out]), left),
    ]);
    call.one(gemm.flops(), bytes, Dims::Gemm(gemm))
}
