//! Networks of equal layers side by side, such as those of an ensemble. Called one after the other, they need as
//! many times the launches of one.

use std::collections::{BTreeMap, BTreeSet};

use super::fact::{Answer, FactEntry, facts};
use super::table::Runs;
use crate::correlate::{ArgsId, Direction, Run, Site, SiteId};
use crate::cost::{Costed, Family, GemmSize, SiteCost};
use crate::profile::KernelId;

/// Networks of one shape that are called one after the other.
#[derive(Debug, PartialEq)]
pub(super) struct EqualNetworks {
    /// What their layers have in common, with `*` for the number of the network: `nets.*`.
    name: String,
    count: usize,
    /// Their share of the idle time before late launches.
    share: f64,
}

/// Fewest networks that are worth computing together.
const LEAST: usize = 4;
/// Numbers in the name of a layer that are looked at; bounds the work on names that are made up.
const MOST_NUMBERS: usize = 4;

/// The layer inside a network, the operator, its arguments, and the number of calls.
type Call<'a> = (&'a str, &'a str, Option<ArgsId>, u32);

/// The forward pass of what may be a network: all layers whose names begin alike.
#[derive(Default)]
struct Network<'a> {
    calls: Vec<Call<'a>>,
    products: Vec<(KernelId, GemmSize)>,
    /// Whether it has other mathematical work, or concatenates, so that its products tell too little.
    other: bool,
    sites: BTreeSet<SiteId>,
}

impl Network<'_> {
    /// Whether each product can read the result of the one before, and the first of another such network cannot read
    /// the result of the last, nor a part of it.
    fn is_beside_others(&self) -> bool {
        let sizes: Vec<GemmSize> = self.products.iter().map(|(_, size)| *size).collect();
        let follows = |pair: &[GemmSize]| matches!(pair, [a, b] if a.n == b.k && a.m == b.m);
        let ends = sizes.first().zip(sizes.last());
        !self.other
            && sizes.iter().all(|size| size.batch == 1)
            && sizes.windows(2).all(follows)
            && ends.is_some_and(|(first, last)| first.k > last.n)
    }
}

/// `None` where layers or shapes are unknown, `Some(None)` where there are no such networks.
pub(super) fn of(costed: &Costed) -> Option<Option<EqualNetworks>> {
    let run = &costed.run;
    let known = |site: &Site| site.layer.is_some() && site.args.is_some();
    if !run.sites.iter().any(known) {
        return None;
    }
    // By what comes before the number in their layers, and by the number.
    let mut all: BTreeMap<&str, BTreeMap<&str, Network<'_>>> = BTreeMap::new();
    for ((id, site), cost) in (0..).map(SiteId).zip(&run.sites).zip(&costed.sites) {
        let layer = run.layer_of(site);
        for [before, number, rest] in layer.into_iter().flat_map(|layer| numbers(&layer.name)) {
            let networks = all.entry(before).or_default();
            add(networks.entry(number).or_default(), id, site, cost, rest);
        }
    }
    let late = late_ns(run);
    let whole: i64 = late.values().sum();
    let found = all.into_iter().filter_map(|(before, networks)| {
        let equal = largest_class(networks.into_values())?;
        let count = in_a_row(costed, &equal);
        let sites = equal.iter().flat_map(|network| &network.sites);
        let ns: i64 = sites.filter_map(|site| late.get(&Some(*site))).sum();
        (count >= LEAST).then(|| EqualNetworks {
            name: format!("{before}*"),
            count,
            share: ns as f64 / whole.max(1) as f64,
        })
    });
    Some(found.max_by(|a, b| a.share.total_cmp(&b.share)))
}

/// The numbers in the name of a layer, each with what is before and behind it: `nets.`, `3`, `.fc` of `nets.3.fc`.
fn numbers(name: &str) -> impl Iterator<Item = [&str; 3]> {
    let mut at = 0;
    let parts = name.split('.').filter_map(move |part| {
        let (start, end) = (at, at + part.len());
        at = end + 1;
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        is_number.then_some([name.get(..start)?, part, name.get(end..)?])
    });
    parts.take(MOST_NUMBERS)
}

fn add<'a>(network: &mut Network<'a>, id: SiteId, site: &'a Site, cost: &SiteCost, rest: &'a str) {
    network.sites.insert(id);
    if !is_forward(site) {
        return;
    }
    let op = site.op.as_ref().map_or("", |op| op.name.as_str());
    network.calls.push((rest, op, site.args, site.calls));
    if cost.family.is_math() {
        let roles = cost.cost.as_ref().ok().map(|cost| cost.roles.first());
        match roles.flatten().and_then(|role| role.dims.gemm()) {
            Some(size) if cost.family == Family::Gemm => network.products.push((site.first, size)),
            _ => network.other = true,
        }
    }
    network.other |= cost.family == Family::Cat;
}

fn is_forward(site: &Site) -> bool {
    !matches!(site.direction, Direction::Bprop | Direction::Update) && !site.recomputed
}

/// The most networks with the same calls, if they are side by side.
fn largest_class<'a>(networks: impl Iterator<Item = Network<'a>>) -> Option<Vec<Network<'a>>> {
    let mut classes: BTreeMap<Vec<Call<'a>>, Vec<Network<'a>>> = BTreeMap::new();
    for mut network in networks {
        network.products.sort_by_key(|(first, _)| *first);
        network.calls.sort_unstable();
        if network.is_beside_others() {
            classes
                .entry(network.calls.clone())
                .or_default()
                .push(network);
        }
    }
    let largest = classes.into_values().max_by_key(Vec::len)?;
    (largest.len() >= LEAST).then_some(largest)
}

/// How many of the networks are called one after the other, at most. No other work of a forward pass, which could make
/// the input of the next, is between two of them, unless the backward pass of the first is as well.
fn in_a_row(costed: &Costed, networks: &[Network<'_>]) -> usize {
    let mut of_sites: BTreeMap<SiteId, usize> = BTreeMap::new();
    for (number, network) in networks.iter().enumerate() {
        of_sites.extend(network.sites.iter().map(|site| (*site, number)));
    }
    let run = &costed.run;
    let (mut row, mut longest) = (BTreeSet::new(), 0);
    let (mut last, mut others, mut backward) = (None, false, false);
    for link in &run.links {
        let id = link.site;
        let site = id.and_then(|id| run.site(id));
        let network = id.and_then(|id| of_sites.get(&id).copied());
        if site.is_some_and(|site| !is_forward(site)) {
            backward |= network.is_some() && network == last;
        } else if network.is_none() {
            others = true;
        } else {
            if network != last && others && !backward {
                row.clear();
            }
            row.extend(network);
            longest = row.len().max(longest);
            (last, others, backward) = (network, false, false);
        }
    }
    longest
}

/// The idle time before late launches, by what was launched, in ns.
fn late_ns(run: &Run) -> BTreeMap<Option<SiteId>, i64> {
    let mut late = BTreeMap::new();
    for gap in run.timeline.late_launches() {
        let link = gap.next.and_then(|kernel| run.link(kernel));
        *late.entry(link.and_then(|link| link.site)).or_default() += gap.reliable_ns;
    }
    late
}

/// A fact of the networks.
fn of_networks(
    networks: Option<&Option<EqualNetworks>>,
    part: fn(&EqualNetworks) -> Answer,
) -> Answer {
    networks.map_or(Answer::Absent, |found| {
        Answer::or_silent(found.as_ref().map(part))
    })
}

pub(super) const RUN_ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Four or more networks of equal layers, of plain products and pointwise work, which are called one after the
    /// other and cannot get their input from one another
    "run.equal_networks": INT needs LAYERS =>
        |t| of_networks(t.program.equal_networks.as_ref(), |networks| (networks.count as u64).into()),
    /// What their layers have in common, with `*` for the number of a network: `nets.*`
    "run.equal_networks_layer": STR needs LAYERS =>
        |t| of_networks(t.program.equal_networks.as_ref(), |networks| networks.name.as_str().into()),
    /// Their share of the idle time before late launches
    "run.equal_networks_share": DOUBLE needs LAYERS =>
        |t| of_networks(t.program.equal_networks.as_ref(), |networks| networks.share.into()),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    /// Calls five networks of one product each, from `k` columns to `n`, with an operator behind each.
    fn found(k: u64, n: u64, behind: &[&str]) -> Option<usize> {
        let mut b = ProfileBuilder::new();
        b.profile.recorded.api_calls = true;
        let mut at = 0;
        for number in 0..5 {
            let product =
                format!("aten::addmm, seq = {number}, sizes = [[{n}], [32, {k}], [{k}, {n}]]");
            at += 9_000;
            b.range(&format!("layer:nets.{number}"), at - 20, at + 20);
            b.range(&product, at - 10, at + 10);
            b.launch(at);
            for text in behind {
                at += 9_000;
                b.range(&text.replace("SEQ", &number.to_string()), at - 10, at + 10);
                b.launch(at);
            }
        }
        let networks = of(&estimate_costs(b.run(), None))??;
        assert_eq!(networks.name, "nets.*");
        assert!(
            networks.share > 0.0 && networks.share <= 1.0,
            "{networks:?}"
        );
        Some(networks.count)
    }

    const LOSS: &str = "aten::mean, sizes = [[32, 2]]";
    const BACKWARD: &str = "AddmmBackward0, seq = SEQ";

    #[test]
    fn networks_that_cannot_feed_each_other_are_counted() {
        assert_eq!(found(8, 2, &[]), Some(5));
        // Each with a loss and a backward pass of its own.
        assert_eq!(found(8, 2, &[LOSS, BACKWARD]), Some(5));
    }

    #[test]
    fn layers_that_may_feed_each_other_are_no_networks() {
        assert_eq!(found(8, 8, &[]), None);
        // A half of the result may be the next input.
        assert_eq!(found(8, 16, &[]), None);
        // The result and something else may be.
        assert_eq!(
            found(8, 2, &["aten::cat, sizes = [[[32, 2], [32, 6]], []]"]),
            None
        );
    }

    #[test]
    fn networks_without_layers_are_unknown() {
        let mut b = ProfileBuilder::new();
        b.range("aten::addmm, sizes = [[2], [32, 8], [8, 2]]", 0, 100);
        b.launch(10);
        assert_eq!(of(&estimate_costs(b.run(), None)), None);
    }
}
