//! `pyprof-advise merge`: merges the JSON reports of the ranks of a job. The result equals the report of
//! all profiles analyzed at once.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use super::exit_gates::Gates;
use super::{CommandResult, Console, Failure, GateArgs, ReportArgs, advise, config, multi_rank};
use crate::base::units;
use crate::compare;
use crate::report::{self, Report};

/// Maximum size of a report file, in bytes; real reports are smaller.
const MAX_BYTES: u64 = 256 << 20;
/// Bytes of a file that [`is_report`] reads.
const HEAD_BYTES: u64 = 64 << 10;

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
    #[arg(long, value_name = "FILE", env = config::VARIABLE, hide_env_values = true, value_parser = config::path())]
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
        [only] => vec![read(only)],
        several => multi_rank::each(several, console, one),
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

/// Reads one of several reports. The report of a job is an error, because it cannot be split.
pub(super) fn one(path: &Path) -> Result<Report, Failure> {
    let report = read(path)?;
    if report.job.is_some() {
        return Err(Failure::Unusable(format!(
            "{}: this report is of several profiles already\n  give the reports that it was merged from",
            path.display()
        )));
    }
    Ok(report)
}

/// Reads a report of one profile or of a job.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let fail = |why: String| Failure::Unusable(format!("{}: {why}", path.display()));
    let mut text = String::new();
    let bytes = File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => fail(
                "not a JSON report (it is not text)\n  give profiles to `pyprof-advise` itself; this takes \
                 what it wrote with `--format json`"
                    .into(),
            ),
            _ => fail(error.to_string()),
        })?;
    if bytes as u64 > MAX_BYTES {
        return Err(fail(format!(
            "expected a report, found a file of more than {}",
            units::bytes(MAX_BYTES as f64)
        )));
    }
    report::read_json(&text).map_err(|error| fail(error.to_string()))
}

/// Whether a file looks like a JSON report of this program, by the beginning of its text.
pub(super) fn is_report(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .and_then(|_| File::open(path).ok())
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head).ok());
    let text = String::from_utf8_lossy(&head);
    read.is_some()
        && text.trim_start().starts_with('{')
        && text.contains("\"schema_version\"")
        && !text.contains("\"traceEvents\"")
}
