//! The reference cases of operator costs, each evaluated in three ways: as the operator with its
//! arguments, as PyTorch's profiler records the call, and as a PyProf marker.
//!
//! They are in `reference/golden_ops.json` below the folder named by `PYPROF_ADVISE_SHARED`.

use crate::shared;
use pyprof_advise::base::DType;
use pyprof_advise::correlate::{Arg, ArgValue, Direction, OpArgs, OpName, Tensor};
use pyprof_advise::cost::{Dims, OpCost, Role, UnknownCost, ops};
use serde_json::Value;

/// Cases without a known cost, with the reason. The test fails when one of them starts to pass.
const NOT_YET: &[(&str, &str)] = &[
    (
        "memcpy_DtoD",
        "no operator: copies carry their bytes themselves, checked below",
    ),
    (
        "memset_device",
        "no operator: sets carry their bytes themselves, checked below",
    ),
    (
        "nll_loss_bwd_f32",
        "counts the fill of the gradient, which is a memory set of its own; checked in `cost::ops`",
    ),
    (
        "view_no_kernel",
        "a view is no operator: checked by itself below",
    ),
];

const NO_STRIDE: &str = "the marker holds neither stride nor padding: another output size follows";
const NO_DIM: &str = "the marker holds no dimension: a whole reduction follows";

/// Markers whose arguments differ from those of their call, so that another cost is correct.
const MARKER_DIFFERS: &[(&str, &str)] = &[
    ("conv_transpose2d_s2_fwd", NO_STRIDE),
    ("conv_transpose2d_s2_dgrad", NO_STRIDE),
    ("conv_transpose2d_s2_wgrad", NO_STRIDE),
    ("conv_transpose2d_s2_bias_grad", NO_STRIDE),
    ("conv_transpose2d_grouped_op1_fwd", NO_STRIDE),
    ("conv_transpose2d_grouped_op1_dgrad", NO_STRIDE),
    ("conv_transpose1d_dgrad", NO_STRIDE),
    ("conv_transpose1d_wgrad", NO_STRIDE),
    ("conv_transpose1d_bias_grad", NO_STRIDE),
    ("red_sum_dim_keep_bf16", NO_DIM),
    ("red_mean_lastdim_f32", NO_DIM),
    ("red_amax_f32", NO_DIM),
    ("red_argmax_i64_out", NO_DIM),
    ("red_max_dim_values_indices", NO_DIM),
];

/// Records with less data than the call: lists of tensors without element types.
const RECORD_DIFFERS: &[(&str, &str)] = &[(
    "cat_mixed_dtype_promotes",
    "a list's element types are not recorded, and here they differ",
)];

/// An operator call and its source.
struct Call {
    op: OpName,
    args: OpArgs,
    direction: Direction,
    args_from_forward: bool,
    default_dtype: Option<DType>,
}

impl Call {
    fn price(&self) -> Result<OpCost, UnknownCost> {
        ops::cost(
            &self.op,
            &self.args,
            self.direction,
            self.args_from_forward,
            self.default_dtype,
        )
    }
}

#[test]
fn reference_cases_have_the_expected_costs() {
    let Some(path) = shared::path("reference/golden_ops.json") else {
        return;
    };
    let text = std::fs::read_to_string(path).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    let mut checked = [0; 3];
    for case in file["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let ways = [Some(by_arguments(case)), by_record(case), by_marker(case)];
        let excused = [
            lists(NOT_YET, id),
            lists(NOT_YET, id) || lists(RECORD_DIFFERS, id),
            lists(NOT_YET, id) || lists(MARKER_DIFFERS, id),
        ];
        for (i, (call, excused)) in ways.iter().zip(excused).enumerate() {
            let Some(call) = call else { continue };
            checked[i] += 1;
            match (compare(case, call, i == 2), excused) {
                (Ok(()), true) => wrong.push(format!("{id} way {i}: passes, take it off the list")),
                (Err(why), false) => wrong.push(format!("{id} way {i}: {why}")),
                _ => {}
            }
        }
    }
    eprintln!("priced by arguments, record, marker: {checked:?}");
    assert!(
        wrong.is_empty(),
        "{}\n{} wrong",
        wrong.join("\n"),
        wrong.len()
    );
    assert!(
        checked[0] > 100,
        "the file holds more cases than {checked:?}"
    );
}

#[test]
fn views_are_not_operators() {
    for name in [
        "view",
        "t",
        "transpose",
        "permute",
        "reshape",
        "expand",
        "slice",
        "select",
        "detach",
    ] {
        let op = named("aten", name);
        assert!(!ops::knows(&op), "{name}");
    }
}

fn lists(list: &[(&str, &str)], id: &str) -> bool {
    list.iter().any(|(listed, _)| *listed == id)
}

fn compare(case: &Value, call: &Call, marker: bool) -> Result<(), String> {
    let cost = call.price().map_err(|why| format!("{why:?}"))?;
    let role = case["role"].as_str().unwrap();
    let role = match role {
        "dgrad" => Some(Role::Dgrad),
        "wgrad" => Some(Role::Wgrad),
        "bias_grad" => Some(Role::BiasGrad),
        _ => None,
    };
    let (flops, bytes) = match role {
        // With the forward's arguments, a call computes all gradients; the case is one of them.
        Some(role) if marker => {
            let part = cost.roles.iter().find(|r| r.role == role);
            let part = part.ok_or(format!("no {role:?} in {cost:?}"))?;
            (part.flops, part.bytes)
        }
        _ => (cost.flops(), cost.bytes()),
    };
    let expected = (
        case["expected_flops"].as_u64().unwrap(),
        case["expected_bytes"].as_u64().unwrap(),
    );
    if (flops, bytes) != expected {
        return Err(format!(
            "{flops} FLOPs {bytes} bytes, expected {expected:?}"
        ));
    }
    if !cost.bytes_known {
        return Err("bytes unknown".into());
    }
    if let Some(want) = case["scalars"]["wire_bytes_per_rank"].as_u64() {
        let dims = cost.roles[0].dims;
        let sent = match dims {
            Dims::Message { wire_bytes, .. } => wire_bytes,
            _ => None,
        };
        if sent != Some(want) {
            return Err(format!("{dims:?}, expected {want} bytes on the wire"));
        }
    }
    Ok(())
}

fn named(module: &str, name: &str) -> OpName {
    OpName {
        module: module.into(),
        name: name.into(),
    }
}

fn direction(case: &Value) -> Direction {
    match case["direction"].as_str().unwrap() {
        "bwd" => Direction::Bprop,
        "opt" => Direction::Update,
        _ => Direction::Fprop,
    }
}

/// `aten::mm`, `torch.nn.LSTMCell.forward`, `fused_adam_cuda.adam`.
fn operator(case: &Value) -> OpName {
    let full = case["aten_op"].as_str().unwrap();
    if let Some((module, name)) = full.split_once("::") {
        return named(module, name);
    }
    match full.rsplit_once('.') {
        Some((module, name)) => named(module.trim_start_matches("torch.nn."), name),
        None => named("", full),
    }
}

fn call(case: &Value, op: OpName, items: Vec<Arg>) -> Call {
    Call {
        op,
        args: OpArgs { items },
        direction: direction(case),
        args_from_forward: false,
        default_dtype: None,
    }
}

fn by_arguments(case: &Value) -> Call {
    let mut items: Vec<Arg> = positional(case["args"].as_array().unwrap().iter().map(argument));
    items.extend(described(case));
    call(case, operator(case), items)
}

fn positional(values: impl Iterator<Item = ArgValue>) -> Vec<Arg> {
    values.map(|value| Arg { name: None, value }).collect()
}

/// Arguments that a case describes in words: a collective's message, a recurrent layer's sizes.
fn described(case: &Value) -> Vec<Arg> {
    let s = &case["scalars"];
    let keyword = |name: &str, value| Arg {
        name: Some(name.into()),
        value,
    };
    if s["collective"].is_string() {
        return [
            ("Collective name", "collective"),
            ("Group size", "group_size"),
            ("In msg nelems", "In msg nelems"),
            ("Out msg nelems", "Out msg nelems"),
            ("dtype", "dtype"),
        ]
        .iter()
        .map(|(name, key)| keyword(name, argument(&s[*key])))
        .collect();
    }
    if s["gates"].is_u64() {
        let mode = if s["gates"] == 4 { 2 } else { 3 };
        return vec![
            keyword("mode", ArgValue::Int(mode)),
            keyword("hidden_size", argument(&s["hidden"])),
            keyword("num_layers", argument(&s["layers"])),
            keyword("bidirectional", argument(&s["bidirectional"])),
        ];
    }
    Vec::new()
}

fn argument(v: &Value) -> ArgValue {
    match v {
        Value::Null => ArgValue::None,
        Value::Bool(b) => ArgValue::Bool(*b),
        Value::Number(n) => n
            .as_i64()
            .map_or_else(|| ArgValue::Float(n.as_f64().unwrap()), ArgValue::Int),
        Value::String(s) => ArgValue::Str(s.clone()),
        Value::Array(items) => ArgValue::List(items.iter().map(argument).collect()),
        Value::Object(o) => ArgValue::Tensor(Tensor {
            shape: numbers(&o["tensor"]),
            dtype: DType::parse(o["dtype"].as_str().unwrap()),
            strides: o.get("strides").map(signed),
        }),
    }
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array()
        .unwrap()
        .iter()
        .map(|d| d.as_u64().unwrap())
        .collect()
}

fn signed(v: &Value) -> Vec<i64> {
    v.as_array()
        .unwrap()
        .iter()
        .map(|d| d.as_i64().unwrap())
        .collect()
}

/// The call as recorded by PyTorch's profiler.
fn by_record(case: &Value) -> Option<Call> {
    let record = case.get("kineto_args").filter(|r| r.is_object())?;
    let at = |field: &str, i: usize| record[field].get(i).cloned().unwrap_or_default();
    let n = record["Input type"].as_array()?.len();
    let values = (0..n).map(|i| {
        let (dims, strides) = (at("Input Dims", i), at("Input Strides", i));
        let concrete = at("Concrete Inputs", i);
        match at("Input type", i).as_str().unwrap_or_default() {
            "TensorList" => ArgValue::List(
                dims.as_array()
                    .unwrap()
                    .iter()
                    .zip(strides.as_array().unwrap())
                    .map(|(d, s)| tensor(d, None, s))
                    .collect(),
            ),
            "Scalar" | "ScalarList" => literal(concrete.as_str().unwrap()),
            "" => concrete
                .as_str()
                .filter(|s| !s.is_empty())
                .map_or(ArgValue::None, literal),
            dtype => tensor(&dims, DType::parse(dtype), &strides),
        }
    });
    let mut items = positional(values);
    items.extend(described(case));
    let mut call = call(case, operator(case), items);
    if case["kineto_has_element_dtype"] == false {
        // The type in the kernel's name.
        call.default_dtype = by_arguments(case).args.tensors().find_map(|t| t.dtype);
    }
    Some(call)
}

fn tensor(dims: &Value, dtype: Option<DType>, strides: &Value) -> ArgValue {
    ArgValue::Tensor(Tensor {
        shape: numbers(dims),
        dtype,
        strides: Some(signed(strides)),
    })
}

/// `1`, `0.5`, `1.`, `True`, `[1, 1]`, `torch.bfloat16`.
fn literal(text: &str) -> ArgValue {
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        let items = inner.split(',').map(str::trim).filter(|t| !t.is_empty());
        return ArgValue::List(items.map(literal).collect());
    }
    match text {
        "True" => return ArgValue::Bool(true),
        "False" => return ArgValue::Bool(false),
        "None" => return ArgValue::None,
        _ => {}
    }
    if let Ok(n) = text.parse() {
        return ArgValue::Int(n);
    }
    text.parse()
        .map_or_else(|_| ArgValue::Str(text.into()), ArgValue::Float)
}

/// The call as a PyProf marker: always with the forward's arguments.
fn by_marker(case: &Value) -> Option<Call> {
    let text = case["pyprof"]["marker"].as_str()?;
    let json = text
        .replace('\'', "\"")
        .replace('(', "[")
        .replace(')', "]")
        .replace(",]", "]")
        .replace("None,", "null,")
        .replace("None}", "null}")
        .replace("True", "true")
        .replace("False", "false");
    let marker: Value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let items = marker["args"].as_array().unwrap().iter().map(|a| Arg {
        name: Some(a["name"].as_str().unwrap())
            .filter(|n| !n.is_empty())
            .map(str::to_owned),
        value: if a["type"] == "tensor" {
            ArgValue::Tensor(Tensor {
                shape: numbers(&a["shape"]),
                dtype: DType::parse(a["dtype"].as_str().unwrap()),
                strides: None,
            })
        } else {
            argument(&a["value"])
        },
    });
    let op = named(
        marker["mod"].as_str().unwrap(),
        marker["op"].as_str().unwrap(),
    );
    let mut call = call(case, op, items.collect());
    call.args_from_forward = call.direction == Direction::Bprop;
    if call.op.name == "to" {
        // The marker has no type; the kernel's name does.
        call.default_dtype = case["outputs"][0]["dtype"].as_str().and_then(DType::parse);
    }
    Some(call)
}
