//! What the host did while the GPU waited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::{label, share};
use super::text_table::{Align, Column};
use crate::base::text::{capitalized, plain};
use crate::base::units::{bytes, counted, ns, percent};
use crate::correlate::{
    GARBAGE_COLLECTION, HostPart, HostParts, HostTime, PartSum, Run, SampledFunction, readable_name,
};
use crate::profile::{ClassId, OffCpuState, OsCallClass, StrId};

/// Most rows listed, with the one for all others.
const MAX_ROWS: usize = 8;
/// Most NVTX ranges by which what is left is named, and the smallest share of it that is worth a name.
const MAX_RANGES: usize = 2;
const LEAST_OF_REST: f64 = 0.05;
/// Smallest share of calls with known sizes from which a size on average and a speed follow.
const LEAST_SIZED: f64 = 0.9;
/// Smallest share of the window that is worth a table.
const LEAST_OF_WINDOW: f64 = 0.01;
/// Smallest share of the waiting time that must be explained where nothing can be concluded from the rest.
const LEAST_EXPLAINED: f64 = 0.1;

/// What the launching threads did in gaps of at least 100 us, from the end of the last GPU work to the
/// launch of the next. Times are summed over devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostReport {
    /// Number of gaps.
    pub gaps: u64,
    /// Time in these gaps before the launch that ended them: the sum of all rows.
    pub ns: i64,
    /// Time in these gaps after that launch. The GPU did not wait for the host then.
    pub launched_ns: i64,
    /// The host's activities, longest first; what is left comes last.
    pub rows: Vec<HostRow>,
    /// The longest activity while code was loaded or compiled, which is no part of the rows.
    pub loading: Option<HostRow>,
}

/// Time of the launching threads in one activity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostRow {
    /// What they did: `Driver call`.
    pub activity: String,
    /// The function or call, as the profile names it; empty where it does not.
    pub name: String,
    /// The CUDA call that it was part of, or else the function that led to it; mostly empty.
    pub inside: String,
    /// The function that made the CUDA call in at least half of this time; mostly empty.
    #[serde(default)]
    pub caller: String,
    /// Time in nanoseconds.
    pub ns: i64,
    /// `ns` as a share of the time of all rows, or of all gaps in which code was loaded.
    pub share: f64,
    /// How it is known.
    pub evidence: HostEvidence,
    /// Number of calls, if `evidence` is `calls`.
    pub calls: u64,
    /// Number of samples, if `evidence` is `samples`.
    pub samples: u64,
    /// Bytes that the calls read or wrote; 0 where the profile does not say.
    pub bytes: u64,
    /// Number of calls whose bytes are known.
    #[serde(default)]
    pub sized_calls: u64,
    /// `evidence` with its numbers in words: `recorded: 12 calls of 3.4 MB`.
    pub known_from: String,
}

/// How an activity of the host is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostEvidence {
    /// Start and end of each call were recorded.
    Calls,
    /// Start and end of each Python function were recorded.
    Functions,
    /// The scheduler's events were recorded.
    Scheduling,
    /// Estimated from samples.
    Samples,
    /// What nothing else explains.
    Remainder,
}

impl HostRow {
    fn new(activity: &'static str, evidence: HostEvidence, sum: PartSum) -> HostRow {
        let calls = match evidence {
            HostEvidence::Calls => sum.count,
            _ => 0,
        };
        HostRow {
            activity: activity.to_owned(),
            name: String::new(),
            inside: String::new(),
            caller: String::new(),
            ns: sum.ns,
            share: 0.0,
            evidence,
            calls,
            samples: 0,
            bytes: sum.bytes,
            sized_calls: sum.sized,
            known_from: String::new(),
        }
    }

    fn add(&mut self, other: &HostRow) {
        if self.caller != other.caller && self.ns <= other.ns {
            self.caller.clone_from(&other.caller);
        }
        self.ns = self.ns.saturating_add(other.ns);
        self.calls = self.calls.saturating_add(other.calls);
        self.samples = self.samples.saturating_add(other.samples);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sized_calls = self.sized_calls.saturating_add(other.sized_calls);
    }

    fn known_from(&self) -> String {
        match self.evidence {
            HostEvidence::Calls => {
                format!("recorded: {}{}", counted(self.calls, "call"), self.size())
            }
            HostEvidence::Functions => "recorded functions".to_owned(),
            HostEvidence::Scheduling => "recorded scheduling".to_owned(),
            HostEvidence::Samples => format!("estimate: {}", counted(self.samples, "sample")),
            HostEvidence::Remainder if self.name.is_empty() => "remainder".to_owned(),
            HostEvidence::Remainder => "remainder in this range".to_owned(),
        }
    }

    /// How much the calls read or wrote; where nearly all have a size, how much each did on average and how fast.
    fn size(&self) -> String {
        let all = self.bytes as f64;
        if self.bytes == 0 {
            return String::new();
        }
        if (self.sized_calls as f64) < LEAST_SIZED * self.calls as f64 {
            return format!(" of at least {}", bytes(all));
        }
        let rate = bytes(all / (self.ns.max(1) as f64 / 1e9));
        let each = match self.sized_calls {
            0 | 1 => String::new(),
            sized => format!(", {} each", bytes(all / sized as f64)),
        };
        format!(" of {}{each}, {rate}/s", bytes(all))
    }

    /// The columns of a table for a terminal.
    pub(super) fn columns() -> Vec<Column> {
        vec![
            Column::new("Host activity", Align::Left, 20).flexible(),
            Column::new("Time", Align::Right, 8),
            Column::new("Share", Align::Right, 6),
            Column::new("Known from", Align::Left, 12),
        ]
    }

    /// Its row in that table, with times divided by `divisor`.
    pub(super) fn row(&self, divisor: f64) -> Vec<String> {
        let mut activity = self.activity.clone();
        let names = [
            (":", &self.name),
            (" in", &self.inside),
            (", called by", &self.caller),
        ];
        for (word, name) in names {
            if !name.is_empty() {
                activity.push_str(&format!("{word} {}", plain(name)));
            }
        }
        vec![
            activity,
            ns(self.ns as f64 / divisor),
            percent(self.share),
            self.known_from.clone(),
        ]
    }

    fn key(&self) -> (HostEvidence, &str, &str, &str) {
        (self.evidence, &self.activity, &self.name, &self.inside)
    }
}

/// Adds a row to the one with the same text.
fn add(rows: &mut Vec<HostRow>, row: HostRow) {
    match rows.iter_mut().find(|known| known.key() == row.key()) {
        Some(known) => known.add(&row),
        None => rows.push(row),
    }
}

/// The table of a run; `None` if it would explain nothing.
pub(super) fn of(run: &Run, device_window_ns: i64) -> Option<HostReport> {
    let mut all = HostParts::default();
    for parts in run.host.gaps.values() {
        all.add(parts);
    }
    let rows = rows(run, &all);
    let ns = all.waiting_ns();
    let launched_ns = all.ns.saturating_sub(ns);
    let loads = &run.host.loads;
    let loading = self::rows(run, loads)
        .into_iter()
        .next()
        .map(|row| HostRow {
            share: share(row.ns as f64, loads.ns as f64),
            ..row
        });
    let mut report = HostReport {
        gaps: all.gaps,
        ns,
        launched_ns,
        rows,
        loading: loading.filter(|row| row.evidence != HostEvidence::Remainder),
    };
    report.shorten();
    if !is_worth_a_table(&report, &run.host, device_window_ns) {
        report.rows.clear();
    }
    (!report.rows.is_empty() || report.loading.is_some()).then_some(report)
}

/// The tables of several ranks as one.
pub(crate) fn merged<'a>(all: impl Iterator<Item = &'a HostReport>) -> Option<HostReport> {
    all.cloned().reduce(|mut sum, next| {
        sum.gaps += next.gaps;
        sum.ns = sum.ns.saturating_add(next.ns);
        sum.launched_ns = sum.launched_ns.saturating_add(next.launched_ns);
        for row in next.rows {
            add(&mut sum.rows, row);
        }
        let longest = [sum.loading.take(), next.loading].into_iter().flatten();
        sum.loading = longest.max_by_key(|row| row.ns);
        sum.shorten();
        sum
    })
}

fn is_worth_a_table(report: &HostReport, host: &HostTime, device_window_ns: i64) -> bool {
    let explained = report.rows.iter().filter(|row| match row.evidence {
        // CUDA calls are what other findings are about, but not who made them.
        HostEvidence::Calls => row.activity != CUDA_CALL || !row.caller.is_empty(),
        HostEvidence::Remainder => host.has_os_calls || host.has_scheduling || !row.name.is_empty(),
        _ => true,
    });
    let explained: i64 = explained.map(|row| row.ns).sum();
    share(report.ns as f64, device_window_ns as f64) >= LEAST_OF_WINDOW
        && share(explained as f64, report.ns as f64) >= LEAST_EXPLAINED
}

const CUDA_CALL: &str = "CUDA call";
const OTHERS: &str = "Other activities";

fn os_activity(class: OsCallClass) -> &'static str {
    match class {
        OsCallClass::Read => "Reading a file or pipe",
        OsCallClass::Write => "Writing a file or pipe",
        OsCallClass::File => "Opening or examining a file",
        OsCallClass::Wait => "Waiting for a thread, process or input",
        OsCallClass::Sleep => "Sleeping",
        OsCallClass::Driver => "Driver call",
        OsCallClass::Network => "Network call",
        OsCallClass::Memory => "Mapping memory",
        OsCallClass::Start => "Starting a thread or process",
        OsCallClass::Other => "Call of the operating system",
    }
}

/// Parts and functions that are told apart, longest first. Real gaps have some dozens.
const MOST_PARTS: usize = 512;

/// The order of parts of the same length: by kind, then by their names, whose numbers follow the order of the
/// file.
fn in_order(run: &Run, part: HostPart) -> (HostPart, [&str; 3]) {
    let unnamed = |name: &mut StrId| Some(std::mem::replace(name, StrId::new(0)));
    let mut kind = part;
    let names = match &mut kind {
        HostPart::OsCall {
            name,
            inside,
            caller,
            ..
        } => [name.take(), inside.take(), caller.take()],
        HostPart::CudaCall { name, caller } => [unnamed(name), caller.take(), None],
        HostPart::LibraryCall(name) | HostPart::Function { name, .. } => {
            [unnamed(name), None, None]
        }
        _ => [None; 3],
    };
    let text = |name: Option<StrId>| name.map_or("", |name| run.profile.text(name));
    (kind, names.map(text))
}

/// The activities, without time in which the work was launched already.
pub(super) fn rows(run: &Run, parts: &HostParts) -> Vec<HostRow> {
    let has_samples = HostTime::has_enough_samples(parts);
    let rest = parts.sum(|part| match part {
        HostPart::Rest(_) => true,
        HostPart::Sampled { .. } => !has_samples,
        _ => false,
    });
    let mut rows = sampled(run, parts);
    let sampled_ns: i64 = rows.iter().map(|row| row.ns).sum();
    let mut sorted: Vec<(&HostPart, &PartSum)> = parts.parts.iter().collect();
    sorted.sort_by_cached_key(|(part, sum)| (std::cmp::Reverse(sum.ns), in_order(run, **part)));
    sorted.retain(|(part, _)| has_samples || !matches!(part, HostPart::Sampled { .. }));
    let mut callers = Callers::default();
    for (at, (part, sum)) in sorted.into_iter().enumerate() {
        if let Some(row) = describe(run, part, *sum) {
            let row = match at < MOST_PARTS {
                true => row,
                false => HostRow::new(OTHERS, HostEvidence::Calls, *sum),
            };
            callers.add(part, &row);
            add(&mut rows, row);
        }
    }
    callers.name(run, &mut rows);
    let activity = match (run.host.has_scheduling, run.host.has_os_calls) {
        (true, true) => "Computing: on the CPU, in no recorded call",
        (true, false) => "On the CPU, in no CUDA call",
        (false, true) => "Computing, or in calls too short to be recorded",
        (false, false) => "Not recorded",
    };
    let mut left = rest.ns.saturating_sub(sampled_ns);
    let mut add_rest = |name: String, ns: i64| {
        let sum = PartSum {
            ns,
            ..PartSum::default()
        };
        let row = HostRow {
            name,
            ..HostRow::new(activity, HostEvidence::Remainder, sum)
        };
        add(&mut rows, row);
    };
    // Which range the sampled part of the rest was in is not known.
    let ranges = match sampled_ns {
        0 => longest_ranges(parts, rest.ns),
        _ => Vec::new(),
    };
    for (range, ns) in ranges {
        add_rest(label(run.profile.text(range)), ns);
        left = left.saturating_sub(ns);
    }
    if left > 0 {
        add_rest(String::new(), left);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.ns));
    rows
}

/// The NVTX ranges in which most of the rest was spent, with their time in ns.
fn longest_ranges(parts: &HostParts, rest_ns: i64) -> Vec<(StrId, i64)> {
    let ranges = parts.parts.iter().filter_map(|(part, sum)| match part {
        HostPart::Rest(Some(range)) => Some((*range, sum.ns)),
        _ => None,
    });
    let least = (LEAST_OF_REST * rest_ns as f64) as i64;
    let mut longest: Vec<(StrId, i64)> = ranges.filter(|(_, ns)| *ns > least).collect();
    longest.sort_by_key(|(range, ns)| (std::cmp::Reverse(*ns), *range));
    longest.truncate(MAX_RANGES);
    longest
}

/// Functions that made the CUDA calls of a row, with their time in ns.
#[derive(Default)]
struct Callers(BTreeMap<[String; 3], BTreeMap<StrId, i64>>);

impl Callers {
    fn key(row: &HostRow) -> [String; 3] {
        [&row.activity, &row.name, &row.inside].map(String::clone)
    }

    fn add(&mut self, part: &HostPart, row: &HostRow) {
        let caller = match part {
            HostPart::CudaCall { caller, .. } => *caller,
            HostPart::OsCall { inside, caller, .. } => caller.filter(|_| inside.is_some()),
            _ => None,
        };
        if let Some(caller) = caller {
            let of_row = self.0.entry(Self::key(row)).or_default();
            *of_row.entry(caller).or_default() += row.ns;
        }
    }

    /// Names the one that took at least half of the time of a row.
    fn name(&self, run: &Run, rows: &mut [HostRow]) {
        for row in rows {
            let of_row = self.0.get(&Self::key(row)).into_iter().flatten();
            let longest = of_row.max_by_key(|(_, ns)| **ns);
            if let Some((caller, ns)) = longest
                && ns.saturating_mul(2) >= row.ns
            {
                row.caller = label(run.profile.text(*caller));
            }
        }
    }
}

/// What a part is in words; `None` for what is left.
fn describe(run: &Run, part: &HostPart, sum: PartSum) -> Option<HostRow> {
    let profile = &run.profile;
    let activity = |class: Option<ClassId>, other: &str| match class {
        Some(class) => capitalized(&label(run.host.classes.name(class))),
        None => other.to_owned(),
    };
    let name = |id: Option<StrId>| id.map_or_else(String::new, |id| label(profile.text(id)));
    let calls = HostEvidence::Calls;
    Some(match *part {
        HostPart::OsCall {
            class,
            name: function,
            inside,
            caller,
        } => HostRow {
            name: name(function),
            inside: name(inside.or(caller)),
            ..HostRow::new(os_activity(class), calls, sum)
        },
        HostPart::PythonLock => HostRow::new("Waiting for Python's lock (GIL)", calls, sum),
        HostPart::OffCpu(state) => {
            let why = match state {
                OffCpuState::Ready => "Off the CPU: preempted, though ready to run",
                OffCpuState::Waiting => "Off the CPU: waiting",
                OffCpuState::Unknown => "Off the CPU: waiting or preempted",
            };
            HostRow::new(why, HostEvidence::Scheduling, sum)
        }
        HostPart::CudaCall { name: call, .. } => HostRow {
            name: name(Some(call)),
            ..HostRow::new(CUDA_CALL, calls, sum)
        },
        HostPart::LibraryCall(call) => HostRow {
            name: name(Some(call)),
            ..HostRow::new("Library call", calls, sum)
        },
        HostPart::Function { name, class } => {
            let text = profile.text(name);
            if text.starts_with(GARBAGE_COLLECTION) {
                let collecting = "Collecting Python's garbage";
                return Some(HostRow::new(collecting, HostEvidence::Functions, sum));
            }
            HostRow {
                name: label(&readable_name(text)),
                activity: activity(class, "Python function"),
                ..HostRow::new("", HostEvidence::Functions, sum)
            }
        }
        HostPart::Sampled { place, class } => HostRow {
            activity: activity(class, "Python function or line"),
            name: name(Some(place)),
            samples: sum.count,
            ..HostRow::new("", HostEvidence::Samples, sum)
        },
        HostPart::Rest(_) | HostPart::Launched => return None,
    })
}

/// The functions of samples; none where there are too few.
fn sampled(run: &Run, parts: &HostParts) -> Vec<HostRow> {
    let Some(all_ns) = run.host.sampled_ns(parts) else {
        return Vec::new();
    };
    let samples = parts.sampled();
    let text = |id: Option<StrId>| id.map(|id| run.profile.text(id));
    let row = |(at, ((function, module), count)): (usize, (&SampledFunction, &u64))| {
        let name = match (text(*function), text(*module)) {
            _ if at >= MOST_PARTS => String::new(),
            (Some(function), Some(module)) => format!("{function} ({module})"),
            (Some(name), None) | (None, Some(name)) => name.to_owned(),
            (None, None) => String::new(),
        };
        let sum = PartSum {
            ns: (all_ns * share(*count as f64, samples as f64)) as i64,
            ..PartSum::default()
        };
        HostRow {
            activity: match run.host.class_of_samples.get(&(*function, *module)) {
                Some(class) => capitalized(&label(run.host.classes.name(*class))),
                None => "Computing".to_owned(),
            },
            name: label(&name),
            samples: *count,
            ..HostRow::new("", HostEvidence::Samples, sum)
        }
    };
    let mut sorted: Vec<(&SampledFunction, &u64)> = parts.samples.iter().collect();
    sorted.sort_by_key(|(function, count)| (std::cmp::Reverse(**count), **function));
    let mut rows = Vec::new();
    for function in sorted.into_iter().enumerate() {
        add(&mut rows, row(function));
    }
    rows
}

impl HostReport {
    /// Merges the shortest activities into one row, keeps the remainder last, and computes shares.
    fn shorten(&mut self) {
        let left = |row: &HostRow| row.evidence == HostEvidence::Remainder;
        let order = |row: &HostRow| (left(row), row.activity == OTHERS, std::cmp::Reverse(row.ns));
        self.rows.sort_by_key(order);
        let rest = self.rows.iter().filter(|row| left(row)).count();
        if self.rows.len() > MAX_ROWS.max(rest) {
            let named = self.rows.len() - rest;
            let kept = MAX_ROWS.saturating_sub(rest + 1);
            let shortest: Vec<HostRow> = self.rows.drain(kept..named).collect();
            let mut others = HostRow::new(OTHERS, HostEvidence::Calls, PartSum::default());
            if let [first, more @ ..] = shortest.as_slice()
                && more.iter().all(|row| row.evidence == first.evidence)
            {
                others.evidence = first.evidence;
            }
            for row in &shortest {
                others.add(row);
            }
            others.caller.clear();
            self.rows.insert(kept, others);
        }
        for row in &mut self.rows {
            row.share = share(row.ns as f64, self.ns as f64).min(1.0);
        }
        for row in self.rows.iter_mut().chain(&mut self.loading) {
            row.known_from = row.known_from();
        }
    }
}
