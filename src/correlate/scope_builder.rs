//! One pass over ranges and launches in time order: finds the ranges that are scopes, and the scope of
//! each launch and around each wait. The capture of a kernel into a CUDA graph counts as a launch.
//!
//! A range becomes a scope if something was launched in it. Finding the scope of a launch is then one
//! look-up, even inside 100,000 ranges that the program never closed. The traits that a scope inherits
//! from its parents are computed in [`super::scope_tree`], batch by batch, while this pass goes on.

use std::cmp::Reverse;

use super::model::ScopeId;
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos, RangeRole};
use crate::handle;
use crate::profile::{
    ApiCall, ApiClass, CallId, CaptureId, HostRange, Profile, RangeId, RangeKind, SerialNumber,
};

/// A range that is a scope; scopes are numbered in the order in which they are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewScope {
    pub range: RangeId,
    pub parent: Option<ScopeId>,
    pub role: RangeRole,
    /// Whether it is inside an autograd node, or is one.
    pub in_node: bool,
    /// Whether it is inside a forward operator that an autograd node recomputes.
    pub recomputed: bool,
}

/// Scopes per batch; few in tests, so that small profiles have several batches.
const BATCH: usize = if cfg!(test) { 4 } else { 1 << 14 };

/// The state of the pass.
#[derive(Debug)]
pub(crate) struct ScopeBuilder<'a> {
    profile: &'a Profile,
    openings: NestingRanges<'a>,
    /// Number of calls processed.
    calls: usize,
    /// Per call: what it is here.
    meanings: Vec<CallMeaning>,
    /// The captures not yet processed, last one first.
    captures: Vec<CaptureId>,
    /// Per thread: its open ranges.
    threads: Vec<ThreadRanges>,
    found: FoundScopes<'a>,
    /// Innermost scope of each launching call.
    scope_of_call: Vec<Option<ScopeId>>,
    /// Innermost scope of each capture.
    scope_of_capture: Vec<Option<ScopeId>>,
    waits: Waits,
}

/// What a call is for the pass.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CallMeaning {
    /// It launched a kernel. It may wait as well.
    Launch,
    /// It waited for the GPU.
    Wait,
    Other,
}

handle! {
    /// A row of `Waits::around`.
    AroundId,
}

/// The ranges around calls that wait. Whether a range is a scope is known only at the end.
#[derive(Debug, Default)]
struct Waits {
    /// Each call, with the innermost range around it that ends and the one that is never closed.
    calls: Vec<(CallId, [Option<AroundId>; 2])>,
    /// The ranges around calls, each once, with the one around it, which comes before it. The innermost that was a
    /// scope then has none.
    around: Vec<(RangeId, Option<AroundId>)>,
}

impl Waits {
    fn add(&mut self, call: CallId, stack: &mut RangeStack) {
        let innermost = [
            self.innermost(&mut stack.finite),
            self.innermost(&mut stack.endless),
        ];
        self.calls.push((call, innermost));
    }

    /// The row of the innermost of these ranges. Each range is passed once, however many calls are in it.
    fn innermost(&mut self, entries: &mut [OpenRange]) -> Option<AroundId> {
        let known = |entry: &OpenRange| entry.around.is_some() || entry.scope.is_some();
        let first = entries.iter().rposition(known).unwrap_or(0);
        let mut outer = None;
        for entry in entries.iter_mut().skip(first) {
            let row = *entry.around.get_or_insert_with(|| {
                self.around.push((entry.range, outer));
                AroundId::new(self.around.len() - 1)
            });
            outer = Some(row);
        }
        outer
    }

    /// The innermost scope around each call.
    fn scopes(&self, scope_of: impl Fn(RangeId) -> Option<ScopeId>) -> Vec<(CallId, ScopeId)> {
        let mut scopes: Vec<Option<ScopeId>> = Vec::with_capacity(self.around.len());
        for (range, outer) in &self.around {
            let outer = || scopes.get((*outer)?.idx()).copied().flatten();
            let scope = scope_of(*range).or_else(outer);
            scopes.push(scope);
        }
        let calls = self.calls.iter().filter_map(|(call, innermost)| {
            let mut innermost = innermost.iter().flatten();
            let scope = innermost.find_map(|row| scopes.get(row.idx()).copied().flatten());
            Some((*call, scope?))
        });
        calls.collect()
    }
}

impl<'a> ScopeBuilder<'a> {
    pub(crate) fn new(
        profile: &'a Profile,
        texts: &'a RangeInfos,
        launches: &[Option<CallId>],
    ) -> ScopeBuilder<'a> {
        let meaning = |call: &ApiCall| match call.class {
            ApiClass::Sync => CallMeaning::Wait,
            _ => CallMeaning::Other,
        };
        let mut meanings: Vec<CallMeaning> = profile.calls.iter().map(meaning).collect();
        for call in launches.iter().flatten() {
            if let Some(meaning) = meanings.get_mut(call.idx()) {
                *meaning = CallMeaning::Launch;
            }
        }
        let mut captures: Vec<(i64, CaptureId)> = (profile.captures.iter())
            .zip((0..).map(CaptureId))
            .map(|(capture, id)| (capture.time, id))
            .collect();
        captures.sort_unstable_by_key(|capture| Reverse(*capture));
        ScopeBuilder {
            profile,
            openings: NestingRanges::of(profile),
            calls: 0,
            meanings,
            captures: captures.into_iter().map(|(_, id)| id).collect(),
            threads: profile
                .threads
                .iter()
                .map(|_| ThreadRanges::default())
                .collect(),
            found: FoundScopes {
                profile,
                texts,
                records_gradients: records_gradients(profile, texts),
                batch: Vec::new(),
                scopes: 0,
                scope_of_range: vec![None; profile.ranges.len()],
                recomputed: vec![false; profile.ranges.len()],
            },
            scope_of_call: vec![None; profile.calls.len()],
            scope_of_capture: vec![None; profile.captures.len()],
            waits: Waits::default(),
        }
    }

    /// The next batch of scopes around launches, of at least the batch size; `None` after the last.
    pub(crate) fn next(&mut self) -> Option<Vec<NewScope>> {
        while self.found.batch.len() < BATCH {
            let rest = self.meanings.get(self.calls..).unwrap_or_default();
            let next = rest.iter().position(|call| *call != CallMeaning::Other);
            self.calls = next.map_or(self.meanings.len(), |next| self.calls + next);
            let call = self.profile.calls.get(self.calls);
            let waits = call.is_some_and(|call| call.class == ApiClass::Sync);
            let call = call.map(|call| (call.span.start, call.thread));
            let captured = self.captures.last();
            let captured = captured.and_then(|id| self.profile.captures.get(id.idx()));
            let captured = captured
                .map(|capture| (capture.time, capture.thread))
                .filter(|(time, _)| call.is_none_or(|(start, _)| *time < start));
            let Some((time, thread)) = captured.or(call) else {
                self.open_until(i64::MAX);
                break;
            };
            self.open_until(time);
            let mut stack = self.threads.get_mut(thread.idx()).map(|t| &mut t.stack);
            if let Some(stack) = &mut stack {
                stack.close_until(time);
            }
            if captured.is_some() {
                let id = self.captures.pop();
                let slot = id.and_then(|id| self.scope_of_capture.get_mut(id.idx()));
                if let (Some(slot), Some(stack)) = (slot, stack) {
                    *slot = self.found.scope_on_top(stack);
                }
                continue;
            }
            let (id, meaning) = (CallId::new(self.calls), self.meanings.get(self.calls));
            self.calls += 1;
            let Some(stack) = stack else {
                continue;
            };
            if meaning == Some(&CallMeaning::Launch)
                && let Some(slot) = self.scope_of_call.get_mut(id.idx())
            {
                *slot = self.found.scope_on_top(stack);
            }
            // Where ids are used again, or rows are missing, a call may have launched a kernel as well.
            if waits {
                self.waits.add(id, stack);
            }
        }
        self.found.next_batch()
    }

    /// Opens the ranges that have begun by a time.
    fn open_until(&mut self, time: i64) {
        while let Some((id, range)) = self.openings.next_until(time) {
            if let Some(thread) = self.threads.get_mut(range.thread.idx()) {
                self.found.open_and_note(thread, id, range);
            }
        }
    }

    /// Makes scopes of ranges that enclose no launch, and of the ranges around them.
    pub(crate) fn add_ranges(&mut self, wanted: &[RangeId]) -> Vec<NewScope> {
        let mut is_wanted = vec![false; self.profile.ranges.len()];
        let mut stacks: Vec<Option<RangeStack>> =
            self.profile.threads.iter().map(|_| None).collect();
        for id in wanted {
            if self.scope_of(*id).is_none()
                && let (Some(range), Some(flag)) =
                    (self.profile.range(*id), is_wanted.get_mut(id.idx()))
            {
                *flag = true;
                if let Some(stack) = stacks.get_mut(range.thread.idx()) {
                    *stack = Some(RangeStack::default());
                }
            }
        }
        if stacks.iter().all(Option::is_none) {
            return Vec::new();
        }
        let mut openings = NestingRanges::of(self.profile);
        while let Some((id, range)) = openings.next_until(i64::MAX) {
            let Some(Some(stack)) = stacks.get_mut(range.thread.idx()) else {
                continue;
            };
            self.found.open(stack, id, range);
            if is_wanted.get(id.idx()) == Some(&true) {
                self.found.scope_on_top(stack);
            }
        }
        self.found.next_batch().unwrap_or_default()
    }

    /// The innermost scope around each call that waits for the GPU, in time order.
    pub(crate) fn scopes_of_waits(&self) -> Vec<(CallId, ScopeId)> {
        self.waits.scopes(|range| self.scope_of(range))
    }

    /// The scope of a range, if it has one.
    pub(crate) fn scope_of(&self, range: RangeId) -> Option<ScopeId> {
        self.found.scope_of(range)
    }

    /// Whether a range is, or is inside, a forward operator that an autograd node recomputes.
    pub(crate) fn is_recomputed(&self, range: RangeId) -> bool {
        self.found.recomputed.get(range.idx()) == Some(&true)
    }

    /// The result, once all scopes have been found. Frees the memory that only the pass needs.
    pub(crate) fn end(self) -> LaunchScopes {
        let engine = |thread: &ThreadRanges| thread.node && !thread.forward;
        LaunchScopes {
            scope_of_call: self.scope_of_call,
            scope_of_capture: self.scope_of_capture,
            engine_thread: self.threads.iter().map(engine).collect(),
        }
    }
}

/// The scopes of launches.
#[derive(Debug)]
pub(crate) struct LaunchScopes {
    /// Innermost scope of each launching call.
    pub scope_of_call: Vec<Option<ScopeId>>,
    /// Innermost scope of each capture.
    pub scope_of_capture: Vec<Option<ScopeId>>,
    /// Per thread: whether it runs autograd nodes and never records a forward operator outside them.
    pub engine_thread: Vec<bool>,
}

/// Nested ranges in order of opening. Of ranges that begin together, the longer comes first.
#[derive(Debug)]
struct NestingRanges<'a> {
    ranges: &'a [HostRange],
    /// Number of ranges processed.
    at: usize,
    /// The remaining ranges of a group that begins together, last one first.
    together: Vec<RangeId>,
}

impl<'a> NestingRanges<'a> {
    fn of(profile: &'a Profile) -> NestingRanges<'a> {
        NestingRanges {
            ranges: &profile.ranges,
            at: 0,
            together: Vec::new(),
        }
    }

    /// The next range, if it has begun by a time. Times must not decrease between calls.
    fn next_until(&mut self, time: i64) -> Option<(RangeId, &'a HostRange)> {
        if self.together.is_empty() {
            let first = self.next_nesting(time)?;
            let start = first.1.span.start;
            let Some((second, _)) = self.next_nesting(start) else {
                return Some(first);
            };
            self.together.extend([first.0, second]);
            while let Some((next, _)) = self.next_nesting(start) {
                self.together.push(next);
            }
            let end = |id: &RangeId| self.ranges.get(id.idx()).map(|range| range.span.end);
            self.together.sort_by_key(|id| Reverse(end(id)));
            self.together.reverse();
        }
        let id = self.together.pop()?;
        Some((id, self.ranges.get(id.idx())?))
    }

    /// The next range of a nesting kind, in row order.
    fn next_nesting(&mut self, time: i64) -> Option<(RangeId, &'a HostRange)> {
        loop {
            let range = self.ranges.get(self.at).filter(|r| r.span.start <= time)?;
            let id = RangeId::new(self.at);
            self.at += 1;
            let nests = !matches!(range.kind, RangeKind::StartEnd | RangeKind::Mark);
            if nests && range.span.end > range.span.start {
                return Some((id, range));
            }
        }
    }
}

/// The open ranges of a thread, and the kinds of ranges seen on it.
#[derive(Debug, Default)]
struct ThreadRanges {
    stack: RangeStack,
    /// Whether it has run an autograd node.
    node: bool,
    /// Whether it has recorded a forward operator outside autograd nodes.
    forward: bool,
}

/// An open range.
#[derive(Debug, Clone, Copy)]
struct OpenRange {
    range: RangeId,
    end: i64,
    scope: Option<ScopeId>,
    /// Its row, once a call in it waited.
    around: Option<AroundId>,
    role: RangeRole,
    in_node: bool,
    checkpoint: bool,
    recomputed: bool,
    /// Number of never-closed ranges that were open when it began.
    endless_around: usize,
}

/// The ranges open on a thread at one time.
///
/// Ranges that the program never closed are stored separately, below all others. They surround
/// everything that follows, but must not keep the operator open in which they were opened, and must
/// not separate a launch from an operator that ends.
#[derive(Debug, Default)]
struct RangeStack {
    endless: Vec<OpenRange>,
    finite: Vec<OpenRange>,
}

impl RangeStack {
    fn close_until(&mut self, time: i64) {
        while self.finite.pop_if(|e| e.end <= time).is_some() {}
    }

    fn top(&self) -> Option<&OpenRange> {
        self.finite.last().or(self.endless.last())
    }

    fn push(&mut self, entry: OpenRange) {
        if entry.end == i64::MAX {
            self.endless.push(entry);
        } else {
            self.finite.push(entry);
        }
    }
}

/// The scopes found so far.
#[derive(Debug)]
struct FoundScopes<'a> {
    profile: &'a Profile,
    texts: &'a RangeInfos,
    /// Per process: operators that compute gradients are themselves recorded (`create_graph`), so
    /// a sequence number inside a node does not mean recomputation.
    records_gradients: Vec<bool>,
    /// Scopes not yet returned in a batch.
    batch: Vec<NewScope>,
    scopes: usize,
    scope_of_range: Vec<Option<ScopeId>>,
    /// Per range: whether it is, or is inside, a forward operator that an autograd node recomputes.
    recomputed: Vec<bool>,
}

impl FoundScopes<'_> {
    fn next_batch(&mut self) -> Option<Vec<NewScope>> {
        (!self.batch.is_empty()).then(|| std::mem::take(&mut self.batch))
    }

    fn scope_of(&self, range: RangeId) -> Option<ScopeId> {
        self.scope_of_range.get(range.idx()).copied().flatten()
    }

    fn open_and_note(&mut self, thread: &mut ThreadRanges, id: RangeId, range: &HostRange) {
        let entry = self.open(&mut thread.stack, id, range);
        thread.node |= entry.role == RangeRole::Autograd;
        if entry.recomputed
            && let Some(flag) = self.recomputed.get_mut(id.idx())
        {
            *flag = true;
        }
        if !thread.forward && entry.role == RangeRole::Op && !entry.in_node {
            let meaning = self.texts.of(range);
            let gradient = meaning.named.as_ref().is_some_and(|n| n.gradient);
            // Old `emit_nvtx` prints the counter even if no gradients are recorded; it is then 0.
            let counts = match range.seq.map(SerialNumber::get) {
                Some(0) => has_modern_seq(range),
                Some(_) => true,
                None => false,
            };
            thread.forward =
                matches!(meaning.what, RangeClass::PyprofMarker { .. }) || (counts && !gradient);
        }
    }

    /// Pushes a range onto the stack, after closing the ranges that ended before it.
    fn open(&self, stack: &mut RangeStack, id: RangeId, range: &HostRange) -> OpenRange {
        stack.close_until(range.span.start);
        let meaning = self.texts.of(range);
        let role = self.texts.role(range, meaning);
        let above = stack.top();
        let mut entry = OpenRange {
            range: id,
            end: range.span.end,
            scope: self.scope_of(id),
            around: None,
            role,
            in_node: above.is_some_and(|e| e.in_node),
            checkpoint: above.is_some_and(|e| e.checkpoint),
            recomputed: above.is_some_and(|e| e.recomputed),
            endless_around: stack.endless.len(),
        };
        if let RangeClass::Autograd { checkpoint, .. } = meaning.what
            && role == RangeRole::Autograd
        {
            entry.in_node = true;
            entry.recomputed = false;
            entry.checkpoint |= checkpoint;
        } else if entry.in_node && role == RangeRole::Op {
            entry.recomputed |= self.is_recorded(range, meaning, entry.checkpoint);
        }
        stack.push(entry);
        entry
    }

    /// Whether an operator inside an autograd node is forward work: PyTorch numbers an operator
    /// only while gradients are being recorded, and the engine does not record its own operators
    /// (unless `create_graph` asks for it).
    fn is_recorded(&self, range: &HostRange, meaning: &RangeInfo, in_checkpoint: bool) -> bool {
        let Some(seq) = range.seq.map(SerialNumber::get) else {
            return false;
        };
        if meaning.named.as_ref().is_some_and(|n| n.gradient) {
            return false;
        }
        if !has_modern_seq(range) {
            return seq > 0 && in_checkpoint;
        }
        let process = self.profile.process_of(range.thread);
        let records = process.and_then(|process| self.records_gradients.get(process.idx()));
        records != Some(&true)
    }

    /// The scope of the innermost open range. Creates the missing scopes around it first.
    fn scope_on_top(&mut self, stack: &mut RangeStack) -> Option<ScopeId> {
        self.make_scopes(&mut stack.endless, None);
        let around = stack.finite.first().map_or(0, |e| e.endless_around);
        let base = around
            .checked_sub(1)
            .and_then(|at| stack.endless.get(at))
            .and_then(|e| e.scope);
        self.make_scopes(&mut stack.finite, base);
        stack.top().and_then(|e| e.scope)
    }

    /// Creates the missing scopes of a run of nested ranges; `base` is the parent of the outermost.
    fn make_scopes(&mut self, entries: &mut [OpenRange], base: Option<ScopeId>) {
        // Scopes are created outermost first, so the existing ones are the outer ones.
        let made = entries
            .iter()
            .rposition(|e| e.scope.is_some())
            .map_or(0, |at| at + 1);
        let (outer, missing) = entries.split_at_mut(made);
        let mut parent = outer.last().map_or(base, |e| e.scope);
        for entry in missing {
            let scope = ScopeId::new(self.scopes);
            self.scopes += 1;
            self.batch.push(NewScope {
                range: entry.range,
                parent,
                role: entry.role,
                in_node: entry.in_node,
                recomputed: entry.recomputed,
            });
            if let Some(slot) = self.scope_of_range.get_mut(entry.range.idx()) {
                *slot = Some(scope);
            }
            entry.scope = Some(scope);
            parent = entry.scope;
        }
    }
}

/// Whether a sequence number is printed only while gradients are recorded: the case since PyTorch
/// prints `op_id` too, and in Kineto traces.
pub(crate) fn has_modern_seq(range: &HostRange) -> bool {
    range.kind == RangeKind::CpuOp || range.op_id.is_some()
}

fn records_gradients(profile: &Profile, texts: &RangeInfos) -> Vec<bool> {
    let mut records = vec![false; profile.processes.len()];
    let gradient = |meaning: &RangeInfo| {
        matches!(
            meaning.what,
            RangeClass::Operator | RangeClass::Other { .. }
        ) && meaning.named.as_ref().is_some_and(|n| n.gradient)
    };
    if !texts.any(gradient) {
        return records;
    }
    for range in profile.ranges.iter().filter(|r| gradient(texts.of(r))) {
        if range.seq.is_some()
            && has_modern_seq(range)
            && let Some(process) = profile.process_of(range.thread)
            && let Some(flag) = records.get_mut(process.idx())
            && !std::mem::replace(flag, true)
            && records.iter().all(|records| *records)
        {
            break;
        }
    }
    records
}
