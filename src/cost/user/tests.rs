//! Cost files: valid keys, messages for mistakes, and resulting costs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::argument::testing::arguments;
use super::*;
use crate::base::DType;
use crate::base::diag::{Complaints, Source};
use crate::correlate::{Arg, ArgValue, Direction, OpArgs, Tensor};
use crate::cost::{Dims, Family, FlopsClass, GemmSize, Role, UnknownCost};

const GOOD: &str = r#"
[[cost]]
op     = "my_lib::fused_mlp"
family = "gemm"
args   = ["x", "up", "down", "bias"]
flops  = '2 * numel("x") * dim("up", 0) * 2'
bytes  = 'bytes("x") * 2 + bytes("up") + bytes("down") + (given("bias") ? bytes("bias") : 0)'
dims   = { m = 'numel("x") / dim("x", -1)', n = 'dim("up", 0)', k = 'dim("x", -1)' }
source = "both products; the activation stays on the chip"

[[cost]]
op        = "my_lib.fused_mlp"
family    = "gemm"
direction = "bprop"
flops     = '4 * numel(0) * dim(1, 0) * 2'
bytes     = '2 * bytes()'

[[test]]
op    = "my_lib::fused_mlp"
args  = ["fp16[2, 8, 64]", "fp16[256, 64]", "fp16[64, 256]"]
flops = 1048576
bytes = 69632

[[test]]
op      = "my_lib::fused_mlp"
args    = ["fp16[2, 8, 64]", "?", "fp16[64, 256]"]
unknown = "no_shapes"

[[test]]
op    = "my_lib::fused_mlp"
args  = ["[2, 8, 64]", "[256, 64]", "[64, 256]"]
flops = 1048576

[[test]]
op        = "my_lib::fused_mlp"
direction = "bprop"
args      = ["fp16[2, 8, 64]", "fp16[256, 64]", "fp16[64, 256]"]
flops     = 2097152
bytes     = 135168
"#;

fn read(text: &str) -> Result<UserCosts, Complaints> {
    UserCosts::read(&[Source::new("my.toml", text)])
}

/// A file with one cost with these expressions, and a test.
fn with(flops: &str, bytes: &str) -> String {
    format!(
        "[[cost]]\nop = \"a::b\"\nfamily = \"pointwise\"\nargs = [\"x\", \"y\"]\nflops = '{flops}'\n\
         bytes = '{bytes}'\n[[test]]\nop = \"a::b\"\nargs = [\"fp32[4]\"]\nflops = 4\nbytes = 16\n"
    )
}

/// The FLOPs that an expression returns for some arguments.
fn flops(expression: &str, args: &str) -> Result<u64, UnknownCost> {
    let costs = read(&with(expression, "1")).unwrap_or_else(|c| panic!("{expression}: {c}"));
    let cost = &costs.costs()[0];
    let cost = cost.cost(&arguments(args), Direction::Fprop, None);
    cost.map(|c| c.flops())
}

#[test]
fn valid_files_are_read_and_their_tests_pass() {
    let costs = read(GOOD).unwrap_or_else(|c| panic!("{c}"));
    let wrong: Vec<_> = costs
        .run_tests()
        .into_iter()
        .filter(|p| !p.passed())
        .collect();
    assert_eq!(wrong, []);
    assert_eq!(costs.run_tests().len(), 4);
    let op = op_name("my_lib::fused_mlp");
    assert!(costs.knows(&op) && !costs.knows(&op_name("my_lib::fused")));
    let forward = costs.find(&op, Direction::Unknown, false).unwrap();
    assert_eq!(forward.direction, None);
    // Only the forward's arguments are known, and the forward's cost does not apply to the update.
    let update = costs.find(&op, Direction::Update, true);
    assert!(update.is_none());
    let backward = costs.find(&op, Direction::Bprop, true).unwrap();
    assert_eq!(backward.direction, Some(Direction::Bprop));
    let examples = costs.examples(forward);
    assert_eq!(
        examples[0],
        "my_lib::fused_mlp(fp16[2, 8, 64], fp16[256, 64], fp16[64, 256]): 1.05 MFLOP, 69.6 kB"
    );
}

#[test]
fn dims_become_gemm_dimensions() {
    let costs = read(GOOD).unwrap();
    let case = &costs.cases()[0];
    let cost = costs.costs()[0].cost(&case.args, Direction::Fprop, None);
    let cost = cost.unwrap();
    assert_eq!((cost.family, cost.class), (Family::Gemm, FlopsClass::Exact));
    let Dims::Gemm(GemmSize { batch, m, n, k, .. }) = cost.roles[0].dims else {
        panic!("{:?}", cost.roles);
    };
    assert_eq!((batch, m, n, k), (1, 16, 256, 64));
    assert_eq!(cost.roles[0].role, Role::Fwd);
}

#[test]
fn patterns_match_modules() {
    let text = with("1", "1").replace("a::b", "MyModule.*");
    let text = text.replacen(
        "op = \"MyModule.*\"\nargs",
        "op = \"MyModule.forward\"\nargs",
        1,
    );
    let costs = read(&text).unwrap_or_else(|c| panic!("{c}"));
    for (name, known) in [
        ("MyModule.forward", true),
        ("MyModule::forward", true),
        ("MyModule2.forward", false),
        ("forward", false),
    ] {
        assert_eq!(costs.knows(&op_name(name)), known, "{name}");
    }
}

#[test]
fn functions_read_the_arguments() {
    use UnknownCost::{BadArguments, NoDType, NoShapes};
    let x = "fp32[4, 6]";
    let list = "(fp32[2, 3], fp16[5])";
    let and = |rest: &str| format!("{x}, {rest}");
    for (expression, args, want) in [
        ("dim(0, -1) * dim(0, 0)", x, Ok(24)),
        ("dim(\"x\", 1)", "x = fp32[4, 6]", Ok(6)),
        ("dim(0, 1)", "x = fp32[4, 6]", Ok(6)),
        ("dim(0, 2)", x, Err(BadArguments)),
        ("dim(0, -3)", x, Err(BadArguments)),
        ("dim(1, 0)", x, Err(BadArguments)),
        ("dim(0, 0)", "", Err(NoShapes)),
        ("dim(0, 0)", "?", Err(NoShapes)),
        ("rank(0) + count()", &and(x), Ok(4)),
        ("numel(0)", list, Ok(11)),
        ("numel()", &and(list), Ok(35)),
        ("bytes(0)", list, Ok(34)),
        ("count(0)", list, Ok(2)),
        ("bytes(0)", "[4]", Err(NoDType)),
        ("bytes(0, \"int64\")", "[4]", Ok(32)),
        ("itemsize(0) * 10", x, Ok(40)),
        ("dtype(0) == \"fp32\" ? 1 : 2", x, Ok(1)),
        ("integer(1, 7)", x, Ok(7)),
        ("integer(1, 7)", &and("none"), Ok(7)),
        ("integer(1, 7)", &and("3"), Ok(3)),
        ("integer(1, 7)", &and("?"), Err(NoShapes)),
        ("integer(1)", x, Err(BadArguments)),
        ("item(1, -1)", &and("(5)"), Ok(5)),
        ("number(1, 2) * 1.5", x, Ok(3)),
        ("flag(1, true) ? 1 : 2", &and("false"), Ok(2)),
        ("text(1, \"mean\") == \"mean\" ? 1 : 2", x, Ok(1)),
        ("given(\"y\") ? numel(\"y\") : 9", x, Ok(9)),
        ("given(1) ? 1 : 2", &and("[]"), Ok(2)),
        ("ceil_to(dim(0, 1), 8)", x, Ok(8)),
        // An invalid query in a branch that is not evaluated is no error.
        ("rank(0) == 2 ? 1 : dim(0, 5)", x, Ok(1)),
        ("dim(0, 0) - 5", x, Err(BadArguments)),
        ("dim(0, 0) / (dim(0, 0) - 4)", x, Err(BadArguments)),
        // Products over 64 bits: of 2^62 and 4, and of the largest number and 3.
        (
            "numel(0) * 4",
            "fp32[4611686018427387904]",
            Err(BadArguments),
        ),
        (
            "numel(0)",
            "fp32[18446744073709551615, 3]",
            Err(BadArguments),
        ),
    ] {
        assert_eq!(flops(expression, args), want, "{expression} of {args}");
    }
}

#[test]
fn kernel_dtype_replaces_unrecorded_types() {
    let costs = read(&with("1", "bytes(0)")).unwrap();
    let untyped = arguments("[4]");
    let cost = |dtype| costs.costs()[0].cost(&untyped, Direction::Fprop, dtype);
    assert_eq!(cost(Some(DType::Fp16)).unwrap().bytes(), 8);
    assert_eq!(cost(None), Err(UnknownCost::NoDType));
}

#[test]
fn expanded_operands_count_once() {
    let text = with("1", "bytes(0)").replace(
        "args = [\"fp32[4]\"]\nflops = 4\nbytes = 16",
        "args = [{ shape = [12, 64], dtype = \"fp16\", strides = [0, 1] }]\nflops = 1\nbytes = 128",
    );
    let costs = read(&text).unwrap_or_else(|c| panic!("{c}"));
    assert_eq!(costs.run_tests()[0].outcome, CostTestOutcome::Pass);
}

#[test]
fn failing_tests_report_the_difference() {
    let outcome = |flops: &str, bytes: &str| {
        let costs = read(&with(flops, bytes)).unwrap();
        costs.run_tests()[0].outcome.to_string()
    };
    assert_eq!(outcome("numel(0)", "bytes(0)"), "ok");
    assert_eq!(outcome("numel(0) * 1000", "1"), "4,000 FLOPs, not 4");
    assert_eq!(outcome("4", "17"), "17 bytes, not 16");
    assert_eq!(
        outcome("dim(1, 0)", "16"),
        "cost unknown: `dim(1, 0)`: arguments do not fit the operator"
    );
    assert_eq!(
        outcome("numel(0) - 5", "16"),
        "cost unknown: `numel(0) - 5`: -1 is negative"
    );
}

#[test]
fn every_mistake_is_reported() {
    let good = with("4", "16");
    for (text, complaint) in [
        ("", "no costs in this file"),
        ("cost = 3", "`cost` must be a list of tables"),
        (&good.replace("family", "famliy"), "did you mean `family`?"),
        (
            &good.replace("pointwise", "pointwize"),
            "did you mean `pointwise`?",
        ),
        (
            &good.replace("\"a::b\"\nf", "\"*.*\"\nf"),
            "names no operator",
        ),
        (
            &good.replace("[[test]]", "[[tests]]"),
            "did you mean `test`?",
        ),
        (
            good.split("[[test]]").next().unwrap(),
            "no test says what `a::b` costs",
        ),
        (
            &good.replace("bytes = 16\n", ""),
            "no test says what `a::b` costs",
        ),
        (
            &good.replace("bytes = 16\n", "bytes = -1\n"),
            "must be at least 0",
        ),
        (
            &good.replace("op = \"a::b\"\nargs", "op = \"a::c\"\nargs"),
            "no cost in this file is about `a::c`",
        ),
        (
            &good.replace("fp32[4]", "fp23[4]"),
            "`fp23[4]` is no argument",
        ),
        (
            &good.replace("\"x\", \"y\"", "\"x\", \"x\""),
            "two arguments called `x`",
        ),
        (&(good.clone() + &good), "`a::b` has two cost models"),
        (
            &good.replace("flops = 4", "flops = 4\nunknown = \"no_shapes\""),
            "neither `flops` nor `bytes`",
        ),
        (
            &good.replace("flops = 4\nbytes = 16", "unknown = \"no_shape\""),
            "did you mean `no_shapes`?",
        ),
        (
            &with("numle(0)", "1"),
            "unknown function `numle`; did you mean `numel`?",
        ),
        (&with("numel(\"z\")", "1"), "no argument `z`"),
        (&with("x * 2", "1"), "`x` is an argument"),
        (&with("dim(0)", "1"), "another number of arguments"),
        (&with("dim(0, rank(0) - 1)", "1"), "takes numbers and words"),
        (&with("dim(-1, 0)", "1"), "position is not negative"),
        (&with("numel(0) * 1.5", "1"), "`*` of an int and a double"),
        (&with("dtype(0)", "1"), "must be a number, this is a string"),
        (&with("bytes(0, \"int46\")", "1"), "no element type `int46`"),
        (
            &with("integer(0, \"a\")", "1"),
            "the default must be an int, not a string",
        ),
        (&with("1 +", "1"), "a value is missing after `+`"),
        (&with("", "1"), "`cost[0].flops` is empty"),
        (&with("site.m", "1"), "unknown name `site`"),
        (
            &with(&format!("{}1", "1 + ".repeat(300)), "1"),
            "too many parts",
        ),
    ] {
        let complaints = match read(text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(complaints) => complaints.render(false),
        };
        assert!(complaints.contains(complaint), "{text}\n{complaints}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once_with_carets() {
    let text = "[[cost]]\nop = \"a::b\"\nfamly = \"gemm\"\nflops = 'numle(0)'\nbytes = 'dim(0)'\n";
    let shown = read(text).unwrap_err().render(false);
    for place in ["my.toml:3:1", "my.toml:4:10", "my.toml:5:10"] {
        assert!(shown.contains(place), "{place}\n{shown}");
    }
}

#[test]
fn functions_are_sorted_and_documented() {
    assert!(names::FUNCTIONS.is_sorted_by(|a, b| a.name() < b.name()));
    for function in names::FUNCTIONS {
        assert!(!function.doc.is_empty());
    }
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = ArgValue> {
        let dim = prop_oneof![4 => 0..5_u64, 1 => any::<u64>()];
        prop_oneof![
            prop::collection::vec(dim, 0..4).prop_map(|shape| ArgValue::Tensor(Tensor {
                shape,
                dtype: Some(DType::Fp32),
                strides: None,
            })),
            any::<i64>().prop_map(ArgValue::Int),
            any::<f64>().prop_map(ArgValue::Float),
            Just(ArgValue::Unknown),
            Just(ArgValue::None),
        ]
    }

    proptest! {
        #[test]
        fn arbitrary_arguments_do_not_make_costs_panic(values in prop::collection::vec(any_value(), 0..5)) {
            let costs = read(GOOD).unwrap();
            let items = values.into_iter().map(|value| Arg { name: None, value });
            let values = OpArgs { items: items.collect() };
            for cost in costs.costs() {
                let _ = cost.cost(&values, Direction::Fprop, None);
            }
        }

        #[test]
        fn arbitrary_text_does_not_make_the_reader_panic(text in "(\\[\\[(cost|test)\\]\\]\n|(op|family|args|flops|bytes) = [\"'\\[\\]a-z0-9(), *+-]{0,20}\n){0,8}") {
            let _ = read(&text);
        }
    }
}
