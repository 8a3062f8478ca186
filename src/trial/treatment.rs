//! Treatments: Python files that begin with a table of metadata in a comment, like the inline metadata of
//! Python scripts (<https://packaging.python.org/en/latest/specifications/inline-script-metadata/>).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::glob::Glob;
use crate::base::schema::{Form, Key, Shape, keys};
use crate::base::toml;
use crate::capture;

/// The comment lines around the metadata.
const BEGIN: &str = "# /// treatment";
const END: &str = "# ///";
/// Most treatments in a folder of the user.
const MOST: usize = 200;
const RULE: Form = Form {
    pattern: "^[a-z0-9-]+/[a-z0-9-]+$",
    fits: |id| {
        let plain = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        id.split_once('/')
            .is_some_and(|(category, stem)| plain(category) && plain(stem))
    },
    what: "the id of a rule such as `precision/tf32-off`",
};
const VARIABLE: Form = Form {
    pattern: "^[A-Z][A-Z0-9_]*$",
    fits: |name| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    },
    what: "the name of an environment variable",
};

/// Every key of the metadata.
pub(crate) const KEYS: &[Key] = keys! {
    /// what it does, in one line
    required "title": Shape::Line(100),
    /// the rules whose fix it applies; without any, it is tried only where it is named
    required "rules": Shape::List(&Shape::Form(RULE), 50),
    /// the lines of Python that have the same effect in the program
    required "lines": Shape::Text(1, 2_000),
    /// where they go
    required "where": Shape::Line(200),
    /// how far values may differ with it, relative to their size
    required "tolerance": Shape::Above(0.0, 1.0),
    /// why results differ by design
    "changes_results": Shape::Line(200),
    /// of treatments of one kind, at most one is applied at a time
    "kind": Shape::Line(40),
    /// environment variables that it sets, unless they are set already
    "environment": Shape::Map(Some(VARIABLE), &Shape::Line(200), 16),
};

/// A treatment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Treatment {
    /// The stem of its file, with `-` for `_`: `fused-optimizer`.
    pub(crate) name: String,
    /// The file: in the package that is unpacked, or of the user.
    pub(crate) file: PathBuf,
    /// Whether the file is in the package.
    pub(crate) built_in: bool,
    pub(crate) title: String,
    pub(crate) rules: Vec<String>,
    pub(crate) lines: String,
    pub(crate) whereabouts: String,
    pub(crate) tolerance: f64,
    pub(crate) changes_results: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl Treatment {
    /// Whether a name or pattern of the command line means it: its own name, or a rule.
    pub(crate) fn is_meant_by(&self, name: &str) -> bool {
        let pattern = Glob::new(name);
        self.name == name || self.rules.iter().any(|rule| pattern.matches(rule))
    }
}

/// The treatments that come with the program, by name.
///
/// # Errors
/// With every mistake in their metadata, which the tests exclude.
pub(crate) fn built_in() -> Result<Vec<Treatment>, Complaints> {
    let complaints = Complaints::new();
    let files = capture::treatments();
    let read = files.filter_map(|(path, text)| {
        let source = Source::embedded(format!("pyprof_advise/{path}"), text);
        parse(&source, Path::new(path), true, &complaints)
    });
    finished(read.collect(), complaints)
}

/// The treatments in a folder of the user, by name: its `.py` files.
///
/// # Errors
/// With every mistake in their metadata, and every file that cannot be read.
pub(crate) fn read_folder(folder: &Path) -> Result<Vec<Treatment>, Complaints> {
    let complaints = Complaints::new();
    let name = folder.display().to_string();
    let files: std::io::Result<Vec<PathBuf>> = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files = match files {
        Ok(files) => files,
        Err(error) => {
            let title = "this folder of treatments cannot be read";
            complaints.push(Complaint::about_file(&name, title, error.to_string()));
            return Err(complaints);
        }
    };
    files.retain(|file| file.extension().is_some_and(|ending| ending == "py"));
    files.sort();
    if files.is_empty() || files.len() > MOST {
        let title = format!("expected 1 to {MOST} `.py` files, found {}", files.len());
        complaints.push(Complaint::about_file(&name, title, ""));
        return Err(complaints);
    }
    let mut treatments = Vec::new();
    for file in files {
        match (Source::read(&file), std::path::absolute(&file)) {
            (Ok(source), Ok(path)) => treatments.extend(parse(&source, &path, false, &complaints)),
            (Err(complaint), _) => complaints.push(complaint),
            (_, Err(error)) => {
                let name = file.display().to_string();
                let title = "this file cannot be read";
                complaints.push(Complaint::about_file(&name, title, error.to_string()));
            }
        }
    }
    finished(treatments, complaints)
}

fn finished(
    mut treatments: Vec<Treatment>,
    complaints: Complaints,
) -> Result<Vec<Treatment>, Complaints> {
    treatments.sort_by(|a, b| a.name.cmp(&b.name));
    complaints.accept(treatments)
}

fn parse(
    source: &Arc<Source>,
    file: &Path,
    built_in: bool,
    complaints: &Complaints,
) -> Option<Treatment> {
    let Some(text) = metadata(&source.text) else {
        let why =
            format!("a treatment begins with `{BEGIN}`, its metadata as comments, and `{END}`");
        complaints.push(Complaint::about_file(
            &source.name,
            "no metadata in this file",
            why,
        ));
        return None;
    };
    let table = Source::new(source.name.clone(), text);
    let document = toml::parse(&table, complaints);
    let root = document.root();
    root.check(KEYS, &[]);
    let stem = file.file_stem()?.to_string_lossy();
    let environment = root
        .get_table("environment")
        .map_or_else(Vec::new, |table| {
            let keys = table.keys();
            let entries = keys
                .iter()
                .filter_map(|key| Some((key.value.to_owned(), table.get_text(key.value)?)));
            entries.collect()
        });
    Some(Treatment {
        name: stem.replace('_', "-"),
        file: file.to_owned(),
        built_in,
        title: root.get_text("title")?,
        rules: root.get_texts("rules"),
        lines: root.get_text("lines")?.trim().to_owned(),
        whereabouts: root.get_text("where")?,
        tolerance: root.get_number("tolerance")?,
        changes_results: root.get_text("changes_results"),
        kind: root.get_text("kind"),
        environment: environment.into_iter().collect(),
    })
}

/// The metadata without its comment signs, in the lines that it has in the file.
fn metadata(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let mut out = String::new();
    loop {
        out.push('\n');
        if lines.next()?.trim_end() == BEGIN {
            break;
        }
    }
    for line in lines {
        if line.trim_end() == END {
            return Some(out);
        }
        out.push_str(line.strip_prefix("# ").or(line.strip_prefix('#'))?);
        out.push('\n');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::RuleSet;

    #[test]
    fn built_in_treatments_are_about_existing_rules() {
        let rules = RuleSet::builtin().unwrap_or_else(|complaints| panic!("{complaints}"));
        let treatments = built_in().unwrap_or_else(|c| panic!("{}", c.render(false)));
        assert!(treatments.len() >= 20, "{}", treatments.len());
        for treatment in &treatments {
            for rule in &treatment.rules {
                let known = rules.rules().iter().any(|r| r.id == *rule);
                assert!(known, "{}: there is no rule `{rule}`", treatment.name);
            }
        }
    }

    #[test]
    fn mistakes_in_metadata_are_reported_with_their_line() {
        let complaints = Complaints::new();
        let text = "# /// treatment\n# title = \"t\"\n# rules = [\"tf32\"]\n# lines = \"x\"\n# where = \"w\"\n\
                    # tolerance = 2\n# ///\n";
        let source = Source::new("my.py", text);
        parse(&source, Path::new("my.py"), false, &complaints);
        let shown = complaints.render(false);
        assert!(shown.contains("my.py:3"), "{shown}");
        assert!(shown.contains("my.py:6"), "{shown}");
        let complaints = Complaints::new();
        let source = Source::new("my.py", "import torch\n");
        assert!(parse(&source, Path::new("my.py"), false, &complaints).is_none());
        assert!(complaints.render(false).contains("# /// treatment"));
    }

    /// A part of docs/try.md between `<!-- name -->` and `<!-- /name -->`, renewed where that was asked for.
    fn check_part(name: &str, made: &str) {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/try.md");
        let page = std::fs::read_to_string(file).unwrap();
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let (before, rest) = page.split_once(&begin).unwrap();
        let (part, after) = rest.split_once(&end).unwrap();
        if std::env::var_os("PYPROF_ADVISE_BLESS").is_some() {
            std::fs::write(file, format!("{before}{begin}{made}{end}{after}")).unwrap();
        } else {
            assert!(
                part == made,
                "docs/try.md is stale: PYPROF_ADVISE_BLESS=1 cargo test fresh"
            );
        }
    }

    #[test]
    fn page_of_treatments_is_fresh() {
        let all = built_in().unwrap_or_else(|c| panic!("{}", c.render(false)));
        let mut table =
            "| Treatment | What it does | Rules | Results |\n| --- | --- | --- | --- |\n"
                .to_owned();
        for t in &all {
            let rules: Vec<String> = t.rules.iter().map(|rule| format!("`{rule}`")).collect();
            let results = match &t.changes_results {
                Some(why) => format!("change: {why}"),
                None => format!("same within {}", crate::trial::check::shown(t.tolerance)),
            };
            table += &format!(
                "| `{}` | {} | {} | {results} |\n",
                t.name,
                t.title,
                rules.join(", ")
            );
        }
        check_part("treatments", &table);
        let mut keys = "| Key | Meaning |\n| --- | --- |\n".to_owned();
        for key in KEYS {
            let required = if key.required { "" } else { " (optional)" };
            keys += &format!("| `{}`{required} | {} |\n", key.name, key.doc);
        }
        check_part("keys", &keys);
    }

    #[test]
    fn treatments_are_named_by_themselves_and_by_rules() {
        let all = built_in().unwrap_or_else(|c| panic!("{}", c.render(false)));
        let meant = |name: &str| -> Vec<&str> {
            let treatments = all.iter().filter(|t| t.is_meant_by(name));
            treatments.map(|t| t.name.as_str()).collect()
        };
        assert_eq!(meant("tf32"), ["tf32"]);
        assert_eq!(meant("precision/tf32-off"), ["tf32"]);
        assert_eq!(meant("copies/*"), ["loader-pin-memory"]);
        assert!(meant("precision").is_empty());
    }
}
