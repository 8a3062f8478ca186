//! Elements per thread of PyTorch's elementwise kernels (ATen/native/cuda/CUDALoops.cuh). With the grid
//! they tell the size of a tensor where no operator is recorded.

use rustc_hash::FxHashMap;

use crate::correlate::SiteId;
use crate::cost::{Costed, DecodedName};
use crate::profile::{DeviceId, LaunchConfig, ProcessId};

/// Elements per thread of an elementwise loop; `None` for vectorized ones, whose number depends on the release.
fn exact(decoded: &DecodedName) -> Option<u64> {
    if is_vectorized(decoded) {
        return None;
    }
    // Where the name is shortened: `elementwise_kernel` handles two elements of at least four bytes.
    let wide = decoded.dtype.is_none_or(|dtype| dtype.bytes() >= 4);
    let usual = if decoded.strided == Some(true) && wide {
        2
    } else {
        4
    };
    Some(u64::from(decoded.per_thread.unwrap_or(usual)))
}

fn is_vectorized(decoded: &DecodedName) -> bool {
    decoded.base.ends_with("vectorized_elementwise_kernel")
}

/// The number of elements that an elementwise loop covers, rounded up: it is compared, never used to compute a
/// cost. `None` for other kernels. `vectorized` are the elements per thread of vectorized loops.
pub(super) fn covered(
    decoded: &DecodedName,
    config: &LaunchConfig,
    vectorized: &dyn Fn() -> u64,
) -> Option<u64> {
    if !config.is_known() || !decoded.label.starts_with(LOOP) {
        return None;
    }
    let each = exact(decoded).unwrap_or_else(vectorized);
    let threads = config.blocks().saturating_mul(config.threads());
    Some(rounded(threads.saturating_mul(each)))
}

/// How the labels of elementwise loops begin.
const LOOP: &str = "elementwise: ";

/// A number of elements that a grid covers, up to the next multiple of what the largest blocks handle: grids
/// of different kernels over one tensor cover as many.
fn rounded(elements: u64) -> u64 {
    // 128 threads with eight each.
    const BLOCK: u64 = 1024;
    elements.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// Elements per thread of `vectorized_elementwise_kernel`: eight in current releases of PyTorch, four in older
/// ones. A kernel that reads eight at once tells, or else the loops that run beside one whose number is
/// known: many work on the same tensor.
pub(super) fn vectorized(costed: &Costed) -> u64 {
    let run = &costed.run;
    let loop_of = |site: SiteId| {
        let decoded = costed.kernels.get(site.idx())?.first()?;
        decoded.label.starts_with(LOOP).then_some(decoded)
    };
    let mut last: FxHashMap<(ProcessId, DeviceId, u32), (u64, Option<u64>)> = FxHashMap::default();
    let (mut four, mut eight) = (0, 0);
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let stream = (kernel.process, kernel.device, kernel.stream);
        let config = run.profile.configs.get(kernel.config.idx());
        let decoded = link.site.and_then(loop_of);
        let Some((decoded, config)) = decoded.zip(config.filter(|c| c.is_known())) else {
            last.remove(&stream);
            continue;
        };
        if is_vectorized(decoded) && decoded.per_thread.is_some_and(|at_once| at_once > 4) {
            return 8;
        }
        let threads = config.blocks().saturating_mul(config.threads());
        let exact = exact(decoded);
        let (threads, elements) = match (last.insert(stream, (threads, exact)), exact) {
            (Some((before, None)), Some(each)) => (before, threads.saturating_mul(each)),
            (Some((before, Some(each))), None) => (threads, before.saturating_mul(each)),
            _ => continue,
        };
        let same = |each| rounded(threads.saturating_mul(each)) == rounded(elements);
        four += u64::from(same(4));
        eight += u64::from(same(8));
    }
    if eight > four { 8 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::MemberKind;
    use crate::facts::testing::answers;
    use crate::profile::ConfigId;

    const STRIDED: &str = "void at::native::elementwise_kernel<(int)128, (int)2, at::native::mul_kernel_cuda>(int, T3)";
    const VECTORIZED: &str =
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::exp_kernel_cuda>(int)";

    /// Kernels of one stream by name and blocks, all of 128 threads.
    fn of(kernels: &[(&str, u32)]) -> Costed {
        let mut b = ProfileBuilder::new();
        for (i, (name, blocks)) in kernels.iter().enumerate() {
            let kernel = b.launch(1000 * (i as i64 + 1));
            let config = ConfigId(b.profile.configs.len() as u32);
            b.profile.configs.push(LaunchConfig {
                grid: [*blocks, 1, 1],
                block: [128, 1, 1],
                ..LaunchConfig::default()
            });
            b.profile.kernels[kernel].name = b.profile.strings.intern(name);
            b.profile.kernels[kernel].config = config;
        }
        crate::cost::estimate_costs(b.run(), None)
    }

    #[test]
    fn vectorized_loops_have_as_many_elements_as_their_neighbors_on_the_same_tensor() {
        assert_eq!(vectorized(&of(&[(STRIDED, 768), (VECTORIZED, 192)])), 8);
        assert_eq!(vectorized(&of(&[(VECTORIZED, 384), (STRIDED, 768)])), 4);
        // Other tensors, and a kernel between the two.
        assert_eq!(vectorized(&of(&[(STRIDED, 768), (VECTORIZED, 96)])), 4);
        let apart = [
            (STRIDED, 768),
            ("ampere_sgemm_128x64_tn", 9),
            (VECTORIZED, 192),
        ];
        assert_eq!(vectorized(&of(&apart)), 4);
        // Half a tensor once, the same one twice.
        let most = [
            (STRIDED, 768),
            (VECTORIZED, 192),
            (STRIDED, 384),
            (VECTORIZED, 96),
            (STRIDED, 384),
        ];
        assert_eq!(vectorized(&of(&most)), 8);
    }

    #[test]
    fn vectorized_loops_that_read_eight_elements_at_once_handle_eight() {
        let wide = VECTORIZED.replace("(int)4", "(int)8");
        assert_eq!(vectorized(&of(&[(&wide, 192)])), 8);
        assert_eq!(vectorized(&of(&[(VECTORIZED, 192)])), 4);
    }

    #[test]
    fn other_loops_name_their_elements() {
        let exact = |name: &str| exact(&crate::cost::kernel_name::decode(name));
        assert_eq!(exact(STRIDED), Some(2));
        assert_eq!(exact(&STRIDED.replace("(int)2", "4")), Some(4));
        assert_eq!(
            exact("void at::native::elementwise_kernel<512, 1, at::native::add>(int)"),
            Some(1)
        );
        let unrolled = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, \
            std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int> >(int)";
        assert_eq!(exact(unrolled), Some(4));
        assert_eq!(exact("at::native::elementwise_kernel"), Some(2));
        assert_eq!(exact(VECTORIZED), None);
    }

    /// The kinds of chains in `silu, mul` without shapes, by the blocks of both kernels.
    fn chains(silu: u32, mul: u32) -> Vec<String> {
        let mut b = ProfileBuilder::new();
        for (i, (op, blocks)) in [("silu", silu), ("mul", mul)].into_iter().enumerate() {
            let start = 1000 * (i as i64 + 1);
            b.range(&format!("aten::{op}, seq = {i}"), start, start + 100);
            let kernel = b.launch(start + 10);
            let config = ConfigId(b.profile.configs.len() as u32);
            b.profile.configs.push(LaunchConfig {
                grid: [blocks, 1, 1],
                block: [128, 1, 1],
                ..LaunchConfig::default()
            });
            let name = VECTORIZED.replace("exp_kernel", &format!("{op}_kernel"));
            b.profile.kernels[kernel].name = b.profile.strings.intern(&name);
            b.profile.kernels[kernel].config = config;
        }
        let chains = answers(b, MemberKind::Chain, ["chain.kind"]).into_iter();
        chains.map(|[kind]| format!("{kind:?}")).collect()
    }

    #[test]
    fn operators_without_shapes_have_the_sizes_of_their_grids() {
        let [gated] = &chains(64, 64)[..] else {
            panic!("one chain");
        };
        assert!(gated.contains("gated_activation"), "{gated}");
        assert!(chains(64, 128).is_empty());
    }
}
