//! Infers the GPU of a profile that describes none, from the names and grids of its kernels.
//!
//! PyTorch and cuBLAS choose the grids of some kernels by the number of SMs, and names of library
//! kernels contain the compute capability they were compiled for. Sources:
//! * `aten/src/ATen/native/cuda/Shape.cu` of PyTorch: `getCatGrid` launches twice as many blocks as
//!   there are SMs (512 threads each), `getCatGridContig` at most 32 per SM (128 threads each);
//! * `aten/src/ATen/native/cuda/DistributionTemplates.h` and `Dropout.cu`: at most as many blocks of
//!   256 threads as fit on the GPU;
//! * persistent kernels of cuBLAS for Hopper: at most one block per SM.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::kernel_name::decode;
use crate::gpu::candidates;
use crate::gpu::load::{Spec, built_in};
use crate::gpu::select::{is_rocm, is_undescribed};
use crate::gpu::{Choice, Gpu, SelectedBy, Vendor};
use crate::profile::{LaunchConfig, Profile, StrId};

/// Kernels that must agree on the number of SMs. A grid that is always a multiple of it counts twice.
const REQUIRED: u32 = 2;

/// How a kernel's grid depends on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum GridRule {
    /// `torch.cat`: exactly two blocks per SM, or at most 32 of 128 threads.
    Cat,
    /// Random numbers and dropout: at most as many blocks as are resident.
    Random,
    /// Persistent: at most one block per SM.
    Persistent,
}

/// What the kernels of a profile show about its GPU.
#[derive(Debug, Default)]
struct Evidence {
    /// The highest compute capability in a kernel's name.
    least_capability: Option<(u32, u32)>,
    /// Numbers of SMs by grids that are always a multiple of it.
    exact: Vec<u32>,
    /// The largest grid of each kernel with a limit, with the limit of a GPU.
    limited: BTreeMap<(StrId, Limit), u32>,
}

/// The largest grid of a kernel, which depends on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    /// Blocks per SM.
    PerSm(u32),
    /// The resident blocks of this many threads.
    Resident(u32),
}

impl Limit {
    fn of(self, gpu: &Gpu) -> Option<u32> {
        let per_sm = match self {
            Limit::PerSm(blocks) => blocks,
            Limit::Resident(threads) => gpu.max_threads_per_sm?.checked_div(threads)?,
        };
        gpu.sms()?.checked_mul(per_sm)
    }
}

/// The GPU that the kernels show, if the profile describes none and all boards of the table that fit
/// have the same compute capability and number of SMs. It has the lowest rates of these boards.
pub fn infer_gpu(profile: &Profile) -> Option<Choice> {
    if !is_undescribed(profile) || is_rocm(profile) {
        return None;
    }
    let evidence = Evidence::of(profile);
    let boards: Vec<&Spec> = built_in().iter().filter(|s| evidence.fits(s)).collect();
    let gpu = candidates::slowest(&boards)?;
    let kind = |gpu: &Gpu| (gpu.compute_capability, gpu.sm_count);
    let first = boards.first().map(|s| kind(&s.gpu));
    if boards.iter().any(|s| Some(kind(&s.gpu)) != first) {
        return None;
    }
    let capability = match evidence.least_capability {
        Some((major, minor)) => {
            format!(" and kernel names compute capability {major}.{minor} or later")
        }
        None => String::new(),
    };
    let lowest = match boards.len() {
        1 => "",
        _ => " The lowest rates of these are used, so savings may be underestimated.",
    };
    let remark = format!(
        "The profile does not describe its GPU. Grid sizes show {} SMs{capability}, so it was taken to \
         be {}.{lowest} Name the GPU with `--gpu`.",
        gpu.sm_count,
        candidates::names(&boards),
    );
    Some(Choice {
        gpu,
        how: SelectedBy::Kernels,
        remarks: vec![remark],
    })
}

impl Evidence {
    fn of(profile: &Profile) -> Evidence {
        let mut evidence = Evidence::default();
        let mut rules: FxHashMap<StrId, Option<GridRule>> = FxHashMap::default();
        for kernel in &profile.kernels {
            let rule = *rules.entry(kernel.name).or_insert_with(|| {
                let name = profile.text(kernel.name);
                let (rule, capability) = read_name(name);
                evidence.least_capability = evidence.least_capability.max(capability);
                rule
            });
            let config = profile.configs.get(kernel.config.idx());
            if let (Some(rule), Some(config)) = (rule, config.filter(|c| c.is_known())) {
                evidence.add(kernel.name, rule, config);
            }
        }
        evidence
    }

    fn add(&mut self, name: StrId, rule: GridRule, config: &LaunchConfig) {
        let [x, y, z] = config.grid;
        let threads = config.block.iter().fold(1_u32, |n, d| n.saturating_mul(*d));
        let (limit, blocks) = match (rule, threads) {
            // The second dimension counts the tensors.
            (GridRule::Cat, 512) if x.is_multiple_of(2) => {
                let sms = x / 2;
                if !self.exact.contains(&sms) {
                    self.exact.push(sms);
                }
                return;
            }
            (GridRule::Cat, 128) => (Limit::PerSm(32), x),
            (GridRule::Random, 256) => (Limit::Resident(256), x),
            (GridRule::Persistent, _) => (Limit::PerSm(1), x.saturating_mul(y).saturating_mul(z)),
            _ => return,
        };
        let largest = self.limited.entry((name, limit)).or_default();
        *largest = (*largest).max(blocks);
    }

    /// Whether a board can have run these kernels, and enough of them show its number of SMs.
    fn fits(&self, spec: &Spec) -> bool {
        let gpu = &spec.gpu;
        if gpu.vendor != Vendor::Nvidia || gpu.compute_capability < self.least_capability {
            return false;
        }
        let exact = self.exact.iter().all(|sms| gpu.sms() == Some(*sms));
        let mut shown = if self.exact.is_empty() { 0 } else { REQUIRED };
        for ((_, limit), largest) in &self.limited {
            let Some(limit) = limit.of(gpu).filter(|limit| largest <= limit) else {
                return false;
            };
            shown += u32::from(limit == *largest);
        }
        exact && shown >= REQUIRED
    }
}

/// The rule for the grids of a kernel, and the compute capability that it needs at least.
fn read_name(name: &str) -> (Option<GridRule>, Option<(u32, u32)>) {
    let decoded = decode(name);
    let leaf = decoded.base.rsplit("::").next().unwrap_or_default();
    let rule = if leaf.starts_with("CatArrayBatchedCopy") {
        Some(GridRule::Cat)
    } else if leaf.starts_with("distribution_elementwise_grid_stride_kernel")
        || leaf.starts_with("fused_dropout_kernel")
    {
        Some(GridRule::Random)
    } else {
        (leaf.starts_with("nvjet_") && fills_the_gpu(leaf)).then_some(GridRule::Persistent)
    };
    // cuBLAS has these kernels for Hopper and later.
    let nvjet = leaf.starts_with("nvjet_").then_some((9, 0));
    (rule, decoded.arch.max(nvjet))
}

/// Whether the clusters of an nvjet kernel have at most two blocks. Larger ones leave SMs empty where
/// a GPC has an odd number of them.
fn fills_the_gpu(name: &str) -> bool {
    const SMALL: [&str; 3] = ["1x1", "1x2", "2x1"];
    name.split('_').any(|token| SMALL.contains(&token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{ConfigId, Device, DeviceId, Kernel, ProcessId, Span};

    const CAT: &str = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)";
    const CAT_ALIGNED: &str = "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<float, unsigned int, 2, 128, 1>(float*)";
    const DROPOUT: &str = "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(x)";
    const NVJET: &str = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN";
    const NVJET_OTHER: &str = "nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT";
    const NVJET_WIDE: &str = "nvjet_tst_192x8_64x8_4x1_v_bz_TNT";

    /// A profile with one launch per name, grid and threads per block.
    fn profile(launches: &[(&str, [u32; 3], u32)]) -> Profile {
        let mut profile = Profile::new(&crate::read::NSYS_SQLITE, "x.sqlite");
        for (i, (name, grid, threads)) in launches.iter().enumerate() {
            let name = profile.strings.intern(name);
            profile.configs.push(LaunchConfig {
                grid: *grid,
                block: [*threads, 1, 1],
                ..LaunchConfig::default()
            });
            profile.kernels.push(Kernel {
                span: Span { start: 0, end: 1 },
                name,
                device: DeviceId(0),
                process: ProcessId(0),
                stream: 0,
                context: 0,
                correlation: None,
                config: ConfigId::new(i),
                in_graph: false,
                captured: None,
            });
        }
        profile
    }

    fn inferred(launches: &[(&str, [u32; 3], u32)]) -> Option<Choice> {
        infer_gpu(&profile(launches))
    }

    #[test]
    fn cat_kernels_show_the_number_of_sms() {
        let choice = inferred(&[
            (CAT, [216, 14, 1], 512),
            ("ampere_sgemm_32x128_tn", [5, 1, 1], 256),
        ]);
        let choice = choice.unwrap();
        assert_eq!(
            (choice.how, choice.gpu.sm_count),
            (SelectedBy::Kernels, 108)
        );
        assert_eq!(choice.gpu.name, "GA100 with 108 SMs");
        // The lowest of all A100 boards, and no property on which they differ.
        assert_eq!(choice.gpu.bandwidth, 1.555e12);
        assert_eq!(choice.gpu.memory_bytes, None);
        assert_eq!(choice.gpu.compute_capability, Some((8, 0)));
        assert!(
            choice.remarks[0]
                .contains("show 108 SMs and kernel names compute capability 8.0 or later"),
            "{:?}",
            choice.remarks
        );
    }

    #[test]
    fn two_kernels_at_the_limit_of_a_gpu_show_it() {
        let two = [(NVJET, [2, 66, 1], 384), (NVJET_OTHER, [1, 132, 1], 384)];
        let choice = inferred(&two).unwrap();
        assert_eq!(choice.gpu.name, "GH100 with 132 SMs");
        assert_eq!(inferred(&two[..1]), None);
        // 108 SMs x 8 resident blocks of 256 threads, and 32 blocks per SM.
        let ampere = [
            (DROPOUT, [864, 1, 1], 256),
            (CAT_ALIGNED, [3456, 3, 1], 128),
        ];
        assert_eq!(inferred(&ampere).unwrap().gpu.sm_count, 108);
        assert_eq!(inferred(&ampere[..1]), None);
    }

    #[test]
    fn contradictions_and_small_grids_show_nothing() {
        assert_eq!(inferred(&[]), None);
        // No board has 107 SMs; boards of several generations have 48; two numbers of SMs; more blocks than the limit allows.
        for launches in [
            vec![(CAT, [214, 2, 1], 512)],
            vec![(CAT, [96, 2, 1], 512)],
            vec![(CAT, [216, 2, 1], 512), (CAT, [264, 2, 1], 512)],
            vec![(CAT, [216, 2, 1], 512), (NVJET, [2, 66, 1], 384)],
            vec![(DROPOUT, [32, 1, 1], 256), (CAT_ALIGNED, [7, 1, 1], 128)],
            // Clusters of four leave SMs of a B200 empty.
            vec![(NVJET_WIDE, [4, 33, 1], 384), (NVJET, [2, 32, 1], 384)],
        ] {
            assert_eq!(inferred(&launches), None, "{launches:?}");
        }
    }

    #[test]
    fn described_gpus_are_not_inferred() {
        let mut described = profile(&[(CAT, [216, 14, 1], 512)]);
        described.devices = vec![Device {
            name: Some("NVIDIA Next 1".into()),
            ..Device::default()
        }];
        assert_eq!(infer_gpu(&described), None);
        let mut rocm = profile(&[(CAT, [216, 14, 1], 512)]);
        rocm.strings.intern("hipLaunchKernel");
        assert_eq!(infer_gpu(&rocm), None);
    }
}
