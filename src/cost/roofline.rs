//! Ideal and reachable time: `max(flops / peak, bytes / bandwidth)`.
//!
//! The roofline model is Williams, Waterman and Patterson, "Roofline: An Insightful Visual
//! Performance Model", CACM 2009. Ideal times use the peaks; reachable times use the shares of them
//! that well-tuned kernels reach, from `calibration/`.

use super::kernel_name::{Family, TensorCore};
use super::model::{Bound, OpCost};
use crate::base::DType;
use crate::gpu::Gpu;

/// The times of one operator call on one GPU, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roofline {
    /// Ideal time in the unit and precision the work ran in; `None` when that rate is unknown.
    pub ideal_ns: Option<f64>,
    /// Ideal time in the best unit and precision available to the operator.
    pub best_ideal_ns: f64,
    /// Time of a well-tuned kernel in the best unit and precision.
    pub reachable_ns: f64,
    /// The dtype of the best unit and precision.
    pub best_dtype: Option<DType>,
    /// What limits `best_ideal_ns`; [`Bound::Latency`] below the time of the
    /// shortest kernels, or of as many as run one after the other.
    pub bound: Bound,
}

/// The math rate in FLOP/s for a dtype on Tensor Cores, outside them, or (unknown) the better one.
fn rate(gpu: &Gpu, dtype: DType, unit: TensorCore) -> Option<f64> {
    let tensor = gpu.tensor_flops.get(&tensor_dtype(gpu, dtype)).copied();
    let plain = gpu.flops.get(&plain_dtype(dtype)).copied();
    match unit {
        TensorCore::Yes => tensor.or(plain),
        TensorCore::No => plain,
        TensorCore::Unknown => match (tensor, plain) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        },
    }
}

/// The dtype of the Tensor Core rate for tensors of a dtype: fp32 runs as TF32, except on the matrix
/// cores of AMD, which multiply fp32.
fn tensor_dtype(gpu: &Gpu, dtype: DType) -> DType {
    if dtype == DType::Fp32 && !gpu.tensor_flops.contains_key(&DType::Fp32) {
        DType::Tf32
    } else {
        dtype
    }
}

fn plain_dtype(dtype: DType) -> DType {
    match dtype {
        DType::Tf32 | DType::Complex64 => DType::Fp32,
        DType::Complex128 => DType::Fp64,
        other => other,
    }
}

/// The fastest dtype that a math operator of this dtype may run in without changing the model: fp32
/// can become bf16 or fp16 under mixed precision. No dtype is lowered to 8 bits, and fp64 stays.
fn best_dtype(gpu: &Gpu, dtype: DType) -> DType {
    match dtype {
        DType::Fp32 | DType::Tf32 => [DType::Bf16, DType::Fp16]
            .into_iter()
            .find(|d| gpu.tensor_flops.contains_key(d))
            .unwrap_or(dtype),
        other => other,
    }
}

/// Roofline times of one call.
///
/// With `causal`, the FLOPs of attention that a causal kernel skips (about half) are left out; the
/// count in [`OpCost`] is not changed. `gpu` must have a bandwidth; `unit` is the unit that ran, and
/// `gain` how much faster than its rate it is (see [`Gpu::half_accumulation_gain`]).
pub fn roofline(
    gpu: &Gpu,
    cost: &OpCost,
    dtype: DType,
    unit: TensorCore,
    gain: f64,
    causal: bool,
) -> Roofline {
    let math_family = cost.family.is_math();
    let best = if math_family {
        best_dtype(gpu, dtype)
    } else {
        dtype
    };
    // Lower precision reduces the bytes of math operators only.
    let shrink = if math_family && best.bytes() < dtype.bytes() {
        best.bytes() as f64 / dtype.bytes() as f64
    } else {
        1.0
    };
    let best_unit = if math_family && gpu.tensor_flops.contains_key(&tensor_dtype(gpu, best)) {
        TensorCore::Yes
    } else {
        TensorCore::No
    };
    let fallback = gpu.flops.get(&DType::Fp32).copied();
    let ran_rate = if math_family {
        rate(gpu, dtype, unit).map(|rate| rate * gain)
    } else {
        rate(gpu, dtype, TensorCore::No).or(fallback)
    };
    let best_rate = rate(gpu, best, best_unit)
        .or(fallback)
        .map_or(f64::INFINITY, |rate| {
            rate * if best == dtype { gain } else { 1.0 }
        });

    let mut ideal = 0.0;
    let mut best_ideal = 0.0;
    let mut reachable = 0.0;
    let (mut math_ns, mut memory_ns) = (0.0, 0.0);
    for role in &cost.roles {
        let share = role.dims.causal_share().filter(|_| causal);
        let flops = role.flops as f64 * share.unwrap_or(1.0);
        let memory = role.bytes as f64 / gpu.bandwidth * 1e9;
        let time = |rate: f64| {
            if flops == 0.0 {
                0.0
            } else {
                flops / rate * 1e9
            }
        };
        if let Some(rate) = ran_rate {
            ideal += time(rate).max(memory);
        }
        let (math, memory) = (time(best_rate), memory * shrink);
        best_ideal += math.max(memory);
        math_ns += math;
        memory_ns += memory;
        reachable += (math / gpu.reachable.math)
            .max(memory / gpu.reachable.memory)
            .max(gpu.reachable.kernel_ns);
    }
    let sequence_ns = cost.sequence as f64 * gpu.reachable.kernel_ns;
    let bound = if best_ideal < sequence_ns {
        Bound::Latency
    } else if math_ns > memory_ns {
        Bound::Math
    } else {
        Bound::Memory
    };
    Roofline {
        ideal_ns: ran_rate.map(|_| ideal),
        best_ideal_ns: best_ideal,
        reachable_ns: reachable.max(sequence_ns),
        best_dtype: Some(best),
        bound,
    }
}

/// Whether memory traffic limits work of this family on every GPU of the last ten years.
pub fn is_memory_family(family: Family) -> bool {
    matches!(
        family,
        Family::Norm
            | Family::Softmax
            | Family::Loss
            | Family::Pointwise
            | Family::Dropout
            | Family::Reduce
            | Family::Copy
            | Family::Cast
            | Family::Layout
            | Family::Cat
            | Family::Fill
            | Family::Optimizer
            | Family::Pool
            | Family::Embedding
            | Family::Index
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::select;

    #[test]
    fn steps_that_run_one_after_the_other_take_as_long_as_the_shortest_kernels() {
        let gpu = select::find("a100-sxm4-40gb").unwrap().gpu;
        let cost = |sequence| OpCost {
            family: Family::Rnn,
            class: crate::cost::FlopsClass::Exact,
            roles: vec![crate::cost::RoleCost {
                role: crate::cost::Role::Fwd,
                flops: 2e9 as u64,
                bytes: 1_000_000,
                dims: crate::cost::Dims::None,
            }],
            note: None,
            bytes_known: true,
            at_most: false,
            sequence,
        };
        let line = |sequence| {
            roofline(
                &gpu,
                &cost(sequence),
                DType::Fp16,
                TensorCore::Yes,
                1.0,
                false,
            )
        };
        let (one, many) = (line(1), line(70));
        assert_eq!((one.bound, many.bound), (Bound::Math, Bound::Latency));
        assert_eq!(many.reachable_ns, 70.0 * gpu.reachable.kernel_ns);
        assert_eq!(one.ideal_ns, many.ideal_ns);
    }

    #[test]
    fn adding_up_in_fp16_doubles_the_rate_of_boards_that_halve_it() {
        let gain = |id: &str| select::find(id).unwrap().gpu.half_accumulation_gain();
        for id in [
            "rtx-4090",
            "rtx-3090",
            "rtx-5090",
            "rtx-2080-ti",
            "a10g",
            "l40",
        ] {
            assert_eq!(gain(id), 2.0, "{id}");
        }
        for id in [
            "rtx-6000-ada",
            "l40s",
            "l4",
            "a10",
            "t4",
            "gb10",
            "h20",
            "a100-sxm4-40gb",
            "mi300x",
        ] {
            assert_eq!(gain(id), 1.0, "{id}");
        }
    }

    #[test]
    fn fp32_on_matrix_cores_of_amd_has_its_own_rate() {
        let rate = |id: &str, dtype| {
            let gpu = select::find(id).unwrap().gpu;
            rate(&gpu, dtype, TensorCore::Yes).map(|rate| rate / 1e12)
        };
        assert_eq!(rate("mi300x", DType::Fp32), Some(163.4));
        assert_eq!(rate("mi300x", DType::Tf32), Some(653.7));
        assert_eq!(rate("mi250x", DType::Fp32), Some(47.9));
        assert_eq!(rate("mi355x", DType::Fp32), Some(157.3));
        // On NVIDIA, fp32 operands run on Tensor Cores as TF32.
        assert_eq!(rate("a100-sxm4-40gb", DType::Fp32), Some(156.0));
    }
}
