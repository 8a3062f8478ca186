//! How many steps the work of the analyzed window amounts to: what figures per step are divided by.

use super::table::FactTable;

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
    let gpus = t.totals.device_count();
    let window_ns = t.costed.run.analysed_ns() as f64;
    let steps = steps_in_window(t.sums.work_steps, t.sums.steps, Some(step_ns), window_ns);
    (t.sums.steps > 0).then_some(steps * gpus)
}
