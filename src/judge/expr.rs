//! Expressions of rules: facts, params, lets and `found` in three-valued logic.
//!
//! A condition is true, false or undecided: a fact it needs is absent, does not apply to the member,
//! or the expression failed. The language itself is in [`crate::base::cel`]; here is what its names
//! stand for. Facts are asked for one by one, when an expression reaches them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::base::cel::{self, Failure, MAX_STRING, Node, Scope, join_all};
use crate::facts::{Answer, Lookup, Ty, Value};

pub use crate::base::cel::{MAX_ITEMS, Scalar, Type};

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

/// A checked expression of a rule.
#[derive(Debug, Clone)]
pub struct Expr {
    /// As the rule file has it.
    pub source: String,
    /// Its type.
    pub ty: Type,
    pub(super) tree: cel::Expr<Name>,
    /// What it names.
    pub uses: Uses,
    /// The depth of its tree, including the lets it uses.
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

impl Failure for Undecided {
    fn fault(message: String) -> Undecided {
        Undecided::Fault(message)
    }

    /// A fault behind an undecided left operand does not count: the guard in front of it was not
    /// decided.
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
                // With the fact recorded, `||` could still become true, `&&` could not.
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
    /// Why it has none.
    pub fn value(&self, expr: &Expr) -> Result<Value, Undecided> {
        cel::value(&expr.tree, self)
    }

    /// Whether a condition holds.
    ///
    /// # Errors
    /// Why it is undecided.
    pub fn holds(&self, expr: &Expr) -> Result<bool, Undecided> {
        self.part_holds(&expr.tree)
    }

    /// Whether a part of a condition holds.
    pub(super) fn part_holds(&self, part: &cel::Expr<Name>) -> Result<bool, Undecided> {
        cel::truth(part, self)
    }

    /// Whether a condition selects the member: as [`EvalContext::holds`], but false as soon as an
    /// operand of `&&` does not apply, without asking for what follows.
    ///
    /// # Errors
    /// Why it is undecided.
    pub(super) fn selects(&self, expr: &Expr) -> Result<bool, Undecided> {
        let parts = match &expr.tree.node {
            Node::All(parts) => parts,
            _ => std::slice::from_ref(&expr.tree),
        };
        for (at, part) in parts.iter().enumerate() {
            match self.part_holds(part) {
                Ok(true) => {}
                Ok(false) | Err(Undecided::NotApplicable) => return Ok(false),
                Err(why) => {
                    let rest = parts.iter().skip(at + 1).map(|part| self.part_holds(part));
                    return join_all(std::iter::once(Err(why)).chain(rest), true);
                }
            }
        }
        Ok(true)
    }

    /// The value of a number.
    ///
    /// # Errors
    /// Why there is none.
    pub fn number(&self, expr: &Expr) -> Result<f64, Undecided> {
        match self.value(expr)? {
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

    fn let_value(&self, index: usize) -> Result<Value, Undecided> {
        let (Some(named), Some(cell)) = (self.lets.get(index), self.values.get(index)) else {
            return Err(Undecided::Fault("a let that is not there".into()));
        };
        cell.get_or_init(|| self.value(&named.expr)).clone()
    }
}

impl Scope for EvalContext<'_> {
    type Name = Name;
    type Failure = Undecided;

    fn get(&self, name: &Name) -> Result<Value, Undecided> {
        EvalContext::get(self, name)
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
        Value::Str(word) if word.len() > MAX_STRING => fault("is longer than 1 MiB"),
        Value::Strings(list) if list.len() > MAX_ITEMS => fault("has more than 1,024 items"),
        _ => Ok(value),
    }
}
