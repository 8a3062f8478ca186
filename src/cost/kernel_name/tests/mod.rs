//! Kernel names with their expected properties, written by hand: from real profiles and from the
//! documents of the libraries. `describe` prints only the properties that are set.

use proptest::prelude::*;

use super::decoded::Role;
use super::*;

mod math;
mod others;

/// `gemm yes fp16 128x64x32 align8 tn sm8.0 splitk | label`.
fn describe(d: &DecodedName) -> String {
    let tensor_core = match d.tensor_core {
        TensorCore::Yes => "yes",
        TensorCore::No => "no",
        TensorCore::Unknown => "?",
    };
    let mut words = vec![d.family.name().to_owned(), tensor_core.to_owned()];
    words.extend(d.dtype.map(|t| t.name().to_owned()));
    words.extend(d.tile.map(|(m, n)| match d.tile_k {
        Some(k) => format!("{m}x{n}x{k}"),
        None => format!("{m}x{n}"),
    }));
    words.extend(d.align.map(|a| format!("align{a}")));
    words.extend(d.layout.clone());
    words.extend(d.arch.map(|(a, b)| format!("sm{a}.{b}")));
    words.extend(d.conv_role.map(|r| {
        match r {
            Role::Fwd => "fwd",
            Role::Dgrad => "dgrad",
            Role::Wgrad => "wgrad",
            _ => "other",
        }
        .to_owned()
    }));
    words.extend(d.collective.map(str::to_owned));
    let flags = [
        (d.split_k, "splitk"),
        (d.persistent, "persistent"),
        (d.strided == Some(true), "strided"),
        (d.strided == Some(false), "contiguous"),
        (d.triton, "triton"),
        (d.helper, "helper"),
        (d.causal == Some(true), "causal"),
        (d.causal == Some(false), "full"),
        (d.windowed == Some(true), "windowed"),
        (d.windowed == Some(false), "whole"),
        (d.fast_conv, "fast"),
        (d.half_accumulation, "sum16"),
    ];
    words.extend(flags.iter().filter(|f| f.0).map(|f| f.1.to_owned()));
    words.join(" ")
}

/// Lines of names, each followed by its indented description and, where it is compared, `| ` and its
/// label.
fn check(text: &str) {
    let mut wrong = Vec::new();
    let mut lines = text.lines().skip(1).filter(|l| !l.starts_with("//"));
    while let Some(name) = lines.next() {
        let want = lines.next().and_then(|l| l.strip_prefix("    "));
        let want = want.unwrap_or_else(|| panic!("{name} has no description"));
        let decoded = decode(name);
        let mut got = describe(&decoded);
        if want.contains(" | ") {
            got = format!("{got} | {}", decoded.label);
        }
        if got != want {
            wrong.push(format!("{name}\n  want {want}\n  got  {got}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn base_names_are_equal_for_both_demanglers() {
    let nsys = decode(
        "void at::native::<unnamed>::CatArrayBatchedCopy<float, unsigned int, (int)2>(T1 *)",
    );
    let kineto = decode(
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2>(float*)",
    );
    assert_eq!(nsys.base, "at::native::CatArrayBatchedCopy");
    assert_eq!(nsys, kineto);
}

#[test]
fn malicious_names_take_linear_time() {
    let long = [
        "<".repeat(1 << 20),
        "(".repeat(1 << 20),
        "f<(".repeat(1 << 19),
        "a::".repeat(1 << 19),
        "_".repeat(1 << 20),
        "lambda(".repeat(1 << 17),
        format!("_Z{}", "N1a".repeat(1 << 18)),
        format!("_Z1fI{}E", "S_".repeat(1 << 12)),
        "void at::native::elementwise_kernel<".to_owned() + &"BinaryFunctor<".repeat(1 << 16),
        "é".repeat(1 << 19),
    ];
    let start = std::time::Instant::now();
    for name in &long {
        assert!(decode(name).label.chars().count() <= LABEL);
    }
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

proptest! {
    #[test]
    fn any_text_is_accepted(name in ".{0,200}") {
        let decoded = decode(&name);
        prop_assert!(decoded.label.chars().count() <= LABEL);
    }

    #[test]
    fn any_combination_of_real_name_parts_is_accepted(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "void ", "at::native::", "<unnamed>::", "(anonymous namespace)::", "<", ">", "(", ")",
                "[lambda(float) (instance 1)]", "operator", "::", ", ", "(int)128", "_Z", "N", "12",
                "elementwise_kernel", "reduce_kernel", "cutlass_80_tensorop_", "s1688gemm", "_128x64",
                "sm80_xmma_gemm_", "Cijk_", "_MT", "nvjet_", "triton_", "fmhaSm", "Kv", "flash_fwd", " ",
                "multi_tensor_apply_kernel", "é", "->", "{", "}", "softmax_warp_forward", "bmm__sm100",
            ]),
            0..20,
        )
    ) {
        let decoded = decode(&pieces.concat());
        prop_assert!(decoded.label.chars().count() <= LABEL);
    }
}
