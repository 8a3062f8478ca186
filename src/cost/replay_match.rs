//! Matches the kernels of graph replays to those of a recording of the same model without graphs.
//!
//! A replay is one call of the host, so its kernels have no operators. They run in the order in which the
//! model launches them without graphs, though, so the two sequences of kernels are aligned. Another
//! batch brings other tiles, and prefill other attention kernels than decoding, so products and attention
//! match by their family. The layer is that of the partner; the operator as well, if it launches such a
//! kernel.

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::kernel_name::{DecodedName, Family, decode};
use super::model::Costed;
use super::ops;
use crate::correlate::{Direction, OpCallId, ReplayNames, ReplayedWork, StepId, WithoutOperator};
use crate::profile::{DeviceId, KernelId, StrId};

/// Share of the kernels of a sequence that must match.
const ENOUGH: f64 = 0.8;

/// Most pairs of kernels that are compared for one sequence.
const MOST_PAIRS: usize = 64 << 20;

/// Fewest kernels from which a sequence tells a model.
const FEWEST: usize = 8;

/// What a kernel's name tells for matching.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    base: String,
    family: Family,
    helper: bool,
}

impl Kind {
    fn of(name: &DecodedName) -> Kind {
        Kind {
            base: match name.family {
                // The names of products hold tiles.
                family if family.is_math() => family.name().to_owned(),
                // One kernel runs many operators, which the label names.
                _ => format!("{} {}", name.base, name.label),
            },
            family: name.family,
            helper: name.helper,
        }
    }
}

/// Whether the operator that launched the kernel of one name launches that of another name too, as far as
/// names tell: the same kernel with other types or tiles, any kernel for a product, and one of the same
/// library for attention (`flash_fwd_kernel` and `flash_fwd_splitkv_kernel`).
fn of_one_operator(a: &DecodedName, b: &DecodedName) -> bool {
    let library = |name: &DecodedName| -> Vec<String> {
        let words = name.base.split('_').filter(|word| !word.is_empty());
        words.take(2).map(str::to_lowercase).collect()
    };
    match a.family {
        family if family != b.family => false,
        Family::Attention => a.label == b.label || library(a) == library(b),
        family if family.is_math() => true,
        _ => a.base == b.base && a.label == b.label,
    }
}

/// The kinds of all kernels of both recordings, each once.
#[derive(Debug, Default)]
struct Kinds(IndexSet<Kind, FxBuildHasher>);

impl Kinds {
    /// The number of a kernel's kind.
    fn number(&mut self, name: &str) -> u32 {
        let (row, _) = self.0.insert_full(Kind::of(&decode(name)));
        u32::try_from(row).unwrap_or(u32::MAX)
    }

    fn get(&self, number: u32) -> Option<&Kind> {
        self.0.get_index(number as usize)
    }

    /// How well kernels of two kinds match; 0 if they do not.
    fn likeness(&self, a: u32, b: u32) -> u32 {
        if a == b {
            return 4;
        }
        let kinds = self.get(a).zip(self.get(b));
        u32::from(kinds.is_some_and(|(a, b)| {
            a.family != Family::Unknown && (a.family, a.helper) == (b.family, b.helper)
        }))
    }
}

/// A kernel in a sequence.
#[derive(Debug, Clone, Copy)]
struct Item {
    kernel: KernelId,
    kind: u32,
}

/// A kernel with its start.
type Started = (i64, Item);

/// Names the kernels of graph replays in `replayed` after those of `eager`.
///
/// # Errors
/// Why nothing is named, as a sentence that follows the name of the file.
pub(crate) fn match_replays(
    replayed: &Costed,
    eager: &Costed,
    file: &str,
) -> Result<ReplayNames, String> {
    let is_replayed = |kernel: KernelId| {
        let link = replayed.run.link(kernel);
        link.is_some_and(|link| link.missing == Some(WithoutOperator::GraphReplay))
    };
    let mut kinds = Kinds::default();
    let targets: Vec<Vec<Item>> = sequences(replayed, &mut kinds)
        .into_iter()
        .filter(|items| items.iter().any(|item| is_replayed(item.kernel)))
        .collect();
    if targets.is_empty() {
        return Err(
            "not used: the profile has no kernels of graph replays without an operator".to_owned(),
        );
    }
    let model = sequences(eager, &mut kinds)
        .into_iter()
        .max_by_key(Vec::len)
        .filter(|items| items.len() >= FEWEST);
    let Some(model) = model else {
        return Err("not used: it has no sequence of kernels with operators".to_owned());
    };
    let works = Works::of(eager, &model);
    let likeness = |a, b| kinds.likeness(a, b);
    let mut names = ReplayNames {
        file: file.to_owned(),
        work: works.works,
        ..ReplayNames::default()
    };
    let name = |costed: &Costed, item: &Item| {
        let kernel = costed.run.profile.kernel(item.kernel);
        kernel.map(|kernel| kernel.name)
    };
    let mut same: FxHashMap<(StrId, StrId), bool> = FxHashMap::default();
    let mut same_op = |item: &Item, partner: &Item| {
        let names = name(replayed, item).zip(name(eager, partner));
        names.is_some_and(|(a, b)| {
            *same.entry((a, b)).or_insert_with(|| {
                let text = decode(replayed.run.profile.text(a));
                of_one_operator(&text, &decode(eager.run.profile.text(b)))
            })
        })
    };
    let mut aligned: FxHashMap<Vec<u32>, Vec<Option<usize>>> = FxHashMap::default();
    let mut best = 0.0_f64;
    for items in targets {
        names.replayed += items.iter().filter(|i| is_replayed(i.kernel)).count() as u64;
        let key: Vec<u32> = items.iter().map(|item| item.kind).collect();
        let partners = aligned
            .entry(key)
            .or_insert_with_key(|key| align(key, &model, &likeness));
        let share = partners.iter().flatten().count() as f64 / items.len().max(1) as f64;
        best = best.max(share);
        if share < ENOUGH || items.len() < FEWEST {
            continue;
        }
        let mut before: Option<u32> = None;
        for (item, partner) in items.iter().zip(partners) {
            let helper = kinds.get(item.kind).is_some_and(|kind| kind.helper);
            let work = match partner {
                Some(at) => {
                    let row = works.of_kernel.get(*at).copied().flatten();
                    match model.get(*at) {
                        Some(partner) if !same_op(item, partner) => {
                            row.and_then(|row| works.without_op.get(row as usize).copied())
                        }
                        _ => row,
                    }
                }
                // A second kernel of the operator, which this batch needs and the other does not.
                None if helper => {
                    before.and_then(|row| works.without_bytes.get(row as usize).copied())
                }
                None => None,
            };
            before = work;
            if let Some(row) = work.filter(|_| is_replayed(item.kernel)) {
                names.of_kernel.insert(item.kernel, row);
            }
        }
    }
    if names.of_kernel.is_empty() {
        return Err(format!(
            "not used: only {:.0} % of the kernels run in the same order in both, so they are no recordings of one model",
            100.0 * best
        ));
    }
    Ok(names)
}

/// The analyzed kernels of each step (of the window, without steps) and device in time order.
fn sequences(costed: &Costed, kinds: &mut Kinds) -> Vec<Vec<Item>> {
    let run = &costed.run;
    let mut numbers: FxHashMap<StrId, u32> = FxHashMap::default();
    let mut parts: FxHashMap<(DeviceId, Option<u32>), Vec<Started>> = FxHashMap::default();
    let kernels = (0..)
        .map(KernelId)
        .zip(&run.profile.kernels)
        .zip(&run.links);
    for ((id, kernel), link) in kernels.filter(|(_, link)| link.site.is_some()) {
        let number = numbers
            .entry(kernel.name)
            .or_insert_with(|| kinds.number(run.profile.text(kernel.name)));
        let item = Item {
            kernel: id,
            kind: *number,
        };
        let step = link.step.map(StepId::row);
        let part = parts.entry((kernel.device, step)).or_default();
        part.push((kernel.span.start, item));
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_unstable_by_key(|(key, _)| *key);
    let in_time_order = |mut items: Vec<Started>| {
        items.sort_by_key(|(start, item)| (*start, item.kernel));
        items.into_iter().map(|(_, item)| item).collect()
    };
    parts
        .into_iter()
        .map(|(_, items)| in_time_order(items))
        .collect()
}

/// The partner of each kernel of `items` in `model`, by the alignment that keeps the order and matches
/// best.
fn align(items: &[u32], model: &[Item], likeness: &dyn Fn(u32, u32) -> u32) -> Vec<Option<usize>> {
    /// The last step of the best alignment of two beginnings.
    const MATCH: u8 = 0;
    const SKIP_MODEL: u8 = 1;
    const SKIP_ITEM: u8 = 2;
    let (rows, columns) = (items.len(), model.len());
    let mut partners = vec![None; rows];
    if rows.saturating_mul(columns) > MOST_PAIRS {
        return partners;
    }
    let mut steps = vec![SKIP_MODEL; rows * columns];
    let mut above = vec![0_u32; columns + 1];
    for (item, steps) in items.iter().zip(steps.chunks_mut(columns.max(1))) {
        let mut left = 0_u32;
        let mut diagonal = 0_u32;
        for ((partner, step), best) in model.iter().zip(steps).zip(above.iter_mut().skip(1)) {
            let alike = likeness(*item, partner.kind);
            let matched = diagonal.saturating_add(alike);
            diagonal = *best;
            (*best, *step) = if alike > 0 && matched >= left && matched >= *best {
                (matched, MATCH)
            } else if *best >= left {
                (*best, SKIP_ITEM)
            } else {
                (left, SKIP_MODEL)
            };
            left = *best;
        }
    }
    let (mut row, mut column) = (rows, columns);
    while row > 0 && column > 0 {
        match steps.get((row - 1) * columns + column - 1) {
            Some(&MATCH) => {
                (row, column) = (row - 1, column - 1);
                if let Some(partner) = partners.get_mut(row) {
                    *partner = Some(column);
                }
            }
            Some(&SKIP_ITEM) => row -= 1,
            _ => column -= 1,
        }
    }
    partners
}

/// The work of the kernels of the other recording.
#[derive(Debug, Default)]
struct Works {
    works: Vec<ReplayedWork>,
    /// Per kernel of the sequence: its row of `works`.
    of_kernel: Vec<Option<u32>>,
    /// Per row of `works`: the row of the same work without bytes, for further kernels of an operator.
    without_bytes: Vec<u32>,
    /// Per row of `works`: the row of the same work without its operator, for kernels of another one.
    without_op: Vec<u32>,
}

impl Works {
    fn of(eager: &Costed, model: &[Item]) -> Works {
        let run = &eager.run;
        let mut all = Works::default();
        let mut rows: FxHashMap<ReplayedWork, u32> = FxHashMap::default();
        // The bytes of an operator belong to its first kernel that computes.
        let mut counted: Vec<OpCallId> = Vec::new();
        for item in model {
            let link = run.link(item.kernel);
            let found = link.and_then(|link| {
                let id = link.op?;
                let call = run.op_call(id)?;
                let op = run.op_names.get(call.op.idx())?;
                let args = call.args.and_then(|args| run.arguments(args));
                let name = run.profile.kernel(item.kernel)?.name;
                let decoded = decode(run.profile.text(name));
                let computes = decoded.family.is_math() && !decoded.helper;
                let first =
                    computes && call.direction != Direction::Bprop && counted.last() != Some(&id);
                if first {
                    counted.push(id);
                }
                let args = args.filter(|_| first);
                let layer = call.layer.and_then(|layer| run.layer(layer));
                Some(ReplayedWork {
                    op: Some(op.clone()),
                    layer: layer.map(|layer| (layer.source, layer.name.clone())),
                    direction: call.direction,
                    weight_bytes: args.and_then(|args| ops::weight_bytes(op, args)),
                    bytes_per_key: args.and_then(|args| ops::bytes_per_key(op, args)),
                })
            });
            let row = found.map(|work| {
                let plain = ReplayedWork {
                    weight_bytes: None,
                    bytes_per_key: None,
                    ..work.clone()
                };
                let nameless = ReplayedWork {
                    op: None,
                    ..work.clone()
                };
                let nameless_plain = ReplayedWork {
                    op: None,
                    ..plain.clone()
                };
                let nameless_plain = all.row(nameless_plain, &mut rows, None, None);
                let nameless_row = all.row(nameless, &mut rows, Some(nameless_plain), None);
                let plain_row = all.row(plain, &mut rows, None, Some(nameless_plain));
                all.row(work, &mut rows, Some(plain_row), Some(nameless_row))
            });
            all.of_kernel.push(row);
        }
        all
    }

    fn row(
        &mut self,
        work: ReplayedWork,
        rows: &mut FxHashMap<ReplayedWork, u32>,
        plain: Option<u32>,
        nameless: Option<u32>,
    ) -> u32 {
        if let Some(row) = rows.get(&work) {
            return *row;
        }
        let row = u32::try_from(self.works.len()).unwrap_or(u32::MAX);
        rows.insert(work.clone(), row);
        self.works.push(work);
        self.without_bytes.push(plain.unwrap_or(row));
        self.without_op.push(nameless.unwrap_or(row));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(kinds: &[u32]) -> Vec<Item> {
        let items = kinds.iter().enumerate();
        items
            .map(|(at, kind)| Item {
                kernel: KernelId::new(at),
                kind: *kind,
            })
            .collect()
    }

    fn partners(target: &[u32], model: &[u32]) -> Vec<Option<usize>> {
        let equal = |a: u32, b: u32| if a == b { 4 } else { 0 };
        align(target, &items(model), &equal)
    }

    #[test]
    fn the_same_sequence_matches_in_order() {
        assert_eq!(
            partners(&[1, 2, 1, 2], &[1, 2, 1, 2]),
            [Some(0), Some(1), Some(2), Some(3)]
        );
    }

    #[test]
    fn kernels_of_one_side_only_are_left_out() {
        let model = [9, 1, 2, 3, 1, 2, 3];
        assert_eq!(
            partners(&[1, 2, 7, 3, 1, 3], &model),
            [Some(1), Some(2), None, Some(3), Some(4), Some(6)]
        );
        assert_eq!(partners(&[5, 6], &model), [None, None]);
        assert_eq!(partners(&[], &model), []);
    }

    #[test]
    fn operators_are_those_of_the_same_kernel_or_library() {
        let of_one = |a: &str, b: &str| of_one_operator(&decode(a), &decode(b));
        assert!(of_one(
            "Cijk_Alik_Bljk_BBS_BH_MT128x256x32_MI16x16x1_SN",
            "Cijk_Alik_Bljk_BBS_BH_MT16x32x512_MI16x16x1_SN"
        ));
        assert!(of_one("flash_fwd_kernel", "flash_fwd_splitkv_kernel"));
        assert!(of_one(
            "paged_attention_v1_kernel",
            "paged_attention_v2_kernel"
        ));
        assert!(!of_one(
            "paged_attention_ll4mi_QKV_mfma16_kernel",
            "flash_fwd_kernel"
        ));
        assert!(!of_one("act_and_mul_kernel", "rotary_embedding_kernel"));
        assert!(of_one("act_and_mul_kernel", "act_and_mul_kernel"));
    }

    #[test]
    fn products_match_by_family_and_others_by_name() {
        let mut kinds = Kinds::default();
        let [prefill, decode, rope, gated] = [
            "Cijk_Alik_Bljk_BBS_BH_MT128x256x32_MI16x16x1_SN",
            "Cijk_Alik_Bljk_BBS_BH_MT16x32x512_MI16x16x1_SN",
            "rotary_embedding_kernel",
            "act_and_mul_kernel",
        ]
        .map(|name| kinds.number(name));
        let likeness = |a, b| kinds.likeness(a, b);
        assert_eq!(likeness(prefill, decode), 4);
        assert_eq!(likeness(rope, prefill), 0);
        assert_eq!((likeness(rope, gated), likeness(rope, rope)), (1, 4));
    }
}
