//! `pyprof-advise show`: writes a kept report again, in any format.

use std::path::PathBuf;

use clap::Args;

use super::args::Console;
use super::exit_gates::Gates;
use super::merge::WriteArgs;
use super::output::CommandResult;
use super::{advise, kept};

/// Arguments of `show`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShowArgs {
    /// A report written with `--format json`, or by `merge`
    #[arg(value_name = "REPORT")]
    file: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

const EXAMPLES: &str = "\
Examples:
  pyprof-advise net.sqlite -o main.json              keep a report
  pyprof-advise show main.json                       read it in the terminal
  pyprof-advise show main.json -o main.html          as a page
  pyprof-advise show main.json --baseline old.json   only what is new since another one";

pub(super) fn show(mut args: ShowArgs, mut console: Console) -> CommandResult {
    args.write.fill(&mut console)?;
    let gates = Gates::load(&args.write.gates, None)?;
    let to = &args.write.report;
    advise::refuse_overwriting_input("report", &args.file, to.output.as_deref())?;
    let mut report = kept::read(&args.file)?;
    report.top = to.top_or(report.top);
    advise::write_and_gate(to, &gates, report, console)
}
