//! Facts of the GPU in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fact::{Answer, FactEntry, Subject, Value, facts};
use super::table::FactTable;
use crate::base::DType;
use crate::gpu::calibration::{self, Reachable};
use crate::gpu::{Gpu, SelectedBy, Vendor};
use crate::profile::Device;

/// A constant of the calibration that not every architecture needs.
fn calibrated(t: &GpuScope<'_>, constant: fn(&Reachable) -> Option<f64>) -> Option<Answer> {
    t.gpu.map(|g| Answer::or_silent(constant(&g.reachable)))
}

fn by_dtype<V: Copy, T>(map: &BTreeMap<DType, V>, value: fn(V) -> T) -> Arc<BTreeMap<Arc<str>, T>> {
    let values = map.iter().map(|(d, v)| (d.name().into(), value(*v)));
    Arc::new(values.collect())
}

fn rates(rates: &BTreeMap<DType, f64>) -> Answer {
    Answer::Value(Value::Doubles(by_dtype(rates, |rate| rate)))
}

fn cc((major, minor): (u32, u32)) -> f64 {
    f64::from(major) + f64::from(minor) / 10.0
}

/// The answer for a property that only NVIDIA GPUs have, or that AMD does not publish: for other GPUs
/// the fact does not apply, because no better capture would help.
fn if_nvidia(t: &GpuScope<'_>, value: Option<impl Into<Answer>>) -> Answer {
    match t.gpu {
        Some(gpu) if gpu.vendor == Vendor::Amd => Answer::or_silent(value),
        _ => Answer::from(value),
    }
}

/// The GPU in use, if one is known, and its properties shown by the kernels that ran.
pub(super) struct GpuScope<'a> {
    gpu: Option<&'a Gpu>,
    what_if: bool,
    proven_cc: Option<(u32, u32)>,
    /// The first device of the file, as the file describes it.
    stated: Option<&'a Device>,
}

impl<'a> GpuScope<'a> {
    pub(super) fn new(table: &'a FactTable<'_>) -> GpuScope<'a> {
        let costed = table.costed;
        GpuScope {
            gpu: costed.gpu.as_ref().map(|choice| &choice.gpu),
            what_if: (costed.gpu.as_ref()).is_some_and(|choice| choice.how == SelectedBy::WhatIf),
            proven_cc: costed.proven_cc,
            stated: costed.run.profile.devices.first(),
        }
    }
}

/// The `gpu.` facts of a GPU, for the tests of rules; of an unknown one, those that do not need it.
pub fn of_gpu(gpu: Option<&Gpu>) -> BTreeMap<String, Value> {
    let scope = GpuScope {
        gpu,
        what_if: false,
        proven_cc: None,
        stated: None,
    };
    ENTRIES
        .iter()
        .filter_map(|entry| match (entry.get)(&scope) {
            Answer::Value(value) => Some((entry.fact.name.to_owned(), value)),
            _ => None,
        })
        .collect()
}

/// The subject type of GPU facts.
pub(super) struct GpuSubject;
impl Subject for GpuSubject {
    type Of<'a> = GpuScope<'a>;
}

pub(super) const ENTRIES: &[FactEntry<GpuSubject>] = facts! {
    /// The board, as its spec file names it
    "gpu.name": STR needs GPU => |t| t.gpu.map(|g| g.name.as_str()),
    /// `nvidia` or `amd`
    "gpu.vendor": STR needs GPU => |t| t.gpu.map(|gpu| gpu.vendor.name()),
    /// CUDA compute capability, 7.0 for V100
    "gpu.cc": DOUBLE needs GPU =>
        |t| if_nvidia(t, t.gpu.and_then(|g| g.compute_capability).map(cc)),
    /// The compute capability, or when the GPU is unknown the least that the kernels that ran prove
    "gpu.min_cc": DOUBLE needs GPU => |t| {
        let capability = t.gpu.map_or(t.proven_cc, |g| g.compute_capability);
        if_nvidia(t, capability.map(cc))
    },
    /// The compute capability that the file states, also for a board without a spec file
    "gpu.stated_cc": DOUBLE needs GPU =>
        |t| t.stated.and_then(|d| d.compute_capability).map(cc),
    /// The number of streaming multiprocessors that the file states, also for a board without a spec file
    "gpu.stated_sm_count": INT needs GPU => |t| t.stated.and_then(|d| d.sm_count),
    /// It has Tensor Cores (AMD: matrix cores); proven by compute capability 7.0 when the GPU is unknown
    "gpu.has_tensor_cores": BOOL needs GPU => |t| {
        let proven = (t.proven_cc >= Some((7, 0))).then_some(true);
        t.gpu.map_or(proven, |g| Some(g.has_tensor_cores()))
    },
    /// Asked for with `--gpu` although the profile was taken on another one: what ran was chosen for that
    "gpu.what_if": BOOL => |t| t.what_if,
    /// TF32 is at least 1.2 times as fast as fp32: not so on GeForce boards, A10G and L40; taken to be so
    /// when the GPU is unknown
    "gpu.tf32_faster": BOOL => |t| {
        t.gpu.is_none_or(|g| {
            let rate = |m: &BTreeMap<DType, f64>, d| m.get(&d).copied().unwrap_or(0.0);
            rate(&g.tensor_flops, DType::Tf32) >= 1.2 * rate(&g.flops, DType::Fp32)
        })
    },
    /// Streaming multiprocessors (AMD: compute units)
    "gpu.sm_count": INT needs GPU => |t| t.gpu.and_then(Gpu::sms),
    /// Dense peak outside Tensor Cores, per dtype
    "gpu.flops": DOUBLES needs GPU => |t| t.gpu.map(|g| rates(&g.flops)),
    /// Dense Tensor Core peak with fp32 accumulation, per dtype
    "gpu.tensor_flops": DOUBLES needs GPU => |t| t.gpu.map(|g| rates(&g.tensor_flops)),
    /// Multiple the contiguous dimensions should have for Tensor Cores, per dtype (16 bytes)
    "gpu.tc_align": INTS needs GPU => |t| {
        let align = t.gpu.map(|g| by_dtype(&g.tensor_align, i64::from));
        align.map(|align| Answer::Value(Value::Ints(align)))
    },
    /// DRAM bandwidth
    "gpu.bandwidth_bytes_per_s": DOUBLE needs GPU => |t| t.gpu.map(|g| g.bandwidth),
    /// L2 cache size
    "gpu.l2_bytes": DOUBLE needs GPU => |t| t.gpu.and_then(|g| g.l2_bytes),
    /// Device memory
    "gpu.memory_bytes": DOUBLE needs GPU => |t| t.gpu.and_then(|g| g.memory_bytes),
    /// Resident threads an SM can hold
    "gpu.max_threads_per_sm": INT needs GPU => |t| t.gpu.and_then(|g| g.max_threads_per_sm),
    /// Resident thread blocks an SM can hold
    "gpu.max_blocks_per_sm": INT needs GPU =>
        |t| if_nvidia(t, t.gpu.and_then(|g| g.max_blocks_per_sm)),
    /// NVLink bandwidth, both directions added; silent for boards without NVLink
    "gpu.nvlink_bytes_per_s": DOUBLE needs GPU => |t| t.gpu.map(|g| Answer::or_silent(g.nvlink)),
    /// PCI Express generation of the board
    "gpu.pcie_gen": INT needs GPU => |t| t.gpu.and_then(|g| g.pcie_gen),
    /// Share of the math peak that well-tuned kernels reach (`math` of the calibration)
    "gpu.reachable_math": DOUBLE needs GPU => |t| t.gpu.map(|g| g.reachable.math),
    /// Share of the DRAM bandwidth that well-tuned kernels reach (`memory` of the calibration)
    "gpu.reachable_memory": DOUBLE needs GPU => |t| t.gpu.map(|g| g.reachable.memory),
    /// Share of the ideal that an aligned product of ordinary size reaches (`aligned_gemm` of the
    /// calibration); silent without Tensor Cores
    "gpu.aligned_gemm_share": DOUBLE needs GPU => |t| calibrated(t, |r| r.aligned_gemm),
    /// Share of the ideal that a large product reaches with kernels built for the architecture
    /// (`large_gemm` of the calibration); silent where no rule needs it
    "gpu.large_gemm_share": DOUBLE needs GPU => |t| calibrated(t, |r| r.large_gemm),
    /// Share of the ideal that a convolution with aligned channels reaches (`aligned_conv` of the
    /// calibration); silent where no rule needs it
    "gpu.aligned_conv_share": DOUBLE needs GPU => |t| calibrated(t, |r| r.aligned_conv),
    /// Rate of large copies from pinned memory over 16 lanes of the board's PCI Express (`pinned_copy` of
    /// the calibration)
    "gpu.pinned_copy_bytes_per_s": DOUBLE needs GPU => |t| t.gpu.and_then(Gpu::pinned_copy_rate),
    /// Time of the shortest useful kernels (`kernel_ns` of the calibration)
    "gpu.shortest_kernel_ns": DOUBLE needs GPU => |t| t.gpu.map(|g| g.reachable.kernel_ns),
    /// Time between a kernel and the next of its stream that waits for it already, which no faster host
    /// saves (`gap_ns` of the calibration); the longest of any architecture when the GPU is unknown
    "gpu.kernel_gap_ns": DOUBLE =>
        |t| t.gpu.map_or_else(calibration::gap_ns_of_any, |g| g.reachable.gap_ns),
};
