//! Converts operators of torch.profiler traces to PyProf markers: the same dictionaries, so that one
//! parser reads both. Tensors also have their strides, if the trace records them.

use super::python::{push_list, push_str, tuple};
use crate::base::DType;
use crate::correlate::python_frame::PythonFrame;
use crate::correlate::{Arg, ArgValue, LayerId, OpArgs, OpName, Run, Tensor};
use crate::profile::StrId;

/// A marker's text.
pub(super) fn marker(op: &OpName, args: &OpArgs) -> String {
    let mut out = String::from("{'mod': ");
    push_str(&mut out, &op.module);
    out.push_str(", 'op': ");
    push_str(&mut out, &op.name);
    out.push_str(", 'args': ");
    push_list(&mut out, &args.items, push_arg);
    out.push('}');
    out
}

fn push_arg(out: &mut String, arg: &Arg) {
    out.push_str("{'name': ");
    push_str(out, arg.name.as_deref().unwrap_or_default());
    push_value(out, &arg.value);
    out.push('}');
}

/// `, 'type': 'int', 'value': 3`.
fn push_value(out: &mut String, value: &ArgValue) {
    let plain = |out: &mut String, kind: &str, value: &str| {
        out.push_str(&format!(", 'type': '{kind}', 'value': {value}"));
    };
    match value {
        ArgValue::Tensor(tensor) => push_tensor(out, tensor),
        ArgValue::List(items) => {
            plain(out, "list", "");
            push_list(out, items, push_item);
        }
        ArgValue::Int(value) => plain(out, "int", &value.to_string()),
        ArgValue::Float(value) if value.is_finite() => plain(out, "float", &format!("{value:?}")),
        // Formatted like PyProf, so that Python can read the line.
        ArgValue::Float(value) => plain(out, "float", &format!("'{value}'").to_lowercase()),
        ArgValue::Bool(value) => plain(out, "bool", if *value { "True" } else { "False" }),
        ArgValue::Str(text) => {
            plain(out, "str", "");
            push_str(out, text);
        }
        ArgValue::None => plain(out, "NoneType", "None"),
        ArgValue::Unknown => out.push_str(", 'type': ''"),
    }
}

/// Appends an item of a list: a number as it is, any other value as an unnamed argument.
fn push_item(out: &mut String, item: &ArgValue) {
    match item {
        ArgValue::Int(value) => out.push_str(&value.to_string()),
        ArgValue::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
        ArgValue::None => out.push_str("None"),
        other => {
            out.push_str("{'name': ''");
            push_value(out, other);
            out.push('}');
        }
    }
}

fn push_tensor(out: &mut String, tensor: &Tensor) {
    let dtype = tensor.dtype.map_or("", in_python);
    let shape = tuple(&tensor.shape);
    out.push_str(&format!(
        ", 'type': 'tensor', 'shape': {shape}, 'dtype': '{dtype}'"
    ));
    if let Some(strides) = &tensor.strides {
        out.push_str(&format!(", 'strides': {}", tuple(strides)));
    }
}

/// The PyTorch name of a type.
fn in_python(dtype: DType) -> &'static str {
    match dtype {
        DType::Fp64 => "float64",
        DType::Fp32 => "float32",
        DType::Fp16 => "float16",
        DType::Bf16 => "bfloat16",
        other => other.name(),
    }
}

/// The user's source lines around a launch, outermost first: from Python frames, or from the call stack
/// that traces of 2021 record at each operator.
pub(super) fn trace(run: &Run, frames: &[StrId], stack: Option<StrId>) -> Vec<String> {
    let user = |text: &str| {
        let frame = PythonFrame::parse(text)?;
        (!frame.is_internal()).then(|| frame.short())
    };
    let lines: Vec<String> = frames
        .iter()
        .filter_map(|frame| user(run.profile.text(*frame)))
        .collect();
    if !lines.is_empty() {
        return lines;
    }
    let stack = stack.and_then(|args| call_stack(run.profile.text(args)));
    let mut lines: Vec<String> = stack
        .unwrap_or_default()
        .split(';')
        .filter_map(user)
        .collect();
    lines.reverse();
    lines
}

/// The call stack in the arguments of an operator in traces of 2021.
pub(super) fn call_stack(args: &str) -> Option<String> {
    if !args.contains("\"Call stack\"") {
        return None;
    }
    let event: serde_json::Map<String, serde_json::Value> = serde_json::from_str(args).ok()?;
    let stack = event.get("Call stack")?.as_str()?;
    (!stack.is_empty()).then(|| stack.to_owned())
}

/// The name of a layer, if the user chose it.
pub(super) fn layer(run: &Run, id: LayerId) -> Option<String> {
    use crate::correlate::LayerSource::{Fsdp, Module, UserRange};
    let layer = run.layer(id)?;
    matches!(layer.source, Fsdp | Module | UserRange).then(|| layer.name.clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::pyprof::marker::Operator;

    #[test]
    fn markers_round_trip() {
        let tensor = |strides: Option<Vec<i64>>| {
            ArgValue::Tensor(Tensor {
                shape: vec![8, 4],
                dtype: Some(DType::Bf16),
                strides,
            })
        };
        let items: Vec<Arg> = [
            tensor(Some(vec![1, 8])),
            tensor(None),
            ArgValue::List(vec![tensor(None), tensor(Some(vec![0, 1]))]),
            ArgValue::List(vec![ArgValue::Int(1), ArgValue::Bool(true), ArgValue::None]),
            ArgValue::Int(-3),
            ArgValue::Float(1e-5),
            ArgValue::Float(f64::INFINITY),
            ArgValue::Float(f64::NEG_INFINITY),
            ArgValue::Bool(false),
            ArgValue::Str("it's \"\\".into()),
            ArgValue::None,
            ArgValue::Unknown,
        ]
        .into_iter()
        .map(|value| Arg { name: None, value })
        .chain([Arg {
            name: Some("Group size".into()),
            value: ArgValue::Int(8),
        }])
        .collect();
        let args = OpArgs { items };
        let op = OpName {
            module: "aten".into(),
            name: "a'b".into(),
        };
        let text = marker(&op, &args);
        let read = Operator::of_marker(&text).unwrap();
        assert_eq!(read.name, op);
        let read_args = read.args.unwrap();
        let unnamed: Vec<Arg> = read_args
            .items
            .iter()
            .map(|a| Arg {
                name: a.name.clone().filter(|n| !n.is_empty()),
                value: a.value.clone(),
            })
            .collect();
        assert_eq!(unnamed, args.items);
        // Tensors in a list count as arguments.
        assert_eq!(read.marker_args.iter().filter(|a| a.is_tensor()).count(), 4);
    }
}
