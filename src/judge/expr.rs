//! Expressions of rules: the Common Expression Language, judged in three values.
//!
//! A condition is true, false, *not judged* (a fact it needs is absent), *silent* (a fact it uses
//! means nothing here) or a *fault*. CEL knows only values and errors, so the logical skeleton of
//! an expression (`&&`, `||`, `!`, `?:` and lets) is walked here, and its leaves run in CEL. Facts
//! are asked for one by one, when they are reached.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cel::common::ast::IdedExpr;
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{Context, ExecutionError};

use crate::base::cel::{HAS, ROOT, explain};
use crate::facts::{Answer, Lookup, Ty, Value};

pub use crate::base::cel::{Scalar, Type};

/// Bytes of a word: lets that join words could double them over and over.
pub const MAX_WORD: usize = 1 << 20;
/// Items of a list fact: what bounds a comprehension.
pub const MAX_ITEMS: usize = 1_024;

/// The type of a fact.
pub(super) fn fact_type(ty: Ty) -> Type {
    match ty {
        Ty::Bool => Type::BOOL,
        Ty::Int => Type::INT,
        Ty::Double => Type::DOUBLE,
        Ty::Str => Type::STR,
        Ty::Strings => Type::List(Some(Scalar::Str)),
        Ty::Doubles => Type::Map(Scalar::Double),
        Ty::Ints => Type::Map(Scalar::Int),
    }
}

/// What a finding knows of its members together, as `found.NAME`.
pub const FOUND: &[(&str, Type, &str)] = &[
    ("found.calls", Type::INT, "calls of all members"),
    (
        "found.copy_share",
        Type::DOUBLE,
        "their exposed copy time as a share of the window",
    ),
    ("found.count", Type::INT, "members the condition picked"),
    (
        "found.gpu_share",
        Type::DOUBLE,
        "the time they cover as a share of the GPU busy time (of the window for idle time)",
    ),
    (
        "found.idle_share",
        Type::DOUBLE,
        "their idle time as a share of the window",
    ),
    (
        "found.kernel_share",
        Type::DOUBLE,
        "their kernel time as a share of all kernel time",
    ),
    (
        "found.saving_ns",
        Type::DOUBLE,
        "the sum of their savings, ns",
    ),
    ("found.time_ns", Type::DOUBLE, "the time they cover, ns"),
    ("found.worst", Type::STR, "where the costliest of them is"),
];

/// The members of a finding together. A test may leave parts unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found(BTreeMap<&'static str, Value>);

impl Found {
    /// Sets `found.NAME`; unknown names are ignored.
    pub fn set(&mut self, name: &str, value: Value) {
        if let Some((name, ..)) = FOUND.iter().find(|(known, ..)| *known == name) {
            self.0.insert(name, value);
        }
    }

    /// The value of `found.NAME`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// An expression ready to run: parsed, checked, lowered.
#[derive(Debug, Clone)]
pub struct Expr {
    /// As the rule file has it.
    pub source: String,
    pub ty: Type,
    pub(super) node: Node,
    pub uses: Uses,
    /// Levels of its tree, those of its lets included.
    pub(super) depth: usize,
}

/// The names an expression uses, each once, in order of appearance. Not those of its lets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    pub facts: Vec<&'static str>,
    pub params: Vec<String>,
    /// Indices into the rule's lets.
    pub lets: Vec<usize>,
    pub found: bool,
}

impl Uses {
    pub(super) fn name(&mut self, name: &Name) {
        match name {
            Name::Fact(fact) => self.fact(fact),
            Name::Found(_) => self.found = true,
            Name::Param(param) => self.param(param),
            Name::Let(index) => self.let_(*index),
        }
    }

    pub(super) fn fact(&mut self, name: &'static str) {
        if !self.facts.contains(&name) {
            self.facts.push(name);
        }
    }

    pub(super) fn param(&mut self, name: &str) {
        if !self.params.iter().any(|p| p == name) {
            self.params.push(name.to_owned());
        }
    }

    pub(super) fn let_(&mut self, index: usize) {
        if !self.lets.contains(&index) {
            self.lets.push(index);
        }
    }

    /// Adds everything `other` uses.
    pub fn extend(&mut self, other: &Uses) {
        for fact in &other.facts {
            self.fact(fact);
        }
        for param in &other.params {
            self.param(param);
        }
        for index in &other.lets {
            self.let_(*index);
        }
        self.found |= other.found;
    }

    /// With what the lets it names use, and theirs.
    pub fn closure(&self, lets: &[Let]) -> Uses {
        let mut all = self.clone();
        let mut next = 0;
        while let Some(&index) = all.lets.get(next) {
            if let Some(named) = lets.get(index) {
                all.extend(&named.expr.uses);
            }
            next += 1;
        }
        all
    }
}

/// The logical skeleton of an expression.
#[derive(Debug, Clone)]
pub(super) enum Node {
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Not(Box<Node>),
    If(Box<[Node; 3]>),
    Let(usize),
    /// Fact, param or `found.NAME` alone.
    Name(Name),
    /// `fact == "word"` and `fact in ["word", ...]`. Most conditions are of this kind or of the
    /// next two, and asked of thousands of members, so they do not go through CEL.
    Word {
        fact: &'static str,
        words: Vec<String>,
    },
    /// `"word" in fact`, for a list.
    Inside {
        word: String,
        fact: &'static str,
    },
    Compare(Box<Comparison>),
    Cel(Box<Leaf>),
}

/// Two numbers and what must hold between them.
#[derive(Debug, Clone)]
pub(super) struct Comparison {
    pub(super) holds: Relation,
    pub(super) left: Operand,
    pub(super) right: Operand,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Relation {
    Less,
    AtMost,
    More,
    AtLeast,
    /// Of two numbers of one type.
    Equal,
}

/// A number in a comparison.
#[derive(Debug, Clone)]
pub(super) enum Operand {
    Name(Name),
    Literal(Value),
}

impl Relation {
    /// As CEL compares: whole numbers among themselves exactly, with others as doubles.
    fn of(self, left: &Value, right: &Value) -> Option<bool> {
        let ordering = match (left, right) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b)?,
            (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64))?,
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b)?,
            _ => return None,
        };
        Some(match self {
            Relation::Less => ordering.is_lt(),
            Relation::AtMost => ordering.is_le(),
            Relation::More => ordering.is_gt(),
            Relation::AtLeast => ordering.is_ge(),
            Relation::Equal => ordering.is_eq(),
        })
    }
}

/// What runs in CEL, and the names it asks for.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) ast: IdedExpr,
    /// It has no value without these.
    pub(super) strict: Vec<Name>,
    /// It may get by without these: they stand in a branch or a comprehension.
    pub(super) lax: Vec<Name>,
}

/// Something an expression or a sentence names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Fact(&'static str),
    /// With its prefix: `found.count`.
    Found(&'static str),
    /// Without its prefix.
    Param(String),
    /// Index into the rule's lets.
    Let(usize),
}

impl Name {
    /// As rule files write it.
    pub fn text(&self, lets: &[Let]) -> String {
        match self {
            Name::Fact(name) | Name::Found(name) => (*name).to_owned(),
            Name::Param(name) => format!("params.{name}"),
            Name::Let(index) => lets.get(*index).map(|l| l.name.clone()).unwrap_or_default(),
        }
    }
}

/// A named sub-expression. Uses only lets before it, so evaluation cannot go round.
#[derive(Debug, Clone)]
pub struct Let {
    pub name: String,
    pub expr: Expr,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// These facts apply but are absent. Sorted.
    Absent(Vec<&'static str>),
    /// A fact it uses means nothing for this member.
    NotApplicable,
    /// The rule failed.
    Fault(String),
}

impl Undecided {
    /// Of two undecided sides of `&&` (or `||`). A fault behind an undecided left side is none:
    /// the guard in front of it was not decided.
    fn join(self, right: Undecided, and: bool) -> Undecided {
        use Undecided::{Absent, Fault, NotApplicable};
        match (self, right) {
            (Fault(message), _) => Fault(message),
            (left, Fault(_)) => left,
            (Absent(mut a), Absent(b)) => {
                a.extend(b);
                a.sort_unstable();
                a.dedup();
                Absent(a)
            }
            (NotApplicable, NotApplicable) => NotApplicable,
            (absent @ Absent(_), NotApplicable) | (NotApplicable, absent @ Absent(_)) => {
                // With the fact collected, `||` could still become true, `&&` could not.
                if and { NotApplicable } else { absent }
            }
        }
    }
}

/// Everything one member's expressions can see. Lets are evaluated when first asked for, and once.
pub struct EvalContext<'a> {
    lookup: &'a dyn Lookup,
    params: &'a BTreeMap<String, Value>,
    lets: &'a [Let],
    values: Vec<OnceLock<Result<Value, Undecided>>>,
    found: Option<&'a Found>,
}

impl std::fmt::Debug for EvalContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalContext").finish_non_exhaustive()
    }
}

impl<'a> EvalContext<'a> {
    pub fn new(
        lookup: &'a dyn Lookup,
        params: &'a BTreeMap<String, Value>,
        lets: &'a [Let],
        found: Option<&'a Found>,
    ) -> EvalContext<'a> {
        EvalContext {
            lookup,
            params,
            lets,
            values: lets.iter().map(|_| OnceLock::new()).collect(),
            found,
        }
    }

    /// The value of an expression. Doubles are finite.
    ///
    /// # Errors
    /// Why there is none.
    pub fn value(&self, expr: &Expr) -> Result<Value, Undecided> {
        self.node(&expr.node)
    }

    /// A condition.
    ///
    /// # Errors
    /// Why it is undecided.
    pub fn holds(&self, expr: &Expr) -> Result<bool, Undecided> {
        self.truth(&expr.node)
    }

    /// A condition that picks members: as [`EvalContext::holds`], but what is silent is not picked, and
    /// what follows it in a conjunction is not asked.
    ///
    /// # Errors
    /// Why it is undecided.
    pub(super) fn selects(&self, expr: &Expr) -> Result<bool, Undecided> {
        self.select(&expr.node)
    }

    fn select(&self, node: &Node) -> Result<bool, Undecided> {
        let Node::And(sides) = node else {
            return self.truth(node);
        };
        let [left, right] = &**sides;
        match self.select(left) {
            // True and the right side's, or false and silent whatever stands there.
            Ok(true) => self.select(right),
            Ok(false) | Err(Undecided::NotApplicable) => Ok(false),
            Err(left) => conjoin(Err(left), self.truth(right), true),
        }
    }

    /// A part of a condition.
    pub(super) fn part_holds(&self, node: &Node) -> Result<bool, Undecided> {
        self.truth(node)
    }

    /// A number of ns, int or double.
    ///
    /// # Errors
    /// Why there is none.
    pub fn number(&self, expr: &Expr) -> Result<f64, Undecided> {
        match self.node(&expr.node)? {
            Value::Double(d) => Ok(d),
            Value::Int(i) => Ok(i as f64),
            other => Err(Undecided::Fault(format!("{other:?} is not a number"))),
        }
    }

    /// The value a name stands for.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self, name: &Name) -> Result<Value, Undecided> {
        match name {
            Name::Fact(fact) => self.fact(fact),
            Name::Found(found) => {
                let value = self.found.and_then(|f| f.get(found)).cloned();
                value.ok_or_else(|| Undecided::Absent(vec![found]))
            }
            Name::Param(param) => {
                let value = self.params.get(param).cloned();
                value.ok_or_else(|| Undecided::Fault(format!("no param `{param}`")))
            }
            Name::Let(index) => self.let_value(*index),
        }
    }

    fn fact(&self, name: &'static str) -> Result<Value, Undecided> {
        match self.lookup.get(name) {
            Answer::Value(value) => sound(name, value),
            Answer::DoesNotApply => Err(Undecided::NotApplicable),
            Answer::Absent => Err(Undecided::Absent(vec![name])),
        }
    }

    /// What CEL sees under a name, if anything.
    fn visible(&self, name: &str) -> Option<Value> {
        if let Some(fact) = name.strip_prefix(HAS) {
            return Some(Value::Bool(self.visible(fact).is_some()));
        }
        if let Some(param) = name.strip_prefix("params.") {
            return self.params.get(param).cloned();
        }
        if name.starts_with("found.") {
            return self.found.and_then(|f| f.get(name)).cloned();
        }
        if !name.contains('.') {
            let index = self.lets.iter().position(|l| l.name == name)?;
            return self.let_value(index).ok();
        }
        match self.lookup.get(name) {
            Answer::Value(value) => sound(name, value).ok(),
            _ => None,
        }
    }

    fn let_value(&self, index: usize) -> Result<Value, Undecided> {
        let (Some(named), Some(cell)) = (self.lets.get(index), self.values.get(index)) else {
            return Err(Undecided::Fault("a let that is not there".into()));
        };
        cell.get_or_init(|| self.value(&named.expr)).clone()
    }

    fn truth(&self, node: &Node) -> Result<bool, Undecided> {
        match node {
            Node::And(sides) => self.both(sides, true),
            Node::Or(sides) => self.both(sides, false),
            Node::Not(inner) => self.truth(inner).map(|b| !b),
            Node::If(parts) => {
                let [condition, then, otherwise] = &**parts;
                let branch = if self.truth(condition)? {
                    then
                } else {
                    otherwise
                };
                self.truth(branch)
            }
            Node::Word { fact, words } => match self.fact(fact)? {
                Value::Str(is) => Ok(words.iter().any(|w| **w == *is)),
                other => Err(Undecided::Fault(format!(
                    "`{fact}` is {other:?}, no string"
                ))),
            },
            Node::Inside { word, fact } => match self.fact(fact)? {
                Value::Strings(list) => Ok(list.iter().any(|is| **is == **word)),
                other => Err(Undecided::Fault(format!(
                    "`{fact}` is {other:?}, no list of strings"
                ))),
            },
            Node::Compare(comparison) => self.compare(comparison),
            Node::Let(_) | Node::Name(_) | Node::Cel(_) => match self.node(node)? {
                Value::Bool(b) => Ok(b),
                other => Err(Undecided::Fault(format!(
                    "{other:?} is neither true nor false"
                ))),
            },
        }
    }

    /// `&&` (`and`) or `||`: the side that decides wins over an undecided other side.
    fn both(&self, sides: &[Node; 2], and: bool) -> Result<bool, Undecided> {
        let [left, right] = sides;
        let left = self.truth(left);
        if left == Ok(!and) {
            return Ok(!and);
        }
        conjoin(left, self.truth(right), and)
    }

    fn compare(&self, comparison: &Comparison) -> Result<bool, Undecided> {
        let number = |operand: &Operand| match operand {
            Operand::Name(name) => self.get(name),
            Operand::Literal(value) => Ok(value.clone()),
        };
        // In the order in which a leaf's names are asked for.
        let (right, left) = (number(&comparison.right), number(&comparison.left));
        let (left, right) = match (left, right) {
            (Ok(left), Ok(right)) => (left, right),
            (Err(left), Err(right)) => return Err(right.join(left, true)),
            (Err(why), _) | (_, Err(why)) => return Err(why),
        };
        (comparison.holds.of(&left, &right))
            .ok_or_else(|| Undecided::Fault(format!("{left:?} and {right:?} cannot be compared")))
    }

    fn node(&self, node: &Node) -> Result<Value, Undecided> {
        match node {
            Node::Let(index) => self.let_value(*index),
            Node::Name(name) => self.get(name),
            Node::If(parts) => {
                let [condition, then, otherwise] = &**parts;
                let branch = if self.truth(condition)? {
                    then
                } else {
                    otherwise
                };
                self.node(branch)
            }
            Node::Cel(leaf) => self.run(leaf),
            Node::And(_)
            | Node::Or(_)
            | Node::Not(_)
            | Node::Word { .. }
            | Node::Inside { .. }
            | Node::Compare(_) => self.truth(node).map(Value::Bool),
        }
    }

    fn run(&self, leaf: &Leaf) -> Result<Value, Undecided> {
        let mut scope: Context<'_, '_> = ROOT.new_inner_scope();
        scope.set_variable_resolver(self);
        match cel::Value::resolve(&leaf.ast, &scope) {
            Ok(value) => from_cel(value).and_then(|value| sound("the result", value)),
            Err(error) => Err(self.why(leaf, &error)),
        }
    }

    /// What an execution error means: a name without a value is its name's business, everything
    /// else is the rule's fault.
    fn why(&self, leaf: &Leaf, error: &ExecutionError) -> Undecided {
        let ExecutionError::UndeclaredReference(culprit) = error else {
            return Undecided::Fault(explain(error));
        };
        // All that it cannot do without, not only the first name CEL stumbled over.
        let undecided = |names: &[Name]| {
            let each = names.iter().filter_map(|name| self.get(name).err());
            each.reduce(|a, b| a.join(b, true))
        };
        let stumbled = |name: &&Name| name.text(self.lets) == culprit.as_str();
        undecided(&leaf.strict)
            .or_else(|| {
                leaf.lax
                    .iter()
                    .find(stumbled)
                    .and_then(|n| self.get(n).err())
            })
            .unwrap_or_else(|| Undecided::Fault(explain(error)))
    }
}

/// Both sides of `&&` (`and`) or `||`, when the left one does not decide.
fn conjoin(
    left: Result<bool, Undecided>,
    right: Result<bool, Undecided>,
    and: bool,
) -> Result<bool, Undecided> {
    match (left, right) {
        (_, Ok(right)) if right != and => Ok(!and),
        (Ok(_), right) => right,
        (Err(left), Ok(_)) => Err(left),
        (Err(left), Err(right)) => Err(left.join(right, and)),
    }
}

impl VariableResolver for EvalContext<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        // The hidden variables of comprehensions live in CEL's own scopes.
        if name.starts_with('@') {
            return None;
        }
        let boxed: Box<dyn Val> = to_cel(&self.visible(name)?).try_into().ok()?;
        Some(CowVal::Owned(boxed))
    }
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Bool(b) => cel::Value::Bool(*b),
        Value::Int(i) => cel::Value::Int(*i),
        Value::Double(d) => cel::Value::Float(*d),
        Value::Str(s) => cel::Value::String(Arc::new(s.to_string())),
        Value::Strings(list) => {
            let items = list
                .iter()
                .map(|s| cel::Value::String(Arc::new(s.to_string())));
            cel::Value::List(Arc::new(items.collect()))
        }
        Value::Doubles(map) => to_map(map.iter().map(|(k, v)| (k, cel::Value::Float(*v)))),
        Value::Ints(map) => to_map(map.iter().map(|(k, v)| (k, cel::Value::Int(*v)))),
    }
}

fn to_map<'a>(entries: impl Iterator<Item = (&'a Arc<str>, cel::Value)>) -> cel::Value {
    let map: std::collections::HashMap<String, cel::Value> =
        entries.map(|(k, v)| (k.to_string(), v)).collect();
    cel::Value::Map(map.into())
}

fn from_cel(value: cel::Value) -> Result<Value, Undecided> {
    let odd = || Undecided::Fault("a value of a type rules cannot keep".into());
    match value {
        cel::Value::Bool(b) => Ok(Value::Bool(b)),
        cel::Value::Int(i) => Ok(Value::Int(i)),
        cel::Value::Float(d) => Ok(Value::Double(d)),
        cel::Value::String(s) => Ok(Value::Str(s.as_str().into())),
        cel::Value::List(items) => {
            let words: Option<Vec<Arc<str>>> = items.iter().map(cel_str).collect();
            words.map(|w| Value::Strings(w.into())).ok_or_else(odd)
        }
        cel::Value::Map(map) => {
            let mut ints = BTreeMap::new();
            let mut doubles = BTreeMap::new();
            for (key, value) in map.map.iter() {
                let key: Arc<str> = key.to_string().into();
                match value {
                    cel::Value::Int(i) => drop(ints.insert(key, *i)),
                    cel::Value::Float(d) => drop(doubles.insert(key, *d)),
                    _ => return Err(odd()),
                }
            }
            if doubles.is_empty() {
                Ok(Value::Ints(Arc::new(ints)))
            } else {
                Ok(Value::Doubles(Arc::new(doubles)))
            }
        }
        _ => Err(odd()),
    }
}

fn cel_str(value: &cel::Value) -> Option<Arc<str>> {
    match value {
        cel::Value::String(s) => Some(s.as_str().into()),
        _ => None,
    }
}

/// Lets only finite numbers and lists of bounded length through.
fn sound(name: &str, value: Value) -> Result<Value, Undecided> {
    let fault = |why: &str| Err(Undecided::Fault(format!("`{name}` {why}")));
    match &value {
        Value::Double(d) if !d.is_finite() => fault("is not a finite number"),
        Value::Doubles(map) if map.values().any(|d| !d.is_finite()) => {
            fault("holds a number that is not finite")
        }
        Value::Str(word) if word.len() > MAX_WORD => fault("is longer than 1 MiB"),
        Value::Strings(list) if list.len() > MAX_ITEMS => fault("has more than 1,024 items"),
        _ => Ok(value),
    }
}
