//! Tables that fit a terminal: columns take what their cells need, and flexible ones give way.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const GAP: usize = 2;

/// To which side cells lean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(super) struct Column {
    title: &'static str,
    align: Align,
    /// Narrowest, in terminal columns.
    least: usize,
    flexible: bool,
    fit: fn(&str, usize) -> String,
}

impl Column {
    pub(super) fn new(title: &'static str, align: Align, least: usize) -> Column {
        Column {
            title,
            align,
            least,
            flexible: false,
            fit,
        }
    }

    /// Gives way first when the table is too wide.
    pub(super) fn flexible(mut self) -> Column {
        self.flexible = true;
        self
    }

    /// Holds names of modules: the last parts of `layers.3.mlp.down_proj` say most.
    pub(super) fn dotted(mut self) -> Column {
        self.fit = fit_dotted;
        self
    }
}

/// Rows below the titles of their columns, in at most `width` columns, unless the least widths need more. Cells have
/// no control characters.
pub(super) fn table(columns: &[Column], rows: &[Vec<String>], width: usize) -> String {
    let widths = widths(columns, rows, width);
    let titles: Vec<String> = columns.iter().map(|c| c.title.to_owned()).collect();
    let mut out = line(columns, &titles, &widths, Style::new().dimmed());
    for row in rows {
        out.push_str(&line(columns, row, &widths, Style::new()));
    }
    out
}

/// What the cells need; while that is too wide, the widest column that may gives way.
fn widths(columns: &[Column], rows: &[Vec<String>], room: usize) -> Vec<usize> {
    let widest_cell = |(i, column): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(i));
        cells.fold(width_of(column.title), |most, c| most.max(width_of(c)))
    };
    let mut widths: Vec<usize> = columns.iter().enumerate().map(widest_cell).collect();
    let gaps = GAP * columns.len().saturating_sub(1);
    for flexible in [true, false] {
        while widths.iter().sum::<usize>() + gaps > room {
            let may = columns.iter().zip(&mut widths);
            let may = may.filter(|(c, width)| c.flexible == flexible && **width > c.least);
            match may.max_by_key(|(_, width)| **width) {
                Some((_, widest)) => *widest -= 1,
                None => break,
            }
        }
    }
    widths
}

fn line(columns: &[Column], cells: &[String], widths: &[usize], style: Style) -> String {
    let fitted = cells.iter().zip(widths).zip(columns);
    let fitted = fitted.map(|((cell, width), column)| {
        let cell = (column.fit)(cell, *width);
        let pad = " ".repeat(width.saturating_sub(width_of(&cell)));
        match column.align {
            Align::Left => format!("{style}{cell}{style:#}{pad}"),
            Align::Right => format!("{pad}{style}{cell}{style:#}"),
        }
    });
    let line = fitted.collect::<Vec<_>>().join(&" ".repeat(GAP));
    format!("{}\n", line.trim_end())
}

/// Terminal columns a text takes.
pub(super) fn width_of(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A text in at most `width` columns, its middle cut out where it is longer.
fn fit(text: &str, width: usize) -> String {
    let mut chars = text.chars().count();
    let mut cut = text.to_owned();
    while width_of(&cut) > width && chars > 0 {
        chars = (chars - 1).min(width);
        cut = crate::base::text::clip(text, chars);
    }
    cut
}

/// A dotted name in at most `width` columns: its beginning is cut off where it is longer, at a dot unless that
/// leaves a quarter of the room unused.
fn fit_dotted(name: &str, width: usize) -> String {
    if width_of(name) <= width {
        return name.to_owned();
    }
    let from = |at: usize| format!("…{}", name.get(at..).unwrap_or_default());
    let fits = |cut: &String| width_of(cut) <= width;
    let mut at_dots = name.match_indices('.').map(|(at, _)| from(at + 1));
    let mut anywhere = name.char_indices().map(|(at, _)| from(at));
    at_dots
        .find(fits)
        .filter(|cut| width_of(cut) * 4 >= width * 3)
        .or_else(|| anywhere.find(fits))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(width: usize) -> String {
        let columns = [
            Column::new("#", Align::Right, 1),
            Column::new("Name", Align::Left, 4).flexible(),
            Column::new("Time", Align::Right, 4),
        ];
        let rows = [
            ["1", "short", "1.5 ms"],
            ["10", "quite_a_long_name", "1.5 ms"],
            ["2", "中文中文中文中文", "1.5 ms"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        anstream::adapter::strip_str(&table(&columns, &rows, width)).to_string()
    }

    #[test]
    fn wide_tables_are_not_cut_on_wide_terminals() {
        let text = sample(80);
        assert_eq!(
            text.lines().nth(2),
            Some("10  quite_a_long_name  1.5 ms"),
            "{text}"
        );
    }

    #[test]
    fn tables_are_never_wider_than_the_terminal() {
        for width in 14..60 {
            let text = sample(width);
            let widest = text.lines().map(width_of).max().unwrap_or(0);
            assert!(widest <= width, "{width}:\n{text}");
        }
    }

    #[test]
    fn dotted_names_keep_their_last_parts() {
        let name = "model.layers.*.mlp.down_proj (24 layers)";
        for (width, cut) in [
            (40, name),
            (39, "…layers.*.mlp.down_proj (24 layers)"),
            (31, "…*.mlp.down_proj (24 layers)"),
            (25, "…down_proj (24 layers)"),
        ] {
            assert_eq!(fit_dotted(name, width), cut, "{width}");
        }
        // The last part does not fit, or leaves too much room.
        assert_eq!(fit_dotted(name, 20), "…wn_proj (24 layers)");
        let range = "forward pass of everything (train.py:42)";
        assert_eq!(fit_dotted(range, 30), "…s of everything (train.py:42)");
        assert_eq!(fit_dotted(name, 0), "");
    }
}
