//! A file of operator costs, including its tests.
#![no_main]

use pyprof_advise::base::diag::Source;
use pyprof_advise::cost::user::UserCosts;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match UserCosts::read(&[Source::new("fuzzed.toml", text)]) {
        Ok(costs) => {
            let _ = costs.run_tests();
        }
        Err(complaints) => {
            let _ = complaints.render(false);
        }
    }
});
