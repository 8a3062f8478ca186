//! Finds rule files and derives their ids from their paths, both for built-in rules and for rules of
//! a user.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::rule::{CATEGORIES, USER};
use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::suggest::did_you_mean;

/// A rule file that has been read but not parsed.
#[derive(Debug, Clone)]
pub struct RuleFile {
    /// Rule id: `category/stem`.
    pub id: String,
    /// Name and text of the file.
    pub source: Arc<Source>,
    /// Whether the rule is embedded in the program.
    pub builtin: bool,
    /// The part of the file that decides whether the rule fires, for a built-in rule whose file the tests of this
    /// crate have checked. Only this part is read, without checking it again; the rest when the rule fires.
    pub decision: Option<Arc<Source>>,
}

/// Depth of subfolders that are searched.
const MAX_DEPTH: usize = 4;
/// The maximum number of rules loaded together: relations between rules are checked for each pair.
pub const MAX_FILES: usize = 2_000;

/// The rule files of an embedded folder, given as `(path below it, text, decision)`; for an analysis of a profile, the
/// decisions stand for the files.
pub fn embedded(entries: &[(&str, &'static str, &'static str)], analysis: bool) -> Vec<RuleFile> {
    let file = |&(path, text, decision): &(&str, &'static str, &'static str)| {
        let name = format!("rules/{path}");
        RuleFile {
            id: path.strip_suffix(".toml").unwrap_or(path).to_owned(),
            decision: analysis.then(|| Source::embedded(name.clone(), decision)),
            source: Source::embedded(name, text),
            builtin: true,
        }
    };
    entries.iter().map(file).collect()
}

/// The rule files at a path: one file, or all of a folder and its category folders.
///
/// A single file is `user/<stem>`; in a folder, a file keeps its path: `category/stem`.
///
/// A path that gives no rule id is complained about when the rule is loaded, together with what is wrong
/// inside the file.
///
/// # Errors
/// Files that cannot be read.
pub fn find(path: &Path) -> Result<Vec<RuleFile>, Complaints> {
    let complaints = Complaints::new();
    let mut files = Vec::new();
    if path.is_dir() {
        let mut paths = Vec::new();
        walk(path, MAX_DEPTH, &mut paths, &complaints);
        paths.sort();
        if paths.len() > MAX_FILES {
            complaints.push(too_many(&path.display().to_string()));
            return Err(complaints);
        }
        for file in &paths {
            let relative = file.strip_prefix(path).unwrap_or(file);
            take(file, relative, &mut files, &complaints);
        }
        if files.is_empty() && complaints.is_empty() {
            let name = path.display().to_string();
            complaints.push(Complaint::about_file(&name, "no rules in this folder", ""));
        }
    } else {
        let relative = path.file_name().map_or(path, Path::new);
        take(path, relative, &mut files, &complaints);
    }
    complaints.accept(files)
}

/// The complaint about more than [`MAX_FILES`] rules.
pub(super) fn too_many(place: &str) -> Complaint {
    let title = format!("more than {MAX_FILES} rules");
    Complaint::about_file(place, title, "relations between so many cannot be checked")
}

fn walk(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>, complaints: &Complaints) {
    let fail = |error: std::io::Error| {
        let name = folder.display().to_string();
        let title = "this folder cannot be read";
        complaints.push(Complaint::about_file(&name, title, error.to_string()));
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return fail(error),
    };
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => return fail(error),
        };
        // One file more than allowed is kept, so that the caller reports the excess.
        if paths.len() > MAX_FILES {
            return;
        }
        if path.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, paths, complaints);
            }
        } else if path.extension().is_some_and(|e| e == "toml") {
            paths.push(path);
        }
    }
}

fn take(path: &Path, relative: &Path, files: &mut Vec<RuleFile>, complaints: &Complaints) {
    match Source::read(path) {
        Err(complaint) => complaints.push(complaint),
        Ok(source) => files.push(RuleFile {
            id: id_of(relative),
            source,
            builtin: false,
            decision: None,
        }),
    }
}

/// The rule id of a path relative to its rule folder; [`check_id`] says whether it is one.
pub fn id_of(relative: &Path) -> String {
    let plain = relative.with_extension("");
    let parts: Vec<_> = plain.iter().map(|part| part.to_string_lossy()).collect();
    match parts.as_slice() {
        [stem] => format!("{USER}/{stem}"),
        parts => parts.join("/"),
    }
}

/// The reason why a rule id is invalid, or `None` if it is valid.
pub fn check_id(id: &str) -> Option<String> {
    let Some((category, stem)) = id.split_once('/') else {
        return Some("an id is `category/name`".into());
    };
    if stem.contains('/') {
        return Some("rules lie in the folder or in one of its category folders".into());
    }
    let known = CATEGORIES.iter().map(|(name, _)| *name).chain([USER]);
    if !known.clone().any(|name| name == category) {
        let near = did_you_mean(category, known.clone());
        let all = known.collect::<Vec<_>>().join(", ");
        return Some(format!(
            "unknown category `{category}`{near} (known: {all})"
        ));
    }
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if stem.is_empty() || !stem.chars().all(good) {
        return Some(format!(
            "`{stem}`: a rule is named in lower-case letters, digits and `-`"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_derived_from_paths() {
        let wrong = |path: &str| check_id(&id_of(Path::new(path)));
        assert_eq!(id_of(Path::new("mine.toml")), "user/mine");
        assert_eq!(id_of(Path::new("host/sync.toml")), "host/sync");
        assert_eq!(wrong("host/sync.toml"), None);
        for bad in [
            "hsot/sync.toml",
            "a/b/c.toml",
            "host/Sync.toml",
            "host/a b.toml",
        ] {
            assert!(wrong(bad).is_some(), "{bad}");
        }
        assert!(
            wrong("hots/x.toml")
                .unwrap()
                .contains("did you mean `host`")
        );
    }
}
