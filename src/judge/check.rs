//! Checks an expression against the fact table before it ever runs, and lowers it.
//!
//! CEL finds a type error only when it runs into it. Here every name, operand and call is checked
//! when a rule is loaded, and what is checked is rewritten into the form that
//! [`Scene`](super::expr::Scene) runs: facts become single names, arithmetic becomes checked
//! arithmetic, the logical skeleton becomes [`Node`]s.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Ast, IdedExpr, ListExpr, LiteralValue, MapExpr,
    SelectExpr, SourceInfo, operators,
};

use super::expr::{
    Expr, FOUND, HAS, Leaf, Let, MAX_DEPTH, MAX_NESTING, MAX_NODES, MAX_SOURCE, MAX_TOKENS, Name,
    Node, Scalar, Type, Uses,
};
use super::functions::{self, ARITHMETIC, FUNCTIONS};
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
    let mut checker = Checker {
        vocabulary,
        info: program.source_info(),
        source,
        mistakes: Vec::new(),
        variables: Vec::new(),
        inside: false,
        uses: Uses::default(),
    };
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
        node: checker.node(ast),
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

struct Checker<'a> {
    vocabulary: &'a Vocabulary<'a>,
    info: &'a SourceInfo,
    source: &'a str,
    mistakes: Vec<Mistake>,
    /// Variables of the comprehension being checked.
    variables: Vec<(String, Type)>,
    /// Inside a comprehension.
    inside: bool,
    uses: Uses,
}

impl Checker<'_> {
    /// The type of a node, which is lowered in place; `None` after a complaint.
    fn walk(&mut self, node: &mut IdedExpr) -> Option<Type> {
        if let Some(name) = qualified(node) {
            return self.qualified(node, &name);
        }
        let id = node.id;
        match &mut node.expr {
            Ast::Literal(literal) => self.literal(id, literal),
            Ast::Call(call) => self.call(id, call),
            Ast::Select(select) => {
                let ty = self.select(id, select)?;
                lower_select(node);
                Some(ty)
            }
            Ast::List(list) => self.list(id, list),
            Ast::Map(map) => self.map(id, map),
            Ast::Comprehension(comprehension) => self.comprehension(id, comprehension),
            Ast::Ident(_) | Ast::Struct(_) | Ast::Unspecified => {
                self.complain(id, "rules cannot use this", "")
            }
        }
    }

    /// `a.b.c` spelled out: a fact, param, `found`, let or variable, and what is selected on it.
    fn qualified(&mut self, node: &mut IdedExpr, segments: &[String]) -> Option<Type> {
        let id = root_id(node);
        let first = segments.first()?.clone();
        if let Some((_, ty)) = self.variables.iter().rev().find(|(v, _)| *v == first) {
            let ty = *ty;
            if segments.len() == 1 {
                return Some(ty);
            }
            return self.complain(id, format!("`{first}` has no fields"), "");
        }
        let is_plain = self.vocabulary.lets.iter().any(|l| l.name == first)
            || self.vocabulary.broken.contains(&first)
            || segments.len() == 1;
        let take = if is_plain { 1 } else { 2 };
        let name = segments.get(..take).unwrap_or(segments).join(".");
        let (found, mut ty) = match self.vocabulary.find(&name) {
            Ok(found) => found,
            Err(NoName::Broken) => return self.broken(id),
            Err(NoName::Unknown(why)) => {
                let at = self.span_of(id, &name);
                return self.complain_at(at, why, "");
            }
        };
        self.note(&found);
        let mut lowered = IdedExpr {
            id,
            expr: Ast::Ident(name.clone()),
        };
        for key in segments.get(take..).unwrap_or_default() {
            let Type::Map(item) = ty else {
                return self.complain(
                    id,
                    format!("`{name}` is {}: it has no fields", ty.phrase()),
                    "",
                );
            };
            ty = Type::One(item);
            lowered = index(lowered, key);
        }
        *node = lowered;
        Some(ty)
    }

    fn note(&mut self, name: &Name) {
        match name {
            Name::Fact(fact) => self.uses.fact(fact),
            Name::Found(_) => self.uses.found = true,
            Name::Param(param) => self.uses.param(param),
            Name::Let(index) => self.uses.let_(*index),
        }
    }

    fn literal(&mut self, id: u64, literal: &LiteralValue) -> Option<Type> {
        match literal {
            LiteralValue::Boolean(_) => Some(Type::BOOL),
            LiteralValue::Int(_) => Some(Type::INT),
            LiteralValue::Double(d) if d.inner().is_finite() => Some(Type::DOUBLE),
            LiteralValue::Double(_) => self.complain(id, "a number out of range", ""),
            LiteralValue::String(_) => Some(Type::STR),
            LiteralValue::Null => self.complain(
                id,
                "facts are never null",
                "ask whether one is there with `has(...)`",
            ),
            LiteralValue::UInt(_) => {
                self.complain(id, "rules know no unsigned ints", "drop the `u`")
            }
            LiteralValue::Bytes(_) => self.complain(id, "rules know no bytes", "drop the `b`"),
        }
    }

    /// `has(site.m)`, or a field of something that is not a plain name.
    fn select(&mut self, id: u64, select: &mut SelectExpr) -> Option<Type> {
        if !select.test {
            let ty = self.walk(&mut select.operand)?;
            return match ty {
                Type::Map(item) => Some(Type::One(item)),
                other => self.complain(id, format!("{} has no fields", other.phrase()), ""),
            };
        }
        let mut segments = match qualified(&select.operand) {
            Some(segments) => segments,
            None => return self.complain(id, "`has(...)` takes the name of a fact", ""),
        };
        segments.push(select.field.clone());
        let name = segments.join(".");
        match self.vocabulary.find(&name) {
            Ok((found @ Name::Fact(_), _)) => {
                self.note(&found);
                Some(Type::BOOL)
            }
            Ok(_) => self.complain(
                id,
                format!("`{name}` is always there"),
                "`has(...)` is for facts",
            ),
            Err(NoName::Broken) => self.broken(id),
            Err(NoName::Unknown(why)) => self.complain(id, why, ""),
        }
    }

    fn call(&mut self, id: u64, call: &mut CallExpr) -> Option<Type> {
        if let Some(ty) = self.method(id, call) {
            return ty;
        }
        let mut types = Vec::with_capacity(call.args.len());
        for argument in &mut call.args {
            types.push(self.walk(argument));
        }
        // All arguments were looked at; those that are wrong have been complained about.
        let types: Vec<Type> = types.into_iter().collect::<Option<_>>()?;
        match (call.func_name.as_str(), types.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => {
                self.want_bool(&call.args, 0, *a)?;
                self.want_bool(&call.args, 1, *b)
            }
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [a]) => {
                self.want_bool(&call.args, 0, *a)
            }
            (operators::NEGATE, [a]) if a.is_number() => Some(*a),
            (operators::NEGATE, [a]) => self.complain(id, format!("`-` of {}", a.phrase()), ""),
            (operators::CONDITIONAL, [condition, a, b]) => {
                self.want_bool(&call.args, 0, *condition)?;
                match unify(*a, *b) {
                    Some(ty) => Some(ty),
                    None => self.mixed(id, "`?:`", &call.args, (1, *a), (2, *b)),
                }
            }
            (operators::EQUALS | operators::NOT_EQUALS, [a, b]) => {
                if comparable(*a, *b) || unify(*a, *b).is_some() {
                    return Some(Type::BOOL);
                }
                let title = format!("{} is never equal to {}", a.phrase(), b.phrase());
                self.complain(id, title, "")
            }
            (
                operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [a, b],
            ) => {
                if comparable(*a, *b) {
                    return Some(Type::BOOL);
                }
                let title = format!("{} cannot be compared with {}", a.phrase(), b.phrase());
                self.complain(id, title, "")
            }
            (operators::IN, [item, container]) => self.is_in(id, *item, *container),
            (operators::INDEX, [container, key]) => self.index(id, *container, *key),
            ("double", [a]) if a.is_number() => Some(Type::DOUBLE),
            ("int", [a]) if a.is_number() => Some(Type::INT),
            ("double" | "int", _) => {
                self.complain(id, format!("`{}` takes one number", call.func_name), "")
            }
            ("size", [Type::One(Scalar::Str) | Type::List(_) | Type::Map(_)]) => Some(Type::INT),
            ("size", _) => self.complain(id, "`size` takes a string, a list or a map", ""),
            (name, types) => match ARITHMETIC.iter().find(|(cel, ..)| *cel == name) {
                Some((_, checked, _)) => self.arithmetic(id, call, checked, types),
                None => self.function(id, call, types),
            },
        }
    }

    /// `text.contains("x")` and its kin; `None` when the call is not on a target.
    fn method(&mut self, id: u64, call: &mut CallExpr) -> Option<Option<Type>> {
        let target = call.target.as_mut()?;
        let name = call.func_name.clone();
        let known = ["contains", "endsWith", "startsWith", "size"];
        if !known.contains(&name.as_str()) {
            let title = match name.as_str() {
                "matches" => "regular expressions are not offered".to_owned(),
                _ => format!("unknown function `.{name}()`{}", did_you_mean(&name, known)),
            };
            let label = if name == "matches" {
                "names are decoded once, in the fact table"
            } else {
                ""
            };
            return Some(self.complain(id, title, label));
        }
        let on = self.walk(target);
        let mut arguments = Vec::new();
        for argument in &mut call.args {
            arguments.push(self.walk(argument));
        }
        let (Some(on), Some(arguments)) = (on, arguments.into_iter().collect::<Option<Vec<_>>>())
        else {
            return Some(None);
        };
        Some(match (name.as_str(), on, arguments.as_slice()) {
            ("size", Type::One(Scalar::Str) | Type::List(_) | Type::Map(_), []) => Some(Type::INT),
            ("size", ..) => self.complain(id, "`size` is of a string, a list or a map", ""),
            (_, Type::STR, [Type::STR]) => Some(Type::BOOL),
            _ => self.complain(
                id,
                format!("`{name}` is of a string and takes a string"),
                "",
            ),
        })
    }

    fn arithmetic(
        &mut self,
        id: u64,
        call: &mut CallExpr,
        checked: &str,
        types: &[Type],
    ) -> Option<Type> {
        let sign = call.func_name.trim_matches('_').to_owned();
        let [a, b] = types else {
            return self.complain(id, format!("`{sign}` takes two operands"), "");
        };
        match (*a, *b) {
            (Type::One(x), Type::One(y)) if x.is_number() && x == y => {
                if sign == "%" && x == Scalar::Double {
                    return self.complain(id, "`%` takes ints", "write `int(...)` or `divisible`");
                }
                call.func_name = checked.to_owned();
                Some(*a)
            }
            (Type::One(x), Type::One(y)) if x.is_number() && y.is_number() => {
                self.mixed(id, &format!("`{sign}`"), &call.args, (0, *a), (1, *b))
            }
            (Type::STR, Type::STR) | (Type::List(_), Type::List(_)) if sign == "+" => {
                match unify(*a, *b) {
                    Some(ty) => Some(ty),
                    None => self.complain(id, "lists of different types", ""),
                }
            }
            _ => {
                let title = format!("`{sign}` of {} and {}", a.phrase(), b.phrase());
                self.complain(id, title, "")
            }
        }
    }

    /// CEL never converts between int and double on its own: says which side to convert.
    fn mixed(
        &mut self,
        id: u64,
        what: &str,
        args: &[IdedExpr],
        a: (usize, Type),
        b: (usize, Type),
    ) -> Option<Type> {
        if !(a.1.is_number() && b.1.is_number()) {
            let title = format!("{what} of {} and {}", a.1.phrase(), b.1.phrase());
            return self.complain(id, title, "");
        }
        let int = if a.1 == Type::INT { a.0 } else { b.0 };
        let side = args.get(int)?;
        let title = format!("{what} of an int and a double");
        match &side.expr {
            Ast::Literal(LiteralValue::Int(n)) => {
                let label = format!("write {}.0", n.inner());
                self.complain(side.id, title, label)
            }
            Ast::Ident(name) => {
                let label = format!("`{name}` is an int: write double({name})");
                let at = self.span_of(side.id, name);
                self.complain_at(at, title, label)
            }
            _ => self.complain(side.id, title, "this side is an int: put it in double(...)"),
        }
    }

    fn function(&mut self, id: u64, call: &CallExpr, types: &[Type]) -> Option<Type> {
        let name = call.func_name.as_str();
        let Some(function) = functions::find(name) else {
            let known = FUNCTIONS.iter().map(|f| f.name);
            let known = known.chain(["double", "int", "size", "has"]);
            let title = format!("unknown function `{name}`{}", did_you_mean(name, known));
            return self.complain(id, title, "");
        };
        match functions::call_type(function, types) {
            Ok(ty) => Some(ty),
            Err(why) => self.complain(id, format!("`{}` {why}", function.usage), ""),
        }
    }

    fn is_in(&mut self, id: u64, item: Type, container: Type) -> Option<Type> {
        match (item, container) {
            (Type::One(a), Type::List(Some(b))) if a == b => Some(Type::BOOL),
            (Type::One(_), Type::List(None)) => Some(Type::BOOL),
            (Type::STR, Type::Map(_)) => Some(Type::BOOL),
            _ => {
                let title = format!("{} is never in {}", item.phrase(), container.phrase());
                self.complain(id, title, "")
            }
        }
    }

    fn index(&mut self, id: u64, container: Type, key: Type) -> Option<Type> {
        match (container, key) {
            (Type::Map(item), Type::STR) | (Type::List(Some(item)), Type::INT) => {
                Some(Type::One(item))
            }
            _ => {
                let title = format!(
                    "{} cannot be indexed with {}",
                    container.phrase(),
                    key.phrase()
                );
                self.complain(id, title, "")
            }
        }
    }

    fn list(&mut self, id: u64, list: &mut ListExpr) -> Option<Type> {
        let mut item = None;
        for element in &mut list.elements {
            let Type::One(scalar) = self.walk(element)? else {
                return self.complain(id, "a list of lists or maps", "");
            };
            if item.is_some_and(|i| i != scalar) {
                return self.complain(id, "a list of different types", "");
            }
            item = Some(scalar);
        }
        Some(Type::List(item))
    }

    fn map(&mut self, id: u64, map: &mut MapExpr) -> Option<Type> {
        let mut item = None;
        for entry in &mut map.entries {
            let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                return self.complain(id, "rules cannot use this", "");
            };
            let key = self.walk(&mut entry.key)?;
            let value = self.walk(&mut entry.value)?.scalar();
            if key != Type::STR || value.is_none() || (item.is_some() && item != value) {
                return self.complain(id, "a map goes from strings to values of one type", "");
            }
            item = value;
        }
        match item {
            Some(item) => Some(Type::Map(item)),
            None => self.complain(id, "an empty map", ""),
        }
    }

    /// What `exists`, `all`, `exists_one`, `filter` and `map` are expanded to.
    fn comprehension(&mut self, id: u64, c: &mut ComprehensionExpr) -> Option<Type> {
        if self.inside {
            return self.complain(id, "a comprehension inside a comprehension", "use a let");
        }
        let range = self.walk(&mut c.iter_range)?;
        let fact = matches!(&c.iter_range.expr, Ast::Ident(name) if name.contains('.'));
        let Type::List(Some(item)) = range else {
            return self.complain(id, "a comprehension runs over a list fact", "");
        };
        if !fact {
            return self.complain(id, "a comprehension runs over a list fact only", "");
        }
        if self.vocabulary.find(&c.iter_var).is_ok() {
            return self.complain(
                id,
                format!("`{}` is already a let", c.iter_var),
                "rename it",
            );
        }
        let start = self.walk(&mut c.accu_init)?;
        self.inside = true;
        self.variables.push((c.iter_var.clone(), Type::One(item)));
        self.variables.push((c.accu_var.clone(), start));
        let result = self.fold(id, c, start);
        self.variables.clear();
        self.inside = false;
        result
    }

    fn fold(&mut self, id: u64, c: &mut ComprehensionExpr, start: Type) -> Option<Type> {
        self.walk(&mut c.loop_cond)?;
        let step = self.walk(&mut c.loop_step)?;
        let Some(folded) = unify(start, step) else {
            return self.complain(
                id,
                format!("this must be a condition, not {}", step.phrase()),
                "",
            );
        };
        if let Some(last) = self.variables.last_mut() {
            last.1 = folded;
        }
        self.walk(&mut c.result)
    }

    fn want_bool(&mut self, args: &[IdedExpr], which: usize, ty: Type) -> Option<Type> {
        if ty == Type::BOOL {
            return Some(ty);
        }
        let id = args.get(which).map_or(0, |a| a.id);
        self.complain(
            id,
            format!("a condition was expected, this is {}", ty.phrase()),
            "",
        )
    }

    fn broken(&mut self, id: u64) -> Option<Type> {
        // The let's own complaint says it all; a mistake without words keeps this from compiling.
        let at = self.span(id);
        self.mistakes.push(Mistake {
            at,
            title: String::new(),
            label: String::new(),
        });
        None
    }

    fn complain(
        &mut self,
        id: u64,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Option<Type> {
        let at = self.span(id);
        self.complain_at(at, title, label)
    }

    fn complain_at(
        &mut self,
        at: Range<usize>,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Option<Type> {
        self.mistakes.push(Mistake {
            at,
            title: title.into(),
            label: label.into(),
        });
        None
    }

    fn span(&self, id: u64) -> Range<usize> {
        let Some((start, stop)) = self.info.offset_for(id) else {
            return 0..self.source.len();
        };
        let byte = |characters: u32| {
            let nth = self.source.char_indices().nth(characters as usize);
            nth.map_or(self.source.len(), |(at, _)| at)
        };
        let start = byte(start);
        start..byte(stop.saturating_add(1)).max(start)
    }

    /// The span of a name that begins at a node.
    fn span_of(&self, id: u64, name: &str) -> Range<usize> {
        let span = self.span(id);
        let rest = self.source.get(span.start..).unwrap_or_default();
        if rest.starts_with(name) {
            span.start..span.start + name.len()
        } else {
            span
        }
    }

    /// The logical skeleton of a lowered tree.
    fn node(&self, ast: IdedExpr) -> Node {
        match ast.expr {
            Ast::Call(call) => self.call_node(ast.id, call),
            Ast::Ident(name) => match self.vocabulary.find(&name) {
                Ok((Name::Let(index), _)) => Node::Let(index),
                _ => self.leaf(IdedExpr {
                    id: ast.id,
                    expr: Ast::Ident(name),
                }),
            },
            expr => self.leaf(IdedExpr { id: ast.id, expr }),
        }
    }

    fn call_node(&self, id: u64, mut call: CallExpr) -> Node {
        if let Some(node) = self.word(&call) {
            return node;
        }
        let name = call.func_name.as_str();
        let logical = matches!(
            name,
            operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::CONDITIONAL
        );
        if logical {
            let args = std::mem::take(&mut call.args);
            let mut nodes = args.into_iter().map(|arg| self.node(arg));
            let parts = (nodes.next(), nodes.next(), nodes.next());
            match (name, parts) {
                (operators::LOGICAL_AND, (Some(a), Some(b), None)) => {
                    return Node::And(Box::new([a, b]));
                }
                (operators::LOGICAL_OR, (Some(a), Some(b), None)) => {
                    return Node::Or(Box::new([a, b]));
                }
                (operators::LOGICAL_NOT, (Some(a), None, None)) => return Node::Not(Box::new(a)),
                (_, (Some(a), Some(b), Some(c))) => return Node::If(Box::new([a, b, c])),
                _ => {}
            }
        }
        self.leaf(IdedExpr {
            id,
            expr: Ast::Call(call),
        })
    }

    /// `fact == "word"` and `fact in ["word", ...]`.
    fn word(&self, call: &CallExpr) -> Option<Node> {
        let [left, right] = call.args.as_slice() else {
            return None;
        };
        let literal = |node: &IdedExpr| match &node.expr {
            Ast::Literal(LiteralValue::String(s)) => Some(s.inner().to_owned()),
            _ => None,
        };
        let (Ast::Ident(name), words) = (match call.func_name.as_str() {
            operators::EQUALS | operators::NOT_EQUALS => (&left.expr, vec![literal(right)?]),
            operators::IN => match &right.expr {
                Ast::List(list) => {
                    let words = list.elements.iter().map(literal).collect::<Option<_>>()?;
                    (&left.expr, words)
                }
                _ => return None,
            },
            _ => return None,
        }) else {
            return None;
        };
        let Ok((Name::Fact(fact), Type::STR)) = self.vocabulary.find(name) else {
            return None;
        };
        let node = Node::Word { fact, words };
        Some(match call.func_name.as_str() {
            operators::NOT_EQUALS => Node::Not(Box::new(node)),
            _ => node,
        })
    }

    fn leaf(&self, ast: IdedExpr) -> Node {
        let mut strict = Vec::new();
        let mut lax = Vec::new();
        let mut stack = vec![(&ast, true)];
        while let Some((node, needed)) = stack.pop() {
            match &node.expr {
                Ast::Ident(name) => {
                    if let Ok((name, _)) = self.vocabulary.find(name) {
                        let names = if needed { &mut strict } else { &mut lax };
                        if !names.contains(&name) {
                            names.push(name);
                        }
                    }
                }
                Ast::Call(call) => {
                    let branches = [
                        operators::CONDITIONAL,
                        operators::LOGICAL_AND,
                        operators::LOGICAL_OR,
                    ];
                    let needed = needed && !branches.contains(&call.func_name.as_str());
                    stack.extend(call.target.as_deref().map(|t| (t, needed)));
                    stack.extend(call.args.iter().map(|a| (a, needed)));
                }
                Ast::List(list) => stack.extend(list.elements.iter().map(|e| (e, needed))),
                Ast::Map(map) => {
                    for entry in &map.entries {
                        if let EntryExpr::MapEntry(entry) = &entry.expr {
                            stack.extend([(&entry.key, needed), (&entry.value, needed)]);
                        }
                    }
                }
                Ast::Comprehension(c) => {
                    stack.push((&c.iter_range, needed));
                    stack.extend([(&c.loop_step, false), (&c.result, false)]);
                }
                _ => {}
            }
        }
        Node::Cel(Box::new(Leaf { ast, strict, lax }))
    }
}

/// The segments of `a.b.c`, root first; `None` for anything that is not just a name.
fn qualified(node: &IdedExpr) -> Option<Vec<String>> {
    let mut segments = Vec::new();
    let mut node = node;
    loop {
        match &node.expr {
            Ast::Ident(name) => {
                segments.push(name.clone());
                segments.reverse();
                return Some(segments);
            }
            Ast::Select(select) if !select.test => {
                segments.push(select.field.clone());
                node = &select.operand;
            }
            _ => return None,
        }
    }
}

/// The node a qualified name begins with.
fn root_id(node: &IdedExpr) -> u64 {
    let mut node = node;
    while let Ast::Select(select) = &node.expr {
        node = &select.operand;
    }
    node.id
}

/// `container["key"]`.
fn index(container: IdedExpr, key: &str) -> IdedExpr {
    let id = container.id;
    let key = IdedExpr {
        id,
        expr: Ast::Literal(LiteralValue::String(key.to_owned().into())),
    };
    IdedExpr {
        id,
        expr: Ast::Call(CallExpr {
            func_name: operators::INDEX.to_owned(),
            target: None,
            args: vec![container, key],
        }),
    }
}

/// `has(a.b)` becomes one name that CEL asks for; a plain selection becomes an index.
fn lower_select(node: &mut IdedExpr) {
    let id = node.id;
    let Ast::Select(select) = std::mem::take(&mut node.expr) else {
        return;
    };
    if !select.test {
        *node = index(*select.operand, &select.field);
        return;
    }
    let mut segments = qualified(&select.operand).unwrap_or_default();
    segments.push(select.field);
    *node = IdedExpr {
        id,
        expr: Ast::Ident(format!("{HAS}{}", segments.join("."))),
    };
}

/// One type for both, where CEL needs one.
fn unify(a: Type, b: Type) -> Option<Type> {
    match (a, b) {
        (Type::List(None), list @ Type::List(_)) | (list @ Type::List(_), Type::List(None)) => {
            Some(list)
        }
        (a, b) if a == b => Some(a),
        _ => None,
    }
}

/// CEL compares numbers of any type, and strings.
fn comparable(a: Type, b: Type) -> bool {
    (a.is_number() && b.is_number()) || (a == Type::STR && b == Type::STR)
}
