//! Facts of a layer pattern: layers that differ only in instance numbers.

use super::fact::{FactEntry, Subject, facts};
use super::table::FactTable;
use crate::correlate::SiteId;

/// The sums of one layer pattern.
#[derive(Debug, Clone, Default)]
pub(super) struct LayerSums {
    pub(super) name: String,
    pub(super) instances: u32,
    /// Its sites, in their order.
    pub(super) sites: Vec<SiteId>,
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

pub(super) const ENTRIES: &[FactEntry<Layers>] = facts! {
    /// Its pattern: `blocks.*.mlp`
    "layer.name": STR needs LAYERS =>
        |l| Some(l.sums.name.as_str()).filter(|name| !name.is_empty()),
    /// Layers folded into the pattern
    "layer.instances": INT needs LAYERS => |l| l.sums.instances,
    /// GPU time of its kernels
    "layer.time_ns": DOUBLE => |l| l.sums.time_ns,
    /// Its share of GPU busy time
    "layer.gpu_share": DOUBLE => |l| (l.sums.time_ns / l.table.totals.gpu_busy_ns).min(1.0),
    /// Kernel executions in it
    "layer.kernels": INT => |l| l.sums.kernels,
    /// Share of its time in families limited by memory traffic
    "layer.memory_bound_share": DOUBLE => |l| l.sums.memory_ns / l.sums.time_ns,
    /// Silicon time over best ideal time, over the part that has an ideal
    "layer.slowdown": DOUBLE needs SHAPES => |l| {
        let ideal = Some(l.sums.best_ideal_ns).filter(|ns| *ns > 0.0);
        ideal.map(|ideal| l.sums.ideal_time_ns / ideal)
    },
};
