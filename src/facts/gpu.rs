//! Facts of the GPU in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answer, Entry, FactTable, Subject, Value, fact, word};
use crate::base::DType;
use crate::gpu::calibration::{self, Reachable};
use crate::gpu::keys::VENDORS;
use crate::gpu::{Gpu, How, Vendor};
use crate::profile::Device;

fn known<'a>(t: &GpuScope<'a>) -> Option<&'a Gpu> {
    t.gpu
}

fn number(t: &GpuScope<'_>, field: fn(&Gpu) -> Option<f64>) -> Answer {
    Answer::maybe(known(t).and_then(field), Answer::double)
}

/// A constant of the calibration that not every architecture needs.
fn calibrated(t: &GpuScope<'_>, constant: fn(&Reachable) -> Option<f64>) -> Answer {
    match known(t) {
        None => Answer::Absent,
        Some(gpu) => constant(&gpu.reachable).map_or(Answer::DoesNotApply, Answer::double),
    }
}

fn rates(rates: Option<&BTreeMap<DType, f64>>) -> Answer {
    let map = rates.map(|m| m.iter().map(|(d, v)| (Arc::from(d.name()), *v)).collect());
    map.map_or(Answer::Absent, |m| {
        Answer::Value(Value::Doubles(Arc::new(m)))
    })
}

fn cc(pair: (u32, u32)) -> Answer {
    Answer::double(f64::from(pair.0) + f64::from(pair.1) / 10.0)
}

/// The answer for a property that only NVIDIA GPUs have, or that AMD does not publish: for other GPUs
/// the fact does not apply, because no better capture would help.
fn if_nvidia(t: &GpuScope<'_>, answer: Option<Answer>) -> Answer {
    match (answer, known(t).map(|g| g.vendor)) {
        (Some(answer), _) => answer,
        (None, Some(Vendor::Amd)) => Answer::DoesNotApply,
        (None, _) => Answer::Absent,
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
            what_if: (costed.gpu.as_ref()).is_some_and(|choice| choice.how == How::WhatIf),
            proven_cc: costed.proven_cc,
            stated: costed.run.profile.devices.first(),
        }
    }
}

/// Every fact that depends on the GPU only; of an unknown GPU, those that do not need it.
pub(super) fn of(gpu: Option<&Gpu>) -> BTreeMap<String, Value> {
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

pub(super) const ENTRIES: &[Entry<GpuSubject>] = &[
    fact!(
        "gpu.name",
        Str,
        "",
        &[],
        GPU,
        "The board, as its spec file names it",
        |t| Answer::maybe_word(known(t).map(|g| g.name.as_str()))
    ),
    fact!("gpu.vendor", Str, "", &[], GPU, "`nvidia` or `amd`", |t| {
        Answer::maybe_word(known(t).and_then(|gpu| word(&VENDORS, gpu.vendor)))
    }),
    fact!(
        "gpu.cc",
        Double,
        "",
        &[],
        GPU,
        "CUDA compute capability, 7.0 for V100",
        |t| if_nvidia(t, known(t).and_then(|g| g.compute_capability).map(cc))
    ),
    fact!(
        "gpu.min_cc",
        Double,
        "",
        &[],
        GPU,
        "The compute capability, or when the GPU is unknown the least that the kernels that ran prove",
        |t| if_nvidia(
            t,
            known(t)
                .map_or(t.proven_cc, |g| g.compute_capability)
                .map(cc)
        )
    ),
    fact!(
        "gpu.stated_cc",
        Double,
        "",
        &[],
        GPU,
        "The compute capability that the file states, also for a board without a spec file",
        |t| Answer::maybe(t.stated.and_then(|d| d.compute_capability), cc)
    ),
    fact!(
        "gpu.stated_sm_count",
        Int,
        "",
        &[],
        GPU,
        "The number of streaming multiprocessors that the file states, also for a board without a spec file",
        |t| Answer::maybe(
            t.stated.and_then(|d| d.sm_count).map(u64::from),
            Answer::int
        )
    ),
    fact!(
        "gpu.has_tensor_cores",
        Bool,
        "",
        &[],
        GPU,
        "It has Tensor Cores (AMD: matrix cores); proven by compute capability 7.0 when the GPU is unknown",
        |t| {
            match known(t) {
                Some(gpu) => Answer::flag(gpu.has_tensor_cores()),
                None if t.proven_cc.is_some_and(|c| c >= (7, 0)) => Answer::flag(true),
                None => Answer::Absent,
            }
        }
    ),
    fact!(
        "gpu.what_if",
        Bool,
        "",
        &[],
        NOTHING,
        "Asked for with `--gpu` although the profile was taken on another one: what ran was chosen for that",
        |t| Answer::flag(t.what_if)
    ),
    fact!(
        "gpu.tf32_faster",
        Bool,
        "",
        &[],
        NOTHING,
        "TF32 is at least 1.2 times as fast as fp32: not so on GeForce boards, A10G and L40; taken to be so when the GPU is unknown",
        |t| {
            Answer::flag(known(t).is_none_or(|g| {
                let rate = |m: &BTreeMap<DType, f64>, d| m.get(&d).copied().unwrap_or(0.0);
                rate(&g.tensor_flops, DType::Tf32) >= 1.2 * rate(&g.flops, DType::Fp32)
            }))
        }
    ),
    fact!(
        "gpu.sm_count",
        Int,
        "",
        &[],
        GPU,
        "Streaming multiprocessors (AMD: compute units)",
        |t| Answer::maybe(known(t).and_then(Gpu::sms).map(u64::from), Answer::int)
    ),
    fact!(
        "gpu.flops",
        Doubles,
        "FLOP/s",
        &[],
        GPU,
        "Dense peak outside Tensor Cores, per dtype",
        |t| rates(known(t).map(|g| &g.flops))
    ),
    fact!(
        "gpu.tensor_flops",
        Doubles,
        "FLOP/s",
        &[],
        GPU,
        "Dense Tensor Core peak with fp32 accumulation, per dtype",
        |t| rates(known(t).map(|g| &g.tensor_flops))
    ),
    fact!(
        "gpu.tc_align",
        Ints,
        "elements",
        &[],
        GPU,
        "Multiple the contiguous dimensions should have for Tensor Cores, per dtype (16 bytes)",
        |t| {
            let map = known(t).map(|g| {
                g.tensor_align
                    .iter()
                    .map(|(d, n)| (Arc::from(d.name()), i64::from(*n)))
                    .collect()
            });
            map.map_or(Answer::Absent, |m| Answer::Value(Value::Ints(Arc::new(m))))
        }
    ),
    fact!(
        "gpu.bandwidth_bytes_per_s",
        Double,
        "bytes/s",
        &[],
        GPU,
        "DRAM bandwidth",
        |t| number(t, |g| Some(g.bandwidth))
    ),
    fact!(
        "gpu.l2_bytes",
        Double,
        "bytes",
        &[],
        GPU,
        "L2 cache size",
        |t| number(t, |g| g.l2_bytes)
    ),
    fact!(
        "gpu.memory_bytes",
        Double,
        "bytes",
        &[],
        GPU,
        "Device memory",
        |t| number(t, |g| g.memory_bytes)
    ),
    fact!(
        "gpu.max_threads_per_sm",
        Int,
        "",
        &[],
        GPU,
        "Resident threads an SM can hold",
        |t| Answer::maybe(
            known(t).and_then(|g| g.max_threads_per_sm).map(u64::from),
            Answer::int
        )
    ),
    fact!(
        "gpu.max_blocks_per_sm",
        Int,
        "",
        &[],
        GPU,
        "Resident thread blocks an SM can hold",
        |t| if_nvidia(
            t,
            known(t)
                .and_then(|g| g.max_blocks_per_sm)
                .map(|n| Answer::int(u64::from(n)))
        )
    ),
    fact!(
        "gpu.nvlink_bytes_per_s",
        Double,
        "bytes/s",
        &[],
        GPU,
        "NVLink bandwidth, both directions added; silent for boards without NVLink",
        |t| match known(t) {
            None => Answer::Absent,
            Some(gpu) => gpu.nvlink.map_or(Answer::DoesNotApply, Answer::double),
        }
    ),
    fact!(
        "gpu.pcie_gen",
        Int,
        "",
        &[],
        GPU,
        "PCI Express generation of the board",
        |t| Answer::maybe(
            known(t).and_then(|g| g.pcie_gen).map(u64::from),
            Answer::int
        )
    ),
    fact!(
        "gpu.reachable_math",
        Double,
        "",
        &[],
        GPU,
        "Share of the math peak that well-tuned kernels reach (`math` of the calibration)",
        |t| number(t, |g| Some(g.reachable.math))
    ),
    fact!(
        "gpu.reachable_memory",
        Double,
        "",
        &[],
        GPU,
        "Share of the DRAM bandwidth that well-tuned kernels reach (`memory` of the calibration)",
        |t| number(t, |g| Some(g.reachable.memory))
    ),
    fact!(
        "gpu.aligned_gemm_share",
        Double,
        "share",
        &[],
        GPU,
        "Share of the ideal that an aligned product of ordinary size reaches (`aligned_gemm` of the calibration); silent without Tensor Cores",
        |t| calibrated(t, |r| r.aligned_gemm)
    ),
    fact!(
        "gpu.large_gemm_share",
        Double,
        "share",
        &[],
        GPU,
        "Share of the ideal that a large product reaches with kernels built for the architecture (`large_gemm` of the calibration); silent where no rule needs it",
        |t| calibrated(t, |r| r.large_gemm)
    ),
    fact!(
        "gpu.aligned_conv_share",
        Double,
        "share",
        &[],
        GPU,
        "Share of the ideal that a convolution with aligned channels reaches (`aligned_conv` of the calibration); silent where no rule needs it",
        |t| calibrated(t, |r| r.aligned_conv)
    ),
    fact!(
        "gpu.pinned_copy_bytes_per_s",
        Double,
        "bytes/s",
        &[],
        GPU,
        "Rate of large copies from pinned memory over 16 lanes of the board's PCI Express (`pinned_copy` of the calibration)",
        |t| number(t, Gpu::pinned_copy_rate)
    ),
    fact!(
        "gpu.shortest_kernel_ns",
        Double,
        "ns",
        &[],
        GPU,
        "Time of the shortest useful kernels (`kernel_ns` of the calibration)",
        |t| number(t, |g| Some(g.reachable.kernel_ns))
    ),
    fact!(
        "gpu.kernel_gap_ns",
        Double,
        "ns",
        &[],
        NOTHING,
        "Time between a kernel and the next of its stream that waits for it already, which no faster host saves (`gap_ns` of the calibration); the longest of any architecture when the GPU is unknown",
        |t| Answer::double(
            known(t).map_or_else(calibration::gap_ns_of_any, |g| g.reachable.gap_ns)
        )
    ),
];
