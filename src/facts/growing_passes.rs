//! Generation without a cache of keys and values: each pass through the model computes all tokens so far, a constant
//! number more than the pass before.

use std::collections::{BTreeMap, BTreeSet};

use super::fact::{Answer, FactEntry, facts};
use super::rows_used::forward_product;
use super::site::Sites;
use super::table::Runs;
use crate::base::DType;
use crate::base::statistics::NEARLY_ALL;
use crate::correlate::{Run, SiteId};
use crate::cost::{Costed, Family};

/// Minimum number of times that products must grow: three passes could be chance, if nothing appended a token.
const GROWTHS: u64 = 2;
/// Minimum number of growths for each time that they shrink, when another generation begins.
const GROWTHS_EACH: u64 = 4;

/// The passes of a generation.
#[derive(Debug, Default)]
pub(super) struct GrowingPasses {
    /// Rows that each pass has more than the one before; 0 where passes do not grow, `None` if no product has a known
    /// size.
    new: Option<u64>,
    /// Rows of the longest pass.
    longest: u64,
    /// Rows of the pass that a site belongs to, for sites of one pass.
    rows: BTreeMap<SiteId, u64>,
}

/// Products with weights of one size, in time order.
#[derive(Debug, Default)]
struct Series {
    ns: i64,
    last: u64,
    /// Rows of all.
    rows: BTreeSet<u64>,
    growths: u64,
    drops: u64,
    /// By how many rows they grow.
    by: Option<u64>,
    /// Whether they grew by another number as well.
    uneven: bool,
}

impl Series {
    fn add(&mut self, rows: u64, ns: i64) {
        self.ns = self.ns.saturating_add(ns);
        if self.rows.is_empty() || rows == self.last {
            // The first one, or another layer of the same pass.
        } else if rows < self.last {
            self.drops += 1;
        } else {
            let by = rows - self.last;
            self.growths += 1;
            self.uneven |= *self.by.get_or_insert(by) != by;
        }
        self.last = rows;
        self.rows.insert(rows);
    }

    /// By how many rows the products of each pass grow, if they do.
    fn growth(&self) -> Option<u64> {
        let often = self.growths >= GROWTHS && self.growths >= GROWTHS_EACH * self.drops;
        let by = self.by.filter(|_| often && !self.uneven)?;
        // Whole tokens of as many sequences.
        self.rows.iter().all(|rows| rows % by == 0).then_some(by)
    }
}

impl GrowingPasses {
    /// `rows_used` are the rows that the program uses of products that it uses in part.
    pub(super) fn of(costed: &Costed, rows_used: &BTreeMap<SiteId, u64>) -> GrowingPasses {
        let run = &costed.run;
        let sizes: Vec<_> = (0..run.sites.len())
            .map(|id| forward_product(costed, SiteId::new(id)))
            .collect();
        let size_of = |site: SiteId| sizes.get(site.idx()).copied().flatten();
        let mut series: BTreeMap<(u64, u64), Series> = BTreeMap::new();
        for (site, ns) in executions(run) {
            if let Some(size) = size_of(site) {
                let series = series.entry((size.n, size.k)).or_default();
                series.add(size.m, ns);
            }
        }
        if series.is_empty() {
            return GrowingPasses::default();
        }
        let of_equal_passes = GrowingPasses {
            new: Some(0),
            ..GrowingPasses::default()
        };
        let largest = series.values().max_by_key(|series| series.ns);
        let Some(new) = largest.and_then(Series::growth) else {
            return of_equal_passes;
        };
        let (mut growing, mut other) = (0_i64, 0_i64);
        let mut rows = BTreeSet::new();
        for series in series.values() {
            if series.growth() == Some(new) {
                growing = growing.saturating_add(series.ns);
                rows.extend(&series.rows);
            } else if series.rows.iter().any(|rows| *rows > new) {
                other = other.saturating_add(series.ns);
            }
        }
        let all = growing.saturating_add(other) as f64;
        let mut products = sizes.iter().zip(0..).filter_map(|(size, id)| {
            let used = rows_used.get(&SiteId(id))?;
            Some((size.as_ref()?.m, *used))
        });
        let last_position = products.any(|(m, used)| rows.contains(&m) && used == new);
        let certain = last_position || appends(costed, &rows, new);
        let Some((shortest, longest)) = rows.first().zip(rows.last()) else {
            return of_equal_passes;
        };
        if !certain || (growing as f64) < NEARLY_ALL * all || *longest < 2 * new {
            return of_equal_passes;
        }
        let grows = |size: (u64, u64)| series.get(&size).is_some_and(|s| s.growth() == Some(new));
        let mut now = shortest.saturating_sub(new);
        let mut ranges: BTreeMap<SiteId, (u64, u64)> = BTreeMap::new();
        for (site, _) in executions(run) {
            if let Some(size) = size_of(site).filter(|size| grows((size.n, size.k))) {
                now = size.m;
            }
            let (least, most) = ranges.entry(site).or_insert((now, now));
            (*least, *most) = (now.min(*least), now.max(*most));
        }
        // The shapes of what grows occur in one pass; what comes before its first product still counts as the pass
        // before. Shapes that occur in more passes do not grow.
        let of_one_pass = |(least, most): &(u64, u64)| most - least <= new && *most > new;
        // The first pass of a generation computes the prompt.
        let again = series.values().any(|series| series.drops > 0);
        let prompt = |most: u64| again && most <= *shortest;
        let found = ranges.into_iter();
        let found = found.filter(|(_, range)| of_one_pass(range) && !prompt(range.1));
        GrowingPasses {
            new: Some(new),
            longest: *longest,
            rows: found.map(|(site, (_, most))| (site, most)).collect(),
        }
    }
}

/// The site and duration of each kernel execution in the window, in time order.
fn executions(run: &Run) -> impl Iterator<Item = (SiteId, i64)> {
    let kernels = run.profile.kernels.iter().zip(&run.links);
    kernels.filter_map(|(kernel, link)| Some((link.site?, kernel.span.ns())))
}

/// Whether the program appends so many new numbers to as many as a pass has rows: the tokens, or their mask.
fn appends(costed: &Costed, rows: &BTreeSet<u64>, new: u64) -> bool {
    let run = &costed.run;
    let mut sites = run.sites.iter().zip(&costed.sites);
    sites.any(|(site, cost)| {
        let args = run.arguments_of(site);
        let Some(args) = args.filter(|_| cost.family == Family::Cat) else {
            return false;
        };
        let numbers = |rank: usize, is_float: bool| rank <= 2 && !is_float;
        let mut elements = Vec::new();
        for tensor in args.tensors() {
            let is_float = tensor.dtype.is_some_and(DType::is_float);
            if !numbers(tensor.shape.len(), is_float) {
                return false;
            }
            elements.push(tensor.elements());
        }
        matches!(elements.as_slice(), [tokens, added] if rows.contains(tokens) && *added == new)
    })
}

pub(super) const RUN_ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Rows of the products in the longest pass, where each pass of a generation computes all tokens so far: there is
    /// no cache of keys and values; silent for others
    "run.growing_rows": INT =>
        |t| Answer::or_silent(Some(t.growing_passes.longest).filter(|rows| *rows > 0)),
    /// Rows that the products of each such pass have more than those of the pass before; 0 for other programs
    "run.new_rows": INT needs SHAPES => |t| t.growing_passes.new,
};

pub(super) const SITE_ENTRIES: &[FactEntry<Sites>] = facts! {
    /// Share of its work that is for tokens of which the pass before computed the same, where each pass of a
    /// generation computes all tokens so far; silent for others
    "site.earlier_tokens_share": DOUBLE => |s| {
        let passes = &s.table.growing_passes;
        let rows = passes.rows.get(&s.id).zip(passes.new);
        Answer::or_silent(rows.map(|(rows, new)| 1.0 - new as f64 / *rows as f64))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    /// Passes of two layers for 3 sequences, and the operator after each pass.
    fn passes(tokens: &[u64], after: impl Fn(u64) -> String) -> GrowingPasses {
        let mut b = ProfileBuilder::new();
        let mut at = 0;
        for tokens in tokens {
            let rows = 3 * tokens;
            for text in [
                format!(
                    "aten::native_layer_norm, seq = 1, sizes = [[{rows}, 16], [], [16], [16], []]"
                ),
                format!("aten::mm, seq = 2, sizes = [[{rows}, 16], [16, 16]]"),
                format!("aten::mm, seq = 2, sizes = [[{rows}, 16], [16, 16]]"),
                "aten::mm, seq = 3, sizes = [[3, 16], [16, 100]]".to_owned(),
                "aten::argmax, seq = 4, sizes = [[3, 100], [], []]".to_owned(),
                after(*tokens),
            ] {
                b.range(&text, at, at + 100);
                b.launch(at + 10);
                at += 1000;
            }
        }
        GrowingPasses::of(&estimate_costs(b.run(), None), &BTreeMap::new())
    }

    fn append(tokens: u64) -> String {
        format!("aten::cat, seq = 5, sizes = [[[3, {tokens}], [3, 1]], []]")
    }

    #[test]
    fn passes_that_compute_all_tokens_again_are_found() {
        let found = passes(&[8, 9, 10, 11], append);
        assert_eq!((found.new, found.longest), (Some(3), 33));
        // Of each pass the norm, the products of both layers and the appending; not the head, not the sampling.
        let mut rows: Vec<u64> = found.rows.into_values().collect();
        rows.sort_unstable();
        assert_eq!(rows, [21, 24, 24, 24, 27, 27, 27, 30, 30, 30, 33, 33]);
    }

    #[test]
    fn other_passes_do_not_grow() {
        for tokens in [
            &[8, 9][..],
            &[8, 9, 11],
            &[8, 8, 8],
            &[10, 9, 8],
            &[8, 9, 8, 9, 8, 9],
        ] {
            assert_eq!(passes(tokens, append).new, Some(0), "{tokens:?}");
        }
        // Nothing says that the longer batches are longer by tokens that a model made.
        assert_eq!(passes(&[8, 9, 10], |_| append(1000)).new, Some(0));
        // Most of the work does not grow.
        let other = |_| "aten::mm, seq = 6, sizes = [[500, 16], [16, 64]]".to_owned();
        assert_eq!(passes(&[8, 9, 10], other).new, Some(0));
    }

    #[test]
    fn passes_of_unknown_size_are_not_known_to_grow() {
        let mut b = ProfileBuilder::new();
        b.range("aten::mm, seq = 1", 0, 100);
        b.launch(10);
        let costed = estimate_costs(b.run(), None);
        assert_eq!(GrowingPasses::of(&costed, &BTreeMap::new()).new, None);
    }

    #[test]
    fn prompts_of_several_generations_are_new_work() {
        let found = passes(&[8, 9, 10, 11, 12, 8, 9, 10, 11, 12], append);
        assert_eq!((found.new, found.longest), (Some(3), 36));
        assert!(found.rows.values().all(|rows| *rows > 24));
    }
}
