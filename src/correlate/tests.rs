use super::testing::ProfileBuilder;
use super::*;
use crate::profile::{ProcessId, RangeKind, ThreadId};

/// The displayed operator of a kernel.
fn op(run: &Run, kernel: usize) -> Option<String> {
    let call = &run.op_calls[run.links[kernel].op?.idx()];
    Some(run.op_name(call)?.display())
}

fn call(run: &Run, kernel: usize) -> &OpCall {
    &run.op_calls[run.links[kernel].op.unwrap().idx()]
}

fn layer(run: &Run, kernel: usize) -> Option<&str> {
    Some(&run.layers[call(run, kernel).layer?.idx()].name)
}

#[test]
fn correlation_ids_are_matched_per_process() {
    let mut b = ProfileBuilder::new();
    let other = b.process();
    b.range("aten::mm", 0, 10);
    b.range_on(other, "aten::add", 0, 10);
    b.call(ThreadId(0), "cudaLaunchKernel", 1, 7);
    b.call(other, "cudaLaunchKernel", 1, 7);
    let first = b.kernel(ProcessId(0), 100, 7);
    let second = b.kernel(ProcessId(1), 100, 7);
    let run = b.run();
    assert_eq!(op(&run, first).as_deref(), Some("aten::mm"));
    assert_eq!(op(&run, second).as_deref(), Some("aten::add"));
}

#[test]
fn the_runtime_row_of_a_launch_precedes_the_driver_row() {
    let mut b = ProfileBuilder::new();
    b.call(ThreadId(0), "cuLaunchKernel", 3, 7);
    b.call(ThreadId(0), "cudaLaunchKernel", 2, 7);
    b.kernel(ProcessId(0), 100, 7);
    let run = b.run();
    let launch = run.links[0].launch.unwrap();
    assert_eq!(run.profile.calls[launch.idx()].span.start, 2);
}

#[test]
fn kernels_without_an_operator_have_a_reason() {
    let mut b = ProfileBuilder::new();
    let no_launch = b.kernel(ProcessId(0), 50, 99);
    let no_range = b.launch(1);
    b.range("my range", 10, 20);
    let no_operator = b.launch(11);
    b.range("aten::mm", 30, 40);
    b.call(ThreadId(0), "cudaGraphLaunch", 31, 500);
    let replay = b.kernel(ProcessId(0), 200, 500);
    b.range("aten::mm", 50, 60);
    let known = b.launch(51);
    let run = b.run();
    for (kernel, missing) in [
        (no_launch, Some(WithoutOperator::NoLaunch)),
        (no_range, Some(WithoutOperator::NoRange)),
        (no_operator, Some(WithoutOperator::NoOperator)),
        (replay, Some(WithoutOperator::GraphReplay)),
        (known, None),
    ] {
        assert_eq!(run.links[kernel].missing, missing, "kernel {kernel}");
    }
    // All of them are in the totals.
    assert_eq!(run.sites.iter().map(|s| s.time_ns).sum::<i64>(), 50);
}

#[test]
fn a_hundred_thousand_open_getters_do_not_hide_operators() {
    let mut b = ProfileBuilder::new();
    for at in 0..100_000 {
        b.range("{'traceMarker': ['stale.py:1']}", 2 * at, 0);
        b.marker("torch", "__getattr__", 2 * at + 1, 0);
    }
    b.range("{'traceMarker': ['net.py:7']}", 300_000, 300_100);
    b.marker("torch.nn.functional", "conv2d", 300_010, 300_090);
    let inside = b.launch(300_050);
    let outside = b.launch(300_200);
    let run = b.run();
    assert_eq!(
        op(&run, inside).as_deref(),
        Some("torch.nn.functional.conv2d")
    );
    assert_eq!(layer(&run, inside), Some("net.py:7"));
    assert_eq!(
        run.links[outside].missing,
        Some(WithoutOperator::NoOperator)
    );
    let site = &run.sites[run.links[outside].site.unwrap().idx()];
    assert_eq!((site.layer, site.source_line.as_deref()), (None, None));
}

#[test]
fn a_never_closed_range_does_not_extend_the_operator_around_it() {
    let mut b = ProfileBuilder::new();
    b.marker("torch", "cat", 10, 20);
    b.range("left open", 12, 0);
    let inside = b.launch(15);
    let after = b.launch(30);
    let run = b.run();
    assert_eq!(op(&run, inside).as_deref(), Some("torch.cat"));
    assert_eq!(op(&run, after), None);
}

#[test]
fn start_end_ranges_are_never_operators() {
    let mut b = ProfileBuilder::new();
    b.range("aten::mm", 0, 10).kind = RangeKind::StartEnd;
    let kernel = b.launch(5);
    assert_eq!(
        b.run().links[kernel].missing,
        Some(WithoutOperator::NoRange)
    );
}

#[test]
fn a_marker_with_arguments_is_preferred_to_a_bare_name_inside_it() {
    let mut b = ProfileBuilder::new();
    b.marker(
        "torch.nn.functional",
        "multi_head_attention_forward",
        0,
        100,
    );
    b.marker("Tensor", "matmul", 10, 50);
    b.range("matmul, seq = 121", 11, 49);
    b.range("mm, seq = 122", 20, 40);
    let kernel = b.launch(30);
    let run = b.run_knowing(&|_| true);
    assert_eq!(op(&run, kernel).as_deref(), Some("Tensor.matmul"));
    assert_eq!(call(&run, kernel).direction, Direction::Fprop);
}

#[test]
fn without_arguments_the_innermost_known_name_is_the_operator() {
    let mut b = ProfileBuilder::new();
    b.range("aten::to, seq = 3, op_id = 1", 0, 100);
    b.range("aten::copy_, op_id = 2", 10, 90);
    let kernel = b.launch(30);
    let run = b.run();
    assert_eq!(op(&run, kernel).as_deref(), Some("aten::copy_"));
}

#[test]
fn kernels_of_one_range_are_one_call() {
    let mut b = ProfileBuilder::new();
    b.range("aten::mm, op_id = 1", 0, 10);
    b.launch(1);
    b.launch(2);
    b.range("aten::mm, op_id = 2", 20, 30);
    b.launch(21);
    let run = b.run();
    assert_eq!(run.links[0].op, run.links[1].op);
    assert_ne!(run.links[0].op, run.links[2].op);
    assert_eq!(run.sites.len(), 1);
    assert_eq!((run.sites[0].calls, run.sites[0].kernels[0].count), (2, 3));
}

/// A forward `F.linear` with its `mm` numbered 122, and the node that differentiates it.
fn linear_and_backward(inside_the_node: &str) -> (Run, usize, usize) {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    b.range("{'traceMarker': ['net.py:7']}", 0, 100);
    b.marker("torch.nn.functional", "linear", 1, 99);
    b.range("mm, seq = 122", 20, 40);
    let forward = b.launch(30);
    b.range_on(engine, "MmBackward, seq = 122", 200, 300);
    b.range_on(engine, inside_the_node, 210, 290);
    let backward = b.launch_on(engine, 250);
    (b.run_knowing(&|_| true), forward, backward)
}

#[test]
fn a_backward_node_inherits_operator_arguments_and_layer() {
    let (run, forward, backward) = linear_and_backward("mm, seq = 0");
    let call = call(&run, backward);
    assert_eq!(
        run.op_name(call).unwrap().display(),
        "torch.nn.functional.linear"
    );
    assert_eq!(call.direction, Direction::Bprop);
    assert!(call.args_from_forward && !call.recomputed);
    assert_eq!(call.forward, run.links[forward].op);
    assert_eq!(layer(&run, backward), Some("net.py:7"));
}

#[test]
fn a_backward_operator_with_shapes_keeps_its_arguments() {
    let (run, forward, backward) = linear_and_backward("mm, sizes = [[8, 4], [4, 2]]");
    let call = call(&run, backward);
    assert_eq!(run.op_name(call).unwrap().display(), "mm");
    assert!(!call.args_from_forward);
    assert_eq!(call.forward, run.links[forward].op);
    assert_eq!(layer(&run, backward), Some("net.py:7"));
}

#[test]
fn a_forward_range_without_kernels_still_names_the_layer() {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    b.range("layer:enc.3", 0, 100);
    b.range("aten::expand, seq = 5, op_id = 1", 10, 20);
    b.range_on(engine, "ExpandBackward0, seq = 5, op_id = 2", 200, 300);
    b.range_on(engine, "aten::sum, op_id = 3", 210, 290);
    let kernel = b.launch_on(engine, 250);
    let run = b.run();
    assert_eq!(op(&run, kernel).as_deref(), Some("aten::sum"));
    assert_eq!(layer(&run, kernel), Some("enc.3"));
    assert_eq!(call(&run, kernel).forward, None);
}

#[test]
fn the_backward_of_one_call_is_one_call() {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    b.marker("torch.nn.functional", "cross_entropy", 0, 100);
    b.range("aten::log_softmax, seq = 5, op_id = 1", 10, 20);
    b.range("aten::nll_loss, seq = 6, op_id = 2", 30, 40);
    // The backward runs twice: `retain_graph=True`.
    let mut kernels = Vec::new();
    for at in [200, 300] {
        b.range_on(engine, "NllLossBackward0, seq = 6", at, at + 20);
        kernels.push(b.launch_on(engine, at + 5));
        b.range_on(engine, "LogSoftmaxBackward0, seq = 5", at + 30, at + 50);
        kernels.push(b.launch_on(engine, at + 35));
    }
    let run = b.run();
    let calls: Vec<_> = kernels.iter().map(|k| run.links[*k].op.unwrap()).collect();
    assert_eq!(calls[0], calls[1], "two nodes of one forward call");
    assert_eq!(calls[2], calls[3]);
    assert_ne!(calls[0], calls[2], "two passes over the graph");
    let site = &run.sites[run.links[kernels[0]].site.unwrap().idx()];
    assert!(site.args_from_forward);
    assert_eq!((site.calls, site.kernels[0].count), (2, 4));
    assert_eq!(
        op(&run, kernels[0]).as_deref(),
        Some("torch.nn.functional.cross_entropy")
    );
}

#[test]
fn the_nearest_earlier_forward_is_the_origin() {
    let mut b = ProfileBuilder::new();
    for (start, name) in [(0, "layer:a"), (1000, "layer:b"), (5000, "layer:c")] {
        b.range(name, start, start + 100);
        b.range("aten::mm, seq = 9, op_id = 1", start + 10, start + 20);
        b.launch(start + 15);
    }
    b.range("MmBackward0, seq = 9, op_id = 2", 2000, 2100);
    b.range("aten::mm, op_id = 3", 2010, 2090);
    b.launch(2050);
    let run = b.run();
    let backward = (0..4)
        .find(|k| call(&run, *k).direction == Direction::Bprop)
        .unwrap();
    assert_eq!(layer(&run, backward), Some("b"));
}

#[test]
fn recomputed_forward_work_is_forward_work() {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    b.range("aten::relu, seq = 1194, op_id = 1", 0, 10);
    b.launch(5);
    // The forward thread's own number 930, which the recomputation's collides with.
    b.range("layer:original", 20, 40);
    b.range("aten::conv2d, seq = 930, op_id = 2", 22, 38);
    b.launch(30);
    b.range_on(engine, "ReluBackward0, seq = 1194, op_id = 3", 100, 300);
    b.range_on(engine, "aten::conv2d, seq = 930, op_id = 4", 110, 150);
    b.range_on(engine, "aten::convolution, op_id = 5", 112, 148);
    let recomputed = b.launch_on(engine, 120);
    b.range_on(engine, "aten::threshold_backward, op_id = 6", 200, 250);
    let gradient = b.launch_on(engine, 220);
    b.range_on(
        engine,
        "ConvolutionBackward0, seq = 930, op_id = 7",
        400,
        500,
    );
    b.range_on(engine, "aten::convolution_backward, op_id = 8", 410, 490);
    let convolution = b.launch_on(engine, 420);
    let run = b.run();
    let call_of = |k| call(&run, k);
    assert_eq!(call_of(recomputed).direction, Direction::Fprop);
    assert!(call_of(recomputed).recomputed);
    assert_eq!(call_of(gradient).direction, Direction::Bprop);
    assert!(!call_of(gradient).recomputed);
    assert_eq!(layer(&run, convolution), Some("original"));
}

#[test]
fn the_backward_of_a_backward_is_not_recomputation() {
    let mut b = ProfileBuilder::new();
    b.range("MulBackward0, seq = 4, op_id = 1", 0, 100);
    b.range("aten::mul, seq = 9, op_id = 2", 10, 20);
    let kernel = b.launch(15);
    b.range("aten::tanh_backward, seq = 10, op_id = 3", 200, 210);
    b.launch(205);
    let run = b.run();
    assert_eq!(call(&run, kernel).direction, Direction::Bprop);
}

#[test]
fn direction_follows_autograd_records_and_range_names() {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    let mut cases = Vec::new();
    b.range("aten::mm, op_id = 1", 0, 10);
    cases.push((b.launch(5), Direction::Unknown));
    b.range("aten::mm, seq = 4, op_id = 2", 20, 30);
    cases.push((b.launch(25), Direction::Fprop));
    b.range("Optimizer.step#SGD.step", 40, 60);
    b.range("aten::add_, op_id = 3", 42, 50);
    cases.push((b.launch(45), Direction::Update));
    b.range("aten::_fused_adam_, op_id = 4", 70, 80);
    cases.push((b.launch(75), Direction::Update));
    b.range(
        "{'traceMarker': ['a.py:1', '/x/site-packages/torch/nn/utils/clip_grad.py:32']}",
        90,
        110,
    );
    b.marker("Tensor", "norm", 92, 108);
    cases.push((b.launch(95), Direction::Update));
    b.range("## backward ##", 120, 130);
    b.range("aten::mm, op_id = 5", 122, 128);
    cases.push((b.launch(125), Direction::Bprop));
    // The loss, computed in what the user calls backward.
    b.range("## backward ##", 140, 150);
    b.range("aten::nll_loss, seq = 5, op_id = 6", 142, 148);
    cases.push((b.launch(145), Direction::Fprop));
    // Gradients summed between the nodes of the engine's thread.
    b.range_on(engine, "MmBackward, seq = 4", 200, 210);
    b.range_on(engine, "aten::add_, seq = 0", 220, 230);
    cases.push((b.launch_on(engine, 225), Direction::Bprop));
    let run = b.run();
    for (kernel, direction) in cases {
        assert_eq!(call(&run, kernel).direction, direction, "kernel {kernel}");
    }
    assert!(run.layers.iter().all(|l| !l.name.contains("backward")));
}

#[test]
fn layers_come_from_the_best_source() {
    let mut b = ProfileBuilder::new();
    b.range("FSDP::pre_forward (blocks.7._fsdp_wrapped_module)", 0, 5);
    b.range("user", 10, 100);
    b.range("aten::mm, op_id = 1", 20, 30);
    let fsdp = b.launch(25);
    b.range("layer:head", 40, 60);
    b.range("aten::mm, op_id = 2", 42, 58);
    let explicit = b.launch(45);
    b.range("FSDP::post_forward (blocks.7._fsdp_wrapped_module)", 70, 75);
    b.range("aten::mm, op_id = 3", 80, 90);
    let user = b.launch(85);
    b.range("aten::mm, op_id = 4", 110, 120);
    let none = b.launch(115);
    let run = b.run();
    assert_eq!(layer(&run, fsdp), Some("blocks.7"));
    assert_eq!(layer(&run, explicit), Some("head"));
    assert_eq!(layer(&run, user), Some("user"));
    assert_eq!(layer(&run, none), None);
    assert_eq!(call(&run, fsdp).direction, Direction::Fprop);
    let pattern = run
        .layers
        .iter()
        .find(|l| l.name == "blocks.7")
        .unwrap()
        .pattern;
    assert_eq!(run.patterns[pattern.idx()].name, "blocks.*");
}

#[test]
fn a_range_around_everything_and_a_step_are_not_layers() {
    let mut b = ProfileBuilder::new();
    b.range("main", 0, 1000);
    b.range("step 1", 10, 100);
    b.range("aten::mm, op_id = 1", 20, 30);
    let kernel = b.launch(25);
    let run = b.run();
    assert_eq!(layer(&run, kernel), None);
    assert_eq!(run.layer_source, Some(LayerSource::Op));
    assert_eq!(run.steps.len(), 1);
    assert_eq!(run.links[kernel].step, Some(StepId(0)));
    assert_eq!(call(&run, kernel).step, Some(StepId(0)));
}

#[test]
fn module_stacks_become_layer_paths() {
    let mut b = ProfileBuilder::new();
    for (text, start, end) in [
        ("nn.Module: Net_0", 0, 100),
        ("nn.Module: Linear_3", 10, 90),
    ] {
        b.range(text, start, end).kind = RangeKind::Python;
    }
    b.range("aten::mm", 20, 30).kind = RangeKind::CpuOp;
    let kernel = b.launch(25);
    let run = b.run();
    assert_eq!(layer(&run, kernel), Some("Net_0.Linear_3"));
    assert_eq!(run.patterns[0].name, "Net_*.Linear_*");
    assert_eq!(call(&run, kernel).direction, Direction::Fprop);
}

#[test]
fn steps_come_from_one_thread_and_are_shared_by_ranks() {
    let mut b = ProfileBuilder::new();
    let rank = b.process();
    for number in 0..3 {
        let at = number * 100;
        b.range(&format!("ProfilerStep#{number}"), at, at + 90);
        b.range(&format!("step {number}"), at + 5, at + 80);
        b.range_on(rank, &format!("ProfilerStep#{number}"), at + 2, at + 95);
    }
    b.launch(150);
    let run = b.run();
    let steps: Vec<_> = run
        .steps
        .iter()
        .map(|s| (s.number, s.span.start, s.span.end))
        .collect();
    assert_eq!(steps, [(0, 0, 95), (1, 100, 195), (2, 200, 295)]);
    assert_eq!(run.links[0].step, Some(StepId(1)));
}

#[test]
fn declared_warm_up_is_outside_the_window() {
    let mut b = ProfileBuilder::new();
    b.range("warmup", 0, 50);
    b.range("aten::mm, op_id = 1", 10, 20);
    let warm = b.launch(15);
    b.range("aten::mm, op_id = 2", 60, 70);
    let real = b.launch(65);
    let run = b.run();
    assert_eq!(run.links[warm].site, None);
    assert!(run.links[real].site.is_some());
    assert_eq!(run.sites[0].time_ns, 10);
}

#[test]
fn profiler_overhead_is_detected_in_captures_with_markers_only() {
    let mut b = ProfileBuilder::new();
    b.range("user", 0, 10);
    b.launch(5);
    b.launch(200);
    assert_eq!(b.run().unreliable_idle, None);
    let mut b = ProfileBuilder::new();
    for i in 0..100 {
        b.range("aten::mm, op_id = 2", i * 2_000, i * 2_000 + 1_000);
    }
    b.launch(5);
    b.launch(200_000);
    assert!(b.run().unreliable_idle.unwrap().contains("emit_nvtx"));
    let mut b = ProfileBuilder::new();
    for i in 0..1_000 {
        let start = i * 200;
        b.range("train.py(3): step", start, start + 100).kind = RangeKind::Python;
    }
    b.launch(5);
    b.launch(200_000);
    assert!(b.run().unreliable_idle.unwrap().contains("with_stack"));
    let mut b = ProfileBuilder::new();
    for i in 0..60 {
        b.launch(i * 100_000);
        b.profile.kernels.last_mut().unwrap().span.end += 30_000;
        b.profile.calls.last_mut().unwrap().span.end += 40_000;
    }
    assert!(b.run().unreliable_idle.unwrap().contains("LAUNCH_BLOCKING"));
}

#[test]
fn stacks_explain_no_more_of_late_launches_than_their_events_cost() {
    const US: i64 = 1_000;
    // A launch every 100 us, each after an operator and 20 Python calls, for 20 ms.
    let mut b = ProfileBuilder::new();
    for launch in 0..200 {
        let start = launch * 100 * US;
        b.range("aten::mm", start + US, start + 90 * US).kind = RangeKind::CpuOp;
        for call in 0..20 {
            let start = start + (2 + call) * US;
            b.range("model.py(7): forward", start, start + 500).kind = RangeKind::Python;
        }
        b.launch(start + 80 * US);
    }
    let run = b.run();
    let device = &run.timeline.devices[0];
    assert!(device.gaps.iter().all(|g| g.cause == GapCause::HostLate));
    let share = device.reliable_idle_ns() as f64 / device.idle_ns() as f64;
    assert!(
        (share - (1.0 - (20.0 + 2.0) / 100.0)).abs() < 0.02,
        "{share}"
    );
}

#[test]
fn recording_overhead_explains_no_more_of_a_pause_than_its_ranges_cost() {
    const MS: i64 = 1_000_000;
    // The host launches nothing for 9 ms, in which 100 operators were marked.
    let mut b = ProfileBuilder::new();
    b.launch(0);
    for i in 0..100 {
        b.range(
            "aten::slice, op_id = 2",
            MS + i * 1_000,
            MS + i * 1_000 + 500,
        );
    }
    b.launch(10 * MS);
    let run = b.run();
    let gap = run.timeline.devices[0].gaps[0];
    assert_eq!(gap.cause, GapCause::HostBusy);
    let unexplained = gap.span.ns() - 100 * 10_000;
    assert!((gap.reliable_ns - unexplained).abs() < 1_000, "{gap:?}");
    assert_eq!(run.unreliable_idle, None);
}

#[test]
fn optimizer_ranges_end_steps_and_loader_ranges_begin_them() {
    let mut b = ProfileBuilder::new();
    for step in 0..3 {
        let at = step * 1_000;
        let loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        b.range(loader, at + 100, at + 200);
        b.launch(at + 300);
        b.range("Optimizer.step#SGD.step", at + 500, at + 600);
        b.launch(at + 550);
        b.range("Optimizer.zero_grad#SGD.zero_grad", at + 700, at + 800);
    }
    let run = b.run();
    let steps: Vec<_> = run
        .steps
        .iter()
        .map(|s| (s.span.start, s.span.end))
        .collect();
    assert_eq!(steps, [(100, 600), (600, 1_600), (1_600, 2_600)]);
    let origin = run.step_origin.unwrap();
    assert_eq!(origin.source, StepSource::Optimizer);
    assert_eq!(origin.text, "Optimizer.step#SGD.step");
    assert_eq!(run.window.span.map(|w| w.start), Some(100));
}

#[test]
fn equal_ranges_of_the_user_are_steps_if_they_hold_the_same_work() {
    let program = |last: &[&str]| {
        let mut b = ProfileBuilder::new();
        for step in 0..6 {
            let at = step * 1_000;
            b.range("generate", at, at + 900);
            for (i, name) in (0..).zip(["gemm", "softmax"]) {
                let kernel = b.launch(at + 100 + i * 100);
                let name = b.profile.strings.intern(name);
                b.profile.kernels[kernel].name = name;
            }
        }
        for (i, name) in (0..).zip(last) {
            let kernel = b.launch(5_910 + i * 10);
            let name = b.profile.strings.intern(name);
            b.profile.kernels[kernel].name = name;
        }
        b.run()
    };
    let run = program(&[]);
    assert_eq!(run.steps.len(), 6);
    assert_eq!(run.step_origin.unwrap().source, StepSource::RepeatedRange);
    // Layers repeat as well, but different work follows the last one.
    assert_eq!(program(&["lm_head"]).step_origin, None);
}

#[test]
fn a_repeating_sequence_of_kernels_shows_steps() {
    let program = |tail: &[&str], waits: bool| {
        let mut b = ProfileBuilder::new();
        for step in 0..4 {
            let at = step * 1_000;
            for i in 0..10 {
                let kernel = b.launch(at + i * 50);
                let name = ["embedding", "gemm", "add"][(i.min(1) + (i & 1) * i.min(1)) as usize];
                let name = b.profile.strings.intern(name);
                b.profile.kernels[kernel].name = name;
            }
            if waits {
                b.call(ThreadId(0), "cudaDeviceSynchronize", at + 600, 100);
            }
        }
        for (i, name) in (0..).zip(tail) {
            let kernel = b.launch(4_000 + i * 50);
            let name = b.profile.strings.intern(name);
            b.profile.kernels[kernel].name = name;
        }
        b.run()
    };
    let run = program(&[], true);
    assert_eq!(run.step_origin.unwrap().source, StepSource::KernelSequence);
    assert!(run.steps.len() >= 3, "{:?}", run.steps);
    assert_eq!(program(&["lm_head"], true).step_origin, None);
    assert_eq!(
        program(&[], false).step_origin,
        None,
        "the host never waits"
    );
}

#[test]
fn steps_are_those_of_the_training_and_not_of_the_evaluation_after_it() {
    let program = |training: i64| {
        let mut b = ProfileBuilder::new();
        let mut at = 0;
        let mut step = |names: &[&str]| {
            for (i, name) in (0..).zip(names) {
                let kernel = b.launch(at + i * 50);
                let name = b.profile.strings.intern(name);
                b.profile.kernels[kernel].name = name;
            }
            b.call(ThreadId(0), "cudaDeviceSynchronize", at + 800, 100);
            at += 1_000;
        };
        let forward = ["a", "b", "a", "b", "a", "b", "a", "b", "loss"];
        let backward = ["loss_bw", "c", "d", "c", "d", "c", "d", "adam"];
        for _ in 0..training {
            step(&[&forward[..], &backward[..]].concat());
        }
        for _ in 0..4 {
            step(&[&forward[..8], &["accuracy"]].concat());
        }
        b.run().steps.len()
    };
    assert!(program(12) >= 10, "{}", program(12));
    // Neither holds most of the work.
    assert_eq!(program(2), 0);
}

#[test]
fn a_slow_first_iteration_with_the_same_work_is_not_analysed() {
    let mut b = ProfileBuilder::new();
    let mut at = 0;
    for step in 0..4 {
        let length = if step == 0 { 5_000 } else { 1_000 };
        b.range(&format!("step {step}"), at, at + length);
        b.launch(at + 500);
        at += length;
    }
    let run = b.run();
    let analysed: Vec<_> = run
        .steps
        .iter()
        .filter(|s| !s.warmup)
        .map(|s| s.number)
        .collect();
    assert_eq!(analysed, [1, 2, 3]);
    assert_eq!(run.window.span.map(|w| w.start), Some(5_000));
    assert_eq!(run.window.setup.excluded[0].why, Exclusion::FirstIteration);
}

#[test]
fn correlation_is_deterministic() {
    let build = || {
        let mut b = ProfileBuilder::new();
        for i in 0..200 {
            let at = i * 100;
            b.range(&format!("layer:l.{}", i % 7), at, at + 50);
            b.range(
                &format!("aten::op{}, op_id = {i}", i % 11),
                at + 10,
                at + 40,
            );
            b.launch(at + 20);
        }
        b.run()
    };
    let (one, two) = (build(), build());
    assert_eq!(format!("{:?}", one.sites), format!("{:?}", two.sites));
    assert_eq!(format!("{:?}", one.layers), format!("{:?}", two.layers));
}

#[test]
fn an_operator_of_thousands_of_kernels_is_one_call() {
    // More than one batch, alternating between two scopes.
    const KERNELS: i64 = 40_000;
    let mut b = ProfileBuilder::new();
    b.range("mm, sizes = [[8, 4], [4, 2]]", 0, KERNELS / 2);
    b.range("add, sizes = [[8, 4], [8, 4]]", KERNELS / 2, KERNELS);
    b.range("relu, sizes = [[8, 4]]", KERNELS - 2_000, KERNELS - 1_000);
    for time in 0..KERNELS {
        b.launch(time);
    }
    let run = b.run_knowing(&|_| true);
    let ops: Vec<_> = run
        .op_calls
        .iter()
        .map(|c| run.op_name(c).unwrap().display())
        .collect();
    assert_eq!(ops, ["mm", "add", "relu"]);
    let of = |call: u32| {
        run.links
            .iter()
            .filter(|l| l.op == Some(OpCallId(call)))
            .count()
    };
    assert_eq!((of(0), of(1), of(2)), (20_000, 19_000, 1_000));
    assert_eq!(
        run.sites.iter().map(|s| s.calls).collect::<Vec<_>>(),
        [1, 1, 1]
    );
}

/// A cpu_op of a torch.profiler trace.
fn cpu_op(b: &mut ProfileBuilder, text: &str, start: i64, end: i64, seq: Option<u64>) {
    let range = b.range(text, start, end);
    range.kind = RangeKind::CpuOp;
    range.seq = seq.and_then(crate::profile::SerialNumber::new);
}

#[test]
fn python_autograd_functions_are_operators() {
    let mut b = ProfileBuilder::new();
    cpu_op(&mut b, "LinearWithGradAccumulationFP8", 0, 100, Some(7));
    let own = b.launch(10);
    cpu_op(&mut b, "aten::mm", 20, 40, Some(7));
    let inner = b.launch(30);
    // User ranges of traces of 2021 have bare names too.
    cpu_op(&mut b, "my range", 200, 300, None);
    let outside = b.launch(210);
    let run = b.run_knowing(&|op| op.module == "aten");
    assert_eq!(
        op(&run, own).as_deref(),
        Some("LinearWithGradAccumulationFP8")
    );
    assert_eq!(op(&run, inner).as_deref(), Some("aten::mm"));
    assert_eq!(
        run.links[outside].missing,
        Some(WithoutOperator::NoOperator)
    );
}

/// The direction of the call of a kernel.
fn direction(run: &Run, kernel: usize) -> Direction {
    call(run, kernel).direction
}

#[test]
fn a_closure_in_an_optimizer_step_is_forward_and_backward() {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    b.range("Optimizer.step#AdamW.step", 0, 1000);
    b.range("Optimizer.zero_grad#AdamW.zero_grad", 5, 20);
    cpu_op(&mut b, "aten::zero_", 6, 18, Some(40));
    let zero = b.launch(10);
    cpu_op(&mut b, "aten::mm", 30, 60, Some(40));
    let forward = b.launch(40);
    cpu_op(&mut b, "aten::gelu", 70, 90, Some(41));
    let loss = b.launch(80);
    for (name, seq, start) in [("GeluBackward0", 41, 200), ("MmBackward0", 40, 300)] {
        let node = b.range_on(engine, name, start, start + 80);
        node.kind = RangeKind::CpuOp;
        node.seq = crate::profile::SerialNumber::new(seq);
    }
    let backward = [b.launch_on(engine, 220), b.launch_on(engine, 320)];
    cpu_op(&mut b, "aten::add_", 500, 520, None);
    let update = b.launch(510);
    // Numbered like the next step's forward, whose backward runs after this step.
    cpu_op(&mut b, "aten::norm", 600, 620, Some(42));
    let clip = b.launch(610);
    cpu_op(&mut b, "aten::mm", 1100, 1120, Some(42));
    b.launch(1110);
    let node = b.range_on(engine, "MmBackward0", 1300, 1400);
    node.kind = RangeKind::CpuOp;
    node.seq = crate::profile::SerialNumber::new(42);
    b.launch_on(engine, 1310);
    let run = b.run();
    for kernel in [forward, loss] {
        assert_eq!(direction(&run, kernel), Direction::Fprop, "{kernel}");
    }
    for kernel in backward {
        assert_eq!(direction(&run, kernel), Direction::Bprop, "{kernel}");
    }
    for kernel in [zero, update, clip] {
        assert_eq!(direction(&run, kernel), Direction::Update, "{kernel}");
    }
}

#[test]
fn an_optimizer_inside_an_autograd_node_updates() {
    let mut b = ProfileBuilder::new();
    b.range("torch::autograd::AccumulateGrad", 0, 100);
    b.range("Optimizer.step#SGD.step", 10, 90);
    cpu_op(&mut b, "aten::add_", 20, 40, None);
    let update = b.launch(30);
    assert_eq!(direction(&b.run(), update), Direction::Update);
}

#[test]
fn additions_to_parameters_after_the_backward_pass_update() {
    let mut b = ProfileBuilder::new();
    let mut at = 0;
    let mut runs = |text: &str| {
        at += 100;
        b.range(text, at, at + 50);
        b.launch(at + 20)
    };
    let bias = runs("add_, seq = 7");
    runs("mm, seq = 8");
    runs("MmBackward, seq = 8");
    let updates = [runs("add_, seq = 9"), runs("addcdiv_, seq = 9")];
    // What is recorded next, and numbers that are printed only where something is recorded.
    let others = [
        runs("mm, seq = 9"),
        runs("add_, seq = 10"),
        runs("add_, seq = 9, op_id = 2"),
    ];
    let run = b.run_knowing(&|_| true);
    for kernel in others.into_iter().chain([bias]) {
        assert_eq!(direction(&run, kernel), Direction::Fprop, "{kernel}");
    }
    for kernel in updates {
        assert_eq!(direction(&run, kernel), Direction::Update, "{kernel}");
    }
}

#[test]
fn modules_named_by_lightning_and_by_kind_are_layers_of_the_forward() {
    let mut b = ProfileBuilder::new();
    b.range("[pl][profile]run_training_batch", 0, 1000);
    b.range("[pl][profile][LightningModule]Net.optimizer_step", 1, 999);
    b.range("Optimizer.step#AdamW.step", 2, 998);
    b.range("[pl][module]__main__.Net: ", 10, 200);
    b.range("[pl][module]torch.nn.modules.linear.Linear: net.0", 20, 100);
    cpu_op(&mut b, "aten::addmm", 30, 90, None);
    let linear = b.launch(40);
    cpu_op(&mut b, "aten::relu", 120, 140, None);
    let relu = b.launch(130);
    b.range(
        "attention::layers.23._checkpoint_wrapped_module.attention",
        2000,
        2100,
    );
    cpu_op(&mut b, "aten::mm", 2010, 2050, None);
    let attention = b.launch(2020);
    let run = b.run();
    for (kernel, name) in [
        (linear, "net.0"),
        (relu, "Net"),
        (attention, "layers.23.attention"),
    ] {
        assert_eq!(layer(&run, kernel), Some(name));
        assert_eq!(direction(&run, kernel), Direction::Fprop, "{name}");
    }
}

#[test]
fn a_wait_is_in_its_layer_before_the_first_launch_there_and_at_any_depth() {
    let mut b = ProfileBuilder::new();
    b.range("layer:a", 0, 1_000);
    for inner in 1..=100 {
        b.range("inner", inner, 500 - inner);
    }
    b.call(ThreadId(0), "cudaDeviceSynchronize", 200, 7);
    // After all of them.
    b.call(ThreadId(0), "cudaDeviceSynchronize", 1_500, 8);
    b.launch(600);
    let run = b.run();
    let inside: Vec<i64> = (run.waits_in_layers.iter())
        .map(|id| run.profile.call(*id).unwrap().span.start)
        .collect();
    assert_eq!(inside, [200]);
}

#[test]
fn a_call_that_waits_may_also_have_launched_a_kernel() {
    let mut b = ProfileBuilder::new();
    b.range("layer:a", 0, 100);
    b.call(ThreadId(0), "cudaStreamSynchronize", 10, 7);
    let kernel = b.kernel(ProcessId(0), 200, 7);
    let run = b.run();
    assert!(run.links[kernel].launch.is_some());
    assert_eq!(run.waits_in_layers.len(), 1);
}
