//! `--source DIR`: quotes the code around the source lines of findings.
//!
//! A trace can name any file of the machine, so a line is quoted only from a regular `.py` file that is
//! inside the folder after symbolic links are resolved, and private text is removed from it.

use std::path::{Path, PathBuf};

use super::output::{CommandResult, Failure};
use crate::base::text::{clip, code_line};
use crate::judge::Edit;
use crate::report::{Quote, QuotedLine, Report};
use crate::scrub::SourceCleaner;

/// Lines quoted before and after the line of a finding.
const AROUND: usize = 2;
/// Maximum size of a source file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Maximum length of a quoted line, in characters.
const MAX_LINE: usize = 120;
/// Folders of installed packages: their code is not the user's.
const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];

/// Adds the code around the first source line of each finding that is in a file of the folder.
///
/// # Errors
/// When the folder does not exist or is no folder.
pub(super) fn quote(report: &mut Report, folder: &Path) -> CommandResult {
    let root = folder.canonicalize().map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "no such folder".to_owned(),
            _ => error.to_string(),
        };
        Failure::Unusable(format!("--source {}: {why}", folder.display()))
    })?;
    if !root.is_dir() {
        return Err(Failure::Unusable(format!(
            "--source {}: expected a folder with the source code",
            folder.display()
        )));
    }
    let everywhere: Vec<&str> = (report.sites.iter())
        .filter_map(|site| site.source_line.as_deref())
        .collect();
    for finding in &mut report.findings {
        // What a finding on copies or idle time changes, such as a loader, may be in any file of the program.
        let own = &finding.evidence.source_lines;
        finding.evidence.quotes = match own.is_empty() {
            true => changed(&root, &everywhere, &finding.edits)
                .into_iter()
                .collect(),
            false => quotes(&root, own, &finding.edits),
        };
    }
    Ok(())
}

/// The code around the first source line that is in a file of the folder, and, if the rule does not change
/// that line, around the only line of these files that it does change.
fn quotes(root: &Path, lines: &[String], edits: &[Edit]) -> Vec<Quote> {
    let first = lines.iter().find_map(|line| around(root, line, edits));
    let mut quotes: Vec<Quote> = first.into_iter().collect();
    if !quotes.iter().any(|quote| !quote.change.is_empty()) {
        quotes.extend(changed(root, lines, edits));
    }
    quotes
}

/// The code around the only line that one of the edits fits, in the files of some lines.
fn changed(root: &Path, lines: &[impl AsRef<str>], edits: &[Edit]) -> Option<Quote> {
    if edits.is_empty() {
        return None;
    }
    let mut paths: Vec<&str> = lines
        .iter()
        .filter_map(|l| Some(l.as_ref().rsplit_once(':')?.0))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    let files = paths.iter().filter_map(|path| read(root, path));
    only(files.filter_map(|file| elsewhere(&file, edits)))
}

/// The only item.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

/// The code around the only line of a file that one of the edits fits: of the first that fits any.
fn elsewhere(file: &SourceFile, edits: &[Edit]) -> Option<Quote> {
    let fits = |edit: &Edit| -> Vec<usize> {
        let Some(edit) = edit.compile() else {
            return Vec::new();
        };
        let lines = file.text.lines().enumerate();
        let lines = lines.filter(|(_, line)| line.len() <= MAX_LINE && edit.apply(line).is_some());
        lines.map(|(at, _)| at + 1).take(2).collect()
    };
    let found = edits.iter().map(fits).find(|lines| !lines.is_empty())?;
    let line = only(found.into_iter())?;
    file.around(line, edits)
        .filter(|quote| !quote.change.is_empty())
}

/// The lines around `path:line`; `None` if that is not in a file of the folder.
fn around(root: &Path, place: &str, edits: &[Edit]) -> Option<Quote> {
    let (path, line) = place.rsplit_once(':')?;
    let line: usize = line.parse().ok().filter(|line| *line > 0)?;
    read(root, path)?.around(line, edits)
}

/// A file of the folder.
struct SourceFile {
    /// Its name relative to the folder.
    name: String,
    text: String,
}

/// The file of the folder that a path of the profile means.
fn read(root: &Path, path: &str) -> Option<SourceFile> {
    let (name, real) = inside(root, path)?;
    let text = std::fs::read_to_string(real).ok()?;
    Some(SourceFile { name, text })
}

impl SourceFile {
    /// The lines around one, counted from 1, with the first of the edits that fits it.
    fn around(&self, line: usize, edits: &[Edit]) -> Option<Quote> {
        let lines: Vec<&str> = self.text.lines().collect();
        lines.get(line.checked_sub(1)?)?;
        let first = line.saturating_sub(AROUND).max(1);
        let last = (line + AROUND).min(lines.len());
        let cleaner = SourceCleaner::of(&self.text);
        let quoted = lines.get(first - 1..last)?;
        let quoted: Vec<String> = quoted.iter().map(|l| plain(&cleaner.clean(l))).collect();
        let indent = |l: &&String| l.len() - l.trim_start().len();
        let margin = quoted
            .iter()
            .filter(|l| !l.trim().is_empty())
            .map(|l| indent(&l))
            .min();
        let quoted: Vec<&str> = quoted
            .iter()
            .map(|l| l.get(margin.unwrap_or(0)..).unwrap_or_default())
            .collect();
        let own = quoted.get(line - first).filter(|l| l.len() <= MAX_LINE);
        let change = own.and_then(|own| edits.iter().find_map(|edit| edit.apply(own)));
        let lines = (first as u64..)
            .zip(&quoted)
            .map(|(number, text)| QuotedLine {
                number,
                text: clip(text, MAX_LINE),
            });
        Some(Quote {
            file: self.name.clone(),
            line: line as u64,
            lines: lines.collect(),
            change: change
                .iter()
                .flatten()
                .map(|l| clip(&plain(l), MAX_LINE))
                .collect(),
        })
    }
}

/// A line without control characters.
fn plain(line: &str) -> String {
    code_line(&line.replace('\t', "    "))
}

/// The file of the folder that a path of the profile means: its name relative to the folder, and its
/// real path. The profile was taken on another machine or in another folder, so the longest end of the
/// path that exists in the folder counts; the bare name of a file only if the folder itself is named
/// before it.
fn inside(root: &Path, path: &str) -> Option<(String, PathBuf)> {
    let parts: Vec<&str> = path.split(['/', '\\']).collect();
    let parts: Vec<&str> = parts
        .into_iter()
        .filter(|p| !matches!(*p, "" | "." | "~"))
        .collect();
    let hostile = |part: &&str| *part == ".." || part.contains(['\0', ':', '…']);
    let installed = |part: &&str| INSTALLED.contains(part);
    if parts.iter().any(|part| hostile(part) || installed(part)) || !path.ends_with(".py") {
        return None;
    }
    let folder = root.file_name().and_then(|name| name.to_str());
    (0..parts.len()).find_map(|from| {
        let end = parts.get(from..)?;
        let named = from.checked_sub(1).and_then(|at| parts.get(at)).copied();
        let certain = from == 0 || end.len() > 1 || named == folder;
        let real = certain.then(|| readable(root, end))??;
        Some((end.join("/"), real))
    })
}

/// The real path of a regular `.py` file inside the folder.
fn readable(root: &Path, parts: &[&str]) -> Option<PathBuf> {
    let mut path = root.to_owned();
    path.extend(parts);
    let real = path.canonicalize().ok()?;
    let data = std::fs::metadata(&real).ok()?;
    let is_python = real.extension().is_some_and(|ext| ext == "py");
    let fine = real.starts_with(root) && is_python && data.is_file() && data.len() <= MAX_BYTES;
    fine.then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        std::fs::create_dir_all(project.join("net")).unwrap();
        std::fs::create_dir_all(project.join("torch/nn")).unwrap();
        let code = "import torch\n\ndef f(x):\n    token = \"correct-horse-battery\"\n    y = x @ x\n\treturn y\n";
        std::fs::write(project.join("net/model.py"), code).unwrap();
        std::fs::write(project.join("linear.py"), "a = 1\n").unwrap();
        std::fs::write(project.join("notes.txt"), "secret\n").unwrap();
        std::fs::write(folder.path().join("outside.py"), "outside\n").unwrap();
        std::fs::write(folder.path().join("secret.txt"), "secret\n").unwrap();
        folder
    }

    fn edit(find: &str, replace: &str) -> Edit {
        Edit {
            find: find.to_owned(),
            unless: Some(format!("{replace}$")),
            replace: replace.to_owned(),
        }
    }

    fn at(folder: &tempfile::TempDir, place: &str) -> Option<Quote> {
        let root = folder.path().join("project").canonicalize().unwrap();
        around(&root, place, &[])
    }

    #[test]
    fn five_lines_are_quoted_without_secrets_and_margin() {
        let folder = folder();
        let quote = at(&folder, "net/model.py:4").unwrap();
        let lines: Vec<(u64, &str)> = quote
            .lines
            .iter()
            .map(|l| (l.number, l.text.as_str()))
            .collect();
        assert_eq!((quote.file.as_str(), quote.line), ("net/model.py", 4));
        assert_eq!(lines.len(), 5);
        assert_eq!(
            (lines[1], lines[3]),
            ((3, "def f(x):"), (5, "    y = x @ x"))
        );
        assert_eq!(lines[4], (6, "    return y"));
        assert!(lines[2].1.starts_with("    token = "), "{lines:?}");
        assert!(!lines[2].1.contains("horse"), "{lines:?}");
        assert_eq!(at(&folder, "net/model.py:6").unwrap().lines.len(), 3);
        assert_eq!(at(&folder, "net/model.py:1").unwrap().lines[0].number, 1);
    }

    #[test]
    fn the_end_of_the_path_decides() {
        let folder = folder();
        for place in [
            "net/model.py:1",
            "~/work/net/model.py:1",
            "/data/old/project/net/model.py:1",
            "C\\net\\model.py:1",
            "/root/project/linear.py:1",
            "linear.py:1",
        ] {
            assert!(at(&folder, place).is_some(), "{place}");
        }
        // A file of the same name in another project.
        assert!(at(&folder, "torch/nn/modules/linear.py:1").is_none());
    }

    #[test]
    fn the_only_line_that_an_edit_fits_is_changed() {
        let folder = folder();
        let edits = [
            edit("opt = SGD", "opt = fused.SGD"),
            edit("x @ x", "x @ x.T"),
        ];
        let project = folder.path().join("project").canonicalize().unwrap();
        let changes = |lines: &[&str]| -> Vec<(u64, Vec<String>)> {
            let lines: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
            let quotes = quotes(&project, &lines, &edits);
            quotes.into_iter().map(|q| (q.line, q.change)).collect()
        };
        let change = vec!["    y = x @ x.T".to_owned()];
        assert_eq!(changes(&["net/model.py:5"]), [(5, change.clone())]);
        assert_eq!(changes(&["net/model.py:3"]), [(3, vec![]), (5, change)]);
        let secret = edit("token", "key");
        let around = |line| around(&project, line, std::slice::from_ref(&secret));
        let quote = around("net/model.py:4").unwrap();
        assert!(quote.change[0].starts_with("    key = "), "{quote:?}");
        assert!(!quote.change[0].contains("horse"), "{quote:?}");
        // Two lines fit, in one file or in two.
        std::fs::write(project.join("net/two.py"), "x @ x\nx @ x\nz\n").unwrap();
        assert_eq!(changes(&["net/two.py:3"]), [(3, vec![])]);
        std::fs::write(project.join("net/one.py"), "a\nx @ x\n").unwrap();
        let both = ["net/one.py:1", "net/model.py:1"];
        assert_eq!(changes(&both), [(1, vec![])]);
    }

    #[test]
    fn nothing_outside_the_folder_is_read() {
        let folder = folder();
        let outside = folder.path().join("outside.py");
        let project = folder.path().join("project");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&outside, project.join("link.py")).unwrap();
            std::os::unix::fs::symlink(folder.path(), project.join("up")).unwrap();
            let secret = folder.path().join("secret.txt");
            std::os::unix::fs::symlink(secret, project.join("text.py")).unwrap();
            std::os::unix::fs::symlink(project.join("net"), project.join("inner")).unwrap();
            assert!(
                at(&folder, "inner/model.py:1").is_some(),
                "a link inside the folder"
            );
        }
        let absolute = format!("{}:1", outside.display());
        for place in [
            "link.py:1",
            "up/outside.py:1",
            "text.py:1",
            "../outside.py:1",
            "net/../../outside.py:1",
            "net/model.py/../../../outside.py:1",
            "/etc/passwd:1",
            "notes.txt:1",
            "net/model.py",
            "net/model.py:0",
            "net/model.py:7",
            "net/model.py:-1",
            "net/model.py:99999999999999999999",
            "net:1",
            ".py:1",
            "net/mod\0el.py:1",
            "/usr/lib/python3/site-packages/net/model.py:1",
            &absolute,
            "",
            ":",
        ] {
            assert_eq!(at(&folder, place), None, "{place}");
        }
    }
}
