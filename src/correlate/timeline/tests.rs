use super::*;
use crate::correlate::GapCause;
use crate::correlate::launches::work_calls;
use crate::correlate::testing::ProfileBuilder;
use crate::profile::KernelId;
use crate::profile::{
    ApiCall, ApiClass, CallId, ConfigId, CopyKind, Device, GraphTrace, HostRange, Kernel,
    MemoryCopy, MemoryKind, Overhead, Process, RangeId, RangeKind, SerialNumber, SyncKind,
    Synchronization, Thread, ThreadId,
};

/// A profile under construction; work and its call share a correlation id.
struct Bench {
    profile: Profile,
    launches: Vec<Option<CallId>>,
    loading: Vec<RangeId>,
    excluded: Vec<ExcludedTime>,
    user_ranges: Vec<RangeId>,
    steps: Vec<Option<Span>>,
    correlation: u64,
}

fn span(start: i64, end: i64) -> Span {
    Span { start, end }
}

impl Bench {
    /// One process with one thread per device, numbered alike.
    fn new(devices: u32) -> Bench {
        let mut profile = Profile::new(&crate::read::NSYS_SQLITE, "hand made");
        for ordinal in 0..devices {
            profile.processes.push(Process {
                pid: u64::from(ordinal) + 1,
                rank: None,
                world_size: None,
                group_size: None,
            });
            profile.threads.push(Thread {
                process: ProcessId(ordinal),
                tid: 1,
            });
            profile.devices.push(Device {
                ordinal,
                ..Device::default()
            });
        }
        Bench {
            profile,
            launches: Vec::new(),
            loading: Vec::new(),
            excluded: Vec::new(),
            user_ranges: Vec::new(),
            steps: Vec::new(),
            correlation: 0,
        }
    }

    fn call(&mut self, name: &str, start: i64, end: i64) -> CallId {
        self.call_on(0, name, start, end)
    }

    fn call_on(&mut self, thread: u32, name: &str, start: i64, end: i64) -> CallId {
        self.correlation += 1;
        let call = ApiCall {
            span: span(start, end),
            thread: ThreadId(thread),
            correlation: SerialNumber::new(self.correlation),
            name: self.profile.strings.intern(name),
            class: ApiClass::of(name),
        };
        self.profile.calls.push(call);
        CallId::new(self.profile.calls.len() - 1)
    }

    fn kernel_on(&mut self, device: u32, name: &str, start: i64, end: i64, launch: Option<CallId>) {
        self.profile.kernels.push(Kernel {
            span: span(start, end),
            name: self.profile.strings.intern(name),
            device: DeviceId(device),
            process: ProcessId(device),
            stream: 7,
            context: 1,
            correlation: None,
            config: ConfigId(0),
            in_graph: false,
            captured: None,
        });
        self.launches.push(launch);
    }

    /// A kernel on device 0, launched by a call that takes `[launch, launch + 5]`.
    fn kernel(&mut self, start: i64, end: i64, launch: i64) {
        let call = self.call("cudaLaunchKernel", launch, launch + 5);
        self.kernel_on(0, "k", start, end, Some(call));
    }

    fn copy(&mut self, start: i64, end: i64, src: MemoryKind, kind: CopyKind) {
        self.profile.copies.push(MemoryCopy {
            span: span(start, end),
            device: DeviceId(0),
            process: ProcessId(0),
            stream: 8,
            correlation: SerialNumber::new(self.correlation),
            bytes: 100,
            kind,
            src,
            dst: MemoryKind::Device,
            captured: None,
        });
    }

    fn exclude(&mut self, span: Span, why: Exclusion) {
        self.excluded.push(ExcludedTime { span, why });
    }

    fn times(&self) -> DeviceTimes {
        let inputs = TimelineInputs {
            launches: &self.launches,
            work_calls: &work_calls(&self.profile),
            data_loading: &self.loading,
            compiling: &[],
            first_calls: &[],
            excluded: &self.excluded,
            steps: &self.steps,
            step_count: 0,
            user_ranges: &self.user_ranges,
        };
        times(&self.profile, &inputs, &|name| name.starts_with("nccl"))
    }

    fn device(&self) -> DeviceTimeline {
        self.times().timeline.devices.remove(0)
    }

    /// Causes of all gaps of device 0.
    fn causes(&self) -> Vec<GapCause> {
        self.device().gaps.iter().map(|g| g.cause).collect()
    }
}

fn alone(times: &DeviceTimes) -> Vec<i64> {
    times.exposed.iter().map(|e| e.alone_ns).collect()
}

#[test]
fn devices_that_do_next_to_nothing_are_left_out() {
    let mut b = Bench::new(2);
    b.kernel_on(0, "k", 0, 10_000, None);
    b.kernel_on(1, "k", 200, 299, None);
    let times = b.times();
    let devices = |times: &DeviceTimes| -> Vec<usize> {
        let devices = times.timeline.devices.iter();
        devices.map(|device| device.device.idx()).collect()
    };
    assert_eq!(devices(&times), [0]);
    assert_eq!(times.inside, [true, false]);
    let excluded = times.window.setup.excluded.iter();
    let excluded: Vec<_> = excluded.map(|w| (w.why, w.kernels, w.kernel_ns)).collect();
    assert_eq!(excluded, [(Exclusion::IdleDevice, 1, 99)]);
    // 1 % of the time of the other one.
    b.profile.kernels[1].span.end = 300;
    assert_eq!(devices(&b.times()), [0, 1]);
}

#[test]
fn computation_beside_nothing_but_communication_is_told_apart() {
    let mut b = Bench::new(1);
    b.kernel_on(0, "k", 0, 100, None);
    b.kernel_on(0, "ncclDevKernel_AllReduce", 40, 90, None);
    b.copy(80, 85, MemoryKind::Pinned, CopyKind::HtoD);
    b.kernel_on(0, "k", 50, 60, None);
    let beside: Vec<_> = (b.times().exposed.iter())
        .map(|e| e.beside_comm_ns)
        .collect();
    // Without the 10 ns of the other kernel and the 5 ns of the copy.
    assert_eq!(beside, [35, 0, 0]);
    assert_eq!(b.device().comm_slack_ns, 10);
}

#[test]
fn overlapping_work_is_counted_once() {
    let mut b = Bench::new(1);
    b.kernel_on(0, "k", 0, 100, None);
    b.kernel_on(0, "k", 50, 150, None);
    b.kernel_on(0, "ncclDevKernel_AllReduce", 140, 300, None);
    b.copy(250, 400, MemoryKind::Pinned, CopyKind::HtoD);
    b.copy(390, 420, MemoryKind::Pinned, CopyKind::HtoD);
    b.kernel_on(0, "k", 500, 500, None);
    b.kernel_on(0, "k", 600, 610, None);
    let d = b.device();
    assert_eq!(d.span, span(0, 610));
    assert_eq!((d.busy_ns, d.idle_ns()), (430, 180));
    assert_eq!((d.kernel_ns, d.copy_ns, d.comm_ns), (310, 170, 160));
    assert_eq!((d.exposed_copy_ns, d.exposed_comm_ns), (120, 150));
    let gaps: Vec<_> = d.gaps.iter().map(|g| (g.span, g.next)).collect();
    assert_eq!(
        gaps,
        [
            (span(420, 500), Some(KernelId(3))),
            (span(500, 600), Some(KernelId(4)))
        ]
    );
    assert_eq!(alone(&b.times()), [50, 40, 100, 0, 10]);
}

#[test]
fn devices_are_independent() {
    let mut b = Bench::new(3);
    b.kernel_on(0, "k", 0, 10, None);
    b.kernel_on(2, "k", 5, 100, None);
    b.kernel_on(0, "k", 20, 30, None);
    let times = b.times();
    let devices: Vec<_> = times
        .timeline
        .devices
        .iter()
        .map(|d| (d.device, d.span, d.busy_ns))
        .collect();
    assert_eq!(
        devices,
        [
            (DeviceId(0), span(0, 30), 20),
            (DeviceId(2), span(5, 100), 95)
        ],
        "a device that did nothing has no timeline"
    );
    assert_eq!(times.window.span, Some(span(0, 100)));
    assert_eq!(alone(&times), [10, 95, 10]);
}

#[test]
fn copies_before_the_first_kernel_are_set_up() {
    let mut b = Bench::new(1);
    b.call("cudaMemcpyAsync", 0, 90);
    b.copy(10, 60, MemoryKind::Pageable, CopyKind::HtoD);
    b.copy(50, 100, MemoryKind::Pinned, CopyKind::HtoD);
    b.copy(190, 250, MemoryKind::Pinned, CopyKind::HtoD);
    b.kernel_on(0, "k", 200, 210, None);
    let times = b.times();
    let setup = times.window.setup;
    assert_eq!((setup.ns, setup.copies, setup.pageable_copies), (200, 2, 1));
    assert_eq!((setup.copied_ns, setup.copied_bytes), (90, 200));
    let d = times.timeline.devices.first().unwrap();
    assert_eq!((d.span, d.copy_ns), (span(200, 250), 50));
}

#[test]
fn copies_behind_a_pause_after_the_last_kernel_are_not_analysed() {
    const MS: i64 = 1_000_000;
    let mut b = Bench::new(1);
    b.kernel_on(0, "k", 0, 100, None);
    // The result, at once; then a state that is saved.
    b.copy(200, 300, MemoryKind::Pinned, CopyKind::DtoH);
    b.copy(5 * MS, 6 * MS, MemoryKind::Pinned, CopyKind::DtoH);
    b.copy(8 * MS, 9 * MS, MemoryKind::Pinned, CopyKind::DtoH);
    let times = b.times();
    assert_eq!(times.window.span, Some(span(0, 300)));
    assert_eq!(times.window.copies, [true, false, false]);
    assert_eq!(times.window.setup.copies_after, 2);
    // Those in the range of the user in which the last kernel was launched belong to its work.
    b.profile.ranges.push(HostRange {
        span: span(0, 6 * MS),
        thread: ThreadId(0),
        kind: RangeKind::PushPop,
        text: b.profile.strings.intern("infer"),
        domain: None,
        seq: None,
        op_id: None,
        args: None,
    });
    b.user_ranges.push(RangeId(0));
    let times = b.times();
    assert_eq!(times.window.span, Some(span(0, 6 * MS)));
    assert_eq!(times.window.copies, [true, true, false]);
    // A step contains its copies, whenever they come.
    b.steps = vec![Some(span(0, 10 * MS))];
    let times = b.times();
    assert_eq!(times.window.span, Some(span(0, 10 * MS)));
    assert_eq!(times.window.copies, [true, true, true]);
    assert_eq!(times.window.setup.copies_after, 0);
}

#[test]
fn end_of_a_step_in_which_the_profiler_stops_is_not_analysed() {
    let mut b = Bench::new(1);
    b.kernel_on(0, "k", 0, 100, None);
    b.steps = vec![Some(span(0, 1_000))];
    assert_eq!(b.device().idle_ns(), 900);
    b.profile.overheads.push(Overhead {
        span: span(150, 1_000),
        thread: None,
        name: b.profile.strings.intern("flush"),
    });
    let times = b.times();
    let device = times.timeline.devices.first().unwrap();
    assert_eq!((device.idle_ns(), device.analysed_ns()), (0, 100));
    assert_eq!(times.window.setup.profiler_ns, 900);
}

#[test]
fn graph_traces_are_busy_time() {
    let mut b = Bench::new(1);
    for (start, end) in [(10, 500), (520, 600)] {
        b.profile.graphs.push(GraphTrace {
            exec: None,
            span: span(start, end),
            device: DeviceId(0),
            process: ProcessId(0),
            correlation: None,
        });
    }
    let times = b.times();
    let d = times.timeline.devices.first().unwrap();
    assert_eq!((d.graph_ns, d.kernel_ns, d.busy_ns), (570, 570, 570));
    assert_eq!((d.gaps.len(), times.window.span), (1, Some(span(10, 600))));
}

#[test]
fn without_gpu_work_there_is_no_window() {
    let mut b = Bench::new(1);
    b.call("cudaLaunchKernel", 0, 5);
    b.copy(0, 10, MemoryKind::Pinned, CopyKind::HtoD);
    let times = b.times();
    assert_eq!(times.window.span, None);
    assert!(times.timeline.devices.is_empty());
    assert_eq!(
        times.window.setup.copies, 1,
        "copies without any kernel only set up"
    );
}

#[test]
fn excluded_work_is_outside_the_window() {
    let mut b = Bench::new(1);
    b.kernel(10, 20, 0);
    b.kernel(60, 70, 30);
    b.kernel(100, 110, 90);
    b.exclude(span(i64::MIN, 40), Exclusion::WarmUp);
    let times = b.times();
    assert_eq!(times.inside, [false, false, true]);
    assert_eq!(times.window.span, Some(span(100, 110)));
    let excluded: Vec<_> = (times.window.setup.excluded.iter())
        .map(|e| (e.why, e.kernels, e.kernel_ns))
        .collect();
    assert_eq!(excluded, [(Exclusion::WarmUp, 2, 20)]);
    assert_eq!(alone(&times), [0, 0, 10]);
}

#[test]
fn excluded_time_inside_the_window_is_neither_busy_nor_idle() {
    let mut b = Bench::new(1);
    b.kernel(0, 10, 0);
    // Two candidates of a search, launched between 20 and 60.
    b.kernel(30, 40, 25);
    b.kernel(50, 70, 45);
    b.kernel(100, 110, 90);
    b.exclude(span(20, 60), Exclusion::AlgorithmSearch);
    let d = b.device();
    assert_eq!(d.span, span(0, 110));
    assert_eq!(d.excluded, [span(20, 70)]);
    assert_eq!((d.analysed_ns(), d.busy_ns, d.idle_ns()), (60, 20, 40));
    let gaps: Vec<_> = d.gaps.iter().map(|g| g.span).collect();
    assert_eq!(gaps, [span(10, 20), span(70, 100)]);
}

#[test]
fn the_window_begins_and_ends_with_the_steps() {
    let mut b = Bench::new(1);
    b.kernel(0, 10, 0);
    b.kernel(400, 500, 390);
    b.kernel(600, 700, 590);
    b.exclude(span(i64::MIN, 100), Exclusion::OutsideSteps);
    b.exclude(span(900, i64::MAX), Exclusion::OutsideSteps);
    b.steps = vec![Some(span(100, 900))];
    let times = b.times();
    assert_eq!(times.window.span, Some(span(100, 900)));
    let d = times.timeline.devices.first().unwrap();
    assert_eq!((d.analysed_ns(), d.busy_ns), (800, 200));
    let gaps: Vec<_> = d.gaps.iter().map(|g| g.span).collect();
    assert_eq!(gaps, [span(100, 400), span(500, 600), span(700, 900)]);
}

#[test]
fn work_launched_before_the_capture_belongs_to_earlier_steps() {
    let steps = |late_without_launch: usize| {
        let mut b = Bench::new(1);
        // The first two were launched before the capture began.
        b.kernel_on(0, "k", 110, 200, None);
        b.kernel_on(0, "k", 200, 300, None);
        b.kernel(300, 400, 120);
        for i in 0..40 {
            let start = 400 + 10 * i;
            match (i as usize) < late_without_launch {
                true => b.kernel_on(0, "k", start, start + 10, None),
                false => b.kernel(start, start + 10, 130 + i),
            }
        }
        b.exclude(span(i64::MIN, 100), Exclusion::OutsideSteps);
        b.exclude(span(900, i64::MAX), Exclusion::OutsideSteps);
        b.steps = vec![Some(span(100, 900))];
        b.times()
    };
    let times = steps(0);
    let d = times.timeline.devices.first().unwrap();
    // The time until they end is not analyzed.
    assert_eq!((d.busy_ns, d.analysed_ns()), (500, 600));
    assert_eq!(times.inside[..3], [false, false, true]);
    assert_eq!(times.window.setup.excluded[0].kernels, 2);
    // Where launches are missing all over, nothing is known about them.
    assert_eq!(steps(20).timeline.devices[0].busy_ns, 690);
}

#[test]
fn the_window_begins_after_the_wait_for_work_from_before_the_capture() {
    const MS: i64 = 1_000_000;
    let window = |copies: bool| {
        let mut b = Bench::new(1);
        b.call("hipMemcpyWithStream", 2 * MS, 460 * MS);
        if copies {
            b.copy(3 * MS, 459 * MS, MemoryKind::Pageable, CopyKind::HtoD);
        }
        b.kernel(463 * MS, 470 * MS, 462 * MS);
        b.exclude(span(i64::MIN, 0), Exclusion::OutsideSteps);
        b.steps = vec![Some(span(0, 475 * MS))];
        b.times().window.span.map(|window| window.start / MS)
    };
    assert_eq!(window(false), Some(460));
    assert_eq!(window(true), Some(0), "the copy itself took so long");
}

#[test]
fn late_launches_are_distinguished_from_waiting_kernels() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.kernel(200, 300, 150);
    b.kernel(350, 400, 250);
    b.kernel_on(0, "k", 500, 600, None);
    assert_eq!(
        b.causes(),
        [GapCause::HostLate, GapCause::Waiting, GapCause::Unknown]
    );
}

#[test]
fn a_long_time_without_launches_is_not_launch_overhead() {
    const MS: i64 = 1_000_000;
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.kernel(3 * MS, 3 * MS + 100, 3 * MS - 10);
    // Launched early, started late: the host did not cause the gap.
    b.kernel(9 * MS, 9 * MS + 100, 3 * MS + 200);
    assert_eq!(b.causes(), [GapCause::HostBusy, GapCause::Waiting]);
}

#[test]
fn work_that_waits_right_behind_an_allocation_waits_for_it() {
    const US: i64 = 1_000;
    let wait = |since: i64, starts: i64| {
        let mut b = Bench::new(1);
        b.kernel(10, 100 * US, 0);
        let allocation = b.call("cudaMalloc", 20 * US, 80 * US);
        b.kernel(starts, starts + US, 80 * US + since);
        let gap = b.device().gaps[0];
        (
            gap.cause,
            gap.call.filter(|call| *call == allocation).is_some(),
        )
    };
    assert_eq!(wait(20 * US, 800 * US), (GapCause::Allocation, true));
    // Other work may have been launched since, or the wait is no longer than that of any launch.
    assert_eq!(wait(150 * US, 900 * US), (GapCause::Waiting, false));
    assert_eq!(wait(20 * US, 150 * US), (GapCause::Waiting, false));
}

#[test]
fn gaps_after_synchronisation_are_attributed_to_it() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    let sync = b.call("cudaStreamSynchronize", 20, 105);
    b.kernel(200, 300, 150);
    let d = b.device();
    let gap = d.gaps.first().unwrap();
    assert_eq!((gap.cause, gap.call), (GapCause::AfterSync, Some(sync)));

    // A wait of one stream for another does not block the host.
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.call("cudaStreamWaitEvent", 20, 105);
    b.profile.syncs.push(Synchronization {
        span: span(20, 105),
        process: ProcessId(0),
        correlation: SerialNumber::new(b.correlation),
        kind: SyncKind::StreamWait,
    });
    b.kernel(200, 300, 150);
    assert_eq!(b.causes(), [GapCause::HostLate]);

    // A synchronization that ended before the gap has nothing to do with it; nor has another
    // process's, or one after the launch.
    let mut b = Bench::new(2);
    b.call("cudaDeviceSynchronize", 20, 90);
    b.kernel(10, 100, 0);
    b.call_on(1, "cudaDeviceSynchronize", 20, 120);
    b.kernel(200, 300, 150);
    b.call("cudaDeviceSynchronize", 160, 190);
    assert_eq!(b.causes(), [GapCause::HostLate]);

    // A record without a call row, on some thread of the process.
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.profile.syncs.push(Synchronization {
        span: span(20, 110),
        process: ProcessId(0),
        correlation: SerialNumber::new(999),
        kind: SyncKind::Stream,
    });
    b.kernel(200, 300, 150);
    assert_eq!(b.causes(), [GapCause::AfterSync]);
}

#[test]
fn gaps_after_copies_and_allocation_are_attributed_to_them() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.call("cudaMemcpyAsync", 20, 160);
    b.copy(95, 98, MemoryKind::Pageable, CopyKind::HtoD);
    b.kernel(200, 300, 170);
    let alloc = b.call("cudaMalloc", 305, 480);
    b.kernel(500, 600, 490);
    b.call("cudaMemcpyAsync", 605, 780);
    b.copy(595, 598, MemoryKind::Pinned, CopyKind::HtoD);
    b.kernel(800, 900, 790);
    let d = b.device();
    let causes: Vec<_> = d.gaps.iter().map(|g| g.cause).collect();
    assert_eq!(
        causes,
        [
            GapCause::BlockingCopy,
            GapCause::Allocation,
            GapCause::HostLate
        ]
    );
    assert_eq!(d.gaps.get(1).unwrap().call, Some(alloc));
}

#[test]
fn gaps_are_attributed_to_calls_of_another_launching_thread() {
    const US: i64 = 1_000;
    let cause = |launches: bool| {
        let mut b = Bench::new(1);
        b.profile.threads.push(Thread {
            process: ProcessId(0),
            tid: 2,
        });
        if launches {
            let launch = b.call_on(1, "cudaLaunchKernel", 0, 5);
            b.kernel_on(0, "k", 10, US, Some(launch));
        }
        b.kernel(US, 2 * US, US / 2);
        b.call_on(1, "cudaFree", 3 * US, 190 * US);
        b.kernel(200 * US, 210 * US, 200 * US - 10);
        b.device().gaps.last().map(|gap| gap.cause)
    };
    assert_eq!(cause(true), Some(GapCause::Allocation));
    // A thread that launches nothing, such as one that pins memory, delays no launch.
    assert_eq!(cause(false), Some(GapCause::HostLate));
}

#[test]
fn blocking_copies_to_the_host_are_synchronizations() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    let read = b.call("hipMemcpyWithStream", 20, 160);
    b.copy(100, 105, MemoryKind::Unknown, CopyKind::DtoH);
    b.kernel(200, 300, 170);
    b.call("hipMemcpyWithStream", 305, 480);
    b.copy(300, 305, MemoryKind::Unknown, CopyKind::HtoD);
    b.kernel(500, 600, 490);
    let d = b.device();
    let causes: Vec<_> = d.gaps.iter().map(|g| g.cause).collect();
    assert_eq!(causes, [GapCause::AfterSync, GapCause::BlockingCopy]);
    assert_eq!(d.gaps.first().unwrap().call, Some(read));
}

#[test]
fn calls_after_the_launch_are_not_the_cause() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.kernel(300, 400, 50);
    b.call("cudaMalloc", 90, 290);
    assert_eq!(b.causes(), [GapCause::Waiting]);
}

#[test]
fn a_copy_that_ends_a_gap_is_traced_to_its_call() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.call("cudaMemcpyAsync", 150, 160);
    b.copy(170, 180, MemoryKind::Pinned, CopyKind::HtoD);
    let d = b.device();
    let gap = d.gaps.first().unwrap();
    assert_eq!((gap.cause, gap.next), (GapCause::HostLate, None));
}

#[test]
fn data_loading_and_overhead_are_checked_first() {
    let mut b = Bench::new(1);
    b.kernel(10, 100, 0);
    b.call("cudaStreamSynchronize", 20, 105);
    b.profile.ranges.push(HostRange {
        span: span(110, 190),
        thread: ThreadId(0),
        kind: RangeKind::Annotation,
        text: b.profile.strings.intern("enumerate(DataLoader)#next"),
        domain: None,
        seq: None,
        op_id: None,
        args: None,
    });
    b.loading.push(RangeId(0));
    b.kernel(200, 300, 195);
    assert_eq!(b.causes(), [GapCause::DataLoading]);
    b.profile.overheads.push(Overhead {
        span: span(90, 180),
        thread: None,
        name: b.profile.strings.intern("flush"),
    });
    assert_eq!(b.causes(), [], "the profiler's own time is not analysed");
    assert_eq!(b.times().window.setup.profiler_ns, 100);
}

#[test]
fn a_long_first_launch_is_attributed_to_code_loading() {
    const MS: i64 = 1_000_000;
    let mut b = Bench::new(1);
    for i in 0..10 {
        b.kernel(i * 100 + 20, i * 100 + 90, i * 100);
    }
    b.call("cudaDeviceSynchronize", 950, 1_100);
    let slow = b.call("cudaLaunchKernel", 1_200, 900 * MS);
    b.kernel_on(0, "k", 901 * MS, 902 * MS, Some(slow));
    // As long, but the device was busy meanwhile: the queue was full.
    let full = b.call("cudaLaunchKernel", 901 * MS, 1_000 * MS);
    b.kernel_on(0, "k", 902 * MS, 1_000 * MS, None);
    b.kernel_on(0, "k", 1_001 * MS, 1_002 * MS, Some(full));
    let times = b.times();
    let gaps = &times.timeline.devices.first().unwrap().gaps;
    assert!(gaps.iter().all(|g| g.cause != GapCause::ModuleLoad));
    assert_eq!(times.window.setup.loading_ns, 901 * MS - 990);
    assert_eq!(times.window.setup.first_launch_ns, 900 * MS - 1_200);
    assert_eq!(gaps.last().unwrap().cause, GapCause::Waiting);
}

#[test]
fn loading_code_holds_back_what_was_launched_before() {
    const MS: i64 = 1_000_000;
    let mut b = Bench::new(1);
    for i in 0..10 {
        b.kernel(i * 100 + 20, i * 100 + 90, i * 100);
    }
    // Launched a moment after the device had become idle, and started 20 ms later.
    b.kernel(20 * MS, 21 * MS, 2_000);
    let call = b.call("cudaLaunchKernel", 3_000, 30 * MS);
    b.kernel_on(0, "new", 30 * MS, 31 * MS, Some(call));
    let times = b.times();
    let mut gaps = times.timeline.devices[0].gaps.iter();
    let analysed = gaps.any(|gap| gap.span.end == 20 * MS);
    assert!(!analysed, "set-up is not analysed");
    let loading_ns = times.window.setup.loading_ns;
    assert!(loading_ns >= 19 * MS, "{loading_ns}");
}

#[test]
fn work_that_was_launched_in_time_waited() {
    const US: i64 = 1_000;
    let mut b = Bench::new(1);
    b.kernel(20, 90, 0);
    b.kernel(900 * US, 901 * US, 10 * US);
    let d = b.device();
    let gap = d.gaps.first().unwrap();
    assert_eq!(gap.cause, GapCause::Waiting);
    assert_eq!(gap.reliable_ns, 890 * US, "from the launch on");
    // An ordinary launch on an idle device: its latency is the host's.
    let mut b = Bench::new(1);
    b.kernel(20, 90, 0);
    b.kernel(30 * US, 31 * US, 10 * US);
    assert_eq!(b.causes(), [GapCause::HostLate]);
}

#[test]
fn invalid_times_do_not_break_the_invariants() {
    let mut b = Bench::new(1);
    let launch = b.call("cudaLaunchKernel", i64::MAX, i64::MIN);
    b.kernel_on(0, "k", i64::MIN, i64::MAX, None);
    b.kernel_on(0, "k", 10, -10, Some(launch));
    b.kernel_on(7, "k", 0, 10, None);
    b.kernel_on(0, "k", i64::MAX, i64::MAX, None);
    b.copy(5, -5, MemoryKind::Pageable, CopyKind::HtoD);
    b.profile.overheads.push(Overhead {
        span: span(i64::MIN, i64::MAX),
        thread: Some(ThreadId(9)),
        name: b.profile.strings.intern("o"),
    });
    b.exclude(span(10, -10), Exclusion::WarmUp);
    assert_eq!(b.times().inside.len(), 4);
}

proptest::proptest! {
    /// Busy and idle time sum to the span; gaps are disjoint and in order; exposed time is at most busy
    /// time.
    #[test]
    fn figures_agree_with_each_other(
        rows in proptest::collection::vec((0_i64..200, 0_i64..40, 0_u8..4), 1..40)
    ) {
        let mut b = Bench::new(1);
        for (start, length, kind) in rows {
            let end = start + length;
            match kind {
                0 => b.kernel_on(0, "nccl", start, end, None),
                1 => b.copy(start, end, MemoryKind::Pinned, CopyKind::HtoD),
                _ => b.kernel_on(0, "k", start, end, None),
            }
        }
        let times = b.times();
        for d in &times.timeline.devices {
            let idle: i64 = d.gaps.iter().map(|g| g.span.ns()).sum();
            proptest::prop_assert_eq!(d.busy_ns + idle, d.span.ns());
            // Counts again, point by point.
            let count = |test: &dyn Fn(i64) -> bool| {
                (d.span.start..d.span.end).filter(|t| test(*t)).count() as i64
            };
            let kernel = |t: i64| b.profile.kernels.iter().any(|k| k.span.contains(t));
            let copy = |t: i64| b.profile.copies.iter().any(|c| c.span.contains(t));
            proptest::prop_assert_eq!(d.busy_ns, count(&|t| kernel(t) || copy(t)));
            proptest::prop_assert_eq!(d.exposed_copy_ns, count(&|t| copy(t) && !kernel(t)));
            for pair in d.gaps.windows(2) {
                let [a, b] = pair else { continue };
                proptest::prop_assert!(a.span.end <= b.span.start);
            }
            let alone: i64 = alone(&times).iter().sum();
            proptest::prop_assert!(alone <= d.kernel_ns);
            proptest::prop_assert!(times.exposed.iter().all(|e| e.alone_ns >= 0 && e.beside_comm_ns >= 0));
        }
    }
}

#[test]
fn waiting_before_the_only_step_is_not_relied_on() {
    // Launched early in the step; nothing shows why the GPU begins so late.
    let waited = |steps: i64| {
        let mut b = ProfileBuilder::new();
        for step in 0..steps {
            let start = step * 1_000_000;
            b.range(&format!("step {step}"), start, start + 900_000);
            b.launch(start + 10_000);
            let kernel = b.profile.kernels.last_mut().unwrap();
            kernel.span = Span {
                start: start + 800_000,
                end: start + 890_000,
            };
        }
        let run = b.run();
        let gap = run.timeline.devices[0].gaps[0];
        assert_eq!((gap.span.start, gap.cause), (0, GapCause::Waiting));
        gap.reliable_ns
    };
    assert_eq!(waited(1), 0);
    assert_eq!(waited(2), 800_000);
}

#[test]
fn waiting_inside_graphs_is_unexplained() {
    let run = |in_graph: bool| {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        b.launch(20_000);
        b.profile.kernels[1].span = Span {
            start: 500_000,
            end: 500_010,
        };
        b.profile.kernels[1].in_graph = in_graph;
        b.run()
    };
    let (eager, graph) = (run(false), run(true));
    let [gap] = eager.timeline.devices[0].gaps[..] else {
        panic!("one gap")
    };
    assert_eq!(gap.reliable_ns, gap.span.ns());
    assert_eq!(eager.unexplained_idle_ns, 0);
    assert_eq!(graph.unexplained_idle_ns, gap.span.ns());
    assert_eq!(graph.timeline.devices[0].gaps[0].reliable_ns, 0);
}

/// The only gap of a program that launches at 0 and then makes these calls, the last of which launches again.
fn gap_after(calls: &[(&str, i64, i64)]) -> Gap {
    let mut b = ProfileBuilder::new();
    b.launch(0);
    for (at, (name, start, end)) in (10..).zip(calls) {
        b.call(ThreadId(0), name, *start, at).span.end = *end;
    }
    let (_, start, end) = calls.last().unwrap();
    let last = 10 + calls.len() as u64 - 1;
    b.kernel(ProcessId(0), (*end).max(start + 100), last);
    let run = b.run();
    let [gap] = run.timeline.devices[0].gaps[..] else {
        panic!("one gap")
    };
    gap
}

#[test]
fn launch_that_is_under_way_for_most_of_a_gap_is_its_cause() {
    let sync = ("cudaDeviceSynchronize", 50, 40_000);
    for launch in ["cudaGraphLaunch", "cudaLaunchKernel"] {
        let gap = gap_after(&[sync, (launch, 60_000, 900_000)]);
        assert_eq!(gap.cause, GapCause::SlowLaunch, "{launch}");
        assert_eq!(gap.call, gap.ended_by);
        let gap = gap_after(&[(launch, 600_000, 900_000)]);
        assert_eq!(gap.cause, GapCause::HostLate, "{launch}: launched late");
        let gap = gap_after(&[(launch, 1_000, 90_000)]);
        assert_ne!(gap.cause, GapCause::SlowLaunch, "{launch}: a usual one");
    }
    let gap = gap_after(&[("cudaMemcpyAsync", 60_000, 900_000)]);
    assert_ne!(gap.cause, GapCause::SlowLaunch);
}

#[test]
fn short_wait_for_an_idle_device_is_no_cause() {
    let launch = ("cudaLaunchKernel", 900_000, 910_000);
    let cause =
        |from: i64, to: i64| gap_after(&[("cudaDeviceSynchronize", from, to), launch]).cause;
    assert_eq!(cause(50, 20_000), GapCause::AfterSync);
    assert_eq!(cause(400_000, 410_000), GapCause::HostLate);
    assert_eq!(
        cause(400_000, 600_000),
        GapCause::AfterSync,
        "it waited for something"
    );
}

#[test]
fn gaps_between_nodes_of_one_graph_launch_count_for_nothing() {
    // The second node belongs to the launch of the first one; its launch is not in the file.
    let run = |in_graph: bool| {
        let mut b = ProfileBuilder::new();
        for start in [0, 2_000_000] {
            let node = b.kernel(ProcessId(0), start, 5);
            b.profile.kernels[node].in_graph = in_graph;
        }
        b.run()
    };
    let (graph, eager) = (run(true), run(false));
    assert_eq!(graph.timeline.devices[0].reliable_idle_ns(), 0);
    assert_eq!(graph.unexplained_idle_ns, 2_000_000 - 10);
    assert_eq!(eager.timeline.devices[0].reliable_idle_ns(), 2_000_000 - 10);
}

#[test]
fn launch_of_a_graph_whose_nodes_are_recorded_counts_for_nothing() {
    let mut b = ProfileBuilder::new();
    b.launch(0);
    b.call(ThreadId(0), "cudaGraphLaunch", 200, 9).span.end = 9_000_000;
    b.kernel(ProcessId(0), 8_900_000, 9);
    let run = b.run();
    let [gap] = run.timeline.devices[0].gaps[..] else {
        panic!("one gap")
    };
    assert_eq!((gap.cause, gap.reliable_ns), (GapCause::SlowLaunch, 0));
    assert!(run.graph_launch_idle_ns > 8_000_000, "{gap:?}");
    assert_eq!(run.unexplained_idle_ns, 0);
}

#[test]
fn idle_start_of_the_first_step_counts_as_much_as_that_of_later_ones() {
    // Each step prepares for 8 ms and then computes for `busy`; the host does not wait for the GPU.
    let program = |busy: i64, steps: i64| {
        const MS: i64 = 1_000_000;
        let mut b = ProfileBuilder::new();
        for step in 0..steps {
            let start = step * 9 * MS;
            b.range(&format!("step {step}"), start, start + 9 * MS);
            let kernel = b.launch(start + 8 * MS);
            b.profile.kernels[kernel].span.end += busy * MS;
        }
        let run = b.run();
        let device = &run.timeline.devices[0];
        assert_eq!(device.span.start, 0);
        (device.gaps[0].reliable_ns + MS / 2) / MS
    };
    // The GPU works for 5 ms of the next preparation.
    assert_eq!(program(6, 4), 3);
    assert_eq!(program(1, 4), 8, "it idles as long in each step");
    assert_eq!(program(6, 1), 8, "nothing to compare with");
}
