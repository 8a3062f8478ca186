//! The conventions of the repository: modules use lower floors only, files have a maximum length, and
//! nothing exits, starts processes or uses the network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of lines of a file; longer ones should be split.
const MAX_LINES: usize = 900;

/// `(forbidden text, file where it is allowed, reason)`, in `src/`.
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
        "src/capture/start.rs",
        "only `run` starts a program: the one that its command line names",
    ),
    ("std::net", "", "the program speaks to no network"),
    ("load_extension", "", "nothing in a profile is executed"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `folder` with an extension, as paths relative to the repository, sorted.
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

/// Floors by module, from the table in the first comment of `src/lib.rs`, so that the documented table
/// is the one that is enforced.
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
    let begin_tests = |at: &usize| {
        let mut behind = lines[at + 1..].iter();
        matches!(lines[*at], "#[cfg(test)]" | "#[cfg(all(test, unix))]")
            && behind
                .find(|line| !line.starts_with("#["))
                .is_some_and(|line| line.ends_with('{'))
    };
    let tests = (0..lines.len()).find(begin_tests).unwrap_or(lines.len());
    (1..)
        .zip(&lines[..tests])
        .map(|(number, line)| (number, line.split("//").next().unwrap_or("")))
        .filter(|(_, line)| !line.trim().is_empty())
        .collect()
}

/// The modules of this crate that a file names, each with the line of its first use.
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
        modules_used("use crate::{base, judge::RuleResults};\n// crate::cli\nfoo(crate::cost::X)");
    let names: Vec<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(names, ["base", "cost", "judge"]);
    assert_eq!(used["cost"], 3);
    assert!(modules_used("#[cfg(test)]\nmod tests {\nuse crate::cli;\n}").is_empty());
}

/// Modules whose files use each other in one direction only. This list only grows.
const ACYCLIC_MODULES: &[&str] = &[
    "advisor",
    "capture",
    "cli",
    "compare",
    "correlate",
    "cost",
    "export",
    "facts",
    "gpu",
    "host",
    "judge",
    "profile",
    "pyprof",
    "report",
    "repro",
    "scrub",
    "trial",
];

/// Files that their parts may name: the fact table consists of what the other files compute, and facts are functions
/// of the table.
const WHOLES: &[&str] = &["facts::table"];

/// Whether a file belongs to tests alone. `rule_tests.rs` runs the tests of rule files.
fn of_tests(file: &str) -> bool {
    let named = file.ends_with("tests.rs") || file.ends_with("testing.rs");
    named && !file.ends_with("/rule_tests.rs")
}

#[test]
fn files_of_a_module_do_not_use_each_other_in_cycles() {
    let mut complaints = Vec::new();
    for module in ACYCLIC_MODULES {
        let facade = Some(format!("src/{module}.rs")).filter(|file| root().join(file).exists());
        let texts: BTreeMap<String, String> = files(&format!("src/{module}"), ".rs")
            .into_iter()
            .chain(facade)
            .filter(|file| !of_tests(file))
            .map(|file| (file_module(&file), read(&file)))
            .collect();
        assert!(texts.len() > 1, "src/{module} has no files");
        let mut used = files_used(&texts);
        for files in used.values_mut() {
            files.retain(|file| !WHOLES.contains(file));
        }
        if let Some(circle) = circle(&used) {
            complaints.push(circle.join(" uses "));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn cycles_between_files_are_found() {
    let texts = |inner: &str| {
        BTreeMap::from([
            ("a".to_owned(), "mod b;\nuse b::B;".to_owned()),
            ("a::b".to_owned(), inner.to_owned()),
            ("a::c".to_owned(), "use super::b::{\n    B,\n};".to_owned()),
        ])
    };
    assert_eq!(circle(&files_used(&texts("use crate::profile::X;"))), None);
    for inner in [
        "use super::{X, c::C};",
        "fn f(x: crate::a::c::C) {}",
        "use super::X;",
    ] {
        assert!(circle(&files_used(&texts(inner))).is_some(), "{inner}");
    }
}

/// `correlate::timeline` for `src/correlate/timeline/mod.rs`.
fn file_module(file: &str) -> String {
    let inner = file.trim_start_matches("src/").trim_end_matches(".rs");
    inner.trim_end_matches("/mod").replace('/', "::")
}

/// For each file of a module, by its path, the other files that it names.
fn files_used(texts: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut used = BTreeMap::new();
    for (own, text) in texts {
        let text: String = code(text)
            .into_iter()
            .map(|(_, line)| format!("{line}\n"))
            .collect();
        let parent = own.rsplit_once("::").map_or("", |(parent, _)| parent);
        let mut paths: Vec<String> = Vec::new();
        let below = texts
            .keys()
            .filter_map(|file| file.strip_prefix(&format!("{own}::")));
        let children = below.filter(|child| !child.contains("::"));
        let starts = children.map(|child| (format!("{child}::"), format!("{own}::{child}::")));
        let own_paths = ("self::".to_owned(), format!("{own}::"));
        let crate_paths = ("crate::".to_owned(), String::new());
        let super_paths = ("super::".to_owned(), format!("{parent}::"));
        let starts = starts.chain([own_paths, super_paths, crate_paths]);
        for (start, module) in starts {
            for (at, _) in text.match_indices(&start) {
                let before = text[..at].chars().next_back();
                if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                    let named = names_after(&text[at + start.len()..]);
                    paths.extend(named.into_iter().map(|name| format!("{module}{name}")));
                }
            }
        }
        let files = paths.iter().filter_map(|path| {
            let of_path = |file: &&String| path.starts_with(&format!("{file}::"));
            let file = texts.keys().filter(of_path).max_by_key(|file| file.len())?;
            (file != own).then_some(file.as_str())
        });
        used.insert(own.as_str(), files.collect());
    }
    used
}

/// The paths that follow `use super::`: `["a::", "b::"]` for `{a::A, b}`.
fn names_after(text: &str) -> Vec<String> {
    let end = if text.starts_with('{') {
        text.find(';').unwrap_or(text.len())
    } else {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        text.find(|c| !is_path(c)).unwrap_or(text.len())
    };
    let list = text[..end].trim_start_matches('{').split(',');
    list.map(|name| format!("{}::", name.trim().trim_end_matches('}')))
        .collect()
}

/// A cyclic path through the files.
fn circle<'a>(used: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Option<Vec<&'a str>> {
    fn walk<'a>(
        file: &'a str,
        used: &BTreeMap<&'a str, BTreeSet<&'a str>>,
        path: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> bool {
        if done.contains(file) {
            return false;
        }
        let repeated = path.contains(&file);
        path.push(file);
        if repeated || used[file].iter().any(|next| walk(next, used, path, done)) {
            return true;
        }
        path.pop();
        done.insert(file);
        false
    }
    let mut path = Vec::new();
    let mut done = BTreeSet::new();
    used.keys()
        .any(|file| walk(file, used, &mut path, &mut done))
        .then_some(path)
}

/// A type that other modules can see has a name of its own, so that a reader of `use` lines need not ask which
/// one is meant.
#[test]
fn names_of_visible_types_have_one_meaning() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files("src", ".rs") {
        for line in read(&file).lines() {
            if let Some(name) = visible_type(line) {
                places
                    .entry(name.to_owned())
                    .or_default()
                    .push(file.clone());
            }
        }
    }
    assert!(places.len() > 300, "{} types", places.len());
    let twice: Vec<String> = places
        .iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert!(twice.is_empty(), "\n{}", twice.join("\n"));
}

/// The name of the type that a line declares for other modules.
fn visible_type(line: &str) -> Option<&str> {
    let visible = line.trim_start().strip_prefix("pub")?;
    let declared = match visible.strip_prefix('(') {
        Some(scope) => scope.split_once(") ")?.1,
        None => visible.strip_prefix(' ')?,
    };
    let (kind, rest) = declared.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let kinds = ["struct", "enum", "trait", "type", "union"];
    // The name of a type that a macro declares is its argument.
    (kinds.contains(&kind) && !name.is_empty()).then_some(name)
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
    let others = [
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
    ];
    documents.extend(others.map(str::to_owned));
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

/// Checks that no crate banned by `deny.toml` is locked, for environments without `cargo deny`.
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

/// Words that texts for users do not contain, with what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("nobody", "name who or what"),
    ("whoever", "name who"),
    ("give back", "save"),
    ("gives back", "saves"),
    ("given back", "saved"),
    ("promise", "estimate"),
    ("can be won", "can be saved"),
    ("to win", "to save"),
    ("time lost", "not worthwhile"),
    ("for want of", "not recorded"),
    ("sold", "reported"),
    ("headroom", "slowdown"),
    ("is priced", "cost known"),
    ("unasked", "unless you name one"),
    ("batch norm behind", "next"),
];

/// Whether a text contains words, not as a part of other words.
fn contains_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
        !letter(text[..at].chars().next_back()) && !letter(text[at + words.len()..].chars().next())
    })
}

#[test]
fn texts_for_users_are_plain_english() {
    let mut texts = files("docs", ".md");
    texts.extend(files("rules", ".toml"));
    texts.push("README.md".to_owned());
    assert!(texts.len() > 150, "{}", texts.len());
    let mut found = Vec::new();
    // Remarks of reviewers, quoted as they were written.
    for file in texts.iter().filter(|file| *file != "docs/field-notes.md") {
        let text = fs::read_to_string(root().join(file))
            .unwrap()
            .to_lowercase();
        for (at, line) in text.lines().enumerate() {
            for (word, instead) in BANNED.iter().filter(|(word, _)| contains_words(line, word)) {
                found.push(format!("{file}:{}: `{word}`; write `{instead}`", at + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
