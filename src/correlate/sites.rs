//! Sites: groups of op calls that do the same work in the same place, with their kernels.

use std::cmp::{Ordering, Reverse};

use rustc_hash::FxHashMap;

use super::args::Arguments;
use super::fwd_bwd_pairs;
use super::model::{
    ArgsId, Direction, LayerId, Link, OpCall, OpName, OpNameId, ReplayNames, ReplayedWork, Site,
    SiteId, SiteKernel, WithoutOperator,
};
use super::scope_query::Placement;
use super::timeline::Exposed;
use crate::profile::{ConfigId, Kernel, KernelId, Profile, StrId, Strings};

/// The properties shared by the op calls of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SiteKey {
    Op {
        layer: Option<LayerId>,
        op: OpNameId,
        direction: Direction,
        recomputed: bool,
        args: Option<u32>,
        /// Distinguishes calls with incomplete arguments by their calls of the other direction.
        partner: Option<u32>,
        message: Option<u32>,
    },
    /// Kernels without an operator are distinguished by kernel.
    Kernel {
        layer: Option<LayerId>,
        direction: Direction,
        missing: WithoutOperator,
        name: StrId,
        config: ConfigId,
        message: Option<u32>,
        replayed: Option<u32>,
    },
}

/// Inputs for grouping kernels and their calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiteInputs<'a> {
    pub profile: &'a Profile,
    pub arguments: &'a Arguments,
    pub labels: &'a Strings,
    /// Per kernel: the time in which nothing else ran, in ns.
    pub exposed: &'a [Exposed],
    /// Per kernel: whether it counts.
    pub inside: &'a [bool],
    pub calls: &'a [OpCall],
    pub op_names: &'a [OpName],
    /// Per call: innermost user source line.
    pub lines: &'a [Option<StrId>],
    /// Per kernel: its context, for kernels without an operator.
    pub placements: &'a FxHashMap<KernelId, Placement<LayerId>>,
    /// The messages recorded on kernel events.
    pub messages: &'a FxHashMap<KernelId, ArgsId>,
    /// What kernels of graph replays do.
    pub replay_names: Option<&'a ReplayNames>,
}

/// The sites of all kernels inside the window, largest first, and the site of each kernel.
pub(crate) fn group(inputs: &SiteInputs<'_>, links: &[Link]) -> (Vec<Site>, Vec<Option<SiteId>>) {
    let mut of_kernel: Vec<Option<SiteId>> = vec![None; links.len()];
    let mut sites: Vec<Site> = Vec::new();
    let mut by_key: FxHashMap<SiteKey, SiteId> = FxHashMap::default();
    let mut site_of_call: Vec<Option<SiteId>> = vec![None; inputs.calls.len()];
    let mut rows = KernelRows::default();
    let partners = inputs.partners();
    let mut messages: Vec<SiteMessages> = Vec::new();
    let inside = inputs.inside.iter().copied();
    let kernels = (0..).map(KernelId).zip(links).zip(&mut of_kernel);
    for (((kernel, link), found), _) in kernels.zip(inside).filter(|(_, inside)| *inside) {
        let call = link.op.map(super::model::OpCallId::idx);
        let known = call.and_then(|c| site_of_call.get(c).copied().flatten());
        let site = known.or_else(|| {
            let partner = call.and_then(|c| partners.get(c).copied().flatten());
            let key = inputs.key(kernel, link, partner)?;
            let site = *by_key.entry(key).or_insert_with(|| {
                sites.push(inputs.new_site(kernel, link));
                messages.push(SiteMessages::default());
                SiteId::new(sites.len() - 1)
            });
            if let Some(slot) = call.and_then(|c| site_of_call.get_mut(c)) {
                *slot = Some(site);
            }
            if let Some(site) = sites.get_mut(site.idx()) {
                site.calls = site.calls.saturating_add(1);
            }
            Some(site)
        });
        *found = site;
        if let Some((id, site)) = site.and_then(|s| Some((s, sites.get_mut(s.idx())?))) {
            inputs.add_kernel(site, id, kernel, &mut rows);
            if let Some(messages) = messages.get_mut(id.idx()) {
                messages.add(inputs, inputs.message(kernel, link));
            }
        }
    }
    for (site, messages) in sites.iter_mut().zip(messages) {
        site.message = messages.of_each_call(site.calls);
    }
    largest_first(inputs.profile, &mut sites, &mut of_kernel);
    (sites, of_kernel)
}

/// The messages of the kernels of a site.
#[derive(Debug, Clone, Copy, Default)]
struct SiteMessages {
    first: Option<ArgsId>,
    count: u32,
    differ: bool,
}

impl SiteMessages {
    fn add(&mut self, inputs: &SiteInputs<'_>, message: Option<ArgsId>) {
        let Some(message) = message else { return };
        let class = |id| inputs.arguments.class(Some(id));
        let first = *self.first.get_or_insert(message);
        self.differ |= class(first) != class(message);
        self.count = self.count.saturating_add(1);
    }

    /// The message of a call; `None` if calls send several.
    fn of_each_call(self, calls: u32) -> Option<ArgsId> {
        self.first.filter(|_| !self.differ && self.count == calls)
    }
}

impl SiteInputs<'_> {
    /// The layer of a kernel: its op call's, or that of the place it was launched from.
    pub(crate) fn layer(&self, kernel: KernelId, link: &Link) -> Option<LayerId> {
        match link.op {
            Some(call) => self.calls.get(call.idx())?.layer,
            None => self.placements.get(&kernel)?.layer,
        }
    }

    /// Per call, what tells it from calls with the same arguments. Where the other direction is not in
    /// the capture for some of them, they count as the first of those where it is.
    fn partners(&self) -> Vec<Option<u32>> {
        let mut classes = fwd_bwd_pairs::classes(self.calls, self.arguments);
        let mut usual: FxHashMap<SiteKey, u32> = FxHashMap::default();
        for (call, class) in self.calls.iter().zip(&classes) {
            if let Some(class) = *class {
                usual
                    .entry(self.call_key(call, None, None))
                    .or_insert(class);
            }
        }
        if !usual.is_empty() {
            for (call, class) in self.calls.iter().zip(&mut classes) {
                let key = self.call_key(call, None, None);
                *class = class.or_else(|| usual.get(&key).copied());
            }
        }
        classes
    }

    /// The message recorded on a kernel event, if its operator has none.
    fn message(&self, kernel: KernelId, link: &Link) -> Option<ArgsId> {
        let message = *self.messages.get(&kernel)?;
        let call = link.op.and_then(|id| self.calls.get(id.idx()));
        let args = call
            .and_then(|c| c.args)
            .and_then(|id| self.arguments.table.get(id.idx()));
        let has_size = args.is_some_and(|args| args.get(usize::MAX, "In msg nelems").is_some());
        (!has_size).then_some(message)
    }

    fn call_key(&self, call: &OpCall, partner: Option<u32>, message: Option<u32>) -> SiteKey {
        SiteKey::Op {
            layer: call.layer,
            op: call.op,
            direction: call.direction,
            recomputed: call.recomputed,
            args: self.arguments.class(call.args),
            partner,
            message,
        }
    }

    fn key(&self, kernel: KernelId, link: &Link, partner: Option<u32>) -> Option<SiteKey> {
        let message = self.arguments.class(self.message(kernel, link));
        if let Some(id) = link.op {
            let call = self.calls.get(id.idx())?;
            return Some(self.call_key(call, partner, message));
        }
        let placement = self.placements.get(&kernel);
        let row = self.profile.kernel(kernel)?;
        Some(SiteKey::Kernel {
            layer: placement.and_then(|s| s.layer),
            direction: placement.map_or(Direction::Unknown, |s| s.direction),
            missing: link.missing?,
            name: row.name,
            config: row.config,
            message,
            replayed: self.replayed(kernel).map(|(row, _)| row),
        })
    }

    /// What a kernel of a graph replay does, and the number of this work.
    fn replayed(&self, kernel: KernelId) -> Option<(u32, &ReplayedWork)> {
        self.replay_names?.work(kernel)
    }

    fn new_site(&self, kernel: KernelId, link: &Link) -> Site {
        let replayed = self.replayed(kernel).filter(|_| link.op.is_none());
        let call = link.op.and_then(|id| self.calls.get(id.idx()));
        let placement = self.placements.get(&kernel);
        let line = match link.op {
            Some(id) => self.lines.get(id.idx()).copied().flatten(),
            None => placement.and_then(|s| s.line),
        };
        Site {
            op: call
                .and_then(|c| self.op_names.get(c.op.idx()).cloned())
                .or_else(|| replayed.and_then(|(_, work)| work.op.clone())),
            args: call.and_then(|c| c.args),
            args_from_forward: call.is_some_and(|c| c.args_from_forward),
            message: None,
            direction: call
                .map(|c| c.direction)
                .or(placement.map(|s| s.direction))
                .unwrap_or(Direction::Unknown),
            recomputed: call.map_or(placement.is_some_and(|s| s.recomputed), |c| c.recomputed),
            layer: call.map_or(placement.and_then(|s| s.layer), |c| c.layer),
            missing: link.missing.filter(|_| replayed.is_none()),
            replayed: replayed.map(|(row, _)| row),
            calls: 0,
            time_ns: 0,
            exposed_ns: 0,
            beside_comm_ns: 0,
            kernels: Vec::new(),
            source_line: line.map(|l| self.labels.get(l).to_owned()),
            first: kernel,
        }
    }

    fn add_kernel(&self, site: &mut Site, id: SiteId, kernel: KernelId, rows: &mut KernelRows) {
        let Some(row) = self.profile.kernel(kernel) else {
            return;
        };
        // Each kernel without an operator counts as a separate call.
        let ns = row.span.ns();
        let exposed = self.exposed.get(kernel.idx()).copied().unwrap_or_default();
        let (exposed, beside_comm) = (exposed.alone_ns, exposed.beside_comm_ns);
        site.time_ns = site.time_ns.saturating_add(ns);
        site.exposed_ns = site.exposed_ns.saturating_add(exposed);
        site.beside_comm_ns = site.beside_comm_ns.saturating_add(beside_comm);
        let at = rows.find(site, id, row).unwrap_or_else(|| {
            site.kernels.push(SiteKernel {
                name: row.name,
                config: row.config,
                count: 0,
                time_ns: 0,
                exposed_ns: 0,
                beside_comm_ns: 0,
                min_ns: i64::MAX,
                max_ns: 0,
            });
            rows.add(id, row, site.kernels.len() - 1)
        });
        if let Some(kernel) = site.kernels.get_mut(at) {
            kernel.count = kernel.count.saturating_add(1);
            kernel.time_ns = kernel.time_ns.saturating_add(ns);
            kernel.exposed_ns = kernel.exposed_ns.saturating_add(exposed);
            kernel.beside_comm_ns = kernel.beside_comm_ns.saturating_add(beside_comm);
            kernel.min_ns = kernel.min_ns.min(ns);
            kernel.max_ns = kernel.max_ns.max(ns);
        }
    }
}

/// Sums the executions of each kernel inside a site.
#[derive(Debug, Default)]
struct KernelRows(FxHashMap<(SiteId, StrId, ConfigId), usize>);

impl KernelRows {
    /// Most sites have no more kernels than this, and a linear search is then faster than hashing.
    const FEW: usize = 8;

    fn find(&self, site: &Site, id: SiteId, row: &Kernel) -> Option<usize> {
        let same = |k: &SiteKernel| (k.name, k.config) == (row.name, row.config);
        let few = site.kernels.iter().take(Self::FEW).position(same);
        match few {
            None if site.kernels.len() > Self::FEW => {
                self.0.get(&(id, row.name, row.config)).copied()
            }
            found => found,
        }
    }

    fn add(&mut self, id: SiteId, row: &Kernel, at: usize) -> usize {
        self.0.insert((id, row.name, row.config), at);
        at
    }
}

/// The order of two kinds of kernels by what they are: their numbers follow the order of the file.
pub(crate) fn compare_kernels(
    profile: &Profile,
    (a, a_config): (StrId, ConfigId),
    (b, b_config): (StrId, ConfigId),
) -> Ordering {
    let config = |id: ConfigId| profile.configs.get(id.idx());
    let names = profile.text(a).cmp(profile.text(b));
    names.then_with(|| config(a_config).cmp(&config(b_config)))
}

fn largest_first(profile: &Profile, sites: &mut [Site], of_kernel: &mut [Option<SiteId>]) {
    for site in &mut *sites {
        site.kernels.sort_by(|a, b| {
            let kinds = || compare_kernels(profile, (a.name, a.config), (b.name, b.config));
            b.time_ns.cmp(&a.time_ns).then_with(kinds)
        });
    }
    let mut order: Vec<usize> = (0..sites.len()).collect();
    order.sort_by_key(|at| sites.get(*at).map(|s| (Reverse(s.time_ns), s.first)));
    let mut place = vec![SiteId(0); sites.len()];
    for (new, old) in order.iter().enumerate() {
        if let Some(slot) = place.get_mut(*old) {
            *slot = SiteId::new(new);
        }
    }
    for site in of_kernel.iter_mut().flatten() {
        if let Some(new) = place.get(site.idx()) {
            *site = *new;
        }
    }
    sites.sort_by_key(|s| (Reverse(s.time_ns), s.first));
}
