//! Every format of a report in which everything is called as fuzzed: Markdown, HTML, SARIF, GitHub's
//! workflow commands, terminal text, JSON. It is text everywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|name: &str| pyprof_advise_fuzz::named(name));
