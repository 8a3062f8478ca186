//! The ranges around every launch, and their roles in PyProf's output.

use rustc_hash::FxHashMap;

use super::{event, marker};
use crate::correlate::literal::{self, Literal};
use crate::correlate::{Run, Scope, ScopeId};
use crate::profile::{HostRange, RangeArgs, RangeKind, StrId};

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
#[derive(Debug)]
pub(super) enum PyprofRole {
    /// An operator marker of PyProf, with the names in it.
    Marker {
        module: String,
        op: String,
    },
    /// The text is `layer:NAME`.
    Layer,
    /// Source lines, without those of PyTorch.
    Trace(Vec<String>),
    /// The `repr` of a module.
    Repr,
    /// The node of reentrant checkpointing, which PyProf ignores.
    Ignored,
    Other,
}

impl PyprofRole {
    fn of(text: &str) -> PyprofRole {
        if text.trim_start().starts_with('{')
            && let Some(role) = PyprofRole::of_dictionary(text)
        {
            return role;
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
    fn of_dictionary(text: &str) -> Option<PyprofRole> {
        let entries = marker::entries(text);
        let get = |key: &str| literal::lookup(&entries, key);
        if let Some(frames) = get("traceMarker").and_then(Literal::items) {
            let lines = frames.iter().filter_map(Literal::as_str);
            let users = lines.filter(|line| !OWN_FILES.iter().any(|own| line.contains(own)));
            return Some(PyprofRole::Trace(users.map(str::to_owned).collect()));
        }
        if get("strRepr").is_some() {
            return Some(PyprofRole::Repr);
        }
        Some(PyprofRole::Marker {
            module: get("mod")?.as_str()?.to_owned(),
            op: get("op")?.as_str()?.to_owned(),
        })
    }
}

/// The name in `layer:NAME`.
pub(super) fn layer_name(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix("layer:")
}

/// The ranges around all scopes of a run.
#[derive(Debug)]
pub(super) struct RangesAround<'r> {
    pub run: &'r Run,
    /// The roles of the texts of ranges.
    roles: FxHashMap<StrId, PyprofRole>,
    /// By scope.
    enclosing: Vec<Enclosing>,
}

/// What encloses the launches in a scope.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Enclosing {
    /// The innermost range that counts: programs leave hundreds of equal ranges open, and a range inside
    /// an equal one does not count.
    counted: Option<ScopeId>,
    /// The innermost range with source lines.
    pub trace: Option<StrId>,
    /// Arguments of the innermost range with a call stack.
    pub stack: Option<StrId>,
}

impl<'r> RangesAround<'r> {
    /// The ranges around a scope are its own and those around its parent, which comes first in the table.
    pub(super) fn of(run: &'r Run) -> RangesAround<'r> {
        let text = |id: StrId| run.profile.text(id);
        let mut all = RangesAround {
            run,
            roles: FxHashMap::default(),
            enclosing: Vec::with_capacity(run.scopes.len()),
        };
        let mut stacks: FxHashMap<StrId, bool> = FxHashMap::default();
        for (id, scope) in (0..).map(ScopeId).zip(&run.scopes) {
            let role = all.roles.entry(scope.text);
            let role = role.or_insert_with(|| PyprofRole::of(text(scope.text)));
            let is_trace = matches!(role, PyprofRole::Trace(_));
            let mut own = all.enclosing(scope.parent);
            if is_trace {
                own.trace = Some(scope.text);
            }
            if let Some(range) = all.range(scope).filter(|range| all.counts(scope, range)) {
                own.counted = Some(id);
                let has_stack = |args: &StrId| {
                    let has = || event::call_stack(text(*args)).is_some();
                    all.is_trace_event() && *stacks.entry(*args).or_insert_with(has)
                };
                own.stack = range.args.filter(has_stack).or(own.stack);
            }
            all.enclosing.push(own);
        }
        all
    }

    /// Whether the profile is a torch.profiler trace.
    pub(super) fn is_trace_event(&self) -> bool {
        self.run.profile.format.range_args == RangeArgs::TraceEvent
    }

    pub(super) fn enclosing(&self, scope: Option<ScopeId>) -> Enclosing {
        let enclosing = scope.and_then(|scope| self.enclosing.get(scope.idx()));
        enclosing.copied().unwrap_or_default()
    }

    pub(super) fn role(&self, text: StrId) -> &PyprofRole {
        self.roles.get(&text).unwrap_or(&PyprofRole::Other)
    }

    /// Whether a range is an operator of PyTorch: it has a sequence number or an operator id.
    pub(super) fn is_operator(&self, range: &HostRange) -> bool {
        let nests = matches!(
            range.kind,
            RangeKind::PushPop | RangeKind::CpuOp | RangeKind::Annotation
        );
        let numbered = nests && (range.seq.is_some() || range.op_id.is_some());
        numbered && matches!(self.role(range.text), PyprofRole::Other)
    }

    /// The ranges around a scope that count, from the innermost outwards.
    pub(super) fn around(&self, scope: Option<ScopeId>) -> impl Iterator<Item = &'r HostRange> {
        self.scopes_around(scope)
            .filter_map(|scope| self.range(scope))
    }

    fn scopes_around(&self, scope: Option<ScopeId>) -> impl Iterator<Item = &'r Scope> {
        let mut next = scope;
        std::iter::from_fn(move || {
            let scope = self.run.scope(self.enclosing(next).counted?)?;
            next = scope.parent;
            Some(scope)
        })
    }

    fn range(&self, scope: &Scope) -> Option<&'r HostRange> {
        self.run.profile.range(scope.range)
    }

    /// Whether a range counts. A layer inside a layer with the same name counts again, unless it was never
    /// closed.
    fn counts(&self, scope: &Scope, range: &HostRange) -> bool {
        if range.span.end != i64::MAX && matches!(self.role(scope.text), PyprofRole::Layer) {
            return true;
        }
        let is_equal = |outer: &HostRange| {
            (outer.seq, outer.op_id, outer.args) == (range.seq, range.op_id, range.args)
        };
        let mut equal_texts = self
            .scopes_around(scope.parent)
            .filter(|outer| outer.text == scope.text);
        !equal_texts.any(|outer| self.range(outer).is_some_and(is_equal))
    }
}
