//! The rules and commands in the documents load, pass and run.

use std::fs;
use std::path::Path;

use pyprof_advise::judge::keys::{CASE_KEYS, EDIT_KEYS, FIX_KEYS, KEYS};

use super::{fresh, markdown, pages, playground, read, run, said};

const GUIDE: &str = "docs/writing-rules.md";
const OPERATORS: &str = "docs/own-operators.md";
/// Documents whose commands are run, in order, in a folder of their own.
const WITH_COMMANDS: &[&str] = &[
    "README.md",
    GUIDE,
    OPERATORS,
    "docs/diff.md",
    "docs/formats.md",
    "docs/measuring.md",
    "docs/pyprof.md",
    "docs/ranks.md",
    "docs/usage.md",
];
/// Maximum number of lines of an output in a document.
const SHOWN: usize = 13;

/// The rule files of a document.
fn rules(document: &str) -> Vec<(String, String)> {
    let files = files(document).into_iter();
    files.filter(|(_, text)| !is_costs(text)).collect()
}

fn is_costs(text: &str) -> bool {
    text.contains("[[cost]]")
}

/// The files of a document: its TOML blocks, each with its path as a comment in the first line.
pub(crate) fn files(document: &str) -> Vec<(String, String)> {
    let blocks = markdown::blocks(document).into_iter();
    blocks
        .filter(|(language, _)| language == "toml")
        .map(|(_, text)| {
            let first = text.lines().next().unwrap_or_default();
            let path = first.strip_prefix("# ").filter(|p| p.ends_with(".toml"));
            let path = path.unwrap_or_else(|| panic!("`{first}` is no path"));
            assert!(!path.contains("..") && !path.starts_with('/'), "{path}");
            (path.to_owned(), text.clone())
        })
        .collect()
}

/// The commands of a document without the program's name: complete lines of code blocks, and inline
/// code that is a command or an option for the example profile.
fn commands(document: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for (language, text) in markdown::blocks(document) {
        if ["text", "sh"].contains(&language.as_str()) {
            let lines = text
                .lines()
                .map(|line| line.split(" # ").next().unwrap_or(line));
            commands.extend(
                lines
                    .filter_map(|l| l.strip_prefix("pyprof-advise "))
                    .map(str::to_owned),
            );
        }
    }
    for span in markdown::spans(document) {
        if let Some(command) = span.strip_prefix("pyprof-advise ") {
            commands.push(command.to_owned());
        } else if span.starts_with("--") && span.contains(' ') {
            commands.push(format!("net.sqlite {span}"));
        }
    }
    // `--template FILE` has a placeholder for a value: it is a form, not a command.
    let placeholder = |word: &str| word.bytes().all(|b| b.is_ascii_uppercase());
    commands.retain(|command| !command.split_whitespace().any(placeholder));
    commands.iter().map(|c| c.trim().to_owned()).collect()
}

#[test]
fn rules_in_documents_load_and_pass() {
    for document in ["README.md", GUIDE] {
        let folder = playground(&[document]);
        let found = rules(&read(document));
        assert!(!found.is_empty(), "{document} shows no rule");
        // The ids of rules in a folder depend on its category folders, so it is passed as a whole.
        let mut paths: Vec<String> = found
            .into_iter()
            .map(|(path, _)| match path.split_once('/') {
                Some((folder, _)) => folder.to_owned(),
                None => path,
            })
            .collect();
        paths.dedup();
        for path in &paths {
            said(folder.path(), &["rules", "check", path]);
            said(folder.path(), &["rules", "test", path]);
        }
    }
}

#[test]
fn costs_in_documents_load_and_pass() {
    let page = read(OPERATORS);
    let folder = playground(&[OPERATORS]);
    let found = files(&page).into_iter();
    let found: Vec<_> = found.filter(|(_, text)| is_costs(text)).collect();
    assert!(!found.is_empty(), "{OPERATORS} shows no costs");
    for (path, text) in found {
        let marked = format!("<!-- example: costs -->\n```toml\n{text}");
        assert!(page.contains(&marked), "{path} is not marked");
        said(folder.path(), &["costs", "check", &path]);
        said(folder.path(), &["costs", "test", &path]);
    }
}

#[test]
fn commands_in_documents_run() {
    for document in WITH_COMMANDS {
        let folder = playground(&[document]);
        let commands = commands(&read(document));
        assert!(!commands.is_empty(), "{document} shows no command");
        for command in commands {
            let (command, file) = match command.split_once(" > ") {
                Some((command, file)) => (command, Some(file)),
                None => (command.as_str(), None),
            };
            let arguments: Vec<&str> = command.split_whitespace().collect();
            // It runs a program on a GPU; `tests/cli/record.rs` runs it on programs of its own.
            if matches!(arguments.first(), Some(&("run" | "try"))) {
                continue;
            }
            let output = said_or_gated(folder.path(), &arguments);
            if let Some(file) = file {
                fs::write(folder.path().join(file), output).unwrap();
            }
        }
    }
}

/// The output of a command; with a gate, its exit status may be 1.
fn said_or_gated(folder: &Path, arguments: &[&str]) -> String {
    if !arguments.contains(&"--fail-on") {
        return said(folder, arguments);
    }
    let output = run(folder, arguments);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn guide_explains_the_keys_of_fixes_and_edits() {
    let guide = read(GUIDE);
    for key in FIX_KEYS.iter().chain(EDIT_KEYS) {
        let name = format!("`{}`", key.name);
        assert!(guide.contains(&name), "{GUIDE} does not explain {name}");
    }
}

#[test]
fn keys_of_the_configuration_are_fresh() {
    // The declaration is private to the command line; its schema tells names and docs.
    let schema: serde_json::Value =
        serde_json::from_str(&said(super::root(), &["schema", "config"])).unwrap();
    let page = read(CONFIGURATION);
    let page = markdown::with_block(&page, "keys", &keys_of(&schema));
    let suppress = &schema["properties"]["suppress"]["items"];
    let page = markdown::with_block(&page, "suppress keys", &keys_of(suppress));
    fresh(CONFIGURATION, &page);
}

const CONFIGURATION: &str = "docs/configuration.md";

/// The table of the keys that a schema of an object has, in the order of their names.
fn keys_of(schema: &serde_json::Value) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let rows = schema["properties"].as_object().unwrap().iter();
    let rows = rows.map(|(name, key)| {
        let required = if required.contains(&name.as_str().into()) {
            "yes"
        } else {
            ""
        };
        let doc = key["description"].as_str().unwrap();
        vec![format!("`{name}`"), required.into(), markdown::cell(doc)]
    });
    markdown::table(&["Key", "Required", "Meaning"], rows)
}

/// The output between `<!-- run: ARGUMENTS -->` and `<!-- /run -->` is that of the command; tables of keys are those of
/// the declaration.
#[test]
fn outputs_in_the_guide_are_fresh() {
    let guide = read(GUIDE);
    let folder = playground(&[GUIDE]);
    let mut want = guide.clone();
    for (mark, keys) in [("keys", KEYS), ("test keys", CASE_KEYS)] {
        want = markdown::with_block(&want, mark, &pages::keys(keys));
    }
    for line in guide.lines() {
        let Some(command) = line.strip_prefix("<!-- run: ") else {
            continue;
        };
        let command = command.trim_end_matches(" -->");
        let arguments: Vec<&str> = command.split_whitespace().collect();
        // The output may be an error message, so any exit status is accepted.
        let output = run(folder.path(), &arguments);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        let mut shown: Vec<&str> = text.trim_end().lines().take(SHOWN).collect();
        if text.trim_end().lines().count() > SHOWN {
            shown.push("...");
        }
        let body = format!("\n```text\n{}\n```\n\n", shown.join("\n"));
        want = markdown::with_block(&want, &format!("run: {command}"), &body);
    }
    assert_ne!(want.matches("<!-- run: ").count(), 0);
    fresh(GUIDE, &want);
}

#[test]
fn new_rules_pass_their_own_tests() {
    let folder = playground(&[]);
    said(folder.path(), &["rules", "new", "fusion/my-idea"]);
    let text = fs::read_to_string(folder.path().join("rules/fusion/my-idea.toml")).unwrap();
    for key in KEYS.iter().filter(|key| key.required) {
        assert!(
            text.contains(key.name),
            "`rules new` leaves out {}",
            key.name
        );
    }
    said(folder.path(), &["rules", "test", "rules"]);
}
