//! Facts of the run for small hand-written profiles.

use super::fact::{Answer, Lookup as _, Member, MemberKind, Value};
use super::table::FactTable;
use crate::correlate::testing::ProfileBuilder;
use crate::cost::{Costed, estimate_costs};
use crate::profile::{
    CopyKind, DeviceId, LoaderConfig, MemoryCopy, MemoryKind, ProcessId, RangeKind, SerialNumber,
    Span, ThreadId,
};

/// A millisecond, ns.
const MS: i64 = 1_000_000;

fn costed(mut profile: ProfileBuilder) -> Costed {
    profile.profile.recorded.api_calls = true;
    estimate_costs(profile.run(), None)
}

fn of_run(costed: &Costed, fact: &str) -> Answer {
    FactTable::new(costed).view(Member::Run).get(fact)
}

fn int(value: i64) -> Answer {
    Answer::Value(Value::Int(value))
}

fn double(value: f64) -> Answer {
    Answer::from(value)
}

fn flag(value: bool) -> Answer {
    Answer::from(value)
}

fn word(value: &str) -> Answer {
    Answer::from(value)
}

/// Adds a kernel with this name, launched on thread 0.
fn launch(profile: &mut ProfileBuilder, name: &str, time: i64) {
    let kernel = profile.launch(time);
    let name = profile.profile.strings.intern(name);
    profile.profile.kernels[kernel].name = name;
}

/// A copy made by the call with this number: when it runs, its bytes, its direction and memories.
fn copy(
    profile: &mut ProfileBuilder,
    number: u64,
    time: std::ops::Range<i64>,
    bytes: u64,
    (kind, src, dst): (CopyKind, MemoryKind, MemoryKind),
) {
    profile.profile.copies.push(MemoryCopy {
        span: Span {
            start: time.start,
            end: time.end,
        },
        device: DeviceId(0),
        process: ProcessId(0),
        stream: 7,
        correlation: SerialNumber::new(number),
        bytes,
        kind,
        src,
        dst,
        captured: None,
    });
}

#[test]
fn repeating_steps_are_counted() {
    let mut profile = ProfileBuilder::new();
    for step in 0..5_i64 {
        let start = step * 10_000;
        profile.range(&format!("step {step}"), start, start + 9_000);
        launch(&mut profile, "vectorized_elementwise_kernel", start + 100);
        launch(&mut profile, "softmax_warp_forward", start + 300);
        if step == 4 {
            launch(&mut profile, "softmax_warp_forward", start + 500);
        }
        if step >= 2 {
            profile.call(ThreadId(0), "cudaMalloc", start + 700, 0);
            profile.call(ThreadId(0), "cudaMallocAsync", start + 710, 0);
        }
        profile.call(ThreadId(0), "cudaStreamSynchronize", start + 800, 0);
    }
    launch(&mut profile, "softmax_warp_forward", 49_500);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.repeating_steps"), int(4));
    assert_eq!(of_run(&costed, "run.allocations_per_step"), double(1.0));
    assert_eq!(of_run(&costed, "run.syncs_per_step"), double(1.0));
    // What passes between two steps belongs to the second.
    assert_eq!(of_run(&costed, "run.first_step_over_median"), double(0.9));
    assert_eq!(of_run(&costed, "run.step_spread"), double(0.0));
    // Little work lies outside the steps, so the window is trimmed to them.
    assert_eq!(of_run(&costed, "run.outside_steps_share"), double(0.0));
}

#[test]
fn shares_of_zero_do_not_apply() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.triton_share"), double(0.0));
    assert_eq!(of_run(&costed, "run.half_math_share"), Answer::DoesNotApply);
}

#[test]
fn engines_are_known_by_kernels_and_operators() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "__myl_AddCastMean_0x1234", 100);
    launch(
        &mut profile,
        "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_kernel_trt",
        300,
    );
    launch(&mut profile, "softmax_warp_forward", 500);
    profile.range("tensorrt::execute_engine", 1_000, 2_000).kind = RangeKind::CpuOp;
    launch(&mut profile, "nvjet_hsh_64x64_64x16_1x2_h_bz_TNT", 1_100);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.tensorrt_share"), double(0.75));
}

#[test]
fn step_facts_require_steps() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    let costed = costed(profile);
    for fact in [
        "run.repeating_steps",
        "run.allocations_per_step",
        "run.syncs_per_step",
        "run.step_spread",
        "run.outside_steps_share",
    ] {
        assert_eq!(of_run(&costed, fact), Answer::Absent, "{fact}");
    }
}

#[test]
fn micro_steps_that_reduce_gradients_are_counted() {
    let mut profile = ProfileBuilder::new();
    for micro in 0..4_i64 {
        let start = micro * 10_000;
        profile.range("DistributedDataParallel.forward", start, start + 1_000);
        launch(&mut profile, "softmax_warp_forward", start + 100);
        // The last one runs under no_sync.
        if micro < 3 {
            let all_reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
            launch(&mut profile, all_reduce, start + 3_000);
        }
        if micro % 2 == 1 {
            let optimizer = "Optimizer.step#AdamW.step";
            profile.range(optimizer, start + 5_000, start + 6_000);
        }
    }
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.ddp"), flag(true));
    assert_eq!(of_run(&costed, "run.synced_forwards"), int(3));
    assert_eq!(of_run(&costed, "run.optimizer_steps"), int(2));
}

/// A reduction whose operator has a tensor of this many fp32 elements.
fn reduction(profile: &mut ProfileBuilder, elements: u64, time: i64) {
    let text = format!("c10d::allreduce_, sizes = [[{elements}]]");
    profile.range(&text, time - 10, time + 10);
    launch(profile, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", time);
}

#[test]
fn reductions_of_statistics_are_no_reductions_of_gradients() {
    let mut profile = ProfileBuilder::new();
    for micro in 0..8_i64 {
        let start = micro * 10_000;
        profile.range("DistributedDataParallel.forward", start, start + 1_000);
        launch(&mut profile, "softmax_warp_forward", start + 100);
        // SyncBatchNorm, also under no_sync.
        reduction(&mut profile, 512, start + 2_000);
        if micro % 4 == 3 {
            reduction(&mut profile, 10_000_000, start + 3_000);
            // One optimizer inside another counts once, another model's optimizer counts.
            profile.range(
                "Optimizer.step#ZeroOptimizer.step",
                start + 5_000,
                start + 6_000,
            );
            profile.range("Optimizer.step#AdamW.step", start + 5_100, start + 5_900);
            profile.range("Optimizer.step#RMSprop.step", start + 7_000, start + 8_000);
        }
    }
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.synced_forwards"), int(2));
    assert_eq!(of_run(&costed, "run.optimizer_steps"), int(4));
    let names = ["AdamW", "RMSprop", "ZeroOptimizer"].map(std::sync::Arc::from);
    let names = Answer::Value(Value::Strings(names.into()));
    assert_eq!(of_run(&costed, "run.optimizers"), names);
}

#[test]
fn frameworks_are_unknown_where_nothing_would_show_them() {
    let facts = ["run.ddp", "run.fsdp", "run.data_parallel", "run.training"];
    let mut bare = ProfileBuilder::new();
    bare.range("epoch", 0, 1_000);
    launch(&mut bare, "vectorized_elementwise_kernel", 100);
    let bare = costed(bare);
    for fact in facts {
        assert_eq!(of_run(&bare, fact), Answer::Absent, "{fact}");
    }
    let mut with_operators = ProfileBuilder::new();
    let op = with_operators.range("aten::add", 0, 1_000);
    op.kind = RangeKind::CpuOp;
    launch(&mut with_operators, "vectorized_elementwise_kernel", 100);
    let with_operators = costed(with_operators);
    for fact in facts {
        assert_eq!(of_run(&with_operators, fact), flag(false), "{fact}");
    }
    // Kernels that only training runs, and the steps of an optimizer, whose work may be elsewhere.
    let adam = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false>, float>(x)";
    for kernel in ["softmax_warp_backward", adam] {
        let mut by_kernel = ProfileBuilder::new();
        launch(&mut by_kernel, kernel, 100);
        assert_eq!(
            of_run(&costed(by_kernel), "run.training"),
            flag(true),
            "{kernel}"
        );
    }
    // Lists of tensors are copied for other ends as well.
    let mut lists = ProfileBuilder::new();
    lists.range("aten::_foreach_copy_", 0, 1_000).kind = RangeKind::CpuOp;
    launch(&mut lists, "multi_tensor_apply_kernel", 100);
    assert_eq!(of_run(&costed(lists), "run.training"), flag(false));
    let mut by_range = ProfileBuilder::new();
    by_range.range("Optimizer.step#SGD.step", 0, 50);
    launch(&mut by_range, "vectorized_elementwise_kernel", 100);
    assert_eq!(of_run(&costed(by_range), "run.training"), flag(true));
}

#[test]
fn searches_for_unused_parameters_are_counted() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    let search = "torch.distributed.ddp.reducer::search_unused_parameters";
    for step in 1..=3_i64 {
        profile.range(search, step * 1_000, step * 1_000 + 200);
    }
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.unused_parameter_searches"), int(3));
    let ns = of_run(&costed, "run.unused_parameter_search_ns");
    assert_eq!(ns, double(600.0));
}

#[test]
fn collectives_on_the_stream_of_the_computation_are_told_apart() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    launch(&mut profile, "softmax_warp_forward", 300);
    for (time, stream) in [(500, 7), (700, 7), (900, 7), (1_100, 20)] {
        launch(&mut profile, "ncclDevKernel_SendRecv", time);
        profile.profile.kernels.last_mut().unwrap().stream = stream;
    }
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.comm_same_stream_share"), double(0.75));
    // No operator says that they are parts of an all-to-all exchange.
    assert_eq!(of_run(&costed, "run.send_recv_share"), double(1.0));
}

#[test]
fn ranks_are_compared_with_their_median() {
    let mut profile = ProfileBuilder::new();
    let threads = [ThreadId(0), profile.process(), profile.process()];
    for (thread, kernels) in threads.into_iter().zip([4, 4, 6]) {
        for kernel in 0..kernels {
            profile.launch_on(thread, kernel * 1_000);
        }
    }
    let costed = costed(profile);
    let table = FactTable::new(&costed);
    let ranks = table.members(MemberKind::Rank);
    let of = |fact| -> Vec<Answer> {
        let views = ranks.iter().map(|rank| table.view(*rank).get(fact));
        views.collect()
    };
    let expected = [double(1.0), double(1.0), double(1.5)];
    assert_eq!(of("rank.compute_over_median"), expected);
    assert_eq!(of("rank.kernels_over_median"), expected);
}

#[test]
fn loading_code_after_the_second_step_is_counted_by_step() {
    let mut profile = ProfileBuilder::new();
    for step in 0..5_i64 {
        let start = step * 100 * MS;
        profile.range(&format!("step {step}"), start, start + 90 * MS);
        launch(&mut profile, "softmax_warp_forward", start + 100);
        // The second step and the last two.
        if step == 1 || step >= 3 {
            let compiling = "torch/_inductor/compile_fx.py(1150): compile_fx";
            profile.range(compiling, start + MS, start + 61 * MS);
        }
        launch(&mut profile, "softmax_warp_forward", start + 62 * MS);
    }
    let costed = costed(profile);
    let steps = of_run(&costed, "run.late_load_steps");
    let Answer::Value(Value::Double(ns)) = of_run(&costed, "run.late_load_ns") else {
        panic!("{steps:?}")
    };
    assert_eq!(steps, int(2));
    assert!((1.2e8..1.3e8).contains(&ns), "{ns}");
}

#[test]
fn bucket_copy_time_includes_kernels_and_copies() {
    let mut profile = ProfileBuilder::new();
    let bucket = "torch.distributed.ddp.reducer::copy_bucket_to_grad_batched";
    profile.range(bucket, 1_000, 2_000).kind = RangeKind::CpuOp;
    launch(&mut profile, "vectorized_elementwise_kernel", 1_100);
    for (correlation, time) in [(901, 1_300), (902, 5_000)] {
        profile.call(ThreadId(0), "cudaMemcpyAsync", time, correlation);
        copy(
            &mut profile,
            correlation,
            time + 200..time + 240,
            4096,
            (CopyKind::DtoD, MemoryKind::Device, MemoryKind::Device),
        );
    }
    let costed = costed(profile);
    // The kernel's 10 ns and the first copy's 40 ns.
    assert_eq!(of_run(&costed, "run.bucket_copy_ns"), double(50.0));
}

#[test]
fn compiled_code_is_counted_by_function() {
    let mut profile = ProfileBuilder::new();
    for (text, start) in [
        ("Torch-Compiled Region: 0/0", 1_000),
        ("Torch-Compiled Region: 0/3", 2_000),
        ("Torch-Compiled Region: 1/0", 3_000),
    ] {
        profile.range(text, start, start + 500);
        launch(&mut profile, "triton_poi_fused_add_0", start + 100);
    }
    launch(&mut profile, "softmax_warp_forward", 4_000);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.compiled_frames"), int(2));
    assert_eq!(of_run(&costed, "run.recompilations"), int(3));
    assert_eq!(of_run(&costed, "run.compiled_share"), double(0.75));
    assert_eq!(of_run(&costed, "run.compiled_model_share"), double(0.75));
}

#[test]
fn an_eager_optimizer_is_no_part_of_the_model() {
    let mut profile = ProfileBuilder::new();
    profile.range("Torch-Compiled Region: 0/0", 1_000, 1_500);
    launch(&mut profile, "triton_poi_fused_add_0", 1_100);
    profile.range("Optimizer.step#AdamW.step", 2_000, 2_500);
    launch(&mut profile, "multi_tensor_apply_kernel", 2_100);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.compiled_share"), double(0.5));
    assert_eq!(of_run(&costed, "run.compiled_model_share"), double(1.0));
}

#[test]
fn compiled_facts_do_not_apply_without_torch_compile() {
    let mut profile = ProfileBuilder::new();
    profile.range("forward", 0, 500);
    launch(&mut profile, "softmax_warp_forward", 100);
    let costed = costed(profile);
    let answer = of_run(&costed, "run.recompilations");
    assert_eq!(answer, Answer::DoesNotApply);
}

/// Kernels with gaps between them, each after a wait in its own operator.
fn waiting_in(ops: &[&str]) -> ProfileBuilder {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 0);
    for (op, start) in ops.iter().zip((1..).map(|n| n * 10_000)) {
        if !op.is_empty() {
            // An outer operator, and a range that was never closed.
            profile.range("__getattr__", start - 200, 0);
            for (text, from, to) in [("aten::item", -100, 200), (*op, -50, 150)] {
                let range = profile.range(text, start + from, start + to);
                range.kind = RangeKind::CpuOp;
            }
        }
        profile.call(ThreadId(0), "cudaStreamSynchronize", start, 0);
        launch(&mut profile, "softmax_warp_forward", start + 500);
    }
    profile
}

#[test]
fn gaps_have_the_operator_that_waited() {
    let ops = [
        "aten::_local_scalar_dense",
        "aten::nonzero",
        "",
        "aten::nonzero",
    ];
    let costed = costed(waiting_in(&ops));
    let seen = of_gaps(&costed, "after_sync", &["gap.op_name", "gap.count"]);
    let expected = [["-", "1"], ["local_scalar_dense", "1"], ["nonzero", "2"]];
    assert_eq!(seen, expected);
}

#[test]
fn gaps_behind_one_wait_are_one_wait() {
    let mut profile = ProfileBuilder::new();
    for step in 0..3 {
        let start = step * 10_000_000;
        profile.range(&format!("step {step}"), start, start + 10_000_000);
        for at in [10_000, 300_000, 500_000] {
            profile.launch(start + at);
        }
        let last = &mut profile.profile.kernels.last_mut().unwrap().span;
        last.end = last.start + 8_000_000;
        let end = last.end;
        profile.call(ThreadId(0), "cudaStreamSynchronize", start + 510_000, 0);
        profile.profile.calls.last_mut().unwrap().span.end = end;
    }
    let costed = costed(profile);
    let table = FactTable::new(&costed);
    let gaps = table.members(MemberKind::Gap).into_iter();
    let behind_waits = gaps.filter(|gap| {
        table.view(*gap).get("gap.cause") == Answer::Value(Value::Str("after_sync".into()))
    });
    let affected = behind_waits.map(|gap| table.affected(gap));
    let counts: Vec<_> = affected.map(|gap| (gap.calls, gap.waits)).collect();
    // The first step is a warm-up. Behind each wait, two of three launches come late.
    assert_eq!(counts, [(4, 2)]);
}

/// The facts of the gaps with a cause, as text.
fn of_gaps(costed: &Costed, cause: &str, facts: &[&str]) -> Vec<Vec<String>> {
    let table = FactTable::new(costed);
    let mut seen = Vec::new();
    for member in table.members(MemberKind::Gap) {
        let view = table.view(member);
        if view.get("gap.cause") == Answer::Value(Value::Str(cause.into())) {
            let word = |fact: &&str| match view.get(fact) {
                Answer::Value(Value::Str(word)) => word.to_string(),
                Answer::Value(Value::Strings(list)) => list.join(" "),
                Answer::Value(Value::Int(number)) => number.to_string(),
                Answer::Value(Value::Double(number)) => number.to_string(),
                _ => "-".to_owned(),
            };
            seen.push(facts.iter().map(word).collect());
        }
    }
    seen.sort();
    seen
}

#[test]
fn gaps_have_the_operators_around_the_one_that_waited() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 0);
    let outer = [("aten::bincount", 10_000), ("aten::item", 20_000)];
    for (op, start) in outer {
        // Compiled code is around both, and no operator.
        let texts = [
            "CompiledFunction",
            op,
            "aten::item",
            "aten::_local_scalar_dense",
        ];
        for (text, ahead) in texts.into_iter().zip([300, 200, 100, 50]) {
            let range = profile.range(text, start - ahead, start + ahead);
            range.kind = RangeKind::CpuOp;
        }
        profile.call(ThreadId(0), "cudaStreamSynchronize", start, 0);
        launch(&mut profile, "softmax_warp_forward", start + 500);
    }
    let facts = ["gap.op_name", "gap.outer_op", "gap.enclosing_ops"];
    let seen = of_gaps(&costed(profile), "after_sync", &facts);
    let expected = [
        [
            "local_scalar_dense",
            "aten::bincount",
            "bincount item local_scalar_dense torch_compiled",
        ],
        [
            "local_scalar_dense",
            "aten::item",
            "item local_scalar_dense torch_compiled",
        ],
    ];
    assert_eq!(seen, expected);
}

#[test]
fn idle_time_names_the_loader_that_filled_it() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    let loaders = [
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "load batch",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    ];
    for (loader, start) in loaders.into_iter().zip([MS, 11 * MS, 21 * MS]) {
        profile.range(loader, start, start + 8 * MS).kind = RangeKind::Annotation;
        launch(&mut profile, "softmax_warp_forward", start + 9 * MS);
    }
    let seen = of_gaps(&costed(profile), "data_loading", &["gap.loader"]);
    assert_eq!(seen, [["multi_process"], ["other"], ["single_process"]]);
}

/// The facts of the only copy of a profile: one in `aten::to`, made by this call.
fn of_copy(call: &str, facts: &[&str]) -> Vec<Answer> {
    of_copy_in(&["aten::to", "aten::copy_"], call, facts)
}

/// The same in these ranges, the outermost first.
fn of_copy_in(ranges: &[&str], call: &str, facts: &[&str]) -> Vec<Answer> {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 0);
    for (text, ahead) in ranges.iter().zip((1..=10).rev().map(|n| n * 50)) {
        profile.range(text, 1_000 - ahead, 1_000 + ahead).kind = RangeKind::CpuOp;
    }
    profile.call(ThreadId(0), call, 1_000, 901);
    copy(
        &mut profile,
        901,
        1_010..1_020,
        1_000_000,
        (CopyKind::HtoD, MemoryKind::Unknown, MemoryKind::Device),
    );
    launch(&mut profile, "softmax_warp_forward", 2_000);
    let costed = costed(profile);
    let table = FactTable::new(&costed);
    let view = table.view(table.members(MemberKind::Copy)[0]);
    facts.iter().map(|fact| view.get(fact)).collect()
}

#[test]
fn copies_have_their_call_and_the_operator_that_was_called() {
    assert_eq!(
        of_copy(
            "hipMemcpyWithStream",
            &["copy.op", "copy.api", "copy.replayed_count"]
        ),
        [word("aten::to"), word("hipMemcpyWithStream"), int(0)]
    );
    let replayed = of_copy("cudaGraphLaunch", &["copy.replayed_count"]);
    assert_eq!(replayed, [int(1)]);
}

#[test]
fn a_single_copy_and_copies_of_gradients_are_told_apart() {
    let facts = ["copy.once", "copy.gradient_ns"];
    assert_eq!(
        of_copy("cudaMemcpyAsync", &facts),
        [flag(true), double(0.0)]
    );
    let node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad";
    let ranges = [node, "torch::autograd::AccumulateGrad", "aten::clone"];
    assert_eq!(
        of_copy_in(&ranges, "cudaMemcpyAsync", &facts),
        [flag(true), double(10.0)]
    );
}

/// Three products, 30 times each; what they take after half of the run, and how often another kernel
/// runs beside them then.
fn paced(late: [i64; 3], beside: bool) -> Costed {
    let mut profile = ProfileBuilder::new();
    for call in 0..90_i64 {
        let start = call * 10_000;
        let (kind, round) = (call % 3, call / 3);
        let text = format!("aten::mm, sizes = [[64, {}], [{}, 32]]", 8 + kind, 8 + kind);
        profile.range(&text, start, start + 500).kind = RangeKind::CpuOp;
        let kernel = profile.launch(start + 100);
        let name = profile.profile.strings.intern("ampere_sgemm_128x64_nn");
        let length = if round < 15 {
            1_000
        } else {
            late[kind as usize]
        };
        profile.profile.kernels[kernel].name = name;
        let span = &mut profile.profile.kernels[kernel].span;
        span.end = span.start + length;
        if beside && round >= 15 {
            let other = profile.launch(start + 600);
            profile.profile.kernels[other].stream = 9;
        }
    }
    costed(profile)
}

#[test]
fn falling_clocks_slow_down_equal_products() {
    let all = paced([1_250, 1_300, 1_400], false);
    assert_eq!(of_run(&all, "run.math_late_over_early"), double(1.25));
    assert_eq!(of_run(&all, "run.repeated_math_share"), double(1.0));
    // One that keeps its speed shows that the clock is the same.
    let some = paced([1_000, 1_300, 1_400], false);
    assert_eq!(of_run(&some, "run.math_late_over_early"), double(1.0));
    // Kernels beside the later ones explain why those take longer.
    let beside = paced([1_250, 1_300, 1_400], true);
    assert_ne!(of_run(&beside, "run.math_late_over_early"), double(1.25));
}

#[test]
fn idle_host_activity_is_named_by_its_range() {
    let mut profile = ProfileBuilder::new();
    profile.range("epoch", 0, 100 * MS);
    profile.range("iteration 3", 0, 60 * MS);
    launch(&mut profile, "softmax_warp_forward", 100);
    profile.range("preprocess", MS, 30 * MS);
    profile.range("decode", MS, 12 * MS);
    launch(&mut profile, "softmax_warp_forward", 40 * MS);
    launch(&mut profile, "softmax_warp_forward", 90 * MS);
    let costed = costed(profile);
    let table = FactTable::new(&costed);
    let mut seen = Vec::new();
    for member in table.members(MemberKind::Gap) {
        let view = table.view(member);
        assert_eq!(view.get("gap.cause"), word("host_busy"));
        if let Answer::Value(Value::Str(name)) = view.get("gap.op") {
            seen.push(name.to_string());
        }
    }
    seen.sort();
    // The innermost range around most of the time; numbered steps are ignored, and so is what is around everything.
    assert_eq!(seen, ["preprocess"]);
    assert_eq!(of_run(&costed, "run.module_load_idle_ns"), double(0.0));
}

/// The text facts of the only gap longer than a millisecond.
fn long_gap(costed: &Costed, fact: &str) -> Answer {
    let table = FactTable::new(costed);
    let long = |member: &Member| match table.view(*member).get("gap.longest_ns") {
        Answer::Value(Value::Double(ns)) => ns > 1e6,
        _ => false,
    };
    let members = table.members(MemberKind::Gap);
    let member = members.into_iter().find(long).unwrap();
    table.view(member).get(fact)
}

#[test]
fn idle_python_time_is_named_by_the_innermost_function() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    let loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    profile.range(loader, MS, 30 * MS).kind = RangeKind::Annotation;
    let mut frame = |text: &str, start: i64, end: i64| {
        profile.range(text, start, end).kind = RangeKind::Python;
    };
    frame("owlv2/image.py(301): resize", MS, 29 * MS);
    // Two calls, each less than half of the time.
    for call in 0..2 {
        let start = (2 + 13 * call) * MS;
        let zoom = "/venv/site-packages/scipy/ndimage/_interpolation.py(739): zoom";
        frame(zoom, start, start + 12 * MS);
        frame("<built-in function zoom_shift>", start, start + 11 * MS);
    }
    launch(&mut profile, "softmax_warp_forward", 31 * MS);
    let costed = costed(profile);
    assert_eq!(long_gap(&costed, "gap.cause"), word("data_loading"));
    let zoom = "zoom (ndimage/_interpolation.py:739)";
    assert_eq!(long_gap(&costed, "gap.op"), word(zoom));
}

#[test]
fn idle_time_in_a_loader_without_functions_has_no_name() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    let loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
    profile.range(loader, MS, 30 * MS).kind = RangeKind::Annotation;
    launch(&mut profile, "softmax_warp_forward", 31 * MS);
    let costed = costed(profile);
    assert_eq!(long_gap(&costed, "gap.cause"), word("data_loading"));
    assert_eq!(long_gap(&costed, "gap.op"), Answer::Absent);
}

#[test]
fn idle_time_without_ranges_is_named_by_what_follows() {
    let mut profile = ProfileBuilder::new();
    launch(&mut profile, "softmax_warp_forward", 100);
    profile.range("data copy in", 40 * MS, 42 * MS);
    profile.range("inner", 40 * MS + 10, 42 * MS);
    launch(&mut profile, "softmax_warp_forward", 41 * MS);
    let costed = costed(profile);
    assert_eq!(long_gap(&costed, "gap.op"), Answer::Absent);
    assert_eq!(long_gap(&costed, "gap.before"), word("data copy in"));
    assert_eq!(long_gap(&costed, "gap.before_copy"), flag(false));
}

#[test]
fn synchronizations_are_counted_with_operator_bytes_and_line() {
    let mut profile = ProfileBuilder::new();
    for step in 0..4_u64 {
        let start = step as i64 * 10_000;
        launch(&mut profile, "softmax_warp_forward", start);
        let frame = profile.range("model/net.py(41): forward", start + 400, start + 900);
        frame.kind = RangeKind::Python;
        let op = profile.range("aten::copy_", start + 500, start + 800);
        op.kind = RangeKind::CpuOp;
        let correlation = 1_000 + step;
        profile.call(ThreadId(0), "cudaMemcpyAsync", start + 510, correlation);
        copy(
            &mut profile,
            correlation,
            start + 520..start + 530,
            8,
            (CopyKind::HtoD, MemoryKind::Pageable, MemoryKind::Device),
        );
        profile.call(ThreadId(0), "cudaStreamSynchronize", start + 600, 0);
    }
    launch(&mut profile, "softmax_warp_forward", 50_000);
    profile.call(ThreadId(0), "cudaFree", 50_500, 0);
    profile.call(ThreadId(0), "cudaFreeHost", 50_600, 0);
    launch(&mut profile, "softmax_warp_forward", 51_000);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.sync_calls"), int(4));
    assert_eq!(of_run(&costed, "run.sync_op"), word("aten::copy_"));
    assert_eq!(of_run(&costed, "run.sync_op_calls"), int(4));
    assert_eq!(of_run(&costed, "run.sync_bytes"), double(8.0));
    assert_eq!(
        of_gaps(&costed, "after_sync", &["gap.input_bytes"]),
        [["8"]]
    );
    assert_eq!(of_run(&costed, "run.sync_line"), word("model/net.py:41"));
    assert_eq!(of_run(&costed, "run.device_frees"), int(1));
}

#[test]
fn copies_to_the_host_that_wait_are_counted_once() {
    let mut profile = ProfileBuilder::new();
    for step in 0..4_u64 {
        let start = step as i64 * 1_000_000;
        launch(&mut profile, "softmax_warp_forward", start);
        let correlation = 1_000 + step;
        // The call returns when the copy has ended; what follows finds nothing to wait for.
        profile.call(ThreadId(0), "cudaMemcpyAsync", start + 1_000, correlation);
        profile.profile.calls.last_mut().unwrap().span.end = start + 501_000;
        copy(
            &mut profile,
            correlation,
            start + 500_000..start + 501_000,
            704,
            (CopyKind::DtoH, MemoryKind::Device, MemoryKind::Pageable),
        );
        profile.call(ThreadId(0), "cudaStreamSynchronize", start + 502_000, 0);
    }
    launch(&mut profile, "softmax_warp_forward", 5_000_000);
    let costed = costed(profile);
    assert_eq!(of_run(&costed, "run.sync_calls"), int(4));
    assert_eq!(of_run(&costed, "run.sync_host_ns"), double(4.0 * 500_000.0));
    assert_eq!(of_run(&costed, "run.sync_bytes"), double(704.0));
    assert_eq!(
        of_gaps(&costed, "after_sync", &["gap.input_bytes"]),
        [["-"]]
    );
}

#[test]
fn idle_time_of_one_step_among_several_is_told_apart() {
    // Two kernels per step of so many ms, the second of which is late by `late` in each step, and the last of all
    // takes so many ms.
    let with_last = |late: [i64; 4], ms: [i64; 4], last: i64| {
        let mut profile = ProfileBuilder::new();
        for ((step, late), ms) in (0..).zip(late).zip(ms) {
            let start = step * 100 * MS;
            profile.range(&format!("step {step}"), start, start + ms * MS);
            launch(&mut profile, "softmax_warp_forward", start + 100);
            launch(&mut profile, "softmax_warp_forward", start + 100_000 + late);
        }
        if let Some(kernel) = profile.profile.kernels.last_mut() {
            kernel.span.end += last * MS;
        }
        let costed = costed(profile);
        let table = FactTable::new(&costed);
        let gaps = table.members(MemberKind::Gap);
        let views = gaps.iter().map(|gap| table.view(*gap));
        let late = views.filter(|v| v.get("gap.cause") == word("host_late"));
        let answers: Vec<Answer> = late.map(|v| v.get("gap.in_one_step")).collect();
        answers
    };
    let in_one_step = |late, ms| with_last(late, ms, 0);
    assert_eq!(in_one_step([800_000, 0, 0, 0], [90; 4]), [flag(true)]);
    assert_eq!(in_one_step([800_000; 4], [90; 4]), [flag(false)]);
    // The first step is longer than the others, and idle as they are.
    let late = [800_000, 80_000, 80_000, 80_000];
    assert_eq!(in_one_step(late, [90, 9, 9, 9]), [flag(false)]);
    // The last step is short on the host only.
    let late = [800_000; 4];
    assert_eq!(with_last(late, [90, 90, 90, 2], 0), [flag(true)]);
    assert_eq!(with_last(late, [90, 90, 90, 2], 80), [flag(false)]);
}

#[test]
fn idle_time_after_a_wait_lasts_until_the_host_has_caught_up() {
    // A wait ends at 100 us; 60 kernels follow, each `apart` after the one before it.
    let share = |apart: i64, waits: bool| {
        let mut profile = ProfileBuilder::new();
        launch(&mut profile, "softmax_warp_forward", 0);
        if waits {
            profile.call(ThreadId(0), "cudaStreamSynchronize", 50_000, 0);
            profile.profile.calls.last_mut().unwrap().span.end = 100_000;
        }
        for number in 0..60 {
            launch(
                &mut profile,
                "softmax_warp_forward",
                110_000 + number * apart,
            );
        }
        of_run(&costed(profile), "run.idle_after_sync_share")
    };
    let known = |answer: Answer| match answer {
        Answer::Value(Value::Double(share)) => share,
        other => panic!("{other:?}"),
    };
    let all = known(share(80_000, true));
    assert!(all > 0.9, "{all}");
    // Of 12 ms of idle time, 5 ms.
    let part = known(share(200_000, true));
    assert!((0.35..0.5).contains(&part), "{part}");
    // A pause of 2 ms each has another cause.
    let long = known(share(2_000_000, true));
    assert!(long < 0.05, "{long}");
    assert_eq!(share(80_000, false), double(0.0));
}

#[test]
fn settings_of_data_loaders_are_known_where_all_agree() {
    let with = |loaders: &[LoaderConfig]| {
        let mut profile = ProfileBuilder::new();
        launch(&mut profile, "k", 0);
        profile.profile.loaders = loaders.to_vec();
        let costed = costed(profile);
        let facts = [
            "run.loader_workers",
            "run.loader_pins",
            "run.loader_prefetch",
        ];
        facts.map(|fact| of_run(&costed, fact))
    };
    let four = LoaderConfig {
        workers: 4,
        pin_memory: true,
        prefetch: Some(2),
        persistent: false,
    };
    let none = LoaderConfig {
        pin_memory: true,
        ..LoaderConfig::default()
    };
    let flag = flag(true);
    assert_eq!(
        with(&[]),
        [
            Answer::DoesNotApply,
            Answer::DoesNotApply,
            Answer::DoesNotApply
        ]
    );
    assert_eq!(with(&[four]), [int(4), flag.clone(), int(2)]);
    assert_eq!(
        with(&[four, none]),
        [Answer::DoesNotApply, flag, Answer::DoesNotApply]
    );
}

#[test]
fn work_of_a_detailed_recording_counts_as_in_the_light_one() {
    // A late launch follows the first kernel; the host waits for the second one.
    let recorded = |late: i64| {
        let mut b = ProfileBuilder::new();
        for step in 0..4 {
            let start = step * 10 * MS;
            launch(&mut b, "early", start);
            launch(&mut b, "late", start + late);
        }
        for (at, kernel) in b.profile.kernels.iter_mut().enumerate() {
            kernel.span.end = kernel.span.start + if at % 2 == 0 { MS } else { 4 * MS };
        }
        costed(b)
    };
    let (light, detailed) = (recorded(3 * MS), recorded(5 * MS));
    let of_light = FactTable::new(&light);
    let timed = FactTable::new(&detailed).timed_by(&of_light);
    let weights = |table: &FactTable<'_>| -> Vec<_> {
        let members = table.members(MemberKind::Site).into_iter();
        let affected = members.map(|member| table.affected(member));
        affected
            .map(|a| (a.sites.first().map(|s| s.step_weight), a.launch_ns))
            .collect()
    };
    assert_ne!(weights(&FactTable::new(&detailed)), weights(&of_light));
    assert_eq!(weights(&timed), weights(&of_light));
    assert_eq!(timed.totals().idle_ns, of_light.totals().idle_ns);
    assert_eq!(timed.totals().window_ns, of_light.totals().window_ns);
}
