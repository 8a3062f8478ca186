//! Kernel names as PyProf prints them.

use std::borrow::Cow;

use crate::cost::kernel_name;

/// Words that PyProf removes from a name at any position.
const DROPPED: [&str; 5] = [
    "void ",
    "at::",
    "cuda::",
    "native::",
    "(anonymous namespace)::",
];

/// The last of them as spelled by Nsight Systems, which PyProf does not handle.
const UNNAMED: &str = "<unnamed>::";

/// The whole name, demangled.
pub(super) fn long(name: &str) -> Cow<'_, str> {
    kernel_name::readable(name)
}

/// PyProf's short name of a demangled name: the part before the template arguments.
pub(super) fn as_pyprof(long: &str) -> String {
    // The words are removed from the text before the first template argument.
    let mut name = long.split('<').next().unwrap_or_default().to_owned();
    for word in DROPPED {
        if name.contains(word) {
            name = name.replace(word, "");
        }
    }
    name.split('(').next().unwrap_or_default().to_owned()
}

/// PyProf's short name, or a better one if PyProf prints nothing or the name of another function. This
/// happens for the unnamed namespace in Nsight Systems, a template in the return type
/// (`std::enable_if<..>::type f`) or before the function (`Policy<..>::f`), and CUTLASS kernels, whose
/// name is their argument.
pub(super) fn short(long: &str) -> String {
    let mut name = Cow::Borrowed(long);
    for word in DROPPED.into_iter().chain([UNNAMED]) {
        if name.contains(word) {
            name = Cow::Owned(name.replace(word, ""));
        }
    }
    let plain = without_arguments(&name);
    let before = name.split(['<', '(']).next().unwrap_or_default();
    if plain != before && !plain.is_empty() {
        return plain;
    }
    match cutlass(&name, before) {
        Some(own) => format!("{before}<{own}>"),
        None => before.to_owned(),
    }
}

/// A function's name without template arguments, parameters and return type.
fn without_arguments(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0_u32;
    let mut previous = ' ';
    for c in name.chars() {
        match c {
            // `operator<` and `->` are rare; the name then ends there, as PyProf's does.
            '<' => depth += 1,
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            // The return type ends here.
            ' ' if depth == 0 && out.ends_with("type") && previous == 'e' => out.clear(),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        previous = c;
    }
    out.trim_end().to_owned()
}

/// The first argument of a CUTLASS kernel, if it is a name.
fn cutlass<'a>(name: &'a str, before: &str) -> Option<&'a str> {
    if !before.starts_with("cutlass") {
        return None;
    }
    let inside = name.get(before.len()..)?.strip_prefix('<')?;
    let end = inside.find(['<', '>', ','])?;
    let own = inside.get(..end)?.trim();
    let is_name = own.len() > 8 && own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_match_pyprof() {
        for (long, want) in [
            ("volta_sgemm_32x128_tn", "volta_sgemm_32x128_tn"),
            (
                "void at::native::elementwise_kernel<512, 1, at::f(int)::{lambda()#1}>(int, F)",
                "elementwise_kernel",
            ),
            (
                "void (anonymous namespace)::softmax_warp_forward<float, 6>(float*)",
                "softmax_warp_forward",
            ),
            (
                "void cudnn::ops::nchwToNhwcKernel<float, float>(x<float>, T2 *)",
                "cudnn::ops::nchwToNhwcKernel",
            ),
            ("foo(std::vector<int>)", "foo"),
            ("", ""),
        ] {
            assert_eq!(short(long), want, "{long}");
            assert_eq!(as_pyprof(long), want, "{long}");
        }
    }

    #[test]
    fn names_that_pyprof_truncates_are_complete() {
        for (long, want) in [
            (
                "void at::native::<unnamed>::avg_pool3d_cuda_update_output<(int)2, float>(at::X<T>)",
                "avg_pool3d_cuda_update_output",
            ),
            (
                "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, float2>(T13)",
                "internal::gemvx::kernel",
            ),
            ("void Policy<float>::run<3>(int)", "Policy::run"),
            (
                "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(T1::Params)",
                "cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>",
            ),
            (
                "void cutlass::device_kernel<cutlass::gemm::Universal<int>>(T1)",
                "cutlass::device_kernel",
            ),
        ] {
            assert_eq!(short(long), want, "{long}");
        }
    }
}
