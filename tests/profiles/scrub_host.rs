//! `scrub` of profiles of the host: secrets planted in a file of each format are absent from the copy, which is read to the
//! same lines.

use std::path::Path;
use std::process::Command;

use pyprof_advise::host::{self, HostProfile};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/host");

/// A path instead of that of the program, of which only the end may stay.
const PATH: &str = "/home/zaphodbeeblebrox/acme-secret-project/net/job.py";
/// A name instead of that of a function.
const TOKEN: &str = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH";
/// Texts that must not be in a copy.
const PLANTED: [&str; 5] = [
    "zaphodbeeblebrox",
    "acme-secret-project",
    TOKEN,
    "hunter2hunter2",
    "plans of the company",
];

/// The seed with planted texts. In pickles and dumps, a text follows its length.
fn planted(name: &str, data: &[u8]) -> Vec<u8> {
    let replaced = |data: &[u8], old: &str, new: &str, binary: bool| {
        let with_length = |text: &str| match binary {
            true => [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat(),
            false => text.as_bytes().to_vec(),
        };
        let (old, new) = (with_length(old), with_length(new));
        let mut out = Vec::new();
        let mut rest = data;
        while let Some(at) = rest.windows(old.len()).position(|part| part == old) {
            out.extend(&rest[..at]);
            out.extend(&new);
            rest = &rest[at + old.len()..];
        }
        out.extend(rest);
        out
    };
    let binary = std::str::from_utf8(data).is_err();
    let mut data = data.to_vec();
    for file in ["job.py", "tp.py"] {
        data = replaced(&data, file, PATH, binary);
    }
    for function in [
        "run_training_batch",
        "train",
        "zipimport",
        "aten::randn",
        "<module>",
        "job.decode",
    ] {
        // Names of Lightning contain the word.
        if function != "train" || !name.starts_with("seed.lightning") {
            data = replaced(&data, function, TOKEN, binary);
        }
    }
    // What readers ignore.
    match name {
        "seed.dat" => [
            b"CMDLINE python train.py --password hunter2hunter2\n",
            &*data,
        ]
        .concat(),
        "seed.scalene.json" => {
            let data = replaced(
                &data,
                "\"line\": \"",
                "\"line\": \"# plans of the company",
                false,
            );
            replaced(
                &data,
                "{\"elapsed",
                "{\"args\": [\"--password\", \"hunter2hunter2\"], \"elapsed",
                false,
            )
        }
        "seed.chrome.json" => replaced(
            &data,
            "thread (",
            "process 1:\\\"python --password hunter2hunter2\\\" (",
            false,
        ),
        "seed.memory.txt" => replaced(&data, "decode(", "'plans of the company'; decode(", false),
        _ => data,
    }
}

/// What a profile says apart from names.
fn numbers(profile: &HostProfile) -> impl PartialEq + std::fmt::Debug + use<> {
    let lines: Vec<_> = (profile.lines.iter())
        .map(|line| (line.line, line.calls, line.self_ns, line.grown_bytes))
        .collect();
    let samples = |timed: &Option<host::TimedSamples>| {
        timed
            .as_ref()
            .map(|timed| (timed.samples.clone(), timed.places.len(), timed.pid))
    };
    let samples = (samples(&profile.timed), samples(&profile.since_start));
    (profile.profiler, lines, samples, profile.memory.clone())
}

fn scrub(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"));
    let output = run
        .arg("scrub")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn secrets_in_profiles_of_the_host_are_not_in_copies() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = [0; PLANTED.len()];
    for file in std::fs::read_dir(SEEDS)
        .unwrap()
        .map(|file| file.unwrap().path())
    {
        let name = file.file_name().unwrap().to_str().unwrap();
        if !name.starts_with("seed") {
            continue;
        }
        let original = planted(name, &std::fs::read(&file).unwrap());
        let has =
            |data: &[u8], text: &str| data.windows(text.len()).any(|part| part == text.as_bytes());
        for (count, text) in found.iter_mut().zip(PLANTED) {
            *count += u32::from(has(&original, text));
        }
        std::fs::write(folder.path().join(name), &original).unwrap();
        let (code, said) = scrub(folder.path(), &[name, "copy.json", "--force"]);
        assert_eq!(code, Some(0), "{name}: {said}");
        let copy = std::fs::read(folder.path().join("copy.json")).unwrap();
        for text in PLANTED {
            assert!(
                !has(&copy, text),
                "{name}: {text}: {}",
                String::from_utf8_lossy(&copy)
            );
        }
        let before = host::open(&folder.path().join(name)).unwrap();
        let after = host::open(&folder.path().join("copy.json")).unwrap();
        assert_eq!(numbers(&before), numbers(&after), "{name}");
        if before.lines.iter().any(|line| line.file == PATH) {
            assert!(
                has(&copy, "net/job.py"),
                "{name}: {}",
                String::from_utf8_lossy(&copy)
            );
        }
    }
    assert!(found[0] >= 8 && found[2] >= 8, "{found:?}");
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
}

#[test]
fn copies_of_profiles_of_the_host_are_not_compressed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(format!("{SEEDS}/seed.prof"), folder.path().join("in.prof")).unwrap();
    let (code, said) = scrub(folder.path(), &["in.prof", "copy.json.gz"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("leave out `.gz`"), "{said}");
    assert!(!folder.path().join("copy.json.gz").exists());
}
