use proptest::prelude::*;

use super::*;

/// The profile of a sample; `None` after counting the test as skipped.
fn sample(name: &str) -> Option<HostProfile> {
    let path = crate::shared::path(&format!("host_profiles/{name}"))?;
    Some(open(&path).unwrap())
}

/// The profiler and its longest line as `file:line function, calls, ms`, without folders.
fn longest(profile: &HostProfile) -> (&'static str, String) {
    let Some(line) = profile.lines.first() else {
        return (profile.profiler, "none".to_owned());
    };
    let file = line.file.rsplit(['/', '\\']).next().unwrap_or_default();
    let ms = (line.self_ns / 1e6).round();
    let text = format!(
        "{file}:{} {}, {}, {ms}",
        line.line, line.function, line.calls
    );
    (profile.profiler, text)
}

#[test]
fn samples_of_every_format_are_read() {
    for (name, profiler, line) in [
        (
            "made/cprofile.prof",
            "cProfile",
            ":0 <built-in method time.sleep>, 60, 621",
        ),
        (
            "made/job.lprof",
            "line_profiler",
            "job.py:12 train, 61, 689",
        ),
        (
            "made/job.lprof.txt",
            "line_profiler",
            "job.py:12 train, 61, 689",
        ),
        (
            "made/pyspy.raw.txt",
            "py-spy",
            "typing.py:278 _collect_parameters, 0, 100",
        ),
        (
            "made/pyspy.speedscope.json",
            "py-spy",
            "function_base.py:537 add_newdoc, 0, 75",
        ),
        ("made/pyspy.chrome.json", "py-spy", "job.py:9 load, 0, 175"),
        ("made/scalene.json", "Scalene", "job.py:9 , 0, 821"),
        (
            "made/pl/fit-simple.txt",
            "Lightning SimpleProfiler",
            ":0 run_training_epoch, 1, 695",
        ),
        (
            "made/pl/fit-advanced.txt",
            "Lightning AdvancedProfiler",
            ":0 [Strategy]SingleDeviceStrategy.training_step: functions that its list leaves out, 0, 148",
        ),
        (
            "public/a2c_main.py.lprof",
            "line_profiler",
            "main.py:330 main, 2048, 51322",
        ),
        (
            "public/nerfstudio_train.py.lprof",
            "line_profiler",
            "base_pipeline.py:279 get_train_loss_dict, 1000, 45560",
        ),
        (
            "public/scalene_gui_profile.json",
            "Scalene",
            "testme.py:21 , 0, 456",
        ),
        ("made/mprof.dat", "memory_profiler", "none"),
        ("public/ctrml_mprofile.dat", "memory_profiler", "none"),
        (
            "public/molehill_speedscope.json",
            "pyinstrument",
            "plugin.py:87 push, 0, 3291",
        ),
    ] {
        if let Some(profile) = sample(name) {
            assert_eq!(longest(&profile), (profiler, line.to_owned()), "{name}");
        }
    }
}

#[test]
fn own_time_of_a_function_has_its_name() {
    // pyinstrument writes the time that `train` itself took as a frame of its own.
    let text = r#"{"$schema": "https://www.speedscope.app/file-format-schema.json", "exporter": "pyinstrument",
        "shared": {"frames": [{"name": "train", "file": "job.py", "line": 3}, {"name": "[self]"}]},
        "profiles": [
            {"unit": "seconds", "events": [{"type": "O", "frame": 0, "at": 0}, {"type": "O", "frame": 1, "at": 1},
                {"type": "C", "frame": 1, "at": 3}, {"type": "C", "frame": 0, "at": 3}]},
            {"unit": "seconds", "samples": [[0, 1], [1]], "weights": [4, 0.5]}]}"#;
    let profile = read(text.as_bytes()).unwrap();
    let lines: Vec<_> = (profile.lines.iter())
        .map(|line| (line.function.as_str(), line.self_ns))
        .collect();
    assert_eq!(lines, [("train", 7e9), ("[self]", 0.5e9)]);
    if let Some(profile) = sample("public/molehill_speedscope.json") {
        // 600.1 ms in frames of `[self]` and 40 ms in its own.
        let second = profile.lines.get(1).unwrap();
        assert_eq!(second.function, "__init__");
        assert!((second.self_ns - 640e6).abs() < 1e6, "{second:?}");
        assert!(profile.lines.iter().all(|line| line.function != "[self]"));
    }
}

#[test]
fn tables_of_text_are_read() {
    let import = "import time: self [us] | cumulative | imported package\n\
                  import time:       120 |       1500 |   numpy.core\n\
                  import time:      2500 |       4000 | torch\n";
    let averages = "-------  ----------  ----------  ----------\n   \
                    Name  Self CPU %  Self CPU  # of Calls\n\
                    -------  ----------  ----------  ----------\n   \
                    aten::item  80.00%  3.200ms  40\n   aten::add  20.00%  800.000us  8\n";
    let stacks = "train.py(12): main;train.py(30): step;<built-in method item> 900\n\
                  train.py(12): main;data.py(7): load 400\n";
    for (text, profiler, line) in [
        (import, "importtime", ":0 import torch, 1, 3"),
        (averages, "torch.profiler table", ":0 aten::item, 40, 3"),
        (
            stacks,
            "torch.profiler stacks",
            ":0 <built-in method item>, 0, 1",
        ),
    ] {
        let profile = read(text.as_bytes()).unwrap();
        assert_eq!(longest(&profile), (profiler, line.to_owned()));
    }
}

#[test]
fn stacks_with_underscores_for_spaces_are_read() {
    let stacks = "tp.py(3):_<module>;data.py(7):_load_file 5\n\
                  tp.py(3):_<module>;<built-in_method_item_of_Tensor_object_at_0x7f17f0de6a00> 9\n";
    let profile = read(stacks.as_bytes()).unwrap();
    assert_eq!(profile.profiler, "torch.profiler stacks");
    let lines: Vec<_> = (profile.lines.iter())
        .map(|line| (line.file.as_str(), line.line, line.function.as_str()))
        .collect();
    let item = "<built-in method item of Tensor object at 0x7f17f0de6a00>";
    assert_eq!(lines, [("", 0, item), ("data.py", 7, "load_file")]);
}

#[test]
fn samples_of_scalene_have_times() {
    let file = |kept: usize| {
        let times: Vec<String> = (0..kept)
            .map(|at| format!("{}", 50.0 + at as f64))
            .collect();
        let lines = format!(
            r#"[{{"lineno": 7, "n_cpu_percent_python": 60, "n_cpu_percent_c": 20, "n_sys_percent": 0,
                 "cpu_samples_list": [{}]}},
                {{"lineno": 9, "n_cpu_percent_python": 20, "n_cpu_percent_c": 0, "cpu_samples_list": [51.5, 1e300]}}]"#,
            times.join(", ")
        );
        let text = format!(
            r#"{{"elapsed_time_sec": 1000, "start_time_absolute": 1767225600, "start_time_perf": 40,
                 "files": {{"a.py": {{"lines": {lines}}}}}}}"#
        );
        read(text.as_bytes()).unwrap().timed.unwrap()
    };
    let second = 1_000_000_000;
    let start = 1_767_225_600 * second;
    let timed = file(2);
    let samples: Vec<(i64, u32)> = (timed.samples.iter())
        .map(|sample| {
            (
                sample.unix_ns - start,
                timed.places[sample.place as usize].line.line,
            )
        })
        .collect();
    assert_eq!(
        samples,
        [
            (10 * second, 7),
            (11 * second, 7),
            (11 * second + second / 2, 9)
        ]
    );
    // Each sample stands for the time since the one before.
    assert!(
        timed
            .samples
            .iter()
            .all(|sample| sample.weight_ns == i64::MAX)
    );
    // Scalene keeps 500 samples of a line: then it is the time of the line over the samples kept.
    let weights = |line: u32| {
        let timed = file(500);
        let of_line = timed.samples.into_iter();
        let place = timed
            .places
            .iter()
            .position(|place| place.line.line == line)
            .unwrap();
        let mut weights = of_line
            .filter(|s| s.place as usize == place)
            .map(|s| s.weight_ns);
        weights.next().unwrap()
    };
    assert_eq!((weights(7), weights(9)), (800 * second / 500, 200 * second));
}

#[test]
fn files_of_memory_profiler_are_read() {
    let dat = "CMDLINE python train.py --token=secret\n\
               FUNC train.load 100.0 1767225600.5 180.5 1767225602.5 1\n\
               MEM 100.000000 1767225600.0000\nCHLD 0 50.0 1767225600.1\nMEM 340.5 1767225601.0000\n\
               MEM nan 1767225602.0\nMEM 0.0 1767225603.0\nMEM 1 7\nMEM 2\nFUNC x\n\n";
    let profile = read(dat.as_bytes()).unwrap();
    assert_eq!(
        longest(&profile),
        ("memory_profiler", ":0 train.load, 1, 2000".to_owned())
    );
    assert_eq!(profile.lines[0].grown_bytes, 80.5 * 1_048_576.0);
    let memory: Vec<_> = (profile.memory.iter())
        .map(|sample| {
            (
                sample.unix_ns - 1_767_225_600_000_000_000,
                sample.bytes / 1_048_576.0,
            )
        })
        .collect();
    assert_eq!(memory, [(0, 100.0), (1_000_000_000, 340.5)]);
    assert!(!format!("{profile:?}").contains("secret"));
    let table = "Filename: train.py\n\n\
        Line #    Mem usage    Increment  Occurrences   Line Contents\n\
        =============================================================\n     \
        3     50.7 MiB     50.7 MiB           1   @profile\n     \
        4                                         def load(n):\n     \
        5     52.2 MiB      1.5 MiB           4       batch = [0] * (n * 200_000)\n     \
        6     52.2 MiB     -0.2 MiB           1       kept.append(batch)\n\n";
    let profile = read(table.repeat(2).as_bytes()).unwrap();
    let lines: Vec<_> = (profile.lines.iter())
        .map(|line| {
            (
                line.line,
                line.calls,
                (line.grown_bytes / 1_048_576.0 * 10.0).round(),
            )
        })
        .collect();
    assert_eq!(lines, [(5, 8, 30.0), (6, 2, -4.0)]);
    assert!(
        profile
            .lines
            .iter()
            .all(|line| line.file == "train.py" && line.self_ns == 0.0)
    );
    assert_eq!(read(b"MEM 1 2\n"), None);
    assert_eq!(read(b"CMDLINE x\nOTHER\n"), None);
}

#[test]
fn pickles_build_no_other_class() {
    // os.system("true"): GLOBAL, MARK, text, TUPLE, REDUCE, STOP.
    assert_eq!(read(b"\x80\x02cos\nsystem\n(U\x04truetR."), None);
    let stats =
        b"\x80\x04\x8c\x0dline_profiler\x8c\x09LineStats\x93)\x81}(\x8c\x07timings}\x8c\x04unitG\
                  \x3f\xf0\x00\x00\x00\x00\x00\x00ub.";
    assert_eq!(read(stats).unwrap().lines, []);
    let mut other = stats.to_vec();
    other[4..17].copy_from_slice(b"subprocess.py");
    assert_eq!(read(&other), None);
}

#[test]
fn hostile_files_are_refused() {
    let nested = |open: &[u8]| [b"\xfb".as_slice(), &open.repeat(100_000)].concat();
    for data in [
        b"".to_vec(),
        b"{".to_vec(),
        b"\x80\x05.".to_vec(),
        // A list of 2^32 - 1 items, and a text as long, in a few bytes.
        b"\xfb(\xff\xff\xff\xff".to_vec(),
        b"\x80\x05X\xff\xff\xff\xff".to_vec(),
        // Deep nesting, references to nothing, marks that are missing.
        nested(b"\xa9\x01"),
        nested(b"{"),
        b"\xfbr\xff\xff\xff\xff".to_vec(),
        b"\x80\x05t.".to_vec(),
        b"\x80\x05]a.".to_vec(),
        b"just text with a number at the end 12".to_vec(),
        br#"{"$schema": "x"}"#.to_vec(),
        br#"{"elapsed_time_sec": "x", "files": {}}"#.to_vec(),
        "[".repeat(100_000).into_bytes(),
    ] {
        assert_eq!(read(&data), None, "{:?}", data.get(..20));
    }
}

#[test]
fn functions_that_begin_and_end_are_timed() {
    let event = |ph: &str, name: &str, ts: u32| {
        let place = r#""args":{"filename":"a.py","line":3}"#;
        format!(
            r#"{{"cat":"py-spy","name":"{name}","ph":"{ph}","pid":1,"tid":2,"ts":{ts},{place}}}"#
        )
    };
    let events = [
        event("B", "main", 0),
        event("B", "load", 10),
        event("E", "load", 40),
        event("E", "main", 60),
        event("E", "nothing", 90),
    ];
    let profile = read(format!("[{}]", events.join(",")).as_bytes()).unwrap();
    let lines: Vec<_> = profile
        .lines
        .iter()
        .map(|l| (l.function.as_str(), l.self_ns))
        .collect();
    assert_eq!(lines, [("main", 30e3), ("load", 30e3)]);
    assert_eq!(read(b"[1, 2]"), None);
    assert_eq!(read(b"[]"), None);
}

#[test]
fn samples_of_py_spy_have_times_once_its_start_is_known() {
    let event = |ph: &str, name: &str, tid: u32, us: u32| {
        let place = r#""args":{"filename":"a.py","line":3}"#;
        format!(
            r#"{{"cat":"py-spy","name":"{name}","ph":"{ph}","pid":5,"tid":{tid},"ts":{us},{place}}}"#
        )
    };
    let events = [
        event("B", "thread (5): MainThread", 1, 0),
        event("B", "load", 1, 0),
        event("B", "thread (6)", 2, 0),
        event("B", "other", 2, 0),
        event("B", "open", 1, 20_000),
        event("E", "other", 2, 30_000),
        event("E", "open", 1, 50_000),
        event("E", "load", 1, 54_000),
    ];
    let profile = read(format!("[{}]", events.join(",")).as_bytes()).unwrap();
    assert_eq!(profile.timed, None);
    let timed = profile.started_at(1_000, 7).timed.unwrap();
    assert_eq!((timed.pid, timed.error_ns), (Some(5), 7));
    let samples: Vec<_> = (timed.samples.iter())
        .map(|sample| {
            let place = &timed.places[sample.place as usize];
            let caller = place
                .caller
                .map(|at| timed.places[at as usize].line.function.as_str());
            let ms = (sample.unix_ns - 1_000) / 1_000_000;
            (
                ms,
                sample.weight_ns / 1_000_000,
                place.line.function.as_str(),
                caller,
            )
        })
        .collect();
    let thread = Some("thread (5): MainThread");
    let expected = [
        (10, 10, "load", thread),
        (20, 10, "load", thread),
        (30, 10, "open", Some("load")),
        (40, 10, "open", Some("load")),
        (50, 10, "open", Some("load")),
        (54, 4, "load", thread),
    ];
    assert_eq!(samples, expected);
}

#[test]
fn shared_long_names_stay_bounded() {
    // One name of a million characters, shared by 100,000 functions: 100 GB if each had its own.
    let mut data =
        b"\x80\x04\x8c\x0dline_profiler\x8c\x09LineStats\x93)\x81}(\x8c\x07timings}(X".to_vec();
    data.extend(1_000_000_u32.to_le_bytes());
    data.extend(std::iter::repeat_n(b'x', 1_000_000));
    data.extend(b"\x94K\x01h\x00\x87](K\x01K\x01K\x01\x87e");
    for line in 0..100_000_u32 {
        data.extend(b"h\x00J");
        data.extend(line.to_le_bytes());
        data.extend(b"h\x00\x87](K\x01K\x01K\x01\x87e");
    }
    data.extend(b"u\x8c\x04unitG\x3f\xf0\x00\x00\x00\x00\x00\x00ub.");
    let profile = read(&data).unwrap();
    assert_eq!(profile.lines.len(), 1);
    assert_eq!(profile.lines[0].function.len(), 300);
}

#[test]
fn times_that_are_no_numbers_do_not_count() {
    let text = r#"{"$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": "a"}, {"name": "b"}]},
        "profiles": [{"unit": "seconds", "samples": [[0], [1], [7], []], "weights": [-1, 2, 3, 4]},
                     {"unit": "none", "samples": [[0]], "weights": [9]}]}"#;
    let profile = read(text.as_bytes()).unwrap();
    let lines: Vec<_> = profile
        .lines
        .iter()
        .map(|l| (l.function.as_str(), l.self_ns))
        .collect();
    assert_eq!(lines, [("b", 2e9)]);
}

/// A small file of each format, as its profiler writes it.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/host");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let mut seeds: Vec<(String, Vec<u8>)> = files
        .filter(|file| file.file_name().to_string_lossy().starts_with("seed"))
        .map(|file| {
            let data = std::fs::read(file.path()).unwrap();
            (file.file_name().to_string_lossy().into_owned(), data)
        })
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 17, "{}", seeds.len());
    seeds
}

/// Checks what the rest of the program relies on.
fn check(profile: &HostProfile, name: &str) {
    assert!(profile.lines.len() <= super::model::MAX_LINES, "{name}");
    for line in &profile.lines {
        assert!(
            line.self_ns.is_finite() && line.self_ns >= 0.0,
            "{name}: {line:?}"
        );
        assert!(line.grown_bytes.is_finite(), "{name}: {line:?}");
        let longest = line.file.chars().count().max(line.function.chars().count());
        assert!(longest <= 300, "{name}: {longest}");
    }
    for timed in profile.timed.iter().chain(&profile.since_start) {
        assert!(
            timed.samples.is_sorted_by_key(|sample| sample.unix_ns),
            "{name}"
        );
        assert!(
            timed.samples.iter().all(|sample| sample.weight_ns >= 0),
            "{name}"
        );
    }
    assert!(
        profile.memory.iter().all(|sample| sample.bytes.is_finite()),
        "{name}"
    );
    assert!(
        profile.workers.iter().all(|stack| stack.ns >= 0.0),
        "{name}"
    );
}

#[test]
fn files_that_end_early_are_read_as_far_as_they_go_or_refused() {
    for (name, data) in seeds() {
        for part in 0..40 {
            let until = data.len() * part / 40;
            if let Some(profile) = data.get(..until).and_then(read) {
                check(&profile, &name);
            }
        }
    }
}

#[test]
fn absurd_numbers_in_files_do_no_harm() {
    for (name, data) in seeds() {
        let Ok(text) = std::str::from_utf8(&data) else {
            continue;
        };
        let numbers = numbers_in(text);
        for absurd in [
            "-1",
            "0",
            "1e308",
            "99999999999999999999",
            "NaN",
            "1e999",
            "-9223372036854775808",
        ] {
            // All numbers, and each tenth of them alone.
            for every in 0..10 {
                let mut changed = String::new();
                let mut done = 0;
                for (at, (from, until)) in numbers.iter().enumerate() {
                    if every == 0 || at % 10 == every {
                        changed.push_str(&text[done..*from]);
                        changed.push_str(absurd);
                        done = *until;
                    }
                }
                changed.push_str(&text[done..]);
                if let Some(profile) = read(changed.as_bytes()) {
                    check(&profile.started_at(i64::MAX, i64::MAX), &name);
                }
            }
        }
    }
}

/// Where numbers are in a text.
fn numbers_in(text: &str) -> Vec<(usize, usize)> {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = bytes[at..]
            .iter()
            .take_while(|byte| is_number(**byte))
            .count();
        if bytes[at].is_ascii_digit() {
            found.push((at, at + length));
        }
        at += length.max(1);
    }
    found
}

#[test]
fn very_long_names_in_files_are_cut() {
    let long = "x".repeat(100_000);
    let mut cut = 0;
    for (name, data) in seeds() {
        let Ok(text) = std::str::from_utf8(&data) else {
            continue;
        };
        for old in [
            "decode",
            "train",
            "job.py",
            "tp.py",
            "json",
            "aten::empty",
            "run_training_epoch",
            "backward",
        ] {
            if let Some(profile) = read(text.replace(old, &long).as_bytes()) {
                check(&profile, &name);
                cut += u32::from(
                    profile
                        .lines
                        .iter()
                        .any(|line| line.function.len() == 300 || line.file.len() == 300),
                );
            }
        }
    }
    assert!(cut > 10, "{cut}");
}

/// A frame of a megabyte that 100,000 stacks of workers share, and stacks without end.
#[test]
fn stacks_of_workers_stay_bounded() {
    let worker = r#"{"name": "_worker_loop", "file": "torch/utils/data/_utils/worker.py"}"#;
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(1_000_000));
    let file = |samples: &str, count: usize| {
        let weights = vec!["1"; count].join(",");
        let schema = "https://www.speedscope.app/file-format-schema.json";
        let text = format!(
            r#"{{"$schema": "{schema}", "shared": {{"frames": [{worker}, {long}]}},
                "profiles": [{{"unit": "seconds", "samples": [{samples}], "weights": [{weights}]}}]}}"#
        );
        read(text.as_bytes()).unwrap()
    };
    let profile = file(&vec!["[0,1]"; 100_000].join(","), 100_000);
    assert_eq!(profile.workers.len(), super::model::MAX_LINES);
    assert_eq!(profile.workers[0].frames[0].function.len(), 300);
    let deep = format!("[0{}]", ",1".repeat(200));
    let profile = file(&vec![deep.as_str(); 3_000].join(","), 3_000);
    let frames: usize = profile.workers.iter().map(|stack| stack.frames.len()).sum();
    assert!((100_000..300_000).contains(&frames), "{frames}");
    let endless = format!("[0{}]", ",1".repeat(1_000_000));
    assert_eq!(file(&endless, 1).workers, []);
}

#[test]
fn safe_copies_are_read_to_the_same_profile() {
    for (name, data) in seeds() {
        let profile = read(&data).unwrap();
        let copy = write_safe_copy(&profile).unwrap();
        assert_eq!(read(copy.as_bytes()), Some(profile), "{name}");
    }
}

proptest! {
    #[test]
    fn changed_files_do_not_panic(seed in 0_usize..100, changes in prop::collection::vec((0_usize..4_000, any::<u8>()), 0..8)) {
        let seeds = seeds();
        let (name, mut data) = seeds[seed % seeds.len()].clone();
        for (at, byte) in changes {
            if let Some(slot) = data.get_mut(at) {
                *slot = byte;
            }
        }
        if let Some(profile) = read(&data) {
            check(&profile, &name);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&data);
        let _ = read(&[b"\x80\x04".as_slice(), &data].concat());
        let _ = read(&[b"\xfb".as_slice(), &data].concat());
    }
}
