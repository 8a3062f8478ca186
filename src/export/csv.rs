//! The table as comma-separated values (RFC 4180): <https://www.rfc-editor.org/rfc/rfc4180>.

use std::io::{Result, Write};

use super::table::{COLUMNS, ColumnValue, ExportRow, ExportTable};
use crate::base::text::csv_cell as quoted;

/// Separator of the texts of a list.
const SEPARATOR: &str = ";";

/// Writes the table with a header line. Texts are quoted; unknown values are empty.
///
/// # Errors
/// Errors of `out`.
pub fn csv(table: &ExportTable, out: &mut dyn Write) -> Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    writeln!(out, "{}", names.join(","))?;
    for row in table.rows() {
        let cells: Vec<String> = COLUMNS.iter().map(|c| cell(c.values, &row)).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

fn cell(values: ColumnValue, row: &ExportRow<'_>) -> String {
    let printed = |value: Option<String>| value.unwrap_or_default();
    match values {
        ColumnValue::Text(value) => printed(value(row).map(quoted)),
        ColumnValue::Int(value) => printed(value(row).map(|v| v.to_string())),
        ColumnValue::Float(value) => {
            printed(value(row).filter(|v| v.is_finite()).map(|v| v.to_string()))
        }
        ColumnValue::Flag(value) => printed(value(row).map(|v| v.to_string())),
        ColumnValue::Texts(values) => {
            let texts = values(row);
            printed((!texts.is_empty()).then(|| quoted(&texts.join(SEPARATOR))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_are_never_formulas() {
        assert_eq!(quoted("gemm<f32, \"x\">"), "\"gemm<f32, \"\"x\"\">\"");
        assert_eq!(quoted("=HYPERLINK(1)"), "\"'=HYPERLINK(1)\"");
        assert_eq!(quoted("a\r\nb\u{1b}[31m").lines().count(), 1);
        assert!(!quoted("\u{1b}[31mred").contains('\u{1b}'));
    }

    #[test]
    fn column_names_are_unique_identifiers() {
        let mut names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
        let plain = |name: &&str| name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase());
        assert!(names.iter().all(plain), "{names:?}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
