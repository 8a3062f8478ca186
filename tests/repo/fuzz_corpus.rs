//! The seeds of the fuzz targets (`fuzz/corpus`) are valid: a fuzzer makes no progress from a file that
//! is rejected at once.

use std::path::{Path, PathBuf};
use std::process::Command;

use pyprof_advise::base::diag::Source;
use pyprof_advise::correlate::UnneededRanges;
use pyprof_advise::cost::user::UserCosts;
use pyprof_advise::facts;
use pyprof_advise::gpu::load;
use pyprof_advise::judge::{RuleFile, RuleSet, Selection};
use pyprof_advise::read::{self, NoProgress};
use pyprof_advise::{pyprof, report};

fn seeds(target: &str) -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let entries = std::fs::read_dir(corpus.join(target)).unwrap().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|e| e.file_name().to_string_lossy().starts_with("seed"))
        .map(|e| e.path())
        .collect();
    found.sort();
    assert!(!found.is_empty(), "{target}: no seed");
    found
}

fn texts(target: &str) -> impl Iterator<Item = (String, String)> {
    seeds(target).into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.display().to_string(), text)
    })
}

#[test]
fn every_target_has_seeds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for entry in std::fs::read_dir(root.join("fuzz_targets")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        let target = name.strip_suffix(".rs").unwrap();
        assert!(manifest.contains(&format!("fuzz_targets/{name}")), "{name}");
        seeds(target);
    }
}

#[test]
fn locked_dependencies_equal_those_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| -> toml::Table {
        std::fs::read_to_string(root.join(file))
            .unwrap()
            .parse()
            .unwrap()
    };
    let manifest = read("Cargo.toml");
    let lock = read("fuzz/Cargo.lock");
    let packages = lock["package"].as_array().unwrap();
    let us = packages
        .iter()
        .find(|p| p["name"].as_str() == manifest["package"]["name"].as_str())
        .unwrap();
    let locked: Vec<&str> = us["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d.as_str().unwrap())
        .collect();
    for (name, how) in manifest["dependencies"].as_table().unwrap() {
        let optional = how.get("optional").is_some();
        assert!(
            optional || locked.contains(&name.as_str()),
            "{name} is not in fuzz/Cargo.lock: run `cargo metadata --manifest-path fuzz/Cargo.toml`"
        );
    }
}

#[test]
fn seed_profiles_contain_kernels() {
    for target in ["nsys", "nvprof", "kineto", "scrub"] {
        for path in seeds(target) {
            let profile = read::open_pruned(&path, &UnneededRanges, &NoProgress).unwrap();
            assert!(!profile.kernels.is_empty(), "{}", path.display());
        }
    }
}

#[test]
fn a_seed_has_nodes_of_a_captured_graph() {
    let captured = seeds("nsys").into_iter().any(|path| {
        let profile = read::open_pruned(&path, &UnneededRanges, &NoProgress).unwrap();
        profile
            .kernels
            .iter()
            .any(|kernel| kernel.captured.is_some())
    });
    assert!(captured);
}

#[test]
fn seed_rules_costs_and_gpus_load() {
    for (name, text) in texts("rules") {
        let file = RuleFile {
            id: "user/seed".to_owned(),
            source: Source::new(&name, &text),
            builtin: false,
            decision: None,
        };
        let set = RuleSet::load(&[file], &Selection::default(), facts::all());
        assert_eq!(set.err().map(|c| c.render(false)), None, "{name}");
    }
    for (name, text) in texts("costs") {
        let costs = UserCosts::read(&[Source::new(&name, &text)]);
        assert_eq!(costs.err().map(|c| c.render(false)), None, "{name}");
    }
    for (name, text) in texts("gpu") {
        let gpu = load::parse_source("seed", &Source::new(&name, &text));
        assert_eq!(gpu.err().map(|c| c.render(false)), None, "{name}");
    }
}

#[test]
fn seed_reports_templates_and_dictionaries_are_read() {
    let (name, text) = texts("report").next().unwrap();
    let seed = report::read_json(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (name, text) in texts("template") {
        let rendered = report::render_template(&seed, "seed", &text);
        assert!(rendered.unwrap().contains(&seed.title), "{name}");
    }
    for (name, text) in texts("dict") {
        let records = pyprof::read(&name, text.as_bytes()).unwrap();
        assert!(!records.is_empty(), "{name}");
    }
}

#[test]
fn seed_profiles_of_the_host_are_of_every_format() {
    let mut profilers = std::collections::BTreeMap::new();
    for path in seeds("host") {
        let profile = pyprof_advise::host::open(&path).unwrap();
        *profilers.entry(profile.profiler).or_insert(0) += 1;
        let is_empty = profile.lines.is_empty() && profile.memory.is_empty();
        assert!(!is_empty, "{}", path.display());
    }
    // Formats of each profiler: dump and text, binary and text, three of py-spy, `.dat` and table.
    for (profiler, formats) in [
        ("cProfile", 2),
        ("line_profiler", 2),
        ("py-spy", 3),
        ("Scalene", 1),
        ("memory_profiler", 2),
        ("Lightning AdvancedProfiler", 1),
        ("Lightning SimpleProfiler", 1),
        ("torch.profiler stacks", 1),
        ("torch.profiler table", 1),
        ("importtime", 1),
    ] {
        let seeds = profilers.get(profiler).copied().unwrap_or(0);
        assert!(seeds >= formats, "{profiler}: {seeds}");
    }
}

#[test]
fn seed_configurations_are_valid() {
    for path in seeds("config") {
        let out = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .args(["--dump-config", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", path.display());
        let written = String::from_utf8(out.stdout).unwrap();
        assert!(written.contains("gpu = \"a100\""), "{written}");
    }
}
