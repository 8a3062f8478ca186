//! Every format of a report in which all names are fuzzed: Markdown, HTML, SARIF, GitHub's workflow
//! commands, terminal text, JSON. Each must contain the name as text only.
#![no_main]

libfuzzer_sys::fuzz_target!(|name: &str| pyprof_advise_fuzz::named(name));
