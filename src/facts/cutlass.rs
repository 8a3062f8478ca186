//! Facts that the template arguments of a CUTLASS kernel tell about its main loop.

use super::fact::{Answer, FactEntry, facts};
use super::kernel::{KernelScope, Kernels};
use crate::base::DType;
use crate::cost::readable;

/// The main loop that keeps two tiles and loads them through registers
/// (cutlass/gemm/threadblock/mma_pipelined.h).
const TWO_STAGES: &str = "threadblock::MmaPipelined<";
/// The main loop that copies several tiles asynchronously (mma_multistage.h).
const SEVERAL_STAGES: &str = "threadblock::MmaMultistage<";
/// The iterators that read tiles from memory, and those that write them to shared memory.
const FROM_MEMORY: &str = "threadblock::PredicatedTileIterator<";
const TO_SHARED: &str = "threadblock::RegularTileIterator<";

/// Whether the main loop keeps two tiles only; `None` for names without a main loop.
fn two_stages(name: &str) -> Option<bool> {
    match (name.contains(TWO_STAGES), name.contains(SEVERAL_STAGES)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

/// The type of the operands in memory, where the main loop converts them on their way to shared memory.
fn converted_from(name: &str) -> Option<DType> {
    let from = element(name, FROM_MEMORY)?;
    let to = element(name, TO_SHARED)?;
    (from != to).then_some(from)
}

/// The type of the elements of an iterator: the argument behind the shape of its tile.
fn element(name: &str, iterator: &str) -> Option<DType> {
    let arguments = name.get(name.find(iterator)? + iterator.len()..)?;
    let shape = arguments.find("MatrixShape<")?;
    let behind = arguments.get(shape..)?.split_once('>')?.1;
    let element = behind.trim_start_matches([',', ' ']).split(',').next()?;
    let element = element.trim();
    match element.rsplit("::").next()? {
        "half_t" | "__half" => Some(DType::Fp16),
        "bfloat16_t" | "__nv_bfloat16" => Some(DType::Bf16),
        "tfloat32_t" => Some(DType::Tf32),
        plain => DType::parse(plain),
    }
}

fn with_name<T>(k: &KernelScope<'_>, tell: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let text = k.site.table.text(k.kernel.name);
    // Demangling takes time, and only names of CUTLASS have these facts.
    (text.contains("cutlass")).then(|| tell(&readable(text)))?
}

pub(super) const ENTRIES: &[FactEntry<Kernels>] = facts! {
    /// A CUTLASS kernel whose main loop keeps two tiles and loads them through registers (`MmaPipelined`),
    /// as GPUs before Ampere need it; silent for names without a main loop
    "kernel.two_stages": BOOL => |k| Answer::or_silent(with_name(k, two_stages)),
    /// Type of the operands in memory, where the main loop of a CUTLASS kernel converts them as it loads
    /// them; silent where it does not
    "kernel.converted_from": STR => |k| {
        let dtype = with_name(k, converted_from);
        Answer::or_silent(dtype.map(DType::name))
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(main_loop: &str, memory: &str, shared: &str) -> String {
        format!(
            "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::{main_loop}<\
             cutlass::gemm::GemmShape<(int)128, (int)128, (int)32>, \
             cutlass::transform::threadblock::PredicatedTileIterator<cutlass::MatrixShape<(int)128, (int)32>, \
             {memory}, cutlass::layout::RowMajor, (int)1>, \
             cutlass::transform::threadblock::RegularTileIterator<cutlass::MatrixShape<(int)128, (int)32>, \
             {shared}, cutlass::layout::RowMajorTensorOpMultiplicandCrosswise<(int)16, (int)32>, (int)0>>>>"
        )
    }

    #[test]
    fn names_tell_the_stages_of_the_main_loop() {
        let stages =
            |main_loop| two_stages(&kernel(main_loop, "cutlass::half_t", "cutlass::half_t"));
        assert_eq!(stages("MmaPipelined"), Some(true));
        assert_eq!(stages("MmaMultistage"), Some(false));
        assert_eq!(stages("MmaSingleStage"), None);
        assert_eq!(
            two_stages("cutlass_80_tensorop_s16816gemm_f16_128x128_32x5_nn_align8"),
            None
        );
    }

    #[test]
    fn names_tell_operands_that_are_converted_on_the_way() {
        let from = |memory, shared| converted_from(&kernel("MmaPipelined", memory, shared));
        assert_eq!(from("float", "cutlass::half_t"), Some(DType::Fp32));
        assert_eq!(
            from("signed char", "cutlass::bfloat16_t"),
            Some(DType::Int8)
        );
        assert_eq!(from("cutlass::half_t", "cutlass::half_t"), None);
        // A type of the program's own.
        assert_eq!(from("mine::number", "cutlass::half_t"), None);
        assert_eq!(converted_from("threadblock::PredicatedTileIterator<"), None);
    }
}
