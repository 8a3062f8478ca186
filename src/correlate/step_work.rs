//! The launches of a process, and what steps are recognized from them.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

use super::model::StepSource;
use crate::base::statistics::median;
use crate::profile::{ApiClass, CallId, ConfigId, DeviceId, Profile, Span, StrId};

/// Largest difference between two steps with the same work, as a share of their kernels.
pub(super) const SAME_WORK: f64 = 0.05;
/// Largest difference in the number of kernels between steps shown by a repeated range.
pub(super) const ALIKE_KERNELS: f64 = 0.1;

/// The calls that launched the work of a profile, each in the order of its table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launches<'a> {
    pub(super) kernels: &'a [Option<CallId>],
    /// Of graphs that are recorded whole.
    pub(super) graphs: &'a [Option<CallId>],
}

/// The steps of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recognized {
    pub(super) source: StepSource,
    /// The text of the ranges; empty if kernels show the steps.
    pub(super) text: String,
    /// Disjoint, in time order.
    pub(super) spans: Vec<Span>,
}

/// A kernel's device, name and launch configuration.
pub(super) type LaunchKind = (DeviceId, StrId, ConfigId);

/// When the kernels and graphs of a process were launched, in time order.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkLaunches {
    times: Vec<i64>,
    /// The kinds of the kernels; `None` for a graph.
    kinds: Vec<Option<LaunchKind>>,
}

impl WorkLaunches {
    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// The rows in a span.
    fn rows(&self, span: Span) -> std::ops::Range<usize> {
        let before = |time: i64| self.times.partition_point(|t| *t < time);
        before(span.start)..before(span.end)
    }

    pub(super) fn count(&self, span: Span) -> usize {
        self.rows(span).len()
    }

    pub(super) fn first(&self) -> Option<i64> {
        self.times.first().copied()
    }

    pub(super) fn last(&self) -> Option<i64> {
        self.times.last().copied()
    }

    /// Without what is launched in these disjoint spans, which are in time order.
    pub(super) fn outside(&self, spans: &[Span]) -> WorkLaunches {
        let rows = self.times.iter().zip(&self.kinds);
        let (times, kinds) = rows
            .filter(|(time, _)| !Span::one_contains(spans, **time))
            .map(|(t, n)| (*t, *n))
            .unzip();
        WorkLaunches { times, kinds }
    }

    /// What was launched in a span, in time order.
    pub(super) fn kinds_in(&self, span: Span) -> &[Option<LaunchKind>] {
        self.kinds.get(self.rows(span)).unwrap_or_default()
    }

    /// The kernels with when they were launched, in time order.
    pub(super) fn kernels(&self) -> impl Iterator<Item = (i64, LaunchKind)> {
        let rows = self.times.iter().zip(&self.kinds);
        rows.filter_map(|(at, kind)| Some((*at, (*kind)?)))
    }

    pub(super) fn names_in(&self, span: Span) -> FxHashSet<Option<StrId>> {
        let kinds = self.kinds_in(span).iter();
        kinds.map(|kind| kind.map(|(_, name, _)| name)).collect()
    }
}

pub(super) fn launched_by_process(
    profile: &Profile,
    launches: &[Option<CallId>],
) -> Vec<WorkLaunches> {
    let mut rows: Vec<Vec<(i64, Option<LaunchKind>)>> = vec![Vec::new(); profile.processes.len()];
    for (kernel, call) in profile.kernels.iter().zip(launches) {
        let call = call.and_then(|id| profile.call(id));
        if let (Some(rows), Some(call)) = (rows.get_mut(kernel.process.idx()), call) {
            let kind = (kernel.device, kernel.name, kernel.config);
            rows.push((call.span.start, Some(kind)));
        }
    }
    for call in &profile.calls {
        if call.class == ApiClass::GraphLaunch
            && let Some(process) = profile.process_of(call.thread)
            && let Some(rows) = rows.get_mut(process.idx())
        {
            rows.push((call.span.start, None));
        }
    }
    let of_process = rows.into_iter().map(|mut rows| {
        rows.sort_by_key(|(at, _)| *at);
        let (times, kinds) = rows.into_iter().unzip();
        WorkLaunches { times, kinds }
    });
    of_process.collect()
}

/// Whether two numbers differ by at most a share of the larger one.
pub(super) fn alike(a: usize, b: usize, by: f64) -> bool {
    a.abs_diff(b) as f64 <= by * a.max(b) as f64
}

/// Fewest kernels from one occurrence of a kernel to the next; fewer repeat by chance.
pub(super) const FEWEST_KERNELS: usize = 8;
/// Share of the distances between occurrences that must be about the same.
pub(super) const REGULAR: f64 = 0.7;

/// The distances between consecutive positions.
pub(super) fn distances(at: &[usize]) -> Vec<usize> {
    let pairs = at.iter().zip(at.iter().skip(1));
    pairs.map(|(a, b)| b.saturating_sub(*a)).collect()
}

/// Whether a kernel that runs at these positions recurs regularly: most distances between them are about the same.
pub(crate) fn recurs_regularly(at: &[usize]) -> bool {
    let mut distances = distances(at);
    let Some(typical) = median(&mut distances) else {
        return false;
    };
    let same = distances.iter().filter(|d| alike(**d, typical, SAME_WORK));
    typical >= FEWEST_KERNELS && same.count() as f64 >= REGULAR * distances.len() as f64
}

/// How often each item occurs.
pub(super) fn counts<T: Eq + Hash>(items: impl Iterator<Item = T>) -> FxHashMap<T, usize> {
    let mut counts = FxHashMap::default();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

/// Adds a range, unless it is inside of the one before.
pub(super) fn add_outermost(spans: &mut Vec<Span>, span: Span) {
    if spans.last().is_none_or(|last| span.start >= last.end) {
        spans.push(span);
    }
}

#[cfg(test)]
mod tests {
    use super::recurs_regularly;

    #[test]
    fn kernels_recur_at_equal_distances() {
        assert!(recurs_regularly(&[0, 10, 20, 30, 40]));
        assert!(
            recurs_regularly(&[0, 20, 40, 60, 90]),
            "most distances are equal"
        );
        assert!(
            !recurs_regularly(&[0, 3, 6, 9, 12]),
            "too few kernels in between"
        );
        assert!(!recurs_regularly(&[0, 10, 40, 90]));
    }
}
