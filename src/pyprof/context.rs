//! The context of a launch: the ranges around it, sorted into PyProf's lists.
//!
//! Launches with equal keys have equal contexts, so each context is described once.

use super::enclosing_ranges::{PyprofRole, RangesAround, layer_name};
use super::event;
use super::numbered_ranges::{NumberedRange, is_backward, sort_like_pyprof};
use super::record::{Dir, LaunchContext};
use crate::correlate::{ArgsId, Direction, LayerId, OpCall, OpNameId, ScopeId};
use crate::profile::{Profile, RangeKind, StrId};

/// What a context depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ContextKey {
    /// Markers, layers and representations of modules, outermost first.
    named: Vec<StrId>,
    /// Source lines.
    trace: Option<StrId>,
    /// Python frames of torch.profiler, outermost first.
    frames: Vec<StrId>,
    /// Arguments with a call stack.
    stack: Option<StrId>,
    /// Names of ranges with numbers, in PyProf's order, and whether they have a sequence number.
    numbered: Vec<(StrId, bool)>,
    /// The innermost text without a role, if nothing else names the operator.
    other: Option<StrId>,
    /// Whether it is forward work done again in the backward pass.
    recomputed: bool,
    /// The operator, if the profile is a torch.profiler trace.
    op: Option<TracedOp>,
}

/// An operator of a torch.profiler trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TracedOp {
    name: OpNameId,
    layer: Option<LayerId>,
    args: Option<ArgsId>,
    args_from_forward: bool,
    backward: bool,
}

impl TracedOp {
    fn of(op: &OpCall) -> TracedOp {
        TracedOp {
            name: op.op,
            layer: op.layer,
            args: op.args,
            args_from_forward: op.args_from_forward,
            backward: op.direction == Direction::Bprop,
        }
    }
}

impl ContextKey {
    /// The key of a launch, and the ranges with numbers around it.
    pub(super) fn of(
        ranges: &RangesAround<'_>,
        scope: Option<ScopeId>,
        op: Option<&OpCall>,
    ) -> (ContextKey, Vec<NumberedRange>) {
        let profile = &ranges.run.profile;
        let enclosing = ranges.enclosing(scope);
        let mut key = ContextKey {
            named: Vec::new(),
            trace: enclosing.trace,
            frames: Vec::new(),
            stack: enclosing.stack,
            numbered: Vec::new(),
            other: None,
            recomputed: op.is_some_and(|op| op.recomputed),
            op: op.filter(|_| ranges.is_trace_event()).map(TracedOp::of),
        };
        let mut numbered = Vec::new();
        let mut in_marker = false;
        for range in ranges.around(scope) {
            if ranges.is_operator(range) {
                numbered.push(NumberedRange::of(profile, range));
                continue;
            }
            if range.kind == RangeKind::Python {
                key.frames.push(range.text);
            }
            match ranges.role(range.text) {
                PyprofRole::Marker { .. } => {
                    in_marker = true;
                    key.named.push(range.text);
                }
                PyprofRole::Layer | PyprofRole::Repr => key.named.push(range.text),
                PyprofRole::Other if key.other.is_none() => {
                    key.other = Some(range.text).filter(|text| !profile.text(*text).is_empty());
                }
                PyprofRole::Other | PyprofRole::Trace(_) | PyprofRole::Ignored => {}
            }
        }
        key.named.reverse();
        key.frames.reverse();
        if in_marker || !numbered.is_empty() {
            key.other = None;
        }
        sort_like_pyprof(&mut numbered, profile);
        key.numbered = (numbered.iter().map(|r| (r.name, r.seq.is_some()))).collect();
        (key, numbered)
    }

    /// The context of all launches with this key.
    pub(super) fn describe(&self, ranges: &RangesAround<'_>) -> LaunchContext {
        let profile = &ranges.run.profile;
        let mut context = LaunchContext::default();
        for id in &self.named {
            let text = profile.text(*id);
            match ranges.role(*id) {
                PyprofRole::Marker { module, op } => {
                    context.markers.push(text.to_owned());
                    context.mods.push(module.clone());
                    context.ops.push(op.clone());
                }
                PyprofRole::Layer => context.layer.extend(layer_name(text).map(str::to_owned)),
                _ => context.reprs.push(text.to_owned()),
            }
        }
        if let Some(PyprofRole::Trace(lines)) = self.trace.map(|text| ranges.role(text)) {
            context.trace.clone_from(lines);
        }
        let mut numbered = self.numbered.iter();
        if !self.recomputed
            && numbered.any(|(name, has_seq)| *has_seq && is_backward(profile.text(*name)))
        {
            context.dir = Dir::Bprop;
        }
        if context.ops.is_empty() {
            self.name_operator(&mut context, profile);
        }
        if ranges.is_trace_event() {
            self.take_from_trace(&mut context, ranges);
        }
        context
    }

    /// Names module and operator of a launch without PyProf's markers: by its backward nodes, otherwise
    /// by its numbered ranges, otherwise by the innermost range.
    fn name_operator(&self, context: &mut LaunchContext, profile: &Profile) {
        let names = || self.numbered.iter().map(|(name, _)| profile.text(*name));
        let backward = |name: &&str| name.ends_with("backward") || name.ends_with("Backward");
        let mut ops: Vec<String> = names().filter(backward).map(forward_name).collect();
        if ops.is_empty() {
            ops = names().map(str::to_owned).collect();
        }
        context.mods = vec!["na".to_owned(); ops.len().max(1)];
        ops.extend(self.other.map(|text| profile.text(text).to_owned()));
        context.ops = ops;
    }

    /// Takes source lines, operator, arguments, layer and direction from a torch.profiler trace, which
    /// records them without markers.
    fn take_from_trace(&self, context: &mut LaunchContext, ranges: &RangesAround<'_>) {
        let run = ranges.run;
        context.trace = event::trace(run, &self.frames, self.stack);
        let Some(op) = &self.op else { return };
        if context.layer.is_empty() {
            context
                .layer
                .extend(op.layer.and_then(|layer| event::layer(run, layer)));
        }
        context.dir = if op.backward { Dir::Bprop } else { Dir::Fprop };
        let Some(name) = run.op_names.get(op.name.idx()) else {
            return;
        };
        let args = op.args.filter(|_| !op.args_from_forward);
        if let Some(args) = args.and_then(|args| run.arguments(args)) {
            context.markers = vec![event::marker(name, args)];
        } else if op.args_from_forward || op.backward {
            // For a backward node, the forward operator is more informative.
            return;
        }
        let module = Some(&*name.module).filter(|module| !module.is_empty());
        context.mods = vec![module.unwrap_or("na").to_owned()];
        context.ops = vec![name.name.clone()];
    }
}

/// `NllLossBackward` -> `NllLoss`, `torch::autograd::X_backward` -> `X`.
fn forward_name(name: &str) -> String {
    let mut name = name.to_owned();
    for word in [
        "torch",
        "autograd",
        "_backward",
        "::",
        "jit",
        "(anonymous namespace)",
    ] {
        name = name.replace(word, "");
    }
    match name.split_once("Backward") {
        Some((forward, _)) => forward.to_owned(),
        None => name,
    }
}
