//! Dense gradients of embedding tables: how many of their rows a step looks up, and how much of all
//! gradients the other rows are, which are zero.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::enclosing_ops::plain_name;
use super::fact::{Answer, FactEntry, facts};
use super::site::{SiteScope, Sites};
use super::table::Runs;
use crate::correlate::args::shapes_of;
use crate::correlate::{ArgValue, Direction, OpArgs, Run, Site, Tensor};
use crate::cost::{Costed, Family};
use crate::profile::StrId;

/// Rows and columns of a table.
type Size = [u64; 2];

/// All tables of one size.
#[derive(Debug, Clone, Copy, Default)]
struct Tables {
    /// Gradients kept for the optimizer, in the window.
    gradients: u64,
    /// Rows looked up, in the window; a row may be looked up several times.
    lookups: u64,
    /// Whether each result sums up several rows.
    bags: bool,
}

impl Tables {
    /// The rows that each gradient has values for, at most.
    fn rows(&self, size: Size) -> u64 {
        let each = self.lookups.checked_div(self.gradients).unwrap_or(0);
        each.min(size[0])
    }

    /// The share of each gradient that is zero, at least.
    fn unused(&self, size: Size) -> f64 {
        1.0 - self.rows(size) as f64 / (size[0] as f64).max(1.0)
    }
}

/// The tables of a run that have dense gradients.
#[derive(Debug, Default)]
pub(super) struct EmbeddingTables {
    by_size: BTreeMap<Size, Tables>,
    /// Elements of all gradients that the optimizer gets, in the window.
    elements: f64,
}

/// The node of autograd that keeps the gradient of a parameter, with the gradient as its argument.
const KEEPS: &str = "torch::autograd::AccumulateGrad";

impl EmbeddingTables {
    pub(super) fn of(costed: &Costed) -> EmbeddingTables {
        let run = &costed.run;
        let sites = || run.sites.iter().zip(&costed.sites);
        let mut by_size: BTreeMap<Size, Tables> = BTreeMap::new();
        for (site, cost) in sites() {
            if cost.family == Family::Embedding
                && let Some((size, lookups)) = gradient(run, site)
            {
                let tables = by_size.entry(size).or_default();
                let all = lookups.saturating_mul(u64::from(site.calls));
                tables.bags |= is_bag(site);
                tables.lookups = tables.lookups.saturating_add(all);
            }
        }
        if by_size.is_empty() {
            return EmbeddingTables::default();
        }
        // A table that is the weight of a product as well gets a dense gradient from that.
        let products = sites().filter(|(_, cost)| cost.family == Family::Gemm);
        let args = products.filter_map(|(site, _)| run.arguments(site.args?));
        let operands: FxHashSet<Size> = args
            .flat_map(OpArgs::tensors)
            .filter_map(|tensor| size(&tensor.shape))
            .collect();
        by_size.retain(|&[rows, columns], _| {
            !operands.contains(&[rows, columns]) && !operands.contains(&[columns, rows])
        });
        let mut elements = 0.0;
        for (shape, count) in kept_gradients(run) {
            elements += count as f64 * product(&shape);
            if let Some(tables) = size(&shape).and_then(|size| by_size.get_mut(&size)) {
                tables.gradients += count;
            }
        }
        by_size.retain(|_, tables| tables.gradients > 0);
        EmbeddingTables { by_size, elements }
    }

    /// The size of the tables whose gradients have most elements, and those tables.
    fn largest(&self) -> Option<(Size, Tables)> {
        let all = self.by_size.iter().map(|(size, tables)| (*size, *tables));
        let elements = |(size, tables): &(Size, Tables)| tables.gradients as f64 * product(size);
        all.max_by(|a, b| elements(a).total_cmp(&elements(b)))
    }

    /// The share of the elements of all gradients that belong to rows of tables that nothing looked up.
    fn unused_share(&self) -> Option<f64> {
        let unused = self
            .by_size
            .iter()
            .map(|(size, tables)| tables.gradients as f64 * product(size) * tables.unused(*size));
        (!self.by_size.is_empty() && self.elements > 0.0)
            .then(|| unused.sum::<f64>() / self.elements)
    }

    /// The same of the gradient that a site computes or sets to zero.
    fn unused_of(&self, site: &SiteScope<'_>) -> Option<f64> {
        let run = &site.table.costed.run;
        let size = match site.cost.family {
            Family::Embedding => gradient(run, site.site)?.0,
            Family::Fill if site.site.direction == Direction::Bprop => {
                size(&site.args()?.tensors().next()?.shape)?
            }
            _ => return None,
        };
        self.by_size.get(&size).map(|tables| tables.unused(size))
    }
}

fn size(shape: &[u64]) -> Option<Size> {
    shape.try_into().ok()
}

fn product(shape: &[u64]) -> f64 {
    shape.iter().map(|&n| n as f64).product()
}

fn is_bag(site: &Site) -> bool {
    (site.op.as_ref()).is_some_and(|op| plain_name(&op.name).starts_with("embedding_bag"))
}

/// The size of the table whose dense gradient a site computes, and the rows that one call looks up.
pub(super) fn gradient(run: &Run, site: &Site) -> Option<(Size, u64)> {
    if site.direction != Direction::Bprop {
        return None;
    }
    let args = run.arguments(site.args?)?;
    let name = plain_name(&site.op.as_ref()?.name);
    let integral = |t: &&Tensor| t.dtype.is_none_or(|dtype| !dtype.is_float());
    match name {
        // (dY, indices, num_weights, padding_idx, scale_grad_by_freq)
        "embedding_dense_backward" | "embedding_backward" => {
            let columns = *args.tensor(0, "grad_output")?.shape.last()?;
            let indices = args.tensor(1, "indices").filter(integral)?;
            let rows = match args.get(2, "num_weights")? {
                ArgValue::Int(rows) => u64::try_from(*rows).ok()?,
                _ => return None,
            };
            Some(([rows, columns], indices.elements()))
        }
        // (weight, indices, ...) of the forward call
        "embedding" | "embedding_bag" => {
            let table = size(&args.tensor(0, "weight")?.shape)?;
            let indices = args.tensor(1, "indices").filter(integral)?;
            Some((table, indices.elements()))
        }
        _ => None,
    }
}

/// The shapes of the gradients that were kept for the optimizer in the window, with their number.
fn kept_gradients(run: &Run) -> Vec<(Vec<u64>, u64)> {
    let Some(window) = run.window.span else {
        return Vec::new();
    };
    let mut counts: FxHashMap<StrId, u64> = FxHashMap::default();
    for range in &run.profile.ranges {
        if let Some(args) = range.args
            && run.profile.text(range.text) == KEEPS
            && window.contains(range.span.start)
        {
            *counts.entry(args).or_default() += 1;
        }
    }
    let shape = |text: StrId| {
        let args = shapes_of(run.profile.text(text))?;
        args.tensors().next().map(|tensor| tensor.shape.clone())
    };
    let kept = counts.into_iter();
    kept.filter_map(|(text, count)| Some((shape(text)?, count)))
        .collect()
}

pub(super) const RUN_ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Share of all gradients, by elements, in rows of embedding tables that nothing looked up: they are
    /// zero; silent where no table has a dense gradient of known shape
    "run.unused_gradient_share": DOUBLE => |t| Answer::or_silent(t.embedding_tables.unused_share()),
    /// Dense gradients of embedding tables of the size with most elements; tables that are the weight of a
    /// product as well do not count
    "run.table_gradients": INT =>
        |t| Answer::or_silent(t.embedding_tables.largest().map(|(_, tables)| tables.gradients)),
    /// Dense gradients of embedding tables of all sizes, without those of tables that are the weight of a product
    "run.all_table_gradients": INT => |t| {
        let of_sizes = t.embedding_tables.by_size.values().map(|tables| tables.gradients);
        Answer::or_silent(of_sizes.reduce(u64::saturating_add))
    },
    /// Rows of each of these tables
    "run.table_rows": INT =>
        |t| Answer::or_silent(t.embedding_tables.largest().map(|(size, _)| size[0])),
    /// Rows of each of these tables that were looked up for one gradient, at most
    "run.table_rows_used": INT =>
        |t| Answer::or_silent(t.embedding_tables.largest().map(|(size, all)| all.rows(size))),
    /// They are tables of `nn.EmbeddingBag`
    "run.tables_are_bags": BOOL =>
        |t| Answer::or_silent(t.embedding_tables.largest().map(|(_, tables)| tables.bags)),
};

pub(super) const SITE_ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Share of the rows that nothing looked up in the embedding table whose dense gradient it computes or
    /// sets to zero; silent for other work
    "site.unused_gradient_share": DOUBLE of &[Family::Embedding, Family::Fill] =>
        |s| Answer::or_silent(s.table.embedding_tables.unused_of(s)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::{FactTable, Lookup, Member, MemberKind, Value};

    /// A step with a table of 1,000 rows and 4 columns, of which `lookups` rows are looked up, and a weight
    /// of these rows and columns.
    fn step(lookups: u64, weight: [u64; 2]) -> Costed {
        let [rows, columns] = weight;
        let mut b = ProfileBuilder::new();
        let work = [
            format!("aten::embedding, seq = 1, sizes = [[1000, 4], [{lookups}]]"),
            format!("aten::mm, seq = 2, sizes = [[8, {rows}], [{rows}, {columns}]]"),
        ];
        for (at, text) in work.iter().enumerate() {
            let at = at as i64 * 100;
            b.range(text, at, at + 50);
            b.launch(at + 10);
        }
        b.range("EmbeddingBackward0, seq = 1", 300, 400);
        b.range("aten::fill_, sizes = [[1000, 4], []]", 310, 330);
        b.launch(320);
        b.launch(350);
        for (at, shape) in [(400, [1000, 4]), (420, weight)] {
            let text = format!("{KEEPS}, seq = 9, sizes = [{shape:?}]");
            b.range(&text, at, at + 10);
        }
        b.range("aten::sum, sizes = [[8, 8]]", 500, 550);
        b.launch(510);
        crate::cost::estimate_costs(b.run(), None)
    }

    fn double(costed: &Costed, fact: &str) -> Option<f64> {
        match FactTable::new(costed).view(Member::Run).get(fact) {
            Answer::Value(Value::Double(value)) => Some(value),
            _ => None,
        }
    }

    #[test]
    fn rows_that_nothing_looks_up_are_a_share_of_all_gradients() {
        let costed = step(100, [3000, 2]);
        // 4,000 of 10,000 elements are the table's, and 100 of its 1,000 rows are used.
        assert_eq!(double(&costed, "run.unused_gradient_share"), Some(0.36));
        let table = FactTable::new(&costed);
        let run = table.view(Member::Run);
        let facts = [
            "run.table_gradients",
            "run.table_rows",
            "run.table_rows_used",
        ];
        let wanted = [1_u64, 1000, 100].map(Answer::from);
        assert_eq!(facts.map(|fact| run.get(fact)), wanted);
        let of_sites = (table.members(MemberKind::Site).into_iter())
            .map(|site| table.view(site).get("site.unused_gradient_share"))
            .filter(|answer| *answer == Answer::from(0.9));
        assert_eq!(of_sites.count(), 2, "the backward pass and the fill");
    }

    #[test]
    fn rows_that_are_looked_up_several_times_count_once() {
        let costed = step(5000, [3000, 2]);
        assert_eq!(double(&costed, "run.unused_gradient_share"), Some(0.0));
    }

    #[test]
    fn tables_that_are_weights_of_products_have_dense_gradients_anyway() {
        for weight in [[1000, 4], [4, 1000]] {
            let costed = step(100, weight);
            assert_eq!(double(&costed, "run.unused_gradient_share"), None);
        }
    }
}
