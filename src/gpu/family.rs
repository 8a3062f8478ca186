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

/// The throughput and the limits of one generation of SMs on one class of boards.
#[derive(Debug, PartialEq, Eq)]
pub struct ChipFamily {
    /// CUDA compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Name of the architecture: `Ampere`.
    pub architecture: &'static str,
    /// Dense multiply-adds per SM and clock outside Tensor Cores.
    pub fma: Vec<(DType, u32)>,
    /// The same on Tensor Cores, with accumulation in fp32.
    pub tensor: Vec<(DType, u32)>,
    limits: [u32; 4],
}

/// A compute capability with its architecture, the multiply-adds per SM and clock outside Tensor Cores (in
/// fp64, fp32, fp16, bf16; 0 where it has none), and the limits of an SM: threads, blocks, shared memory in
/// KiB, warp schedulers.
type Generation = ((u32, u32), &'static str, [u32; 4], [u32; 4]);
const PLAIN: [DType; 4] = [Fp64, Fp32, Fp16, Bf16];
const GENERATIONS: &[Generation] = &[
    ((5, 0), "Maxwell", [4, 128, 0, 0], [2048, 32, 64, 4]),
    ((5, 2), "Maxwell", [4, 128, 0, 0], [2048, 32, 96, 4]),
    // Maxwell and Pascal of Jetson boards have packed fp16.
    ((5, 3), "Maxwell", [4, 128, 256, 0], [2048, 32, 64, 4]),
    ((6, 0), "Pascal", [32, 64, 128, 0], [2048, 32, 64, 2]),
    ((6, 1), "Pascal", [4, 128, 2, 0], [2048, 32, 96, 4]),
    ((6, 2), "Pascal", [4, 128, 256, 0], [2048, 32, 64, 4]),
    ((7, 0), "Volta", [32, 64, 128, 0], [2048, 32, 96, 4]),
    ((7, 2), "Volta", [0, 64, 128, 0], [2048, 32, 96, 4]),
    ((7, 5), "Turing", [2, 64, 128, 0], [1024, 16, 64, 4]),
    ((8, 0), "Ampere", [32, 64, 256, 128], [2048, 32, 164, 4]),
    ((8, 6), "Ampere", [2, 128, 128, 0], [1536, 16, 100, 4]),
    ((8, 7), "Ampere", [2, 128, 256, 0], [1536, 16, 164, 4]),
    ((8, 9), "Ada", [2, 128, 128, 0], [1536, 24, 100, 4]),
    ((9, 0), "Hopper", [64, 128, 256, 0], [2048, 32, 228, 4]),
    ((10, 0), "Blackwell", [64, 128, 0, 0], [2048, 32, 228, 4]),
    (
        (10, 3),
        "Blackwell Ultra",
        [2, 128, 0, 0],
        [2048, 32, 228, 4],
    ),
    ((11, 0), "Blackwell", [2, 128, 0, 0], [1536, 24, 228, 4]),
    ((12, 0), "Blackwell", [2, 128, 128, 0], [1536, 24, 100, 4]),
    ((12, 1), "Blackwell", [2, 128, 128, 0], [1536, 24, 100, 4]),
];

/// A class of boards. Tensor Cores of GeForce boards run at half rate with accumulation in fp32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// All boards of the compute capability.
    Any,
    GeForce,
    /// All boards except GeForce.
    Professional,
}
use Class::{Any, GeForce, Professional};

/// Multiply-adds per SM and clock on Tensor Cores, by compute capability and class.
type TensorCores = ((u32, u32), Class, [u32; 7]);
const TENSOR: [DType; 7] = [Fp64, Tf32, Fp16, Bf16, Fp8, Int8, Fp4];
const TENSOR_CORES: &[TensorCores] = &[
    ((7, 0), Any, [0, 0, 512, 0, 0, 0, 0]),
    ((7, 2), Any, [0, 0, 512, 0, 0, 1024, 0]),
    ((7, 5), Professional, [0, 0, 512, 0, 0, 1024, 0]),
    ((7, 5), GeForce, [0, 0, 256, 0, 0, 1024, 0]),
    ((8, 0), Any, [64, 512, 1024, 1024, 0, 2048, 0]),
    ((8, 6), Professional, [0, 256, 512, 512, 0, 1024, 0]),
    ((8, 6), GeForce, [0, 128, 256, 256, 0, 1024, 0]),
    ((8, 7), Any, [0, 512, 1024, 1024, 0, 2048, 0]),
    ((8, 9), Professional, [0, 256, 512, 512, 1024, 1024, 0]),
    ((8, 9), GeForce, [0, 128, 256, 256, 512, 1024, 0]),
    ((9, 0), Any, [128, 1024, 2048, 2048, 4096, 4096, 0]),
    ((10, 0), Any, [64, 2048, 4096, 4096, 8192, 8192, 16_384]),
    ((10, 3), Any, [2, 2048, 4096, 4096, 8192, 0, 24_576]),
    // Jetson Thor. Its published 1,035 TFLOP/s of dense fp4 (20 SMs at 1.575 GHz) are the rate of
    // 10.0 per SM.
    ((11, 0), Any, [0, 2048, 4096, 4096, 8192, 8192, 16_384]),
    ((12, 0), Professional, [0, 256, 512, 512, 1024, 1024, 2048]),
    ((12, 0), GeForce, [0, 128, 256, 256, 512, 1024, 2048]),
    // GB10. 188 TFLOP/s in fp8 have been measured (see `gpu_specs/gb10.toml`), more than GeForce
    // boards could do.
    ((12, 1), Any, [0, 256, 512, 512, 1024, 1024, 2048]),
];

/// 32-bit registers per SM, the same since compute capability 3.0 up to 12.1.
const REGISTERS: u32 = 65_536;

/// Words in device names of Turing boards that were built without Tensor Cores (TU116, TU117).
const WITHOUT_TENSOR_CORES: &[&str] = &[
    "gtx", "mx450", "mx550", "t400", "t500", "t550", "t600", "t1000", "t1200",
];

/// The architectures of all compute capabilities in the table.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    GENERATIONS.iter().map(|generation| generation.1)
}

/// The family for a compute capability and a device name.
pub fn find(compute_capability: (u32, u32), name: &str) -> Option<ChipFamily> {
    let class = if name.to_lowercase().contains("geforce") {
        GeForce
    } else {
        Professional
    };
    let mut generations = GENERATIONS.iter();
    let &(_, architecture, fma, limits) = generations.find(|g| g.0 == compute_capability)?;
    let fits = |t: &&TensorCores| t.0 == compute_capability && (t.1 == Any || t.1 == class);
    let tensor = TENSOR_CORES.iter().find(fits).map_or([0; 7], |t| t.2);
    Some(ChipFamily {
        compute_capability,
        architecture,
        fma: rates(PLAIN, fma),
        tensor: rates(TENSOR, tensor),
        limits,
    })
}

/// The rates of the data types that have one.
fn rates<const N: usize>(types: [DType; N], rates: [u32; N]) -> Vec<(DType, u32)> {
    let rated = types.into_iter().zip(rates).filter(|(_, rate)| *rate > 0);
    rated.collect()
}

/// Whether only data-center boards (and few workstation boards, such as the TITAN V) have this compute
/// capability, so that SM count and memory identify a board.
pub fn is_data_center(compute_capability: (u32, u32)) -> bool {
    const CHIPS: [(u32, u32); 6] = [(6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3)];
    CHIPS.contains(&compute_capability)
}

/// FLOP/s of `sms` SMs at `hertz`, per data type.
pub fn peaks(rates: &[(DType, u32)], sms: u32, hertz: f64) -> BTreeMap<DType, f64> {
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
    let tensor = if bare { &[] } else { &*family.tensor };
    let [threads, blocks, shared_kib, schedulers] = family.limits;
    let align = tensor.iter().filter_map(|r| Some((r.0, alignment(r.0)?)));
    Some(Gpu {
        id: "derived".into(),
        name: name.to_owned(),
        vendor: Vendor::Nvidia,
        architecture: family.architecture.into(),
        compute_capability: device.compute_capability,
        sm_count: sms,
        flops: peaks(&family.fma, sms, hertz),
        tensor_flops: peaks(tensor, sms, hertz),
        tensor_align: align.collect(),
        bandwidth,
        memory_bytes: None,
        l2_bytes: None,
        shared_per_sm: Some(shared_kib * 1024),
        registers_per_sm: Some(REGISTERS),
        max_threads_per_sm: Some(threads),
        max_blocks_per_sm: Some(blocks),
        warp_schedulers: Some(schedulers),
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
        let mut generations: Vec<_> = GENERATIONS.iter().map(|g| g.0).collect();
        generations.sort_unstable();
        generations.dedup();
        assert_eq!(generations.len(), GENERATIONS.len());
        for (i, a) in TENSOR_CORES.iter().enumerate() {
            for b in TENSOR_CORES.iter().skip(i + 1) {
                let clash = a.1 == b.1 || a.1 == Any || b.1 == Any;
                assert!(a.0 != b.0 || !clash, "{a:?} {b:?}");
            }
            assert!(generations.contains(&a.0), "{a:?}");
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
