//! Databases with a sound file format and wild content: the bytes are read as edits of a small export,
//! and the whole road is gone, down to the report and a sum of kernel time made another way.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyprof_advise_fuzz::tables::edited(data));
