//! `pyprof-advise run`: runs a program, records some of its steps, and reports on them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::args::{AdviseArgs, AnalyzeArgs, ConfigArgs, Console, GateArgs, ReportArgs};
use super::output::{self, CommandResult, Failure, GATE, OK, UNUSABLE};
use super::signals::PassedOn;
use super::{advise, diff, examples};
use crate::base::temporary::TemporaryFolder;
use crate::base::text::{choice, plain};
use crate::capture::nsys::{self, NsysCommand};
use crate::capture::{
    self, CaptureProgress, Ended, POLL, Program, Recorder, Settings, States, scalene,
};
use crate::formats;
use crate::report::ProgramRun;

/// What `--help` says first.
pub(super) const ABOUT: &str = "Runs a PyTorch program, records a few of its steps with torch.profiler, and reports on them. \
The program is not changed and computes what it always does. Steps are calls of an optimizer, or, without one, \
calls of the model. The first steps are skipped until their length is steady; then two windows are recorded: a \
light one, from which idle time is taken, and a detailed one with shapes and layers. Ranks and workers on the \
same machine are recorded too.";

/// Arguments of `run`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = examples::RUN)]
pub(super) struct RunArgs {
    /// The program and its arguments, after `--`
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
    /// Skip this many steps before recording [default: 10, and until their length is steady]
    #[arg(long, value_name = "N")]
    skip: Option<u32>,
    /// Record this many steps in each window
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// Close a window after this many seconds, even if it has fewer steps
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    max_seconds: u32,
    /// Record Python call stacks in the detailed window, to name source lines
    #[arg(long)]
    stack: bool,
    /// Keep the traces in this folder, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Compare with an earlier run: a profile, a JSON report, or the folder of `--keep`; the comparison is
    /// written instead of the report
    #[arg(long, value_name = "LAST", conflicts_with_all = ["template", "source", "fail_on", "baseline"])]
    against: Option<PathBuf>,
    /// With `--against`: exit with status 1 when the program is slower by more than this and by more than the
    /// noise, as with `diff --fail-on`: `regression=3%`
    #[arg(long, value_name = "GATE", requires = "against")]
    gate: Option<diff::Gate>,
    /// Record with another profiler
    #[arg(long, value_name = "PROFILER")]
    with: Option<With>,
    /// Run a profiler of the host too, which shows what the host does while the GPU waits
    #[arg(long, value_name = "NAME", conflicts_with = "with")]
    host_profiler: Option<HostProfiler>,
    /// The GPU: a name from `gpus list` or a TOML file; by default the GPU that the program used
    #[arg(long, value_name = "NAME|FILE")]
    gpu: Option<String>,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    analysis: AnalyzeArgs,
    #[command(flatten)]
    gates: GateArgs,
    #[command(flatten)]
    config: ConfigArgs,
    /// Whether the program ends when everything is recorded.
    #[arg(skip)]
    ends: bool,
}

/// Profilers other than torch.profiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum With {
    /// Nsight Systems
    Nsys,
}

/// Profilers of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HostProfiler {
    /// py-spy samples the process while it is recorded; its samples explain gaps
    PySpy,
    /// Scalene samples the main thread while it is recorded; its samples explain gaps line by line
    Scalene,
    /// cProfile counts calls in steps of their own, after the recording; it only names functions
    Cprofile,
}

impl RunArgs {
    /// What `try` records, to take findings from.
    pub(super) fn for_findings(command: Vec<String>, skip: u32, max_seconds: u32) -> RunArgs {
        RunArgs {
            command,
            skip: Some(skip),
            steps: 3,
            max_seconds,
            ends: true,
            ..RunArgs::default()
        }
    }

    fn advise(&self, folder: &Path) -> AdviseArgs {
        AdviseArgs {
            profiles: vec![folder.to_owned()],
            gpu: self.gpu.clone(),
            report: self.report.clone(),
            rules: self.analysis.rules.clone(),
            costs: self.analysis.costs.clone(),
            classes: self.analysis.classes.clone(),
            gates: self.gates.clone(),
            config: self.config.clone(),
            ..AdviseArgs::default()
        }
    }
}

pub(super) fn run(args: RunArgs, mut console: Console) -> CommandResult {
    let temporary = TemporaryFolder::new().map_err(|error| {
        Failure::Unusable(format!(
            "cannot make a temporary folder: {error}\n  name another place in TMPDIR"
        ))
    })?;
    let folder = match &args.keep {
        Some(folder) => empty_folder(folder)?,
        None => temporary.path().join("traces"),
    };
    let mut advise = args.advise(&folder);
    if advise.config.dump_config {
        return advise::run(advise, console);
    }
    advise::configure(&mut advise, &mut console)?;
    advise::check(&advise)?;
    let file = advise.report.output.as_deref();
    if args.against.is_none() {
        advise::format(&advise.report)?;
    }
    if let Some(last) = &args.against {
        if !last.exists() {
            return Err(Failure::Unusable(format!(
                "--against {}: there is no such file or folder",
                plain(&last.display().to_string())
            )));
        }
        if let Some(format) = advise.report.format.filter(|format| format.diff.is_none()) {
            let comparisons = formats::FORMATS
                .iter()
                .filter(|format| format.diff.is_some());
            let names: Vec<&str> = comparisons.map(|format| format.name).collect();
            return Err(Failure::Unusable(format!(
                "--against: a comparison cannot be written as {}\n  use {}",
                format.name,
                choice(&names)
            )));
        }
        advise::comparison_format(advise.report.format, file)?;
        advise::refuse_overwriting(last, file)?;
    }
    file.map_or(Ok(()), output::check_writable)?;
    let package = temporary.path().join("python");
    let prepared = std::fs::create_dir_all(&folder).and_then(|()| capture::unpack(&package));
    prepared.map_err(|error| output::cannot_write(&folder, error))?;

    let ended = record(&args, &folder, &package, console)?;
    let (status, why) = report(&args, advise, (&folder, &package), ended, console);
    if !console.quiet {
        output::complain(&format!("pyprof-advise: exit status {status}: {why}\n"));
    }
    match status {
        OK => Ok(()),
        status => Err(Failure::Status(status)),
    }
}

/// The folder of `--keep`; what is in it already could not be told from what is recorded.
fn empty_folder(folder: &Path) -> Result<PathBuf, Failure> {
    let has_files = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if has_files || folder.is_file() {
        return Err(Failure::Unusable(format!(
            "--keep {}: expected an empty or a new folder\n  name another one",
            plain(&folder.display().to_string())
        )));
    }
    // The program may change its working folder.
    std::path::absolute(folder)
        .map_err(|error| Failure::Unusable(format!("--keep {}: {error}", folder.display())))
}

/// Runs the program and shows how far the recording is.
pub(super) fn record(
    args: &RunArgs,
    folder: &Path,
    package: &Path,
    console: Console,
) -> Result<Ended, Failure> {
    let nsys = match args.with {
        Some(With::Nsys) => Some(NsysCommand::installed(folder).map_err(|error| {
            Failure::Unusable(format!(
                "--with nsys: cannot use nsys: {error}\n  install Nsight Systems and put `nsys` on the PATH"
            ))
        })?),
        None => None,
    };
    if args.host_profiler == Some(HostProfiler::PySpy) {
        capture::find_py_spy().map_err(|error| {
            Failure::Unusable(format!(
                "--host-profiler py-spy: cannot start `py-spy`: {error}\n  `pip install py-spy`, and put it on the PATH"
            ))
        })?;
    }
    let program = match args.host_profiler {
        Some(HostProfiler::Scalene) => under_scalene(&args.command, folder)?,
        _ => args.command.clone(),
    };
    let settings = Settings {
        folder,
        skip: args.skip,
        steps: args.steps,
        max_seconds: args.max_seconds,
        stack: args.stack,
        windows: match (args.with, args.host_profiler) {
            (Some(With::Nsys), _) => &["detailed"],
            (None, Some(HostProfiler::Cprofile)) => &["light", "detailed", "host"],
            (None, _) => &["light", "detailed"],
        },
        host_profiler: match args.host_profiler {
            Some(HostProfiler::PySpy) => Some("py-spy"),
            Some(HostProfiler::Scalene) => Some("scalene"),
            Some(HostProfiler::Cprofile) | None => None,
        },
        recorder: if nsys.is_some() {
            Recorder::Nsys
        } else {
            Recorder::Torch
        },
        names_operators: nsys.as_ref().is_some_and(|nsys| !nsys.names_operators),
        treatments: &[],
        seed: None,
        ends: args.ends,
    };
    let mut command = nsys.map_or_else(Vec::new, |nsys| nsys.command);
    if args.with.is_some() && !console.quiet {
        output::complain(&format!(
            "pyprof-advise: {} ...\n",
            plain(&command.join(" "))
        ));
    }
    command.extend(program);
    let name = args.command.first().map_or("", String::as_str);
    let refuse = |error: std::io::Error| Failure::Unusable(cannot_run(name, &error));
    let mut program = Program::start(&command, package, &settings).map_err(refuse)?;
    let _passed_on = PassedOn::to(program.id());
    let mut shown = None;
    let mut without_gpu = false;
    loop {
        if let Some(ended) = program.ended().map_err(refuse)? {
            return Ok(ended);
        }
        if !console.quiet {
            let states = States::read(folder);
            // `try` measures programs without a GPU too.
            if !args.ends && !without_gpu && states.steps_without_gpu() {
                console.warn(
                    "torch found no GPU: there will be no report; end the program with Ctrl-C, or let it go on \
                     without one",
                );
                without_gpu = true;
            }
            let progress = states.progress();
            if !without_gpu {
                show(&progress, shown.as_ref(), args.ends);
            }
            shown = Some(progress);
        }
        std::thread::sleep(POLL);
    }
}

/// Says that a program could not be started, and how a script is.
pub(super) fn cannot_run(name: &str, error: &std::io::Error) -> String {
    let name = plain(name);
    let hint = match name.ends_with(".py") {
        true => format!("\n  a script needs its interpreter: `-- python {name}`"),
        false => String::new(),
    };
    format!("cannot run `{name}`: {error}{hint}")
}

/// The command line that runs the program under Scalene.
fn under_scalene(program: &[String], folder: &Path) -> Result<Vec<String>, Failure> {
    let refuse = |why: &str| Failure::Unusable(format!("--host-profiler scalene: {why}"));
    let command = scalene::command(program, folder).ok_or_else(|| {
        refuse(
            "Scalene runs only `python SCRIPT ...` or `python -m MODULE ...`\n  \
             `--host-profiler py-spy` records any program",
        )
    })?;
    let python = command.first().map_or("", String::as_str);
    scalene::find(python).map_err(|error| {
        refuse(&format!(
            "{error}\n  `{} -m pip install scalene`",
            plain(python)
        ))
    })?;
    Ok(command)
}

/// Says what has changed since the last time. Plain lines: the program uses the terminal too.
fn show(now: &CaptureProgress, before: Option<&CaptureProgress>, ends: bool) {
    let is_recording = |progress: Option<&CaptureProgress>| {
        matches!(progress, Some(CaptureProgress::Recording { .. }))
    };
    let text = match now {
        CaptureProgress::WarmingUp if before == Some(&CaptureProgress::NotStarted) => {
            "waiting for steady steps".to_owned()
        }
        CaptureProgress::Recording { step, steps_are } if !is_recording(before) => {
            let what = steps_are.as_deref().unwrap_or("steps");
            format!("recording after step {step} ({})", plain(what))
        }
        CaptureProgress::Recorded if is_recording(before) && ends => "recorded".to_owned(),
        CaptureProgress::Recorded if is_recording(before) => {
            "recorded; the report follows when the program ends (Ctrl-C ends it now)".to_owned()
        }
        _ => return,
    };
    output::complain(&format!("pyprof-advise: {text}\n"));
}

/// Writes the comparison with an earlier run.
fn compare(args: &RunArgs, last: &Path, advise: &AdviseArgs, console: Console) -> CommandResult {
    let with = AnalyzeArgs {
        rules: advise.rules.clone(),
        costs: advise.costs.clone(),
        classes: advise.classes.clone(),
    };
    let before = advise::read_or_analyze(last, advise.gpu.as_ref(), &with, console)?;
    let mut after = advise::report_of(advise, console)?;
    after.program.clone_from(&advise.report.program);
    let compared = crate::compare::diff(&before, &after);
    let file = advise.report.output.as_deref();
    let format = advise::comparison_format(advise.report.format, file)?;
    output::write_or_print(file, &diff::text(&compared, format)?)?;
    args.gate.map_or(Ok(()), |gate| {
        gate.check("--gate", &compared, false, console)
    })
}

/// Writes the report; returns the exit status and the sentence that says where it comes from.
fn report(
    args: &RunArgs,
    mut advise: AdviseArgs,
    (folder, package): (&Path, &Path),
    ended: Ended,
    console: Console,
) -> (u8, String) {
    let states = States::read(folder);
    let exported = match args.with {
        Some(With::Nsys) => nsys::export(folder).map(drop),
        None => Ok(()),
    };
    if let Err(error) = exported {
        console.warn(&format!(
            "`nsys export` failed: {}",
            plain(&error.to_string())
        ));
    }
    for problem in states.host_problems() {
        console.warn(&format!("--host-profiler: {}", plain(problem)));
    }
    if args.host_profiler == Some(HostProfiler::Scalene) && !folder.join(scalene::FILE).is_file() {
        console.warn("--host-profiler: Scalene wrote no profile");
    }
    let recorded = capture::conclude(folder, &args.command, &states);
    let outcome = match recorded {
        // Not the recorder was missing.
        Ok(0) if ended.status != OK && states.has_no_torch(package) => Err(Failure::Unusable(
            "nothing was recorded: the program failed before it imported torch".to_owned(),
        )),
        Ok(0) => Err(Failure::Unusable(states.why_nothing(args.skip, package))),
        Ok(_) if states.has_no_gpu() => Err(Failure::Unusable(
            "nothing to analyze: torch found no GPU (`torch.cuda.is_available()` is false)\n  \
             run it where a GPU is; in a container, with `--gpus all`"
                .to_owned(),
        )),
        Ok(_) => {
            let from = if ended.status == OK {
                "report"
            } else {
                "program"
            };
            advise.report.program = Some(ProgramRun {
                status: ended.status,
                exit_status_from: from.to_owned(),
            });
            match &args.against {
                Some(last) => compare(args, last, &advise, console),
                None => advise::advise(&advise, console),
            }
        }
        Err(error) => Err(output::cannot_write(folder, error)),
    };
    if let Err(Failure::Unusable(text)) = &outcome {
        output::labeled("error", anstyle::AnsiColor::Red, text);
    }
    if ended.status != OK {
        let how = match ended.signal {
            Some(signal) => format!("the program was ended by signal {signal}"),
            None => "that of the program".to_owned(),
        };
        return (ended.status, how);
    }
    match outcome {
        Ok(()) => (OK, "the report was written".to_owned()),
        Err(Failure::GateFailed) => (GATE, "a gate failed".to_owned()),
        Err(Failure::Status(status)) => (status, "that of the report".to_owned()),
        Err(Failure::AlreadyReported | Failure::Unusable(_)) => {
            (UNUSABLE, "no report was written".to_owned())
        }
    }
}
