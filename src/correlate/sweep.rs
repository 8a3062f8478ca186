//! One pass per thread over time-sorted ranges and launches, and the scope tree it grows.
//!
//! What a range inherits from the ranges around it (nearest operator, autograd node, layer names)
//! is worked out once, when its node is made from its parent's. Asking for the operator around a
//! launch is therefore one look-up, also below 100,000 ranges that the program never closed.

use rustc_hash::FxHashMap;

use super::args::Arguments;
use super::layers::{Names, Place, PlaceId, Places};
use super::marker::{Meaning, Role, Texts, What};
use super::steps::Steps;
use super::{OpName, OpNameId, Scope, ScopeId};
use crate::profile::{CallId, Number, Profile, Range, RangeId, RangeKind, Strings};

/// What a scope knows of itself and the scopes around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    /// Innermost operator the cost table knows, inside the autograd node if there is one.
    pub known: Option<ScopeId>,
    /// The same among those with arguments.
    pub with_args: Option<ScopeId>,
    /// Innermost operator the profiler itself recorded as one, known or not (`vllm::moe_forward`).
    pub recorded: Option<ScopeId>,
    /// The innermost autograd node, as the outermost of the ranges that stand for it.
    pub node: Option<ScopeId>,
    /// Innermost range with a sequence number.
    pub seq: Option<ScopeId>,
    pub place: PlaceId,
}

/// The scope tree with everything needed while it grows.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    profile: &'a Profile,
    texts: &'a Texts,
    pub arguments: &'a Arguments,
    pub labels: &'a mut Strings,
    pub scopes: Vec<Scope>,
    pub contexts: Vec<Context>,
    pub places: Places,
    /// Per thread: the ranges that nest, in order of opening.
    ranges: Vec<Vec<u32>>,
    /// Innermost scope of each launching call.
    pub scope_of_call: Vec<Option<ScopeId>>,
    scope_of_range: Vec<Option<ScopeId>>,
    /// Per range: a forward operator run again inside an autograd node.
    pub recomputed: Vec<bool>,
    /// Per thread: it runs autograd nodes and never records a forward operator outside them.
    pub engine_thread: Vec<bool>,
    /// Per process: operators that compute gradients are themselves recorded (`create_graph`), so
    /// a sequence number inside a node does not mean recomputation.
    records_gradients: Vec<bool>,
    /// Per process: first and last launch outside declared warm-up.
    launch_extent: Vec<(i64, i64)>,
    /// Numbers of autograd nodes whose engine range carries none.
    inner_seqs: FxHashMap<ScopeId, u64>,
    nowhere: PlaceId,
}

/// A range that has begun and not ended.
#[derive(Debug, Clone, Copy)]
struct Entry {
    range: u32,
    end: i64,
    scope: Option<ScopeId>,
    role: Role,
    in_node: bool,
    checkpoint: bool,
    recomputed: bool,
    /// Never-closed ranges that were open when it began.
    endless_around: usize,
}

/// The ranges open on a thread at one time.
///
/// Ranges the program never closed are kept apart, below all others: they surround everything that
/// follows, and must neither outlive an operator they were opened in nor stand between a launch
/// and the operator that does end.
#[derive(Debug, Default)]
struct Stack {
    endless: Vec<Entry>,
    finite: Vec<Entry>,
}

impl Stack {
    fn close_until(&mut self, time: i64) {
        while self.finite.pop_if(|e| e.end <= time).is_some() {}
    }

    fn top(&self) -> Option<&Entry> {
        self.finite.last().or(self.endless.last())
    }

    fn push(&mut self, entry: Entry) {
        if entry.end == i64::MAX {
            self.endless.push(entry);
        } else {
            self.finite.push(entry);
        }
    }
}

impl<'a> Tree<'a> {
    /// The scopes around every launch.
    pub(crate) fn grow(
        profile: &'a Profile,
        texts: &'a Texts,
        arguments: &'a Arguments,
        steps: &Steps,
        labels: &'a mut Strings,
        launches: &[Option<CallId>],
    ) -> Tree<'a> {
        let mut places = Places::default();
        let nowhere = places.intern(Place::default());
        let mut tree = Tree {
            profile,
            texts,
            arguments,
            labels,
            // No page of them is touched before it is needed, and nothing is moved as they grow.
            scopes: Vec::with_capacity(profile.ranges.len()),
            contexts: Vec::with_capacity(profile.ranges.len()),
            places,
            ranges: Vec::new(),
            scope_of_call: vec![None; profile.calls.len()],
            scope_of_range: vec![None; profile.ranges.len()],
            recomputed: vec![false; profile.ranges.len()],
            engine_thread: vec![false; profile.threads.len()],
            records_gradients: records_gradients(profile, texts),
            launch_extent: vec![(i64::MAX, i64::MIN); profile.processes.len()],
            inner_seqs: FxHashMap::default(),
            nowhere,
        };
        let calls = tree.launching_calls(launches, steps);
        let ranges = ranges_by_thread(profile);
        for (thread, (ranges, calls)) in ranges.iter().zip(&calls).enumerate() {
            tree.sweep(thread, ranges, calls);
        }
        tree.ranges = ranges;
        tree
    }

    /// Adds scopes for ranges that enclose no launch themselves, with all scopes around them. To be
    /// called once: the lists of ranges are used up.
    pub(crate) fn add_ranges(&mut self, wanted: &[RangeId]) {
        let mut is_wanted = vec![false; self.profile.ranges.len()];
        let mut has_wanted = vec![false; self.profile.threads.len()];
        for id in wanted {
            if let (Some(range), Some(flag)) = (
                self.profile.ranges.get(id.idx()),
                is_wanted.get_mut(id.idx()),
            ) {
                *flag = true;
                if let Some(thread) = has_wanted.get_mut(range.thread.idx()) {
                    *thread = true;
                }
            }
        }
        let threads = std::mem::take(&mut self.ranges);
        for (ranges, _) in threads.iter().zip(has_wanted).filter(|(_, wanted)| *wanted) {
            let mut stack = Stack::default();
            for id in ranges {
                self.open(&mut stack, *id);
                if is_wanted.get(*id as usize).copied().unwrap_or(false) {
                    self.scope_on_top(&mut stack);
                }
            }
        }
    }

    /// Gives back the memory that only growing needs.
    pub(crate) fn grown(&mut self) {
        self.ranges = Vec::new();
        self.scope_of_range = Vec::new();
        self.recomputed = Vec::new();
    }

    /// The scope of a range, if it has one.
    pub(crate) fn scope_of(&self, range: RangeId) -> Option<ScopeId> {
        self.scope_of_range.get(range.idx()).copied().flatten()
    }

    /// The range of a scope with its meaning.
    pub(crate) fn range(&self, scope: ScopeId) -> Option<(RangeId, &'a Range, &'a Meaning)> {
        let id = self.scopes.get(scope.idx())?.range;
        let range = self.profile.ranges.get(id.idx())?;
        Some((id, range, self.texts.of(range)))
    }

    pub(crate) fn op_name(&self, id: OpNameId) -> Option<&OpName> {
        self.texts.op_names.get(id.idx())
    }

    /// The sequence number of an autograd node: on its outermost range or on the one inside it.
    pub(crate) fn node_seq(&self, node: ScopeId) -> Option<u64> {
        let own = self.range(node)?.1.seq.map(Number::get);
        own.or_else(|| self.inner_seqs.get(&node).copied())
    }

    pub(crate) fn context(&self, scope: ScopeId) -> Option<&Context> {
        self.contexts.get(scope.idx())
    }

    /// What it takes over from the scopes around it.
    pub(crate) fn place(&self, context: &Context) -> Place {
        self.places.get(context.place)
    }

    /// Calls that launched kernels, by thread and in time order.
    fn launching_calls(&mut self, launches: &[Option<CallId>], steps: &Steps) -> Vec<Vec<u32>> {
        let mut launching = vec![false; self.profile.calls.len()];
        for call in launches.iter().flatten() {
            if let Some(flag) = launching.get_mut(call.idx()) {
                *flag = true;
            }
        }
        let mut threads = vec![Vec::new(); self.profile.threads.len()];
        for ((id, call), _) in (0u32..)
            .zip(&self.profile.calls)
            .zip(launching)
            .filter(|(_, launching)| *launching)
        {
            let Some(list) = threads.get_mut(call.thread.idx()) else {
                continue;
            };
            list.push(id);
            let process = self.profile.threads.get(call.thread.idx());
            if !steps.is_warmup(call.span.start)
                && let Some(extent) =
                    process.and_then(|t| self.launch_extent.get_mut(t.process.idx()))
            {
                extent.0 = extent.0.min(call.span.start);
                extent.1 = extent.1.max(call.span.start);
            }
        }
        let start = |c: &u32| self.profile.calls.get(*c as usize).map(|c| c.span.start);
        for list in &mut threads {
            if !list.is_sorted_by_key(start) {
                list.sort_by_key(start);
            }
        }
        threads
    }

    fn sweep(&mut self, thread: usize, ranges: &[u32], calls: &[u32]) {
        let mut stack = Stack::default();
        let mut ranges = ranges.iter().copied().peekable();
        let mut seen = Seen::default();
        for call in calls {
            let Some(time) = self.profile.calls.get(*call as usize).map(|c| c.span.start) else {
                continue;
            };
            while let Some(id) = ranges.next_if(|r| self.start(*r) <= time) {
                self.open_and_note(&mut stack, id, &mut seen);
            }
            stack.close_until(time);
            let scope = self.scope_on_top(&mut stack);
            if let Some(slot) = self.scope_of_call.get_mut(*call as usize) {
                *slot = scope;
            }
        }
        for id in ranges {
            self.open_and_note(&mut stack, id, &mut seen);
        }
        if let Some(flag) = self.engine_thread.get_mut(thread) {
            *flag = seen.node && !seen.forward;
        }
    }

    fn start(&self, range: u32) -> i64 {
        self.profile
            .ranges
            .get(range as usize)
            .map_or(i64::MAX, |r| r.span.start)
    }

    fn open_and_note(&mut self, stack: &mut Stack, id: u32, seen: &mut Seen) {
        let Some(entry) = self.open(stack, id) else {
            return;
        };
        seen.node |= entry.role == Role::Autograd;
        if entry.recomputed
            && let Some(flag) = self.recomputed.get_mut(id as usize)
        {
            *flag = true;
        }
        if !seen.forward
            && entry.role == Role::Op
            && !entry.in_node
            && let Some(range) = self.profile.ranges.get(id as usize)
        {
            let meaning = self.texts.of(range);
            let gradient = meaning.named.as_ref().is_some_and(|n| n.gradient);
            // Old `emit_nvtx` prints the counter even where nothing is recorded; there it is 0.
            let counts = match range.seq.map(Number::get) {
                Some(0) => has_modern_seq(range),
                Some(_) => true,
                None => false,
            };
            seen.forward = matches!(meaning.what, What::Marker { .. }) || (counts && !gradient);
        }
    }

    /// Puts a range on the stack, after closing what ended before it.
    fn open(&self, stack: &mut Stack, id: u32) -> Option<Entry> {
        let range = self.profile.ranges.get(id as usize)?;
        stack.close_until(range.span.start);
        let meaning = self.texts.of(range);
        let role = self.texts.role(range, meaning);
        let above = stack.top();
        let mut entry = Entry {
            range: id,
            end: range.span.end,
            scope: self.scope_of_range.get(id as usize).copied().flatten(),
            role,
            in_node: above.is_some_and(|e| e.in_node),
            checkpoint: above.is_some_and(|e| e.checkpoint),
            recomputed: above.is_some_and(|e| e.recomputed),
            endless_around: stack.endless.len(),
        };
        if let What::Autograd { checkpoint, .. } = meaning.what
            && role == Role::Autograd
        {
            entry.in_node = true;
            entry.recomputed = false;
            entry.checkpoint |= checkpoint;
        } else if entry.in_node && role == Role::Op {
            entry.recomputed |= self.is_recorded(range, meaning, entry.checkpoint);
        }
        stack.push(entry);
        Some(entry)
    }

    /// Whether an operator inside an autograd node is forward work: PyTorch numbers an operator
    /// only while gradients are being recorded, and the engine does not record its own operators
    /// (unless `create_graph` asks for it).
    fn is_recorded(&self, range: &Range, meaning: &Meaning, in_checkpoint: bool) -> bool {
        let Some(seq) = range.seq.map(Number::get) else {
            return false;
        };
        if meaning.named.as_ref().is_some_and(|n| n.gradient) {
            return false;
        }
        if !has_modern_seq(range) {
            return seq > 0 && in_checkpoint;
        }
        let process = self.profile.threads.get(range.thread.idx());
        !process
            .and_then(|t| self.records_gradients.get(t.process.idx()).copied())
            .unwrap_or(false)
    }

    /// The scope of the innermost open range; the missing scopes around it are made first.
    fn scope_on_top(&mut self, stack: &mut Stack) -> Option<ScopeId> {
        self.make_scopes(&mut stack.endless, None);
        let around = stack.finite.first().map_or(0, |e| e.endless_around);
        let base = around
            .checked_sub(1)
            .and_then(|at| stack.endless.get(at))
            .and_then(|e| e.scope);
        self.make_scopes(&mut stack.finite, base);
        stack.top().and_then(|e| e.scope)
    }

    /// Makes the scopes that a run of nested ranges lacks; `base` is around the outermost.
    fn make_scopes(&mut self, entries: &mut [Entry], base: Option<ScopeId>) {
        // Scopes are made outermost first, so those that exist are the outer ones.
        let made = entries
            .iter()
            .rposition(|e| e.scope.is_some())
            .map_or(0, |at| at + 1);
        let (outer, missing) = entries.split_at_mut(made);
        let mut parent = outer.last().map_or(base, |e| e.scope);
        for entry in missing {
            let scope = self.make_scope(RangeId(entry.range), parent, entry);
            entry.scope = scope;
            parent = scope.or(parent);
        }
    }

    fn make_scope(
        &mut self,
        id: RangeId,
        parent: Option<ScopeId>,
        entry: &Entry,
    ) -> Option<ScopeId> {
        let range = self.profile.ranges.get(id.idx())?;
        let scope = ScopeId::new(self.scopes.len());
        let context = self.context_of(range, scope, parent, entry);
        self.scopes.push(Scope {
            range: id,
            parent,
            text: range.text,
        });
        self.contexts.push(context);
        if let Some(slot) = self.scope_of_range.get_mut(id.idx()) {
            *slot = Some(scope);
        }
        Some(scope)
    }

    fn context_of(
        &mut self,
        range: &Range,
        scope: ScopeId,
        parent: Option<ScopeId>,
        entry: &Entry,
    ) -> Context {
        let above = parent.and_then(|p| self.contexts.get(p.idx()).copied());
        let mut context = above.unwrap_or(Context {
            known: None,
            with_args: None,
            recorded: None,
            node: None,
            seq: None,
            place: self.nowhere,
        });
        let inherited = self.places.get(context.place);
        let mut place = inherited;
        let meaning = self.texts.of(range);
        if range.seq.is_some() {
            context.seq = Some(scope);
        }
        place.flags.recomputed = entry.recomputed;
        match entry.role {
            Role::Op => {
                if meaning.named.as_ref().is_some_and(|n| n.known) {
                    context.known = Some(scope);
                    if self.args_of(range, meaning) {
                        context.with_args = Some(scope);
                    }
                }
                // Bare names are also what 2021's traces call the user's own ranges.
                if range.kind == RangeKind::CpuOp && matches!(meaning.what, What::Operator) {
                    context.recorded = Some(scope);
                }
                let marker = matches!(
                    meaning.what,
                    What::Marker {
                        attribute: false,
                        ..
                    }
                );
                place.flags.called |= marker && !entry.in_node;
            }
            Role::Autograd => {
                if self.enters_node(range, parent, above) {
                    place.flags.reentrant = context.node.is_some();
                    context.node = Some(scope);
                }
                // Operators around a node are not what the node computes.
                context.known = None;
                context.with_args = None;
                context.recorded = None;
                place.flags.called = false;
            }
            Role::User => {
                place.flags.update_range |= matches!(meaning.what, What::Optimizer);
                if let What::Bare { phase: Some(phase) } = meaning.what {
                    place.phase = Some(phase);
                }
            }
            Role::Other => match meaning.what {
                What::Module(_) => place.flags.called |= !entry.in_node,
                What::Trace { line, update, .. } | What::Frame { line, update } => {
                    let user = line.is_some();
                    place.flags.update_frame = update || (!user && place.flags.update_frame);
                }
                _ => {}
            },
        }
        self.name_place(&mut place, range, meaning, entry.role, parent);
        if place != inherited {
            context.place = self.places.intern(place);
        }
        context
    }

    fn args_of(&self, range: &Range, meaning: &Meaning) -> bool {
        match meaning.what {
            What::Marker { args, .. } => args.is_some(),
            _ => self.arguments.of(range.args).args.is_some(),
        }
    }

    /// Whether an autograd node begins here. The engine's range and the node's own stand for one run of
    /// the node.
    fn enters_node(
        &mut self,
        range: &Range,
        parent: Option<ScopeId>,
        above: Option<Context>,
    ) -> bool {
        let stem = |r: &Range| self.texts.of(r).named.as_ref().map(|n| n.stem);
        let same = parent.and_then(|p| self.range(p)).is_some_and(|(_, r, m)| {
            self.texts.role(r, m) == Role::Autograd && stem(r) == stem(range)
        });
        if same
            && let Some((node, seq)) = above.and_then(|a| a.node).zip(range.seq.map(Number::get))
        {
            self.inner_seqs.entry(node).or_insert(seq);
        }
        !same
    }

    /// Adds the names a range gives to the place it stands in.
    fn name_place(
        &mut self,
        place: &mut Place,
        range: &Range,
        meaning: &Meaning,
        role: Role,
        parent: Option<ScopeId>,
    ) {
        match &meaning.what {
            What::Layer(name) => place.names.layer = Some(*name),
            What::Module(name) => {
                let path = self
                    .places
                    .module_path(place.names.module, *name, self.labels);
                place.names.module = Some(path);
            }
            What::Trace { line, module, .. } => {
                place.names.line = line.or(place.names.line);
                place.names.module = module.or(place.names.module);
            }
            What::Frame { line, .. } => place.names.line = line.or(place.names.line),
            // A getter's marker is left open when the getter raises, and its trace with it: both
            // say nothing about what runs later.
            What::Marker {
                attribute: true, ..
            } => place.names = self.names_outside_trace(parent),
            // The name of a whole pass is no place in the model.
            What::Bare { phase: Some(_) } => {}
            _ if role == Role::User && !self.is_whole_capture(range) => {
                place.names.user = meaning.label.or(place.names.user);
            }
            _ if role == Role::Op => {
                let said = self.arguments.of(range.args);
                place.names.line = said.line.or(place.names.line);
                place.names.module = said.module.or(place.names.module);
            }
            _ => {}
        }
    }

    /// The names around a marker's own trace.
    fn names_outside_trace(&self, parent: Option<ScopeId>) -> Names {
        let trace = parent.filter(|p| {
            self.range(*p)
                .is_some_and(|(_, _, m)| matches!(m.what, What::Trace { .. }))
        });
        let outside = match trace {
            Some(trace) => self.scopes.get(trace.idx()).and_then(|s| s.parent),
            None => parent,
        };
        outside
            .and_then(|o| self.contexts.get(o.idx()))
            .map_or_else(Names::default, |c| self.places.get(c.place).names)
    }

    /// A range around every launch of its process names no part of the model.
    fn is_whole_capture(&self, range: &Range) -> bool {
        let process = self.profile.threads.get(range.thread.idx());
        process
            .and_then(|t| self.launch_extent.get(t.process.idx()))
            .is_some_and(|(first, last)| {
                first <= last && range.span.start <= *first && *last < range.span.end
            })
    }
}

/// What a sweep has met on a thread.
#[derive(Debug, Default)]
struct Seen {
    node: bool,
    forward: bool,
}

/// Whether a sequence number is printed only while gradients are recorded: the case since PyTorch
/// prints `op_id` too, and in Kineto traces.
pub(crate) fn has_modern_seq(range: &Range) -> bool {
    range.kind == RangeKind::CpuOp || range.op_id.is_some()
}

fn records_gradients(profile: &Profile, texts: &Texts) -> Vec<bool> {
    let mut records = vec![false; profile.processes.len()];
    let gradient = |meaning: &Meaning| {
        matches!(meaning.what, What::Operator | What::Bare { .. })
            && meaning.named.as_ref().is_some_and(|n| n.gradient)
    };
    for (_, range, _) in texts.ranges(profile, gradient) {
        let thread = profile.threads.get(range.thread.idx());
        if range.seq.is_some()
            && has_modern_seq(range)
            && let Some(flag) = thread.and_then(|t| records.get_mut(t.process.idx()))
        {
            *flag = true;
        }
    }
    records
}

/// Ranges that nest, by thread, in order of opening: earlier first, longer first.
fn ranges_by_thread(profile: &Profile) -> Vec<Vec<u32>> {
    let mut threads = vec![Vec::new(); profile.threads.len()];
    for (id, range) in (0u32..).zip(&profile.ranges) {
        let nests = !matches!(range.kind, RangeKind::StartEnd | RangeKind::Mark);
        if let Some(list) = threads.get_mut(range.thread.idx())
            && nests
            && range.span.end > range.span.start
        {
            list.push(id);
        }
    }
    let opening = |id: &u32| {
        profile
            .ranges
            .get(*id as usize)
            .map(|r| (r.span.start, std::cmp::Reverse(r.span.end)))
    };
    for list in &mut threads {
        if !list.is_sorted_by_key(opening) {
            list.sort_by_key(opening);
        }
    }
    threads
}
