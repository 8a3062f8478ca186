//! Calls of operators for the tests of their costs.

use crate::base::DType;
use crate::correlate::{Arg, ArgValue, OpArgs, OpName, Tensor};

/// A contiguous tensor.
pub(super) fn t(dtype: DType, shape: &[u64]) -> ArgValue {
    ArgValue::Tensor(Tensor {
        shape: shape.to_vec(),
        dtype: Some(dtype),
        strides: None,
    })
}

/// A call without names of arguments.
pub(super) fn call(module: &str, name: &str, values: Vec<ArgValue>) -> (OpName, OpArgs) {
    let op = OpName {
        module: module.to_owned(),
        name: name.to_owned(),
    };
    let items = values.into_iter().map(|value| Arg { name: None, value });
    let args = OpArgs {
        items: items.collect(),
    };
    (op, args)
}
