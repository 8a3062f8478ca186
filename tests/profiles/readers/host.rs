//! What the host did while the GPU waited, from an export with every table that tells it: the seed of the fuzz
//! target, in which the GPU waits from 1 to 50 ms.

use std::path::Path;

use pyprof_advise::Advisor;
use pyprof_advise::report::{self, HostReport};

fn host() -> HostReport {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/nsys/seed_host.sqlite");
    let report = Advisor::new().unwrap().report(seed).unwrap();
    let page = report::markdown(&report).unwrap();
    let row =
        "| CUDA call: `cudaLaunchKernel`, called by `load` | 2.00 ms | 4.1 % | recorded: 1 call |";
    assert!(page.contains(row), "{page}");
    report.host.unwrap()
}

#[test]
fn every_source_explains_its_part_of_a_gap() {
    let host = host();
    let rows: Vec<String> = (host.rows.iter())
        .map(|row| {
            let names = [&row.name, &row.inside, &row.caller].map(String::as_str);
            let ms = row.ns as f64 / 1e6;
            format!(
                "{}: {} | {ms:.0} ms | {}",
                row.activity,
                names.join(", "),
                row.known_from
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            "Computing: load (libtorch.so), ,  | 14 ms | estimate: 14 samples",
            "Python function or line: load (srv/data.py:12), ,  | 12 ms | estimate: 12 samples",
            "Reading a file or pipe: read, load,  | 2 ms | recorded: 1 call of 8.19 kB, 4.10 MB/s",
            "CUDA call: cudaLaunchKernel, , load | 2 ms | recorded: 1 call",
            "Reading a file or pipe: read, ,  | 1 ms | recorded: 1 call of 100 B, 100 kB/s",
            "Waiting for Python's lock (GIL): , ,  | 1 ms | recorded: 1 call",
            // Preempted, and in `cublasCreate_v2`.
            "Other activities: , ,  | 2 ms | recorded: 1 call",
            "Computing: on the CPU, in no recorded call: , ,  | 15 ms | remainder",
        ]
    );
}

#[test]
fn the_parts_add_up_to_the_gap() {
    let host = host();
    let sum: i64 = host.rows.iter().map(|row| row.ns).sum();
    assert_eq!((host.gaps, host.ns, sum), (1, 48_999_991, 48_999_991));
}
