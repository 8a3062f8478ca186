//! The types of an expression's parts: what CEL would only find out when it runs.
//!
//! Every name, operand and call is checked, and what is checked is rewritten into the form that
//! runs: facts become single names, arithmetic becomes checked arithmetic.

use std::ops::Range;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Ast, IdedExpr, ListExpr, LiteralValue, MapExpr,
    SelectExpr, SourceInfo, operators,
};

use super::functions::{self, ARITHMETIC, FUNCTIONS};
use super::lower::{index, lower_select, qualified, root_id};
use super::{Mistake, Names, NoName, Scalar, Type};
use crate::base::suggest::did_you_mean;

pub(crate) struct Checker<'a, N: Names> {
    names: &'a N,
    info: &'a SourceInfo,
    source: &'a str,
    pub(super) mistakes: Vec<Mistake>,
    /// The names it uses, in order of appearance.
    pub(super) used: Vec<N::Name>,
    /// Variables of the comprehension being checked.
    variables: Vec<(String, Type)>,
    /// Inside a comprehension.
    inside: bool,
}

impl<'a, N: Names> Checker<'a, N> {
    pub(super) fn new(source: &'a str, info: &'a SourceInfo, names: &'a N) -> Checker<'a, N> {
        Checker {
            names,
            info,
            source,
            mistakes: Vec::new(),
            used: Vec::new(),
            variables: Vec::new(),
            inside: false,
        }
    }

    /// The type of a node, which is lowered in place; `None` after a complaint.
    pub(super) fn walk(&mut self, node: &mut IdedExpr) -> Option<Type> {
        if let Some(name) = qualified(node) {
            return self.qualified(node, &name);
        }
        let id = node.id;
        match &mut node.expr {
            Ast::Literal(literal) => self.literal(id, literal),
            Ast::Call(call) => match self.names.call(call) {
                Some(Ok(found)) => {
                    self.used.push(found.name);
                    node.expr = Ast::Ident(found.lowered);
                    Some(found.ty)
                }
                Some(Err((title, label))) => {
                    let at = self.span_of_call(id, &call.func_name);
                    self.complain_at(at, title, label)
                }
                None => self.call(id, call),
            },
            Ast::Select(select) => {
                let ty = self.select(id, select)?;
                lower_select(node);
                Some(ty)
            }
            Ast::List(list) => self.list(id, list),
            Ast::Map(map) => self.map(id, map),
            Ast::Comprehension(comprehension) => self.comprehension(id, comprehension),
            Ast::Ident(_) | Ast::Struct(_) | Ast::Unspecified => {
                self.complain(id, "this cannot be used here", "")
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
        let is_plain = segments.len() == 1 || self.names.is_whole(&first);
        let take = if is_plain { 1 } else { 2 };
        let name = segments.get(..take).unwrap_or(segments).join(".");
        let (found, mut ty) = match self.names.find(&name) {
            Ok(found) => found,
            Err(NoName::Broken) => return self.broken(id),
            Err(NoName::Unknown(why)) => {
                let at = self.span_of(id, &name);
                return self.complain_at(at, why, "");
            }
        };
        self.used.push(found);
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
                self.complain(id, "there are no unsigned ints", "drop the `u`")
            }
            LiteralValue::Bytes(_) => self.complain(id, "there are no bytes", "drop the `b`"),
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
        match self.names.find(&name) {
            Ok((found, _)) if self.names.may_be_absent(&found) => {
                self.used.push(found);
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
            let own = self.names.functions();
            let known = FUNCTIONS.iter().map(|f| f.name).chain(own);
            let known = known.chain(["double", "int", "size", "has"]);
            let title = format!("unknown function `{name}`{}", did_you_mean(name, known));
            return self.complain_at(self.span_of_call(id, name), title, "");
        };
        match functions::call_type(function, types) {
            Ok(ty) => Some(ty),
            Err(why) => {
                let at = self.span_of_call(id, name);
                self.complain_at(at, format!("`{}` {why}", function.usage), "")
            }
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
                return self.complain(id, "this cannot be used here", "");
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
        if self.names.knows(&c.iter_var) {
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

    /// The span of the name of a function: CEL places a call at its bracket.
    fn span_of_call(&self, id: u64, name: &str) -> Range<usize> {
        let span = self.span(id);
        let before = self.source.get(..span.start).unwrap_or_default().trim_end();
        match before.strip_suffix(name) {
            Some(rest) => rest.len()..before.len(),
            None => span,
        }
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
