//! Merges the reports of the profiles of a job.

use indexmap::IndexMap;

use super::identity;
use super::lists::{distinct, some};
use super::{comparison, findings, sites, tables};
use crate::base::units::counted;
use crate::profile::Switch;
use crate::report::{
    self, CollectiveRow, GpuUsed, Job, Launching, LeftOut, Method, Rank, Report, SCHEMA_VERSION,
    Summary, Synchronizations, WorkUnit, share,
};

/// Merges reports: times are summed over ranks, the same finding on several ranks becomes one, and
/// the ranks are compared. `left_out` names files that were given and could not be read. The order of
/// the reports does not matter.
///
/// `None` without any report; a single report with nothing left out is that report.
pub fn merge(mut reports: Vec<Report>, mut left_out: Vec<LeftOut>) -> Option<Report> {
    if reports.len() == 1 && left_out.is_empty() {
        return reports.pop();
    }
    left_out.sort();
    // A finding hidden in one report may be shown in another: all are shown before the merge decides.
    reports.iter_mut().for_each(Report::unhide);
    let mut ranks = identity::number(&mut reports);
    let first = reports.first()?;
    let names = names(&reports);
    let summary = summary(&reports);
    let mut job = Job {
        files: reports.len() as u64,
        world_size: ranks.world_size,
        left_out,
        cautions: std::mem::take(&mut ranks.cautions),
        comparison: Vec::new(),
        fastest_step_ns: None,
        slowest_step_ns: None,
        straggler: None,
        waits: None,
    };
    let transfers = comparison::compare(&mut ranks.rows, ranks.comparable, &mut job);
    let transfer_ns = job.waits.and_then(|waits| {
        let matched = waits.compared + u64::from(waits.first.is_some());
        let first = waits.first.map_or(0.0, |first| first.transfer_ns);
        let each = waits.transfer_ns + first;
        (matched == waits.of).then_some(each * reports.len() as f64)
    });
    let slack_ns = slack(&reports, &ranks.rows);
    let folded = findings::fold(&reports, &summary, &names, transfer_ns, &slack_ns);
    let (layers, layers_omitted) = tables::layers(&reports, summary.busy_ns, &folded.numbers);
    let (sites, sites_omitted) = sites::sites(&reports, summary.busy_ns, &folded.numbers);
    for rank in &mut ranks.rows {
        rank.collectives = Vec::new();
        rank.each_step = Vec::new();
    }
    let mut merged = Report {
        schema_version: SCHEMA_VERSION,
        title: several(&first.title, reports.len()),
        file: several(&first.file, reports.len()),
        verdict: Vec::new(),
        figures: Vec::new(),
        hidden_notes: Vec::new(),
        next_notes: Vec::new(),
        time_notes: Vec::new(),
        cautions: shared(&reports, &names.names, |r| &r.cautions),
        collectives: collectives(&reports, &transfers),
        top: reports.iter().map(|r| r.top).max().unwrap_or_default(),
        total_saving: report::total_saving(&folded.findings),
        baseline: None,
        suppressions: Vec::new(),
        hidden: Vec::new(),
        findings: folded.findings,
        minor: folded.minor,
        capture: folded.capture,
        layers,
        layers_omitted,
        repeating: report::merged_repeating(
            reports.iter().map(|r| r.repeating.as_ref()),
            summary.busy_ns,
        ),
        timeline: sites::timeline(&reports, &names, summary.device_window_ns),
        host_profiles: Vec::new(),
        host: report::merged_host(reports.iter().filter_map(|r| r.host.as_ref())),
        sites,
        sites_omitted,
        units: units(&reports),
        launching: Launching::sum(reports.iter().map(|r| &r.launching)),
        synchronizations: Synchronizations::sum(
            reports.iter().filter_map(|r| r.synchronizations.as_ref()),
        ),
        already_fast: tables::already_fast(&reports, summary.busy_ns),
        setup: tables::setup(&reports),
        skipped: tables::skipped(&reports),
        unattributed: tables::unattributed(&reports, summary.kernel_time_ns),
        cost_unknown: tables::cost_unknown(&reports, summary.kernel_time_ns),
        faults: tables::faults(&reports),
        notes: shared(&reports, &names.names, |r| &r.notes),
        cut_files: reports.iter().flat_map(|r| r.cut_files.clone()).collect(),
        method: method(&reports),
        summary,
        ranks: ranks.rows,
        job: Some(job),
        windows: None,
        program: None,
    };
    if merged.summary.idle_unreliable.is_none() {
        let sentences = partly_untrusted(&reports, &names);
        merged.cautions.extend(sentences);
    }
    merged.sum_up();
    Some(merged)
}

/// Per report: for how long a step its ranks wait for others, at least: by as much the steps of those can
/// become shorter before they wait in turn. 0 where that is not known.
fn slack(reports: &[Report], ranks: &[Rank]) -> Vec<f64> {
    let of = |rank: &Rank| {
        let row = ranks.iter().find(|row| {
            (row.rank, &row.file, row.process) == (rank.rank, &rank.file, rank.process)
        })?;
        let each = row.steps.max(1) as f64 * row.devices.max(1) as f64;
        Some(row.waited_ns? / each)
    };
    let least = |report: &Report| {
        let waits = report.ranks.iter().map(|rank| of(rank).unwrap_or(0.0));
        waits.reduce(f64::min).unwrap_or(0.0)
    };
    reports.iter().map(least).collect()
}

/// `rank0.json.gz and 7 more files`.
fn several(first: &str, reports: usize) -> String {
    match reports {
        0 | 1 => first.to_owned(),
        n => format!("{first} and {}", counted(n as u64 - 1, "more file")),
    }
}

/// Names of the reports: the rank where each report has exactly one.
fn names(reports: &[Report]) -> findings::ReportNames {
    let by_rank: Option<Vec<String>> = reports
        .iter()
        .map(|report| match report.ranks.as_slice() {
            [own] => Some(own.rank?.to_string()),
            _ => None,
        })
        .collect();
    let distinct = |names: &Vec<String>| {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == names.len()
    };
    match by_rank.filter(distinct) {
        Some(names) => findings::ReportNames {
            unit: "rank",
            names,
        },
        None => findings::ReportNames {
            unit: "file",
            names: reports.iter().map(|r| r.title.clone()).collect(),
        },
    }
}

fn summary(reports: &[Report]) -> Summary {
    let all = || reports.iter().map(|r| &r.summary);
    let total = |part: fn(&Summary) -> i64| all().fold(0_i64, |sum, s| sum.saturating_add(part(s)));
    let count = |part: fn(&Summary) -> u64| all().fold(0_u64, |sum, s| sum.saturating_add(part(s)));
    let steps = if all().all(|s| s.steps > 0) {
        all().map(|s| s.steps).max().unwrap_or_default()
    } else {
        0
    };
    let lengths: Vec<f64> = all().filter_map(|s| s.step_ns).collect();
    let work_steps = mean_of_all(reports, |s| s.work_steps);
    let devices = count(|s| s.devices);
    let busy_ns = total(|s| s.busy_ns);
    let device_window_ns = total(|s| s.device_window_ns);
    let cost_known_ns = all().map(|s| s.cost_known_ns).sum();
    let best_ideal_ns = all().filter_map(|s| s.best_ideal_ns).reduce(|a, b| a + b);
    Summary {
        gpu: gpu(reports),
        devices,
        steps,
        // Where ranks have several steps each, not the mean of their means, so that the parts add up to it.
        step_ns: (steps > 0).then(|| match work_steps {
            Some(steps) => share(device_window_ns as f64, steps * devices as f64),
            None => share(lengths.iter().sum(), lengths.len() as f64),
        }),
        host_step_ns: mean_of_all(reports, |s| s.host_step_ns).filter(|_| steps > 0),
        unrecorded_step_ns: mean_of_all(reports, |s| s.unrecorded_step_ns).filter(|_| steps > 0),
        window_ns: total(|s| s.window_ns) / reports.len().max(1) as i64,
        device_window_ns,
        busy_ns,
        busy_share: share(busy_ns as f64, device_window_ns as f64),
        kernel_ns: total(|s| s.kernel_ns),
        exposed_copy_ns: total(|s| s.exposed_copy_ns),
        longest_copy: all()
            .filter_map(|s| s.longest_copy.clone())
            .max_by_key(|copy| copy.ns),
        comm_ns: total(|s| s.comm_ns),
        exposed_comm_ns: total(|s| s.exposed_comm_ns),
        exposed_comm_per_step_ns: mean_of_all(reports, |s| s.exposed_comm_per_step_ns)
            .filter(|_| steps > 0),
        graph_ns: total(|s| s.graph_ns),
        kernel_time_ns: total(|s| s.kernel_time_ns),
        kernels: count(|s| s.kernels),
        with_operator_ns: total(|s| s.with_operator_ns),
        cost_known_ns,
        best_ideal_ns,
        slowdown: best_ideal_ns
            .filter(|ideal| *ideal > 0.0)
            .map(|ideal| cost_known_ns / ideal),
        slowdown_at_least: all().any(|s| s.slowdown_at_least),
        idle_unreliable: untrusted(reports),
        recording_overhead: common(reports, |s| &s.recording_overhead),
        reliable_idle_ns: total(|s| s.reliable_idle_ns),
        unexplained_idle_ns: total(|s| s.unexplained_idle_ns),
        graph_launch_idle_ns: total(|s| s.graph_launch_idle_ns),
        work_steps,
        step_weight: mean_of_all(reports, |s| s.step_weight),
        host_work_ns: None,
        steps_from: common(reports, |s| &s.steps_from),
        window_range: common(reports, |s| &s.window_range),
        serving: common(reports, |s| &s.serving),
    }
}

/// The collectives of all reports. Their transfers are those of the fastest rank where every call of a row
/// was matched.
fn collectives(reports: &[Report], transfers: &comparison::Transfers) -> Vec<CollectiveRow> {
    let mut rows = CollectiveRow::fold(reports.iter().flat_map(|r| r.collectives.clone()));
    for row in &mut rows {
        let matched = transfers.get(&row.key()).filter(|t| t.calls == row.calls);
        if let Some(transfer) = matched {
            row.transfer_ns = Some(transfer.ns);
        }
    }
    rows
}

/// The units of work that all reports have, repetition by repetition.
fn units(reports: &[Report]) -> Vec<WorkUnit> {
    let Some((first, others)) = reports.split_first() else {
        return Vec::new();
    };
    let everywhere = first.units.iter().filter_map(|unit| {
        let same = others.iter().map(|report| {
            let mut units = report.units.iter();
            units.find(|u| u.kind == unit.kind && u.name == unit.name)
        });
        let all: Option<Vec<&WorkUnit>> = std::iter::once(Some(unit)).chain(same).collect();
        WorkUnit::of_ranks(&all?)
    });
    everywhere.collect()
}

/// Mean over the reports; `None` unless every report has a value.
fn mean_of_all(reports: &[Report], part: fn(&Summary) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = (reports.iter().map(|r| part(&r.summary))).collect::<Option<_>>()?;
    Some(share(values.iter().sum(), values.len() as f64))
}

/// The value that every report has; `None` where they differ.
fn common<T: Clone + PartialEq>(reports: &[Report], part: fn(&Summary) -> &Option<T>) -> Option<T> {
    let first = part(&reports.first()?.summary);
    let same = reports.iter().all(|r| part(&r.summary) == first);
    first.clone().filter(|_| same)
}

fn gpu(reports: &[Report]) -> Option<String> {
    let names = distinct(reports.iter().filter_map(|r| r.summary.gpu.as_deref()));
    (!names.is_empty()).then(|| some(&names))
}

/// Why idle time is unreliable in all captures; `None` where some are reliable, of which
/// [`partly_untrusted`] names the exceptions.
fn untrusted(reports: &[Report]) -> Option<String> {
    let why: Option<Vec<&str>> = reports
        .iter()
        .map(|r| r.summary.idle_unreliable.as_deref())
        .collect();
    let why = distinct(why?.into_iter().map(|w| w.trim().trim_end_matches('.')));
    (!why.is_empty()).then(|| why.join("; "))
}

/// The captures whose idle time is unreliable, one sentence per reason.
fn partly_untrusted(reports: &[Report], names: &findings::ReportNames) -> Vec<String> {
    let mut by_reason: IndexMap<&str, Vec<&str>> = IndexMap::new();
    for (report, name) in reports.iter().zip(&names.names) {
        if let Some(why) = &report.summary.idle_unreliable {
            let why = why.trim().trim_end_matches('.');
            by_reason.entry(why).or_default().push(name);
        }
    }
    let sentence = |(why, who): (&str, Vec<&str>)| {
        let unit = match who.len() {
            1 => names.unit.to_owned(),
            _ => format!("{}s", names.unit),
        };
        format!(
            "Idle time of {unit} {} is partly unreliable: {why}.",
            some(&who)
        )
    };
    by_reason.into_iter().map(sentence).collect()
}

/// Sentences of several reports, each once, with the reports it belongs to unless it belongs to all.
fn shared(reports: &[Report], names: &[String], list: fn(&Report) -> &Vec<String>) -> Vec<String> {
    let sentences = distinct(reports.iter().flat_map(list));
    let says = |sentence: &String| {
        let who: Vec<&str> = reports
            .iter()
            .zip(names)
            .filter(|(r, _)| list(r).contains(sentence))
            .map(|(_, name)| name.as_str())
            .collect();
        who
    };
    sentences
        .into_iter()
        .map(|sentence| match says(sentence) {
            who if who.len() == reports.len() => sentence.clone(),
            who => format!("{sentence} ({})", some(&who)),
        })
        .collect()
}

fn method(reports: &[Report]) -> Method {
    let all = || reports.iter().map(|r| &r.method);
    let joined = |values: Vec<&str>| (!values.is_empty()).then(|| some(&values));
    let mut devices: Vec<String> = all().flat_map(|m| m.devices.clone()).collect();
    devices.sort();
    let mut switches: Vec<Switch> = all().flat_map(|m| m.switches.clone()).collect();
    switches.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
    switches.dedup();
    let mut assumptions: Vec<String> = all().flat_map(|m| m.assumptions.clone()).collect();
    assumptions.sort();
    assumptions.dedup();
    let attributable_weight =
        |r: &Report| r.summary.kernel_time_ns as f64 * r.method.attributable_share.unwrap_or(0.0);
    Method {
        program: some(&distinct(all().map(|m| m.program.as_str()))),
        format: some(&distinct(all().map(|m| m.format.as_str()))),
        file_bytes: all().fold(0, |sum, m| sum.saturating_add(m.file_bytes)),
        tool_version: joined(distinct(all().filter_map(|m| m.tool_version.as_deref()))),
        export_schema: joined(distinct(all().filter_map(|m| m.export_schema.as_deref()))),
        devices,
        gpu: gpu_used(reports),
        cost_known_share: weighted(reports, |r| r.method.cost_known_share, kernel_time),
        lacks_api_calls: reports.iter().all(|r| r.method.lacks_api_calls),
        attributable_share: weighted(reports, |r| r.method.attributable_share, kernel_time),
        cost_known_attributable_share: weighted(
            reports,
            |r| r.method.cost_known_attributable_share,
            attributable_weight,
        ),
        layer_source: joined(distinct(all().filter_map(|m| m.layer_source.as_deref()))),
        assumptions,
        user_costs: tables::user_costs(reports),
        switches,
        rules_run: all().map(|m| m.rules_run).max().unwrap_or_default(),
    }
}

fn kernel_time(report: &Report) -> f64 {
    report.summary.kernel_time_ns as f64
}

/// Mean of a share, weighted by its whole.
fn weighted(
    reports: &[Report],
    part: fn(&Report) -> Option<f64>,
    weight: impl Fn(&Report) -> f64,
) -> Option<f64> {
    let (sum, whole) = reports
        .iter()
        .filter_map(|r| Some((part(r)?, weight(r))))
        .fold((0.0, 0.0), |(sum, whole), (part, weight)| {
            (sum + part * weight, whole + weight)
        });
    (whole > 0.0).then(|| sum / whole)
}

/// The GPU of the first report that has one; remarks name the others.
fn gpu_used(reports: &[Report]) -> Option<GpuUsed> {
    let gpus: Vec<&GpuUsed> = reports
        .iter()
        .filter_map(|r| r.method.gpu.as_ref())
        .collect();
    let mut used = (*gpus.first()?).clone();
    used.remarks = distinct(gpus.iter().flat_map(|g| g.remarks.iter().cloned()));
    let others: Vec<String> = distinct(gpus.iter().map(|g| (&g.id, &g.name)))
        .into_iter()
        .filter(|(id, _)| **id != used.id)
        .map(|(id, name)| format!("{name} ({id})"))
        .collect();
    if !others.is_empty() {
        used.remarks.push(format!(
            "Other files were compared with the peaks of their own GPU: {}.",
            some(&others)
        ));
    }
    let unknown = reports.len() - gpus.len();
    if unknown > 0 {
        used.remarks.push(format!(
            "The GPU of {} is not known; nothing in them was compared with peaks.",
            counted(unknown as u64, "file")
        ));
    }
    Some(used)
}
