//! Figures of real captures, each also computed with SQL and a plain union of intervals.

use super::*;
use crate::correlate::GapCause;
use crate::correlate::launches::work_calls;
use crate::profile::CallId;

/// The capture's profile and times, with kernels joined to their launches; `None` without captures.
fn times_of(file: &str) -> Option<(Profile, DeviceTimes)> {
    let path = crate::shared::profile(file)?;
    let profile = crate::read::open(&path, &crate::read::NoProgress).unwrap();
    let mut calls = FxHashMap::default();
    for (index, call) in profile.calls.iter().enumerate() {
        let process = profile.thread(call.thread).unwrap().process;
        calls.insert((process, call.correlation), CallId::new(index));
    }
    let launches: Vec<_> = profile
        .kernels
        .iter()
        .map(|k| calls.get(&(k.process, Some(k.correlation?))).copied())
        .collect();
    let inputs = TimelineInputs {
        launches: &launches,
        work_calls: &work_calls(&profile),
        data_loading: &[],
        compiling: &[],
        first_calls: &[],
        excluded: &[],
        steps: &[],
        step_count: 0,
        user_ranges: &[],
    };
    let times = times(&profile, &inputs, &|name| name.starts_with("nccl"));
    Some((profile, times))
}

/// `(span, busy, kernel, exposed copy, exposed communication, graph, gaps, longest gap)` per device.
type Figures = (i64, i64, i64, i64, i64, i64, usize, i64);

fn figures(times: &DeviceTimes) -> Vec<Figures> {
    times
        .timeline
        .devices
        .iter()
        .map(|d| {
            (
                d.analysed_ns(),
                d.busy_ns,
                d.kernel_ns,
                d.exposed_copy_ns,
                d.exposed_comm_ns,
                d.graph_ns,
                d.gaps.len(),
                d.gaps.iter().map(|g| g.span.ns()).max().unwrap_or_default(),
            )
        })
        .collect()
}

#[test]
fn weight_streaming_is_not_idle_time() {
    let Some((_, times)) = times_of("h100_2gpu_1s.sqlite") else {
        return;
    };
    assert_eq!(
        figures(&times),
        [
            (
                966_676_672,
                960_120_722,
                22_385_163,
                937_720_775,
                0,
                0,
                2182,
                761_862
            ),
            (
                966_492_529,
                960_045_840,
                22_444_359,
                937_587_049,
                0,
                0,
                2182,
                731_904
            ),
        ]
    );
    // The host waits 857 ms in synchronizing calls, but the GPU is busy meanwhile.
    for device in &times.timeline.devices {
        let refill: i64 = device
            .gaps
            .iter()
            .filter(|g| g.cause == GapCause::AfterSync)
            .map(|g| g.span.ns())
            .sum();
        assert!(refill < 1_000_000, "{refill}");
    }
    assert_eq!(
        times.window.setup.first_launch_ns, 0,
        "a full queue is no code being loaded"
    );
}

#[test]
fn two_ranks_are_two_devices() {
    let Some((_, times)) = times_of("mfu_2gpu_before.sqlite") else {
        return;
    };
    assert_eq!(
        figures(&times),
        [
            (
                299_848_812 - 2_433_526,
                273_817_787,
                270_863_484,
                2_844_479,
                17_172_652,
                0,
                2634 - 1,
                4_492_845
            ),
            (
                298_661_551 - 75_584,
                267_275_916,
                264_324_724,
                2_847_608,
                8_229_100,
                0,
                2662 - 1,
                1_099_069
            ),
        ]
    );
}

#[test]
fn model_loading_is_set_up_time() {
    let Some((profile, times)) = times_of("cs336zx_2_7B_nvtx.sqlite") else {
        return;
    };
    let setup = &times.window.setup;
    // First launches of 12 kernels took 1 to 30 ms.
    assert_eq!(setup.loading_ns, 121_070_123);
    assert_eq!(setup.copies as usize, profile.copies.len());
    assert_eq!((setup.copies, setup.pageable_copies), (294, 292));
    assert_eq!(
        (setup.copied_bytes, setup.copied_ns),
        (13_627_435_008, 3_156_475_895)
    );
    assert_eq!(
        figures(&times),
        [(
            3_936_821_144 - 121_070_123,
            3_408_380_989,
            3_408_380_989,
            0,
            0,
            0,
            7327 - 12,
            190_172_452
        )]
    );
}

#[test]
fn work_inside_graphs_is_busy_time() {
    let Some((_, times)) = times_of("cs336zx_2_7B_compile_ro.sqlite") else {
        return;
    };
    assert_eq!(
        figures(&times),
        [(
            7_811_607_251,
            7_811_219_965,
            7_811_219_965,
            0,
            0,
            7_811_141_695,
            39,
            209_146
        )]
    );
}

#[test]
fn a_first_launch_of_900_ms_is_named() {
    let Some((_, times)) = times_of("mmagic.sqlite") else {
        return;
    };
    let device = times.timeline.devices.first().unwrap();
    assert!(times.window.setup.loading_ns >= 900_208_810);
    assert_eq!(times.window.setup.first_launch_ns, 899_674_969);
    // Of 354 gaps, code was loaded in nine.
    assert_eq!((device.busy_ns, device.gaps.len()), (4_145_560, 345));
}
