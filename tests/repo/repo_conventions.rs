//! The conventions of the repository, held to by a test: modules use lower floors only, files stay
//! readable, nothing exits, executes or steps around the type system on the quiet.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines: beyond this it wants to be two.
const MAX_LINES: usize = 900;

/// `(what must not be written, where it may be all the same, why)`, in `src/`.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    (
        "process::exit",
        "src/main.rs",
        "only main decides how the program ends",
    ),
    (
        "process::abort",
        "",
        "only main decides how the program ends",
    ),
    (
        "process::Command",
        "",
        "a profile must not make the program start another one",
    ),
    ("std::net", "", "the program speaks to no network"),
    ("load_extension", "", "nothing in a profile is executed"),
    ("unsafe {", "", "the crate forbids unsafe code"),
    ("unsafe fn", "", "the crate forbids unsafe code"),
    ("unsafe impl", "", "the crate forbids unsafe code"),
    (
        "fn eval(text",
        "",
        "text of a profile is parsed as data, never evaluated",
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `folder` with an ending, as paths relative to the repository, sorted.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                let relative = path.strip_prefix(root()).unwrap();
                found.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Module to floor, from the table in the first comment of `src/lib.rs`, so that the table people
/// read is the one that is enforced.
fn floors() -> BTreeMap<String, u32> {
    let mut floors = BTreeMap::new();
    for line in read("src/lib.rs").lines() {
        let Some(row) = line.strip_prefix("//! | ") else {
            continue;
        };
        let mut cells = row.split(" | ");
        let (Some(floor), Some(modules)) = (cells.next(), cells.next()) else {
            continue;
        };
        let Ok(floor) = floor.parse() else { continue };
        for module in modules.split('`').skip(1).step_by(2) {
            floors.insert(module.to_owned(), floor);
        }
    }
    floors
}

/// The module of `src/` a file belongs to: `cost` for `src/cost/estimate.rs`.
fn module(file: &str) -> &str {
    let inner = file.strip_prefix("src/").unwrap_or(file);
    let first = inner.split('/').next().unwrap_or(inner);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// Code without comments and without the tests at the end of a file, with line numbers.
fn code(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{'))
        .unwrap_or(lines.len());
    (1..)
        .zip(&lines[..tests])
        .map(|(number, line)| (number, line.split("//").next().unwrap_or("")))
        .filter(|(_, line)| !line.trim().is_empty())
        .collect()
}

/// The modules of this crate that a file names, with the line each is first named in.
fn modules_used(text: &str) -> BTreeMap<String, usize> {
    let mut used = BTreeMap::new();
    for (number, line) in code(text) {
        for (at, _) in line.match_indices("crate::") {
            let after = &line[at + "crate::".len()..];
            let names: Vec<&str> = match after.strip_prefix('{') {
                Some(list) => list.split(',').collect(),
                None => vec![after],
            };
            for name in names {
                let name: String = name
                    .trim()
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                used.entry(name).or_insert(number);
            }
        }
    }
    used
}

#[test]
fn modules_use_lower_floors_only() {
    let floors = floors();
    assert!(
        floors.len() >= 10,
        "the table of src/lib.rs was not found: {floors:?}"
    );
    let mut complaints = Vec::new();
    for file in files("src", ".rs") {
        let own = module(&file);
        if own == "lib" || own == "main" {
            continue;
        }
        let Some(floor) = floors.get(own) else {
            complaints.push(format!("{file}: `{own}` is not in the table of src/lib.rs"));
            continue;
        };
        for (used, line) in modules_used(&read(&file)) {
            if let Some(other) = floors.get(&used).filter(|other| *other > floor) {
                complaints.push(format!(
                    "{file}:{line}: `{own}` (floor {floor}) uses `{used}` (floor {other})"
                ));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn module_order_check_detects_violations() {
    let used =
        modules_used("use crate::{base, judge::Verdict};\n// crate::cli\nfoo(crate::cost::X)");
    let names: Vec<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(names, ["base", "cost", "judge"]);
    assert_eq!(used["cost"], 3);
    assert!(modules_used("#[cfg(test)]\nmod tests {\nuse crate::cli;\n}").is_empty());
}

#[test]
fn files_are_at_most_900_lines_long() {
    let long: Vec<String> = ["src", "tests", "benches"]
        .iter()
        .flat_map(|folder| files(folder, ".rs"))
        .map(|file| (read(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .map(|(lines, file)| format!("{file}: {lines} lines, at most {MAX_LINES}"))
        .collect();
    assert!(long.is_empty(), "\n{}", long.join("\n"));
}

#[test]
fn forbidden_constructs_are_absent() {
    let mut complaints = Vec::new();
    for file in files("src", ".rs") {
        let text = read(&file);
        for (number, line) in code(&text) {
            for (forbidden, allowed_in, why) in FORBIDDEN {
                if line.contains(forbidden) && file != *allowed_in {
                    complaints.push(format!("{file}:{number}: `{forbidden}`: {why}"));
                }
            }
        }
    }
    assert!(read("src/lib.rs").contains("#![forbid(unsafe_code)]"));
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_module_has_a_doc_comment() {
    let silent: Vec<String> = files("src", ".rs")
        .into_iter()
        .filter(|file| !file.ends_with("/tests.rs") && !read(file).starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "no `//!` comment: {silent:?}");
}

#[test]
fn links_between_documents_resolve() {
    let mut documents = files("docs", ".md");
    documents.extend(["README.md".to_owned(), "CHANGELOG.md".to_owned()]);
    let mut broken = Vec::new();
    for document in documents.iter().filter(|d| root().join(d).exists()) {
        let folder = Path::new(document).parent().unwrap_or(Path::new(""));
        for target in link_targets(&read(document)) {
            let path = target.split('#').next().unwrap_or("");
            let is_local = !path.is_empty() && !path.contains(':');
            if is_local && !root().join(folder).join(path).exists() {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The targets of `[text](target)` outside code blocks.
fn link_targets(markdown: &str) -> Vec<String> {
    let arena = comrak::Arena::new();
    let document = comrak::parse_document(&arena, markdown, &comrak::Options::default());
    document
        .descendants()
        .filter_map(|node| match &node.data.borrow().value {
            comrak::nodes::NodeValue::Link(link) => Some(link.url.clone()),
            _ => None,
        })
        .collect()
}

/// Without `cargo deny` at hand: nothing that `deny.toml` bans is locked.
#[test]
fn no_dependency_uses_the_network() {
    let deny = read("deny.toml");
    let (_, list) = deny.split_once("\ndeny = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let banned: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert!(banned.contains(&"reqwest"), "{banned:?}");
    let lock = read("Cargo.lock");
    for name in banned {
        assert!(!lock.contains(&format!("name = \"{name}\"\n")), "{name}");
    }
}
