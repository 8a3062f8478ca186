//! Facts of a layer pattern: layers that differ only in instance numbers.

use super::{Answer, Entry, FactTable, Subject, fact};

/// The sums of one layer pattern.
#[derive(Debug, Clone, Default)]
pub(super) struct LayerSums {
    pub(super) name: String,
    pub(super) instances: u32,
    pub(super) time_ns: f64,
    pub(super) best_ideal_ns: f64,
    /// Time of the sites with a known ideal time.
    pub(super) ideal_time_ns: f64,
    pub(super) memory_ns: f64,
    pub(super) kernels: u64,
}

/// A layer with its fact table.
pub(super) struct LayerScope<'a> {
    pub(super) table: &'a FactTable<'a>,
    pub(super) sums: &'a LayerSums,
}

/// The subject type of layer facts.
pub(super) struct Layers;
impl Subject for Layers {
    type Of<'a> = LayerScope<'a>;
}

pub(super) const ENTRIES: &[Entry<Layers>] = &[
    fact!(
        "layer.name",
        Str,
        "",
        &[],
        LAYERS,
        "Its pattern: `blocks.*.mlp`",
        |l| {
            if l.sums.name.is_empty() {
                Answer::Absent
            } else {
                Answer::word(&l.sums.name)
            }
        }
    ),
    fact!(
        "layer.instances",
        Int,
        "",
        &[],
        LAYERS,
        "Layers folded into the pattern",
        |l| Answer::int(u64::from(l.sums.instances))
    ),
    fact!(
        "layer.time_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "GPU time of its kernels",
        |l| Answer::double(l.sums.time_ns)
    ),
    fact!(
        "layer.gpu_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Its share of GPU busy time",
        |l| Answer::double((l.sums.time_ns / l.table.totals.gpu_busy_ns).min(1.0))
    ),
    fact!(
        "layer.kernels",
        Int,
        "",
        &[],
        NOTHING,
        "Kernel executions in it",
        |l| Answer::int(l.sums.kernels)
    ),
    fact!(
        "layer.memory_bound_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of its time in families limited by memory traffic",
        |l| Answer::double(l.sums.memory_ns / l.sums.time_ns)
    ),
    fact!(
        "layer.slowdown",
        Double,
        "",
        &[],
        SHAPES,
        "Silicon time over best ideal time, over the part that has an ideal",
        |l| {
            if l.sums.best_ideal_ns > 0.0 {
                Answer::double(l.sums.ideal_time_ns / l.sums.best_ideal_ns)
            } else {
                Answer::Absent
            }
        }
    ),
];
