//! What the kinds of scripts put into their code.

use super::{Call, MATMULS, torch_name};
use crate::base::DType;
use crate::report::{CallArgument, FindingReport};

/// Operators that read an embedding table or compute its gradient.
pub(super) const EMBEDDINGS: &[&str] = &["embedding", "embedding_dense_backward"];

/// Names and values, or why there is no script.
type Filled = Result<Vec<(&'static str, String)>, &'static str>;

/// For code that is complete.
pub(super) fn nothing(_: &FindingReport, _: &[Call]) -> Filled {
    Ok(Vec::new())
}

/// Batch, queries, keys and width of the heads of unfused attention, with the type: from the product whose result
/// or left operand are the scores.
pub(super) fn attention(_: &FindingReport, calls: &[Call]) -> Filled {
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

fn attention_sizes(calls: &[Call]) -> Option<([u64; 4], &'static str)> {
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

/// Bytes and direction of copies.
pub(super) fn copy(finding: &FindingReport, _: &[Call]) -> Filled {
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
pub(super) fn embedding(_: &FindingReport, calls: &[Call]) -> Filled {
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
        let fits = rows > 0 && rows.checked_mul(width)? <= super::MOST_ELEMENTS;
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
pub(super) fn log_softmax(finding: &FindingReport, _: &[Call]) -> Filled {
    let twice = finding.rule == "layers/double-log-softmax";
    Ok(vec![("twice", python_flag(twice))])
}

/// Rows and classes of the logits of a loss, and their type before the loss converts them.
pub(super) fn loss(_: &FindingReport, calls: &[Call]) -> Filled {
    let logits = |call: &Call| -> Option<(u64, u64, &'static str)> {
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
pub(super) fn norm(finding: &FindingReport, calls: &[Call]) -> Filled {
    let all = calls.iter().filter_map(|call| call.tensors().next());
    let largest = all.max_by_key(|(shape, _)| product_of(shape).unwrap_or(0));
    let Some(([rows @ .., width], dtype)) = largest else {
        return Err("the profile does not have the shape of what is normalized");
    };
    let (Some(rows), Some(dtype)) = (product_of(rows), name_of(dtype)) else {
        return Err("the profile does not have the shape of what is normalized");
    };
    // The rule has looked at all operators, of which the report has three, and chosen its advice accordingly.
    let has_mean = finding.fix.contains("this is a layer norm")
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
pub(super) fn optimizer(finding: &FindingReport, calls: &[Call]) -> Filled {
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

fn product_of(sizes: &[u64]) -> Option<u64> {
    sizes
        .iter()
        .try_fold(1_u64, |product, n| product.checked_mul(*n))
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
