use super::*;
use crate::correlate::model::Run;
use crate::correlate::testing::ProfileBuilder;
use crate::profile::{ProcessId, RangeKind};

const MS: i64 = 1_000_000;

/// The last gap of the only device, and the texts of what ran in it.
fn last(run: &Run) -> (Gap, Option<&str>, Option<&str>) {
    let device = &run.timeline.devices[0];
    let at = device.gaps.len() - 1;
    let activity = run.activities.get(&(0, at)).cloned().unwrap_or_default();
    let text = |id: Option<StrId>| id.map(|id| run.profile.text(id));
    (
        device.gaps[at],
        text(activity.op),
        text(activity.short_calls),
    )
}

fn step_with(after_the_work: &str) -> Run {
    let mut b = ProfileBuilder::new();
    b.range("ProfilerStep#1", 0, 20 * MS);
    b.launch(MS);
    if !after_the_work.is_empty() {
        b.range(after_the_work, 2 * MS, 19 * MS);
    }
    b.run()
}

#[test]
fn what_runs_after_the_last_work_of_a_step_is_named() {
    let run = step_with("postprocess");
    let (gap, op, _) = last(&run);
    assert!(run.timeline.devices[0].is_at_end(&gap));
    assert_eq!((gap.cause, op), (GapCause::HostBusy, Some("postprocess")));
    assert_eq!(gap.reliable_ns, gap.span.ns());

    let run = step_with("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
    assert_eq!(last(&run).0.cause, GapCause::DataLoading);

    let run = step_with("");
    let (gap, op, _) = last(&run);
    assert!(run.timeline.devices[0].is_at_end(&gap));
    assert_eq!((gap.cause, op), (GapCause::HostBusy, None));
}

#[test]
fn many_short_calls_are_named_beside_their_caller() {
    let calls = |caller: bool, ns: i64| {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        if caller {
            b.range("preprocess", MS, 99 * MS);
        }
        for at in 1..99 {
            b.range("resize", at * MS, at * MS + ns);
        }
        b.launch(100 * MS);
        b.run()
    };
    let run = calls(true, 900_000);
    let (_, op, short) = last(&run);
    assert_eq!((op, short), (Some("preprocess"), Some("resize")));
    let run = calls(false, 900_000);
    let (_, op, short) = last(&run);
    assert_eq!((op, short), (Some("resize"), None));
    // Less than half of the gap.
    let run = calls(true, 400_000);
    let (_, op, short) = last(&run);
    assert_eq!((op, short), (Some("preprocess"), None));
}

/// The operators on the CPU, with their time in us, and the operator of the gap between two launches; a program that
/// makes these ranges and calls in it.
fn on_cpu(program: impl FnOnce(&mut ProfileBuilder)) -> (Vec<(String, i64)>, Option<String>) {
    let mut b = ProfileBuilder::new();
    b.launch(0);
    program(&mut b);
    b.launch(20 * MS);
    let run = b.run();
    let at = run.timeline.devices[0].gaps.len() - 1;
    let activity = &run.activities[&(0, at)];
    let ops = activity.cpu_ops.most.iter();
    let listed: Vec<(String, i64)> = ops
        .map(|(op, ns)| (run.profile.text(*op).to_owned(), ns / 1_000))
        .collect();
    let ns: i64 = activity.cpu_ops.most.iter().map(|(_, ns)| ns).sum();
    assert_eq!(activity.cpu_ops.ns, ns);
    let op = activity.op.map(|op| run.profile.text(op).to_owned());
    (listed, op)
}

fn listed(ops: &[(&str, i64)]) -> Vec<(String, i64)> {
    let ops = ops.iter();
    ops.map(|(op, us)| ((*op).to_owned(), *us)).collect()
}

#[test]
fn operators_on_the_cpu_are_those_that_the_program_called() {
    let (ops, op) = on_cpu(|b| {
        b.range("step", MS, 19 * MS);
        b.range("aten::div", 2 * MS, 3 * MS);
        b.range("aten::rand", 4 * MS, 15 * MS);
        b.range("aten::uniform_", 4 * MS + 1_000, 15 * MS);
        b.range("aten::div", 16 * MS, 18 * MS);
    });
    assert_eq!(ops, listed(&[("aten::rand", 11_000), ("aten::div", 3_000)]));
    assert_eq!(op.as_deref(), Some("aten::rand"));
    // Less than half of the gap: the range around it is named.
    let (ops, op) = on_cpu(|b| {
        b.range("step", MS, 19 * MS);
        b.range("aten::div", 2 * MS, 11 * MS);
    });
    assert_eq!(ops, listed(&[("aten::div", 9_000)]));
    assert_eq!(op.as_deref(), Some("step"));
}

#[test]
fn operators_that_call_the_device_are_not_on_the_cpu() {
    let (ops, _) = on_cpu(|b| {
        // Converts on the CPU, then copies.
        b.range("aten::to", 2 * MS, 8 * MS);
        b.range("aten::copy_", 3 * MS, 8 * MS);
        b.range("aten::to", 4 * MS, 6 * MS);
        b.call(ThreadId(0), "cudaStreamIsCapturing", 7 * MS, 0);
        b.range("aten::sub", 9 * MS, 10 * MS);
        let other = b.thread(ProcessId(0));
        b.call(other, "cudaStreamIsCapturing", 9 * MS + 1_000, 0);
        b.range_on(other, "aten::mul", 11 * MS, 19 * MS);
    });
    assert_eq!(ops, listed(&[("aten::to", 2_000), ("aten::sub", 1_000)]));
    // A call at the end of an operator is behind it, one at its start is inside.
    let (ops, _) = on_cpu(|b| {
        for (op, start) in [("aten::add", 2 * MS), ("aten::mul", 4 * MS)] {
            b.range(op, start, start + MS);
            b.call(ThreadId(0), "cudaStreamIsCapturing", 3 * MS, 0);
        }
        b.call(ThreadId(0), "cudaStreamIsCapturing", 4 * MS, 0);
    });
    assert_eq!(ops, listed(&[("aten::add", 1_000)]));
}

#[test]
fn operators_that_belong_on_the_cpu_or_take_microseconds_are_left_out() {
    for around in [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Optimizer.step#Adam.step",
        "aten::pin_memory",
        "aten::_pin_memory",
        "aten::unbind",
        "aten::split",
        "aten::chunk",
        "aten::tensor_split",
    ] {
        let (ops, _) = on_cpu(|b| {
            b.range(around, 2 * MS, 8 * MS);
            b.range("aten::stack", 3 * MS, 7 * MS);
            b.range("aten::stack", 8 * MS, 9 * MS);
        });
        assert_eq!(ops, listed(&[("aten::stack", 1_000)]), "{around}");
    }
    let of_kind = |kind: RangeKind, least: i64| {
        on_cpu(|b| {
            b.range("aten::view", 2 * MS, 2 * MS + least - 1).kind = kind;
            b.range("aten::add", 3 * MS, 3 * MS + least).kind = kind;
            b.range("at::native", 4 * MS, 5 * MS).kind = kind;
        })
    };
    let (ops, _) = of_kind(RangeKind::CpuOp, 100_000);
    assert_eq!(ops, listed(&[("aten::add", 100)]));
    // Markers of Nsight Systems that are shorter may have been removed.
    let (ops, _) = of_kind(RangeKind::PushPop, 500_000);
    assert_eq!(ops, listed(&[("aten::add", 500)]));
}

#[test]
fn only_the_part_in_the_gap_counts() {
    // The kernel runs for 5 ms of the operator.
    let mut b = ProfileBuilder::new();
    let kernel = b.launch(0);
    b.profile.kernels[kernel].span.end = 6 * MS;
    b.range("aten::mul", MS, 10 * MS);
    b.launch(20 * MS);
    b.range("aten::add", 21 * MS, 29 * MS);
    b.launch(30 * MS);
    let run = b.run();
    let ns = |gap: usize| run.activities[&(0, gap)].cpu_ops.ns;
    let first = run.timeline.devices[0].gaps.len() - 2;
    assert_eq!((ns(first), ns(first + 1)), (4 * MS, 8 * MS));
}
