//! The keys of cost files, for the loader, the documentation and the JSON Schema.

use crate::base::cel;
use crate::base::schema::{self, Key, Shape, keys};
use crate::correlate::Direction;
use crate::correlate::args::MAX_RANK;
use crate::cost::kernel_name::Family;
use crate::cost::model::UnknownCost;

pub(super) const DIRECTIONS: [(Direction, &str); 3] = [
    (Direction::Fprop, "fprop"),
    (Direction::Bprop, "bprop"),
    (Direction::Update, "update"),
];

/// Maximum number of costs and tests in all files together.
pub(super) const MAX_ENTRIES: usize = 5_000;

const EXPRESSION: Shape = Shape::Text(1, cel::MAX_SOURCE);
const DIRECTION: Shape = Shape::Word(|| DIRECTIONS.map(|(_, word)| word).into());
const COUNT: Shape = Shape::Whole(0, i64::MAX);
const PLAIN: &[Shape] = &[Shape::Text(0, 2_000), Shape::Number, Shape::Flag];
const VALUE: &[Shape] = &[
    Shape::Text(0, 2_000),
    Shape::Number,
    Shape::Flag,
    Shape::List(&Shape::Either(PLAIN), 10_000),
];
const ARGUMENT: &[Shape] = &[
    Shape::Either(VALUE),
    Shape::Table(ARGUMENT_KEYS, &[&["value"], &["text"], &["shape"]]),
];

/// The tables of a cost file.
pub(super) const FILE_KEYS: &[Key] = keys! {
    /// an operator and what a call of it costs
    required "cost": Shape::Tables(COST_KEYS, &[], 1, MAX_ENTRIES),
    /// a call and the figures it is held to
    required "test": Shape::Tables(TEST_KEYS, &[], 1, MAX_ENTRIES),
};

/// Every key of a `[[cost]]`, in the order in which costs are written.
pub const COST_KEYS: &[Key] = keys! {
    /// the operator as reports show it, with `*` for anything: `my_lib::fused_mlp`, `MyModule.*`;
    /// `.` and `::` are the same
    required "op": Shape::Text(1, 500),
    /// what kind of work it is: `gemm`, `norm`, `pointwise`, ...
    required "family": Shape::Word(|| Family::ALL.map(|(_, name)| name).into()),
    /// only calls in the `fprop`, `bprop` or `update`; without it calls of any direction with
    /// arguments of their own. Backward work known by its forward's arguments needs `bprop`
    "direction": DIRECTION,
    /// names of the arguments by position, for use in the expressions; also their keywords
    "args": Shape::List(&Shape::Text(1, 200), 1_000),
    /// FLOPs of one call: an expression
    required "flops": EXPRESSION,
    /// bytes one call must move: an expression
    required "bytes": EXPRESSION,
    /// `{ m = ..., n = ..., k = ..., batch = ... }` of a matrix product, as expressions
    "dims": Shape::Table(DIM_KEYS, &[]),
    /// where the formulas come from
    "source": Shape::Text(0, 2_000),
};

/// Every key of `dims`.
pub const DIM_KEYS: &[Key] = keys! {
    /// rows of the result
    required "m": EXPRESSION,
    /// columns of the result
    required "n": EXPRESSION,
    /// the dimension summed over
    required "k": EXPRESSION,
    /// products of this size; 1 when left out
    "batch": EXPRESSION,
};

/// Every key of a `[[test]]`.
pub const TEST_KEYS: &[Key] = keys! {
    /// an operator's name, without `*`
    required "op": Shape::Text(1, 500),
    /// `fprop` (the default), `bprop` or `update`
    "direction": DIRECTION,
    /// the arguments: `"fp16[8, 64]"`, `"[8, 64]"` without a type, `"none"`, `"?"` for one that is
    /// not recorded, numbers, `true`, lists, `{ text = "mean" }`, `{ name = "eps", value = 1e-5 }`,
    /// `{ shape = [8, 64], dtype = "fp16", strides = [64, 1] }`
    required "args": Shape::List(&Shape::Either(ARGUMENT), 1_000),
    /// the FLOPs it should cost, to the digit
    "flops": COUNT,
    /// the bytes it should cost, to the digit
    "bytes": COUNT,
    /// why its cost should be unknown: `no_shapes`, `no_dtype` or `bad_arguments`
    "unknown": Shape::Word(|| UnknownCost::ALL.map(|(_, name)| name).into()),
};

/// The keys of an argument written as a table.
pub(super) const ARGUMENT_KEYS: &[Key] = keys! {
    /// its keyword, when it was passed by one
    "name": Shape::Text(0, 200),
    /// any argument
    "value": Shape::Either(VALUE),
    /// dimensions of a tensor
    "shape": Shape::List(&COUNT, MAX_RANK),
    /// element type of a tensor; left out where it is not recorded
    "dtype": Shape::Text(1, 40),
    /// elements from one to the next, per dimension
    "strides": Shape::List(&Shape::Whole(i64::MIN, i64::MAX), MAX_RANK),
    /// a string
    "text": Shape::Text(0, 2_000),
};

/// The JSON Schema of cost files.
pub fn schema() -> String {
    let about = "FLOPs and bytes of operators of one's own, for `pyprof-advise --costs`.";
    schema::document("pyprof-advise costs", about, FILE_KEYS, &[])
}
