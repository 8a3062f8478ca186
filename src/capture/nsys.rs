//! `run --with nsys`: the command line of Nsight Systems, for the version that is installed.

use std::io;
use std::path::{Path, PathBuf};

use super::start;

/// The program.
const NSYS: &str = "nsys";
/// The name of the recording, without an ending.
const NAME: &str = "nsys";
/// The name of the exported recording.
pub(crate) const EXPORT: &str = "nsys.sqlite";
/// Endings of recordings; `qdrep` before version 2021.4.
const ENDINGS: [&str; 2] = ["nsys-rep", "qdrep"];
/// Options that only some versions have: the option, and how it is used.
const OPTIONAL: [(&str, &str); 5] = [
    ("--osrt-file-access", "--osrt-file-access=true"),
    ("--cuda-graph-trace", "--cuda-graph-trace=node"),
    ("--capture-range-end", "--capture-range-end=stop"),
    ("--sample", "--sample=none"),
    ("--cpuctxsw", "--cpuctxsw=none"),
];
/// Ranges that newer versions put around the operators and functions of PyTorch.
const PYTORCH: [&str; 2] = ["autograd-shapes-nvtx", "functions-trace"];

/// What the installed version records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NsysCommand {
    /// The command line, to be followed by that of the program.
    pub(crate) command: Vec<String>,
    /// Whether it puts ranges around operators; else the program has to.
    pub(crate) names_operators: bool,
}

impl NsysCommand {
    /// Asks the installed nsys what it can do; the recording goes into `folder`.
    ///
    /// # Errors
    /// When it cannot be started, or does not know `profile`.
    pub(crate) fn installed(folder: &Path) -> io::Result<NsysCommand> {
        let (is_good, help) = start::output(&[NSYS, "profile", "--help"])?;
        if !is_good || !help.contains("--capture-range") {
            return Err(io::Error::other(
                "`nsys profile --help` does not list `--capture-range`",
            ));
        }
        Ok(NsysCommand::of_help(&help, &folder.join(NAME)))
    }

    fn of_help(help: &str, recording: &Path) -> NsysCommand {
        let mut command: Vec<String> = [NSYS, "profile", "--trace=cuda,nvtx,osrt"]
            .map(str::to_owned)
            .to_vec();
        command.push("--capture-range=cudaProfilerApi".to_owned());
        let has = |option: &str| help.contains(option);
        let known = OPTIONAL.iter().filter(|(option, _)| has(option));
        command.extend(known.map(|(_, used)| (*used).to_owned()));
        let ranges: Vec<&str> = match has("--pytorch") {
            true => PYTORCH.into_iter().filter(|name| has(name)).collect(),
            false => Vec::new(),
        };
        let names_operators = ranges.contains(&PYTORCH[0]);
        if !ranges.is_empty() {
            command.push(format!("--pytorch={}", ranges.join(",")));
        }
        command.push(format!("--output={}", recording.display()));
        NsysCommand {
            command,
            names_operators,
        }
    }
}

/// Exports the recording in a folder, with the nsys that made it; `None` if there is none.
///
/// # Errors
/// When nsys cannot be started or fails; the error has what it said.
pub(crate) fn export(folder: &Path) -> io::Result<Option<PathBuf>> {
    let recordings = ENDINGS.map(|ending| folder.join(NAME).with_extension(ending));
    let Some(recording) = recordings.iter().find(|path| path.is_file()) else {
        return Ok(None);
    };
    let target = folder.join(EXPORT);
    let (from, to) = (recording.to_string_lossy(), target.to_string_lossy());
    let mut export = vec![NSYS, "export", "--type", "sqlite", "-o", &to];
    // The sizes of NCCL's messages are in its payloads, which are exported on demand.
    let (_, help) = start::output(&[NSYS, "export", "--help"])?;
    if help.contains("--include-blobs") {
        export.push("--include-blobs=true");
    }
    export.push(&from);
    match start::output(&export)? {
        (true, _) if target.is_file() => Ok(Some(target)),
        (_, said) => Err(io::Error::other(said.trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(help: &str) -> (String, bool) {
        let nsys = NsysCommand::of_help(help, Path::new("/t/nsys"));
        (nsys.command.join(" "), nsys.names_operators)
    }

    #[test]
    fn options_are_those_of_the_installed_version() {
        let (old, named) = line("--capture-range= none, cudaProfilerApi\n -s, --sample= none");
        let expected = "nsys profile --trace=cuda,nvtx,osrt --capture-range=cudaProfilerApi --sample=none \
                        --output=/t/nsys";
        assert_eq!((old.as_str(), named), (expected, false));
        let (new, named) = line(
            "--capture-range=\n--capture-range-end=\n--cuda-graph-trace=\n--osrt-file-access=\n--sample=\n\
             --pytorch= autograd-nvtx, autograd-shapes-nvtx, functions-trace, functions-trace-shapes",
        );
        assert!(named);
        assert!(
            new.contains("--pytorch=autograd-shapes-nvtx,functions-trace --output"),
            "{new}"
        );
        assert!(
            new.contains("--osrt-file-access=true --cuda-graph-trace=node"),
            "{new}"
        );
    }
}
