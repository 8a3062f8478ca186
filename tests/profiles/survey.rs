//! What several tests ask of every real profile, from one analysis of each.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pyprof_advise::Advisor;
use pyprof_advise::advisor::open;
use pyprof_advise::facts::FactTable;
use pyprof_advise::read::NoProgress;
use pyprof_advise::report::{json, read_json};
use rayon::prelude::*;

use crate::explained::{Explained, explained};
use crate::serving::{Operators, advice_on_training_of_served, operators_of_engines};
use crate::shared;

/// One profile with GPU work.
pub(crate) struct Surveyed {
    pub path: PathBuf,
    /// Rule and subject of each numbered finding.
    pub numbered: Vec<(String, String)>,
    /// How much of its GPU time the report explains; none where no kernel takes time.
    pub explained: Option<Explained>,
    /// Operators of serving engines and their libraries.
    pub operators: Operators,
    /// The lines of advice on training in the report of a served model; none of another program.
    pub served_advice_on_training: Option<Vec<String>>,
    /// Whether the report, written as JSON and read back, is written the same.
    pub round_trips: bool,
}

static ALL: LazyLock<Vec<Surveyed>> = LazyLock::new(|| {
    let advisor = Advisor::new().unwrap();
    let mut files = shared::profiles().unwrap_or_default();
    files.extend(shared::pairs());
    files
        .par_iter()
        .filter_map(|file| surveyed(&advisor, file))
        .collect()
});

/// Every profile with GPU work of the folder of real profiles and of the pairs; none where it is not at hand.
pub(crate) fn all() -> Option<&'static [Surveyed]> {
    shared::path("profiles").map(|_| ALL.as_slice())
}

fn surveyed(advisor: &Advisor, path: &Path) -> Option<Surveyed> {
    let profile = open(path, &NoProgress).ok()?;
    let analysis = advisor.analyze(profile, &mut |_| {}).ok()?;
    let (run, report) = (&analysis.costed.run, &analysis.report);
    let table = FactTable::new(&analysis.costed);
    let written = json(report);
    let again = read_json(&written).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let findings = report.findings.iter();
    Some(Surveyed {
        path: path.to_owned(),
        numbered: findings
            .map(|f| (f.rule.clone(), f.subject.clone()))
            .collect(),
        explained: explained(&analysis, &table, path),
        operators: operators_of_engines(run),
        served_advice_on_training: advice_on_training_of_served(&table, report, path),
        round_trips: json(&again) == written,
    })
}

#[test]
fn reports_are_equal_after_a_round_trip() {
    let Some(all) = all() else { return };
    let changed: Vec<_> = (all.iter())
        .filter(|profile| !profile.round_trips)
        .map(|profile| &profile.path)
        .collect();
    assert!(changed.is_empty(), "{changed:?}");
    assert!(all.len() >= 25, "only {} profiles have a report", all.len());
}
