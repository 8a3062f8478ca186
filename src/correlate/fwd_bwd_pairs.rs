//! Distinguishes forward calls by the arguments of their backward calls, and the reverse.
//!
//! Traces of 2021 and `emit_nvtx` record shapes, but not strides, kernel sizes and padding. Two
//! convolutions of one source line may then have equal recorded arguments and different strides. The
//! shapes of their backward calls differ, which separates them.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::args::Arguments;
use super::model::{ArgValue, OpArgs, OpCall};

/// Maximum number of calls of the other direction to compare; more than any operator has.
const MOST: usize = 16;

/// Per call with incomplete arguments: a value that is equal for calls whose calls of the other
/// direction have equal arguments. `None` if the other direction has no call to compare.
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
        // Arguments inherited from the forward call add no information.
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
            .is_some_and(|args| open.get(args.idx()) == Some(&true))
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
