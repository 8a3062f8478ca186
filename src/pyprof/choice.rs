//! Which operator a kernel's work is: the innermost marker that names one the cost table knows,
//! with arguments; for backward work that carries none, that of its forward kernel.
//!
//! PyProf takes the outermost marker, so that a product inside `multi_head_attention_forward` has no
//! cost, and everything inside a getter's marker that was left open is that getter.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::marker::Marker;
use super::{Dir, Place, Record, Text};
use crate::correlate::{OpArgs, OpName, args};
use crate::cost::ops;
use crate::profile::RangeText;

/// What a kernel's row says of its operator.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub op: Arc<OpName>,
    /// The marker it stands in, when PyProf's markers name it.
    pub marker: Option<Arc<Marker>>,
    /// Shapes; `None` when nothing carries any.
    pub args: Option<Arc<OpArgs>>,
    /// The arguments are those of the forward call.
    pub from_forward: bool,
    /// The range the choice is from: equal for kernels of one call.
    pub text: Option<Text>,
    /// Where layer and source lines are from: the forward kernel's for backward ones.
    pub place: Arc<Place>,
}

/// Reads markers once per distinct text and finds forward kernels.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    markers: FxHashMap<Text, Option<Arc<Marker>>>,
    ranges: FxHashMap<Text, Option<Arc<OpArgs>>>,
    /// By the address of the surroundings.
    owns: FxHashMap<usize, Choice>,
    /// The last forward kernel of a device with a sequence number as its own.
    by_seq: FxHashMap<(u32, u64), Choice>,
    /// The same with the number among the alternatives.
    by_alt: FxHashMap<(u32, u64), Choice>,
}

/// A range of `emit_nvtx` that may be the operator.
struct Candidate<'p> {
    /// With shapes, known to the cost table, operator id, sequence number: the highest wins.
    rank: (bool, bool, Option<u64>, Option<u64>),
    text: &'p Text,
    op: OpName,
}

impl Chooser {
    /// The operator of the next kernel, in the order of the records.
    pub(super) fn next(&mut self, record: &Record) -> Choice {
        let own = self.own(&record.place);
        if record.place.dir != Dir::Bprop {
            for (ids, map) in [
                (&record.seq, &mut self.by_seq),
                (&record.alt, &mut self.by_alt),
            ] {
                for id in ids {
                    map.insert((record.device, *id), own.clone());
                }
            }
            return own;
        }
        let forward = record.seq.first().and_then(|id| {
            let key = (record.device, *id);
            self.by_seq.get(&key).or_else(|| self.by_alt.get(&key))
        });
        if own.marker.is_some() {
            // Autograd's thread has no source lines.
            let place =
                forward.filter(|_| own.place.trace.is_empty() && own.place.layer.is_empty());
            return Choice {
                place: Arc::clone(place.map_or(&own.place, |f| &f.place)),
                ..own
            };
        }
        match forward {
            // A range inside the node that lists shapes of its own needs nothing from the forward.
            Some(forward) if own.args.is_some() => Choice {
                place: Arc::clone(&forward.place),
                ..own
            },
            Some(forward) => Choice {
                from_forward: forward.args.is_some(),
                text: None,
                ..forward.clone()
            },
            None => own,
        }
    }

    /// The operator among the ranges around a launch itself.
    fn own(&mut self, place: &Arc<Place>) -> Choice {
        // Equal surroundings are one allocation, which the records keep alive.
        let address = Arc::as_ptr(place) as usize;
        if let Some(known) = self.owns.get(&address) {
            return known.clone();
        }
        let own = self.marked(place).unwrap_or_else(|| self.ranged(place));
        self.owns.insert(address, own.clone());
        own
    }

    fn marked(&mut self, place: &Arc<Place>) -> Option<Choice> {
        let read: Vec<(Text, Arc<Marker>)> = place
            .markers
            .iter()
            .filter_map(|text| Some((Text::clone(text), self.marker(text)?)))
            .collect();
        let innermost = |wanted: &dyn Fn(&Marker) -> bool| {
            let mut inwards = read.iter().rev();
            inwards.find(|(_, marker)| wanted(marker))
        };
        let (text, marker) = innermost(&|m| ops::knows(&m.op) && !m.args.is_empty())
            .or_else(|| innermost(&|m| ops::knows(&m.op)))
            .or_else(|| innermost(&|m| !is_attribute(&m.op.name)))
            .or_else(|| read.first())?;
        Some(Choice {
            op: Arc::new(marker.op.clone()),
            args: Some(Arc::new(marker.op_args.clone())),
            marker: Some(Arc::clone(marker)),
            from_forward: false,
            text: Some(Text::clone(text)),
            place: Arc::clone(place),
        })
    }

    /// From ranges of `emit_nvtx` alone. They stand in PyProf's order, not in that of nesting: of two
    /// the one with the higher operator id or sequence number began later, inside the other.
    fn ranged(&mut self, place: &Arc<Place>) -> Choice {
        let mut best: Option<Candidate<'_>> = None;
        for text in &place.seq_markers {
            let parts = RangeText::split(text);
            let op = bare(parts.name);
            let known = ops::knows(&op);
            let shaped = known && self.sizes(text).is_some();
            let rank = (shaped, known, parts.op_id, parts.seq);
            if best.as_ref().is_none_or(|best| rank >= best.rank) {
                best = Some(Candidate { rank, text, op });
            }
        }
        // Inside an autograd node only a range with shapes says more than the node.
        let best = best.filter(|best| {
            let (shaped, known, ..) = best.rank;
            shaped || (known && place.dir != Dir::Bprop)
        });
        let first = |list: &[Text]| list.first().map_or("", |text| text).to_owned();
        match best {
            Some(Candidate { text, op, .. }) => Choice {
                args: self.sizes(text),
                op: Arc::new(op),
                marker: None,
                from_forward: false,
                text: Some(Text::clone(text)),
                place: Arc::clone(place),
            },
            None => Choice {
                op: Arc::new(OpName {
                    module: first(&place.mods),
                    name: first(&place.ops),
                }),
                marker: None,
                args: None,
                from_forward: false,
                text: None,
                place: Arc::clone(place),
            },
        }
    }

    fn marker(&mut self, text: &Text) -> Option<Arc<Marker>> {
        self.markers
            .entry(Text::clone(text))
            .or_insert_with(|| Marker::parse(text).map(Arc::new))
            .clone()
    }

    fn sizes(&mut self, text: &Text) -> Option<Arc<OpArgs>> {
        self.ranges
            .entry(Text::clone(text))
            .or_insert_with(|| {
                let sizes = RangeText::split(text).sizes?;
                args::of_sizes(sizes).map(Arc::new)
            })
            .clone()
    }
}

/// PyProf's word for the module of an operator without marker.
fn bare(name: &str) -> OpName {
    OpName {
        module: String::new(),
        name: name.to_owned(),
    }
}

/// Getters PyProf wraps although they launch nothing.
fn is_attribute(name: &str) -> bool {
    name.starts_with("__get") || name.starts_with("__set") || name == "__delattr__"
}
