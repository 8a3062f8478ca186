//! Databases with a valid file format and arbitrary content: the bytes are interpreted as edits of a
//! small export. Runs all stages up to the report, and compares the kernel time with an independent
//! sum.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyprof_advise_fuzz::tables::edited(data));
