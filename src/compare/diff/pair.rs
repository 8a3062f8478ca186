//! Matches the work of two reports: by everything that identifies it first, then by less and less.
//! Every match records its level.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use indexmap::IndexMap;

use super::model::MatchLevel;
use super::work::{Callee, Work};

/// Most pieces of one group that are paired; more of one operator in one layer are matched by their
/// sum.
const MAX_TRIES: usize = 10_000;
/// Most layer names that are compared to find renamed layers.
const MAX_RENAMES: usize = 100_000;
/// Share of a layer's time whose operators must be in the other layer for it to be the same.
const SAME_LAYER: f64 = 0.5;

/// Work that both reports have.
#[derive(Debug, Clone)]
pub(super) struct Pair<'a> {
    pub level: MatchLevel,
    pub before: Work<'a>,
    pub after: Work<'a>,
}

/// All work of two reports.
#[derive(Debug, Default)]
pub(super) struct Pairs<'a> {
    pub pairs: Vec<Pair<'a>>,
    pub vanished: Vec<Work<'a>>,
    pub appeared: Vec<Work<'a>>,
    /// Factor by which sizes grew, where they did.
    pub factor: Option<f64>,
}

/// Matches the work of two reports.
pub(super) fn pair<'a>(before: Vec<Work<'a>>, after: Vec<Work<'a>>) -> Pairs<'a> {
    let mut m = Matcher {
        before: before.into_iter().map(Some).collect(),
        after: after.into_iter().map(Some).collect(),
        renamed: BTreeMap::new(),
        pairs: Vec::new(),
    };
    m.by(MatchLevel::Exact, |w, layer| {
        let of = (layer, w.what, w.direction, w.recomputed);
        Some((of, w.arguments.exact.clone()))
    });
    m.renamed = m.renames();
    m.by(MatchLevel::LayerRenamed, |w, layer| {
        let of = (layer, w.what, w.direction, w.recomputed);
        Some((of, w.arguments.exact.clone()))
    });
    m.by(MatchLevel::Types, |w, layer| {
        let of = (layer, w.what, w.direction, w.recomputed);
        let arguments = (w.arguments.untyped.clone(), w.arguments.kinds.clone());
        (w.what.is_operator() && !w.clustered).then_some((of, arguments))
    });
    let factor = m.factor();
    if let Some(factor) = factor {
        m.scaled(factor);
    }
    m.by(MatchLevel::OtherLayer, |w, _| {
        Some((w.what, w.direction, w.arguments.exact.clone()))
    });
    // The same number of dimensions and kinds of types, or the same kernel, in other sizes.
    m.by(MatchLevel::OtherShapes, |w, layer| {
        let form = (w.arguments.form.clone(), w.arguments.kinds.clone());
        Some((layer, w.what, w.direction, form))
    });
    m.by(MatchLevel::OtherShapes, |w, layer| {
        let unknown = w.clustered && w.what.is_operator();
        unknown.then_some((layer, w.what, w.direction))
    });
    Pairs {
        pairs: m.pairs,
        vanished: m.before.into_iter().flatten().collect(),
        appeared: m.after.into_iter().flatten().collect(),
        factor: factor.map(|(up, down)| up as f64 / down as f64),
    }
}

struct Matcher<'a> {
    /// `None` once it is matched.
    before: Vec<Option<Work<'a>>>,
    after: Vec<Option<Work<'a>>>,
    /// Maps the name of a layer after to its name before.
    renamed: BTreeMap<&'a str, &'a str>,
    pairs: Vec<Pair<'a>>,
}

/// Unmatched work of both sides, by a key.
type Groups<K> = IndexMap<K, (Vec<usize>, Vec<usize>)>;

/// Layer, operator, direction, and whether it is recomputed.
type Place<'a> = (Option<&'a str>, Callee<'a>, &'a str, bool);

/// Operator, direction and form of arguments, with their time: identifies a layer whatever its name.
type Signature<'a> = BTreeMap<(Callee<'a>, &'a str, String), f64>;

impl<'a> Matcher<'a> {
    fn layer(&self, work: &Work<'a>) -> Option<&'a str> {
        let own = work.pattern?;
        Some(self.renamed.get(own).copied().unwrap_or(own))
    }

    fn groups<K: Hash + Eq>(
        &self,
        key: impl Fn(&Work<'a>, Option<&'a str>) -> Option<K>,
    ) -> Groups<K> {
        let mut groups: Groups<K> = IndexMap::new();
        for (at, work) in self.before.iter().enumerate() {
            if let Some(key) = work.as_ref().and_then(|w| key(w, w.pattern)) {
                groups.entry(key).or_default().0.push(at);
            }
        }
        for (at, work) in self.after.iter().enumerate() {
            if let Some(key) = work.as_ref().and_then(|w| key(w, self.layer(w)))
                && let Some(group) = groups.get_mut(&key)
            {
                group.1.push(at);
            }
        }
        groups.retain(|_, (_, after)| !after.is_empty());
        groups
    }

    /// Matches all work with the same key; work that one side has several times is summed.
    fn by<K: Hash + Eq>(
        &mut self,
        level: MatchLevel,
        key: impl Fn(&Work<'a>, Option<&'a str>) -> Option<K>,
    ) {
        for (before, after) in self.groups(key).into_values() {
            let before = take(&mut self.before, &before);
            let after = take(&mut self.after, &after);
            self.found(level, before, after);
        }
    }

    fn found(&mut self, level: MatchLevel, before: Option<Work<'a>>, after: Option<Work<'a>>) {
        if let (Some(before), Some(after)) = (before, after) {
            let level = match level {
                MatchLevel::OtherShapes => level,
                _ if before.what.is_operator() => level,
                _ => MatchLevel::Kernel,
            };
            self.pairs.push(Pair {
                level,
                before,
                after,
            });
        }
    }

    /// Factor by which most work grew or shrank, as a fraction.
    fn factor(&self) -> Option<(u64, u64)> {
        let mut votes: BTreeMap<(u64, u64), f64> = BTreeMap::new();
        for (before, after) in self.of_one_form().into_values() {
            for (b, a) in tries(&before, &after) {
                let (Some(b), Some(a)) = (get(&self.before, b), get(&self.after, a)) else {
                    continue;
                };
                if let Some(factor) = b.arguments.factor(&a.arguments) {
                    *votes.entry(factor).or_default() += b.time_ns.min(a.time_ns);
                }
            }
        }
        let most = votes
            .into_iter()
            .reduce(|best, next| match next.1 > best.1 {
                true => next,
                false => best,
            })?;
        Some(most.0)
    }

    fn of_one_form(&self) -> Groups<(Place<'a>, String)> {
        self.groups(|w, layer| {
            let of = (layer, w.what, w.direction, w.recomputed);
            (w.what.is_operator() && !w.arguments.sizes.is_empty())
                .then(|| (of, w.arguments.form.clone()))
        })
    }

    /// Matches work whose sizes differ by this factor and in nothing else.
    fn scaled(&mut self, factor: (u64, u64)) {
        for (before, after) in self.of_one_form().into_values() {
            for (b, a) in tries(&before, &after) {
                let (Some(left), Some(right)) = (get(&self.before, b), get(&self.after, a)) else {
                    continue;
                };
                if left.arguments.factor(&right.arguments) == Some(factor) {
                    let before = take(&mut self.before, &[b]);
                    let after = take(&mut self.after, &[a]);
                    self.found(MatchLevel::Sizes, before, after);
                }
            }
        }
    }

    /// Maps layers that only one side has and that do the same: from the name after to the one
    /// before.
    fn renames(&self) -> BTreeMap<&'a str, &'a str> {
        let before = signatures(&self.before);
        let after = signatures(&self.after);
        // A name that both have is the same layer, even where all of its work is matched already.
        let known: BTreeSet<&str> = self.pairs.iter().filter_map(|p| p.before.pattern).collect();
        let gone: Vec<_> = before
            .iter()
            .filter(|(name, _)| !after.contains_key(*name) && !known.contains(*name))
            .collect();
        let new: Vec<_> = after
            .iter()
            .filter(|(name, _)| !before.contains_key(*name) && !known.contains(*name))
            .collect();
        if gone.len().saturating_mul(new.len()) > MAX_RENAMES {
            return BTreeMap::new();
        }
        let mut candidates = Vec::new();
        for (old, old_work) in &gone {
            for (name, work) in &new {
                let alike = common(old_work, work).min(common(work, old_work));
                if alike >= SAME_LAYER {
                    // Similarity in hundredths, so that equally similar layers are chosen by name.
                    let alike = (alike * 100.0).round() as u32;
                    let names = strsim::normalized_levenshtein(old, name);
                    candidates.push((alike, names, **old, **name));
                }
            }
        }
        candidates.sort_by(|a, b| {
            (b.0.cmp(&a.0))
                .then(b.1.total_cmp(&a.1))
                .then_with(|| (a.2, a.3).cmp(&(b.2, b.3)))
        });
        let mut taken = BTreeSet::new();
        let mut renamed = BTreeMap::new();
        for (_, _, old, name) in candidates {
            if !renamed.contains_key(name) && taken.insert(old) {
                renamed.insert(name, old);
            }
        }
        renamed
    }
}

fn signatures<'a>(works: &[Option<Work<'a>>]) -> BTreeMap<&'a str, Signature<'a>> {
    let mut layers: BTreeMap<&str, Signature<'a>> = BTreeMap::new();
    for work in works.iter().flatten() {
        if let Some(layer) = work.pattern {
            let key = (work.what, work.direction, work.arguments.form.clone());
            let time = layers.entry(layer).or_default().entry(key).or_default();
            *time += work.time_ns;
        }
    }
    layers
}

/// Share of the time of `one` whose work is in `other` as well.
fn common(one: &Signature<'_>, other: &Signature<'_>) -> f64 {
    let all: f64 = one.values().sum();
    let both = one.iter().filter(|(key, _)| other.contains_key(*key));
    crate::report::share(both.map(|(_, time)| *time).sum(), all)
}

fn tries(before: &[usize], after: &[usize]) -> Vec<(usize, usize)> {
    if before.len().saturating_mul(after.len()) > MAX_TRIES {
        return Vec::new();
    }
    before
        .iter()
        .flat_map(|b| after.iter().map(move |a| (*b, *a)))
        .collect()
}

fn get<'w, 'a>(works: &'w [Option<Work<'a>>], at: usize) -> Option<&'w Work<'a>> {
    works.get(at)?.as_ref()
}

/// Removes some pieces and returns their sum.
fn take<'a>(works: &mut [Option<Work<'a>>], which: &[usize]) -> Option<Work<'a>> {
    let mut all = which
        .iter()
        .filter_map(|&at| works.get_mut(at).and_then(Option::take));
    let mut sum = all.next()?;
    for more in all {
        sum.add(&more);
    }
    Some(sum)
}
