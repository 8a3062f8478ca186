//! Writes text to standard output, a file, or standard error, and says why a command failed.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};

use super::args::{Color, Console};
use crate::Error;
use crate::base::diag::Complaints;
use crate::base::temporary::Temporary;
use crate::base::units::counted;
use crate::gpu::select::SelectError;

/// Exit status: a report was written.
pub(super) const OK: u8 = 0;
/// Exit status: a gate failed (`--fail-on`, `check` and `test` of rules and costs).
pub(super) const GATE: u8 = 1;
/// Exit status: nothing could be analyzed, or the command line was wrong.
pub(super) const UNUSABLE: u8 = 2;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A gate failed, or checked files have mistakes: exit status 1. The reason was printed already.
    GateFailed,
    /// The command could not run: exit status 2. The reason was printed already.
    AlreadyReported,
    /// The command could not run: exit status 2, with what was expected and what to do.
    Unusable(String),
    /// The exit status of a program that was run. The reason was printed already.
    Status(u8),
}

/// Every library error fails a command; mistakes in files are printed with their lines.
impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        match error.into() {
            Error::Files(complaints) | Error::Gpu(SelectError::File(complaints)) => {
                refuse(&complaints)
            }
            error => Failure::Unusable(error.to_string()),
        }
    }
}

/// The result of a command.
pub(crate) type CommandResult = Result<(), Failure>;

impl Console {
    pub(super) fn color(self) -> Color {
        self.color.unwrap_or(Color::Auto)
    }

    /// Prints a warning, unless `--quiet`. The caller escapes text from profiles.
    pub(crate) fn warn(self, text: &str) {
        if !self.quiet {
            labeled("warning", AnsiColor::Yellow, text);
        }
    }

    /// Prints a note, with `--verbose`.
    pub(crate) fn note(self, text: &str) {
        if self.verbose {
            labeled("note", AnsiColor::Cyan, text);
        }
    }
}

/// Applies `--color` to both streams; `auto` depends on the terminal and NO_COLOR.
pub(super) fn set_color(color: Color) {
    match color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// Whether standard error is colored.
pub(super) fn stderr_color() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// Whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stdout())
}

/// The width of the terminal in columns; without a terminal the one in `COLUMNS`, as for a pager, else the
/// default width of reports.
pub(super) fn width() -> usize {
    const ELSEWHERE: usize = 100;
    let size = terminal_size::terminal_size_of(std::io::stdout());
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = size.map(|(width, _)| usize::from(width.0));
    columns.or_else(said).unwrap_or(ELSEWHERE)
}

/// Text for a file. Colors are written only to terminals, unless explicitly requested.
pub(super) fn without_color(text: &str) -> Cow<'_, str> {
    match anstream::ColorChoice::global() {
        anstream::ColorChoice::Always | anstream::ColorChoice::AlwaysAnsi => Cow::Borrowed(text),
        _ if !text.contains('\u{1b}') => Cow::Borrowed(text),
        _ => Cow::Owned(anstream::adapter::strip_str(text).to_string()),
    }
}

/// Writes `label: text` to standard error.
pub(super) fn labeled(label: &str, color: AnsiColor, text: &str) {
    let style = Style::new().bold().fg_color(Some(color.into()));
    let mut stream = anstream::stderr();
    // If standard error is closed, the error cannot be reported.
    let _ = writeln!(stream, "{style}{label}{style:#}: {text}");
}

/// Writes text with its own layout, such as rendered complaints, to standard error.
pub(super) fn complain(text: &str) {
    let _ = write!(anstream::stderr(), "{text}");
}

/// Writes text to standard output. A closed pipe (`| head`) is not an error.
pub(super) fn print(text: &str) -> CommandResult {
    let mut out = anstream::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn printed(result: std::io::Result<()>) -> CommandResult {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Unusable(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says that everything that was checked is fine, unless `--quiet`.
pub(super) fn fine(checked: usize, noun: &str, console: Console) -> CommandResult {
    if console.quiet {
        return Ok(());
    }
    let verb = if checked == 1 { "is" } else { "are" };
    print(&format!("{} {verb} fine\n", counted(checked as u64, noun)))
}

/// Prints the lines of tests, each with whether it passed, and says whether all did. Those that passed are printed
/// with `--verbose`.
pub(super) fn test_results(results: &[(bool, String)], console: Console) -> Result<bool, Failure> {
    let failed = results.iter().filter(|(passed, _)| !passed).count();
    let shown = results
        .iter()
        .filter(|(passed, _)| console.verbose || !passed);
    let mut text: String = shown.map(|(_, line)| format!("{line}\n")).collect();
    if failed > 0 || !console.quiet {
        let passed = results.len() - failed;
        text.push_str(&format!("{passed} passed, {failed} failed\n"));
    }
    print(&text)?;
    Ok(failed == 0)
}

/// Prints every complaint with its line; the number of several is printed at the end.
pub(super) fn refuse(complaints: &Complaints) -> Failure {
    complain(&complaints.render(stderr_color()));
    if complaints.len() > 1 {
        Failure::Unusable(complaints.summary())
    } else {
        Failure::AlreadyReported
    }
}

/// Streams machine-readable text to standard output. A closed pipe is not an error.
pub(super) fn stream(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> CommandResult {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    printed(write(&mut out).and_then(|()| out.flush()))
}

/// Writes text to a file, or to standard output.
pub(super) fn write_to(file: Option<&Path>, text: &str) -> CommandResult {
    match file {
        Some(path) => write_file(path, text),
        None => print(text),
    }
}

/// Writes a text that cannot be made again at once to a file, as [`write_to`] does; to standard output where the
/// file cannot be written. That remains a failure.
pub(super) fn write_or_print(file: Option<&Path>, text: &str) -> CommandResult {
    match write_to(file, text) {
        Err(Failure::Unusable(why)) if file.is_some() => {
            print(text)?;
            Err(Failure::Unusable(format!(
                "{why}\n  standard output has it instead"
            )))
        }
        outcome => outcome,
    }
}

/// Reports an error if a file could not be written, before the work starts whose result it is for.
pub(super) fn check_writable(path: &Path) -> CommandResult {
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(is_folder(path)),
        // Opening a pipe would wait for its reader.
        Ok(there) if !there.is_file() => Ok(()),
        _ => temporary_for(&target_of(path)).map(drop),
    }
}

fn is_folder(path: &Path) -> Failure {
    cannot_write(path, "it is a folder; name a file in it")
}

/// The file to replace: a link stays a link, the file that it points to is replaced.
fn target_of(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Writes a text file without colors, see [`write_file_with`].
pub(super) fn write_file(path: &Path, text: &str) -> CommandResult {
    let text = without_color(text);
    write_file_with(path, |file| file.write_all(text.as_bytes()))
}

/// Writes a file atomically: to a temporary file in the same folder, which is then renamed. An existing
/// file that is not a regular file (`/dev/null`, a pipe) is written to, never replaced.
pub(super) fn write_file_with(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> std::io::Result<()>,
) -> CommandResult {
    let refuse = |why: String| cannot_write(path, why);
    let buffered = |file: &mut (dyn Write + Send)| {
        let mut buffer = std::io::BufWriter::new(file);
        write(&mut buffer)
            .and_then(|()| buffer.flush())
            .map_err(|error| refuse(error.to_string()))
    };
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(is_folder(path)),
        Ok(there) if !there.is_file() => {
            let sink = std::fs::OpenOptions::new().write(true).open(path);
            return buffered(&mut sink.map_err(|error| refuse(error.to_string()))?);
        }
        _ => {}
    }
    let target = target_of(path);
    let mut file = temporary_for(&target)?;
    buffered(&mut file)?;
    file.persist(&target).map_err(|e| refuse(plainly(&e)))
}

/// The failure of writing to a file or a folder.
pub(super) fn cannot_write(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::Unusable(format!("cannot write {}: {why}", path.display()))
}

/// An empty file in the folder of `target`, to be renamed to it; it is removed if it is not.
pub(super) fn temporary_for(target: &Path) -> Result<Temporary, Failure> {
    let refuse = |why: String| cannot_write(target, why);
    let folder = target
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(refuse(format!("there is no folder {}", folder.display())));
    }
    Temporary::beside(folder).map_err(|e| refuse(plainly(&e)))
}

/// An error message without the name of the temporary file, which the user does not know.
fn plainly(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => error.to_string(),
        None => error.kind().to_string(),
    }
}
