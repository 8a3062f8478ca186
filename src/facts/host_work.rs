//! What the host works without waiting for the GPU: however fast the GPU is, steps do not become shorter than that.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fact::{Answer, FactEntry, facts};
use super::range_paths::by_string;
use super::table::{FactTable, Runs};
use crate::correlate::{DeviceTimeline, GapCause, Run};
use crate::profile::{ApiCall, ApiClass, DeviceId, ProcessId, Profile, Span, SpanSums};

/// In a longer pause between two of its calls, a thread may wait for another one, in ns.
const PAUSE_NS: i64 = 500_000;
/// A longer call may wait for the GPU, even if it launches a kernel, in ns.
const CALL_NS: i64 = 20_000;

/// Share of the host's work, as recorded, that it needs where nothing is recorded, at least. Measured with `torch.profiler`
/// on an H100, with recording and without: 0.55 (T5, decoding), 0.59 (GPT-2, decoding), 0.63 (LoRA), 0.68 (BERT).
pub(crate) const UNRECORDED_WORK: f64 = 0.6;

/// The work of the threads that launch kernels. What may be waiting is not part of it, so it is too little rather than
/// too much. As long as it is without a recording, where that is known.
#[derive(Debug, Default)]
pub(super) struct HostWork {
    /// The analyzed time without the work of the host, summed over devices, in ns; `None` where several processes share
    /// a device.
    pub(super) slack_ns: Option<f64>,
    /// Per kernel: the work since the call before its launch, with the launch, in ns. 0 in a CUDA graph.
    pub(super) of_kernels: Vec<f64>,
}

impl HostWork {
    /// `None` if no calls were recorded, or if recording them slowed the host so much that it says little.
    pub(super) fn of(run: &Run) -> Option<HostWork> {
        let profile = &run.profile;
        if !profile.recorded.api_calls || run.unreliable_idle.is_some() {
            return None;
        }
        let work = work_of_calls(run);
        let devices = run.timeline.devices.iter();
        let processes = processes_of_devices(profile);
        let slack = devices.map(|device| {
            let process = processes.get(&device.device).copied().flatten()?;
            let work = work_of_process(profile, &work, process);
            Some(slack_ns(device, work, processes.len() == 1) as f64)
        });
        let slack: Option<f64> = slack.sum();
        let share = unrecorded_share(run);
        let kernels = profile.kernels.iter().zip(&run.links);
        let of_kernels = kernels.map(|(kernel, link)| {
            let launch = link.launch.filter(|_| kernel.captured.is_none());
            let work = launch.and_then(|call| work.get(call.idx()));
            work.map_or(0.0, |work| work.ns() as f64 * share)
        });
        Some(HostWork {
            slack_ns: slack.map(|ns| ns * share),
            of_kernels: of_kernels.collect(),
        })
    }
}

/// The share of the analyzed time that steps take without a recording. The host is taken to work for as large a part
/// of it.
fn unrecorded_share(run: &Run) -> f64 {
    let devices = || run.timeline.devices.iter();
    let recorded: i64 = devices().map(DeviceTimeline::analysed_ns).sum();
    let unrecorded: i64 = devices().map(DeviceTimeline::unrecorded_ns).sum();
    unrecorded as f64 / recorded.max(1) as f64
}

/// Per call: the work of its thread since its last call, with the call itself if it does not wait.
fn work_of_calls(run: &Run) -> Vec<Span> {
    let profile = &run.profile;
    // Whether a call of this name asks the GPU how far it is.
    let asks = by_string(run, |name| name.contains("Query"));
    // Per thread: when its last call ended, and whether that was such a call.
    let mut last: Vec<Option<(i64, bool)>> = vec![None; profile.threads.len()];
    let work = profile.calls.iter().map(|call| {
        let is_query = asks.get(call.name.idx()) == Some(&true);
        let before = last.get(call.thread.idx()).copied().flatten();
        let ended = before.map_or(call.span.end, |(end, _)| end.max(call.span.end));
        if let Some(last) = last.get_mut(call.thread.idx()) {
            *last = Some((ended, is_query));
        }
        let pause = before.filter(|(end, was_query)| {
            !is_query && !was_query && (0..=PAUSE_NS).contains(&(call.span.start - end))
        });
        let may_wait = matches!(call.class, ApiClass::Sync | ApiClass::CopySync);
        let short = !is_query && !may_wait && call.span.ns() <= CALL_NS;
        Span {
            start: pause.map_or(call.span.start, |(end, _)| end),
            end: if short {
                call.span.end
            } else {
                call.span.start
            },
        }
    });
    work.collect()
}

/// The process that runs kernels on each device; `None` where there are several.
fn processes_of_devices(profile: &Profile) -> FxHashMap<DeviceId, Option<ProcessId>> {
    let mut processes: FxHashMap<DeviceId, Option<ProcessId>> = FxHashMap::default();
    for kernel in &profile.kernels {
        let known = processes
            .entry(kernel.device)
            .or_insert(Some(kernel.process));
        *known = known.filter(|process| *process == kernel.process);
    }
    processes
}

/// What the threads of a process that launch kernels work, in time order.
fn work_of_process(profile: &Profile, work: &[Span], process: ProcessId) -> Vec<Span> {
    let of_process = |call: &&ApiCall| {
        let thread = profile.thread(call.thread);
        thread.is_some_and(|thread| thread.process == process)
    };
    let launches = |call: &&ApiCall| {
        let class = call.class;
        matches!(class, ApiClass::Launch | ApiClass::GraphLaunch) && of_process(call)
    };
    let launching: FxHashSet<_> = (profile.calls.iter().filter(launches))
        .map(|call| call.thread)
        .collect();
    let calls = profile.calls.iter().zip(work);
    let calls = calls.filter(|(call, work)| launching.contains(&call.thread) && work.ns() > 0);
    Span::union(calls.map(|(_, work)| *work).collect())
}

/// The analyzed time of a device in which its host may wait for it. `alone`: no other device is used.
fn slack_ns(device: &DeviceTimeline, mut work: Vec<Span>, alone: bool) -> i64 {
    // While the GPU idles, the host does something else, also where a wait returns only some time after the GPU is done;
    // with several devices it may wait for another one.
    let host_acts = |cause: GapCause| match cause {
        GapCause::HostLate | GapCause::HostBusy | GapCause::DataLoading => true,
        GapCause::AfterSync | GapCause::BlockingCopy => alone,
        _ => false,
    };
    let gaps = device.gaps.iter().filter(|gap| host_acts(gap.cause));
    work.extend(gaps.map(|gap| gap.span));
    let work = SpanSums::of(Span::union(work).into_iter());
    let excluded = device.excluded.iter().map(|span| work.ns_in(*span));
    let excluded = excluded.fold(0, i64::saturating_add);
    let works = work.ns_in(device.span).saturating_sub(excluded);
    device.analysed_ns().saturating_sub(works).max(0)
}

/// The launches that fit into the time in which the host may wait for the GPU, at the mean work for one.
fn launches_that_fit(table: &FactTable<'_>) -> Option<f64> {
    let run = &table.costed.run;
    let kernels = run.profile.kernels.iter().zip(&run.links);
    let launches = kernels.filter(|(kernel, link)| {
        link.site.is_some() && link.launch.is_some() && kernel.captured.is_none()
    });
    let work: f64 = table.host_ns.iter().sum();
    (work > 0.0).then_some(table.totals().host_slack_ns? * launches.count() as f64 / work)
}

pub(super) const RUN_ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Launches that the host could make besides in the time in which it may wait for the GPU, as those of the
    /// run are on average; silent where that is unknown
    "run.launches_that_fit": DOUBLE => |t| Answer::or_silent(launches_that_fit(t)),
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::estimate_costs;
    use crate::facts::{FactTable, MemberKind};
    use crate::profile::ThreadId;

    const MS: i64 = 1_000_000;

    /// Launches at these times; each call takes 5 us, its kernel begins 10 us after it and takes `kernel_us`.
    fn launches(starts_us: &[i64], kernel_us: i64) -> ProfileBuilder {
        let mut b = ProfileBuilder::new();
        for start in starts_us {
            let kernel = b.launch(start * 1_000);
            let span = &mut b.profile.kernels[kernel].span;
            span.start = (start + 10) * 1_000;
            span.end = span.start + kernel_us * 1_000;
            b.profile.calls.last_mut().unwrap().span.end = (start + 5) * 1_000;
        }
        b.profile.recorded.api_calls = true;
        b
    }

    fn slack_us(b: ProfileBuilder) -> Option<f64> {
        let work = HostWork::of(&b.run())?;
        Some(work.slack_ns? / 1e3)
    }

    #[test]
    fn time_from_call_to_call_is_work_of_the_host() {
        let work = HostWork::of(&launches(&[0, 100], 100).run()).unwrap();
        assert_eq!(work.of_kernels, [5e3, 100e3]);
        // The GPU works from 10 to 210 us, the host until 105 us.
        assert_eq!(work.slack_ns, Some(105e3));
        // A launch comes late, and its kernel begins 10 us after it.
        let late = HostWork::of(&launches(&[0, 100], 50).run()).unwrap();
        assert_eq!(late.slack_ns, Some(50e3));
    }

    #[test]
    fn what_may_be_waiting_is_not_work() {
        // In a pause of more than 0.5 ms a thread may wait for another one.
        assert_eq!(slack_us(launches(&[0, 505], 505)), Some(510.0));
        assert_eq!(slack_us(launches(&[0, 506], 505)), Some(1_006.0));
        // Calls of more than 20 us, those that wait however shortly, and those that ask how far the GPU is.
        for (name, us, expected) in [
            ("cudaMalloc", 20, 105.0),
            ("cudaMalloc", 21, 126.0),
            ("cudaStreamSynchronize", 5, 110.0),
            ("cudaMemcpy", 5, 110.0),
            ("cudaMemcpyAsync", 5, 105.0),
            ("cudaEventQuery", 5, 195.0),
        ] {
            let mut b = launches(&[0, 100], 100);
            b.call(ThreadId(0), name, 45_000, 0).span.end += us * 1_000 - 1;
            b.profile.calls.sort_by_key(|call| call.span.start);
            assert_eq!(slack_us(b), Some(expected), "{name} {us}");
        }
    }

    #[test]
    fn a_wait_that_returns_after_the_gpu_is_done_is_not_all_for_the_gpu() {
        let waiting = |end_us: i64, devices: u32| {
            let mut b = launches(&[0, 130, 131], 100);
            b.profile.kernels[2].device = DeviceId(devices - 1);
            b.call(ThreadId(0), "cudaStreamSynchronize", 10_000, 0)
                .span
                .end = end_us * 1_000;
            b.profile.calls.sort_by_key(|call| call.span.start);
            slack_us(b).unwrap()
        };
        // The GPU is done at 110 us, and the next launch ends at 135 us.
        assert_eq!(waiting(110, 1), waiting(125, 1));
        // With two devices the host may wait for the other one.
        assert!(waiting(110, 2) < waiting(125, 2));
    }

    #[test]
    fn nothing_is_known_without_calls_or_with_two_processes_on_a_device() {
        let mut b = launches(&[0, 30], 10);
        b.profile.recorded.api_calls = false;
        assert_eq!(slack_us(b), None);
        let mut b = launches(&[0, 30], 10);
        b.profile.kernels[1].process = ProcessId(1);
        assert_eq!(slack_us(b), None);
    }

    fn launched(b: &mut ProfileBuilder, name: &str, time: i64) {
        let kernel = b.launch(time);
        b.profile.kernels[kernel].name = b.profile.strings.intern(name);
    }

    #[test]
    fn the_work_of_the_host_is_that_of_the_light_recording() {
        let recorded = |late: i64| {
            let mut b = ProfileBuilder::new();
            b.profile.recorded.api_calls = true;
            for step in 0..4 {
                let start = step * 10 * MS;
                launched(&mut b, "early", start);
                launched(&mut b, "late", start + late);
            }
            // The host works beside the first kernel of a step, not beside the second.
            for kernel in &mut b.profile.kernels {
                kernel.span.end = kernel.span.start + late / 2;
            }
            estimate_costs(b.run(), None)
        };
        let (light, detailed) = (recorded(100_000), recorded(200_000));
        let of_light = FactTable::new(&light);
        let timed = FactTable::new(&detailed).timed_by(&of_light);
        let host_ns = |table: &FactTable<'_>| -> f64 {
            let members = table.members(MemberKind::Site).into_iter();
            let of_sites = members.map(|member| table.affected(member).host_ns);
            of_sites.fold(0.0, f64::max)
        };
        assert_eq!(host_ns(&of_light), 4.0 * 100_000.0);
        assert_eq!(host_ns(&FactTable::new(&detailed)), 4.0 * 200_000.0);
        assert_eq!(host_ns(&timed), host_ns(&of_light));
        let slack = |table: &FactTable<'_>| table.totals().host_slack_ns.unwrap();
        assert!(slack(&FactTable::new(&detailed)) > slack(&of_light));
        assert_eq!(slack(&timed), slack(&of_light));
        // 8 launches, of which 4 take the host 0.1 ms longer.
        let fits = launches_that_fit(&of_light).unwrap();
        assert_eq!(
            fits,
            slack(&of_light) * 8.0 / of_light.host_ns.iter().sum::<f64>()
        );
    }

    #[test]
    fn idle_time_behind_a_wait_is_told_from_that_of_catching_up() {
        let mut b = ProfileBuilder::new();
        for step in 0..3 {
            let start = step * 10 * MS;
            b.range(&format!("step {step}"), start, start + 10 * MS);
            launched(&mut b, "short", start + 10_000);
            launched(&mut b, "long", start + 500_000);
            let span = &mut b.profile.kernels.last_mut().unwrap().span;
            span.end = span.start + 9_400_000;
            let end = span.end;
            b.call(ThreadId(0), "cudaStreamSynchronize", start + 510_000, 0)
                .span
                .end = end;
        }
        let costed = estimate_costs(b.run(), None);
        let table = FactTable::new(&costed);
        let gaps = table.members(MemberKind::Gap).into_iter();
        let gaps: Vec<_> = (gaps.map(|gap| table.affected(gap)))
            .filter(|gap| gap.catch_up_ns > 0.0)
            .collect();
        // In two steps a late launch follows the first kernel after the wait.
        let [gap] = gaps.as_slice() else {
            panic!("{gaps:?}")
        };
        assert_eq!(gap.catch_up_ns, 2.0 * (490_000.0 - 10.0));
        assert!(gap.idle_ns > gap.catch_up_ns + 2.0 * 100_000.0);
    }
}
