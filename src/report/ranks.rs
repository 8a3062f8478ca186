//! The rows of ranks in the report of one file: activity of each process on its GPUs, and durations
//! of its collectives, so that several reports can be compared.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use super::build::{label, share, sum, title};
use super::{CollectiveTimes, Rank, RankTimes};
use crate::correlate::{DeviceTimeline, Run, SiteId};
use crate::cost::{Costed, Family};
use crate::profile::{DeviceId, KernelId, ProcessId, StrId};

/// Most durations kept per rank, which is some steps of a large model. This bounds the size of the
/// report.
const MAX_DURATIONS: usize = 4096;

/// Names of collectives, without separators, in kernels, operators and arguments, with their kind;
/// the first match counts.
const KINDS: [(&str, &str); 9] = [
    ("alltoall", "all_to_all"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
];

/// One row per process with work in the window, in the order of the processes in the profile.
pub(super) fn of(costed: &Costed) -> Vec<Rank> {
    let run = &costed.run;
    let mut works = works(costed);
    let users = users(run, &works);
    let processes: BTreeSet<ProcessId> = users.values().flatten().copied().collect();
    processes
        .iter()
        .map(|&process| {
            let work = works.remove(&process).unwrap_or_default();
            let mut rank = rank(run, process, &users, work);
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
    /// `(launched, kernel, kind)`.
    collectives: Vec<(i64, KernelId, &'static str)>,
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
            // Ranks launch their collectives in the same order, but streams may execute them in
            // another.
            let call = link.launch.and_then(|c| run.profile.calls.get(c.idx()));
            let launched = call.map_or(kernel.span.start, |c| c.span.start);
            work.collectives.push((launched, id, kind));
        }
    }
    let all = (0..).map(ProcessId).zip(works);
    all.filter(|(_, work)| work.kernels > 0).collect()
}

/// The kernels that communicate.
struct Senders {
    /// By name of a kernel: `Some` for collectives, with the kind if the name has it.
    by_name: Vec<Option<Option<&'static str>>>,
    /// By site: the kind that the operator's name has.
    by_site: Vec<Option<&'static str>>,
}

impl Senders {
    fn of(costed: &Costed) -> Senders {
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
    fn kind(&self, kernel: StrId, site: SiteId) -> Option<&'static str> {
        let said = self.by_name.get(kernel.idx()).copied().flatten()?;
        said.or_else(|| self.by_site.get(site.idx()).copied().flatten())
    }
}

/// The kind of collective in a name; `None` for sends and receives, which connect two ranks only.
fn kind(name: &str) -> Option<&'static str> {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let found = KINDS.iter().find(|(word, _)| plain.contains(word));
    found.map(|(_, kind)| *kind)
}

fn rank(
    run: &Run,
    process: ProcessId,
    users: &BTreeMap<DeviceId, BTreeSet<ProcessId>>,
    work: Work,
) -> Rank {
    let profile = &run.profile;
    let said = profile.processes.get(process.idx());
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
    let lengths = step_lengths(run, process);
    let (step_ns, step_sd_ns) = mean_and_deviation(&lengths);
    let times = (alone && !devices.is_empty()).then(|| times(&devices));
    // A single step lasts until its GPU work is done, without the loading of code.
    let analysed = times.map(|t| t.window_ns as f64 / devices.len() as f64);
    let step_ns = analysed.filter(|_| lengths.len() == 1).or(step_ns);
    let collective_ns = sum(work
        .collectives
        .iter()
        .filter_map(|(_, id, _)| Some(profile.kernels.get(id.idx())?.span.ns())));
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
        kernels: work.kernels,
        kernel_time_ns: work.time_ns,
        times,
        collective_ns,
        collectives: collectives(run, work.collectives),
        waited_ns: None,
        caused_wait_ns: None,
    }
}

fn step_lengths(run: &Run, process: ProcessId) -> Vec<f64> {
    let own = run.process_steps.get(process.idx());
    let judged = own.into_iter().flatten().filter(|(_, step)| {
        let step = run.steps.get(step.idx());
        step.is_some_and(|s| !s.warmup)
    });
    judged.map(|(span, _)| span.ns() as f64).collect()
}

/// Mean and sample standard deviation.
fn mean_and_deviation(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let count = values.len() as f64;
    if values.is_empty() {
        return (None, None);
    }
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (Some(mean), None);
    }
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (Some(mean), Some((squares / (count - 1.0)).sqrt()))
}

fn gpu(run: &Run, devices: &[&DeviceTimeline]) -> Option<String> {
    let mut names: Vec<&str> = devices
        .iter()
        .filter_map(|d| run.profile.devices.get(d.device.idx())?.name.as_deref())
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

/// Step, kind and group size: collectives with the same key are compared in order.
type Alike<'a> = (Option<u64>, &'a str, Option<u64>);

/// Durations by step, kind and group, each in order of launch.
fn collectives(run: &Run, mut all: Vec<(i64, KernelId, &str)>) -> Vec<CollectiveTimes> {
    all.sort_unstable_by_key(|(launched, id, _)| (*launched, *id));
    let mut first: Option<Alike<'_>> = None;
    let mut series: BTreeMap<Alike<'_>, Vec<i64>> = BTreeMap::new();
    for (_, id, kind) in all {
        let (Some(kernel), Some(link)) =
            (run.profile.kernels.get(id.idx()), run.links.get(id.idx()))
        else {
            continue;
        };
        let step = link.step.and_then(|s| run.steps.get(s.idx()));
        let alike = (step.map(|s| s.number), kind, group_size(run, id));
        first.get_or_insert(alike);
        series.entry(alike).or_default().push(kernel.span.ns());
    }
    let mut room = MAX_DURATIONS;
    series
        .into_iter()
        .map(|(alike, mut ns)| {
            let (step, kind, group_size) = alike;
            let count = ns.len() as u64;
            ns.truncate(room);
            room -= ns.len();
            CollectiveTimes {
                step,
                kind: kind.to_owned(),
                group_size,
                count,
                holds_first: first == Some(alike),
                ns,
            }
        })
        .collect()
}

/// Number of ranks that take part, which newer traces of torch.profiler have.
fn group_size(run: &Run, kernel: KernelId) -> Option<u64> {
    let site = run.links.get(kernel.idx())?.site?;
    let site = run.sites.get(site.idx())?;
    [site.args, site.message]
        .into_iter()
        .flatten()
        .filter_map(|args| run.args.get(args.idx())?.get(usize::MAX, "Group size"))
        .find_map(|size| match size {
            crate::correlate::ArgValue::Int(size) => u64::try_from(*size).ok().filter(|&n| n > 0),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collective_kinds_are_found_in_names() {
        for (name, wanted) in [
            ("all_reduce", Some("all_reduce")),
            ("_allgather_base", Some("all_gather")),
            ("nccl:reduce_scatter", Some("reduce_scatter")),
            ("all_to_all", Some("all_to_all")),
            ("reduce", Some("reduce")),
            ("send_recv", None),
            ("record_param_comms", None),
        ] {
            assert_eq!(kind(name), wanted, "{name}");
        }
    }

    #[test]
    fn one_step_has_no_deviation() {
        assert_eq!(mean_and_deviation(&[]), (None, None));
        assert_eq!(mean_and_deviation(&[4.0]), (Some(4.0), None));
        assert_eq!(
            mean_and_deviation(&[2.0, 4.0]),
            (Some(3.0), Some(2.0_f64.sqrt()))
        );
    }
}
