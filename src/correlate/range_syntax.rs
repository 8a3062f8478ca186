//! Parses range names: FSDP brackets, steps, autograd nodes, operators with a namespace, and user names
//! of whole passes.

use super::model::Direction;

/// Which pass an FSDP bracket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FsdpPhase {
    Forward,
    BackwardCall,
}

/// The format of a step's number, most reliable first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StepFamily {
    ProfilerStep,
    Step,
    Iteration,
    Iter,
}

impl StepFamily {
    /// The text of such ranges, with `#` for the number.
    pub(crate) fn text(self) -> &'static str {
        match self {
            StepFamily::ProfilerStep => "ProfilerStep#",
            StepFamily::Step => "step #",
            StepFamily::Iteration => "iteration #",
            StepFamily::Iter => "iter #",
        }
    }
}

/// Maximum number of modules in one layer name. Kineto numbers instances per class over the whole
/// model, so the innermost few identify the layer.
pub(crate) const MODULE_PARTS: usize = 4;

/// Getters that PyProf wraps, although they launch nothing.
pub(super) const ATTRIBUTES: [&str; 8] = [
    "__getattr__",
    "__setattr__",
    "__getattribute__",
    "__delattr__",
    "__get__",
    "__set__",
    "size",
    "dim",
];

/// Annotations of internal work in PyTorch and its libraries.
pub(super) const FRAMEWORK: [&str; 11] = [
    "FSDP::",
    "FullyShardedDataParallel.",
    "DistributedDataParallel.",
    "DataParallel.",
    "TorchDynamo",
    "Pregraph bytecode",
    "## Call CompiledFxGraph",
    "PyTorch Profiler",
    "<built-in",
    "autograd::engine::",
    "cudaGraph",
];

/// Parts of the texts of ranges and Python frames in which code is compiled. The frames of
/// `torch/_dynamo` and `torch/_inductor` are entered only when nothing in the cache fits.
pub(super) const COMPILING: [&str; 12] = [
    "NVRTC",
    "nvrtc::Compile",
    "Nvrtc::Compile",
    "KernelExecutor::compile",
    "ExecutorDispatch::compile",
    "FusionKernelRuntime::FusionKernelRuntime",
    "FusionKernelRuntime::compile",
    "getKernelRuntimeFor::compileNewKRT",
    "torch/_dynamo/convert_frame.py(",
    "torch/_inductor/compile_fx.py(",
    "triton/compiler/compiler.py(",
    "torch/utils/cpp_extension.py(",
];

/// NVTX domains in which libraries, not users, name ranges.
pub(super) const LIBRARY_DOMAINS: [&str; 18] = [
    "nccl",
    "cccl",
    "cub",
    "thrust",
    "cublas",
    "cublaslt",
    "cudnn",
    "cusparse",
    "cusolver",
    "cufft",
    "nvshmem",
    "myelin-exec",
    "ucx",
    "mpi",
    // `nsys --pytorch=functions-trace`: functions of PyTorch and of vLLM, named by their classes.
    "pytorch",
    "vllm",
    // `nsys --trace=python-gil` and `--python-sampling=true`.
    "gil trace",
    "python periodic sampling",
];

pub(super) const DATA_LOADING_WORDS: [&str; 6] = [
    "dataloader",
    "dataloading",
    "loaddata",
    "dataload",
    "loadbatch",
    "nextbatch",
];

const OPTIMIZER_WORDS: [&str; 7] = [
    "optimizer",
    "optimizerstep",
    "optim",
    "optimstep",
    "optstep",
    "weightupdate",
    "gradclip",
];

/// User names of whole passes.
const PHASE_WORDS: [(&[&str], Direction); 2] = [
    (
        &["forward", "fwd", "forwardpass", "fprop"],
        Direction::Fprop,
    ),
    (
        &["backward", "bwd", "backwardpass", "bprop"],
        Direction::Bprop,
    ),
];

/// Parts of the names of optimizers, in lower case.
const OPTIMIZERS: [&str; 9] = [
    "adam",
    "sgd",
    "rmsprop",
    "adagrad",
    "adadelta",
    "adafactor",
    "lamb",
    "lbfgs",
    "optimizer",
];

/// The pass that a text names: `backward`, or a method as in `Module.forward` (functions-trace of nsys).
pub(super) fn phase(text: &str) -> Option<Direction> {
    let function = text.rsplit('.').next().unwrap_or(text);
    let of = |(words, _): &&(&[&str], Direction)| is_word(text, words) || words.contains(&function);
    PHASE_WORDS.iter().find(of).map(|(_, direction)| *direction)
}

/// Whether a text names the step of an optimizer: `optimizer`, `Optimizer.step#Adam.step`, `AdamW.step`.
pub(super) fn is_optimizer(text: &str) -> bool {
    let of_class = || {
        let class = text.strip_suffix(".step").filter(|name| name.len() <= 80);
        class.is_some_and(|name| {
            let name = name.to_ascii_lowercase();
            OPTIMIZERS.iter().any(|part| name.contains(part))
        })
    };
    text.starts_with("Optimizer.") || is_word(text, &OPTIMIZER_WORDS) || of_class()
}

/// Whether a text equals one of some words, ignoring case and punctuation.
pub(super) fn is_word(text: &str, words: &[&str]) -> bool {
    if text.len() > 40 {
        return false;
    }
    let bare: String = text
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    words.contains(&bare.as_str())
}

/// Whether a text declares warm-up: `warmup`, `Warm-up`, `warmup iterations`, `warmup 3`, or a field of
/// a composed benchmark name, `[net|0|warmup|forward]`.
pub(super) fn is_warmup(text: &str) -> bool {
    /// Maximum number of fields in one name; bounds the work for malicious text.
    const MOST_FIELDS: usize = 32;
    text.split('|').take(MOST_FIELDS).any(names_warmup)
}

fn names_warmup(text: &str) -> bool {
    let trimmed = text.trim_end_matches(|c: char| c.is_ascii_digit());
    is_word(
        trimmed,
        &[
            "warmup",
            "warmupstep",
            "warmupsteps",
            "warmupiter",
            "warmupiters",
            "warmupiteration",
            "warmupiterations",
            "warmuploop",
            "warmupphase",
        ],
    )
}

pub(super) fn is_library_domain(domain: &str) -> bool {
    let lower = domain.to_ascii_lowercase();
    LIBRARY_DOMAINS.contains(&lower.as_str())
}

/// Whether a range is NCCL's own, such as `ncclSend`; some NCCL versions push them without a domain.
pub(super) fn is_nccl_call(text: &str) -> bool {
    text.strip_prefix("nccl")
        .and_then(|rest| rest.chars().next())
        .is_some_and(|c| c.is_ascii_uppercase())
}

/// A label of bounded length: profile text can be a megabyte long.
pub(super) fn bounded(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// `FSDP::pre_forward (blocks.7._fsdp_wrapped_module)`: phase, whether it opens, the module's name
/// without what wrappers add to it. FSDP2 writes no name for the root module.
pub(super) fn bracket(text: &str) -> Option<(FsdpPhase, bool, Option<String>)> {
    let rest = text.strip_prefix("FSDP::")?;
    let (verb, module) = match rest.split_once(" (") {
        Some((verb, module)) => (verb, module.strip_suffix(')')?),
        None => (rest, ""),
    };
    let (phase, opens) = match verb {
        "pre_forward" => (FsdpPhase::Forward, true),
        "post_forward" => (FsdpPhase::Forward, false),
        "pre_backward" => (FsdpPhase::BackwardCall, true),
        "post_backward" => (FsdpPhase::BackwardCall, false),
        _ => return None,
    };
    Some((phase, opens, unwrapped(module)))
}

/// Name parts that wrappers insert: FSDP, activation checkpointing, `torch.compile`.
pub(super) const WRAPPERS: [&str; 3] = [
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
    "_orig_mod",
];

pub(super) fn unwrapped(module: &str) -> Option<String> {
    let mut parts: Vec<&str> = module
        .split('.')
        .filter(|p| !p.is_empty() && !WRAPPERS.contains(p))
        .collect();
    // DistributedDataParallel keeps its model in `module`.
    let own = parts.iter().take_while(|p| **p == "module").count();
    parts.drain(..own);
    (!parts.is_empty()).then(|| parts.join("."))
}

/// A layer's fully qualified name behind its kind, as torchtitan writes it:
/// `attention::layers.23._checkpoint_wrapped_module.attention`. An operator has at most an overload
/// behind its name, `aten::add.Tensor`, and that is no number.
pub(super) fn kind_and_layer(text: &str) -> Option<String> {
    let (kind, name) = text.rsplit_once("::")?;
    let identifier =
        |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let parts = || name.split('.');
    let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let qualified = parts().count() > 2
        || parts().skip(1).any(|p| number(p) || WRAPPERS.contains(&p))
        || parts().next().is_some_and(|p| WRAPPERS.contains(&p));
    (identifier(kind) && parts().all(identifier) && qualified)
        .then(|| unwrapped(name))
        .flatten()
}

/// A range of PyTorch Lightning's profiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LightningRange<'a> {
    /// `[pl][module]torch.nn.modules.linear.Linear: net.0`: a module's forward, with its full name.
    Module(&'a str),
    /// `[pl][profile][_TrainingEpochLoop].train_dataloader_next`.
    DataLoading,
    /// `[pl][profile][LightningModule]Net.optimizer_step`. The step may run the whole training step.
    Optimizer,
    /// `[pl][profile][Strategy]SingleDeviceStrategy.training_step`, `...backward`.
    Phase(Direction),
    /// Anything else: hooks, callbacks, loops.
    Other,
}

/// The meaning of a range that PyTorch Lightning's profiler writes.
pub(super) fn lightning(text: &str) -> Option<LightningRange<'_>> {
    if let Some(module) = text.strip_prefix("[pl][module]") {
        let (class, name) = module.split_once(": ").unwrap_or((module, ""));
        let class = class
            .trim_end_matches(':')
            .rsplit('.')
            .next()
            .unwrap_or(class);
        let name = name.trim();
        return Some(LightningRange::Module(if name.is_empty() {
            class
        } else {
            name
        }));
    }
    let action = text.strip_prefix("[pl][profile]")?;
    let action = action.rsplit(['.', ']']).next().unwrap_or(action);
    Some(match action {
        "training_step" | "validation_step" | "test_step" | "predict_step" => {
            LightningRange::Phase(Direction::Fprop)
        }
        "backward" => LightningRange::Phase(Direction::Bprop),
        "optimizer_step"
        | "optimizer_zero_grad"
        | "configure_gradient_clipping"
        | "clip_gradients" => LightningRange::Optimizer,
        _ if action.contains("dataloader_next") => LightningRange::DataLoading,
        _ => LightningRange::Other,
    })
}

/// A numbered step: a known word, a separator, digits, nothing else.
pub(super) fn step(text: &str) -> Option<(StepFamily, u64)> {
    const WORDS: [(&str, StepFamily); 4] = [
        ("profilerstep", StepFamily::ProfilerStep),
        ("iteration", StepFamily::Iteration),
        ("step", StepFamily::Step),
        ("iter", StepFamily::Iter),
    ];
    if text.len() > 48 || !text.is_ascii() {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let (rest, family) = WORDS
        .iter()
        .find_map(|(word, family)| Some((lower.strip_prefix(word)?, *family)))?;
    let digits = rest.trim_start_matches([' ', '#', '_', ':', '-', '=']);
    let separated = digits.len() < rest.len();
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !(separated && all_digits) {
        return None;
    }
    Some((family, digits.parse().ok()?))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct AutogradName<'a> {
    /// `AddmmBackward0`.
    pub(super) name: &'a str,
    /// `Addmm`.
    pub(super) base: &'a str,
    /// Whether the name alone identifies a node, without a sequence number.
    pub(super) certain: bool,
    /// Whether it is a custom function written in C++, whose forward is not a PyTorch operator.
    pub(super) own: bool,
}

/// Begins the range in which the engine of autograd runs a node (torch/csrc/autograd/engine.cpp).
pub(crate) const EVALUATES: &str = "autograd::engine::evaluate_function: ";

/// A node of the autograd graph: `AddmmBackward0`, with or without the engine's own range around
/// it, and the nodes that do not end in `Backward`.
pub(super) fn autograd(text: &str) -> Option<AutogradName<'_>> {
    let inner = text.strip_prefix(EVALUATES);
    let full = inner.unwrap_or(text);
    let full = full.strip_prefix("struct ").unwrap_or(full);
    if let Some(function) = cpp_function(full) {
        return Some(AutogradName {
            name: function,
            base: function,
            certain: true,
            own: true,
        });
    }
    let name = full.rsplit("::").next().unwrap_or(full);
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let special = full.starts_with("torch::autograd::")
        || matches!(name, "AccumulateGrad" | "GraphRoot" | "CopySlices");
    let base = name
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_end_matches('s')
        .strip_suffix("Backward");
    let certain = inner.is_some() || special;
    let base = base.filter(|base| !base.is_empty());
    Some(AutogradName {
        name,
        base: base.or(certain.then_some(name))?,
        certain,
        own: false,
    })
}

/// The function of a node written in C++: `Lookup` of `torch::autograd::CppNode<fbgemm::Lookup>`.
fn cpp_function(text: &str) -> Option<&str> {
    let inside = text
        .strip_prefix("torch::autograd::CppNode<")?
        .strip_suffix('>')?;
    // Template arguments may contain namespaces.
    let end = inside.find('<').unwrap_or(inside.len());
    let name = inside.get(..end)?.rsplit("::").next()?;
    (!name.is_empty()).then_some(name)
}

/// `aten::mm` and `nccl:all_reduce`, without the overload in `aten::add.Tensor`.
pub(super) fn namespaced(text: &str) -> Option<(&str, &str)> {
    let identifier = |s: &str| {
        !s.is_empty()
            && s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.:".contains(&b))
    };
    let (module, name) = match text.rsplit_once("::") {
        Some((module, name)) => (module, name.split('.').next().unwrap_or(name)),
        None => {
            let (module, name) = text.split_once(':')?;
            if !matches!(module, "nccl" | "gloo" | "c10d" | "mpi" | "ucc" | "rccl") {
                return None;
            }
            (module, name)
        }
    };
    (identifier(module) && identifier(name)).then_some((module, name))
}

/// Whether an operator computes a gradient: `convolution_backward`, `_softmax_backward_data`.
pub(super) fn is_gradient(name: &str) -> bool {
    name.contains("_backward")
}

/// Operators that only update, clip or scale parameters. `_foreach_` operators have other uses too, so
/// the pass in which they run is checked first.
pub(super) fn is_update(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "_fused_adam",
        "_fused_sgd",
        "_fused_adagrad",
        "_foreach_",
        "_amp_",
        "_single_tensor_",
        "_multi_tensor_",
        "multi_tensor_",
        "clip_grad",
    ];
    const NAMES: [&str; 6] = ["adam", "adamw", "sgd", "lamb", "fused_adam", "rmsprop"];
    PREFIXES.iter().any(|p| name.starts_with(p)) || NAMES.contains(&name)
}

/// The stem shared by the names of an operator and its autograd node.
pub(super) fn stem(name: &str) -> String {
    name.chars()
        .filter(|c| *c != '_')
        .take(80)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// `net.Linear_3` from PyProf's `/main/net::_call_impl/net::forward/Linear::_call_impl(3)/..`: the
/// modules called, each with the number of its call.
pub(super) fn module_of_functions(stack: &str) -> Option<String> {
    let mut path: Vec<String> = stack
        .split('/')
        .filter_map(|part| {
            let (class, call) = part.split_once("::_call_impl")?;
            let number = call.strip_prefix('(').and_then(|c| c.strip_suffix(')'));
            Some(match number {
                Some(number) => format!("{class}_{number}"),
                None => class.to_owned(),
            })
        })
        .collect();
    let surplus = path.len().saturating_sub(MODULE_PARTS);
    path.drain(..surplus);
    (!path.is_empty()).then(|| bounded(&path.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_require_a_known_word_and_a_number() {
        assert_eq!(
            step("ProfilerStep#12"),
            Some((StepFamily::ProfilerStep, 12))
        );
        assert_eq!(step("Step: 3"), Some((StepFamily::Step, 3)));
        assert_eq!(step("step_3"), Some((StepFamily::Step, 3)));
        assert_eq!(step("iteration 7"), Some((StepFamily::Iteration, 7)));
        assert_eq!(step("Iter #7"), Some((StepFamily::Iter, 7)));
        for text in [
            "step",
            "step3",
            "step 3 of 9",
            "steps 3",
            "iterator 3",
            "epoch 3",
        ] {
            assert_eq!(step(text), None, "{text}");
        }
    }

    #[test]
    fn wrapper_names_are_removed_from_fsdp_names() {
        assert_eq!(
            bracket("FSDP::pre_forward (module.blocks.7._checkpoint_wrapped_module)"),
            Some((FsdpPhase::Forward, true, Some("blocks.7".into())))
        );
        assert_eq!(
            bracket("FSDP::post_backward (_orig_mod.a._fsdp_wrapped_module.b)"),
            Some((FsdpPhase::BackwardCall, false, Some("a.b".into())))
        );
        assert_eq!(
            bracket("FSDP::pre_backward"),
            Some((FsdpPhase::BackwardCall, true, None))
        );
        assert_eq!(bracket("FSDP::all_gather (a)"), None);
    }

    #[test]
    fn names_of_layers_behind_their_kind_are_not_operators() {
        for (text, layer) in [
            (
                "attention::layers.23._checkpoint_wrapped_module.attention",
                Some("layers.23.attention"),
            ),
            ("moe::layers.3", Some("layers.3")),
            ("ffn::_orig_mod.ffn", Some("ffn")),
            ("aten::add.Tensor", None),
            ("aten::mm", None),
            ("torch::autograd::CppNode<a::b.c.d>", None),
            ("layers.3.attention", None),
        ] {
            assert_eq!(kind_and_layer(text).as_deref(), layer, "{text}");
        }
    }

    #[test]
    fn lightning_ranges_have_meanings() {
        use LightningRange::{DataLoading, Module, Optimizer, Other, Phase};
        for (text, meaning) in [
            (
                "[pl][module]torch.nn.modules.linear.Linear: net.0",
                Module("net.0"),
            ),
            ("[pl][module]__main__.Net: ", Module("Net")),
            (
                "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
                DataLoading,
            ),
            (
                "[pl][profile][LightningModule]Net.optimizer_step",
                Optimizer,
            ),
            (
                "[pl][profile][Strategy]SingleDeviceStrategy.training_step",
                Phase(Direction::Fprop),
            ),
            (
                "[pl][profile][Strategy]SingleDeviceStrategy.backward",
                Phase(Direction::Bprop),
            ),
            ("[pl][profile]run_training_batch", Other),
        ] {
            assert_eq!(lightning(text), Some(meaning), "{text}");
        }
        assert_eq!(lightning("[plan][module]x"), None);
    }

    #[test]
    fn operators_and_their_autograd_nodes_share_a_stem() {
        assert_eq!(stem("native_batch_norm"), stem("NativeBatchNorm"));
        assert_eq!(stem("add_"), stem("Add"));
    }

    #[test]
    fn function_stacks_name_modules() {
        let stack =
            "/<module>/net::_call_impl/net::forward/Linear::_call_impl(3)/Linear::forward/linear";
        assert_eq!(module_of_functions(stack).as_deref(), Some("net.Linear_3"));
        assert_eq!(module_of_functions("/main/f"), None);
    }
    #[test]
    fn autograd_nodes_are_distinguished_from_operators() {
        for (text, base, certain) in [
            ("AddmmBackward0", "Addmm", false),
            ("MmBackward", "Mm", false),
            (
                "autograd::engine::evaluate_function: MulBackward1",
                "Mul",
                true,
            ),
            ("torch::autograd::AccumulateGrad", "AccumulateGrad", true),
            ("torch::autograd::CopyBackwards", "Copy", true),
            (
                "autograd::engine::evaluate_function: torch::autograd::CppNode<fbgemm::Lookup_Op>",
                "Lookup_Op",
                true,
            ),
            ("torch::autograd::CppNode<A<b::C>>", "A", true),
        ] {
            let node = autograd(text).unwrap();
            assert_eq!((node.base, node.certain), (base, certain), "{text}");
        }
        for text in [
            "Backward",
            "aten::convolution_backward",
            "my Backward",
            "backward",
        ] {
            assert!(autograd(text).is_none(), "{text}");
        }
    }
}
