//! `pyprof-advise export`: the work of all ranks as one table in a file.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    AdviseArgs, ConfigArgs, Failure, GateArgs, Outcome, ReportArgs, RuleArgs, Speech, advise,
    examples, job, merge, output,
};
use crate::base::text::plain;
use crate::base::units::counted;
use crate::export::{self, COLUMNS, Table};

/// What `export` can be told.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = examples::EXPORT,
    after_long_help = columns_help()
)]
pub(super) struct ExportArgs {
    /// Profiles, reports written with `--format json`, or folders of them
    #[arg(value_name = "PROFILE|REPORT", required = true)]
    inputs: Vec<PathBuf>,
    /// The file to write: `.parquet` or `.csv`; without it CSV on standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The GPU of profiles: a name from `gpus list` or a TOML file; without it the one they name
    #[arg(long, value_name = "NAME|FILE")]
    gpu: Option<String>,
    #[command(flatten)]
    rules: RuleArgs,
    /// FLOPs and bytes of your own operators, a TOML file; may be repeated
    #[arg(long, value_name = "FILE")]
    costs: Vec<PathBuf>,
}

fn columns_help() -> String {
    let mut text = String::from("Columns:\n");
    for column in COLUMNS {
        let doc = column.doc.replace('`', "");
        text.push_str(&format!("  {:23} {doc}\n", column.name));
    }
    text.push('\n');
    text.push_str(examples::EXPORT);
    text
}

/// Shapes of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Csv,
    Parquet,
}

pub(super) fn export(args: ExportArgs, speech: Speech) -> Outcome {
    // Reading many profiles takes a while: what cannot be written is said before.
    let shape = shape(args.output.as_deref())?;
    let inputs = job::inputs(&args.inputs, job::PROFILES_OR_REPORTS, speech)?;
    for file in &inputs.files {
        advise::refuse_overwriting(file, args.output.as_deref())?;
    }
    for twice in &inputs.repeated {
        speech.warn(&format!("{}: {}", plain(&twice.file), twice.why));
    }
    let judging = AdviseArgs {
        profiles: args.inputs,
        gpu: args.gpu,
        report: ReportArgs::default(),
        rules: args.rules,
        costs: args.costs,
        why: None,
        gates: GateArgs::default(),
        config: ConfigArgs::default(),
    };
    warn_of_reports(&judging, &inputs.files, speech);
    let table = Table::new(advise::reports_of(&judging, inputs, speech)?);
    for remark in &table.remarks {
        speech.warn(&plain(remark));
    }
    match &args.output {
        Some(path) => output::write_file_with(path, |out| match shape {
            Shape::Csv => export::csv(&table, out),
            Shape::Parquet => parquet(&table, out),
        }),
        None => output::stream(|out| export::csv(&table, out)),
    }
}

/// The shape that a file's name asks for.
fn shape(output: Option<&Path>) -> Result<Shape, Failure> {
    let Some(path) = output else {
        return Ok(Shape::Csv);
    };
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    match ending.to_str() {
        Some("csv") => Ok(Shape::Csv),
        Some("parquet") if cfg!(feature = "parquet") => Ok(Shape::Parquet),
        Some("parquet") => Err(Failure::Unusable(format!(
            "cannot write {}: this pyprof-advise was built without Parquet\n  `cargo install --path . \
             --features parquet` in the source builds one with it; `-o {}` has the same rows and columns",
            path.display(),
            path.with_extension("csv").display()
        ))),
        _ => Err(Failure::Unusable(format!(
            "--output {}: expected a file that ends with .parquet or .csv",
            path.display()
        ))),
    }
}

#[cfg(feature = "parquet")]
fn parquet(table: &Table, out: &mut (dyn std::io::Write + Send)) -> std::io::Result<()> {
    export::parquet(table, out)
}

/// [`shape`] has refused it.
#[cfg(not(feature = "parquet"))]
fn parquet(_: &Table, _: &mut (dyn std::io::Write + Send)) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Reports were judged already; options that say how to judge mean nothing to them.
fn warn_of_reports(judging: &AdviseArgs, files: &[PathBuf], speech: Speech) {
    let rules = &judging.rules;
    let lists = [&rules.select, &rules.ignore, &rules.set];
    let paths = [&rules.paths, &judging.costs];
    let asked = judging.gpu.is_some()
        || lists.iter().any(|list| !list.is_empty())
        || paths.iter().any(|list| !list.is_empty());
    let reports = files.iter().filter(|file| merge::is_report(file)).count();
    if asked && reports > 0 {
        speech.warn(&format!(
            "{} taken as {}: --gpu, --costs and options of rules are for profiles",
            counted(reports as u64, "report"),
            if reports == 1 { "it is" } else { "they are" }
        ));
    }
}
