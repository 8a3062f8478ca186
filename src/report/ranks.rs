//! The rows of ranks in the report of one file: activity of each process on its GPUs, and durations
//! of its collectives, so that several reports can be compared.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use super::collectives::{self, Senders, Sent};
use super::figures::{label, share, sum, title};
use super::job::{Rank, RankStep, RankTimes};
use super::model::Summary;
use crate::base::statistics::mean_and_deviation;
use crate::correlate::{DeviceTimeline, Run};
use crate::cost::Costed;
use crate::profile::{DeviceId, KernelId, ProcessId};

/// Most steps kept per rank, which bounds the size of the report.
const MAX_STEPS: usize = 4096;

/// One row per process with work in the window, by rank and number of the process.
pub(super) fn of(costed: &Costed, summary: &Summary) -> Vec<Rank> {
    let run = &costed.run;
    let mut works = works(costed);
    let users = users(run, &works);
    let processes: BTreeSet<ProcessId> = users.values().flatten().copied().collect();
    let mut processes: Vec<ProcessId> = processes.into_iter().collect();
    processes.sort_by_key(|id| {
        let process = run.profile.process(*id);
        process.map(|process| (process.rank, process.pid))
    });
    processes
        .iter()
        .map(|&process| {
            let work = works.remove(&process).unwrap_or_default();
            // Of a single process, the steps are those of the run, and as long as they are there.
            let own = Some(summary).filter(|_| processes.len() == 1);
            let mut rank = rank(costed, (process, own), &users, work);
            rank.process = rank.process.filter(|_| processes.len() > 1);
            rank
        })
        .collect()
}

/// The processes that ran kernels or graphs on each device.
fn users(run: &Run, works: &BTreeMap<ProcessId, Work>) -> BTreeMap<DeviceId, BTreeSet<ProcessId>> {
    let mut users: BTreeMap<DeviceId, BTreeSet<ProcessId>> = BTreeMap::new();
    for (process, work) in works {
        for device in &work.devices {
            users.entry(*device).or_default().insert(*process);
        }
    }
    for graph in &run.profile.graphs {
        users.entry(graph.device).or_default().insert(graph.process);
    }
    users
}

/// Kernels of one process inside the window.
#[derive(Debug, Default)]
struct Work {
    kernels: u64,
    time_ns: i64,
    devices: FxHashSet<DeviceId>,
    collectives: Vec<Sent>,
}

fn works(costed: &Costed) -> BTreeMap<ProcessId, Work> {
    let run = &costed.run;
    let senders = Senders::of(costed);
    let mut works: Vec<Work> = Vec::new();
    works.resize_with(run.profile.processes.len(), Work::default);
    for ((id, kernel), link) in (0..)
        .map(KernelId)
        .zip(&run.profile.kernels)
        .zip(&run.links)
    {
        let Some((site, work)) = link.site.zip(works.get_mut(kernel.process.idx())) else {
            continue;
        };
        work.kernels += 1;
        work.time_ns = work.time_ns.saturating_add(kernel.span.ns());
        work.devices.insert(kernel.device);
        if let Some(kind) = senders.kind(kernel.name, site) {
            work.collectives.push(Sent { kernel: id, kind });
        }
    }
    let all = (0..).map(ProcessId).zip(works);
    all.filter(|(_, work)| work.kernels > 0).collect()
}

fn rank(
    costed: &Costed,
    (process, own): (ProcessId, Option<&Summary>),
    users: &BTreeMap<DeviceId, BTreeSet<ProcessId>>,
    work: Work,
) -> Rank {
    let run = &costed.run;
    let profile = &run.profile;
    let said = profile.process(process);
    let number = said.and_then(|p| p.rank);
    let mine = |device: &DeviceId| users.get(device).is_some_and(|u| u.contains(&process));
    let devices: Vec<&DeviceTimeline> = run
        .timeline
        .devices
        .iter()
        .filter(|d| mine(&d.device))
        .collect();
    let alone = devices
        .iter()
        .all(|d| users.get(&d.device).is_some_and(|u| u.len() == 1));
    let mut each_step = steps(run, process);
    if let Some(lengths) = own.and_then(|_| run.step_lengths())
        && lengths.len() == each_step.len()
    {
        for (step, ns) in each_step.iter_mut().zip(lengths) {
            step.ns = ns.round() as i64;
        }
    }
    let lengths: Vec<f64> = each_step.iter().map(|step| step.ns as f64).collect();
    each_step.truncate(MAX_STEPS);
    let (step_ns, step_sd_ns) = mean_and_deviation(&lengths);
    let times = (alone && !devices.is_empty()).then(|| times(&devices));
    // The last step lasts until its GPU work is done, without the loading of code.
    let analyzed = times.map(|t| t.window_ns as f64 / devices.len() as f64);
    let each = analyzed.map(|ns| ns / lengths.len() as f64);
    let each = own.and_then(|summary| summary.step_ns).or(each);
    let step_ns = each.filter(|_| !lengths.is_empty()).or(step_ns);
    let collective_ns = sum(work
        .collectives
        .iter()
        .filter_map(|sent| Some(profile.kernel(sent.kernel)?.span.ns())));
    Rank {
        rank: number.map(u64::from),
        rank_from: number.map(|_| "profile".to_owned()),
        world_size: said.and_then(|p| p.world_size).map(u64::from),
        file: title(&profile.path),
        process: said.map(|p| p.pid),
        gpu: gpu(run, &devices),
        devices: devices.len() as u64,
        steps: lengths.len() as u64,
        step_ns,
        step_sd_ns,
        each_step,
        kernels: work.kernels,
        kernel_time_ns: work.time_ns,
        times,
        collective_ns,
        collectives: collectives::times(costed, work.collectives),
        waited_ns: None,
        caused_wait_ns: None,
        joined_last: None,
        launched_late: None,
    }
}

/// The analyzed steps of a process.
fn steps(run: &Run, process: ProcessId) -> Vec<RankStep> {
    let own = run.process_steps.get(process.idx());
    let analyzed = own.into_iter().flatten().filter_map(|(span, step)| {
        let step = run.step(*step)?;
        (!step.warmup).then(|| RankStep {
            number: step.number,
            ns: span.ns(),
        })
    });
    analyzed.collect()
}

fn gpu(run: &Run, devices: &[&DeviceTimeline]) -> Option<String> {
    let mut names: Vec<&str> = devices
        .iter()
        .filter_map(|d| run.profile.device(d.device)?.name.as_deref())
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| label(&names.join(" and ")))
}

fn times(devices: &[&DeviceTimeline]) -> RankTimes {
    let total = |part: fn(&DeviceTimeline) -> i64| sum(devices.iter().map(|d| part(d)));
    let window_ns = total(DeviceTimeline::analysed_ns);
    let busy_ns = total(|d| d.busy_ns);
    let kernel_ns = total(|d| d.kernel_ns);
    let exposed_comm_ns = total(|d| d.exposed_comm_ns);
    RankTimes {
        window_ns,
        busy_ns,
        busy_share: share(busy_ns as f64, window_ns as f64),
        kernel_ns,
        compute_ns: kernel_ns.saturating_sub(exposed_comm_ns).max(0),
        comm_ns: total(|d| d.comm_ns),
        exposed_comm_ns,
    }
}
