//! What an expression may name, and the way from its text to something that runs: bounds, CEL's
//! parser, [types](super::types), [lowering](super::lower).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cel::common::ast::{EntryExpr, Expr as Ast, IdedExpr};

use super::expr::{
    Expr, FOUND, Let, MAX_DEPTH, MAX_NESTING, MAX_NODES, MAX_SOURCE, MAX_TOKENS, Name, Type,
};
use super::lower::Lowering;
use super::types::Checker;
use crate::base::suggest::did_you_mean;
use crate::facts::{Fact, Over};

/// Something wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes of the expression's text.
    pub at: Range<usize>,
    pub title: String,
    /// What to write instead; may be empty.
    pub label: String,
}

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

/// What looking a name up gives when it gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoName {
    /// Complained about elsewhere.
    Broken,
    /// A sentence that says why.
    Unknown(String),
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
                return Ok((Name::Fact(fact.name), Type::of(fact.ty)));
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

/// Parses, checks and lowers an expression.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compile(source: &str, vocabulary: &Vocabulary<'_>) -> Result<Expr, Vec<Mistake>> {
    let whole = |title: String| {
        vec![Mistake {
            at: 0..source.len(),
            title,
            label: String::new(),
        }]
    };
    if source.trim().is_empty() {
        return Err(whole("an empty expression".into()));
    }
    if source.len() > MAX_SOURCE {
        return Err(whole(format!(
            "an expression of more than {MAX_SOURCE} bytes"
        )));
    }
    if too_deep(source) {
        return Err(whole("an expression with too many parts; use lets".into()));
    }
    let program = cel::Program::compile(source).map_err(|e| syntax(source, &e))?;
    let mut ast = program.expression().clone();
    let (nodes, depth) = size(&ast);
    if nodes > MAX_NODES || depth > MAX_DEPTH {
        return Err(whole("an expression with too many parts; use lets".into()));
    }
    let mut checker = Checker::new(source, program.source_info(), vocabulary);
    let ty = checker.walk(&mut ast);
    let Some(ty) = ty.filter(|_| checker.mistakes.is_empty()) else {
        return Err(checker.mistakes);
    };
    let lets = checker
        .uses
        .lets
        .iter()
        .filter_map(|&i| vocabulary.lets.get(i));
    let depth = depth + lets.map(|l| l.expr.depth).max().unwrap_or(0);
    if depth > MAX_DEPTH {
        return Err(whole(
            "an expression that is nested too deep in its lets".into(),
        ));
    }
    Ok(Expr {
        source: source.to_owned(),
        ty,
        node: Lowering(vocabulary).node(ast),
        uses: checker.uses,
        depth,
    })
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
