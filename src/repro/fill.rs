//! What the kinds of scripts put into their code.

use super::call::{MATMULS, MOST_ELEMENTS, ScriptCall, product_of, tensors, torch_name};
use crate::base::DType;
use crate::report::{CallArgument, FindingReport};

/// Operators that read an embedding table or compute its gradient.
pub(super) const EMBEDDINGS: &[&str] = &["embedding", "embedding_dense_backward"];

/// Operators of fused attention, forward.
pub(super) const ATTENTION: &[&str] = &[
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_flash_attention_forward",
    "_efficient_attention_forward",
];
/// Operators that take a norm of a tensor.
pub(super) const NORMS: &[&str] = &["norm", "linalg_vector_norm"];
/// Operators that reduce dimensions of a tensor.
pub(super) const REDUCTIONS: &[&str] = &[
    "sum",
    "mean",
    "amax",
    "amin",
    "logsumexp",
    "norm",
    "linalg_vector_norm",
];

/// Names and values, or why there is no script.
type Filled = Result<Vec<(&'static str, String)>, &'static str>;

/// For code that is complete.
pub(super) fn nothing(_: &FindingReport, _: &[ScriptCall]) -> Filled {
    Ok(Vec::new())
}

/// Batch, queries, keys and width of the heads of unfused attention, with the type: from the product whose result
/// or left operand are the scores.
pub(super) fn attention(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    match attention_sizes(calls) {
        Some((sizes, dtype)) => Ok(vec![
            ("sizes", format!("{sizes:?}")),
            ("dtype", dtype.to_owned()),
        ]),
        None => Err(
            "the profile does not show the size of the attention heads: it takes the product before or behind the \
             softmax, with shapes",
        ),
    }
}

fn attention_sizes(calls: &[ScriptCall]) -> Option<([u64; 4], &'static str)> {
    let product = calls
        .iter()
        .find(|call| MATMULS.contains(&call.operator.as_str()))?;
    let operands: Vec<(&[u64], Option<DType>)> = product.tensors().collect();
    let [.., (left, dtype), (right, _)] = operands.as_slice() else {
        return None;
    };
    let ([.., rows, inner], [.., inner_too, columns]) = (left, right) else {
        return None;
    };
    let softmax = calls
        .iter()
        .find(|call| call.operator.contains("softmax"))?;
    let (scores, _) = softmax.tensors().next()?;
    let [heads @ .., queries, keys] = scores else {
        return None;
    };
    let batch = product_of(heads)?;
    let width = if (rows, columns) == (queries, keys) && inner == inner_too {
        *inner
    } else if (rows, inner) == (queries, keys) && inner == inner_too {
        *columns
    } else {
        return None;
    };
    Some(([batch, *queries, *keys, width], name_of(*dtype)?))
}

/// Batch, heads of queries, heads of keys, queries, keys and width of fused attention, its type, and whether it is
/// causal.
fn fused_attention(calls: &[ScriptCall]) -> Option<([u64; 6], &'static str, bool)> {
    let call = calls.first()?;
    let tensors: Vec<(&[u64], Option<DType>)> = call.tensors().collect();
    let [([batch, b, c, width], dtype), ([_, d, e, _], _), ..] = tensors.as_slice() else {
        return None;
    };
    // These two have the heads behind the sequence.
    let heads_last = ["_flash_attention_forward", "_efficient_attention_forward"];
    let ((heads, queries), (shared, keys)) = match heads_last.contains(&call.operator.as_str()) {
        true => ((c, b), (e, d)),
        false => ((b, c), (d, e)),
    };
    if *shared == 0 || !heads.is_multiple_of(*shared) {
        return None;
    }
    let dtype = name_of(*dtype).filter(|name| name.contains("float"))?;
    let at = match call.operator.as_str() {
        "scaled_dot_product_attention" => Some(5),
        "_scaled_dot_product_flash_attention" => Some(4),
        "_scaled_dot_product_efficient_attention" | "_scaled_dot_product_cudnn_attention" => {
            Some(6)
        }
        "_flash_attention_forward" => Some(8),
        _ => None,
    };
    let causal = at.and_then(|at| call.arguments.get(at));
    let is_causal = matches!(causal, Some(CallArgument::Flag { value: true }));
    Some((
        [*batch, *heads, *shared, *queries, *keys, *width],
        dtype,
        is_causal,
    ))
}

const NO_HEADS: &str = "the profile does not have the batch, heads and lengths of the attention";

/// Sizes of fused attention, the kernel that ran, and the one to compare with.
pub(super) fn attention_kernels(finding: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let (present, other) = match finding.rule.as_str() {
        "layers/efficient-attention" => ("EFFICIENT_ATTENTION", "FLASH_ATTENTION"),
        _ => ("FLASH_ATTENTION", "CUDNN_ATTENTION"),
    };
    let mut values = sequences(finding, calls)?;
    values.extend([("present", present.to_owned()), ("other", other.to_owned())]);
    Ok(values)
}

/// Sizes of fused attention.
pub(super) fn sequences(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let (sizes, dtype, causal) = fused_attention(calls).ok_or(NO_HEADS)?;
    Ok(vec![
        ("sizes", format!("{sizes:?}")),
        ("dtype", dtype.to_owned()),
        ("causal", python_flag(causal)),
    ])
}

/// For operators that have rows to add.
pub(super) fn with_rows(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let first = calls.first().and_then(|call| call.tensors().next());
    match first {
        Some((shape, _)) if !shape.is_empty() => Ok(Vec::new()),
        _ => Err("the operator has no rows, so a call cannot have more of them"),
    }
}

/// The function of a reduction and the dimensions that it reduces.
pub(super) fn reduced(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let call = calls.first().ok_or(NO_DIMENSIONS)?;
    let (shape, dtype) = call.tensors().next().ok_or(NO_DIMENSIONS)?;
    if shape.is_empty() || !name_of(dtype).is_some_and(|name| name.contains("float")) {
        return Err("a script for reductions needs a tensor of floating-point numbers");
    }
    let dims = reduced_dims(call, shape.len()).ok_or(NO_DIMENSIONS)?;
    let function = match call.operator.as_str() {
        "norm" | "linalg_vector_norm" => "linalg.vector_norm",
        other => REDUCTIONS
            .iter()
            .find(|name| **name == other)
            .ok_or(NO_DIMENSIONS)?,
    };
    Ok(vec![
        ("function", function.to_owned()),
        ("dims", format!("{dims:?}")),
    ])
}

const NO_DIMENSIONS: &str = "the profile does not have the dimensions that the reduction goes over";

/// The dimensions that a reduction goes over, counted from the first; `None` where they are not known.
fn reduced_dims(call: &ScriptCall, rank: usize) -> Option<Vec<usize>> {
    let all = || Some((0..rank).collect());
    let at = if NORMS.contains(&call.operator.as_str()) {
        2
    } else {
        1
    };
    let whole = |argument: &CallArgument| match argument {
        CallArgument::Whole { value } => {
            let rank_too = i64::try_from(rank).ok()?;
            let dim = if *value < 0 {
                value.checked_add(rank_too)?
            } else {
                *value
            };
            usize::try_from(dim).ok().filter(|dim| *dim < rank)
        }
        _ => None,
    };
    match call.arguments.get(at) {
        Some(CallArgument::List { items }) if items.is_empty() => all(),
        Some(CallArgument::List { items }) => items.iter().map(whole).collect(),
        Some(dim @ CallArgument::Whole { .. }) => Some(vec![whole(dim)?]),
        // The forms without dimensions have at most the type of the result behind.
        None => all(),
        Some(CallArgument::Missing) if call.arguments.len() == at + 1 => all(),
        // Values were recorded, so that this one is `None`.
        Some(CallArgument::Missing)
            if matches!(call.arguments.get(at + 1), Some(CallArgument::Flag { .. })) =>
        {
            all()
        }
        _ => None,
    }
}

/// For findings whose fix is to compile.
pub(super) fn if_compiled(finding: &FindingReport, _: &[ScriptCall]) -> Filled {
    if_fix_has(finding, "torch.compile(")
}

/// For findings whose fix is another order of dimensions in memory.
pub(super) fn if_channels_last(finding: &FindingReport, _: &[ScriptCall]) -> Filled {
    if_fix_has(finding, "memory_format=torch.channels_last")
}

fn if_fix_has(finding: &FindingReport, words: &str) -> Filled {
    match finding.fix.contains(words) {
        true => Ok(Vec::new()),
        false => Err(
            "the fix of this finding is neither to compile nor to change the layout, and what it changes is not among \
             the operators of the profile",
        ),
    }
}

/// What grows, what is appended, and along which dimension.
pub(super) fn concatenation(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    const NO_PARTS: &str = "the profile does not have the shapes of what is concatenated";
    let call = calls.first().ok_or(NO_PARTS)?;
    let Some(
        [
            CallArgument::List { items },
            CallArgument::Whole { value: axis },
        ],
    ) = call.arguments.get(..2)
    else {
        return Err(NO_PARTS);
    };
    let tensors: Vec<(&[u64], Option<DType>)> = items.iter().flat_map(tensors).collect();
    let [(start, dtype), (part, _)] = tensors.as_slice() else {
        return Err("what is concatenated are not two tensors");
    };
    let dtype = name_of(*dtype).filter(|name| name.contains("float"));
    let (Some(dtype), true) = (dtype, start.len() == part.len()) else {
        return Err(NO_PARTS);
    };
    Ok(vec![
        ("start", format!("{start:?}")),
        ("part", format!("{part:?}")),
        ("axis", axis.to_string()),
        ("dtype", dtype.to_owned()),
    ])
}

/// Most products that are merged into one.
const MOST_MERGED: u64 = 16;

/// Rows, inner dimension and columns of products of one input, their type and their number.
pub(super) fn merged(finding: &FindingReport, calls: &[ScriptCall]) -> Filled {
    const NO_SIZES: &str = "the profile does not have the shapes of the products";
    // The number is in the words of the rule only.
    let before = finding.message.split(" products follow each other").next();
    let count = before.and_then(|text| text.rsplit(' ').next()?.parse::<u64>().ok());
    let count = count.filter(|n| (2..=MOST_MERGED).contains(n));
    let call = calls.first().ok_or(NO_SIZES)?;
    let matrices: Vec<(&[u64], Option<DType>)> = call
        .tensors()
        .filter(|(shape, _)| shape.len() >= 2)
        .collect();
    let ([.., (left, dtype), (right, _)], Some(count)) = (matrices.as_slice(), count) else {
        return Err(NO_SIZES);
    };
    let ([rows @ .., inner], [a, b]) = (left, right) else {
        return Err("the products have no weight that is a matrix");
    };
    let columns = if call.operator == "linear" { a } else { b };
    let (Some(rows), Some(dtype)) = (product_of(rows), name_of(*dtype)) else {
        return Err(NO_SIZES);
    };
    if !dtype.contains("float") {
        return Err("products of whole numbers have no script");
    }
    Ok(vec![
        ("sizes", format!("{:?}", [rows, *inner, *columns])),
        ("dtype", dtype.to_owned()),
        ("count", count.to_string()),
    ])
}

/// Bytes and direction of copies.
pub(super) fn copy(finding: &FindingReport, _: &[ScriptCall]) -> Filled {
    let facts = &finding.evidence.facts;
    let text = |name: &str| facts.iter().find(|fact| fact.name == name);
    let bytes = text("copy.mean_bytes").and_then(|fact| bytes(&fact.value));
    let Some(bytes) = bytes.filter(|bytes| *bytes >= 1.0 && *bytes <= 1e11) else {
        return Err("the report does not have the size of the copies");
    };
    let to_host = [&finding.place, &finding.subject, &finding.message]
        .iter()
        .any(|text| text.to_lowercase().contains("device to host"));
    Ok(vec![
        ("bytes", format!("{bytes:.0}")),
        ("to_host", python_flag(to_host)),
    ])
}

/// A number of bytes as reports print it: `9.63 MB`.
fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let factor = match unit {
        "bytes" | "byte" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    Some(number.replace(',', "").parse::<f64>().ok()? * factor)
}

/// Rows and width of an embedding table, the number of indices, and the type.
pub(super) fn embedding(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let sizes = calls.first().and_then(|call| {
        let tensors: Vec<(&[u64], Option<DType>)> = call.tensors().collect();
        let [(first, dtype), (indices, _), ..] = tensors.as_slice() else {
            return None;
        };
        let width = *first.last()?;
        let rows = match call.operator.as_str() {
            "embedding" => match first {
                [rows, _] => *rows,
                _ => return None,
            },
            _ => call.arguments.iter().find_map(|argument| match argument {
                CallArgument::Whole { value } => u64::try_from(*value).ok(),
                _ => None,
            })?,
        };
        let fits = rows > 0 && rows.checked_mul(width)? <= MOST_ELEMENTS;
        fits.then_some(([rows, width, product_of(indices)?], name_of(*dtype)?))
    });
    match sizes {
        Some((sizes, dtype)) => Ok(vec![
            ("sizes", format!("{sizes:?}")),
            ("dtype", dtype.to_owned()),
        ]),
        None => {
            Err("the profile does not have the shapes of the embedding table and of its indices")
        }
    }
}

/// Whether log_softmax is applied twice, or softmax and log are apart.
pub(super) fn log_softmax(finding: &FindingReport, _: &[ScriptCall]) -> Filled {
    let twice = finding.rule == "layers/double-log-softmax";
    Ok(vec![("twice", python_flag(twice))])
}

/// Rows and classes of the logits of a loss, and their type before the loss converts them.
pub(super) fn loss(_: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let logits = |call: &ScriptCall| -> Option<(u64, u64, &'static str)> {
        let (shape, dtype) = call.tensors().next()?;
        let [rows @ .., classes] = shape else {
            return None;
        };
        let name = name_of(dtype).filter(|name| name.contains("float"))?;
        Some((product_of(rows)?, *classes, name))
    };
    // The largest tensor of the loss are the logits; a conversion has them before, which is what counts.
    let all = calls.iter().filter_map(logits);
    let largest =
        all.max_by_key(|(rows, classes, name)| (rows.saturating_mul(*classes), *name != "float32"));
    match largest {
        Some((rows, classes, dtype)) if rows > 0 && classes > 1 => Ok(vec![
            ("sizes", format!("{:?}", [rows, classes])),
            ("dtype", dtype.to_owned()),
        ]),
        _ => Err("the profile does not have the shape of the logits"),
    }
}

/// The shape that is normalized, its type, and whether the mean is subtracted.
pub(super) fn norm(finding: &FindingReport, calls: &[ScriptCall]) -> Filled {
    let all = calls.iter().filter_map(|call| call.tensors().next());
    let largest = all.max_by_key(|(shape, _)| product_of(shape).unwrap_or(0));
    let Some(([rows @ .., width], dtype)) = largest else {
        return Err("the profile does not have the shape of what is normalized");
    };
    let (Some(rows), Some(dtype)) = (product_of(rows), name_of(dtype)) else {
        return Err("the profile does not have the shape of what is normalized");
    };
    // The rule has looked at all operators, of which the report has three, and chosen its advice accordingly.
    let has_mean = finding.fix.contains("The mean is subtracted")
        || calls
            .iter()
            .any(|call| matches!(call.operator.as_str(), "sub" | "rsub"));
    Ok(vec![
        ("sizes", format!("{:?}", [rows, *width])),
        ("dtype", dtype.to_owned()),
        ("has_mean", python_flag(has_mean)),
    ])
}

/// The optimizer, and whether it goes over its parameters one by one.
pub(super) fn optimizer(finding: &FindingReport, calls: &[ScriptCall]) -> Filled {
    if !calls
        .iter()
        .any(|call| call.tensors().any(|(shape, _)| !shape.is_empty()))
    {
        return Err("the profile does not have the shapes of the parameters");
    }
    let is_sgd = finding.message.starts_with("SGD ");
    let foreach = finding.rule == "layers/optimizer-foreach";
    Ok(vec![
        (
            "optimizer",
            match is_sgd {
                true => "SGD".to_owned(),
                false => "AdamW".to_owned(),
            },
        ),
        (
            "settings",
            match is_sgd {
                true => "{\"lr\": 1e-3, \"momentum\": 0.9}".to_owned(),
                false => "{\"lr\": 1e-3}".to_owned(),
            },
        ),
        ("foreach", python_flag(foreach)),
    ])
}

fn name_of(dtype: Option<DType>) -> Option<&'static str> {
    torch_name(dtype?.name())
}

fn python_flag(flag: bool) -> String {
    if flag { "True" } else { "False" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_reports_print_them() {
        for (text, wanted) in [
            ("9.63 MB", Some(9.63e6)),
            ("1.20 GB", Some(1.2e9)),
            ("64.0 kB", Some(64e3)),
        ] {
            assert_eq!(bytes(text), wanted, "{text}");
        }
        for text in ["", "9.63", "9.63 apples", "__import__('os') MB", "MB 3"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        let printed = crate::base::units::bytes(123_456_789.0);
        assert_eq!(bytes(&printed), Some(123e6), "{printed}");
    }
}
