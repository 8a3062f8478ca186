//! Share of the kernel time that is attributed, and the source of the layer names.

use super::layers::LayerTable;
use super::model::{AttributionTotals, LayerSource, Link, WithoutOperator};
use super::sites::SiteInputs;
use crate::profile::KernelId;

/// Sums the kernel time that has a launch, an operator, shapes and a layer.
pub(super) fn sums(inputs: &SiteInputs<'_>, links: &[Link]) -> AttributionTotals {
    let mut sums = AttributionTotals::default();
    for ((id, kernel), link) in (0..).map(KernelId).zip(&inputs.profile.kernels).zip(links) {
        let ns = kernel.span.ns();
        let count = |yes: bool, kernels: &mut u64, time: &mut i64| {
            if yes {
                *kernels += 1;
                *time = time.saturating_add(ns);
            }
        };
        let call = link.op.and_then(|c| inputs.calls.get(c.idx()));
        let shapes = call.is_some_and(|c| inputs.arguments.has_shapes(c.args));
        let layer = inputs.layer(id, link).is_some();
        let is = |missing| link.missing == Some(missing);
        count(true, &mut sums.kernels, &mut sums.kernel_ns);
        count(
            link.launch.is_some(),
            &mut sums.launched,
            &mut sums.launched_ns,
        );
        count(call.is_some(), &mut sums.with_op, &mut sums.with_op_ns);
        count(shapes, &mut sums.with_shapes, &mut sums.with_shapes_ns);
        count(layer, &mut sums.with_layer, &mut sums.with_layer_ns);
        count(
            is(WithoutOperator::NoLaunch),
            &mut sums.no_launch,
            &mut sums.no_launch_ns,
        );
        count(
            is(WithoutOperator::GraphReplay),
            &mut sums.graph_replay,
            &mut sums.graph_replay_ns,
        );
    }
    sums
}

/// The source of layer names that covers the most kernel time; `operators` if no source names layers.
pub(super) fn layer_source(
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
