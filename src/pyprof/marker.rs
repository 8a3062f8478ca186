//! Parses the texts that name an operator: markers of PyProf and ranges of `emit_nvtx`.

use crate::base::DType;
use crate::correlate::literal::{self, Literal};
use crate::correlate::{OpArgs, OpName, args};
use crate::cost::ops;

/// An operator with its arguments.
#[derive(Debug)]
pub(super) struct Operator {
    pub name: OpName,
    /// Whether the cost table has it.
    pub is_known: bool,
    /// Its arguments for the cost table; `None` if unknown.
    pub args: Option<OpArgs>,
    /// The same arguments as spelled in the marker; none in a range.
    pub marker_args: Vec<MarkerArg>,
    is_marker: bool,
}

/// An argument as spelled in the marker.
#[derive(Debug, Clone, Default)]
pub(super) struct MarkerArg {
    /// Empty for a positional one.
    pub name: String,
    /// `tensor`, `int`, `float`, `bool`, `tuple`, `list`, `str`, `NoneType`, ...
    pub kind: String,
    /// The shape of a tensor.
    pub shape: Option<Vec<i64>>,
    /// The element type of a tensor, as written.
    pub dtype: String,
    pub value: MarkerValue,
}

/// The value of a non-tensor argument, as far as it is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum MarkerValue {
    #[default]
    Other,
    Int(i64),
    Ints(Vec<i64>),
    Str(String),
}

/// The entries of a dictionary, or the leading ones of a text that is cut off.
pub(super) fn entries(text: &str) -> Vec<(Literal<'_>, Literal<'_>)> {
    match literal::parse(text) {
        Ok(Literal::Dict(entries)) => entries,
        _ => literal::leading_entries(text),
    }
}

impl Operator {
    /// Parses a marker; `None` for any other text.
    pub(super) fn of_marker(text: &str) -> Option<Operator> {
        let entries = entries(text);
        let get = |key: &str| literal::lookup(&entries, key);
        let name = OpName {
            module: get("mod")?.as_str()?.to_owned(),
            name: get("op")?.as_str()?.to_owned(),
        };
        let list = get("args");
        let items = list.and_then(Literal::items).unwrap_or_default();
        Some(Operator {
            is_known: ops::knows(&name),
            name,
            args: Some(list.and_then(args::of_marker).unwrap_or_default()),
            marker_args: items.iter().flat_map(MarkerArg::read_all).collect(),
            is_marker: true,
        })
    }

    /// The operator of a range with this name and these sizes, for example `[[64, 128], []]`.
    pub(super) fn of_range(name: &str, sizes: &str) -> Operator {
        let name = OpName {
            module: String::new(),
            name: name.to_owned(),
        };
        let is_known = ops::knows(&name);
        Operator {
            name,
            is_known,
            args: args::of_sizes(sizes).filter(|_| is_known),
            marker_args: Vec::new(),
            is_marker: false,
        }
    }

    pub(super) fn is_marker(&self) -> bool {
        self.is_marker
    }
}

impl MarkerArg {
    /// An argument, or the tensors in a list, which PyProf lists individually.
    fn read_all(entry: &Literal<'_>) -> Vec<MarkerArg> {
        let items = entry.get("value").and_then(Literal::items);
        let inside: Vec<MarkerArg> = items
            .into_iter()
            .flatten()
            .filter(|item| matches!(item, Literal::Dict(_)))
            .map(MarkerArg::read)
            .collect();
        if inside.is_empty() {
            vec![MarkerArg::read(entry)]
        } else {
            inside
        }
    }

    fn read(entry: &Literal<'_>) -> MarkerArg {
        let word = |key: &str| {
            let value = entry.get(key).and_then(Literal::as_str);
            value.unwrap_or_default().to_owned()
        };
        MarkerArg {
            name: word("name"),
            kind: word("type"),
            shape: entry.get("shape").and_then(ints),
            dtype: word("dtype"),
            value: match entry.get("value") {
                Some(Literal::Int(value)) => MarkerValue::Int(*value),
                Some(Literal::Str(value)) => MarkerValue::Str(value.to_string()),
                Some(value) => ints(value).map_or(MarkerValue::Other, MarkerValue::Ints),
                None => MarkerValue::Other,
            },
        }
    }

    pub(super) fn is_tensor(&self) -> bool {
        self.kind == "tensor" && self.shape.is_some()
    }

    /// The shape of a tensor.
    pub(super) fn tensor(&self) -> Option<&[i64]> {
        self.shape.as_deref().filter(|_| self.kind == "tensor")
    }

    /// The short name of the element type or of the type of a scalar: `fp32`, `int64`.
    pub(super) fn type_name(&self) -> &str {
        let written = if self.is_tensor() {
            &self.dtype
        } else {
            &self.kind
        };
        short_type(written)
    }
}

/// The short name of a type: `float32` -> `fp32`; unknown names are unchanged.
pub(super) fn short_type(written: &str) -> &str {
    match DType::parse(written) {
        Some(dtype) => dtype.name(),
        None => written,
    }
}

fn ints(value: &Literal<'_>) -> Option<Vec<i64>> {
    let items = value.items()?.iter();
    items
        .map(|item| match item {
            Literal::Int(value) => Some(*value),
            _ => None,
        })
        .collect()
}
