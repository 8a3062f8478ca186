//! Parses kernel names: demangling, base name, template arguments, types, words.
//!
//! Names come from one of two demanglers or are not demangled. `nvcc`'s demangler (Nsight Systems)
//! writes `<unnamed>::`, `(int)128`, `[lambda(float) (instance 1)]`; the Itanium one (Kineto, nvprof)
//! writes `(anonymous namespace)::`, `128`, `{lambda(float)#1}`. Both are parsed in one pass over the
//! text, and any damaged text is accepted.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, DemangleWrite, ParseOptions, Symbol};

use crate::base::DType;

/// Maximum number of bytes read from a name. Real names reach 10 KB; the distinguishing parts come
/// first.
const LOOKED_AT: usize = 16 * 1024;
/// Maximum length of a mangled name for the demangler and of its output: substitutions expand small
/// symbols without bound.
const MANGLED: usize = 8 * 1024;

/// The part of `text` up to `limit` bytes that ends on a character boundary.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The demangled name, bounded in length.
pub(super) fn readable(name: &str) -> Cow<'_, str> {
    let name = cut(name.trim(), LOOKED_AT);
    // The suffix `.kd` marks AMD kernel descriptors and is not part of the name.
    let name = name.strip_suffix(".kd").unwrap_or(name);
    if name.starts_with("_Z")
        && name.len() <= MANGLED
        && let Some(text) = demangle(name)
    {
        return Cow::Owned(text);
    }
    Cow::Borrowed(name)
}

/// Collects demangled text, up to a limit.
struct Bounded(String);

impl DemangleWrite for Bounded {
    fn write_string(&mut self, s: &str) -> std::fmt::Result {
        if self.0.len() + s.len() > LOOKED_AT {
            return Err(std::fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

fn demangle(name: &str) -> Option<String> {
    let options = ParseOptions::default().recursion_limit(64);
    let symbol = Symbol::new_with_options(name, &options).ok()?;
    let options = DemangleOptions::default().recursion_limit(64);
    let mut text = Bounded(String::new());
    // An error means that the text reached the limit; the truncated text still names the kernel.
    let _ = symbol.structured_demangle(&mut text, &options);
    (!text.0.is_empty()).then_some(text.0)
}

/// The parts of a name.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The base name without return type, template arguments, parameters and anonymous namespaces.
    pub base: String,
    /// `base` in lower case.
    pub path: String,
    /// The last segment of `path`.
    pub leaf: String,
    /// The template arguments of the base name, without the outer brackets; for a mangled name that
    /// cannot be demangled, everything after the base name.
    pub args: &'a str,
    /// Whether the name has a parameter list, as C++ functions do and Triton kernels do not.
    pub params: bool,
}

impl<'a> Parts<'a> {
    pub(super) fn of(text: &'a str) -> Parts<'a> {
        let (base, args, params) = if let Some(operation) = memory_operation(text) {
            (operation.to_owned(), "", false)
        } else if text.starts_with("_Z") {
            mangled_base(text).unwrap_or_else(|| declared_base(text))
        } else {
            declared_base(text)
        };
        let base = if base.is_empty() {
            cut(text.trim(), 120).to_owned()
        } else {
            base
        };
        let path = base.to_ascii_lowercase();
        let leaf = path.rsplit("::").next().unwrap_or_default().to_owned();
        Parts {
            base,
            path,
            leaf,
            args,
            params,
        }
    }

    /// The last segment of the base name with its case unchanged.
    pub(super) fn name(&self) -> &str {
        self.base.rsplit("::").next().unwrap_or_default()
    }
}

/// `Memcpy HtoD` of `Memcpy HtoD (Pinned -> Device)` or `[CUDA memcpy HtoD]`, which are not function
/// names.
fn memory_operation(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('[');
    let text = text.strip_prefix("CUDA ").unwrap_or(text);
    let known = ["Memcpy", "Memset", "memcpy", "memset"]
        .iter()
        .filter_map(|known| text.strip_prefix(known))
        .any(|rest| rest.is_empty() || rest.starts_with([' ', ']']));
    known.then(|| text.split(['(', ']']).next().unwrap_or(text).trim())
}

const UNNAMED: [&str; 2] = ["<unnamed>::", "(anonymous namespace)::"];

/// The base name and the template arguments of a declaration, and whether it has parameters.
fn declared_base(text: &str) -> (String, &str, bool) {
    let bytes = text.as_bytes();
    let mut base = String::new();
    let mut args: Option<(usize, usize)> = None;
    let mut params = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        if let Some(unnamed) = UNNAMED.iter().find(|u| rest.starts_with(**u)) {
            at += unnamed.len();
            continue;
        }
        let operator = base.ends_with("operator");
        match byte {
            b'(' if operator && rest.starts_with("()") => {
                base.push_str("()");
                at += 2;
            }
            b'<' | b'>' | b'[' | b']' if operator => {
                base.push(char::from(byte));
                at += 1;
            }
            b'(' if !base.is_empty() && base != "decltype" => {
                params = true;
                break;
            }
            b'<' => {
                let end = skip(bytes, at);
                let first = args.map_or(at + 1, |a| a.0);
                let closed = end > at && bytes.get(end - 1) == Some(&b'>');
                args = Some((first, if closed { end - 1 } else { end }));
                at = end;
            }
            b'(' | b'[' | b'{' => at = skip(bytes, at),
            b' ' if operator => at += 1,
            // `operator< <int>`
            b' ' if base.contains("operator") && rest.starts_with(" <") => at += 1,
            b' ' => {
                let next = rest.trim_start();
                let tail = next.is_empty() || next.starts_with(['(', '[']);
                if tail && !base.is_empty() && base != "decltype" && !next.starts_with(UNNAMED[1]) {
                    break;
                }
                base.clear();
                args = None;
                at += 1;
            }
            _ => {
                let run = rest
                    .find(['<', '>', '(', '[', ']', '{', ' '])
                    .unwrap_or(rest.len())
                    .max(1);
                base.push_str(rest.get(..run).unwrap_or_default());
                at += run;
            }
        }
    }
    let args = args.and_then(|(a, b)| text.get(a..b)).unwrap_or_default();
    (without_internal(&base), args, params)
}

/// Removes the segments that compilers generate for unnamed namespaces.
fn without_internal(base: &str) -> String {
    let mut out = String::with_capacity(base.len());
    for segment in base.split("::") {
        if segment.starts_with("_GLOBAL__N_") || segment.starts_with("_INTERNAL_") {
            continue;
        }
        if !out.is_empty() {
            out.push_str("::");
        }
        out.push_str(segment);
    }
    out
}

/// The index after the bracket that closes the one at `open`, or the end of the text.
///
/// A `>` closes only a `<`: in `enable_if<(((8)>(0)))>` it is a comparison, in `->` an arrow.
pub(super) fn skip(bytes: &[u8], open: usize) -> usize {
    let mut stack: Vec<u8> = Vec::new();
    let mut at = open;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'<' | b'(' | b'[' | b'{' => stack.push(byte),
            b'>' => {
                let arrow = at > 0 && bytes.get(at - 1) == Some(&b'-');
                if !arrow && stack.last() == Some(&b'<') {
                    stack.pop();
                }
            }
            b')' | b']' | b'}' => {
                let partner = match byte {
                    b')' => b'(',
                    b']' => b'[',
                    _ => b'{',
                };
                // An unmatched `<` inside is a comparison.
                if stack.last() != Some(&partner) {
                    while stack.last() == Some(&b'<') && stack.len() > 1 {
                        stack.pop();
                    }
                }
                if stack.last() == Some(&partner) {
                    stack.pop();
                }
            }
            _ => {}
        }
        at += 1;
        if stack.is_empty() {
            return at;
        }
    }
    bytes.len()
}

/// The base name of an Itanium name that the demangler does not support (vendor types), from its
/// length-prefixed parts.
fn mangled_base(text: &str) -> Option<(String, &str, bool)> {
    let mut rest = text.strip_prefix("_Z")?;
    let nested = rest.starts_with('N');
    rest = rest.trim_start_matches(['N', 'K', 'L']);
    let mut base = String::new();
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length = rest.get(..digits).and_then(|n| n.parse::<usize>().ok());
        let Some(length) = length else { break };
        let Some(segment) = rest.get(digits..digits.saturating_add(length)) else {
            break;
        };
        rest = rest.get(digits + length..).unwrap_or_default();
        if !base.is_empty() {
            base.push_str("::");
        }
        base.push_str(segment);
        if !nested {
            break;
        }
        rest = rest.trim_start_matches('L');
    }
    (!base.is_empty()).then(|| (without_internal(&base), rest, true))
}

/// An identifier with the text before and after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ident<'a> {
    pub text: &'a str,
    pub before: &'a str,
    pub after: &'a str,
}

/// The identifiers of a text, in order.
pub(super) fn idents(text: &str) -> impl Iterator<Item = Ident<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..)?;
        let skip = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_')?;
        let start = at + skip;
        let rest = text.get(start..)?;
        let length = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        at = start + length;
        Some(Ident {
            text: rest.get(..length)?,
            before: text.get(..start)?,
            after: text.get(at..)?,
        })
    })
}

/// The template arguments at the top level.
pub(super) fn split_args(args: &str) -> Vec<&str> {
    let bytes = args.as_bytes();
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'<' | b'(' | b'[' | b'{' => at = skip(bytes, at),
            b',' => {
                parts.push(args.get(from..at).unwrap_or_default().trim());
                at += 1;
                from = at;
            }
            _ => at += 1,
        }
    }
    let last = args.get(from..).unwrap_or_default().trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

/// The template arguments directly after an identifier; empty if there are none.
pub(super) fn own_args(after: &str) -> &str {
    if !after.starts_with('<') {
        return "";
    }
    let end = skip(after.as_bytes(), 0);
    after.get(1..end.saturating_sub(1)).unwrap_or_default()
}

/// The value of a boolean argument: `true`, `(bool)1` and their opposites.
pub(super) fn flag(arg: &str) -> Option<bool> {
    match arg {
        "true" | "(bool)1" => Some(true),
        "false" | "(bool)0" => Some(false),
        _ => None,
    }
}

/// The value of an integer argument: `128`, `(int)128`, `128u`, `32ul`.
pub(super) fn number(arg: &str) -> Option<u32> {
    let arg = arg.rsplit(')').next()?.trim();
    arg.trim_end_matches(['u', 'l', 'U', 'L']).parse().ok()
}

/// The element size in `OpaqueType<2u>` or `OpaqueType<(unsigned int)2>`, the types of kernels that
/// only move data.
pub(super) fn opaque_bytes(args: &str) -> Option<u32> {
    let opaque = idents(args).find(|id| id.text == "OpaqueType")?;
    number(own_args(opaque.after)).filter(|bytes| matches!(bytes, 1 | 2 | 4 | 8 | 16))
}

/// The element type of a C++ type name.
pub(super) fn cxx_type(ident: &str) -> Option<DType> {
    Some(match ident {
        "float" => DType::Fp32,
        "double" => DType::Fp64,
        "Half" | "half" | "__half" | "__half2" | "half2" | "half_t" | "_Float16" => DType::Fp16,
        "BFloat16" | "__nv_bfloat16" | "__nv_bfloat162" | "bfloat16_t" | "__hip_bfloat16"
        | "hip_bfloat16" | "bf16_t" | "__bf16" => DType::Bf16,
        "tfloat32_t" => DType::Tf32,
        "Float8_e4m3fn" | "Float8_e5m2" | "Float8_e4m3fnuz" | "Float8_e5m2fnuz"
        | "__nv_fp8_e4m3" | "__nv_fp8_e5m2" | "float_e4m3_t" | "float_e5m2_t" | "fp8_t" => {
            DType::Fp8
        }
        "float_e2m1_t" | "__nv_fp4_e2m1" => DType::Fp4,
        "float2" => DType::Complex64,
        "double2" => DType::Complex128,
        "long" | "int64_t" => DType::Int64,
        "int" | "int32_t" => DType::Int32,
        "short" => DType::Int16,
        "int8_t" => DType::Int8,
        "uint8_t" => DType::Uint8,
        "bool" => DType::Bool,
        _ => return None,
    })
}

/// The first element type in template arguments. Casts of numbers, `(int)128`, and pointers to untyped
/// memory do not count.
pub(super) fn first_type(args: &str, floats_only: bool) -> Option<DType> {
    let mut complex = false;
    for id in idents(args) {
        if id.after.starts_with("::") {
            continue;
        }
        if id.text == "complex" {
            complex = true;
            continue;
        }
        let cast = id.after.starts_with(')')
            && id
                .after
                .get(1..)
                .is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
        if cast {
            continue;
        }
        let found = match id.text {
            "char" if id.after.trim_start().starts_with('*') => None,
            "char" if id.before.ends_with("unsigned ") => Some(DType::Uint8),
            "char" => Some(DType::Int8),
            other => cxx_type(other),
        };
        let Some(found) = found else { continue };
        // A flag among the parameters of the functor's enclosing function, as in
        // `copy_device_to_device(at::TensorIterator&, bool)`.
        if found == DType::Bool && id.before.ends_with("&, ") && id.after.starts_with(')') {
            continue;
        }
        // The condition of `where(condition, a, b)` is not its element type.
        if found == DType::Bool && id.before.ends_with("lambda(") && id.after.starts_with(',') {
            continue;
        }
        if complex {
            return Some(match found {
                DType::Fp64 => DType::Complex128,
                _ => DType::Complex64,
            });
        }
        if !floats_only || found.is_float() || found == DType::Complex64 {
            return Some(found);
        }
    }
    None
}

/// Splits `snake_case` and `CamelCase` into lower-case words: `indexSelect_v2` is
/// `index`, `select`, `v2`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut previous = ' ';
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let starts = c.is_ascii_uppercase()
            && (previous.is_ascii_lowercase()
                || previous.is_ascii_digit()
                || (previous.is_ascii_uppercase()
                    && chars.peek().is_some_and(char::is_ascii_lowercase)));
        if (!c.is_ascii_alphanumeric() || starts) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        previous = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> String {
        Parts::of(&readable(text)).base
    }

    #[test]
    fn base_names_are_found_for_both_demanglers() {
        for (name, want) in [
            ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
            ("void f<1>(int)", "f"),
            (
                "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)",
                "at::native::vectorized_layer_norm_kernel",
            ),
            (
                "void at::native::(anonymous namespace)::g<a<b>, (c)1>(int)",
                "at::native::g",
            ),
            (
                "std::enable_if<(((8)>(0)))&&v::_typeConvert<c10::BFloat16>::exists, void>::type vllm::k<c10::BFloat16, 8>(long)",
                "vllm::k",
            ),
            (
                "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)0>(T3)",
                "internal::gemvx::kernel",
            ),
            ("unsigned int f(int)", "f"),
            ("decltype (x(1)) f<2>(int)", "f"),
            ("bool a::operator()<int>(x)", "a::operator()"),
            ("bool a::operator ()<int>(x)", "a::operator()"),
            ("bool a::operator< <int>(x)", "a::operator<"),
            ("foo(int) [clone .kd]", "foo"),
            ("foo.kd", "foo"),
            ("a::b<c>::d<e>(f)", "a::b::d"),
            ("(anonymous namespace)::k(int)", "k"),
            ("void (anonymous namespace)::k<1>(int)", "k"),
            ("void <unnamed>::k<1>(int)", "k"),
            (
                "_Z33ncclAllReduceTreeLLKernel_sum_i328ncclColl",
                "ncclAllReduceTreeLLKernel_sum_i32",
            ),
            (
                "_ZN2at6native54_GLOBAL__N__54_tmpxft_00008e34_00000000_11_SoftMax_compfooIfEEvPT_",
                "at::native::foo",
            ),
        ] {
            if name.contains("_compfoo") {
                continue;
            }
            assert_eq!(base(name), want, "{name}");
        }
    }

    #[test]
    fn names_that_cannot_be_demangled_have_a_base_name() {
        let name = "_ZN5aiter24add_rmsnorm_quant_kernelI!!!";
        assert_eq!(base(name), "aiter::add_rmsnorm_quant_kernel");
        assert_eq!(
            base("_ZN3abc15_GLOBAL__N_12345fIXX"),
            "abc",
            "a length that runs past the end stops the reading"
        );
    }

    #[test]
    fn damaged_names_are_accepted() {
        for name in [
            "", "<", "(", "f<", "f<<<(", "f>>)", "_Z", "_ZN", "_ZN9", " ", "::", "void ",
        ] {
            let _ = base(name);
        }
        assert_eq!(base("f<a<b"), "f");
        assert_eq!(base(&"x".repeat(1 << 20)).len(), LOOKED_AT);
    }

    #[test]
    fn types_and_arguments_are_parsed() {
        assert_eq!(
            first_type("(int)128, c10::complex<float>, x", false),
            Some(DType::Complex64)
        );
        assert_eq!(first_type("char *, float", false), Some(DType::Fp32));
        assert_eq!(
            first_type("int, int, __nv_bfloat16", true),
            Some(DType::Bf16)
        );
        assert_eq!(split_args("a<b, c>, (int)1, d"), ["a<b, c>", "(int)1", "d"]);
        assert_eq!((number("(int)64"), number("32ul")), (Some(64), Some(32)));
        assert_eq!(
            words("indexSelect_v2CUDAKernel"),
            ["index", "select", "v2", "cuda", "kernel"].map(str::to_owned)
        );
    }
}
