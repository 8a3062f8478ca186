//! The functions that cost expressions can call on the arguments of an operator call.
//!
//! A call such as `dim("x", -1)` has literal arguments only, so it is treated as a name: it is checked
//! when the file is read and looked up when the expression is evaluated. A query for data that the
//! profile does not record fails, and the reason becomes the reason why the cost is unknown.

use crate::base::DType;
use crate::base::cel::{Ast, AstKind, Bindings, EvalFailure, NameResolver, NoName, Type, Value};
use crate::base::suggest::did_you_mean;
use crate::correlate::{ArgValue, OpArgs, Tensor};
use crate::cost::model::UnknownCost;
use crate::cost::ops::{count, distinct};

/// One function of cost expressions.
#[derive(Debug)]
pub struct ArgumentFunction {
    /// Its name with its parameters, `dim(arg, i)`.
    pub usage: &'static str,
    /// What it returns, for the documentation of cost files.
    pub doc: &'static str,
    /// The type of the value it returns.
    pub ty: Type,
    takes: &'static [Takes],
    run: fn(&CallContext<'_>, &Query) -> Result<Value, UnknownCost>,
}

/// One parameter of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// An argument of the operator.
    Arg,
    /// An argument of the operator, or all arguments when left out.
    AnyArg,
    /// A dimension or item number; negative ones count from the end.
    Index,
    /// The value to use when the argument was not passed.
    Default,
    /// The element type to use when none is recorded.
    DType,
}

impl ArgumentFunction {
    /// Its name, `dim`.
    pub fn name(&self) -> &'static str {
        self.usage.split('(').next().unwrap_or_default()
    }
}

impl Takes {
    fn optional(self) -> bool {
        matches!(self, Takes::AnyArg | Takes::Default | Takes::DType)
    }
}

use Takes::{AnyArg, Arg, Default, Index};

/// All functions, sorted by name.
pub const FUNCTIONS: &[ArgumentFunction] = &[
    ArgumentFunction {
        usage: "bytes(arg, dtype)",
        doc: "bytes of a tensor or of all tensors of a list, expanded dimensions once; without an \
              argument those of all tensors of the call; `dtype` where none is recorded, for \
              operands that are not floating point numbers",
        ty: Type::INT,
        takes: &[AnyArg, Takes::DType],
        run: |call, q| {
            let bytes = call.sum(q, |t| {
                let dtype = call.dtype(t, q)?;
                Ok(distinct(t).saturating_mul(dtype.bytes()))
            })?;
            int(bytes)
        },
    },
    ArgumentFunction {
        usage: "count(arg)",
        doc: "items of a list; without an argument the number of arguments passed",
        ty: Type::INT,
        takes: &[AnyArg],
        run: |call, q| {
            let Some(at) = &q.arg else {
                return int(call.args.items.len() as u64);
            };
            match call.arg(at)? {
                ArgValue::List(items) => int(items.len() as u64),
                _ => Err(UnknownCost::BadArguments),
            }
        },
    },
    ArgumentFunction {
        usage: "dim(arg, i)",
        doc: "size of dimension `i` of a tensor; `-1` is the last",
        ty: Type::INT,
        takes: &[Arg, Index],
        run: |call, q| int(*nth(&call.tensor(q)?.shape, q.index)?),
    },
    ArgumentFunction {
        usage: "dtype(arg)",
        doc: "element type of a tensor: `\"fp16\"`, `\"bf16\"`, `\"fp32\"`, `\"int64\"`, `\"bool\"`, ...",
        ty: Type::STR,
        takes: &[Arg],
        run: |call, q| Ok(Value::Str(call.dtype(call.tensor(q)?, q)?.name().into())),
    },
    ArgumentFunction {
        usage: "flag(arg, default)",
        doc: "value of a bool; `default` when it was not passed",
        ty: Type::BOOL,
        takes: &[Arg, Default],
        run: |call, q| match call.value(q)? {
            Ok(ArgValue::Bool(b)) => Ok(Value::Bool(*b)),
            Ok(_) => Err(UnknownCost::BadArguments),
            Err(default) => Ok(default),
        },
    },
    ArgumentFunction {
        usage: "given(arg)",
        doc: "whether an argument was passed, is not `None`, and is recorded",
        ty: Type::BOOL,
        takes: &[Arg],
        run: |call, q| {
            let value = q.arg.as_ref().and_then(|at| call.find(at));
            let blank = |t: &Tensor| t.shape.is_empty() && t.dtype.is_none();
            Ok(Value::Bool(match value {
                None | Some(ArgValue::None | ArgValue::Unknown) => false,
                // `emit_nvtx` prints `[]` for every argument that is not a tensor.
                Some(ArgValue::Tensor(t)) => !blank(t),
                Some(_) => true,
            }))
        },
    },
    ArgumentFunction {
        usage: "integer(arg, default)",
        doc: "value of an int; `default` when it was not passed",
        ty: Type::INT,
        takes: &[Arg, Default],
        run: |call, q| match call.value(q)? {
            Ok(ArgValue::Int(i)) => Ok(Value::Int(*i)),
            Ok(_) => Err(UnknownCost::BadArguments),
            Err(default) => Ok(default),
        },
    },
    ArgumentFunction {
        usage: "item(arg, i)",
        doc: "int number `i` of a list such as a stride",
        ty: Type::INT,
        takes: &[Arg, Index],
        run: |call, q| match call.required(q)? {
            ArgValue::List(items) => match nth(items, q.index)? {
                ArgValue::Int(i) => Ok(Value::Int(*i)),
                ArgValue::Unknown => Err(UnknownCost::NoShapes),
                _ => Err(UnknownCost::BadArguments),
            },
            _ => Err(UnknownCost::BadArguments),
        },
    },
    ArgumentFunction {
        usage: "itemsize(arg, dtype)",
        doc: "bytes of one element of a tensor; `dtype` where none is recorded",
        ty: Type::INT,
        takes: &[Arg, Takes::DType],
        run: |call, q| int(call.dtype(call.tensor(q)?, q)?.bytes()),
    },
    ArgumentFunction {
        usage: "number(arg, default)",
        doc: "value of a float or an int, as a double; `default` when it was not passed",
        ty: Type::DOUBLE,
        takes: &[Arg, Default],
        run: |call, q| match call.value(q)? {
            Ok(ArgValue::Float(f)) if f.is_finite() => Ok(Value::Double(*f)),
            Ok(ArgValue::Int(i)) => Ok(Value::Double(*i as f64)),
            Ok(_) => Err(UnknownCost::BadArguments),
            Err(default) => Ok(default),
        },
    },
    ArgumentFunction {
        usage: "numel(arg)",
        doc: "elements of a tensor or of all tensors of a list; without an argument those of all \
              tensors of the call",
        ty: Type::INT,
        takes: &[AnyArg],
        run: |call, q| int(call.sum(q, |t| Ok(count(&t.shape)))?),
    },
    ArgumentFunction {
        usage: "rank(arg)",
        doc: "dimensions of a tensor",
        ty: Type::INT,
        takes: &[Arg],
        run: |call, q| int(call.tensor(q)?.shape.len() as u64),
    },
    ArgumentFunction {
        usage: "text(arg, default)",
        doc: "value of a string; `default` when it was not passed",
        ty: Type::STR,
        takes: &[Arg, Default],
        run: |call, q| match call.value(q)? {
            Ok(ArgValue::Str(s)) => Ok(Value::Str(s.as_str().into())),
            Ok(_) => Err(UnknownCost::BadArguments),
            Err(default) => Ok(default),
        },
    },
];

/// A title and a label; the label may be empty.
type Mistaken = (String, String);

fn int(value: u64) -> Result<Value, UnknownCost> {
    i64::try_from(value)
        .map(Value::Int)
        .map_err(|_| UnknownCost::BadArguments)
}

/// An item by number; negative numbers count from the end.
fn nth<T>(items: &[T], index: i64) -> Result<&T, UnknownCost> {
    let at = match usize::try_from(index) {
        Ok(at) => Some(at),
        Err(_) => usize::try_from(index.unsigned_abs())
            .ok()
            .and_then(|back| items.len().checked_sub(back)),
    };
    at.and_then(|at| items.get(at))
        .ok_or(UnknownCost::BadArguments)
}

/// A reference to an argument of the operator: by position, or by the name that the cost declares for
/// that position, which is also its keyword.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    position: usize,
    name: Option<String>,
}

/// One function call in an expression.
#[derive(Debug, Clone)]
pub(super) struct Query {
    /// The call as written in the checked expression.
    text: String,
    function: &'static ArgumentFunction,
    arg: Option<Place>,
    index: i64,
    default: Option<Value>,
    dtype: Option<DType>,
}

/// The names that the expressions of one cost can use: the functions, applied to the arguments that
/// the cost declares.
#[derive(Debug)]
pub(super) struct DeclaredArguments<'a> {
    /// By position.
    pub(super) args: &'a [String],
}

impl NameResolver for DeclaredArguments<'_> {
    type Name = Query;

    fn find(&self, name: &str) -> Result<(Query, Type), NoName> {
        let why = if self.args.iter().any(|a| a == name) {
            format!(
                "`{name}` is an argument: ask for one of its properties, as in `numel(\"{name}\")`"
            )
        } else {
            let near = did_you_mean(name, self.functions());
            format!("unknown name `{name}`{near}")
        };
        Err(NoName::Unknown(why))
    }

    fn is_whole(&self, _word: &str) -> bool {
        true
    }

    fn may_be_absent(&self, _name: &Query) -> bool {
        false
    }

    fn call(&self, name: &str, args: &[Ast<'_>]) -> Option<Result<(Query, Type), Mistaken>> {
        let function = FUNCTIONS.iter().find(|f| f.name() == name)?;
        Some(self.query(function, args).map(|query| (query, function.ty)))
    }

    fn functions(&self) -> Vec<&'static str> {
        FUNCTIONS.iter().map(ArgumentFunction::name).collect()
    }
}

impl DeclaredArguments<'_> {
    fn query(
        &self,
        function: &'static ArgumentFunction,
        args: &[Ast<'_>],
    ) -> Result<Query, Mistaken> {
        let usage = function.usage;
        let least = function.takes.iter().filter(|t| !t.optional()).count();
        if args.len() < least || args.len() > function.takes.len() {
            return Err((
                format!("`{usage}`: another number of arguments"),
                String::new(),
            ));
        }
        let mut query = Query {
            text: String::new(),
            function,
            arg: None,
            index: 0,
            default: None,
            dtype: None,
        };
        let mut words = Vec::new();
        for (node, takes) in args.iter().zip(function.takes) {
            let AstKind::Literal(value) = &node.kind else {
                let title = format!("`{usage}` takes numbers and words, nothing worked out");
                return Err((title, String::new()));
            };
            words.push(match value {
                Value::Str(s) => format!("{s:?}"),
                Value::Int(i) => i.to_string(),
                other => format!("{other:?}"),
            });
            self.fill(&mut query, *takes, value.clone())
                .map_err(|(why, label)| (format!("`{usage}`: {why}"), label))?;
        }
        query.text = format!("{}({})", function.name(), words.join(", "));
        Ok(query)
    }

    fn fill(&self, query: &mut Query, takes: Takes, value: Value) -> Result<(), Mistaken> {
        let wrong = |why: String| Err((why, String::new()));
        match (takes, value) {
            (Takes::Arg | Takes::AnyArg, Value::Int(at)) => {
                let position = usize::try_from(at).map_err(|_| {
                    let label = "the first is 0".to_owned();
                    ("an argument's position is not negative".to_owned(), label)
                })?;
                let name = self.args.get(position).cloned();
                query.arg = Some(Place { position, name });
            }
            (Takes::Arg | Takes::AnyArg, Value::Str(name)) => {
                let Some(position) = self.args.iter().position(|a| **a == *name) else {
                    let near = did_you_mean(&name, self.args.iter().map(String::as_str));
                    let label = if self.args.is_empty() {
                        "name the arguments first: `args = [\"x\", ...]`"
                    } else {
                        ""
                    };
                    return Err((format!("no argument `{name}`{near}"), label.to_owned()));
                };
                query.arg = Some(Place {
                    position,
                    name: Some(name.to_string()),
                });
            }
            (Takes::Index, Value::Int(index)) => query.index = index,
            (Takes::Default, value) if Type::of(&value) == query.function.ty => {
                query.default = Some(value);
            }
            // An integer is converted to a double.
            (Takes::Default, Value::Int(i)) if query.function.ty == Type::DOUBLE => {
                query.default = Some(Value::Double(i as f64));
            }
            (Takes::Default, value) => {
                let (want, got) = (query.function.ty.phrase(), Type::of(&value).phrase());
                return wrong(format!("the default must be {want}, not {got}"));
            }
            (Takes::DType, Value::Str(name)) => match DType::parse(&name) {
                Some(dtype) => query.dtype = Some(dtype),
                None => return wrong(format!("no element type `{name}`")),
            },
            (Takes::Arg | Takes::AnyArg, _) => {
                return wrong("an argument is a position or a name in quotes".into());
            }
            (Takes::Index, _) => return wrong("a dimension is an int".into()),
            (Takes::DType, _) => return wrong("an element type is a word: \"int64\"".into()),
        }
        Ok(())
    }
}

/// Why an expression of a cost has no value.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// A query fails for this operator call: the reason, and the query as written in the file.
    Query(UnknownCost, String),
    /// The evaluation fails, for example by an overflow.
    Fault(String),
}

impl EvalFailure for CallFailure {
    fn fault(message: String) -> CallFailure {
        CallFailure::Fault(message)
    }

    fn join(self, _right: CallFailure, _and: bool) -> CallFailure {
        self
    }
}

/// The operator call that an expression is evaluated for.
#[derive(Debug)]
pub(super) struct CallContext<'a> {
    pub(super) args: &'a OpArgs,
    /// The element type in the kernel's name, for operands without a recorded type.
    pub(super) kernel_dtype: Option<DType>,
}

impl CallContext<'_> {
    fn find(&self, place: &Place) -> Option<&ArgValue> {
        let items = &self.args.items;
        let named = |name: &String| items.iter().find(|a| a.name.as_deref() == Some(name));
        let positional = || {
            let item = items.get(place.position)?;
            item.name
                .as_deref()
                .is_none_or(str::is_empty)
                .then_some(item)
        };
        let found = place.name.as_ref().and_then(named).or_else(positional);
        found.map(|a| &a.value)
    }

    fn arg(&self, place: &Place) -> Result<&ArgValue, UnknownCost> {
        match self.find(place) {
            Some(ArgValue::Unknown) => Err(UnknownCost::NoShapes),
            Some(value) => Ok(value),
            None if self.args.items.is_empty() => Err(UnknownCost::NoShapes),
            None => Err(UnknownCost::BadArguments),
        }
    }

    /// The argument that a query refers to.
    fn required(&self, query: &Query) -> Result<&ArgValue, UnknownCost> {
        self.arg(query.arg.as_ref().ok_or(UnknownCost::BadArguments)?)
    }

    fn tensor(&self, query: &Query) -> Result<&Tensor, UnknownCost> {
        match self.required(query)? {
            ArgValue::Tensor(t) => Ok(t),
            _ => Err(UnknownCost::BadArguments),
        }
    }

    /// The argument that a query refers to; the default (as an `Err`) for one that was not passed.
    fn value(&self, query: &Query) -> Result<Result<&ArgValue, Value>, UnknownCost> {
        let place = query.arg.as_ref().ok_or(UnknownCost::BadArguments)?;
        match (self.find(place), &query.default) {
            (None | Some(ArgValue::None), Some(default)) => Ok(Err(default.clone())),
            _ => self.arg(place).map(Ok),
        }
    }

    fn dtype(&self, t: &Tensor, query: &Query) -> Result<DType, UnknownCost> {
        t.dtype
            .or(query.dtype)
            .or(self.kernel_dtype)
            .ok_or(UnknownCost::NoDType)
    }

    /// A sum over the tensors that a query refers to.
    fn sum(
        &self,
        query: &Query,
        each: impl Fn(&Tensor) -> Result<u64, UnknownCost>,
    ) -> Result<u64, UnknownCost> {
        let add = |sum: u64, t: &Tensor| Ok(sum.saturating_add(each(t)?));
        let Some(place) = &query.arg else {
            if self.args.tensors().next().is_none() {
                return Err(UnknownCost::NoShapes);
            }
            return self.args.tensors().try_fold(0, add);
        };
        match self.arg(place)? {
            ArgValue::Tensor(t) => each(t),
            ArgValue::List(items) => items.iter().try_fold(0, |sum, item| match item {
                ArgValue::Tensor(t) => add(sum, t),
                ArgValue::Unknown => Err(UnknownCost::NoShapes),
                _ => Err(UnknownCost::BadArguments),
            }),
            _ => Err(UnknownCost::BadArguments),
        }
    }
}

impl Bindings for CallContext<'_> {
    type Name = Query;
    type Failure = CallFailure;

    fn get(&self, query: &Query) -> Result<Value, CallFailure> {
        let value = (query.function.run)(self, query);
        value.map_err(|reason| CallFailure::Query(reason, query.text.clone()))
    }
}
