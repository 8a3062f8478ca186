//! Files of PyProf dictionaries, the input of `prof`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = pyprof_advise::pyprof::read("net.dict", data);
});
