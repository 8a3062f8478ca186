//! The first finding of each real profile. A new rule may change a line here; each change is reviewed:
//! is the new first finding the one to act on first?

use std::collections::BTreeMap;

use crate::support::shared;

/// File and first finding, by rule; `-` for a report without findings.
const VERDICTS: &str = include_str!("verdicts.txt");

#[test]
fn first_findings_are_as_reviewed() {
    let Some(folder) = shared::path("profiles") else {
        return;
    };
    let reviewed: BTreeMap<&str, &str> = VERDICTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(file, rule)| (file, rule.trim()))
        .collect();
    let mut wrong = Vec::new();
    for (file, rule) in &reviewed {
        let Ok(report) = pyprof_advise::Advisor::new()
            .unwrap()
            .report(folder.join(file))
        else {
            wrong.push(format!("{file}: no report"));
            continue;
        };
        let first = report.findings.first().map_or("-", |f| f.rule.as_str());
        if first != *rule {
            wrong.push(format!("{file}: expected {rule}, got {first}"));
        }
    }
    assert!(reviewed.len() > 40, "{}", reviewed.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
