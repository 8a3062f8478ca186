//! Operator calls: which range is the operator of a launch, its arguments, the direction of the
//! work, and the forward call of a backward one.

use std::sync::Arc;

use rayon::iter::{
    IndexedParallelIterator, IntoParallelIterator, IntoParallelRefIterator, ParallelIterator,
};
use rayon::slice::ParallelSliceMut;
use rustc_hash::FxHashSet;

use super::args::Arguments;
use super::layers::{Brackets, LayerTable};
use super::marker::{Meaning, Named, Phase, Role, Texts, What};
use super::sweep::{self, Context, Tree};
use super::{ArgsId, Direction, LayerId, LayerSource, OpCall, OpCallId, ScopeId};
use crate::handle;
use crate::profile::{Number, Profile, Range, RangeId, StrId, ThreadId};

/// Everything the questions about a scope need.
#[derive(Debug)]
pub(crate) struct Calls<'t, 'p> {
    arguments: &'p Arguments,
    brackets: &'t Brackets,
    tree: &'t Tree<'p>,
    layers: &'t mut LayerTable,
    /// Per autograd node: the forward range that recorded it.
    forwards: &'t Forwards,
    pub calls: Vec<OpCall>,
    /// Per call: equal for equal operator names.
    pub op_ids: Vec<u32>,
    /// Per call: the innermost user source line.
    pub lines: Vec<Option<StrId>>,
    /// The call a scope's range is the operator of.
    call_of_range: Vec<Option<OpCallId>>,
    /// What a launch in a scope belongs to, once it has been asked for.
    call_of_scope: Vec<Answer>,
    backwards: Vec<Backward>,
    /// The backward of a forward operator's scope whose arguments it takes over.
    backward_of: Vec<Option<BackwardId>>,
    /// Forward scopes of backward calls, to be linked once all calls are known.
    pending: Vec<(OpCallId, ScopeId)>,
}

handle! {
    /// A row of [`Calls::backwards`].
    BackwardId,
}

/// The backward of one forward call: one call too, however many autograd nodes the forward recorded.
/// `F.cross_entropy` records two, a recurrent cell five, and each would claim the cost of all.
#[derive(Debug)]
struct Backward {
    call: OpCallId,
    /// Numbers of the nodes run so far. One that comes again begins another pass over the graph. Most
    /// operators record just one.
    first: u64,
    others: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    NotAsked,
    NoOperator,
    Call(OpCallId),
}

/// Where some work stands: its scope, and thread and time for what is not a scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub scope: Option<ScopeId>,
    pub thread: ThreadId,
    pub time: i64,
}

/// What is known of work apart from its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub layer: Option<LayerId>,
    pub direction: Direction,
    pub recomputed: bool,
    pub line: Option<StrId>,
}

impl<'t, 'p> Calls<'t, 'p> {
    pub(crate) fn new(
        brackets: &'t Brackets,
        tree: &'t Tree<'p>,
        layers: &'t mut LayerTable,
        forwards: &'t Forwards,
    ) -> Self {
        Calls {
            arguments: tree.arguments,
            brackets,
            tree,
            layers,
            forwards,
            calls: Vec::new(),
            op_ids: Vec::new(),
            lines: Vec::new(),
            call_of_range: vec![None; tree.scopes.len()],
            call_of_scope: vec![Answer::NotAsked; tree.scopes.len()],
            backwards: Vec::new(),
            backward_of: vec![None; tree.scopes.len()],
            pending: Vec::new(),
        }
    }

    /// The operator call a launch belongs to, if any range around it names an operator.
    pub(crate) fn call_of(&mut self, spot: Spot) -> Option<OpCallId> {
        let scope = spot.scope?;
        match self.call_of_scope.get(scope.idx())? {
            Answer::Call(call) => return Some(*call),
            Answer::NoOperator => return None,
            Answer::NotAsked => {}
        }
        let call = self.choose(scope).and_then(|c| self.call(c, scope, spot));
        if let Some(slot) = self.call_of_scope.get_mut(scope.idx()) {
            *slot = call.map_or(Answer::NoOperator, Answer::Call);
        }
        call
    }

    /// Links backward calls to forward calls that launched something themselves.
    pub(crate) fn link_forwards(&mut self) {
        for (call, forward) in std::mem::take(&mut self.pending) {
            let id = self.call_of_range.get(forward.idx()).copied().flatten();
            if let Some(call) = self.calls.get_mut(call.idx()) {
                call.forward = id;
            }
        }
    }

    /// Which range is the operator, in order of preference.
    fn choose(&self, scope: ScopeId) -> Option<Choice> {
        let context = *self.tree.context(scope)?;
        let own = |operator: ScopeId| Choice {
            range: operator,
            operator,
            from_forward: false,
        };
        let node = match context.node {
            Some(node) if !context.flags.recomputed => node,
            // Outside autograd: the innermost operator with arguments, else the innermost; without
            // any the cost table knows, one that at least names the work.
            _ => {
                let known = context.with_args.or(context.known);
                return known.or(context.recorded).map(own);
            }
        };
        if let Some(leaf) = context.with_args {
            return Some(own(leaf));
        }
        let forward = self.forward_operator(node);
        let forward_choice = |operator| Choice {
            range: node,
            operator,
            from_forward: true,
        };
        if let Some((operator, true)) = forward {
            return Some(forward_choice(operator));
        }
        context
            .known
            .map(own)
            .or(forward.map(|(operator, _)| forward_choice(operator)))
            .or(Some(own(node)))
    }

    /// The operator of the forward range that recorded an autograd node, and whether it has
    /// arguments.
    fn forward_operator(&self, node: ScopeId) -> Option<(ScopeId, bool)> {
        let forward = self.forwards.of(node)?;
        let context = self.tree.context(forward)?;
        match (context.with_args, context.known) {
            (Some(operator), _) => Some((operator, true)),
            (None, Some(operator)) => Some((operator, false)),
            (None, None) => None,
        }
    }

    fn call(&mut self, choice: Choice, scope: ScopeId, spot: Spot) -> Option<OpCallId> {
        if let Some(call) = self
            .call_of_range
            .get(choice.range.idx())
            .copied()
            .flatten()
        {
            return Some(call);
        }
        if let Some(call) = self.joined(choice) {
            self.remember(choice.range, call);
            return Some(call);
        }
        let (range_id, range, _) = self.tree.range(choice.range)?;
        let (_, operator, meaning) = self.tree.range(choice.operator)?;
        let named = meaning.named.as_ref()?;
        let args = self
            .message_args(choice.operator)
            .or_else(|| self.args_of(operator, meaning));
        let context = *self.tree.context(scope)?;
        let spot = Spot {
            time: range.span.start,
            ..spot
        };
        let setting = self.setting(spot, Some(named));
        let node = context.node.filter(|_| !context.flags.recomputed);
        let id = OpCallId::new(self.calls.len());
        if let Some((forward, _)) = node.and_then(|n| self.forward_operator(n)) {
            self.pending.push((id, forward));
        }
        self.calls.push(OpCall {
            range: range_id,
            op: Arc::clone(&named.op),
            args,
            args_from_forward: choice.from_forward && args.is_some(),
            direction: setting.direction,
            recomputed: setting.recomputed,
            layer: setting.layer,
            seq: self.seq_of(&context, node),
            forward: None,
            step: None,
        });
        self.op_ids.push(named.id);
        self.lines.push(setting.line);
        if let Some(seq) = self.joins(choice) {
            if let Some(slot) = self.backward_of.get_mut(choice.operator.idx()) {
                *slot = Some(BackwardId::new(self.backwards.len()));
            }
            self.backwards.push(Backward {
                call: id,
                first: seq,
                others: Vec::new(),
            });
        }
        self.remember(choice.range, id);
        Some(id)
    }

    fn remember(&mut self, range: ScopeId, call: OpCallId) {
        if let Some(slot) = self.call_of_range.get_mut(range.idx()) {
            *slot = Some(call);
        }
    }

    /// The number of a node that shares a call with the other nodes of its forward operator.
    fn joins(&self, choice: Choice) -> Option<u64> {
        choice
            .from_forward
            .then(|| self.tree.node_seq(choice.range))
            .flatten()
    }

    /// The call another node of the same forward operator has made in this pass.
    fn joined(&mut self, choice: Choice) -> Option<OpCallId> {
        /// More nodes than any operator records; bounds the work on hostile files.
        const MOST_NODES: usize = 64;
        let seq = self.joins(choice)?;
        let backward = (*self.backward_of.get(choice.operator.idx())?)?;
        let backward = self.backwards.get_mut(backward.idx())?;
        let again = backward.first == seq || backward.others.contains(&seq);
        if again || backward.others.len() + 1 >= MOST_NODES {
            return None;
        }
        backward.others.push(seq);
        Some(backward.call)
    }

    fn args_of(&self, range: &Range, meaning: &Meaning) -> Option<ArgsId> {
        match meaning.what {
            What::Marker { args, .. } => args,
            _ => self.arguments.of(range.args).args,
        }
    }

    /// For the range a process group opens inside the one that records its message: size, type and
    /// group are written down there, the inner `nccl:all_reduce` has shapes at most.
    fn message_args(&self, scope: ScopeId) -> Option<ArgsId> {
        let (.., inner) = self.tree.range(scope)?;
        let parent = self.tree.scopes.get(scope.idx())?.parent?;
        let (_, recorded, outer) = self.tree.range(parent)?;
        let is = |meaning: &Meaning, name: fn(&super::OpName) -> bool| {
            meaning.named.as_ref().is_some_and(|named| name(&named.op))
        };
        let pair =
            is(inner, |op| op.module == "nccl") && is(outer, |op| op.name == "record_param_comms");
        self.arguments.of(recorded.args.filter(|_| pair)).args
    }

    /// An autograd node's number says which forward call it belongs to; what runs inside it has
    /// none that means anything.
    fn seq_of(&self, context: &Context, node: Option<ScopeId>) -> Option<u64> {
        match node {
            Some(node) => self.tree.node_seq(node),
            None => self.tree.range(context.seq?)?.1.seq.map(Number::get),
        }
    }

    /// Layer, direction and source line of work at a spot.
    pub(crate) fn setting(&mut self, spot: Spot, op: Option<&Named>) -> Setting {
        let context = spot.scope.and_then(|s| self.tree.context(s).copied());
        let (direction, recomputed) = self.direction(context.as_ref(), op, spot);
        let node = context.and_then(|c| c.node.filter(|_| !c.flags.recomputed));
        let forward = node.and_then(|n| self.forwards.of(n));
        let inherited = forward.map(|f| {
            let range = self.tree.range(f).map(|(_, range, _)| range);
            Spot {
                scope: Some(f),
                thread: range.map_or(spot.thread, |r| r.thread),
                time: range.map_or(spot.time, |r| r.span.start),
            }
        });
        let (name, line) = match inherited.map(|i| self.layer_name(i)) {
            Some((Some(name), line)) => (Some(name), line),
            _ => self.layer_name(spot),
        };
        Setting {
            layer: name.map(|(source, label)| self.layers.intern(source, label, self.tree.labels)),
            direction,
            recomputed,
            line,
        }
    }

    /// The line that replays a graph is the same for all kernels in it: it says nothing of where in
    /// the model they belong.
    pub(crate) fn without_source_line(&self, setting: Setting) -> Setting {
        let named_by_line = setting
            .layer
            .and_then(|id| self.layers.layers.get(id.idx()))
            .is_some_and(|layer| layer.source == LayerSource::SourceLine);
        Setting {
            layer: setting.layer.filter(|_| !named_by_line),
            ..setting
        }
    }

    /// The best name for where a spot is in the model, and its source line.
    fn layer_name(&self, spot: Spot) -> (Option<(LayerSource, StrId)>, Option<StrId>) {
        let place = spot
            .scope
            .and_then(|s| self.tree.context(s))
            .map(|c| self.tree.places.get(c.place))
            .unwrap_or_default();
        let bracket = self.brackets.at(spot.thread, spot.time);
        let name = [
            (LayerSource::LayerRange, place.layer),
            (LayerSource::Fsdp, bracket.and_then(|b| b.module)),
            (LayerSource::Module, place.module),
            (LayerSource::UserRange, place.user),
            (LayerSource::SourceLine, place.line),
        ]
        .into_iter()
        .find_map(|(source, label)| Some((source, label?)));
        (name, place.line)
    }

    /// Whether autograd recorded the work around a scope: forward work, whatever the user's own
    /// range around it is called. Old `emit_nvtx` prints the counter also where nothing is
    /// recorded; there it stays 0.
    fn is_recorded(&self, context: &Context) -> bool {
        let numbered = context.seq.and_then(|s| self.tree.range(s));
        numbered.is_some_and(|(_, range, _)| {
            sweep::has_modern_seq(range) || range.seq.is_some_and(|seq| seq.get() > 0)
        })
    }

    /// Direction of the work, and whether it is forward work done again. The strongest evidence
    /// first; without any, unknown.
    fn direction(
        &self,
        context: Option<&Context>,
        op: Option<&Named>,
        spot: Spot,
    ) -> (Direction, bool) {
        let flags = context.map(|c| c.flags).unwrap_or_default();
        let in_node = context.is_some_and(|c| c.node.is_some());
        let named_update = op.is_some_and(|o| o.update) && !in_node;
        if flags.update_range || flags.update_frame || named_update {
            return (Direction::Update, false);
        }
        if in_node {
            return if flags.recomputed {
                (Direction::Fprop, true)
            } else {
                (Direction::Bprop, false)
            };
        }
        if op.is_some_and(|o| o.gradient) {
            return (Direction::Bprop, false);
        }
        if context.is_some_and(|c| self.is_recorded(c)) {
            return (Direction::Fprop, false);
        }
        if let Some(phase) = context.and_then(|c| c.phase) {
            return (phase, false);
        }
        if let Some(open) = self.brackets.at(spot.thread, spot.time) {
            let direction = match open.phase {
                Phase::Forward => Direction::Fprop,
                Phase::Backward => Direction::Bprop,
            };
            return (direction, false);
        }
        // Between the nodes of an engine thread gradients are summed up.
        let engine = self.tree.engine_thread.get(spot.thread.idx());
        if engine.copied().unwrap_or(false) {
            return (Direction::Bprop, false);
        }
        if flags.called || context.is_some_and(|c| c.seq.is_some()) {
            return (Direction::Fprop, false);
        }
        (Direction::Unknown, false)
    }
}

/// The range that makes a call, and the one that names its operator and arguments: the same,
/// except for a backward node that takes both from its forward call.
#[derive(Debug, Clone, Copy)]
struct Choice {
    range: ScopeId,
    operator: ScopeId,
    from_forward: bool,
}

/// Finds, for every autograd node around a launch, the forward range that recorded it, and makes
/// sure that range has a scope.
///
/// The counter is read by every operator and advanced by the one that records the node, so of the
/// ranges that carry a node's number the last one opened before the node is its origin: the
/// innermost of `linear` and `view`, both numbered 46533. Numbers are counted per thread; where a
/// thread recomputes forward work, its own numbers collide with those of the forward thread. So an
/// origin of the node's name is preferred, and one that was itself recomputed only for the nodes
/// that run inside another node. Functions written in C++ record no range of their own: what carries
/// their number is something that ran just before.
pub(crate) fn forwards(profile: &Profile, texts: &Texts, tree: &mut Tree<'_>) -> Forwards {
    let nodes = numbered_nodes(profile, tree);
    if nodes.is_empty() {
        return Forwards::default();
    }
    let wanted: FxHashSet<(u32, u64)> = nodes.iter().map(|n| (n.process, n.seq)).collect();
    let mut origins = origins(profile, texts, tree, &wanted);
    origins.par_sort_unstable_by_key(|o| (o.process, o.seq, o.start, o.range));
    let chosen: Vec<(ScopeId, RangeId)> = nodes
        .par_iter()
        .filter_map(|n| Some((n.scope, origin_of(n, &origins)?)))
        .collect();
    let ranges: Vec<RangeId> = chosen.iter().map(|(_, range)| *range).collect();
    tree.add_ranges(&ranges);
    let mut forwards = Forwards(vec![None; tree.scopes.len()]);
    for (node, range) in chosen {
        if let Some(slot) = forwards.0.get_mut(node.idx()) {
            *slot = tree.scope_of(range);
        }
    }
    forwards
}

/// Per scope that is an autograd node: the forward range that recorded it.
#[derive(Debug, Default)]
pub(crate) struct Forwards(Vec<Option<ScopeId>>);

impl Forwards {
    fn of(&self, node: ScopeId) -> Option<ScopeId> {
        *self.0.get(node.idx())?
    }
}

#[derive(Debug, Clone, Copy)]
struct NumberedNode {
    scope: ScopeId,
    process: u32,
    seq: u64,
    start: i64,
    stem: Option<StrId>,
    reentrant: bool,
}

#[derive(Debug, Clone, Copy)]
struct Origin {
    process: u32,
    seq: u64,
    start: i64,
    range: RangeId,
    stem: Option<StrId>,
    recomputed: bool,
}

fn numbered_nodes(profile: &Profile, tree: &Tree<'_>) -> Vec<NumberedNode> {
    (0..tree.scopes.len())
        .into_par_iter()
        .map(ScopeId::new)
        .filter_map(|scope| {
            let context = tree.context(scope)?;
            if context.node != Some(scope) {
                return None;
            }
            let (_, range, meaning) = tree.range(scope)?;
            if matches!(meaning.what, What::Autograd { own: true, .. }) {
                return None;
            }
            Some(NumberedNode {
                scope,
                process: profile.threads.get(range.thread.idx())?.process.row(),
                seq: tree.node_seq(scope)?,
                start: range.span.start,
                stem: meaning.named.as_ref().map(|n| n.stem),
                reentrant: context.flags.reentrant,
            })
        })
        .collect()
}

fn origins(
    profile: &Profile,
    texts: &Texts,
    tree: &Tree<'_>,
    wanted: &FxHashSet<(u32, u64)>,
) -> Vec<Origin> {
    (profile.ranges.par_iter())
        .enumerate()
        .filter_map(|(id, range)| {
            let seq = range.seq?.get();
            let process = profile.threads.get(range.thread.idx())?.process.row();
            if !wanted.contains(&(process, seq)) {
                return None;
            }
            let meaning = texts.of(range);
            let named = meaning.named.as_ref()?;
            if texts.role(range, meaning) != Role::Op || named.gradient {
                return None;
            }
            Some(Origin {
                process,
                seq,
                start: range.span.start,
                range: RangeId::new(id),
                stem: Some(named.stem),
                recomputed: tree.recomputed.get(id).copied().unwrap_or(false),
            })
        })
        .collect()
}

/// The origin of a node among the ranges with its number, sorted.
fn origin_of(node: &NumberedNode, origins: &[Origin]) -> Option<RangeId> {
    /// More ranges of one number than any operator nests; bounds the work on hostile files.
    const LOOK_BACK: usize = 64;
    let before = origins
        .partition_point(|o| (o.process, o.seq, o.start) < (node.process, node.seq, node.start));
    let mut best: Option<((bool, bool), RangeId)> = None;
    let earlier = origins.get(..before).unwrap_or_default();
    for origin in earlier.iter().rev().take(LOOK_BACK) {
        if (origin.process, origin.seq) != (node.process, node.seq) {
            break;
        }
        let score = (
            origin.recomputed == node.reentrant,
            origin.stem == node.stem,
        );
        if best.is_none_or(|(high, _)| score > high) {
            best = Some((score, origin.range));
        }
    }
    best.map(|(_, range)| range)
}
