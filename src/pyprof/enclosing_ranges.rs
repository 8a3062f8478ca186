//! The ranges around every launch, by their role in PyProf's output.
//!
//! There are as many ranges as launches, but few distinct ones: only the ranges of `emit_nvtx` contain
//! numbers, and all others repeat. Ranges with numbers are stored individually, all others as
//! *nestings*: one for each distinct chain of ranges, regardless of how often the program enters it.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::{Text, event, marker};
use crate::correlate::literal::{self, Literal};
use crate::correlate::{Run, ScopeId};
use crate::profile::{HostRange, RangeArgs, RangeKind, SerialNumber, StrId};

/// Parts of paths of files whose lines PyProf omits from a trace: those of PyTorch and PyProf.
const OWN_FILES: [&str; 9] = [
    "/torch/nn/modules/",
    "/torch/nn/functional.py",
    "/torch/tensor.py",
    "/torch/autograd/__init__.py",
    "/torch/_jit_internal.py",
    "/pyprof/nvtx/nvmarker.py",
    "/apex/optimizers/",
    "/torch/_utils.py",
    "/torch/optim/",
];

/// The role of a range's text in PyProf's output.
#[derive(Debug, Clone, Default)]
pub(super) enum PyprofRole {
    #[default]
    Other,
    Marker(Box<MarkedOperator>),
    /// The text is `layer:NAME`.
    Layer,
    /// Source lines, without those of PyTorch.
    Trace(Box<[Text]>),
    Repr,
    /// The node of reentrant checkpointing, which PyProf ignores.
    Ignored,
}

/// The names in a marker.
#[derive(Debug, Clone)]
pub(super) struct MarkedOperator {
    pub module: Text,
    pub name: Text,
}

/// The contribution of a range to the context of the launches inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    Marker(StrId),
    Layer(StrId),
    /// Replaces the enclosing trace.
    Trace(StrId),
    Repr(StrId),
    /// A Python frame of torch.profiler.
    Frame(StrId),
}

/// An effect, and the effects that enclose it; the first entry of the table has no effect.
#[derive(Debug, Clone, Copy)]
struct EffectNode {
    below: u32,
    effect: Option<Effect>,
}

/// A key that is equal for ranges that PyProf does not distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RangeIdentity {
    pub text: StrId,
    pub seq: Option<SerialNumber>,
    pub op_id: Option<SerialNumber>,
    /// The arguments; if they are a list of shapes, see [`RangeContexts::sizes`].
    args: Option<StrId>,
}

impl RangeIdentity {
    fn of(range: &HostRange) -> RangeIdentity {
        RangeIdentity {
            text: range.text,
            seq: range.seq,
            op_id: range.op_id,
            args: range.args,
        }
    }
}

/// A chain of ranges without numbers; the first entry of the table is the empty chain.
#[derive(Debug, Clone, Copy, Default)]
struct Nesting {
    /// The nesting that encloses its innermost range.
    outer: u32,
    /// Its innermost range.
    key: Option<RangeIdentity>,
    effects: u32,
    /// The innermost text without a role.
    other: Option<StrId>,
    in_marker: bool,
}

/// A step from one nesting to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    from: u32,
    key: RangeIdentity,
    /// Whether it counts even inside an equal range.
    counted: bool,
    python: bool,
}

/// A range of `emit_nvtx` around a launch, or an operator of torch.profiler.
#[derive(Debug, Clone, Copy)]
struct Numbered {
    key: RangeIdentity,
    /// The next enclosing one, counted from 1; 0 for none.
    outer: u32,
}

/// The ranges around a scope.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RangeChain {
    nesting: u32,
    /// The innermost one, counted from 1; 0 for none.
    numbered: u32,
    /// Arguments of the innermost range with a call stack.
    pub stack: Option<StrId>,
}

/// The ranges around all scopes of a run.
#[derive(Debug)]
pub(super) struct RangeContexts<'r> {
    pub run: &'r Run,
    /// The role of each text.
    bins: Vec<PyprofRole>,
    effects: Vec<EffectNode>,
    nestings: Vec<Nesting>,
    numbered: Vec<Numbered>,
    /// The chain of each scope.
    chains: Vec<RangeChain>,
}

impl<'r> RangeContexts<'r> {
    pub(super) fn of(run: &'r Run) -> RangeContexts<'r> {
        let mut used = vec![false; run.profile.strings.len()];
        for scope in &run.scopes {
            if let Some(range) = run.profile.ranges.get(scope.range.idx())
                && let Some(flag) = used.get_mut(range.text.idx())
            {
                *flag = true;
            }
        }
        let text = |at: usize| run.profile.text(StrId::new(at));
        let around = RangeContexts {
            run,
            bins: (used.par_iter().enumerate())
                .map(|(at, used)| {
                    if *used {
                        bin_of(text(at))
                    } else {
                        PyprofRole::Other
                    }
                })
                .collect(),
            effects: vec![EffectNode {
                below: 0,
                effect: None,
            }],
            nestings: vec![Nesting::default()],
            numbered: Vec::new(),
            chains: Vec::with_capacity(run.scopes.len()),
        };
        let mut growing = Builder {
            around,
            steps: FxHashMap::default(),
            known_effects: FxHashMap::default(),
            stacks: FxHashMap::default(),
        };
        growing.grow();
        growing.around
    }

    /// The ranges around a scope; empty without a scope.
    pub(super) fn chain(&self, scope: Option<ScopeId>) -> RangeChain {
        scope
            .and_then(|scope| self.chains.get(scope.idx()).copied())
            .unwrap_or_default()
    }

    pub(super) fn bin(&self, text: StrId) -> &PyprofRole {
        self.bins.get(text.idx()).unwrap_or(&PyprofRole::Other)
    }

    /// The shapes that `emit_nvtx` prints into a range.
    pub(super) fn sizes(&self, range: &RangeIdentity) -> Option<StrId> {
        let is_list = |args: &StrId| self.run.profile.text(*args).starts_with('[');
        range.args.filter(is_list)
    }

    /// Ranges with numbers, from the innermost outwards.
    pub(super) fn numbered(&self, chain: RangeChain) -> impl Iterator<Item = &RangeIdentity> {
        let mut next = chain.numbered;
        std::iter::from_fn(move || {
            let range = self.numbered.get((next as usize).checked_sub(1)?)?;
            next = range.outer;
            Some(&range.key)
        })
    }

    /// A number that is equal for chains whose ranges without numbers have the same effects.
    pub(super) fn effects_id(&self, chain: RangeChain) -> u32 {
        self.nesting(chain).effects
    }

    /// The effects of the ranges without numbers, outermost first.
    pub(super) fn effects(&self, chain: RangeChain) -> Vec<Effect> {
        let mut next = self.nesting(chain).effects;
        let mut list: Vec<Effect> = std::iter::from_fn(|| {
            let added = self.effects.get(next as usize)?;
            next = added.below;
            added.effect
        })
        .collect();
        list.reverse();
        list
    }

    /// The innermost text without a role.
    pub(super) fn other(&self, chain: RangeChain) -> Option<StrId> {
        self.nesting(chain).other
    }

    /// Whether the launch is inside a PyProf marker.
    pub(super) fn in_marker(&self, chain: RangeChain) -> bool {
        self.nesting(chain).in_marker
    }

    fn nesting(&self, chain: RangeChain) -> Nesting {
        let nesting = self.nestings.get(chain.nesting as usize);
        nesting.copied().unwrap_or_default()
    }
}

/// Builds an [`RangeContexts`].
struct Builder<'r> {
    around: RangeContexts<'r>,
    /// The target of each step, and whether the range counts.
    steps: FxHashMap<Step, (u32, bool)>,
    known_effects: FxHashMap<(u32, Effect), u32>,
    /// Whether the arguments contain a call stack.
    stacks: FxHashMap<StrId, bool>,
}

impl Builder<'_> {
    /// Adds the scopes. The ranges around a scope are its own and those around its parent, which comes
    /// first in the table.
    fn grow(&mut self) {
        let run = self.around.run;
        for scope in &run.scopes {
            let outer = self.around.chain(scope.parent);
            let range = run.profile.ranges.get(scope.range.idx());
            let chain = range.map_or(outer, |range| self.enter(outer, range));
            self.around.chains.push(chain);
        }
    }

    /// Enters a range. A range inside an equal range is skipped, because programs leave hundreds of
    /// equal ranges open.
    fn enter(&mut self, outer: RangeChain, range: &HostRange) -> RangeChain {
        let (inner, kept) =
            if is_operator(range) && matches!(self.around.bin(range.text), PyprofRole::Other) {
                self.enter_numbered(outer, range)
            } else {
                self.enter_nesting(outer, range)
            };
        let stack = range.args.filter(|args| kept && self.holds_stack(*args));
        RangeChain {
            stack: stack.or(outer.stack),
            ..inner
        }
    }

    fn enter_numbered(&mut self, outer: RangeChain, range: &HostRange) -> (RangeChain, bool) {
        let key = RangeIdentity::of(range);
        if self.around.numbered(outer).any(|other| *other == key) {
            return (outer, false);
        }
        self.around.numbered.push(Numbered {
            key,
            outer: outer.numbered,
        });
        let numbered = number(self.around.numbered.len());
        (RangeChain { numbered, ..outer }, true)
    }

    fn enter_nesting(&mut self, outer: RangeChain, range: &HostRange) -> (RangeChain, bool) {
        // A layer inside a layer with the same name counts again, unless it was never closed.
        let layer = matches!(self.around.bin(range.text), PyprofRole::Layer);
        let step = Step {
            from: outer.nesting,
            key: RangeIdentity::of(range),
            counted: layer && range.span.end != i64::MAX,
            python: range.kind == RangeKind::Python,
        };
        let (nesting, kept) = match self.steps.get(&step) {
            Some(known) => *known,
            None => {
                let new = self.take(step);
                self.steps.insert(step, new);
                new
            }
        };
        (RangeChain { nesting, ..outer }, kept)
    }

    /// The target of a new step, and whether the range counts.
    fn take(&mut self, step: Step) -> (u32, bool) {
        let text = step.key.text;
        let kept = step.counted || !self.stands_in(step.from, &step.key);
        let outer = self.around.nestings.get(step.from as usize);
        let mut own = outer.copied().unwrap_or_default();
        own.outer = step.from;
        own.key = Some(step.key);
        let effect = match self.around.bin(text) {
            PyprofRole::Trace(_) => Some(Effect::Trace(text)),
            _ if !kept => return (step.from, false),
            PyprofRole::Marker(_) => {
                own.in_marker = true;
                Some(Effect::Marker(text))
            }
            PyprofRole::Layer => Some(Effect::Layer(text)),
            PyprofRole::Repr => Some(Effect::Repr(text)),
            PyprofRole::Ignored => None,
            PyprofRole::Other => {
                let words = Some(text).filter(|t| !self.around.run.profile.text(*t).is_empty());
                own.other = words.or(own.other);
                None
            }
        };
        let frame = (step.python && kept).then_some(Effect::Frame(text));
        for effect in frame.into_iter().chain(effect) {
            own.effects = self.add(own.effects, effect);
        }
        let nesting = number(self.around.nestings.len());
        self.around.nestings.push(own);
        (nesting, kept)
    }

    fn stands_in(&self, nesting: u32, key: &RangeIdentity) -> bool {
        let mut next = nesting;
        while let Some(nesting) = self.around.nestings.get(next as usize) {
            match &nesting.key {
                None => return false,
                Some(other) if other == key => return true,
                Some(_) => next = nesting.outer,
            }
        }
        false
    }

    fn add(&mut self, below: u32, effect: Effect) -> u32 {
        let effects = &mut self.around.effects;
        *self
            .known_effects
            .entry((below, effect))
            .or_insert_with(|| {
                effects.push(EffectNode {
                    below,
                    effect: Some(effect),
                });
                number(effects.len() - 1)
            })
    }

    fn holds_stack(&mut self, args: StrId) -> bool {
        let profile = &self.around.run.profile;
        let holds = || event::call_stack(profile.text(args)).is_some();
        profile.format.range_args == RangeArgs::TraceEvent
            && *self.stacks.entry(args).or_insert_with(holds)
    }
}

/// The number of a row; tables have at most `u32::MAX` rows.
fn number(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

/// Whether a range is an operator of PyTorch: it has a sequence number or an operator id.
fn is_operator(range: &HostRange) -> bool {
    let nests = matches!(
        range.kind,
        RangeKind::PushPop | RangeKind::CpuOp | RangeKind::Annotation
    );
    nests && (range.seq.is_some() || range.op_id.is_some())
}

/// The name in `layer:NAME`.
pub(super) fn layer_name(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix("layer:")
}

fn bin_of(text: &str) -> PyprofRole {
    if text.trim_start().starts_with('{')
        && let Some(bin) = dictionary(text)
    {
        return bin;
    }
    if layer_name(text).is_some() {
        return PyprofRole::Layer;
    }
    if text.contains("CheckpointFunctionBackward") {
        return PyprofRole::Ignored;
    }
    PyprofRole::Other
}

/// The role of a dictionary of PyProf, by its keys. (PyProf searches the whole text for the words.)
fn dictionary(text: &str) -> Option<PyprofRole> {
    let entries = marker::entries(text);
    let get = |key: &str| literal::lookup(&entries, key);
    if let Some(frames) = get("traceMarker").and_then(Literal::items) {
        let lines = frames.iter().filter_map(Literal::as_str);
        let users = lines.filter(|line| !OWN_FILES.iter().any(|own| line.contains(own)));
        return Some(PyprofRole::Trace(users.map(Text::from).collect()));
    }
    if get("strRepr").is_some() {
        return Some(PyprofRole::Repr);
    }
    Some(PyprofRole::Marker(Box::new(MarkedOperator {
        module: get("mod")?.as_str()?.into(),
        name: get("op")?.as_str()?.into(),
    })))
}
