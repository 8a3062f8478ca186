//! The arguments of tests: `"fp16[8, 64]"`, `"[8, 64]"`, `"none"`, `2`, `{ name = "x", ... }`.

use ::toml::de::DeValue;

use crate::base::DType;
use crate::base::toml::{Item, Table};
use crate::correlate::args::MAX_RANK;
use crate::correlate::{Arg, ArgValue, Tensor};

const FORMS: &str = "a tensor is \"fp16[8, 64]\", or \"[8, 64]\" when its type is not recorded; also \
                     \"none\", \"?\" (passed, not recorded), numbers, true, false, lists, \
                     { text = \"...\" }";

/// One argument of a test; `None` if a message was reported.
pub(super) fn argument(value: &Item<'_>) -> Option<Arg> {
    let DeValue::Table(_) = value.raw() else {
        return Some(Arg {
            name: None,
            value: plain(value)?,
        });
    };
    let table = value.table()?;
    let name = table.get_text("name");
    let value = match (table.get("value"), table.get_text("text")) {
        (Some(inner), _) => plain(&inner)?,
        (None, Some(text)) => ArgValue::Str(text),
        (None, None) => ArgValue::Tensor(spelled_out(&table)?),
    };
    Some(Arg { name, value })
}

fn plain(value: &Item<'_>) -> Option<ArgValue> {
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
        DeValue::Array(_) => {
            let items = value.list()?;
            let items: Option<Vec<ArgValue>> = items.iter().map(plain).collect();
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
    let shape = ints("shape")?.into_iter().map(u64::try_from);
    let shape = shape.collect::<Result<Vec<u64>, _>>().ok()?;
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

/// Arguments for tests.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod testing {
    use super::word;
    use crate::correlate::{Arg, ArgValue, OpArgs};

    /// `fp16[4, 6], ?, bias = none`: arguments as in cost files; a list is `(1, 2)`, a text `'same'`.
    pub(crate) fn arguments(text: &str) -> OpArgs {
        let items = parts(text).map(|item| {
            let named = item.split_once(" = ");
            Arg {
                name: named.map(|(name, _)| name.to_owned()),
                value: value(named.map_or(item, |(_, value)| value)),
            }
        });
        OpArgs {
            items: items.collect(),
        }
    }

    fn parts(text: &str) -> impl Iterator<Item = &str> {
        let (mut depth, mut quoted) = (0, false);
        let items = text.split(move |c| {
            match c {
                '[' | '(' => depth += 1,
                ']' | ')' => depth -= 1,
                '\'' => quoted = !quoted,
                _ => {}
            }
            c == ',' && depth == 0 && !quoted
        });
        items.map(str::trim).filter(|item| !item.is_empty())
    }

    fn value(text: &str) -> ArgValue {
        let within = |open, close| text.strip_prefix(open)?.strip_suffix(close);
        if let Some(items) = within('(', ')') {
            return ArgValue::List(parts(items).map(value).collect());
        }
        if let Some(text) = within('\'', '\'') {
            return ArgValue::Str(text.into());
        }
        let int = || text.parse().map(ArgValue::Int);
        let float = || text.parse().map(ArgValue::Float);
        let flag = || text.parse().map(ArgValue::Bool);
        let number = || int().or_else(|_| float());
        word(text).unwrap_or_else(|| number().or_else(|_| flag()).unwrap())
    }
}
