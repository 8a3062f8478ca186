//! `repro`: a script of every kind runs on the CPU, with small sizes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::cli_sandbox::{Sandbox, has};
use crate::shared;

fn tensor(dtype: &str, shape: &[u64]) -> Value {
    json!({ "kind": "tensor", "dtype": dtype, "shape": shape, "strides": null })
}

fn untyped(shape: &[u64]) -> Value {
    json!({ "kind": "tensor", "dtype": null, "shape": shape, "strides": null })
}

fn whole(value: i64) -> Value {
    json!({ "kind": "whole", "value": value })
}

fn flag() -> Value {
    json!({ "kind": "flag", "value": false })
}

fn list(items: &[Value]) -> Value {
    json!({ "kind": "list", "items": items })
}

/// A rule of every kind of script, with operators.
fn examples() -> Vec<(&'static str, &'static str, Value)> {
    let mut weight = tensor("bf16", &[1600, 50257]);
    weight["strides"] = json!([1, 1600]);
    let product = |dtype: &str| {
        json!([[
            "mm",
            [tensor(dtype, &[8192, 1600]), tensor(dtype, &[1600, 1601])]
        ]])
    };
    let pair = |value| list(&[whole(value), whole(value)]);
    let image = tensor("fp32", &[8, 64, 128, 128]);
    let filters = tensor("fp32", &[64, 64, 3, 3]);
    let missing = json!({ "kind": "missing" });
    vec![
        (
            "attention",
            "layers/attention-unfused",
            json!([
                [
                    "_softmax",
                    [tensor("bf16", &[16, 12, 1024, 1024]), whole(-1), flag()]
                ],
                [
                    "bmm",
                    [
                        tensor("bf16", &[192, 1024, 1024]),
                        tensor("bf16", &[192, 1024, 64])
                    ]
                ]
            ]),
        ),
        (
            "channels_last",
            "memory/layout-transposes",
            json!([[
                "convolution",
                [
                    image,
                    filters,
                    missing.clone(),
                    pair(1),
                    pair(1),
                    pair(1),
                    flag(),
                    pair(0),
                    whole(1)
                ]
            ]]),
        ),
        (
            "compiled",
            "fusion/pointwise-chain",
            json!([
                [
                    "mul",
                    [tensor("fp32", &[4096, 1024]), tensor("fp32", &[1024])]
                ],
                ["tanh", [tensor("fp32", &[4096, 1024])]]
            ]),
        ),
        ("batched", "parallelism/small-grid", product("bf16")),
        (
            "batched",
            "parallelism/small-grid",
            json!([[
                "native_layer_norm",
                [
                    tensor("fp32", &[1, 10, 1024]),
                    list(&[whole(1024)]),
                    tensor("fp32", &[1024]),
                    tensor("fp32", &[1024]),
                    json!({ "kind": "number", "value": 1e-5 })
                ]
            ]]),
        ),
        (
            "reduced",
            "parallelism/small-grid",
            json!([[
                "sum",
                [
                    tensor("fp32", &[1024, 96]),
                    list(&[whole(-2)]),
                    flag(),
                    missing.clone()
                ]
            ]]),
        ),
        (
            // Without dimensions it reduces all of them.
            "reduced",
            "parallelism/small-grid",
            json!([[
                "linalg_vector_norm",
                [
                    tensor("fp32", &[200, 200]),
                    whole(2),
                    missing.clone(),
                    flag(),
                    missing.clone()
                ]
            ]]),
        ),
        (
            "sequences",
            "parallelism/small-grid",
            json!([
                ["no_such_operator", [tensor("fp32", &[8, 8])]],
                [
                    "_flash_attention_forward",
                    [
                        tensor("bf16", &[1, 141, 8, 64]),
                        tensor("bf16", &[1, 141, 8, 64]),
                        tensor("bf16", &[1, 141, 8, 64])
                    ]
                ]
            ]),
        ),
        (
            "channels_last",
            "parallelism/small-grid",
            json!([[
                "native_batch_norm",
                [
                    tensor("bf16", &[10, 64, 56, 56]),
                    tensor("bf16", &[64]),
                    tensor("bf16", &[64]),
                    tensor("bf16", &[64]),
                    tensor("bf16", &[64]),
                    json!({ "kind": "flag", "value": true }),
                    json!({ "kind": "number", "value": 0.1 }),
                    json!({ "kind": "number", "value": 1e-5 })
                ]
            ]]),
        ),
        (
            // Fewer heads of keys and values than of queries.
            "attention_kernels",
            "layers/flash-attention-2-on-hopper",
            json!([[
                "_scaled_dot_product_flash_attention",
                [
                    tensor("bf16", &[2, 32, 2048, 128]),
                    tensor("bf16", &[2, 8, 2048, 128]),
                    tensor("bf16", &[2, 8, 2048, 128]),
                    json!({ "kind": "number", "value": 0.0 }),
                    json!({ "kind": "flag", "value": true })
                ]
            ]]),
        ),
        ("tuned", "tensor-cores/far-from-ideal", product("bf16")),
        (
            "compiled",
            "memory/low-bandwidth",
            json!([[
                "add",
                [
                    tensor("bf16", &[1024, 256, 64, 64]),
                    tensor("bf16", &[256, 64, 64])
                ]
            ]]),
        ),
        (
            "concatenation",
            "memory/growing-concatenation",
            json!([[
                "cat",
                [
                    list(&[untyped(&[1227, 534, 800]), untyped(&[92, 534, 800])]),
                    whole(0)
                ]
            ]]),
        ),
        (
            "foreach_norm",
            "layers/gradient-norms",
            json!([
                ["torch.norm", [tensor("fp32", &[600, 200]), whole(2)]],
                ["linalg_vector_norm", [tensor("fp32", &[200])]]
            ]),
        ),
        (
            "merged",
            "layers/projections-unfused",
            json!([[
                "addmm",
                [
                    tensor("bf16", &[512]),
                    tensor("bf16", &[141, 512]),
                    tensor("bf16", &[512, 512])
                ]
            ]]),
        ),
        (
            // A bias with a value for each result has more rows too.
            "batched",
            "parallelism/small-grid",
            json!([[
                "addmm",
                [
                    tensor("fp32", &[32, 512]),
                    tensor("fp32", &[32, 256]),
                    tensor("fp32", &[256, 512]),
                    whole(1),
                    whole(1)
                ]
            ]]),
        ),
        (
            "batched",
            "parallelism/small-grid",
            json!([[
                "baddbmm",
                [
                    tensor("fp32", &[4, 128, 128]),
                    tensor("fp32", &[4, 128, 64]),
                    tensor("fp32", &[4, 64, 128]),
                    whole(1),
                    whole(1)
                ]
            ]]),
        ),
        (
            "algorithm",
            "layers/fft-convolution",
            json!([[
                "convolution_backward",
                [
                    tensor("fp32", &[8, 128, 56, 56]),
                    tensor("fp32", &[8, 128, 112, 112]),
                    tensor("fp32", &[128, 1, 3, 3]),
                    missing.clone(),
                    pair(2),
                    pair(1),
                    pair(1),
                    flag(),
                    pair(0),
                    whole(128),
                    list(&[
                        json!({ "kind": "flag", "value": true }),
                        json!({ "kind": "flag", "value": true }),
                        flag()
                    ])
                ]
            ]]),
        ),
        (
            // An operator of a library that a CPU does not have, without its epsilon, in mixed types.
            "channels_last",
            "layers/batch-norm-slow",
            json!([[
                "cudnn_batch_norm_backward",
                [
                    tensor("bf16", &[8, 64, 112, 112]),
                    tensor("bf16", &[8, 64, 112, 112]),
                    tensor("bf16", &[64]),
                    tensor("fp32", &[64]),
                    tensor("fp32", &[64]),
                    tensor("fp32", &[64]),
                    tensor("fp32", &[64]),
                    missing.clone(),
                    tensor("uint8", &[0])
                ]
            ]]),
        ),
        (
            "channels_last",
            "memory/layout-transposes",
            json!([[
                "cudnn_convolution_transpose",
                [
                    tensor("fp32", &[8, 64, 128, 128]),
                    tensor("fp32", &[64, 32, 2, 2]),
                    pair(0),
                    pair(0),
                    pair(2),
                    pair(1),
                    whole(1),
                    flag(),
                    flag(),
                    flag()
                ]
            ]]),
        ),
        (
            // A function as markers name it.
            "half",
            "precision/amp-off",
            json!([[
                "torch.nn.functional.linear",
                [
                    tensor("fp32", &[35, 20, 200]),
                    tensor("fp32", &[33278, 200]),
                    tensor("fp32", &[33278])
                ]
            ]]),
        ),
        ("copy", "copies/pageable", json!([])),
        (
            "embedding",
            "layers/embedding-gradient",
            json!([[
                "embedding_dense_backward",
                [
                    tensor("fp32", &[8, 512, 768]),
                    tensor("int64", &[8, 512]),
                    whole(50257),
                    whole(-1),
                    flag()
                ]
            ]]),
        ),
        ("half", "precision/amp-off", product("fp32")),
        (
            "loss",
            "layers/large-vocabulary-loss",
            json!([[
                "_log_softmax",
                [tensor("bf16", &[8192, 50257]), whole(1), flag()]
            ]]),
        ),
        (
            "norm",
            "layers/norm-unfused",
            json!([
                [
                    "mul",
                    [tensor("fp32", &[8, 1024, 768]), tensor("fp32", &[768])]
                ],
                [
                    "sub",
                    [
                        tensor("fp32", &[8, 1024, 768]),
                        tensor("fp32", &[8, 1024, 1])
                    ]
                ]
            ]),
        ),
        (
            "log_softmax",
            "layers/double-log-softmax",
            json!([[
                "_log_softmax",
                [tensor("fp32", &[700, 33278]), whole(1), flag()]
            ]]),
        ),
        (
            "optimizer",
            "layers/optimizer-foreach",
            json!([[
                "_foreach_add_",
                [
                    // Traces do not have the types of tensors in lists.
                    list(&[untyped(&[1024, 1024]), untyped(&[1024])]),
                    whole(1)
                ]
            ]]),
        ),
        (
            "padding",
            "tensor-cores/gemm-unaligned",
            json!([[
                "addmm",
                [
                    tensor("bf16", &[50257]),
                    tensor("bf16", &[8192, 1600]),
                    weight,
                    whole(1),
                    whole(1)
                ]
            ]]),
        ),
        ("single", "precision/fp64-leak", product("fp64")),
        ("tf32", "precision/tf32-off", product("fp32")),
        (
            // A convolution of a library that a CPU does not have, and whose arguments say whether TF32 is allowed.
            "tf32",
            "precision/tf32-off-in-convolutions",
            json!([[
                "cudnn_convolution",
                [
                    tensor("fp32", &[8, 64, 128, 128]),
                    tensor("fp32", &[64, 32, 3, 3]),
                    pair(1),
                    pair(2),
                    pair(1),
                    whole(2),
                    flag(),
                    flag(),
                    flag()
                ]
            ]]),
        ),
    ]
}

/// Examples name operators of `aten` without the namespace.
fn operator_name(name: &str) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => format!("aten::{name}"),
    }
}

/// A report whose first finding is that of an example.
fn report(sandbox: &Sandbox, rule: &str, operators: &Value) {
    let mut report = sandbox.report("net.sqlite");
    let finding = &mut report["findings"][0];
    finding["rule"] = json!(rule);
    // Words of the rules that two kinds look at.
    finding["message"] = json!("12 times, 3 products follow each other");
    finding["fix"] = json!("module = torch.compile(module)");
    let calls = operators.as_array().unwrap().iter().map(|operator| {
        json!({
            "operator": operator_name(operator[0].as_str().unwrap()),
            "direction": "fprop", "arguments": "", "arguments_from_forward": false,
            "call": operator[1], "calls": 1, "time_ns": 1
        })
    });
    finding["evidence"]["operators"] = Value::Array(calls.collect());
    if rule.starts_with("copies/") {
        finding["evidence"]["facts"] = json!([{ "name": "copy.mean_bytes", "value": "9.63 MB" }]);
    }
    sandbox.write("report.json", &report.to_string());
}

#[test]
fn scripts_of_every_kind_run_on_the_cpu() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/repro/kinds");
    let entries = std::fs::read_dir(folder).unwrap();
    let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let files: BTreeSet<String> = entries.map(|entry| stem(entry.unwrap().path())).collect();
    let tried: BTreeSet<String> = examples()
        .iter()
        .map(|(kind, ..)| (*kind).to_owned())
        .collect();
    assert_eq!(files, tried, "a kind without an example, or the reverse");
    let Some(python) = shared::python() else {
        return;
    };
    let sandbox = Sandbox::new();
    for (kind, rule, operators) in examples() {
        report(&sandbox, rule, &operators);
        sandbox.fine("repro 1 report.json -o repro.py");
        let output = Command::new(&python)
            .args(["-W", "error::SyntaxWarning"])
            .arg(sandbox.at("repro.py"))
            .args(["--device", "cpu", "--small", "--json", "--rounds", "2"])
            .env("OMP_NUM_THREADS", "1")
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {err}");
        let out = String::from_utf8_lossy(&output.stdout);
        let result: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
        assert_eq!(result["rule"], rule);
        assert_eq!(result["kind"], kind);
        assert!(result["ratio"].as_f64().unwrap() > 0.0, "{kind}: {out}");
    }
}

#[test]
fn what_no_script_can_be_written_for_is_said() {
    let sandbox = Sandbox::new();
    let err = sandbox.refused("repro no/such-rule net.sqlite");
    has(&err, &["there is no finding `no/such-rule`", "it has: 1 "]);
    report(&sandbox, "host/data-loading", &json!([]));
    let err = sandbox.refused("repro 1 report.json");
    has(
        &err,
        &[
            "`host/data-loading` is about the time between kernels",
            "`pyprof-advise try`",
        ],
    );
    for (rule, why) in [
        ("communication/exposed", "is about several GPUs"),
        ("profile/idle-unreliable", "is about the recording"),
        ("memory/tensor-copies", "there is no kind of script for"),
    ] {
        report(&sandbox, rule, &json!([]));
        has(&sandbox.refused("repro 1 report.json"), &[rule, why]);
    }
    let operator = |name: &str, arguments: &[Value]| {
        report(
            &sandbox,
            "parallelism/small-grid",
            &json!([[name, arguments]]),
        );
        sandbox.refused("repro 1 report.json")
    };
    let missing = json!({ "kind": "missing" });
    let values = [
        tensor("fp32", &[64, 64]),
        missing.clone(),
        missing.clone(),
        missing,
    ];
    let err = operator("sum", &values);
    has(
        &err,
        &["does not have the dimensions that the reduction goes over"],
    );
    let err = operator("mul", &values[..1]);
    has(&err, &["that is not known for", "`aten::mul`"]);
    let err = operator("native_layer_norm", &values);
    has(&err, &["does not have all shapes", "record_shapes=True"]);
    let err = operator("my.own", &values);
    has(&err, &["operators of PyTorch only", "`my.own`"]);
    report(&sandbox, "precision/tf32-off", &json!([]));
    let err = sandbox.refused("repro precision/tf32-off report.json");
    has(
        &err,
        &[
            "does not say which operators launched the kernels",
            "record_shapes=True",
        ],
    );
}
