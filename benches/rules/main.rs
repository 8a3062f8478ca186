//! Measures the time of loading and checking all built-in rules on one core: `cargo bench --bench
//! rules`. Fails if it takes more than 10 ms to load what an analysis needs: rules without their tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::time::{Duration, Instant};

use pyprof_advise::facts;
use pyprof_advise::judge::{RuleFile, RuleSet, Selection};

/// Maximum of the median.
const MOST: Duration = Duration::from_millis(10);
const RUNS: usize = 51;

fn main() {
    let with_tests = median("with their tests", RuleSet::builtin_files);
    let median = median("for an analysis", RuleSet::builtin_files_to_judge);
    assert!(median <= MOST, "loading takes more than {MOST:?}");
    assert!(median <= with_tests, "loading less takes longer");
}

fn median(what: &str, files: fn() -> Vec<RuleFile>) -> Duration {
    let one_core = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let mut times = Vec::with_capacity(RUNS);
    let mut count = 0;
    one_core.unwrap().install(|| {
        for _ in 0..RUNS {
            let start = Instant::now();
            let rules = RuleSet::load(&files(), &Selection::default(), facts::all());
            count = rules.unwrap().len();
            times.push(start.elapsed());
        }
    });
    times.sort();
    let median = times[RUNS / 2];
    println!(
        "{count} built-in rules {what}: {median:.2?} (fastest {:.2?})",
        times[0]
    );
    median
}
