//! Facts of the whole run.

use std::sync::Arc;

use super::fact::{Answer, FactEntry, facts};
use super::maker::{Maker, maker};
use super::step_shapes;
use super::table::{FactTable, Runs};
use crate::base::DType;
use crate::base::statistics::median;
use crate::correlate::{Direction, Exclusion, Run, Site, WithoutOperator};
use crate::cost::roofline::is_memory_family;
use crate::cost::{Bound, Costed, DecodedName, Family};
use crate::profile::ApiClass;

/// Sums over the run that several facts share.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    pub(super) kernels: u64,
    pub(super) kernel_ns: f64,
    /// Time of GEMM, convolution, attention and RNN kernels.
    pub(super) math_ns: f64,
    pub(super) half_math_ns: f64,
    pub(super) fp32_math_ns: f64,
    pub(super) tf32_math_ns: f64,
    /// Time of matrix products, in total and in TF32. Convolutions are excluded because they have a
    /// separate TF32 switch.
    pub(super) product_ns: f64,
    pub(super) tf32_product_ns: f64,
    pub(super) fp64_ns: f64,
    pub(super) tensor_core_ns: f64,
    pub(super) not_tensor_core_ns: f64,
    /// Matrix products that read their operands for longer than they compute.
    pub(super) weight_bound_ns: f64,
    /// Time of math kernels whose operator has a known cost.
    pub(super) math_cost_known_ns: f64,
    /// Time of math kernels with a known operator but unknown shapes.
    pub(super) unshaped_math_ns: f64,
    pub(super) memory_ns: f64,
    pub(super) triton_ns: f64,
    /// Time of the kernels of TensorRT's engines.
    pub(super) tensorrt_ns: f64,
    pub(super) comm_kernel_ns: f64,
    pub(super) unknown_family_ns: f64,
    pub(super) fused_attention_ns: f64,
    pub(super) small_kernels: u64,
    pub(super) small_kernel_ns: f64,
    pub(super) median_kernel_ns: Option<f64>,
    pub(super) training: bool,
    pub(super) steps: u64,
    pub(super) step_ns: Option<f64>,
    pub(super) work_steps: Option<f64>,
    pub(super) step_shapes: Option<u64>,
    /// The same of work with weights.
    pub(super) step_weight_shapes: Option<u64>,
    pub(super) host_step_ns: Option<f64>,
    pub(super) exposed_comm_per_step_ns: Option<f64>,
    pub(super) graph_launches: u64,
    /// Time of kernels that CUDA graphs replayed.
    pub(super) replayed_ns: f64,
    pub(super) launch_median_ns: Option<f64>,
    /// The names of the operators that update parameters, sorted; at most 1,024.
    pub(super) update_ops: Arc<[Arc<str>]>,
}

/// Kernels below this duration take about as long as their launch (TraceLens and nsys-ai use 10 us).
const SMALL_KERNEL_NS: i64 = 10_000;

impl Sums {
    pub(super) fn of(costed: &Costed) -> Sums {
        let run = &costed.run;
        let mut sums = Sums::default();
        let mut unknown_products = 0.0;
        for ((site, cost), decoded) in run.sites.iter().zip(&costed.sites).zip(&costed.kernels) {
            sums.training |= updates(site);
            for (kernel, name) in site.kernels.iter().zip(decoded) {
                sums.training |= trains(name);
                let ns = kernel.time_ns as f64;
                sums.kernels += u64::from(kernel.count);
                sums.kernel_ns += ns;
                let dtype = name.dtype.or(cost.math_dtype.filter(|_| !name.helper));
                if dtype == Some(DType::Fp64) {
                    sums.fp64_ns += ns;
                }
                if name.triton {
                    sums.triton_ns += ns;
                }
                let by_torch_tensorrt = site.op.as_ref().is_some_and(|op| op.module == "tensorrt");
                if by_torch_tensorrt || maker(&name.base, name.triton) == Some(Maker::TensorRt) {
                    sums.tensorrt_ns += ns;
                }
                if name.family == Family::Attention {
                    sums.fused_attention_ns += ns;
                }
                if name.family == Family::Communication {
                    sums.comm_kernel_ns += ns;
                }
                if name.family == Family::Unknown {
                    sums.unknown_family_ns += ns;
                }
                if is_memory_family(name.family) {
                    sums.memory_ns += ns;
                }
                if !name.family.is_math() || name.helper {
                    continue;
                }
                sums.math_ns += ns;
                if name.family == Family::Gemm {
                    match cost.bound {
                        Some(Bound::Memory | Bound::Latency) => sums.weight_bound_ns += ns,
                        Some(Bound::Math) => {}
                        None => unknown_products += ns,
                    }
                }
                if cost.family == Family::Gemm {
                    sums.product_ns += ns;
                    if dtype == Some(DType::Tf32) {
                        sums.tf32_product_ns += ns;
                    }
                }
                match dtype {
                    Some(DType::Fp16 | DType::Bf16 | DType::Fp8 | DType::Int8 | DType::Fp4) => {
                        sums.half_math_ns += ns;
                    }
                    Some(DType::Fp32) => sums.fp32_math_ns += ns,
                    Some(DType::Tf32) => {
                        sums.fp32_math_ns += ns;
                        sums.tf32_math_ns += ns;
                    }
                    _ => {}
                }
                match name.tensor_core {
                    crate::cost::TensorCore::Yes => sums.tensor_core_ns += ns,
                    crate::cost::TensorCore::No => sums.not_tensor_core_ns += ns,
                    crate::cost::TensorCore::Unknown => {}
                }
                if cost.flops.is_some() {
                    sums.math_cost_known_ns += ns;
                }
                if site.op.is_some() && !has_shapes(run, site) {
                    sums.unshaped_math_ns += ns;
                }
            }
        }
        // Inference multiplies few rows with all weights more often than not.
        if !sums.training {
            sums.weight_bound_ns += unknown_products;
        }
        sums.update_ops = super::update_ops::of(costed);
        sums.durations(costed);
        sums.host(costed);
        sums
    }

    fn durations(&mut self, costed: &Costed) {
        let run = &costed.run;
        let mut durations = Vec::new();
        let kernels = run.profile.kernels.iter().zip(&run.links);
        for (kernel, link) in kernels.filter(|(_, link)| link.site.is_some()) {
            let ns = kernel.span.ns();
            durations.push(ns);
            if kernel.captured.is_some() || link.missing == Some(WithoutOperator::GraphReplay) {
                self.replayed_ns += ns as f64;
            }
            if ns < SMALL_KERNEL_NS {
                self.small_kernels += 1;
                self.small_kernel_ns += ns as f64;
            }
        }
        self.median_kernel_ns = median(&mut durations).map(|ns| ns as f64);
        let steps = run.step_time();
        self.steps = steps.map_or(0, |s| s.steps);
        self.step_ns = steps.map(|s| s.ns);
        self.work_steps = steps.and_then(|s| s.work_steps);
        self.host_step_ns = steps.map(|s| s.host_ns);
        self.exposed_comm_per_step_ns = super::step_comm::exposed_comm_per_step(run);
        if steps.is_some() {
            self.step_shapes = step_shapes::of(costed);
            self.step_weight_shapes = step_shapes::with_weights(costed);
        }
    }

    fn host(&mut self, costed: &Costed) {
        let mut launches = Vec::new();
        for call in &costed.run.profile.calls {
            match call.class {
                ApiClass::Launch => launches.push(call.span.ns()),
                ApiClass::GraphLaunch => self.graph_launches += 1,
                _ => {}
            }
        }
        self.launch_median_ns = median(&mut launches).map(|ns| ns as f64);
    }
}

/// Whether the profile records the shape of any operand of a site.
fn has_shapes(run: &Run, site: &Site) -> bool {
    run.arguments_of(site)
        .is_some_and(|args| args.tensors().any(|t| !t.shape.is_empty()))
}

/// Whether a site is backward work or an update of parameters. Operators on lists of tensors are also
/// used for other ends, such as copying the inputs of a CUDA graph.
fn updates(site: &Site) -> bool {
    let on_lists = || {
        let op = site.op.as_ref();
        op.is_some_and(|op| super::enclosing_ops::plain_name(&op.name).starts_with("foreach"))
    };
    match site.direction {
        Direction::Bprop => true,
        Direction::Update => !on_lists(),
        Direction::Fprop | Direction::Unknown => false,
    }
}

/// Whether a kernel runs only while training, by its name: optimizers, and backward passes. Gradients of
/// convolutions and of indexing are also used forwards, by transposed convolutions and `index_put`.
fn trains(name: &DecodedName) -> bool {
    let backward = || {
        let base = name.base.to_ascii_lowercase();
        base.contains("backward") || base.contains("_bwd")
    };
    let optimizes = || {
        let label = name.label.to_ascii_lowercase();
        OPTIMIZERS.iter().any(|word| label.contains(word))
    };
    match name.family {
        Family::Optimizer => optimizes(),
        Family::Attention
        | Family::Norm
        | Family::Softmax
        | Family::Loss
        | Family::Pool
        | Family::Embedding
        | Family::Interpolate => backward(),
        _ => false,
    }
}

/// Parts of the names of kernels that update parameters with one optimizer.
const OPTIMIZERS: &[&str] = &[
    "adam", "sgd", "lamb", "adagrad", "rmsprop", "adadelta", "lars",
];

impl FactTable<'_> {
    /// The sum of a time of the devices.
    pub(super) fn of_devices(&self, field: fn(&crate::correlate::DeviceTimeline) -> i64) -> f64 {
        let devices = self.costed.run.timeline.devices.iter();
        devices.map(|device| field(device) as f64).sum()
    }

    /// The share of kernel time without an operator for one of these reasons.
    pub(super) fn missing_share(&self, reasons: &[WithoutOperator]) -> Answer {
        let sites = self.costed.run.sites.iter();
        let missing = sites.filter(|s| s.missing.is_some_and(|m| reasons.contains(&m)));
        let ns = missing.map(|s| s.time_ns).fold(0, i64::saturating_add);
        Answer::share(ns as f64, self.sums.kernel_ns)
    }
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// The input: `nsys_sqlite`, `nvprof_sqlite`, `kineto_json`
    "run.format": STR => |t| t.costed.run.profile.format.id,
    /// The peaks of the GPU are known: it is named by the file or by `--gpu`, or follows from attributes or
    /// kernels
    "run.gpu_known": BOOL => |t| t.costed.gpu.is_some(),
    /// Name of the GPU in the file
    "run.gpu_name": STR needs GPU => |t| {
        let devices = &t.costed.run.profile.devices;
        let mut names = devices.iter().filter_map(|d| d.name.as_deref());
        names.find(|n| !n.trim().is_empty())
    },
    /// Kernel executions inside the window
    "run.kernels": INT => |t| t.sums.kernels,
    /// Kernel time inside the window, summed
    "run.kernel_ns": DOUBLE => |t| t.sums.kernel_ns,
    /// Median duration of a kernel execution
    "run.median_kernel_ns": DOUBLE => |t| Answer::or_silent(t.sums.median_kernel_ns),
    /// Kernel executions shorter than 10 us
    "run.small_kernels": INT => |t| t.sums.small_kernels,
    /// GPU time of kernels shorter than 10 us
    "run.small_kernel_ns": DOUBLE => |t| t.sums.small_kernel_ns,
    /// Union of kernels, copies, memsets and graphs, summed over devices
    "run.busy_ns": DOUBLE => |t| t.totals.gpu_busy_ns,
    /// The analyzed window, summed over devices
    "run.window_ns": DOUBLE => |t| t.totals.window_ns,
    /// Share of the window in which the GPU did anything
    "run.busy_share": DOUBLE => |t| Answer::share(t.totals.gpu_busy_ns, t.totals.window_ns),
    /// Share of the window in which a kernel or graph ran
    "run.kernel_busy_share": DOUBLE =>
        |t| Answer::share(t.of_devices(|d| d.kernel_ns), t.totals.window_ns),
    /// Window minus busy, summed over devices
    "run.idle_ns": DOUBLE => |t| t.totals.idle_ns,
    /// Share of the window in which the GPU did nothing
    "run.idle_share": DOUBLE => |t| Answer::share(t.totals.idle_ns, t.totals.window_ns),
    /// Share of the window in which the GPU did nothing and that recording overhead (markers, stacks)
    /// cannot explain
    "run.reliable_idle_share": DOUBLE =>
        |t| Answer::share(t.totals.reliable_idle_ns, t.totals.window_ns),
    /// Idle time before late launches as a share of the window
    "run.late_launch_share": DOUBLE =>
        |t| Answer::share(t.totals.late_launch_ns, t.totals.window_ns),
    /// Markers, stacks or blocking launches may explain more than a fifth of the idle time
    "run.idle_unreliable": BOOL => |t| t.costed.run.unreliable_idle.is_some(),
    /// The file holds a sample of what was recorded: most events were taken out
    "run.thinned": BOOL => |t| t.costed.run.profile.recorded.thinned,
    /// Devices with work inside the window
    "run.devices": INT => |t| t.totals.devices,
    /// GPUs the file lists, used or not; 0 when it lists none
    "run.listed_gpus": INT => |t| t.costed.run.profile.listed_gpus,
    /// Processes that launched GPU work
    "run.processes": INT => |t| t.processes as u64,
    /// Numbered steps inside the window; 0 when the file marks none
    "run.steps": INT => |t| t.sums.steps,
    /// Mean duration of a numbered step; on the GPU where the host runs ahead of it
    "run.step_ns": DOUBLE needs STEPS => |t| t.sums.step_ns,
    /// Median length of the steps right before recording, which makes the host slower; silent where
    /// `pyprof-advise run` did not measure it
    "run.unrecorded_step_ns": DOUBLE =>
        |t| Answer::or_silent(t.costed.run.profile.unrecorded.step_ns.map(|ns| ns as f64)),
    /// `run.step_ns` over `run.unrecorded_step_ns`, or over what the GPU works in a step if that is longer: the host
    /// may have been ahead of it
    "run.recording_slowdown": DOUBLE => |t| {
        let unrecorded = t.costed.run.profile.unrecorded.step_ns;
        let busy = super::work_steps::times_gpus(t).map_or(0.0, |steps| t.totals.gpu_busy_ns / steps);
        let both = t.sums.step_ns.zip(unrecorded);
        Answer::or_silent(both.map(|(recorded, ns)| recorded / busy.max(ns as f64)))
    },
    /// Share of the GPU's memory that PyTorch's allocator had reserved at most before recording; silent where
    /// `pyprof-advise run` did not measure it
    "run.unrecorded_memory_share": DOUBLE => |t| {
        let reserved = t.costed.run.profile.unrecorded.memory_reserved_bytes;
        let devices = &t.costed.run.profile.devices;
        let memory = devices.iter().filter_map(|device| device.memory_bytes).min();
        let share = |(reserved, memory)| reserved as f64 / memory as f64;
        Answer::or_silent(reserved.zip(memory).map(share))
    },
    /// Number of steps that the work of the window amounts to, times the number of GPUs: what figures per
    /// step and GPU are divided by
    "run.steps_times_gpus": DOUBLE needs STEPS => |t| super::work_steps::times_gpus(t),
    /// Different lists of matrix work among the steps, shapes included: 1 when every step does the same
    "run.step_shapes": INT needs STEPS => |t| t.sums.step_shapes,
    /// The same of products with weights, convolutions and RNN layers alone, however often a step runs each: 1 where
    /// a step only has more cached keys than the one before
    "run.step_weight_shapes": INT needs SHAPES => |t| t.sums.step_weight_shapes,
    /// Union of memory copies, summed over devices
    "run.copy_ns": DOUBLE => |t| t.of_devices(|d| d.copy_ns),
    /// Copying while no kernel ran, summed over devices
    "run.exposed_copy_ns": DOUBLE => |t| t.totals.copy_ns,
    /// Share of the window spent copying while no kernel ran
    "run.exposed_copy_share": DOUBLE => |t| Answer::share(t.totals.copy_ns, t.totals.window_ns),
    /// Matrix products whose time goes into reading their operands, which a split batch reads twice; in
    /// runs without a backward pass also those of unknown shapes
    "run.weight_bound_ns": DOUBLE => |t| t.sums.weight_bound_ns,
    /// Union of communication kernels, summed over devices
    "run.comm_ns": DOUBLE => |t| t.of_devices(|d| d.comm_ns),
    /// Communication while no other kernel ran, summed over devices
    "run.exposed_comm_ns": DOUBLE => |t| t.of_devices(|d| d.exposed_comm_ns),
    /// Communication of kernels launched in the analyzed steps while no other kernel ran, per device and
    /// step
    "run.exposed_comm_per_step_ns": DOUBLE needs STEPS => |t| t.sums.exposed_comm_per_step_ns,
    /// Share of kernel time in communication kernels
    "run.comm_kernel_share": DOUBLE => |t| Answer::share(t.sums.comm_kernel_ns, t.sums.kernel_ns),
    /// Share of the time of communication kernels in sends and receives between two ranks, as pipelines
    /// have them; silent without collectives
    "run.send_recv_share": DOUBLE => |t| Answer::or_silent(t.collectives.send_recv_share),
    /// Share of the time of communication kernels on the stream that computes most, where nothing of it can
    /// overlap with them; silent without collectives
    "run.comm_same_stream_share": DOUBLE => |t| Answer::or_silent(t.collectives.same_stream_share),
    /// Share of the window spent communicating while no other kernel ran
    "run.exposed_comm_share": DOUBLE =>
        |t| Answer::share(t.of_devices(|d| d.exposed_comm_ns), t.totals.window_ns),
    /// Share of kernel time without a launch row
    "run.no_launch_share": DOUBLE => |t| t.missing_share(&[WithoutOperator::NoLaunch]),
    /// Share of kernel time whose launch is known but whose operator is not
    "run.unknown_op_share": DOUBLE =>
        |t| t.missing_share(&[WithoutOperator::NoRange, WithoutOperator::NoOperator]),
    /// The file holds any range, marker or annotation
    "run.has_ranges": BOOL => |t| !t.costed.run.profile.ranges.is_empty(),
    /// Share of kernel time in GEMM, convolution, attention and RNN kernels
    "run.math_share": DOUBLE => |t| Answer::share(t.sums.math_ns, t.sums.kernel_ns),
    /// Share of math time (see `run.math_share`) whose operator has shapes and a cost
    "run.math_cost_known_share": DOUBLE =>
        |t| Answer::share(t.sums.math_cost_known_ns, t.sums.math_ns),
    /// Share of math time (see `run.math_share`) whose operator is known although none of its shapes is
    "run.unshaped_math_share": DOUBLE =>
        |t| Answer::share(t.sums.unshaped_math_ns, t.sums.math_ns),
    /// Some operators have shapes
    "run.shapes_recorded": BOOL => |t| t.costed.run.profile.recorded.shapes,
    /// Share of math time in 16-bit or smaller types
    "run.half_math_share": DOUBLE => |t| Answer::share(t.sums.half_math_ns, t.sums.math_ns),
    /// Share of math time in fp32 or TF32
    "run.fp32_math_share": DOUBLE => |t| Answer::share(t.sums.fp32_math_ns, t.sums.math_ns),
    /// Share of math time in TF32: above 0 means that something may use it
    "run.tf32_math_share": DOUBLE => |t| Answer::share(t.sums.tf32_math_ns, t.sums.math_ns),
    /// Share of the time of matrix products in TF32: above 0 means that the program allows it for them
    "run.tf32_gemm_share": DOUBLE => |t| Answer::share(t.sums.tf32_product_ns, t.sums.product_ns),
    /// Share of kernel time in fp64
    "run.fp64_share": DOUBLE => |t| Answer::share(t.sums.fp64_ns, t.sums.kernel_ns),
    /// Share of math time on Tensor Cores, of the time whose names decide
    "run.tensor_core_share": DOUBLE needs KERNEL_NAME => |t| {
        Answer::share(
            t.sums.tensor_core_ns,
            t.sums.tensor_core_ns + t.sums.not_tensor_core_ns,
        )
    },
    /// Share of kernel time in families limited by memory traffic
    "run.memory_bound_share": DOUBLE => |t| Answer::share(t.sums.memory_ns, t.sums.kernel_ns),
    /// Share of kernel time in Triton kernels: above 0 means torch.compile or custom Triton
    "run.triton_share": DOUBLE => |t| Answer::share(t.sums.triton_ns, t.sums.kernel_ns),
    /// Share of kernel time in engines of TensorRT, by the names of kernels and by the operators of Torch-TensorRT
    "run.tensorrt_share": DOUBLE => |t| Answer::share(t.sums.tensorrt_ns, t.sums.kernel_ns),
    /// Share of kernel time in fused attention kernels
    "run.fused_attention_share": DOUBLE =>
        |t| Answer::share(t.sums.fused_attention_ns, t.sums.kernel_ns),
    /// Share of kernel time in kernels whose name is not recognized
    "run.unknown_family_share": DOUBLE =>
        |t| Answer::share(t.sums.unknown_family_ns, t.sums.kernel_ns),
    /// Share of kernel time with a layer name better than the operator
    "run.layer_share": DOUBLE => |t| {
        let named = t.costed.run.sites.iter().filter(|s| s.layer.is_some());
        let ns = named.map(|s| s.time_ns).fold(0, i64::saturating_add);
        Answer::share(ns as f64, t.sums.kernel_ns)
    },
    /// GPU time of the backward passes without collectives, which may run beside them
    "run.backward_ns": DOUBLE => |t| {
        let sites = t.costed.run.sites.iter().zip(&t.costed.sites);
        let work = sites.filter(|(site, cost)| {
            site.direction == Direction::Bprop && cost.family != Family::Communication
        });
        work.map(|(site, _)| site.time_ns as f64).sum::<f64>()
    },
    /// Backward passes or optimizer steps were seen, by operators, ranges or kernels; silent where none was, and
    /// modules are wrapped for activation checkpointing
    "run.training": BOOL needs RANGES_OF_OPS => |t| {
        let seen = t.sums.training || t.framework.optimizer_steps > 0;
        // A part of the forward pass of a training step has no backward pass in it.
        let may_train = t.framework.checkpointed;
        let known = seen || !may_train && t.costed.run.links.iter().any(|link| link.op.is_some());
        known.then_some(seen)
    },
    /// Operators of the update: optimizer, clipping, scaling; without namespace and underscores. Where
    /// optimizers have ranges, `foreach` operators outside do not count
    "run.update_ops": STRINGS => |t| Arc::clone(&t.sums.update_ops),
    /// Median duration of a kernel launch call on the host
    "run.launch_median_ns": DOUBLE needs API => |t| t.sums.launch_median_ns,
    /// From the first event to the first kernel: outside the window
    "run.setup_ns": DOUBLE => |t| t.costed.run.window.setup.ns as f64,
    /// Copied before the first kernel: outside the window
    "run.setup_copied_bytes": DOUBLE => |t| t.costed.run.window.setup.copied_bytes as f64,
    /// Copy time before the first kernel: outside the window
    "run.setup_copied_ns": DOUBLE => |t| t.costed.run.window.setup.copied_ns as f64,
    /// Idle time inside the window while the host loaded code: first launches of a kernel, first calls of a
    /// library
    "run.module_load_idle_ns": DOUBLE => |t| t.costed.run.window.setup.loading_ns as f64,
    /// Share of the kernel time of the capture, without declared warm-up, in which a library tried
    /// algorithms
    "run.algorithm_search_share": DOUBLE => |t| {
        let search_ns = search_ns(t.costed);
        Answer::share(search_ns, search_ns + t.totals.kernel_ns)
    },
    /// Longest first launch (lazy loading) inside the capture; 0 when none stands out
    "run.first_launch_ns": DOUBLE => |t| t.costed.run.window.setup.first_launch_ns as f64,
};

/// Kernel time in which libraries tried algorithms, in ns: what was excluded for it.
fn search_ns(costed: &Costed) -> f64 {
    let excluded = costed.run.window.setup.excluded.iter();
    let searches = excluded.filter(|work| work.why == Exclusion::AlgorithmSearch);
    searches.map(|work| work.kernel_ns as f64).sum()
}
