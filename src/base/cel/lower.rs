//! Rewrites of checked trees: dotted names become single ones, selections become indexing.

use cel::common::ast::{CallExpr, Expr as Ast, IdedExpr, LiteralValue, operators};

/// The name a presence test is lowered to.
pub(crate) const HAS: &str = "has ";

/// The segments of `a.b.c`, root first; `None` for anything that is not just a name.
pub(super) fn qualified(node: &IdedExpr) -> Option<Vec<String>> {
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
pub(super) fn root_id(node: &IdedExpr) -> u64 {
    let mut node = node;
    while let Ast::Select(select) = &node.expr {
        node = &select.operand;
    }
    node.id
}

/// `container["key"]`.
pub(super) fn index(container: IdedExpr, key: &str) -> IdedExpr {
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
pub(super) fn lower_select(node: &mut IdedExpr) {
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
