//! How many steps the work of the analysed window amounts to: what figures per step are divided by.

use super::FactTable;
use super::step_comm::is_analysed;
use crate::correlate::Run;

/// How many steps the kernels of the window amount to: some may belong to steps that began before the
/// capture. `None` if no kernel belongs to one of the `steps` analysed steps.
pub(crate) fn work_steps(run: &Run, steps: usize) -> Option<f64> {
    let (mut all, mut of_steps) = (0_i64, 0_i64);
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if link.site.is_none() {
            continue;
        }
        all = all.saturating_add(kernel.span.ns());
        if is_analysed(run, link.step) {
            of_steps = of_steps.saturating_add(kernel.span.ns());
        }
    }
    (of_steps > 0).then(|| steps as f64 * (all as f64 / of_steps as f64))
}

/// How many steps the work of the window amounts to, at least 1: from its kernels, else from the lengths
/// of the window and of a step.
pub(crate) fn steps_in_window(
    work_steps: Option<f64>,
    steps: u64,
    step_ns: Option<f64>,
    window_ns: f64,
) -> f64 {
    if let Some(steps) = work_steps {
        return steps.max(1.0);
    }
    let fit = step_ns.map(|ns| window_ns / ns);
    (steps.max(1) as f64).max(fit.filter(|f| f.is_finite()).unwrap_or(1.0))
}

/// Steps of the window times its GPUs; `None` without numbered steps.
pub(super) fn times_gpus(t: &FactTable<'_>) -> Option<f64> {
    let step_ns = t.sums.step_ns.filter(|ns| *ns > 0.0)?;
    let gpus = f64::from(t.totals.devices.max(1));
    let window_ns = t.totals.window_ns / gpus;
    let steps = steps_in_window(t.sums.work_steps, t.sums.steps, Some(step_ns), window_ns);
    (t.sums.steps > 0).then_some(steps * gpus)
}
