//! Floor 8: the command line. One file per command; this one holds the arguments, the way to speak
//! to a person (errors, warnings, progress), and the exit status.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::Error;
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
mod rules;
mod scrub;
mod signals;

pub use advise::advise;
#[cfg(fuzzing)]
pub(crate) use config::round_trip as configuration;
pub use exit_gates::FailOn;

/// Findings shown in full.
const DEFAULT_TOP: usize = 10;
/// Exit status: a report was written.
const OK: u8 = 0;
/// Exit status: a gate failed (`--fail-on`, `check` and `test` of rules and costs).
const GATE: u8 = 1;
/// Exit status: nothing could be judged, or the command line was wrong.
const UNUSABLE: u8 = 2;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// A gate failed, or checked files have mistakes: exit status 1. The reason was printed already.
    GateFailed,
    /// The command could not run: exit status 2. The reason was printed already.
    AlreadyReported,
    /// The command could not run: exit status 2, with what was expected and what to do.
    Unusable(String),
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

/// What a command ends with.
pub type Outcome = Result<(), Failure>;

#[derive(Debug, Parser)]
#[command(
    name = "pyprof-advise",
    version,
    about = "Advice from GPU profiles of PyTorch programs: what to change, in what order, and why",
    long_about = "Reads a GPU profile of a PyTorch program, works out what every kernel was for and how long it \
should have taken, runs a set of rules over it, and writes prioritised advice per layer as Markdown.",
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
    speech: Speech,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List, explain, check, test and write rules
    #[command(after_help = examples::RULES)]
    Rules {
        #[command(subcommand)]
        command: rules::RulesCommand,
    },
    /// List, explain, check and test what operators cost, your own included
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
    /// Compare a profile with the one before a change
    Diff(diff::DiffArgs),
    /// Put the JSON reports of several ranks together
    Merge(merge::MergeArgs),
    /// Write the work of all ranks as one table, for DuckDB, Spark, polars or a spreadsheet
    #[command(
        long_about = "Writes one row per rank, layer, operator, direction and shapes: what the work is, how \
long it took, what it should take. Nothing is added up over ranks, so an engine that reads CSV (DuckDB, Spark, \
polars) can compare them as you like. docs/clusters.md has examples."
    )]
    Export(export::ExportArgs),
    /// Write one dictionary per kernel, as PyProf's `parse` does
    Parse(parse::ParseArgs),
    /// Write one row of columns per kernel, as PyProf's `prof` does
    Prof(prof::ProfArgs),
    /// Print the JSON Schema of an output or of the configuration
    #[command(after_help = examples::SCHEMA)]
    Schema {
        /// Of what; `rules schema` has those of rules, costs and GPUs
        what: Schema,
    },
    /// Make a copy of a profile that is safe to attach: no variables, tokens, names, home folders
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
        /// The command it is about: `rules list`; without it the program itself
        command: Vec<String>,
    },
}

/// Everything `advise` (the command without a name) can be told.
#[derive(Debug, Clone, Args)]
pub struct AdviseArgs {
    /// The profile: a torch.profiler trace, an Nsight Systems SQLite export or an nvprof database.
    /// Several, or a folder of them, are the ranks of one job
    #[arg(value_name = "PROFILE", required_unless_present = "dump_config")]
    pub profiles: Vec<PathBuf>,
    /// The GPU: a name from `gpus list` (v100, a100, h100, 4090, ...) or a TOML file of your own;
    /// without it the one the profile names
    #[arg(long, value_name = "NAME|FILE")]
    pub gpu: Option<String>,
    #[command(flatten)]
    pub report: ReportArgs,
    #[command(flatten)]
    pub rules: RuleArgs,
    /// FLOPs and bytes of your own operators, a TOML file (`costs explain` shows how one counts); may
    /// be repeated
    #[arg(long, value_name = "FILE")]
    pub costs: Vec<PathBuf>,
    /// Say why a rule fired or did not on this profile, instead of the report
    #[arg(long, value_name = "RULE")]
    pub why: Option<String>,
    #[command(flatten)]
    pub gates: GateArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// What a report is held to.
#[derive(Debug, Clone, Default, Args)]
pub struct GateArgs {
    /// Exit with status 1, once the report is written, when it has a finding of this severity or
    /// above (`note`, `warning`, `error`), or gives back so much (`saving=5%`); several with commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub fail_on: Vec<FailOn>,
    /// Show and count only what this report does not have: one written with `--format json`
    #[arg(long, value_name = "REPORT")]
    pub baseline: Option<PathBuf>,
    /// Findings the configuration asks not to show.
    #[arg(skip)]
    pub suppressions: Vec<Suppression>,
}

/// Where options come from besides the command line.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// Take options from this TOML file; those of the command line win. Without it none is read
    #[arg(long, value_name = "FILE", env = config::VARIABLE, hide_env_values = true, value_parser = config::path())]
    pub config: Option<PathBuf>,
    /// Print the options in force as such a file, instead of a report
    #[arg(long)]
    pub dump_config: bool,
}

/// Where a report goes, and in which shape.
#[derive(Debug, Clone, Default, Args)]
pub struct ReportArgs {
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Output format; without it the ending of the output file decides, else it is `text` on a
    /// terminal and `markdown` elsewhere
    #[arg(long, value_name = "FORMAT", value_parser = output::report_formats())]
    pub format: Option<OutputFormat>,
    /// Markdown of at most so many characters: what pays least is left out, and the report says how
    /// much
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(500..))]
    pub max_chars: Option<u32>,
    /// Markdown that fits a comment on GitHub: `--max-chars 65000`
    #[arg(long, conflicts_with = "max_chars")]
    pub for_pr: bool,
    /// Render the report with a minijinja template of your own
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub template: Option<PathBuf>,
    /// Findings shown in full; the rest is folded [default: 10]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

impl ReportArgs {
    /// Findings shown in full.
    pub fn top(&self) -> usize {
        self.top.unwrap_or(DEFAULT_TOP)
    }
}

/// Which rules run, and with which settings.
#[derive(Debug, Clone, Default, Args)]
pub struct RuleArgs {
    /// A rule file or a folder of them, besides the built-in ones; may be repeated
    #[arg(long = "rules", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Run only these rules: ids, categories or patterns such as `precision/*`
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub select: Vec<String>,
    /// Do not run these rules: ids, categories or patterns
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// Set a threshold: `precision/amp-off.min_share=0.1`; may be repeated
    #[arg(long, value_name = "RULE.PARAM=VALUE")]
    pub set: Vec<String>,
}

/// How to speak to the person at the terminal.
#[derive(Debug, Clone, Copy, Args)]
pub struct Speech {
    /// No progress and no warnings
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// More: which finding silenced which, and every test of `rules test` and `costs test`
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Colours [default: auto]
    #[arg(long, global = true, value_name = "WHEN")]
    pub color: Option<Color>,
}

/// Outputs with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Schema {
    /// `--format json`
    Report,
    /// `diff --format json`
    Diff,
    /// `--config FILE`
    Config,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Speech {
    fn color(self) -> Color {
        self.color.unwrap_or(Color::Auto)
    }

    /// A warning on standard error: plain words, escaped by the caller where they hold profile text.
    pub fn warn(self, text: &str) {
        if !self.quiet {
            output::labelled("warning", anstyle::AnsiColor::Yellow, text);
        }
    }

    /// A remark for those who asked for more.
    pub fn remark(self, text: &str) {
        if self.verbose {
            output::labelled("note", anstyle::AnsiColor::Cyan, text);
        }
    }
}

/// Parses the arguments, runs the command, and turns its outcome into the exit status.
pub fn main() -> ExitCode {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { UNUSABLE } else { OK });
        }
    };
    signals::install();
    output::set_color(cli.speech.color());
    let outcome = refuse_strays(&matches).and_then(|()| run(cli));
    match outcome {
        Ok(()) => ExitCode::from(OK),
        Err(Failure::GateFailed) => ExitCode::from(GATE),
        Err(Failure::AlreadyReported) => ExitCode::from(UNUSABLE),
        Err(Failure::Unusable(text)) => {
            output::labelled("error", anstyle::AnsiColor::Red, &text);
            ExitCode::from(UNUSABLE)
        }
    }
}

fn run(cli: Cli) -> Outcome {
    let speech = cli.speech;
    match cli.command {
        None => {
            refuse_commands(&cli.advise.profiles)?;
            advise::run(cli.advise, speech)
        }
        Some(Command::Rules { command }) => rules::run(command, speech),
        Some(Command::Costs { command }) => costs::run(command, speech),
        Some(Command::Gpus { command }) => gpus::run(command),
        Some(Command::Diff(args)) => diff::diff(&args, speech),
        Some(Command::Merge(args)) => merge::merge(args, speech),
        Some(Command::Export(args)) => export::export(args, speech),
        Some(Command::Parse(args)) => parse::parse(&args, speech),
        Some(Command::Prof(args)) => prof::prof(&args, speech),
        Some(Command::Schema { what }) => match what {
            Schema::Report => output::print(crate::report::SCHEMA),
            Schema::Diff => output::print(crate::compare::diff::SCHEMA),
            Schema::Config => output::print(&config::schema()),
        },
        Some(Command::Scrub(args)) => scrub::scrub(&args, speech),
        Some(Command::Completions { shell }) => completions(shell),
        Some(Command::Man { command }) => man::man(&command),
    }
}

/// In front of a command only the options of all commands mean something; the others would be
/// dropped without a word.
fn refuse_strays(matches: &ArgMatches) -> Outcome {
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
            "`--{option}` stands in front of the command `{name}`\n  options of a command stand behind \
             it; `pyprof-advise {name} --help` lists them"
        ))),
        Some(None) => Err(behind_a_profile(name)),
        None => Ok(()),
    }
}

fn behind_a_profile(name: &str) -> Failure {
    Failure::Unusable(format!(
        "unexpected command `{name}` behind a profile\n  a command stands first: `pyprof-advise {name} ...`"
    ))
}

/// Behind a profile a command's name is one more file. Where there is no such file, the command was
/// meant.
fn refuse_commands(profiles: &[PathBuf]) -> Outcome {
    let command = Cli::command();
    let names: Vec<&str> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let meant = profiles
        .iter()
        .filter_map(|path| path.to_str())
        .find(|name| names.contains(name) && !std::path::Path::new(name).exists());
    meant.map_or(Ok(()), |name| Err(behind_a_profile(name)))
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pyprof-advise", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
