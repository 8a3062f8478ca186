use super::*;
use crate::correlate::{Run, Vocabulary, correlate};
use crate::profile::OsCallClass;
use crate::profile::{
    ApiCall, ApiClass, CpuSample, HostRange, OsCall, Process, ProcessId, SerialNumber, Thread,
    TimedSample,
};

const THREAD: ThreadId = ThreadId(0);

fn span(start: i64, end: i64) -> Span {
    Span { start, end }
}

/// A profile of one thread.
fn profile() -> Profile {
    let mut profile = Profile::new(&crate::read::NSYS_SQLITE, "made up");
    profile.processes.push(Process {
        pid: 1,
        rank: None,
        world_size: None,
    });
    profile.threads.push(Thread {
        process: ProcessId(0),
        tid: 1,
    });
    profile
}

fn call(profile: &mut Profile, start: i64, end: i64, name: &str) {
    let name = profile.strings.intern(name);
    profile.calls.push(ApiCall {
        span: span(start, end),
        thread: THREAD,
        correlation: SerialNumber::new(1),
        name,
        class: ApiClass::of(profile.strings.get(name)),
    });
}

fn os_call(profile: &mut Profile, start: i64, end: i64, name: &str) {
    let name = profile.strings.intern(name);
    profile.host.has_os_calls = true;
    profile.host.os_calls.push(OsCall {
        thread: THREAD,
        span: span(start, end),
        name: Some(name),
        class: OsCallClass::of(profile.strings.get(name)),
        bytes: 10,
        caller: None,
    });
}

fn python(profile: &mut Profile, start: i64, end: i64, name: &str) {
    let text = profile.strings.intern(name);
    profile.ranges.push(HostRange {
        span: span(start, end),
        thread: THREAD,
        kind: RangeKind::Python,
        text,
        domain: None,
        seq: None,
        op_id: None,
        args: None,
    });
}

/// The parts of a gap from 0 to 1000 whose work was launched from 880 to 900, as `(name, ns)`.
fn divided(profile: &Profile) -> Vec<(String, i64)> {
    let pause = Pause {
        thread: THREAD,
        span: span(0, 1000),
        launched: 900,
    };
    let parts = divide(profile, &[pause], &Classes::default()).remove(0);
    assert_eq!(parts.sum(|_| true).ns, 1000);
    let text = |id: StrId| profile.text(id).to_owned();
    let name = |part: &HostPart| match part {
        HostPart::OsCall { name, inside, .. } => {
            let inside = inside.map(|id| format!(" in {}", text(id)));
            format!(
                "{}{}",
                name.map_or("?".into(), text),
                inside.unwrap_or_default()
            )
        }
        HostPart::OffCpu => "off".into(),
        HostPart::CudaCall(name)
        | HostPart::Function { name, .. }
        | HostPart::Sampled { place: name, .. } => text(*name),
        HostPart::Rest => "rest".into(),
        HostPart::Launched => "launched".into(),
    };
    let mut rows: Vec<_> = parts
        .parts
        .iter()
        .map(|(p, sum)| (name(p), sum.ns))
        .collect();
    rows.sort();
    rows
}

fn rows(rows: &[(&str, i64)]) -> Vec<(String, i64)> {
    rows.iter()
        .map(|(name, ns)| ((*name).to_owned(), *ns))
        .collect()
}

#[test]
fn the_innermost_recorded_activity_counts() {
    let mut profile = profile();
    call(&mut profile, 100, 300, "cudaMalloc");
    call(&mut profile, 150, 200, "cuMemAlloc");
    call(&mut profile, 880, 900, "cudaLaunchKernel");
    os_call(&mut profile, -50, 20, "read");
    os_call(&mut profile, 120, 220, "ioctl");
    os_call(&mut profile, 950, 2000, "read");
    profile.host.off_cpu.push((THREAD, span(200, 260)));
    profile.host.off_cpu.push((THREAD, span(400, 450)));
    let expected = [
        ("cudaLaunchKernel", 20),
        ("cudaMalloc", 60),
        ("ioctl in cudaMalloc", 100),
        ("launched", 100),
        ("off", 90),
        ("read", 20),
        ("rest", 610),
    ];
    assert_eq!(divided(&profile), rows(&expected));
}

#[test]
fn functions_of_the_program_are_named_instead_of_libraries() {
    let mut profile = profile();
    python(&mut profile, -100, 800, "runpy.py(1): run");
    python(&mut profile, -90, 700, "app/train.py(10): main");
    python(&mut profile, 100, 500, "app/data.py(3): load");
    python(
        &mut profile,
        200,
        300,
        "torch/nn/modules/module.py(7): __call__",
    );
    python(&mut profile, 210, 290, "<built-in method sum>");
    python(&mut profile, 400, 450, "Python GC");
    let expected = [
        ("Python GC", 50),
        ("app/data.py(3): load", 350),
        ("app/train.py(10): main", 300),
        ("launched", 100),
        ("rest", 100),
        ("runpy.py(1): run", 100),
    ];
    assert_eq!(divided(&profile), rows(&expected));
}

#[test]
fn samples_count_only_outside_calls() {
    let mut profile = profile();
    os_call(&mut profile, 100, 200, "read");
    let function = Some(profile.strings.intern("decode"));
    for time in [50, 150, 250, 350, 950] {
        profile.host.samples.push(CpuSample {
            thread: THREAD,
            time,
            function,
            module: None,
        });
    }
    let pause = Pause {
        thread: THREAD,
        span: span(0, 1000),
        launched: 900,
    };
    let parts = divide(&profile, &[pause], &Classes::default()).remove(0);
    assert_eq!(parts.sampled(), 3);
}

fn run(file: &str) -> Option<Run> {
    let path = crate::shared::profile(file)?;
    let profile = crate::read::open(&path, &crate::read::NoProgress).unwrap();
    let vocabulary = Vocabulary {
        knows_op: &|_| false,
        is_communication: &|name| name.starts_with("nccl"),
    };
    Some(correlate(profile, &vocabulary))
}

/// The parts of all idle time of a capture, from the first GPU work to the last, whatever is analysed.
fn whole_capture(run: &Run) -> HostParts {
    let profile = &run.profile;
    let mut work: Vec<(Span, Option<crate::profile::CallId>)> = Vec::new();
    for (kernel, link) in profile.kernels.iter().zip(&run.links) {
        work.push((kernel.span, link.launch));
    }
    let mut by_correlation = FxHashMap::default();
    for (at, call) in profile.calls.iter().enumerate() {
        let process = profile.threads.get(call.thread.idx()).unwrap().process;
        by_correlation.insert((process, call.correlation), crate::profile::CallId::new(at));
    }
    let copies = profile
        .copies
        .iter()
        .map(|c| (c.span, c.process, c.correlation));
    let sets = profile
        .sets
        .iter()
        .map(|s| (s.span, s.process, s.correlation));
    for (span, process, correlation) in copies.chain(sets) {
        work.push((span, by_correlation.get(&(process, correlation)).copied()));
    }
    work.sort_by_key(|(span, _)| span.start);
    let mut now = work.first().map_or(0, |(span, _)| span.start);
    let mut pauses = Vec::new();
    for (span, call) in work {
        let gap = Span {
            start: now,
            end: span.start,
        };
        if gap.ns() >= SHORTEST_GAP_NS
            && let Some(call) = call.and_then(|id| profile.calls.get(id.idx()))
        {
            pauses.push(Pause {
                thread: call.thread,
                span: gap,
                launched: call.span.end,
            });
        }
        now = now.max(span.end);
    }
    let mut all = HostParts::default();
    for parts in divide(profile, &pauses, &Classes::default()) {
        all.add(&parts);
    }
    all
}

/// Time in calls of the operating system, in whole ms.
fn os_ms(parts: &HostParts) -> i64 {
    parts.sum(|part| matches!(part, HostPart::OsCall { .. })).ns / 1_000_000
}

#[test]
fn the_longest_gap_of_mmagic_is_in_driver_calls_of_one_launch() {
    let Some(run) = run("mmagic.sqlite") else {
        return;
    };
    let name = |id: Option<StrId>| id.map_or("", |id| run.profile.text(id));
    let ioctl = run.host.loads.sum(|part| match part {
        HostPart::OsCall {
            class,
            name: function,
            inside,
            ..
        } => {
            *class == OsCallClass::Driver
                && name(*function) == "ioctl"
                && name(*inside) == "cudaLaunchKernel"
        }
        _ => false,
    });
    assert_eq!((ioctl.ns / 1_000_000, ioctl.count), (887, 8));
    // The gap is not analysed: code was loaded.
    assert!(run.host.gaps.values().all(|parts| parts.ns < 100_000_000));
}

#[test]
fn the_host_of_cs336zx_computes_in_its_gaps() {
    let Some(run) = run("cs336zx_2_7B_nvtx.sqlite") else {
        return;
    };
    let parts = whole_capture(&run);
    assert_eq!((parts.gaps, parts.ns / 1_000_000), (287, 1_288));
    assert_eq!(os_ms(&parts), 45);
}

#[test]
fn time_off_the_cpu_is_found_in_scheduling_events() {
    let Some(run) = run("fuser_h200.sqlite") else {
        return;
    };
    let off = run.host.loads.sum(|part| *part == HostPart::OffCpu);
    assert_eq!((off.ns / 1_000_000, off.count), (551, 44));
    let Some(run) = self::run("cs336jsun.sqlite") else {
        return;
    };
    let parts = whole_capture(&run);
    let off = parts.sum(|part| *part == HostPart::OffCpu);
    assert_eq!(
        (parts.gaps, parts.sampled(), off.ns / 1_000_000),
        (272, 85, 26)
    );
}

#[test]
fn the_parts_of_each_gap_add_up_to_it() {
    let mut divided = 0;
    for path in crate::shared::profiles_or_fixtures() {
        let Ok(profile) = crate::read::open(&path, &crate::read::NoProgress) else {
            continue;
        };
        let vocabulary = Vocabulary {
            knows_op: &|_| false,
            is_communication: &|name| name.starts_with("nccl"),
        };
        let run = correlate(profile, &vocabulary);
        for ((row, at), parts) in &run.host.gaps {
            let gap = run.timeline.devices.get(*row).and_then(|d| d.gaps.get(*at));
            assert_eq!(parts.ns, gap.unwrap().span.ns(), "{}", path.display());
            assert_eq!(parts.sum(|_| true).ns, parts.ns, "{}", path.display());
            assert!(parts.parts.values().all(|sum| sum.ns > 0));
            divided += 1;
        }
        assert_eq!(run.host.loads.sum(|_| true).ns, run.host.loads.ns);
    }
    assert!(divided > 0 || crate::shared::path_if_set("profiles").is_none());
}

/// Adds samples of a profiler of the host at these times, each for the 40 ns before it.
fn sampled(profile: &mut Profile, times: impl IntoIterator<Item = i64>, name: &str) {
    let place = profile.strings.intern(name);
    profile
        .host
        .timed
        .extend(times.into_iter().map(|time| TimedSample {
            class: None,
            thread: THREAD,
            time,
            weight_ns: 40,
            place,
        }));
    profile.host.timed.sort_by_key(|sample| sample.time);
}

#[test]
fn samples_of_a_host_profiler_estimate_what_is_left() {
    let mut profile = profile();
    call(&mut profile, 200, 300, "cudaMalloc");
    call(&mut profile, 880, 900, "cudaLaunchKernel");
    python(&mut profile, 300, 400, "a/train.py(3): log");
    // 220 is in a call, 520 begins before the sample at 500, 1,100 is behind the gap.
    sampled(
        &mut profile,
        [20, 100, 220, 310, 430, 500, 520, 1_100],
        "load",
    );
    let expected = [
        ("a/train.py(3): log", 100),
        ("cudaLaunchKernel", 20),
        ("cudaMalloc", 100),
        ("launched", 100),
        // Up to 20: 20; to 100: 40; from 400 to 430: 30; to 500: 40; to 520: 20.
        ("load", 150),
        ("rest", 530),
    ];
    assert_eq!(divided(&profile), rows(&expected));
    let pause = Pause {
        thread: THREAD,
        span: span(0, 1000),
        launched: 900,
    };
    let parts = divide(&profile, &[pause], &Classes::default()).remove(0);
    let samples = parts.sum(|part| matches!(part, HostPart::Sampled { .. }));
    assert_eq!((samples.count, samples.ns), (5, 150));
    assert!(!HostTime::has_enough_samples(&parts));
    // The clock may be off by a fifth of the gap or more.
    profile.host.timed_error_ns = 201;
    assert!(!divided(&profile).iter().any(|(name, _)| name == "load"));
}
