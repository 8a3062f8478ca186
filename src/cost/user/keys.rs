//! The keys of cost files: what the loader takes, the documents explain and editors complete.

use super::argument::MAX_RANK;
use super::read::DIRECTIONS;
use crate::base::cel;
use crate::base::schema::{self, Key, Shape, key};
use crate::cost::{Family, UnknownCost};

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
pub(super) const FILE_KEYS: &[Key] = &[
    key(
        "cost",
        true,
        "an operator and what a call of it costs",
        Shape::Tables(COST_KEYS, &[], 1),
    ),
    key(
        "test",
        true,
        "a call and the figures it is held to",
        Shape::Tables(TEST_KEYS, &[], 1),
    ),
];

/// Every key of a `[[cost]]`, in the order in which costs are written.
pub const COST_KEYS: &[Key] = &[
    key(
        "op",
        true,
        "the operator as reports show it, with `*` for anything: `my_lib::fused_mlp`, `MyModule.*`; \
         `.` and `::` are the same",
        Shape::Text(1, 500),
    ),
    key(
        "family",
        true,
        "what kind of work it is: `gemm`, `norm`, `pointwise`, ...",
        Shape::Word(|| Family::ALL.map(Family::name).into()),
    ),
    key(
        "direction",
        false,
        "only calls in the `fprop`, `bprop` or `update`; without it calls of any direction with \
         arguments of their own. Backward work known by its forward's arguments needs `bprop`",
        DIRECTION,
    ),
    key(
        "args",
        false,
        "names of the arguments by position, for use in the expressions; also their keywords",
        Shape::List(&Shape::Text(1, 200), 1_000),
    ),
    key(
        "flops",
        true,
        "FLOPs of one call: an expression",
        EXPRESSION,
    ),
    key(
        "bytes",
        true,
        "bytes one call must move: an expression",
        EXPRESSION,
    ),
    key(
        "dims",
        false,
        "`{ m = ..., n = ..., k = ..., batch = ... }` of a matrix product, as expressions",
        Shape::Table(DIM_KEYS, &[]),
    ),
    key(
        "source",
        false,
        "where the formulas come from",
        Shape::Text(0, 2_000),
    ),
];

/// Every key of `dims`.
pub const DIM_KEYS: &[Key] = &[
    key("m", true, "rows of the result", EXPRESSION),
    key("n", true, "columns of the result", EXPRESSION),
    key("k", true, "the dimension summed over", EXPRESSION),
    key(
        "batch",
        false,
        "products of this size; 1 when left out",
        EXPRESSION,
    ),
];

/// Every key of a `[[test]]`.
pub const TEST_KEYS: &[Key] = &[
    key(
        "op",
        true,
        "an operator's name, without `*`",
        Shape::Text(1, 500),
    ),
    key(
        "direction",
        false,
        "`fprop` (the default), `bprop` or `update`",
        DIRECTION,
    ),
    key(
        "args",
        true,
        "the arguments: `\"fp16[8, 64]\"`, `\"[8, 64]\"` without a type, `\"none\"`, `\"?\"` for one \
         that is not recorded, numbers, `true`, lists, `{ text = \"mean\" }`, \
         `{ name = \"eps\", value = 1e-5 }`, `{ shape = [8, 64], dtype = \"fp16\", strides = [64, 1] }`",
        Shape::List(&Shape::Either(ARGUMENT), 1_000),
    ),
    key(
        "flops",
        false,
        "the FLOPs it should cost, to the digit",
        COUNT,
    ),
    key(
        "bytes",
        false,
        "the bytes it should cost, to the digit",
        COUNT,
    ),
    key(
        "unknown",
        false,
        "why it should have no price: `no_shapes`, `no_dtype` or `bad_arguments`",
        Shape::Word(|| UnknownCost::ALL.map(UnknownCost::name).into()),
    ),
];

/// The keys of an argument that is spelled out.
pub(super) const ARGUMENT_KEYS: &[Key] = &[
    key(
        "name",
        false,
        "its keyword, when it was passed by one",
        Shape::Text(0, 200),
    ),
    key("value", false, "any argument", Shape::Either(VALUE)),
    key(
        "shape",
        false,
        "dimensions of a tensor",
        Shape::List(&COUNT, MAX_RANK),
    ),
    key(
        "dtype",
        false,
        "element type of a tensor; left out where it is not recorded",
        Shape::Text(1, 40),
    ),
    key(
        "strides",
        false,
        "elements from one to the next, per dimension",
        Shape::List(&Shape::Whole(i64::MIN, i64::MAX), MAX_RANK),
    ),
    key("text", false, "a string", Shape::Text(0, 2_000)),
];

/// The JSON Schema of cost files.
pub fn schema() -> String {
    let about = "FLOPs and bytes of operators of one's own, for `pyprof-advise --costs`.";
    schema::document("pyprof-advise costs", about, FILE_KEYS, &[])
}
