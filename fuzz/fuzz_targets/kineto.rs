//! The reader of this format and everything up to the facts; see `corpus/kineto` for where it starts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyprof_advise_fuzz::profile(data));
