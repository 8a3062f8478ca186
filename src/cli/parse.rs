//! `pyprof-advise parse`: one dictionary per kernel, in the format of PyProf's `parse`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::args::Console;
use super::examples;
use super::output::{self, CommandResult, Failure};
use super::progress::Bar;
use crate::base::text::plain;
use crate::correlate::{Run, UnneededRanges, correlate};
use crate::cost::VOCABULARY;
use crate::pyprof;
use crate::read::{self, Progress};

/// Arguments of `parse`.
#[derive(Debug, Clone, Args)]
#[command(after_help = examples::PARSE)]
pub(super) struct ParseArgs {
    /// The profile: a torch.profiler trace, an Nsight Systems SQLite export or an nvprof database
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Format of a line
    #[arg(long, value_name = "FORMAT", default_value = "dict")]
    format: ParseFormat,
}

/// Formats of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ParseFormat {
    /// A Python dictionary, as PyProf writes it
    Dict,
    /// A JSON object with the same keys
    Jsonl,
}

pub(super) fn parse(args: &ParseArgs, console: Console) -> CommandResult {
    let run = run(&args.profile, console)?;
    let format = match args.format {
        ParseFormat::Dict => pyprof::LineFormat::Python,
        ParseFormat::Jsonl => pyprof::LineFormat::Json,
    };
    let bar = Bar::new(console.quiet);
    bar.phase("writing", Some(run.profile.kernels.len() as u64));
    let written = |lines| bar.advance(lines);
    let outcome = output::stream(|out| pyprof::write(out, &run, format, &written));
    bar.done();
    outcome
}

/// A profile and its correlated rows.
pub(super) fn run(path: &Path, console: Console) -> Result<Run, Failure> {
    let bar = Bar::new(console.quiet);
    let profile = read::open_pruned(path, &UnneededRanges, &bar);
    bar.done();
    let profile = profile?;
    if profile.kernels.is_empty() {
        let mut text = format!(
            "{}: a {} without a single kernel",
            plain(&profile.path),
            profile.format.name
        );
        for note in &profile.notes {
            text.push_str("\n  ");
            text.push_str(&plain(&note.text));
        }
        return Err(Failure::Unusable(text));
    }
    Ok(correlate(profile, &VOCABULARY))
}
