//! What the fuzz targets share: bytes as a file, since profiles are opened by path, and the whole road
//! behind the readers.

use std::path::{Path, PathBuf};

use pyprof_advise::correlate::correlate;
use pyprof_advise::cost::{VOCABULARY, price};
use pyprof_advise::facts::Table;
use pyprof_advise::gpu::select;
use pyprof_advise::read::{self, Quiet};

/// Calls `act` with a file of these bytes, in memory where the system has such a folder.
pub fn with_file(data: &[u8], act: impl FnOnce(&Path)) {
    let path = file("in");
    std::fs::write(&path, data).expect("a temporary file can be written");
    act(&path);
}

/// A file of this process.
pub fn file(name: &str) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    folder.join(format!("pyprof-advise-fuzz-{}-{name}", std::process::id()))
}

/// Reads, correlates and prices; rules and reports have targets and tests of their own.
pub fn profile(data: &[u8]) {
    with_file(data, |path| {
        let Ok(profile) = read::open(path, &Quiet) else {
            return;
        };
        let Ok(gpu) = select::choose(Some("v100"), &profile) else {
            return;
        };
        let run = correlate(
            profile,
            &VOCABULARY,
        );
        let costed = price(run, gpu);
        let _ = Table::new(&costed);
    });
}
