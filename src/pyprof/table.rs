//! PyProf's columns and its three layouts: separated by spaces, CSV, and columns of fixed width.

use std::io::{self, Write};

use super::rows::Row;
use super::{Record, Text};
use crate::base::suggest::did_you_mean;
use crate::base::text::plain;

/// A column of the table.
#[derive(Debug)]
pub struct Column {
    /// What `-c` calls it.
    pub key: &'static str,
    /// Its first line.
    pub header: &'static str,
    /// For the help text.
    pub about: &'static str,
    /// Characters it takes with `-w`, at least; 0 for a column that shares what is left.
    pub width: usize,
    /// Aligned to the right with `-w`.
    number: bool,
    cell: fn(&Cells<'_>) -> String,
}

/// Where a cell's text comes from.
struct Cells<'a> {
    /// Counted from 1.
    index: usize,
    record: &'a Record,
    row: &'a Row,
    /// Columns of fixed width: long cells are shortened to what tells most.
    fixed: bool,
}

const fn column(
    key: &'static str,
    header: &'static str,
    width: usize,
    number: bool,
    about: &'static str,
    cell: fn(&Cells<'_>) -> String,
) -> Column {
    Column {
        key,
        header,
        about,
        width,
        number,
        cell,
    }
}

/// PyProf's 20 columns with its keys, headers and widths.
pub const COLUMNS: &[Column] = &[
    column("idx", "Idx", 7, true, "number of the kernel, from 1", |c| {
        c.index.to_string()
    }),
    column("seq", "SeqId", 7, false, "autograd sequence number", |c| {
        joined(&c.record.seq)
    }),
    column(
        "altseq",
        "AltSeqId",
        7,
        false,
        "other sequence numbers around it",
        |c| joined(&c.record.alt),
    ),
    column("tid", "TId", 12, true, "thread that launched it", |c| {
        c.record.tid.map_or_else(|| "-".into(), |t| t.to_string())
    }),
    column(
        "layer",
        "Layer",
        10,
        false,
        "your `layer:` ranges, outermost first",
        |c| or_dash(c.row.place.layer.join(":")),
    ),
    column(
        "trace",
        "Trace",
        25,
        false,
        "source lines of the call",
        |c| trace(&c.row.place.trace, c.fixed),
    ),
    column("dir", "Direction", 5, false, "fprop or bprop", |c| {
        c.record.place.dir.name().into()
    }),
    column(
        "sub",
        "Sub",
        3,
        true,
        "counts kernels of one sequence number and operator",
        |c| c.record.sub.to_string(),
    ),
    column("mod", "Module", 15, false, "module of the operator", |c| {
        c.row.module.clone()
    }),
    column("op", "Op", 15, false, "operator", |c| c.row.op.clone()),
    column(
        "kernel",
        "Kernel",
        0,
        false,
        "short name of the kernel",
        |c| or_dash(c.record.short_name.replace(' ', "_")),
    ),
    column(
        "params",
        "Params",
        0,
        false,
        "shapes and types of the arguments",
        |c| c.row.params.clone(),
    ),
    column("sil", "Sil(ns)", 10, true, "time on the GPU, ns", |c| {
        c.record.duration.to_string()
    }),
    column(
        "tc",
        "TC",
        2,
        false,
        "1 on Tensor Cores, 0 not, - unknown or no such work",
        |c| match c.row.tensor_core {
            Some(true) => "1".into(),
            Some(false) => "0".into(),
            None => "-".into(),
        },
    ),
    column("device", "Device", 3, true, "number of the GPU", |c| {
        c.record.device.to_string()
    }),
    column("stream", "Stream", 3, true, "CUDA stream", |c| {
        c.record.stream.to_string()
    }),
    column("grid", "Grid", 12, false, "thread blocks", |c| {
        dims(c.record.grid)
    }),
    column("block", "Block", 12, false, "threads of a block", |c| {
        dims(c.record.block)
    }),
    column(
        "flops",
        "FLOPs",
        12,
        true,
        "share of the call's FLOPs (an FMA is 2), - unknown",
        |c| number(c.row.flops),
    ),
    column(
        "bytes",
        "Bytes",
        12,
        true,
        "share of the call's DRAM traffic, - unknown",
        |c| number(c.row.bytes),
    ),
];

/// What `prof` prints unless told otherwise.
pub const DEFAULT: &str = "idx,dir,sub,mod,op,kernel,params,sil";

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".into() } else { text }
}

fn joined(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    or_dash(ids.join(","))
}

fn trace(lines: &[Text], fixed: bool) -> String {
    match lines.last() {
        Some(last) if fixed => last.rsplit('/').next().unwrap_or(last).to_owned(),
        _ => or_dash(lines.join(",")),
    }
}

fn dims([x, y, z]: [u32; 3]) -> String {
    format!("{x},{y},{z}")
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), |v| v.to_string())
}

/// The columns of a list of keys, or all of them for `all`.
///
/// # Errors
/// The first name that is no column, with the nearest one and all there are.
pub fn columns(list: &str) -> Result<Vec<&'static Column>, String> {
    if list.trim() == "all" {
        return Ok(COLUMNS.iter().collect());
    }
    let keys = || COLUMNS.iter().map(|c| c.key);
    list.split(',')
        .map(|key| {
            let key = key.trim();
            COLUMNS.iter().find(|c| c.key == key).ok_or_else(|| {
                format!(
                    "`{}` is no column{}\n  columns: {}",
                    plain(key),
                    did_you_mean(key, keys()),
                    keys().collect::<Vec<_>>().join(",")
                )
            })
        })
        .collect()
}

/// How a line is put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One space between cells; spaces inside become `_`.
    Spaces,
    /// Every cell quoted, quotes inside doubled (RFC 4180).
    Csv,
    /// Characters of each column; what does not fit ends in `…`.
    Fixed(Vec<usize>),
}

impl Layout {
    /// Columns of fixed width: kernel and parameters share what the others leave of `width`. As in
    /// PyProf, the space behind each column does not count.
    ///
    /// # Errors
    /// When the columns need more, with how much.
    pub fn fixed(columns: &[&Column], width: usize) -> Result<Layout, String> {
        let taken: usize = columns.iter().map(|c| c.width).sum();
        let sharing: Vec<&&Column> = columns.iter().filter(|c| c.width == 0).collect();
        let least: usize = sharing.iter().map(|c| c.header.len()).max().unwrap_or(0);
        let needed = taken + least * sharing.len();
        if width < needed {
            return Err(format!(
                "-w {width} is too narrow for these columns: they need at least {needed} characters"
            ));
        }
        let each = (width - taken).checked_div(sharing.len()).unwrap_or(0);
        let widths = columns
            .iter()
            .map(|c| if c.width == 0 { each } else { c.width });
        Ok(Layout::Fixed(widths.collect()))
    }

    fn line(&self, cells: &[(String, bool)]) -> String {
        let words = cells.iter().map(|(text, _)| plain(text));
        match self {
            Layout::Csv => {
                let quoted = words.map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
                quoted.collect::<Vec<_>>().join(",")
            }
            Layout::Spaces => {
                let whole = words.map(|word| word.replace(char::is_whitespace, "_"));
                whole.collect::<Vec<_>>().join(" ")
            }
            Layout::Fixed(widths) => words
                .zip(cells)
                .zip(widths)
                .map(|((word, (_, number)), width)| {
                    if *number {
                        format!("{word:>width$} ")
                    } else {
                        format!("{:width$} ", fitted(&word, *width))
                    }
                })
                .collect(),
        }
    }
}

/// The beginning of a text, at most `width` characters, the last one `…` where something is missing.
fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain((width > 0).then_some('…')).collect()
}

/// A header as PyProf prints it: above a narrow column without its end.
fn header(column: &Column, fixed: bool) -> &'static str {
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
/// Those of `out`.
pub fn write(
    out: &mut dyn Write,
    columns: &[&Column],
    layout: &Layout,
    records: &[Record],
    rows: &[Row],
) -> io::Result<()> {
    // Headers stand to the left of their column, also above numbers.
    let fixed = matches!(layout, Layout::Fixed(_));
    let headers: Vec<(String, bool)> = columns
        .iter()
        .map(|c| (header(c, fixed).to_owned(), false))
        .collect();
    writeln!(out, "{}", layout.line(&headers))?;
    for (index, (record, row)) in (1..).zip(records.iter().zip(rows)) {
        let cells = Cells {
            index,
            record,
            row,
            fixed,
        };
        let line: Vec<(String, bool)> = columns
            .iter()
            .map(|c| ((c.cell)(&cells), c.number))
            .collect();
        writeln!(out, "{}", layout.line(&line))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(layout: &Layout, cells: &[&str]) -> String {
        let cells: Vec<(String, bool)> = cells.iter().map(|c| ((*c).to_owned(), false)).collect();
        layout.line(&cells)
    }

    #[test]
    fn there_are_twenty_columns_and_the_default_is_among_them() {
        assert_eq!(columns("all").unwrap().len(), 20);
        assert_eq!(columns(DEFAULT).unwrap().len(), 8);
        let said = columns("idx,kernle").unwrap_err();
        assert!(
            said.contains("`kernle` is no column; did you mean `kernel`?"),
            "{said}"
        );
    }

    #[test]
    fn cells_stay_cells() {
        let cells = ["a b", "say \"x\"", "1,2\n3", "\u{1b}[31m"];
        assert_eq!(
            line(&Layout::Csv, &cells).matches("\",\"").count(),
            3,
            "{}",
            line(&Layout::Csv, &cells)
        );
        assert!(line(&Layout::Csv, &cells).contains("\"say \"\"x\"\"\""));
        assert_eq!(line(&Layout::Spaces, &cells).split(' ').count(), 4);
        assert!(!line(&Layout::Spaces, &cells).contains('\u{1b}'));
    }

    #[test]
    fn fixed_columns_share_what_is_left() {
        let all = columns("idx,kernel,params,sil").unwrap();
        let layout = Layout::fixed(&all, 57).unwrap();
        assert_eq!(layout, Layout::Fixed(vec![7, 20, 20, 10]));
        let said = Layout::fixed(&all, 20).unwrap_err();
        assert!(said.contains("at least 29"), "{said}");
        assert_eq!(line(&Layout::Fixed(vec![4]), &["volta"]), "vol… ");
    }
}
