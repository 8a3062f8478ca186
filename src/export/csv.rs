//! The table as comma-separated values (RFC 4180): <https://www.rfc-editor.org/rfc/rfc4180>.

use std::io::{Result, Write};

use super::{COLUMNS, Row, Table, Values};
use crate::base::text::plain;

/// What makes a spreadsheet take a text for a formula:
/// <https://owasp.org/www-community/attacks/CSV_Injection>.
const FORMULA: [char; 4] = ['=', '+', '-', '@'];
/// Between the texts of a list.
const SEPARATOR: &str = ";";

/// Writes the table with a line of column names. Texts are in quotes, what is not known is nothing
/// at all.
///
/// # Errors
/// What `out` answers.
pub fn csv(table: &Table, out: &mut dyn Write) -> Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    writeln!(out, "{}", names.join(","))?;
    for row in table.rows() {
        let cells: Vec<String> = COLUMNS.iter().map(|c| cell(c.values, &row)).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

fn cell(values: Values, row: &Row<'_>) -> String {
    let printed = |value: Option<String>| value.unwrap_or_default();
    match values {
        Values::Text(value) => printed(value(row).map(quoted)),
        Values::Int(value) => printed(value(row).map(|v| v.to_string())),
        Values::Float(value) => {
            printed(value(row).filter(|v| v.is_finite()).map(|v| v.to_string()))
        }
        Values::Flag(value) => printed(value(row).map(|v| v.to_string())),
        Values::Texts(values) => {
            let texts = values(row);
            printed((!texts.is_empty()).then(|| quoted(&texts.join(SEPARATOR))))
        }
    }
}

fn quoted(text: &str) -> String {
    let text = plain(text);
    let guard = if text.starts_with(FORMULA) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_in_their_cell_and_are_no_formulas() {
        assert_eq!(quoted("gemm<f32, \"x\">"), "\"gemm<f32, \"\"x\"\">\"");
        assert_eq!(quoted("=HYPERLINK(1)"), "\"'=HYPERLINK(1)\"");
        assert_eq!(quoted("a\r\nb\u{1b}[31m").lines().count(), 1);
        assert!(!quoted("\u{1b}[31mred").contains('\u{1b}'));
    }

    #[test]
    fn columns_are_told_apart() {
        let mut names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
        let plain = |name: &&str| name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase());
        assert!(names.iter().all(plain), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
