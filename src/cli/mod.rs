//! Floor 9: the command line, one file per command. This file defines the arguments, prints errors and
//! warnings, and sets the exit status.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

mod advise;
mod args;
mod config;
mod costs;
mod diff;
mod examples;
mod exit_gates;
mod export;
mod gpus;
mod kept;
mod man;
mod memory;
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
pub(crate) use args::{AdviseArgs, Console};
#[cfg(fuzzing)]
pub(crate) use config::round_trip as configuration;
pub(crate) use output::{CommandResult, Failure};
use output::{GATE, OK, UNUSABLE};

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

/// More threads take less time, but each keeps memory that it has freed: with four, a profile of a million kernels needs
/// more than 600 MiB, with 16 half as much again (docs/performance.md).
const MOST_THREADS: usize = 3;

/// Starts the threads that share the work: as many as rayon would (`RAYON_NUM_THREADS`, else the processors), at most
/// [`MOST_THREADS`], fewer where that many are not allowed, none but this one where none is.
fn start_threads() -> CommandResult {
    use rayon::{ThreadBuilder, ThreadPoolBuilder};
    use std::sync::mpsc::{Sender, channel};
    memory::enough_memory()?;
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
        Some(Command::Man { command }) => man::man(Cli::command(), &command),
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
