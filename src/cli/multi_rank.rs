//! Several profiles at once: the ranks of one job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::args::Console;
use super::kept;
use super::output::{self, CommandResult, Failure};
use super::progress::Bar;
use crate::base::text::{plain, without_home};
use crate::base::units::counted;
use crate::read;
use crate::read::manifest::{Manifest, Windows};
use crate::report::LeftOut;

/// Maximum number of profiles in memory at the same time, for any number of threads: a profile takes a
/// multiple of its file size, and jobs have hundreds of ranks.
const AT_ONCE: usize = 2;
/// Maximum number of files named in one line.
const NAMED: usize = 5;

/// A kind of input file, for selecting files in a folder.
#[derive(Clone, Copy)]
pub(super) struct FileKind {
    /// The noun for one file in messages.
    name: &'static str,
    is_one: fn(&Path) -> bool,
    /// Endings of names of such files: one that is something else inside is damaged.
    endings: &'static [&'static str],
    /// The help for a folder without such files.
    instead: fn(&Path) -> String,
}

pub(super) const PROFILES: FileKind = FileKind {
    name: "profile",
    is_one: read::is_profile,
    endings: &[".sqlite", ".nvvp", ".nvprof", ".trace.json", ".json.gz"],
    instead: read::folder_remedy,
};

pub(super) const REPORTS: FileKind = FileKind {
    name: "report",
    is_one: kept::is_report,
    endings: &[],
    instead: |_| "`pyprof-advise PROFILE --format json -o REPORT` writes one".to_owned(),
};

pub(super) const PROFILES_OR_REPORTS: FileKind = FileKind {
    is_one: |path| kept::is_report(path) || read::is_profile(path),
    ..PROFILES
};

/// The files to read.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) files: Vec<PathBuf>,
    /// Those of the files that were named themselves, not found in a folder.
    pub(super) named: BTreeSet<PathBuf>,
    /// Files that were given more than once.
    pub(super) repeated: Vec<LeftOut>,
    /// Light recordings of the processes of some files, by file; see [`read::manifest`].
    pub(super) light: BTreeMap<PathBuf, PathBuf>,
    /// What a step is in some files, as `run` has written it: `calls of UNet`.
    pub(super) steps_are: BTreeMap<PathBuf, String>,
    /// Whether several files or a folder were given, even if only one file was found. A folder with the
    /// recording of a single process is no job.
    pub(super) is_job: bool,
}

/// The files of `paths`; a folder contributes its files of this kind. Every file is listed once.
///
/// # Errors
/// When a folder cannot be listed, or contains no file of that kind.
pub(super) fn inputs(
    paths: &[PathBuf],
    kind: FileKind,
    console: Console,
) -> Result<Inputs, Failure> {
    let mut inputs = Inputs {
        files: Vec::new(),
        named: BTreeSet::new(),
        repeated: Vec::new(),
        light: BTreeMap::new(),
        steps_are: BTreeMap::new(),
        is_job: paths.len() > 1,
    };
    let mut seen = BTreeSet::new();
    for path in paths {
        let recorded = recorded(path);
        let files = if !recorded.is_empty() {
            inputs.is_job |= recorded.len() > 1;
            let light = |of: &Windows| Some((of.main.clone(), of.light.clone()?));
            inputs.light.extend(recorded.iter().filter_map(light));
            let steps_are = |of: &Windows| Some((of.main.clone(), of.steps_are.clone()?));
            inputs
                .steps_are
                .extend(recorded.iter().filter_map(steps_are));
            recorded.into_iter().map(|of| of.main).collect()
        } else if path.is_dir() {
            inputs.is_job = true;
            in_folder(path, kind, console)?
        } else {
            inputs.named.insert(path.clone());
            vec![path.clone()]
        };
        for file in files {
            // A path that cannot be resolved is reported when the file is read.
            let real = file.canonicalize().unwrap_or_else(|_| file.clone());
            if seen.insert(real) {
                inputs.files.push(file);
            } else {
                inputs.repeated.push(LeftOut {
                    file: shown(&file),
                    why: "given twice, read once".to_owned(),
                    repeated: true,
                });
            }
        }
    }
    Ok(inputs)
}

/// The recordings of a folder with a manifest, in the order of ranks; none without one.
fn recorded(folder: &Path) -> Vec<Windows> {
    Manifest::of(folder).map_or_else(Vec::new, |manifest| manifest.windows(folder))
}

/// The files of a kind in a folder, sorted by name; subfolders are not searched.
fn in_folder(folder: &Path, kind: FileKind, console: Console) -> Result<Vec<PathBuf>, Failure> {
    let fail = |error: &std::io::Error| {
        Failure::Unusable(format!("cannot list {}: {error}", plain(&shown(folder))))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| fail(&e))? {
        let path = entry.map_err(|e| fail(&e))?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    // What cannot be read may be one too: it is named as unreadable later, not passed over.
    let is_called = |file: &Path| {
        let name = file.to_string_lossy();
        kind.endings.iter().any(|ending| name.ends_with(ending))
    };
    let may_be = |file: &PathBuf| {
        (kind.is_one)(file) || is_called(file) || std::fs::File::open(file).is_err()
    };
    let (wanted, others): (Vec<_>, Vec<_>) = files.into_iter().partition(may_be);
    if wanted.is_empty() {
        let found = match others.len() {
            0 => "no files".to_owned(),
            _ => format!("none among {}", named(&others)),
        };
        return Err(Failure::Unusable(format!(
            "{}: expected {}s in this folder, found {found}\n  {}",
            plain(&shown(folder)),
            kind.name,
            (kind.instead)(folder)
        )));
    }
    if !others.is_empty() {
        console.warn(&format!(
            "{}: ignored {} that {} no {}: {}",
            plain(&shown(folder)),
            counted(others.len() as u64, "file"),
            if others.len() == 1 { "is" } else { "are" },
            kind.name,
            named(&others)
        ));
    }
    Ok(wanted)
}

fn named(files: &[PathBuf]) -> String {
    let mut names: Vec<String> = files
        .iter()
        .take(NAMED)
        .map(|f| plain(&f.file_name().unwrap_or(f.as_os_str()).to_string_lossy()))
        .collect();
    if files.len() > NAMED {
        names.push("...".to_owned());
    }
    names.join(", ")
}

/// A path as displayed in reports.
pub(super) fn shown(path: &Path) -> String {
    without_home(&path.to_string_lossy()).into_owned()
}

/// Calls `work` with every file, two at a time; returns the results in the order of the files.
pub(super) fn each<T: Send>(
    files: &[PathBuf],
    console: Console,
    work: impl Fn(&Path) -> T + Sync,
) -> Vec<T> {
    let bar = Bar::of_files(console.quiet, files.len() as u64);
    let next = AtomicUsize::new(0);
    let made: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(files.len()));
    let turn = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(at) else { break };
            let result = work(file);
            made.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((at, result));
            bar.file_done();
        }
    };
    // Not rayon's threads: a reader that waits for its own tasks could steal another file.
    // The only one of them must not wait for others that wait for it.
    if rayon::current_thread_index().is_some() {
        turn();
    }
    std::thread::scope(|scope| {
        let started = (0..AT_ONCE.min(files.len()))
            .filter(|_| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, turn)
                    .is_ok()
            })
            .count();
        // Where no thread may be started, this one reads.
        if started == 0 {
            turn();
        }
    });
    bar.done();
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, result)| result).collect()
}

/// Number of files that could not be read although the command line names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unread(usize);

impl Unread {
    /// The outcome of a command that has written, or failed to write, its result without these files. Files of a
    /// folder count only for gates, see [`Gates::check`](super::exit_gates::Gates::check).
    pub(super) fn after(self, written: CommandResult) -> CommandResult {
        match written {
            Ok(()) | Err(Failure::GateFailed) if self.0 > 0 => Err(Failure::AlreadyReported),
            written => written,
        }
    }
}

/// The results of files that could be processed, and how many could not. Failures are printed and noted
/// for the report.
///
/// # Errors
/// When there is no result at all.
pub(super) fn usable<T>(
    files: &[PathBuf],
    named: &BTreeSet<PathBuf>,
    results: Vec<Result<T, Failure>>,
    left_out: &mut Vec<LeftOut>,
    console: Console,
) -> Result<(Vec<T>, Unread), Failure> {
    let mut good = Vec::new();
    let mut bad: Vec<(&PathBuf, String)> = Vec::new();
    for (file, result) in files.iter().zip(results) {
        match result {
            Ok(result) => good.push(result),
            Err(Failure::Unusable(text)) => bad.push((file, text)),
            Err(other) => return Err(other),
        }
    }
    if good.is_empty() {
        return Err(Failure::Unusable(none_read(&bad)));
    }
    let mut unread = Unread::default();
    for (file, text) in bad {
        let text_of = |text: &str| format!("unreadable, left out: {}", beginning(text));
        if named.contains(file) {
            unread.0 += 1;
            output::labeled("error", anstyle::AnsiColor::Red, &text_of(&text));
        } else {
            console.warn(&text_of(&text));
        }
        left_out.push(LeftOut {
            file: shown(file),
            why: why(file, &text),
            repeated: false,
        });
    }
    Ok((good, unread))
}

/// The error when no file can be read. A folder can have thousands, usually with the same defect.
fn none_read(bad: &[(&PathBuf, String)]) -> String {
    const MOST: usize = 8;
    if let [(_, text)] = bad {
        return text.clone();
    }
    let mut lines = vec![format!("none of {} files could be read", bad.len())];
    lines.extend(bad.iter().take(MOST).map(|(_, text)| beginning(text)));
    if bad.len() > MOST {
        lines.push(format!("and {} more files", bad.len() - MOST));
    }
    lines.join("\n")
}

/// The first two lines of an error: the problem, and the cause or the remedy. How to record a profile
/// again is printed only for a single file.
fn beginning(text: &str) -> String {
    text.lines().take(2).collect::<Vec<_>>().join("\n")
}

/// The first line of an error, without the path it begins with.
fn why(file: &Path, text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let path = file.display().to_string();
    let line = line.strip_prefix(&path).unwrap_or(line);
    let line = line.strip_prefix(&plain(&path)).unwrap_or(line);
    without_home(line.trim_start_matches([':', ' '])).into_owned()
}

/// Prints each warning once, with the files it applies to.
pub(super) fn warn(warnings: &[(String, Vec<String>)], console: Console) {
    let mut by_text: indexmap::IndexMap<&str, Vec<&str>> = indexmap::IndexMap::new();
    for (file, texts) in warnings {
        for text in texts {
            by_text.entry(text).or_default().push(file);
        }
    }
    for (text, files) in by_text {
        let whose = match files.as_slice() {
            [one] => plain(one),
            all => counted(all.len() as u64, "file"),
        };
        console.warn(&format!("{whose}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_processed_two_at_a_time_and_returned_in_order() {
        let files: Vec<PathBuf> = (0..40).map(|i| PathBuf::from(i.to_string())).collect();
        let console = Console {
            quiet: true,
            verbose: false,
            color: Some(crate::cli::args::Color::Never),
        };
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let made = each(&files, console, |file| {
            let at_once = now.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(at_once, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(2));
            now.fetch_sub(1, Ordering::SeqCst);
            file.to_path_buf()
        });
        assert_eq!(made, files);
        assert!(most.load(Ordering::SeqCst) <= AT_ONCE);
    }

    #[test]
    fn reasons_are_one_line_without_the_path() {
        let path = Path::new("/home/alice/a.sqlite");
        let text = "/home/alice/a.sqlite: expected a profile, found /home/alice/x\n  look again";
        assert_eq!(why(path, text), "expected a profile, found ~/x");
    }
}
