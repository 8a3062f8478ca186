//! What calls of the two directions know of each other.
//!
//! Traces of 2021 and `emit_nvtx` list shapes, and leave strides, sizes and padding open. Two
//! convolutions of one line of the program may then look alike and differ in their stride: what their
//! backward calls list tells them apart.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::args::Arguments;
use super::model::{ArgValue, OpArgs, OpCall};

/// Calls of the other direction that are compared: more than any operator has.
const MOST: usize = 16;

/// Per call whose arguments leave something open: equal where the calls of the other direction have
/// equal arguments. `None` where there is nothing to compare.
pub(super) fn classes(calls: &[OpCall], arguments: &Arguments) -> Vec<Option<u32>> {
    let open: Vec<bool> = arguments.table.iter().map(leaves_open).collect();
    if !open.contains(&true) {
        return vec![None; calls.len()];
    }
    let class_of = |call: &OpCall| arguments.class(call.args);
    let mut partners: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); calls.len()];
    let mut add = |at: usize, class: Option<u32>| {
        if let (Some(known), Some(class)) = (partners.get_mut(at), class)
            && known.len() < MOST
        {
            known.insert(class);
        }
    };
    for (at, call) in calls.iter().enumerate() {
        // Arguments taken over from the forward call say nothing it does not say itself.
        if call.args_from_forward {
            continue;
        }
        if let Some((id, forward)) = call.forward.and_then(|id| Some((id, calls.get(id.idx())?))) {
            add(at, class_of(forward));
            add(id.idx(), class_of(call));
        }
    }
    let mut known: FxHashMap<BTreeSet<u32>, u32> = FxHashMap::default();
    let open = |call: &OpCall| {
        call.args
            .and_then(|args| open.get(args.idx()).copied())
            .unwrap_or(false)
    };
    calls
        .iter()
        .zip(partners)
        .map(|(call, partners)| {
            if partners.is_empty() || !open(call) {
                return None;
            }
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            Some(*known.entry(partners).or_insert(next))
        })
        .collect()
}

fn leaves_open(args: &OpArgs) -> bool {
    args.items.iter().any(|arg| arg.value == ArgValue::Unknown)
}
