//! Every numbered finding on every real profile has been read against the raw rows: `tests/verdicts.toml`
//! says which are worth doing. A rule may change a line there; each change is reviewed.

use std::path::Path;

use crate::verdicts;
use crate::{shared, survey};
use pyprof_advise::Advisor;

fn shown(list: &[(String, String)]) -> String {
    let each = list.iter().map(|(rule, subject)| match subject.as_str() {
        "" => format!("    {rule}\n"),
        subject => format!("    {rule}, {subject}\n"),
    });
    each.collect()
}

#[test]
fn every_numbered_finding_has_a_verdict() {
    let Some(root) = shared::path("") else {
        return;
    };
    let Some(all) = survey::all() else { return };
    let verdicts = verdicts::all();
    let mut stale = String::new();
    for program in &verdicts.profile {
        let path = root.join(&program.path);
        // A file without GPU work has no report.
        let found = (all.iter())
            .find(|profile| profile.path == path)
            .map_or(&[][..], |profile| &profile.numbered);
        let reviewed: Vec<(String, String)> = (verdicts.of(&program.path))
            .map(|f| (f.rule.clone(), f.subject.clone()))
            .collect();
        if found != reviewed {
            stale.push_str(&format!(
                "{}: the report has\n{}  verdicts are given for\n{}",
                program.path,
                shown(found),
                shown(&reviewed)
            ));
        }
    }
    assert!(stale.is_empty(), "{stale}");
}

/// Times are those of the queries in `tests/verdicts.toml`.
#[test]
fn rotary_embeddings_and_norms_take_all_their_kernels() {
    let Some(root) = shared::path("profiles") else {
        return;
    };
    let advisor = Advisor::new().unwrap();
    for (file, rule, ns) in [
        (
            "mfu_2gpu_before.sqlite",
            "layers/rope-unfused",
            44_583_343.0,
        ),
        (
            "mfu_2gpu_before.sqlite",
            "layers/norm-unfused",
            39_200_796.0,
        ),
        ("mfu_2gpu_after.sqlite", "layers/rope-unfused", 41_851_847.0),
        ("cs336jsun.sqlite", "layers/rope-unfused", 39_652_237.0),
    ] {
        let report = advisor.report(root.join(file)).unwrap();
        let finding = report.findings.iter().find(|f| f.rule == rule).unwrap();
        assert!(
            (finding.time_ns - ns).abs() < 1.0,
            "{file}: {}",
            finding.time_ns
        );
    }
}

#[test]
fn every_profile_is_among_the_verdicts() {
    let Some(root) = shared::path("") else {
        return;
    };
    let verdicts = verdicts::all();
    let mut files = shared::profiles().unwrap_or_default();
    files.extend(shared::pairs());
    let missing: Vec<_> = (files.iter())
        .filter_map(|file| file.strip_prefix(&root).ok())
        // The ranks of one job are read together.
        .filter(|file| !file.starts_with("profiles/dlrm_8ranks"))
        .filter(|file| !verdicts.profile.iter().any(|p| Path::new(&p.path) == *file))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let unknown = (verdicts.finding.iter())
        .filter(|f| !verdicts.profile.iter().any(|p| p.path == f.profile))
        .count();
    assert_eq!(unknown, 0, "findings of profiles that are not listed");
}

/// Nine of ten numbered findings must be worth doing. docs/field-notes.md lists the others, with the reason.
#[test]
fn most_findings_are_worth_doing_and_none_is_wrong() {
    use verdicts::Verdict;
    let verdicts = verdicts::all();
    let share = verdicts.count(Verdict::WorthDoing) as f64 / verdicts.finding.len() as f64;
    assert!(share >= 0.9, "{share:.3} are worth doing");
    assert_eq!(verdicts.count(Verdict::Misleading), 0);
    assert_eq!(verdicts.count(Verdict::Wrong), 0);
}
