//! Resolves the names in a rule's expressions and compiles the expressions.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::expr::{Expr, FOUND, Let, Name, Uses};
use crate::base::cel::{self, NameResolver, Type};
use crate::base::suggest::did_you_mean;
use crate::facts::{Fact, MemberKind};

pub use crate::base::cel::{Mistake, NoName};

/// The facts that rules may use, by name.
#[derive(Debug, Default)]
pub struct FactsByName<'a>(FxHashMap<&'a str, &'a Fact>);

impl<'a> FactsByName<'a> {
    /// All of these facts.
    pub fn new(facts: &'a [Fact]) -> FactsByName<'a> {
        FactsByName(facts.iter().map(|fact| (fact.name, fact)).collect())
    }

    /// The fact of a name.
    pub fn get(&self, name: &str) -> Option<&'a Fact> {
        self.0.get(name).copied()
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = self.0.values().map(|fact| fact.name).collect();
        names.sort_unstable();
        names
    }
}

/// The names an expression or a sentence of one rule may use.
#[derive(Debug)]
pub struct KnownNames<'a> {
    /// Known facts.
    pub facts: &'a FactsByName<'a>,
    /// Kind of member that the rule is evaluated on.
    pub kind: MemberKind,
    /// Params of the rule with their types.
    pub params: &'a BTreeMap<String, Type>,
    /// The checked lets; an expression may use all of them.
    pub lets: &'a [Let],
    /// Names of lets that contain errors: their uses are not reported again.
    pub broken: &'a BTreeSet<String>,
    /// Whether `found.NAME` is available: not in `when` and `saving_ns`.
    pub found: bool,
}

impl KnownNames<'_> {
    /// The meaning and type of a name: `site.m`, `params.min_share`, `found.count`, or a let.
    ///
    /// # Errors
    /// Why the name is unknown, with the nearest known name. Finding that name is slow: use
    /// [`known`](Self::known) if the message is not shown.
    pub fn find(&self, name: &str) -> Result<(Name, Type), NoName> {
        self.known(name).ok_or_else(|| self.missing(name))
    }

    /// The meaning and type of a name, or `None` if it is unknown.
    pub fn known(&self, name: &str) -> Option<(Name, Type)> {
        let Some((prefix, rest)) = name.split_once('.') else {
            let at = self.lets.iter().position(|l| l.name == name)?;
            let ty = self.lets.get(at).map_or(Type::BOOL, |l| l.expr.ty);
            return Some((Name::Let(at), ty));
        };
        match prefix {
            "params" => (self.params.get(rest)).map(|ty| (Name::Param(rest.to_owned()), *ty)),
            "found" => (FOUND.iter())
                .find(|(known, ..)| *known == name && self.found)
                .map(|(known, ty, _)| (Name::Found(known), *ty)),
            _ => (self.facts.get(name))
                .filter(|_| self.kind.prefixes().contains(&prefix))
                .map(|fact| (Name::Fact(fact.name), fact.ty)),
        }
    }

    /// The reason why a name is unknown.
    fn missing(&self, name: &str) -> NoName {
        let parts = name.split_once('.');
        if self.broken.contains(name) && parts.is_none_or(|(prefix, _)| prefix == "params") {
            return NoName::Broken;
        }
        NoName::Unknown(match parts {
            None => {
                let near = did_you_mean(name, self.lets.iter().map(|l| l.name.as_str()));
                format!("unknown name `{name}`{near}")
            }
            Some(("params", param)) => {
                let near = did_you_mean(param, self.params.keys().map(String::as_str));
                format!("unknown param `{param}`{near}")
            }
            Some(("found", _)) if FOUND.iter().any(|(known, ..)| *known == name) => {
                format!("`{name}` does not exist yet: `found` is what `when` has matched")
            }
            Some(("found", _)) => {
                let near = did_you_mean(name, FOUND.iter().map(|(known, ..)| *known));
                format!("unknown name `{name}`{near}")
            }
            Some(_) => self.missing_fact(name),
        })
    }

    fn missing_fact(&self, name: &str) -> String {
        let available = self.kind.prefixes();
        if self.facts.get(name).is_some() {
            return format!(
                "`{name}` is not available to a rule over {}; it has {}",
                self.kind.word(),
                available.join(", ")
            );
        }
        let mut usable = self.facts.names();
        usable.retain(|fact| available.iter().any(|prefix| has_prefix(fact, prefix)));
        let near = did_you_mean(name, usable);
        format!("unknown fact `{name}`{near}")
    }
}

fn has_prefix(fact: &str, prefix: &str) -> bool {
    fact.split_once('.').is_some_and(|(p, _)| p == prefix)
}

impl NameResolver for KnownNames<'_> {
    type Name = Name;

    fn find(&self, name: &str) -> Result<(Name, Type), NoName> {
        self.find(name)
    }

    fn is_whole(&self, word: &str) -> bool {
        self.lets.iter().any(|l| l.name == word) || self.broken.contains(word)
    }

    fn may_be_absent(&self, name: &Name) -> bool {
        matches!(name, Name::Fact(_))
    }

    fn values(&self, name: &Name) -> &'static [&'static str] {
        match name {
            Name::Fact(name) => self.facts.get(name).map_or(&[], |fact| fact.values()),
            _ => &[],
        }
    }
}

/// Parses and checks an expression.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(source: &str, vocabulary: &KnownNames<'_>) -> Result<Expr, Vec<Mistake>> {
    let checked = cel::check(source, vocabulary)?;
    let mut uses = Uses::default();
    for name in &checked.names {
        uses.name(name);
    }
    let lets = uses.lets.iter().filter_map(|&i| vocabulary.lets.get(i));
    let depth = checked.depth + lets.map(|l| l.expr.depth).max().unwrap_or(0);
    if depth > cel::MAX_DEPTH {
        return Err(cel::whole(
            source,
            "an expression that is nested too deep in its lets",
        ));
    }
    Ok(Expr {
        source: source.to_owned(),
        ty: checked.ty,
        tree: checked.expr,
        uses,
        depth,
    })
}
