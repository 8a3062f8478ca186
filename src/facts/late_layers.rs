//! The layers whose launches come late, where these are a small part of the GPU's work.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::correlate::{Direction, Site, SiteId};
use crate::cost::{Costed, Family};

/// Layers that hold most of the idle time before late launches.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LateLayers {
    /// Their names, most idle time first: `rpn, roi_heads`.
    pub(super) names: String,
    /// Their shares of that idle time and of kernel time.
    pub(super) share: f64,
    pub(super) kernel_share: f64,
}

/// The most layers that are named, and the share of the idle time that each of them and all of them hold at least.
const MOST_NAMES: usize = 3;
const EACH: f64 = 0.1;
const ALL: f64 = 0.6;
/// Levels of layers that are looked at; bounds the work on names that are made up.
const MOST_LEVELS: usize = 64;
/// Share of the idle time over share of the kernel time from which the layers stand out: where launches are late
/// everywhere, no layer is the place to begin.
const STANDS_OUT: f64 = 1.5;

/// Idle time before the kernels of a layer, and the time of its kernels, in ns.
type Times = (i64, i64);

/// `None` where the layers of most late launches are unknown, `Some(None)` where no few layers stand out.
pub(super) fn of(costed: &Costed) -> Option<Option<LateLayers>> {
    let run = &costed.run;
    let layer_of = |site: SiteId| Some(run.layer_of(run.site(site)?)?.name.as_str());
    let mut layers: BTreeMap<&str, Times> = BTreeMap::new();
    let mut all: Times = (0, 0);
    for gap in run.timeline.late_launches() {
        all.0 += gap.reliable_ns;
        let link = gap.next.and_then(|kernel| run.link(kernel));
        if let Some(name) = link.and_then(|link| layer_of(link.site?)) {
            layers.entry(name).or_default().0 += gap.reliable_ns;
        }
    }
    for (id, site) in (0..).map(SiteId).zip(&run.sites) {
        let ns: i64 = site.kernels.iter().map(|kernel| kernel.time_ns).sum();
        all.1 += ns;
        if let Some(name) = layer_of(id) {
            layers.entry(name).or_default().1 += ns;
        }
    }
    let (idle, kernels) = (all.0.max(1) as f64, all.1.max(1) as f64);
    let known: i64 = layers.values().map(|(ns, _)| ns).sum();
    if (known as f64) < ALL * idle {
        return None;
    }
    let outer = outermost(&layers, ALL * idle);
    let mut order: Vec<(&str, Times)> = outer.into_iter().collect();
    order.sort_by_key(|(name, (ns, _))| (Reverse(*ns), *name));
    order.truncate(MOST_NAMES);
    order.retain(|(_, (ns, _))| *ns as f64 >= EACH * idle);
    let share = order.iter().map(|(_, (ns, _))| *ns as f64).sum::<f64>() / idle;
    let kernel_share = order.iter().map(|(_, (_, ns))| *ns as f64).sum::<f64>() / kernels;
    let names: Vec<&str> = order.into_iter().map(|(name, _)| name).collect();
    let stand_out = share >= ALL && share >= STANDS_OUT * kernel_share;
    Some(stand_out.then(|| LateLayers {
        names: names.join(", "),
        share,
        kernel_share,
    }))
}

/// The late launches with the layers of their kernels, where these are modules.
fn launches(costed: &Costed) -> impl Iterator<Item = (i64, Option<SiteId>, Option<&str>)> {
    let run = &costed.run;
    run.timeline.late_launches().map(|gap| {
        let link = gap.next.and_then(|kernel| run.link(kernel));
        let site = link.and_then(|link| link.site);
        let layer = site.and_then(|site| run.layer_of(run.site(site)?));
        let layer = layer.filter(|layer| layer.source.is_around_layers());
        (
            gap.reliable_ns,
            site,
            layer.map(|layer| layer.name.as_str()),
        )
    })
}

/// The part of the idle time before late launches whose kernels are outside of modules, without those of the backward
/// pass, of the optimizer and of collectives. `None` where no modules are known.
pub(super) fn outside_layers(costed: &Costed) -> Option<f64> {
    let run = &costed.run;
    let known = run.layers.iter().any(|l| l.source.is_around_layers());
    let outside = |site: SiteId| {
        let forward = run
            .site(site)
            .is_some_and(|s| s.direction != Direction::Bprop);
        forward && !super::gap::is_beside_model(costed, site)
    };
    let (mut all, mut found) = (0_i64, 0_i64);
    for (ns, site, layer) in launches(costed) {
        all = all.saturating_add(ns);
        if layer.is_none() && site.is_some_and(outside) {
            found = found.saturating_add(ns);
        }
    }
    (known && all > 0).then(|| found as f64 / all as f64)
}

/// A layer without an RNN.
#[derive(Debug, PartialEq)]
pub(super) struct BesideRnn {
    pub(super) layer: String,
    /// Its share of the idle time before late launches.
    pub(super) share: f64,
}

/// Share of that idle time from which the layer is named.
const BESIDE_RNN: f64 = 0.5;

/// Whether the operator computes whole sequences, as `nn.LSTM` does, and not one step of them, as `nn.LSTMCell`.
fn computes_sequences(site: &Site) -> bool {
    let name = site.op.as_ref().map_or("", |op| &*op.name);
    !name.contains("_cell")
}

/// The layer with most late launches of those that hold no RNN and are part of none. `None` where no modules are known.
pub(super) fn beside_rnn(costed: &Costed) -> Option<Option<BesideRnn>> {
    let run = &costed.run;
    let known = run.layers.iter().any(|l| l.source.is_around_layers());
    known.then(|| layer_beside_rnn(costed))
}

fn layer_beside_rnn(costed: &Costed) -> Option<BesideRnn> {
    let run = &costed.run;
    let of_rnns = run.sites.iter().zip(&costed.sites);
    let rnns: BTreeSet<&str> = of_rnns
        .filter(|(site, cost)| cost.family == Family::Rnn && computes_sequences(site))
        .filter_map(|(site, _)| Some(run.layer_of(site)?.name.as_str()))
        .collect();
    if rnns.is_empty() {
        return None;
    }
    let is_part = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with('.'))
    };
    let mut layers: BTreeMap<&str, i64> = BTreeMap::new();
    let mut all = 0_i64;
    for (ns, _, layer) in launches(costed) {
        all = all.saturating_add(ns);
        let name = layer.filter(|name| !rnns.iter().any(|rnn| is_part(name, rnn)));
        let outermost = name.and_then(|name| {
            let ends = name.match_indices('.').map(|(at, _)| at).take(MOST_LEVELS);
            let mut parts = ends.chain([name.len()]).filter_map(|end| name.get(..end));
            parts.find(|part| !rnns.iter().any(|rnn| is_part(rnn, part)))
        });
        if let Some(layer) = outermost {
            *layers.entry(layer).or_default() += ns;
        }
    }
    let (layer, ns) = layers
        .into_iter()
        .max_by_key(|(name, ns)| (*ns, Reverse(*name)))?;
    let share = ns as f64 / all.max(1) as f64;
    (share >= BESIDE_RNN).then(|| BesideRnn {
        layer: layer.to_owned(),
        share,
    })
}

/// The outermost layers of which none holds most of the idle time, unless it contains no others.
fn outermost<'a>(layers: &BTreeMap<&'a str, Times>, most: f64) -> BTreeMap<&'a str, Times> {
    let mut depth = 0;
    loop {
        let mut outer: BTreeMap<&str, Times> = BTreeMap::new();
        let mut deeper = false;
        for (name, (idle, kernels)) in layers {
            let end = name.match_indices('.').nth(depth).map(|(at, _)| at);
            deeper |= end.is_some();
            let outermost = end.and_then(|end| name.get(..end)).unwrap_or(name);
            let times = outer.entry(outermost).or_default();
            *times = (times.0 + idle, times.1 + kernels);
        }
        if !deeper || depth == MOST_LEVELS || outer.values().all(|(idle, _)| (*idle as f64) < most)
        {
            return outer;
        }
        depth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;

    /// Launches of layers in a row: their names, the idle time before each and the time of its kernel.
    fn late(launches: &[(&str, i64, i64)]) -> Option<LateLayers> {
        let mut b = ProfileBuilder::new();
        let mut at = 0;
        for _ in 0..4 {
            for (layer, idle, ns) in launches {
                at += idle;
                b.range(&format!("layer:{layer}"), at - 20, at + 20);
                b.range("aten::mm", at - 10, at + 10);
                let kernel = b.launch(at);
                b.profile.kernels[kernel].span.end += ns;
                at += ns;
            }
        }
        b.profile.recorded.api_calls = true;
        of(&estimate_costs(b.run(), None)).unwrap()
    }

    #[test]
    fn layers_with_most_idle_time_and_little_work_are_named() {
        let found = late(&[
            ("model.backbone.conv1", 1_000, 60_000),
            ("model.backbone.conv2", 1_000, 60_000),
            ("model.rpn.head", 6_000, 5_000),
            ("model.rpn.anchors", 6_000, 5_000),
            ("model.roi_heads", 10_000, 5_000),
        ])
        .unwrap();
        assert_eq!(found.names, "model.rpn, model.roi_heads");
        assert!(found.share > 0.9 && found.kernel_share < 0.2, "{found:?}");
    }

    #[test]
    fn idle_time_before_kernels_outside_of_layers_is_a_part() {
        let mut b = ProfileBuilder::new();
        for at in 1..5 {
            let (start, end) = (at * 9_000 - 20, at * 9_000 + 20);
            match at {
                2 => b.range("layer:pi", start, end),
                3 => b.range("Optimizer.step#SGD.step", start, end),
                _ => b.range("aten::mul", start, end),
            };
            b.launch(at * 9_000);
        }
        b.profile.recorded.api_calls = true;
        // One of the three gaps between four kernels.
        let share = outside_layers(&estimate_costs(b.run(), None)).unwrap();
        assert!((0.3..0.4).contains(&share), "{share}");
        assert_eq!(
            outside_layers(&estimate_costs(ProfileBuilder::new().run(), None)),
            None
        );
    }

    #[test]
    fn a_decoder_beside_an_lstm_is_named() {
        let found = |launches: &[(&str, &str)]| {
            let mut b = ProfileBuilder::new();
            for (i, (layer, op)) in launches.iter().enumerate() {
                let at = 9_000 * (i as i64 + 1);
                b.range(&format!("layer:{layer}"), at - 20, at + 20);
                b.range(op, at - 10, at + 10);
                b.launch(at);
            }
            b.profile.recorded.api_calls = true;
            let found = beside_rnn(&estimate_costs(b.run(), None)).unwrap();
            found.map(|found| found.layer)
        };
        let (rnn, mul) = ("aten::_cudnn_rnn", "aten::mul");
        let decodes = [
            ("net.enc.lstm", rnn),
            ("net.dec.cell", mul),
            ("net.dec.out", mul),
        ];
        assert_eq!(found(&decodes).as_deref(), Some("net.dec"));
        let twice = [("lstm", rnn), ("lstm", rnn), ("lstm", rnn), ("head", mul)];
        assert_eq!(found(&twice), None);
        assert_eq!(found(&[("enc", mul), ("dec", mul)]), None);
        let without_layers = estimate_costs(ProfileBuilder::new().run(), None);
        assert_eq!(beside_rnn(&without_layers), None);
    }

    #[test]
    fn late_launches_outside_of_layers_are_unknown() {
        let mut b = ProfileBuilder::new();
        for at in 0..4 {
            b.launch(at * 9_000);
        }
        b.profile.recorded.api_calls = true;
        assert_eq!(of(&estimate_costs(b.run(), None)), None);
    }

    #[test]
    fn late_launches_everywhere_have_no_place() {
        let blocks = [
            ("blocks.0", 9_000, 5_000),
            ("blocks.1", 9_000, 5_000),
            ("blocks.2", 9_000, 5_000),
        ];
        assert_eq!(late(&blocks), None);
    }
}
