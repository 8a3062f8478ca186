//! `pyprof-advise merge`: merges the JSON reports of the ranks of a job. The result equals the report of
//! all profiles analyzed at once.

use std::path::PathBuf;

use clap::Args;

use super::args::{Console, GateArgs, ReportArgs, VARIABLE, config_path};
use super::exit_gates::Gates;
use super::output::{CommandResult, Failure};
use super::{advise, config, kept, multi_rank};
use crate::compare;

/// Arguments of `merge`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct MergeArgs {
    /// Reports written with `--format json`, one per profile, or folders of them
    #[arg(value_name = "REPORT", required = true)]
    reports: Vec<PathBuf>,
    #[command(flatten)]
    write: WriteArgs,
}

/// How kept reports are written again: options of `merge` and `show`.
#[derive(Debug, Clone, Args)]
pub(super) struct WriteArgs {
    #[command(flatten)]
    pub(super) report: ReportArgs,
    #[command(flatten)]
    pub(super) gates: GateArgs,
    /// Read options from this TOML file; command-line options take precedence
    #[arg(long, value_name = "FILE", env = VARIABLE, hide_env_values = true, value_parser = config_path())]
    config: Option<PathBuf>,
}

impl WriteArgs {
    /// Adds the options of the configuration.
    pub(super) fn fill(&mut self, console: &mut Console) -> Result<(), Failure> {
        let config = config::load(self.config.as_deref(), None)?;
        config.fill_console(console);
        config.fill_report(&mut self.report);
        config.fill_gates(&mut self.gates);
        Ok(())
    }
}

const EXAMPLES: &str = "\
Examples:
  pyprof-advise rank0.json.gz --format json -o r0.json      on one machine
  pyprof-advise rank1.json.gz --format json -o r1.json      on another
  pyprof-advise merge r0.json r1.json -o advice.md          as if both profiles were given at once
  pyprof-advise merge reports/ -o advice.md                 all reports in a folder
  pyprof-advise show r0.json -o advice.html                 one report in another format

Reports are not verified: merge only reports that you trust.";

pub(super) fn merge(mut args: MergeArgs, mut console: Console) -> CommandResult {
    args.write.fill(&mut console)?;
    let gates = Gates::load(&args.write.gates, None)?;
    let to = &args.write.report;
    let inputs = multi_rank::inputs(&args.reports, multi_rank::REPORTS, console)?;
    for path in &inputs.files {
        advise::refuse_overwriting_input("report", path, to.output.as_deref())?;
    }
    let results = match inputs.files.as_slice() {
        [only] => vec![kept::read(only)],
        several => multi_rank::each(several, console, kept::one),
    };
    let mut left_out = inputs.repeated;
    let (reports, unread) = multi_rank::usable(
        &inputs.files,
        &inputs.named,
        results,
        &mut left_out,
        console,
    )?;
    let Some(mut merged) = compare::merge(reports, left_out) else {
        return Err(Failure::Unusable("no report given".into()));
    };
    merged.top = to.top_or(merged.top);
    let outcome = advise::write_and_gate(to, &gates, merged, console);
    unread.after(outcome)
}
