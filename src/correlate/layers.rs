//! Layer names, from `layer:` ranges, FSDP brackets, module stacks, user ranges and source lines, and
//! the patterns that group numbered layers.

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::model::{Direction, Layer, LayerId, LayerPattern, LayerSource, PatternId};
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos};
use super::range_syntax::{FsdpPhase, MODULE_PARTS};
use crate::profile::{Profile, StrId, Strings, ThreadId};

/// A row of [`ScopeTraitsTable`]. The first one has the traits of no scope at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScopeTraitsId(u32);

/// The traits of a scope: those of its own range and those inherited from the ranges around it. Most
/// scopes share the traits of their parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ScopeTraits {
    pub names: ScopeNames,
    pub flags: ScopeFlags,
    /// The pass (such as forward or backward) in the name of a user's range.
    pub phase: Option<Direction>,
}

/// Yes-or-no facts about a scope and the scopes around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ScopeFlags {
    /// In a forward operator that is recomputed inside an autograd node.
    pub recomputed: bool,
    /// In an autograd node inside another one (reentrant checkpointing).
    pub reentrant: bool,
    /// The innermost user line calls optimizer or clipping code.
    pub update_frame: bool,
    /// In a PyProf marker or a module's call, outside any autograd node.
    pub called: bool,
}

/// The nearest name of each kind around a range, including the range itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ScopeNames {
    pub layer: Option<StrId>,
    pub module: Option<StrId>,
    pub user: Option<StrId>,
    pub line: Option<StrId>,
}

/// All distinct traits, interned: most ranges have the traits of their parent.
#[derive(Debug, Default)]
pub(crate) struct ScopeTraitsTable {
    table: IndexSet<ScopeTraits, FxBuildHasher>,
    /// Module paths by outer path and module name.
    paths: FxHashMap<(Option<StrId>, StrId), StrId>,
}

impl ScopeTraitsTable {
    pub(crate) fn intern(&mut self, traits: ScopeTraits) -> ScopeTraitsId {
        let (row, _) = self.table.insert_full(traits);
        ScopeTraitsId(u32::try_from(row).unwrap_or(u32::MAX))
    }

    pub(crate) fn get(&self, id: ScopeTraitsId) -> ScopeTraits {
        let traits = self.table.get_index(id.0 as usize);
        traits.copied().unwrap_or_default()
    }

    /// The path of a module called inside the module path `outer`.
    pub(crate) fn module_path(
        &mut self,
        outer: Option<StrId>,
        name: StrId,
        labels: &mut Strings,
    ) -> StrId {
        *self.paths.entry((outer, name)).or_insert_with(|| {
            let Some(outer) = outer.map(|o| labels.get(o)) else {
                return name;
            };
            let parts: Vec<&str> = outer.split('.').chain([labels.get(name)]).collect();
            let from = parts.len().saturating_sub(MODULE_PARTS);
            let path = parts.get(from..).unwrap_or_default().join(".");
            labels.intern(&path)
        })
    }
}

/// The innermost open FSDP bracket on each thread over time.
#[derive(Debug, Default)]
pub(crate) struct FsdpBrackets {
    /// Per thread: from this time on, this bracket is the innermost open one; in time order.
    threads: Vec<Vec<(i64, Option<FsdpBracket>)>>,
}

/// An open bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FsdpBracket {
    pub phase: FsdpPhase,
    /// `None` is the root module.
    pub module: Option<StrId>,
}

#[derive(Debug, Clone, Copy)]
struct BracketEdge {
    at: i64,
    opens: bool,
    bracket: FsdpBracket,
}

impl FsdpBrackets {
    /// Pairs `pre_...` and `post_...` ranges thread by thread.
    pub(crate) fn read(profile: &Profile, texts: &RangeInfos) -> FsdpBrackets {
        let mut edges: Vec<Vec<BracketEdge>> = vec![Vec::new(); profile.threads.len()];
        let brackets = |meaning: &RangeInfo| matches!(meaning.what, RangeClass::FsdpHook { .. });
        for (_, range, meaning) in texts.parts(profile, brackets) {
            let RangeClass::FsdpHook {
                phase,
                opens,
                module,
            } = meaning.what
            else {
                continue;
            };
            if let Some(thread) = edges.get_mut(range.thread.idx()) {
                thread.push(BracketEdge {
                    // A bracket covers the work of both its hooks.
                    at: if opens {
                        range.span.start
                    } else {
                        range.span.end
                    },
                    opens,
                    bracket: FsdpBracket { phase, module },
                });
            }
        }
        FsdpBrackets {
            threads: edges.into_iter().map(innermost_over_time).collect(),
        }
    }

    /// The innermost bracket open on a thread at a time.
    pub(crate) fn at(&self, thread: ThreadId, time: i64) -> Option<FsdpBracket> {
        let changes = self.threads.get(thread.idx())?;
        let after = changes.partition_point(|(at, _)| *at <= time);
        changes.get(after.checked_sub(1)?)?.1
    }
}

fn innermost_over_time(mut edges: Vec<BracketEdge>) -> Vec<(i64, Option<FsdpBracket>)> {
    edges.sort_by_key(|e| e.at);
    let mut open: Vec<FsdpBracket> = open_before_the_capture(&edges);
    let mut changes = Vec::new();
    if let Some(innermost) = open.last() {
        changes.push((i64::MIN, Some(*innermost)));
    }
    let mut opened: FxHashMap<FsdpBracket, usize> = FxHashMap::default();
    for bracket in &open {
        *opened.entry(*bracket).or_default() += 1;
    }
    for edge in edges {
        if edge.opens {
            *opened.entry(edge.bracket).or_default() += 1;
            open.push(edge.bracket);
        } else if opened.get(&edge.bracket).is_some_and(|n| *n > 0) {
            // Brackets opened later and never closed end with this one.
            while let Some(closed) = open.pop() {
                if let Some(count) = opened.get_mut(&closed) {
                    *count = count.saturating_sub(1);
                }
                if closed == edge.bracket {
                    break;
                }
            }
        }
        changes.push((edge.at, open.last().copied()));
    }
    changes
}

/// Brackets opened before the first recorded event: only their closing is recorded. The one closed
/// first is the innermost.
fn open_before_the_capture(edges: &[BracketEdge]) -> Vec<FsdpBracket> {
    let mut balance: FxHashMap<FsdpBracket, i64> = FxHashMap::default();
    let mut unopened = Vec::new();
    for edge in edges {
        let count = balance.entry(edge.bracket).or_default();
        if edge.opens {
            *count += 1;
        } else if *count > 0 {
            *count -= 1;
        } else {
            unopened.push((edge.bracket, edge.at));
        }
    }
    // After the first opening, an unmatched closing usually means that its opening was lost, not that
    // it preceded the capture. Only the closings before the first opening are certain.
    let first_opening = edges.iter().find(|e| e.opens).map_or(i64::MAX, |e| e.at);
    let mut early: Vec<FsdpBracket> = unopened
        .into_iter()
        .filter(|(_, at)| *at <= first_opening)
        .map(|(bracket, _)| bracket)
        .collect();
    early.reverse();
    early
}

/// Layers and patterns, interned.
#[derive(Debug, Default)]
pub(crate) struct LayerTable {
    pub layers: Vec<Layer>,
    pub patterns: Vec<LayerPattern>,
    by_label: FxHashMap<(LayerSource, StrId), LayerId>,
    by_pattern: FxHashMap<String, PatternId>,
}

impl LayerTable {
    pub(crate) fn intern(
        &mut self,
        source: LayerSource,
        label: StrId,
        labels: &Strings,
    ) -> LayerId {
        if let Some(id) = self.by_label.get(&(source, label)) {
            return *id;
        }
        let name = labels.get(label).to_owned();
        let pattern = self.pattern(pattern_of(&name, source));
        let id = LayerId::new(self.layers.len());
        self.layers.push(Layer {
            name,
            source,
            pattern,
        });
        self.by_label.insert((source, label), id);
        id
    }

    fn pattern(&mut self, name: String) -> PatternId {
        let next = PatternId::new(self.patterns.len());
        let id = *self.by_pattern.entry(name.clone()).or_insert(next);
        if id == next {
            self.patterns.push(LayerPattern { name, layers: 0 });
        }
        if let Some(pattern) = self.patterns.get_mut(id.idx()) {
            pattern.layers += 1;
        }
        id
    }
}

/// The name with instance numbers replaced by `*`: parts between `.`, `/`, brackets, blanks or `#`
/// that consist of digits, and the instance suffix of module stacks (`Linear_15`). The number of a
/// source line is not an instance number.
fn pattern_of(name: &str, source: LayerSource) -> String {
    if source == LayerSource::SourceLine {
        return name.to_owned();
    }
    let mut pattern = String::with_capacity(name.len());
    for piece in name.split_inclusive(['.', '/', '[', ']', ' ', '#']) {
        let part = piece.trim_end_matches(['.', '/', '[', ']', ' ', '#']);
        let separator = piece.get(part.len()..).unwrap_or_default();
        let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        match part.rsplit_once('_') {
            _ if number(part) => pattern.push('*'),
            Some((class, instance)) if source == LayerSource::Module && number(instance) => {
                pattern.push_str(class);
                pattern.push_str("_*");
            }
            _ => pattern.push_str(part),
        }
        pattern.push_str(separator);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_numbers_are_replaced_in_patterns() {
        for (name, source, pattern) in [
            ("blocks.7.attn", LayerSource::Fsdp, "blocks.*.attn"),
            (
                "model/layers/12/mlp",
                LayerSource::UserRange,
                "model/layers/*/mlp",
            ),
            ("blocks[3]", LayerSource::UserRange, "blocks[*]"),
            ("layer 3", LayerSource::UserRange, "layer *"),
            ("conv1x1", LayerSource::LayerRange, "conv1x1"),
            ("resnet_50", LayerSource::LayerRange, "resnet_50"),
            (
                "BertLayer_3.Linear_15",
                LayerSource::Module,
                "BertLayer_*.Linear_*",
            ),
            (
                "model/net.py:106",
                LayerSource::SourceLine,
                "model/net.py:106",
            ),
        ] {
            assert_eq!(pattern_of(name, source), pattern);
        }
    }

    #[test]
    fn a_pattern_counts_its_layers_once() {
        let mut labels = Strings::default();
        let mut table = LayerTable::default();
        for name in ["b.0", "b.1", "b.0", "c"] {
            let label = labels.intern(name);
            table.intern(LayerSource::Fsdp, label, &labels);
        }
        let counts: Vec<_> = table
            .patterns
            .iter()
            .map(|p| (&*p.name, p.layers))
            .collect();
        assert_eq!(counts, [("b.*", 2), ("c", 1)]);
    }

    fn edge(at: i64, opens: bool, module: u32) -> BracketEdge {
        BracketEdge {
            at,
            opens,
            bracket: FsdpBracket {
                phase: FsdpPhase::Forward,
                module: Some(StrId(module)),
            },
        }
    }

    fn modules(edges: Vec<BracketEdge>) -> Vec<(i64, Option<u32>)> {
        innermost_over_time(edges)
            .into_iter()
            .map(|(at, open)| (at, open.and_then(|o| o.module).map(StrId::row)))
            .collect()
    }

    #[test]
    fn nested_brackets_return_the_innermost() {
        let edges = vec![
            edge(1, true, 1),
            edge(2, true, 2),
            edge(3, false, 2),
            edge(4, false, 1),
        ];
        assert_eq!(
            modules(edges),
            [(1, Some(1)), (2, Some(2)), (3, Some(1)), (4, None)]
        );
    }

    #[test]
    fn brackets_opened_before_the_capture_start_with_it() {
        let edges = vec![edge(5, false, 2), edge(6, true, 3), edge(7, false, 3)];
        assert_eq!(
            modules(edges),
            [(i64::MIN, Some(2)), (5, None), (6, Some(3)), (7, None)]
        );
    }

    #[test]
    fn brackets_without_closing_end_with_the_enclosing_bracket() {
        let edges = vec![
            edge(1, true, 1),
            edge(2, true, 2),
            edge(4, false, 1),
            edge(5, false, 9),
        ];
        assert_eq!(
            modules(edges),
            [(1, Some(1)), (2, Some(2)), (4, None), (5, None)]
        );
    }
}
