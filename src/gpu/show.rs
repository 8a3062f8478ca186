//! One GPU's spec as text for a terminal: `gpus show`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use super::calibration::{Calibration, Sourced};
use super::keys::REACHABLE_KEYS;
use super::load::Spec;
use crate::base::diag::visible;
use crate::base::{DType, units};

/// The spec as aligned lines, with a final newline; units are printed with every number.
pub fn show(spec: &Spec) -> String {
    let gpu = &spec.gpu;
    let mut out = format!("{} ({})\n", visible(&gpu.name), visible(&gpu.id));
    let mut line = |label: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            let _ = writeln!(out, "  {label:<22}{}", visible(&value));
        }
    };
    let kib = |bytes: u32| format!("{} KiB", bytes / 1024);
    let mib = |bytes: f64| format!("{} MiB", bytes / 1_048_576.0);
    line("device names", Some(spec.device_names.join(", ")));
    line("aliases", Some(spec.aliases.join(", ")));
    line("default for", Some(spec.default_for.join(", ")));
    line("architecture", Some(architecture(spec)));
    line("SMs", gpu.sms().map(|n| n.to_string()));
    line("clock", clock(spec));
    line("peak", Some(rates(&gpu.flops)));
    line("Tensor Core peak", Some(rates(&gpu.tensor_flops)));
    line("Tensor Core multiple", Some(alignments(&gpu.tensor_align)));
    line("DRAM", Some(memory(spec)));
    line("last-level cache", gpu.l2_bytes.map(mib));
    line("shared memory", gpu.shared_per_sm.map(kib).map(per_sm));
    let per_block = spec.shared_per_block.map(kib);
    line("", per_block.map(|size| format!("{size} per block")));
    line("registers", gpu.registers_per_sm.map(per_sm));
    line("threads", gpu.max_threads_per_sm.map(per_sm));
    line("blocks", gpu.max_blocks_per_sm.map(per_sm));
    line("warp schedulers", gpu.warp_schedulers.map(per_sm));
    line("PCIe", gpu.pcie_gen.map(|n| format!("generation {n}")));
    let both = |rate| format!("{}, both directions", units::rate(rate));
    line("NVLink", gpu.nvlink.map(both));
    line("power", spec.power_w.map(|w| format!("{w} W")));
    let [math, memory] = [gpu.reachable.math, gpu.reachable.memory].map(units::percent);
    let reachable = format!("{math} of the math peak, {memory} of the DRAM bandwidth");
    line("reachable", Some(reachable));
    line("confidence", spec.confidence.clone());
    line("notes", spec.notes.clone());
    for (i, source) in gpu.sources.iter().enumerate() {
        line(if i == 0 { "sources" } else { "" }, Some(source.clone()));
    }
    out
}

fn per_sm(n: impl Display) -> String {
    format!("{n} per SM")
}

/// The calibration of a built-in board as the `[reachable]` table of a GPU file, each value with its
/// source.
pub fn reachable_table(spec: &Spec, architecture: &Calibration) -> String {
    let mut out = format!(
        "\n[reachable]  # what well-tuned work reaches: the calibration of {}\n",
        architecture.architecture
    );
    for key in REACHABLE_KEYS {
        if let Some(constant) = architecture.constants.get(key.name) {
            let Sourced { value, source } = constant.of(&spec.gpu.id);
            let _ = writeln!(out, "{:<12} = {value}  # {source}", key.name);
        }
    }
    out
}

fn architecture(spec: &Spec) -> String {
    let mut text = spec.gpu.architecture.clone();
    if let Some(chip) = &spec.chip {
        let _ = write!(text, ", {chip}");
    }
    if let Some((major, minor)) = spec.gpu.compute_capability {
        let _ = write!(text, ", compute capability {major}.{minor}");
    }
    text
}

fn clock(spec: &Spec) -> Option<String> {
    let boost = spec.boost_mhz?;
    Some(match spec.tensor_mhz {
        Some(tensor) => format!("{boost} MHz, Tensor Core rates at {tensor} MHz"),
        None => format!("{boost} MHz"),
    })
}

fn memory(spec: &Spec) -> String {
    let gpu = &spec.gpu;
    let size = gpu
        .memory_bytes
        .map(|b| format!("{} GiB", b / 1_073_741_824.0));
    let parts = [
        size,
        spec.memory_kind.clone(),
        Some(units::rate(gpu.bandwidth)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn rates(rates: &BTreeMap<DType, f64>) -> String {
    let one = |(dtype, rate): (&DType, &f64)| format!("{dtype} {}", units::flop_rate(*rate));
    rates.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn alignments(elements: &BTreeMap<DType, u32>) -> String {
    let one = |(dtype, n): (&DType, &u32)| format!("{dtype} {n}");
    elements.iter().map(one).collect::<Vec<_>>().join(", ")
}
