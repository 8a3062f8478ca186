//! Where every kernel comes from: the launch and the ranges around it, the operator call, the step.
//!
//! What the ranges around a launch say is worked out by all threads, batch by batch; meanwhile one of
//! them numbers the calls of the batch before, in the order of the kernels.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::layers::{Brackets, LayerTable};
use super::marker::Texts;
use super::ops::{self, Draft, LayerName, Setting, Spot, Surroundings};
use super::steps::Steps;
use super::sweep::Sweep;
use super::tree::Tree;
use super::{LayerId, Link, Missing, OpCall, Scope, ScopeId};
use crate::profile::{ApiClass, CallId, Kernel, KernelId, Profile, StrId};

/// Where every kernel comes from.
pub(crate) struct Origins {
    pub links: Vec<Link>,
    /// What is known of the place of kernels without an operator.
    pub settings: FxHashMap<KernelId, Setting<LayerId>>,
    pub scopes: Vec<Scope>,
    pub op_calls: Vec<OpCall>,
    /// Per call: the innermost user source line.
    pub lines: Vec<Option<StrId>>,
    pub layers: LayerTable,
}

impl Origins {
    pub(crate) fn find<'a>(
        profile: &'a Profile,
        texts: &'a Texts,
        (mut tree, mut sweep): (Tree<'a>, Sweep<'a>),
        brackets: &Brackets,
        steps: &Steps,
        launches: &[Option<CallId>],
    ) -> Origins {
        let forwards = ops::forwards(profile, texts, &mut tree, &mut sweep);
        let swept = sweep.end();
        let around = Surroundings {
            brackets,
            tree: &tree,
            engine_thread: &swept.engine_thread,
            forwards: &forwards,
        };
        let launched = Launched {
            profile,
            steps,
            scope_of_call: &swept.scope_of_call,
            around,
        };
        let mut found = Found {
            links: Vec::with_capacity(profile.kernels.len()),
            settings: FxHashMap::default(),
            calls: Calls::new(tree.scopes.len(), profile.kernels.len(), tree.labels),
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
        Origins {
            links: found.links,
            settings: found.settings,
            op_calls: calls.calls,
            lines: calls.lines,
            layers: calls.layers,
            scopes,
        }
    }
}

/// Kernels whose origins are known before their calls are numbered.
const BATCH: usize = 16 * PIECE;
/// Kernels that one thread looks at.
const PIECE: usize = 1024;

/// What the launch of a kernel says of it.
struct Origin<'p> {
    /// Without operator.
    link: Link,
    operator: Operator<'p>,
}

/// The operator of a kernel.
enum Operator<'p> {
    Call(Draft<'p>),
    /// That of the kernel before, launched in the same scope.
    AsBefore,
    /// No range around its launch names one.
    Unnamed(Setting<LayerName>),
    /// Nobody knows where it was launched.
    Unknown,
}

/// What the origin of a kernel is worked out from.
#[derive(Clone, Copy)]
struct Launched<'t, 'p> {
    profile: &'p Profile,
    steps: &'t Steps,
    /// Innermost scope of each launching call.
    scope_of_call: &'t [Option<ScopeId>],
    around: Surroundings<'t, 'p>,
}

impl<'p> Launched<'_, 'p> {
    fn origins(&self, kernels: &[Kernel], launches: &[Option<CallId>]) -> Vec<Vec<Origin<'p>>> {
        let pieces = kernels.par_chunks(PIECE).zip(launches.par_chunks(PIECE));
        let piece = |(kernels, launches): (&[Kernel], &[Option<CallId>])| {
            let mut before = None;
            let origin = |(kernel, launch): (&Kernel, &Option<CallId>)| {
                let origin = self.origin(kernel, *launch, before);
                before = match origin.operator {
                    Operator::Call(_) => origin.link.scope,
                    Operator::AsBefore => before,
                    Operator::Unnamed(_) | Operator::Unknown => None,
                };
                origin
            };
            kernels.iter().zip(launches).map(origin).collect()
        };
        pieces.map(piece).collect()
    }

    /// `before` is the scope of the kernel before, if that has an operator.
    fn origin(
        &self,
        kernel: &Kernel,
        launch: Option<CallId>,
        before: Option<ScopeId>,
    ) -> Origin<'p> {
        let call = launch.and_then(|l| self.profile.calls.get(l.idx()));
        let scope = launch.and_then(|l| self.scope_of_call.get(l.idx()).copied().flatten());
        let spot = call.map(|call| Spot {
            scope,
            thread: call.thread,
            time: call.span.start,
        });
        let replayed = kernel.in_graph || call.is_some_and(|c| c.class == ApiClass::GraphLaunch);
        let operator = match spot {
            None => Operator::Unknown,
            Some(spot) if replayed => {
                Operator::Unnamed(self.around.setting(spot, None).without_source_line())
            }
            Some(_) if scope.is_some() && scope == before => Operator::AsBefore,
            Some(spot) => match self.around.draft(spot) {
                Some(draft) => Operator::Call(draft),
                None => Operator::Unnamed(self.around.setting(spot, None)),
            },
        };
        let missing = match (&operator, replayed, call, scope) {
            (Operator::Call(_) | Operator::AsBefore, ..) => None,
            (_, true, ..) => Some(Missing::GraphReplay),
            (_, _, None, _) => Some(Missing::NoLaunch),
            (_, _, _, None) => Some(Missing::NoRange),
            _ => Some(Missing::NoOperator),
        };
        let link = Link {
            launch,
            scope,
            op: None,
            step: call.and_then(|c| self.steps.at(kernel.process, c.span.start)),
            site: None,
            missing,
        };
        Origin { link, operator }
    }
}

/// What has been found so far.
struct Found<'t> {
    links: Vec<Link>,
    settings: FxHashMap<KernelId, Setting<LayerId>>,
    calls: Calls<'t>,
}

impl Found<'_> {
    /// Adds the next kernel.
    fn add(&mut self, origin: Origin<'_>) {
        let mut link = origin.link;
        link.op = match origin.operator {
            Operator::Call(draft) => Some(self.calls.number(&draft)),
            Operator::AsBefore => self.links.last().and_then(|before| before.op),
            Operator::Unnamed(setting) => {
                let setting = self.calls.placed(setting);
                self.settings
                    .insert(KernelId::new(self.links.len()), setting);
                None
            }
            Operator::Unknown => None,
        };
        if let Some(call) = link.op {
            self.calls.launched_in(call, link.step);
        }
        self.links.push(link);
    }
}
