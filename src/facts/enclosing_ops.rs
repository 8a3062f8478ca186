//! The operators that enclose a site's calls. An `aten::copy_` may belong to `contiguous`, `repeat` or
//! `scaled_dot_product_attention`; only the enclosing ranges distinguish them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::range_paths::{NodeId, RangePaths};
use crate::base::statistics::NEARLY_ALL;
use crate::correlate::{EVALUATES, Run, SiteId};
use crate::profile::{HostRange, RangeKind};

/// An operator's name without dunders and in-place underscores: `__mul__`, `mul_` and `_softmax` become
/// `mul`, `mul` and `softmax`.
pub(super) fn plain_name(name: &str) -> &str {
    name.trim_matches('_')
}

/// Whether a range is one of an operator, of torch.profiler or of `emit_nvtx`.
pub(super) fn is_operator(range: &HostRange) -> bool {
    match range.kind {
        RangeKind::CpuOp => true,
        RangeKind::PushPop => range.seq.is_some() || range.op_id.is_some(),
        _ => false,
    }
}

/// Operator names per site.
#[derive(Debug, Default)]
pub(super) struct EnclosingOps(Vec<Words>);

/// Operator names, sorted.
pub(super) type Words = Arc<[Arc<str>]>;

/// Maximum number of enclosing operators that are examined: operators call each other a few levels
/// deep.
const DEPTH: usize = 24;
/// Maximum length of an operator name, in bytes.
const NAME: usize = 64;

impl EnclosingOps {
    /// Collects the operators from the time of every site in every path; `paths` contains all
    /// operators.
    pub(super) fn of(run: &Run, paths: &RangePaths) -> EnclosingOps {
        let names = Names::of(run, paths);
        let mut by_word: FxHashMap<(SiteId, u32), i64> = FxHashMap::default();
        for time in paths.times() {
            for word in names.around(time.node) {
                let ns = by_word.entry((time.site, word)).or_default();
                *ns = ns.saturating_add(time.ns);
            }
        }
        let mut all: Vec<Vec<Arc<str>>> = run
            .sites
            .iter()
            .map(|site| {
                let own = site.op.as_ref().map(|op| plain_name(&op.name));
                own.and_then(operator).into_iter().map(Arc::from).collect()
            })
            .collect();
        for ((site, word), ns) in by_word {
            let whole = run.site(site).map_or(0, |s| s.time_ns);
            if let Some(words) = all.get_mut(site.idx())
                && ns as f64 >= NEARLY_ALL * whole as f64
                && let Some(word) = names.words.get(word as usize)
            {
                words.push(Arc::clone(word));
            }
        }
        let sorted = all.into_iter().map(|mut words| {
            words.sort_unstable();
            words.dedup();
            words.into()
        });
        EnclosingOps(sorted.collect())
    }

    /// The operator of a site and those that enclose nine tenths of its time, as plain names: `copy`,
    /// `clone`, `contiguous`.
    pub(super) fn site(&self, site: SiteId) -> Words {
        self.0.get(site.idx()).cloned().unwrap_or_default()
    }

    /// The names that several sites share.
    pub(super) fn sites(&self, sites: impl Iterator<Item = SiteId>) -> Words {
        let mut common: Option<Vec<Arc<str>>> = None;
        for site in sites {
            let words = self.site(site);
            match &mut common {
                None => common = Some(words.to_vec()),
                Some(common) => common.retain(|w| words.contains(w)),
            }
        }
        common.unwrap_or_default().into()
    }
}

/// The operators among the names of paths.
#[derive(Debug, Default)]
struct Names {
    /// Distinct names: texts that differ in their namespace are one operator.
    words: Vec<Arc<str>>,
    /// Per node, its own word and the nearest enclosing node that has one.
    nodes: Vec<(Option<u32>, Option<NodeId>)>,
}

impl Names {
    fn of(run: &Run, paths: &RangePaths) -> Names {
        let mut names = Names::default();
        let mut ids: FxHashMap<Arc<str>, u32> = FxHashMap::default();
        for node in paths.nodes() {
            let word = operator_in(run.profile.text(node.name)).map(|name| {
                *ids.entry(name.into()).or_insert_with_key(|name| {
                    names.words.push(Arc::clone(name));
                    u32::try_from(names.words.len() - 1).unwrap_or(u32::MAX)
                })
            });
            let near = node.around.and_then(|around| {
                let (word, near) = names.nodes.get(around.idx())?;
                if word.is_some() { Some(around) } else { *near }
            });
            names.nodes.push((word, near));
        }
        names
    }

    /// The distinct names from a node outwards.
    fn around(&self, node: NodeId) -> Vec<u32> {
        let own = |node: NodeId| self.nodes.get(node.idx()).copied();
        let mut words = Vec::new();
        let mut at = own(node);
        let mut seen = 0;
        while let Some((word, near)) = at.filter(|_| seen < DEPTH) {
            if let Some(word) = word {
                seen += 1;
                if !words.contains(&word) {
                    words.push(word);
                }
            }
            at = near.and_then(own);
        }
        words
    }
}

/// The word of the node in which autograd keeps the gradient of a parameter.
pub(super) const KEEPS_GRADIENT: &str = "accumulate_grad";

/// What PyTorch's own ranges stand for that are no operators, by a word that no operator has. A node of
/// autograd for slices has the word of the operator that it calls: the engine, not the operator, adds its
/// result to the gradients of other slices.
fn framework_word(text: &str) -> Option<&'static str> {
    if let Some(word) = slicing_node(text) {
        return Some(word);
    }
    // torch/nn/modules/_functions.py; autograd names its nodes after the function.
    let node = text.strip_prefix(EVALUATES).unwrap_or(text);
    if matches!(node, "SyncBatchNorm" | "SyncBatchNormBackward") {
        return Some("sync_batch_norm");
    }
    // torch/distributed/fsdp: `FSDP::all_gather (layers.0)`, and the hooks of the older class. Its
    // `.forward` encloses the model.
    if text.starts_with("FSDP::") || text.starts_with("FullyShardedDataParallel._") {
        return Some("fsdp");
    }
    // torch/csrc/autograd/functions/accumulate_grad.cpp. The engine's range around it holds hooks as well.
    if text.ends_with("AccumulateGrad") && !text.starts_with(EVALUATES) {
        return Some(KEEPS_GRADIENT);
    }
    // torch/_dynamo, torch/_functorch
    if text.starts_with("Torch-Compiled Region") || node.contains("CompiledFunction") {
        return Some("torch_compiled");
    }
    None
}

/// The operator that a node of autograd calls for the gradient of a slice, if the engine's range around
/// the node is of that kind.
pub(super) fn slicing_node(text: &str) -> Option<&'static str> {
    let node = text.strip_prefix(EVALUATES)?;
    match node.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "SelectBackward" => Some("select_backward"),
        "SliceBackward" => Some("slice_backward"),
        _ => None,
    }
}

/// The operator named by a range's text, if it can be one, or the word for one of PyTorch's own ranges.
pub(super) fn operator_in(text: &str) -> Option<&str> {
    if let Some(word) = framework_word(text) {
        return Some(word);
    }
    let name = text.rsplit_once("::").map_or(text, |(_, name)| name);
    operator(plain_name(name))
}

/// The name, if it can be that of an operator: lower case, digits and underscores.
fn operator(name: &str) -> Option<&str> {
    let fits = !name.is_empty()
        && name.len() <= NAME
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    fn words(run: &Run) -> Vec<String> {
        let strings = run.profile.strings.iter();
        let counts: Vec<bool> = strings
            .map(|(_, text)| operator_in(text).is_some())
            .collect();
        let paths = RangePaths::of(run, &counts);
        let words = EnclosingOps::of(run, &paths).site(SiteId(0));
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn site_lists_the_operators_around_its_calls() {
        let mut b = ProfileBuilder::new();
        for at in [0, 1000] {
            b.range("Attention: forward", at, at + 100);
            b.range("aten::repeat_interleave", at + 5, at + 90);
            b.range(
                "aten::copy_, seq = 7, sizes = [[4, 8], [4, 8]]",
                at + 10,
                at + 20,
            );
            b.launch(at + 12);
        }
        let run = b.run();
        assert_eq!(words(&run), ["copy", "repeat_interleave"]);
    }

    #[test]
    fn operators_around_some_calls_only_are_left_out() {
        let mut b = ProfileBuilder::new();
        for (at, asked) in [(0, "aten::contiguous"), (1000, "aten::repeat")] {
            b.range(asked, at, at + 100);
            b.range(
                "aten::copy_, seq = 7, sizes = [[4, 8], [4, 8]]",
                at + 10,
                at + 20,
            );
            b.launch(at + 12);
        }
        assert_eq!(words(&b.run()), ["copy"]);
    }

    #[test]
    fn ranges_of_pytorch_itself_have_words() {
        for (text, word) in [
            ("SyncBatchNorm", "sync_batch_norm"),
            (
                "autograd::engine::evaluate_function: SyncBatchNormBackward",
                "sync_batch_norm",
            ),
            ("FSDP::all_gather (layers.0)", "fsdp"),
            ("FullyShardedDataParallel._pre_forward", "fsdp"),
            ("Torch-Compiled Region: 0/0", "torch_compiled"),
            ("torch::autograd::AccumulateGrad", "accumulate_grad"),
            (
                "autograd::engine::evaluate_function: SelectBackward0",
                "select_backward",
            ),
            (
                "autograd::engine::evaluate_function: SliceBackward0",
                "slice_backward",
            ),
        ] {
            assert_eq!(operator_in(text), Some(word), "{text}");
        }
        // It encloses the whole model.
        assert_eq!(operator_in("FullyShardedDataParallel.forward"), None);
    }

    #[test]
    fn operators_are_distinguished_from_other_ranges() {
        for name in ["copy", "scaled_dot_product_attention", "conv2d"] {
            assert_eq!(operator(name), Some(name));
        }
        let long = "a".repeat(NAME + 1);
        for name in [
            "",
            "AddmmBackward0",
            "Optimizer.step#Adam.step",
            "load batch",
            "{'mod'",
            &long,
        ] {
            assert_eq!(operator(name), None, "{name}");
        }
    }
}
