//! Attention that `torch.compile` computes in its plain form: a product, a softmax and a product, with casts to
//! fp32 and back around them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::maker::{Maker, maker};
use crate::base::DType;
use crate::base::statistics::NEARLY_ALL;
use crate::correlate::SiteId;
use crate::cost::{Costed, DecodedName, Family};
use crate::profile::{DeviceId, StrId};

/// All executions of one kernel name in a site.
type Row = (SiteId, StrId);

/// Kernels between a product and the softmax: casts, and the projection of the values.
const BETWEEN: usize = 3;
/// Casts of the operands before both products, and of the result behind them.
const BEFORE: usize = 2;
const BEHIND: usize = 1;

fn is_inductor(name: &DecodedName) -> bool {
    maker(&name.base, name.triton) == Some(Maker::Inductor)
}

/// The kernels of which nearly all executions are part of such attention.
pub(super) fn of(costed: &Costed) -> FxHashSet<Row> {
    let run = &costed.run;
    let rows = run.sites.iter().zip(&costed.kernels);
    let names: FxHashMap<StrId, &DecodedName> = rows
        .flat_map(|(site, names)| site.kernels.iter().zip(names))
        .map(|(kernel, name)| (kernel.name, &**name))
        .collect();
    let is_softmax = |name: &DecodedName| name.base.contains("safe_softmax") && is_inductor(name);
    if !names.values().any(|name| is_softmax(name)) {
        return FxHashSet::default();
    }
    let mut streams: FxHashMap<(DeviceId, u64), Vec<(Row, &DecodedName)>> = FxHashMap::default();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if let Some((site, name)) = link.site.zip(names.get(&kernel.name)) {
            let stream = streams.entry((kernel.device, kernel.stream.into()));
            stream.or_default().push(((site, kernel.name), name));
        }
    }
    // Executions inside and all executions.
    let mut counts: FxHashMap<Row, (u32, u32)> = FxHashMap::default();
    for kernels in streams.values() {
        let mut end = 0;
        for (at, (row, name)) in kernels.iter().enumerate() {
            counts.entry(*row).or_default().1 += 1;
            let around = || {
                let product = |(_, name): &(Row, &DecodedName)| {
                    let in_fp32 = matches!(name.dtype, Some(DType::Fp32 | DType::Tf32));
                    name.family == Family::Gemm && in_fp32
                };
                let (before, behind) = (kernels.get(end..at)?, kernels.get(at + 1..)?);
                let first = before.iter().rev().take(BETWEEN + 1).position(product)?;
                let last = behind.iter().take(BETWEEN + 1).position(product)?;
                Some((at - 1 - first, at + 1 + last))
            };
            let Some((first, last)) = is_softmax(name).then(around).flatten() else {
                continue;
            };
            let cast = |at: &usize| {
                let kernel = kernels.get(*at).map(|(_, name)| *name);
                kernel.is_some_and(|name| name.base.contains("to_copy") && is_inductor(name))
            };
            let before = (end..first).rev().take(BEFORE).take_while(cast).count();
            let behind = (last + 1..).take(BEHIND).take_while(cast).count();
            end = last + behind + 1;
            let mut inside: Vec<usize> = (first - before..end).filter(cast).collect();
            // Operands of 16 bits are what tells these products from others in fp32.
            if !inside.is_empty() {
                inside.extend([first, at, last]);
                inside.sort_unstable();
                inside.dedup();
                for (row, _) in inside.iter().filter_map(|at| kernels.get(*at)) {
                    counts.entry(*row).or_default().0 += 1;
                }
            }
        }
    }
    let most = counts
        .into_iter()
        .filter(|(_, (inside, all))| f64::from(*inside) >= NEARLY_ALL * f64::from(*all));
    most.map(|(row, _)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    #[test]
    fn products_and_casts_around_a_compiled_softmax_are_plain_attention() {
        let layer = [
            "nvjet_sm90_hsh_96x64_64x10_1x2_h_bz_bias_TNN",
            "triton_poi_fused__to_copy_clone_mul_1",
            "triton_poi_fused__to_copy_clone_mul_2",
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_ffma",
            "triton_per_fused__safe_softmax_add_3",
            "nvjet_sm90_hsh_96x64_64x10_1x2_h_bz_bias_TNN",
            "triton_poi_fused__to_copy_clone_4",
            "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_ffma",
            "triton_poi_fused__to_copy_clone_5",
            "nvjet_sm90_hsh_96x64_64x10_1x2_h_bz_bias_TNN",
            "triton_per_fused_add_native_layer_norm_6",
        ];
        let found = |layers: usize, behind: &[&str]| {
            let mut b = ProfileBuilder::new();
            let kernels = layer.iter().cycle().take(layers * layer.len());
            for (at, name) in (0..).zip(kernels.chain(behind)) {
                let kernel = b.launch(at * 1000);
                b.profile.kernels[kernel].name = b.profile.strings.intern(name);
            }
            let costed = estimate_costs(b.run(), None);
            let rows = of(&costed).into_iter();
            let mut names: Vec<_> = rows
                .map(|(_, name)| costed.run.profile.text(name).to_owned())
                .collect();
            names.sort_unstable();
            names
        };
        let inside = layer[1..9].iter().filter(|name| !name.contains("nvjet"));
        let mut expected: Vec<_> = inside.map(|name| (*name).to_owned()).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(found(2, &[]), expected);
        // The products elsewhere are a fifth of all with this name.
        expected.retain(|name| !name.contains("ffma"));
        assert_eq!(found(2, &[layer[3]]), expected);
        assert!(found(0, &layer[..4]).is_empty());
    }
}
