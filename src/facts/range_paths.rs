//! The ranges around kernel launches, as paths in one tree of names. Calls in the same place share a
//! path, so the tree is small for any number of kernels.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::correlate::{Run, SiteId};
use crate::handle;
use crate::profile::StrId;

handle! {
    /// A row of [`RangePaths::nodes`].
    NodeId,
}

/// A name and its enclosing path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RangeNode {
    pub(super) around: Option<NodeId>,
    pub(super) name: StrId,
}

/// Kernel time of a site whose innermost name is this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathTime {
    pub(super) site: SiteId,
    pub(super) node: NodeId,
    pub(super) ns: i64,
    pub(super) kernels: u64,
}

/// The tree and the kernel time in it.
#[derive(Debug, Default)]
pub(super) struct RangePaths {
    /// Parents precede their children.
    nodes: Vec<RangeNode>,
    times: Vec<PathTime>,
}

impl RangePaths {
    /// The paths of the kernels inside the window. `counts` selects the strings that become nodes:
    /// numbered names would give every call its own path.
    pub(super) fn of(run: &Run, counts: &[bool]) -> RangePaths {
        let mut paths = RangePaths::default();
        let of_scope = paths.grow(run, counts);
        let mut times: FxHashMap<(SiteId, NodeId), (i64, u64)> = FxHashMap::default();
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let scope = run.scope_of_work(kernel, link);
            let node = scope.and_then(|s| of_scope.get(s.idx()).copied());
            if let (Some(site), Some(node)) = (link.site, node.flatten()) {
                let (ns, kernels) = times.entry((site, node)).or_default();
                *ns = ns.saturating_add(kernel.span.ns());
                *kernels += 1;
            }
        }
        let times = times.into_iter();
        paths.times = times
            .map(|((site, node), (ns, kernels))| PathTime {
                site,
                node,
                ns,
                kernels,
            })
            .collect();
        paths
    }

    /// All nodes; every name precedes the names that it encloses.
    pub(super) fn nodes(&self) -> &[RangeNode] {
        &self.nodes
    }

    /// The kernel times, unordered.
    pub(super) fn times(&self) -> &[PathTime] {
        &self.times
    }

    /// The innermost node per scope. Parents precede their children.
    fn grow(&mut self, run: &Run, counts: &[bool]) -> Vec<Option<NodeId>> {
        let mut known: FxHashMap<RangeNode, NodeId> = FxHashMap::default();
        let mut of_scope: Vec<Option<NodeId>> = Vec::with_capacity(run.scopes.len());
        for scope in &run.scopes {
            let name = Some(scope.text).filter(|name| counts.get(name.idx()) == Some(&true));
            let around = scope.parent.and_then(|p| of_scope.get(p.idx()).copied());
            let around = around.flatten();
            of_scope.push(match name {
                None => around,
                Some(name) => {
                    let node = RangeNode { around, name };
                    Some(*known.entry(node).or_insert_with(|| {
                        self.nodes.push(node);
                        NodeId::new(self.nodes.len() - 1)
                    }))
                }
            });
        }
        of_scope
    }
}

/// The results of a function for every string of a profile.
pub(super) fn by_string<T: Send>(run: &Run, look: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let strings = &run.profile.strings;
    let rows = (0..strings.len()).into_par_iter().with_min_len(STRINGS);
    rows.map(|row| look(strings.get(StrId::new(row)))).collect()
}

/// Number of strings that a thread handles at a time.
const STRINGS: usize = 1024;
