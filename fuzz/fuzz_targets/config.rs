//! A configuration file. A valid one must read back equal after it is written.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| pyprof_advise::fuzzing::configuration(text));
