//! The order of rows in a file does not matter: real profiles with shuffled rows give the same report.

use std::io::Read;
use std::path::{Path, PathBuf};

use pyprof_advise::Advisor;
use pyprof_advise::report::json;
use rayon::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use crate::shared;

/// A generator of random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    fn shuffle<T>(&mut self, rows: &mut [T]) {
        for last in (1..rows.len()).rev() {
            rows.swap(last, self.below(last + 1));
        }
    }
}

/// A trace with its events as they are and in another order, both written the same way.
fn traces(path: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    match path.extension().is_some_and(|e| e == "gz") {
        true => {
            flate2::read::GzDecoder::new(&bytes[..])
                .read_to_string(&mut text)
                .unwrap();
        }
        false => text = String::from_utf8(bytes).unwrap(),
    }
    let mut parts: std::collections::BTreeMap<String, &RawValue> =
        serde_json::from_str(&text).unwrap();
    let events = parts.remove("traceEvents").unwrap().get();
    let mut events: Vec<&RawValue> = serde_json::from_str(events).unwrap();
    let rest = parts
        .iter()
        .map(|(key, value)| format!("{key:?}: {},\n", value.get()));
    let rest: String = rest.collect();
    let write = |place: &str, events: &[&RawValue]| {
        let events: Vec<&str> = events.iter().map(|event| event.get()).collect();
        let file = folder.join(place).join("trace.json");
        std::fs::create_dir_all(folder.join(place)).unwrap();
        let text = format!("{{{rest}\"traceEvents\": [{}]}}", events.join(",\n"));
        std::fs::write(&file, text).unwrap();
        file
    };
    let ordered = write("ordered", &events);
    Random(1).shuffle(&mut events);
    (ordered, write("shuffled", &events))
}

/// A database as it is, and with the rows of each table in another order.
fn databases(path: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let place = |name: &str| {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        folder.join(name).join(path.file_name().unwrap())
    };
    let (ordered, shuffled) = (place("ordered"), place("shuffled"));
    // Both are written by the same SQLite.
    for file in [&ordered, &shuffled] {
        std::fs::write(file, std::fs::read(path).unwrap()).unwrap();
    }
    let database = Connection::open(&shuffled).unwrap();
    database
        .execute_batch("PRAGMA synchronous = OFF; BEGIN")
        .unwrap();
    let mut tables = database
        .prepare(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
        )
        .unwrap();
    let tables: Vec<(String, String)> = tables
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut random = Random(1);
    // The rows of a table with a primary key have an order of their own.
    for (table, _) in tables
        .iter()
        .filter(|(_, sql)| !sql.to_uppercase().contains("PRIMARY KEY"))
    {
        let mut all = database
            .prepare(&format!("SELECT * FROM \"{table}\""))
            .unwrap();
        let columns = all.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
        let mut rows: Vec<Vec<Value>> = all
            .query_map([], row)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        random.shuffle(&mut rows);
        database
            .execute(&format!("DELETE FROM \"{table}\""), [])
            .unwrap();
        let places = vec!["?"; columns].join(",");
        let mut add = database
            .prepare(&format!("INSERT INTO \"{table}\" VALUES ({places})"))
            .unwrap();
        for row in rows {
            add.execute(rusqlite::params_from_iter(row)).unwrap();
        }
    }
    database.execute_batch("COMMIT").unwrap();
    (ordered, shuffled)
}

/// The report without what the file is called and how large it is.
fn report(advisor: &Advisor, file: &Path) -> String {
    let mut report = advisor.report(file).unwrap();
    report.file.clear();
    report.method.file_bytes = 0;
    json(&report)
}

#[test]
fn shuffled_rows_give_the_same_report() {
    let advisor = Advisor::new().unwrap();
    // Times to the microsecond and to the nanosecond, several processes and streams, stacks, markers.
    let names = [
        "deepseek_h800_train.json",
        "dlrm_8ranks/worker0.pt.trace.json.gz",
        "hta_sampled_rank1.json.gz",
        "saf_True_b.json.gz",
        "switch_a100_b.json",
        "tl_h100_vit.json.gz",
        "cs336athrun_win.sqlite",
        "h100_2gpu_1s.sqlite",
        "mfu_2gpu_before.sqlite",
        "mmagic.sqlite",
        "askliar_trace_name.prof",
        "da6bcc3_net.sql",
        "lm_net.sql",
    ];
    let differ: Vec<String> = (names.par_iter())
        .filter_map(|name| {
            let path = shared::path_if_set("profiles")?.join(name);
            let folder = TempDir::new().unwrap();
            let (ordered, shuffled) = match name.contains(".json") {
                true => traces(&path, folder.path()),
                false => databases(&path, folder.path()),
            };
            let (a, b) = (report(&advisor, &ordered), report(&advisor, &shuffled));
            let differing = a.lines().zip(b.lines()).find(|(a, b)| a != b);
            (a != b).then(|| format!("{name}: {differing:?}"))
        })
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
