//! Tables by layer: time per layer pattern, and work that is already fast.

use indexmap::IndexMap;
use rustc_hash::FxHashSet;

use super::figures::{compared_ns, cost_known, label, share, share_of_busy, sum};
use super::model::Report;
use super::narrative;
use super::rows::{AlreadyFast, LayerRow, Omitted};
use crate::base::units::percent;
use crate::correlate::{Direction, LayerSource, OpName, PatternId, Run, Site};
use crate::cost::{Bound, Costed, Family, SiteCost};
use crate::facts::Member;
use crate::judge::RuleResults;

/// Most rows of the table of layers. A report in a pull request has no room for more.
pub(crate) const MAX_ROWS: usize = 200;
/// Most rows of the list of work that is already fast.
pub(crate) const MAX_ALREADY_FAST: usize = 10;
/// Work within this factor of its reachable time counts as already fast.
const AT_REACHABLE: f64 = 1.10;
/// Share of a row's time that its slowdown must cover to stand without a remark.
pub(crate) const MOSTLY: f64 = 0.8;
/// Share of GPU busy time below which work is not listed as already fast.
const WORTH_NAMING: f64 = 0.01;

/// Sum of the shares of all layers from which they count as overlapping.
const OVERLAPPING: f64 = 1.05;

/// Sum of the shares of all layers where it is clearly above 1, because kernels of several streams run at the
/// same time.
pub(super) fn overlapping(report: &Report) -> Option<f64> {
    let listed = report.layers.iter().map(|layer| layer.time_ns);
    let all = sum(listed).saturating_add(report.layers_omitted.time_ns);
    let shares = share(all as f64, report.summary.busy_ns as f64);
    (shares >= OVERLAPPING).then_some(shares)
}

/// A sentence about the shares of layers that overlap.
pub(super) fn overlap_sentence(report: &Report) -> Option<String> {
    let shares = percent(overlapping(report)?);
    Some(format!(
        "Kernels of several streams run at the same time, so the shares add up to {shares}."
    ))
}

/// Name of the row for graphs whose kernels are not in the file.
const WHOLE_GRAPHS: &str = "(CUDA graphs recorded without their kernels)";

/// What a row stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Pattern(PatternId),
    /// The operator, or why there is none, where no layer is known.
    Other(String),
}

fn key(run: &Run, site: &Site) -> Key {
    if let Some(layer) = run.layer_of(site) {
        return Key::Pattern(layer.pattern);
    }
    match (&site.op, site.missing) {
        (Some(op), _) => Key::Other(label(&op.display())),
        (None, Some(missing)) => Key::Other(narrative::missing_row(missing).to_owned()),
        (None, None) => Key::Other("(no operator)".to_owned()),
    }
}

/// The sites of each row, in the order of the first site of each.
fn group(costed: &Costed) -> IndexMap<Key, Vec<usize>> {
    let mut rows: IndexMap<Key, Vec<usize>> = IndexMap::new();
    for (i, site) in costed.run.sites.iter().enumerate() {
        rows.entry(key(&costed.run, site)).or_default().push(i);
    }
    rows
}

/// The table of layers, longest time first, and the rows left out. `numbers` are the numbers of the
/// findings about each site.
pub(super) fn rows(
    costed: &Costed,
    numbers: &[Vec<u64>],
    busy_ns: i64,
) -> (Vec<LayerRow>, Omitted) {
    let graphs_ns = sum(costed.run.timeline.devices.iter().map(|d| d.graph_ns));
    let total = busy_ns;
    let mut rows: Vec<LayerRow> = group(costed)
        .into_iter()
        .map(|(key, sites)| row(costed, &key, &sites, total, numbers))
        .collect();
    if graphs_ns > 0 {
        rows.push(LayerRow {
            time_ns: graphs_ns,
            share: share_of_busy(graphs_ns, total),
            ..row(
                costed,
                &Key::Other(WHOLE_GRAPHS.to_owned()),
                &[],
                total,
                numbers,
            )
        });
    }
    rows.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.name.cmp(&b.name)));
    let rest = rows.split_off(rows.len().min(MAX_ROWS));
    let omitted = Omitted {
        count: rest.len() as u64,
        time_ns: sum(rest.iter().map(|r| r.time_ns)),
    };
    (rows, omitted)
}

fn row(costed: &Costed, key: &Key, sites: &[usize], total: i64, numbers: &[Vec<u64>]) -> LayerRow {
    let run = &costed.run;
    let pattern = match key {
        Key::Pattern(id) => run.pattern(*id),
        Key::Other(_) => None,
    };
    let members = || {
        sites
            .iter()
            .filter_map(|&i| Some((run.sites.get(i)?, costed.sites.get(i)?)))
    };
    let time = |direction: Option<Direction>| -> i64 {
        let of = members().filter(|(s, _)| direction.is_none_or(|d| s.direction == d));
        sum(of.map(|(s, _)| s.time_ns))
    };
    let (cost_known_ns, best_ideal_ns) = cost_known(members());
    let mut findings: Vec<u64> = sites
        .iter()
        .filter_map(|&i| numbers.get(i))
        .flatten()
        .copied()
        .collect();
    findings.sort_unstable();
    findings.dedup();
    LayerRow {
        name: match key {
            Key::Pattern(_) => label(pattern.map_or("(unnamed)", |p| &p.name)),
            Key::Other(name) => name.clone(),
        },
        is_layer: matches!(key, Key::Pattern(_)) && named_by_layer(run, sites),
        layers: pattern.map_or(1, |p| u64::from(p.layers.max(1))),
        calls: members().map(|(s, _)| u64::from(s.calls)).sum(),
        time_ns: time(None),
        share: share_of_busy(time(None), total),
        fprop_ns: time(Some(Direction::Fprop)),
        bprop_ns: time(Some(Direction::Bprop)),
        update_ns: time(Some(Direction::Update)),
        cost_known_ns,
        best_ideal_ns,
        slowdown: best_ideal_ns.map(|ideal| cost_known_ns / ideal),
        slowdown_partial: best_ideal_ns.is_some() && cost_known_ns < MOSTLY * time(None) as f64,
        slowdown_at_most: slowdown_at_most(costed, members()).filter(|_| best_ideal_ns.is_none()),
        slowdown_at_least: members().any(|(_, cost)| cost.at_most()),
        bound: bound(members(), best_ideal_ns.is_some()).map(|bound| bound.name().to_owned()),
        findings,
    }
}

/// Time of the work over the time of the bytes that it must read, where these are known for most of it.
fn slowdown_at_most<'a>(
    costed: &Costed,
    members: impl Iterator<Item = (&'a Site, &'a SiteCost)>,
) -> Option<f64> {
    let bandwidth = costed.gpu.as_ref()?.gpu.bandwidth;
    let (mut all, mut bounded, mut bytes) = (0.0, 0.0, 0.0);
    for (site, cost) in members {
        let ns = site.time_ns as f64;
        all += ns;
        if let Some(least) = cost.least_bytes {
            bounded += ns;
            bytes += least;
        }
    }
    let least_ns = bytes / bandwidth * 1e9;
    (bounded >= MOSTLY * all && least_ns > 0.0).then(|| bounded / least_ns)
}

fn named_by_layer(run: &Run, sites: &[usize]) -> bool {
    sites
        .first()
        .and_then(|&i| run.sites.get(i)?.layer)
        .and_then(|id| run.layer(id))
        .is_some_and(|layer| layer.source != LayerSource::Op)
}

/// What limits most of the time of some sites; `compared` tells whether any of it has a slowdown.
/// It is not known of collectives, whose limit is outside the GPU, and not of work that is slow although
/// latency bounds its ideal time.
fn bound<'a>(
    sites: impl Iterator<Item = (&'a Site, &'a SiteCost)>,
    compared: bool,
) -> Option<Bound> {
    let mut times = [Bound::Math, Bound::Memory, Bound::Latency].map(|bound| (bound, 0i64));
    let (mut all, mut unexplained) = (0i64, 0i64);
    for (site, cost) in sites {
        all = all.saturating_add(site.time_ns);
        let Some(bound) = cost.bound.filter(|_| cost.family != Family::Communication) else {
            continue;
        };
        if bound == Bound::Latency && compared_ns(site, cost).is_some() {
            unexplained = unexplained.saturating_add(site.time_ns);
        } else if let Some((_, time)) = times.iter_mut().find(|(of, _)| *of == bound) {
            *time = time.saturating_add(site.time_ns);
        }
    }
    let known = sum(times.iter().map(|(_, time)| *time));
    // `max_by_key` returns the last maximum; reversed, the first of equals is returned.
    let most = times.into_iter().rev().max_by_key(|(_, time)| *time);
    let (bound, _) = most.filter(|(_, time)| *time > unexplained)?;
    // Where nothing is compared, a small known part does not stand for the row.
    (compared || known.saturating_mul(2) >= all).then_some(bound)
}

/// The numbers of the findings about each site.
pub(super) fn numbers_by_site(costed: &Costed, results: &RuleResults) -> Vec<Vec<u64>> {
    let run = &costed.run;
    let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); run.sites.len()];
    for (number, finding) in (1u64..).zip(&results.findings) {
        for site in &finding.sites {
            if let Some(list) = numbers.get_mut(site.idx()) {
                list.push(number);
            }
        }
        let patterns: FxHashSet<u32> = finding
            .members
            .iter()
            .filter_map(|m| match m {
                Member::Layer(pattern) => Some(*pattern),
                _ => None,
            })
            .collect();
        if patterns.is_empty() {
            continue;
        }
        for (site, list) in run.sites.iter().zip(&mut numbers) {
            let pattern = run.layer_of(site);
            if pattern.is_some_and(|l| patterns.contains(&l.pattern.row())) {
                list.push(number);
            }
        }
    }
    numbers
}

/// Products, convolutions and attention near the reachable time on the best unit and precision
/// available, grouped by layer pattern. Excluded are work that a finding covers, the backward pass of
/// operators that a finding wants fused or removed, and latency-bound kernels, of which fewer would be
/// better.
pub(super) fn already_fast(
    costed: &Costed,
    results: &RuleResults,
    busy_ns: i64,
) -> Vec<AlreadyFast> {
    let run = &costed.run;
    let display = |site: &Site| site.op.as_ref().map_or(String::new(), OpName::display);
    let mut wanted: FxHashSet<usize> = FxHashSet::default();
    let mut rewritten: FxHashSet<(Key, String)> = FxHashSet::default();
    for finding in results.findings.iter().chain(&results.minor) {
        wanted.extend(finding.sites.iter().map(|s| s.idx()));
        wanted.extend(finding.backward.iter().map(|s| s.idx()));
        if finding
            .members
            .iter()
            .any(|m| matches!(m, Member::Chain(_)))
        {
            let sites = finding.sites.iter().filter_map(|s| run.site(*s));
            rewritten.extend(sites.map(|site| (key(run, site), display(site))));
        }
    }
    let mut rows: IndexMap<(Key, String, Direction), AlreadyFast> = IndexMap::new();
    for (i, (site, cost)) in run.sites.iter().zip(&costed.sites).enumerate() {
        let Some(reachable_ns) = at_reachable(site, cost) else {
            continue;
        };
        if wanted.contains(&i) {
            continue;
        }
        let (key, operator) = (key(run, site), display(site));
        if site.direction == Direction::Bprop
            && rewritten.contains(&(key.clone(), operator.clone()))
        {
            continue;
        }
        let place = match &key {
            Key::Pattern(id) => run.pattern(*id).map_or("", |p| &p.name),
            Key::Other(_) => "",
        };
        let row = rows
            .entry((key.clone(), operator.clone(), site.direction))
            .or_insert_with(|| AlreadyFast {
                place: label(place),
                operator: label(&operator),
                direction: site.direction.name().to_owned(),
                calls: 0,
                time_ns: 0,
                share: 0.0,
                reachable_ns: 0.0,
                bound: cost.bound.map(|b| b.name().to_owned()),
            });
        row.calls += u64::from(site.calls);
        row.time_ns = row.time_ns.saturating_add(site.time_ns);
        row.reachable_ns += reachable_ns;
        row.share = share_of_busy(row.time_ns, busy_ns);
    }
    let mut rows: Vec<AlreadyFast> = rows
        .into_values()
        .filter(|row| row.share >= WORTH_NAMING)
        .collect();
    rows.sort_by(|a, b| {
        let name = |r: &AlreadyFast| (r.place.clone(), r.operator.clone(), r.direction.clone());
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| name(a).cmp(&name(b)))
    });
    rows.truncate(MAX_ALREADY_FAST);
    rows
}

fn at_reachable(site: &Site, cost: &SiteCost) -> Option<f64> {
    let large = matches!(cost.family, Family::Gemm | Family::Conv | Family::Attention);
    if !large || cost.autotuning || cost.at_most() || cost.bound == Some(Bound::Latency) {
        return None;
    }
    let reachable = cost.reachable_ns.filter(|ns| *ns > 0.0)?;
    (site.time_ns as f64 <= AT_REACHABLE * reachable).then_some(reachable)
}
