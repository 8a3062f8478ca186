//! The reader of this format and the stages up to the facts; the seeds are in `corpus/nsys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyprof_advise_fuzz::profile(data));
