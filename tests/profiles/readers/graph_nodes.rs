//! Kernels of graph replays and their captures. No export that covers a capture is at hand: the columns are those
//! that the documentation lists and that NVIDIA's own scripts join, the rows are made up.

use pyprof_advise::profile::Profile;

use super::{Built, PID, TID, note, open, open_pruned, with};

const NODES: &str =
    "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, eventClass INTEGER,
     globalTid INTEGER, nameId INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);";

/// A node and its original, 0 for none.
fn node(start: i64, tid: i64, node: i64, original: i64) -> String {
    format!(
        "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES ({start}, {start}, 69, {tid}, NULL, {node}, NULLIF({original}, 0));"
    )
}

/// A kernel that a graph replays, with a grid of this many blocks.
fn replayed(start: i64, process: i64, node: i64, blocks: i64) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {}, 0, 1, 7, 8, {process}, 1, 1,
             {blocks}, 1, 1, 128, 1, 1, 40, 0, 0, 0, {node});",
        start + 10
    )
}

fn built(rows: &[String]) -> Built {
    with(&format!("{NODES}\n{}", rows.concat()))
}

/// Per kernel in a graph: the time of its capture and the thread, as far as they are known.
fn captures(profile: &Profile) -> Vec<Option<(i64, u64)>> {
    let replayed = profile.kernels.iter().filter(|kernel| kernel.in_graph);
    let capture = |kernel: &pyprof_advise::profile::Kernel| {
        let capture = profile.captures[kernel.captured?.idx()];
        Some((capture.time, profile.threads[capture.thread.idx()].tid))
    };
    replayed.map(capture).collect()
}

#[test]
fn replayed_kernels_refer_to_the_capture_of_their_node() {
    let engine = PID | 4250;
    let built = built(&[
        node(110, TID, 20, 0),
        node(120, engine, 21, 0),
        node(130, TID, 22, 0),
        // Two graphs are made of the same capture.
        node(200, TID, 30, 20),
        node(201, TID, 31, 21),
        node(210, TID, 40, 20),
        // A child graph was cloned into another graph before.
        node(220, TID, 50, 22),
        node(230, TID, 60, 50),
        replayed(1_000, PID, 30, 8),
        replayed(1_100, PID, 31, 8),
        replayed(1_200, PID, 40, 8),
        replayed(1_300, PID, 60, 8),
        replayed(2_000, PID, 30, 8),
    ]);
    let expected = [
        (110, 4243),
        (120, 4250),
        (110, 4243),
        (130, 4243),
        (110, 4243),
    ];
    for profile in [open(&built.path), open_pruned(&built.path)] {
        let profile = profile.unwrap();
        assert_eq!(captures(&profile), expected.map(Some));
        assert_eq!(profile.captures.len(), 3, "a row per captured node");
        assert_eq!(profile.kernels[0].captured, None, "launched by a call");
        assert_eq!(profile.notes, []);
    }
}

#[test]
fn nodes_of_two_processes_may_have_the_same_number() {
    let other = (1_i64 << 56) | (4300 << 24);
    let built = built(&[
        node(110, TID, 20, 0),
        node(120, other | 4301, 20, 0),
        node(200, TID, 30, 20),
        node(210, other | 4301, 30, 20),
        node(220, TID, 31, 20),
        replayed(1_000, PID, 30, 8),
        replayed(1_100, other, 30, 8),
        // Only the other process has a clone with this number.
        replayed(1_200, other, 31, 8),
    ]);
    let profile = open(&built.path).unwrap();
    let expected = [Some((110, 4243)), Some((120, 4301)), None];
    assert_eq!(captures(&profile), expected);
}

#[test]
fn captures_that_are_not_recorded_are_unknown() {
    let built = built(&[
        // The recording began between capture and instantiation.
        node(200, TID, 30, 20),
        // A node without an original is no clone of a capture.
        node(210, TID, 31, 0),
        // Originals in a circle.
        node(220, TID, 32, 33),
        node(221, TID, 33, 32),
        node(222, TID, 34, 34),
        replayed(1_000, PID, 30, 8),
        replayed(1_100, PID, 31, 8),
        replayed(1_200, PID, 32, 8),
        replayed(1_300, PID, 34, 8),
        replayed(1_400, PID, 99, 8),
    ]);
    let profile = open(&built.path).unwrap();
    assert_eq!(captures(&profile), [None; 5]);
    assert_eq!((profile.captures.len(), profile.notes.len()), (0, 0));
    // Older exports have neither the table nor the column of originals.
    let rows = replayed(1_000, PID, 30, 8);
    for table in [
        String::new(),
        NODES.replace(", originalGraphNodeId INTEGER", "")
            + &format!(
                "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (200, 200, 69, {TID}, NULL, 30);"
            ),
    ] {
        let profile = open(&with(&format!("{table}{rows}")).path).unwrap();
        assert_eq!(captures(&profile), [None]);
        assert_eq!(profile.notes, []);
    }
}

#[test]
fn kernels_of_updated_graphs_have_no_capture() {
    let built = built(&[
        node(110, TID, 20, 0),
        node(120, TID, 21, 0),
        node(200, TID, 30, 20),
        node(201, TID, 31, 21),
        replayed(1_000, PID, 30, 8),
        replayed(1_100, PID, 31, 8),
        // `cudaGraphExecUpdate` gave this node another grid.
        replayed(2_000, PID, 30, 16),
        replayed(2_100, PID, 31, 8),
    ]);
    let profile = open(&built.path).unwrap();
    let other = Some((120, 4243));
    assert_eq!(captures(&profile), [None, other, None, other]);
}

#[test]
fn damaged_node_rows_are_skipped_and_counted() {
    let built = built(&[
        node(110, TID, 20, 0),
        node(200, TID, 30, 20),
        "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (1, 1, 69, NULL, NULL, 21, NULL), \
             (1, 1, 69, 'x', NULL, 22, 20), (1, 1, 69, 7, NULL, NULL, 20), \
             (NULL, 1, 69, 7, NULL, 23, NULL), (1, 1, 69, 7, NULL, 24, 'x');"
            .to_owned(),
        replayed(1_000, PID, 30, 8),
    ]);
    let profile = open(&built.path).unwrap();
    assert_eq!(captures(&profile), [Some((110, 4243))]);
    let notes: Vec<&str> = (profile.notes.iter())
        .filter(|note| note.code == "rows_skipped")
        .map(|note| note.text.as_str())
        .collect();
    let rows = "of 7 CUDA graph node rows had no readable";
    assert_eq!(
        notes,
        [
            format!("1 {rows} start time and were skipped."),
            format!("2 {rows} thread and were skipped."),
            format!("1 {rows} id and were skipped."),
        ]
    );
    assert_eq!(note(&profile, "ranges_missing"), None);
}

/// Copies and memsets of graphs, with the columns of real exports.
#[test]
fn replayed_copies_and_memsets_refer_to_the_capture_of_their_node() {
    let tables = "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,
             srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER,
             streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, memKind INTEGER,
             graphNodeId INTEGER);";
    let copy = |start: i64, node: &str, bytes: i64| {
        format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({start}, {}, 0, 7, 8, {PID}, {bytes}, 8, 2, 2, {node});",
            start + 10
        )
    };
    let set = |start: i64, node: &str| {
        format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES ({start}, {}, 0, 7, 8, {PID}, 64, 2, {node});",
            start + 10
        )
    };
    let built = built(&[
        tables.to_owned(),
        node(110, TID, 20, 0),
        node(120, TID, 21, 0),
        node(130, TID, 22, 0),
        node(200, TID, 30, 20),
        node(201, TID, 31, 21),
        node(202, TID, 32, 22),
        copy(1_000, "30", 4096),
        copy(1_100, "32", 4096),
        set(1_200, "31"),
        copy(2_000, "30", 4096),
        // The program has given this node another size.
        copy(2_100, "32", 8192),
        set(2_200, "31"),
        copy(3_000, "NULL", 4096),
        set(3_100, "NULL"),
    ]);
    let profile = open(&built.path).unwrap();
    let time = |captured: Option<pyprof_advise::profile::CaptureId>| {
        captured.map(|id| profile.captures[id.idx()].time)
    };
    let copies: Vec<_> = profile.copies.iter().map(|c| time(c.captured)).collect();
    assert_eq!(copies, [Some(110), None, Some(110), None, None]);
    let sets: Vec<_> = profile.sets.iter().map(|s| time(s.captured)).collect();
    assert_eq!(sets, [Some(120), Some(120), None]);
    assert_eq!(profile.notes, []);
}
