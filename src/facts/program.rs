//! Facts that tell what kind of program ran: a serving engine, a PyTorch that is too old for a compiler,
//! and the part of the program whose launches come late.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::chain::Kind;
use super::enclosing_ops::plain_name;
use super::equal_networks::{self, EqualNetworks};
use super::fact::{Answer, FactEntry, facts};
use super::late_layers::{self, BesideRnn, LateLayers};
use super::maker::{Maker, library_of, maker};
use super::range_paths::by_string;
use super::table::Runs;
use crate::base::statistics::NEARLY_ALL;
use crate::base::words::words;
use crate::correlate::{Direction, OpName, Run, ScopeId, Site, function_in};
use crate::cost::{Costed, Family};
use crate::profile::{RangeId, RangeKind, StrId};

/// What the names in a run tell of its program.
#[derive(Debug, Default)]
pub(super) struct ProgramSigns {
    engine: Option<&'static str>,
    /// Work inside a `transformers` pipeline.
    pipeline: bool,
    trainer: Option<&'static str>,
    framework: Framework,
    binary_cross_entropy: bool,
    forward_products: u64,
    before_compile: bool,
    packed_sequences: bool,
    late: Option<(StrId, f64)>,
    late_function: Option<LateFunction>,
    /// As [`equal_networks::of`] says.
    pub(super) equal_networks: Option<Option<EqualNetworks>>,
    /// As [`late_layers::of`] says.
    late_layers: Option<Option<LateLayers>>,
    late_outside: Option<f64>,
    late_beside_rnn: Option<Option<BesideRnn>>,
}

/// Serving engines by their names as libraries of operators, with parts of the paths of their files.
const ENGINES: [(&str, &str); 5] = [
    ("vLLM", "vllm/"),
    ("SGLang", "sglang/"),
    ("TensorRT-LLM", "tensorrt_llm/"),
    ("LightLLM", "lightllm/"),
    ("LMDeploy", "lmdeploy/"),
];

/// Kernels of the library THC, which PyTorch gave up in 1.x, years before `torch.compile`.
fn before_compile(base: &str) -> bool {
    base.contains("kernelPointwiseApply")
        || base.starts_with("cunn_")
        || base.starts_with("THC")
        || base.starts_with("kernelReduce")
}

impl ProgramSigns {
    pub(super) fn of(costed: &Costed) -> ProgramSigns {
        let run = &costed.run;
        ProgramSigns {
            engine: engine(costed),
            pipeline: in_pipeline(costed),
            trainer: trainer(costed),
            framework: Framework::of(costed),
            binary_cross_entropy: (run.op_names.iter())
                .any(|op| plain_name(&op.name) == "binary_cross_entropy"),
            forward_products: forward_products(costed),
            before_compile: costed
                .kernels
                .iter()
                .flatten()
                .any(|k| before_compile(&k.base)),
            packed_sequences: packs_sequences(run),
            late: late_range(run),
            late_function: late_function(run),
            equal_networks: equal_networks::of(costed),
            late_layers: late_layers::of(costed),
            late_outside: late_layers::outside_layers(costed),
            late_beside_rnn: late_layers::beside_rnn(costed),
        }
    }
}

/// Calls of matrix products, convolutions and RNNs in the forward pass.
fn forward_products(costed: &Costed) -> u64 {
    let products = [Family::Gemm, Family::Conv, Family::Rnn];
    let sites = costed.run.sites.iter().zip(&costed.sites);
    let forward = sites.filter(|(site, cost)| {
        site.direction == Direction::Fprop && !site.recomputed && products.contains(&cost.family)
    });
    forward.map(|(site, _)| u64::from(site.calls)).sum()
}

words! {
    /// What the program calls to run its work on a GPU.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(super) enum Framework with fn name {
        PyTorch = "pytorch",
        /// XLA: JAX, or TensorFlow.
        Xla = "xla",
        TensorRt = "tensorrt",
        /// CUDA itself, or what is not known here.
        #[default]
        Other = "other",
    }
}

impl Framework {
    /// PyTorch where its profiler wrote the file, where its operators or kernels are seen, or those of Triton and of
    /// libraries, which XLA uses as well.
    fn of(costed: &Costed) -> Framework {
        let decoded = costed.kernels.iter().flatten();
        let makers: Vec<Maker> = decoded
            .filter_map(|kernel| maker(&kernel.base, kernel.triton))
            .collect();
        let made = |by: &[Maker]| makers.iter().any(|maker| by.contains(maker));
        let is_library = |maker: &Maker| matches!(maker, Maker::Library(_));
        // TensorRT's ranges look like operators, `onnx::Conv_239` and `ExecutionContext::execute`, but launch nothing
        // themselves.
        let launches = || costed.run.sites.iter().any(|site| site.op.is_some());
        let is_torch = |op: &OpName| op.module == "aten";
        let is_written_by_it = costed.run.profile.format.is_of_pytorch;
        let shown = || costed.run.op_names.iter().any(is_torch);
        if is_written_by_it || shown() || made(&[Maker::PyTorch, Maker::Inductor]) {
            Framework::PyTorch
        } else if made(&[Maker::Xla]) {
            Framework::Xla
        } else if launches() || made(&[Maker::Triton]) || makers.iter().any(is_library) {
            Framework::PyTorch
        } else if made(&[Maker::TensorRt]) {
            Framework::TensorRt
        } else {
            Framework::Other
        }
    }
}

/// Whether the run shows PyTorch.
pub(crate) fn shows_pytorch(costed: &Costed) -> bool {
    Framework::of(costed) == Framework::PyTorch
}

/// The serving engine whose operators, kernels or Python files the run shows.
fn engine(costed: &Costed) -> Option<&'static str> {
    let run = &costed.run;
    let ops = || run.op_names.iter().map(|op| op.module.as_str());
    let kernels = || costed.kernels.iter().flatten().map(|k| k.base.as_str());
    let named = ENGINES.iter().find(|(engine, _)| {
        let is_its = |namespace: &str| library_of(namespace) == Some(engine);
        ops().any(is_its)
            || kernels().any(|base| {
                base.split_once("::")
                    .is_some_and(|(first, _)| is_its(first))
            })
    });
    // `vllm/v1/worker/gpu_model_runner.py(1023): execute_model`
    let in_files = || first_in_frames(costed, ENGINES.map(|(_, files)| files));
    let (name, _) = named.or_else(|| ENGINES.get(in_files()?))?;
    Some(*name)
}

/// Whether a recurrent layer gets packed sequences, which have one dimension for steps and sequences.
fn packs_sequences(run: &Run) -> bool {
    let packs = |op: &OpName| op.name == "_pack_padded_sequence";
    let is_packed = |site: &Site| {
        let name = site.op.as_ref().map(|op| plain_name(&op.name));
        let args = run.arguments_of(site);
        let first = args.and_then(|args| args.tensors().next());
        name.is_some_and(|name| RECURRENT.contains(&name))
            && first.is_some_and(|input| input.shape.len() == 2)
    };
    run.op_names.iter().any(packs) || run.sites.iter().any(is_packed)
}

/// The operators of libraries for recurrent layers, which get their sequences packed or not.
const RECURRENT: [&str; 4] = [
    "cudnn_rnn",
    "cudnn_rnn_backward",
    "miopen_rnn",
    "miopen_rnn_backward",
];

/// Whether Python frames of a `transformers` pipeline were recorded.
fn in_pipeline(costed: &Costed) -> bool {
    first_in_frames(costed, ["transformers/pipelines/"]).is_some()
}

/// Files of trainers, and the trainer that each belongs to. Accelerate is a part of that of transformers.
const TRAINERS: [(&str, &str); 4] = [
    ("transformers/trainer.py", "transformers"),
    ("accelerate/accelerator.py", "transformers"),
    ("lightning/pytorch/", "lightning"),
    ("pytorch_lightning/", "lightning"),
];
/// Begins the ranges of Lightning's profiler.
const LIGHTNING: &str = "[pl][";

fn trainer(costed: &Costed) -> Option<&'static str> {
    if let Some(at) = first_in_frames(costed, TRAINERS.map(|(file, _)| file)) {
        return TRAINERS.get(at).map(|(_, trainer)| *trainer);
    }
    let run = &costed.run;
    let lightning = by_string(run, |text| text.starts_with(LIGHTNING));
    lightning.contains(&true).then_some("lightning")
}

/// The first of these folders that holds the file of a recorded Python frame, by position.
fn first_in_frames<const N: usize>(costed: &Costed, folders: [&str; N]) -> Option<usize> {
    let strings = &costed.run.profile.strings;
    let rows = (0..strings.len()).into_par_iter().with_min_len(1024);
    rows.filter_map(|row| {
        let text = strings.get(StrId::new(row));
        let frame = text.contains(".py(") || text.contains(".py:");
        let mut folders = folders.iter().filter(|_| frame);
        folders.position(|folder| text.contains(folder))
    })
    .min()
}

/// Share of the late launches that a range must hold to be named.
const MOST: f64 = 0.5;
/// Ranges of the program that are looked at around a launch, from the inside.
const DEPTH: usize = 64;

/// The smallest range of the program that holds most of the idle time before late launches, and the
/// share it holds. Steps are no such range: all of them together are the run.
fn late_range(run: &Run) -> Option<(StrId, f64)> {
    let mut all = 0_i64;
    let mut held: BTreeMap<StrId, (i64, BTreeSet<RangeId>)> = BTreeMap::new();
    for gap in run.timeline.late_launches() {
        all = all.saturating_add(gap.reliable_ns);
        let link = gap.next.and_then(|kernel| run.link(kernel));
        let mut names: Vec<(StrId, RangeId)> = Vec::new();
        let mut at = link.and_then(|link| link.scope);
        for _ in 0..DEPTH {
            let Some(scope) = at.and_then(|id: ScopeId| run.scope(id)) else {
                break;
            };
            let range = run.profile.range(scope.range);
            let of_program = range.is_some_and(|r| match r.kind {
                RangeKind::Annotation => true,
                RangeKind::PushPop => r.seq.is_none() && r.op_id.is_none() && r.args.is_none(),
                _ => false,
            });
            if of_program
                && names_a_part(run.profile.text(scope.text))
                && !names.iter().any(|(name, _)| *name == scope.text)
            {
                names.push((scope.text, scope.range));
            }
            at = scope.parent;
        }
        for (name, range) in names {
            let (ns, ranges) = held.entry(name).or_default();
            *ns = ns.saturating_add(gap.reliable_ns);
            ranges.insert(range);
        }
    }
    let window = run.window.span?;
    // A range around nearly all of the window does not tell one gap from another.
    let is_part = |ranges: &BTreeSet<RangeId>| {
        let ranges = ranges.iter().filter_map(|id| run.profile.range(*id));
        let covered: i64 = ranges
            .map(|range| range.span.clip(window).ns().max(0))
            .sum();
        (covered as f64) < NEARLY_ALL * window.ns() as f64
    };
    let most = held
        .into_iter()
        .filter(|(_, (ns, ranges))| *ns as f64 >= MOST * all as f64 && is_part(ranges))
        .min_by_key(|(name, (ns, _))| (*ns, *name));
    most.map(|(name, (ns, _))| (name, ns as f64 / all.max(1) as f64))
}

/// A Python function that runs before late launches.
#[derive(Debug)]
struct LateFunction {
    name: String,
    /// Of the idle time before late launches.
    share: f64,
    /// Part of its time inside calls of modules.
    in_modules: f64,
}

/// The function that ran in most of the idle time before late launches. What runs outside of all functions has no
/// name that helps.
fn late_function(run: &Run) -> Option<LateFunction> {
    let late = run.timeline.late_launches();
    let all: i64 = late.map(|gap| gap.reliable_ns).sum();
    let longest = run.host.late.iter();
    let (name, time) = longest.max_by_key(|(name, time)| (time.ns, Reverse(**name)))?;
    let name = function_in(run.profile.text(*name)).filter(|name| !name.starts_with("<module>"))?;
    let share = time.ns as f64 / all.max(1) as f64;
    let in_modules = time.in_modules_ns as f64 / time.ns.max(1) as f64;
    (share >= MOST).then_some(LateFunction {
        name,
        share,
        in_modules,
    })
}

/// A fact of the layers whose launches come late.
fn of_layers<T>(found: Option<&Option<T>>, part: fn(&T) -> Answer) -> Answer {
    found.map_or(Answer::Absent, |found| {
        Answer::or_silent(found.as_ref().map(part))
    })
}

/// Whether a range's name is one that its author chose for a part of the program: not a step, an
/// operator, or a marker of PyProf.
fn names_a_part(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let step = [
        "profilerstep",
        "step",
        "iteration",
        "iter ",
        "epoch",
        "batch",
    ]
    .iter()
    .any(|word| lower.starts_with(word));
    !step && !text.contains("::") && !text.starts_with('{') && !text.starts_with("Torch-Compiled")
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Time of all imports, by a file of `python -X importtime` (`--host`); silent without one
    "run.import_ns": DOUBLE => |t| Answer::or_silent(t.costed.run.profile.host.summary.import_ns),
    /// The module that took longest to import, without those that it imports
    "run.slowest_import": STR => |t| {
        let slowest = t.costed.run.profile.host.summary.slowest_import.as_ref();
        Answer::or_silent(slowest.map(|(name, _)| name.as_str()))
    },
    /// Import time of `run.slowest_import`
    "run.slowest_import_ns": DOUBLE => |t| {
        let slowest = t.costed.run.profile.host.summary.slowest_import.as_ref();
        Answer::or_silent(slowest.map(|(_, ns)| *ns))
    },
    /// The serving engine whose operators, kernels or files are seen: `vLLM`, `SGLang`, `TensorRT-LLM`,
    /// ...; silent where none is
    "run.serving_engine": STR => |t| Answer::or_silent(t.program.engine),
    /// The loss `binary_cross_entropy` of probabilities is seen, which autocast refuses; not that of logits
    "run.binary_cross_entropy": BOOL => |t| t.program.binary_cross_entropy,
    /// Calls of matrix products, convolutions and RNNs in the forward pass
    "run.forward_products": INT => |t| t.program.forward_products,
    /// Share of GPU time in attention that runs as separate operators, with its backward pass
    "run.unfused_attention_share": DOUBLE => |t| {
        let attention = t.chains.iter().filter(|chain| chain.kind == Kind::Attention);
        let ns = attention.map(|chain| chain.time_ns + chain.backward.values().sum::<f64>());
        (ns.sum::<f64>() / t.totals.gpu_busy_ns.max(1.0)).min(1.0)
    },
    /// Python frames of a `transformers` pipeline are seen; false where no stacks were recorded
    "run.transformers_pipeline": BOOL => |t| t.program.pipeline,
    /// Median duration of the all-reduces of the backward pass; silent without any
    "run.gradient_all_reduce_median_ns": DOUBLE => |t| {
        let median = t.collectives.gradient_median_ns;
        Answer::or_silent(median.map(|ns| ns as f64))
    },
    /// What a served model does, by the ranges of the engine: `prefill`, `decode` or `mixed`; silent where
    /// no range says so, or executions differ
    "run.phase": STR => |t| Answer::or_silent(t.costed.run.batch.and_then(|b| b.phase())),
    /// Number of requests that an execution of a served model works on; silent as `run.phase`
    "run.sequences": INT => |t| Answer::or_silent(t.costed.run.batch.map(|b| b.sequences())),
    /// Number of executions of a served model in the window, by the ranges of the engine; silent as
    /// `run.phase`
    "run.executions": INT => |t| {
        let run = &t.costed.run;
        Answer::or_silent(run.batch.map(|_| run.executions))
    },
    /// Tokens that the new tokens of a served model attend to, over all requests; silent where no range
    /// says so
    "run.cached_tokens": INT => |t| Answer::or_silent(t.costed.run.batch.and_then(|b| b.keys())),
    /// Weights and cached keys and values that replays of CUDA graphs read at least, by a recording without
    /// graphs (`--eager-trace`); 0 without one
    "run.least_bytes": DOUBLE => |t| {
        let sites = t.costed.sites.iter();
        sites.filter_map(|site| site.least_bytes).sum::<f64>()
    },
    /// Operators or kernels of PyTorch were seen, or those of libraries for it
    "run.pytorch": BOOL => |t| t.program.framework == Framework::PyTorch,
    /// What the program calls to run work on the GPU, by the names of operators and kernels: `pytorch`, `xla`
    /// (JAX), `tensorrt` or `other`: CUDA itself, or unknown
    "run.framework": STR => |t| t.program.framework.name(),
    /// The file says that the program ran on Windows, where PyTorch comes without Triton
    "run.windows": BOOL => |t| t.costed.run.profile.recorded.windows,
    /// The names of its kernels prove a PyTorch before 2.0, which has no `torch.compile`
    "run.before_compile": BOOL => |t| t.program.before_compile,
    /// Recurrent layers get packed sequences (`pack_padded_sequence`), or sequences are packed for them
    "run.packed_sequences": BOOL => |t| t.program.packed_sequences,
    /// The smallest range of the program that holds half or more of the idle time before late launches;
    /// silent where none does
    "run.late_range": STR => |t| Answer::or_silent(t.program.late.map(|(name, _)| t.text(name))),
    /// Up to three of the outermost layers, which hold 60 % or more of the idle time before late launches, and 1.5
    /// times their share of kernel time: `rpn, roi_heads`; silent where launches are late everywhere
    "run.late_layers": STR needs LAYERS => |t| of_layers(t.program.late_layers.as_ref(), |late| late.names.as_str().into()),
    /// Share of the idle time before late launches in `run.late_layers`
    "run.late_layers_share": DOUBLE needs LAYERS => |t| of_layers(t.program.late_layers.as_ref(), |late| late.share.into()),
    /// Share of the kernel time in `run.late_layers`
    "run.late_layers_kernel_share": DOUBLE needs LAYERS =>
        |t| of_layers(t.program.late_layers.as_ref(), |late| late.kernel_share.into()),
    /// Share of the idle time before late launches whose kernels are outside of all modules, those of the backward
    /// pass, of the optimizer and of collectives aside
    "run.late_outside_share": DOUBLE needs LAYERS => |t| t.program.late_outside,
    /// The outermost layer with half or more of the idle time before late launches that contains no RNN (`nn.LSTM`,
    /// `nn.GRU`, `nn.RNN`) and is part of no layer that is one: `decoder`; silent without an RNN, or without such a layer
    "run.late_beside_rnn": STR needs LAYERS =>
        |t| of_layers(t.program.late_beside_rnn.as_ref(), |found| found.layer.as_str().into()),
    /// Share of the idle time before late launches in `run.late_beside_rnn`
    "run.late_beside_rnn_share": DOUBLE needs LAYERS =>
        |t| of_layers(t.program.late_beside_rnn.as_ref(), |found| found.share.into()),
    /// The trainer whose files are among the recorded Python frames, or whose ranges are seen: `transformers` or
    /// `lightning`; silent where neither is
    "run.trainer": STR => |t| Answer::or_silent(t.program.trainer),
    /// The function of the program that ran, outside of all operators, in half or more of the idle time
    /// before late launches: `decode (model/boxes.py:12)`; silent where none did, or no functions were
    /// recorded
    "run.late_function": STR => |t| {
        let function = t.program.late_function.as_ref();
        Answer::or_silent(function.map(|function| function.name.as_str()))
    },
    /// Share of the idle time before late launches in which `run.late_function` ran
    "run.late_function_share": DOUBLE =>
        |t| Answer::or_silent(t.program.late_function.as_ref().map(|function| function.share)),
    /// Share of the time of `run.late_function` before late launches inside calls of modules
    "run.late_function_in_modules": DOUBLE =>
        |t| Answer::or_silent(t.program.late_function.as_ref().map(|function| function.in_modules)),
    /// Share of the idle time before late launches inside `run.late_range`
    "run.late_range_share": DOUBLE =>
        |t| Answer::or_silent(t.program.late.map(|(_, share)| share)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    #[test]
    fn steps_and_operators_are_no_parts_of_a_program() {
        for name in ["generate_masks 0 1 0 6", "encoder", "decode"] {
            assert!(names_a_part(name), "{name}");
        }
        for name in ["ProfilerStep#3", "step 7", "aten::mm", "{'mod': 'torch'}"] {
            assert!(!names_a_part(name), "{name}");
        }
    }

    fn of_kernels(names: &[&str]) -> Framework {
        let mut b = ProfileBuilder::new();
        for (i, name) in names.iter().enumerate() {
            let kernel = b.launch(1000 * (i as i64 + 1));
            b.profile.kernels[kernel].name = b.profile.strings.intern(name);
        }
        Framework::of(&crate::cost::estimate_costs(b.run(), None))
    }

    #[test]
    fn kernels_of_triton_and_libraries_are_those_of_xla_beside_its_own() {
        let xla = "loop_add_fusion_1";
        let te = "void transformer_engine::scale(float*)";
        let at = "void at::native::reduce_kernel(float*)";
        for (names, wanted) in [
            (&[xla, te][..], Framework::Xla),
            (&[te], Framework::PyTorch),
            (&[xla, at], Framework::PyTorch),
            (&["triton_softmax_7"], Framework::Xla),
            (&["__myl_MulAddSig_0x1"], Framework::TensorRt),
            (
                &["ampere_sgemm_128x64_nn", "my_kernel(int)"],
                Framework::Other,
            ),
        ] {
            assert_eq!(of_kernels(names), wanted, "{names:?}");
        }
    }

    #[test]
    fn sequences_are_packed_by_an_operator_or_have_no_dimension_of_their_own() {
        let of = |op: &str| {
            let mut b = ProfileBuilder::new();
            b.range(op, 0, 1000);
            b.launch(100);
            packs_sequences(&b.run())
        };
        assert!(of("aten::_pack_padded_sequence"));
        let rnn = |sizes: &str| of(&format!("aten::_cudnn_rnn, seq = 7, sizes = [{sizes}, []]"));
        assert!(rnn("[96, 4]"));
        assert!(!rnn("[6, 16, 4]"));
        assert!(!of("aten::addmm, seq = 7, sizes = [[96, 4], []]"));
    }

    #[test]
    fn kernels_of_old_releases_are_recognized() {
        assert!(before_compile("kernelPointwiseApply3"));
        assert!(before_compile("cunn_LookupTableBag_updateOutputKernel"));
        assert!(!before_compile("at::native::cunn_SoftMaxForward"));
    }

    #[test]
    fn the_loss_of_probabilities_is_told_from_that_of_logits() {
        let seen = |op: &str| {
            let mut profile = ProfileBuilder::new();
            profile.range(&format!("aten::{op}, seq = 1, sizes = [[8], [8]]"), 0, 100);
            profile.launch(10);
            ProgramSigns::of(&estimate_costs(profile.run(), None)).binary_cross_entropy
        };
        assert!(seen("binary_cross_entropy"));
        assert!(!seen("binary_cross_entropy_with_logits"));
    }
}
