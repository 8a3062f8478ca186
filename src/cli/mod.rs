//! Floor 8: the command line. One file per command; this one holds the arguments, the way to speak
//! to a person (errors, warnings, progress), and the exit status.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

mod advise;
mod costs;
mod diff;
mod gpus;
mod job;
mod merge;
mod output;
mod parse;
mod prof;
mod progress;
mod rules;
mod scrub;

pub use advise::advise;

/// Exit status: a report was written.
const OK: u8 = 0;
/// Exit status: a gate failed (`check` and `test` of rules and costs).
const GATE: u8 = 1;
/// Exit status: nothing could be judged, or the command line was wrong.
const UNUSABLE: u8 = 2;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// Something was checked and found wrong: exit status 1. The text was printed already.
    Gate,
    /// Nothing could be done: exit status 2. What was expected and what to do was printed already.
    Told,
    /// Nothing could be done: exit status 2, with what was expected and what to do.
    Unusable(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Unusable(error.to_string())
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
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
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

const EXAMPLES: &str = "\
Examples:
  pyprof-advise net.sqlite                          advice, with the GPU the profile names
  pyprof-advise net.sqlite --for-pr -o pr.md        into a file that fits a pull request
  pyprof-advise net.sqlite --format html -o a.html  a page with charts and a table of all work
  pyprof-advise net.sqlite --gpu v100               as if on a V100
  pyprof-advise net.pt.trace.json.gz                the same from a trace of torch.profiler
  pyprof-advise rank*.json.gz -o job.md             the ranks of one job, in one report
  pyprof-advise diff before.sqlite after.sqlite     what a change did: slower, faster, fixed, new
  pyprof-advise net.sqlite --rules my-rules/        your own rules as well
  pyprof-advise net.sqlite --why precision/amp-off  why a rule fired, or did not
  pyprof-advise rules explain precision/amp-off     what a rule looks for and advises
  pyprof-advise net.sqlite --costs my-costs.toml    with what your own operators cost
  pyprof-advise gpus list                           names for --gpu
  pyprof-advise prof net.sqlite --csv               PyProf's columns, one row per kernel
  pyprof-advise scrub net.sqlite safe.sqlite        a copy without secrets, names and home folders

A profile comes from torch.profiler (prof.export_chrome_trace), Nsight Systems or nvprof:
  nsys profile -t cuda,nvtx -o net python train.py
  nsys export --type sqlite -o net.sqlite net.nsys-rep

Exit status: 0 a report was written, whatever it says; 1 a check failed (test and check of
rules and costs);
2 nothing could be judged, or the command line was wrong.";

#[derive(Debug, Subcommand)]
enum Command {
    /// List, explain, check, test and write rules
    Rules {
        #[command(subcommand)]
        command: rules::RulesCommand,
    },
    /// List, explain, check and test what operators cost, your own included
    Costs {
        #[command(subcommand)]
        command: costs::CostsCommand,
    },
    /// List and show the GPUs that --gpu knows
    Gpus {
        #[command(subcommand)]
        command: gpus::GpusCommand,
    },
    /// Compare a profile with the one before a change
    Diff(diff::DiffArgs),
    /// Put the JSON reports of several ranks together
    Merge(merge::MergeArgs),
    /// Write one dictionary per kernel, as PyProf's `parse` does
    Parse(parse::ParseArgs),
    /// Write one row of columns per kernel, as PyProf's `prof` does
    Prof(prof::ProfArgs),
    /// Print the JSON Schema of an output
    Schema {
        /// Which output
        what: Schema,
    },
    /// Make a copy of a profile that is safe to attach: no variables, tokens, names, home folders
    Scrub(scrub::ScrubArgs),
    /// Write a shell completion script to standard output
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Everything `advise` (the command without a name) can be told.
#[derive(Debug, Clone, Args)]
pub struct AdviseArgs {
    /// The profile: a torch.profiler trace, an Nsight Systems SQLite export or an nvprof database.
    /// Several, or a folder of them, are the ranks of one job
    #[arg(value_name = "PROFILE", required = true)]
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
}

/// Where a report goes, and in which shape.
#[derive(Debug, Clone, Default, Args)]
pub struct ReportArgs {
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Shape of the report; without it `text` on a terminal and `markdown` elsewhere
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
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
    /// Findings shown in full; the rest is folded
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
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
    /// Colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people and pull requests
    Markdown,
    /// For people: one page with charts and a table of all work, needs no network
    Html,
    /// For the terminal
    Text,
    /// For programs: every number of the report (`schema report` prints its schema)
    Json,
    /// For code scanning: SARIF 2.1.0
    Sarif,
    /// For GitHub Actions: annotations of the lines behind the findings
    Github,
}

/// Outputs with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Schema {
    /// `--format json`
    Report,
    /// `diff --format json`
    Diff,
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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { UNUSABLE } else { OK });
        }
    };
    output::set_color(cli.speech.color);
    let outcome = match cli.command {
        None => {
            refuse_commands(&cli.advise.profiles).and_then(|()| advise(&cli.advise, cli.speech))
        }
        Some(Command::Rules { command }) => rules::run(command, cli.speech),
        Some(Command::Costs { command }) => costs::run(command, cli.speech),
        Some(Command::Gpus { command }) => gpus::run(command),
        Some(Command::Diff(args)) => diff::diff(&args, cli.speech),
        Some(Command::Merge(args)) => merge::merge(&args, cli.speech),
        Some(Command::Parse(args)) => parse::parse(&args, cli.speech),
        Some(Command::Prof(args)) => prof::prof(&args, cli.speech),
        Some(Command::Schema { what }) => output::print(match what {
            Schema::Report => crate::report::SCHEMA,
            Schema::Diff => crate::compare::diff::SCHEMA,
        }),
        Some(Command::Scrub(args)) => scrub::scrub(&args, cli.speech),
        Some(Command::Completions { shell }) => completions(shell),
    };
    match outcome {
        Ok(()) => ExitCode::from(OK),
        Err(Failure::Gate) => ExitCode::from(GATE),
        Err(Failure::Told) => ExitCode::from(UNUSABLE),
        Err(Failure::Unusable(text)) => {
            output::labelled("error", anstyle::AnsiColor::Red, &text);
            ExitCode::from(UNUSABLE)
        }
    }
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
    match meant {
        Some(name) => Err(Failure::Unusable(format!(
            "unexpected command `{name}` behind a profile\n  a command stands first: `pyprof-advise {name} ...`"
        ))),
        None => Ok(()),
    }
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
