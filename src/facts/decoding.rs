//! Whether tokens are decoded one by one.

use super::fact::{FactEntry, facts};
use super::table::Runs;
use crate::cost::{Costed, Dims};

/// The operator that looks up embeddings, whichever kernel it runs.
const EMBEDDING: &str = "aten::embedding";

/// Whether embeddings are looked up, and one query of each sequence attends to several keys. `None` where neither
/// operators nor their sizes say.
fn decodes(costed: &Costed) -> Option<bool> {
    let sites = || costed.run.sites.iter().zip(&costed.sites);
    if sites().all(|(site, _)| site.op.is_none()) {
        return None;
    }
    let strings = &costed.run.profile.strings;
    if !strings.iter().any(|(_, text)| text == EMBEDDING) {
        return Some(false);
    }
    let mut known = false;
    let costs = sites().filter_map(|(_, cost)| cost.cost.as_ref().ok());
    for role in costs.flat_map(|cost| &cost.roles) {
        let one_query = match role.dims {
            Dims::Attention(size) => size.seq_q == 1 && size.seq_k > 1,
            // Attention in several operators.
            Dims::Gemm(size) => size.batch > 1 && size.m == 1,
            _ => continue,
        };
        known = true;
        if one_query {
            return Some(true);
        }
    }
    known.then_some(false)
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Tokens are decoded one by one: embeddings are looked up, and attention has one query of each sequence
    "run.decodes_tokens": BOOL needs SHAPES => |t| decodes(t.costed),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    fn of(operators: &[&str]) -> Option<bool> {
        let mut b = ProfileBuilder::new();
        for (at, text) in (0..).step_by(1000).zip(operators) {
            b.range(text, at, at + 100);
            b.launch(at + 10);
        }
        decodes(&estimate_costs(b.run(), None))
    }

    const LOOKUP: &str = "aten::embedding, seq = 1, sizes = [[100, 64], [3, 1], [], [], []]";
    const MM: &str = "aten::mm, seq = 2, sizes = [[3, 64], [64, 64]]";

    #[test]
    fn embeddings_and_attention_of_one_query_decode_tokens() {
        let sdpa = "aten::scaled_dot_product_attention, seq = 3, sizes = [[3, 4, 1, 16], [3, 4, 9, 16], [3, 4, 9, 16], []]";
        let scores = "aten::bmm, seq = 3, sizes = [[12, 1, 16], [12, 16, 9]]";
        for attention in [sdpa, scores] {
            assert_eq!(of(&[LOOKUP, MM, attention]), Some(true), "{attention}");
            assert_eq!(of(&[MM, attention]), Some(false), "{attention}");
        }
    }

    #[test]
    fn attention_of_all_queries_does_not_decode() {
        let scores = "aten::bmm, seq = 3, sizes = [[12, 9, 16], [12, 16, 9]]";
        assert_eq!(of(&[LOOKUP, MM, scores]), Some(false));
    }

    #[test]
    fn without_operators_or_sizes_nothing_is_known() {
        assert_eq!(of(&["aten::embedding, seq = 1", "aten::mm, seq = 2"]), None);
        assert_eq!(of(&["step"]), None);
    }
}
