//! Products of which only some rows are used: a program without a backward pass selects positions of their result,
//! such as the last one of each sequence, and reads nothing else of it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::enclosing_ops::plain_name;
use super::range_paths::by_string;
use crate::correlate::args::shapes_of;
use crate::correlate::{ArgValue, Direction, OpArgs, SiteId, Tensor};
use crate::cost::{Costed, Dims, Family, GemmSize};
use crate::profile::CopyKind;

/// Maximum number of products that are examined, those with most time.
const MOST: usize = 64;

/// Rows and columns of a result; its view has as many columns.
type Size = (u64, u64);

/// A part of a tensor of some shape: dimension, first index, number of indices.
type Piece = (Vec<u64>, usize, u64, u64);

/// What is read of the tensors of one size.
#[derive(Debug, Default)]
struct Reads {
    pieces: BTreeSet<Piece>,
    /// Whether all of it may be.
    all: bool,
}

impl Reads {
    /// Rows that are read; `None` if that may be all of them.
    fn rows(&self, (rows, _): Size) -> Option<u64> {
        let of_piece = |(shape, dim, _, count): &Piece| {
            let size = shape.get(*dim).copied()?;
            rows.checked_div(size)?.checked_mul(*count)
        };
        let mut used = self.pieces.iter().map(of_piece);
        let used = used.try_fold(0_u64, |sum, rows| sum.checked_add(rows?))?;
        (!self.all && 0 < used && used < rows).then_some(used)
    }
}

/// The size of a forward product of activations with weights.
pub(super) fn forward_product(costed: &Costed, id: SiteId) -> Option<GemmSize> {
    let (site, cost) = (costed.run.site(id)?, costed.cost_of(id)?);
    let forward = matches!(site.direction, Direction::Fprop | Direction::Unknown);
    if cost.family != Family::Gemm || !forward || site.args_from_forward || cost.autotuning {
        return None;
    }
    let role = cost.cost.as_ref().ok()?.roles.first()?;
    match role.dims {
        Dims::Gemm(size) if size.batch == 1 => Some(size),
        _ => None,
    }
}

/// The rows used of each product of which not all are used, in a run without a backward pass.
///
/// Tensors are known by their sizes only. So every operator that reads a tensor of a product's size counts, whichever
/// tensor it is: a product is found only if all of them select rows or compute each row by itself.
pub(super) fn of(costed: &Costed) -> BTreeMap<SiteId, u64> {
    let run = &costed.run;
    let products = (0..run.sites.len()).map(SiteId::new);
    let products = products.filter_map(|id| Some((id, forward_product(costed, id)?)));
    let products = products.filter(|(_, size)| size.m > 1 && size.n > 1);
    // Sites with most time come first.
    let products: Vec<(SiteId, Size)> = products
        .map(|(id, size)| (id, (size.m, size.n)))
        .take(MOST)
        .collect();
    if products.is_empty() {
        return BTreeMap::new();
    }
    let mut reads: FxHashMap<Size, Reads> = FxHashMap::default();
    for (_, size) in &products {
        reads.entry(*size).or_default();
    }
    let ends: BTreeSet<String> = products.iter().map(|(_, (_, n))| format!("{n}]")).collect();
    let mentioned = by_string(run, |text| ends.iter().any(|end| text.contains(end)));
    let mut seen = FxHashSet::default();
    for range in &run.profile.ranges {
        if let Some(args) = range.args
            && mentioned.get(args.idx()) == Some(&true)
            && seen.insert((range.text, args))
            && let Some(args) = shapes_of(run.profile.text(args))
        {
            note(run.profile.text(range.text), &args, &mut reads);
        }
    }
    for copy in &run.profile.copies {
        if !matches!(copy.kind, CopyKind::HtoD | CopyKind::DtoD) {
            for ((rows, columns), reads) in &mut reads {
                let elements = rows.saturating_mul(*columns);
                let copied = [1, 2, 4, 8].map(|bytes| elements.saturating_mul(bytes));
                reads.all |= copied.contains(&copy.bytes);
            }
        }
    }
    let used = |size: &Size| reads.get(size).and_then(|reads| reads.rows(*size));
    let found = products.iter();
    found
        .filter_map(|(id, size)| Some((*id, used(size)?)))
        .collect()
}

/// Notes what an operator reads of its arguments.
fn note(name: &str, args: &OpArgs, reads: &mut FxHashMap<Size, Reads>) {
    let mut found: BTreeMap<Size, u32> = BTreeMap::new();
    for (position, arg) in args.items.iter().enumerate() {
        let (tensors, listed) = match &arg.value {
            ArgValue::List(items) => (items.as_slice(), true),
            value => (std::slice::from_ref(value), false),
        };
        for value in tensors {
            let ArgValue::Tensor(tensor) = value else {
                continue;
            };
            let Some(size) = size(tensor) else { continue };
            let Some(reads) = reads.get_mut(&size) else {
                continue;
            };
            let times = found.entry(size).or_default();
            *times += 1;
            match read(name, args, position, tensor) {
                Read::Nothing if !listed => {}
                Read::EachRow if !listed && *times == 1 => {}
                Read::Piece(piece) => {
                    reads.pieces.insert(piece);
                }
                _ => reads.all = true,
            }
        }
    }
}

/// The rows and columns of a tensor.
fn size(tensor: &Tensor) -> Option<Size> {
    let (columns, rows) = tensor.shape.split_last()?;
    let rows = rows.iter().copied().fold(1, u64::saturating_mul);
    Some((rows, *columns))
}

/// What an operator reads of a tensor.
enum Read {
    /// Nothing: it passes it on, as it is or in another type, or writes it.
    Nothing,
    /// Each row for the same row of its result, which has the same size.
    EachRow,
    Piece(Piece),
    All,
}

fn read(name: &str, args: &OpArgs, position: usize, tensor: &Tensor) -> Read {
    let Some(name) = name.strip_prefix("aten::") else {
        return Read::All;
    };
    let int = |at: usize| match args.get(at, "") {
        Some(ArgValue::Int(value)) => Some(*value),
        _ => None,
    };
    let shape = &tensor.shape;
    let dimension = || {
        let dim = int(1)?;
        let dim = if dim < 0 {
            dim + shape.len() as i64
        } else {
            dim
        };
        usize::try_from(dim).ok().filter(|dim| *dim < shape.len())
    };
    let last = shape.len().saturating_sub(1);
    match plain_name(name) {
        "detach" | "alias" | "contiguous" | "clone" | "to" | "to_copy" | "copy" | "empty_like"
        | "lift_fresh" => Read::Nothing,
        // What `select` and `slice` call.
        "as_strided" => Read::Nothing,
        "view" | "unsafe_view" | "reshape" => match args.get(1, "") {
            Some(ArgValue::List(sizes))
                if sizes.last().zip(shape.last()).is_some_and(
                    |(to, from)| matches!(to, ArgValue::Int(to) if u64::try_from(*to) == Ok(*from)),
                ) =>
            {
                Read::Nothing
            }
            _ => Read::All,
        },
        "div" | "mul" | "add" | "sub" | "tanh" => Read::EachRow,
        "softmax" | "log_softmax" if dimension() == Some(last) => Read::EachRow,
        // A weight of the same size.
        "mm" | "matmul" | "linear" if position == 1 => Read::Nothing,
        "addmm" if position == 2 => Read::Nothing,
        "select" => match dimension().zip(int(2)) {
            Some((dim, index)) if dim < last => part(shape, dim, (index, 1, 1)),
            _ => Read::All,
        },
        "slice" => match dimension() {
            Some(dim) => {
                let from = int(2).unwrap_or(0);
                let until = int(3).unwrap_or(i64::MAX);
                let step = int(4).unwrap_or(1);
                match slice(shape, dim, (from, until, step)) {
                    Read::Piece(_) if dim == last => Read::All,
                    read => read,
                }
            }
            None => Read::All,
        },
        _ => Read::All,
    }
}

/// `tensor[..., from:until:step, ...]`
fn slice(shape: &[u64], dim: usize, (from, until, step): (i64, i64, i64)) -> Read {
    let size = shape.get(dim).copied().unwrap_or(0) as i64;
    let inside = |at: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(0, size);
    let (from, until) = (inside(from), inside(until));
    let count = (until - from).max(0).checked_add(step - 1);
    match count.and_then(|count| count.checked_div(step)) {
        Some(count) if step > 0 => part(shape, dim, (from, count, step)),
        _ => Read::All,
    }
}

/// So many indices of a dimension, from the first one on.
fn part(shape: &[u64], dim: usize, (from, count, step): (i64, i64, i64)) -> Read {
    let size = shape.get(dim).copied().unwrap_or(0);
    let from = if from < 0 { from + size as i64 } else { from };
    match (u64::try_from(from), u64::try_from(count)) {
        (Ok(0), Ok(count)) if count == size && step == 1 => Read::Nothing,
        (Ok(from), Ok(count)) => Read::Piece((shape.to_vec(), dim, from, count)),
        _ => Read::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;
    use crate::profile::{DeviceId, MemoryCopy, MemoryKind, ProcessId, Span};

    /// A head of 100 classes for 3 sequences of 8 positions, and these operators after it, each with its sizes and values.
    fn head(after: &[(&str, &str, &str)]) -> ProfileBuilder {
        let mut b = ProfileBuilder::new();
        let product = ("aten::mm", "[[24, 16], [16, 100]]", r#""", """#);
        let view = (
            "aten::_unsafe_view",
            "[[24, 100], []]",
            r#""", "[3, 8, 100]""#,
        );
        for (row, (name, sizes, values)) in [product, view].iter().chain(after).enumerate() {
            let at = 1000 * row as i64;
            let dims: Vec<serde_json::Value> = serde_json::from_str(sizes).unwrap();
            let kind = |dims: &serde_json::Value| match dims.as_array().unwrap().first() {
                None => "\"Scalar\"",
                Some(first) if first.is_array() => "\"TensorList\"",
                Some(_) => "\"float\"",
            };
            let types = dims.iter().map(kind).collect::<Vec<_>>().join(", ");
            let args = format!(
                r#"{{"Input Dims": {sizes}, "Input type": [{types}], "Concrete Inputs": [{values}]}}"#
            );
            let args = b.profile.strings.intern(&args);
            b.range(name, at, at + 100).args = Some(args);
            if row == 0 {
                b.launch(at + 10);
            }
        }
        b
    }

    fn used(after: &[(&str, &str, &str)]) -> Option<u64> {
        of(&estimate_costs(head(after).run(), None))
            .into_values()
            .next()
    }

    const LOGITS: &str = "[[3, 8, 100], [], []]";

    #[test]
    fn rows_of_selected_positions_are_counted() {
        let last = ("aten::select", LOGITS, r#""", "1", "-1""#);
        assert_eq!(used(&[last]), Some(3));
        assert_eq!(
            used(&[last, ("aten::select", LOGITS, r#""", "-2", "7""#)]),
            Some(3)
        );
        assert_eq!(
            used(&[last, ("aten::select", LOGITS, r#""", "1", "0""#)]),
            Some(6)
        );
        let slice = |values| ("aten::slice", "[[3, 8, 100], [], [], [], []]", values);
        let all = slice(r#""", "0", "0", "9223372036854775807", "1""#);
        assert_eq!(used(&[all, last]), Some(3));
        assert_eq!(
            used(&[slice(r#""", "1", "-2", "9223372036854775807", "1""#)]),
            Some(6)
        );
        assert_eq!(used(&[slice(r#""", "1", "0", "7", "2""#)]), Some(12));
        assert_eq!(used(&[slice(r#""", "2", "0", "50", "1""#)]), None);
        assert_eq!(used(&[all]), None);
        assert_eq!(used(&[]), None);
    }

    #[test]
    fn operators_that_read_every_row_are_respected() {
        let last = ("aten::select", LOGITS, r#""", "1", "-1""#);
        let scaled = ("aten::div", "[[3, 8, 100], []]", r#""", """#);
        let half = ("aten::to", "[[3, 8, 100], []]", r#""", "15""#);
        let softmax = ("aten::softmax", LOGITS, r#""", "-1", """#);
        let weight = ("aten::mm", "[[5, 24], [24, 100]]", r#""", """#);
        assert_eq!(used(&[half, scaled, softmax, weight, last]), Some(3));
        for other in [
            ("aten::argmax", LOGITS, r#""", "-1", "False""#),
            ("aten::softmax", LOGITS, r#""", "1", """#),
            ("aten::add", "[[3, 8, 100], [3, 8, 100]]", r#""", """#),
            ("aten::linear", "[[3, 8, 100], [4, 100]]", r#""", """#),
            ("aten::view", "[[3, 8, 100], []]", r#""", "[3, 800]""#),
            ("aten::select", LOGITS, r#""", "2", "5""#),
            (
                "aten::cat",
                "[[[3, 8, 100], [3, 8, 100]], []]",
                r#""", "0""#,
            ),
            ("my::sampler", LOGITS, r#""", "", """#),
        ] {
            assert_eq!(used(&[last, other]), None, "{other:?}");
        }
    }

    #[test]
    fn results_that_are_copied_to_the_host_are_used() {
        let mut b = head(&[("aten::select", LOGITS, r#""", "1", "-1""#)]);
        b.profile.copies.push(MemoryCopy {
            span: Span {
                start: 5000,
                end: 5010,
            },
            device: DeviceId(0),
            process: ProcessId(0),
            stream: 7,
            correlation: None,
            bytes: 24 * 100 * 4,
            kind: CopyKind::DtoH,
            src: MemoryKind::Device,
            dst: MemoryKind::Pageable,
            captured: None,
        });
        assert_eq!(of(&estimate_costs(b.run(), None)).len(), 0);
    }
}
