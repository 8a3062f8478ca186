//! Traces of a few events, defined here: strides, messages and flow arrows.

use pyprof_advise::correlate::{Direction, Run, SiteId, WithoutOperator};
use pyprof_advise::cost::{Costed, Dims, GemmSize, estimate_costs};
use pyprof_advise::facts::{Answer, FactTable, Lookup, Member, Value as Fact};
use serde_json::{Value, json};

use super::{profile, run};

/// A trace of consecutive operators, each with one kernel of 20 us.
fn trace(calls: &[(&str, Value, &str)]) -> Value {
    let mut events = Vec::new();
    for (at, (op, args, kernel)) in calls.iter().enumerate() {
        let ts = 100 * (at + 1);
        events.push(
            json!({"ph": "X", "cat": "cpu_op", "name": op, "pid": 1, "tid": 1, "ts": ts,
            "dur": 50, "args": args}),
        );
        events.extend(launched(ts + 10, at + 1, kernel, &json!({})));
    }
    json!({"traceEvents": events})
}

/// A call and its kernel, whose event has the arguments `more`.
fn launched(ts: usize, id: usize, kernel: &str, more: &Value) -> [Value; 2] {
    let mut args = json!({"correlation": id, "device": 0, "stream": 7, "grid": [64, 1, 1],
        "block": [128, 1, 1]});
    for (key, value) in more.as_object().unwrap() {
        args[key] = value.clone();
    }
    [
        json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
            "ts": ts, "dur": 5, "args": {"correlation": id}}),
        json!({"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": ts + 20,
            "dur": 20, "args": args}),
    ]
}

/// Tensors of one type, in the format of traces.
fn tensors(dtype: &str, shapes: &[(&[u64], &[i64])]) -> Value {
    let (dims, strides): (Vec<_>, Vec<_>) = shapes.iter().copied().unzip();
    let types = vec![dtype; shapes.len()];
    json!({"Input Dims": dims, "Input Strides": strides, "Input type": types})
}

fn costed(trace: &Value) -> Costed {
    estimate_costs(run(profile(&trace.to_string())), None)
}

/// Bytes of the only operator of a trace.
fn bytes(op: &str, args: Value) -> f64 {
    let costed = costed(&trace(&[(op, args, "k")]));
    assert_eq!(costed.sites.len(), 1);
    costed.sites[0]
        .bytes
        .unwrap_or_else(|| panic!("{op}: {:?}", costed.sites[0].cost))
}

// ------------------------------------------------------------------------------------ strides

const GEMM: &str = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn";

#[test]
fn expanded_operands_are_read_once() {
    let add = |strides: &[i64]| {
        let full: (&[u64], &[i64]) = (&[1024, 512], &[512, 1]);
        bytes(
            "aten::add",
            tensors("float", &[full, (&[1024, 512], strides)]),
        )
    };
    let (all, row) = (1024.0 * 512.0 * 4.0, 512.0 * 4.0);
    assert_eq!(add(&[512, 1]), 3.0 * all);
    assert_eq!(add(&[1, 1024]), 3.0 * all, "transposed");
    assert_eq!(add(&[0, 1]), 2.0 * all + row, "a row for all rows");
    assert_eq!(add(&[1, 0]), 2.0 * all + 1024.0 * 4.0, "a column");

    let sum = |strides: &[i64]| {
        let mut args = tensors("float", &[(&[1024, 512], strides), (&[], &[]), (&[], &[])]);
        args["Input type"] = json!(["float", "ScalarList", "Scalar"]);
        args["Concrete Inputs"] = json!(["", "[1]", "False"]);
        bytes("aten::sum", args)
    };
    let result = 1024.0 * 4.0;
    assert_eq!(sum(&[512, 1]), all + result);
    assert_eq!(sum(&[0, 1]), row + result);

    let bmm = |strides: &[i64]| {
        let a: (&[u64], &[i64]) = (&[12, 64, 96], &[6144, 96, 1]);
        let b: (&[u64], &[i64]) = (&[12, 96, 32], strides);
        bytes("aten::bmm", tensors("c10::BFloat16", &[a, b]))
    };
    let (a, b, c) = (12.0 * 64.0 * 96.0, 96.0 * 32.0, 12.0 * 64.0 * 32.0);
    assert_eq!(bmm(&[3072, 32, 1]), 2.0 * (a + 12.0 * b + c));
    assert_eq!(bmm(&[0, 32, 1]), 2.0 * (a + b + c), "one matrix for all");

    let addmm = |bias: (&[u64], &[i64])| {
        let operands: [(&[u64], &[i64]); 3] = [bias, (&[64, 96], &[96, 1]), (&[96, 32], &[1, 96])];
        bytes("aten::addmm", tensors("float", &operands))
    };
    let product = 4.0 * (64.0 * 96.0 + 96.0 * 32.0 + 64.0 * 32.0);
    assert_eq!(addmm((&[32], &[1])), product + 4.0 * 32.0);
    assert_eq!(addmm((&[64, 32], &[0, 1])), product + 4.0 * 32.0);
    assert_eq!(addmm((&[64, 32], &[32, 1])), product + 4.0 * 64.0 * 32.0);
}

#[test]
fn calls_with_different_expanded_operands_are_separate_sites() {
    let args = |strides: &[i64]| {
        let full: (&[u64], &[i64]) = (&[1024, 512], &[512, 1]);
        tensors("float", &[full, (&[1024, 512], strides)])
    };
    let costed = costed(&trace(&[
        ("aten::mul", args(&[0, 1]), "k"),
        ("aten::mul", args(&[1, 0]), "k"),
        ("aten::mul", args(&[0, 1]), "k"),
    ]));
    let mut calls: Vec<(u32, f64)> = costed
        .run
        .sites
        .iter()
        .zip(&costed.sites)
        .map(|(site, cost)| (site.calls, cost.bytes.unwrap() / f64::from(site.calls)))
        .collect();
    calls.sort_by_key(|(calls, _)| *calls);
    let both = 2.0 * 1024.0 * 512.0 * 4.0;
    assert_eq!(calls, [(1, both + 4096.0), (2, both + 2048.0)]);
}

fn contiguous(op: &str, operands: &[(&[u64], &[i64])]) -> [bool; 3] {
    let costed = costed(&trace(&[(op, tensors("c10::BFloat16", operands), GEMM)]));
    match costed.sites[0].cost.as_ref().unwrap().roles[0].dims {
        Dims::Gemm(GemmSize { contiguous, .. }) => contiguous.into(),
        other => panic!("{op}: {other:?}"),
    }
}

/// The dimensions whose alignment matters: those that are contiguous in an operand, and N in the
/// result.
#[test]
fn alignment_follows_the_contiguous_dimension_of_transposed_operands() {
    const N: bool = true;
    let a: (&[u64], &[i64]) = (&[64, 96], &[96, 1]);
    let a_turned: (&[u64], &[i64]) = (&[64, 96], &[1, 64]);
    let b: (&[u64], &[i64]) = (&[96, 32], &[32, 1]);
    let b_turned: (&[u64], &[i64]) = (&[96, 32], &[1, 96]);
    let bias: (&[u64], &[i64]) = (&[32], &[1]);
    for (x, y, [m, k]) in [
        (a, b, [false, true]),
        (a, b_turned, [false, true]),
        (a_turned, b, [true, false]),
        (a_turned, b_turned, [true, true]),
    ] {
        assert_eq!(contiguous("aten::mm", &[x, y]), [m, N, k], "{x:?} {y:?}");
        assert_eq!(contiguous("aten::addmm", &[bias, x, y]), [m, N, k]);
        let batch = |(shape, strides): (&[u64], &[i64])| {
            ([&[4], shape].concat(), [&[6144], strides].concat())
        };
        let (x, y) = (batch(x), batch(y));
        let operands: [(&[u64], &[i64]); 2] = [(&x.0, &x.1), (&y.0, &y.1)];
        assert_eq!(contiguous("aten::bmm", &operands), [m, N, k]);
    }
    // y = x w^T, with the weight stored as [out, in].
    let w: (&[u64], &[i64]) = (&[32, 96], &[96, 1]);
    let w_turned: (&[u64], &[i64]) = (&[32, 96], &[1, 32]);
    assert_eq!(contiguous("aten::linear", &[a, w]), [false, N, true]);
    assert_eq!(contiguous("aten::linear", &[a_turned, w]), [true, N, true]);
    assert_eq!(
        contiguous("aten::linear", &[a_turned, w_turned]),
        [true, N, false]
    );
}

/// The weight gradient for a vocabulary of 30,522: dY^T x, where M is the vocabulary and K the number
/// of tokens, which is odd and contiguous in no operand.
#[test]
fn contiguous_dimension_is_padded() {
    let said = |a: &[i64]| {
        let operands: [(&[u64], &[i64]); 2] = [(&[30522, 513], a), (&[513, 768], &[768, 1])];
        let args = tensors("c10::BFloat16", &operands);
        let mut trace = trace(&[("aten::mm", args, GEMM)]);
        trace["deviceProperties"] = json!([{"id": 0, "name": "NVIDIA A100-SXM4-40GB",
            "computeMajor": 8, "computeMinor": 0, "numSms": 108}]);
        trace["traceEvents"][2]["dur"] = json!(2000);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        std::fs::write(&path, trace.to_string()).unwrap();
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_pyprof-advise"));
        let output = program
            .arg(&path)
            .args(["--format", "json"])
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let found = findings
            .into_iter()
            .find(|f| f["rule"] == "tensor-cores/gemm-unaligned")
            .unwrap();
        (
            found["message"].as_str().unwrap().to_owned(),
            found["fix"].as_str().unwrap().to_owned(),
        )
    };
    let (message, fix) = said(&[1, 30522]);
    assert!(
        message.contains("M=30522 is not a multiple of 8"),
        "{message}"
    );
    assert!(
        fix.contains("Pad the dimension: 30522 becomes 30528"),
        "{fix}"
    );
    assert!(fix.contains("nn.Linear(d_model, 30528)"), "{fix}");
    // With the other strides, the number of tokens matters and the vocabulary does not.
    let (message, fix) = said(&[513, 1]);
    assert!(
        message.contains("K=513 is not a multiple of 8"),
        "{message}"
    );
    assert!(fix.contains("513 becomes 520"), "{fix}");
}

// ------------------------------------------------------------------------------------ messages

const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const RCCL: &str = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)";

fn sent(collective: &str, elements: u64) -> Value {
    json!({"Collective name": collective, "In msg nelems": elements, "Out msg nelems": elements,
        "Group size": 8, "dtype": "BFloat16", "Process Group Name": "0",
        "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"})
}

/// Message bytes, group size and bytes on the wire of the largest site.
fn message(trace: &Value) -> [Option<f64>; 3] {
    let costed = costed(trace);
    let table = FactTable::new(&costed);
    let view = table.view(Member::Site(SiteId::new(0)));
    [
        "site.message_bytes",
        "site.group_size",
        "site.bus_bytes_per_s",
    ]
    .map(|fact| match view.get(fact) {
        Answer::Value(Fact::Double(v)) => Some(v),
        Answer::Value(Fact::Int(v)) => Some(v as f64),
        _ => None,
    })
}

#[test]
fn kernels_with_a_message_need_no_operator() {
    // 20 us for 2 * 7 / 8 of the message.
    let rate = 1.75 * 2_000_000.0 / 20e-6;
    for kernel in [NCCL, RCCL] {
        let events = launched(10, 1, kernel, &sent("allreduce", 1_000_000));
        let trace = json!({ "traceEvents": events });
        assert_eq!(message(&trace), [Some(2e6), Some(8.0), Some(rate)]);
        // The launch is not needed either.
        let alone = json!({"traceEvents": [events[1]]});
        assert_eq!(message(&alone), [Some(2e6), Some(8.0), Some(rate)]);
        let run = run(profile(&alone.to_string()));
        assert_eq!(run.links[0].missing, Some(WithoutOperator::NoLaunch));
    }
    // A group that is listed but not counted; a list that PyTorch truncated is ignored.
    for (ranks, size) in [("[0, 2, 4]", Some(3.0)), ("[0, 1, ..., 63]", None)] {
        let mut said = sent("allreduce", 64);
        said.as_object_mut().unwrap().remove("Group size");
        said["Process Group Ranks"] = json!(ranks);
        let trace = json!({ "traceEvents": launched(10, 1, NCCL, &said) });
        assert_eq!(message(&trace)[..2], [Some(128.0), size], "{ranks}");
    }
}

#[test]
fn kernel_messages_complement_their_operator() {
    let inside = |op: &str, args: Value, kernels: &[(usize, u64)]| {
        let mut events = vec![
            json!({"ph": "X", "cat": "cpu_op", "name": op, "pid": 1, "tid": 1,
            "ts": 0, "dur": 90, "args": args}),
        ];
        for &(at, elements) in kernels {
            events.extend(launched(at, at, NCCL, &sent("allreduce", elements)));
        }
        message(&json!({ "traceEvents": events }))
    };
    // A custom operator that records no arguments, and one that records a tensor but no group.
    let own = inside("my::sync", json!({}), &[(10, 500)]);
    assert_eq!(own[..2], [Some(1000.0), Some(8.0)]);
    let listed = tensors("c10::BFloat16", &[(&[500], &[1])]);
    let listed = inside("c10d::allreduce_", listed, &[(10, 500)]);
    assert_eq!(listed[..2], [Some(1000.0), Some(8.0)]);
    // The operator's record takes precedence over the kernel's.
    let recorded = inside("record_param_comms", sent("allreduce", 400), &[(10, 500)]);
    assert_eq!(recorded[..2], [Some(800.0), Some(8.0)]);
    // One call with two different messages: the message of the call is unknown.
    let two = inside("my::sync", json!({}), &[(10, 500), (40, 700)]);
    assert_eq!(two, [None, None, None]);
}

/// One kernel of 20 us inside these operators, the outermost first, and `distributedInfo`.
fn collective(operators: &[(&str, Value)], distributed: &Value) -> [Option<f64>; 3] {
    let mut events = Vec::new();
    for (at, (name, args)) in operators.iter().enumerate() {
        events.push(
            json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at,
            "dur": 90 - 2 * at, "args": args}),
        );
    }
    let kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)";
    events.extend(launched(10, 1, kernel, &json!({})));
    message(&json!({"distributedInfo": distributed, "traceEvents": events}))
}

#[test]
fn groups_of_collectives_follow_from_operators_and_from_the_list_of_groups() {
    let nccl = "nccl:_all_gather_base";
    let part = || tensors("c10::BFloat16", &[(&[500], &[1])]);
    let listed = |sizes: &[u32]| {
        let group = |size: &u32| json!({"backend_config": "cuda:nccl", "pg_size": size});
        let groups: Vec<Value> = sizes.iter().map(group).collect();
        json!({"rank": 0, "world_size": 8, "pg_count": groups.len(), "pg_config": groups})
    };
    let none = json!({"rank": 0, "world_size": 8});
    // Of 4 parts each rank sends its own three times.
    let four = [Some(4000.0), Some(4.0), Some(3000.0 / 20e-6)];
    let both = tensors("c10::BFloat16", &[(&[2000], &[1]), (&[500], &[1])]);
    let with_both = [("c10d::_allgather_base_", both), (nccl, part())];
    assert_eq!(collective(&with_both, &none), four);
    let mut functional = part();
    functional["Input Dims"] = json!([[500], [], []]);
    functional["Input type"] = json!(["c10::BFloat16", "Scalar", ""]);
    functional["Concrete Inputs"] = json!(["", "4", ""]);
    let lists = json!({"Input Dims": [[[2000]], [[500]], []], "Input type": ["TensorList", "TensorList", ""],
        "Concrete Inputs": ["", "", ""]});
    let inner = "nccl:all_gather_into_tensor_coalesced";
    let compiled = [
        ("_c10d_functional::all_gather_into_tensor", functional),
        ("c10d::allgather_into_tensor_coalesced_", lists),
        (inner, part()),
    ];
    assert_eq!(collective(&compiled, &none), four);
    let alone = [(nccl, part())];
    assert_eq!(collective(&alone, &listed(&[4])), four);
    assert_eq!(collective(&alone, &listed(&[4, 1, 4])), four);
    // One part of an unknown number of parts.
    for unknown in [none, listed(&[4, 8])] {
        assert_eq!(collective(&alone, &unknown), [None; 3]);
    }
    // The output and what each rank adds tell more than the list.
    assert_eq!(collective(&with_both, &listed(&[8])), four);
}

// ------------------------------------------------------------------------------------ arrows

/// A forward of two operators and their backward in another order, with sequence numbers and arrows.
fn forward_and_backward(numbers: [Option<u64>; 2], arrows: &[(&str, usize, usize)]) -> Run {
    let operator = |name: &str, tid: u32, ts: usize, number: Option<u64>| {
        let args = number.map_or(json!({}), |n| json!({ "Sequence number": n }));
        json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 50,
            "args": args})
    };
    let on = |tid: u32, mut events: [Value; 2]| {
        events[0]["tid"] = json!(tid);
        events
    };
    let [forward, backward] = numbers;
    let mut events = vec![
        json!({"ph": "X", "cat": "user_annotation", "name": "first", "pid": 1, "tid": 1, "ts": 90,
            "dur": 80}),
        operator("aten::addmm", 1, 100, forward),
        json!({"ph": "X", "cat": "user_annotation", "name": "second", "pid": 1, "tid": 1, "ts": 190,
            "dur": 80}),
        operator("aten::addmm", 1, 200, forward.map(|n| n + 1)),
        operator("AddmmBackward0", 2, 300, backward.map(|n| n + 1)),
        operator("AddmmBackward0", 2, 400, backward),
    ];
    for (at, (tid, ts)) in [(1, 100), (1, 200), (2, 300), (2, 400)]
        .into_iter()
        .enumerate()
    {
        events.extend(on(tid, launched(ts + 10, at + 1, "k", &json!({}))));
    }
    for (id, (category, from, to)) in arrows.iter().enumerate() {
        for (phase, tid, ts) in [("s", 1, from), ("f", 2, to)] {
            events.push(
                json!({"ph": phase, "bp": "e", "cat": category, "name": category,
                "id": id + 7, "pid": 1, "tid": tid, "ts": ts}),
            );
        }
    }
    run(profile(&json!({ "traceEvents": events }).to_string()))
}

/// Direction and layer per kernel.
fn places(run: &Run) -> Vec<(Direction, Option<&str>)> {
    let calls = run.links.iter().map(|l| &run.op_calls[l.op.unwrap().idx()]);
    calls
        .map(|call| {
            let layer = call.layer.map(|id| run.layers[id.idx()].name.as_str());
            (call.direction, layer)
        })
        .collect()
}

#[test]
fn arrows_connect_forward_and_backward_without_sequence_numbers() {
    use Direction::{Bprop, Fprop};
    const JOINED: [(Direction, Option<&str>); 4] = [
        (Fprop, Some("first")),
        (Fprop, Some("second")),
        (Bprop, Some("second")),
        (Bprop, Some("first")),
    ];
    let numbered = forward_and_backward([Some(5), Some(5)], &[]);
    assert_eq!(places(&numbered), JOINED);
    let alone = forward_and_backward([None, None], &[]);
    assert_eq!(places(&alone)[2], (Bprop, None));
    for category in ["fwdbwd", "forward_backward"] {
        let arrows = [(category, 100, 400), (category, 200, 300)];
        for numbers in [[None, None], [Some(5), None], [None, Some(5)]] {
            let joined = forward_and_backward(numbers, &arrows);
            assert_eq!(places(&joined), JOINED, "{category} {numbers:?}");
        }
        // Arrows that contradict existing numbers.
        let crossed = [(category, 100, 300), (category, 200, 400)];
        let numbered = forward_and_backward([Some(5), Some(5)], &crossed);
        assert_eq!(places(&numbered), JOINED, "{category}");
    }
    // Arrows without a start or an end, or of another kind.
    for arrows in [
        [("fwdbwd", 101, 400), ("fwdbwd", 200, 301)],
        [("ac2g", 100, 400), ("ac2g", 200, 300)],
    ] {
        let joined = forward_and_backward([None, None], &arrows);
        assert_eq!(places(&joined)[3], (Bprop, None));
    }
}

/// Their sequence number belongs to an earlier operator, not to the forward of the node.
#[test]
fn custom_cpp_nodes_are_backward_work() {
    let operator = |name: &str, ts: usize, dur: usize| {
        json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
            "args": {"Sequence number": 3}})
    };
    let annotation = |name: &str, ts: usize| {
        json!({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts,
            "dur": 90})
    };
    let mut events = vec![
        annotation("table", 90),
        operator("aten::zero_", 110, 20),
        annotation("backward pass", 390),
        operator("torch::autograd::CppNode<fbgemm::Lookup_Op>", 400, 50),
    ];
    events.extend(launched(112, 1, "fill", &json!({})));
    events.extend(launched(410, 2, "lookup_backward", &json!({})));
    let run = run(profile(&json!({ "traceEvents": events }).to_string()));
    let calls = run.links.iter().map(|l| &run.op_calls[l.op.unwrap().idx()]);
    let seen: Vec<_> = calls
        .map(|call| (run.op_name(call).unwrap().name.as_str(), call.direction))
        .collect();
    let wanted = [("zero_", Direction::Fprop), ("Lookup_Op", Direction::Bprop)];
    assert_eq!(seen, wanted);
    assert_ne!(places(&run)[1].1, Some("table"));
}
