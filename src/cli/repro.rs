//! `pyprof-advise repro`: writes a script that times the operators of a finding before and after its fix.

use std::path::PathBuf;

use clap::Args;

use super::args::{AnalyzeArgs, Console, RuleArgs};
use super::output::{self, CommandResult, Failure};
use super::{advise, examples};
use crate::base::text::plain;
use crate::report::{FindingReport, Report};
use crate::repro::{NoScript, script};

/// What `--help` says first.
pub(super) const ABOUT: &str = "Writes a self-contained Python script that rebuilds the operators of a finding with the shapes, \
strides and types of the profile, times them as they are and with the fix, and prints the ratio. The script needs \
torch and nothing else. No text of the profile becomes code. Without a GPU, `--device cpu --small` tries it.";

/// Arguments of `repro`.
#[derive(Debug, Clone, Args)]
#[command(after_help = examples::REPRO)]
pub(super) struct ReproArgs {
    /// The number of a finding in the report, or the id of its rule
    #[arg(value_name = "FINDING")]
    finding: String,
    /// The profile, or a report written with `--format json`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The GPU: a name from `gpus list` or a TOML file; by default the GPU that the profile names
    #[arg(long, value_name = "NAME|FILE")]
    gpu: Option<String>,
    #[command(flatten)]
    rules: RuleArgs,
}

pub(super) fn repro(args: &ReproArgs, console: Console) -> CommandResult {
    advise::refuse_overwriting(&args.profile, args.output.as_deref())?;
    let with = AnalyzeArgs {
        rules: args.rules.clone(),
        ..AnalyzeArgs::default()
    };
    let report = advise::read_or_analyze(&args.profile, args.gpu.as_ref(), &with, console)?;
    let finding = find(&report, &args.finding)?;
    let text = script(finding).map_err(|error| match error {
        NoScript::Unknown(why) => Failure::Unusable(why),
        NoScript::Template(error) => error.into(),
    })?;
    output::write_to(args.output.as_deref(), &text)
}

/// The finding with a number, or the first one of a rule.
fn find<'a>(report: &'a Report, wanted: &str) -> Result<&'a FindingReport, Failure> {
    let number: Option<u64> = wanted.parse().ok().filter(|number| *number > 0);
    let mut all = report.findings.iter().chain(&report.minor);
    let found = all.find(|finding| match number {
        Some(number) => finding.number == number,
        None => finding.rule == wanted,
    });
    found.ok_or_else(|| {
        let rules: Vec<String> = report
            .findings
            .iter()
            .map(|finding| format!("{} {}", finding.number, plain(&finding.rule)))
            .collect();
        Failure::Unusable(format!(
            "there is no finding `{}` in this report\n  it has: {}",
            plain(wanted),
            rules.join(", ")
        ))
    })
}
