//! A GPU file.
#![no_main]

use pyprof_advise::base::diag::Source;
use pyprof_advise::gpu::load;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(complaints) = load::parse_source("fuzzed", &Source::new("fuzzed.toml", text)) {
        let _ = complaints.render(false);
    }
});
