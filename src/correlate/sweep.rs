//! One pass per thread over time-sorted ranges and launches: which ranges are scopes, and which scope
//! each stands in.
//!
//! A range becomes a scope when something was launched in it. Asking for the scope of a launch is then
//! one look-up, also below 100,000 ranges that the program never closed. What a scope inherits from
//! those around it is worked out in [`super::tree`], batch by batch, while this pass goes on.

use super::ScopeId;
use super::marker::{Meaning, Role, Texts, What};
use crate::profile::{CallId, Number, Profile, Range, RangeId, RangeKind};

/// A range that is a scope; scopes are numbered in the order in which they are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nested {
    pub range: RangeId,
    pub parent: Option<ScopeId>,
    pub role: Role,
    /// Inside an autograd node, or one itself.
    pub in_node: bool,
    /// Inside a forward operator run again in an autograd node.
    pub recomputed: bool,
}

/// What the pass has found so far.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    profile: &'a Profile,
    texts: &'a Texts,
    /// Per thread: the ranges that nest, in order of opening.
    ranges: Vec<Vec<u32>>,
    /// Per thread: the calls that launched kernels, in order of time.
    calls: Vec<Vec<u32>>,
    /// Per process: operators that compute gradients are themselves recorded (`create_graph`), so
    /// a sequence number inside a node does not mean recomputation.
    records_gradients: Vec<bool>,
    /// Found, and not yet handed over.
    found: Vec<Nested>,
    scopes: usize,
    /// Innermost scope of each launching call.
    pub scope_of_call: Vec<Option<ScopeId>>,
    scope_of_range: Vec<Option<ScopeId>>,
    /// Per range: a forward operator run again inside an autograd node.
    pub recomputed: Vec<bool>,
    /// Per thread: it runs autograd nodes and never records a forward operator outside them.
    pub engine_thread: Vec<bool>,
}

/// Scopes of a batch; few in tests, which then have many.
const BATCH: usize = if cfg!(test) { 4 } else { 1 << 14 };

/// How far the pass is.
#[derive(Debug, Default)]
pub(crate) struct Place {
    thread: usize,
    /// Ranges and calls of that thread which are behind it.
    ranges: usize,
    calls: usize,
    stack: Stack,
    seen: Seen,
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

impl<'a> Sweep<'a> {
    pub(crate) fn new(
        profile: &'a Profile,
        texts: &'a Texts,
        launches: &[Option<CallId>],
    ) -> Sweep<'a> {
        Sweep {
            profile,
            texts,
            ranges: ranges_by_thread(profile),
            calls: launching_calls(profile, launches),
            records_gradients: records_gradients(profile, texts),
            found: Vec::new(),
            scopes: 0,
            scope_of_call: vec![None; profile.calls.len()],
            scope_of_range: vec![None; profile.ranges.len()],
            recomputed: vec![false; profile.ranges.len()],
            engine_thread: vec![false; profile.threads.len()],
        }
    }

    /// The next scopes around launches, at least as many as a batch has; `None` behind the last.
    pub(crate) fn next(&mut self, place: &mut Place) -> Option<Vec<Nested>> {
        while place.thread < self.ranges.len() {
            // Lists are lent to the loop, which changes the rest of what was found.
            let ranges = self.ranges.get_mut(place.thread).map(std::mem::take)?;
            let calls = self.calls.get_mut(place.thread).map(std::mem::take)?;
            let ended = self.advance(place, &ranges, &calls);
            if let Some(list) = self.ranges.get_mut(place.thread) {
                *list = ranges;
            }
            if let Some(list) = self.calls.get_mut(place.thread) {
                *list = if ended { Vec::new() } else { calls };
            }
            if ended {
                if let Some(flag) = self.engine_thread.get_mut(place.thread) {
                    *flag = place.seen.node && !place.seen.forward;
                }
                *place = Place {
                    thread: place.thread + 1,
                    ..Place::default()
                };
            }
            if self.found.len() >= BATCH {
                break;
            }
        }
        (!self.found.is_empty()).then(|| std::mem::take(&mut self.found))
    }

    /// Goes on along one thread until a batch is full; whether it came to the end.
    fn advance(&mut self, place: &mut Place, ranges: &[u32], calls: &[u32]) -> bool {
        for call in calls.get(place.calls..).unwrap_or_default() {
            if self.found.len() >= BATCH {
                return false;
            }
            place.calls += 1;
            let Some(time) = self.profile.calls.get(*call as usize).map(|c| c.span.start) else {
                continue;
            };
            let begun = ranges.get(place.ranges..).unwrap_or_default();
            for id in begun {
                if self.start(*id) > time {
                    break;
                }
                place.ranges += 1;
                self.open_and_note(&mut place.stack, *id, &mut place.seen);
            }
            place.stack.close_until(time);
            let scope = self.scope_on_top(&mut place.stack);
            if let Some(slot) = self.scope_of_call.get_mut(*call as usize) {
                *slot = scope;
            }
        }
        for id in ranges.get(place.ranges..).unwrap_or_default() {
            self.open_and_note(&mut place.stack, *id, &mut place.seen);
        }
        true
    }

    /// Makes scopes of ranges that enclose no launch themselves, with all around them. To be called
    /// once: the lists of ranges are used up.
    pub(crate) fn add_ranges(&mut self, wanted: &[RangeId]) -> Vec<Nested> {
        let mut is_wanted = vec![false; self.profile.ranges.len()];
        let mut has_wanted = vec![false; self.profile.threads.len()];
        for id in wanted {
            if self.scope_of(*id).is_none()
                && let (Some(range), Some(flag)) = (
                    self.profile.ranges.get(id.idx()),
                    is_wanted.get_mut(id.idx()),
                )
            {
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
        std::mem::take(&mut self.found)
    }

    /// Gives back the memory that only the pass needs.
    pub(crate) fn end(&mut self) {
        self.ranges = Vec::new();
        self.scope_of_range = Vec::new();
        self.recomputed = Vec::new();
    }

    /// The scope of a range, if it has one.
    pub(crate) fn scope_of(&self, range: RangeId) -> Option<ScopeId> {
        self.scope_of_range.get(range.idx()).copied().flatten()
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
            let range = RangeId(entry.range);
            let scope = ScopeId::new(self.scopes);
            self.scopes += 1;
            self.found.push(Nested {
                range,
                parent,
                role: entry.role,
                in_node: entry.in_node,
                recomputed: entry.recomputed,
            });
            if let Some(slot) = self.scope_of_range.get_mut(range.idx()) {
                *slot = Some(scope);
            }
            entry.scope = Some(scope);
            parent = entry.scope;
        }
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

/// Calls that launched kernels, by thread and in order of time.
fn launching_calls(profile: &Profile, launches: &[Option<CallId>]) -> Vec<Vec<u32>> {
    let mut launching = vec![false; profile.calls.len()];
    for call in launches.iter().flatten() {
        if let Some(flag) = launching.get_mut(call.idx()) {
            *flag = true;
        }
    }
    let mut threads = vec![Vec::new(); profile.threads.len()];
    for ((id, call), _) in (0u32..)
        .zip(&profile.calls)
        .zip(launching)
        .filter(|(_, launching)| *launching)
    {
        if let Some(list) = threads.get_mut(call.thread.idx()) {
            list.push(id);
        }
    }
    let start = |c: &u32| profile.calls.get(*c as usize).map(|c| c.span.start);
    for list in &mut threads {
        if !list.is_sorted_by_key(start) {
            list.sort_by_key(start);
        }
    }
    threads
}
