//! The tokens of library kernel names: architectures, instructions, types, tiles, layouts.

use super::decoded::Role;
use super::scan;
use crate::base::DType;

const ARCHITECTURES: &[(&str, (u32, u32))] = &[
    ("kepler", (3, 5)),
    ("maxwell", (5, 0)),
    ("pascal", (6, 0)),
    ("volta", (7, 0)),
    ("turing", (7, 5)),
    ("ampere", (8, 0)),
    ("ada", (8, 9)),
    ("hopper", (9, 0)),
    ("blackwell", (10, 0)),
];

/// The architecture of `ampere`, `sm80`, `sm90a` or `sm100f`.
pub(super) fn arch(token: &str) -> Option<(u32, u32)> {
    if let Some(known) = ARCHITECTURES.iter().find(|a| a.0 == token) {
        return Some(known.1);
    }
    let digits = token.strip_prefix("sm")?;
    let digits = digits.trim_end_matches(['a', 'f']);
    capability(digits)
}

/// The compute capability: `80` is 8.0, `100` is 10.0.
pub(super) fn capability(digits: &str) -> Option<(u32, u32)> {
    if !(2..=3).contains(&digits.len()) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    (20..200)
        .contains(&number)
        .then_some((number / 10, number % 10))
}

/// An instruction token: `s1688gemm`, `scudnn`, `h884cudnn`, `s16816fprop`, `s64x256x16gemm`, `sgemm`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction {
    /// Accumulator letter: `s`, `h`, `d`, `c`, `z`, `i`.
    pub(super) letter: char,
    /// Whether it has the digits of a matrix instruction's shape; without them it is a CUDA-core
    /// kernel.
    pub(super) matrix: bool,
    /// Whether the shape is `1688`, which means TF32 on compute capability 8.0 and later if no other
    /// type is named.
    pub(super) tf32_shape: bool,
    pub(super) dtype: Option<DType>,
    pub(super) conv: bool,
    pub(super) role: Option<Role>,
}

impl Instruction {
    pub(super) fn of(token: &str) -> Option<Instruction> {
        const KINDS: [(&str, bool, Option<Role>); 6] = [
            ("gemm", false, None),
            ("cudnn", true, None),
            ("fprop", true, Some(Role::Fwd)),
            ("dgrad", true, Some(Role::Dgrad)),
            ("wgrad", true, Some(Role::Wgrad)),
            ("deconv", true, Some(Role::Dgrad)),
        ];
        let (head, kind) = KINDS
            .iter()
            .find_map(|k| token.strip_suffix(k.0).map(|head| (head, k)))?;
        let letters = head.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (letters, rest) = head.split_at_checked(letters)?;
        let shape = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'x')
            .count();
        let (shape, dtype) = rest.split_at_checked(shape)?;
        if letters.is_empty() || letters.len() > 2 {
            return None;
        }
        let letter = letters.chars().next_back()?;
        if !matches!(letter, 's' | 'h' | 'd' | 'c' | 'z' | 'i') {
            return None;
        }
        let dtype_named = type_token(dtype);
        if !dtype.is_empty() && dtype_named.is_none() {
            return None;
        }
        Some(Instruction {
            letter,
            matrix: shape.len() >= 3,
            tf32_shape: shape == "1688",
            dtype: dtype_named,
            conv: kind.1,
            role: kind.2,
        })
    }
}

/// The type of a library token, single or a pair: `bf16`, `tf32f32`, `fp16`, `e4m3e4m3`.
pub(super) fn type_token(token: &str) -> Option<DType> {
    const TYPES: &[(&str, DType)] = &[
        ("bf16", DType::Bf16),
        ("tf32", DType::Tf32),
        ("fp16", DType::Fp16),
        ("fp32", DType::Fp32),
        ("fp64", DType::Fp64),
        ("int8", DType::Int8),
        ("e4m3", DType::Fp8),
        ("e5m2", DType::Fp8),
        ("e2m1", DType::Fp4),
        ("fp8", DType::Fp8),
        ("f16", DType::Fp16),
        ("f32", DType::Fp32),
        ("f64", DType::Fp64),
        ("i8", DType::Int8),
        ("s8", DType::Int8),
        ("u8", DType::Uint8),
    ];
    let mut rest = token;
    let mut first = None;
    while !rest.is_empty() {
        let (name, dtype) = TYPES.iter().find(|t| rest.starts_with(t.0))?;
        first.get_or_insert(*dtype);
        rest = rest.get(name.len()..)?;
    }
    first
}

/// `128x64`, `128x256x64`: two or three numbers.
pub(super) fn dims(token: &str) -> Option<Vec<u32>> {
    let numbers: Option<Vec<u32>> = token.split('x').map(|n| n.parse().ok()).collect();
    numbers.filter(|n| (2..=3).contains(&n.len()))
}

/// The first `sm80`-like architecture in lower-case template arguments.
pub(super) fn arch_in(args: &str) -> Option<(u32, u32)> {
    scan::idents(args).find_map(|i| arch(i.text))
}

pub(super) fn is_layout(token: &str) -> bool {
    (2..=3).contains(&token.len())
        && (token.bytes().all(|b| matches!(b, b'n' | b't'))
            || token.bytes().all(|b| matches!(b, b'N' | b'T')))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_parsed() {
        for (token, matrix, dtype) in [
            ("sgemm", false, None),
            ("s1688gemm", true, None),
            ("h884cudnn", true, None),
            ("scudnn", false, None),
            ("s1688bf16gemm", true, Some(DType::Bf16)),
            ("s64x256x16gemm", true, None),
        ] {
            let i = Instruction::of(token).unwrap();
            assert_eq!((i.matrix, i.dtype), (matrix, dtype), "{token}");
        }
        for token in ["gemm", "implicit", "magmasgemm", "splitk", ""] {
            assert!(Instruction::of(token).is_none(), "{token}");
        }
    }

    #[test]
    fn type_tokens_are_parsed() {
        assert_eq!(type_token("tf32f32"), Some(DType::Tf32));
        assert_eq!(type_token("bf16bf16"), Some(DType::Bf16));
        assert_eq!(type_token("f2f"), None);
        assert_eq!(type_token(""), None);
    }
}
