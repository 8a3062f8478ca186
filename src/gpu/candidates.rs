//! A GPU that stands for several boards that the profile does not tell apart.

use std::collections::BTreeMap;

use super::Gpu;
use super::load::Spec;
use crate::base::{DType, text};

/// Most board names that a sentence lists.
const MAX_NAMES: usize = 4;

/// The lowest rates of the boards, so that no saving is estimated higher than on the board that ran.
/// Properties on which the boards differ are unknown. `None` without boards.
pub fn slowest(boards: &[&Spec]) -> Option<Gpu> {
    let (first, others) = boards.split_first()?;
    if others.is_empty() {
        return Some(first.gpu.clone());
    }
    let mut gpu = first.gpu.clone();
    for other in others.iter().map(|s| &s.gpu) {
        lower(&mut gpu.flops, &other.flops);
        lower(&mut gpu.tensor_flops, &other.tensor_flops);
        gpu.bandwidth = gpu.bandwidth.min(other.bandwidth);
        gpu.reachable = gpu.reachable.slower(&other.reachable);
        agreed(&mut gpu.memory_bytes, other.memory_bytes);
        agreed(&mut gpu.l2_bytes, other.l2_bytes);
        agreed(&mut gpu.shared_per_sm, other.shared_per_sm);
        agreed(&mut gpu.registers_per_sm, other.registers_per_sm);
        agreed(&mut gpu.max_threads_per_sm, other.max_threads_per_sm);
        agreed(&mut gpu.max_blocks_per_sm, other.max_blocks_per_sm);
        agreed(&mut gpu.warp_schedulers, other.warp_schedulers);
        agreed(&mut gpu.pcie_gen, other.pcie_gen);
        agreed(&mut gpu.nvlink, other.nvlink);
        agreed(&mut gpu.compute_capability, other.compute_capability);
    }
    let known = &gpu.tensor_flops;
    gpu.tensor_align
        .retain(|dtype, _| known.contains_key(dtype));
    gpu.id = "derived".into();
    gpu.name = common_name(boards, &gpu);
    let ids: Vec<&str> = boards.iter().map(|s| s.gpu.id.as_str()).collect();
    gpu.sources = vec![format!("the lowest rates of {}", ids.join(", "))];
    Some(gpu)
}

/// `A, B or C`, cut after four names.
pub fn names(boards: &[&Spec]) -> String {
    let names: Vec<&str> = boards.iter().map(|s| s.gpu.name.as_str()).collect();
    match names.split_at_checked(MAX_NAMES) {
        Some((shown, more)) if !more.is_empty() => {
            format!("{} or one of {} more", shown.join(", "), more.len())
        }
        _ => text::choice(&names),
    }
}

/// Whether the boards have the same rates and bandwidth.
pub fn same_peaks(boards: &[&Spec]) -> bool {
    let peaks = |s: &Spec| (s.gpu.flops.clone(), s.gpu.tensor_flops.clone());
    boards.windows(2).all(|pair| match pair {
        [a, b] => peaks(a) == peaks(b) && a.gpu.bandwidth.to_bits() == b.gpu.bandwidth.to_bits(),
        _ => true,
    })
}

/// `MI210 or MI250`; of more than two boards, their silicon: `GH100 with 132 SMs`.
fn common_name(boards: &[&Spec], gpu: &Gpu) -> String {
    if boards.len() <= 2 {
        return names(boards);
    }
    let chip = boards.first().and_then(|s| s.chip.clone());
    let shared = chip.filter(|chip| boards.iter().all(|s| s.chip.as_ref() == Some(chip)));
    let silicon = shared.unwrap_or_else(|| gpu.architecture.clone());
    format!("{silicon} with {} SMs", gpu.sm_count)
}

fn lower(rates: &mut BTreeMap<DType, f64>, other: &BTreeMap<DType, f64>) {
    rates.retain(|dtype, rate| match other.get(dtype) {
        Some(other) => {
            *rate = rate.min(*other);
            true
        }
        None => false,
    });
}

fn agreed<T: PartialEq + Copy>(value: &mut Option<T>, other: Option<T>) {
    if *value != other {
        *value = None;
    }
}
