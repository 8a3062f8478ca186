//! Finds out which rank a report is about, and whether reports belong to one job.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::lists::{distinct, some};
use crate::base::units::counted;
use crate::report::{Rank, Report};

/// Where the number of a rank comes from, in the terms of [`Rank::rank_from`].
const PROFILE: &str = "profile";
const FILE_NAME: &str = "file name";
const POSITION: &str = "position";

/// The numbered ranks of several reports.
#[derive(Debug, Default)]
pub(super) struct NumberedRanks {
    /// Sorted by rank, then in the order of the reports.
    pub(super) rows: Vec<Rank>,
    /// Reasons to doubt that the reports belong together, in plain sentences.
    pub(super) cautions: Vec<String>,
    /// Whether ranks can be compared: they are of one job, and each occurs once.
    pub(super) comparable: bool,
    /// Number of ranks of the whole job, if the profiles have it and agree.
    pub(super) world_size: Option<u64>,
}

/// Numbers the ranks of reports of one profile each, as [`merge`](super::merge()) does, and sorts the
/// reports by rank. Returns reasons to doubt that they belong together, in plain sentences.
pub fn number_ranks(reports: &mut [Report]) -> Vec<String> {
    number(reports).cautions
}

/// Numbers the ranks: from the profile, else from the name of the file, else by the position among
/// the files sorted by name. Sorts the reports by rank.
pub(super) fn number(reports: &mut [Report]) -> NumberedRanks {
    reports.sort_by(|a, b| natural(&a.title, &b.title).then_with(|| natural(&a.file, &b.file)));
    let mut rows: Vec<&mut Rank> = reports.iter_mut().flat_map(|r| &mut r.ranks).collect();
    name_ranks(&mut rows);
    let placed = place_ranks(&mut rows);
    reports.sort_by_key(|r| r.ranks.iter().filter_map(|row| row.rank).min());
    let mut rows: Vec<Rank> = reports.iter().flat_map(|r| r.ranks.clone()).collect();
    rows.sort_by_key(|row| row.rank);
    let mut ranks = NumberedRanks {
        comparable: rows.len() > 1,
        rows,
        ..NumberedRanks::default()
    };
    ranks.look_for_copies(reports);
    ranks.look_for_twins();
    ranks.look_at_gpus();
    ranks.look_at_world();
    if placed > 0 && ranks.rows.len() > 1 {
        ranks.cautions.push(format!(
            "{} neither in the profile nor in the name of the file: the number is the place in the list.",
            match placed {
                1 => "The rank of 1 process is known".to_owned(),
                n => format!("The ranks of {n} processes are known"),
            }
        ));
    }
    ranks
}

/// Ranks from file names. A bare number counts only if all such files have one and it is small: other
/// numbers are dates, process ids or sizes.
fn name_ranks(rows: &mut [&mut Rank]) {
    let unnamed = |row: &Rank| row.rank.is_none() && row.process.is_none();
    let bare: Vec<Option<u64>> = rows
        .iter()
        .filter(|row| unnamed(row) && marked_number(&row.file).is_none())
        .map(|row| bare_number(&row.file))
        .collect();
    let small = 2 * rows.len() as u64;
    let numbers: BTreeSet<u64> = bare.iter().flatten().copied().collect();
    let bare_counts =
        numbers.len() == bare.len() && numbers.last().is_some_and(|&most| most < small);
    for row in rows.iter_mut().filter(|row| unnamed(row)) {
        let number =
            marked_number(&row.file).or_else(|| bare_number(&row.file).filter(|_| bare_counts));
        if number.is_some() {
            row.rank = number;
            row.rank_from = Some(FILE_NAME.to_owned());
        }
    }
}

/// Gives the remaining ranks the free numbers in order; returns how many.
fn place_ranks(rows: &mut [&mut Rank]) -> usize {
    let mut taken: BTreeSet<u64> = rows.iter().filter_map(|row| row.rank).collect();
    let mut next = 0;
    let mut placed = 0;
    for row in rows.iter_mut().filter(|row| row.rank.is_none()) {
        while !taken.insert(next) {
            next += 1;
        }
        row.rank = Some(next);
        row.rank_from = Some(POSITION.to_owned());
        placed += 1;
    }
    placed
}

/// Natural order of names: `rank2` before `rank10`. Names that differ only in leading zeros are
/// ordered by length.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let order = match (digits(left), digits(right)) {
            (Some((x, after_x)), Some((y, after_y))) => {
                (left, right) = (after_x, after_y);
                let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
                x.len().cmp(&y.len()).then(x.cmp(y))
            }
            _ => {
                let (mut x, mut y) = (left.chars(), right.chars());
                let order = match (x.next(), y.next()) {
                    (None, None) => return a.cmp(b),
                    (x, y) => x.cmp(&y),
                };
                (left, right) = (x.as_str(), y.as_str());
                order
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The leading digits of a text, if any, and the rest.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).filter(|_| end > 0)
}

/// `rank0`, `rank_3`, `rank-12`, or a part that is nothing but `r3`.
fn marked_number(name: &str) -> Option<u64> {
    let lower = name.to_ascii_lowercase();
    let after_rank = lower.match_indices("rank").filter_map(|(at, word)| {
        let rest = lower.get(at + word.len()..)?;
        leading_number(rest.strip_prefix(['_', '-', '.', '=']).unwrap_or(rest))
    });
    let parts = parts(&lower).filter_map(|part| whole_number(part.strip_prefix('r')?));
    after_rank.chain(parts).next()
}

/// The last part that is a number: `net.0.json`, `trace_3.sqlite`.
fn bare_number(name: &str) -> Option<u64> {
    parts(name).filter_map(whole_number).last()
}

fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
}

/// The leading digits of a text, at most nine: no job has more ranks.
fn leading_number(text: &str) -> Option<u64> {
    whole_number(digits(text)?.0)
}

fn whole_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl NumberedRanks {
    /// Different measurements never agree in every number.
    fn look_for_copies(&mut self, reports: &[Report]) {
        let numbers = |r: &Report| {
            let s = &r.summary;
            let said = r
                .ranks
                .iter()
                .filter(|row| row.rank_from.as_deref() == Some(PROFILE));
            (
                said.map(|row| row.rank).collect::<Vec<_>>(),
                (s.kernels, s.kernel_time_ns, s.busy_ns, s.window_ns),
            )
        };
        let mut alike: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for report in reports.iter().filter(|r| r.summary.kernels > 0) {
            alike
                .entry(numbers(report))
                .or_default()
                .push(&report.title);
        }
        for names in alike.values().filter(|names| names.len() > 1) {
            self.cautions.push(format!(
                "{} hold the same numbers ({}): they are likely copies of one profile.",
                counted(names.len() as u64, "file"),
                some(names)
            ));
            self.comparable = false;
        }
    }

    fn look_for_twins(&mut self) {
        let mut files: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for row in &self.rows {
            if let Some(rank) = row.rank {
                files.entry(rank).or_default().push(&row.file);
            }
        }
        let twins: Vec<_> = files.iter().filter(|(_, files)| files.len() > 1).collect();
        let cautions: Vec<String> = twins
            .iter()
            .take(3)
            .map(|(rank, files)| {
                format!(
                    "Rank {rank} is there {} times ({}): these files may be of different jobs or runs.",
                    files.len(),
                    some(files)
                )
            })
            .collect();
        self.comparable &= twins.is_empty();
        self.cautions.extend(cautions);
    }

    fn look_at_gpus(&mut self) {
        let gpus = distinct(self.rows.iter().filter_map(|row| row.gpu.as_deref()));
        if gpus.len() > 1 {
            self.cautions.push(format!(
                "The GPUs differ ({}): these files may be of different jobs.",
                some(&gpus)
            ));
            self.comparable = false;
        }
    }

    fn look_at_world(&mut self) {
        let sizes = distinct(self.rows.iter().filter_map(|row| row.world_size));
        match sizes.as_slice() {
            [] => {}
            [size] => {
                self.world_size = Some(*size);
                if self.rows.len() as u64 > *size {
                    self.cautions.push(format!(
                        "There are {} ranks here, but the profiles are of a job of {size}: these files \
                         may be of different jobs or runs.",
                        self.rows.len()
                    ));
                    self.comparable = false;
                }
            }
            sizes => {
                let mut sizes = sizes.to_vec();
                sizes.sort_unstable();
                let names: Vec<String> = sizes.iter().map(u64::to_string).collect();
                self.cautions.push(format!(
                    "The profiles are of jobs of different sizes ({} ranks): these files are of different jobs.",
                    some(&names)
                ));
                self.comparable = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_naturally() {
        let mut names = ["rank10", "rank2", "a", "rank02", "", "rank2b", "rank"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            ["", "a", "rank", "rank02", "rank2", "rank2b", "rank10"]
        );
    }

    #[test]
    fn ranks_are_found_in_file_names() {
        for (name, marked, bare) in [
            ("rank0.json.gz", Some(0), None),
            ("hta_sampled_rank12.json.gz", Some(12), None),
            ("net_rank-3_v2.sqlite", Some(3), Some(3)),
            ("trace_r7.sqlite", Some(7), None),
            ("net.0.sqlite", None, Some(0)),
            ("2024-11-21_host_3.json", None, Some(3)),
            ("worker3.json", None, None),
            ("frank.json", None, None),
            ("ranks.json", None, None),
            ("resnet50_w0.json", None, None),
            ("rank99999999999999999999.json", None, None),
            ("", None, None),
        ] {
            assert_eq!(marked_number(name), marked, "{name}");
            assert_eq!(bare_number(name), bare, "{name}");
        }
    }
}
