//! Sums over the collectives of a run: how much of their time is spent between two ranks, how much on the
//! stream that computes, and the bandwidth that they reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::enclosing_ops::plain_name;
use super::message::message_of;
use crate::base::statistics::median;
use crate::correlate::{Direction, Run};
use crate::cost::{Costed, DecodedName, Family};
use crate::profile::DeviceId;

/// What is known of all collectives of a run together.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    /// Per number of ranks: the highest bus bandwidth that one call reached, in bytes per second.
    pub(super) best_rates: FxHashMap<u64, f64>,
    /// Share of their time in sends and receives between two ranks.
    pub(super) send_recv_share: Option<f64>,
    /// Share of their time on the stream that computes most of its device.
    pub(super) same_stream_share: Option<f64>,
    fastest: Fastest,
    /// Median duration of the all-reduces of the backward pass, ns.
    pub(super) gradient_median_ns: Option<i64>,
}

/// The calls that moved `bytes` or more: the shortest time that one took, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shortest {
    bytes: u64,
    pub(super) ns: i64,
    pub(super) calls: u64,
}

/// Per kind of collective and number of ranks, the largest message first.
type Fastest = FxHashMap<(&'static str, Option<u64>), Vec<Shortest>>;

impl Collectives {
    /// `names` says per string whether it names a kernel of a collective.
    pub(super) fn of(costed: &Costed, names: &[bool]) -> Collectives {
        Collectives {
            best_rates: best_rates(costed),
            send_recv_share: send_recv_share(costed),
            same_stream_share: same_stream_share(&costed.run, names),
            fastest: fastest(costed),
            gradient_median_ns: gradient_median_ns(costed),
        }
    }

    /// The calls of this kind, among as many ranks, that moved as many bytes or more: a smaller message
    /// takes no longer than the shortest, so what a call took beyond it is waiting.
    pub(super) fn fastest(&self, kind: &str, ranks: Option<u64>, bytes: u64) -> Option<Shortest> {
        let sizes = self.fastest.get(&(kind, ranks))?;
        let as_large = sizes.partition_point(|size| size.bytes >= bytes);
        sizes.get(as_large.checked_sub(1)?).copied()
    }
}

fn fastest(costed: &Costed) -> Fastest {
    let mut fastest = Fastest::default();
    let sites = costed.run.sites.iter().zip(&costed.kernels);
    for ((site, decoded), cost) in sites.zip(&costed.sites) {
        let Some((bytes, ranks, _)) = message_of(cost) else {
            continue;
        };
        for (kernel, name) in site.kernels.iter().zip(decoded) {
            // A call of several kernels splits its message among them.
            if let Some(kind) = name.collective.filter(|_| kernel.count == site.calls) {
                let sizes = fastest.entry((kind, ranks)).or_default();
                sizes.push(Shortest {
                    bytes,
                    ns: kernel.min_ns,
                    calls: u64::from(site.calls),
                });
            }
        }
    }
    for sizes in fastest.values_mut() {
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(size.bytes));
        let (mut least, mut calls) = (i64::MAX, 0_u64);
        for size in sizes {
            least = least.min(size.ns);
            calls = calls.saturating_add(size.calls);
            (size.ns, size.calls) = (least, calls);
        }
    }
    fastest
}

fn gradient_median_ns(costed: &Costed) -> Option<i64> {
    let run = &costed.run;
    let sites = run.sites.iter().zip(&costed.kernels);
    let reduces: Vec<bool> = sites
        .map(|(site, names)| {
            let all_reduce = |name: &Arc<DecodedName>| name.collective == Some("all_reduce");
            site.direction == Direction::Bprop && names.iter().any(all_reduce)
        })
        .collect();
    if !reduces.contains(&true) {
        return None;
    }
    let kernels = run.profile.kernels.iter().zip(&run.links);
    let of_gradients = kernels.filter(|(_, link)| {
        let site = link.site.and_then(|site| reduces.get(site.idx()));
        site.copied().unwrap_or_default()
    });
    let mut lengths: Vec<i64> = of_gradients.map(|(kernel, _)| kernel.span.ns()).collect();
    median(&mut lengths)
}

/// Per string: whether it is the name of a collective's kernel.
pub(super) fn names(costed: &Costed) -> Vec<bool> {
    let run = &costed.run;
    let mut collective: Vec<bool> = vec![false; run.profile.strings.len()];
    for (site, decoded) in run.sites.iter().zip(&costed.kernels) {
        for (kernel, name) in site.kernels.iter().zip(decoded) {
            if let Some(slot) = collective.get_mut(kernel.name.idx()) {
                *slot |= name.family == Family::Communication;
            }
        }
    }
    collective
}

/// Share of the time of collectives on the stream that computes most of its device: work of one stream
/// runs one after the other. `None` without collectives.
fn same_stream_share(run: &Run, names: &[bool]) -> Option<f64> {
    if !names.contains(&true) {
        return None;
    }
    // Per device and stream: time of collectives, and of other kernels.
    let mut streams: FxHashMap<(DeviceId, u32), [f64; 2]> = FxHashMap::default();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        if link.site.is_some() {
            let times = streams.entry((kernel.device, kernel.stream)).or_default();
            let computes = names.get(kernel.name.idx()) != Some(&true);
            if let Some(time) = times.get_mut(usize::from(computes)) {
                *time += kernel.span.ns() as f64;
            }
        }
    }
    // In a fixed order, for equal sums.
    let streams: BTreeMap<(DeviceId, u32), [f64; 2]> = streams.into_iter().collect();
    let mut main: BTreeMap<DeviceId, [f64; 2]> = BTreeMap::new();
    let mut all = 0.0;
    for ((device, _), times) in streams {
        all += times[0];
        let most = main.entry(device).or_default();
        if times[1] > most[1] {
            *most = times;
        }
    }
    let same: f64 = main.values().map(|times| times[0]).sum();
    (all > 0.0).then(|| same / all)
}

/// The highest bus bandwidth that one call reached, per number of ranks, in bytes per second.
fn best_rates(costed: &Costed) -> FxHashMap<u64, f64> {
    let mut best: FxHashMap<u64, f64> = FxHashMap::default();
    for (site, cost) in costed.run.sites.iter().zip(&costed.sites) {
        let Some((_, Some(ranks), Some(wire))) = message_of(cost) else {
            continue;
        };
        // A call of several kernels splits its message among them.
        let whole = site.kernels.iter().filter(|k| k.count == site.calls);
        let Some(ns) = whole.map(|k| k.min_ns).filter(|ns| *ns > 0).min() else {
            continue;
        };
        let rate = best.entry(ranks).or_default();
        *rate = rate.max(wire as f64 / ns as f64 * 1e9);
    }
    best
}

/// Operators that send or receive between two ranks. Others use kernels of that name as well.
const SENDS: &[&str] = &[
    "send",
    "recv",
    "isend",
    "irecv",
    "batch_isend_irecv",
    "coalesced",
];

/// Share of the time of collectives in sends and receives between two ranks, as pipelines have them.
/// `None` without collectives.
fn send_recv_share(costed: &Costed) -> Option<f64> {
    let (mut between, mut all) = (0.0, 0.0);
    for (site, decoded) in costed.run.sites.iter().zip(&costed.kernels) {
        let op = site.op.as_ref().map(|op| plain_name(&op.name));
        let sends = op.is_none_or(|op| SENDS.contains(&op));
        for (kernel, name) in site.kernels.iter().zip(decoded) {
            if name.family == Family::Communication {
                let ns = kernel.time_ns as f64;
                all += ns;
                if name.collective == Some("send_recv") && sends {
                    between += ns;
                }
            }
        }
    }
    (all > 0.0).then(|| between / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_messages_take_no_longer_than_larger_ones() {
        // In the order of `fastest`: 1 MB took 50 us, 8 kB once 1,900 and once 10 us.
        let sizes = [
            (1_000_000, 50_000, 2),
            (8_192, 50_000, 3),
            (8_192, 10_000, 4),
            (64, 10_000, 5),
        ];
        let sizes = sizes.map(|(bytes, ns, calls)| Shortest { bytes, ns, calls });
        let collectives = Collectives {
            fastest: FxHashMap::from_iter([(("send_recv", Some(2)), sizes.to_vec())]),
            ..Collectives::default()
        };
        let fastest = |bytes| {
            collectives
                .fastest("send_recv", Some(2), bytes)
                .map(|s| s.ns)
        };
        assert_eq!(fastest(2_000_000), None);
        assert_eq!(fastest(1_000_000), Some(50_000));
        assert_eq!(fastest(100_000), Some(50_000));
        assert_eq!(fastest(8_192), Some(10_000));
        assert_eq!(fastest(1), Some(10_000));
        assert_eq!(collectives.fastest("send_recv", Some(4), 1), None);
        assert_eq!(collectives.fastest("all_reduce", Some(2), 1), None);
    }
}
