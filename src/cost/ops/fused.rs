//! Kernels compiled by TorchInductor. Their host event is named after the kernel
//! (`triton_poi_fused_add_mul_3`) and lists every pointer argument, outputs included.

use super::Entry;
use super::call::Call;
use crate::cost::{Dims, Family, FlopsClass, OpCost, UnknownCost};

const NOTE: &str =
    "a compiled kernel: its arithmetic is not in the profile, in-out pointers count once";

const POINTWISE: Entry = Entry {
    names: &["triton_poi_*"],
    namespaces: &[],
    family: Family::Pointwise,
    class: FlopsClass::Zero,
    flops: "not counted",
    bytes: "every pointer argument once",
    backward: "",
    source: "TorchInductor's kernel signature: inputs and outputs are all pointer arguments",
    handler: pointers,
};

const REDUCTION: Entry = Entry {
    names: &["triton_red_*", "triton_per_*"],
    family: Family::Reduce,
    ..POINTWISE
};

/// The entry of a compiled kernel's name. These names are generated, so the table cannot list them.
pub(super) fn entry(base: &str) -> Option<&'static Entry> {
    let kind = base.strip_prefix("triton_")?;
    match kind.get(..4)? {
        "poi_" => Some(&POINTWISE),
        "red_" | "per_" => Some(&REDUCTION),
        _ => None,
    }
}

fn pointers(call: &Call) -> Result<OpCost, UnknownCost> {
    let mut bytes = 0_u64;
    let mut n = 0_u64;
    for t in call.args.tensors().filter(|t| !t.shape.is_empty()) {
        bytes = bytes.saturating_add(call.bytes(t)?);
        n = n.max(super::call::count(&t.shape));
    }
    if n == 0 {
        return Err(UnknownCost::NoShapes);
    }
    let mut cost = call.one(0, Ok(bytes), Dims::Elements { numel: n })?;
    cost.note = Some(NOTE);
    Ok(cost)
}
