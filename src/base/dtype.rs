//! Tensor element types, with their names in PyTorch, PyProf markers and Kineto.

/// A tensor's element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 64-bit floating point.
    Fp64,
    /// 32-bit floating point.
    Fp32,
    /// fp32 tensors multiplied with 10-bit mantissas on Tensor Cores. Never a storage type.
    Tf32,
    /// IEEE 16-bit floating point.
    Fp16,
    /// 16-bit floating point with the exponent range of fp32.
    Bf16,
    /// Any 8-bit floating point format.
    Fp8,
    /// Any 4-bit floating point format.
    Fp4,
    /// 64-bit integer, signed or unsigned.
    Int64,
    /// 32-bit integer, signed or unsigned.
    Int32,
    /// 16-bit integer, signed or unsigned.
    Int16,
    /// Signed 8-bit integer.
    Int8,
    /// Unsigned 8-bit integer.
    Uint8,
    /// Boolean, one byte.
    Bool,
    /// Two fp32 numbers.
    Complex64,
    /// Two fp64 numbers.
    Complex128,
}

/// Unreachable: a test checks that the table lists every variant.
const FALLBACK: &Row = &(DType::Fp32, "fp32", 4, &[]);

type Row = (DType, &'static str, u64, &'static [&'static str]);

/// `(name in rules and reports, bytes per element, other spellings)`, one line per type.
const TABLE: &[Row] = &[
    (DType::Fp64, "fp64", 8, &["float64", "double", "f64"]),
    (DType::Fp32, "fp32", 4, &["float32", "float", "f32"]),
    (DType::Tf32, "tf32", 4, &[]),
    (
        DType::Fp16,
        "fp16",
        2,
        &["float16", "half", "c10::half", "f16"],
    ),
    (
        DType::Bf16,
        "bf16",
        2,
        &["bfloat16", "c10::bfloat16", "__nv_bfloat16"],
    ),
    (
        DType::Fp8,
        "fp8",
        1,
        &[
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "c10::float8_e4m3fn",
            "c10::float8_e5m2",
            "c10::float8_e4m3fnuz",
            "c10::float8_e5m2fnuz",
            "e4m3",
            "e5m2",
        ],
    ),
    (DType::Fp4, "fp4", 1, &["float4_e2m1fn_x2", "e2m1"]),
    (
        DType::Int64,
        "int64",
        8,
        &["long", "long int", "uint64", "unsigned long", "i64"],
    ),
    (
        DType::Int32,
        "int32",
        4,
        &["int", "uint32", "unsigned int", "i32"],
    ),
    (
        DType::Int16,
        "int16",
        2,
        &["short", "short int", "uint16", "unsigned short", "i16"],
    ),
    (
        DType::Int8,
        "int8",
        1,
        &["signed char", "char", "qint8", "i8"],
    ),
    (
        DType::Uint8,
        "uint8",
        1,
        &["byte", "unsigned char", "quint8"],
    ),
    (DType::Bool, "bool", 1, &[]),
    (
        DType::Complex64,
        "complex64",
        8,
        &["c10::complex<float>", "cfloat"],
    ),
    (
        DType::Complex128,
        "complex128",
        16,
        &["c10::complex<double>", "cdouble"],
    ),
];

impl DType {
    /// The type with this name, in any spelling that occurs in profiles; case is ignored.
    pub fn parse(name: &str) -> Option<DType> {
        let name = name.trim().trim_start_matches("torch.");
        TABLE
            .iter()
            .find(|(_, short, _, others)| {
                short.eq_ignore_ascii_case(name)
                    || others.iter().any(|o| o.eq_ignore_ascii_case(name))
            })
            .map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.0 == self).unwrap_or(FALLBACK)
    }

    /// The short names of all types.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.1)
    }

    /// The short name used in rules and reports: `fp16`, `bf16`, `int8`, ...
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Bytes per element in memory. Packed sub-byte types count their packed element.
    pub fn bytes(self) -> u64 {
        self.row().2
    }

    /// Whether it is a floating-point type (not complex).
    pub fn is_float(self) -> bool {
        matches!(
            self,
            DType::Fp64
                | DType::Fp32
                | DType::Tf32
                | DType::Fp16
                | DType::Bf16
                | DType::Fp8
                | DType::Fp4
        )
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_unique_and_parsed() {
        let mut seen = std::collections::BTreeMap::new();
        for (dtype, short, bytes, others) in TABLE {
            assert!(*bytes > 0);
            for name in std::iter::once(short).chain(others.iter()) {
                assert_eq!(seen.insert(*name, *dtype), None, "{name} stands twice");
                assert_eq!(DType::parse(name), Some(*dtype), "{name}");
            }
        }
        assert_eq!(DType::parse("torch.bfloat16"), Some(DType::Bf16));
        assert_eq!(DType::parse("nonsense"), None);
    }
}
