//! Python literals, as PyProf markers hold them.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| pyprof_advise::fuzzing::literal(text));
