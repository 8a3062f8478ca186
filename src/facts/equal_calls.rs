//! Sites that make equal calls: the layers of a model repeat them, and single ones are faster or slower by chance.

use rustc_hash::FxHashMap;

use crate::correlate::{ArgsId, Direction, Site};
use crate::cost::{Costed, SiteCost};
use crate::profile::StrId;

/// Sums of sites with one operator, direction, arguments and main kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct EqualCalls {
    ideal_ns: f64,
    time_ns: f64,
    calls: f64,
}

/// What equal calls have in common.
type Key<'a> = (&'a str, Direction, ArgsId, StrId);

fn key(site: &Site) -> Option<Key<'_>> {
    let op = site.op.as_ref()?;
    let kernel = site.kernels.first()?;
    Some((&op.name, site.direction, site.args?, kernel.name))
}

impl EqualCalls {
    fn add(&mut self, ideal_ns: f64, time_ns: f64, calls: f64) {
        self.ideal_ns += ideal_ns;
        self.time_ns += time_ns;
        self.calls += calls;
    }

    /// Ideal over measured time.
    pub(super) fn efficiency(&self) -> f64 {
        self.ideal_ns / self.time_ns
    }

    /// GPU time per call.
    pub(super) fn call_ns(&self) -> f64 {
        self.time_ns / self.calls.max(1.0)
    }

    /// One row per site; `None` without an ideal time.
    pub(super) fn of(costed: &Costed) -> Vec<Option<EqualCalls>> {
        let sites = || costed.run.sites.iter().zip(&costed.sites);
        let mut sums: FxHashMap<Key<'_>, EqualCalls> = FxHashMap::default();
        for (site, cost) in sites() {
            // The search for the fastest algorithm runs slow ones too.
            let ideal_ns = cost.ideal_ns.filter(|_| !cost.autotuning);
            if let (Some(key), Some(ideal_ns)) = (key(site), ideal_ns) {
                let (time_ns, calls) = (site.time_ns as f64, f64::from(site.calls));
                sums.entry(key).or_default().add(ideal_ns, time_ns, calls);
            }
        }
        let row = |(site, cost): (&Site, &SiteCost)| {
            cost.ideal_ns?;
            sums.get(&key(site)?).copied()
        };
        sites().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_all_layers_count_together() {
        let mut calls = EqualCalls::default();
        calls.add(100.0, 150.0, 1.0);
        calls.add(300.0, 650.0, 3.0);
        assert_eq!((calls.efficiency(), calls.call_ns()), (0.5, 200.0));
    }
}
