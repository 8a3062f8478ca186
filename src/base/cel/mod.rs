//! The Common Expression Language as the files of this program use it: with bounds, with types
//! checked before anything runs, and with arithmetic that notices overflow.
//!
//! What an expression may name is the business of whoever owns the file: rules name facts, costs
//! name the arguments of an operator. They say so through `Names`.

use std::ops::Range;
use std::sync::LazyLock;

use cel::common::ast::{CallExpr, EntryExpr, Expr as Ast, IdedExpr};
use cel::{Context, ExecutionError};

mod functions;
mod lower;
mod types;

pub use functions::{FUNCTIONS, Function};
pub(crate) use lower::HAS;
pub(crate) use types::Checker;

/// Bytes of one expression; longer ones belong in a `[let]`.
pub const MAX_SOURCE: usize = 2_000;
/// Nodes of one expression after its macros are expanded.
pub const MAX_NODES: usize = 400;
/// Levels of one expression's tree, those of its lets included: CEL takes up to 35 kB of stack for
/// each when it runs unoptimised, and threads may have 2 MiB.
pub const MAX_DEPTH: usize = 40;
/// Words and signs of one expression. The parser recurses once for each operator of a chain.
pub const MAX_TOKENS: usize = 400;
/// Brackets in brackets, and `?:` in `?:`: for each the parser recurses through all of its grammar.
pub const MAX_NESTING: usize = 16;
/// Stack of a thread that parses expressions: CEL's parser takes up to 200 kB of it for each bracket
/// in a bracket when it is not optimised; [`MAX_NESTING`] bounds those.
pub const STACK: usize = 32 << 20;

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Bool,
    Int,
    Double,
    Str,
}

impl Scalar {
    /// Int or double.
    pub fn is_number(self) -> bool {
        matches!(self, Scalar::Int | Scalar::Double)
    }

    /// With its article: `an int`.
    pub fn phrase(self) -> &'static str {
        match self {
            Scalar::Bool => "a bool",
            Scalar::Int => "an int",
            Scalar::Double => "a double",
            Scalar::Str => "a string",
        }
    }
}

/// The type of an expression. Maps have string keys; an empty list has no item type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    One(Scalar),
    List(Option<Scalar>),
    Map(Scalar),
}

impl Type {
    pub const BOOL: Type = Type::One(Scalar::Bool);
    pub const INT: Type = Type::One(Scalar::Int);
    pub const DOUBLE: Type = Type::One(Scalar::Double);
    pub const STR: Type = Type::One(Scalar::Str);

    pub fn scalar(self) -> Option<Scalar> {
        match self {
            Type::One(scalar) => Some(scalar),
            _ => None,
        }
    }

    pub fn is_number(self) -> bool {
        self.scalar().is_some_and(Scalar::is_number)
    }

    /// Whether a value can be kept, that is, be a fact, a param or a let.
    pub fn keepable(self) -> bool {
        match self {
            Type::One(_) | Type::List(Some(Scalar::Str)) => true,
            Type::Map(item) => item.is_number(),
            Type::List(_) => false,
        }
    }

    /// With its article: `a list of strings`.
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

/// Something wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes of the expression's text.
    pub at: Range<usize>,
    pub title: String,
    /// What to write instead; may be empty.
    pub label: String,
}

/// What looking a name up gives when it gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoName {
    /// Complained about elsewhere.
    Broken,
    /// A sentence that says why.
    Unknown(String),
}

/// A call that turned out to be a name.
pub(crate) struct Disguised<N> {
    /// What it is lowered to, and asked for under when it runs.
    pub(crate) lowered: String,
    pub(crate) name: N,
    pub(crate) ty: Type,
}

/// What is wrong with a call, and what to write instead; the latter may be empty.
pub(crate) type Mistaken = (String, String);

/// The names expressions of one kind of file may use.
pub(crate) trait Names {
    /// What a name stands for.
    type Name;

    /// What a dotted name stands for, and its type.
    fn find(&self, name: &str) -> Result<(Self::Name, Type), NoName>;

    /// Whether a dotted name stands for something.
    fn knows(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Whether a word is a name by itself, so that what follows its dot is a field.
    fn is_whole(&self, word: &str) -> bool;

    /// Whether it makes sense to ask `has(...)` of a name.
    fn may_be_absent(&self, name: &Self::Name) -> bool;

    /// A call that is a name in disguise, `dim(0, 1)`. `None` for functions of the language.
    fn call(&self, _call: &CallExpr) -> Option<Result<Disguised<Self::Name>, Mistaken>> {
        None
    }

    /// The functions [`Names::call`] understands.
    fn functions(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// A checked expression: what runs, its type, and the names it uses, each as often as it stands there.
#[derive(Debug)]
pub(crate) struct Checked<N> {
    pub(crate) ast: IdedExpr,
    pub(crate) ty: Type,
    pub(crate) names: Vec<N>,
    /// Levels of its tree.
    pub(crate) depth: usize,
}

/// Parses and checks an expression.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn check<N: Names>(source: &str, names: &N) -> Result<Checked<N::Name>, Vec<Mistake>> {
    if source.trim().is_empty() {
        return Err(whole(source, "an empty expression"));
    }
    if source.len() > MAX_SOURCE {
        let title = format!("an expression of more than {MAX_SOURCE} bytes");
        return Err(whole(source, title));
    }
    if too_deep(source) {
        return Err(whole(source, TOO_MANY));
    }
    let program = cel::Program::compile(source).map_err(|e| syntax(source, &e))?;
    let mut ast = program.expression().clone();
    let (nodes, depth) = size(&ast);
    if nodes > MAX_NODES || depth > MAX_DEPTH {
        return Err(whole(source, TOO_MANY));
    }
    let mut checker = Checker::new(source, program.source_info(), names);
    let ty = checker.walk(&mut ast);
    let Some(ty) = ty.filter(|_| checker.mistakes.is_empty()) else {
        return Err(checker.mistakes);
    };
    Ok(Checked {
        ast,
        ty,
        names: checker.used,
        depth,
    })
}

const TOO_MANY: &str = "an expression with too many parts";

/// One mistake about all of an expression.
pub(crate) fn whole(source: &str, title: impl Into<String>) -> Vec<Mistake> {
    vec![Mistake {
        at: 0..source.len(),
        title: title.into(),
        label: String::new(),
    }]
}

/// The shared root scope: functions and operators, no variables.
pub(crate) static ROOT: LazyLock<Context<'static, 'static>> = LazyLock::new(|| {
    let mut root = Context::default();
    functions::register(&mut root);
    root
});

/// An execution error in words an author can act on; values are left out, they may be long.
pub(crate) fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => {
            format!(
                "no such key `{}` in a map; guard it with `in`",
                clipped(key)
            )
        }
        ExecutionError::FunctionError { function, message } => {
            match functions::operator(function) {
                Some(sign) => format!("`{sign}`: {message}"),
                None => format!("`{function}`: {message}"),
            }
        }
        ExecutionError::IndexOutOfBounds(_) => "an index past the end of a list".into(),
        ExecutionError::UndeclaredReference(name) => format!("`{}` has no value", clipped(name)),
        other => clipped(&other.to_string()),
    }
}

fn clipped(text: &str) -> String {
    const MOST: usize = 160;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars()
        .take(MOST)
        .chain(std::iter::once('…'))
        .collect()
}

/// Whether parsing could recurse too far; looked at before the parser sees it.
fn too_deep(source: &str) -> bool {
    let mut tokens = 0_usize;
    let mut depth = 0_usize;
    let mut deepest = 0_usize;
    let mut choices = 0_usize;
    let mut in_word = false;
    for c in source.chars() {
        let word = c.is_alphanumeric() || c == '_';
        let goes_on = word && in_word;
        if !goes_on && !c.is_whitespace() {
            tokens += 1;
        }
        in_word = word;
        // Quotes are not told apart: a string full of brackets can be split.
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '?' => choices += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    tokens > MAX_TOKENS || deepest > MAX_NESTING || choices > MAX_NESTING
}

fn syntax(source: &str, errors: &cel::ParseErrors) -> Vec<Mistake> {
    let place = |line: isize, column: isize| {
        let line = usize::try_from(line - 1).unwrap_or(0);
        let before: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
        let at = before + usize::try_from(column - 1).unwrap_or(0);
        at.min(source.len())
    };
    let mistake = |e: &cel::ParseError| {
        let at = place(e.pos.0, e.pos.1);
        Mistake {
            at: at..(at + 1).min(source.len()).max(at),
            title: format!("not an expression: {}", first_line(&e.msg)),
            label: String::new(),
        }
    };
    // One slip makes the parser stumble several times; the first complaint is the useful one.
    errors.errors.iter().take(1).map(mistake).collect()
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(160).collect()
}

/// Nodes and levels of a tree.
fn size(ast: &IdedExpr) -> (usize, usize) {
    let mut count = 0;
    let mut deepest = 0;
    let mut stack = vec![(ast, 1)];
    while let Some((node, depth)) = stack.pop() {
        count += 1;
        deepest = deepest.max(depth);
        let mut below: Vec<&IdedExpr> = Vec::new();
        match &node.expr {
            Ast::Call(call) => {
                below.extend(call.target.as_deref());
                below.extend(&call.args);
            }
            Ast::Select(select) => below.push(&select.operand),
            Ast::List(list) => below.extend(&list.elements),
            Ast::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        below.extend([&entry.key, &entry.value]);
                    }
                }
            }
            Ast::Comprehension(c) => below.extend([
                &c.iter_range,
                &c.accu_init,
                &c.loop_cond,
                &c.loop_step,
                &c.result,
            ]),
            _ => {}
        }
        stack.extend(below.into_iter().map(|node| (node, depth + 1)));
    }
    (count, deepest)
}
