//! Finds the operator range of a launch, its arguments, the direction of the work, and the forward call
//! of a backward call.

use rayon::iter::{
    IndexedParallelIterator, IntoParallelIterator, IntoParallelRefIterator, ParallelIterator,
};
use rayon::slice::ParallelSliceMut;

use super::layers::{FsdpBrackets, ScopeTraits};
use super::model::{ArgValue, ArgsId, Direction, LayerSource, OpArgs, ScopeId};
use super::range_meaning::{NamedOp, RangeClass, RangeInfo, RangeInfos, RangeRole};
use super::range_syntax::FsdpPhase;
use super::scope_builder::{self, ScopeBuilder};
use super::scope_tree::{ScopeContext, ScopeTree};
use crate::profile::{
    ApiCall, CorrelationMap, HostRange, ProcessId, Profile, RangeId, RowMap, SerialNumber, StrId,
    ThreadId, collective_in,
};

/// Most ranges around that of a process group in which its call is looked for.
const MAX_CALLERS: usize = 4;

/// The data needed to query a scope. It is immutable, so that threads can share it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScopeQuery<'t, 'p> {
    pub brackets: &'t FsdpBrackets,
    pub tree: &'t ScopeTree<'p>,
    /// Per thread: whether it runs autograd nodes and never records a forward operator outside them.
    pub engine_thread: &'t [bool],
    /// Per autograd node: the forward range that recorded it.
    pub forwards: &'t ForwardRanges,
}

/// The position of some work: its scope, and its thread and time for lookups that do not use scopes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchPoint {
    pub scope: Option<ScopeId>,
    pub thread: ThreadId,
    pub time: i64,
}

/// The context of work, apart from its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement<L> {
    pub layer: Option<L>,
    pub direction: Direction,
    pub recomputed: bool,
    pub line: Option<StrId>,
}

/// The best name for the layer of some work.
pub(crate) type LayerName = (LayerSource, StrId);

impl Placement<LayerName> {
    /// The source line that replays a graph is the same for all of its kernels, so it does not identify
    /// their layers.
    pub(crate) fn without_source_line(self) -> Self {
        let layer = (self.layer).filter(|(source, _)| *source != LayerSource::SourceLine);
        Placement { layer, ..self }
    }

    /// This context, with what is unknown in it from another.
    pub(crate) fn or(self, other: Option<Self>) -> Self {
        Placement {
            layer: self.layer.or(other.and_then(|other| other.layer)),
            direction: match (self.direction, other) {
                (Direction::Unknown, Some(other)) => other.direction,
                (direction, _) => direction,
            },
            ..self
        }
    }
}

/// The operator call of a launch, before calls are numbered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpCallDraft<'p> {
    /// The range of the call.
    pub scope: ScopeId,
    /// The range that contains the operator name and the arguments.
    pub operator: ScopeId,
    /// Whether operator and arguments come from the forward call. If so, `node_seq` is the number of
    /// the autograd node.
    pub from_forward: bool,
    pub node_seq: Option<u64>,
    pub range: RangeId,
    pub named: &'p NamedOp,
    pub args: Option<ArgsId>,
    pub placement: Placement<LayerName>,
    /// The forward operator of a backward call.
    pub forward: Option<ScopeId>,
}

impl<'p> ScopeQuery<'_, 'p> {
    /// The operator call of the work at a point, if any range around it names an operator.
    pub(crate) fn draft(&self, point: LaunchPoint) -> Option<OpCallDraft<'p>> {
        let scope = point.scope?;
        let context = *self.tree.context(scope)?;
        let traits = self.tree.traits_of(&context);
        let choice = self.choose(&context, traits)?;
        let (range_id, range, _) = self.tree.range(choice.range)?;
        let (_, operator, meaning) = self.tree.range(choice.operator)?;
        let named = meaning.named.as_ref()?;
        let args = self
            .message_args(choice.operator)
            .or_else(|| self.args_of(operator, meaning));
        let point = LaunchPoint {
            time: range.span.start,
            ..point
        };
        let node = context.node.filter(|_| !traits.flags.recomputed);
        Some(OpCallDraft {
            scope: choice.range,
            operator: choice.operator,
            from_forward: choice.from_forward,
            node_seq: (choice.from_forward)
                .then(|| self.tree.node_seq(choice.range).map(SerialNumber::get))
                .flatten(),
            range: range_id,
            named,
            args,
            placement: self.placement(point, Some(named)),
            forward: node
                .and_then(|node| self.forward_operator(node))
                .map(|(forward, _)| forward),
        })
    }

    /// The range of the operator, by order of preference.
    fn choose(&self, context: &ScopeContext, traits: ScopeTraits) -> Option<OperatorChoice> {
        let own = |operator: ScopeId| OperatorChoice {
            range: operator,
            operator,
            from_forward: false,
        };
        let node = match context.node {
            Some(node) if !traits.flags.recomputed => node,
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
        let forward_choice = |operator| OperatorChoice {
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

    fn args_of(&self, range: &HostRange, meaning: &RangeInfo) -> Option<ArgsId> {
        match meaning.what {
            RangeClass::PyprofMarker { args, .. } => args,
            _ => self.tree.arguments.of(range.args).args,
        }
    }

    /// For the range that a process group opens around its kernels, whose own arguments are the shapes of the
    /// input at most: those of the range that records size, type and group of the message, or else those of an
    /// operator that tells how many ranks share an all-gather or a reduce-scatter.
    fn message_args(&self, scope: ScopeId) -> Option<ArgsId> {
        let op = |scope: ScopeId| {
            let (_, range, meaning) = self.tree.range(scope)?;
            let name = self.tree.op_name(meaning.named?.op)?;
            Some((name, self.tree.arguments.of(range.args).args))
        };
        let parent = |scope: &ScopeId| self.tree.scopes.get(scope.idx())?.parent;
        let table = &self.tree.arguments.table;
        let is = |args: Option<ArgsId>, tells: fn(&OpArgs) -> bool| {
            args.and_then(|id| table.get(id.idx())).is_some_and(tells)
        };
        let (inner, _) = op(scope).filter(|(name, _)| name.module == "nccl")?;
        let around = parent(&scope)?;
        let recorded = op(around).filter(|(name, _)| name.name == "record_param_comms");
        let recorded = recorded.and_then(|(_, args)| args);
        let has_message = |args: &OpArgs| args.get(usize::MAX, "In msg nelems").is_some();
        let differ = matches!(
            collective_in(&inner.name),
            Some("all_gather" | "reduce_scatter")
        );
        if !differ || is(recorded, has_message) {
            return recorded;
        }
        let typed = |args: &OpArgs| args.tensors().all(|tensor| tensor.dtype.is_some());
        let callers = std::iter::successors(Some(around), parent).take(MAX_CALLERS);
        let telling = callers.filter_map(op).find(|(name, args)| {
            let tells = match name.module.as_str() {
                // (output, input)
                "c10d" => |args: &OpArgs| args.items.iter().filter(|a| a.has_tensors()).count() > 1,
                // (input, ..., ranks, group)
                "_c10d_functional" => |args: &OpArgs| {
                    args.items
                        .iter()
                        .any(|a| matches!(a.value, ArgValue::Int(_)))
                },
                _ => return false,
            };
            is(*args, tells) && is(*args, typed)
        });
        telling.and_then(|(_, args)| args).or(recorded)
    }

    /// Layer, direction and source line of work at a point.
    pub(crate) fn placement(
        &self,
        point: LaunchPoint,
        op: Option<&NamedOp>,
    ) -> Placement<LayerName> {
        let context = point.scope.and_then(|s| self.tree.context(s).copied());
        let traits = context.map(|c| self.tree.traits_of(&c)).unwrap_or_default();
        let (direction, recomputed) = self.direction(context.as_ref(), traits, op, point);
        let node = context.and_then(|c| c.node.filter(|_| !traits.flags.recomputed));
        let forward = node.and_then(|n| self.forwards.of(n));
        let inherited = forward.map(|f| {
            let range = self.tree.range(f).map(|(_, range, _)| range);
            LaunchPoint {
                scope: Some(f),
                thread: range.map_or(point.thread, |r| r.thread),
                time: range.map_or(point.time, |r| r.span.start),
            }
        });
        let (layer, line) = match inherited.map(|i| self.layer_name(i)) {
            Some((Some(name), line)) => (Some(name), line),
            _ => self.layer_name(point),
        };
        Placement {
            layer,
            direction,
            recomputed,
            line,
        }
    }

    /// Whether a call in a scope stands in a layer that the profile itself marks: in its forward or backward pass.
    pub(crate) fn is_in_layer(&self, call: &ApiCall, scope: ScopeId) -> bool {
        let point = LaunchPoint {
            scope: Some(scope),
            thread: call.thread,
            time: call.span.start,
        };
        let layer = self.placement(point, None).layer;
        layer.is_some_and(|(source, _)| source.is_around_layers())
    }

    /// The best layer name for a point, and its source line.
    fn layer_name(&self, point: LaunchPoint) -> (Option<LayerName>, Option<StrId>) {
        let names = point
            .scope
            .and_then(|s| self.tree.context(s))
            .map(|c| self.tree.traits_of(c).names)
            .unwrap_or_default();
        let bracket = self.brackets.at(point.thread, point.time);
        let name = [
            (LayerSource::LayerRange, names.layer),
            (LayerSource::Fsdp, bracket.and_then(|b| b.module)),
            (LayerSource::Module, names.module),
            (LayerSource::UserRange, names.user),
            (LayerSource::SourceLine, names.line),
        ]
        .into_iter()
        .find_map(|(source, label)| Some((source, label?)));
        (name, names.line)
    }

    /// Whether autograd recorded the work around a scope: forward work, whatever the user's own
    /// range around it is called. Old `emit_nvtx` prints the counter also where nothing is
    /// recorded; there it stays 0.
    fn is_recorded(&self, context: &ScopeContext) -> bool {
        let numbered = context.seq.and_then(|s| self.tree.range(s));
        numbered.is_some_and(|(_, range, _)| {
            scope_builder::has_modern_seq(range) || range.seq.is_some_and(|seq| seq.get() > 0)
        })
    }

    /// Whether work in an optimizer's range is forward work of a closure: its backward runs in the same
    /// range.
    fn is_closure(&self, context: &ScopeContext, update: ScopeId) -> bool {
        let numbered = context.seq.and_then(|s| self.tree.range(s));
        let (Some((_, range, _)), Some((_, update, _))) = (numbered, self.tree.range(update))
        else {
            return false;
        };
        let Some(seq) = range.seq.map(SerialNumber::get) else {
            return false;
        };
        range.span.start >= update.span.start
            && self
                .forwards
                .node_start(self.tree.process(range), seq, range.span.start)
                .is_some_and(|start| start < update.span.end)
    }

    /// Whether an operator adds to a parameter without an optimizer: `p.data.add_(p.grad, alpha=-lr)`. Nothing
    /// has been recorded since the backward pass began: the node before the operator's number has run.
    fn updates_by_hand(&self, context: &ScopeContext, op: &NamedOp) -> bool {
        let numbered = context.seq.and_then(|s| self.tree.range(s));
        let Some((_, range, _)) = numbered.filter(|(_, range, _)| prints_all_numbers(range)) else {
            return false;
        };
        let adds = self
            .tree
            .op_name(op.op)
            .is_some_and(|op| matches!(&*op.name, "add_" | "addcmul_" | "addcdiv_"));
        let before = range.seq.and_then(|seq| seq.get().checked_sub(1));
        let node = before.filter(|_| adds).and_then(|before| {
            self.forwards
                .node_start(self.tree.process(range), before, i64::MIN)
        });
        node.is_some_and(|start| start < range.span.start)
    }

    /// Direction of the work, and whether it is recomputed forward work. The most reliable criterion is
    /// checked first; if none applies, the direction is unknown.
    fn direction(
        &self,
        context: Option<&ScopeContext>,
        traits: ScopeTraits,
        op: Option<&NamedOp>,
        point: LaunchPoint,
    ) -> (Direction, bool) {
        let flags = traits.flags;
        let in_node = context.is_some_and(|c| c.node.is_some());
        let named_update = op.is_some_and(|o| o.update) && !in_node;
        if let Some((context, update)) = context.and_then(|c| Some((c, c.update?))) {
            return match self.is_closure(context, update) {
                true => (Direction::Fprop, false),
                false => (Direction::Update, false),
            };
        }
        if flags.update_frame || named_update {
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
        if let Some((context, op)) = context.zip(op)
            && self.updates_by_hand(context, op)
        {
            return (Direction::Update, false);
        }
        if context.is_some_and(|c| self.is_recorded(c)) {
            return (Direction::Fprop, false);
        }
        if let Some(phase) = traits.phase {
            return (phase, false);
        }
        if let Some(open) = self.brackets.at(point.thread, point.time) {
            let direction = match open.phase {
                FsdpPhase::Forward => Direction::Fprop,
                FsdpPhase::BackwardCall => Direction::Bprop,
            };
            return (direction, false);
        }
        // Between its nodes, an autograd engine thread sums gradients.
        if self.engine_thread.get(point.thread.idx()) == Some(&true) {
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
struct OperatorChoice {
    range: ScopeId,
    operator: ScopeId,
    from_forward: bool,
}

/// Finds, for every autograd node around a launch, the forward range that recorded it, and makes
/// sure that range has a scope.
pub(crate) fn forwards(
    profile: &Profile,
    texts: &RangeInfos,
    tree: &mut ScopeTree<'_>,
    builder: &mut ScopeBuilder<'_>,
) -> ForwardRanges {
    let chosen = chosen(profile, texts, tree, builder);
    let ranges: Vec<RangeId> = chosen.iter().map(|(_, range)| *range).collect();
    tree.add(&builder.add_ranges(&ranges));
    let mut of_node = RowMap::for_rows(tree.scopes.len());
    for (node, range) in chosen {
        if let Some(scope) = builder.scope_of(range) {
            of_node.insert(node.idx(), scope);
        }
    }
    ForwardRanges {
        of_node,
        node_starts: node_starts(profile, texts, tree),
    }
}

/// Whether a range has the number that the next recorded operator gets, also where nothing is recorded.
fn prints_all_numbers(range: &HostRange) -> bool {
    range.seq.is_some() && !scope_builder::has_modern_seq(range)
}

/// Process, sequence number and start of all autograd nodes, sorted. Only needed, and otherwise empty,
/// where an optimizer's range encloses work, or operators have numbers that are not recorded.
fn node_starts(
    profile: &Profile,
    texts: &RangeInfos,
    tree: &ScopeTree<'_>,
) -> Vec<(ProcessId, u64, i64)> {
    let in_update = || tree.contexts.par_iter().any(|c| c.update.is_some());
    if !profile.ranges.par_iter().any(prints_all_numbers) && !in_update() {
        return Vec::new();
    }
    let mut starts: Vec<(ProcessId, u64, i64)> = (profile.ranges.par_iter())
        .filter_map(|range| {
            let seq = range.seq?.get();
            let is_node = texts.role(range, texts.of(range)) == RangeRole::Autograd;
            let process = profile.process_of(range.thread)?;
            is_node.then_some((process, seq, range.span.start))
        })
        .collect();
    starts.par_sort_unstable();
    starts
}

/// Every autograd node that has a number, and the range chosen for it.
///
/// The counter is read by every operator and advanced by the one that records the node, so of the
/// ranges that carry a node's number the last one opened before the node is its origin: the
/// innermost of `linear` and `view`, both numbered 46533. Numbers are counted per thread; where a
/// thread recomputes forward work, its own numbers collide with those of the forward thread. So an
/// origin of the node's name is preferred, and one that was itself recomputed only for the nodes
/// that run inside another node. Functions written in C++ record no range of their own: what carries
/// their number is something that ran just before.
fn chosen(
    profile: &Profile,
    texts: &RangeInfos,
    tree: &ScopeTree<'_>,
    builder: &ScopeBuilder<'_>,
) -> Vec<(ScopeId, RangeId)> {
    let nodes = numbered_nodes(profile, tree);
    if nodes.is_empty() {
        return Vec::new();
    }
    let numbers = nodes.iter().map(|n| (n.process, Some(n.seq)));
    let wanted = CorrelationMap::for_numbers(numbers);
    let origins = Origins::of(origins(profile, texts, builder, &wanted), wanted);
    (nodes.par_iter())
        .filter_map(|n| Some((n.scope, origins.of_node(n)?)))
        .collect()
}

/// The autograd nodes of a profile.
#[derive(Debug)]
pub(crate) struct ForwardRanges {
    /// Per scope that is an autograd node: the forward range that recorded it.
    of_node: RowMap<ScopeId>,
    /// Process, sequence number and start of all nodes, sorted.
    node_starts: Vec<(ProcessId, u64, i64)>,
}

impl ForwardRanges {
    fn of(&self, node: ScopeId) -> Option<ScopeId> {
        self.of_node.get(node.idx()).copied()
    }

    /// When the first node with a sequence number ran after a time.
    fn node_start(&self, process: Option<ProcessId>, seq: u64, after: i64) -> Option<i64> {
        let process = process?;
        let before = |node: &(ProcessId, u64, i64)| *node < (process, seq, after);
        let next = self
            .node_starts
            .get(self.node_starts.partition_point(before))?;
        ((next.0, next.1) == (process, seq)).then_some(next.2)
    }
}

#[derive(Debug, Clone, Copy)]
struct AutogradNode {
    scope: ScopeId,
    process: ProcessId,
    seq: SerialNumber,
    start: i64,
    stem: Option<StrId>,
    reentrant: bool,
}

#[derive(Debug, Clone, Copy)]
struct ForwardCandidate {
    process: ProcessId,
    seq: SerialNumber,
    start: i64,
    range: RangeId,
    stem: Option<StrId>,
    recomputed: bool,
}

fn numbered_nodes(profile: &Profile, tree: &ScopeTree<'_>) -> Vec<AutogradNode> {
    (0..tree.scopes.len())
        .into_par_iter()
        .map(ScopeId::new)
        .filter_map(|scope| {
            let context = tree.context(scope)?;
            if context.node != Some(scope) {
                return None;
            }
            let (_, range, meaning) = tree.range(scope)?;
            if matches!(meaning.what, RangeClass::Autograd { own: true, .. }) {
                return None;
            }
            Some(AutogradNode {
                scope,
                process: profile.process_of(range.thread)?,
                seq: tree.node_seq(scope)?,
                start: range.span.start,
                stem: meaning.named.as_ref().map(|n| n.stem),
                reentrant: tree.traits_of(context).flags.reentrant,
            })
        })
        .collect()
}

fn origins(
    profile: &Profile,
    texts: &RangeInfos,
    builder: &ScopeBuilder<'_>,
    wanted: &CorrelationMap<Group>,
) -> Vec<ForwardCandidate> {
    (profile.ranges.par_iter())
        .enumerate()
        .filter_map(|(id, range)| {
            let seq = range.seq?;
            let process = profile.process_of(range.thread)?;
            if !wanted.contains(process, range.seq) {
                return None;
            }
            let meaning = texts.of(range);
            let named = meaning.named.as_ref()?;
            if texts.role(range, meaning) != RangeRole::Op || named.gradient {
                return None;
            }
            Some(ForwardCandidate {
                process,
                seq,
                start: range.span.start,
                range: RangeId::new(id),
                stem: Some(named.stem),
                recomputed: builder.is_recomputed(RangeId::new(id)),
            })
        })
        .collect()
}

/// Where the candidates with one number are among all.
#[derive(Debug, Clone, Copy)]
struct Group {
    from: usize,
    count: usize,
}

/// The candidates for the origins of nodes: those with one number stand together, by start.
struct Origins {
    candidates: Vec<ForwardCandidate>,
    groups: CorrelationMap<Group>,
}

impl Origins {
    /// Groups candidates that are in the order of their starts.
    fn of(candidates: Vec<ForwardCandidate>, mut groups: CorrelationMap<Group>) -> Origins {
        for origin in &candidates {
            if let Some(slot) = groups.slot(origin.process, Some(origin.seq)) {
                slot.get_or_insert(Group {
                    from: usize::MAX,
                    count: 0,
                })
                .count += 1;
            }
        }
        let mut sorted = candidates.clone();
        let mut free = 0;
        for origin in candidates {
            let slot = groups.slot(origin.process, Some(origin.seq));
            let Some(group) = slot.and_then(Option::as_mut) else {
                continue;
            };
            if group.from == usize::MAX {
                group.from = free;
                free += group.count;
                group.count = 0;
            }
            if let Some(place) = sorted.get_mut(group.from + group.count) {
                *place = origin;
                group.count += 1;
            }
        }
        Origins {
            candidates: sorted,
            groups,
        }
    }

    /// The origin of a node among the ranges with its number.
    fn of_node(&self, node: &AutogradNode) -> Option<RangeId> {
        /// More ranges with one number than any operator nests; bounds the work for malicious files.
        const LOOK_BACK: usize = 64;
        let group = self.groups.get(node.process, Some(node.seq))?;
        let origins = self.candidates.get(group.from..group.from + group.count)?;
        let before = origins.partition_point(|origin| origin.start < node.start);
        let mut best: Option<((bool, bool), RangeId)> = None;
        let earlier = origins.get(..before).unwrap_or_default();
        for origin in earlier.iter().rev().take(LOOK_BACK) {
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
}
