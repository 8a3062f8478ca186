//! The source of the layer names.

use super::layers::LayerTable;
use super::model::{LayerSource, Link};
use super::sites::SiteInputs;
use crate::profile::KernelId;

/// The source of layer names that covers the most kernel time; `operators` if no source names layers.
pub(super) fn of_most_time(
    inputs: &SiteInputs<'_>,
    links: &[Link],
    layers: &LayerTable,
) -> Option<LayerSource> {
    let mut time: Vec<(LayerSource, i64)> = Vec::new();
    for ((id, kernel), link) in (0..).map(KernelId).zip(&inputs.profile.kernels).zip(links) {
        let named = inputs.layer(id, link);
        let layer = named.and_then(|l| layers.layers.get(l.idx()));
        let Some(source) = layer.map(|l| l.source).or(link.op.map(|_| LayerSource::Op)) else {
            continue;
        };
        match time.iter_mut().find(|(s, _)| *s == source) {
            Some((_, ns)) => *ns = ns.saturating_add(kernel.span.ns()),
            None => time.push((source, kernel.span.ns())),
        }
    }
    let named = time.iter().filter(|(s, _)| *s != LayerSource::Op);
    named
        .max_by_key(|(s, ns)| (*ns, std::cmp::Reverse(*s)))
        .or(time.first())
        .map(|(s, _)| *s)
}
