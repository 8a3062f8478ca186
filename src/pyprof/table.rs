//! PyProf's columns and its three layouts: separated by spaces, CSV, and columns of fixed width.

use std::io::{self, Write};

use rayon::prelude::*;

use super::rows::{KernelRows, Line, Of};
use super::{BATCH, KernelName, LaunchContext, PIECE, Text, push_number};
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
    cell: Cell,
}

/// How the cells of a column are formatted.
#[derive(Debug, Clone, Copy)]
enum Cell {
    /// Numbers and commas, individual for each kernel.
    Own(fn(&mut Vec<u8>, &Line<'_>)),
    /// A text that depends on a shared part of the kernel.
    Shared(Of, fn(&Shared<'_>) -> String),
}

/// The shared part that a cell's text is derived from.
struct Shared<'a> {
    rows: &'a KernelRows<'a>,
    /// Its index among parts of its kind.
    at: usize,
    /// Whether columns have a fixed width, so that long cells are shortened.
    fixed: bool,
}

impl<'a> Shared<'a> {
    fn name(&self) -> Option<&'a KernelName> {
        self.rows.records.names.get_index(self.at)
    }

    fn context(&self) -> Option<&'a LaunchContext> {
        self.rows.records.contexts.get_index(self.at)
    }

    fn cells(&self, of: fn(&super::rows::RowCells) -> &str) -> String {
        let cells = self.rows.cells.get_index(self.at);
        cells.map(of).unwrap_or_default().to_owned()
    }

    fn dims(&self, of: fn(&super::LaunchDims) -> [u32; 3]) -> String {
        let dims = self.rows.records.dims.get_index(self.at);
        let [x, y, z] = dims.map_or([0; 3], of);
        format!("{x},{y},{z}")
    }
}

const fn column(
    key: &'static str,
    header: &'static str,
    width: usize,
    number: bool,
    about: &'static str,
    cell: Cell,
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
        Cell::Own(|out, l| push_number(out, l.at + 1)),
    ),
    column(
        "seq",
        "SeqId",
        7,
        false,
        "autograd sequence number",
        Cell::Own(|out, l| push_list(out, l.record.seq())),
    ),
    column(
        "altseq",
        "AltSeqId",
        7,
        false,
        "other sequence numbers around it",
        Cell::Own(|out, l| push_list(out, l.record.alt())),
    ),
    column(
        "tid",
        "TId",
        12,
        true,
        "thread that launched it",
        Cell::Shared(Of::Tid, |s| {
            let tid = s.rows.records.tids.get_index(s.at).copied().flatten();
            tid.map_or_else(|| "-".into(), |t| t.to_string())
        }),
    ),
    column(
        "layer",
        "Layer",
        10,
        false,
        "your `layer:` ranges, outermost first",
        Cell::Shared(Of::Source, |s| {
            or_dash(s.context().map(|p| p.layer.join(":")).unwrap_or_default())
        }),
    ),
    column(
        "trace",
        "Trace",
        25,
        false,
        "source lines of the call",
        Cell::Shared(Of::Source, |s| {
            trace(s.context().map_or(&[], |p| p.trace.as_slice()), s.fixed)
        }),
    ),
    column(
        "dir",
        "Direction",
        5,
        false,
        "fprop or bprop",
        Cell::Shared(Of::Context, |s| {
            s.context().map_or("na", |p| p.dir.name()).to_owned()
        }),
    ),
    column(
        "sub",
        "Sub",
        3,
        true,
        "counts kernels of one sequence number and operator",
        Cell::Own(|out, l| push_number(out, l.record.sub())),
    ),
    column(
        "mod",
        "Module",
        15,
        false,
        "module of the operator",
        Cell::Shared(Of::RowCells, |s| s.cells(|c| &c.module)),
    ),
    column(
        "op",
        "Op",
        15,
        false,
        "operator",
        Cell::Shared(Of::RowCells, |s| s.cells(|c| &c.op)),
    ),
    column(
        "kernel",
        "Kernel",
        0,
        false,
        "short name of the kernel",
        Cell::Shared(Of::Name, |s| {
            or_dash(s.name().map_or("", |n| &n.short).replace(' ', "_"))
        }),
    ),
    column(
        "params",
        "Params",
        0,
        false,
        "shapes and types of the arguments",
        Cell::Shared(Of::RowCells, |s| s.cells(|c| &c.params)),
    ),
    column(
        "sil",
        "Sil(ns)",
        10,
        true,
        "time on the GPU, ns",
        Cell::Own(|out, l| push_number(out, l.record.duration())),
    ),
    column(
        "tc",
        "TC",
        2,
        false,
        "1 on Tensor Cores, 0 not, - unknown or no such work",
        Cell::Shared(Of::Name, |s| {
            let answer = s.rows.tensor_core.get(s.at).copied().flatten();
            answer
                .map_or("-", |yes| if yes { "1" } else { "0" })
                .to_owned()
        }),
    ),
    column(
        "device",
        "Device",
        3,
        true,
        "number of the GPU",
        Cell::Own(|out, l| push_number(out, l.record.device())),
    ),
    column(
        "stream",
        "Stream",
        3,
        true,
        "CUDA stream",
        Cell::Own(|out, l| push_number(out, l.record.stream())),
    ),
    column(
        "grid",
        "Grid",
        12,
        false,
        "thread blocks",
        Cell::Shared(Of::Dims, |s| s.dims(|d| d.grid)),
    ),
    column(
        "block",
        "Block",
        12,
        false,
        "threads of a block",
        Cell::Shared(Of::Dims, |s| s.dims(|d| d.block)),
    ),
    column(
        "flops",
        "FLOPs",
        12,
        true,
        "share of the call's FLOPs (an FMA is 2), - unknown",
        Cell::Own(|out, l| push_known(out, l.flops)),
    ),
    column(
        "bytes",
        "Bytes",
        12,
        true,
        "share of the call's DRAM traffic, - unknown",
        Cell::Own(|out, l| push_known(out, l.bytes)),
    ),
];

/// The default columns of `prof`.
pub const DEFAULT: &str = "idx,dir,sub,mod,op,kernel,params,sil";

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

fn push_list(out: &mut Vec<u8>, ids: &[u64]) {
    if ids.is_empty() {
        out.push(b'-');
    }
    for (at, id) in ids.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push_number(out, *id);
    }
}

fn push_known(out: &mut Vec<u8>, number: Option<u64>) {
    match number {
        Some(number) => push_number(out, number),
        None => out.push(b'-'),
    }
}

fn trace(lines: &[Text], fixed: bool) -> String {
    match lines.last() {
        Some(last) if fixed => last.rsplit('/').next().unwrap_or(last).to_owned(),
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
    fn between(&self) -> (&'static [u8], &'static [u8]) {
        match self {
            TableLayout::Spaces => (b" ", b"\n"),
            TableLayout::Csv { .. } => (b",", b"\n"),
            TableLayout::Fixed(_) => (b" ", b" \n"),
        }
    }

    /// A text as a cell of the column `at`.
    fn cell(&self, at: usize, text: &str, number: bool) -> String {
        let word = plain(text);
        match self {
            TableLayout::Csv { raw: false } => csv_cell(text),
            TableLayout::Csv { raw: true } => format!("\"{}\"", word.replace('"', "\"\"")),
            TableLayout::Spaces => word.replace(char::is_whitespace, "_"),
            TableLayout::Fixed(widths) => {
                let width = widths.get(at).copied().unwrap_or(0);
                if number {
                    format!("{word:>width$}")
                } else {
                    format!("{:width$}", fitted(&word, width))
                }
            }
        }
    }

    /// Appends numbers and commas as a cell of the column `at`.
    fn push(
        &self,
        out: &mut Vec<u8>,
        at: usize,
        column: &ProfColumn,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        match self {
            TableLayout::Spaces => write(out),
            TableLayout::Csv { .. } => {
                out.push(b'"');
                write(out);
                out.push(b'"');
            }
            TableLayout::Fixed(_) => {
                let start = out.len();
                write(out);
                let written = out.split_off(start);
                let text = String::from_utf8(written).unwrap_or_default();
                out.extend_from_slice(self.cell(at, &text, column.number).as_bytes());
            }
        }
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

/// A header as PyProf prints it: shortened above a narrow column.
fn header(column: &ProfColumn, fixed: bool) -> &'static str {
    let cut = if fixed && column.width > 0 {
        column.header.get(..column.width)
    } else {
        None
    };
    cut.unwrap_or(column.header)
}

/// Writes the header and one line per record.
///
/// # Errors
/// Errors of `out`.
pub fn write(
    out: &mut dyn Write,
    columns: &[&ProfColumn],
    layout: &TableLayout,
    rows: &KernelRows<'_>,
) -> io::Result<()> {
    let (between, end) = layout.between();
    // Headers are aligned to the left, even above numbers.
    let fixed = matches!(layout, TableLayout::Fixed(_));
    let headers = (columns.iter().enumerate())
        .map(|(at, c)| layout.cell(at, header(c, fixed), false).into_bytes());
    out.write_all(&headers.collect::<Vec<_>>().join(between))?;
    out.write_all(end)?;
    let table = Table::new(columns, layout, rows);
    for first in (0..rows.len()).step_by(BATCH) {
        for text in table.batch(first) {
            out.write_all(&text)?;
        }
    }
    Ok(())
}

/// The table with every shared text formatted.
struct Table<'a> {
    columns: &'a [&'a ProfColumn],
    layout: &'a TableLayout,
    rows: &'a KernelRows<'a>,
    /// The texts by column; empty for a column of numbers.
    ready: Vec<Vec<String>>,
}

impl<'a> Table<'a> {
    fn new(
        columns: &'a [&'a ProfColumn],
        layout: &'a TableLayout,
        rows: &'a KernelRows<'a>,
    ) -> Table<'a> {
        let fixed = matches!(layout, TableLayout::Fixed(_));
        let ready = |(column, c): (usize, &&ProfColumn)| match c.cell {
            Cell::Own(_) => Vec::new(),
            Cell::Shared(of, text) => (0..of.count(rows))
                .into_par_iter()
                .map(|at| layout.cell(column, &text(&Shared { rows, at, fixed }), c.number))
                .collect(),
        };
        Table {
            columns,
            layout,
            rows,
            ready: columns.iter().enumerate().map(ready).collect(),
        }
    }

    /// The lines of the batch that begins with row `first`, in parts.
    fn batch(&self, first: usize) -> Vec<Vec<u8>> {
        let end = self.rows.len().min(first.saturating_add(BATCH));
        let starts: Vec<usize> = (first..end).step_by(PIECE).collect();
        let piece = |start: &usize| {
            let mut out = Vec::new();
            for line in (*start..end.min(start + PIECE)).filter_map(|at| self.rows.line(at)) {
                self.push(&mut out, &line);
            }
            out
        };
        starts.par_iter().map(piece).collect()
    }

    fn push(&self, out: &mut Vec<u8>, line: &Line<'_>) {
        let (between, end) = self.layout.between();
        for (at, (column, ready)) in self.columns.iter().zip(&self.ready).enumerate() {
            if at > 0 {
                out.extend_from_slice(between);
            }
            match column.cell {
                Cell::Own(write) => self.layout.push(out, at, column, |out| write(out, line)),
                Cell::Shared(of, _) => {
                    let text = ready.get(of.of(line)).map_or("", String::as_str);
                    out.extend_from_slice(text.as_bytes());
                }
            }
        }
        out.extend_from_slice(end);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(layout: &TableLayout, cells: &[&str]) -> String {
        let (between, end) = layout.between();
        let cells: Vec<String> = (0..)
            .zip(cells)
            .map(|(at, text)| layout.cell(at, text, false))
            .collect();
        let word = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (cells.join(&word(between)) + &word(end)).replace('\n', "")
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
