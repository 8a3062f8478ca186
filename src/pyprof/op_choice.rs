//! Chooses the operator of each kernel: the innermost marker with arguments that names an operator of
//! the cost table; for backward kernels without arguments, that of the forward kernel.
//!
//! PyProf chooses the outermost marker, so that a product inside `multi_head_attention_forward` has no
//! cost, and everything inside the unclosed marker of a getter is attributed to the getter.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::kernel_row::{KernelRow, OpChoice};
use super::marker::Operator;
use super::record::{Dir, LaunchContext, Record};
use crate::profile::RangeText;

/// Chooses operators. Each distinct marker and range is parsed once.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    markers: FxHashMap<String, Option<Arc<Operator>>>,
    /// Operators of ranges, by name and sizes.
    ranges: FxHashMap<String, FxHashMap<String, Arc<Operator>>>,
    /// The row of the last forward kernel of a device with this sequence number.
    by_seq: FxHashMap<(u32, u64), usize>,
    /// The same, for alternative sequence numbers.
    by_alt: FxHashMap<(u32, u64), usize>,
}

impl Chooser {
    /// The operator of the kernel that follows `rows`.
    pub(super) fn next(&mut self, record: &Record, rows: &[KernelRow]) -> OpChoice {
        let own = self.own(record);
        if record.context.dir == Dir::Bprop {
            let forward = self.forward(record).and_then(|at| rows.get(at));
            return match forward {
                Some(forward) => own.with_forward(&forward.choice),
                None => own,
            };
        }
        for seq in &record.seq {
            self.by_seq.insert((record.device, *seq), rows.len());
        }
        for alt in &record.alt {
            self.by_alt.insert((record.device, *alt), rows.len());
        }
        own
    }

    /// The row of the forward kernel of a backward kernel.
    fn forward(&self, record: &Record) -> Option<usize> {
        let key = (record.device, *record.seq.first()?);
        let row = self.by_seq.get(&key).or_else(|| self.by_alt.get(&key));
        row.copied()
    }

    /// The operator that the ranges around the launch name.
    fn own(&mut self, record: &Record) -> OpChoice {
        let marked = self.marked(&record.context);
        let (operator, parts) = match marked {
            Some(operator) => (Some(operator), RangeText::default()),
            None => self.ranged(record),
        };
        OpChoice {
            operator,
            from_forward: false,
            seq: parts.seq,
            op_id: parts.op_id,
            context: Arc::clone(&record.context),
        }
    }

    fn marked(&mut self, context: &LaunchContext) -> Option<Arc<Operator>> {
        let markers = context.markers.iter();
        let read: Vec<Arc<Operator>> = markers.filter_map(|text| self.marker(text)).collect();
        let innermost = |wanted: fn(&Operator) -> bool| read.iter().rev().find(|op| wanted(op));
        innermost(|op| op.is_known && !op.marker_args.is_empty())
            .or_else(|| innermost(|op| op.is_known))
            .or_else(|| innermost(|op| !is_attribute(&op.name.name)))
            .or_else(|| read.first())
            .cloned()
    }

    /// The operator from ranges of `emit_nvtx` alone, and its range. They are in PyProf's order, not in
    /// nesting order: of two, the one with the higher operator id or sequence number began later, inside
    /// the other.
    fn ranged<'t>(&mut self, record: &'t Record) -> (Option<Arc<Operator>>, RangeText<'t>) {
        let ranges = record.seq_markers.iter().map(|marker| {
            let parts = marker.parts();
            (self.range(&parts), parts)
        });
        let best = ranges.max_by_key(|(operator, parts)| {
            let has_shapes = operator.args.is_some();
            (has_shapes, operator.is_known, parts.op_id, parts.seq)
        });
        let Some((operator, parts)) = best else {
            return (None, RangeText::default());
        };
        // Inside an autograd node, only a range with shapes is more specific than the node.
        let tells = operator.is_known && record.context.dir != Dir::Bprop;
        let operator = Some(operator).filter(|operator| tells || operator.args.is_some());
        (operator, parts)
    }

    fn marker(&mut self, text: &str) -> Option<Arc<Operator>> {
        if let Some(known) = self.markers.get(text) {
            return known.clone();
        }
        let new = Operator::of_marker(text).map(Arc::new);
        self.markers.insert(text.to_owned(), new.clone());
        new
    }

    fn range(&mut self, parts: &RangeText<'_>) -> Arc<Operator> {
        let sizes = parts.sizes.unwrap_or_default();
        if let Some(known) = self.ranges.get(parts.name).and_then(|all| all.get(sizes)) {
            return Arc::clone(known);
        }
        let new = Arc::new(Operator::of_range(parts.name, sizes));
        let by_sizes = self.ranges.entry(parts.name.to_owned()).or_default();
        by_sizes.insert(sizes.to_owned(), Arc::clone(&new));
        new
    }
}

/// Whether a name is a getter, which PyProf wraps although it launches nothing.
fn is_attribute(name: &str) -> bool {
    name.starts_with("__get") || name.starts_with("__set") || name == "__delattr__"
}
