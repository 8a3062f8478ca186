//! PyProf's columns and its three layouts: separated by spaces, CSV, and columns of fixed width.

use std::borrow::Cow;
use std::io::{self, Write};

use rayon::prelude::*;

use super::kernel_row::KernelRow;
use super::record::{BATCH, PIECE};
use crate::base::InvalidArgument;
use crate::base::suggest::did_you_mean;
use crate::base::text::{csv_cell, plain};

/// A column of the table.
#[derive(Debug)]
pub struct ProfColumn {
    /// Its name in `-c`.
    pub key: &'static str,
    /// Its header.
    pub header: &'static str,
    /// Its description in the help text.
    pub about: &'static str,
    /// Minimum width in characters with `-w`; 0 for a column that shares the remaining width.
    pub width: usize,
    /// Whether it is aligned to the right with `-w`.
    number: bool,
    /// The text of a cell; `true` where columns have a fixed width.
    cell: fn(&KernelRow, bool) -> Cow<'_, str>,
}

const fn column(
    key: &'static str,
    header: &'static str,
    width: usize,
    number: bool,
    about: &'static str,
    cell: fn(&KernelRow, bool) -> Cow<'_, str>,
) -> ProfColumn {
    ProfColumn {
        key,
        header,
        about,
        width,
        number,
        cell,
    }
}

/// PyProf's 20 columns with its keys, headers and widths.
pub const COLUMNS: &[ProfColumn] = &[
    column(
        "idx",
        "Idx",
        7,
        true,
        "number of the kernel, from 1",
        |row, _| number(row.number),
    ),
    column(
        "seq",
        "SeqId",
        7,
        false,
        "autograd sequence number",
        |row, _| numbers(&row.record.seq),
    ),
    column(
        "altseq",
        "AltSeqId",
        7,
        false,
        "other sequence numbers around it",
        |row, _| numbers(&row.record.alt),
    ),
    column(
        "tid",
        "TId",
        12,
        true,
        "thread that launched it",
        |row, _| number_or_dash(row.record.tid),
    ),
    column(
        "layer",
        "Layer",
        10,
        false,
        "your `layer:` ranges, outermost first",
        |row, _| or_dash(row.context().layer.join(":")),
    ),
    column(
        "trace",
        "Trace",
        25,
        false,
        "source lines of the call",
        |row, fixed| trace(&row.context().trace, fixed),
    ),
    column("dir", "Direction", 5, false, "fprop or bprop", |row, _| {
        row.record.context.dir.name().into()
    }),
    column(
        "sub",
        "Sub",
        3,
        true,
        "counts kernels of one sequence number and operator",
        |row, _| number(row.record.sub),
    ),
    column(
        "mod",
        "Module",
        15,
        false,
        "module of the operator",
        |row, _| row.module().into(),
    ),
    column("op", "Op", 15, false, "operator", |row, _| row.op().into()),
    column(
        "kernel",
        "Kernel",
        0,
        false,
        "short name of the kernel",
        |row, _| or_dash(row.record.name.short.replace(' ', "_")),
    ),
    column(
        "params",
        "Params",
        0,
        false,
        "shapes and types of the arguments",
        |row, _| row.params().into(),
    ),
    column(
        "sil",
        "Sil(ns)",
        10,
        true,
        "time on the GPU, ns",
        |row, _| number(row.record.duration),
    ),
    column(
        "tc",
        "TC",
        2,
        false,
        "1 on Tensor Cores, 0 not, - unknown or no such work",
        |row, _| match row.tensor_core() {
            Some(true) => "1".into(),
            Some(false) => "0".into(),
            None => "-".into(),
        },
    ),
    column(
        "device",
        "Device",
        3,
        true,
        "number of the GPU",
        |row, _| number(row.record.device),
    ),
    column("stream", "Stream", 3, true, "CUDA stream", |row, _| {
        number(row.record.stream)
    }),
    column("grid", "Grid", 12, false, "thread blocks", |row, _| {
        numbers(&row.record.grid)
    }),
    column(
        "block",
        "Block",
        12,
        false,
        "threads of a block",
        |row, _| numbers(&row.record.block),
    ),
    column(
        "flops",
        "FLOPs",
        12,
        true,
        "share of the call's FLOPs (an FMA is 2), - unknown",
        |row, _| number_or_dash(row.flops()),
    ),
    column(
        "bytes",
        "Bytes",
        12,
        true,
        "share of the call's DRAM traffic, - unknown",
        |row, _| number_or_dash(row.bytes()),
    ),
];

/// The default columns of `prof`.
pub const DEFAULT: &str = "idx,dir,sub,mod,op,kernel,params,sil";

fn number<'a>(number: impl ToString) -> Cow<'a, str> {
    number.to_string().into()
}

fn number_or_dash<'a>(known: Option<u64>) -> Cow<'a, str> {
    known.map_or("-".into(), number)
}

fn numbers<'a>(list: &[impl ToString]) -> Cow<'a, str> {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    or_dash(list.join(","))
}

fn or_dash<'a>(text: String) -> Cow<'a, str> {
    if text.is_empty() {
        "-".into()
    } else {
        text.into()
    }
}

fn trace(lines: &[String], fixed: bool) -> Cow<'_, str> {
    match lines.last() {
        Some(last) if fixed => last.rsplit('/').next().unwrap_or(last).into(),
        _ => or_dash(lines.join(",")),
    }
}

/// The columns of a list of keys, or all of them for `all`.
///
/// # Errors
/// At the first unknown column, with a suggestion and the list of columns.
pub fn columns(list: &str) -> Result<Vec<&'static ProfColumn>, InvalidArgument> {
    if list.trim() == "all" {
        return Ok(COLUMNS.iter().collect());
    }
    let keys = || COLUMNS.iter().map(|c| c.key);
    list.split(',')
        .map(|key| {
            let key = key.trim();
            COLUMNS.iter().find(|c| c.key == key).ok_or_else(|| {
                InvalidArgument(format!(
                    "unknown column `{}`{}\n  columns: {}",
                    plain(key),
                    did_you_mean(key, keys()),
                    keys().collect::<Vec<_>>().join(",")
                ))
            })
        })
        .collect()
}

/// The layout of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableLayout {
    /// One space between cells; spaces inside become `_`.
    Spaces,
    /// Every cell quoted, quotes inside doubled (RFC 4180).
    Csv {
        /// Whether texts that a spreadsheet would evaluate as formulas are written as PyProf writes them.
        raw: bool,
    },
    /// Width of each column in characters; longer cells are cut and end in `…`.
    Fixed(Vec<usize>),
}

impl TableLayout {
    /// A layout with columns of fixed width: kernel and parameters share what the others leave of
    /// `width`. As in PyProf, the space after each column is not counted.
    ///
    /// # Errors
    /// When the columns need more width, and when it is more than a cell can have; the message says how much.
    pub fn fixed(columns: &[&ProfColumn], width: usize) -> Result<TableLayout, InvalidArgument> {
        const WIDEST: usize = u16::MAX as usize;
        if width > WIDEST {
            return Err(InvalidArgument(format!(
                "-w {width} is too wide: at most {WIDEST} characters"
            )));
        }
        let taken: usize = columns.iter().map(|c| c.width).sum();
        let sharing: Vec<&&ProfColumn> = columns.iter().filter(|c| c.width == 0).collect();
        let least: usize = sharing.iter().map(|c| c.header.len()).max().unwrap_or(0);
        let needed = taken + least * sharing.len();
        if width < needed {
            return Err(InvalidArgument(format!(
                "-w {width} is too narrow for these columns: they need at least {needed} characters"
            )));
        }
        let each = (width - taken).checked_div(sharing.len()).unwrap_or(0);
        let widths = columns
            .iter()
            .map(|c| if c.width == 0 { each } else { c.width });
        Ok(TableLayout::Fixed(widths.collect()))
    }

    /// The separator between cells, and the line ending.
    fn between(&self) -> (&'static str, &'static str) {
        match self {
            TableLayout::Spaces => (" ", "\n"),
            TableLayout::Csv { .. } => (",", "\n"),
            TableLayout::Fixed(_) => (" ", " \n"),
        }
    }

    /// Appends a line with these cells; `true` before a cell that is a number.
    fn push_line<'c>(&self, out: &mut String, cells: impl Iterator<Item = (bool, Cow<'c, str>)>) {
        let (between, end) = self.between();
        for (at, (is_number, text)) in cells.enumerate() {
            if at > 0 {
                out.push_str(between);
            }
            match self {
                // Numbers have nothing to escape.
                TableLayout::Spaces if is_number => out.push_str(&text),
                TableLayout::Csv { .. } if is_number => out.extend(["\"", &text, "\""]),
                TableLayout::Spaces => {
                    out.push_str(&plain(&text).replace(char::is_whitespace, "_"));
                }
                TableLayout::Csv { raw: false } => out.push_str(&csv_cell(&text)),
                TableLayout::Csv { raw: true } => {
                    out.extend(["\"", &plain(&text).replace('"', "\"\""), "\""]);
                }
                TableLayout::Fixed(widths) => {
                    let width = widths.get(at).copied().unwrap_or(0);
                    out.push_str(&aligned(&plain(&text), width, is_number));
                }
            }
        }
        out.push_str(end);
    }
}

/// A text in a column of fixed width: numbers to the right, other texts to the left and cut to the width.
fn aligned(text: &str, width: usize, is_number: bool) -> String {
    if is_number {
        format!("{text:>width$}")
    } else {
        format!("{:width$}", fitted(text, width))
    }
}

/// The start of a text, at most `width` characters; the last one is `…` if the text was cut.
fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain((width > 0).then_some('…')).collect()
}

/// Writes the header and one line per record.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    out: &mut dyn Write,
    columns: &[&ProfColumn],
    layout: &TableLayout,
    rows: &[KernelRow],
) -> io::Result<()> {
    let fixed = matches!(layout, TableLayout::Fixed(_));
    let mut headers = String::new();
    // Headers are aligned to the left, even above numbers.
    let cells = columns.iter().map(|c| (false, header(c, fixed).into()));
    layout.push_line(&mut headers, cells);
    out.write_all(headers.as_bytes())?;
    let lines = |rows: &[KernelRow]| {
        let mut lines = String::new();
        for row in rows {
            let cells = columns.iter().map(|c| (c.number, (c.cell)(row, fixed)));
            layout.push_line(&mut lines, cells);
        }
        lines
    };
    for batch in rows.chunks(BATCH) {
        let pieces: Vec<String> = batch.par_chunks(PIECE).map(lines).collect();
        for piece in pieces {
            out.write_all(piece.as_bytes())?;
        }
    }
    Ok(())
}

/// A header as PyProf prints it: shortened above a narrow column.
fn header(column: &ProfColumn, fixed: bool) -> &'static str {
    match column.header.get(..column.width) {
        Some(cut) if fixed && column.width > 0 => cut,
        _ => column.header,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(layout: &TableLayout, cells: &[&str]) -> String {
        let mut line = String::new();
        layout.push_line(&mut line, cells.iter().map(|text| (false, (*text).into())));
        line.replace('\n', "")
    }

    #[test]
    fn there_are_twenty_columns_and_the_defaults_are_valid() {
        assert_eq!(columns("all").unwrap().len(), 20);
        assert_eq!(columns(DEFAULT).unwrap().len(), 8);
        let said = columns("idx,kernle").unwrap_err().to_string();
        assert!(
            said.contains("unknown column `kernle`; did you mean `kernel`?"),
            "{said}"
        );
    }

    #[test]
    fn widths_are_bounded() {
        let all = columns("kernel").unwrap();
        assert!(
            TableLayout::fixed(&all, 500_000)
                .unwrap_err()
                .to_string()
                .contains("too wide")
        );
        let widest = TableLayout::fixed(&all, 65_535).unwrap();
        assert_eq!(line(&widest, &["k"]).trim_end(), "k");
    }

    #[test]
    fn separators_in_cells_are_escaped() {
        let cells = ["a b", "say \"x\"", "1,2\n3", "\u{1b}[31m"];
        assert_eq!(
            line(&TableLayout::Csv { raw: false }, &cells)
                .matches("\",\"")
                .count(),
            3,
            "{}",
            line(&TableLayout::Csv { raw: false }, &cells)
        );
        assert!(line(&TableLayout::Csv { raw: false }, &cells).contains("\"say \"\"x\"\"\""));
        let formulas = ["=cmd|'/C calc'!A0", "@SUM(1)", "-", "-1.5", "+x"];
        assert_eq!(
            line(&TableLayout::Csv { raw: false }, &formulas),
            "\"'=cmd|'/C calc'!A0\",\"'@SUM(1)\",\"-\",\"-1.5\",\"'+x\""
        );
        assert!(line(&TableLayout::Csv { raw: true }, &formulas).starts_with("\"=cmd"));
        assert_eq!(line(&TableLayout::Spaces, &cells).split(' ').count(), 4);
        assert!(!line(&TableLayout::Spaces, &cells).contains('\u{1b}'));
    }

    #[test]
    fn columns_of_width_0_share_the_remaining_width() {
        let all = columns("idx,kernel,params,sil").unwrap();
        let layout = TableLayout::fixed(&all, 57).unwrap();
        assert_eq!(layout, TableLayout::Fixed(vec![7, 20, 20, 10]));
        let said = TableLayout::fixed(&all, 20).unwrap_err().to_string();
        assert!(said.contains("at least 29"), "{said}");
        assert_eq!(line(&TableLayout::Fixed(vec![4]), &["volta"]), "vol… ");
    }
}
