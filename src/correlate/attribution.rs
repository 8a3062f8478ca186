//! The origin of every kernel: its launch, the ranges around the launch, the operator call and the step.
//!
//! All threads resolve the ranges around launches, batch by batch. Meanwhile one thread numbers the
//! operator calls of the previous batch, in the order of the kernels.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use rustc_hash::{FxHashMap, FxHashSet};

use super::layers::{FsdpBrackets, LayerTable};
use super::model::{LayerId, Link, OpCall, Scope, ScopeId, WithoutOperator};
use super::op_calls::OpCallTable;
use super::range_meaning::RangeInfos;
use super::scope_builder::ScopeBuilder;
use super::scope_query::{self, LaunchPoint, LayerName, OpCallDraft, Placement, ScopeQuery};
use super::scope_tree::ScopeTree;
use super::steps::Steps;
use crate::profile::{ApiClass, CallId, CaptureId, Kernel, KernelId, Profile, StrId};

/// The origin of every kernel.
pub(crate) struct KernelOrigins {
    pub links: Vec<Link>,
    /// Context (layer, direction, source line) of kernels without an operator.
    pub placements: FxHashMap<KernelId, Placement<LayerId>>,
    pub scopes: Vec<Scope>,
    /// Per capture: innermost scope.
    pub capture_scopes: Vec<Option<ScopeId>>,
    pub op_calls: Vec<OpCall>,
    /// Per call: the innermost user source line.
    pub lines: Vec<Option<StrId>>,
    pub layers: LayerTable,
    /// The synchronizing calls inside a layer.
    pub waits_in_layers: FxHashSet<CallId>,
}

impl KernelOrigins {
    pub(crate) fn find<'a>(
        profile: &'a Profile,
        texts: &'a RangeInfos,
        (mut tree, mut builder): (ScopeTree<'a>, ScopeBuilder<'a>),
        brackets: &FsdpBrackets,
        steps: &Steps,
        launches: &[Option<CallId>],
    ) -> KernelOrigins {
        let forwards = scope_query::forwards(profile, texts, &mut tree, &mut builder);
        let waits = builder.scopes_of_waits();
        let launch_scopes = builder.end();
        let query = ScopeQuery {
            brackets,
            tree: &tree,
            engine_thread: &launch_scopes.engine_thread,
            forwards: &forwards,
        };
        let waits_in_layers = waits.into_iter().filter(|(id, scope)| {
            let call = profile.call(*id);
            call.is_some_and(|call| query.is_in_layer(call, *scope))
        });
        let waits_in_layers = waits_in_layers.map(|(id, _)| id).collect();
        let launched = LaunchContext {
            profile,
            steps,
            scope_of_call: &launch_scopes.scope_of_call,
            scope_of_capture: &launch_scopes.scope_of_capture,
            query,
        };
        let mut found = OriginsSoFar {
            links: Vec::with_capacity(profile.kernels.len()),
            placements: FxHashMap::default(),
            calls: OpCallTable::new(tree.scopes.len(), profile.kernels.len(), tree.labels),
        };
        let batches = profile.kernels.chunks(BATCH).zip(launches.chunks(BATCH));
        let mut batches = batches.map(|(kernels, launches)| launched.origins(kernels, launches));
        let mut known = batches.next();
        while let Some(origins) = known {
            let numbered = || origins.into_iter().flatten().for_each(|o| found.add(o));
            (known, ()) = rayon::join(|| batches.next(), numbered);
        }
        let mut calls = found.calls;
        calls.link_forwards();
        calls.calls.shrink_to_fit();
        let mut scopes = tree.scopes;
        scopes.shrink_to_fit();
        KernelOrigins {
            links: found.links,
            placements: found.placements,
            op_calls: calls.calls,
            lines: calls.lines,
            layers: calls.layers,
            scopes,
            capture_scopes: launch_scopes.scope_of_capture,
            waits_in_layers,
        }
    }
}

/// Kernels per batch: their origins are resolved before their calls are numbered.
const BATCH: usize = 16 * PIECE;
/// Kernels that one thread resolves at a time.
const PIECE: usize = 1024;

/// The origin of one kernel, resolved from its launch.
struct KernelOrigin<'p> {
    /// Context of a kernel without an operator.
    link: Link,
    operator: FoundOperator<'p>,
}

/// The operator of a kernel.
enum FoundOperator<'p> {
    Call(OpCallDraft<'p>),
    /// The operator that was captured into the CUDA graph that a replay runs.
    Captured(OpCallDraft<'p>, CaptureId),
    /// The operator of the previous kernel, which was launched in the same scope.
    AsBefore,
    /// No range around the launch names an operator.
    Unnamed(Placement<LayerName>),
    /// The launch is unknown.
    Unknown,
}

/// Inputs for resolving the origin of a kernel.
#[derive(Clone, Copy)]
struct LaunchContext<'t, 'p> {
    profile: &'p Profile,
    steps: &'t Steps,
    /// Innermost scope of each launching call.
    scope_of_call: &'t [Option<ScopeId>],
    /// Innermost scope of each capture.
    scope_of_capture: &'t [Option<ScopeId>],
    query: ScopeQuery<'t, 'p>,
}

impl<'p> LaunchContext<'_, 'p> {
    fn origins(
        &self,
        kernels: &[Kernel],
        launches: &[Option<CallId>],
    ) -> Vec<Vec<KernelOrigin<'p>>> {
        let pieces = kernels.par_chunks(PIECE).zip(launches.par_chunks(PIECE));
        let piece = |(kernels, launches): (&[Kernel], &[Option<CallId>])| {
            let mut before = None;
            let origin = |(kernel, launch): (&Kernel, &Option<CallId>)| {
                let origin = self.origin(kernel, *launch, before);
                before = match origin.operator {
                    FoundOperator::Call(_) => origin.link.scope,
                    FoundOperator::AsBefore => before,
                    FoundOperator::Captured(..)
                    | FoundOperator::Unnamed(_)
                    | FoundOperator::Unknown => None,
                };
                origin
            };
            kernels.iter().zip(launches).map(origin).collect()
        };
        pieces.map(piece).collect()
    }

    /// `before` is the scope of the previous kernel, if that kernel has an operator.
    fn origin(
        &self,
        kernel: &Kernel,
        launch: Option<CallId>,
        before: Option<ScopeId>,
    ) -> KernelOrigin<'p> {
        let call = launch.and_then(|l| self.profile.call(l));
        let scope = launch.and_then(|l| self.scope_of_call.get(l.idx()).copied().flatten());
        let point = call.map(|call| LaunchPoint {
            scope,
            thread: call.thread,
            time: call.span.start,
        });
        let replayed = kernel.in_graph || call.is_some_and(|c| c.class == ApiClass::GraphLaunch);
        let captured = kernel.captured.and_then(|id| self.captured(id, point));
        let operator = match point {
            _ if let Some(captured) = captured => captured,
            None => FoundOperator::Unknown,
            Some(point) if replayed => {
                FoundOperator::Unnamed(self.query.placement(point, None).without_source_line())
            }
            Some(_) if scope.is_some() && scope == before => FoundOperator::AsBefore,
            Some(point) => match self.query.draft(point) {
                Some(draft) => FoundOperator::Call(draft),
                None => FoundOperator::Unnamed(self.query.placement(point, None)),
            },
        };
        let missing = match (&operator, replayed, call, scope) {
            (FoundOperator::Call(_) | FoundOperator::Captured(..), ..)
            | (FoundOperator::AsBefore, ..) => None,
            (_, true, ..) => Some(WithoutOperator::GraphReplay),
            (_, _, None, _) => Some(WithoutOperator::NoLaunch),
            (_, _, _, None) => Some(WithoutOperator::NoRange),
            _ => Some(WithoutOperator::NoOperator),
        };
        let link = Link {
            launch,
            scope,
            op: None,
            step: call.and_then(|c| self.steps.at(kernel.process, c.span.start)),
            site: None,
            missing,
        };
        KernelOrigin { link, operator }
    }

    /// The operator of a replayed kernel, by the ranges around its capture. `replay` is the launch of the graph:
    /// ranges around it may still tell the layer and the direction.
    fn captured(&self, id: CaptureId, replay: Option<LaunchPoint>) -> Option<FoundOperator<'p>> {
        let capture = self.profile.captures.get(id.idx())?;
        let point = LaunchPoint {
            scope: self.scope_of_capture.get(id.idx()).copied().flatten(),
            thread: capture.thread,
            time: capture.time,
        };
        let replay = replay.map(|replay| self.query.placement(replay, None).without_source_line());
        Some(match self.query.draft(point) {
            Some(draft) => {
                let placement = draft.placement.or(replay);
                FoundOperator::Captured(OpCallDraft { placement, ..draft }, id)
            }
            None => FoundOperator::Unnamed(self.query.placement(point, None).or(replay)),
        })
    }
}

/// The origins resolved so far.
struct OriginsSoFar<'t> {
    links: Vec<Link>,
    placements: FxHashMap<KernelId, Placement<LayerId>>,
    calls: OpCallTable<'t>,
}

impl OriginsSoFar<'_> {
    /// Adds the next kernel.
    fn add(&mut self, origin: KernelOrigin<'_>) {
        let mut link = origin.link;
        link.op = match origin.operator {
            FoundOperator::Call(draft) => Some(self.calls.number(&draft)),
            FoundOperator::Captured(draft, capture) => {
                Some(self.calls.number_replayed(&draft, capture, link.launch))
            }
            FoundOperator::AsBefore => self.links.last().and_then(|before| before.op),
            FoundOperator::Unnamed(placement) => {
                let placement = self.calls.placed(placement);
                self.placements
                    .insert(KernelId::new(self.links.len()), placement);
                None
            }
            FoundOperator::Unknown => None,
        };
        if let Some(call) = link.op {
            self.calls.launched_in(call, link.step);
        }
        self.links.push(link);
    }
}
