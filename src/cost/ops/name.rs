//! Normalizes an operator's name to the spelling in the table.
//!
//! A profile spells addition `aten::add`, `aten::add_`, `torch.add`, `Tensor.__radd__`, `add.Tensor` or
//! `AddBackward0`; the table lists `add`.

use std::borrow::Cow;

use crate::correlate::OpName;

/// A name in the table's spelling, with the properties read from the original spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NormalName<'a> {
    /// The key: no namespace, no leading or trailing underscores, no overload.
    pub(super) base: Cow<'a, str>,
    /// Whether the first operand is overwritten: `add_`, `__iadd__`.
    pub(super) in_place: bool,
    /// Whether it is an autograd node, named after its forward: `AddmmBackward0`.
    pub(super) autograd: bool,
    pub(super) origin: Origin<'a>,
}

/// The library that defines the operator. Argument orders and meanings depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// `aten::`, or a bare name as `emit_nvtx` prints it.
    Aten,
    /// `torch.` and `Tensor.`, which take the arguments in aten's order.
    Torch,
    /// `torch.nn.functional`, whose argument order often differs.
    Functional,
    /// Another library's namespace.
    Other(&'a str),
}

/// Python's operator methods, without underscores, whose names are those of the table.
const METHODS: &[&str] = &[
    "abs", "add", "div", "eq", "ge", "gt", "le", "lt", "matmul", "mul", "ne", "neg", "pow", "sub",
];

/// Python's other operator methods with their names in the table.
const RENAMED: &[(&str, &str)] = &[
    ("and", "bitwise_and"),
    ("floordiv", "floor_divide"),
    ("getitem", "index"),
    ("invert", "bitwise_not"),
    ("lshift", "bitwise_left_shift"),
    ("mod", "remainder"),
    ("or", "bitwise_or"),
    ("rshift", "bitwise_right_shift"),
    ("setitem", "index_put"),
    ("truediv", "div"),
    ("xor", "bitwise_xor"),
];

/// Normalizes `op` to the table's spelling. `None` for names that cannot be operators: attribute
/// access, other dunder methods, the empty name.
pub(super) fn normalize(op: &OpName) -> Option<NormalName<'_>> {
    let (namespace, name) = split(op);
    let origin = origin(namespace);
    if let Some(method) = name.strip_prefix("__").and_then(|n| n.strip_suffix("__")) {
        return dunder(method, origin);
    }
    let name = name.split('.').next().unwrap_or(name);
    if let Some(forward) = autograd(name) {
        return Some(NormalName {
            base: Cow::Owned(snake_case(forward)),
            in_place: false,
            autograd: true,
            origin: Origin::Aten,
        });
    }
    let (name, in_place) = match name.strip_suffix('_') {
        Some(short) if !short.is_empty() => (short, true),
        _ => (name, false),
    };
    let base = name.trim_start_matches('_').trim_end_matches('_');
    (!base.is_empty()).then_some(NormalName {
        base: Cow::Borrowed(base),
        in_place,
        autograd: false,
        origin,
    })
}

/// Namespace and bare name. If the range name was not split, the name may still contain a namespace.
fn split(op: &OpName) -> (&str, &str) {
    let name = op.name.trim();
    // `autograd::engine::evaluate_function: AddmmBackward0`
    let name = name.rsplit(": ").next().unwrap_or(name);
    match name.rsplit_once("::") {
        Some((namespace, name)) => (namespace, name),
        None => (op.module.trim(), name),
    }
}

fn origin(namespace: &str) -> Origin<'_> {
    match namespace {
        "" | "aten" | "at" | "prims" => Origin::Aten,
        "Tensor" | "torch" => Origin::Torch,
        n if n.starts_with("torch.nn.functional") => Origin::Functional,
        // `torch._C._nn` and similar modules are thin bindings of aten.
        n if n.starts_with("torch._C") || n.starts_with("torch.special") => Origin::Torch,
        n if n.starts_with("torch::autograd") || n.starts_with("autograd") => Origin::Aten,
        n if n.starts_with("torch.distributed") => Origin::Other("torch.distributed"),
        n if n.starts_with("torch.nn") => Origin::Other(n),
        n if n.starts_with("torch.") => Origin::Torch,
        n => Origin::Other(n),
    }
}

fn dunder<'a>(method: &'a str, origin: Origin<'a>) -> Option<NormalName<'a>> {
    let find = |method: &str| {
        let renamed = RENAMED.iter().find(|(known, _)| *known == method);
        let same = || METHODS.iter().find(|known| **known == method).copied();
        renamed.map(|(_, name)| *name).or_else(same)
    };
    let named = |base: &'static str, in_place| NormalName {
        base: Cow::Borrowed(base),
        in_place,
        autograd: false,
        origin,
    };
    if let Some(base) = find(method) {
        return Some(named(base, method == "setitem"));
    }
    // `__radd__` and `__iadd__` only if the rest is a method itself.
    let swapped = method.strip_prefix('r').and_then(find);
    let in_place = method.strip_prefix('i').and_then(find);
    swapped
        .map(|base| named(base, false))
        .or_else(|| in_place.map(|base| named(base, true)))
}

/// `AddmmBackward0` -> `Addmm`: starts with a capital and ends with `Backward` and an optional number.
fn autograd(name: &str) -> Option<&str> {
    let forward = name
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .strip_suffix("Backward")?;
    forward
        .starts_with(|c: char| c.is_ascii_uppercase())
        .then_some(forward)
}

/// `MaxPool2DWithIndices` -> `max_pool2d_with_indices`: a word starts at a capital after a lower-case
/// letter, not at one after a digit (`2D`, `Log1P`).
fn snake_case(camel: &str) -> String {
    let mut out = String::with_capacity(camel.len() + 8);
    let mut word_may_end = false;
    let mut after_digit = false;
    for c in camel.chars() {
        if c.is_ascii_uppercase() && word_may_end {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
        word_may_end = c.is_ascii_lowercase() || (after_digit && c.is_ascii_uppercase());
        after_digit = c.is_ascii_digit();
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn reduced(module: &str, name: &str) -> Option<(String, bool, bool)> {
        let op = OpName {
            module: module.into(),
            name: name.into(),
        };
        normalize(&op).map(|n| (n.base.into_owned(), n.in_place, n.autograd))
    }

    fn is(base: &str, in_place: bool, autograd: bool) -> Option<(String, bool, bool)> {
        Some((base.to_owned(), in_place, autograd))
    }

    #[test]
    fn spellings_of_an_operator_are_normalized_to_one_name() {
        assert_eq!(reduced("aten", "add"), is("add", false, false));
        assert_eq!(reduced("", "aten::add_"), is("add", true, false));
        assert_eq!(reduced("torch", "add"), is("add", false, false));
        assert_eq!(reduced("Tensor", "__add__"), is("add", false, false));
        assert_eq!(reduced("Tensor", "__radd__"), is("add", false, false));
        assert_eq!(reduced("Tensor", "__iadd__"), is("add", true, false));
        assert_eq!(reduced("aten", "add.Tensor"), is("add", false, false));
        assert_eq!(reduced("", "AddBackward0"), is("add", false, true));
        assert_eq!(reduced("aten", "_softmax"), is("softmax", false, false));
        assert_eq!(
            reduced("Tensor", "__rshift__").unwrap().0,
            "bitwise_right_shift"
        );
        assert_eq!(reduced("Tensor", "__invert__").unwrap().0, "bitwise_not");
    }

    #[test]
    fn autograd_names_are_normalized_to_the_forward() {
        for (node, forward) in [
            ("MaxPool2DWithIndicesBackward0", "max_pool2d_with_indices"),
            (
                "ScaledDotProductFlashAttentionBackward0",
                "scaled_dot_product_flash_attention",
            ),
            ("Log1PBackward0", "log1p"),
            ("NllLoss2DBackward0", "nll_loss2d"),
            ("MmBackward", "mm"),
        ] {
            assert_eq!(reduced("", node), is(forward, false, true), "{node}");
        }
        let evaluated = "autograd::engine::evaluate_function: AddmmBackward0";
        assert_eq!(reduced("", evaluated), is("addmm", false, true));
    }

    #[test]
    fn attributes_are_not_operators() {
        assert_eq!(reduced("torch", "__getattr__"), None);
        assert_eq!(reduced("Tensor", "__len__"), None);
        assert_eq!(reduced("Tensor", ""), None);
        assert_eq!(reduced("Tensor", "_"), None);
        assert_eq!(reduced("Tensor", "____"), None);
    }
}
