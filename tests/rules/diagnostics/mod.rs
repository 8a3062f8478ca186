//! Every message about a rule, cost or GPU file, with the smallest file that provokes it.
//!
//! `rule.txt`, `cost.txt` and `gpu.txt` contain blocks of `=== name`, the content of the file, `---`,
//! and the messages as printed. The content of a block replaces parts of a small valid rule or GPU.
//! `PYPROF_ADVISE_BLESS=1 cargo test fresh` renews the printed parts.

use std::fs;
use std::path::Path;

use pyprof_advise::base::diag::{Complaints, Source};
use pyprof_advise::cost::Family;
use pyprof_advise::cost::user::UserCosts;
use pyprof_advise::facts::{Fact, Type};
use pyprof_advise::gpu;
use pyprof_advise::judge::load::{RuleFile, find};
use pyprof_advise::judge::{RuleSet, Selection};

mod sentences;

const fn fact(name: &'static str, ty: Type) -> Fact {
    Fact::new(name, ty, "a fact of the tests")
}

static FACTS: &[Fact] = &[
    fact("gpu.tc_align", Type::INTS),
    fact("kernel.registers", Type::INT),
    fact("site.family", Type::STR),
    Fact {
        families: &[Family::Gemm],
        needs: "tensor shapes",
        ..fact("site.m", Type::INT)
    },
    fact("site.names", Type::STRINGS),
    fact("site.time_ns", Type::DOUBLE),
];

const RULE: &[(&str, &str)] = &[
    ("title", "\"A title\""),
    ("severity", "\"warning\""),
    ("confidence", "\"high\""),
    ("for_each", "\"site\""),
    ("when", "'site.family == \"gemm\"'"),
    ("message", "\"says\""),
    ("why", "\"because\""),
    ("fix", "\"do it\""),
];

const GPU: &[(&str, &str)] = &[
    ("name", "\"A board\""),
    ("vendor", "\"nvidia\""),
    ("architecture", "\"Volta\""),
    ("compute_capability", "\"7.0\""),
    ("sm_count", "80"),
    ("boost_mhz", "1530"),
    ("sources", "[\"a datasheet\"]"),
    ("flops", "{ fp32 = 15.7 }"),
    ("memory", "{ bandwidth_gbs = 900 }"),
];

/// `body` with some defaults: a key in `body` takes precedence, and `-key` removes one.
fn over(defaults: &[(&str, &str)], body: &str) -> String {
    let top = match body.starts_with('[') {
        true => "",
        false => body.split("\n[").next().unwrap_or_default(),
    };
    let set = |key: &str| {
        let table = [format!("[{key}]"), format!("[[{key}]]")];
        top.lines().any(|line| {
            line.split(['=', ' ', '.']).next() == Some(key) || line == format!("-{key}")
        }) || body.lines().any(|line| table.iter().any(|t| t == line))
    };
    let mut text = String::new();
    for line in body.lines().filter(|line| !line.starts_with('-')) {
        text.push_str(line);
        text.push('\n');
    }
    let rest: String = defaults
        .iter()
        .filter(|(key, _)| !set(key))
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect();
    // The block's lines come first, so that line numbers are those of the block.
    let first_table = match text.starts_with('[') {
        true => Some(0),
        false => text.find("\n[").map(|at| at + 1),
    };
    match first_table {
        Some(at) => format!("{}{rest}{}", &text[..at], &text[at..]),
        None => text + &rest,
    }
}

fn rule_file(id: &str, body: &str) -> RuleFile {
    let mut text = over(RULE, body);
    if !text.contains("[[test]]") && !body.contains("-test") {
        text.push_str("[[test]]\nname = \"a\"\nfires = \"says\"\n");
        text.push_str("[[test]]\nname = \"b\"\nsilent = true\n");
    }
    RuleFile {
        id: id.to_owned(),
        source: Source::new(format!("{id}.toml"), text),
        builtin: false,
        decision: None,
    }
}

/// The messages of loading one rule, or several that follow lines `## id`.
fn about_rules(body: &str) -> String {
    let mut files = Vec::new();
    let mut selection = Selection::default();
    let mut parts = body.split("## ");
    let first = parts.next().unwrap_or_default();
    if !first.trim().is_empty() {
        files.push(rule_file("host/x", first));
    }
    for part in parts {
        let (id, text) = part.split_once('\n').unwrap_or((part, ""));
        match id.split_once(' ') {
            Some(("--set", value)) => selection.set.push(value.to_owned()),
            Some(("--select", value)) => selection.select.push(value.to_owned()),
            Some(("--ignore", value)) => selection.ignore.push(value.to_owned()),
            _ => files.push(rule_file(id, text)),
        }
    }
    let loaded = match body.contains("## --") {
        true => RuleSet::load(&files, &selection, FACTS),
        false => RuleSet::check(&files, FACTS, &|_| None),
    };
    match loaded {
        Ok(_) => String::new(),
        Err(complaints) => complaints.render(false),
    }
}

fn about_costs(body: &str) -> String {
    let body = body.replace("MANY TESTS\n", &"[[test]]\n".repeat(5_000));
    match UserCosts::read(&[Source::new("costs.toml", body)]) {
        Ok(_) => String::new(),
        Err(complaints) => complaints.render(false),
    }
}

fn about_gpu(body: &str) -> String {
    match gpu::load::parse_source("board", &Source::new("board.toml", over(GPU, body))) {
        Ok(_) => String::new(),
        Err(complaints) => complaints.render(false),
    }
}

/// A block of a case file.
struct Case {
    name: String,
    body: String,
    said: String,
}

fn path(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/rules/diagnostics")
        .join(file)
}

fn cases(file: &str) -> Vec<Case> {
    let text = fs::read_to_string(path(file)).unwrap();
    let blocks = text.split("=== ").skip(1).map(|block| {
        let (name, rest) = block.split_once('\n').unwrap_or((block, ""));
        let (body, said) = rest.split_once("---\n").unwrap_or((rest, ""));
        Case {
            name: name.to_owned(),
            body: body.to_owned(),
            said: said.trim_end().to_owned(),
        }
    });
    blocks.collect()
}

/// Compares every block of a file with the current messages, or updates them.
fn hold(file: &str, about: fn(&str) -> String) {
    let bless = std::env::var_os("PYPROF_ADVISE_BLESS").is_some_and(|v| v == "1");
    let mut wrong = Vec::new();
    let mut all = String::new();
    let mut names = Vec::new();
    for case in cases(file) {
        let said = about(&case.body);
        let said = said.trim_end();
        assert!(
            !names.contains(&case.name),
            "two blocks `{}` in {file}",
            case.name
        );
        if said.is_empty() {
            wrong.push(format!("{file}: `{}` provokes no complaint", case.name));
        }
        if said != case.said {
            wrong.push(format!(
                "=== {}\nwanted:\n{}\nsaid:\n{said}",
                case.name, case.said
            ));
        }
        all.push_str(&format!("=== {}\n{}---\n{said}\n\n", case.name, case.body));
        names.push(case.name);
    }
    if bless && !wrong.iter().any(|w| w.ends_with("no complaint")) {
        fs::write(path(file), all.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn messages_about_rules_are_fresh() {
    hold("rule.txt", about_rules);
}

#[test]
fn messages_about_costs_are_fresh() {
    hold("cost.txt", about_costs);
}

#[test]
fn messages_about_gpus_are_fresh() {
    hold("gpu.txt", about_gpu);
}

#[test]
fn default_files_of_the_cases_load() {
    assert_eq!(about_rules("saving_ns = '1'\n"), "");
    assert_eq!(about_gpu(""), "");
}

/// Messages about paths, whose files cannot be contained in a text file.
fn about_paths() -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("latin.toml"), b"title = \"caf\xe9\"").unwrap();
    fs::write(at("large.toml"), vec![b'#'; 10 << 20]).unwrap();
    fs::write(at("Upper Case.toml"), "").unwrap();
    fs::create_dir_all(at("empty")).unwrap();
    fs::create_dir_all(at("deep/a/b")).unwrap();
    fs::write(at("deep/a/b/c.toml"), "").unwrap();
    fs::create_dir_all(at("typo/hots")).unwrap();
    fs::write(at("typo/hots/c.toml"), "").unwrap();
    fs::create_dir_all(at("many")).unwrap();
    for n in 0..2_001 {
        fs::write(at(&format!("many/r{n}.toml")), "").unwrap();
    }
    let cases = [
        ("latin.toml", "it is not UTF-8 text (byte 12)"),
        ("large.toml", "it is larger than 1 MiB"),
        ("nowhere.toml", "this file cannot be read"),
        (
            "Upper Case.toml",
            "a rule is named in lower-case letters, digits and `-`",
        ),
        ("empty", "no rules in this folder"),
        (
            "deep",
            "rules lie in the folder or in one of its category folders",
        ),
        ("typo", "unknown category `hots`; did you mean `host`?"),
        ("many", "more than 2000 rules"),
    ];
    let said = cases.map(|(name, want)| {
        let loaded = match find(&at(name)) {
            Ok(files) => RuleSet::load(&files, &Selection::default(), FACTS).unwrap_err(),
            Err(complaints) => complaints,
        };
        (want, loaded.render(false))
    });
    said.into()
}

#[test]
fn messages_about_paths_name_the_problem() {
    for (want, said) in about_paths() {
        assert!(said.contains(want), "{want}\n{said}");
    }
    let costs = UserCosts::load(&["/nowhere/costs.toml".into()]);
    let said: Complaints = costs.unwrap_err();
    assert!(said.render(false).contains("this file cannot be read"));
    let gpu = gpu::load::load(Path::new("/nowhere/gpu.toml")).unwrap_err();
    assert!(gpu.render(false).contains("this file cannot be read"));
}
