//! Calls of operators for tests.

#![allow(clippy::unwrap_used)]

use super::cost;
use crate::base::DType;
use crate::correlate::{Direction, OpArgs, OpName};
use crate::cost::model::{OpCost, UnknownCost};
use crate::cost::user::argument::testing::arguments;

pub(super) fn op(full: &str) -> OpName {
    let (module, name) = full
        .split_once("::")
        .or_else(|| full.rsplit_once('.'))
        .unwrap_or(("", full));
    OpName {
        module: module.into(),
        name: name.into(),
    }
}

/// The operator and the arguments of `aten::mm(fp16[4, 6], fp16[6, 8])`.
pub(super) fn call(text: &str) -> (OpName, OpArgs) {
    let (name, rest) = text.split_once('(').unwrap_or((text, ")"));
    (op(name), arguments(rest.strip_suffix(')').unwrap()))
}

pub(super) fn fprop(text: &str) -> Result<OpCost, UnknownCost> {
    of_dtype(text, None)
}

/// The cost of a call whose kernel computes with this type.
pub(super) fn of_dtype(text: &str, dtype: Option<DType>) -> Result<OpCost, UnknownCost> {
    let (name, args) = call(text);
    cost(&name, &args, Direction::Fprop, false, dtype)
}

pub(super) fn totals(cost: Result<OpCost, UnknownCost>) -> (u64, u64) {
    let cost = cost.unwrap();
    (cost.flops(), cost.bytes())
}

/// Compares the FLOPs and bytes of forward calls.
pub(super) fn check(rows: &[(&str, u64, u64)]) {
    for (call, flops, bytes) in rows {
        assert_eq!(totals(fprop(call)), (*flops, *bytes), "{call}");
    }
}
