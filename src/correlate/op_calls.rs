//! Operator calls, numbered in the order of their first kernels.

use rustc_hash::FxHashMap;

use super::layers::LayerTable;
use super::model::{LayerId, OpCall, OpCallId, ScopeId, StepId};
use super::scope_query::{LayerName, OpCallDraft, Placement};
use crate::handle;
use crate::profile::{CallId, CaptureId, StrId, Strings};

/// The operator calls so far.
#[derive(Debug)]
pub(crate) struct OpCallTable<'t> {
    labels: &'t Strings,
    pub layers: LayerTable,
    pub calls: Vec<OpCall>,
    /// Per call: the innermost user source line; ends after the last call that has one.
    pub lines: Vec<Option<StrId>>,
    /// Per scope: the call whose operator it is.
    call_of: Vec<Option<OpCallId>>,
    backwards: Vec<BackwardCall>,
    /// The autograd nodes of each backward, except its first.
    others: FxHashMap<BackwardCallId, Vec<u64>>,
    /// Per scope of a forward operator: the backward that inherits its arguments. Empty until there is
    /// one.
    backward_of: Vec<Option<BackwardCallId>>,
    /// Forward scopes of backward calls, to be linked once all calls are known.
    pending: Vec<(OpCallId, ScopeId)>,
    replays: Replays,
}

/// The calls of operators that CUDA graphs replay: one for each replay.
#[derive(Debug, Default)]
struct Replays {
    /// Per capture: the graph launch that ran it last, and how often in a row. The body of a loop in a
    /// graph runs several times per launch.
    runs: FxHashMap<CaptureId, (Option<CallId>, u32)>,
    calls: FxHashMap<(Option<CallId>, u32, ScopeId), OpCallId>,
    /// Per scope: its call in the latest replay.
    latest: FxHashMap<ScopeId, OpCallId>,
}

handle! {
    /// A row of [`OpCallTable::backwards`].
    BackwardCallId,
}

/// The backward of one forward call. It is one call, even if the forward call recorded several
/// autograd nodes: `F.cross_entropy` records two and a recurrent cell five, and as separate calls each
/// would be assigned the cost of all of them.
#[derive(Debug)]
struct BackwardCall {
    call: OpCallId,
    /// The number of the node that ran first. If it runs again, another pass over the graph begins.
    first: u64,
}

impl<'t> OpCallTable<'t> {
    /// Reserves memory for at most this many calls.
    pub(crate) fn new(scopes: usize, most: usize, labels: &'t Strings) -> OpCallTable<'t> {
        OpCallTable {
            labels,
            layers: LayerTable::default(),
            calls: Vec::with_capacity(most),
            lines: Vec::with_capacity(most),
            call_of: vec![None; scopes],
            backwards: Vec::new(),
            others: FxHashMap::default(),
            backward_of: Vec::new(),
            pending: Vec::new(),
            replays: Replays::default(),
        }
    }

    /// The call of a draft: a new call, unless an earlier kernel belongs to the same call.
    pub(crate) fn number(&mut self, draft: &OpCallDraft<'_>) -> OpCallId {
        if let Some(call) = self.call_of.get(draft.scope.idx()).copied().flatten() {
            return call;
        }
        let call = self.joined(draft).unwrap_or_else(|| self.add(draft));
        if let Some(slot) = self.call_of.get_mut(draft.scope.idx()) {
            *slot = Some(call);
        }
        call
    }

    /// The call of the draft of a captured operator: a new call in each replay, unless an earlier kernel of the
    /// replay belongs to it.
    pub(crate) fn number_replayed(
        &mut self,
        draft: &OpCallDraft<'_>,
        capture: CaptureId,
        launch: Option<CallId>,
    ) -> OpCallId {
        let run = self.replays.runs.entry(capture).or_insert((launch, 0));
        let before = if run.0 == launch { run.1 } else { 0 };
        *run = (launch, before.saturating_add(1));
        let key = (launch, run.1, draft.scope);
        if let Some(call) = self.replays.calls.get(&key) {
            return *call;
        }
        let call = self.joined(draft).unwrap_or_else(|| self.add(draft));
        self.replays.calls.insert(key, call);
        self.replays.latest.insert(draft.scope, call);
        call
    }

    /// A call belongs to the step its first kernel was launched in.
    pub(crate) fn launched_in(&mut self, call: OpCallId, step: Option<StepId>) {
        if let Some(call) = self.calls.get_mut(call.idx()) {
            call.step = call.step.or(step);
        }
    }

    /// A context with its layer interned.
    pub(crate) fn placed(&mut self, placement: Placement<LayerName>) -> Placement<LayerId> {
        let layer =
            (placement.layer).map(|(source, label)| self.layers.intern(source, label, self.labels));
        Placement {
            layer,
            direction: placement.direction,
            recomputed: placement.recomputed,
            line: placement.line,
        }
    }

    /// Links backward calls to those forward calls that launched kernels.
    pub(crate) fn link_forwards(&mut self) {
        for (call, forward) in std::mem::take(&mut self.pending) {
            let id = self.call_of.get(forward.idx()).copied().flatten();
            if let Some(call) = self.calls.get_mut(call.idx()) {
                call.forward = id;
            }
        }
    }

    fn add(&mut self, draft: &OpCallDraft<'_>) -> OpCallId {
        let id = OpCallId::new(self.calls.len());
        let replayed = |scope: ScopeId| self.replays.latest.get(&scope).copied();
        let forward = draft.forward.and_then(replayed);
        if forward.is_none() {
            self.pending.extend(draft.forward.map(|scope| (id, scope)));
        }
        let placement = self.placed(draft.placement);
        self.calls.push(OpCall {
            range: draft.range,
            op: draft.named.op,
            args: draft.args,
            args_from_forward: draft.from_forward && draft.args.is_some(),
            direction: placement.direction,
            recomputed: placement.recomputed,
            layer: placement.layer,
            forward,
            step: None,
        });
        if placement.line.is_some() {
            self.lines.resize(id.idx(), None);
            self.lines.push(placement.line);
        }
        if let Some(seq) = draft.node_seq {
            self.backward_of.resize(self.call_of.len(), None);
            if let Some(slot) = self.backward_of.get_mut(draft.operator.idx()) {
                *slot = Some(BackwardCallId::new(self.backwards.len()));
            }
            self.backwards.push(BackwardCall {
                call: id,
                first: seq,
            });
        }
        id
    }

    /// The call that another node of the same forward operator created in this pass.
    fn joined(&mut self, draft: &OpCallDraft<'_>) -> Option<OpCallId> {
        /// More nodes than any operator records; bounds the work for malicious files.
        const MOST_NODES: usize = 64;
        let seq = draft.node_seq?;
        let id = (*self.backward_of.get(draft.operator.idx())?)?;
        let backward = self.backwards.get(id.idx())?;
        if backward.first == seq {
            return None;
        }
        let others = self.others.entry(id).or_default();
        if others.contains(&seq) || others.len() + 1 >= MOST_NODES {
            return None;
        }
        others.push(seq);
        Some(backward.call)
    }
}
