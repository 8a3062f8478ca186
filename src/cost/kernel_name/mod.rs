//! Decodes kernel names: family, Tensor Core use, dtype, tile and other properties.
//!
//! The base name is found first, then the family, then the use of Tensor Cores. Tokens for CUDA cores
//! take precedence over tokens for Tensor Cores: `xmma` alone is inconclusive, `xmma` with `ffma`
//! means CUDA cores. Only base names are matched, because whole names match too much: `lambda`
//! contains the optimizer `lamb`.

use decoded::LABEL;

mod attention;
mod decoded;
mod library;
mod native;
mod scan;
mod served;
mod table;
#[cfg(test)]
mod tests;
mod tokens;

pub use decoded::{DecodedName, Family, Role, TensorCore};

/// Recognizes one group of kernels: fills in the decoded name and returns whether the kernel belongs
/// to the group.
type Reader = fn(&scan::Parts<'_>, &mut DecodedName) -> bool;

/// All readers in the order in which they are tried; the first that recognizes the name decides.
const READERS: &[Reader] = &[
    native::memory,
    native::inductor,
    native::communication,
    native::elementwise,
    native::reduce,
    native::softmax,
    native::multi_tensor,
    table::helpers,
    attention::read,
    library::read,
    served::read,
    table::kernels,
    table::words,
];

/// Decodes a kernel's name, demangled or mangled. Any text is accepted. The time is linear in its
/// length, and only the first 16 KiB are read.
pub fn decode(name: &str) -> DecodedName {
    let text = scan::readable(name);
    let parts = scan::Parts::of(&text);
    let mut out = DecodedName::of_base(&parts);
    if !READERS.iter().any(|reader| reader(&parts, &mut out)) {
        out.family = Family::Unknown;
    }
    if !out.family.is_math() && !matches!(out.family, Family::Fused | Family::Unknown) {
        out.tensor_core = TensorCore::No;
    }
    if out.label.chars().count() > LABEL {
        out.label = out.label.chars().take(LABEL - 1).chain(['…']).collect();
    }
    out
}

/// Returns a kernel's name, demangled if it is mangled and the demangler knows the symbol.
pub fn readable(name: &str) -> std::borrow::Cow<'_, str> {
    if name.starts_with("_Z") {
        scan::readable(name)
    } else {
        std::borrow::Cow::Borrowed(name)
    }
}

/// Whether a kernel moves data between GPUs.
pub fn is_communication(name: &str) -> bool {
    let text = scan::readable(name);
    let parts = scan::Parts::of(&text);
    let mut out = DecodedName::of_base(&parts);
    !native::inductor(&parts, &mut out) && native::communication(&parts, &mut out)
}
