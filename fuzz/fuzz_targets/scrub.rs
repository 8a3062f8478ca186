//! `scrub`: its own search must find nothing in its output. Only in a trace whose JSON is broken may it take
//! a harmless word for a secret; the program keeps no such copy.
#![no_main]

use std::io::Read as _;

use pyprof_advise::read::NoProgress;
use pyprof_advise::scrub;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    pyprof_advise_fuzz::with_file(data, |path| {
        let copy = pyprof_advise_fuzz::file("out");
        let _ = std::fs::remove_file(&copy);
        if let Ok(summary) = scrub::scrub(path, &copy, false, &NoProgress) {
            assert!(
                summary.rescan.is_clean() || is_broken_json(data),
                "{:?}",
                summary.rescan
            );
        }
    });
});

/// Whether the data is a trace, perhaps compressed, that is no valid JSON.
fn is_broken_json(data: &[u8]) -> bool {
    let mut text = Vec::new();
    let text = match data.starts_with(&[0x1f, 0x8b]) {
        true => {
            let mut unpacked = flate2::read::MultiGzDecoder::new(data).take(1 << 28);
            let _ = unpacked.read_to_end(&mut text);
            text.as_slice()
        }
        false => data,
    };
    let is_trace = !text.starts_with(b"SQLite format 3");
    is_trace && serde_json::from_slice::<serde_json::Value>(text).is_err()
}
