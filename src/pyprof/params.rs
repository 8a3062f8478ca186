//! Formats the cell `Params`: shapes and types of an operator's arguments, like PyProf.

use super::marker::{MarkerArg, MarkerValue, short_type};
use super::python::tuple;
use super::record::Dir;
use crate::correlate::OpName;
use crate::cost::{DecodedName, Family};

/// A kernel in a marker.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParamsInput<'a> {
    pub op: &'a OpName,
    /// The arguments in the marker.
    pub args: &'a [MarkerArg],
    pub dir: Dir,
    pub sub: u64,
    pub kernel: &'a DecodedName,
}

/// The cell `Params`. For operators without a format, or with arguments that do not match it, it lists the
/// shapes and types of the tensors.
pub(super) fn params(input: &ParamsInput<'_>) -> String {
    let format = format_of(&input.op.name);
    let params = format.and_then(|format| format(input));
    params.unwrap_or_else(|| tensors(input))
}

/// Whether a kernel of `linear` adds the bias or sums its gradient: it is not a product.
pub(super) fn is_bias(input: &ParamsInput<'_>) -> bool {
    input.op.name == "linear" && !is_product(input.kernel)
}

/// Formats the parameters of one operator; `None` for unexpected arguments.
type Format = fn(&ParamsInput<'_>) -> Option<String>;

/// PyProf's format of the parameters of an operator, by its name in markers.
fn format_of(op: &str) -> Option<Format> {
    let format: Format = match op {
        "linear" => linear,
        "forward" => cell,
        "conv1d" | "conv2d" => conv,
        "abs" | "abs_" | "neg" | "neg_" | "reciprocal" | "reciprocal_" | "__abs__" | "__neg__"
        | "__invert__" | "add" | "add_" | "div" | "div_" | "mul" | "mul_" | "remainder"
        | "remainder_" | "sub" | "sub_" | "__add__" | "__sub__" | "__mul__" | "__floordiv__"
        | "__truediv__" | "__mod__" | "__radd__" | "__rsub__" | "__rmul__" | "__rdiv__"
        | "__rtruediv__" | "__rfloordiv__" | "fmod" | "fmod_" | "__iadd__" | "__isub__"
        | "__imul__" | "__itruediv__" | "lt" | "lt_" | "gt" | "gt_" | "ge" | "ge_" | "le"
        | "le_" | "eq" | "eq_" | "ne" | "ne_" | "__lt__" | "__gt__" | "__ge__" | "__le__"
        | "__eq__" | "__ne__" | "__and__" | "__or__" | "__xor__" | "__lshift__" | "__rshift__"
        | "__iand__" | "__ior__" | "__ixor__" | "__ilshift__" | "__irshift__" | "addcdiv"
        | "addcdiv_" | "addcmul" | "addcmul_" | "exp" | "exp_" | "exp1m" | "exp1m_" | "log"
        | "log_" | "log10" | "log10_" | "log1p" | "log1p_" | "log2" | "log2_" | "pow" | "pow_"
        | "__pow__" | "__rpow__" | "rsqrt" | "rsqrt_" | "sqrt" | "sqrt_" | "ceil" | "ceil_"
        | "clamp" | "clamp_" | "floor" | "floor_" | "frac" | "frac_" | "round" | "round_"
        | "sign" | "sign_" | "trunc" | "trunc_" | "acos" | "acos_" | "asin" | "asin_" | "atan"
        | "atan_" | "atan2" | "atan2_" | "cos" | "cos_" | "cosh" | "cosh_" | "sin" | "sin_"
        | "sinh" | "sinh_" | "tan" | "tan_" | "sigmoid" | "sigmoid_" | "tanh" | "tanh_" | "erf"
        | "erf_" | "erfc" | "erfc_" | "erfinv" | "erfinv_" | "digamma" | "lerp" | "lerp_"
        | "mvlgamma" => pointwise,
        "byte" | "char" | "double" | "float" | "half" | "int" | "long" | "short" | "to" => convert,
        "__matmul__" | "matmul" => matmul,
        "embedding" => embedding,
        "sum" | "norm" | "reshape" | "masked_scatter_" | "gather" | "nonzero" | "clone"
        | "contiguous" | "any" => tensor_type,
        "mean" | "dropout" | "softmax" | "log_softmax" | "batch_norm" | "ones_like" | "zero_"
        | "zeros_like" | "fill_" | "celu" | "elu" | "elu_" | "hardshrink" | "hardtanh"
        | "hardtanh_" | "leaky_relu" | "leaky_relu_" | "logsigmoid" | "prelu" | "relu"
        | "relu_" | "relu6" | "rrelu" | "rrelu_" | "selu" | "softplus" | "softshrink"
        | "softsign" | "tanhshrink" | "threshold" | "threshold_" => unary,
        "cat" => cat,
        "index_select" => index_select,
        "masked_select" => masked_select,
        "addmm" | "addmm_" => addmm,
        "mm" => mm,
        "bmm" => bmm,
        "mse_loss" => loss,
        "adam" => adam,
        "randperm" => randperm,
        "ones" | "zeros" => filled,
        "full" => full,
        "copy_" => copy,
        _ => return None,
    };
    Some(format)
}

fn is_product(kernel: &DecodedName) -> bool {
    const OTHERS: [&str; 2] = ["gemv", "dot_kernel"];
    kernel.family.is_math()
        || kernel.helper
        || kernel.family == Family::Helper
        || OTHERS.iter().any(|word| kernel.base.contains(word))
}

/// `A=(35,20),B=3,fp32,`: pairs, and types at the end.
fn pairs<V: std::fmt::Display>(named: &[(&str, V)], types: &[&str]) -> String {
    let mut out = String::new();
    for (name, value) in named {
        out.push_str(&format!("{name}={value},"));
    }
    for dtype in types {
        out.push_str(short_type(dtype));
        out.push(',');
    }
    out.replace(' ', "")
}

/// `[35,20]fp32` for a tensor, `[]fp32` for a scalar.
fn shown(arg: &MarkerArg) -> String {
    list(arg.tensor().unwrap_or_default(), arg.type_name())
}

fn list(shape: &[i64], dtype: &str) -> String {
    let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]{dtype}", dims.join(","))
}

/// A single number without parentheses, otherwise a tuple.
fn scalar_or_tuple(shape: &[i64]) -> String {
    match shape {
        [only] => only.to_string(),
        shape => tuple(shape),
    }
}

impl<'a> ParamsInput<'a> {
    /// The argument at a position or with a keyword.
    fn arg(&self, index: usize, keyword: &str) -> Option<&'a MarkerArg> {
        let args = self.args;
        args.iter()
            .find(|a| a.name == keyword)
            .or_else(|| args.get(index).filter(|a| a.name.is_empty()))
    }

    /// The tensor that the operator is applied to.
    fn first(&self) -> Option<&'a MarkerArg> {
        let args = self.args;
        self.arg(0, "input").or_else(|| args.first())
    }

    /// Shape and type of a tensor argument.
    fn tensor(&self, index: usize, keyword: &str) -> Option<(&'a [i64], &'a str)> {
        let arg = self.arg(index, keyword)?;
        Some((arg.tensor()?, &arg.dtype))
    }

    /// A whole number, or the items of a tuple of whole numbers.
    fn ints(&self, index: usize, keyword: &str) -> Option<Vec<i64>> {
        match &self.arg(index, keyword)?.value {
            MarkerValue::Int(value) => Some(vec![*value]),
            MarkerValue::Ints(values) => Some(values.clone()),
            _ => None,
        }
    }

    fn is_named(&self, index: usize, keyword: &str, word: &str) -> bool {
        self.arg(index, keyword)
            .is_some_and(|a| a.value == MarkerValue::Str(word.to_owned()))
    }
}

/// `T=[(2,3),(3,)],['float32','float32']`: all tensors.
fn tensors(input: &ParamsInput<'_>) -> String {
    let tensors = || input.args.iter().filter(|a| a.is_tensor());
    let shapes: Vec<String> = tensors()
        .map(|a| tuple(a.tensor().unwrap_or_default()))
        .collect();
    let types: Vec<String> = tensors().map(|a| format!("'{}'", a.dtype)).collect();
    format!("T=[{}],[{}]", shapes.join(","), types.join(",")).replace(' ', "")
}

fn linear(input: &ParamsInput<'_>) -> Option<String> {
    let (x, dtype) = input.tensor(0, "input")?;
    let (w, _) = input.tensor(1, "weight")?;
    let (_, rows) = x.split_last()?;
    let &[m, k] = w else { return None };
    let n = scalar_or_tuple(rows);
    let (m, k) = (m.to_string(), k.to_string());
    if !is_product(input.kernel) {
        return Some(pairs(&[("M", m), ("N", n)], &[dtype]));
    }
    // PyProf assumes that the first product of a backward is the data gradient.
    let named = match (input.dir, input.sub) {
        (Dir::Bprop, 0) => [("M", k), ("N", n), ("K", m)],
        (Dir::Bprop, 1) => [("M", k), ("N", m), ("K", n)],
        (Dir::Bprop, _) => {
            let shapes = [("X", tuple(x)), ("W", tuple(w))];
            return Some(pairs(&shapes, &[dtype]));
        }
        _ => [("M", m), ("N", n), ("K", k)],
    };
    Some(pairs(&named, &[dtype]))
}

fn cell(input: &ParamsInput<'_>) -> Option<String> {
    let cell = input.op.module.as_str();
    let gates: i64 = match cell {
        "LSTMCell" => 4,
        "GRUCell" => 3,
        "RNNCell" => 1,
        _ => return None,
    };
    let (x, dtype) = input.tensor(0, "input")?;
    let &[batch, inputs] = x else { return None };
    let hidden = *input.tensor(1, "hx").and_then(|(h, _)| h.get(1))?;
    let product = |gemm: &str, k: i64| {
        let named = [
            ("gemm", gemm.to_owned()),
            ("M", gates.saturating_mul(hidden).to_string()),
            ("N", batch.to_string()),
            ("K", k.to_string()),
        ];
        pairs(&named, &[dtype])
    };
    Some(match (input.dir, input.sub % 3) {
        (Dir::Fprop, 0) => product("layer", inputs),
        (Dir::Fprop, 1) => product("recur", hidden),
        _ => pairs(
            &[
                ("cell", cell.to_owned()),
                ("X", inputs.to_string()),
                ("H", hidden.to_string()),
                ("B", batch.to_string()),
            ],
            &[dtype],
        ),
    })
}

fn conv(input: &ParamsInput<'_>) -> Option<String> {
    let (x, dtype) = input.tensor(0, "input")?;
    let (w, _) = input.tensor(1, "weight")?;
    // One dimension is formatted as two with a height of 1.
    let (n, c, size, k, filter) = match (x, w) {
        (&[n, c, w], &[k, _, s]) => (n, c, [1, w], k, [1, s]),
        (&[n, c, h, w], &[k, _, r, s]) => (n, c, [h, w], k, [r, s]),
        _ => return None,
    };
    let pair = |index: usize, keyword: &str, missing: i64| match (
        input.ints(index, keyword).as_deref(),
        x.len(),
    ) {
        (Some(&[only]), 4) => [only, only],
        (Some(&[high, wide]), 4) => [high, wide],
        (Some(&[only]), _) => [if keyword == "padding" { 0 } else { 1 }, only],
        (_, 4) => [missing, missing],
        _ => [if keyword == "padding" { 0 } else { 1 }, missing],
    };
    let stride = pair(3, "stride", 1);
    let dilation = pair(5, "dilation", 1);
    let groups = input
        .ints(6, "groups")
        .and_then(|g| g.first().copied())
        .unwrap_or(1);
    let mut padding = pair(4, "padding", 0);
    let same = input.is_named(4, "padding", "same");
    let mut out = [0_i64; 2];
    for axis in 0..2_usize {
        let at = |list: &[i64; 2]| list.get(axis).copied().unwrap_or(0);
        let reach = at(&filter).checked_sub(1)?.checked_mul(at(&dilation))?;
        if same && let Some(slot) = padding.get_mut(axis) {
            *slot = reach / 2;
        }
        let room = if same {
            at(&size).checked_sub(1)?
        } else {
            let padded = at(&size).checked_add(at(&padding).checked_mul(2)?)?;
            padded.checked_sub(reach)?.checked_sub(1)?
        };
        *out.get_mut(axis)? = room.checked_div(at(&stride))?.checked_add(1)?;
    }
    let named = [
        ("N", n),
        ("C", c),
        ("H", size[0]),
        ("W", size[1]),
        ("K", k),
        ("P", out[0]),
        ("Q", out[1]),
        ("R", filter[0]),
        ("S", filter[1]),
        ("ph", padding[0]),
        ("pw", padding[1]),
        ("U", stride[0]),
        ("V", stride[1]),
        ("dh", dilation[0]),
        ("dw", dilation[1]),
        ("g", groups),
    ];
    Some(pairs(&named, &[dtype]))
}

/// `[35,20]fp32;[]fp32`: tensors and numbers.
fn pointwise(input: &ParamsInput<'_>) -> Option<String> {
    let shown: Vec<String> = input
        .args
        .iter()
        .filter(|a| a.is_tensor() || matches!(a.kind.as_str(), "int" | "float" | "bool"))
        .map(shown)
        .collect();
    (!shown.is_empty()).then(|| shown.join(";"))
}

fn convert(input: &ParamsInput<'_>) -> Option<String> {
    Some(shown(input.first()?))
}

fn matmul(input: &ParamsInput<'_>) -> Option<String> {
    let (a, dtype) = input.tensor(0, "input")?;
    let (b, _) = input.tensor(1, "other")?;
    let shapes = [("A", tuple(a)), ("B", tuple(b))];
    Some(pairs(&shapes, &[dtype]))
}

fn embedding(input: &ParamsInput<'_>) -> Option<String> {
    let [first, second, ..] = input.args else {
        return None;
    };
    (first.is_tensor() && second.is_tensor()).then(|| format!("{};{}", shown(first), shown(second)))
}

/// `T=(600,200),fp32,`.
fn tensor_type(input: &ParamsInput<'_>) -> Option<String> {
    let arg = input.first()?;
    Some(pairs(&[("T", tuple(arg.tensor()?))], &[&arg.dtype]))
}

/// `[600,200]fp32`.
fn unary(input: &ParamsInput<'_>) -> Option<String> {
    input.first().filter(|a| a.is_tensor()).map(shown)
}

fn cat(input: &ParamsInput<'_>) -> Option<String> {
    let args = input.args;
    let shown: Vec<String> = args.iter().filter(|a| a.is_tensor()).map(shown).collect();
    let rank = args.iter().find_map(MarkerArg::tensor)?.len();
    let axis = args
        .iter()
        .filter(|a| !a.is_tensor())
        .find_map(|a| match a.value {
            MarkerValue::Int(axis) => Some(axis),
            _ => None,
        })
        .unwrap_or(0);
    let axis = match axis {
        -1 => i64::try_from(rank).ok()?.saturating_sub(1),
        axis => axis,
    };
    Some(format!("T={},A={axis}", shown.join(";")))
}

fn index_select(input: &ParamsInput<'_>) -> Option<String> {
    let (t, dtype) = input.tensor(0, "input")?;
    let dim = *input.ints(1, "dim")?.first()?;
    let (index, _) = input.tensor(2, "index")?;
    let named = [
        ("T", tuple(t)),
        ("D", dim.to_string()),
        ("I", index.first()?.to_string()),
    ];
    Some(pairs(&named, &[dtype]))
}

fn masked_select(input: &ParamsInput<'_>) -> Option<String> {
    let (t, dtype) = input.tensor(0, "input")?;
    let (mask, _) = input.tensor(1, "mask")?;
    let shapes = [("T", tuple(t)), ("M", tuple(mask))];
    Some(pairs(&shapes, &[dtype]))
}

/// PyProf uses column-major order like BLAS: `M` is the number of columns of the result.
fn product(a: &[i64], b: &[i64], dtype: &str) -> Option<String> {
    let (&[m, k], &[_, n]) = (a, b) else {
        return None;
    };
    Some(pairs(&[("M", n), ("N", m), ("K", k)], &[dtype]))
}

fn addmm(input: &ParamsInput<'_>) -> Option<String> {
    let (a, dtype) = input.tensor(1, "mat1")?;
    let (b, _) = input.tensor(2, "mat2")?;
    product(a, b, dtype)
}

fn mm(input: &ParamsInput<'_>) -> Option<String> {
    let (a, dtype) = input.tensor(0, "input")?;
    let (b, _) = input.tensor(1, "mat2")?;
    product(a, b, dtype)
}

fn bmm(input: &ParamsInput<'_>) -> Option<String> {
    let (a, dtype) = input.tensor(0, "input")?;
    let (b, _) = input.tensor(1, "mat2")?;
    let (&[batch, m, k], &[_, _, n]) = (a, b) else {
        return None;
    };
    let named = [("B", batch), ("M", n), ("N", m), ("K", k)];
    Some(pairs(&named, &[dtype]))
}

fn loss(input: &ParamsInput<'_>) -> Option<String> {
    let (x, dtype) = input.tensor(0, "input")?;
    let mut outward = input.args.iter().rev();
    let reduction = outward.find_map(|a| match &a.value {
        MarkerValue::Str(word) => Some(word.as_str()),
        _ => None,
    });
    let reduction = reduction.unwrap_or("mean");
    let shape = tuple(x);
    Some(format!("T={shape},{},red={reduction},", short_type(dtype)).replace(' ', ""))
}

fn adam(input: &ParamsInput<'_>) -> Option<String> {
    let [weight, _, _, _, gradient, ..] = input.args else {
        return None;
    };
    let shape = [("T", tuple(weight.tensor()?))];
    Some(pairs(&shape, &[&weight.dtype, &gradient.dtype]))
}

fn randperm(input: &ParamsInput<'_>) -> Option<String> {
    let n = *input.ints(0, "n")?.first()?;
    Some(pairs(&[("N", n)], &[]))
}

/// `zeros((2, 3))` and `zeros(2, 3)`.
fn filled(input: &ParamsInput<'_>) -> Option<String> {
    let dims: Vec<i64> = match input.ints(0, "size")?.as_slice() {
        [_] => input
            .args
            .iter()
            .filter(|a| a.name.is_empty())
            .filter_map(|a| match &a.value {
                MarkerValue::Int(dim) => Some(vec![*dim]),
                MarkerValue::Ints(dims) => Some(dims.clone()),
                _ => None,
            })
            .flatten()
            .collect(),
        dims => dims.to_vec(),
    };
    Some(list(&dims, "fp32"))
}

fn full(input: &ParamsInput<'_>) -> Option<String> {
    let dims = input.ints(0, "size")?;
    Some(list(&dims, input.arg(1, "fill_value")?.type_name()))
}

fn copy(input: &ParamsInput<'_>) -> Option<String> {
    let (target, to) = input.tensor(0, "self")?;
    let source = input.arg(1, "src")?;
    let from = if source.is_tensor() {
        &source.dtype
    } else {
        &source.kind
    };
    Some(pairs(&[("T", tuple(target))], &[from, to]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cost::kernel_name::decode;
    use crate::pyprof::marker::Operator;

    fn shown(marker: &str, dir: Dir, sub: u64, kernel: &str) -> (String, String) {
        let operator = Operator::of_marker(marker).unwrap();
        let input = ParamsInput {
            op: &operator.name,
            args: &operator.marker_args,
            dir,
            sub,
            kernel: &decode(kernel),
        };
        let op = if is_bias(&input) { "bias" } else { "" };
        (op.into(), super::params(&input))
    }

    fn params(marker: &str) -> String {
        shown(marker, Dir::Fprop, 0, "elementwise_kernel").1
    }

    fn tensor(shape: &str, dtype: &str) -> String {
        format!("{{'name': '', 'type': 'tensor', 'shape': {shape}, 'dtype': '{dtype}'}}")
    }

    fn int(name: &str, value: &str) -> String {
        let kind = if value.starts_with('(') {
            "tuple"
        } else {
            "int"
        };
        format!("{{'name': '{name}', 'type': '{kind}', 'value': {value}}}")
    }

    fn marker(module: &str, op: &str, args: &[String]) -> String {
        let args = args.join(", ");
        format!("{{'mod': '{module}', 'op': '{op}', 'args': [{args}]}}")
    }

    #[test]
    fn linear_has_four_forms() {
        let args = [
            tensor("(35, 20, 200)", "float32"),
            tensor("(600, 200)", "float32"),
        ];
        let marker = marker("torch.nn.functional", "linear", &args);
        let of = |dir, sub, kernel| shown(&marker, dir, sub, kernel);
        let gemm = "volta_sgemm_32x128_tn";
        assert_eq!(
            of(Dir::Fprop, 0, gemm),
            (String::new(), "M=600,N=(35,20),K=200,fp32,".into())
        );
        assert_eq!(of(Dir::Bprop, 0, gemm).1, "M=200,N=(35,20),K=600,fp32,");
        assert_eq!(of(Dir::Bprop, 1, gemm).1, "M=200,N=600,K=(35,20),fp32,");
        assert_eq!(of(Dir::Bprop, 2, gemm).1, "X=(35,20,200),W=(600,200),fp32,");
        let add = "void at::native::elementwise_kernel<512, 1, F>(int, F)";
        assert_eq!(
            of(Dir::Fprop, 0, add),
            ("bias".into(), "M=600,N=(35,20),fp32,".into())
        );
    }

    #[test]
    fn convolutions_include_their_output_size() {
        let args = [
            tensor("(8, 3, 32, 30)", "float16"),
            tensor("(64, 3, 3, 5)", "float16"),
            "{'name': '', 'type': 'NoneType', 'value': None}".into(),
            int("", "(2, 1)"),
            int("", "(1, 2)"),
            int("dilation", "1"),
        ];
        assert_eq!(
            params(&marker("torch.nn.functional", "conv2d", &args)),
            "N=8,C=3,H=32,W=30,K=64,P=16,Q=30,R=3,S=5,ph=1,pw=2,U=2,V=1,dh=1,dw=1,g=1,fp16,"
        );
        let args = [
            tensor("(8, 3, 30)", "float32"),
            tensor("(64, 3, 5)", "float32"),
            int("padding", "2"),
        ];
        assert_eq!(
            params(&marker("torch.nn.functional", "conv1d", &args)),
            "N=8,C=3,H=1,W=30,K=64,P=1,Q=30,R=1,S=5,ph=0,pw=2,U=1,V=1,dh=1,dw=1,g=1,fp32,"
        );
        let same = [
            tensor("(8, 3, 30, 30)", "float32"),
            tensor("(64, 3, 3, 3)", "float32"),
            "{'name': 'padding', 'type': 'str', 'value': 'same'}".into(),
        ];
        assert!(params(&marker("torch", "conv2d", &same)).contains("P=30,Q=30,R=3,S=3,ph=1,pw=1"));
    }

    #[test]
    fn other_operators_match_pyprof_formats() {
        let x = || tensor("(4, 8)", "float32");
        for (op, args, want) in [
            ("__mul__", vec![x(), int("", "2")], "[4,8]fp32;[]int32"),
            (
                "matmul",
                vec![x(), tensor("(8, 2)", "float32")],
                "A=(4,8),B=(8,2),fp32,",
            ),
            (
                "mm",
                vec![x(), tensor("(8, 2)", "float32")],
                "M=2,N=4,K=8,fp32,",
            ),
            ("norm", vec![x()], "T=(4,8),fp32,"),
            ("softmax", vec![x(), int("", "-1")], "[4,8]fp32"),
            (
                "cat",
                vec![x(), x(), int("dim", "-1")],
                "T=[4,8]fp32;[4,8]fp32,A=1",
            ),
            ("half", vec![x()], "[4,8]fp32"),
            (
                "copy_",
                vec![x(), tensor("(4, 8)", "bfloat16")],
                "T=(4,8),bf16,fp32,",
            ),
            ("zeros", vec![int("", "2"), int("", "3")], "[2,3]fp32"),
            (
                "layer_norm",
                vec![x(), tensor("(8,)", "float32")],
                "T=[(4,8),(8,)],['float32','float32']",
            ),
            ("backward", vec![], "T=[],[]"),
            ("linear", vec![x()], "T=[(4,8)],['float32']"),
        ] {
            assert_eq!(params(&marker("torch", op, &args)), want, "{op}");
        }
    }
}
