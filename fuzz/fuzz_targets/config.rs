//! A configuration file. One that is understood means the same once it is written out and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| pyprof_advise::fuzzing::configuration(text));
