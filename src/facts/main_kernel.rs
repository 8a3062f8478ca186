//! Facts of a site that are derived from its main kernel: its target architecture and how well it fills
//! the GPU.

use super::fact::{Answer, FactEntry, facts};
use super::kernel::KernelScope;
use super::site::{SiteScope, Sites};
use crate::correlate::{OpArgs, Tensor};
use crate::cost::Family;

/// The main kernel of a site: the longest that is not a helper.
fn main_kernel<'a>(site: &SiteScope<'a>) -> Option<KernelScope<'a>> {
    let decoded = site.decoded();
    let row = decoded.iter().position(|d| !d.helper).unwrap_or(0);
    KernelScope::new(*site, row)
}

/// A value derived from the grid. Does not apply to persistent kernels, whose grid size is independent
/// of the work unless there is too little of it for all SMs.
fn of_grid(site: &SiteScope<'_>, ask: fn(&KernelScope<'_>) -> Option<f64>) -> Answer {
    match main_kernel(site) {
        Some(kernel) if kernel.name.persistent => Answer::DoesNotApply,
        Some(kernel) => Answer::from(ask(&kernel)),
        None => Answer::Absent,
    }
}

/// Whether elements are not adjacent: true for a slice or a broadcast, false for a mere transposition.
/// `None` without recorded strides.
fn is_strided(tensor: &Tensor) -> Option<bool> {
    let strides = tensor.strides.as_ref()?;
    let mut dims: Vec<(u64, u64)> = strides
        .iter()
        .zip(&tensor.shape)
        .filter(|(_, size)| **size > 1)
        .map(|(stride, size)| (stride.unsigned_abs(), *size))
        .collect();
    dims.sort_unstable();
    let mut next = 1_u64;
    for (stride, size) in dims {
        if stride != next {
            return Some(true);
        }
        next = next.saturating_mul(size);
    }
    Some(false)
}

#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of one lifetime does not stand for one of all"
)]
pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Element alignment its main kernel was built for; silent for names that carry none
    "site.align": INT of Family::MATH => |s| Answer::or_silent(main_kernel(s).and_then(|k| k.name.align)),
    /// GPU time of kernels of it that do no math: layout transposes, split-K reductions
    "site.helper_ns": DOUBLE => |s| {
        let kernels = s.site.kernels.iter().zip(s.decoded());
        let helpers = kernels.filter(|(_, d)| d.helper);
        helpers.map(|(k, _)| k.time_ns as f64).sum::<f64>()
    },
    /// Base name of its main kernel, template arguments cut
    "site.kernel_name": STR => |s| Answer::or_silent(main_kernel(s).map(|k| k.name.base.as_str())),
    /// Thread blocks of its main kernel over SMs: below 1 some SMs have nothing to do; silent for
    /// persistent kernels with a block for every SM
    "site.sm_fill": DOUBLE needs GPU_AND_LAUNCH =>
        |s| match main_kernel(s).and_then(|k| k.sm_fill()) {
            // A persistent kernel launches a block per tile or per SM, whichever is less.
            Some(fill) if fill < 1.0 => Answer::from(fill),
            _ => of_grid(s, |k| k.sm_fill()),
        },
    /// Elements of a tensor argument lie apart in memory: a slice or a broadcast. Absent where no strides
    /// are recorded
    "site.strided": BOOL needs SHAPES => |s| {
        let tensors = s.args().into_iter().flat_map(OpArgs::tensors);
        tensors.filter_map(is_strided).reduce(|a, b| a || b)
    },
    /// Waves of its main kernel over waves rounded up; silent for persistent kernels
    "site.wave_efficiency": DOUBLE needs GPU_AND_LAUNCH =>
        |s| of_grid(s, |k| k.waves().map(|w| w / w.ceil())),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_broadcasts_are_strided_and_transpositions_are_not() {
        let tensor = |shape: &[u64], strides: Option<&[i64]>| Tensor {
            shape: shape.to_vec(),
            dtype: None,
            strides: strides.map(<[i64]>::to_vec),
        };
        for (shape, strides, want) in [
            (&[4, 8][..], Some(&[8, 1][..]), Some(false)),
            (&[4, 8], Some(&[1, 4]), Some(false)),
            (&[4, 8], Some(&[16, 1]), Some(true)),
            (&[4, 8], Some(&[0, 1]), Some(true)),
            (&[1, 8], Some(&[999, 1]), Some(false)),
            (&[4, 8], None, None),
        ] {
            assert_eq!(
                is_strided(&tensor(shape, strides)),
                want,
                "{shape:?} {strides:?}"
            );
        }
    }
}
