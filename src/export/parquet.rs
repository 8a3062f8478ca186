//! The table as Parquet: <https://parquet.apache.org/docs/file-format/>. Written column by column
//! without Arrow, compressed with Snappy, which every engine reads.

use std::io::{Error, Result, Write};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::{COLUMNS, Row, Table, Values};

/// Rows of a row group: enough for dictionaries to pay, few enough to hold a column of in memory.
const ROW_GROUP: usize = 1 << 16;

/// Writes the table. Every column may be null; a list is never null, but may be empty.
///
/// # Errors
/// What `out` answers.
pub fn parquet(table: &Table, out: &mut (dyn Write + Send)) -> Result<()> {
    write(table, out).map_err(plainly)
}

fn write(table: &Table, out: &mut (dyn Write + Send)) -> parquet::errors::Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("pyprof-advise ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let schema = Arc::new(parse_message_type(&schema())?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
    let rows: Vec<Row<'_>> = table.rows().collect();
    for rows in rows.chunks(ROW_GROUP) {
        let mut group = file.next_row_group()?;
        for column in COLUMNS {
            let Some(mut writer) = group.next_column()? else {
                break;
            };
            write_column(&mut writer, column.values, rows)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

/// The columns in Parquet's message language.
fn schema() -> String {
    let fields: Vec<String> = COLUMNS
        .iter()
        .map(|column| {
            let name = column.name;
            match column.values {
                Values::Text(_) => format!("optional binary {name} (STRING);"),
                Values::Int(_) => format!("optional int64 {name};"),
                Values::Float(_) => format!("optional double {name};"),
                Values::Flag(_) => format!("optional boolean {name};"),
                Values::Texts(_) => format!(
                    "required group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}"
                ),
            }
        })
        .collect();
    format!("message sites {{ {} }}", fields.join(" "))
}

fn write_column(
    writer: &mut SerializedColumnWriter<'_>,
    values: Values,
    rows: &[Row<'_>],
) -> parquet::errors::Result<()> {
    match values {
        Values::Text(value) => {
            optional::<ByteArrayType>(writer, rows, |row| value(row).map(ByteArray::from))
        }
        Values::Int(value) => optional::<Int64Type>(writer, rows, value),
        Values::Float(value) => optional::<DoubleType>(writer, rows, |row| {
            value(row).filter(|number| number.is_finite())
        }),
        Values::Flag(value) => optional::<BoolType>(writer, rows, value),
        Values::Texts(values) => lists(writer, rows, values),
    }
}

/// Values with definition levels: 1 where there is one, 0 where there is none.
fn optional<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    rows: &[Row<'_>],
    value: impl Fn(&Row<'_>) -> Option<T::T>,
) -> parquet::errors::Result<()> {
    let all: Vec<Option<T::T>> = rows.iter().map(value).collect();
    let defined: Vec<i16> = all.iter().map(|v| i16::from(v.is_some())).collect();
    let known: Vec<T::T> = all.into_iter().flatten().collect();
    writer
        .typed::<T>()
        .write_batch(&known, Some(&defined), None)?;
    Ok(())
}

/// Lists as Dremel encodes them: repetition level 0 begins a row, definition level 0 is an empty list.
fn lists(
    writer: &mut SerializedColumnWriter<'_>,
    rows: &[Row<'_>],
    texts: for<'a> fn(&Row<'a>) -> Vec<&'a str>,
) -> parquet::errors::Result<()> {
    let (mut known, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let texts = texts(row);
        if texts.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (at, text) in texts.into_iter().enumerate() {
            known.push(ByteArray::from(text));
            defined.push(1);
            repeated.push(i16::from(at > 0));
        }
    }
    writer
        .typed::<ByteArrayType>()
        .write_batch(&known, Some(&defined), Some(&repeated))?;
    Ok(())
}

/// The error of the file itself, where there is one.
fn plainly(error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::other(other),
        },
        other => Error::other(other),
    }
}
