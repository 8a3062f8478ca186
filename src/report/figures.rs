//! Shares, sums and labels that several parts of a report need.

use crate::base::text;
use crate::correlate::Site;
use crate::cost::{Bound, Family, SiteCost};

/// Longest name of a place, operator or file, in characters; longer names lose their middle. A single
/// marker of a real profile can be thousands of characters long.
const MAX_LABEL: usize = 96;

/// Largest ratio of ideal to measured time of work that is compared with it: clocks and bandwidths are a
/// little higher than in specifications.
const FASTEST: f64 = 1.15;

/// Why the cost of an algorithm search is not known.
pub(super) const SEARCH: &str = "candidates of an algorithm search, which steady steps do not run";

/// The file name without its folder, for the heading.
pub(super) fn title(path: &str) -> String {
    let name = std::path::Path::new(path)
        .file_name()
        .and_then(|n| n.to_str());
    label(name.unwrap_or(path))
}

/// Text of a profile as a label: without home folders, and shortened.
pub(super) fn label(text: &str) -> String {
    text::clip(&text::without_home(text), MAX_LABEL)
}

/// The value, or 0 where it is not finite: JSON has no other numbers.
pub(super) fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// `part / whole`; 0 when `whole` is 0.
pub(crate) fn share(part: f64, whole: f64) -> f64 {
    finite(part / whole)
}

/// A time as a share of GPU busy time. Kernels that overlap can be longer than it together.
pub(crate) fn share_of_busy(time_ns: i64, busy_ns: i64) -> f64 {
    share(time_ns as f64, busy_ns as f64).min(1.0)
}

pub(super) fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::saturating_add)
}

/// Measured time of the sites that can be compared, and the time that they are compared with. Left out is
/// also work that is faster than its ideal: its operands were in a cache, or its recorded shapes are not
/// its own.
pub(super) fn cost_known<'a>(
    sites: impl Iterator<Item = (&'a Site, &'a SiteCost)>,
) -> (f64, Option<f64>) {
    sites
        .filter_map(|(site, cost)| Some((site.time_ns as f64, compared_ns(site, cost)?)))
        .filter(|(time, ideal)| *ideal > 0.0 && *ideal <= FASTEST * time)
        .fold((0.0, None), |(time, total), (t, ideal)| {
            (time + t, Some(total.unwrap_or(0.0) + ideal))
        })
}

/// The time that the work of a site is compared with: its best ideal time, or that of the shortest kernels
/// where that is longer and the work takes many times as long. `None` for autotuning, which is not work of
/// the model, for communication, which waits for links and other ranks, and for other latency-bound work.
pub(super) fn compared_ns(site: &Site, cost: &SiteCost) -> Option<f64> {
    if cost.autotuning || cost.family == Family::Communication {
        return None;
    }
    if cost.bound != Some(Bound::Latency) {
        return cost.best_ideal_ns;
    }
    beyond_latency(cost.family.name(), site.time_ns, cost.reachable_ns)
}

/// The time of the shortest kernels, where latency-bound work takes so many times as long that latency does not
/// explain it. `None` for recurrent operators: each of their steps has several kernels, of a number that depends on
/// the library.
pub(super) fn beyond_latency(family: &str, time_ns: i64, shortest_ns: Option<f64>) -> Option<f64> {
    /// From this factor on; a guess.
    const LONG: f64 = 10.0;
    let shortest = shortest_ns.filter(|_| family != Family::Rnn.name());
    shortest.filter(|shortest| time_ns as f64 >= LONG * shortest)
}

/// Number of executions of all kernels of a site.
pub(super) fn kernel_count(site: &Site) -> u64 {
    site.kernels.iter().map(|k| u64::from(k.count)).sum()
}
