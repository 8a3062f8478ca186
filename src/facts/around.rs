//! The operators around a site's work: an `aten::copy_` may be a `contiguous`, a `repeat`, or a part
//! of `scaled_dot_product_attention`, and only the ranges around it tell which.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::chain::plain_name;
use crate::correlate::{Run, ScopeId, SiteId};
use crate::profile::StrId;

/// Names per site, worked out when a rule first asks.
#[derive(Debug, Default)]
pub(super) struct Around(OnceLock<Vec<Words>>);

/// Names of operators, sorted.
pub(super) type Words = Arc<[Arc<str>]>;

/// Operators looked at around a launch: they call each other a few levels deep.
const DEPTH: usize = 24;
/// Share of a site's time that must lie inside an operator for the site to be called inside it: the
/// same copy may be asked for in several ways.
const MOST: f64 = 0.9;
/// Longest name of an operator, in bytes.
const NAME: usize = 64;

impl Around {
    /// The operator of a site and those around nine tenths of its time, plainly spelled: `copy`,
    /// `clone`, `contiguous`.
    pub(super) fn of(&self, run: &Run, site: SiteId) -> Words {
        let all = self.0.get_or_init(|| compute(run));
        all.get(site.idx()).cloned().unwrap_or_default()
    }

    /// The names that several sites have in common.
    pub(super) fn of_all(&self, run: &Run, sites: impl Iterator<Item = SiteId>) -> Words {
        let mut common: Option<Vec<Arc<str>>> = None;
        for site in sites {
            let words = self.of(run, site);
            match &mut common {
                None => common = Some(words.to_vec()),
                Some(common) => common.retain(|w| words.contains(w)),
            }
        }
        common.unwrap_or_default().into()
    }
}

fn compute(run: &Run) -> Vec<Words> {
    let mut paths = Paths::of(run);
    let mut times: FxHashMap<(SiteId, NodeId), i64> = FxHashMap::default();
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let (Some(site), Some(scope)) = (link.site, link.scope) else {
            continue;
        };
        if let Some(node) = paths.node(scope) {
            *times.entry((site, node)).or_default() += kernel.span.ns();
        }
    }
    let mut by_word: FxHashMap<(SiteId, u32), i64> = FxHashMap::default();
    for ((site, node), ns) in times {
        for word in paths.words_of(node) {
            *by_word.entry((site, word)).or_default() += ns;
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
        let whole = run.sites.get(site.idx()).map_or(0, |s| s.time_ns);
        if let Some(words) = all.get_mut(site.idx())
            && ns as f64 >= MOST * whole as f64
            && let Some(word) = paths.words.get(word as usize)
        {
            words.push(Arc::clone(word));
        }
    }
    all.into_iter()
        .map(|mut words| {
            words.sort_unstable();
            words.dedup();
            words.into()
        })
        .collect()
}

/// A row of [`Paths::nodes`].
type NodeId = u32;

/// The operators around each scope as paths in a tree of names: calls in the same place share one
/// node, however many they are.
struct Paths<'a> {
    run: &'a Run,
    words: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, u32>,
    /// Each range text is read once.
    of_text: FxHashMap<StrId, Option<u32>>,
    /// The node around this one, and the innermost name.
    nodes: Vec<(Option<NodeId>, u32)>,
    of_step: FxHashMap<(Option<NodeId>, u32), NodeId>,
    /// Per scope, once asked for: its node, if any operator is around.
    of_scope: Vec<Option<Option<NodeId>>>,
}

impl<'a> Paths<'a> {
    fn of(run: &'a Run) -> Paths<'a> {
        Paths {
            run,
            words: Vec::new(),
            ids: FxHashMap::default(),
            of_text: FxHashMap::default(),
            nodes: Vec::new(),
            of_step: FxHashMap::default(),
            of_scope: vec![None; run.scopes.len()],
        }
    }

    fn node(&mut self, scope: ScopeId) -> Option<NodeId> {
        // Up to the first scope that is known, and down again.
        let mut path = Vec::new();
        let mut known = None;
        let mut at = Some(scope);
        while let Some(here) = at {
            match self.of_scope.get(here.idx()) {
                Some(Some(node)) => {
                    known = *node;
                    break;
                }
                Some(None) if path.len() < self.run.scopes.len() => path.push(here),
                _ => break,
            }
            at = self.run.scopes.get(here.idx()).and_then(|s| s.parent);
        }
        for here in path.into_iter().rev() {
            if let Some(word) = self.word(here) {
                known = Some(self.step(known, word));
            }
            if let Some(slot) = self.of_scope.get_mut(here.idx()) {
                *slot = Some(known);
            }
        }
        known
    }

    fn step(&mut self, around: Option<NodeId>, word: u32) -> NodeId {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        *self.of_step.entry((around, word)).or_insert_with(|| {
            self.nodes.push((around, word));
            next
        })
    }

    /// The names on the way out, each once.
    fn words_of(&self, node: NodeId) -> Vec<u32> {
        let mut words = Vec::new();
        let mut at = Some(node);
        for _ in 0..DEPTH {
            let Some(&(around, word)) = at.and_then(|n| self.nodes.get(n as usize)) else {
                break;
            };
            if !words.contains(&word) {
                words.push(word);
            }
            at = around;
        }
        words
    }

    fn word(&mut self, scope: ScopeId) -> Option<u32> {
        let range = self.run.scopes.get(scope.idx())?.range;
        let text = self.run.profile.ranges.get(range.idx())?.text;
        if let Some(known) = self.of_text.get(&text) {
            return *known;
        }
        let name = self.run.profile.text(text);
        let name = name.rsplit_once("::").map_or(name, |(_, name)| name);
        let word = operator(plain_name(name)).map(|name| self.id(name));
        self.of_text.insert(text, word);
        word
    }

    fn id(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
        let word: Arc<str> = name.into();
        self.words.push(Arc::clone(&word));
        self.ids.insert(word, id);
        id
    }
}

/// A name that can be an operator's: lower case, digits and underscores.
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
    use crate::correlate::testing::Builder;

    fn words(run: &Run) -> Vec<String> {
        let words = Around::default().of(run, SiteId(0));
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_site_knows_who_asked_for_it() {
        let mut b = Builder::new();
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
    fn what_only_some_calls_stand_in_is_not_said() {
        let mut b = Builder::new();
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
    fn operators_are_told_from_other_ranges() {
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
