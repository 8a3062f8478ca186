//! What an expression of a rule may name, and the way from its text to something that runs.

use std::collections::{BTreeMap, BTreeSet};

use super::expr::{Expr, FOUND, Let, Name, Uses, fact_type};
use super::lower::Lowering;
use crate::base::cel::{self, Names, Type};
use crate::base::suggest::did_you_mean;
use crate::facts::{Fact, Over};

pub use crate::base::cel::{Mistake, NoName};

/// The names an expression or a sentence of one rule may use.
#[derive(Debug)]
pub struct Vocabulary<'a> {
    pub facts: &'a [Fact],
    pub over: Over,
    pub params: &'a BTreeMap<String, Type>,
    /// The lets that are checked; an expression may use them all.
    pub lets: &'a [Let],
    /// Lets that exist but are wrong themselves: using them is not complained about again.
    pub broken: &'a BTreeSet<String>,
    /// Whether `found.NAME` exists yet.
    pub found: bool,
}

impl Vocabulary<'_> {
    /// What a name stands for: `site.m`, `params.min_share`, `found.count`, or a let.
    ///
    /// # Errors
    /// Why there is no such name here.
    pub fn find(&self, name: &str) -> Result<(Name, Type), NoName> {
        let unknown = |why: String| Err(NoName::Unknown(why));
        let Some((prefix, rest)) = name.split_once('.') else {
            return self.find_let(name);
        };
        match prefix {
            "params" => match self.params.get(rest) {
                Some(ty) => Ok((Name::Param(rest.to_owned()), *ty)),
                None if self.broken.contains(name) => Err(NoName::Broken),
                None => {
                    let known = self.params.keys().map(String::as_str);
                    unknown(format!(
                        "unknown param `{rest}`{}",
                        did_you_mean(rest, known)
                    ))
                }
            },
            "found" => match FOUND.iter().find(|(known, ..)| *known == name) {
                Some((known, ty, _)) if self.found => Ok((Name::Found(known), *ty)),
                Some(_) => unknown(format!(
                    "`{name}` does not exist yet: `found` is what `when` has picked"
                )),
                None => {
                    let known = FOUND.iter().map(|(n, ..)| *n);
                    unknown(format!(
                        "unknown name `{name}`{}",
                        did_you_mean(name, known)
                    ))
                }
            },
            _ => self.find_fact(prefix, name),
        }
    }

    fn find_let(&self, name: &str) -> Result<(Name, Type), NoName> {
        if let Some(index) = self.lets.iter().position(|l| l.name == name) {
            let ty = self.lets.get(index).map_or(Type::BOOL, |l| l.expr.ty);
            return Ok((Name::Let(index), ty));
        }
        if self.broken.contains(name) {
            return Err(NoName::Broken);
        }
        let known = self.lets.iter().map(|l| l.name.as_str());
        let near = did_you_mean(name, known);
        Err(NoName::Unknown(format!("unknown name `{name}`{near}")))
    }

    fn find_fact(&self, prefix: &str, name: &str) -> Result<(Name, Type), NoName> {
        let available = self.over.prefixes();
        if let Some(fact) = self.facts.iter().find(|f| f.name == name) {
            if available.contains(&prefix) {
                return Ok((Name::Fact(fact.name), fact_type(fact.ty)));
            }
            return Err(NoName::Unknown(format!(
                "`{name}` is not available to a rule over {}; it has {}",
                self.over.word(),
                available.join(", ")
            )));
        }
        let usable = |f: &&Fact| available.iter().any(|p| has_prefix(f.name, p));
        let known = self.facts.iter().filter(usable).map(|f| f.name);
        let near = did_you_mean(name, known);
        Err(NoName::Unknown(format!("unknown fact `{name}`{near}")))
    }
}

fn has_prefix(fact: &str, prefix: &str) -> bool {
    fact.split_once('.').is_some_and(|(p, _)| p == prefix)
}

impl Names for Vocabulary<'_> {
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
}

/// Parses, checks and lowers an expression.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(source: &str, vocabulary: &Vocabulary<'_>) -> Result<Expr, Vec<Mistake>> {
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
        node: Lowering(vocabulary).node(checked.ast),
        uses,
        depth,
    })
}
