//! Descriptions of the data that facts need, phrased as how to record it.

use crate::profile::{DataKind, Profile, RangeKind};

pub(super) const SHAPES: &str = "tensor shapes: `emit_nvtx(record_shapes=True)`, PyProf markers, or torch.profiler with `record_shapes=True`";
pub(super) const STRIDES: &str =
    "tensor strides: torch.profiler with `record_shapes=True` of a recent PyTorch";
pub(super) const GPU: &str =
    "the GPU: name it with `--gpu`, or capture with a tool that records it";
/// Replaces [`GPU`] where the GPU is named, and its specification lacks the figure.
pub(super) const GPU_SPEC: &str = "figures of this GPU that no specification has: describe them in a file for `--gpu FILE` (`pyprof-advise gpus`)";
pub(super) const KERNEL_NAME: &str =
    "kernel names that say what they do (those of Triton and custom kernels do not)";
pub(super) const LAUNCH_CONFIG: &str =
    "launch configurations (registers, shared memory) in the export";
pub(super) const GPU_AND_LAUNCH: &str = "the GPU (`--gpu NAME`) and the kernel's launch configuration, which kernels without a launch call may lack";
pub(super) const GPU_AND_SHAPES: &str =
    "the GPU (`--gpu NAME`) and tensor shapes (`record_shapes=True`)";
pub(super) const STEPS: &str =
    "numbered step ranges: `torch.cuda.nvtx.range_push(f\"step {i}\")`, or `prof.step()`";
pub(super) const MORE_STEPS: &str = "at least four numbered step ranges: `torch.cuda.nvtx.range_push(f\"step {i}\")`, or `prof.step()`";
pub(super) const COMPILE_IDS: &str =
    "`torch.compile` of PyTorch 2.2 or later, whose ranges carry the number of the compilation";
pub(super) const MORE_MATH: &str =
    "tensor shapes, and matrix products or convolutions that run 20 times or more";
pub(super) const MESSAGE: &str = "collectives with their message sizes: torch.profiler of PyTorch 2.2 or later, or `record_shapes=True`";
pub(super) const MEMORY_KINDS: &str = "the kind of memory of each copy, which Nsight Systems and torch.profiler record on NVIDIA GPUs";
pub(super) const RANGES_OF_OPS: &str =
    "operators on the host: torch.profiler, or `emit_nvtx` under Nsight Systems";
pub(super) const API: &str = "the CUDA API call that issued it: `nsys profile -t cuda,nvtx`, started before the work is launched";
pub(super) const OS_CALLS: &str =
    "calls of the operating system: `nsys profile --trace=cuda,nvtx,osrt`";
pub(super) const SCHEDULING: &str = "when threads run: `nsys profile --cpuctxsw=process-tree`";
pub(super) const HOST_FUNCTIONS: &str = "functions of the host: torch.profiler with `with_stack=True`, or `nsys profile --sample=process-tree`";
/// Replaces [`HOST_FUNCTIONS`] in traces of torch.profiler.
pub(super) const HOST_STACKS: &str =
    "functions of the host: torch.profiler of PyTorch 1.11 or later with `with_stack=True`";
pub(super) const HOST_ACTIVITY: &str = "what the host did: torch.profiler with `with_stack=True`, or `nsys profile --trace=cuda,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree`";
pub(super) const LAYERS: &str = "layer names: `layer:NAME` ranges, FSDP, or module stacks";

/// Replaces what only PyTorch records where the program shows nothing of it.
pub(super) const PYTORCH: &str =
    "nothing: operators, shapes, layers and steps are recorded of programs of PyTorch only";

/// Data that profilers record in different ways.
pub(super) const KINDS: &[(&str, DataKind)] = &[
    (SHAPES, DataKind::Shapes),
    (LAUNCH_CONFIG, DataKind::LaunchConfig),
    (STEPS, DataKind::Steps),
    (API, DataKind::ApiCalls),
    (LAYERS, DataKind::Layers),
];
/// Used instead of [`SHAPES`] if the profile has shapes and only the cost is unknown.
pub(super) const COSTS: &str =
    "a cost model for the operators listed below (`--costs FILE` adds yours)";

/// Whether a new capture can record what a fact needs.
pub fn is_recordable(needs: &str) -> bool {
    let other = [
        KERNEL_NAME,
        COSTS,
        GPU,
        GPU_SPEC,
        GPU_AND_LAUNCH,
        LAUNCH_CONFIG,
        MORE_MATH,
        "",
        PYTORCH,
        // A program that compiles nothing has none.
        COMPILE_IDS,
    ];
    !other.contains(&needs)
}

/// How to record the data that a fact needs, for the profiler that wrote the file. `gpu_known`: whether
/// the specification of the GPU is known.
pub fn how_to_record<'a>(needs: &'a str, profile: &Profile, gpu_known: bool) -> &'a str {
    let has_operators = || profile.ranges.iter().any(|r| r.kind == RangeKind::CpuOp);
    if needs == SHAPES && profile.recorded.shapes && has_operators() {
        return COSTS;
    }
    let named = || profile.devices.iter().any(|d| d.name.is_some());
    match needs {
        GPU_AND_LAUNCH if gpu_known => {
            return how_to_record(LAUNCH_CONFIG, profile, gpu_known);
        }
        GPU_AND_SHAPES if gpu_known => {
            return how_to_record(SHAPES, profile, gpu_known);
        }
        GPU_AND_SHAPES if profile.recorded.shapes && has_operators() => {
            return how_to_record(GPU, profile, gpu_known);
        }
        HOST_FUNCTIONS if profile.format.has_stacks => return HOST_STACKS,
        GPU | GPU_AND_LAUNCH if gpu_known || named() => return GPU_SPEC,
        _ => {}
    }
    let kind = KINDS.iter().find(|(name, _)| *name == needs);
    kind.and_then(|(_, kind)| profile.format.how_to_record(*kind))
        .unwrap_or(needs)
}

/// As [`how_to_record`], of a program that shows nothing of PyTorch.
pub fn how_to_record_without_pytorch<'a>(
    needs: &'a str,
    profile: &Profile,
    gpu_known: bool,
) -> &'a str {
    match needs {
        SHAPES | STRIDES | STEPS | MORE_STEPS | MORE_MATH | RANGES_OF_OPS | LAYERS => PYTORCH,
        GPU_AND_SHAPES if gpu_known => PYTORCH,
        _ => how_to_record(needs, profile, gpu_known),
    }
}

/// Whether data named by [`how_to_record`] includes the GPU, which `--gpu` gives.
pub fn includes_gpu(needs: &str) -> bool {
    [GPU, GPU_SPEC, GPU_AND_LAUNCH, GPU_AND_SHAPES].contains(&needs)
}
