//! Chooses the operator of each kernel: the innermost marker with arguments that names an operator of
//! the cost table; for backward kernels without arguments, that of the forward kernel.
//!
//! PyProf chooses the outermost marker, so that a product inside `multi_head_attention_forward` has no
//! cost, and everything inside the unclosed marker of a getter is attributed to the getter.

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::marker::Marker;
use super::range_template::RangeTemplate;
use super::{ChoiceId, ContextId, Dir, LaunchContext, OpId, Record, Records, ShapesId, Text};
use crate::correlate::{OpArgs, OpName, args};
use crate::cost::{Family, ops};
use crate::profile::RangeText;

/// The operator chosen for kernels.
#[derive(Debug, Clone)]
pub(super) struct OpChoice {
    pub op: OpId,
    /// The marker that names it, if any.
    pub marker: Option<Arc<Marker>>,
    /// Its arguments; `None` if unknown.
    pub args: Option<ShapesId>,
    /// Whether the arguments are those of the forward call.
    pub from_forward: bool,
    /// The range that names it.
    pub range: Option<ChosenRange>,
    /// The context with its layer and source lines: for backward kernels, that of the forward kernel.
    pub context: ContextId,
}

/// A range around a kernel. Kernels in ranges with the same numbers belong to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChosenRange {
    /// A number that is equal for texts that are equal except for their numbers.
    text: u32,
    /// Whether it has an operator id.
    pub numbered: bool,
    /// The start of its numbers in [`Record::in_ranges`].
    from: usize,
    to: usize,
}

impl ChosenRange {
    /// The range's text in a form that can be compared.
    pub(super) fn of<'r>(&self, record: Record<'r>) -> (u32, &'r [u64]) {
        let numbers = record.in_ranges().get(self.from..self.to);
        (self.text, numbers.unwrap_or_default())
    }
}

/// Families whose calls launch each of their kernels once. Calls of other families may repeat a kernel:
/// a convolution per group, a recurrent network per time step, a sort per digit.
const LAUNCHED_ONCE: [Family; 14] = [
    Family::Gemm,
    Family::Norm,
    Family::Softmax,
    Family::Loss,
    Family::Pointwise,
    Family::Dropout,
    Family::Reduce,
    Family::Copy,
    Family::Cast,
    Family::Fill,
    Family::Random,
    Family::Embedding,
    Family::Pool,
    Family::Interpolate,
];

/// Whether the calls of an operator launch each of their kernels once.
fn launches_once(op: &OpName) -> bool {
    let once = ops::family(op).is_some_and(|family| LAUNCHED_ONCE.contains(&family));
    once && !op.name.starts_with("_foreach")
}

/// All choices, with their operators and arguments.
#[derive(Debug, Default)]
pub(super) struct OpChoices {
    list: Vec<OpChoice>,
    /// Each operator, and whether its calls launch each of their kernels once.
    ops: IndexMap<OpName, bool, FxBuildHasher>,
    shapes: Vec<OpArgs>,
}

impl OpChoices {
    pub(super) fn get(&self, id: ChoiceId) -> Option<&OpChoice> {
        self.list.get(id.idx())
    }

    pub(super) fn op(&self, id: OpId) -> Option<&OpName> {
        self.ops.get_index(id.idx()).map(|(op, _)| op)
    }

    /// Whether the calls of an operator launch each of their kernels once.
    pub(super) fn launches_once(&self, id: OpId) -> bool {
        self.ops.get_index(id.idx()).is_some_and(|(_, once)| *once)
    }

    pub(super) fn shapes(&self, id: ShapesId) -> Option<&OpArgs> {
        self.shapes.get(id.idx())
    }

    fn add(&mut self, choice: OpChoice) -> ChoiceId {
        self.list.push(choice);
        ChoiceId::new(self.list.len() - 1)
    }

    fn add_op(&mut self, op: OpName) -> OpId {
        let entry = self.ops.entry(op);
        let id = OpId::new(entry.index());
        entry.or_insert_with_key(launches_once);
        id
    }

    fn add_shapes(&mut self, args: OpArgs) -> ShapesId {
        self.shapes.push(args);
        ShapesId::new(self.shapes.len() - 1)
    }
}

/// The choice of every kernel, in the order of the records.
pub(super) fn choose(records: &Records) -> (OpChoices, Vec<ChoiceId>) {
    let mut chooser = Chooser::new(records);
    let chosen = records.iter().map(|record| chooser.next(record)).collect();
    (chooser.known.choices, chosen)
}

/// Finds the operators of kernels and their forward kernels.
#[derive(Debug)]
struct Chooser {
    known: Reading,
    /// By context: the operator named by the ranges around the launch.
    owns: Vec<Own>,
    /// Choices of backward kernels, by their own choice and that of their forward kernel.
    backward: FxHashMap<(ChoiceId, ChoiceId), ChoiceId>,
    /// The last forward kernel of a device with this sequence number.
    by_seq: FxHashMap<(u32, u64), ChoiceId>,
    /// The same, for alternative sequence numbers.
    by_alt: FxHashMap<(u32, u64), ChoiceId>,
}

/// The operator of a context.
#[derive(Debug)]
enum Own {
    Is(ChoiceId),
    /// One of several ranges, which depends on the numbers of the kernel.
    OneOf(Vec<Candidate>),
}

/// A range of `emit_nvtx` that may name the operator.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    shaped: bool,
    known: bool,
    op_id: Source,
    seq: Source,
    choice: ChoiceId,
}

/// The source of a number.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// The kernel's ranges.
    InRanges(usize),
    Text(Option<u64>),
}

impl Source {
    fn of(self, record: Record<'_>) -> Option<u64> {
        match self {
            Source::InRanges(at) => record.in_ranges().get(at).copied(),
            Source::Text(number) => number,
        }
    }
}

impl Candidate {
    /// The rank of a candidate, the highest is chosen: with shapes, known to the cost table, operator
    /// id, sequence number.
    fn rank(&self, record: Record<'_>) -> (bool, bool, Option<u64>, Option<u64>) {
        // PyTorch prints 2^64 - 1 for a missing sequence number.
        let seq = self.seq.of(record).filter(|&n| n != u64::MAX);
        (self.shaped, self.known, self.op_id.of(record), seq)
    }
}

impl Chooser {
    fn new(records: &Records) -> Chooser {
        let mut known = Reading::default();
        let contexts = (0..).map(ContextId).zip(&records.contexts);
        let owns = contexts
            .map(|(id, context)| known.own(id, context))
            .collect();
        Chooser {
            known,
            owns,
            backward: FxHashMap::default(),
            by_seq: FxHashMap::default(),
            by_alt: FxHashMap::default(),
        }
    }

    /// The operator of the next kernel, in the order of the records.
    fn next(&mut self, record: Record<'_>) -> ChoiceId {
        let own = self.own(record);
        let device = record.device();
        if record.context().dir != Dir::Bprop {
            for id in record.seq() {
                self.by_seq.insert((device, *id), own);
            }
            for id in record.alt() {
                self.by_alt.insert((device, *id), own);
            }
            return own;
        }
        let forward = record.seq().first().and_then(|id| {
            let key = (device, *id);
            self.by_seq.get(&key).or_else(|| self.by_alt.get(&key))
        });
        let Some(forward) = forward else { return own };
        let known = &mut self.known;
        *self
            .backward
            .entry((own, *forward))
            .or_insert_with(|| known.backward(own, *forward))
    }

    fn own(&self, record: Record<'_>) -> ChoiceId {
        match self.owns.get(record.own.context.idx()) {
            Some(Own::Is(choice)) => *choice,
            Some(Own::OneOf(candidates)) => {
                let best = candidates.iter().max_by_key(|c| c.rank(record));
                best.map_or(ChoiceId(0), |best| best.choice)
            }
            None => ChoiceId(0),
        }
    }
}

/// Parses markers and ranges, once per distinct text.
#[derive(Debug, Default)]
struct Reading {
    choices: OpChoices,
    markers: FxHashMap<Text, Option<(Arc<Marker>, ShapesId)>>,
    sizes: FxHashMap<String, Option<ShapesId>>,
    texts: IndexSet<RangeTemplate, FxBuildHasher>,
    /// By context, whether it has source lines or a layer.
    has_lines: Vec<bool>,
}

impl Reading {
    fn own(&mut self, id: ContextId, context: &LaunchContext) -> Own {
        self.has_lines
            .push(!context.trace.is_empty() || !context.layer.is_empty());
        match self.marked(id, context) {
            Some(choice) => Own::Is(self.choices.add(choice)),
            None => self.ranged(id, context),
        }
    }

    fn marked(&mut self, id: ContextId, context: &LaunchContext) -> Option<OpChoice> {
        let read: Vec<(&Text, (Arc<Marker>, ShapesId))> = context
            .markers
            .iter()
            .filter_map(|text| Some((text, self.marker(text)?)))
            .collect();
        let innermost = |wanted: &dyn Fn(&Marker) -> bool| {
            let mut inwards = read.iter().rev();
            inwards.find(|(_, (marker, _))| wanted(marker))
        };
        let (text, (marker, shapes)) = innermost(&|m| ops::knows(&m.op) && !m.args.is_empty())
            .or_else(|| innermost(&|m| ops::knows(&m.op)))
            .or_else(|| innermost(&|m| !is_attribute(&m.op.name)))
            .or_else(|| read.first())?;
        Some(OpChoice {
            op: self.choices.add_op(marker.op.clone()),
            args: Some(*shapes),
            marker: Some(Arc::clone(marker)),
            from_forward: false,
            range: Some(self.range(&RangeTemplate::new(Text::clone(text), [None; 2]), 0)),
            context: id,
        })
    }

    /// The operator from ranges of `emit_nvtx` alone. They are in PyProf's order, not in nesting order:
    /// of two, the one with the higher operator id or sequence number began later, inside the other.
    fn ranged(&mut self, id: ContextId, context: &LaunchContext) -> Own {
        // Used when no range names a known operator.
        let first = |list: &[Text]| list.first().map_or("", |text| text).to_owned();
        let nameless = OpChoice {
            op: self.choices.add_op(OpName {
                module: first(&context.mods),
                name: first(&context.ops),
            }),
            marker: None,
            args: None,
            from_forward: false,
            range: None,
            context: id,
        };
        let nameless = self.choices.add(nameless);
        let mut from = 0;
        let mut candidates = Vec::with_capacity(context.seq_markers.len());
        for range_template in &context.seq_markers {
            candidates.push(self.candidate(range_template, from, id, context.dir, nameless));
            from += range_template.slots();
        }
        match candidates.as_slice() {
            [] => Own::Is(nameless),
            [only] => Own::Is(only.choice),
            _ => Own::OneOf(candidates),
        }
    }

    fn candidate(
        &mut self,
        range_template: &RangeTemplate,
        from: usize,
        id: ContextId,
        dir: Dir,
        nameless: ChoiceId,
    ) -> Candidate {
        /// Numbers that mark the slots.
        const MARKS: [u64; 2] = [7_700_000_000_000_000_001, 7_700_000_000_000_000_002];
        let text = range_template.filled(&MARKS);
        let parts = RangeText::split(&text);
        let source = |number: Option<u64>| {
            let mut marks = MARKS.iter().take(range_template.slots());
            match marks.position(|mark| Some(*mark) == number) {
                Some(slot) => Source::InRanges(from + slot),
                None => Source::Text(number),
            }
        };
        let op = bare(parts.name);
        let known = ops::knows(&op);
        let args = parts.sizes.filter(|_| known).and_then(|s| self.sizes(s));
        // Inside an autograd node, only a range with shapes is more specific than the node.
        let tells = args.is_some() || (known && dir != Dir::Bprop);
        let choice = if tells {
            let own = OpChoice {
                op: self.choices.add_op(op),
                marker: None,
                args,
                from_forward: false,
                range: Some(self.range(range_template, from)),
                context: id,
            };
            self.choices.add(own)
        } else {
            nameless
        };
        Candidate {
            shaped: args.is_some(),
            known,
            op_id: source(parts.op_id),
            seq: source(parts.seq),
            choice,
        }
    }

    fn range(&mut self, range_template: &RangeTemplate, from: usize) -> ChosenRange {
        let text = self.texts.insert_full(range_template.clone()).0;
        ChosenRange {
            text: u32::try_from(text).unwrap_or(u32::MAX),
            numbered: range_template.blank().contains(", op_id = "),
            from,
            to: from + range_template.slots(),
        }
    }

    /// The choice for a backward kernel with a forward kernel.
    fn backward(&mut self, own: ChoiceId, forward: ChoiceId) -> ChoiceId {
        let (Some(mine), Some(theirs)) = (self.choices.get(own), self.choices.get(forward)) else {
            return own;
        };
        // The autograd thread has no source lines.
        let lines = self.has_lines.get(mine.context.idx()) == Some(&true);
        let context = if mine.marker.is_some() && lines {
            mine.context
        } else {
            theirs.context
        };
        let new = if mine.marker.is_some() || mine.args.is_some() {
            // It has arguments, so those of the forward kernel are not needed.
            OpChoice {
                context,
                ..mine.clone()
            }
        } else {
            OpChoice {
                from_forward: theirs.args.is_some(),
                range: None,
                ..theirs.clone()
            }
        };
        self.choices.add(new)
    }

    fn marker(&mut self, text: &Text) -> Option<(Arc<Marker>, ShapesId)> {
        if let Some(known) = self.markers.get(text) {
            return known.clone();
        }
        let read = Marker::parse(text).map(|marker| {
            let shapes = self.choices.add_shapes(marker.op_args.clone());
            (Arc::new(marker), shapes)
        });
        self.markers.insert(Text::clone(text), read.clone());
        read
    }

    fn sizes(&mut self, sizes: &str) -> Option<ShapesId> {
        if let Some(known) = self.sizes.get(sizes) {
            return *known;
        }
        let read = args::of_sizes(sizes).map(|args| self.choices.add_shapes(args));
        self.sizes.insert(sizes.to_owned(), read);
        read
    }
}

/// The operator of a range without marker, with PyProf's word for its module.
fn bare(name: &str) -> OpName {
    OpName {
        module: String::new(),
        name: name.to_owned(),
    }
}

/// Whether a name is a getter, which PyProf wraps although it launches nothing.
fn is_attribute(name: &str) -> bool {
    name.starts_with("__get") || name.starts_with("__set") || name == "__delattr__"
}
