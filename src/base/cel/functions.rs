//! The functions expressions may call besides the operators of CEL, one documented entry each.
//!
//! The arithmetic operators are here too: CEL's own let `1.0 / 0.0` through as infinity, and
//! infinity compares as true, so every expression is lowered to these checked ones.

use cel::extractors::Arguments;
use cel::{Context, ExecutionError};

use super::{Scalar, Type};

/// One function of the expression language.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    /// How it is called: `ceil_to(x, step)`.
    pub usage: &'static str,
    pub doc: &'static str,
    /// The type of a call, or what is wrong with its arguments.
    pub(super) ty: fn(&[Scalar]) -> Result<Scalar, String>,
    run: fn(&[Num]) -> Result<Num, String>,
}

/// An argument or result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Num {
    Bool(bool),
    Int(i64),
    Double(f64),
}

impl Num {
    fn double(self) -> f64 {
        match self {
            Num::Bool(b) => f64::from(u8::from(b)),
            Num::Int(i) => i as f64,
            Num::Double(d) => d,
        }
    }
}

/// Every function by name, as rule files write it.
pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "abs",
        usage: "abs(x)",
        doc: "`x` without its sign",
        ty: |a| numbers(a, 1).map(|_| only(a)),
        run: |a| match one(a)? {
            Num::Int(i) => i.checked_abs().map(Num::Int).ok_or_else(overflow),
            x => finite(x.double().abs()),
        },
    },
    Function {
        name: "ceil",
        usage: "ceil(x)",
        doc: "the smallest int that is not below `x`",
        ty: |a| numbers(a, 1).map(|_| Scalar::Int),
        run: |a| whole(one(a)?.double().ceil()),
    },
    Function {
        name: "ceil_to",
        usage: "ceil_to(x, step)",
        doc: "the smallest multiple of `step` that is not below `x`",
        ty: |a| numbers(a, 2).map(|()| widest(a)),
        run: |a| multiple(a, true),
    },
    Function {
        name: "divisible",
        usage: "divisible(x, step)",
        doc: "whether the int `x` is a multiple of the int `step`",
        ty: |a| match a {
            [Scalar::Int, Scalar::Int] => Ok(Scalar::Bool),
            _ => Err("takes two ints".into()),
        },
        run: |a| match a {
            [Num::Int(_), Num::Int(0)] => Err("a step of 0".into()),
            [Num::Int(x), Num::Int(step)] => Ok(Num::Bool(x.checked_rem(*step).unwrap_or(0) == 0)),
            _ => Err("takes two ints".into()),
        },
    },
    Function {
        name: "floor",
        usage: "floor(x)",
        doc: "the largest int that is not above `x`",
        ty: |a| numbers(a, 1).map(|_| Scalar::Int),
        run: |a| whole(one(a)?.double().floor()),
    },
    Function {
        name: "floor_to",
        usage: "floor_to(x, step)",
        doc: "the largest multiple of `step` that is not above `x`",
        ty: |a| numbers(a, 2).map(|()| widest(a)),
        run: |a| multiple(a, false),
    },
    Function {
        name: "max",
        usage: "max(a, b, ...)",
        doc: "the largest; a double as soon as one of them is",
        ty: |a| two_or_more(a).map(|()| widest(a)),
        run: |a| extreme(a, f64::max, i64::max),
    },
    Function {
        name: "min",
        usage: "min(a, b, ...)",
        doc: "the smallest; a double as soon as one of them is",
        ty: |a| two_or_more(a).map(|()| widest(a)),
        run: |a| extreme(a, f64::min, i64::min),
    },
    Function {
        name: "round",
        usage: "round(x)",
        doc: "the nearest int",
        ty: |a| numbers(a, 1).map(|_| Scalar::Int),
        run: |a| whole(one(a)?.double().round()),
    },
];

/// What `+ - * / %` are lowered to: overflow, division by zero and infinities are errors.
pub(super) const ARITHMETIC: &[(&str, &str, Arithmetic)] = &[
    ("_+_", "@add", Arithmetic(i64::checked_add, |a, b| a + b)),
    ("_-_", "@sub", Arithmetic(i64::checked_sub, |a, b| a - b)),
    ("_*_", "@mul", Arithmetic(i64::checked_mul, |a, b| a * b)),
    ("_/_", "@div", Arithmetic(i64::checked_div, |a, b| a / b)),
    ("_%_", "@mod", Arithmetic(i64::checked_rem, |a, b| a % b)),
];

/// An operator on ints and on doubles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arithmetic(fn(i64, i64) -> Option<i64>, fn(f64, f64) -> f64);

/// The sign of the operator that is lowered to a function: `+` of `@add`.
pub(super) fn operator(function: &str) -> Option<&'static str> {
    let (cel, ..) = ARITHMETIC.iter().find(|(_, name, _)| *name == function)?;
    Some(cel.trim_matches('_'))
}

/// The function of a name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|f| f.name == name)
}

/// The type of a call, or what is wrong with it.
pub(super) fn call_type(function: &Function, arguments: &[Type]) -> Result<Type, String> {
    let scalars: Option<Vec<Scalar>> = arguments.iter().map(|t| t.scalar()).collect();
    let Some(scalars) = scalars else {
        return Err("takes numbers".into());
    };
    (function.ty)(&scalars).map(Type::One)
}

/// Adds every function to a root context.
pub(super) fn register(context: &mut Context<'_, '_>) {
    for function in FUNCTIONS {
        let run = function.run;
        let name = function.name;
        // A clash with the standard library would be caught by the test below.
        let _ = context.add_function(name, move |Arguments(args): Arguments| {
            call(name, run, &args)
        });
    }
    for &(_, name, arithmetic) in ARITHMETIC {
        let _ = context.add_function(name, move |Arguments(args): Arguments| {
            call(name, |nums| arithmetic.apply(nums), &args)
        });
    }
}

impl Arithmetic {
    fn apply(self, nums: &[Num]) -> Result<Num, String> {
        match nums {
            [Num::Int(a), Num::Int(b)] => (self.0)(*a, *b)
                .map(Num::Int)
                .ok_or_else(|| "an int overflow or a division by zero".into()),
            [Num::Double(a), Num::Double(b)] => finite((self.1)(*a, *b)),
            _ => Err("two ints or two doubles were expected".into()),
        }
    }
}

fn call(
    name: &str,
    run: impl Fn(&[Num]) -> Result<Num, String>,
    args: &[cel::Value],
) -> Result<cel::Value, ExecutionError> {
    let fail = |message: String| ExecutionError::function_error(name, message);
    let nums: Option<Vec<Num>> = args.iter().map(number).collect();
    let nums = nums.ok_or_else(|| fail("numbers were expected".into()))?;
    match run(&nums).map_err(fail)? {
        Num::Bool(b) => Ok(cel::Value::Bool(b)),
        Num::Int(i) => Ok(cel::Value::Int(i)),
        Num::Double(d) => Ok(cel::Value::Float(d)),
    }
}

fn number(value: &cel::Value) -> Option<Num> {
    match value {
        cel::Value::Int(i) => Some(Num::Int(*i)),
        cel::Value::Float(d) => Some(Num::Double(*d)),
        _ => None,
    }
}

fn numbers(a: &[Scalar], count: usize) -> Result<(), String> {
    if a.len() == count && a.iter().all(|s| s.is_number()) {
        return Ok(());
    }
    Err(match count {
        1 => "takes one number".into(),
        n => format!("takes {n} numbers"),
    })
}

fn two_or_more(a: &[Scalar]) -> Result<(), String> {
    if a.len() >= 2 && a.iter().all(|s| s.is_number()) {
        return Ok(());
    }
    Err("takes two or more numbers".into())
}

fn only(a: &[Scalar]) -> Scalar {
    a.first().copied().unwrap_or(Scalar::Double)
}

fn widest(a: &[Scalar]) -> Scalar {
    if a.iter().all(|s| *s == Scalar::Int) {
        Scalar::Int
    } else {
        Scalar::Double
    }
}

fn one(a: &[Num]) -> Result<Num, String> {
    a.first().copied().ok_or_else(|| "takes one number".into())
}

fn overflow() -> String {
    "the result is too large".into()
}

fn finite(x: f64) -> Result<Num, String> {
    if x.is_finite() {
        Ok(Num::Double(x))
    } else {
        Err("the result is not a finite number".into())
    }
}

fn whole(x: f64) -> Result<Num, String> {
    // 2^53: beyond it a double no longer holds every int.
    if x.abs() <= 9_007_199_254_740_992.0 {
        Ok(Num::Int(x as i64))
    } else {
        Err(overflow())
    }
}

fn multiple(a: &[Num], up: bool) -> Result<Num, String> {
    match a {
        [Num::Int(x), Num::Int(step)] if *step > 0 => {
            let below = x
                .div_euclid(*step)
                .checked_mul(*step)
                .ok_or_else(overflow)?;
            let exact = below == *x || !up;
            let result = if exact {
                Some(below)
            } else {
                below.checked_add(*step)
            };
            result.map(Num::Int).ok_or_else(overflow)
        }
        [x, step] if step.double() > 0.0 => {
            let steps = x.double() / step.double();
            let steps = if up { steps.ceil() } else { steps.floor() };
            finite(steps * step.double())
        }
        _ => Err("the step must be above 0".into()),
    }
}

fn extreme(
    a: &[Num],
    double: fn(f64, f64) -> f64,
    int: fn(i64, i64) -> i64,
) -> Result<Num, String> {
    let ints: Option<Vec<i64>> = a
        .iter()
        .map(|n| match n {
            Num::Int(i) => Some(*i),
            _ => None,
        })
        .collect();
    match ints {
        Some(ints) => ints.into_iter().reduce(int).map(Num::Int),
        None => a.iter().map(|n| n.double()).reduce(double).map(Num::Double),
    }
    .ok_or_else(|| "takes two or more numbers".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(source: &str) -> Result<cel::Value, ExecutionError> {
        let mut context = Context::default();
        register(&mut context);
        cel::Program::compile(source).unwrap().execute(&context)
    }

    #[test]
    fn the_table_is_sorted_and_every_name_is_free_to_use() {
        let mut context = Context::default();
        for pair in FUNCTIONS.windows(2) {
            assert!(pair[0].name < pair[1].name);
        }
        for f in FUNCTIONS {
            assert!(f.usage.starts_with(f.name) && !f.doc.is_empty());
            assert_eq!(
                context.add_function(f.name, |a: i64| a),
                Ok(()),
                "{}",
                f.name
            );
        }
    }

    #[test]
    fn functions_compute_and_refuse() {
        for (source, want) in [
            ("ceil_to(50257, 8)", cel::Value::Int(50264)),
            ("ceil_to(50264, 8)", cel::Value::Int(50264)),
            ("ceil_to(-3, 8)", cel::Value::Int(0)),
            ("floor_to(50257, 8)", cel::Value::Int(50256)),
            ("ceil_to(2.5, 2)", cel::Value::Float(4.0)),
            ("min(3, 1, 2)", cel::Value::Int(1)),
            ("max(3, 1.5)", cel::Value::Float(3.0)),
            ("round(2.5)", cel::Value::Int(3)),
            ("abs(-2.0)", cel::Value::Float(2.0)),
            ("divisible(16, 8)", cel::Value::Bool(true)),
            ("divisible(17, 8)", cel::Value::Bool(false)),
        ] {
            assert_eq!(run(source).unwrap(), want, "{source}");
        }
        for source in [
            "ceil_to(1, 0)",
            "divisible(1, 0)",
            "round(1e300)",
            "ceil_to(9223372036854775807, 8)",
            "abs(-9223372036854775808)",
        ] {
            assert!(run(source).is_err(), "{source}");
        }
    }
}
