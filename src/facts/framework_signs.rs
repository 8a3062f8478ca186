//! Evidence in range names about the structure of the program: compiled code, optimizers, wrappers for
//! several GPUs.
//!
//! Every name here is one that PyTorch gives to a range; names chosen by users are ignored.

use std::collections::BTreeSet;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::backward_passes;
use super::enclosing_ops::EnclosingOps;
use super::fact::{Answer, FactEntry, facts};
use super::gradient_sums::GradientSums;
use super::message::message_bytes;
use super::range_paths::{RangePaths, by_string};
use super::table::{FactTable, Runs};
use crate::correlate::{Direction, Run, Site, SiteId};
use crate::cost::{Costed, DecodedName, Family, SiteCost};
use crate::profile::{CallId, ProcessId, RangeKind, Span, StrId, ThreadId};

/// The evidence in a range's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sign(u16);

impl Sign {
    const NONE: Sign = Sign(0);
    /// DDP searching the graph for parameters that have no gradient.
    const UNUSED_SEARCH: Sign = Sign(1);
    /// Code compiled by `torch.compile`.
    const COMPILED: Sign = Sign(1 << 1);
    /// DDP copying a reduced bucket back into the gradients.
    const BUCKET_COPY: Sign = Sign(1 << 2);
    const DDP_FORWARD: Sign = Sign(1 << 3);
    const DATA_PARALLEL: Sign = Sign(1 << 4);
    const GLOO: Sign = Sign(1 << 5);
    const FSDP: Sign = Sign(1 << 6);
    const OPTIMIZER: Sign = Sign(1 << 7);
    /// The backward pass of embedding tables, which also updates them.
    const FUSED_UPDATE: Sign = Sign(1 << 8);
    /// Checking whether compiled code is valid for a call.
    const GUARDS: Sign = Sign(1 << 9);
    /// A module whose forward pass is computed again in the backward pass.
    const CHECKPOINTED: Sign = Sign(1 << 10);

    const fn and(self, other: Sign) -> Sign {
        Sign(self.0 | other.0)
    }

    const fn has(self, other: Sign) -> bool {
        self.0 & other.0 != 0
    }

    fn of(text: &str) -> Sign {
        let signs = NAMES.iter().filter(|(how, name, _)| match how {
            Is => text == *name,
            Begins => text.starts_with(name),
            Contains => text.contains(name),
            ContainsOptimizer => (text.split_once(name))
                .is_some_and(|(_, rest)| !rest.starts_with("none_") && !rest.starts_with("Dense_")),
        });
        signs.fold(Sign::NONE, |all, (.., sign)| all.and(*sign))
    }
}

#[derive(Debug, Clone, Copy)]
enum Match {
    Is,
    Begins,
    Contains,
    /// Contains it, and behind it the name of an optimizer of FBGEMM.
    ContainsOptimizer,
}
use Match::{Begins, Contains, ContainsOptimizer, Is};

/// The names, each with its location in the PyTorch sources.
const NAMES: &[(Match, &str, Sign)] = &[
    // torch/csrc/distributed/c10d/reducer.cpp: Reducer::search_unused_parameters,
    // Reducer::copy_bucket_to_grad, and its `_batched` form
    (Is, UNUSED_SEARCH, Sign::UNUSED_SEARCH),
    (Begins, BUCKET_COPY, Sign::BUCKET_COPY),
    // torch/_dynamo/eval_frame.py, torch/csrc/dynamo/eval_frame.c
    (Begins, REGION, Sign::COMPILED),
    // torch/csrc/dynamo/eval_frame_cpp.cpp
    (Is, "TorchDynamo Cache Lookup", Sign::GUARDS),
    // torch/_functorch/_aot_autograd/runtime_wrappers.py; its backward is `CompiledFunctionBackward`
    (Contains, "CompiledFunction", Sign::COMPILED),
    // torch/nn/parallel/distributed.py
    (Is, "DistributedDataParallel.forward", Sign::DDP_FORWARD),
    // torch/nn/parallel/data_parallel.py
    (Is, "DataParallel.forward", Sign::DATA_PARALLEL),
    // torch/csrc/distributed/c10d/ProcessGroupGloo.cpp
    (Begins, "gloo:", Sign::GLOO),
    // torch/distributed/fsdp: FSDP::pre_forward, FSDP::all_gather, ...
    (Begins, "FSDP::", Sign::FSDP),
    (Begins, "FullyShardedDataParallel.", Sign::FSDP),
    // torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py
    (Contains, "_checkpoint_wrapped_module", Sign::CHECKPOINTED),
    // torch/optim/optimizer.py: profile_hook_step
    (Begins, OPTIMIZER_STEP, Sign::OPTIMIZER),
    // FBGEMM, fbgemm_gpu/codegen/training/backward: `SplitLookupFunction_rowwise_adagrad_Op`, and without an
    // optimizer `SplitLookupFunction_none_Op` and `SplitLookupFunction_Dense_Op`
    (ContainsOptimizer, "LookupFunction_", Sign::FUSED_UPDATE),
];
const UNUSED_SEARCH: &str = "torch.distributed.ddp.reducer::search_unused_parameters";
const BUCKET_COPY: &str = "torch.distributed.ddp.reducer::copy_bucket_to_grad";
const REGION: &str = "Torch-Compiled Region";
/// Begins the range of an optimizer's step.
pub(super) const OPTIMIZER_STEP: &str = "Optimizer.step#";

/// Collectives that reduce gradients.
const REDUCTIONS: &[&str] = &["all_reduce", "reduce_scatter"];

/// The evidence in a run, with counts.
#[derive(Debug, Clone, Default)]
pub(super) struct FrameworkSigns {
    /// PyTorch's own ranges were recorded, so that wrappers which are not among them were not used.
    pub(super) recorded: bool,
    data_parallel: bool,
    ddp: bool,
    fsdp: bool,
    /// Number of DDP's searches for unused parameters, and host time in them.
    unused_searches: u64,
    unused_search_ns: f64,
    gloo_calls: u64,
    guard_checks: u64,
    guard_ns: f64,
    compiled: bool,
    /// Number of functions that `torch.compile` compiled and the capture ran; `None` if regions have no
    /// id.
    compiled_frames: Option<u64>,
    /// Highest compilation number of these functions, 0 for the first compilation.
    recompilations: Option<u64>,
    compiled_ns: f64,
    /// Time of forward and backward work without collectives, and the part of it in compiled code.
    model_ns: f64,
    compiled_model_ns: f64,
    bucket_copy_ns: f64,
    fused_update: bool,
    /// Modules have wrappers for activation checkpointing, which only training needs.
    pub(super) checkpointed: bool,
    /// Class names of the optimizers, sorted.
    optimizers: Arc<[Arc<str>]>,
    /// Number of optimizer steps.
    pub(super) optimizer_steps: u64,
    /// Number of DDP forward passes followed by a gradient reduction before the next one.
    synced_forwards: u64,
    backward_passes: u64,
}

/// The evidence in each string of a profile.
#[derive(Debug)]
pub(super) struct Signs(Vec<Sign>);

impl Signs {
    pub(super) fn of(run: &Run) -> Signs {
        Signs(by_string(run, Sign::of))
    }

    fn get(&self, name: StrId) -> Sign {
        self.0.get(name.idx()).copied().unwrap_or(Sign::NONE)
    }

    fn say_nothing(&self) -> bool {
        self.0.iter().all(|sign| *sign == Sign::NONE)
    }
}

/// Whether a range's name contains evidence.
pub(super) fn is_sign(name: &str) -> bool {
    Sign::of(name) != Sign::NONE
}

/// Class names in ranges such as `Optimizer.step#AdamW.step`.
fn optimizers(run: &Run, signs: &Signs) -> Arc<[Arc<str>]> {
    let strings = run.profile.strings.iter();
    let names: BTreeSet<&str> = strings
        .filter(|(id, _)| signs.get(*id).has(Sign::OPTIMIZER))
        .filter_map(|(_, text)| optimizer(text))
        .take(MOST_OPTIMIZERS)
        .collect();
    names.into_iter().map(Arc::from).collect()
}

fn optimizer(range: &str) -> Option<&str> {
    let class = range.strip_prefix(OPTIMIZER_STEP)?.strip_suffix(".step")?;
    Some(class).filter(|class| !class.is_empty())
}

/// More optimizers than any program has; a limit for hostile files.
const MOST_OPTIMIZERS: usize = 64;

impl FrameworkSigns {
    /// Collects all values except those added by [`with_paths`](Self::with_paths).
    pub(super) fn of(costed: &Costed, signs: &Signs) -> FrameworkSigns {
        let mut signs_found = FrameworkSigns {
            recorded: records_framework(&costed.run),
            model_ns: (costed.run.sites.iter().zip(&costed.sites))
                .filter(|(site, cost)| is_model_work(site, cost))
                .map(|(site, _)| site.time_ns as f64)
                .sum(),
            backward_passes: backward_passes::count(&costed.run),
            ..FrameworkSigns::default()
        };
        if !signs.say_nothing() {
            signs_found.count_ranges(costed, signs);
            signs_found.count_regions(&costed.run, signs);
            signs_found.optimizers = optimizers(&costed.run, signs);
            signs_found.bucket_copy_ns = copied_in(&costed.run, signs);
        }
        signs_found
    }

    /// How the program keeps the gradients of its parameters.
    pub(super) fn gradient_sums(&self, run: &Run, ops: &EnclosingOps) -> GradientSums {
        GradientSums::of(run, ops, self.backward_passes, self.optimizer_steps)
    }

    fn count_ranges(&mut self, costed: &Costed, signs: &Signs) {
        let run = &costed.run;
        let mut all = Sign::NONE;
        let mut optimizers: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
        // Starts of DDP's forward passes, and whether a gradient reduction followed.
        let mut forwards: FxHashMap<ProcessId, Vec<(i64, bool)>> = FxHashMap::default();
        for range in &run.profile.ranges {
            let sign = signs.get(range.text);
            all = all.and(sign);
            self.gloo_calls += u64::from(sign.has(Sign::GLOO));
            if sign.has(Sign::UNUSED_SEARCH) {
                self.unused_searches += 1;
                self.unused_search_ns += range.span.ns() as f64;
            }
            if sign.has(Sign::GUARDS) {
                self.guard_checks += 1;
                self.guard_ns += range.span.ns() as f64;
            }
            if sign.has(Sign::OPTIMIZER) {
                optimizers.entry(range.thread).or_default().push(range.span);
            }
            if sign.has(Sign::DDP_FORWARD)
                && let Some(thread) = run.profile.thread(range.thread)
            {
                let list = forwards.entry(thread.process).or_default();
                list.push((range.span.start, false));
            }
        }
        self.data_parallel = all.has(Sign::DATA_PARALLEL);
        self.fsdp = all.has(Sign::FSDP);
        self.fused_update = all.has(Sign::FUSED_UPDATE);
        self.checkpointed = all.has(Sign::CHECKPOINTED);
        self.ddp = !forwards.is_empty();
        self.optimizer_steps = optimizers.into_values().map(outermost).sum();
        mark_synced(costed, &mut forwards);
        let forwards = forwards.values().flatten();
        self.synced_forwards = forwards.filter(|(_, synced)| *synced).count() as u64;
    }

    fn count_regions(&mut self, run: &Run, signs: &Signs) {
        let mut frames = BTreeSet::new();
        for (id, text) in run.profile.strings.iter() {
            if !signs.get(id).has(Sign::COMPILED) {
                continue;
            }
            self.compiled = true;
            if let Some((frame, compilation)) = region(text) {
                frames.insert(frame);
                self.recompilations = self.recompilations.max(Some(compilation));
            }
        }
        self.compiled_frames = Some(frames.len() as u64).filter(|&n| n > 0);
    }

    /// Adds the kernel time launched inside ranges with evidence; `paths` contains the names accepted
    /// by [`is_sign`].
    pub(super) fn with_paths(
        mut self,
        costed: &Costed,
        signs: &Signs,
        paths: &RangePaths,
    ) -> FrameworkSigns {
        let mut inherited: Vec<Sign> = Vec::with_capacity(paths.nodes().len());
        for node in paths.nodes() {
            let outer = node.around.and_then(|around| inherited.get(around.idx()));
            let outer = outer.copied().unwrap_or(Sign::NONE);
            inherited.push(signs.get(node.name).and(outer));
        }
        for time in paths.times() {
            let Some(found) = inherited.get(time.node.idx()) else {
                continue;
            };
            if found.has(Sign::COMPILED) {
                self.compiled_ns += time.ns as f64;
                let site = costed.run.site(time.site);
                let site = site.zip(costed.cost_of(time.site));
                if site.is_some_and(|(site, cost)| is_model_work(site, cost)) {
                    self.compiled_model_ns += time.ns as f64;
                }
            }
            if found.has(Sign::BUCKET_COPY) {
                self.bucket_copy_ns += time.ns as f64;
            }
        }
        self
    }
}

/// Whether the profile holds ranges that PyTorch opens itself: operators, which it marks wherever it
/// marks its wrappers.
pub(super) fn records_framework(run: &Run) -> bool {
    let ranges = run.profile.ranges.par_iter();
    ranges.any(|r| r.kind == RangeKind::CpuOp || r.seq.is_some() || r.op_id.is_some())
}

/// Whether a site is forward or backward work of a model.
fn is_model_work(site: &Site, cost: &SiteCost) -> bool {
    site.direction != Direction::Update && cost.family != Family::Communication
}

/// Number of ranges of one thread that no other one of them encloses: an optimizer that wraps another
/// records both steps.
fn outermost(mut spans: Vec<Span>) -> u64 {
    spans.sort_unstable_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut until = i64::MIN;
    let outer = spans.into_iter().filter(|span| {
        let outer = span.end > until;
        until = until.max(span.end);
        outer
    });
    outer.count() as u64
}

/// Copy time launched while DDP copied a bucket back. Ranges of that name do not nest within a thread.
fn copied_in(run: &Run, signs: &Signs) -> f64 {
    let named = |name: StrId| signs.get(name).has(Sign::BUCKET_COPY);
    if !signs.0.iter().any(|sign| sign.has(Sign::BUCKET_COPY)) {
        return 0.0;
    }
    let mut ranges: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
    for range in run.profile.ranges.iter().filter(|r| named(r.text)) {
        ranges.entry(range.thread).or_default().push(range.span);
    }
    let inside = |call: &Option<CallId>| {
        let call = run.profile.call((*call)?)?;
        let spans = ranges.get(&call.thread)?;
        Some(Span::one_contains(spans, call.span.start))
    };
    let window = run.window.span;
    let copies = run.profile.copies.iter().zip(&run.copy_calls);
    copies
        .filter(|(copy, _)| window.is_some_and(|w| w.contains(copy.span.start)))
        .filter(|(_, call)| inside(call) == Some(true))
        .map(|(copy, _)| copy.span.ns() as f64)
        .sum()
}

/// Marks the forward passes that are followed by a gradient reduction before the next one begins.
fn mark_synced(costed: &Costed, forwards: &mut FxHashMap<ProcessId, Vec<(i64, bool)>>) {
    if forwards.is_empty() {
        return;
    }
    let run = &costed.run;
    let reductions = Reductions::of(costed);
    for list in forwards.values_mut() {
        list.sort_unstable();
    }
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if !reductions.of_gradients(kernel.name, link.site) {
            continue;
        }
        let launched = link
            .launch
            .and_then(|id| run.profile.call(id))
            .map(|call| call.span.start);
        let Some((launched, list)) = launched.zip(forwards.get_mut(&kernel.process)) else {
            continue;
        };
        let after = list.partition_point(|(start, _)| *start <= launched);
        if let Some((_, synced)) = after.checked_sub(1).and_then(|at| list.get_mut(at)) {
            *synced = true;
        }
    }
}

/// The kernels that reduce gradients, told from those that reduce statistics, losses and norms by their
/// messages.
struct Reductions {
    /// Per site: whether its reductions carry gradients; `None` without reductions.
    sites: Vec<Option<bool>>,
    /// Names of kernels outside the analyzed sites that can only be reductions of gradients.
    names: FxHashSet<StrId>,
}

/// Message from which a reduction carries gradients: DDP's first bucket has 1 MiB.
const GRADIENT_BYTES: u64 = 1_000_000;

impl Reductions {
    fn of(costed: &Costed) -> Reductions {
        let run = &costed.run;
        let sites = run.sites.iter().zip(&costed.sites).zip(&costed.kernels);
        let messages: Vec<Option<Option<u64>>> = sites
            .clone()
            .map(|((_, cost), decoded)| {
                let reduces = |name: &Arc<DecodedName>| {
                    name.collective.is_some_and(|c| REDUCTIONS.contains(&c))
                };
                decoded.iter().any(reduces).then(|| message_bytes(cost))
            })
            .collect();
        let largest = messages.iter().flatten().flatten().max().copied();
        // A model smaller than a bucket has one message, and it is the largest.
        let enough = GRADIENT_BYTES.min(largest.unwrap_or(0).div_ceil(2));
        let of_gradients = |bytes: &Option<u64>| bytes.is_none_or(|bytes| bytes >= enough);
        let found: Vec<Option<bool>> = messages
            .iter()
            .map(|site| site.as_ref().map(of_gradients))
            .collect();
        let named = |wanted: bool| -> FxHashSet<StrId> {
            let sites = run.sites.iter().zip(&found);
            let sites = sites.filter(|(_, found)| **found == Some(wanted));
            let kernels = sites.flat_map(|(site, _)| site.kernels.iter());
            kernels.map(|kernel| kernel.name).collect()
        };
        let small = named(false);
        let mut names = named(true);
        names.retain(|name| !small.contains(name));
        Reductions {
            sites: found,
            names,
        }
    }

    fn of_gradients(&self, name: StrId, site: Option<SiteId>) -> bool {
        match site {
            Some(site) => self.sites.get(site.idx()) == Some(&Some(true)),
            None => self.names.contains(&name),
        }
    }
}

/// Frame and compilation of a region: `Torch-Compiled Region: 3/1` is the second compilation of frame
/// 3; a leading `!` marks a region of compiled autograd.
fn region(text: &str) -> Option<(u64, u64)> {
    let id = text.strip_prefix(REGION)?.strip_prefix(": ")?;
    let id = id.split_whitespace().next()?.trim_start_matches('!');
    let (frame, compilation) = id.rsplit('/').next().and_then(|last| {
        let rest = id.strip_suffix(last)?.strip_suffix('/')?;
        Some((rest.rsplit('/').next()?, last))
    })?;
    // `0/1_2` is restarted analysis 2 of the same compilation.
    let compilation = compilation.split('_').next()?;
    Some((frame.parse().ok()?, compilation.parse().ok()?))
}

fn of_compiled(t: &FactTable<'_>, value: Option<u64>) -> Answer {
    Answer::or_silent(t.framework.compiled.then_some(value))
}

/// Whether something was seen; unknown where nothing would show it.
fn seen(t: &FactTable<'_>, found: bool) -> Option<bool> {
    (found || t.framework.recorded).then_some(found)
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Forward passes of `nn.DataParallel` were seen
    "run.data_parallel": BOOL needs RANGES_OF_OPS => |t| seen(t, t.framework.data_parallel),
    /// Forward passes of DistributedDataParallel were seen
    "run.ddp": BOOL needs RANGES_OF_OPS => |t| seen(t, t.framework.ddp),
    /// Ranges of fully sharded data parallelism were seen
    "run.fsdp": BOOL needs RANGES_OF_OPS => |t| seen(t, t.framework.fsdp),
    /// The backward pass updates embedding tables as well: FBGEMM's fused optimizers, which TorchRec uses
    "run.fused_backward_optimizer": BOOL needs RANGES_OF_OPS => |t| seen(t, t.framework.fused_update),
    /// One of several processes, as far as collectives, wrappers or a rank in the file say
    "run.distributed": BOOL => |t| {
        t.framework.ddp
            || t.framework.fsdp
            || t.framework.gloo_calls > 0
            || t.sums.comm_kernel_ns > 0.0
            || t.processes > 1
            || t.costed
                .run
                .profile
                .processes
                .iter()
                .any(|p| p.rank.is_some())
    },
    /// Collectives of the gloo backend, which run on the CPU
    "run.gloo_calls": INT => |t| t.framework.gloo_calls,
    /// Different functions compiled by torch.compile that ran; graph breaks split one into several; silent
    /// without torch.compile
    "run.compiled_frames": INT needs COMPILE_IDS =>
        |t| of_compiled(t, t.framework.compiled_frames),
    /// How often the most recompiled function had been compiled anew; silent without torch.compile
    "run.recompilations": INT needs COMPILE_IDS => |t| of_compiled(t, t.framework.recompilations),
    /// Share of kernel time launched inside code that torch.compile made
    "run.compiled_share": DOUBLE => |t| Answer::share(t.framework.compiled_ns, t.sums.kernel_ns),
    /// `run.compiled_share` of forward and backward work only, without the optimizer and collectives
    "run.compiled_model_share": DOUBLE =>
        |t| Answer::share(t.framework.compiled_model_ns, t.framework.model_ns),
    /// How often Dynamo checked the guards of compiled code: once per call of it
    "run.guard_checks": INT => |t| t.framework.guard_checks,
    /// Host time in `run.guard_checks`
    "run.guard_ns": DOUBLE => |t| t.framework.guard_ns,
    /// How often DDP searched the graph for parameters without a gradient, which it does for
    /// `find_unused_parameters=True`
    "run.unused_parameter_searches": INT => |t| t.framework.unused_searches,
    /// Host time in `run.unused_parameter_searches`
    "run.unused_parameter_search_ns": DOUBLE => |t| t.framework.unused_search_ns,
    /// Share of GPU busy time in DDP copying reduced buckets back into gradients
    "run.bucket_copy_share": DOUBLE =>
        |t| Answer::share(t.framework.bucket_copy_ns, t.totals.gpu_busy_ns),
    /// Time of kernels and copies in which DDP copies reduced buckets back into gradients
    "run.bucket_copy_ns": DOUBLE => |t| t.framework.bucket_copy_ns,
    /// Optimizer steps seen by their ranges, one inside another not counted; 0 when nothing records them
    "run.optimizer_steps": INT => |t| t.framework.optimizer_steps,
    /// Class names of the optimizers whose steps have ranges, such as `AdamW`; empty when nothing records
    /// them
    "run.optimizers": STRINGS => |t| Arc::clone(&t.framework.optimizers),
    /// DDP forward passes after which gradients were reduced before the next one began; reductions of
    /// statistics and losses do not count where sizes tell them apart
    "run.synced_forwards": INT => |t| t.framework.synced_forwards,
    /// Backward passes, by the ranges of autograd's nodes: more than `run.optimizer_steps` where gradients
    /// are accumulated; 0 when nothing records them
    "run.backward_passes": INT => |t| t.framework.backward_passes,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::of_run;

    #[test]
    fn compiled_regions_have_frame_and_compilation_numbers() {
        assert_eq!(region("Torch-Compiled Region: 0/0"), Some((0, 0)));
        assert_eq!(region("Torch-Compiled Region: 12/3_1"), Some((12, 3)));
        assert_eq!(region("Torch-Compiled Region: !0/5/2"), Some((5, 2)));
        assert_eq!(region("Torch-Compiled Region"), None);
        assert_eq!(region("Torch-Compiled Region: x"), None);
        assert_eq!(
            region("Torch-Compiled Region: 99999999999999999999/0"),
            None
        );
    }

    #[test]
    fn optimizer_ranges_name_a_class() {
        assert_eq!(optimizer("Optimizer.step#AdamW.step"), Some("AdamW"));
        assert_eq!(optimizer("Optimizer.step#.step"), None);
        assert_eq!(optimizer("Optimizer.zero_grad#AdamW.zero_grad"), None);
    }

    #[test]
    fn a_forward_pass_of_checkpointed_modules_may_be_a_part_of_a_training_step() {
        let training = |module: &str| {
            let mut b = ProfileBuilder::new();
            b.range(&format!("FSDP::pre_forward ({module})"), 0, 50);
            b.range("aten::add", 60, 1_000).kind = RangeKind::CpuOp;
            b.launch(100);
            of_run(b, "run.training")
        };
        assert_eq!(training("blocks.0"), Answer::from(false));
        assert_eq!(
            training("blocks.0._checkpoint_wrapped_module"),
            Answer::Absent
        );
    }

    #[test]
    fn only_names_given_by_pytorch_are_evidence() {
        assert!(Sign::of("DataParallel.forward").has(Sign::DATA_PARALLEL));
        let of_tables = |optimizer: &str| {
            let node = format!("torch::autograd::CppNode<SplitLookupFunction_{optimizer}_Op>");
            Sign::of(&node).has(Sign::FUSED_UPDATE)
        };
        assert_eq!(
            ["rowwise_adagrad", "none", "Dense"].map(of_tables),
            [true, false, false]
        );
        assert!(!Sign::of("DistributedDataParallel.forward").has(Sign::DATA_PARALLEL));
        assert!(
            Sign::of("autograd::engine::evaluate_function: CompiledFunctionBackward")
                .has(Sign::COMPILED)
        );
        assert_eq!(Sign::of("forward"), Sign::NONE);
    }
}
