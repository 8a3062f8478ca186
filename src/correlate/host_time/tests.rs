use super::*;
use crate::correlate::{Run, Vocabulary, correlate};
use crate::profile::OsCallClass;
use crate::profile::{
    ApiCall, ApiClass, CpuSample, CudaCaller, HostRange, LibraryCall, OffCpu, OffCpuState, OsCall,
    Process, ProcessId, PythonSample, PythonSamples, SerialNumber, StackFrame, Thread, TimedSample,
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
        group_size: None,
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
    range(profile, RangeKind::Python, span(start, end), name);
}

fn range(profile: &mut Profile, kind: RangeKind, span: Span, name: &str) {
    let text = profile.strings.intern(name);
    profile.ranges.push(HostRange {
        span,
        thread: THREAD,
        kind,
        text,
        domain: None,
        seq: None,
        op_id: None,
        args: None,
    });
}

fn off_cpu(profile: &mut Profile, start: i64, end: i64, state: OffCpuState) {
    profile.host.off_cpu.push(OffCpu {
        thread: THREAD,
        span: span(start, end),
        state,
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
        HostPart::PythonLock => "lock".into(),
        HostPart::OffCpu(state) => format!("off, {state:?}"),
        HostPart::CudaCall { name, caller } => {
            let caller = caller.map(|id| format!(" by {}", text(id)));
            text(*name) + &caller.unwrap_or_default()
        }
        HostPart::LibraryCall(name)
        | HostPart::Function { name, .. }
        | HostPart::Sampled { place: name, .. } => text(*name),
        HostPart::Rest(range) => {
            let range = range.map(|id| format!(" in {}", text(id)));
            format!("rest{}", range.unwrap_or_default())
        }
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
    off_cpu(&mut profile, 200, 260, OffCpuState::Unknown);
    off_cpu(&mut profile, 400, 450, OffCpuState::Unknown);
    let expected = [
        ("cudaLaunchKernel", 20),
        ("cudaMalloc", 60),
        ("ioctl in cudaMalloc", 100),
        ("launched", 100),
        ("off, Unknown", 90),
        ("read", 20),
        ("rest", 610),
    ];
    assert_eq!(divided(&profile), rows(&expected));
}

#[test]
fn locks_libraries_and_callers_of_cuda_calls_are_named() {
    let mut profile = profile();
    call(&mut profile, 100, 300, "cudaMalloc");
    call(&mut profile, 880, 900, "cudaLaunchKernel");
    os_call(&mut profile, 120, 220, "ioctl");
    os_call(&mut profile, 500, 700, "pthread_cond_timedwait");
    off_cpu(&mut profile, 560, 640, OffCpuState::Ready);
    off_cpu(&mut profile, 700, 720, OffCpuState::Waiting);
    profile.host.lock_waits.push((THREAD, span(550, 650)));
    let [caller, library] = ["resize", "cublasCreate_v2"].map(|text| profile.strings.intern(text));
    profile.host.cuda_callers.push(CudaCaller {
        thread: THREAD,
        start: 100,
        caller,
    });
    profile.host.library_calls.push(LibraryCall {
        thread: THREAD,
        span: span(90, 400),
        name: library,
    });
    let expected = [
        ("cublasCreate_v2", 110),
        ("cudaLaunchKernel", 20),
        ("cudaMalloc by resize", 100),
        ("ioctl in cudaMalloc", 100),
        ("launched", 100),
        ("lock", 100),
        ("off, Waiting", 20),
        ("pthread_cond_timedwait", 100),
        ("rest", 350),
    ];
    assert_eq!(divided(&profile), rows(&expected));
}

#[test]
fn what_is_left_is_named_by_the_innermost_range() {
    let mut profile = profile();
    for (start, end, name) in [
        (-100, 400, "compile"),
        (100, 200, "{'mod': 'torch', 'op': 'mm'}"),
        (300, 350, "nvrtc"),
        (600, i64::MAX, "left open"),
        (700, 800, ""),
    ] {
        range(&mut profile, RangeKind::PushPop, span(start, end), name);
    }
    range(&mut profile, RangeKind::Mark, span(450, 450), "mark");
    os_call(&mut profile, 0, 50, "read");
    let expected = [
        ("launched", 100),
        ("read", 50),
        ("rest", 200),
        ("rest in compile", 300),
        ("rest in left open", 300),
        ("rest in nvrtc", 50),
    ];
    assert_eq!(divided(&profile), rows(&expected));
}

#[test]
fn a_call_in_several_pieces_counts_once() {
    let mut profile = profile();
    call(&mut profile, 100, 300, "cudaMalloc");
    os_call(&mut profile, 150, 160, "ioctl");
    os_call(&mut profile, 200, 210, "ioctl");
    profile.host.lock_waits.push((THREAD, span(400, 500)));
    os_call(&mut profile, 350, 600, "read");
    let pause = Pause {
        thread: THREAD,
        span: span(0, 1000),
        launched: 900,
    };
    let parts = divide(&profile, &[pause], &Classes::default()).remove(0);
    let cuda = parts.sum(|part| matches!(part, HostPart::CudaCall { .. }));
    assert_eq!((cuda.ns, cuda.count), (180, 1));
    let is_read = |part: &HostPart| matches!(part, HostPart::OsCall { class, .. } if *class == OsCallClass::Read);
    let read = parts.sum(is_read);
    assert_eq!((read.ns, read.count, read.bytes), (150, 1, 10));
}

#[test]
fn samples_of_python_stacks_name_the_function_of_the_program() {
    let mut profile = profile();
    let mut frames = Vec::new();
    for (function, file, line, caller) in [
        ("main", "/home/jo/app/train.py", 10, None),
        ("load", "/home/jo/app/data.py", 3, Some(0)),
        ("open", "/x/site-packages/PIL/Image.py", 99, Some(1)),
        ("_run", "/usr/lib/python3.11/threading.py", 7, None),
    ] {
        let [function, file] = [function, file].map(|text| Some(profile.strings.intern(text)));
        frames.push(StackFrame {
            function,
            file,
            line,
            caller,
        });
    }
    // Every 50 ns. The sample after a pause stands for no more than 75 ns of it.
    let times = (0..=7).map(|at| 50 * at).chain([700, 750]);
    let sample = |(at, time): (usize, i64)| PythonSample {
        thread: THREAD,
        time,
        frame: [2, 2, 0][at % 3],
    };
    profile.host.python = PythonSamples {
        frames,
        samples: times.enumerate().map(sample).collect(),
        sample_ns: 50,
    };
    crate::correlate::host_samples::place_python_samples(&mut profile, &Classes::default());
    assert!(profile.host.python.samples.is_empty());
    let expected = [
        ("launched", 100),
        ("load (app/data.py:3)", 300),
        ("main (app/train.py:10)", 175),
        ("rest", 425),
    ];
    assert_eq!(divided(&profile), rows(&expected));
    let class = |place: &str| {
        let named = |sample: &&TimedSample| profile.text(sample.place) == place;
        let sample = profile.host.timed.iter().find(named).unwrap();
        sample
            .class
            .map(|class| Classes::built_in().name(class).to_owned())
    };
    assert_eq!(
        class("load (app/data.py:3)").as_deref(),
        Some("decoding or augmenting")
    );
    assert_eq!(class("main (app/train.py:10)"), None);
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

/// The parts of all idle time of a capture, from the first GPU work to the last, whatever is analyzed.
fn whole_capture(run: &Run) -> HostParts {
    let profile = &run.profile;
    let mut work: Vec<(Span, Option<crate::profile::CallId>)> = Vec::new();
    for (kernel, link) in profile.kernels.iter().zip(&run.links) {
        work.push((kernel.span, link.launch));
    }
    let mut by_correlation = FxHashMap::default();
    for (at, call) in profile.calls.iter().enumerate() {
        let process = profile.thread(call.thread).unwrap().process;
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
            && let Some(call) = call.and_then(|id| profile.call(id))
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
    // The gap is not analyzed: code was loaded.
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

/// These exports of Linux do not say why a thread left its CPU.
fn is_off(part: &HostPart) -> bool {
    *part == HostPart::OffCpu(OffCpuState::Unknown)
}

#[test]
fn time_off_the_cpu_is_found_in_scheduling_events() {
    let Some(run) = run("fuser_h200.sqlite") else {
        return;
    };
    let off = run.host.loads.sum(is_off);
    assert_eq!((off.ns / 1_000_000, off.count), (551, 44));
    let Some(run) = self::run("cs336jsun.sqlite") else {
        return;
    };
    let parts = whole_capture(&run);
    let off = parts.sum(is_off);
    assert_eq!(
        (parts.gaps, parts.sampled(), off.ns / 1_000_000),
        (272, 83, 26)
    );
    // Of 9.87 ms, it takes the rest in CUDA calls, which are told apart.
    let library = |part: &HostPart| match part {
        HostPart::LibraryCall(name) => run.profile.text(*name) == "cublasCreate_v2",
        _ => false,
    };
    let library = parts.sum(library).ns;
    assert!((1_000_000..9_870_525).contains(&library), "{library}");
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
