//! Profiles of the host in every format, which is recognized by the first bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = pyprof_advise::host::read(data);
});
