//! Rewrites a checked expression into what runs: its logical skeleton, and leaves for CEL.

use cel::common::ast::{CallExpr, EntryExpr, Expr as Ast, IdedExpr, LiteralValue, operators};

use super::check::Vocabulary;
use super::expr::{Comparison, Leaf, Name, Node, Operand, Relation};
use crate::base::cel::{Scalar, Type};
use crate::facts::Value;

/// Turns trees whose names are checked and lowered into nodes.
pub(super) struct Lowering<'a>(pub(super) &'a Vocabulary<'a>);

impl Lowering<'_> {
    /// The logical skeleton of a lowered tree.
    pub(super) fn node(&self, ast: IdedExpr) -> Node {
        match ast.expr {
            Ast::Call(call) => self.call_node(ast.id, call),
            Ast::Ident(name) => match self.0.known(&name) {
                Some((Name::Let(index), _)) => Node::Let(index),
                Some((name, _)) => Node::Name(name),
                None => self.leaf(IdedExpr {
                    id: ast.id,
                    expr: Ast::Ident(name),
                }),
            },
            expr => self.leaf(IdedExpr { id: ast.id, expr }),
        }
    }

    fn call_node(&self, id: u64, mut call: CallExpr) -> Node {
        let simple = self.word(&call).or_else(|| self.inside(&call));
        if let Some(node) = simple.or_else(|| self.comparison(&call)) {
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
        let Some((Name::Fact(fact), Type::STR)) = self.0.known(name) else {
            return None;
        };
        let node = Node::Word { fact, words };
        Some(match call.func_name.as_str() {
            operators::NOT_EQUALS => Node::Not(Box::new(node)),
            _ => node,
        })
    }

    /// `"word" in fact`.
    fn inside(&self, call: &CallExpr) -> Option<Node> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::IN, [word, list]) => {
                let (Ast::Literal(LiteralValue::String(word)), Ast::Ident(name)) =
                    (&word.expr, &list.expr)
                else {
                    return None;
                };
                match self.0.known(name)? {
                    (Name::Fact(fact), Type::List(Some(Scalar::Str))) => Some(Node::Inside {
                        word: word.inner().to_owned(),
                        fact,
                    }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A comparison of two numbers, each a name or written out.
    fn comparison(&self, call: &CallExpr) -> Option<Node> {
        let [left, right] = call.args.as_slice() else {
            return None;
        };
        let holds = match call.func_name.as_str() {
            operators::LESS => Relation::Less,
            operators::LESS_EQUALS => Relation::AtMost,
            operators::GREATER => Relation::More,
            operators::GREATER_EQUALS => Relation::AtLeast,
            operators::EQUALS | operators::NOT_EQUALS => Relation::Equal,
            _ => return None,
        };
        let (left, left_type) = self.operand(left)?;
        let (right, right_type) = self.operand(right)?;
        if matches!(holds, Relation::Equal) && left_type != right_type {
            return None;
        }
        let node = Node::Compare(Box::new(Comparison { holds, left, right }));
        Some(match call.func_name.as_str() {
            operators::NOT_EQUALS => Node::Not(Box::new(node)),
            _ => node,
        })
    }

    /// A number, with its type.
    fn operand(&self, ast: &IdedExpr) -> Option<(Operand, Type)> {
        match &ast.expr {
            Ast::Ident(name) => match self.0.known(name)? {
                (name, ty @ (Type::INT | Type::DOUBLE)) => Some((Operand::Name(name), ty)),
                _ => None,
            },
            Ast::Literal(LiteralValue::Int(i)) => {
                Some((Operand::Literal(Value::Int(*i.inner())), Type::INT))
            }
            Ast::Literal(LiteralValue::Double(d)) => {
                Some((Operand::Literal(Value::Double(*d.inner())), Type::DOUBLE))
            }
            _ => None,
        }
    }

    fn leaf(&self, ast: IdedExpr) -> Node {
        let mut strict = Vec::new();
        let mut lax = Vec::new();
        let mut stack = vec![(&ast, true)];
        while let Some((node, needed)) = stack.pop() {
            match &node.expr {
                Ast::Ident(name) => {
                    if let Some((name, _)) = self.0.known(name) {
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
