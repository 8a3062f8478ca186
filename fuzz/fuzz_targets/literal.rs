//! Python literals in PyProf markers.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| pyprof_advise::fuzzing::literal(text));
