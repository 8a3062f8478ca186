//! Expressions of rules: facts, params, lets and `found` in three-valued logic.
//!
//! A condition is true, false or undecided: a fact it needs is absent, does not apply to the member,
//! or the expression failed. [`crate::base::cel`] implements the language; this module resolves its
//! names. A fact is looked up when the evaluation reaches it.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::cel::{self, Bindings, EvalFailure, MAX_STRING, Node, join_all};
use crate::facts::{Answer, Lookup, Value};

pub use crate::base::cel::{MAX_ITEMS, Scalar, Type};

/// The values that describe all members of a finding together, as `found.NAME`: name, type and doc.
pub const FOUND: &[(&str, Type, &str)] = &[
    ("found.calls", Type::INT, "calls of all members"),
    (
        "found.copy_share",
        Type::DOUBLE,
        "their exposed copy time as a share of the window",
    ),
    ("found.count", Type::INT, "members that meet the condition"),
    (
        "found.exposed_ns",
        Type::DOUBLE,
        "the part of their kernel time during which nothing else ran on the device, ns",
    ),
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
        "their kernel time as a share of all kernel time; without communication, unless the rule is about it",
    ),
    (
        "found.longest_ns",
        Type::DOUBLE,
        "of idle time: the longest interval, without what recording explains of it, ns",
    ),
    (
        "found.place",
        Type::STR,
        "the place that holds most of it, with all members there",
    ),
    (
        "found.saving_ns",
        Type::DOUBLE,
        "the sum of their savings, ns",
    ),
    (
        "found.saving_low_ns",
        Type::DOUBLE,
        "the sum of the lower ends of their savings, ns",
    ),
    ("found.time_ns", Type::DOUBLE, "the time they cover, ns"),
    (
        "found.waits",
        Type::INT,
        "calls of the host that the GPU was idle behind: it may run dry several times before the host has caught up",
    ),
    (
        "found.worst",
        Type::STR,
        "where the costliest member is, whose facts messages use",
    ),
];

/// The values of [`FOUND`] for one finding. In a rule's test, some may be unknown.
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
    /// Its text in the rule file.
    pub source: String,
    /// Its type.
    pub ty: Type,
    pub(super) tree: cel::Tree<Name>,
    /// The names it uses.
    pub uses: Uses,
    /// The depth of its tree, including the lets it uses.
    pub(super) depth: usize,
}

impl Expr {
    /// The operands of `&&` that it consists of.
    pub(super) fn operands(&self) -> &[cel::Tree<Name>] {
        match &self.tree.node {
            Node::All(parts) => parts,
            _ => std::slice::from_ref(&self.tree),
        }
    }
}

/// The names that an expression uses, each once, in order of appearance, without the names that its
/// lets use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Names of facts.
    pub facts: Vec<&'static str>,
    /// Names of params, without `params.`.
    pub params: Vec<String>,
    /// Indices into the rule's lets.
    pub lets: Vec<usize>,
    /// Whether it uses `found.NAME`.
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

    /// These uses and those of all lets that are used directly or indirectly.
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

/// A resolved name in an expression or a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A fact, with its prefix: `site.m`.
    Fact(&'static str),
    /// A value of the finding, with its prefix: `found.count`.
    Found(&'static str),
    /// A param, without its prefix.
    Param(String),
    /// An index into the rule's lets.
    Let(usize),
}

impl Name {
    /// The name as rule files write it.
    pub fn text(&self, lets: &[Let]) -> String {
        match self {
            Name::Fact(name) | Name::Found(name) => (*name).to_owned(),
            Name::Param(name) => format!("params.{name}"),
            Name::Let(index) => lets.get(*index).map(|l| l.name.clone()).unwrap_or_default(),
        }
    }
}

/// A named sub-expression. It uses only the lets before it, so evaluation terminates.
#[derive(Debug, Clone)]
pub struct Let {
    /// Name in `[let]`.
    pub name: String,
    /// The checked expression.
    pub expr: Expr,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// These facts apply but are absent. Sorted.
    Absent(Vec<&'static str>),
    /// A fact that it uses does not apply to this member.
    NotApplicable,
    /// The evaluation failed, with the error message.
    Fault(String),
}

impl EvalFailure for Undecided {
    fn fault(message: String) -> Undecided {
        Undecided::Fault(message)
    }

    /// A fault in the right operand is ignored if the left operand is undecided, because the left
    /// operand may be a guard.
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

/// The values that the expressions of a rule can use for one member. A let is evaluated once, at its
/// first use.
pub struct EvalContext<'a> {
    lookup: &'a dyn Lookup,
    params: &'a BTreeMap<String, Value>,
    lets: &'a [Let],
    values: Vec<OnceLock<Result<Value, Undecided>>>,
    found: Option<&'a Found>,
}

/// The facts that are the same for all members.
struct SharedFacts<'a> {
    run: &'a dyn Lookup,
    /// Whether another fact was asked for.
    others: AtomicBool,
}

impl Lookup for SharedFacts<'_> {
    fn get(&self, name: &str) -> Answer {
        if name.starts_with("run.") || name.starts_with("gpu.") {
            return self.run.get(name);
        }
        self.others.store(true, Ordering::Relaxed);
        Answer::Absent
    }
}

/// Whether a condition selects no member, whatever it is: the run or the GPU decides that. `run` has their facts.
pub(super) fn selects_none(
    condition: &Expr,
    run: &dyn Lookup,
    params: &BTreeMap<String, Value>,
    lets: &[Let],
) -> bool {
    condition.operands().iter().any(|part| {
        let facts = SharedFacts {
            run,
            others: AtomicBool::new(false),
        };
        let holds = EvalContext::new(&facts, params, lets, None).part_holds(part);
        holds == Ok(false) && !facts.others.into_inner()
    })
}

impl std::fmt::Debug for EvalContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalContext").finish_non_exhaustive()
    }
}

impl<'a> EvalContext<'a> {
    /// Returns a context for one member. `found` is `None` while `when` and `saving_ns` are
    /// evaluated.
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
    /// Why it has no value.
    pub fn value(&self, expr: &Expr) -> Result<Value, Undecided> {
        cel::value(&expr.tree, self)
    }

    /// Whether a condition is true.
    ///
    /// # Errors
    /// Why it is undecided.
    pub fn holds(&self, expr: &Expr) -> Result<bool, Undecided> {
        self.part_holds(&expr.tree)
    }

    /// Whether a part of a condition holds.
    pub(super) fn part_holds(&self, part: &cel::Tree<Name>) -> Result<bool, Undecided> {
        cel::truth(part, self)
    }

    /// Whether a condition selects the member: as [`EvalContext::holds`], but false as soon as an
    /// operand of `&&` does not apply, without asking for what follows.
    ///
    /// # Errors
    /// Why it is undecided.
    pub(super) fn selects(&self, expr: &Expr) -> Result<bool, Undecided> {
        let parts = expr.operands();
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

    /// The value of a numeric expression.
    ///
    /// # Errors
    /// Why it has no value, or that it is not a number.
    pub fn number(&self, expr: &Expr) -> Result<f64, Undecided> {
        match self.value(expr)? {
            Value::Double(d) => Ok(d),
            Value::Int(i) => Ok(i as f64),
            other => Err(Undecided::Fault(format!("{other:?} is not a number"))),
        }
    }

    /// The value of a name.
    ///
    /// # Errors
    /// Why it has no value.
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

impl Bindings for EvalContext<'_> {
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
