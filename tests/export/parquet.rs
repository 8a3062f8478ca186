//! What is in a Parquet file is what the JSON report's table of sites says, column by column.

use std::fs::File;

use parquet::basic::{Compression, Repetition};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use pyprof_advise::export::{COLUMNS, Values};
use serde_json::{Value, json};

use super::desk::{Desk, has};
use super::four_ranks;

fn rows(desk: &Desk, file: &str) -> Vec<Row> {
    let file = SerializedFileReader::new(File::open(desk.at(file)).unwrap()).unwrap();
    let rows = file.get_row_iter(None).unwrap();
    rows.map(Result::unwrap).collect()
}

/// A field as JSON says it.
fn json_of(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Str(text) => json!(text),
        Field::Long(number) => json!(number),
        Field::Double(number) => json!(number),
        Field::Bool(flag) => json!(flag),
        Field::ListInternal(list) => list.elements().iter().map(json_of).collect(),
        other => panic!("unexpected {other:?}"),
    }
}

fn field(row: &Row, name: &str) -> Value {
    let mut columns = row.get_column_iter();
    json_of(columns.find(|(column, _)| *column == name).unwrap().1)
}

#[test]
fn rows_are_those_of_the_json_report() {
    let desk = Desk::new();
    let report = desk.report("net.sqlite");
    desk.fine("export net.sqlite -o sites.parquet");
    let rows = rows(&desk, "sites.parquet");
    let sites = report["sites"].as_array().unwrap();
    assert_eq!(rows.len(), sites.len());
    assert!(sites.len() > 20);
    let mut compared = 0;
    for (row, site) in rows.iter().zip(sites) {
        for (key, value) in site.as_object().unwrap() {
            // Numbers of a report mean nothing elsewhere: `rules` has their names.
            if key == "findings" {
                continue;
            }
            let value = match (key.as_str(), value) {
                ("arguments", Value::String(text)) if text.is_empty() => &Value::Null,
                _ => value,
            };
            assert_eq!(field(row, key), *value, "{key}");
            compared += 1;
        }
        assert_eq!(field(row, "file"), "net.sqlite");
        assert_eq!(field(row, "rank"), Value::Null);
        assert_eq!(field(row, "gpu"), "Tesla V100-SXM2-16GB");
        let busy = &report["summary"]["busy_ns"];
        assert_eq!(field(row, "run_busy_ns"), *busy);
        let numbers = site["findings"].as_array().unwrap();
        let mut rules: Vec<&str> = (report["findings"].as_array().unwrap().iter())
            .filter(|finding| numbers.contains(&finding["number"]))
            .map(|finding| finding["rule"].as_str().unwrap())
            .collect();
        rules.sort_unstable();
        rules.dedup();
        assert_eq!(field(row, "rules"), json!(rules));
    }
    assert!(compared >= 20 * 25, "only {compared} cells");
}

#[test]
fn types_and_compression_are_those_promised() {
    let desk = four_ranks();
    desk.fine("export reports -o sites.parquet --quiet");
    let file = SerializedFileReader::new(File::open(desk.at("sites.parquet")).unwrap()).unwrap();
    let metadata = file.metadata();
    let created = metadata.file_metadata().created_by().unwrap();
    has(created, &["pyprof-advise "]);
    let fields = metadata.file_metadata().schema().get_fields().to_vec();
    assert_eq!(fields.len(), COLUMNS.len());
    for (field, column) in fields.iter().zip(COLUMNS) {
        assert_eq!(field.name(), column.name);
        let wanted = match column.values {
            Values::Texts(_) => Repetition::REQUIRED,
            _ => Repetition::OPTIONAL,
        };
        assert_eq!(field.get_basic_info().repetition(), wanted);
    }
    for group in metadata.row_groups() {
        for column in group.columns() {
            assert_eq!(column.compression(), Compression::SNAPPY);
        }
    }
}

#[test]
fn the_same_bytes_from_profiles_and_reports() {
    let desk = four_ranks();
    desk.fine("export . -o a.parquet --quiet");
    desk.fine("export reports -o b.parquet --quiet");
    let bytes = |name: &str| std::fs::read(desk.at(name)).unwrap();
    assert!(bytes("a.parquet") == bytes("b.parquet"));
    let ranks: Vec<Value> = rows(&desk, "a.parquet")
        .iter()
        .map(|r| field(r, "rank"))
        .collect();
    assert_eq!(ranks, [0, 0, 1, 1, 2, 2, 3, 3].map(|rank: i32| json!(rank)));
}

#[test]
fn a_table_that_cannot_be_written_leaves_nothing_behind() {
    let desk = four_ranks();
    let before = desk.names();
    has(
        &desk.refused("export reports -o none/sites.parquet"),
        &["no folder"],
    );
    std::fs::create_dir(desk.at("sites.parquet")).unwrap();
    has(
        &desk.refused("export reports -o sites.parquet"),
        &["is a folder"],
    );
    std::fs::remove_dir(desk.at("sites.parquet")).unwrap();
    assert_eq!(desk.names(), before);
}

/// Names and arguments of a profile may be anything: long, empty, hostile, in any alphabet.
#[test]
fn odd_texts_and_numbers_come_through() {
    let desk = four_ranks();
    let mut report = desk.json("reports/r0.json");
    let odd = "\u{202e}=x\n\u{1b}[31m\"',;\u{0}层".repeat(2000);
    report["sites"][0]["kernel"] = json!(odd);
    report["sites"][0]["calls"] = json!(u64::MAX);
    report["sites"][0]["time_ns"] = json!(i64::MIN);
    report["sites"][0]["flops"] = json!(1e308);
    report["title"] = json!("");
    desk.write("odd.json", &report.to_string());
    desk.fine("export odd.json -o sites.parquet");
    let rows = rows(&desk, "sites.parquet");
    assert_eq!(field(&rows[0], "kernel"), odd);
    assert_eq!(field(&rows[0], "file"), "");
    assert_eq!(field(&rows[0], "calls"), Value::Null);
    assert_eq!(field(&rows[0], "time_ns"), i64::MIN);
    assert_eq!(field(&rows[0], "flops"), 1e308);
    let csv = desk.fine("export odd.json");
    assert_eq!(csv.lines().count(), 1 + rows.len());
    assert!(!csv.contains('\u{1b}') && !csv.contains('\u{202e}'));
}
