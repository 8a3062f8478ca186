//! The scope tree: the properties that each scope inherits from the scopes around it.
//!
//! The nearest operator, autograd node and layer names of a scope are derived from its parent once, when
//! the scope is created. [`super::scope_builder`] says which ranges are scopes.

use rustc_hash::FxHashMap;

use super::args::Arguments;
use super::layers::{ScopeNames, ScopeTraits, ScopeTraitsId, ScopeTraitsTable};
use super::model::{OpName, OpNameId, Scope, ScopeId};
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos, RangeRole};
use super::scope_builder::{NewScope, ScopeBuilder};
use super::steps::Steps;
use crate::profile::{
    CallId, HostRange, ProcessId, Profile, RangeId, RangeKind, SerialNumber, Strings, ThreadId,
};

/// The properties of a scope, its own and inherited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScopeContext {
    /// The innermost operator known to the cost table, inside the autograd node if there is one.
    pub known: Option<ScopeId>,
    /// The same among those with arguments.
    pub with_args: Option<ScopeId>,
    /// Innermost operator the profiler itself recorded as one, known or not (`vllm::moe_forward`).
    pub recorded: Option<ScopeId>,
    /// The innermost autograd node, as the outermost of the ranges that stand for it.
    pub node: Option<ScopeId>,
    /// Innermost range with a sequence number.
    pub seq: Option<ScopeId>,
    /// The innermost optimizer range, if no autograd node and no module's call is inside it: an optimizer's
    /// step may run forward and backward (`step(closure)`, PyTorch Lightning).
    pub update: Option<ScopeId>,
    pub traits: ScopeTraitsId,
}

/// The scope tree under construction.
#[derive(Debug)]
pub(crate) struct ScopeTree<'a> {
    profile: &'a Profile,
    texts: &'a RangeInfos,
    pub arguments: &'a Arguments,
    pub labels: &'a mut Strings,
    pub scopes: Vec<Scope>,
    pub contexts: Vec<ScopeContext>,
    pub traits: ScopeTraitsTable,
    /// Per process: first and last launch outside declared warm-up.
    launch_extent: Vec<(i64, i64)>,
    /// Per process: first and last capture of a kernel into a CUDA graph.
    capture_extent: Vec<(i64, i64)>,
    /// Numbers of autograd nodes whose engine range carries none.
    inner_seqs: FxHashMap<ScopeId, SerialNumber>,
}

impl<'a> ScopeTree<'a> {
    /// The scopes around launches, and the scope of each range.
    pub(crate) fn grow(
        profile: &'a Profile,
        texts: &'a RangeInfos,
        arguments: &'a Arguments,
        steps: &Steps,
        labels: &'a mut Strings,
        launches: &[Option<CallId>],
    ) -> (ScopeTree<'a>, ScopeBuilder<'a>) {
        let mut traits = ScopeTraitsTable::default();
        traits.intern(ScopeTraits::default());
        let mut tree = ScopeTree {
            profile,
            texts,
            arguments,
            labels,
            // No page of them is touched before it is needed, and nothing is moved as they grow.
            scopes: Vec::with_capacity(profile.ranges.len()),
            contexts: Vec::with_capacity(profile.ranges.len()),
            traits,
            launch_extent: launch_extent(profile, launches, steps),
            capture_extent: capture_extent(profile),
            inner_seqs: FxHashMap::default(),
        };
        let mut builder = ScopeBuilder::new(profile, texts, launches);
        let mut found = builder.next();
        while let Some(batch) = found {
            (found, ()) = rayon::join(|| builder.next(), || tree.add(&batch));
        }
        (tree, builder)
    }

    /// Adds the next scopes found.
    pub(crate) fn add(&mut self, found: &[NewScope]) {
        for nested in found {
            let Some(range) = self.profile.range(nested.range) else {
                continue;
            };
            let scope = ScopeId::new(self.scopes.len());
            let context = self.context_of(range, scope, nested);
            self.scopes.push(Scope {
                range: nested.range,
                parent: nested.parent,
                text: range.text,
            });
            self.contexts.push(context);
        }
    }

    /// The range of a scope with its meaning.
    pub(crate) fn range(&self, scope: ScopeId) -> Option<(RangeId, &'a HostRange, &'a RangeInfo)> {
        let id = self.scopes.get(scope.idx())?.range;
        let range = self.profile.range(id)?;
        Some((id, range, self.texts.of(range)))
    }

    /// The process of a range.
    pub(crate) fn process(&self, range: &HostRange) -> Option<ProcessId> {
        self.profile.process_of(range.thread)
    }

    pub(crate) fn op_name(&self, id: OpNameId) -> Option<&OpName> {
        self.texts.op_names.get(id.idx())
    }

    /// The sequence number of an autograd node: on its outermost range or on the one inside it.
    pub(crate) fn node_seq(&self, node: ScopeId) -> Option<SerialNumber> {
        let own = self.range(node)?.1.seq;
        own.or_else(|| self.inner_seqs.get(&node).copied())
    }

    pub(crate) fn context(&self, scope: ScopeId) -> Option<&ScopeContext> {
        self.contexts.get(scope.idx())
    }

    /// The properties inherited from the scopes around it.
    pub(crate) fn traits_of(&self, context: &ScopeContext) -> ScopeTraits {
        self.traits.get(context.traits)
    }

    fn context_of(&mut self, range: &HostRange, scope: ScopeId, nested: &NewScope) -> ScopeContext {
        let parent = nested.parent;
        let above = parent.and_then(|p| self.contexts.get(p.idx()).copied());
        let mut context = above.unwrap_or_default();
        let inherited = self.traits.get(context.traits);
        let mut traits = inherited;
        let meaning = self.texts.of(range);
        if range.seq.is_some() {
            context.seq = Some(scope);
        }
        traits.flags.recomputed = nested.recomputed;
        match nested.role {
            RangeRole::Op => {
                if meaning.named.as_ref().is_some_and(|n| n.known) {
                    context.known = Some(scope);
                    if self.args_of(range, meaning) {
                        context.with_args = Some(scope);
                    }
                }
                // Python autograd functions are operators with bare names. In traces of 2021, user
                // ranges are bare names too, but have no sequence number.
                let recorded = match meaning.what {
                    RangeClass::Operator => range.kind == RangeKind::CpuOp,
                    RangeClass::Other { phase: None } => range.seq.is_some(),
                    _ => false,
                };
                if recorded {
                    context.recorded = Some(scope);
                }
                let marker = matches!(
                    meaning.what,
                    RangeClass::PyprofMarker {
                        attribute: false,
                        ..
                    }
                );
                traits.flags.called |= marker && !nested.in_node;
            }
            RangeRole::Autograd => {
                if self.enters_node(range, parent, above) {
                    traits.flags.reentrant = context.node.is_some();
                    context.node = Some(scope);
                }
                // Operators around a node do not describe the computation of the node.
                context.known = None;
                context.with_args = None;
                context.recorded = None;
                context.update = None;
                traits.flags.called = false;
                traits.flags.update_frame = false;
            }
            RangeRole::User => {
                if matches!(meaning.what, RangeClass::Optimizer) {
                    context.update = Some(scope);
                }
                if let RangeClass::Other { phase: Some(phase) } = meaning.what {
                    traits.phase = Some(phase);
                }
            }
            RangeRole::Other => match meaning.what {
                RangeClass::Module(_) | RangeClass::ModuleCall(_) => {
                    context.update = None;
                    traits.flags.update_frame = false;
                    traits.flags.called |= !nested.in_node;
                }
                RangeClass::PyprofTrace { line, update, .. }
                | RangeClass::PythonFrame { line, update } => {
                    let user = line.is_some();
                    traits.flags.update_frame = update || (!user && traits.flags.update_frame);
                }
                // Functions of PyTorch, which nsys traces.
                RangeClass::Other { phase: Some(phase) } => traits.phase = Some(phase),
                _ => {}
            },
        }
        self.name_traits(&mut traits, range, meaning, nested.role, parent);
        if traits != inherited {
            context.traits = self.traits.intern(traits);
        }
        context
    }

    fn args_of(&self, range: &HostRange, meaning: &RangeInfo) -> bool {
        match meaning.what {
            RangeClass::PyprofMarker { args, .. } => args.is_some(),
            _ => self.arguments.of(range.args).args.is_some(),
        }
    }

    /// Whether an autograd node begins here. The engine's range and the node's own stand for one run of
    /// the node.
    fn enters_node(
        &mut self,
        range: &HostRange,
        parent: Option<ScopeId>,
        above: Option<ScopeContext>,
    ) -> bool {
        let stem = |r: &HostRange| self.texts.of(r).named.as_ref().map(|n| n.stem);
        let same = parent.and_then(|p| self.range(p)).is_some_and(|(_, r, m)| {
            self.texts.role(r, m) == RangeRole::Autograd && stem(r) == stem(range)
        });
        if same
            && let Some((node, seq)) = above.and_then(|a| a.node).zip(range.seq)
            && self.range(node).is_some_and(|(_, r, _)| r.seq.is_none())
        {
            self.inner_seqs.entry(node).or_insert(seq);
        }
        !same
    }

    /// Adds the layer names that a range contributes.
    fn name_traits(
        &mut self,
        traits: &mut ScopeTraits,
        range: &HostRange,
        meaning: &RangeInfo,
        role: RangeRole,
        parent: Option<ScopeId>,
    ) {
        match &meaning.what {
            RangeClass::Layer(name) | RangeClass::ModuleCall(name) => {
                traits.names.layer = Some(*name);
            }
            RangeClass::Module(name) => {
                let path = self
                    .traits
                    .module_path(traits.names.module, *name, self.labels);
                traits.names.module = Some(path);
            }
            RangeClass::PyprofTrace { line, module, .. } => {
                traits.names.line = line.or(traits.names.line);
                traits.names.module = module.or(traits.names.module);
            }
            RangeClass::PythonFrame { line, .. } => traits.names.line = line.or(traits.names.line),
            // A getter that raises leaves its marker and its trace open; neither belongs to
            // what runs later.
            RangeClass::PyprofMarker {
                attribute: true, ..
            } => traits.names = self.names_outside_trace(parent),
            // The name of a whole pass does not identify a layer.
            RangeClass::Other { phase: Some(_) } => {}
            _ if role == RangeRole::User && !self.is_whole_capture(range) => {
                traits.names.user = meaning.label.or(traits.names.user);
            }
            _ if role == RangeRole::Op => {
                let parsed = self.arguments.of(range.args);
                traits.names.line = parsed.line.or(traits.names.line);
                traits.names.module = parsed.module.or(traits.names.module);
            }
            _ => {}
        }
    }

    /// The names from the call stack of a marker.
    fn names_outside_trace(&self, parent: Option<ScopeId>) -> ScopeNames {
        let trace = parent.filter(|p| {
            self.range(*p)
                .is_some_and(|(_, _, m)| matches!(m.what, RangeClass::PyprofTrace { .. }))
        });
        let outside = match trace {
            Some(trace) => self.scopes.get(trace.idx()).and_then(|s| s.parent),
            None => parent,
        };
        outside
            .and_then(|o| self.contexts.get(o.idx()))
            .map_or_else(ScopeNames::default, |c| self.traits.get(c.traits).names)
    }

    /// A range around every launch of its process, or around every capture, does not identify a layer.
    fn is_whole_capture(&self, range: &HostRange) -> bool {
        let process = self.profile.process_of(range.thread);
        let extents = [&self.launch_extent, &self.capture_extent].into_iter();
        let mut own = extents.filter_map(|extents| extents.get(process?.idx()));
        own.any(|(first, last)| {
            first <= last && range.span.start <= *first && *last < range.span.end
        })
    }
}

/// Per process: first and last capture of a kernel into a CUDA graph.
fn capture_extent(profile: &Profile) -> Vec<(i64, i64)> {
    let captures = profile.captures.iter();
    extents(
        profile,
        captures.map(|capture| (capture.thread, capture.time)),
    )
}

/// Per process: first and last launch outside declared warm-up.
fn launch_extent(profile: &Profile, launches: &[Option<CallId>], steps: &Steps) -> Vec<(i64, i64)> {
    let calls = launches.iter().flatten();
    let calls = calls.filter_map(|call| profile.call(*call));
    let calls = calls.filter(|call| !steps.is_warmup(call.span.start));
    extents(profile, calls.map(|call| (call.thread, call.span.start)))
}

/// Per process: the first and the last of these times of its threads.
fn extents(profile: &Profile, times: impl Iterator<Item = (ThreadId, i64)>) -> Vec<(i64, i64)> {
    let mut extents = vec![(i64::MAX, i64::MIN); profile.processes.len()];
    for (thread, time) in times {
        let process = profile.process_of(thread);
        if let Some(extent) = process.and_then(|process| extents.get_mut(process.idx())) {
            *extent = (extent.0.min(time), extent.1.max(time));
        }
    }
    extents
}
