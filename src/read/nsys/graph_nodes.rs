//! Nodes of CUDA graphs: where the program captured the kernels that graphs replay.
//!
//! With `--cuda-graph-trace=node`, `CUDA_GRAPH_NODE_EVENTS` has a row for every node that is made while
//! Nsight Systems records: one without an original for a node that a call captures, and one with an
//! original for each of its clones. A kernel names the clone that ran, made when the graph was
//! instantiated; copies and memsets do alike. NVIDIA joins the same columns in
//! <https://github.com/NVIDIA/TensorRT-LLM/blob/main/examples/layer_wise_benchmarks/parse.py>.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Pids, process_key};
use crate::profile::{Capture, CaptureId, Profile};
use crate::read::builder::Builder;
use crate::read::integer_rows::for_each_row;
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::Db;

/// Most clones between a kernel and its capture; a child graph adds one to that of the instantiation.
const MOST_CLONES: usize = 64;

/// A process (its `globalPid`) and a node; two processes use the same numbers.
type Node = (i64, i64);

/// The nodes of an export.
#[derive(Default)]
pub(super) struct GraphNodes {
    /// The node that each clone was made from.
    originals: FxHashMap<Node, i64>,
    /// When and on which thread (`globalTid`) the other nodes were made.
    made: FxHashMap<Node, (i64, i64)>,
    /// The captures that are in the profile.
    captures: FxHashMap<Node, CaptureId>,
}

const NODE_COLUMNS: [&str; 4] = ["start", "globalTid", "graphNodeId", "originalGraphNodeId"];

impl GraphNodes {
    pub(super) fn read(
        db: &Db,
        profile: &mut Profile,
        progress: &dyn Progress,
    ) -> Result<GraphNodes, ReadError> {
        let mut nodes = GraphNodes::default();
        let mut skipped = SkippedRows::default();
        let table = "CUDA_GRAPH_NODE_EVENTS";
        for_each_row(
            db,
            table,
            NODE_COLUMNS,
            progress,
            |[start, tid, node, original]| {
                skipped.rows += 1;
                let Some(tid) = skipped.owner(tid) else {
                    return;
                };
                let Some(node) = skipped.value(node) else {
                    return;
                };
                let node = (process_key(tid), node);
                if let Some(original) = original.filter(|original| *original != 0) {
                    nodes.originals.entry(node).or_insert(original);
                } else if let Some(start) = skipped.start(start) {
                    let first = nodes.made.entry(node).or_insert((start, tid));
                    *first = (*first).min((start, tid));
                }
            },
        )?;
        skipped.note(profile, "CUDA graph node", "thread", "id");
        Ok(nodes)
    }

    /// The capture of the node that work of a process ran as. The process is a `globalPid`.
    pub(super) fn capture(
        &mut self,
        node: i64,
        process: i64,
        pids: &Pids,
        builder: &mut Builder,
    ) -> Option<CaptureId> {
        let process = process_key(process);
        // Without an original it was made by the instantiation, whose ranges say nothing of the kernel.
        let mut original = *self.originals.get(&(process, node))?;
        let mut clones = 1;
        while let Some(next) = self.originals.get(&(process, original)) {
            original = *next;
            clones += 1;
            if clones > MOST_CLONES {
                return None;
            }
        }
        let original = (process, original);
        if let Some(known) = self.captures.get(&original) {
            return Some(*known);
        }
        let (time, tid) = *self.made.get(&original)?;
        let thread = pids.thread(builder, tid);
        let captures = &mut builder.profile.captures;
        captures.push(Capture { time, thread });
        let id = CaptureId::new(captures.len() - 1);
        self.captures.insert(original, id);
        Some(id)
    }
}

/// Forgets captures whose kernel, copy or memset differs between replays. The program has updated the graph
/// (`cudaGraphExecUpdate`), so they may no longer do what was captured.
pub(super) fn forget_updated(profile: &mut Profile) {
    if profile.captures.is_empty() {
        return;
    }
    forget(
        &mut profile.kernels,
        |kernel| (kernel.name, kernel.config),
        |kernel| &mut kernel.captured,
    );
    forget(
        &mut profile.copies,
        |copy| (copy.bytes, copy.kind),
        |copy| &mut copy.captured,
    );
    forget(&mut profile.sets, |set| set.bytes, |set| &mut set.captured);
}

/// Forgets the captures of work that is not of one kind.
fn forget<T, K: PartialEq>(
    work: &mut [T],
    kind: fn(&T) -> K,
    captured: fn(&mut T) -> &mut Option<CaptureId>,
) {
    let mut kinds: FxHashMap<CaptureId, K> = FxHashMap::default();
    let mut updated: FxHashSet<CaptureId> = FxHashSet::default();
    for one in &mut *work {
        let now = kind(one);
        if let Some(capture) = *captured(one) {
            match kinds.entry(capture) {
                Entry::Vacant(first) => {
                    first.insert(now);
                }
                Entry::Occupied(first) if *first.get() != now => {
                    updated.insert(capture);
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    if updated.is_empty() {
        return;
    }
    for one in work {
        let capture = captured(one);
        *capture = capture.filter(|id| !updated.contains(id));
    }
}
