//! Floor 9: the command line, one file per command. This file defines the arguments, prints errors and
//! warnings, and sets the exit status.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::Error;
use crate::base::words::words;
use crate::compare::Suppression;
use crate::formats::OutputFormat;
use crate::gpu::select::SelectError;

mod advise;
mod config;
mod costs;
mod diff;
mod examples;
mod exit_gates;
mod export;
mod gpus;
mod man;
mod merge;
mod multi_rank;
mod output;
mod parse;
mod prof;
mod progress;
mod repro;
mod rules;
mod run;
mod scrub;
mod show;
mod signals;
mod source;
mod trial;
mod trial_runs;

pub(crate) use advise::advise;
#[cfg(fuzzing)]
pub(crate) use config::round_trip as configuration;
pub(crate) use exit_gates::FailOn;

/// Findings shown in full.
const DEFAULT_TOP: usize = 10;
/// Exit status: a report was written.
const OK: u8 = 0;
/// Exit status: a gate failed (`--fail-on`, `check` and `test` of rules and costs).
const GATE: u8 = 1;
/// Exit status: nothing could be analyzed, or the command line was wrong.
const UNUSABLE: u8 = 2;

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
                output::refuse(&complaints)
            }
            error => Failure::Unusable(error.to_string()),
        }
    }
}

/// The result of a command.
pub(crate) type CommandResult = Result<(), Failure>;

#[derive(Debug, Parser)]
#[command(
    name = "pyprof-advise",
    version,
    about = "Advice from GPU profiles of PyTorch programs: what to change, in what order, and why",
    long_about = "Reads a GPU profile of a PyTorch program and reports what to change, in what order, how much time \
that should save, and why.",
    after_help = examples::ADVISE,
    override_usage = "pyprof-advise [OPTIONS] <PROFILE>...\n       pyprof-advise <COMMAND>",
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    advise: AdviseArgs,
    #[command(flatten)]
    console: Console,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List, explain, check, test and write rules
    #[command(after_help = examples::RULES)]
    Rules {
        #[command(subcommand)]
        command: rules::RulesCommand,
    },
    /// List, explain, check and test the costs of operators, your own included
    #[command(after_help = examples::COSTS)]
    Costs {
        #[command(subcommand)]
        command: costs::CostsCommand,
    },
    /// List and show the GPUs that --gpu knows
    #[command(after_help = examples::GPUS)]
    Gpus {
        #[command(subcommand)]
        command: gpus::GpusCommand,
    },
    /// Run a program, record some of its steps, and report on them
    #[command(long_about = run::ABOUT)]
    Run(Box<run::RunArgs>),
    /// Apply the advice that needs no edit, in fresh runs of a program, and measure what it saves
    #[command(long_about = trial::ABOUT)]
    Try(trial::TryArgs),
    /// Write a Python script that times the operators of a finding before and after its fix
    #[command(long_about = repro::ABOUT)]
    Repro(repro::ReproArgs),
    /// Compare the profiles before and after a change
    #[command(long_about = diff::ABOUT)]
    Diff(diff::DiffArgs),
    /// Merge the JSON reports of several ranks
    Merge(merge::MergeArgs),
    /// Write a report kept with `--format json` again, in any format
    Show(show::ShowArgs),
    /// Write the work of all ranks as one table, for DuckDB, Spark, polars or a spreadsheet
    #[command(
        long_about = "Writes one row per rank, layer, operator, direction and shapes: what the work is, how \
long it took, and how long it should take. Ranks are not summed up, so an engine that reads CSV (DuckDB, Spark, \
polars) can compare them. docs/clusters.md has examples."
    )]
    Export(export::ExportArgs),
    /// Write one dictionary per kernel, as PyProf's `parse` does
    Parse(parse::ParseArgs),
    /// Write one row of columns per kernel, as PyProf's `prof` does
    Prof(prof::ProfArgs),
    /// Print the JSON Schema of an output or of the configuration
    #[command(after_help = examples::SCHEMA)]
    Schema {
        /// Which schema; `rules schema` prints those of rules, costs and GPUs
        what: Schema,
    },
    /// Copy a profile without private data: no environment variables, tokens, names, home folders
    #[command(long_about = scrub::ABOUT)]
    Scrub(scrub::ScrubArgs),
    /// Write a shell completion script to standard output
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page to standard output
    #[command(after_help = examples::MAN)]
    Man {
        /// The command, such as `rules list`; by default the program itself
        command: Vec<String>,
    },
}

/// Arguments of the command without a name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AdviseArgs {
    /// A profile: a torch.profiler trace, an Nsight Systems SQLite export or an nvprof database.
    /// Several profiles, or a folder, are the ranks of one job
    #[arg(value_name = "PROFILE", required_unless_present = "dump_config")]
    pub(crate) profiles: Vec<PathBuf>,
    /// The GPU: a name from `gpus list` (v100, a100, h100, 4090, ...) or a TOML file; by default the
    /// GPU that the profile names
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) gpu: Option<String>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// A TOML file with FLOPs and bytes of your own operators (`costs explain` shows how they are
    /// counted); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Vec<PathBuf>,
    /// A TOML file that says what functions of your own or of other libraries do on the host: augmenting,
    /// logging, ... (`rules schema classes`); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) classes: Vec<PathBuf>,
    /// A profile of the host from another profiler, whose longest lines the report lists: cProfile,
    /// line_profiler, py-spy, Scalene and others, recognized by content; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) host: Vec<PathBuf>,
    /// A recording of the same model without CUDA graphs, with any batch size: kernels that graphs replay get
    /// the operators and layers of its kernels, and their time is compared with that of reading the weights
    #[arg(long, value_name = "PROFILE")]
    pub(crate) eager_trace: Option<PathBuf>,
    /// Explain why a rule fired or did not fire, instead of writing the report
    #[arg(
        long,
        value_name = "RULE",
        conflicts_with_all = ["format", "template", "for_pr", "max_chars", "fail_on", "dump_config"]
    )]
    pub(crate) why: Option<String>,
    #[command(flatten)]
    pub(crate) gates: GateArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Conditions under which the exit status is 1, and findings to hide.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct GateArgs {
    /// After writing the report, exit with status 1 when it has a finding of this severity or above
    /// (`note`, `warning`, `error`), or when the estimated saving reaches a threshold (`saving=5%`);
    /// several with commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// Show only findings that this report, written with `--format json`, does not have
    #[arg(long, value_name = "REPORT")]
    pub(crate) baseline: Option<PathBuf>,
    /// Findings that the configuration hides.
    #[arg(skip)]
    pub(crate) suppressions: Vec<Suppression>,
}

/// Where options come from, other than the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Read options from this TOML file; command-line options take precedence. No configuration file
    /// is loaded unless you name one
    #[arg(long, value_name = "FILE", env = config::VARIABLE, hide_env_values = true, value_parser = config::path())]
    pub(crate) config: Option<PathBuf>,
    /// Print the effective options as a configuration file, instead of a report
    #[arg(long)]
    pub(crate) dump_config: bool,
}

/// Where and in which format a report is written.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct ReportArgs {
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Output format; without it the ending of the output file decides, else it is `text` on a
    /// terminal and `markdown` elsewhere
    #[arg(long, value_name = "FORMAT", value_parser = output::report_formats())]
    pub(crate) format: Option<OutputFormat>,
    /// Markdown of at most N characters: the lowest-value findings are dropped first; the report
    /// says how many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(500..))]
    pub(crate) max_chars: Option<u32>,
    /// Markdown that fits a GitHub comment: `--max-chars 65000`
    #[arg(long, conflicts_with = "max_chars")]
    pub(crate) for_pr: bool,
    /// Render the report with your own minijinja template
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(crate) template: Option<PathBuf>,
    /// Number of findings shown in full; the others are folded [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Quote the code around the source lines of findings, from `.py` files of this folder only
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// How the program ended that `run` has recorded.
    #[arg(skip)]
    pub(crate) program: Option<crate::report::ProgramRun>,
}

impl ReportArgs {
    /// Findings shown in full.
    pub(crate) fn top(&self) -> usize {
        self.top_or(DEFAULT_TOP)
    }

    /// Findings shown in full; `other` if the option is not given.
    pub(crate) fn top_or(&self, other: usize) -> usize {
        /// More than any report has; larger numbers do not fit everywhere.
        const MOST: usize = u32::MAX as usize;
        self.top.unwrap_or(other).min(MOST)
    }
}

/// Which rules are evaluated, and with which parameters.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct RuleArgs {
    /// A rule file or a folder of rule files, in addition to the built-in rules; may be repeated
    #[arg(long = "rules", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Evaluate only these rules: ids, categories or patterns such as `precision/*`
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub(crate) select: Vec<String>,
    /// Do not evaluate these rules: ids, categories or patterns
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,
    /// Set a parameter of a rule: `precision/amp-off.min_share=0.1`; may be repeated
    #[arg(long, value_name = "RULE.PARAM=VALUE")]
    pub(crate) set: Vec<String>,
}

/// What profiles are analyzed with besides the GPU, where the report is not what is written.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AnalyzeArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// A TOML file with FLOPs and bytes of your own operators; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Vec<PathBuf>,
    /// A TOML file that says what functions do on the host (`rules schema classes`); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) classes: Vec<PathBuf>,
}

/// What is printed to the terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub(crate) struct Console {
    /// Print no progress and no warnings
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more: the time of each stage, findings that others replace, and every test of
    /// `rules test` and `costs test`
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use color [default: auto]
    #[arg(long, global = true, value_name = "WHEN")]
    pub(crate) color: Option<Color>,
}

/// Outputs with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Schema {
    /// `--format json`
    Report,
    /// `diff --format json`
    Diff,
    /// `diff --format json` of three profiles or more
    Trend,
    /// `try --format json`
    Try,
    /// `--config FILE`
    Config,
}

words! {
    /// When to use color.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub(crate) enum Color with fn word {
        /// On a terminal, unless NO_COLOR is set
        Auto = "auto",
        /// Always
        Always = "always",
        /// Never
        Never = "never",
    }
}

impl Console {
    fn color(self) -> Color {
        self.color.unwrap_or(Color::Auto)
    }

    /// Prints a warning, unless `--quiet`. The caller escapes text from profiles.
    pub(crate) fn warn(self, text: &str) {
        if !self.quiet {
            output::labeled("warning", anstyle::AnsiColor::Yellow, text);
        }
    }

    /// Prints a note, with `--verbose`.
    pub(crate) fn note(self, text: &str) {
        if self.verbose {
            output::labeled("note", anstyle::AnsiColor::Cyan, text);
        }
    }
}

/// Parses the arguments, runs the command, and turns its outcome into the exit status.
pub fn main() -> ExitCode {
    if std::env::args_os().len() <= 1 {
        output::complain(examples::WELCOME);
        return ExitCode::from(UNUSABLE);
    }
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help that could not be written was not given.
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            let failed = error.use_stderr() || printed.is_err();
            return ExitCode::from(if failed { UNUSABLE } else { OK });
        }
    };
    signals::install();
    output::set_color(cli.console.color());
    let outcome = start_threads()
        .and_then(|()| refuse_misplaced_options(&matches))
        .and_then(|()| run(cli));
    match outcome {
        Ok(()) => ExitCode::from(OK),
        Err(Failure::GateFailed) => ExitCode::from(GATE),
        Err(Failure::AlreadyReported) => ExitCode::from(UNUSABLE),
        Err(Failure::Status(status)) => ExitCode::from(status),
        Err(Failure::Unusable(text)) => {
            output::labeled("error", anstyle::AnsiColor::Red, &text);
            ExitCode::from(UNUSABLE)
        }
    }
}

/// More threads take a fifth less time at best, but each keeps memory that it has freed: with 16, a profile of a
/// million kernels needs half as much again (docs/performance.md).
const MOST_THREADS: usize = 4;

/// Starts the threads that share the work: as many as rayon would (`RAYON_NUM_THREADS`, else the processors), at most
/// [`MOST_THREADS`], fewer where that many are not allowed, none but this one where none is.
fn start_threads() -> CommandResult {
    use rayon::{ThreadBuilder, ThreadPoolBuilder};
    use std::sync::mpsc::{Sender, channel};
    enough_memory()?;
    let refused = |error: &dyn std::fmt::Display| {
        Failure::Unusable(format!(
            "no thread could be started ({error})\n  allow more processes (`ulimit -u`) or more memory \
             (`ulimit -v`)"
        ))
    };
    // After a thread that could not be started, rayon never starts any. So they are started before, and wait.
    let counted = ThreadPoolBuilder::new().spawn_handler(|_| Ok(())).build();
    let wanted = counted.map_or(1, |pool| pool.current_num_threads().min(MOST_THREADS));
    let start = |_| -> Option<(Sender<ThreadBuilder>, std::thread::JoinHandle<()>)> {
        let (give, take) = channel::<ThreadBuilder>();
        let work = move || take.into_iter().for_each(ThreadBuilder::run);
        let started = std::thread::Builder::new().spawn(work);
        started.ok().map(|thread| (give, thread))
    };
    // One more, because the readers start threads too: where they could not, half of them must do.
    let mut waiting: Vec<_> = (0..=wanted).map_while(start).collect();
    let kept = match waiting.len() > wanted {
        true => wanted,
        false => waiting.len() / 2,
    };
    for (give, thread) in waiting.split_off(kept) {
        drop(give);
        let _ = thread.join();
    }
    let pool = match waiting.len() {
        0 => ThreadPoolBuilder::new().num_threads(1).use_current_thread(),
        some => ThreadPoolBuilder::new().num_threads(some),
    };
    let mut waiting = waiting.into_iter();
    let pool = pool.spawn_handler(|thread| {
        let given = waiting.next().map(|(give, _)| give.send(thread));
        match given {
            Some(Ok(())) => Ok(()),
            _ => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    });
    pool.build_global().map_err(|error| refused(&error))
}

/// Memory of the smallest profile, in bytes.
const LEAST_MEMORY: u64 = 256 << 20;

/// The memory that the system allows this program, in bytes, if it limits it.
#[cfg(unix)]
fn allowed_memory() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

#[cfg(not(unix))]
fn allowed_memory() -> Option<u64> {
    None
}

/// Reports an error where less memory is allowed than the program takes for the smallest profile: it would
/// end in the middle.
fn enough_memory() -> CommandResult {
    match allowed_memory() {
        Some(bytes) if bytes < LEAST_MEMORY => Err(Failure::Unusable(format!(
            "at most {} MiB of memory are allowed, {} MiB are needed\n  allow more (`ulimit -v`)",
            bytes >> 20,
            LEAST_MEMORY >> 20
        ))),
        _ => Ok(()),
    }
}

/// Warns where a file may take more memory than is allowed: a million kernels take about the size of their
/// file. Without memory the program ends in the middle.
fn warn_of_memory(files: &[PathBuf], console: Console) {
    let sizes = files
        .iter()
        .filter_map(|file| Some(file.metadata().ok()?.len()));
    let largest = sizes.max().unwrap_or(0);
    let allowed = allowed_memory().filter(|bytes| *bytes < LEAST_MEMORY.saturating_add(largest));
    if let Some(bytes) = allowed {
        console.warn(&format!(
            "at most {} MiB of memory are allowed (`ulimit -v`); a profile of {} MiB may need more",
            bytes >> 20,
            largest >> 20
        ));
    }
}

fn run(cli: Cli) -> CommandResult {
    let console = cli.console;
    match cli.command {
        None => {
            refuse_commands(&cli.advise.profiles)?;
            advise::run(cli.advise, console)
        }
        Some(Command::Rules { command }) => rules::run(command, console),
        Some(Command::Costs { command }) => costs::run(command, console),
        Some(Command::Gpus { command }) => gpus::run(command),
        Some(Command::Run(args)) => run::run(*args, console),
        Some(Command::Try(args)) => trial::run(args, console),
        Some(Command::Repro(args)) => repro::repro(&args, console),
        Some(Command::Diff(args)) => diff::diff(&args, console),
        Some(Command::Merge(args)) => merge::merge(args, console),
        Some(Command::Show(args)) => show::show(args, console),
        Some(Command::Export(args)) => export::export(args, console),
        Some(Command::Parse(args)) => parse::parse(&args, console),
        Some(Command::Prof(args)) => prof::prof(&args, console),
        Some(Command::Schema { what }) => match what {
            Schema::Report => output::print(crate::report::SCHEMA),
            Schema::Diff => output::print(crate::compare::diff::SCHEMA),
            Schema::Trend => output::print(crate::compare::diff::TREND_SCHEMA),
            Schema::Try => output::print(crate::trial::SCHEMA),
            Schema::Config => output::print(&config::schema()),
        },
        Some(Command::Scrub(args)) => scrub::scrub(&args, console),
        Some(Command::Completions { shell }) => completions(shell),
        Some(Command::Man { command }) => man::man(&command),
    }
}

/// Reports an error for options and profiles before a command: only global options apply there, and the
/// others would be ignored.
fn refuse_misplaced_options(matches: &ArgMatches) -> CommandResult {
    let Some(name) = matches.subcommand_name() else {
        return Ok(());
    };
    let program = Cli::command();
    let own = program.get_arguments().filter(|arg| !arg.is_global_set());
    let mut given = own.filter(|arg| {
        matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    });
    match given.next().map(|arg| arg.get_long()) {
        Some(Some(option)) => Err(Failure::Unusable(format!(
            "`--{option}` is before the command `{name}`\n  put options after the command; \
             `pyprof-advise {name} --help` lists them"
        ))),
        Some(None) => Err(command_after_profile(name)),
        None => Ok(()),
    }
}

fn command_after_profile(name: &str) -> Failure {
    Failure::Unusable(format!(
        "unexpected command `{name}` after a profile\n  the command comes first: `pyprof-advise {name} ...`"
    ))
}

/// Reports an error for a command's name in place of a profile, and for a first word that is likely meant as
/// a command, unless a file has that name.
fn refuse_commands(profiles: &[PathBuf]) -> CommandResult {
    let command = Cli::command();
    let names: Vec<&str> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let meant = profiles
        .iter()
        .filter_map(|path| path.to_str())
        .find(|name| names.contains(name) && !std::path::Path::new(name).exists());
    if let Some(name) = meant {
        return Err(command_after_profile(name));
    }
    let first = profiles.first().filter(|path| !path.exists());
    let Some(word) = first.and_then(|path| path.to_str()) else {
        return Ok(());
    };
    let without_command = [
        "report", "advise", "advice", "analyze", "analyse", "profile",
    ];
    if without_command.contains(&word) {
        return Err(Failure::Unusable(format!(
            "there is no command `{word}`, and no such file\n  a report needs no command: \
             `pyprof-advise net.sqlite` prints it, `pyprof-advise net.sqlite -o report.html` writes a page"
        )));
    }
    match crate::base::suggest::nearest(word, names) {
        Some(near) => Err(Failure::Unusable(format!(
            "there is no command `{}`, and no such file; did you mean `{near}`?",
            crate::base::text::plain(word)
        ))),
        None => Ok(()),
    }
}

fn completions(shell: clap_complete::Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pyprof-advise", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
