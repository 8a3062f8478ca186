//! Collectives of a report: each one on each rank, so that several reports can be compared, and a table by
//! kind and size of the message, with the bandwidth that they reach.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::basis::Basis;
use super::job::{CollectiveCall, CollectiveTimes};
use super::model::Report;
use super::rows::{CollectiveRow, RowKey};
use crate::base::units::{bytes, count, ns, per_step_count, percent, rate};
use crate::correlate::{Run, SiteId};
use crate::cost::{Costed, Family};
use crate::facts::{ENOUGH_CALLS, message_of};
use crate::profile::{KernelId, Span, StrId, collective_in};

/// Most collectives kept per rank, which is some steps of a large model. This bounds the size of the
/// report.
const MAX_CALLS: usize = 4096;

/// Messages of one class differ by less than a factor of four.
fn size_class(bytes: u64) -> u32 {
    bytes.max(1).ilog2() / 2
}

impl CollectiveRow {
    /// What the row is added up by.
    pub(crate) fn key(&self) -> RowKey {
        (
            self.kind.clone(),
            self.group_size,
            self.least_bytes.map(size_class),
        )
    }

    /// Adds a row with the same key.
    pub(crate) fn add(&mut self, other: &CollectiveRow) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        self.least_bytes = self.least_bytes.min(other.least_bytes);
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        self.calls = self.calls.saturating_add(other.calls);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.exposed_ns = self.exposed_ns.saturating_add(other.exposed_ns);
        self.transfer_ns = self.transfer_ns.zip(other.transfer_ns).map(|(a, b)| a + b);
        self.bytes = both(self.bytes, other.bytes);
        self.wire_bytes = both(self.wire_bytes, other.wire_bytes);
    }

    /// Rows with one per key, longest time first.
    pub(crate) fn fold(rows: impl IntoIterator<Item = CollectiveRow>) -> Vec<CollectiveRow> {
        let mut folded: BTreeMap<RowKey, CollectiveRow> = BTreeMap::new();
        for row in rows {
            match folded.get_mut(&row.key()) {
                Some(known) => known.add(&row),
                None => drop(folded.insert(row.key(), row)),
            }
        }
        let mut rows: Vec<CollectiveRow> = folded.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time_ns));
        rows
    }
}

impl CollectiveTimes {
    /// The row that the n-th call is in.
    pub(crate) fn row_key(&self, call: &CollectiveCall) -> RowKey {
        (
            self.kind.clone(),
            self.group_size,
            call.bytes.map(size_class),
        )
    }
}

/// The collectives of the window by kind, group and size.
pub(super) fn rows(costed: &Costed) -> Vec<CollectiveRow> {
    let senders = Senders::of(costed);
    let sites = (0..).map(SiteId).zip(&costed.run.sites).zip(&costed.sites);
    let sent = sites.flat_map(|((id, site), cost)| {
        let senders = &senders;
        site.kernels.iter().filter_map(move |kernel| {
            let kind = senders.kind(kernel.name, id)?;
            // A call of several kernels splits its message among them.
            let message = message_of(cost).filter(|_| kernel.count == site.calls);
            Some((kernel, kind, group_size(costed, id), message))
        })
    });
    // Calls are equal whatever layer they are in.
    let mut equal: FxHashMap<(&str, Option<u64>, u64), (u64, i64)> = FxHashMap::default();
    for (kernel, kind, group, message) in sent.clone() {
        if let Some((bytes, ..)) = message {
            let (calls, fastest) = equal.entry((kind, group, bytes)).or_insert((0, i64::MAX));
            *calls += u64::from(kernel.count);
            *fastest = kernel.min_ns.min(*fastest);
        }
    }
    CollectiveRow::fold(sent.map(|(kernel, kind, group_size, message)| {
        let calls = u64::from(kernel.count);
        let all = |bytes: u64| bytes.saturating_mul(calls);
        let known = message.and_then(|(bytes, ..)| equal.get(&(kind, group_size, bytes)));
        CollectiveRow {
            kind: kind.to_owned(),
            group_size,
            least_bytes: message.map(|m| m.0),
            most_bytes: message.map(|m| m.0),
            calls,
            time_ns: kernel.time_ns,
            exposed_ns: kernel.exposed_ns,
            transfer_ns: known
                .filter(|(equal, _)| *equal >= ENOUGH_CALLS)
                .map(|(_, fastest)| *fastest as f64 * calls as f64),
            bytes: message.map(|m| all(m.0)),
            wire_bytes: message.and_then(|m| m.2).map(all),
        }
    }))
}

/// The kernels that communicate.
pub(super) struct Senders {
    /// By name of a kernel: `Some` for collectives, with the kind if the name has it.
    by_name: Vec<Option<Option<&'static str>>>,
    /// By site: the kind that the operator's name has.
    by_site: Vec<Option<&'static str>>,
}

impl Senders {
    pub(super) fn of(costed: &Costed) -> Senders {
        let run = &costed.run;
        let mut by_name = vec![None; run.profile.strings.len()];
        let mut by_site = vec![None; run.sites.len()];
        let sites = run.sites.iter().zip(&costed.kernels).zip(&mut by_site);
        for ((site, names), of_site) in sites {
            let mut sends = false;
            for (kernel, name) in site.kernels.iter().zip(names) {
                if name.family == Family::Communication
                    && let Some(slot) = by_name.get_mut(kernel.name.idx())
                {
                    sends = true;
                    *slot = Some(name.collective.and_then(kind));
                }
            }
            if sends {
                *of_site = site.op.as_ref().and_then(|op| kind(&op.name));
            }
        }
        Senders { by_name, by_site }
    }

    /// The kind of collective that a kernel belongs to.
    pub(super) fn kind(&self, kernel: StrId, site: SiteId) -> Option<&'static str> {
        let said = self.by_name.get(kernel.idx()).copied().flatten()?;
        said.or_else(|| self.by_site.get(site.idx()).copied().flatten())
    }
}

/// The kind of collective in a name; `None` for sends and receives, which connect two ranks only.
fn kind(name: &str) -> Option<&'static str> {
    collective_in(name).filter(|collective| *collective != "send_recv")
}

/// The table of collectives as pages print it.
#[derive(Debug, Serialize)]
pub(super) struct CollectivesTable {
    /// Headings of the columns behind the kind of collective.
    headings: Vec<&'static str>,
    /// Longest time first.
    rows: Vec<PrintedCollective>,
    /// What the columns mean, as one paragraph.
    note: String,
}

#[derive(Debug, Serialize)]
struct PrintedCollective {
    /// Text of a report, not escaped.
    kind: String,
    /// One per heading.
    cells: Vec<String>,
}

/// What is known of a row without waiting.
struct Rates {
    transfer_ns: f64,
    algorithm: Option<f64>,
    bus: Option<f64>,
}

impl CollectiveRow {
    fn rates(&self) -> Option<Rates> {
        let transfer_ns = self.transfer_ns.filter(|ns| *ns > 0.0)?;
        let per_second = |bytes: Option<u64>| bytes.map(|n| n as f64 / transfer_ns * 1e9);
        Some(Rates {
            transfer_ns,
            algorithm: per_second(self.bytes),
            bus: per_second(self.wire_bytes),
        })
    }

    fn message(&self) -> Option<String> {
        let (least, most) = (self.least_bytes?, self.most_bytes?);
        let least_text = bytes(least as f64);
        Some(match least == most {
            true => least_text,
            false => format!("{least_text} to {}", bytes(most as f64)),
        })
    }

    fn hidden(&self) -> Option<String> {
        let share = 1.0 - self.exposed_ns as f64 / self.time_ns as f64;
        (self.time_ns > 0).then(|| percent(share))
    }
}

/// The table of a report; `None` where neither messages nor transfers are known. Columns that would be empty
/// are left out.
pub(super) fn table(report: &Report, basis: &Basis) -> Option<CollectivesTable> {
    let rows = &report.collectives;
    if !(rows.iter()).any(|row| row.bytes.is_some() || row.transfer_ns.is_some()) {
        return None;
    }
    let time = |total_ns: f64| ns(total_ns / basis.divisor);
    let calls = |n: u64| match basis.per {
        "" => count(n),
        _ => per_step_count(n as f64 / basis.divisor),
    };
    let with_groups = rows.iter().any(|row| row.group_size.is_some());
    let with_bus = rows.iter().any(|row| row.wire_bytes.is_some());
    let print = |row: &CollectiveRow| {
        let rates = row.rates();
        let of = |value: &dyn Fn(&Rates) -> Option<String>| rates.as_ref().and_then(value);
        let mut cells = vec![
            row.message(),
            Some(calls(row.calls)),
            Some(time(row.time_ns as f64)),
            row.hidden(),
            of(&|r| Some(time(r.transfer_ns))),
            of(&|r| Some(time(row.time_ns as f64 - r.transfer_ns))),
            of(&|r| r.algorithm.map(rate)),
        ];
        if with_groups {
            cells.insert(0, row.group_size.map(|n| n.to_string()));
        }
        if with_bus {
            cells.push(of(&|r| r.bus.map(rate)));
        }
        let shown = cells
            .into_iter()
            .map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
        PrintedCollective {
            kind: row.kind.clone(),
            cells: shown.collect(),
        }
    };
    let mut headings = vec![
        "Message",
        "Calls",
        "Time",
        "Hidden",
        "Transfer",
        "Waiting",
        "Algorithm bandwidth",
    ];
    if with_groups {
        headings.insert(0, "Ranks");
    }
    if with_bus {
        headings.push("Bus bandwidth");
    }
    Some(CollectivesTable {
        headings,
        rows: rows.iter().map(print).collect(),
        note: note(report, with_bus),
    })
}

fn note(report: &Report, with_bus: bool) -> String {
    let waits = report.job.as_ref().and_then(|job| job.waits);
    let transfer = match waits.is_some_and(|waits| waits.compared > 0) {
        true => "the fastest rank in each collective",
        false => "the fastest of at least five equal calls",
    };
    let mut text = format!(
        "Hidden: while other work ran on the GPU. Transfer: the time without waiting for other ranks, which is that \
         of {transfer}; a dash means that it is not known. Algorithm bandwidth is the message over the transfer"
    );
    if with_bus {
        text.push_str(
            "; bus bandwidth is what each rank must send for it over the transfer, as in nccl-tests",
        );
        let nvlink = report
            .method
            .gpu
            .as_ref()
            .and_then(|gpu| gpu.nvlink_bytes_per_s);
        if let Some(both) = nvlink {
            text.push_str(&format!(
                ", and is limited by the links: those between GPUs in a node have {} per direction, a network less",
                rate(both / 2.0)
            ));
        }
    }
    text.push('.');
    text
}

/// A collective in the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) kernel: KernelId,
    pub(super) kind: &'static str,
}

/// Step, kind and group size: collectives with the same key are compared in order.
type Alike<'a> = (Option<u64>, &'a str, Option<u64>);

/// The collectives of a rank by step, kind and group, each in order of launch.
pub(super) fn times(costed: &Costed, all: Vec<Sent>) -> Vec<CollectiveTimes> {
    let run = &costed.run;
    // Ranks launch their collectives in the same order, but streams may execute them in another.
    let mut ordered: Vec<(i64, Sent)> = all
        .into_iter()
        .filter_map(|sent| {
            let kernel = run.profile.kernel(sent.kernel)?;
            Some((
                launch(run, sent.kernel).map_or(kernel.span.start, |l| l.start),
                sent,
            ))
        })
        .collect();
    ordered.sort_unstable_by_key(|(launched, sent)| (*launched, sent.kernel));
    let mut first: Option<Alike<'_>> = None;
    let mut series: BTreeMap<Alike<'_>, Vec<CollectiveCall>> = BTreeMap::new();
    for (_, sent) in ordered {
        let (Some(kernel), Some(link)) = (run.profile.kernel(sent.kernel), run.link(sent.kernel))
        else {
            continue;
        };
        let step = link.step.and_then(|s| run.step(s));
        let group_size = link.site.and_then(|site| group_size(costed, site));
        let alike = (step.map(|s| s.number), sent.kind, group_size);
        first.get_or_insert(alike);
        series.entry(alike).or_default().push(CollectiveCall {
            start_ns: kernel.span.start,
            ns: kernel.span.ns(),
            queued_ns: launch(run, sent.kernel).map(|l| kernel.span.start.saturating_sub(l.end)),
            bytes: link
                .site
                .and_then(|site| message_bytes(costed, site, kernel.name)),
        });
    }
    let mut room = MAX_CALLS;
    series
        .into_iter()
        .map(|(alike, mut calls)| {
            let (step, kind, group_size) = alike;
            let count = calls.len() as u64;
            calls.truncate(room);
            room -= calls.len();
            CollectiveTimes {
                step,
                kind: kind.to_owned(),
                group_size,
                count,
                holds_first: first == Some(alike),
                calls,
            }
        })
        .collect()
}

/// Bytes of the message of a kernel of a site; `None` where a call of several kernels splits it among them.
fn message_bytes(costed: &Costed, id: SiteId, name: StrId) -> Option<u64> {
    let site = costed.run.site(id)?;
    let mut kernels = site.kernels.iter();
    let is_whole = kernels.any(|kernel| kernel.name == name && kernel.count == site.calls);
    let message = message_of(costed.cost_of(id)?).filter(|_| is_whole)?;
    Some(message.0)
}

/// The call that launched a kernel.
fn launch(run: &Run, kernel: KernelId) -> Option<Span> {
    Some(run.launch_of(kernel)?.span)
}

/// Number of ranks that take part.
fn group_size(costed: &Costed, site: SiteId) -> Option<u64> {
    let recorded = recorded_group_size(&costed.run, site);
    let cost = || message_of(costed.cost_of(site)?)?.1;
    recorded.or_else(cost)
}

/// Number of ranks that take part, which newer traces of torch.profiler have.
fn recorded_group_size(run: &Run, site: SiteId) -> Option<u64> {
    let site = run.site(site)?;
    [site.args, site.message]
        .into_iter()
        .flatten()
        .filter_map(|args| run.arguments(args)?.get(usize::MAX, "Group size"))
        .find_map(|size| match size {
            crate::correlate::ArgValue::Int(size) => u64::try_from(*size).ok().filter(|&n| n > 0),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_size_class_are_one_row() {
        let row = |bytes: u64, transfer_ns| CollectiveRow {
            kind: "all_reduce".to_owned(),
            group_size: Some(8),
            least_bytes: Some(bytes),
            most_bytes: Some(bytes),
            calls: 5,
            time_ns: 1000,
            exposed_ns: 100,
            transfer_ns,
            bytes: Some(5 * bytes),
            wire_bytes: Some(bytes),
        };
        let rows = CollectiveRow::fold([
            row(16, Some(1.0)),
            row(63, Some(2.0)),
            row(64, Some(4.0)),
            row(65, None),
        ]);
        let shown: Vec<_> = rows
            .iter()
            .map(|r| (r.least_bytes, r.most_bytes, r.calls, r.transfer_ns, r.bytes))
            .collect();
        assert_eq!(
            shown,
            [
                (Some(16), Some(63), 10, Some(3.0), Some(395)),
                (Some(64), Some(65), 10, None, Some(645)),
            ]
        );
    }
}
