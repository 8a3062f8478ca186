//! What the fuzz targets share: bytes as a file, since profiles are opened by path, and the roads
//! behind the readers. What must hold of a profile and of a report is what the tests say.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pyprof_advise::correlate::{UnneededRanges, correlate};
use pyprof_advise::cost::{VOCABULARY, estimate_costs};
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::RuleSet;
use pyprof_advise::read::{self, NoProgress};
use pyprof_advise::report::{self, Report};

#[path = "../tests/reports/formats/check.rs"]
#[allow(dead_code)]
mod check;
#[path = "../tests/support/faults/mod.rs"]
mod faults;
#[path = "../tests/reports/formats/hostile_text.rs"]
#[allow(dead_code)]
mod hostile_text;
pub mod tables;

/// Calls `act` with a file of these bytes, in memory where the system has such a folder.
pub fn with_file(data: &[u8], act: impl FnOnce(&Path)) {
    let path = file("in");
    std::fs::write(&path, data).expect("a temporary file can be written");
    act(&path);
}

/// The bytes of a copy of a file after `act`.
fn with_bytes_of(original: &Path, act: impl FnOnce(&Path)) -> Vec<u8> {
    let data = std::fs::read(original).expect("a file of the repository");
    let mut changed = Vec::new();
    with_file(&data, |path| {
        act(path);
        changed = std::fs::read(path).expect("it was just written");
    });
    changed
}

/// A file of this process.
pub fn file(name: &str) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    folder.join(format!("pyprof-advise-fuzz-{}-{name}", std::process::id()))
}

/// Reads, correlates and prices, and adds the kernels up another way.
///
/// # Panics
/// When what was read and the sum differ and no note says why.
pub fn profile(data: &[u8]) {
    with_file(data, |path| {
        let Ok(profile) = read::open_pruned(path, &UnneededRanges, &NoProgress) else {
            return;
        };
        if let Err(fault) = faults::Kernels::of(&profile).check(path) {
            panic!("{fault}");
        }
        let Ok(gpu) = select::choose(Some("v100"), &profile) else {
            return;
        };
        let run = correlate(profile, &VOCABULARY);
        let costed = estimate_costs(run, gpu);
        let _ = FactTable::new(&costed);
    });
}

/// The whole road with the built-in rules, down to the reports.
///
/// # Panics
/// On whatever the fault harness calls a fault.
pub fn road(path: &Path) {
    static RULES: OnceLock<RuleSet> = OnceLock::new();
    let rules = RULES.get_or_init(|| match RuleSet::builtin() {
        Ok(rules) => rules,
        Err(complaints) => panic!("{}", complaints.render(false)),
    });
    if let Err(fault) = faults::road(path, rules) {
        panic!("{fault}");
    }
}

/// A small report with something in every list: the example's.
pub fn example() -> &'static Report {
    static EXAMPLE: OnceLock<Report> = OnceLock::new();
    EXAMPLE.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/net.sqlite");
        let rules = match RuleSet::builtin() {
            Ok(rules) => rules,
            Err(complaints) => panic!("{}", complaints.render(false)),
        };
        hostile_text::small(faults::report(&path, &rules).expect("the example has a report"))
    })
}

/// Every format of a report, for nothing but that it ends.
pub fn render(report: &Report) {
    let _ = report::markdown(report);
    let _ = report::markdown_within(report, 2_000);
    let _ = report::html(report);
    let _ = report::sarif(report);
    let _ = report::github(report);
    let _ = report::text(report, 80);
    let _ = report::json(report);
}

/// Every format of the example with everything in it called `name`, each checked.
///
/// # Panics
/// When the name is more than text in one of them.
pub fn named(name: &str) {
    hostile_text::check_all(&hostile_text::poisoned(example(), name));
}
