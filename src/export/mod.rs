//! Floor 7: the work of several ranks as one table, for DuckDB, Spark, polars or a spreadsheet.
//!
//! One row per rank and site. Ranks are not summed up; queries choose what to compare. The table is
//! built from reports, so the profiles need not be on the same machine.

mod csv;
mod table;

pub use csv::csv;
pub use table::{COLUMNS, ColumnValue, ExportColumn, ExportRow, ExportTable};
