//! A rule file, loaded like the built-in ones, including its tests.
#![no_main]

use pyprof_advise::base::diag::Source;
use pyprof_advise::facts;
use pyprof_advise::judge::{RuleFile, RuleSet, Selection, run_tests};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let file = RuleFile {
        id: "user/fuzzed".to_owned(),
        source: Source::new("fuzzed.toml", text),
        builtin: false,
        decision: None,
    };
    match RuleSet::load(&[file], &Selection::default(), facts::all()) {
        Ok(rules) => {
            let _ = run_tests(rules.rules(), facts::all(), &|_| None);
        }
        Err(complaints) => {
            let _ = complaints.render(false);
        }
    }
});
