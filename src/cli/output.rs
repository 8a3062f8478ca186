//! Where words go: standard output, a file, or standard error.

use std::io::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};

use super::{Color, Failure, Outcome};

/// Applies `--color` to both streams; `auto` asks the terminal and NO_COLOR.
pub(super) fn set_color(color: Color) {
    match color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// Whether standard error shows colours.
pub(super) fn stderr_color() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// `label: text` on standard error.
pub(super) fn labelled(label: &str, color: AnsiColor, text: &str) {
    let style = Style::new().bold().fg_color(Some(color.into()));
    let mut stream = anstream::stderr();
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(stream, "{style}{label}{style:#}: {text}");
}

/// Text that brings its own layout, such as rendered complaints, on standard error.
pub(super) fn complain(text: &str) {
    let _ = write!(anstream::stderr(), "{text}");
}

/// Text on standard output. A reader that went away (`| head`) is not an error.
pub(super) fn print(text: &str) -> Outcome {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Unusable(format!("standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Text for programs on standard output, as it is made. A reader that went away is not an error.
pub(super) fn stream(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Outcome {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Unusable(format!("standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Writes a file whole or not at all: into a temporary file beside it, then renamed.
pub(super) fn write_file(path: &Path, text: &str) -> Outcome {
    let fail = |error: std::io::Error| {
        Failure::Unusable(format!("cannot write {}: {error}", path.display()))
    };
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Temporary files are private; a report is as readable as any other new file.
        let mode = std::fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(mode).map_err(fail)?;
    }
    file.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}
