//! Kernels of one site on several streams: they overlap each other, but they all go when the site does.

use rustc_hash::FxHashMap;

use super::work::{Exposed, WorkEdges, WorkItem, WorkKind};
use crate::correlate::model::{Site, SiteId, SiteKernel};
use crate::profile::{ConfigId, Profile, StrId};

/// Per device: the analyzed work, without kernels that ran alone.
#[derive(Debug, Default)]
pub(crate) struct SharedTime(Vec<Vec<WorkItem>>);

/// What may overlap of the work of a device, if several kernels do. `exposed` has a row for each of the first items, which
/// are the kernels.
pub(super) fn overlapping(mut items: Vec<WorkItem>, exposed: &[Exposed]) -> Vec<WorkItem> {
    let mut kernels = 0;
    let mut exposed = exposed.iter();
    items.retain(|item| {
        let alone = exposed.next().map_or(0, |exposed| exposed.alone_ns);
        match item.kind {
            WorkKind::Excluded => false,
            WorkKind::Kernel | WorkKind::Communication => {
                let overlaps = alone < item.span.ns();
                kernels += usize::from(overlaps);
                overlaps
            }
            WorkKind::Copy | WorkKind::Set | WorkKind::Graph => true,
        }
    });
    if kernels <= 1 {
        return Vec::new();
    }
    items.shrink_to_fit();
    items
}

impl SharedTime {
    /// Keeps the work of a device that [`overlapping`] found.
    pub(super) fn keep(&mut self, items: Vec<WorkItem>) {
        if !items.is_empty() {
            self.0.push(items);
        }
    }

    /// Adds to each site, and to each of its kernels, the time in which several of its kernels ran and no others.
    pub(crate) fn add_to(&self, sites: &mut [Site], profile: &Profile, site_of: &[Option<SiteId>]) {
        let mut sums = Sums::default();
        for items in &self.0 {
            sums.walk(items, profile, site_of);
        }
        for (id, shared) in sums.sites {
            if let Some(site) = sites.get_mut(id.idx()) {
                add(&mut site.exposed_ns, shared.alone_ns);
                add(&mut site.beside_comm_ns, shared.beside_comm_ns);
            }
        }
        for ((id, name, config), shared) in sums.kernels {
            let kernels = sites.get_mut(id.idx()).map(|site| &mut site.kernels);
            let same = |k: &&mut SiteKernel| (k.name, k.config) == (name, config);
            if let Some(kernel) = kernels.and_then(|kernels| kernels.iter_mut().find(same)) {
                add(&mut kernel.exposed_ns, shared.alone_ns);
                add(&mut kernel.beside_comm_ns, shared.beside_comm_ns);
            }
        }
    }
}

fn add(sum: &mut i64, ns: i64) {
    *sum = sum.saturating_add(ns);
}

type KernelOfSite = (SiteId, StrId, ConfigId);

#[derive(Default)]
struct Sums {
    sites: FxHashMap<SiteId, Exposed>,
    kernels: FxHashMap<KernelOfSite, Exposed>,
}

impl Sums {
    /// Walks over the work of one device in time.
    fn walk(&mut self, items: &[WorkItem], profile: &Profile, site_of: &[Option<SiteId>]) {
        let (mut computing, mut communicating) = (Kernels::default(), Kernels::default());
        let mut others: u32 = 0;
        let mut now = i64::MIN;
        for edge in WorkEdges::of(items) {
            let ns = edge.time.saturating_sub(now);
            if ns > 0 && others == 0 {
                match (computing.count, communicating.count) {
                    (2.., 0) => self.add(&computing, ns, |sum| &mut sum.alone_ns),
                    (0, 2..) => self.add(&communicating, ns, |sum| &mut sum.alone_ns),
                    (2.., _) => self.add(&computing, ns, |sum| &mut sum.beside_comm_ns),
                    _ => {}
                }
            }
            now = edge.time;
            let row = edge.item.row as usize;
            let site = site_of.get(row).copied().flatten();
            let of_site = site.zip(profile.kernels.get(row));
            match (edge.item.kind, of_site) {
                (WorkKind::Kernel, Some((site, kernel))) => {
                    computing.change((site, kernel.name, kernel.config), edge.closes);
                }
                (WorkKind::Communication, Some((site, kernel))) => {
                    communicating.change((site, kernel.name, kernel.config), edge.closes);
                }
                _ if edge.closes => others = others.saturating_sub(1),
                _ => others = others.saturating_add(1),
            }
        }
    }

    fn add(&mut self, running: &Kernels, ns: i64, part: fn(&mut Exposed) -> &mut i64) {
        if let Some(site) = only(&running.sites) {
            add(part(self.sites.entry(site).or_default()), ns);
        }
        if let Some(kernel) = only(&running.kernels) {
            add(part(self.kernels.entry(kernel).or_default()), ns);
        }
    }
}

/// The kernels that run.
#[derive(Default)]
struct Kernels {
    count: u32,
    sites: FxHashMap<SiteId, u32>,
    kernels: FxHashMap<KernelOfSite, u32>,
}

impl Kernels {
    fn change(&mut self, kernel: KernelOfSite, closes: bool) {
        self.count = match closes {
            true => self.count.saturating_sub(1),
            false => self.count.saturating_add(1),
        };
        change(&mut self.sites, kernel.0, closes);
        change(&mut self.kernels, kernel, closes);
    }
}

fn change<K: Copy + Eq + std::hash::Hash>(counts: &mut FxHashMap<K, u32>, key: K, closes: bool) {
    let count = counts.entry(key).or_default();
    *count = match closes {
        true => count.saturating_sub(1),
        false => count.saturating_add(1),
    };
    if *count == 0 {
        counts.remove(&key);
    }
}

/// The key of a map that has just one.
fn only<K: Copy>(counts: &FxHashMap<K, u32>) -> Option<K> {
    let mut keys = counts.keys();
    keys.next().copied().filter(|_| keys.next().is_none())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use crate::correlate::Site;
    use crate::correlate::testing::ProfileBuilder;

    /// The sites of kernels with these names and times, by name: (exposed, beside communication).
    fn exposed(kernels: &[(&str, i64, i64)], site: &str) -> [(i64, i64); 2] {
        let mut b = ProfileBuilder::new();
        for &(name, start, end) in kernels {
            let kernel = b.launch(start);
            let kernel = &mut b.profile.kernels[kernel];
            kernel.span.start = start;
            kernel.span.end = end;
            kernel.name = b.profile.strings.intern(name);
        }
        let run = b.run();
        let is_it = |s: &&Site| run.profile.text(s.kernels[0].name) == site;
        let site = run.sites.iter().find(is_it).unwrap();
        let kernel = site.kernels[0];
        [
            (site.exposed_ns, site.beside_comm_ns),
            (kernel.exposed_ns, kernel.beside_comm_ns),
        ]
    }

    #[test]
    fn kernels_of_a_site_do_not_hide_each_other() {
        let two = [("a", 0, 100), ("a", 50, 150)];
        assert_eq!(exposed(&two, "a"), [(150, 0); 2]);
        // Another kernel hides both, and what is under it.
        let other = [("a", 0, 100), ("a", 50, 150), ("b", 60, 90)];
        assert_eq!(exposed(&other, "a"), [(120, 0); 2]);
        assert_eq!(exposed(&other, "b"), [(0, 0); 2]);
        let three = [("a", 0, 100), ("a", 0, 100), ("a", 200, 210)];
        assert_eq!(exposed(&three, "a"), [(110, 0); 2]);
    }

    #[test]
    fn only_communication_beside_kernels_of_a_site_is_told_apart() {
        let beside = [
            ("a", 0, 100),
            ("a", 0, 100),
            ("nccl", 40, 120),
            ("b", 90, 95),
        ];
        assert_eq!(exposed(&beside, "a"), [(40, 55); 2]);
        assert_eq!(exposed(&beside, "nccl"), [(20, 0); 2]);
        // Messages on two streams are exposed while nothing computes.
        let messages = [("nccl", 0, 100), ("nccl", 50, 150), ("a", 90, 110)];
        assert_eq!(exposed(&messages, "nccl"), [(130, 0); 2]);
        assert_eq!(exposed(&messages, "a"), [(0, 20); 2]);
    }
}
