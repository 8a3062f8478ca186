//! Kernels that CUDA graphs replay, by the ranges around their capture.

use super::testing::ProfileBuilder;
use super::*;
use crate::profile::{Capture, CaptureId, ProcessId, ThreadId};
use crate::read::Pruning;

const HOST: ThreadId = ThreadId(0);

fn capture(b: &mut ProfileBuilder, thread: ThreadId, time: i64) -> CaptureId {
    b.profile.captures.push(Capture { time, thread });
    CaptureId::new(b.profile.captures.len() - 1)
}

/// A graph launch and the kernels it replays, one after the other.
fn replay(b: &mut ProfileBuilder, time: i64, nodes: &[CaptureId]) -> Vec<usize> {
    let correlation = u64::try_from(time).unwrap();
    b.call(HOST, "cudaGraphLaunch", time, correlation);
    let mut at = time + 100;
    let kernels = nodes.iter().map(|node| {
        let kernel = b.kernel(ProcessId(0), at, correlation);
        at += 20;
        b.profile.kernels[kernel].in_graph = true;
        b.profile.kernels[kernel].captured = Some(*node);
        kernel
    });
    kernels.collect()
}

fn op(run: &Run, kernel: usize) -> Option<String> {
    let call = &run.op_calls[run.links[kernel].op?.idx()];
    Some(run.op_name(call)?.display())
}

fn site(run: &Run, kernel: usize) -> &Site {
    &run.sites[run.links[kernel].site.unwrap().idx()]
}

fn layer(run: &Run, kernel: usize) -> Option<&str> {
    Some(&run.layers[site(run, kernel).layer?.idx()].name)
}

/// A layer with two operators, of which the first launches two kernels.
fn captured_layer(b: &mut ProfileBuilder) -> [CaptureId; 3] {
    b.range("layer:blocks.0", 100, 300);
    b.range("aten::mm, op_id = 1, sizes = [[2, 3], [3, 4]]", 110, 150);
    b.range("aten::add, op_id = 2, sizes = [[2, 4], [2, 4]]", 160, 190);
    [120, 130, 170].map(|time| capture(b, HOST, time))
}

#[test]
fn replayed_kernels_have_the_operator_of_their_capture_in_each_replay() {
    let mut b = ProfileBuilder::new();
    let nodes = captured_layer(&mut b);
    let mut kernels = Vec::new();
    for step in 0..3 {
        let at = 1_000 * (step + 1);
        b.range(&format!("step {step}"), at - 10, at + 900);
        kernels.push(replay(&mut b, at, &nodes));
    }
    let run = b.run();
    for (step, row) in kernels.iter().enumerate() {
        let ops: Vec<Option<String>> = row.iter().map(|k| op(&run, *k)).collect();
        let ops: Vec<&str> = ops.iter().flatten().map(String::as_str).collect();
        assert_eq!(ops, ["aten::mm", "aten::mm", "aten::add"]);
        assert_eq!(layer(&run, row[0]), Some("blocks.0"));
        let links: Vec<&Link> = row.iter().map(|k| &run.links[*k]).collect();
        assert_eq!(links[0].op, links[1].op, "two kernels of one call");
        assert_eq!(links[0].missing, None);
        let launch = &run.profile.calls[links[0].launch.unwrap().idx()];
        assert_eq!(run.profile.text(launch.name), "cudaGraphLaunch");
        assert_eq!(links[0].step.unwrap().idx(), step);
        let call = &run.op_calls[links[2].op.unwrap().idx()];
        assert_eq!(call.step, links[2].step);
    }
    // A call per replay: 3 calls of 2 kernels, and 3 of 1.
    assert_eq!(run.op_calls.len(), 6);
    let product = site(&run, kernels[0][0]);
    assert_eq!((product.calls, product.time_ns), (3, 60));
    let sizes = &run.args[product.args.unwrap().idx()];
    let shapes: Vec<&[u64]> = sizes.tensors().map(|t| &t.shape[..]).collect();
    assert_eq!(shapes, [&[2, 3][..], &[3, 4]]);
    assert_eq!(site(&run, kernels[0][2]).calls, 3);
    assert!(run.links.iter().all(|link| link.op.is_some()));
}

#[test]
fn the_body_of_a_loop_in_a_graph_is_a_call_per_iteration() {
    let mut b = ProfileBuilder::new();
    let [first, second, add] = captured_layer(&mut b);
    let twice = [first, second, add, first, second, add];
    let kernels = replay(&mut b, 1_000, &twice);
    let again = replay(&mut b, 3_000, &twice[..3]);
    let run = b.run();
    let calls: Vec<_> = (kernels.iter().chain(&again))
        .map(|k| run.links[*k].op.unwrap().idx())
        .collect();
    assert_eq!(calls, [0, 0, 1, 2, 2, 3, 4, 4, 5]);
}

#[test]
fn replays_without_a_launch_record_have_operators() {
    let mut b = ProfileBuilder::new();
    let nodes = captured_layer(&mut b);
    let kernels = [replay(&mut b, 1_000, &nodes), replay(&mut b, 2_000, &nodes)].concat();
    b.profile.calls.clear();
    let run = b.run();
    let calls: Vec<_> = (kernels.iter())
        .map(|k| run.links[*k].op.unwrap().idx())
        .collect();
    assert_eq!(calls, [0, 0, 1, 2, 2, 3]);
}

#[test]
fn captured_backward_kernels_belong_to_the_forward_call_of_their_replay() {
    let mut b = ProfileBuilder::new();
    let engine = b.thread(ProcessId(0));
    b.range("layer:head", 90, 160);
    let sizes = "sizes = [[2, 3], [3, 4]]";
    b.range(&format!("aten::mm, seq = 7, op_id = 1, {sizes}"), 100, 150);
    b.range_on(engine, "MmBackward0, seq = 7, op_id = 2", 200, 250);
    let nodes = [capture(&mut b, HOST, 110), capture(&mut b, engine, 210)];
    let kernels = [
        replay(&mut b, 1_000, &nodes),
        replay(&mut b, 2_000, &nodes),
        // Forward and backward may be graphs of their own.
        replay(&mut b, 3_000, &nodes[..1]),
        replay(&mut b, 4_000, &nodes[1..]),
    ]
    .concat();
    let run = b.run();
    let call = |kernel: usize| &run.op_calls[run.links[kernels[kernel]].op.unwrap().idx()];
    for pair in [[0, 1], [2, 3], [4, 5]] {
        let [forward, backward] = pair.map(call);
        assert_eq!(forward.direction, Direction::Fprop);
        assert_eq!(backward.direction, Direction::Bprop);
        assert_eq!(backward.forward, run.links[kernels[pair[0]]].op);
        assert!(backward.args_from_forward);
    }
    assert_eq!(site(&run, kernels[1]).calls, 3);
    assert_eq!(layer(&run, kernels[1]), Some("head"));
}

#[test]
fn replays_without_an_operator_have_the_layer_of_their_capture() {
    let mut b = ProfileBuilder::new();
    b.range("capture", 90, 600);
    b.range("layer:blocks.0", 100, 200);
    let named = capture(&mut b, HOST, 150);
    let unnamed = capture(&mut b, HOST, 250);
    b.range("decode", 900, 1_500);
    let kernels = replay(&mut b, 1_000, &[named, unnamed]);
    b.launch(1_900);
    let run = b.run();
    let missing = kernels.iter().map(|k| run.links[*k].missing);
    let replays = [Some(WithoutOperator::GraphReplay); 2];
    assert_eq!(missing.collect::<Vec<_>>(), replays);
    assert_eq!(layer(&run, kernels[0]), Some("blocks.0"));
    // A range around all captures names no layer, the one around the launch of the graph does.
    assert_eq!(layer(&run, kernels[1]), Some("decode"));
}

#[test]
fn an_eager_call_in_the_range_of_a_capture_is_a_call_of_its_own() {
    let mut b = ProfileBuilder::new();
    b.range("aten::mm, op_id = 1", 100, 200);
    let eager = b.launch(110);
    let node = capture(&mut b, HOST, 150);
    let kernels = replay(&mut b, 1_000, &[node]);
    let after = b.launch(5_000);
    let run = b.run();
    assert_ne!(run.links[eager].op, run.links[kernels[0]].op);
    assert_eq!(op(&run, kernels[0]).as_deref(), Some("aten::mm"));
    // The graph was launched outside of any range, as this kernel was.
    assert_eq!(op(&run, after), None);
}

#[test]
fn ranges_around_captures_are_not_pruned() {
    let program = |prune: bool| {
        let mut b = ProfileBuilder::new();
        let mut nodes = Vec::new();
        b.range("start", 0, 10);
        for layer in 0..4 {
            let at = 100 * (layer + 1);
            b.range("aten::empty, op_id = 1", at, at + 5);
            b.range(
                "aten::mm, op_id = 2, sizes = [[2, 3], [3, 4]]",
                at + 10,
                at + 50,
            );
            nodes.push(capture(&mut b, HOST, at + 20));
        }
        let kernels = replay(&mut b, 1_000, &nodes);
        b.range("end", 9_000, 9_010);
        b.profile.ranges.sort_by_key(|range| range.span.start);
        if prune {
            UnneededRanges.prune(&mut b.profile);
        }
        let run = b.run();
        let ops: Vec<_> = kernels.iter().map(|k| op(&run, *k)).collect();
        (run.profile.pruned_ranges, ops)
    };
    let (removed, ops) = program(true);
    assert_eq!(removed, 3, "the first `aten::empty` stays");
    assert_eq!(ops, program(false).1);
    assert_eq!(ops, vec![Some("aten::mm".to_owned()); 4]);
}
