//! Measures the time of loading and checking all built-in rules on one core: `cargo bench --bench
//! rules`. Fails if what an analysis loads, the part of each rule that decides whether it fires, takes more than 10 ms
//! for 200 rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::time::{Duration, Instant};

use pyprof_advise::facts;
use pyprof_advise::judge::{RuleFile, RuleSet, Selection};

/// Maximum of the median, per rule.
const MOST: Duration = Duration::from_micros(50);
const RUNS: usize = 51;

fn main() {
    let (with_tests, _) = median("with their advice and tests", RuleSet::builtin_files);
    let (median, count) = median("for an analysis", RuleSet::builtin_files_for_analysis);
    assert!(
        median <= MOST * count,
        "loading takes more than {MOST:?} a rule"
    );
    assert!(median <= with_tests, "loading less takes longer");
}

/// The median time, and the number of rules.
fn median(what: &str, files: fn() -> Vec<RuleFile>) -> (Duration, u32) {
    let one_core = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let mut times = Vec::with_capacity(RUNS);
    let mut count = 0;
    one_core.unwrap().install(|| {
        for _ in 0..RUNS {
            let start = Instant::now();
            let rules = RuleSet::load(&files(), &Selection::default(), facts::all());
            times.push(start.elapsed());
            count = rules.unwrap().len();
        }
    });
    times.sort();
    let median = times[RUNS / 2];
    println!(
        "{count} built-in rules {what}: {median:.2?} (fastest {:.2?})",
        times[0]
    );
    (median, u32::try_from(count).unwrap())
}
