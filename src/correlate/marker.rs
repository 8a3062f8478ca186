//! What the text of a range is, decided once per distinct text and by its structure: PyProf's own
//! tool looked for words such as `mod` anywhere in a text and took paths for operators.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::args::Arguments;
use super::literal::{self, Literal};
use super::source::{self, Frame};
use super::{ArgsId, Direction, OpName, Vocabulary};
use crate::profile::{Profile, Range, RangeKind, StrId, Strings};

/// What a text is.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// PyProf's `{'mod': .., 'op': .., 'args': [..]}` around a call from Python.
    Marker {
        args: Option<ArgsId>,
        /// A getter such as `__getattr__`: no work of its own, and left open when it raises.
        attribute: bool,
    },
    /// PyProf's `{'traceMarker': [..], 'funcStack': ..}` around a marker.
    Trace {
        line: Option<StrId>,
        module: Option<StrId>,
        update: bool,
    },
    /// PyProf's `{'mod': .., 'strRepr': ..}`: a module's settings, no name.
    ModuleRepr,
    /// `layer:NAME`.
    Layer(StrId),
    /// `FSDP::pre_forward (M)` and kin; `None` is the root module.
    Bracket {
        phase: Phase,
        opens: bool,
        module: Option<StrId>,
    },
    /// `ProfilerStep#3`, `iteration 3`.
    Step {
        family: StepFamily,
        number: u64,
    },
    /// The user's declaration that what runs inside is warm-up.
    Warmup,
    /// A node of the autograd graph being run; `certain` even without a sequence number.
    Autograd {
        certain: bool,
        checkpoint: bool,
    },
    /// `nn.Module: Linear_15` of a Python stack; the name behind the colon.
    Module(StrId),
    /// `train.py(54): main` of a Python stack.
    Frame {
        line: Option<StrId>,
        update: bool,
    },
    DataLoading,
    Optimizer,
    /// Bookkeeping of PyTorch or a library.
    Framework,
    /// `aten::mm`, `nccl:all_reduce`.
    Operator,
    /// Anything else: an operator if it carries `seq` or `op_id`, else the user's own name.
    Bare {
        phase: Option<Direction>,
    },
}

/// Which pass an FSDP bracket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Forward,
    Backward,
}

/// Which spelling numbered a step; the first in order of trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StepFamily {
    ProfilerStep,
    Step,
    Iteration,
    Iter,
}

/// An operator a text names.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub op: Arc<OpName>,
    /// Equal for equal names.
    pub id: u32,
    /// The cost table or a rule understands it.
    pub known: bool,
    /// Computes a gradient, by its name: `convolution_backward`.
    pub gradient: bool,
    /// Updates parameters, by its name: `_fused_adam_`.
    pub update: bool,
    /// `native_batch_norm` and `NativeBatchNormBackward0` agree in this.
    pub stem: StrId,
}

/// A text with its meaning.
#[derive(Debug, Clone)]
pub(crate) struct Meaning {
    pub what: What,
    pub named: Option<Named>,
    /// The text as a label, where it may serve as one.
    pub label: Option<StrId>,
}

/// How a range takes part in the sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Op,
    Autograd,
    User,
    Other,
}

/// The meanings of all range texts of a profile.
#[derive(Debug)]
pub(crate) struct Texts {
    of_text: Vec<u32>,
    meanings: Vec<Meaning>,
    nothing: Meaning,
    library_domains: Vec<StrId>,
}

const UNREAD: u32 = u32::MAX;

impl Texts {
    /// Reads every distinct range text once.
    pub(crate) fn read(
        profile: &Profile,
        vocabulary: &Vocabulary<'_>,
        arguments: &mut Arguments,
        labels: &mut Strings,
    ) -> Texts {
        let mut reader = TextReader {
            vocabulary,
            arguments,
            labels,
            ops: FxHashMap::default(),
        };
        let mut texts = Texts {
            of_text: vec![UNREAD; profile.strings.len()],
            meanings: Vec::new(),
            nothing: Meaning {
                what: What::Framework,
                named: None,
                label: None,
            },
            library_domains: Vec::new(),
        };
        for range in &profile.ranges {
            if let Some(slot) = texts.of_text.get_mut(range.text.idx())
                && *slot == UNREAD
            {
                *slot = u32::try_from(texts.meanings.len()).unwrap_or(UNREAD);
                texts
                    .meanings
                    .push(reader.meaning(profile.text(range.text)));
            }
            if let Some(domain) = range.domain
                && !texts.library_domains.contains(&domain)
                && is_library_domain(profile.text(domain))
            {
                texts.library_domains.push(domain);
            }
        }
        texts
    }

    /// What the text of a range is.
    pub(crate) fn of(&self, range: &Range) -> &Meaning {
        self.of_text
            .get(range.text.idx())
            .and_then(|m| self.meanings.get(*m as usize))
            .unwrap_or(&self.nothing)
    }

    /// How a range takes part in the sweep, given what its text is.
    pub(crate) fn role(&self, range: &Range, meaning: &Meaning) -> Role {
        let carries = range.kind == RangeKind::CpuOp
            || range.seq.is_some()
            || range.op_id.is_some()
            || (range.kind == RangeKind::PushPop && range.args.is_some());
        match meaning.what {
            What::Marker { .. } | What::Operator => Role::Op,
            What::Autograd { certain, .. } if certain || carries => Role::Autograd,
            What::Bare { .. } if carries => Role::Op,
            What::Autograd { .. } | What::Bare { .. } => {
                let library = range
                    .domain
                    .is_some_and(|d| self.library_domains.contains(&d));
                if library || range.kind == RangeKind::Python {
                    Role::Other
                } else {
                    Role::User
                }
            }
            What::Optimizer | What::DataLoading => Role::User,
            _ => Role::Other,
        }
    }
}

struct TextReader<'a, 'v> {
    vocabulary: &'a Vocabulary<'v>,
    arguments: &'a mut Arguments,
    labels: &'a mut Strings,
    ops: FxHashMap<OpName, Named>,
}

impl TextReader<'_, '_> {
    fn meaning(&mut self, text: &str) -> Meaning {
        let text = text.trim();
        if text.starts_with('{')
            && let Some(meaning) = self.pyprof(text)
        {
            return meaning;
        }
        if let Some(name) = text.strip_prefix("layer:").filter(|n| !n.trim().is_empty()) {
            return plain(What::Layer(self.labels.intern(&bounded(name.trim()))));
        }
        if let Some((phase, opens, module)) = bracket(text) {
            let module = module.map(|m| self.labels.intern(&bounded(&m)));
            return plain(What::Bracket {
                phase,
                opens,
                module,
            });
        }
        if let Some((family, number)) = step(text) {
            return plain(What::Step { family, number });
        }
        if is_warmup(text) {
            return plain(What::Warmup);
        }
        if let Some(name) = text.strip_prefix("nn.Module: ") {
            return plain(What::Module(self.labels.intern(&bounded(name))));
        }
        if text.contains("): ")
            && let Some(frame) = Frame::parse(text)
        {
            let line = (!frame.is_internal()).then(|| self.labels.intern(&frame.short()));
            return plain(What::Frame {
                line,
                update: frame.is_update(),
            });
        }
        self.by_name(text)
    }

    /// A text that is a Python dictionary.
    fn pyprof(&mut self, text: &str) -> Option<Meaning> {
        let entries = match literal::parse(text) {
            Ok(Literal::Dict(entries)) => entries,
            _ => literal::leading_entries(text),
        };
        let get = |key: &str| literal::lookup(&entries, key);
        if let Some(frames) = get("traceMarker").and_then(Literal::items) {
            let (line, update) = source::innermost(frames.iter().filter_map(Literal::as_str));
            let module = get("funcStack")
                .and_then(Literal::as_str)
                .and_then(module_of_functions);
            return Some(plain(What::Trace {
                line: line.map(|l| self.labels.intern(&l)),
                module: module.map(|m| self.labels.intern(&m)),
                update,
            }));
        }
        if get("strRepr").is_some() {
            return Some(plain(What::ModuleRepr));
        }
        let module = get("mod")?.as_str()?;
        let name = get("op")?.as_str()?;
        if name == "DataLoader" && module.contains("dataloader") {
            return Some(plain(What::DataLoading));
        }
        Some(Meaning {
            what: What::Marker {
                args: get("args").and_then(|list| self.arguments.add_marker(list)),
                attribute: ATTRIBUTES.contains(&name),
            },
            named: Some(self.named(module, name)),
            label: None,
        })
    }

    fn by_name(&mut self, text: &str) -> Meaning {
        let label = Some(self.labels.intern(&bounded(text)));
        if let Some(node) = autograd(text) {
            return Meaning {
                what: What::Autograd {
                    certain: node.certain,
                    checkpoint: node.base.starts_with("CheckpointFunction"),
                },
                named: Some(self.autograd_named(node)),
                label,
            };
        }
        if FRAMEWORK.iter().any(|prefix| text.starts_with(prefix)) || is_nccl_call(text) {
            return plain(What::Framework);
        }
        if text.starts_with("enumerate(DataLoader)#") || is_word(text, &DATA_LOADING_WORDS) {
            return Meaning {
                what: What::DataLoading,
                named: None,
                label,
            };
        }
        if text.starts_with("Optimizer.") || is_word(text, &OPTIMIZER_WORDS) {
            return Meaning {
                what: What::Optimizer,
                named: None,
                label,
            };
        }
        if let Some((module, name)) = namespaced(text) {
            return Meaning {
                what: What::Operator,
                named: Some(self.named(module, name)),
                label,
            };
        }
        let phase = PHASE_WORDS
            .iter()
            .find(|(words, _)| is_word(text, words))
            .map(|(_, direction)| *direction);
        Meaning {
            what: What::Bare { phase },
            named: Some(self.named("", &bounded(text))),
            label,
        }
    }

    fn named(&mut self, module: &str, name: &str) -> Named {
        let op = OpName {
            module: module.to_owned(),
            name: name.to_owned(),
        };
        let id = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        if let Some(named) = self.ops.get(&op) {
            return named.clone();
        }
        let named = Named {
            id,
            known: (self.vocabulary.knows_op)(&op),
            gradient: is_gradient(name),
            update: is_update(name),
            stem: self.labels.intern(&stem(name)),
            op: Arc::new(op.clone()),
        };
        self.ops.insert(op, named.clone());
        named
    }

    fn autograd_named(&mut self, node: Node<'_>) -> Named {
        let mut named = self.named("", node.name);
        named.stem = self.labels.intern(&stem(node.base));
        named
    }
}

fn plain(what: What) -> Meaning {
    Meaning {
        what,
        named: None,
        label: None,
    }
}

/// Getters PyProf wraps although they launch nothing.
const ATTRIBUTES: [&str; 8] = [
    "__getattr__",
    "__setattr__",
    "__getattribute__",
    "__delattr__",
    "__get__",
    "__set__",
    "size",
    "dim",
];

/// Annotations PyTorch and its libraries put around their own machinery.
const FRAMEWORK: [&str; 12] = [
    "FSDP::",
    "FullyShardedDataParallel.",
    "DistributedDataParallel.",
    "DataParallel.",
    "TorchDynamo",
    "Pregraph bytecode",
    "## Call CompiledFxGraph",
    "PyTorch Profiler",
    "record_param_comms",
    "<built-in",
    "autograd::engine::",
    "cudaGraph",
];

/// NVTX domains in which libraries, not users, name ranges.
const LIBRARY_DOMAINS: [&str; 14] = [
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
];

const DATA_LOADING_WORDS: [&str; 6] = [
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

/// Names users give to whole passes.
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

/// Whether a text is one of some words once case and punctuation are gone.
fn is_word(text: &str, words: &[&str]) -> bool {
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

/// `warmup`, `Warm-up`, `warmup iterations`, `warmup 3`.
fn is_warmup(text: &str) -> bool {
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

fn is_library_domain(domain: &str) -> bool {
    let lower = domain.to_ascii_lowercase();
    LIBRARY_DOMAINS.contains(&lower.as_str())
}

/// `ncclSend`: NCCL's own ranges, which some versions push without a domain.
fn is_nccl_call(text: &str) -> bool {
    text.strip_prefix("nccl")
        .and_then(|rest| rest.chars().next())
        .is_some_and(|c| c.is_ascii_uppercase())
}

/// A label of bounded length: profile text can be a megabyte long.
pub(crate) fn bounded(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// `FSDP::pre_forward (blocks.7._fsdp_wrapped_module)`: phase, whether it opens, the module's name
/// without what wrappers add to it. FSDP2 writes no name for the root module.
fn bracket(text: &str) -> Option<(Phase, bool, Option<String>)> {
    let rest = text.strip_prefix("FSDP::")?;
    let (verb, module) = match rest.split_once(" (") {
        Some((verb, module)) => (verb, module.strip_suffix(')')?),
        None => (rest, ""),
    };
    let (phase, opens) = match verb {
        "pre_forward" => (Phase::Forward, true),
        "post_forward" => (Phase::Forward, false),
        "pre_backward" => (Phase::Backward, true),
        "post_backward" => (Phase::Backward, false),
        _ => return None,
    };
    Some((phase, opens, unwrapped(module)))
}

/// Name parts that wrappers insert: FSDP, activation checkpointing, `torch.compile`.
const WRAPPERS: [&str; 3] = [
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
    "_orig_mod",
];

fn unwrapped(module: &str) -> Option<String> {
    let mut parts: Vec<&str> = module
        .split('.')
        .filter(|p| !p.is_empty() && !WRAPPERS.contains(p))
        .collect();
    // DistributedDataParallel keeps its model in `module`.
    let own = parts.iter().take_while(|p| **p == "module").count();
    parts.drain(..own);
    (!parts.is_empty()).then(|| parts.join("."))
}

/// A numbered step: a known word, a separator, digits, nothing else.
fn step(text: &str) -> Option<(StepFamily, u64)> {
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
struct Node<'a> {
    /// `AddmmBackward0`.
    name: &'a str,
    /// `Addmm`.
    base: &'a str,
    certain: bool,
}

/// A node of the autograd graph: `AddmmBackward0`, with or without the engine's own range around
/// it, and the nodes that do not end in `Backward`.
fn autograd(text: &str) -> Option<Node<'_>> {
    let inner = text.strip_prefix("autograd::engine::evaluate_function: ");
    let full = inner.unwrap_or(text);
    let full = full.strip_prefix("struct ").unwrap_or(full);
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
    match base {
        Some(base) if !base.is_empty() => Some(Node {
            name,
            base,
            certain,
        }),
        _ if certain => Some(Node {
            name,
            base: name,
            certain,
        }),
        _ => None,
    }
}

/// `aten::mm` and `nccl:all_reduce`, without the overload in `aten::add.Tensor`.
fn namespaced(text: &str) -> Option<(&str, &str)> {
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
fn is_gradient(name: &str) -> bool {
    name.contains("_backward")
}

/// Operators that exist only to update, clip or scale. `_foreach_` ones also serve elsewhere; the
/// pass they run in is looked at first.
fn is_update(name: &str) -> bool {
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

/// What the name of an operator and of its autograd node have in common.
fn stem(name: &str) -> String {
    name.chars()
        .filter(|c| *c != '_')
        .take(80)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// `net.Linear_3` from PyProf's `/main/net::_call_impl/net::forward/Linear::_call_impl(3)/..`: the
/// modules called, each with the number of its call.
fn module_of_functions(stack: &str) -> Option<String> {
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
    let surplus = path.len().saturating_sub(super::layers::MODULE_PARTS);
    path.drain(..surplus);
    (!path.is_empty()).then(|| bounded(&path.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning_of(text: &str) -> Meaning {
        let vocabulary = Vocabulary {
            knows_op: &|op| op.name != "__getattr__",
            is_communication: &|_| false,
        };
        TextReader {
            vocabulary: &vocabulary,
            arguments: &mut Arguments::default(),
            labels: &mut Strings::default(),
            ops: FxHashMap::default(),
        }
        .meaning(text)
    }

    fn op(text: &str) -> Option<String> {
        meaning_of(text).named.map(|n| n.op.display())
    }

    #[test]
    fn markers_are_known_by_their_keys() {
        let text = "{'mod': 'torch', 'op': 'cat', 'args': []}";
        assert!(matches!(meaning_of(text).what, What::Marker { .. }));
        assert_eq!(op(text).as_deref(), Some("torch.cat"));
        // Every word PyProf looked for, and still not an operator.
        let trace = "{'traceMarker': ['/mod/op/args/type/seq.py:3']}";
        assert!(matches!(
            meaning_of(trace).what,
            What::Trace { line: Some(_), .. }
        ));
        assert!(matches!(
            meaning_of("{'mod': 'Linear', 'strRepr': 'x'}").what,
            What::ModuleRepr
        ));
        let cut = "{'mod': 'torch', 'op': 'to', 'args': [<device>]}";
        assert_eq!(op(cut).as_deref(), Some("torch.to"));
        assert!(matches!(
            meaning_of("{a user's text}").what,
            What::Bare { .. }
        ));
    }

    #[test]
    fn steps_are_clearly_numbered() {
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
    fn fsdp_names_lose_their_wrappers() {
        assert_eq!(
            bracket("FSDP::pre_forward (module.blocks.7._checkpoint_wrapped_module)"),
            Some((Phase::Forward, true, Some("blocks.7".into())))
        );
        assert_eq!(
            bracket("FSDP::post_backward (_orig_mod.a._fsdp_wrapped_module.b)"),
            Some((Phase::Backward, false, Some("a.b".into())))
        );
        assert_eq!(
            bracket("FSDP::pre_backward"),
            Some((Phase::Backward, true, None))
        );
        assert_eq!(bracket("FSDP::all_gather (a)"), None);
    }

    #[test]
    fn autograd_nodes_and_operators_are_told_apart() {
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
        assert_eq!(op("aten::add.Tensor").as_deref(), Some("aten::add"));
        assert_eq!(op("nccl:all_reduce").as_deref(), Some("nccl::all_reduce"));
        assert!(matches!(meaning_of("decode: 3").what, What::Bare { .. }));
        assert!(matches!(meaning_of("ncclSend").what, What::Framework));
    }

    #[test]
    fn names_of_nodes_and_operators_share_a_stem() {
        assert_eq!(stem("native_batch_norm"), stem("NativeBatchNorm"));
        assert_eq!(stem("add_"), stem("Add"));
    }

    #[test]
    fn other_ranges() {
        assert!(matches!(
            meaning_of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").what,
            What::DataLoading
        ));
        assert!(matches!(
            meaning_of("Optimizer.step#Adam.step").what,
            What::Optimizer
        ));
        assert!(matches!(
            meaning_of("## backward ##").what,
            What::Bare {
                phase: Some(Direction::Bprop)
            }
        ));
        assert!(matches!(meaning_of("Warm-up").what, What::Warmup));
        assert!(matches!(meaning_of("layer:enc.0").what, What::Layer(_)));
        assert!(matches!(
            meaning_of("torch/nn/functional.py(12): relu").what,
            What::Frame { line: None, .. }
        ));
        assert!(matches!(
            meaning_of("model.py(12): forward").what,
            What::Frame { line: Some(_), .. }
        ));
    }

    #[test]
    fn function_stacks_name_modules() {
        let stack =
            "/<module>/net::_call_impl/net::forward/Linear::_call_impl(3)/Linear::forward/linear";
        assert_eq!(module_of_functions(stack).as_deref(), Some("net.Linear_3"));
        assert_eq!(module_of_functions("/main/f"), None);
    }
}
