//! The reference measurements. They are not lower bounds: SQLite's default flags take a mutex per
//! column, and both run on one thread.

use std::fmt;
use std::io::Read;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The tables and columns of an export that the readers read.
const TABLES: [(&str, &[&str]); 8] = [
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        &[
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "graphNodeId",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "localMemoryPerThread",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        &["start", "end", "globalTid", "correlationId", "nameId"],
    ),
    (
        "NVTX_EVENTS",
        &[
            "start",
            "end",
            "eventType",
            "globalTid",
            "text",
            "textId",
            "domainId",
            "binaryData",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
            "graphNodeId",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        &[
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "memKind",
            "graphNodeId",
        ],
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        &["start", "end", "correlationId", "globalPid", "syncType"],
    ),
    (
        "PROFILER_OVERHEAD",
        &["start", "end", "globalTid", "nameId"],
    ),
    ("StringIds", &["id", "value"]),
];

/// Reads every column of every table that the readers read, on one thread, with default flags.
pub(super) fn sqlite(path: &Path) {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let conn = Connection::open_with_flags(path, flags).unwrap();
    let mut seen = 0_u64;
    for (table, wanted) in TABLES {
        let mut info = conn
            .prepare(&format!("PRAGMA table_info({table})"))
            .unwrap();
        let has: Vec<String> = info
            .query_map([], |row| row.get(1))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let columns: Vec<String> = wanted
            .iter()
            .filter(|c| has.iter().any(|h| h == *c))
            .map(|c| format!("\"{c}\""))
            .collect();
        if columns.is_empty() {
            continue;
        }
        let sql = format!("SELECT {} FROM {table}", columns.join(", "));
        let mut statement = conn.prepare(&sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns.len() {
                seen += u64::from(row.get_ref(column).unwrap() != ValueRef::Null);
            }
        }
    }
    assert!(seen > 0);
}

/// Decompresses the file, and parses the fields that the reader uses into types.
pub(super) fn json(path: &Path) {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .unwrap();
    } else {
        std::io::BufReader::new(file)
            .read_to_string(&mut text)
            .unwrap();
    }
    let trace: Trace = serde_json::from_str(&text).unwrap();
    assert!(trace.events.0 > 0);
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Events,
}

/// The number of events.
struct Events(u64);

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Events, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Events;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("events")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Events, A::Error> {
                let mut count = 0;
                while let Some(event) = list.next_element::<Event<'de>>()? {
                    std::hint::black_box(&event);
                    count += 1;
                }
                Ok(Events(count))
            }
        }
        from.deserialize_seq(Each)
    }
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Option<&'a RawValue>,
    #[serde(borrow)]
    cat: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(borrow)]
    args: Option<Args<'a>>,
    #[serde(default)]
    id: IgnoredAny,
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Args<'a> {
    correlation: Option<i64>,
    device: Option<i64>,
    stream: Option<i64>,
    #[serde(borrow)]
    grid: Option<&'a RawValue>,
    #[serde(borrow)]
    block: Option<&'a RawValue>,
    #[serde(rename = "registers per thread")]
    registers: Option<i64>,
    #[serde(rename = "shared memory")]
    shared: Option<i64>,
    #[serde(rename = "Sequence number")]
    sequence: Option<i64>,
    #[serde(rename = "Record function id")]
    record: Option<i64>,
    #[serde(rename = "Input Dims", borrow)]
    dims: Option<&'a RawValue>,
    #[serde(rename = "Input type", borrow)]
    types: Option<&'a RawValue>,
    #[serde(rename = "Input Strides", borrow)]
    strides: Option<&'a RawValue>,
    #[serde(rename = "Concrete Inputs", borrow)]
    concrete: Option<&'a RawValue>,
}
