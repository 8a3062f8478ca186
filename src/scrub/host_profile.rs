//! Copies a profile of the host: only what its reader takes from it, with shortened paths and cleaned names.
//!
//! Command lines, arguments, lines of source and variables in such files are not read, so they are in no copy.

use std::path::Path;

use super::outcome::{ScrubError, ScrubSummary, cannot_write};
use super::redactor::Redactor;
use crate::correlate::PythonFrame;
use crate::host::{self, Classes, HostProfile};

/// Components of a path that are always kept: as many as a report prints.
const LEAST: usize = 2;
/// Most components of a path that are kept.
const MOST: usize = 8;
/// The folder of installed libraries: what is in it is public.
const LIBRARIES: [&str; 2] = ["site-packages/", "dist-packages/"];
/// How py-spy names a process, with its command line, and a thread, with its name.
const WITH_NUMBER: [&str; 2] = ["process ", "thread ("];

/// Writes the copy, if `from` is a profile of the host.
pub(super) fn copy(from: &Path, to: &Path) -> Option<Result<(ScrubSummary, Redactor), ScrubError>> {
    let data = host::bytes(from).ok()??;
    if data.starts_with(b"SQLite format 3\0") {
        return None;
    }
    let profile = host::read(&data)?;
    let mut redactor = Redactor::default();
    redactor.learn_from_text(&String::from_utf8_lossy(&data));
    redactor.build_index();
    let (text, summary) = match cleaned(profile, &redactor) {
        Ok(done) => done,
        Err(error) => return Some(Err(cannot_write(to, &error))),
    };
    let written = std::fs::write(to, text + "\n").map_err(|e| cannot_write(to, &e));
    Some(written.map(|()| (summary, redactor)))
}

/// The text of the copy.
fn cleaned(
    mut profile: HostProfile,
    redactor: &Redactor,
) -> serde_json::Result<(String, ScrubSummary)> {
    let classes = Classes::built_in();
    let mut summary = ScrubSummary::default();
    for line in profile.all_lines_mut() {
        let path = redactor.clean(&line.file);
        let file = redactor
            .clean(&short(&path, &line.function, &classes))
            .into_owned();
        let function = without_arguments(&line.function);
        let function = redactor.clean(&function).into_owned();
        summary.changed += u64::from(file != line.file) + u64::from(function != line.function);
        (line.file, line.function) = (file, function);
    }
    Ok((host::write_safe_copy(&profile)?, summary))
}

/// `process 4242` of `process 4242:"python train.py --token x"`, `[Callback]ModelCheckpoint.setup` of
/// `[Callback]ModelCheckpoint{'monitor': 'loss'}.setup`, and other names as they are.
fn without_arguments(function: &str) -> String {
    if let Some((before, rest)) = function.split_once("{'") {
        let after = rest.rsplit_once('}').map_or("", |(_, after)| after);
        return format!("{before}{after}");
    }
    without_command(function).to_owned()
}

fn without_command(function: &str) -> &str {
    let Some(kind) = WITH_NUMBER.iter().find(|kind| function.starts_with(**kind)) else {
        return function;
    };
    let rest = function.get(kind.len()..).unwrap_or_default();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let is_thread = rest.get(digits..).is_some_and(|rest| rest.starts_with(')'));
    let end = kind.len() + digits + usize::from(is_thread);
    match digits {
        0 => function,
        _ => function.get(..end).unwrap_or(function),
    }
}

/// The end of a path. It has the class of the whole path, and is part of the program if that is.
fn short(file: &str, function: &str, classes: &Classes) -> String {
    let path = file.replace('\\', "/");
    let installed = LIBRARIES.iter().find_map(|folder| path.find(folder));
    if let Some(library) = installed.and_then(|at| path.get(at..)) {
        return library.to_owned();
    }
    let meaning = |path: &str| {
        let is_internal = PythonFrame { path, line: "" }.is_internal();
        (classes.of(path, function), is_internal)
    };
    let parts: Vec<&str> = path.split('/').collect();
    let ends = (LEAST..=MOST.min(parts.len())).filter_map(|count| {
        let end = parts.get(parts.len() - count..)?;
        Some(end.join("/"))
    });
    let whole = meaning(&path);
    let mut ends = ends.peekable();
    let shortest = ends.peek().cloned().unwrap_or_else(|| path.clone());
    ends.find(|end| meaning(end) == whole).unwrap_or(shortest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_what_tells_the_class() {
        let classes = Classes::built_in();
        for (path, function, expected) in [
            ("~/acme/data/images.py", "decode", "data/images.py"),
            ("~/train.py", "main", "~/train.py"),
            ("train.py", "main", "train.py"),
            ("C:\\Users\\ann\\acme\\train.py", "main", "acme/train.py"),
            (
                "/home/ann/venv/lib/python3.11/site-packages/PIL/Image.py",
                "open",
                "site-packages/PIL/Image.py",
            ),
            (
                "/home/ann/src/pytorch/torch/utils/data/_utils/fetch.py",
                "fetch",
                "pytorch/torch/utils/data/_utils/fetch.py",
            ),
            (
                "/usr/lib/python3.11/json/decoder.py",
                "decode",
                "lib/python3.11/json/decoder.py",
            ),
            ("", "<built-in method time.sleep>", ""),
        ] {
            assert_eq!(short(path, function, &classes), expected);
        }
    }

    #[test]
    fn command_lines_are_no_names() {
        for (name, expected) in [
            ("process 4242:\"python train.py --token x\"", "process 4242"),
            ("thread (4242): loader of ann", "thread (4242)"),
            ("process images", "process images"),
            (
                "[Callback]Saver{'path': '/x'}.setup",
                "[Callback]Saver.setup",
            ),
            ("decode", "decode"),
        ] {
            assert_eq!(without_arguments(name), expected);
        }
    }
}
