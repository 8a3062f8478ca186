//! The expression language of rule and cost files: the subset of the Common Expression Language (CEL)
//! that they need, parsed, type-checked and evaluated here.
//!
//! [`check()`] parses an expression and resolves its names and types, so that a [`Tree`] can only fail
//! on values: an absent name, an overflow, a missing key. [`truth`] and [`value`] evaluate it in
//! three-valued logic. The kind of file defines the names: rules use facts, costs use properties of an
//! operator's arguments. They implement [`NameResolver`] and [`Bindings`].
//!
//! Differences from CEL: names are resolved and types checked before anything runs, there are no
//! unsigned ints, bytes, nulls, messages or regular expressions, results that overflow or are not
//! finite are errors, both operands of an operator are evaluated even if the first one fails (to name
//! everything that is absent), and `exists` and `all` are not nested.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

mod check;
mod evaluate;
mod functions;
mod syntax;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
pub(crate) mod tests;

pub(crate) use check::unknown_value;
pub(crate) use evaluate::join_all;
pub use evaluate::{Bindings, EvalFailure, truth, value};
pub use functions::{FUNCTIONS, Function};
pub use syntax::{Ast, AstKind};

/// Maximum length of one expression in bytes; longer ones belong in a `[let]`.
pub const MAX_SOURCE: usize = 2_000;
/// Maximum number of nodes of one expression's tree.
pub const MAX_NODES: usize = 400;
/// Maximum depth of one expression's tree, including the lets it uses. Evaluation recurses this far.
pub const MAX_DEPTH: usize = 40;
/// Maximum length in bytes of a string that an expression computes.
pub const MAX_STRING: usize = 1 << 20;
/// Maximum number of items of a list, which bounds a comprehension.
pub const MAX_ITEMS: usize = 1_024;

/// A value that an expression computes or a name has.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A double; computed ones are finite.
    Double(f64),
    /// A string.
    Str(Arc<str>),
    /// A list of strings.
    Strings(Arc<[Arc<str>]>),
    /// A map from strings to doubles.
    Doubles(Arc<BTreeMap<Arc<str>, f64>>),
    /// A map from strings to ints.
    Ints(Arc<BTreeMap<Arc<str>, i64>>),
}

/// The type of a single value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// `true` or `false`.
    Bool,
    /// A 64-bit integer.
    Int,
    /// A double.
    Double,
    /// A string.
    Str,
}

impl Scalar {
    /// Returns true for ints and doubles.
    pub fn is_number(self) -> bool {
        matches!(self, Scalar::Int | Scalar::Double)
    }

    /// The name with its article: `an int`.
    pub fn phrase(self) -> &'static str {
        match self {
            Scalar::Bool => "a bool",
            Scalar::Int => "an int",
            Scalar::Double => "a double",
            Scalar::Str => "a string",
        }
    }
}

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A single value.
    One(Scalar),
    /// A list; an empty list literal has no item type.
    List(Option<Scalar>),
    /// A map from strings.
    Map(Scalar),
}

impl Type {
    /// A condition.
    pub const BOOL: Type = Type::One(Scalar::Bool);
    /// A 64-bit integer.
    pub const INT: Type = Type::One(Scalar::Int);
    /// A double.
    pub const DOUBLE: Type = Type::One(Scalar::Double);
    /// A string.
    pub const STR: Type = Type::One(Scalar::Str);
    /// A list of strings.
    pub const STRINGS: Type = Type::List(Some(Scalar::Str));
    /// A map from strings to doubles.
    pub const DOUBLES: Type = Type::Map(Scalar::Double);
    /// A map from strings to ints.
    pub const INTS: Type = Type::Map(Scalar::Int);

    /// The type of a value.
    pub fn of(value: &Value) -> Type {
        match value {
            Value::Bool(_) => Type::BOOL,
            Value::Int(_) => Type::INT,
            Value::Double(_) => Type::DOUBLE,
            Value::Str(_) => Type::STR,
            Value::Strings(_) => Type::STRINGS,
            Value::Doubles(_) => Type::DOUBLES,
            Value::Ints(_) => Type::INTS,
        }
    }

    /// The type of a single value, `None` for lists and maps.
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            Type::One(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// Returns true for ints and doubles.
    pub fn is_number(self) -> bool {
        self.scalar().is_some_and(Scalar::is_number)
    }

    /// Returns true if a [`Value`] can hold it, so that it can be a fact, a param or a let.
    pub fn keepable(self) -> bool {
        match self {
            Type::One(_) | Type::List(Some(Scalar::Str)) => true,
            Type::Map(item) => item.is_number(),
            Type::List(_) => false,
        }
    }

    /// The name: `list of strings`.
    pub fn word(self) -> String {
        let phrase = self.phrase();
        let (_article, word) = phrase.split_once(' ').unwrap_or_default();
        word.to_owned()
    }

    /// The name with its article: `a list of strings`.
    pub fn phrase(self) -> String {
        let plural = |s: Scalar| match s {
            Scalar::Bool => "bools",
            Scalar::Int => "ints",
            Scalar::Double => "doubles",
            Scalar::Str => "strings",
        };
        match self {
            Type::One(scalar) => scalar.phrase().into(),
            Type::List(None) => "an empty list".into(),
            Type::List(Some(item)) => format!("a list of {}", plural(item)),
            Type::Map(item) => format!("a map of {}", plural(item)),
        }
    }
}

/// A mistake in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Byte range in the expression's text.
    pub at: Range<usize>,
    /// The problem. Empty if the cause is reported elsewhere.
    pub title: String,
    /// The correction; may be empty.
    pub label: String,
}

/// The reason why a name cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoName {
    /// It exists, but its own definition is wrong and reported there.
    Broken,
    /// It does not exist; with a message.
    Unknown(String),
}

/// The names that expressions of one kind of file may use.
pub trait NameResolver {
    /// A resolved name.
    type Name: Clone;

    /// Resolves a dotted name.
    ///
    /// # Errors
    /// The reason why there is no such name.
    fn find(&self, name: &str) -> Result<(Self::Name, Type), NoName>;

    /// Returns true if a word without a dot is a complete name, so that the word after a following dot
    /// is a field.
    fn is_whole(&self, word: &str) -> bool;

    /// Returns true if a name can be absent, so that `has(...)` makes sense.
    fn may_be_absent(&self, name: &Self::Name) -> bool;

    /// The values a string can have; empty if it can be any string.
    fn values(&self, _name: &Self::Name) -> &'static [&'static str] {
        &[]
    }

    /// Resolves a call that is treated as a name, such as `dim(0, 1)`. `None` for functions of the
    /// language. The error is a title and a label, which may be empty.
    #[allow(clippy::type_complexity)]
    fn call(
        &self,
        _function: &str,
        _arguments: &[Ast<'_>],
    ) -> Option<Result<(Self::Name, Type), (String, String)>> {
        None
    }

    /// The functions that [`NameResolver::call`] resolves, for suggestions.
    fn functions(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// A checked expression over names of type `N`.
#[derive(Debug, Clone)]
pub struct Tree<N> {
    pub(crate) node: Node<N>,
    /// Byte range in the source, without brackets around it.
    pub(crate) at: Range<usize>,
}

/// One operation of a checked expression.
#[derive(Debug, Clone)]
pub(crate) enum Node<N> {
    Literal(Value),
    Name(N),
    /// `has(name)`.
    Has(N),
    /// The variable of the enclosing comprehension.
    Item,
    /// Operands of `&&`.
    All(Vec<Tree<N>>),
    /// Operands of `||`.
    Any(Vec<Tree<N>>),
    Not(Box<Tree<N>>),
    Negate(Box<Tree<N>>),
    /// `condition ? then : otherwise`.
    If(Box<[Tree<N>; 3]>),
    /// Comparison, arithmetic or `in`.
    Binary(BinaryOperator, Box<[Tree<N>; 2]>),
    Index(Box<[Tree<N>; 2]>),
    List(Vec<Tree<N>>),
    /// A list of literals, as nearly all are.
    Literals(Vec<Value>),
    Map(Vec<(Tree<N>, Tree<N>)>),
    Size(Box<Tree<N>>),
    /// `contains`, `startsWith` or `endsWith`.
    Text(fn(&str, &str) -> bool, Box<[Tree<N>; 2]>),
    Call(&'static Function, Vec<Tree<N>>),
    /// A list and the expression evaluated for each item.
    Comprehension(Macro, Box<[Tree<N>; 2]>),
}

/// An operator between two operands, other than `&&` and `||`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `in`
    In,
}

/// A function that runs over the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

/// A checked expression with its type and the names in it.
#[derive(Debug)]
pub struct Checked<N> {
    /// The expression.
    pub expr: Tree<N>,
    /// Its type.
    pub ty: Type,
    /// The names it uses, in order of appearance and as often as they appear.
    pub names: Vec<N>,
    /// The depth of its tree.
    pub depth: usize,
}

/// Parses and checks an expression.
///
/// # Errors
/// All mistakes in it; only the first one if it cannot be parsed.
pub fn check<N: NameResolver>(source: &str, names: &N) -> Result<Checked<N::Name>, Vec<Mistake>> {
    if source.trim().is_empty() {
        return Err(whole(source, "an empty expression"));
    }
    if source.len() > MAX_SOURCE {
        let title = format!("an expression of more than {MAX_SOURCE} bytes");
        return Err(whole(source, title));
    }
    let ast = syntax::parse(source).map_err(|mistake| vec![mistake])?;
    check::check(source, &ast, names)
}

/// A single mistake that spans a whole expression.
pub(crate) fn whole(source: &str, title: impl Into<String>) -> Vec<Mistake> {
    vec![Mistake {
        at: 0..source.len(),
        title: title.into(),
        label: String::new(),
    }]
}
