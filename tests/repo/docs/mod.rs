//! The documents describe the program: generated pages are up to date, examples load and pass, commands
//! run.
//!
//! `PYPROF_ADVISE_BLESS=1 cargo test fresh` renews generated files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

mod examples;
mod markdown;
mod pages;
mod readme;

const BLESS: &str = "PYPROF_ADVISE_BLESS";

/// The generated pages: file and content.
fn generated() -> Vec<(String, String)> {
    let others = [
        ("docs/facts.md", pages::facts()),
        ("docs/costs.md", pages::costs()),
        ("docs/gpus.md", pages::gpus()),
        ("docs/field-notes.md", pages::field_notes()),
    ];
    let others = others.map(|(file, page)| (file.to_owned(), page));
    pages::rules().into_iter().chain(others).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_default()
}

/// Compares a file of the repository with its expected content; renews it if requested.
fn fresh(file: &str, want: &str) {
    let have = read(file);
    if have == want {
        return;
    }
    if std::env::var_os(BLESS).is_some_and(|v| v == "1") {
        let file = root().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, want).unwrap();
        return;
    }
    let line = (have.lines().zip(want.lines()))
        .take_while(|(a, b)| a == b)
        .count();
    panic!(
        "{file} is stale from line {}:\n  has:  {}\n  want: {}\nRenew it with `{BLESS}=1 cargo test fresh`.",
        line + 1,
        have.lines().nth(line).unwrap_or("(the end)"),
        want.lines().nth(line).unwrap_or("(the end)"),
    );
}

/// Runs the program in a folder, without a terminal.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .args(arguments)
        .current_dir(folder)
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The output of a run that must succeed.
fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "pyprof-advise {}\n{}{}",
        arguments.join(" "),
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A folder with every file that the commands of the documents name: the example profile, the examples
/// as files, a custom GPU.
fn playground(documents: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::copy(root().join("fixtures/net.sqlite"), at.join("net.sqlite")).unwrap();
    fs::create_dir(at.join("traces")).unwrap();
    for rank in [
        "rank0.sqlite",
        "rank1.sqlite",
        "traces/rank0.sqlite",
        "before.sqlite",
        "after.sqlite",
    ] {
        fs::copy(at.join("net.sqlite"), at.join(rank)).unwrap();
    }
    let board = said(at, &["gpus", "show", "v100"]);
    fs::write(at.join("my-board.toml"), board).unwrap();
    for document in documents {
        for (path, text) in examples::files(&read(document)) {
            let path: PathBuf = at.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    folder
}

/// All pages of the repository, from its root.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/rules", "fixtures"];
    let files = folders.iter().flat_map(|folder| {
        let files = fs::read_dir(root().join(folder)).unwrap();
        files.map(|file| Path::new(folder).join(file.unwrap().file_name()))
    });
    files
        .filter(|f| f.extension() == Some("md".as_ref()))
        .collect()
}

#[test]
fn generated_pages_are_fresh() {
    let generated = generated();
    for (file, want) in &generated {
        fresh(file, want);
    }
    for page in pages().iter().filter(|p| p.starts_with("docs/rules")) {
        let known = generated.iter().any(|(file, _)| page == Path::new(file));
        assert!(known, "{}: its category is gone", page.display());
    }
}

#[test]
fn pages_render_without_mistakes() {
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let complaints = markdown::complaints(&text);
        let page = page.display();
        assert!(complaints.is_empty(), "{page}:\n{}", complaints.join("\n"));
        // GitHub cuts what is longer.
        assert!(text.len() < 500 * 1024, "{page}: {} bytes", text.len());
    }
}

#[test]
fn links_of_pages_lead_to_files_and_headings() {
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let anchors = |path: &Path| markdown::anchors_and_links(&read(path)).0;
    let mut wrong = Vec::new();
    for page in pages() {
        let path = root().join(&page);
        let links = markdown::anchors_and_links(&read(&path)).1;
        for link in links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let known = match anchor {
                "" => target.exists(),
                anchor => target.is_file() && anchors(&target).iter().any(|a| a == anchor),
            };
            if !known {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_fact_operator_and_gpu_is_listed() {
    let pages: BTreeMap<String, String> = generated().into_iter().collect();
    let page = |name: &str| pages[&format!("docs/{name}.md")].as_str();
    let set = pyprof_advise::judge::RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    for rule in set.rules() {
        let section = format!("\n## {}\n", rule.id);
        let category = format!("rules/{}", rule.category());
        assert!(page(&category).contains(&section), "{}", rule.id);
        assert!(page("rules").contains(&format!("\n| [{}](", rule.id)));
    }
    let [facts, costs, gpus] = ["facts", "costs", "gpus"].map(page);
    for fact in pyprof_advise::facts::all() {
        assert!(
            facts.contains(&format!("\n| `{}` | ", fact.name)),
            "{}",
            fact.name
        );
    }
    for name in pyprof_advise::cost::ops::table().flat_map(|e| e.names) {
        assert!(costs.contains(&format!("`{name}`")), "{name}");
    }
    for spec in pyprof_advise::gpu::select::list() {
        assert!(
            gpus.contains(&format!("\n| `{}` | ", spec.gpu.id)),
            "{}",
            spec.gpu.id
        );
    }
}
