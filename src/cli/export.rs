//! `pyprof-advise export`: writes the work of all ranks as one table.

use std::path::{Path, PathBuf};

use clap::Args;

use super::args::{AdviseArgs, AnalyzeArgs, Console};
use super::output::{self, CommandResult, Failure};
use super::{advise, examples, kept, multi_rank};
use crate::base::text::plain;
use crate::base::units::counted;
use crate::export::{self, COLUMNS, ExportTable};

/// Arguments of `export`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = examples::EXPORT,
    after_long_help = columns_help()
)]
pub(super) struct ExportArgs {
    /// Profiles, reports written with `--format json`, or folders of them
    #[arg(value_name = "PROFILE|REPORT", required = true)]
    inputs: Vec<PathBuf>,
    /// The CSV file to write; by default CSV goes to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The GPU of the profiles: a name from `gpus list` or a TOML file; by default the GPU they name
    #[arg(long, value_name = "NAME|FILE")]
    gpu: Option<String>,
    #[command(flatten)]
    with: AnalyzeArgs,
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

pub(super) fn export(args: ExportArgs, console: Console) -> CommandResult {
    // Checked before the profiles are read, which can take a while.
    check_extension(args.output.as_deref())?;
    let inputs = multi_rank::inputs(&args.inputs, multi_rank::PROFILES_OR_REPORTS, console)?;
    for file in &inputs.files {
        advise::refuse_overwriting(file, args.output.as_deref())?;
    }
    for twice in &inputs.repeated {
        console.warn(&format!("{}: {}", plain(&twice.file), twice.why));
    }
    let analysis = AdviseArgs {
        profiles: args.inputs,
        gpu: args.gpu,
        rules: args.with.rules,
        costs: args.with.costs,
        classes: args.with.classes,
        ..AdviseArgs::default()
    };
    warn_of_reports(&analysis, &inputs.files, console);
    let (reports, unread) = advise::reports_of(&analysis, inputs, console)?;
    let table = ExportTable::new(reports);
    for remark in &table.remarks {
        console.warn(&plain(remark));
    }
    match &args.output {
        Some(path) => output::write_file_with(path, |out| export::csv(&table, out))?,
        None => output::stream(|out| export::csv(&table, out))?,
    }
    unread.after(Ok(()))
}

/// Reports an error for a file name that does not end with `.csv`.
fn check_extension(output: Option<&Path>) -> CommandResult {
    let Some(path) = output else {
        return Ok(());
    };
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    if extension == "csv" {
        return Ok(());
    }
    Err(Failure::Unusable(format!(
        "--output {}: expected a file name that ends with .csv\n  DuckDB converts CSV to Parquet: \
         COPY (FROM 'sites.csv') TO 'sites.parquet'",
        path.display()
    )))
}

/// Warns that options of the analysis do not apply to inputs that are reports.
fn warn_of_reports(analysis: &AdviseArgs, files: &[PathBuf], console: Console) {
    let rules = &analysis.rules;
    let lists = [&rules.select, &rules.ignore, &rules.set];
    let paths = [&rules.paths, &analysis.costs, &analysis.classes];
    let asked = analysis.gpu.is_some()
        || lists.iter().any(|list| !list.is_empty())
        || paths.iter().any(|list| !list.is_empty());
    let reports = files.iter().filter(|file| kept::is_report(file)).count();
    if asked && reports > 0 {
        console.warn(&format!(
            "{} taken as {}: --gpu, --costs, --classes and options of rules are for profiles",
            counted(reports as u64, "report"),
            if reports == 1 { "it is" } else { "they are" }
        ));
    }
}
