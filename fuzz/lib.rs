//! Shared by the fuzz targets: files from bytes, since profiles are opened by path, and the stages
//! after the readers. The checks of profiles and reports are those of the tests.

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

/// Calls `act` with a file of these bytes, in memory if the system has a folder for it.
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

/// The path of a file of this process.
pub fn file(name: &str) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    folder.join(format!("pyprof-advise-fuzz-{}-{name}", std::process::id()))
}

/// Reads and correlates a profile, estimates costs, and sums up the kernels independently.
///
/// # Panics
/// When the result and the sum differ and no note explains it.
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

/// Runs all stages with the built-in rules, up to the reports.
///
/// # Panics
/// On every violation that the fault harness detects.
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

/// A small report with an entry in every list: that of the example.
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

/// Renders every format of a report; checks only that this ends.
pub fn render(report: &Report) {
    let _ = report::markdown(report);
    let _ = report::markdown_within(report, 2_000);
    let _ = report::html(report);
    let _ = report::sarif(report);
    let _ = report::github(report);
    let _ = report::text(report, 80);
    let _ = report::json(report);
}

/// Renders every format of the example with all names replaced by `name`, and checks each.
///
/// # Panics
/// When the name is not just text in one of them.
pub fn named(name: &str) {
    hostile_text::check_all(&hostile_text::poisoned(example(), name));
}
