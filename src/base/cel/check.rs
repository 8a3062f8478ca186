//! Resolves names and checks types: turns a syntax tree into a [`Tree`].

use std::borrow::Cow;
use std::ops::Range;

use super::syntax::{Ast, AstKind};
use super::{
    BinaryOperator, Checked, FUNCTIONS, Macro, Mistake, NameResolver, NoName, Node, Scalar, Tree,
    Type, Value, functions,
};
use crate::base::suggest::did_you_mean;

/// Checked expressions and their types.
type TypedList<Name> = (Vec<Tree<Name>>, Vec<Type>);
/// Two checked operands and their types.
type TypedPair<Name> = (Box<[Tree<Name>; 2]>, Type, Type);

const METHODS: [&str; 4] = ["contains", "endsWith", "size", "startsWith"];
const MACROS: [(&str, Macro); 5] = [
    ("all", Macro::All),
    ("exists", Macro::Exists),
    ("exists_one", Macro::ExistsOne),
    ("filter", Macro::Filter),
    ("map", Macro::Map),
];

/// An expression and its type; `None` after a mistake was recorded.
type Typed<N> = Option<(Tree<N>, Type)>;

/// Checks the syntax tree of a text.
pub(super) fn check<N: NameResolver>(
    source: &str,
    ast: &Ast<'_>,
    names: &N,
) -> Result<Checked<N::Name>, Vec<Mistake>> {
    let mut checker = Checker {
        source,
        names,
        mistakes: Vec::new(),
        used: Vec::new(),
        item: None,
    };
    match checker.typed(ast) {
        Some((expr, ty)) if checker.mistakes.is_empty() => Ok(Checked {
            expr,
            ty,
            names: checker.used,
            depth: ast.depth,
        }),
        _ => Err(checker.mistakes),
    }
}

struct Checker<'a, N: NameResolver> {
    source: &'a str,
    names: &'a N,
    mistakes: Vec<Mistake>,
    used: Vec<N::Name>,
    /// The variable of the enclosing comprehension.
    item: Option<(&'a str, Type)>,
}

impl<'a, N: NameResolver> Checker<'a, N> {
    fn typed(&mut self, ast: &Ast<'a>) -> Typed<N::Name> {
        let (node, ty) = self.node(ast)?;
        let at = ast.at.clone();
        Some((Tree { node, at }, ty))
    }

    fn all(&mut self, asts: &[Ast<'a>]) -> Option<TypedList<N::Name>> {
        // All are checked, so that every mistake is reported.
        let each: Vec<_> = asts.iter().map(|ast| self.typed(ast)).collect();
        let each: Vec<_> = each.into_iter().collect::<Option<_>>()?;
        Some(each.into_iter().unzip())
    }

    fn pair(&mut self, asts: &[Ast<'a>; 2]) -> Option<TypedPair<N::Name>> {
        let [a, b] = asts;
        let (a, b) = (self.typed(a), self.typed(b));
        let ((a, a_type), (b, b_type)) = (a?, b?);
        Some((Box::new([a, b]), a_type, b_type))
    }

    fn conditions(&mut self, asts: &[Ast<'a>]) -> Option<Vec<Tree<N::Name>>> {
        let each: Vec<_> = asts.iter().map(|ast| self.condition(ast)).collect();
        each.into_iter().collect()
    }

    fn condition(&mut self, ast: &Ast<'a>) -> Option<Tree<N::Name>> {
        let (expr, ty) = self.typed(ast)?;
        if ty == Type::BOOL {
            return Some(expr);
        }
        let title = format!("a condition was expected, this is {}", ty.phrase());
        self.mistake(&ast.at, title, "")
    }

    fn node(&mut self, ast: &Ast<'a>) -> Option<(Node<N::Name>, Type)> {
        let at = &ast.at;
        match &ast.kind {
            AstKind::Literal(value) => Some((Node::Literal(value.clone()), Type::of(value))),
            AstKind::Name(name) => self.name(&[(name, at.clone())]),
            AstKind::Field(operand, field) => match segments(ast) {
                Some(segments) => self.name(&segments),
                None => self.field(operand, field),
            },
            AstKind::Call {
                target,
                name,
                name_at,
                args,
            } => match target {
                Some(target) => self.method(target, name, name_at, args),
                None => self.call(name, name_at, args),
            },
            AstKind::Not(operand) => {
                let operand = self.condition(operand)?;
                Some((Node::Not(Box::new(operand)), Type::BOOL))
            }
            AstKind::Negate(sign, operand) => {
                let (operand, ty) = self.typed(operand)?;
                if !ty.is_number() {
                    return self.mistake(sign, format!("`-` of {}", ty.phrase()), "");
                }
                Some((Node::Negate(Box::new(operand)), ty))
            }
            AstKind::All(parts) => {
                let parts = self.conditions(parts)?;
                let parts = parts.into_iter().flat_map(|part| match part.node {
                    Node::All(inner) => inner,
                    _ => vec![part],
                });
                Some((Node::All(parts.collect()), Type::BOOL))
            }
            AstKind::Any(parts) => Some((Node::Any(self.conditions(parts)?), Type::BOOL)),
            AstKind::If(sign, parts) => {
                let [condition, then, otherwise] = &**parts;
                let condition = self.condition(condition);
                let (then_typed, otherwise_typed) = (self.typed(then), self.typed(otherwise));
                let ((then_expr, a), (otherwise_expr, b)) = (then_typed?, otherwise_typed?);
                let Some(ty) = unify(a, b) else {
                    return self.mixed(sign, "?:", (then, a), (otherwise, b));
                };
                let parts = Box::new([condition?, then_expr, otherwise_expr]);
                Some((Node::If(parts), ty))
            }
            AstKind::Binary(operator, sign, operands) => self.binary(*operator, sign, operands),
            AstKind::Index(bracket, parts) => {
                let (parts, container, key) = self.pair(parts)?;
                match (container, key) {
                    (Type::Map(item), Type::STR) | (Type::List(Some(item)), Type::INT) => {
                        Some((Node::Index(parts), Type::One(item)))
                    }
                    _ => {
                        let (container, key) = (container.phrase(), key.phrase());
                        let title = format!("{container} cannot be indexed with {key}");
                        self.mistake(bracket, title, "")
                    }
                }
            }
            AstKind::List(items) => {
                let (exprs, types) = self.all(items)?;
                let scalars: Option<Vec<Scalar>> = types.iter().map(|t| t.scalar()).collect();
                let Some(scalars) = scalars else {
                    return self.mistake(at, "a list of lists or maps", "");
                };
                if scalars.windows(2).any(|pair| pair.first() != pair.last()) {
                    return self.mistake(at, "a list of different types", "");
                }
                let literals = exprs.iter().map(|item| match &item.node {
                    Node::Literal(value) => Some(value.clone()),
                    _ => None,
                });
                let node = match literals.collect() {
                    Some(values) => Node::Literals(values),
                    None => Node::List(exprs),
                };
                Some((node, Type::List(scalars.first().copied())))
            }
            AstKind::Map(entries) => self.map(at, entries),
        }
    }

    /// A fact, param, let or variable, and the fields selected on it.
    fn name(&mut self, segments: &[(&'a str, Range<usize>)]) -> Option<(Node<N::Name>, Type)> {
        let (first, root) = segments.first()?.clone();
        if let Some((variable, ty)) = self.item
            && variable == first
        {
            if segments.len() == 1 {
                return Some((Node::Item, ty));
            }
            return self.mistake(&root, format!("`{first}` has no fields"), "");
        }
        let whole = segments.len() == 1 || self.names.is_whole(first);
        let taken = segments.get(..if whole { 1 } else { 2 })?;
        let at = taken.last()?.1.clone();
        let name = self.written(taken, root.start..at.end);
        let (found, mut ty) = match self.names.find(&name) {
            Ok(found) => found,
            Err(why) => return self.no_name(&at, why),
        };
        self.used.push(found.clone());
        let mut node = Node::Name(found);
        for (key, end) in segments.get(taken.len()..).unwrap_or_default() {
            let Type::Map(item) = ty else {
                let title = format!("`{name}` is {}: it has no fields", ty.phrase());
                return self.mistake(&at, title, "");
            };
            ty = Type::One(item);
            node = select(node, at.clone(), key, end.clone());
        }
        Some((node, ty))
    }

    /// Words with dots between them, which stand in this range, perhaps with blanks.
    fn written(&self, words: &[(&'a str, Range<usize>)], at: Range<usize>) -> Cow<'a, str> {
        let length: usize = words.iter().map(|(word, _)| word.len() + 1).sum();
        match self.source.get(at.clone()) {
            Some(text) if at.len() + 1 == length => Cow::Borrowed(text),
            _ => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Cow::Owned(words.join("."))
            }
        }
    }

    /// A field of an operand that is not a name.
    fn field(&mut self, operand: &Ast<'a>, field: &str) -> Option<(Node<N::Name>, Type)> {
        let (expr, ty) = self.typed(operand)?;
        let Type::Map(item) = ty else {
            return self.mistake(&operand.at, format!("{} has no fields", ty.phrase()), "");
        };
        let at = expr.at.clone();
        Some((select(expr.node, at.clone(), field, at), Type::One(item)))
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        sign: &Range<usize>,
        asts: &[Ast<'a>; 2],
    ) -> Option<(Node<N::Name>, Type)> {
        use BinaryOperator::{Add, Divide, Equal, In, Multiply, NotEqual, Remainder, Subtract};
        let [left, right] = asts;
        let (operands, a, b) = self.pair(asts)?;
        let of = |what: &str| format!("{} {what} {}", a.phrase(), b.phrase());
        let ty = match operator {
            Equal | NotEqual if comparable(a, b) || unify(a, b).is_some() => {
                let [left_expr, right_expr] = &*operands;
                self.known_value(left_expr, right);
                self.known_value(right_expr, left);
                Type::BOOL
            }
            Equal | NotEqual => return self.mistake(sign, of("is never equal to"), ""),
            In => match (a, b) {
                (Type::One(x), Type::List(y)) if y.is_none_or(|y| x == y) => {
                    if let (AstKind::List(items), Some(item)) = (&right.kind, operands.first()) {
                        for literal in items {
                            self.known_value(item, literal);
                        }
                    }
                    Type::BOOL
                }
                (Type::STR, Type::Map(_)) => Type::BOOL,
                _ => return self.mistake(sign, of("is never in"), ""),
            },
            Add | Subtract | Multiply | Divide | Remainder => match (a, b) {
                (Type::DOUBLE, Type::DOUBLE) if operator == Remainder => {
                    let label = "write `int(...)` or `divisible`";
                    return self.mistake(sign, "`%` takes ints", label);
                }
                _ if a == b && a.is_number() => a,
                (Type::STR, Type::STR) if operator == Add => a,
                (Type::List(_), Type::List(_)) if operator == Add => match unify(a, b) {
                    Some(ty) => ty,
                    None => return self.mistake(sign, "lists of different types", ""),
                },
                _ => return self.mixed(sign, operator.sign(), (left, a), (right, b)),
            },
            _ if comparable(a, b) => Type::BOOL,
            _ => {
                let chained = matches!(&left.kind, AstKind::Binary(first, ..) if first.compares());
                let label = if chained {
                    "write `a < b && b < c`"
                } else {
                    ""
                };
                return self.mistake(sign, of("cannot be compared with"), label);
            }
        };
        Some((Node::Binary(operator, operands), ty))
    }

    /// Reports a literal that the fact on the other side never equals.
    fn known_value(&mut self, fact: &Tree<N::Name>, literal: &Ast<'a>) {
        let (Node::Name(name), AstKind::Literal(Value::Str(word))) = (&fact.node, &literal.kind)
        else {
            return;
        };
        if let Some((title, label)) = unknown_value(word, self.names.values(name)) {
            let at = literal.at.clone();
            self.mistakes.push(Mistake { at, title, label });
        }
    }

    /// Reports an operation on an int and a double, which are never converted implicitly, and suggests
    /// the side to convert.
    fn mixed<T>(
        &mut self,
        sign: &Range<usize>,
        what: &str,
        a: (&Ast<'a>, Type),
        b: (&Ast<'a>, Type),
    ) -> Option<T> {
        if !(a.1.is_number() && b.1.is_number()) {
            let title = format!("`{what}` of {} and {}", a.1.phrase(), b.1.phrase());
            return self.mistake(sign, title, "");
        }
        let side = if a.1 == Type::INT { a.0 } else { b.0 };
        let title = format!("`{what}` of an int and a double");
        let label = match (&side.kind, segments(side)) {
            (AstKind::Literal(Value::Int(n)), _) => format!("write {n}.0"),
            (_, Some(name)) => {
                let name: Vec<&str> = name.iter().map(|(word, _)| *word).collect();
                let name = name.join(".");
                format!("`{name}` is an int: write double({name})")
            }
            _ => "this side is an int: put it in double(...)".to_owned(),
        };
        self.mistake(&side.at, title, label)
    }

    fn call(
        &mut self,
        name: &str,
        at: &Range<usize>,
        args: &[Ast<'a>],
    ) -> Option<(Node<N::Name>, Type)> {
        match self.names.call(name, args) {
            Some(Ok((found, ty))) => {
                self.used.push(found.clone());
                return Some((Node::Name(found), ty));
            }
            Some(Err((title, label))) => return self.mistake(at, title, label),
            None => {}
        }
        if name == "has" {
            return self.has(at, args);
        }
        let typed = self.all(args);
        let Some(function) = functions::find(name) else {
            if name == "size" {
                let (exprs, types) = typed?;
                return self.size(at, exprs, &types);
            }
            let own = self.names.functions();
            let known = FUNCTIONS.iter().map(|f| f.name).chain(own);
            let known = known.chain(["double", "int", "size", "has"]);
            let near = match name {
                "len" => "; did you mean `size`?".to_owned(),
                "float" => "; did you mean `double`?".to_owned(),
                _ => did_you_mean(name, known),
            };
            return self.mistake(at, format!("unknown function `{name}`{near}"), "");
        };
        let (exprs, types) = typed?;
        match function.type_of(&types) {
            Ok(ty) => Some((Node::Call(function, exprs), ty)),
            Err(why) => self.mistake(at, why, ""),
        }
    }

    fn size(
        &mut self,
        at: &Range<usize>,
        exprs: Vec<Tree<N::Name>>,
        types: &[Type],
    ) -> Option<(Node<N::Name>, Type)> {
        match (exprs.into_iter().next(), types) {
            (Some(of), [Type::STR | Type::List(_) | Type::Map(_)]) => {
                Some((Node::Size(Box::new(of)), Type::INT))
            }
            _ => self.mistake(at, "`size` takes a string, a list or a map", ""),
        }
    }

    fn has(&mut self, at: &Range<usize>, args: &[Ast<'a>]) -> Option<(Node<N::Name>, Type)> {
        let name = match args {
            [
                Ast {
                    kind: AstKind::Field(..),
                    at,
                    ..
                },
            ] => args.first().and_then(segments).map(|s| (s, at)),
            _ => None,
        };
        let Some((segments, span)) = name else {
            return self.mistake(at, "`has(...)` takes the name of a fact", "");
        };
        let words: Vec<&str> = segments.iter().map(|(word, _)| *word).collect();
        let name = words.join(".");
        match self.names.find(&name) {
            Ok((found, _)) if self.names.may_be_absent(&found) => {
                self.used.push(found.clone());
                Some((Node::Has(found), Type::BOOL))
            }
            Ok(_) => {
                let title = format!("`{name}` is always there");
                self.mistake(span, title, "`has(...)` is for facts")
            }
            Err(why) => self.no_name(span, why),
        }
    }

    fn method(
        &mut self,
        target: &Ast<'a>,
        name: &str,
        at: &Range<usize>,
        args: &[Ast<'a>],
    ) -> Option<(Node<N::Name>, Type)> {
        if let Some((_, which)) = MACROS.iter().find(|(known, _)| *known == name) {
            return self.comprehension(*which, target, name, at, args);
        }
        if name == "matches" {
            let label = "names are decoded once, in the fact table";
            return self.mistake(at, "regular expressions are not offered", label);
        }
        if !METHODS.contains(&name) {
            let known = METHODS.into_iter().chain(MACROS.map(|(name, _)| name));
            let near = did_you_mean(name, known);
            return self.mistake(at, format!("unknown function `.{name}()`{near}"), "");
        }
        let on = self.typed(target);
        let args = self.all(args);
        let ((on, on_type), (args, types)) = (on?, args?);
        if name == "size" && args.is_empty() {
            return self.size(at, vec![on], &[on_type]);
        }
        let holds: fn(&str, &str) -> bool = match name {
            "contains" => |text, part| text.contains(part),
            "startsWith" => |text, part| text.starts_with(part),
            "endsWith" => |text, part| text.ends_with(part),
            _ => return self.mistake(at, "`size` takes a string, a list or a map", ""),
        };
        match (on_type, types.as_slice(), args.into_iter().next()) {
            (Type::STR, [Type::STR], Some(part)) => {
                Some((Node::Text(holds, Box::new([on, part])), Type::BOOL))
            }
            _ => self.mistake(
                at,
                format!("`{name}` is of a string and takes a string"),
                "",
            ),
        }
    }

    fn comprehension(
        &mut self,
        which: Macro,
        target: &Ast<'a>,
        name: &str,
        at: &Range<usize>,
        args: &[Ast<'a>],
    ) -> Option<(Node<N::Name>, Type)> {
        if self.item.is_some() {
            let title = "a comprehension inside a comprehension";
            return self.mistake(at, title, "use a let");
        }
        let [
            Ast {
                kind: AstKind::Name(variable),
                at: variable_at,
                ..
            },
            body,
        ] = args
        else {
            let title = format!("`{name}` takes a variable and what is asked of it");
            return self.mistake(at, title, "as in `list.exists(x, x == \"a\")`");
        };
        let (list, ty) = self.typed(target)?;
        let Type::List(Some(item)) = ty else {
            return self.mistake(at, "a comprehension runs over a list fact", "");
        };
        if !matches!(list.node, Node::Name(_)) {
            return self.mistake(at, "a comprehension runs over a list fact only", "");
        }
        if self.names.find(variable).is_ok() {
            let title = format!("`{variable}` is already a let");
            return self.mistake(variable_at, title, "rename it");
        }
        self.item = Some((variable, Type::One(item)));
        let body = match which {
            Macro::Map => self.typed(body),
            _ => self.condition(body).map(|expr| (expr, Type::BOOL)),
        };
        self.item = None;
        let (body, of) = body?;
        let ty = match which {
            Macro::Filter => ty,
            Macro::Map => match of {
                Type::One(scalar) => Type::List(Some(scalar)),
                _ => return self.mistake(at, "a list of lists or maps", ""),
            },
            _ => Type::BOOL,
        };
        Some((Node::Comprehension(which, Box::new([list, body])), ty))
    }

    fn map(
        &mut self,
        at: &Range<usize>,
        entries: &[(Ast<'a>, Ast<'a>)],
    ) -> Option<(Node<N::Name>, Type)> {
        let mut item = None;
        let mut checked = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (key, key_type) = self.typed(key)?;
            let (value, ty) = self.typed(value)?;
            let scalar = ty.scalar().filter(|s| s.is_number());
            if key_type != Type::STR || scalar.is_none() || (item.is_some() && item != scalar) {
                let title = "a map goes from strings to numbers of one type";
                return self.mistake(at, title, "");
            }
            item = scalar;
            checked.push((key, value));
        }
        match item {
            Some(item) => Some((Node::Map(checked), Type::Map(item))),
            None => self.mistake(at, "an empty map", ""),
        }
    }

    fn no_name<T>(&mut self, at: &Range<usize>, why: NoName) -> Option<T> {
        match why {
            // An empty mistake makes the check fail; the cause is reported elsewhere.
            NoName::Broken => self.mistake(at, "", ""),
            NoName::Unknown(why) => self.mistake(at, why, ""),
        }
    }

    fn mistake<T>(
        &mut self,
        at: &Range<usize>,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Option<T> {
        self.mistakes.push(Mistake {
            at: at.clone(),
            title: title.into(),
            label: label.into(),
        });
        None
    }
}

impl BinaryOperator {
    fn compares(self) -> bool {
        use BinaryOperator::{AtLeast, AtMost, Equal, Less, More, NotEqual};
        matches!(self, Less | AtMost | More | AtLeast | Equal | NotEqual)
    }
}

/// The problem with a string that is compared with a closed set of values, and the values; `None` if it
/// is one of them or the set is open.
pub(crate) fn unknown_value(word: &str, values: &[&str]) -> Option<(String, String)> {
    if values.is_empty() || values.contains(&word) {
        return None;
    }
    let near = did_you_mean(word, values.iter().copied());
    let title = format!("`{word}` is not one of its values{near}");
    Some((title, format!("one of {}", values.join(", "))))
}

/// The words of `a.b.c`, root first, each with the range up to its end; `None` for any other
/// expression.
fn segments<'s>(ast: &Ast<'s>) -> Option<Vec<(&'s str, Range<usize>)>> {
    match &ast.kind {
        AstKind::Name(name) => {
            let mut all = Vec::with_capacity(2);
            all.push((*name, ast.at.clone()));
            Some(all)
        }
        AstKind::Field(operand, field) => {
            let mut all = segments(operand)?;
            all.push((field, ast.at.clone()));
            Some(all)
        }
        _ => None,
    }
}

/// `container.key` as an index.
fn select<N>(container: Node<N>, at: Range<usize>, key: &str, key_at: Range<usize>) -> Node<N> {
    let key = Node::Literal(Value::Str(key.into()));
    Node::Index(Box::new([
        Tree {
            node: container,
            at,
        },
        Tree {
            node: key,
            at: key_at,
        },
    ]))
}

/// The common type of two values that must have the same type.
fn unify(a: Type, b: Type) -> Option<Type> {
    match (a, b) {
        (Type::List(None), list @ Type::List(_)) | (list @ Type::List(_), Type::List(None)) => {
            Some(list)
        }
        (a, b) if a == b => Some(a),
        _ => None,
    }
}

/// Whether values of two types can be compared: numbers of any type, and strings.
fn comparable(a: Type, b: Type) -> bool {
    (a.is_number() && b.is_number()) || (a == Type::STR && b == Type::STR)
}
