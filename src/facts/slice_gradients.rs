//! Into how many slices a program takes a tensor apart, by the gradients of the slices.

use std::collections::BTreeMap;

use super::enclosing_ops::{operator_in, slicing_node};
use super::fact::{Answer, FactEntry, facts};
use super::range_paths::{NodeId, RangePaths};
use super::site::Sites;
use crate::correlate::{Direction, Run};

/// The gradients of the slices that one operator took.
#[derive(Debug, Clone, Copy, Default)]
struct Gradients {
    /// Tensors that were filled with zeros, one for each slice.
    filled: u64,
    /// Those that were added to another gradient of the same tensor.
    added: u64,
}

/// The gradients of all slices of a run, by the operator of their backward pass.
#[derive(Debug, Default)]
pub(super) struct SliceGradients(BTreeMap<&'static str, Gradients>);

impl SliceGradients {
    pub(super) fn of(run: &Run, paths: &RangePaths) -> SliceGradients {
        let mut all = SliceGradients::default();
        let node = |id: NodeId| paths.nodes().get(id.idx());
        for time in paths.times() {
            let Some(own) = node(time.node) else {
                continue;
            };
            let outer = own.around.and_then(node);
            let mut around = std::iter::successors(outer, |inner| inner.around.and_then(node))
                .map(|range| slicing_node(run.profile.text(range.name)));
            match operator_in(run.profile.text(own.name)) {
                Some("fill") => {
                    if let Some(operator) = around.flatten().next() {
                        all.0.entry(operator).or_default().filled += time.kernels;
                    }
                }
                // The engine adds after it has run the node, inside its own range.
                Some("add") => {
                    if let Some(operator) = around.next().flatten() {
                        all.0.entry(operator).or_default().added += time.kernels;
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// The mean number of slices of a tensor. The engine adds every gradient of a tensor but the first to those
    /// before, so slices that are the only use of their tensors take one sum less per tensor. Where there are as
    /// many sums as slices, tensors have other uses, and nothing tells how many slices each has.
    fn per_tensor(&self, operator: &str) -> Option<f64> {
        let of = self.0.get(operator)?;
        if of.filled > 0 && self.0.values().all(|g| g.added == 0) {
            return Some(1.0);
        }
        let tensors = of.filled.checked_sub(of.added)?;
        (of.added > 0 && tensors > 0).then(|| of.filled as f64 / tensors as f64)
    }
}

pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Backward work on slices (`x[:, t]`, `x[:, :n]`): into how many slices a tensor is taken apart, on average,
    /// with all slices of the same operator; silent where the sums of their gradients do not tell
    "site.slices_per_tensor": DOUBLE => |s| {
        let backward = s.site.direction == Direction::Bprop;
        let words = s.table.enclosing_ops.site(s.id);
        let mut known = words.iter().filter_map(|w| s.table.slices.per_tensor(w));
        Answer::or_silent(known.next().filter(|_| backward))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::range_paths::by_string;

    /// Nodes of autograd for slices, and which of them add their result to another gradient.
    fn per_tensor(nodes: &[(&str, bool)], operator: &str) -> Option<f64> {
        let mut b = ProfileBuilder::new();
        for (row, (node, adds)) in nodes.iter().enumerate() {
            let at = 1000 * row as i64;
            let engine = format!("autograd::engine::evaluate_function: {node}Backward0");
            b.range(&engine, at, at + 900);
            let inner = format!("aten::{}_backward", node.to_lowercase());
            b.range(&inner, at + 10, at + 400);
            b.range("aten::fill_", at + 20, at + 100);
            b.launch(at + 30);
            b.range("aten::add_", at + 110, at + 200);
            b.launch(at + 120);
            if *adds {
                b.range("aten::add_", at + 410, at + 500);
                b.launch(at + 420);
            }
        }
        let run = b.run();
        let counts = by_string(&run, |text| operator_in(text).is_some());
        SliceGradients::of(&run, &RangePaths::of(&run, &counts)).per_tensor(operator)
    }

    #[test]
    fn a_tensor_has_one_sum_less_than_slices() {
        let select = |adds| ("Select", adds);
        let slice = |adds| ("Slice", adds);
        let of_four = [false, true, true, true].map(select);
        assert_eq!(per_tensor(&of_four, "select_backward"), Some(4.0));
        assert_eq!(per_tensor(&of_four, "slice_backward"), None);
        // No tensor has two.
        let alone = [select(false), slice(false)];
        assert_eq!(per_tensor(&alone, "select_backward"), Some(1.0));
        // Each gradient is added to one, which may be that of a residual.
        assert_eq!(per_tensor(&[true, true].map(slice), "slice_backward"), None);
        // A slice of a slice.
        let nested = [select(false), slice(false), select(false), slice(true)];
        assert_eq!(per_tensor(&nested, "slice_backward"), Some(2.0));
        assert_eq!(per_tensor(&nested, "select_backward"), None);
    }
}
