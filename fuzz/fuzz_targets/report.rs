//! An untrusted JSON report, the input of `merge`, `diff` and `--baseline`.
#![no_main]

use pyprof_advise::{compare, report};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(read) = report::read_json(text) else {
        return;
    };
    pyprof_advise_fuzz::render(&read);
    let example = pyprof_advise_fuzz::example();
    for (before, after) in [(&read, example), (example, &read)] {
        let diff = compare::diff(before, after);
        let _ = compare::diff::gate(&diff, 0.03);
        let mut held = after.clone();
        compare::against(&mut held, before, "before.json", &|_| true);
        pyprof_advise_fuzz::render(&held);
    }
    let merged = compare::merge(vec![read.clone(), example.clone(), read], Vec::new());
    pyprof_advise_fuzz::render(&merged.expect("three reports"));
});
