//! Parses the arguments of operator calls in the three formats of profiles: PyProf marker lists,
//! `sizes = [[..], ..]` of `emit_nvtx(record_shapes=True)`, and the `args` object of a Kineto event.
//! Each distinct text is parsed once.

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::literal::{self, Literal};
use super::model::{Arg, ArgValue, ArgsId, OpArgs, Tensor};
use super::python_frame;
use crate::base::DType;
use crate::profile::{KernelId, Profile, StrId, Strings};

/// Maximum number of dimensions of a tensor: PyTorch allows 64. Bounds the work for malicious files.
pub(crate) const MAX_RANK: usize = 64;

/// The parsed argument text of a range.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ParsedArgs {
    /// `None` when it names no argument at all.
    pub args: Option<ArgsId>,
    /// The innermost user line of a `Call stack`.
    pub line: Option<StrId>,
    /// A `Module Hierarchy`.
    pub module: Option<StrId>,
}

/// All argument lists of a profile, interned by text.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub table: Vec<OpArgs>,
    /// Per row of `table`: its class. Calls of one site have argument lists of one class.
    pub classes: Vec<u32>,
    by_class: FxHashMap<String, u32>,
    /// Per string of the profile: its parsed form; `None` until it is read.
    of_text: Vec<Option<ParsedArgs>>,
    /// Whether any event has a call stack (`with_stack=True`).
    pub call_stacks: bool,
}

impl Arguments {
    /// Reads the argument texts of ranges and messages, each distinct one once.
    pub(crate) fn read(&mut self, profile: &Profile, ranges: &[StrId], labels: &mut Strings) {
        let messages = profile.messages.iter().map(|m| m.args);
        self.of_text.resize(profile.strings.len(), None);
        for text in ranges.iter().copied().chain(messages) {
            if let Some(None) = self.of_text.get(text.idx()) {
                let read = self.read_text(profile.text(text), labels);
                if let Some(slot) = self.of_text.get_mut(text.idx()) {
                    *slot = Some(read);
                }
            }
        }
    }

    /// The parsed argument text of a range.
    pub(crate) fn of(&self, text: Option<StrId>) -> ParsedArgs {
        text.and_then(|t| *self.of_text.get(t.idx())?)
            .unwrap_or_default()
    }

    /// The messages recorded on kernel events, for the kernels that have one.
    pub(crate) fn messages(&self, profile: &Profile) -> FxHashMap<KernelId, ArgsId> {
        let messages = profile.messages.iter();
        messages
            .filter_map(|m| Some((m.kernel, self.of(Some(m.args)).args?)))
            .collect()
    }

    /// Adds the `args` list of a PyProf marker.
    pub(crate) fn add_marker(&mut self, list: &Literal<'_>) -> Option<ArgsId> {
        self.add(of_marker(list)?.items)
    }

    /// The site class of an argument list.
    pub(crate) fn class(&self, args: Option<ArgsId>) -> Option<u32> {
        args.and_then(|a| self.classes.get(a.idx()).copied())
    }

    fn read_text(&mut self, text: &str, labels: &mut Strings) -> ParsedArgs {
        if !text.starts_with('{') {
            return ParsedArgs {
                args: of_sizes(text).and_then(|args| self.add(args.items)),
                ..ParsedArgs::default()
            };
        }
        let Ok(event) = serde_json::from_str::<Map<String, Value>>(text) else {
            return ParsedArgs::default();
        };
        let word = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        self.call_stacks |= !word("Call stack").is_empty();
        let module = word("Module Hierarchy").trim();
        ParsedArgs {
            args: self.add(event_args(&event)),
            line: python_frame::innermost_of_call_stack(word("Call stack"))
                .map(|l| labels.intern(&l)),
            module: (!module.is_empty())
                .then(|| labels.intern(&super::range_syntax::bounded(module))),
        }
    }

    fn add(&mut self, items: Vec<Arg>) -> Option<ArgsId> {
        // A list without any information is treated as a missing list.
        if items.iter().all(|a| a.value == ArgValue::Unknown) {
            return None;
        }
        let args = OpArgs { items };
        let next = u32::try_from(self.by_class.len()).unwrap_or(u32::MAX);
        let class = *self.by_class.entry(class_key(&args)).or_insert(next);
        self.classes.push(class);
        self.table.push(args);
        Some(ArgsId::new(self.table.len() - 1))
    }
}

/// Parses the `args` list of a PyProf marker.
pub(crate) fn of_marker(list: &Literal<'_>) -> Option<OpArgs> {
    let items = list.items()?.iter().map(marker_arg).collect();
    Some(OpArgs { items })
}

/// Parses the `[[64, 128], []]` of `sizes = ..`; `None` if it contains no shape.
pub(crate) fn of_sizes(text: &str) -> Option<OpArgs> {
    let items = sizes(&literal::parse(text).ok()?)?;
    let known = items.iter().any(|a| a.value != ArgValue::Unknown);
    known.then_some(OpArgs { items })
}

/// The arguments of a range, from the text of [`HostRange::args`](crate::profile::HostRange::args).
pub(crate) fn shapes_of(text: &str) -> Option<OpArgs> {
    if !text.starts_with('{') {
        return of_sizes(text);
    }
    let event = serde_json::from_str::<Map<String, Value>>(text).ok()?;
    let items = event_args(&event);
    Some(OpArgs { items })
}

/// One entry of a PyProf argument list: `{'name', 'type', 'shape', 'dtype', 'value'}`.
fn marker_arg(entry: &Literal<'_>) -> Arg {
    let word = |key: &str| entry.get(key).and_then(Literal::as_str).unwrap_or_default();
    let value = entry.get("value");
    let value = match word("type") {
        "tensor" => entry
            .get("shape")
            .and_then(shape)
            .map_or(ArgValue::Unknown, |shape| {
                ArgValue::Tensor(Tensor {
                    strides: strides(entry, &shape),
                    shape,
                    dtype: DType::parse(word("dtype")),
                })
            }),
        // A list with anything but numbers is a list of arguments, not a shape.
        "list" if value.is_some_and(holds_arguments) => {
            let items = value.and_then(Literal::items).unwrap_or_default();
            ArgValue::List(items.iter().map(marker_item).collect())
        }
        "NoneType" => ArgValue::None,
        // Infinities and NaN are written as words.
        "float" => match value {
            Some(Literal::Str(s)) => s.parse().map_or(ArgValue::Unknown, ArgValue::Float),
            Some(other) => scalar(other),
            None => ArgValue::Unknown,
        },
        _ => value.map_or(ArgValue::Unknown, scalar),
    };
    let name = word("name");
    Arg {
        name: (!name.is_empty()).then(|| name.to_owned()),
        value,
    }
}

fn holds_arguments(list: &Literal<'_>) -> bool {
    let items = list.items().unwrap_or_default();
    items.iter().any(|item| matches!(item, Literal::Dict(_)))
}

fn marker_item(item: &Literal<'_>) -> ArgValue {
    match item {
        Literal::Dict(_) => marker_arg(item).value,
        other => scalar(other),
    }
}

/// The strides of a tensor. Only markers written by this tool contain them.
fn strides(entry: &Literal<'_>, shape: &[u64]) -> Option<Vec<i64>> {
    let items = entry.get("strides")?.items()?;
    let strides: Option<Vec<i64>> = items
        .iter()
        .map(|stride| match stride {
            Literal::Int(stride) => Some(*stride),
            _ => None,
        })
        .collect();
    strides.filter(|strides| strides.len() == shape.len())
}

fn scalar(value: &Literal<'_>) -> ArgValue {
    match value {
        Literal::None => ArgValue::None,
        Literal::Bool(b) => ArgValue::Bool(*b),
        Literal::Int(i) => ArgValue::Int(*i),
        Literal::Float(f) => ArgValue::Float(*f),
        Literal::Str(s) => ArgValue::Str(s.to_string()),
        Literal::List(items) | Literal::Tuple(items) => {
            ArgValue::List(items.iter().map(scalar).collect())
        }
        Literal::Dict(_) => ArgValue::Unknown,
    }
}

fn shape(value: &Literal<'_>) -> Option<Vec<u64>> {
    let dims = value.items().filter(|dims| dims.len() <= MAX_RANK)?;
    dims.iter()
        .map(|d| match d {
            Literal::Int(i) => u64::try_from(*i).ok(),
            _ => None,
        })
        .collect()
}

/// `[[64, 128], [], [[2], [3]]]`: shapes without types. `[]` may be a scalar, a tensor without
/// dimensions or no tensor at all, so it stays unknown.
fn sizes(list: &Literal<'_>) -> Option<Vec<Arg>> {
    let items = list.items()?;
    let positional = |value| Arg { name: None, value };
    Some(items.iter().map(|s| positional(size(s))).collect())
}

fn size(value: &Literal<'_>) -> ArgValue {
    let tensor = |shape| {
        ArgValue::Tensor(Tensor {
            shape,
            dtype: None,
            strides: None,
        })
    };
    match value.items() {
        None | Some([]) => ArgValue::Unknown,
        Some(items) => match shape(value) {
            Some(shape) => tensor(shape),
            None => ArgValue::List(items.iter().map(size).collect()),
        },
    }
}

/// Keys of a communication event that describe the transferred data, stored under the same names.
const MESSAGE_KEYS: [&str; 7] = [
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "In msg bytes",
    "Out msg bytes",
    "Group size",
    "dtype",
];

/// Keys of the event of a compiled kernel that tell its cost, stored under the same names.
const COST_KEYS: [&str; 2] = ["kernel_flop", "kernel_num_gb"];

fn event_args(event: &Map<String, Value>) -> Vec<Arg> {
    let list = |keys: &[&str]| {
        keys.iter()
            .find_map(|k| event.get(*k).and_then(Value::as_array))
            .map_or(&[][..], Vec::as_slice)
    };
    let dims = list(&["Input Dims", "Input dims"]);
    let types = list(&["Input type", "Input Types", "Input types"]);
    let strides = list(&["Input Strides"]);
    let concrete = list(&["Concrete Inputs"]);
    let count = dims.len().max(types.len()).max(concrete.len());
    let mut items: Vec<Arg> = (0..count)
        .map(|i| Arg {
            name: None,
            value: event_arg(
                dims.get(i),
                types.get(i).and_then(Value::as_str).unwrap_or_default(),
                strides.get(i),
                concrete.get(i).and_then(Value::as_str).unwrap_or_default(),
            ),
        })
        .collect();
    for key in MESSAGE_KEYS {
        let value = match event.get(key) {
            Some(Value::String(s)) => ArgValue::Str(s.clone()),
            Some(Value::Number(n)) => n.as_i64().map_or(ArgValue::Unknown, ArgValue::Int),
            _ => continue,
        };
        items.push(Arg {
            name: Some(key.to_owned()),
            value,
        });
    }
    for key in COST_KEYS {
        let value = match event.get(key) {
            Some(Value::Number(n)) => n.as_f64(),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        items.extend(value.map(|value: f64| Arg {
            name: Some(key.to_owned()),
            value: ArgValue::Float(value),
        }));
    }
    let group = event.get("Process Group Ranks").and_then(Value::as_str);
    if let Some(size) = group
        .and_then(listed)
        .filter(|_| event.get("Group size").is_none())
    {
        items.push(Arg {
            name: Some("Group size".to_owned()),
            value: ArgValue::Int(size),
        });
    }
    items
}

/// The number of ranks in a list such as `[0, 1, 2]`. PyTorch truncates long lists.
fn listed(ranks: &str) -> Option<i64> {
    let inside = ranks.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut count = 0_i64;
    for rank in inside.split(',') {
        rank.trim().parse::<u32>().ok()?;
        count += 1;
    }
    Some(count)
}

fn event_arg(
    dims: Option<&Value>,
    type_name: &str,
    strides: Option<&Value>,
    concrete: &str,
) -> ArgValue {
    let nested = |v: &Value| v.as_array().is_some_and(|a| a.iter().any(Value::is_array));
    if let Some(list) = dims.filter(|d| nested(d)).and_then(Value::as_array) {
        let stride = |i: usize| strides.and_then(|s| s.get(i));
        let items = list.iter().enumerate();
        return ArgValue::List(
            items
                .map(|(i, d)| event_tensor(Some(d), None, stride(i)))
                .collect(),
        );
    }
    let has_dims = dims
        .and_then(Value::as_array)
        .is_some_and(|d| !d.is_empty());
    // C++ types name tensors (`float`, `c10::BFloat16`); capitalised ones are TorchScript's names
    // of Python values (`Scalar`, `Int`, `GenericList`).
    let scripted = type_name.starts_with(|c: char| c.is_ascii_uppercase());
    let dtype = if scripted {
        None
    } else {
        DType::parse(type_name)
    };
    if has_dims || dtype.is_some() {
        return event_tensor(dims, dtype, strides);
    }
    match literal::parse(concrete) {
        Ok(value) => scalar(&value),
        Err(_) if concrete.is_empty() => ArgValue::Unknown,
        Err(_) => ArgValue::Str(concrete.to_owned()),
    }
}

fn event_tensor(dims: Option<&Value>, dtype: Option<DType>, strides: Option<&Value>) -> ArgValue {
    let numbers = |v: Option<&Value>| -> Option<Vec<i64>> {
        v?.as_array()?.iter().map(Value::as_i64).collect()
    };
    let shape: Option<Vec<u64>> = numbers(dims)
        .unwrap_or_default()
        .into_iter()
        .map(|d| u64::try_from(d).ok())
        .collect();
    let Some(shape) = shape.filter(|shape| shape.len() <= MAX_RANK) else {
        return ArgValue::Unknown;
    };
    let strides = numbers(strides).filter(|s| s.len() == shape.len());
    ArgValue::Tensor(Tensor {
        shape,
        dtype,
        strides,
    })
}

/// The class key of an argument list: shapes, dtypes, stride classes, and the scalars that determine
/// the work. Float values are ignored, because a learning rate changes every step.
fn class_key(args: &OpArgs) -> String {
    let mut key = String::new();
    for arg in &args.items {
        if let Some(name) = &arg.name {
            key.push_str(&format!("{name:?}="));
        }
        push_value(&mut key, &arg.value);
    }
    key
}

fn push_value(key: &mut String, value: &ArgValue) {
    match value {
        ArgValue::Tensor(tensor) => {
            let (dtype, shape) = (tensor.dtype, &tensor.shape);
            key.push_str(&format!("{dtype:?}{shape:?}{}", stride_class(tensor)));
        }
        ArgValue::List(items) => {
            key.push('[');
            items.iter().for_each(|item| push_value(key, item));
            key.push(']');
        }
        ArgValue::Float(_) => key.push_str("Float"),
        other => key.push_str(&format!("{other:?}")),
    }
    key.push(',');
}

/// The memory layout of a tensor, reduced to what affects kernels: 0 if contiguous (or not recorded),
/// else the order of its dimensions, which of them are expanded, and whether there are gaps.
fn stride_class(tensor: &Tensor) -> u64 {
    let Some(strides) = &tensor.strides else {
        return 0;
    };
    let mut dims: Vec<(i64, u64, u64)> = tensor
        .shape
        .iter()
        .zip(strides)
        .zip(0u64..)
        .filter(|((size, _), _)| **size > 1)
        .map(|((size, stride), at)| (*stride, *size, at))
        .collect();
    // Expanded dimensions take no memory, so the expected strides of the others must skip them.
    let expanded = dims
        .iter()
        .filter(|d| d.0 == 0)
        .fold(0u64, |code, d| code.wrapping_mul(17).wrapping_add(d.2 + 1));
    dims.retain(|d| d.0 != 0);
    dims.sort_by_key(|d| (std::cmp::Reverse(d.0), d.2));
    let in_order = dims.is_sorted_by_key(|d| d.2);
    let mut dense = 1i64;
    let mut gaps = false;
    for (stride, size, _) in dims.iter().rev() {
        gaps |= *stride != dense;
        dense = dense.saturating_mul(i64::try_from(*size).unwrap_or(i64::MAX));
    }
    let order = if in_order {
        0
    } else {
        dims.iter()
            .fold(1u64, |code, d| code.wrapping_mul(17).wrapping_add(d.2 + 1))
    };
    let spread = (order << 2) | if gaps { 2 } else { 0 };
    match expanded {
        0 => spread,
        dims => (spread.wrapping_mul(31).wrapping_add(dims) << 2) | 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Arguments, ParsedArgs) {
        let mut arguments = Arguments::default();
        let read = arguments.read_text(text, &mut Strings::default());
        (arguments, read)
    }

    #[test]
    fn shapes_of_too_many_dimensions_are_unknown() {
        let shape = ["1"; MAX_RANK + 1].join(", ");
        let sizes = format!("[[{shape}], [2]]");
        for text in [&sizes, &format!("{{\"Input Dims\": {sizes}}}")] {
            let (arguments, read) = read(text);
            let args = &arguments.table[read.args.unwrap().idx()];
            assert_eq!(args.tensors().count(), 1, "{text}");
        }
    }

    #[test]
    fn sizes_contain_shapes_without_types() {
        let (arguments, read) = read("[[64, 128], [], [[2], [3, 4]]]");
        let args = &arguments.table[read.args.unwrap().idx()];
        assert_eq!(args.items.len(), 3);
        assert_eq!(args.items[1].value, ArgValue::Unknown);
        let shapes: Vec<_> = args.tensors().map(|t| (t.shape.clone(), t.dtype)).collect();
        assert_eq!(
            shapes,
            [(vec![64, 128], None), (vec![2], None), (vec![3, 4], None)]
        );
    }

    #[test]
    fn empty_argument_lists_are_ignored() {
        assert!(read("[[], []]").1.args.is_none());
        assert!(read("not a list").1.args.is_none());
        assert!(read(r#"{"External id": 3}"#).1.args.is_none());
        assert!(read(r#"{"Input Dims": "#).1.args.is_none());
    }

    #[test]
    fn kineto_events_contain_types_strides_and_values() {
        let (arguments, read) = read(
            r#"{"Input Dims": [[10, 4], [], [], [[2], [3]], []],
                "Input type": ["c10::BFloat16", "Scalar", "long int", "TensorList", "ScalarList"],
                "Input Strides": [[4, 1], [], [], [[1], [1]], []],
                "Concrete Inputs": ["", "1e-05", "", "", "[1, 2]"]}"#,
        );
        let items = &arguments.table[read.args.unwrap().idx()].items;
        assert_eq!(
            items[0].value,
            ArgValue::Tensor(Tensor {
                shape: vec![10, 4],
                dtype: Some(DType::Bf16),
                strides: Some(vec![4, 1])
            })
        );
        assert_eq!(items[1].value, ArgValue::Float(1e-5));
        assert!(matches!(&items[2].value, ArgValue::Tensor(t) if t.shape.is_empty()));
        assert!(matches!(&items[3].value, ArgValue::List(l) if l.len() == 2));
        assert_eq!(
            items[4].value,
            ArgValue::List(vec![ArgValue::Int(1), ArgValue::Int(2)])
        );
    }

    #[test]
    fn torchscript_type_names_are_not_tensors() {
        let (arguments, read) =
            read(r#"{"Input Dims": [[3], [], []], "Input type": ["float", "Int", "Bool"]}"#);
        let items = &arguments.table[read.args.unwrap().idx()].items;
        assert_eq!(items[1].value, ArgValue::Unknown);
        assert_eq!(items[2].value, ArgValue::Unknown);
    }

    #[test]
    fn class_depends_on_shapes_types_dimension_order_and_integers() {
        let mut arguments = Arguments::default();
        let mut class = |text: &str| {
            let read = arguments.read_text(text, &mut Strings::default());
            arguments.class(read.args)
        };
        let event = |dims: &str, strides: &str, value: &str| {
            format!(
                r#"{{"Input Dims": [{dims}, []], "Input type": ["float", "Scalar"],
                    "Input Strides": [{strides}, []], "Concrete Inputs": ["", "{value}"]}}"#
            )
        };
        let base = class(&event("[8, 4]", "[4, 1]", "0.1"));
        assert_eq!(class(&event("[8, 4]", "[4, 1]", "0.2")), base);
        assert_ne!(class(&event("[8, 5]", "[5, 1]", "0.1")), base);
        assert_ne!(class(&event("[8, 4]", "[1, 8]", "0.1")), base);
        assert_ne!(class(&event("[8, 4]", "[0, 1]", "0.1")), base);
        assert_ne!(class(&event("[8, 4]", "[4, 1]", "3")), base);
        // 4 and 8 elements in memory.
        let rows = class(&event("[8, 4]", "[0, 1]", "0.1"));
        assert_ne!(class(&event("[8, 4]", "[1, 0]", "0.1")), rows);
        let gaps = class(&event("[8, 4]", "[64, 1]", "0.1"));
        assert_ne!(gaps, base);
        assert_eq!(class(&event("[8, 4]", "[128, 1]", "0.1")), gaps);
    }

    #[test]
    fn pyprof_arguments_have_types() {
        let text = "[{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float16'}, \
                    {'name': 'p', 'type': 'float', 'value': 'inf'}, \
                    {'name': '', 'type': 'NoneType', 'value': None}, \
                    {'name': '', 'type': 'tuple', 'value': (1, 1)}, \
                    {'name': '', 'type': 'tensor', 'shape': (-1,), 'dtype': 'float16'}]";
        let mut arguments = Arguments::default();
        let id = arguments
            .add_marker(&literal::parse(text).unwrap())
            .unwrap();
        let args = &arguments.table[id.idx()];
        assert_eq!(args.tensor(0, "").unwrap().dtype, Some(DType::Fp16));
        assert_eq!(args.get(9, "p"), Some(&ArgValue::Float(f64::INFINITY)));
        assert_eq!(args.items[2].value, ArgValue::None);
        assert_eq!(
            args.items[3].value,
            ArgValue::List(vec![ArgValue::Int(1), ArgValue::Int(1)])
        );
        assert_eq!(args.items[4].value, ArgValue::Unknown);
    }
}
