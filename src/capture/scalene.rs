//! `run --host-profiler scalene`: Scalene starts the program itself, with sampling off, and the package in the
//! program turns it on while windows are recorded.

use std::io;
use std::path::Path;

use super::start;

/// What Scalene writes, in the folder of the recording.
pub(crate) const FILE: &str = "scalene.json";
/// Options of the interpreter that take an argument.
const WITH_ARGUMENT: [&str; 3] = ["-W", "-X", "--check-hash-based-pycs"];
/// The first version that tells the time of samples.
const OLDEST: u32 = 2;

/// The command line that runs a program under Scalene: `python [OPTIONS] SCRIPT|-m MODULE ...` only.
pub(crate) fn command(program: &[String], folder: &Path) -> Option<Vec<String>> {
    let (python, arguments) = program.split_first()?;
    let name = Path::new(python).file_stem()?.to_str()?;
    name.starts_with("python").then_some(())?;
    let mut options = 0;
    loop {
        match arguments.get(options)?.as_str() {
            "-m" => break,
            // A text or standard input instead of a file.
            "-c" | "-" => return None,
            option if WITH_ARGUMENT.contains(&option) => options += 2,
            option if option.starts_with('-') => options += 1,
            _ => break,
        }
    }
    let (options, rest) = arguments.split_at_checked(options)?;
    let outfile = folder.join(FILE).to_str()?.to_owned();
    let scalene = ["-m", "scalene", "run", "--cpu-only", "--off", "--outfile"].map(str::to_owned);
    let mut all = vec![python.clone()];
    all.extend_from_slice(options);
    all.extend(scalene);
    all.extend([outfile, "---".to_owned()]);
    all.extend_from_slice(rest);
    Some(all)
}

/// Checks that the interpreter of a program has a Scalene that can be used.
///
/// # Errors
/// When it has none, or one without times of samples.
pub(crate) fn find(python: &str) -> io::Result<()> {
    let asked = "import importlib.metadata as m; print(m.version('scalene'))";
    let (is_good, said) = start::output(&[python, "-c", asked])?;
    let version = said.trim().split('.').next();
    match version.and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if is_good && major >= OLDEST => Ok(()),
        Some(_) if is_good => Err(io::Error::other(format!(
            "Scalene {} is too old: version {OLDEST} or later is needed",
            said.trim()
        ))),
        _ => Err(io::Error::other("Scalene is not installed")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn under_scalene(program: &str) -> Option<String> {
        let program: Vec<String> = program.split(' ').map(str::to_owned).collect();
        command(&program, Path::new("/t")).map(|all| all.join(" "))
    }

    #[test]
    fn options_of_the_interpreter_stay_before_scalene() {
        let scalene = "-m scalene run --cpu-only --off --outfile /t/scalene.json ---";
        for (program, before, after) in [
            ("python train.py --lr 1", "python", "train.py --lr 1"),
            (
                "/v/bin/python3.11 -W ignore -u -m pkg.train x",
                "/v/bin/python3.11 -W ignore -u",
                "-m pkg.train x",
            ),
        ] {
            let expected = format!("{before} {scalene} {after}");
            assert_eq!(under_scalene(program), Some(expected));
        }
    }

    #[test]
    fn only_python_with_a_file_or_module_runs_under_scalene() {
        for program in [
            "torchrun train.py",
            "python",
            "python -",
            "python -c print(1)",
            "python -W",
            "./train.py",
        ] {
            assert_eq!(under_scalene(program), None, "{program}");
        }
    }
}
