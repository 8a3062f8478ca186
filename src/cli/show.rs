//! `pyprof-advise show`: writes a kept report again, in any format.

use std::path::PathBuf;

use clap::Args;

use super::exit_gates::Gates;
use super::{CommandResult, Console, GateArgs, ReportArgs, advise, config, merge};

/// Arguments of `show`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShowArgs {
    /// A report written with `--format json`, or by `merge`
    #[arg(value_name = "REPORT")]
    file: PathBuf,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    gates: GateArgs,
    /// Read options from this TOML file; command-line options take precedence
    #[arg(long, value_name = "FILE", env = config::VARIABLE, hide_env_values = true, value_parser = config::path())]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  pyprof-advise net.sqlite -o main.json              keep a report
  pyprof-advise show main.json                       read it in the terminal
  pyprof-advise show main.json -o main.html          as a page
  pyprof-advise show main.json --baseline old.json   only what is new since another one";

pub(super) fn show(mut args: ShowArgs, mut console: Console) -> CommandResult {
    let config = config::load(args.config.as_deref(), None)?;
    config.fill_console(&mut console);
    config.fill_report(&mut args.report);
    config.fill_gates(&mut args.gates);
    let gates = Gates::load(&args.gates, None)?;
    advise::refuse_overwriting_input("report", &args.file, args.report.output.as_deref())?;
    let mut report = merge::read(&args.file)?;
    report.top = args.report.top_or(report.top);
    advise::write_and_gate(&args.report, &gates, report, console)
}
