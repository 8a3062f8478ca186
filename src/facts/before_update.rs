//! Work between the end of a backward pass and the optimizer step: on gradients, such as norms for clipping.

use rustc_hash::FxHashMap;

use super::framework_signs::OPTIMIZER_STEP;
use super::range_paths::by_string;
use crate::correlate::{Direction, EVALUATES, Run, SiteId};
use crate::profile::{CallId, ProcessId, Span};

/// The spans between a backward pass and the optimizer step behind it, per process in time order.
#[derive(Debug, Default)]
pub(super) struct BeforeUpdate(FxHashMap<ProcessId, Vec<Span>>);

impl BeforeUpdate {
    pub(super) fn of(run: &Run) -> BeforeUpdate {
        let profile = &run.profile;
        let updates = by_string(run, |text| text.starts_with(OPTIMIZER_STEP));
        let mut spans: FxHashMap<ProcessId, Vec<Span>> = FxHashMap::default();
        if !updates.contains(&true) {
            return BeforeUpdate(spans);
        }
        let nodes = by_string(run, |text| text.starts_with(EVALUATES));
        // When the last node of a process ended, until its next optimizer step.
        let mut ended: FxHashMap<ProcessId, i64> = FxHashMap::default();
        for range in &profile.ranges {
            let is = |list: &[bool]| list.get(range.text.idx()) == Some(&true);
            let process = profile.process_of(range.thread);
            let Some(process) = process.filter(|_| is(&nodes) || is(&updates)) else {
                continue;
            };
            if is(&nodes) {
                let last = ended.entry(process).or_insert(range.span.end);
                *last = range.span.end.max(*last);
            } else if let Some(start) = ended.remove(&process)
                && start < range.span.start
            {
                let end = range.span.start;
                spans.entry(process).or_default().push(Span { start, end });
            }
        }
        BeforeUpdate(spans)
    }

    /// Whether a call stands there.
    pub(super) fn contains(&self, run: &Run, call: CallId) -> bool {
        let call = run.profile.call(call);
        call.is_some_and(|call| {
            let process = run.profile.process_of(call.thread);
            let spans = process.and_then(|process| self.0.get(&process));
            spans.is_some_and(|spans| Span::one_contains(spans, call.span.start))
        })
    }

    /// Kernel time there that passes for forward work, per site, in ns.
    pub(super) fn sites(&self, run: &Run) -> FxHashMap<SiteId, i64> {
        let mut sites: FxHashMap<SiteId, i64> = FxHashMap::default();
        if self.0.is_empty() {
            return sites;
        }
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            if let (Some(id), Some(call)) = (link.site, link.launch)
                && let Some(site) = run.site(id)
                && site.direction == Direction::Fprop
                && self.contains(run, call)
            {
                let ns = sites.entry(id).or_default();
                *ns = ns.saturating_add(kernel.span.ns());
            }
        }
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    #[test]
    fn work_between_backward_pass_and_optimizer_step() {
        let mut b = ProfileBuilder::new();
        for step in 0..2 {
            let at = step * 10_000;
            b.range("aten::mm", at + 100, at + 200);
            b.launch(at + 110);
            let node = format!("{EVALUATES}MmBackward0, seq = {step}");
            b.range(&node, at + 1_000, at + 2_000);
            b.launch(at + 1_100);
            b.range(
                &format!("aten::linalg_vector_norm, seq = {}", step + 5),
                at + 3_000,
                at + 3_200,
            );
            b.launch(at + 3_100);
            b.range("Optimizer.step#SGD.step", at + 4_000, at + 5_000);
            b.range("aten::add_", at + 4_050, at + 4_200);
            b.launch(at + 4_100);
        }
        let run = b.run();
        let sites = BeforeUpdate::of(&run).sites(&run);
        let mut found = Vec::new();
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            if link.site.is_some_and(|site| sites.contains_key(&site)) {
                found.push(kernel.span.start % 10_000 / 1_000);
            }
        }
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|ms| *ms == 3), "{found:?}");
    }

    #[test]
    fn without_an_optimizer_step_there_is_none() {
        let mut b = ProfileBuilder::new();
        b.range(&format!("{EVALUATES}MmBackward0, seq = 1"), 1_000, 2_000);
        b.launch(3_000);
        let run = b.run();
        assert!(BeforeUpdate::of(&run).sites(&run).is_empty());
    }
}
