//! The JSON Schemas: committed as the program writes them, valid for all files of the repository, and
//! as strict about names as the loaders.

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use pyprof_advise::cost::user;
use pyprof_advise::{gpu, host, judge};
use serde_json::Value;

/// The kind of a file, and the function that generates its schema.
type Kind = (&'static str, fn() -> String);

const KINDS: [Kind; 4] = [
    ("rule", judge::keys::schema),
    ("cost", user::schema),
    ("gpu", gpu::keys::schema),
    ("classes", host::classes_schema),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn validator(kind: usize) -> Validator {
    let schema: Value = serde_json::from_str(&(KINDS[kind].1)()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "{}", KINDS[kind].0);
    jsonschema::draft202012::new(&schema).unwrap()
}

fn errors(validator: &Validator, text: &str) -> Vec<String> {
    let file: Value = toml::from_str(text).unwrap_or_else(|e| panic!("{e}"));
    let errors = validator.iter_errors(&file);
    errors
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect()
}

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "toml") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn schemas_are_fresh() {
    for (kind, make) in KINDS {
        let file = root().join(format!("docs/schema/{kind}.json"));
        let have = fs::read_to_string(&file).unwrap_or_default();
        if have == make() {
            continue;
        }
        if std::env::var_os("PYPROF_ADVISE_BLESS").is_some_and(|v| v == "1") {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, make()).unwrap();
            continue;
        }
        panic!("docs/schema/{kind}.json is stale: `PYPROF_ADVISE_BLESS=1 cargo test fresh`");
    }
}

#[test]
fn every_file_of_the_repository_is_valid() {
    let mut wrong = Vec::new();
    for (kind, folder, least) in [(0, "rules", 40), (2, "gpu_specs", 40)] {
        let validator = validator(kind);
        let files = toml_files(folder);
        assert!(files.len() >= least, "{folder}: {}", files.len());
        for file in files {
            for error in errors(&validator, &fs::read_to_string(&file).unwrap()) {
                wrong.push(format!("{}: {error}", file.display()));
            }
        }
    }
    let scaffold = judge::scaffold("fusion/x");
    wrong.extend(errors(&validator(0), &scaffold));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The TOML blocks of a document.
fn blocks(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let blocks = text.split("```toml\n").skip(1);
    blocks
        .filter_map(|block| block.split("\n```\n").next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn examples_in_documents_are_valid() {
    let mut costs = 0;
    for document in [
        "README.md",
        "docs/own-operators.md",
        "docs/writing-rules.md",
    ] {
        for text in blocks(document) {
            let kind = usize::from(text.contains("[[cost]]"));
            costs += kind;
            let errors = errors(&validator(kind), &text);
            assert!(
                errors.is_empty(),
                "{document}: {}\n{text}",
                errors.join("\n")
            );
        }
    }
    assert!(costs > 0, "no document shows a cost file");
}

#[test]
fn misspelled_keys_are_errors() {
    let rule = judge::scaffold("fusion/x");
    let cost = blocks("docs/own-operators.md")
        .into_iter()
        .find(|t| t.contains("[[cost]]"))
        .unwrap();
    let gpu = fs::read_to_string(root().join("gpu_specs/v100-sxm2-16gb.toml")).unwrap();
    for (kind, text, from, to) in [
        (0, &rule, "title ", "titel "),
        (
            0,
            &rule,
            "severity   = \"warning\"",
            "severity   = \"warnin\"",
        ),
        (0, &rule, "doc =", "dco ="),
        (0, &rule, "\"site.reachable_ns\" =", "\"site.reachable\" ="),
        (0, &rule, "silent = true", "silent = false"),
        (
            0,
            &rule,
            "skipped = [\"site.reachable_ns\"]",
            "silent = true\nfires = \"x\"",
        ),
        (1, &cost, "family", "familiy"),
        (1, &cost, "flops ", "flop "),
        (2, &gpu, "sm_count", "sm_cuont"),
        (2, &gpu, "bandwidth_gbs", "bandwidth_gb"),
        (2, &gpu, "fp16 =", "half ="),
        (2, &gpu, "sm_count           = 80", "sm_count           = 0"),
    ] {
        assert!(text.contains(from), "{from}\n{text}");
        let slipped = text.replacen(from, to, 1);
        assert!(
            !errors(&validator(kind), &slipped).is_empty(),
            "{to} is let through"
        );
    }
}

#[test]
fn command_prints_the_schemas() {
    for (kind, make) in KINDS {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .args(["rules", "schema", kind])
            .output()
            .unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), make());
    }
}
