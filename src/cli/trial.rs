//! `pyprof-advise try`: applies advice to a program in fresh runs, and measures what it saves.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::args::{AnalyzeArgs, Console, ReportArgs, RuleArgs, diff_formats};
use super::output::{self, CommandResult, Failure};
use super::run::{RunArgs, record};
use super::signals::{SignalsDuringSeries, interrupted_by, is_interrupted};
use super::trial_runs::Runner;
use super::{advise, examples};
use crate::base::suggest::did_you_mean;
use crate::base::temporary::TemporaryFolder;
use crate::base::text::plain;
use crate::base::units::counted;
use crate::capture::{self, States};
use crate::formats::{Media, OutputFormat, RenderOptions};
use crate::report::{Report, to_json};
use crate::trial::{
    Candidate, Limits, NotTried, ProgramAbout, Treatment, Trial, best, built_in, html, mark,
    markdown, read_folder, series, summarize,
};

/// What `--help` says first.
pub(super) const ABOUT: &str = "Applies the advice that needs no edit to a program, one at a time and then the best together, in \
fresh runs that alternate with runs without, and measures the same steps of each. The result has the measured saving \
beside the estimate, whether the program still computes the same, and the lines to add for what helped. No file is \
changed. Each run ends when its steps are measured; whatever the program does until then, such as writing logs, it \
does in every run.";

/// Arguments of `try`.
#[derive(Debug, Clone, Args)]
#[command(after_help = examples::TRY)]
pub(super) struct TryArgs {
    /// Rules, patterns of rules such as `precision/*`, or treatments to try; by default those of the findings
    #[arg(value_name = "RULE")]
    names: Vec<String>,
    /// The program and its arguments, after `--`
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "list")]
    command: Vec<String>,
    /// List the treatments and the rules that they are for, and run nothing
    #[arg(long)]
    list: bool,
    /// Take findings from this profile or JSON report, instead of recording the program first
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// A folder with treatments of your own, in addition to the built-in ones; may be repeated
    #[arg(long, value_name = "DIR")]
    treatments: Vec<PathBuf>,
    /// Run the program this often without and with each treatment
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Skip this many steps of each run
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    skip: u32,
    /// Measure this many steps of each run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    steps: u32,
    /// End a run after this many seconds of measured steps, even if it has fewer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    max_seconds: u32,
    /// Start no run that would end after this many minutes
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    budget: Option<f64>,
    /// Run the program at most this often, not counting the recording
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_runs: Option<u32>,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format; without it the ending of the output file decides, else it is `markdown`
    #[arg(long, value_name = "FORMAT", value_parser = diff_formats())]
    format: Option<OutputFormat>,
    /// Write the report of the profile too, with the findings that were measured marked
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The GPU: a name from `gpus list` or a TOML file; by default the GPU that the program used
    #[arg(long, value_name = "NAME|FILE")]
    gpu: Option<String>,
    #[command(flatten)]
    rules: RuleArgs,
}

/// A positive number of minutes.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse::<f64>().ok();
    minutes
        .filter(|minutes| *minutes > 0.0 && *minutes < 1e6)
        .ok_or_else(|| format!("expected a number of minutes such as `20`, found `{text}`"))
}

pub(super) fn run(args: TryArgs, console: Console) -> CommandResult {
    let treatments = treatments(&args)?;
    if args.list {
        return output::print(&listing(&treatments));
    }
    check_names(&args.names, &treatments)?;
    let format = check_files(&args)?;
    let temporary = TemporaryFolder::new()
        .map_err(|error| Failure::Unusable(format!("cannot make a temporary folder: {error}")))?;
    let package = temporary.path().join("python");
    capture::unpack(&package).map_err(|error| output::cannot_write(&package, error))?;

    let mut report = findings(&args, &package, temporary.path(), console)?;
    let (candidates, not_tried) = choose(&args, treatments, report.as_ref());
    if candidates.is_empty() {
        return Err(nothing_to_try(&args, report.as_ref(), &not_tried));
    }
    let limits = Limits {
        rounds: args.rounds,
        max_runs: args.max_runs,
        budget: args
            .budget
            .map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
    };
    if !console.quiet {
        output::complain(&plan(&candidates, limits));
    }
    let mut runner = Runner::new(
        &args.command,
        &package,
        temporary.path(),
        (args.skip, args.steps, args.max_seconds),
        limits.budget,
        console,
    );
    let chosen: Vec<&Treatment> = candidates.iter().map(|c| &c.treatment).collect();
    let made = {
        let _series = SignalsDuringSeries::begin();
        series(&chosen, limits, &mut runner, best).map_err(Failure::Unusable)?
    };
    let about = ProgramAbout {
        command: args.command.clone(),
        versions: runner.versions(),
        gpu: runner.gpu(),
        profiled_gpu: report
            .as_ref()
            .and_then(|report| report.summary.gpu.clone()),
        skip: args.skip,
        steps: args.steps,
    };
    let trial = summarize(about, &candidates, &made, not_tried);
    let written = write(&args, format, &trial);
    match (&args.report, &mut report) {
        (Some(path), Some(report)) => written.and(write_report(path, report, &trial))?,
        (Some(_), None) => {
            written?;
            console.warn(
                "--report: there is no report, because there is no profile with work of a GPU",
            );
        }
        (None, _) => written?,
    }
    match interrupted_by() {
        // As shells do for a program that a signal has ended.
        Some(signal) => Err(Failure::Status(
            128_u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        )),
        None => Ok(()),
    }
}

/// The built-in treatments and those of the user, by name.
fn treatments(args: &TryArgs) -> Result<Vec<Treatment>, Failure> {
    let mut all = built_in().map_err(|complaints| output::refuse(&complaints))?;
    for folder in &args.treatments {
        for own in read_folder(folder).map_err(|complaints| output::refuse(&complaints))? {
            if all.iter().any(|other| other.name == own.name) {
                return Err(Failure::Unusable(format!(
                    "{}: there is another treatment called `{}`\n  rename the file",
                    own.file.display(),
                    plain(&own.name)
                )));
            }
            all.push(own);
        }
    }
    Ok(all)
}

fn listing(treatments: &[Treatment]) -> String {
    let mut text = String::new();
    for treatment in treatments {
        let rules = match treatment.rules.as_slice() {
            [] => "no rule: only where it is named".to_owned(),
            rules => rules.join(", "),
        };
        let _ = writeln!(
            text,
            "{}\n    {}\n    {rules}",
            plain(&treatment.name),
            plain(&treatment.title)
        );
    }
    text
}

fn check_names(names: &[String], treatments: &[Treatment]) -> CommandResult {
    for name in names {
        if !treatments.iter().any(|t| t.is_meant_by(name)) {
            let known = treatments.iter().map(|t| t.name.as_str());
            let rules = treatments
                .iter()
                .flat_map(|t| t.rules.iter().map(String::as_str));
            let near = did_you_mean(name, known.chain(rules));
            return Err(Failure::Unusable(format!(
                "nothing can be tried for `{}`{near}\n  `pyprof-advise try --list` names the treatments and their \
                 rules; the fix of other rules is an edit of the program",
                plain(name)
            )));
        }
    }
    Ok(())
}

/// The report that findings are taken from; `None` where the program used no GPU.
fn findings(
    args: &TryArgs,
    package: &Path,
    temporary: &Path,
    console: Console,
) -> Result<Option<Report>, Failure> {
    let with = AnalyzeArgs {
        rules: args.rules.clone(),
        ..AnalyzeArgs::default()
    };
    let report =
        |path: &Path| advise::read_or_analyze(path, args.gpu.as_ref(), &with, console).map(Some);
    if let Some(path) = &args.from {
        return report(path);
    }
    if !console.quiet {
        output::complain("pyprof-advise: recording the program, to take findings from\n");
    }
    let folder = temporary.join("traces");
    let cannot_write = |error| output::cannot_write(&folder, error);
    std::fs::create_dir_all(&folder).map_err(cannot_write)?;
    let run = RunArgs::for_findings(args.command.clone(), args.skip, args.max_seconds);
    let ended = record(&run, &folder, package, console)?;
    if is_interrupted() {
        return Err(Failure::Unusable(
            "interrupted while the program was recorded".to_owned(),
        ));
    }
    let states = States::read(&folder);
    let recorded = capture::conclude(&folder, &args.command, &states).map_err(cannot_write)?;
    if recorded == 0 {
        let status = match ended.status {
            0 => String::new(),
            status => format!("\n  the program ended with status {status}"),
        };
        let why = states.why_nothing(Some(args.skip), package);
        return Err(Failure::Unusable(format!("{why}{status}")));
    }
    if states.has_no_gpu() {
        if !args.names.is_empty() {
            console.warn("torch found no GPU, so there are no findings and no estimates");
        }
        return Ok(None);
    }
    report(&folder)
}

/// What is tried, the largest finding first, and what is not.
fn choose(
    args: &TryArgs,
    treatments: Vec<Treatment>,
    report: Option<&Report>,
) -> (Vec<Candidate>, Vec<NotTried>) {
    let mut not_tried = Vec::new();
    if let Some(report) = report.filter(|_| args.names.is_empty()) {
        for finding in &report.findings {
            if !treatments.iter().any(|t| t.rules.contains(&finding.rule)) {
                not_tried.push(NotTried {
                    name: format!("{} {}", finding.number, finding.title),
                    is_finding: true,
                    why: "its fix is an edit of the program".to_owned(),
                });
            }
        }
    }
    let candidates = treatments.into_iter().map(|t| Candidate::of(t, report));
    let mut chosen: Vec<Candidate> = candidates
        .filter(|candidate| match args.names.is_empty() {
            true => candidate.findings.iter().any(|finding| finding.number > 0),
            false => args
                .names
                .iter()
                .any(|name| candidate.treatment.is_meant_by(name)),
        })
        .collect();
    chosen.retain(|candidate| match set_already(&candidate.treatment) {
        Some(variable) => {
            not_tried.push(NotTried {
                name: candidate.treatment.name.clone(),
                is_finding: false,
                why: format!("the environment sets {variable} already"),
            });
            false
        }
        None => true,
    });
    let first = |candidate: &Candidate| {
        let numbers = candidate.findings.iter().map(|finding| finding.number);
        numbers
            .filter(|number| *number > 0)
            .min()
            .unwrap_or(u64::MAX)
    };
    chosen.sort_by_key(first);
    (chosen, not_tried)
}

/// A variable of a treatment that the user has set. Its value is not looked at.
fn set_already(treatment: &Treatment) -> Option<&str> {
    let mut variables = treatment.environment.keys().map(String::as_str);
    variables.find(|variable| std::env::var_os(variable).is_some())
}

fn nothing_to_try(args: &TryArgs, report: Option<&Report>, not_tried: &[NotTried]) -> Failure {
    let why = match (report, args.names.is_empty()) {
        (None, true) => "torch found no GPU, so there are no findings to try\n  \
                         name what to try: `pyprof-advise try fused-optimizer -- python train.py`"
            .to_owned(),
        (_, true) => {
            "the fix of every finding is an edit of the program\n  `pyprof-advise try --list` names what can be tried"
                .to_owned()
        }
        (_, false) => {
            let reasons: Vec<String> = not_tried
                .iter()
                .map(|n| format!("{}: {}", plain(&n.name), plain(&n.why)))
                .collect();
            reasons.join("\n  ")
        }
    };
    Failure::Unusable(format!("nothing to try: {why}"))
}

fn plan(candidates: &[Candidate], limits: Limits) -> String {
    let names: Vec<&str> = candidates
        .iter()
        .map(|c| c.treatment.name.as_str())
        .collect();
    let runs = u64::from(limits.rounds) * (candidates.len() as u64 + 1) + 1;
    format!(
        "pyprof-advise: trying {} in {}, then the best together (Ctrl-C ends with what was measured)\n",
        plain(&names.join(", ")),
        counted(runs, "run")
    )
}

/// Finds mistakes in the files to write, before the program is started; returns the format of the result.
fn check_files(args: &TryArgs) -> Result<OutputFormat, Failure> {
    let format = advise::comparison_format(args.format, args.output.as_deref())?;
    if let Some(report) = &args.report {
        report_format(report)?;
        if args.output.as_ref() == Some(report) {
            return Err(Failure::Unusable(format!(
                "--report {}: --output writes the same file\n  name another one",
                report.display()
            )));
        }
    }
    for path in [&args.output, &args.report].into_iter().flatten() {
        if let Some(from) = &args.from {
            advise::refuse_overwriting(from, Some(path))?;
        }
        output::check_writable(path)?;
    }
    Ok(format)
}

/// The format that the ending of `--report` names.
fn report_format(path: &Path) -> Result<OutputFormat, Failure> {
    advise::format(&ReportArgs {
        output: Some(path.to_owned()),
        ..ReportArgs::default()
    })
}

fn write(args: &TryArgs, format: OutputFormat, trial: &Trial) -> CommandResult {
    let text = match format.media {
        Media::Json => to_json(trial),
        Media::Html => html(trial)?,
        // Formats without comparisons are refused before.
        Media::Markdown | Media::Terminal | Media::Sarif | Media::WorkflowCommands => {
            markdown(trial)?
        }
    };
    output::write_or_print(args.output.as_deref(), &text)
}

fn write_report(path: &Path, report: &mut Report, trial: &Trial) -> CommandResult {
    mark(report, trial);
    let format = report_format(path)?;
    let text = (format.report)(report, &RenderOptions::default())?;
    output::write_or_print(Some(path), &text)
}
