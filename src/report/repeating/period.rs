//! Finds the sequence that a list of names repeats, in time linear in the length of the list.

use rustc_hash::{FxHashMap, FxHashSet};

/// Fewest repetitions from which a sequence counts as repeated.
pub(super) const FEWEST: usize = 3;
/// Smallest part of a list that its repetitions must cover.
pub(super) const COVERED: f64 = 0.6;
/// Longest sequence looked for.
const LONGEST: usize = 2048;
/// Lengths that are tried.
const TRIED: usize = 16;
/// Earlier occurrences of a name whose distances are counted: a sequence may have a name several times.
const EARLIER: usize = 4;
/// Part of the best coverage that a shorter sequence needs: steps repeat too, and cover the most.
const NEARLY: f64 = 0.8;
/// Comparisons per entry of the list before the search for repetitions ends.
const EFFORT: usize = 32;

/// One repetition in a list: the entries of the list that are those of the sequence, in order.
pub(super) type Repetition = Vec<usize>;

/// The sequence that `list` repeats, from where it first does; `None` if none is repeated [`FEWEST`]
/// times and covers [`COVERED`] of the list.
pub(super) fn find(list: &[u32]) -> Option<Vec<u32>> {
    let lengths = lengths(list);
    let found = lengths.iter().filter_map(|length| Runs::of(list, *length));
    let found: Vec<Runs> = found.collect();
    let best = found.iter().map(|runs| runs.covered).max()?;
    let mut enough = found.iter().filter(|runs| {
        runs.covered as f64 >= (NEARLY * best as f64).max(COVERED * list.len() as f64)
    });
    let first = enough.next()?;
    let shortest = enough.fold(first, |a, b| if b.length < a.length { b } else { a });
    let at = |start: usize| list.get(start..start + shortest.length);
    let longest = at(shortest.longest)?;
    // Layers begin where the first of them does.
    let sequence = at(shortest.first).filter(|first| is_rotated(first, longest));
    let sequence = sequence.unwrap_or(longest);
    let several = sequence.iter().any(|name| Some(name) != sequence.first());
    (several && is_repeated(list, sequence)).then(|| sequence.to_vec())
}

/// Whether two sequences are the same, but for where they begin.
fn is_rotated(a: &[u32], b: &[u32]) -> bool {
    let begins = |start: usize| b.iter().cycle().skip(start).zip(a).all(|(b, a)| a == b);
    a.len() == b.len() && (0..b.len()).any(begins)
}

fn is_repeated(list: &[u32], sequence: &[u32]) -> bool {
    let found = repetitions(list, sequence);
    let covered = found.len().saturating_mul(sequence.len());
    found.len() >= FEWEST && covered as f64 >= COVERED * list.len() as f64
}

/// Distances at which names occur again, the most frequent first.
fn lengths(list: &[u32]) -> Vec<usize> {
    let mut seen: FxHashMap<u32, [Option<usize>; EARLIER]> = FxHashMap::default();
    let mut counts: FxHashMap<usize, usize> = FxHashMap::default();
    for (at, name) in list.iter().enumerate() {
        let earlier = seen.entry(*name).or_default();
        for before in earlier.iter().flatten() {
            if at - before <= LONGEST {
                *counts.entry(at - before).or_default() += 1;
            }
        }
        earlier.rotate_right(1);
        if let Some(newest) = earlier.first_mut() {
            *newest = Some(at);
        }
    }
    let mut lengths: Vec<(usize, usize)> = counts.into_iter().collect();
    lengths.sort_unstable_by_key(|(length, count)| (std::cmp::Reverse(*count), *length));
    let lengths = lengths.into_iter().map(|(length, _)| length);
    lengths.filter(|length| *length > 1).take(TRIED).collect()
}

/// Parts of a list in which each name is the one `length` entries before.
#[derive(Debug)]
struct Runs {
    length: usize,
    /// Entries in parts of at least [`FEWEST`] repetitions.
    covered: usize,
    /// Where the first of these parts begins.
    first: usize,
    /// Where the longest begins.
    longest: usize,
}

impl Runs {
    fn of(list: &[u32], length: usize) -> Option<Runs> {
        let (mut covered, mut most) = (0, 0);
        let (mut first, mut longest) = (None, None);
        let mut end_of_run = |run: usize, end: usize| {
            let entries = run + length;
            if run == 0 || entries < FEWEST * length {
                return;
            }
            covered += entries;
            let start = end.checked_sub(entries);
            first = first.or(start);
            if entries > most {
                most = entries;
                longest = start;
            }
        };
        let mut run = 0;
        let again = list.get(length..)?.iter().zip(list).zip(length..);
        for ((name, before), at) in again {
            if name == before {
                run += 1;
            } else {
                end_of_run(run, at);
                run = 0;
            }
        }
        end_of_run(run, list.len());
        Some(Runs {
            length,
            covered: covered.min(list.len()),
            first: first?,
            longest: longest?,
        })
    }
}

/// The repetitions of a sequence in a list, one behind the other. A repetition may have few entries
/// between those of the sequence.
pub(super) fn repetitions(list: &[u32], sequence: &[u32]) -> Vec<Repetition> {
    let between = 1 + sequence.len() / 16;
    let names: FxHashSet<u32> = sequence.iter().copied().collect();
    let mut effort = list.len().saturating_mul(EFFORT);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = list.get(at..).filter(|rest| rest.len() >= sequence.len()) {
        match repetition(rest, sequence, between, &names, &mut effort) {
            Some(entries) => {
                let next = entries.last().map_or(1, |last| last + 1);
                found.push(entries.into_iter().map(|entry| at + entry).collect());
                at += next;
            }
            None if effort == 0 => break,
            None => at += 1,
        }
    }
    found
}

fn repetition(
    list: &[u32],
    sequence: &[u32],
    between: usize,
    names: &FxHashSet<u32>,
    effort: &mut usize,
) -> Option<Repetition> {
    let mut wanted = sequence.iter().peekable();
    if list.first() != sequence.first() {
        *effort = effort.saturating_sub(1);
        return None;
    }
    let mut entries = Vec::with_capacity(sequence.len());
    let mut others = 0;
    for (at, name) in list.iter().enumerate() {
        *effort = effort.checked_sub(1)?;
        if wanted.next_if_eq(&name).is_some() {
            entries.push(at);
        } else if others < between && !names.contains(name) {
            others += 1;
        } else {
            return None;
        }
        if wanted.peek().is_none() {
            return Some(entries);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<u32> {
        text.chars().map(u32::from).collect()
    }

    fn found(text: &str) -> Option<(String, usize)> {
        let list = names(text);
        let sequence = find(&list)?;
        let times = repetitions(&list, &sequence).len();
        let sequence = sequence.into_iter().filter_map(char::from_u32).collect();
        Some((sequence, times))
    }

    #[test]
    fn sequence_begins_where_it_is_first_repeated() {
        let told = found("xyabcabcabcabz");
        assert_eq!(told, Some(("abc".to_owned(), 3)));
    }

    #[test]
    fn sequence_may_have_a_name_several_times() {
        let told = found(&"nabnabnc".repeat(5));
        assert_eq!(told, Some(("nabnabnc".to_owned(), 5)));
    }

    #[test]
    fn repetition_may_have_another_kernel_in_it() {
        let text = format!("{}abcdxef{}", "abcdef".repeat(4), "abcdef".repeat(6));
        assert_eq!(found(&text), Some(("abcdef".to_owned(), 11)));
    }

    #[test]
    fn layers_are_told_rather_than_steps() {
        let step = format!("s{}ttt", "abcd".repeat(12));
        let told = found(&step.repeat(5));
        assert_eq!(told, Some(("abcd".to_owned(), 60)));
    }

    #[test]
    fn two_kinds_of_layers_in_turn_are_one_sequence() {
        let told = found(&"abcdabxd".repeat(6));
        assert_eq!(told, Some(("abcdabxd".to_owned(), 6)));
    }

    #[test]
    fn what_is_not_repeated_is_not_told() {
        for text in [
            "",
            "a",
            "abcdefghijkl",
            // Twice is no period.
            "abcabc",
            // A loop over one kernel has no parts.
            "aaaaaaaaaaaaaaaa",
            // Most of the list is other work.
            "abcabcabcdefghijklmnopqrstuvwx",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn long_lists_of_few_names_take_linear_time() {
        // Every entry begins like the sequence.
        let mut list = vec![1; 200_000];
        list.extend((0..3_000).flat_map(|_| [1, 1, 1, 2]));
        assert_eq!(find(&list), None);
        let noise: Vec<u32> = (0..400_000_u32)
            .map(|n| n.wrapping_mul(2_654_435_761) >> 28)
            .collect();
        assert_eq!(find(&noise), None);
    }

    proptest! {
        #[test]
        fn told_sequences_repeat_and_cover_most(list in prop::collection::vec(0_u32..4, 0..200)) {
            if let Some(sequence) = find(&list) {
                let all = repetitions(&list, &sequence);
                prop_assert!(all.len() >= FEWEST);
                prop_assert!(sequence.len() > 1);
                let covered: usize = all.iter().map(Vec::len).sum();
                prop_assert!(covered as f64 >= COVERED * list.len() as f64);
                let mut before = None;
                for repetition in &all {
                    let entries: Vec<u32> = repetition.iter().map(|at| list[*at]).collect();
                    prop_assert_eq!(&entries, &sequence);
                    // In order, and no entry twice.
                    for at in repetition {
                        prop_assert!(before.is_none_or(|before| before < *at));
                        before = Some(*at);
                    }
                }
            }
        }

        #[test]
        fn repeated_sequences_are_found_among_other_work(
            sequence in prop::collection::vec(0_u32..50, 4..40),
            times in 4_usize..30,
            around in prop::collection::vec(50_u32..99, 0..20),
        ) {
            prop_assume!(sequence.iter().any(|name| *name != sequence[0]));
            let mut list = around.clone();
            list.extend(sequence.iter().cycle().take(sequence.len() * times));
            list.extend(&around);
            prop_assume!((sequence.len() * times) as f64 >= 0.7 * list.len() as f64);
            let told = find(&list);
            prop_assert!(told.is_some());
            let told = told.unwrap_or_default();
            // A sequence may itself be made of a shorter one.
            prop_assert!(told.len() <= sequence.len());
            let covered = repetitions(&list, &told).len() * told.len();
            prop_assert!(covered as f64 >= NEARLY * (sequence.len() * times) as f64);
        }
    }
}
