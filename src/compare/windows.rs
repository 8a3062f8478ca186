//! Joins the reports of two recordings of the same steps: a light one, which slowed the host least, and a
//! detailed one with shapes and layers. Idle time comes from the first, operators from the second.

use crate::base::units::{ns, percent};
use crate::report::{JoinedWindows, Report, Summary, steps_in_window};

/// Largest difference between the kernel times per step of two recordings of the same work.
const SAME_WORK: f64 = 0.1;

/// The detailed report with the reason why it was not joined with the light one.
pub(crate) fn not_joined(light: &Report, mut detailed: Report) -> Report {
    detailed.cautions.push(format!(
        "The light recording {} has {} steps and this one {}, so they were not joined: idle time includes \
         the overhead of recording shapes.",
        light.title, light.summary.steps, detailed.summary.steps
    ));
    detailed
}

/// Joins the report of a light recording with that of a detailed one, whose findings are those of [both].
///
/// [both]: Report::of_windows
pub(crate) fn join(light: Report, mut detailed: Report) -> Report {
    let windows = windows(&light, &detailed);
    let sentence = agreement(&windows);
    match windows.agree {
        true => detailed.notes.push(sentence),
        false => detailed.cautions.push(sentence),
    }
    let summary = summary(&light.summary, &detailed.summary);
    let mut cut_files = light.cut_files;
    cut_files.append(&mut detailed.cut_files);
    let mut method = detailed.method;
    method.file_bytes = method.file_bytes.saturating_add(light.method.file_bytes);
    let mut joined = Report {
        ranks: light.ranks,
        timeline: light.timeline,
        host: light.host,
        host_profiles: light.host_profiles,
        setup: light.setup,
        units: light.units,
        launching: light.launching,
        synchronizations: light.synchronizations,
        windows: Some(windows),
        cut_files,
        method,
        summary,
        ..detailed
    };
    joined.sum_up();
    joined
}

fn windows(light: &Report, detailed: &Report) -> JoinedWindows {
    let per_step =
        |report: &Report| report.summary.kernel_time_ns as f64 / steps_in_window(&report.summary);
    let (light_ns, detailed_ns) = (per_step(light), per_step(detailed));
    let larger = light_ns.max(detailed_ns);
    JoinedWindows {
        light: light.title.clone(),
        light_kernel_ns_per_step: light_ns,
        detailed_kernel_ns_per_step: detailed_ns,
        agree: (light_ns - detailed_ns).abs() <= SAME_WORK * larger,
    }
}

fn agreement(windows: &JoinedWindows) -> String {
    let (light, detailed) = (
        windows.light_kernel_ns_per_step,
        windows.detailed_kernel_ns_per_step,
    );
    let times = format!(
        "kernels take {} per step in the light recording and {} in the detailed one",
        ns(light),
        ns(detailed)
    );
    match windows.agree {
        true => format!(
            "Idle time and step times come from a light recording, operators from a detailed one of the same \
             run; they recorded the same work: {times}."
        ),
        false => format!(
            "The two recordings of this run differ by {}: {times}. Idle time comes from the first, operators \
             from the second, so compare them with care.",
            percent((light - detailed).abs() / light.max(detailed))
        ),
    }
}

/// Times on the GPU's clock from the light recording; what operators are from the detailed one.
fn summary(light: &Summary, detailed: &Summary) -> Summary {
    Summary {
        gpu: detailed.gpu.clone(),
        kernel_time_ns: detailed.kernel_time_ns,
        kernels: detailed.kernels,
        with_operator_ns: detailed.with_operator_ns,
        cost_known_ns: detailed.cost_known_ns,
        best_ideal_ns: detailed.best_ideal_ns,
        slowdown: detailed.slowdown,
        slowdown_at_least: detailed.slowdown_at_least,
        ..light.clone()
    }
}
