//! Arguments as tests write them: `"fp16[8, 64]"`, `"[8, 64]"`, `"none"`, `2`, `{ name = "x", ... }`.

use super::keys::ARGUMENT_KEYS;
use crate::base::DType;
use crate::base::schema::names;
use crate::base::toml::{Table, Value};
use crate::correlate::{Arg, ArgValue, Tensor};
use ::toml::de::DeValue;

/// Dimensions of a tensor; PyTorch allows 64.
pub(super) const MAX_RANK: usize = 64;

const FORMS: &str = "a tensor is \"fp16[8, 64]\", or \"[8, 64]\" when its type is not recorded; also \
                     \"none\", \"?\" (passed, not recorded), numbers, true, false, lists, \
                     { text = \"...\" }";

/// One argument of a test; `None` after a complaint.
pub(super) fn argument(value: &Value<'_>) -> Option<Arg> {
    let DeValue::Table(_) = value.raw() else {
        return Some(Arg {
            name: None,
            value: plain(value, true)?,
        });
    };
    let table = value.table()?;
    table.finish(&names(ARGUMENT_KEYS));
    let name = table.get_str("name").map(|n| n.value.to_owned());
    let value = match (table.get("value"), table.get_str("text")) {
        (Some(inner), None) => plain(&inner, true)?,
        (None, Some(text)) => ArgValue::Str(text.value.to_owned()),
        (None, None) => ArgValue::Tensor(spelled_out(&table)?),
        (Some(_), Some(_)) => {
            table.complain(table.span(), "both `value` and `text`", "");
            return None;
        }
    };
    Some(Arg { name, value })
}

fn plain(value: &Value<'_>, lists: bool) -> Option<ArgValue> {
    match value.raw() {
        DeValue::String(_) => {
            let text = value.str()?.value;
            let parsed = word(text);
            if parsed.is_none() {
                value.complain(format!("`{text}` is no argument"), FORMS);
            }
            parsed
        }
        DeValue::Integer(_) => value.int().map(|v| ArgValue::Int(v.value)),
        DeValue::Float(_) => value.float().map(|v| ArgValue::Float(v.value)),
        DeValue::Boolean(_) => value.bool().map(|v| ArgValue::Bool(v.value)),
        DeValue::Array(_) if lists => {
            let items = value.list()?;
            let items: Option<Vec<ArgValue>> = items.iter().map(|v| plain(v, false)).collect();
            items.map(ArgValue::List)
        }
        _ => value.wrong_type("an argument"),
    }
}

/// `fp16[8, 64]`, `[8, 64]`, `none`, `?`.
fn word(text: &str) -> Option<ArgValue> {
    match text.trim() {
        "none" => return Some(ArgValue::None),
        "?" => return Some(ArgValue::Unknown),
        _ => {}
    }
    let (dtype, dims) = text.trim().strip_suffix(']')?.split_once('[')?;
    let dtype = match dtype.trim() {
        "" => None,
        name => Some(DType::parse(name)?),
    };
    let dims = dims.trim();
    let shape: Option<Vec<u64>> = if dims.is_empty() {
        Some(Vec::new())
    } else {
        dims.split(',').map(|d| d.trim().parse().ok()).collect()
    };
    let shape = shape.filter(|s| s.len() <= MAX_RANK)?;
    Some(ArgValue::Tensor(Tensor {
        shape,
        dtype,
        strides: None,
    }))
}

/// `{ shape = [8, 64], dtype = "fp16", strides = [64, 1] }`.
fn spelled_out(table: &Table<'_>) -> Option<Tensor> {
    let ints = |key: &str| -> Option<Vec<i64>> {
        let list = table.get(key)?.list()?;
        list.iter().map(|v| v.int().map(|v| v.value)).collect()
    };
    if !table.has("shape") {
        table.complain(table.span(), "neither `value`, `text` nor `shape`", FORMS);
        return None;
    }
    let shape: Option<Vec<u64>> = ints("shape")?
        .into_iter()
        .map(|d| u64::try_from(d).ok())
        .collect();
    let Some(shape) = shape.filter(|s| s.len() <= MAX_RANK) else {
        table.complain(table.span(), "a dimension is not negative", "");
        return None;
    };
    let dtype = match table.get_str("dtype") {
        None => None,
        Some(name) => {
            let dtype = DType::parse(name.value);
            if dtype.is_none() {
                let title = format!("no element type `{}`", name.value);
                table.complain(name.span, title, "");
            }
            Some(dtype?)
        }
    };
    let strides = ints("strides");
    if strides.as_ref().is_some_and(|s| s.len() != shape.len()) {
        table.complain(table.span(), "one stride per dimension", "");
        return None;
    }
    Some(Tensor {
        shape,
        dtype,
        strides,
    })
}
