//! Classifies range texts, once per distinct text and by their structure. (The original PyProf tool
//! searched for words such as `mod` anywhere in a text and mistook paths for operators.)

use indexmap::IndexMap;
use rayon::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::args::Arguments;
use super::literal::{self, Literal};
use super::model::{ArgsId, Direction, OpName, OpNameId, Vocabulary};
use super::python_frame::{self, PythonFrame};
use super::range_syntax::{
    ATTRIBUTES, AutogradName, COMPILING, DATA_LOADING_WORDS, FRAMEWORK, FsdpPhase, LightningRange,
    StepFamily, autograd, bounded, bracket, is_gradient, is_library_domain, is_nccl_call,
    is_optimizer, is_update, is_warmup, is_word, kind_and_layer, lightning, module_of_functions,
    namespaced, phase, stem, step,
};
use crate::profile::{HostRange, Profile, RangeId, RangeKind, StrId, Strings};

/// The meaning of a range text.
#[derive(Debug, Clone)]
pub(crate) enum RangeClass {
    /// PyProf's `{'mod': .., 'op': .., 'args': [..]}` around a call from Python.
    PyprofMarker {
        args: Option<ArgsId>,
        /// A getter such as `__getattr__`: it launches nothing, and its range stays open if it raises.
        attribute: bool,
    },
    /// PyProf's `{'traceMarker': [..], 'funcStack': ..}` around a marker.
    PyprofTrace {
        line: Option<StrId>,
        module: Option<StrId>,
        update: bool,
    },
    /// PyProf's `{'mod': .., 'strRepr': ..}`: the settings of a module, without its name.
    PyprofModule,
    /// `layer:NAME`.
    Layer(StrId),
    /// A module's call with the module's full name: `[pl][module]...Linear: net.0` of Lightning,
    /// `attention::layers.3.attention` of torchtitan.
    ModuleCall(StrId),
    /// `FSDP::pre_forward (M)` and related texts; `None` is the root module.
    FsdpHook {
        phase: FsdpPhase,
        opens: bool,
        module: Option<StrId>,
    },
    /// `ProfilerStep#3`, `iteration 3`.
    Step {
        family: StepFamily,
        number: u64,
    },
    /// A user's declaration of warm-up.
    Warmup,
    /// Execution of an autograd node; `certain` if it needs no sequence number to be recognized.
    Autograd {
        certain: bool,
        checkpoint: bool,
        /// A custom autograd function written in C++.
        own: bool,
    },
    /// `nn.Module: Linear_15` of a Python stack; the name after the colon.
    Module(StrId),
    /// `train.py(54): main` of a Python stack.
    PythonFrame {
        line: Option<StrId>,
        update: bool,
    },
    DataLoading,
    /// Code is being compiled: Dynamo, Inductor, Triton, NVRTC, nvFuser, C++ extensions.
    Compiling,
    Optimizer,
    /// An internal range of PyTorch or a library.
    Framework,
    /// `aten::mm`, `nccl:all_reduce`.
    Operator,
    /// Anything else: an operator if it carries `seq` or `op_id`, else the user's own name.
    Other {
        phase: Option<Direction>,
    },
}

/// The operator named by a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedOp {
    /// A row of [`RangeInfos::op_names`].
    pub op: OpNameId,
    /// Whether the cost table or a rule knows the operator.
    pub known: bool,
    /// Whether its name marks a gradient computation: `convolution_backward`.
    pub gradient: bool,
    /// Whether its name marks a parameter update: `_fused_adam_`.
    pub update: bool,
    /// The stem shared by an operator and its autograd node, such as `native_batch_norm` and
    /// `NativeBatchNormBackward0`.
    pub stem: StrId,
}

/// A text with its meaning.
#[derive(Debug, Clone)]
pub(crate) struct RangeInfo {
    pub what: RangeClass,
    pub named: Option<NamedOp>,
    /// The text as a label, if it can be one.
    pub label: Option<StrId>,
}

/// How a range takes part in the scope tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeRole {
    Op,
    Autograd,
    User,
    Other,
}

/// The meanings of all range texts of a profile, interned in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct RangeTexts {
    pub texts: Vec<StrId>,
    pub args: Vec<StrId>,
    pub domains: Vec<StrId>,
}

impl RangeTexts {
    pub(crate) fn by_ranges(profile: &Profile) -> RangeTexts {
        let unseen = vec![false; profile.strings.len()];
        let mut seen = [unseen.clone(), unseen.clone(), unseen];
        let mut distinct = RangeTexts::default();
        for range in &profile.ranges {
            let [texts, args, domains] = &mut seen;
            for (id, seen, list) in [
                (Some(range.text), texts, &mut distinct.texts),
                (range.args, args, &mut distinct.args),
                (range.domain, domains, &mut distinct.domains),
            ] {
                if let Some((id, seen)) = id.and_then(|id| Some((id, seen.get_mut(id.idx())?)))
                    && !std::mem::replace(seen, true)
                {
                    list.push(id);
                }
            }
        }
        distinct
    }
}

/// The meanings of all range texts of a profile.
#[derive(Debug)]
pub(crate) struct RangeInfos {
    of_text: Vec<u32>,
    meanings: Vec<RangeInfo>,
    /// Interned operator names.
    pub op_names: Vec<OpName>,
    nothing: RangeInfo,
    /// Whether the ranges of a domain are named by libraries.
    library_domains: FxHashMap<StrId, bool>,
    /// The ranges that name a part of the program's work or of a framework's: neither operators nor
    /// autograd nodes nor functions, of which there may be millions.
    parts: Vec<RangeId>,
}

const UNREAD: u32 = u32::MAX;

impl RangeInfos {
    /// Classifies every distinct range text once.
    pub(crate) fn read(
        profile: &Profile,
        distinct: &RangeTexts,
        vocabulary: &Vocabulary<'_>,
        arguments: &mut Arguments,
        labels: &mut Strings,
    ) -> RangeInfos {
        let mut reader = RangeTextReader {
            vocabulary,
            arguments,
            labels,
            ops: IndexMap::default(),
        };
        let mut texts = RangeInfos {
            of_text: vec![UNREAD; profile.strings.len()],
            meanings: Vec::new(),
            op_names: Vec::new(),
            nothing: plain(RangeClass::Framework),
            library_domains: FxHashMap::default(),
            parts: Vec::new(),
        };
        for text in &distinct.texts {
            if let Some(slot) = texts.of_text.get_mut(text.idx()) {
                *slot = u32::try_from(texts.meanings.len()).unwrap_or(UNREAD);
                texts.meanings.push(reader.meaning(profile.text(*text)));
            }
        }
        let library = |domain: &StrId| (*domain, is_library_domain(profile.text(*domain)));
        texts.library_domains = distinct.domains.iter().map(library).collect();
        texts.op_names = reader.ops.into_keys().collect();
        let rows = profile.ranges.par_iter().enumerate();
        let parts = rows.filter(|(_, range)| texts.is_part(range));
        texts.parts = parts.map(|(at, _)| RangeId::new(at)).collect();
        texts
    }

    /// Whether a range names a part of the work, so that it is one of [`RangeInfos::parts`].
    fn is_part(&self, range: &HostRange) -> bool {
        let meaning = self.of(range);
        match meaning.what {
            RangeClass::FsdpHook { .. }
            | RangeClass::Step { .. }
            | RangeClass::Warmup
            | RangeClass::Compiling => true,
            RangeClass::Operator => false,
            _ => self.role(range, meaning) == RangeRole::User,
        }
    }

    /// The meaning of the text of a range.
    pub(crate) fn of(&self, range: &HostRange) -> &RangeInfo {
        self.of_text
            .get(range.text.idx())
            .and_then(|m| self.meanings.get(*m as usize))
            .unwrap_or(&self.nothing)
    }

    /// Per text of the profile: whether ranges with it have a meaning accepted by the predicate.
    pub(crate) fn texts_with(&self, such: impl Fn(&RangeInfo) -> bool) -> Vec<bool> {
        let such: Vec<bool> = self.meanings.iter().map(such).collect();
        let meanings = self.of_text.iter().map(|meaning| *meaning as usize);
        meanings
            .map(|meaning| such.get(meaning) == Some(&true))
            .collect()
    }

    /// Whether any range has a meaning accepted by the predicate.
    pub(crate) fn any(&self, such: impl Fn(&RangeInfo) -> bool) -> bool {
        self.meanings.iter().any(such)
    }

    /// The ranges that name a part of the work, in the order of the profile, with a meaning accepted by the
    /// predicate: hooks of FSDP, steps, warm-up, compilation, and those of [`RangeRole::User`].
    pub(crate) fn parts<'a>(
        &'a self,
        profile: &'a Profile,
        such: impl Fn(&RangeInfo) -> bool + 'a,
    ) -> impl Iterator<Item = (RangeId, &'a HostRange, &'a RangeInfo)> {
        let ranges = self.parts.iter();
        let ranges = ranges.filter_map(|id| Some((*id, profile.range(*id)?)));
        ranges
            .map(|(id, range)| (id, range, self.of(range)))
            .filter(move |(.., meaning)| such(meaning))
    }

    /// How a range takes part in the scope tree, given the meaning of its text.
    pub(crate) fn role(&self, range: &HostRange, meaning: &RangeInfo) -> RangeRole {
        let carries = range.kind == RangeKind::CpuOp
            || range.seq.is_some()
            || range.op_id.is_some()
            || (range.kind == RangeKind::PushPop && range.args.is_some());
        match meaning.what {
            RangeClass::PyprofMarker { .. } | RangeClass::Operator => RangeRole::Op,
            RangeClass::Autograd { certain, .. } if certain || carries => RangeRole::Autograd,
            RangeClass::Other { .. } if carries => RangeRole::Op,
            RangeClass::Autograd { .. } | RangeClass::Other { .. } => {
                let library = range
                    .domain
                    .is_some_and(|d| self.library_domains.get(&d) == Some(&true));
                if library || range.kind == RangeKind::Python {
                    RangeRole::Other
                } else {
                    RangeRole::User
                }
            }
            RangeClass::Optimizer | RangeClass::DataLoading => RangeRole::User,
            _ => RangeRole::Other,
        }
    }
}

struct RangeTextReader<'a, 'v> {
    vocabulary: &'a Vocabulary<'v>,
    arguments: &'a mut Arguments,
    labels: &'a mut Strings,
    ops: IndexMap<OpName, NamedOp, FxBuildHasher>,
}

impl RangeTextReader<'_, '_> {
    fn meaning(&mut self, text: &str) -> RangeInfo {
        let text = text.trim();
        if text.starts_with('{')
            && let Some(meaning) = self.pyprof(text)
        {
            return meaning;
        }
        if let Some(name) = text.strip_prefix("layer:").filter(|n| !n.trim().is_empty()) {
            return plain(RangeClass::Layer(self.labels.intern(&bounded(name.trim()))));
        }
        if let Some((phase, opens, module)) = bracket(text) {
            let module = module.map(|m| self.labels.intern(&bounded(&m)));
            return plain(RangeClass::FsdpHook {
                phase,
                opens,
                module,
            });
        }
        if let Some((family, number)) = step(text) {
            return plain(RangeClass::Step { family, number });
        }
        if let Some(range) = lightning(text) {
            return self.lightning(text, range);
        }
        if let Some(layer) = kind_and_layer(text) {
            return plain(RangeClass::ModuleCall(self.labels.intern(&bounded(&layer))));
        }
        if is_warmup(text) {
            return plain(RangeClass::Warmup);
        }
        if COMPILING.iter().any(|part| text.contains(part)) {
            return plain(RangeClass::Compiling);
        }
        if let Some(name) = text.strip_prefix("nn.Module: ") {
            return plain(RangeClass::Module(self.labels.intern(&bounded(name))));
        }
        if text.contains("): ")
            && let Some(frame) = PythonFrame::parse(text)
        {
            let line = (!frame.is_internal()).then(|| self.labels.intern(&frame.short()));
            return plain(RangeClass::PythonFrame {
                line,
                update: frame.is_update(),
            });
        }
        self.by_name(text)
    }

    fn lightning(&mut self, text: &str, range: LightningRange<'_>) -> RangeInfo {
        let mut label = || Some(self.labels.intern(&bounded(text)));
        match range {
            LightningRange::Module(name) => {
                plain(RangeClass::ModuleCall(self.labels.intern(&bounded(name))))
            }
            LightningRange::DataLoading => labelled(RangeClass::DataLoading, label()),
            LightningRange::Optimizer => labelled(RangeClass::Optimizer, label()),
            LightningRange::Phase(direction) => plain(RangeClass::Other {
                phase: Some(direction),
            }),
            LightningRange::Other => plain(RangeClass::Framework),
        }
    }

    /// The meaning of a text that is a Python dictionary.
    fn pyprof(&mut self, text: &str) -> Option<RangeInfo> {
        let entries = match literal::parse(text) {
            Ok(Literal::Dict(entries)) => entries,
            _ => literal::leading_entries(text),
        };
        let get = |key: &str| literal::lookup(&entries, key);
        if let Some(frames) = get("traceMarker").and_then(Literal::items) {
            let (line, update) = python_frame::innermost(frames.iter().filter_map(Literal::as_str));
            let module = get("funcStack")
                .and_then(Literal::as_str)
                .and_then(module_of_functions);
            return Some(plain(RangeClass::PyprofTrace {
                line: line.map(|l| self.labels.intern(&l)),
                module: module.map(|m| self.labels.intern(&m)),
                update,
            }));
        }
        if get("strRepr").is_some() {
            return Some(plain(RangeClass::PyprofModule));
        }
        let module = get("mod")?.as_str()?;
        let name = get("op")?.as_str()?;
        if name == "DataLoader" && module.contains("dataloader") {
            return Some(plain(RangeClass::DataLoading));
        }
        Some(RangeInfo {
            what: RangeClass::PyprofMarker {
                args: get("args").and_then(|list| self.arguments.add_marker(list)),
                attribute: ATTRIBUTES.contains(&name),
            },
            named: Some(self.named(module, name)),
            label: None,
        })
    }

    fn by_name(&mut self, text: &str) -> RangeInfo {
        let label = Some(self.labels.intern(&bounded(text)));
        if let Some(node) = autograd(text) {
            return RangeInfo {
                what: RangeClass::Autograd {
                    certain: node.certain,
                    checkpoint: node.base.starts_with("CheckpointFunction"),
                    own: node.own,
                },
                named: Some(self.autograd_named(node)),
                label,
            };
        }
        if FRAMEWORK.iter().any(|prefix| text.starts_with(prefix)) || is_nccl_call(text) {
            return plain(RangeClass::Framework);
        }
        if text.starts_with("enumerate(DataLoader)#") || is_word(text, &DATA_LOADING_WORDS) {
            return labelled(RangeClass::DataLoading, label);
        }
        if is_optimizer(text) {
            return labelled(RangeClass::Optimizer, label);
        }
        if let Some((module, name)) = namespaced(text) {
            return RangeInfo {
                what: RangeClass::Operator,
                named: Some(self.named(module, name)),
                label,
            };
        }
        RangeInfo {
            what: RangeClass::Other { phase: phase(text) },
            named: Some(self.named("", &bounded(text))),
            label,
        }
    }

    fn named(&mut self, module: &str, name: &str) -> NamedOp {
        let op = OpName {
            module: module.to_owned(),
            name: name.to_owned(),
        };
        if let Some(named) = self.ops.get(&op) {
            return *named;
        }
        let named = NamedOp {
            op: OpNameId::new(self.ops.len()),
            known: (self.vocabulary.knows_op)(&op),
            gradient: is_gradient(name),
            update: is_update(name),
            stem: self.labels.intern(&stem(name)),
        };
        self.ops.insert(op, named);
        named
    }

    fn autograd_named(&mut self, node: AutogradName<'_>) -> NamedOp {
        let mut named = self.named("", node.name);
        named.stem = self.labels.intern(&stem(node.base));
        named
    }
}

fn plain(what: RangeClass) -> RangeInfo {
    labelled(what, None)
}

fn labelled(what: RangeClass, label: Option<StrId>) -> RangeInfo {
    RangeInfo {
        what,
        named: None,
        label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (RangeInfo, Option<String>) {
        let vocabulary = Vocabulary {
            knows_op: &|op| op.name != "__getattr__",
            is_communication: &|_| false,
        };
        let mut reader = RangeTextReader {
            vocabulary: &vocabulary,
            arguments: &mut Arguments::default(),
            labels: &mut Strings::default(),
            ops: IndexMap::default(),
        };
        let meaning = reader.meaning(text);
        let op = (meaning.named).and_then(|named| reader.ops.get_index(named.op.idx()));
        let display = op.map(|(name, _)| name.display());
        (meaning, display)
    }

    fn meaning_of(text: &str) -> RangeInfo {
        read(text).0
    }

    fn op(text: &str) -> Option<String> {
        read(text).1
    }

    #[test]
    fn markers_are_classified_by_their_keys() {
        let text = "{'mod': 'torch', 'op': 'cat', 'args': []}";
        assert!(matches!(
            meaning_of(text).what,
            RangeClass::PyprofMarker { .. }
        ));
        assert_eq!(op(text).as_deref(), Some("torch.cat"));
        // Contains every word that PyProf searched for, but is not an operator.
        let trace = "{'traceMarker': ['/mod/op/args/type/seq.py:3']}";
        assert!(matches!(
            meaning_of(trace).what,
            RangeClass::PyprofTrace { line: Some(_), .. }
        ));
        assert!(matches!(
            meaning_of("{'mod': 'Linear', 'strRepr': 'x'}").what,
            RangeClass::PyprofModule
        ));
        let cut = "{'mod': 'torch', 'op': 'to', 'args': [<device>]}";
        assert_eq!(op(cut).as_deref(), Some("torch.to"));
        assert!(matches!(
            meaning_of("{a user's text}").what,
            RangeClass::Other { .. }
        ));
    }

    #[test]
    fn operators_are_recognized_by_their_namespace() {
        assert_eq!(op("aten::add.Tensor").as_deref(), Some("aten::add"));
        assert_eq!(op("nccl:all_reduce").as_deref(), Some("nccl::all_reduce"));
        assert!(matches!(
            meaning_of("decode: 3").what,
            RangeClass::Other { .. }
        ));
        assert!(matches!(meaning_of("ncclSend").what, RangeClass::Framework));
    }

    #[test]
    fn other_ranges_are_classified() {
        assert!(matches!(
            meaning_of("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").what,
            RangeClass::DataLoading
        ));
        assert!(matches!(
            meaning_of("Optimizer.step#Adam.step").what,
            RangeClass::Optimizer
        ));
        assert!(matches!(
            meaning_of("## backward ##").what,
            RangeClass::Other {
                phase: Some(Direction::Bprop)
            }
        ));
        assert!(matches!(meaning_of("Warm-up").what, RangeClass::Warmup));
        assert!(matches!(
            meaning_of("layer:enc.0").what,
            RangeClass::Layer(_)
        ));
        assert!(matches!(
            meaning_of("attention::layers.2.attention").what,
            RangeClass::ModuleCall(_)
        ));
        assert!(matches!(
            meaning_of("[pl][profile][_TrainingEpochLoop].train_dataloader_next").what,
            RangeClass::DataLoading
        ));
        assert!(matches!(
            meaning_of("torch/nn/functional.py(12): relu").what,
            RangeClass::PythonFrame { line: None, .. }
        ));
        assert!(matches!(
            meaning_of("model.py(12): forward").what,
            RangeClass::PythonFrame { line: Some(_), .. }
        ));
    }
}
