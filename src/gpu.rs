//! Peaks and limits of GPUs (floor 1), from `gpu_specs/*.toml`, a user's file, or the profile itself.

use std::collections::BTreeMap;

use crate::base::DType;

pub mod calibration;
pub mod candidates;
pub mod family;
pub mod keys;
pub mod load;
pub mod names;
pub mod select;
pub mod show;
mod vendor;

use calibration::Reachable;
pub use vendor::Vendor;

/// A GPU's peaks and limits. Every rate is dense (no 2:4 sparsity).
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Stem of the spec file, e.g. `v100-sxm2-16gb`.
    pub id: String,
    /// Display name: `V100 SXM2 16GB`.
    pub name: String,
    /// Manufacturer.
    pub vendor: Vendor,
    /// Name of the architecture: `Volta`, `CDNA3 (gfx942)`.
    pub architecture: String,
    /// CUDA compute capability, major and minor: `(7, 0)`. `None` on AMD.
    pub compute_capability: Option<(u32, u32)>,
    /// Number of SMs (compute units on AMD). 0 if neither the vendor nor the profile states it: use
    /// [`Gpu::sms`] for divisions.
    pub sm_count: u32,
    /// FLOP/s outside Tensor Cores, per dtype.
    pub flops: BTreeMap<DType, f64>,
    /// FLOP/s on Tensor Cores (matrix cores), per dtype, fp32 accumulation; `Tf32` applies to fp32
    /// matmuls when TF32 is allowed. Empty on GPUs without them.
    pub tensor_flops: BTreeMap<DType, f64>,
    /// The multiple that contiguous dimensions need, in elements, per Tensor Core dtype (16 bytes).
    pub tensor_align: BTreeMap<DType, u32>,
    /// DRAM bytes per second.
    pub bandwidth: f64,
    /// Size of the DRAM, bytes.
    pub memory_bytes: Option<f64>,
    /// Size of the last-level cache, bytes.
    pub l2_bytes: Option<f64>,
    /// Shared memory per SM, bytes.
    pub shared_per_sm: Option<u32>,
    /// 32-bit registers per SM.
    pub registers_per_sm: Option<u32>,
    /// Maximum resident threads per SM.
    pub max_threads_per_sm: Option<u32>,
    /// Maximum resident thread blocks per SM.
    pub max_blocks_per_sm: Option<u32>,
    /// Warp schedulers per SM.
    pub warp_schedulers: Option<u32>,
    /// Generation of PCI Express.
    pub pcie_gen: Option<u32>,
    /// Bandwidth of all NVLinks, both directions together, bytes/s.
    pub nvlink: Option<f64>,
    /// What well-tuned work reaches.
    pub reachable: Reachable,
    /// Sources of the numbers.
    pub sources: Vec<String>,
}

impl SelectedBy {
    /// Whether the profile or the user states which GPU it is.
    pub fn is_stated(self) -> bool {
        !matches!(self, SelectedBy::Kernels)
    }
}

impl Gpu {
    /// Whether it has Tensor Cores (matrix cores on AMD).
    pub fn has_tensor_cores(&self) -> bool {
        !self.tensor_flops.is_empty()
    }

    /// Number of SMs (compute units on AMD), if known.
    pub fn sms(&self) -> Option<u32> {
        (self.sm_count > 0).then_some(self.sm_count)
    }

    /// Threads that run in lockstep: a warp of 32 on NVIDIA; on AMD, of which only CDNA boards are
    /// known here, a wavefront of 64 (AMD CDNA 3 Instruction Set Architecture, section 3.3).
    pub fn warp_size(&self) -> u32 {
        match self.vendor {
            Vendor::Nvidia => 32,
            Vendor::Amd => 64,
        }
    }

    /// How many times as fast fp16 products are that also add up in fp16: 2 on boards whose Tensor
    /// Cores add up in fp32 at half their rate (GeForce, A10G, L40), else 1.
    pub fn half_accumulation_gain(&self) -> f64 {
        // Rates of fp16 on Tensor Cores over fp32 on CUDA cores at the full rate (architecture
        // whitepapers of Turing, Ampere GA102, Ada and Blackwell).
        let full = match self.compute_capability {
            Some((7, 5)) => 8.0,
            Some((8, 6) | (8, 9) | (12, 0 | 1)) => 4.0,
            _ => return 1.0,
        };
        let (tensor, plain) = (
            self.tensor_flops.get(&DType::Fp16),
            self.flops.get(&DType::Fp32),
        );
        match tensor.zip(plain) {
            Some((tensor, plain)) if tensor / plain < 0.75 * full => 2.0,
            _ => 1.0,
        }
    }

    /// Bytes per second that large copies from pinned memory reach over 16 lanes of the board's PCI
    /// Express. The first generation moves 4 GB/s before encoding; the third, with 16, doubles what is
    /// left after encoding, and so does each later one.
    pub fn pinned_copy_rate(&self) -> Option<f64> {
        let doublings = self.pcie_gen?.max(3) - 3;
        Some(self.reachable.pinned_copy * 16e9 * f64::from(1_u32 << doublings.min(8)))
    }

    /// Maximum number of resident warps (wavefronts) per SM (compute unit).
    pub fn max_warps_per_sm(&self) -> Option<u32> {
        self.max_threads_per_sm.map(|t| t / self.warp_size())
    }
}

/// The selected GPU, and how it was selected.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The GPU in use.
    pub gpu: Gpu,
    /// How it was selected.
    pub how: SelectedBy,
    /// Sentences for the report: a different GPU than the profiled one, values taken from the
    /// profile, differences above 3 %.
    pub remarks: Vec<String>,
}

/// How the GPU in use was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectedBy {
    /// Selected by `--gpu`; the profile agrees or names no GPU.
    Asked,
    /// Selected by `--gpu`, but the profile was recorded on another one: a "what if".
    WhatIf,
    /// The profile's device name is in the table.
    Named,
    /// Generation, SMs and memory in the profile are those of one or several boards of the table.
    Attributes,
    /// Derived from the device attributes in the profile: approximate.
    Derived,
    /// The profile describes no GPU: inferred from the names and grids of its kernels.
    Kernels,
}
