//! Facts of one kernel of a site: its name and launch configuration.

use std::sync::OnceLock;

use super::fact::{Answer, FactEntry, Subject, facts};
use super::message::message_of;
use super::site::SiteScope;
use crate::base::DType;
use crate::correlate::SiteKernel;
use crate::cost::{DecodedName, Family};
use crate::gpu::{Gpu, Vendor};
use crate::profile::{LaunchConfig, collective_in};

/// A kernel row of a site.
pub(super) struct KernelScope<'a> {
    pub(super) site: SiteScope<'a>,
    pub(super) kernel: &'a SiteKernel,
    pub(super) name: &'a DecodedName,
    pub(super) config: LaunchConfig,
    /// The word for who made it, once a rule has asked: dozens do.
    pub(super) maker: OnceLock<&'static str>,
}

/// The subject type of kernel facts.
pub(super) struct Kernels;
impl Subject for Kernels {
    type Of<'a> = KernelScope<'a>;
}

impl<'a> KernelScope<'a> {
    /// The scope of a row of a site's kernels.
    pub(super) fn new(site: SiteScope<'a>, row: usize) -> Option<KernelScope<'a>> {
        let kernel = site.site.kernels.get(row)?;
        let configs = &site.table.costed.run.profile.configs;
        Some(KernelScope {
            site,
            kernel,
            name: site.decoded().get(row)?,
            config: configs.get(kernel.config.idx()).copied()?,
            maker: OnceLock::new(),
        })
    }
}

impl KernelScope<'_> {
    fn sm_count(&self) -> Option<u64> {
        self.site
            .table
            .costed
            .gpu
            .as_ref()
            .and_then(|g| g.gpu.sms())
            .map(u64::from)
    }

    /// The launch configuration, if it is recorded.
    fn known_config(&self) -> Option<&LaunchConfig> {
        Some(&self.config).filter(|c| c.is_known())
    }

    fn gpu(&self) -> Option<&Gpu> {
        Some(&self.site.table.costed.gpu.as_ref()?.gpu)
    }

    /// The answer for a value derived from the number of resident blocks. ROCm's profiler records
    /// neither registers nor LDS of a kernel, so for AMD GPUs the fact does not apply.
    fn resident(&self, value: Option<impl Into<Answer>>) -> Answer {
        match self.gpu() {
            Some(gpu) if gpu.vendor == Vendor::Amd => Answer::or_silent(value),
            _ => Answer::from(value),
        }
    }

    /// Resident blocks per SM by the occupancy formula of the CUDA occupancy calculator: the least of
    /// the limits set by blocks, warps, registers and shared memory. `None` if a limit or a resource is
    /// unknown, and on AMD, whose register allocation granularity differs.
    fn blocks_per_sm(&self) -> Option<u64> {
        self.residency().map(|(blocks, _)| blocks)
    }

    /// Resident blocks per SM, and the resource that limits them; of equal limits the first in the
    /// order of the formula.
    fn residency(&self) -> Option<(u64, &'static str)> {
        self.known_config()?;
        let gpu = self.gpu().filter(|gpu| gpu.vendor == Vendor::Nvidia)?;
        let threads = self.config.threads();
        let warps = threads.div_ceil(u64::from(gpu.warp_size())).max(1);
        let max_warps = u64::from(gpu.max_warps_per_sm()?);
        let mut least = (u64::from(gpu.max_blocks_per_sm?), BLOCKS);
        let mut limit = |blocks: u64, by: &'static str| {
            if blocks < least.0 {
                least = (blocks, by);
            }
        };
        limit(max_warps / warps, WARPS);
        if let (Some(per_sm), Some(per_thread)) = (gpu.registers_per_sm, self.config.registers) {
            let schedulers = u64::from(gpu.warp_schedulers.unwrap_or(4)).max(1);
            // Registers are allocated per warp, in units of 256, within a scheduler's quarter of the
            // SM.
            let per_warp = (u64::from(per_thread) * u64::from(gpu.warp_size())).div_ceil(256) * 256;
            if let Some(per_scheduler) = (u64::from(per_sm) / schedulers).checked_div(per_warp) {
                limit(per_scheduler * schedulers / warps, REGISTERS);
            }
        }
        if let Some(per_sm) = gpu.shared_per_sm {
            // From compute capability 8.0 on, the system reserves 1 KiB per block.
            let reserved = if gpu.compute_capability >= Some((8, 0)) {
                1024
            } else {
                0
            };
            let per_block = u64::from(self.config.static_shared.unwrap_or(0))
                + u64::from(self.config.dynamic_shared.unwrap_or(0))
                + reserved;
            if let Some(fit) = u64::from(per_sm).checked_div(per_block) {
                limit(fit, SHARED_MEMORY);
            }
        }
        Some(least).filter(|&(blocks, _)| blocks > 0)
    }

    /// Number of thread blocks divided by the number of SMs.
    pub(super) fn sm_fill(&self) -> Option<f64> {
        let (sms, config) = self.sm_count().zip(self.known_config())?;
        Some(config.blocks() as f64 / sms as f64)
    }

    /// Resident warps divided by the maximum of an SM.
    fn occupancy(&self) -> Option<f64> {
        let gpu = self.gpu()?;
        let warps = self.config.threads().div_ceil(u64::from(gpu.warp_size()));
        let resident = self.blocks_per_sm()?.saturating_mul(warps);
        Some(resident as f64 / f64::from(gpu.max_warps_per_sm()?))
    }

    /// Number of blocks divided by the number that the whole GPU can hold at once.
    pub(super) fn waves(&self) -> Option<f64> {
        let capacity = self.blocks_per_sm()? * self.sm_count()?;
        (capacity > 0).then(|| self.config.blocks() as f64 / capacity as f64)
    }

    /// The family. ROCm's copy kernels have no types in their names, so the operator's arguments
    /// distinguish copies and casts.
    pub(super) fn family(&self) -> Family {
        match (self.name.family, self.site.cost.family) {
            (Family::Copy, Family::Cast) => Family::Cast,
            (family, _) => family,
        }
    }
}

const BLOCKS: &str = "blocks";
const WARPS: &str = "warps";
const REGISTERS: &str = "registers";
const SHARED_MEMORY: &str = "shared_memory";

/// The values of `kernel.occupancy_limit`.
pub(super) const OCCUPANCY_LIMITS: [&str; 4] = [BLOCKS, WARPS, REGISTERS, SHARED_MEMORY];

/// Equal calls of a collective from which the fastest is taken as the transfer: of fewer, each may have waited
/// for another rank.
pub const ENOUGH_CALLS: u64 = 5;

/// The shortest time that one execution of a collective is known to need, in ns, and the number of calls
/// among which it is the shortest.
fn transfer(k: &KernelScope<'_>) -> (i64, u64) {
    let own = (k.kernel.min_ns, u64::from(k.kernel.count));
    let fastest = || {
        let (bytes, ranks, _) = message_of(k.site.cost)?;
        let whole = k
            .name
            .collective
            .filter(|_| k.kernel.count == k.site.site.calls)?;
        (k.site.table.collectives).fastest(whole, ranks, bytes)
    };
    fastest().map_or(own, |fastest| {
        (own.0.min(fastest.ns), own.1.max(fastest.calls))
    })
}

/// The collective of a kernel. NCCL exchanges messages between all ranks in the kernels of sends and receives,
/// and its old releases run all collectives there; the operator tells which one it was.
fn collective(kernel: &KernelScope<'_>) -> Option<&'static str> {
    let by_name = kernel.name.collective?;
    let operator = (kernel.site.site.op.as_ref()).filter(|_| by_name == "send_recv");
    Some(
        operator
            .and_then(|op| collective_in(&op.name))
            .unwrap_or(by_name),
    )
}

pub(super) const ENTRIES: &[FactEntry<Kernels>] = facts! {
    /// Base name, template arguments cut
    "kernel.name": STR => |k| k.name.base.as_str(),
    /// Its name without namespaces, as `ncu --kernel-name` matches it
    "kernel.function": STR => |k| {
        let base = k.name.base.as_str();
        base.rsplit("::").next().unwrap_or(base)
    },
    /// The type of the program that a generic function of a library runs, as `Mine` of
    /// `cutlass::device_kernel<Mine>`: `kernel.function` alone does not tell such kernels apart
    "kernel.wraps": STR => |k| Answer::or_silent(k.name.wraps.as_deref()),
    /// Short label
    "kernel.label": STR => |k| k.name.label.as_str(),
    /// What kind of work its name says; a copy between tensors of different types is a `cast`
    "kernel.family": STR => |k| k.family().name(),
    /// Executions
    "kernel.count": INT => |k| k.kernel.count,
    /// GPU time, summed over executions
    "kernel.time_ns": DOUBLE => |k| k.kernel.time_ns as f64,
    /// What its executions would take if each were as fast as the fastest, or as the fastest call of its
    /// kind with a message of that size or a larger one: the time without waiting for other ranks
    "kernel.transfer_ns": DOUBLE of &[Family::Communication] =>
        |k| transfer(k).0 as f64 * f64::from(k.kernel.count),
    /// `kernel.transfer_ns`, or 0 where it rests on fewer than 5 calls: each of so few may have waited for
    /// other ranks
    "kernel.sure_transfer_ns": DOUBLE of &[Family::Communication] => |k| {
        let (ns, calls) = transfer(k);
        let known = if calls >= ENOUGH_CALLS { ns } else { 0 };
        known as f64 * f64::from(k.kernel.count)
    },
    /// Time in which it ran, on one stream or several, and nothing else did on the device
    "kernel.exposed_ns": DOUBLE => |k| k.kernel.exposed_ns as f64,
    /// Mean duration of an execution
    "kernel.mean_ns": DOUBLE => |k| k.kernel.time_ns as f64 / f64::from(k.kernel.count.max(1)),
    /// Shortest execution
    "kernel.min_ns": DOUBLE => |k| k.kernel.min_ns as f64,
    /// Longest execution
    "kernel.max_ns": DOUBLE => |k| k.kernel.max_ns as f64,
    /// Its share of GPU busy time
    "kernel.gpu_share": DOUBLE =>
        |k| (k.kernel.time_ns as f64 / k.site.table.totals.gpu_busy_ns).min(1.0),
    /// The share of GPU busy time of all kernels with its label
    "kernel.label_share": DOUBLE => |k| {
        let table = k.site.table;
        let all = table.labels.get(k.name.label.as_str()).copied();
        (all.unwrap_or(0.0) / table.totals.gpu_busy_ns).min(1.0)
    },
    /// No other label has kernels that take more of the GPU's busy time
    "kernel.is_largest": BOOL => |k| {
        let table = k.site.table;
        let own = table.labels.get(k.name.label.as_str()).copied();
        own.unwrap_or(0.0) >= table.largest_label_ns
    },
    /// Type of the math by its name
    "kernel.dtype": STR needs KERNEL_NAME => |k| k.name.dtype.map(DType::name),
    /// It runs on Tensor Cores
    "kernel.tensor_core": BOOL needs KERNEL_NAME of Family::MATH => |k| k.name.tensor_core.known(),
    /// Element alignment it was built for; silent for names that carry none
    "kernel.align": INT => |k| Answer::or_silent(k.name.align),
    /// Operand layout letters in its name; silent without
    "kernel.layout": STR => |k| Answer::or_silent(k.name.layout.as_deref()),
    /// Rows of its thread block tile; silent for names that carry none
    "kernel.tile_m": INT => |k| Answer::or_silent(k.name.tile.map(|t| u64::from(t.0))),
    /// Columns of its thread block tile; silent for names that carry none
    "kernel.tile_n": INT => |k| Answer::or_silent(k.name.tile.map(|t| u64::from(t.1))),
    /// Compute capability in its name; silent for names that carry none
    "kernel.arch_cc": DOUBLE =>
        |k| Answer::or_silent(k.name.arch.map(|a| f64::from(a.0) + f64::from(a.1) / 10.0)),
    /// It splits the inner dimension over blocks
    "kernel.split_k": BOOL => |k| k.name.split_k,
    /// Its grid says nothing about parallelism: persistent, stream-K or communication
    "kernel.persistent": BOOL => |k| k.name.persistent,
    /// Attention with a causal mask, by its name; silent for names that do not tell
    "kernel.causal": BOOL => |k| Answer::or_silent(k.name.causal),
    /// It does no math of its own
    "kernel.helper": BOOL => |k| k.name.helper,
    /// It reads or writes strided or broadcast memory
    "kernel.strided": BOOL needs KERNEL_NAME => |k| k.name.strided,
    /// Compiled by Triton
    "kernel.triton": BOOL => |k| k.name.triton,
    /// Which collective: `all_reduce`, ..., by the kernel's name, or by the operator where old releases of
    /// NCCL give all kernels one name; silent for other kernels
    "kernel.collective": STR => |k| Answer::or_silent(collective(k)),
    /// It is part of attention that `torch.compile` computes in its plain form: the product, the softmax or the product,
    /// or a cast between or beside them, in nine tenths of its executions
    "kernel.plain_attention": BOOL => |k| {
        let row = (k.site.id, k.kernel.name);
        k.site.table.plain_attention.contains(&row)
    },
    /// Thread blocks in the grid
    "kernel.blocks": INT needs LAUNCH_CONFIG => |k| k.known_config().map(LaunchConfig::blocks),
    /// Threads per block
    "kernel.threads": INT needs LAUNCH_CONFIG => |k| k.known_config().map(LaunchConfig::threads),
    /// Registers per thread
    "kernel.registers": INT needs LAUNCH_CONFIG => |k| k.config.registers,
    /// Local memory per thread
    "kernel.local_bytes": DOUBLE needs LAUNCH_CONFIG =>
        |k| k.config.local_per_thread.map(f64::from),
    /// Thread blocks over SMs: below 1 some SMs have nothing to do
    "kernel.sm_fill": DOUBLE needs GPU_AND_LAUNCH => |k| k.sm_fill(),
    /// Blocks an SM can hold at once, by registers, shared memory, warps and blocks
    "kernel.blocks_per_sm": INT needs GPU_AND_LAUNCH => |k| k.resident(k.blocks_per_sm()),
    /// Theoretical occupancy: resident warps over the most an SM can hold
    "kernel.occupancy": DOUBLE needs GPU_AND_LAUNCH => |k| k.resident(k.occupancy()),
    /// What limits `kernel.occupancy`: `blocks`, `warps`, `registers` or `shared_memory`
    "kernel.occupancy_limit": STR needs GPU_AND_LAUNCH =>
        |k| k.resident(k.residency().map(|(_, by)| by)),
    /// Grid over the blocks the GPU can hold at once
    "kernel.waves": DOUBLE needs GPU_AND_LAUNCH => |k| k.resident(k.waves()),
    /// Waves over waves rounded up: 0.55 means the last wave leaves 45 % of the slots empty
    "kernel.wave_efficiency": DOUBLE needs GPU_AND_LAUNCH =>
        |k| k.resident(k.waves().map(|w| w / w.ceil())),
};
