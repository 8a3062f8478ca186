//! Recognizes files that are not profiles by their first bytes, and explains how to get a profile.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::magic::{HEAD_BYTES, first_byte, is_gzip, is_sqlite};
use super::reader::ReadError;
use crate::base::temporary::Temporary;

/// The first bytes of a regular file.
///
/// # Errors
/// When there is no such file, or it is a folder, a device, empty, or not readable.
pub(super) fn head(path: &Path) -> Result<Vec<u8>, ReadError> {
    let fail = |problem: &str, remedy: &str| ReadError::new(path, problem, remedy);
    let io = |e: &std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound if path == Path::new("-") => fail(
            "there is no such file",
            "a trace of torch.profiler can be read from standard input as `/dev/stdin`; a database cannot",
        ),
        std::io::ErrorKind::NotFound => fail(
            "there is no such file",
            "check the path; a profile is written by `nsys export --type sqlite` or torch.profiler, for \
             example",
        ),
        std::io::ErrorKind::PermissionDenied => fail(
            "you may not read this file",
            "check its permissions (`ls -l`)",
        ),
        _ => fail(&format!("cannot be opened: {e}"), "check the path"),
    };
    let meta = std::fs::metadata(path).map_err(|e| io(&e))?;
    if meta.is_dir() {
        return Err(folder(path));
    }
    if !meta.is_file() {
        return Err(fail(
            "expected a regular file, found a device",
            "write the profile to a file first",
        ));
    }
    if meta.len() == 0 {
        return Err(fail(
            "expected a profile, found an empty file",
            "the export or copy did not finish: check the disk space and make it again",
        ));
    }
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
        .map_err(|e| io(&e))?;
    Ok(head)
}

/// The names of the entries of a folder, sorted.
fn names_in(path: &Path) -> Vec<String> {
    /// Maximum number of entries listed: a folder may contain millions.
    const MOST: usize = 10_000;
    let mut names: Vec<String> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .take(MOST)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The paths of some files of a folder, one per line, quoted for a shell.
fn commands(path: &Path, found: &[&String]) -> String {
    /// Maximum number of files listed.
    const SHOWN: usize = 4;
    let mut lines: Vec<String> = found
        .iter()
        .take(SHOWN)
        .map(|name| shell_word(&path.join(name.as_str()).display().to_string()))
        .collect();
    if found.len() > SHOWN {
        lines.push(format!("and {} more", found.len() - SHOWN));
    }
    lines.join("\n    ")
}

fn is_log(name: &str) -> bool {
    name.starts_with("events.out.tfevents")
}

const TRACES_BESIDE_LOGS: &str = "its scalars say nothing about the GPU; write traces beside them: \
     `torch.profiler.profile(on_trace_ready=tensorboard_trace_handler(\"log\"), ...)`";

/// The remedy for a folder without profiles, depending on its content.
#[cfg(feature = "cli")]
pub(crate) fn folder_remedy(path: &Path) -> String {
    let names = names_in(path);
    let reports: Vec<&String> = names.iter().filter(|name| is_report(name)).collect();
    if !reports.is_empty() {
        let reports = commands(path, &reports);
        return format!(
            "export its reports with the `nsys` that made them, `nsys export --type sqlite FILE`:\n    {reports}"
        );
    }
    let folders: Vec<&String> = names
        .iter()
        .filter(|name| path.join(name.as_str()).is_dir())
        .collect();
    if !folders.is_empty() {
        return format!(
            "folders inside it are not searched; give one of them:\n    {}",
            commands(path, &folders)
        );
    }
    if names.iter().any(|name| is_log(name)) {
        return format!("a log of TensorBoard alone is no profile: {TRACES_BESIDE_LOGS}");
    }
    "give a folder with `.sqlite` exports of Nsight Systems, nvprof databases or traces of \
     torch.profiler"
        .to_owned()
}

/// Files that may be profiles, by their names: what they are, a remark, and the remedy before a list of them.
type Candidates = (fn(&str) -> bool, &'static str, &'static str, &'static str);

const CANDIDATES: [Candidates; 3] = [
    (
        |name| ends_with_one_of(name, &[".json", ".json.gz"]),
        "JSON file",
        " (traces, by their names)",
        "give one of them",
    ),
    (
        |name| ends_with_one_of(name, &[".sqlite", ".sqlite3", ".nvvp", ".db"]),
        "database",
        "",
        "give one of them",
    ),
    (
        is_report,
        "Nsight Systems report",
        "",
        "export one with the `nsys` that made it, `nsys export --type sqlite FILE`",
    ),
];

fn ends_with_one_of(name: &str, endings: &[&str]) -> bool {
    endings.iter().any(|end| name.ends_with(end))
}

/// The error for a folder: lists the files in it that may be profiles, based on their names.
fn folder(path: &Path) -> ReadError {
    let names = names_in(path);
    let candidates = CANDIDATES
        .iter()
        .find_map(|(is_one, what, remark, remedy)| {
            let found: Vec<&String> = names.iter().filter(|name| is_one(name)).collect();
            let listed = || format!("{remedy}:\n    {}", commands(path, &found));
            let count = counted(found.len(), what);
            (!found.is_empty()).then(|| (format!("{count}{remark}"), listed()))
        });
    let logs = names.iter().filter(|name| is_log(name)).count();
    let (found, remedy) = match candidates {
        Some(candidates) => candidates,
        None if logs > 0 => (
            format!("{} of TensorBoard and no trace", counted(logs, "log")),
            TRACES_BESIDE_LOGS.to_owned(),
        ),
        None => (
            "no file in it that looks like a profile".to_owned(),
            "give an `.sqlite` export of Nsight Systems, an nvprof database, or a `.pt.trace.json` of \
             torch.profiler"
                .to_owned(),
        ),
    };
    ReadError::new(
        path,
        format!("expected a profile, found a folder with {found}"),
        remedy,
    )
}

fn counted(count: usize, what: &str) -> String {
    crate::base::units::counted(count as u64, what)
}

/// Whether a file is a report of Nsight Systems, by its name: the format has no published signature.
/// Affects only the text of a remedy.
fn is_report(name: &str) -> bool {
    ends_with_one_of(
        &name.to_ascii_lowercase(),
        &[".nsys-rep", ".qdrep", ".qdstrm"],
    )
}

/// Maximum number of bytes read from a pipe; no trace is longer.
const MAX_STREAM: u64 = 8 << 30;

/// Whether a path names a pipe (`/dev/stdin` after `zcat`, `<(...)` of a shell).
pub(super) fn is_stream(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_socket())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Copies the data of a pipe to a temporary file, which is deleted with the handle, because a trace is
/// read more than once.
///
/// # Errors
/// When the data does not begin like a trace, cannot be read, or never ends.
pub(super) fn spool(path: &Path) -> Result<Temporary, ReadError> {
    let fail = |problem: &str, remedy: &str| ReadError::new(path, problem, remedy);
    let io = |e: std::io::Error| fail(&format!("cannot be read: {e}"), "write it to a file first");
    let mut stream = File::open(path).map_err(io)?;
    let mut head = Vec::new();
    let head_bytes = stream.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
    head_bytes.map_err(io)?;
    if is_sqlite(&head) {
        return Err(fail(
            "expected a regular file, found an SQLite database in a pipe",
            "write it to a file first: its pages are read in any order, which a pipe does not allow",
        ));
    }
    let packed = is_gzip(&head);
    if !packed && !matches!(first_byte(&head), Some(b'{' | b'[')) {
        return Err(not_a_profile(path, &head));
    }
    let mut file = Temporary::scratch().map_err(io)?;
    let rest = stream.take(MAX_STREAM);
    let taken = std::io::copy(&mut head.as_slice().chain(rest), &mut file).map_err(io)?;
    if taken > MAX_STREAM {
        return Err(fail(
            "more came out of the pipe than any trace holds",
            "check what writes into it",
        ));
    }
    Ok(file)
}

/// The error for a file that no reader recognizes: describes the file, and explains how to get a
/// profile instead.
pub(super) fn not_a_profile(path: &Path, head: &[u8]) -> ReadError {
    let (found, remedy) = describe(path, head);
    ReadError::new(
        path,
        format!(
            "expected an Nsight Systems SQLite export, an nvprof database or a PyTorch profiler trace, \
             found {found}"
        ),
        remedy,
    )
}

/// First bytes of files that are given instead of a profile, with a description and the remedy.
const BEGINNINGS: &[(&[u8], &str, &str)] = &[
    (
        b"version https://git-lfs.github.com",
        "a Git LFS pointer: the real file was not downloaded",
        "run `git lfs pull` in that repository",
    ),
    (
        &[0x1f, 0x8b],
        "gzip-compressed data",
        "only PyTorch profiler traces are read compressed; anything else must be unpacked first \
         (`gunzip -k FILE`)",
    ),
    (
        &[0x28, 0xb5, 0x2f, 0xfd],
        "zstd-compressed data",
        "unpack it first (`unzstd -k FILE`)",
    ),
    (
        b"PK\x03\x04",
        "a zip archive",
        "unpack it and give the profile inside",
    ),
    (
        b"NVR\0",
        "an Nsight Compute report",
        "Nsight Compute looks at single kernels; capture the whole program with \
         `nsys profile -t cuda,nvtx -o net python train.py`, then \
         `nsys export --type sqlite net.nsys-rep`",
    ),
];

/// Whether the first bytes are those of a tar archive: the signature of POSIX tar (`ustar`).
fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

fn describe(path: &Path, head: &[u8]) -> (&'static str, String) {
    if is_tar(head) {
        return (
            "a tar archive",
            "unpack it (`tar xf FILE`) and give the profile inside".into(),
        );
    }
    if is_gzip(head) && is_tar(&super::kineto::unpacked_beginning(head)) {
        return (
            "a compressed tar archive",
            "unpack it (`tar xzf FILE`) and give the profiles inside".into(),
        );
    }
    for (beginning, found, remedy) in BEGINNINGS {
        if head.starts_with(beginning) {
            return (found, (*remedy).to_owned());
        }
    }
    let text = head.trim_ascii_start();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let begins = |word: &str| {
        text.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    if begins("<!doctype html") || begins("<html") {
        return (
            "an HTML page: the download link led to a web page",
            "download the raw file (on GitHub: the `Raw` button)".into(),
        );
    }
    let has = |word: &str| text.windows(word.len()).any(|part| part == word.as_bytes());
    let is_json = begins("{") || begins("[");
    if is_json && (has("speedscope.app/file-format-schema") || has("\"activeProfileIndex\"")) {
        return (
            "a speedscope file: samples of the host, without the GPU",
            "capture with torch.profiler and `prof.export_chrome_trace(\"net.pt.trace.json.gz\")`"
                .into(),
        );
    }
    if has("NVPROF is profiling process") || has("== Profiling result:") {
        return (
            "what nvprof prints on the terminal",
            "write a database with `nvprof -o net.nvprof python train.py` and give that".into(),
        );
    }
    // Protocol 2 to 5 of Python's pickle, which PyTorch uses for its memory snapshots.
    if matches!(head, [0x80, 2..=5, ..]) {
        return (
            if has("device_traces") || has("segments") {
                "a snapshot of PyTorch's memory (`torch.cuda.memory._dump_snapshot`)"
            } else {
                "a Python pickle"
            },
            "memory snapshots belong to <https://pytorch.org/memory_viz>; for advice on time capture \
             a trace with torch.profiler"
                .into(),
        );
    }
    if begins("{'") {
        return (
            "a PyProf dictionary file",
            "`pyprof-advise prof` reads these; advice needs the SQLite file it was made from"
                .into(),
        );
    }
    if is_json && has("\"schema_version\"") && has("\"verdict\"") {
        return (
            "a report that pyprof-advise wrote",
            format!(
                "print it with `pyprof-advise show {}`",
                shell_word(&path.display().to_string())
            ),
        );
    }
    if is_json {
        return (
            "JSON without trace events",
            "give the trace written by `prof.export_chrome_trace(...)` or \
             `tensorboard_trace_handler` of torch.profiler"
                .into(),
        );
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if is_report(&name) {
        let shown = shell_word(&path.display().to_string());
        let export = format!("`nsys export --type sqlite {shown}`");
        let remedy = if name.to_ascii_lowercase().ends_with(".qdstrm") {
            format!(
                "import it first (`QdstrmImporter -i {shown}`), then export the report: {export}"
            )
        } else {
            format!("export it with the `nsys` that made it: {export}")
        };
        return ("an Nsight Systems report", remedy);
    }
    if is_log(&name) {
        return (
            "a TensorBoard log",
            "give the `.pt.trace.json` beside it, if `tensorboard_trace_handler` wrote one".into(),
        );
    }
    if head.iter().all(|byte| *byte == 0) {
        return (
            "a file that begins with zero bytes",
            "the copy or download did not finish: make it again".into(),
        );
    }
    if head.is_ascii() {
        return (
            "a text file",
            "give the file written by `nsys export --type sqlite`, `nvprof -o` or torch.profiler"
                .into(),
        );
    }
    (
        "a file of an unknown kind",
        "give the file written by `nsys export --type sqlite`, `nvprof -o` or torch.profiler; a \
         report (`.nsys-rep`, `.qdrep`) must be exported first"
            .into(),
    )
}

/// The error for an SQLite database of some other program.
pub(super) fn other_database(path: &Path, tables: &[String]) -> ReadError {
    const SHOWN: usize = 5;
    let names: Vec<String> = tables
        .iter()
        .take(SHOWN)
        .map(|name| {
            let clean: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
            format!("`{clean}`")
        })
        .collect();
    let found = match (names.as_slice(), tables.len() > SHOWN) {
        ([], _) => "no tables at all".to_owned(),
        (names, true) => format!("{}, ...", names.join(", ")),
        (names, false) => names.join(", "),
    };
    // The database of DLProf is `dlprof_dldb.sqlite` and contains only aggregates.
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase());
    if name.is_some_and(|n| n.contains("dlprof") || n.contains("dldb")) {
        return ReadError::new(
            path,
            format!(
                "expected an Nsight Systems export, found a DLProf database ({found}): it holds sums, \
                 not the kernels"
            ),
            "give the `nsys_profile.sqlite` that DLProf wrote beside it, or export its report: \
             `nsys export --type sqlite nsys_profile.qdrep`",
        );
    }
    ReadError::new(
        path,
        format!(
            "expected the tables of Nsight Systems (`StringIds`, `CUPTI_ACTIVITY_KIND_KERNEL`) \
             or of nvprof (`StringTable`), found an SQLite database of another program: {found}"
        ),
        "give the file written by `nsys export --type sqlite` or `nvprof -o`",
    )
}

/// A path quoted for a POSIX shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_files_are_described() {
        let name = |file: &str, head: &[u8]| describe(Path::new(file), head);
        for (head, word) in [
            (&b"version https://git-lfs.github.com/spec/v1\n"[..], "LFS"),
            (b"\x1f\x8b\x08\0", "gzip"),
            (b"\n<!DOCTYPE HTML><p>", "HTML"),
            (b"\xef\xbb\xbf{\"traceEvents\": []}", "JSON"),
            (b"{'kShortName': 'x'}", "PyProf"),
            (
                b"{\"version\":\"0.0.1\",\"$schema\":\"https://www.speedscope.app/file-format-schema.json\"}",
                "speedscope",
            ),
            (
                b"==417== NVPROF is profiling process 417, command: python x.py\n",
                "nvprof prints",
            ),
            (b"\x80\x04\x95\x00}(\x8c\x08segments\x94", "memory"),
            (b"\x80\x04\x95\x00]", "pickle"),
            (b"hello", "text"),
            (b"\0\xff\xfe", "unknown"),
        ] {
            let found = name("x.sqlite", head).0;
            assert!(found.contains(word), "{found} should name {word}");
        }
        let (found, remedy) = name("net.qdstrm", b"\0\xff");
        assert!(found.contains("report") && remedy.contains("QdstrmImporter"));
        let (found, _) = name("events.out.tfevents.17.host", b"\x18\0\xff");
        assert!(found.contains("TensorBoard"));
        let tables = ["ops".to_owned()];
        let error = other_database(Path::new("dlprof_dldb.sqlite"), &tables);
        assert!(error.problem.contains("DLProf") && error.remedy.contains("nsys_profile"));
        let (found, remedy) = name("a dir/my net.nsys-rep", b"\0\x01\x02\xff");
        assert!(found.contains("Nsight Systems report"));
        assert!(remedy.contains("nsys export --type sqlite 'a dir/my net.nsys-rep'"));
    }

    #[test]
    fn errors_for_folders_list_candidates() {
        let dir = tempfile::tempdir().unwrap();
        let message = || {
            let error = head(dir.path()).unwrap_err();
            format!("{error}")
        };
        assert!(message().contains("no file in it"), "{}", message());
        for (file, words) in [
            (
                "events.out.tfevents.1",
                ["TensorBoard", "tensorboard_trace_handler"],
            ),
            (
                "net.nsys-rep",
                ["1 Nsight Systems report", "nsys export --type sqlite"],
            ),
            ("net.sqlite", ["1 database", "net.sqlite"]),
            (
                "host.1.pt.trace.json.gz",
                ["1 JSON file", "host.1.pt.trace.json.gz"],
            ),
            (
                "host.2.pt.trace.json",
                ["2 JSON files", "host.2.pt.trace.json"],
            ),
        ] {
            std::fs::write(dir.path().join(file), "x").unwrap();
            for word in words {
                assert!(message().contains(word), "{file}: {}", message());
            }
        }
    }
}
