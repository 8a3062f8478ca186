//! `scrub`: its own search must find nothing in its output.
#![no_main]

use pyprof_advise::read::NoProgress;
use pyprof_advise::scrub;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    pyprof_advise_fuzz::with_file(data, |path| {
        let copy = pyprof_advise_fuzz::file("out");
        let _ = std::fs::remove_file(&copy);
        if let Ok(summary) = scrub::scrub(path, &copy, false, &NoProgress) {
            assert!(summary.rescan.is_clean(), "{:?}", summary.rescan);
        }
    });
});
