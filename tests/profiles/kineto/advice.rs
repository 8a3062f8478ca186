//! Traces of a few steps, each written for one rule: read, correlated and judged as files are, the rule
//! must have a finding, and the rules that would mislead must not.

use pyprof_advise::cost::estimate_costs;
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{Finding, RuleResults, RuleSet, judge};
use serde_json::{Value, json};

use super::{profile, run};

const GEMM: &str = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas";
const NCCL: u32 = 20;

/// A trace of one thread and one device. Times are microseconds.
#[derive(Default)]
struct Trace {
    events: Vec<Value>,
    calls: u64,
}

impl Trace {
    fn event(&mut self, cat: &str, name: &str, ts: u64, dur: u64, args: &Value) {
        let on_device = matches!(cat, "kernel" | "gpu_memcpy");
        let pid = u64::from(!on_device);
        self.events.push(
            json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7,
            "ts": ts, "dur": dur, "args": args}),
        );
    }

    fn op(&mut self, name: &str, ts: u64, dur: u64) {
        self.event("cpu_op", name, ts, dur, &json!({}));
    }

    fn range(&mut self, name: &str, ts: u64, dur: u64) {
        self.event("user_annotation", name, ts, dur, &json!({}));
    }

    /// A call, and its correlation id.
    fn call(&mut self, name: &str, ts: u64, dur: u64) -> u64 {
        self.calls += 1;
        let id = self.calls;
        let args = json!({"correlation": id});
        self.event("cuda_runtime", name, ts, dur, &args);
        id
    }

    fn kernel_of(&mut self, call: u64, name: &str, stream: u32, ts: u64, dur: u64, more: &Value) {
        let mut args = json!({"correlation": call, "device": 0, "stream": stream,
            "grid": [64, 1, 1], "block": [128, 1, 1]});
        for (key, value) in more.as_object().unwrap() {
            args[key] = value.clone();
        }
        self.event("kernel", name, ts, dur, &args);
    }

    /// A kernel that is launched at `at` and starts at `ts`.
    fn kernel(&mut self, name: &str, at: u64, ts: u64, dur: u64) {
        let call = self.call("cudaLaunchKernel", at, 4);
        self.kernel_of(call, name, 7, ts, dur, &json!({}));
    }

    /// An operator with a matrix product.
    fn product(&mut self, at: u64, ts: u64, dur: u64) {
        self.op("aten::mm", at, 10);
        self.kernel(GEMM, at + 2, ts, dur);
    }

    /// A backward pass of one product.
    fn backward(&mut self, at: u64, ts: u64, dur: u64) {
        self.op("autograd::engine::evaluate_function: MmBackward0", at, 30);
        self.op("MmBackward0", at + 1, 28);
        self.product(at + 5, ts, dur);
    }

    /// A collective on the stream of NCCL, with the message that Kineto records.
    fn collective(&mut self, op: &str, kernel: &str, elements: u64, at: u64, ts: u64, dur: u64) {
        self.op(op, at, 10);
        let call = self.call("cudaLaunchKernelExC", at + 2, 4);
        let message = json!({"Collective name": op.trim_start_matches("c10d::").replace('_', ""),
            "In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float",
            "Group size": 8});
        self.kernel_of(call, kernel, NCCL, ts, dur, &message);
    }

    /// A copy of 4 bytes to the host, and the calls that wait for it, in the words of a vendor.
    fn read(&mut self, amd: bool, at: u64, end: u64) {
        let name = if amd {
            "hipMemcpyWithStream"
        } else {
            "cudaMemcpyAsync"
        };
        let call = self.call(name, at, if amd { end - at } else { 4 });
        let args = json!({"correlation": call, "device": 0, "stream": 7, "bytes": 4});
        let kind = "Memcpy DtoH (Device -> Pageable)";
        self.event("gpu_memcpy", kind, end - 3, 2, &args);
        if !amd {
            self.call("cudaStreamSynchronize", at + 5, end - at - 5);
        }
    }

    fn results(&self, gpu: &str) -> RuleResults {
        let trace = json!({"traceEvents": self.events}).to_string();
        let run = run(profile(&trace));
        let gpu = select::choose(Some(gpu), &run.profile).unwrap();
        let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
        judge(&rules, &FactTable::new(&estimate_costs(run, gpu)))
    }
}

fn numbered<'v>(results: &'v RuleResults, rule: &str) -> Option<&'v Finding> {
    results.findings.iter().find(|f| f.rule == rule)
}

fn rules_of(results: &RuleResults) -> Vec<&str> {
    results.findings.iter().map(|f| f.rule.as_str()).collect()
}

/// The trace has a numbered finding of the rule, and none of the others at all.
fn assert_finds(trace: &Trace, gpu: &str, rule: &str, others: &[&str]) -> Finding {
    let results = trace.results(gpu);
    let found = rules_of(&results);
    let all = results.findings.iter().chain(&results.minor);
    for other in all.map(|f| f.rule.as_str()) {
        assert!(!others.contains(&other), "{rule}: {other} in {found:?}");
    }
    let finding = numbered(&results, rule);
    finding
        .unwrap_or_else(|| panic!("{rule}: {found:?}"))
        .clone()
}

const REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)";
const REDUCE_BF16: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)";

/// 24 DDP micro-steps of 10 ms, one update per four. `reduced`: whether micro-step n of four reduces
/// its gradients.
fn micro_steps(reduced: fn(u64) -> bool, kernel: &str, statistics: bool) -> Trace {
    let mut trace = Trace::default();
    for micro in 0..24 {
        let start = 1_000 + micro * 10_000;
        if micro % 4 == 0 {
            let step = format!("ProfilerStep#{}", micro / 4);
            trace.range(&step, start, 39_990);
        }
        trace.range("DistributedDataParallel.forward", start + 10, 200);
        trace.product(start + 20, start + 40, 3_000);
        trace.backward(start + 300, start + 3_040, 4_000);
        if statistics {
            for layer in 0..5 {
                let at = start + 400 + layer * 50;
                trace.op("SyncBatchNormBackward", at, 40);
                let small = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
                trace.collective(
                    "c10d::allreduce_",
                    small,
                    512,
                    at + 5,
                    start + 7_040 + layer * 60,
                    55,
                );
            }
        }
        if reduced(micro % 4) {
            let at = start + 700;
            trace.collective(
                "c10d::allreduce_",
                kernel,
                20_000_000,
                at,
                start + 7_400,
                2_400,
            );
        }
        if micro % 4 == 3 {
            trace.range("Optimizer.step#AdamW.step", start + 800, 100);
            trace.op("aten::_fused_adamw_", start + 810, 50);
            let adam = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel";
            trace.kernel(adam, start + 820, start + 9_810, 150);
        }
    }
    trace
}

#[test]
fn micro_steps_that_all_reduce_are_found_before_exposed_communication() {
    let trace = micro_steps(|_| true, REDUCE_BF16, false);
    let others = ["communication/exposed", "communication/fp32-gradients"];
    assert_finds(&trace, "h100", "communication/every-micro-step", &others);
}

#[test]
fn statistics_reduced_under_no_sync_are_no_gradients() {
    let trace = micro_steps(|micro| micro == 3, REDUCE_BF16, true);
    let others = ["communication/every-micro-step"];
    assert_finds(&trace, "h100", "communication/sync-batch-norm", &others);
}

#[test]
fn types_of_gradients_follow_from_names_of_collectives() {
    let trace = micro_steps(|micro| micro == 3, REDUCE, false);
    assert_finds(&trace, "h100", "communication/fp32-gradients", &[]);
    let results = micro_steps(|micro| micro == 3, REDUCE_BF16, false).results("h100");
    let found = rules_of(&results);
    assert!(
        !found.contains(&"communication/fp32-gradients"),
        "{found:?}"
    );
    // The kernel does not tell, its message does.
    let generic = "ncclDevKernel_Generic_1(ncclDevComm*, unsigned long)";
    let unnamed = micro_steps(|micro| micro == 3, generic, false);
    let results = unnamed.results("h100");
    assert!(numbered(&results, "communication/exposed").is_some());
}

#[test]
fn training_without_operators_gets_no_advice_for_inference() {
    let mut trace = Trace::default();
    for step in 0..6 {
        let start = 1_000 + step * 10_000;
        trace.range(&format!("ProfilerStep#{step}"), start, 9_990);
        trace.range("DistributedDataParallel.forward", start + 10, 200);
        trace.kernel(GEMM, start + 20, start + 40, 7_000);
        let call = trace.call("cudaLaunchKernelExC", start + 300, 4);
        trace.kernel_of(call, REDUCE_BF16, NCCL, start + 7_040, 2_800, &json!({}));
        trace.range("Optimizer.step#AdamW.step", start + 400, 100);
    }
    let found = assert_finds(&trace, "h100", "communication/exposed", &[]);
    assert!(!found.fix.contains("Inference"), "{}", found.fix);
    assert!(found.fix.contains("no_sync"), "{}", found.fix);
}

/// Iterations of one kernel, each followed by a read of a number and 400 us of nothing.
fn reads(amd: bool, ops: &[&str]) -> Trace {
    let mut trace = Trace::default();
    for iteration in 0..30 {
        let start = 1_000 + iteration * 1_000;
        trace.product(start, start + 20, 500);
        for (op, inset) in ops.iter().zip(0..) {
            trace.op(op, start + 50 + inset, 480 - 2 * inset);
        }
        trace.read(amd, start + 60, start + 525);
    }
    trace
}

#[test]
fn numbers_read_back_are_found_in_the_words_of_both_vendors() {
    let item = ["aten::item", "aten::_local_scalar_dense"];
    for (amd, gpu) in [(false, "a100"), (true, "mi300x")] {
        let others = ["host/gpu-idle", "host/sync-stalls", "copies/synchronous"];
        assert_finds(&reads(amd, &item), gpu, "host/scalar-read-back", &others);
    }
}

#[test]
fn numbers_that_an_operator_needs_are_sizes() {
    let ops = ["aten::bincount", "aten::item", "aten::_local_scalar_dense"];
    for (amd, gpu) in [(false, "a100"), (true, "mi300x")] {
        let others = ["host/scalar-read-back"];
        let found = assert_finds(&reads(amd, &ops), gpu, "host/data-dependent-shape", &others);
        assert!(
            found.message.contains("`aten::bincount`"),
            "{}",
            found.message
        );
    }
}

#[test]
fn inputs_copied_by_pytorch_on_amd_are_no_extension() {
    let mut trace = Trace::default();
    for iteration in 0..30 {
        let start = 1_000 + iteration * 1_000;
        for (op, inset) in [("aten::to", 0), ("aten::_to_copy", 1), ("aten::copy_", 2)] {
            trace.op(op, start + inset, 320 - 2 * inset);
        }
        let call = trace.call("hipMemcpyWithStream", start + 5, 310);
        let args = json!({"correlation": call, "device": 0, "stream": 7, "bytes": 4_000_000});
        let kind = "Memcpy HtoD (Host -> Device)";
        trace.event("gpu_memcpy", kind, start + 10, 300, &args);
        trace.product(start + 330, start + 350, 600);
    }
    let results = trace.results("mi300x");
    let all = results.findings.iter().chain(&results.minor);
    let all: Vec<&str> = all.map(|f| f.rule.as_str()).collect();
    assert!(!all.contains(&"copies/synchronous"), "{all:?}");
}

#[test]
fn a_short_validation_loader_does_not_hide_slow_workers() {
    let mut trace = Trace::default();
    trace.product(100, 120, 500);
    let single = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    trace.range(single, 700, 20);
    for iteration in 0..20 {
        let start = 1_000 + iteration * 5_000;
        let loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        trace.range(loader, start, 2_000);
        trace.product(start + 2_010, start + 2_030, 2_900);
    }
    let others = ["host/loader-in-training-process"];
    assert_finds(&trace, "a100", "host/data-loading", &others);
}

#[test]
fn pinning_in_the_loop_is_told_from_device_memory() {
    for (call, rule, other) in [
        (
            "cudaHostAlloc",
            "host/pinning-in-the-loop",
            "host/allocation",
        ),
        ("cudaFree", "host/allocation", "host/pinning-in-the-loop"),
    ] {
        let mut trace = Trace::default();
        for iteration in 0..30 {
            let start = 1_000 + iteration * 1_000;
            trace.call(call, start, 300);
            trace.product(start + 310, start + 330, 650);
        }
        assert_finds(&trace, "a100", rule, &[other]);
    }
}

#[test]
fn sharded_training_is_told_from_tensor_parallelism() {
    let gather = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long)";
    let scatter = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)";
    for sharded in [true, false] {
        let mut trace = Trace::default();
        for step in 0..6 {
            let begin = 1_000 + step * 40_000;
            trace.range(&format!("ProfilerStep#{step}"), begin, 39_990);
            for layer in 0..4 {
                let start = begin + layer * 10_000;
                trace.range("forward", start + 1, 150);
                if sharded {
                    trace.range(&format!("FSDP::all_gather (layers.{layer})"), start + 5, 40);
                }
                trace.collective(
                    "c10d::_allgather_base_",
                    gather,
                    200_000_000,
                    start + 10,
                    start + 40,
                    2_000,
                );
                trace.product(start + 100, start + 2_040, 3_000);
                trace.backward(start + 200, start + 5_040, 3_000);
                if sharded {
                    let reduce = format!("FSDP::post_backward_reduce (layers.{layer})");
                    trace.range(&reduce, start + 295, 40);
                }
                trace.collective(
                    "c10d::_reduce_scatter_base_",
                    scatter,
                    200_000_000,
                    start + 300,
                    start + 8_040,
                    1_900,
                );
            }
        }
        let fsdp = [
            "communication/fsdp-gather-exposed",
            "communication/reduce-scatter-exposed",
        ];
        let parallel = "communication/tensor-parallel-exposed";
        if sharded {
            for rule in fsdp {
                assert_finds(&trace, "h100", rule, &[parallel]);
            }
        } else {
            assert_finds(&trace, "h100", parallel, &fsdp);
        }
    }
}

/// Six steps of DDP, with something at the beginning of each.
fn ddp_steps(more: fn(&mut Trace, u64)) -> Trace {
    let mut trace = Trace::default();
    for step in 0..6 {
        let start = 1_000 + step * 10_000;
        trace.range(&format!("ProfilerStep#{step}"), start, 9_990);
        more(&mut trace, start);
        trace.range("DistributedDataParallel.forward", start + 10, 200);
        trace.product(start + 300, start + 1_240, 3_800);
        trace.backward(start + 400, start + 5_040, 4_900);
    }
    trace
}

#[test]
fn what_ddp_does_in_every_step_is_found() {
    let broadcast = ddp_steps(|trace, start| {
        let kernel = "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*, unsigned long)";
        trace.collective(
            "c10d::broadcast_",
            kernel,
            4_096,
            start + 20,
            start + 40,
            990,
        );
    });
    let others = ["communication/one-element-collectives"];
    assert_finds(
        &broadcast,
        "h100",
        "communication/buffer-broadcast",
        &others,
    );
    let searches = ddp_steps(|trace, start| {
        let search = "torch.distributed.ddp.reducer::search_unused_parameters";
        trace.range(search, start + 150, 50);
    });
    assert_finds(
        &searches,
        "h100",
        "communication/find-unused-parameters",
        &[],
    );
    let barrier = ddp_steps(|trace, start| {
        let kernel = "ncclDevKernel_AllReduce_Sum_u8_RING_LL(ncclDevComm*, unsigned long)";
        trace.collective("c10d::barrier", kernel, 1, start + 20, start + 40, 990);
    });
    assert_finds(&barrier, "h100", "communication/barrier-in-the-loop", &[]);
}

#[test]
fn stages_that_wait_are_a_pipeline() {
    let trace = ddp_steps(|trace, start| {
        let kernel = "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long)";
        trace.collective(
            "c10d::recv_",
            kernel,
            8_000_000,
            start + 20,
            start + 40,
            1_190,
        );
    });
    let others = ["communication/exposed", "communication/all-to-all-exposed"];
    let results = trace.results("h100");
    let found = rules_of(&results);
    assert!(
        found.contains(&"communication/pipeline-bubble"),
        "{found:?}"
    );
    assert!(!found.iter().any(|f| others.contains(f)), "{found:?}");
}

#[test]
fn a_step_in_many_graphs_is_found() {
    let mut trace = Trace::default();
    for step in 0..6 {
        let begin = 1_000 + step * 2_000;
        trace.range(&format!("ProfilerStep#{step}"), begin, 1_990);
        for piece in 0..10 {
            let start = begin + piece * 200;
            let call = trace.call("cudaGraphLaunch", start, 40);
            trace.kernel_of(call, GEMM, 7, start + 45, 100, &json!({}));
        }
    }
    let others = ["host/launch-bound", "fusion/cuda-graph"];
    assert_finds(&trace, "h100", "fusion/graph-in-pieces", &others);
}

const POINTWISE: &str = "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(x)::lambda, \
    at::detail::Array<char*, 2> >(int)";

/// Eight steps in compiled regions with these numbers, `(frame, compilation)`, each of one product and one Triton
/// kernel, and as many microseconds in a pointwise operator outside of them.
fn partly_compiled(regions: &[(u64, u64)], eager_us: u64) -> Trace {
    const REGION: u64 = 1_100;
    let mut trace = Trace::default();
    let behind = regions.len() as u64 * REGION;
    for step in 0..8 {
        let start = 1_000 + step * (behind + eager_us + 100);
        trace.range(
            &format!("ProfilerStep#{step}"),
            start,
            behind + eager_us + 90,
        );
        for ((frame, compilation), place) in regions.iter().zip(0..) {
            let at = start + 10 + place * REGION;
            let name = format!("Torch-Compiled Region: {frame}/{compilation}");
            trace.op(&name, at, 60);
            trace.product(at + 5, at + 20, 1_000);
            trace.op("triton_poi_fused_add_0", at + 30, 10);
            trace.kernel("triton_poi_fused_add_0", at + 32, at + 1_030, 20);
        }
        let at = start + 10 + behind;
        trace.op("aten::gelu", at, 10);
        trace.kernel(POINTWISE, at + 2, at + 20, eager_us);
    }
    trace
}

/// Whether a trace has a finding of the rule, a minor one included.
fn has_finding(trace: &Trace, rule: &str) -> bool {
    let results = trace.results("h100");
    let mut all = results.findings.iter().chain(&results.minor);
    all.any(|finding| finding.rule == rule)
}

#[test]
fn operators_beside_a_compiled_part_are_found() {
    let rule = "fusion/outside-compiled";
    let finding = assert_finds(&partly_compiled(&[(0, 0)], 6_000), "h100", rule, &[]);
    let told = "memory-bound kernels take 85 % of GPU time (1 run per step)";
    assert!(finding.message.contains(told), "{}", finding.message);
    let whole = partly_compiled(&[(0, 0), (1, 0), (2, 0)], 10);
    assert!(!has_finding(&whole, rule));
    assert!(!has_finding(&partly_compiled(&[], 6_000), rule));
}

#[test]
fn a_model_in_many_compiled_pieces_is_found() {
    let rule = "fusion/graph-breaks";
    let pieces: Vec<(u64, u64)> = (0..12).map(|frame| (frame, 0)).collect();
    assert_finds(&partly_compiled(&pieces, 6_000), "h100", rule, &[]);
    // The same layers, each compiled once, and all of the model in them.
    assert!(!has_finding(&partly_compiled(&pieces, 10), rule));
}

#[test]
fn a_function_compiled_up_to_the_limit_is_found() {
    let rule = "fusion/recompiles";
    assert_finds(&partly_compiled(&[(0, 7)], 10), "h100", rule, &[]);
    let dynamic = partly_compiled(&[(0, 1)], 10).results("h100");
    assert!(
        numbered(&dynamic, rule).is_none(),
        "{:?}",
        rules_of(&dynamic)
    );
}

#[test]
fn inputs_of_compiled_graphs_that_are_copied_are_found() {
    let trace = |region: &str| {
        let mut trace = Trace::default();
        for step in 0..8 {
            let start = 1_000 + step * 2_000;
            trace.range(&format!("ProfilerStep#{step}"), start, 1_990);
            trace.op(region, start + 5, 300);
            trace.op("aten::copy_", start + 10, 20);
            let call = trace.call("cudaMemcpyAsync", start + 12, 5);
            let copy = json!({"correlation": call, "device": 0, "stream": 7, "bytes": 200_000_000});
            let kind = "Memcpy DtoD (Device -> Device)";
            trace.event("gpu_memcpy", kind, start + 20, 300, &copy);
            let call = trace.call("cudaGraphLaunch", start + 40, 40);
            trace.kernel_of(call, GEMM, 7, start + 330, 1_500, &json!({}));
        }
        trace
    };
    let rule = "copies/device-to-device";
    let inside = assert_finds(&trace("Torch-Compiled Region: 0/0"), "h100", rule, &[]);
    assert!(
        inside.message.contains("in code of `torch.compile`"),
        "{}",
        inside.message
    );
    let fix = &inside.fix;
    assert!(fix.contains("static memory of the graph"), "{fix}");
    let outside = assert_finds(&trace("my_step"), "h100", rule, &[]);
    assert!(
        !outside.message.contains("torch.compile"),
        "{}",
        outside.message
    );
}

#[test]
fn code_that_is_compiled_in_late_steps_is_found() {
    let mut trace = Trace::default();
    for step in 0..20 {
        let start = 1_000 + step * 100_000;
        trace.range(&format!("ProfilerStep#{step}"), start, 99_990);
        if step >= 3 {
            let frame = "torch/_inductor/compile_fx.py(1150): compile_fx";
            trace.event("python_function", frame, start + 10, 60_000, &json!({}));
        }
        for product in 0..10 {
            let at = start + 60_100 + product * 100;
            trace.product(at, start + 60_200 + product * 3_900, 3_850);
        }
    }
    assert_finds(&trace, "h100", "host/compiling-inside", &[]);
}

/// Steps of 1 ms: a product of 500 us, and operators inside each other whose kernel takes 400 us.
fn steps_with(operators: &[&str], kernel: &str) -> Trace {
    let mut trace = Trace::default();
    for step in 0..20 {
        let start = 1_000 + step * 1_000;
        trace.range(&format!("ProfilerStep#{step}"), start, 990);
        trace.product(start + 10, start + 60, 500);
        for (depth, name) in (0..).zip(operators) {
            let (at, dur) = (start + 100 + depth, 60 - 2 * depth);
            match name.split_once("::") {
                Some(("aten" | "fsdp", _)) => trace.op(name, at, dur),
                _ => trace.range(name, at, dur),
            }
        }
        trace.kernel(kernel, start + 120, start + 560, 400);
    }
    trace
}

#[test]
fn copies_of_fsdp_are_not_taken_for_those_of_the_program() {
    let kernel = "void at::native::detail::chunk_cat_cuda_kernel<float, c10::BFloat16>(float**)";
    let trace = steps_with(&["FSDP::post_backward_reduce", "fsdp::chunk_cat"], kernel);
    let others = [
        "memory/concatenation",
        "memory/tensor-copies",
        "memory/memory-bound-share",
        "parallelism/dominant-kernel",
    ];
    assert_finds(&trace, "h100", "communication/fsdp-copies", &others);
}

#[test]
fn only_optimizers_with_a_fused_form_are_told_to_use_it() {
    let fix = |optimizer: &str| {
        let mut trace = Trace::default();
        for step in 0..20 {
            let start = 1_000 + step * 1_000;
            trace.range(&format!("ProfilerStep#{step}"), start, 990);
            trace.backward(start + 10, start + 60, 500);
            trace.range(
                &format!("Optimizer.step#{optimizer}.step"),
                start + 100,
                200,
            );
            for (nth, op) in (0..).zip(["lerp_", "addcdiv_"]) {
                let at = start + 110 + 50 * nth;
                trace.op(&format!("aten::_foreach_{op}"), at, 20);
                let kernel = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<X>";
                let call = trace.call("cudaLaunchKernel", at + 5, 4);
                let grid = json!({"grid": [1024, 1, 1]});
                trace.kernel_of(call, kernel, 7, start + 560 + 200 * nth, 200, &grid);
            }
        }
        assert_finds(&trace, "h100", "layers/optimizer-foreach", &[]).fix
    };
    assert!(fix("AdamW").contains("fused=True"));
    for name in ["RAdam", "NAdam"] {
        let fix = fix(name);
        assert!(fix.contains("no fused form in PyTorch"), "{name}: {fix}");
    }
}

#[test]
fn instance_norms_are_not_told_to_fold_into_convolutions() {
    let norms = |operators: &[&str], kernel: &str| {
        let mut trace = steps_with(operators, kernel);
        for step in 0..20 {
            let start = 1_000 + step * 1_000;
            trace.op("aten::cudnn_convolution", start + 80, 15);
            trace.kernel("sm80_xmma_fprop_implicit_gemm", start + 85, start + 559, 1);
        }
        let results = trace.results("h100");
        let all = results.findings.iter().chain(&results.minor);
        let mut rules = all.map(|finding| finding.rule.as_str());
        rules.any(|rule| rule == "fusion/conv-norm-inference")
    };
    let batch = ["aten::batch_norm", "aten::cudnn_batch_norm"];
    assert!(norms(&batch, "cudnn::bn_fw_inf_1C11_kernel_NCHW"));
    let instance = [&["aten::instance_norm"], &batch[..]].concat();
    assert!(!norms(&instance, "cudnn::bn_fw_tr_1C11_singleread"));
}

#[test]
fn repetition_by_counts_is_not_a_broadcast() {
    let rule = "memory/materialized-broadcast";
    let copies = ["aten::repeat", "aten::copy_"];
    let kernel = "void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>";
    assert_finds(&steps_with(&copies, kernel), "h100", rule, &[]);
    let counts = steps_with(
        &["aten::repeat_interleave"],
        "void compute_cuda_kernel<long>(long const*)",
    );
    let results = counts.results("h100");
    assert!(!rules_of(&results).contains(&rule));
}

#[test]
fn attention_on_float64_is_told_to_convert() {
    let fix = |dtype: &str| {
        let mut trace = Trace::default();
        for step in 0..20 {
            let start = 1_000 + step * 1_000;
            trace.range(&format!("ProfilerStep#{step}"), start, 990);
            trace.op("aten::scaled_dot_product_attention", start + 10, 300);
            trace.op("aten::_scaled_dot_product_attention_math", start + 11, 298);
            let (q, k) = ([8, 512, 64], [8, 64, 512]);
            let (p, v) = ([8, 512, 512], [8, 512, 64]);
            let calls = [
                ("aten::bmm", json!([q, k]), "gemm_kernel"),
                ("aten::_softmax", json!([p]), "softmax_warp_forward"),
                ("aten::bmm", json!([p, v]), "gemm_kernel"),
            ];
            for (nth, (op, dims, kernel)) in (0..).zip(calls) {
                let at = start + 20 + 50 * nth;
                let types = vec![dtype; dims.as_array().unwrap().len()];
                let args = json!({"Input Dims": dims, "Input type": types});
                trace.event("cpu_op", op, at, 30, &args);
                trace.kernel(kernel, at + 5, start + 60 + 300 * nth, 300);
            }
        }
        assert_finds(&trace, "h100", "layers/attention-math-backend", &[]).fix
    };
    assert!(fix("double").contains("float64, which no fused kernel takes"));
    assert!(fix("float").contains("Forbid the fallback once"));
}

/// Six training steps of 10 ms; in each, `kept` bytes stay in use.
fn steps_that_keep(kept: u64) -> Trace {
    let mut trace = ddp_steps(|_, _| {});
    for step in 0..6 {
        let start = 1_000 + step * 10_000;
        let memory = |ts: u64, bytes: i64, allocated: u64| {
            json!({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 7, "ts": ts,
                   "args": {"Total Reserved": 9_000_000_000_u64, "Total Allocated": allocated,
                            "Bytes": bytes, "Device Id": 0, "Device Type": 1}})
        };
        let before = 5_000_000_000 + step * kept;
        trace.op("aten::empty", start + 303, 4);
        let peak = before + 2_000_000_000;
        trace.events.push(memory(start + 304, 2_000_000_000, peak));
        let freed = -(2_000_000_000 - kept as i64);
        trace.events.push(memory(start + 500, freed, before + kept));
    }
    trace
}

#[test]
fn memory_that_grows_in_every_step_is_found() {
    let found = assert_finds(
        &steps_that_keep(10_000_000),
        "h100",
        "memory/growing-use",
        &[],
    );
    assert!(
        found
            .message
            .contains("10.0 MB on average, 7.05 GB at most"),
        "{}",
        found.message
    );
    assert!(
        found.message.contains("allocated in aten::mm."),
        "{}",
        found.message
    );
    let results = steps_that_keep(0).results("h100");
    assert!(numbered(&results, "memory/growing-use").is_none());
}

#[test]
fn the_first_operator_on_float64_is_named() {
    let kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<double, double, double, \
                  at::native::binary_internal::MulFunctor<double> >, std::array<char*, 3ul> >(int)";
    let found = assert_finds(
        &steps_with(&["aten::mul"], kernel),
        "h100",
        "precision/fp64-leak",
        &[],
    );
    let first = "The first kernel on float64 is that of `aten::mul`";
    assert!(found.message.contains(first), "{}", found.message);
}

#[test]
fn fourier_transforms_of_convolutions_are_found() {
    let kernel = "void fft2d_r2c_32x32<float, false, 5u, false>(float2*, float const*, int, int)";
    let mut trace = steps_with(&["aten::cudnn_convolution"], kernel);
    for step in 0..20 {
        let start = 1_000 + step * 1_000;
        trace.kernel("cudnn::cnn::fft2d_r2c_32x32", start + 124, start + 962, 20);
    }
    assert_finds(&trace, "a100-sxm4-40gb", "layers/fft-convolution", &[]);
}
