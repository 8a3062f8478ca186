//! Exposed communication of the analyzed steps, exactly: from the kernels that were launched in them.

use rustc_hash::FxHashMap;

use crate::correlate::Run;
use crate::cost::kernel_name::is_communication;
use crate::profile::{Span, StrId};

/// Communication of the analyzed steps while no other kernel ran, in ns per device and step: the sum over
/// all analyzed steps, divided by their number. `None` without analyzed steps or without GPU work.
pub(crate) fn exposed_comm_per_step(run: &Run) -> Option<f64> {
    let steps = run.steps.iter().filter(|step| !step.warmup).count();
    let devices = &run.timeline.devices;
    if steps == 0 || devices.is_empty() {
        return None;
    }
    let profile = &run.profile;
    let mut rows: FxHashMap<usize, usize> = FxHashMap::default();
    rows.extend((devices.iter().enumerate()).map(|(row, d)| (d.device.idx(), row)));
    // Per device: communication of analyzed steps, and all other kernels.
    let mut work = vec![(Vec::<Span>::new(), Vec::<Span>::new()); devices.len()];
    let mut sends: FxHashMap<StrId, bool> = FxHashMap::default();
    for (kernel, link) in profile.kernels.iter().zip(&run.links) {
        let row = rows.get(&kernel.device.idx());
        let Some((communication, others)) = row.and_then(|row| work.get_mut(*row)) else {
            continue;
        };
        let sends = sends
            .entry(kernel.name)
            .or_insert_with(|| is_communication(profile.text(kernel.name)));
        if !*sends {
            others.push(kernel.span);
        } else if link.site.is_some() && is_analyzed(run, link.step) {
            communication.push(kernel.span);
        }
    }
    for graph in &profile.graphs {
        if let Some((_, others)) =
            (rows.get(&graph.device.idx())).and_then(|row| work.get_mut(*row))
        {
            others.push(graph.span);
        }
    }
    let exposed = work.into_iter().map(|(communication, others)| {
        let communication = Span::union(communication);
        covered_ns(&communication) - common_ns(&communication, &Span::union(others))
    });
    Some(exposed.sum::<i64>() as f64 / (steps * devices.len()) as f64)
}

/// Whether a step belongs to the analyzed ones.
pub(super) fn is_analyzed(run: &Run, step: Option<crate::correlate::StepId>) -> bool {
    let step = step.and_then(|id| run.step(id));
    step.is_some_and(|step| !step.warmup)
}

fn covered_ns(spans: &[Span]) -> i64 {
    spans.iter().map(|span| span.ns()).sum()
}

/// The time covered by both lists; each in time order, without overlap.
fn common_ns(a: &[Span], b: &[Span]) -> i64 {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut sum = 0;
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        sum += (x.end.min(y.end) - x.start.max(y.start)).max(0);
        if x.end < y.end {
            a.next();
        } else {
            b.next();
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// Two steps with 30 and 10 ns of exposed communication, and 40 ns before the first.
    #[test]
    fn communication_per_step_is_that_of_the_steps_over_their_number() {
        let mut b = ProfileBuilder::new();
        for step in 0..2 {
            b.range(
                &format!("step {step}"),
                1000 * (step + 1),
                1000 * (step + 2),
            );
        }
        let comm = b.profile.strings.intern("ncclDevKernel_AllReduce");
        for (launch, start, end, is_comm) in [
            (10, 100, 140, true),
            (1010, 1100, 1140, true),
            (1020, 1130, 1200, false),
            (2010, 2100, 2160, false),
            (2020, 2110, 2170, true),
        ] {
            let kernel = b.launch(launch);
            b.profile.kernels[kernel].span = Span { start, end };
            if is_comm {
                b.profile.kernels[kernel].name = comm;
            }
        }
        assert_eq!(exposed_comm_per_step(&b.run()), Some(20.0));
    }

    #[test]
    fn runs_without_steps_have_no_communication_per_step() {
        let mut b = ProfileBuilder::new();
        b.launch(10);
        assert_eq!(exposed_comm_per_step(&b.run()), None);
    }
}
