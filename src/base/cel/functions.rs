//! The functions and arithmetic of expressions.

use super::{BinaryOperator, Scalar, Type, Value};

/// One function of the expression language.
#[derive(Debug)]
pub struct Function {
    /// Its name: `ceil_to`.
    pub name: &'static str,
    /// How it is called: `ceil_to(x, step)`.
    pub usage: &'static str,
    /// What it returns.
    pub doc: &'static str,
    /// The type of a call, or the problem with its arguments.
    ty: fn(&[Scalar]) -> Result<Scalar, String>,
    run: fn(&[Num]) -> Result<Num, String>,
}

/// An argument or a result.
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

/// All functions, sorted by name.
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

/// `double` and `int`, which CEL has too.
const CONVERSIONS: &[Function] = &[
    Function {
        name: "double",
        usage: "double(x)",
        doc: "`x` as a double",
        ty: |a| numbers(a, 1).map(|()| Scalar::Double),
        run: |a| Ok(Num::Double(one(a)?.double())),
    },
    Function {
        name: "int",
        usage: "int(x)",
        doc: "`x` without its fraction",
        ty: |a| numbers(a, 1).map(|()| Scalar::Int),
        run: |a| match one(a)? {
            // 2^63, the limit of an int.
            Num::Double(d) if d.abs() < 9_223_372_036_854_775_808.0 => Ok(Num::Int(d as i64)),
            Num::Double(_) => Err(overflow()),
            x => Ok(x),
        },
    },
];

/// The function with this name.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    (FUNCTIONS.iter().chain(CONVERSIONS)).find(|f| f.name == name)
}

impl Function {
    /// The type of a call, or a message about the problem with it.
    pub(super) fn type_of(&self, arguments: &[Type]) -> Result<Type, String> {
        let scalars: Option<Vec<Scalar>> = arguments.iter().map(|t| t.scalar()).collect();
        let ty = match scalars {
            Some(scalars) => (self.ty)(&scalars),
            None => Err("takes numbers".into()),
        };
        ty.map(Type::One)
            .map_err(|why| format!("`{}` {why}", self.usage))
    }

    pub(super) fn call(&self, arguments: &[Value]) -> Result<Value, String> {
        let nums: Option<Vec<Num>> = arguments.iter().map(number).collect();
        match (self.run)(&nums.ok_or("numbers were expected")?)? {
            Num::Bool(b) => Ok(Value::Bool(b)),
            Num::Int(i) => Ok(Value::Int(i)),
            Num::Double(d) => Ok(Value::Double(d)),
        }
    }
}

/// `+ - * / %` of two numbers of one type: overflow, division by zero and infinities are errors.
pub(super) fn arithmetic(operator: BinaryOperator, a: &Value, b: &Value) -> Result<Value, String> {
    type Ints = fn(i64, i64) -> Option<i64>;
    type Doubles = fn(f64, f64) -> f64;
    let (ints, doubles): (Ints, Doubles) = match operator {
        BinaryOperator::Add => (i64::checked_add, |a, b| a + b),
        BinaryOperator::Subtract => (i64::checked_sub, |a, b| a - b),
        BinaryOperator::Multiply => (i64::checked_mul, |a, b| a * b),
        BinaryOperator::Divide => (i64::checked_div, |a, b| a / b),
        _ => (i64::checked_rem, |a, b| a % b),
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => (ints(*a, *b).map(Value::Int))
            .ok_or_else(|| "an int overflow or a division by zero".into()),
        (Value::Double(a), Value::Double(b)) => match doubles(*a, *b) {
            result if result.is_finite() => Ok(Value::Double(result)),
            _ => Err(NOT_FINITE.into()),
        },
        _ => Err("two ints or two doubles were expected".into()),
    }
}

fn number(value: &Value) -> Option<Num> {
    match value {
        Value::Int(i) => Some(Num::Int(*i)),
        Value::Double(d) => Some(Num::Double(*d)),
        _ => None,
    }
}

const NOT_FINITE: &str = "the result is not a finite number";

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
        Err(NOT_FINITE.into())
    }
}

fn whole(x: f64) -> Result<Num, String> {
    // 2^53: beyond it, a double cannot represent every int.
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
