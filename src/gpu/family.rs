//! Throughput per clock and resource limits of an SM, by generation. They give the peaks of a GPU
//! that is not in the table, from its compute capability, SM count and clock.
//!
//! Sources: the architecture whitepapers (A100, GA102, Turing, H100 v1.04, Ada v2.1, RTX Blackwell
//! v1.1), the Blackwell datasheet, and the CUDA C++ Programming Guide's technical specifications
//! per compute capability, which agree with the published peaks of the boards in `gpu_specs/`.

use std::collections::BTreeMap;

use super::{Gpu, Vendor, calibration};
use crate::base::DType;
use crate::base::DType::{Bf16, Fp4, Fp8, Fp16, Fp32, Fp64, Int8, Tf32};
use crate::profile::Device;

/// Dense multiply-adds per SM and clock.
type Rates = &'static [(DType, u32)];

/// The throughput of one generation of SMs on one class of boards.
#[derive(Debug, PartialEq, Eq)]
pub struct ChipFamily {
    /// CUDA compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Boards that the entry applies to.
    pub class: Class,
    /// Name of the architecture: `Ampere`.
    pub architecture: &'static str,
    /// Rates outside Tensor Cores.
    pub fma: Rates,
    /// Tensor Core rates, with accumulation in fp32.
    pub tensor: Rates,
}

/// A class of boards. Tensor Cores of GeForce boards run at half rate with accumulation in fp32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// All boards of the compute capability.
    Any,
    /// GeForce boards.
    GeForce,
    /// All boards except GeForce.
    Professional,
}

const fn family(
    compute_capability: (u32, u32),
    class: Class,
    architecture: &'static str,
    fma: Rates,
    tensor: Rates,
) -> ChipFamily {
    ChipFamily {
        compute_capability,
        class,
        architecture,
        fma,
        tensor,
    }
}

const CONSUMER: Rates = &[(Fp64, 2), (Fp32, 128), (Fp16, 128)];
const TURING: Rates = &[(Fp64, 2), (Fp32, 64), (Fp16, 128)];
const HOPPER: Rates = &[(Fp64, 64), (Fp32, 128), (Fp16, 256)];

const MAXWELL: Rates = &[(Fp64, 4), (Fp32, 128)];
/// Maxwell and Pascal of Jetson boards, with packed fp16.
const TEGRA: Rates = &[(Fp64, 4), (Fp32, 128), (Fp16, 256)];
const BLACKWELL_PROFESSIONAL: Rates = &[
    (Tf32, 256),
    (Fp16, 512),
    (Bf16, 512),
    (Fp8, 1024),
    (Int8, 1024),
    (Fp4, 2048),
];

/// One line per compute capability and class.
pub const FAMILIES: &[ChipFamily] = &[
    family((5, 0), Class::Any, "Maxwell", MAXWELL, &[]),
    family((5, 2), Class::Any, "Maxwell", MAXWELL, &[]),
    family((5, 3), Class::Any, "Maxwell", TEGRA, &[]),
    family(
        (6, 0),
        Class::Any,
        "Pascal",
        &[(Fp64, 32), (Fp32, 64), (Fp16, 128)],
        &[],
    ),
    family(
        (6, 1),
        Class::Any,
        "Pascal",
        &[(Fp64, 4), (Fp32, 128), (Fp16, 2)],
        &[],
    ),
    family((6, 2), Class::Any, "Pascal", TEGRA, &[]),
    family(
        (7, 0),
        Class::Any,
        "Volta",
        &[(Fp64, 32), (Fp32, 64), (Fp16, 128)],
        &[(Fp16, 512)],
    ),
    family(
        (7, 2),
        Class::Any,
        "Volta",
        &[(Fp32, 64), (Fp16, 128)],
        &[(Fp16, 512), (Int8, 1024)],
    ),
    family(
        (7, 5),
        Class::Professional,
        "Turing",
        TURING,
        &[(Fp16, 512), (Int8, 1024)],
    ),
    family(
        (7, 5),
        Class::GeForce,
        "Turing",
        TURING,
        &[(Fp16, 256), (Int8, 1024)],
    ),
    family(
        (8, 0),
        Class::Any,
        "Ampere",
        &[(Fp64, 32), (Fp32, 64), (Fp16, 256), (Bf16, 128)],
        &[
            (Fp64, 64),
            (Tf32, 512),
            (Fp16, 1024),
            (Bf16, 1024),
            (Int8, 2048),
        ],
    ),
    family(
        (8, 6),
        Class::Professional,
        "Ampere",
        CONSUMER,
        &[(Tf32, 256), (Fp16, 512), (Bf16, 512), (Int8, 1024)],
    ),
    family(
        (8, 6),
        Class::GeForce,
        "Ampere",
        CONSUMER,
        &[(Tf32, 128), (Fp16, 256), (Bf16, 256), (Int8, 1024)],
    ),
    family(
        (8, 7),
        Class::Any,
        "Ampere",
        &[(Fp64, 2), (Fp32, 128), (Fp16, 256)],
        &[(Tf32, 512), (Fp16, 1024), (Bf16, 1024), (Int8, 2048)],
    ),
    family(
        (8, 9),
        Class::Professional,
        "Ada",
        CONSUMER,
        &[
            (Tf32, 256),
            (Fp16, 512),
            (Bf16, 512),
            (Fp8, 1024),
            (Int8, 1024),
        ],
    ),
    family(
        (8, 9),
        Class::GeForce,
        "Ada",
        CONSUMER,
        &[
            (Tf32, 128),
            (Fp16, 256),
            (Bf16, 256),
            (Fp8, 512),
            (Int8, 1024),
        ],
    ),
    family(
        (9, 0),
        Class::Any,
        "Hopper",
        HOPPER,
        &[
            (Fp64, 128),
            (Tf32, 1024),
            (Fp16, 2048),
            (Bf16, 2048),
            (Fp8, 4096),
            (Int8, 4096),
        ],
    ),
    family(
        (10, 0),
        Class::Any,
        "Blackwell",
        &[(Fp64, 64), (Fp32, 128)],
        &[
            (Fp64, 64),
            (Tf32, 2048),
            (Fp16, 4096),
            (Bf16, 4096),
            (Fp8, 8192),
            (Int8, 8192),
            (Fp4, 16_384),
        ],
    ),
    family(
        (10, 3),
        Class::Any,
        "Blackwell Ultra",
        &[(Fp64, 2), (Fp32, 128)],
        &[
            (Fp64, 2),
            (Tf32, 2048),
            (Fp16, 4096),
            (Bf16, 4096),
            (Fp8, 8192),
            (Fp4, 24_576),
        ],
    ),
    // Jetson Thor. Its published 1,035 TFLOP/s of dense fp4 (20 SMs at 1.575 GHz) are the rate of
    // 10.0 per SM.
    family(
        (11, 0),
        Class::Any,
        "Blackwell",
        &[(Fp64, 2), (Fp32, 128)],
        &[
            (Tf32, 2048),
            (Fp16, 4096),
            (Bf16, 4096),
            (Fp8, 8192),
            (Int8, 8192),
            (Fp4, 16_384),
        ],
    ),
    family(
        (12, 0),
        Class::Professional,
        "Blackwell",
        CONSUMER,
        BLACKWELL_PROFESSIONAL,
    ),
    // GB10. 188 TFLOP/s in fp8 have been measured (see `gpu_specs/gb10.toml`), more than GeForce
    // boards could do.
    family(
        (12, 1),
        Class::Any,
        "Blackwell",
        CONSUMER,
        BLACKWELL_PROFESSIONAL,
    ),
    family(
        (12, 0),
        Class::GeForce,
        "Blackwell",
        CONSUMER,
        &[
            (Tf32, 128),
            (Fp16, 256),
            (Bf16, 256),
            (Fp8, 512),
            (Int8, 1024),
            (Fp4, 2048),
        ],
    ),
];

/// Resource limits of an SM: threads, blocks, shared memory in KiB, warp schedulers.
type Residency = (u32, u32, u32, u32);

const RESIDENCY: &[((u32, u32), Residency)] = &[
    ((5, 0), (2048, 32, 64, 4)),
    ((5, 2), (2048, 32, 96, 4)),
    ((5, 3), (2048, 32, 64, 4)),
    ((6, 0), (2048, 32, 64, 2)),
    ((6, 1), (2048, 32, 96, 4)),
    ((6, 2), (2048, 32, 64, 4)),
    ((7, 0), (2048, 32, 96, 4)),
    ((7, 2), (2048, 32, 96, 4)),
    ((7, 5), (1024, 16, 64, 4)),
    ((8, 0), (2048, 32, 164, 4)),
    ((8, 6), (1536, 16, 100, 4)),
    ((8, 7), (1536, 16, 164, 4)),
    ((8, 9), (1536, 24, 100, 4)),
    ((9, 0), (2048, 32, 228, 4)),
    ((10, 0), (2048, 32, 228, 4)),
    ((10, 3), (2048, 32, 228, 4)),
    ((11, 0), (1536, 24, 228, 4)),
    ((12, 0), (1536, 24, 100, 4)),
    ((12, 1), (1536, 24, 100, 4)),
];

/// 32-bit registers per SM, the same since compute capability 3.0 up to 12.1.
const REGISTERS: u32 = 65_536;

/// Words in device names of Turing boards that were built without Tensor Cores (TU116, TU117).
const WITHOUT_TENSOR_CORES: &[&str] = &[
    "gtx", "mx450", "mx550", "t400", "t500", "t550", "t600", "t1000", "t1200",
];

/// The entry of the table for a compute capability and a device name.
pub fn find(compute_capability: (u32, u32), name: &str) -> Option<&'static ChipFamily> {
    let class = if name.to_lowercase().contains("geforce") {
        Class::GeForce
    } else {
        Class::Professional
    };
    FAMILIES.iter().find(|f| {
        f.compute_capability == compute_capability && (f.class == Class::Any || f.class == class)
    })
}

/// Whether only data-center boards (and few workstation boards, such as the TITAN V) have this compute
/// capability, so that SM count and memory identify a board.
pub fn is_data_center(compute_capability: (u32, u32)) -> bool {
    const CHIPS: [(u32, u32); 6] = [(6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3)];
    CHIPS.contains(&compute_capability)
}

/// FLOP/s of `sms` SMs at `hertz`, per data type.
pub fn peaks(rates: Rates, sms: u32, hertz: f64) -> BTreeMap<DType, f64> {
    let flops = |fma: u32| f64::from(sms) * f64::from(fma) * 2.0 * hertz;
    rates.iter().map(|&(d, fma)| (d, flops(fma))).collect()
}

/// Elements in 16 bytes for the data types of Tensor Cores: the multiple that contiguous
/// dimensions need for the fastest kernels (NVIDIA's Matrix Multiplication Background guide,
/// "Tensor Core Requirements").
pub fn alignment(dtype: DType) -> Option<u32> {
    match dtype {
        Fp64 => Some(2),
        Fp32 | Tf32 => Some(4),
        Fp16 | Bf16 => Some(8),
        Fp8 | Int8 => Some(16),
        Fp4 => Some(32),
        _ => None,
    }
}

/// The GPU that an NVIDIA device's attributes describe, with `hertz` as its clock. `None` without
/// a known compute capability, SM count and DRAM bandwidth.
pub fn derive(device: &Device, hertz: f64) -> Option<Gpu> {
    let name = device.name.as_deref().unwrap_or("unnamed GPU");
    let family = find(device.compute_capability?, name)?;
    let sms = device.sm_count.filter(|&n| n > 0)?;
    let bandwidth = device.bandwidth.filter(|b| b.is_finite() && *b > 0.0)?;
    let lower = name.to_lowercase();
    let bare = lower
        .split_whitespace()
        .any(|w| WITHOUT_TENSOR_CORES.contains(&w));
    let tensor = if bare { &[] } else { family.tensor };
    let limits = RESIDENCY.iter().find(|r| r.0 == family.compute_capability);
    let limit = |pick: fn(&Residency) -> u32| limits.map(|r| pick(&r.1));
    let align = tensor.iter().filter_map(|r| Some((r.0, alignment(r.0)?)));
    Some(Gpu {
        id: "derived".into(),
        name: name.to_owned(),
        vendor: Vendor::Nvidia,
        architecture: family.architecture.into(),
        compute_capability: device.compute_capability,
        sm_count: sms,
        flops: peaks(family.fma, sms, hertz),
        tensor_flops: peaks(tensor, sms, hertz),
        tensor_align: align.collect(),
        bandwidth,
        memory_bytes: None,
        l2_bytes: None,
        shared_per_sm: limit(|r| r.2 * 1024),
        registers_per_sm: Some(REGISTERS),
        max_threads_per_sm: limit(|r| r.0),
        max_blocks_per_sm: limit(|r| r.1),
        warp_schedulers: limit(|r| r.3),
        pcie_gen: None,
        nvlink: None,
        reachable: calibration::reachable("derived", family.architecture, Vendor::Nvidia)?,
        sources: vec![
            "device attributes of the profile x multiply-adds per SM and clock of its generation"
                .into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_and_class_has_one_line() {
        for (i, a) in FAMILIES.iter().enumerate() {
            for b in FAMILIES.iter().skip(i + 1) {
                let clash = a.class == b.class || a.class == Class::Any || b.class == Class::Any;
                assert!(
                    a.compute_capability != b.compute_capability || !clash,
                    "{a:?} {b:?}"
                );
            }
            assert!(
                RESIDENCY.iter().any(|r| r.0 == a.compute_capability),
                "{a:?}"
            );
        }
    }

    fn device(name: &str, cc: (u32, u32), sms: u32) -> Device {
        Device {
            name: Some(name.into()),
            compute_capability: Some(cc),
            sm_count: Some(sms),
            bandwidth: Some(5e11),
            ..Device::default()
        }
    }

    #[test]
    fn geforce_boards_accumulate_in_fp32_at_half_rate() {
        let at = |name| derive(&device(name, (8, 6), 10), 1e9).unwrap();
        let rate = |gpu: &Gpu| gpu.tensor_flops.get(&Fp16).copied().unwrap();
        assert_eq!(
            rate(&at("NVIDIA GeForce RTX 3060")),
            10.0 * 256.0 * 2.0 * 1e9
        );
        assert_eq!(rate(&at("NVIDIA RTX A4500")), 10.0 * 512.0 * 2.0 * 1e9);
    }

    #[test]
    fn gtx_16_series_has_no_tensor_cores() {
        let gtx = derive(&device("NVIDIA GeForce GTX 1660", (7, 5), 22), 1.785e9).unwrap();
        assert!(!gtx.has_tensor_cores() && gtx.tensor_align.is_empty());
    }

    #[test]
    fn unknown_or_incomplete_devices_are_not_derived() {
        assert_eq!(derive(&device("NVIDIA Next", (99, 0), 10), 1e9), None);
        let mut known = device("NVIDIA RTX A4500", (8, 6), 10);
        known.bandwidth = None;
        assert_eq!(derive(&known, 1e9), None);
        known.bandwidth = Some(f64::NAN);
        assert_eq!(derive(&known, 1e9), None);
        known.bandwidth = Some(1e11);
        known.sm_count = Some(0);
        assert_eq!(derive(&known, 1e9), None);
    }
}
