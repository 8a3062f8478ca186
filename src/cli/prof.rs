//! `pyprof-advise prof`: one row of columns per kernel, in the format of PyProf's `prof`.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::args::Console;
use super::examples;
use super::output::{self, CommandResult, Failure};
use crate::pyprof::rows::{self, KernelRow};
use crate::pyprof::{self, Record, table};

/// Arguments of `prof`.
#[derive(Debug, Clone, Args)]
#[command(after_help = examples::PROF, after_long_help = columns_help())]
pub(super) struct ProfArgs {
    /// Dictionaries written by `parse` (or by PyProf's), or a profile; by default standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Columns, in this order
    #[arg(short, value_name = "COLS", default_value = table::DEFAULT)]
    c: String,
    /// Comma-separated values with quotes around every cell
    #[arg(long, conflicts_with = "w")]
    csv: bool,
    /// With --csv: leave out the `'` before texts that a spreadsheet would evaluate as formulas, as PyProf does
    #[arg(long, requires = "csv")]
    raw: bool,
    /// Columns of fixed width, WIDTH characters per line
    #[arg(short, value_name = "WIDTH")]
    w: Option<usize>,
}

fn columns_help() -> String {
    let mut text = String::from("Columns for -c:\n");
    for column in table::COLUMNS {
        text.push_str(&format!("  {:8} {}\n", column.key, column.about));
    }
    text.push_str("  all      all of them\n\n");
    text.push_str(examples::PROF);
    text
}

pub(super) fn prof(args: &ProfArgs, console: Console) -> CommandResult {
    let columns = table::columns(&args.c)?;
    let layout = match args.w {
        // PyProf's default.
        None | Some(0) if !args.csv => table::TableLayout::Spaces,
        Some(width) if width > 0 => table::TableLayout::fixed(&columns, width)?,
        _ => table::TableLayout::Csv { raw: args.raw },
    };
    let rows = rows(args.file.as_deref(), console)?;
    output::stream(|out| table::write(out, &columns, &layout, &rows))
}

fn rows(file: Option<&Path>, console: Console) -> Result<Vec<KernelRow>, Failure> {
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        return Ok(rows::rows(from_stdin()?));
    };
    if !is_dictionaries(path) {
        let run = super::parse::run(path, console)?;
        return Ok(rows::rows(pyprof::records(&run)));
    }
    let open = File::open(path)
        .map_err(|error| Failure::Unusable(format!("{}: {error}", path.display())))?;
    let name = path.display().to_string();
    Ok(rows::rows(pyprof::read(&name, BufReader::new(open))?))
}

fn from_stdin() -> Result<Vec<Record>, Failure> {
    const HOW: &str = "give a file, or dictionaries on standard input: `pyprof-advise prof net.dict`, \
                       `pyprof-advise parse net.sqlite | pyprof-advise prof`";
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Failure::Unusable(format!("nothing to read\n  {HOW}")));
    }
    let mut input = BufReader::new(stdin.lock());
    let head = input.fill_buf()?;
    if head.starts_with(b"SQLite format 3\0") {
        return Err(Failure::Unusable(
            "standard input is an SQLite database, which cannot be read from a stream\n  give its \
             file: `pyprof-advise prof net.sqlite`"
                .into(),
        ));
    }
    Ok(pyprof::read("standard input", input)?)
}

/// Whether a file begins like a line of `parse`: with Python's quotes, or as JSON with its first key.
fn is_dictionaries(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut head));
    let text = head.trim_ascii_start();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    read.is_ok() && (text.starts_with(b"{'") || text.starts_with(b"{\"kShortName\""))
}
