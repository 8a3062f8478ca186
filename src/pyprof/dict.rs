//! One line per kernel: a Python dictionary with PyProf's keys in PyProf's order, or the same in
//! JSON.

use serde::Serialize;

use super::python::{push_list, push_str, tuple};
use super::{Record, Text};

/// A record as a Python dictionary, without the line end.
pub fn python(record: &Record) -> String {
    let place = &*record.place;
    let strings = |out: &mut String, list: &[Text]| push_list(out, list, |o, s| push_str(o, s));
    let numbers = |out: &mut String, list: &[u64]| {
        push_list(out, list, |o, n| o.push_str(&n.to_string()));
    };
    let mut out = String::with_capacity(1024);
    out.push_str("{'kShortName': ");
    push_str(&mut out, &record.short_name);
    out.push_str(&format!(", 'kDuration': {}, 'layer': ", record.duration));
    strings(&mut out, &place.layer);
    out.push_str(", 'trace': ");
    strings(&mut out, &place.trace);
    out.push_str(", 'reprMarkers': ");
    strings(&mut out, &place.reprs);
    out.push_str(", 'marker': ");
    strings(&mut out, &place.markers);
    out.push_str(", 'seqMarker': ");
    strings(&mut out, &place.seq_markers);
    out.push_str(", 'seqId': ");
    numbers(&mut out, &record.seq);
    out.push_str(&format!(", 'subSeqId': {}, 'altSeqId': ", record.sub));
    numbers(&mut out, &record.alt);
    out.push_str(&format!(", 'dir': '{}', 'mod': ", place.dir.name()));
    strings(&mut out, &place.mods);
    out.push_str(", 'op': ");
    strings(&mut out, &place.ops);
    let tid = record
        .tid
        .map_or_else(|| "None".to_owned(), |tid| tid.to_string());
    out.push_str(&format!(
        ", 'tid': {tid}, 'device': {}, 'stream': {}, 'grid': {}, 'block': {}, 'kLongName': ",
        record.device,
        record.stream,
        tuple(&record.grid),
        tuple(&record.block)
    ));
    push_str(&mut out, &record.long_name);
    out.push('}');
    out
}

/// The keys of a line, in order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    k_short_name: &'a str,
    k_duration: i64,
    layer: Vec<&'a str>,
    trace: Vec<&'a str>,
    repr_markers: Vec<&'a str>,
    marker: Vec<&'a str>,
    seq_marker: Vec<&'a str>,
    seq_id: &'a [u64],
    sub_seq_id: u64,
    alt_seq_id: &'a [u64],
    dir: &'a str,
    #[serde(rename = "mod")]
    module: Vec<&'a str>,
    op: Vec<&'a str>,
    tid: Option<u64>,
    device: u32,
    stream: u32,
    grid: [u32; 3],
    block: [u32; 3],
    k_long_name: &'a str,
}

/// A record as a JSON object, without the line end.
pub fn json(record: &Record) -> String {
    let place = &*record.place;
    let line = Line {
        k_short_name: &record.short_name,
        k_duration: record.duration,
        layer: texts(&place.layer),
        trace: texts(&place.trace),
        repr_markers: texts(&place.reprs),
        marker: texts(&place.markers),
        seq_marker: texts(&place.seq_markers),
        seq_id: &record.seq,
        sub_seq_id: record.sub,
        alt_seq_id: &record.alt,
        dir: place.dir.name(),
        module: texts(&place.mods),
        op: texts(&place.ops),
        tid: record.tid,
        device: record.device,
        stream: record.stream,
        grid: record.grid,
        block: record.block,
        k_long_name: &record.long_name,
    };
    // Strings and integers only: nothing that could fail.
    serde_json::to_string(&line).unwrap_or_default()
}

fn texts(list: &[Text]) -> Vec<&str> {
    list.iter().map(|text| &**text).collect()
}
