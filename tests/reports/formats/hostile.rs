//! Text of a profile is untrusted: names of kernels, ranges, layers, files and devices are just text in
//! every format.

use proptest::prelude::*;

use super::example;
use super::hostile_text::{EVIL, check_all, poisoned, small};

#[test]
fn equal_names_are_escaped_in_every_format() {
    let report = small(example());
    for evil in [EVIL, &EVIL.repeat(4), &"x".repeat(5_000), ""] {
        check_all(&poisoned(&report, evil));
    }
}

/// Likely triggers mixed with arbitrary characters.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![
            "|", "`", "```", "[", "](", ")", "<", ">", "</", "<!--", "-->", "<script>", "</script>",
            "<details>", "</summary>", "&", "&#x3c;", "*", "_", "~", "#", "@octocat", "@", "\\", "$",
            "::", "::error::", "%0A", "%", "\n", "\r\n", "\u{2028}", "\t", " ", "    ", "1. ", "- ",
            "http://", "www.", "javascript:", "\"", "'", " onload=", "{{", "}}", "{%", "\u{1b}[2J",
            "\0", "\u{202e}", "\u{200b}", "\u{feff}", "a.py:3", "../", "/", "~/", ":", "%%", ";",
            "é", "中", "\u{1f600}", "x",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(|c| c.to_string()),
    ];
    prop::collection::vec(piece, 0..10).prop_map(|v| v.concat())
}

#[test]
fn any_name_is_escaped_in_every_format() {
    let report = small(example());
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    let config = ProptestConfig {
        // A case renders six formats, and a failure can only be reduced to the parts of its text.
        cases: cases.unwrap_or(12_u32).min(2_000),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(evil in hostile())| check_all(&poisoned(&report, &evil)));
}
