//! `pyprof-advise diff`: compares the profiles before and after a change.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::args::{AnalyzeArgs, Console, diff_formats};
use super::output::{self, CommandResult, Failure};
use super::{advise, examples};
use crate::base::units::percent;
use crate::compare::diff::{self, Decision, Diff};
use crate::formats::OutputFormat;
use crate::report::Report;

/// What `--help` says first.
pub(super) const ABOUT: &str = "Compares the profiles before and after a change: what got slower or faster, what appeared or \
vanished, which findings are fixed or new, and whether the difference exceeds the noise between steps. Both \
sides may be profiles, folders with the profiles of a job, or reports written with `--format json`. Times are \
compared per step or other unit of work that both sides have, else per call, never by the length of a capture.";

/// Arguments of `diff`.
#[derive(Debug, Clone, Args)]
#[command(after_help = examples::DIFF)]
pub(super) struct DiffArgs {
    /// The profile, report or folder before the change
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The profile, report or folder after the change
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Later profiles, reports or folders: a table shows the trend of all, oldest first, and --fail-on compares
    /// the last with the first
    #[arg(value_name = "LATER")]
    later: Vec<PathBuf>,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format; without it the ending of the output file decides, else it is `markdown`
    #[arg(long, value_name = "FORMAT", value_parser = diff_formats())]
    format: Option<OutputFormat>,
    /// Exit with status 1 when AFTER is slower by more than this and by more than the noise between steps or
    /// other repetitions: `regression=3%`. Differences below 2 %, or between different GPUs, never fail
    #[arg(long, value_name = "GATE")]
    fail_on: Option<Gate>,
    /// Exit with status 1 also when the condition of `--fail-on` cannot be checked: no step or other unit of
    /// work in common, too few repetitions, or too much noise
    #[arg(long, requires = "fail_on")]
    strict: bool,
    /// The GPU of both profiles: a name from `gpus list` or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    gpu: Option<String>,
    /// The GPU of AFTER and later ones, if it differs
    #[arg(long, value_name = "NAME|FILE")]
    gpu_after: Option<String>,
    #[command(flatten)]
    with: AnalyzeArgs,
}

/// The largest slowdown that passes, as a share: 0.03 for `regression=3%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gate(f64);

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Gate, String> {
        let wanted =
            || format!("expected `regression=PERCENT%`, as in `regression=3%`, found `{text}`");
        let value = text.strip_prefix("regression=").ok_or_else(wanted)?;
        let number = value.strip_suffix('%').ok_or_else(wanted)?;
        let percent: f64 = number.trim().parse().map_err(|_| wanted())?;
        match percent.is_finite() && percent >= 0.0 {
            true => Ok(Gate(percent / 100.0)),
            false => Err(wanted()),
        }
    }
}

pub(super) fn diff(args: &DiffArgs, console: Console) -> CommandResult {
    let format = advise::comparison_format(args.format, args.output.as_deref())?;
    let paths = || [&args.before, &args.after].into_iter().chain(&args.later);
    for path in paths() {
        advise::refuse_overwriting(path, args.output.as_deref())?;
    }
    let gpu_after = args.gpu_after.as_ref().or(args.gpu.as_ref());
    let read = |(at, path): (usize, &PathBuf)| {
        let gpu = match at {
            0 => args.gpu.as_ref(),
            _ => gpu_after,
        };
        advise::read_or_analyze(path, gpu, &args.with, console)
    };
    let reports: Vec<Report> = paths().enumerate().map(read).collect::<Result<_, _>>()?;
    let (Some(first), Some(last)) = (reports.first(), reports.last()) else {
        return Ok(());
    };
    let compared = diff::diff(first, last);
    if reports.len() == 2 {
        output::write_to(args.output.as_deref(), &text(&compared, format)?)?;
    } else {
        let trend = diff::trend(&reports);
        let text = format.trend.unwrap_or(diff::trend_markdown)(&trend)?;
        output::write_to(args.output.as_deref(), &text)?;
    }
    args.fail_on.map_or(Ok(()), |gate| {
        gate.check("--fail-on", &compared, args.strict, console)
    })
}

/// A comparison in a format; in Markdown if it is not one of comparisons.
pub(super) fn text(diff: &Diff, format: OutputFormat) -> Result<String, Failure> {
    Ok(format.diff.unwrap_or(diff::markdown)(diff)?)
}

impl Gate {
    /// Applies the gate, which was given with an option, to a comparison that was written.
    pub(super) fn check(
        self,
        option: &str,
        diff: &Diff,
        strict: bool,
        console: Console,
    ) -> CommandResult {
        let failed = |why: &str| {
            output::labeled("failed", anstyle::AnsiColor::Red, why);
            Err(Failure::GateFailed)
        };
        match diff::gate(diff, self.0) {
            Decision::Pass => Ok(()),
            Decision::Fail(slower) => failed(&format!(
                "slower by {}, more than the {} that {option} allows",
                percent(slower),
                percent(self.0)
            )),
            Decision::Unknown(why) => {
                let why = format!(
                    "{option} regression was not checked: {}",
                    crate::base::text::plain(&why)
                );
                if strict {
                    return failed(&format!("{why} (--strict)"));
                }
                console.warn(&why);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_gates_are_parsed_as_shares() {
        let share = |text: &str| text.parse::<Gate>().map(|gate| gate.0).ok();
        assert_eq!(share("regression=3%"), Some(0.03));
        assert_eq!(share("regression=0%"), Some(0.0));
        assert_eq!(share("regression=2.5%"), Some(0.025));
        for wrong in [
            "regression=3",
            "regression=-3%",
            "3%",
            "regression=x%",
            "saving=3%",
            "regression=inf%",
            "",
        ] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }
}
