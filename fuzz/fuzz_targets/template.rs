//! A user's template, rendered with the report of the example.
#![no_main]

use pyprof_advise::report;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let example = pyprof_advise_fuzz::example();
    let _ = report::render_template(example, "fuzzed.jinja", text);
});
