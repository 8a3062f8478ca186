//! Embedding tables of one width that are looked up one after the other, which one table could hold.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::embedding_tables::gradient;
use super::enclosing_ops::{EnclosingOps, plain_name};
use super::fact::{Answer, FactEntry, facts};
use super::site::{SiteScope, Sites};
use crate::base::DType;
use crate::correlate::{Direction, LayerId, OpCallId, Run, Site, SiteId};
use crate::cost::Costed;
use crate::profile::{DeviceId, ProcessId};

/// Other operator calls between two lookups of a series, at most: such as those that take a column of the ids.
const BETWEEN: u32 = 4;

/// A table: by its layer, else by its rows and columns. Tables of one size in one layer count once, because
/// it may be one table that is looked up again.
type Table = (Option<LayerId>, [u64; 2]);

/// What tables must have in common to be one.
type Width = (Option<DType>, u64);

/// How many tables are in the longest series with a table.
#[derive(Debug, Default)]
pub(super) struct TableSeries {
    by_layer: FxHashMap<LayerId, u64>,
    /// Tables without a known layer.
    by_size: FxHashMap<[u64; 2], u64>,
}

/// The lookups on one stream that may go on.
#[derive(Default)]
struct Open {
    width: Option<Width>,
    tables: BTreeSet<Table>,
    /// Calls since the last lookup.
    others: u32,
    call: Option<OpCallId>,
}

impl TableSeries {
    pub(super) fn of(costed: &Costed, around: &EnclosingOps) -> TableSeries {
        let run = &costed.run;
        let sites = (0..).map(SiteId).zip(&run.sites);
        let lookups: Vec<Option<(Width, Table)>> = sites
            .map(|(id, site)| lookup(run, site).filter(|_| is_in(around, id, &["embedding"])))
            .collect();
        let mut found = TableSeries::default();
        if lookups.iter().flatten().nth(1).is_none() {
            return found;
        }
        let mut streams: BTreeMap<(ProcessId, DeviceId, u32), Open> = BTreeMap::new();
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let stream = (kernel.process, kernel.device, kernel.stream);
            let open = streams.entry(stream).or_default();
            let looked_up = link.site.and_then(|site| *lookups.get(site.idx())?);
            let Some((width, table)) = looked_up else {
                open.others += u32::from(link.op.is_none() || link.op != open.call);
                open.call = link.op;
                if open.others > BETWEEN {
                    found.add(&std::mem::take(open));
                }
                continue;
            };
            if open.width.is_some_and(|before| before != width) {
                found.add(&std::mem::take(open));
            }
            open.width = Some(width);
            open.tables.insert(table);
            (open.others, open.call) = (0, link.op);
        }
        for open in streams.values() {
            found.add(open);
        }
        found
    }

    fn add(&mut self, series: &Open) {
        let count = series.tables.len() as u64;
        for &(layer, size) in &series.tables {
            let most = match layer {
                Some(layer) => self.by_layer.entry(layer).or_default(),
                None => self.by_size.entry(size).or_default(),
            };
            *most = count.max(*most);
        }
    }

    /// The tables in the series of the one that a site looks up or computes the gradient of.
    fn of_site(&self, site: &SiteScope<'_>) -> Option<u64> {
        const WORDS: [&str; 3] = [
            "embedding",
            "embedding_backward",
            "embedding_dense_backward",
        ];
        if !is_in(&site.table.enclosing_ops, site.id, &WORDS) {
            return None;
        }
        let run = &site.table.costed.run;
        match site.site.layer {
            Some(layer) => self.by_layer.get(&layer).copied(),
            None => {
                let forward = || Some(lookup(run, site.site)?.1.1);
                let size = gradient(run, site.site).map(|(size, _)| size);
                self.by_size.get(&size.or_else(forward)?).copied()
            }
        }
    }
}

fn is_in(around: &EnclosingOps, site: SiteId, words: &[&str]) -> bool {
    around.site(site).iter().any(|w| words.contains(&&**w))
}

/// The table that a site of a forward pass may look up: `embedding` calls `index_select` or `gather`, which get
/// the table first.
fn lookup(run: &Run, site: &Site) -> Option<(Width, Table)> {
    if matches!(site.direction, Direction::Bprop | Direction::Update) || site.recomputed {
        return None;
    }
    if !matches!(
        plain_name(&site.op.as_ref()?.name),
        "embedding" | "index_select" | "gather"
    ) {
        return None;
    }
    let args = run.arguments(site.args?)?;
    let table = args.tensors().next()?;
    let size: [u64; 2] = table.shape.as_slice().try_into().ok()?;
    Some(((table.dtype, size[1]), (site.layer, size)))
}

pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Embedding tables of one width and type that are looked up one after the other, where it is part of the
    /// lookup of one of them, or of the gradient; silent for other work
    "site.tables_in_series": INT => |s| Answer::or_silent(s.table.table_series.of_site(s)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::MemberKind;
    use crate::facts::testing::answers;

    /// Looks up a table per row, each after `between` other operators, and computes the gradient of the first.
    fn series(rows: &[u64], between: i64) -> Vec<Answer> {
        let mut b = ProfileBuilder::new();
        let mut at = 0;
        let mut call = |text: &str, around: &str| {
            b.range(around, at, at + 100);
            b.range(text, at + 10, at + 90);
            b.launch(at + 20);
            at += 100;
        };
        for (seq, rows) in rows.iter().enumerate() {
            for _ in 0..between {
                call("aten::mul, sizes = [[8], []]", "mul");
            }
            let text = format!("aten::index_select, seq = {seq}, sizes = [[{rows}, 4], [], [8]]");
            call(&text, "aten::embedding");
        }
        call(
            "aten::embedding_dense_backward, seq = 0, sizes = [[8, 4], [8], []]",
            "EmbeddingBackward0, seq = 0",
        );
        let sites = answers(b, MemberKind::Site, ["site.tables_in_series"]).into_iter();
        let known = sites.map(|[answer]| answer);
        known
            .filter(|answer| *answer != Answer::DoesNotApply)
            .collect()
    }

    #[test]
    fn tables_that_are_looked_up_one_after_the_other_are_counted() {
        let found = series(&[10, 20, 30], 4);
        assert_eq!(found, vec![Answer::from(3_u64); 3]);
    }

    #[test]
    fn work_between_lookups_ends_a_series() {
        assert_eq!(series(&[10, 20, 30], 5), vec![Answer::from(1_u64); 3]);
    }

    #[test]
    fn lookups_of_equal_tables_without_layers_may_be_of_one_table() {
        assert_eq!(series(&[10, 10, 20], 0), vec![Answer::from(2_u64); 2]);
    }
}
