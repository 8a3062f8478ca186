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

/// Cells without control characters.
#[derive(Debug, Clone)]
pub(super) struct TextRow {
    /// Of the first cell.
    pub style: Style,
    pub cells: Vec<String>,
}

/// A table.
pub(super) struct TextTable {
    columns: Vec<Column>,
    rows: Vec<TextRow>,
}

impl TextTable {
    pub(super) fn new(columns: Vec<Column>, rows: Vec<TextRow>) -> TextTable {
        TextTable { columns, rows }
    }

    /// The table in at most `width` columns, unless its columns' least widths need more.
    pub(super) fn render(&self, width: usize) -> String {
        let widths = self.widths(width);
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.to_owned()).collect();
        let dim = Style::new().dimmed();
        let mut out = self.row(&titles, &widths, |_| dim);
        for row in &self.rows {
            out.push_str(&self.row(&row.cells, &widths, |i| {
                if i == 0 { row.style } else { Style::new() }
            }));
        }
        out
    }

    fn widths(&self, room: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let cells = self.rows.iter().filter_map(|row| row.cells.get(i));
                let widest = cells.map(|c| width_of(c)).max().unwrap_or(0);
                widest.max(width_of(column.title))
            })
            .collect();
        for flexible in [true, false] {
            while let Some(widest) = self.widest(&widths, room, flexible) {
                if let Some(width) = widths.get_mut(widest) {
                    *width -= 1;
                }
            }
        }
        widths
    }

    /// The widest column that may still give way, while the table is too wide.
    fn widest(&self, widths: &[usize], room: usize, flexible: bool) -> Option<usize> {
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        if total <= room {
            return None;
        }
        let may = |i: usize, width: usize| {
            let column = self.columns.get(i);
            column.is_some_and(|c| c.flexible == flexible && width > c.least)
        };
        (0..widths.len())
            .filter(|&i| widths.get(i).is_some_and(|w| may(i, *w)))
            .max_by_key(|&i| widths.get(i))
    }

    fn row(&self, cells: &[String], widths: &[usize], style: impl Fn(usize) -> Style) -> String {
        let mut line = String::new();
        for (i, ((cell, width), column)) in cells.iter().zip(widths).zip(&self.columns).enumerate()
        {
            if i > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = (column.fit)(cell, *width);
            let pad = " ".repeat(width.saturating_sub(width_of(&cell)));
            let style = style(i);
            let cell = format!("{style}{cell}{style:#}");
            match column.align {
                Align::Left => line.push_str(&(cell + &pad)),
                Align::Right => line.push_str(&(pad + &cell)),
            }
        }
        format!("{}\n", line.trim_end())
    }
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

    fn table() -> TextTable {
        let columns = vec![
            Column::new("#", Align::Right, 1),
            Column::new("Name", Align::Left, 4).flexible(),
            Column::new("Time", Align::Right, 4),
        ];
        let row = |n: &str, name: &str| {
            let cells = vec![n.to_owned(), name.to_owned(), "1.5 ms".to_owned()];
            TextRow {
                style: Style::new(),
                cells,
            }
        };
        TextTable::new(
            columns,
            vec![
                row("1", "short"),
                row("10", "quite_a_long_name"),
                row("2", "中文中文中文中文"),
            ],
        )
    }

    #[test]
    fn wide_tables_are_not_cut_on_wide_terminals() {
        let text = anstream::adapter::strip_str(&table().render(80)).to_string();
        assert_eq!(
            text.lines().nth(2),
            Some("10  quite_a_long_name  1.5 ms"),
            "{text}"
        );
    }

    #[test]
    fn tables_are_never_wider_than_the_terminal() {
        for width in 14..60 {
            let text = anstream::adapter::strip_str(&table().render(width)).to_string();
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
