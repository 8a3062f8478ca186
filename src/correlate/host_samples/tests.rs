use super::*;
use crate::correlate::testing::ProfileBuilder;
use crate::host::{CodePlace, HostSample, MemorySample, TimedSamples};
use crate::profile::LoaderConfig;

/// 2026-01-01, in ns since 1970.
const ZERO: i64 = 1_767_225_600_000_000_000;
const MS: i64 = 1_000_000;

/// A profile of one process with launches at 9 and 500 ms.
fn profile() -> Profile {
    let mut builder = ProfileBuilder::new();
    builder.launch(9 * MS);
    builder.launch(500 * MS);
    let mut profile = builder.profile;
    profile.unix_zero_ns = Some(ZERO);
    profile
}

/// A host profile with a sample at each of these times, in ms.
fn host(times: &[i64]) -> HostProfile {
    let line = |file: &str, line, function: &str| HostLine {
        file: file.to_owned(),
        line,
        function: function.to_owned(),
        ..HostLine::default()
    };
    let program = CodePlace {
        line: line("/home/arthur/train/data.py", 12, "load"),
        caller: None,
    };
    let library = CodePlace {
        line: line("/x/lib/python3.11/site-packages/PIL/Image.py", 3, "open"),
        caller: Some(0),
    };
    let samples = times.iter().map(|ms| HostSample {
        unix_ns: ZERO + ms * MS,
        weight_ns: 10 * MS,
        place: 1,
    });
    HostProfile {
        profiler: "Scalene",
        timed: Some(TimedSamples {
            places: vec![program, library],
            samples: samples.collect(),
            mixes_workers: true,
            ..TimedSamples::default()
        }),
        ..HostProfile::default()
    }
}

#[test]
fn samples_in_the_recorded_time_are_placed_on_the_main_thread() {
    let mut profile = profile();
    let host = host(&[-5, 8, 100, 110, 499, 501, 9_000]);
    assert_eq!(
        add_host_samples(&mut profile, &host, &Classes::default()),
        Alignment::Aligned
    );
    let times: Vec<i64> = profile.host.timed.iter().map(|s| s.time / MS).collect();
    assert_eq!(times, [100, 110, 499]);
    let name = profile.text(profile.host.timed.first().unwrap().place);
    assert_eq!(name, "load (train/data.py:12)");
    assert_eq!(
        add_host_samples(&mut profile, &host, &Classes::default()),
        Alignment::NotNeeded
    );
    assert_eq!(profile.host.timed.len(), 3);
}

type Change = fn(&mut Profile);

#[test]
fn samples_that_cannot_be_placed_are_not_used() {
    let place = |change: Change, host: &HostProfile| {
        let mut profile = profile();
        change(&mut profile);
        let alignment = add_host_samples(&mut profile, host, &Classes::default());
        assert!(profile.host.timed.is_empty(), "{alignment:?}");
        alignment
    };
    let at_100 = host(&[100]);
    let nothing: Change = |_| {};
    let cases: [(Change, Alignment); 4] = [
        (|p| p.unix_zero_ns = None, Alignment::NoClock),
        (
            |p| p.unix_zero_ns = Some(ZERO + 1_000 * MS),
            Alignment::OtherTime,
        ),
        (|p| p.threads[0].tid = 77, Alignment::OtherProcess),
        (
            |p| {
                p.loaders.push(LoaderConfig {
                    workers: 2,
                    ..LoaderConfig::default()
                });
            },
            Alignment::MixedWithWorkers,
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(place(change, &at_100), expected);
    }
    assert_eq!(place(nothing, &HostProfile::default()), Alignment::Untimed);
    let mut of_another_process = at_100.clone();
    of_another_process.timed.as_mut().unwrap().pid = Some(4_242);
    assert_eq!(place(nothing, &of_another_process), Alignment::OtherProcess);
    // Extreme clocks must not overflow.
    let mut extreme = at_100;
    let samples = &mut extreme.timed.as_mut().unwrap().samples;
    samples[0].unix_ns = i64::MIN;
    assert_eq!(place(nothing, &extreme), Alignment::OtherTime);
}

#[test]
fn memory_is_aligned_if_it_was_measured_at_the_same_time() {
    let memory = |ms: i64| HostProfile {
        memory: vec![MemorySample {
            unix_ns: ZERO + ms * MS,
            bytes: 1.0,
        }],
        ..HostProfile::default()
    };
    let mut profile = profile();
    assert_eq!(
        add_host_samples(&mut profile, &memory(300), &Classes::default()),
        Alignment::Aligned
    );
    assert_eq!(
        add_host_samples(&mut profile, &memory(900), &Classes::default()),
        Alignment::OtherTime
    );
    profile.unix_zero_ns = None;
    assert_eq!(
        add_host_samples(&mut profile, &memory(300), &Classes::default()),
        Alignment::NoClock
    );
}

/// The recorded job decodes for 200 ms (lines 17 to 19), sleeps for 100 ms (line 25), and then calls its model, again and
/// again. Scalene and torch.profiler recorded it at once, each with its own clock.
#[test]
fn samples_of_a_real_recording_lie_where_the_trace_shows_their_line() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/host");
    let file = |name: &str| std::path::PathBuf::from(format!("{folder}/{name}"));
    let host = crate::host::open(&file("scalene.json")).unwrap();
    let trace = file("scalene.pt.trace.json.gz");
    // By how much the clock of Scalene is wrong, in ms, and the share of samples in their place.
    let in_place = |wrong_ms: i64| {
        let mut profile = crate::read::open(&trace, &crate::read::NoProgress).unwrap();
        let mut host = host.clone();
        for sample in &mut host.timed.as_mut().unwrap().samples {
            sample.unix_ns += wrong_ms * MS;
        }
        let alignment = add_host_samples(&mut profile, &host, &Classes::default());
        assert_eq!(alignment, Alignment::Aligned);
        let calls: Vec<i64> = (profile.ranges.iter())
            .filter(|range| profile.text(range.text) == "aten::linear")
            .map(|range| range.span.start)
            .collect();
        assert_eq!(calls.len(), 6);
        let (mut right, mut all) = (0, 0);
        for sample in &profile.host.timed {
            let next = calls.iter().find(|call| **call > sample.time);
            let Some(ms) = next.map(|call| (call - sample.time) as f64 / 1e6) else {
                continue;
            };
            let (from, until) = match profile.text(sample.place) {
                "host/job.py:25" | "job.py:25" => (0.0, 101.0),
                "host/job.py:17" | "host/job.py:18" | "host/job.py:19" | "job.py:17"
                | "job.py:18" | "job.py:19" => (99.0, 320.0),
                _ => continue,
            };
            all += 1;
            right += u32::from((from..until).contains(&ms));
        }
        assert!(all > 100, "{all}");
        f64::from(right) / f64::from(all)
    };
    assert_eq!(in_place(0), 1.0);
    assert!(in_place(10) < 1.0 && in_place(-10) < 1.0);
    assert!(in_place(50) < 0.9 && in_place(-50) < 0.9);
}
