//! Starts a program and waits for it. The only place that starts processes, and only what the user
//! names on the command line.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::settings::Settings;

/// A variable that Scalene sets before it starts itself once more, as a child without the options of the
/// interpreter, and its default. Where it is set, it does not.
const SCALENE_STARTED: (&str, &str) = ("SCALENE_ALLOCATION_SAMPLING_WINDOW", "1048576");
/// The variable that tells the Python package what to record.
const SETTINGS: &str = "PYPROF_ADVISE_CAPTURE";
/// Higher than every severity of torch.profiler's library, which otherwise writes to the program's
/// standard error.
const QUIET: &str = "99";

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Program(Child);

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its exit status; 128 plus the signal's number if a signal ended it, as shells say.
    pub(crate) status: u8,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
}

impl Program {
    /// Starts `command` with the package at `package` on its `PYTHONPATH`. It uses the streams of this
    /// process.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub(crate) fn start(
        command: &[String],
        package: &Path,
        settings: &Settings<'_>,
    ) -> io::Result<Program> {
        let mut start = prepared(command, package, settings)?;
        match start.spawn() {
            Err(error) if is_script_without_interpreter(&error) => {
                let script = [&["sh".to_owned()], command].concat();
                prepared(&script, package, settings)?.spawn().map(Program)
            }
            started => started.map(Program),
        }
    }

    /// Starts `command` in the same way, with variables in its environment and what it writes in a file.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub(crate) fn start_quietly(
        command: &[String],
        package: &Path,
        settings: &Settings<'_>,
        variables: &[(String, String)],
        log: File,
    ) -> io::Result<Program> {
        let mut start = prepared(command, package, settings)?;
        start
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        start.spawn().map(Program)
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end, and ends it if it has not after `patience`.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn end(&mut self, patience: Duration) -> io::Result<()> {
        ask_to_end(self.id());
        let until = Instant::now() + patience;
        while self.0.try_wait()?.is_none() {
            if Instant::now() >= until {
                self.0.kill()?;
                self.0.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub(crate) fn ended(&mut self) -> io::Result<Option<Ended>> {
        Ok(self.0.try_wait()?.map(ended))
    }
}

#[cfg(unix)]
fn ask_to_end(id: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // One that has ended already needs no signal.
        let _ = kill_process(pid, Signal::TERM);
    }
}

#[cfg(not(unix))]
fn ask_to_end(_id: u32) {}

/// Whether a file could not be started because it is a script whose first line names no program. Shells run
/// it all the same.
#[cfg(unix)]
fn is_script_without_interpreter(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error())
}

#[cfg(not(unix))]
fn is_script_without_interpreter(_error: &io::Error) -> bool {
    false
}

/// The command line of a program that the package records.
fn prepared(command: &[String], package: &Path, settings: &Settings<'_>) -> io::Result<Command> {
    let [program, args @ ..] = command else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut start = Command::new(program);
    start
        .args(args)
        .env("PYTHONPATH", python_path(package)?)
        .env(SETTINGS, serde_json::to_string(settings)?);
    if settings.host_profiler == Some("scalene") {
        let (name, value) = SCALENE_STARTED;
        start.env(name, value);
    }
    if std::env::var_os("KINETO_LOG_LEVEL").is_none() {
        start.env("KINETO_LOG_LEVEL", QUIET);
    }
    Ok(start)
}

/// The package first, then what the user's variable has.
fn python_path(package: &Path) -> io::Result<OsString> {
    let own = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let rest = std::env::split_paths(&own).filter(|path| !path.as_os_str().is_empty());
    let all = std::iter::once(package.to_owned()).chain(rest);
    std::env::join_paths(all).map_err(io::Error::other)
}

/// The standard output of a tool, with its standard error behind it.
///
/// # Errors
/// When it cannot be started.
pub(super) fn output(command: &[&str]) -> io::Result<(bool, String)> {
    let [program, args @ ..] = command else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

#[cfg(unix)]
fn ended(status: ExitStatus) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal();
    let code = status.code().or(signal.map(|signal| 128 + signal));
    Ended {
        status: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        signal,
    }
}

#[cfg(not(unix))]
fn ended(status: ExitStatus) -> Ended {
    let code = status.code().unwrap_or(1);
    Ended {
        status: u8::try_from(code).unwrap_or(1),
        signal: None,
    }
}
