//! Floor 1: what a GPU can do, from `gpu_specs/*.toml`, a user's file, or the profile itself.

use std::collections::BTreeMap;

use crate::base::DType;

pub mod family;
pub mod keys;
pub mod load;
pub mod names;
pub mod select;
pub mod show;

/// A GPU's peaks and limits. Every rate is dense (no 2:4 sparsity).
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// The file's stem, e.g. `v100-sxm2-16gb`.
    pub id: String,
    /// For people: `V100 SXM2 16GB`.
    pub name: String,
    pub vendor: Vendor,
    pub architecture: String,
    /// `(7, 0)`; `None` for AMD, whose `gfx` name is in `architecture`: `CDNA3 (gfx942)`.
    pub compute_capability: Option<(u32, u32)>,
    /// SMs or compute units. 0 where the maker does not publish it and the profile does not say:
    /// divide by [`Gpu::sms`], never by this.
    pub sm_count: u32,
    /// FLOP/s outside Tensor Cores, per dtype.
    pub flops: BTreeMap<DType, f64>,
    /// FLOP/s on Tensor Cores (matrix cores), per dtype, fp32 accumulation; `Tf32` is what an fp32
    /// matmul gets when TF32 is allowed. Empty on GPUs without them.
    pub tensor_flops: BTreeMap<DType, f64>,
    /// Elements the contiguous dimensions must be a multiple of, per Tensor Core dtype (16 bytes).
    pub tensor_align: BTreeMap<DType, u32>,
    /// DRAM bytes per second.
    pub bandwidth: f64,
    pub memory_bytes: Option<f64>,
    pub l2_bytes: Option<f64>,
    pub shared_per_sm: Option<u32>,
    pub registers_per_sm: Option<u32>,
    pub max_threads_per_sm: Option<u32>,
    pub max_blocks_per_sm: Option<u32>,
    pub warp_schedulers: Option<u32>,
    /// Bytes per second over the host link, one direction, as published for the PCIe generation.
    pub pcie_gen: Option<u32>,
    /// NVLink bytes per second, both directions added.
    pub nvlink: Option<f64>,
    /// Share of the math peak that well-tuned kernels reach (RULES section 0): 0.80, or 0.60.
    pub reachable_math: f64,
    /// Share of the DRAM bandwidth that well-tuned kernels reach: 0.85.
    pub reachable_memory: f64,
    /// Where the numbers come from, one entry per source.
    pub sources: Vec<String>,
}

/// Who made it: advice about CUDA libraries is for NVIDIA only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
}

impl Gpu {
    /// Whether it has Tensor Cores or matrix cores at all.
    pub fn has_tensor_cores(&self) -> bool {
        !self.tensor_flops.is_empty()
    }

    /// SMs or compute units, where known.
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

    /// Warps (wavefronts) an SM (compute unit) can hold.
    pub fn max_warps_per_sm(&self) -> Option<u32> {
        self.max_threads_per_sm.map(|t| t / self.warp_size())
    }
}

/// How a GPU was settled on, for the report to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub gpu: Gpu,
    pub how: How,
    /// Sentences for the report: a "what if", values taken from the profile, differences above 3 %.
    pub remarks: Vec<String>,
}

/// Which road led to the GPU in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// `--gpu` named it, and the profile agrees or does not say.
    Asked,
    /// `--gpu` named it, and the profile was taken on another one: a "what if".
    WhatIf,
    /// The profile's device name is in the table.
    Named,
    /// Worked out from the device attributes of the profile: approximate.
    Derived,
}
