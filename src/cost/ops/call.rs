//! One operator call as input of the cost functions: arguments by position or keyword, shapes, element
//! types, and the two rules behind every bytes formula.
//!
//! Bytes are compulsory DRAM traffic: every distinct input element once and every output element once,
//! each at its own element size; an expanded (stride 0) dimension counts once. This is the convention
//! of NVIDIA's Deep Learning Performance guide (GPU Performance Background).

use super::name::Origin;
use crate::base::DType;
use crate::correlate::{ArgValue, OpArgs, Tensor};
use crate::cost::kernel_name::{Family, Role};
use crate::cost::model::{Dims, FlopsClass, OpCost, RoleCost, UnknownCost};

/// One entry of the cost table: the names of an operator, its cost and the source of the formula.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Names without namespace, leading or trailing underscores and overload.
    pub names: &'static [&'static str],
    /// Libraries that define these names; empty for PyTorch itself.
    pub namespaces: &'static [&'static str],
    /// The kind of work.
    pub family: Family,
    /// How certain the FLOP count is.
    pub class: FlopsClass,
    /// FLOPs of the forward, or of the call for operators without a backward, as a formula.
    pub flops: &'static str,
    /// DRAM bytes of the same call, as a formula.
    pub bytes: &'static str,
    /// The cost of the backward in terms of the forward's arguments; empty where there is none.
    pub backward: &'static str,
    /// The source of the formula or convention.
    pub source: &'static str,
    pub(super) handler: fn(&Call) -> Result<OpCost, UnknownCost>,
}

/// Bytes, if every element type is known.
pub(super) type Bytes = Result<u64, UnknownCost>;

/// One operator call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    /// The operator's name as spelled in the table.
    pub(super) name: &'a str,
    pub(super) origin: Origin<'a>,
    /// Whether the first operand is overwritten.
    pub(super) in_place: bool,
    /// Whether the call computes gradients although the arguments are those of the forward.
    pub(super) backward: bool,
    pub(super) args: &'a OpArgs,
    /// The element type in the kernel's name, for floating operands without a recorded type.
    pub(super) default_dtype: Option<DType>,
    pub(super) entry: &'static Entry,
}

/// A non-tensor argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Given<T> {
    /// Not passed, or passed as `None`: the default applies.
    Default,
    /// Passed, but not recorded.
    Hidden,
    Value(T),
}

impl<T> Given<T> {
    /// The value or the default, or the reason why neither is known.
    pub(super) fn or(self, default: T) -> Result<T, UnknownCost> {
        match self {
            Given::Default => Ok(default),
            Given::Hidden => Err(UnknownCost::NoScalars),
            Given::Value(v) => Ok(v),
        }
    }

    /// The value, or that the profile does not record it.
    pub(super) fn needed(self) -> Result<T, UnknownCost> {
        self.value().ok_or(UnknownCost::NoShapes)
    }

    /// The value, if the profile records it.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Given::Value(v) => Some(v),
            _ => None,
        }
    }
}

/// A part of the work, before it becomes a [`RoleCost`].
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkPart {
    pub(super) role: Role,
    pub(super) flops: u64,
    pub(super) bytes: Bytes,
    pub(super) dims: Dims,
}

impl WorkPart {
    pub(super) fn new(role: Role, flops: u64, bytes: Bytes, dims: Dims) -> WorkPart {
        WorkPart {
            role,
            flops,
            bytes,
            dims,
        }
    }
}

impl<'a> Call<'a> {
    /// The argument passed under one of `names`, or at `index`.
    pub(super) fn arg(&self, index: usize, names: &[&str]) -> Option<&'a ArgValue> {
        let items = &self.args.items;
        let keyword = items
            .iter()
            .find(|a| a.name.as_deref().is_some_and(|n| names.contains(&n)));
        keyword
            .or_else(|| {
                items
                    .get(index)
                    .filter(|a| a.name.as_deref().is_none_or(str::is_empty))
            })
            .map(|a| &a.value)
    }

    /// The keyword argument under one of `names`, at any position.
    pub(super) fn keyword(&self, names: &[&str]) -> Option<&'a ArgValue> {
        self.arg(usize::MAX, names)
    }

    /// A required tensor.
    pub(super) fn tensor(&self, index: usize, names: &[&str]) -> Result<&'a Tensor, UnknownCost> {
        match self.arg(index, names) {
            Some(ArgValue::Tensor(t)) => Ok(t),
            Some(ArgValue::Unknown) => Err(UnknownCost::NoShapes),
            None if self.args.items.is_empty() => Err(UnknownCost::NoShapes),
            _ => Err(UnknownCost::BadArguments),
        }
    }

    /// The first operand, under the names PyTorch gives it.
    pub(super) fn input(&self) -> Result<&'a Tensor, UnknownCost> {
        self.tensor(0, &["input", "self"])
    }

    /// An optional tensor. `emit_nvtx` prints `[]` without a type for everything that is not a tensor,
    /// including `None`.
    pub(super) fn optional(&self, index: usize, names: &[&str]) -> Option<&'a Tensor> {
        match self.arg(index, names) {
            Some(ArgValue::Tensor(t)) if !(t.shape.is_empty() && t.dtype.is_none()) => Some(t),
            _ => None,
        }
    }

    /// A list of tensors. Kineto sometimes records only `[]` for it.
    pub(super) fn tensors(
        &self,
        index: usize,
        names: &[&str],
    ) -> Result<Vec<&'a Tensor>, UnknownCost> {
        match self.arg(index, names) {
            Some(ArgValue::List(items)) => items
                .iter()
                .map(|v| match v {
                    ArgValue::Tensor(t) => Ok(t),
                    ArgValue::Unknown => Err(UnknownCost::NoShapes),
                    _ => Err(UnknownCost::BadArguments),
                })
                .collect(),
            Some(ArgValue::Tensor(t)) if t.shape.is_empty() => Err(UnknownCost::NoShapes),
            Some(ArgValue::Unknown) => Err(UnknownCost::NoShapes),
            None if self.args.items.is_empty() => Err(UnknownCost::NoShapes),
            _ => Err(UnknownCost::BadArguments),
        }
    }

    /// An argument that may be left out, as `read` understands it.
    fn given<T>(
        &self,
        index: usize,
        names: &[&str],
        read: impl FnOnce(&'a ArgValue) -> Option<T>,
    ) -> Given<T> {
        match self.arg(index, names) {
            None | Some(ArgValue::None) => Given::Default,
            Some(value) => read(value).map_or(Given::Hidden, Given::Value),
        }
    }

    /// One integer, or a list of them.
    pub(super) fn ints(&self, index: usize, names: &[&str]) -> Given<Vec<i64>> {
        self.given(index, names, |value| match value {
            ArgValue::List(items) => items.iter().map(whole).collect(),
            one => Some(vec![whole(one)?]),
        })
    }

    pub(super) fn int(&self, index: usize, names: &[&str]) -> Given<i64> {
        self.given(index, names, whole)
    }

    /// An integer or floating number.
    pub(super) fn number(&self, index: usize, names: &[&str]) -> Given<f64> {
        self.given(index, names, |value| match value {
            ArgValue::Int(v) => Some(*v as f64),
            ArgValue::Float(v) => Some(*v),
            _ => None,
        })
    }

    /// Whether a factor of an operand is passed that is not 1.
    pub(super) fn is_scaled(&self, index: usize, names: &[&str]) -> bool {
        let alpha = self.number(index, names).value();
        alpha.is_some_and(|a| (a - 1.0).abs() > f64::EPSILON)
    }

    pub(super) fn flag(&self, index: usize, names: &[&str]) -> Given<bool> {
        self.given(index, names, |value| match value {
            ArgValue::Bool(v) => Some(*v),
            ArgValue::Int(v) => Some(*v != 0),
            ArgValue::Str(s) if s.eq_ignore_ascii_case("true") => Some(true),
            ArgValue::Str(s) if s.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        })
    }

    pub(super) fn text(&self, index: usize, names: &[&str]) -> Option<&'a str> {
        match self.arg(index, names) {
            Some(ArgValue::Str(s)) => Some(s),
            _ => None,
        }
    }

    /// A dtype argument, given by name or by its `c10::ScalarType` number, which is what Kineto
    /// records.
    pub(super) fn dtype_arg(&self, index: usize, names: &[&str]) -> Given<DType> {
        self.given(index, names, |value| match value {
            ArgValue::Str(s) => DType::parse(s),
            ArgValue::Int(code) => scalar_type(*code),
            _ => None,
        })
    }

    /// The element type of a floating operand.
    pub(super) fn dtype(&self, t: &Tensor) -> Result<DType, UnknownCost> {
        t.dtype.or(self.default_dtype).ok_or(UnknownCost::NoDType)
    }

    /// Bytes of the distinct elements of a floating operand. A scalar without a recorded type may be a
    /// Python number, so it counts 0.
    pub(super) fn bytes(&self, t: &Tensor) -> Bytes {
        if t.shape.is_empty() && t.dtype.is_none() {
            return Ok(0);
        }
        Ok(distinct(t).saturating_mul(self.dtype(t)?.bytes()))
    }

    /// Bytes of an operand whose type PyTorch fixes (indices, masks, saved statistics), or 0 without
    /// the operand.
    pub(super) fn bytes_as(&self, t: Option<&Tensor>, dtype: DType) -> u64 {
        t.map_or(0, |t| {
            distinct(t).saturating_mul(t.dtype.unwrap_or(dtype).bytes())
        })
    }

    /// Bytes of an optional operand; 0 without it.
    pub(super) fn bytes_of(&self, t: Option<&Tensor>) -> Bytes {
        t.map_or(Ok(0), |t| self.bytes(t))
    }

    /// Bytes of a new, dense tensor of `elements` with the type of `like`.
    pub(super) fn dense(&self, elements: u64, like: &Tensor) -> Bytes {
        Ok(elements.saturating_mul(self.dtype(like)?.bytes()))
    }

    /// The size of the dimension that the argument `dim` names, or of the last one if it is not recorded.
    pub(super) fn dim_size(&self, index: usize, t: &Tensor) -> Result<u64, UnknownCost> {
        let dim = match self.int(index, &["dim"]) {
            Given::Value(dim) => axis(dim, t.shape.len())?,
            _ => t.shape.len().saturating_sub(1),
        };
        Ok(t.shape.get(dim).copied().unwrap_or(1))
    }

    /// Refuses a backward that has only the arguments of its forward.
    pub(super) fn forward_only(&self) -> Result<(), UnknownCost> {
        match self.backward {
            true => Err(UnknownCost::UnknownOp),
            false => Ok(()),
        }
    }

    /// The role of work with a single part: the forward, or the whole backward.
    pub(super) fn role(&self) -> Role {
        if self.backward { Role::Bwd } else { Role::Fwd }
    }

    /// The cost of these parts. Without element types, the FLOPs of math operators are still useful, so
    /// only their bytes are unknown. Other operators are memory-bound, so their cost is unknown without
    /// bytes.
    pub(super) fn cost_of(&self, parts: Vec<WorkPart>) -> Result<OpCost, UnknownCost> {
        let mut bytes_known = true;
        let mut roles = Vec::with_capacity(parts.len());
        for part in parts {
            let bytes = match part.bytes {
                Ok(bytes) => bytes,
                Err(UnknownCost::NoDType) if self.entry.family.is_math() => {
                    bytes_known = false;
                    0
                }
                Err(reason) => return Err(reason),
            };
            roles.push(RoleCost {
                role: part.role,
                flops: part.flops,
                bytes,
                dims: part.dims,
            });
        }
        Ok(OpCost {
            family: self.entry.family,
            class: self.entry.class,
            roles,
            note: None,
            bytes_known,
            at_most: false,
            sequence: 1,
        })
    }

    /// The cost of work with a single part.
    pub(super) fn one(&self, flops: u64, bytes: Bytes, dims: Dims) -> Result<OpCost, UnknownCost> {
        self.cost_of(vec![WorkPart::new(self.role(), flops, bytes, dims)])
    }

    /// The cost of a backward operator that takes its own arguments.
    pub(super) fn gradient(
        &self,
        flops: u64,
        bytes: Bytes,
        dims: Dims,
    ) -> Result<OpCost, UnknownCost> {
        self.cost_of(vec![WorkPart::new(Role::Bwd, flops, bytes, dims)])
    }
}

/// The cost of operators whose work depends on data that no profile has.
pub(super) fn data_dependent(_call: &Call) -> Result<OpCost, UnknownCost> {
    Err(UnknownCost::DataDependent)
}

/// An integer.
fn whole(value: &ArgValue) -> Option<i64> {
    match value {
        ArgValue::Int(v) => Some(*v),
        _ => None,
    }
}

/// The element type of a `c10::ScalarType` number (c10/core/ScalarType.h).
fn scalar_type(code: i64) -> Option<DType> {
    Some(match code {
        0 => DType::Uint8,
        1 => DType::Int8,
        2 => DType::Int16,
        3 => DType::Int32,
        4 => DType::Int64,
        5 => DType::Fp16,
        6 => DType::Fp32,
        7 => DType::Fp64,
        9 => DType::Complex64,
        10 => DType::Complex128,
        11 => DType::Bool,
        15 => DType::Bf16,
        23..=26 => DType::Fp8,
        _ => return None,
    })
}

/// The product, saturating; 1 without factors.
pub(super) fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    let mut zero = false;
    let all = factors.into_iter().fold(1_u64, |p, f| {
        zero |= f == 0;
        p.saturating_mul(f)
    });
    if zero { 0 } else { all }
}

/// The number of elements of a shape.
pub(crate) fn count(shape: &[u64]) -> u64 {
    product(shape.iter().copied())
}

/// The number of elements that a tensor occupies in memory. Expanded dimensions count once, and
/// overlapping windows (`as_strided`, `unfold`) count at most the memory they span.
pub(crate) fn distinct(t: &Tensor) -> u64 {
    let elements = count(&t.shape);
    let Some(strides) = t.strides.as_ref().filter(|s| s.len() == t.shape.len()) else {
        return elements;
    };
    let steps = t.shape.iter().zip(strides);
    let spanned = steps.fold(1_u64, |span, (&dim, &stride)| {
        span.saturating_add(dim.saturating_sub(1).saturating_mul(stride.unsigned_abs()))
    });
    let unexpanded = product(
        t.shape
            .iter()
            .zip(strides)
            .map(|(&dim, &stride)| if stride == 0 { dim.min(1) } else { dim }),
    );
    unexpanded.min(spanned)
}

/// The sum, saturating; the first unknown if there is one.
pub(super) fn total(parts: impl IntoIterator<Item = Bytes>) -> Bytes {
    let mut parts = parts.into_iter();
    parts.try_fold(0_u64, |sum, part| Ok(sum.saturating_add(part?)))
}

/// The sum, saturating.
pub(super) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0_u64, u64::saturating_add)
}

/// The shape that two shapes broadcast to.
pub(super) fn broadcast(a: &[u64], b: &[u64]) -> Result<Vec<u64>, UnknownCost> {
    let rank = a.len().max(b.len());
    let at = |shape: &[u64], from_last: usize| {
        shape
            .len()
            .checked_sub(from_last)
            .and_then(|i| shape.get(i))
            .copied()
            .unwrap_or(1)
    };
    (0..rank)
        .map(|i| match (at(a, rank - i), at(b, rank - i)) {
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            (x, y) if x == y => Ok(x),
            _ => Err(UnknownCost::BadArguments),
        })
        .collect()
}

/// The index of a dimension given by a PyTorch dimension number.
pub(super) fn axis(dim: i64, rank: usize) -> Result<usize, UnknownCost> {
    // A scalar accepts 0 and -1 as if it had one dimension.
    let rank = i64::try_from(rank.max(1)).map_err(|_| UnknownCost::BadArguments)?;
    let dim = if dim < 0 {
        dim.saturating_add(rank)
    } else {
        dim
    };
    if (0..rank).contains(&dim) {
        usize::try_from(dim).map_err(|_| UnknownCost::BadArguments)
    } else {
        Err(UnknownCost::BadArguments)
    }
}

/// Converts a size, which must not be negative.
pub(super) fn size(value: i64) -> Result<u64, UnknownCost> {
    u64::try_from(value).map_err(|_| UnknownCost::BadArguments)
}

/// Converts sizes.
pub(super) fn to_sizes(values: &[i64]) -> Result<Vec<u64>, UnknownCost> {
    values.iter().map(|&value| size(value)).collect()
}

/// The dimensions of work on `n` elements.
pub(super) fn elements(n: u64) -> Dims {
    Dims::Elements { numel: n }
}

/// The dimensions of work on rows that have `n` elements together.
pub(super) fn rows(n: u64, cols: u64) -> Dims {
    let rows = n.checked_div(cols).unwrap_or(0);
    Dims::Rows { rows, cols }
}

/// The type that PyTorch promotes a set of tensors to: the widest type of the highest category. Scalars
/// (0-dim) count only if no tensor with dimensions is in their category or above.
///
/// Profiles record a Python number as a 0-dim tensor of fp64 (or complex128). A Python number promotes other
/// operands no further than to the default type of its category, fp32, so a 0-dim fp64 counts as fp32 unless
/// all operands are fp64. Source: torch.result_type, "type promotion" in the tensor attributes documentation.
pub(super) fn promote(types: impl IntoIterator<Item = (DType, bool)>) -> Option<DType> {
    let mut dimensioned: Option<DType> = None;
    let mut scalar: Option<DType> = None;
    let mut number: Option<DType> = None;
    for (dtype, has_dims) in types {
        let slot = match (has_dims, dtype) {
            (true, _) => &mut dimensioned,
            (false, DType::Fp64 | DType::Complex128) => &mut number,
            (false, _) => &mut scalar,
        };
        *slot = Some(slot.map_or(dtype, |d| wider(d, dtype)));
    }
    let lift = |low: Option<DType>, high: Option<DType>| match (low, high) {
        (Some(d), Some(s)) if category(s) > category(d) => Some(wider(d, s)),
        (Some(d), _) => Some(d),
        (None, s) => s,
    };
    let tensors = lift(dimensioned, scalar);
    let number = match (tensors, number) {
        (None, number) => return number,
        (Some(DType::Fp64), Some(DType::Complex128)) => Some(DType::Complex128),
        (_, Some(DType::Complex128)) => Some(DType::Complex64),
        (_, number) => number.map(|_| DType::Fp32),
    };
    lift(tensors, number)
}

fn category(d: DType) -> u8 {
    match d {
        DType::Bool => 0,
        DType::Complex64 | DType::Complex128 => 3,
        d if d.is_float() => 2,
        _ => 1,
    }
}

fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        (DType::Fp16, DType::Bf16) | (DType::Bf16, DType::Fp16) => DType::Fp32,
        (DType::Int8, DType::Uint8) | (DType::Uint8, DType::Int8) => DType::Int16,
        _ if category(a) != category(b) => {
            if category(a) > category(b) {
                a
            } else {
                b
            }
        }
        _ if b.bytes() > a.bytes() => b,
        _ => a,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[u64], strides: Option<&[i64]>) -> Tensor {
        Tensor {
            shape: shape.to_vec(),
            dtype: Some(DType::Fp32),
            strides: strides.map(<[i64]>::to_vec),
        }
    }

    #[test]
    fn expanded_and_overlapping_elements_count_once() {
        assert_eq!(distinct(&tensor(&[12, 64, 96], Some(&[0, 96, 1]))), 6144);
        assert_eq!(
            distinct(&tensor(&[1024, 2048], Some(&[1, 1024]))),
            2_097_152
        );
        // 98 windows of 3 over 100 elements
        assert_eq!(distinct(&tensor(&[98, 3], Some(&[1, 1]))), 100);
        assert_eq!(distinct(&tensor(&[4, 0], Some(&[0, 1]))), 0);
        // Strides of another rank are ignored.
        assert_eq!(distinct(&tensor(&[4, 5], Some(&[0]))), 20);
    }

    #[test]
    fn sizes_saturate_and_zero_stays_zero() {
        assert_eq!(count(&[u64::MAX, 3]), u64::MAX);
        assert_eq!(count(&[u64::MAX, 3, 0]), 0);
        assert_eq!(count(&[]), 1);
    }

    #[test]
    fn broadcasting_follows_numpy() {
        assert_eq!(broadcast(&[8, 1, 64], &[4, 64]), Ok(vec![8, 4, 64]));
        assert_eq!(broadcast(&[], &[3]), Ok(vec![3]));
        assert_eq!(broadcast(&[2], &[3]), Err(UnknownCost::BadArguments));
        assert_eq!(broadcast(&[0], &[1]), Ok(vec![0]));
    }

    #[test]
    fn promotion_follows_pytorch() {
        use DType::*;
        let p = |types: &[(DType, bool)]| promote(types.iter().copied());
        assert_eq!(p(&[(Fp16, true), (Fp32, true)]), Some(Fp32));
        assert_eq!(p(&[(Fp16, true), (Bf16, true)]), Some(Fp32));
        assert_eq!(p(&[(Fp16, true), (Fp32, false)]), Some(Fp16));
        assert_eq!(p(&[(Int64, true), (Fp32, false)]), Some(Fp32));
        assert_eq!(p(&[(Int64, true), (Fp16, true)]), Some(Fp16));
        // A Python float is recorded as a 0-dim fp64.
        assert_eq!(p(&[(Int64, false), (Fp64, false)]), Some(Fp32));
        assert_eq!(p(&[(Int64, true), (Fp64, false)]), Some(Fp32));
        assert_eq!(p(&[(Fp16, false), (Fp64, false)]), Some(Fp16));
        assert_eq!(p(&[(Fp64, true), (Fp64, false)]), Some(Fp64));
        assert_eq!(p(&[(Fp64, false), (Fp64, false)]), Some(Fp64));
        assert_eq!(p(&[(Fp16, true), (Complex128, false)]), Some(Complex64));
        assert_eq!(p(&[(Fp64, true), (Complex128, false)]), Some(Complex128));
        assert_eq!(p(&[]), None);
    }

    #[test]
    fn axes_count_from_either_end() {
        assert_eq!(axis(-1, 3), Ok(2));
        assert_eq!(axis(0, 0), Ok(0));
        assert_eq!(axis(3, 3), Err(UnknownCost::BadArguments));
        assert_eq!(axis(i64::MIN, 3), Err(UnknownCost::BadArguments));
    }
}
