//! The string facts with a small set of known values.

use std::sync::LazyLock;

use super::Fact;
use crate::base::DType;
use crate::cost::Family;
use crate::read::READERS;

const DIRECTIONS: &[&str] = &["fprop", "bprop", "update", "unknown"];

/// Facts with a closed set of values that is listed here.
const LISTED: &[(&str, &[&str])] = &[
    ("site.direction", DIRECTIONS),
    ("chain.direction", DIRECTIONS),
    ("site.bound", &["math", "memory", "latency"]),
    (
        "chain.kind",
        &[
            "attention",
            "norm",
            "double_log_softmax",
            "conv_norm",
            "logits_upcast",
            "log_of_softmax",
            "softmax",
            "rope",
            "gelu",
            "gated_activation",
            "silu",
            "lora",
            "shared_input",
            "expert_loop",
            "adam",
            "pointwise",
        ],
    ),
    (
        "kernel.collective",
        &[
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "all_to_all",
            "send_recv",
            "broadcast",
            "barrier",
            "gather",
            "scatter",
            "reduce",
        ],
    ),
    (
        "kernel.occupancy_limit",
        &["blocks", "warps", "registers", "shared_memory"],
    ),
    (
        "copy.direction",
        &[
            "host_to_device",
            "device_to_host",
            "device_to_device",
            "host_to_host",
            "peer_to_peer",
            "other",
        ],
    ),
    (
        "copy.host_memory",
        &["pageable", "pinned", "managed", "device", "array"],
    ),
    (
        "gap.cause",
        &[
            "profiler_overhead",
            "data_loading",
            "after_sync",
            "blocking_copy",
            "allocation",
            "module_load",
            "slow_launch",
            "host_late",
            "host_busy",
            "waiting",
            "unknown",
        ],
    ),
    ("gap.loader", &["single_process", "multi_process", "other"]),
    ("gpu.vendor", &["nvidia", "amd"]),
    ("kernel.maker", super::maker::Maker::WORDS),
];

static FAMILIES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let families = Family::ALL.iter().copied().chain([Family::Unknown]);
    families.map(Family::name).collect()
});
static DTYPES: LazyLock<Vec<&str>> = LazyLock::new(|| DType::names().collect());
static FORMATS: LazyLock<Vec<&str>> =
    LazyLock::new(|| READERS.iter().map(|reader| reader.format().id).collect());

impl Fact {
    /// All values of a string fact with a closed set; empty if it can be any string.
    pub fn values(&self) -> &'static [&'static str] {
        match self.name {
            "site.family" | "kernel.family" => &FAMILIES,
            "site.dtype" | "site.math_dtype" | "site.best_dtype" | "site.message_dtype"
            | "site.cast_from" | "site.cast_to" | "kernel.dtype" | "chain.dtype" => &DTYPES,
            "run.format" => &FORMATS,
            name => {
                let listed = LISTED.iter().find(|(fact, _)| *fact == name);
                listed.map_or(&[], |(_, values)| values)
            }
        }
    }
}
