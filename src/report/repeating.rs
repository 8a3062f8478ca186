//! The sequence of kernels that a program without known operators and layers repeats: most likely the layers
//! of its model.

mod period;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::evidence::kernel_name;
use super::figures::share;
use super::text_table::{Align, Column};
use crate::base::text::plain;
use crate::base::units::{count, counted, ns, percent};
use crate::correlate::{LayerId, Site, StepId};
use crate::cost::{Costed, DecodedName, Family};
use crate::profile::{DeviceId, KernelId, StrId};

/// Most kernels of the sequence that are listed, the longest of them.
const MAX_ROWS: usize = 40;
/// Smallest share of GPU time that a sequence must have to be shown.
const LEAST_OF_BUSY: f64 = 0.25;
/// Largest share of its time with known operators: what they tell is better.
const MOST_WITH_OPERATOR: f64 = 0.5;

/// A sequence of kernels that repeats, in a program whose operators and layers the profile does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RepeatingKernels {
    /// Number of repetitions, over all steps.
    pub repetitions: u64,
    /// Repetitions in each step, or one behind the other where there are no steps; `null` where it varies.
    pub in_a_row: Option<u64>,
    /// Number of kernels of the sequence.
    pub length: u64,
    /// Whether one of them multiplies matrices or computes attention or a convolution, as layers do.
    pub like_layers: bool,
    /// Time of these kernels in all repetitions.
    pub time_ns: i64,
    /// `time_ns` as a share of GPU busy time.
    pub share: f64,
    /// Mean time from the start of a repetition to its end.
    pub mean_ns: f64,
    /// The shortest repetition.
    pub min_ns: i64,
    /// The longest repetition.
    pub max_ns: i64,
    /// Its kernels in order; of a long sequence those that take longest.
    pub kernels: Vec<RepeatingKernel>,
    /// Kernels that are not listed.
    pub kernels_omitted: u64,
}

/// A kernel of a sequence that repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RepeatingKernel {
    /// Its place in the sequence, from 1.
    pub place: u64,
    /// Name of the kernel.
    pub kernel: String,
    /// Kind of work, by the name.
    pub family: String,
    /// Time in all repetitions.
    pub time_ns: i64,
    /// The longest of them.
    pub max_ns: i64,
    /// `time_ns` as a share of GPU busy time.
    pub share: f64,
}

/// A kernel in the order in which a stream ran it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: i64,
    end: i64,
    id: KernelId,
    name: StrId,
}

/// The kernels of a stream in a step, or in the window without steps.
type Part = (DeviceId, u32, u32, Option<u32>);

/// The sequence that takes the most time; `None` if none is repeated or if operators and layers are known.
pub(super) fn of(costed: &Costed, busy_ns: i64) -> Option<RepeatingKernels> {
    let unknown: i64 = (costed.run.sites.iter())
        .filter(|site| site.op.is_none())
        .map(|site| site.time_ns)
        .sum();
    if share(unknown as f64, busy_ns as f64) < LEAST_OF_BUSY {
        return None;
    }
    let decoded = decoded(costed);
    let computes = |entry: &Entry| {
        let name = decoded.get(&entry.name);
        name.is_none_or(|name| name.family != Family::Communication)
    };
    let parts = parts(costed);
    // Layers compute; what sends their results may run beside them.
    let time = |entries: &Vec<Entry>| -> i64 {
        let entries = entries.iter().filter(|entry| computes(entry));
        entries.map(|entry| entry.end - entry.start).sum()
    };
    let (first, longest) = parts
        .iter()
        .max_by_key(|(part, entries)| (time(entries), std::cmp::Reverse(**part)))?;
    let sequence = period::find(&names(longest))?;
    // The other steps of the stream run the same.
    let same = |part: &Part| (part.0, part.1, part.2) == (first.0, first.1, first.2);
    let mut sums = Sums::new(&sequence);
    for (_, entries) in parts.iter().filter(|(part, _)| same(part)) {
        sums.add(entries, &sequence);
    }
    let found = sums.told(costed, &decoded, busy_ns);
    found.filter(|found| found.share >= LEAST_OF_BUSY)
}

/// What the names of all analyzed kernels tell.
fn decoded(costed: &Costed) -> FxHashMap<StrId, &DecodedName> {
    let sites = costed.run.sites.iter().zip(&costed.kernels);
    let kernels = sites.flat_map(|(site, names)| site.kernels.iter().zip(names));
    kernels
        .map(|(kernel, name)| (kernel.name, &**name))
        .collect()
}

fn names(entries: &[Entry]) -> Vec<u32> {
    entries.iter().map(|entry| entry.name.row()).collect()
}

/// The analyzed kernels by stream and step, in order of time.
fn parts(costed: &Costed) -> BTreeMap<Part, Vec<Entry>> {
    let run = &costed.run;
    let mut parts: BTreeMap<Part, Vec<Entry>> = BTreeMap::new();
    let kernels = run.profile.kernels.iter().zip(&run.links).zip(0..);
    for ((kernel, link), id) in kernels.filter(|((_, link), _)| link.site.is_some()) {
        let step = link.step.map(StepId::row);
        let part = (kernel.device, kernel.context, kernel.stream, step);
        parts.entry(part).or_default().push(Entry {
            start: kernel.span.start,
            end: kernel.span.end,
            id: KernelId(id),
            name: kernel.name,
        });
    }
    for entries in parts.values_mut() {
        entries.sort_unstable_by_key(|entry| (entry.start, entry.id));
    }
    parts
}

/// Times of the kernels of a sequence.
#[derive(Debug)]
struct Sums {
    kernels: Vec<Sum>,
    /// From start to end, of each repetition.
    repetitions: Vec<i64>,
    /// Repetitions one behind the other.
    rows: BTreeSet<u64>,
    /// Of all repetitions.
    members: Vec<KernelId>,
}

#[derive(Debug, Clone, Copy)]
struct Sum {
    name: StrId,
    ns: i64,
    max_ns: i64,
}

impl Sums {
    fn new(sequence: &[u32]) -> Sums {
        let sum = |name: &u32| Sum {
            name: StrId(*name),
            ns: 0,
            max_ns: 0,
        };
        Sums {
            kernels: sequence.iter().map(sum).collect(),
            repetitions: Vec::new(),
            rows: BTreeSet::new(),
            members: Vec::new(),
        }
    }

    fn add(&mut self, entries: &[Entry], sequence: &[u32]) {
        let mut row = 0;
        let mut next = None;
        for repetition in period::repetitions(&names(entries), sequence) {
            let (Some(first), Some(last)) = (repetition.first(), repetition.last()) else {
                continue;
            };
            if next.is_some_and(|next| next != *first) {
                self.rows.insert(row);
                row = 0;
            }
            row += 1;
            next = Some(last + 1);
            let members = repetition.iter().filter_map(|at| entries.get(*at));
            let mut span: Option<(i64, i64)> = None;
            for (entry, sum) in members.zip(&mut self.kernels) {
                let ns = entry.end - entry.start;
                sum.ns = sum.ns.saturating_add(ns);
                sum.max_ns = sum.max_ns.max(ns);
                self.members.push(entry.id);
                let span = span.get_or_insert((entry.start, entry.end));
                span.1 = span.1.max(entry.end);
            }
            self.repetitions
                .extend(span.map(|(start, end)| end - start));
        }
        if row > 0 {
            self.rows.insert(row);
        }
    }

    fn told(
        self,
        costed: &Costed,
        decoded: &FxHashMap<StrId, &DecodedName>,
        busy_ns: i64,
    ) -> Option<RepeatingKernels> {
        let run = &costed.run;
        let time_ns: i64 = self.kernels.iter().map(|sum| sum.ns).sum();
        let mut with_operator = 0_i64;
        let mut layers: BTreeSet<Option<LayerId>> = BTreeSet::new();
        for id in &self.members {
            let link = run.link(*id);
            let site: Option<&Site> = link.and_then(|link| run.site(link.site?));
            let kernel = run.profile.kernel(*id);
            if let Some((site, kernel)) = site.zip(kernel) {
                layers.insert(site.layer);
                if site.op.is_some() {
                    with_operator = with_operator.saturating_add(kernel.span.ns());
                }
            }
        }
        let count = self.repetitions.len();
        // Layers with names are told by them.
        let in_a_row = self.rows.first().copied().filter(|_| self.rows.len() == 1);
        let named = layers.len() as u64 > in_a_row.unwrap_or(count as u64) / 2;
        if named || with_operator as f64 > MOST_WITH_OPERATOR * time_ns as f64 {
            return None;
        }
        let row = |place: usize, sum: &Sum| {
            let name = decoded.get(&sum.name)?;
            Some(RepeatingKernel {
                place: place as u64 + 1,
                kernel: kernel_name(run.profile.text(sum.name), Some(name)),
                family: name.family.name().to_owned(),
                time_ns: sum.ns,
                max_ns: sum.max_ns,
                share: share(sum.ns as f64, busy_ns as f64),
            })
        };
        let rows = self.kernels.iter().enumerate();
        let mut rows: Vec<RepeatingKernel> = rows.filter_map(|(at, sum)| row(at, sum)).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.time_ns), row.place));
        let omitted = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        rows.sort_by_key(|row| row.place);
        let mut names = self.kernels.iter().filter_map(|sum| decoded.get(&sum.name));
        let like_layers = names.any(|name| name.family.is_math());
        let all_ns: i64 = self.repetitions.iter().sum();
        Some(RepeatingKernels {
            repetitions: count as u64,
            in_a_row,
            length: self.kernels.len() as u64,
            like_layers,
            time_ns,
            share: share(time_ns as f64, busy_ns as f64),
            mean_ns: all_ns as f64 / count.max(1) as f64,
            min_ns: self.repetitions.iter().min().copied().unwrap_or(0),
            max_ns: self.repetitions.iter().max().copied().unwrap_or(0),
            kernels: rows,
            kernels_omitted: omitted as u64,
        })
    }
}

/// The sequences of several ranks as one; `None` if they differ.
pub(crate) fn merged<'a>(
    all: impl Iterator<Item = Option<&'a RepeatingKernels>>,
    busy_ns: i64,
) -> Option<RepeatingKernels> {
    let all: Option<Vec<&RepeatingKernels>> = all.collect();
    let mut all = all?.into_iter();
    let mut sum = all.next()?.clone();
    for next in all {
        let names = |of: &RepeatingKernels| -> Vec<String> {
            of.kernels.iter().map(|row| row.kernel.clone()).collect()
        };
        if next.length != sum.length || names(next) != names(&sum) {
            return None;
        }
        let spans = |of: &RepeatingKernels| of.mean_ns * of.repetitions as f64;
        let ns = spans(&sum) + spans(next);
        sum.repetitions = sum.repetitions.saturating_add(next.repetitions);
        sum.mean_ns = ns / sum.repetitions.max(1) as f64;
        sum.in_a_row = sum.in_a_row.filter(|row| next.in_a_row == Some(*row));
        sum.time_ns = sum.time_ns.saturating_add(next.time_ns);
        sum.min_ns = sum.min_ns.min(next.min_ns);
        sum.max_ns = sum.max_ns.max(next.max_ns);
        for (row, other) in sum.kernels.iter_mut().zip(&next.kernels) {
            row.time_ns = row.time_ns.saturating_add(other.time_ns);
            row.max_ns = row.max_ns.max(other.max_ns);
        }
    }
    sum.share = share(sum.time_ns as f64, busy_ns as f64);
    for row in &mut sum.kernels {
        row.share = share(row.time_ns as f64, busy_ns as f64);
    }
    Some(sum)
}

impl RepeatingKernel {
    pub(super) fn columns() -> Vec<Column> {
        vec![
            Column::new("#", Align::Right, 2),
            Column::new("Kernel", Align::Left, 12).flexible(),
            Column::new("Kind", Align::Left, 6),
            Column::new("Mean", Align::Right, 7),
            Column::new("Share", Align::Right, 5),
        ]
    }

    pub(super) fn row(&self, repetitions: u64) -> Vec<String> {
        vec![
            self.place.to_string(),
            plain(&self.kernel),
            self.family.clone(),
            ns(self.time_ns as f64 / repetitions.max(1) as f64),
            percent(self.share),
        ]
    }
}

impl RepeatingKernels {
    /// What repeats, in sentences.
    pub(super) fn sentences(&self) -> String {
        let times = match self.in_a_row {
            Some(row) if row < self.repetitions => format!(
                "{} times {} repetitions",
                count(self.repetitions / row.max(1)),
                count(row)
            ),
            _ => counted(self.repetitions, "repetition"),
        };
        let what = match self.like_layers {
            true => ", most likely layers of the model",
            false => "",
        };
        format!(
            "The profile names no operator for most of these kernels and does not tell the layers of the model apart, \
             but the kernels repeat: {times} of {}{what}. They take {} ({} of GPU time). A repetition takes {} on average, {} to {}.",
            counted(self.length, "kernel"),
            ns(self.time_ns as f64),
            percent(self.share),
            ns(self.mean_ns),
            ns(self.min_ns as f64),
            ns(self.max_ns as f64),
        )
    }
}
