//! Measures the time of loading and checking all built-in rules on one core: `cargo bench --bench
//! rules`. Fails above 10 ms.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::time::{Duration, Instant};

use pyprof_advise::judge::RuleSet;

/// Maximum of the median.
const MOST: Duration = Duration::from_millis(10);
const RUNS: usize = 51;

fn main() {
    let one_core = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let mut times = Vec::with_capacity(RUNS);
    let mut count = 0;
    one_core.unwrap().install(|| {
        for _ in 0..RUNS {
            let start = Instant::now();
            count = RuleSet::builtin().unwrap().len();
            times.push(start.elapsed());
        }
    });
    times.sort();
    let median = times[RUNS / 2];
    println!(
        "{count} built-in rules: {median:.2?} (fastest {:.2?})",
        times[0]
    );
    assert!(median <= MOST, "loading takes more than {MOST:?}");
}
