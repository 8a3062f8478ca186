//! Compares a report with an older one, the baseline, and hides the findings that the baseline has.
//!
//! Findings are the same when rule and subject are the same; file names, line numbers and times do
//! not matter. A known finding is shown nevertheless when it became worse: more severe, much larger,
//! or in new places.

use std::collections::{BTreeMap, BTreeSet};

use super::lists::newly_skipped;
use crate::base::text;
use crate::base::units::percent;
use crate::judge::{FLOOR, Severity};
use crate::report::{Baseline, FindingList, FindingReport, GoneFinding, HiddenReason, NEW, Report};

/// A known finding is shown again when its share grew by more than this factor,
const GROWN: f64 = 2.0;
/// and by at least this share of time: smaller differences are noise.
const GROWN_BY: f64 = 0.01;
/// Most new places named in one sentence.
const NAMED: usize = 3;

/// Hides the findings of `report` that `baseline` has, marks the others, and lists those that are
/// gone. `file` is the path of the baseline; `ran` tells whether a rule ran for `report`.
pub fn against(report: &mut Report, baseline: &Report, file: &str, ran: &dyn Fn(&str) -> bool) {
    let gone = gone(report, baseline);
    let blind = newly_skipped(baseline, report);
    let (fixed, not_checked) = gone
        .into_iter()
        .partition(|g| ran(&g.rule) && !blind.contains(&g.rule.as_str()));
    report.baseline = Some(Baseline {
        file: file.to_owned(),
        title: baseline.title.clone(),
        fixed,
        not_checked,
    });
    if let Some(caution) = other_gpu(report, baseline) {
        report.cautions.push(caution);
    }
    let busy_ns = report.summary.busy_ns as f64;
    let mut known: BTreeMap<Key<'_>, Vec<&FindingReport>> = BTreeMap::new();
    for finding in baseline.all_findings() {
        known.entry(key(finding)).or_default().push(finding);
    }
    let lists = [&mut report.findings, &mut report.minor, &mut report.capture];
    let suppressed = report.hidden.iter_mut().map(|h| &mut h.finding);
    for finding in lists.into_iter().flatten().chain(suppressed) {
        finding.since_baseline = match known.get(&key(finding)) {
            Some(known) => worse(finding, known, busy_ns),
            None => Some(NEW.to_owned()),
        };
    }
    report.hide(|finding| {
        let known = finding.since_baseline.is_none();
        known.then_some((HiddenReason::Known, None))
    });
}

/// Rule and subject: the same finding in another report.
type Key<'a> = (&'a str, &'a str);

fn key(finding: &FindingReport) -> Key<'_> {
    (&finding.rule, &finding.subject)
}

/// In which way a finding is worse than in the baseline; `None` if it is not.
fn worse(now: &FindingReport, known: &[&FindingReport], busy_ns: f64) -> Option<String> {
    let severity = known.iter().map(|b| b.severity).max()?;
    if now.severity > severity {
        return Some(format!(
            "known as {}, and {} now",
            with_article(severity),
            with_article(now.severity)
        ));
    }
    let share = known.iter().map(|b| b.share).fold(0.0, f64::max);
    if now.share > GROWN * share && now.share - share > GROWN_BY {
        return Some(format!(
            "known, and grown from {} to {}",
            percent(share),
            percent(now.share)
        ));
    }
    let places = new_places(now, known, busy_ns);
    (!places.is_empty()).then(|| format!("known, and new in {}", text::list_some(&places, NAMED)))
}

fn with_article(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "a note",
        Severity::Warning => "a warning",
        Severity::Error => "an error",
    }
}

/// Places that the baseline does not have, if they are worth a finding. Empty where a list is
/// incomplete, because the places may be among those left out.
fn new_places<'a>(now: &'a FindingReport, known: &[&FindingReport], busy_ns: f64) -> Vec<&'a str> {
    let complete = |f: &FindingReport| !f.places.is_empty() && f.places_omitted == 0;
    if !known.iter().all(|b| complete(b)) {
        return Vec::new();
    }
    let was_there = |place: &str| {
        let mut places = known.iter().flat_map(|b| &b.places);
        places.any(|p| p.place == place)
    };
    let new = now.places.iter().filter(|p| !was_there(&p.place));
    let (names, times): (Vec<&str>, Vec<f64>) = new.map(|p| (p.place.as_str(), p.time_ns)).unzip();
    match times.iter().sum::<f64>() >= FLOOR * busy_ns {
        true => names,
        false => Vec::new(),
    }
}

/// Findings of the baseline that this report does not have, neither shown nor hidden. Findings about
/// the capture and minor ones do not count.
fn gone(report: &Report, baseline: &Report) -> Vec<GoneFinding> {
    let was = baseline.findings.iter().chain(
        (baseline.hidden.iter())
            .filter(|h| h.list == FindingList::Findings)
            .map(|h| &h.finding),
    );
    let now: BTreeSet<Key<'_>> = report.all_findings().map(key).collect();
    was.filter(|b| !now.contains(&key(b)))
        .map(|b| GoneFinding {
            rule: b.rule.clone(),
            title: b.title.clone(),
            place: b.place.clone(),
            share: b.share,
        })
        .collect()
}

/// A caution where the GPUs differ, which changes findings without a change of the program.
fn other_gpu(report: &Report, baseline: &Report) -> Option<String> {
    let name = |r: &Report| r.method.gpu.as_ref().map(|g| g.name.clone());
    let (now, then) = (name(report), name(baseline));
    (now != then).then(|| {
        let known = |name: Option<String>| name.unwrap_or_else(|| "no known GPU".to_owned());
        format!(
            "The baseline was measured against {}, this profile against {}: what is new or fixed may \
             come from that.",
            known(then),
            known(now)
        )
    })
}
